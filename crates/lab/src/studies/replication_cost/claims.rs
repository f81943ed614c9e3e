//! What the comparison claims, in its own order, and what was measured here.
//!
//! Each is judged by what the thing itself costs here. What may be wrong with the document's own figures is told as suspected: it
//! is known by its text alone, and nothing of it was run.

use std::fmt::Display;

use super::{
    ACKS_ALL, ACKS_NONE, IN_PROCESS, QUORATE_RESYNC, READS_EVERYWHERE, REDIS, REDIS_RESYNC, REDIS_WAIT,
};
use crate::harness::{Claim, Judgement, Results};
use crate::report::short;

/// What is as good as equal between runs on a busy machine.
const EQUAL_WITHIN: f64 = 0.25;

/// The study says "100 keys".
const HUNDRED_KEYS_KIB: u64 = 100;

pub(super) fn all() -> Vec<Claim> {
    [in_process(), over_the_wire(), beside_redis()].into_iter().flatten().collect()
}

/// Sections 1 to 3.
fn in_process() -> Vec<Claim> {
    vec![
        Claim::new(
            "A SET takes 56 ns: 17.8 million per second",
            "64 B 56.1 ns, 256 B 230.5 ns, 1024 B 85.2 ns (section 1)",
            |results| {
                judge(results, |results| {
                    let at = |keys: &str, bytes: u32| table(results, "SET", keys, bytes);
                    let same = [at("same", 64)?, at("same", 256)?, at("same", 1024)?];
                    let claimed = [56.1, 230.5, 85.2];
                    let is_as_fast =
                        same.iter().zip(claimed).all(|(ns, claimed)| *ns <= claimed * (1.0 + EQUAL_WITHIN));
                    let same = same.map(short).join(", ");
                    let distinct = [at("distinct", 64)?, at("distinct", 256)?, at("distinct", 1024)?];
                    let distinct = distinct.map(short).join(", ");
                    Some(Judgement::reproduced(
                        Some(is_as_fast),
                        format!("64, 256, 1024 B: one key {same} ns; 200 000 keys {distinct} ns"),
                        "Judged by one key, which stays in the processor's cache, in a loop without a network, a client or a \
                         second thread. With as many keys as a store has, memory counts.",
                        "its 230.5 ns and 265 MiB/s for 256 B do not fit each other (section 1), and 256 B cannot well take three \
                         times as long as 1024 B.",
                    ))
                })
            },
        ),
        Claim::new(
            "Without replication, operations in process take less than a microsecond",
            "56 ns to 231 ns (section 1)",
            |results| {
                judge(results, |results| {
                    let is_table = |point: &[String]| point.first().is_some_and(|part| part == "table");
                    let medians = results.summary().into_iter().filter_map(|(_, point, measure, spread)| {
                        (is_table(point) && measure == "ns_per_op").then_some(spread.median)
                    });
                    let slowest = medians.reduce(f64::max)?;
                    Some(Judgement::holds_if(
                        slowest < 1_000.0,
                        format!("at most {} ns, over all sizes, with one key and with many", short(slowest)),
                        "It is the floor on which everything else stands, not what a client sees.",
                    ))
                })
            },
        ),
        Claim::new(
            "Appending to the log takes 230 ns per operation, whatever the batch",
            "100: 225 ns, 1000: 233 ns, 10 000: 230 ns (section 2)",
            |results| {
                judge(results, |results| {
                    let per_op = [100, 1_000, 10_000].map(|batch| log(results, 1, batch));
                    let [small, middle, large] = per_op;
                    let (small, middle, large) = (small?, middle?, large?);
                    let (least, most) = (small.min(middle).min(large), small.max(middle).max(large));
                    Some(Judgement::holds_if(
                        most <= least * (1.0 + EQUAL_WITHIN),
                        format!(
                            "{}, {}, {} ns per SET with one follower",
                            short(small),
                            short(middle),
                            short(large)
                        ),
                        "A batch ends with one message for all of it, so a small one pays more of that per operation; \
                         what a large one writes no longer fits into the cache.",
                    ))
                })
            },
        ),
        Claim::new(
            "Replication adds 174 ns (310 %) to an operation",
            "56 ns without, 230 ns with the log (section 3)",
            |results| {
                judge(results, |results| {
                    let [none, one, three] = [0, 1, 3].map(|replicas| log(results, replicas, 1_000));
                    let (none, one, three) = (none?, one?, three?);
                    let more = |with: f64| {
                        format!("{} ns ({:+.0} %)", short(with - none), (with / none - 1.0) * 100.0)
                    };
                    // As much, by half or by twice.
                    let percent = (one / none - 1.0) * 100.0;
                    Some(Judgement::reproduced(
                        Some((155.0..=620.0).contains(&percent)),
                        format!(
                            "a leader's SET: {} ns alone; one follower adds {}, three add {}",
                            short(none),
                            more(one),
                            more(three)
                        ),
                        "Here the same command is given to the same leader, with and without followers.",
                        "the two figures are of different loops, one of SETs and one that appends to a buffer (sections 1, 2 \
                         and 7), and neither does both.",
                    ))
                })
            },
        ),
    ]
}

/// Sections 4 and 6.
fn over_the_wire() -> Vec<Claim> {
    vec![
        Claim::new(
            "Write-heavy: 17.8 million per second alone, 3.3 with one replica, 2.8 with three",
            "56 ns, ~300 ns, ~350 ns (section 4 A)",
            |results| {
                judge(results, |results| {
                    let told = scenario(results, "write-heavy")?;
                    let rates = rates_of(results, ACKS_NONE, "write-heavy")?;
                    Some(Judgement::reproduced(
                        Some(
                            rates.iter().zip([17.8e6, 3.3e6, 2.8e6]).all(|(rate, claimed)| *rate >= claimed),
                        ),
                        told,
                        "The figures here are of servers that replicate, over the wire.",
                        NO_REPLICAS,
                    ))
                })
            },
        ),
        Claim::new(
            "Read-heavy: 17.8 million per second alone, 12.5 with one replica, 11 with three",
            "~56 ns, ~80 ns, ~90 ns (section 4 B)",
            |results| {
                judge(results, |results| {
                    let told = scenario(results, "read-heavy")?;
                    let rates = rates_of(results, ACKS_NONE, "read-heavy")?;
                    Some(Judgement::reproduced(
                        Some(
                            rates.iter().zip([17.8e6, 12.5e6, 11e6]).all(|(rate, claimed)| *rate >= claimed),
                        ),
                        told,
                        "The figures here are of servers that replicate, over the wire.",
                        &format!(
                            "{NO_REPLICAS} They contradict its own sentence that reads are not impacted (section 4 B)."
                        ),
                    ))
                })
            },
        ),
        Claim::new(
            "Reads are not impacted by replication",
            "served from the local node (sections 4 B and 8)",
            |results| {
                judge(results, |results| {
                    let p50 = |replicas: u16| {
                        let points = wire(results, ACKS_NONE, "read-heavy", replicas, 1);
                        points.median("get_p50_ms")
                    };
                    let (none, three) = (p50(0)?, p50(3)?);
                    Some(Judgement::holds_if(
                        three <= none * (1.0 + EQUAL_WITHIN),
                        format!(
                            "median GET {} ms without, {} ms with three replicas",
                            short(none),
                            short(three)
                        ),
                        "The leader answers alone, but it also feeds its replicas, and all of them share this machine's \
                         processors.",
                    ))
                })
            },
        ),
        Claim::new(
            "Reads scale with the replicas: 33 million per second with one, 70 with three",
            "17.8 million times the number of nodes (section 6)",
            |results| {
                judge(results, |results| {
                    let rate = |replicas: u16| {
                        wire(results, ACKS_NONE, READS_EVERYWHERE, replicas, 16).median("per_s")
                    };
                    let (none, one, three) = (rate(0)?, rate(1)?, rate(3)?);
                    Some(Judgement::reproduced(
                        Some(one >= 1.75 * none && three >= 3.5 * none),
                        format!(
                            "{} per second of one node ({:.2}x), {} of two ({:.2}x), {} of four ({:.2}x), all on this machine",
                            short(none),
                            1.0,
                            short(one),
                            one / none,
                            short(three),
                            three / none
                        ),
                        "All nodes share this machine's processors with the clients; machines of their own would not.",
                        "33 and 70 million are 17.8 million times two and four (section 6): a product, and no measurement.",
                    ))
                })
            },
        ),
        Claim::new(
            "A full sync of 100 keys takes less than a second",
            "< 1 s, Redis 1 to 2 s (section 5)",
            |results| {
                judge(results, |results| {
                    let ours = resync(results, QUORATE_RESYNC, "full resync", HUNDRED_KEYS_KIB)?;
                    let start = resync(results, QUORATE_RESYNC, "full resync", 0)?;
                    let redis = resync(results, REDIS_RESYNC, "full resync", HUNDRED_KEYS_KIB);
                    Some(Judgement::holds_if(
                        ours < 1_000.0,
                        format!(
                            "{} ms from the start of the process, {} ms with no data{}",
                            short(ours),
                            short(start),
                            redis.map_or(String::new(), |redis| format!("; Redis {} ms", short(redis)))
                        ),
                        "100 keys are nothing: what is timed is starting and finding each other.",
                    ))
                })
            },
        ),
        Claim::new(
            "A replica lags by less than 10 ms",
            "< 10 ms, Redis ~10 to 50 ms (section 5)",
            |results| {
                judge(results, |results| {
                    let lag = |arm: &str, rate: u32| results.arm(arm).with("part", "lag").with("rate", rate);
                    let (p50, p99) = (
                        lag(ACKS_NONE, 10_000).median("lag_p50_ms")?,
                        lag(ACKS_NONE, 10_000).median("lag_p99_ms")?,
                    );
                    let redis = lag(REDIS, 10_000);
                    let redis = match (redis.median("lag_p50_ms"), redis.median("lag_p99_ms")) {
                        (Some(p50), Some(p99)) => format!("; Redis {} ms and {} ms", short(p50), short(p99)),
                        _ => String::new(),
                    };
                    Some(Judgement::holds_if(
                        p99 < 10.0,
                        format!("median {} ms, p99 {} ms at 10 000 writes/s{redis}", short(p50), short(p99)),
                        "Whether a replica lags less than 10 ms is answered here for servers that replicate.",
                    ))
                })
            },
        ),
    ]
}

/// Sections 5 and 8.
fn beside_redis() -> Vec<Claim> {
    vec![
        Claim::new(
            "Replication throughput is four times Redis's",
            "4.3 million per second, Redis ~1 million (sections 5 and 8)",
            |results| {
                judge(results, |results| {
                    let ratio = |arm: &str, redis: &str, pipeline: usize| {
                        let rate = |arm| wire(results, arm, "write-heavy", 1, pipeline).median("per_s");
                        Some(rate(arm)? / rate(redis)?)
                    };
                    let told = |pipeline| {
                        let none = ratio(ACKS_NONE, REDIS, pipeline)?;
                        let all = ratio(ACKS_ALL, REDIS_WAIT, pipeline)?;
                        Some(format!(
                            "{none:.2}x, and {all:.2}x when the replica is awaited, at pipeline {pipeline}"
                        ))
                    };
                    let is_four_times =
                        ratio(ACKS_NONE, REDIS, 1)? >= 4.0 && ratio(ACKS_NONE, REDIS, 16)? >= 4.0;
                    Some(Judgement::reproduced(
                        Some(is_four_times),
                        format!("with one replica, Quorate to Redis: {}; {}", told(1)?, told(16)?),
                        "Both replicate over the wire here.",
                        "4.3 million is of a loop that appends to a buffer in process (sections 2 and 7), and the document tells of \
                         no run of Redis.",
                    ))
                })
            },
        ),
        Claim::new(
            "It is 180 times as fast as Redis without replication",
            "17.8 million per second, Redis ~80 to 100 thousand (section 8)",
            |results| {
                judge(results, |results| {
                    let rate = |arm, pipeline| wire(results, arm, "write-heavy", 0, pipeline).median("per_s");
                    let loops = table(results, "SET", "same", 64)?;
                    let (ours, redis) = (rate(ACKS_NONE, 1)?, rate(REDIS, 1)?);
                    Some(Judgement::reproduced(
                        Some(ours / redis >= 180.0 / (1.0 + EQUAL_WITHIN)),
                        format!(
                            "over the wire {} per second, Redis {} ({:.2}x); a loop in process {} ({}x Redis)",
                            short(ours),
                            short(redis),
                            ours / redis,
                            short(1e9 / loops),
                            short(1e9 / loops / redis)
                        ),
                        "Both are asked over the wire here, at pipeline 1.",
                        "it sets a loop in process (section 7) beside a server. A loop of ours is faster than Redis over the wire as \
                         well, as the last figure tells.",
                    ))
                })
            },
        ),
        Claim::new("Replication costs less than with Redis: 310 % against ~400 %", "section 8", |results| {
            judge(results, |results| {
                let cost = |arm: &str| {
                    let cpu =
                        |replicas| wire(results, arm, "write-heavy", replicas, 16).median("cpu_us_per_op");
                    Some((cpu(1)? / cpu(0)? - 1.0) * 100.0)
                };
                let (ours, redis) = (cost(ACKS_NONE)?, cost(REDIS)?);
                Some(Judgement::reproduced(
                    Some(ours < redis),
                    format!(
                        "processor time of all nodes per write, one replica against none: Quorate {ours:+.0} %, \
                             Redis {redis:+.0} % (pipeline 16)"
                    ),
                    "Both replicate over the wire here.",
                    "its 310 % is the quotient of two different loops (section 3), and its figure for Redis has no source.",
                ))
            })
        }),
    ]
}

/// What is known of its figures with replicas.
const NO_REPLICAS: &str = "its figures with replicas are marked as approximate (section 4), and its list of what was run has no \
                           test with replicas and clients (section 7).";

/// A judgement, unless something that it needs is missing.
fn judge(results: &Results, find: impl Fn(&Results) -> Option<Judgement>) -> Judgement {
    find(results).unwrap_or_else(|| Judgement::not_measured("a point that it needs was not measured"))
}

fn table(results: &Results, op: &str, keys: &str, value_bytes: u32) -> Option<f64> {
    let points = results.arm(IN_PROCESS).with("part", "table").with("op", op).with("keys", keys);
    points.with("value_bytes", value_bytes).median("ns_per_op")
}

fn log(results: &Results, replicas: u16, batch: u32) -> Option<f64> {
    let points = results.arm(IN_PROCESS).with("part", "log").with("replicas", replicas);
    points.with("batch", batch).median("ns_per_op")
}

fn wire<'r>(
    results: &'r Results,
    arm: &str,
    workload: &str,
    replicas: u16,
    pipeline: impl Display,
) -> crate::harness::Selection<'r> {
    let points = results.arm(arm).with("part", "wire").with("workload", workload);
    points.with("replicas", replicas).with("pipeline", pipeline)
}

fn resync(results: &Results, arm: &str, part: &str, kib: u64) -> Option<f64> {
    results.arm(arm).with("part", part).with("kib", kib).median("resync_ms")
}

/// Throughput with no, one and three replicas.
fn rates_of(results: &Results, arm: &str, workload: &str) -> Option<[f64; 3]> {
    let rates = [0, 1, 3].map(|replicas| wire(results, arm, workload, replicas, 16).median("per_s"));
    let [none, one, three] = rates;
    Some([none?, one?, three?])
}

/// The same in words, ours and Redis's.
fn scenario(results: &Results, workload: &str) -> Option<String> {
    let rates = |arm: &str| Some(rates_of(results, arm, workload)?.map(short).join(", "));
    let redis = rates(REDIS).map_or(String::new(), |redis| format!("; Redis {redis}"));
    Some(format!("per second, pipeline 16: {}{redis}", rates(ACKS_NONE)?))
}

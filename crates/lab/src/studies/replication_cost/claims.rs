//! The comparison's claims, in its own order, and how they are judged.
//!
//! Each is judged by what the thing itself costs here. Where the comparison takes its two figures from two different
//! loops, both loops are run here, too: only if they reproduce its figures does the claim rest on that fault. Other
//! possible faults of its figures are reported as suspected: only the document's text is known.

use std::fmt::Display;

use super::{
    ACKS_ALL, ACKS_NONE, IN_PROCESS, QUORATE_RESYNC, READS_EVERYWHERE, REDIS, REDIS_RESYNC, REDIS_WAIT,
    REDIS_WAIT_EACH,
};
use crate::harness::{Claim, Judgement, Results, Selection};
use crate::report::short;

/// Figures within this share of each other count as equal.
const EQUAL_WITHIN: f64 = 0.25;

/// The study says "100 keys".
const HUNDRED_KEYS_KIB: u64 = 100;

/// The rate of writes at which the lag is judged.
const LAG_RATE: u32 = 10_000;

const QUORATE: &str = "Quorate";

pub(super) fn all() -> Vec<Claim> {
    [in_process(), over_the_wire(), resyncs_and_lag(), beside_redis()].into_iter().flatten().collect()
}

/// Sections 1 to 3.
fn in_process() -> Vec<Claim> {
    vec![
        claim(
            "A SET takes 56 ns: 17.8 million per second",
            "64 B 56.1 ns, 256 B 230.5 ns, 1024 B 85.2 ns (section 1)",
            &[IN_PROCESS],
            |results| {
                let same = sizes(results, "same", "ns_per_op")?;
                let distinct = sizes(results, "distinct", "ns_per_op")?;
                let is_slower = |(ns, claimed): (f64, f64)| ns > claimed * (1.0 + EQUAL_WITHIN);
                let slower = said(same, [56.1, 230.5, 85.2], is_slower);
                Some(Judgement::holds_if(
                    slower.is_empty(),
                    format!(
                        "64, 256, 1024 B: one key {} ns; 200 000 keys {} ns",
                        same.map(short).join(", "),
                        distinct.map(short).join(", ")
                    ),
                    format!(
                        "{slower}Judged by one key, as the study is; one of 200 000 takes {} times as long (64 B).",
                        short(distinct[0] / same[0])
                    ),
                ))
            },
        ),
        claim(
            "SETs write values of 64 B at 1.06 GiB/s, of 256 B at 265 MiB/s, of 1024 B at 11.5 GiB/s",
            "section 1",
            &[IN_PROCESS],
            |results| {
                let same = sizes(results, "same", "gib_per_s")?;
                let distinct = sizes(results, "distinct", "gib_per_s")?;
                let is_less = |(gib, claimed): (f64, f64)| gib < claimed / (1.0 + EQUAL_WITHIN);
                let less = said(same, [1.06, 0.259, 11.5], is_less);
                Some(Judgement::holds_if(
                    less.is_empty(),
                    format!(
                        "64, 256, 1024 B: one key {} GiB/s; 200 000 keys {} GiB/s",
                        same.map(short).join(", "),
                        distinct.map(short).join(", ")
                    ),
                    format!(
                        "{less}The study's 230.5 ns for 256 B would be 1.03 GiB/s, four times what it tells."
                    ),
                ))
            },
        ),
        claim(
            "Without replication, operations in process take less than a microsecond",
            "56 ns to 231 ns (section 1)",
            &[IN_PROCESS],
            |results| {
                let table = results.arm(IN_PROCESS).with("part", "table").with("threads", 1);
                let mut slowest: Option<(f64, String)> = None;
                for op in table.values("op") {
                    for keys in table.values("keys") {
                        for bytes in table.values("value_bytes") {
                            let at = table.clone().with("op", op).with("keys", keys);
                            let Some(ns) = at.with("value_bytes", bytes).median("ns_per_op") else {
                                continue;
                            };
                            if slowest.as_ref().is_none_or(|(most, _)| ns > *most) {
                                slowest = Some((ns, format!("{op} of {bytes} B, {keys} keys")));
                            }
                        }
                    }
                }
                let (slowest, what) = slowest?;
                Some(Judgement::holds_if(
                    slowest < 1_000.0,
                    format!("at most {} ns, over all sizes, with one key and with many", short(slowest)),
                    format!("The slowest is {what}."),
                ))
            },
        ),
        claim(
            "Appending to the log takes 230 ns per operation, whatever the batch",
            "100: 225 ns, 1000: 233 ns, 10 000: 230 ns (section 2)",
            &[IN_PROCESS],
            |results| {
                let per_op = every([100, 1_000, 10_000].map(|batch| log(results, 1, batch)))?;
                let appended = every([100, 1_000, 10_000].map(|batch| append(results, batch)))?;
                let least = per_op.into_iter().fold(f64::INFINITY, f64::min);
                let most = per_op.into_iter().fold(0.0, f64::max);
                let holds = most <= least * (1.0 + EQUAL_WITHIN);
                let suspected = match per_op {
                    _ if holds => "",
                    [small, ..] if small == most => {
                        " Suspected: a batch ends with one message for all of it, of which a small one pays more per operation."
                    }
                    [.., large] if large == most => {
                        " Suspected: what a large batch writes no longer fits into the cache."
                    }
                    _ => "",
                };
                Some(Judgement::holds_if(
                    holds,
                    format!(
                        "{} ns per SET with one follower; appending alone, as the study does, {} ns",
                        per_op.map(short).join(", "),
                        appended.map(short).join(", ")
                    ),
                    format!(
                        "From the fastest to the slowest it is {} times; up to 1.25 counts as the same.{suspected}",
                        short(most / least)
                    ),
                ))
            },
        ),
        claim(
            "Replication adds 174 ns (310 %) to an operation",
            "56 ns without, 230 ns with the log (section 3)",
            &[IN_PROCESS],
            |results| {
                let [none, one, three] = every([0, 1, 3].map(|replicas| log(results, replicas, 1_000)))?;
                let (set, appended) = (sizes(results, "same", "ns_per_op")?[0], append(results, 1_000)?);
                let percent = |with: f64, without: f64| (with / without - 1.0) * 100.0;
                let more = |with: f64| format!("{} ns ({:+.0} %)", short(with - none), percent(with, none));
                // Within a factor of two of the claimed value.
                let is_said = |percent: f64| (155.0..=620.0).contains(&percent);
                let ours = format!(
                    "a leader's SET: {} ns alone; one follower adds {}, three add {}",
                    short(none),
                    more(one),
                    more(three)
                );
                if is_said(percent(one, none)) {
                    return Some(Judgement::holds_if(
                        true,
                        ours,
                        "From half to twice as much counts as the same.",
                    ));
                }
                let fault = format!(
                    "its two figures are of two loops, of which one SETs a key and one appends to a buffer (sections 2 and 7), and \
                     neither does both. Such loops take {} and {} ns here ({:+.0} %).",
                    short(set),
                    short(appended),
                    percent(appended, set)
                );
                Some(Judgement::of_fault(Some(is_said(percent(appended, set))), ours, &fault))
            },
        ),
    ]
}

/// Sections 4 and 6.
fn over_the_wire() -> Vec<Claim> {
    vec![
        claim(
            "Write-heavy: 17.8 million per second alone, 3.3 with one replica, 2.8 with three",
            "56 ns, ~300 ns, ~350 ns (section 4 A)",
            &[ACKS_NONE],
            |results| scenario(results, "write-heavy", [17.8e6, 3.3e6, 2.8e6], NO_REPLICAS),
        ),
        claim(
            "Read-heavy: 17.8 million per second alone, 12.5 with one replica, 11 with three",
            "~56 ns, ~80 ns, ~90 ns (section 4 B)",
            &[ACKS_NONE],
            |results| {
                let suspected = format!(
                    "{NO_REPLICAS} They contradict its own sentence that reads are not impacted (section 4 B)."
                );
                scenario(results, "read-heavy", [17.8e6, 12.5e6, 11e6], &suspected)
            },
        ),
        claim(
            "Reads are not impacted by replication",
            "served from the local node (sections 4 B and 8)",
            &[ACKS_NONE],
            |results| {
                let p50 = |replicas| wire(results, ACKS_NONE, "read-heavy", replicas, 1).median("get_p50_ms");
                let (none, three) = (p50(0)?, p50(3)?);
                let holds = three <= none * (1.0 + EQUAL_WITHIN);
                let suspected = match holds {
                    true => "",
                    false => {
                        " Suspected: the leader feeds its replicas, and all of them share this machine's processors."
                    }
                };
                Some(Judgement::holds_if(
                    holds,
                    format!("median GET {} ms without, {} ms with three replicas", short(none), short(three)),
                    format!(
                        "It is {} times as long; up to 1.25 counts as the same.{suspected}",
                        short(three / none)
                    ),
                ))
            },
        ),
        claim(
            "Reads scale with the replicas: 33 million per second with one, 70 with three",
            "17.8 million times the number of nodes (section 6)",
            &[ACKS_NONE],
            |results| {
                let rate =
                    |replicas| wire(results, ACKS_NONE, READS_EVERYWHERE, replicas, 16).median("per_s");
                let [none, one, three] = every([0, 1, 3].map(rate))?;
                Some(Judgement::reproduced(
                    Some(one >= 1.75 * none && three >= 3.5 * none),
                    format!(
                        "{} per second of one node, {} of two ({:.2}x), {} of four ({:.2}x), all on this machine",
                        short(none),
                        short(one),
                        one / none,
                        short(three),
                        three / none
                    ),
                    "",
                    "33 and 70 million are about 17.8 million times two and four (section 6), a product and no measurement; and nodes on \
                     machines of their own would scale better than here.",
                ))
            },
        ),
    ]
}

/// Section 5, and what it says of Redis there.
fn resyncs_and_lag() -> Vec<Claim> {
    vec![
        claim(
            "A full sync of 100 keys takes less than a second",
            "< 1 s (section 5)",
            &[QUORATE_RESYNC],
            |results| {
                let ours = resync(results, QUORATE_RESYNC, "full resync", HUNDRED_KEYS_KIB)?;
                let start = resync(results, QUORATE_RESYNC, "full resync", 0)?;
                Some(Judgement::holds_if(
                    ours < 1_000.0,
                    format!("{} ms from the start of the process", short(ours)),
                    format!("With no data at all it takes {} ms.", short(start)),
                ))
            },
        ),
        claim("Redis takes 1 to 2 s for it", "~1-2 s (section 5)", &[REDIS_RESYNC], |results| {
            let redis = resync(results, REDIS_RESYNC, "full resync", HUNDRED_KEYS_KIB)?;
            let start = resync(results, REDIS_RESYNC, "full resync", 0)?;
            Some(Judgement::reproduced(
                Some((1_000.0..=2_000.0).contains(&redis)),
                format!(
                    "Redis {} ms from the start of the process; {} ms with no data",
                    short(redis),
                    short(start)
                ),
                "",
                NO_RUN_OF_REDIS,
            ))
        }),
        claim(
            "A full sync is twice as fast as Redis's",
            "section 5",
            &[QUORATE_RESYNC, REDIS_RESYNC],
            |results| {
                let both = |part| {
                    let [ours, redis] = every(
                        [QUORATE_RESYNC, REDIS_RESYNC]
                            .map(|arm| resync(results, arm, part, HUNDRED_KEYS_KIB)),
                    )?;
                    Some((ours, redis))
                };
                let (ours, redis) = both("full resync")?;
                let partial = both("partial resync").map_or(String::new(), |(ours, redis)| {
                    format!("; a partial one of 100 KiB: {}", lower_first(ours, redis, "ms"))
                });
                Some(Judgement::reproduced(
                    Some(redis >= 2.0 * ours / (1.0 + EQUAL_WITHIN)),
                    format!("100 keys: {}{partial}", lower_first(ours, redis, "ms")),
                    if redis < ours { "Redis is faster here." } else { "" },
                    NO_RUN_OF_REDIS,
                ))
            },
        ),
        claim("A replica lags by less than 10 ms", "< 10 ms (section 5)", &[ACKS_NONE], |results| {
            let (p50, p99) = lag(results, ACKS_NONE)?;
            Some(Judgement::holds_if(
                p99 < 10.0,
                format!("median {} ms, p99 {} ms at 10 000 writes/s", short(p50), short(p99)),
                "Judged by the 99th percentile.",
            ))
        }),
        claim("Redis's replica lags by 10 to 50 ms", "~10-50 ms (section 5)", &[REDIS], |results| {
            let (p50, p99) = lag(results, REDIS)?;
            Some(Judgement::reproduced(
                Some(p50 <= 50.0 && p99 >= 10.0),
                format!("Redis: median {} ms, p99 {} ms at 10 000 writes/s", short(p50), short(p99)),
                "",
                NO_RUN_OF_REDIS,
            ))
        }),
        claim(
            "A replica lags less than Redis's",
            "up to 5 times less (section 5)",
            &[ACKS_NONE, REDIS],
            |results| {
                let ((ours, ours_p99), (redis, redis_p99)) = (lag(results, ACKS_NONE)?, lag(results, REDIS)?);
                Some(Judgement::reproduced(
                    Some(ours < redis),
                    format!(
                        "median at 10 000 writes/s: {}; p99: {}",
                        lower_first(ours, redis, "ms"),
                        lower_first(ours_p99, redis_p99, "ms")
                    ),
                    if redis < ours {
                        "Redis's lags less here, by the median."
                    } else {
                        "Judged by the median."
                    },
                    NO_RUN_OF_REDIS,
                ))
            },
        ),
    ]
}

/// Sections 5 and 8.
fn beside_redis() -> Vec<Claim> {
    vec![
        claim(
            "Replication throughput is four times Redis's",
            "4.3 million per second, Redis ~1 million (sections 5 and 8)",
            &[IN_PROCESS, ACKS_NONE, ACKS_ALL, REDIS, REDIS_WAIT],
            |results| {
                let rate = |arm, pipeline| wire(results, arm, "write-heavy", 1, pipeline).median("per_s");
                let mut parts = Vec::new();
                for pipeline in [1, 16] {
                    let (none, redis) = (rate(ACKS_NONE, pipeline)?, rate(REDIS, pipeline)?);
                    let (all, wait) = (rate(ACKS_ALL, pipeline)?, rate(REDIS_WAIT, pipeline)?);
                    let each = rate(REDIS_WAIT_EACH, pipeline).map_or(String::new(), |each| {
                        format!(" (Redis with a WAIT for each SET {})", short(each))
                    });
                    parts.push(format!(
                        "pipeline {pipeline}: {}; replica awaited: {}{each}",
                        higher_first(none, redis),
                        higher_first(all, wait)
                    ));
                }
                let ours = format!("per second with one replica, {}", parts.join(". "));
                let is_four_times = |pipeline| {
                    Some(rate(ACKS_NONE, pipeline)? >= 4.0 / (1.0 + EQUAL_WITHIN) * rate(REDIS, pipeline)?)
                };
                if is_four_times(1)? && is_four_times(16)? {
                    return Some(Judgement::holds_if(true, ours, ""));
                }
                let (appended, redis) = (1e9 / append(results, 1_000)?, rate(REDIS, 16)?);
                let fault = format!(
                    "its 4.3 million are of a loop that appends to a buffer in process (sections 2 and 7). Such a loop appends {} per \
                     second here, {:.1} times what Redis replicates at pipeline 16.",
                    short(appended),
                    appended / redis
                );
                Some(Judgement::of_fault(Some(appended >= 4.0 / (1.0 + EQUAL_WITHIN) * redis), ours, &fault))
            },
        ),
        claim(
            "It is 180 times as fast as Redis without replication",
            "17.8 million per second, Redis ~80 to 100 thousand (section 8)",
            &[IN_PROCESS, ACKS_NONE, REDIS],
            |results| {
                let rate = |arm| wire(results, arm, "write-heavy", 0, 1).median("per_s");
                let (ours, redis) = (rate(ACKS_NONE)?, rate(REDIS)?);
                let in_a_loop = 1e9 / sizes(results, "same", "ns_per_op")?[0];
                let is_said = |rate: f64| rate / redis >= 180.0 / (1.0 + EQUAL_WITHIN);
                let text = format!("over the wire, pipeline 1: {} per second", higher_first(ours, redis));
                if is_said(ours) {
                    return Some(Judgement::holds_if(true, text, ""));
                }
                let fault = format!(
                    "it sets a loop in process (section 7) beside a server. Such a loop does {} per second here, {} times what Redis \
                     does over the wire.",
                    short(in_a_loop),
                    short(in_a_loop / redis)
                );
                Some(Judgement::of_fault(Some(is_said(in_a_loop)), text, &fault))
            },
        ),
        claim(
            "Replication costs less than with Redis: 310 % against ~400 %",
            "section 8",
            &[ACKS_NONE, REDIS],
            |results| {
                let cost = |arm: &str| {
                    let cpu =
                        |replicas| wire(results, arm, "write-heavy", replicas, 16).median("cpu_us_per_op");
                    Some((cpu(1)? / cpu(0)? - 1.0) * 100.0)
                };
                let (ours, redis) = (cost(ACKS_NONE)?, cost(REDIS)?);
                Some(Judgement::reproduced(
                    Some(ours < redis),
                    format!(
                        "processor time of all nodes per write that one replica adds (pipeline 16): {}",
                        lower_first(ours, redis, "%")
                    ),
                    if redis < ours { "It costs Redis less here." } else { "" },
                    "its 310 % is the quotient of two different loops (section 3), and its list of what was run has no run of \
                     Redis (section 7).",
                ))
            },
        ),
    ]
}

/// The doubts about its figures with replicas.
const NO_REPLICAS: &str = "its figures with replicas are marked as approximate (section 4), and its list of what was run has no \
                           test with replicas and clients (section 7).";

/// The doubts about its figures of Redis.
const NO_RUN_OF_REDIS: &str = "its figures of Redis are marked as approximate (section 5), and its list of what was run has no run \
                               of Redis (section 7).";

/// A claim about these arms, which is not measured if a point that it needs is missing.
fn claim(
    claim: &'static str,
    paper: &'static str,
    arms: &[&'static str],
    find: impl Fn(&Results) -> Option<Judgement> + 'static,
) -> Claim {
    let judge = move |results: &Results| {
        find(results).unwrap_or_else(|| Judgement::not_measured("A point that it needs was not measured."))
    };
    Claim::new(claim, paper, judge).about(arms)
}

/// All values, or `None` if one is missing.
fn every<const N: usize>(values: [Option<f64>; N]) -> Option<[f64; N]> {
    let values: Option<Vec<f64>> = values.into_iter().collect();
    values?.try_into().ok()
}

/// Both in words, the better one first.
fn lower_first(ours: f64, redis: f64, unit: &str) -> String {
    let sides = [format!("{QUORATE} {} {unit}", short(ours)), format!("Redis {} {unit}", short(redis))];
    in_order(sides, ours <= redis)
}

fn higher_first(ours: f64, redis: f64) -> String {
    let sides = [format!("{QUORATE} {}", short(ours)), format!("Redis {}", short(redis))];
    format!("{} ({QUORATE} {:.2} times Redis)", in_order(sides, ours >= redis), ours / redis)
}

fn in_order(mut sides: [String; 2], is_ours_better: bool) -> String {
    if !is_ours_better {
        sides.reverse();
    }
    sides.join(", ")
}

/// SET in process by one thread, values of 64, 256 and 1024 B.
fn sizes(results: &Results, keys: &str, measure: &str) -> Option<[f64; 3]> {
    let table = results.arm(IN_PROCESS).with("part", "table").with("op", "SET").with("keys", keys);
    let table = table.with("threads", 1);
    every([64, 256, 1024].map(|bytes| table.clone().with("value_bytes", bytes).median(measure)))
}

/// A sentence that names the sizes that fall short of what is claimed.
fn said(ours: [f64; 3], claimed: [f64; 3], falls_short: impl Fn((f64, f64)) -> bool) -> String {
    let pairs = ours.into_iter().zip(claimed).zip([64, 256, 1024]);
    let short: Vec<String> =
        pairs.filter(|(pair, _)| falls_short(*pair)).map(|(_, bytes)| format!("{bytes} B")).collect();
    if short.is_empty() { String::new() } else { format!("Slower than claimed at {}. ", short.join(", ")) }
}

fn log(results: &Results, replicas: u16, batch: u32) -> Option<f64> {
    let points = results.arm(IN_PROCESS).with("part", "log").with("replicas", replicas);
    points.with("batch", batch).median("ns_per_op")
}

fn append(results: &Results, batch: u32) -> Option<f64> {
    results.arm(IN_PROCESS).with("part", "append").with("batch", batch).median("ns_per_op")
}

fn wire<'r>(
    results: &'r Results,
    arm: &str,
    workload: &str,
    replicas: u16,
    pipeline: impl Display,
) -> Selection<'r> {
    let points = results.arm(arm).with("part", "wire").with("workload", workload);
    points.with("replicas", replicas).with("pipeline", pipeline)
}

fn resync(results: &Results, arm: &str, part: &str, kib: u64) -> Option<f64> {
    results.arm(arm).with("part", part).with("kib", kib).median("resync_ms")
}

/// The median lag and its 99th percentile.
fn lag(results: &Results, arm: &str) -> Option<(f64, f64)> {
    let points = results.arm(arm).with("part", "lag").with("rate", LAG_RATE);
    Some((points.median("lag_p50_ms")?, points.median("lag_p99_ms")?))
}

/// Throughput with no, one and three replicas.
fn rates_of(results: &Results, arm: &str, workload: &str) -> Option<[f64; 3]> {
    every([0, 1, 3].map(|replicas| wire(results, arm, workload, replicas, 16).median("per_s")))
}

/// Whether the claimed throughput is reached over the wire; shown beside Redis if that was measured.
fn scenario(results: &Results, workload: &str, claimed: [f64; 3], suspected: &str) -> Option<Judgement> {
    let ours = rates_of(results, ACKS_NONE, workload)?;
    let parts = |name: &str, rates: [f64; 3]| format!("{name} {}", rates.map(short).join(", "));
    let words = match rates_of(results, REDIS, workload) {
        None => parts(QUORATE, ours),
        Some(redis) => {
            // The side that does more with one replica comes first.
            let mut sides = [parts(QUORATE, ours), parts("Redis", redis)];
            if redis[1] > ours[1] {
                sides.reverse();
            }
            sides.join("; ")
        }
    };
    let factors = [claimed[0] / ours[0], claimed[1] / ours[1], claimed[2] / ours[2]];
    let holds = factors.iter().all(|factor| *factor <= 1.0);
    let why = match holds {
        true => String::new(),
        false => {
            format!("The study's are {} times Quorate's here, over the wire.", factors.map(short).join(", "))
        }
    };
    let text = format!("per second with 0, 1, 3 replicas, pipeline 16: {words}");
    Some(Judgement::reproduced(Some(holds), text, why, suspected))
}

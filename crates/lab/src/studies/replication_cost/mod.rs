//! The cost of replication, after the comparison that Synap published of itself with and without it.
//!
//! That comparison takes a loop that overwrites one key in its own process and a loop that appends to a buffer, and
//! calls the difference the cost of replication; nothing was ever replicated. Here each of its tables is measured for
//! what it claims to show: in process the same leader that the server runs, with no, one and three followers; over the
//! wire the store with as many replicas, beside Redis with the same; and resync and lag on running clusters.

mod claims;
mod figures;
mod in_process;
mod lag;
mod resync;
#[cfg(test)]
mod tests;
mod wire;

use std::time::Duration;

use anyhow::{Result, bail};
use in_process::Asked;

use crate::harness::{
    Arena, Arm, Claim, Figure, Figures, Measure, Paper, Parameter, Plan, Point, Scale, Study, Table,
    load_measures,
};
use crate::report::Colour;
use crate::systems::{Flavour, Quorate, Redis, Relayed, System};

pub(super) struct ReplicationCost;

/// The names of the arms.
pub(super) const IN_PROCESS: &str = "In process";
pub(super) const ACKS_NONE: &str = "Quorate acks=none";
pub(super) const ACKS_ALL: &str = "Quorate acks=all";
pub(super) const REDIS: &str = "Redis";
/// The best use of WAIT: one after each batch, which answers for all its writes.
pub(super) const REDIS_WAIT: &str = "Redis WAIT all per batch";
pub(super) const REDIS_WAIT_EACH: &str = "Redis WAIT all per SET";
/// Resyncs are measured separately: they need a relay that can cut the links between the nodes, which costs processor
/// time.
pub(super) const QUORATE_RESYNC: &str = "Quorate, resync";
pub(super) const REDIS_RESYNC: &str = "Redis, resync";

/// The study's sizes of values in process, and a larger one.
const VALUE_BYTES: [usize; 4] = [64, 256, 1024, 4096];
const BATCHES: [usize; 3] = [100, 1_000, 10_000];

/// The study's numbers of replicas besides the leader.
const REPLICAS: [u16; 3] = [0, 1, 3];

/// Nodes of a cluster: a leader and the largest number of replicas.
const NODES: usize = 4;

/// When a write is acknowledged where replicas are awaited.
const ALL_OF_THE_POINT: &str = "the leader and as many replicas as the point has have it";

/// The study's workloads: name, and the percentages of reads and writes; and reads of all nodes, which it extrapolates.
pub(super) const WORKLOADS: [(&str, u32, u32); 3] =
    [("write-heavy", 0, 100), ("read-heavy", 90, 10), (READS_EVERYWHERE, 100, 0)];
pub(super) const READS_EVERYWHERE: &str = "reads of all nodes";

/// The numbers of threads beyond one, each of which uses a table in process.
const THREADS: [usize; 3] = [2, 4, 8];
const THREADS_QUICK: [usize; 1] = [2];
const THREADS_VALUE_BYTES: usize = 64;

/// Without and with pipelining: what a waiting client sees, and what a server can do.
const PIPELINES: [usize; 2] = [1, 16];

/// How much data a replica that starts empty receives, in KiB. The second is the study's: 100 keys of 1 KiB.
const FULL_KIB: [u64; 5] = [0, 100, 1_024, 10_240, 102_400];
const FULL_KIB_QUICK: [u64; 3] = [0, 100, 10_240];

/// How much data a replica that was cut off has missed, in KiB.
const PARTIAL_KIB: [u64; 4] = [100, 1_024, 10_240, 51_200];
const PARTIAL_KIB_QUICK: [u64; 2] = [100, 10_240];

/// Writes per second while lag is measured.
const LAG_RATES: [u32; 3] = [1_000, 10_000, 30_000];
const LAG_RATES_QUICK: [u32; 2] = [1_000, 10_000];

impl ReplicationCost {
    fn in_process(scale: Scale) -> Vec<Point> {
        let mut points = Vec::new();
        for keys in ["same", "distinct"] {
            for op in ["SET", "GET"] {
                for bytes in scale.pick(&VALUE_BYTES[..3], &VALUE_BYTES[..]) {
                    let point = Point::new().with("part", "table").with("op", op);
                    points.push(point.with("value_bytes", bytes).with("keys", keys).with("threads", 1));
                }
                for threads in scale.pick(&THREADS_QUICK[..], &THREADS[..]) {
                    let point = Point::new().with("part", "table").with("op", op);
                    let point = point.with("value_bytes", THREADS_VALUE_BYTES).with("keys", keys);
                    points.push(point.with("threads", threads));
                }
            }
        }
        for batch in BATCHES {
            points.push(Point::new().with("part", "append").with("batch", batch));
        }
        for replicas in REPLICAS {
            for batch in BATCHES {
                points.push(Point::new().with("part", "log").with("replicas", replicas).with("batch", batch));
            }
        }
        points
    }

    fn resyncs(scale: Scale) -> Vec<Point> {
        let full = scale.pick(&FULL_KIB_QUICK[..], &FULL_KIB[..]).iter().map(|kib| ("full resync", kib));
        let partial = scale.pick(&PARTIAL_KIB_QUICK[..], &PARTIAL_KIB[..]).iter();
        let points = full.chain(partial.map(|kib| ("partial resync", kib)));
        points.map(|(part, kib)| Point::new().with("part", part).with("kib", kib)).collect()
    }

    /// The points of a running system. An arm that awaits its replicas has no points without replicas, and lag is
    /// measured only where replicas are not awaited: a client that awaits a replica sees no lag of it. A WAIT for each
    /// SET differs only where several are sent at once.
    fn on_the_wire(scale: Scale, awaits: bool) -> Vec<Point> {
        let mut points = Vec::new();
        if !awaits {
            for rate in scale.pick(&LAG_RATES_QUICK[..], &LAG_RATES[..]) {
                points.push(Point::new().with("part", "lag").with("replicas", 1).with("rate", rate));
            }
        }
        for (workload, get, _) in WORKLOADS {
            // Reads await no replica.
            for replicas in REPLICAS.into_iter().filter(|replicas| !awaits || *replicas > 0 && get < 100) {
                for pipeline in PIPELINES {
                    let point = Point::new().with("part", "wire").with("workload", workload);
                    points.push(point.with("replicas", replicas).with("pipeline", pipeline));
                }
            }
        }
        points
    }
}

impl Study for ReplicationCost {
    fn name(&self) -> &'static str {
        "replication-cost"
    }

    fn title(&self) -> &'static str {
        "What replication costs: in process, over the wire, in resyncs and in lag"
    }

    fn paper(&self) -> Option<Paper> {
        Some(Paper {
            title: "KV Performance Comparison: Baseline vs Replication (Synap 0.3.0-rc1)",
            authors: "hivellm/synap",
            setting: "Criterion loops in one process under WSL, 16 GB",
            code: None,
        })
    }

    fn varies(&self) -> &'static str {
        "value size, batch, 0, 1 and 3 replicas, write-heavy and read-heavy, resync by data size, write rate; Redis"
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter { name: "part", title: "What is measured" },
            Parameter { name: "op", title: "Operation" },
            Parameter { name: "value_bytes", title: "Value size (B)" },
            Parameter { name: "keys", title: "Keys" },
            Parameter { name: "threads", title: "Threads" },
            Parameter { name: "batch", title: "Operations per batch" },
            Parameter { name: "workload", title: "Workload" },
            Parameter { name: "replicas", title: "Replicas besides the leader" },
            Parameter { name: "pipeline", title: "Requests at once" },
            Parameter { name: "kib", title: "Data (KiB)" },
            Parameter { name: "rate", title: "Writes per second" },
        ]
    }

    fn measures(&self) -> Vec<Measure> {
        let mut measures = vec![
            Measure::new("ns_per_op", "Time per operation in process", "ns"),
            Measure::new("batch_us", "Time per batch in process", "us"),
            Measure::new("gib_per_s", "Values in process", "GiB/s"),
        ];
        measures.extend(load_measures());
        measures.extend([
            Measure::new("resync_ms", "Time until the replica has everything", "ms"),
            Measure::new("full_resyncs", "Full resyncs", ""),
            Measure::new("partial_resyncs", "Partial resyncs", ""),
            Measure::new("lag_p50_ms", "Median replica lag", "ms"),
            Measure::new("lag_p95_ms", "95th percentile of replica lag", "ms"),
            Measure::new("lag_p99_ms", "99th percentile of replica lag", "ms"),
            Measure::new("lag_max_ms", "Greatest replica lag", "ms"),
            Measure::new("lag_probes", "Writes whose lag was measured", ""),
        ]);
        measures
    }

    fn arms(&self, plan: &Plan) -> Vec<Arm> {
        let quorate = |acks: &str| {
            let settings = format!("replication=leader-follower acks={acks} reads=any leader=1");
            let system = Quorate::new(&plan.quorate, NODES, &settings);
            // The keyspace that a cluster starts with is on all nodes; those of points are on fewer.
            Box::new(if acks == "all" { system.acknowledging(ALL_OF_THE_POINT) } else { system })
                as Box<dyn System>
        };
        let redis = |wait: usize| {
            // The master keeps no history once it has no replicas, and a replica keeps no copy of what it was sent.
            let arguments = ["--repl-backlog-ttl", "1", "--rdb-del-sync-files", "yes"];
            let system = Redis::new(Flavour::Redis, NODES - 1, wait).with(&arguments);
            Box::new(if wait > 0 { system.acknowledging(ALL_OF_THE_POINT) } else { system })
                as Box<dyn System>
        };
        let arm = |name: &str, colour, differs: &str, system: Box<dyn System>, points| Arm {
            name: name.to_owned(),
            colour,
            system: Some(system),
            differs: differs.to_owned(),
            points,
        };
        let on_the_wire = |awaits| ReplicationCost::on_the_wire(plan.scale, awaits);
        let resyncs = || ReplicationCost::resyncs(plan.scale);
        let unsafe_words = "an acknowledged write may be lost with the leader";
        let relayed: fn(Box<dyn System>) -> Box<dyn System> = |system| Box::new(Relayed::new(system, 1));
        vec![
            Arm {
                name: IN_PROCESS.to_owned(),
                colour: Colour::OTHER,
                system: None,
                differs: "no network, no client, nothing durable".to_owned(),
                points: ReplicationCost::in_process(plan.scale),
            },
            arm(ACKS_NONE, Colour::ACKS_NONE, unsafe_words, quorate("none"), on_the_wire(false)),
            arm(ACKS_ALL, Colour::ACKS_ALL, "", quorate("all"), on_the_wire(true)),
            arm(REDIS, Colour::REDIS, unsafe_words, redis(0), on_the_wire(false)),
            arm(REDIS_WAIT, Colour::REDIS_ALL, "", redis(NODES - 1), on_the_wire(true)),
            arm(
                REDIS_WAIT_EACH,
                Colour::REDIS_ALL.dashed(),
                "a WAIT behind each SET of a pipeline, which is not its best use",
                redis(NODES - 1),
                on_the_wire(true).into_iter().filter(|point| point.get("pipeline") != "1").collect(),
            ),
            arm(QUORATE_RESYNC, Colour::ACKS_NONE, unsafe_words, relayed(quorate("none")), resyncs()),
            arm(REDIS_RESYNC, Colour::REDIS, unsafe_words, relayed(redis(0)), resyncs()),
        ]
    }

    fn measure(&self, arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures> {
        let in_process = arena.scale().pick(Duration::from_millis(120), Duration::from_secs(2));
        match point.get("part") {
            "table" => {
                let asked = Asked {
                    is_write: point.get("op") == "SET",
                    value_bytes: point.number("value_bytes")?,
                    is_one_key: point.get("keys") == "same",
                };
                in_process::table(asked, point.number("threads")?, in_process)
            }
            "append" => in_process::append(point.number("batch")?, in_process),
            "log" => in_process::leader(point.number("batch")?, point.number("replicas")?, in_process),
            "wire" => wire::measure(arm, point, arena),
            "lag" => lag::measure(arm, point, arena),
            "full resync" => resync::full(arm, point.number("kib")?, arena),
            "partial resync" => resync::partial(arm, point.number("kib")?, arena),
            part => bail!("there is no part '{part}'"),
        }
    }

    fn claims(&self) -> Vec<Claim> {
        claims::all()
    }

    fn figures(&self) -> Vec<Figure> {
        figures::all()
    }

    fn tables(&self) -> Vec<Table> {
        figures::tables()
    }

    fn remarks(&self) -> Vec<String> {
        let remarks = [
            "In process, `same` overwrites or reads one key, which stays in the processor's cache: that is what the study \
             measured. `distinct` goes through 200 000 keys in an order that no cache foresees. With several threads each has a \
             table of its own, as shards have; the study tells of one thread.",
            "The rows `append` are the study's replication log, written anew from its words (a circular buffer to which \
             operations are appended, section 7): nothing is set, and nobody is sent anything.",
            "A log of its own, apart from the store, does not exist here: the rows `log` are a leader's SET with no, one \
             and three followers, so that the difference is what replication adds to the same command. The followers \
             run in the same loop and are not timed.",
            "Over the wire 50 clients write to the leader, which has no, one or three replicas; `acks=all` and `WAIT` \
             answer when all have the write. With 16 requests at once Redis is measured with one WAIT behind each batch, whose \
             answer counts for all its writes, and with one behind each SET. All replicas run on this one machine and share its processors with the \
             leader and the load generator: with cores of their own they would take less from it.",
            "A full resync is timed from the start of a process that remembers nothing, until it has all that the leader \
             has; the row with no data is what starting costs. A partial resync is timed from the moment when a cut \
             link is healed. The lab's relay lies between the nodes of these two arms, to cut the link; the others are \
             without it. A replica finds out that the link is whole when it next tries: Redis once a second, Quorate \
             after pauses that double from 20 ms to a second.",
            "Lag is the time from a write's acknowledgement until a replica answers a read with it, under writes at a fixed \
             rate; each probe is a write of its own, and a replica is asked again as soon as it has answered.",
            "The study's table of reads from all nodes multiplies the figure of one node. `reads of all nodes` measures \
             it; on one machine more nodes are no more processors.",
        ];
        remarks.iter().map(|remark| (*remark).to_owned()).collect()
    }
}

//! Erasure coding against replication, after MuhamadAjiW's study of where the two cross.
//!
//! A coordinator sends a value to four others: whole, or in fragments of a half or a third of it. The network time
//! grows with the bytes sent; the rest of a write's cost does not. So for each size there is a bandwidth below which
//! fragments are faster, and the study looks for it. Here both arms acknowledge by the same rule, durably, and every
//! node has an interface of its own, shared by its links, separately for each direction.

mod claims;
mod derived;
mod figures;
mod measure;
mod network;
mod points;
mod recovery;
mod regression;
mod trace;

use std::path::Path;

use anyhow::{Result, bail};

use crate::harness::{
    Arena, Arm, Claim, Derived, Figure, Figures, Measure, Paper, Parameter, Plan, Point, Results, Study,
    Table, load_measures,
};
use crate::report::Colour;
use crate::systems::{Quorate, Relayed};

pub use derived::{FittedWork, fitted};

pub(super) struct CodingCrossover;

/// Nodes of a cluster: two may fail.
pub(crate) const NODES: usize = 5;

/// The number of parts into which an arm cuts a value. 1: it is replicated.
pub(crate) const PARTS: [usize; 3] = [1, 2, 3];

/// The arm whose nodes choose the number of parts into which they cut a value.
pub(crate) const ADAPTIVE: usize = 0;

/// The size from which they choose. Shorter values are left whole without a choice.
const THRESHOLD_ADAPTIVE: usize = 2048;

/// The factor by which nodes wait longer than by default for each other's heartbeats. At 1 Mbit/s, heartbeats at the
/// default rate take a third of a leader's bandwidth, and wait so long behind values that leaders are deposed.
const PATIENCE: u64 = 5;

/// A write of 1 MB at 1 Mbit/s takes more than half a minute.
const COMMAND_TIMEOUT_MS: u64 = 180_000;

/// Processor time during a load, in eight equal periods.
pub(crate) const CPU: [(&str, &str); 8] = [
    ("cpu_1", "first eighth"),
    ("cpu_2", "2"),
    ("cpu_3", "3"),
    ("cpu_4", "4"),
    ("cpu_5", "5"),
    ("cpu_6", "6"),
    ("cpu_7", "7"),
    ("cpu_8", "last"),
];

/// The size from which values are cut: all of the study's are.
const THRESHOLD: usize = 512;

/// The part of the study that a point belongs to.
pub(crate) mod part {
    pub(crate) const WRITE: &str = "write";
    pub(crate) const READ: &str = "read";
    pub(crate) const REBUILD: &str = "rebuild";
    /// Nodes are far from each other.
    pub(crate) const FAR: &str = "write from afar";
    /// Many clients at once.
    pub(crate) const WRITERS: &str = "many writers";
    /// Nodes that hold fragments are down.
    pub(crate) const DEGRADED: &str = "read while nodes are gone";
}

/// The node that a client is connected to.
pub(crate) mod at {
    pub(crate) const LEADER: &str = "leader";
    pub(crate) const FOLLOWER: &str = "follower";
}

pub(crate) fn arm_name(parts: usize) -> String {
    match parts {
        ADAPTIVE => "Coding, adaptive".to_owned(),
        1 => "Replication".to_owned(),
        _ => format!("Coding, k={parts}"),
    }
}

/// The number of parts into which an arm cuts a value.
fn parts_of(arm: &str) -> usize {
    PARTS.into_iter().chain([ADAPTIVE]).find(|parts| arm_name(*parts) == arm).unwrap_or(1)
}

fn colour(parts: usize) -> Colour {
    match parts {
        ADAPTIVE => Colour::PAPER.dashed(),
        1 => Colour::REDIS_ONE,
        2 => Colour::ACKS_NONE,
        _ => Colour::ACKS_ALL,
    }
}

fn quorate(program: &Path, parts: usize) -> Quorate {
    let mut settings = "replication=consensus durability=fsync leader=1".to_owned();
    if parts == ADAPTIVE {
        settings.push_str(&format!(" coding=adaptive coding_threshold={THRESHOLD_ADAPTIVE}"));
    } else if parts > 1 {
        // The default threshold would leave small values whole, and hide the cost of coding them.
        settings.push_str(&format!(" coding={parts} coding_threshold={THRESHOLD}"));
    }
    let limits = [("command_timeout_ms", COMMAND_TIMEOUT_MS), ("patience", PATIENCE)];
    let quorate = Quorate::new(program, NODES, &settings).with_limits(&limits);
    match parts {
        1 => quorate,
        ADAPTIVE => {
            quorate.acknowledging("3 of 5 replicas have the value, or k + 2 a fragment, and its order 3")
        }
        _ => quorate
            .acknowledging(&format!("{} of {NODES} replicas have a fragment, and its order 3", parts + 2)),
    }
}

impl Study for CodingCrossover {
    fn name(&self) -> &'static str {
        "coding-crossover"
    }

    fn title(&self) -> &'static str {
        "Where erasure coding overtakes replication"
    }

    fn paper(&self) -> Option<Paper> {
        Some(Paper {
            title: "Erasure coding versus replication in distributed key-value store databases",
            authors: "the author of MuhamadAjiW/DistKV-Erasure-Coding",
            setting: "one virtual machine with simulated network conditions",
            code: Some("github.com/MuhamadAjiW/DistKV-Erasure-Coding at bd22625"),
        })
    }

    fn varies(&self) -> &'static str {
        "1, 10..70 Mbit/s and 10 Gbit/s per node x 1 KB and 200..1000 KB x write and read; reads by cache hits; delay between \
         nodes; many writers; nodes that are gone, and one that comes back empty"
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter { name: "part", title: "What is measured" },
            Parameter { name: "at", title: "The client is at" },
            Parameter { name: "mbit", title: "Bandwidth per node, each way (Mbit/s)" },
            Parameter { name: "bytes", title: "Value size (B)" },
            Parameter { name: "hits", title: "Reads found in the cache (%)" },
            Parameter { name: "delay_ms", title: "Delay between nodes, each way (ms)" },
            Parameter { name: "clients", title: "Clients" },
            Parameter { name: "gone", title: "Nodes gone" },
        ]
    }

    fn measures(&self) -> Vec<Measure> {
        let mut measures = load_measures();
        measures.extend([
            Measure::new("wire_per_value", "Bytes between nodes per byte of values", ""),
            Measure::new("log_per_value", "Growth of all logs per byte of values", ""),
            Measure::new("sent_per_value", "Bytes that the busiest node sends per byte of values", ""),
            Measure::new("sending_ms", "Time that these bytes take on its interface", "ms"),
            Measure::new("over_sending", "Median latency over that time", ""),
            Measure::new("encode_ms", "Encoding alone, per value", "ms"),
            Measure::new("k", "Parts that values were cut into, in the mean; 0: whole, in the log", ""),
            Measure::new("cut_ms", "Cutting, with checksums and copies, per value", "ms"),
            Measure::new("disperse_ms", "Dispersing without that, per value", "ms"),
            Measure::new("order_ms", "Ordering, per value", "ms"),
            Measure::new("apply_ms", "Applying, per value", "ms"),
            Measure::new("hit_percent", "Reads that the coordinator's cache answered", "%"),
            Measure::new("rebuild_ms", "Time until the new node holds its part of all values", "ms")
                .or_never(),
            Measure::new("rebuild_per_value", "Bytes between nodes for that per byte of values", ""),
            Measure::new("rebuild_of_link", "Share of the new node's interface that it used", "%"),
            Measure::new("alone_p99_ms", "99th percentile of writes while nothing is rebuilt", "ms"),
            Measure::new("beside_p99_ms", "The same while a node is rebuilt", "ms"),
            Measure::new("beside_over_alone", "How many times as long", ""),
            Measure::new("beside_writes", "Writes that these are of, the fewer of both", ""),
        ]);
        measures.extend(
            CPU.map(|(name, _)| Measure::new(name, "Processor time of all nodes", "% of one processor")),
        );
        measures
    }

    fn arms(&self, plan: &Plan) -> Vec<Arm> {
        let arm = |parts: usize| Arm {
            name: arm_name(parts),
            colour: colour(parts),
            system: Some(Box::new(Relayed::new(Box::new(quorate(&plan.quorate, parts)), 1))),
            differs: String::new(),
            points: points::all(plan.scale, parts),
        };
        PARTS.into_iter().chain([ADAPTIVE]).map(arm).collect()
    }

    fn measure(&self, arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures> {
        match point.get("part") {
            part::WRITE => measure::write(arm, point, arena),
            part::READ => measure::read(arm, point, arena),
            part::REBUILD => recovery::measure(arm, point, arena),
            part::FAR => measure::write_from_afar(arm, point, arena),
            part::WRITERS => measure::writers(arm, point, arena),
            part::DEGRADED => measure::read_degraded(arm, point, arena),
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

    fn derived(&self, results: &Results) -> Derived {
        derived::all(results)
    }

    fn remarks(&self) -> Vec<String> {
        let remarks = [
            "The study's code answers a replicated write after the leader's own append \
             (src/standard/classes/node/_node.rs, lines 245 to 250 and 319), and a coded one when it is decided, for which \
             it sends at the next tick of 50 ms (src/ec/classes/node/_node.rs, lines 526 to 547 and 557 to 566). Here both are \
             acknowledged when any two nodes may be lost without losing the value: copies on three nodes, or fragments on k + 2, \
             synced to disk, and then ordered.",
            "The study runs k = 2 of five fragments (etc/config.json, lines 3 and 4). How many of them have to be kept before a \
             value is decided is in its fork of OmniPaxos, which was not read.",
            "The study limits what is sent to its nodes' ports on the loopback interface (scripts.sh, lines 628 to 635). So all \
             nodes share one limit with the client's own requests, and replies have none: in its results reads of 1 MB \
             at 10 Mbit/s take 4.6 ms (benchmark/results_store/_final, median), where sending it would take 800. Here each node has \
             its own limit, replies between nodes included, and the client none.",
            "The study's read test compares a field that replies do not have (benchmark/script-read.js, lines 52 to 60; \
             src/ec/classes/node/_node_http_comms.rs, lines 29 to 33): in its results each of 1,077,641 comparisons failed. Here every \
             value that is read is compared. Its values are sent in base64, a third longer than told (benchmark/script-write.js, \
             lines 18 to 25), and all 168 averages of processor time in its results are 0.",
            "One client writes or reads one value after the other, at the leader unless a row says otherwise. Its own \
             connection is not shaped. What one write leaves under way, such as the copies that it does not wait for, is in \
             the way of the next one; a first write that finds the network empty is not counted, but where replication takes more than 2 s in a quick \
             run, or 20 s in a full one: there it is the only one.",
            "Processor time over time, and many writers, are of clients that write values of 100 KB at the leader at once. While \
             nodes are gone, they were killed after the values had been written, the reader's node not among them.",
            "The lab's relay gives each node one interface, which its links share. Bytes between nodes are the relay's count, \
             less what the idle cluster sends in that time. 10 Gbit/s is what is asked for: relay, nodes and client share \
             the processors of one machine, which is less.",
            "Nodes wait five times as long as usual for each other's heartbeats (`patience`), in all arms: at 1 Mbit/s the \
             usual ones take a third of a leader's bandwidth.",
            "In the arm `adaptive` the node that takes a write chooses, for each value of 2 KB and more, by the bandwidth that it \
             has measured; what it chose is the column k. It learns of a new bandwidth by the first values that it writes \
             there, which count.",
            "The study's table of parameters names 1 MB where its text means 1 KB. Its 25 conditions are five bandwidths from \
             10 to 70 Mbit/s with five sizes from 200 to 1000 KB; the extremes are two scenarios beside them.",
        ];
        remarks.iter().map(|remark| (*remark).to_owned()).collect()
    }
}

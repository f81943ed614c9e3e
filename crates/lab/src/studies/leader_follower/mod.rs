//! Leader-follower replication under three workloads, after A. K. Giri's study.
//!
//! The study's store is three Python processes; its claims are about the cost of synchronous replication. Here they are
//! compared with Quorate's leader-follower replication with no, one and all followers awaited, its consensus, and Redis
//! with as many replicas awaited. All clients talk to the leader, except those of the study's own tester.

mod claims;
mod faults;
mod figures;
mod follower_reads;
mod tester;

use std::time::Duration;

use anyhow::{Context, Result};

use crate::harness::{
    Arena, Arm, Claim, Figure, Figures, Measure, Paper, Parameter, Plan, Point, Scale, Study, Table,
    load_measures,
};
use crate::load::{Mix, Options, Sizes, Stop, Transport, Wait};
use crate::report::Colour;
use crate::systems::{Flavour, PaperStore, Quorate, Redis, System};
use tester::Mode;

pub(super) struct LeaderFollower;

/// A leader and two followers.
const NODES: usize = 3;

/// The paper's numbers of clients, and those of a quick run.
const CLIENTS: [u32; 6] = [5, 10, 20, 30, 40, 50];
const CLIENTS_QUICK: [u32; 3] = [5, 20, 50];

/// The paper's workloads: name, and the percentages of reads and writes.
const WORKLOADS: [(&str, u32, u32); 3] = [("mixed", 50, 50), ("read-heavy", 90, 10), ("write-heavy", 20, 80)];

/// A further workload, of one client: reads at a follower right after the write. Each point has this many of them.
const FOLLOWER_READS: &str = "follower-reads";
const FOLLOWER_READS_COUNT: u32 = 100;

/// Further workloads: the write-heavy one while a follower is slow, and writes while the leader is killed.
const SLOW_FOLLOWER: &str = "slow follower";
const SLOW_FOLLOWER_CLIENTS: u32 = 20;
const LEADER_LOST: &str = "leader lost";

/// The paper's own tester runs with the paper's largest number of clients.
const TESTER_CLIENTS: u32 = 50;

/// The paper does not say how many keys there are, nor how long values are.
const KEYS: u64 = 200;
const VALUE_BYTES: usize = 64;

/// The arm with the study's own store.
const PAPER_STORE: &str = "Paper's store, HTTP";

/// The time limit of WAIT, in milliseconds.
const WAIT_TIMEOUT_MS: u32 = 5_000;

/// An arm, before the plan is known.
struct Side {
    name: String,
    colour: Colour,
    system: Box<dyn System>,
    differs: &'static str,
    is_quick: bool,
}

/// The remark on arms whose acknowledged writes may be on one node only.
const ONE_COPY: &str = "acknowledgement: a write that only the leader has may be lost with it";

impl LeaderFollower {
    /// Everything that is compared. A quick run leaves out arms that lie between two others.
    fn sides(plan: &Plan) -> Vec<Side> {
        let quorate = |settings: &str| Box::new(Quorate::new(&plan.quorate, NODES, settings));
        let mut sides = Vec::new();
        for transport in [Transport::Resp, Transport::Http] {
            let is_http = transport == Transport::Http;
            let mut add = |name: &str, colour: Colour, settings: &str, differs, is_quick| {
                let name = if is_http { format!("{name}, HTTP") } else { name.to_owned() };
                let colour = if is_http { colour.dashed() } else { colour };
                sides.push(Side { name, colour, system: quorate(settings), differs, is_quick });
            };
            let acks = |acks: &str| format!("replication=leader-follower acks={acks} leader=1");
            add("Quorate acks=none", Colour::ACKS_NONE, &acks("none"), ONE_COPY, !is_http);
            add("Quorate acks=1", Colour::ACKS_ONE, &acks("1"), "", !is_http);
            add("Quorate acks=all", Colour::ACKS_ALL, &acks("all"), "", true);
            let consensus = "replication=consensus durability=os leader=1";
            let differs = "durability: every write is in the logs, too";
            add("Quorate consensus", Colour::CONSENSUS, consensus, differs, true);
        }
        let mut add = |flavour, name: &str, wait: usize, colour, is_quick| {
            let name = if wait == 0 { name.to_owned() } else { format!("{name} WAIT {wait}") };
            let system = Box::new(Redis::new(flavour, NODES - 1, wait));
            let differs = if wait == 0 { ONE_COPY } else { "" };
            sides.push(Side { name, colour, system, differs, is_quick });
        };
        add(Flavour::Redis, "Redis", 0, Colour::REDIS, true);
        add(Flavour::Redis, "Redis", 1, Colour::REDIS_ONE, false);
        add(Flavour::Redis, "Redis", 2, Colour::REDIS_ALL, true);
        add(Flavour::Valkey, "Valkey", 2, Colour::VALKEY, false);
        sides.push(Side {
            name: PAPER_STORE.to_owned(),
            colour: Colour::PAPER,
            system: Box::new(PaperStore::new()),
            differs: ONE_COPY,
            is_quick: true,
        });
        sides
    }

    /// Whether the leader of an arm is killed. Redis has a successor only where Sentinel or its cluster mode appoints
    /// one, and neither is part of this study.
    fn loses_leader(arm: &str) -> bool {
        arm.starts_with("Quorate") || arm == PAPER_STORE
    }

    /// How many replicas a client of an arm awaits by WAIT.
    fn wait(arm: &str) -> Option<Wait> {
        let (_, replicas) = arm.split_once(" WAIT ")?;
        let replicas = replicas.parse().ok()?;
        Some(Wait { replicas, timeout_ms: WAIT_TIMEOUT_MS })
    }
}

impl Study for LeaderFollower {
    fn name(&self) -> &'static str {
        "leader-follower"
    }

    fn title(&self) -> &'static str {
        "What leader-follower replication costs under mixed, read-heavy and write-heavy load"
    }

    fn paper(&self) -> Option<Paper> {
        Some(Paper {
            title: "Design, Implementation, and Performance Evaluation of a Distributed Key Value Store Using Leader \
                    Follower Replication",
            authors: "Abishek Kumar Giri, Stockton University",
            setting: "one machine, three containers of Python FastAPI",
            code: Some("github.com/abishekgiri/distributed-kv-store at c964253"),
        })
    }

    fn varies(&self) -> &'static str {
        "mixed 50/50, read-heavy 90/10, write-heavy 20/80 x 5 to 50 clients; acks none, 1, all; consensus; RESP and HTTP; \
         Redis; the study's own store"
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter { name: "workload", title: "Workload" },
            Parameter { name: "clients", title: "Concurrent clients" },
        ]
    }

    fn measures(&self) -> Vec<Measure> {
        let further = [
            Measure::new("stale_pct", "Follower reads that miss the write just acknowledged", "%"),
            Measure::new("seen_p50_ms", "Median time until a follower shows a write", "ms"),
            Measure::new("seen_p95_ms", "95th percentile of the time until a follower shows a write", "ms"),
            Measure::new("requests_per_s", "Requests per second, as the study's tester counts them", "1/s"),
            Measure::new("operations_per_s", "PUTs and GETs per second in the same run", "1/s"),
            Measure::new("puts_per_s", "PUTs per second in the same run", "1/s"),
            Measure::new("request_mean_ms", "Mean latency of such requests", "ms"),
            Measure::new("request_p50_ms", "Median latency of such requests", "ms"),
            Measure::new("request_p95_ms", "95th percentile of the latency of such requests", "ms"),
            Measure::new("request_p99_ms", "99th percentile of the latency of such requests", "ms"),
            Measure::new("writes_resumed", "Whether writes succeed again after the leader's death", ""),
            Measure::new("writes_gap_ms", "From the leader's death until a write succeeds again", "ms")
                .or_never(),
            Measure::new("writes_failed", "Writes that failed in that time", ""),
            Measure::new(
                "writes_at_risk",
                "Writes acknowledged by the leader in the half second before its death",
                "",
            ),
            Measure::new("writes_lost", "Those among them that no other node has", ""),
        ];
        let slices = faults::SLICES.map(|(name, _)| Measure::new(name, "Acknowledged writes", "writes/s"));
        load_measures().into_iter().chain(further).chain(slices).collect()
    }

    fn arms(&self, plan: &Plan) -> Vec<Arm> {
        let clients = plan.scale.pick(&CLIENTS_QUICK[..], &CLIENTS[..]);
        let point = |workload: &'static str, clients: u32| {
            Point::new().with("workload", workload).with("clients", clients)
        };
        let sides =
            LeaderFollower::sides(plan).into_iter().filter(|side| plan.scale.pick(side.is_quick, true));
        let points = |name: &str| {
            let loads =
                WORKLOADS.iter().flat_map(|(name, ..)| clients.iter().map(|clients| point(name, *clients)));
            // The tester speaks HTTP, and is meant to show the study's store, or its stand-in.
            let is_tested = [PAPER_STORE, claims::SYNCHRONOUS_HTTP].contains(&name);
            let tester = Mode::ALL.into_iter().filter(|_| is_tested);
            let tester = tester.map(|(name, _)| point(name, TESTER_CLIENTS));
            let slow = point(SLOW_FOLLOWER, SLOW_FOLLOWER_CLIENTS);
            // The leader is not restarted: this is the last point of a start.
            let lost = point(LEADER_LOST, faults::CLIENTS as u32);
            let lost = Some(lost).filter(|_| LeaderFollower::loses_leader(name));
            loads.chain([point(FOLLOWER_READS, 1)]).chain(tester).chain([slow]).chain(lost).collect()
        };
        let arm = |side: Side| Arm {
            points: points(&side.name),
            name: side.name,
            colour: side.colour,
            system: Some(side.system),
            differs: side.differs.to_owned(),
        };
        sides.map(arm).collect()
    }

    fn measure(&self, arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures> {
        let running = arena.system()?;
        if arm.name == PAPER_STORE {
            // It continues replicating after the answers of the previous point.
            running.wait_until_quiet();
        }
        let is_http = arm.name.ends_with(", HTTP") || arm.name == PAPER_STORE;
        let (transport, addresses) =
            if is_http { (Transport::Http, running.http()) } else { (Transport::Resp, running.resp()) };
        let leader = addresses.first().copied().context("the leader has no such address")?;
        let wait = LeaderFollower::wait(&arm.name);
        if point.get("workload") == FOLLOWER_READS {
            let follower = addresses.get(1).copied().context("there is no follower")?;
            let keys = arena.new_keys();
            return follower_reads::measure(is_http, [leader, follower], wait, &keys, FOLLOWER_READS_COUNT);
        }
        if let Some(mode) = Mode::find(point.get("workload")) {
            let length = arena.scale().pick(Duration::from_millis(700), Duration::from_secs(3));
            let (seed, keys) = (u64::from(arena.repeat()), arena.new_keys());
            return tester::measure(&addresses, mode, point.number("clients")?, length, seed, &keys);
        }
        if point.get("workload") == LEADER_LOST {
            let keys = arena.new_keys();
            return faults::lose_leader(arena.system()?, is_http, &addresses, &keys);
        }
        let is_slow = point.get("workload") == SLOW_FOLLOWER;
        let workload = if is_slow { "write-heavy" } else { point.get("workload") };
        let workload = WORKLOADS.iter().find(|(name, ..)| *name == workload);
        let (_, get, set) = workload.copied().context("there is no such workload")?;
        // A slow store needs longer for meaningful figures.
        let (warmup, measured) = match (arena.scale(), arm.name == PAPER_STORE || is_slow) {
            (Scale::Quick, false) => (Duration::from_millis(50), Duration::from_millis(250)),
            (Scale::Quick, true) => (Duration::from_millis(100), Duration::from_millis(700)),
            (Scale::Full, _) => (Duration::from_millis(500), Duration::from_secs(3)),
        };
        let options = Options {
            addresses: vec![leader],
            connections: point.number("clients")?,
            mix: Mix { get, set, ..Mix::default() },
            keys: KEYS,
            key_prefix: arena.new_keys(),
            value_bytes: Sizes::fixed(VALUE_BYTES),
            warmup,
            stop: Stop::Duration(measured),
            seed: u64::from(arena.repeat()),
            transport,
            wait,
            ..Options::default()
        };
        if is_slow {
            // Keys are written beforehand: the times of faults count from the end of the warm-up.
            arena.prepare(&Options { stop: Stop::Count(1), ..options.clone() })?;
            let faults = faults::slow(addresses.len() - 1, measured);
            let options = Options { load: false, ..options };
            return Ok(arena.drive_with_faults(&options, &faults)?.figures());
        }
        Ok(arena.drive(&options)?.figures())
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
            "The study's own store is written anew from its description (lab/paper-store/store.py), with the faults of its \
             design. All systems run as processes of one machine, without containers.",
            "Every operation counts as one, and only successes count as throughput. The study's tester counts a PUT and a GET \
             of its read-heavy workload together as one request (experiments/load_test.py, lines 48 to 50), failures as \
             throughput (98), and the time of a failure as a latency (60).",
            "The study's write-heavy workload is of PUTs alone (46 and 47), its mixed one of as many PUTs as GETs (53 to 56), \
             and each of its GETs goes to a node drawn at random (29): the points named \u{201c}tester\u{201d} are these. The \
             others have the shares of reads and writes that the text of the study gives, all at the leader.",
            "A slow follower stands still (SIGSTOP) for 18 of every 20 ms, while 20 clients write as in the write-heavy workload. The leader \
             is lost by kill -9, while 8 clients write new keys one after the other; who is refused or loses its connection goes on at the next \
             node. Redis's master is not killed: a replica takes over only where Sentinel or Redis Cluster makes it, and neither is \
             a part of this study.",
            "Keys are written before they are read, and every value that is read is checked, but by the tester. The study draws \
             from 1000 keys and reads some that were never written (41); in its own results 88 of the 200 requests of the first \
             run have failed (results/load_results.csv, line 2). Here there are 200 keys, and values have 64 bytes.",
        ];
        remarks.iter().map(|remark| (*remark).to_owned()).collect()
    }
}

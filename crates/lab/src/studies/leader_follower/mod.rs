//! Leader-follower replication under three workloads, after A. K. Giri's study.
//!
//! The study's store is three Python processes; its claims are about what synchronous replication costs. Here they are
//! set beside Quorate's leader-follower replication with nobody, one follower and all followers awaited, its consensus,
//! and Redis with as many replicas awaited. All clients talk to the leader, as the study's do.

mod claims;
mod figures;

use std::time::Duration;

use anyhow::Result;

use crate::harness::{
    Arena, Arm, Claim, Figure, Figures, Measure, Paper, Parameter, Plan, Point, Study, Table, load_measures,
};
use crate::load::{Mix, Options, Sizes, Stop, Transport, Wait};
use crate::report::Colour;
use crate::systems::{Flavour, Quorate, Redis, System};

/// The study.
pub(super) struct LeaderFollower;

/// A leader and two followers.
const NODES: usize = 3;

/// The paper's numbers of clients, and those of a quick run.
const CLIENTS: [u32; 6] = [5, 10, 20, 30, 40, 50];
const CLIENTS_QUICK: [u32; 3] = [5, 20, 50];

/// The paper's workloads: name, and the percentages of reads and writes.
const WORKLOADS: [(&str, u32, u32); 3] = [("mixed", 50, 50), ("read-heavy", 90, 10), ("write-heavy", 20, 80)];

/// The paper does not say how many keys there are, nor how long values.
const KEYS: u64 = 200;
const VALUE_BYTES: usize = 64;

/// Redis is asked to wait at most so long for its replicas.
const WAIT_TIMEOUT_MS: u32 = 5_000;

/// An arm, before the plan is known.
struct Side {
    name: &'static str,
    colour: Colour,
    differs: &'static str,
    is_quick: bool,
    system: Box<dyn System>,
}

impl LeaderFollower {
    fn sides(plan: &Plan) -> Vec<Side> {
        let quorate =
            |settings: &str| -> Box<dyn System> { Box::new(Quorate::new(&plan.quorate, NODES, settings)) };
        let redis =
            |wait: usize| -> Box<dyn System> { Box::new(Redis::new(Flavour::Redis, NODES - 1, wait)) };
        let side = |name, colour, differs, is_quick, system| Side { name, colour, differs, is_quick, system };
        let leader_follower =
            |acks: &str| quorate(&format!("replication=leader-follower acks={acks} leader=1"));
        let unsafe_words = "an acknowledged write may be lost with the leader";
        vec![
            side("Quorate acks=none", Colour::ACKS_NONE, unsafe_words, true, leader_follower("none")),
            side("Quorate acks=1", Colour::ACKS_ONE, "", true, leader_follower("1")),
            side("Quorate acks=all", Colour::ACKS_ALL, "", true, leader_follower("all")),
            side(
                "Quorate consensus",
                Colour::CONSENSUS,
                "durability: each write is in the nodes' logs",
                true,
                quorate("replication=consensus durability=os leader=1"),
            ),
            side("Redis", Colour::REDIS, unsafe_words, true, redis(0)),
            side("Redis WAIT 1", Colour::REDIS_ONE, "", false, redis(1)),
            side("Redis WAIT 2", Colour::REDIS_ALL, "", true, redis(2)),
        ]
    }
}

impl Study for LeaderFollower {
    fn name(&self) -> &'static str {
        "leader-follower"
    }

    fn title(&self) -> &'static str {
        "What leader-follower replication costs under mixed, read-heavy and write-heavy load"
    }

    fn paper(&self) -> Paper {
        Paper {
            title: "Design, Implementation, and Performance Evaluation of a Distributed Key Value Store Using Leader \
                    Follower Replication",
            authors: "Abishek Kumar Giri, Stockton University",
            setting: "one machine, three containers of Python FastAPI",
        }
    }

    fn varies(&self) -> &'static str {
        "mixed 50/50, read-heavy 90/10, write-heavy 20/80 x 5 to 50 clients; acks none, 1, all; consensus; Redis"
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter { name: "workload", title: "Workload" },
            Parameter { name: "clients", title: "Concurrent clients" },
        ]
    }

    fn measures(&self) -> Vec<Measure> {
        load_measures()
    }

    fn arms(&self, plan: &Plan) -> Vec<Arm> {
        let clients = plan.scale.pick(&CLIENTS_QUICK[..], &CLIENTS[..]);
        let point = |workload: &'static str, clients: u32| {
            Point::new().with("workload", workload).with("clients", clients)
        };
        let sides =
            LeaderFollower::sides(plan).into_iter().filter(|side| plan.scale.pick(side.is_quick, true));
        let arm = |side: Side| Arm {
            name: side.name.to_owned(),
            colour: side.colour,
            system: Some(side.system),
            differs: side.differs.to_owned(),
            points: WORKLOADS
                .iter()
                .flat_map(|(name, ..)| clients.iter().map(|clients| point(name, *clients)))
                .collect(),
        };
        sides.map(arm).collect()
    }

    fn measure(&self, arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures> {
        let workload = WORKLOADS.iter().find(|(name, ..)| *name == point.get("workload"));
        let (_, get, set) = workload.copied().unwrap_or(WORKLOADS[0]);
        let leader = arena.system()?.resp()[0];
        let replicas = match arm.name.as_str() {
            "Redis WAIT 1" => 1,
            "Redis WAIT 2" => 2,
            _ => 0,
        };
        let options = Options {
            addresses: vec![leader],
            connections: point.number("clients")?,
            mix: Mix { get, set, ..Mix::default() },
            keys: KEYS,
            key_prefix: arena.new_keys(),
            value_bytes: Sizes::fixed(VALUE_BYTES),
            warmup: arena.scale().pick(Duration::from_millis(100), Duration::from_millis(500)),
            stop: Stop::Duration(arena.scale().pick(Duration::from_millis(350), Duration::from_secs(3))),
            seed: u64::from(arena.repeat()),
            wait: (replicas > 0).then_some(Wait { replicas, timeout_ms: WAIT_TIMEOUT_MS }),
            ..Options::default()
        };
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
            "Every operation counts as one, and only successes count as throughput. The study counts a PUT and a GET \
             together as one request in two of its three workloads, and failures as throughput.",
            "Keys are written before they are read, and every value that is read is checked. The study reads keys that \
             were never written.",
            "The study does not say how many keys there are nor how long values are: here 200 keys and 64 bytes.",
        ];
        remarks.iter().map(|remark| (*remark).to_owned()).collect()
    }
}

//! Quorate beside etcd, ZooKeeper, Redis and Valkey: the cost in each of a write that survives the loss of any one
//! node, and of a read.
//!
//! There is no paper behind it: the claims are this project's own goals. Every system has three nodes on this machine,
//! is driven by the same loop over connections of its own protocol, and is asked where its leader is.

mod claims;
mod figures;

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::harness::{
    Arena, Arm, Claim, Figure, Figures, Measure, Paper, Parameter, Plan, Point, Study, Table, load_measures,
};
use crate::load::{Mix, Operation, Options, Sizes, Stop, Transport, Wait};
use crate::report::Colour;
use crate::systems::{Etcd, Flavour, Quorate, Redis, System, ZooKeeper};

pub(super) struct SideBySide;

const NODES: usize = 3;

/// Numbers of clients, each with its own connection and one request in flight.
const CLIENTS: [u32; 5] = [1, 4, 16, 64, MANY];
const CLIENTS_QUICK: [u32; 2] = [1, MANY];
const MANY: u32 = 256;

/// As many requests in flight as `MANY` clients have, but over few connections with several in flight on each.
const SHARED: u32 = 16;

/// The default of `quorate bench -P 16`, for the two arms of Quorate that are compared that way.
const PIPELINED: [u32; 2] = [50, 16];

/// How long they run before they are measured. The first segments of a new log are filled with zeros, as fast as the
/// log grows; later ones are recycled from segments that are no longer needed, and that is the steady state.
const PIPELINED_WARMUP: Duration = Duration::from_secs(4);

const KEYS: u64 = 2_000;
const VALUE_BYTES: usize = 256;

/// ZooKeeper's Java machine compiles what it runs: its throughput has stopped growing after this time at the latest.
const ZOOKEEPER_WARM_UP_MAX: Duration = Duration::from_secs(30);
const ZOOKEEPER_WARM_UP_MAX_QUICK: Duration = Duration::from_secs(12);

/// The time limit of WAIT, in milliseconds.
const WAIT_TIMEOUT_MS: u32 = 5_000;

const PUT: &str = "put";
const GET: &str = "get";

/// The arms' names, for claims and figures.
const QUORATE: &str = "Quorate";
const QUORATE_ANY: &str = "Quorate, reads=any";
const QUORATE_UNSYNCED: &str = "Quorate, not synced";
const QUORATE_ALL: &str = "Quorate, leader-follower";
const ETCD: &str = "etcd";
const ETCD_UNSYNCED: &str = "etcd, not synced";
const ZOOKEEPER: &str = "ZooKeeper";
const ZOOKEEPER_UNSYNCED: &str = "ZooKeeper, not synced";
const REDIS: &str = "Redis, WAIT 1";
const VALKEY: &str = "Valkey, WAIT 1";

/// The arms whose acknowledged writes are on a disk.
const SYNCED: [&str; 5] = [QUORATE, ETCD, ZOOKEEPER, REDIS, VALKEY];

/// The arms whose writes a power failure may take.
const UNSYNCED: [&str; 4] = [QUORATE_UNSYNCED, QUORATE_ALL, ETCD_UNSYNCED, ZOOKEEPER_UNSYNCED];

const CACHED: &str = "durability: a power failure of all nodes may take acknowledged writes";
const IN_MEMORY: &str = "durability: a restart of all nodes takes everything";
const REDIS_DIFFERS: &str =
    "acknowledgement: the replica has it in memory, and a failover may take acknowledged writes";
const ZOOKEEPER_DIFFERS: &str = "reads: what the server that is asked has, which may be old";

/// The protocol that clients use with a system.
fn transport(arm: &str) -> Transport {
    match arm {
        ETCD | ETCD_UNSYNCED => Transport::Etcd,
        ZOOKEEPER | ZOOKEEPER_UNSYNCED => Transport::ZooKeeper,
        _ => Transport::Resp,
    }
}

impl SideBySide {
    /// The points of an arm: its operations and numbers of clients.
    fn points(arm: &str, clients: &[u32]) -> Vec<Point> {
        let point = |operation: &str, clients: u32, at_once: u32| {
            Point::new().with("operation", operation).with("clients", clients).with("at_once", at_once)
        };
        if arm == QUORATE_ANY {
            return vec![point(GET, MANY, 1)];
        }
        let mut points = Vec::new();
        let is_synced = SYNCED.contains(&arm);
        let clients = clients.iter().filter(|clients| is_synced || **clients == MANY);
        points.extend(clients.clone().map(|clients| point(PUT, *clients, 1)));
        points.push(point(PUT, SHARED, MANY / SHARED));
        if [QUORATE_UNSYNCED, QUORATE_ALL].contains(&arm) {
            points.push(point(PUT, PIPELINED[0], PIPELINED[1]));
        }
        if is_synced {
            points.extend(clients.map(|clients| point(GET, *clients, 1)));
        }
        points
    }
}

impl Study for SideBySide {
    fn name(&self) -> &'static str {
        "side-by-side"
    }

    fn title(&self) -> &'static str {
        "Quorate beside etcd, ZooKeeper, Redis and Valkey: writes that outlive a node, and reads"
    }

    fn paper(&self) -> Option<Paper> {
        None
    }

    fn varies(&self) -> &'static str {
        "put and get of 256 bytes x 1 to 256 clients, and 16 requests at once on each of 16 connections; three nodes each; with and without sync"
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter { name: "operation", title: "Operation" },
            Parameter { name: "clients", title: "Connections" },
            Parameter { name: "at_once", title: "Requests at once on a connection" },
        ]
    }

    fn measures(&self) -> Vec<Measure> {
        load_measures()
    }

    fn repeats(&self, plan: &Plan) -> u32 {
        plan.scale.pick(2, 5)
    }

    fn arms(&self, plan: &Plan) -> Vec<Arm> {
        let clients = plan.scale.pick(&CLIENTS_QUICK[..], &CLIENTS[..]);
        let quorate = |settings: &str| -> Box<dyn System> {
            Box::new(Quorate::new(&plan.quorate, NODES, &format!("{settings} leader=1")))
        };
        let arm = |name: &str, colour: Colour, system: Box<dyn System>, differs: &str| Arm {
            name: name.to_owned(),
            colour,
            system: Some(system),
            differs: differs.to_owned(),
            points: SideBySide::points(name, clients),
        };
        let redis = |flavour| {
            let system = Redis::new(flavour, NODES - 1, 1);
            Box::new(system.with(&["--appendonly", "yes", "--appendfsync", "always"])) as Box<dyn System>
        };
        let unsynced = |colour: Colour| colour.lighter(35).dashed();
        vec![
            arm(QUORATE, Colour::CONSENSUS, quorate("replication=consensus"), ""),
            arm(ETCD, Colour::ETCD, Box::new(Etcd::new(NODES)), ""),
            arm(ZOOKEEPER, Colour::ZOOKEEPER, Box::new(ZooKeeper::new(NODES)), ZOOKEEPER_DIFFERS),
            arm(REDIS, Colour::REDIS_ONE, redis(Flavour::Redis), REDIS_DIFFERS),
            arm(VALKEY, Colour::VALKEY, redis(Flavour::Valkey), REDIS_DIFFERS),
            arm(
                QUORATE_ANY,
                Colour::CONSENSUS.dashed(),
                quorate("replication=consensus reads=any"),
                "reads: what the node that is asked has, which may be old",
            ),
            arm(
                QUORATE_UNSYNCED,
                unsynced(Colour::CONSENSUS),
                quorate("replication=consensus durability=os"),
                CACHED,
            ),
            arm(QUORATE_ALL, Colour::ACKS_ALL, quorate("replication=leader-follower acks=all"), IN_MEMORY),
            arm(ETCD_UNSYNCED, unsynced(Colour::ETCD), Box::new(Etcd::new(NODES).without_sync()), CACHED),
            arm(
                ZOOKEEPER_UNSYNCED,
                unsynced(Colour::ZOOKEEPER),
                Box::new(ZooKeeper::new(NODES).without_sync()),
                CACHED,
            ),
        ]
    }

    fn measure(&self, arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures> {
        let running = arena.system()?;
        let nodes: Vec<_> = running.nodes().cloned().collect();
        // Redis's master is the first.
        let leader = running.system().leader(&nodes).unwrap_or(0);
        let address = nodes.get(leader).and_then(|node| running.system().client_address(node));
        let is_get = point.get("operation") == GET;
        let transport = transport(&arm.name);
        let warmup = match point.number::<u32>("clients")? == PIPELINED[0] {
            true => PIPELINED_WARMUP,
            false => arena.scale().pick(Duration::from_millis(300), Duration::from_secs(1)),
        };
        let awaits = [REDIS, VALKEY].contains(&arm.name.as_str()) && !is_get;
        let operation = if is_get { Operation::Get } else { Operation::Set };
        let options = Options {
            addresses: vec![address.context("the leader has no address")?],
            connections: point.number("clients")?,
            pipeline: point.number("at_once")?,
            mix: Mix::only(operation),
            keys: KEYS,
            key_prefix: arena.new_keys(),
            value_bytes: Sizes::fixed(VALUE_BYTES),
            warmup,
            stop: Stop::Duration(arena.scale().pick(Duration::from_secs(1), Duration::from_secs(5))),
            seed: u64::from(arena.repeat()),
            transport,
            wait: awaits.then_some(Wait { replicas: 1, timeout_ms: WAIT_TIMEOUT_MS }),
            // The best use of WAIT: one for all writes that are sent at once.
            wait_once: awaits,
            // A ZooKeeper node must exist before it is written.
            load: is_get || transport == Transport::ZooKeeper,
            ..Options::default()
        };
        if transport == Transport::ZooKeeper {
            let at_most = arena.scale().pick(ZOOKEEPER_WARM_UP_MAX_QUICK, ZOOKEEPER_WARM_UP_MAX);
            let many = Options { connections: MANY as usize, pipeline: 1, ..options.clone() };
            arena.warm_up(point.get("operation"), &many, at_most)?;
        }
        let driven = arena.drive(&options)?;
        // A system that refuses everything is fast at it, and a rate of zero must never become a divisor.
        let rows = driven.report.rows();
        let errors: Vec<String> =
            rows.iter().map(|row| format!("{} times {}", row.count, row.outcome)).collect();
        ensure!(driven.report.operations() > 0, "nothing succeeded: {}", errors.join(", "));
        Ok(driven.figures())
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
            "All nodes and the load generator share one machine: a system that needs much processor time has less of it left \
             than it would have on machines of its own.",
            "All requests go to the leader, where each system is fastest.",
            "A ratio is taken within each round, since what slows the machine down for a while slows both sides of it. It is decided \
             where all rounds agree.",
            "ZooKeeper's Java machine compiles what it runs. After each start it is first driven by 256 clients, for each operation, until \
             none of the last three seconds is 5 % faster than all before, for at most 30 s (12 s in a quick run); that is not measured.",
            "Behind the writes that are sent at once on a connection, Redis and Valkey are sent one WAIT, whose answer counts for all of \
             them: a WAIT behind each would make them much slower.",
            "Only ZooKeeper's keys are there before they are written, since they have to be.",
            "ZooKeeper's and etcd's requests over few connections are answered in any order that their protocols allow; a \
             connection sends the next ones when all before are answered, in each system.",
        ];
        remarks.iter().map(|remark| (*remark).to_owned()).collect()
    }
}

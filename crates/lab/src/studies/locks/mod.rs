//! Locks, after P. Grzesik and D. Mrozek's evaluation of key-value stores for distributed locking.
//!
//! The paper measured how long one, three and five Python processes take to acquire a lock in etcd, Consul, ZooKeeper
//! and Redis, each with one library's recipe, and judged three properties from documentation. Here each system is
//! measured with that recipe and with the best that it offers, with up to a thousand contenders, and the properties are
//! judged by experiment.

mod claims;
mod faults;
mod figures;
mod load;
mod paper;
mod rows;
mod sides;
#[cfg(test)]
mod tests;
mod workers;

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::harness::{
    Arena, Arm, Claim, Figure, Figures, Measure, Paper, Parameter, Plan, Point, Scale, Study, Table,
};
use faults::Trials;
use load::Load;
use paper::PROCESSES;
use rows::Outcome;
use sides::{Kind, Side, WithClients};
pub use workers::LockClients;

pub(super) struct Locks;

/// The lease of locks while times are measured: users of python-etcd3 and redlock-py choose seconds, and this is
/// kazoo's default.
const TTL_MS: u64 = 10_000;

/// The numbers of contenders in addition to the paper's processes, and how long a lock is held.
const CONTENDERS: [u32; 4] = [1, 10, 100, 1_000];
const HOLDS_MS: [u32; 2] = [0, 5];

/// The number of processes that share many contenders, each on its own thread.
const CONTENDER_PROCESSES: usize = 4;

/// The pause between acquires where contenders should hardly ever meet, as in the paper.
const THINK_MS: u32 = 50;

/// The arms of a quick run: the paper's recipes, Quorate's, and Redlock's servers whose clocks jump.
const QUICK: [&str; 8] = [
    sides::QUORATE,
    sides::ETCD_PAPER,
    sides::KAZOO,
    sides::CONSUL_PAPER,
    sides::REDIS_PAPER,
    sides::REDIS_BEST,
    sides::REDIS_PAPER_UNSYNCED,
    sides::REDIS_CLOCKS,
];

impl Locks {
    fn points(scale: Scale, side: &Side) -> Vec<Point> {
        let acquire = |keys: &str, processes: u32, think_ms: u32| {
            let point = Point::new().with("part", "acquire").with("keys", keys);
            point.with("processes", processes).with("think_ms", think_ms)
        };
        let mut points = Vec::new();
        if side.kind == Kind::Clocks {
            let jump = |clocks| Point::new().with("part", "clocks jump").with("clocks", clocks);
            return ["ahead", "back"].map(jump).to_vec();
        }
        for keys in ["different", "same"] {
            // Three processes lie between one and five.
            for processes in PROCESSES.into_iter().filter(|processes| scale == Scale::Full || *processes != 3)
            {
                // One process has no competition: the paper's tables have the same column twice.
                if keys == "different" || processes > 1 {
                    points.push(acquire(keys, processes, 0));
                }
            }
        }
        if side.kind == Kind::Zones {
            return points;
        }
        if scale == Scale::Full {
            points.push(acquire("same", 5, THINK_MS));
        }
        points.push(Point::new().with("part", "nodes restarted"));
        if side.kind == Kind::Unsynced {
            return points;
        }
        points.push(Point::new().with("part", "holder gone"));
        if scale == Scale::Quick {
            return points;
        }
        for contenders in CONTENDERS {
            for hold_ms in HOLDS_MS {
                let point = Point::new().with("part", "contenders").with("contenders", contenders);
                points.push(point.with("hold_ms", hold_ms));
            }
        }
        points.push(Point::new().with("part", "waits after contention"));
        let killed: &[&str] = if side.recipe.asks_all { &["any"] } else { &["leader", "follower"] };
        for node in killed {
            points.push(Point::new().with("part", "node killed").with("node", node));
        }
        points
    }
}

impl Study for Locks {
    fn name(&self) -> &'static str {
        "locks"
    }

    fn title(&self) -> &'static str {
        "What it takes to acquire a distributed lock, and what the lock is worth when something fails"
    }

    fn paper(&self) -> Option<Paper> {
        Some(Paper {
            title: "Evaluation of Key-Value Stores for Distributed Locking Purposes",
            authors: "Piotr Grzesik and Dariusz Mrozek, Silesian University of Technology, BDAS 2019",
            setting: "EC2 t2.medium instances in three availability zones, Python 3.7",
            code: None,
        })
    }

    fn varies(&self) -> &'static str {
        "1, 3, 5 processes x different keys and the same key; 1 to 1000 contenders; hold times; holders paused, cut off and \
         killed; a node killed, all restarted; clocks that jump; etcd, ZooKeeper, Consul, Redis with Redlock, each by two recipes; with and without sync"
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter { name: "part", title: "What is measured" },
            Parameter { name: "keys", title: "Keys" },
            Parameter { name: "processes", title: "Processes" },
            Parameter { name: "think_ms", title: "Pause between acquires (ms)" },
            Parameter { name: "contenders", title: "Contenders" },
            Parameter { name: "hold_ms", title: "Hold time (ms)" },
            Parameter { name: "node", title: "Node killed" },
            Parameter { name: "clocks", title: "Clocks jump" },
        ]
    }

    fn measures(&self) -> Vec<Measure> {
        figures::measures()
    }

    fn repeats(&self, _plan: &Plan) -> u32 {
        // A point of the paper takes two minutes, and there are some sixty.
        2
    }

    fn arms(&self, plan: &Plan) -> Vec<Arm> {
        let arm = |side: &Side| Arm {
            name: side.name.to_owned(),
            colour: side.colour,
            system: Some(Box::new(WithClients { inner: (side.system)(plan), clients: LockClients::new() })),
            differs: side.differs.to_owned(),
            points: Locks::points(plan.scale, side),
        };
        let is_measured = |side: &&Side| plan.scale == Scale::Full || QUICK.contains(&side.name);
        sides::ALL.iter().filter(is_measured).map(arm).collect()
    }

    fn measure(&self, arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures> {
        let side = sides::find(&arm.name).context("there is no such arm")?;
        let recipe = &side.recipe;
        let keys = format!("lock-{}", arena.new_keys().replace(':', "-"));
        let folder = arena.folder().to_owned();
        let scale = arena.scale();
        let load = Load {
            contenders: 3,
            processes: 3,
            is_same_key: false,
            keys: keys.clone(),
            ttl_ms: TTL_MS,
            hold_ms: 0.0,
            think_ms: 0.0,
            warmup: scale.pick(Duration::from_millis(300), Duration::from_secs(5)),
            measured: scale.pick(Duration::from_millis(700), Duration::from_secs(120)),
        };
        let running = arena.system()?;
        match point.get("part") {
            "acquire" => {
                let processes: u32 = point.number("processes")?;
                let is_same_key = point.get("keys") == "same";
                let load = Load {
                    contenders: processes as usize,
                    processes: processes as usize,
                    is_same_key,
                    think_ms: point.number("think_ms")?,
                    ..load
                };
                let mut figures = acquire(&load, arena, side)?;
                let column = side.column.and_then(|column| column.at(is_same_key, processes));
                figures.extend(paper::PAPER_MEASURES.into_iter().zip(column.into_iter().flatten()));
                Ok(figures)
            }
            "contenders" => {
                let contenders: usize = point.number("contenders")?;
                let load = Load {
                    contenders,
                    processes: contenders.min(CONTENDER_PROCESSES),
                    is_same_key: true,
                    hold_ms: point.number("hold_ms")?,
                    measured: Duration::from_secs(30),
                    ..load
                };
                acquire(&load, arena, side)
            }
            "holder gone" => Trials { recipe, folder: &folder, keys, count: scale.pick(1, 10) }.run(running),
            "nodes restarted" => faults::restart_nodes(running, recipe, &folder, &keys, scale.pick(1, 3)),
            "clocks jump" => faults::clocks_jump(running, recipe, &folder, &keys, point.get("clocks")),
            "waits after contention" => faults::waits_after_contention(running, recipe, &folder, &keys),
            "node killed" => {
                let load = Load { measured: Duration::from_secs(30), ..load };
                faults::kill_node(running, recipe, &folder, point.get("node"), &load)
            }
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
        figures::remarks()
    }
}

/// Contenders acquire, hold and release: their times, and the cost to the nodes.
fn acquire(load: &Load, arena: &mut Arena<'_>, side: &Side) -> Result<Figures> {
    let folder = arena.folder().to_owned();
    let loaded = load.run(arena.system()?, &side.recipe, &folder, |_| Ok(()))?;
    let mut figures = rows::figures(&loaded.tries, load.contenders, load.is_same_key, loaded.from, loaded.to);
    if arena.verifies() {
        arena.check(rows::history(&loaded.tries, |contender| load.name_of(contender), load.ttl_ms));
    }
    let acquires = figures.get("acquires").copied().unwrap_or(0.0);
    // Contenders that keep each other from the lock are a result; clients that cannot even send a request are not.
    if acquires == 0.0 && loaded.tries.iter().any(|row| row.outcome == Outcome::Failed) {
        bail!("no client acquired a lock: {}", workers::last_words(&folder));
    }
    if let Some(cpu_s) = loaded.cpu_s.filter(|_| acquires > 0.0) {
        figures.insert("cpu_us_per_acquire", cpu_s * 1e6 / acquires);
    }
    Ok(figures)
}

//! The study's load on `blocking`: closed-loop clients on ten keys. With backoff every operation ends in success; with
//! `retry = none`, as in the study, more operations fail the more clients there are.
//!
//! Time is simulated: a letter takes 50 to 150 microseconds and none overtakes another one between the same nodes, as
//! on a connection; steps take no time. So the printed figures show how many rounds and waits operations need, not how
//! fast a machine is.

use super::World;
use crate::kit::random::Random;
use crate::kit::{Asked, Consequences, Letter};
use kv::{Command, Condition, Expiry, SetAnswer};
use protocol::blocking::{Options, Retry, Timing};
use protocol::contract::{NodeId, Result as Outcome};
use protocol::{Request, Ticket};
use std::collections::{BTreeMap, BTreeSet};

enum Event {
    Arrive(Letter),
    Tick(NodeId),
    Ask(u64),
}

struct Load {
    random: Random,
    world: World,
    events: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    ticks: BTreeSet<(NodeId, u64)>,
    /// When the last letter between two nodes arrives.
    arrivals: BTreeMap<(NodeId, NodeId), u64>,
    /// The number of operations that each client has still to request.
    left: Vec<u64>,
    asked_us: BTreeMap<u64, u64>,
    gets_percent: u64,
    /// This many nodes die when the group has begun, without notice to the others.
    dead: NodeId,
    latencies_us: Vec<u64>,
    refused: u64,
}

struct Figures {
    succeeded: usize,
    refused: u64,
    per_second: u64,
    median_us: u64,
    slowest_us: u64,
}

impl Load {
    fn new(nodes: NodeId, dead: NodeId, retry: Retry, clients: usize, gets_percent: u64) -> Load {
        const OPERATIONS: u64 = 100;
        let options = Options { retry, keeps_records: false, planted: Default::default() };
        let mut load = Load {
            random: Random::new(1),
            world: World::new(nodes, options, Timing::default()).with_seed(1),
            events: BTreeMap::new(),
            scheduled: 0,
            ticks: BTreeSet::new(),
            arrivals: BTreeMap::new(),
            left: vec![OPERATIONS; clients],
            asked_us: BTreeMap::new(),
            gets_percent,
            dead,
            latencies_us: Vec::new(),
            refused: 0,
        };
        for id in load.world.members() {
            let consequences = load.world.start(id);
            load.note(id, consequences);
        }
        load
    }

    fn run(mut self) -> Figures {
        let begins_us = self.world.time_us + 2_000_000; // The group has begun by then.
        for client in 0..self.left.len() as u64 {
            let in_us = 2_000_000 + self.random.below(1000);
            self.schedule(in_us, Event::Ask(client));
        }
        let mut ended_us = begins_us;
        while let Some(((at_us, _), event)) = self.events.pop_first() {
            self.world.time_us = at_us;
            let answered = self.latencies_us.len();
            if answered == 0 && at_us >= begins_us {
                (1..=self.dead).for_each(|id| self.world.crash(id, 0));
            }
            match event {
                Event::Arrive(letter) => {
                    let consequences = self.world.deliver(&letter);
                    self.turn(letter.to, consequences);
                }
                Event::Tick(id) => {
                    self.ticks.remove(&(id, at_us));
                    let consequences = self.world.tick(id);
                    self.turn(id, consequences);
                }
                Event::Ask(client) => self.ask(client),
            }
            if self.latencies_us.len() > answered {
                ended_us = at_us;
            }
            if self.left.iter().all(|left| *left == 0) && self.asked_us.is_empty() {
                break;
            }
        }
        let mut latencies_us = self.latencies_us;
        latencies_us.sort_unstable();
        let succeeded = latencies_us.len();
        Figures {
            succeeded,
            refused: self.refused,
            per_second: succeeded as u64 * 1_000_000 / (ended_us - begins_us).max(1),
            median_us: latencies_us[succeeded / 2],
            slowest_us: latencies_us[succeeded - 1],
        }
    }

    fn schedule(&mut self, in_us: u64, event: Event) {
        self.scheduled += 1;
        self.events.insert((self.world.time_us + in_us, self.scheduled), event);
    }

    fn ask(&mut self, client: u64) {
        let alive = self.world.alive();
        let node = alive[client as usize % alive.len()];
        let (key, value) = (format!("k{}", self.random.below(10)), format!("c{client}"));
        let key = key.as_bytes();
        let command = match self.random.percent(self.gets_percent) {
            true => Command::Get { key },
            false => Command::Set {
                key,
                value: value.as_bytes(),
                expiry: Expiry::Clear,
                condition: Condition::Always,
                answer: SetAnswer::Status,
            },
        };
        self.left[client as usize] -= 1;
        self.asked_us.insert(client, self.world.time_us);
        let ticket = Ticket { client, sequence: self.left[client as usize] };
        let deadline_us = self.world.now(node).monotonic_us + 5_000_000;
        let asked = Asked { ticket, follows: false, seen: 0, deadline_us };
        let consequences = self.world.request(node, asked, Request::Command(&command));
        self.turn(node, consequences);
    }

    fn turn(&mut self, id: NodeId, consequences: Consequences) {
        self.note(id, consequences);
        let consequences = self.world.flush(id);
        self.note(id, consequences);
    }

    fn note(&mut self, id: NodeId, consequences: Consequences) {
        for (outcome, _) in consequences.outcomes {
            let client = outcome.ticket.client;
            let asked_us = self.asked_us.remove(&client).expect("each request has one outcome");
            match outcome.result {
                Outcome::Done { .. } => self.latencies_us.push(self.world.time_us - asked_us),
                Outcome::Refused => self.refused += 1,
                other => panic!("nothing is lost here: {other:?}"),
            }
            if self.left[client as usize] > 0 {
                let in_us = 10 + self.random.below(20);
                self.schedule(in_us, Event::Ask(client));
            }
        }
        for letter in consequences.letters {
            let soonest_us = self.world.time_us + 50 + self.random.below(100);
            let last_us = self.arrivals.entry((letter.from, letter.to)).or_default();
            *last_us = soonest_us.max(*last_us);
            let in_us = *last_us - self.world.time_us;
            self.schedule(in_us, Event::Arrive(letter));
        }
        if let Some(wakeup_us) = self.world.wakeup_us(id) {
            let at_us = wakeup_us.max(self.world.time_us + 50);
            if self.ticks.insert((id, at_us)) {
                self.schedule(at_us - self.world.time_us, Event::Tick(id));
            }
        }
    }
}

#[test]
fn with_backoff_every_operation_ends_in_success() {
    for (nodes, dead) in [(1, 0), (3, 0), (5, 0), (3, 1), (5, 2)] {
        for gets_percent in [90, 10] {
            let figures = Load::new(nodes, dead, Retry::Backoff, 32, gets_percent).run();
            let Figures { succeeded, refused, per_second, median_us, slowest_us } = figures;
            println!(
                "{nodes} replicas, {dead} dead, 32 clients, {gets_percent} % GET: {per_second}/s, median {median_us} us, \
                 slowest {slowest_us} us"
            );
            assert_eq!((succeeded, refused), (3200, 0));
            assert!(slowest_us < 2_500_000, "half of the time that clients wait");
        }
    }
}

#[test]
fn without_retry_more_clients_mean_more_failed_operations() {
    for nodes in [3, 5] {
        let failed = |clients: usize| {
            let figures = Load::new(nodes, 0, Retry::None, clients, 90).run();
            assert_eq!(figures.succeeded as u64 + figures.refused, 100 * clients as u64);
            println!(
                "{nodes} replicas, {clients} clients: {} of {} operations fail",
                figures.refused,
                100 * clients
            );
            figures.refused as f64 / clients as f64
        };
        let (alone, few, many) = (failed(1), failed(4), failed(32));
        assert!(alone == 0.0 && few > 0.0 && many > 2.0 * few);
    }
}

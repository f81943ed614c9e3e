//! placeholder

mod coordinator;
mod item;
pub mod locks;
pub mod message;
mod options;
mod state;

use crate::contract::{Configuration, Effects, Input, NodeId, Now, Request, Ticket, Trace};
use crate::registers::{Incarnation, LivesView, Sender, Upkeep};
use coordinator::Coordinator;
pub use item::{Answer, Ask, Denial};
use kv::{Command, ReplyBuffer, Table, UnixMs};
pub use locks::{Holder, Lock};
pub use message::{Items, Message};
pub use options::{Options, Retry, Timing};
pub use state::Counters;
use state::State;

/// How one member stands, as another one sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The member.
    pub id: NodeId,
    /// True when it was heard not long ago.
    pub answers: bool,
}

/// How a replica stands, for `INFO`, `/health` and tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `replica`, `refilling` or `idle`.
    pub role: &'static str,
    /// It has its memory, and enough others answer: requests can be served here.
    pub ready: bool,
    /// Why it is not ready, for people; else empty.
    pub explanation: String,
    /// Which of its lives this is.
    pub incarnation: Incarnation,
    /// Operations under way at this coordinator.
    pub operations: usize,
    /// Locks that this replica has granted and whose lease has not run out.
    pub locks: usize,
    /// Tombstones held.
    pub tombstones: usize,
    /// What has happened so far.
    pub counters: Counters,
    /// What refilling, repair and the collection of tombstones have counted.
    pub upkeep: crate::registers::Counters,
    /// How the other members stand.
    pub peers: Vec<PeerStatus>,
}

/// One group's state machine on one node: coordinator and replica.
#[derive(Debug)]
pub struct Replica {
    id: NodeId,
    /// How often the node was started, this time included.
    starts: u64,
    state: State,
    coordinator: Coordinator,
    /// `None` before the group is known.
    upkeep: Option<Upkeep>,
    started_us: u64,
    /// It has its memory and has taken up its work.
    serves: bool,
}

impl Replica {
    /// An empty replica, which does nothing until it is configured. `starts` says how often the node was started, this
    /// time included; no two lives may have the same number. `seed` keeps the table from flooding, names this life and
    /// decides how long operations wait for locks.
    pub fn new(id: NodeId, options: Options, timing: Timing, starts: u64, seed: u64) -> Replica {
        Replica {
            id,
            starts,
            state: State::new(options, timing, seed),
            coordinator: Coordinator::new(seed),
            upkeep: None,
            started_us: 0,
            serves: false,
        }
    }

    /// The keys and values that this replica holds. What a majority holds may be newer.
    pub fn table(&self) -> &Table {
        self.state.table()
    }

    /// Answers a read from what this replica holds: for people and tests that look at one replica.
    pub fn peek(&mut self, command: &Command<'_>, now: UnixMs, out: &mut ReplyBuffer) {
        self.state.registers.table.read(command, now, out);
    }

    /// The locks that this replica has granted and whose lease has not run out, in the order of their keys.
    pub fn locks(&self, now: Now) -> impl Iterator<Item = (&[u8], &Lock)> {
        self.state.locks.live(now.monotonic_us)
    }

    /// How it stands. O(members and locks).
    pub fn status(&self, now: Now) -> Status {
        let State { registers, timing, counters, locks, .. } = &self.state;
        let peer = |member| PeerStatus {
            id: registers.group.node(member),
            answers: registers.is_heard(member, &timing.upkeep, now),
        };
        let peers: Vec<PeerStatus> = registers.group.others().iter().map(peer).collect();
        let answering = 1 + peers.iter().filter(|peer| peer.answers).count();
        let (role, explanation) = match &self.upkeep {
            None => ("idle", "it has no configuration".to_string()),
            Some(upkeep) if !upkeep.is_ready() => ("refilling", upkeep.explain(registers)),
            Some(_) if answering < registers.group.majority() => {
                ("replica", format!("{answering} of {} replicas answer: no majority", registers.group.len()))
            }
            Some(_) => ("replica", String::new()),
        };
        Status {
            role,
            ready: explanation.is_empty(),
            explanation,
            incarnation: registers.lives.own(),
            operations: self.coordinator.open(),
            locks: locks.live(now.monotonic_us).count(),
            tombstones: registers.table.tombstones(),
            counters: Counters { expired: locks.expired, ..*counters },
            upkeep: registers.counters,
            peers,
        }
    }

    fn configure(&mut self, now: Now, configuration: &Configuration, effects: &mut Effects) {
        if self.upkeep.is_some() {
            return; // A group of registers keeps its members: tags name them by their place.
        }
        if let Err(why) = self.state.registers.join(self.id, configuration) {
            return effects.trace.push(Trace::Rejected { peer: self.id, why });
        }
        self.started_us = now.monotonic_us;
        self.upkeep = Some(Upkeep::new(&mut self.state.registers, now, self.starts, effects));
        self.notice(effects);
    }

    fn request(
        &mut self,
        now: Now,
        (ticket, follows, deadline_us): (Ticket, bool, u64),
        request: Request<'_>,
        effects: &mut Effects,
    ) {
        match &self.upkeep {
            Some(upkeep) if upkeep.is_ready() => {
                self.coordinator.request(&mut self.state, now, (ticket, follows, deadline_us), request, effects);
            }
            Some(upkeep) => match upkeep.ready_node(&self.state.registers) {
                Some(node) => effects.redirect(ticket, node),
                None => {
                    let why = upkeep.explain(&self.state.registers);
                    effects.refuse(ticket, &format!("NOQUORUM nothing was done: {why}"));
                }
            },
            None => effects.refuse(ticket, "NOQUORUM this replica has no configuration yet; nothing was done"),
        }
    }

    fn message(&mut self, now: Now, from: NodeId, message: Message<'_>, effects: &mut Effects) {
        let (Some(from), Some(upkeep)) = (self.state.group().index_of(from), &mut self.upkeep) else { return };
        if from == self.state.group().own() {
            return;
        }
        match message {
            Message::Upkeep(message) => {
                let timing = self.state.timing.upkeep;
                upkeep.message(&mut self.state.registers, &timing, now, from, message, effects);
                self.notice(effects);
            }
            Message::Turn { .. } if !upkeep.is_ready() => {} // It has nothing to answer with, nor to wait for.
            Message::Turn { lives, asks, answers } => {
                if !self.hear(now, from, lives, effects) {
                    return;
                }
                self.notice(effects);
                self.coordinator.heard(now, from);
                asks.iter().for_each(|ask| self.state.serve(now, from, ask));
                for answer in answers.iter() {
                    self.coordinator.answered(&mut self.state, now, from, answer, effects);
                }
                self.state.send(self.state.timing.batch_bytes, effects);
            }
        }
    }

    /// Learns from the lives that come with a message. True when the message is to be heeded.
    fn hear(&mut self, now: Now, from: usize, lives: LivesView<'_>, effects: &mut Effects) -> bool {
        let registers = &mut self.state.registers;
        match registers.lives.hear(from, lives) {
            Sender::Current => registers.heard(from, now),
            Sender::Earlier => return false,
            Sender::Impossible => {
                registers.reject(from, "it names lives that cannot be", effects);
                return false;
            }
        }
        true
    }

    /// Follows up what the upkeep has learnt: this replica may have its memory again, and others may have begun new
    /// lives.
    fn notice(&mut self, _effects: &mut Effects) {
        if self.upkeep.as_ref().is_some_and(Upkeep::is_ready) && !self.serves {
            self.serves = true;
            self.take_up_work();
        }
        let renewed = self.state.registers.lives.take_renewed();
        if !renewed.is_empty() {
            self.coordinator.renew(renewed);
        }
    }

    /// An earlier life of this replica may have granted locks until it ended. A group that begins anew has no holders
    /// that could remember theirs, and a first life none that were granted.
    fn take_up_work(&mut self) {
        let State { registers, locks, .. } = &mut self.state;
        locks.begin_life(registers.lives.own());
        if registers.counters.refills > 0 && registers.lives.own() > 1 {
            locks.wait_for_earlier_leases(self.started_us);
        }
    }
}

impl crate::contract::Replica for Replica {
    type Message<'a> = Message<'a>;

    fn step(&mut self, now: Now, input: Input<'_, Message<'_>>, effects: &mut Effects) {
        match input {
            Input::Request { ticket, request, follows, seen: _, deadline_us } => {
                self.request(now, (ticket, follows, deadline_us), request, effects);
                self.state.send(self.state.timing.batch_bytes, effects);
            }
            Input::Message { from, message } => self.message(now, from, message, effects),
            Input::Configure(configuration) => self.configure(now, configuration, effects),
            Input::Link { peer, up } => self.link(peer, up, effects),
            Input::Tick => self.tick(now, effects),
            Input::Flush => self.state.send(1, effects),
            Input::Durable { .. } => {} // Everything is in memory.
        }
    }

    fn wakeup_us(&self, now: Now) -> u64 {
        match &self.upkeep {
            None => u64::MAX,
            Some(upkeep) => {
                let upkeep_us = upkeep.wakeup_us(&self.state.timing.upkeep);
                upkeep_us.min(self.coordinator.wakeup_us()).max(now.monotonic_us)
            }
        }
    }
}

impl Replica {
    fn link(&mut self, peer: NodeId, up: bool, effects: &mut Effects) {
        let (Some(member), Some(upkeep)) = (self.state.group().index_of(peer), &mut self.upkeep) else { return };
        let registers = &mut self.state.registers;
        if up {
            registers.links.insert(member);
            upkeep.link_up(registers, member, effects);
        } else if member != registers.group.own() {
            registers.links.remove(crate::registers::MemberSet::only(member));
        }
    }

    fn tick(&mut self, now: Now, effects: &mut Effects) {
        let Some(upkeep) = &mut self.upkeep else { return };
        let timing = self.state.timing.upkeep;
        upkeep.tick(&mut self.state.registers, &timing, now, effects);
        self.notice(effects);
        self.state.locks.sweep(now.monotonic_us);
        if self.serves {
            self.coordinator.tick(&mut self.state, now, effects);
        }
        self.state.send(self.state.timing.batch_bytes, effects);
    }
}

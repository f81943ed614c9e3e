//! Helpers for the tests of components.

use super::entry::{Entry, Head, Proposer};
use super::group::{Group, Identity};
use super::links::Links;
use super::log::{Log, SharedLog};
use super::message::{Body, Envelope, Message};
use super::options::{Lease, Options, Settings, Timing};
use super::outbox::Outbox;
use crate::contract::{Effects, NodeId, Now, Ticket};
use crate::planted::Planted;
use kv::Command;
use std::cell::RefCell;
use std::rc::Rc;

pub(super) fn settings(id: NodeId) -> Settings {
    let options = Options {
        lease: Lease::Log,
        reads_any: false,
        log_bytes: 1 << 20,
        spill_bytes_min: usize::MAX,
        is_bounded: false,
        planted: Planted::default(),
    };
    Settings { id, options, timing: Timing::default(), seed: 1, map_version: 0 }
}

pub(super) fn at_ms(ms: u64) -> Now {
    Now { monotonic_us: ms * 1000, unix_ms: ms }
}

pub(super) fn ticket(sequence: u64) -> Ticket {
    Ticket { client: 1, sequence }
}

/// A write, and a read, of a key.
pub(super) fn write(key: &str) -> Command<'_> {
    Command::GetDelete { key: key.as_bytes() }
}

pub(super) fn read(key: &str) -> Command<'_> {
    Command::Get { key: key.as_bytes() }
}

/// The identity of a node in one of its incarnations.
pub(super) fn identity(node: NodeId, life: u64) -> Identity {
    Identity { storage: u64::from(node), life, process: u64::from(node) * 100 + life }
}

/// A batch of a node's first incarnation.
pub(super) fn entry(node: NodeId, batch: u64, keys: &[&str]) -> Entry {
    let mut commands = Vec::new();
    keys.iter().for_each(|key| write(key).encode(&mut commands));
    let proposer = Proposer { node, life: 1, batch };
    Entry::new(Head { proposer, time: 0, count: keys.len() as u32 }, &commands)
}

/// The links of node 1 to nodes 2 and 3, all in their first incarnations, and the messages that it sends.
pub(super) struct Peers {
    pub(super) settings: Settings,
    pub(super) log: SharedLog,
    pub(super) links: Links,
    pub(super) effects: Effects,
}

impl Peers {
    pub(super) fn new() -> Peers {
        let settings = settings(1);
        let mut links = Links::new(1);
        let life = links.begin_life();
        links.note_life_record(life);
        links.meet_voters(1, &Group::first(1, &[1, 2, 3]), &Default::default());
        let log = Rc::new(RefCell::new(Log::new(settings.options.planted)));
        let mut peers = Peers { settings, log, links, effects: Effects::default() };
        for peer in [2, 3] {
            let sender = identity(peer, 1);
            let envelope = Envelope { configuration: 1, sender, number: 1, ..Envelope::default() };
            let message = Message { envelope, body: Body::Behind { index: 0, asks: false } };
            let standing = super::links::Standing::Voter;
            peers.links.arrive(at_ms(1), peer, standing, &peers.settings, &message);
        }
        peers
    }

    pub(super) fn out(&mut self) -> Outbox<'_> {
        Outbox {
            settings: &self.settings,
            log: &self.log,
            links: &mut self.links,
            configuration: 1,
            leads: false,
            effects: &mut self.effects,
        }
    }

    /// Takes the messages that were sent: the receiver and the body of each.
    pub(super) fn take_sent(&mut self) -> Vec<(NodeId, String)> {
        let sent = |it: &crate::contract::Outgoing| {
            let mut bytes = self.effects.bytes[it.bytes.bytes.clone()].to_vec();
            bytes.extend(it.bytes.behind.iter().flat_map(|behind| behind.iter()));
            (it.to, format!("{:?}", Message::decode(&bytes).unwrap().body))
        };
        let all = self.effects.messages.iter().map(sent).collect();
        self.effects.clear();
        all
    }
}

//! The keeper: the control group's replica on a control node. The map with version v is the value under the key
//! `map:v`, written only if the key is absent. So exactly one proposal makes each version, whichever node proposes.

use super::Effects;
use super::map::CONTROL_GROUP;
use super::message::Message;
use super::record::{put_begun, put_replica};
use kv::codec::{Malformed, Reader};
use kv::{Command, Condition, Expiry, List, Reply, ReplyBuffer, SetAnswer, Version};
use protocol::consensus::Found;
use protocol::consensus::{self, Options, Replica, Status};
use protocol::contract::{Input, NodeId, Now, Replica as _, Result as Outcome, Submission};
use protocol::{Configuration, Progress, Request, Ticket};
use std::collections::BTreeMap;

/// How many versions are kept, for inspection.
const KEPT_VERSIONS: u64 = 8;

/// The control group's replica.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) replica: Replica,
    effects: protocol::Effects,
    reply: ReplyBuffer,
    /// How many of this incarnation's records are the component's own: they came before the replica's first.
    records_before: u64,
    sequence: u64,
    /// The checkpoint under way begins with one of the component's own records.
    checkpoint_begins: bool,
    proposed: Option<Ticket>,
    /// The outcome of the last proposal, until it is taken.
    end: Option<ProposalEnd>,
    /// The state when there was no newer map: the table's highest version, how often the table was replaced, and the
    /// version of the known map.
    looked_at: Option<(Version, u64, u64)>,
}

/// The outcome of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProposalEnd {
    /// The proposed map is the map of its version.
    Won,
    /// The proposed map is not the map of its version, and never will be.
    Lost,
    /// The proposed map may still become the map.
    Unknown,
}

impl Keeper {
    pub(super) fn new(component: &super::Options) -> Keeper {
        let super::Options { id, timing, seed, start, watch, .. } = component;
        const LOG_BYTES: usize = 1 << 20;
        let options = Options {
            lease: consensus::Lease::Log,
            reads_any: false,
            log_bytes: LOG_BYTES,
            spill_bytes_min: usize::MAX,
            is_bounded: false,
            planted: Default::default(),
        };
        let mut replica = Replica::new(*id, options, timing.consensus, *seed, start.run);
        if let Some(watch) = watch {
            replica.set_watch(CONTROL_GROUP, *watch);
        }
        Keeper {
            replica,
            effects: protocol::Effects::default(),
            reply: ReplyBuffer::new(),
            records_before: 0,
            sequence: 0,
            checkpoint_begins: false,
            proposed: None,
            end: None,
            looked_at: None,
        }
    }

    pub(super) fn configure(&mut self, now: Now, configuration: &Configuration, out: &mut Effects) {
        self.step(now, Input::Configure(configuration), out);
    }

    /// In this incarnation the replica's records come after `records` others.
    pub(super) fn begins_after(&mut self, records: u64) {
        self.records_before = records;
    }

    pub(super) fn message(
        &mut self,
        now: Now,
        from: NodeId,
        bytes: &[u8],
        out: &mut Effects,
    ) -> Result<(), Malformed> {
        let message = consensus::Message::decode(bytes)?;
        self.step(now, Input::Message { from, message }, out);
        Ok(())
    }

    pub(super) fn durable(&mut self, now: Now, record: u64, out: &mut Effects) {
        let record = record.saturating_sub(self.records_before);
        self.step(now, Input::Durable { record }, out);
    }

    pub(super) fn step(&mut self, now: Now, input: Input<'_, consensus::Message<'_>>, out: &mut Effects) {
        self.effects.clear();
        self.replica.step(now, input, &mut self.effects);
        for record in &self.effects.records {
            out.replica_record(&record.parts(&self.effects.bytes).concat());
        }
        for message in &self.effects.messages {
            let bytes = &message.bytes.parts(&self.effects.bytes).concat();
            let after = match message.after_record {
                0 => 0,
                record => record + self.records_before,
            };
            out.send_after(after, [message.to], &Message::Replica { bytes });
        }
        let replies = self.effects.replies.as_bytes();
        for outcome in &self.effects.outcomes {
            if Some(outcome.ticket) != self.proposed {
                continue; // A read, which only keeps the lease alive.
            }
            self.proposed = None;
            self.end = Some(match outcome.result {
                Outcome::Done { .. } => match Reply::first(&replies[outcome.reply.clone()]) {
                    Reply::Ok => ProposalEnd::Won,
                    _ => ProposalEnd::Lost,
                },
                Outcome::Refused | Outcome::Redirect { .. } => ProposalEnd::Lost,
                Outcome::Unknown => ProposalEnd::Unknown,
            });
        }
        out.trace.append(&mut self.effects.trace);
    }

    pub(super) fn status(&self, now: Now) -> Status {
        self.replica.status(now)
    }

    /// What the replica holds, after its records were replayed.
    pub(super) fn found(&self) -> Found {
        self.replica.found()
    }

    /// The record after which the replica is the group's only one, with this map as the newest version.
    pub(super) fn alone(&self, epoch: u32, version: u64, map: &[u8]) -> Vec<u8> {
        self.replica.alone(epoch, &[proposal(key_of(version).as_bytes(), map)])
    }

    pub(super) fn take_end(&mut self) -> Option<ProposalEnd> {
        self.end.take()
    }

    pub(super) fn begin_checkpoint(&mut self) -> bool {
        self.checkpoint_begins = self.replica.begin_checkpoint();
        self.checkpoint_begins
    }

    pub(super) fn checkpoint_record(
        &mut self,
        bytes_max: usize,
        identities: &BTreeMap<NodeId, u64>,
        record: &mut Vec<u8>,
    ) -> Progress {
        if std::mem::take(&mut self.checkpoint_begins) {
            put_begun(record, identities);
            return Progress::More;
        }
        let mut inner = Vec::new();
        let progress = self.replica.checkpoint_record(bytes_max, &mut inner);
        put_replica(record, &inner);
        progress
    }

    /// Proposes a version of the map.
    pub(super) fn propose(&mut self, now: Now, version: u64, map: &[u8], out: &mut Effects) {
        let key = key_of(version);
        let command = proposal(key.as_bytes(), map);
        // The request ends when it is committed, or can never be. It must not end earlier: no node could then know
        // which of the two it will be.
        const NEVER_US: u64 = 24 * 3600 * 1_000_000;
        self.end = None;
        self.proposed = Some(Ticket { client: 0, sequence: self.sequence + 1 });
        self.request(now, command, NEVER_US, out);
        if version > KEPT_VERSIONS {
            let old = key_of(version - KEPT_VERSIONS);
            let mut scratch = Vec::new();
            let keys = List::build(&mut scratch, [old.as_bytes()]);
            self.request(now, Command::Delete { keys }, NEVER_US, out);
        }
    }

    /// Sends a read whose reply is ignored: a leader extends its lease only while there are reads.
    pub(super) fn keep_lease(&mut self, now: Now, out: &mut Effects) {
        const PATIENCE_US: u64 = 100_000;
        self.request(now, Command::Get { key: b"map:" }, PATIENCE_US, out);
    }

    fn request(&mut self, now: Now, command: Command<'_>, patience_us: u64, out: &mut Effects) {
        self.sequence += 1;
        let ticket = Ticket { client: 0, sequence: self.sequence };
        let deadline_us = now.monotonic_us + patience_us;
        let request = &Request::Command(&command);
        let submission = Submission { ticket, request, follows: false, seen: 0, deadline_us, fenced: false };
        self.step(now, Input::Request(&submission), out);
    }

    /// Returns the newest map that is committed and applied here, if it is newer than version `known`.
    pub(super) fn newer_map(&mut self, now: Now, known: u64) -> Option<Vec<u8>> {
        let table = self.replica.table();
        // This is called in every turn, and few turns have written anything.
        let state = (table.version_floor(), table.replacements(), known);
        if self.looked_at == Some(state) {
            return None;
        }
        let newer = self.look_for_newer_map(now, known);
        self.looked_at = newer.is_none().then_some(state);
        newer
    }

    fn look_for_newer_map(&mut self, now: Now, known: u64) -> Option<Vec<u8>> {
        let mut newest = None;
        let mut version = known;
        while let Some(map) = self.map(now, version + 1) {
            version += 1;
            newest = Some(map);
        }
        if newest.is_some() || known > 0 && self.map(now, known).is_some() {
            return newest;
        }
        // A snapshot transfer may have skipped versions that are not kept any more.
        self.reply.clear();
        self.replica.peek(&Command::Keys { pattern: b"map:*" }, now.unix_ms, &mut self.reply);
        let version = versions(self.reply.as_bytes()).max().filter(|version| *version > known)?;
        self.map(now, version)
    }

    fn map(&mut self, now: Now, version: u64) -> Option<Vec<u8>> {
        let key = key_of(version);
        self.reply.clear();
        self.replica.peek(&Command::Get { key: key.as_bytes() }, now.unix_ms, &mut self.reply);
        match Reply::first(self.reply.as_bytes()) {
            Reply::Bulk(bytes) => Some(bytes.to_vec()),
            _ => None,
        }
    }
}

/// The write that makes a version of the map, unless another one has made it.
fn proposal<'a>(key: &'a [u8], map: &'a [u8]) -> Command<'a> {
    Command::Set {
        key,
        value: map,
        expiry: Expiry::Clear,
        condition: Condition::IfAbsent,
        answer: SetAnswer::Status,
    }
}

fn key_of(version: u64) -> String {
    format!("map:{version}")
}

/// Yields the versions among an encoded list of keys.
fn versions(reply: &[u8]) -> impl Iterator<Item = u64> {
    let mut reader = Reader::new(reply);
    let elements = std::iter::from_fn(move || Reply::decode(&mut reader).ok());
    elements.filter_map(|element| match element {
        Reply::Bulk(key) => std::str::from_utf8(key).ok()?.strip_prefix("map:")?.parse().ok(),
        _ => None,
    })
}

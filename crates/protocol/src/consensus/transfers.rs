//! Snapshot transfers to replicas that lack what is cut off from the log.
//!
//! A transfer happens before the crate gets the message that needs it: a leader does not pass on to the crate the promise
//! of a follower whose log ends before its own begins, and a follower does not pass on the `Prepare` of a candidate that
//! is so far behind. So the crate never meets a gap. With a snapshot comes what its sender has accepted after it.
//!
//! A snapshot shows only what is decided, so any replica may send one to any other. The receiver records it as it arrives:
//! until the whole of it is durable the receiver sends nothing that rests on it, and after a crash it has either the old
//! state or the new one. This is the sending side; [`super::incoming`] is the receiving side.

use super::applied::Applied;
use super::entry::Entry;
use super::log::Log;
use super::members::Members;
use super::message::Body;
use super::options::Settings;
use super::outbox::Outbox;
use super::record::Moment;
use super::slices::Slices;
use super::status::Counters;
use crate::contract::{Effects, NodeId, Now, Trace};
use crate::planted::Fault;
use crate::transfer::{Allowance, Outgoing, kept_bytes_max};
use kv::{Reference, Table};
use omnipaxos::ballot_leader_election::Ballot;

/// What a receiver answers when it needs no more chunks.
pub(super) const WHOLE: u32 = u32::MAX;

/// The transfers under way, at most one to each receiver.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    open: Vec<Transfer>,
    /// The name of the last one.
    last: u64,
    allowance: Allowance,
}

#[derive(Debug)]
struct Transfer {
    to: NodeId,
    name: u64,
    moment: Moment,
    chunks: Outgoing,
    /// What is accepted here after the snapshot's moment, and in which ballot.
    accepted: (Ballot, Vec<Entry>),
    /// When chunks were last sent again, or acknowledged.
    repeated_us: u64,
    is_begun: bool,
    /// When the receiver has installed it. The log is kept from its moment on until the receiver has joined.
    delivered_us: Option<u64>,
}

impl Transfer {
    fn is_delivered(&self) -> bool {
        self.delivered_us.is_some()
    }

    /// For how long its receiver has made no progress.
    fn stuck_ms(&self, now: Now) -> u64 {
        self.delivered_us.map_or(self.chunks.stuck_ms(now), |delivered_us| now.ms_since(delivered_us))
    }

    /// Sends what the receiver can take.
    fn advance(&mut self, now: Now, members: &Members, table: &mut Table, out: &mut Outbox<'_>) {
        if self.is_delivered() {
            return;
        }
        let (to, transfer, timing) = (self.to, self.name, out.settings.timing);
        let again = now.ms_since(self.repeated_us) >= timing.silence_ms;
        if !std::mem::replace(&mut self.is_begun, true) || again && self.chunks.acknowledged() == 0 {
            out.send(to, Body::SnapshotBegin { transfer, moment: self.moment.clone() });
        }
        if again {
            self.repeated_us = now.monotonic_us;
            for (index, chunk) in self.chunks.unacknowledged() {
                out.send(to, Body::SnapshotChunk { transfer, index, chunk });
            }
        }
        let was_all_sent = self.chunks.is_all_sent();
        while out.effects.history_bytes < timing.turn_bytes
            && let Some((index, chunk)) = self.chunks.next(table, timing.window())
        {
            out.effects.history_bytes += chunk.len();
            out.send(to, Body::SnapshotChunk { transfer, index, chunk });
        }
        if self.chunks.is_all_sent() && (again || !was_all_sent) {
            let (round, rest) = self.accepted.clone();
            let (chunks, voters) = (self.chunks.sent(), members.known_voters(out.links.identity()));
            out.send(to, Body::SnapshotEnd { transfer, chunks, round, rest, voters });
        }
    }
}

impl Transfers {
    /// Begins an incarnation: no transfer gets the name of one of an earlier incarnation.
    pub(super) fn begin_life(&mut self, life: u64) {
        self.last = life << 32;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether any snapshot is being sent.
    pub(super) fn are_sending(&self) -> bool {
        self.open.iter().any(|transfer| !transfer.is_delivered())
    }

    /// Whether a peer needs a snapshot: the entries that it lacks are cut off, or too many to send as one message.
    pub(super) fn must_transfer(
        &self,
        to: NodeId,
        from_index: usize,
        decided: usize,
        log: &Log,
        settings: &Settings,
    ) -> bool {
        let bytes_max = settings.timing.sync_bytes_max;
        if from_index < log.base() {
            return true;
        }
        let has_one = self.open.iter().any(|transfer| transfer.to == to && transfer.is_delivered());
        !has_one && from_index < decided && log.bytes() > bytes_max && log.bytes_from(from_index) > bytes_max
    }

    /// Begins a transfer, unless one to this receiver is under way.
    pub(super) fn begin(
        &mut self,
        now: Now,
        (to, why): (NodeId, &'static str),
        (members, applied): (&Members, &mut Applied),
        counters: &mut Counters,
        out: &mut Outbox<'_>,
    ) {
        let has_a_log = members.has_a_log(applied.index());
        assert!(has_a_log, "it sends a snapshot without the ballot of the log after it");
        if self.open.iter().any(|transfer| transfer.to == to && !transfer.is_delivered()) {
            return;
        }
        self.abandon(|transfer| transfer.to == to, applied.table_mut(), out.effects);
        self.last += 1;
        let planted = out.settings.options.planted;
        let mut moment = applied.moment(members.group());
        if planted.has(Fault::SnapshotIndexOffByOne) {
            moment.index = moment.index.saturating_sub(1);
        }
        counters.transfers_sent += 1;
        out.effects.trace.push(Trace::TransferBegun { to, offset: moment.offset, why });
        let accepted = {
            let log = out.log.borrow();
            (log.accepted_round(), log.entries_from(applied.index()))
        };
        self.open.push(Transfer {
            to,
            name: self.last,
            moment,
            chunks: Outgoing::new(applied.begin_snapshot(planted), now),
            accepted,
            repeated_us: now.monotonic_us,
            is_begun: false,
            delivered_us: None,
        });
    }

    /// Sends what the receivers can take.
    pub(super) fn advance(
        &mut self,
        now: Now,
        members: &Members,
        applied: &mut Applied,
        out: &mut Outbox<'_>,
    ) {
        for transfer in &mut self.open {
            transfer.advance(now, members, applied.table_mut(), out);
        }
    }

    /// A receiver reports its progress.
    pub(super) fn progress(
        &mut self,
        now: Now,
        from: NodeId,
        (name, next): (u64, u32),
        table: &mut Table,
        effects: &mut Effects,
    ) {
        let fits = |transfer: &&mut Transfer| transfer.to == from && transfer.name == name;
        let Some(transfer) = self.open.iter_mut().find(fits) else { return };
        if next == WHOLE {
            transfer.chunks.end(table);
            transfer.delivered_us = Some(now.monotonic_us);
        } else if next < transfer.chunks.acknowledged() {
            // It has lost the chunks that it had: it was restarted.
            self.abandon(|transfer| transfer.to == from && transfer.name == name, table, effects);
        } else if transfer.chunks.acknowledge(now, next) {
            transfer.repeated_us = now.monotonic_us;
        }
    }

    /// A replica continues with the log from an index on: the snapshot that it got, if any, is no longer
    /// needed. It has caught up if no slices of the log need follow.
    pub(super) fn note_continues(&mut self, to: NodeId, from_index: usize, log: &Log, settings: &Settings) {
        let open = self.open.len();
        self.open.retain(|transfer| transfer.to != to || !transfer.is_delivered());
        if self.open.len() < open && log.bytes_from(from_index) <= settings.timing.chunk_bytes {
            self.note_caught_up();
        }
    }

    /// A replica that got a snapshot, or slices of the log, now has everything.
    pub(super) fn note_caught_up(&mut self) {
        self.allowance.note_caught_up();
    }

    /// Gives up the transfers whose receivers make no progress.
    pub(super) fn abandon_stuck(
        &mut self,
        now: Now,
        settings: &Settings,
        table: &mut Table,
        effects: &mut Effects,
    ) {
        let patience_ms = settings.timing.patience_ms();
        self.abandon(|transfer| transfer.stuck_ms(now) > patience_ms, table, effects);
    }

    /// Gives up those that keep more of the log than the node has room for, and followers that are sent the
    /// log in slices and are too far behind. They ask again.
    pub(super) fn abandon_long_kept(
        &mut self,
        (log, slices): (&Log, Option<&mut Slices>),
        history_max: usize,
        table: &mut Table,
        effects: &mut Effects,
    ) {
        let bytes_max = self.allowance.of(kept_bytes_max(history_max));
        let are_given_up = slices.is_some_and(|slices| slices.give_up_far_behind(log, bytes_max));
        let open = self.open.len();
        if open > 0 && log.bytes() > bytes_max {
            self.abandon(|it| log.bytes_from(it.moment.index as usize) > bytes_max, table, effects);
        }
        if self.open.len() < open || are_given_up {
            self.allowance.note_given_up();
        }
    }

    /// Gives up all: they show a table that is being replaced.
    pub(super) fn abandon_all(&mut self, table: &mut Table, effects: &mut Effects) {
        self.abandon(|_| true, table, effects);
    }

    fn abandon(&mut self, which: impl Fn(&Transfer) -> bool, table: &mut Table, effects: &mut Effects) {
        self.open.retain_mut(|transfer| {
            if !which(transfer) {
                return true;
            }
            transfer.chunks.end(table);
            if !transfer.is_delivered() {
                let why = "its receiver does not get on, or something newer has come";
                effects.trace.push(Trace::TransferAbandoned { to: transfer.to, why });
            }
            false
        });
    }

    /// Nothing from this index on may be cut off: a receiver of a snapshot needs it.
    pub(super) fn kept_from(&self) -> usize {
        self.open.iter().map(|transfer| transfer.moment.index as usize).min().unwrap_or(usize::MAX)
    }

    // Values on the disk.

    /// The values that chunks wait for, except those that were requested already.
    pub(super) fn wanted_values(&mut self) -> Vec<Reference> {
        let mut wanted = Vec::new();
        self.open.iter_mut().for_each(|transfer| transfer.chunks.take_wanted(&mut wanted));
        wanted
    }

    /// A value that chunks wait for has arrived, or is lost: then their transfers are given up.
    pub(super) fn take_value(
        &mut self,
        now: Now,
        reference: Reference,
        value: Option<&[u8]>,
        table: &mut Table,
        effects: &mut Effects,
    ) {
        let Some(value) = value else {
            return self.abandon(|transfer| transfer.chunks.lacks(&reference), table, effects);
        };
        for transfer in &mut self.open {
            transfer.chunks.take_value(now, reference, value);
        }
    }

    /// A snapshot shows what is decided, and the log is kept from its moment on until its receiver continues from there.
    /// O(transfers).
    pub(super) fn check(&self, applied: usize, log: &Log, settings: &Settings) {
        for transfer in &self.open {
            let index = transfer.moment.index as usize;
            assert!(index <= applied, "a snapshot shows what is not decided");
            assert!(log.base() <= index, "{} entries are cut off, and a snapshot shows {index}", log.base());
            transfer.chunks.check(settings.timing.window());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::group::Group;
    use super::super::kit::{Peers, at_ms, entry};
    use super::*;
    use kv::{Condition, Expiry, ReplyBuffer, SetAnswer};

    struct World {
        peers: Peers,
        members: Members,
        applied: Applied,
        transfers: Transfers,
        counters: Counters,
    }

    impl World {
        /// Transfers of a table with 40 keys, in chunks of about one key, three of which may be under way.
        fn new() -> World {
            let mut peers = Peers::new();
            (peers.settings.timing.chunk_bytes, peers.settings.timing.chunk_window) = (1, 3);
            let mut members = Members::new(1);
            members.enter(Group::first(1, &[1, 2, 3]));
            let mut applied = Applied::new(1, peers.settings.options);
            for key in 0..40_u8 {
                let (expiry, condition, answer) = (Expiry::Clear, Condition::Always, SetAnswer::Status);
                let set = kv::Command::Set { key: &[key], value: b"v", expiry, condition, answer };
                applied.table_mut().apply(&set, u64::from(key), 0, &mut ReplyBuffer::new());
            }
            let (transfers, counters) = (Transfers::default(), Counters::default());
            World { peers, members, applied, transfers, counters }
        }

        fn begin(&mut self, ms: u64) {
            let state = (&self.members, &mut self.applied);
            let out = &mut self.peers.out();
            self.transfers.begin(at_ms(ms), (2, "it lacks it"), state, &mut self.counters, out);
        }

        /// The kinds of the messages that are sent.
        fn advance(&mut self, ms: u64) -> Vec<String> {
            let out = &mut self.peers.out();
            self.transfers.advance(at_ms(ms), &self.members, &mut self.applied, out);
            let log = Log::default();
            self.transfers.check(0, &log, &self.peers.settings);
            let first = |(_, body): (NodeId, String)| body.split(' ').next().unwrap_or_default().to_string();
            self.peers.take_sent().into_iter().map(first).collect()
        }

        fn progress(&mut self, ms: u64, next: u32) {
            let (table, effects) = (self.applied.table_mut(), &mut self.peers.effects);
            let transfer = self.transfers.last;
            self.transfers.progress(at_ms(ms), 2, (transfer, next), table, effects);
        }
    }

    #[test]
    fn chunks_under_way_are_limited_and_unanswered_ones_are_sent_again() {
        let mut world = World::new();
        world.begin(0);
        assert_eq!(world.advance(1), ["SnapshotBegin", "SnapshotChunk", "SnapshotChunk", "SnapshotChunk"]);
        assert!(world.advance(2).is_empty());
        world.progress(3, 2);
        assert_eq!(world.advance(3), ["SnapshotChunk", "SnapshotChunk"]);
        assert_eq!(world.advance(3 + 240), ["SnapshotChunk", "SnapshotChunk", "SnapshotChunk"]);
        world.begin(300);
        assert_eq!(world.counters.transfers_sent, 1, "one is under way");
    }

    #[test]
    fn the_log_is_kept_for_a_snapshot_until_its_receiver_has_caught_up() {
        let mut world = World::new();
        assert_eq!(world.transfers.kept_from(), usize::MAX);
        world.begin(0);
        let (mut next, mut sent) = (0, Vec::new());
        while !sent.iter().any(|body| body == "SnapshotEnd") {
            sent = world.advance(1);
            next += sent.iter().filter(|body| *body == "SnapshotChunk").count() as u32;
            world.progress(1, next);
        }
        assert!(world.transfers.are_sending() && next > 3);
        world.progress(2, WHOLE);
        assert!(!world.transfers.are_sending() && world.transfers.kept_from() == 0);
        assert!(world.advance(9000).is_empty());
        let (log, settings) = (Log::default(), world.peers.settings);
        world.transfers.note_continues(3, 0, &log, &settings);
        assert!(!world.transfers.is_empty());
        world.transfers.note_continues(2, 0, &log, &settings);
        assert!(world.transfers.is_empty());
    }

    #[test]
    fn a_transfer_is_given_up_when_its_receiver_restarts_or_is_stuck() {
        let mut world = World::new();
        let mut abandoned = |forgets: bool| {
            world.begin(0);
            world.advance(1);
            world.progress(2, 2);
            if forgets {
                world.progress(3, 1);
            } else {
                let (settings, table) = (world.peers.settings, world.applied.table_mut());
                world.transfers.abandon_stuck(at_ms(2402), &settings, table, &mut world.peers.effects);
                assert!(!world.transfers.is_empty());
                world.transfers.abandon_stuck(at_ms(2403), &settings, table, &mut world.peers.effects);
            }
            assert!(world.transfers.is_empty());
            std::mem::take(&mut world.peers.effects.trace).len()
        };
        assert_eq!((abandoned(true), abandoned(false)), (1, 1));
    }

    #[test]
    fn entries_that_are_cut_off_or_too_many_need_a_transfer() {
        let World { mut peers, transfers, .. } = World::new();
        peers.settings.timing.sync_bytes_max = 100;
        let mut log = Log::default();
        let must_transfer = |log: &Log, from| transfers.must_transfer(2, from, 3, log, &peers.settings);
        log.append(vec![entry(1, 1, &["a"; 30])]);
        log.append(vec![entry(1, 2, &["b"])]);
        assert!(must_transfer(&log, 0) && !must_transfer(&log, 1), "too much, and little");
        let moment = Moment { index: 9, ..Moment::default() };
        log.installed(&moment, true);
        assert!(must_transfer(&log, 8) && !must_transfer(&log, 9));
    }
}

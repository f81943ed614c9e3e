//! Copies of the table, for replicas that lack what is cut off from the log, sent in chunks while writes go on.
//!
//! A copy moves before the crate hears of the replica that needs it: a leader does not pass on the promise of a
//! follower whose log ends before its own begins, and a follower does not pass on the question of a candidate that is
//! so far behind. So the crate never meets a gap. With a copy comes what its sender
//! has accepted behind it.
//!
//! A copy shows only what is decided, so anybody may send one to anybody. The receiver records it as it comes: until
//! the whole of it is durable it says nothing that rests on it, and after a crash it has either the old state or the
//! new one. This is the sending side; [`super::incoming`] is the other one.

use super::applied::Applied;
use super::entry::Entry;
use super::log::Log;
use super::members::Members;
use super::message::Body;
use super::options::Settings;
use super::outbox::Outbox;
use super::record::Moment;
use super::status::Counters;
use crate::contract::{Effects, NodeId, Now, Trace};
use crate::loading::Loading;
use crate::planted::Fault;
use kv::table::SnapshotId;
use kv::{Reference, Table};
use omnipaxos::ballot_leader_election::Ballot;
use std::collections::VecDeque;

/// What a receiver answers when it needs no more.
pub(super) const WHOLE: u32 = u32::MAX;

/// Copies that are sent, one to each receiver at most.
#[derive(Debug, Default)]
pub(super) struct Senders {
    senders: Vec<Sender>,
    /// The name of the last transfer.
    transfers: u64,
}

#[derive(Debug)]
struct Sender {
    to: NodeId,
    transfer: u64,
    moment: Moment,
    /// How many chunks were sent, and how many of them are acknowledged.
    next: u32,
    acknowledged: u32,
    /// When the receiver last got on.
    progress_us: u64,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Sending(Sending),
    /// The receiver has installed it. The log is kept from its moment on until the receiver has joined.
    Delivered,
}

#[derive(Debug)]
struct Sending {
    /// What is accepted here behind the copy's moment, and in which ballot.
    accepted: (Ballot, Vec<Entry>),
    chunks: Chunks,
    /// Chunks that were sent and not acknowledged: links lose messages.
    unacknowledged: VecDeque<(u32, Vec<u8>)>,
    /// When something was last sent again.
    repeated_us: u64,
    is_begun: bool,
}

/// The chunks that are not sent yet.
#[derive(Debug)]
enum Chunks {
    /// They are taken of a snapshot; one may wait for values on the disk.
    Left(SnapshotId, Option<Loading>),
    /// None are left.
    AllTaken,
}

impl Sender {
    fn is_delivered(&self) -> bool {
        matches!(self.stage, Stage::Delivered)
    }

    fn loading_mut(&mut self) -> Option<&mut Loading> {
        match &mut self.stage {
            Stage::Sending(Sending { chunks: Chunks::Left(_, loading), .. }) => loading.as_mut(),
            Stage::Sending(_) | Stage::Delivered => None,
        }
    }

    /// No more of it is sent.
    fn end_snapshot(&self, table: &mut Table) {
        if let Stage::Sending(Sending { chunks: Chunks::Left(snapshot, _), .. }) = &self.stage {
            table.end_snapshot(*snapshot);
        }
    }

    /// Sends what the receiver can take.
    fn advance(&mut self, now: Now, members: &Members, table: &mut Table, out: &mut Outbox<'_>) {
        let (to, transfer) = (self.to, self.transfer);
        let Stage::Sending(sending) = &mut self.stage else { return };
        let Settings { timing, .. } = *out.settings;
        let again = now.ms_since(sending.repeated_us) >= timing.silence_ms;
        if !sending.is_begun || again && self.acknowledged == 0 {
            sending.is_begun = true;
            out.send(to, Body::CopyBegin { transfer, moment: self.moment.clone() });
        }
        if again {
            sending.repeated_us = now.monotonic_us;
            for (index, chunk) in &sending.unacknowledged {
                out.send(to, Body::CopyChunk { transfer, index: *index, chunk });
            }
        }
        while let Chunks::Left(snapshot, waiting) = &mut sending.chunks
            && sending.unacknowledged.len() < timing.chunk_window as usize
        {
            let next = || Loading::next(table, *snapshot, timing.chunk_bytes, Vec::new());
            let loading = waiting.take().unwrap_or_else(next);
            if !loading.is_whole() {
                // The receiver is not what is waited for.
                self.progress_us = self.progress_us.max(loading.progress_us);
                *waiting = Some(loading);
                break;
            }
            let more = loading.more;
            if !more {
                table.end_snapshot(*snapshot);
                sending.chunks = Chunks::AllTaken;
            }
            let chunk = loading.into_chunk();
            if !chunk.is_empty() {
                let index = self.next;
                out.send(to, Body::CopyChunk { transfer, index, chunk: &chunk });
                sending.unacknowledged.push_back((index, chunk));
                self.next += 1;
            }
            if !more {
                sending.end(to, (transfer, self.next), members, out);
            }
        }
        if again && matches!(sending.chunks, Chunks::AllTaken) {
            sending.end(to, (transfer, self.next), members, out);
        }
    }
}

impl Sending {
    fn end(&self, to: NodeId, (transfer, chunks): (u64, u32), members: &Members, out: &mut Outbox<'_>) {
        let (round, rest) = self.accepted.clone();
        let voters = members.known_voters(out.links.identity());
        out.send(to, Body::CopyEnd { transfer, chunks, round, rest, voters });
    }
}

impl Senders {
    /// No transfer has the name of one of an earlier life.
    pub(super) fn begin_life(&mut self, life: u64) {
        self.transfers = life << 32;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    /// Whether any copy is on its way.
    pub(super) fn are_sending(&self) -> bool {
        self.senders.iter().any(|sender| !sender.is_delivered())
    }

    /// Whether a peer can go on only with a copy: what it needs is cut off, or too much to send as one message.
    pub(super) fn must_copy(
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
        let has_copy = self.senders.iter().any(|sender| sender.to == to && sender.is_delivered());
        !has_copy && from_index < decided && log.bytes() > bytes_max && log.bytes_from(from_index) > bytes_max
    }

    /// Begins to send a copy, unless one is under way.
    pub(super) fn begin(
        &mut self,
        now: Now,
        (to, why): (NodeId, &'static str),
        (members, applied): (&Members, &mut Applied),
        counters: &mut Counters,
        out: &mut Outbox<'_>,
    ) {
        let has_a_log = members.has_a_log(applied.index());
        assert!(has_a_log, "it sends a copy without the ballot of what stands behind it");
        if self.senders.iter().any(|sender| sender.to == to && !sender.is_delivered()) {
            return;
        }
        self.abandon(|sender| sender.to == to, applied.table_mut(), out.effects);
        self.transfers += 1;
        let planted = out.settings.options.planted;
        let mut moment = applied.moment(members.group());
        if planted.has(Fault::SnapshotIndexOffByOne) {
            moment.index = moment.index.saturating_sub(1);
        }
        counters.copies_sent += 1;
        out.effects.trace.push(Trace::FullResync { follower: to, offset: moment.offset, why });
        let accepted = {
            let log = out.log.borrow();
            (log.accepted_round(), log.entries_from(applied.index()))
        };
        let sending = Sending {
            accepted,
            chunks: Chunks::Left(applied.begin_snapshot(planted), None),
            unacknowledged: VecDeque::new(),
            repeated_us: now.monotonic_us,
            is_begun: false,
        };
        let (transfer, progress_us) = (self.transfers, now.monotonic_us);
        let stage = Stage::Sending(sending);
        self.senders.push(Sender { to, transfer, moment, next: 0, acknowledged: 0, progress_us, stage });
    }

    /// Sends what the receivers can take.
    pub(super) fn advance(
        &mut self,
        now: Now,
        members: &Members,
        applied: &mut Applied,
        out: &mut Outbox<'_>,
    ) {
        for sender in &mut self.senders {
            sender.advance(now, members, applied.table_mut(), out);
        }
    }

    /// A receiver says how far it is.
    pub(super) fn progress(
        &mut self,
        now: Now,
        from: NodeId,
        (transfer, next): (u64, u32),
        table: &mut Table,
        effects: &mut Effects,
    ) {
        let fits = |sender: &&mut Sender| sender.to == from && sender.transfer == transfer;
        let Some(sender) = self.senders.iter_mut().find(fits) else { return };
        if next == WHOLE {
            sender.end_snapshot(table);
            sender.stage = Stage::Delivered;
            sender.progress_us = now.monotonic_us;
        } else if next < sender.acknowledged {
            // It has forgotten what it had: it was started again.
            self.abandon(|sender| sender.to == from && sender.transfer == transfer, table, effects);
        } else if next > sender.acknowledged && next <= sender.next {
            sender.acknowledged = next;
            sender.progress_us = now.monotonic_us;
            if let Stage::Sending(sending) = &mut sender.stage {
                sending.repeated_us = now.monotonic_us;
                while sending.unacknowledged.pop_front_if(|(index, _)| *index < next).is_some() {}
            }
        }
    }

    /// The log goes on with a replica: the copy that it got, if it did, has served.
    pub(super) fn was_of_use(&mut self, to: NodeId) {
        self.senders.retain(|sender| sender.to != to || !sender.is_delivered());
    }

    /// Gives up copies whose receivers do not get on.
    pub(super) fn abandon_stuck(
        &mut self,
        now: Now,
        settings: &Settings,
        table: &mut Table,
        effects: &mut Effects,
    ) {
        let patience_ms = settings.timing.patience_ms();
        self.abandon(|sender| now.ms_since(sender.progress_us) > patience_ms, table, effects);
    }

    /// Gives up all: they show a table that is thrown away.
    pub(super) fn abandon_all(&mut self, table: &mut Table, effects: &mut Effects) {
        self.abandon(|_| true, table, effects);
    }

    fn abandon(&mut self, which: impl Fn(&Sender) -> bool, table: &mut Table, effects: &mut Effects) {
        self.senders.retain(|sender| {
            if !which(sender) {
                return true;
            }
            sender.end_snapshot(table);
            if !sender.is_delivered() {
                let why = "its receiver does not get on, or something newer has come";
                effects.trace.push(Trace::ResyncAbandoned { follower: sender.to, why });
            }
            false
        });
    }

    /// Nothing from this index on is cut off: somebody needs it who just gets a copy.
    pub(super) fn kept_from(&self) -> usize {
        self.senders.iter().map(|sender| sender.moment.index as usize).min().unwrap_or(usize::MAX)
    }

    // Values on the disk.

    /// The values that chunks wait for, unless they were asked for already.
    pub(super) fn wanted_values(&mut self) -> Vec<Reference> {
        let mut wanted = Vec::new();
        for loading in self.senders.iter_mut().filter_map(Sender::loading_mut) {
            loading.take_wanted(&mut wanted);
        }
        wanted
    }

    /// A value that chunks wait for is there, or lost: then their copies are given up.
    pub(super) fn take_value(
        &mut self,
        now: Now,
        reference: Reference,
        value: Option<&[u8]>,
        table: &mut Table,
        effects: &mut Effects,
    ) {
        let Some(value) = value else {
            let waits = |sender: &Sender| match &sender.stage {
                Stage::Sending(Sending { chunks: Chunks::Left(_, Some(loading)), .. }) => {
                    loading.lacks(&reference)
                }
                Stage::Sending(_) | Stage::Delivered => false,
            };
            return self.abandon(waits, table, effects);
        };
        for loading in self.senders.iter_mut().filter_map(Sender::loading_mut) {
            loading.take(now.monotonic_us, reference, value);
        }
    }

    /// A copy shows what is decided, and the log is kept from its moment on until its receiver goes on from there.
    /// O(copies).
    pub(super) fn check(&self, applied: usize, log: &Log, settings: &Settings) {
        for sender in &self.senders {
            let index = sender.moment.index as usize;
            assert!(index <= applied, "a copy shows what is not decided");
            assert!(log.base() <= index, "{} entries are cut off, and a copy shows {index}", log.base());
            assert!(sender.acknowledged <= sender.next, "a chunk is received that was not sent");
            let Stage::Sending(sending) = &sender.stage else { continue };
            assert!(
                sending.unacknowledged.len() <= settings.timing.chunk_window as usize,
                "too many chunks are under way"
            );
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
        senders: Senders,
        counters: Counters,
    }

    impl World {
        /// Copies of a table with 40 keys, in chunks of about one each, three of which may be under way.
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
            let (senders, counters) = (Senders::default(), Counters::default());
            World { peers, members, applied, senders, counters }
        }

        fn begin(&mut self, ms: u64) {
            let state = (&self.members, &mut self.applied);
            let out = &mut self.peers.out();
            self.senders.begin(at_ms(ms), (2, "it lacks it"), state, &mut self.counters, out);
        }

        /// What is sent.
        fn advance(&mut self, ms: u64) -> Vec<String> {
            let out = &mut self.peers.out();
            self.senders.advance(at_ms(ms), &self.members, &mut self.applied, out);
            let log = Log::default();
            self.senders.check(0, &log, &self.peers.settings);
            let first = |(_, body): (NodeId, String)| body.split(' ').next().unwrap_or_default().to_string();
            self.peers.take_said().into_iter().map(first).collect()
        }

        fn progress(&mut self, ms: u64, next: u32) {
            let (table, effects) = (self.applied.table_mut(), &mut self.peers.effects);
            let transfer = self.senders.transfers;
            self.senders.progress(at_ms(ms), 2, (transfer, next), table, effects);
        }
    }

    #[test]
    fn so_many_chunks_are_under_way_and_what_is_silent_is_said_again() {
        let mut world = World::new();
        world.begin(0);
        assert_eq!(world.advance(1), ["CopyBegin", "CopyChunk", "CopyChunk", "CopyChunk"]);
        assert!(world.advance(2).is_empty());
        world.progress(3, 2);
        assert_eq!(world.advance(3), ["CopyChunk", "CopyChunk"]);
        assert_eq!(world.advance(3 + 240), ["CopyChunk", "CopyChunk", "CopyChunk"]);
        world.begin(300);
        assert_eq!(world.counters.copies_sent, 1, "one is under way");
    }

    #[test]
    fn the_log_is_kept_for_a_copy_until_it_has_served() {
        let mut world = World::new();
        assert_eq!(world.senders.kept_from(), usize::MAX);
        world.begin(0);
        let (mut next, mut said) = (0, Vec::new());
        while !said.iter().any(|body| body == "CopyEnd") {
            said = world.advance(1);
            next += said.iter().filter(|body| *body == "CopyChunk").count() as u32;
            world.progress(1, next);
        }
        assert!(world.senders.are_sending() && next > 3);
        world.progress(2, WHOLE);
        assert!(!world.senders.are_sending() && world.senders.kept_from() == 0);
        assert!(world.advance(9000).is_empty());
        world.senders.was_of_use(3);
        assert!(!world.senders.is_empty());
        world.senders.was_of_use(2);
        assert!(world.senders.is_empty());
    }

    #[test]
    fn a_copy_whose_receiver_has_forgotten_or_is_stuck_is_given_up() {
        let mut world = World::new();
        let mut abandoned = |forgets: bool| {
            world.begin(0);
            world.advance(1);
            world.progress(2, 2);
            if forgets {
                world.progress(3, 1);
            } else {
                let (settings, table) = (world.peers.settings, world.applied.table_mut());
                world.senders.abandon_stuck(at_ms(2402), &settings, table, &mut world.peers.effects);
                assert!(!world.senders.is_empty());
                world.senders.abandon_stuck(at_ms(2403), &settings, table, &mut world.peers.effects);
            }
            assert!(world.senders.is_empty());
            std::mem::take(&mut world.peers.effects.trace).len()
        };
        assert_eq!((abandoned(true), abandoned(false)), (1, 1));
    }

    #[test]
    fn what_is_cut_off_or_too_much_is_copied() {
        let World { mut peers, senders, .. } = World::new();
        peers.settings.timing.sync_bytes_max = 100;
        let mut log = Log::default();
        let must_copy = |log: &Log, from| senders.must_copy(2, from, 3, log, &peers.settings);
        log.append(vec![entry(1, 1, &["a"; 30])]);
        log.append(vec![entry(1, 2, &["b"])]);
        assert!(must_copy(&log, 0) && !must_copy(&log, 1), "too much, and little");
        let moment = Moment { index: 9, ..Moment::default() };
        log.installed(&moment, true);
        assert!(must_copy(&log, 8) && !must_copy(&log, 9));
    }
}

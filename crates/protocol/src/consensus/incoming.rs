//! Incoming snapshots of the table: from another replica or, during replay, from records.

use super::applied::new_table;
use super::message::Body;
use super::options::Settings;
use super::outbox::Outbox;
use super::record::{Change, Moment};
use super::transfers::WHOLE;
use crate::contract::{NodeId, Now};
use crate::transfer::{self, Arrival};
use kv::Table;
use kv::codec::Malformed;

/// The snapshot that is arriving, and the last one that did.
#[derive(Debug)]
pub(super) struct Incoming {
    snapshot: Snapshot,
    /// The sender of the last one, and its transfer.
    installed: (NodeId, u64),
}

/// A snapshot that is not installed: a table of its own, filled beside the one in use.
#[derive(Debug)]
enum Snapshot {
    None,
    /// It comes from records.
    Replayed {
        moment: Moment,
        table: Table,
    },
    /// It comes from another replica.
    Received(Received),
}

/// A snapshot that another replica sends.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) from: NodeId,
    transfer: u64,
    pub(super) moment: Moment,
    pub(super) table: Table,
    chunks: transfer::Incoming,
}

impl Incoming {
    pub(super) fn new() -> Incoming {
        Incoming { snapshot: Snapshot::None, installed: (0, 0) }
    }

    /// True when no snapshot is arriving.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.snapshot, Snapshot::None)
    }

    /// The table that is being filled.
    pub(super) fn table(&self) -> Option<&Table> {
        match &self.snapshot {
            Snapshot::None => None,
            Snapshot::Replayed { table, .. } | Snapshot::Received(Received { table, .. }) => Some(table),
        }
    }

    /// The same, to take what has happened to values on the disk.
    pub(super) fn table_mut(&mut self) -> Option<&mut Table> {
        match &mut self.snapshot {
            Snapshot::None => None,
            Snapshot::Replayed { table, .. } | Snapshot::Received(Received { table, .. }) => Some(table),
        }
    }

    /// Discards what has arrived; the table in use takes over the values on the disk that it held.
    pub(super) fn give_up(&mut self, table: &mut Table) {
        if let Some(given_up) = self.table_mut() {
            table.take_spilled_of(given_up);
            self.snapshot = Snapshot::None;
        }
    }

    // From records.

    pub(super) fn replay_begin(&mut self, moment: Moment, settings: &Settings) {
        let table = new_table(settings.seed, settings.options);
        self.snapshot = Snapshot::Replayed { moment, table };
    }

    pub(super) fn replay_chunk(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        match &mut self.snapshot {
            Snapshot::Replayed { table, .. } => table.install(chunk).map(drop),
            Snapshot::None | Snapshot::Received(_) => Ok(()),
        }
    }

    pub(super) fn replay_end(&mut self) -> Result<(Moment, Table), Malformed> {
        match std::mem::replace(&mut self.snapshot, Snapshot::None) {
            Snapshot::Replayed { moment, table } => Ok((moment, table)),
            Snapshot::None | Snapshot::Received(_) => Err(Malformed("a snapshot ends that never began")),
        }
    }

    // From another replica.

    fn received(&self) -> Option<&Received> {
        match &self.snapshot {
            Snapshot::Received(received) => Some(received),
            Snapshot::None | Snapshot::Replayed { .. } => None,
        }
    }

    /// Whether one is arriving from another replica.
    pub(super) fn is_received(&self) -> bool {
        self.received().is_some()
    }

    /// Whether its sender has made no progress for long.
    pub(super) fn is_stuck(&self, now: Now, settings: &Settings) -> bool {
        let patience_ms = settings.timing.patience_ms();
        self.received().is_some_and(|received| received.chunks.stuck_ms(now) > patience_ms)
    }

    /// A snapshot begins, unless it has begun already, or one that is at least as new is arriving from another live sender.
    pub(super) fn begin(
        &mut self,
        now: Now,
        (from, transfer): (NodeId, u64),
        moment: Moment,
        table: &mut Table,
        out: &mut Outbox<'_>,
    ) {
        let settings = *out.settings;
        let is_busy = self.received().is_some_and(|received| {
            let same = received.from == from && received.transfer == transfer;
            let link = out.links.get(received.from);
            let is_live = link.is_some_and(|link| link.is_live(now, settings.timing.silence_ms));
            same || is_live && received.from != from && received.moment.index >= moment.index
        });
        if is_busy {
            return;
        }
        out.record(vec![Change::SnapshotBegin(moment.clone())]);
        self.give_up(table);
        let (table, chunks) = (new_table(settings.seed, settings.options), transfer::Incoming::new(now));
        self.snapshot = Snapshot::Received(Received { from, transfer, moment, table, chunks });
    }

    /// A part of a snapshot arrives.
    pub(super) fn chunk(
        &mut self,
        now: Now,
        (from, transfer): (NodeId, u64),
        (index, chunk): (u32, &[u8]),
        table: &mut Table,
        out: &mut Outbox<'_>,
    ) {
        let received = match &mut self.snapshot {
            Snapshot::Received(received) if (received.from, received.transfer) == (from, transfer) => {
                received
            }
            _ => {
                let next = if self.installed == (from, transfer) { WHOLE } else { 0 };
                return out.send(from, Body::SnapshotProgress { transfer, next });
            }
        };
        match received.chunks.take(now, (index, chunk), &mut received.table) {
            Arrival::Next => out.record(vec![Change::SnapshotChunk(chunk.to_vec())]),
            Arrival::Again | Arrival::Early => {}
            Arrival::Unreadable => {
                self.give_up(table);
                return out.reject(from, "a snapshot that cannot be read");
            }
        }
        out.send(from, Body::SnapshotProgress { transfer, next: received.chunks.next() });
    }

    /// A snapshot with this many parts ends. Returns it if all of them have arrived.
    pub(super) fn take_whole(&mut self, from: NodeId, transfer: u64, chunks: u32) -> Option<Received> {
        match std::mem::replace(&mut self.snapshot, Snapshot::None) {
            Snapshot::Received(received)
                if (received.from, received.transfer, received.chunks.next()) == (from, transfer, chunks) =>
            {
                self.installed = (from, transfer);
                Some(received)
            }
            snapshot => {
                self.snapshot = snapshot;
                None
            }
        }
    }

    /// Answers which part of a transfer is missing.
    pub(super) fn answer(&self, from: NodeId, transfer: u64, out: &mut Outbox<'_>) {
        let next = match self.received() {
            _ if self.installed == (from, transfer) => WHOLE,
            Some(received) if (received.from, received.transfer) == (from, transfer) => {
                received.chunks.next()
            }
            _ => 0,
        };
        out.send(from, Body::SnapshotProgress { transfer, next });
    }
}

#[cfg(test)]
mod tests {
    use super::super::applied::Applied;
    use super::super::group::Group;
    use super::super::kit::{Peers, at_ms, settings};
    use super::*;

    const FIRST: (NodeId, u64) = (2, 7);
    const OTHER: (NodeId, u64) = (3, 7);

    struct World {
        peers: Peers,
        table: Table,
        incoming: Incoming,
    }

    impl World {
        fn new() -> World {
            let table = new_table(1, settings(1).options);
            World { peers: Peers::new(), table, incoming: Incoming::new() }
        }

        fn begin(&mut self, ms: u64, transfer: (NodeId, u64), index: u64) -> (NodeId, u64) {
            let moment = Moment { index, ..Moment::default() };
            self.incoming.begin(at_ms(ms), transfer, moment, &mut self.table, &mut self.peers.out());
            self.incoming.received().map(|it| (it.from, it.transfer)).unwrap()
        }

        /// The answer to a chunk.
        fn chunk(&mut self, transfer: (NodeId, u64), index: u32, chunk: &[u8]) -> String {
            let (table, out) = (&mut self.table, &mut self.peers.out());
            self.incoming.chunk(at_ms(1), transfer, (index, chunk), table, out);
            self.peers.take_sent().into_iter().map(|(_, body)| body).collect()
        }

        fn progress(next: u32) -> String {
            format!("{:?}", Body::SnapshotProgress { transfer: 7, next })
        }
    }

    fn chunk_of_an_empty_table() -> Vec<u8> {
        let (mut applied, mut chunk) = (Applied::new(1, settings(1).options), Vec::new());
        let snapshot = applied.begin_snapshot(settings(1).options.planted);
        assert!(!applied.table_mut().snapshot_chunk(snapshot, 100, &mut chunk));
        assert_eq!(applied.moment(&Group::default()), Moment::default());
        chunk
    }

    #[test]
    fn parts_are_accepted_in_order_and_the_whole_once() {
        let (mut world, chunk) = (World::new(), chunk_of_an_empty_table());
        assert_eq!(world.chunk(FIRST, 0, &chunk), World::progress(0), "it never began");
        world.begin(1, FIRST, 5);
        assert_eq!(world.chunk(FIRST, 1, &chunk), World::progress(0));
        assert_eq!(world.chunk(FIRST, 0, &chunk), World::progress(1));
        assert_eq!(world.chunk(FIRST, 0, &chunk), World::progress(1));
        assert!(world.incoming.take_whole(2, 7, 2).is_none() && world.incoming.is_received());
        assert!(world.incoming.take_whole(2, 7, 1).is_some() && world.incoming.is_empty());
        assert!(world.incoming.take_whole(2, 7, 1).is_none());
        assert_eq!(world.chunk(FIRST, 1, &chunk), World::progress(WHOLE), "it needs no more");
    }

    #[test]
    fn a_snapshot_is_replaced_by_a_newer_one_or_when_its_sender_is_silent() {
        let mut world = World::new();
        assert_eq!(world.begin(1, FIRST, 5), FIRST);
        assert_eq!(world.begin(2, OTHER, 5), FIRST);
        assert_eq!(world.begin(3, OTHER, 6), OTHER);
        assert_eq!(world.begin(4, FIRST, 6), OTHER);
        assert_eq!(world.begin(500, FIRST, 6), FIRST, "node 3 has been silent for long");
        assert!(!world.incoming.is_stuck(at_ms(2900), &world.peers.settings));
        assert!(world.incoming.is_stuck(at_ms(2901), &world.peers.settings));
    }

    #[test]
    fn an_unreadable_snapshot_is_given_up() {
        let mut world = World::new();
        world.begin(1, FIRST, 5);
        assert_eq!(world.chunk(FIRST, 0, b"no chunk"), "");
        assert!(world.incoming.is_empty());
    }
}

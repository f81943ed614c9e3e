//! The replica contract: one way in, one way out.
//!
//! [`Replica::step`] takes one [`Input`] and appends its consequences to [`Effects`]. It never blocks, fails, sleeps,
//! reads a clock, opens or spawns anything. The same inputs give the same effects, byte for byte. Misbehaviour of a peer,
//! a client or a clock is an operating error and becomes an outcome or a trace event; a broken invariant is a bug and
//! panics.

use crate::coded::Fragments;
use crate::recovery_line::RecoveryLine;
use crate::registers::{Loss, Replacement};
use crate::status::Status;
use crate::vouch::Vouch;
use kv::codec::Malformed;
use kv::table::{Changes, Eviction, Follows, Spilled};
use kv::{RecordName, Reference, Table, Version, Watch};

pub use crate::effects::{
    CLOCK_BOUND_MS, Configuration, ControlRequest, Effects, Encoded, HandedOn, Input, NOBODY, NodeId, Notice,
    Now, Outcome, Outgoing, Progress, Recipient, Request, Result, Submission, Ticket, Trace, not_before,
};
pub(crate) use crate::effects::{RETIRED, TOO_MUCH_AT_ONCE};

/// One group's state machine on one node: everything that a node may request from a replica, whatever its protocol.
///
/// Besides [`Replica::step`] the trait has queries of the replica's state, and calls by which the node informs the
/// replica outside of steps. A feature that only some protocols have is a method with a default for the others
/// ([`Replica::fragments`] and [`Replica::spilled_values`] are whole capabilities).
///
/// A replica whose keyspace survives crashes emits records ([`Effects::records`]). For each replica a node keeps the
/// newest complete checkpoint and the records made after it began. When the node starts, it gives the replica all of
/// these, in order ([`Replica::replay`]), then its configuration. To make a new checkpoint it calls
/// [`Replica::begin_checkpoint`] right after a flush and then [`Replica::checkpoint_record`], between other work, until
/// nothing is left to write. Once the whole checkpoint is durable, the earlier records and the earlier checkpoint are no
/// longer needed.
pub trait Replica {
    /// The messages between this protocol's replicas.
    type Message<'a>
    where
        Self: Sized;

    /// Parses and checks a peer's message. O(its bytes).
    ///
    /// # Errors
    /// [`Malformed`] when it is not a message of this protocol.
    fn decode(message: &[u8]) -> std::result::Result<Self::Message<'_>, Malformed>
    where
        Self: Sized;

    /// Takes one input and appends its consequences to `effects`.
    fn step(&mut self, now: Now, input: Input<'_, Self::Message<'_>>, effects: &mut Effects)
    where
        Self: Sized;

    // Time.

    /// Returns the moment on the monotonic clock at which the replica needs its next [`Input::Tick`].
    fn wakeup_us(&self, now: Now) -> u64;

    /// Reports whether a peer's node can be reached, which the node determines itself. A peer that was never reported
    /// counts as unreachable. Call this on every change, and whenever a link came up.
    fn set_reached(&mut self, now: Now, peer: NodeId, is_reached: bool);

    /// A peer's node vouches for itself: it is alive and busy. Until that is over, the peer does not count as silent. Call
    /// this for each vouch, while the link to the peer is up.
    fn vouched(&mut self, peer: NodeId, vouch: Vouch);

    /// True while nothing happens in its group: it needs neither tick nor flush until it gets other input.
    fn is_resting(&self) -> bool;

    /// Checks the conditions on which the protocol's proof rests, as far as a single replica can. Tests and simulations
    /// call it between two steps; it takes time proportional to what the replica holds. A replica makes the checks that
    /// cost almost nothing itself in each step.
    ///
    /// # Panics
    /// When an invariant is broken.
    fn check_invariants(&self, now: Now);

    /// The same as [`Input::Lease`], for a quiescent replica, on which no request waits.
    fn extend_lease(&mut self, _until_us: u64) {}

    // State.

    /// The keys and values applied here. What the group promises about them depends on the protocol.
    fn table(&self) -> &Table;

    /// Returns an estimate of the bytes that the replica holds.
    fn memory_bytes(&self) -> usize {
        self.table().memory_bytes()
    }

    /// Returns the number of commands that a leader has accepted and not applied, and their bytes.
    fn unapplied(&self) -> (usize, usize) {
        (0, 0)
    }

    /// Returns the replica's status, in terms that all protocols share. O(members), with registers O(members and locks).
    fn summary(&self, now: Now) -> Status;

    /// Returns the last record that this replica holds, and the last one that it has applied. `None` where records have
    /// no order.
    fn held_and_applied(&self) -> Option<(Version, Version)> {
        None
    }

    /// See [`Table::follow_changes`]. Registers have no changes that all replicas agree on, and note none.
    fn follow_changes(&mut self, _follows: Follows) {}

    /// See [`Table::keep_history`]. Registers keep none.
    fn keep_history(&mut self, _bytes_max: usize) {}

    /// The table, for a copy of it in Redis's format: [`Table::begin_snapshot`], [`Table::dump_chunk`] and
    /// [`Table::end_snapshot`]; and for reads that have begun: [`Table::go_on_reading`]. Registers have no moment that a
    /// copy could show.
    fn dumped(&mut self) -> Option<&mut Table> {
        None
    }

    /// See [`Table::take_changes`].
    fn take_changes(&mut self) -> Option<Changes> {
        None
    }

    // Leadership. Registers have no leader.

    /// True when this replica leads its group, as far as it knows.
    fn is_leader(&self) -> bool {
        false
    }

    /// Returns the leader that the members elected, as far as the election is settled and this replica knows.
    fn led_by(&self, _now: Now) -> Option<NodeId> {
        None
    }

    /// Returns the number of this replica's leadership, which no other leadership of this replica has. `None` unless it
    /// has a leadership that requests can name.
    fn leads_in(&self) -> Option<u64> {
        None
    }

    /// Returns the leader that this replica follows, the number of that leadership, and the position of this replica's
    /// log in it. If that leader orders a request sent to it from now on, then at that position or after it.
    fn follows_in(&self) -> Option<(NodeId, u64, u64)> {
        None
    }

    /// Whether no request can take effect any more that was sent to `leader` in the leadership in which this replica
    /// followed it, when this replica's log was at `position`. `None` while that is unknown.
    fn is_void(&self, _leader: NodeId, _position: u64) -> Option<bool> {
        Some(false)
    }

    /// At a leader: begins to hand the leadership over to another member, to `_to` if it is given. Requests wait until the next
    /// leader takes them, and nothing is lost. Call it before [`Input::Flush`]. Returns whether a handover is under way. It may still fail: then this
    /// replica goes on leading, or an election follows.
    fn hand_over(&mut self, _now: Now, _to: Option<NodeId>) -> bool {
        false
    }

    /// A peer's node is about to stop: no write is to wait for it longer than necessary.
    fn peer_leaves(&mut self, _now: Now, _peer: NodeId) {}

    /// At a leader elected by its members: the members that take part in membership number `_membership` and hold everything
    /// committed, in ascending order.
    fn voters_of(&self, _now: Now, _membership: u64) -> Option<Vec<NodeId>> {
        None
    }

    /// At an appointed leader: whether it leads in this epoch, and holds everything that was acknowledged before that
    /// epoch.
    fn has_taken_over(&self, _epoch: u64) -> bool {
        false
    }

    /// Returns why it does not lead yet although it was appointed, for people: it is still collecting earlier writes.
    fn recovers(&self, _now: Now) -> Option<String> {
        None
    }

    /// Whether this message must not wait behind longer ones, and may overtake them.
    fn is_urgent(&self, _message: &[u8]) -> bool {
        false
    }

    // Information from its node.

    /// This replica is created together with its group, and no replica of the group was ever started before. So, although
    /// empty, it holds everything that it ever acknowledged. Call this before the first configuration.
    fn begin_with_group(&mut self) {}

    /// The replica's node was replaced, so what it recorded before does not count. Call this before the first
    /// configuration. Only registers keep their place in the group then; replicas of other protocols leave it and join
    /// again.
    fn replaced(&mut self, _replacement: &Replacement) {}

    /// Gives it the line with which an operator recovers its keyspace, for its explanations.
    fn set_recovery_line(&mut self, _line: RecoveryLine) {}

    /// Reports whether the log has room for what other members send. Registers ignore values for which it has no room;
    /// what a leader orders cannot be ignored.
    fn set_room(&mut self, _has_room: bool) {}

    /// Bounds the history in memory that is kept for other replicas, in bytes, beside what the keyspace sets: the node is
    /// short of memory, or is again not.
    fn set_history_max(&mut self, _bytes: usize) {}

    /// From now on requests come checked by this version of the cluster map. If it `moves` keys to other groups, those that came
    /// before and wait are handed on to this node itself when they can be taken up, so that they are checked again. A leader takes up
    /// nothing while the group's floor ([`kv::table::Floor`]) is above this version.
    fn set_map_version(&mut self, _version: u64, _moves: bool) {}

    /// Registers: the version of the newest map that has taken keys from the group, by the map of which [`Replica::set_map_version`]
    /// has told. Operations whose keys may have moved before they began are ended, and what waits is handed on to this node itself.
    fn set_floor(&mut self, _now: Now, _floor: u64, _effects: &mut Effects) {}

    /// Whether this replica leads and may take up nothing, since its map is older than the group's floor.
    fn leads_by_old_map(&self) -> bool {
        false
    }

    /// Returns what its group has lost, if the group is stopped because of that. Registers only.
    fn loss(&self, _now: Now) -> Option<Loss> {
        None
    }

    /// See [`Table::set_watch`]. Call this before anything else. Registers hold values and execute nothing.
    fn set_watch(&mut self, _group: u16, _watch: &'static dyn Watch) {}

    /// See [`Table::set_eviction`]. Registers are not evicted.
    fn set_eviction(&mut self, _eviction: Eviction) {}

    /// See [`Table::keep_expired`]. Registers expire by themselves.
    fn keep_expired(&mut self, _is_kept: bool) {}

    /// See [`Table::skip`]. Call this on all replicas before any of them reaches one of these records.
    fn skip(&mut self, _records: &[RecordName]) {}

    /// Applies the records before this one and stops there, until this is called again.
    fn stand_before(&mut self, _record: Option<Version>) {}

    // Values that are not in the table.

    /// The replica's fragments, if its protocol can keep any.
    fn fragments(&self) -> Option<&dyn Fragments> {
        None
    }

    /// As [`Replica::fragments`], to change them.
    fn fragments_mut(&mut self) -> Option<&mut dyn Fragments> {
        None
    }

    /// The replica's part in keeping values on the disk, if its protocol can have any there.
    fn spilled_values(&self) -> Option<&dyn SpilledValues> {
        None
    }

    /// As [`Replica::spilled_values`], to change it.
    fn spilled_values_mut(&mut self) -> Option<&mut dyn SpilledValues> {
        None
    }

    // Records.

    /// Takes one record that an earlier incarnation made, or that a checkpoint holds. Only before the replica is configured.
    ///
    /// # Errors
    /// [`Malformed`] when it is not a record: the node must not start with it.
    fn replay(&mut self, _now: Now, _record: &[u8]) -> std::result::Result<(), Malformed> {
        Err(Malformed("a replica that keeps no records is given one"))
    }

    /// Begins a checkpoint, right after a flush. It will replace all records made until now. A checkpoint under way is
    /// abandoned. Returns false when none is possible at this moment.
    fn begin_checkpoint(&mut self) -> bool {
        false
    }

    /// Appends the next record of the checkpoint, a chunk of about `_bytes_max` bytes.
    fn checkpoint_record(&mut self, _bytes_max: usize, _record: &mut Vec<u8>) -> Progress {
        Progress::Abandoned
    }

    /// Abandons the checkpoint under way, if any.
    fn abandon_checkpoint(&mut self) {}
}

/// A replica's part in keeping values on the disk of its node (`storage = "disk"`).
pub trait SpilledValues {
    /// Returns the changes to values on the disk, here and in a snapshot being received, since the last call.
    fn take_spilled(&mut self) -> Option<Spilled>;

    /// Whether this replica, or a snapshot that it receives, refers to a value on the disk.
    fn refers_to(&self, reference: &Reference) -> bool;

    /// Every value on the disk that this replica, or a snapshot that it receives, refers to. O(values).
    fn spilled(&self) -> Vec<Reference>;

    /// Whether it sends snapshots: they may refer to values that the table has released.
    fn sends_snapshots(&self) -> bool;

    /// Returns the values that snapshots wait for and that were not returned before. Pass the result for each to
    /// [`SpilledValues::take_value`].
    fn wanted_values(&mut self) -> Vec<Reference>;

    /// Takes a value that was wanted; `None` when it cannot be read.
    fn take_value(&mut self, now: Now, reference: Reference, value: Option<&[u8]>, effects: &mut Effects);
}

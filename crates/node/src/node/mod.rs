//! One node, composed of its components. No other module of this crate knows all of them.
//!
//! This file has the turn. What the caller of a node gives it and asks of it is in `clients`, `commands` (their
//! requests), `links` (frames of other nodes) and `process` (memory, logs, health). `submitting` hands requests to
//! groups, `settling` carries out the effects of replicas and takes outcomes back, and `calls` carries out the calls
//! of components. `periodic` lists what is done from time to time. Simulators and tests look into a node by `inspection`. No other file has methods of [`Node`], and
//! its fields are private to this folder: a component gets what it may touch as parameters. `opening` reads a node's
//! log; `facts`, `report`, `figures` and `describe` report the node's state. `recovering` reads a node's log without
//! starting it, for a recovery, and writes the recovery's decisions.

mod calls;
mod clients;
mod commands;
mod describe;
mod facts;
mod gates;
mod inspection;
mod key_sizes;
mod links;
mod opening;
mod periodic;
mod process;
mod recovering;
mod report;
mod settling;
mod submitting;
mod unsettled;

pub use clients::{Asker, Credentials, NotKnown};
pub use describe::{GroupDescription, KeyspaceDescription};
pub use inspection::BoundedMemory;
pub use recovering::Folder;

use self::periodic::Phase;
use self::unsettled::Unsettled;
use crate::channels::Channels;
use crate::coding::Coding;
use crate::connections::guard::AuthGuard;
use crate::connections::http::HttpGuard;
use crate::context::Context;
use crate::context::room;
use crate::diagnostics::spans::Span;
use crate::disk::journal::{News, Released};
use crate::following::Following;
use crate::forwarding::Forwarding;
use crate::maintenance::eviction::{Evictions, Need};
use crate::maintenance::quarantine::Quarantine;
use crate::membership::Cluster;
use crate::membership::clock::Clock;
use crate::membership::handovers::Handovers;
use crate::operators::asking::Asking;
use crate::operators::history::History;
use crate::operators::recent::Recent;
use crate::parameters::Parameters;
use crate::requests::HeldRequests;
use crate::requests::completing::Completing;
use crate::requests::gather::Gathers;
use crate::requests::long::LongCommands;
use crate::requests::long_reads::LongReads;
use crate::requests::scripting::Scripting;
use crate::session::gates::Gate;
use crate::two_phase::TwoPhase;
use crate::values::Values;
use crate::waits::Waits;
use cluster::configuration::Configuration;
use info::{Rate, Usage};
use protocol::{Input, Now};
use std::cell::Cell;
use storage::{Disk, DiskError, Work};
use storage::{ValueResult, ValueWork};
use wire::lineage::Lineage;

/// One node, without its sockets: client requests and peers' frames go in, replies and frames come out.
pub struct Node {
    cx: Context,
    quarantine: Quarantine,
    usage: Usage,
    rate: Rate,
    clock: Clock,
    started: Now,
    cluster: Cluster,
    forwarding: Forwarding,
    handovers: Handovers,
    /// When periodic work was last done.
    checked_us: u64,
    /// Nothing is due before, as of when the caller asked last; 0: not known.
    idle_until_us: Cell<u64>,
    /// Whether time is judged at the end of this turn's input, and not before it.
    judges_late: bool,
    /// When this turn began: [`Context::now`] advances within a turn, where a client has used much of it.
    begun_us: u64,
    gathers: Gathers,
    two_phase: TwoPhase,
    asking: Asking,
    recent: Recent,
    history: History,
    waits: Waits,
    /// Slows down the guessing of passwords.
    auth_guard: AuthGuard,
    http_guard: HttpGuard,
    /// Requests that are held before they are taken.
    held: HeldRequests,
    /// The channel subscriptions of this node's clients.
    channels: Channels,
    /// The connections and replicas that follow changes.
    following: Following,
    coding: Coding,
    long: LongCommands,
    long_reads: LongReads,
    values: Values,
    completing: Completing,
    evictions: Evictions,
    unsettled: Unsettled,
    /// As [`protocol::Effects::history_bytes`], of this turn.
    history_bytes: usize,
    /// Bytes of key lists while a command is carried out.
    scratch: Vec<u8>,
    /// Bytes of a write with a bound while it is submitted.
    bounded_bytes: Vec<u8>,
    /// The scripts that clients can name by their digests.
    scripts: Scripting,
}

impl Node {
    /// Calls `each` for every group.
    fn for_each_group(&mut self, mut each: impl FnMut(&mut Node, u16)) {
        let mut place = 0;
        while let Some(id) = self.cx.groups.id_at(place) {
            place += 1;
            each(self, id);
        }
    }

    /// Calls `each` for every group that is not quiescent.
    fn for_each_active(&mut self, mut each: impl FnMut(&mut Node, u16)) {
        let mut place = 0;
        while let Some(id) = self.cx.groups.active_at(place) {
            place += 1;
            each(self, id);
        }
    }

    /// Has this node's replica of a group send what it has gathered in this turn.
    #[inline]
    fn flush_replica(&mut self, group: u16) {
        if let Some(replica) = &mut self.cx.groups[group].replica {
            let effects = self.unsettled.effects();
            effects.history_bytes = self.history_bytes;
            let stepped = replica.step(self.cx.now, Input::Flush, effects);
            debug_assert_eq!(stepped, Ok(()), "only a message can be malformed");
            self.history_bytes = std::mem::take(&mut effects.history_bytes);
            self.settle_step(group);
        }
    }

    /// Closes the gate of commands if a key is locked here.
    #[inline]
    pub(super) fn note_locks(&mut self, group: u16) {
        let replica = self.cx.groups[group].replica.as_ref();
        if replica.is_some_and(|replica| replica.table().two_phase().locks_any()) {
            self.cx.gates.set(Gate::Locked, true);
        }
    }

    /// Gives an input that is not a message to this node's replica of a group, and carries out the effects.
    #[inline]
    fn step(&mut self, group: u16, input: Input<'_, &[u8]>) {
        if let Some(replica) = &mut self.cx.groups[group].replica {
            let stepped = replica.step(self.cx.now, input, self.unsettled.effects());
            debug_assert_eq!(stepped, Ok(()), "only a message can be malformed");
            self.settle_step(group);
        }
    }

    /// Carries out the effects of a step that comes each turn and seldom leaves anything.
    #[inline]
    fn settle_step(&mut self, group: u16) {
        match self.unsettled.effects().is_empty() && gates::settles_nothing(&self.cx) {
            true => self.cx.groups.touch(group),
            false => self.settle(group),
        }
    }

    /// The configuration that the node was started with, except that the nodes and keyspaces are those of the newest
    /// map, with keyspaces in the order of their prefixes.
    pub fn configuration(&self) -> &Configuration {
        &self.cx.configuration
    }

    /// The version of the cluster map that [`Node::configuration`] follows; it grows with each map. 0: no map was
    /// committed yet.
    pub fn map_version(&self) -> u64 {
        self.cx.map.version
    }

    /// The lineage of the cluster that this node belongs to; `None` while it has no map.
    pub fn lineage(&self) -> Option<Lineage> {
        (self.cx.map.version > 0).then_some(self.cx.map.lineage)
    }

    /// The parameters that `CONFIG GET` returns.
    pub fn parameters(&self) -> &Parameters {
        &self.cx.parameters
    }

    // Turns.

    /// Begins a turn: everything until [`Node::end_turn`] happens at `now`, read from the machine's clocks.
    pub fn begin_turn(&mut self, now: Now) {
        assert!(self.cx.has_no_calls(), "a turn ends with nothing left to carry out");
        if self.cx.clients.measuring.is_due() {
            self.cx.measure(self.cx.now.monotonic_us);
        }
        self.cx.clients.measuring.begin_turn();
        self.cx.work.begin_turn();
        let now = self.clock.read(now);
        self.cx.ahead_us = self.clock.ahead_us();
        self.waits.note_pause(now.monotonic_us, self.begun_us);
        self.judges_late = self.is_late(now);
        self.begun_us = now.monotonic_us;
        self.history_bytes = 0;
        self.cx.now = now;
        self.cx.work.begin_requests();
        // Held requests wait for the map, too, which has no time.
        match self.idle_until_us.take() <= now.monotonic_us || !self.held.is_empty() {
            true => {
                if !self.judges_late {
                    self.run(Phase::Judge);
                }
                self.run(Phase::Begin);
            }
            false => debug_assert!(
                self.find_wakeup_us() > now.monotonic_us,
                "something is due in a turn that skips it"
            ),
        }
        if self.following.tracking.has_waiting() {
            self.tend_held();
        }
        if !self.judges_late {
            self.check();
        }
        self.carry_out_calls();
    }

    /// Whether something is due, and the last turn began some time ago: it may have been long, or the process was paused. Then
    /// what the others have sent in the meantime waits in its sockets, and must be read before their silence is judged.
    #[inline]
    fn is_late(&self, now: Now) -> bool {
        const LATE_US: u64 = 10_000;
        // How long ago it became due says nothing: the last turn may have ended just then.
        now.monotonic_us >= self.begun_us.saturating_add(LATE_US) && self.next_wakeup_us() <= now.monotonic_us
    }

    /// Advances the monotonic clock within the turn: the following inputs had arrived by `now`.
    #[inline]
    pub fn advance(&mut self, now: Now) {
        self.cx.now = self.clock.advance(now);
        self.cx.note_reading();
    }

    /// Marks the end of this turn's input: replicas make their batches and the messages with them. What is in the
    /// buffers for peers after this call depends on nothing that is still to be written. So it may be sent before
    /// [`Node::end_turn`] writes, and the peers work on it during that write.
    pub fn flush(&mut self) {
        assert!(self.cx.has_no_calls(), "every input has carried out the calls that came of it");
        if std::mem::take(&mut self.judges_late) {
            self.run(Phase::Judge);
            self.check();
            self.carry_out_calls();
        }
        self.run(Phase::Flush);
        self.carry_out_calls();
        self.for_each_active(|node, id| {
            if node.cx.groups[id].keyspace.memory_max > 0 {
                let need = Need::excess(&mut node.cx, id);
                node.make_room(need);
            }
            node.flush_replica(id);
            node.note_locks(id);
        });
        self.cluster.flush(&mut self.cx);
        self.carry_out_calls();
    }

    /// Whether [`Node::end_turn`] will write to the disk at once, which takes some time.
    pub fn is_about_to_write(&self) -> bool {
        self.cx.journal.has_unwritten()
    }

    /// Ends a turn, after [`Node::flush`]: writes its records, and releases what waited for that or was gathered for
    /// each peer.
    pub fn end_turn<D: Disk>(&mut self, disk: &mut D) {
        self.run(Phase::Write);
        self.carry_out_calls();
        // Where a write counts as durable at once, the replica continues immediately, and may record more.
        const ROUNDS_MAX: u32 = 4;
        for _ in 0..ROUNDS_MAX {
            self.cx.journal.write(disk, self.cx.now, &mut self.cx.log);
            self.notify_durable(true);
            if !self.cx.journal.has_unwritten() {
                break;
            }
        }
        if self.cx.gates.has(Gate::Locked) {
            self.two_phase.set_gate(&mut self.cx);
        }
        self.cx.groups.end_turn(self.cx.now);
        if self.cx.room.is_short() != (self.cx.journal.is_short() || self.values.is_full()) {
            room::tick(&mut self.cx, self.values.is_full());
        }
        self.cluster.end_wanted(&mut self.cx);
        self.carry_out_calls();
        self.run(Phase::End);
        self.carry_out_calls();
        self.cx.peers.end_turn();
    }

    /// Notifies replicas of records that have become durable, and sends the messages that waited for them.
    fn notify_durable(&mut self, flushes: bool) {
        self.for_each_active(|node, id| {
            let Some(record) = node.cx.journal.news(&mut node.cx.groups[id].tail) else { return };
            while let Some(Released { to, recipient, bytes }) = node.cx.groups[id].tail.release() {
                node.send(id, to, recipient, [&bytes, &[]]);
            }
            node.step(id, Input::Durable { record });
            if flushes {
                node.flush_replica(id);
            }
            node.note_locks(id);
        });
        self.cluster.notify_durable(&mut self.cx);
        self.carry_out_calls();
    }

    /// Whether there is work to run beside the event loop.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.cx.journal.has_work() || self.values.has_work()
    }

    /// Moves work that runs beside the event loop into `work`: syncs, and the upkeep of the log.
    pub fn take_work(&mut self, work: &mut Vec<Work>) {
        self.cx.journal.take_work(work);
    }

    /// Whether spans have ended since the last [`Node::take_spans`].
    #[inline]
    pub fn has_spans(&self) -> bool {
        self.cx.spans.has_ended()
    }

    /// How many spans were dropped since too many were held.
    pub fn spans_dropped(&self) -> u64 {
        self.cx.spans.dropped()
    }

    /// The spans that have ended since the last call.
    pub fn take_spans(&mut self) -> Vec<Span> {
        self.cx.spans.take()
    }

    /// Takes the result of a piece of that work. Call it within a turn.
    pub fn work_finished(&mut self, work: Work, result: Result<(), DiskError>) {
        if let Some(news) = self.cx.journal.work_finished(work, result, self.cx.now, &mut self.cx.log) {
            if let News::Checkpoint(_) = news {
                self.cx.journal.note_saved(self.cx.now.unix_ms);
            }
            self.values.log_changed(news);
        }
        self.notify_durable(false);
    }

    /// Moves the work on large values that runs beside the loop into `work`.
    pub fn take_value_work(&mut self, work: &mut Vec<ValueWork>) {
        self.values.take_work(work);
    }

    /// Takes the result of one piece of that work. Call it within a turn.
    pub fn value_work_finished(&mut self, work: ValueWork, result: ValueResult) {
        self.values.work_finished(&mut self.cx, work, result);
        self.carry_out_calls();
    }

    /// The process is about to stop: this node hands over everything that it leads. Take turns until [`Node::has_left`].
    pub fn leave(&mut self) {
        self.handovers.leave(&mut self.cx);
    }

    /// Whether the process is about to stop: see [`Node::leave`].
    pub fn is_leaving(&self) -> bool {
        self.handovers.is_leaving()
    }

    /// Whether, since [`Node::leave`], this node leads nothing any more that another node could lead, no write waits for it, and no
    /// other node forwards anything to it.
    pub fn has_left(&self) -> bool {
        self.handovers.has_left(&self.cx) && self.two_phase.is_settled()
    }

    /// Completes the log before an orderly end of the process, after the last turn: writes what is left, makes it
    /// durable and records that the log is complete. Returns true when nothing is left to wait for; until then, call
    /// it again, along with [`Node::take_work`] and [`Node::work_finished`] as in turns.
    pub fn settle_log<D: Disk>(&mut self, disk: &mut D) -> bool {
        self.cx.journal.write(disk, self.cx.now, &mut self.cx.log);
        self.cx.journal.settle(self.cx.now, &mut self.cx.log)
    }

    /// Why the process must end at once, if it must: its disk has failed, and what is on it is unknown. Nothing that
    /// this node has produced since the previous turn may leave the machine.
    pub fn stopped(&self) -> Option<&str> {
        self.cx.journal.stopped().or(self.values.stopped())
    }

    /// Checks that every replica here satisfies the invariants of its protocol's proof, as
    /// [`protocol::Replica::check_invariants`] does. Simulations call it between two turns.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self) {
        let replicas = self.cx.groups.iter().filter_map(|(_, group)| group.replica.as_ref());
        replicas.for_each(|replica| replica.check_invariants(self.cx.now));
        self.cx.groups.iter().for_each(|(_, group)| group.chooser.check_invariants());
        self.cluster.control().check_invariants(self.cx.now);
        self.cx.check_invariants();
        self.two_phase.check_invariants();
        self.channels.check_invariants();
        self.long_reads.check_invariants(&self.cx);
        self.gates_show_the_state_of_components();
    }

    fn gates_show_the_state_of_components(&self) {
        let gates = self.cx.gates;
        for (gate, is_closed) in [
            (Gate::Divided, self.two_phase.are_any()),
            (Gate::Pause, self.cx.clients.pause.is_on()),
            (Gate::Monitors, !self.cx.clients.monitors.is_empty()),
            (Gate::Coding, self.coding.is_on()),
            (Gate::Values, self.values.is_on()),
            (Gate::Spans, self.cx.spans.is_on()),
            (Gate::Tracking, self.following.tracking.is_on()),
            (Gate::Changes, self.following.is_on()),
            (Gate::Memory, self.cx.memory.is_any_full()),
            (Gate::Room, self.cx.room.is_short() || self.cx.peers.any_is_short()),
        ] {
            assert_eq!(gates.has(gate), is_closed, "the gate {gate:?}");
        }
        // It opens at the end of a turn.
        assert!(gates.has(Gate::Locked) || !self.two_phase.is_on(&self.cx), "the gate of locked keys");
    }

    /// Whether this node was removed from the cluster while this process ran. It no longer takes part in anything,
    /// and should end as if an operator had stopped it.
    pub fn is_removed(&self) -> bool {
        self.cluster.is_removed()
    }

    /// Whether so much waits to be written that nothing more should be taken from peers. This ends with the end of a
    /// sync, or with a retry on a full disk.
    pub fn is_log_behind(&self) -> bool {
        self.cx.journal.is_behind() || self.values.is_behind()
    }

    /// When the next turn must begin even if nothing happens, in microseconds of the monotonic clock. A turn that begins earlier
    /// has nothing to do but what it is given, unless the node is given something in between.
    pub fn next_wakeup_us(&self) -> u64 {
        let due_us = self.find_wakeup_us();
        self.idle_until_us.set(due_us);
        due_us
    }
}

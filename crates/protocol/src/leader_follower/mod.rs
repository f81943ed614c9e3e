//! Leader-follower replication: one leader orders writes and streams them; followers hold, acknowledge and apply them.
//!
//! ```text
//!  client      leader               follower 2           follower 3
//!    | SET       |                      |                    |
//!    |---------->| record 7             |                    |
//!    |           |-- Append 7 --------->|                    |
//!    |           |-- Append 7 ------------------------------>|
//!    |           |<- Acknowledge 7 -----|  held, not applied |
//!    |           |<- Acknowledge 7 --------------------------|
//!    |           | committed: applied, seen                  |
//!    |<-- OK ----|                      |                    |
//!    |           |-- Append 8, commit 7 ->  applied, seen    |
//! ```
//!
//! # Promise
//!
//! * Writes take effect in one order, the leader's. A write becomes visible, to any client, only once it is committed:
//!   held by as many followers as `acks` requires. With `acks = none` that is at once.
//! * A read at the leader sees every write acknowledged before it began, and a client's pipelined read sees the client's
//!   writes before it. A read at a follower (`reads = any`) sees a prefix of the leader's order, and never less than its own
//!   client has seen acknowledged.
//! * A write that too few live followers could acknowledge is refused after a while and written nowhere (`NOREPLICAS`). A
//!   write that was sent and not acknowledged in time ends as unknown: it may still take effect.
//! * A leader answers only while it has a lease from the control group, checked in the same step that makes the answer:
//!   while it has one and has not resigned, no other leader has been appointed. Without a lease, requests wait until the leader has one, or
//!   another node leads.
//! * A new leader, or one that restarts without memory, first collects everything that was acknowledged ([`recovery`]).
//!   Under `acks = n` that is possible while at most n replicas are without memory: crashed, or restarted and not in step
//!   yet. Under `majority` it is possible while at most half of the other replicas are without memory; under `all`, while
//!   one member of the in-sync set has its memory. Under `none` the leader takes the history of the most advanced replica
//!   that answers soon; what a deposed leader had acknowledged beyond that is counted when it returns
//!   ([`Counters::lost_writes`]). A leader that continues in the next epoch, as when members change, needs no other
//!   replica for that: it holds everything itself.
//! * With a `durability` a replica keeps its memory in records, and acknowledges nothing that is not durable. So it
//!   restarts intact, and a group whose machines all lost power still has everything that was acknowledged.
//!
//! # Why it is safe
//!
//! Records carry their offset; an epoch has one leader, which assigns each offset once. So (epoch, offset) identifies the
//! whole history up to it ([`position::Position`]), and a follower takes a batch only at exactly the position that the
//! leader names as the one before the batch. Hence acknowledging an offset acknowledges everything before it, and what n
//! followers acknowledged is a prefix that each of them holds. The next leader takes over the history with the greatest
//! last position among a set of replicas that must include one of these followers or their leader. A replica counts in
//! this set only while it is intact: it holds everything that it ever acknowledged. A replica that started empty is
//! intact again when it has caught up with what its leader had when it joined.
//!
//! The greatest last position is enough because a leader commits what it inherited only together with a record of its own
//! epoch: a replica that lacks a committed record cannot hold a record of a later epoch than a replica that has it.
//!
//! When a follower joins, everything that is not part of the leader's history is cut off or replaced. Cutting is possible
//! because only committed records are applied, even at the leader. An acknowledgement counts only if it names the join
//! question that the leader answered to serve the follower: an acknowledgement from before the follower lost its memory
//! does not.
//!
//! With `acks = all` any member of the in-sync set may lead next, because the leader always waits for at least all
//! members that are in sync in the control group's map; `in_sync.rs` shows how that stays true while the map changes. The
//! new leader leads at once: it holds everything acknowledged, and as it no longer follows the old leader, nothing more
//! can be acknowledged.
//!
//! # Caveats: what the control group and the node must do
//!
//! * Epochs only grow, and each belongs to one leader in one incarnation: a leader that restarts needs a new one, whether or
//!   not it keeps records, as it sends batches before they are on its own disk. (A leader that keeps records waits for the
//!   new epoch by itself.) A replica that starts without its memory must learn the newest epoch that ever had another
//!   leader, as it has forgotten which leaders it no longer follows.
//! * A lease counts from the moment the node requested it, and belongs to a map: the node passes the lease to its
//!   replicas only after it has given them a map at least as new as the one in force when the lease was granted.
//!   Otherwise a leader that was deposed while it was paused would believe that it still leads.
//! * A request for an in-sync set is granted only if the group's part of the map has not changed since the map that the
//!   replica had when it made the request. Requests are repeated and may arrive late, and must not restore a set that the
//!   leader has given up. Without a request the control group may remove members from the set, but never add any.
//! * With `acks = none` a write that the leader had not sent when it crashed is lost.
//! * A new leader answers reads only when enough followers hold what it took over.
//!
//! Sources: the primary-backup scheme with a configuration kept elsewhere is that of PacificA (Lin et al.,
//! MSR-TR-2008-25); waiting for a follower before the configuration may call it in sync is Kafka's (KIP-497, the maximal
//! in-sync set); partial resync by (history, offset) from a bounded backlog is Redis's PSYNC2; cutting an uncommitted
//! suffix by epochs, and committing an older epoch's records only with one's own, is Raft's (Ongaro and Ousterhout 2014,
//! sections 5.3 and 5.4.2).
//!
//! The folder `golden` shows each behaviour message by message.

mod backlog;
mod follower;
mod handover;
mod invariants;
mod journal;
mod leader;
pub mod message;
mod options;
mod position;
mod queue;
pub mod record;
mod recovering;
pub mod recovery;
mod rest;
mod snapshot;
mod spilled;
mod state;
mod summary;
mod transfer;

use crate::contract::{
    Configuration, Effects, Input, NOBODY, NodeId, Now, Progress, Request, SpilledValues, Submission, Ticket,
    Trace,
};
use crate::planted::Fault;
pub use crate::status::FollowerStatus;
use crate::vouch::Vouch;
use crate::waiters::Notifier;
use follower::Follower;
use kv::codec::Malformed;
use kv::table::{Changes, Eviction, Follows};
use kv::{Command, Interpreter, RecordName, ReplyBuffer, Table, UnixMs, Version, Watch};
use leader::Leader;
pub use message::Message;
pub use options::{Acks, Durability, Options, Timing};
pub use position::Position;
use recovery::Recovery;
pub use state::Counters;
use state::State;

#[derive(Debug)]
enum Role {
    /// No configuration yet.
    Idle,
    Leader(Leader),
    Recovery(Recovery),
    Follower(Follower),
}

/// A replica's status, for `INFO`, `/health` and tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `leader`, `follower`, `recovering` or `idle`.
    pub role: &'static str,
    /// The highest epoch seen.
    pub epoch: u64,
    /// The leader's node.
    pub leader: NodeId,
    /// The last offset held.
    pub offset: Version,
    /// The last offset applied: everything up to it is committed.
    pub applied: Version,
    /// The oldest offset after which a partial resync can begin.
    pub backlog_start: Version,
    /// Bytes of history held.
    pub backlog_bytes: usize,
    /// Whether requests can be served, here or by the leader. Leader: it has a lease and serves. Follower: it streams.
    pub ready: bool,
    /// Whether it is not in step with its leader, and hears it.
    pub catches_up: bool,
    /// Leader: enough followers are live to acknowledge writes.
    pub writable: bool,
    /// Follower: the number of the leader's records that are not applied here.
    pub lag: u64,
    /// Follower: the milliseconds since it last had nothing unapplied.
    pub lag_ms: u64,
    /// Follower: it is receiving a snapshot.
    pub receives_snapshot: bool,
    /// Follower: the milliseconds since it last heard from its leader.
    pub leader_silent_ms: u64,
    /// The in-sync set, as far as this replica knows.
    pub in_sync: Vec<NodeId>,
    /// Leader: the status of each follower.
    pub followers: Vec<FollowerStatus>,
    /// The counts of events so far.
    pub counters: Counters,
    /// Why it is not ready, for people; empty when it is.
    pub explanation: String,
}

/// One group's leader-follower state machine on one node.
#[derive(Debug)]
pub struct Replica {
    state: State,
    role: Role,
}

impl Replica {
    /// Returns an empty replica, which does nothing until it is configured. `seed` protects its table from hash flooding.
    pub fn new(id: NodeId, options: Options, timing: Timing, seed: u64) -> Replica {
        Replica { state: State::new(id, options, timing, seed), role: Role::Idle }
    }

    /// Sets the interpreter for scripts. Call this before anything else.
    pub fn set_interpreter(&mut self, interpreter: &'static dyn Interpreter) {
        self.state.table.set_interpreter(interpreter);
    }

    /// Takes changed promises of the keyspace.
    pub fn set_options(&mut self, options: Options) {
        self.state.options = options;
    }

    /// Answers a read from what is applied here, whatever the role: for people and tests that look at one replica. It
    /// promises nothing about other replicas.
    pub fn peek(&mut self, command: &Command<'_>, now: UnixMs, out: &mut ReplyBuffer) {
        self.state.table.read(command, now, out);
    }

    /// Some records may have been lost, so this replica vouches for nothing before it has caught up with a leader. Call
    /// this after [`replay`](crate::Replica::replay) when records that the keyspace counts as durable may be lost
    /// nevertheless: the machine lost its power, and they were not synced ([`Durability::Os`]).
    pub fn distrust_records(&mut self) {
        self.state.intact = false;
    }

    /// The last record that it holds.
    fn held(&self) -> Version {
        match &self.role {
            Role::Leader(leader) => leader.head(),
            _ => self.state.last().offset,
        }
    }

    /// Returns the replica's status. O(members).
    pub fn status(&self, now: Now) -> Status {
        let state = &self.state;
        let (lag, lag_ms) = match &self.role {
            Role::Follower(follower) => follower.lag(state, now),
            _ => (0, 0),
        };
        let (role, ready, explanation) = match &self.role {
            Role::Idle => ("idle", false, "it has no configuration".to_string()),
            Role::Leader(_) if !state.is_leased(now) => {
                ("leader", false, "it has no lease of the control group".to_string())
            }
            Role::Leader(leader) if leader.serves(state) => ("leader", true, String::new()),
            Role::Leader(_) => {
                ("leader", false, "too few followers hold what it took over: it may not be committed".into())
            }
            Role::Recovery(recovery) => ("recovering", false, recovery.explain(state)),
            Role::Follower(follower) if follower.is_streaming(state, now) => {
                ("follower", true, String::new())
            }
            Role::Follower(_) => {
                let leader = state.configuration.leader;
                ("follower", false, format!("it is not in step with its leader, node {leader}"))
            }
        };
        Status {
            role,
            epoch: state.epoch,
            leader: state.configuration.leader,
            offset: self.held(),
            applied: state.applied,
            backlog_start: state.backlog.base().offset,
            backlog_bytes: state.backlog.bytes(),
            ready,
            catches_up: matches!(&self.role, Role::Follower(follower) if follower.catches_up(state, now)),
            writable: matches!(&self.role, Role::Leader(leader) if leader.is_writable(state, now)),
            lag,
            lag_ms,
            receives_snapshot: matches!(&self.role, Role::Follower(follower) if follower.is_filling()),
            leader_silent_ms: match &self.role {
                Role::Follower(follower) => follower.silent_ms(state, now),
                _ => 0,
            },
            in_sync: state.configuration.in_sync.clone(),
            followers: match &self.role {
                Role::Leader(leader) => leader.follower_status(state, now),
                _ => Vec::new(),
            },
            counters: state.counters,
            explanation,
        }
    }

    #[inline]
    fn request(
        &mut self,
        now: Now,
        (ticket, follows, seen, deadline_us): (Ticket, bool, Version, u64),
        request: &Request<'_>,
        effects: &mut Effects,
    ) {
        let state = &mut self.state;
        match &mut self.role {
            Role::Leader(leader) => {
                leader.request(state, now, (ticket, follows, deadline_us), request, effects);
            }
            Role::Follower(follower) => {
                follower.request(state, now, (ticket, follows, seen), request, effects);
            }
            Role::Recovery(_) | Role::Idle => effects.redirect(ticket, NOBODY),
        }
    }

    fn message(&mut self, now: Now, from: NodeId, message: Message<'_>, effects: &mut Effects) {
        let state = &mut self.state;
        if !state.configuration.members.contains(&from) {
            return;
        }
        let epoch = message.epoch();
        if let Message::Stale { epoch } = message {
            return self.epoch_passed(now, epoch, effects);
        }
        match &mut self.role {
            Role::Idle => {}
            Role::Follower(follower) => {
                if !message.is_from_leader() {
                    return;
                }
                if epoch < state.epoch {
                    let stale = Message::Stale { epoch: state.epoch };
                    return effects.send([from], |out| stale.encode(out));
                }
                if epoch > state.epoch {
                    state.enter_epoch(epoch, false, effects);
                    state.configuration.leader = from;
                    follower.enter_epoch(state, now, effects);
                } else if from != state.configuration.leader {
                    let why = "it is not the leader of this epoch";
                    return effects.trace.push(Trace::Rejected { peer: from, why });
                }
                follower.message(state, now, from, message, effects);
            }
            Role::Leader(_) if epoch > state.epoch => self.epoch_passed(now, epoch, effects),
            Role::Leader(leader) => leader.message(state, now, from, message, effects),
            Role::Recovery(recovery) => {
                if epoch > state.epoch {
                    return self.epoch_passed(now, epoch, effects);
                }
                if epoch == state.epoch && recovery.message(state, now, from, message, effects) {
                    self.lead(now, effects);
                }
            }
        }
    }

    /// A peer knows a higher epoch than this replica's, which therefore stops leading until it gets a new epoch.
    fn epoch_passed(&mut self, now: Now, epoch: u64, effects: &mut Effects) {
        if epoch <= self.state.epoch || matches!(self.role, Role::Follower(_) | Role::Idle) {
            return;
        }
        let has_resigned = self.state.has_resigned();
        self.leave_role(now, effects); // First, because what it wrote belongs to its own epoch.
        self.state.enter_epoch(epoch, false, effects);
        if !has_resigned {
            effects.trace.push(Trace::EpochPassed { epoch });
        }
        self.role = Role::Recovery(Recovery::new(&self.state, now, true, effects));
    }

    fn leave_role(&mut self, now: Now, effects: &mut Effects) {
        match std::mem::replace(&mut self.role, Role::Idle) {
            Role::Leader(leader) => leader.resign(&mut self.state, now, effects),
            Role::Follower(mut follower) => {
                follower.stop_sending(&mut self.state, "it follows no more", effects);
                follower.stop_filling(&mut self.state);
            }
            Role::Recovery(mut recovery) => recovery.stop_fetching(&mut self.state),
            Role::Idle => {}
        }
    }

    /// Whether every replica keeps its role under the new configuration.
    fn keeps_roles(&self, new: &Configuration) -> bool {
        let old = &self.state.configuration;
        let leader_stays = new.leader == old.leader && new.members == old.members;
        match self.role {
            Role::Idle => false,
            // The follower may have learned the epoch from its leader before.
            Role::Follower(_) => leader_stays && new.epoch <= self.state.epoch,
            Role::Leader(_) | Role::Recovery(_) => leader_stays && new.epoch == old.epoch,
        }
    }

    fn configure(&mut self, now: Now, configuration: &Configuration, effects: &mut Effects) {
        if configuration.epoch < self.state.configuration.epoch {
            return; // The configuration is old.
        }
        if let Role::Follower(_) = self.role
            && configuration.epoch < self.state.epoch
            && ![self.state.id, self.state.configuration.leader].contains(&configuration.leader)
        {
            return; // It already follows the leader of a newer epoch.
        }
        if matches!(self.role, Role::Idle) {
            self.state.begin_life(effects);
        }
        let keeps_roles = self.keeps_roles(configuration);
        if !keeps_roles {
            self.leave_role(now, effects); // First, because what it wrote belongs to its own epoch.
        }
        let leads = configuration.leader == self.state.id;
        // Other replicas may hold records that an earlier incarnation wrote in this epoch, and that are forgotten here.
        let has_led = leads && !keeps_roles && configuration.epoch <= self.state.journal.earlier_epoch;
        let passed = configuration.epoch < self.state.epoch || has_led && configuration.members.len() > 1;
        self.state.enter_epoch(configuration.epoch, leads && !keeps_roles && !passed, effects);
        let in_sync_changes = self.state.configuration.in_sync != configuration.in_sync;
        self.state.configuration = configuration.clone();
        if keeps_roles {
            if let Role::Leader(leader) = &mut self.role
                && in_sync_changes
            {
                leader.in_sync_changed(&self.state);
                leader.reconsider(&mut self.state, now, effects);
            }
            return;
        }
        if !leads {
            self.role = Role::Follower(Follower::new(&mut self.state, now, effects));
        } else if passed {
            self.role = Role::Recovery(Recovery::new(&self.state, now, true, effects));
            effects.trace.push(Trace::EpochPassed { epoch: self.state.epoch });
        } else if configuration.members.len() == 1 || self.state.options.planted.has(Fault::NoRecovery) {
            self.lead(now, effects);
        } else {
            let mut recovery = Recovery::new(&self.state, now, false, effects);
            let is_whole = recovery.choose(&mut self.state, now, effects);
            self.role = Role::Recovery(recovery);
            if is_whole {
                self.lead(now, effects);
            }
        }
    }

    fn lead(&mut self, now: Now, effects: &mut Effects) {
        invariants::may_lead(&self.state);
        self.state.set_intact(effects);
        self.state.led = Some(self.state.epoch);
        let before = std::mem::replace(&mut self.role, Role::Idle);
        let mut leader = Leader::new(&mut self.state, now, effects);
        self.state.reach.begin(now);
        let notifier = Notifier { node: self.state.id, is_leader: true };
        notifier.revisit(&self.state.table, self.state.applied, effects);
        if let Role::Recovery(recovery) = before {
            for (peer, join) in recovery.joins {
                leader.message(&mut self.state, now, peer, join, effects);
            }
        }
        self.role = Role::Leader(leader);
    }
}

impl crate::contract::Replica for Replica {
    type Message<'a> = Message<'a>;

    fn decode(message: &[u8]) -> Result<Message<'_>, Malformed> {
        Message::decode(message)
    }

    #[inline]
    fn step(&mut self, now: Now, input: Input<'_, Message<'_>>, effects: &mut Effects) {
        let is_request = matches!(input, Input::Request(_));
        let state = &mut self.state;
        match input {
            // A replica that has led in an epoch writes nothing of it later: see `resign`. So `fenced` needs no check here.
            Input::Request(&Submission { ticket, request, follows, seen, deadline_us, fenced: _ }) => {
                self.request(now, (ticket, follows, seen, deadline_us), request, effects);
            }
            Input::Message { from, message } => self.message(now, from, message, effects),
            Input::Configure(configuration) => self.configure(now, configuration, effects),
            Input::Link { peer, up } => {
                state.reach.link(now, peer, up);
                if !up {
                    state.leaving.remove(&peer);
                }
                match &mut self.role {
                    Role::Leader(leader) => leader.link(state, peer, up, effects),
                    Role::Follower(follower) => follower.link(state, now, peer, up, effects),
                    Role::Recovery(recovery) => recovery.link(state, peer, up, effects),
                    Role::Idle => {}
                }
            }
            Input::Retire => self.leave_role(now, effects),
            Input::Flush => {
                if let Role::Recovery(recovery) = &mut self.role
                    && recovery.flush(state, effects)
                {
                    self.lead(now, effects);
                }
                let state = &mut self.state;
                match &mut self.role {
                    Role::Leader(leader) => leader.flush(state, now, effects),
                    Role::Follower(follower) => follower.flush(state, now, effects),
                    Role::Recovery(_) | Role::Idle => {}
                }
            }
            Input::Durable { record } => {
                state.journal.durable(record);
                match &mut self.role {
                    Role::Leader(leader) => leader.durable(state, now, effects),
                    Role::Recovery(recovery) => {
                        if recovery.choose(state, now, effects) {
                            self.lead(now, effects);
                        }
                    }
                    Role::Follower(_) | Role::Idle => {}
                }
            }
            Input::Lease { until_us } => {
                let was_leased = state.is_leased(now);
                state.extend_lease(until_us);
                if let Role::Leader(leader) = &mut self.role
                    && !was_leased
                {
                    leader.reconsider(state, now, effects);
                }
            }
            Input::Tick => {
                state.table.tidy(crate::rest::TIDIED_KEYS);
                state.journal.record_commit(now, state.applied, effects);
                match &mut self.role {
                    Role::Leader(leader) => leader.tick(state, now, effects),
                    Role::Follower(follower) => follower.tick(state, now, effects),
                    Role::Recovery(recovery) => {
                        if recovery.tick(state, now, effects) {
                            self.lead(now, effects);
                        }
                    }
                    Role::Idle => {}
                }
            }
        }
        // Notify waiting requests of the effects of applied records, in every role.
        let notifier = Notifier { node: self.state.id, is_leader: matches!(self.role, Role::Leader(_)) };
        notifier.follow(&mut self.state.table, self.state.applied, effects);
        if self.state.rest.is_resting() {
            self.look_up(now, is_request);
        }
        if !is_request {
            invariants::check_step(self);
        }
    }

    fn wakeup_us(&self, now: Now) -> u64 {
        let role_us = match &self.role {
            Role::Leader(leader) => leader.wakeup_us(&self.state, now),
            Role::Follower(follower) => follower.wakeup_us(&self.state, now),
            Role::Recovery(recovery) => recovery.wakeup_us(&self.state, now),
            Role::Idle => now.monotonic_us + self.state.timing.heartbeat_ms * 1000,
        };
        role_us.min(crate::rest::tidied_us(&self.state.table, now))
    }

    fn set_reached(&mut self, now: Now, peer: NodeId, is_reached: bool) {
        self.note_reached(now, peer, is_reached);
    }

    fn vouched(&mut self, peer: NodeId, vouch: Vouch) {
        self.state.vouches.note(peer, vouch);
    }

    fn peer_leaves(&mut self, now: Now, peer: NodeId) {
        self.state.leaving.insert(peer);
        if self.state.rest.is_resting() {
            self.look_up(now, false);
        }
    }

    fn hand_over(&mut self, now: Now, to: Option<NodeId>) -> bool {
        let Role::Leader(leader) = &mut self.role else { return false };
        let is_under_way = leader.hand_over(&mut self.state, now, to);
        if is_under_way && self.state.rest.is_resting() {
            self.look_up(now, false);
        }
        is_under_way
    }

    fn is_resting(&self) -> bool {
        let rests = match &self.role {
            Role::Leader(_) => self.state.rest.is_resting(),
            Role::Follower(follower) => follower.is_resting(&self.state),
            Role::Recovery(_) | Role::Idle => false,
        };
        rests && self.state.table.is_tidy()
    }

    fn check_invariants(&self, _now: Now) {
        invariants::check_all(self);
    }

    fn replay(&mut self, now: Now, record: &[u8]) -> Result<(), Malformed> {
        self.state.take_record(now, record)
    }

    fn begin_checkpoint(&mut self) -> bool {
        // A checkpoint would come between the records of a snapshot transfer under way.
        let is_fetching = match &self.role {
            Role::Follower(follower) => follower.is_filling(),
            Role::Recovery(recovery) => recovery.is_fetching(),
            Role::Leader(_) => false,
            Role::Idle => true,
        };
        !is_fetching && self.state.begin_checkpoint()
    }

    fn checkpoint_record(&mut self, bytes_max: usize, record: &mut Vec<u8>) -> Progress {
        self.state.checkpoint_record(bytes_max, record)
    }

    fn abandon_checkpoint(&mut self) {
        self.state.abandon_checkpoint();
    }

    fn held_and_applied(&self) -> Option<(Version, Version)> {
        Some((self.held(), self.state.applied))
    }

    fn follow_changes(&mut self, follows: Follows) {
        self.state.table.follow_changes(follows);
    }

    fn keep_history(&mut self, bytes_max: usize) {
        self.state.table.keep_history(bytes_max);
    }

    fn dumped(&mut self) -> Option<&mut Table> {
        Some(&mut self.state.table)
    }

    fn take_changes(&mut self) -> Option<Changes> {
        self.state.table.take_changes()
    }

    fn set_watch(&mut self, group: u16, watch: &'static dyn Watch) {
        self.state.table.set_watch(group, watch);
    }

    fn set_eviction(&mut self, eviction: Eviction) {
        self.state.table.set_eviction(eviction);
    }

    fn keep_expired(&mut self, is_kept: bool) {
        self.state.table.keep_expired(is_kept);
    }

    fn unapplied(&self) -> (usize, usize) {
        match &self.role {
            Role::Leader(leader) => leader.unapplied(&self.state),
            _ => (0, 0),
        }
    }

    fn skip(&mut self, records: &[RecordName]) {
        self.state.table.skip(records);
    }

    fn stand_before(&mut self, record: Option<Version>) {
        self.state.stands_before = record;
    }

    fn table(&self) -> &Table {
        &self.state.table
    }

    fn extend_lease(&mut self, until_us: u64) {
        self.state.extend_lease(until_us);
    }

    #[inline]
    fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader(_))
    }

    fn begin_with_group(&mut self) {
        self.state.is_new = true;
    }

    fn set_map_version(&mut self, _version: u64, moves: bool) {
        // A leader has a lease, and a change is not made before every node with a lease has its map.
        if moves && let Role::Leader(leader) = &mut self.role {
            leader.held.note_moved();
        }
    }

    fn set_history_max(&mut self, bytes: usize) {
        if std::mem::replace(&mut self.state.history_max, bytes) == bytes {
            return;
        }
        match &self.role {
            Role::Leader(leader) => leader.drop_history(&mut self.state),
            Role::Follower(_) => {
                let bytes_max = self.state.backlog_bytes_max();
                self.state.backlog.trim(bytes_max, self.state.applied);
            }
            Role::Recovery(_) | Role::Idle => {}
        }
    }

    fn summary(&self, now: Now) -> crate::status::Status {
        self.status(now).into()
    }

    fn has_taken_over(&self, epoch: u64) -> bool {
        let Role::Leader(leader) = &self.role else { return false };
        self.state.configuration.epoch == epoch && leader.has_taken_over(&self.state)
    }

    fn recovers(&self, now: Now) -> Option<String> {
        let status = self.status(now);
        (status.role == "recovering").then_some(status.explanation)
    }

    fn spilled_values(&self) -> Option<&dyn SpilledValues> {
        Some(self)
    }

    fn spilled_values_mut(&mut self) -> Option<&mut dyn SpilledValues> {
        Some(self)
    }
}

//! Leader-follower replication: one leader orders writes and streams them; followers hold, acknowledge and
//! apply them.
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
//! * Writes take effect in one order, the leader's. A write is seen, by anybody, only once it is committed:
//!   held by as many followers as `acks` says. With `acks = none` that is at once.
//! * A read at the leader sees every write acknowledged before it began, and a client's pipelined read sees
//!   the client's writes before it. A read at a follower (`reads = any`) sees a prefix of the leader's order,
//!   and never less than its own client has seen acknowledged.
//! * A write that too few live followers could acknowledge is refused after a while, written nowhere
//!   (`NOREPLICAS`). One that was sent and not acknowledged in time ends as unknown: it may still happen.
//! * A leader answers only while it has a lease of the control group, by the time of the very step that makes the answer:
//!   then no other leader has been appointed. Without one requests wait until it has one, or another node leads.
//! * A new leader, or one that restarts without memory, first gets together everything that was acknowledged
//!   ([`recovery`]). Under `acks = n` that is possible while at most n replicas are without memory: crashed, or
//!   started again and not in step yet. Under `majority`, half of the others; under `all`, while one of the
//!   in-sync set has its memory. Under `none` the most advanced that answers soon is taken; what a deposed leader had
//!   acknowledged beyond that is counted when it comes back ([`Counters::lost_writes`]). A leader that goes on in the next
//!   epoch, as when members change, needs nobody for that: it holds everything itself.
//! * With a `durability` a replica keeps its memory in records, and acknowledges nothing that is not durable. So it comes
//!   back intact, and a group whose machines all lost their power has everything that was acknowledged.
//!
//! # Why it holds
//!
//! Records carry their offset; an epoch has one leader, which gives each offset once. So (epoch, offset) names
//! one history up to it ([`message::Position`]), and a follower takes a batch only behind the very position
//! that the leader says it follows. Hence acknowledging an offset acknowledges all before it, and what n
//! followers acknowledged is a prefix that each of them holds. Whoever leads next takes over the history with
//! the greatest last position among replicas that must include one of them. A replica counts among these only
//! while it is intact: it holds everything that it ever acknowledged. One that started empty is intact again
//! when it has caught up with what its leader had when it joined.
//!
//! The greatest last position is enough because a leader commits what it inherited only together with a record
//! of its own epoch: who lacks a committed record cannot hold a record of a later epoch than who has it.
//!
//! The follower's resync cuts off or replaces whatever is not part of the leader's history, and it can cut
//! because nothing is applied that is not committed, at the leader neither. An acknowledgement counts only with
//! the name of the question by which the follower is served: not one that it gave before it lost its memory.
//!
//! With `acks = all` any member of the in-sync set may lead next, because the leader always waits for at least all of
//! those that the control group's map calls in sync; `in_sync.rs` says how that stays true while the map changes. It leads
//! at once: it holds everything acknowledged, and as it follows the old leader no more, nothing else can be.
//!
//! # Caveats: what the control group and the node must do
//!
//! * Epochs only grow, and one is given to one leader only, in one of its lives: a leader that restarts needs a new one,
//!   whether or not it keeps records, as it sends batches before they are on its own disk. (One that keeps records waits
//!   for it by itself.) A replica that starts without its memory must be told the newest epoch that ever had another
//!   leader, as it has forgotten whom it follows no more.
//! * A lease counts from the moment the node asked for it, and belongs to a map: the node gives it to its replicas only
//!   when it has given them a map at least as new as the one in force when the lease was granted. Else a leader that was
//!   deposed while it slept would believe that it still leads.
//! * A wish for an in-sync set is granted only if the group's part of the map has not changed since the map that the
//!   replica had when it wished. Wishes are repeated and may come late: a set that the leader has left behind must not come
//!   back. Apart from the leader's wishes the control group may take members out of the set, never put them in.
//! * With `acks = none` a write that the leader had not sent when it crashed is lost.
//! * A new leader answers reads only when enough followers hold what it took over.
//!
//! Sources: the primary-backup scheme with a configuration kept elsewhere is that of PacificA (Lin et al.,
//! MSR-TR-2008-25); that the leader waits for a follower before the configuration may call it in sync is Kafka's (KIP-497,
//! the maximal in-sync set); partial resync by (history, offset) out of a bounded backlog is Redis's PSYNC2; cutting an
//! uncommitted suffix by epochs, and committing an older epoch's records only with one's own, is Raft's (Ongaro
//! and Ousterhout 2014, sections 5.3 and 5.4.2).
//!
//! The folder `golden` shows each behaviour message by message.

mod backlog;
mod follower;
mod held;
mod in_sync;
mod invariants;
mod journal;
mod leader;
pub mod message;
mod options;
mod queue;
pub mod record;
pub mod recovery;
mod rest;
mod restoring;
mod resync;
mod serving;
mod spilled;
mod state;
mod waits;

use crate::contract::{
    Configuration, Effects, Input, NOBODY, NodeId, Now, Progress, Request, SpilledValues, Ticket, Trace,
};
use crate::planted::Fault;
use follower::Follower;
use kv::codec::Malformed;
use kv::{Command, Interpreter, RecordName, ReplyBuffer, Table, UnixMs, Version, Watch};
use leader::Leader;
pub use message::{Message, Position};
pub use options::{Acks, Durability, Options, Timing};
use recovery::Recovery;
pub use serving::FollowerStatus;
pub use state::Counters;
use state::State;

/// How many keys of those that were removed all at once are dropped per tick: some milliseconds of work.
const TIDIED_KEYS: usize = 10_000;

#[derive(Debug)]
enum Role {
    /// No configuration yet.
    Idle,
    Leader(Leader),
    Recovery(Recovery),
    Follower(Follower),
}

/// How a replica stands, for `INFO`, `/health` and tests.
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
    /// The oldest offset that a partial resync can begin behind.
    pub backlog_start: Version,
    /// Bytes of history held.
    pub backlog_bytes: usize,
    /// Leader: it leads. Follower: it streams. Both: requests can be served, here or by the leader.
    pub ready: bool,
    /// Leader: enough followers are live to acknowledge writes.
    pub writable: bool,
    /// Follower: records of the leader that are not applied here.
    pub lag: u64,
    /// Follower: for how long that has been so, in milliseconds.
    pub lag_ms: u64,
    /// Follower: a snapshot is on its way to it.
    pub resyncing: bool,
    /// Follower: for how many milliseconds it has not heard from its leader.
    pub leader_silent_ms: u64,
    /// The in-sync set, as far as this replica was told.
    pub in_sync: Vec<NodeId>,
    /// Leader: how each follower stands.
    pub followers: Vec<FollowerStatus>,
    /// What has happened so far.
    pub counters: Counters,
    /// Why it is not ready, for people; else empty.
    pub explanation: String,
}

/// One group's leader-follower state machine on one node.
#[derive(Debug)]
pub struct Replica {
    state: State,
    role: Role,
}

impl Replica {
    /// An empty replica, which does nothing until it is configured. `seed` keeps its table from flooding.
    pub fn new(id: NodeId, options: Options, timing: Timing, seed: u64) -> Replica {
        Replica { state: State::new(id, options, timing, seed), role: Role::Idle }
    }

    /// Scripts are run by this interpreter. To be told before anything else.
    pub fn set_interpreter(&mut self, interpreter: &'static dyn Interpreter) {
        self.state.table.set_interpreter(interpreter);
    }

    /// The keyspace promises something else from now on.
    pub fn set_options(&mut self, options: Options) {
        self.state.options = options;
    }

    /// Answers a read from what is applied here, whatever the role: for people and tests that look at one
    /// replica. It promises nothing about other replicas.
    pub fn peek(&mut self, command: &Command<'_>, now: UnixMs, out: &mut ReplyBuffer) {
        self.state.table.read(command, now, out);
    }

    /// What was recorded may have been lost in part: this replica does not vouch for anything before it has caught up with a
    /// leader. To be told behind [`replay`](crate::Replica::replay), when records that were durable in the sense of the
    /// keyspace may be gone all the same: the machine lost its power, and they were not synced ([`Durability::Os`]).
    pub fn distrust_records(&mut self) {
        self.state.intact = false;
    }

    /// How it stands. O(members).
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
            offset: match &self.role {
                Role::Leader(leader) => leader.head(),
                _ => state.last().offset,
            },
            applied: state.applied,
            backlog_start: state.backlog.base().offset,
            backlog_bytes: state.backlog.bytes(),
            ready,
            writable: matches!(&self.role, Role::Leader(leader) if leader.is_writable(state, now)),
            lag,
            lag_ms,
            resyncing: matches!(&self.role, Role::Follower(follower) if follower.is_filling()),
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
        request: Request<'_>,
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

    /// A peer knows a higher epoch than ours. We lead no more, and not before we are given a new one.
    fn epoch_passed(&mut self, now: Now, epoch: u64, effects: &mut Effects) {
        if epoch <= self.state.epoch || matches!(self.role, Role::Follower(_) | Role::Idle) {
            return;
        }
        self.leave_role(now, effects); // First: what it wrote it wrote in its own epoch.
        self.state.enter_epoch(epoch, false, effects);
        effects.trace.push(Trace::EpochPassed { epoch });
        self.role = Role::Recovery(Recovery::new(&self.state, now, true, effects));
    }

    fn leave_role(&mut self, now: Now, effects: &mut Effects) {
        match std::mem::replace(&mut self.role, Role::Idle) {
            Role::Leader(leader) => leader.resign(&mut self.state, now, effects),
            Role::Follower(mut follower) => {
                follower.stop_sending(&mut self.state, "it follows no more", effects);
                follower.stop_filling(&mut self.state);
            }
            Role::Recovery(mut recovery) => recovery.stop_copying(&mut self.state),
            Role::Idle => {}
        }
    }

    /// Whether a configuration leaves everybody in their roles.
    fn keeps_roles(&self, new: &Configuration) -> bool {
        let old = &self.state.configuration;
        let leader_stays = new.leader == old.leader && new.members == old.members;
        match self.role {
            Role::Idle => false,
            // It may have learnt of the epoch from its leader before.
            Role::Follower(_) => leader_stays && new.epoch <= self.state.epoch,
            Role::Leader(_) | Role::Recovery(_) => leader_stays && new.epoch == old.epoch,
        }
    }

    fn configure(&mut self, now: Now, configuration: &Configuration, effects: &mut Effects) {
        if configuration.epoch < self.state.configuration.epoch {
            return; // Old news.
        }
        if let Role::Follower(_) = self.role
            && configuration.epoch < self.state.epoch
            && ![self.state.id, self.state.configuration.leader].contains(&configuration.leader)
        {
            return; // It follows the leader of a newer epoch already.
        }
        if matches!(self.role, Role::Idle) {
            self.state.begin_life(effects);
        }
        let keeps_roles = self.keeps_roles(configuration);
        if !keeps_roles {
            self.leave_role(now, effects); // First: what it wrote it wrote in its own epoch.
        }
        let leads = configuration.leader == self.state.id;
        // What an earlier life wrote in this epoch may be known to others and forgotten here.
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
        let is_request = matches!(input, Input::Request { .. });
        let state = &mut self.state;
        match input {
            // Whoever has led in an epoch writes nothing of it later: see `resign`. Nobody fences requests here.
            Input::Request { ticket, request, follows, seen, deadline_us, fenced: _ } => {
                self.request(now, (ticket, follows, seen, deadline_us), request, effects);
            }
            Input::Message { from, message } => self.message(now, from, message, effects),
            Input::Configure(configuration) => self.configure(now, configuration, effects),
            Input::Link { peer, up } => match &mut self.role {
                Role::Leader(leader) => leader.link(state, peer, up, effects),
                Role::Follower(follower) => follower.link(state, now, peer, up, effects),
                Role::Recovery(recovery) => recovery.link(state, peer, up, effects),
                Role::Idle => {}
            },
            Input::Retire => self.leave_role(now, effects),
            Input::Flush => match &mut self.role {
                Role::Leader(leader) => leader.flush(state, now, effects),
                Role::Follower(follower) => follower.flush(state, now, effects),
                Role::Recovery(_) | Role::Idle => {}
            },
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
                state.table.tidy(TIDIED_KEYS);
                state.journal.tell_commit(now, state.applied, effects);
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
        if self.state.rest.is_resting() {
            self.look_up(now, is_request);
        }
        if !is_request {
            invariants::check_step(self);
        }
    }

    fn wakeup_us(&self, now: Now) -> u64 {
        match &self.role {
            Role::Leader(leader) => leader.wakeup_us(&self.state, now),
            Role::Follower(follower) => follower.wakeup_us(&self.state, now),
            Role::Recovery(recovery) => recovery.wakeup_us(&self.state, now),
            Role::Idle => now.monotonic_us + self.state.timing.heartbeat_ms * 1000,
        }
    }

    fn set_reached(&mut self, now: Now, peer: NodeId, is_reached: bool) {
        self.note_reached(now, peer, is_reached);
    }

    fn is_resting(&self) -> bool {
        match &self.role {
            Role::Leader(_) => self.state.rest.is_resting(),
            Role::Follower(follower) => follower.is_resting(&self.state),
            Role::Recovery(_) | Role::Idle => false,
        }
    }

    fn check_invariants(&self, _now: Now) {
        invariants::check_all(self);
    }

    fn replay(&mut self, now: Now, record: &[u8]) -> Result<(), Malformed> {
        self.state.take_record(now, record)
    }

    fn begin_checkpoint(&mut self) -> bool {
        // Records of a copy under way would be torn apart.
        let is_copying = match &self.role {
            Role::Follower(follower) => follower.is_filling(),
            Role::Recovery(recovery) => recovery.is_copying(),
            Role::Leader(_) => false,
            Role::Idle => true,
        };
        !is_copying && self.state.begin_checkpoint()
    }

    fn checkpoint_record(&mut self, bytes_max: usize, record: &mut Vec<u8>) -> Progress {
        self.state.checkpoint_record(bytes_max, record)
    }

    fn abandon_checkpoint(&mut self) {
        self.state.abandon_checkpoint();
    }

    fn set_watch(&mut self, group: u16, watch: &'static dyn Watch) {
        self.state.table.set_watch(group, watch);
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

    fn summary(&self, now: Now) -> crate::status::Status {
        self.status(now).into()
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

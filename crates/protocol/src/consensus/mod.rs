//! Consensus: a replicated log that survives any minority of nodes, by OmniPaxos (the crate `omnipaxos`, unmodified).
//!
//! ```text
//!  client      leader 2                  follower 1            follower 3
//!    | SET       |                          |                     |
//!    |---------->| entry 7: one turn's batch, recorded            |
//!    |           |-- AcceptDecide [7] ----->|                     |
//!    |           |-- AcceptDecide [7] -------------------------->|
//!    |           |                          | recorded, durable   |
//!    |           |<- Accepted 7 ------------|                     |
//!    |           | its own record is durable, too: decided        |
//!    |           | applied, visible         |                     |
//!    |<-- OK ----|                          |                     |
//!    |           |-- Decide 7 ------------->| applied             |
//! ```
//!
//! # Promise
//!
//! * Writes take effect in one order, one at a time. An acknowledged write is durable on a majority, and is never lost
//!   unless a majority of the disks is.
//! * Reads are linearizable: they see every write that any leader acknowledged before they began. With `reads = any` any
//!   replica answers, from a prefix of that order that holds at least what its client has seen acknowledged here.
//! * A write ends as done when it is applied; as refused when it was not proposed, or when another entry was decided in
//!   its place, so that it will never take effect; as unknown when neither is known in time. No write is proposed twice.
//!
//! While the leader's last batch is not durable on its own disk, new writes are gathered for the next batch (and a little
//! longer if more are expected: see `leading`). The next batch also tells the followers what has been decided since the last one.
//!
//! # Structure
//!
//! The crate elects a leader by heartbeats (`HeartbeatRequest`, `HeartbeatReply`), takes over (`Prepare`, `Promise`,
//! `AcceptSync`) and replicates (`AcceptDecide`, `Accepted`, `Decide`); its documentation is the paper. Everything else
//! is in this module. A group of one does not use the crate.
//!
//! A [`Replica`] is made of components. Each has its own private state, and gets whatever else it needs as arguments:
//!
//! | component | what it is |
//! |---|---|
//! | `log` | entries, promise and ballot, and the record of every change ([`Change`]): the crate's storage |
//! | `links` | this replica's identity, and what is known of each peer; `outbox`: when a message to a peer may leave |
//! | `members` | configurations: the current one, the next one, which replicas have a vote |
//! | `agreement` | this replica's part: without a vote, with one (`decider`), or leading (`leading`) |
//! | `leading` | a leadership and what ends with it: its lease, the gathered `batch`, `reads`, `WAIT`, `slices` |
//! | `slices` | what followers that return are still to be sent of the log |
//! | `proposals` | what was proposed here and has no outcome yet |
//! | `held` | requests that wait for a leader |
//! | `applied` | the table, the number of entries that it holds, and fragments |
//! | `lock_leases` | leases of locks, as a leader measures them |
//! | `transfers`, `incoming` | snapshot transfers to other replicas, and from them |
//! | `restoring` | the checkpoint that is being written |
//! | `rounds` | rounds of heartbeats, and quiescence |
//!
//! Work that involves several components is done by the replica itself: `requests` (clients' requests), `receiving` (which
//! messages may reach the crate) and `turn` (the rest: a turn, a round, a decided entry, another configuration, the
//! installation of a snapshot).
//!
//! # Why it is correct
//!
//! **Messages leave when what they state is durable.** Records are made in order and become durable in order. A follower's
//! message leaves when all its records are durable; so a promise or an acceptance survives a crash of the follower. A
//! candidate's `Prepare` waits in the same way: no replica ever learns of a ballot that its owner could forget and use
//! again, for another log. Two kinds of messages leave earlier. Those whose order does not matter (heartbeats,
//! confirmations; `Stream::Loose`) state nothing that a restart could take back, and wait for the record of the incarnation
//! alone. A leader's messages wait for its promise, and not for its entries. The
//! crate counts the leader's own entries as accepted at once. To undo that, an `Accepted` is passed on to the crate only as
//! far as the leader's own log is durable in its ballot (`Agreement::count_accepted`). An index is decided only by such a
//! message, so what is decided is durable at the leader and at enough followers to make a majority with it.
//!
//! **The crate gets the links that it needs.** It is correct if links lose messages but never repeat, delay or reorder
//! them, or deliver them to another incarnation of the receiver; see `links` for what would go wrong otherwise. It repairs
//! a loss only when another message follows, so the leader sends its position every round (`Position`): a follower that
//! has less starts over with the leader, and one that has everything repeats its `Accepted`.
//!
//! **Snapshots.** A replica whose log ends before another replica's log begins gets a snapshot of the table at a decided
//! index S, together with the sender's log after S and the ballot q in which that log was accepted. It adopts this log if
//! (q, length) is greater than its own (m, length). This is safe: let C be chosen in ballot c, and let a later candidate
//! find this replica's new log to be the greatest of a majority.
//!
//! * If q > c, the sender's log extends C, by the invariant of Paxos.
//! * If q < c, some member of the majority accepted C in c, and its log would have been greater. If that member is this
//!   replica itself, then m >= c > q, and nothing was adopted.
//! * If q = c, either another member holds C in c, and the greatest log is no shorter than C; or only this replica did.
//!   Then m = q, and the sender's log, which is longer than this replica's own was, is no shorter than C.
//!
//! S was decided in a ballot of at most q, so the log never ends before what is decided. A snapshot leaves nothing half
//! done: it is recorded as it arrives, and messages that rest on it leave when all of it is durable.
//!
//! **What is known to be decided is in the log.** Let a member know, when it promises ballot n, that the first d
//! entries are decided. They were chosen in ballots up to the one in which the member's log was accepted: it has
//! learned of d from the leaders of these ballots, or from a snapshot, whose log it has adopted or whose ballot is no
//! greater than its own. By the invariant of Paxos the greatest log of a majority that promised n holds every entry
//! that was chosen in an earlier ballot. So its end is no less than d, for every member that promises n before it has
//! accepted anything in n, soon or late. A promise that contradicts this is not counted (`Agreement::agrees`): some
//! voter has forgotten what it had accepted, as when an unnoticed older state of its disk is in use. A leader that
//! believed it would hold for decided what it appends next, before that is durable anywhere; and the member would keep
//! its own entries in places where the leader's log has others. So what is decided is always held, and what a leader
//! adds is decided only when it is durable at the leader. The price is that a group may have no leader after such a
//! loss, until a majority without that member can be reached.
//!
//! **The log is the lease** (LeaseGuard, SIGMOD 2026). A leader answers reads alone until one lease after it *proposed*
//! the newest entry that was decided in its own ballot. Let P be the time of that proposal, on its clock. Every leader of a
//! later ballot has that entry in its log when it has taken over, and received it after P. Let R be the moment when the
//! new leader's replica received the newest entry of the log that it took over: R is later still. The new leader appends
//! nothing before R plus a lease plus a margin for two clocks that drift apart. By then the old leader has stopped
//! answering. What the new leader inherits is decided by the crate at once, but the new leader answers no read before an
//! entry of its own is decided; reads that arrive earlier wait. Replies to inherited writes need not wait: their proposer
//! waited for every older lease before it proposed them, and a leader in between has either applied them or will never see
//! them decided. So it does not matter which replicas vote, and a follower that has just started may vote too: leases are
//! in the log, not in any replica's memory. The usual wait is short: a leader that died sent its last entry before the
//! others noticed its death. With `lease = off` a read is answered when a majority has confirmed, after the read came,
//! that it has promised nothing newer. In either case the whole inherited log is applied first.
//!
//! **A lost proposal stays lost.** A proposal stands at one index of logs, in the ballot in which its proposer appended it;
//! taking over a log does not move it. So if another entry is decided at that index, or a later proposal of the same
//! replica is decided in a log without it, it will never be decided, and its client gets the outcome refused. Nor will what
//! the replica appended after it in the same ballot: that is in no log without it, since a leader's log only grows, a
//! follower's log is a part of its leader's from the beginning on, and whole logs are taken over. So the empty entry with
//! which the next leader begins settles what this replica proposed, unless this replica had inherited entries that the next
//! leader did not: then later entries settle it.
//!
//! **A configuration ends in its own log.** The control group names the next configuration; the leader orders it as an
//! entry, the stop-sign, and appends nothing after it in this configuration. A leader that inherits a stop-sign appends
//! nothing either. So a stop-sign is the last entry of every log that holds one, and once it is decided, at S - 1, nothing
//! is ever decided after it: every later leader has it. A replica that applies it starts the next configuration, in one
//! record: its number and members, a log that ends at S, no promise, no accepted ballot. It never votes in the old one
//! again. So all replicas that start the next configuration start it with the same log, which is decided, and Paxos
//! continues from there: old and new voters need no replica in common, and any number of them may change. Ballots carry
//! their configuration's number; ballots of different configurations are never compared (the crate would compare them).
//!
//! No replica votes in a configuration before it holds that log, or becomes a member before an earlier state is durable
//! on it (except the members of the first configuration, which begin with nothing). So a replica that has nothing, and gets
//! a snapshot in which it is a member, has lost what it had. A replica without a vote learns what is decided from a
//! snapshot, or from entries that are sent to it (`Decided`), which end at a stop-sign: what the new configuration decides
//! after S comes through the crate, or in a snapshot that brings the sender's accepted ballot with it. If a voter knew
//! entries to be decided without a ballot for them, it would report less to a candidate than it has, and the candidate
//! would order something else there. So a voter takes `Decided` only if it ends its configuration, and only a replica that
//! has a vote, or is at S exactly, sends snapshots. Laggards of the old configuration can still decide the stop-sign among
//! themselves; if they are too few because the others have moved on, the others know that it is decided, and report it.
//!
//! What a replica had proposed at S or later in the old configuration never takes effect: that configuration decides
//! nothing there, and only the proposer ever puts an entry into a log, once. It is refused. What was not proposed waits for
//! the next leader.
//!
//! **Leases across configurations.** The argument above does not depend on the configuration. An old leader's lease begins
//! with the proposal of an entry that was decided in its own ballot. That entry stands before S, or is the stop-sign; so
//! every leader of the new configuration has it, and received it after it was proposed. The moment when the newest entry
//! came (R) is carried over into the new configuration with the log, and the wait from R covers every lease of the old one.
//! After a snapshot or a restart R is later than necessary. The argument holds for a group of one, too: its leader waits,
//! and its reads wait as well, because what it inherits may be newer than what the old leader answers. Only a group that
//! no other node was ever in does not wait.
//!
//! In one case no new wait is needed. A replica that led the old configuration to its end, by counting votes itself, had waited
//! for all older leases of it and has dropped its own, and no later ballot of that configuration had any entry but the
//! stop-sign. If such a replica leads the new configuration and its log ends at S, no earlier leader of the new
//! configuration has had anything decided, so there is no lease.
//!
//! # What the crate is not given
//!
//! Its own stop-signs are not used, for two reasons. They cannot name a group of one. And they are not entries: a follower
//! that has accepted one in this ballot and starts over with its leader counts it twice, reports one entry too many as
//! accepted, and never sees it decided (`tests/protocols/consensus/stop_sign.rs`). As entries, stop-signs need nothing of
//! their own in records, snapshots and `AcceptSync`.
//!
//! The crate panics, or does worse, on: an answer from a node that is no voter (its node number indexes a vector); an
//! `AcceptSync` or `Promise` whose entries begin before what is decided or after the log's end; an `Accepted` beyond its
//! log; a ballot number at the end of its range; entries that are cut off; a heartbeat that is counted twice. Kinds of
//! message that no replica sends here (forwarded proposals, compaction, its stop-signs) cannot be decoded. One fault would
//! be silent: an entry that is appended right after an `AcceptSync` is added to an older message, and is missing after the
//! new one; so the crate's messages are taken out before a promise is handed in.
//! `tests/protocols/consensus/omnipaxos_traps.rs` shows these traps.
//!
//! # Caveats
//!
//! * The clock that comes with an input must be read after the input has arrived, and must continue while the machine
//!   sleeps (`CLOCK_BOOTTIME`). An older reading would make a lease look longer than it is.
//! * Clocks may differ in rate by what `lease_margin_ms` allows, and in time by any amount.
//! * `durability` must be at least `os`: a replica that forgets a promise cannot be a voter. With `os` the node reports
//!   records as durable at once, and if the operating systems of a majority crash, acknowledged writes are lost.
//! * A node that lost its storage, or has an older state of it, is ignored by every replica that has recorded a message of
//!   the storage, or of its newer state. That cannot be complete, as a replica may never have received one, or none recent
//!   enough; snapshots bring new replicas the voters' identities. The code that starts replicas must know, from the cluster
//!   map, that a node had storage before, and must not start it as the voter that it was. Removed and added again it is a
//!   new voter.
//! * The first configuration has the number 1, and only its members begin with nothing. All of them must receive it, and
//!   have begun it durably, before the control group names another: a replica that first receives a later one waits for a
//!   snapshot, and if that shows it as a member already, it concludes that it has lost its storage.
//! * A rolled-back replica that believes that it is a group of one contacts no other, and so does not find out.
//!
//! Sources: Ng, Haridi and Carbone, "Omni-Paxos: Breaking the Barriers of Partial Connectivity" (EuroSys 2023); Davis et
//! al., "LeaseGuard: Raft Leases Done Right" (SIGMOD 2026).
//!
//! The folder `golden` shows each behaviour message by message.

mod agreement;
mod applied;
mod batch;
mod counters;
mod decider;
mod entry;
mod floor;
mod fragments;
mod group;
mod handover;
mod held;
mod incoming;
mod invariants;
#[cfg(test)]
mod kit;
mod leading;
mod links;
mod lock_leases;
mod log;
mod members;
pub mod message;
mod options;
mod outbox;
mod proposals;
mod reads;
mod receiving;
mod record;
mod recovering;
mod requests;
mod restoring;
mod rounds;
mod routing;
mod slices;
mod spilled;
mod status;
mod transfers;
mod turn;

use crate::coded::Fragments;
use crate::contract::{Effects, Input, NodeId, Now, Progress, SpilledValues, Submission};
use crate::recovery_line::RecoveryLine;
use crate::registers::Loss;
use crate::rest;
use crate::vouch::Vouch;
use agreement::Agreement;
use applied::Applied;
pub use entry::{Entry, Head, Proposer};
pub use group::{Group, Identity, Member, StopSign, Voter};
use held::HeldRequests;
use incoming::Incoming;
use kv::codec::Malformed;
use kv::table::{Changes, Eviction, Follows};
use kv::{Command, Interpreter, RecordName, ReplyBuffer, Table, UnixMs, Version, Watch};
use leading::number_of;
use links::Links;
use lock_leases::LockLeases;
use log::{Log, SharedLog};
use members::Members;
pub use message::{Body, Envelope, Message};
use options::Settings;
pub use options::{Lease, Options, Timing};
use proposals::Proposals;
pub use record::{Change, Moment};
pub use recovering::Found;
use restoring::Checkpoint;
use rounds::Rounds;
use routing::Asked;
pub use status::{Counters, FollowerStatus, Status};
use std::cell::RefCell;
use std::rc::Rc;
use transfers::Transfers;

/// One group's consensus state machine on one node. The module docs explain each component.
#[derive(Debug)]
pub struct Replica {
    settings: Settings,
    log: SharedLog,
    links: Links,
    members: Members,
    agreement: Agreement,
    proposals: Proposals,
    held: HeldRequests,
    applied: Applied,
    lock_leases: LockLeases,
    transfers: Transfers,
    incoming: Incoming,
    checkpoint: Option<Checkpoint>,
    rounds: Rounds,
    counters: Counters,
    /// What an operator says where its only replica was lost.
    recovery_line: RecoveryLine,
    /// The most of the log that its node has room for, in bytes.
    history_max: usize,
}

impl Replica {
    /// A replica without records, which does nothing until it is configured. `seed` protects its table against hash
    /// flooding. `random` is drawn at each start: it names this process, and its storage if that is used for the first time.
    pub fn new(id: NodeId, options: Options, timing: Timing, seed: u64, random: u64) -> Replica {
        Replica {
            settings: Settings { id, options, timing, seed, map_version: 0 },
            log: Rc::new(RefCell::new(Log::new(options.planted))),
            links: Links::new(random),
            members: Members::new(id),
            agreement: Agreement::new(),
            proposals: Proposals::default(),
            held: HeldRequests::default(),
            applied: Applied::new(seed, options),
            lock_leases: LockLeases::default(),
            transfers: Transfers::default(),
            incoming: Incoming::new(),
            checkpoint: None,
            rounds: Rounds::default(),
            counters: Counters::default(),
            recovery_line: RecoveryLine::default(),
            history_max: usize::MAX,
        }
    }

    /// Sets the interpreter that runs scripts. Must be called before anything else.
    pub fn set_interpreter(&mut self, interpreter: &'static dyn Interpreter) {
        self.applied.set_interpreter(interpreter);
    }

    /// Changes the options of the keyspace from now on.
    pub fn set_options(&mut self, options: Options) {
        self.settings.options = options;
    }

    /// The node that this replica is on.
    pub fn id(&self) -> NodeId {
        self.settings.id
    }

    /// Until when this leader may answer reads alone if nothing more is committed: 0 when it may not now, and `u64::MAX`
    /// when it is the only member.
    pub fn leased_until_us(&self, now: Now) -> u64 {
        match self.agreement.leadership() {
            Some(leadership) if self.may_answer(now) => {
                leadership.leased_until_us(self.links.is_alone(), &self.settings)
            }
            _ => 0,
        }
    }

    /// Answers a read from what is applied here, whatever the role: for people and tests that inspect one replica. The
    /// answer says nothing about other replicas.
    pub fn peek(&mut self, command: &Command<'_>, now: UnixMs, out: &mut ReplyBuffer) {
        self.applied.table_mut().read(command, now, out);
    }
}

impl crate::contract::Replica for Replica {
    type Message<'a> = Message<'a>;

    fn set_recovery_line(&mut self, line: RecoveryLine) {
        self.recovery_line = line;
    }

    fn set_history_max(&mut self, bytes: usize) {
        if std::mem::replace(&mut self.history_max, bytes) != bytes && self.links.is_started() {
            self.cut_log();
        }
    }

    fn set_map_version(&mut self, version: u64, moves: bool) {
        self.follow_map(version, moves);
    }

    fn leads_by_old_map(&self) -> bool {
        self.agreement.leadership().is_some_and(|leadership| leadership.is_below_floor(&self.settings))
    }

    fn decode(message: &[u8]) -> Result<Message<'_>, Malformed> {
        Message::decode(message)
    }

    #[inline]
    fn step(&mut self, now: Now, input: Input<'_, Message<'_>>, effects: &mut Effects) {
        let is_request = matches!(input, Input::Request(_));
        match input {
            Input::Request(&Submission { ticket, request, follows, seen, deadline_us, fenced }) => {
                self.rounds.wake(now, &mut self.links);
                self.request(now, Asked { ticket, follows, seen, deadline_us, fenced }, request, effects);
            }
            Input::Message { from, message } => {
                self.log.borrow_mut().set_now(now);
                self.message(now, from, message, effects);
            }
            Input::Configure(configuration) => {
                self.log.borrow_mut().set_now(now);
                self.rounds.wake(now, &mut self.links);
                self.configure(now, configuration, effects);
            }
            Input::Durable { record } => self.durable(record),
            Input::Link { peer, up } => {
                self.rounds.wake(now, &mut self.links);
                self.lock_leases.reach.link(now, peer, up);
                // `Position` repairs what a broken link has lost.
                if !up {
                    self.links.mark_down(peer);
                }
            }
            // A leader's lease is its log.
            Input::Lease { .. } => {}
            Input::Tick => self.tick(now, effects),
            Input::Retire => self.end_requests(effects),
            Input::Flush => {
                self.log.borrow_mut().set_now(now);
                self.flush(now, effects);
            }
        }
        if !is_request {
            self.check_step();
        }
    }

    fn wakeup_us(&self, now: Now) -> u64 {
        if self.applied.owes() {
            return now.monotonic_us;
        }
        let round_us = self.rounds.end_us().min(rest::tidied_us(self.applied.table(), now));
        let Some(leadership) = self.agreement.leadership() else { return round_us };
        if leadership.owes_answers() || leadership.slices().is_cut_short() {
            return now.monotonic_us;
        }
        let is_ahead = |at_us: &u64| *at_us > now.monotonic_us;
        let appends_from_us = Some(leadership.appends_from_us()).filter(is_ahead);
        let lease_us = self.lock_leases.next_due_us().filter(is_ahead);
        let gathered_us = leadership.gathered_is_due_us(now, &self.settings);
        let earlier_us = appends_from_us.into_iter().chain(lease_us).fold(gathered_us, u64::min);
        round_us.min(earlier_us)
    }

    fn set_reached(&mut self, now: Now, peer: NodeId, is_reached: bool) {
        self.rounds.set_reached(now, (peer, is_reached), &self.agreement, &mut self.links);
    }

    fn vouched(&mut self, peer: NodeId, vouch: Vouch) {
        self.links.vouched(peer, vouch);
    }

    fn loss(&self, _now: Now) -> Option<Loss> {
        let lost = vec![self.settings.id];
        self.members.is_lost().then(|| Loss { lost, ..Loss::default() })
    }

    fn hand_over(&mut self, now: Now, to: Option<NodeId>) -> bool {
        self.begin_handover(now, to)
    }

    fn is_resting(&self) -> bool {
        self.rounds.is_resting() && self.applied.table().is_tidy()
    }

    fn check_invariants(&self, _now: Now) {
        self.check_all();
    }

    fn replay(&mut self, now: Now, record: &[u8]) -> Result<(), Malformed> {
        self.take_record(now, record)
    }

    fn begin_checkpoint(&mut self) -> bool {
        self.start_checkpoint()
    }

    fn checkpoint_record(&mut self, bytes_max: usize, record: &mut Vec<u8>) -> Progress {
        self.next_checkpoint_record(bytes_max, record)
    }

    fn abandon_checkpoint(&mut self) {
        self.end_checkpoint();
    }

    fn held_and_applied(&self) -> Option<(Version, Version)> {
        Some((self.log.borrow().end_offset(), self.applied.offset()))
    }

    fn follow_changes(&mut self, follows: Follows) {
        self.applied.table_mut().follow_changes(follows);
    }

    fn keep_history(&mut self, bytes_max: usize) {
        self.applied.table_mut().keep_history(bytes_max);
    }

    fn dumped(&mut self) -> Option<&mut Table> {
        Some(self.applied.table_mut())
    }

    fn take_changes(&mut self) -> Option<Changes> {
        self.applied.table_mut().take_changes()
    }

    fn set_watch(&mut self, group: u16, watch: &'static dyn Watch) {
        self.applied.table_mut().set_watch(group, watch);
    }

    fn set_eviction(&mut self, eviction: Eviction) {
        self.applied.table_mut().set_eviction(eviction);
    }

    fn keep_expired(&mut self, is_kept: bool) {
        self.applied.table_mut().keep_expired(is_kept);
    }

    fn skip(&mut self, records: &[RecordName]) {
        self.applied.table_mut().skip(records);
    }

    fn stand_before(&mut self, record: Option<Version>) {
        self.applied.stand_before(record);
    }

    fn table(&self) -> &Table {
        self.applied.table()
    }

    #[inline]
    fn is_leader(&self) -> bool {
        self.agreement.leads()
    }

    fn led_by(&self, now: Now) -> Option<NodeId> {
        let leader = self.agreement.leader()?;
        let leads = match leader == self.settings.id {
            true => self.agreement.leads(),
            false => self.rounds.is_peer_live(now, leader, &self.links, &self.settings),
        };
        leads.then_some(leader)
    }

    #[inline]
    fn leads_in(&self) -> Option<u64> {
        self.agreement.leads_in().map(number_of)
    }

    #[inline]
    fn follows_in(&self) -> Option<(NodeId, u64, u64)> {
        let log = self.log.borrow();
        let ballot = log.promise();
        let has_its_log = log.accepted_round() == ballot && ballot.pid != 0 && !self.agreement.leads();
        has_its_log.then(|| (ballot.pid as NodeId, number_of(ballot), log.end() as u64))
    }

    fn is_void(&self, leader: NodeId, index: u64) -> Option<bool> {
        let log = self.log.borrow();
        let index = index as usize;
        if index < log.base() {
            return Some(false); // A snapshot stands for it.
        }
        for index in index..self.applied.index() {
            let Head { proposer, count, .. } = log.entry(index)?.head();
            if proposer.node != leader || count > 0 {
                return Some(proposer.node != leader);
            }
        }
        None
    }

    fn voters_of(&self, now: Now, membership: u64) -> Option<Vec<NodeId>> {
        let status = self.status(now);
        if !self.is_leader() || !status.writable || u64::from(status.configuration) != membership {
            return None;
        }
        let holds_all =
            |follower: &&FollowerStatus| follower.live && follower.accepted >= status.applied_entries;
        let followers = status.followers.iter().filter(holds_all).map(|follower| follower.id);
        let mut voters: Vec<NodeId> = followers.chain([self.settings.id]).collect();
        voters.sort_unstable();
        Some(voters)
    }

    fn memory_bytes(&self) -> usize {
        self.applied.table().memory_bytes() + self.applied.fragments().memory_bytes()
    }

    fn unapplied(&self) -> (usize, usize) {
        let (commands, bytes) = (self.proposals.commands(), self.proposals.bytes());
        let gathered = self.agreement.leadership().map_or((0, 0), leading::Leadership::gathered);
        (commands + gathered.0, bytes + gathered.1)
    }

    fn summary(&self, now: Now) -> crate::status::Status {
        self.status(now).into()
    }

    fn is_urgent(&self, message: &[u8]) -> bool {
        message::is_urgent(message)
    }

    fn fragments(&self) -> Option<&dyn Fragments> {
        Some(self)
    }

    fn fragments_mut(&mut self) -> Option<&mut dyn Fragments> {
        Some(self)
    }

    fn spilled_values(&self) -> Option<&dyn SpilledValues> {
        Some(self)
    }

    fn spilled_values_mut(&mut self) -> Option<&mut dyn SpilledValues> {
        Some(self)
    }
}

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
//!    |           | applied, seen            |                     |
//!    |<-- OK ----|                          |                     |
//!    |           |-- Decide 7 ------------->| applied             |
//! ```
//!
//! # Promise
//!
//! * Writes take effect in one order, and one at a time. A write that was acknowledged is durable on a majority and is
//!   never lost while a majority of the disks is not.
//! * Reads are linearizable: they see every write that was acknowledged, by whatever leader, before they began. With
//!   `reads = any` any replica answers: a prefix of that order, and never less than its client has seen here.
//! * A write ends as done when it is applied; as refused when it was not proposed, or when another entry was decided in
//!   its place, so that it never will take effect; as unknown when neither is known in time. Nothing is proposed twice.
//!
//! While the leader's last batch is not durable on its own disk, what comes is gathered, for the next one (and a little
//! longer if more is expected: see `leading`); and that tells the followers, too, what has been decided meanwhile.
//!
//! # Who does what
//!
//! The crate elects a leader by heartbeats (`HeartbeatRequest`, `HeartbeatReply`), takes over (`Prepare`, `Promise`,
//! `AcceptSync`) and replicates (`AcceptDecide`, `Accepted`, `Decide`); its paper is its documentation. Everything else
//! is ours: batching ([`Entry`]), records and durability (`log`, [`Change`]), links (`links`), what may reach the crate
//! (`receiving`), applying and outcomes (`applying`), requests and reads (`requests`), the lease (`leading`), the leases of
//! locks (`lock_leases`), copies of the table (`copying`), changes of members (`membership`), restarts and checkpoints (`restoring`). In a group of one
//! the crate is not used.
//!
//! # Why it holds
//!
//! **What is said is durable.** Records are made in order and become durable in order. A follower's message leaves when
//! all its records are durable; so a promise, and an acceptance, survives whoever gave it. A candidate's `Prepare`
//! waits in the same way: nobody ever hears of a ballot that its owner could forget and use again, for another log. Only
//! what a leader sends beyond that, `AcceptSync` and `AcceptDecide`, leaves before its own records are durable. The crate
//! counts the leader's own entries as accepted at once. To undo that, an `Accepted` is passed on only as far as the
//! leader's own log is durable in its ballot (`count_accepted`). An index is decided only by such a message, so what is
//! decided is durable at the leader and at as many followers as make a majority with it.
//!
//! **The crate gets the links that it needs.** It is right when links lose messages but never repeat, delay or reorder
//! them, or bring them to another life of the receiver; see `links` for what happens else. Losses it repairs only when
//! something follows, so the leader tells each round how far it is (`Position`): whoever has less begins anew with it,
//! whoever has all says so again.
//!
//! **Copies.** A replica whose log ends before another one's begins gets a copy of the table at a decided index S, and
//! with it the sender's log behind S and the ballot q in which that was accepted. It takes these over if (q, length) is
//! more than its own (m, length). Let C be chosen in ballot c, and let a later candidate find this replica's new log to be
//! the greatest of a majority. If q > c the sender's log extends C, by the invariant of Paxos. If q < c, some member of
//! the majority accepted C in c and would have been greater; if that is this replica itself, m >= c > q and nothing was
//! taken over. If q = c, either another member holds C in c and the greatest is no shorter; or only this one did, so that
//! m = q and the sender's log, which is longer than its own, is no shorter than C. S was decided in a ballot of at most q,
//! so the log never ends before what is decided. A copy leaves nothing half done: it is recorded as it comes, and what
//! rests on it is said when all of it is durable.
//!
//! **The log is the lease** (LeaseGuard, SIGMOD 2026). A leader answers reads alone until a lease after it *proposed*
//! the newest entry that was decided in its own ballot. Say it did at P, on its clock. Whoever leads in a later ballot
//! has that entry in its log when it has taken over, and it came there after P: R, the moment when the newest entry of
//! the log that was taken over came to this replica, is later still. The new leader appends nothing before R plus a lease
//! plus a margin for two clocks that drift apart. By then the old leader has stopped answering. What the new leader
//! inherits is decided by the crate at once, but it answers no read before an entry of its own is decided, and it is not
//! asked before. Replies to writes that were inherited need not wait: their proposer waited for every older lease before
//! it proposed them, and a leader between has either applied them or will never see them decided. So who votes is of no
//! consequence, and a follower that has just started may help to elect: leases are in the log, not in anybody's memory.
//! The usual wait is short: an old leader that has died sent its last entry before the others missed it. With
//! `lease = off` a read is answered when a majority has said, after the read came, that it has promised nothing newer.
//! In either case the whole inherited log is applied first.
//!
//! **Lost is lost.** A proposal stands at one index of logs, in the ballot in which its proposer appended it; taking over
//! a log does not move it. So when another entry is decided there, or a later proposal of the same replica is decided in
//! a log without it, it never will be, and its client is told that nothing was done.
//!
//! **A configuration ends in its own log.** The control group names the next configuration; the leader orders it as an
//! entry, the stop-sign, and appends nothing behind it in this configuration. A leader that inherits one appends nothing
//! either. So a stop-sign is the last entry of every log that holds one, and once it is decided, at S - 1, nothing is
//! ever decided behind it: every later leader has it. Whoever applies it begins the next configuration, in one record:
//! its number and members, a log that ends at S, no promise, no accepted ballot. It never votes in the old one again. All
//! who begin the new configuration thus begin it with the same log, which is decided, and Paxos goes on from there: old
//! and new voters need have nobody in common, and it does not matter how many of them change. Ballots carry their
//! configuration's number; those of different ones are never compared (the crate would).
//!
//! Nobody votes in a configuration before it holds that log, nor becomes a member before an earlier state is durable there
//! (but for the first configuration's, which begin with nothing). So a replica that has nothing, and gets a copy in which
//! it is a member, has lost what it had. A replica without a vote has what is decided by a copy, or
//! by being told the entries (`Decided`), which end at a stop-sign: what the new configuration decides behind S comes by
//! the crate, or by a copy that brings the sender's accepted ballot with it. A voter that knew entries to be decided
//! without a ballot for them would answer a candidate that it has less than it has, and the candidate would order
//! something else there. So a voter takes `Decided` only if it ends its configuration, and only who has a vote, or is at S
//! exactly, sends copies. Laggards of the old configuration can still decide the stop-sign among themselves; if they are
//! too few because the others have moved on, these know that it is decided, and tell.
//!
//! What a replica had proposed at S or behind it in the old configuration never happens: nothing is decided there in it,
//! and only the proposer ever puts an entry in a log, once. It is refused. What was not proposed waits for the next leader.
//!
//! **Leases across configurations.** The argument above names no configuration. An old leader's lease begins with the
//! proposal of an entry that was decided in its own ballot. That entry stands before S, or is the stop-sign; so whoever
//! leads the new configuration has it, and it came there after it was proposed. The moment when the newest entry came (R)
//! goes over into the new configuration with the log, and the wait from R covers every lease of the old one. With a copy
//! or a restart R is later than it need be. It holds for a group of one, too, unless nobody else was ever in it: such a
//! leader waits, and reads wait with it, as what it inherits may be newer than what the old leader answers. One wait is
//! spared. Who led the old configuration to its end, by counting votes itself, had waited for all older leases of it, has
//! dropped its own, and no later ballot of it had an entry but the stop-sign. If such a replica leads the new
//! configuration and its log ends at S, nobody was leader of that before with anything decided, and there is no lease.
//!
//! # What is kept from the crate
//!
//! Its own stop-signs, for two reasons. They cannot name a group of one. And they are no entries: a follower that has
//! accepted one in this ballot and starts over with its leader counts it twice, says that it holds an entry too many, and
//! never sees it decided (`tests/consensus_stop_sign.rs`). As entries they need nothing of their own in records, copies and
//! `AcceptSync`.
//!
//!
//! It panics, or does worse, on: an answer from a stranger (its node number indexes a vector); an `AcceptSync` or
//! `Promise` whose entries begin before what is decided or behind the log's end; an `Accepted` beyond its log; a ballot
//! number at the end of its range; entries that are cut off; a heartbeat that is counted twice. Kinds of message that
//! nobody here sends (forwarded proposals, compaction, stop-signs) cannot be decoded. One of its faults would be silent: an
//! entry that is appended right behind an `AcceptSync` is added to an older message, and is missing behind the new one:
//! its messages are taken away before a promise is handed in. `tests/protocols/consensus/omnipaxos_traps.rs` shows these traps.
//!
//! # Caveats
//!
//! * The clock that comes with an input must have been read after the input had arrived, and must go on while the
//!   machine sleeps (`CLOCK_BOOTTIME`). An older reading would make a lease look longer than it is.
//! * Clocks may differ in rate by what `lease_margin_ms` allows, and in time by anything.
//! * `durability` must be at least `os`: a replica that forgets a promise is not a voter. With `os` the node says at once
//!   that records are durable, and an operating system that crashes with a majority loses what was acknowledged.
//! * A node that lost its storage, or has an older state of it, is not listened to by whoever has heard it since. That
//!   cannot be complete, as somebody may never have heard it, or not lately; copies tell newcomers who the voters are.
//!   Whoever starts replicas must know, from the cluster's map, that a node had storage before, and not start it as the
//!   voter that it was. Removed and added again it is a new voter.
//! * The first configuration has the number 1, and only its members begin with nothing. All of them must be told it, and
//!   have begun it durably, before the control group names another: whoever is told a later one first waits for a copy,
//!   and if that shows it as a member already, takes itself for one that has lost its storage.
//! * A rolled-back replica that believes to be a group of one asks nobody, and finds out nothing.
//!
//! Sources: Ng, Haridi and Carbone, "Omni-Paxos: Breaking the Barriers of Partial Connectivity" (EuroSys 2023); Davis et
//! al., "LeaseGuard: Raft Leases Done Right" (SIGMOD 2026).
//!
//! The folder `golden` shows each behaviour message by message.

mod agreement;
mod applying;
mod copying;
mod entry;
mod fragments;
mod group;
mod invariants;
mod leading;
mod links;
mod lock_leases;
mod log;
mod membership;
pub mod message;
mod options;
mod receiving;
mod record;
mod requests;
mod rest;
mod restoring;
mod spilled;
mod status;
mod waiting;

use crate::coded::{FragmentStore, Fragments};
use crate::contract::{Effects, Input, NodeId, Now, Progress, SpilledValues};
use crate::planted::Fault;
use crate::rest::Rest;
use agreement::{Agreement, CrateMessage};
use entry::EntryBuilder;
pub use entry::{Entry, Head, Proposer};
pub use group::{Group, Identity, Member, StopSign, Voter};
use kv::codec::Malformed;
use kv::{Interpreter, NoInterpreter, RecordName, Table, UnixMs, Version, Watch};
use leading::Leadership;
use links::Link;
use log::{Handle, Log};
use message::Stream;
pub use message::{Body, Envelope, Message};
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::ballot_leader_election::HeartbeatMsg;
use omnipaxos::messages::sequence_paxos::PaxosMsg;
use omnipaxos::storage::{Storage, StorageOp};
pub use options::{Lease, Options, Timing};
use record::put_changes;
pub use record::{Change, Moment};
use requests::{Asked, number_of};
pub use status::{Counters, FollowerStatus, Status};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use waiting::{Asker, Held, Proposals, Reads, Wait};

/// How many keys of those that were removed all at once are dropped per tick: some milliseconds of work.
const TIDIED_KEYS: usize = 10_000;

/// One group's consensus state machine on one node.
#[derive(Debug)]
pub struct Replica {
    id: NodeId,
    options: Options,
    timing: Timing,
    /// Seeds the hash of every table made here.
    seed: u64,
    /// Who this replica is to its peers.
    identity: Identity,
    /// The record that says so: no message may leave before it.
    life_record: u64,
    /// It has been configured: its records are read.
    is_started: bool,
    /// The map would like this replica to lead, so that leaders are spread over nodes.
    is_preferred: bool,
    /// The configuration that holds behind what is applied.
    group: Group,
    /// The newest configuration that the control group has told, and the newest that a peer was heard to be in.
    wanted: StopSign,
    newer: membership::Newer,
    /// It is no voter as the member that it has been since that configuration: its storage is not what it was.
    excluded: Option<u32>,
    log: Rc<RefCell<Log>>,
    /// None while it has no vote.
    agreement: Option<Agreement>,
    /// The other voters.
    links: Vec<Link>,
    /// Others who were heard, or are to be.
    outsiders: Vec<Link>,
    /// The voters that were ever heard, as records say.
    voters: BTreeMap<NodeId, Voter>,
    /// Those who are to be members: how far they have come.
    learners: BTreeMap<NodeId, membership::Learner>,
    /// Who is asked for help next.
    questions_for_help: usize,

    /// The keys and values: exactly what the first `applied` entries made.
    table: Table,
    /// What runs scripts.
    interpreter: &'static dyn Interpreter,
    /// This record is not applied, nor any behind it.
    stands_before: Option<Version>,
    applied: usize,
    /// How many commands these held.
    offset: Version,
    /// The time of the newest of them.
    time: UnixMs,

    leadership: Option<Leadership>,
    /// It led to the end of a configuration: where that was, and from when on it was allowed to append.
    led_until: Option<(usize, u64)>,
    /// The promise that was last told as a change.
    told_promise: Ballot,
    /// Who asked for the newest promise that was asked for in this life.
    promised_to: Option<(Ballot, Identity)>,
    /// Commands that are not proposed yet, and who waits for each.
    builder: EntryBuilder,
    builder_askers: Vec<Asker>,
    /// About how long they take, those that take long, in nanoseconds.
    builder_ns: u64,
    /// Which of them are fenced.
    builder_fenced: Vec<usize>,
    proposals: Proposals,
    /// The last batch that held a purge: no other before it has an end.
    purge_batch: u64,
    reads: Reads,
    /// Reads that wait for a batch of their own client.
    reads_behind: Reads,
    /// Reads that came while their batch was built, with their places in it: what their client writes behind them, in the
    /// same batch, they must not see.
    reads_within: Reads,
    /// The last question to confirm the leader that was asked.
    questions: u64,
    /// A read came since the last entry was proposed.
    is_read: bool,
    /// Reads that could have been answered wait for the next turn: the replies of this one are many bytes.
    owes_answers: bool,
    /// Decided entries wait for the next turn to be applied: those of this one took long.
    owes_applying: bool,
    waits: Vec<Wait>,
    lock_leases: lock_leases::LockLeases,
    held: VecDeque<Held>,
    /// Some of them are fenced.
    holds_fenced: bool,

    senders: Vec<copying::Sender>,
    /// The name of the last transfer.
    transfers: u64,
    receiver: Option<copying::Receiver>,
    installed_transfer: (NodeId, u64),
    checkpoint: Option<restoring::Checkpoint>,
    replayed_copy: Option<restoring::Replay>,

    rest: Rest,
    next_round_us: u64,
    /// What the round's heartbeats were answered with.
    answers: Vec<(NodeId, HeartbeatMsg)>,
    /// The promise at the beginning of the round.
    round_promise: Ballot,
    /// The followers are to be told how far the leader has come.
    is_position_due: bool,
    outgoing: Vec<CrateMessage>,
    counters: Counters,
    fragments: FragmentStore,
}

impl Replica {
    /// A replica without records, which does nothing until it is configured. `seed` keeps its table from flooding.
    /// `random` is drawn anew at each start: it names this process, and its storage if that is used for the first time.
    pub fn new(id: NodeId, options: Options, timing: Timing, seed: u64, random: u64) -> Replica {
        Replica {
            id,
            options,
            timing,
            seed,
            identity: Identity { storage: random, life: 0, process: random },
            life_record: 0,
            is_started: false,
            is_preferred: false,
            group: Group::default(),
            wanted: StopSign { id: 0, members: Vec::new() },
            newer: membership::Newer::default(),
            excluded: None,
            log: Rc::new(RefCell::new(Log::new(options.planted))),
            agreement: None,
            links: Vec::new(),
            outsiders: Vec::new(),
            voters: BTreeMap::new(),
            learners: BTreeMap::new(),
            questions_for_help: 0,
            table: copying::new_table(seed, options),
            interpreter: &NoInterpreter,
            stands_before: None,
            applied: 0,
            offset: 0,
            time: 0,
            leadership: None,
            led_until: None,
            told_promise: Ballot::default(),
            promised_to: None,
            builder: EntryBuilder::new(),
            builder_askers: Vec::new(),
            builder_ns: 0,
            builder_fenced: Vec::new(),
            proposals: Proposals::default(),
            purge_batch: 0,
            reads: Reads::default(),
            reads_behind: Reads::default(),
            reads_within: Reads::default(),
            questions: 0,
            is_read: false,
            owes_answers: false,
            owes_applying: false,
            waits: Vec::new(),
            lock_leases: lock_leases::LockLeases::default(),
            held: VecDeque::new(),
            holds_fenced: false,
            senders: Vec::new(),
            transfers: 0,
            receiver: None,
            installed_transfer: (0, 0),
            checkpoint: None,
            replayed_copy: None,
            rest: Rest::default(),
            next_round_us: 0,
            answers: Vec::new(),
            round_promise: Ballot::default(),
            is_position_due: false,
            outgoing: Vec::new(),
            counters: Counters::default(),
            fragments: FragmentStore::default(),
        }
    }

    /// Scripts are run by this interpreter. To be told before anything else.
    pub fn set_interpreter(&mut self, interpreter: &'static dyn Interpreter) {
        self.interpreter = interpreter;
        self.table.set_interpreter(interpreter);
    }

    /// The keyspace promises something else from now on.
    pub fn set_options(&mut self, options: Options) {
        self.options = options;
    }

    /// The node that it is on.
    pub fn id(&self) -> NodeId {
        self.id
    }

    fn majority(&self) -> usize {
        self.group.members.len() / 2 + 1
    }

    fn peers(&self) -> Vec<NodeId> {
        self.links.iter().map(|link| link.peer).collect()
    }

    fn link(&self, peer: NodeId) -> Option<&Link> {
        self.links.iter().chain(&self.outsiders).find(|link| link.peer == peer)
    }

    fn link_mut(&mut self, peer: NodeId) -> Option<&mut Link> {
        self.links.iter_mut().chain(&mut self.outsiders).find(|link| link.peer == peer)
    }

    /// True when what is applied here is a state that the group was in, and not the emptiness before.
    fn is_filled(&self) -> bool {
        self.applied > 0
    }

    /// Gives the log as it is to the crate. Not for the first time when a copy has changed it: what the crate was about
    /// to say is forgotten, as if the replica had been started again.
    fn begin_agreement(&mut self) {
        // Answers to an earlier instance are of another configuration, or of another round.
        self.answers.clear();
        self.round_promise = self.log.borrow().promise();
        let crate_options = (self.group.id, self.timing.resend_rounds);
        let agreement =
            Agreement::new(self.id, &self.group.nodes(), crate_options, self.is_preferred, &self.log);
        if let Agreement::Alone { ballot } = agreement {
            let took_over = vec![StorageOp::SetPromise(ballot), StorageOp::SetAcceptedRound(ballot)];
            let _ = Handle(Rc::clone(&self.log)).write_atomically(took_over);
        }
        self.agreement = Some(agreement);
    }

    fn tick(&mut self, now: Now, effects: &mut Effects) {
        self.table.tidy(TIDIED_KEYS);
        self.end_overdue(now, effects);
        if now.monotonic_us < self.next_round_us {
            return;
        }
        // A round that was slept through is not made up for: nobody could have answered in it.
        self.next_round_us = now.monotonic_us + self.timing.heartbeat_ms * 1000;
        // The answers show how the others stood when the round began. When another candidate has won this replica's promise
        // since, all may seem to be without a leader still, and the crate would bid against that candidate: it is not told
        // who answered, and bids in a later round if need be.
        let was_calm = self.is_calm();
        let promise = self.log.borrow().promise();
        let is_won = promise > self.round_promise && promise.pid != u64::from(self.id);
        self.round_promise = promise;
        let answers = std::mem::take(&mut self.answers);
        if let Some(agreement) = &mut self.agreement {
            for (from, answer) in answers.into_iter().filter(|_| !is_won) {
                agreement.heartbeat(self.id, from, answer);
            }
            agreement.tick();
        }
        self.ask_for_help(now, effects);
        self.invite_newcomers(now, effects);
        self.look_at_leadership(effects);
        self.log.borrow_mut().record_decided();
        self.abandon_stuck_copies(now, effects);
        self.let_fragments_go(now);
        self.is_position_due = true;
        let leased = self.is_leased(now);
        if let Some(leadership) = &mut self.leadership {
            leadership.leased_at_tick = leased;
        }
        self.rest_after(now, was_calm && !is_won);
    }

    /// The turn ends.
    fn flush(&mut self, now: Now, effects: &mut Effects) {
        if !self.is_started {
            return;
        }
        self.end_overdue(now, effects);
        self.release_held(now, effects);
        if self.leadership.is_none() {
            self.keep_requests(effects);
        }
        self.propose(now);
        self.apply(effects);
        self.answer_reads(now, effects);
        self.end_waits(now, effects);
        self.cut_log();
        self.send_crate_messages(effects);
        self.send_own_messages(effects);
        self.advance_copies(now, effects);
        for changes in self.log.borrow_mut().take_records() {
            let record = effects.encode(|out| put_changes(out, &changes));
            effects.records.push(record);
        }
    }

    fn send_crate_messages(&mut self, effects: &mut Effects) {
        let mut messages = std::mem::take(&mut self.outgoing);
        if let Some(agreement) = &mut self.agreement {
            agreement.take_messages(&mut messages);
        }
        if self.brings_more_soon() && messages.iter().all(is_decide) {
            self.outgoing = messages;
            return;
        }
        for message in messages.drain(..) {
            let to = message.get_receiver() as NodeId;
            let body = match message {
                CrateMessage::SequencePaxos(message) => Body::Paxos(message.msg),
                CrateMessage::BLE(message) => Body::Heartbeat(message.msg),
            };
            self.send(to, body, effects);
        }
        self.outgoing = messages;
    }

    /// Whether the followers may hear that entries are decided together with the next entry: it is being gathered. Never
    /// behind a [`Body::Position`], which would tell them that they lack what they were not told.
    fn brings_more_soon(&self) -> bool {
        self.leadership.is_some() && !self.builder_askers.is_empty() && !self.is_position_due
    }

    /// What the leader adds to the crate's messages.
    fn send_own_messages(&mut self, effects: &mut Effects) {
        let is_position_due = std::mem::take(&mut self.is_position_due);
        let Some(Leadership { ballot, .. }) = self.leadership else { return };
        let has_readers = self.readers().next().is_some();
        let has_new_readers = self.readers().any(|reads| reads.last_question() > self.questions);
        let asks = self.options.lease == Lease::Off && has_readers && (has_new_readers || is_position_due);
        if asks {
            self.questions += 1;
        }
        let (end, decided) = {
            let log = self.log.borrow();
            (log.end() as u64, log.decided() as u64)
        };
        let number = self.questions;
        for peer in self.peers() {
            if asks {
                self.send(peer, Body::Confirm { ballot, number }, effects);
            }
            if is_position_due {
                self.send(peer, Body::Position { ballot, end, decided }, effects);
            }
        }
    }

    /// Sends a message when what it says may be known.
    ///
    /// A follower's words rest on all its records; a leader's on the promise by which it leads, and what it asks others
    /// to accept it may say before it has it safe itself. What waits keeps its place: see [`Link::send`].
    fn send(&mut self, to: NodeId, body: Body<'_>, effects: &mut Effects) {
        let planted = self.options.planted;
        let log = self.log.borrow();
        let after_record = match &body {
            Body::Paxos(PaxosMsg::Promise(_)) if planted.has(Fault::VotePersistedAfterReply) => 0,
            Body::Paxos(PaxosMsg::Accepted(_)) if planted.has(Fault::AcceptedBeforeDurable) => 0,
            // A newcomer is counted on as far as it cannot forget.
            Body::Behind { .. } => log.recorded(),
            body if body.stream() == Stream::Loose => self.life_record,
            _ if self.leadership.is_some() => self.life_record.max(log.promise_record()),
            _ => log.recorded(),
        };
        drop(log);
        let envelope =
            Envelope { configuration: self.group.id, sender: self.identity, ..Envelope::default() };
        if let Some(link) = self.link_mut(to) {
            link.send(envelope, after_record, body, effects);
        }
    }
}

fn is_decide(message: &CrateMessage) -> bool {
    matches!(message, CrateMessage::SequencePaxos(message) if matches!(message.msg, PaxosMsg::Decide(_)))
}

impl crate::contract::Replica for Replica {
    type Message<'a> = Message<'a>;

    fn decode(message: &[u8]) -> Result<Message<'_>, Malformed> {
        Message::decode(message)
    }

    #[inline]
    fn step(&mut self, now: Now, input: Input<'_, Message<'_>>, effects: &mut Effects) {
        let is_request = matches!(input, Input::Request { .. });
        match input {
            Input::Request { ticket, request, follows, seen, deadline_us, fenced } => {
                self.wake(now);
                self.request(now, Asked { ticket, follows, seen, deadline_us, fenced }, request, effects);
            }
            Input::Message { from, message } => {
                self.log.borrow_mut().now_us = now.monotonic_us;
                self.message(now, from, message, effects);
            }
            Input::Configure(configuration) => {
                self.log.borrow_mut().now_us = now.monotonic_us;
                self.wake(now);
                self.configure(now, configuration, effects);
            }
            Input::Durable { record } => self.durable(record),
            Input::Link { peer, up } => {
                self.wake(now);
                self.lock_leases.link(now, peer, up);
                // What a broken link has lost `Position` repairs.
                if !up && let Some(link) = self.link_mut(peer) {
                    link.is_down();
                }
            }
            // Its lease is its log.
            Input::Lease { .. } => {}
            Input::Tick => self.tick(now, effects),
            Input::Retire => self.end_requests(now, effects),
            Input::Flush => {
                self.log.borrow_mut().now_us = now.monotonic_us;
                self.flush(now, effects);
            }
        }
        if !is_request {
            self.check_step();
        }
    }

    fn wakeup_us(&self, now: Now) -> u64 {
        if self.owes_answers || self.owes_applying {
            return now.monotonic_us;
        }
        let appends_from_us = self.leadership.map(|leadership| leadership.appends_from_us);
        let waits_until_us = appends_from_us.filter(|from_us| *from_us > now.monotonic_us);
        let lease_us = self.leadership.and(self.lock_leases.next_due_us());
        let lease_us = lease_us.filter(|due_us| *due_us > now.monotonic_us);
        let round_us = self.next_round_us.min(self.gathered_is_due_us(now));
        round_us.min(waits_until_us.unwrap_or(u64::MAX)).min(lease_us.unwrap_or(u64::MAX))
    }

    fn set_reached(&mut self, now: Now, peer: NodeId, is_reached: bool) {
        self.note_reached(now, peer, is_reached);
    }

    fn is_resting(&self) -> bool {
        self.rest.is_resting()
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
        self.give_up_checkpoint();
    }

    fn set_watch(&mut self, group: u16, watch: &'static dyn Watch) {
        self.table.set_watch(group, watch);
    }

    fn skip(&mut self, records: &[RecordName]) {
        self.table.skip(records);
    }

    fn stand_before(&mut self, record: Option<Version>) {
        self.stands_before = record;
    }

    fn table(&self) -> &Table {
        &self.table
    }

    #[inline]
    fn is_leader(&self) -> bool {
        self.leadership.is_some()
    }

    fn led_by(&self, now: Now) -> Option<NodeId> {
        match self.leader() {
            Some(leader) if leader == self.id => self.leadership.is_some().then_some(leader),
            Some(leader) if self.is_peer_live(now, leader) => Some(leader),
            _ => None,
        }
    }

    #[inline]
    fn leads_in(&self) -> Option<u64> {
        self.leadership.map(|leadership| number_of(leadership.ballot))
    }

    #[inline]
    fn follows_in(&self) -> Option<(NodeId, u64, u64)> {
        let log = self.log.borrow();
        let ballot = log.promise();
        let has_its_log = log.accepted_round() == ballot && ballot.pid != 0 && self.leadership.is_none();
        has_its_log.then(|| (ballot.pid as NodeId, number_of(ballot), log.end() as u64))
    }

    fn is_void(&self, leader: NodeId, index: u64) -> Option<bool> {
        let log = self.log.borrow();
        let index = index as usize;
        if index < log.base() {
            return Some(false); // A copy stands for it.
        }
        for index in index..self.applied {
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
        let mut voters: Vec<NodeId> = followers.chain([self.id]).collect();
        voters.sort_unstable();
        Some(voters)
    }

    fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.fragments.bytes()
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

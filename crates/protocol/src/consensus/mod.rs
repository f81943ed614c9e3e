//! Consensus.

mod agreement;
mod applying;
mod copying;
mod entry;
mod leading;
mod links;
mod log;
pub mod message;
mod options;
mod receiving;
mod record;
mod requests;
mod restoring;
mod status;
mod waiting;

use crate::contract::{Configuration, Effects, Input, NodeId, Now, Trace};
use crate::planted::Fault;
use agreement::{Agreement, CrateMessage};
pub use entry::{Entry, Head, Proposer};
use kv::{ReplyBuffer, Table, UnixMs, Version};
use leading::Leadership;
use links::Link;
use log::{Handle, Log};
pub use message::{Body, Envelope, Message};
use message::Stream;
use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::sequence_paxos::PaxosMsg;
use omnipaxos::storage::{Storage, StorageOp};
pub use options::{Lease, Options, Timing};
pub use record::{Change, Moment};
use requests::Asked;
pub use restoring::Progress;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
pub use status::{Counters, FollowerStatus, Status};
use waiting::{Asker, Held, Proposals, Reads, Wait};

/// Reconfiguration, which is not built yet, will begin each configuration with a higher one.
const CONFIGURATION_ID: u32 = 1;

/// One group's consensus state machine on one node.
#[derive(Debug)]
pub struct Replica {
    id: NodeId,
    options: Options,
    timing: Timing,
    /// Seeds the hash of every table made here.
    seed: u64,
    /// Who this replica is to its peers: its storage.
    identity: u64,
    /// How often it was started with that storage.
    life: u64,
    /// The record that says so: no message may leave before it.
    life_record: u64,
    configuration_id: u32,
    members: Vec<NodeId>,
    log: Rc<RefCell<Log>>,
    /// None before it is configured.
    agreement: Option<Agreement>,
    links: Vec<Link>,
    /// Identities of peers that were ever heard, from records.
    identities: BTreeMap<NodeId, u64>,

    /// The keys and values: exactly what the first `applied` entries made.
    table: Table,
    applied: usize,
    /// How many commands these held.
    offset: Version,
    /// The time of the newest of them.
    time: UnixMs,
    /// Replies nobody reads.
    discarded: ReplyBuffer,

    leadership: Option<Leadership>,
    /// The promise that was last told as a change.
    told_promise: Ballot,
    /// This turn's commands, and who waits for each.
    builder: Vec<u8>,
    builder_askers: Vec<Asker>,
    proposals: Proposals,
    /// The last batch that held a purge: no other before it has an end.
    purge_batch: u64,
    reads: Reads,
    /// Reads that wait for a batch of their own client.
    reads_behind: Reads,
    /// The last question to confirm the leader that was asked.
    questions: u64,
    /// A read came since the last entry was proposed.
    is_read: bool,
    waits: Vec<Wait>,
    held: VecDeque<Held>,

    senders: Vec<copying::Sender>,
    /// Transfers begun in this life.
    transfers: u64,
    receiver: Option<copying::Receiver>,
    installed_transfer: (NodeId, u64),
    checkpoint: Option<restoring::Checkpoint>,
    replayed_copy: Option<restoring::Replay>,

    next_round_us: u64,
    /// The followers are to be told how far the leader has come.
    is_position_due: bool,
    outgoing: Vec<CrateMessage>,
    counters: Counters,
}

impl Replica {
    /// A replica without records, which does nothing until it is configured. `seed` keeps its table from flooding.
    /// `identity` is drawn at random for storage that is used for the first time; records bring their own.
    pub fn new(id: NodeId, options: Options, timing: Timing, seed: u64, identity: u64) -> Replica {
        Replica {
            id,
            options,
            timing,
            seed,
            identity,
            life: 0,
            life_record: 0,
            configuration_id: CONFIGURATION_ID,
            members: Vec::new(),
            log: Rc::new(RefCell::new(Log::new(options.planted))),
            agreement: None,
            links: Vec::new(),
            identities: BTreeMap::new(),
            table: Table::new(seed),
            applied: 0,
            offset: 0,
            time: 0,
            discarded: ReplyBuffer::new(),
            leadership: None,
            told_promise: Ballot::default(),
            builder: Vec::new(),
            builder_askers: Vec::new(),
            proposals: Proposals::default(),
            purge_batch: 0,
            reads: Reads::default(),
            reads_behind: Reads::default(),
            questions: 0,
            is_read: false,
            waits: Vec::new(),
            held: VecDeque::new(),
            senders: Vec::new(),
            transfers: 0,
            receiver: None,
            installed_transfer: (0, 0),
            checkpoint: None,
            replayed_copy: None,
            next_round_us: 0,
            is_position_due: false,
            outgoing: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// The keys and values: exactly what is decided and applied here.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// True when this replica leads, as far as it knows.
    #[inline]
    pub fn is_leader(&self) -> bool {
        self.leadership.is_some()
    }

    fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    fn peers(&self) -> Vec<NodeId> {
        self.links.iter().map(|link| link.peer).collect()
    }

    fn link(&self, peer: NodeId) -> Option<&Link> {
        self.links.iter().find(|link| link.peer == peer)
    }

    fn link_mut(&mut self, peer: NodeId) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.peer == peer)
    }

    /// True when what is applied here is a state that the group was in, and not the emptiness before.
    fn is_filled(&self) -> bool {
        self.applied > 0
    }

    fn configure(&mut self, now: Now, configuration: &Configuration, effects: &mut Effects) {
        if !configuration.members.contains(&self.id) || self.agreement.is_some() {
            if self.agreement.is_some() && configuration.members != self.members {
                let why = "the members of a consensus group cannot be changed yet";
                effects.trace.push(Trace::Rejected { peer: self.id, why });
            }
            return;
        }
        self.members = configuration.members.clone();
        let peers = self.members.iter().copied().filter(|member| *member != self.id);
        self.links = peers.map(|peer| Link::new(peer, self.identities.get(&peer).copied())).collect();
        self.begin_life();
        self.begin_agreement();
        self.next_round_us = now.monotonic_us + self.timing.heartbeat_ms * 1000;
        self.look_at_leadership(effects);
    }

    /// Gives the log as it is to the crate. Not for the first time when a copy has changed it: what the crate was about
    /// to say is forgotten, as if the replica had been started again.
    fn begin_agreement(&mut self) {
        let crate_options = (self.configuration_id, self.timing.resend_rounds);
        let agreement = Agreement::new(self.id, &self.members, crate_options, &self.log);
        if let Agreement::Alone { ballot } = agreement {
            let took_over = vec![StorageOp::SetPromise(ballot), StorageOp::SetAcceptedRound(ballot)];
            let _ = Handle(Rc::clone(&self.log)).write_atomically(took_over);
        }
        self.agreement = Some(agreement);
    }

    fn tick(&mut self, now: Now, effects: &mut Effects) {
        self.end_overdue(now, effects);
        if now.monotonic_us < self.next_round_us {
            return;
        }
        // A round that was slept through is not made up for: nobody could have answered in it.
        self.next_round_us = now.monotonic_us + self.timing.heartbeat_ms * 1000;
        if let Some(agreement) = &mut self.agreement {
            agreement.tick();
        }
        self.look_at_leadership(effects);
        self.log.borrow_mut().record_decided();
        self.abandon_stuck_copies(now, effects);
        self.is_position_due = true;
        let leased = self.leadership.is_some_and(|it| it.is_leased(now, self.timing.lease_ms));
        if let Some(leadership) = &mut self.leadership {
            leadership.leased_at_tick = leased;
        }
    }

    /// The turn ends.
    fn flush(&mut self, now: Now, effects: &mut Effects) {
        if self.agreement.is_none() {
            return;
        }
        self.end_overdue(now, effects);
        self.release_held(now, effects);
        if self.leadership.is_none() {
            self.give_up_requests(effects);
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
            effects.record(|out| changes.iter().for_each(|change| change.encode(out)));
        }
    }

    fn send_crate_messages(&mut self, effects: &mut Effects) {
        let mut messages = std::mem::take(&mut self.outgoing);
        if let Some(agreement) = &mut self.agreement {
            agreement.take_messages(&mut messages);
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

    /// What the leader adds to the crate's messages.
    fn send_own_messages(&mut self, effects: &mut Effects) {
        let is_position_due = std::mem::take(&mut self.is_position_due);
        let Some(Leadership { ballot, .. }) = self.leadership else { return };
        let has_readers = !self.reads.is_empty() || !self.reads_behind.is_empty();
        let asks = self.options.lease == Lease::Off && has_readers && (self.has_new_readers() || is_position_due);
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

    /// Whether a read waits for a question that was not asked yet.
    fn has_new_readers(&self) -> bool {
        self.reads.last_question().max(self.reads_behind.last_question()) > self.questions
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
            body if body.stream() == Stream::Loose => self.life_record,
            _ if self.leadership.is_some() => self.life_record.max(log.promise_record()),
            _ => log.recorded(),
        };
        drop(log);
        let envelope = Envelope {
            configuration: self.configuration_id,
            identity: self.identity,
            life: self.life,
            ..Envelope::default()
        };
        if let Some(link) = self.link_mut(to) {
            link.send(envelope, after_record, body, effects);
        }
    }
}

impl crate::contract::Replica for Replica {
    type Message<'a> = Message<'a>;

    #[inline]
    fn step(&mut self, now: Now, input: Input<'_, Message<'_>>, effects: &mut Effects) {
        match input {
            Input::Request { ticket, request, follows, seen, deadline_us } => {
                self.request(now, Asked { ticket, follows, seen, deadline_us }, request, effects);
            }
            Input::Message { from, message } => {
                self.log.borrow_mut().now_us = now.monotonic_us;
                self.message(now, from, message, effects);
            }
            Input::Configure(configuration) => {
                self.log.borrow_mut().now_us = now.monotonic_us;
                self.configure(now, configuration, effects);
            }
            Input::Durable { record } => self.durable(record),
            // Silence says it, and `Position` repairs what a broken link has lost.
            Input::Link { .. } => {}
            Input::Tick => self.tick(now, effects),
            Input::Flush => {
                self.log.borrow_mut().now_us = now.monotonic_us;
                self.flush(now, effects);
            }
        }
    }

    fn wakeup_us(&self, _now: Now) -> u64 {
        let appends_from = self.leadership.map_or(u64::MAX, |leadership| leadership.appends_from_us);
        match self.held.is_empty() {
            true => self.next_round_us,
            false => self.next_round_us.min(appends_from),
        }
    }
}

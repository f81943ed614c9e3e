//! Behaviour of the crate `omnipaxos` (0.2.4) that its user must know: each test runs the crate alone and shows a trap
//! that `consensus` avoids. When a newer version fails one of these tests, a precaution has become unnecessary.

use omnipaxos::ballot_leader_election::Ballot;
use omnipaxos::messages::Message;
use omnipaxos::messages::sequence_paxos::{PaxosMessage, PaxosMsg, PrepareReq};
use omnipaxos::storage::{Entry, NoSnapshot, StopSign, Storage, StorageOp, StorageResult};
use omnipaxos::{ClusterConfig, OmniPaxos, ServerConfig};

#[derive(Clone, Debug, PartialEq)]
struct Number(u64);

impl Entry for Number {
    type Snapshot = NoSnapshot;
}

/// A log in memory, never cut.
#[derive(Default)]
struct Memory {
    log: Vec<Number>,
    promise: Option<Ballot>,
    round: Option<Ballot>,
    decided: usize,
}

impl Storage<Number> for Memory {
    fn write_atomically(&mut self, operations: Vec<StorageOp<Number>>) -> StorageResult<()> {
        for operation in operations {
            match operation {
                StorageOp::AppendEntry(entry) => self.log.push(entry),
                StorageOp::AppendEntries(entries) => self.log.extend(entries),
                StorageOp::AppendOnPrefix(from, entries) => {
                    self.log.truncate(from);
                    self.log.extend(entries);
                }
                StorageOp::SetPromise(ballot) => self.promise = Some(ballot),
                StorageOp::SetAcceptedRound(ballot) => self.round = Some(ballot),
                StorageOp::SetDecidedIndex(index) => self.decided = index,
                _ => {}
            }
        }
        Ok(())
    }
    fn append_entry(&mut self, entry: Number) -> StorageResult<()> {
        self.write_atomically(vec![StorageOp::AppendEntry(entry)])
    }
    fn append_entries(&mut self, entries: Vec<Number>) -> StorageResult<()> {
        self.write_atomically(vec![StorageOp::AppendEntries(entries)])
    }
    fn append_on_prefix(&mut self, from: usize, entries: Vec<Number>) -> StorageResult<()> {
        self.write_atomically(vec![StorageOp::AppendOnPrefix(from, entries)])
    }
    fn set_promise(&mut self, ballot: Ballot) -> StorageResult<()> {
        self.write_atomically(vec![StorageOp::SetPromise(ballot)])
    }
    fn set_decided_idx(&mut self, index: usize) -> StorageResult<()> {
        self.write_atomically(vec![StorageOp::SetDecidedIndex(index)])
    }
    fn get_decided_idx(&self) -> StorageResult<usize> {
        Ok(self.decided)
    }
    fn set_accepted_round(&mut self, ballot: Ballot) -> StorageResult<()> {
        self.write_atomically(vec![StorageOp::SetAcceptedRound(ballot)])
    }
    fn get_accepted_round(&self) -> StorageResult<Option<Ballot>> {
        Ok(self.round)
    }
    fn get_entries(&self, from: usize, to: usize) -> StorageResult<Vec<Number>> {
        Ok(self.log.get(from..to).unwrap_or_default().to_vec())
    }
    fn get_log_len(&self) -> StorageResult<usize> {
        Ok(self.log.len())
    }
    fn get_suffix(&self, from: usize) -> StorageResult<Vec<Number>> {
        Ok(self.log.get(from..).unwrap_or_default().to_vec())
    }
    fn get_promise(&self) -> StorageResult<Option<Ballot>> {
        Ok(self.promise)
    }
    fn set_stopsign(&mut self, _: Option<StopSign>) -> StorageResult<()> {
        Ok(())
    }
    fn get_stopsign(&self) -> StorageResult<Option<StopSign>> {
        Ok(None)
    }
    fn trim(&mut self, _: usize) -> StorageResult<()> {
        Ok(())
    }
    fn set_compacted_idx(&mut self, _: usize) -> StorageResult<()> {
        Ok(())
    }
    fn get_compacted_idx(&self) -> StorageResult<usize> {
        Ok(0)
    }
    fn set_snapshot(&mut self, _: Option<NoSnapshot>) -> StorageResult<()> {
        Ok(())
    }
    fn get_snapshot(&self) -> StorageResult<Option<NoSnapshot>> {
        Ok(None)
    }
}

type Node = OmniPaxos<Number, Memory>;

fn node(pid: u64) -> Node {
    let cluster = ClusterConfig { configuration_id: 1, nodes: vec![1, 2, 3], flexible_quorum: None };
    let leader_priority = u32::from(pid == 1);
    let server =
        ServerConfig { pid, leader_priority, resend_message_tick_timeout: 1, ..ServerConfig::default() };
    cluster.build_for_server(server, Memory::default()).expect("three nodes")
}

/// Takes what a node sends to another one now.
fn taken(from: &mut Node, to: u64) -> Vec<Message<Number>> {
    let mut messages = Vec::new();
    from.take_outgoing_messages(&mut messages);
    messages.retain(|message| message.get_receiver() == to);
    messages
}

/// Node 1, which was elected, and node 2, which follows it; node 3 is away.
fn leader_and_follower() -> (Node, Node) {
    let (mut leader, mut follower) = (node(1), node(2));
    pass_rounds(&mut leader, &mut follower);
    assert_eq!(leader.get_current_leader(), Some((1, true)));
    assert_eq!(follower.get_current_leader(), Some((1, true)));
    (leader, follower)
}

/// Ten rounds of heartbeats, without losses.
fn pass_rounds(leader: &mut Node, follower: &mut Node) {
    for _ in 0..10 {
        exchange(leader, follower);
        leader.tick();
        follower.tick();
    }
    exchange(leader, follower);
}

fn exchange(leader: &mut Node, follower: &mut Node) {
    for _ in 0..5 {
        taken(leader, 2).into_iter().for_each(|message| follower.handle_incoming(message));
        taken(follower, 1).into_iter().for_each(|message| leader.handle_incoming(message));
    }
}

fn numbers(node: &Node) -> Vec<u64> {
    let entries = node.read_entries(..).unwrap_or_default();
    let number = |entry| match entry {
        omnipaxos::util::LogEntry::Decided(Number(number))
        | omnipaxos::util::LogEntry::Undecided(Number(number)) => number,
        other => panic!("{other:?}"),
    };
    entries.into_iter().map(number).collect()
}

/// The leader of the group appends 1 and 2; the follower's promise arrives a second time between them (the follower
/// sends it again if it gets no answer in time). Entry 2 goes into the `AcceptDecide` before the `AcceptSync` that
/// answers the promise, and this `AcceptSync` does not hold it: the follower continues after a gap, and acknowledges
/// that it has everything.
///
/// `consensus` takes the crate's messages out before it passes a promise to the crate.
#[test]
fn an_entry_appended_after_an_answered_promise_is_left_out() {
    let (mut leader, mut follower) = (node(1), node(2));
    leader.try_become_leader();
    taken(&mut leader, 2).into_iter().for_each(|message| follower.handle_incoming(message));
    let promise = taken(&mut follower, 1);
    promise.iter().cloned().for_each(|message| leader.handle_incoming(message));
    taken(&mut leader, 2); // The first `AcceptSync` is lost.
    leader.append(Number(1)).unwrap();
    promise.into_iter().for_each(|message| leader.handle_incoming(message));
    leader.append(Number(2)).unwrap();
    taken(&mut leader, 2).into_iter().for_each(|message| follower.handle_incoming(message));
    leader.append(Number(3)).unwrap();
    taken(&mut leader, 2).into_iter().for_each(|message| follower.handle_incoming(message));
    assert_eq!(numbers(&leader), [1, 2, 3]);
    assert_eq!(numbers(&follower), [1, 3], "2 is missing, and 3 stands in its place");
}

/// An `AcceptSync` that arrives a second time, when the follower has started again with the leader, cuts off what the
/// follower had acknowledged, and what may be decided by that.
///
/// `consensus` numbers messages and takes each once.
#[test]
fn a_second_accept_sync_cuts_off_what_was_acknowledged() {
    let (mut leader, mut follower) = (node(1), node(2));
    leader.try_become_leader();
    taken(&mut leader, 2).into_iter().for_each(|message| follower.handle_incoming(message));
    taken(&mut follower, 1).into_iter().for_each(|message| leader.handle_incoming(message));
    let accept_sync = taken(&mut leader, 2);
    accept_sync.iter().cloned().for_each(|message| follower.handle_incoming(message));
    leader.append(Number(1)).unwrap();
    exchange(&mut leader, &mut follower);
    assert_eq!(leader.get_decided_idx(), 1);
    follower.reconnected(1);
    taken(&mut follower, 1).into_iter().for_each(|message| leader.handle_incoming(message));
    taken(&mut leader, 2).into_iter().for_each(|message| follower.handle_incoming(message));
    let held = |follower: &Node| follower.get_accepted_idx();
    assert_eq!(held(&follower), 1);
    let late = std::panic::AssertUnwindSafe(|| {
        accept_sync.into_iter().for_each(|message| follower.handle_incoming(message));
        held(&follower)
    });
    // With debug assertions the crate panics, as this entry was decided; without them, the entry is lost.
    assert_ne!(std::panic::catch_unwind(late).unwrap_or(0), 1);
}

/// A request to prepare that arrives late makes the leader leave its follower out: its new request is ignored, since
/// the follower has answered that ballot, and the leader sends entries to it no more. Nothing ever repairs that.
///
/// `consensus` drops late messages, and followers that receive a leader's position request to start again.
#[test]
fn a_late_request_to_prepare_leaves_a_follower_out_for_good() {
    let (mut leader, mut follower) = leader_and_follower();
    let late =
        PaxosMessage { from: 2, to: 1, msg: PaxosMsg::PrepareReq(PrepareReq { n: leader.get_promise() }) };
    leader.handle_incoming(Message::SequencePaxos(late));
    leader.append(Number(1)).unwrap();
    pass_rounds(&mut leader, &mut follower);
    assert_eq!(leader.get_decided_idx(), 0, "a majority is there, and nothing is decided");
}

/// When the last message before a silence is lost, no node sends it again.
///
/// `consensus`'s leader sends its position with every heartbeat.
#[test]
fn the_last_message_before_a_silence_is_not_sent_again() {
    let (mut leader, mut follower) = leader_and_follower();
    leader.append(Number(1)).unwrap();
    taken(&mut leader, 2);
    pass_rounds(&mut leader, &mut follower);
    assert_eq!(leader.get_decided_idx(), 0);
}

/// The leader's own entries count as accepted when they are appended, durable or not: with one follower's answer they
/// are decided.
///
/// `consensus` passes answers on only as far as the leader's own log is durable.
#[test]
fn a_leader_counts_itself_at_once() {
    let (mut leader, mut follower) = leader_and_follower();
    leader.append(Number(1)).unwrap();
    exchange(&mut leader, &mut follower);
    assert_eq!(leader.get_decided_idx(), 1, "the crate does not check whether the leader's log is durable");
}

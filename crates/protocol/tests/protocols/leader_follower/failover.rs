//! How soon a group takes writes again after the configuration that appoints another leader: on a fast network after a few
//! rounds of messages, whatever `acks` is, as long as enough replicas answer.

use super::World;
use crate::kit::{Asked, Consequences, Letter};
use kv::{Command, Condition, Expiry, SetAnswer};
use protocol::contract::{NodeId, Result as Outcome};
use protocol::leader_follower::{Acks, Durability, Options, Timing};
use protocol::{ControlRequest, Replica as _, Request, Ticket, Trace};

/// One way.
const DELAY_US: u64 = 500;
const SYNC_US: u64 = 300;

/// A group in which letters, syncs and time take as long as on a fast network.
struct Group {
    world: World,
    /// When each letter arrives.
    letters: Vec<(u64, Letter)>,
    /// When each node's disk finishes a sync, and up to which position.
    syncs: Vec<(u64, NodeId, u64)>,
    done: u64,
    /// Requests of which nothing was done.
    handed_on: u64,
    requests: Vec<ControlRequest>,
    /// The nodes that have noted that their epoch is over without having resigned.
    surprised: Vec<NodeId>,
}

impl Group {
    /// Three members, and node 4, which is not a member.
    fn new(acks: Acks, durability: Durability) -> Group {
        let options = Options {
            acks,
            reads_any: false,
            backlog_bytes: 1 << 20,
            spill_bytes_min: usize::MAX,
            durability,
            planted: Default::default(),
        };
        let mut world = World::new(4, options, Timing::default());
        world.leases_forever = true;
        world.members().for_each(|id| world.restart(id));
        world.configuration.members = vec![1, 2, 3];
        world.configuration.in_sync = vec![1, 2, 3];
        let mut group = Group {
            world,
            letters: Vec::new(),
            syncs: Vec::new(),
            done: 0,
            handed_on: 0,
            requests: Vec::new(),
            surprised: Vec::new(),
        };
        (1..=3).for_each(|id| group.configure(id));
        group.run(500_000, |_| false);
        group
    }

    fn configure(&mut self, id: NodeId) {
        let configured = self.world.configure(id);
        self.take(id, configured);
    }

    /// Ends the node's turn, and schedules its consequences.
    fn take(&mut self, id: NodeId, consequences: Consequences) {
        let now_us = self.world.time_us;
        for consequences in [consequences, self.world.flush(id)] {
            let done =
                |(outcome, _): &&(protocol::Outcome, Vec<u8>)| matches!(outcome.result, Outcome::Done { .. });
            self.done += consequences.outcomes.iter().filter(done).count() as u64;
            let is_surprise = |trace: &&Trace| matches!(trace, Trace::EpochPassed { .. });
            self.surprised.extend(consequences.traces.iter().filter(is_surprise).map(|_| id));
            let arrives = consequences.letters.into_iter().map(|letter| (now_us + DELAY_US, letter));
            self.letters.extend(arrives);
            let passed_on = |(outcome, _): &&(protocol::Outcome, Vec<u8>)| {
                matches!(outcome.result, Outcome::Redirect { .. })
            };
            self.handed_on += consequences.outcomes.iter().filter(passed_on).count() as u64;
            self.requests.extend(consequences.control_requests.into_iter().map(|(_, request)| request));
        }
        let written = self.world.written(id);
        if self.world.durable(id) < written {
            self.syncs.push((now_us + SYNC_US, id, written));
        }
    }

    fn set(&mut self, id: NodeId, sequence: u64) {
        let command = Command::Set {
            key: b"k",
            value: b"v",
            expiry: Expiry::Clear,
            condition: Condition::Always,
            answer: SetAnswer::Status,
        };
        let deadline_us = self.world.time_us + 1_000_000;
        let asked = Asked { ticket: Ticket { client: 1, sequence }, follows: false, seen: 0, deadline_us };
        let consequences = self.world.request(id, asked, Request::Command(&command));
        self.take(id, consequences);
    }

    /// Lets time pass in steps of a tenth of a millisecond until a condition holds. Returns whether it did.
    fn run(&mut self, for_us: u64, is_so: impl Fn(&Group) -> bool) -> bool {
        const STEP_US: u64 = 100;
        let until_us = self.world.time_us + for_us;
        let mut wakeups: Vec<(NodeId, u64)> = Vec::new();
        while self.world.time_us < until_us {
            if is_so(self) {
                return true;
            }
            self.world.time_us += STEP_US;
            let now_us = self.world.time_us;
            let due = |at_us: &u64| *at_us <= now_us;
            let (arrived, under_way) =
                std::mem::take(&mut self.letters).into_iter().partition(|(at, _)| due(at));
            self.letters = under_way;
            let arrived: Vec<(u64, Letter)> = arrived;
            for (_, letter) in arrived {
                let consequences = self.world.deliver(&letter);
                self.take(letter.to, consequences);
            }
            let (synced, under_way) =
                std::mem::take(&mut self.syncs).into_iter().partition(|(at, ..)| due(at));
            self.syncs = under_way;
            let synced: Vec<(u64, NodeId, u64)> = synced;
            for (_, id, position) in synced {
                let consequences = self.world.sync(id, position);
                self.take(id, consequences);
            }
            for id in self.world.alive() {
                if wakeups.iter().all(|(woken, at)| *woken != id || due(at)) {
                    let consequences = self.world.tick(id);
                    self.take(id, consequences);
                    wakeups.retain(|(woken, _)| *woken != id);
                    wakeups.extend(self.world.wakeup_us(id).map(|at| (id, at)));
                }
            }
        }
        false
    }
}

/// The leader dies under load; another one is appointed, by a map that no longer counts the dead one as in sync.
fn failover_us(acks: Acks, durability: Durability, successor: NodeId) -> u64 {
    let mut group = Group::new(acks, durability);
    for sequence in 1..50 {
        group.set(1, sequence);
        group.run(200, |_| false);
    }
    assert!(group.run(100_000, |group| group.done == 49), "the group works before its leader dies");
    group.set(1, 50);
    group.world.crash(1, 0);
    group.world.configuration.epoch = 2;
    group.world.configuration.leader = successor;
    group.world.configuration.in_sync = vec![2, 3];
    group.world.version += 1;
    let appointed_us = group.world.time_us;
    [2, 3].into_iter().for_each(|id| group.configure(id));
    let done = group.done;
    let leads = |group: &Group| group.world.status(successor).is_some_and(|status| status.role == "leader");
    assert!(group.run(1_000_000, leads), "node {successor} leads");
    group.set(successor, 51);
    assert!(group.run(1_000_000, |group| group.done > done), "node {successor} takes a write");
    group.world.time_us - appointed_us
}

#[test]
fn a_group_takes_writes_again_within_100_ms_of_the_appointment() {
    for acks in [Acks::None, Acks::Count(1), Acks::Majority, Acks::All] {
        for durability in [Durability::None, Durability::Fsync] {
            for successor in [2, 3] {
                let took_us = failover_us(acks, durability, successor);
                println!("{acks:?}, {durability:?}, node {successor}: {took_us} us");
                let limit_us = if acks == Acks::None { 100_000 } else { 20_000 };
                assert!(took_us <= limit_us, "{acks:?}, {durability:?}: {took_us} us");
            }
        }
    }
}

/// The leader lets node 2 lead, under load, as soon as the control group has answered after `control_us`. Returns the longest
/// time between two acknowledged writes, in microseconds.
fn handover_us(acks: Acks, durability: Durability, control_us: u64) -> u64 {
    let mut group = Group::new(acks, durability);
    let (mut longest_us, mut since_us, mut done) = (0, group.world.time_us, 0);
    let mut is_due_us = None;
    for sequence in 1..=500 {
        let leader = group.world.configuration.leader;
        group.set(leader, sequence);
        if sequence == 100 {
            let consequences = group.world.act(1, |replica, now, _| {
                assert!(replica.hand_over(now, Some(2)), "{acks:?}, {durability:?}");
            });
            group.take(1, consequences);
        }
        group.run(200, |_| false);
        let now_us = group.world.time_us;
        if group.requests.contains(&ControlRequest::Resign { epoch: 1, to: 2 }) {
            is_due_us.get_or_insert(now_us + control_us);
        }
        if is_due_us.is_some_and(|at_us| at_us <= now_us) && group.world.configuration.epoch == 1 {
            (group.world.configuration.epoch, group.world.configuration.leader) = (2, 2);
            group.world.configuration.in_sync = vec![2, 3];
            group.world.version += 1;
            (1..=3).for_each(|id| group.configure(id));
        }
        if group.done > done {
            longest_us = longest_us.max(now_us - since_us);
            (done, since_us) = (group.done, now_us);
        }
    }
    let leads = group.world.status(2).is_some_and(|status| status.role == "leader");
    assert!(leads && group.world.configuration.epoch == 2, "{acks:?}, {durability:?}");
    assert!(
        group.run(100_000, |group| group.done + group.handed_on == 500),
        "every write is done, or handed on undone"
    );
    assert!(group.handed_on > 0, "{acks:?}, {durability:?}");
    longest_us
}

#[test]
fn a_handover_takes_a_few_round_trips_and_leaves_no_outcome_unknown() {
    for acks in [Acks::None, Acks::Count(1), Acks::Count(2), Acks::Majority, Acks::All] {
        for durability in [Durability::None, Durability::Fsync] {
            let took_us = handover_us(acks, durability, 4_000);
            println!("{acks:?}, {durability:?}: {took_us} us without an acknowledged write");
            assert!(took_us <= 20_000, "{acks:?}, {durability:?}: {took_us} us");
        }
    }
}

/// The control group does not answer for long: the leader that has resigned answers nothing, asks again, and leads in the next
/// epoch if that is what the control group says.
#[test]
fn a_leader_that_has_resigned_answers_nothing_until_the_next_epoch() {
    for acks in [Acks::None, Acks::Majority, Acks::All] {
        let mut group = Group::new(acks, Durability::None);
        let consequences = group.world.act(1, |replica, now, _| assert!(replica.hand_over(now, None)));
        group.take(1, consequences);
        assert!(group.run(100_000, |group| !group.requests.is_empty()), "{acks:?}: it resigns");
        group.set(1, 1);
        group.run(500_000, |_| false);
        assert!(group.done == 0 && group.requests.len() > 3, "{acks:?}: it waits, and asks again");
        group.world.configuration.epoch = 2;
        group.world.version += 1;
        (1..=3).for_each(|id| group.configure(id));
        let leads = |group: &Group| group.world.status(1).is_some_and(|status| status.role == "leader");
        assert!(group.run(100_000, leads), "{acks:?}: it leads again");
        group.set(1, 2);
        assert!(group.run(100_000, |group| group.done == 1 && group.handed_on == 1), "{acks:?}: it answers");
    }
}

/// Such a surprise is a warning in the node's log, and a handover is none.
#[test]
fn the_next_epoch_is_no_surprise_to_a_leader_that_has_resigned() {
    for hands_over in [true, false] {
        let mut group = Group::new(Acks::Majority, Durability::None);
        if hands_over {
            let consequences = group.world.act(1, |replica, now, _| assert!(replica.hand_over(now, Some(2))));
            group.take(1, consequences);
            assert!(group.run(100_000, |group| !group.requests.is_empty()), "it resigns");
        }
        // The others have the next map before it.
        (group.world.configuration.epoch, group.world.configuration.leader) = (2, 2);
        group.world.configuration.in_sync = vec![2, 3];
        group.world.version += 1;
        [2, 3].into_iter().for_each(|id| group.configure(id));
        let knows = |group: &Group| group.world.status(1).is_some_and(|status| status.epoch == 2);
        assert!(group.run(1_000_000, knows), "a peer tells it");
        assert_eq!(group.surprised, if hands_over { vec![] } else { vec![1] });
    }
}

/// A member is lost, and another node is added before the lost one is replaced. To learn from the others alone what was
/// acknowledged takes three of four under `acks = 1`, and the new member knows nothing: the leader itself, which continues,
/// must be enough.
#[test]
fn the_leader_continues_when_a_member_is_lost_during_a_change() {
    for durability in [Durability::None, Durability::Fsync] {
        let mut group = Group::new(Acks::Count(1), durability);
        group.set(1, 1);
        assert!(group.run(100_000, |group| group.done == 1));
        group.world.crash(2, 0);
        group.world.configuration.epoch = 2;
        group.world.configuration.members.push(4);
        group.world.configuration.in_sync = vec![1];
        group.world.version += 1;
        [1, 3, 4].into_iter().for_each(|id| group.configure(id));
        let leads = |group: &Group| group.world.status(1).is_some_and(|status| status.role == "leader");
        assert!(group.run(1_000_000, leads), "{durability:?}: it goes on");
        group.set(1, 2);
        assert!(group.run(1_000_000, |group| group.done == 2), "{durability:?}: it takes a write");
    }
}

//! One replica of a group continues alone, when a majority is lost: what it holds is decided, and other nodes can
//! join it.

use kv::{Command, SKIPPED_VERSIONS};
use omnipaxos::ballot_leader_election::Ballot;
use protocol::consensus::{
    Change, Entry, Group, Head, Lease, Member, Options, Proposer, Replica, StopSign, Timing,
};
use protocol::contract::{Configuration, Effects, Input, NodeId, Now, Replica as _};

fn at_ms(ms: u64) -> Now {
    Now { monotonic_us: ms * 1000, unix_ms: ms }
}

fn entry(batch: u64, keys: &[&str]) -> Entry {
    let mut commands = Vec::new();
    keys.iter().for_each(|key| Command::GetDelete { key: key.as_bytes() }.encode(&mut commands));
    let proposer = Proposer { node: 2, life: 1, batch };
    Entry::new(Head { proposer, time: 0, count: keys.len() as u32 }, &commands)
}

/// Node 1 with a log of two entries, of which one is known to be decided, and perhaps the end of its configuration.
fn changes(ends: bool) -> Vec<Change> {
    let members = [1, 2, 3].map(|node| Member { node, since: 1 }).to_vec();
    let ballot = Ballot::with(1, 3, 0, 2);
    let stop_sign = StopSign { id: 2, members: vec![2, 3] };
    let mut entries = vec![entry(1, &["a"]), entry(2, &["b", "c"])];
    entries.extend(ends.then(|| Entry::stop(Head::default(), &stop_sign)));
    vec![
        Change::Life { identity: 7, life: 1 },
        Change::Group(Group { id: 1, members, begins: 0 }),
        Change::Promise(ballot),
        Change::Accepted(ballot),
        Change::Append(entries),
        Change::Decided(1),
    ]
}

fn replica(records: &[&[u8]]) -> Replica {
    let options = Options {
        lease: Lease::Log,
        reads_any: false,
        log_bytes: 1 << 20,
        spill_bytes_min: usize::MAX,
        is_bounded: false,
        planted: Default::default(),
    };
    let mut replica = Replica::new(1, options, Timing::default(), 1, 7);
    for record in records {
        replica.replay(at_ms(1), record).expect("a record");
    }
    replica
}

fn configured(mut replica: Replica, epoch: u64, members: &[NodeId]) -> Replica {
    let members = members.to_vec();
    let configuration =
        Configuration { epoch, leader: 1, in_sync: members.clone(), members, is_given_up: false };
    replica.step(at_ms(2), Input::Configure(&configuration), &mut Effects::default());
    replica.step(at_ms(2), Input::Flush, &mut Effects::default());
    replica.check_invariants(at_ms(2));
    replica
}

fn encoded(changes: &[Change]) -> Vec<u8> {
    let mut record = Vec::new();
    changes.iter().for_each(|change| change.encode(&mut record));
    record
}

#[test]
fn its_entries_are_decided_and_it_leads_alone() {
    for ends in [false, true] {
        let before = encoded(&changes(ends));
        let found = replica(&[&before]).found();
        let (entries, newest) = if ends { (3, 2) } else { (2, 1) };
        assert_eq!(found.rank, [1, 3, 0, 2, entries]);
        assert_eq!((found.members, found.has_vote), (vec![1, 2, 3], true));
        assert_eq!((found.decided, found.commands, found.newest), (1, 3, newest));
        let writes = [Command::GetDelete { key: b"d" }, Command::SkipVersions { by: SKIPPED_VERSIONS }];
        let record = replica(&[&before]).alone(5, &writes);
        let alone = configured(replica(&[&before, &record]), 5, &[1]);
        assert_eq!(alone.table().version_floor(), 5 + SKIPPED_VERSIONS);
        let status = alone.status(at_ms(3));
        assert_eq!((status.role, status.configuration, &status.members[..]), ("leader", 5, &[1][..]));
        assert_eq!((status.applied, status.applied_entries), (5, entries + 2), "{status:?}");
        // After another start it has the same state, and knows no less.
        let found = replica(&[&before, &record]).found();
        assert_eq!((found.rank[0], found.rank[4], found.newest), (5, entries + 2, 5));
    }
}

#[test]
fn a_replica_without_records_begins_a_group() {
    let record = replica(&[]).alone(4, &[Command::GetDelete { key: b"d" }]);
    let status = configured(replica(&[&record]), 4, &[1]).status(at_ms(3));
    assert_eq!((status.role, status.configuration, status.applied), ("leader", 4, 1));
}

#[test]
#[should_panic(expected = "configuration 2 would follow 2")]
fn a_configuration_that_others_may_know_is_not_started_again() {
    replica(&[&encoded(&changes(true))]).alone(2, &[]);
}

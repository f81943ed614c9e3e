//! Fatal records in the map: a record is skipped only while no replica can have executed it.

use crate::cluster::address;
use cluster::Keyspace;
use cluster::control::{Change, ClusterMap, FatalRecord, QuarantineStep, SKIPPED_MAX};
use protocol::NodeId;

const RECORD: FatalRecord = FatalRecord { offset: 21, time: 1000 };

/// Returns three nodes, a keyspace of consensus and one of leader-follower, and their groups.
fn cluster() -> (ClusterMap, u16, u16) {
    let addresses: Vec<_> = (1..=3).map(address).collect();
    let keyspaces = [
        Keyspace::parse("prefix=c: replication=consensus").expect("settings"),
        Keyspace::parse("prefix=l: replication=leader-follower acks=majority durability=fsync")
            .expect("settings"),
    ];
    let map = ClusterMap::initial(&addresses, &keyspaces).expect("a cluster");
    let group = |prefix: &str| map.keyspaces[prefix].groups[0];
    let (consensus, followed) = (group("c:"), group("l:"));
    (map, consensus, followed)
}

fn change(map: &ClusterMap, group: u16, step: QuarantineStep) -> Result<ClusterMap, String> {
    let next = map.apply(&Change::Quarantine { group, step }).map_err(|why| why.to_string())?;
    next.check()?;
    assert_eq!(ClusterMap::decode(&next.encode(), wire::release::RELEASES).as_ref(), Ok(&next));
    Ok(next)
}

fn stand(map: &ClusterMap, group: u16, nodes: &[NodeId], record: FatalRecord) -> ClusterMap {
    nodes.iter().fold(map.clone(), |map, node| {
        change(&map, group, QuarantineStep::Stand(*node, record)).expect("a member stands still")
    })
}

#[test]
fn a_record_is_skipped_only_when_every_replica_is_stopped_before_it() {
    let (map, group, _) = cluster();
    let skip = |map: &ClusterMap, offset| change(map, group, QuarantineStep::Skip(offset));
    assert!(skip(&map, 21).unwrap_err().contains("no replica of it stands still"));
    let map = stand(&map, group, &[1, 2], RECORD);
    assert!(skip(&map, 20).unwrap_err().contains("it stands before record 21, not before 20"));
    assert!(skip(&map, 21).unwrap_err().contains("node 3 does not stand before record 21"));
    // Node 3 is stopped before a different record.
    let differs = stand(&map, group, &[3], FatalRecord { time: 1001, ..RECORD });
    assert!(skip(&differs, 21).unwrap_err().contains("does not stand before record 21"));
    let map = skip(&stand(&map, group, &[3], RECORD), 21).expect("all stand before it");
    assert_eq!(map.quarantine.skipped(group), [RECORD]);
    assert!(map.quarantine.standing.is_empty() && map.stopped_before(group).is_none());
    assert!(change(&map, group, QuarantineStep::Retry).is_err());
    assert!(change(&map, 99, QuarantineStep::Stand(1, RECORD)).is_err());
    assert!(change(&map, group, QuarantineStep::Stand(4, RECORD)).is_err());
}

#[test]
fn a_group_stops_when_too_few_of_its_replicas_go_on() {
    let (map, consensus, followed) = cluster();
    let one = stand(&stand(&map, consensus, &[2], RECORD), followed, &[2], RECORD);
    let leader = one.groups[&followed].leader;
    assert_ne!(leader, 2);
    assert_eq!((one.stopped_before(consensus), one.stopped_before(followed)), (None, None));
    let two = stand(&stand(&one, consensus, &[3], RECORD), followed, &[3], RECORD);
    assert_eq!((two.stopped_before(consensus), two.stopped_before(followed)), (Some(RECORD), Some(RECORD)));
    let led = stand(&map, followed, &[leader], RECORD);
    assert_eq!(led.stopped_before(followed), Some(RECORD));
    // The leader resumes by itself, or all replicas together.
    let released = change(&led, followed, QuarantineStep::Release(leader)).expect("it goes on");
    assert!(released.quarantine.is_empty());
    let retried = change(&two, followed, QuarantineStep::Retry).expect("all go on");
    assert_eq!((retried.stopped_before(consensus), retried.stopped_before(followed)), (Some(RECORD), None));
}

#[test]
fn removed_groups_and_members_leave_the_quarantine_and_skipped_records_are_bounded() {
    let (map, group, followed) = cluster();
    let map = stand(&map, group, &[1, 2, 3], RECORD);
    let mut map = change(&map, group, QuarantineStep::Skip(21)).expect("all stand before it");
    for offset in 1..SKIPPED_MAX as u64 {
        let record = FatalRecord { offset, time: 0 };
        map = stand(&map, followed, &[1, 2, 3], record);
        map = change(&map, followed, QuarantineStep::Skip(offset)).expect("all stand before it");
    }
    let full = stand(&map, followed, &[1, 2, 3], RECORD);
    assert!(change(&full, followed, QuarantineStep::Skip(21)).unwrap_err().contains("skipped already"));
    let replaced = full.apply(&Change::ReplaceNode { id: 3, accept_loss: false }).expect("a dead node");
    assert_eq!(replaced.quarantine.stands(followed, 3), None);
    assert_eq!(replaced.quarantine.stands(followed, 2), Some(RECORD));
    let dropped = full.apply(&Change::DropKeyspace("l:".into())).expect("it is there");
    assert!(dropped.quarantine.skipped(followed).is_empty() && dropped.quarantine.standing.is_empty());
    assert_eq!(dropped.quarantine.skipped(group), [RECORD]);
}

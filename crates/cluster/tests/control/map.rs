//! The map as plain data: the effects of changes, the changes that are refused, and what no sequence of changes can
//! break.

use crate::cluster::{address, keyspace, keyspaces};
use cluster::control::{CONTROL_GROUP, Change, ClusterMap, Group, GroupId, NodeState, Rejoin, Start, Step};
use cluster::{Keyspace, Protocol};
use proptest::prelude::*;
use protocol::NodeId;
use protocol::leader_follower::{Acks, Durability};
use std::collections::{BTreeMap, BTreeSet};
use wire::release::RELEASES;

fn cluster(nodes: NodeId, keyspaces: &[Keyspace]) -> ClusterMap {
    let addresses: Vec<_> = (1..=nodes).map(address).collect();
    ClusterMap::initial(&addresses, keyspaces).expect("a cluster")
}

fn started(map: ClusterMap) -> ClusterMap {
    let ids: Vec<NodeId> = map.nodes.keys().copied().collect();
    ids.into_iter().fold(map, |map, id| map.apply(&start(id, 1)).expect("a first start"))
}

fn start(id: NodeId, life: u64) -> Change {
    Change::NodeStarted {
        id,
        start: Start { identity: u64::from(id) * 100, life, run: life, found: 0 },
        releases: RELEASES,
    }
}

fn group<'a>(map: &'a ClusterMap, prefix: &str) -> (u16, &'a Group) {
    let id = map.keyspaces[prefix].groups[0];
    (id, &map.groups[&id])
}

/// Checks what must hold between a map and the next one.
pub(crate) fn check_step(before: &ClusterMap, after: &ClusterMap) -> Result<(), String> {
    after.check()?;
    if after.next_group < before.next_group {
        return Err("group numbers are given out again".into());
    }
    for (id, new) in &after.groups {
        let Some(old) = before.groups.get(id) else {
            if u32::from(*id) < before.next_group {
                return Err(format!("group {id} is used twice"));
            }
            continue;
        };
        // Of a consensus group the map only says who is preferred.
        let is_led = after.protocol(*id) == Protocol::LeaderFollower;
        let is_same = new.members == old.members && (!is_led || new.leader == old.leader);
        if new.epoch < old.epoch || new.epoch == old.epoch && !is_same {
            return Err(format!("group {id} changed without a new epoch: {old:?} {new:?}"));
        }
    }
    Ok(())
}

/// Under `all`, the next leader was in sync before, unless a loss was accepted. Checks a single change: a version of
/// the map may hold several, and the first may have added a member to the in-sync set.
fn check_leaders(before: &ClusterMap, after: &ClusterMap) -> Result<(), String> {
    for (id, new) in &after.groups {
        let Some(old) = before.groups.get(id) else { continue };
        let is_lost = |node: &NodeId| after.nodes.get(node).is_some_and(|node| node.rejoins.contains_key(id));
        let is_loss_accepted = old.in_sync.iter().all(is_lost);
        if before.acks(*id) == Acks::All
            && new.leader != old.leader
            && !old.in_sync.contains(&new.leader)
            && !is_loss_accepted
        {
            return Err(format!("group {id} is led by one that was not in sync: {old:?} {new:?}"));
        }
    }
    Ok(())
}

// Placement.

#[test]
fn leaders_of_shards_are_spread_and_slots_are_covered() {
    let map = cluster(3, &[keyspace("", |it| it.shards = 6)]);
    let leaders: Vec<NodeId> =
        map.keyspaces[""].groups.iter().map(|group| map.groups[group].leader).collect();
    assert_eq!(leaders, [1, 2, 3, 1, 2, 3]);
    let slots: Vec<_> = map.keyspaces[""].groups.iter().map(|group| map.groups[group].slots).collect();
    assert_eq!((slots[0].first, slots[0].last, slots[1].first, slots[5].last), (0, 2729, 2730, 16383));
}

#[test]
fn the_configured_leader_leads_the_first_shard() {
    let map = cluster(5, &[keyspace("", |it| (it.leader, it.replicas, it.shards) = (4, 3, 2))]);
    let [one, other] = [0, 1].map(|shard| &map.groups[&map.keyspaces[""].groups[shard]]);
    assert_eq!((one.leader, other.leader), (4, 5));
    assert_eq!(one.members, [1, 4, 5]);
    assert_eq!(other.members, [1, 2, 5]);
}

#[test]
fn the_control_group_is_on_the_first_three_or_five_nodes() {
    let members = |nodes| cluster(nodes, &[]).groups[&CONTROL_GROUP].members.clone();
    assert_eq!(members(1), [1]);
    assert_eq!(members(2), [1, 2]);
    assert_eq!(members(4), [1, 2, 3]);
    assert_eq!(members(7), [1, 2, 3, 4, 5]);
}

#[test]
fn a_map_survives_encoding() {
    let map = started(cluster(5, &keyspaces()));
    assert_eq!(ClusterMap::decode(&map.encode(), RELEASES).as_ref(), Ok(&map));
    assert!(ClusterMap::decode(b"{}", RELEASES).is_err());
    let mut wrong = map.clone();
    wrong.groups.get_mut(&1).expect("a group").members.push(77);
    assert!(ClusterMap::decode(&wrong.encode(), RELEASES).is_err(), "a member that is not a node");
}

#[test]
fn the_last_group_number_is_never_used() {
    let mut map = started(cluster(3, &[]));
    map.next_group = u32::from(u16::MAX) - 1;
    let create = |prefix: &str, shards| {
        let named = keyspace("", |it| (it.prefix, it.shards) = (prefix.into(), shards));
        Change::CreateKeyspace(named)
    };
    let why = map.apply(&create("a:", 2)).expect_err("one number is left");
    assert!(why.to_string().contains("all group numbers are used up"), "{why}");
    let map = map.apply(&create("a:", 1)).expect("one is enough");
    assert_eq!(group(&map, "a:").0, u16::MAX - 1);
    map.apply(&create("b:", 1)).expect_err("the node itself records under the last number");
}

// Starts.

#[test]
fn a_node_that_returns_with_less_than_it_had_is_refused() {
    let map = started(cluster(3, &[]));
    let map = map.apply(&start(2, 5)).expect("a later start");
    assert_eq!(map.apply(&start(2, 5)), Ok(map.clone()), "reported twice");
    let other_storage = Change::NodeStarted {
        id: 2,
        start: Start { identity: 999, life: 9, run: 1, found: 0 },
        releases: RELEASES,
    };
    let refused = map.apply(&other_storage).expect_err("wiped");
    assert!(refused.to_string().contains("CLUSTER REPLACE"), "{refused}");
    let refused = map.apply(&start(2, 4)).expect_err("rolled back");
    assert!(refused.to_string().contains("CLUSTER REPLACE"), "{refused}");
    // A copy of the disk from one incarnation earlier is opened with the registered incarnation, but by another process.
    let same_incarnation = Change::NodeStarted {
        id: 2,
        start: Start { identity: 200, life: 5, run: 77, found: 0 },
        releases: RELEASES,
    };
    assert!(map.apply(&same_incarnation).is_err());
}

/// The loss of a consensus group's only replica is accepted in two steps, so that its disk may still be found in between.
#[test]
fn a_lost_only_replica_gets_a_new_group_once_and_only_while_nobody_takes_part() {
    let settings = "prefix=one: replication=consensus replicas=1 leader=3";
    let map = started(cluster(3, &[Keyspace::parse(settings).expect("settings")]));
    let (id, before) = group(&map, "one:");
    let Group { epoch, revision, .. } = *before;
    let takes_part = |epoch, revision| Change::InSync { group: id, epoch, revision, in_sync: vec![3] };
    let map = map.apply(&takes_part(epoch, revision)).expect("its only member");
    let recover = |node: NodeId, life: u64| Change::RecoverKeyspace {
        prefix: "one:".into(),
        lost: BTreeMap::from([(id, BTreeMap::from([(node, life)]))]),
    };
    map.apply(&recover(3, 1)).expect_err("it takes part");
    map.apply(&Change::ReplaceNode { id: 3, accept_loss: false }).expect_err("the loss is not accepted");
    let replaced = map.apply(&Change::ReplaceNode { id: 3, accept_loss: true }).expect("it is accepted");
    assert_eq!(replaced.waits_alone(id), Some(3));
    replaced.apply(&recover(3, 1)).expect_err("it has not started since");
    replaced.apply(&recover(2, 1)).expect_err("node 2 is no member");

    // The old disk comes back: it holds everything, and reports that it takes part.
    let found = replaced.apply(&start(3, 2)).expect("it may be found");
    let Group { epoch, revision, .. } = found.groups[&id];
    let found = found.apply(&takes_part(epoch, revision)).expect("it goes on");
    found.apply(&recover(3, 2)).expect_err("nothing is lost");

    // Or another disk does: the old one is out.
    let empty = Start { identity: 999, life: 1, run: 1, found: 0 };
    let empty = Change::NodeStarted { id: 3, start: empty, releases: RELEASES };
    let empty = replaced.apply(&empty).expect("with an empty folder");
    empty.apply(&start(3, 2)).expect_err("the old disk comes too late");
    empty.apply(&recover(3, 2)).expect_err("that was another start");
    let again = empty.apply(&recover(3, 1)).expect("it begins again");
    check_step(&empty, &again).expect("a step");
    let (new, begun) = group(&again, "one:");
    assert!(new >= empty.next_group as u16 && !again.groups.contains_key(&id), "no number is used twice");
    assert_eq!((begun.epoch, begun.revision, begun.settled), (1, 0, false), "as if it had just been made");
    assert_eq!((begun.members.as_slice(), begun.leader), (&[3][..], 3));
    again.apply(&recover(3, 1)).expect_err("that group is gone");
}

#[test]
fn a_log_that_ends_before_its_durable_position_is_refused() {
    let start = |life, found| Change::NodeStarted {
        id: 2,
        start: Start { identity: 200, life, run: life, found },
        releases: RELEASES,
    };
    let map = started(cluster(3, &[])).apply(&start(5, 1000)).expect("a later start");
    let refused = map.apply(&start(6, 999)).expect_err("an older disk");
    assert!(refused.to_string().contains("had been durable up to 1000"), "{refused}");
    assert!(map.apply(&start(6, 1000)).is_ok(), "nothing was appended");
    let replaced = map.apply(&Change::ReplaceNode { id: 2, accept_loss: false }).expect("it is dead");
    assert!(replaced.apply(&start(6, 999)).is_ok(), "its former data no longer count");
}

#[test]
fn a_restarted_leader_without_durability_is_replaced_and_leaves_the_in_sync_set() {
    let map = started(cluster(3, &[keyspace("", |it| it.leader = 1)]));
    let after = map.apply(&start(1, 2)).expect("a later start");
    let (_, group) = group(&after, "");
    assert_eq!((group.leader, group.epoch), (2, 2));
    assert_eq!(group.in_sync, [2, 3]);
}

#[test]
fn a_restarted_leader_that_is_alone_in_sync_leads_in_a_new_epoch() {
    let map = started(cluster(3, &[keyspace("", |it| it.leader = 1)]));
    let (id, _) = group(&map, "");
    let map = map
        .apply(&Change::InSync { group: id, epoch: 1, revision: map.groups[&id].revision, in_sync: vec![1] })
        .expect("a request");
    let after = map.apply(&start(1, 2)).expect("a later start");
    let (_, group) = group(&after, "");
    assert_eq!((group.leader, group.epoch, group.in_sync.as_slice()), (1, 2, &[1][..]));
}

#[test]
fn a_restarted_durable_leader_leads_in_a_new_epoch() {
    let durable = keyspace("", |it| (it.leader, it.durability) = (1, Some(Durability::Fsync)));
    let map = started(cluster(3, &[durable]));
    let after = map.apply(&start(1, 2)).expect("a later start");
    let (_, group) = group(&after, "");
    assert_eq!((group.leader, group.epoch, group.in_sync.len()), (1, 2, 3));
}

// Leaders and in-sync sets.

#[test]
fn requests_of_an_earlier_leader_are_refused() {
    let map = started(cluster(3, &[keyspace("", |it| (it.leader, it.acks) = (1, Acks::All))]));
    let (id, _) = group(&map, "");
    let request =
        Change::InSync { group: id, epoch: 1, revision: map.groups[&id].revision, in_sync: vec![1, 2] };
    let map = map.apply(&request).expect("a request");
    assert_eq!(map.apply(&request), Ok(map.clone()), "asked twice");
    let request_of = |map: &ClusterMap, in_sync: &[NodeId]| {
        let (_, group) = group(map, "");
        Change::InSync { group: id, epoch: 1, revision: group.revision, in_sync: in_sync.to_vec() }
    };
    let all_again = request_of(&map, &[1, 2, 3]);
    let later = map.apply(&all_again).expect("a request");
    let later = later.apply(&request_of(&later, &[1, 2])).expect("a request");
    assert!(later.apply(&all_again).is_err(), "repeated, and late: the leader does not wait for 3 any more");
    assert!(map.apply(&Change::AppointLeaders(vec![(id, 3)])).is_err(), "3 is not in sync");
    let map = map.apply(&Change::AppointLeaders(vec![(id, 2)])).expect("2 is");
    assert_eq!(group(&map, "").1.in_sync, [2], "the deposed leader is not waited for");
    let refused = map.apply(&request).expect_err("an old epoch");
    assert!(refused.to_string().contains("is in epoch 2"), "{refused}");
}

#[test]
fn after_a_change_of_members_the_in_sync_set_is_determined_again() {
    let map = started(cluster(4, &[keyspace("", |it| (it.leader, it.replicas) = (1, 3))]));
    let (id, _) = group(&map, "");
    let map = map.apply(&Change::MoveMember { group: id, step: Step::Add(4) }).expect("a member more");
    assert!(!group(&map, "").1.settled);
    let appointed = map.apply(&Change::AppointLeaders(vec![(id, 2)]));
    assert!(appointed.is_err_and(|why| why.to_string().contains("nobody else can lead it yet")));
    assert!(map.apply(&Change::MoveMember { group: id, step: Step::Remove(3) }).is_err(), "one at a time");
    let in_sync =
        Change::InSync { group: id, epoch: 2, revision: map.groups[&id].revision, in_sync: vec![1, 2, 4] };
    let map = map.apply(&in_sync).expect("a majority of four");
    assert!(group(&map, "").1.settled);
    assert!(map.apply(&Change::MoveMember { group: id, step: Step::Remove(3) }).is_ok());
}

// Leaders.

#[test]
fn a_leader_that_resigns_has_no_further_epoch_but_the_next_one() {
    let map = started(cluster(3, &[keyspace("", |it| it.leader = 1)]));
    let (id, _) = group(&map, "");
    let resign = |epoch, to| Change::Resign { group: id, epoch, to };
    let other = map.apply(&resign(1, 2)).expect("it resigns");
    let (_, led) = group(&other, "");
    assert_eq!(
        (led.leader, led.epoch, &*led.in_sync),
        (2, 2, &[2, 3][..]),
        "no write waits for the old leader"
    );
    assert_eq!(other.apply(&resign(1, 3)), Ok(other.clone()), "asked twice, or late");
    let same = map.apply(&resign(1, 9)).expect("no other node can lead");
    assert_eq!(
        (group(&same, "").1.leader, group(&same, "").1.epoch),
        (1, 2),
        "the epoch is over in any case"
    );
    let map = started(cluster(3, &[keyspace("", |it| it.replication = Protocol::Consensus)]));
    assert!(map.apply(&Change::Resign { group: 1, epoch: 1, to: 2 }).is_err(), "its members elect");
}

#[test]
fn groups_prefer_a_leader_and_the_last_node_is_not_drained() {
    let consensus = |it: &mut Keyspace| it.replication = Protocol::Consensus;
    let map = started(cluster(3, &[keyspace("", |_| ()), keyspace("c:", consensus), keyspace("b:", |_| ())]));
    assert!(map.groups.values().all(|group| group.preferred == 0), "release 1 does not know the field");
    let map = map.apply(&Change::RaiseLevel(RELEASES.newest)).expect("all know it");
    let preferred = |map: &ClusterMap| -> Vec<NodeId> {
        ["", "b:", "c:"].iter().map(|prefix| map.preferred_leader(group(map, prefix).0)).collect()
    };
    let mut spread = preferred(&map);
    spread.sort_unstable();
    assert_eq!(spread, [1, 2, 3], "each node is preferred by one");
    let groups = map.keyspaces["c:"].groups.clone();
    let map = map.apply(&Change::PreferLeader { groups, node: 2 }).expect("it has a replica");
    let (_, led) = group(&map, "c:");
    assert_eq!((preferred(&map)[2], led.epoch), (2, 1));
    let settings = BTreeMap::from([("leader".to_string(), "3".to_string())]);
    let map = map.apply(&Change::SetKeyspace { prefix: "b:".into(), settings }).expect("a setting");
    assert_eq!((preferred(&map)[1], group(&map, "b:").1.epoch), (3, 1), "its leader hands over by itself");
    let drain = |id| Change::DrainNode { id, is_drained: true };
    let map = map.apply(&drain(1)).and_then(|map| map.apply(&drain(2))).expect("node 3 is left");
    let groups = map.keyspaces["c:"].groups.clone();
    let refused = map.apply(&Change::PreferLeader { groups, node: 1 });
    assert!(refused.is_err_and(|why| why.to_string().contains("node 1 is drained")));
    assert!(map.apply(&drain(3)).is_err_and(|why| why.to_string().contains("no other node is left")));
    let created = map.apply(&Change::CreateKeyspace(keyspace("d:", |_| ()))).expect("a keyspace");
    assert_eq!(group(&created, "d:").1.leader, 3, "a drained node leads nothing new");
}

// Keyspaces.

#[test]
fn keyspaces_are_created_changed_and_dropped() {
    let map = cluster(3, &[]);
    let map = map.apply(&Change::CreateKeyspace(keyspace("a:", |_| ()))).expect("a keyspace");
    let again = map.apply(&Change::CreateKeyspace(keyspace("a:", |_| ()))).expect("it is there, and equal");
    assert_eq!((&again.keyspaces, &again.groups), (&map.keyspaces, &map.groups));
    let other = Change::CreateKeyspace(keyspace("a:", |it| it.backlog_bytes = 1000));
    assert!(map.apply(&other).is_err_and(|why| why.to_string().contains("with other settings")));
    let set = |setting: &str, value: &str| Change::SetKeyspace {
        prefix: "a:".into(),
        settings: BTreeMap::from([(setting.to_string(), value.to_string())]),
    };
    let changed = map.apply(&set("backlog_bytes", "1000")).expect("a setting");
    assert_eq!(changed.keyspaces["a:"].keyspace.backlog_bytes, 1000);
    assert_eq!(group(&changed, "a:").1.epoch, 1);
    let cases = [
        (set("shards", "2"), "keys would have to move"),
        (set("replication", "abd"), "another protocol"),
        (set("colour", "red"), "there is no setting 'colour'"),
        (set("acks", "3"), "acks = 3 can never be: there are 2 followers"),
        (set("backlog_bytes", "many"), "is no number"),
        (Change::DropKeyspace(String::new()), "the default keyspace cannot be dropped"),
        (Change::DropKeyspace("b:".into()), "there is no keyspace 'b:'"),
        (Change::CreateKeyspace(keyspace("b:", |it| it.replicas = 4)), "needs more than the 3 nodes"),
        (Change::CreateKeyspace(keyspace("b:", |it| it.shards = 0)), "is not between 1 and"),
        (Change::CreateKeyspace(keyspace("b:", |it| it.leader = 9)), "leader = 9 is not one of"),
    ];
    for (change, expected) in cases {
        let refused = map.apply(&change).expect_err(expected);
        assert!(refused.to_string().contains(expected), "{refused}");
    }
    let gone = map.apply(&Change::DropKeyspace("a:".into())).expect("it is there");
    let again = gone.apply(&Change::CreateKeyspace(keyspace("a:", |_| ()))).expect("a new one");
    assert!(group(&again, "a:").0 > group(&map, "a:").0, "with a group of its own");
}

#[test]
fn a_change_of_acks_reduces_the_in_sync_set_to_the_leader() {
    let map = started(cluster(3, &[keyspace("", |it| it.leader = 1)]));
    let settings = BTreeMap::from([("acks".to_string(), "all".to_string())]);
    let map = map.apply(&Change::SetKeyspace { prefix: "".into(), settings }).expect("a setting");
    let (_, group) = group(&map, "");
    assert_eq!((group.epoch, group.in_sync.as_slice()), (2, &[1][..]));
}

// Nodes.

#[test]
fn a_node_cannot_leave_if_a_keyspace_could_not_keep_its_promise() {
    let remove = |map: &ClusterMap, force| map.apply(&Change::RemoveNode { id: 3, force });
    let refused = |map: &ClusterMap, force| remove(map, force).expect_err("it promises more");
    let acks = cluster(3, &[keyspace("", |it| it.acks = Acks::Count(2))]);
    assert!(refused(&acks, true).to_string().contains("acks = 2 can never be"));
    let alone = cluster(1, &[]).apply(&Change::RemoveNode { id: 1, force: true }).expect_err("the last");
    assert!(alone.to_string().contains("the last one"), "{alone}");
}

#[test]
fn a_node_whose_replicas_have_no_other_place_leaves_only_by_force() {
    let consensus = |prefix: &str, replicas: u16| {
        keyspace(prefix, |it| (it.replication, it.replicas) = (Protocol::Consensus, replicas))
    };
    let remove = |map: &ClusterMap, id, force| map.apply(&Change::RemoveNode { id, force });
    let map = cluster(3, &[consensus("", 3), consensus("b:", 0), consensus("c:", 1)]);
    let refused = remove(&map, 3, false).expect_err("two of three would be left");
    for part in [
        "node 3 cannot be removed without FORCE",
        "the control group 2 of 3 replicas, which survives no failure",
        "keyspace 'default' 2 of 3 replicas, which survives no failure",
        "keyspace 'b:' 2 of 3 replicas",
        "CLUSTER REMOVE 3 FORCE",
    ] {
        assert!(refused.to_string().contains(part), "{refused}");
    }
    assert!(!refused.to_string().contains("c:"), "this keyspace is meant to have one replica: {refused}");
    let forced = remove(&map, 3, true).expect("by force");
    assert_eq!(forced.nodes[&3].state, cluster::control::NodeState::Leaving);
    assert_eq!(remove(&forced, 3, false), Ok(forced.clone()), "asked for again");

    // A node that was added but never started takes nothing over.
    let four = map.apply(&Change::AddNode(address(4))).expect("a node more");
    remove(&four, 3, false).expect_err("node 4 has not started");
    let started = four.apply(&start(4, 1)).expect("it has now");
    remove(&started, 3, false).expect("node 4 takes over");
    remove(&four, 4, false).expect("it holds nothing");
    let five = cluster(5, &[consensus("", 0)]);
    remove(&five, 5, false).expect("four on four nodes");
    let two = cluster(2, &[consensus("", 0)]);
    remove(&two, 2, false).expect_err("one copy would be left");
}

/// The map of a group of five replicas, led by node 1, with this number of `acks`.
fn counted(acks: u16) -> (ClusterMap, GroupId) {
    let space = keyspace("", |it| (it.acks, it.leader) = (Acks::Count(acks), 1));
    let map = started(cluster(5, &[space]));
    let map = settle(map.apply(&Change::RaiseLevel(map.next_level())).expect("all know it"), true);
    let (id, group) = group(&map, "");
    assert_eq!((&group.members[..], group.leader), (&[1, 2, 3, 4, 5][..], 1));
    assert!(group.has_taken_over());
    (map, id)
}

fn removals(map: &ClusterMap, id: GroupId) -> usize {
    let removes = |change: &Change| matches!(change, Change::MoveMember { group, step: Step::Remove(_) } if *group == id);
    map.next_moves(true, |_| true).into_iter().filter(removes).count()
}

fn takes_over(map: &ClusterMap, id: GroupId) -> ClusterMap {
    let Group { epoch, revision, in_sync, .. } = map.groups[&id].clone();
    map.apply(&Change::InSync { group: id, epoch, revision, in_sync }).expect("its leader asks")
}

#[test]
fn no_member_leaves_or_joins_before_the_leader_has_taken_over() {
    let (map, id) = counted(2);
    let map = map.apply(&Change::AppointLeaders(vec![(id, 2)])).expect("it is settled");
    let map = map.apply(&Change::ReplaceNode { id: 1, accept_loss: false }).expect("one of those that fail");
    assert_eq!(removals(&map, id), 0);
    let step = Change::MoveMember { group: id, step: Step::Remove(1) };
    let refused = map.apply(&step).expect_err("node 2 may not have what nodes 1 and 3 acknowledged");
    assert!(refused.to_string().contains("has not taken over"), "{refused}");
    // With more `acks`, too, the new leader would ask fewer members than it has to.
    let settings = [("acks".to_owned(), "3".to_owned())].into();
    let change = Change::SetKeyspace { prefix: String::new(), settings };
    let refused = map.apply(&change).expect_err("a new leader may not have what node 3 acknowledged");
    assert!(refused.to_string().contains("has not taken over"), "{refused}");
    assert_eq!(removals(&takes_over(&map, id), id), 1);
}

#[test]
fn members_that_lost_their_storage_leave_an_unsettled_group_one_after_the_other() {
    let (mut map, id) = counted(3);
    for lost in [4, 5] {
        map = map.apply(&Change::ReplaceNode { id: lost, accept_loss: false }).expect("the leader has all");
    }
    for members in [&[1, 2, 3, 5][..], &[1, 2, 3][..]] {
        assert_eq!(removals(&map, id), 1);
        let moves = map.next_moves(true, |_| true);
        let change = moves.iter().find(|it| matches!(it, Change::MoveMember { group, .. } if *group == id));
        map = map.apply(change.expect("a removal")).expect("it holds nothing");
        assert_eq!((&map.groups[&id].members[..], map.groups[&id].settled), (members, false));
        map = takes_over(&map, id);
    }
}

#[test]
fn more_members_than_may_fail_are_given_up_only_if_the_loss_is_accepted() {
    let (map, id) = counted(2);
    let replace = |id, accept_loss| Change::ReplaceNode { id, accept_loss };
    let map = map.apply(&replace(1, false)).expect("the leader is one of two");
    let map = map.apply(&replace(3, false)).expect("two");
    assert_ne!(map.groups[&id].leader, 1);
    let refused = map.apply(&replace(4, false)).expect_err("a write may have been at 1, 3 and 4 alone");
    assert!(refused.to_string().contains("may lack what was acknowledged"), "{refused}");
    takes_over(&map, id).apply(&replace(4, false)).expect("its leader has asked the others");
    let given_up = map.apply(&replace(4, true)).expect("accepted");
    assert_eq!((&given_up.groups[&id].members[..], given_up.groups[&id].leader), (&[2, 5][..], 2));
    assert_eq!(given_up.nodes[&3].rejoins[&id], Rejoin::Join);
    let whole = settle(given_up, true);
    assert_eq!(whole.groups[&id].members.len(), 2, "the lost nodes have not started yet");
}

/// Acts as the control leader and the replicas until nothing is left to do: every group reports that it is settled.
fn settle(mut map: ClusterMap, moves_control_group: bool) -> ClusterMap {
    for _ in 0..1000 {
        let before = map.clone();
        for (id, group) in before.groups.clone() {
            let holds = |node: &NodeId| before.nodes[node].start.identity != 0;
            let in_sync: Vec<NodeId> = group.members.iter().copied().filter(holds).collect();
            let request = Change::InSync { group: id, epoch: group.epoch, revision: group.revision, in_sync };
            map = map.apply(&request).unwrap_or(map);
        }
        // A leaving node stops leading once its lease is over.
        for (id, group) in before.groups.clone() {
            if before.nodes[&group.leader.max(1)].state == NodeState::Leaving {
                let others = group.members.iter().filter(|node| **node != group.leader);
                let appointed =
                    others.filter_map(|node| map.apply(&Change::AppointLeaders(vec![(id, *node)])).ok());
                map = appointed.take(1).next().unwrap_or(map);
            }
        }
        for change in map.next_moves(moves_control_group, |_| true) {
            let after = map.apply(&change).expect("a planned change is possible");
            check_step(&map, &after).and_then(|()| check_leaders(&map, &after)).expect("a valid step");
            map = after;
        }
        if map == before {
            return map;
        }
    }
    panic!("it never settles");
}

#[test]
fn a_node_is_removed_when_others_hold_what_it_held() {
    let mut spaces = keyspaces();
    spaces.push(keyspace("three:", |it| (it.replicas, it.leader) = (3, 4)));
    let map = settle(started(cluster(5, &spaces)), true);
    let refused = map.apply(&Change::RemoveNode { id: 4, force: true }).expect_err("registers");
    assert!(
        refused.to_string().contains("keyspace 'abd:', whose members cannot be changed yet"),
        "{refused}"
    );
    let map = map.apply(&Change::DropKeyspace("abd:".into())).expect("it is not needed");
    let map = settle(map.apply(&Change::RemoveNode { id: 4, force: true }).expect("a node less"), true);
    assert!(!map.nodes.contains_key(&4));
    assert_eq!(group(&map, "three:").1.members.len(), 3, "another node has taken its place");
    assert_eq!(group(&map, "").1.members, [1, 2, 3, 5]);
    assert_eq!(map.groups[&CONTROL_GROUP].members, [1, 2, 3], "four nodes need no more");
}

#[test]
fn a_new_consensus_group_is_settled_when_all_of_its_members_have_begun() {
    let map = started(cluster(3, &[keyspace("", |it| it.replication = Protocol::Consensus)]));
    let (id, _) = group(&map, "");
    let begun = |map: &ClusterMap, in_sync: Vec<NodeId>| {
        let Group { epoch, revision, .. } = map.groups[&id];
        map.apply(&Change::InSync { group: id, epoch, revision, in_sync }).expect("they take part")
    };
    let map = begun(&map, vec![1, 2]);
    assert!(!map.groups[&id].settled, "node 3 may not have heard of the group yet");
    assert!(begun(&map, vec![1, 2, 3]).groups[&id].settled);
    // If node 3 never begins, it can be replaced.
    let map = map.apply(&Change::ReplaceNode { id: 3, accept_loss: false }).expect("others hold everything");
    assert!(
        map.next_moves(true, |_| true).contains(&Change::MoveMember { group: id, step: Step::Remove(3) })
    );
}

#[test]
fn a_node_is_removed_only_when_its_groups_no_longer_need_it() {
    let map = settle(started(cluster(2, &[keyspace("", |it| it.replication = Protocol::Consensus)])), true);
    let (id, _) = group(&map, "");
    let map = map.apply(&Change::RemoveNode { id: 1, force: true }).expect("another one stays");
    let map = map.apply(&Change::MoveMember { group: id, step: Step::Remove(1) }).expect("it is settled");
    let map =
        map.apply(&Change::MoveMember { group: CONTROL_GROUP, step: Step::Remove(1) }).expect("this, too");
    assert!(!map.groups.values().any(|group| group.members.contains(&1)));
    assert!(
        !map.next_moves(true, |_| true).contains(&Change::RemoveNode { id: 1, force: false }),
        "its vote may be needed to let it go"
    );
    let again = map.apply(&Change::RemoveNode { id: 1, force: true }).expect("asked for again");
    assert!(again.nodes.contains_key(&1));
    assert!(!settle(map, true).nodes.contains_key(&1));
}

#[test]
fn an_added_node_gets_replicas_when_it_has_started() {
    let map = settle(started(cluster(4, &keyspaces())), true);
    let map = settle(map.apply(&Change::AddNode(address(5))).expect("a node more"), true);
    assert_eq!(map.apply(&Change::AddNode(address(5))), Ok(map.clone()), "asked twice");
    assert_eq!(group(&map, "").1.members, [1, 2, 3, 4], "it may never come");
    let map = settle(map.apply(&start(5, 1)).expect("it came"), true);
    assert_eq!(group(&map, "").1.members, [1, 2, 3, 4, 5]);
    assert_eq!(map.groups[&CONTROL_GROUP].members, [1, 2, 3, 4, 5]);
}

#[test]
fn a_replaced_node_leaves_each_group_and_joins_it_again() {
    let map = settle(started(cluster(3, &keyspaces())), true);
    let map = map.apply(&Change::ReplaceNode { id: 3, accept_loss: false }).expect("others hold everything");
    let (registers, _) = group(&map, "abd:");
    assert!(
        !map.nodes[&3].rejoins.contains_key(&registers),
        "a node that starts gets registers back from the others"
    );
    let (id, _) = group(&map, "lock:");
    assert_eq!(map.nodes[&3].rejoins[&id], Rejoin::Leave);
    assert_eq!(
        map.groups_of(3).map(|(id, _)| id).collect::<Vec<_>>(),
        [registers],
        "nothing else that it was in"
    );
    let epoch = map.groups[&id].epoch;
    let map = settle(map, true);
    assert_eq!(map.groups[&id].members, [1, 2]);
    let new = Change::NodeStarted {
        id: 3,
        start: Start { identity: 333, life: 1, run: 1, found: 0 },
        releases: RELEASES,
    };
    let map = settle(map.apply(&new).expect("new storage"), true);
    assert_eq!((map.groups[&id].members.as_slice(), map.groups[&id].epoch), (&[1, 2, 3][..], epoch + 2));
    assert!(map.nodes[&3].rejoins.is_empty());
    assert!(map.groups.values().all(|group| group.members.contains(&3)));
}

/// If a group waited for a dead node, it would continue with one replica too few, and could no longer change.
#[test]
fn only_live_nodes_join_a_group() {
    let space = keyspace("", |it| (it.replication, it.replicas) = (Protocol::Consensus, 3));
    let map = settle(started(cluster(5, &[space])), true);
    let (id, before) = group(&map, "");
    assert_eq!(before.members, [1, 2, 3]);
    let map = map.apply(&Change::RemoveNode { id: 2, force: true }).expect("others hold everything");
    let next_move = |alive: &[NodeId]| {
        let mut moves = map.next_moves(true, |node| alive.contains(&node)).into_iter();
        moves.find(|change| matches!(change, Change::MoveMember { group, .. } if *group == id))
    };
    assert_eq!(next_move(&[1, 3, 4, 5]), Some(Change::MoveMember { group: id, step: Step::Add(4) }));
    assert_eq!(next_move(&[1, 3, 5]), Some(Change::MoveMember { group: id, step: Step::Add(5) }));
    let alone = next_move(&[1, 3]);
    assert!(!matches!(alone, Some(Change::MoveMember { step: Step::Add(_), .. })), "{alone:?}");
}

#[test]
fn a_joining_node_that_loses_its_storage_does_not_hold_up_its_group() {
    let map = started(cluster(3, &[keyspace("", |it| it.replication = Protocol::Consensus)]));
    let (id, _) = group(&map, "");
    let replace = Change::ReplaceNode { id: 3, accept_loss: false };
    let map = settle(map.apply(&replace).expect("others hold everything"), true);
    let new = Change::NodeStarted {
        id: 3,
        start: Start { identity: 333, life: 1, run: 1, found: 0 },
        releases: RELEASES,
    };
    let map = map.apply(&new).expect("new storage");
    let map = map.apply(&Change::MoveMember { group: id, step: Step::Add(3) }).expect("it joins again");
    assert!(!map.groups[&id].settled, "it is waited for");
    let map = map.apply(&replace).expect("it has lost that storage, too");
    assert!(
        map.next_moves(true, |_| true).contains(&Change::MoveMember { group: id, step: Step::Remove(3) })
    );
    let map = settle(map, true);
    assert_eq!((map.groups[&id].members.as_slice(), map.groups[&id].settled), (&[1, 2][..], true));
}

#[test]
fn the_only_member_that_holds_everything_is_not_replaced_by_accident() {
    let map = started(cluster(3, &[keyspace("", |it| it.leader = 1)]));
    let (id, _) = group(&map, "");
    let map = map
        .apply(&Change::InSync { group: id, epoch: 1, revision: map.groups[&id].revision, in_sync: vec![1] })
        .expect("a request");
    let refused = map.apply(&Change::ReplaceNode { id: 1, accept_loss: false }).expect_err("a loss");
    assert!(refused.to_string().contains("alone held everything"), "{refused}");
    let map = map.apply(&Change::ReplaceNode { id: 1, accept_loss: true }).expect("accepted");
    assert_eq!(group(&map, "").1.leader, 2);
}

// Any sequence of changes.

fn any_keyspace() -> impl Strategy<Value = Keyspace> {
    let prefix = prop::sample::select(vec!["a:", "b:", "c:"]);
    let replication = prop::sample::select(vec![
        Protocol::LeaderFollower,
        Protocol::Abd,
        Protocol::Blocking,
        Protocol::Consensus,
    ]);
    let acks = [Acks::None, Acks::Count(1), Acks::Count(2), Acks::Majority, Acks::All];
    let acks = prop::sample::select(acks.to_vec());
    let durability = prop::sample::select(vec![Durability::None, Durability::Fsync]);
    (prefix, replication, acks, durability, 0..5u16, 1..9u16, 0..6u16).prop_map(
        |(prefix, replication, acks, durability, replicas, shards, leader)| Keyspace {
            prefix: prefix.into(),
            replication,
            acks,
            durability: Some(durability),
            replicas,
            shards,
            leader,
            ..Keyspace::default()
        },
    )
}

fn any_change() -> impl Strategy<Value = Change> {
    let node = || 1..8u16;
    let some_nodes = || prop::collection::btree_set(node(), 0..5);
    let setting =
        prop::sample::select(vec![("acks", "all"), ("acks", "1"), ("acks", "majority"), ("reads", "any")]);
    prop_oneof![
        any_keyspace().prop_map(Change::CreateKeyspace),
        prop::sample::select(vec!["a:", "b:", "c:", ""]).prop_map(|it| Change::DropKeyspace(it.into())),
        (prop::sample::select(vec!["a:", "b:", ""]), setting).prop_map(|(prefix, (name, value))| {
            let settings = BTreeMap::from([(name.to_string(), value.to_string())]);
            Change::SetKeyspace { prefix: prefix.into(), settings }
        }),
        node().prop_map(|id| Change::AddNode(address(id))),
        (node(), any::<bool>()).prop_map(|(id, force)| Change::RemoveNode { id, force }),
        (node(), any::<bool>()).prop_map(|(id, accept_loss)| Change::ReplaceNode { id, accept_loss }),
        (node(), 1..3u64, 1..4u64, 1..3u64, 0..3u64).prop_map(|(id, identity, life, run, found)| {
            Change::NodeStarted { id, start: Start { identity, life, run, found }, releases: RELEASES }
        }),
        (0..20u16, 1..6u64, some_nodes()).prop_map(|(group, epoch, in_sync)| {
            Change::InSync { group, epoch, revision: 0, in_sync: in_sync.into_iter().collect() }
        }),
        prop::collection::vec((0..20u16, node()), 0..3).prop_map(Change::AppointLeaders),
        (0..20u16, 1..6u64, node()).prop_map(|(group, epoch, to)| Change::Resign { group, epoch, to }),
        (prop::collection::vec(0..20u16, 0..3), node())
            .prop_map(|(groups, node)| Change::PreferLeader { groups, node }),
        (node(), any::<bool>()).prop_map(|(id, is_drained)| Change::DrainNode { id, is_drained }),
        (0..20u16, node(), any::<bool>()).prop_map(|(group, node, adds)| {
            let step = if adds { Step::Add(node) } else { Step::Remove(node) };
            Change::MoveMember { group, step }
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_changes_breaks_a_map(
        nodes in 1..6u16,
        changes in prop::collection::vec((any_change(), any::<bool>()), 1..60),
    ) {
        let mut map = cluster(nodes, &[keyspace("", |it| it.shards = 3)]);
        let mut given: BTreeSet<u16> = map.groups.keys().copied().collect();
        for (mut change, settles) in changes {
            // Requests with the current epoch test more than requests with a random one.
            if let Change::InSync { group, epoch, revision, .. } = &mut change
                && let Some(group) = map.groups.get(group)
            {
                (*epoch, *revision) = (group.epoch, group.revision);
            }
            let mut todo = vec![change];
            todo.extend(if settles { map.next_moves(true, |_| true) } else { Vec::new() });
            for change in todo {
                let Ok(after) = map.apply(&change) else { continue };
                prop_assert_eq!(after.version, map.version + u64::from(after != map));
                if let Err(why) = check_step(&map, &after).and_then(|()| check_leaders(&map, &after)) {
                    prop_assert!(false, "{}: {:?}", why, change);
                }
                for id in after.groups.keys().filter(|id| !map.groups.contains_key(id)) {
                    prop_assert!(given.insert(*id), "group {} is given twice", id);
                }
                map = after;
            }
        }
        prop_assert_eq!(ClusterMap::decode(&map.encode(), RELEASES), Ok(map));
    }
}

#[test]
fn the_map_is_shown_without_leaders_that_it_does_not_know() {
    let nodes: Vec<_> = (1..=3).map(address).collect();
    let mut map = ClusterMap::initial(&nodes, &keyspaces()).expect("a cluster");
    let json = |map: &ClusterMap| -> serde_json::Value { serde_json::from_slice(&map.shown()).unwrap() };
    assert_eq!(map.shown(), map.encode(), "programs of release 1 read no other form");
    map.level = RELEASES.newest;
    let shown = json(&map);
    let mut protocols = std::collections::BTreeSet::new();
    for id in map.groups.keys() {
        let fields = &shown["groups"][id.to_string()];
        let is_led = map.protocol(*id) == Protocol::LeaderFollower;
        protocols.insert(format!("{:?}", map.protocol(*id)));
        assert_eq!(fields["leader"].is_number(), is_led, "{fields}");
        assert_eq!(fields["epoch"].is_number(), is_led, "{fields}");
        assert_eq!(fields["membership"].is_number(), !is_led, "{fields}");
    }
    assert!(protocols.len() > 2 && protocols.contains("LeaderFollower"), "{protocols:?}");
    let read = ClusterMap::of_shown(&map.shown()).expect("tools read it");
    assert_eq!(json(&read), shown);
    read.check().expect("it is a map that can be");
    assert_eq!(ClusterMap::of_shown(&ClusterMap::default().shown()).map(|map| map.version), Ok(0));
    let mut later = shown;
    later["level"] = (RELEASES.newest + 1).into();
    later["a field of a later release"] = true.into();
    let why = ClusterMap::of_shown(later.to_string().as_bytes()).unwrap_err();
    assert!(why.contains("and the cluster is at level"), "{why}");
}

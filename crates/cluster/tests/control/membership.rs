//! Nodes that are added and removed while the cluster runs.

use crate::cluster::{address, keyspace};
use crate::world::World;
use cluster::control::{Change, ChangeError, Event, NodeState};
use cluster::{Keyspace, Protocol};
use std::collections::BTreeMap;

fn cluster(nodes: u16) -> World {
    let mut world = World::new(u64::from(nodes), nodes, 1000);
    (1..=nodes).for_each(|id| world.start(id));
    world.become_whole();
    world
}

fn newest(world: &World) -> &cluster::control::ClusterMap {
    world.maps.values().last().expect("a map")
}

#[test]
fn a_node_is_added_and_gets_replicas() {
    let mut world = cluster(3);
    world.make(2, &Change::AddNode(address(4))).expect("a node more");
    world.provide(4);
    world.start(4);
    world.run_for(3_000_000);
    world.become_whole();
    assert!(
        newest(&world).keyspaces[""].groups.iter().all(|id| newest(&world).groups[id].members.contains(&4))
    );
    assert!(world.control(4).expect("it runs").is_admitted());
}

#[test]
fn a_new_keyspace_is_placed_on_nodes_that_are_alive() {
    let mut world = cluster(3);
    world.kill(3, 0);
    world.run_for(1_000_000);
    let mut members_and_leader = |prefix: &str, edit: fn(&mut Keyspace)| {
        world.make(1, &Change::CreateKeyspace(keyspace(prefix, edit))).expect("new");
        let group = &newest(&world).groups[&newest(&world).keyspaces[prefix].groups[0]];
        (group.members.clone(), group.leader)
    };
    for prefix in ["a:", "b:", "c:", "d:"] {
        let (members, leader) = members_and_leader(prefix, |it| {
            (it.replication, it.replicas) = (Protocol::Consensus, 1);
        });
        assert!(members == [leader] && leader != 3, "{prefix} is at nodes {members:?}");
    }
    let (members, leader) = members_and_leader("two:", |it| it.replicas = 2);
    assert!(members == [1, 2] && leader != 3, "{members:?}, led by {leader}");

    // There are not enough others, or an operator wants it there.
    let all = members_and_leader("every:", |_| {});
    assert!(all.0 == [1, 2, 3] && all.1 != 3, "{all:?}");
    let (members, leader) = members_and_leader("third:", |it| {
        (it.replication, it.replicas, it.leader) = (Protocol::Consensus, 1, 3);
    });
    assert_eq!((members, leader), (vec![3], 3));
    let (members, leader) = members_and_leader("led:", |it| {
        (it.replicas, it.leader) = (2, 3);
    });
    assert_eq!((members, leader), (vec![1, 3], 1), "it is led by a node that can");
}

#[test]
fn a_node_that_was_not_added_is_refused() {
    let mut world = cluster(3);
    world.provide(4);
    world.start(4);
    world.run_for(1_000_000);
    let refused = |event: &Event| matches!(event, Event::Refused { why } if why.contains("quorate node add"));
    assert!(world.reported.iter().any(|(id, event)| *id == 4 && refused(event)));
}

#[test]
fn a_leader_is_removed_while_its_groups_go_on() {
    let mut world = cluster(4);
    world
        .make(1, &Change::CreateKeyspace(keyspace("x:", |it| (it.leader, it.replicas) = (4, 3))))
        .expect("new");
    world.make(2, &Change::DropKeyspace("abd:".into())).expect("registers keep their members");
    world.become_whole();
    world.make(3, &Change::RemoveNode { id: 4, force: true }).expect("a node less");
    for _ in 0..100 {
        world.run_for(100_000);
        if !newest(&world).nodes.contains_key(&4) {
            break;
        }
    }
    world.kill(4, 0);
    world.become_whole();
    assert_eq!(newest(&world).groups[&newest(&world).keyspaces["x:"].groups[0]].members, [1, 2, 3]);
}

#[test]
fn a_control_node_stays_while_its_group_cannot_change() {
    let mut world = cluster(4);
    let refused =
        world.make(4, &Change::RemoveNode { id: 2, force: true }).expect_err("a control node").to_string();
    assert!(refused.contains("control group"), "{refused}");
    assert_eq!(newest(&world).nodes[&2].state, NodeState::Member);
}

#[test]
fn a_dead_node_is_replaced_by_one_with_new_storage() {
    let mut world = cluster(4);
    let alive =
        world.make(1, &Change::ReplaceNode { id: 4, accept_loss: false }).expect_err("it lives").to_string();
    assert!(alive.contains("is alive"), "{alive}");
    world.kill(4, 0);
    world.wipe(4);
    world.start(4);
    world.run_for(2_000_000);
    assert!(!world.control(4).expect("it runs").is_admitted(), "it has forgotten what it promised");
    world.make(1, &Change::ReplaceNode { id: 4, accept_loss: false }).expect("it is another one");
    world.run_for(5_000_000);
    world.become_whole();
    assert!(world.control(4).expect("it runs").is_admitted(), "admitted without another start");
    assert!(newest(&world).nodes[&4].rejoins.is_empty());
    assert!(newest(&world).groups.iter().all(|(id, group)| *id == 0 || group.members.contains(&4)));
}

#[test]
fn every_node_takes_changes_and_returns_their_outcomes() {
    let mut world = cluster(5);
    for id in 1..=5 {
        let prefix = format!("of{id}:");
        world.make(id, &Change::CreateKeyspace(keyspace(&prefix, |_| ()))).expect("a keyspace");
        let settings = BTreeMap::from([("acks".to_string(), "all".to_string())]);
        world.make(id, &Change::SetKeyspace { prefix: prefix.clone(), settings }).expect("a setting");
        let refused = world
            .make(id, &Change::CreateKeyspace(keyspace(&prefix, |_| ())))
            .expect_err("it is there")
            .to_string();
        assert!(refused.contains("it is there already"), "{refused}");
    }
    let refused =
        world.make(5, &Change::AppointLeaders(vec![(1, 2)])).expect_err("its leader lives").to_string();
    assert!(refused.contains("before its lease ends"), "{refused}");
    let settings = BTreeMap::from([("reads".to_string(), "dirty".to_string())]);
    let unknown = Change::SetKeyspace { prefix: "of1:".into(), settings };
    let refused = world.make(4, &unknown).expect_err("no such reads").to_string();
    assert!(refused.contains(r#"unknown reads "dirty"; use "linearizable" or "any""#), "{refused}");
    world.become_whole();
}

#[test]
fn without_a_majority_a_change_has_an_unknown_outcome() {
    let mut world = cluster(3);
    world.kill(1, 0);
    world.kill(2, 0);
    let answer =
        world.make(3, &Change::CreateKeyspace(keyspace("x:", |_| ()))).expect_err("no node can decide");
    assert_eq!(answer, ChangeError::Unknown { seconds: 5 });
    assert!((1..9).all(|group| !world.leads(3, group)), "its lease is over");
}

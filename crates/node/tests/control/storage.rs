//! Nodes that come back with what they had, with less, or with nothing.

use crate::world::World;
use node::control::{Change, Event, Message};

fn cluster(nodes: u16) -> World {
    let mut world = World::new(u64::from(nodes), nodes, 1000);
    (1..=nodes).for_each(|id| world.start(id));
    world.become_whole();
    world
}

fn is_refused(world: &World, node: u16) -> bool {
    world.told.iter().any(|(id, event)| *id == node && matches!(event, Event::Refused { .. }))
}

#[test]
fn a_new_cluster_begins_when_all_its_control_nodes_are_there() {
    let mut world = World::new(1, 3, 0);
    world.start(1);
    world.start(2);
    world.run_for(2_000_000);
    assert!(world.maps.is_empty(), "node 3 may have been one of a majority that is forgotten");
    let waits = Event::WaitsFor { nodes: vec![3] };
    assert!(world.told.contains(&(1, waits)), "{:?}", world.told);
    world.start(3);
    world.become_whole();
    assert_eq!(world.maps.first_key_value().map(|(version, _)| *version), Some(1));
}

#[test]
fn a_cluster_of_one_or_two_nodes_begins_too() {
    for nodes in [1, 2] {
        let world = cluster(nodes);
        assert_eq!(world.alive().len(), usize::from(nodes));
    }
}

#[test]
fn a_cluster_that_lost_its_power_comes_back_by_itself() {
    let mut world = cluster(5);
    let version = *world.maps.keys().last().expect("a map");
    world.ids().into_iter().for_each(|id| world.kill(id, 0));
    world.run_for(1_000_000);
    world.heal();
    assert!(*world.maps.keys().last().expect("a map") > version, "new starts are registered");
    assert!((1..=5).all(|id| !is_refused(&world, id)));
}

#[test]
fn a_checkpoint_stands_for_the_records_before_it() {
    let mut world = cluster(3);
    world.run_for(10_000);
    world.ids().into_iter().for_each(|id| world.checkpoint(id));
    world.ids().into_iter().for_each(|id| world.kill(id, 0));
    world.heal();
}

#[test]
fn a_control_node_without_its_storage_does_not_vote() {
    let mut world = cluster(3);
    world.kill(3, 0);
    world.wipe(3);
    world.kill(2, 0);
    world.start(3);
    world.run_for(3_000_000);
    assert!(!world.control(3).expect("it runs").is_admitted());
    assert_eq!(world.control_leader(), None, "1 and what was 3 are no majority");
    world.start(2);
    world.run_for(3_000_000);
    assert!(is_refused(&world, 3));
    assert!(world.control_leader().is_some());
}

#[test]
fn a_storage_that_was_put_back_is_refused() {
    let mut world = cluster(4);
    world.kill(4, 0);
    world.roll_back(4);
    world.start(4);
    world.run_for(1_000_000);
    assert!(is_refused(&world, 4), "its life is that of the process that was registered");
    assert!(!world.control(4).expect("it runs").is_admitted());
}

#[test]
fn a_refusal_that_comes_after_the_node_was_let_in_is_of_no_account() {
    let mut world = cluster(4);
    world.kill(4, 0);
    world.roll_back(4);
    world.run_for(1_000_000);
    world.make(1, &Change::ReplaceNode { id: 4, accept_loss: false }).expect("a dead node is replaced");
    world.start(4);
    world.heal();
    let (version, map) = world.maps.last_key_value().expect("a map");
    let (version, start) = (*version, map.nodes[&4].start);
    let refuse = |world: &mut World, map_version| {
        let mut bytes = Vec::new();
        Message::Refused { start, map_version, why: "who are you?".into() }.encode(&mut bytes);
        world.hand_over(1, 4, &bytes).expect("a message");
        is_refused(world, 4)
    };
    assert!(!refuse(&mut world, version - 1), "it was said before");
    assert!(world.control(4).expect("it runs").is_admitted());
    assert!(refuse(&mut world, version), "who knows this map may refuse");
}

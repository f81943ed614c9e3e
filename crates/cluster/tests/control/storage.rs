//! Nodes that restart with what they had, with less, or with nothing.

use crate::world::{Disk, World};
use cluster::control::{Change, Event, Message};

fn cluster(nodes: u16) -> World {
    let mut world = World::new(u64::from(nodes), nodes, 1000);
    (1..=nodes).for_each(|id| world.start(id));
    world.become_whole();
    world
}

fn is_refused(world: &World, node: u16) -> bool {
    world.reported.iter().any(|(id, event)| *id == node && matches!(event, Event::Refused { .. }))
}

#[test]
fn a_new_cluster_begins_when_all_its_control_nodes_are_up() {
    let mut world = World::new(1, 3, 0);
    world.start(1);
    world.start(2);
    world.run_for(2_000_000);
    assert!(world.maps.is_empty(), "node 3 may have been one of a majority that is forgotten");
    let waits = Event::WaitsFor { nodes: vec![3] };
    assert!(world.reported.contains(&(1, waits)), "{:?}", world.reported);
    world.start(3);
    world.become_whole();
    assert_eq!(world.maps.first_key_value().map(|(version, _)| *version), Some(1));
}

#[test]
fn a_cluster_of_one_or_two_nodes_begins() {
    for nodes in [1, 2] {
        let world = cluster(nodes);
        assert_eq!(world.alive().len(), usize::from(nodes));
    }
}

#[test]
fn a_cluster_recovers_by_itself_from_a_loss_of_power() {
    let mut world = cluster(5);
    let version = *world.maps.keys().last().expect("a map");
    world.ids().into_iter().for_each(|id| world.kill(id, 0));
    world.run_for(1_000_000);
    world.heal();
    assert!(*world.maps.keys().last().expect("a map") > version, "new starts are registered");
    assert!((1..=5).all(|id| !is_refused(&world, id)));
}

#[test]
fn a_checkpoint_replaces_the_records_before_it() {
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
fn a_storage_that_was_rolled_back_is_refused() {
    let mut world = cluster(4);
    world.kill(4, 0);
    world.roll_back(4);
    world.start(4);
    world.run_for(1_000_000);
    assert!(is_refused(&world, 4), "its incarnation is that of the process that was registered");
    assert!(!world.control(4).expect("it runs").is_admitted());
}

/// Returns a copy of a node's disk from before the node made something durable on which others rely, and kills the node.
/// The copy is of the same incarnation, so that opening it looks like an ordinary restart.
fn outdated(world: &mut World, node: u16) -> Disk {
    let copy = world.copy(node);
    world.write(node, 5000);
    world.run_for(200_000); // Two renewals; the first one may already have been in flight.
    world.kill(node, 0);
    copy
}

fn is_admitted(world: &World, node: u16) -> bool {
    world.control(node).expect("it runs").is_admitted()
}

#[test]
fn a_disk_that_was_rolled_back_within_one_incarnation_is_refused() {
    for node in [4, 2] {
        let mut world = cluster(4);
        let copy = outdated(&mut world, node);
        world.put_back(node, copy);
        world.start(node);
        world.run_for(1_000_000);
        assert!(is_refused(&world, node) && !is_admitted(&world, node), "node {node}");
    }
}

#[test]
fn a_new_control_leader_refuses_a_disk_that_was_rolled_back() {
    let mut world = cluster(4);
    let copy = outdated(&mut world, 4);
    let leader = world.control_leader().expect("a node leads");
    world.kill(leader, 0);
    world.run_for(1_000_000);
    assert!(world.control_leader().is_some_and(|other| other != leader));
    world.put_back(4, copy);
    world.start(4);
    world.run_for(1_000_000);
    assert!(is_refused(&world, 4) && !is_admitted(&world, 4));
}

#[test]
fn control_nodes_that_lost_power_refuse_a_disk_that_was_rolled_back() {
    let mut world = cluster(4);
    world.write(4, 1);
    world.run_for(2_000_000);
    let copy = outdated(&mut world, 4);
    world.run_for(1_100_000); // Durable positions of nodes are stored once a second.
    (1..=3).for_each(|id| world.kill(id, 0));
    (1..=3).for_each(|id| world.start(id));
    world.put_back(4, copy);
    world.start(4);
    world.run_for(3_000_000);
    assert!(is_refused(&world, 4) && !is_admitted(&world, 4));
    assert!((1..=3).all(|id| is_admitted(&world, id) && !is_refused(&world, id)));
}

#[test]
fn a_control_leader_that_was_cut_off_from_a_node_refuses_its_rolled_back_disk() {
    let mut world = cluster(4);
    let leader = world.control_leader().expect("a node leads");
    world.cut.extend([(4, leader), (leader, 4)]);
    world.run_for(100_000);
    let copy = outdated(&mut world, 4);
    world.run_for(1_100_000); // Control nodes exchange durable positions once a second.
    world.cut.clear();
    world.put_back(4, copy);
    world.start(4);
    world.run_for(1_000_000);
    assert_eq!(world.control_leader(), Some(leader), "it received nothing from the node itself");
    assert!(is_refused(&world, 4) && !is_admitted(&world, 4));
}

#[test]
fn records_appended_to_an_older_disk_do_not_make_it_complete() {
    let mut world = cluster(4);
    let copy = outdated(&mut world, 4);
    world.put_back(4, copy);
    for _ in 0..2 {
        world.start(4);
        world.run_for(1_000);
        world.write(4, 5000); // As a voter may, before another node has refused it.
        world.run_for(1_000_000);
        assert!(is_refused(&world, 4) && !is_admitted(&world, 4));
        world.reported.clear();
        world.kill(4, 0);
    }
}

#[test]
fn the_right_disk_is_admitted_after_an_older_one_was_tried() {
    let mut world = cluster(4);
    let copy = outdated(&mut world, 4);
    let right = world.copy(4);
    world.put_back(4, copy);
    for _ in 0..3 {
        world.start(4);
        world.run_for(1_000_000);
        assert!(is_refused(&world, 4));
        world.kill(4, 0);
    }
    world.reported.clear();
    world.run_for(1_000_000);
    world.put_back(4, right);
    world.heal();
    assert!(!is_refused(&world, 4), "though its incarnation is earlier than that of the older disk");
}

#[test]
fn a_node_that_loses_data_on_which_no_node_relied_is_admitted() {
    let mut world = cluster(4);
    for round in 0..20 {
        for node in [4, 1 + round % 3] {
            // Between two renewals, and with some of the unsynced data.
            world.run_for(20_000 + 7_000 * u64::from(round));
            world.write(node, 10);
            world.kill(node, u64::from(round) % 3);
            world.run_for(100_000);
            world.start(node);
        }
    }
    world.heal();
    assert!((1..=4).all(|id| !is_refused(&world, id)), "{:?}", world.reported);
}

#[test]
fn a_start_that_dies_before_its_admission_does_no_harm() {
    let mut world = cluster(4);
    for _ in 0..5 {
        world.kill(4, 0);
        world.start(4);
        world.run_for(300); // It has at most sent a request.
        world.write(4, 10);
    }
    world.heal();
    world.write(4, 10);
    world.run_for(200_000);
    world.kill(4, 0);
    world.heal();
    assert!(!is_refused(&world, 4));
}

#[test]
fn the_durable_position_of_a_replaced_node_starts_again() {
    let mut world = cluster(4);
    let copy = outdated(&mut world, 4);
    world.put_back(4, copy);
    world.start(4);
    world.run_for(1_000_000);
    assert!(is_refused(&world, 4));
    world.make(1, &Change::ReplaceNode { id: 4, accept_loss: false }).expect("it is as good as dead");
    world.run_for(1_000_000);
    assert!(is_admitted(&world, 4), "with the same disk, as a new member");
    // Durable positions reported before are irrelevant, although they are beyond the log's end now.
    world.write(4, 10);
    world.run_for(200_000);
    world.kill(4, 0);
    world.reported.clear();
    world.heal();
    assert!(!is_refused(&world, 4));
    let copy = outdated(&mut world, 4);
    world.put_back(4, copy);
    world.start(4);
    world.run_for(1_000_000);
    assert!(is_refused(&world, 4), "but from then on its position counts");
}

#[test]
fn a_refusal_that_comes_after_the_admission_is_ignored() {
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
    assert!(!refuse(&mut world, version - 1), "the refusal is older than the admission");
    assert!(world.control(4).expect("it runs").is_admitted());
    assert!(refuse(&mut world, version), "a refusal by a node with this map counts");
}

//! Which node leads when leaders come and go.

use crate::cluster::keyspace;
use crate::world::World;
use cluster::control::{Change, Group};
use protocol::leader_follower::Acks;

/// Starts a cluster of five with a keyspace of two replicas, on nodes 4 and 5, led by 4.
fn cluster(acks: Acks) -> (World, u16) {
    let mut world = World::new(5, 5, 1000);
    (1..=5).for_each(|id| world.start(id));
    world.become_whole();
    let two = keyspace("two:", |it| (it.leader, it.replicas, it.acks) = (4, 2, acks));
    world.make(1, &Change::CreateKeyspace(two)).expect("a keyspace");
    world.become_whole();
    let map = world.maps.values().last().expect("a map");
    let group = map.keyspaces["two:"].groups[0];
    (world, group)
}

fn newest(world: &World, group: u16) -> &Group {
    &world.maps.values().last().expect("a map").groups[&group]
}

#[test]
fn a_leader_that_is_cut_off_stops_before_another_one_begins() {
    let (mut world, group) = cluster(Acks::All);
    assert!(world.leads(4, group));
    world.cut_off(4, true);
    let cut_us = world.now_us;
    while world.leads(4, group) {
        world.run_for(1_000);
        assert!(!world.leads(5, group));
    }
    assert!(world.now_us - cut_us <= 302_000, "its lease is no longer than that, and ends without a message");
    while !world.leads(5, group) {
        world.run_for(1_000);
        assert!(world.now_us - cut_us < 500_000, "no node takes over");
    }
    world.cut.clear();
    world.run_for(2_000_000);
    world.become_whole();
    assert_eq!(newest(&world, group).leader, 5, "leadership is not given back by itself");
    assert_eq!(newest(&world, group).in_sync, [4, 5], "it follows, and holds everything again");
}

#[test]
fn with_acks_all_only_a_member_that_holds_everything_leads() {
    let (mut world, group) = cluster(Acks::All);
    world.kill(5, 0);
    world.run_for(1_000_000);
    assert_eq!(newest(&world, group).in_sync, [4], "4 goes on alone");
    world.kill(4, 0);
    world.start(5);
    world.run_for(5_000_000);
    assert!(!world.leads(5, group), "it may lack what 4 acknowledged alone");
    let epoch = newest(&world, group).epoch;
    world.start(4);
    world.become_whole();
    assert!(world.leads(4, group) && newest(&world, group).epoch > epoch);
}

#[test]
fn with_other_acks_any_live_member_may_lead() {
    let (mut world, group) = cluster(Acks::None);
    world.kill(5, 0);
    world.run_for(1_000_000);
    world.kill(4, 0);
    world.start(5);
    world.run_for(2_000_000);
    assert!(world.leads(5, group), "what it lacks is lost, and the protocol reports that");
}

#[test]
fn after_a_pause_of_the_control_leader_no_group_has_two_leaders() {
    let (mut world, group) = cluster(Acks::Majority);
    let control = world.control_leader().expect("it leads");
    world.pause(control, 2_000_000);
    world.run_for(1_000_000);
    assert_ne!(world.control_leader(), Some(control));
    assert!(world.leads(4, group), "another one grants leases");
    world.run_for(2_000_000);
    world.become_whole();
}

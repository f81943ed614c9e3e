//! Changes that decide how nodes carry out commands, as of libraries and keyspaces: once a change is answered, every node with a
//! lease has a map with it.

use crate::world::World;
use cluster::Keyspace;
use cluster::control::{Change, ChangeError};
use std::rc::Rc;

fn change_of_libraries(text: u64) -> Change {
    let library = serde_json::json!({ "text": text.to_string(), "functions": [{ "name": "f" }] });
    let step = serde_json::json!({ "add": { "libraries": { "lib": library }, "policy": "replace" } });
    serde_json::from_value(serde_json::json!({ "libraries": step })).expect("a change")
}

fn change_of_keyspaces(number: u64) -> Change {
    match number % 3 {
        0 => Change::CreateKeyspace(Keyspace::parse("prefix=p: replication=consensus").expect("a keyspace")),
        1 => Change::DropKeyspace("p:".into()),
        _ => {
            let settings = [("script_cost_max".to_string(), (1_000_000 + number).to_string())].into();
            Change::SetKeyspace { prefix: String::new(), settings }
        }
    }
}

/// The newest version of the map in the answers to these requests.
fn acknowledged(world: &World, requests: &[u64]) -> u64 {
    let ours = world.answers.iter().filter(|(_, answer)| requests.contains(&answer.request));
    ours.filter_map(|(_, answer)| answer.result.clone().ok()).max().unwrap_or(0)
}

fn check(world: &World, seed: u64, acknowledged: u64) {
    for id in world.alive() {
        let Some(control) = world.control(id) else { continue };
        let has_lease = control.is_admitted() && world.now(id).monotonic_us < control.lease_until_us();
        let version = control.map().version;
        assert!(
            !has_lease || version >= acknowledged,
            "seed {seed}: node {id} has map {version} and a lease, and {acknowledged} is acknowledged"
        );
    }
}

#[test]
fn a_change_of_libraries_is_answered_once_every_node_with_a_lease_has_it() {
    changes_are_answered_once_every_node_with_a_lease_has_them(change_of_libraries);
}

#[test]
fn a_change_of_keyspaces_is_answered_once_every_node_with_a_lease_has_it() {
    changes_are_answered_once_every_node_with_a_lease_has_them(change_of_keyspaces);
}

fn changes_are_answered_once_every_node_with_a_lease_has_them(change: fn(u64) -> Change) {
    let mut answered = 0;
    for seed in 0..60 {
        let mut world = World::new(seed, if seed % 2 == 0 { 3 } else { 7 }, 100);
        world.ids().into_iter().for_each(|id| world.start(id));
        world.become_whole();
        let (ids, mut requests) = (world.ids(), Vec::new());
        let any = |world: &mut World| ids[world.random.below(ids.len() as u64) as usize];
        for round in 0..12 {
            let node = any(&mut world);
            match world.random.below(5) {
                0 => world.cut_off(node, true),
                1 => world.cut_off(node, false),
                2 => world.pause(node, 400_000),
                3 if world.alive().contains(&node) => world.kill(node, 0),
                _ => {}
            }
            let asked = any(&mut world);
            if world.alive().contains(&asked) {
                requests.push(world.change(asked, &change(round)));
            }
            for _ in 0..400 {
                world.run_for(1_000);
                let acknowledged = acknowledged(&world, &requests);
                check(&world, seed, acknowledged);
            }
            if round % 3 == 2 {
                world.cut.clear();
                for id in ids.clone() {
                    if !world.alive().contains(&id) {
                        world.start(id);
                    }
                }
            }
        }
        world.heal();
        world.become_whole();
        world.make(ids[0], &change(101)).expect("a healthy cluster answers");
        let acknowledged = acknowledged(&world, &requests);
        check(&world, seed, acknowledged);
        let done = world.answers.iter().filter(|(_, answer)| requests.contains(&answer.request));
        answered += done.filter(|(_, answer)| answer.result.is_ok()).count();
    }
    assert!(answered > 100, "only {answered} changes were answered");
}

/// Makes a keyspace on nodes 5, 6 and 7 of seven, of which only the others are control nodes, and another one without 6 and 7.
fn without_a_majority(keyspace: &str, change: &Change) -> (World, Result<u64, ChangeError>) {
    let mut world = World::new(1, 7, 100);
    world.ids().into_iter().for_each(|id| world.start(id));
    world.become_whole();
    let made = Change::CreateKeyspace(Keyspace::parse(keyspace).expect("a keyspace"));
    world.make(1, &made).expect("all nodes are there");
    let groups = &world.control(1).expect("it lives").map().keyspaces["p:"].groups;
    let members = world.control(1).expect("it lives").map().groups[&groups[0]].members.clone();
    assert_eq!(members, [5, 6, 7]);
    world.kill(6, 0);
    world.kill(7, 0);
    let result = world.make(1, change);
    (world, result)
}

#[test]
fn a_change_is_answered_when_a_majority_of_the_groups_that_yield_to_it_has_it() {
    let created = Change::CreateKeyspace(Keyspace::parse("prefix=p:x replication=consensus").expect("one"));
    let again = Change::CreateKeyspace(Keyspace::parse("prefix=q: replication=consensus").expect("one"));
    let dropped = Change::DropKeyspace("p:".into());
    for (protocol, change) in [
        ("abd", &created),
        ("blocking", &created),
        ("abd", &dropped),
        ("blocking", &dropped),
        ("consensus", &dropped),
    ] {
        let keyspace = format!("prefix=p: replication={protocol} replicas=3 leader=5");
        let (mut world, result) = without_a_majority(&keyspace, change);
        assert!(matches!(result, Err(ChangeError::Unknown { .. })), "{protocol} {change:?}: {result:?}");
        let floor = |world: &World| {
            let map = Rc::clone(world.control(1).expect("it lives").map());
            map.keyspaces.get("p:").map(|entry| entry.floor)
        };
        let floor_before = floor(&world);
        world.make(1, &again).expect("it takes no keys from them");
        world.start(6);
        if *change == created {
            world.make(1, change).expect("two of three have the map");
            assert!(floor_before.is_some_and(|floor| floor > 0));
            assert_eq!(floor(&world), floor_before, "only what moves keys raises it");
        }
    }
}

#[test]
fn consensus_and_leaders_with_leases_do_not_hold_up_who_takes_their_keys() {
    let created = Change::CreateKeyspace(Keyspace::parse("prefix=p:x replication=consensus").expect("one"));
    for protocol in ["consensus", "leader-follower"] {
        let keyspace = format!("prefix=p: replication={protocol} replicas=3 leader=5");
        let (world, result) = without_a_majority(&keyspace, &created);
        result.expect("other rules keep them off");
        assert_eq!(world.control(1).expect("it lives").map().keyspaces["p:"].floor, 0);
    }
}

#[test]
fn a_change_of_libraries_takes_no_longer_than_a_renewal_of_leases() {
    let mut world = World::new(1, 5, 100);
    world.ids().into_iter().for_each(|id| world.start(id));
    world.become_whole();
    let before_us = world.now_us;
    world.make(2, &change_of_libraries(1)).expect("a healthy cluster answers");
    let took_ms = (world.now_us - before_us) / 1000;
    assert!(took_ms < 150, "it took {took_ms} ms");
    let control = world.control(5).expect("it lives");
    assert!(control.map().libraries.contains_key("lib"));
}

//! The cluster's level: programs of different releases in one cluster.

use crate::cluster::{address, keyspaces};
use crate::world::World;
use cluster::Keyspace;
use cluster::control::{Change, ClusterMap, Event, Saved, Start};
use kv::table::Eviction;
use wire::release::{RELEASES, Release, Releases};

/// Programs that know releases up to this one, and programs that know the next one, too.
const OLD: Releases = Releases { oldest: RELEASES.oldest, newest: RELEASES.newest };
const NEW: Releases = Releases { oldest: RELEASES.oldest, newest: RELEASES.newest + 1 };

fn cluster(nodes: u16) -> World {
    let mut world = World::new(u64::from(nodes), nodes, 1000);
    (1..=nodes).for_each(|id| world.start(id));
    world.become_whole();
    world
}

fn level(world: &World) -> Release {
    world.maps.last_key_value().expect("a map").1.level
}

fn restart(world: &mut World, node: u16, releases: Releases) {
    world.kill(node, 0);
    world.set_releases(node, releases);
    world.start(node);
    world.run_for(2_000_000);
}

fn refusal(world: &World, node: u16) -> Option<&str> {
    world.reported.iter().find_map(|(id, event)| match event {
        Event::Refused { why } if *id == node => Some(why.as_str()),
        _ => None,
    })
}

#[test]
fn the_level_rises_only_when_the_last_node_has_been_upgraded() {
    let mut world = cluster(5);
    assert_eq!(level(&world), OLD.newest);
    for node in 1..=4 {
        restart(&mut world, node, NEW);
        assert_eq!(level(&world), OLD.newest, "node 5 does not know the next one");
    }
    // Node 2 goes back and forth.
    restart(&mut world, 2, OLD);
    restart(&mut world, 5, NEW);
    assert_eq!(level(&world), OLD.newest, "node 2 does not know it any more");
    assert_eq!(refusal(&world, 2), None);
    restart(&mut world, 2, NEW);
    assert_eq!(level(&world), NEW.newest);
    let risen = Event::LevelRaised { from: OLD.newest, to: NEW.newest };
    let reports = |node| world.reported.iter().filter(|(id, event)| *id == node && *event == risen).count();
    assert!((1..=5).all(|node| reports(node) == 1), "{:?}", world.reported);
}

#[test]
fn a_node_that_is_down_counts_with_its_last_release() {
    let mut world = cluster(4);
    world.kill(4, 0);
    (1..=3).for_each(|node| restart(&mut world, node, NEW));
    assert_eq!(level(&world), OLD.newest);
    world.make(1, &Change::DropKeyspace("abd:".into())).expect("its members could not change");
    world.make(1, &Change::RemoveNode { id: 4, force: true }).expect("it is dead");
    world.run_for(5_000_000);
    assert_eq!(level(&world), NEW.newest, "without the node nothing holds the level back");
}

#[test]
fn a_release_that_does_not_know_the_level_is_not_admitted() {
    for node in [2, 4] {
        let mut world = cluster(4);
        (1..=4).filter(|id| *id != node).for_each(|id| restart(&mut world, id, NEW));
        restart(&mut world, node, NEW);
        assert_eq!(level(&world), NEW.newest);
        // The node's own map is from before the rise.
        world.kill(node, 0);
        world.forget_map(node);
        world.set_releases(node, OLD);
        world.start(node);
        world.run_for(3_000_000);
        let why = refusal(&world, node).expect("it is refused");
        assert!(why.contains(&format!("the cluster is at level {}", NEW.newest)), "{why}");
        assert!(!world.control(node).expect("it runs").is_admitted());
        world.reported.clear();
        restart(&mut world, node, NEW);
        assert_eq!(refusal(&world, node), None);
        world.become_whole();
    }
}

#[test]
fn a_map_of_a_later_level_is_refused_whatever_else_it_holds() {
    let map = ClusterMap::initial(&[address(1)], &keyspaces()[..1]).expect("a cluster");
    let mut json: serde_json::Value = serde_json::from_slice(&map.encode()).unwrap();
    json["level"] = 7.into();
    json["a field of release 7"] = true.into();
    let why = ClusterMap::decode(&serde_json::to_vec(&json).unwrap(), OLD).unwrap_err();
    assert!(why.contains("the cluster is at level 7") && why.contains("release 7 or later"), "{why}");
}

#[test]
fn a_map_without_a_level_has_level_1() {
    let map = ClusterMap::initial(&[address(1)], &keyspaces()[..1]).expect("a cluster");
    let mut json: serde_json::Value = serde_json::from_slice(&map.encode()).unwrap();
    json.as_object_mut().unwrap().remove("level").expect("it has one");
    json["nodes"]["1"].as_object_mut().unwrap().remove("releases").expect("it has them");
    let map = ClusterMap::decode(&serde_json::to_vec(&json).unwrap(), OLD).expect("it can be read");
    assert_eq!((map.level, map.attainable_level(), map.nodes_below(1)), (1, 1, vec![1]));
}

#[test]
fn the_level_never_falls_and_rises_only_to_what_all_nodes_know() {
    let nodes: Vec<_> = (1..=3).map(address).collect();
    let mut map = ClusterMap::initial(&nodes, &keyspaces()[..1]).expect("a cluster");
    for id in 1..=3 {
        let start = Start { identity: u64::from(id), life: 1, run: 1, found: 0 };
        let releases = if id == 2 { OLD } else { NEW };
        map = map.apply(&Change::NodeStarted { id, start, releases }).expect("a start");
    }
    let why = map.apply(&Change::RaiseLevel(NEW.newest)).unwrap_err().to_string();
    assert!(why.contains("the programs of nodes [2] do not know it"), "{why}");
    let start = Start { identity: 2, life: 2, run: 2, found: 0 };
    map = map.apply(&Change::NodeStarted { id: 2, start, releases: NEW }).expect("a start");
    map = map.apply(&Change::RaiseLevel(NEW.newest)).expect("all know it");
    assert_eq!(map.apply(&Change::RaiseLevel(OLD.newest)), Ok(map.clone()));
    let start = Start { identity: 3, life: 2, run: 2, found: 0 };
    map.apply(&Change::NodeStarted { id: 3, start, releases: OLD }).expect_err("it does not know the level");
}

#[test]
fn an_operator_can_hold_the_level_from_level_2_on() {
    const FIRST: Releases = Releases { oldest: 1, newest: 1 };
    let mut world = World::new(3, 3, 1000);
    for node in 1..=3 {
        world.set_releases(node, FIRST);
        world.start(node);
    }
    world.become_whole();
    assert_eq!(level(&world), 1);
    let database = Keyspace { prefix: "@3".into(), ..Keyspace::default() };
    let why =
        format!("{:?}", world.make(1, &Change::CreateKeyspace(database)).expect_err("release 1 cannot"));
    assert!(why.contains("a database beside database 0 needs level 2"), "{why}");
    let by_writes = Keyspace { prefix: "w:".into(), eviction: Eviction::Lrm, ..Keyspace::default() };
    let evicts_by_writes = [
        Change::CreateKeyspace(by_writes),
        Change::SetKeyspace {
            prefix: String::new(),
            settings: [("eviction".into(), "volatile-lrm".into())].into(),
        },
    ];
    for change in &evicts_by_writes {
        let why = format!("{:?}", world.make(1, change).expect_err("release 1 cannot"));
        assert!(why.contains("eviction of the least recently modified keys needs level 2"), "{why}");
    }
    let why = format!("{:?}", world.make(2, &Change::HoldLevel(true)).expect_err("release 1 cannot"));
    assert!(why.contains("holding the level needs level 2") && why.contains("nodes [1, 2, 3]"), "{why}");

    let saved = Change::Saved([(String::new(), Saved { at_ms: 1, due_ms: 2 })].into());
    let why = format!("{:?}", world.make(2, &saved).expect_err("release 1 cannot"));
    assert!(why.contains("knowing when backups were made needs level 2"), "{why}");

    (1..=3).for_each(|node| restart(&mut world, node, OLD));
    assert_eq!(level(&world), OLD.newest);
    world.make(2, &saved).expect("all nodes know how");
    for change in &evicts_by_writes {
        world.make(2, change).expect("all nodes know how");
    }
    world.make(1, &Change::HoldLevel(true)).expect("all nodes know how");
    (1..=3).for_each(|node| restart(&mut world, node, NEW));
    assert_eq!(level(&world), OLD.newest, "it is held");
    restart(&mut world, 2, OLD);
    assert_eq!(refusal(&world, 2), None, "a node can go back");
    restart(&mut world, 2, NEW);
    world.make(3, &Change::HoldLevel(false)).expect("an operator releases the level");
    world.run_for(2_000_000);
    assert_eq!(level(&world), NEW.newest);
}

#[test]
fn a_map_with_features_beyond_its_level_is_invalid() {
    let map = ClusterMap::initial(&[address(1)], &keyspaces()[..1]).expect("a cluster");
    let mut saved = map.clone();
    saved.keyspaces.get_mut("").expect("a keyspace").saved = Some(Saved { at_ms: 1, due_ms: 2 });
    let why = ClusterMap::decode(&saved.encode(), OLD).unwrap_err();
    assert!(why.contains("uses what level 2 brings: knowing when backups were made"), "{why}");
    let early = ClusterMap { is_level_held: true, ..map };
    let why = ClusterMap::decode(&early.encode(), OLD).unwrap_err();
    assert!(why.contains("it is of level 1, and uses what level 2 brings: holding the level"), "{why}");
}

//! Which plans result from which survivors.

use super::*;
use crate::configuration::NodeAddress;
use crate::control::Rejoin;
use crate::keyspace::Keyspace;

/// The map of a cluster of five nodes that has run, with these keyspaces beside the default one.
fn map(keyspaces: &[&str]) -> ClusterMap {
    let address = |id: u16| NodeAddress {
        id,
        host: "127.0.0.1".into(),
        client_port: 100 * id,
        http_port: 100 * id + 1,
        peer_port: 100 * id + 2,
    };
    let nodes: Vec<NodeAddress> = (1..=5).map(address).collect();
    let keyspaces: Vec<Keyspace> = keyspaces.iter().map(|text| Keyspace::parse(text).unwrap()).collect();
    let mut map = ClusterMap::initial(&nodes, &keyspaces).unwrap();
    map.version = 12;
    for (id, node) in &mut map.nodes {
        node.start = Start { identity: u64::from(*id) * 1000, life: 3, run: 9, found: 500 };
    }
    map
}

fn survivor(map: &ClusterMap, node: NodeId, entries: u64) -> Survivor {
    let mut stands = BTreeMap::new();
    for (id, group) in &map.groups {
        if group.members.contains(&node) {
            let (rank, members) = ([group.epoch, 7, 0, 1, entries], group.members.clone());
            let stand = Stand { rank, members, is_whole: true, commands: entries, epoch: group.epoch };
            stands.insert(*id, stand);
        }
    }
    Survivor {
        node,
        cluster: "shop".into(),
        log: u64::from(node) * 1000,
        openings: 3,
        end: 900,
        map: map.clone(),
        stands,
        heard: BTreeMap::new(),
    }
}

fn fate_of<'a>(plan: &'a Plan, keyspace: &str) -> &'a GroupReport {
    plan.groups.iter().find(|report| report.group != CONTROL_GROUP && report.keyspace == keyspace).unwrap()
}

#[test]
fn the_control_group_is_left_to_the_survivor_that_holds_most() {
    let map = map(&[]);
    let survivors = [survivor(&map, 2, 40), survivor(&map, 4, 41)];
    let plan = Plan::new(&survivors).unwrap();
    assert_eq!((plan.newest, &plan.lost[..]), ((4, 12), &[1, 3, 5][..]));
    let control = &plan.groups[0];
    assert_eq!((control.fate, control.survives), (Fate::Alone { node: 4 }, false));
    assert!(control.loss.starts_with("changes of the map after version 12"), "{}", control.loss);
    assert!(!plan.is_needless());
    let group = &plan.map.groups[&CONTROL_GROUP];
    assert_eq!((&group.members[..], group.epoch, group.settled), (&[4][..], 2, true));
    assert_eq!((plan.map.version, plan.map.lineage), (12 + LEAP, plan.lineage));
    assert_eq!(plan.map.nodes.len(), 5, "lost nodes are removed or replaced by an operator");
    // Every machine makes the same plan, whichever folder is its own.
    let [two, four] = survivors.clone();
    assert_eq!(Plan::new(&[four, two]).unwrap(), plan);
    // Other survivors result in another lineage.
    let other = Plan::new(&survivors[..1]).unwrap();
    assert_eq!(other.lineage.recoveries, 1);
    assert_ne!(other.lineage.mark, plan.lineage.mark);
    // The newest map counts, whichever node has it. The replica with a vote in the newest configuration holds the most.
    let mut later = survivor(&map, 5, 3);
    later.map.version = 13;
    later.stands.get_mut(&CONTROL_GROUP).unwrap().is_whole = false;
    let plan = Plan::new(&[survivors[0].clone(), survivors[1].clone(), later]).unwrap();
    assert_eq!((plan.newest, plan.groups[0].fate), ((5, 13), Fate::Alone { node: 4 }));
    assert!(!plan.is_needless(), "two voters of five are no majority");
    let three = [survivors[0].clone(), survivors[1].clone(), survivor(&map, 5, 3)];
    assert!(Plan::new(&three).unwrap().is_needless(), "three are");
}

#[test]
fn consensus_goes_on_with_a_majority_and_else_with_its_most_advanced_survivor() {
    let map = map(&["prefix=three: replicas=3 leader=3", "prefix=coded: coding=2 replicas=5"]);
    let plan = Plan::new(&[survivor(&map, 4, 8), survivor(&map, 5, 9)]).unwrap();
    assert_eq!(fate_of(&plan, "three:").fate, Fate::GoesOn);
    let default = fate_of(&plan, "");
    assert_eq!(
        (default.fate, &default.left[..], default.commands),
        (Fate::Alone { node: 5 }, &[4, 5][..], 9)
    );
    assert_eq!(plan.map.groups[&default.group].members, [5]);
    assert_eq!(fate_of(&plan, "coded:").fate, Fate::Lost, "too few fragments");
    assert_eq!(plan.map.groups[&fate_of(&plan, "coded:").group].members.len(), 5);
    assert_eq!(plan.alone_at(5).collect::<Vec<_>>(), [CONTROL_GROUP, default.group]);
    // No member with contents is left.
    let plan = Plan::new(&[survivor(&map, 1, 8)]).unwrap();
    assert_eq!(fate_of(&plan, "three:").fate, Fate::Lost);
    // A node with other storage than before does not count, nor one that was replaced and is not in its group again
    // yet.
    let mut excluded = survivor(&map, 5, 9);
    excluded.stands.values_mut().for_each(|stand| stand.is_whole = false);
    let plan = Plan::new(&[survivor(&map, 4, 8), excluded]).unwrap();
    assert_eq!(fate_of(&plan, "three:").fate, Fate::Alone { node: 4 });
    let mut replaced = map.clone();
    let group = fate_of(&plan, "three:").group;
    replaced.nodes.get_mut(&5).unwrap().rejoins.insert(group, Rejoin::Leave);
    let plan = Plan::new(&[survivor(&replaced, 4, 8), survivor(&replaced, 5, 9)]).unwrap();
    assert_eq!(fate_of(&plan, "three:").fate, Fate::Alone { node: 4 });
}

#[test]
fn a_group_of_another_configuration_than_the_map_wants_needs_both_majorities() {
    let mut map = map(&["prefix=three: replicas=3 leader=3"]);
    let id = fate_of(&Plan::new(&[survivor(&map, 4, 8)]).unwrap(), "three:").group;
    let survivors = |map: &ClusterMap| [survivor(map, 4, 8), survivor(map, 5, 9)];
    // The map wants 4, 5, 1; the configuration in force is still 1, 2, 5.
    map.groups.get_mut(&id).unwrap().members = vec![1, 4, 5];
    let mut both = survivors(&map);
    for survivor in &mut both {
        survivor.stands.get_mut(&id).unwrap().members = vec![1, 2, 5];
    }
    both[0].stands.get_mut(&id).unwrap().is_whole = false;
    both[1].stands.get_mut(&id).unwrap().epoch = 6;
    let plan = Plan::new(&both).unwrap();
    assert_eq!(fate_of(&plan, "three:").fate, Fate::Alone { node: 5 });
    assert_eq!(plan.map.groups[&id].epoch, 7, "behind every configuration that is known");
}

#[test]
fn leader_follower_goes_on_where_the_acknowledged_writes_are() {
    let keyspaces = [
        "prefix=all: replication=leader-follower acks=all durability=fsync",
        "prefix=one: replication=leader-follower acks=1 durability=fsync",
        "prefix=most: replication=leader-follower acks=majority durability=fsync",
        "prefix=none: replication=leader-follower acks=none durability=fsync",
        "prefix=memory: replication=leader-follower acks=all",
    ];
    let map = map(&keyspaces);
    let plan = Plan::new(&[survivor(&map, 3, 8), survivor(&map, 4, 9)]).unwrap();
    assert_eq!((fate_of(&plan, "all:").fate, fate_of(&plan, "none:").fate), (Fate::GoesOn, Fate::GoesOn));
    assert_eq!(fate_of(&plan, "one:").fate, Fate::Alone { node: 4 });
    assert_eq!(fate_of(&plan, "most:").fate, Fate::Alone { node: 4 });
    let memory = fate_of(&plan, "memory:");
    assert!(memory.loss.contains("in memory only") && memory.fate == Fate::Alone { node: 3 }, "{memory:?}");
    let three = [survivor(&map, 3, 8), survivor(&map, 4, 9), survivor(&map, 5, 8)];
    let plan = Plan::new(&three).unwrap();
    assert_eq!(fate_of(&plan, "most:").fate, Fate::GoesOn, "at most half of the others are lost");
    assert_eq!(fate_of(&plan, "one:").fate, Fate::Alone { node: 4 });
    // The in-sync set is lost: the most advanced member leads, in an epoch of its own after that of the recovery's
    // records.
    let mut shrunk = map.clone();
    let id = fate_of(&plan, "all:").group;
    let group = shrunk.groups.get_mut(&id).unwrap();
    (group.in_sync, group.leader) = (vec![1], 1);
    let plan = Plan::new(&[survivor(&shrunk, 3, 8), survivor(&shrunk, 4, 9)]).unwrap();
    let group = &plan.map.groups[&id];
    assert_eq!((group.leader, &group.in_sync[..], group.epoch), (4, &[4][..], 3));
    assert!(fate_of(&plan, "all:").loss.contains("too few are left"));
}

#[test]
fn registers_need_a_majority_and_stand_still_without_one() {
    let map = map(&["prefix=reg: replication=abd durability=fsync", "prefix=ram: replication=blocking"]);
    let plan = Plan::new(&[survivor(&map, 3, 0), survivor(&map, 4, 0)]).unwrap();
    assert_eq!(fate_of(&plan, "reg:").fate, Fate::StandsStill);
    assert_eq!(fate_of(&plan, "ram:").fate, Fate::StandsStill);
    let three = [survivor(&map, 3, 0), survivor(&map, 4, 0), survivor(&map, 5, 0)];
    assert_eq!(fate_of(&Plan::new(&three).unwrap(), "reg:").fate, Fate::GoesOn);
}

#[test]
fn folders_that_do_not_count_are_named() {
    let map = map(&[]);
    let good = survivor(&map, 2, 8);
    let refused = |other: Survivor, why: &str| {
        let error = Plan::new(&[good.clone(), other]).unwrap_err();
        assert!(error.contains(why), "{error}");
    };
    refused(good.clone(), "node 2 is given twice");
    refused(Survivor { cluster: "other".into(), ..survivor(&map, 4, 8) }, "is of cluster");
    refused(Survivor { log: 77, ..survivor(&map, 4, 8) }, "node 4 has other storage");
    refused(Survivor { openings: 2, ..survivor(&map, 4, 8) }, "the folder of node 4 is an older copy");
    refused(Survivor { end: 499, ..survivor(&map, 4, 8) }, "the folder of node 4 is an older copy");
    let mut knows = survivor(&map, 4, 8);
    knows.heard.insert(2, Heard { start: map.nodes[&2].start, durable: 901 });
    refused(knows, "the folder of node 2 is an older copy");
    refused(survivor(&map, 9, 8), "node 9 was removed from the cluster");
    let mut older = survivor(&map, 4, 8);
    older.map.version = 0;
    refused(older, "has never taken part");
    let mut strange = survivor(&map, 4, 8);
    strange.map.next_group += 1;
    refused(strange, "different maps of version 12");
    let mut recovered = survivor(&map, 4, 8);
    recovered.map.lineage = Lineage { recoveries: 1, mark: 5 };
    refused(
        recovered,
        "different histories of the cluster: node 2 is from before any recovery, node 4 is of recovery 1",
    );
    assert_eq!(Plan::new(&[]).unwrap_err(), "no folder was given");
}

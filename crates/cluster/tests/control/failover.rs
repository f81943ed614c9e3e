//! How long a failover takes.

use crate::world::World;
use cluster::Protocol;

/// Returns the times in milliseconds from a kill until all survivors have a map in which the node's groups have other
/// leaders, over `runs` runs.
fn times(runs: u64, killed: impl Fn(&World) -> Option<u16>) -> Vec<u64> {
    let mut times: Vec<u64> = (0..runs).map(|seed| time(seed, &killed)).collect();
    times.sort_unstable();
    times
}

fn time(seed: u64, killed: impl Fn(&World) -> Option<u16>) -> u64 {
    let mut world = World::new(seed, if seed.is_multiple_of(2) { 3 } else { 5 }, 100);
    for id in world.ids() {
        let pause_us = world.random.below(100_000);
        world.run_for(pause_us);
        world.start(id);
    }
    world.become_whole();
    let pause_us = 1_000_000 + world.random.below(300_000);
    world.run_for(pause_us);
    let node = killed(&world).expect("a node to kill");
    let killed_us = world.now_us;
    world.kill(node, 0);
    for _ in 0..5_000 {
        world.run_for(1_000);
        let survivors = world.alive();
        let is_rid = |id: &u16| {
            let map = world.control(*id).expect("it lives").map();
            let is_led = |group: u16| map.protocol(group) == Protocol::LeaderFollower;
            map.groups
                .iter()
                .all(|(group, it)| !is_led(*group) || it.leader != node && world.leads(it.leader, *group))
        };
        if survivors.iter().all(is_rid) {
            return (world.now_us - killed_us) / 1000;
        }
    }
    panic!("seed {seed}: no node replaces node {node}");
}

fn leads_some_group(world: &World, node: u16) -> bool {
    world.control(node).is_some_and(|control| {
        let map = control.map();
        map.groups
            .iter()
            .any(|(id, group)| group.leader == node && map.protocol(*id) == Protocol::LeaderFollower)
    })
}

fn print_times(what: &str, times: &[u64]) {
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    println!(
        "{what}: {} ms at least, {} median, {} p90, {} p99, {} at most",
        at(0),
        at(50),
        at(90),
        at(99),
        at(100)
    );
}

#[test]
fn a_control_leader_that_dies_is_replaced_within_half_a_second() {
    let times = times(200, |world| world.control_leader());
    print_times("control leader and leader", &times);
    assert!(times[times.len() - 1] < 500, "{times:?}");
}

#[test]
fn any_other_leader_that_dies_is_replaced_within_half_a_second() {
    let times = times(200, |world| {
        let control = world.control_leader();
        world.alive().into_iter().find(|id| Some(*id) != control && leads_some_group(world, *id))
    });
    print_times("leader", &times);
    assert!(times[times.len() - 1] < 500, "{times:?}");
}

#[test]
fn a_leader_that_can_send_but_not_receive_is_replaced() {
    for seed in 0..50 {
        let mut world = World::new(seed, 3, 100);
        world.ids().into_iter().for_each(|id| world.start(id));
        world.become_whole();
        let control = world.control_leader();
        let mut others = world.alive().into_iter().filter(|id| Some(*id) != control);
        let Some(deaf) = others.find(|id| leads_some_group(&world, *id)) else { continue };
        for id in world.ids().into_iter().filter(|id| *id != deaf) {
            world.cut.insert((id, deaf));
        }
        world.run_for(1_000_000);
        let map = world.control(control.expect("it leads")).expect("it lives").map();
        let followed = |group: &&u16| map.protocol(**group) == Protocol::LeaderFollower;
        for group in map.groups.keys().filter(followed) {
            let leader = map.groups[group].leader;
            assert!(leader != deaf && world.leads(leader, *group), "seed {seed}: group {group}");
            assert!(!world.leads(deaf, *group), "seed {seed}: its lease is over");
        }
        world.heal();
    }
}

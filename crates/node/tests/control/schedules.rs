//! Random schedules: everything goes wrong for a while, then it heals.

use crate::map::check_step;
use crate::random::Random;
use crate::world::{Network, World};
use node::control::Change;
use protocol::NodeId;

/// One schedule. What is checked while it runs: no two nodes lead a group at a moment, maps agree. At its end: it
/// heals, and each version followed from the one before as it may.
fn run(seed: u64) {
    let mut random = Random::new(seed);
    let nodes = if random.percent(60) { 3 } else { 5 };
    let mut world = World::new(seed, nodes, if random.percent(60) { 40_000 } else { 0 });
    (1..=nodes).for_each(|id| world.start(id));
    world.run_for(1_200_000);
    let mut some = |percent: u64, most: u64| if random.percent(percent) { 1 + random.below(most) } else { 0 };
    world.network =
        Network { lose: some(50, 20), duplicate: some(40, 20), delay: some(40, 20), slow_disk: some(40, 30) };
    let (kill, pause, cut, checkpoint, alter) =
        (some(60, 40), some(50, 40), some(50, 40), some(40, 30), some(50, 20));
    for _ in 0..10 + random.below(30) {
        world.run_for(random.below(200_000));
        let id = 1 + random.below(u64::from(nodes)) as NodeId;
        if random.percent(kill) {
            match world.control(id) {
                Some(_) => world.kill(id, random.below(4)),
                None => world.start(id),
            }
        }
        if random.percent(kill / 10) {
            world.alive().into_iter().for_each(|id| world.kill(id, 0));
        }
        if random.percent(pause) {
            world.pause(id, random.below(1_500_000));
        }
        if random.percent(cut) {
            match world.cut.is_empty() {
                true => world.cut_off(id, random.percent(60)),
                false => world.cut.clear(),
            }
        }
        if random.percent(checkpoint) {
            world.checkpoint(id);
        }
        if random.percent(alter) && world.control(id).is_some() {
            let prefix = format!("k{}:", random.below(3));
            let change = match random.below(2) {
                0 => Change::CreateKeyspace(crate::world::keyspace(&prefix, |_| ())),
                _ => Change::DropKeyspace(prefix),
            };
            world.change(id, &change);
        }
    }
    world.heal();
    let maps: Vec<_> = world.maps.values().collect();
    for pair in maps.windows(2) {
        check_step(pair[0], pair[1]).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn nobody_leads_beside_another_whatever_goes_wrong() {
    let seeds: u64 = std::env::var("CONTROL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    let first: u64 = std::env::var("CONTROL_FIRST").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    for seed in first..first + seeds {
        if std::panic::catch_unwind(|| run(seed)).is_err() {
            panic!("seed {seed}");
        }
    }
}

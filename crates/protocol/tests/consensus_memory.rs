//! What was removed all at once gives its memory back, a few keys at a time.

mod consensus_world;

use consensus_world::{Asked, World};
use kv::{Command, List};
use protocol::consensus::{Lease, Options, Timing};
use protocol::{Request, Ticket};

/// One millisecond in the life of a group of one.
fn pass(world: &mut World) {
    world.now_us += 1000;
    let written = world.written(1);
    world.sync(1, written);
    if world.wakeup_us(1).is_some_and(|wakeup_us| wakeup_us <= world.now_us) {
        world.tick(1);
    }
    world.flush(1);
}

fn ask(world: &mut World, sequence: u64, command: Command<'_>) {
    let deadline_us = world.now(1).monotonic_us + 1_000_000;
    let asked = Asked { ticket: Ticket { client: 1, sequence }, follows: false, seen: 0, deadline_us };
    world.request(1, asked, Request::Command(command));
    (0..5).for_each(|_| pass(world));
}

#[test]
fn keys_that_were_flushed_are_dropped_little_by_little() {
    let options = Options {
        lease: Lease::Log,
        reads_any: false,
        log_bytes: 1 << 20,
        spill_bytes_min: usize::MAX,
        planted: Default::default(),
    };
    let mut world = World::new(1, options, Timing::default());
    world.start(1);
    (0..500).for_each(|_| pass(&mut world));
    let pairs: Vec<Vec<u8>> =
        (0..40_000u32).flat_map(|n| [n.to_be_bytes().to_vec(), b"v".to_vec()]).collect();
    let mut scratch = Vec::new();
    let pairs = List::build(&mut scratch, pairs.iter().map(Vec::as_slice));
    ask(&mut world, 1, Command::MultiSet { pairs, if_absent: false });
    let table = |world: &World| {
        let table = world.replica(1).expect("it runs").table();
        (table.len(), table.is_tidy())
    };
    assert_eq!(table(&world), (40_000, true));
    ask(&mut world, 2, Command::Clear);
    assert_eq!(table(&world), (0, false));
    (0..1000).for_each(|_| pass(&mut world));
    assert_eq!(table(&world), (0, true));
}

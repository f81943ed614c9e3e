//! What was removed all at once gives its memory back, a few keys at a time; and few bytes that ask for many do not get all of
//! them at once.

use super::World;
use crate::kit::Asked;
use kv::table::Access;
use kv::{
    Command, Condition, Expiry, HashCommand, Interpreter, List, ReplyBuffer, Script, ScriptLimits, SetAnswer,
};
use protocol::Replica as _;
use protocol::consensus::{Lease, Options, Timing};
use protocol::{Request, Ticket};

/// One millisecond in the life of a group of one.
fn pass(world: &mut World) {
    world.time_us += 1000;
    world.sync_all(1);
    if world.wakeup_us(1).is_some_and(|wakeup_us| wakeup_us <= world.time_us) {
        world.tick(1);
    }
    world.flush(1);
}

fn ask(world: &mut World, sequence: u64, command: Command<'_>) {
    let deadline_us = world.now(1).monotonic_us + 1_000_000;
    let asked = Asked { ticket: Ticket { client: 1, sequence }, follows: false, seen: 0, deadline_us };
    world.request(1, asked, Request::Command(&command));
    (0..5).for_each(|_| pass(world));
}

/// Scripts of which each takes 5 ms.
#[derive(Debug)]
struct Slow;

impl Interpreter for Slow {
    fn run(&self, _: &Script<'_>, access: &mut Access<'_>, out: &mut ReplyBuffer) {
        access.spend(500_000);
        out.ok();
    }
}

/// A group of one.
fn alone() -> World {
    let options = Options {
        lease: Lease::Log,
        reads_any: false,
        log_bytes: 1 << 20,
        spill_bytes_min: usize::MAX,
        is_bounded: false,
        planted: Default::default(),
    };
    let mut world = World::new(1, options, Timing::default());
    world.beside_mut(1).interpreter = &Slow;
    world.start(1);
    (0..500).for_each(|_| pass(&mut world));
    world
}

#[test]
fn keys_that_were_flushed_are_dropped_little_by_little() {
    let mut world = alone();
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

const LARGE_BYTES: usize = 40 << 20;

/// Asks for a large value behind a write, whether it is on its way already or not, and tells how many of the answers come with
/// each of the next turns, and what the others were refused with.
fn read_behind_a_write(is_on_its_way: bool) -> (Vec<usize>, Vec<Vec<u8>>) {
    let mut world = alone();
    let value = vec![b'v'; LARGE_BYTES];
    let (expiry, condition, answer) = (Expiry::Clear, Condition::Always, SetAnswer::Status);
    let set = |value| Command::Set { key: b"k", value, expiry, condition, answer };
    ask(&mut world, 1, set(&value));
    let deadline_us = world.now(1).monotonic_us + 1_000_000;
    let asked =
        |sequence| Asked { ticket: Ticket { client: 1, sequence }, follows: true, seen: 0, deadline_us };
    world.request(1, asked(2), Request::Command(&Command::IncrementBy { key: b"n", delta: 1 }));
    if is_on_its_way {
        world.flush(1);
    }
    for sequence in 3..13 {
        world.request(1, asked(sequence), Request::Command(&Command::Get { key: b"k" }));
    }
    let (mut told, mut refused) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        let mut outcomes = world.sync_all(1).outcomes;
        // A node takes a turn when its replicas want one.
        if world.wakeup_us(1).is_some_and(|wakeup_us| wakeup_us <= world.time_us) {
            outcomes.extend(world.tick(1).outcomes);
        }
        outcomes.extend(world.flush(1).outcomes);
        let (values, others): (Vec<_>, Vec<_>) =
            outcomes.into_iter().map(|(_, reply)| reply).partition(|reply| reply.len() > LARGE_BYTES);
        told.extend((!values.is_empty()).then_some(values.len()));
        refused
            .extend(others.into_iter().filter(|reply| reply.windows(10).any(|text| text == b"OVERLOADED")));
    }
    (told, refused)
}

#[test]
fn large_values_that_many_wait_for_are_returned_a_few_in_each_turn() {
    let (told, refused) = read_behind_a_write(true);
    assert_eq!((told, refused.len()), (vec![4, 4, 2], 0));
}

/// Their place is within the batch, and there are no later ones.
#[test]
fn large_values_that_are_asked_for_within_a_batch_are_returned_as_far_as_there_is_room() {
    let (told, refused) = read_behind_a_write(false);
    assert_eq!((told, refused.len()), (vec![4], 6));
}

/// How many requests have their outcomes in each of the next steps in which any has.
fn told_by_step(world: &mut World) -> Vec<usize> {
    let mut told = Vec::new();
    for _ in 0..10 {
        told.push(world.sync_all(1).outcomes.len());
        if world.wakeup_us(1).is_some_and(|wakeup_us| wakeup_us <= world.time_us) {
            told.push(world.tick(1).outcomes.len());
        }
        told.push(world.flush(1).outcomes.len());
    }
    told.retain(|count| *count > 0);
    told
}

/// A batch takes no longer than others can wait, nor does a step with several.
#[test]
fn scripts_that_take_long_are_carried_out_a_few_in_each_step() {
    let mut world = alone();
    let deadline_us = world.now(1).monotonic_us + 10_000_000;
    let ask = |world: &mut World, sequence| {
        let mut scratch = Vec::new();
        let limits = ScriptLimits { value_bytes_max: 1000, cost_max: 2_000_000 };
        let script = Script::build(&mut scratch, b"slow", [b"key".as_slice()], 1, limits, true).unwrap();
        let asked =
            Asked { ticket: Ticket { client: sequence, sequence }, follows: false, seen: 0, deadline_us };
        world.request(1, asked, Request::Command(&Command::Script(script)))
    };
    (0..8).for_each(|sequence| _ = ask(&mut world, sequence));
    assert_eq!(told_by_step(&mut world), [2, 2, 2, 2]);

    // More than wait for a second are refused, for none of them would have its outcome in time.
    let refused = |world: &mut World, sequence| ask(world, sequence).outcomes.len();
    assert_eq!((8..300).map(|sequence| refused(&mut world, sequence)).sum::<usize>(), 300 - 8 - 201);
    assert!(told_by_step(&mut world).iter().all(|count| *count <= 2));
}

/// Each takes about as long as a step may: others are served between any two.
#[test]
fn walks_that_were_waited_for_end_one_in_each_step() {
    let mut world = alone();
    let deadline_us = world.now(1).monotonic_us + 10_000_000;
    let asked =
        |sequence| Asked { ticket: Ticket { client: 1, sequence }, follows: true, seen: 0, deadline_us };
    let large = HashCommand::SetIfAbsent { key: b"h", field: b"f", value: &[b'v'; 2 << 20] };
    world.request(1, asked(1), Request::Command(&Command::Hash(large)));
    world.flush(1);
    for sequence in 2..6 {
        let walk = HashCommand::Scan {
            key: b"h",
            position: 0,
            count: u64::MAX,
            pattern: Some(&[b'n'; 1000]),
            with_values: true,
        };
        world.request(1, asked(sequence), Request::Command(&Command::Hash(walk)));
    }
    world.request(1, asked(6), Request::Command(&Command::Get { key: b"n" }));
    let told = told_by_step(&mut world);
    assert_eq!(told.iter().sum::<usize>(), 6, "all have their end: {told:?}");
    assert!(told[0] <= 2 && told[1..].iter().all(|count| *count == 1), "{told:?}");
}

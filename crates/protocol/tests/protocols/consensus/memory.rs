//! Memory of what was removed all at once is freed a few keys at a time; and small requests for large replies do not get all
//! of them at once.

use super::World;
use crate::kit::Asked;
use kv::table::Access;
use kv::{
    Command, Condition, Expiry, HashCommand, Interpreter, List, ReplyBuffer, Script, ScriptLimits, SetAnswer,
};
use protocol::Replica as _;
use protocol::consensus::{Lease, Options, Timing};
use protocol::{Request, Ticket};

/// Lets a millisecond pass in a group of one.
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

/// Scripts that take 5 ms each.
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
fn flushed_keys_are_dropped_a_few_at_a_time() {
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
    ask(&mut world, 2, Command::Clear {});
    assert_eq!(table(&world), (0, false));
    let mut passes = 0;
    while !table(&world).1 {
        let wakeup_us = world.wakeup_us(1).expect("it runs");
        assert!(wakeup_us <= world.now(1).monotonic_us + 10_000, "a million keys in a second");
        pass(&mut world);
        passes += 1;
        assert!(passes < 1000, "it frees them");
    }
    assert!(passes >= 3, "in steps: {passes}");
}

const LARGE_BYTES: usize = 40 << 20;

/// Requests a large value after a write, which may be under way already or not. Returns how many of the replies come with each
/// of the next turns, and the errors with which the others were refused.
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
    let (mut returned, mut refused) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        let mut outcomes = world.sync_all(1).outcomes;
        // A node takes a turn when its replicas want one.
        if world.wakeup_us(1).is_some_and(|wakeup_us| wakeup_us <= world.time_us) {
            outcomes.extend(world.tick(1).outcomes);
        }
        outcomes.extend(world.flush(1).outcomes);
        let (values, others): (Vec<_>, Vec<_>) =
            outcomes.into_iter().map(|(_, reply)| reply).partition(|reply| reply.len() > LARGE_BYTES);
        returned.extend((!values.is_empty()).then_some(values.len()));
        refused
            .extend(others.into_iter().filter(|reply| reply.windows(10).any(|text| text == b"OVERLOADED")));
    }
    (returned, refused)
}

#[test]
fn large_values_with_many_waiting_reads_are_returned_a_few_per_turn() {
    let (returned, refused) = read_behind_a_write(true);
    assert_eq!((returned, refused.len()), (vec![4, 4, 2], 0));
}

/// These reads have their place within the batch, so they cannot be answered later.
#[test]
fn large_values_requested_within_a_batch_are_returned_while_there_is_room() {
    let (returned, refused) = read_behind_a_write(false);
    assert_eq!((returned, refused.len()), (vec![4], 6));
}

/// Returns how many requests got their outcomes in each of the next steps in which any did.
fn outcomes_by_step(world: &mut World) -> Vec<usize> {
    let mut counts = Vec::new();
    for _ in 0..10 {
        counts.push(world.sync_all(1).outcomes.len());
        if world.wakeup_us(1).is_some_and(|wakeup_us| wakeup_us <= world.time_us) {
            counts.push(world.tick(1).outcomes.len());
        }
        counts.push(world.flush(1).outcomes.len());
    }
    counts.retain(|count| *count > 0);
    counts
}

/// A batch takes no longer than other requests can wait, nor does a step with several batches.
#[test]
fn long_scripts_are_executed_one_per_step() {
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
    assert_eq!(outcomes_by_step(&mut world), [1; 8]);

    // Scripts that would have to wait for more than a second are refused: they would not have their outcomes in time.
    let refused = |world: &mut World, sequence| ask(world, sequence).outcomes.len();
    assert_eq!((8..300).map(|sequence| refused(&mut world, sequence)).sum::<usize>(), 300 - 8 - 201);
    assert!(outcomes_by_step(&mut world).iter().all(|count| *count <= 1));
}

/// Each takes about as long as a step may: other requests are served between any two.
#[test]
fn waiting_scans_are_executed_one_per_step() {
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
    let counts = outcomes_by_step(&mut world);
    assert_eq!(counts.iter().sum::<usize>(), 6, "all have their end: {counts:?}");
    assert!(counts[0] <= 2 && counts[1..].iter().all(|count| *count == 1), "{counts:?}");
}

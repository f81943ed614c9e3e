//! Crashes at every operation and at random, compared with a model: all durable entries are present, in order, nothing
//! is present that was not written, and the log can be used again.

use std::collections::BTreeMap;

use storage::planted::{Fault, Planted};
use storage::{Cause, Options};

use crate::support::disk::{Folder as _, Survivors, Trouble};
use crate::support::world::{Action, Violation, World};
use crate::support::{SEGMENT_BYTES, flip_bit, options, zero_sector};
use storage::simulated::Random;

const SURVIVORS: [Survivors; 3] = [Survivors::Nothing, Survivors::Everything, Survivors::Random];

/// A short run of a log with everything in it: batches of several groups, some written during a running sync or by it,
/// segments that fill up, a snapshot that frees some of them, a group that is forgotten.
fn script() -> Vec<Action> {
    use Action::*;
    let mut script = vec![BeginUpkeep, FinishUpkeep];
    for round in 0..3 {
        script.extend([
            Append { group: 1, bytes: 700 },
            Append { group: 2, bytes: 3 },
            Write,
            BeginSync,
            Append { group: 2, bytes: 1500 },
            Write,
            FinishSync,
            // This sync writes what is gathered, and what arrives during it waits.
            Append { group: 3, bytes: 0 },
            BeginSync,
            Append { group: 1, bytes: 60 },
            Write,
            FinishSync,
            BeginUpkeep,
            FinishUpkeep,
        ]);
        if round > 0 {
            script.extend([
                BeginSnapshot { group: 2 },
                AppendSnapshot,
                AppendSnapshot,
                // The first steps write what is gathered of the snapshot and then the rest; then it is committed.
                BeginUpkeep,
                Append { group: 2, bytes: 40 },
                Write,
                FinishUpkeep,
                CommitSnapshot,
                BeginSync,
                FinishSync,
                BeginUpkeep,
                FinishUpkeep,
                BeginUpkeep,
                FinishUpkeep,
                BeginSnapshot { group: 1 },
                CommitSnapshot,
                BeginUpkeep,
                FinishUpkeep,
                BeginUpkeep,
                Append { group: 1, bytes: 8 },
                Write,
                FinishUpkeep,
                Forget { group: 3 },
                BeginSync,
                FinishSync,
                NoteDurable,
                BeginUpkeep,
                FinishUpkeep,
                BeginUpkeep,
                FinishUpkeep,
            ]);
        }
    }
    script
}

/// Opens the log again until the disk allows it, with trouble at the first tries.
fn recover(world: &mut World, trouble: Option<(u64, Survivors)>) -> Result<(), Violation> {
    if let Some((operations, survivors)) = trouble {
        world.disk.trouble_in(operations, Trouble::Crash);
        if world.reopen()? && !world.disk.is_off() {
            world.kill();
        }
        world.lose_power(survivors);
    }
    match world.reopen()? {
        true => Ok(()),
        false => Err("does not open on a disk that is whole".to_owned()),
    }
}

fn go_on(world: &mut World) -> Result<(), Violation> {
    for bytes in [900, 30, 1400] {
        world.act(Action::Append { group: 1, bytes })?;
        world.act(Action::Append { group: 3, bytes: 5 })?;
        world.settle()?;
    }
    world.lose_power(Survivors::Nothing);
    recover(world, None)
}

/// Runs the script with a power failure at operation number `operation`. Returns false when it has fewer operations.
fn crash_at(operation: u64, survivors: Survivors, seed: u64, again: Option<u64>) -> Result<bool, Violation> {
    let mut world = World::new(options(), seed);
    world.disk.trouble_in(operation, Trouble::Crash);
    world.reopen()?;
    for action in script() {
        world.act(action)?;
    }
    let crashed = world.disk.is_off();
    world.lose_power(survivors);
    recover(&mut world, again.map(|operations| (operations, survivors)))?;
    go_on(&mut world)?;
    Ok(crashed)
}

#[test]
fn power_loss_at_every_operation() {
    let mut operation = 1;
    let mut crashed = true;
    while crashed {
        for survivors in SURVIVORS {
            for seed in 0..if survivors == Survivors::Random { 30 } else { 1 } {
                let result = crash_at(operation, survivors, seed, None);
                crashed = result.unwrap_or_else(|violation| {
                    panic!("operation {operation}, {survivors:?}, seed {seed}: {violation}")
                });
            }
        }
        operation += 1;
    }
    assert!(operation > 100, "the script has only {operation} operations");
}

#[test]
fn power_loss_at_every_operation_and_again_at_every_operation_of_the_next_start() {
    for operation in 1..130 {
        for again in 1..30 {
            for (survivors, seed) in SURVIVORS.into_iter().zip([0, 0, operation * again]) {
                crash_at(operation, survivors, seed, Some(again)).unwrap_or_else(|violation| {
                    panic!("operations {operation} and {again}, {survivors:?}, seed {seed}: {violation}")
                });
            }
        }
    }
}

fn draw_action(random: &mut Random) -> Action {
    let group = 1 + random.below(3) as u16;
    match random.below(100) {
        0..35 => {
            let most = [1, 100, 1000, 6000][random.below(4) as usize];
            Action::Append { group, bytes: random.below(most) as usize }
        }
        35..55 => Action::Write,
        55..64 => Action::BeginSync,
        64..73 => Action::FinishSync,
        73..80 => Action::BeginUpkeep,
        80..87 => Action::FinishUpkeep,
        87..90 => Action::BeginSnapshot { group },
        90..92 => Action::AppendSnapshot,
        92..95 => Action::CommitSnapshot,
        95 => Action::AbandonSnapshot,
        96 => Action::Forget { group },
        97 => Action::NoteDurable,
        _ => Action::Retry,
    }
}

/// A long run: many starts, each with trouble at some time.
fn live(options: Options, seed: u64) -> Result<World, Violation> {
    let mut random = Random::new(seed);
    let mut world = World::new(options, seed);
    for _ in 0..12 {
        if random.percent(60) {
            let trouble = match random.below(4) {
                0 => Trouble::Fail(Cause::Failed("input/output error".to_owned())),
                1 => Trouble::Fail(Cause::Full),
                _ => Trouble::Crash,
            };
            world.disk.trouble_in(1 + random.below(60), trouble);
        }
        // A start that fails leaves everything to the next one.
        if world.reopen()? {
            world.disk.capacity = random.percent(20).then(|| world.disk.used_bytes() + random.below(9000));
            for _ in 0..random.below(150) {
                world.act(draw_action(&mut random))?;
                if world.is_down() && random.percent(30) {
                    break;
                }
            }
        }
        world.disk.capacity = None;
        if world.disk.is_off() || random.percent(50) {
            world.lose_power(SURVIVORS[random.below(3) as usize]);
        } else {
            world.kill();
            world.disk.trouble.clear();
        }
        if random.percent(30) && world.reopen()? {
            tamper(&world, &mut random)?;
            world.kill();
        }
    }
    recover(&mut world, None)?;
    go_on(&mut world)?;
    Ok(world)
}

/// Flips a bit, or zeroes a sector, in data known to be durable.
fn tamper(world: &World, random: &mut Random) -> Result<(), Violation> {
    let files = world.disk.contents();
    let (name, bytes) = &files[random.below(files.len() as u64) as usize];
    let Some(last) = bytes.iter().rposition(|byte| *byte != 0) else { return Ok(()) };
    let at = random.below(last as u64 + 1) as usize;
    let flip = random.percent(50);
    let result = world.after(|disk| {
        disk.lose_power(Survivors::Everything);
        disk.tamper(
            name,
            |bytes| if flip { flip_bit(bytes, at * 8 + at % 8) } else { zero_sector(bytes, at) },
        );
    });
    result
        .map(drop)
        .map_err(|violation| format!("byte {at} of {name} changed (flipped: {flip}): {violation}"))
}

#[test]
fn long_runs_with_all_kinds_of_trouble() {
    let mut seen = BTreeMap::new();
    for seed in 0..2000 {
        // Segments of one block, and of three.
        let segment_bytes = SEGMENT_BYTES * [1, 3][seed as usize % 2];
        let has_reserve = seed % 4 > 1;
        let options = Options { segment_bytes, has_reserve, ..options() };
        let world = live(options, seed).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        for (what, times) in world.seen {
            *seen.entry(what).or_insert(0) += times;
        }
    }
    println!("{seen:?}");
    // A search that does not reach these situations proves nothing.
    for what in [
        "segment made",
        "segment refused",
        "write refused",
        "snapshot taken",
        "snapshot refused",
        "start without the first segments",
        "torn tail",
    ] {
        assert!(seen.get(what).is_some_and(|times| *times > 10), "{what}: {seen:?}");
    }
}

#[test]
fn planted_faults_are_found() {
    let faults = [
        Fault::TornTailAccepted,
        Fault::ChecksumNotCompared,
        Fault::SyncErrorIgnored,
        Fault::SyncCoversLaterWrites,
        Fault::FolderNotSynced,
        Fault::SnapshotBeforeLog,
        Fault::ReadCountsAsDurable,
        Fault::LossNotNoticed,
        Fault::TailNotCleared,
    ];
    for fault in faults {
        let options = Options { planted: Planted::one(fault), ..options() };
        let found = (0..5000).find_map(|seed| Some((seed, live(options, seed).err()?)));
        let (seed, violation) = found.unwrap_or_else(|| panic!("{fault:?} is not found"));
        println!("{fault:?}: found in run {}: {violation:.120}", seed + 1);
    }
}

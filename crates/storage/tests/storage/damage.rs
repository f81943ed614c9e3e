//! Damage of durable data is refused with file and place, or has no consequence. It never produces a wrong entry or
//! loses one.

use storage::{Damage, StorageError};

use crate::support::disk::{Folder as _, Survivors};
use crate::support::world::{Action, World};
use crate::support::{flip_bit, options, zero_sector};

/// A log of two segments and an unused one, with a snapshot. All of it is durable and noted as durable.
fn quiet_log() -> World {
    let mut world = World::new(options(), 1);
    assert_eq!(world.reopen(), Ok(true));
    let act = |world: &mut World, actions: &[Action]| actions.iter().for_each(|a| world.act(*a).unwrap());
    act(&mut world, &[Action::Append { group: 2, bytes: 300 }]);
    world.settle().unwrap();
    act(&mut world, &[Action::BeginSnapshot { group: 2 }, Action::AppendSnapshot, Action::CommitSnapshot]);
    world.settle().unwrap();
    for bytes in [5, 1200, 0, 700, 900, 40, 1000] {
        act(&mut world, &[Action::Append { group: 1, bytes }, Action::Append { group: 2, bytes: 9 }]);
        world.settle().unwrap();
    }
    act(&mut world, &[Action::NoteDurable]);
    world.settle().unwrap();
    world.disk.lose_power(Survivors::Everything);
    let names: Vec<String> = world.disk.contents().into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "manifest",
            "segment-0000000000",
            "segment-0000000001",
            "segment-0000000002",
            "snapshot-00002-0000000000"
        ]
    );
    world
}

/// The length of the file without meaningless bytes at its end: zeros, and the stamps of a segment's sectors.
fn used(name: &str, bytes: &[u8]) -> usize {
    let says = |(at, byte): (usize, &u8)| *byte != 0 && !is_stamp(name, at);
    bytes.iter().enumerate().rposition(says).map_or(0, |last| last + 1)
}

/// Whether the byte is part of a sector's stamp, which names the segment for which the sector was written.
fn is_stamp(name: &str, at: usize) -> bool {
    name.starts_with("segment") && at % 512 >= 480
}

#[test]
fn every_flipped_bit() {
    let world = quiet_log();
    let (mut refused, mut harmless) = (0, 0);
    for (name, bytes) in world.disk.contents() {
        for bit in 0..used(&name, &bytes) * 8 {
            let result = world.after(|disk| disk.tamper(&name, |bytes| flip_bit(bytes, bit)));
            match result.unwrap_or_else(|violation| panic!("bit {bit} of {name}: {violation}")) {
                Err(StorageError::Damaged { file, .. }) => {
                    assert_eq!(file, name, "bit {bit}");
                    refused += 1;
                }
                Err(error) => panic!("bit {bit} of {name}: {error}"),
                Ok(()) => harmless += 1,
            }
        }
    }
    // Harmless are only zeros between batches, and stamps that do not become those of an older segment.
    assert!(harmless * 10 < refused, "{harmless} harmless, {refused} refused");
}

#[test]
fn every_zeroed_sector() {
    let world = quiet_log();
    for (name, bytes) in world.disk.contents() {
        for at in (0..used(&name, &bytes)).step_by(512) {
            let result = world.after(|disk| disk.tamper(&name, |bytes| zero_sector(bytes, at))).unwrap();
            assert!(result.is_err(), "the sector at {at} of {name} was zeroed, and the log opens");
        }
    }
}

#[test]
fn every_file_cut_short_anywhere() {
    let world = quiet_log();
    for (name, bytes) in world.disk.contents() {
        for length in (0..used(&name, &bytes)).step_by(97) {
            let result = world.after(|disk| disk.tamper(&name, |bytes| bytes.truncate(length))).unwrap();
            assert!(result.is_err(), "{name} was cut to {length} bytes, and the log opens");
        }
    }
}

#[test]
fn every_file_missing() {
    let world = quiet_log();
    for (name, _) in world.disk.contents() {
        let result = world.after(|disk| disk.take(&name)).unwrap();
        assert_eq!(result, Err(StorageError::Damaged { file: name, offset: 0, damage: Damage::Missing }));
    }
}

#[test]
fn a_segment_under_the_name_of_another() {
    let world = quiet_log();
    let files = world.disk.contents();
    let put = |from: usize, to: usize| world.after(|disk| disk.put(&files[to].0, &files[from].1)).unwrap();
    let damage = Damage::Misnamed { found: 1, expected: 0 };
    assert_eq!(put(2, 1), Err(StorageError::Damaged { file: files[1].0.clone(), offset: 0, damage }));
    // An older segment counts as zeros. Its lack of entries is noticed where there should be some, but not where nothing
    // was written yet.
    let Err(StorageError::Damaged { damage: Damage::Lost { .. }, .. }) = put(1, 2) else {
        panic!("the log opens")
    };
    assert_eq!(put(1, 3), Ok(()));
}

#[test]
fn a_segment_restored_from_an_old_copy() {
    let mut world = quiet_log();
    let old = world.disk.contents();
    assert_eq!(world.reopen(), Ok(true));
    world.act(Action::Append { group: 1, bytes: 10 }).unwrap();
    world.settle().unwrap();
    world.act(Action::NoteDurable).unwrap();
    world.settle().unwrap();
    let result = world.after(|disk| disk.put(&old[2].0, &old[2].1)).unwrap();
    let Err(error) = result else { panic!("the log opens") };
    assert!(error.to_string().contains("manifest says that it was durable up to"), "{error}");
}

#[test]
fn files_of_another_node_or_an_earlier_log() {
    let world = quiet_log();
    let mut identity = options().identity;
    identity.node = 4;
    let mut other = World::new(storage::Options { identity, ..options() }, 1);
    assert_eq!(other.reopen(), Ok(true));
    let foreign = other.disk.contents();
    for (name, bytes) in &foreign {
        let result = world.after(|disk| disk.put(name, bytes)).unwrap();
        let Err(StorageError::Foreign { file, found, expected }) = result else {
            panic!("{name}: {result:?}")
        };
        assert_eq!((&file, found.node, expected.node), (name, 4, 3));
    }
    // The same node after its folder was wiped: only the log's random number differs.
    identity = options().identity;
    identity.log += 1;
    let mut later = World::new(storage::Options { identity, ..options() }, 1);
    assert_eq!(later.reopen(), Ok(true));
    let (name, bytes) = &later.disk.contents()[1];
    let result = world.after(|disk| disk.put(name, bytes)).unwrap();
    assert!(matches!(result, Err(StorageError::Foreign { .. })), "{result:?}");
}

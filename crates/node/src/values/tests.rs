//! When values are removed, and what checkpoints wait for.

use super::*;

#[test]
fn a_name_identifies_a_value_and_names_of_later_values_are_greater() {
    let reference = Reference::spilled(7, 2, 300, u64::MAX - 1);
    let name = name_of(9, &reference);
    assert_eq!((name.group(), reference_of(&name)), (9, reference));
    assert!(name < name_of(9, &Reference::spilled(8, 1, 0, 0)));
    assert!(name_of(9, &Reference::spilled(u64::MAX, 1, 0, 0)) < name_of(10, &reference));
}

fn values() -> Values {
    Values::new(
        StorageSettings { cache_bytes: 1000, ..StorageSettings::default() },
        Planted::default(),
        Sweep::default(),
    )
}

fn references(numbers: impl IntoIterator<Item = u64>) -> BTreeSet<Reference> {
    numbers.into_iter().map(|number| Reference::spilled(number, 1, 1, 0)).collect()
}

fn removed(values: &mut Values) -> Vec<u64> {
    values.removals.drain(..).map(|(_, reference)| reference.id.coordinator.life).collect()
}

#[test]
fn a_released_value_is_removed_when_a_checkpoint_counts_that_began_later() {
    let mut values = values();
    values.release(1, references([1]));
    values.begin_checkpoint(1);
    values.release(1, references([2]));
    values.log_changed(News::Checkpoint(2));
    assert!(removed(&mut values).is_empty(), "of another group");
    values.log_changed(News::Checkpoint(1));
    assert_eq!(removed(&mut values), [1]);
    values.begin_checkpoint(1);
    values.log_changed(News::NoCheckpoint(1));
    values.begin_checkpoint(1);
    values.abandon_checkpoint(1);
    assert!(removed(&mut values).is_empty(), "a start would come back to the one before");
    values.begin_checkpoint(1);
    values.log_changed(News::Checkpoint(1));
    assert_eq!(removed(&mut values), [2]);
}

#[test]
fn a_value_released_a_second_time_waits_for_the_later_checkpoint() {
    let mut values = values();
    values.release(1, references([1, 2]));
    // Value 1 is spilled again, so the checkpoint that begins refers to it.
    values.begin_checkpoint(1);
    values.release(1, references([1]));
    values.log_changed(News::Checkpoint(1));
    let may_go = |values: &Values| {
        let all = values.removals.iter().filter(|(group, reference)| !values.is_released(*group, reference));
        all.map(|(_, reference)| reference.id.coordinator.life).collect::<Vec<_>>()
    };
    assert_eq!(may_go(&values), [2]);
    values.begin_checkpoint(1);
    assert_eq!(may_go(&values), [2]);
    values.log_changed(News::Checkpoint(1));
    assert_eq!(may_go(&values), [1, 2, 1]);
}

#[test]
fn a_checkpoint_waits_until_the_values_that_it_refers_to_are_safe() {
    let mut values = values();
    values.keep(1, &Reference::spilled(1, 1, 1, 0), Arc::new(vec![1]));
    values.begin_checkpoint(1);
    values.keep(1, &Reference::spilled(2, 1, 1, 0), Arc::new(vec![2]));
    assert!(values.holds_checkpoint(1) && !values.is_to_be_safe());
    values.put = 1;
    assert!(values.holds_checkpoint(1) && values.is_to_be_safe());
    values.note_safe();
    assert!(!values.holds_checkpoint(1) && !values.is_to_be_safe());
}

#[test]
fn a_dropped_replicas_values_stay_until_the_log_has_forgotten_it() {
    let mut values = values();
    values.release(1, references([1]));
    values.begin_checkpoint(1);
    values.release(1, references([2]));
    values.replica_dropped(1, references([3]).into_iter().collect(), true);
    assert!(removed(&mut values).is_empty());
    values.log_changed(News::Forgotten(1));
    assert_eq!(removed(&mut values), [1, 2, 3]);
    values.replica_dropped(2, references([4]).into_iter().collect(), false);
    assert_eq!(removed(&mut values), [4], "the log has never held it");
}

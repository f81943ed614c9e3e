//! The promises of the store, and the errors when it cannot keep them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;

use storage::values::NAME_BYTES;
use storage::{ValueName, ValueOutcome, ValueStore as _, ValueWork};

use super::{TreeValues, ValueThreads};

/// A folder that does not exist yet, and is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("quorate-values-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn store(folder: &Folder) -> TreeValues {
    TreeValues::new(&folder.0).unwrap()
}

fn name(number: u32) -> ValueName {
    let mut name = [0; NAME_BYTES];
    name[..4].copy_from_slice(&number.to_be_bytes());
    ValueName(name)
}

/// Some are sorted with their names, some are kept in files of their own.
fn value(number: u32) -> Arc<Vec<u8>> {
    Arc::new(number.to_le_bytes().repeat(150 * (1 + number as usize % 2)))
}

fn names(store: &mut TreeValues) -> Vec<ValueName> {
    names_from(store, &ValueName::FIRST, usize::MAX)
}

fn names_from(store: &mut TreeValues, from: &ValueName, count: usize) -> Vec<ValueName> {
    match (ValueWork::Names { from: *from, count }).run(store).unwrap() {
        ValueOutcome::Names(names) => names,
        other => panic!("{other:?}"),
    }
}

/// The bytes that a folder takes on the disk.
fn bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let length = |path: PathBuf| match path.is_dir() {
        true => bytes(&path),
        // A file that was just removed takes none.
        false => fs::metadata(path).map_or(0, |file| file.len()),
    };
    entries.map(|entry| length(entry.path())).sum()
}

#[test]
fn a_store_is_created_over_a_half_created_one() {
    // They are created in this order.
    let steps = ["lock", "keyspaces/", "0.jnl", "version"];
    for count in 0..=steps.len() {
        let folder = Folder::new("half-made");
        fs::create_dir_all(&folder.0).unwrap();
        for step in &steps[..count] {
            match step.strip_suffix('/') {
                Some(inner) => fs::create_dir(folder.0.join(inner)).unwrap(),
                None => fs::write(folder.0.join(step), "").unwrap(),
            }
        }
        let mut store = store(&folder);
        store.put(&[(name(1), value(1))]).unwrap();
        assert_eq!(store.get(&name(1)).unwrap(), Some(value(1).to_vec()), "after {count} steps");
    }
}

#[test]
fn values_survive_the_store_that_put_them() {
    let folder = Folder::new("outlive");
    let mut before = store(&folder);
    assert_eq!((before.get(&name(1)).unwrap(), names(&mut before)), (None, vec![]));
    assert!(!folder.0.exists(), "nothing is created before there is a value to keep");
    let values: Vec<_> = (0..100).map(|number| (name(number), value(number))).collect();
    before.put(&values).unwrap();
    before.persist().unwrap();
    before.remove(&[name(3), name(4)]).unwrap();
    drop(before);
    let mut after = store(&folder);
    for number in [7, 8] {
        assert_eq!(after.get(&name(number)).unwrap(), Some(value(number).to_vec()));
    }
    assert_eq!(after.get(&name(4)).unwrap(), None);
    assert_eq!(names(&mut after).len(), 98);
    assert!(names(&mut after).is_sorted());
    let some = [2, 5, 6].map(name);
    assert_eq!(names_from(&mut after, &name(2), 3), some);
    assert_eq!(names_from(&mut after, &name(3), 2), some[1..], "removed names are skipped");
    assert_eq!(names_from(&mut after, &name(99), 7), [name(99)]);
    assert!(names_from(&mut after, &name(100), 7).is_empty());
}

#[test]
fn more_values_than_fit_in_memory_are_put_and_removed() {
    let folder = Folder::new("more");
    let mut store = store(&folder);
    let large = Arc::new(vec![7; 64 << 10]);
    for round in 0..8 {
        let values: Vec<_> = (0..64).map(|number| (name(round * 64 + number), Arc::clone(&large))).collect();
        store.put(&values).unwrap();
    }
    let removed: Vec<_> = (0..500).map(name).collect();
    store.remove(&removed).unwrap();
    assert_eq!(names(&mut store), (500..512).map(name).collect::<Vec<_>>());
    assert_eq!(store.get(&name(511)).unwrap(), Some(large.to_vec()));
}

/// 768 MiB are put, and at no time are more than 32 MiB of them needed.
#[test]
fn removed_values_free_their_room() {
    const VALUES: u32 = 256;
    let folder = Folder::new("room");
    let mut store = store(&folder);
    let large = Arc::new(vec![7; 64 << 10]);
    let mut most = 0;
    for round in 0..48 {
        let values: Vec<_> =
            (0..VALUES).map(|number| (name(round * VALUES + number), Arc::clone(&large))).collect();
        values.chunks(64).for_each(|values| store.put(values).unwrap());
        if round > 0 {
            let removed: Vec<_> = (0..VALUES).map(|number| name((round - 1) * VALUES + number)).collect();
            store.remove(&removed).unwrap();
        }
        assert_eq!(names(&mut store).len(), values.len(), "of the last round only");
        most = most.max(bytes(&folder.0));
    }
    assert!(most < 512 << 20, "{} MiB are used", most >> 20);
}

/// The longest of the files whose names end with `end`.
fn longest(folder: &Path, end: &str) -> PathBuf {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let ended = paths.filter(|path| path.to_string_lossy().ends_with(end));
    ended.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
}

#[test]
fn a_crash_that_tears_the_end_loses_only_the_last_batch() {
    let folder = Folder::new("torn");
    let mut before = store(&folder);
    before.put(&[(name(1), value(1)), (name(2), value(2))]).unwrap();
    before.put(&[(name(3), value(3)), (name(4), value(4))]).unwrap();
    drop(before);
    let log = longest(&folder.0, ".jnl");
    // The file may be longer than what was written to it.
    let last = fs::read(&log).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
    fs::OpenOptions::new().write(true).open(log).unwrap().set_len(last as u64).unwrap();
    let mut after = store(&folder);
    assert_eq!(names(&mut after), [name(1), name(2)], "a batch is kept whole or not at all");
    assert_eq!(after.get(&name(2)).unwrap(), Some(value(2).to_vec()));
    assert_eq!(after.get(&name(3)).unwrap(), None);
}

/// The folder is removed: from then on the tree can create nothing in it, and its threads fail.
#[test]
fn a_tree_that_fails_is_reopened() {
    let folder = Folder::new("anew");
    let mut store = store(&folder);
    store.put(&[(name(0), value(0))]).unwrap();
    fs::remove_dir_all(&folder.0).unwrap();
    let large = Arc::new(vec![7; 1 << 20]);
    let is_new = (1..500).any(|number| {
        // One call may return the error; later values are kept.
        let _ = store.put(&[(name(number), Arc::clone(&large))]);
        folder.0.exists()
    });
    assert!(is_new, "its threads have met no error");
    store.put(&[(name(500), value(500))]).unwrap();
    assert_eq!(store.get(&name(500)).unwrap(), Some(value(500).to_vec()));
    assert_eq!(store.get(&name(0)).unwrap(), None, "lost values stay missing");
}

#[test]
fn work_runs_beside_the_loop() {
    let folder = Folder::new("threads");
    let (wake, woken) = channel();
    let mut threads = ValueThreads::start(&store(&folder), move || {
        let _ = wake.send(());
    })
    .unwrap();
    threads.begin(ValueWork::Put(vec![(name(1), value(1))]));
    woken.recv().unwrap();
    assert!(matches!(threads.take_finished(), Some((ValueWork::Put(_), Ok(ValueOutcome::Done)))));
    threads.begin(ValueWork::Get(name(1)));
    woken.recv().unwrap();
    let (_, result) = threads.take_finished().unwrap();
    assert_eq!(result.unwrap(), ValueOutcome::Value(Some(value(1).to_vec())));
    drop(threads);
}

#[test]
fn a_folder_that_was_written_by_rocksdb_is_refused() {
    let folder = Folder::new("refused");
    fs::create_dir_all(&folder.0).unwrap();
    fs::write(folder.0.join("CURRENT"), "MANIFEST-000005\n").unwrap();
    let why = TreeValues::new(&folder.0).err().map(|error| format!("{error:#}"));
    assert!(why.as_ref().is_some_and(|why| why.contains("were written by RocksDB")), "{why:?}");
}

//! What copies of large collections share: counted as memory that changes of them may still take.

use super::script::{parse, word};
use super::*;
use crate::SnapshotId;
use proptest::collection::vec;
use proptest::prelude::*;

impl Store {
    pub(super) fn line(&mut self, line: &str) -> String {
        let words: Vec<Vec<u8>> = line.split_whitespace().map(word).collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        self.apply(&parse(&words, &mut Vec::new()))
    }

    /// Tidies, and checks the count against all nodes.
    pub(super) fn checked_shared(&mut self) -> usize {
        while self.table.tidy(10) {}
        self.table.check_invariants();
        self.table.shared_bytes()
    }
}

/// A command that adds these to a collection of a kind, named by its first letter.
pub(super) fn adding(kind: char, key: &str, numbers: std::ops::Range<usize>) -> String {
    let each = |of: &dyn Fn(usize) -> String| numbers.clone().map(of).collect::<Vec<_>>().join(" ");
    match kind {
        'h' => format!("HSET {key} {}", each(&|number| format!("f{number} value{number}"))),
        'l' => format!("RPUSH {key} {}", each(&|number| format!("e{number}"))),
        'z' => format!("ZADD {key} {}", each(&|number| format!("{} m{number}", number * 7 % 31))),
        'x' => format!("XADD {key} {}-1 field {}", numbers.start + 1, "v".repeat(numbers.len())),
        _ => format!("SADD {key} {}", each(&|number| format!("m{number}"))),
    }
}

pub(super) fn removing(kind: char, key: &str, number: usize) -> String {
    match kind {
        'h' => format!("HDEL {key} f{number}"),
        'l' if number.is_multiple_of(2) => format!("LREM {key} 0 e{number}"),
        'l' => format!("LTRIM {key} 1 -2"),
        'z' => format!("ZREM {key} m{number}"),
        'x' => format!("XDEL {key} {number}-1"),
        _ if number.is_multiple_of(3) => format!("SPOP {key} {}", number % 7),
        _ => format!("SREM {key} m{number}"),
    }
}

#[test]
fn a_copy_counts_with_all_that_it_shares_until_it_shares_no_more_or_is_gone() {
    for kind in ['h', 'l', 'z', 's'] {
        let mut store = Store::new();
        store.line(&adding(kind, "k", 0..200));
        assert_eq!(store.checked_shared(), 0, "{kind}");
        let one = store.table.bytes_of(b"k");
        (0..3).for_each(|copy| assert_eq!(store.line(&format!("COPY k c{copy}")), "1"));
        let all = store.checked_shared();
        assert!(all > 3 * one * 4 / 5 && all <= 3 * one, "{kind}: {all} of three times {one}");
        // A name for a copy is not another copy.
        store.line("RENAME k other");
        assert_eq!(store.checked_shared(), all, "{kind}");
        // The memory of what is removed by one is needed by the others.
        for number in 0..60 {
            store.line(&removing(kind, "c0", number));
        }
        let left = store.checked_shared();
        assert!(left < all - all / 10, "{kind}: {left} of {all}");
        // It makes no difference which ends.
        assert_eq!(store.line("DEL other"), "1");
        let two = store.checked_shared();
        assert!(two < left - one / 2 && two > one * 4 / 5, "{kind}: {two} of {left}");
        store.line("SET c1 v");
        assert!(store.checked_shared() < one, "{kind}");
        store.line("COPY c0 c2 REPLACE");
        assert!(store.checked_shared() > one / 2, "{kind}");
        store.line("DEL c0");
        assert_eq!(store.checked_shared(), 0, "{kind}: one is left");
        store.line("COPY c2 c3");
        store.line("FLUSHALL");
        assert_eq!(store.table.shared_bytes(), 0, "{kind}: before anything is freed");
        assert_eq!(store.checked_shared(), 0, "{kind}");
    }
}

#[test]
fn what_a_snapshot_holds_is_not_charged_to_copies_when_it_ends() {
    let mut store = Store::new();
    store.line(&adding('s', "k", 0..200));
    store.line("COPY k c");
    let all = store.checked_shared();
    let id = store.table.begin_snapshot();
    store.line("SREM k m1 m2 m3 m100 m101");
    store.line("DEL k");
    store.table.end_snapshot(id);
    assert_eq!(store.checked_shared(), 0, "of {all}");
    let id = store.table.begin_snapshot();
    store.line("FLUSHALL");
    store.line(&adding('s', "k", 0..200));
    store.line("COPY k c");
    let again = store.checked_shared();
    store.table.end_snapshot(id);
    assert_eq!((store.checked_shared(), again), (all, all));
}

#[derive(Clone, Debug)]
enum Step {
    Do(String),
    Undo(String),
    Begin,
    Chunk,
    End,
}

fn step() -> impl Strategy<Value = Step> {
    let kind = || proptest::sample::select(vec!['h', 'l', 'z', 's', 'x']);
    let key = || (kind(), 0..3usize).prop_map(|(kind, number)| (kind, format!("{kind}{number}")));
    let change = prop_oneof![
        2 => (key(), 0..60usize, 1..30usize).prop_map(|((kind, key), from, count)| adding(kind, &key, from..from + count)),
        2 => (key(), 0..70usize).prop_map(|((kind, key), number)| removing(kind, &key, number)),
        2 => (key(), 0..3usize).prop_map(|((kind, key), to)| format!("COPY {key} {kind}{to} REPLACE")),
        1 => (key(), 0..3usize).prop_map(|((kind, key), to)| format!("RENAME {key} {kind}{to}")),
        1 => key().prop_map(|(_, key)| format!("DEL {key}")),
        1 => key().prop_map(|(_, key)| format!("SET {key} v")),
    ];
    let clear = Just("FLUSHALL".to_owned()).prop_map(Step::Do);
    prop_oneof![
        20 => change.clone().prop_map(Step::Do),
        3 => change.prop_map(Step::Undo),
        1 => clear,
        1 => Just(Step::Begin),
        2 => Just(Step::Chunk),
        1 => Just(Step::End),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_shared_is_counted_whatever_changes_and_snapshots_there_are(steps in vec(step(), 0..120)) {
        let (mut store, mut snapshots) = (Store::scripted(), Vec::<SnapshotId>::new());
        for step in steps {
            match step {
                Step::Do(line) => drop(store.line(&line)),
                Step::Undo(line) => {
                    let keys: Vec<&str> = line.split_whitespace().skip(1).take(2).collect();
                    store.eval_in(&format!("{line}\nundo"), &keys, &[], true);
                }
                Step::Begin => snapshots.push(store.table.begin_snapshot()),
                Step::Chunk => {
                    for id in &snapshots {
                        store.table.snapshot_chunk(*id, 100, &mut Vec::new());
                    }
                }
                Step::End => snapshots.drain(..).for_each(|id| store.table.end_snapshot(id)),
            }
            store.checked_shared();
        }
        snapshots.drain(..).for_each(|id| store.table.end_snapshot(id));
        store.checked_shared();
    }
}

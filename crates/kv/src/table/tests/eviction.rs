//! Which keys are chosen for eviction, and what their removal does.

use super::*;
use crate::command::{Deadline, ExpireCondition, Usage};
use crate::table::{Chooser, Eviction};

fn store(eviction: Eviction) -> Store {
    let mut store = Store::new();
    store.table.set_eviction(eviction);
    store
}

fn name(number: usize) -> String {
    format!("k{number}")
}

fn expire(store: &mut Store, key: &str, milliseconds: i64) {
    let (deadline, condition) = (Deadline::In(milliseconds), ExpireCondition::Always);
    assert_eq!(store.apply(&Command::Expire { key: key.as_bytes(), deadline, condition }), "1");
}

fn get(store: &mut Store, key: &str) {
    store.read(&Command::Get { key: key.as_bytes() });
}

/// Chooses a key and evicts it: returns its name.
fn evict(store: &mut Store, eviction: Eviction, chooser: &mut Chooser) -> Option<String> {
    let victim = store.table.choose(eviction, store.time, chooser, false)?;
    let (key, version, name) = (victim.key.to_vec(), victim.version, victim.name);
    let bytes = victim.bytes;
    chooser.begin(&victim, store.time);
    chooser.check_invariants();
    assert!(chooser.bytes() > bytes);
    assert_eq!(store.apply(&Command::Evict { key: &key, version }), "1");
    chooser.end(name);
    assert!(chooser.is_empty() && chooser.bytes() == 0);
    Some(String::from_utf8(key).unwrap())
}

#[test]
fn a_key_is_evicted_only_in_the_version_that_was_chosen() {
    let mut store = store(Eviction::Random);
    store.set("k", "v");
    let version = store.version("k");
    store.set("k", "w");
    assert_eq!(store.apply(&Command::Evict { key: b"k", version }), "0");
    assert_eq!(store.apply(&Command::Evict { key: b"other", version }), "0");
    let version = store.version("k");
    assert_eq!(store.apply(&Command::Evict { key: b"k", version }), "1");
    assert_eq!((store.table.len(), store.table.statistics().evicted), (0, 1));
}

#[test]
fn the_least_recently_used_keys_are_evicted_first() {
    let mut store = store(Eviction::Lru);
    (0..2000).for_each(|number| {
        store.time += 16;
        store.set(&name(number), "v");
    });
    // The first half is read again, in order.
    (0..1000).for_each(|number| {
        store.time += 16;
        get(&mut store, &name(number));
    });
    let mut chooser = Chooser::default();
    let evicted: Vec<String> =
        (0..600).map(|_| evict(&mut store, Eviction::Lru, &mut chooser).unwrap()).collect();
    let wrong = evicted.iter().filter(|key| key[1..].parse::<usize>().unwrap() < 1000).count();
    assert!(wrong < 10, "{wrong} of 600 were used more recently than half of the keys");
    assert_eq!(store.read(&Command::Used { key: b"k0", usage: Usage::Idle }), "15");
    store.time += 10_000;
    assert_eq!(
        store.read(&Command::Used { key: b"k0", usage: Usage::Idle }),
        "25",
        "OBJECT IDLETIME does not count as a use"
    );
    assert!(store.read(&Command::Used { key: b"k0", usage: Usage::Frequency }).contains("not selected"));
    assert_eq!(store.read(&Command::Used { key: b"none", usage: Usage::Idle }), "nil");
}

#[test]
fn the_least_recently_modified_keys_are_evicted_first_whatever_is_read() {
    let mut store = store(Eviction::Lrm);
    (0..2000).for_each(|number| store.set(&name(number), "v"));
    // The first half is written again; the second is read, later than that.
    (0..1000).for_each(|number| store.set(&name(number), "w"));
    (1000..2000).for_each(|number| get(&mut store, &name(number)));
    let mut chooser = Chooser::default();
    let evicted: Vec<String> =
        (0..600).map(|_| evict(&mut store, Eviction::Lrm, &mut chooser).unwrap()).collect();
    let wrong = evicted.iter().filter(|key| key[1..].parse::<usize>().unwrap() < 1000).count();
    assert!(wrong < 10, "{wrong} of 600 were written more recently than half of the keys");
}

#[test]
fn a_scan_does_not_evict_keys_in_repeated_use() {
    let mut store = store(Eviction::Lru);
    let mut chooser = Chooser::default();
    (0..1000).for_each(|number| store.set(&name(number), "v"));
    (0..400).for_each(|number| get(&mut store, &name(number)));
    for round in 1..10 {
        // Between two uses of one of these keys, 1600 others are used: more than fit.
        (0..400).for_each(|number| {
            store.time += 16;
            get(&mut store, &name(number));
            for scanned in 0..3 {
                store.set(&name(round * 2000 + 3 * number + scanned), "v");
                evict(&mut store, Eviction::Lru, &mut chooser).unwrap();
            }
        });
    }
    let left = (0..400).filter(|number| store.read(&Command::Get { key: name(*number).as_bytes() }) != "nil");
    let left = left.count();
    assert!(left > 300, "{left} of 400");
    assert_eq!(store.read(&Command::Used { key: b"k19199", usage: Usage::Idle }), "0", "it was just added");
}

#[test]
fn the_least_frequently_used_keys_are_evicted_first_and_counters_decay() {
    let mut store = store(Eviction::Lfu);
    (0..1000).for_each(|number| store.set(&name(number), "v"));
    for _ in 0..100 {
        (0..500).for_each(|number| get(&mut store, &name(number)));
    }
    let frequency = |store: &mut Store, key: &str| -> u32 {
        store.read(&Command::Used { key: key.as_bytes(), usage: Usage::Frequency }).parse().unwrap()
    };
    assert_eq!(frequency(&mut store, "k999"), 5);
    let least = (0..500).map(|number| frequency(&mut store, &name(number))).min();
    assert!(least > Some(5), "{least:?}");
    let before = frequency(&mut store, "k0");
    assert!((8..=20).contains(&before), "{before}");
    let mut chooser = Chooser::default();
    for _ in 0..300 {
        let key = evict(&mut store, Eviction::Lfu, &mut chooser).unwrap();
        assert!(key[1..].parse::<usize>().unwrap() >= 500, "{key}");
    }
    store.time += 3 * 60_000 + 500;
    assert_eq!(frequency(&mut store, "k0"), before - 3);
    store.time += 600 * 60_000;
    assert_eq!(frequency(&mut store, "k0"), 0);
}

#[test]
fn keys_in_repeated_use_outlast_a_newer_scan_for_some_minutes() {
    let mut store = store(Eviction::Lfu);
    (0..500).for_each(|number| store.set(&name(number), "v"));
    (0..500).for_each(|number| get(&mut store, &name(number)));
    store.time += 3 * 60_000;
    (500..1000).for_each(|number| store.set(&name(number), "v"));
    let mut chooser = Chooser::default();
    for _ in 0..300 {
        let key = evict(&mut store, Eviction::Lfu, &mut chooser).unwrap();
        assert!(key[1..].parse::<usize>().unwrap() >= 500, "{key}");
    }
    // But not forever.
    store.time += 9 * 60_000;
    (0..10).for_each(|number| store.set(&name(1000 + number), "v"));
    let key = evict(&mut store, Eviction::Lfu, &mut chooser).unwrap();
    assert!(key[1..].parse::<usize>().unwrap() < 1000, "{key}");
}

#[test]
fn volatile_policies_evict_only_keys_that_expire() {
    use Eviction::{Ttl, VolatileLfu, VolatileLrm, VolatileLru, VolatileRandom};
    for eviction in [Ttl, VolatileLru, VolatileLfu, VolatileLrm, VolatileRandom] {
        let mut store = store(eviction);
        (0..5000).for_each(|number| store.set(&name(number), "v"));
        // Too few to be found by sampling.
        (0..5).for_each(|number| expire(&mut store, &name(1000 * number), 9000 - number as i64));
        let mut chooser = Chooser::default();
        let evicted: Vec<String> = std::iter::from_fn(|| evict(&mut store, eviction, &mut chooser)).collect();
        assert_eq!((evicted.len(), store.table.len(), store.table.expires()), (5, 4995, 0), "{eviction:?}");
        if eviction == Eviction::Ttl {
            assert_eq!(evicted, ["k4000", "k3000", "k2000", "k1000", "k0"]);
        }
    }
}

#[test]
fn a_chosen_key_is_not_chosen_again() {
    for eviction in [Eviction::Ttl, Eviction::Lru, Eviction::Random, Eviction::VolatileLfu] {
        let mut store = store(eviction);
        (0..100).for_each(|number| {
            store.set(&name(number), "v");
            expire(&mut store, &name(number), 9000);
        });
        let (mut chooser, mut chosen) = (Chooser::default(), std::collections::BTreeSet::new());
        while let Some(victim) = store.table.choose(eviction, store.time, &mut chooser, false) {
            assert!(chosen.insert(victim.key.to_vec()), "{eviction:?}");
            chooser.begin(&victim, 10);
        }
        assert_eq!(chosen.len(), 100, "{eviction:?}");
    }
}

/// Begins evictions that get no outcome.
fn begin_some(store: &Store, eviction: Eviction, count: usize, until_us: u64, chooser: &mut Chooser) {
    for _ in 0..count {
        let victim = store.table.choose(eviction, store.time, chooser, false).unwrap();
        chooser.begin(&victim, until_us);
        chooser.check_invariants();
    }
}

#[test]
fn an_eviction_without_an_outcome_ends_at_its_deadline() {
    for eviction in [Eviction::Ttl, Eviction::Lru] {
        let mut store = store(eviction);
        (0..10).for_each(|number| {
            store.set(&name(number), "v");
            expire(&mut store, &name(number), 9000 + number as i64);
        });
        let mut chooser = Chooser::default();
        begin_some(&store, eviction, 4, 10, &mut chooser);
        let of_four = chooser.bytes();
        begin_some(&store, eviction, 6, 20, &mut chooser);
        assert!(store.table.choose(eviction, store.time, &mut chooser, false).is_none());
        chooser.end_overdue(9);
        assert!(chooser.bytes() > 2 * of_four);
        chooser.end_overdue(10);
        assert!(chooser.bytes() < 2 * of_four);
        chooser.check_invariants();
        // The first four are chosen again. A late end of an earlier eviction ends at most the newer one.
        begin_some(&store, eviction, 4, 30, &mut chooser);
        chooser.end_overdue(20);
        chooser.check_invariants();
        assert_eq!(chooser.bytes(), of_four);
        chooser.end_overdue(30);
        assert!(chooser.is_empty() && chooser.bytes() == 0);
    }
}

#[test]
fn a_key_that_expires_before_the_chosen_ones_is_found() {
    let mut store = store(Eviction::Ttl);
    (0..3).for_each(|number| {
        store.set(&name(number), "v");
        expire(&mut store, &name(number), 9000 + number as i64);
    });
    let mut chooser = Chooser::default();
    begin_some(&store, Eviction::Ttl, 3, 10, &mut chooser);
    store.set("earlier", "v");
    expire(&mut store, "earlier", 1000);
    let victim = store.table.choose(Eviction::Ttl, store.time, &mut chooser, false);
    assert_eq!(victim.map(|victim| victim.key), Some(&b"earlier"[..]));
}

#[test]
fn nothing_is_evicted_without_a_policy() {
    let mut store = store(Eviction::None);
    store.set("k", "v");
    assert!(store.table.choose(Eviction::None, store.time, &mut Chooser::default(), false).is_none());
    assert!(store.read(&Command::Used { key: b"k", usage: Usage::Idle }).starts_with('!'));
}

#[test]
fn marks_follow_their_entries_and_take_memory_only_where_they_are_kept() {
    let mut store = store(Eviction::Lru);
    (0..3000).for_each(|number| store.set(&name(number), "v"));
    (0..3000).filter(|number| number % 3 != 0).for_each(|number| {
        store.delete(&name(number));
    });
    (0..3000).step_by(3).for_each(|number| {
        store.time = 1_000_000 + 1000 * number as u64;
        get(&mut store, &name(number));
    });
    // The index grows, and its entries move.
    (3000..9000).for_each(|number| store.set(&name(number), "v"));
    for number in (0..3000).step_by(3) {
        let key = name(number);
        let idle = store.read(&Command::Used { key: key.as_bytes(), usage: Usage::Idle });
        let wrong = idle.parse::<i64>().unwrap() - (2997 - number as i64);
        assert!((-1..=0).contains(&wrong), "{idle} for {number}: times are kept in units of 16 ms");
    }
    let with_marks = store.table.memory_bytes();
    store.table.set_eviction(Eviction::Random);
    let without = store.table.memory_bytes();
    assert!(with_marks > without + 4 * 7000 && with_marks < without + 10 * 7000, "{with_marks} {without}");
}

//! Sets: replies of their commands, large ones compared with small ones, and a comparison with a model.

use super::script::play;
use super::*;
use crate::command::{SetCommand, SetOperation};
use crate::table::kind::Kind;
use crate::table::members::member_of;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const WRONGTYPE: &str = "!WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn an_expired_target_of_a_move_is_replaced() {
    play(
        r#"
        SADD from a b           -> 2
        SADD to x               -> 1
        EXPIRE to PX 100        -> 1
        wait 100
        SMOVE from to a         -> 1
        SMEMBERS from           -> ("b")
        SMEMBERS to             -> ("a")
        PTTL to                 -> -1
    "#,
    );
}

/// Whether a set is large differs between replicas, and transactions with watched keys depend on the marks of removed keys.
#[test]
fn an_emptied_set_leaves_the_same_mark_whether_small_or_large() {
    let marks = |members: usize| {
        let mut store = Store::new();
        let names: Vec<String> = (0..members).map(|number| format!("member{number}")).collect();
        store.play(&format!("SADD s {} -> {members}", names.join(" ")));
        let version = store.table.version_floor();
        let is_large = store.table.peek(b"s", 0).is_some_and(|entry| entry.collection().is_some());
        store.play(&format!("SREM s {} -> {members}\nEXISTS s -> 0", names.join(" ")));
        let marks: Vec<_> =
            store.table.removed_versions.marks().map(|(_, marked)| marked == version).collect();
        (is_large, marks)
    };
    assert_eq!(marks(3), (false, vec![true]));
    assert_eq!(marks(300), (true, vec![true]));
}

#[test]
fn members_are_added_and_removed() {
    play(
        r#"
        SADD s a b c a          -> 3
        SADD s c d              -> 1
        SCARD s                 -> 4
        SISMEMBER s a           -> 1
        SISMEMBER s x           -> 0
        SMISMEMBER s a x d      -> [1 0 1]
        SMEMBERS s              -> ("a" "b" "c" "d")
        SREM s a x a            -> 1
        SMOVE s t b             -> 1
        SMOVE s t b             -> 0
        SMOVE s s c             -> 1
        SMOVE s s x             -> 0
        SMOVE no t c            -> 0
        SMEMBERS t              -> ("b")
        SREM s c d              -> 2
        EXISTS s                -> 0
        SMOVE t s b             -> 1
        EXISTS t                -> 0
        SMEMBERS t              -> ()
        SCARD t                 -> 0
        SISMEMBER t a           -> 0
        SMISMEMBER t a b        -> [0 0]
        SREM t a                -> 0
        SADD e ""               -> 1
        SISMEMBER e ""          -> 1
    "#,
    );
}

#[test]
fn several_sets_are_combined() {
    play(
        r#"
        SADD a 1 2 3 4          -> 4
        SADD b 3 4 5            -> 3
        SADD c 4 9              -> 2
        SINTER a b              -> ("3" "4")
        SINTER a b c            -> ("4")
        SINTER a no             -> ()
        SUNION a b c            -> ("1" "2" "3" "4" "5" "9")
        SUNION no a no          -> ("1" "2" "3" "4")
        SDIFF a b c             -> ("1" "2")
        SDIFF a                 -> ("1" "2" "3" "4")
        SDIFF no a              -> ()
        SINTERCARD 0 a b        -> 2
        SINTERCARD 1 a b        -> 1
        SINTERCARD 0 a no       -> 0
        SINTERSTORE d a b       -> 2
        SMEMBERS d              -> ("3" "4")
        EXPIRE d PX 100         -> 1
        SUNIONSTORE d d c       -> 3
        PTTL d                  -> -1
        SMEMBERS d              -> ("3" "4" "9")
        SDIFFSTORE d d a b      -> 1
        SMEMBERS d              -> ("9")
        SET s v                 -> OK
        SUNIONSTORE s a b       -> 5
        TYPE s                  -> set
        SINTERSTORE s a no      -> 0
        EXISTS s                -> 0
        SINTERSTORE s a no      -> 0
    "#,
    );
}

#[test]
fn commands_on_sets_refuse_other_types_and_the_reverse() {
    let mut store = Store::new();
    store.play("SADD s a -> 1\nSET v v -> OK\nRPUSH l a -> 1");
    for line in [
        "SADD v a",
        "SREM l a",
        "SCARD v",
        "SISMEMBER l a",
        "SMISMEMBER v a",
        "SMEMBERS l",
        "SRANDMEMBER v",
        "SPOP v",
        "SMOVE v s a",
        "SMOVE s v a",
        "SSCAN l 0 10",
        "SINTER no v",
        "SINTER v no",
        "SUNION s l",
        "SDIFF no v",
        "SINTERCARD 0 no v",
        "SINTERSTORE d no v",
        "SUNIONSTORE d s l",
        "GET s",
        "LPUSH s a",
        "HGET s a",
    ] {
        store.play(&format!("{line} -> {WRONGTYPE}"));
    }
    store.play("SMOVE no v a -> 0\nTYPE s -> set\nMGET s v -> [nil \"v\"]\nEXISTS d -> 0");
}

#[test]
fn encodings_are_those_of_redis() {
    let mut store = Store::new();
    store.play("SADD s 1 -5 9223372036854775807 -> 3\nENCODING s -> \"intset\"");
    store.play("SADD s 007 -> 1\nENCODING s -> \"hashtable\"");
    fill(&mut store, "many", 513);
    store.play("ENCODING many -> \"hashtable\"\nSREM many 7 -> 1\nENCODING many -> \"intset\"");
}

/// Adds the numbers below `end` to a set.
fn fill(store: &mut Store, key: &str, end: usize) {
    let texts: Vec<String> = (0..end).map(|number| number.to_string()).collect();
    let mut scratch = Vec::new();
    let members = List::build(&mut scratch, texts.iter().map(String::as_bytes));
    let reply = store.apply(&Command::OnSet(SetCommand::Add { key: key.as_bytes(), members }));
    assert_eq!(reply, end.to_string());
}

fn members(store: &mut Store, key: &str) -> BTreeSet<Vec<u8>> {
    let now = store.time;
    let (items, _) = store.table.items_of(key.as_bytes(), Kind::Set, now).unwrap();
    items.iter_from(0).map(|item| member_of(item).to_vec()).collect()
}

#[test]
fn popped_members_depend_only_on_the_record() {
    let [mut first, mut second] = [Store::new(), Store { table: Table::new(77), ..Store::new() }];
    for store in [&mut first, &mut second] {
        fill(store, "s", 1000);
    }
    let mut popped = BTreeSet::new();
    for count in [None, Some(0), Some(1), Some(30), None, Some(200)] {
        // Only one replica gets reads in between.
        first.read(&Command::OnSet(SetCommand::Random { key: b"s", count: Some(5) }));
        let pop = Command::OnSet(SetCommand::Pop { key: b"s", count });
        let before = members(&mut first, "s");
        let answer = first.apply(&pop);
        second.offset += 1;
        second.table.apply_unasked(&pop, second.offset, second.time);
        let after = members(&mut first, "s");
        let gone: BTreeSet<_> = before.difference(&after).cloned().collect();
        assert_eq!(gone.len() as u64, count.unwrap_or(1), "{answer}");
        assert!(gone.iter().all(|member| answer.contains(&format!("\"{}\"", member.escape_ascii()))));
        assert!(gone.is_disjoint(&popped));
        popped.extend(gone);
        assert_eq!(first.table.digest(), second.table.digest());
    }
    assert!(popped.iter().map(Vec::len).max() > popped.iter().map(Vec::len).min(), "they are drawn from all");
    first.play("SPOP s 0 -> ()\nSPOP no -> nil\nSPOP no 3 -> ()");
    first.apply(&Command::OnSet(SetCommand::Pop { key: b"s", count: Some(9999) }));
    first.play("EXISTS s -> 0");
}

#[test]
fn a_transaction_pops_the_same_members_where_its_reads_are_skipped() {
    let [mut first, mut second] = [Store::new(), Store::new()];
    let mut draft = crate::command::Draft::default();
    for command in [
        SetCommand::Pop { key: b"s", count: Some(3) },
        SetCommand::Random { key: b"s", count: Some(3) },
        SetCommand::Pop { key: b"s", count: None },
    ] {
        assert!(draft.push(&Command::OnSet(command)));
    }
    for store in [&mut first, &mut second] {
        fill(store, "s", 500);
    }
    first.apply(&Command::Transaction(draft.transaction()));
    second.table.apply_unasked(&Command::Transaction(draft.transaction()), 2, second.time);
    assert_eq!(members(&mut first, "s").len(), 496);
    assert_eq!(first.table.digest(), second.table.digest());
}

#[test]
fn members_are_drawn_at_random() {
    let mut store = Store::new();
    fill(&mut store, "s", 100);
    let mut draw = |count| {
        let answer = store.read(&Command::OnSet(SetCommand::Random { key: b"s", count }));
        answer.matches('"').count() / 2
    };
    assert_eq!([draw(None), draw(Some(0)), draw(Some(7)), draw(Some(-7))], [1, 0, 7, 7]);
    assert_eq!([draw(Some(100)), draw(Some(1000)), draw(Some(-1000))], [100, 100, 1000]);
    let mut seen = BTreeSet::new();
    for _ in 0..2000 {
        seen.insert(store.read(&Command::OnSet(SetCommand::Random { key: b"s", count: None })));
    }
    assert_eq!(seen.len(), 100, "each of them");
    store.play("SRANDMEMBER no -> nil\nSRANDMEMBER no 3 -> []\nSRANDMEMBER no -3 -> []");
    let reply = store.read(&Command::OnSet(SetCommand::Random { key: b"s", count: Some(-i64::MAX) }));
    assert!(reply.starts_with("!ERR SRANDMEMBER would look at"), "{reply}");
}

#[test]
fn a_scan_returns_members_that_stay_exactly_once() {
    let mut store = Store::new();
    fill(&mut store, "s", 1000);
    let (mut position, mut seen, mut number) = (0, Vec::new(), 1000);
    loop {
        let scan = SetCommand::Scan { key: b"s", position, count: 7, pattern: None };
        let answer = store.read(&Command::OnSet(scan));
        let mut words = answer.split('"').skip(1).step_by(2).map(str::to_owned);
        position = words.next().unwrap().parse().unwrap();
        seen.extend(words.map(|word| word.parse::<u32>().unwrap()));
        if position == 0 {
            break;
        }
        // Add a member that did not exist before.
        store.play(&format!("SADD s {number} -> 1"));
        number += 1;
    }
    seen.retain(|member| *member < 1000);
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..1000));
    store.play(
        r#"
        SADD small a ab b       -> 3
        SSCAN small 0 MATCH b*  -> ["0" ["b"]]
        SSCAN small 99999999999 10 -> ["0" []]
        SSCAN no 0 10           -> ["0" []]
    "#,
    );
}

#[test]
fn a_chunk_with_an_invalid_set_is_refused() {
    let mut store = Store::new();
    store.play("SADD s member other -> 2");
    let id = store.table.begin_snapshot();
    let mut chunk = Vec::new();
    store.table.snapshot_chunk(id, 1000, &mut chunk);
    assert_eq!(Table::new(2).install(&chunk), Ok(1));
    let at = chunk.windows(6).position(|window| window == b"member").unwrap();
    chunk[at] = b'M'; // Not the member's hash.
    assert!(Table::new(2).install(&chunk).is_err());
}

/// A command on one of a few sets, as an encoded record.
pub(super) fn set_record() -> impl Strategy<Value = super::model::Record> {
    let key = || (0..4u8).prop_map(|number| format!("key{number}").into_bytes());
    let member = || {
        prop_oneof![
            5 => (0..40u8).prop_map(|number| vec![number]),
            4 => (-20..20i32).prop_map(|number| number.to_string().into_bytes()),
            1 => vec(any::<u8>(), 0..90),
        ]
    };
    (key(), vec(key(), 1..4), vec(member(), 1..12), any::<bool>(), 0..5u64, 0..12u8).prop_map(
        |(key, keys, members, flag, count, which)| {
            use SetOperation::*;
            let (key, mut scratch, mut more) = (&key[..], Vec::new(), Vec::new());
            let member = &members[0][..];
            let members = List::build(&mut scratch, members.iter().map(Vec::as_slice));
            let operation = [Intersection, Union, Difference][count as usize % 3];
            let others = List::build(&mut more, keys.iter().map(Vec::as_slice));
            let command = match which {
                0..6 => SetCommand::Add { key, members },
                6 | 7 => SetCommand::Remove { key, members },
                8 => SetCommand::Move { from: key, to: &keys[0], member },
                9 => SetCommand::Pop { key, count: flag.then_some(count) },
                10 => SetCommand::Random { key, count: Some(3) },
                _ => SetCommand::Store { operation, to: key, keys: others },
            };
            super::model::Record::of(&Command::OnSet(command))
        },
    )
}

/// The effect of a set command, in the simplest code, without random draws.
fn carry_out(sets: &mut BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>, command: &SetCommand<'_>) {
    let of =
        |sets: &BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>, key: &[u8]| sets.get(key).cloned().unwrap_or_default();
    match *command {
        SetCommand::Add { key, members } => {
            sets.entry(key.to_vec()).or_default().extend(members.iter().map(<[u8]>::to_vec));
        }
        SetCommand::Remove { key, members } => {
            let set = sets.entry(key.to_vec()).or_default();
            members.iter().for_each(|member| _ = set.remove(member));
        }
        SetCommand::Move { from, to, member } if sets.get_mut(from).is_some_and(|set| set.remove(member)) => {
            sets.entry(to.to_vec()).or_default().insert(member.to_vec());
        }
        SetCommand::Store { operation, to, keys } => {
            let mut all = keys.iter().map(|key| of(sets, key));
            let first = all.next().unwrap();
            let result = all.fold(first, |one, other| match operation {
                SetOperation::Intersection => one.intersection(&other).cloned().collect(),
                SetOperation::Union => one.union(&other).cloned().collect(),
                SetOperation::Difference => one.difference(&other).cloned().collect(),
            });
            sets.insert(to.to_vec(), result);
        }
        _ => {}
    }
    sets.retain(|_, set| !set.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn sets_match_a_simple_model(records in vec(set_record(), 0..120)) {
        let (mut store, mut sets) = (Store::new(), BTreeMap::new());
        for record in &records {
            let Command::OnSet(command) = record.command() else { panic!("a command on sets") };
            store.apply(&record.command());
            carry_out(&mut sets, &command);
            if let SetCommand::Pop { key, count } = command {
                let key = String::from_utf8(key.to_vec()).unwrap();
                let (before, after) = (sets.entry(key.clone().into_bytes()).or_default(), members(&mut store, &key));
                prop_assert_eq!(before.len() - after.len(), before.len().min(count.unwrap_or(1) as usize));
                prop_assert!(after.is_subset(before));
                *before = after;
                sets.retain(|_, set| !set.is_empty());
            }
            prop_assert_eq!(store.table.len(), sets.len());
            for (key, set) in &sets {
                prop_assert_eq!(&members(&mut store, std::str::from_utf8(key).unwrap()), set, "{:?}", command);
            }
            for entry in store.table.index.iter() {
                entry.collection().inspect(|collection| collection.check_invariants());
            }
            store.table.check_invariants();
        }
    }
}

//! Values on the disk: a table that keeps only references behaves like one that keeps all values.

use super::model::{Record, record, records};
use super::two_phase::{number, preparing, shareable, with_header};
use super::{Store, plain_set, text_of};
use crate::codec::Reader;
use crate::coded::{Reference, ValueRef};
use crate::command::{Command, Draft, HashCommand, List, SetAnswer, Share, Supplied, TwoPhaseCommand};
use crate::reply::{Reply, ReplyBuffer};
use crate::table::{Follows, Spilled, Table, encode_value};
use crate::{Condition, Expiry};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A table that spills values of at least `BYTES_MIN` bytes, and the store that keeps them.
pub(super) struct Replica {
    pub(super) table: Table,
    pub(super) kept: BTreeMap<Reference, Vec<u8>>,
}

pub(super) const BYTES_MIN: usize = 8;

impl Replica {
    pub(super) fn new(seed: u64) -> Replica {
        let mut table = Table::new(seed);
        table.spill_from(BYTES_MIN);
        Replica { table, kept: BTreeMap::new() }
    }

    /// Stores the values that must be stored, and drops the others.
    fn follow(&mut self) {
        if let Some(Spilled { kept, released }) = self.table.take_spilled() {
            self.kept.extend(kept.into_iter().map(|(name, value)| (name, Arc::unwrap_or_clone(value))));
            released.iter().for_each(|reference| drop(self.kept.remove(reference)));
        }
        let referred: BTreeSet<Reference> = self.table.spilled().collect();
        assert!(referred.iter().all(|reference| self.kept.contains_key(reference)));
        assert!(self.kept.iter().all(|(reference, value)| reference.is_of(value)));
    }

    pub(super) fn apply(&mut self, command: &Command<'_>, offset: u64, time: u64) -> ReplyBuffer {
        let mut out = ReplyBuffer::new();
        self.table.apply(command, offset, time, &mut out);
        self.follow();
        out
    }

    /// The client's reply: a write is supplied with the values it needs, and a read's references are resolved.
    pub(super) fn ask(&mut self, command: &Command<'_>, offset: u64, time: u64) -> String {
        let out = self.apply(command, offset, time);
        let mut reader = Reader::new(out.as_bytes());
        match Reply::decode(&mut reader).unwrap() {
            Reply::Needs(command) => {
                let mut scratch = Vec::new();
                let supplied = Supplied::build(self.needs(reader.rest()), command, &mut scratch).unwrap();
                let mut record = Vec::new();
                Command::Supplied(supplied).encode(&mut record);
                let record = Command::decode(&mut Reader::new(&record)).unwrap();
                text_of(&self.apply(&record, offset, time))
            }
            Reply::Unresolved(_) => self.resolved(reader.rest()),
            _ => text_of(&out),
        }
    }

    fn needs<'a>(&'a self, mut rest: &'a [u8]) -> Vec<(&'a [u8], Reference, &'a [u8])> {
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        while !rest.is_empty() {
            let mut reader = Reader::new(rest);
            match Reply::decode(&mut reader).unwrap() {
                Reply::Bulk(key) => keys.push(key),
                Reply::Reference(encoded) => {
                    let reference = ValueRef::decode(encoded).unwrap().reference;
                    values.push((reference, self.kept[&reference].as_slice()));
                }
                _ => {}
            }
            rest = reader.rest();
        }
        let both = keys.into_iter().zip(values);
        both.map(|(key, (reference, value))| (key, reference, value)).collect()
    }

    fn resolved(&self, element: &[u8]) -> String {
        let (mut reader, mut out) = (Reader::new(element), ReplyBuffer::new());
        while let Ok(reply) = Reply::decode(&mut reader) {
            match reply {
                Reply::Reference(encoded) => {
                    let ValueRef { reference, view } = ValueRef::decode(encoded).unwrap();
                    out.bulk(view.of(&self.kept[&reference]));
                }
                other => out.push(other),
            }
        }
        text_of(&out)
    }

    fn get(&mut self, key: &[u8], time: u64) -> String {
        let mut out = ReplyBuffer::new();
        self.table.read(&Command::Fetch { key }, time, &mut out);
        match ReplyBuffer::is_unfinished(out.as_bytes()) {
            true => {
                let mut reader = Reader::new(out.as_bytes());
                Reply::decode(&mut reader).unwrap();
                self.resolved(reader.rest())
            }
            false => text_of(&out),
        }
    }
}

fn keys_of(table: &mut Table) -> Vec<Vec<u8>> {
    let mut out = ReplyBuffer::new();
    table.read(&Command::Keys { pattern: b"*" }, 0, &mut out);
    let mut reader = Reader::new(out.as_bytes());
    let mut keys = Vec::new();
    while !reader.is_empty() {
        if let Reply::Bulk(key) = Reply::decode(&mut reader).unwrap() {
            keys.push(key.to_vec());
        }
    }
    keys.sort();
    keys
}

const LONG: &[u8] = b"a value that is long enough";

#[test]
fn fetching_a_value_to_read_it_is_no_change() {
    let mut replica = Replica::new(1);
    replica.table.keep_history(1 << 20);
    replica.table.follow_changes(Follows { changes: true, ..Follows::default() });
    replica.apply(&plain_set(b"k", LONG), 1, 0);
    assert!(replica.table.take_changes().is_some());
    let mut draft = Draft::default();
    draft.push(&Command::Get { key: b"k" });
    draft.push(&Command::Persist { key: b"k" });
    let reads = Command::Transaction(draft.transaction());
    assert_eq!(replica.ask(&reads, 2, 0), "[\"a value that is long enough\" 0]");
    assert!(replica.table.take_changes().is_none());
    assert_eq!(replica.ask(&Command::Append { key: b"k", value: b"!", bytes_max: 100 }, 3, 0), "28");
    assert_eq!(replica.table.take_changes().map(|changes| changes.iter().count()), Some(1));
    let versions: Vec<_> = replica.table.history().unwrap().versions().collect();
    assert_eq!(versions, [1, 3]);
    assert_eq!(replica.table.version_floor(), 3);
}

#[test]
fn changed_values_are_spilled_again_and_values_only_read_are_not() {
    let mut replica = Replica::new(1);
    replica.apply(&plain_set(b"k", LONG), 1, 0);
    replica.apply(&plain_set(b"l", LONG), 2, 0);
    let (before, _) = replica.kept.first_key_value().unwrap();
    let before = *before;
    let mut draft = Draft::default();
    draft.push(&Command::Get { key: b"k" });
    draft.push(&Command::Append { key: b"l", value: b"!", bytes_max: 100 });
    let answer = replica.ask(&Command::Transaction(draft.transaction()), 3, 0);
    assert_eq!(answer, "[\"a value that is long enough\" 28]");
    assert!(replica.kept.contains_key(&before), "the value that was only read is kept by its name");
    assert_eq!(replica.kept.len(), 2);
    assert_eq!(replica.get(b"l", 0), "[\"a value that is long enough!\" 3 nil]");
}

#[test]
fn a_value_that_has_changed_since_is_requested_again() {
    let mut replica = Replica::new(1);
    replica.apply(&plain_set(b"k", LONG), 1, 0);
    let append = Command::Append { key: b"k", value: b"!", bytes_max: 100 };
    let out = replica.apply(&append, 2, 0);
    let mut reader = Reader::new(out.as_bytes());
    let Ok(Reply::Needs(command)) = Reply::decode(&mut reader) else { panic!("it needs the value") };
    let (mut scratch, mut record) = (Vec::new(), Vec::new());
    let supplied = Supplied::build(replica.needs(reader.rest()), command, &mut scratch).unwrap();
    Command::Supplied(supplied).encode(&mut record);
    replica.apply(&plain_set(b"k", b"another value of some length"), 3, 0);
    let out = replica.apply(&Command::decode(&mut Reader::new(&record)).unwrap(), 4, 0);
    assert!(matches!(Reply::first(out.as_bytes()), Reply::Needs(_)), "nothing was done");
    assert_eq!(replica.ask(&append, 5, 0), "29");
}

#[test]
fn a_value_long_enough_to_spill_does_not_update_a_short_entry_in_place() {
    let mut replica = Replica::new(1);
    replica.apply(&plain_set(b"k", b"1234567"), 1, 0);
    assert!(replica.kept.is_empty());
    replica.apply(&plain_set(b"k", b"12345678"), 2, 0);
    assert_eq!(replica.kept.len(), 1);
}

#[test]
fn a_value_that_does_not_match_its_reference_is_refused() {
    let mut replica = Replica::new(1);
    replica.apply(&plain_set(b"k", LONG), 1, 0);
    let (reference, _) = replica.kept.pop_first().unwrap();
    let mut chunk = Vec::new();
    encode_value(reference, b"another value of this lengt", &mut chunk);
    assert!(Table::new(2).install(&chunk).is_err());
}

#[test]
fn values_of_a_replaced_table_are_released() {
    let (mut replica, mut other) = (Replica::new(1), Replica::new(2));
    replica.apply(&plain_set(b"k", LONG), 1, 0);
    replica.apply(&plain_set(b"l", b"a value that both have"), 2, 0);
    other.table.apply(&plain_set(b"l", b"a value that both have"), 2, 0, &mut ReplyBuffer::new());
    other.table.take_spilled_of(&mut replica.table);
    let Spilled { kept, released } = other.table.take_spilled().unwrap();
    assert_eq!((kept.len(), released.len()), (1, 1));
    assert!(kept[0].0.is_of(b"a value that both have"));
    assert!(released.iter().all(|reference| reference.is_of(LONG)));
}

fn set_with_answer(key: &[u8], answer: SetAnswer) -> Command<'_> {
    Command::Set { key, value: LONG, expiry: Expiry::Clear, condition: Condition::Always, answer }
}

#[test]
fn set_returns_the_previous_value() {
    let mut replica = Replica::new(1);
    assert_eq!(replica.ask(&set_with_answer(b"k", SetAnswer::Before), 1, 0), "nil");
    let answer = replica.ask(&set_with_answer(b"k", SetAnswer::Before), 2, 0);
    assert_eq!(answer, format!("\"{}\"", LONG.escape_ascii()));
    let mut memory = Store::new();
    memory.apply(&set_with_answer(b"k", SetAnswer::Before));
    assert_eq!(memory.apply(&set_with_answer(b"k", SetAnswer::Before)), answer);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn spilling_changes_nothing_that_clients_see(records in records(0..60), from in 0..60usize) {
        let (mut memory, mut leader) = (Table::new(3), Replica::new(4));
        let mut copy: Option<Replica> = None;
        for (number, record) in records.iter().enumerate() {
            let (offset, time) = (number as u64 + 1, 1000 + 3 * number as u64);
            if number == from {
                copy = Some(copied(&mut leader));
            }
            let command = record.command();
            let mut expected = ReplyBuffer::new();
            memory.apply(&command, offset, time, &mut expected);
            prop_assert_eq!(leader.ask(&command, offset, time), text_of(&expected), "{:?}", command);
            if let Some(copy) = &mut copy {
                copy.ask(&command, offset, time);
            }
            let keys = keys_of(&mut memory);
            prop_assert_eq!(&keys_of(&mut leader.table), &keys);
            for key in keys {
                let mut out = ReplyBuffer::new();
                memory.read(&Command::Fetch { key: &key }, 0, &mut out);
                prop_assert_eq!(leader.get(&key, 0), text_of(&out), "after {:?}", command);
            }
            leader.table.check_invariants();
        }
        if let Some(copy) = &copy {
            copy.table.check_invariants();
            prop_assert_eq!(copy.table.digest(), leader.table.digest());
            prop_assert_eq!(&copy.kept, &leader.kept);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// A share of a transaction over several groups does with values on the disk what it does with values in memory, also on a replica
    /// that joins while its keys are locked.
    #[test]
    fn a_share_does_with_values_on_the_disk_what_it_does_in_memory(
        before in records(0..40),
        share in vec(record(), 1..5),
        locks_first in any::<bool>(),
        between in records(0..10),
        is_committed in any::<bool>(),
    ) {
        let draft = shareable(&share);
        prop_assume!(!draft.transaction().is_empty());
        let (mut scratch, mut lock_scratch) = (Vec::new(), Vec::new());
        let share = Share::build(&Command::Transaction(draft.transaction()), &mut scratch).unwrap();
        let mut reading = Draft::default();
        share.command().for_each_key(|key| assert!(reading.push(&Command::Dump { key })));
        let reading = Share::build(&Command::Transaction(reading.transaction()), &mut lock_scratch).unwrap();
        let mut records = before;
        let joins_at = with_header(number(1), 1, |header| {
            let own = |command| Record::of(&Command::TwoPhase(command));
            let lock = TwoPhaseCommand::Lock { header, is_alone: false, share: reading };
            let votes = match locks_first {
                true => [own(lock), own(lock), own(TwoPhaseCommand::PrepareLocked { header, share })].to_vec(),
                false => [Record::of(&preparing(header, share)), Record::of(&preparing(header, share))].to_vec(),
            };
            records.extend(votes);
            let joins_at = records.len();
            records.extend(between);
            records.push(own(match is_committed {
                true => TwoPhaseCommand::Commit { header },
                false => TwoPhaseCommand::Abort { header },
            }));
            joins_at
        });
        let (mut memory, mut leader, mut copy) = (Table::new(3), Replica::new(4), None);
        for (number, record) in records.iter().enumerate() {
            if number == joins_at {
                copy = Some(copied(&mut leader));
            }
            let (offset, time, command) = (number as u64 + 1, 1000 + 3 * number as u64, record.command());
            let mut expected = ReplyBuffer::new();
            memory.apply(&command, offset, time, &mut expected);
            prop_assert_eq!(leader.ask(&command, offset, time), text_of(&expected), "{:?}", command);
            if let Some(copy) = &mut copy {
                copy.ask(&command, offset, time);
            }
        }
        for key in keys_of(&mut memory) {
            let mut out = ReplyBuffer::new();
            memory.read(&Command::Fetch { key: &key }, 0, &mut out);
            prop_assert_eq!(leader.get(&key, 0), text_of(&out));
        }
        let copy = copy.expect("it joins before the end");
        prop_assert_eq!(copy.table.digest(), leader.table.digest());
        prop_assert_eq!(&copy.kept, &leader.kept);
        leader.table.check_invariants();
        copy.table.check_invariants();
    }
}

/// A replica created by a snapshot transfer that includes the values.
fn copied(replica: &mut Replica) -> Replica {
    let mut copy = Replica::new(5);
    let snapshot = replica.table.begin_snapshot();
    let mut more = true;
    while more {
        let (mut chunk, mut references) = (Vec::new(), BTreeSet::new());
        more = replica.table.copy_chunk(snapshot, 100, &mut chunk, &mut references);
        for reference in references {
            encode_value(reference, &replica.kept[&reference], &mut chunk);
        }
        copy.table.install(&chunk).unwrap();
    }
    replica.table.end_snapshot(snapshot);
    copy.table.set_version_floor(replica.table.version_floor());
    copy.follow();
    copy
}

#[test]
fn hashes_stay_in_memory() {
    let mut replica = Replica::new(1);
    let mut scratch = Vec::new();
    let pairs = List::build(&mut scratch, [&b"field"[..], LONG]);
    let set = HashCommand::Set { key: b"h", pairs, counts: true };
    assert_eq!(replica.ask(&Command::Hash(set), 1, 0), "1");
    assert!(replica.kept.is_empty());
    let get = Command::Hash(HashCommand::Get { key: b"h", field: b"field" });
    let mut out = ReplyBuffer::new();
    replica.table.read(&get, 0, &mut out);
    assert_eq!(text_of(&out), format!("\"{}\"", LONG.escape_ascii()));
    replica.apply(&plain_set(b"k", LONG), 2, 0);
    let pairs = List::build(&mut scratch, [&b"field"[..], b"v"]);
    let set = HashCommand::Set { key: b"k", pairs, counts: true };
    assert!(replica.ask(&Command::Hash(set), 3, 0).starts_with("!WRONGTYPE"), "a spilled value is a string");
}

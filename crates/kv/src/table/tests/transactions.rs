//! Transactions: commands that take effect together if the watched keys are unchanged.

use super::model::{Record, record, replay};
use super::script::{parse, word};
use super::*;
use crate::command::{Deadline, Draft, Transaction, Watched};
use proptest::collection::vec;
use proptest::prelude::*;

impl Store {
    /// Watches keys as `WATCH` does: by reading their versions.
    fn watch(&mut self, keys: &[&'static str]) -> Draft {
        let (mut scratch, mut out) = (Vec::new(), ReplyBuffer::new());
        let list = List::build(&mut scratch, keys.iter().map(|key| key.as_bytes()));
        self.table.read(&Command::Watch { keys: list }, self.time, &mut out);
        let mut reader = Reader::new(out.as_bytes());
        assert_eq!(Reply::decode(&mut reader), Ok(Reply::Array(keys.len() as u32 + 1)));
        let mut integer = || match Reply::decode(&mut reader) {
            Ok(Reply::Integer(number)) => number as u64,
            other => panic!("a version is an integer: {other:?}"),
        };
        let floor = integer();
        let mut draft = Draft::default();
        for key in keys {
            draft.watch(0, Watched { key: key.as_bytes(), version: integer(), floor });
        }
        draft
    }

    /// Carries out the commands of a script, one per line, in one step.
    fn exec(&mut self, mut draft: Draft, script: &str) -> String {
        for line in script.lines().map(str::trim) {
            let words: Vec<Vec<u8>> = line.split_whitespace().map(word).collect();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            assert!(draft.push(&parse(&words, &mut Vec::new())));
        }
        self.exec_as_it_is(&draft.transaction())
    }

    fn exec_as_it_is(&mut self, transaction: &Transaction<'_>) -> String {
        let command = Command::Transaction(*transaction);
        if command.is_write() { self.apply(&command) } else { self.read(&command) }
    }
}

#[test]
fn the_commands_of_a_transaction_see_each_other_and_share_one_version() {
    let mut store = Store::new();
    store.play("SET a 1 -> OK");
    let reply = store.exec(Draft::default(), "INCRBY a 4\nGET a\nSET b x\nRENAME b c\nMGET a b c");
    assert_eq!(reply, "[5 \"5\" OK OK [\"5\" nil \"x\"]]");
    assert_eq!((store.version("a"), store.version("c")), (2, 2));
    store.set("d", "next");
    assert_eq!(store.version("d"), 3);
}

#[test]
fn an_error_in_a_transaction_does_not_undo_the_rest() {
    let mut store = Store::new();
    let reply = store.exec(Draft::default(), "SET a word\nINCRBY a 1\nSET b 2\nRENAME no way\nINCRBY b 1");
    assert_eq!(reply, "[OK !ERR value is not an integer or out of range OK !ERR no such key 3]");
    store.play("MGET a b -> [\"word\" \"3\"]");
}

#[test]
fn a_transaction_that_only_reads_uses_up_no_version() {
    let mut store = Store::new();
    store.play("SET a 1 -> OK");
    assert_eq!(store.exec(Draft::default(), "GET a\nEXISTS a b"), "[\"1\" 1]");
    let draft = store.watch(&["a"]);
    assert_eq!(store.exec(draft.clone(), "GET a"), "[\"1\"]");
    store.play("SET a 2 -> OK");
    assert_eq!(store.exec(draft, "GET a"), "aborted");
    assert_eq!(store.version("a"), 2);
}

#[test]
fn every_change_of_a_watched_key_aborts() {
    let changes = [
        "SET k 1 -> OK", // Even to the value it already has.
        "INCRBY k 0 -> 1",
        "EXPIRE k EX 100 -> 1",
        "DEL k -> 1",
        "DEL k -> 1\nSET k 1 -> OK",
        "RENAME k l -> OK",
        "RENAME other k -> OK",
        "COPY other k REPLACE -> 1",
        "SETRANGE k 0 1 -> 1",
        "GETDEL k -> \"1\"",
        "DELEX k IFEQ 1 -> 1",
        "SET k 2 IFEQ 1 -> OK",
        "REPLICATE k 1 900 -> [1 900]",
        "DEL k -> 1\nREPLICATE k 1 1 -> [1 1]",
        "FLUSHALL -> OK",
        "SET k 1 PX 5 -> OK\nwait 5",
    ];
    for change in changes {
        let mut store = Store::new();
        store.play("SET k 1 -> OK\nSET other 2 -> OK");
        let draft = store.watch(&["other2", "k"]);
        store.play(change);
        let floor = store.table.version_floor();
        assert_eq!(store.exec(draft, "SET done 1\nPERSIST k"), "aborted", "{change}");
        store.play("EXISTS done -> 0");
        assert_eq!(store.table.version_floor(), floor, "nothing is used up");
    }
}

#[test]
fn commands_that_do_not_change_a_watched_key_do_not_abort() {
    let changes = [
        "SET other 3 -> OK\nDEL other -> 1",
        "SET k 2 NX -> nil",
        "SET k 2 IFEQ 2 -> nil",
        "DELEX k IFNE 1 -> 0",
        "DEL never -> 0",
        "REPLICATE k 2 1 -> [0 1]",
        "EXPIRE k EX 9 XX -> 0",
        "GETEX k -> \"1\"",
        "RENAMENX other k -> 0",
        "PERSIST k -> 0",
    ];
    for change in changes {
        let mut store = Store::new();
        store.play("SET k 1 -> OK\nSET other 2 -> OK");
        let draft = store.watch(&["k", "never"]);
        store.play(change);
        assert_eq!(store.exec(draft, "SET done 1"), "[OK]", "{change}");
    }
}

#[test]
fn a_key_created_and_removed_since_it_was_watched_aborts() {
    let visits = [
        "SET k 1 -> OK\nDEL k -> 1",
        "SET k 1 PX 5 -> OK\nwait 5", // It is still in memory.
        "SET k 1 PX 5 -> OK\nwait 5\nPURGE 2000000 -> 1",
        "SET k 1 -> OK\nFLUSHALL -> OK",
        "SET k 1 -> OK\nRENAME k l -> OK",
        "SET k 1 -> OK\nGETDEL k -> \"1\"",
        "REPLICATE k 1 1 -> [1 1]\nDEL k -> 1", // With a version that is lower than all others.
    ];
    for visit in visits {
        let mut store = Store::new();
        store.play("MSET a 1 b 2 -> OK\nDEL b -> 1");
        let draft = store.watch(&["k"]);
        store.play(visit);
        assert_eq!(store.exec(draft, "SET done 1"), "aborted", "{visit}");
    }
    // Within one transaction, too.
    let mut store = Store::new();
    let draft = store.watch(&["k"]);
    assert_eq!(store.exec(Draft::default(), "SET k 1\nDEL k"), "[OK 1]");
    assert_eq!(store.exec(draft, "SET done 1"), "aborted");
}

#[test]
fn a_key_that_was_expired_when_it_was_watched_may_be_removed() {
    for removal in ["PURGE 2000000 -> 1", "DEL k -> 0", "FLUSHALL -> OK", "SET k 1 XX -> nil"] {
        let mut store = Store::new();
        store.play("SET k 1 PX 5 -> OK\nwait 5");
        let draft = store.watch(&["k"]);
        store.play(removal);
        assert_eq!(store.exec(draft, "SET done 1"), "[OK]", "{removal}");
    }
}

#[test]
fn a_key_that_a_slower_clock_sees_as_not_yet_expired_aborts() {
    let mut store = Store::new();
    store.play("SET k 1 PX 5 -> OK\nwait 5");
    let draft = store.watch(&["k"]);
    store.time -= 1;
    assert_eq!(store.exec(draft, "SET done 1"), "aborted");
}

#[test]
fn a_key_watched_before_and_after_a_change_aborts() {
    let mut store = Store::new();
    let mut draft = store.watch(&["k"]);
    store.set("k", "1");
    let again = store.watch(&["k"]);
    again.transaction().watched().for_each(|watched| draft.watch(0, watched));
    assert_eq!(store.exec(draft, "SET done 1"), "aborted");
    assert_eq!(store.exec(again, "SET done 1"), "[OK]");
}

#[test]
fn a_copied_replica_decides_as_the_others_do() {
    let mut store = Store::new();
    let drafts: Vec<Draft> = ["k", "gone", "other"].map(|key| store.watch(&[key])).into();
    store.play("SET gone 1 -> OK\nSET kept 1 -> OK\nDEL gone -> 1");
    let mut copy = Store { table: Table::new(77), ..store };
    let id = store.table.begin_snapshot();
    store.play("SET other 1 -> OK\nDEL other -> 1");
    let mut more = true;
    while more {
        let mut chunk = Vec::new();
        more = store.table.snapshot_chunk(id, 1, &mut chunk);
        assert!(copy.table.install(&chunk).unwrap() <= 1, "marks of removed keys are not keys");
    }
    copy.table.set_version_floor(2);
    let outcomes: Vec<_> = drafts.iter().map(|draft| copy.exec(draft.clone(), "GET kept")).collect();
    assert_eq!(
        outcomes,
        ["[\"1\"]", "aborted", "[\"1\"]"],
        "`other` was created and removed after the snapshot began"
    );
    copy.play("SET other 1 -> OK\nDEL other -> 1");
    for draft in drafts {
        assert_eq!(copy.exec(draft.clone(), "GET kept"), store.exec(draft, "GET kept"));
    }
}

/// The number of lookups of values.
fn lookups(table: &Table) -> u64 {
    let statistics = table.statistics();
    statistics.hits + statistics.misses
}

#[test]
fn nothing_is_read_where_the_reply_is_dropped() {
    let mut store = Store::new();
    store.set("big", &"v".repeat(1 << 20));
    let mut draft = Draft::default();
    draft.push(&plain_set(b"k", b"1"));
    for _ in 0..1000 {
        draft.push(&Command::Get { key: b"big" });
    }
    store.table.apply_unasked(&Command::Transaction(draft.transaction()), 2, store.time);
    assert_eq!(lookups(&store.table), 0);
    store.play("GET k -> \"1\"");
}

#[test]
fn full_replies_stop_reads_but_not_writes() {
    let (mut store, mut follower) = (Store::new(), Store::new());
    for table in [&mut store, &mut follower] {
        table.set("big", &"v".repeat(20));
    }
    let mut draft = Draft::default();
    let getex = Command::GetExpire { key: b"big", expiry: Expiry::Set(Deadline::In(5000)) };
    draft.push(&plain_set(b"k", b"1"));
    (0..5).for_each(|_| assert!(draft.push(&Command::Get { key: b"big" })));
    draft.push(&getex);
    draft.push(&Command::GetDelete { key: b"big" });
    draft.push(&Command::Get { key: b"k" });
    draft.push(&Command::IncrementBy { key: b"k", delta: 1 });
    let record = super::super::Record { version: 2, time: store.time };
    let mut out = ReplyBuffer::new();
    store.table.transact(&draft.transaction(), record, 60, &mut out);
    let value = format!("\"{}\"", "v".repeat(20));
    let left_out = "!ERR the replies of the transaction would hold too many bytes; this command was left out";
    let cut = "!ERR the replies of the transaction would hold too many bytes; the command was carried out";
    assert_eq!(
        text_of(&out),
        format!("[OK {value} {value} {left_out} {left_out} {left_out} {cut} {cut} {left_out} 2]")
    );
    assert_eq!(lookups(&store.table), 5, "two values read, one without room, and the replies to two writes");
    // Later commands are answered as usual, and a replica that sent no replies holds the same.
    store.play("MGET big k -> [nil \"2\"]");
    follower.table.apply_unasked(&Command::Transaction(draft.transaction()), 2, follower.time);
    assert_eq!(follower.table.digest(), store.table.digest());
    follower.play("SET k 3 GET -> \"2\"");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// A transaction is aborted if and only if a key that it watches was changed, whatever else happened in the meantime.
    /// (Commands that clear the table, or bring versions from elsewhere, may abort other transactions, too.)
    #[test]
    fn a_transaction_takes_effect_exactly_if_its_watched_keys_are_unchanged(
        before in vec(record(), 0..20),
        after in vec(record(), 0..20),
        number in 0..12u8,
    ) {
        let (mut table, mut offset) = (Table::new(1), 0);
        replay(&mut table, &before, &mut offset);
        let key = format!("key{number}").into_bytes();
        let version_at = |table: &mut Table, offset: u64| {
            table.read(&Command::Get { key: &key }, 1000 + offset * 3, &mut ReplyBuffer::new())
        };
        let watched = Watched { key: &key, version: version_at(&mut table, offset), floor: table.version_floor() };
        let mut draft = Draft::default();
        draft.watch(0, watched);
        let mut is_changed = false;
        let is_exact =
            |record: &&Record| !matches!(record.command(), Command::Replicate { .. } | Command::Clear {});
        for record in after.iter().filter(is_exact) {
            replay(&mut table, std::slice::from_ref(record), &mut offset);
            is_changed |= version_at(&mut table, offset) != watched.version;
            let is_as_it_was = table.is_as_it_was(&draft.transaction(), 1000 + offset * 3);
            prop_assert_eq!(is_as_it_was, !is_changed, "after {:?}", record);
        }
    }
}

//! Values stored as fragments: how the table answers without their bytes, and with them.

use super::{Store, plain_set};
use crate::codec::Reader;
use crate::coded::{Coordinator, REFERENCE_BYTES, Reference, ValueId, ValueRef, View};
use crate::command::{
    Command, Comparison, Condition, Deadline, Draft, ExpireCondition, Expiry, Fenced, Hold, List,
    LockCommand, Script, ScriptLimits, SetAnswer, Supplied, Watched,
};
use crate::digest::digest_of;
use crate::reply::{Reply, ReplyBuffer};
use crate::table::{CodedChanges, Table};

const MEMBERSHIP: u32 = 3;
const SCRIPT_LIMITS: ScriptLimits = ScriptLimits { value_bytes_max: 9, cost_max: 1000 };
const VALUE: &[u8] = &[b'x'; 10_000];

fn id(counter: u64) -> ValueId {
    ValueId { coordinator: Coordinator { node: 2, life: 7 }, counter }
}

fn reference(counter: u64) -> Reference {
    Reference { id: id(counter), parts: 3, length: VALUE.len() as u32, digest: digest_of(VALUE) }
}

fn set_coded<'a>(key: &'a [u8], reference: &'a [u8; REFERENCE_BYTES]) -> Command<'a> {
    let (expiry, condition, answer) = (Expiry::Clear, Condition::Always, SetAnswer::Status);
    Command::SetCoded { key, reference, membership: MEMBERSHIP, expiry, condition, answer }
}

/// A store whose group has a membership.
fn store() -> Store {
    let mut store = Store::new();
    store.table.set_membership(MEMBERSHIP);
    store
}

fn put(store: &mut Store, key: &str, counter: u64) -> String {
    store.apply(&set_coded(key.as_bytes(), &reference(counter).encoded()))
}

/// The reply to a read, or to a write that needs bytes: the command to repeat, and every reference.
fn unfinished(out: &ReplyBuffer) -> (bool, Vec<u8>, Vec<ValueRef>) {
    assert!(ReplyBuffer::is_unfinished(out.as_bytes()));
    let mut reader = Reader::new(out.as_bytes());
    let (is_read, command) = match Reply::decode(&mut reader) {
        Ok(Reply::Unresolved(command)) => (true, command.to_vec()),
        Ok(Reply::Needs(command)) => (false, command.to_vec()),
        other => panic!("{other:?}"),
    };
    let mut references = Vec::new();
    while !reader.is_empty() {
        if let Reply::Reference(encoded) = Reply::decode(&mut reader).unwrap() {
            references.push(ValueRef::decode(encoded).unwrap());
        }
    }
    (is_read, command, references)
}

fn answered(store: &mut Store, command: &Command<'_>) -> Vec<ValueRef> {
    let mut out = ReplyBuffer::new();
    store.table.read(command, store.time, &mut out);
    let (is_read, asked, references) = unfinished(&out);
    let mut encoded = Vec::new();
    command.encode(&mut encoded);
    assert!(is_read && asked == encoded, "the client's node can send the same read again");
    references
}

/// The values that a write needs before it can be carried out.
fn needed(store: &mut Store, command: &Command<'_>) -> Vec<u64> {
    let (digest, mut out) = (store.table.digest(), ReplyBuffer::new());
    store.offset += 1;
    store.table.apply(command, store.offset, store.time, &mut out);
    assert_eq!(store.table.digest(), digest, "nothing was done");
    let (is_read, _, references) = unfinished(&out);
    assert!(!is_read);
    references.iter().map(|it| it.reference.id.counter).collect()
}

fn changes(table: &mut Table) -> Vec<(u64, bool)> {
    let changes = table.take_coded_changes().unwrap_or_default();
    changes.values.into_iter().map(|id| (id.counter, table.reference(id).is_some())).collect()
}

#[test]
fn commands_that_need_no_bytes_are_answered_without_them() {
    let mut store = store();
    assert_eq!(put(&mut store, "k", 1), "OK");
    assert_eq!(store.read(&Command::Length { key: b"k" }), "10000");
    assert_eq!(store.read(&Command::Encoding { key: b"k", limits: Default::default() }), "\"raw\"");
    let digest = format!("\"{:016x}\"", digest_of(VALUE));
    assert_eq!(store.read(&Command::Digest { key: b"k" }), digest);
    assert_eq!(store.read(&Command::Size {}), "1");
    let comparison = Comparison::DigestEqual(digest_of(b"other"));
    assert_eq!(store.apply(&Command::DeleteIf { key: b"k", comparison }), "0");
    let comparison = Comparison::Equal(b"of another length");
    assert_eq!(store.apply(&Command::DeleteIf { key: b"k", comparison }), "0");
    let refused = store.apply(&Command::IncrementBy { key: b"k", delta: 1 });
    assert!(refused.starts_with("!ERR value is not an integer"), "{refused}");
    let comparison = Comparison::DigestEqual(digest_of(VALUE));
    assert_eq!(store.apply(&Command::DeleteIf { key: b"k", comparison }), "1");
}

#[test]
fn a_read_is_answered_with_references() {
    let mut store = store();
    put(&mut store, "k", 1);
    put(&mut store, "l", 2);
    store.set("small", "v");
    let whole = |counter| ValueRef { reference: reference(counter), view: View::Whole };
    assert_eq!(answered(&mut store, &Command::Get { key: b"k" }), [whole(1)]);
    let part = ValueRef { reference: reference(1), view: View::Range { start: 1, end: -2 } };
    assert_eq!(answered(&mut store, &Command::GetRange { key: b"k", start: 1, end: -2 }), [part]);
    let mut scratch = Vec::new();
    let keys = List::build(&mut scratch, [&b"l"[..], b"small", b"k"]);
    assert_eq!(answered(&mut store, &Command::MultiGet { keys }), [whole(2), whole(1)]);
    assert_eq!(
        store.read(&Command::Get { key: b"small" }),
        "\"v\"",
        "values in memory are returned as usual"
    );
}

#[test]
fn a_write_that_needs_bytes_does_nothing_until_it_has_them() {
    let mut store = store();
    put(&mut store, "k", 1);
    let version = store.version("k");
    let append = Command::Append { key: b"k", value: b"y", bytes_max: 1 << 20 };
    let of_this_length = vec![b'y'; VALUE.len()];
    let comparison = Comparison::Equal(&of_this_length);
    for command in [
        append,
        Command::SetRange { key: b"k", offset: 0, value: b"y" },
        Command::GetDelete { key: b"k" },
        Command::GetExpire { key: b"k", expiry: Expiry::Keep },
        Command::DeleteIf { key: b"k", comparison },
    ] {
        assert_eq!(needed(&mut store, &command), [1], "{command:?}");
    }
    assert_eq!(
        supplied(&mut store, 1, &Command::GetExpire { key: b"k", expiry: Expiry::Keep }).len(),
        10_002
    );
    assert_eq!(store.version("k"), version, "a client that watches the key sees no change");
    assert_eq!(changes(&mut store.table), [(1, false)], "the value is an ordinary one");
    assert_eq!(store.apply(&append), "10001");
}

/// The reply to a write that is supplied with the value of "k".
fn supplied(store: &mut Store, counter: u64, command: &Command<'_>) -> String {
    with_value(counter, command, |supplied| store.apply(supplied))
}

/// Calls `use_it` with a write that is supplied with the value of "k".
fn with_value<R>(counter: u64, command: &Command<'_>, use_it: impl FnOnce(&Command<'_>) -> R) -> R {
    let (mut encoded, mut scratch) = (Vec::new(), Vec::new());
    command.encode(&mut encoded);
    let values = [(&b"k"[..], reference(counter), VALUE)];
    use_it(&Command::Supplied(Supplied::build(values, &encoded, &mut scratch).unwrap()))
}

#[test]
fn a_value_that_has_been_overwritten_since_is_not_put_back() {
    let mut store = store();
    put(&mut store, "k", 1);
    put(&mut store, "k", 2);
    let append = Command::Append { key: b"k", value: b"y", bytes_max: 1 << 20 };
    assert_eq!(with_value(1, &append, |supplied| needed(&mut store, supplied)), [2]);
    assert_eq!(answered(&mut store, &Command::Get { key: b"k" })[0].reference.id, id(2));
    assert_eq!(supplied(&mut store, 2, &append), "10001");
}

#[test]
fn a_transaction_needs_every_value_that_it_may_touch() {
    let mut store = store();
    put(&mut store, "k", 1);
    put(&mut store, "l", 2);
    let mut draft = Draft::default();
    draft.push(&Command::Rename { from: b"k", to: b"m", if_absent: false });
    assert!(!draft.push(&set_coded(b"k", &reference(3).encoded())), "no client can send it");
    assert_eq!(store.apply(&Command::Transaction(draft.transaction())), "[OK]", "needs no bytes");
    draft.push(&Command::Append { key: b"m", value: b"y", bytes_max: 1 << 20 });
    draft.push(&Command::Get { key: b"l" });
    assert_eq!(needed(&mut store, &Command::Transaction(draft.transaction())), [2, 1], "of l and of m");
}

#[test]
fn a_script_gets_the_values_of_all_declared_keys_before_it_runs() {
    let mut store = store();
    put(&mut store, "k", 1);
    put(&mut store, "l", 2);
    for writes in [true, false] {
        let mut scratch = Vec::new();
        let keys = [&b"l"[..], b"k", b"absent"];
        let script =
            Script::build(&mut scratch, b"return 1", keys, keys.len(), SCRIPT_LIMITS, writes).unwrap();
        let mut out = ReplyBuffer::new();
        if writes {
            assert_eq!(needed(&mut store, &Command::Script(script)), [1, 2]);
            assert!(Command::Script(script).may_need_bytes());
        } else {
            store.table.read(&Command::Script(script), store.time, &mut out);
            assert_eq!(unfinished(&out).2.len(), 2);
        }
    }
}

#[test]
fn a_script_cannot_use_an_undeclared_value_that_is_not_in_memory() {
    let mut store = store();
    store.table.set_interpreter(&super::scripts::Lines);
    put(&mut store, "k", 1);
    store.set("l", "v");
    let text = "GET k\nSET k w\nGET l\nRENAME l k";
    let answer = "not in memory k, not in memory k, v, not in memory k";
    assert_eq!(store.eval_in(text, &[], &[""], true), answer);
}

#[test]
fn a_fenced_command_that_needs_bytes_is_repeated_with_its_fence() {
    let mut store = store();
    put(&mut store, "k", 1);
    let acquire = LockCommand::Acquire { name: b"lock", owner: b"me", hold: Hold::Lease(1000), waiter: None };
    let token = store.apply(&Command::Lock(acquire)).parse().unwrap();
    let set = Command::SetIf {
        key: b"k",
        value: b"w",
        expiry: Expiry::Clear,
        comparison: Comparison::Equal(VALUE),
        answer: SetAnswer::Status,
    };
    let mut scratch = Vec::new();
    let fenced = Command::Fenced(Fenced::build(b"lock", token, &set, &mut scratch).unwrap());
    let (mut out, mut encoded) = (ReplyBuffer::new(), Vec::new());
    fenced.encode(&mut encoded);
    store.offset += 1;
    store.table.apply(&fenced, store.offset, store.time, &mut out);
    assert_eq!(unfinished(&out).1, encoded, "the token is checked when the command takes effect");
}

#[test]
fn putting_bytes_in_place_does_not_change_a_watched_key() {
    let mut store = store();
    put(&mut store, "k", 1);
    let (version, floor) = (store.version("k"), store.table.version_floor());
    let mut draft = Draft::default();
    draft.watch(0, Watched { key: b"k", version, floor });
    draft.push(&Command::Length { key: b"k" });
    draft.push(&Command::Append { key: b"k", value: b"y", bytes_max: 1 << 20 });
    assert_eq!(supplied(&mut store, 1, &Command::Transaction(draft.transaction())), "[10000 10001]");
}

#[test]
fn the_first_and_the_last_reference_to_fragments_are_reported() {
    let mut store = store();
    put(&mut store, "k", 1);
    assert_eq!(changes(&mut store.table), [(1, true)]);
    store.apply(&Command::Copy { from: b"k", to: b"l", replace: false });
    store.delete("k");
    assert_eq!(changes(&mut store.table), [], "l refers to it");
    store.apply(&Command::Rename { from: b"l", to: b"m", if_absent: false });
    assert_eq!(changes(&mut store.table), [(1, true)], "the last reference was dropped, and a new one made");
    store.set("m", "plain");
    assert_eq!(changes(&mut store.table), [(1, false)], "a plain value has taken its place");
    put(&mut store, "m", 2);
    put(&mut store, "m", 3);
    assert_eq!(changes(&mut store.table), [(2, false), (3, true)]);
    let deadline = Deadline::In(-1);
    store.apply(&Command::Expire { key: b"m", deadline, condition: ExpireCondition::Always });
    assert_eq!(changes(&mut store.table), [(3, false)]);
    put(&mut store, "m", 4);
    store.apply(&Command::Clear {});
    assert_eq!(changes(&mut store.table), [(4, false)]);
    assert_eq!(store.table.references().count(), 0);
}

#[test]
fn a_value_that_is_not_stored_is_reported_as_never_to_be_stored() {
    let mut store = store();
    store.set("k", "v");
    let encoded = reference(1).encoded();
    let (expiry, condition, answer) = (Expiry::Clear, Condition::IfAbsent, SetAnswer::Status);
    let (key, reference, membership) = (b"k", &encoded, MEMBERSHIP);
    let set = Command::SetCoded { key, reference, membership, expiry, condition, answer };
    assert_eq!(store.apply(&set), "nil");
    assert_eq!(changes(&mut store.table), [(1, false)]);
}

#[test]
fn a_value_stored_by_another_membership_is_refused() {
    let mut store = store();
    store.table.set_membership(MEMBERSHIP + 1);
    assert!(put(&mut store, "k", 1).starts_with("!RECONFIGURED"));
    assert_eq!(store.read(&Command::Size {}), "0");
}

#[test]
fn a_given_up_value_is_refused_on_every_replica_forever() {
    let mut one = store();
    put(&mut one, "early", 5);
    assert_eq!(one.apply(&Command::Abandon { coordinator: id(9).coordinator, counter: 9 }), "OK");
    let answer = one.table.take_coded_changes().unwrap();
    let abandoned = [(id(9).coordinator, 9)].into();
    assert_eq!(answer, CodedChanges { values: [id(5)].into(), abandoned });
    let mut chunk = Vec::new();
    let snapshot = one.table.begin_snapshot();
    assert!(!one.table.snapshot_chunk(snapshot, 1 << 20, &mut chunk));
    let mut other = store();
    other.table.install(&chunk).unwrap();
    other.table.set_version_floor(one.table.version_floor());
    other.offset = one.offset;
    assert_eq!(one.table.digest(), other.table.digest());
    for store in [&mut one, &mut other] {
        assert!(put(store, "late", 9).starts_with("!ABANDONED"));
        assert_eq!(put(store, "newer", 10), "OK");
        assert!(store.table.reference(id(5)).is_some(), "a value stored before stays");
    }
    assert_eq!(one.table.digest(), other.table.digest());
}

#[test]
fn a_plain_update_does_not_overlook_a_reference() {
    let mut store = store();
    // As long as its reference, so that it would fit in place.
    let plain = [b'v'; REFERENCE_BYTES];
    put(&mut store, "k", 1);
    assert_eq!(store.apply(&plain_set(b"k", &plain)), "OK");
    assert_eq!(changes(&mut store.table), [(1, false)]);
    assert_eq!(store.read(&Command::Length { key: b"k" }), REFERENCE_BYTES.to_string());
}

#[test]
fn an_empty_range_returns_the_length_of_a_value_that_is_not_here() {
    let mut store = store();
    put(&mut store, "k", 1);
    assert_eq!(store.apply(&Command::SetRange { key: b"k", offset: 5, value: b"" }), "10000");
}

//! Replies of commands on bits and sketches, and of `SORT`. `../bits.rs` has the properties of single fields.

use super::spill::{BYTES_MIN, Replica};
use super::*;
use crate::command::{
    BitOperation, BytesCommand, CommonAnswer, FieldAction, FieldOperation, ListCommand, Overflow,
    SortCommand, SortOptions,
};

fn ask(store: &mut Store, command: BytesCommand<'_>) -> String {
    let command = Command::OnBytes(command);
    if command.is_write() { store.apply(&command) } else { store.read(&command) }
}

fn field(action: FieldAction, bits: u8, offset: u64, operand: i64) -> FieldOperation {
    FieldOperation { action, is_signed: false, bits, overflow: Overflow::Fail, offset, operand }
}

#[test]
fn bits_are_set_and_read() {
    let (mut store, key) = (Store::new(), &b"k"[..]);
    let whole = BytesCommand::CountBits { key, start: 0, end: -1, in_bits: false };
    let zero = |end| BytesCommand::FindBit { key, bit: false, start: 0, end, in_bits: false };
    let one = BytesCommand::FindBit { key, bit: true, start: 0, end: None, in_bits: false };
    assert_eq!([whole, zero(None), zero(Some(-1)), one].map(|it| ask(&mut store, it)), ["0", "0", "0", "-1"]);
    assert_eq!(ask(&mut store, BytesCommand::SetBit { key, offset: 9, bit: true }), "0");
    assert_eq!(ask(&mut store, BytesCommand::SetBit { key, offset: 9, bit: true }), "1");
    store.play("STRLEN k -> 2\nGET k -> \"\\x00@\"\nENCODING k -> \"raw\"\nEXPIRE k EX 5 -> 1");
    assert_eq!(ask(&mut store, BytesCommand::SetBit { key, offset: 100, bit: false }), "0");
    store.play("STRLEN k -> 13\nTTL k -> 5");
    assert_eq!(ask(&mut store, BytesCommand::GetBit { key, offset: 9 }), "1");
    assert_eq!(ask(&mut store, BytesCommand::GetBit { key, offset: u64::MAX }), "0");
    assert_eq!([whole, one].map(|it| ask(&mut store, it)), ["1", "9"]);
    store.apply(&plain_set(key, &[0xff; 3]));
    assert_eq!([zero(None), zero(Some(-1))].map(|it| ask(&mut store, it)), ["24", "-1"]);
    // Both positions are the first byte, since the value has one byte; BITCOUNT finds that the end is before the start.
    store.apply(&plain_set(key, &[0b1000]));
    let (start, end) = (-1, -5);
    let find = BytesCommand::FindBit { key, bit: true, start, end: Some(end), in_bits: false };
    let count = BytesCommand::CountBits { key, start, end, in_bits: false };
    assert_eq!([find, count].map(|it| ask(&mut store, it)), ["4", "0"]);
    store.play("SADD s a -> 1");
    for command in [
        BytesCommand::GetBit { key: b"s", offset: 1 },
        BytesCommand::SetBit { key: b"s", offset: 1, bit: true },
        BytesCommand::Count { key: b"s", elements: List::build(&mut Vec::new(), []) },
    ] {
        assert!(ask(&mut store, command).starts_with("!WRONGTYPE"));
    }
}

#[test]
fn bitop_combines_strings() {
    let mut store = Store::new();
    store.apply(&plain_set(b"a", &[0b1100, 0xff]));
    store.apply(&plain_set(b"b", &[0b1010]));
    let mut combined = |operation, keys: &[&[u8]]| {
        let mut scratch = Vec::new();
        let keys = List::build(&mut scratch, keys.iter().copied());
        let length = ask(&mut store, BytesCommand::Combine { operation, to: b"to", keys });
        (length, store.table.register(b"to").value.to_vec())
    };
    let both: [&[u8]; 2] = [b"a", b"b"];
    assert_eq!(combined(BitOperation::And, &both), ("2".into(), vec![0b1000, 0]));
    assert_eq!(combined(BitOperation::Or, &both), ("2".into(), vec![0b1110, 0xff]));
    assert_eq!(combined(BitOperation::Xor, &both), ("2".into(), vec![0b0110, 0xff]));
    assert_eq!(combined(BitOperation::Not, &[b"b"]), ("1".into(), vec![0b1111_0101]));
    assert_eq!(combined(BitOperation::And, &[b"a", b"no"]), ("2".into(), vec![0, 0]));
    assert_eq!(combined(BitOperation::Diff, &both), ("2".into(), vec![0b0100, 0xff]));
    assert_eq!(combined(BitOperation::OthersOnly, &both), ("2".into(), vec![0b0010, 0]));
    assert_eq!(combined(BitOperation::AndOr, &both), ("2".into(), vec![0b1000, 0]));
    assert_eq!(combined(BitOperation::AndOr, &[b"b", b"no", b"a"]), ("2".into(), vec![0b1000, 0]));
    assert_eq!(combined(BitOperation::One, &both), ("2".into(), vec![0b0110, 0xff]));
    assert_eq!(combined(BitOperation::One, &[b"a", b"b", b"a"]), ("2".into(), vec![0b0010, 0]));
    assert_eq!(combined(BitOperation::Or, &[b"no"]).0, "0");
    store.play("EXISTS to -> 0");
}

#[test]
fn fields_of_bits_are_changed_in_order() {
    let (mut store, key, mut scratch) = (Store::new(), &b"k"[..], Vec::new());
    let operations = [
        field(FieldAction::Set, 8, 4, 200),
        field(FieldAction::Increment, 8, 4, 55),
        field(FieldAction::Increment, 8, 4, 1),
        field(FieldAction::Get, 4, 0, 0),
        field(FieldAction::Get, 8, 4, 0),
        field(FieldAction::Get, 8, 1000, 0),
    ];
    let encoded = operations.map(|operation| operation.encoded());
    let operations = List::build(&mut scratch, encoded.iter().map(|item| &item[..]));
    assert_eq!(ask(&mut store, BytesCommand::ChangeFields { key, operations }), "[0 255 nil 0 255 0]");
    store.play("STRLEN k -> 2");
    let mut scratch = Vec::new();
    let operations = List::build(&mut scratch, [&encoded[4][..]]);
    assert_eq!(ask(&mut store, BytesCommand::ReadFields { key, operations }), "[255]");
}

#[test]
fn sketches_count_elements() {
    let (mut store, mut scratch) = (Store::new(), Vec::new());
    let mut count = |store: &mut Store, key: &[u8], elements: &[&[u8]]| {
        let elements = List::build(&mut scratch, elements.iter().copied());
        ask(store, BytesCommand::Count { key, elements })
    };
    assert_eq!(count(&mut store, b"a", &[]), "1", "an empty sketch is made");
    assert_eq!(count(&mut store, b"a", &[]), "0");
    assert_eq!(count(&mut store, b"a", &[b"x", b"y", b"z"]), "1");
    assert_eq!(count(&mut store, b"a", &[b"x", b"y"]), "0");
    assert_eq!(count(&mut store, b"b", &[b"z", b"w"]), "1");
    let estimate = |store: &mut Store, keys: &[&[u8]]| {
        let mut scratch = Vec::new();
        let keys = List::build(&mut scratch, keys.iter().copied());
        ask(store, BytesCommand::Estimate { keys })
    };
    assert_eq!(estimate(&mut store, &[b"a"]), "3");
    assert_eq!(estimate(&mut store, &[b"a", b"b", b"no"]), "4");
    assert_eq!(estimate(&mut store, &[b"no"]), "0");
    let mut scratch = Vec::new();
    let keys = List::build(&mut scratch, [&b"a"[..], b"no"]);
    assert_eq!(ask(&mut store, BytesCommand::Merge { to: b"b", keys }), "OK");
    assert_eq!(estimate(&mut store, &[b"b"]), "4");
    store.set("text", "HYLL");
    assert_eq!(estimate(&mut store, &[b"text"]), "!WRONGTYPE Key is not a valid HyperLogLog string value.");
}

/// `sketch.hll` is the value that redis-server 7.0.15 stores after `PFADD k a b c d e f`.
#[test]
fn sketches_have_the_same_bytes_as_in_redis() {
    let mut store = Store::new();
    let mut scratch = Vec::new();
    let elements = List::build(&mut scratch, [&b"a"[..], b"b", b"c", b"d", b"e", b"f"]);
    ask(&mut store, BytesCommand::Count { key: b"k", elements });
    let theirs = include_bytes!("sketch.hll");
    assert_eq!(
        store.table.register(b"k").value.escape_ascii().to_string(),
        theirs.escape_ascii().to_string()
    );
}

/// Commands on values that are not in memory are supplied with the bytes, and changed values are spilled again.
#[test]
fn commands_are_supplied_with_bytes_that_are_not_in_the_table() {
    let mut replica = Replica::new(1);
    let (long, key) = (vec![b'a'; BYTES_MIN * 2], &b"k"[..]);
    replica.apply(&plain_set(key, &long), 1, 0);
    replica.apply(&plain_set(b"l", &long), 2, 0);
    assert_eq!(replica.kept.len(), 2);
    let ones = (long.len() * 3).to_string();
    let mut offset = 2;
    let mut ask = |replica: &mut Replica, command: BytesCommand<'_>| {
        offset += 1;
        replica.ask(&Command::OnBytes(command), offset, 0)
    };
    let count = BytesCommand::CountBits { key, start: 0, end: -1, in_bits: false };
    assert_eq!(ask(&mut replica, count), ones);
    assert_eq!(ask(&mut replica, BytesCommand::SetBit { key, offset: 0, bit: true }), "0");
    assert_eq!(ask(&mut replica, BytesCommand::GetBit { key, offset: 0 }), "1");
    let mut scratch = Vec::new();
    let keys = List::build(&mut scratch, [key, b"l"]);
    let combine = BytesCommand::Combine { operation: BitOperation::Xor, to: b"to", keys };
    assert_eq!(ask(&mut replica, combine), long.len().to_string());
    assert_eq!(
        ask(&mut replica, BytesCommand::CountBits { key: b"to", start: 0, end: -1, in_bits: true }),
        "1"
    );
    assert_eq!(replica.kept.len(), 3, "all values are kept elsewhere");
    // Also in a transaction that only reads.
    let mut draft = crate::command::Draft::default();
    draft.push(&Command::OnBytes(count));
    draft.push(&Command::Length { key });
    let answer = replica.ask(&Command::Transaction(draft.transaction()), 99, 0);
    assert_eq!(answer, format!("[{} {}]", long.len() * 3 + 1, long.len()));
}

fn sort(store: &mut Store, key: &[u8], to: Option<&[u8]>, options: SortOptions<'_>) -> String {
    let mut bytes = Vec::new();
    options.encode(&mut bytes);
    match to {
        Some(to) => store.apply(&Command::Sort(SortCommand::Store { key, to, options: &bytes })),
        None => store.read(&Command::Sort(SortCommand::Read { key, options: &bytes })),
    }
}

#[test]
fn items_are_sorted_by_value_or_by_the_values_of_keys() {
    let (mut store, mut scratch) = (Store::new(), Vec::new());
    store.play(
        r#"
        RPUSH l 3 10 -2.5 1     -> 4
        MSET w_3 1 w_10 4 w_1 3 -> OK
        HSET h_3 f x            -> 1
        ZADD z 1 c 2 b 3 a      -> 3
        SADD s b a              -> 2
        RPUSH t x 1             -> 2
        SET string v            -> OK
    "#,
    );
    let none = List::build(&mut scratch, []);
    let plain = SortOptions { by: None, gets: none, limit: (0, -1), is_reverse: false, by_text: false };
    assert_eq!(sort(&mut store, b"l", None, plain), r#"["-2.5" "1" "3" "10"]"#);
    let options = SortOptions { is_reverse: true, limit: (1, 2), ..plain };
    assert_eq!(sort(&mut store, b"l", None, options), r#"["3" "1"]"#);
    let options = SortOptions { by_text: true, ..plain };
    assert_eq!(sort(&mut store, b"l", None, options), r#"["-2.5" "1" "10" "3"]"#);
    let options = SortOptions { by: Some(b"w_*"), ..plain };
    assert_eq!(sort(&mut store, b"l", None, options), r#"["-2.5" "3" "1" "10"]"#);
    let mut scratch = Vec::new();
    let gets = List::build(&mut scratch, [&b"#"[..], b"w_*", b"h_*->f", b"none"]);
    let options = SortOptions { by: Some(b"nosort"), gets, limit: (0, 1), ..plain };
    assert_eq!(sort(&mut store, b"l", None, options), r#"["3" "1" "x" nil]"#);
    assert_eq!(sort(&mut store, b"l", Some(b"to"), options), "4");
    store.play(r#"LRANGE to 0 -1 -> ["3" "1" "x" ""]"#);
    let options = SortOptions { by: Some(b"nosort"), is_reverse: true, ..plain };
    assert_eq!(sort(&mut store, b"z", None, options), r#"["a" "b" "c"]"#);
    assert_eq!(sort(&mut store, b"s", Some(b"to"), SortOptions { is_reverse: false, ..options }), "2");
    store.play(r#"LRANGE to 0 -1 -> ["a" "b"]"#);
    assert_eq!(sort(&mut store, b"no", Some(b"to"), plain), "0");
    store.play("EXISTS to -> 0");
    assert_eq!(sort(&mut store, b"no", None, plain), "[]");
    let error = r"!ERR One or more scores can\'t be converted into double";
    assert_eq!(sort(&mut store, b"t", None, plain), error);
    assert!(sort(&mut store, b"string", None, plain).starts_with("!WRONGTYPE"));
}

/// Replicas decide alike, because the limit applies to the content of keys.
#[test]
fn a_command_that_would_take_too_long_in_one_step_is_refused() {
    let (mut store, mut scratch) = (Store::new(), Vec::new());
    let long = vec![b'a'; 11_000];
    store.apply(&plain_set(b"a", &long));
    let common = BytesCommand::Common { first: b"a", second: b"a", answer: CommonAnswer::Length, least: 0 };
    assert!(ask(&mut store, common).starts_with("!ERR LCS would look at 484000000 bytes"));
    let element = vec![b'1'; 1 << 20];
    let elements = List::build(&mut scratch, std::iter::repeat_n(&element[..], 7));
    let (at_front, if_present) = (false, false);
    store.apply(&Command::OnList(ListCommand::Push { key: b"l", elements, at_front, if_present }));
    let mut scratch = Vec::new();
    let gets = List::build(&mut scratch, []);
    let options = SortOptions { by: None, gets, limit: (0, -1), is_reverse: false, by_text: true };
    let (before, refused) = (store.version("a"), sort(&mut store, b"l", Some(b"a"), options));
    assert!(refused.starts_with("!ERR SORT would look at"), "{refused}");
    assert_eq!(store.version("a"), before, "nothing was done");
    store.play("LTRIM l 0 2 -> OK");
    assert_eq!(sort(&mut store, b"l", Some(b"a"), options), "3");
}

#[test]
fn lcs_refuses_keys_that_are_not_strings() {
    let mut store = Store::new();
    store.play("SET a ohmytext -> OK\nSET b mynewtext -> OK\nHSET h a 1 -> 1");
    let common = |answer, least| BytesCommand::Common { first: b"a", second: b"b", answer, least };
    use CommonAnswer::*;
    assert_eq!(ask(&mut store, common(Text, 0)), "\"mytext\"");
    assert_eq!(ask(&mut store, common(Length, 0)), "6");
    assert_eq!(ask(&mut store, common(Ranges, 0)), r#"{"matches"=[[[4 7] [5 8]] [[2 3] [0 1]]] "len"=6}"#);
    assert_eq!(ask(&mut store, common(RangesWithLengths, 4)), r#"{"matches"=[[[4 7] [5 8] 4]] "len"=6}"#);
    let wrong = BytesCommand::Common { first: b"a", second: b"h", answer: Text, least: 0 };
    assert_eq!(ask(&mut store, wrong), "!ERR The specified keys must contain string values");
}

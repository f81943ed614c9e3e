//! Records with a bound on what they may add to memory.

use super::script::{parse, word};
use super::*;
use crate::command::{Bounded, Draft, ListCommand, RestoreOptions, SortCommand, SortOptions};

const OOM: &str = "!OOM command not allowed when used memory > \\'maxmemory\\'.";

/// A list of elements that are compressed: each expands to 264 bytes, from eleven.
fn compressed_list(count: usize) -> Vec<u8> {
    let mut payload = vec![18];
    rdb::write::put_length(count as u64, &mut payload);
    for _ in 0..count {
        payload.extend_from_slice(&[1, 0xc3, 5, 0x41, 0x09, 0, b'z', 0xe0, 0xff, 0]);
    }
    rdb::payload::close(rdb::payload::VERSION, 0, &mut payload);
    payload
}

impl Store {
    fn apply_within(&mut self, bound: u64, command: &Command<'_>) -> String {
        let mut bytes = Vec::new();
        let bounded = Bounded::build(bound, command, &mut bytes).expect("a write without a bound");
        self.apply(&Command::Bounded(bounded))
    }

    fn line_within(&mut self, bound: u64, line: &str) -> String {
        let words: Vec<Vec<u8>> = line.split_whitespace().map(word).collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        self.apply_within(bound, &parse(&words, &mut Vec::new()))
    }
}

#[test]
fn a_command_beyond_its_bound_is_refused_and_changes_nothing() {
    let mut store = Store::new();
    store.set("large", &"v".repeat(100_000));
    let digest = store.table.memory_bytes();
    assert_eq!(store.line_within(50_000, "COPY large copy"), OOM);
    assert_eq!(store.line_within(50_000, "SETRANGE pad 100000 x"), OOM);
    assert_eq!((store.table.memory_bytes(), store.table.charged_bytes()), (digest, 0));
    assert_eq!(store.line_within(150_000, "COPY large copy"), "1");
    let charged = store.table.charged_bytes();
    assert!((100_000..150_000).contains(&charged), "{charged}");
    // Without a bound nothing is charged.
    store.set("other", &"v".repeat(100_000));
    assert_eq!(store.table.charged_bytes(), charged);
}

#[test]
fn the_commands_of_a_transaction_share_its_bound() {
    let mut store = Store::new();
    let mut draft = Draft::default();
    // What the second adds depends on what the first stores, so it was not known when both were ordered.
    for line in ["SETRANGE a 40000 x", "COPY a b", "COPY a c", "SET d v"] {
        let words: Vec<Vec<u8>> = line.split_whitespace().map(word).collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        assert!(draft.push(&parse(&words, &mut Vec::new())));
    }
    let transaction = Command::Transaction(draft.transaction());
    let reply = store.apply_within(140_000, &transaction);
    assert_eq!(reply, format!("[40001 1 {OOM} OK]"));
}

#[test]
fn what_a_payload_expands_to_is_charged_before_it_is_expanded() {
    let mut store = Store::new();
    let payload = compressed_list(1000);
    let restore =
        Command::Restore { key: b"l", payload: &payload, deadline: None, options: RestoreOptions::default() };
    let charge = restore.charge_bytes(&store.table.sizes(store.time));
    assert!(charge > 264_000 && charge < 1_500_000, "{charge} for {} bytes", payload.len());
    assert_eq!(store.apply_within(200_000, &restore), OOM);
    assert_eq!(store.apply_within(charge, &restore), "OK");
    let mut draft = Draft::default();
    for key in [b"a", b"b", b"c"] {
        let restore =
            Command::Restore { key, payload: &payload, deadline: None, options: RestoreOptions::default() };
        assert!(draft.push(&restore));
    }
    let transaction = Command::Transaction(draft.transaction());
    let reply = store.apply_within(2 * charge + 1000, &transaction);
    assert_eq!(reply, format!("[OK OK {OOM}]"));
}

#[test]
fn values_that_sort_looks_up_are_charged() {
    let mut store = Store::new();
    store.set("v1", &"v".repeat(10_000));
    let mut scratch = Vec::new();
    let elements = List::build(&mut scratch, [&b"1"[..]; 10]);
    let push = ListCommand::Push { key: b"l", elements, at_front: false, if_present: false };
    assert_eq!(store.apply(&Command::OnList(push)), "10");
    let (mut scratch, mut bytes) = (Vec::new(), Vec::new());
    let gets = List::build(&mut scratch, [&b"v*"[..]]);
    let options =
        SortOptions { by: Some(b"nosort"), gets, limit: (-1, -1), is_reverse: false, by_text: false };
    options.encode(&mut bytes);
    let sort = Command::Sort(SortCommand::Store { key: b"l", to: b"to", options: &bytes });
    assert_eq!(store.apply_within(100_000, &sort), OOM);
    assert_eq!(store.apply_within(300_000, &sort), "10");
}

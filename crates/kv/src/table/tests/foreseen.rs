//! Answers that are known, unless a key is missing or holds another kind of value.

use super::*;
use crate::command::{Answer, Foreseen, Kinds, ListCommand, Looked, StreamCommand};

/// A table with a string, a list, and a stream with a group.
fn store() -> Store {
    let mut store = Store::new();
    store.set("string", "v");
    let mut scratch = Vec::new();
    let elements = List::build(&mut scratch, [&b"e"[..]]);
    let push = ListCommand::Push { key: b"list", elements, at_front: true, if_present: false };
    store.apply(&Command::OnList(push));
    let group = StreamCommand::CreateGroup {
        key: b"stream",
        group: b"g",
        id: b"0",
        entries_read: -1,
        makes_stream: true,
    };
    assert_eq!(store.apply(&Command::OnStream(group)), "OK");
    store
}

/// What the table answers for these keys if the answer is an error.
fn answer(store: &mut Store, looked: Looked<'_>, keys: &[&str]) -> String {
    let mut scratch = Vec::new();
    let keys = keys.iter().map(|key| key.as_bytes());
    let foreseen = Foreseen::build(&mut scratch, Answer::Error(b"ERR wrong"), looked, keys);
    let command = Command::Foreseen(foreseen);
    let mut encoded = Vec::new();
    command.encode(&mut encoded);
    assert_eq!(Command::decode(&mut Reader::new(&encoded)), Ok(command));
    assert!(!command.is_write() && !command.may_grow());
    store.read(&command)
}

const WRONG_KIND: &str = "!WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn a_missing_key_and_another_kind_of_value_come_before_the_answer() {
    let mut store = store();
    let of_lists = Looked { kinds: Kinds::LIST, other: None, missing: Some(Answer::Null), group: None };
    assert_eq!(answer(&mut store, of_lists, &["list"]), "!ERR wrong");
    assert_eq!(answer(&mut store, of_lists, &["string"]), WRONG_KIND);
    assert_eq!(answer(&mut store, of_lists, &["nosuch"]), "nil");
    let answers = [
        (Answer::Integer(-1), "-1"),
        (Answer::EmptyScan, "[\"0\" []]"),
        (Answer::Error(b"ERR no such key"), "!ERR no such key"),
    ];
    for (missing, expected) in answers {
        let looked = Looked { missing: Some(missing), ..of_lists };
        assert_eq!(answer(&mut store, looked, &["nosuch"]), expected);
    }
}

#[test]
fn several_keys_are_looked_at_in_their_order() {
    let mut store = store();
    let both = Looked { kinds: Kinds::LIST.or(Kinds::STRING), other: None, missing: None, group: None };
    assert_eq!(answer(&mut store, both, &["list", "nosuch", "string"]), "!ERR wrong");
    assert_eq!(answer(&mut store, both, &["list", "nosuch", "stream"]), WRONG_KIND);
    let other = Looked { other: Some("ERR only these"), ..both };
    assert_eq!(answer(&mut store, other, &["nosuch", "stream"]), "!ERR only these");
}

#[test]
fn a_key_has_expired_from_its_deadline_on() {
    let mut store = store();
    let deadline = crate::Deadline::In(10);
    let condition = crate::command::ExpireCondition::Always;
    store.apply(&Command::Expire { key: b"list", deadline, condition });
    let looked = Looked { kinds: Kinds::STRING, other: None, missing: Some(Answer::Null), group: None };
    assert_eq!(answer(&mut store, looked, &["list"]), WRONG_KIND);
    store.time += 10;
    assert_eq!(answer(&mut store, looked, &["list"]), "nil");
}

#[test]
fn a_stream_must_have_the_group() {
    let mut store = store();
    let of = |group| Looked { kinds: Kinds::STREAM, other: None, missing: None, group: Some(group) };
    assert_eq!(answer(&mut store, of(b"g"), &["stream"]), "!ERR wrong");
    for (key, group) in [("stream", "h"), ("nosuch", "g"), ("stream", "")] {
        let expected = format!("!NOGROUP No such key \\'{key}\\' or consumer group \\'{group}\\'");
        assert_eq!(answer(&mut store, of(group.as_bytes()), &[key]), expected);
    }
    assert_eq!(answer(&mut store, of(b"g"), &["string"]), WRONG_KIND);
}

#[test]
fn an_answer_that_cannot_be_read_is_malformed() {
    let mut scratch = Vec::new();
    let looked = Looked { kinds: Kinds::LIST, other: None, missing: None, group: None };
    let foreseen = Foreseen::build(&mut scratch, Answer::Integer(7), looked, [&b"k"[..]].into_iter());
    let mut encoded = Vec::new();
    Command::Foreseen(foreseen).encode(&mut encoded);
    let at = encoded.windows(2).position(|bytes| bytes == b":7").expect("the answer is in it");
    for (first, is_read) in [(b':', true), (b'-', true), (b'?', false)] {
        encoded[at] = first;
        assert_eq!(Command::decode(&mut Reader::new(&encoded)).is_ok(), is_read);
    }
    encoded[at..at + 2].copy_from_slice(b":x");
    assert!(Command::decode(&mut Reader::new(&encoded)).is_err());
}

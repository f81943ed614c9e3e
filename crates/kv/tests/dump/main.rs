//! `DUMP` and `RESTORE`.

#![allow(clippy::unwrap_used, missing_docs)]

mod body;

use body::{applied, dumped, restored};
use kv::codec::Reader;
use kv::{Command, Deadline, Reply, RestoreOptions, Table};
use proptest::collection::vec;
use proptest::prelude::*;

fn error(reply: &[u8]) -> String {
    match Reply::decode(&mut Reader::new(reply)) {
        Ok(Reply::Error(text)) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("{other:?} is no error"),
    }
}

fn restore<'a>(payload: &'a [u8], deadline: Option<Deadline>, replaces: bool) -> Command<'a> {
    Command::Restore { key: b"k", payload, deadline, options: RestoreOptions { replaces, used: None } }
}

fn time_left(table: &mut Table) -> i64 {
    let unit = kv::command::ExpiryUnit::MillisecondsLeft;
    let reply = applied(table, &Command::TimeToLive { key: b"k", unit });
    match Reply::decode(&mut Reader::new(&reply)) {
        Ok(Reply::Integer(number)) => number,
        other => panic!("{other:?}"),
    }
}

/// A payload with a type's number and a value.
fn payload(bytes: &[u8]) -> Vec<u8> {
    let mut payload = bytes.to_vec();
    rdb::payload::close(10, 0, &mut payload);
    payload
}

#[test]
fn an_existing_key_stays_unless_replace_is_given() {
    let mut table = Table::new(1);
    let (one, other) = (payload(b"\0\x03one"), payload(b"\0\x05other"));
    assert!(restored(&mut table, b"k", &one));
    let refusal = error(&applied(&mut table, &restore(&other, None, false)));
    assert_eq!(refusal, "BUSYKEY Target key name already exists.");
    assert_eq!(dumped(&mut table, b"k").unwrap(), one);
    applied(&mut table, &restore(&other, Some(Deadline::In(500)), true));
    assert_eq!((dumped(&mut table, b"k").unwrap(), time_left(&mut table)), (other.clone(), 500));
    applied(&mut table, &restore(&one, Some(Deadline::At(1_000_200)), true));
    assert_eq!(time_left(&mut table), 200);
    applied(&mut table, &restore(&one, Some(Deadline::At(999_999)), true));
    assert_eq!(dumped(&mut table, b"k"), None, "it has expired already");
}

#[test]
fn a_restored_collection_has_its_deadline() {
    let mut table = Table::new(1);
    let many: Vec<u8> = (0..4000_u32).flat_map(|at| [&b"\x04"[..], &at.to_be_bytes()].concat()).collect();
    let large = payload(&[&b"\x02\x4f\xa0"[..], &many].concat());
    for set in [payload(b"\x02\x01\x01m"), large] {
        applied(&mut table, &restore(&set, Some(Deadline::In(500)), true));
        assert_eq!(time_left(&mut table), 500);
    }
}

#[test]
fn invalid_values_are_refused_with_the_place() {
    let mut table = Table::new(1);
    let mut refusal = |payload: &[u8]| error(&applied(&mut table, &restore(payload, None, true)));
    assert_eq!(refusal(b""), "ERR DUMP payload version or checksum are wrong");
    let mut damaged = payload(b"\0\x03one");
    damaged[2] ^= 1;
    assert_eq!(refusal(&damaged), "ERR DUMP payload version or checksum are wrong");
    for (value, expected) in [
        (&b"\0\x04one"[..], "at byte 2: the bytes end early"),
        (b"\0\x02one", "at byte 4: bytes behind the value"),
        (b"\x02\x02\x01m\x01m", "at byte 6: a member or a field that is there twice"),
        (b"\x02\0", "at byte 1: a collection without items"),
        (b"\x07\0", "at byte 1: a value of a module"),
        (b"\x63\0", "at byte 0: type 99, which is not known"),
    ] {
        assert_eq!(refusal(&payload(value)), format!("ERR Bad data format: {expected}"));
    }
    let length = [&b"\x02\x80"[..], &1_000_001_u32.to_be_bytes()].concat();
    let many: Vec<u8> =
        (0..1_000_001_u32).flat_map(|at| [&b"\x04"[..], &at.to_be_bytes()].concat()).collect();
    assert!(refusal(&payload(&[length, many].concat())).contains("RESTORED_ITEMS_MAX"));
    // Two bytes of compressed data that claim half a gibibyte.
    let bomb = payload(b"\0\xc3\x02\x80\x20\0\0\0\0x");
    assert!(refusal(&bomb).contains("a compressed string that is too long"));
}

#[test]
fn fields_that_have_expired_are_left_out() {
    let mut table = Table::new(1);
    let fields = |first: u64| {
        let mut value = b"\x18".to_vec();
        value.extend_from_slice(&first.to_le_bytes());
        value.extend_from_slice(b"\x02\x01\x01a\x01v\x0b\x01b\x01w");
        rdb::payload::close(12, 0, &mut value);
        value
    };
    // The deadlines are 10 ms apart, and the time is 1,000,000.
    assert!(restored(&mut table, b"k", &fields(1_000_005)));
    assert_eq!(dumped(&mut table, b"k").unwrap(), fields(1_000_005));
    assert!(restored(&mut table, b"k", &fields(999_995)));
    let mut left = [&b"\x18"[..], &1_000_005_u64.to_le_bytes(), b"\x01\x01\x01b\x01w"].concat();
    rdb::payload::close(12, 0, &mut left);
    assert_eq!(dumped(&mut table, b"k").unwrap(), left);
    assert!(restored(&mut table, b"k", &fields(9)));
    assert_eq!(dumped(&mut table, b"k"), None);
}

proptest! {
    #[test]
    fn payloads_are_refused_or_valid(tag in 0..26_u8, version in 0..2_u8, rest in vec(any::<u8>(), 0..100)) {
        body::payload(&[&[version, tag][..], &rest].concat());
    }

    #[test]
    fn short_collections_are_refused_or_valid(tag in prop_oneof![Just(1_u8), Just(2), Just(4), Just(5)], count in 1..8_u8,
        words in vec((0..3_u8, 0..4_u8), 0..20)) {
        let words: Vec<u8> = words.iter().flat_map(|(length, byte)| {
            let text = vec![b'a' + byte; usize::from(*length)];
            [&[*length][..], &text].concat()
        }).collect();
        body::payload(&[&[0, tag, count][..], &words].concat());
    }
}

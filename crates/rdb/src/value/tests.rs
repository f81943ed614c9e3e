//! Values are read as they were written, and damage is found where it is.

use super::*;
use crate::payload;
use crate::write::{self, StreamHead, put_fixed_id, put_group, put_length, put_node, put_text, tag};
use proptest::collection::vec;
use proptest::prelude::*;

/// The parts of a payload, as text.
fn parts(payload: &[u8]) -> Result<Vec<String>, String> {
    let (form, mut source) = payload::open(payload).map_err(|refusal| format!("{refusal:?}"))?;
    source.limit_expansion(1 << 20);
    let mut found = Vec::new();
    let outcome = read(form, &mut source, &mut |part| {
        found.push(match part {
            Part::Entry(id, words) => {
                let words: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
                format!("{}-{} {}", id.ms, id.seq, words.join(" "))
            }
            part => format!("{part:?}"),
        });
        Ok::<(), Fault>(())
    });
    let behind = payload.len() as u64 - 10;
    match outcome {
        Ok(()) if source.at() == behind => Ok(found),
        Ok(()) => Err(format!("it ends at {} and not {behind}", source.at())),
        Err(fault) => Err(fault.to_string()),
    }
}

fn payload_of(tag: u8, version: u16, value: &[u8]) -> Vec<u8> {
    let mut payload = [&[tag][..], value].concat();
    payload::close(version, 0, &mut payload);
    payload
}

fn words(texts: &[&[u8]]) -> Words {
    let mut words = Words::default();
    texts.iter().for_each(|text| words.push(text));
    words
}

fn a_stream() -> Vec<u8> {
    let mut value = Vec::new();
    put_length(1, &mut value);
    let id = |ms, seq| Id { ms, seq };
    let long = [b'x'; 5000];
    let entries = [
        (id(5, 9), words(&[b"a", b"-1", b"b", b"4096"])),
        (id(5, 10), words(&[b"a", &long[..100], b"b", &long])),
        (id(7, 0), words(&[b"c", b"-9223372036854775808"])),
    ];
    put_node(&entries, &mut value);
    let head =
        StreamHead { length: 3, last: id(8, 1), first: id(5, 9), removed: id(8, 1), added: 4, groups: 1 };
    head.put(&mut value);
    put_group(b"g", id(5, 10), None, &mut value);
    put_length(1, &mut value);
    put_fixed_id(id(5, 9), &mut value);
    value.extend_from_slice(&77_u64.to_le_bytes());
    put_length(3, &mut value);
    put_length(1, &mut value);
    put_text(b"me", &mut value);
    value.extend_from_slice(&78_u64.to_le_bytes());
    put_length(1, &mut value);
    put_fixed_id(id(5, 9), &mut value);
    payload_of(tag::STREAM, payload::VERSION, &value)
}

#[test]
fn a_stream_is_read_as_it_was_written() {
    let found = parts(&a_stream()).unwrap();
    assert_eq!(found[0], "5-9 a -1 b 4096");
    assert_eq!(found[1], format!("5-10 a {} b {}", "x".repeat(100), "x".repeat(5000)));
    assert_eq!(found[2], "7-0 c -9223372036854775808");
    let rest = found[3..].join("\n");
    let expected =
        "Stream { last: Id { ms: 8, seq: 1 }, added: 4, removed: Id { ms: 8, seq: 1 }, has_counts: true }
Group { name: [103], last: Id { ms: 5, seq: 10 }, read: None }
Pending { id: Id { ms: 5, seq: 9 }, delivered_ms: 77, deliveries: 3 }
Consumer { name: [109, 101], seen_ms: 78 }
Owned(Id { ms: 5, seq: 9 })";
    assert_eq!(rest, expected);
}

/// What [`read_on`] returns, the parts that it has passed on, and whether the source is then behind the value.
fn parts_on(payload: &[u8]) -> Result<(Option<Flaw>, usize, bool), Fault> {
    let (form, mut source) = payload::open(payload).expect("a footer");
    let mut count = 0;
    let flaw = read_on(form, &mut source, &mut |_| {
        count += 1;
        Ok::<(), Fault>(())
    })?;
    Ok((flaw, count, source.at() == payload.len() as u64 - 10))
}

/// A stream of one node with these entries, which says that the node, and all of it, has other numbers of them.
fn miscounted(in_node: u64, in_all: u64) -> Vec<u8> {
    let (mut value, mut node) = (Vec::new(), Vec::new());
    let entry = |ms| (Id { ms, seq: 0 }, words(&[b"a", b"b"]));
    put_node(&[entry(1), entry(2), entry(3)], &mut node);
    // The id and its length, the length of the listpack, its head, and the number of entries.
    let place = 1 + 16 + 1 + 6;
    assert_eq!(node[place], 3);
    node[place] = in_node as u8;
    put_length(1, &mut value);
    value.extend_from_slice(&node);
    let last = Id { ms: 3, seq: 0 };
    StreamHead { length: in_all, last, added: 1, groups: 1, ..StreamHead::default() }.put(&mut value);
    put_group(b"g", last, None, &mut value);
    put_length(0, &mut value);
    put_length(0, &mut value);
    payload_of(tag::STREAM, payload::VERSION, &value)
}

#[test]
fn a_stream_that_counts_wrong_is_refused_or_read_whole() {
    for (in_node, in_all) in [(3, 7), (3, 0), (2, 3), (9, 9)] {
        let payload = miscounted(in_node, in_all);
        assert!(parts(&payload).unwrap_err().contains("another number of entries"), "{in_node} {in_all}");
        let (flaw, count, is_behind) = parts_on(&payload).unwrap();
        assert!(matches!(flaw, Some(Flaw::Miscounted(_))) && is_behind, "{flaw:?}");
        assert_eq!(count, 3 + 2, "entries, the stream, its group");
        let (form, mut source) = payload::open(&payload).unwrap();
        let mut added = 0;
        let take = &mut |part: Part<'_>| {
            if let Part::Stream { added: number, .. } = part {
                added = number;
            }
            Ok::<(), Fault>(())
        };
        read_on(form, &mut source, take).unwrap();
        assert_eq!(added, if in_all == 3 { 1 } else { 3 }, "no fewer than there are");
    }
    assert_eq!(parts_on(&miscounted(3, 3)).unwrap(), (None, 5, true));
}

/// A stream of entries with these ids, in two nodes, which says that its last id is another.
fn stream_of(ids: [u64; 4], last: u64) -> Vec<u8> {
    let (mut value, mut node) = (Vec::new(), Vec::new());
    put_length(2, &mut value);
    for ids in ids.chunks(2) {
        node.clear();
        let entry = |ms: &u64| (Id { ms: *ms, seq: 0 }, words(&[b"a", b"b"]));
        put_node(&ids.iter().map(entry).collect::<Vec<_>>(), &mut node);
        value.extend_from_slice(&node);
    }
    let last = Id { ms: last, seq: 0 };
    StreamHead { length: 4, last, added: 4, groups: 0, ..StreamHead::default() }.put(&mut value);
    payload_of(tag::STREAM, payload::VERSION, &value)
}

#[test]
fn a_stream_whose_last_id_is_too_small_gets_that_of_its_last_entry() {
    let payload = stream_of([1, 2, 3, 4], 2);
    let why = "a stream whose last id is smaller than an entry's";
    assert!(parts(&payload).unwrap_err().contains(why));
    let (form, mut source) = payload::open(&payload).unwrap();
    let mut last_ms = 0;
    let take = &mut |part: Part<'_>| {
        if let Part::Stream { last, .. } = part {
            last_ms = last.ms;
        }
        Ok::<(), Fault>(())
    };
    let flaw = read_on(form, &mut source, take).unwrap();
    assert!(matches!(flaw, Some(Flaw::Miscounted(Damaged { why: found, .. })) if found == why), "{flaw:?}");
    assert_eq!(last_ms, 4);
    for ids in [[1, 3, 2, 4], [1, 2, 2, 3], [2, 1, 3, 4]] {
        let (flaw, ..) = parts_on(&stream_of(ids, 9)).unwrap();
        assert!(
            matches!(flaw, Some(Flaw::Damaged(Damaged { why, .. })) if why.contains("not greater")),
            "{flaw:?}"
        );
    }
    assert_eq!(parts_on(&stream_of([1, 2, 3, 4], 9)).unwrap(), (None, 5, true));
}

/// Values whose bytes within pieces are damaged, each with how many parts stand before the damage.
fn damaged_within() -> Vec<(&'static str, Vec<u8>, usize)> {
    let mut listpack = b"\x14\0\0\0\x06\0\x81f\x02\x81v\x02\x81g\x02\x81w\x02\xff".to_vec();
    listpack[0] = listpack.len() as u8;
    listpack[4] = 4;
    let whole = [&[listpack.len() as u8][..], &listpack].concat();
    // The third item has a form that is none.
    listpack[12] = 0xff;
    let broken = [&[listpack.len() as u8][..], &listpack].concat();
    // A string of 40 bytes of which 5 are there, packed.
    let packed = b"\xc3\x02\x28\x00z";
    let text = |text: &[u8]| [&[text.len() as u8][..], text].concat();
    vec![
        ("a string", payload_of(tag::STRING, 10, packed), 0),
        ("a hash", payload_of(16, 10, &broken), 1),
        (
            "a list of pieces",
            payload_of(18, 10, &[b"\x03", &b"\x02"[..], &whole, b"\x02", &broken, b"\x02", &whole].concat()),
            4 + 2,
        ),
        ("a set of strings", payload_of(2, 10, &[b"\x03", &text(b"a")[..], packed, &text(b"b")].concat()), 1),
        ("a set of integers", payload_of(11, 10, &text(b"\x03\0\0\0\x01\0\0\0zz")), 0),
        (
            "a zset in text",
            payload_of(3, 10, &[b"\x02", &text(b"a")[..], &text(b"1x"), &text(b"b"), &text(b"2")].concat()),
            0,
        ),
        ("a zset", payload_of(17, 10, &whole), 0),
        ("a stream", payload_of(15, 10, &[b"\x01", &text(b"short")[..], &whole, b"\0\0\0\0"].concat()), 0),
    ]
}

#[test]
fn damage_within_a_value_does_not_hide_its_end() {
    for (what, payload, before) in damaged_within() {
        assert!(parts(&payload).is_err(), "{what}");
        let (flaw, count, is_behind) = parts_on(&payload).unwrap_or_else(|fault| panic!("{what}: {fault}"));
        assert!(matches!(flaw, Some(Flaw::Damaged(_))), "{what}: {flaw:?}");
        assert!(is_behind, "{what}");
        assert_eq!(count, before, "{what}: nothing behind the damage is passed on");
    }
    // Where the lengths are not sound, the end is not known.
    let cut = payload_of(4, 10, b"\x02\x01a\x01b");
    assert!(matches!(parts_on(&cut), Err(Fault::Damaged(_))));
    assert!(parts_on(&payload_of(18, 10, b"\x01\x03\x01a")).is_err(), "a form of a node that is not known");
}

#[test]
fn fields_have_deadlines_in_several_forms() {
    let listpack = b"\x14\0\0\0\x06\0\x81f\x02\x81v\x02\x09\x01\x81g\x02\x81w\x02\0\x01\xff";
    let mut listpack = listpack.to_vec();
    listpack[0] = listpack.len() as u8;
    let piece = [&[listpack.len() as u8][..], &listpack].concat();
    let least = 7_u64.to_le_bytes();
    let fields = |first: &[u8]| [&b"\x02"[..], first, b"\x01f\x01v\x00\x01g\x01w"].concat();
    let valkey = [b"\x02\x01f\x01v", &9_u64.to_le_bytes()[..], b"\x01g\x01w", &[0xff; 8]].concat();
    for (tag, version, value) in [
        (22, 12, fields(b"\x09")),
        (23, 12, piece.clone()),
        (24, 12, [&least[..], &fields(b"\x03")].concat()),
        (25, 12, [&least[..], &piece].concat()),
        (22, 80, valkey),
    ] {
        let found = parts(&payload_of(tag, version, &value)).unwrap();
        let field = |name: char, value: char, deadline: &str| {
            let (name, value) = (name as u8, value as u8);
            format!("Field {{ name: [{name}], value: [{value}], deadline_ms: {deadline} }}")
        };
        assert_eq!(found, [field('f', 'v', "Some(9)"), field('g', 'w', "None")], "type {tag}");
    }
    assert!(parts(&payload_of(24, 80, b"\x00")).is_err(), "another format's type");
}

#[test]
fn damaged_bytes_are_refused_with_their_place() {
    let stream = a_stream();
    for end in 1..stream.len() - 10 {
        let cut = payload_of(stream[0], payload::VERSION, &stream[1..end]);
        let error = parts(&cut).expect_err("it lacks its end");
        assert!(error.starts_with("at byte "), "{error}");
    }
    let mut flipped = stream.clone();
    flipped[20] ^= 1;
    assert_eq!(payload::open(&flipped).err(), Some(payload::Refusal::Footer));
}

proptest! {
    #[test]
    fn damaged_values_do_no_harm(tag in 0..30_u8, version in prop_oneof![Just(12), Just(80)], value in vec(any::<u8>(), 0..200)) {
        let _ = parts(&payload_of(tag, version, &value));
    }

    #[test]
    fn values_without_damage_have_no_flaw(tag in 0..30_u8, version in prop_oneof![Just(12), Just(80)], value in vec(any::<u8>(), 0..200)) {
        let payload = payload_of(tag, version, &value);
        if let (Ok(found), Ok((form, _))) = (parts(&payload), payload::open(&payload)) {
            let (flaw, count, is_behind) = parts_on(&payload).unwrap();
            prop_assert_eq!((flaw, count, is_behind), (None, found.len(), true), "{:?}", form);
        }
    }

    #[test]
    fn a_damaged_stream_does_no_harm(at in 1..5300_usize, byte in any::<u8>()) {
        let mut stream = a_stream();
        let end = stream.len() - 10;
        stream[at.min(end - 1)] = byte;
        let _ = parts(&payload_of(stream[0], payload::VERSION, &stream[1..end]));
    }

    #[test]
    fn strings_are_read_as_they_were_written(
        text in prop_oneof![vec(any::<u8>(), 0..70), any::<i64>().prop_map(|it| it.to_string().into_bytes()),
            (-70_000..70_000_i32).prop_map(|it| it.to_string().into_bytes())],
    ) {
        let mut value = Vec::new();
        put_text(&text, &mut value);
        let found = parts(&payload_of(tag::STRING, payload::VERSION, &value)).unwrap();
        prop_assert_eq!(found, [format!("Text({text:?})")]);
        let mut node = Vec::new();
        put_length(1, &mut node);
        put_node(&[(Id::default(), words(&[&text, &text]))], &mut node);
        let head = StreamHead { length: 1, ..StreamHead::default() };
        head.put(&mut node);
        let found = parts(&payload_of(tag::STREAM, payload::VERSION, &node)).unwrap();
        let word = text.escape_ascii();
        prop_assert_eq!(&found[0], &format!("0-0 {word} {word}"));
    }
}

#[test]
fn a_file_is_read_as_it_was_written() {
    use crate::file::{FileReader, Item};
    for with_deadlines in [false, true] {
        let mut writer = write::FileWriter::begin(Vec::new()).unwrap();
        writer.key(b"k", Some(1234), tag::STRING, b"\x01v").unwrap();
        if with_deadlines {
            let value = [&7_u64.to_le_bytes()[..], b"\x01\x01\x01f\x01v"].concat();
            writer.key(b"h", None, tag::HASH_WITH_DEADLINES, &value).unwrap();
        }
        let (mut bytes, head) = writer.end().unwrap();
        assert_eq!(head.is_some(), with_deadlines);
        if let Some(head) = head {
            bytes[..head.len()].copy_from_slice(head);
        }
        let items = |bytes: &[u8]| -> Result<Vec<Vec<u8>>, Fault> {
            let (mut reader, mut keys) = (FileReader::new(bytes)?, Vec::new());
            loop {
                match reader.item()? {
                    Item::Key { key, form, .. } => {
                        read(form, reader.source(), &mut |_| Ok::<(), Fault>(()))?;
                        keys.push(key);
                    }
                    Item::Database(number) => assert_eq!(number, 0),
                    Item::End => return Ok(keys),
                    item => panic!("{item:?}"),
                }
            }
        };
        let keys: &[&[u8]] = if with_deadlines { &[b"k", b"h"] } else { &[b"k"] };
        assert_eq!(items(&bytes).unwrap(), keys);
        for end in 0..bytes.len() {
            assert!(items(&bytes[..end]).is_err());
        }
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert!(items(&bytes).is_err());
    }
}

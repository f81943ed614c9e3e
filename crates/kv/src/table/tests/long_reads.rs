//! Reads that are carried out little by little: they show the moment at which they began, whatever happens meanwhile.

use super::script::{parse, word};
use super::sharing::{adding, removing};
use super::*;
use crate::command::{Draft, SortedCommand};
use crate::geo::{Centre, Order, Place, Query, Shape, Shown};
use crate::reply::{Lent, LongReadId};
use crate::{Coordinator, Padded, ValueId};
use proptest::collection::vec;
use proptest::prelude::*;

/// A read of about `names` names that are there and others that are not, or of all items.
fn reading(kind: char, key: &str, form: usize, names: usize) -> String {
    let each = |first: char| {
        (0..names).map(|number| format!("{first}{}", number * 7 % 90)).collect::<Vec<_>>().join(" ")
    };
    match (kind, form % 8) {
        ('h', 0) => format!("HGETALL {key}"),
        ('h', 1) => format!("HKEYS {key}"),
        ('h', 2) => format!("HVALS {key}"),
        ('h', 3..5) => format!("HPTTL {key} FIELDS {names} {}", each('f')),
        ('h', _) => format!("HMGET {key} {}", each('f')),
        ('l', form) => format!("LRANGE {key} {} {}", form * 9, form as i64 * 5 - 37),
        ('s', 0..4) => format!("SMEMBERS {key}"),
        ('s', _) => format!("SMISMEMBER {key} {}", each('m')),
        ('x', 0) => format!("XRANGE {key} - +"),
        ('x', 1) => format!("XREVRANGE {key} + - COUNT {names}"),
        ('x', 2) => format!("XRANGE {key} 20-0 150-7 COUNT 99"),
        ('x', 3) => format!("XREVRANGE {key} (200-1 {names}"),
        ('x', form) => format!("XRANGE {key} - (199-1 COUNT {}", form * 12),
        ('z', 0) => format!("ZRANGE {key} 0 -1 WITHSCORES"),
        ('z', 1) => format!("ZRANGE {key} 5 {names} REV"),
        ('z', 2) => format!("ZRANGE {key} 3 (20 BYSCORE REV LIMIT 2 70 WITHSCORES"),
        ('z', 3) => format!("ZRANGE {key} - + BYLEX"),
        ('z', 4) => format!("GEOPOS {key} {}", each('m')),
        ('z', 5) => format!("GEOHASH {key} {}", each('m')),
        _ => format!("ZMSCORE {key} {}", each('m')),
    }
}

/// A read of several keys: of `key` and another one of its kind, twice, and of one that is missing or not.
fn combining(kind: char, key: &str, other: &str, form: usize) -> String {
    match (kind, form % 8) {
        ('s', 0) => format!("SUNION {key} {other}"),
        ('s', 1) => format!("SUNION {other} {key} s9 {other} {key} s0"),
        ('s', 2) => format!("SINTER {key} {other}"),
        ('s', 3) => format!("SINTER {key} {key} {other} {key}"),
        ('s', 4) => format!("SDIFF {key} {other}"),
        ('s', 5) => format!("SDIFF {key} s9 {other} s0 {other}"),
        ('s', 6) => format!("SINTERCARD 7 {key} {other}"),
        ('z', 0) => format!("ZUNION {key} {other} WITHSCORES"),
        ('z', 1) => format!("ZUNION {other} 3 {key} 0.1 z9 1 {key} -7.3 s0 2 {other} 0.3 WEIGHTS WITHSCORES"),
        ('z', 2) => format!("ZINTER {key} 0.1 {other} 0.7 {key} 3 WEIGHTS MIN WITHSCORES"),
        ('z', 3) => format!("ZINTER {other} {key} WITHSCORES"),
        ('z', 4) => format!("ZDIFF {key} {other}"),
        ('z', 5) => format!("ZDIFF {key} z9 s0 {other}"),
        ('z', 6) => format!("ZINTERCARD 7 {key} {other}"),
        ('z', _) => format!("ZINTERCARD 0 {key} {other}"),
        _ => format!("SINTERCARD 0 {key} {other}"),
    }
}

/// The kinds of which several are combined.
const COMBINED: [char; 2] = ['s', 'z'];

/// Adds places, some of them twice.
fn places(store: &mut Store) {
    for number in 0..200u64 {
        let score = (number % 150).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12;
        let near = (3u64 << 50) | score >> (number % 30 + 2);
        store.line(&format!("ZADD g {near} m{number}"));
    }
}

#[test]
fn a_search_for_places_shows_the_moment_at_which_it_began() {
    let mut in_parts = 0;
    for (form, count) in (0..8).flat_map(|form| [0, 3, 70].map(|count| (form, count))) {
        let mut store = Store::new();
        places(&mut store);
        for radius_km in [20_000, 2_000, 100, 1] {
            let read = store.begin(&format!("GEOSEARCH g {radius_km} {count} {form}"), 1 << 20);
            store.line(&format!("ZREM g m{}", radius_km % 100 + 10));
            in_parts += usize::from(read.is_some_and(|read| {
                store.line("ZREM g m11");
                store.finish(read, 5000) > 2
            }));
        }
        let refused = store.begin(&format!("GEOSEARCH g 20000 0 {form}"), 100);
        refused.map(|read| store.finish(read, 1000));
        assert_eq!(store.checked_shared(), 0, "{form}");
    }
    assert!(in_parts > 24, "{in_parts}");
}

/// A stream with a group, whose entries are of two kinds.
fn stream(store: &mut Store) {
    for id in 1..201 {
        match id % 3 {
            0 => store.line(&format!("XADD x {id}-1 field value{id} other 7")),
            _ => store.line(&format!("XADD x {id}-1 field {id}")),
        };
    }
    store.line("XGROUP CREATE x g 0");
    store.line("XREADGROUP g c COUNT 10 STREAMS x >");
}

#[test]
fn a_range_of_a_stream_shows_the_moment_at_which_it_began() {
    for form in 0..8 {
        let mut store = Store::new();
        stream(&mut store);
        store.begin("XRANGE x - + COUNT 0", 1 << 20);
        store.begin("XRANGE x 7 a", 1 << 20);
        let mut read = store.begin(&reading('x', "x", form, 80), 1 << 20).expect("it takes several steps");
        for id in 1..4 {
            read = store.go_on(read, 500).expect("it is not over");
            store.line(&format!("XDEL x {}-1", id * 30));
            store.line(&format!("XADD x 30{id}-1 field more"));
            store.line("XREADGROUP g c COUNT 10 STREAMS x >");
        }
        store.line(if form == 0 { "DEL x" } else { "XTRIM x MAXLEN 3" });
        store.finish(read, 1000);
        let read = store.begin(&reading('x', "x", 0, 80), 100);
        if form == 0 {
            assert!(read.is_none(), "there is no stream");
        } else {
            let read = read.expect("it takes several steps");
            assert!(ReplyBuffer::is_error(&read.at_once));
            store.finish(read, 100);
        }
        assert_eq!(store.checked_shared(), 0, "{form}");
    }
}

/// Calls `with` with the command of a line.
fn with_command<R>(line: &str, with: impl FnOnce(&Command<'_>) -> R) -> R {
    let words: Vec<Vec<u8>> = line.split_whitespace().map(word).collect();
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let mut scratch = Vec::new();
    let command = match words[..] {
        [b"GEOSEARCH", key, radius_km, count, form] => {
            let number = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|it| it.parse::<u64>().ok());
            let (radius_km, count) = (number(radius_km).unwrap_or(0), number(count).unwrap_or(0));
            let form = number(form).unwrap_or(0);
            let centre = match form % 4 {
                0 => Centre::Member(b"m7"),
                _ => Centre::Place(Place { longitude: 0.5, latitude: 0.5 }),
            };
            let query = Query {
                takes_any: count > 0 && form % 2 == 1,
                shown: Shown { distance: form > 0, hash: form > 3, place: form > 5 },
                count,
                order: [Order::Any, Order::Ascending, Order::Descending][form as usize % 3],
                unit_m: 1000.0,
                stores_distance: false,
                centre,
                shape: Shape::Circle(radius_km as f64),
            };
            query.encode(&mut scratch);
            Command::OnSorted(SortedCommand::Find { key, query: &scratch })
        }
        [name @ (b"GEOPOS" | b"GEOHASH"), key, ref members @ ..] => {
            let members = List::build(&mut scratch, members.iter().copied());
            Command::OnSorted(match name {
                b"GEOPOS" => SortedCommand::Places { key, members },
                _ => SortedCommand::Hashes { key, members },
            })
        }
        _ => parse(&words, &mut scratch),
    };
    with(&command)
}

/// A read that has begun, with the reply that it had at that moment, carried out in one step.
struct Begun {
    id: LongReadId,
    line: String,
    at_once: Vec<u8>,
}

impl Store {
    /// Begins a read. `None`: it was carried out at once.
    fn begin(&mut self, line: &str, reply_max: usize) -> Option<Begun> {
        let (mut at_once, mut out) = (ReplyBuffer::new(), ReplyBuffer::new());
        at_once.bound_each(reply_max);
        out.bound_each(reply_max);
        out.read_in_parts(1);
        let (before, time) = (self.table.statistics(), self.time);
        let version = with_command(line, |command| self.table.read(command, time, &mut at_once));
        let lookups = self.table.statistics().since(before);
        let before = self.table.statistics();
        assert_eq!(with_command(line, |command| self.table.read(command, time, &mut out)), version, "{line}");
        assert_eq!(self.table.statistics().since(before), lookups, "{line}");
        let at_once = at_once.take();
        match ReplyBuffer::lent(out.as_bytes()).map(|number| out.take_lent().swap_remove(number)) {
            Some(Lent::Read(id)) => Some(Begun { id, line: line.to_owned(), at_once }),
            Some(Lent::Value(_)) => panic!("a value in place of {line}"),
            None => {
                assert!(out.as_bytes() == at_once, "{line}");
                None
            }
        }
    }

    /// Goes on with a read. Returns it if it is not over.
    fn go_on(&mut self, read: Begun, ns: u64) -> Option<Begun> {
        let progress = self.table.go_on_reading(read.id, ns).expect("a read that has begun");
        if !progress.is_complete {
            return Some(read);
        }
        let reply = self.table.end_reading(read.id).expect("its reply");
        assert!(reply.as_bytes() == read.at_once, "{}", read.line);
        assert_eq!(self.table.go_on_reading(read.id, ns), None, "it is over");
        None
    }

    /// Finishes a read, and returns how many steps that took.
    fn finish(&mut self, read: Begun, ns: u64) -> usize {
        let mut read = Some(read);
        (1..)
            .find(|_| {
                read = read.take().and_then(|read| self.go_on(read, ns));
                read.is_none()
            })
            .expect("it ends")
    }
}

const KINDS: [char; 4] = ['h', 'l', 's', 'z'];

#[test]
fn a_read_in_parts_shows_the_moment_at_which_it_began() {
    for kind in KINDS {
        let mut store = Store::new();
        for line in [adding(kind, "k", 0..200), adding(kind, "small", 0..5)] {
            store.line(&line);
        }
        if kind == 'h' {
            store.line("HEXPIRE k PX 5 FIELDS 3 f1 f7 f50");
        }
        let (mut in_parts, mut of_small) = (0, 0);
        for form in 0..8 {
            in_parts +=
                usize::from(store.begin(&reading(kind, "k", form, 80), 1 << 20).is_some_and(|read| {
                    store.line(&removing(kind, "k", form));
                    store.line(&adding(kind, "k", 300 + form..310 + form));
                    store.time += 1;
                    store.finish(read, 500) > 1
                }));
            // The key holds little, or nothing, and many names are looked for.
            for key in ["small", "missing"] {
                let read = store.begin(&reading(kind, key, form, 80), 1 << 20);
                of_small += usize::from(read.is_some_and(|read| {
                    store.line(&format!("DEL {key}"));
                    store.line(&adding(kind, key, 2..7));
                    store.finish(read, 1000) > 1
                }));
            }
        }
        assert!(in_parts == 8, "{kind}: {in_parts}");
        assert!(kind == 'l' || of_small > 3, "{kind}: {of_small}");
        assert_eq!(store.checked_shared(), 0, "{kind}");
    }
}

#[test]
fn what_several_collections_are_combined_to_shows_the_moment_at_which_it_began() {
    for (kind, (others, form)) in COMBINED
        .into_iter()
        .flat_map(|kind| [100..300, 0..4, 0..0].map(|others| (kind, others)))
        .flat_map(|(kind, others)| (0..8).map(move |form| (kind, (others.clone(), form))))
    {
        let (mut store, first, second) = (Store::new(), format!("{kind}0"), format!("{kind}1"));
        store.line(&adding(kind, &first, 0..200));
        if !others.is_empty() {
            store.line(&adding(kind, &second, others.clone()));
        }
        let read = store.begin(&combining(kind, &first, &second, form), 1 << 20);
        if others.len() == 200 {
            assert!(read.is_some(), "{kind}: {form}");
        }
        let Some(mut read) = read else { continue };
        for ns in [100, 700, 1] {
            store.line(&removing(kind, &first, 5));
            store.line(&adding(kind, &second, 280..290));
            match store.go_on(read, ns) {
                Some(under_way) => read = under_way,
                None => break,
            }
            if ns == 1 {
                store.line(&format!("DEL {first} {second}"));
                assert!(store.finish(read, 300) > 0);
                break;
            }
        }
        assert_eq!(store.checked_shared(), 0, "{kind}: {form}");
    }
}

#[test]
fn a_combination_that_is_too_long_is_refused_as_at_once() {
    for kind in COMBINED {
        for form in 0..5 {
            let mut store = Store::new();
            for (key, ids) in [("0", 0..200), ("1", 100..400)] {
                store.line(&adding(kind, &format!("{kind}{key}"), ids));
            }
            let line = combining(kind, &format!("{kind}0"), &format!("{kind}1"), form);
            let read = store.begin(&line, 250).expect("it takes several steps");
            assert!(ReplyBuffer::is_error(&read.at_once), "{line}");
            assert!(store.finish(read, 100) > 1, "{line}");
        }
    }
}

/// What such a read looks at is limited where it takes one step.
#[test]
fn a_combination_of_more_than_one_step_may_look_at_is_carried_out_in_parts_only() {
    let mut store = Store::new();
    for part in 0..6 {
        let member = |number: usize| format!("{number}{}", "x".repeat(100));
        let members: Vec<String> = (part * 20_000..(part + 1) * 20_000).map(member).collect();
        store.line(&format!("SADD a {}", members.join(" ")));
    }
    store.line("COPY a b");
    let (mut out, line) = (ReplyBuffer::new(), "SUNION a b");
    with_command(line, |read| store.table.read(read, store.time, &mut out));
    assert!(ReplyBuffer::is_error(out.as_bytes()), "in one step it is refused");
    out = ReplyBuffer::new();
    out.read_in_parts(5_000_000);
    with_command(line, |read| store.table.read(read, store.time, &mut out));
    let [Lent::Read(id)] = out.take_lent()[..] else { panic!("it only begins") };
    let mut at_once = ReplyBuffer::new();
    with_command("SMEMBERS a", |read| store.table.read(read, store.time, &mut at_once));
    let read = Begun { id, line: line.to_owned(), at_once: at_once.take() };
    assert!(store.finish(read, 2_000_000) > 3);
}

/// A read of many small sets charges its client for their copies, each once.
#[test]
fn copies_of_small_collections_count() {
    let mut store = Store::new();
    for key in 0..100 {
        store.line(&adding('s', &format!("s{key}"), 0..5));
    }
    let bytes = |store: &mut Store, keys: &mut dyn Iterator<Item = usize>| {
        let keys: Vec<String> = keys.map(|key| format!("s{key}")).collect();
        let read =
            store.begin(&format!("SUNION {}", keys.join(" ")), 1 << 20).expect("it takes several steps");
        let progress = store.table.go_on_reading(read.id, 1).expect("it has begun");
        store.finish(read, 1000);
        progress.bytes
    };
    let different = bytes(&mut store, &mut (0..100));
    let same = bytes(&mut store, &mut std::iter::repeat_n(7, 100));
    assert!(different > 100 * 5 * 4 && same < different / 20, "{different}, {same}");
}

#[test]
fn a_reply_that_is_too_long_is_refused_as_at_once() {
    for kind in KINDS {
        let mut store = Store::new();
        store.line(&adding(kind, "k", 0..200));
        let read = store.begin(&reading(kind, "k", 0, 80), 900).expect("it takes several steps");
        assert!(ReplyBuffer::is_error(&read.at_once), "{kind}");
        assert!(store.finish(read, 100) > 1, "{kind}");
    }
}

#[test]
fn a_read_outlives_what_it_shows() {
    for (kind, end) in KINDS.into_iter().flat_map(|kind| (0..5).map(move |end| (kind, end))) {
        let mut store = Store::new();
        store.line(&adding(kind, "k", 0..200));
        store.line("COPY k c");
        let read = store.begin(&reading(kind, "k", 0, 80), 1 << 20).expect("it takes several steps");
        let read = store.go_on(read, 100).expect("it is not over");
        store.line(&removing(kind, "k", 3));
        match end {
            0 => drop(store.line("FLUSHALL")),
            1 => {
                let copy = copy_of(&mut store.table);
                store.table.replace(copy);
            }
            2 => assert_eq!(store.table.reload(), Ok(())),
            3 => drop(store.line("SET k v")),
            _ => drop(store.line("DEL k c")),
        }
        store.line(&adding(kind, "other", 0..100));
        store.line("COPY other copy");
        let second = store.begin(&reading(kind, "other", 0, 80), 1 << 20).expect("it takes several steps");
        assert!(second.id != read.id, "ids are not used again");
        store.finish(read, 100);
        store.finish(second, 100);
        store.checked_shared();
    }
}

#[test]
fn a_read_that_is_given_up_leaves_nothing() {
    let mut store = Store::new();
    store.line(&adding('s', "k", 0..200));
    let read = store.begin("SMEMBERS k", 1 << 20).expect("it takes several steps");
    store.line("DEL k");
    assert!(store.table.end_reading(read.id).is_some_and(|reply| reply.as_bytes() != read.at_once));
    assert!(store.table.end_reading(read.id).is_none());
    assert_eq!(store.checked_shared(), 0);
}

#[test]
fn reads_within_other_commands_take_one_step_and_short_ones_too() {
    let mut store = Store::new();
    store.line(&adding('s', "k", 0..200));
    store.line(&adding('s', "small", 0..5));
    let mut out = ReplyBuffer::new();
    out.read_in_parts(1);
    for is_write in [false, true] {
        let mut draft = Draft::default();
        let last = if is_write { plain_set(b"other", b"") } else { Command::Size {} };
        with_command("SMEMBERS k", |read| assert!(draft.push(read) && draft.push(&last)));
        store.offset += 1;
        store.table.apply(&Command::Transaction(draft.transaction()), store.offset, store.time, &mut out);
    }
    for line in ["SISMEMBER k m1", "SMISMEMBER k m1 m2", "SINTER none none", "GET k", "SCARD k"] {
        with_command(line, |read| store.table.read(read, store.time, &mut out));
    }
    out.read_in_parts(1000);
    with_command("SMEMBERS small", |read| store.table.read(read, store.time, &mut out));
    with_command("SINTER small small", |read| store.table.read(read, store.time, &mut out));
    out.read_in_parts(1 << 40);
    with_command("SINTER k k", |read| store.table.read(read, store.time, &mut out));
    with_command("SMEMBERS k", |read| store.table.read(read, store.time, &mut out));
    assert!(!out.has_lent());
    out.read_in_parts(1);
    with_command("HGETALL k", |read| store.table.read(read, store.time, &mut out));
    assert!(!out.has_lent(), "an error");
    with_command("SMEMBERS k", |read| store.table.read(read, store.time, &mut out));
    assert!(out.has_lent());
}

/// A read with so many names that it arrives in parts is a record, which shows its place among the others.
#[test]
fn a_read_whose_names_arrive_in_parts_is_carried_out_in_parts_where_someone_waits_for_it() {
    let id = ValueId { coordinator: Coordinator { node: 2, life: 7 }, counter: 1 };
    let mut store = Store::new();
    store.line(&adding('s', "k", 0..200));
    let line = reading('s', "k", 7, 80);
    let mut whole = Vec::new();
    with_command(&line, |command| command.encode(&mut whole));
    for is_awaited in [true, false] {
        let at_once = store.begin(&line, 1 << 20).expect("it takes several steps").at_once;
        store.apply(&Command::LongPart { id, offset: 0, length: whole.len() as u32, bytes: &whole });
        let end = Command::LongEnd { id, watched_in: Padded(None) };
        store.offset += 1;
        let before = store.table.statistics();
        if is_awaited {
            let mut out = ReplyBuffer::new();
            out.read_in_parts(1);
            store.table.apply(&end, store.offset, store.time, &mut out);
            let [Lent::Read(id)] = out.take_lent()[..] else { panic!("it only begins") };
            store.line("DEL k");
            assert!(store.finish(Begun { id, line: line.clone(), at_once }, 1000) > 1);
        } else {
            store.table.apply_unasked(&end, store.offset, store.time);
            assert_eq!(store.table.statistics(), before, "nothing is looked up");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Do(String),
    Wait(u64),
    Snapshot,
    EndSnapshots,
    Replace,
    Begin(String),
    GoOn(usize, u64),
    GiveUp(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let kind = || proptest::sample::select(KINDS.to_vec());
    let key = || (kind(), 0..2usize).prop_map(|(kind, number)| (kind, format!("{kind}{number}")));
    let change = prop_oneof![
        4 => (key(), 0..60usize, 1..60usize)
            .prop_map(|((kind, key), from, count)| adding(kind, &key, from..from + count)),
        4 => (key(), 0..70usize).prop_map(|((kind, key), number)| removing(kind, &key, number)),
        1 => (key(), 0..2usize).prop_map(|((kind, key), to)| format!("COPY {key} {kind}{to} REPLACE")),
        1 => (key(), 0..2usize).prop_map(|((kind, key), to)| format!("RENAME {key} {kind}{to}")),
        1 => key().prop_map(|(_, key)| format!("DEL {key}")),
        1 => (0..2usize, 0..60usize, 1..20u64)
            .prop_map(|(key, field, ms)| format!("HEXPIRE h{key} PX {ms} FIELDS 1 f{field}")),
        1 => (key(), 1..20u64).prop_map(|((_, key), ms)| format!("EXPIRE {key} PX {ms}")),
    ];
    let read = (key(), 0..8usize, 0..120usize)
        .prop_map(|((kind, key), form, names)| Step::Begin(reading(kind, &key, form, names)));
    let combined = (proptest::sample::select(COMBINED.to_vec()), 0..2usize, 0..3usize, 0..8usize);
    let combined = combined.prop_map(|(kind, key, other, form)| {
        Step::Begin(combining(kind, &format!("{kind}{key}"), &format!("{kind}{other}"), form))
    });
    prop_oneof![
        20 => combined,
        40 => change.prop_map(Step::Do),
        10 => (1..5u64, 0..100usize).prop_map(|(seq, length)| {
            Step::Do(format!("XADD x * field{seq} {} other {length}", "v".repeat(length)))
        }),
        2 => (0..20usize).prop_map(|length| Step::Do(format!("XTRIM x MAXLEN {length}"))),
        5 => (0..8usize, 0..120usize).prop_map(|(form, names)| Step::Begin(reading('x', "x", form, names))),
        1 => Just(Step::Do("FLUSHALL".to_owned())),
        4 => (1..10u64).prop_map(Step::Wait),
        2 => Just(Step::Snapshot),
        2 => Just(Step::EndSnapshots),
        1 => Just(Step::Replace),
        20 => read,
        40 => (0..5usize, 0..4000u64).prop_map(|(read, ns)| Step::GoOn(read, ns)),
        2 => (0..5usize).prop_map(Step::GiveUp),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_read_in_parts_has_the_reply_of_its_beginning(steps in vec(step(), 0..200)) {
        let (mut store, mut reads, mut snapshots) = (Store::new(), Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Do(line) => drop(store.line(&line)),
                Step::Wait(ms) => {
                    store.time += ms;
                    store.apply(&Command::Purge { until: store.time });
                }
                Step::Snapshot => snapshots.push(store.table.begin_snapshot()),
                Step::EndSnapshots => snapshots.drain(..).for_each(|id| store.table.end_snapshot(id)),
                Step::Replace => {
                    let copy = copy_of(&mut store.table);
                    store.table.replace(copy);
                    snapshots.clear();
                }
                Step::Begin(line) => reads.extend(store.begin(&line, 2000)),
                Step::GoOn(place, ns) if place < reads.len() => {
                    let read = reads.remove(place);
                    reads.extend(store.go_on(read, ns));
                }
                Step::GiveUp(place) if place < reads.len() => {
                    prop_assert!(store.table.end_reading(reads.remove(place).id).is_some());
                }
                Step::GoOn(..) | Step::GiveUp(_) => {}
            }
            store.checked_shared();
        }
        for read in reads.drain(..) {
            store.finish(read, 1000);
        }
        snapshots.drain(..).for_each(|id| store.table.end_snapshot(id));
        store.checked_shared();
    }
}

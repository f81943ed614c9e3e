//! Values of several sizes, and commands on them.

use kv::codec::Reader;
use kv::geo::Place;
use kv::{
    AddOptions, BytesCommand, Command, Condition, Expiry, HashCommand, List, ListCommand, Reply, ReplyBuffer,
    SetAnswer, SetCommand, SortedCommand, StreamCommand, Table,
};

/// The time of all records.
pub(crate) const NOW: u64 = 1_000_000;

/// The numbers of elements, members, fields, entries or bytes.
pub(crate) const SIZES: [usize; 3] = [10, 1_000, 10_000];

/// Bytes that live as long as the test, so that commands can be kept.
pub(crate) fn kept(text: impl Into<Vec<u8>>) -> &'static [u8] {
    Vec::leak(text.into())
}

/// A list that lives as long as the test.
pub(crate) fn list_of(items: impl IntoIterator<Item = impl AsRef<[u8]>>) -> List<'static> {
    let items: Vec<Vec<u8>> = items.into_iter().map(|item| item.as_ref().to_vec()).collect();
    List::build(Box::leak(Box::default()), items.iter().map(Vec::as_slice))
}

/// A key of a kind and a size.
pub(crate) fn key(kind: &str, size: usize) -> &'static [u8] {
    kept(format!("{kind}:{size}"))
}

/// An order in which neighbours in one collection are far apart.
pub(crate) fn spread(size: usize) -> impl Iterator<Item = usize> + Clone {
    (0..size).map(move |number| number * 7919 % size)
}

pub(crate) fn element(number: usize) -> String {
    format!("element:{number:08}")
}

pub(crate) fn pairs(size: usize, from: usize) -> List<'static> {
    list_of(spread(size).flat_map(|number| [element(number + from), format!("value:{number:08}")]))
}

pub(crate) fn scored(size: usize, from: usize) -> List<'static> {
    list_of(spread(size).flat_map(|number| [format!("{number}.5"), element(number + from)]))
}

pub(crate) fn places(size: usize, from: usize) -> List<'static> {
    list_of(spread(size).flat_map(|number| {
        let (longitude, latitude) =
            ((number * 37 % 36_000) as f64 / 100.0 - 180.0, (number % 170) as f64 - 85.0);
        [format!("{}", Place { longitude, latitude }.score()), element(number + from)]
    }))
}

pub(crate) fn members(size: usize, from: usize) -> List<'static> {
    list_of(spread(size).map(|number| element(number + from)))
}

/// A table, and the number of the next record.
pub(crate) struct Store {
    pub(crate) table: Table,
    pub(crate) out: ReplyBuffer,
}

impl Store {
    pub(crate) fn new() -> Store {
        let mut store = Store { table: Table::new(7), out: ReplyBuffer::new() };
        for size in SIZES {
            store.fill(size);
        }
        store
    }

    /// Carries out a command.
    pub(crate) fn carry_out(&mut self, command: &Command<'_>) {
        let version = self.table.version_floor() + 1;
        match command.is_write() {
            true => self.table.apply(command, version, NOW, &mut self.out),
            false => self.table.read(command, NOW, &mut self.out),
        };
    }

    /// Forgets the replies. Returns whether they began with an error.
    pub(crate) fn forget(&mut self) -> Option<String> {
        let error = match Reply::decode(&mut Reader::new(self.out.as_bytes())) {
            Ok(Reply::Error(text)) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        };
        self.out = ReplyBuffer::new();
        error
    }

    fn done(&mut self, command: Command<'_>) {
        self.carry_out(&command);
        assert_eq!(self.forget(), None, "{command:?}");
    }

    fn fill(&mut self, size: usize) {
        let pushed = |key, elements| ListCommand::Push { key, elements, at_front: false, if_present: false };
        self.done(Command::OnList(pushed(key("list", size), list_of((0..size).map(element)))));
        self.done(Command::OnList(pushed(key("same", size), list_of((0..size).map(|_| element(0))))));
        self.done(Command::OnList(pushed(
            key("digits", size),
            list_of(spread(size).map(|it| it.to_string())),
        )));
        for (kind, from) in [("set", 0), ("other", size / 2)] {
            self.done(Command::OnSet(SetCommand::Add { key: key(kind, size), members: members(size, from) }));
        }
        for (kind, from) in [("sorted", 0), ("ranked", size / 2)] {
            self.add(key(kind, size), scored(size, from));
        }
        self.add(key("geo", size), places(size, 0));
        let set = HashCommand::Set { key: key("hash", size), pairs: pairs(size, 0), counts: true };
        self.done(Command::Hash(set));
        for (kind, byte) in [("text", b'x'), ("text2", b'y')] {
            self.set(key(kind, size), &vec![byte; size * 100]);
        }
        for (kind, byte) in [("short", b'x'), ("short2", b'y')] {
            self.set(key(kind, size), &vec![byte; size.min(2_000)]);
        }
        for kind in ["sketch", "sketch2"] {
            self.done(Command::OnBytes(BytesCommand::Count {
                key: key(kind, size),
                elements: members(size, 0),
            }));
        }
        self.stream(size);
    }

    pub(crate) fn set(&mut self, key: &[u8], value: &[u8]) {
        let (expiry, condition, answer) = (Expiry::Clear, Condition::Always, SetAnswer::Status);
        self.done(Command::Set { key, value, expiry, condition, answer });
    }

    /// The value of a string.
    pub(crate) fn get(&mut self, key: &[u8]) -> Vec<u8> {
        self.bulk(&Command::Get { key })
    }

    /// The text that a command answers.
    pub(crate) fn bulk(&mut self, command: &Command<'_>) -> Vec<u8> {
        self.carry_out(command);
        let answer = self.out.as_bytes().to_vec();
        self.forget();
        match Reply::decode(&mut Reader::new(&answer)) {
            Ok(Reply::Bulk(text)) => text.to_vec(),
            _ => panic!("{command:?} answers no text"),
        }
    }

    fn add(&mut self, key: &[u8], pairs: List<'_>) {
        let options = AddOptions::default();
        self.done(Command::OnSorted(SortedCommand::Add { key, pairs, options, counts_changes: false }));
    }

    fn stream(&mut self, size: usize) {
        let key = key("stream", size);
        for number in 1..=size {
            let words = list_of([format!("{number}-1"), String::new(), "field".into(), element(number)]);
            self.done(Command::OnStream(StreamCommand::Add { key, words, trim: None, if_present: false }));
        }
        for group in [&b"read"[..], b"unread"] {
            let (id, entries_read, makes_stream) = (&b"0"[..], -1, false);
            let group = StreamCommand::CreateGroup { key, group, id, entries_read, makes_stream };
            self.done(Command::OnStream(group));
        }
        for _ in 0..size.div_ceil(10_000) {
            let (group, consumer, count) = (&b"read"[..], &b"consumer"[..], 10_000);
            let streams = list_of([key, b">"]);
            let read = StreamCommand::ReadGroup { group, consumer, streams, count, acknowledges: false };
            self.done(Command::OnStream(read));
        }
    }

    /// Copies a value to another key.
    pub(crate) fn copy(&mut self, from: &[u8], to: &[u8]) {
        self.done(Command::Copy { from, to, replace: true });
    }
}

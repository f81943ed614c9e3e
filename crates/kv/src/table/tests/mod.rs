//! The table's guarantees, by subject. Scripts read like a session: a command, an arrow, the reply.

mod bytes;
mod changes;
mod charges;
mod coded;
mod eviction;
mod expiry;
mod foreseen;
mod geo;
mod hashes;
mod history;
mod keys;
mod lending;
mod lists;
mod long;
mod long_reads;
mod memory;
mod model;
mod numbers;
mod queues;
mod records;
mod replicas;
mod scan;
mod script;
mod scripts;
mod sets;
mod sharing;
mod snapshot;
mod sorted;
mod spill;
mod streams;
mod strings;
mod transactions;
mod two_phase;

use super::Table;
use crate::codec::Reader;
use crate::command::{Command, Condition, Expiry, List, SetAnswer};
use crate::reply::{Reply, ReplyBuffer};
use crate::{UnixMs, Version};

/// A table with its reply buffer: one call per record.
struct Store {
    table: Table,
    offset: Version,
    time: UnixMs,
}

impl Store {
    fn new() -> Store {
        Store { table: Table::new(1), offset: 0, time: 1_000_000 }
    }

    /// A store with a table in which many keys share a hash.
    fn colliding() -> Store {
        Store { table: colliding(1), ..Store::new() }
    }

    /// Applies a command as the next record and returns the reply as text.
    fn apply(&mut self, command: &Command<'_>) -> String {
        self.offset += 1;
        let mut out = ReplyBuffer::new();
        self.table.apply(command, self.offset, self.time, &mut out);
        text_of(&out)
    }

    fn read(&mut self, command: &Command<'_>) -> String {
        let mut out = ReplyBuffer::new();
        self.table.read(command, self.time, &mut out);
        text_of(&out)
    }

    fn set(&mut self, key: &str, value: &str) {
        assert_eq!(self.apply(&plain_set(key.as_bytes(), value.as_bytes())), "OK");
    }

    fn delete(&mut self, key: &str) -> String {
        let mut scratch = Vec::new();
        self.apply(&Command::Delete { keys: List::build(&mut scratch, [key.as_bytes()]) })
    }

    /// The version that a read of the key returns.
    fn version(&mut self, key: &str) -> Version {
        self.table.read(&Command::Get { key: key.as_bytes() }, self.time, &mut ReplyBuffer::new())
    }
}

/// A new table from a snapshot of another one.
fn copy_of(table: &mut Table) -> Table {
    let id = table.begin_snapshot();
    let copy = copy_from(table, id);
    table.end_snapshot(id);
    copy
}

fn copy_from(table: &mut Table, id: crate::SnapshotId) -> Table {
    let mut copy = Table::new(5);
    let mut more = true;
    while more {
        let mut chunk = Vec::new();
        more = table.snapshot_chunk(id, 1, &mut chunk);
        copy.install(&chunk).unwrap();
    }
    copy.set_version_floor(table.version_floor());
    copy
}

/// A table whose keys have eight different hashes.
fn colliding(seed: u64) -> Table {
    let mut table = Table::new(seed);
    table.index.keep_hash_bits(0x7 << 54);
    table
}

fn plain_set<'a>(key: &'a [u8], value: &'a [u8]) -> Command<'a> {
    let (expiry, condition, answer) = (Expiry::Clear, Condition::Always, SetAnswer::Status);
    Command::Set { key, value, expiry, condition, answer }
}

/// One reply as text: `OK`, `nil`, `"bytes"`, `7`, `[a b]`, `status`, `!error`; a set as `(a b)`, sorted; pairs as
/// `<a:1 b:2>`.
fn text_of(out: &ReplyBuffer) -> String {
    let mut reader = Reader::new(out.as_bytes());
    let text = element(&mut reader);
    assert!(reader.is_empty(), "exactly one reply is written");
    text
}

fn element(reader: &mut Reader<'_>) -> String {
    match Reply::decode(reader).unwrap() {
        Reply::Ok => "OK".to_owned(),
        Reply::Null => "nil".to_owned(),
        Reply::NullArray => "aborted".to_owned(),
        Reply::Integer(number) => number.to_string(),
        Reply::Bulk(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Reply::Status(bytes) => bytes.escape_ascii().to_string(),
        Reply::Error(bytes) => format!("!{}", bytes.escape_ascii()),
        Reply::Array(count) => {
            let elements: Vec<_> = (0..count).map(|_| element(reader)).collect();
            format!("[{}]", elements.join(" "))
        }
        Reply::Double(number) => number.to_string(),
        Reply::Decimal(number) => crate::number::format_decimal(number),
        Reply::Pairs(count) => {
            let mut pair = || {
                assert_eq!(Reply::decode(reader), Ok(Reply::Pair));
                format!("{}:{}", element(reader), element(reader))
            };
            let pairs: Vec<_> = (0..count).map(|_| pair()).collect();
            format!("<{}>", pairs.join(" "))
        }
        Reply::Entries(count) => {
            let mut entry = || {
                assert_eq!(Reply::decode(reader), Ok(Reply::Entry));
                format!("{}={}", element(reader), element(reader))
            };
            let entries: Vec<_> = (0..count).map(|_| entry()).collect();
            format!("{{{}}}", entries.join(" "))
        }
        Reply::Set(count) => {
            let mut elements: Vec<_> = (0..count).map(|_| element(reader)).collect();
            elements.sort();
            format!("({})", elements.join(" "))
        }
        Reply::Map(count) => {
            let pairs: Vec<_> =
                (0..count).map(|_| format!("{}={}", element(reader), element(reader))).collect();
            format!("{{{}}}", pairs.join(" "))
        }
        other => panic!("a table does not answer with {other:?}"),
    }
}

//! Fills streams and prints the cost: memory per entry, time per command.
//!
//! `cargo run --release -p quorate-kv --example streams -- 1000000`

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use kv::command::DELIVERED_MAX;
use kv::{Command, List, ReplyBuffer, StreamCommand, Table, Trim};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The id of an entry, and its fields with their values.
type Make = fn(u64) -> (String, Vec<String>);

const KINDS: [(&str, Make); 4] = [
    ("one value of ten bytes", |number| {
        (format!("{}-0", 1_700_000_000_000 + number), words(&["f", &format!("value{:05}", number % 100_000)]))
    }),
    ("the same, 50 each millisecond", |number| {
        let id = format!("{}-{}", 1_700_000_000_000 + number / 50, number % 50);
        (id, words(&["f", &format!("value{:05}", number % 100_000)]))
    }),
    ("three short values", |number| {
        let (sensor, degrees) =
            (format!("s{:03}", number % 1000), format!("{}.{}", number % 40, number % 10));
        let fields = words(&["sensor", &sensor, "temperature", &degrees, "n", &number.to_string()]);
        (format!("{}-0", 1_700_000_000_000 + number), fields)
    }),
    ("one integer", |number| {
        (format!("{}-0", 1_700_000_000_000 + number), words(&["n", &number.to_string()]))
    }),
];

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    for (kind, make) in KINDS {
        let (mut table, mut scratch, mut records) = (Table::new(7), Vec::new(), 0);
        let mut apply = |table: &mut Table, command: StreamCommand<'_>| {
            let mut out = ReplyBuffer::new();
            records += 1;
            table.apply(&Command::OnStream(command), records, 1, &mut out);
            assert!(!ReplyBuffer::is_error(out.as_bytes()), "{command:?}");
        };
        let start = Instant::now();
        for number in 0..count {
            let (id, fields) = make(number);
            let all = [id.as_bytes(), b""].into_iter().chain(fields.iter().map(String::as_bytes));
            let words = List::build(&mut scratch, all);
            apply(&mut table, StreamCommand::Add { key: b"s", words, trim: None, if_present: false });
        }
        let each = start.elapsed().as_nanos() as f64 / count as f64;
        println!("{kind}: {each:.0} ns, {:.1} bytes per entry", table.bytes_of(b"s") as f64 / count as f64);

        let (key, group, consumer) = (&b"s"[..], &b"group"[..], &b"consumer"[..]);
        let create =
            StreamCommand::CreateGroup { key, group, id: b"0", entries_read: 0, makes_stream: false };
        apply(&mut table, create);
        let (before, start) = (table.bytes_of(b"s"), Instant::now());
        let streams = List::build(&mut scratch, [key, &b">"[..]]);
        let read = StreamCommand::ReadGroup { group, consumer, streams, count: 0, acknowledges: false };
        apply(&mut table, read);
        let delivered = (DELIVERED_MAX as u64).min(count) as f64;
        println!(
            "  XREADGROUP: {:.0} ns, {:.1} bytes per entry that is pending",
            start.elapsed().as_nanos() as f64 / delivered,
            (table.bytes_of(b"s") - before) as f64 / delivered
        );
        let start = Instant::now();
        let trim = Trim {
            by_id: false,
            is_approximate: false,
            limit: 0,
            node_entries: 0,
            references: kv::command::References::Keep,
        };
        apply(&mut table, StreamCommand::Trim { key, threshold: b"1", trim });
        println!("  XTRIM: {:.0?}", start.elapsed());
    }
}

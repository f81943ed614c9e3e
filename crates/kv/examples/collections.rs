//! Measures commands on collections of a million entries, and the memory of these.
//!
//! `cargo run --release -p quorate-kv --example collections -- 1000000`

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use kv::command::{AddOptions, By};
use kv::{Command, HashCommand, List, ListCommand, ReplyBuffer, SetCommand, SortedCommand, Table};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VALUE: &[u8] = b"0123456789abcdef";
const COMMANDS: u64 = 1_000_000;

/// A table, and the buffers that commands are built in.
struct Bench {
    table: Table,
    out: ReplyBuffer,
    records: u64,
    drawn: u64,
}

impl Bench {
    /// A number below `end`.
    fn draw(&mut self, end: u64) -> u64 {
        self.drawn = self.drawn.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.drawn ^ (self.drawn >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((u128::from(mixed ^ (mixed >> 29)) * u128::from(end)) >> 64) as u64
    }

    fn run(&mut self, command: Command<'_>) {
        self.out.clear();
        if command.is_write() {
            self.records += 1;
            self.table.apply(&command, self.records, 1, &mut self.out);
        } else {
            self.table.read(&command, 1, &mut self.out);
        }
        assert!(!ReplyBuffer::is_error(self.out.as_bytes()), "{command:?}");
    }

    /// Prints the time of each of `count` commands.
    fn time(&mut self, name: &str, count: u64, mut command: impl FnMut(&mut Bench, u64)) {
        let start = Instant::now();
        (0..count).for_each(|number| command(self, number));
        println!("{name:28} {:5.0} ns", start.elapsed().as_nanos() as f64 / count as f64);
    }

    fn memory(&self, key: &[u8], count: u64) {
        println!("{:28} {:5.1} bytes for each entry", "", self.table.bytes_of(key) as f64 / count as f64);
    }
}

fn list<'a>(scratch: &'a mut Vec<u8>, words: &[&[u8]]) -> List<'a> {
    scratch.clear();
    List::build(scratch, words.iter().copied())
}

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let mut bench = Bench { table: Table::new(7), out: ReplyBuffer::new(), records: 0, drawn: 7 };
    let mut scratch = Vec::new();

    let mut push = |bench: &mut Bench, _| {
        let elements = list(&mut scratch, &[VALUE]);
        let push = ListCommand::Push { key: b"list", elements, at_front: true, if_present: false };
        bench.run(Command::OnList(push));
    };
    bench.time("LPUSH, from none", count, &mut push);
    bench.memory(b"list", count);
    bench.time("LPUSH", COMMANDS, push);
    bench.time("RPOP", COMMANDS, |bench, _| {
        bench.run(Command::OnList(ListCommand::Pop { key: b"list", at_front: false, count: None }));
    });
    bench.time("LRANGE 0 99", COMMANDS / 10, |bench, _| {
        bench.run(Command::OnList(ListCommand::Range { key: b"list", start: 0, end: 99 }));
    });

    let mut add = |bench: &mut Bench, number: u64| {
        let members = list(&mut scratch, &[number.to_string().as_bytes()]);
        bench.run(Command::OnSet(SetCommand::Add { key: b"set", members }));
    };
    bench.time("SADD, from none", count, &mut add);
    bench.memory(b"set", count);
    bench.time("SADD, half of them new", COMMANDS, |bench, _| {
        let member = bench.draw(2 * count);
        add(bench, member);
    });
    bench.time("SISMEMBER", COMMANDS, |bench, _| {
        let member = bench.draw(2 * count).to_string();
        bench.run(Command::OnSet(SetCommand::Contains { key: b"set", member: member.as_bytes() }));
    });

    let mut score = |bench: &mut Bench, score: u64, member: u64| {
        let (score, member) = (score.to_string(), format!("member:{member}"));
        let pairs = list(&mut scratch, &[score.as_bytes(), member.as_bytes()]);
        let options = AddOptions::default();
        let add = SortedCommand::Add { key: b"sorted", pairs, options, counts_changes: false };
        bench.run(Command::OnSorted(add));
    };
    bench.time("ZADD, from none", count, |bench, number| score(bench, number, number));
    bench.memory(b"sorted", count);
    bench.time("ZADD, a new score", COMMANDS, |bench, _| {
        let (points, member) = (bench.draw(count), bench.draw(count));
        score(bench, points, member);
    });
    bench.time("ZRANK", COMMANDS, |bench, _| {
        let member = format!("member:{}", bench.draw(count));
        let rank = SortedCommand::Rank { key: b"sorted", member: member.as_bytes(), is_reverse: false };
        bench.run(Command::OnSorted(rank));
    });
    bench.time("ZRANGEBYSCORE … LIMIT 0 10", COMMANDS, |bench, _| {
        let least = bench.draw(count).to_string();
        let ends = list(&mut scratch, &[least.as_bytes(), b"+inf"]);
        let (key, by) = (&b"sorted"[..], By::Score);
        let range =
            SortedCommand::Range { key, by, ends, is_reverse: false, skip: 0, count: 10, with_scores: false };
        bench.run(Command::OnSorted(range));
    });

    let mut set = |bench: &mut Bench, field: u64| {
        let name = format!("field:{field}");
        let pairs = list(&mut scratch, &[name.as_bytes(), VALUE]);
        bench.run(Command::Hash(HashCommand::Set { key: b"hash", pairs, counts: true }));
    };
    bench.time("HSET, from none", count, &mut set);
    bench.memory(b"hash", count);
    bench.time("HSET, a field that exists", COMMANDS, |bench, _| {
        let field = bench.draw(count);
        set(bench, field);
    });
    bench.time("HGET", COMMANDS, |bench, _| {
        let field = format!("field:{}", bench.draw(count));
        bench.run(Command::Hash(HashCommand::Get { key: b"hash", field: field.as_bytes() }));
    });
}

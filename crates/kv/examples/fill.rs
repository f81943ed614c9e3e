//! Fills a table and prints the cost: time per key, the longest single insert, memory.
//!
//! `cargo run --release -p quorate-kv --example fill -- 10000000` (keys of 16 bytes, values of 64).

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use kv::{Command, Condition, Expiry, ReplyBuffer, SetAnswer, Table};
use std::time::{Duration, Instant};

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let before = resident_bytes();
    let (mut table, mut out) = (Table::new(7), ReplyBuffer::new());
    let value = [b'v'; 64];
    let (expiry, condition, answer) = (Expiry::Clear, Condition::Always, SetAnswer::Status);
    // Other processes may interrupt any insert; those that move a part of the index are few, so their time is mostly
    // their own.
    let (mut longest, mut longest_move, mut moves) = (Duration::ZERO, Duration::ZERO, 0);
    let start = Instant::now();
    for number in 0..count {
        let key = format!("key:{number:012}");
        let command = Command::Set { key: key.as_bytes(), value: &value, expiry, condition, answer };
        out.clear();
        let bytes = table.memory_bytes();
        let insert = Instant::now();
        table.apply(&command, number, 1, &mut out);
        let pause = insert.elapsed();
        longest = longest.max(pause);
        if table.memory_bytes() - bytes > 1024 {
            longest_move = longest_move.max(pause);
            moves += 1;
        }
    }
    let elapsed = start.elapsed();
    println!("{count} keys in {elapsed:.1?}: {:.0} ns per key", elapsed.as_nanos() as f64 / count as f64);
    println!("longest insert {longest:.0?}; of {moves} that moved a part of the index {longest_move:.0?}");
    println!("estimated: {} bytes per key", table.memory_bytes() as u64 / count);
    match (before, resident_bytes()) {
        (Some(before), Some(after)) => println!("resident: {} bytes per key", (after - before) / count),
        _ => println!("resident: unknown on this system"),
    }
    let start = Instant::now();
    println!("digest {:016x} in {:.0?}", table.digest(), start.elapsed());
    let start = Instant::now();
    let id = table.begin_snapshot();
    let begun = start.elapsed();
    let (mut chunk, mut bytes, mut longest) = (Vec::new(), 0, Duration::ZERO);
    loop {
        chunk.clear();
        let step = Instant::now();
        let more = table.snapshot_chunk(id, 64 * 1024, &mut chunk);
        longest = longest.max(step.elapsed());
        bytes += chunk.len();
        if !more {
            break;
        }
    }
    table.end_snapshot(id);
    println!(
        "snapshot of {bytes} bytes in {:.0?}, begun in {begun:.0?}, longest chunk {longest:.0?}",
        start.elapsed()
    );
    let start = Instant::now();
    out.clear();
    table.apply(&Command::Clear {}, count + 1, 1, &mut out);
    println!("cleared in {:.0?}", start.elapsed());
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

//! How fast large values are put and read.
//!
//! `cargo run --release -p quorate-server --example values_speed [FOLDER]`: 20,000 values of 64 KiB are put as a node puts
//! them, 4 MiB at a time, and persisted; the store is opened again and lists all names, and each value is read once, in an
//! order unrelated to that of writing. Then 1,024 values are replaced 40,960 times, at random. Three rounds. It makes a folder of its own in FOLDER (or in the system's folder for temporary files),
//! needs 4 GB there, and removes it at the end. Reads come from the system's cache if memory suffices.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use server::values::TreeValues;
use storage::values::NAME_BYTES;
use storage::{ValueName, ValueStore as _};

const VALUES: u64 = 20_000;
const VALUE_BYTES: usize = 64 << 10;
const PUT_VALUES: u64 = (4 << 20) / VALUE_BYTES as u64;

/// Coprime to the number of values, so its multiples visit each of them once.
const STRIDE: u64 = 7_919;

fn name(number: u64) -> ValueName {
    let mut name = [0; NAME_BYTES];
    name[2..10].copy_from_slice(&number.to_be_bytes());
    ValueName(name)
}

fn value(number: u64) -> Arc<Vec<u8>> {
    let words = (0..VALUE_BYTES as u64 / 8).map(|at| (number << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Arc::new(words.flat_map(u64::to_le_bytes).collect())
}

/// The bytes of all files in a folder. Files removed during the walk do not count.
fn bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let length = |path: PathBuf| match path.is_dir() {
        true => bytes(&path),
        false => fs::metadata(path).map_or(0, |file| file.len()),
    };
    entries.map(length).sum()
}

/// Median, 99th percentile and maximum, in microseconds.
fn spread(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let us = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e6;
    format!("p50 {:6.0} us  p99 {:7.0} us  max {:8.0} us", us(50), us(99), us(100))
}

/// The values' megabytes per second, if they took `time`.
fn rate(time: Duration) -> f64 {
    (VALUES * VALUE_BYTES as u64) as f64 / time.as_secs_f64() / 1e6
}

fn remove(folder: &Path) -> std::io::Result<()> {
    if folder.exists() { fs::remove_dir_all(folder) } else { Ok(()) }
}

fn measure(folder: &Path) -> anyhow::Result<()> {
    let mut store = TreeValues::new(folder)?;
    let (begin, mut times) = (Instant::now(), Vec::new());
    for first in (0..VALUES).step_by(PUT_VALUES as usize) {
        let numbers = first..(first + PUT_VALUES).min(VALUES);
        let values: Vec<_> = numbers.map(|number| (name(number), value(number))).collect();
        let put = Instant::now();
        store.put(&values)?;
        times.push(put.elapsed());
    }
    let took = begin.elapsed();
    let persisted = Instant::now();
    store.persist()?;
    let persisted = persisted.elapsed();
    println!(
        "put   {:5.0} MB/s with values being made, {}, then persist {:.0} ms",
        rate(took),
        spread(times),
        persisted.as_secs_f64() * 1e3
    );

    drop(store);
    let opened = Instant::now();
    let mut store = TreeValues::new(folder)?;
    let mut count = 0;
    let mut add = |_| {
        count += 1;
        true
    };
    store.names(&ValueName::FIRST, &mut add)?;
    anyhow::ensure!(count == VALUES, "{count} names");
    println!(
        "open and tell all names {:.0} ms, {:.3} times the values' bytes in files",
        opened.elapsed().as_secs_f64() * 1e3,
        bytes(folder) as f64 / (VALUES * VALUE_BYTES as u64) as f64
    );

    let mut times = Vec::new();
    for turn in 0..VALUES {
        let number = turn * STRIDE % VALUES;
        let read = Instant::now();
        let found = store.get(&name(number))?;
        times.push(read.elapsed());
        anyhow::ensure!(found.as_deref() == Some(value(number).as_slice()), "value {number} is another one");
    }
    println!("get   {:5.0} MB/s, {}", rate(times.iter().sum()), spread(times));
    Ok(())
}

/// How many values are needed at a time, and how many replacements there are.
const NEEDED: usize = 1024;
const REPLACED: u64 = 40_960;

/// Replaces values as a node does: the new value is put under a new name, and the old one is removed.
fn replace(folder: &Path) -> anyhow::Result<()> {
    let mut store = TreeValues::new(folder)?;
    let mut needed: Vec<u64> = (0..NEEDED as u64).collect();
    let shared = value(0);
    let put = |numbers: &[u64]| {
        numbers.iter().map(|number| (name(*number), Arc::clone(&shared))).collect::<Vec<_>>()
    };
    needed.chunks(PUT_VALUES as usize).try_for_each(|numbers| store.put(&put(numbers)))?;
    let (begin, mut random, mut most) = (Instant::now(), 1_u64, 0);
    for first in (0..REPLACED).step_by(PUT_VALUES as usize) {
        let numbers: Vec<u64> = (NEEDED as u64 + first..).take(PUT_VALUES as usize).collect();
        let mut gone = Vec::new();
        for number in &numbers {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let place = (random >> 33) as usize % NEEDED;
            gone.push(name(std::mem::replace(&mut needed[place], *number)));
        }
        store.put(&put(&numbers))?;
        store.remove(&gone)?;
        most = most.max(bytes(folder));
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "replaced at {:.0} MB/s: {} MiB are needed, {} MiB were on the disk at most",
        (REPLACED * VALUE_BYTES as u64) as f64 / seconds / 1e6,
        (NEEDED * VALUE_BYTES) >> 20,
        most >> 20
    );
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let parent = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, Into::into);
    let folder = parent.join(format!("quorate-values-speed-{}", std::process::id()));
    let mut measured = Ok(());
    for _ in 0..3 {
        measured = measured.and_then(|()| measure(&folder));
        remove(&folder)?;
        measured = measured.and_then(|()| replace(&folder));
        remove(&folder)?;
    }
    measured
}

//! The cost of a write and a read in process: [`Table`] beside bare hash maps.
//!
//! Everything goes through `Table::apply` and `Table::read` with a command and a reply buffer that is cleared each
//! time, as on a replica. The maps only store a boxed copy of the value. No network, no log, no replication: this is
//! the lower bound for everything above it, not what a client sees.

#![allow(clippy::disallowed_types, missing_docs)]

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use kv::{Command, Condition, Expiry, ReplyBuffer, SetAnswer, Table};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};
use std::hash::{BuildHasher, Hasher};
use std::hint::black_box;
use std::time::Duration;

/// The server's allocator, for everything that is compared.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SEED: u64 = 7;
const MILLION: usize = 1_000_000;

/// The table's hash function, for the maps that it is compared with.
#[derive(Clone, Copy)]
struct SameHash(RapidSecrets);

struct SameHasher<'a>(&'a RapidSecrets, u64);

impl Hasher for SameHasher<'_> {
    fn write(&mut self, bytes: &[u8]) {
        self.1 = rapidhash_v3_inline::<true, false, false>(bytes, self.0);
    }
    fn write_usize(&mut self, _length: usize) {}
    fn finish(&self) -> u64 {
        self.1
    }
}

struct BuildSameHash(&'static SameHash);

impl BuildHasher for BuildSameHash {
    type Hasher = SameHasher<'static>;
    fn build_hasher(&self) -> SameHasher<'static> {
        SameHasher(&self.0.0, 0)
    }
}

static HASH: SameHash = SameHash(RapidSecrets::seed(SEED));

type Bare = hashbrown::HashMap<Box<[u8]>, Box<[u8]>, BuildSameHash>;
type Std = std::collections::HashMap<Box<[u8]>, Box<[u8]>>;

fn keys(count: usize) -> Vec<[u8; 16]> {
    (0..count).map(|number| format!("key:{number:012}").into_bytes().try_into().expect("16 bytes")).collect()
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Command<'a> {
    let (expiry, condition, answer) = (Expiry::Clear, Condition::Always, SetAnswer::Status);
    Command::Set { key, value, expiry, condition, answer }
}

fn filled(keys: &[[u8; 16]], value: &[u8]) -> Table {
    let (mut table, mut out) = (Table::new(SEED), ReplyBuffer::new());
    for key in keys {
        out.clear();
        table.apply(&set(key, value), 1, 1, &mut out);
    }
    table
}

/// The same order for all candidates: a full cycle through `count` numbers that no prefetcher predicts.
struct Shuffled {
    order: Vec<u32>,
    at: usize,
}

impl Shuffled {
    fn new(count: usize) -> Shuffled {
        let mut order: Vec<u32> = (0..count as u32).collect();
        let mut state = 1u64;
        for last in (1..count).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(last, (state >> 33) as usize % (last + 1));
        }
        Shuffled { order, at: 0 }
    }

    #[inline]
    fn next(&mut self) -> usize {
        self.at = if self.at + 1 == self.order.len() { 0 } else { self.at + 1 };
        self.order[self.at] as usize
    }
}

fn bench_set(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, keys: &[[u8; 16]], value: &[u8]) {
    let mut table = filled(keys, value);
    let mut out = ReplyBuffer::new();
    let (mut order, mut offset) = (Shuffled::new(keys.len()), 1);
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            offset += 1;
            out.clear();
            let key = &keys[order.next()];
            black_box(table.apply(black_box(&set(key, value)), offset, 1, &mut out))
        });
    });
}

/// As a replica applies a batch: it first touches what the batch needs, so that the waits for memory overlap. Compare
/// it with `table`, not with `bare`: the bare map is not touched first, so the work differs.
fn bench_warmed(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, keys: &[[u8; 16]], value: &[u8]) {
    const BATCH: usize = 16;
    let mut table = filled(keys, value);
    let mut out = ReplyBuffer::new();
    let (mut order, mut offset) = (Shuffled::new(keys.len()), 1);
    group.throughput(Throughput::Elements(BATCH as u64));
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            let drawn: [&[u8]; BATCH] = std::array::from_fn(|_| &keys[order.next()][..]);
            table.warm(drawn.into_iter());
            let batch = drawn.map(|key| set(key, value));
            for command in &batch {
                offset += 1;
                out.clear();
                black_box(table.apply(command, offset, 1, &mut out));
            }
        });
    });
}

fn bench_get(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, keys: &[[u8; 16]], value: &[u8]) {
    let mut table = filled(keys, value);
    let mut out = ReplyBuffer::new();
    let mut order = Shuffled::new(keys.len());
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            out.clear();
            let key = &keys[order.next()];
            black_box(table.read(black_box(&Command::Get { key }), 1, &mut out))
        });
    });
}

/// Updates and reads in a map: `$map` is built by `$new`.
macro_rules! bench_map {
    ($group:expr, $name:expr, $new:expr, $keys:expr, $value:expr) => {{
        let (keys, value): (&[[u8; 16]], &[u8]) = ($keys, $value);
        let mut map = $new;
        for key in keys {
            map.insert(Box::<[u8]>::from(&key[..]), Box::<[u8]>::from(value));
        }
        let mut order = Shuffled::new(keys.len());
        $group.bench_function(concat!("update/", $name), |bencher| {
            bencher.iter(|| {
                let key = &keys[order.next()];
                // As a table does: in place when the size allows.
                match map.get_mut(black_box(&key[..])) {
                    Some(kept) if kept.len() == value.len() => kept.copy_from_slice(black_box(value)),
                    Some(kept) => *kept = value.into(),
                    None => drop(map.insert(key[..].into(), value.into())),
                }
            });
        });
        let mut out = Vec::new();
        $group.bench_function(concat!("get/", $name), |bencher| {
            bencher.iter(|| {
                out.clear();
                let key = &keys[order.next()];
                out.extend_from_slice(map.get(black_box(&key[..])).map_or(&b""[..], |value| value));
                black_box(out.len())
            });
        });
    }};
}

fn small(criterion: &mut Criterion) {
    let value = [b'v'; 64];
    let mut group = criterion.benchmark_group("one_key");
    bench_set(&mut group, "update/table", &keys(1), &value);
    bench_get(&mut group, "get/table", &keys(1), &value);
    bench_map!(group, "bare", Bare::with_hasher(BuildSameHash(&HASH)), &keys(1), &value);
    bench_map!(group, "std", Std::new(), &keys(1), &value);
    group.finish();

    let mut group = criterion.benchmark_group("thousand_keys");
    let keys = keys(1000);
    bench_set(&mut group, "update/table", &keys, &value);
    bench_get(&mut group, "get/table", &keys, &value);
    bench_map!(group, "bare", Bare::with_hasher(BuildSameHash(&HASH)), &keys, &value);
    bench_map!(group, "std", Std::new(), &keys, &value);
    group.finish();
}

fn million(criterion: &mut Criterion) {
    let value = [b'v'; 64];
    let mut group = criterion.benchmark_group("million_keys");
    let keys = keys(MILLION);
    bench_set(&mut group, "update/table", &keys, &value);
    bench_get(&mut group, "get/table", &keys, &value);
    bench_map!(group, "bare", Bare::with_hasher(BuildSameHash(&HASH)), &keys, &value);
    bench_map!(group, "std", Std::new(), &keys, &value);
    bench_warmed(&mut group, "update/table_16_at_once", &keys, &value);
    group.finish();
}

fn value_sizes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("value_sizes");
    let distinct = keys(10_000);
    for size in [64, 256, 1024, 4096] {
        let value = vec![b'v'; size];
        group.throughput(Throughput::Bytes(size as u64));
        bench_set(&mut group, &format!("same_key/{size}"), &distinct[..1], &value);
        bench_set(&mut group, &format!("distinct_keys/{size}"), &distinct, &value);
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(30);
    targets = small, million, value_sizes
}
criterion_main!(benches);

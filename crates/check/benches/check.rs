//! The cost of a check: many keys with little contention, few keys with much, and cases in which searches are hard.

#![allow(missing_docs)]

use std::hint::black_box;

use check::{Action, Answer, History, Operation, Outcome, Verdict, linearizable};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

#[derive(Clone, Copy)]
struct Load {
    clients: u64,
    operations: u64,
    keys: u64,
    /// Every value is written once, or values are drawn from this many.
    values: Option<u64>,
    unknown_per_thousand: u64,
    counters: bool,
}

/// The history of closed-loop clients of an atomic store: half reads, half writes, each taking effect at a drawn
/// instant.
fn history(load: Load) -> History {
    let mut random = Random(7);
    let mut history = History::new();
    let mut clocks = vec![0; load.clients as usize];
    let mut planned: Vec<(u64, Operation)> = Vec::new();
    for number in 0..load.operations {
        let client = number % load.clients;
        let start: u64 = clocks[client as usize] + random.below(20_000);
        let end = start + 50_000 + random.below(200_000);
        clocks[client as usize] = end;
        let key = history.key(format!("key:{}", random.below(load.keys)).as_bytes());
        let is_read = random.below(2) == 0;
        let value = load.values.map_or(number, |values| random.below(values));
        let action = match (is_read, load.counters) {
            (true, _) => Action::Get,
            (false, false) => Action::Set(history.value(format!("value-{value}").as_bytes())),
            (false, true) => Action::Increment(1),
        };
        let is_unknown = random.below(1000) < load.unknown_per_thousand;
        let outcome = if is_unknown { Outcome::Unknown } else { Outcome::Ok(Answer::Done) };
        let late = if is_unknown { random.below(1_000_000) } else { 0 };
        let instant = start + random.below(end - start + 1) + late;
        let end = Some(end);
        planned.push((
            instant,
            Operation { client, node: None, key, action, start, end, outcome, version: None },
        ));
    }
    planned.sort_by_key(|(instant, _)| *instant);
    let mut values = vec![None; load.keys as usize];
    let mut sums = vec![0; load.keys as usize];
    for (_, mut operation) in planned {
        let (value, sum) = (&mut values[operation.key.index()], &mut sums[operation.key.index()]);
        let answer = match operation.action {
            Action::Set(new) => {
                *value = Some(new);
                Answer::Done
            }
            Action::Increment(delta) => {
                *sum += delta;
                *value = Some(history.value(sum.to_string().as_bytes()));
                Answer::Sum(*sum)
            }
            _ => Answer::Value(*value),
        };
        if operation.outcome != Outcome::Unknown {
            operation.outcome = Outcome::Ok(answer);
        }
        history.push(operation);
    }
    history
}

fn checks(criterion: &mut Criterion) {
    let plain = Load {
        clients: 16,
        operations: 1_000_000,
        keys: 1000,
        values: None,
        unknown_per_thousand: 0,
        counters: false,
    };
    let contended = Load { clients: 32, operations: 65_536, keys: 10, ..plain };
    let cases = [
        ("1 M operations, 1000 keys, 16 clients", plain),
        ("1 M operations, 1 key, 16 clients", Load { keys: 1, ..plain }),
        ("64 k operations, 10 keys, 32 clients", contended),
        ("64 k operations, 10 keys, 32 clients, 5 % unknown", Load { unknown_per_thousand: 50, ..contended }),
        ("64 k operations, 10 keys, 32 clients, 5 values", Load { values: Some(5), ..contended }),
        ("64 k operations, 10 counters, 32 clients", Load { counters: true, ..contended }),
        (
            "64 k operations, 10 counters, 32 clients, 5 % unknown",
            Load { counters: true, unknown_per_thousand: 50, ..contended },
        ),
    ];
    let mut group = criterion.benchmark_group("check");
    group.sample_size(10);
    for (name, load) in cases {
        let history = history(load);
        group.throughput(Throughput::Elements(load.operations));
        group.bench_function(name, |bencher| {
            bencher.iter(|| assert!(matches!(linearizable(black_box(&history)), Verdict::Ok { .. })));
        });
    }
    group.finish();
}

criterion_group!(benches, checks);
criterion_main!(benches);

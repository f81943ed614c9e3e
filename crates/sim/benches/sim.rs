//! How fast the simulated world turns: 60 calm seconds of five nodes at 100 operations per second, checked; and runs of a search,
//! with all their faults.

#![allow(missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sim::{Calm, Protocol, Settings};

fn calm(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("five calm nodes, 100 operations per second");
    // Elements are simulated seconds.
    const SECONDS: u64 = 60;
    group.throughput(Throughput::Elements(SECONDS)).sample_size(20);
    for protocol in Protocol::ALL.into_iter().filter(|protocol| protocol.check().is_ok()) {
        let calm = Calm { nodes: 5, rate: 100, seconds: SECONDS };
        let settings = Settings { protocol: Some(protocol), calm: Some(calm), ..Settings::default() };
        group.bench_function(protocol.name(), |bencher| {
            bencher.iter(|| {
                let report = sim::run(1, &settings, false);
                assert_eq!(report.failure, None);
                report.digest
            });
        });
    }
}

fn search(criterion: &mut Criterion) {
    const SEEDS: std::ops::RangeInclusive<u64> = 1..=20;
    let run = |protocol| {
        let settings = Settings { protocol, ..Settings::default() };
        let simulated_us = SEEDS.map(|seed| {
            let report = sim::run(seed, &settings, false);
            assert_eq!(report.failure, None);
            report.simulated_us
        });
        simulated_us.sum::<u64>()
    };
    let mut group = criterion.benchmark_group("20 runs with all faults");
    group.sample_size(10);
    for (name, protocol) in [("all protocols", None), ("consensus", Some(Protocol::Consensus))] {
        group.throughput(Throughput::Elements(run(protocol) / 1_000_000));
        group.bench_function(name, |bencher| bencher.iter(|| run(protocol)));
    }
}

/// The allocator of the program that is deployed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

criterion_group!(benches, calm, search);
criterion_main!(benches);

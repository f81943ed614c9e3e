//! How fast the simulated world turns: 60 calm seconds of five nodes at 100 operations per second, checked.

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

criterion_group!(benches, calm);
criterion_main!(benches);

//! The cost of cutting values into fragments and reconstructing them, on one core.
//!
//! `encode` computes n - k fragments, with n = 2k - 1: the largest k for a group of n. `decode` reconstructs a value
//! that has lost as many parts as possible.

use coding::Layout;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;

fn directions(criterion: &mut Criterion) {
    for (name, length) in
        [("1KB", 1 << 10), ("32KB", 32 << 10), ("1MB", 1 << 20), ("4MB", 4 << 20), ("16MB", 16 << 20)]
    {
        let value: Vec<u8> =
            (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(length as u64));
        group.sample_size(10).warm_up_time(Duration::from_millis(100));
        group.measurement_time(Duration::from_millis(400));
        for parts in 2..=10u8 {
            let layout = Layout::new(length, parts).expect("there are parts");
            let computed = parts..2 * parts - 1;
            let mut out = Vec::new();
            group.bench_function(format!("encode/{parts}+{}", parts - 1), |bencher| {
                bencher.iter(|| {
                    // In a node's order: a piece for each member, then the next stripe.
                    for stripe in 0..layout.stripes() {
                        for number in computed.clone() {
                            out.clear();
                            layout.encode(black_box(&value), number, stripe, &mut out);
                        }
                    }
                });
            });
            let numbers: Vec<u8> = computed.clone().chain([0]).collect();
            let pieces: Vec<Vec<Vec<u8>>> = (0..layout.stripes())
                .map(|stripe| {
                    let encode = |number: &u8| {
                        let mut piece = Vec::new();
                        layout.encode(&value, *number, stripe, &mut piece);
                        piece
                    };
                    numbers.iter().map(encode).collect()
                })
                .collect();
            group.bench_function(format!("decode/{parts}+{}", parts - 1), |bencher| {
                bencher.iter(|| {
                    out.clear();
                    for (stripe, pieces) in pieces.iter().enumerate() {
                        let held: Vec<(u8, &[u8])> =
                            numbers.iter().copied().zip(pieces.iter().map(Vec::as_slice)).collect();
                        layout.join(stripe, black_box(&held), &mut out).expect("there are enough");
                    }
                });
            });
        }
    }
}

criterion_group!(benches, directions);
criterion_main!(benches);

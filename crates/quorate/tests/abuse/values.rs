//! Values of the maximum length, from many clients at once.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bounded::{Cluster, rounds};
use crate::support::{Client, connect, request};

/// A node with 300 MiB accepts values of 9 MiB: few are in flight at a time, the others wait in their sockets, and
/// small commands overtake them.
#[test]
fn long_values_wait_for_each_other_but_small_commands_do_not() {
    let mut cluster = Cluster::start(3, "[limits]\nmemory_max = 314572800\n");
    let value = vec![b'v'; 9 << 20];
    let is_over = AtomicBool::new(false);
    let (answered, worst) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..rounds(6, 30))
            .map(|number| {
                let (cluster, value) = (&cluster, &value);
                scope.spawn(move || {
                    let mut answered = 0;
                    for index in 0..rounds(2, 10) {
                        let mut stream = connect(cluster.client_port(number as u16 % 3 + 1));
                        let key = format!("value:{}", (number + index) % 4);
                        // A client whose large request is incomplete may be closed.
                        if stream.write_all(&request(&[b"SET", key.as_bytes(), value])).is_ok() {
                            answered += usize::from(Client::of(stream).line() == "+OK");
                        }
                    }
                    answered
                })
            })
            .collect();
        let beside = scope.spawn(|| {
            let (mut client, mut worst) = (cluster.client(1), Duration::ZERO);
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let answer = client.ask("SET beside it");
                assert!(answer == "+OK" || answer.starts_with('-'), "{answer:?}");
                worst = worst.max(begun.elapsed());
                std::thread::sleep(Duration::from_millis(1));
            }
            worst
        });
        let answered: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        is_over.store(true, Ordering::Relaxed);
        (answered, beside.join().unwrap())
    });
    println!("{answered} values were written; the slowest SET beside them took {worst:?}");
    assert!(answered > 0 && worst < Duration::from_secs(4), "{answered} values, {worst:?}");
    cluster.assert_serves();
}

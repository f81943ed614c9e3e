//! Large hashes: a change takes hardly longer than a change of a small hash, and other clients are served between
//! many changes.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::bounded::{Cluster, rounds};
use crate::support::{connect, request, until};

/// 9 MB, and thousands of changes at once.
#[test]
fn changes_of_a_large_hash_do_not_delay_others() {
    let mut cluster = Cluster::start(3, "");
    let mut client = cluster.client(1);
    for part in 0..9 {
        let mut words = vec![b"HSET".to_vec(), b"large".to_vec()];
        for field in 0..9000 {
            words.push(format!("field:{part}:{field}").into_bytes());
            words.push(vec![b'v'; 80]);
        }
        let fields = request(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
        // On a busy machine the leader may change between two batches, which a client sees as an error.
        until("fields are set", || {
            client.send(&fields);
            !client.line().starts_with('-')
        });
    }
    assert_eq!(client.ask("HLEN large"), ":81000");
    let mut attackers = Vec::new();
    for number in 0..rounds(8, 50) {
        let mut stream = connect(cluster.client_port(number as u16 % 3 + 1));
        stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        // The first field, longer and shorter in turn.
        let value = |index: usize| vec![b'w'; 80 + index % 2];
        let changes = (0..1000).flat_map(|index| request(&[b"HSET", b"large", b"field:0:0", &value(index)]));
        let _ = stream.write_all(&changes.collect::<Vec<u8>>());
        attackers.push(stream);
    }
    let (mut worst, mut count) = (Duration::ZERO, 0);
    let end = Instant::now() + Duration::from_secs(rounds(3, 20) as u64);
    while Instant::now() < end {
        let begun = Instant::now();
        let answer = client.ask("SET beside it");
        assert!(answer == "+OK" || answer.starts_with('-'), "{answer:?}");
        worst = worst.max(begun.elapsed());
        count += usize::from(answer == "+OK");
    }
    // The attackers are served too.
    for stream in &mut attackers {
        assert!(stream.read(&mut [0; 4]).unwrap() > 0);
    }
    assert!(count > 0, "no SET succeeded beside them");
    println!("{count} SETs beside, the slowest took {worst:?}");
    assert!(worst < Duration::from_secs(1), "{worst:?}");
    drop(attackers);
    cluster.assert_serves();
}

//! The hit rate of a cache under load: `cargo run -p quorate-server --release --example hit_rate -- HOST:PORT [KEYS] [READS] [THETA] [SCANNED]`.
//!
//! Reads keys with `GET` and sets those that are missing, as users of a cache do. Keys have Zipf's distribution: the `n`-th
//! is read in proportion to `1 / n^THETA`. Which key is the `n`-th is random. The first half of the reads fills the cache and
//! is not counted. SCANNED percent of the reads go to other keys, each of which is read once; these are not counted either.
//! The same keys are read in the same order every time, so that servers can be compared.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

const VALUE_BYTES: usize = 100;
/// Reads that are sent together; the sets of the missing keys are sent after the whole batch.
const BATCH: usize = 16;

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual: f64| arguments.get(at).and_then(|it| it.parse().ok()).unwrap_or(usual);
    let address = arguments.first().expect("an address");
    let (keys, reads, theta) =
        (number(1, 200_000.0) as usize, number(2, 2_000_000.0) as usize, number(3, 0.99));
    let scanned = number(4, 0.0) / 100.0;
    let mut sums = Vec::with_capacity(keys);
    let mut sum = 0.0;
    for rank in 1..=keys {
        sum += (rank as f64).powf(-theta);
        sums.push(sum);
    }
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut replies = BufReader::new(stream.try_clone()?);
    let (mut requests, mut stream) = (Vec::new(), stream);
    let value = "v".repeat(VALUE_BYTES);
    let (mut hits, mut counted, mut line, mut skipped) = (0u64, 0u64, String::new(), Vec::new());
    let mut once = 0u64;
    for batch in 0..reads / BATCH {
        let names: Vec<(bool, String)> = (0..BATCH)
            .map(|_| {
                if scanned > 0.0 && draw() < scanned {
                    once += 1;
                    return (false, format!("one:{once:016x}"));
                }
                let drawn = draw() * sum;
                let rank = sums.partition_point(|sum| *sum < drawn) as u64;
                (true, format!("key:{:016x}", rank.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            })
            .collect();
        requests.clear();
        for (_, name) in &names {
            write!(requests, "*2\r\n$3\r\nGET\r\n${}\r\n{name}\r\n", name.len())?;
        }
        stream.write_all(&requests)?;
        requests.clear();
        let mut missing = 0;
        for (is_counted, name) in &names {
            line.clear();
            replies.read_line(&mut line)?;
            let is_hit = line != "$-1\r\n";
            if is_hit {
                let length: usize = line[1..].trim().parse().expect("the length of a value");
                skipped.resize(length + 2, 0);
                replies.read_exact(&mut skipped)?;
            } else {
                missing += 1;
                let (length, bytes) = (name.len(), value.len());
                write!(requests, "*3\r\n$3\r\nSET\r\n${length}\r\n{name}\r\n${bytes}\r\n{value}\r\n")?;
            }
            if *is_counted && batch >= reads / BATCH / 2 {
                counted += 1;
                hits += u64::from(is_hit);
            }
        }
        stream.write_all(&requests)?;
        for _ in 0..missing {
            line.clear();
            replies.read_line(&mut line)?;
            assert_eq!(line, "+OK\r\n", "a value is refused");
        }
    }
    println!("{:.2} % of {counted} reads", hits as f64 * 100.0 / counted as f64);
    Ok(())
}

//! The cost of parsing requests and writing replies.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kv::{Reply, ReplyBuffer};
use wire::frame;
use wire::handshake::{Acceptor, Dialer, Identity};
use wire::resp::{Limits, Progress, Protocol, RequestParser, write_reply};

fn set_request(value_bytes: usize) -> Vec<u8> {
    let head = format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000001\r\n${value_bytes}\r\n");
    [head.as_bytes(), &vec![b'x'; value_bytes], b"\r\n"].concat()
}

fn requests(criterion: &mut Criterion) {
    let limits = Limits { authenticated: true, ..Limits::default() };
    let mut group = criterion.benchmark_group("request");
    for value_bytes in [16, 64] {
        let request = set_request(value_bytes);
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("set_{value_bytes}_bytes"), |bencher| {
            let mut parser = RequestParser::new();
            bencher.iter(|| {
                let progress = parser.parse(black_box(&request), black_box(&limits));
                assert!(matches!(progress, Ok(Progress::Complete { .. })));
                black_box(parser.arguments(&request));
            });
        });
    }

    let pipelines = [("set", set_request(16)), ("inline_ping", b"PING\r\n".to_vec())];
    for (name, request) in pipelines {
        let pipeline = request.repeat(64);
        group.throughput(Throughput::Elements(64));
        group.bench_function(format!("pipeline_of_64_{name}"), |bencher| {
            let mut parser = RequestParser::new();
            bencher.iter(|| {
                let mut rest = black_box(&pipeline[..]);
                while let Ok(Progress::Complete { consumed }) = parser.parse(rest, black_box(&limits)) {
                    black_box(parser.arguments(rest));
                    rest = &rest[consumed..];
                }
                assert!(rest.is_empty());
            });
        });
    }
    group.finish();
}

fn replies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("reply");
    let value = [b'x'; 64];
    let kinds =
        [("ok", Reply::Ok), ("integer", Reply::Integer(1234567)), ("bulk_64_bytes", Reply::Bulk(&value))];
    for (name, reply) in kinds {
        let mut encoded = ReplyBuffer::new();
        (0..64).for_each(|_| encoded.push(reply));
        group.throughput(Throughput::Elements(64));
        group.bench_function(format!("64_times_{name}"), |bencher| {
            let mut out = Vec::new();
            bencher.iter(|| {
                out.clear();
                let written = write_reply(black_box(encoded.as_bytes()), Protocol::Resp2, &mut out);
                assert!(written.is_ok());
                black_box(&out);
            });
        });
    }
    group.finish();
}

fn frames(criterion: &mut Criterion) {
    const MESSAGES: [(&str, usize); 2] = [("256_bytes", 256), ("64_kib", 64 * 1024)];
    let identity = |node| Identity::new("main", node, b"secret").expect("a usable identity");
    let (dialer, hello) = Dialer::new(identity(2), [1; 16]);
    let mut acceptor = Acceptor::new(identity(1), [2; 16]);
    let challenge = acceptor.on_hello(&hello, |_| true).expect("a right hello");
    let (proof, _, mut dialing) = dialer.on_challenge(&challenge, |_| true).expect("a right challenge");
    let (_, mut accepting) = acceptor.on_proof(&proof).expect("a right proof");
    let mut group = criterion.benchmark_group("frame");
    for (name, payload_bytes) in MESSAGES {
        let message = vec![7; payload_bytes];
        group.throughput(Throughput::Bytes(payload_bytes as u64));
        group.bench_function(format!("seal_and_open_{name}"), |bencher| {
            let mut out = Vec::new();
            bencher.iter(|| {
                out.clear();
                frame::append(&mut out, |payload| payload.extend_from_slice(black_box(&message)));
                dialing.sealer.seal(&mut out);
                dialing.sealer.removed(out.len());
                let opened = accepting.opener.next(black_box(&mut out), 1 << 20);
                assert!(matches!(opened, Ok(frame::Next::Frame { .. })));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, requests, replies, frames);
criterion_main!(benches);

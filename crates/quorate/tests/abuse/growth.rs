//! What a write adds is charged before it is done: short scripts, transactions and payloads that grow to many times their
//! size are refused or stopped, and no node exceeds its memory.

use std::io::Write;

use crate::bounded::{Cluster, rounds};
use crate::support::{Client, connect, request, until};

const BOUNDED: &str = "[limits]\nmemory_max = 268435456\n";
const MEMORY_BYTES: u64 = 268_435_456;

/// A payload of `RESTORE`: a list of `count` elements of about `bytes` bytes, which take 88 times less.
fn compressed_list(count: u32, bytes: u32) -> Vec<u8> {
    let blocks = bytes / 264;
    let element = [&[0, b'z'][..], &[0xe0, 0xff, 0].repeat(blocks as usize)].concat();
    let long = |number: u32| [&[0x80][..], &number.to_be_bytes()].concat();
    let mut payload = [&[18][..], &long(count)].concat();
    for _ in 0..count {
        payload.extend_from_slice(&[1, 0xc3]);
        payload.extend(long(element.len() as u32));
        payload.extend(long(1 + 264 * blocks));
        payload.extend_from_slice(&element);
    }
    // The version, and no checksum.
    payload.extend_from_slice(&[10, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    payload
}

/// The leader of all keys, and a client of it: what it orders must not depend on forwarding.
fn client(cluster: &Cluster, node: u16) -> Client {
    Client::of(connect(cluster.client_port(node)))
}

/// No node has taken more than its memory and an eighth of it.
fn assert_within(cluster: &mut Cluster) {
    cluster.assert_serves();
    for node in 1..=3 {
        let peak = cluster.peak_bytes(node);
        assert!(peak <= MEMORY_BYTES + MEMORY_BYTES / 8, "node {node} has taken {} MiB", peak >> 20);
    }
}

fn is_oom(line: &str) -> bool {
    line.starts_with("-OOM ")
}

#[test]
fn a_script_that_adds_too_much_is_stopped_and_undone() {
    let mut cluster = Cluster::start(3, BOUNDED);
    for rounds in [60, 1_000_000] {
        let text = format!("for i=1,{rounds} do redis.call('setbit','c'..i,60000000,1) end return 1");
        let mut client = client(&cluster, 1);
        client.send(request(&[b"EVAL", text.as_bytes(), b"1", b"key"]));
        let line = client.line();
        assert!(is_oom(&line), "{line}");
        assert_eq!(client.ask("EXISTS c1"), ":0", "nothing of it was kept");
    }
    // What is caught in the script ends it, too.
    let text = "for i=1,60 do redis.pcall('setbit','c'..i,60000000,1) end return 1";
    let mut client = client(&cluster, 2);
    client.send(request(&[b"EVAL", text.as_bytes(), b"1", b"key"]));
    assert!(is_oom(&client.line()));
    assert_eq!(client.ask("EVAL \"return redis.call('incr',KEYS[1])\" 1 counter"), ":1");
    assert_within(&mut cluster);
}

#[test]
fn scripts_under_way_together_share_what_is_left() {
    let mut cluster = Cluster::start(3, BOUNDED);
    let mut stream = connect(cluster.client_port(1));
    let count = rounds(150, 1500);
    let text = "for i=1,6 do redis.call('setrange',KEYS[1]..i,1000000,'x') end return 1";
    let mut all = Vec::new();
    for number in 0..count {
        all.extend(request(&[b"EVAL", text.as_bytes(), b"1", format!("k{number}:").as_bytes()]));
    }
    stream.write_all(&all).unwrap();
    let mut client = Client::of(stream);
    let lines: Vec<String> = (0..count).map(|_| client.line()).collect();
    let (done, refused) =
        (lines.iter().filter(|line| *line == ":1").count(), lines.iter().filter(|line| is_oom(line)).count());
    println!("{done} done, {refused} refused; peak {} MiB", cluster.peak_bytes(1) >> 20);
    // How many are done depends on how many are under way at once.
    assert!(done > 0 && refused > 0 && done + refused == count, "{done} done, {refused} refused: {lines:?}");
    assert_within(&mut cluster);
    assert_eq!(client.ask("FLUSHALL"), "+OK");
    // Scripts that add little are not refused, however many come at once.
    until("there is room again", || {
        client.ask("EVAL \"return redis.call('incr',KEYS[1])\" 1 c") == ":1" || {
            client.ask("DEL c");
            false
        }
    });
    let one = request(&[b"EVAL", b"return redis.call('incr',KEYS[1])", b"1", b"counter"]);
    let count = rounds(2000, 20_000);
    let mut stream = connect(cluster.client_port(2));
    stream.write_all(&one.repeat(count)).unwrap();
    let mut client = Client::of(stream);
    for number in 1..=count {
        assert_eq!(client.line(), format!(":{number}"));
    }
}

#[test]
fn what_payloads_expand_to_is_charged_before_it_is_done() {
    let mut cluster = Cluster::start(3, BOUNDED);
    let mut alone = client(&cluster, 1);
    // 4 MiB that would be 350.
    alone.send(request(&[b"RESTORE", b"large", b"0", &compressed_list(350, 1 << 20)]));
    assert!(is_oom(&alone.line()));
    // 60 kB each that are 5 MiB.
    let small = compressed_list(5, 1 << 20);
    alone.send(request(&[b"RESTORE", b"small", b"0", &small]));
    assert_eq!(alone.line(), "+OK");
    assert_eq!(alone.ask("LLEN small"), ":5");
    assert_eq!(alone.ask("MULTI"), "+OK");
    for number in 0..100 {
        alone.send(request(&[b"RESTORE", format!("multi{number}").as_bytes(), b"0", &small]));
        assert_eq!(alone.line(), "+QUEUED");
    }
    let line = alone.ask("EXEC");
    assert!(line.contains("OOM"), "{line}");
    let text = "for i=1,100 do redis.call('restore',KEYS[1]..i,0,ARGV[1]) end return 1";
    alone.send(request(&[b"EVAL", text.as_bytes(), b"1", b"script", &small]));
    assert!(is_oom(&alone.line()));
    assert_within(&mut cluster);
}

#[test]
fn short_commands_that_make_long_strings_are_charged() {
    let mut cluster = Cluster::start(3, BOUNDED);
    let mut stream = connect(cluster.client_port(1));
    let count = rounds(100, 400);
    let all: Vec<u8> = (0..count)
        .flat_map(|number| {
            request(&[b"BITFIELD", format!("d{number}").as_bytes(), b"SET", b"u8", b"40000000", b"1"])
        })
        .collect();
    stream.write_all(&all).unwrap();
    let mut client = Client::of(stream);
    let mut refused = 0;
    for _ in 0..count {
        match client.line() {
            line if line == "*1" => assert_eq!(client.line(), ":0"),
            line if is_oom(&line) => refused += 1,
            line => panic!("{line}"),
        }
    }
    assert!(refused > 0);
    assert_within(&mut cluster);
}

#[test]
fn copies_of_what_an_earlier_command_of_the_same_pipeline_stores_are_charged() {
    let mut cluster = Cluster::start(3, BOUNDED);
    let count = rounds(100, 400);
    let mut all = request(&[b"SETRANGE", b"source", b"4000000", b"x"]);
    for number in 0..count {
        all.extend(request(&[b"COPY", b"source", format!("copy{number}").as_bytes()]));
    }
    let mut stream = connect(cluster.client_port(1));
    stream.write_all(&all).unwrap();
    let mut client = Client::of(stream);
    let lines: Vec<String> = (0..=count).map(|_| client.line()).collect();
    assert!(lines.iter().any(|line| is_oom(line)) && lines.iter().any(|line| line == ":1"), "{lines:?}");
    assert_within(&mut cluster);
}

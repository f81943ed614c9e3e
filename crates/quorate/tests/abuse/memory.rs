//! Memory: whatever clients store, hold or request, a node refuses requests or closes connections before the kernel
//! kills it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use crate::bounded::{Cluster, rounds};
use crate::support::{Client, connect, request, until};

/// Three quarters of the memory of a node's control group, which is also the default.
const BOUNDED: &str = "[limits]\nmemory_max = 314572800\n";

/// The reply to a command that would make the data larger.
const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";

/// A connection that gives up when the node reads nothing for a while: the node may have closed it, or accept no
/// more.
fn attacker(cluster: &Cluster, number: usize) -> TcpStream {
    let stream = connect(cluster.client_port(number as u16 % 3 + 1));
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    stream
}

/// Sends requests over several connections at once, until each has sent `count`. Reads all replies, and counts the
/// out-of-memory errors. Every request of every connection is different.
fn flood(
    cluster: &Cluster,
    connections: usize,
    count: usize,
    make: impl Fn(usize, usize) -> Vec<u8> + Sync,
) -> usize {
    let refused = |number: usize| {
        let mut stream = attacker(cluster, number);
        stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let reading = std::thread::spawn(move || {
            let (mut refused, mut buffer, mut kept) = (0, vec![0; 1 << 16], Vec::new());
            loop {
                match reader.read(&mut buffer) {
                    Ok(0) => return refused,
                    Ok(bytes) => {
                        kept.extend_from_slice(&buffer[..bytes]);
                        let end = kept.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                        let lines = kept[..end].split(|byte| *byte == b'\n');
                        refused += lines.filter(|line| line.starts_with(b"-OOM")).count();
                        kept.drain(..end);
                    }
                    // This times out only when everything was sent and answered, or if the node hangs.
                    Err(_) => return refused,
                }
            }
        });
        for index in 0..count {
            if stream.write_all(&make(number, index)).is_err() {
                break;
            }
        }
        let _ = stream.write_all(b"QUIT\r\n");
        reading.join().unwrap()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections).map(|number| scope.spawn(move || refused(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// Writes more than fits, in values of different sizes. Afterwards reads and deletions still work, and deletions make
/// room.
#[test]
fn plain_sets_end_with_oom_and_deletions_make_room() {
    let mut cluster = Cluster::start(3, BOUNDED);
    for (bytes, count) in [(100_000, rounds(1200, 6000)), (100, rounds(20_000, 500_000))] {
        let value = vec![b'v'; bytes];
        let refused = flood(&cluster, 6, count, |number, index| {
            request(&[b"SET", format!("key:{bytes}:{number}:{index}").as_bytes(), &value])
        });
        println!("{refused} SETs of {bytes} bytes were refused; peak {} MiB", cluster.peak_bytes(1) >> 20);
        assert!(refused > 0 || bytes == 100, "nothing was refused");
    }
    cluster.assert_serves();
    let mut client = cluster.client(1);
    assert_eq!(client.ask("GET key:100000:0:0"), "$100000");
    client.bytes(100_002);
    // Requests in flight during the flood used a part of the memory, which data may use now.
    let mut filler = 0;
    until("it is full", || {
        filler += 1;
        client.send(request(&[b"SET", format!("filler:{filler}").as_bytes(), &[b'v'; 100_000]]));
        client.line() == OOM
    });
    assert_eq!(client.ask("SET one more"), OOM);
    assert_eq!(client.ask("MULTI"), "+OK");
    assert_eq!(client.ask("SET one more"), "+QUEUED");
    assert_eq!(client.ask("EXEC"), format!("-EXECABORT Transaction discarded because of: {}", &OOM[1..]));
    assert!(client.ask("LOCK name owner PX 1000") == OOM);
    assert_eq!(client.ask("EVAL \"return redis.call('SET',KEYS[1],'v')\" 1 one"), OOM);
    assert_eq!(client.ask("FLUSHALL"), "+OK");
    until("there is room again", || client.ask("SET one more") == "+OK");
    cluster.assert_serves();
}

/// Commands of a few bytes with huge results.
#[test]
fn short_commands_with_large_results_are_refused_in_time() {
    let mut cluster = Cluster::start(3, BOUNDED);
    let refused = flood(&cluster, 6, rounds(200, 2000), |number, index| {
        request(&[b"SETRANGE", format!("pad:{number}:{index}").as_bytes(), b"9000000", b"x"])
    });
    assert!(refused > 0);
    cluster.assert_serves();
    let mut client = cluster.client(2);
    until("all is deleted", || client.ask("FLUSHALL") == "+OK");
    until("there is room again", || client.ask("SETRANGE source 5000000 x") == ":5000001");
    let refused = flood(&cluster, 6, rounds(200, 2000), |number, index| {
        request(&[b"COPY", b"source", format!("copy:{number}:{index}").as_bytes()])
    });
    assert!(refused > 0);
    cluster.assert_serves();
    assert_eq!(client.ask("MULTI"), "+OK");
    for index in 0..500 {
        assert_eq!(client.ask(&format!("SETRANGE multi:{index} 9000000 x")), "+QUEUED");
    }
    assert_eq!(client.ask("EXEC"), format!("-EXECABORT Transaction discarded because of: {}", &OOM[1..]));
    cluster.assert_serves();
}

#[test]
fn locks_count_as_data() {
    let mut cluster = Cluster::start(3, BOUNDED);
    let (name, owner) = ("n".repeat(1000), "o".repeat(256));
    let refused = flood(&cluster, 6, rounds(40_000, 100_000), |number, index| {
        let name = format!("{name}:{number}:{index}");
        request(&[b"LOCK", name.as_bytes(), owner.as_bytes(), b"PX", b"600000"])
    });
    assert!(refused > 0);
    cluster.assert_serves();
}

/// Registers have no leader: the coordinator refuses.
#[test]
fn registers_refuse_writes_too() {
    let keyspace = "[[keyspace]]\nprefix = \"r:\"\nreplication = \"abd\"\n";
    let mut cluster = Cluster::start(3, &format!("{BOUNDED}{keyspace}"));
    let value = vec![b'v'; 100_000];
    let refused = flood(&cluster, 6, rounds(1200, 6000), |number, index| {
        request(&[b"SET", format!("r:{number}:{index}").as_bytes(), &value])
    });
    assert!(refused > 0);
    cluster.assert_serves();
}

#[test]
fn clients_that_do_not_read_their_replies_are_closed() {
    let mut cluster = Cluster::start(3, BOUNDED);
    let mut client = cluster.client(1);
    let mut all = vec![b"MGET".to_vec()];
    for index in 0..100 {
        let key = format!("k{index}");
        client.send(request(&[b"SET", key.as_bytes(), &[b'v'; 90_000]]));
        assert_eq!(client.line(), "+OK");
        all.push(key.into_bytes());
    }
    let ask = request(&all.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let closed = || (1..=3).map(|id| cluster.metric(id, "quorate_memory_clients_closed_total")).sum::<u64>();
    let mut streams = Vec::new();
    // On a busy machine the leader may change, and a client gets a short error: it then requests again.
    until("the largest are closed", || {
        streams.clear();
        for number in 0..rounds(60, 600) {
            let mut stream = attacker(&cluster, number);
            let _ = stream.write_all(&ask.repeat(10));
            streams.push(stream);
        }
        let by = Instant::now() + Duration::from_secs(3);
        while closed() == 0 && Instant::now() < by {
            std::thread::sleep(Duration::from_millis(10));
        }
        closed() > 0
    });
    println!("{} clients were closed", closed());
    // A client that reads is served throughout.
    let begun = Instant::now();
    assert_eq!(client.ask("GET k7"), "$90000");
    println!("a reader waited for {:?}", begun.elapsed());
    cluster.assert_serves();
}

#[test]
fn listeners_that_do_not_read_are_closed() {
    let mut cluster = Cluster::start(3, BOUNDED);
    let mut listeners = Vec::new();
    for number in 0..rounds(60, 600) {
        let mut stream = attacker(&cluster, number);
        let _ = stream.write_all(b"SUBSCRIBE news\r\n");
        let _ = stream.read(&mut [0; 100]);
        listeners.push(stream);
    }
    let news = vec![b'n'; 500_000];
    flood(&cluster, 3, rounds(30, 200), |_, _| request(&[b"PUBLISH", b"news", &news]));
    cluster.assert_serves();
    drop(listeners);
    // Names use memory too.
    let name = "c".repeat(1000);
    let mut listeners = Vec::new();
    for number in 0..rounds(20, 200) {
        let mut stream = attacker(&cluster, number);
        for index in 0..10_000 {
            if stream.write_all(&request(&[b"SUBSCRIBE", format!("{name}{index}").as_bytes()])).is_err() {
                break;
            }
        }
        listeners.push(stream);
    }
    cluster.assert_serves();
}

#[test]
fn unfinished_requests_are_bounded_together() {
    let mut cluster = Cluster::start(3, BOUNDED);
    let mut streams = Vec::new();
    let part = vec![b'v'; 8_000_000];
    for number in 0..rounds(60, 300) {
        let mut stream = attacker(&cluster, number);
        let _ = stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$8100000\r\n");
        let _ = stream.write_all(&part);
        streams.push(stream);
    }
    for number in 0..rounds(30, 300) {
        let port = cluster.http_port(number as u16 % 3 + 1);
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let head = "POST /put HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 8100000\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(&part);
        streams.push(stream);
    }
    cluster.assert_serves();
}

/// Commands queued after `MULTI`, watched keys, and names.
#[test]
fn memory_of_sessions_is_bounded_together() {
    let mut cluster = Cluster::start(3, BOUNDED);
    let mut streams = Vec::new();
    let value = vec![b'v'; 5_000_000];
    for number in 0..rounds(60, 300) {
        let mut stream = attacker(&cluster, number);
        let _ = stream.write_all(b"MULTI\r\n");
        let _ = stream.write_all(&request(&[b"SET", b"k", &value]).repeat(2));
        streams.push(stream);
    }
    cluster.assert_serves();
    streams.clear();
    for number in 0..rounds(60, 300) {
        let mut stream = attacker(&cluster, number);
        let _ = stream.write_all(&request(&[b"CLIENT", b"SETNAME", &value]));
        let mut answer = [0; 4];
        let _ = stream.read(&mut answer);
        assert_ne!(&answer, b"+OK\r", "a name of {} bytes", value.len());
        streams.push(stream);
    }
    cluster.assert_serves();
}

/// Requests of a few hundred bytes with replies of 450 MB used to crash a node, and in a script every replica, at
/// every start.
#[test]
fn replies_that_repeat_a_value_too_often_are_refused() {
    let mut cluster = Cluster::start(3, BOUNDED);
    let mut client = cluster.client(1);
    let value = vec![b'v'; 9_000_000];
    client.send(request(&[b"SET", b"{t}value", &value]));
    assert_eq!(client.line(), "+OK");
    client.send(request(&[b"HSET", b"{t}hash", b"f", &value]));
    assert_eq!(client.line(), ":1");
    let many = |words: &[&[u8]], word: &[u8]| request(&[words, &vec![word; 50]].concat());
    let mget = many(&[b"MGET"], b"{t}value");
    let in_script = b"return #redis.call('MGET', unpack(KEYS))";
    let answered =
        b"local v = redis.call('GET', KEYS[1]) local t = {} for i = 1, 50 do t[i] = v end return t";
    let attacks = [
        mget.clone(),
        many(&[b"HMGET", b"{t}hash"], b"f"),
        [&b"MULTI\r\n"[..], &b"GET {t}value\r\n".repeat(50), b"EXEC\r\n"].concat(),
        [&b"MULTI\r\nSET {t}other x\r\n"[..], &b"HGETALL {t}hash\r\n".repeat(50), b"EXEC\r\n"].concat(),
        many(&[b"EVAL", in_script, b"50"], b"{t}value"),
        request(&[b"EVAL", answered, b"1", b"{t}value"]),
    ];
    for (number, attack) in attacks.iter().enumerate() {
        for id in 1..=3 {
            let mut stream = connect(cluster.client_port(id));
            stream.write_all(&attack.repeat(rounds(2, 20))).unwrap();
            assert!(stream.read(&mut [0; 4]).unwrap() > 0, "attack {number}");
            drop(stream);
            cluster.assert_alive();
        }
    }
    assert!(client.ask("FLUSHALL") == "+OK");
    cluster.assert_takes_writes();
}

/// A parsed pattern used to take 32 times its length, uncounted: eleven clients crashed a node of 400 MiB.
#[test]
fn patterns_are_bounded_together() {
    let mut cluster = Cluster::start(3, BOUNDED);
    let mut listeners = Vec::new();
    let mut refused = 0;
    for number in 0..rounds(20, 100) {
        let mut stream = attacker(&cluster, number);
        // All bytes occur, so that each has a separate class.
        let mut pattern: Vec<u8> =
            (0..990).map(|at| (at % 256) as u8).filter(|byte| !b"*[\\".contains(byte)).collect();
        pattern.push(b'*');
        for index in 0..250 {
            let end = format!("{number}:{index}");
            if stream.write_all(&request(&[b"PSUBSCRIBE", &[&pattern[..], end.as_bytes()].concat()])).is_err()
            {
                break;
            }
        }
        let mut answers = vec![0; 1 << 20];
        let mut read = 0;
        while let Ok(count @ 1..) = stream.read(&mut answers[read..]) {
            read += count;
        }
        refused += answers.windows(11).filter(|window| window == b"-ERR the cl").count();
        listeners.push(stream);
    }
    println!("{refused} patterns were refused; peak {} MiB", cluster.peak_bytes(1) >> 20);
    assert!(refused > 0);
    cluster.assert_takes_writes();
    drop(listeners);
    let mut client = cluster.client(1);
    until("there is room again", || {
        let answer = client.ask("PSUBSCRIBE news*");
        answer.starts_with('*')
    });
}

/// Requests on their way to a frozen leader, which wait for it.
#[test]
fn requests_under_way_are_bounded_together() {
    let mut cluster = Cluster::start(3, BOUNDED);
    let value = vec![b'v'; 1_000_000];
    let mut streams = Vec::new();
    for number in 0..rounds(40, 200) {
        let mut stream = attacker(&cluster, number);
        for index in 0..20 {
            let key = format!("k:{number}:{index}");
            if stream.write_all(&request(&[b"SET", key.as_bytes(), &value])).is_err() {
                break;
            }
        }
        streams.push(stream);
    }
    cluster.assert_serves();
}

/// Clients that read a long value over HTTP together wait for each other: each reply, and the longer JSON that is made of it, is
/// counted until it is sent.
#[test]
fn long_answers_over_http_wait_for_memory() {
    const VALUE_BYTES: usize = 8_000_000;
    let mut cluster = Cluster::start(1, "[limits]\nmemory_max = 268435456\nvalue_bytes_max = 8388608\n");
    // Bytes that are no text, which JSON has as base64.
    let value: Vec<u8> = (0..VALUE_BYTES).map(|at| (at * 7 % 251) as u8 | 0x80).collect();
    let mut client = Client::of(connect(cluster.client_port(1)));
    client.send(request(&[b"SET", b"b", &value]));
    assert_eq!(client.line(), "+OK");
    let port = cluster.http_port(1);
    let readers: Vec<_> = (0..rounds(40, 200))
        .map(|_| {
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
                stream
                    .write_all(b"GET /get/b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    .unwrap();
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).unwrap();
                let head = String::from_utf8_lossy(&answer[..answer.len().min(200)]).into_owned();
                assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
                assert!(answer.len() > VALUE_BYTES.div_ceil(3) * 4, "{} bytes", answer.len());
            })
        })
        .collect();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    cluster.assert_serves();
    let peak = cluster.peak_bytes(1);
    assert!(peak <= 268_435_456, "the node has taken {} MiB", peak >> 20);
}

/// A client that reads nothing of its answer over HTTP holds the memory of long answers: it is disconnected while others wait.
#[test]
fn clients_that_read_nothing_over_http_keep_nobody_waiting() {
    let mut cluster = Cluster::start(1, "[limits]\nmemory_max = 268435456\nvalue_bytes_max = 8388608\n");
    let mut client = Client::of(connect(cluster.client_port(1)));
    client.send(request(&[b"SET", b"b", &vec![0xff; 8_000_000]]));
    assert_eq!(client.line(), "+OK");
    let ask = || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, cluster.http_port(1))).unwrap();
        stream.write_all(b"GET /get/b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        stream
    };
    // Two such answers take more than the sixteenth of memory_max that there is for all.
    let idle: Vec<_> = (0..2).map(|_| ask()).collect();
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    let mut answer = Vec::new();
    ask().read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 OK") && answer.len() > 10_000_000);
    let waited = begun.elapsed();
    assert!(waited < Duration::from_secs(15), "it has waited for {waited:?}");
    drop(idle);
    cluster.assert_serves();
}

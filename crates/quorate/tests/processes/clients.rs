//! The client port: bytes may arrive in pieces of any size, and a client must not harm others.

use std::io::Write;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

use super::support::{Client, Server, free_ports, quorate, request, signal, until};

#[test]
fn requests_may_end_anywhere_in_the_stream() {
    let server = Server::start("", "");
    let mut client = server.client();
    let mut bytes = request(&[b"SET", b"key", b"a\r\nb"]);
    bytes.extend_from_slice(b"GET key\r\n");
    bytes.extend(request(&[b"PING"]));
    for byte in bytes {
        client.send([byte]);
    }
    assert_eq!(client.bytes(22), b"+OK\r\n$4\r\na\r\nb\r\n+PONG\r\n");
}

#[test]
fn a_deep_pipeline_is_answered_in_order() {
    let server = Server::start("", "");
    let mut client = server.client();
    const REQUESTS: usize = 30_000;
    let mut writer = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        for number in 0..REQUESTS {
            writer.write_all(&request(&[b"ECHO", number.to_string().as_bytes()])).unwrap();
        }
    });
    for number in 0..REQUESTS {
        let length = client.line();
        assert_eq!(length, format!("${}", number.to_string().len()));
        assert_eq!(client.line(), number.to_string());
    }
    sender.join().unwrap();
}

#[test]
fn a_large_value_is_written_and_read_while_others_are_served() {
    let server = Server::start("", "");
    let value: Vec<u8> =
        (0..10_000_000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (mut large, mut small) = (server.client(), server.client());
    let bytes = request(&[b"SET", b"large", &value]);
    let (first, second) = bytes.split_at(bytes.len() / 2);
    large.send(first);
    assert_eq!(small.ask("PING"), "+PONG");
    large.send(second);
    assert_eq!(large.line(), "+OK");
    large.send("GET large\r\n");
    assert_eq!(small.ask("PING"), "+PONG");
    assert_eq!(large.line(), "$10000000");
    assert!(large.bytes(value.len()) == value);
    assert_eq!(large.line(), "");
    assert_eq!(large.ask("PING"), "+PONG");
}

/// A turn reads a limited amount from clients, so some must wait for the next.
#[test]
fn clients_that_always_send_more_delay_no_other() {
    let server = Server::start("", "");
    let is_over = AtomicBool::new(false);
    let bytes = request(&[b"SET", b"key", &[7; 16 << 10]]).repeat(16);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let mut client = server.client();
            let (is_over, bytes) = (&is_over, &bytes);
            scope.spawn(move || {
                let mut sent = 0;
                while !is_over.load(Ordering::Relaxed) {
                    client.send(bytes);
                    sent += 16;
                }
                (0..sent).for_each(|_| assert_eq!(client.line(), "+OK"));
            });
        }
        let mut small: Vec<Client> = (0..10).map(|_| server.client()).collect();
        for _ in 0..50 {
            small.iter_mut().for_each(|client| client.send("PING\r\n"));
            small.iter_mut().for_each(|client| assert_eq!(client.line(), "+PONG"));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// A turn reads several clients before it executes the first one's requests. While the process is stopped, all of them send,
/// so that the next turn finds them together.
#[test]
fn clients_that_are_read_together_each_get_their_own_replies_in_order() {
    const ROUNDS: usize = 5;
    const KINDS: usize = 8;
    let server = Server::start("", "");
    for round in 0..ROUNDS {
        let mut clients: Vec<Client> = (0..5 * KINDS).map(|_| server.client()).collect();
        clients.iter_mut().for_each(|client| assert_eq!(client.ask("PING"), "+PONG"));
        let deep =
            |number: usize| (0..number + 600).map(|at| format!("ECHO {number}:{at}\r\n")).collect::<String>();
        signal(server.process(), Signal::STOP);
        for (number, client) in clients.iter_mut().enumerate() {
            match number % KINDS {
                0 => client.send(format!("SET {round}:{number} mine\r\nGET {round}:{number}\r\n")),
                1 => client.send("PING\r\n*2\r\n$4\r\nECHO\r\n$6\r\nhal"),
                2 => client.send(deep(number)),
                3 => client.send(format!("BLPOP {round}:{number} 0\r\nPING\r\n")),
                4 => client.send("PING\r\n*1\r\n!4\r\n"),
                5 => client.send("MULTI\r\nINCR count\r\nGET none\r\nEXEC\r\n"),
                6 => client.send("*1\r\n"),
                _ => {
                    client.send("ECHO last\r\nGET k");
                    client.stream.shutdown(Shutdown::Write).unwrap();
                }
            }
        }
        signal(server.process(), Signal::CONT);
        // The unfinished requests are completed now, the last client's first.
        for (number, client) in clients.iter_mut().enumerate().rev() {
            match number % KINDS {
                1 => client.send("ves\r\n"),
                6 => client.send("$4\r\nPING\r\n"),
                3 => assert_eq!(server.client().ask(&format!("RPUSH {round}:{number} job")), ":1"),
                _ => {}
            }
        }
        let mut counts = Vec::new();
        for (number, client) in clients.iter_mut().enumerate() {
            let mut expect = |lines: &[&str]| lines.iter().for_each(|line| assert_eq!(client.line(), *line));
            match number % KINDS {
                0 => expect(&["+OK", "$4", "mine"]),
                1 => expect(&["+PONG", "$6", "halves"]),
                2 => (0..number + 600).for_each(|at| {
                    let text = format!("{number}:{at}");
                    expect(&[&format!("${}", text.len()), &text]);
                }),
                3 => {
                    let key = format!("{round}:{number}");
                    expect(&["*2", &format!("${}", key.len()), &key, "$3", "job", "+PONG"]);
                }
                4 => assert_eq!(client.rest(), b"+PONG\r\n-ERR Protocol error: expected '$', got '!'\r\n"),
                5 => {
                    expect(&["+OK", "+QUEUED", "+QUEUED", "*2"]);
                    counts.push(client.line());
                    assert_eq!(client.line(), "$-1");
                }
                6 => expect(&["+PONG"]),
                _ => assert_eq!(client.rest(), b"$4\r\nlast\r\n"),
            }
        }
        let first = round * counts.len();
        let expected = (first..first + counts.len()).map(|before| format!(":{}", before + 1));
        assert!(counts.iter().cloned().eq(expected), "served in the order of their arrival: {counts:?}");
    }
}

#[test]
fn a_client_that_closes_its_half_still_gets_its_replies() {
    let server = Server::start("", "");
    let mut client = server.client();
    client.send("SET key value\r\nGET key\r\nGET k");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.rest(), b"+OK\r\n$5\r\nvalue\r\n");
}

#[test]
fn a_protocol_error_follows_earlier_replies_and_closes_only_that_client() {
    let server = Server::start("", "");
    let (mut wrong, mut right) = (server.client(), server.client());
    wrong.send(b"PING\r\n*1\r\n!4\r\nPING\r\n");
    assert_eq!(wrong.rest(), b"+PONG\r\n-ERR Protocol error: expected '$', got '!'\r\n");
    assert_eq!(right.ask("PING"), "+PONG");
}

#[test]
fn quit_is_answered_before_the_end() {
    let server = Server::start("", "");
    let mut client = server.client();
    client.send("PING\r\nQUIT\r\nPING\r\n");
    assert_eq!(client.rest(), b"+PONG\r\n+OK\r\n");
}

#[test]
fn an_unfinished_request_is_closed_and_idle_clients_are_not() {
    let server = Server::start("", "[limits]\nrequest_timeout_ms = 200\n");
    let (mut slow, mut idle) = (server.client(), server.client());
    assert_eq!(idle.ask("PING"), "+PONG");
    // New bytes do not extend the time: the whole request is late.
    let mut writer = slow.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        let endless = b"*2\r\n$4\r\nECHO\r\n$1000000\r\n".iter().chain(std::iter::repeat(&b'x'));
        for byte in endless {
            if writer.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    assert_eq!(slow.rest(), b"-ERR the request took too long to arrive\r\n");
    sender.join().unwrap();
    assert_eq!(server.metric("quorate_clients_too_slow_total"), 1);
    assert_eq!(idle.ask("PING"), "+PONG");
}

#[test]
fn a_client_above_the_limit_gets_an_error_and_a_free_place_is_reused() {
    let server = Server::start("", "[limits]\nconnections_max = 3\n");
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.ask("PING"), "+PONG");
    }
    assert_eq!(server.client().rest(), b"-ERR max number of clients reached\r\n");
    assert_eq!(clients[0].ask("PING"), "+PONG");
    clients.pop();
    until("there is room again", || {
        let mut client = server.client();
        client.stream.write_all(b"PING\r\n").is_ok() && client.line() == "+PONG"
    });
}

#[test]
fn when_unfinished_requests_take_too_much_the_largest_is_closed() {
    let server = Server::start("", "[limits]\ninput_bytes_max = 4000000\n");
    let begin = |bytes: usize| {
        let mut client = server.client();
        client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{}", bytes + 1, "x".repeat(bytes)));
        client
    };
    let mut small = begin(1_000_000);
    until("the first has arrived", || server.metric("quorate_input_bytes") >= 1_000_000);
    let mut largest = begin(2_500_000);
    until("the second has arrived", || server.metric("quorate_input_bytes") >= 3_500_000);
    let mut last = begin(1_000_000);
    let output = String::from_utf8(largest.rest()).unwrap();
    assert!(output.starts_with("-ERR unfinished requests take too much memory"), "{output}");
    for client in [&mut small, &mut last] {
        client.send("x\r\n");
        assert_eq!(client.line(), "+OK");
    }
}

#[test]
fn a_client_that_does_not_read_is_not_read_either_and_others_are_served() {
    let server = Server::start("", "");
    let mut deaf = server.client();
    let echo = request(&[b"ECHO", &[b'x'; 100_000]]);
    // Far more replies than sockets hold: at some point no more requests are read.
    deaf.stream.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let blocked = loop {
        match deaf.stream.write(&echo[sent % echo.len()..]) {
            Ok(count) => sent += count,
            Err(error) => break error,
        }
        assert!(sent < 100_000_000, "everything was taken");
    };
    assert_eq!(blocked.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(server.client().ask("PING"), "+PONG");

    // Once it reads, it gets everything, and its requests are read again.
    deaf.stream.set_nonblocking(false).unwrap();
    let mut writer = deaf.stream.try_clone().unwrap();
    let rest = echo[sent % echo.len()..].to_vec();
    let requests = sent / echo.len() + 1;
    let sender = std::thread::spawn(move || writer.write_all(&rest).unwrap());
    for _ in 0..requests {
        assert_eq!(deaf.line(), "$100000");
        deaf.bytes(100_002);
    }
    sender.join().unwrap();
    assert_eq!(deaf.ask("PING"), "+PONG");
}

#[test]
fn many_clients_come_and_go() {
    let server = Server::start("", "");
    for _ in 0..20 {
        let mut clients: Vec<Client> = (0..50).map(|_| server.client()).collect();
        for client in &mut clients {
            client.send("PING\r\n");
        }
        for client in &mut clients {
            assert_eq!(client.line(), "+PONG");
        }
    }
    assert_eq!(server.client().ask("PING"), "+PONG");
}

#[test]
fn the_binary_listens_on_ipv6_if_configured() {
    let base = free_ports(3);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    let config = super::support::configuration(base, 1, "bind = \"::1\"", "");
    std::fs::write(&file, config).unwrap();
    let mut child = quorate()
        .arg("server")
        .arg("--config")
        .arg(&file)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // A machine without IPv6 refuses the address, and the node reports that and ends.
    until("it listens or has ended", || {
        std::net::TcpStream::connect(("::1", base)).is_ok() || child.try_wait().unwrap().is_some()
    });
    let _ = child.kill();
    let _ = child.wait();
}

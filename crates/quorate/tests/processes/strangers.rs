//! Requests of strangers: pages of other sites, guesses of passwords, and patterns and commands that would block
//! others.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::support::{Client, Server, connect, request, signal, until};

/// A browser sends a page's request to any port, with a body that the page has chosen.
#[test]
fn a_command_in_the_body_of_a_post_is_not_executed() {
    let server = Server::start("", "");
    for head in ["POST / HTTP/1.1", "post /x HTTP/1.0", "GET / HTTP/1.1\r\nHost:evil.example"] {
        let mut stream = connect(server.client_port);
        let body = format!("{head}\r\nHost: 127.0.0.1\r\nContent-Length: 20\r\n\r\nSET planted {head}\r\n");
        // The connection may be closed before all of it is sent.
        let _ = stream.write_all(body.as_bytes());
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"+OK"), "{head}: {}", answer.escape_ascii());
        assert_eq!(server.client().ask("EXISTS planted"), ":0", "{head}");
    }
    until("it is logged", || server.log().contains("possible attack"));
    assert_eq!(server.log().matches("possible attack").count(), 1, "{}", server.log());
    let mut client = server.client();
    client.send("INFO stats\r\n");
    let length: usize = client.line()[1..].parse().unwrap();
    let info = String::from_utf8(client.bytes(length)).unwrap();
    assert!(info.contains("http_requests_refused:3\r\n"), "{info}");
}

#[test]
fn http_accepts_nothing_that_a_page_of_another_site_can_send() {
    let server = Server::start("http_hosts = [\"store.example\"]\n", "");
    let put = r#"{"key": "planted", "value": "v"}"#;
    let cases = [
        ("POST /put HTTP/1.1\r\nHost: evil.example", 403, "HOST"),
        ("GET /get/k HTTP/1.1\r\nHost: evil.example:8000", 403, "HOST"),
        ("GET /health HTTP/1.1\r\nHost: evil.example", 403, "HOST"),
        ("GET http://evil.example/get/k HTTP/1.1", 421, "HOST"),
        ("GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost", 400, "BADREQUEST"),
        ("POST /put HTTP/1.1\r\nOrigin: http://evil.example", 403, "ORIGIN"),
        ("DELETE /k HTTP/1.1\r\nOrigin: null", 403, "ORIGIN"),
        ("GET /metrics HTTP/1.1\r\nSec-Fetch-Site: cross-site", 403, "ORIGIN"),
        ("POST /put HTTP/1.1\r\nContent-Type: text/plain", 415, "CONTENTTYPE"),
        ("POST /put HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded", 415, "CONTENTTYPE"),
        ("POST /keyspaces HTTP/1.1\r\nContent-Type: text/plain", 415, "CONTENTTYPE"),
    ];
    for (head, expected, code) in cases {
        let (status, answer) = server.json(head, put);
        assert_eq!((status, answer["code"].as_str()), (expected, Some(code)), "{head}: {answer}");
    }
    assert_eq!(server.client().ask("EXISTS planted"), ":0");
    for host in ["localhost:8000", "store.example", "STORE.example:80", "[::1]:8000", "192.0.2.7"] {
        let (status, answer) = server.json(&format!("POST /put HTTP/1.1\r\nHost: {host}"), put);
        assert_eq!(status, 200, "{host}: {answer}");
    }
}

/// Connections without a request take all places; a health check gets one of theirs.
#[test]
fn half_open_connections_do_not_block_health() {
    let server = Server::start("", "[limits]\nhttp_connections_max = 20\n");
    let mut open = Vec::new();
    for number in 0..60 {
        let mut stream = connect(server.http_port);
        if number % 2 == 0 {
            let _ = stream.write_all(b"GET /health HTT");
        }
        open.push(stream);
    }
    let begun = Instant::now();
    let (status, _) = server.http("GET /health HTTP/1.1", "");
    assert_eq!(status, 200);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// The same with requests whose bodies never arrive.
#[test]
fn bodies_that_never_arrive_do_not_block_health() {
    let server = Server::start("", "[limits]\nhttp_connections_max = 20\n");
    let mut open = Vec::new();
    for _ in 0..60 {
        let mut stream = connect(server.http_port);
        let head = "POST /put HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{";
        let _ = stream.write_all(head.as_bytes());
        open.push(stream);
    }
    let begun = Instant::now();
    let (status, _) = server.http("GET /health HTTP/1.1", "");
    assert_eq!(status, 200);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// Unauthenticated connections take all places; a client that knows the password gets one of theirs.
#[test]
fn clients_that_do_not_authenticate_do_not_lock_out_those_that_do() {
    let server = Server::start("password = \"the right one\"\n", "[limits]\nconnections_max = 50\n");
    let auth = |client: &mut Client| {
        client.send(request(&[b"AUTH", b"the right one"]));
        client.line()
    };
    let mut early = Client::connect(server.client_port);
    assert_eq!(auth(&mut early), "+OK");
    let strangers: Vec<_> = (0..200).map(|_| connect(server.client_port)).collect();
    let mut late: Vec<_> = (0..40).map(|_| Client::connect(server.client_port)).collect();
    assert!(late.iter_mut().all(|client| auth(client) == "+OK"));
    assert_eq!(early.ask("SET k v"), "+OK", "who has authenticated stays");
    drop(strangers);
    // When all are authenticated, the next one is refused.
    let mut more = Vec::new();
    let is_refused = || {
        let mut stream = connect(server.client_port);
        let _ = stream.write_all(&request(&[b"AUTH", b"the right one"]));
        let mut answer = [0; 40];
        let read = stream.read(&mut answer).unwrap_or(0);
        more.push(stream);
        answer[..read].starts_with(b"-ERR max number of clients")
    };
    until("all places are taken", is_refused);
}

#[test]
fn guesses_of_a_password_are_slowed_down_counted_and_logged() {
    let server = Server::start("password = \"the right one\"\n", "");
    let port = server.client_port;
    let auth = |word: &str| request(&[b"AUTH", word.as_bytes()]);
    // One connection: its replies are delayed, and more so the more it guesses.
    let mut client = Client::connect(port);
    let begun = Instant::now();
    for _ in 0..20 {
        client.send(auth("wrong"));
        assert!(client.line().starts_with("-WRONGPASS"));
    }
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
    // Many connections: beyond a limit their guesses are not compared with the password.
    let mut clients: Vec<Client> = (0..300).map(|_| Client::connect(port)).collect();
    let begun = Instant::now();
    clients.iter_mut().for_each(|client| client.send(auth("wrong")));
    let answers: Vec<String> = clients.iter_mut().map(Client::line).collect();
    let guesses = answers.iter().filter(|answer| answer.starts_with("-WRONGPASS")).count();
    assert!(guesses >= 50, "an application with an old password is not shut out at once: {guesses}");
    let place = answers.iter().position(|answer| answer.contains("too many failed attempts"));
    let place = place.unwrap_or_else(|| panic!("guesses go on without an end: {guesses}"));
    assert!(begun.elapsed() >= Duration::from_secs(1), "the refusal takes its time");
    assert_eq!(clients[place].rest(), b"", "and ends the connection");
    // Others are still served, and the right password is accepted as soon as the address is no longer blocked.
    until("the right password is taken", || {
        let mut client = Client::connect(port);
        client.send(auth("the right one"));
        client.line() == "+OK"
    });
    until("it is logged", || server.log().contains("failed to authenticate"));
    let log = server.log();
    assert!((1..=6).contains(&log.matches("failed to authenticate").count()), "{log}");
    // The same over HTTP, although all these requests are under way before the first is known to be wrong.
    let head = "GET /get/k HTTP/1.1\r\nAuthorization: Bearer wrong";
    let begun = Instant::now();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..300).map(|_| scope.spawn(|| server.http(head, "").0)).collect();
        asking.into_iter().map(|asking| asking.join().unwrap()).collect()
    });
    let number_of = |status: u16| statuses.iter().filter(|given| **given == status).count();
    // A hundred at once, and twenty more in each second.
    let most = 100 + 20 * (begun.elapsed().as_secs() as usize + 1);
    assert!((50..=most).contains(&number_of(401)), "{most} at most: {statuses:?}");
    assert_eq!(number_of(401) + number_of(429), 300, "{statuses:?}");
}

#[test]
fn beyond_loopback_the_default_user_cannot_change_the_cluster_and_changes_are_logged() {
    let server =
        Server::start("bind = \"0.0.0.0\"\npassword = \"for all\"\noperator_password = \"for few\"\n", "");
    let mut client = Client::connect(server.client_port);
    client.send(request(&[b"AUTH", b"for all"]));
    assert_eq!(client.line(), "+OK");
    assert_eq!(client.ask("SET k v"), "+OK");
    for asked in ["KEYSPACE CREATE c:", "CLUSTER REMOVE 1", "ACL SETUSER mallory on nopass +@all"] {
        let answer = client.ask(asked);
        assert!(answer.starts_with("-NOPERM User default has no permissions"), "{asked}: {answer}");
        assert!(answer.contains("operator_password") && answer.contains("default_user"), "{answer}");
    }
    let answer = client.ask("CONFIG SET maxmemory 100mb");
    assert!(answer.starts_with("-NOPERM this changes the default keyspace"), "{answer}");
    assert_eq!(client.ask("CONFIG SET slowlog-max-len 7"), "+OK");
    assert_eq!(client.ask("FLUSHALL"), "+OK");
    client.send(request(&[b"AUTH", b"operator", b"for few"]));
    assert_eq!(client.line(), "+OK");
    assert_eq!(client.ask("KEYSPACE CREATE c:"), "+OK");
    assert_eq!(client.ask("ACL SETUSER alice on >secret ~a:* +@read"), "+OK");
    assert!(client.ask("ACL SETUSER operator off").starts_with("-ERR the user 'operator' is made by"));
    assert_eq!(client.ask("KEYSPACE DROP c:"), "+OK");
    let authorization = "Authorization: Basic b3BlcmF0b3I6Zm9yIGZldw=="; // operator:for few
    let made = server.json(&format!("POST /keyspaces HTTP/1.1\r\n{authorization}"), r#"{"prefix": "d:"}"#);
    assert_eq!(made.0, 201, "{made:?}");
    client.send(request(&[b"AUTH", b"nobody", b"x"]));
    assert!(client.line().starts_with("-WRONGPASS"));
    let expected = [
        "audit: user 'default' at 127.0.0.1:",
        "removes all keys",
        "audit: user 'operator' at 127.0.0.1:",
        "has made keyspace 'c:'",
        "has set the user 'alice': on a new password ~a:* +@read",
        "has dropped keyspace 'c:'",
        "127.0.0.1 (HTTP) has made keyspace 'd:'",
        "has failed to authenticate as 'nobody'",
    ];
    for words in expected {
        until("it is logged", || server.log().contains(words));
    }
    assert!(!server.log().contains("secret"), "{}", server.log());
}

#[test]
fn debug_is_off_unless_the_configuration_enables_it() {
    let server = Server::start("", "");
    for asked in ["DEBUG SLEEP 1e9", "DEBUG SLEEP 0"] {
        let answer = server.client().ask(asked);
        assert!(answer.starts_with("-ERR DEBUG command not allowed."), "{answer}");
    }
}

#[test]
fn a_sleeping_client_delays_neither_others_nor_the_stop_of_the_node() {
    let mut server = Server::start("enable_debug_command = \"local\"\n", "");
    let (mut sleeper, mut other) = (server.client(), server.client());
    assert!(other.ask("DEBUG SLEEP 1e9").starts_with("-ERR DEBUG SLEEP takes 60 seconds at most"));
    let begun = Instant::now();
    sleeper.send("DEBUG SLEEP 0.5\r\nPING\r\n");
    assert_eq!(other.ask("PING"), "+PONG");
    assert!(begun.elapsed() < Duration::from_millis(400), "{:?}", begun.elapsed());
    assert_eq!((sleeper.line(), sleeper.line()), ("+OK".to_owned(), "+PONG".to_owned()));
    assert!(begun.elapsed() >= Duration::from_millis(500), "{:?}", begun.elapsed());
    sleeper.send("DEBUG SLEEP 60\r\n");
    assert_eq!(other.ask("PING"), "+PONG");
    signal(server.process(), Signal::TERM);
    let begun = Instant::now();
    assert_eq!(server.stop(), 0);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

/// With backtracking these took from ten seconds to minutes.
#[test]
fn matching_a_pattern_never_takes_exponential_time() {
    let server = Server::start("", "");
    let mut client = server.client();
    let long = b"x".repeat(60_000);
    for number in 0..50 {
        client.send(request(&[b"SET", &[&long[..], number.to_string().as_bytes()].concat(), b"v"]));
        assert_eq!(client.line(), "+OK");
    }
    let pattern = [&b"*["[..], &b"x".repeat(1000), b"]b"].concat();
    let begun = Instant::now();
    client.send(request(&[b"KEYS", &pattern]));
    assert_eq!(client.line(), "*0");
    client.send(request(&[b"KEYS", &b"*x".repeat(500)]));
    assert!(client.line().starts_with('*'));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let mut refused = server.client();
    refused.send(request(&[b"PSUBSCRIBE", &b"*".repeat(2000)]));
    assert_eq!(refused.line(), "-ERR the pattern is 2000 bytes long; at most 1024 are allowed");
}

//! Scripts with the replies of redis-server 7.0.15 (RESP3), from `replies.txt`. Each case has its own store, on which the
//! first script of the file was run. The program's tests compare the file with a redis-server.

use super::tests::Store;
use std::fmt::Write;
use wire::resp::{Protocol, write_reply};

/// The keys and the arguments in the file's header.
fn inputs() -> [Vec<&'static str>; 2] {
    let mut lines = HEADER_AND_CASES.0.lines().rev();
    let mut words = || lines.next().expect("a line of words").split(' ').collect();
    let arguments = words();
    [words(), arguments]
}

/// The file's cases: each a script of one or more lines, and its reply.
fn cases() -> impl Iterator<Item = (&'static str, &'static str)> {
    let cases = HEADER_AND_CASES.1.trim_end().split("\n\n");
    cases.map(|case| case.rsplit_once("\n=> ").expect("a case has a reply"))
}

static HEADER_AND_CASES: std::sync::LazyLock<(&str, &str)> =
    std::sync::LazyLock::new(|| include_str!("replies.txt").split_once("\n\n").expect("there is a header"));

/// Takes the first reply off, and writes it in the file's form.
fn show(reply: &mut &[u8], out: &mut String) {
    let end = reply.windows(2).position(|window| window == b"\r\n").expect("a reply has lines");
    let (line, rest) = reply.split_at(end);
    *reply = &rest[2..];
    let count = || std::str::from_utf8(&line[1..]).unwrap().parse::<usize>().unwrap();
    let (name, elements) = match line[0] {
        kind @ (b'$' | b'=') => {
            let (bytes, rest) = reply.split_at(count());
            *reply = &rest[2..];
            match kind {
                b'$' => write!(out, "'{}'", bytes.escape_ascii()).unwrap(),
                _ => write!(out, "text '{}'", bytes[4..].escape_ascii()).unwrap(),
            }
            return;
        }
        b'*' => ("[", count()),
        b'~' => ("set [", count()),
        b'%' => ("map [", 2 * count()),
        _ => {
            out.push_str(&String::from_utf8_lossy(line));
            return;
        }
    };
    out.push_str(name);
    for place in 0..elements {
        if place > 0 {
            out.push(' ');
        }
        show(reply, out);
    }
    out.push(']');
}

#[test]
fn scripts_reply_as_was_recorded_from_redis() {
    let [keys, arguments] = inputs();
    let (preparing, nothing) = cases().next().expect("there are cases");
    assert_eq!(nothing, "_");
    let mut different = String::new();
    for (script, expected) in cases() {
        let mut store = Store::new();
        store.eval(preparing, &keys, &arguments);
        let encoded = store.eval_encoded(script, &keys, &arguments);
        let mut reply = Vec::new();
        write_reply(&encoded, Protocol::Resp3, &mut reply).expect("a reply is well-formed");
        let (mut rest, mut shown) = (&*reply, String::new());
        show(&mut rest, &mut shown);
        assert!(rest.is_empty(), "{script}: one reply");
        if shown != expected {
            writeln!(different, "{script}\n  is        {shown}\n  should be {expected}").unwrap();
        }
    }
    assert!(different.is_empty(), "{different}");
}

//! The replies that clients read, in either version of the protocol.

use kv::codec::Malformed;
use kv::{Reply, ReplyBuffer};
use wire::resp::{Protocol, element_end, write_reply};

fn encoded(replies: &[Reply<'_>]) -> Vec<u8> {
    let mut buffer = ReplyBuffer::new();
    replies.iter().for_each(|reply| buffer.push(*reply));
    buffer.as_bytes().to_vec()
}

fn written(replies: &[Reply<'_>], protocol: Protocol) -> String {
    let mut out = Vec::new();
    write_reply(&encoded(replies), protocol, &mut out).expect("whole replies");
    String::from_utf8(out).expect("text")
}

#[track_caller]
fn assert_written(replies: &[Reply<'_>], resp2: &str, resp3: &str) {
    assert_eq!(written(replies, Protocol::Resp2), resp2);
    assert_eq!(written(replies, Protocol::Resp3), resp3);
}

#[test]
fn types_that_both_versions_write_alike() {
    for (reply, expected) in [
        (Reply::Ok, "+OK\r\n"),
        (Reply::Status(b"PONG"), "+PONG\r\n"),
        (Reply::Error(b"ERR syntax error"), "-ERR syntax error\r\n"),
        (Reply::Integer(0), ":0\r\n"),
        (Reply::Integer(-1), ":-1\r\n"),
        (Reply::Integer(i64::MAX), ":9223372036854775807\r\n"),
        (Reply::Integer(i64::MIN), ":-9223372036854775808\r\n"),
        (Reply::Bulk(b""), "$0\r\n\r\n"),
        (Reply::Bulk(b"a\r\nb"), "$4\r\na\r\nb\r\n"),
    ] {
        assert_written(&[reply], expected, expected);
    }
}

#[test]
fn types_missing_in_resp2_are_replaced() {
    assert_written(&[Reply::Null], "$-1\r\n", "_\r\n");
    assert_written(&[Reply::NullArray], "*-1\r\n", "_\r\n");
    assert_written(&[Reply::BigNumber(b"-12")], "$3\r\n-12\r\n", "(-12\r\n");
    assert_written(&[Reply::Boolean(true), Reply::Boolean(false)], ":1\r\n:0\r\n", "#t\r\n#f\r\n");
    assert_written(&[Reply::Double(1.5)], "$3\r\n1.5\r\n", ",1.5\r\n");
    let digits = "15.08726745843887329";
    let decimal = [Reply::Decimal(15.087_267_458_438_873)];
    assert_written(&decimal, &format!("$20\r\n{digits}\r\n"), &format!(",{digits}\r\n"));
    assert_written(&[Reply::Text(b"# Server")], "$8\r\n# Server\r\n", "=12\r\ntxt:# Server\r\n");
}

#[test]
fn aggregates_are_followed_by_their_elements() {
    let (a, b) = (Reply::Bulk(b"a"), Reply::Integer(1));
    assert_written(&[Reply::Array(2), a, b], "*2\r\n$1\r\na\r\n:1\r\n", "*2\r\n$1\r\na\r\n:1\r\n");
    assert_written(&[Reply::Set(1), a], "*1\r\n$1\r\na\r\n", "~1\r\n$1\r\na\r\n");
    assert_written(&[Reply::Map(1), a, b], "*2\r\n$1\r\na\r\n:1\r\n", "%1\r\n$1\r\na\r\n:1\r\n");
    let pairs = [Reply::Pairs(1), Reply::Pair, a, Reply::Double(1.5)];
    assert_written(&pairs, "*2\r\n$1\r\na\r\n$3\r\n1.5\r\n", "*1\r\n*2\r\n$1\r\na\r\n,1.5\r\n");
    assert_eq!(element_end(&[encoded(&pairs), encoded(&[b])].concat()), Ok(encoded(&pairs).len()));
    let entries = [Reply::Entries(1), Reply::Entry, a, b];
    assert_written(&entries, "*1\r\n*2\r\n$1\r\na\r\n:1\r\n", "%1\r\n$1\r\na\r\n:1\r\n");
    assert_eq!(element_end(&[encoded(&entries), encoded(&[b])].concat()), Ok(encoded(&entries).len()));
    assert_written(&[Reply::Array(0)], "*0\r\n", "*0\r\n");
    assert_written(&[Reply::Map(0)], "*0\r\n", "%0\r\n");
}

#[test]
fn aggregates_nest() {
    let nested = [Reply::Array(2), Reply::Map(1), Reply::Bulk(b"k"), Reply::Array(1), Reply::Ok, Reply::Null];
    assert_written(
        &nested,
        "*2\r\n*2\r\n$1\r\nk\r\n*1\r\n+OK\r\n$-1\r\n",
        "*2\r\n%1\r\n$1\r\nk\r\n*1\r\n+OK\r\n_\r\n",
    );
}

#[test]
fn a_line_end_in_a_status_or_an_error_cannot_forge_a_second_reply() {
    assert_written(&[Reply::Status(b"a\r\n:1")], "+a  :1\r\n", "+a  :1\r\n");
    assert_written(
        &[Reply::Error(b"ERR unknown command 'x\n+OK\r'")],
        "-ERR unknown command 'x +OK '\r\n",
        "-ERR unknown command 'x +OK '\r\n",
    );
}

#[test]
fn numbers_read_as_redis_writes_them() {
    for (value, expected) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (3.0, "3"),
        (-17.0, "-17"),
        (0.1, "0.1"),
        (-0.5, "-0.5"),
        (1.5e-5, "0.000015"),
        (1e-7, "1e-7"),
        (1.25e-9, "1.25e-9"),
        (123456.789, "123456.789"),
        (1e15, "1000000000000000"),
        (4503599627370497.0, "4503599627370497"),
        (1e17, "1e+17"),
        (1.2345e20, "1.2345e+20"),
        (1e100, "1e+100"),
        (f64::MAX, "1.7976931348623157e+308"),
        (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
    ] {
        assert_eq!(written(&[Reply::Double(value)], Protocol::Resp3), format!(",{expected}\r\n"));
    }
}

#[test]
fn replies_are_appended_to_what_is_there() {
    let mut out = b"+PONG\r\n".to_vec();
    write_reply(&encoded(&[Reply::Integer(1), Reply::Ok]), Protocol::Resp2, &mut out).expect("whole replies");
    assert_eq!(out, b"+PONG\r\n:1\r\n+OK\r\n");
}

#[test]
fn a_broken_reply_leaves_nothing_behind() {
    let mut too_short = encoded(&[Reply::Ok, Reply::Bulk(b"value")]);
    too_short.pop();
    let lacking = encoded(&[Reply::Ok, Reply::Array(2), Reply::Ok]);
    for broken in [too_short, lacking, vec![250]] {
        let mut out = b"+PONG\r\n".to_vec();
        assert!(write_reply(&broken, Protocol::Resp2, &mut out).is_err());
        assert_eq!(out, b"+PONG\r\n");
    }
}

#[test]
fn the_first_whole_reply_ends_where_the_second_begins() {
    let first = [Reply::Array(2), Reply::Map(1), Reply::Bulk(b"k"), Reply::Array(1), Reply::Ok, Reply::Null];
    let both = [encoded(&first), encoded(&[Reply::Integer(7)])].concat();
    assert_eq!(element_end(&both), Ok(encoded(&first).len()));
    for end in 0..encoded(&first).len() {
        assert_eq!(element_end(&both[..end]), Err(Malformed("ends early")), "cut at {end}");
    }
}

#[test]
fn depth_and_announced_sizes_cost_nothing() {
    let mut deep = encoded(&[Reply::Array(1)].repeat(100_000));
    assert!(element_end(&deep).is_err());
    deep.extend(encoded(&[Reply::Ok]));
    assert_eq!(element_end(&deep), Ok(deep.len()));
    assert!(write_reply(&deep, Protocol::Resp3, &mut Vec::new()).is_ok());

    let endless = encoded(&[Reply::Map(u32::MAX)]);
    assert!(element_end(&endless).is_err());
    assert!(write_reply(&endless, Protocol::Resp2, &mut Vec::new()).is_err());
}

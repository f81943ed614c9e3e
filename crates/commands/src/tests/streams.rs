//! Streams: which requests are refused, in the words of Redis 7.0.

use super::*;
use kv::{List, StreamCommand, Trim};

#[test]
fn options_of_streams_are_read() {
    let stream = |line: &str, expected: StreamCommand<'_>| assert_parses(line, OnStream(expected));
    let (key, group, consumer) = (KEY, &b"g"[..], &b"c"[..]);
    let mut scratch = Vec::new();
    let words = List::build(&mut scratch, [&b"*"[..], b"", b"f", b"v"]);
    stream("XADD k * f v", StreamCommand::Add { key, words, trim: None, if_present: false });
    let mut scratch = Vec::new();
    let words = List::build(&mut scratch, [&b"5-*"[..], b"9", b"f", b"v"]);
    let trim = Some(Trim { by_id: false, is_approximate: true, limit: 7, node_entries: 100 });
    stream(
        "XADD k maxlen ~ 9 LIMIT 7 NOMKSTREAM 5-* f v",
        StreamCommand::Add { key, words, trim, if_present: true },
    );
    let trim = Trim { by_id: true, is_approximate: false, limit: 0, node_entries: 100 };
    stream("XTRIM k MINID = 9", StreamCommand::Trim { key, threshold: b"9", trim });
    let trim = Trim { by_id: false, is_approximate: true, limit: 10_000, node_entries: 100 };
    stream("XTRIM k MAXLEN ~ 9", StreamCommand::Trim { key, threshold: b"9", trim });
    let mut scratch = Vec::new();
    let ends = List::build(&mut scratch, [&b"(1"[..], b"+"]);
    stream("XREVRANGE k + (1", StreamCommand::Range { key, ends, is_reverse: true, count: None });
    stream("XRANGE k (1 + COUNT -1", StreamCommand::Range { key, ends, is_reverse: false, count: Some(0) });
    let mut scratch = Vec::new();
    let streams = List::build(&mut scratch, [&b"k"[..], b"0", b"v", b"$"]);
    stream("XREAD COUNT 2 STREAMS k v 0 $", StreamCommand::Read { streams, count: 2 });
    let mut scratch = Vec::new();
    let streams = List::build(&mut scratch, [&b"k"[..], b">"]);
    stream(
        "XREADGROUP GROUP g c NOACK STREAMS k >",
        StreamCommand::ReadGroup { group, consumer, streams, count: 0, acknowledges: true },
    );
    stream(
        "XGROUP CREATE k g $ ENTRIESREAD 5 MKSTREAM",
        StreamCommand::CreateGroup { key, group, id: b"$", entries_read: 5, makes_stream: true },
    );
    let mut scratch = Vec::new();
    let words = List::build(&mut scratch, [group, b"-", b"+", consumer]);
    stream(
        "XPENDING k g IDLE 5 - + 9 c",
        StreamCommand::PendingRange { key, words, min_idle_ms: 5, count: 9 },
    );
    let mut scratch = Vec::new();
    let words = List::build(&mut scratch, [group, consumer, b"7", b"1", b"2-2"]);
    let (deliveries, delivered_ms) = (3, 99);
    stream(
        "XCLAIM k g c 5 1 2-2 TIME 99 RETRYCOUNT 3 FORCE JUSTID LASTID 7",
        StreamCommand::Claim {
            key,
            words,
            min_idle_ms: 5,
            delivered_ms,
            deliveries,
            is_idle: false,
            is_forced: true,
            only_ids: true,
        },
    );
    let mut scratch = Vec::new();
    let words = List::build(&mut scratch, [group, consumer, b"0"]);
    stream(
        "XAUTOCLAIM k g c 5 0",
        StreamCommand::ClaimRange { key, words, min_idle_ms: 5, count: 100, only_ids: false },
    );
    stream("XINFO STREAM k FULL COUNT 0", StreamCommand::InfoFull { key, count: 0 });
    stream("XINFO STREAM k FULL", StreamCommand::InfoFull { key, count: 10 });
}

#[test]
fn errors_of_commands_on_streams_are_those_of_redis() {
    let (syntax, integer) = ("ERR syntax error", "ERR value is not an integer or out of range");
    let not_an_id = "ERR Invalid stream ID specified as stream command argument";
    let limit = "ERR syntax error, LIMIT cannot be used without the special ~ option";
    for (line, expected) in [
        ("XADD s *", "ERR wrong number of arguments for 'xadd' command"),
        ("XADD s * f v g", "ERR wrong number of arguments for 'xadd' command"),
        ("XADD s 0-0 f v", "ERR The ID specified in XADD must be greater than 0-0"),
        ("XADD s x f v", not_an_id),
        ("XADD s maxlen -1 * a b", "ERR The MAXLEN argument must be >= 0."),
        ("XADD s maxlen x * a b", integer),
        (
            "XADD s maxlen 5 minid 5 * a b",
            "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
        ),
        (
            "XADD s limit 5 * a b",
            "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
        ),
        ("XADD s limit 0 * a b", limit),
        ("XADD s maxlen 5 limit 5 * a b", limit),
        ("XADD s maxlen ~ 5 limit -5 * a b", "ERR The LIMIT argument must be >= 0."),
        ("XADD s minid x * a b", not_an_id),
        ("XTRIM s foo 5", syntax),
        ("XTRIM s limit 5", "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"),
        ("XRANGE s - + count", syntax),
        ("XRANGE s - + foo 5", syntax),
        ("XRANGE s x +", not_an_id),
        ("XRANGE s - (0-0", "ERR invalid end ID for the interval"),
        ("XREAD count x streams s 0", integer),
        ("XREAD foo streams s 0", syntax),
        ("XREAD count 1 count 1", syntax),
        ("XREAD block x streams s 0", "ERR timeout is not an integer or out of range"),
        ("XREAD block -1 streams s 0", "ERR timeout is negative"),
        (
            "XREAD streams s 0 0",
            "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
        ),
        (
            "XREAD group a b streams s 0",
            "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
        ),
        (
            "XREAD noack streams s 0",
            "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
        ),
        ("XREADGROUP count 1 streams a b 0 0", "ERR Missing GROUP option for XREADGROUP"),
        ("XSETID s x", not_an_id),
        ("XSETID s 5 entriesadded", syntax),
        ("XSETID s 5 entriesadded -1", "ERR entries_added must be positive"),
        (
            "XSETID s 5 maxdeletedid 6",
            "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
        ),
        ("XPENDING s g - +", syntax),
        ("XPENDING s g idle 5 - +", syntax),
        ("XPENDING s g idle x - + 5", integer),
        ("XPENDING s g - + x", integer),
        ("XCLAIM s g c x 1", "ERR Invalid min-idle-time argument for XCLAIM"),
        ("XCLAIM s g c 0 y", "ERR Unrecognized XCLAIM option 'y'"),
        ("XCLAIM s g c 0 1-1 idle x", "ERR Invalid IDLE option argument for XCLAIM"),
        ("XCLAIM s g c 0 1-1 lastid x", not_an_id),
        ("XAUTOCLAIM s g c x 0", "ERR Invalid min-idle-time argument for XAUTOCLAIM"),
        ("XAUTOCLAIM s g c 0 x", not_an_id),
        ("XAUTOCLAIM s g c 0 0 count 0", "ERR COUNT must be > 0"),
        ("XAUTOCLAIM s g c 0 0 foo", syntax),
        ("XGROUP CREATE s g", "ERR wrong number of arguments for 'xgroup|create' command"),
        (
            "XGROUP create s g 0 foo",
            "ERR unknown subcommand or wrong number of arguments for 'create'. Try XGROUP HELP.",
        ),
        (
            "XGROUP CREATE s g 0 ENTRIESREAD 1 ENTRIESREAD 2",
            "ERR unknown subcommand or wrong number of arguments for 'CREATE'. Try XGROUP HELP.",
        ),
        (
            "XGROUP SETID s g 0 ENTRIESREAD 1 ENTRIESREAD 2",
            "ERR unknown subcommand or wrong number of arguments for 'SETID'. Try XGROUP HELP.",
        ),
        ("XGROUP CREATE s g 0 entriesread -2", "ERR value for ENTRIESREAD must be positive or -1"),
        ("XGROUP foo", "ERR unknown subcommand 'foo'. Try XGROUP HELP."),
        (
            "XINFO STREAM s full count",
            "ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP.",
        ),
        ("XINFO STREAM s full count x", integer),
    ] {
        assert_refused(line, expected);
    }
}

//! Streams: which requests are refused, in the words of Redis 7.0.

use super::*;
use kv::command::{ONE_DELIVERY_LESS, References, SAME_DELIVERIES};
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
    let references = References::Keep;
    let trim = Trim { by_id: false, is_approximate: true, limit: 7, node_entries: 100, references };
    let trim = Some(trim);
    stream(
        "XADD k maxlen ~ 9 LIMIT 7 NOMKSTREAM 5-* f v",
        StreamCommand::Add { key, words, trim, if_present: true },
    );
    let trim = Trim { by_id: true, is_approximate: false, limit: 0, node_entries: 100, references };
    stream("XTRIM k MINID = 9", StreamCommand::Trim { key, threshold: b"9", trim });
    let trim = Trim { by_id: false, is_approximate: true, limit: 10_000, node_entries: 100, references };
    stream("XTRIM k MAXLEN ~ 9", StreamCommand::Trim { key, threshold: b"9", trim });
    let trim = Trim { references: References::Respect, ..trim };
    stream("XTRIM k acked MAXLEN ~ 9", StreamCommand::Trim { key, threshold: b"9", trim });
    let mut scratch = Vec::new();
    let words = List::build(&mut scratch, [&b"*"[..], b"9", b"p", b"*", b"f", b"v"]);
    let trim = Some(Trim { references: References::Remove, ..trim });
    stream(
        "XADD k IDMP p * DELREF MAXLEN ~ 9 * f v",
        StreamCommand::AddOnce { key, words, trim, if_present: false },
    );
    let mut scratch = Vec::new();
    let ids = List::build(&mut scratch, [&b"1"[..], b"2-2"]);
    stream("XDELEX k IDS 2 1 2-2", StreamCommand::DeleteWith { key, ids, references });
    let references = References::Remove;
    stream(
        "XACKDEL k g IDS 2 1 2-2 delref",
        StreamCommand::AcknowledgeAndDelete { key, group, ids, references },
    );
    for (line, deliveries, is_forced) in [
        ("XNACK k g silent IDS 2 1 2-2", ONE_DELIVERY_LESS, false),
        ("XNACK k g FAIL FORCE IDS 2 1 2-2", SAME_DELIVERIES, true),
        ("XNACK k g FATAL IDS 2 1 2-2", i64::MAX, false),
        ("XNACK k g FATAL IDS 2 1 2-2 RETRYCOUNT 7", 7, false),
    ] {
        stream(line, StreamCommand::Release { key, group, ids, deliveries, is_forced });
    }
    stream(
        "XCFGSET k IDMP-MAXSIZE 10000",
        StreamCommand::Remember { key, duration_s: None, most: Some(10_000) },
    );
    let (producer, name, id) = (&b"p"[..], &b"n"[..], &b"5"[..]);
    stream("XIDMPRECORD k p n 5", StreamCommand::Record { key, producer, name, id });
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
        StreamCommand::Consume { group, consumer, streams, count: 0, acknowledges: true, claim_ms: -1 },
    );
    stream(
        "XREADGROUP CLAIM 5 GROUP g c COUNT 99999999999 STREAMS k >",
        StreamCommand::Consume {
            group,
            consumer,
            streams,
            count: u32::MAX,
            acknowledges: false,
            claim_ms: 5,
        },
    );
    let (id, entries_read) = (&b"$"[..], kv::command::at_most_added(5));
    stream(
        "XGROUP CREATE k g $ ENTRIESREAD 5 MKSTREAM",
        StreamCommand::CreateGroup { key, group, id, entries_read, makes_stream: true },
    );
    stream("XGROUP SETID k g $", StreamCommand::SetGroup { key, group, id, entries_read: -1 });
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
    stream("XINFO STREAM k FULL COUNT 0", StreamCommand::DescribeFull { key, count: 0 });
    stream("XINFO STREAM k FULL", StreamCommand::DescribeFull { key, count: 10 });
    stream("XINFO STREAM k", StreamCommand::Describe { key });
    stream("XINFO GROUPS k", StreamCommand::DescribeGroups { key });
    stream("XINFO CONSUMERS k g", StreamCommand::DescribeConsumers { key, group });
}

#[test]
fn what_nodes_of_release_1_do_not_know_waits_for_the_second_level() {
    let at_first = |line: &str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let (buffer, mut scratch): (wire::resp::ArgumentsBuffer, _) =
            (words.into_iter().collect(), Vec::new());
        let spec = find(buffer.as_arguments()).expect("a command").spec;
        let Handler::Data(parse) = spec.handler else { panic!("{line} is not on data") };
        let context = Context { level: 1, ..CONTEXT };
        match parse(buffer.as_arguments(), &mut scratch, &context) {
            Ok(OnStream(command)) => Ok(format!("{command:?}")),
            Ok(other) => panic!("{line} is not on streams: {other:?}"),
            Err(error) => Err(error.to_string()),
        }
    };
    for line in [
        "XREAD STREAMS k +",
        "XDELEX k IDS 1 1",
        "XACKDEL k g IDS 1 1",
        "XNACK k g FAIL IDS 1 1",
        "XADD k KEEPREF * f v",
        "XADD k IDMPAUTO p * f v",
        "XTRIM k MAXLEN 1 ACKED",
        "XCFGSET k IDMP-DURATION 1",
        "XIDMPRECORD k p n 1-1",
        "XREADGROUP GROUP g c CLAIM 1 STREAMS k >",
    ] {
        assert_eq!(at_first(line), Err(CommandError::NeedsLevel(2).to_string()), "{line}");
    }
    for (line, variant) in [
        ("XREADGROUP GROUP g c STREAMS k >", "ReadGroup "),
        ("XINFO STREAM k", "Info "),
        ("XINFO STREAM k FULL", "InfoFull "),
        ("XINFO CONSUMERS k g", "InfoConsumers "),
    ] {
        let command = at_first(line).expect("release 1 knows it");
        assert!(command.starts_with(variant), "{line}: {command}");
    }
    let command = at_first("XGROUP SETID k g 0 ENTRIESREAD 5").expect("release 1 knows it");
    assert!(command.contains("entries_read: 5"), "{command}");
}

#[test]
fn a_name_that_follows_from_the_fields_does_not_depend_on_their_order() {
    let name_of = |line: &str| {
        let mut name = Vec::new();
        parse(&request(line), |parsed| match parsed {
            Ok(OnStream(StreamCommand::AddOnce { words, .. })) => {
                name = words.iter().nth(3).expect("a name").to_vec();
            }
            other => panic!("{line}: {other:?}"),
        });
        name
    };
    let name = name_of("XADD k IDMPAUTO p * a 1 b 2 c 3");
    assert_eq!(name.len(), 16);
    assert_eq!(name_of("XADD k IDMPAUTO q MAXLEN 5 * c 3 a 1 b 2"), name);
    for line in ["* a 1 b 2 c 4", "* a 2 b 1 c 3", "* a 1 b 2", "* a 1b 2 c 3 d", "* a 1 b 2 c 3 c 3"] {
        assert_ne!(name_of(&format!("XADD k IDMPAUTO p {line}")), name, "{line}");
    }
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
        ("XADD s KEEPREF ACKED * a b", syntax),
        ("XADD s IDMP p * f v", not_an_id),
        ("XADD s IDMP p i 1-1 f v", "ERR IDMP/IDMPAUTO can be used only with auto-generated IDs"),
        ("XADD s IDMPAUTO p IDMP q i * f v", "ERR IDMP/IDMPAUTO specified multiple times"),
        ("XCFGSET s", "ERR At least one parameter must be specified"),
        ("XCFGSET s IDMP-DURATION", syntax),
        ("XCFGSET s foo 1", syntax),
        ("XIDMPRECORD s p n -1", "ERR Invalid stream ID specified as stream command argument"),
        ("XCFGSET s IDMP-DURATION 00", integer),
        ("XCFGSET s IDMP-DURATION 86401", "ERR IDMP-DURATION must be between 1 and 86400 seconds"),
        ("XCFGSET s IDMP-MAXSIZE 0", "ERR IDMP-MAXSIZE must be between 1 and 10000 entries"),
        ("XDELEX s IDS x 1", "ERR Number of IDs must be a positive integer"),
        ("XDELEX s IDS 0 1", "ERR Number of IDs must be a positive integer"),
        ("XDELEX s IDS 3 1 2", "ERR The `numids` parameter must match the number of arguments"),
        ("XDELEX s IDS 1 1 2", syntax),
        ("XDELEX s KEEPREF DELREF IDS 1 1", syntax),
        ("XDELEX s IDS 1 x", not_an_id),
        ("XACKDEL s g ACKED KEEPREF x", syntax),
        ("XNACK s g foo IDS 1 1", syntax),
        ("XNACK s g FAIL KEEPREF IDS 1 1", syntax),
        ("XNACK s g FAIL IDS 1 1 RETRYCOUNT -1", "ERR RETRYCOUNT must be >= 0"),
        ("XREADGROUP GROUP g c CLAIM x STREAMS s >", "ERR min-idle-time is not an integer or out of range"),
        ("XREADGROUP GROUP g c CLAIM -1 STREAMS s >", "ERR min-idle-time must be a positive integer"),
        (
            "XREAD CLAIM 1 STREAMS s 0",
            "ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.",
        ),
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
            "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified.",
        ),
        (
            "XREADGROUP group g c streams s 0 0",
            "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.",
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
        ("XPENDING s g - + x c d e", integer),
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

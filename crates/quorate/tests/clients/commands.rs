//! Every command on data, as the `redis` crate sends it: to the leader and, through forwarding, to a follower, in
//! both versions of the protocol.

use std::collections::BTreeSet;

use commands::{COMMANDS, CommandSpec, Handler};
use redis::{Commands, Connection};

use crate::support::{Cluster, ask, until};

/// Requests in order, with their replies: those of redis-server 7.0.15 if it has the command, otherwise those of Redis 8. `*`
/// is a reply that depends on time or chance, or has another form in RESP3.
const CONVERSATION: &[(&str, &str)] = &[
    ("FLUSHALL", "OK"),
    ("SET k v", "OK"),
    ("GET k", "\"v\""),
    ("GET nothing", "nil"),
    ("SET k w NX", "nil"),
    ("SET k w XX GET", "\"v\""),
    ("SET k x EX 100", "OK"),
    ("TTL k", "100"),
    ("SET k y KEEPTTL", "OK"),
    ("TTL k", "100"),
    ("SET k z PX 100000", "OK"),
    ("SET k z EXAT 33177117420", "OK"),
    ("EXPIRETIME k", "33177117420"),
    ("SET k z PXAT 33177117420000", "OK"),
    ("PEXPIRETIME k", "33177117420000"),
    ("SET k v EX 0", "-ERR invalid expire time in 'set' command"),
    ("SET k v NX XX", "-ERR syntax error"),
    ("SETNX k w", "0"),
    ("SETNX new w", "1"),
    ("SETEX k 100 v", "OK"),
    ("PSETEX k 100000 v", "OK"),
    ("GETSET k w", "\"v\""),
    ("TTL k", "-1"),
    ("SET k x IFEQ v", "nil"),
    ("SET k x IFNE v GET", "\"w\""),
    ("DIGEST k", "\"eaf06c6480b2cd11\""),
    ("SET k w IFDEQ EAF06C6480B2CD11", "OK"),
    ("SET k w IFDEQ 5C80", "-ERR must be exactly 16 hexadecimal characters"),
    ("SET nothing w IFDEQ 5C80", "nil"),
    ("SET k w IFEQ x IFEQ y", "nil"),
    ("DELEX nothing IFDNE 5C80", "0"),
    ("SET k w IFEQ w NX", "-ERR syntax error"),
    ("DELEX k IFEQ v", "0"),
    ("DELEX k IFFY v", "-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"),
    ("DELIFEQ k v", "0"),
    ("GETDEL k", "\"w\""),
    ("EXISTS k", "0"),
    ("SET k v", "OK"),
    ("GETEX k EX 100", "\"v\""),
    ("GETEX k PERSIST", "\"v\""),
    ("GETEX k", "\"v\""),
    ("TTL k", "-1"),
    ("MSET a 1 b 2 c 3", "OK"),
    ("MGET a b nothing c", "[\"1\", \"2\", nil, \"3\"]"),
    ("MSETNX c 4 d 4", "0"),
    ("MSETNX d 4 e 5", "1"),
    ("MSETEX 2 limit 6 other 7 EX 100", "1"),
    ("MSETEX 2 limit 8 third 9 NX EX 100", "0"),
    ("MGET limit other third", "[\"6\", \"7\", nil]"),
    ("INCREX limit BYINT 3 UBOUND 8 SATURATE", "[8, 2]"),
    ("INCREX limit UBOUND 8", "[8, 0]"),
    ("DEL limit other", "2"),
    ("APPEND text abc", "3"),
    ("APPEND text def", "6"),
    ("STRLEN text", "6"),
    ("GETRANGE text -3 -1", "\"def\""),
    ("SUBSTR text 0 1", "\"ab\""),
    ("SETRANGE text 8 x", "9"),
    ("GET text", "\"abcdef\\x00\\x00x\""),
    ("INCR n", "1"),
    ("INCRBY n 10", "11"),
    ("DECR n", "10"),
    ("DECRBY n 15", "-5"),
    ("INCRBYFLOAT n 0.5", "\"-4.5\""),
    ("INCR n", "-ERR value is not an integer or out of range"),
    ("INCR text", "-ERR value is not an integer or out of range"),
    ("EXPIRE k 100", "1"),
    ("EXPIRE k 200 NX", "0"),
    ("EXPIRE k 200 GT", "1"),
    ("PEXPIRE k 100000 LT", "1"),
    ("EXPIRE nothing 100", "0"),
    ("EXPIREAT k 33177117420", "1"),
    ("PEXPIREAT k 33177117420000 XX", "1"),
    ("PTTL nothing", "-2"),
    ("PTTL k", "*"),
    ("PERSIST k", "1"),
    ("PERSIST k", "0"),
    ("EXPIRE k -1", "1"),
    ("EXISTS k", "0"),
    ("DEL a nothing", "1"),
    ("UNLINK b c", "2"),
    ("TOUCH d e nothing", "2"),
    ("TYPE d", "string"),
    ("TYPE nothing", "none"),
    ("RENAME d f", "OK"),
    ("RENAME nothing f", "-ERR no such key"),
    ("RENAMENX e f", "0"),
    ("COPY e g", "1"),
    ("COPY e f", "0"),
    ("COPY e f REPLACE", "1"),
    ("DUMP nothing", "nil"),
    ("RESTORE dumped 0 wrong", "-ERR DUMP payload version or checksum are wrong"),
    ("MGET e f g", "[\"5\", \"5\", \"5\"]"),
    ("OBJECT ENCODING e", "\"int\""),
    ("OBJECT FREQ nothing", "nil"),
    ("OBJECT IDLETIME nothing", "nil"),
    ("MEMORY USAGE e", "*"),
    ("DBSIZE", "6"),
    ("KEYS [ef]", "*"),
    ("SCAN 0 MATCH g COUNT 100", "[\"0\", [\"g\"]]"),
    ("RANDOMKEY", "*"),
    ("HSET h a 1 b 2", "2"),
    ("HSETNX h a 3", "0"),
    ("HMSET h c 3", "OK"),
    ("HGET h a", "\"1\""),
    ("HMGET h a nothing", "[\"1\", nil]"),
    ("HGETALL h", "*"),
    ("HKEYS h", "[\"a\", \"b\", \"c\"]"),
    ("HVALS h", "[\"1\", \"2\", \"3\"]"),
    ("HLEN h", "3"),
    ("HEXISTS h b", "1"),
    ("HSTRLEN h b", "1"),
    ("HDEL h b nothing", "1"),
    ("HINCRBY h a 5", "6"),
    ("HINCRBYFLOAT h a 0.5", "\"6.5\""),
    ("HSCAN h 0 MATCH [ab]", "[\"0\", [\"a\", \"6.5\"]]"),
    ("HRANDFIELD h 10", "[\"a\", \"c\"]"),
    ("HSETEX h FNX EX 100 FIELDS 1 e 5", "1"),
    ("HSETEX h FXX FIELDS 1 nothing 5", "0"),
    ("HTTL h FIELDS 3 e a nothing", "[100, -1, -2]"),
    ("HEXPIRE h 200 GT FIELDS 2 e a", "[1, 0]"),
    ("HPEXPIRE h 100000 LT FIELDS 1 e", "[1]"),
    ("HPTTL h FIELDS 1 a", "[-1]"),
    ("HGETEX h FIELDS 2 e nothing PX 90000", "[\"5\", nil]"),
    ("HSETEX h FIELDS 1 e 5 KEEPTTL FXX", "1"),
    ("HEXPIREAT h 33177117420 FIELDS 1 e", "[1]"),
    ("HEXPIRETIME h FIELDS 1 e", "[33177117420]"),
    ("HPEXPIREAT h 33177117420001 FIELDS 1 e", "[1]"),
    ("HPEXPIRETIME h FIELDS 1 e", "[33177117420001]"),
    ("HEXPIRE h -1 FIELDS 1 e", "-ERR invalid expire time, must be >= 0"),
    ("HEXPIRE h 1 FIELDS 2 e", "-ERR wrong number of arguments"),
    ("HEXPIRE h 1 FIELDS 1 e NX XX", "-ERR Multiple condition flags specified"),
    ("HEXPIRE e 1 FIELDS 1 e NX XX", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("HTTL h FILED 1 e", "-ERR Mandatory argument FIELDS is missing or not at the right position"),
    ("OBJECT ENCODING h", "\"listpackex\""),
    ("HGETEX h PERSIST FIELDS 2 e nothing", "[\"5\", nil]"),
    ("HPERSIST h FIELDS 1 e", "[-1]"),
    ("HSCAN h 0 NOVALUES", "[\"0\", [\"a\", \"c\", \"e\"]]"),
    ("HGETDEL h FIELDS 1 e", "[\"5\"]"),
    ("TYPE h", "hash"),
    ("OBJECT ENCODING h", "\"listpack\""),
    ("SCAN 0 TYPE hash COUNT 100", "[\"0\", [\"h\"]]"),
    ("GET h", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("HGET e a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("RPUSH l a b c", "3"),
    ("LPUSH l z", "4"),
    ("RPUSHX nolist a", "0"),
    ("LPUSHX l y", "5"),
    ("LLEN l", "5"),
    ("LRANGE l 0 -1", "[\"y\", \"z\", \"a\", \"b\", \"c\"]"),
    ("LINDEX l 1", "\"z\""),
    ("LSET l 1 zz", "OK"),
    ("LINSERT l BEFORE a x", "6"),
    ("LPOS l b", "4"),
    ("LREM l 1 x", "1"),
    ("LPOP l", "\"y\""),
    ("RPOP l 2", "[\"c\", \"b\"]"),
    ("LTRIM l 0 0", "OK"),
    ("LRANGE l 0 -1", "[\"zz\"]"),
    ("RPUSH l b c d", "4"),
    ("LMOVE l l2 LEFT RIGHT", "\"zz\""),
    ("RPOPLPUSH l l2", "\"d\""),
    ("LMPOP 2 nolist l2 LEFT COUNT 5", "[\"l2\", [\"d\", \"zz\"]]"),
    ("RPUSH l3 a b c d", "4"),
    ("BLPOP nolist l3 0", "[\"l3\", \"a\"]"),
    ("BRPOP l3 1.5", "[\"l3\", \"d\"]"),
    ("BLMOVE l3 l4 LEFT RIGHT 0", "\"b\""),
    ("BRPOPLPUSH l3 l4 0", "\"c\""),
    ("BLMPOP 0 2 nolist l4 LEFT COUNT 5", "[\"l4\", [\"c\", \"b\"]]"),
    ("BLPOP l3 l4 0.01", "nil"),
    ("BLMOVE l3 l4 LEFT LEFT 0.01", "nil"),
    ("BLPOP l3 -1", "-ERR timeout is negative"),
    ("BLPOP l3 x", "-ERR timeout is not a float or out of range"),
    ("TYPE l", "list"),
    ("OBJECT ENCODING l", "\"quicklist\""),
    ("SADD s a b c", "3"),
    ("SREM s c nothing", "1"),
    ("SCARD s", "2"),
    ("SISMEMBER s a", "1"),
    ("SMISMEMBER s a nothing", "[1, 0]"),
    ("SMEMBERS s", "*"),
    ("SADD s2 b d", "2"),
    ("SINTER s s2", "*"),
    ("SINTERCARD 2 s s2", "1"),
    ("SINTERSTORE s3 s s2", "1"),
    ("SUNION s s2", "*"),
    ("SUNIONSTORE s3 s s2", "3"),
    ("SDIFF s s2", "*"),
    ("SDIFFSTORE s3 s s2", "1"),
    ("SMOVE s s2 a", "1"),
    ("SPOP s3", "*"),
    ("SRANDMEMBER s2", "*"),
    ("SSCAN s 0", "[\"0\", [\"b\"]]"),
    ("TYPE s", "set"),
    ("OBJECT ENCODING s", "\"hashtable\""),
    ("ZADD z 1 a 2 b 3 c", "3"),
    ("ZADD z XX CH 5 c", "1"),
    ("ZADD z XX CH 0x5 c", "0"),
    ("ZADD z NX GT 1 a", "-ERR GT, LT, and/or NX options at the same time are not compatible"),
    ("ZINCRBY z 1 a", "*"),
    ("ZCARD z", "3"),
    ("ZSCORE z b", "*"),
    ("ZMSCORE z a nothing", "*"),
    ("ZCOUNT z (2 +inf", "1"),
    ("ZRANK z b", "1"),
    ("ZREVRANK z b", "1"),
    ("ZRANGE z 0 -1", "[\"a\", \"b\", \"c\"]"),
    ("ZRANGE z (2 +inf BYSCORE LIMIT 0 1", "[\"c\"]"),
    ("ZREVRANGE z 0 0", "[\"c\"]"),
    ("ZRANGEBYSCORE z -inf +inf", "[\"a\", \"b\", \"c\"]"),
    ("ZREVRANGEBYSCORE z +inf -inf", "[\"c\", \"b\", \"a\"]"),
    ("ZADD lex 0 a 0 b 0 c", "3"),
    ("ZLEXCOUNT lex [a (c", "2"),
    ("ZRANGEBYLEX lex - +", "[\"a\", \"b\", \"c\"]"),
    ("ZREVRANGEBYLEX lex + -", "[\"c\", \"b\", \"a\"]"),
    ("ZREMRANGEBYLEX lex [a [a", "1"),
    ("ZRANGESTORE z2 z 0 1", "2"),
    ("ZADD z3 1 b 1 c", "2"),
    ("ZINTER 2 z z3", "[\"b\", \"c\"]"),
    ("ZINTERCARD 2 z z3", "2"),
    ("ZINTERSTORE z4 2 z z3 WEIGHTS 2 1 AGGREGATE MAX", "2"),
    ("ZUNION 2 z z3", "[\"a\", \"b\", \"c\"]"),
    ("ZUNIONSTORE z4 2 z z3", "3"),
    ("ZDIFF 2 z z3", "[\"a\"]"),
    ("ZDIFFSTORE z4 2 z z3", "1"),
    ("ZRANDMEMBER z", "*"),
    ("ZSCAN lex 0", "[\"0\", [\"c\", \"0\", \"b\", \"0\"]]"),
    ("ZPOPMIN z3", "*"),
    ("ZPOPMAX z3", "*"),
    ("ZMPOP 1 z MIN", "*"),
    ("ZADD waited 1 m 2 n 3 o", "3"),
    ("BZPOPMIN nothing waited 0", "*"),
    ("BZPOPMAX waited 0", "*"),
    ("BZMPOP 0 1 waited MIN", "*"),
    ("BZPOPMIN waited 0.01", "nil"),
    ("ZREM z c", "1"),
    ("ZREMRANGEBYRANK lex 0 0", "1"),
    ("ZREMRANGEBYSCORE lex -inf +inf", "1"),
    ("TYPE z2", "zset"),
    ("OBJECT ENCODING z2", "\"listpack\""),
    ("XADD x 1-1 f v g w", "\"1-1\""),
    ("XADD x 2-* f v", "\"2-0\""),
    ("XADD x NOMKSTREAM MAXLEN ~ 100 3 f v", "\"3-0\""),
    ("XADD nostream NOMKSTREAM * f v", "nil"),
    ("XADD x 3 f v", "-ERR The ID specified in XADD is equal or smaller than the target stream top item"),
    ("XLEN x", "3"),
    (
        "XRANGE x - (3",
        "[[\"1-1\", [\"f\", \"v\", \"g\", \"w\"]], [\"2-0\", [\"f\", \"v\"]], [\"3-0\", [\"f\", \"v\"]]]",
    ),
    ("XREVRANGE x + - COUNT 1", "[[\"3-0\", [\"f\", \"v\"]]]"),
    ("XREAD COUNT 1 STREAMS x 1", "*"),
    ("XREAD STREAMS x $", "nil"),
    ("XGROUP CREATE x g 0", "OK"),
    ("XGROUP CREATE x g 0", "-BUSYGROUP Consumer Group name already exists"),
    ("XGROUP CREATECONSUMER x g c", "1"),
    ("XREADGROUP GROUP g c COUNT 2 STREAMS x >", "*"),
    ("XREADGROUP GROUP g c STREAMS x 1-1", "*"),
    (
        "XREADGROUP GROUP nogroup c STREAMS x >",
        "-NOGROUP No such key 'x' or consumer group 'nogroup' in XREADGROUP with GROUP option",
    ),
    ("XPENDING x g", "[2, \"1-1\", \"2-0\", [[\"c\", \"2\"]]]"),
    ("XPENDING x g IDLE 0 - + 10 d", "[]"),
    ("XCLAIM x g d 0 1-1 2-0 JUSTID", "[\"1-1\", \"2-0\"]"),
    ("XACK x g 1-1 9", "1"),
    ("XDEL x 2", "1"),
    ("XAUTOCLAIM x g c 0 - COUNT 10", "[\"0-0\", [], [\"2-0\"]]"),
    ("XREADGROUP GROUP g c CLAIM 0 STREAMS x >", "*"),
    ("XNACK x g FAIL IDS 1 3", "1"),
    ("XPENDING x g - + 10", "[[\"3-0\", \"\", -1, 1]]"),
    ("XACKDEL x g ACKED IDS 2 3 9", "[1, -1]"),
    ("XDELEX x DELREF IDS 1 9", "[-1]"),
    ("XREAD STREAMS x +", "*"),
    ("XINFO STREAM x", "*"),
    ("HOTKEYS GET", "nil"),
    ("HOTKEYS START METRICS 3 CPU", "-ERR METRICS count must be > 0 and <= 2"),
    ("HOTKEYS START METRICS 1 NET COUNT 65", "-ERR COUNT must be between 1 and 64"),
    ("HOTKEYS START METRICS 2 CPU NET SAMPLE 3", "OK"),
    ("HOTKEYS RESET", "-ERR hotkey tracking session in progress, stop tracking first"),
    ("HOTKEYS GET", "*"),
    ("HOTKEYS STOP", "OK"),
    ("HOTKEYS STOP", "nil"),
    ("HOTKEYS RESET", "OK"),
    ("XINFO GROUPS x", "*"),
    ("XINFO CONSUMERS x g", "*"),
    ("XGROUP SETID x g $", "OK"),
    ("XGROUP DELCONSUMER x g c", "0"),
    ("XGROUP DESTROY x g", "1"),
    ("XTRIM x MAXLEN = 0", "1"),
    ("XSETID x 7-7", "OK"),
    ("XADD x 8-1 f v", "\"8-1\""),
    ("XIDMPRECORD x p 2 8-1", "OK"),
    ("XDEL x 8-1", "1"),
    ("XADD x IDMP p 1 * f v", "*"),
    ("XADD x IDMP p 1 * f w", "*"),
    ("XLEN x", "1"),
    ("XCFGSET x IDMP-DURATION 5", "OK"),
    ("XADD x * f v", "*"),
    ("TYPE x", "stream"),
    ("OBJECT ENCODING x", "\"stream\""),
    ("SCAN 0 TYPE stream COUNT 100", "[\"0\", [\"x\"]]"),
    ("XADD l * f v", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("GET x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("SETBIT bits 9 1", "0"),
    ("SETBIT bits 9 0", "1"),
    ("SETBIT bits 1 1", "0"),
    ("GETBIT bits 1", "1"),
    ("GETBIT nothing 1", "0"),
    ("BITCOUNT bits", "1"),
    ("BITCOUNT nothing 0", "-ERR syntax error"),
    ("BITPOS nothing 1 x", "-ERR value is not an integer or out of range"),
    ("BITCOUNT bits 0 0", "1"),
    ("BITCOUNT bits 0 7 BIT", "1"),
    ("BITPOS bits 1", "1"),
    ("BITPOS bits 0 1 -1 BIT", "2"),
    ("BITOP NOT bits2 bits", "2"),
    ("BITOP OR bits3 bits bits2", "2"),
    ("BITCOUNT bits3", "16"),
    ("BITFIELD bits SET u8 0 255 INCRBY u8 0 1 OVERFLOW SAT INCRBY i8 #1 200", "[64, 0, 127]"),
    (
        "BITFIELD bits GET u64 0",
        "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
    ),
    ("BITFIELD_RO bits GET u4 4 GET i8 8", "[0, 127]"),
    ("SETBIT bits 9 2", "-ERR bit is not an integer or out of range"),
    ("PFADD sketch a b c", "1"),
    ("PFADD sketch a", "0"),
    ("PFADD sketch2 c d", "1"),
    ("PFCOUNT sketch", "3"),
    ("PFCOUNT sketch sketch2", "4"),
    ("PFMERGE sketch3 sketch sketch2", "OK"),
    ("PFCOUNT sketch3", "4"),
    ("PFADD text x", "-WRONGTYPE Key is not a valid HyperLogLog string value."),
    ("SET words1 ohmytext", "OK"),
    ("SET words2 mynewtext", "OK"),
    ("LCS words1 words2", "\"mytext\""),
    ("LCS words1 words2 LEN", "6"),
    ("LCS words1 words2 IDX MINMATCHLEN 4 WITHMATCHLEN", "*"),
    ("GEOADD map 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "2"),
    ("GEOADD map 200 0 nowhere", "-ERR invalid longitude,latitude pair 200.000000,0.000000"),
    ("GEODIST map Palermo Catania km", "\"166.2742\""),
    ("GEODIST map Palermo Rome", "nil"),
    ("GEOHASH map Palermo Catania", "[\"sqc8b49rny0\", \"sqdtr74hyu0\"]"),
    // Texts, or numbers in RESP3.
    (
        "GEOPOS map Palermo Rome",
        "[[\"13.36138933897018433\", \"38.11555639549629859\"], nil] || [[double(13.361389338970184), double(38.1155563954963)], nil]",
    ),
    (
        "GEOSEARCH map FROMLONLAT 15 37 BYRADIUS 200 km ASC WITHDIST",
        "[[\"Catania\", \"56.4413\"], [\"Palermo\", \"190.4424\"]]",
    ),
    ("GEOSEARCH map FROMMEMBER Palermo BYBOX 400 400 km DESC COUNT 1", "[\"Catania\"]"),
    ("GEOSEARCHSTORE near map FROMLONLAT 15 37 BYRADIUS 100 km", "1"),
    (
        "GEORADIUS map 15 37 200 km WITHHASH ASC",
        "[[\"Catania\", 3479447370796909], [\"Palermo\", 3479099956230698]]",
    ),
    ("GEORADIUS_RO map 15 37 100 km", "[\"Catania\"]"),
    ("GEORADIUSBYMEMBER map Palermo 200 km DESC", "[\"Catania\", \"Palermo\"]"),
    ("GEORADIUSBYMEMBER_RO map Palermo 100 km", "[\"Palermo\"]"),
    ("RPUSH unsorted 3 1 2", "3"),
    ("SORT unsorted", "[\"1\", \"2\", \"3\"]"),
    ("SORT unsorted DESC LIMIT 0 2 STORE sorted", "2"),
    ("SORT_RO unsorted ALPHA", "[\"1\", \"2\", \"3\"]"),
    ("SORT unsorted BY nosort GET # GET weight_*", "[\"3\", nil, \"1\", nil, \"2\", nil]"),
    ("SORT words1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("LPUSH s x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("SADD l x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("ZADD l 1 x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("GET l", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("GET", "-ERR wrong number of arguments for 'get' command"),
    ("NOSUCH l x", "-ERR unknown command 'NOSUCH', with args beginning with: 'l' 'x' "),
    ("FLUSHDB", "OK"),
    ("DBSIZE", "0"),
];

fn hold(connection: &mut Connection, with: &str) {
    for (request, expected) in CONVERSATION {
        let reply = ask(connection, request);
        assert!(
            *expected == "*" && !reply.starts_with('-')
                || expected.split(" || ").any(|expected| reply == expected),
            "{with}: {request}: {reply}"
        );
    }
}

#[test]
fn every_command_answers_the_same_at_every_node_in_both_protocols() {
    let cluster = Cluster::start(3, &[]);
    hold(&mut cluster.client(1), "RESP2 at the leader");
    hold(&mut cluster.client3(1), "RESP3 at the leader");
    hold(&mut cluster.client(2), "RESP2 at a follower");
    hold(&mut cluster.client3(3), "RESP3 at a follower");
}

#[test]
fn the_conversation_includes_every_command_on_data() {
    let is_data = |spec: &&CommandSpec| matches!(spec.handler, Handler::Data(_));
    let every =
        COMMANDS.iter().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands)).filter(is_data);
    let requested: BTreeSet<String> =
        CONVERSATION.iter().map(|(request, _)| request.to_ascii_lowercase()).collect();
    for spec in every {
        let name = spec.name.replace('|', " ");
        let is_said =
            requested.iter().any(|request| *request == name || request.starts_with(&format!("{name} ")));
        assert!(is_said, "{name}");
    }
}

#[test]
fn commands_by_which_clients_describe_themselves_are_accepted() {
    let cluster = Cluster::start(1, &[]);
    let mut connection = cluster.client3(1);
    assert_eq!(ask(&mut connection, "CLIENT SETNAME me"), "OK");
    let info = ask(&mut connection, "CLIENT INFO");
    assert!(
        info.contains("name=me") && info.contains("resp=3") && info.contains("lib-name=redis-rs"),
        "{info}"
    );
}

/// Of a client that waits, what it has sent counts, and its answer does not yet.
#[test]
fn what_a_client_has_sent_and_received_is_counted_in_bytes_and_requests() {
    let cluster = Cluster::start(1, &[]);
    let (mut asker, mut waiting) = (cluster.client(1), cluster.client(1));
    let id = ask(&mut waiting, "CLIENT ID");
    let counts = |asker: &mut Connection| {
        let line = ask(asker, &format!("CLIENT LIST ID {id}"));
        ["tot-net-in=", "tot-net-out=", "tot-cmds="].map(|field| {
            let value = line.split([' ', '\\', '"']).find_map(|it| it.strip_prefix(field));
            value.and_then(|value| value.parse::<u64>().ok()).unwrap_or_else(|| panic!("{field} {line}"))
        })
    };
    let [received, sent, answered] = counts(&mut asker);
    let waits = std::thread::spawn(move || (ask(&mut waiting, "BLPOP mylist 0"), waiting));
    until("it waits", || counts(&mut asker)[0] > received);
    assert_eq!(counts(&mut asker), [received + 34, sent, answered]);
    assert_eq!(ask(&mut asker, "LPUSH mylist a"), "1");
    let (reply, _waiting) = waits.join().expect("a thread");
    assert_eq!(reply, "[\"mylist\", \"a\"]");
    assert_eq!(counts(&mut asker), [received + 34, sent + 23, answered + 1]);
}

/// `redis::transaction` watches, calls its function, and starts again when it is aborted.
#[test]
fn counting_in_transactions_loses_no_increment() {
    const STEPS: usize = 25;
    let cluster = Cluster::start(3, &[]);
    std::thread::scope(|scope| {
        for id in 1..=3 {
            let mut connection = cluster.client(id);
            scope.spawn(move || {
                for _ in 0..STEPS {
                    let (sum, twice): (i64, i64) =
                        redis::transaction(&mut connection, &["sum", "twice"], |connection, pipe| {
                            let sum: Option<i64> = connection.get("sum")?;
                            let sum = sum.unwrap_or(0) + 1;
                            pipe.set("sum", sum).ignore().set("twice", 2 * sum).ignore();
                            pipe.get("sum").get("twice").query(connection)
                        })
                        .unwrap();
                    assert_eq!(twice, 2 * sum, "both at one moment");
                }
            });
        }
    });
    let expected = format!("[\"{}\", \"{}\"]", 3 * STEPS, 6 * STEPS);
    assert_eq!(ask(&mut cluster.client(2), "MGET sum twice"), expected);
}

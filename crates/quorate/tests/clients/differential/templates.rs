//! The commands, and how their arguments are made.
//!
//! A template has words. A word in capitals stands for itself. `k:` with a letter: a key that usually holds that kind of
//! value. Other words in small letters name kinds of arguments (see [`argument`]). `[a|b c]`: one of these, or nothing;
//! successive options come in any order, and occasionally twice. `{a b}`: one to four times. `(a|b)`: one of these. `;`
//! ends a command of a step.

use super::compare::Alike;
use super::{Random, Words};

/// How to make one command.
pub(super) struct Template {
    pub(super) text: &'static str,
    pub(super) alike: Alike,
}

const fn exactly(text: &'static str) -> Template {
    Template { text, alike: Alike::Exactly }
}

const fn with(alike: Alike, text: &'static str) -> Template {
    Template { text, alike }
}

use Alike::{ChecksFirst, Draw, Pairs, Unordered, Within};

pub(super) const TEMPLATES: &[Template] = &[
    // Strings.
    exactly("GET k:t"),
    exactly("SET k:t value [EX seconds|PX millis|EXAT date|PXAT datems|KEEPTTL] [NX|XX] [GET]"),
    exactly("SET k:t number"),
    exactly("SETNX k:t value"),
    exactly("SETEX k:t seconds value"),
    exactly("PSETEX k:t millis value"),
    exactly("GETSET k:t value"),
    exactly("GETDEL k:t"),
    exactly("GETEX k:t [EX seconds|PX millis|EXAT date|PXAT datems|PERSIST]"),
    exactly("MGET {k:t}"),
    exactly("MSET {k:t value}"),
    exactly("MSETNX {k:t value}"),
    exactly("APPEND k:t value"),
    exactly("STRLEN k:t"),
    exactly("GETRANGE k:t index index"),
    exactly("SUBSTR k:t index index"),
    exactly("SETRANGE k:t offset value"),
    exactly("INCR k:t"),
    exactly("DECR k:t"),
    exactly("INCRBY k:t integer"),
    exactly("DECRBY k:t integer"),
    // Redis rounds numbers of more than 19 digits, which are exact here.
    exactly("SET t1 decimal ; INCRBYFLOAT t1 decimal ; INCRBYFLOAT t1 decimal ; DEL t1"),
    exactly("INCRBYFLOAT (l1|z1|s1) decimal"),
    exactly("LCS k:t k:t [LEN] [IDX] [MINMATCHLEN count] [WITHMATCHLEN]"),
    // Bits.
    exactly("SETBIT k:t bit (0|1)"),
    exactly("GETBIT k:t bit"),
    exactly("BITCOUNT k:t"),
    with(ChecksFirst, "BITCOUNT k:t index index [BYTE|BIT]"),
    with(ChecksFirst, "BITPOS k:t (0|1)"),
    with(ChecksFirst, "BITPOS k:t (0|1) (bit|place place|place place BIT|place place BYTE)"),
    exactly("BITOP (AND|OR|XOR) k:t {k:t}"),
    exactly("BITOP NOT k:t k:t"),
    exactly(
        "BITFIELD k:t {[GET field bit|SET field bit integer|INCRBY field bit integer|OVERFLOW (WRAP|SAT|FAIL)]}",
    ),
    exactly("BITFIELD_RO k:t {[GET field bit]}"),
    // Expiry.
    exactly("EXPIRE k:a seconds [NX|XX]"),
    exactly("PEXPIRE k:a millis [NX|XX]"),
    exactly("EXPIREAT k:a past [NX|XX|GT|LT]"),
    exactly("PEXPIREAT k:a past [NX|XX|GT|LT]"),
    with(Within(1), "TTL k:a"),
    with(Within(1500), "PTTL k:a"),
    with(Within(1), "EXPIRETIME k:a"),
    with(Within(1500), "PEXPIRETIME k:a"),
    exactly("PERSIST k:a"),
    // Keys.
    exactly("DEL {k:a}"),
    exactly("UNLINK {k:a}"),
    exactly("EXISTS {k:a}"),
    exactly("TOUCH {k:a}"),
    exactly("TYPE k:a"),
    exactly("RENAME k:a k:a"),
    exactly("RENAMENX k:a k:a"),
    exactly("COPY k:a k:a [REPLACE] [DB 0]"),
    exactly("DBSIZE"),
    with(Unordered, "KEYS (*|l*|?1|t?*|nothing|)"),
    with(Unordered, "SCAN 0 COUNT 100000 [MATCH (*|l*|?1)] [TYPE (string|list|set|zset|hash|none)]"),
    with(Draw, "KEYS * ; RANDOMKEY"),
    // Numbers are left out: Redis finds an error in them if the last one that it has read was too large. And it compares
    // texts up to a zero byte only.
    exactly("DEL l1 ; RPUSH l1 {member} ; SORT l1 ALPHA [ASC|DESC] [LIMIT index index]"),
    exactly("DEL l1 ; RPUSH l1 {member} ; SORT_RO l1 ALPHA [ASC|DESC] [LIMIT index index]"),
    exactly("DEL l1 ; RPUSH l1 {member} ; SORT l1 ALPHA DESC STORE k:l"),
    exactly("SORT (h1|t1|q1) ALPHA"),
    with(Unordered, "SORT l1 BY nosort GET #"),
    // Hashes.
    exactly("HSET k:h {member value}"),
    exactly("HSET k:h member number"),
    exactly("HSETNX k:h member value"),
    exactly("HMSET k:h {member value}"),
    exactly("HGET k:h member"),
    exactly("HMGET k:h {member}"),
    with(Pairs, "HGETALL k:h"),
    with(Unordered, "HKEYS k:h"),
    with(Unordered, "HVALS k:h"),
    exactly("HLEN k:h"),
    exactly("HEXISTS k:h member"),
    exactly("HSTRLEN k:h member"),
    exactly("HDEL k:h {member}"),
    exactly("HINCRBY k:h member integer"),
    exactly("HDEL h1 D ; HINCRBYFLOAT h1 D decimal ; HINCRBYFLOAT h1 D decimal ; HDEL h1 D"),
    exactly("HSET h1 a value ; HINCRBYFLOAT h1 a decimal ; DEL h1"),
    with(Pairs, "HSCAN k:h 0 COUNT 100000 [MATCH (*|a*|?)]"),
    with(Draw, "HGETALL k:h1 ; HRANDFIELD k:h1 [draws|draws WITHVALUES]"),
    // Lists.
    exactly("LPUSH k:l {value}"),
    exactly("RPUSH k:l {value}"),
    exactly("RPUSH k:l {member}"),
    exactly("LPUSHX k:l {value}"),
    exactly("RPUSHX k:l {value}"),
    exactly("LPOP k:l [count]"),
    exactly("RPOP k:l [count]"),
    exactly("LMPOP numbered:l (LEFT|RIGHT) [COUNT count]"),
    exactly("LLEN k:l"),
    exactly("LINDEX k:l index"),
    exactly("LRANGE k:l index index"),
    exactly("LRANGE k:l 0 -1"),
    exactly("LPOS k:l member [RANK rank] [COUNT count] [MAXLEN count]"),
    exactly("LSET k:l index value"),
    exactly("LINSERT k:l (BEFORE|AFTER) member value"),
    exactly("LREM k:l index member"),
    exactly("LTRIM k:l index index"),
    exactly("LMOVE k:l k:l (LEFT|RIGHT) (LEFT|RIGHT)"),
    // On keys that mostly have elements. Commands that wait have tests of their own.
    exactly("RPUSH l1 value ; BLPOP k:l l1 patience"),
    exactly("RPUSH l2 value ; BRPOP k:l l2 patience"),
    exactly("RPUSH l1 value ; BLMOVE l1 k:l (LEFT|RIGHT) (LEFT|RIGHT) patience"),
    exactly("RPUSH l1 value ; BRPOPLPUSH l1 k:l patience"),
    exactly("RPUSH l1 value ; BLMPOP patience 2 k:l l1 (LEFT|RIGHT) [COUNT few]"),
    exactly("ZADD z1 1 a ; BZPOPMIN k:z z1 patience"),
    exactly("ZADD z1 1 a ; BZPOPMAX k:z z1 patience"),
    exactly("ZADD z1 1 a ; BZMPOP patience 2 k:z z1 (MIN|MAX) [COUNT few]"),
    exactly("RPOPLPUSH k:l k:l"),
    // Sets.
    exactly("SADD k:s {member}"),
    exactly("SREM k:s {member}"),
    exactly("SCARD k:s"),
    exactly("SISMEMBER k:s member"),
    exactly("SMISMEMBER k:s {member}"),
    with(Unordered, "SMEMBERS k:s"),
    with(Draw, "SMEMBERS k:s1 ; SRANDMEMBER k:s1 [draws]"),
    with(Draw, "SMEMBERS k:s1 ; SPOP k:s1 [draws] ; DEL k:s1"),
    exactly("SMOVE k:s k:s member"),
    with(Unordered, "SSCAN k:s 0 COUNT 100000 [MATCH (*|a*|?)]"),
    with(Unordered, "SINTER {k:s}"),
    exactly("SINTERCARD numbered:s [LIMIT count]"),
    exactly("SINTERSTORE k:s {k:s}"),
    with(Unordered, "SUNION {k:s}"),
    exactly("SUNIONSTORE k:s {k:s}"),
    with(Unordered, "SDIFF {k:s}"),
    exactly("SDIFFSTORE k:s {k:s}"),
    // Sorted sets.
    exactly("ZADD k:z {score member}"),
    exactly("ZADD k:z [NX|XX] [GT|LT] [CH] {score member}"),
    exactly("ZADD k:z [NX|XX] [GT|LT] [CH] INCR score member"),
    exactly("ZINCRBY k:z score member"),
    exactly("ZREM k:z {member}"),
    exactly("ZCARD k:z"),
    exactly("ZSCORE k:z member"),
    exactly("ZMSCORE k:z {member}"),
    exactly("ZCOUNT k:z bound bound"),
    exactly("ZRANK k:z member"),
    exactly("ZREVRANK k:z member"),
    exactly("ZRANGE k:z index index [REV] [WITHSCORES]"),
    exactly("ZRANGE k:z 0 -1 WITHSCORES"),
    exactly("ZRANGE k:z bound bound BYSCORE [REV] [LIMIT index index] [WITHSCORES]"),
    exactly("ZRANGESTORE k:z k:z index index [REV]"),
    exactly("ZRANGESTORE k:z k:z bound bound BYSCORE [REV] [LIMIT index index]"),
    exactly("ZREVRANGE k:z index index [WITHSCORES]"),
    exactly("ZRANGEBYSCORE k:z bound bound [WITHSCORES] [LIMIT index index]"),
    exactly("ZREVRANGEBYSCORE k:z bound bound [WITHSCORES] [LIMIT index index]"),
    exactly("ZPOPMIN k:z [count]"),
    exactly("ZPOPMAX k:z [count]"),
    exactly("ZMPOP numbered:z (MIN|MAX) [COUNT count]"),
    exactly("ZREMRANGEBYRANK k:z index index"),
    exactly("ZREMRANGEBYSCORE k:z bound bound"),
    with(Draw, "ZRANGE k:z1 0 -1 WITHSCORES ; ZRANDMEMBER k:z1 [draws|draws WITHSCORES]"),
    with(Pairs, "ZSCAN k:z 0 COUNT 100000 [MATCH (*|a*|?)]"),
    exactly("ZUNION numbered:z [WEIGHTS score score] [AGGREGATE (SUM|MIN|MAX)] [WITHSCORES]"),
    exactly("ZUNIONSTORE k:z numbered:z [WEIGHTS score score|WEIGHTS score] [AGGREGATE (SUM|MIN|MAX)]"),
    exactly("ZINTER numbered:z [WEIGHTS score score] [AGGREGATE (SUM|MIN|MAX)] [WITHSCORES]"),
    exactly("ZINTERSTORE k:z numbered:z [WEIGHTS score score|WEIGHTS score] [AGGREGATE (SUM|MIN|MAX)]"),
    exactly("ZUNIONSTORE k:z numbered:s"),
    exactly("ZINTERCARD numbered:z [LIMIT count]"),
    exactly("ZDIFF numbered:z [WITHSCORES]"),
    exactly("ZDIFFSTORE k:z numbered:z"),
    // Redis does not define ranges of members if scores differ: `k:x` has one score.
    exactly("ZADD k:x {0 member}"),
    exactly("ZLEXCOUNT k:x lex lex"),
    exactly("ZRANGEBYLEX k:x lex lex [LIMIT index index]"),
    exactly("ZREVRANGEBYLEX k:x lex lex [LIMIT index index]"),
    exactly("ZREMRANGEBYLEX k:x lex lex"),
    exactly("ZRANGE k:x lex lex BYLEX [REV] [LIMIT index index]"),
    exactly("ZRANGESTORE k:z k:x lex lex BYLEX [REV] [LIMIT index index]"),
    // Sketches, whose values differ by the estimate that Redis keeps in them.
    exactly("PFADD k:p {member}"),
    exactly("PFADD k:p"),
    exactly("PFCOUNT {k:p}"),
    exactly("PFMERGE k:p {k:p}"),
    exactly("EVAL manycounted 1 k:p"),
    exactly("SET t1 value ; PFADD t1 member ; DEL t1"),
    exactly("PFCOUNT (l1|s1|z1)"),
    // Places.
    exactly("GEOADD k:g [NX|XX] [CH] {longitude latitude member}"),
    exactly("GEODIST k:g member member [M|KM|FT|MI|x]"),
    exactly("GEOHASH k:g {member}"),
    exactly(
        "DEL z1 ; ZADD z1 (-5|+inf|-inf|1e300|9223372036854775808|4503599627370496) a ; GEOHASH z1 a ; GEOPOS z1 a",
    ),
    exactly("GEOPOS k:g {member}"),
    exactly(
        "GEOSEARCH k:g (FROMMEMBER member|FROMLONLAT longitude latitude) (BYRADIUS size unit|BYBOX size size unit) (ASC|DESC) [COUNT few] [WITHCOORD] [WITHDIST] [WITHHASH]",
    ),
    with(
        Unordered,
        "GEOSEARCH g1 (FROMMEMBER member|FROMLONLAT longitude latitude) (BYRADIUS size unit|BYBOX size size unit)",
    ),
    exactly(
        "GEOSEARCHSTORE k:g k:g (FROMMEMBER member|FROMLONLAT longitude latitude) (BYRADIUS size unit|BYBOX size size unit) [ASC|DESC] [COUNT few] [STOREDIST]",
    ),
    exactly(
        "GEORADIUS k:g longitude latitude size unit (ASC|DESC) [COUNT few] [WITHCOORD] [WITHDIST] [WITHHASH]",
    ),
    exactly("GEORADIUS k:g longitude latitude size unit [ASC|DESC] [COUNT few] [STORE k:g|STOREDIST k:g]"),
    exactly("GEORADIUS_RO k:g longitude latitude size unit (ASC|DESC) [COUNT few] [WITHDIST]"),
    exactly(
        "GEORADIUSBYMEMBER k:g member size unit (ASC|DESC) [COUNT few] [WITHCOORD] [WITHDIST] [WITHHASH]",
    ),
    exactly("GEORADIUSBYMEMBER k:g member size unit [STORE k:g|STOREDIST k:g]"),
    exactly("GEORADIUSBYMEMBER_RO k:g member size unit (ASC|DESC) [COUNT few] [WITHDIST]"),
    // If there are several errors, one is named, and Redis names another one.
    exactly("GEOADD g1 angle angle member"),
    exactly("GEOPOS (l1|t1|s1) member"),
    exactly("GEODIST (l1|t1|s1) a b"),
    exactly("GEORADIUS g1 longitude latitude wrongsize unit"),
    exactly("GEORADIUS g1 longitude latitude size x"),
    exactly("GEORADIUS g1 angle angle size unit"),
    exactly("GEOSEARCH g1 FROMLONLAT longitude latitude BYBOX size wrongsize unit"),
    // Streams, with ids that do not come from clocks. What `~` leaves depends on how Redis stores entries, and so do
    // parts of XINFO STREAM.
    exactly("XADD k:q [NOMKSTREAM] [MAXLEN count|MAXLEN = count|MINID entry] entry {member value}"),
    exactly("XADD k:q entry {member value}"),
    exactly("XADD k:q entry member value"),
    exactly("XLEN k:q"),
    exactly("XRANGE k:q entries entries [COUNT count]"),
    exactly("XRANGE k:q - +"),
    exactly("XREVRANGE k:q entries entries [COUNT count]"),
    exactly("XDEL k:q {entry}"),
    exactly("XTRIM k:q (MAXLEN count|MAXLEN = count|MINID entry|MINID = entry)"),
    exactly("XSETID k:q entry [ENTRIESADDED count MAXDELETEDID entry|ENTRIESADDED count]"),
    exactly("XREAD [COUNT count] STREAMS k:q entry"),
    exactly("XREAD [COUNT count] STREAMS k:q k:q entry ($|entry)"),
    exactly("XGROUP CREATE k:q group ($|entry)"),
    // Redis 7.0 does not bound the number of entries that a group says to have read.
    exactly("XGROUP CREATE k:q group ($|entry) MKSTREAM ENTRIESREAD (0|-1)"),
    exactly("XGROUP CREATE k:q group 0 MKSTREAM"),
    exactly(
        "DEL q1 ; XGROUP CREATE q1 g1 0 MKSTREAM ; XGROUP (CREATE|SETID) q1 g1 0 ENTRIESREAD 1 ENTRIESREAD 2",
    ),
    exactly("XGROUP SETID k:q group ($|entry) (ENTRIESREAD|x) (0|-1)"),
    exactly("XGROUP SETID k:q group ($|entry)"),
    exactly("XGROUP (DESTROY k:q group|CREATECONSUMER k:q group consumer|DELCONSUMER k:q group consumer)"),
    exactly("XREADGROUP GROUP group consumer [COUNT count] [NOACK] STREAMS k:q (>|>|entry)"),
    exactly("XREADGROUP GROUP g1 consumer STREAMS k:q >"),
    exactly("XACK k:q group {entry}"),
    exactly("XPENDING k:q group"),
    with(Within(1500), "XPENDING k:q group entries entries count"),
    with(Within(1500), "XPENDING k:q group entries entries count consumer"),
    exactly("XCLAIM k:q group consumer 0 {entry} [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID entry]"),
    exactly("XAUTOCLAIM k:q group consumer 0 entry [COUNT count] [JUSTID]"),
    exactly("XINFO GROUPS k:q"),
    with(Within(1500), "XINFO CONSUMERS k:q group"),
    // Wrong arguments, and keys that are missing or hold another kind of value: which of these is found first.
    exactly("LINDEX k:a (x|1.5|99999999999999999999)"),
    exactly("LSET k:a (x|1.5) value"),
    exactly("LINSERT k:a (FOO|BEFORE) a b"),
    exactly("(LPOP|RPOP|SPOP|ZPOPMIN|ZPOPMAX) k:a (x|-1)"),
    exactly("LRANGE k:a (x|0) (x|0)"),
    exactly("LTRIM k:a (x|0) x"),
    exactly("LREM k:a x value"),
    exactly("LPOS k:a a (FOO|RANK 0|RANK x|COUNT -1|MAXLEN -1)"),
    exactly("LMOVE k:a k:a LEFT FOO"),
    exactly("(LMPOP|ZMPOP) 2 k:a k:a (FOO|LEFT COUNT 0|MIN COUNT x)"),
    exactly("GETEX k:a (EX|PX|EXAT|PXAT) (0|-1|x|9223372036854775807)"),
    exactly("GETEX k:a (FOO|EX|PERSIST EX 1)"),
    exactly("(SET|GETSET) k:a value (FOO|EX 0|GET EX x|GET)"),
    exactly("SETRANGE k:a (536870912|-1|x|9223372036854775807) (value|a)"),
    exactly("GETRANGE k:a (x|0) x"),
    exactly("INCRBYFLOAT k:a (x|inf|1x|nan)"),
    exactly("(INCRBY|DECRBY) k:a (x|1.5|-9223372036854775808)"),
    exactly("(SETEX|PSETEX) k:a (0|x|-1) value"),
    exactly("(EXPIRE|PEXPIRE) k:a (x|9223372036854775807|100) [FOO|NX XX|GT LT]"),
    exactly("BITPOS k:a (2|x) (x|0)"),
    exactly("SETBIT k:a (x|-1|7) (x|2)"),
    exactly("GETBIT k:a (x|-1)"),
    exactly("BITFIELD k:a (FOO|GET x 0|GET u8 x|SET u8 0 x)"),
    exactly("LCS k:a k:a (FOO|LEN IDX|MINMATCHLEN x|LEN IDX FOO)"),
    exactly("RESTORE k:a (x|-1|0) value"),
    exactly("SORT k:a (FOO|LIMIT x 1)"),
    exactly("(HSCAN|SSCAN|ZSCAN) k:a (0|x) (FOO|COUNT 0|COUNT x|MATCH|COUNT 10 FOO)"),
    exactly("HINCRBY k:a a (x|1.5)"),
    exactly("HINCRBYFLOAT k:a a (x|inf|nan)"),
    exactly("(HRANDFIELD|SRANDMEMBER|ZRANDMEMBER) k:a (x|1.5)"),
    exactly("(HRANDFIELD|ZRANDMEMBER) k:a 1 FOO"),
    exactly("SINTERCARD (2|x|0|9) k:a k:a (FOO|LIMIT x|LIMIT -1)"),
    exactly("ZADD k:a (x a|NX XX 1 a|GT LT 1 a|1|1 a 2|1 a x b)"),
    exactly("(ZCOUNT|ZLEXCOUNT|ZRANGEBYSCORE|ZRANGEBYLEX|ZREMRANGEBYSCORE|ZREMRANGEBYRANK) k:a x (x|1)"),
    exactly("ZRANGE k:a (x|0) (1|x) (FOO|LIMIT 0 1|BYLEX WITHSCORES|BYSCORE LIMIT x 1|REV)"),
    exactly("ZRANGESTORE k:a k:a (x|0) 1 (FOO|LIMIT 0 1|BYSCORE LIMIT x 1|REV)"),
    exactly("(ZUNION|ZINTER|ZDIFF) (2|x|0|9) k:a k:a (FOO|WEIGHTS 1 x|WEIGHTS 1|AGGREGATE x|WITHSCORES FOO)"),
    exactly(
        "(ZUNIONSTORE|ZINTERSTORE|ZDIFFSTORE) k:a 2 k:a k:a (FOO|WEIGHTS 1 x|WEIGHTS 1|AGGREGATE x|WITHSCORES)",
    ),
    exactly("ZINTERCARD 2 k:a k:a (FOO|LIMIT x|LIMIT -1)"),
    exactly("GEOADD k:a (x 1 a|1 x a|1 1|1 1 a b)"),
    exactly("GEODIST k:a a b (FOO|M FOO)"),
    exactly("GEOSEARCH k:a (FROMMEMBER a BYRADIUS x M|FROMLONLAT x 1 BYRADIUS 1 M|FROMMEMBER a|FOO)"),
    exactly(
        "GEOSEARCHSTORE k:a k:a (FROMMEMBER a BYRADIUS 1 FOO|FROMLONLAT 1 1 BYBOX -1 1 M|FROMLONLAT 1 1 BYRADIUS 1 M COUNT 0|FOO BAR BAZ X)",
    ),
    exactly("(GEORADIUS|GEORADIUS_RO) k:a (x|1) 1 (x|-1|1) (FOO|M) [COUNT 0|FOO|ANY]"),
    // Without the key Redis does not read the radius.
    exactly("(GEORADIUSBYMEMBER|GEORADIUSBYMEMBER_RO) k:a a 1 M (COUNT 0|FOO|ANY)"),
    exactly("XADD k:a (x|0-0|1-1) (a|a b)"),
    exactly("XADD k:a MAXLEN (x|-1) 1-1 a b"),
    exactly("XTRIM k:a (MAXLEN x|MAXLEN -1|FOO 1|MINID x)"),
    exactly("XDEL k:a (x|1-1) (x|1-1)"),
    exactly("(XRANGE|XREVRANGE) k:a (x|-) (x|+) [COUNT x|FOO 1]"),
    exactly("XSETID k:a (x|1-1) [ENTRIESADDED x|ENTRIESADDED -1|FOO]"),
    exactly("XREAD COUNT x STREAMS k:a 0"),
    exactly("XREAD STREAMS k:a k:a (x|0) (x|>)"),
    exactly("XREADGROUP GROUP group c1 STREAMS k:a k:a (x|>) (x|>)"),
    exactly("XACK k:a group (x|1-1) x"),
    exactly("XPENDING k:a group (x|-) (x|+) (x|1)"),
    exactly("XCLAIM k:a group c1 (x|0) 1-1 (FOO|RETRYCOUNT x|LASTID x|IDLE x)"),
    exactly("XAUTOCLAIM k:a group c1 (x|0) (x|0) [COUNT 0|COUNT x|FOO]"),
    exactly("XGROUP CREATE k:a group (x|$) [ENTRIESREAD x|ENTRIESREAD -5|FOO]"),
    exactly("XGROUP SETID k:a group (x|$) [ENTRIESREAD x|FOO]"),
    exactly("XINFO STREAM k:a (FOO|FULL COUNT x|FULL FOO)"),
    exactly("(EVALSHA|FCALL) (ffff|e0e1f9fabfc9d4800c877a703b823ac0578ff8db|nothing) (x|-1|9) k:a"),
    // Transactions and scripts. Others are made of the commands above.
    exactly("WATCH k:a ; SET k:t value ; MULTI ; GET k:t ; EXEC ; UNWATCH"),
    exactly("WATCH k:a ; MULTI ; GET k:t ; EXEC"),
    exactly("MULTI ; SET k:t value ; NOSUCH ; EXEC"),
    exactly("MULTI ; SET k:t value ; GET ; EXEC"),
    exactly("MULTI ; SET k:t value ; INCR k:t ; LPUSH k:l value ; LPOP k:t ; EXEC"),
    exactly("MULTI ; SET k:t value ; DISCARD ; GET k:t"),
    exactly("MULTI ; MULTI ; EXEC"),
    exactly("EXEC"),
    exactly("EXEC value"),
    exactly("MULTI ; SET k:t value ; EXEC value ; EXEC"),
    exactly("DISCARD"),
    exactly("MULTI ; WATCH k:a ; EXEC"),
    exactly("EVAL script 2 k:a k:t value number"),
    exactly("EVAL_RO script 2 k:a k:t value number"),
    exactly("EVAL script count k:a k:t"),
    exactly("FUNCTION LOAD REPLACE library ; FCALL function 2 k:a k:t value number"),
    exactly("FUNCTION LOAD REPLACE library ; FCALL_RO function 2 k:a k:t value number"),
    exactly("FUNCTION FLUSH ; FUNCTION LOAD library ; FUNCTION LIST ; FUNCTION STATS"),
    exactly("FUNCTION DELETE libraryname ; FCALL function count k:a k:t"),
    // So many elements that Redis stores them in another encoding.
    exactly("EVAL manyitems 1 k:l"),
    exactly("EVAL manyfields 1 k:h"),
    exactly("EVAL manymembers 1 k:s"),
    exactly("EVAL manyscores 1 k:z"),
    exactly("EVALSHA (ffff|e0e1f9fabfc9d4800c877a703b823ac0578ff8db) 0"),
    exactly("ECHO value"),
    exactly("PING [value]"),
];

/// Commands of both servers that are not compared, as they are not about data, or their replies are not determined.
pub(super) const NOT_COMPARED: &[&str] = &[
    // The server, its connections and its cluster.
    "acl",
    "asking",
    "auth",
    "bgrewriteaof",
    "bgsave",
    "client",
    "cluster",
    "command",
    "config",
    "debug",
    "flushdb",
    "hello",
    "info",
    "latency",
    "lastsave",
    "lolwut",
    "memory",
    "module",
    "monitor",
    "move",
    "object",
    "psync",
    "quit",
    "readonly",
    "readwrite",
    "replconf",
    "replicaof",
    "reset",
    "role",
    "save",
    "select",
    "shutdown",
    "slaveof",
    "slowlog",
    "swapdb",
    "sync",
    "time",
    "wait",
    // `dump.rs` sends them both ways with random values: their bytes are not text.
    "dump",
    "restore",
    // Sent before each program.
    "flushall",
    // Channels have tests of their own, since their messages are not replies.
    "psubscribe",
    "publish",
    "pubsub",
    "punsubscribe",
    "spublish",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
    // Sent in every program, around other commands.
    "unwatch",
    "multi",
    "watch",
    "script",
    "function",
    "evalsha_ro",
];

const KEYS: [&str; 14] = ["t1", "t2", "t3", "l1", "l2", "h1", "s1", "s2", "s3", "z1", "z2", "q1", "q2", ""];

/// All keys that programs use.
pub(super) fn all_keys() -> Vec<Vec<u8>> {
    KEYS.iter().chain(&["x1", "p1", "p2", "g1"]).map(|key| key.as_bytes().to_vec()).collect()
}

const SCRIPTS: [&str; 8] = [
    "return redis.call('get', KEYS[1])",
    "return redis.call('set', KEYS[2], ARGV[1])",
    "return {redis.call('type', KEYS[1]).ok, redis.call('exists', KEYS[2]), #ARGV}",
    "return redis.pcall('incrby', KEYS[2], ARGV[2])",
    "return redis.call('incrby', KEYS[2], ARGV[2])",
    "return cjson.encode({KEYS, ARGV})",
    "local t = redis.call('mget', KEYS[1], KEYS[2]) return {type(t[1]), type(t[2]), t}",
    "redis.call('append', KEYS[2], ARGV[1]) redis.call('nosuch')",
];

const LIBRARY: &str = "#!lua name=lib
redis.register_function{function_name = 'f', flags = {'no-writes'}, description = 'reads', callback = function(keys, words)
    local values = redis.call('mget', unpack(keys))
    return {#keys, #words, words[1], type(values[1]), redis.pcall('set', keys[2], 'v')}
end}";

const OTHER_LIBRARY: &str = "#!lua name=lib
local function add(key, number) return redis.call('incrby', key, number) end
redis.register_function('f', function(keys, words) return add(keys[2], words[2]) end)";

const LONG: &str =
    "a value of more than sixty-four bytes, so that Redis keeps it in another way than a short one";

/// An argument of a kind.
fn argument(random: &mut Random, kind: &str) -> String {
    let choices: &[&str] = match kind {
        "value" => &[
            "",
            "a",
            "b",
            "hello world",
            "1",
            "-1",
            "10",
            "3.5",
            "nan",
            "a\0b\r\n",
            LONG,
            " 1",
            "01",
            "9223372036854775807",
        ],
        "number" => {
            &["0", "1", "-1", "10", "9223372036854775807", "-9223372036854775808", "1.5", "1e3", "3.0"]
        }
        "member" => &["a", "b", "c", "d", "e", "1", "2", "10", "-5", "", LONG],
        "integer" => &[
            "1",
            "-1",
            "0",
            "10",
            "9223372036854775807",
            "-9223372036854775808",
            "9223372036854775808",
            "1.5",
            "x",
            "",
            " 1",
            "+1",
            "01",
            "-0",
        ],
        // Redis computes with more than 64 bits; here 1e400 is refused.
        "decimal" => {
            &["1", "0.1", "-2.5", "1e3", "inf", "-inf", "nan", "x", "", "3.0e-2", " 1", "+1.5", ".5", "5."]
        }
        "score" => {
            &["1", "2", "3", "0", "-1", "1.5", "0.1", "inf", "-inf", "+inf", "nan", "1e3", "x", "", "-0"]
        }
        "bound" => &[
            "-inf", "+inf", "0", "1", "(1", "2", "(2", "(-inf", "1.5", "inf", "x", "(", "", "nan", "(x", "[1",
        ],
        "lex" => &["-", "+", "[a", "(a", "[b", "[c", "(d", "[", "(", "a", "", "[e"],
        "index" => &[
            "0",
            "1",
            "2",
            "3",
            "-1",
            "-2",
            "-3",
            "100",
            "-100",
            "9223372036854775807",
            "-9223372036854775808",
            "x",
            "",
            "1.5",
        ],
        // Redis 7.0 negates the smallest integer, which has no opposite.
        "rank" => &["1", "2", "3", "-1", "-2", "-3", "0", "100", "9223372036854775807", "x", ""],
        "count" => &["0", "1", "2", "3", "5", "100", "-1", "9223372036854775807", "x", ""],
        "place" => &["0", "1", "2", "3", "-1", "-2", "-7", "100", "-100", "9223372036854775807"],
        // A large negative number would request as many elements.
        "draws" => &["0", "1", "2", "3", "100", "-1", "-2", "-5", "x", ""],
        // Redis would allocate the bytes in between.
        "offset" => &["0", "1", "2", "5", "10", "100", "-1", "536870912", "9223372036854775807", "x"],
        "bit" => &["0", "1", "7", "8", "9", "15", "100", "-1", "4294967296", "#1", "x"],
        "field" => &["u8", "i8", "u1", "i64", "u63", "u64", "i65", "i5", "x", "u0"],
        "seconds" => {
            &["100", "1000", "100000", "0", "-1", "9223372036854775807", "9223372036854775", "x", "1.5", ""]
        }
        "millis" => &["100000", "1000000", "0", "-1", "9223372036854775807", "x", ""],
        // A key that is set with a time in the past stays visible to KEYS, SCAN and DBSIZE of Redis until a client
        // requests it.
        "date" => &["9999999999", "8888888888", "0", "-1", "9223372036854775807", "x"],
        "datems" => &["9999999999000", "8888888888000", "0", "-1", "9223372036854775807", "x"],
        "past" => &[
            "9999999999",
            "8888888888",
            "9999999999000",
            "8888888888000",
            "1",
            "0",
            "-1",
            "9223372036854775807",
            "x",
        ],
        "entry" => &[
            "1-1",
            "1-2",
            "2-1",
            "3-0",
            "3",
            "4-4",
            "5-*",
            "7-7",
            "0-0",
            "0-1",
            "0",
            "x",
            "-",
            "",
            "1-",
            "1-1-1",
            "-1-1",
            "18446744073709551615-18446744073709551615",
            "18446744073709551616",
            "99-99",
        ],
        "entries" => &[
            "-",
            "+",
            "0",
            "1",
            "1-2",
            "(1-1",
            "(2",
            "3",
            "5-1",
            "(-",
            "(+",
            "x",
            "",
            "(18446744073709551615-18446744073709551615",
        ],
        "manycounted" => &["for i = 1, 2000 do redis.call('pfadd', KEYS[1], i) end"],
        // At 180 degrees, and at the northernmost latitude, searches do not find the same places yet.
        "longitude" => &["13.361389", "15.087269", "0", "-120", "2.5", "13.4", "180", "-180"],
        "latitude" => &["38.115556", "37.502669", "0", "-60", "2.5", "38", "85.05112878", "-85.05112878"],
        "size" => &["100", "200", "0", "1000", "20000", "1e6", "0.5"],
        "angle" => &["180.1", "86", "x", "", "nan", "38"],
        "wrongsize" => &["-1", "x", "", "nan"],
        "unit" => &["km", "m", "mi", "ft", "KM"],
        // Commands that wait return at most 1,000 elements.
        "few" => &["1", "2", "3", "100", "0", "-1", "x"],
        "patience" => &["0.01", "0.01", "0.01", "-1", "x", ""],
        "group" => &["g1", "g1", "g1", "g2", ""],
        "consumer" => &["c1", "c2", ""],
        "script" => &SCRIPTS,
        "library" => {
            &[LIBRARY, OTHER_LIBRARY, "#!lua name=lib\nredis.nosuch()", "#!lua name=lib\nf(", "return 1"]
        }
        "libraryname" => &["lib", "lib", "other"],
        "function" => &["f", "f", "F", "nosuch"],
        "manyitems" => &["for i = 1, 300 do redis.call('rpush', KEYS[1], i % 20, 'item ' .. i) end"],
        "manyfields" => &["for i = 1, 300 do redis.call('hset', KEYS[1], 'field ' .. i, i) end"],
        "manymembers" => &[
            "for i = 1, 300 do redis.call('sadd', KEYS[1], 'member ' .. i) end",
            "for i = 1, 600 do redis.call('sadd', KEYS[1], i) end",
        ],
        "manyscores" => &["for i = 1, 300 do redis.call('zadd', KEYS[1], i % 7, i) end"],
        other => unreachable!("no kind of arguments is called {other}"),
    };
    random.of(choices).to_owned()
}

/// Commands whose words stay in their places. The result of another cursor follows from the order of members,
/// which differs; ZINCRBY accepts options of ZADD as its score; Redis has more databases than one to copy to; and
/// some accept times in milliseconds.
const NOT_SPOILED: [&str; 9] =
    ["SCAN", "HSCAN", "SSCAN", "ZSCAN", "ZINCRBY", "COPY", "XCLAIM", "XAUTOCLAIM", "XPENDING"];

/// What may replace any word. No number among them requests much.
const ODD: [&str; 22] = [
    "",
    "x",
    "-1",
    "0",
    "1",
    "2",
    "nan",
    "+inf",
    "1.5",
    "9223372036854775808",
    "(1",
    "[a",
    "NX",
    "XX",
    "COUNT",
    "LIMIT",
    "WITHSCORES",
    "REV",
    "GET",
    "LEFT",
    "EX",
    "t1",
];

impl Template {
    /// The names of its commands.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        let first = self.text.split(" ; ").map(|command| command.split(' ').next().unwrap_or_default());
        first.flat_map(|names| names.trim_matches(['(', ')']).split('|'))
    }

    /// Makes the commands of a step.
    pub(super) fn make(&self, random: &mut Random) -> Vec<Words> {
        let mut commands: Vec<Words> = self.text.split(" ; ").map(|text| make(random, text)).collect();
        let may_be_spoiled = commands.len() == 1
            && !self.names().any(|name| NOT_SPOILED.contains(&name))
            && !self.text.contains("k:x")
            && !self.text.contains("k:p")
            && !self.text.contains("k:g");
        if may_be_spoiled && random.percent(8) {
            spoil(random, &mut commands[0]);
        }
        commands
    }
}

/// Removes, adds, replaces or exchanges words.
fn spoil(random: &mut Random, words: &mut Words) {
    let odd = |random: &mut Random| random.of(&ODD).as_bytes().to_vec();
    let place = random.below(words.len());
    match random.below(4) {
        0 if words.len() > 1 => drop(words.pop()),
        1 => words.push(odd(random)),
        2 if place > 0 => words[place] = odd(random),
        _ if place > 1 => words.swap(1, place),
        _ => {}
    }
}

fn make(random: &mut Random, text: &str) -> Words {
    let mut words = Vec::new();
    let mut rest = text;
    // Options that follow each other are shuffled.
    let mut options: Vec<Words> = Vec::new();
    while !rest.is_empty() {
        let (item, behind) = split(rest);
        rest = behind;
        match item.strip_prefix('[') {
            Some(option) => options.push(chosen(random, &option[..option.len() - 1], 60)),
            None => {
                shuffle_into(random, &mut options, &mut words);
                words.extend(one(random, item));
            }
        }
    }
    shuffle_into(random, &mut options, &mut words);
    words
}

fn shuffle_into(random: &mut Random, options: &mut Vec<Words>, words: &mut Words) {
    if let Some(option) = options.last().filter(|_| random.percent(4)).cloned() {
        options.push(option);
    }
    while !options.is_empty() {
        words.extend(options.swap_remove(random.below(options.len())));
    }
}

/// Splits the first item off a text: a word, or a bracket.
fn split(text: &str) -> (&str, &str) {
    let mut depth = 0;
    for (place, letter) in text.char_indices() {
        match letter {
            '[' | '{' | '(' => depth += 1,
            ']' | '}' | ')' => depth -= 1,
            ' ' if depth == 0 => return (&text[..place], text[place + 1..].trim_start()),
            _ => {}
        }
    }
    (text, "")
}

/// One of the alternatives, or, if it is not sure to be there, nothing.
fn chosen(random: &mut Random, alternatives: &str, percent: usize) -> Words {
    if !random.percent(percent) {
        return Vec::new();
    }
    let mut found = vec![];
    let (mut depth, mut start) = (0, 0);
    for (place, letter) in alternatives.char_indices() {
        match letter {
            '[' | '{' | '(' => depth += 1,
            ']' | '}' | ')' => depth -= 1,
            '|' if depth == 0 => {
                found.push(&alternatives[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    found.push(&alternatives[start..]);
    let text = random.of(&found);
    if text.is_empty() { vec![Vec::new()] } else { make(random, text) }
}

fn one(random: &mut Random, item: &str) -> Words {
    let inside = || &item[1..item.len() - 1];
    if item.starts_with('{') {
        return (0..1 + random.below(4)).flat_map(|_| make(random, inside())).collect();
    }
    if item.starts_with('(') {
        return chosen(random, inside(), 100);
    }
    if let Some(kind) = item.strip_prefix("k:") {
        return vec![key(random, kind).into_bytes()];
    }
    if let Some(kind) = item.strip_prefix("numbered:") {
        let count = 1 + random.below(3);
        let stated = match random.below(20) {
            0 => random.of(&["0", "-1", "x", "9223372036854775807"]).to_owned(),
            1 => (count + 1).to_string(),
            _ => count.to_string(),
        };
        let keys = (0..count).map(|_| key(random, kind).into_bytes());
        return std::iter::once(stated.into_bytes()).chain(keys).collect();
    }
    let is_kind = item.len() > 1
        && item.bytes().all(|letter| letter.is_ascii_lowercase())
        && !THEMSELVES.contains(&item);
    let word = match is_kind {
        true => argument(random, item),
        // A name is the same in small letters.
        false if random.percent(10) => item.to_ascii_lowercase(),
        false => item.to_owned(),
    };
    vec![word.into_bytes()]
}

/// Words in small letters that stand for themselves.
const THEMSELVES: [&str; 11] =
    ["string", "list", "set", "zset", "hash", "none", "nothing", "nosort", "ffff", "inf", "nan"];

/// A key that usually holds a kind of value.
fn key(random: &mut Random, kind: &str) -> String {
    if kind.len() > 1 {
        return kind.to_owned();
    }
    // These hold nothing else.
    match kind {
        "x" => return "x1".to_owned(),
        "g" => return "g1".to_owned(),
        "p" => return random.of(&["p1", "p2"]).to_owned(),
        _ => {}
    }
    let own: Vec<&str> = KEYS.iter().copied().filter(|key| key.starts_with(kind)).collect();
    match own.is_empty() || random.percent(10) {
        true => random.of(&KEYS).to_owned(),
        false => random.of(&own).to_owned(),
    }
}

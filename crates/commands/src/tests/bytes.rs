//! Bits, sketches, places, `SORT` and the fields of hashes: which requests are refused, in Redis's words.

use super::*;
use kv::command::{BitOperation, FieldAction, FieldOperation, FieldsCondition, Overflow, SortOptions};
use kv::geo::{Centre, Order, Place, Query, Shape, Shown};
use kv::{BytesCommand, HashCommand, List, SortCommand, SortedCommand};

/// The errors are those of redis-server 7.0.15.
#[test]
fn errors_of_requests_are_those_of_redis() {
    for (line, expected) in [
        ("SETBIT k 1", "ERR wrong number of arguments for 'setbit' command"),
        ("SETBIT k -1 1", "ERR bit offset is not an integer or out of range"),
        ("SETBIT k x 1", "ERR bit offset is not an integer or out of range"),
        ("SETBIT k 1 2", "ERR bit is not an integer or out of range"),
        ("GETBIT k x", "ERR bit offset is not an integer or out of range"),
        ("BITCOUNT k 1", "ERR syntax error"),
        ("BITCOUNT k 1 x", "ERR value is not an integer or out of range"),
        ("BITCOUNT k 1 2 foo", "ERR syntax error"),
        ("BITPOS k 2", "ERR The bit argument must be 1 or 0."),
        ("BITPOS k x", "ERR value is not an integer or out of range"),
        ("BITPOS k 1 x", "ERR value is not an integer or out of range"),
        ("BITPOS k 1 1 2 foo", "ERR syntax error"),
        ("BITOP foo d k", "ERR syntax error"),
        ("BITOP NOT d k l", "ERR BITOP NOT must be called with a single source key."),
        ("BITOP diff1 d k", "ERR BITOP DIFF1 must be called with at least two source keys."),
        ("BITFIELD k foo", "ERR syntax error"),
        (
            "BITFIELD k GET u64 0",
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        ),
        (
            "BITFIELD k GET i65 0",
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        ),
        (
            "BITFIELD k GET x8 0",
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        ),
        ("BITFIELD k GET u8 -1", "ERR bit offset is not an integer or out of range"),
        ("BITFIELD k GET u8 #x", "ERR bit offset is not an integer or out of range"),
        ("BITFIELD k SET u8 0 x", "ERR value is not an integer or out of range"),
        ("BITFIELD k OVERFLOW foo", "ERR Invalid OVERFLOW type specified"),
        ("BITFIELD k GET u8", "ERR syntax error"),
        ("BITFIELD_RO k SET u8 0 1", "ERR BITFIELD_RO only supports the GET subcommand"),
        ("LCS k l foo", "ERR syntax error"),
        ("LCS k l LEN IDX", "ERR If you want both the length and indexes, please just use IDX."),
        ("GEOADD k 1 2", "ERR wrong number of arguments for 'geoadd' command"),
        ("GEOADD k 1 2 a 3", "ERR syntax error"),
        ("GEOADD k x 2 a", "ERR value is not a valid float"),
        ("GEOADD k 181 2 a", "ERR invalid longitude,latitude pair 181.000000,2.000000"),
        ("GEOADD k 1 86 a", "ERR invalid longitude,latitude pair 1.000000,86.000000"),
        ("GEOADD k NX XX 1 2 a", "ERR syntax error"),
        ("GEODIST k a b foo", "ERR unsupported unit provided. please use M, KM, FT, MI"),
        ("GEODIST k a b m x", "ERR syntax error"),
        (
            "GEOSEARCH k FROMMEMBER a ASC COUNT 1",
            "ERR exactly one of BYRADIUS and BYBOX can be specified for GEOSEARCH",
        ),
        (
            "GEOSEARCH k BYRADIUS 1 m ASC ASC ASC",
            "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for GEOSEARCH",
        ),
        ("GEOSEARCH k FROMMEMBER a BYRADIUS x m", "ERR need numeric radius"),
        ("GEOSEARCH k FROMMEMBER a BYRADIUS -1 m", "ERR radius cannot be negative"),
        (
            "GEOSEARCH k FROMMEMBER a BYRADIUS 1 foo",
            "ERR unsupported unit provided. please use M, KM, FT, MI",
        ),
        ("GEOSEARCH k FROMMEMBER a BYBOX x 1 m", "ERR need numeric width"),
        ("GEOSEARCH k FROMMEMBER a BYBOX 1 x m", "ERR need numeric height"),
        ("GEOSEARCH k FROMMEMBER a BYBOX 1 -1 m", "ERR height or width cannot be negative"),
        ("GEOSEARCH k FROMMEMBER a BYRADIUS 1 m COUNT 0", "ERR COUNT must be > 0"),
        ("GEOSEARCH k FROMMEMBER a BYRADIUS 1 m ANY", "ERR the ANY argument requires COUNT argument"),
        ("GEOSEARCH k FROMMEMBER a BYRADIUS 1 m STORE d", "ERR syntax error"),
        ("GEOSEARCH k FROMMEMBER a FROMLONLAT 1 1 BYRADIUS 1 m", "ERR syntax error"),
        ("GEOSEARCH k FROMMEMBER a BYRADIUS 1 m BYBOX 1 1 m", "ERR syntax error"),
        ("GEOSEARCH k BYPOLYGON x 1 1 2 2 3 3", "ERR invalid number of vertices"),
        ("GEOSEARCH k BYPOLYGON 2 1 1 2 2 3 3", "ERR GEOSEARCH BYPOLYGON must have at least 3 vertices"),
        ("GEOSEARCH k BYPOLYGON 3 1 1 2 2", "ERR GEOSEARCH BYPOLYGON must have at least 3 vertices"),
        ("GEOSEARCH k BYPOLYGON 3 1 1 2 2 3 1 FROMMEMBER a", "ERR syntax error"),
        ("GEOSEARCH k BYPOLYGON 3 1 1 2 2 3 1 BYBOX 4 4 km", "ERR syntax error"),
        ("GEOSEARCH k FROMLONLAT 1 1 BYPOLYGON 3 1 1 2 2 3 1", "ERR syntax error"),
        (
            "GEOSEARCH k FROMLONLAT 181 1 BYRADIUS 1 m",
            "ERR invalid longitude,latitude pair 181.000000,1.000000",
        ),
        (
            "GEOSEARCHSTORE d k FROMMEMBER a BYRADIUS 1 m WITHDIST",
            "ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
        ),
        ("GEORADIUS k x 1 1 m", "ERR value is not a valid float"),
        ("GEORADIUS k 1 1 1 foo", "ERR unsupported unit provided. please use M, KM, FT, MI"),
        (
            "GEORADIUS k 1 1 1 m STORE d WITHDIST",
            "ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
        ),
        ("GEORADIUS_RO k 1 1 1 m STORE d", "ERR syntax error"),
        ("GEORADIUSBYMEMBER k a x m", "ERR need numeric radius"),
        ("SORT k foo", "ERR syntax error"),
        ("SORT k LIMIT 1", "ERR syntax error"),
        ("SORT k LIMIT x 1", "ERR value is not an integer or out of range"),
        ("SORT k STORE", "ERR syntax error"),
        ("SORT_RO k STORE d", "ERR syntax error"),
        ("HRANDFIELD k x", "ERR value is not an integer or out of range"),
        ("HRANDFIELD k 1 foo", "ERR syntax error"),
        (
            "HRANDFIELD k -9223372036854775808",
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ),
        ("HRANDFIELD k 4611686018427387905 WITHVALUES", "ERR value is out of range"),
    ] {
        assert_refused(line, expected);
    }
}

#[test]
fn errors_of_expiry_of_fields_are_those_of_redis_8() {
    let (missing, mismatch) = (
        "ERR Mandatory argument FIELDS is missing or not at the right position",
        "ERR The `numfields` parameter must match the number of arguments",
    );
    let (no_fields, twice, too_few) = (
        "ERR missing FIELDS argument",
        "ERR FIELDS keyword specified multiple times",
        "ERR wrong number of arguments",
    );
    let (negative, integer) =
        ("ERR invalid expire time, must be >= 0", "ERR value is not an integer or out of range");
    for (line, expected) in [
        ("HEXPIRE k 1 FIELDS 1", "ERR wrong number of arguments for 'hexpire' command"),
        ("HEXPIRE k x FIELDS 1 f", integer),
        ("HEXPIRE k -1 FIELDS 1 f", negative),
        ("HEXPIRE k 9223372036854775807 FIELDS 1 f", "ERR invalid expire time in 'hexpire' command"),
        ("HEXPIRE k 70368744177664 FIELDS 1 f", "ERR invalid expire time in 'hexpire' command"),
        ("HPEXPIREAT k 70368744177664 FIELDS 1 f", "ERR invalid expire time in 'hpexpireat' command"),
        ("HPEXPIRE k 68668744177664 FIELDS 1 f", "ERR invalid expire time in 'hpexpire' command"),
        ("HEXPIRE k 1 XX NX FIELDS 1 f", "ERR Multiple condition flags specified"),
        ("HEXPIRE k 1 FIELDS 1 f GT XX", "ERR Multiple condition flags specified"),
        ("HEXPIRE k 1 FIELDS 1 f FIELDS 1 g", twice),
        ("HEXPIRE k 1 NX XX NX", no_fields),
        ("HEXPIRE k 1 NX NX FIELDS 1", "ERR FIELDS requires at least numfields and one field argument"),
        ("HEXPIRE k 1 FIELDS 1 f g", "ERR unknown argument: g"),
        ("HPEXPIRE k 1 FIELDS 2147483648 f", "ERR Parameter `numFields` should be greater than 0"),
        ("HPEXPIRE k 1 FIELDS 0 f", "ERR Parameter `numFields` should be greater than 0"),
        ("HPEXPIRE k 1 FIELDS 2 f", too_few),
        ("HTTL k FIELDS 0 f", "ERR Number of fields must be a positive integer"),
        ("HTTL k FIELDS 1 f g", mismatch),
        ("HPERSIST k FILED 1 f", missing),
        ("HGETDEL k FIELDS x f", "ERR Number of fields must be a positive integer"),
        (
            "HGETEX k EX 1 PX 1 FIELDS 1 f",
            "ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified",
        ),
        ("HGETEX k FIELDS 1 f FIELDS", twice),
        (
            "HGETEX k PERSIST EX FIELDS",
            "ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified",
        ),
        ("HGETEX k PERSIST 1 FIELDS", "ERR unknown argument: 1"),
        ("HGETEX k EX 1 FIELDS", "ERR wrong number of arguments for 'hgetex' command"),
        ("HGETEX k FIELDS 1 f EX", "ERR missing expire time"),
        ("HGETEX k FIELDS x f", "ERR invalid number of fields"),
        ("HGETEX k FIELDS 2 f", too_few),
        ("HGETEX k EX 1 a b", "ERR unknown argument: a"),
        ("HGETEX k EX 70368744177 FIELDS 1 f", "ERR invalid expire time in 'hgetex' command"),
        ("HGETEX k EX -1 FIELDS 1 f", negative),
        ("HGETEX k FNX FIELDS 1 f", "ERR unknown argument"),
        ("HGETEX k KEEPTTL FIELDS 1 f", "ERR unknown argument"),
        ("HSETEX k FNX FXX FIELDS 1 f v", "ERR Only one of FXX or FNX arguments can be specified"),
        ("HSETEX k FIELDS 1 f v FNX FNX", "ERR Only one of FXX or FNX arguments can be specified"),
        (
            "HSETEX k KEEPTTL KEEPTTL FIELDS 1 f v",
            "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
        (
            "HSETEX k FIELDS 1 f v KEEPTTL EX 1",
            "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
        ("HSETEX k PERSIST FIELDS 1 f v", "ERR unknown argument"),
        ("HSETEX k PERSIST KEEPTTL FIELDS 1 f v", "ERR unknown argument"),
        ("HSETEX k FIELDS 1 f v g", "ERR unknown argument: g"),
        ("HSETEX k FIELDS 2 f v g", too_few),
        ("HSETEX k EX 1 FNX KEEP", "ERR unknown argument: KEEP"),
        ("HSETEX k EX 1 FNX FXX", "ERR Only one of FXX or FNX arguments can be specified"),
        (
            "HSETEX k PX 1 FNX PERSIST",
            "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
        ("HSETEX k FNX PX 1", "ERR wrong number of arguments for 'hsetex' command"),
        ("HSETEX k FNX EXAT 1 FIELDS", "ERR wrong number of arguments for 'hsetex' command"),
    ] {
        assert_refused(line, expected);
    }
}

#[test]
fn nodes_of_release_1_take_options_of_commands_on_fields_before_the_fields() {
    let missing = "ERR Mandatory argument FIELDS is missing or not at the right position";
    let mismatch = "ERR The `numfields` parameter must match the number of arguments";
    for (line, expected) in [
        ("HEXPIRE k 1 FIELDS 1 f NX", mismatch),
        ("HEXPIRE k 1 NX NX FIELDS 1 f", missing),
        ("HPEXPIRE k 1 FIELDS 0 f", "ERR Parameter `numFields` should be greater than 0"),
        ("HGETEX k FIELDS 1 f EX 1", mismatch),
        ("HGETEX k EX 1 PX 1 FIELDS 1 f", "ERR syntax error"),
        ("HSETEX k FIELDS 1 f v KEEPTTL", mismatch),
        ("HSETEX k FIELDS x f v", "ERR Number of fields must be a positive integer"),
    ] {
        assert_eq!(at_level_1(line), Err(expected.to_string()), "{line}");
    }
    for line in [
        "HPEXPIREAT k 70368744177664 GT FIELDS 1 f",
        "HGETEX k PERSIST FIELDS 1 f",
        "HSETEX k FXX EX 1 FIELDS 1 f v",
    ] {
        assert!(at_level_1(line).is_ok(), "{line}");
    }
}

#[test]
fn options_of_commands_on_fields_are_read() {
    let (mut scratch, mut names) = (Vec::new(), Vec::new());
    let fields = List::build(&mut scratch, [&b"f"[..], b"g"]);
    let hash = |line: &str, expected: HashCommand<'_>| assert_parses(line, Hash(expected));
    let (deadline, condition) = (In(5000), ExpireCondition::IfLater);
    hash("HEXPIRE k 5 gt FIELDS 2 f g", HashCommand::Expire { key: KEY, fields, deadline, condition });
    let (deadline, condition) = (At(7), ExpireCondition::Always);
    hash("HPEXPIREAT k 7 FIELDS 2 f g", HashCommand::Expire { key: KEY, fields, deadline, condition });
    let unit = ExpiryUnit::MillisecondsLeft;
    hash("HPTTL k fields 2 f g", HashCommand::TimeToLive { key: KEY, fields, unit });
    hash("HGETEX k FIELDS 2 f g", HashCommand::MultiGet { key: KEY, fields });
    let expiry = Expiry::Set(At(9000));
    hash("HGETEX k EXAT 9 FIELDS 2 f g", HashCommand::GetExpire { key: KEY, fields, expiry });
    let (expiry, condition) = (Expiry::Keep, FieldsCondition::of_fields(Condition::IfPresent));
    let set = HashCommand::SetExpire { key: KEY, pairs: fields, expiry, condition };
    hash("HSETEX k FXX keepttl FIELDS 1 f g", set);
    hash("HSETEX k FIELDS 1 f g keepttl FXX", set);
    hash("HSETEX k keepttl FIELDS 1 f g FXX", set);
    let condition = FieldsCondition { key: Condition::IfAbsent, fields: Condition::IfPresent };
    let set = HashCommand::SetExpire { key: KEY, pairs: fields, expiry, condition };
    hash("HSETEX k nx FXX keepttl FIELDS 1 f g", set);
    let names = List::build(&mut names, [&b"FIELDS"[..], b"EX"]);
    let deadline = In(5000);
    for (line, condition) in [
        ("HEXPIRE k 5 FIELDS 2 FIELDS EX NX", ExpireCondition::IfNone),
        ("HEXPIRE k 5 LT lt FIELDS 2 FIELDS EX LT", ExpireCondition::IfEarlier),
    ] {
        hash(line, HashCommand::Expire { key: KEY, fields: names, deadline, condition });
    }
    let expiry = Expiry::Set(In(9000));
    hash("HGETEX k FIELDS 2 FIELDS EX EX 9", HashCommand::GetExpire { key: KEY, fields: names, expiry });
    // The latest deadline of a field.
    let (deadline, condition) = (At(70_368_744_177_663), ExpireCondition::Always);
    let expire = HashCommand::Expire { key: KEY, fields: names, deadline, condition };
    hash("HPEXPIREAT k 70368744177663 FIELDS 2 FIELDS EX", expire);
    let (count, with_values) = (Some(-3), true);
    hash("HRANDFIELD k -3 withvalues", HashCommand::Random { key: KEY, count, with_values });
    let scan = HashCommand::Scan { key: KEY, position: 7, count: 10, pattern: None, with_values: false };
    hash("HSCAN k 7 novalues", scan);
}

#[test]
fn options_of_commands_on_bits_are_read() {
    let bytes = |line: &str, expected: BytesCommand<'_>| assert_parses(line, OnBytes(expected));
    bytes("SETBIT k 7999 1", BytesCommand::SetBit { key: KEY, offset: 7999, bit: true });
    assert_refused("SETBIT k 8000 1", "ERR bit offset is not an integer or out of range");
    bytes("BITCOUNT k", BytesCommand::CountBits { key: KEY, start: 0, end: -1, in_bits: false });
    bytes("BITCOUNT k 1 -2 bit", BytesCommand::CountBits { key: KEY, start: 1, end: -2, in_bits: true });
    let (bit, end) = (false, Some(-1));
    bytes("BITPOS k 0 3 -1 BIT", BytesCommand::FindBit { key: KEY, bit, start: 3, end, in_bits: true });
    let mut scratch = Vec::new();
    let keys = List::build(&mut scratch, [&b"a"[..], b"b"]);
    let (operation, to) = (BitOperation::Xor, KEY);
    bytes("BITOP xor k a b", BytesCommand::Combine { operation, to, keys });
    bytes("BITOP one k a b", BytesCommand::Combine { operation: BitOperation::One, to, keys });
    let operation = |action, overflow, offset, operand| {
        FieldOperation { action, is_signed: true, bits: 5, overflow, offset, operand }.encoded()
    };
    let operations = [
        operation(FieldAction::Get, Overflow::Wrap, 3, 0),
        operation(FieldAction::Increment, Overflow::Saturate, 10, -1),
    ];
    let mut scratch = Vec::new();
    let operations = List::build(&mut scratch, operations.iter().map(|item| &item[..]));
    let change = BytesCommand::ChangeFields { key: KEY, operations };
    bytes("BITFIELD k GET i5 3 OVERFLOW sat INCRBY i5 #2 -1", change);
    let reads = List::build(&mut scratch, []);
    bytes("BITFIELD k", BytesCommand::ReadFields { key: KEY, operations: reads });
}

#[test]
fn options_of_searches_and_of_sort_are_read() {
    let query = |query: Query<'_>| {
        let mut bytes = Vec::new();
        query.encode(&mut bytes);
        bytes
    };
    let plain = Query {
        centre: Centre::Member(b"a"),
        shape: Shape::Circle(2.5),
        unit_m: 1000.0,
        order: Order::Any,
        count: 0,
        takes_any: false,
        shown: Shown::default(),
        stores_distance: false,
    };
    let sorted = |line: &str, expected: SortedCommand<'_>| assert_parses(line, OnSorted(expected));
    let found = query(plain);
    sorted("GEOSEARCH k BYRADIUS 2.5 km FROMMEMBER a", SortedCommand::Find { key: KEY, query: &found });
    let found = query(Query { order: Order::Ascending, count: 3, ..plain });
    sorted("GEORADIUSBYMEMBER k a 2.5 km COUNT 3", SortedCommand::Find { key: KEY, query: &found });
    let centre = Centre::Place(Place { longitude: 1.0, latitude: -2.0 });
    let (shape, shown) = (Shape::Box(1.0, 2.0), Shown { distance: true, hash: false, place: true });
    let found = query(Query { centre, shape, unit_m: 1.0, count: 3, takes_any: true, shown, ..plain });
    let line = "GEOSEARCH k FROMLONLAT 1 -2 BYBOX 1 2 m COUNT 3 ANY WITHCOORD WITHDIST";
    sorted(line, SortedCommand::Find { key: KEY, query: &found });
    let line =
        "GEOSEARCH k BYBOX 7 7 km FROMLONLAT 7 7 FROMLONLAT 1 -2 BYBOX 1 2 m COUNT 3 ANY WITHCOORD WITHDIST";
    sorted(line, SortedCommand::Find { key: KEY, query: &found });
    let found = query(Query { centre, stores_distance: true, ..plain });
    let store = SortedCommand::StoreFound { to: VALUE, from: KEY, query: &found };
    sorted("GEORADIUS k 1 -2 2.5 km STOREDIST v", store);
    let (mut scratch, mut options) = (Vec::new(), Vec::new());
    let gets = List::build(&mut scratch, [&b"#"[..], b"w_*"]);
    let (by, limit) = (Some(&b"b_*"[..]), (1, -1));
    SortOptions { by, gets, limit, is_reverse: true, by_text: true }.encode(&mut options);
    let store = SortCommand::Store { key: KEY, to: VALUE, options: &options };
    assert_parses("SORT k GET # BY b_* LIMIT 1 -1 DESC ALPHA GET w_* STORE v", Sort(store));
}

//! What `CONFIG GET` reports and `CONFIG SET` accepts.

use super::*;
use wire::resp::{ArgumentsBuffer, Protocol, write_reply};

fn request(line: &str) -> ArgumentsBuffer {
    line.split(' ').map(|word| if word == "''" { b"" } else { word.as_bytes() }).collect()
}

fn set(parameters: &mut Parameters, pairs: &str) -> Result<(), String> {
    let request = request(&format!("CONFIG SET {pairs}"));
    parameters.set(request.as_arguments()).map_err(|error| error.to_string())
}

/// The reply of `CONFIG GET`, as a RESP3 client sees it, with line ends as spaces.
fn get(parameters: &Parameters, patterns: &str) -> String {
    let request = request(&format!("CONFIG GET {patterns}"));
    let (mut replies, mut bytes) = (ReplyBuffer::new(), Vec::new());
    parameters.get(request.as_arguments(), &mut replies);
    write_reply(replies.as_bytes(), Protocol::Resp3, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap().replace("\r\n", " ").trim_end().to_string()
}

#[test]
fn every_default_is_a_value_that_its_parameter_may_have() {
    for parameter in &PARAMETERS {
        let normal = parameter.kind.normalize(parameter.default.as_bytes());
        assert_eq!(normal.as_deref(), Ok(parameter.default), "{}", parameter.name);
        assert_eq!(parameter.name, parameter.name.to_ascii_lowercase());
        assert!(parameter.doc.ends_with('.'), "{}", parameter.name);
    }
}

#[test]
fn get_returns_each_matching_parameter_once() {
    let parameters = Parameters::with(&[]);
    assert_eq!(get(&parameters, "save APPENDONLY"), "%2 $10 appendonly $2 no $4 save $0");
    assert_eq!(
        get(&parameters, "maxmem* *policy"),
        "%5 $9 maxmemory $1 0 $17 maxmemory-clients $1 0 $27 maxmemory-eviction-tenacity $2 10 \
         $16 maxmemory-policy $10 noeviction $17 maxmemory-samples $1 5"
    );
    assert_eq!(get(&parameters, "nosuch"), "%0");
    let names = PARAMETERS.iter().flat_map(Parameter::names).count();
    assert!(get(&parameters, "*").starts_with(&format!("%{names} ")));
}

#[test]
fn live_parameters_take_effect_and_are_returned_in_one_form() {
    let mut parameters = Parameters::with(&[(MAXCLIENTS, 50), (PROTO_MAX_BULK_LEN, 1000)]);
    assert_eq!((parameters.connections_max(), parameters.value_bytes_max()), (50, 1000));
    assert_eq!(parameters.idle_timeout_seconds(), 0);
    assert_eq!(set(&mut parameters, "maxclients 7 Timeout 30 proto-max-bulk-len 2MB"), Ok(()));
    assert_eq!((parameters.connections_max(), parameters.value_bytes_max()), (7, 2 << 20));
    assert_eq!(parameters.idle_timeout_seconds(), 30);
    assert_eq!(get(&parameters, "proto-max-bulk-len"), "%1 $18 proto-max-bulk-len $7 2097152");
}

#[test]
fn parameters_of_encodings_have_two_names() {
    let mut parameters = Parameters::with(&[]);
    assert_eq!(parameters.encodings(), EncodingLimits::default());
    assert_eq!(set(&mut parameters, "hash-max-ziplist-entries 7 zset-max-listpack-value 9"), Ok(()));
    let EncodingLimits { hash_fields, sorted_member_bytes, .. } = parameters.encodings();
    assert_eq!((hash_fields, sorted_member_bytes), (7, 9));
    let reply = get(&parameters, "hash-max-*-entries");
    assert_eq!(reply, "%2 $25 hash-max-listpack-entries $1 7 $24 hash-max-ziplist-entries $1 7");
}

#[test]
fn kept_parameters_are_returned_as_they_were_set() {
    let mut parameters = Parameters::with(&[]);
    assert_eq!(set(&mut parameters, "hz 100 latency-tracking NO"), Ok(()));
    assert_eq!(get(&parameters, "hz latency-tracking"), "%2 $2 hz $3 100 $16 latency-tracking $2 no");
}

#[test]
fn facts_can_only_be_set_to_their_present_values() {
    let mut parameters = Parameters::with(&[("port", 7000)]);
    for same in ["save ''", "appendonly no", "databases 16", "port 7000"] {
        assert_eq!(set(&mut parameters, same), Ok(()), "{same}");
    }
    for (pair, present) in
        [("save 1", ""), ("appendonly yes", "no"), ("databases 1", "16"), ("port x", "7000")]
    {
        let name = pair.split(' ').next().unwrap();
        let expected = format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - can't set immutable config: it is \
             '{present}' here"
        );
        assert_eq!(set(&mut parameters, pair), Err(expected));
    }
}

#[test]
fn set_changes_all_parameters_or_none() {
    let mut parameters = Parameters::with(&[]);
    let before = parameters.values.clone();
    let failed = |name: &str, why: &str| {
        format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
    };
    let not_an_integer = "argument couldn't be parsed into an integer";
    let cases = [
        ("hz 20 timeout", "ERR syntax error".to_string()),
        (
            "hz 20 nosuch 1 timeout x",
            "ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'".into(),
        ),
        ("hz 20 HZ 30", failed("hz", "duplicate parameter")),
        ("hz 20 timeout x", failed("timeout", not_an_integer)),
        ("hz 20 maxclients 0", failed("maxclients", "argument must be between 1 and 4294967295 inclusive")),
        ("hz 20 timeout -1", failed("timeout", "argument must be between 0 and 2147483647 inclusive")),
        ("hz 20 latency-tracking x", failed("latency-tracking", "argument must be 'yes' or 'no'")),
        ("hz 20 proto-max-bulk-len x", failed(PROTO_MAX_BULK_LEN, "argument must be a memory value")),
        ("hz 20 proto-max-bulk-len -1", failed(PROTO_MAX_BULK_LEN, "argument must be a memory value")),
        (
            "hz 20 proto-max-bulk-len 1gb",
            failed(PROTO_MAX_BULK_LEN, "argument must be between 1048576 and 536870912 inclusive"),
        ),
    ];
    for (pairs, expected) in cases {
        assert_eq!(set(&mut parameters, pairs), Err(expected));
        assert_eq!(parameters.values, before, "{pairs}");
    }
}

#[test]
fn bytes_may_have_a_unit() {
    for (text, bytes) in [
        ("5", 5),
        ("5b", 5),
        ("1k", 1000),
        ("1KB", 1024),
        ("2m", 2_000_000),
        ("1mb", 1 << 20),
        ("1gb", 1 << 30),
    ] {
        assert_eq!(parse_bytes(text), Some(bytes), "{text}");
    }
    for text in ["", "mb", "-1", "1.5mb", "1 mb", "1tb", "99999999999gb"] {
        assert_eq!(parse_bytes(text), None, "{text}");
    }
}

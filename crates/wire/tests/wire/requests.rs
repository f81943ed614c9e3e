//! The requests that clients may send, the errors for all others, and the cost of parsing.

use wire::resp::{Limits, Progress, ProtocolError, RequestParser};

/// Limits small enough to be exceeded in a test.
fn limits() -> Limits {
    Limits {
        bulk_bytes_max: 1024 * 1024,
        arguments_max: 1024 * 1024,
        inline_bytes_max: 64 * 1024,
        request_bytes_max: 64 * 1024 * 1024,
        authenticated: true,
    }
}

#[track_caller]
fn assert_request(bytes: &[u8], expected: &[&[u8]]) {
    let mut parser = RequestParser::new();
    let progress = parser.parse(bytes, &limits());
    assert_eq!(progress, Ok(Progress::Complete { consumed: bytes.len() }), "{}", bytes.escape_ascii());
    let arguments = parser.arguments(bytes);
    assert_eq!(arguments.iter().collect::<Vec<_>>(), expected, "{}", bytes.escape_ascii());
}

#[track_caller]
fn assert_incomplete(bytes: &[u8], needed: usize) {
    let progress = RequestParser::new().parse(bytes, &limits());
    assert_eq!(progress, Ok(Progress::Incomplete { needed }), "{}", bytes.escape_ascii());
}

#[track_caller]
fn assert_error_within(bytes: &[u8], limits: &Limits, text: &str) {
    let mut parser = RequestParser::new();
    let error = parser.parse(bytes, limits).expect_err("a protocol error");
    assert_eq!(error.to_string(), format!("ERR Protocol error: {text}"), "{}", bytes.escape_ascii());
    assert_eq!(parser.parse(bytes, limits), Err(error), "asking again changes nothing");
}

#[track_caller]
fn assert_error(bytes: &[u8], text: &str) {
    assert_error_within(bytes, &limits(), text);
}

// Arrays of bulk strings.

#[test]
fn an_array_of_bulk_strings_is_a_request() {
    assert_request(b"*1\r\n$4\r\nPING\r\n", &[b"PING"]);
    assert_request(b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$0\r\n\r\n", &[b"SET", b"key", b""]);
}

#[test]
fn arguments_may_hold_any_bytes() {
    assert_request(b"*2\r\n$4\r\nECHO\r\n$8\r\n\0\r\n$1\r\n\xff\r\n", &[b"ECHO", b"\0\r\n$1\r\n\xff"]);
}

#[test]
fn requests_follow_each_other_without_a_gap() {
    let bytes = b"*1\r\n$4\r\nPING\r\nECHO hi\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    let expected: [&[&[u8]]; 3] = [&[b"PING"], &[b"ECHO", b"hi"], &[b"GET", b"k"]];
    let mut parser = RequestParser::new();
    let mut rest = &bytes[..];
    for expected in expected {
        let Ok(Progress::Complete { consumed }) = parser.parse(rest, &limits()) else { panic!("{rest:?}") };
        assert_eq!(parser.arguments(rest).iter().collect::<Vec<_>>(), expected);
        rest = &rest[consumed..];
    }
    assert_eq!(parser.parse(rest, &limits()), Ok(Progress::Incomplete { needed: 1 }));
}

#[test]
fn an_array_of_zero_or_fewer_elements_is_a_request_without_arguments() {
    assert_request(b"*0\r\n", &[]);
    assert_request(b"*-1\r\n", &[]);
    assert_request(b"*-10\r\n", &[]);
    assert_request(b"*-9223372036854775808\r\n", &[]);
}

#[test]
fn an_argument_count_must_be_a_canonical_number() {
    let invalid = "invalid multibulk length";
    let lines: [&[u8]; 10] = [
        b"*\r\n",
        b"*foo\r\n",
        b"*1x\r\n",
        b"* 1\r\n",
        b"*+1\r\n",
        b"*01\r\n",
        b"*-\r\n",
        b"*-0\r\n",
        b"*3000000000\r\n",
        b"*9223372036854775808\r\n",
    ];
    lines.iter().for_each(|line| assert_error(line, invalid));
    assert_error(b"*1048577\r\n", invalid);
    assert_incomplete(b"*1048576\r\n", 1);
}

#[test]
fn an_argument_length_must_be_a_canonical_number() {
    let lengths = ["", "blabla", "1x", "+1", "01", "-", "-0", "-1", "-10", "2000000000", "1048577"];
    for length in lengths {
        let bytes = format!("*3\r\n$3\r\nSET\r\n$1\r\nx\r\n${length}\r\n");
        assert_error(bytes.as_bytes(), "invalid bulk length");
    }
}

#[test]
fn an_argument_must_begin_with_its_length() {
    assert_error(b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\nfooz\r\n", "expected '$', got 'f'");
    assert_error(b"*1\r\nfoo\r\n", "expected '$', got 'f'");
    assert_error(b"*1\r\n'", "expected '$', got '''");
}

#[test]
fn an_error_never_breaks_the_line_that_it_is_sent_in() {
    assert_error(b"*1\r\n\r\n", "expected '$', got ' '");
    assert_error(b"*1\r\n\n", "expected '$', got ' '");
    assert_error(b"*1\r\n\0", r"expected '$', got '\x00'");
    assert_error(b"*1\r\n\xff", r"expected '$', got '\xff'");
}

#[test]
fn a_line_must_end_with_carriage_return_and_line_feed() {
    assert_error(b"*1\rX", "invalid multibulk length");
    assert_error(b"*1\r\n$4\rX", "invalid bulk length");
}

#[test]
fn an_argument_of_another_length_than_announced_is_not_taken_for_commands() {
    let error = "expected a line end after a bulk string";
    assert_error(b"*2\r\n$3\r\nGET\r\n$3\r\nlonger\r\n", error);
    assert_error(b"*2\r\n$3\r\nGET\r\n$6\r\nkey\r\n*1\r\n", error);
    assert_error(b"*1\r\n$4\r\nPING\n\n", error);
}

// Inline requests. The rules for quotes are tested beside their code.

#[test]
fn a_line_of_words_is_a_request() {
    assert_request(b"PING\r\n", &[b"PING"]);
    assert_request(b"PING\n", &[b"PING"]);
    assert_request(b"  SET  key \"a value\" \r\n", &[b"SET", b"key", b"a value"]);
}

#[test]
fn an_empty_line_is_a_request_without_arguments() {
    assert_request(b"\r\n", &[]);
    assert_request(b"\n", &[]);
    assert_request(b"   \t \r\n", &[]);
}

#[test]
fn an_inline_request_with_an_open_quote_is_an_error() {
    assert_error(b"set \"\"\"test-key\"\"\" test-value\r\n", "unbalanced quotes in request");
    assert_error(b"set 'key value\r\n", "unbalanced quotes in request");
}

// Limits.

#[test]
fn a_line_that_does_not_end_is_an_error_once_it_is_too_long() {
    let limits = limits();
    let openings: [(&[u8], &str); 5] = [
        (b"", "too big inline request"),
        (b"\0", "too big inline request"),
        (b"$\0", "too big inline request"),
        (b"*\0", "too big mbulk count string"),
        (b"*1\r\n$1", "too big bulk count string"),
    ];
    for (opening, text) in openings {
        let line_start = if opening.starts_with(b"*1") { 4 } else { 0 };
        let mut bytes = opening.to_vec();
        bytes.resize(line_start + limits.inline_bytes_max, b'1');
        assert_eq!(
            RequestParser::new().parse(&bytes, &limits),
            Ok(Progress::Incomplete { needed: 1 }),
            "{text}: not yet"
        );
        bytes.push(b'1');
        assert_error(&bytes, text);
    }
}

#[test]
fn a_request_is_refused_as_soon_as_it_announces_more_than_it_may_hold() {
    let request = b"*2\r\n$3\r\nGET\r\n$5\r\n12345\r\n";
    let mut limits = Limits { request_bytes_max: request.len(), ..limits() };
    let complete = Ok(Progress::Complete { consumed: request.len() });
    assert_eq!(RequestParser::new().parse(request, &limits), complete);

    limits.request_bytes_max -= 1;
    let text = format!("request of more than {} bytes", request.len() - 1);
    assert_error_within(b"*2\r\n$3\r\nGET\r\n$5\r\n", &limits, &text);
}

#[test]
fn before_authentication_requests_must_be_small() {
    let limits = Limits { authenticated: false, ..limits() };
    assert_error_within(b"*11\r\n", &limits, "unauthenticated multibulk length");
    assert_error_within(b"*1\r\n$16385\r\n", &limits, "unauthenticated bulk length");
    // Requests over the limits for all clients get different errors.
    assert_error_within(b"*3000000000\r\n", &limits, "invalid multibulk length");
    assert_error_within(b"*1\r\n$2000000000\r\n", &limits, "invalid bulk length");

    let largest =
        [&b"*10\r\n"[..], &[&b"$16384\r\n"[..], &[b'x'; 16384], b"\r\n"].concat().repeat(10)].concat();
    let complete = Ok(Progress::Complete { consumed: largest.len() });
    assert_eq!(RequestParser::new().parse(&largest, &limits), complete);
}

#[test]
fn authentication_takes_effect_on_the_next_request_of_the_same_pipeline() {
    let bytes = b"AUTH secret\r\n*11\r\n";
    let mut limits = Limits { authenticated: false, ..limits() };
    let mut parser = RequestParser::new();
    let Ok(Progress::Complete { consumed }) = parser.parse(bytes, &limits) else { panic!("no AUTH") };
    limits.authenticated = true;
    assert_eq!(parser.parse(&bytes[consumed..], &limits), Ok(Progress::Incomplete { needed: 1 }));
}

// Pieces.

#[test]
fn a_request_may_be_cut_anywhere() {
    let requests: [&[u8]; 4] =
        [b"*2\r\n$3\r\nGET\r\n$12\r\nabcdefghijkl\r\n", b"GET \"a b\"\r\n", b"*-1\r\n", b"\r\n"];
    for request in requests {
        let mut parser = RequestParser::new();
        for end in 0..request.len() {
            let progress = parser.parse(&request[..end], &limits());
            assert!(matches!(progress, Ok(Progress::Incomplete { .. })), "{}", request.escape_ascii());
        }
        let complete = Ok(Progress::Complete { consumed: request.len() });
        assert_eq!(parser.parse(request, &limits()), complete, "{}", request.escape_ascii());
    }
}

#[test]
fn the_parser_says_how_much_of_an_argument_is_missing() {
    assert_incomplete(b"", 1);
    assert_incomplete(b"*1\r\n", 1);
    assert_incomplete(b"*1\r\n$10", 1);
    assert_incomplete(b"*1\r\n$10\r\n", 12);
    assert_incomplete(b"*1\r\n$10\r\n0123", 8);
    assert_incomplete(b"*1\r\n$10\r\n0123456789\r", 1);
}

#[test]
fn a_request_in_many_pieces_is_not_read_from_the_start_again() {
    // A million arguments in pieces of 64 bytes: 100,000 calls. Reparsed each time, this would take hours.
    const COUNT: usize = 1024 * 1024;
    let mut bytes = format!("*{COUNT}\r\n").into_bytes();
    bytes.extend(b"$0\r\n\r\n".repeat(COUNT));
    let mut parser = RequestParser::new();
    let mut end = 0;
    loop {
        end = bytes.len().min(end + 64);
        match parser.parse(&bytes[..end], &limits()) {
            Ok(Progress::Incomplete { .. }) => assert!(end < bytes.len()),
            other => break assert_eq!(other, Ok(Progress::Complete { consumed: bytes.len() })),
        }
    }
    assert_eq!(parser.arguments(&bytes).len(), COUNT);
}

#[test]
fn a_long_line_in_many_pieces_is_not_read_from_the_start_again() {
    // 16 MiB byte by byte. Searched from the start each time, this would take an hour.
    let limits = Limits { inline_bytes_max: 16 * 1024 * 1024, ..limits() };
    for opening in [b'a', b'*'] {
        let mut bytes = vec![b'1'; limits.inline_bytes_max];
        bytes[0] = opening;
        let mut parser = RequestParser::new();
        for end in 0..=bytes.len() {
            assert_eq!(parser.parse(&bytes[..end], &limits), Ok(Progress::Incomplete { needed: 1 }));
        }
    }
}

#[test]
fn a_buffer_that_shrinks_against_the_rules_does_not_panic() {
    let request = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n";
    for cut in 0..request.len() {
        for shrunk in 0..cut {
            let mut parser = RequestParser::new();
            let _ = parser.parse(&request[..cut], &limits());
            let _ = parser.parse(&request[..shrunk], &limits());
            let _ = parser.parse(b"*1\r\n", &limits());
        }
    }
}

#[test]
fn every_error_reads_as_in_redis() {
    let texts = [
        (ProtocolError::ArgumentCount, "invalid multibulk length"),
        (ProtocolError::BulkLength, "invalid bulk length"),
        (ProtocolError::UnauthenticatedArgumentCount, "unauthenticated multibulk length"),
        (ProtocolError::UnauthenticatedBulkLength, "unauthenticated bulk length"),
        (ProtocolError::ExpectedBulk(b'x'), "expected '$', got 'x'"),
        (ProtocolError::InlineTooBig, "too big inline request"),
        (ProtocolError::ArgumentCountTooBig, "too big mbulk count string"),
        (ProtocolError::BulkLengthTooBig, "too big bulk count string"),
        (ProtocolError::UnbalancedQuotes, "unbalanced quotes in request"),
    ];
    for (error, text) in texts {
        assert_eq!(error.to_string(), format!("ERR Protocol error: {text}"));
    }
}

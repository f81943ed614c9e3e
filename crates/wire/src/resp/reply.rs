//! Translates replies from the table's own encoding to RESP2 or RESP3.
//!
//! RESP2 has fewer types. Missing ones become what Redis sends instead: a map becomes an array of twice as many
//! elements, a set an array, a double and a text become strings, a boolean becomes 1 or 0.

use kv::codec::{Malformed, Reader};
use kv::number::{format_decimal, format_double};
use kv::{Reply, ReplyBuffer};

/// The version of the protocol that a client speaks: 2 at first, 3 after a `HELLO` that asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2.
    #[default]
    Resp2,
    /// RESP3.
    Resp3,
}

/// Appends `encoded`, which holds any number of whole replies, to `out` in the client's protocol.
///
/// # Errors
/// [`Malformed`] when the encoding is broken or ends within an aggregate. `out` is unchanged then: after half a reply,
/// the client would take the next one for the other half.
#[inline]
pub fn write_reply(encoded: &[u8], protocol: Protocol, out: &mut Vec<u8>) -> Result<(), Malformed> {
    // Most replies need no look at the elements that follow, or at the protocol.
    if let Some(bytes) = ReplyBuffer::only_bulk(encoded) {
        write_bulk(bytes, out);
    } else if let Some(number) = ReplyBuffer::only_integer(encoded) {
        write_head(b':', number, out);
    } else if ReplyBuffer::is_only_ok(encoded) {
        out.extend_from_slice(b"+OK\r\n");
    } else {
        return write_whole(encoded, protocol, out);
    }
    Ok(())
}

fn write_whole(encoded: &[u8], protocol: Protocol, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let before = out.len();
    let outcome = write_elements(encoded, protocol, out);
    assert!(out.len() >= before, "a reply takes the place of those before it");
    if outcome.is_err() {
        out.truncate(before);
    }
    outcome
}

/// Returns the length in bytes of the first whole reply in `encoded`, including the elements of aggregates.
///
/// # Errors
/// [`Malformed`] when there is no whole reply.
pub fn element_end(encoded: &[u8]) -> Result<usize, Malformed> {
    let mut reader = Reader::new(encoded);
    let mut owed = 1;
    while owed > 0 {
        owed = owed - 1 + elements_after(&Reply::decode(&mut reader)?);
    }
    let end = encoded.len() - reader.rest().len();
    assert!(end > 0, "a whole reply of no bytes");
    Ok(end)
}

/// The number of elements that the head of an aggregate announces. That many must follow, and since every head comes
/// before its elements, it is enough to count them: no stack, no depth.
fn elements_after(reply: &Reply<'_>) -> u64 {
    match *reply {
        Reply::Array(count) | Reply::Set(count) | Reply::Push(count) => u64::from(count),
        Reply::Unresolved(_) | Reply::Needs(_) | Reply::Reads(_) => 1,
        Reply::Map(pairs) => 2 * u64::from(pairs),
        Reply::Pairs(count) | Reply::Entries(count) => u64::from(count),
        Reply::Pair | Reply::Entry => 2,
        _ => 0,
    }
}

fn write_elements(encoded: &[u8], protocol: Protocol, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let mut reader = Reader::new(encoded);
    let mut owed = 0_u64;
    while !reader.is_empty() {
        let reply = Reply::decode(&mut reader)?;
        owed = owed.saturating_sub(1) + elements_after(&reply);
        write_element(reply, protocol, out);
    }
    if owed > 0 {
        return Err(Malformed("an aggregate lacks elements"));
    }
    Ok(())
}

/// Appends one element; for an aggregate, its head. The caller must also write the elements that follow it.
#[inline]
pub fn write_element(reply: Reply<'_>, protocol: Protocol, out: &mut Vec<u8>) {
    let is_resp3 = protocol == Protocol::Resp3;
    match reply {
        Reply::Ok => out.extend_from_slice(b"+OK\r\n"),
        Reply::Integer(value) => write_head(b':', value, out),
        Reply::Bulk(bytes) => write_bulk(bytes, out),
        Reply::Null | Reply::NullArray if is_resp3 => out.extend_from_slice(b"_\r\n"),
        Reply::Null => out.extend_from_slice(b"$-1\r\n"),
        Reply::NullArray => out.extend_from_slice(b"*-1\r\n"),
        Reply::Status(text) => write_line(b'+', text, out),
        Reply::Error(text) => write_line(b'-', text, out),
        Reply::Text(text) if is_resp3 => {
            const FORMAT: &[u8] = b"txt:";
            write_head(b'=', (FORMAT.len() + text.len()) as i64, out);
            out.extend_from_slice(FORMAT);
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        }
        Reply::Text(text) => write_bulk(text, out),
        Reply::Double(value) if is_resp3 => write_line(b',', format_double(value).as_bytes(), out),
        Reply::Double(value) => write_bulk(format_double(value).as_bytes(), out),
        Reply::Decimal(value) if is_resp3 => write_line(b',', format_decimal(value).as_bytes(), out),
        Reply::Decimal(value) => write_bulk(format_decimal(value).as_bytes(), out),
        Reply::BigNumber(digits) if is_resp3 => write_line(b'(', digits, out),
        Reply::BigNumber(digits) => write_bulk(digits, out),
        Reply::Boolean(value) if is_resp3 => out.extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" }),
        Reply::Boolean(value) => write_head(b':', i64::from(value), out),
        Reply::Array(count) => write_head(b'*', i64::from(count), out),
        Reply::Set(count) => write_head(if is_resp3 { b'~' } else { b'*' }, i64::from(count), out),
        Reply::Push(count) => write_head(if is_resp3 { b'>' } else { b'*' }, i64::from(count), out),
        Reply::Map(pairs) if is_resp3 => write_head(b'%', i64::from(pairs), out),
        Reply::Map(pairs) => write_head(b'*', 2 * i64::from(pairs), out),
        Reply::Pairs(count) if is_resp3 => write_head(b'*', i64::from(count), out),
        Reply::Pairs(count) => write_head(b'*', 2 * i64::from(count), out),
        Reply::Pair if is_resp3 => write_head(b'*', 2, out),
        Reply::Pair => {} // In RESP2 its elements stand in the array itself.
        Reply::Entries(count) => write_head(if is_resp3 { b'%' } else { b'*' }, i64::from(count), out),
        Reply::Entry if is_resp3 => {} // The map's head announces its keys and values.
        Reply::Entry => write_head(b'*', 2, out),
        // The command's coordinator replaces references by values; a client never gets these.
        Reply::Unresolved(_) | Reply::Needs(_) | Reply::Reads(_) => {}
        Reply::Reference(_) | Reply::Lent(_) => write_line(b'-', b"ERR a value is missing from a reply", out),
    }
}

/// Appends a type byte, a number and a line end.
#[inline]
fn write_head(kind: u8, number: i64, out: &mut Vec<u8>) {
    // From the last byte to the first, so that a single copy appends it: copies cost more than digits here.
    let mut line = *b"?-9223372036854775808\r\n";
    let mut start = line.len() - 2;
    let mut rest = number.unsigned_abs();
    loop {
        start -= 1;
        line[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        start -= 1;
        line[start] = b'-';
    }
    start -= 1;
    line[start] = kind;
    out.extend_from_slice(&line[start..]);
}

#[inline]
fn write_bulk(bytes: &[u8], out: &mut Vec<u8>) {
    const HEAD_BYTES_MAX: usize = 24;
    out.reserve(HEAD_BYTES_MAX + bytes.len());
    // Nearly all values are short, and an array of known length is appended without a call.
    match bytes.len() {
        length @ 0..=9 => out.extend_from_slice(&[b'$', b'0' + length as u8, b'\r', b'\n']),
        length @ 10..=99 => {
            let (tens, ones) = (b'0' + (length / 10) as u8, b'0' + (length % 10) as u8);
            out.extend_from_slice(&[b'$', tens, ones, b'\r', b'\n']);
        }
        length => write_head(b'$', length as i64, out),
    }
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends a type byte, a text and a line end. The text may quote a client's input: a line end in it would end the
/// reply and make the rest look like another one, so it becomes a space.
fn write_line(kind: u8, text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len() + 3);
    out.push(kind);
    out.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
    out.extend_from_slice(b"\r\n");
}

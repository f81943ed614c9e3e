//! Errors of commands on several types of values.

use crate::reply::ReplyBuffer;

pub(super) const WRONG_KIND: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// The error that a command was answered with [`WRONG_KIND`].
#[derive(Clone, Copy, Debug)]
pub(super) struct WrongKind;

/// `SET … IFDNE` with something else than a digest, for a key that exists.
pub(super) const NO_DIGEST: &str = "ERR must be exactly 16 hexadecimal characters";
pub(super) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub(super) const OVERFLOW: &str = "ERR increment or decrement would overflow";
pub(super) const NOT_FINITE: &str = "ERR increment would produce NaN or Infinity";

/// The reply to a command that returns what it removes, if that would be too large for a reply.
pub(super) const TOO_MANY_POPPED: &str =
    "ERR the reply would hold too many bytes; the command was carried out";

/// Replaces the reply that begins at `start` by an error.
pub(super) fn refuse_large_reply(start: usize, out: &mut ReplyBuffer) {
    out.truncate(start);
    let bytes_max = out.reply_bytes_max();
    out.error(&format!("ERR the reply would hold more than {bytes_max} bytes"));
}

//! A server's reply to one request, in any protocol.

use thiserror::Error;

/// A reply, borrowed from the buffer that it was read from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    Status(&'a [u8]),
    Error(&'a [u8]),
    Integer(i64),
    Bulk(&'a [u8]),
    Null,
    /// An array, whatever is in it.
    Array,
}

/// A complete reply.
pub(crate) struct Scanned<'a> {
    pub(crate) reply: Reply<'a>,
    /// The place of its request among the unanswered ones: the first, where replies arrive in the order of requests.
    /// That request swaps places with the first and is removed.
    pub(crate) place: usize,
    /// Its length in the buffer.
    pub(crate) bytes: usize,
    /// Whether the server closes the connection after it.
    pub(crate) closes: bool,
}

/// The buffer does not hold a reply; the connection cannot be used any further.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("malformed reply")]
pub(crate) struct Malformed;

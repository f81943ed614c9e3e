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

/// The buffer does not hold a reply; the connection cannot be used any further.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("malformed reply")]
pub(crate) struct Malformed;

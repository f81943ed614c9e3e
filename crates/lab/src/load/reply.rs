//! What a server said to one request, whichever way it travelled.

use thiserror::Error;

/// A reply, borrowed from the buffer that it was read from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    Status(&'a [u8]),
    Error(&'a [u8]),
    Integer(i64),
    Bulk(&'a [u8]),
    Null,
}

/// What stands in the buffer is not a reply; the connection cannot be used any further.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("malformed reply")]
pub(crate) struct Malformed;

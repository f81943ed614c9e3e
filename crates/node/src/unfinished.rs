//! Replies that lack the bytes of values: they have references in place of values, or name the values that a write
//! needs. See [`kv::coded`].

use kv::codec::Reader;
use kv::{Reference, Reply, ReplyBuffer, ValueRef};

/// The parts of such a reply.
pub(crate) struct Parts<'a> {
    /// The command, which can be sent again.
    pub(crate) command: &'a [u8],
    /// For a read: the reply, with references in it.
    pub(crate) element: &'a [u8],
    pub(crate) is_read: bool,
    pub(crate) references: Vec<Reference>,
    /// For a write: the keys that have the values.
    pub(crate) keys: Vec<&'a [u8]>,
}

/// Takes a reply apart. `None` if it is not such a reply, or if its values are more than a reply may hold.
pub(crate) fn take_apart(reply: &[u8], bytes_max: usize) -> Option<Parts<'_>> {
    let mut reader = Reader::new(reply);
    let (command, is_read) = match Reply::decode(&mut reader).ok()? {
        Reply::Unresolved(command) => (command, true),
        Reply::Needs(command) => (command, false),
        _ => return None,
    };
    let (element, mut references, mut keys) = (reader.rest(), Vec::new(), Vec::new());
    while !reader.is_empty() {
        match Reply::decode(&mut reader).ok()? {
            Reply::Reference(value) => references.push(ValueRef::decode(value).ok()?.reference),
            Reply::Bulk(key) => keys.push(key),
            _ => {}
        }
    }
    // Other elements are short, and were counted when the reply was written.
    let bytes: usize = references.iter().map(|reference| reference.length as usize).sum();
    (bytes <= bytes_max).then_some(Parts { command, element, is_read, references, keys })
}

/// A read's reply with values in place of references, and an error in place of each missing value.
pub(crate) fn put_in<'v>(
    element: &[u8],
    value_of: impl Fn(&Reference) -> Option<&'v [u8]>,
    missing: &str,
) -> ReplyBuffer {
    let mut out = ReplyBuffer::new();
    let mut reader = Reader::new(element);
    while let Ok(reply) = Reply::decode(&mut reader) {
        let Reply::Reference(told) = reply else {
            out.push(reply);
            continue;
        };
        let told = ValueRef::decode(told).ok();
        match told.and_then(|told| Some((told.view, value_of(&told.reference)?))) {
            Some((view, value)) => out.bulk(view.of(value)),
            None => out.error(missing),
        }
    }
    out
}

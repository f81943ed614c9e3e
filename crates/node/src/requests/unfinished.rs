//! Replies that lack the bytes of values: they have references in place of values, or name the values that a write
//! needs. See [`kv::coded`].

use kv::codec::Reader;
use kv::{Reference, Reply, ReplyBuffer, ValueRef, View};

/// The parts of such a reply.
pub(crate) struct Parts<'a> {
    /// The command, which can be sent again.
    pub(super) command: &'a [u8],
    /// For a read: the reply, with references in it.
    pub(super) element: &'a [u8],
    pub(super) is_read: bool,
    pub(super) references: Vec<Reference>,
    /// For a write: the keys that have the values.
    pub(super) keys: Vec<&'a [u8]>,
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

/// The value that is the whole reply of a read, if it is.
pub(crate) fn only_value(element: &[u8]) -> Option<Reference> {
    let mut reader = Reader::new(element);
    let Ok(Reply::Reference(encoded)) = Reply::decode(&mut reader) else { return None };
    let part = ValueRef::decode(encoded).ok()?;
    (reader.is_empty() && part.view == View::Whole).then_some(part.reference)
}

/// A read's reply with values in place of references, as far as they are here. If some are missing, it can be taken
/// apart again.
pub(crate) fn put_in<'v>(
    command: &[u8],
    element: &[u8],
    value_of: impl Fn(&Reference) -> Option<&'v [u8]>,
) -> ReplyBuffer {
    let (mut out, mut is_whole) = (ReplyBuffer::new(), true);
    let mut reader = Reader::new(element);
    while let Ok(reply) = Reply::decode(&mut reader) {
        let part = match reply {
            Reply::Reference(encoded) => ValueRef::decode(encoded).ok(),
            _ => None,
        };
        match part.map(|part| (part.view, value_of(&part.reference))) {
            Some((view, Some(value))) => out.bulk(view.of(value)),
            Some((_, None)) => {
                is_whole = false;
                out.push(reply);
            }
            None => out.push(reply),
        }
    }
    if !is_whole {
        out.mark_unresolved(0, command);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::Command;

    #[test]
    fn available_values_are_put_in_and_the_rest_is_still_missing() {
        let references = [1, 2].map(|version| Reference::spilled(version, 1, 5, 0));
        let mut command = Vec::new();
        Command::Get { key: b"k" }.encode(&mut command);
        let mut reply = ReplyBuffer::new();
        reply.array(2);
        for reference in references {
            let part = ValueRef { reference, view: View::Range { start: 0, end: 1 } };
            reply.push(Reply::Reference(&part.encoded()));
        }
        assert_eq!(only_value(reply.as_bytes()), None);
        let first = put_in(&command, reply.as_bytes(), |it| (*it == references[0]).then_some(b"first"));
        let parts = take_apart(first.as_bytes(), 5).expect("it can be taken apart again");
        assert_eq!(
            (parts.command, parts.is_read, parts.references),
            (&command[..], true, vec![references[1]])
        );
        let whole = put_in(&command, parts.element, |_| Some(b"other"));
        let mut expected = ReplyBuffer::new();
        expected.array(2);
        expected.bulk(b"fi");
        expected.bulk(b"ot");
        assert_eq!(whole.as_bytes(), expected.as_bytes());
        assert!(take_apart(first.as_bytes(), 4).is_none(), "it would be longer than a reply may be");
    }
}

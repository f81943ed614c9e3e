//! Commands on all keys, where the keys are in several groups: sent to each group, and answered with one reply.

use crate::slab::{Handle, Slab};
use kv::codec::Reader;
use kv::{Reply, ReplyBuffer};
use protocol::Ticket;

/// How the parts become one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    /// The sum of integers (`DBSIZE`).
    Sum,
    /// The smallest integer (`WAIT`).
    Minimum,
    /// One array of all elements (`KEYS`).
    Concatenate,
    /// `OK` (`FLUSHALL`).
    AllOk,
    /// One of the replies that are not null, picked by a number (`RANDOMKEY`).
    AnyOf(u64),
}

/// The requests that were sent to several groups and are not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Gathers {
    under_way: Slab<Gather>,
}

impl Gathers {
    /// Begins a request that is sent to this many groups; their replies take at most `bytes_max` together. Returns
    /// its handle.
    pub(crate) fn begin(
        &mut self,
        ticket: Ticket,
        combine: Combine,
        parts: usize,
        bytes_max: usize,
    ) -> Handle {
        self.under_way.insert(|_| Gather::new(ticket, combine, parts, bytes_max))
    }

    /// The ticket of the request that a part belongs to.
    pub(crate) fn ticket(&self, handle: Handle) -> Option<Ticket> {
        self.under_way.get(handle).map(|gather| gather.ticket)
    }

    /// Takes the reply of a part. Returns the request's reply when this was the last one missing.
    pub(crate) fn take(&mut self, handle: Handle, part: usize, reply: &[u8]) -> Option<ReplyBuffer> {
        if !self.under_way.get_mut(handle)?.take(part, reply) {
            return None;
        }
        let mut replies = ReplyBuffer::new();
        self.under_way.remove(handle)?.combine(&mut replies);
        Some(replies)
    }
}

/// A request that was sent to several groups.
#[derive(Debug)]
struct Gather {
    /// The request that the reply is for.
    ticket: Ticket,
    combine: Combine,
    /// The parts by group, each one reply with its elements.
    parts: Vec<Option<Vec<u8>>>,
    /// The most bytes that the parts may take together, and the bytes that they take.
    bytes_max: usize,
    bytes: usize,
}

impl Gather {
    fn new(ticket: Ticket, combine: Combine, parts: usize, bytes_max: usize) -> Gather {
        Gather { ticket, combine, parts: vec![None; parts], bytes_max, bytes: 0 }
    }

    /// Takes a part. Returns true when it was the last one missing.
    fn take(&mut self, part: usize, encoded: &[u8]) -> bool {
        self.bytes += encoded.len();
        if let Some(place) = self.parts.get_mut(part) {
            *place = Some(match self.bytes <= self.bytes_max {
                true => encoded.to_vec(),
                false => refusal(self.bytes_max),
            });
        }
        self.parts.iter().all(Option::is_some)
    }

    /// Makes the one reply. An error of any part is the reply: an answer from only some groups would be wrong.
    fn combine(&self, out: &mut ReplyBuffer) {
        let parts = || self.parts.iter().flatten().map(Vec::as_slice);
        if let Some(error) = parts().find(|part| matches!(Reply::first(part), Reply::Error(_))) {
            // The error may mean that nothing was done, which holds for its own group only.
            return match (self.combine, Reply::first(error)) {
                (Combine::AllOk, Reply::Error(why))
                    if parts().any(|part| Reply::first(part) == Reply::Ok) =>
                {
                    let why = String::from_utf8_lossy(why);
                    out.error(&format!("UNKNOWN some keyspaces were changed and others were not: {why}"));
                }
                _ => out.extend_encoded(error),
            };
        }
        let integers = parts().filter_map(|part| match Reply::first(part) {
            Reply::Integer(value) => Some(value),
            _ => None,
        });
        match self.combine {
            Combine::Sum => out.integer(integers.sum()),
            Combine::Minimum => out.integer(integers.min().unwrap_or(0)),
            Combine::AllOk => out.ok(),
            Combine::Concatenate => {
                let elements = parts().filter_map(|part| {
                    let mut reader = Reader::new(part);
                    match Reply::decode(&mut reader) {
                        Ok(Reply::Array(count)) => Some((count as usize, reader.rest())),
                        _ => None,
                    }
                });
                out.array(elements.clone().map(|(count, _)| count).sum());
                elements.for_each(|(_, encoded)| out.extend_encoded(encoded));
            }
            Combine::AnyOf(draw) => {
                let keys: Vec<&[u8]> = parts().filter(|part| Reply::first(part) != Reply::Null).collect();
                match keys.get(draw as usize % keys.len().max(1)) {
                    Some(key) => out.extend_encoded(key),
                    None => out.null(),
                }
            }
        }
    }
}

/// The error that replaces a part for which there is no room.
fn refusal(bytes_max: usize) -> Vec<u8> {
    let mut reply = ReplyBuffer::new();
    reply.error(&format!("ERR the reply would hold more than {bytes_max} bytes"));
    reply.as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn combined(combine: Combine, parts: &[&[Reply<'_>]]) -> ReplyBuffer {
        let encode = |replies: &[Reply<'_>]| {
            let mut buffer = ReplyBuffer::new();
            replies.iter().for_each(|reply| buffer.push(*reply));
            buffer
        };
        let mut gather = Gather::new(Ticket::default(), combine, parts.len(), 1000);
        for (index, part) in parts.iter().enumerate() {
            assert_eq!(gather.take(index, encode(part).as_bytes()), index + 1 == parts.len());
        }
        let mut out = ReplyBuffer::new();
        gather.combine(&mut out);
        out
    }

    fn encoded(replies: &[Reply<'_>]) -> ReplyBuffer {
        let mut buffer = ReplyBuffer::new();
        replies.iter().for_each(|reply| buffer.push(*reply));
        buffer
    }

    #[test]
    fn parts_become_one_reply() {
        use Reply::*;
        assert_eq!(combined(Combine::Sum, &[&[Integer(2)], &[Integer(3)]]), encoded(&[Integer(5)]));
        assert_eq!(combined(Combine::Minimum, &[&[Integer(2)], &[Integer(1)]]), encoded(&[Integer(1)]));
        assert_eq!(
            combined(Combine::Concatenate, &[&[Array(1), Bulk(b"a")], &[Array(0)], &[Array(1), Bulk(b"b")]]),
            encoded(&[Array(2), Bulk(b"a"), Bulk(b"b")])
        );
        assert_eq!(combined(Combine::AnyOf(7), &[&[Null], &[Bulk(b"a")]]), encoded(&[Bulk(b"a")]));
        assert_eq!(combined(Combine::AnyOf(7), &[&[Null], &[Null]]), encoded(&[Null]));
    }

    #[test]
    fn parts_that_are_too_large_together_are_refused() {
        let mut gather = Gather::new(Ticket::default(), Combine::Concatenate, 2, 1000);
        let part = encoded(&[Reply::Array(1), Reply::Bulk(&[b'k'; 600])]);
        assert!(!gather.take(0, part.as_bytes()) && gather.take(1, part.as_bytes()));
        let mut out = ReplyBuffer::new();
        gather.combine(&mut out);
        assert_eq!(out, encoded(&[Reply::Error(b"ERR the reply would hold more than 1000 bytes")]));
    }

    #[test]
    fn one_error_is_the_whole_answer() {
        use Reply::*;
        let error = Error(b"CLUSTERDOWN NOLEADER");
        assert_eq!(combined(Combine::Sum, &[&[Integer(2)], &[error]]), encoded(&[error]));
    }
}

//! Commands on all keys, where the keys are in several groups: sent to each group, and answered with one reply.

use crate::collections::slab::{Handle, Slab};
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
    /// The reply of the only group (a step of `SCAN`).
    Only,
}

/// The requests that were sent to several groups and are not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Gathers {
    under_way: Slab<Gather>,
}

impl Gathers {
    /// Begins a request that is sent to these groups; their replies take at most `bytes_max` together. Returns
    /// its handle.
    pub(crate) fn begin(
        &mut self,
        ticket: Ticket,
        combine: Combine,
        groups: &[u16],
        bytes_max: usize,
    ) -> Handle {
        self.under_way.insert(|_| Gather::new(ticket, combine, groups, bytes_max))
    }

    /// The ticket of the request that a part belongs to.
    pub(crate) fn ticket(&self, handle: Handle) -> Option<Ticket> {
        self.under_way.get(handle).map(|gather| gather.ticket)
    }

    /// Takes the reply of a part. Returns the request's reply when this was the last one missing. `name` is that of a group's
    /// keyspace.
    pub(crate) fn take<'n>(
        &mut self,
        handle: Handle,
        part: usize,
        reply: &[u8],
        name: impl Fn(u16) -> &'n str,
    ) -> Option<ReplyBuffer> {
        if !self.under_way.get_mut(handle)?.take(part, reply) {
            return None;
        }
        let mut replies = ReplyBuffer::new();
        self.under_way.remove(handle)?.combine(&mut replies, name);
        Some(replies)
    }
}

/// A request that was sent to several groups.
#[derive(Debug)]
struct Gather {
    /// The request that the reply is for.
    ticket: Ticket,
    combine: Combine,
    groups: Vec<u16>,
    /// The parts by group, each one reply with its elements.
    parts: Vec<Option<Vec<u8>>>,
    /// The most bytes that the parts may take together, and the bytes that they take.
    bytes_max: usize,
    bytes: usize,
}

impl Gather {
    fn new(ticket: Ticket, combine: Combine, groups: &[u16], bytes_max: usize) -> Gather {
        let groups = groups.to_vec();
        Gather { ticket, combine, parts: vec![None; groups.len()], groups, bytes_max, bytes: 0 }
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

    /// Makes the one reply. An error of any part is the reply, since an answer from only some groups would look complete; but
    /// a key of those that have answered is a random key.
    fn combine<'n>(&self, out: &mut ReplyBuffer, name: impl Fn(u16) -> &'n str) {
        let parts = || self.parts.iter().flatten().map(Vec::as_slice);
        let is_error = |part: &[u8]| matches!(Reply::first(part), Reply::Error(_));
        let is_key = |part: &&[u8]| Reply::first(part) != Reply::Null && !is_error(part);
        let suffices = matches!(self.combine, Combine::AnyOf(_)) && parts().any(|part| is_key(&part));
        if let Some(error) = parts().find(|part| is_error(part)).filter(|_| !suffices) {
            return self.refuse(error, out, name);
        }
        let integers = parts().filter_map(|part| match Reply::first(part) {
            Reply::Integer(value) => Some(value),
            _ => None,
        });
        match self.combine {
            Combine::Sum => out.integer(integers.sum()),
            Combine::Minimum => out.integer(integers.min().unwrap_or(0)),
            Combine::AllOk => out.ok(),
            Combine::Only => parts().for_each(|part| out.extend_encoded(part)),
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
                let keys: Vec<&[u8]> = parts().filter(is_key).collect();
                match keys.get(draw as usize % keys.len().max(1)) {
                    Some(key) => out.extend_encoded(key),
                    None => out.null(),
                }
            }
        }
    }

    /// Answers with the error of a part, and names the keyspaces that have failed.
    fn refuse<'n>(&self, error: &[u8], out: &mut ReplyBuffer, name: impl Fn(u16) -> &'n str) {
        let Reply::Error(why) = Reply::first(error) else { return };
        let why = String::from_utf8_lossy(why);
        let failed = self.groups.iter().zip(&self.parts);
        let failed = failed.filter(|(_, part)| {
            part.as_ref().is_some_and(|part| matches!(Reply::first(part), Reply::Error(_)))
        });
        let mut names: Vec<String> = failed.map(|(group, _)| format!("'{}'", name(*group))).collect();
        names.dedup();
        let word = if names.len() == 1 { "keyspace" } else { "keyspaces" };
        let names = format!("{word} {}", names.join(", "));
        let is_some_done = || self.parts.iter().flatten().any(|part| Reply::first(part) == Reply::Ok);
        let text = match self.combine {
            // The error may mean that nothing was done, which holds for its own group only.
            Combine::AllOk if is_some_done() => {
                format!("UNKNOWN not all keys were removed: {names} failed, and others are empty: {why}")
            }
            Combine::Sum | Combine::Concatenate | Combine::Only | Combine::AnyOf(_)
                if UNSERVED.iter().any(|code| why.starts_with(code)) =>
            {
                format!(
                    "{why} ({names} cannot answer, and part of a reply would look complete: KEYS prefix* and SCAN MATCH \
                     prefix* ask only keyspaces with that prefix)"
                )
            }
            _ => return out.extend_encoded(error),
        };
        out.error(&text);
    }
}

/// The codes of errors that say that a group cannot answer now.
const UNSERVED: [&str; 6] = ["CLUSTERDOWN", "TRYAGAIN", "LOADING", "NOREPLICAS", "QUARANTINED", "UNKNOWN"];

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
        let groups: Vec<u16> = (1..=parts.len() as u16).collect();
        let mut gather = Gather::new(Ticket::default(), combine, &groups, 1000);
        for (index, part) in parts.iter().enumerate() {
            assert_eq!(gather.take(index, encode(part).as_bytes()), index + 1 == parts.len());
        }
        let mut out = ReplyBuffer::new();
        gather.combine(&mut out, |group| if group == 1 { "one:" } else { "other:" });
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
        let mut gather = Gather::new(Ticket::default(), Combine::Concatenate, &[1, 2], 1000);
        let part = encoded(&[Reply::Array(1), Reply::Bulk(&[b'k'; 600])]);
        assert!(!gather.take(0, part.as_bytes()) && gather.take(1, part.as_bytes()));
        let mut out = ReplyBuffer::new();
        gather.combine(&mut out, |_| "default");
        assert_eq!(out, encoded(&[Reply::Error(b"ERR the reply would hold more than 1000 bytes")]));
    }

    #[test]
    fn an_error_is_the_whole_answer_and_names_the_keyspace() {
        use Reply::*;
        let down = Error(b"CLUSTERDOWN NOLEADER");
        let text = |combine, parts: &[&[Reply<'_>]]| {
            let reply = combined(combine, parts);
            match Reply::first(reply.as_bytes()) {
                Error(text) => String::from_utf8_lossy(text).into_owned(),
                other => panic!("{other:?}"),
            }
        };
        for combine in [Combine::Sum, Combine::Concatenate] {
            let text = text(combine, &[&[Integer(2)], &[down], &[down]]);
            assert!(text.starts_with("CLUSTERDOWN NOLEADER (keyspace 'other:' cannot answer"), "{text}");
        }
        let both = text(Combine::Sum, &[&[down], &[down]]);
        assert!(both.contains("(keyspaces 'one:', 'other:' cannot answer"), "{both}");
        let cleared = text(Combine::AllOk, &[&[Ok], &[down]]);
        assert!(
            cleared.starts_with("UNKNOWN not all keys were removed: keyspace 'other:' failed"),
            "{cleared}"
        );
        assert_eq!(text(Combine::AllOk, &[&[down], &[down]]), "CLUSTERDOWN NOLEADER", "nothing was done");
        assert_eq!(text(Combine::Sum, &[&[Integer(1)], &[Error(b"ERR wrong")]]), "ERR wrong");
    }

    #[test]
    fn a_random_key_is_one_of_those_that_were_found() {
        use Reply::*;
        let down = Error(b"CLUSTERDOWN NOLEADER");
        assert_eq!(combined(Combine::AnyOf(6), &[&[down], &[Bulk(b"a")], &[Null]]), encoded(&[Bulk(b"a")]));
        let none = combined(Combine::AnyOf(6), &[&[Null], &[down]]);
        assert!(matches!(Reply::first(none.as_bytes()), Error(_)), "there may be keys");
    }
}

//! Parked requests: those that a replica keeps for later, in order. Nothing was done of them: each can still be refused,
//! handed on to another node, or taken up.

use crate::effects::{Effects, NodeId, Request, Ticket};
use kv::codec::Reader;
use kv::{Command, Version};
use std::collections::VecDeque;

/// A request that waits.
#[derive(Clone, Debug)]
pub(crate) struct ParkedRequest<T> {
    /// Identifies the request's outcome.
    pub(crate) ticket: Ticket,
    /// The moment by which the client must have its outcome.
    pub(crate) deadline_us: u64,
    /// What else the protocol must know when it takes the request up.
    pub(crate) terms: T,
    content: Content,
}

/// What is requested, encoded.
#[derive(Clone, Debug)]
enum Content {
    Command(Vec<u8>),
    Wait { offset: Version, count: u32 },
}

impl<T> ParkedRequest<T> {
    pub(crate) fn new(ticket: Ticket, deadline_us: u64, terms: T, request: &Request<'_>) -> ParkedRequest<T> {
        let content = match *request {
            Request::Command(command) => {
                let mut bytes = Vec::new();
                command.encode(&mut bytes);
                Content::Command(bytes)
            }
            Request::Wait { offset, count } => Content::Wait { offset, count },
        };
        ParkedRequest { ticket, deadline_us, terms, content }
    }

    /// A request whose command is encoded already.
    pub(crate) fn encoded(ticket: Ticket, deadline_us: u64, terms: T, command: &[u8]) -> ParkedRequest<T> {
        ParkedRequest { ticket, deadline_us, terms, content: Content::Command(command.to_vec()) }
    }

    /// Calls `take` with the request, and returns its result.
    pub(crate) fn with<R>(&self, take: impl FnOnce(&Request<'_>) -> R) -> R {
        match &self.content {
            Content::Command(bytes) => {
                let command =
                    Command::decode(&mut Reader::of_checked(bytes)).expect("this replica has encoded it");
                take(&Request::Command(&command))
            }
            Content::Wait { offset, count } => take(&Request::Wait { offset: *offset, count: *count }),
        }
    }

    /// Hands a command on to another node. Returns false for a `WAIT`: what it waits for may mean nothing there.
    pub(crate) fn hand_on(&self, to: NodeId, effects: &mut Effects) -> bool {
        match &self.content {
            Content::Command(bytes) => effects.hand_on(self.ticket, to, self.deadline_us, bytes),
            Content::Wait { .. } => return false,
        }
        true
    }

    fn bytes(&self) -> usize {
        match &self.content {
            Content::Command(bytes) => bytes.len(),
            Content::Wait { .. } => 0,
        }
    }
}

/// Requests that wait, in the order in which they take effect.
#[derive(Debug, Default)]
pub(crate) struct ParkedRequests<T> {
    requests: VecDeque<ParkedRequest<T>>,
    bytes: usize,
}

impl<T: Default> ParkedRequests<T> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Bytes of their commands.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ParkedRequest<T>> {
        self.requests.iter()
    }

    /// Parks a request, after the others.
    pub(crate) fn push(&mut self, request: ParkedRequest<T>) {
        self.bytes += request.bytes();
        self.requests.push_back(request);
    }

    /// Parks these requests before the others.
    pub(crate) fn put_first(&mut self, mut first: VecDeque<ParkedRequest<T>>) {
        self.bytes += first.iter().map(ParkedRequest::bytes).sum::<usize>();
        first.append(&mut self.requests);
        self.requests = first;
    }

    /// Takes the request at a place out.
    pub(crate) fn remove(&mut self, place: usize) -> Option<ParkedRequest<T>> {
        let request = self.requests.remove(place)?;
        self.bytes -= request.bytes();
        Some(request)
    }

    /// Takes all requests out, to be taken up or ended.
    pub(crate) fn take(&mut self) -> VecDeque<ParkedRequest<T>> {
        std::mem::take(self).requests
    }

    /// Takes those requests out that match, in order.
    pub(crate) fn take_if(
        &mut self,
        matches: impl Fn(&ParkedRequest<T>) -> bool,
    ) -> VecDeque<ParkedRequest<T>> {
        if !self.requests.iter().any(&matches) {
            return VecDeque::new();
        }
        let (taken, left) = self.take().into_iter().partition(matches);
        self.put_first(left);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parked(sequence: u64) -> ParkedRequest<()> {
        let (key, value) = (&[b'k'][..], &vec![b'v'; sequence as usize]);
        let set = Command::Replicate { key, value, version: sequence };
        ParkedRequest::new(Ticket { client: 1, sequence }, sequence * 10, (), &Request::Command(&set))
    }

    fn order(requests: VecDeque<ParkedRequest<()>>) -> Vec<u64> {
        requests.into_iter().map(|parked| parked.ticket.sequence).collect()
    }

    #[test]
    fn requests_keep_their_order_and_their_bytes_are_counted() {
        let mut requests = ParkedRequests::default();
        (4..=6).for_each(|sequence| requests.push(parked(sequence)));
        requests.put_first([parked(1), parked(2)].into());
        let sum = |requests: &ParkedRequests<()>| requests.iter().map(ParkedRequest::bytes).sum::<usize>();
        assert_eq!((requests.len(), requests.bytes()), (5, sum(&requests)));
        assert_eq!(requests.remove(3).unwrap().ticket.sequence, 5);
        assert_eq!(order(requests.take_if(|parked| parked.deadline_us % 20 == 0)), [2, 4, 6]);
        assert_eq!((requests.bytes(), requests.bytes()), (sum(&requests), parked(1).bytes()));
        assert!(requests.take_if(|parked| parked.deadline_us > 10).is_empty());
        assert_eq!(order(requests.take()), [1]);
        assert_eq!((requests.is_empty(), requests.bytes()), (true, 0));
    }

    #[test]
    fn only_a_command_is_handed_on() {
        let mut effects = Effects::default();
        assert!(parked(1).hand_on(7, &mut effects));
        let handed_on = &effects.handed_on[0];
        assert_eq!((handed_on.to, handed_on.deadline_us), (7, 10));
        let wait = Request::Wait { offset: 3, count: 2 };
        let waits = ParkedRequest::new(Ticket::default(), 0, (), &wait);
        assert!(!waits.hand_on(7, &mut effects) && waits.with(|request| *request == wait));
        assert_eq!(effects.handed_on.len(), 1);
    }
}

//! Commands on the requests that wait for elements: `BLPOP` and similar ones.

use super::declaration::{Inner, Names, Needs, Part, family};
use super::encoding::may_wait;
use super::{Command, List, ListCommand, SortedCommand, StreamCommand, WaiterId};
use crate::codec::{Malformed, Reader, Writer};

/// Longest command that can wait, encoded, in bytes: it is kept by every replica until it is served.
pub const WISH_BYTES_MAX: usize = 128 * 1024;

/// A command that waits until it can be served, for example until there is an element that it can take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Wish<'a> {
    /// The encoded command. Checked: it can be decoded, and it can wait.
    bytes: &'a [u8],
}

/// The kind of value that a request waits for at its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Awaited {
    /// Elements of a list.
    Elements,
    /// Members of a sorted set.
    Members,
    /// Entries of a stream.
    Entries,
}

impl std::fmt::Debug for Wish<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.command().fmt(formatter)
    }
}

impl<'a> Wish<'a> {
    /// A command that waits, encoded in `scratch`. `None` for one that cannot wait, or is longer than
    /// [`WISH_BYTES_MAX`].
    pub fn build(command: &Command<'_>, scratch: &'a mut Vec<u8>) -> Option<Wish<'a>> {
        scratch.clear();
        command.encode(scratch);
        Wish::of(scratch).ok()
    }

    /// A wish in the form that [`Wish::bytes`] returns.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not a command that can wait.
    pub fn of(bytes: &'a [u8]) -> Result<Wish<'a>, Malformed> {
        const NO_WISH: Malformed = Malformed("a command that cannot wait");
        // Check the tag first, so that untrusted bytes cannot nest commands without end.
        if bytes.len() > WISH_BYTES_MAX || !may_wait(bytes) {
            return Err(NO_WISH);
        }
        let mut reader = Reader::new(bytes);
        let command = Command::decode(&mut reader)?;
        match reader.is_empty() && command.awaited().is_some() {
            true => Ok(Wish { bytes }),
            false => Err(NO_WISH),
        }
    }

    /// The encoded command.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// For how long what it may claim from other consumers must have been pending, in milliseconds: it can become so while the
    /// command waits.
    pub fn claims_after(&self) -> Option<u64> {
        match self.command() {
            Command::OnStream(StreamCommand::Consume { claim_ms, .. }) => u64::try_from(claim_ms).ok(),
            _ => None,
        }
    }

    /// The command.
    pub fn command(&self) -> Command<'a> {
        Command::decode(&mut Reader::of_checked(self.bytes)).expect("a wish is checked before it is one")
    }

    /// The keys at which it waits.
    pub fn awaited_keys(&self) -> impl Iterator<Item = &'a [u8]> {
        let (_, keys) = self.command().awaited().expect("a wish waits");
        keys.iter()
    }

    /// Whether it waits for entries of streams.
    pub fn awaits_entries(&self) -> bool {
        self.command().awaited().is_some_and(|(awaited, _)| awaited == Awaited::Entries)
    }
}

impl<'a> Part<'a> for Wish<'a> {
    fn put(self, out: &mut Vec<u8>) {
        out.put_bytes(self.bytes);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Wish::of(reader.bytes()?)
    }

    fn bytes(self) -> usize {
        self.bytes.len()
    }
}

impl<'a> Names<'a> for Wish<'a> {
    fn visit(self, visit: &mut impl FnMut(&'a [u8])) {
        match self.command() {
            Command::OnList(command) => command.visit_keys(visit),
            Command::OnSorted(command) => command.visit_keys(visit),
            Command::OnStream(command) => command.visit_keys(visit),
            other => unreachable!("{} cannot wait", other.name()),
        }
    }
}

impl<'a> Part<'a> for WaiterId {
    fn put(self, out: &mut Vec<u8>) {
        WaiterId::put(self, out);
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        WaiterId::take(reader)
    }
}

family! {
    /// A command on the requests of a group that wait for elements, and on what they were served. Sent by the node of
    /// the client that waits.
    QueueCommand needs(Needs::Order) {
        // Reads.
        /// The state of a request: `QUEUED`, `SERVED`, or null if the request is unknown.
        Check = 1 "this command" Reads { waiter: WaiterId } keys() adds(More);
        /// Has the leader wake a client that waits at keys of several groups, once there may be something at one of these. Nothing is
        /// taken for it, and only this replica notes it. `since`: when it began to wait. Returns a mark for each key, which changes when
        /// there is something new: of a stream its last id, if the client waits `for_entries`; else a version, or 0 for nothing. Since
        /// level 2, as the next one.
        Await = 2 "this command" Reads { waiter: WaiterId, keys: List<'a>, for_entries: bool, since: u64 }
            keys(keys) adds(More);
        /// Ends that. Others that wait there are woken in its place.
        Leave = 3 "this command" Reads { waiter: WaiterId, keys: List<'a> } keys(keys) adds(More);

        // Writes.
        /// Requests to be served: returns the reply to the wish, or `QUEUED`. If repeated, it returns what the request was
        /// served in the meantime, if anything.
        Ask = 64 "this command" (wish.command().declared_effect()) { waiter: WaiterId, wish: Wish<'a> }
            keys(wish) adds(More);
        /// Ends a request. One that waits is withdrawn, and the reply is a null array; one that never waited gets null. One
        /// that was served is claimed, and the reply to its wish is returned. Until the request is settled, nothing more is
        /// served to it.
        Conclude = 65 "this command" Frees { waiter: WaiterId } keys() adds(More);
        /// Withdraws a request whose client has left. What it was served goes back to where it came from, even if it was
        /// claimed, unless `only_unclaimed`. Returns 1, or 0 if there was nothing to do.
        Withdraw = 67 "this command" Frees { waiter: WaiterId, only_unclaimed: bool } keys() adds(More);
        /// The clients of these requests have their replies: forget what they were served, and the requests themselves, if
        /// a late record has queued them again. `numbers` has eight bytes for each. Returns how many were known.
        Settle = 66 "this command" Frees { node: u16, life: u64, numbers: &'a [u8] } keys() adds(More);
    }
}

impl<'a> Command<'a> {
    /// What a command waits for if it cannot be served, and at which keys; `None` if it cannot wait.
    pub(crate) fn awaited(&self) -> Option<(Awaited, Keys<'a>)> {
        match *self {
            Command::OnList(ListCommand::PopAny { keys, .. } | ListCommand::MultiPop { keys, .. }) => {
                Some((Awaited::Elements, Keys::Any(keys)))
            }
            Command::OnList(ListCommand::Move { from, .. }) => Some((Awaited::Elements, Keys::One(from))),
            Command::OnSorted(SortedCommand::PopAny { keys, .. } | SortedCommand::MultiPop { keys, .. }) => {
                Some((Awaited::Members, Keys::Any(keys)))
            }
            Command::OnStream(
                StreamCommand::Read { streams, .. }
                | StreamCommand::ReadGroup { streams, .. }
                | StreamCommand::Consume { streams, .. },
            ) => Some((Awaited::Entries, Keys::Streams(streams))),
            _ => None,
        }
    }
}

/// The keys at which a command waits, in order of preference.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keys<'a> {
    One(&'a [u8]),
    Any(List<'a>),
    /// Each is followed by an id.
    Streams(List<'a>),
}

impl<'a> Keys<'a> {
    pub(crate) fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let (one, list, step) = match self {
            Keys::One(key) => (Some(key), None, 1),
            Keys::Any(list) => (None, Some(list), 1),
            Keys::Streams(list) => (None, Some(list), 2),
        };
        one.into_iter().chain(list.into_iter().flat_map(|list| list.iter()).step_by(step))
    }
}

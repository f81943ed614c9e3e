//! The channels that a client subscribes to.

use super::Session;
use commands::Listening;
use std::collections::BTreeSet;

/// The subscriptions of one client.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    pub(crate) names: [BTreeSet<Vec<u8>>; Listening::COUNT],
    /// The bytes of the names, and of parsed patterns.
    pub(crate) bytes: usize,
    pub(crate) patterns_bytes: usize,
}

impl Subscriptions {
    pub(crate) fn of(&self, how: Listening) -> &BTreeSet<Vec<u8>> {
        &self.names[how as usize]
    }

    /// Roughly how much memory the subscriptions take, including the node's part.
    pub(crate) fn memory_bytes(&self) -> usize {
        const EACH_BYTES: usize = 128;
        2 * self.bytes + self.patterns_bytes + self.count() * EACH_BYTES
    }

    pub(crate) fn count(&self) -> usize {
        self.names.iter().map(BTreeSet::len).sum()
    }
}

impl Session {
    /// How many subscriptions of this kind the client has.
    pub(crate) fn subscribed(&self, how: Listening) -> usize {
        self.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.of(how).len())
    }

    /// How many subscriptions confirmations of this kind report: channels and patterns are counted together.
    pub(crate) fn subscribed_with(&self, how: Listening) -> usize {
        match how {
            Listening::Channel | Listening::Pattern => {
                self.subscribed(Listening::Channel) + self.subscribed(Listening::Pattern)
            }
            Listening::Shard => self.subscribed(how),
        }
    }
}

//! The kinds of subscriptions to channels.

/// The kind of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listening {
    /// To a channel (`SUBSCRIBE`).
    Channel,
    /// To all channels whose names match (`PSUBSCRIBE`).
    Pattern,
    /// To a channel of those that have their own commands in a Redis Cluster (`SSUBSCRIBE`).
    Shard,
}

impl Listening {
    pub(crate) const COUNT: usize = 3;

    pub(crate) fn message(self) -> &'static [u8] {
        match self {
            Listening::Channel => b"message",
            Listening::Pattern => b"pmessage",
            Listening::Shard => b"smessage",
        }
    }

    /// The words in the messages that confirm its beginning and its end.
    pub(crate) fn words(self) -> (&'static [u8], &'static [u8]) {
        match self {
            Listening::Channel => (b"subscribe", b"unsubscribe"),
            Listening::Pattern => (b"psubscribe", b"punsubscribe"),
            Listening::Shard => (b"ssubscribe", b"sunsubscribe"),
        }
    }
}

//! The kinds of subscriptions to channels.

/// The kind of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listening {
    /// To a channel (`SUBSCRIBE`).
    Channel,
    /// To all channels whose names match (`PSUBSCRIBE`).
    Pattern,
    /// To a channel with the commands for channels in shards of a Redis Cluster (`SSUBSCRIBE`).
    Shard,
}

impl Listening {
    /// How many kinds there are.
    pub const COUNT: usize = 3;

    /// The word in a message that is published.
    pub fn message(self) -> &'static [u8] {
        match self {
            Listening::Channel => b"message",
            Listening::Pattern => b"pmessage",
            Listening::Shard => b"smessage",
        }
    }

    /// The words in the messages that confirm the beginning and the end of the subscription.
    pub fn words(self) -> (&'static [u8], &'static [u8]) {
        match self {
            Listening::Channel => (b"subscribe", b"unsubscribe"),
            Listening::Pattern => (b"psubscribe", b"punsubscribe"),
            Listening::Shard => (b"ssubscribe", b"sunsubscribe"),
        }
    }
}

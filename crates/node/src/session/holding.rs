//! A request that a session holds until it may go on.

use super::{Item, Session};
use kv::Command;
use wire::resp::{Arguments, ArgumentsBuffer};

impl Session {
    /// Keeps a request to be taken later, as if it arrived then.
    pub(crate) fn hold_back(&mut self, arguments: Arguments<'_>) {
        let mut held = ArgumentsBuffer::new();
        arguments.iter().for_each(|argument| held.push(argument));
        self.held_back = Some(Box::new(held));
    }

    /// Whether the client has a request that is held.
    pub(crate) fn is_held_back(&self) -> bool {
        self.held_back.is_some()
    }

    /// Takes the request that is held, if there is one.
    pub(crate) fn take_held_back(&mut self) -> Option<Box<ArgumentsBuffer>> {
        self.held_back.take()
    }

    /// Whether a command queued since `MULTI` may write or publish.
    pub(crate) fn has_queued_writes(&self) -> bool {
        let Some(gathered) = &self.transaction else { return false };
        let publishes = |item: &Item| match item {
            Item::Node(arguments) => {
                let name = arguments.as_arguments().get(0).unwrap_or_default();
                [&b"publish"[..], b"spublish"].iter().any(|publish| name.eq_ignore_ascii_case(publish))
            }
            _ => false,
        };
        Command::Transaction(gathered.draft.transaction()).is_write() || gathered.items.iter().any(publishes)
    }
}

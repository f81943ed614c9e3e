//! What clients requested, and the replies they got, as it happened.

use crate::caching::Outlasted;
use crate::events::Place;
use crate::operation::{Kind, Operation, Reply};
use std::collections::BTreeMap;

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client does not know the outcome, and may never know it.
    Open,
    /// The client got a reply.
    Answered { at: u64, reply: Reply },
}

/// One operation of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) operation: Operation,
    pub(crate) client: u8,
    /// The number of the client's connection over which it was sent.
    pub(crate) connection: u32,
    pub(crate) node: Place,
    pub(crate) start: u64,
    pub(crate) end: End,
}

impl Entry {
    /// Returns the reply and its time, if there was one.
    pub(crate) fn reply(&self) -> Option<(u64, Reply)> {
        match self.end {
            End::Answered { at, reply } => Some((at, reply)),
            End::Open => None,
        }
    }
}

/// All operations of a run, in the order in which they were sent.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) entries: Vec<Entry>,
    /// The lists that operations of kind `Across` have read, by the operations' numbers.
    pub(crate) reads: BTreeMap<u32, Vec<Vec<Vec<u8>>>>,
}

impl Record {
    /// The operations on keys.
    pub(crate) fn on_keys(&self) -> impl Iterator<Item = &Entry> + Clone {
        self.entries.iter().filter(|entry| entry.operation.kind != Kind::Ping)
    }

    /// Records that an operation is sent. Returns its number.
    pub(crate) fn begin(
        &mut self,
        mut operation: Operation,
        (client, connection): (u8, u32),
        node: Place,
        start: u64,
    ) -> Operation {
        operation.number = self.entries.len() as u32;
        self.entries.push(Entry { operation, client, connection, node, start, end: End::Open });
        operation
    }

    /// Records what a client has kept beyond the bound, until now, as a read.
    pub(crate) fn outlast(&mut self, outlasted: Outlasted, (client, connection): (u8, u32), now: u64) {
        let Outlasted { operation, reply, node, start } = outlasted;
        let operation = self.begin(operation, (client, connection), node, start);
        self.end(&operation, now, reply);
    }

    pub(crate) fn end(&mut self, operation: &Operation, at: u64, reply: Reply) {
        self.entries[operation.number as usize].end = End::Answered { at, reply };
    }
}

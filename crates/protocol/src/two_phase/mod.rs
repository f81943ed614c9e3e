//! Transactions over several groups, outside of the groups: what a coordinator does for its clients, and what a group's leader
//! does about a transaction that it holds and whose coordinator does not end it.
//!
//! `docs/design/transactions.md` has the protocol, and why it is right; [`kv::two_phase`] what a group keeps. Both components are
//! pure functions of their inputs, as replicas are: they leave [`Action`]s, and are told the outcomes.
//!
//! ```text
//!  client     coordinator                 group 4                group 9
//!    | EXEC       |                          |                      |
//!    |----------->| Prepare ---------------->|                      |
//!    |            | Prepare ------------------------------------- ->|
//!    |            |<-------------- PREPARED -|                      |
//!    |            |<------------------------------------- PREPARED -|
//!    |<-- replies-|  committed               |                      |
//!    |            | Commit ----------------->|                      |
//!    |            | Commit ---------------------------------------->|
//! ```
//!
//! Where a command needs values of several groups, the groups lock its keys first (`Lock`), and return the values; the node then finds
//! out what each group has to do ([`Action::Evaluate`]), which they prepare as above (`PrepareLocked`). If that is nothing, they are asked
//! whether the keys are still locked.

mod answers;
mod coordinator;
mod resolver;
#[cfg(test)]
mod tests;

pub use coordinator::{Coordinator, Ended, Evaluated, Planned};
pub use resolver::Resolver;

use kv::{TransactionId, UnixMs};

/// What a component has its node do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Hands a record to a group. Its outcome goes to the component, with the same name.
    Submit {
        /// The group.
        group: u16,
        /// The name of the question.
        asked: Asked,
        /// The encoded command.
        record: Vec<u8>,
    },
    /// All groups have locked the keys of a transaction: what each has to do is found from what they have returned, and the coordinator
    /// is told by [`Coordinator::evaluated`].
    Evaluate {
        /// The client's request.
        ticket: u64,
        /// The transaction.
        id: TransactionId,
        /// The groups, each with its time, and the encoded reply of its share that reads.
        found: Vec<Found>,
    },
    /// Ends the request of a client.
    End {
        /// The request.
        ticket: u64,
        /// What became of it.
        ended: Ended,
    },
}

/// What a group has returned when it locked keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The group.
    pub group: u16,
    /// The time of the record, in milliseconds since the Unix epoch.
    pub time: UnixMs,
    /// The encoded reply of the share that reads.
    pub reply: Vec<u8>,
}

/// A record that was handed to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// The transaction.
    pub id: TransactionId,
    /// What the group is asked.
    pub what: What,
}

/// What a group is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// To lock the keys of the transaction.
    Lock,
    /// To prepare the transaction.
    Prepare,
    /// Whether its keys are still locked.
    Confirm,
    /// For its vote.
    Resolve,
    /// To end it.
    End,
}

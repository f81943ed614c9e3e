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

mod answers;
mod coordinator;
mod resolver;
#[cfg(test)]
mod tests;

pub use coordinator::{Coordinator, Ended, Planned};
pub use resolver::Resolver;

use kv::TransactionId;

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
    /// Ends the request of a client.
    End {
        /// The request.
        ticket: u64,
        /// What became of it.
        ended: Ended,
    },
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
    /// To prepare the transaction.
    Prepare,
    /// For its vote.
    Resolve,
    /// To end it.
    End,
}

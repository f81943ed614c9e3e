//! Values that are kept as fragments, at the replicas: what coordinators and replicas say to each other about them, and
//! what a replica keeps.
//!
//! A coordinator, which is whichever node a client is connected to, cuts a large value into fragments and sends each member
//! of the group its own. When enough of them keep theirs durably it has a small command ordered that refers to the value.
//! Consensus orders nothing else, and knows nothing of fragments: what is said here goes beside it. See
//! `docs/design/protocols/coding.md` for why no decided value can be lost.
//!
//! Reading order: `message`, then `store`; the part of a consensus replica that has to do with it is `consensus/fragments.rs`.

mod message;
mod store;

pub use message::{Message, Piece, Refusal};
pub use store::{Fragment, FragmentStore, Kept, KeptPiece};

use crate::contract::NodeId;

/// The number of a node's fragments: of every value it has the one with this number, whoever else is in the group. `None`:
/// it is beyond what values can be cut into.
pub fn number_of(node: NodeId) -> Option<u8> {
    u8::try_from(node.checked_sub(1)?).ok()
}

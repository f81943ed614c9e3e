//! Erasure-coded values, which replicas keep as fragments: the messages between coordinators and replicas about
//! fragments, and what a replica keeps.
//!
//! A coordinator, the node to which a client is connected, cuts a large value into fragments and sends each member of the
//! group its own. When enough members keep their fragments durably, the coordinator has a small command ordered that
//! refers to the value. Consensus orders only that command, and does not know of fragments: these messages are separate
//! from it. See `docs/design/protocols/coding.md` for why no decided value can be lost.
//!
//! Reading order: `message`, then `store`; the part of a consensus replica that handles fragments is
//! `consensus/fragments.rs`.

mod message;
mod store;

pub use message::{Message, Piece, Refusal};
pub use store::{Fragment, FragmentStore, HeldPiece, Kept, KeptPiece, StoredPiece};

use crate::effects::{Effects, NodeId, Now};
use kv::{Reference, ValueId};

/// Returns the number of a node's fragments: the node has the fragment with this number of every value, whichever other
/// nodes are in the group. `None` when the number exceeds the possible number of fragments.
pub fn number_of(node: NodeId) -> Option<u8> {
    u8::try_from(node.checked_sub(1)?).ok()
}

/// The fragments that a replica keeps.
pub trait Fragments {
    /// Keeps a piece of this replica's fragment, sent by the value's coordinator.
    fn keep_piece(&mut self, now: Now, from: NodeId, piece: KeptPiece, effects: &mut Effects);

    /// The value's coordinator reports that it will never be stored.
    fn forget_value(&mut self, from: NodeId, id: ValueId);

    /// Takes a piece of this replica's own fragment that was rebuilt from others.
    fn take_rebuilt(&mut self, now: Now, piece: KeptPiece);

    /// Returns `count` pieces of a value's fragment, as far as one answer may hold them; none if the fragment is not whole.
    fn pieces(&self, id: ValueId, stripe: u32, count: u32) -> Vec<HeldPiece>;

    /// Notes that the bytes of the piece with this name cannot be read.
    fn lose_piece(&mut self, now: Now, name: &Reference);

    /// The number of pieces whose bytes are in the node's store (`storage = "disk"`).
    fn stored_len(&self) -> usize;

    /// Returns the name of the piece in the store that has this place among them. O(place).
    fn stored_name(&self, place: usize) -> Option<Reference>;

    /// Whether it has a piece whose bytes have this name in the node's store.
    fn stores(&self, name: &Reference) -> bool;

    /// Returns the fragment of a value, as far as this replica has it.
    fn fragment(&self, id: ValueId) -> Option<&Fragment>;

    /// Returns the number of fragments kept here, and the memory that they take, in bytes.
    fn fragments_kept(&self) -> (usize, usize);

    /// Returns the number of values of which this replica has no fragment: for each of these values it counts as a failed
    /// member.
    fn fragments_lacking(&self) -> usize;

    /// Returns this replica's report: its membership, whether it holds everything decided before that membership began,
    /// and the number of values of which it has no fragment.
    fn lacking_report(&self) -> Message<'static>;

    /// True when the table refers to erasure-coded values, or the replica keeps fragments.
    fn has_fragments(&self) -> bool;

    /// Returns at most `values_max` values whose fragment has been lacking for `age_ms`, and for which `is_wanted`
    /// returns true, to be rebuilt.
    fn to_be_rebuilt(
        &self,
        now: Now,
        age_ms: u64,
        values_max: usize,
        is_wanted: &dyn Fn(ValueId) -> bool,
    ) -> Vec<Reference>;

    /// Returns values to be abandoned: their fragments arrived at least `age_ms` ago, and nothing has referred to them
    /// since. Only the newest of each coordinator.
    fn to_be_abandoned(&self, now: Now, age_ms: u64) -> Vec<ValueId>;
}

//! Values that are kept as fragments at the replicas: the messages between coordinators and replicas about them, and what a
//! replica keeps.
//!
//! A coordinator, which is the node that a client is connected to, cuts a large value into fragments and sends each member
//! of the group its own. When enough of them keep theirs durably, it has a small command ordered that refers to the value.
//! Consensus orders nothing else, and knows nothing of fragments: these messages go beside it. See
//! `docs/design/protocols/coding.md` for why no decided value can be lost.
//!
//! Reading order: `message`, then `store`; the part of a consensus replica that handles fragments is
//! `consensus/fragments.rs`.

mod message;
mod store;

pub use message::{Message, Piece, Refusal};
pub use store::{Fragment, FragmentStore, HeldPiece, Kept, KeptPiece, StoredPiece};

use crate::effects::{Effects, NodeId, Now};
use kv::{Reference, ValueId};

/// Returns the number of a node's fragments: it has the fragment with this number of every value, whatever other nodes are
/// in the group. `None` when the number exceeds what values can be cut into.
pub fn number_of(node: NodeId) -> Option<u8> {
    u8::try_from(node.checked_sub(1)?).ok()
}

/// The fragments that a replica keeps.
pub trait Fragments {
    /// Takes a piece of this replica's fragment from the value's coordinator, to be kept.
    fn keep_piece(&mut self, now: Now, from: NodeId, piece: KeptPiece, effects: &mut Effects);

    /// The value's coordinator reports that it will never be stored.
    fn forget_value(&mut self, from: NodeId, id: ValueId);

    /// Takes a piece of this replica's own fragment that was rebuilt from others.
    fn take_rebuilt(&mut self, now: Now, piece: KeptPiece);

    /// Returns `count` pieces of a value's fragment, as far as one answer may hold them; none if the fragment is not whole.
    fn pieces(&self, id: ValueId, stripe: u32, count: u32) -> Vec<HeldPiece>;

    /// The bytes of this piece cannot be read.
    fn lose_piece(&mut self, now: Now, piece: &StoredPiece);

    /// The number of pieces whose bytes are in the node's store (`storage = "disk"`).
    fn stored_len(&self) -> usize;

    /// Whether it has a piece whose bytes have this name in the node's store.
    fn stores(&self, name: &Reference) -> bool;

    /// Returns the fragment of a value, or what has become of it here.
    fn fragment(&self, id: ValueId) -> Option<&Fragment>;

    /// Returns the number of fragments kept here, and the memory that they take, in bytes.
    fn fragments_kept(&self) -> (usize, usize);

    /// Returns the number of values of which this replica has no fragment: for each of them it counts as a failed member.
    fn fragments_lacking(&self) -> usize;

    /// Returns this replica's report: its membership, whether it holds everything decided before that began, and how many
    /// values it has no fragment of.
    fn lacking_report(&self) -> Message<'static>;

    /// True when it refers to values that are kept as fragments, or keeps fragments.
    fn has_fragments(&self) -> bool;

    /// Returns some values whose fragment has been lacking for that long, to be rebuilt where that is wanted.
    fn to_be_rebuilt(
        &self,
        now: Now,
        age_ms: u64,
        values_max: usize,
        is_wanted: &dyn Fn(ValueId) -> bool,
    ) -> Vec<Reference>;

    /// Returns values to be abandoned: their fragments arrived at least `age_ms` ago, and nothing has referred to them
    /// since. Of each coordinator the newest.
    fn to_be_abandoned(&self, now: Now, age_ms: u64) -> Vec<ValueId>;
}

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

use crate::contract::{Effects, NodeId, Now};
use kv::{Reference, ValueId};

/// The number of a node's fragments: of every value it has the one with this number, whoever else is in the group. `None`:
/// it is beyond what values can be cut into.
pub fn number_of(node: NodeId) -> Option<u8> {
    u8::try_from(node.checked_sub(1)?).ok()
}

/// What a replica keeps of values that are kept as fragments.
pub trait Fragments {
    /// A coordinator has something to say about fragments.
    fn about_fragments(&mut self, now: Now, from: NodeId, message: Message<'_>, effects: &mut Effects);

    /// Takes a piece of this replica's own fragment that was made of others.
    fn take_rebuilt(&mut self, now: Now, reference: Reference, stripe: u32, bytes: &[u8]);

    /// So many pieces of a value's fragment, as far as one question brings them; none if the fragment is not whole.
    fn pieces(&self, id: ValueId, stripe: u32, count: u32) -> Vec<KeptPiece>;

    /// The fragment of a value, or what has come of it here.
    fn fragment(&self, id: ValueId) -> Option<&Fragment>;

    /// How many fragments are kept here, and how many bytes they have.
    fn fragments_kept(&self) -> (usize, usize);

    /// How many values this replica has no fragment of: for each of them it counts as one that has failed.
    fn fragments_lacking(&self) -> usize;

    /// How this replica stands: in which membership, and whether it holds all that was decided before that began; how many
    /// values it has no fragment of.
    fn lacking_report(&self) -> Message<'static>;

    /// True when it refers to values that are kept as fragments, or keeps fragments.
    fn has_fragments(&self) -> bool;

    /// Some values whose fragment has been lacking for so long: it is to be rebuilt, where that is wanted.
    fn to_be_rebuilt(
        &self,
        now: Now,
        age_ms: u64,
        values_max: usize,
        is_wanted: &dyn Fn(ValueId) -> bool,
    ) -> Vec<Reference>;

    /// Values that are to be given up: their fragments came here so long ago, and nothing has referred to them since. Of
    /// each coordinator the newest.
    fn to_be_abandoned(&self, now: Now, age_ms: u64) -> Vec<ValueId>;
}

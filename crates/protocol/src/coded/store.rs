//! The fragments of one replica, and the state of each.
//!
//! ```text
//!   Keep ...            the table refers to it      no key refers to it any more
//!  ----------> loose --------------------------> in use ------------------------> leaving ----> gone
//!                |                                 ^                             (for readers under way)
//!                | given up (Abandon), or Forget   | Keep ..., or rebuilt
//!                v                                 |
//!               gone         the table refers to it without it: lacking
//! ```
//!
//! The table alone proves only the last step: a value to which keys no longer refer is never referred to again, because
//! each name is ordered once. But a record on its way may still refer to a loose fragment, which is therefore dropped
//! only when a record has abandoned it.
//!
//! Where values are on the disk (`storage = "disk"`), so are fragments: each piece is handed to the code that stores
//! values for this replica as soon as it has been recorded here, under a name made of the value's name, the stripe, and
//! the piece's length and digest ([`kv::table::Spilled`]). Only the piece's place and its checksum stay in memory.

use super::message::Piece;
use coding::Layout;
use kv::digest::digest_of;
use kv::table::{CodedChanges, Spilled};
use kv::{Coordinator, Reference, Table, ValueId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The number of bits of a stripe's number in the name of a stored piece.
const STRIPE_BITS: u32 = 16;
const STRIPE_MASK: u32 = (1 << STRIPE_BITS) - 1;

/// The approximate memory that a piece takes besides its bytes.
const PIECE_MEMORY_BYTES: usize = 96;

/// The result of keeping a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is new, and must be recorded.
    New,
    /// It was kept already.
    Known,
    /// It does not match what is already kept for that value, or cannot belong to any value.
    Unfit,
}

/// A piece whose bytes are in memory. A record of it that has not left yet shares the bytes instead of copying them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPiece {
    reference: Reference,
    number: u8,
    stripe: u32,
    checksum: u64,
    bytes: Arc<Vec<u8>>,
}

impl KeptPiece {
    /// The piece.
    pub fn piece(&self) -> Piece<'_> {
        let KeptPiece { reference, number, stripe, checksum, .. } = *self;
        Piece { reference, number, stripe, checksum, bytes: &self.bytes }
    }

    /// Its bytes, shared.
    pub(crate) fn shared_bytes(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.bytes)
    }
}

impl From<Piece<'_>> for KeptPiece {
    fn from(piece: Piece<'_>) -> KeptPiece {
        let Piece { reference, number, stripe, checksum, bytes } = piece;
        KeptPiece { reference, number, stripe, checksum, bytes: Arc::new(bytes.to_vec()) }
    }
}

/// A piece whose bytes are in the store of this replica's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredPiece {
    pub(crate) reference: Reference,
    pub(crate) number: u8,
    pub(crate) stripe: u32,
    pub(crate) checksum: u64,
    pub(crate) digest: u64,
}

impl StoredPiece {
    /// The value to which it belongs.
    pub fn id(&self) -> ValueId {
        self.reference.id
    }

    /// The name of its bytes in the store.
    pub fn name(&self) -> Reference {
        let ValueId { coordinator, counter } = self.reference.id;
        let layout = Layout::new(self.reference.length as usize, self.reference.parts);
        let length = layout.map_or(0, |layout| layout.piece_bytes(self.stripe as usize));
        let index = counter << STRIPE_BITS | u64::from(self.stripe);
        Reference::spilled(coordinator.life, index, length as u32, self.digest)
    }

    /// The piece, with its bytes.
    pub fn piece<'a>(&self, bytes: &'a [u8]) -> Piece<'a> {
        let StoredPiece { reference, number, stripe, checksum, .. } = *self;
        Piece { reference, number, stripe, checksum, bytes }
    }
}

/// A piece of a fragment, with its bytes in memory or in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldPiece {
    /// The bytes are in memory.
    Kept(KeptPiece),
    /// The bytes are in the node's store.
    Stored(StoredPiece),
}

impl HeldPiece {
    /// For a planted fault: returns the same piece under another value's name.
    pub(crate) fn of_another(mut self, id: ValueId) -> HeldPiece {
        match &mut self {
            HeldPiece::Kept(kept) => kept.reference.id = id,
            HeldPiece::Stored(_) => {} // Its name in the store follows from the value's.
        }
        self
    }
}

/// A piece in its place in a fragment: its checksum, and its bytes, or their digest if they are in the store.
#[derive(Debug)]
enum Place {
    Kept(u64, Arc<Vec<u8>>),
    Stored(u64, u64),
}

/// One fragment, whole or in part.
#[derive(Debug)]
pub struct Fragment {
    reference: Reference,
    number: u8,
    layout: Layout,
    pieces: Vec<Option<Place>>,
    absent: usize,
    /// The record of its last piece in this incarnation of the replica; 0: the fragment is older.
    record: u64,
}

impl Fragment {
    /// Whether all its pieces are here.
    pub fn is_whole(&self) -> bool {
        self.absent == 0
    }

    /// The value to which it belongs.
    pub fn reference(&self) -> Reference {
        self.reference
    }

    /// Returns its piece of a stripe, with shared bytes, since the fragment may be dropped in the meantime.
    pub fn piece(&self, stripe: u32) -> Option<HeldPiece> {
        let Fragment { reference, number, .. } = *self;
        Some(match *self.pieces.get(stripe as usize)?.as_ref()? {
            Place::Kept(checksum, ref bytes) => {
                let bytes = Arc::clone(bytes);
                HeldPiece::Kept(KeptPiece { reference, number, stripe, checksum, bytes })
            }
            Place::Stored(checksum, digest) => {
                HeldPiece::Stored(StoredPiece { reference, number, stripe, checksum, digest })
            }
        })
    }

    /// Returns its pieces that are here, from this stripe on, with their stripes.
    pub(crate) fn pieces_from(&self, stripe: u32) -> impl Iterator<Item = (u32, HeldPiece)> {
        (stripe..self.pieces.len() as u32).filter_map(|stripe| Some((stripe, self.piece(stripe)?)))
    }

    /// The names in the store of its pieces there.
    fn stored(&self) -> impl Iterator<Item = Reference> {
        self.pieces_from(0).filter_map(|(_, piece)| match piece {
            HeldPiece::Kept(_) => None,
            HeldPiece::Stored(stored) => Some(stored.name()),
        })
    }

    fn bytes(&self) -> usize {
        let here = self.pieces.iter().enumerate().filter(|(_, place)| place.is_some());
        here.map(|(stripe, _)| self.layout.piece_bytes(stripe)).sum()
    }
}

/// A fragment that is kept for readers under way.
#[derive(Debug)]
struct Leaving {
    id: ValueId,
    since_us: u64,
    bytes: usize,
}

/// The fragments of one replica.
#[derive(Debug, Default)]
pub struct FragmentStore {
    fragments: BTreeMap<ValueId, Fragment>,
    bytes: usize,
    /// Fragments to which the table does not refer and never did, each with the time since when it has been here.
    loose: BTreeMap<ValueId, u64>,
    /// Values to which the table refers and whose fragment is missing here, or incomplete, each with the time since when.
    lacking: BTreeMap<ValueId, u64>,
    /// Fragments to which the table no longer refers, in the order in which they are dropped.
    leaving: VecDeque<Leaving>,
    leaving_bytes: usize,
    /// Whether the bytes of pieces go to the node's store; `stored` has the names of those that are there.
    spills: bool,
    stored: BTreeSet<Reference>,
    news: Spilled,
}

impl FragmentStore {
    /// Returns an empty store. With `spills` the bytes of pieces go to the node's store.
    pub fn new(spills: bool) -> FragmentStore {
        FragmentStore { spills, ..FragmentStore::default() }
    }

    // For the code that stores values.

    /// Returns the pieces to be stored, and those no longer needed, since the last call.
    #[inline]
    pub fn take_spilled(&mut self) -> Option<Spilled> {
        let is_empty = self.news.kept.is_empty() && self.news.released.is_empty();
        (!is_empty).then(|| std::mem::take(&mut self.news))
    }

    /// The names of all pieces in the node's store.
    pub fn stored(&self) -> &BTreeSet<Reference> {
        &self.stored
    }

    /// The piece whose bytes have this name in the node's store. O(coordinators): the name does not say which node has
    /// named the value.
    fn piece_named(&self, name: &Reference) -> Option<StoredPiece> {
        let life = name.id.coordinator.life;
        let (counter, stripe) = (name.id.counter >> STRIPE_BITS, name.id.counter as u32 & STRIPE_MASK);
        let mut node = 0;
        loop {
            let first = ValueId { coordinator: Coordinator { node, life: 0 }, counter: 0 };
            node = self.fragments.range(first..).next()?.0.coordinator.node;
            let id = ValueId { coordinator: Coordinator { node, life }, counter };
            if let Some(HeldPiece::Stored(piece)) = self.get(id).and_then(|fragment| fragment.piece(stripe))
                && piece.name() == *name
            {
                return Some(piece);
            }
            node = node.checked_add(1)?;
        }
    }

    /// Notes that the bytes with this name cannot be read: the value has no whole fragment here until the piece is
    /// rebuilt.
    pub fn lose(&mut self, name: &Reference, table: &Table, now_us: u64) {
        let Some(piece) = self.piece_named(name) else { return };
        let id = piece.id();
        let Some(fragment) = self.fragments.get_mut(&id) else { return };
        let place = fragment.pieces.get_mut(piece.stripe as usize);
        if place.is_some_and(|place| place.take().is_some()) {
            fragment.absent += 1;
            self.bytes -= fragment.layout.piece_bytes(piece.stripe as usize);
            self.stored.remove(name);
            self.news.released.insert(*name);
            if table.reference(id).is_some() {
                self.lacking.entry(id).or_insert(now_us);
            }
        }
    }

    /// Takes a piece that is in the node's store according to a checkpoint.
    pub(crate) fn restore(&mut self, piece: &StoredPiece, table: &Table, now_us: u64) -> Kept {
        let place = Place::Stored(piece.checksum, piece.digest);
        self.put(piece.reference, piece.number, piece.stripe, place, table, now_us)
    }

    // Fragments.

    /// Returns the fragment of a value, as far as it is here.
    pub fn get(&self, id: ValueId) -> Option<&Fragment> {
        self.fragments.get(&id)
    }

    /// For a planted fault: returns some whole fragment.
    pub(crate) fn any_whole(&self) -> Option<&Fragment> {
        self.fragments.values().find(|fragment| fragment.is_whole())
    }

    /// The number of fragments kept, in part or whole.
    pub fn len(&self) -> usize {
        self.fragments.len()
    }

    /// True when none is kept.
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// The bytes of all fragments.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The memory that the fragments take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        if self.spills { self.stored.len() * PIECE_MEMORY_BYTES } else { self.bytes }
    }

    /// The number of values to which the table refers and whose fragment is missing here, or incomplete.
    pub fn lacking_len(&self) -> usize {
        self.lacking.len()
    }

    /// Returns the values whose fragment has been lacking since before that time.
    pub fn lacking_since(&self, before_us: u64) -> impl Iterator<Item = ValueId> {
        self.lacking.iter().filter(move |(_, since_us)| **since_us <= before_us).map(|(id, _)| *id)
    }

    /// Returns, of each coordinator, the newest value whose fragment has been loose since before that time.
    pub fn loose_since(&self, before_us: u64) -> impl Iterator<Item = ValueId> {
        let mut newest: BTreeMap<Coordinator, u64> = BTreeMap::new();
        for (id, _) in self.loose.iter().filter(|(_, since_us)| **since_us <= before_us) {
            newest.insert(id.coordinator, id.counter);
        }
        newest.into_iter().map(|(coordinator, counter)| ValueId { coordinator, counter })
    }

    /// Returns every fragment that a checkpoint must contain.
    pub fn worth_recording(&self) -> Vec<ValueId> {
        let leaving = self.leaving_ids();
        self.fragments.keys().copied().filter(|id| !leaving.contains(id)).collect()
    }

    fn leaving_ids(&self) -> BTreeSet<ValueId> {
        self.leaving.iter().map(|leaving| leaving.id).collect()
    }

    /// Keeps a piece. Never replaces a piece that is already kept.
    pub fn keep(&mut self, piece: &KeptPiece, table: &Table, now_us: u64) -> Kept {
        let KeptPiece { reference, number, stripe, checksum, ref bytes } = *piece;
        let place = match self.spills {
            true => Place::Stored(checksum, digest_of(bytes)),
            false => Place::Kept(checksum, Arc::clone(bytes)),
        };
        let layout = Layout::new(reference.length as usize, reference.parts);
        let fits = |layout: Layout| {
            (stripe as usize) < layout.stripes() && bytes.len() == layout.piece_bytes(stripe as usize)
        };
        if !layout.is_some_and(fits) {
            return Kept::Unfit;
        }
        let kept = self.put(reference, number, stripe, place, table, now_us);
        // Hand over a known piece too: a checkpoint may name a piece whose bytes are safe only in the log after it.
        if kept != Kept::Unfit
            && let Some(HeldPiece::Stored(stored)) = self.get(reference.id).and_then(|it| it.piece(stripe))
            && stored.checksum == checksum
        {
            self.news.released.remove(&stored.name());
            self.news.kept.push((stored.name(), Arc::clone(bytes)));
        }
        kept
    }

    fn put(
        &mut self,
        reference: Reference,
        number: u8,
        stripe: u32,
        place: Place,
        table: &Table,
        now_us: u64,
    ) -> Kept {
        let (id, at) = (reference.id, stripe as usize);
        let layout = Layout::new(reference.length as usize, reference.parts);
        let Some(layout) = layout.filter(|layout| at < layout.stripes() && at >> STRIPE_BITS == 0) else {
            return Kept::Unfit;
        };
        let is_new = !self.fragments.contains_key(&id);
        let fragment = self.fragments.entry(id).or_insert_with(|| Fragment {
            reference,
            number,
            layout,
            pieces: Vec::new(),
            absent: layout.stripes(),
            record: 0,
        });
        if fragment.reference != reference || fragment.number != number {
            return Kept::Unfit;
        }
        if is_new && table.reference(id).is_none() {
            self.loose.insert(id, now_us);
        }
        // Memory is allocated as pieces arrive: a sender cannot cause a large allocation by naming a great length.
        if fragment.pieces.len() <= at {
            fragment.pieces.resize_with(at + 1, || None);
        }
        if fragment.pieces[at].is_some() {
            return Kept::Known;
        }
        fragment.pieces[at] = Some(place);
        if let Some(HeldPiece::Stored(stored)) = fragment.piece(stripe) {
            self.stored.insert(stored.name());
        }
        fragment.absent -= 1;
        self.bytes += layout.piece_bytes(at);
        if fragment.is_whole() {
            self.lacking.remove(&id);
        }
        debug_assert_eq!(fragment.layout, layout);
        Kept::New
    }

    /// Notes that a piece of this fragment was recorded.
    pub fn recorded(&mut self, id: ValueId, record: u64) {
        if let Some(fragment) = self.fragments.get_mut(&id) {
            fragment.record = record;
        }
    }

    /// Returns the record that makes all of a fragment durable, if it is whole.
    pub fn safe_behind(&self, id: ValueId) -> Option<u64> {
        self.fragments.get(&id).filter(|fragment| fragment.is_whole()).map(|fragment| fragment.record)
    }

    fn drop_fragment(&mut self, id: ValueId) {
        self.loose.remove(&id);
        if let Some(fragment) = self.fragments.remove(&id) {
            self.bytes -= fragment.bytes();
            for name in fragment.stored() {
                self.stored.remove(&name);
                self.news.released.insert(name);
            }
        }
    }

    /// Drops a loose fragment whose value's coordinator reports that it will never be stored.
    pub fn forget(&mut self, id: ValueId) {
        if self.loose.contains_key(&id) {
            self.drop_fragment(id);
        }
    }

    /// Follows changes of the table.
    pub fn follow(&mut self, changes: &CodedChanges, table: &Table, now_us: u64) {
        for id in &changes.values {
            let is_whole = self.fragments.get(id).is_some_and(Fragment::is_whole);
            match table.reference(*id) {
                Some(_) => {
                    self.loose.remove(id);
                    if !is_whole {
                        self.lacking.entry(*id).or_insert(now_us);
                    }
                }
                None => {
                    self.lacking.remove(id);
                    self.loose.remove(id);
                    if let Some(fragment) = self.fragments.get(id) {
                        let bytes = fragment.bytes();
                        self.leaving_bytes += bytes;
                        self.leaving.push_back(Leaving { id: *id, since_us: now_us, bytes });
                    }
                }
            }
        }
        for (coordinator, counter) in &changes.abandoned {
            let first = ValueId { coordinator: *coordinator, counter: 0 };
            let last = ValueId { coordinator: *coordinator, counter: *counter };
            let given_up: Vec<ValueId> = self.loose.range(first..=last).map(|(id, _)| *id).collect();
            given_up.into_iter().for_each(|id| self.drop_fragment(id));
        }
    }

    /// Another table has replaced the one before: checks again which fragments are loose and which are lacking.
    pub fn match_with(&mut self, table: &Table, now_us: u64) {
        let leaving = self.leaving_ids();
        let is_unused = |id: &&ValueId| table.reference(**id).is_none() && !leaving.contains(id);
        let unused = self.fragments.keys().filter(is_unused);
        self.loose = unused.map(|id| (*id, now_us)).collect();
        let held = |id: &ValueId| self.fragments.get(id).is_some_and(Fragment::is_whole);
        let wanted = table.references().map(|reference| reference.id);
        // The values were stored some time ago, so a missing fragment will not arrive by itself. The rest of an
        // incomplete one may be on its way.
        let since_us = |id: &ValueId| if self.fragments.contains_key(id) { now_us } else { 0 };
        self.lacking = wanted.filter(|id| !held(id)).map(|id| (id, since_us(&id))).collect();
        let given_up: Vec<ValueId> =
            self.loose.keys().copied().filter(|id| table.is_abandoned(*id)).collect();
        given_up.into_iter().for_each(|id| self.drop_fragment(id));
    }

    /// Drops fragments that have been leaving since before that time, and more if they exceed `bytes_max`.
    pub fn let_go(&mut self, before_us: u64, bytes_max: usize) {
        while let Some(Leaving { id, since_us, bytes }) = self.leaving.front()
            && (*since_us <= before_us || self.leaving_bytes > bytes_max)
        {
            self.leaving_bytes -= bytes;
            let id = *id;
            self.leaving.pop_front();
            self.drop_fragment(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::{Command, Condition, Expiry, ReplyBuffer, SetAnswer};

    const HOUR_US: u64 = 3_600_000_000;

    fn reference(counter: u64) -> Reference {
        let coordinator = Coordinator { node: 1, life: 7 };
        Reference { id: ValueId { coordinator, counter }, parts: 2, length: 10, digest: counter }
    }

    fn id(counter: u64) -> ValueId {
        reference(counter).id
    }

    /// A store with its table, as a replica drives them.
    struct Replica {
        table: Table,
        store: FragmentStore,
        offset: u64,
    }

    impl Replica {
        fn new() -> Replica {
            Replica { table: Table::new(1), store: FragmentStore::default(), offset: 0 }
        }

        fn spilling() -> Replica {
            Replica { store: FragmentStore::new(true), ..Replica::new() }
        }

        fn keep(&mut self, counter: u64, now_us: u64) -> Kept {
            let piece = Piece::new(reference(counter), 4, 0, b"bytes");
            self.store.keep(&piece.into(), &self.table, now_us)
        }

        fn apply(&mut self, command: &Command<'_>, now_us: u64) {
            self.offset += 1;
            self.table.apply(command, self.offset, 0, &mut ReplyBuffer::new());
            if let Some(changes) = self.table.take_coded_changes() {
                self.store.follow(&changes, &self.table, now_us);
            }
        }

        fn set(&mut self, counter: u64, now_us: u64) {
            let (expiry, condition, answer) = (Expiry::Clear, Condition::Always, SetAnswer::Status);
            let (key, reference) = (b"k", &reference(counter).encoded());
            self.apply(
                &Command::SetCoded { key, reference, membership: 0, expiry, condition, answer },
                now_us,
            );
        }

        fn abandon(&mut self, counter: u64) {
            let coordinator = id(counter).coordinator;
            self.apply(&Command::Abandon { coordinator, counter }, 0);
        }
    }

    #[test]
    fn a_fragment_is_dropped_a_while_after_its_value_was_overwritten() {
        let mut replica = Replica::new();
        assert_eq!((replica.keep(1, 0), replica.keep(1, 0)), (Kept::New, Kept::Known));
        replica.set(1, 0);
        replica.keep(2, 0);
        replica.set(2, 100);
        replica.store.let_go(99, usize::MAX);
        assert!(replica.store.get(id(1)).is_some(), "a read may be after it");
        assert_eq!(replica.store.worth_recording(), [id(2)], "a restarted replica has no readers");
        replica.store.let_go(100, usize::MAX);
        assert!(replica.store.get(id(1)).is_none());
        assert!(replica.store.get(id(2)).is_some_and(Fragment::is_whole), "this one is in use");
        assert_eq!(replica.store.bytes(), 5);
    }

    #[test]
    fn readers_under_way_keep_a_limited_number_of_bytes() {
        let mut replica = Replica::new();
        for counter in 1..=3 {
            replica.keep(counter, 0);
            replica.set(counter, 0);
        }
        replica.store.let_go(0, 5);
        assert_eq!(replica.store.len(), 1, "the one in use");
    }

    #[test]
    fn a_fragment_to_which_nothing_refers_stays_until_it_is_abandoned() {
        let mut replica = Replica::new();
        (1..=3).for_each(|counter| assert_eq!(replica.keep(counter, counter), Kept::New));
        replica.set(2, 10);
        replica.store.let_go(HOUR_US, 0);
        assert_eq!(replica.store.len(), 3);
        assert_eq!(replica.store.loose_since(0).count(), 0);
        assert_eq!(replica.store.loose_since(3).collect::<Vec<_>>(), [id(3)], "of a coordinator the newest");
        replica.abandon(3);
        assert_eq!(replica.store.len(), 1);
        assert!(replica.store.get(id(2)).is_some(), "it is in use");
    }

    #[test]
    fn only_loose_fragments_can_be_forgotten() {
        let mut replica = Replica::new();
        (1..=2).for_each(|counter| assert_eq!(replica.keep(counter, 0), Kept::New));
        replica.set(1, 0);
        (1..=2).for_each(|counter| replica.store.forget(id(counter)));
        assert!(replica.store.get(id(1)).is_some() && replica.store.get(id(2)).is_none());
    }

    #[test]
    fn a_value_without_a_fragment_is_lacking_until_the_fragment_arrives() {
        let mut replica = Replica::new();
        replica.set(1, 50);
        assert_eq!(replica.store.lacking_since(49).count(), 0);
        assert_eq!(replica.store.lacking_since(50).collect::<Vec<_>>(), [id(1)]);
        replica.keep(1, 60);
        assert_eq!(replica.store.lacking_len(), 0);
        assert_eq!(replica.store.loose_since(HOUR_US).count(), 0);
    }

    #[test]
    fn another_table_determines_again_what_is_lacking_and_what_is_loose() {
        let (mut replica, mut other) = (Replica::new(), Replica::new());
        (1..=2).for_each(|counter| assert_eq!(replica.keep(counter, 0), Kept::New));
        replica.set(1, 0);
        other.set(3, 0);
        replica.store.match_with(&other.table, 70);
        assert_eq!(replica.store.lacking_since(70).collect::<Vec<_>>(), [id(3)]);
        assert_eq!(replica.store.loose_since(70).collect::<Vec<_>>(), [id(2)], "1 and 2");
        assert_eq!(replica.store.len(), 2, "a record on its way may refer to either");
    }

    #[test]
    fn a_fragment_is_never_replaced_by_another_one() {
        let mut replica = Replica::new();
        replica.keep(1, 0);
        let unfit = |piece: Piece<'_>, replica: &mut Replica| {
            assert_eq!(replica.store.keep(&piece.into(), &replica.table, 0), Kept::Unfit, "{piece:?}");
        };
        let own = Piece::new(reference(1), 4, 0, b"bytes");
        unfit(Piece { number: 3, ..own }, &mut replica);
        unfit(Piece { reference: Reference { digest: 9, ..reference(1) }, ..own }, &mut replica);
        unfit(Piece { stripe: 1, ..own }, &mut replica);
        unfit(Piece { bytes: b"byte", ..own }, &mut replica);
        let kept = replica.store.get(id(1)).and_then(|fragment| fragment.piece(0));
        assert_eq!(kept, Some(HeldPiece::Kept(own.into())));
    }

    fn stored(replica: &Replica, counter: u64) -> StoredPiece {
        match replica.store.get(id(counter)).and_then(|fragment| fragment.piece(0)) {
            Some(HeldPiece::Stored(stored)) => stored,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_stored_piece_is_reported_when_it_arrives_and_when_it_is_dropped() {
        let mut replica = Replica::spilling();
        assert_eq!(replica.keep(1, 0), Kept::New);
        let piece = stored(&replica, 1);
        assert!(piece.name().is_of(b"bytes") && piece.piece(b"bytes").is_intact());
        let kept = vec![(piece.name(), Arc::new(b"bytes".to_vec()))];
        assert_eq!(replica.store.take_spilled(), Some(Spilled { kept, released: BTreeSet::new() }));
        assert_eq!((replica.store.take_spilled(), replica.store.bytes()), (None, 5));
        replica.set(1, 0);
        replica.keep(2, 0);
        replica.set(2, 0);
        replica.store.take_spilled();
        assert!(replica.store.stored().contains(&piece.name()), "readers may be after it");
        replica.store.let_go(0, usize::MAX);
        let released = [piece.name()].into();
        assert_eq!(replica.store.take_spilled(), Some(Spilled { kept: Vec::new(), released }));
        assert_eq!(replica.store.stored().len(), 1, "the one in use");
    }

    #[test]
    fn pieces_in_the_log_after_a_checkpoint_are_stored_again() {
        let mut replica = Replica::spilling();
        replica.keep(1, 0);
        let piece = stored(&replica, 1);
        let mut later = Replica::spilling();
        assert_eq!(later.store.restore(&piece, &later.table, 0), Kept::New);
        assert_eq!((later.store.take_spilled(), stored(&later, 1)), (None, piece));
        assert_eq!(later.keep(1, 0), Kept::Known);
        assert_eq!(later.store.take_spilled(), replica.store.take_spilled());
    }

    #[test]
    fn a_piece_that_cannot_be_read_is_lacking_until_it_is_rebuilt() {
        let mut replica = Replica::spilling();
        replica.keep(1, 0);
        replica.set(1, 0);
        let piece = stored(&replica, 1);
        replica.store.take_spilled();
        let another = Reference { digest: 9, ..piece.name() };
        replica.store.lose(&another, &replica.table, 6);
        assert_eq!(replica.store.lacking_len(), 0, "there is no such piece");
        replica.store.lose(&piece.name(), &replica.table, 7);
        replica.store.lose(&piece.name(), &replica.table, 8);
        assert_eq!(replica.store.lacking_since(7).collect::<Vec<_>>(), [id(1)]);
        assert_eq!((replica.store.bytes(), replica.store.stored().len()), (0, 0));
        let released = [piece.name()].into();
        assert_eq!(replica.store.take_spilled(), Some(Spilled { kept: Vec::new(), released }));
        assert_eq!(replica.keep(1, 9), Kept::New);
        assert_eq!((replica.store.lacking_len(), stored(&replica, 1)), (0, piece));
        assert_eq!(replica.store.take_spilled().map(|news| news.kept.len()), Some(1));
    }
}

//! What a group keeps of transactions over several groups: its votes, and the keys that these lock.
//!
//! The part of the state machine that does not depend on the keys' values; `table/two_phase.rs` has the rest. Replicas agree on
//! it, and snapshots contain it. `docs/design/transactions.md` has the protocol, and why it is right.
//!
//! ```text
//!              Prepare                  Commit
//!   unknown ------------> prepared ---------------> committed
//!      |                     |
//!      | Prepare that meets a lock or a changed key,
//!      | Resolve, Abort      | Abort
//!      v                     v
//!   refused <----------------+
//! ```
//!
//! * **The first of `Prepare` and `Resolve` is the group's vote**, and nothing takes it back: *prepared* is left only when it is
//!   certain that all deciding groups have prepared the transaction, or that one never will.
//! * **No record waits.** A transaction that meets a locked key is refused, and begins again as another one. Waiting is the
//!   leaders' business.
//! * **A vote is kept until all groups of its transaction have followed it.** Until then one of them may ask. Each record tells
//!   up to which number all transactions of its coordinator are over ([`crate::command::Header::below`]).

mod copies;
#[cfg(test)]
mod tests;

use crate::coded::Coordinator;
use crate::command::{Age, Header, Share, TransactionId};
use crate::queues::Origin;
use crate::{UnixMs, Version};
use std::collections::{BTreeMap, BTreeSet};

/// What a group has decided about a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// Nothing yet.
    Unknown,
    /// It will carry out its share if all deciding groups have prepared the transaction.
    Prepared,
    /// It has carried out its share.
    Committed,
    /// It has not carried out its share, and never will.
    Refused,
    /// Nothing is kept of it, and it will never be prepared here: it is over in all of its groups, or its coordinator has ended
    /// without having this group prepare it.
    Over,
}

impl Vote {
    /// All votes.
    pub const ALL: [Vote; 5] = [Vote::Unknown, Vote::Prepared, Vote::Committed, Vote::Refused, Vote::Over];

    /// The word for it in replies.
    pub fn word(self) -> &'static str {
        match self {
            Vote::Unknown => "UNKNOWN",
            Vote::Prepared => "PREPARED",
            Vote::Committed => "COMMITTED",
            Vote::Refused => "REFUSED",
            Vote::Over => "OVER",
        }
    }
}

/// A share that waits for the other groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    /// The encoded command.
    pub(crate) share: Box<[u8]>,
    /// The bound on the memory that it may add, if it was ordered with one.
    pub(crate) bound: Option<u64>,
    /// The version and the time of the record that prepared it. What the share does depends on these and on its keys alone, so
    /// it was known when the record was applied.
    pub(crate) version: Version,
    pub(crate) time: UnixMs,
}

impl Prepared {
    pub(crate) fn share(&self) -> Share<'_> {
        Share::of(&self.share).expect("a share is checked before it is kept")
    }

    fn bytes(&self) -> usize {
        self.share.len()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Prepared(Prepared),
    Committed,
    Refused,
}

/// A transaction that is not over in all of its groups, as far as this group knows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    /// The encoded [`Header`] of the record by which the group has voted.
    header: Box<[u8]>,
    standing: Standing,
}

/// Up to where the transactions of a node are over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Over {
    /// The node's newest incarnation that is known here. All that is not kept of earlier ones is over.
    life: u64,
    /// All transactions of that incarnation with smaller numbers are over, or kept here, or were never asked of this group.
    below: u64,
}

/// The transactions over several groups that a group takes part in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TwoPhase {
    known: BTreeMap<TransactionId, Known>,
    /// By node.
    over: BTreeMap<u16, Over>,
    /// What requests were served and did not get, and what goes back to keys that are locked: where to, and the reply.
    returned: Vec<(Origin, Box<[u8]>)>,
    /// A request that waits for elements was not served, since its command also uses a locked key.
    is_stalled: bool,
    // The rest follows from `known`.
    /// The locked keys, each with the transaction that has locked it.
    locked: BTreeMap<Box<[u8]>, TransactionId>,
    prepared: BTreeSet<TransactionId>,
    bytes: usize,
}

/// Bytes of memory for a transaction and for a locked key, beside what they hold.
const KNOWN_BYTES: usize = 160;
const LOCKED_BYTES: usize = 96;
const RETURNED_BYTES: usize = 48;

impl TwoPhase {
    // State.

    /// What the group has decided about a transaction.
    pub fn vote(&self, id: TransactionId) -> Vote {
        match self.known.get(&id).map(|known| &known.standing) {
            Some(Standing::Prepared(_)) => Vote::Prepared,
            Some(Standing::Committed) => Vote::Committed,
            Some(Standing::Refused) => Vote::Refused,
            None if self.is_over(id) => Vote::Over,
            None => Vote::Unknown,
        }
    }

    /// Whether a transaction of which nothing is kept is over in all of its groups.
    fn is_over(&self, id: TransactionId) -> bool {
        let TransactionId { coordinator: Coordinator { node, life }, number } = id;
        self.over.get(&node).is_some_and(|over| (life, number) < (over.life, over.below))
    }

    /// Whether any key is locked.
    #[inline]
    pub fn locks_any(&self) -> bool {
        !self.locked.is_empty()
    }

    /// The transaction that has locked a key.
    pub fn locked_by(&self, key: &[u8]) -> Option<TransactionId> {
        self.locked.get(key).copied()
    }

    /// The age of a transaction that is kept.
    pub fn age_of(&self, id: TransactionId) -> Option<Age> {
        self.header(id).map(|header| header.age())
    }

    /// Whether a transaction has locked a key.
    pub fn locks(&self, key: &[u8]) -> bool {
        self.locked.contains_key(key)
    }

    /// The locked keys, each with the transaction that has locked it.
    pub fn locked(&self) -> &BTreeMap<Box<[u8]>, TransactionId> {
        &self.locked
    }

    /// The transactions that are prepared and not over here, each with its groups.
    pub fn prepared(&self) -> impl Iterator<Item = (TransactionId, Header<'_>)> {
        self.prepared.iter().map(|id| (*id, self.header(*id).expect("a prepared transaction is known")))
    }

    /// The transactions whose votes are kept, each with its groups.
    pub fn kept(&self) -> impl Iterator<Item = (TransactionId, Header<'_>)> {
        self.known.keys().map(|id| (*id, self.header(*id).expect("it is known")))
    }

    fn header(&self, id: TransactionId) -> Option<Header<'_>> {
        Header::of(&self.known.get(&id)?.header).ok()
    }

    /// The prepared share of a transaction.
    pub(crate) fn prepared_share(&self, id: TransactionId) -> Option<&Prepared> {
        match &self.known.get(&id)?.standing {
            Standing::Prepared(prepared) => Some(prepared),
            _ => None,
        }
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    // Changes.

    /// Forgets the votes on these transactions of a coordinator that has ended, which no group holds any more, and takes nothing
    /// of that coordinator from now on.
    pub(crate) fn forget(&mut self, coordinator: Coordinator, numbers: impl IntoIterator<Item = u64>) {
        let over = self.over.entry(coordinator.node).or_default();
        if coordinator.life >= over.life {
            *over = Over { life: coordinator.life, below: u64::MAX };
        }
        for number in numbers {
            let id = TransactionId { coordinator, number };
            if !self.prepared.contains(&id) {
                self.remove(id);
            }
        }
    }

    /// Begins a record of a transaction, and returns the group's vote before it.
    pub(crate) fn begin(&mut self, header: &Header<'_>) -> Vote {
        self.note_over(header);
        self.vote(header.id())
    }

    /// Votes: prepares a transaction if all keys of its share are free, and `is_unchanged`; otherwise refuses it. Returns the
    /// transaction that is in the way, if one is.
    ///
    /// # Panics
    /// When the group has voted.
    pub(crate) fn prepare(
        &mut self,
        header: Header<'_>,
        prepared: Prepared,
        is_unchanged: bool,
    ) -> Option<TransactionId> {
        assert_eq!(self.vote(header.id()), Vote::Unknown, "a group votes once");
        let mut in_the_way = None;
        prepared.share().command().for_each_key(|key| in_the_way = in_the_way.or(self.locked_by(key)));
        match in_the_way.is_none() && is_unchanged {
            true => self.lock(header, prepared),
            false => self.keep(header, Standing::Refused),
        }
        in_the_way
    }

    /// Votes against a transaction, unless the group has voted.
    pub(crate) fn resolve(&mut self, header: Header<'_>) {
        if self.begin(&header) == Vote::Unknown {
            self.keep(header, Standing::Refused);
        }
    }

    /// Ends a transaction here. Returns its share if it was prepared.
    pub(crate) fn finish(&mut self, header: Header<'_>, is_committed: bool) -> Option<Prepared> {
        match self.begin(&header) {
            Vote::Prepared => self.end(header.id(), is_committed),
            Vote::Unknown if !is_committed => {
                self.keep(header, Standing::Refused);
                None
            }
            _ => None,
        }
    }

    /// Notes which transactions of a coordinator are over in all of their groups, by the word of one of its records, and forgets
    /// its votes on them. A share that waits here is kept: its transaction cannot be over.
    fn note_over(&mut self, header: &Header<'_>) {
        let (id, below) = (header.id(), header.below());
        let Coordinator { node, life } = id.coordinator;
        let over = self.over.entry(node).or_default();
        if life > over.life {
            *over = Over { life, ..Over::default() };
        }
        if life == over.life && below > over.below {
            over.below = below;
        }
        // Kept ones are few: nearly always those under way.
        let named = |number| TransactionId { number, ..id };
        let known = self.known.range(named(0)..named(below)).map(|(id, _)| *id);
        let mut unsettled = header.unsettled().peekable();
        let over: Vec<TransactionId> = known
            .filter(|id| {
                while unsettled.next_if(|number| *number < id.number).is_some() {}
                unsettled.peek() != Some(&id.number) && !self.prepared.contains(id)
            })
            .collect();
        over.into_iter().for_each(|id| self.remove(id));
    }

    /// Locks the keys of a share, and keeps it.
    fn lock(&mut self, header: Header<'_>, prepared: Prepared) {
        let id = header.id();
        let share = prepared.share.clone();
        Share::of(&share).expect("it is checked").command().for_each_key(|key| {
            let before = self.locked.insert(key.into(), id);
            assert!(before.is_none_or(|before| before == id), "a key is locked by one transaction at a time");
            if before.is_none() {
                self.bytes += LOCKED_BYTES + key.len();
            }
        });
        self.bytes += prepared.bytes();
        self.prepared.insert(id);
        self.keep(header, Standing::Prepared(prepared));
    }

    fn keep(&mut self, header: Header<'_>, standing: Standing) {
        let id = header.id();
        let header: Box<[u8]> = header.bytes().into();
        self.bytes += KNOWN_BYTES + header.len();
        let before = self.known.insert(id, Known { header, standing });
        assert!(before.is_none(), "a transaction is kept once");
    }

    /// Ends a prepared transaction, and unlocks its keys. Returns its share.
    fn end(&mut self, id: TransactionId, is_committed: bool) -> Option<Prepared> {
        let known =
            self.known.get_mut(&id).filter(|known| matches!(known.standing, Standing::Prepared(_)))?;
        let standing = if is_committed { Standing::Committed } else { Standing::Refused };
        let Standing::Prepared(prepared) = std::mem::replace(&mut known.standing, standing) else {
            unreachable!("it was looked at");
        };
        self.unlock(&prepared);
        self.bytes -= prepared.bytes();
        self.prepared.remove(&id);
        Some(prepared)
    }

    fn unlock(&mut self, prepared: &Prepared) {
        let TwoPhase { locked, bytes, .. } = self;
        prepared.share().command().for_each_key(|key| {
            if locked.remove(key).is_some() {
                *bytes -= LOCKED_BYTES + key.len();
            }
        });
    }

    /// Keeps what a request was served, to put it back when its key is unlocked.
    pub(crate) fn keep_returned(&mut self, origin: Origin, reply: Box<[u8]>) {
        assert!(self.locks_any(), "only what belongs to a locked key is kept");
        self.bytes += RETURNED_BYTES + reply.len();
        self.returned.push((origin, reply));
    }

    /// Takes what was kept by [`TwoPhase::keep_returned`]. What still cannot go back is kept again.
    pub(crate) fn take_returned(&mut self) -> Vec<(Origin, Box<[u8]>)> {
        let returned = std::mem::take(&mut self.returned);
        self.bytes -= returned.iter().map(|(_, reply)| RETURNED_BYTES + reply.len()).sum::<usize>();
        returned
    }

    /// Notes that a request was not served, since its command also uses a locked key.
    pub(crate) fn note_stalled(&mut self) {
        self.is_stalled = true;
    }

    /// Whether requests were not served since the last call.
    pub(crate) fn take_stalled(&mut self) -> bool {
        std::mem::take(&mut self.is_stalled)
    }

    /// Removes a transaction that is not prepared.
    fn remove(&mut self, id: TransactionId) {
        let Some(known) = self.known.remove(&id) else { return };
        assert!(!matches!(known.standing, Standing::Prepared(_)), "a share that waits is not forgotten");
        self.bytes -= KNOWN_BYTES + known.header.len();
    }

    /// Checks what must hold between two records. O(transactions and keys).
    ///
    /// # Panics
    /// When an invariant is broken.
    pub(crate) fn check_invariants(&self) {
        assert!(self.locks_any() || self.returned.is_empty(), "without locks nothing waits to go back");
        let (over, is_stalled) = (self.over.clone(), self.is_stalled);
        let mut fresh = TwoPhase { over, is_stalled, ..TwoPhase::default() };
        fresh.bytes = self.returned.iter().map(|(_, reply)| RETURNED_BYTES + reply.len()).sum();
        fresh.returned.clone_from(&self.returned);
        for (id, Known { header, standing }) in &self.known {
            let header = Header::of(header).expect("it is checked before it is kept");
            assert_eq!(header.id(), *id, "a transaction is kept under its name");
            match standing {
                Standing::Prepared(prepared) => fresh.lock(header, prepared.clone()),
                standing => fresh.keep(header, standing.clone()),
            }
        }
        assert_eq!(*self, fresh, "the locked keys are those of the prepared shares");
    }
}

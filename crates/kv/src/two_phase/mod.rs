//! What a group keeps of transactions over several groups: its votes, and the keys that these lock.
//!
//! The part of the state machine that does not depend on the keys' values; `table/two_phase.rs` has the rest. Replicas agree on
//! it, and snapshots contain it. `docs/design/transactions.md` has the protocol, and why it is right.
//!
//! ```text
//!              Prepare                  Commit
//!   unknown ------------> prepared ---------------> committed
//!    |   |                 ^   |
//!    |   |  Lock           |   |
//!    |   +------> locked --+   |
//!    |              |          |
//!    | Prepare or Lock that meets a lock or a changed key,
//!    | Resolve, Abort          | Abort
//!    v              v          v
//!   refused <------------------+
//! ```
//!
//! * **The first of `Prepare` and `Resolve` is the group's vote**, and nothing takes it back: *prepared* is left only when it is
//!   certain that all deciding groups have prepared the transaction, or that one never will. *Locked* is no vote.
//! * **No record waits.** A transaction that meets a locked key is refused, and begins again as another one. Waiting is the
//!   leaders' business.
//! * **A vote is kept until all groups of its transaction have followed it.** Until then one of them may ask. Each record tells
//!   up to which number all transactions of its coordinator are over ([`crate::command::Header::below`]).

mod copies;
#[cfg(test)]
mod tests;

use crate::coded::{Coordinator, Reference};
use crate::command::{Age, Header, Share, TransactionId};
use crate::queues::Origin;
use crate::{UnixMs, Version};
use std::collections::{BTreeMap, BTreeSet};

/// What a group has decided about a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// Nothing yet.
    Unknown,
    /// Nothing yet, but it has locked the transaction's keys.
    Locked,
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
    pub const ALL: [Vote; 6] =
        [Vote::Unknown, Vote::Locked, Vote::Prepared, Vote::Committed, Vote::Refused, Vote::Over];

    /// The word for it in replies.
    pub fn word(self) -> &'static str {
        match self {
            Vote::Unknown => "UNKNOWN",
            Vote::Locked => "LOCKED",
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
    /// What was locked, if the group was asked to lock it first; else the share names it.
    pub(crate) locks: Option<Locks>,
    /// What the keys' values on the disk were that the share needs. The keys are locked, so they still are.
    pub(crate) values: Vec<ValueOf>,
    /// The bound on the memory that it may add, if it was ordered with one.
    pub(crate) bound: Option<u64>,
    /// The version and the time of the record that prepared it. What the share does depends on these and on its keys alone, so
    /// it was known when the record was applied.
    pub(crate) version: Version,
    pub(crate) time: UnixMs,
}

impl Prepared {
    pub(crate) fn share(&self) -> Share<'_> {
        Share::of_checked(&self.share)
    }

    /// The values on the disk that the share needs, each with its key and its reference.
    pub(crate) fn supplied(&self) -> impl Iterator<Item = (&[u8], Reference, &[u8])> {
        self.values.iter().map(|ValueOf { key, reference, value }| (&**key, *reference, &**value))
    }

    /// Calls `visit` with each key that is locked.
    pub(crate) fn for_each_locked(&self, visit: impl FnMut(&[u8])) {
        for_each_key_of(self.locks.as_ref().map_or(&self.share, |locks| &locks.share), visit);
    }

    fn bytes(&self) -> usize {
        let values: usize = self.values.iter().map(|it| VALUE_BYTES + it.key.len() + it.value.len()).sum();
        self.share.len() + self.locks.as_ref().map_or(0, |locks| locks.share.len()) + values
    }
}

/// The bytes of a value that is not in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueOf {
    pub(crate) key: Box<[u8]>,
    /// What the key's entry holds in place of the value.
    pub(crate) reference: Reference,
    pub(crate) value: Box<[u8]>,
}

/// Keys that are locked without a vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Locks {
    /// The encoded command that names them.
    pub(crate) share: Box<[u8]>,
    /// The version of the record that has locked them.
    pub(crate) version: Version,
}

/// Calls `visit` with each key of an encoded share.
fn for_each_key_of(share: &[u8], visit: impl FnMut(&[u8])) {
    Share::of_checked(share).command().for_each_key(visit);
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Locked(Locks),
    Prepared(Prepared),
    Committed,
    Refused,
}

impl Standing {
    /// Calls `visit` with each key that is locked.
    fn for_each_locked(&self, visit: impl FnMut(&[u8])) {
        match self {
            Standing::Locked(locks) => for_each_key_of(&locks.share, visit),
            Standing::Prepared(prepared) => prepared.for_each_locked(visit),
            Standing::Committed | Standing::Refused => {}
        }
    }

    /// Whether it has locked all keys of the group.
    fn locks_all(&self) -> bool {
        let share = match self {
            Standing::Locked(locks) => &locks.share,
            Standing::Prepared(prepared) => prepared.locks.as_ref().map_or(&prepared.share, |it| &it.share),
            Standing::Committed | Standing::Refused => return false,
        };
        Share::are_on_all_keys(share)
    }

    /// The keys that are locked.
    fn locked_keys(&self) -> Vec<Box<[u8]>> {
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        self.for_each_locked(|key| keys.push(key.into()));
        keys
    }

    /// Whether it holds keys.
    fn holds(&self) -> bool {
        matches!(self, Standing::Locked(_) | Standing::Prepared(_))
    }

    fn bytes(&self) -> usize {
        match self {
            Standing::Locked(locks) => locks.share.len(),
            Standing::Prepared(prepared) => prepared.bytes(),
            Standing::Committed | Standing::Refused => 0,
        }
    }
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
    /// The transaction that has locked all keys, whether they exist or not. Then no other one holds any.
    all: Option<TransactionId>,
    /// The transactions that are locked or prepared.
    held: BTreeSet<TransactionId>,
    bytes: usize,
}

/// Bytes of memory for a transaction and for a locked key, beside what they hold.
const KNOWN_BYTES: usize = 160;
const LOCKED_BYTES: usize = 96;
const RETURNED_BYTES: usize = 48;
const VALUE_BYTES: usize = size_of::<ValueOf>();

impl TwoPhase {
    // State.

    /// What the group has decided about a transaction.
    pub fn vote(&self, id: TransactionId) -> Vote {
        match self.known.get(&id).map(|known| &known.standing) {
            Some(Standing::Locked(_)) => Vote::Locked,
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
        self.all.is_some() || !self.locked.is_empty()
    }

    /// The transaction that has locked all keys.
    pub fn all_locked_by(&self) -> Option<&TransactionId> {
        self.all.as_ref()
    }

    /// The transaction that has locked a key.
    pub fn locked_by(&self, key: &[u8]) -> Option<TransactionId> {
        self.all.or_else(|| self.locked.get(key).copied())
    }

    /// The age of a transaction that is kept.
    pub fn age_of(&self, id: TransactionId) -> Option<Age> {
        self.header(id).map(|header| header.age())
    }

    /// Whether a transaction has locked a key.
    pub fn locks(&self, key: &[u8]) -> bool {
        self.all.is_some() || self.locked.contains_key(key)
    }

    /// The locked keys, each with the transaction that has locked it, but for one that has locked all.
    pub fn locked(&self) -> &BTreeMap<Box<[u8]>, TransactionId> {
        &self.locked
    }

    /// The transactions that hold keys here, each with its groups.
    pub fn held(&self) -> impl Iterator<Item = (TransactionId, Header<'_>)> {
        self.held.iter().map(|id| (*id, self.header(*id).expect("a transaction that holds keys is known")))
    }

    /// The transactions whose votes are kept, each with its groups.
    pub fn kept(&self) -> impl Iterator<Item = (TransactionId, Header<'_>)> {
        self.known.keys().map(|id| (*id, self.header(*id).expect("it is known")))
    }

    /// The transactions on which the group keeps a final vote though their coordinators have ended: it has heard of a later incarnation,
    /// or its node `is_gone`.
    pub fn left_behind(
        &self,
        is_gone: impl Fn(Coordinator) -> bool,
    ) -> impl Iterator<Item = (TransactionId, Header<'_>)> {
        let has_ended = move |coordinator: Coordinator| {
            self.over.get(&coordinator.node).is_some_and(|over| over.life > coordinator.life)
                || is_gone(coordinator)
        };
        self.kept().filter(move |(id, _)| !self.held.contains(id) && has_ended(id.coordinator))
    }

    /// The version of the record by which a transaction has got its keys; `None`: it holds none.
    pub(crate) fn held_since(&self, id: TransactionId) -> Option<Version> {
        match &self.known.get(&id)?.standing {
            Standing::Locked(locks) => Some(locks.version),
            Standing::Prepared(prepared) => {
                Some(prepared.locks.as_ref().map_or(prepared.version, |locks| locks.version))
            }
            Standing::Committed | Standing::Refused => None,
        }
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
            if !self.held.contains(&id) {
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
        self.begin_holding(header, Standing::Prepared(prepared), is_unchanged)
    }

    /// Locks the keys of a share without a vote, if all are free, and `is_unchanged`; otherwise refuses the transaction. Returns the
    /// transaction that is in the way, if one is.
    ///
    /// # Panics
    /// When the group has voted, or has locked its keys.
    pub(crate) fn lock(
        &mut self,
        header: Header<'_>,
        locks: Locks,
        is_unchanged: bool,
    ) -> Option<TransactionId> {
        self.begin_holding(header, Standing::Locked(locks), is_unchanged)
    }

    fn begin_holding(
        &mut self,
        header: Header<'_>,
        standing: Standing,
        is_unchanged: bool,
    ) -> Option<TransactionId> {
        assert_eq!(self.vote(header.id()), Vote::Unknown, "a group votes once");
        let keys = standing.locked_keys();
        let in_the_way = self.in_the_way(standing.locks_all(), &keys);
        match in_the_way.is_none() && is_unchanged {
            true => self.hold_keys(header, standing, keys),
            false => self.keep(header, Standing::Refused),
        }
        in_the_way
    }

    /// The transaction that has locked what this one is to lock.
    fn in_the_way(&self, locks_all: bool, keys: &[Box<[u8]>]) -> Option<TransactionId> {
        let any = self.held.first().filter(|_| locks_all).copied();
        self.all.or(any).or_else(|| keys.iter().find_map(|key| self.locked_by(key)))
    }

    /// Prepares a transaction whose keys are locked. Returns false, and changes nothing, if its share names another key.
    ///
    /// # Panics
    /// Unless its keys are locked, without a vote.
    pub(crate) fn prepare_locked(&mut self, id: TransactionId, mut prepared: Prepared) -> bool {
        assert_eq!(self.vote(id), Vote::Locked, "a group votes once, and has locked the keys before");
        let mut are_locked = !Share::are_on_all_keys(&prepared.share) || self.all == Some(id);
        for_each_key_of(&prepared.share, |key| are_locked &= self.locked_by(key) == Some(id));
        let known = self.known.get_mut(&id).filter(|_| are_locked);
        let Some(Known { standing, .. }) = known else { return false };
        let Standing::Locked(locks) = std::mem::replace(standing, Standing::Refused) else {
            unreachable!("it was looked at")
        };
        self.bytes -= locks.share.len();
        prepared.locks = Some(locks);
        self.bytes += prepared.bytes();
        *standing = Standing::Prepared(prepared);
        true
    }

    /// Votes against a transaction, unless the group has voted.
    pub(crate) fn resolve(&mut self, header: Header<'_>) {
        match self.begin(&header) {
            Vote::Unknown => self.keep(header, Standing::Refused),
            Vote::Locked => self.release(header.id()),
            _ => {}
        }
    }

    /// Ends a transaction here. Returns its share if it was prepared.
    pub(crate) fn finish(&mut self, header: Header<'_>, is_committed: bool) -> Option<Prepared> {
        match self.begin(&header) {
            Vote::Prepared => return self.end(header.id(), is_committed),
            Vote::Unknown if !is_committed => self.keep(header, Standing::Refused),
            // Of a commit: the group has lost its vote, with what it had acknowledged.
            Vote::Locked => self.release(header.id()),
            _ => {}
        }
        None
    }

    /// Refuses a transaction that holds keys, and unlocks them. If the group has voted for it, nobody has been told of the vote.
    ///
    /// # Panics
    /// Unless the transaction holds keys.
    pub(crate) fn give_up(&mut self, id: TransactionId) {
        let known = self.known.get_mut(&id).expect("it holds keys");
        let standing = std::mem::replace(&mut known.standing, Standing::Refused);
        assert!(standing.holds(), "it holds keys");
        self.unhold(id, &standing);
    }

    /// Calls `visit` with each key that a transaction has locked.
    pub(crate) fn for_each_locked_by(&self, id: TransactionId, visit: impl FnMut(&[u8])) {
        if let Some(known) = self.known.get(&id) {
            known.standing.for_each_locked(visit);
        }
    }

    /// Refuses a transaction whose keys are locked, and unlocks them.
    fn release(&mut self, id: TransactionId) {
        assert_eq!(self.vote(id), Vote::Locked, "a vote is not taken back");
        self.give_up(id);
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
                unsettled.peek() != Some(&id.number) && !self.held.contains(id)
            })
            .collect();
        over.into_iter().for_each(|id| self.remove(id));
    }

    /// Locks the keys of a transaction, and keeps it.
    fn hold(&mut self, header: Header<'_>, standing: Standing) {
        let keys = standing.locked_keys();
        self.hold_keys(header, standing, keys);
    }

    fn hold_keys(&mut self, header: Header<'_>, standing: Standing, keys: Vec<Box<[u8]>>) {
        let id = header.id();
        if standing.locks_all() {
            assert!(self.held.is_empty(), "a key is locked by one transaction at a time");
            self.all = Some(id);
        }
        for key in keys {
            let length = key.len();
            let before = self.locked.insert(key, id);
            assert!(before.is_none_or(|before| before == id), "a key is locked by one transaction at a time");
            if before.is_none() {
                self.bytes += LOCKED_BYTES + length;
            }
        }
        self.bytes += standing.bytes();
        self.held.insert(id);
        self.keep(header, standing);
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
        let held = std::mem::replace(&mut known.standing, standing);
        self.unhold(id, &held);
        match held {
            Standing::Prepared(prepared) => Some(prepared),
            _ => unreachable!("it was looked at"),
        }
    }

    /// Unlocks the keys of a transaction.
    fn unhold(&mut self, id: TransactionId, held: &Standing) {
        let TwoPhase { locked, bytes, all, .. } = self;
        *all = all.filter(|all| *all != id);
        held.for_each_locked(|key| {
            if locked.remove(key).is_some() {
                *bytes -= LOCKED_BYTES + key.len();
            }
        });
        self.bytes -= held.bytes();
        self.held.remove(&id);
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

    /// Removes a transaction that holds no keys.
    fn remove(&mut self, id: TransactionId) {
        let Some(known) = self.known.remove(&id) else { return };
        assert!(!known.standing.holds(), "a transaction that holds keys is not forgotten");
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
            match standing.holds() {
                true => fresh.hold(header, standing.clone()),
                false => fresh.keep(header, standing.clone()),
            }
        }
        assert_eq!(*self, fresh, "the locked keys are those of the prepared shares");
    }
}

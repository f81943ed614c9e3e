//! Planted faults, to show that tests and the simulator find them.
//!
//! Without the feature `planted-bugs` no fault can be planted: [`Planted::has`] returns false and the branches behind
//! it are not compiled in.
//!
//! Invariants would stop a replica before a fault shows in any reply, so a test could not show that the checks of replies
//! find it. So a fault can be planted in two ways: without invariants (`Planted::one`), and with them
//! (`Planted::one_with_invariants`).

use std::marker::PhantomData;

/// The faults that can be planted in a table, each the absence of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Any client that names a lock can release or renew it, whatever the token.
    LockFreedByNonOwner,
    /// Tokens are counted from those of the held locks, so they start over when these locks are free.
    LockTokenReused,
    /// A waiting request is granted the lock under a session that has ended.
    LockSessionNotRechecked,
    /// What was served and not claimed is forgotten when the node is lost or the request withdrawn.
    QueueServedForgotten,
    /// What was claimed goes back when the node seems lost, although a client may have it.
    QueueClaimedGivenBack,
    /// Elements that go back to a list go to the wrong end.
    QueueGivenBackBehind,
    /// Random removals from a set depend on the reads that this replica happened to answer.
    SetDrawnApart,
    /// Reads show keys that a transaction over several groups has locked.
    LockedKeyRead,
    /// A group forgets that it has refused a transaction, and prepares it later.
    RefusalForgotten,
    /// Values that a transaction over several groups needs are returned, and their keys are not locked.
    ValuesNotLocked,
    /// A follower ignores which key its leader evicts, and evicts the one that it would choose itself.
    EvictsApart,
    /// Followers of changes do not learn that a snapshot has replaced the table.
    SnapshotNotNoted,
    /// The history of changes continues although a snapshot has replaced the table.
    HistoryOutlivesSnapshot,
}

/// The fault that is planted, if any. `F` lists the possible faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planted<F = Fault> {
    #[cfg(feature = "planted-bugs")]
    fault: Option<F>,
    /// Whether invariants are checked nevertheless.
    #[cfg(feature = "planted-bugs")]
    keeps_invariants: bool,
    faults: PhantomData<F>,
}

impl<F> Default for Planted<F> {
    fn default() -> Planted<F> {
        Planted {
            #[cfg(feature = "planted-bugs")]
            fault: None,
            #[cfg(feature = "planted-bugs")]
            keeps_invariants: false,
            faults: PhantomData,
        }
    }
}

impl<F: Copy + PartialEq> Planted<F> {
    /// Plants one fault. The invariants that it may break are skipped, so that another check has to find it.
    #[cfg(feature = "planted-bugs")]
    pub fn one(fault: F) -> Planted<F> {
        Planted { fault: Some(fault), ..Planted::default() }
    }

    /// Plants one fault where all invariants are checked.
    #[cfg(feature = "planted-bugs")]
    pub fn one_with_invariants(fault: F) -> Planted<F> {
        Planted { keeps_invariants: true, ..Planted::one(fault) }
    }

    /// Whether this fault is planted.
    #[inline]
    pub fn has(self, fault: F) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self.fault == Some(fault);
        #[cfg(not(feature = "planted-bugs"))]
        {
            let _ = fault;
            false
        }
    }

    /// Whether invariants are checked: always, in the shipped program.
    #[inline]
    pub fn has_invariants(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self.fault.is_none() || self.keeps_invariants;
        #[cfg(not(feature = "planted-bugs"))]
        true
    }

    /// The planted fault of a part that has faults of its own. `part` maps a fault to the part's fault that it stands for.
    pub fn within<Part: Copy + PartialEq>(self, part: impl Fn(F) -> Option<Part>) -> Planted<Part> {
        #[cfg(feature = "planted-bugs")]
        return self.fault.and_then(part).map(Planted::one).unwrap_or_default();
        #[cfg(not(feature = "planted-bugs"))]
        {
            let _ = part;
            Planted::default()
        }
    }
}

//! Known faults that a test can plant in a replica, to show that the simulator finds them.
//!
//! Without the feature `planted-bugs` nothing can be planted: [`Planted::has`] is false and the branches behind it are
//! not compiled in.
//!
//! Invariants would stop a replica before a fault shows in any answer, so a test could not show that the checks of
//! answers find it. So a fault can be planted in two ways: without invariants (`Planted::one`), and with them
//! (`Planted::one_with_invariants`).

/// A fault seen in published systems, each the absence of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// abd: two coordinators give the same tag to different values.
    TagWithoutWriter,
    /// abd: a read returns a value that no majority holds yet.
    ReadWithoutWriteBack,
    /// abd: the same first replicas are always asked, not whichever majority answers.
    FixedQuorum,
    /// abd: a replica that lost its memory answers before it has refilled.
    AnswerWithoutRefill,
    /// abd: acknowledgements that a replica gave before it lost its memory still count.
    StaleAcknowledgement,
    /// abd: a tombstone is forgotten while older writes are still on their way.
    TombstoneForgottenEarly,
    /// abd, blocking: a replica lets others rely on what it holds before that is durable.
    RegisterToldBeforeDurable,
    /// abd, blocking: a replica that finds its records continues in its earlier incarnation and reuses its tags.
    TagReusedAfterRestart,
    /// abd, blocking: a replica whose storage was lost, or rolled back, trusts its records.
    RolledBackRegistersAnswer,
    /// blocking: a replica accepts a write without checking that the writer holds the lock.
    WriteWithoutLockCheck,
    /// blocking: a read that saw different tags returns without repairing.
    ReadWithoutRepair,
    /// blocking: anyone can free a lock.
    UnlockByNonOwner,
    /// blocking: locks granted beyond the majority, or too late, are not released.
    SurplusLockKept,
    /// leader-follower: the leader applies a write before it is committed, so reads see it.
    VisibleBeforeCommitted,
    /// leader-follower: the leader waits for one acknowledgement too few.
    OneAcknowledgementTooFew,
    /// leader-follower: a follower accepts records without checking that they continue its own.
    GapNotNoticed,
    /// leader-follower: a leader that lost its memory begins a new history without asking for the old one.
    NoRecovery,
    /// leader-follower: the leader serves without a lease.
    ServesWithoutLease,
    /// leader-follower, `acks = all`: the leader stops waiting for a follower that it wants out of the in-sync set
    /// before the control group has agreed.
    InSyncShrunkEarly,
    /// leader-follower, `acks = all`: the leader asks for a follower to join the in-sync set before it waits for that
    /// follower.
    InSyncGrownEarly,
    /// leader-follower: a follower acknowledges records before they are durable.
    HeldBeforeDurable,
    /// leader-follower: the leader counts its own records as held before they are durable.
    LeaderCountsUnrecorded,
    /// consensus: a promise is not recorded.
    VoteNotPersisted,
    /// consensus: a promise leaves before it is durable.
    VotePersistedAfterReply,
    /// consensus: a follower acknowledges entries before they are durable.
    AcceptedBeforeDurable,
    /// consensus: the leader counts its own entries as accepted before they are durable.
    LeaderCountsUnsynced,
    /// consensus, `lease = off`: the leader answers reads without asking whether it still leads.
    ReadWithoutQuorum,
    /// consensus: the lease is checked once per round and not when a read is answered.
    LeaseNotRechecked,
    /// consensus: leases are measured by the wall clock, which jumps.
    LeaseOnWallClock,
    /// consensus: a new leader does not wait for the old one's lease to end.
    NewLeaderServesEarly,
    /// consensus: a snapshot of the table claims to show one entry less than it does.
    SnapshotIndexOffByOne,
    /// consensus: a checkpoint omits entries that are accepted but not applied.
    LogCutPastApplied,
    /// consensus: a write that is not committed in time is proposed again.
    RetriedCommandAppliedTwice,
    /// consensus: a write forwarded to a leader that is gone is sent again, though it may have taken effect.
    DoubtTakenForVoid,
    /// consensus: a leader orders a request meant for an earlier leadership.
    LeadershipNotCompared,
    /// consensus: a node that lost its storage continues to vote.
    WipedVoterVotes,
    /// consensus: a voter whose storage was rolled back continues to vote.
    RolledBackVoterVotes,
    /// consensus: a new configuration begins when its stop-sign is accepted, not when it is decided.
    ConfigurationBeginsEarly,
    /// consensus: a new member votes before it has what was decided before it joined.
    NewMemberVotesEarly,
    /// leader-follower and consensus: a transaction's watched keys are compared when it is ordered, not when it takes
    /// effect.
    WatchNotRechecked,
    /// locks: anyone who names a lock can release or renew it, whatever the token.
    LockFreedByNonOwner,
    /// locks: tokens are counted only from the locks that are held, and start over when these are free.
    LockTokenReused,
    /// locks: a waiting request is granted the lock under a session that is over.
    LockSessionNotRechecked,
    /// queues: an element that was served and not claimed is forgotten when its node or its client is gone.
    QueueServedForgotten,
    /// queues: an element that was claimed goes back when its node seems gone, though a client may have it.
    QueueClaimedGivenBack,
    /// locks: a write's token is compared when the write is ordered, not when it takes effect.
    FenceNotRechecked,
    /// Coding: a value is ordered once a bare majority keeps its fragments.
    CodedOnBareMajority,
    /// Coding: a replica reports that it keeps a fragment before that is durable.
    FragmentToldBeforeDurable,
    /// Coding: a fragment of another value is taken for the one asked for, without a check.
    FragmentsMixed,
    /// Coding: a value that was abandoned, so that its fragments are gone, is stored nevertheless.
    AbandonedValueStored,
    /// `storage = disk`: a checkpoint counts before the values that it refers to are durable.
    CheckpointBeforeValues,
    /// `storage = disk`: a value is removed as soon as no key refers to it, though the last checkpoint does.
    ValueRemovedEarly,
    /// consensus: checkpoints and snapshots of the table omit the gathered parts of long commands.
    PartsNotInSnapshot,
    /// A node uses its own wall clock, however far it is from the others'.
    ClockUnbounded,
    /// Any protocol: a write of unknown outcome is reported as refused.
    UnknownToldAsRefused,
    /// control: a node is admitted although its log ends before what it was known to have made durable.
    OlderDiskLetIn,
    /// driver: a buffer lent to the node is given back while it holds the beginning of the next request.
    BufferGivenBackEarly,
    /// driver: a peer is read although the log is behind.
    PeerReadWhileBehind,
    /// driver: finished work is taken twice.
    FinishedTakenTwice,
}

impl Fault {
    /// The faults planted in queues of clients that wait for elements.
    pub const OF_QUEUES: [Fault; 2] = [Fault::QueueServedForgotten, Fault::QueueClaimedGivenBack];

    /// The faults planted in what drives a node.
    pub const OF_DRIVERS: [Fault; 3] =
        [Fault::BufferGivenBackEarly, Fault::PeerReadWhileBehind, Fault::FinishedTakenTwice];
}

/// The fault that is planted, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    #[cfg(feature = "planted-bugs")]
    fault: Option<Fault>,
    /// Invariants are checked nevertheless.
    #[cfg(feature = "planted-bugs")]
    keeps_invariants: bool,
}

impl Planted {
    /// Plants one fault. The replica skips the invariants that the fault may break: something else has to find it.
    #[cfg(feature = "planted-bugs")]
    pub fn one(fault: Fault) -> Planted {
        Planted { fault: Some(fault), keeps_invariants: false }
    }

    /// Plants one fault in a replica that checks all its invariants.
    #[cfg(feature = "planted-bugs")]
    pub fn one_with_invariants(fault: Fault) -> Planted {
        Planted { fault: Some(fault), keeps_invariants: true }
    }

    /// True when invariants are checked: always, in the shipped program.
    #[inline]
    pub(crate) fn has_invariants(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self.fault.is_none() || self.keeps_invariants;
        #[cfg(not(feature = "planted-bugs"))]
        true
    }

    /// Returns the part that concerns the state machine of locks.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn in_locks(self) -> kv::locks::planted::Planted {
        use kv::locks::planted::{Fault as InLocks, Planted as PlantedInLocks};
        let fault = match self.fault {
            Some(Fault::LockFreedByNonOwner) => InLocks::FreedByNonOwner,
            Some(Fault::LockTokenReused) => InLocks::TokenReused,
            Some(Fault::LockSessionNotRechecked) => InLocks::SessionNotRechecked,
            _ => return PlantedInLocks::default(),
        };
        PlantedInLocks::one(fault)
    }

    /// Returns the part that concerns the state machine of locks: none.
    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) fn in_locks(self) -> kv::locks::planted::Planted {
        kv::locks::planted::Planted::default()
    }

    /// Returns the part that concerns the queues of clients that wait for elements.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn in_queues(self) -> kv::queues::planted::Planted {
        use kv::queues::planted::{Fault as InQueues, Planted as PlantedInQueues};
        match self.fault {
            Some(Fault::QueueServedForgotten) => PlantedInQueues::one(InQueues::ServedForgotten),
            Some(Fault::QueueClaimedGivenBack) => PlantedInQueues::one(InQueues::ClaimedGivenBack),
            _ => PlantedInQueues::default(),
        }
    }

    /// Returns the part that concerns the queues of clients that wait for elements: none.
    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) fn in_queues(self) -> kv::queues::planted::Planted {
        kv::queues::planted::Planted::default()
    }

    /// True when this fault is planted.
    #[inline]
    pub fn has(self, fault: Fault) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self.fault == Some(fault);
        #[cfg(not(feature = "planted-bugs"))]
        {
            let _ = fault;
            false
        }
    }
}

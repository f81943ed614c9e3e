//! Known faults that a test can plant in a replica, to show that the simulator finds them.
//!
//! Without the feature `planted-bugs` nothing can be planted: [`Planted::has`] is false and the branches behind it
//! are not compiled in.
//!
//! Invariants would stop a replica before a fault shows in any answer, and then nobody would know whether the checks of
//! answers can find it. So a fault has two forms: without invariants (`Planted::one`), and with them
//! (`Planted::one_with_invariants`).

/// A fault of published systems, each the absence of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// abd: two coordinators give the same tag to different values.
    TagWithoutWriter,
    /// abd: a read returns a value that no majority holds yet.
    ReadWithoutWriteBack,
    /// abd: only the first replicas are ever asked, not whichever majority answers.
    FixedQuorum,
    /// abd: a replica that lost its memory answers before it has refilled.
    AnswerWithoutRefill,
    /// abd: acknowledgements that a replica gave before it lost its memory still count.
    StaleAcknowledgement,
    /// abd: a tombstone is forgotten while older writes are still on their way.
    TombstoneForgottenEarly,
    /// abd, blocking: a replica lets others count on what it holds before that is durable.
    RegisterToldBeforeDurable,
    /// abd, blocking: a replica that finds its records goes on in the life that it was in, and gives its tags again.
    TagReusedAfterRestart,
    /// abd, blocking: a replica whose storage was lost, or rolled back, trusts its records.
    RolledBackRegistersAnswer,
    /// blocking: a replica takes a write without looking whether the writer holds the lock.
    WriteWithoutLockCheck,
    /// blocking: a read that saw different tags returns without repairing.
    ReadWithoutRepair,
    /// blocking: anybody can free a lock.
    UnlockByNonOwner,
    /// blocking: locks granted beyond the majority, or too late, are not released.
    SurplusLockKept,
    /// leader-follower: the leader applies a write before it is committed, so reads see it.
    VisibleBeforeCommitted,
    /// leader-follower: one acknowledgement too few is waited for.
    OneAcknowledgementTooFew,
    /// leader-follower: a follower takes records without looking whether they continue its own.
    GapNotNoticed,
    /// leader-follower: a leader that lost its memory begins a new history without asking for the old one.
    NoRecovery,
    /// leader-follower: the leader serves without a lease.
    ServesWithoutLease,
    /// leader-follower, `acks = all`: a follower that the leader wishes out of the in-sync set is waited for no more
    /// before the control group has agreed.
    InSyncShrunkEarly,
    /// leader-follower, `acks = all`: a follower is wished into the in-sync set before the leader waits for it.
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
    /// consensus: the lease is looked at once per round and not when a read is answered.
    LeaseNotRechecked,
    /// consensus: leases are measured by the wall clock, which jumps.
    LeaseOnWallClock,
    /// consensus: a new leader does not wait for the old one's lease to end.
    NewLeaderServesEarly,
    /// consensus: a copy of the table says that it shows one entry less than it does.
    SnapshotIndexOffByOne,
    /// consensus: a checkpoint leaves out what is accepted and not applied.
    LogCutPastApplied,
    /// consensus: a write that is not committed in time is proposed again.
    RetriedCommandAppliedTwice,
    /// consensus: a write that was passed on to a leader which is gone is asked again, though it may have taken effect.
    DoubtTakenForVoid,
    /// consensus: a leader orders what was meant for an earlier leadership.
    LeadershipNotCompared,
    /// consensus: a node that lost its storage goes on voting.
    WipedVoterVotes,
    /// consensus: a voter whose storage was rolled back goes on voting.
    RolledBackVoterVotes,
    /// consensus: a new configuration begins when its stop-sign is accepted, not when it is decided.
    ConfigurationBeginsEarly,
    /// consensus: a new member votes before it has a copy of what was decided before it came.
    NewMemberVotesEarly,
    /// leader-follower and consensus: a transaction's watched keys are compared when it is ordered, not when it takes
    /// effect.
    WatchNotRechecked,
    /// locks: whoever names a lock can release or renew it, whatever the token.
    LockFreedByNonOwner,
    /// locks: tokens are counted from those of the locks that are held, and begin again when these are free.
    LockTokenReused,
    /// locks: a request that has waited is granted the lock under a session that is over.
    LockSessionNotRechecked,
    /// locks: a write's token is compared when the write is ordered, not when it takes effect.
    FenceNotRechecked,
    /// Coding: a value is ordered when a bare majority keeps its fragments.
    CodedOnBareMajority,
    /// Coding: a replica says that it keeps a fragment before that is durable.
    FragmentToldBeforeDurable,
    /// Coding: a fragment of another value is taken for the one that is asked for, and nobody looks.
    FragmentsMixed,
    /// Coding: a value that was given up, so that its fragments are gone, is stored all the same.
    AbandonedValueStored,
    /// `storage = disk`: a checkpoint counts before the values to which it refers are durable.
    CheckpointBeforeValues,
    /// `storage = disk`: a value is removed as soon as no key refers to it, though the last checkpoint does.
    ValueRemovedEarly,
    /// consensus: checkpoints and copies of the table leave out what is gathered of long commands.
    PartsNotInSnapshot,
    /// A node takes its own wall clock for the time, however far it is from the others'.
    ClockUnbounded,
    /// Any protocol: a write of unknown outcome is told as refused.
    UnknownToldAsRefused,
    /// control: a node whose log ends before what it was known to have made durable is let in.
    OlderDiskLetIn,
    /// driver: a buffer that was lent to the node is given back while the beginning of the next request is in it.
    BufferGivenBackEarly,
    /// driver: a peer is read though the log is behind.
    PeerReadWhileBehind,
    /// driver: work that is finished is taken twice.
    FinishedTakenTwice,
}

impl Fault {
    /// Those that are planted in what drives a node.
    pub const OF_DRIVERS: [Fault; 3] =
        [Fault::BufferGivenBackEarly, Fault::PeerReadWhileBehind, Fault::FinishedTakenTwice];
}

/// The fault that is planted, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    #[cfg(feature = "planted-bugs")]
    fault: Option<Fault>,
    /// Invariants are looked at all the same.
    #[cfg(feature = "planted-bugs")]
    keeps_invariants: bool,
}

impl Planted {
    /// Plants one fault. The replica looks at no invariants that it may break: something else has to find it.
    #[cfg(feature = "planted-bugs")]
    pub fn one(fault: Fault) -> Planted {
        Planted { fault: Some(fault), keeps_invariants: false }
    }

    /// Plants one fault in a replica that looks at all its invariants.
    #[cfg(feature = "planted-bugs")]
    pub fn one_with_invariants(fault: Fault) -> Planted {
        Planted { fault: Some(fault), keeps_invariants: true }
    }

    /// True when invariants are to be looked at: always, in what is shipped.
    #[inline]
    pub(crate) fn has_invariants(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self.fault.is_none() || self.keeps_invariants;
        #[cfg(not(feature = "planted-bugs"))]
        true
    }

    /// What of it concerns the state machine of locks.
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

    /// What of it concerns the state machine of locks: nothing.
    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) fn in_locks(self) -> kv::locks::planted::Planted {
        kv::locks::planted::Planted::default()
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

//! Known faults that a test can plant in a replica, to show that the simulator finds them: see
//! [`kv::planted`].

/// A fault seen in published systems, each the absence of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// abd: two coordinators give the same tag to different values.
    TagWithoutWriter,
    /// abd: a read returns a value that no majority holds yet.
    ReadWithoutWriteBack,
    /// abd: a fixed set of replicas is always queried, instead of any majority that answers.
    FixedQuorum,
    /// abd: a replica that lost its memory answers before it has refilled.
    AnswerWithoutRefill,
    /// abd: acknowledgements that a replica gave before it lost its memory still count.
    StaleAcknowledgement,
    /// abd: a tombstone is forgotten while older writes are still on their way.
    TombstoneForgottenEarly,
    /// abd, blocking: a replica reports what it holds before that is durable.
    RegisterAcknowledgedBeforeDurable,
    /// abd, blocking: a replica that finds its records continues in its earlier incarnation and reuses its tags.
    TagReusedAfterRestart,
    /// A node keeps its replicas of the groups of a dropped keyspace for a while.
    DroppedGroupGoesOn,
    /// abd, blocking: a coordinator goes on when a replica tells it of a map that has taken keys from the group.
    OldMapGoesOn,
    /// abd, blocking: a replica whose storage was lost, or rolled back, trusts its records.
    RolledBackRegistersAnswer,
    /// blocking: a replica accepts a write without checking that the writer holds the lock.
    WriteWithoutLockCheck,
    /// blocking: a read that saw different tags returns without repairing.
    ReadWithoutRepair,
    /// blocking: any coordinator can free a lock.
    UnlockByNonOwner,
    /// blocking: locks granted beyond the majority, or too late, are not released.
    SurplusLockKept,
    /// leader-follower: the leader applies a write before it is committed, so reads see it.
    VisibleBeforeCommitted,
    /// leader-follower: the leader waits for one acknowledgement too few.
    OneAcknowledgementTooFew,
    /// leader-follower: a follower accepts records without checking that they continue its own.
    GapNotNoticed,
    /// leader-follower: a leader that lost its memory begins a new history without fetching the old one.
    NoRecovery,
    /// leader-follower: the leader serves without a lease.
    ServesWithoutLease,
    /// leader-follower, `acks = all`: the leader stops waiting for a follower that it wants out of the in-sync set
    /// before the control group has agreed.
    InSyncShrunkEarly,
    /// leader-follower, `acks = all`: the leader requests that a follower join the in-sync set before it waits for that
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
    /// consensus, `lease = off`: the leader answers reads without checking with a majority that it still leads.
    ReadWithoutQuorum,
    /// consensus: the lease is checked once per round and not when a read is answered.
    LeaseNotRechecked,
    /// consensus: leases are measured by the wall clock, which can jump.
    LeaseOnWallClock,
    /// consensus: a new leader does not wait for the old one's lease to end.
    NewLeaderServesEarly,
    /// consensus and leader-follower: a leader that has resigned goes on answering.
    ResignedLeaderAnswers,
    /// consensus: a snapshot of the table claims to show one entry less than it does.
    SnapshotIndexOffByOne,
    /// consensus: a checkpoint omits entries that are accepted but not applied.
    LogCutPastApplied,
    /// consensus: the first slice of the log to a follower may end before what its leader took over.
    SliceEndsEarly,
    /// consensus: a write that is not committed in time is proposed again.
    RetriedCommandAppliedTwice,
    /// consensus: a write forwarded to a leader that is dead is sent again, though it may have taken effect.
    DoubtTakenForVoid,
    /// consensus: a leader orders a request meant for an earlier leadership.
    LeadershipNotCompared,
    /// consensus: a node that lost its storage continues to vote.
    WipedVoterVotes,
    /// consensus: a voter whose storage was rolled back continues to vote.
    RolledBackVoterVotes,
    /// consensus: a new configuration begins when its stop-sign is accepted, not when it is decided.
    ConfigurationBeginsEarly,
    /// consensus: a new member votes before it holds what was decided before it joined.
    NewMemberVotesEarly,
    /// leader-follower and consensus: a transaction's watched keys are compared when it is ordered, not when it takes
    /// effect.
    WatchNotRechecked,
    /// locks: any request that names a lock can release or renew it, whatever its token.
    LockFreedByNonOwner,
    /// locks: tokens are counted only from the locks that are held, and start over when these are free.
    LockTokenReused,
    /// locks: a waiting request is granted the lock under a session that is over.
    LockSessionNotRechecked,
    /// queues: an element that was served and not claimed is forgotten when its node or its client is dead.
    QueueServedForgotten,
    /// queues: an element that was claimed is returned when its node seems dead, though a client may have it.
    QueueClaimedGivenBack,
    /// queues: an element that is returned because its client is dead is put at the other end of its list.
    QueueGivenBackBehind,
    /// sets: the choice of a random member is not derived from the record, so replicas differ.
    SetDrawnApart,
    /// eviction: a follower evicts a different key than its leader.
    EvictsApart,
    /// eviction: keys are evicted although `eviction = none`.
    EvictsWithoutPolicy,
    /// locks: a write's token is compared when the write is ordered, not when it takes effect.
    FenceNotRechecked,
    /// Coding: a value is ordered once a bare majority keeps its fragments.
    CodedOnBareMajority,
    /// Coding: a replica reports that it keeps a fragment before that is durable.
    FragmentAcknowledgedBeforeDurable,
    /// Coding: a fragment of another value is taken for the requested one, without a check.
    FragmentsMixed,
    /// Coding: a value that was abandoned, so that its fragments are dropped, is stored nevertheless.
    AbandonedValueStored,
    /// `storage = disk`: a checkpoint counts before the values that it refers to are durable.
    CheckpointBeforeValues,
    /// `storage = disk`: a value is removed as soon as no key refers to it, though the last checkpoint does.
    ValueRemovedEarly,
    /// `storage = disk`: the digest of a value that was read, or fetched, is not compared.
    DamagedValueBelieved,
    /// `storage = disk`: a value that is damaged here is not fetched from another replica.
    DamagedValueNotFetched,
    /// consensus: checkpoints and snapshots of the table omit the gathered parts of long commands.
    PartsNotInSnapshot,
    /// A node takes one that is alive and busy for a dead one.
    VouchIgnored,
    /// A node uses its own wall clock, however far it is from the clocks of the others.
    ClockUnbounded,
    /// consensus: a new leader does not compare its map with the floor in the log that it has taken over.
    FloorForgotten,
    /// Any protocol: a write of unknown outcome is reported as refused.
    UnknownReportedAsRefused,
    /// Transactions: the coordinator commits one when a single group has prepared it.
    VotesNotAwaited,
    /// Transactions: a group gives one up that it has prepared, without asking those that decide.
    GivesUpAlone,
    /// Transactions: reads show locked keys.
    LockedKeyRead,
    /// Transactions: one whose outcome is not known is begun again under another name.
    RepeatedAfterUnknown,
    /// Transactions: a vote counts although it may never have been recorded.
    UnknownTakenForVote,
    /// Transactions: a group forgets that it has refused one, and prepares it later.
    RefusalForgotten,
    /// Transactions: values that one needs of several groups are read without a lock, and written later.
    ValuesNotLocked,
    /// Transactions: reads of several groups without locks do not compare versions.
    VersionsNotCompared,
    /// Tracking: an invalidation is sent at once, and not behind the reply of a read that is under way.
    InvalidatedBeforeReply,
    /// Tracking: clients keep cached reads although the replica here has not shown that it is up to date.
    CachesOutliveLink,
    /// Tracking: clients keep cached reads although a snapshot is installed.
    CachesOutliveSnapshot,
    /// Change streams: the kept history of changes continues although a snapshot is installed.
    ChangesOutliveSnapshot,
    /// Change streams: a reader gets the change again whose version it already has.
    ChangesRepeated,
    /// Backups: a copy is labelled with the version before the one that it shows.
    CopyOfLaterVersion,
    /// control: a node is admitted although its log ends before what it was known to have made durable.
    OlderDiskAdmitted,
    /// control: a level's features are used before the cluster has reached that level.
    FeatureUsedEarly,
    /// A group that continues after a recovery assigns versions that lost replicas may have assigned.
    RecoveryKeepsVersions,
    /// driver: a buffer lent to the node is returned while it holds the beginning of the next request.
    BufferGivenBackEarly,
    /// driver: a peer is read although the log is behind.
    PeerReadWhileBehind,
    /// driver: finished work is taken twice.
    FinishedTakenTwice,
}

impl Fault {
    /// The faults planted in queues of clients that wait for elements.
    pub const OF_QUEUES: [Fault; 2] = [Fault::QueueServedForgotten, Fault::QueueClaimedGivenBack];

    /// The faults planted in lists and sets that need more than waiting clients.
    pub const OF_COLLECTIONS: [Fault; 2] = [Fault::QueueGivenBackBehind, Fault::SetDrawnApart];

    /// The faults planted in floors: commands go by old maps to groups that have lost their keys.
    pub const OF_FLOORS: [Fault; 3] = [Fault::FloorForgotten, Fault::OldMapGoesOn, Fault::DroppedGroupGoesOn];

    /// The faults planted in transactions over several groups.
    pub const OF_TWO_PHASE: [Fault; 8] = [
        Fault::VotesNotAwaited,
        Fault::GivesUpAlone,
        Fault::LockedKeyRead,
        Fault::RepeatedAfterUnknown,
        Fault::UnknownTakenForVote,
        Fault::RefusalForgotten,
        Fault::ValuesNotLocked,
        Fault::VersionsNotCompared,
    ];

    /// The faults planted in eviction.
    pub const OF_EVICTION: [Fault; 2] = [Fault::EvictsApart, Fault::EvictsWithoutPolicy];

    /// The faults planted in client-side caching.
    pub const OF_TRACKING: [Fault; 3] =
        [Fault::InvalidatedBeforeReply, Fault::CachesOutliveLink, Fault::CachesOutliveSnapshot];

    /// The faults planted in change streams.
    pub const OF_CHANGES: [Fault; 2] = [Fault::ChangesOutliveSnapshot, Fault::ChangesRepeated];

    /// The faults planted in the contents of backups.
    pub const OF_BACKUPS: [Fault; 1] = [Fault::CopyOfLaterVersion];

    /// The faults planted in the handling of damaged values.
    pub const OF_DAMAGE: [Fault; 2] = [Fault::DamagedValueBelieved, Fault::DamagedValueNotFetched];

    /// The faults planted in a node's driver.
    pub const OF_DRIVERS: [Fault; 3] =
        [Fault::BufferGivenBackEarly, Fault::PeerReadWhileBehind, Fault::FinishedTakenTwice];
}

/// The fault that is planted in a replica, if any.
pub type Planted = kv::planted::Planted<Fault>;

/// The part of a planted fault that concerns the table.
pub(crate) fn in_table(planted: Planted) -> kv::planted::Planted {
    use kv::planted::Fault as InTable;
    planted.within(|fault| match fault {
        Fault::LockFreedByNonOwner => Some(InTable::LockFreedByNonOwner),
        Fault::LockTokenReused => Some(InTable::LockTokenReused),
        Fault::LockSessionNotRechecked => Some(InTable::LockSessionNotRechecked),
        Fault::QueueServedForgotten => Some(InTable::QueueServedForgotten),
        Fault::QueueClaimedGivenBack => Some(InTable::QueueClaimedGivenBack),
        Fault::QueueGivenBackBehind => Some(InTable::QueueGivenBackBehind),
        Fault::SetDrawnApart => Some(InTable::SetDrawnApart),
        Fault::LockedKeyRead => Some(InTable::LockedKeyRead),
        Fault::RefusalForgotten => Some(InTable::RefusalForgotten),
        Fault::ValuesNotLocked => Some(InTable::ValuesNotLocked),
        Fault::EvictsApart => Some(InTable::EvictsApart),
        Fault::CachesOutliveSnapshot => Some(InTable::SnapshotNotNoted),
        Fault::ChangesOutliveSnapshot => Some(InTable::HistoryOutlivesSnapshot),
        _ => None,
    })
}

//! Kinds of faults, and how often each happened.

/// Kinds of faults, to be counted and left out together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// Processes that died.
    Crash,
    /// Of these, those that died within a turn.
    CrashWithinTurn,
    /// Of these, those whose turn had sent the messages that may leave before its write, and had written nothing.
    CrashBeforeWrite,
    /// Crashes that were left out, because more nodes would have lost their memory than the promises allow.
    CrashSpared,
    /// Processes that were paused.
    Pause,
    /// Of these, those paused within a turn.
    PauseWithinTurn,
    /// Nodes whose turns all take long.
    SlowNode,
    /// Nodes in which one command took long, and which vouched for themselves meanwhile.
    LongTurn,
    /// Partitions into two halves.
    Partition,
    /// Partitions that block one direction only.
    OneWayPartition,
    /// Partitions into two parts with one node in common.
    BridgePartition,
    /// Partitions in which each node receives from two others only.
    RingPartition,
    /// Nodes that died on one side of a partition and restarted on the other.
    Defection,
    /// Links with long delays.
    SlowLink,
    /// Connections that broke.
    BrokenConnection,
    /// Periods in which the network was much worse.
    Storm,
    /// Wall clocks that were set.
    ClockJump,
    /// Monotonic clocks that run fast or slow.
    ClockDrift,
    /// Messages that got lost.
    Loss,
    /// Messages that came twice.
    Duplication,
    /// Messages that overtook others.
    Reordering,
    /// Messages that arrived much later.
    Delay,
    /// Connections on which nothing arrived for a while, as if behind a long message.
    HoldUp,
    /// Messages that overtook others over the second connection, which is for urgent messages.
    Overtaking,
    /// Messages that arrived after their connection had ended.
    StaleDelivery,
    /// Turns that had more for a peer than the link had room for.
    FullOutput,
    /// Clients that made room for bytes that their nodes were waiting to write.
    SlowReader,
    /// Turns that did not read from peers because the log was behind.
    HeldBack,
    /// Clients that gave up waiting.
    ImpatientClient,
    /// Periods in which a minority was kept away and all other nodes had to serve.
    MissingMinority,
    /// Machines that lost power, and their unsynced data.
    PowerLoss,
    /// Of these, those that lost power again while they started.
    PowerLossInStart,
    /// Power losses of all machines at once, after which a minority stayed away.
    Outage,
    /// Clusters that lost a majority of their control nodes and were recovered.
    Recovered,
    /// Nodes that returned with the state from before a recovery, and noticed it.
    LeftBehind,
    /// Disks that were slow.
    SlowDisk,
    /// Disks on which no operation ended.
    StuckDisk,
    /// Syncs that failed.
    FailedSync,
    /// Writes that failed.
    FailedWrite,
    /// Other disk operations that failed.
    FailedOperation,
    /// Processes that stopped, or did not start, because of a disk failure.
    StoppedByDisk,
    /// Disks without room.
    FullDisk,
    /// Disks whose durable data changed; their nodes must not start.
    BitRot,
    /// Disks on which values changed; their nodes must fetch these from others.
    RottenValue,
    /// Values that changed on a disk and were whole again in the end.
    RepairedValue,
    /// Nodes that restarted without their disk.
    WipedDisk,
    /// Nodes that restarted with an older state of their disk.
    RolledBackDisk,
    /// Disk faults that were left out, because more would exceed what is promised to be survived.
    DiskSpared,
    /// Leaders, of the control group or of another group, that were killed.
    KilledLeader,
    /// Leaders that were paused.
    PausedLeader,
    /// Keyspaces that were created during the run.
    KeyspaceCreated,
    /// Keyspaces whose settings were changed.
    KeyspaceChanged,
    /// Keyspaces that were dropped.
    KeyspaceDropped,
    /// Nodes that were added.
    NodeAdded,
    /// Nodes that were removed.
    NodeRemoved,
    /// Nodes that had lost their disk, and were added again as new members.
    NodeReplaced,
    /// Nodes that were started with the next release's program.
    Upgraded,
    /// Nodes that went back to the last release's program.
    Downgraded,
    /// Programs of the last release that were refused, as the cluster's level had risen.
    OldProgramRefused,
    /// Levels that an operator has held.
    LevelHeld,
    /// Nodes that were told to stop, handed over what they led, and stopped.
    PlannedStop,
    /// Commands that moved leaders or drained nodes.
    LeadersMoved,
    /// Replicas that had evicted keys by the end of a run.
    Evicted,
    /// Writes that were refused because a keyspace had no room.
    OutOfMemory,
    /// Versions at which a backup was compared with what replicas had held.
    BackupCompared,
    /// Clusters into which backups were restored.
    Restored,
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 66] = [
        Class::Crash,
        Class::CrashWithinTurn,
        Class::CrashBeforeWrite,
        Class::CrashSpared,
        Class::Pause,
        Class::PauseWithinTurn,
        Class::SlowNode,
        Class::LongTurn,
        Class::Partition,
        Class::OneWayPartition,
        Class::BridgePartition,
        Class::RingPartition,
        Class::Defection,
        Class::SlowLink,
        Class::BrokenConnection,
        Class::Storm,
        Class::ClockJump,
        Class::ClockDrift,
        Class::Loss,
        Class::Duplication,
        Class::Reordering,
        Class::Delay,
        Class::HoldUp,
        Class::Overtaking,
        Class::StaleDelivery,
        Class::FullOutput,
        Class::SlowReader,
        Class::HeldBack,
        Class::ImpatientClient,
        Class::MissingMinority,
        Class::PowerLoss,
        Class::PowerLossInStart,
        Class::Outage,
        Class::Recovered,
        Class::LeftBehind,
        Class::SlowDisk,
        Class::StuckDisk,
        Class::FailedSync,
        Class::FailedWrite,
        Class::FailedOperation,
        Class::StoppedByDisk,
        Class::FullDisk,
        Class::BitRot,
        Class::RottenValue,
        Class::RepairedValue,
        Class::WipedDisk,
        Class::RolledBackDisk,
        Class::DiskSpared,
        Class::KilledLeader,
        Class::PausedLeader,
        Class::KeyspaceCreated,
        Class::KeyspaceChanged,
        Class::KeyspaceDropped,
        Class::NodeAdded,
        Class::NodeRemoved,
        Class::NodeReplaced,
        Class::Upgraded,
        Class::Downgraded,
        Class::OldProgramRefused,
        Class::LevelHeld,
        Class::PlannedStop,
        Class::LeadersMoved,
        Class::Evicted,
        Class::OutOfMemory,
        Class::BackupCompared,
        Class::Restored,
    ];

    /// Classes that are not scheduled faults and can only be left out as a whole.
    pub const BACKGROUND: [Class; 13] = [
        Class::ClockDrift,
        Class::Loss,
        Class::Duplication,
        Class::Reordering,
        Class::Delay,
        Class::HoldUp,
        Class::Overtaking,
        Class::StaleDelivery,
        Class::FullOutput,
        Class::SlowReader,
        Class::HeldBack,
        Class::ImpatientClient,
        Class::MissingMinority,
    ];

    /// Returns the class's name, one word.
    pub fn name(self) -> &'static str {
        match self {
            Class::Crash => "crash",
            Class::CrashWithinTurn => "crash-within-turn",
            Class::CrashBeforeWrite => "crash-before-write",
            Class::CrashSpared => "crash-spared",
            Class::Pause => "pause",
            Class::PauseWithinTurn => "pause-within-turn",
            Class::SlowNode => "slow-node",
            Class::LongTurn => "long-turn",
            Class::Partition => "partition",
            Class::OneWayPartition => "one-way-partition",
            Class::BridgePartition => "bridge-partition",
            Class::RingPartition => "ring-partition",
            Class::Defection => "defection",
            Class::SlowLink => "slow-link",
            Class::BrokenConnection => "broken-connection",
            Class::Storm => "storm",
            Class::ClockJump => "clock-jump",
            Class::ClockDrift => "clock-drift",
            Class::Loss => "loss",
            Class::Duplication => "duplication",
            Class::Reordering => "reordering",
            Class::Delay => "delay",
            Class::HoldUp => "hold-up",
            Class::Overtaking => "overtaking",
            Class::StaleDelivery => "stale-delivery",
            Class::FullOutput => "full-output",
            Class::SlowReader => "slow-reader",
            Class::HeldBack => "held-back",
            Class::ImpatientClient => "impatient-client",
            Class::MissingMinority => "missing-minority",
            Class::PowerLoss => "power-loss",
            Class::PowerLossInStart => "power-loss-in-start",
            Class::Outage => "outage",
            Class::Recovered => "recovered",
            Class::LeftBehind => "left-behind",
            Class::SlowDisk => "slow-disk",
            Class::StuckDisk => "stuck-disk",
            Class::FailedSync => "failed-sync",
            Class::FailedWrite => "failed-write",
            Class::FailedOperation => "failed-operation",
            Class::StoppedByDisk => "stopped-by-disk",
            Class::FullDisk => "full-disk",
            Class::BitRot => "bit-rot",
            Class::RottenValue => "rotten-value",
            Class::RepairedValue => "repaired-value",
            Class::WipedDisk => "wiped-disk",
            Class::RolledBackDisk => "rolled-back-disk",
            Class::DiskSpared => "disk-spared",
            Class::KilledLeader => "killed-leader",
            Class::PausedLeader => "paused-leader",
            Class::KeyspaceCreated => "keyspace-created",
            Class::KeyspaceChanged => "keyspace-changed",
            Class::KeyspaceDropped => "keyspace-dropped",
            Class::NodeAdded => "node-added",
            Class::NodeRemoved => "node-removed",
            Class::NodeReplaced => "node-replaced",
            Class::Upgraded => "upgraded",
            Class::Downgraded => "downgraded",
            Class::OldProgramRefused => "old-program-refused",
            Class::LevelHeld => "level-held",
            Class::PlannedStop => "planned-stop",
            Class::LeadersMoved => "leaders-moved",
            Class::Evicted => "evicted",
            Class::OutOfMemory => "out-of-memory",
            Class::BackupCompared => "backup-compared",
            Class::Restored => "restored",
        }
    }
}

/// How often faults of each class happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts([u64; Class::ALL.len()]);

impl Default for Counts {
    fn default() -> Self {
        Counts([0; Class::ALL.len()])
    }
}

impl Counts {
    /// Returns how often a class happened.
    pub fn of(&self, class: Class) -> u64 {
        self.0[class as usize]
    }

    #[inline]
    pub(crate) fn add(&mut self, class: Class) {
        self.0[class as usize] += 1;
    }

    /// Adds another run's counts.
    pub fn merge(&mut self, other: &Counts) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own += other);
    }
}

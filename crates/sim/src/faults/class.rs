//! Kinds of faults, and how often each happened.

/// Kinds of trouble, to be counted and to be left out together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// Processes that died.
    Crash,
    /// Of these, those that died within a turn.
    CrashWithinTurn,
    /// Of these, those whose turn had sent what leaves before it writes, and wrote nothing.
    CrashBeforeWrite,
    /// Crashes that were left out: more would have lost their memory than is promised to be survived.
    CrashSpared,
    /// Processes that stood still.
    Pause,
    /// Of these, those that did within a turn.
    PauseWithinTurn,
    /// Nodes with long turns.
    SlowNode,
    /// Two halves.
    Partition,
    /// One direction only.
    OneWayPartition,
    /// Two parts with one node in common.
    BridgePartition,
    /// Each node hears two others.
    RingPartition,
    /// Nodes that died on one side of a partition and came back on the other.
    Defection,
    /// Links with long delays.
    SlowLink,
    /// Connections that broke.
    BrokenConnection,
    /// Times of a much worse network.
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
    /// Messages that came much later.
    Delay,
    /// Connections on which nothing arrived for a while, as behind what takes long.
    HoldUp,
    /// Messages that overtook others, over the second connection that is for what is urgent.
    Overtaking,
    /// Messages that came when their connection was no more.
    Ghost,
    /// Turns that had more for a peer than found room on the way to it.
    FullOutput,
    /// Clients that made room for what their nodes had waited to write.
    SlowReader,
    /// Turns that left peers unread since the log was behind.
    HeldBack,
    /// Clients that gave up waiting.
    ImpatientClient,
    /// Times when a minority was kept away and everybody else had to be served.
    MissingMinority,
    /// Machines that lost their power, and what was not synced.
    PowerLoss,
    /// Of these, those that lost it again while they started.
    PowerLossInStart,
    /// All machines that lost their power at once, with a minority that stayed away.
    Outage,
    /// Disks that took long.
    SlowDisk,
    /// Disks on which nothing came to an end.
    StuckDisk,
    /// Syncs that failed.
    FailedSync,
    /// Writes that failed.
    FailedWrite,
    /// Other operations of disks that failed.
    FailedOperation,
    /// Processes that stopped, or did not start, because their disk failed.
    StoppedByDisk,
    /// Disks without room.
    FullDisk,
    /// Disks that changed what was safe: their nodes must not start.
    BitRot,
    /// Nodes that came back without their disk.
    WipedDisk,
    /// Nodes that came back with an older state of their disk.
    RolledBackDisk,
    /// Faults of disks that were left out: more is not promised to be survived.
    DiskSpared,
    /// Leaders, of the control group or of others, that died because they led.
    KilledLeader,
    /// Leaders that stood still because they led.
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
    /// Nodes that had lost their disk, and came in again as new members.
    NodeReplaced,
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 51] = [
        Class::Crash,
        Class::CrashWithinTurn,
        Class::CrashBeforeWrite,
        Class::CrashSpared,
        Class::Pause,
        Class::PauseWithinTurn,
        Class::SlowNode,
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
        Class::Ghost,
        Class::FullOutput,
        Class::SlowReader,
        Class::HeldBack,
        Class::ImpatientClient,
        Class::MissingMinority,
        Class::PowerLoss,
        Class::PowerLossInStart,
        Class::Outage,
        Class::SlowDisk,
        Class::StuckDisk,
        Class::FailedSync,
        Class::FailedWrite,
        Class::FailedOperation,
        Class::StoppedByDisk,
        Class::FullDisk,
        Class::BitRot,
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
    ];

    /// Classes that are no scheduled faults and can only be left out as a whole.
    pub const BACKGROUND: [Class; 13] = [
        Class::ClockDrift,
        Class::Loss,
        Class::Duplication,
        Class::Reordering,
        Class::Delay,
        Class::HoldUp,
        Class::Overtaking,
        Class::Ghost,
        Class::FullOutput,
        Class::SlowReader,
        Class::HeldBack,
        Class::ImpatientClient,
        Class::MissingMinority,
    ];

    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Class::Crash => "crash",
            Class::CrashWithinTurn => "crash-within-turn",
            Class::CrashBeforeWrite => "crash-before-write",
            Class::CrashSpared => "crash-spared",
            Class::Pause => "pause",
            Class::PauseWithinTurn => "pause-within-turn",
            Class::SlowNode => "slow-node",
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
            Class::Ghost => "ghost",
            Class::FullOutput => "full-output",
            Class::SlowReader => "slow-reader",
            Class::HeldBack => "held-back",
            Class::ImpatientClient => "impatient-client",
            Class::MissingMinority => "missing-minority",
            Class::PowerLoss => "power-loss",
            Class::PowerLossInStart => "power-loss-in-start",
            Class::Outage => "outage",
            Class::SlowDisk => "slow-disk",
            Class::StuckDisk => "stuck-disk",
            Class::FailedSync => "failed-sync",
            Class::FailedWrite => "failed-write",
            Class::FailedOperation => "failed-operation",
            Class::StoppedByDisk => "stopped-by-disk",
            Class::FullDisk => "full-disk",
            Class::BitRot => "bit-rot",
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
        }
    }
}

/// How often each class happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts([u64; Class::ALL.len()]);

impl Default for Counts {
    fn default() -> Self {
        Counts([0; Class::ALL.len()])
    }
}

impl Counts {
    /// How often this happened.
    pub fn of(&self, class: Class) -> u64 {
        self.0[class as usize]
    }

    #[inline]
    pub(crate) fn add(&mut self, class: Class) {
        self.0[class as usize] += 1;
    }

    /// Adds those of another run.
    pub fn merge(&mut self, other: &Counts) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own += other);
    }
}

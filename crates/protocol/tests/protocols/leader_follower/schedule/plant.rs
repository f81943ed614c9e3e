//! Planted faults of a replica, made by changing its messages. The search must find each.

use super::control::Breach;
use crate::kit::Letter;
use protocol::leader_follower::{Message, Position};
use protocol::planted::{Fault, Planted};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    /// A follower acknowledges all entries that it knows of, held or not.
    AcknowledgesBeforeItHolds,
    /// A follower that lost its memory claims that it did not.
    VouchesWithoutMemory,
    /// A follower requests the rest by offset alone, as if its history were the leader's.
    ResumesByOffsetAlone,
    /// The leader announces everything it has as committed.
    CommitsBeforeAcknowledged,
    /// A snapshot leaves entries out.
    SnapshotLeavesOut,
    /// A follower answers a leader without memory that it holds nothing.
    ForgetsInRecovery,
    /// A fault that is planted in the replica itself.
    InReplica(Fault),
    /// The same in a replica that checks its invariants.
    WithInvariants(Fault),
    /// The control group breaks a rule.
    InControl(Breach),
}

impl Plant {
    pub(crate) const ALL: [Plant; 16] = [
        Plant::AcknowledgesBeforeItHolds,
        Plant::VouchesWithoutMemory,
        Plant::ResumesByOffsetAlone,
        Plant::CommitsBeforeAcknowledged,
        Plant::SnapshotLeavesOut,
        Plant::ForgetsInRecovery,
        Plant::InReplica(Fault::ServesWithoutLease),
        Plant::InReplica(Fault::ResignedLeaderAnswers),
        Plant::InReplica(Fault::InSyncShrunkEarly),
        Plant::InReplica(Fault::InSyncGrownEarly),
        Plant::InReplica(Fault::HeldBeforeDurable),
        Plant::InReplica(Fault::LeaderCountsUnrecorded),
        Plant::InControl(Breach::AppointsTooEarly),
        Plant::InControl(Breach::LeasesOnAnOldMap),
        Plant::InControl(Breach::AppointsOutsideInSync),
        Plant::InControl(Breach::GrantsStaleRequests),
    ];

    /// Faults that are found where values are spilled.
    pub(crate) const OF_SPILLED: [Plant; 2] =
        [Plant::InReplica(Fault::CheckpointBeforeValues), Plant::InReplica(Fault::ValueRemovedEarly)];

    pub(crate) fn in_replica(self) -> Planted {
        match self {
            Plant::InReplica(fault) => Planted::one(fault),
            Plant::WithInvariants(fault) => Planted::one_with_invariants(fault),
            _ => Planted::default(),
        }
    }

    pub(crate) fn in_control(self) -> Option<Breach> {
        if let Plant::InControl(breach) = self { Some(breach) } else { None }
    }

    /// Changes a letter as a replica with the fault would have written it. `head` is the last offset that the
    /// leader has assigned.
    pub(crate) fn spoil(self, letter: &mut Letter, head: u64) {
        let bytes = std::mem::take(&mut letter.bytes);
        let message = Message::decode(&bytes).expect("replicas send what can be read");
        self.spoiled(message, head).encode(&mut letter.bytes);
    }

    fn spoiled(self, message: Message<'_>, head: u64) -> Message<'_> {
        let mut message = message;
        match (self, &mut message) {
            (Plant::AcknowledgesBeforeItHolds, Message::Acknowledge { offset, .. }) => {
                *offset = head.max(*offset);
            }
            (Plant::VouchesWithoutMemory, Message::Holding { intact, .. }) => *intact = true,
            (Plant::ResumesByOffsetAlone, Message::Join { epoch, last, applied, .. }) => {
                *last = Position { epoch: *epoch, offset: last.offset };
                *applied = 0;
            }
            (Plant::CommitsBeforeAcknowledged, Message::Append { commit, leader_offset, .. }) => {
                *commit = *leader_offset;
            }
            (Plant::SnapshotLeavesOut, Message::SnapshotChunk { entries, .. }) => *entries = &[],
            (Plant::ForgetsInRecovery, Message::Holding { last, .. }) => *last = Position::default(),
            _ => {}
        }
        message
    }
}

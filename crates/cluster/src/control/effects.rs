//! The output of a control component, in buffers that are reused.

use super::map::{ClusterMap, GroupId};
use super::message::Message;
use super::record::put_replica;
use super::refusal::Refusal;
use protocol::contract::Outgoing;
use protocol::{NodeId, Recipient, Result as Outcome, Trace};
use std::ops::Range;
use std::rc::Rc;
use wire::release::Release;

/// The outcome of a change that was requested here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The number of the request.
    pub request: u64,
    /// The version of the map that contains the change, or why no map does.
    pub result: Result<u64, ChangeError>,
}

impl Answer {
    pub(super) fn refused(request: u64, why: &str) -> Answer {
        let why = Refusal::Other(why.into());
        Answer { request, result: Err(ChangeError::Refused { why, is_doubtful: false }) }
    }
}

const MAYBE_MADE: &str = " (it was asked for more than once: an earlier try may have succeeded)";

/// Why a change was not made, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The change cannot be made.
    #[error("{} {why}{}", .why.code(), if *.is_doubtful { MAYBE_MADE } else { "" })]
    Refused {
        /// The reason.
        why: Refusal,
        /// Whether the change was requested more than once, so that it may have been made before it was refused.
        is_doubtful: bool,
    },
    /// No control leader has answered.
    #[error(
        "UNKNOWN the control group did not answer within {seconds} s; the change may have been made or may still be"
    )]
    Unknown {
        /// How long the request waited.
        seconds: u64,
    },
}

impl ChangeError {
    /// The outcome to report to the client.
    pub fn outcome(&self) -> Outcome {
        match self {
            ChangeError::Refused { .. } => Outcome::Refused,
            ChangeError::Unknown { .. } => Outcome::Unknown,
        }
    }
}

/// Something to report to an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// This node became the control leader.
    Leads,
    /// This node stopped being the control leader.
    LeadsNoMore,
    /// The control leader gave a group another leader.
    Appointed {
        /// The group's number.
        group: GroupId,
        /// The new leader.
        leader: NodeId,
        /// The former leader.
        instead_of: NodeId,
    },
    /// This node may take part in its groups.
    Admitted,
    /// This node may not take part in its groups.
    Refused {
        /// The reason, as a sentence.
        why: String,
    },
    /// The cluster's level has risen.
    LevelRaised {
        /// The level before.
        from: Release,
        /// The level now.
        to: Release,
    },
    /// This node was removed from the cluster.
    Removed {
        /// The version of the first map that this node has without it.
        map_version: u64,
    },
    /// A new cluster waits for control nodes that have not been started yet.
    WaitsFor {
        /// The missing nodes.
        nodes: Vec<NodeId>,
    },
}

/// The output. Process it in this order: first the map, then [`Effects::is_admitted`], then the lease. A lease counts
/// only for the groups that this node leads in the newest map.
#[derive(Debug, Default)]
pub struct Effects {
    /// Messages to the components of other nodes, their bytes in [`Effects::bytes`].
    pub messages: Vec<Outgoing>,
    /// Records for the node's log, as ranges of [`Effects::bytes`], numbered through this component's lifetime as a
    /// replica's are.
    pub records: Vec<Range<usize>>,
    /// The bytes of messages, records and the map's record.
    pub bytes: Vec<u8>,
    /// The newest map that the control group has committed, when there is a newer one.
    pub map: Option<Rc<ClusterMap>>,
    /// The encoded newest map, to keep for the node's next start. It replaces the former one.
    pub map_record: Option<Range<usize>>,
    /// Encoded positions to keep for the node's next start, replacing the former ones. Write them before the records
    /// that came with them.
    pub positions_record: Option<Range<usize>>,
    /// Whether this start of the node was admitted: from now on it may take part in the groups that
    /// [`ClusterMap::groups_of`] returns, and in none before.
    pub is_admitted: bool,
    /// Why this start of the node was not admitted. The node must not take part in anything.
    pub refused: Option<String>,
    /// With [`Effects::refused`]: the cluster had this node and no longer has it. Its process can stop.
    pub is_removed: bool,
    /// Until this moment of this node's monotonic clock, no other node leads what this node leads in the newest map.
    pub lease_until_us: Option<u64>,
    /// The outcomes of changes that were requested here.
    pub answers: Vec<Answer>,
    /// Events to report.
    pub events: Vec<Event>,
    /// What happened in the control group's replica.
    pub trace: Vec<Trace>,
}

impl Effects {
    /// Removes everything and keeps the buffers.
    pub fn clear(&mut self) {
        self.messages.clear();
        self.records.clear();
        self.bytes.clear();
        const RETAINED_BYTES_MAX: usize = 1 << 20;
        self.bytes.shrink_to(RETAINED_BYTES_MAX);
        self.map = None;
        self.map_record = None;
        self.positions_record = None;
        self.is_admitted = false;
        self.refused = None;
        self.is_removed = false;
        self.lease_until_us = None;
        self.answers.clear();
        self.events.clear();
        self.trace.clear();
    }

    pub(super) fn send(&mut self, to: impl IntoIterator<Item = NodeId>, message: &Message<'_>) {
        self.send_after(0, to, message);
    }

    pub(super) fn send_after(
        &mut self,
        after_record: u64,
        to: impl IntoIterator<Item = NodeId>,
        message: &Message<'_>,
    ) {
        let start = self.bytes.len();
        message.encode(&mut self.bytes);
        let bytes = start..self.bytes.len();
        let message =
            |to| Outgoing { to, bytes: bytes.clone().into(), after_record, recipient: Recipient::Replica };
        self.messages.extend(to.into_iter().map(message));
    }

    pub(super) fn replica_record(&mut self, record: &[u8]) {
        self.record(|out| put_replica(out, record));
    }

    pub(super) fn record(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        encode(&mut self.bytes);
        self.records.push(start..self.bytes.len());
    }
}

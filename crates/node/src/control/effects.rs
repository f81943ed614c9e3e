//! What comes out of a control component, in buffers that are reused.

use super::map::{ClusterMap, GroupId};
use super::message::Message;
use super::record::put_replica;
use protocol::contract::Outgoing;
use protocol::{NodeId, Recipient, Result as Outcome, Trace};
use std::ops::Range;
use std::rc::Rc;

/// What came of a change that was asked for here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Which request.
    pub request: u64,
    /// The version of the map that has it, or why not.
    pub result: Result<u64, ChangeError>,
}

/// Why a change was not made, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// It cannot be made; the sentence says why.
    #[error("ERR {0}")]
    Refused(String),
    /// Nobody has answered.
    #[error(
        "UNKNOWN the control group did not answer within {seconds} s; the change may have been made or may still be"
    )]
    Unknown {
        /// For how long.
        seconds: u64,
    },
}

impl ChangeError {
    /// What its client is told came of it.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            ChangeError::Refused(_) => Outcome::Refused,
            ChangeError::Unknown { .. } => Outcome::Unknown,
        }
    }
}

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// This node leads the control group.
    Leads,
    /// It does no more.
    LeadsNoMore,
    /// The control leader gave a group another leader.
    Appointed {
        /// The group.
        group: GroupId,
        /// The leader.
        leader: NodeId,
        /// In place of this one.
        instead_of: NodeId,
    },
    /// This node may take part in its groups.
    Admitted,
    /// It may not.
    Refused {
        /// Why.
        why: String,
    },
    /// It was removed from the cluster.
    Removed {
        /// The first map that it knows without it.
        map_version: u64,
    },
    /// A new cluster waits for control nodes that have not been started yet.
    WaitsFor {
        /// These.
        nodes: Vec<NodeId>,
    },
}

/// What comes out. Whoever takes it: first the map, then [`Effects::is_admitted`], then the lease. A lease counts for the
/// groups that the newest map lets this node lead, and for no others.
#[derive(Debug, Default)]
pub struct Effects {
    /// Messages to the components of other nodes, their bytes in [`Effects::bytes`].
    pub messages: Vec<Outgoing>,
    /// Records for the node's log, numbered through this component's life as a replica's are.
    pub records: Vec<Range<usize>>,
    /// The bytes of messages, records and the map's record.
    pub bytes: Vec<u8>,
    /// The newest map that the control group has agreed on, when there is a newer one.
    pub map: Option<Rc<ClusterMap>>,
    /// With it: the bytes to be kept in the place of the former ones, for the node's next start.
    pub map_record: Option<Range<usize>>,
    /// What else is to be kept in the place of the former bytes, for the node's next start: before the records that came
    /// with it.
    pub positions_record: Option<Range<usize>>,
    /// True when this start of the node was accepted: from now on it may take part in the groups that
    /// [`ClusterMap::groups_of`] says, and in none before.
    pub is_admitted: bool,
    /// Why this start of the node was not accepted. It must not take part in anything.
    pub refused: Option<String>,
    /// With [`Effects::refused`]: the cluster had this node and has it no more. Its process has nothing to do here.
    pub is_removed: bool,
    /// No other node leads what this node leads in the newest map, before this moment of its own monotonic clock.
    pub lease_until_us: Option<u64>,
    /// What came of changes.
    pub answers: Vec<Answer>,
    /// What happened here.
    pub events: Vec<Event>,
    /// What happened in the control group's replica.
    pub trace: Vec<Trace>,
}

impl Effects {
    /// Forgets everything and keeps the buffers.
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

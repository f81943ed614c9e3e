//! What a test or a simulator may look at from outside. Nothing here changes anything.

use crate::control::{ClusterMap, GroupId};
use crate::envelope::Envelope;
use crate::node::Node;
use crate::report::KeyspaceHealth;
use std::rc::Rc;

/// The group and the message of a frame's payload, if it is a message between replicas. Other payloads carry
/// requests and outcomes of clients: these rely on the order and on the end of their link. What is said about fragments of
/// values does not, either: see [`fragment_message`].
pub fn replica_message(payload: &[u8]) -> Option<(GroupId, &[u8])> {
    match Envelope::decode(payload) {
        Ok(Envelope::Group { group, message }) => Some((group, message)),
        _ => None,
    }
}

/// What another payload is, in words for a trace.
pub fn payload_words(payload: &[u8]) -> &'static str {
    match Envelope::decode(payload) {
        Ok(Envelope::Requests(_)) => "requests of clients",
        Ok(Envelope::Outcomes(_)) => "outcomes of clients",
        Ok(Envelope::OutcomePart(_)) => "a part of an outcome",
        Ok(Envelope::PartsArrived { .. }) => "so much of an outcome has arrived",
        _ => "what is of no group",
    }
}

/// The same for what is said about fragments of large values: each message stands for itself.
pub fn fragment_message(payload: &[u8]) -> Option<(GroupId, &[u8])> {
    match Envelope::decode(payload) {
        Ok(Envelope::Fragments { group, message }) => Some((group, message)),
        _ => None,
    }
}

impl Node {
    /// What is not in order with the fragments that a replica here keeps of large values, if anything: what it lacks, and
    /// what nothing refers to.
    pub fn fragments_amiss(&self, group: GroupId) -> Option<String> {
        let replica = self.groups.get(group)?.replica.as_ref()?;
        let fragments = replica.fragments()?;
        let (lacking, (kept, _)) = (fragments.fragments_lacking(), fragments.fragments_kept());
        let wanted = replica.table().references().count();
        let what = format!("{lacking} of {wanted} fragments are missing and {kept} are kept");
        (lacking > 0 || kept != wanted).then_some(what)
    }

    /// The newest map that this node knows. Before one was agreed on, the initial one with version 0.
    pub fn cluster_map(&self) -> &Rc<ClusterMap> {
        self.control.map()
    }

    /// Whether the control group has let this node in.
    pub fn is_admitted(&self) -> bool {
        self.control.is_admitted()
    }

    /// Why the control group does not let this node in, if it said so.
    pub fn refusal(&self) -> Option<&str> {
        self.control.refusal()
    }

    /// Where its log ended when it was found: what counts when the control group looks whether the disk is an older one.
    pub fn log_found(&self) -> u64 {
        self.control.found()
    }

    /// Up to where a node's log was durable, as far as this one knows, if it is a control node.
    pub fn known_durable(&self, node: protocol::NodeId) -> Option<u64> {
        self.control.known_durable(node)
    }

    /// Whether this node leads the control group, as far as it knows.
    pub fn leads_control(&self) -> bool {
        self.control.status(self.now).is_some_and(|status| status.role == "leader")
    }

    /// Bytes of log that a start would have to read, and above which it is shortened unless there is as much in memory.
    pub fn log_bytes(&self) -> (u64, u64) {
        let tables = self.groups.iter().filter_map(|(_, group)| group.replica.as_ref());
        let state_bytes = tables.map(|replica| replica.table().memory_bytes() as u64).sum();
        (self.journal.held_bytes(), state_bytes)
    }

    /// How a group stands here, if this node knows of it.
    pub fn group_health(&self, group: GroupId) -> Option<KeyspaceHealth> {
        self.groups.ids().contains(&group).then(|| self.keyspace_health(group))
    }

    /// What a replica here has counted under a name, as in the metrics.
    pub fn counted(&self, group: GroupId, name: &str) -> u64 {
        let replica = self.groups.get(group).and_then(|group| group.replica.as_ref());
        let counters = replica.map(|replica| replica.summary(self.now).counters).unwrap_or_default();
        counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
    }

    /// For each group with a replica here, a fingerprint of what that holds. O(keys).
    pub fn digests(&self) -> Vec<(GroupId, u64)> {
        let digest = |(id, group): (GroupId, &crate::groups::Group)| {
            group.replica.as_ref().map(|replica| (id, replica.table().digest()))
        };
        self.groups.iter().filter_map(digest).collect()
    }

    /// Bytes of long replies on their way to other nodes, and of those that have not arrived wholly.
    pub fn long_reply_bytes(&self) -> (usize, usize) {
        let sent = self.peers.iter().map(|peer| peer.long_replies.bytes()).sum();
        (sent, self.forwards.iter().map(|(_, entry)| entry.arrived.capacity()).sum())
    }

    /// What there is of locks in a replica here: those that are held, requests that wait for one, and sessions.
    pub fn locks_left(&self, group: GroupId) -> Option<(usize, usize, usize)> {
        let locks = self.groups.get(group)?.replica.as_ref()?.table().locks();
        Some((locks.len(), locks.waiters(), locks.sessions()))
    }
}

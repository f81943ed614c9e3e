//! Records that crash the process that executes them, in the cluster map: which replicas are stopped before one, and
//! which records all replicas skip.
//!
//! A replica that stops before a record first has that recorded here. It goes on only when the map allows it: because
//! it was released, or because the record is skipped. A record is skipped only while every replica of its group is
//! stopped before it: none has executed it, and none will.

use super::map::{ClusterMap, FatalRecord, GroupId, Quarantine, settles_with};
use super::refusal::{Refusal, refuse};
use crate::setting::Protocol;
use protocol::NodeId;
use serde::{Deserialize, Serialize};

/// The most records of a cluster that are skipped. Each is remembered as long as its keyspace exists.
pub const SKIPPED_MAX: usize = 64;

/// A change to the quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// A node's replica is stopped before a record. The node itself reports it.
    Stand(NodeId, FatalRecord),
    /// A node's replica may go on, and executes the record.
    Release(NodeId),
    /// All stopped replicas of the group may go on.
    Retry,
    /// The record with this number changes nothing on any replica.
    Skip(u64),
}

impl ClusterMap {
    /// The record before which a group is stopped, if too many of its replicas are stopped for the group to go on.
    pub fn stopped_before(&self, id: GroupId) -> Option<FatalRecord> {
        let (standing, group) = (self.quarantine.standing.get(&id)?, self.groups.get(&id)?);
        let members = group.members.len();
        let are_too_few = members - standing.len().min(members) < settles_with(self.acks(id), members);
        // If another replica could lead instead, it would lead already.
        let lacks_leader =
            self.protocol(id) == Protocol::LeaderFollower && standing.contains_key(&group.leader);
        (are_too_few || lacks_leader).then(|| standing.values().next().copied()).flatten()
    }

    pub(super) fn change_quarantine(&mut self, id: GroupId, step: Step) -> Result<(), Refusal> {
        let name = self.name_of(id);
        let members = self.groups.get(&id).ok_or(Refusal::NoGroup(id))?.members.clone();
        match step {
            Step::Stand(node, record) => {
                if !members.contains(&node) {
                    refuse!("{name}: node {node} holds no replica of it");
                }
                self.quarantine.standing.entry(id).or_default().insert(node, record);
            }
            Step::Release(node) => {
                if let Some(standing) = self.quarantine.standing.get_mut(&id) {
                    standing.remove(&node);
                }
            }
            Step::Retry => {
                let stood = self.quarantine.standing.remove(&id);
                stood.ok_or_else(|| format!("{name}: no replica of it stands still"))?;
            }
            Step::Skip(offset) => {
                let record = self.may_skip(id, offset, &name, &members)?;
                self.quarantine.standing.remove(&id);
                self.quarantine.skipped.entry(id).or_default().push(record);
            }
        }
        Ok(())
    }

    fn may_skip(
        &self,
        id: GroupId,
        offset: u64,
        name: &str,
        members: &[NodeId],
    ) -> Result<FatalRecord, String> {
        let standing = self.quarantine.standing.get(&id).cloned().unwrap_or_default();
        let Some(first) = standing.values().next().copied() else {
            return Err(format!("{name}: no replica of it stands still, so there is nothing to skip"));
        };
        let Some(record) = standing.values().find(|record| record.offset == offset).copied() else {
            return Err(format!("{name}: it stands before record {}, not before {offset}", first.offset));
        };
        let differs = |node: &&NodeId| standing.get(node) != Some(&record);
        let others: Vec<String> = members.iter().filter(differs).map(NodeId::to_string).collect();
        if !others.is_empty() {
            let (node, it) = (others.join(", "), if others.len() == 1 { "it" } else { "each" });
            return Err(format!(
                "{name}: node {node} does not stand before record {offset}. If {it} has carried the record out, its keys would \
                 differ from the others' forever: then the others can try again (quorate quarantine retry {id}) or be \
                 replaced (quorate node replace). If {it} is down, start {it}: it stops there, too, and the record can be \
                 skipped then"
            ));
        }
        if self.quarantine.skipped.values().map(Vec::len).sum::<usize>() >= SKIPPED_MAX {
            return Err(format!("{SKIPPED_MAX} records are skipped already, and no more can be"));
        }
        Ok(record)
    }

    /// Forgets groups and replicas that no longer exist.
    pub(super) fn tidy_quarantine(&mut self) {
        let ClusterMap { quarantine: Quarantine { standing, skipped }, groups, .. } = self;
        for (id, nodes) in standing.iter_mut() {
            nodes.retain(|node, _| groups.get(id).is_some_and(|group| group.members.contains(node)));
        }
        standing.retain(|_, nodes| !nodes.is_empty());
        skipped.retain(|id, _| groups.contains_key(id));
    }
}

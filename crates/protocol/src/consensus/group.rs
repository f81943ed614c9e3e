//! The members of a group: its successive configurations, and the known identities of its voters.

use crate::contract::NodeId;
use kv::codec::{Malformed, Reader, Writer};

/// The maximum number of members.
pub(super) const MEMBERS_MAX: usize = 64;

/// A voter of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// The configuration since which it has been a member without a break. A node that is removed and added again is a new
    /// voter: neither its earlier messages nor its earlier storage count.
    pub since: u32,
}

/// A configuration of a group, and where in the log it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The configuration's number, from 1. 0: none is known.
    pub id: u32,
    /// Its voters, by ascending number.
    pub members: Vec<Member>,
    /// The index of the first entry that it decides: all before it is decided by earlier ones.
    pub begins: u64,
}

impl Group {
    /// A configuration that follows no other.
    pub(super) fn first(id: u32, nodes: &[NodeId]) -> Group {
        let members = nodes.iter().map(|node| Member { node: *node, since: id });
        Group { id, members: members.collect(), begins: 0 }
    }

    /// The configuration that a stop-sign names, which ends this one.
    pub(super) fn next(&self, stop_sign: &StopSign, begins: u64) -> Group {
        let since = |node: &NodeId| self.since(*node).unwrap_or(stop_sign.id);
        let members = stop_sign.members.iter().map(|node| Member { node: *node, since: since(node) });
        Group { id: stop_sign.id, members: members.collect(), begins }
    }

    pub(super) fn since(&self, node: NodeId) -> Option<u32> {
        self.members.iter().find(|member| member.node == node).map(|member| member.since)
    }

    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.since(node).is_some()
    }

    pub(super) fn nodes(&self) -> Vec<NodeId> {
        self.members.iter().map(|member| member.node).collect()
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.id);
        out.put_u64(self.begins);
        out.put_u16(self.members.len() as u16);
        for Member { node, since } in &self.members {
            out.put_u16(*node);
            out.put_u32(*since);
        }
    }

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Group, Malformed> {
        let (id, begins, count) = (reader.u32()?, reader.u64()?, reader.u16()?);
        let mut members = Vec::new();
        for _ in 0..count {
            members.push(Member { node: reader.u16()?, since: reader.u32()? });
        }
        let group = Group { id, members, begins };
        // A replica without a configuration has number 0 and no members.
        match group.id == 0 && group.members.is_empty() || are_members(&group.nodes()) {
            true => Ok(group),
            false => Err(Malformed("a configuration with members that cannot be")),
        }
    }
}

/// The last entry of a configuration: it names the next one. Entries after it never take effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopSign {
    /// The next configuration's number.
    pub id: u32,
    /// Its voters, by ascending number.
    pub members: Vec<NodeId>,
}

impl StopSign {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(self.id);
        put_nodes(out, &self.members);
    }

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<StopSign, Malformed> {
        Ok(StopSign { id: reader.u32()?, members: take_nodes(reader)? })
    }
}

/// Whether a list of voters is valid: ascending, not empty, without node 0, and not too long.
pub(super) fn are_members(nodes: &[NodeId]) -> bool {
    let is_ascending = nodes.windows(2).all(|pair| pair[0] < pair[1]);
    is_ascending && nodes.first().is_some_and(|first| *first > 0) && nodes.len() <= MEMBERS_MAX
}

pub(super) fn put_nodes(out: &mut Vec<u8>, nodes: &[NodeId]) {
    out.put_u16(nodes.len() as u16);
    nodes.iter().for_each(|node| out.put_u16(*node));
}

pub(super) fn take_nodes(reader: &mut Reader<'_>) -> Result<Vec<NodeId>, Malformed> {
    let mut nodes = Vec::new();
    for _ in 0..reader.u16()? {
        nodes.push(reader.u16()?);
    }
    if are_members(&nodes) {
        Ok(nodes)
    } else {
        Err(Malformed("a configuration with members that cannot be"))
    }
}

/// The storage and the process of a replica: tells a voter from another sender in its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Drawn when the storage was first used.
    pub storage: u64,
    /// The incarnation: how often the replica was started with that storage.
    pub life: u64,
    /// Drawn at that start: a rolled-back storage begins an incarnation a second time, in another process.
    pub process: u64,
}

impl Identity {
    /// True when the other identity, of the same storage, shows that this one comes from an older state of it.
    pub(super) fn is_outlived_by(&self, other: &Identity) -> bool {
        let same_life = self.life == other.life && self.process != other.process;
        self.storage == other.storage && (self.life < other.life || same_life)
    }

    /// True when the other identity, known for the same member, shows that this one's storage was lost or rolled back.
    pub(super) fn is_another(&self, other: &Identity) -> bool {
        self.storage != other.storage || self.is_outlived_by(other)
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.storage);
        out.put_u64(self.life);
        out.put_u64(self.process);
    }

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Identity, Malformed> {
        Ok(Identity { storage: reader.u64()?, life: reader.u64()?, process: reader.u64()? })
    }
}

/// A voter with its newest known identity, which alone speaks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voter {
    /// The member.
    pub member: Member,
    /// Its identity.
    pub identity: Identity,
}

impl Voter {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.member.node);
        out.put_u32(self.member.since);
        self.identity.put(out);
    }

    pub(super) fn take(reader: &mut Reader<'_>) -> Result<Voter, Malformed> {
        let member = Member { node: reader.u16()?, since: reader.u32()? };
        Ok(Voter { member, identity: Identity::take(reader)? })
    }
}

pub(super) fn put_voters(out: &mut Vec<u8>, voters: &[Voter]) {
    out.put_u16(voters.len() as u16);
    voters.iter().for_each(|voter| voter.put(out));
}

pub(super) fn take_voters(reader: &mut Reader<'_>) -> Result<Vec<Voter>, Malformed> {
    let mut voters = Vec::new();
    for _ in 0..reader.u16()? {
        voters.push(Voter::take(reader)?);
    }
    Ok(voters)
}

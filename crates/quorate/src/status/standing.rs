//! How a cluster stands: what is shown, and what `--json` writes. The names of fields are documented in
//! docs/reference/status.md, and stay.

use node::NodeId;
use serde::Serialize;

use super::report::{Clock, Counters, Disk, Link, Memory};

/// In how far a cluster serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// It serves, and goes on after any failure that it was made for.
    Healthy,
    /// It serves, and something should be done.
    AtRisk,
    /// Something is not served, or no node can be asked.
    CannotServe,
}

/// How much a risk matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Severity {
    /// Worth knowing; it does not change the state.
    Note,
    /// See [`State::AtRisk`].
    AtRisk,
    /// See [`State::CannotServe`].
    CannotServe,
}

/// A cluster.
#[derive(Debug, Serialize)]
pub(super) struct Standing {
    pub(super) state: State,
    pub(super) cluster: String,
    pub(super) map_version: u64,
    pub(super) control: Control,
    pub(super) nodes: Vec<Node>,
    pub(super) keyspaces: Vec<Keyspace>,
    /// The gravest first.
    pub(super) risks: Vec<Risk>,
}

/// The control group.
#[derive(Debug, Default, Serialize)]
pub(super) struct Control {
    /// 0: none is known.
    pub(super) leader: NodeId,
    pub(super) members: Vec<NodeId>,
    /// How many more members may fail; below 0: too many have.
    pub(super) survives: i64,
}

/// A node.
#[derive(Debug, Serialize)]
pub(super) struct Node {
    pub(super) node: NodeId,
    pub(super) address: String,
    /// It has answered. If not, all that follows `error` is absent.
    pub(super) reached: bool,
    /// It has answered, or a node that has answered has a link to it.
    pub(super) alive: bool,
    pub(super) leaving: bool,
    pub(super) error: Option<String>,
    #[serde(flatten)]
    pub(super) facts: Option<Facts>,
}

/// What a node says of itself.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    pub(super) version: String,
    pub(super) ready: bool,
    pub(super) admitted: bool,
    pub(super) uptime_s: u64,
    pub(super) map_version: u64,
    pub(super) control_leader: NodeId,
    pub(super) memory: Memory,
    pub(super) disk: Disk,
    pub(super) clock: Clock,
    pub(super) links: Vec<Link>,
    pub(super) counters: Counters,
}

/// A keyspace.
#[derive(Debug, Serialize)]
pub(super) struct Keyspace {
    pub(super) prefix: String,
    /// What it promises, for people.
    pub(super) promise: String,
    pub(super) replication: String,
    pub(super) acks: String,
    pub(super) durability: String,
    pub(super) reads: String,
    /// In all shards, each where there are most.
    pub(super) keys: u64,
    pub(super) memory: u64,
    /// 0: no bound.
    pub(super) memory_max: u64,
    pub(super) evicted: u64,
    /// Since the starts of the nodes that answered, in all replicas.
    pub(super) lookups: u64,
    /// Records of all shards; 0 where the protocol has none.
    pub(super) records: u64,
    pub(super) shards: Vec<Shard>,
}

/// A shard of a keyspace.
#[derive(Debug, Serialize)]
pub(super) struct Shard {
    pub(super) group: u16,
    pub(super) shard: u16,
    pub(super) members: Vec<NodeId>,
    /// 0: none is known, or the protocol has none.
    pub(super) leader: NodeId,
    pub(super) epoch: u64,
    pub(super) in_sync: Vec<NodeId>,
    /// A node that was asked serves it.
    pub(super) serves: bool,
    /// How many more failures it survives; below 0: too many have happened.
    pub(super) survives: i64,
    pub(super) replicas: Vec<Replica>,
}

/// A replica of a shard.
#[derive(Debug, Serialize)]
pub(super) struct Replica {
    pub(super) node: NodeId,
    /// What the node says; `away` if it is not alive, `unasked` if it is and did not answer.
    pub(super) role: String,
    pub(super) ready: bool,
    /// It takes part with all that the group has.
    pub(super) sound: bool,
    /// Behind the leader, as far as the leader says.
    pub(super) lag_records: u64,
    pub(super) lag_ms: u64,
}

/// Something that should be known, or that should be done something about.
#[derive(Debug, Serialize)]
pub(super) struct Risk {
    pub(super) severity: Severity,
    pub(super) kind: &'static str,
    /// The node, keyspace or address.
    pub(super) about: String,
    pub(super) what: String,
    #[serde(rename = "do")]
    pub(super) action: String,
}

impl Risk {
    /// Whether it may be over in a moment: nodes are not asked in the same one, and a failover takes some.
    pub(super) fn may_pass(&self) -> bool {
        let passing = [
            "cannot-serve",
            "link-down",
            "maps-differ",
            "no-control-leader",
            "nodes-disagree",
            "not-admitted",
        ];
        passing.contains(&self.kind)
    }
}

impl Keyspace {
    /// Its name for people.
    pub(super) fn name(&self) -> &str {
        if self.prefix.is_empty() { "default" } else { &self.prefix }
    }
}

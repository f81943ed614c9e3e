//! The state of a cluster: what is shown, and what `--json` writes. The names of fields are documented
//! in docs/reference/status.md, and must not change.

use node::NodeId;
use node::report::{Buckets, Certificate, Clock, CommandFigures, Counters, Disk, Link, Memory};
use serde::Serialize;

use super::answers::Refused;

/// How far a cluster serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It serves, and continues after any failure that it was made for.
    Healthy,
    /// It serves, and something should be done.
    AtRisk,
    /// What was asked has answered, and refuses to say how the cluster stands: see [`Standing::unknown`].
    Unknown,
    /// Something is not served, or no node can be reached.
    CannotServe,
}

/// How much a risk matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing; it does not change the state.
    Note,
    /// See [`State::AtRisk`].
    AtRisk,
    /// See [`State::Unknown`].
    Unknown,
    /// See [`State::CannotServe`].
    CannotServe,
}

/// A cluster.
#[derive(Debug, Serialize)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Standing {
    pub state: State,
    /// Why the state is unknown, if it is.
    pub unknown: Option<&'static str>,
    pub cluster: String,
    pub map_version: u64,
    /// The release whose features are in use. 0 means not known.
    pub level: u16,
    pub control: Control,
    pub nodes: Vec<Node>,
    pub keyspaces: Vec<Keyspace>,
    /// The commands of the clients of all nodes that answered, by name.
    pub commands: Vec<CommandFigures>,
    /// The most severe first.
    pub risks: Vec<Risk>,
}

/// The control group.
#[derive(Debug, Default, Serialize)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Control {
    /// 0 means that none is known.
    pub leader: NodeId,
    pub members: Vec<NodeId>,
    /// How many more members may fail. Below 0: too many have failed.
    pub survives: i64,
}

/// A node.
#[derive(Debug, Serialize)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Node {
    pub node: NodeId,
    pub address: String,
    /// It has answered. If not, all fields after `error` are absent.
    pub reached: bool,
    /// It has answered, or a node that has answered has a link to it.
    pub alive: bool,
    pub leaving: bool,
    /// It is to lead nothing, by an operator's decision.
    pub drained: bool,
    pub error: Option<String>,
    /// It has answered, and refuses to be asked by this client.
    #[serde(skip)]
    pub refused: Option<Refused>,
    #[serde(flatten)]
    pub facts: Option<Facts>,
}

/// A node's facts about itself.
#[derive(Debug, Serialize)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Facts {
    pub version: String,
    pub release: u16,
    pub ready: bool,
    pub admitted: bool,
    pub uptime_s: u64,
    pub map_version: u64,
    pub control_leader: NodeId,
    pub memory: Memory,
    pub disk: Disk,
    /// `None` without TLS.
    pub certificate: Option<Certificate>,
    pub clock: Clock,
    pub links: Vec<Link>,
    pub counters: Counters,
}

/// A keyspace.
#[derive(Debug, Default, Serialize)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Keyspace {
    pub prefix: String,
    /// Its promise, for people to read.
    pub promise: String,
    pub replication: String,
    pub acks: String,
    pub durability: String,
    pub reads: String,
    /// In all shards; for each shard, the count of the replica that has most.
    pub keys: u64,
    pub memory: u64,
    /// 0 means no bound.
    pub memory_max: u64,
    pub evicted: u64,
    /// Since the starts of the nodes that answered, in all replicas.
    pub lookups: u64,
    /// Records of all shards; 0 if the protocol has none.
    pub records: u64,
    /// Writes whose outcome clients do not know, and acknowledged writes that were given up. As counted by the
    /// replicas that exist.
    pub unknown_writes: u64,
    pub lost_writes: u64,
    /// Held locks, and requests that wait for one; in all shards, for each shard the count of the replica that has
    /// most.
    pub locks: u64,
    pub lock_waiters: u64,
    /// How long the keyspace's commands took, from request to reply, for the clients of all nodes that answered.
    pub latency: Buckets,
    /// None if no backup was ever made of it.
    pub backup: Option<Backup>,
    pub shards: Vec<Shard>,
}

/// The newest backup of a keyspace.
#[derive(Debug, Serialize)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Backup {
    /// How old what it shows is. None: it could not be read, and no backup holds it.
    pub age_s: Option<u64>,
    /// Below 0: a newer one should have been made.
    pub due_in_s: i64,
}

/// A shard of a keyspace.
#[derive(Debug, Serialize)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Shard {
    pub group: u16,
    pub shard: u16,
    pub members: Vec<NodeId>,
    /// 0: none is known, or the protocol has none.
    pub leader: NodeId,
    pub epoch: u64,
    pub in_sync: Vec<NodeId>,
    /// Whether a node that answered serves it.
    pub serves: bool,
    /// How many more failures it survives. Below 0: too many have happened.
    pub survives: i64,
    pub replicas: Vec<Replica>,
}

/// A replica of a shard.
#[derive(Debug, Serialize)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Replica {
    pub node: NodeId,
    /// As the node reports it; `away` if it is not alive, `unasked` if it is alive and did not answer.
    pub role: String,
    pub ready: bool,
    /// It takes part with all that the group has.
    pub sound: bool,
    /// How far it is behind the leader, as the leader reports it.
    pub lag_records: u64,
    pub lag_ms: u64,
}

/// Something that an operator should know, or act on.
#[derive(Debug, Serialize)]
#[allow(missing_docs)] // The fields are on docs/reference/status.md.
pub struct Risk {
    pub severity: Severity,
    pub kind: &'static str,
    /// The node, keyspace or address.
    pub about: String,
    pub what: String,
    #[serde(rename = "do")]
    pub action: String,
}

impl Risk {
    /// Whether it may be over in a moment: nodes are not asked at the same instant, and a failover takes a moment.
    pub fn may_pass(&self) -> bool {
        let passing = [
            "cannot-serve",
            "link-down",
            "majority-lost",
            "maps-differ",
            "no-control-leader",
            "nodes-disagree",
            "not-admitted",
        ];
        passing.contains(&self.kind)
    }
}

impl Node {
    /// Its state, in a word or two for people.
    pub fn state_word(&self) -> &'static str {
        match &self.facts {
            None if self.refused.is_some() => "refuses",
            None if self.alive => "not asked",
            None => "down",
            Some(facts) if !facts.admitted => "not admitted",
            Some(facts) if !facts.ready => "not ready",
            Some(_) if self.leaving => "leaving",
            Some(_) if self.drained => "drained",
            Some(_) => "up",
        }
    }
}

impl Keyspace {
    /// Its name for people.
    pub fn name(&self) -> &str {
        if self.prefix.is_empty() { "default" } else { &self.prefix }
    }
}

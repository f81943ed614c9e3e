//! What each protocol promises, in one table: the commands it supports, how many replicas of a group may be without
//! memory at the same time, and how many may be away without any request being refused.
//!
//! The simulator stays within these limits while it checks. The cluster map at each moment says who the members, the
//! leader and the in-sync set of a group are. A new protocol gets its entry here, and its keyspaces in
//! [`Space::draw`].

use crate::operation::{Key, Kind, QUEUES};
use crate::random::Random;
use cluster::control::Group;
use cluster::keyspace::shard_of;
use cluster::slots::slot_of;
use node::{Keyspace, NodeId};
use std::collections::BTreeSet;
use std::fmt;

/// A replication protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// One leader orders writes and streams them.
    LeaderFollower,
    /// Registers on majorities.
    Abd,
    /// Registers on majorities, each operation under a lock.
    Blocking,
    /// A replicated log, on disks.
    Consensus,
}

impl Protocol {
    /// All protocols that a keyspace can choose.
    pub const ALL: [Protocol; 4] =
        [Protocol::LeaderFollower, Protocol::Abd, Protocol::Blocking, Protocol::Consensus];

    /// The name in a keyspace's definition.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::LeaderFollower => "leader-follower",
            Protocol::Abd => "abd",
            Protocol::Blocking => "blocking",
            Protocol::Consensus => "consensus",
        }
    }

    /// Checks that the node can run it.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn check(self) -> Result<(), String> {
        Keyspace::parse(&format!("prefix= replication={self}{}", self.plain()))?.check(3)
    }

    /// The further settings that its plain keyspaces need.
    fn plain(self) -> &'static str {
        match self {
            Protocol::Consensus => " durability=fsync",
            Protocol::LeaderFollower | Protocol::Abd | Protocol::Blocking => "",
        }
    }

    /// Whether it has no leader.
    pub(crate) fn has_registers(self) -> bool {
        matches!(self, Protocol::Abd | Protocol::Blocking)
    }

    fn kinds(self) -> &'static [Kind] {
        use Kind::*;
        const REGISTERS: &[Kind] = &[Get, Set, Delete, SetFleeting, GetFleeting];
        const STRINGS: &[Kind] =
            &[Get, Set, Delete, SetFleeting, GetFleeting, Increment, SetIfAbsent, GetAndSet];
        match self {
            Protocol::LeaderFollower | Protocol::Consensus => STRINGS,
            Protocol::Abd | Protocol::Blocking => REGISTERS,
        }
    }
}

impl std::str::FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Protocol, String> {
        Protocol::ALL.into_iter().find(|protocol| protocol.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Protocol::ALL.iter().map(|protocol| protocol.name()).collect();
            format!("unknown protocol \"{text}\"; use {}", names.join(", "))
        })
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// When a leader acknowledges a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acks {
    None,
    Count(usize),
    Majority,
    All,
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The death of as many processes as [`Space::survives`] says.
    Memory,
    /// The death of all processes, but no loss of power: a voter may have forgotten what it promised.
    Os,
    /// The death of all machines.
    Fsync,
}

/// When a keyspace was dropped. From then on its keys are those of the first one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Returned {
    /// When the operator first said so.
    pub(crate) told: u64,
    /// Whether the operator was told that it is done.
    pub(crate) is_answered: bool,
    /// When that was, if its keys are used since.
    pub(crate) since: Option<u64>,
}

/// A keyspace of a run, and its promises.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    /// Its definition, as on a command line.
    pub(crate) text: String,
    pub(crate) keyspace: Keyspace,
    pub(crate) protocol: Protocol,
    acks: Acks,
    pub(crate) durability: Durability,
    pub(crate) reads_any: bool,
    pub(crate) kinds: Vec<Kind>,
    /// The number of keys of each class.
    pub(crate) keys: u8,
    /// Whether the operator creates it during the run.
    pub(crate) is_created: bool,
    /// Whether every other increment is a script.
    pub(crate) runs_scripts: bool,
    /// The setting that the operator may change. Only what is promised both before and after the change is checked.
    pub(crate) change: String,
}

impl Space {
    /// Draws a keyspace for a cluster of `nodes`.
    pub(crate) fn draw(protocol: Protocol, prefix: &str, nodes: usize, random: &mut Random) -> Space {
        let mut text = format!("prefix={prefix} replication={protocol}");
        let (mut acks, mut reads_any) = (Acks::Majority, false);
        let mut durability = Durability::Memory;
        let replicas = match nodes {
            5.. if random.percent(20) => 3,
            _ => nodes,
        };
        if replicas < nodes {
            text += &format!(" replicas={replicas}");
        }
        match protocol {
            Protocol::LeaderFollower => {
                let first = 1 + random.below(nodes as u64);
                let followers = replicas - 1;
                acks = match random.below(6) {
                    0 => Acks::None,
                    1 if followers > 0 => Acks::Count(random.between(1, followers as u64) as usize),
                    5 => Acks::All,
                    _ => Acks::Majority,
                };
                reads_any = random.percent(25);
                text += &format!(" leader={first} acks={acks}");
                if reads_any {
                    text += " reads=any";
                }
                if random.percent(60) {
                    // Small enough that returning followers need a snapshot transfer.
                    text += &format!(" backlog_bytes={}", random.pick(&[200, 2_000, 20_000]));
                }
                durability = match random.below(10) {
                    0..=5 => Durability::Memory,
                    6 => Durability::Os,
                    _ => Durability::Fsync,
                };
                text += match durability {
                    Durability::Memory => "",
                    Durability::Os => " durability=os",
                    Durability::Fsync => " durability=fsync",
                };
            }
            Protocol::Blocking => text += [" retry=none", " retry=backoff"][random.below(2) as usize],
            Protocol::Abd => {}
            Protocol::Consensus => {
                let os = random.percent(25);
                durability = if os { Durability::Os } else { Durability::Fsync };
                text += if os { " durability=os" } else { " durability=fsync" };
                if random.percent(35) {
                    text += " lease=off";
                }
                reads_any = random.percent(15);
                if reads_any {
                    text += " reads=any";
                }
            }
        }
        if matches!(protocol, Protocol::LeaderFollower | Protocol::Consensus) && random.percent(20) {
            text += &format!(" shards={}", random.between(2, 4));
        }
        // Few and hot, so that what goes wrong becomes visible.
        let keys = random.scaled(1, 8) as u8;
        let all = protocol.kinds();
        let mut kinds: Vec<Kind> = all.iter().copied().filter(|_| random.percent(60)).collect();
        for needed in [Kind::Get, Kind::Set] {
            // Repeated, since runs consist mostly of these.
            let times = 2 + random.below(4) as usize;
            kinds.extend(std::iter::repeat_n(needed, times));
        }
        Space { kinds, keys, durability, ..Space::new(text, protocol, (acks, reads_any)) }
    }

    /// Returns the protocol's default keyspace.
    pub(crate) fn plain(protocol: Protocol) -> Space {
        let text = format!("prefix= replication={protocol}{}", protocol.plain());
        Space::new(text, protocol, (Acks::Majority, false))
    }

    fn new(text: String, protocol: Protocol, (acks, reads_any): (Acks, bool)) -> Space {
        // A definition that does not parse fails a test, and the node refuses it.
        let keyspace = Keyspace::parse(&text).unwrap_or_default();
        let kinds = vec![Kind::Get, Kind::Set];
        let change = match protocol {
            Protocol::LeaderFollower => "backlog_bytes=3000",
            Protocol::Consensus => "lease=off",
            Protocol::Blocking => "retry=backoff",
            Protocol::Abd => "reads=linearizable",
        };
        let change = change.to_owned();
        let durability = match protocol {
            Protocol::Consensus => Durability::Fsync,
            Protocol::LeaderFollower | Protocol::Abd | Protocol::Blocking => Durability::Memory,
        };
        Space {
            text,
            keyspace,
            protocol,
            acks,
            durability,
            reads_any,
            kinds,
            keys: 8,
            is_created: false,
            runs_scripts: false,
            change,
        }
    }

    /// Makes members recover their data after a crash, although the keyspace was drawn without that.
    pub(crate) fn set_durability(&mut self, durability: Durability) {
        self.text += match durability {
            Durability::Memory => "",
            Durability::Os => " durability=os",
            Durability::Fsync => " durability=fsync",
        };
        self.keyspace = Keyspace::parse(&self.text).unwrap_or_default();
        self.durability = durability;
    }

    /// Stores its large values as fragments, in a fixed number of parts or as its nodes choose.
    pub(crate) fn set_coding(&mut self, coding: &str) {
        let before = self.text.find(" coding=").unwrap_or(self.text.len());
        self.text.truncate(before);
        self.text += &format!(" coding={coding} coding_threshold=64");
        self.keyspace = Keyspace::parse(&self.text).unwrap_or_default();
    }

    /// Keeps its large values on the disk, with `log_bytes` of its log in memory unless another size was drawn.
    pub(crate) fn set_spilling(&mut self, log_bytes: usize) {
        self.text += " storage=disk storage_threshold=64";
        if !self.text.contains(" backlog_bytes=") {
            self.text += &format!(" backlog_bytes={log_bytes}");
        }
        self.keyspace = Keyspace::parse(&self.text).unwrap_or_default();
    }

    /// Whether its large values can be on the disk.
    pub(crate) fn can_spill(&self) -> bool {
        matches!(self.protocol, Protocol::LeaderFollower | Protocol::Consensus)
    }

    /// Whether its large values are on the disk.
    pub(crate) fn is_spilled(&self) -> bool {
        self.keyspace.storage == node::Storage::Disk
    }

    /// Bounds its memory. Policies other than `none` are for groups with a leader.
    pub(crate) fn set_bound(&mut self, bytes: u64, eviction: &str) {
        self.text += &format!(" memory_max={bytes} eviction={eviction}");
        self.keyspace = Keyspace::parse(&self.text).unwrap_or_default();
    }

    /// Whether clients can read its changes, and can compare versions of them.
    pub(crate) fn can_keep_changes(&self) -> bool {
        let keyspace = &self.keyspace;
        let is_ordered =
            !self.protocol.has_registers() && self.acks != Acks::None && keyspace.coding.is_none();
        is_ordered && keyspace.shards == 1 && !self.is_created
    }

    /// Whether it takes part in transactions over several keyspaces, and keeps what these write.
    pub(crate) fn takes_part_in_transactions(&self) -> bool {
        let keyspace = &self.keyspace;
        let is_ordered = !self.protocol.has_registers() && self.acks != Acks::None;
        // A read of one group alone may be stale under `reads=any`.
        let is_fresh = !self.reads_any;
        is_ordered && is_fresh && keyspace.memory_max == 0 && !self.is_created
    }

    /// Whether it keeps what it acknowledged, as long as a majority of its members does.
    pub(crate) fn keeps_all(&self) -> bool {
        !self.reads_any && self.acks != Acks::None && self.keyspace.memory_max == 0
    }

    /// Whether each list of elements that clients wait for is in a shard of its own.
    pub(crate) fn queues_are_apart(&self) -> bool {
        let shard_of = |number| {
            let mut key = Vec::new();
            Key { space: 0, class: b'q', number }.write(&self.keyspace.prefix, &mut key);
            shard_of(slot_of(&key), self.keyspace.shards.into())
        };
        (0..QUEUES).map(shard_of).collect::<BTreeSet<usize>>().len() == usize::from(QUEUES)
    }

    /// Divides it into shards, unless clients read its changes.
    pub(crate) fn set_shards(&mut self, shards: u16) {
        if !self.text.contains(" changes_bytes=") && self.keyspace.shards == 1 {
            self.text += &format!(" shards={shards}");
            self.keyspace = Keyspace::parse(&self.text).unwrap_or_default();
        }
    }

    /// Makes the keyspace keep its latest changes.
    pub(crate) fn keep_changes(&mut self, bytes: u64) {
        self.text += &format!(" changes_bytes={bytes}");
        self.keyspace = Keyspace::parse(&self.text).unwrap_or_default();
    }

    /// Whether keys may be removed that no client has removed.
    pub(crate) fn evicts(&self) -> bool {
        self.keyspace.eviction != kv::table::Eviction::None
    }

    /// Whether its large values are stored as fragments.
    pub(crate) fn is_coded(&self) -> bool {
        self.keyspace.coding.is_some()
    }

    /// Whether the number in the reply to `DEL` is part of the promise.
    pub(crate) fn counts_deleted(&self) -> bool {
        matches!(self.protocol, Protocol::LeaderFollower | Protocol::Consensus)
    }

    /// Whether some of its members can continue with what they hold, once the others are lost for good.
    pub(crate) fn is_recoverable(&self) -> bool {
        !self.protocol.has_registers() && self.durability == Durability::Fsync
    }

    /// Makes its members keep records, if the keyspace can then be recovered.
    pub(crate) fn keep_records(&mut self) {
        if !self.protocol.has_registers() {
            self.text = self.text.replace(" durability=os", "").replace(" durability=fsync", "");
            self.set_durability(Durability::Fsync);
        }
    }

    /// Whether its members recover their data from their disks.
    pub(crate) fn is_durable(&self) -> bool {
        self.durability != Durability::Memory
    }

    /// Whether the replicas that serve a group can still reach everything that was acknowledged, if the damaged
    /// members are without their data.
    pub(crate) fn survives(&self, group: &Group, is_damaged: impl Fn(NodeId) -> bool) -> bool {
        let damaged = group.members.iter().filter(|member| is_damaged(**member)).count();
        match (self.protocol, self.acks) {
            (Protocol::Consensus | Protocol::Abd | Protocol::Blocking, _) => {
                damaged <= (group.members.len() - 1) / 2
            }
            // Acknowledged writes may be lost here; the other promises must hold all the same.
            (Protocol::LeaderFollower, Acks::None) => true,
            (Protocol::LeaderFollower, Acks::All) => group.in_sync.iter().any(|member| !is_damaged(*member)),
            // While it is unknown which members hold what, after a change of members, all members are needed.
            (Protocol::LeaderFollower, _) if !group.settled => damaged == 0,
            (Protocol::LeaderFollower, _) => damaged <= self.acknowledgers(group),
        }
    }

    /// How many members of a group, its leader among them, may be away while all requests to the others are still
    /// served.
    pub(crate) fn spares(&self, group: &Group) -> usize {
        let others = group.members.len() - 1;
        match (self.protocol, self.acks) {
            (Protocol::Consensus | Protocol::Abd | Protocol::Blocking, _) => others / 2,
            (Protocol::LeaderFollower, Acks::None | Acks::All) => others,
            // Enough members to acknowledge, and enough to know what was acknowledged.
            (Protocol::LeaderFollower, _) => {
                let count = self.acknowledgers(group);
                others.saturating_sub(count).min(count)
            }
        }
    }

    /// The number of followers that acknowledge each write.
    fn acknowledgers(&self, group: &Group) -> usize {
        match self.acks {
            Acks::None => 0,
            Acks::Count(count) => count,
            Acks::Majority => group.members.len() / 2,
            Acks::All => group.in_sync.len() - 1,
        }
    }

    /// Whether the next leader, or the same one in its next incarnation, may lack acknowledged writes.
    pub(crate) fn forgets_with_its_leader(&self) -> bool {
        self.protocol == Protocol::LeaderFollower && self.acks == Acks::None
    }

    /// Whether the in-sync set is a promise.
    pub(crate) fn needs_in_sync(&self) -> bool {
        self.protocol == Protocol::LeaderFollower && self.acks == Acks::All
    }

    /// Whether a request is refused rather than delayed when other clients request the same key: retrying clients may
    /// then obstruct each other forever.
    pub(crate) fn refuses_contenders(&self) -> bool {
        self.protocol == Protocol::Blocking && self.keyspace.retry == protocol::blocking::Retry::None
    }

    /// How long replicas may take to become equal once nothing disturbs them, in milliseconds, if they compare their
    /// keys every `sweep_ms`.
    pub(crate) fn converges_within_ms(&self, sweep_ms: u64) -> u64 {
        match self.protocol {
            // Fragments of values that were never stored are dropped in the background.
            Protocol::Consensus if self.is_coded() => 120_000,
            Protocol::LeaderFollower | Protocol::Consensus => 10_000,
            // Their replicas are repaired in the background.
            Protocol::Abd | Protocol::Blocking => 120_000 + 5 * sweep_ms,
        }
    }
}

impl fmt::Display for Acks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Acks::None => formatter.write_str("none"),
            Acks::Count(count) => write!(formatter, "{count}"),
            Acks::Majority => formatter.write_str("majority"),
            Acks::All => formatter.write_str("all"),
        }
    }
}

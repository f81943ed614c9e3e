//! What each protocol promises, in one table: which commands it takes, how many replicas of a group may be without
//! memory at one time, how many may be away without anybody being refused.
//!
//! The simulator stays within these limits while it checks. Who makes up a group, who leads it and who is in sync is what
//! the cluster map says at that moment. A protocol that is added gets its entry here, and its keyspaces in
//! [`Space::draw`].

use crate::operation::Kind;
use crate::random::Random;
use node::control::Group;
use node::{Keyspace, NodeId};
use std::fmt;

/// How replicas agree.
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
    /// All that a keyspace can choose.
    pub const ALL: [Protocol; 4] =
        [Protocol::LeaderFollower, Protocol::Abd, Protocol::Blocking, Protocol::Consensus];

    /// As a keyspace names it.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::LeaderFollower => "leader-follower",
            Protocol::Abd => "abd",
            Protocol::Blocking => "blocking",
            Protocol::Consensus => "consensus",
        }
    }

    /// Whether the node can run it.
    ///
    /// # Errors
    /// Why not.
    pub fn check(self) -> Result<(), String> {
        Keyspace::parse(&format!("prefix= replication={self}{}", self.plain()))?.check(3)
    }

    /// What its plain keyspaces need to be told besides.
    fn plain(self) -> &'static str {
        match self {
            Protocol::Consensus => " durability=fsync",
            Protocol::LeaderFollower | Protocol::Abd | Protocol::Blocking => "",
        }
    }

    /// True where nobody leads.
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

/// When a leader acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acks {
    None,
    Count(usize),
    Majority,
    All,
}

/// What a write outlives once it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// So many processes that die as [`Space::survives`] says.
    Memory,
    /// All processes, but no machine that loses its power: a voter may have forgotten what it promised.
    Os,
    /// All machines.
    Fsync,
}

/// A keyspace of a run, and what is promised for it.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    /// As on a command line.
    pub(crate) text: String,
    pub(crate) keyspace: Keyspace,
    pub(crate) protocol: Protocol,
    acks: Acks,
    pub(crate) durability: Durability,
    pub(crate) reads_any: bool,
    pub(crate) kinds: Vec<Kind>,
    /// Keys of each class.
    pub(crate) keys: u8,
    /// It is not there from the beginning: the operator creates it.
    pub(crate) is_created: bool,
    /// Every other increment is a script.
    pub(crate) runs_scripts: bool,
    /// The setting that the operator may change. What is promised before and after is promised all the time.
    pub(crate) change: String,
}

impl Space {
    /// Draws a keyspace for so many nodes.
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
                    // Small enough that followers which come back need snapshots.
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
        // Few and hot: what goes wrong shows where everybody looks.
        let keys = random.scaled(1, 8) as u8;
        let all = protocol.kinds();
        let mut kinds: Vec<Kind> = all.iter().copied().filter(|_| random.percent(60)).collect();
        for needed in [Kind::Get, Kind::Set] {
            // Several times, as they are what runs mostly consist of.
            let times = 2 + random.below(4) as usize;
            kinds.extend(std::iter::repeat_n(needed, times));
        }
        Space { kinds, keys, durability, ..Space::new(text, protocol, (acks, reads_any)) }
    }

    /// The default keyspace as most people have it.
    pub(crate) fn plain(protocol: Protocol) -> Space {
        let text = format!("prefix= replication={protocol}{}", protocol.plain());
        Space::new(text, protocol, (Acks::Majority, false))
    }

    fn new(text: String, protocol: Protocol, (acks, reads_any): (Acks, bool)) -> Space {
        // A text that cannot be read is found by a test, and refused by the node.
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

    /// Its members find again what they held, though they did not by what was drawn so far.
    pub(crate) fn set_durability(&mut self, durability: Durability) {
        self.text += match durability {
            Durability::Memory => "",
            Durability::Os => " durability=os",
            Durability::Fsync => " durability=fsync",
        };
        self.keyspace = Keyspace::parse(&self.text).unwrap_or_default();
        self.durability = durability;
    }

    /// Its large values are kept as fragments, in so many parts, or as its nodes choose.
    pub(crate) fn set_coding(&mut self, coding: &str) {
        let before = self.text.find(" coding=").unwrap_or(self.text.len());
        self.text.truncate(before);
        self.text += &format!(" coding={coding} coding_threshold=64");
        self.keyspace = Keyspace::parse(&self.text).unwrap_or_default();
    }

    /// Its large values are on the disk, and so much of its log in memory if nothing else was drawn.
    pub(crate) fn set_spilling(&mut self, log_bytes: usize) {
        self.text += " storage=disk storage_threshold=64";
        if !self.text.contains(" backlog_bytes=") {
            self.text += &format!(" backlog_bytes={log_bytes}");
        }
        self.keyspace = Keyspace::parse(&self.text).unwrap_or_default();
    }

    /// True when its large values can be on the disk.
    pub(crate) fn can_spill(&self) -> bool {
        matches!(self.protocol, Protocol::LeaderFollower | Protocol::Consensus) && !self.is_coded()
    }

    /// True when its large values are on the disk.
    pub(crate) fn is_spilled(&self) -> bool {
        self.keyspace.storage == node::Storage::Disk
    }

    /// True when its large values are kept as fragments.
    pub(crate) fn is_coded(&self) -> bool {
        self.keyspace.coding.is_some()
    }

    /// True when the number that `DEL` answers is part of the promise.
    pub(crate) fn counts_deleted(&self) -> bool {
        matches!(self.protocol, Protocol::LeaderFollower | Protocol::Consensus)
    }

    /// True when its members find again, on their disks, what they held.
    pub(crate) fn is_durable(&self) -> bool {
        self.durability != Durability::Memory
    }

    /// Whether a group of it still has everything that was acknowledged, in reach of whoever serves it, if these are
    /// the members that are without what they held.
    pub(crate) fn survives(&self, group: &Group, is_damaged: impl Fn(NodeId) -> bool) -> bool {
        let damaged = group.members.iter().filter(|member| is_damaged(**member)).count();
        match (self.protocol, self.acks) {
            (Protocol::Consensus | Protocol::Abd | Protocol::Blocking, _) => {
                damaged <= (group.members.len() - 1) / 2
            }
            // It loses what it must; what it still promises must hold all the same.
            (Protocol::LeaderFollower, Acks::None) => true,
            (Protocol::LeaderFollower, Acks::All) => group.in_sync.iter().any(|member| !is_damaged(*member)),
            // While it is not known who holds what, after a change of members, everybody is needed.
            (Protocol::LeaderFollower, _) if !group.settled => damaged == 0,
            (Protocol::LeaderFollower, _) => damaged <= self.acknowledgers(group),
        }
    }

    /// How many members of a group may be away, its leader among them, so that everybody else is still served.
    pub(crate) fn spares(&self, group: &Group) -> usize {
        let others = group.members.len() - 1;
        match (self.protocol, self.acks) {
            (Protocol::Consensus | Protocol::Abd | Protocol::Blocking, _) => others / 2,
            (Protocol::LeaderFollower, Acks::None | Acks::All) => others,
            // Enough to acknowledge, and enough to know what was acknowledged.
            (Protocol::LeaderFollower, _) => {
                let count = self.acknowledgers(group);
                others.saturating_sub(count).min(count)
            }
        }
    }

    /// Followers that acknowledge each write.
    fn acknowledgers(&self, group: &Group) -> usize {
        match self.acks {
            Acks::None => 0,
            Acks::Count(count) => count,
            Acks::Majority => group.members.len() / 2,
            Acks::All => group.in_sync.len() - 1,
        }
    }

    /// True when another leader, or the same one in another life, may lack writes that were acknowledged.
    pub(crate) fn forgets_with_its_leader(&self) -> bool {
        self.protocol == Protocol::LeaderFollower && self.acks == Acks::None
    }

    /// True when the in-sync set is a promise.
    pub(crate) fn needs_in_sync(&self) -> bool {
        self.protocol == Protocol::LeaderFollower && self.acks == Acks::All
    }

    /// True when a request is refused, and not put off, where others ask for the same key: those who go on asking
    /// may then be in each other's way for ever.
    pub(crate) fn refuses_contenders(&self) -> bool {
        self.protocol == Protocol::Blocking && self.keyspace.retry == protocol::blocking::Retry::None
    }

    /// How long replicas may take to become equal once nothing disturbs them, in milliseconds, if they compare their
    /// keys this often.
    pub(crate) fn converges_within_ms(&self, sweep_ms: u64) -> u64 {
        match self.protocol {
            // Fragments of values that were never stored are given up at leisure.
            Protocol::Consensus if self.is_coded() => 120_000,
            Protocol::LeaderFollower | Protocol::Consensus => 10_000,
            // Their replicas are repaired in the background, at leisure.
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

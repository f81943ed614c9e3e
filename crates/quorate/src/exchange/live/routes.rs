//! Which group of the cluster has a key.

use std::ops::RangeInclusive;

use anyhow::{Context as _, Result, anyhow};
use node::Protocol;
use node::control::ClusterMap;
use node::slots::slot_of;

/// Groups and nodes of a cluster.
pub(super) struct Routes {
    /// By descending length of the prefix, so that the first that fits is a key's own.
    keyspaces: Vec<Keyspace>,
    /// How many groups there are.
    pub(super) groups: usize,
}

struct Keyspace {
    prefix: Vec<u8>,
    /// The slots of each group; none in a keyspace without transactions.
    groups: Vec<(RangeInclusive<u16>, usize)>,
}

impl Routes {
    /// Reads a map.
    ///
    /// # Errors
    /// It lacks something.
    pub(super) fn of(map: &ClusterMap) -> Result<Routes> {
        let (mut keyspaces, mut groups) = (Vec::new(), 0);
        for (prefix, entry) in &map.keyspaces {
            let mut own = Vec::new();
            if matches!(entry.keyspace.replication, Protocol::Consensus | Protocol::LeaderFollower) {
                for number in &entry.groups {
                    let group = map.groups.get(number);
                    let slots = group.with_context(|| format!("the map lacks group {number}"))?.slots;
                    own.push((slots.first..=slots.last, groups));
                    groups += 1;
                }
            }
            keyspaces.push(Keyspace { prefix: prefix.clone().into_bytes(), groups: own });
        }
        keyspaces.sort_by_key(|keyspace| std::cmp::Reverse(keyspace.prefix.len()));
        Ok(Routes { keyspaces, groups })
    }

    /// Whether one group has all keys.
    pub(super) fn is_one_group(&self) -> bool {
        self.groups == 1 && self.keyspaces.len() == 1
    }

    /// The group of a key, counted from 0; `None` if it is in a keyspace without transactions.
    pub(super) fn group_of(&self, key: &[u8]) -> Option<usize> {
        if self.is_one_group() {
            return Some(0);
        }
        let keyspace = self.keyspaces.iter().find(|keyspace| key.starts_with(&keyspace.prefix))?;
        match &keyspace.groups[..] {
            [(_, only)] => Some(*only),
            several => {
                let slot = slot_of(key);
                several.iter().find(|(slots, _)| slots.contains(&slot)).map(|(_, group)| *group)
            }
        }
    }

    /// A key of a group whose name says what it is for.
    pub(super) fn key_in(&self, group: usize, name: &str) -> Result<Vec<u8>> {
        const TRIES: usize = 1 << 20;
        let mut keyspaces = self.keyspaces.iter();
        let has_it = |keyspace: &&Keyspace| keyspace.groups.iter().any(|(_, own)| *own == group);
        let prefix = &keyspaces.find(has_it).context("a group without a keyspace")?.prefix;
        let keys = (0..TRIES).map(|at| [prefix, format!("{name}{{{at}}}").as_bytes()].concat());
        keys.into_iter()
            .find(|key| self.group_of(key) == Some(group))
            .ok_or_else(|| anyhow!("no name of a key fits into the keyspace \"{}\"", prefix.escape_ascii()))
    }
}

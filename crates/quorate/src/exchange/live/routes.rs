//! Which group of the cluster has a key.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use anyhow::{Context as _, Result, anyhow};
use cluster::control::ClusterMap;
use cluster::slots::slot_of;
use node::{Protocol, database_named};

/// Groups and nodes of a cluster.
pub(super) struct Routes {
    /// By descending length of the prefix, so that the first match is the key's keyspace.
    keyspaces: Vec<Keyspace>,
    /// How many groups there are.
    pub(super) groups: usize,
}

struct Keyspace {
    /// Its database, and the prefix of its keys in it.
    database: u8,
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
            let database = database_named(prefix.as_bytes());
            let prefix = if database == 0 { prefix.clone().into_bytes() } else { Vec::new() };
            keyspaces.push(Keyspace { database, prefix, groups: own });
        }
        keyspaces.sort_by_key(|keyspace| std::cmp::Reverse(keyspace.prefix.len()));
        Ok(Routes { keyspaces, groups })
    }

    /// Whether one group has all keys.
    pub(super) fn is_one_group(&self) -> bool {
        self.groups == 1 && self.keyspaces.len() == 1
    }

    /// The databases of the cluster, each once.
    pub(super) fn databases(&self) -> BTreeSet<u8> {
        self.keyspaces.iter().map(|keyspace| keyspace.database).collect()
    }

    /// The database that a group has keys of.
    pub(super) fn database_of(&self, group: usize) -> u8 {
        self.keyspace_of(group).map_or(0, |keyspace| keyspace.database)
    }

    fn keyspace_of(&self, group: usize) -> Option<&Keyspace> {
        self.keyspaces.iter().find(|keyspace| keyspace.groups.iter().any(|(_, own)| *own == group))
    }

    /// The group of a key of a database, counted from 0; `None` if it is in a keyspace without transactions.
    pub(super) fn group_of(&self, database: u8, key: &[u8]) -> Option<usize> {
        if self.is_one_group() {
            return Some(0);
        }
        let mut of_database = self.keyspaces.iter().filter(|keyspace| keyspace.database == database);
        let keyspace = of_database.find(|keyspace| key.starts_with(&keyspace.prefix))?;
        match &keyspace.groups[..] {
            [(_, only)] => Some(*only),
            several => {
                let slot = slot_of(key);
                several.iter().find(|(slots, _)| slots.contains(&slot)).map(|(_, group)| *group)
            }
        }
    }

    /// A key in a group, whose name says what it is for.
    pub(super) fn key_in(&self, group: usize, name: &str) -> Result<Vec<u8>> {
        const TRIES: usize = 1 << 20;
        let Keyspace { database, prefix, .. } =
            self.keyspace_of(group).context("a group without a keyspace")?;
        let keys = (0..TRIES).map(|at| [prefix, format!("{name}{{{at}}}").as_bytes()].concat());
        keys.into_iter()
            .find(|key| self.group_of(*database, key) == Some(group))
            .ok_or_else(|| anyhow!("no name of a key fits into the keyspace \"{}\"", prefix.escape_ascii()))
    }
}

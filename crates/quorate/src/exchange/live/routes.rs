//! Which group of the cluster has a key.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use anyhow::{Context as _, Result, anyhow, bail};
use node::slots::slot_of;
use serde::Deserialize;

use super::super::client::{Client, Reply};

/// Groups and nodes of a cluster.
pub(super) struct Routes {
    /// By descending length of the prefix, so that the first that fits is a key's own.
    keyspaces: Vec<Keyspace>,
    /// How many groups there are.
    pub(super) groups: usize,
    /// Where its nodes take clients.
    pub(super) nodes: Vec<String>,
}

struct Keyspace {
    prefix: Vec<u8>,
    /// The slots of each group; none in a keyspace without transactions.
    groups: Vec<(RangeInclusive<u16>, usize)>,
}

#[derive(Deserialize)]
struct Map {
    nodes: BTreeMap<String, MapNode>,
    keyspaces: BTreeMap<String, MapKeyspace>,
    groups: BTreeMap<String, MapGroup>,
}

#[derive(Deserialize)]
struct MapNode {
    address: MapAddress,
}

#[derive(Deserialize)]
struct MapAddress {
    host: String,
    client_port: u16,
}

#[derive(Deserialize)]
struct MapKeyspace {
    keyspace: MapSettings,
    groups: Vec<u16>,
}

#[derive(Deserialize)]
struct MapSettings {
    replication: String,
}

#[derive(Deserialize)]
struct MapGroup {
    slots: MapSlots,
}

#[derive(Deserialize)]
struct MapSlots {
    first: u16,
    last: u16,
}

impl Routes {
    /// Asks a node.
    ///
    /// # Errors
    /// It does not answer, or not with a map.
    pub(super) fn of(client: &mut Client) -> Result<Routes> {
        let answer = client.ask(&[b"CLUSTER", b"MAP"])?;
        let text = match answer {
            Reply::Error(error) => bail!("the cluster does not say what groups it has: {error}"),
            answer => answer.bytes().context("the cluster does not say what groups it has")?,
        };
        let map: Map = serde_json::from_slice(&text).context("the cluster's map is not understood")?;
        let (mut keyspaces, mut groups) = (Vec::new(), 0);
        for (prefix, entry) in map.keyspaces {
            let mut own = Vec::new();
            if matches!(&entry.keyspace.replication[..], "consensus" | "leader-follower") {
                for number in entry.groups {
                    let group = map.groups.get(&number.to_string());
                    let slots = &group.with_context(|| format!("the map lacks group {number}"))?.slots;
                    own.push((slots.first..=slots.last, groups));
                    groups += 1;
                }
            }
            keyspaces.push(Keyspace { prefix: prefix.into_bytes(), groups: own });
        }
        keyspaces.sort_by_key(|keyspace| std::cmp::Reverse(keyspace.prefix.len()));
        let address = |node: &MapNode| match node.address.host.contains(':') {
            true => format!("[{}]:{}", node.address.host, node.address.client_port),
            false => format!("{}:{}", node.address.host, node.address.client_port),
        };
        Ok(Routes { keyspaces, groups, nodes: map.nodes.values().map(address).collect() })
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

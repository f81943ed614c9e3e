//! The running cluster that keys are read from: a connection to one of its nodes, and to others when that one is lost.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use cluster::control::{ClusterMap, KeyspaceEntry};
use kv::table::scan_group;
use node::{Protocol, Report, database_named};
use server::status::words;

use super::select;
use crate::connection::{self, ANSWER_WITHIN, Client, Connect, Reply, Role, map_of};

/// A running cluster.
pub(super) struct Source {
    pub(super) client: Client,
    pub(super) cluster: connection::Cluster,
    pub(super) map: ClusterMap,
}

/// What could not be read, by the name of its keyspace, and why.
pub(super) type Missing = BTreeMap<String, String>;

/// Keyspaces, by name, with what is the matter with each. Those with which the same is the matter are in one line.
pub(super) fn alike<'a>(missing: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut missing: Vec<(&str, &str)> = missing.collect();
    missing.sort_by_cached_key(|(name, _)| words::natural(name));
    let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, why) in missing {
        match lines.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(name),
            None => lines.push((why, vec![name])),
        }
    }
    let line = |(why, names): (&str, Vec<&str>)| {
        let list = names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
        format!("keyspace{} {list}: {why}", if names.len() == 1 { "" } else { "s" })
    };
    lines.into_iter().map(line).collect()
}

impl Source {
    /// Connects to a cluster.
    ///
    /// # Errors
    /// No node can be reached, or it has no map.
    pub(super) fn find(connect: &Connect, role: Role) -> Result<Source> {
        let cluster = connect.resolve(role)?;
        let mut client = cluster.open(ANSWER_WITHIN)?.1;
        let map = map_of(&mut client)?;
        let cluster = cluster.with_others(&mut client, &map)?;
        Ok(Source { client, cluster, map })
    }

    /// Connects again: after an error, replies may be under way, or the node may be lost.
    ///
    /// # Errors
    /// No node can be reached.
    pub(super) fn connect_again(&mut self) -> Result<()> {
        self.client = self.cluster.open(ANSWER_WITHIN)?.1;
        Ok(())
    }

    /// The keyspaces with these prefixes, or all, those of database 0 first.
    ///
    /// # Errors
    /// There is none with such a prefix.
    pub(super) fn keyspaces(&self, prefixes: &[String]) -> Result<Vec<(String, KeyspaceEntry)>> {
        for prefix in prefixes {
            let names = || {
                let mut prefixes: Vec<&String> = self.map.keyspaces.keys().collect();
                prefixes.sort_by_cached_key(|prefix| words::natural(prefix));
                prefixes.iter().map(|prefix| format!("\"{prefix}\"")).collect::<Vec<_>>().join(", ")
            };
            ensure!(
                self.map.keyspaces.contains_key(prefix),
                "there is no keyspace \"{prefix}\": the cluster has {}",
                names()
            );
        }
        let is_wanted = |prefix: &String| prefixes.is_empty() || prefixes.contains(prefix);
        let wanted = self.map.keyspaces.iter().filter(|(prefix, _)| is_wanted(prefix));
        let mut found: Vec<_> = wanted.map(|(prefix, entry)| (prefix.clone(), entry.clone())).collect();
        found.sort_by_cached_key(|(prefix, _)| (database_named(prefix.as_bytes()), words::natural(prefix)));
        Ok(found)
    }

    pub(super) fn ask(&mut self, words: &[&[u8]]) -> Result<Reply> {
        match self.client.ask(words)? {
            Reply::Error(error) => bail!("{error}"),
            reply => Ok(reply),
        }
    }

    pub(super) fn text(&mut self, words: &[&[u8]]) -> Result<Vec<u8>> {
        self.ask(words)?.bytes().context("the cluster's answer is not text")
    }

    pub(super) fn texts(&mut self, words: &[&[u8]]) -> Result<Vec<String>> {
        let Reply::Array(items) = self.ask(words)? else { bail!("the cluster answers with what is no list") };
        let text = |item: Reply| item.bytes().map(|text| String::from_utf8_lossy(&text).into_owned());
        items.into_iter().map(text).collect::<Option<_>>().context("the cluster's answer is not text")
    }

    /// Whether every shard of a keyspace has a leader, as the node that is asked sees it. Without one, replicas answer with
    /// `reads=any`, from what they have.
    ///
    /// # Errors
    /// The node does not say.
    pub(super) fn is_led(&mut self, prefix: &str) -> Result<bool> {
        let report = self.report()?;
        let needs_control = self.map.keyspaces.get(prefix).is_some_and(|entry| {
            entry.keyspace.replication == Protocol::LeaderFollower && report.health.control_leader == 0
        });
        let mut shards = report.health.keyspaces.iter().filter(|shard| shard.prefix == prefix);
        Ok(!needs_control && shards.all(|shard| shard.ready && shard.leader != 0))
    }

    /// Checks that every shard of a keyspace is served, as the node that is asked sees it.
    ///
    /// # Errors
    /// One is not, or the node does not say.
    pub(super) fn check_served(&mut self, prefix: &str) -> Result<()> {
        let report = self.report()?;
        let unready = report.health.keyspaces.iter().find(|shard| shard.prefix == prefix && !shard.ready);
        ensure!(unready.is_none(), "it is not served: {}", unready.map_or("", |shard| &shard.explanation));
        Ok(())
    }

    /// What the node that is asked reports about itself.
    ///
    /// # Errors
    /// It does not say.
    pub(super) fn report(&mut self) -> Result<Report> {
        let report = self.text(&[b"CLUSTER", b"REPORT"])?;
        serde_json::from_slice(&report).context("the node's report is not understood")
    }

    /// Begins a walk through the keys of a keyspace, and selects its database.
    ///
    /// # Errors
    /// The database cannot be selected, or the keyspace is one of registers and not served: a node shows those that it holds in
    /// any case, and these may be too few.
    pub(super) fn walk(&mut self, prefix: &str) -> Result<Walk> {
        if self.map.keyspaces.get(prefix).is_some_and(|entry| entry.keyspace.replication.has_registers()) {
            self.check_served(prefix)?;
        }
        let database = database_named(prefix.as_bytes());
        select(&mut self.client, database)?;
        let keyspaces = &self.map.keyspaces;
        let groups = keyspaces.get(prefix).map(|entry| entry.groups.clone()).unwrap_or_default();
        let longer = |other: &&String| other.len() > prefix.len() && database_named(other.as_bytes()) == 0;
        // Only in database 0 do prefixes divide the keys.
        let (prefix, longer) = match database {
            0 => (prefix.to_owned(), keyspaces.keys().filter(longer).cloned().collect()),
            _ => (String::new(), Vec::new()),
        };
        Ok(Walk { prefix, longer, groups: groups.into_iter(), at: None })
    }
}

/// A walk through the keys of a keyspace, group by group. It asks no other keyspace, which might not answer.
pub(super) struct Walk {
    prefix: String,
    /// Prefixes of other keyspaces, which have the keys that begin with them.
    longer: Vec<String>,
    groups: std::vec::IntoIter<u16>,
    /// The group that is being read, and the cursor for the next step.
    at: Option<(u16, Vec<u8>)>,
}

impl Walk {
    /// The next keys; `None` at the end. About `count` keys are visited.
    ///
    /// # Errors
    /// The keyspace does not answer.
    pub(super) fn step(&mut self, client: &mut Client, count: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        // A cursor holds the number of its group, and the number alone is the group's beginning.
        let next =
            self.at.take().or_else(|| self.groups.next().map(|group| (group, group.to_string().into())));
        let Some((group, cursor)) = next else { return Ok(None) };
        let (next, mut keys) = scanned(client.ask(&[b"SCAN", &cursor, b"COUNT", count])?)?;
        let number: u64 = std::str::from_utf8(&next)?.parse().context("SCAN answers with no cursor")?;
        self.at = (scan_group(number) == group).then_some((group, next));
        // If the keyspace has been dropped since, the node goes on with the keys of another one.
        keys.retain(|key| {
            key.starts_with(self.prefix.as_bytes())
                && !self.longer.iter().any(|other| key.starts_with(other.as_bytes()))
        });
        Ok(Some(keys))
    }
}

/// The next cursor and the keys of a step of a scan.
pub(super) fn scanned(reply: Reply) -> Result<(Vec<u8>, Vec<Vec<u8>>)> {
    let Reply::Array(mut parts) = reply else { return Err(unfit("SCAN", &reply)) };
    match (parts.pop(), parts.pop().and_then(Reply::bytes)) {
        (Some(Reply::Array(keys)), Some(cursor)) => {
            Ok((cursor, keys.into_iter().filter_map(Reply::bytes).collect()))
        }
        _ => Err(anyhow!("SCAN answers with too little")),
    }
}

/// What a reply that does not fit says: an error in its own words.
pub(super) fn unfit(command: &str, reply: &Reply) -> anyhow::Error {
    match reply {
        Reply::Error(error) => anyhow!("{error}"),
        other => anyhow!("{command} answers with {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyspaces_with_which_the_same_is_the_matter_are_in_one_line() {
        let missing = [("a10:", "no leader"), ("a2:", "no leader"), ("r:", "it waits")];
        assert_eq!(
            alike(missing.into_iter()),
            ["keyspaces 'a2:', 'a10:': no leader", "keyspace 'r:': it waits"]
        );
    }
}

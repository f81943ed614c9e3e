//! The current promises of a cluster's keyspaces, according to its nodes: the cluster map counts, not the settings with
//! which the cluster was made.

use std::collections::BTreeMap;

use serde_json::Value;

use super::nodes::Node;
use super::probe;

/// The promises of the default keyspace, in a few words.
pub(super) fn of_default(nodes: &[Node]) -> Option<String> {
    let health = nodes.iter().find_map(probe::health)?;
    let keyspace = health["keyspaces"].as_array()?.iter().find(|keyspace| keyspace["prefix"] == "")?.clone();
    let word = |name: &str| keyspace[name].as_str().unwrap_or_default().to_owned();
    let acks = match keyspace["replication"].as_str() {
        Some("leader-follower") => format!(", acks {}", word("acks")),
        _ => String::new(),
    };
    Some(format!("{}{acks}, durability {}, reads {}", word("replication"), word("durability"), word("reads")))
}

/// The keyspaces that keep no log (`durability = none`), with the number of keys in each: what is lost when all nodes
/// stop.
pub(super) fn in_memory_only(nodes: &[Node]) -> Vec<(String, u64)> {
    let Some(health) = nodes.iter().find_map(probe::health) else { return Vec::new() };
    let keyspaces = health["keyspaces"].as_array().into_iter().flatten();
    let is_lost = |keyspace: &&Value| keyspace["durability"] == "none";
    let mut names: Vec<String> = keyspaces
        .filter(is_lost)
        .filter_map(|keyspace| keyspace["prefix"].as_str())
        .map(|prefix| if prefix.is_empty() { "default".to_owned() } else { prefix.to_owned() })
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Vec::new();
    }
    // Replicas of one shard hold the same keys, apart from writes in progress: the largest count is used.
    let mut counted: BTreeMap<String, u64> = BTreeMap::new();
    for metrics in nodes.iter().filter_map(probe::metrics) {
        for line in metrics.lines().filter_map(|line| line.strip_prefix("quorate_keyspace_keys{")) {
            let Some((label, count)) = line.rsplit_once("} ") else { continue };
            let most = counted.entry(label.to_owned()).or_default();
            *most = (*most).max(count.parse().unwrap_or(0));
        }
    }
    let keys_of = |name: &str| {
        let label = name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let label = format!("keyspace=\"{label}\"");
        let is_its = |found: &str| found == label || found.starts_with(&format!("{label},"));
        counted.iter().filter(|(found, _)| is_its(found)).map(|(_, keys)| keys).sum()
    };
    names.into_iter().map(|name| (keys_of(&name), name)).map(|(keys, name)| (name, keys)).collect()
}

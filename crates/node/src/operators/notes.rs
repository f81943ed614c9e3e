//! Warnings for a node's operator at a start and at a stop: keys that no log keeps, and keyspaces of the
//! configuration file that the cluster map does not have.

use crate::context::Context;
use crate::diagnostics::log::{Level, Line};
use cluster::control::{CONTROL_GROUP, ClusterMap};
use cluster::keyspace::Keyspace;
use cluster::words::quoted;
use protocol::NodeId;
use protocol::leader_follower::Durability;
use std::collections::BTreeMap;

/// The lines to log at the start of a node that has run before, with the map of its log.
pub(crate) fn at_start(own: NodeId, configured: &[Keyspace], map: &ClusterMap) -> Vec<Line> {
    let mut lines = Vec::new();
    for keyspace in configured {
        let name = keyspace.name();
        match map.keyspaces.get(&keyspace.prefix) {
            None => lines.push(Line {
                level: Level::Warning,
                text: format!(
                    "keyspace '{name}' is in the configuration file and not in the cluster's map, so there is none: the \
                     file's keyspaces are those of a new cluster; make it (quorate keyspace create), or take it out of the file"
                ),
            }),
            Some(entry) => {
                let differences = differences(keyspace, &entry.keyspace, map.nodes.len());
                if !differences.is_empty() {
                    lines.push(Line {
                        level: Level::Info,
                        text: format!(
                            "keyspace '{name}' is as the cluster's map says, not as the configuration file does: {}; \
                             to change it: quorate keyspace alter {} SETTING=VALUE",
                            differences.join(", "),
                            quoted(&keyspace.prefix)
                        ),
                    });
                }
            }
        }
    }
    let in_memory = |keyspace: &&Keyspace| keyspace.durability() == Durability::None;
    for keyspace in map.keyspaces.values().map(|entry| &entry.keyspace).filter(in_memory) {
        if map.groups_of(own).any(|(_, group)| group.keyspace == keyspace.prefix) {
            lines.push(Line {
                level: Level::Info,
                text: format!(
                    "keyspace '{}' begins without keys on this node, as durability = \"none\" keeps them in memory only; it \
                     gets those that other nodes still have",
                    keyspace.name()
                ),
            });
        }
    }
    lines
}

/// The settings in which the file differs from the map, as `acks = all and not none`.
fn differences(configured: &Keyspace, present: &Keyspace, nodes: usize) -> Vec<String> {
    // In the map's settings, every default of a protocol is filled in.
    let Ok(configured) = configured.clone().resolved(nodes) else { return Vec::new() };
    let configured: BTreeMap<String, String> = configured.settings().into_iter().collect();
    let differs = |(name, value): &(String, String)| configured.get(name) != Some(value);
    let line = |(name, value): (String, String)| {
        format!("{name} = {value} and not {}", configured.get(&name).map_or("", String::as_str))
    };
    present.settings().into_iter().filter(differs).map(line).collect()
}

/// Logs which keys will be lost with this process, for a node that is about to stop.
pub(crate) fn at_stop(cx: &mut Context) {
    let mut held: BTreeMap<String, (usize, bool)> = BTreeMap::new();
    for (id, group) in cx.groups.iter().filter(|(id, _)| *id != CONTROL_GROUP) {
        let keys = group.replica.as_ref().map_or(0, |replica| replica.table().len());
        if keys == 0 || group.keyspace.durability() != Durability::None {
            continue;
        }
        let own = cx.configuration.node;
        let others = cx.map.groups.get(&id).is_some_and(|entry| entry.members.iter().any(|it| *it != own));
        let (sum, is_alone) = held.entry(group.keyspace.name().to_string()).or_default();
        *sum += keys;
        *is_alone |= !others;
    }
    for (name, (keys, is_alone)) in held {
        let (level, rest) = match is_alone {
            true => (Level::Warning, "no other node has them, so they are lost"),
            false => (Level::Info, "other nodes keep theirs as long as they run"),
        };
        let text = format!(
            "{keys} keys of keyspace '{name}' go with this process, as durability = \"none\" keeps them in memory only: \
             {rest}"
        );
        cx.log.push(Line { level, text });
    }
}

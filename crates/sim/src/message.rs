//! Messages between nodes, as readable lines.

use crate::promise::{Protocol, Space};
use crate::trace::shorten;
use cluster::control::{CONTROL_GROUP, ClusterMap};
use protocol::{abd, blocking, coded, consensus, leader_follower};
use std::fmt::Debug;

/// Describes a frame's payload.
pub(crate) fn describe(payload: &[u8], spaces: &[Space], map: &ClusterMap) -> String {
    if let Some((group, message)) = node::fragment_message(payload) {
        let name = map.name_of(group);
        return match coded::Message::decode(message) {
            Ok(coded::Message::Keep(piece)) => format!("{name} Keep {:?} {}", piece.reference, piece.number),
            Ok(coded::Message::Fetched(piece)) => {
                format!("{name} Fetched {:?} {}", piece.reference, piece.number)
            }
            read => format!("{name} {}", shorten(&format!("{read:?}"))),
        };
    }
    let Some((group, message)) = node::replica_message(payload) else {
        return format!("{}, {} bytes", node::payload_words(payload), payload.len());
    };
    if group == CONTROL_GROUP {
        let read = cluster::control::Message::decode(message).map(|read| format!("{read:?}"));
        return format!("control {}", read.map_or_else(|it| format!("{it:?}"), |text| shorten(&text)));
    }
    let entry = map.groups.get(&group);
    let space = entry.and_then(|entry| spaces.iter().find(|space| space.keyspace.prefix == entry.keyspace));
    let (Some(entry), Some(space)) = (entry, space) else { return format!("a message of group {group}") };
    let text = match space.protocol {
        Protocol::LeaderFollower => leader_follower::Message::decode(message).map(|read| format!("{read:?}")),
        Protocol::Abd => abd::Message::decode(message).map(|read| match read {
            abd::Message::Turn { items, .. } => join(items.iter()),
            abd::Message::Upkeep(upkeep) => format!("{:?}", upkeep.body),
        }),
        Protocol::Blocking => blocking::Message::decode(message).map(|read| match read {
            blocking::Message::Turn { items, .. } => {
                [join(items.asks.iter()), join(items.answers.iter())].join(" ").trim().to_string()
            }
            blocking::Message::Upkeep(upkeep) => format!("{:?}", upkeep.body),
        }),
        Protocol::Consensus => consensus::Message::decode(message).map(|read| format!("{:?}", read.body)),
    };
    let text = text.map_or_else(|malformed| format!("{malformed:?}"), |text| shorten(&text));
    match (spaces.len(), space.keyspace.shards) {
        (1, 1) => text,
        (_, 1) => format!("'{}' {text}", space.keyspace.name()),
        _ => format!("'{}' shard {} {text}", space.keyspace.name(), entry.shard),
    }
}

/// Whether the network may lose, repeat or delay this frame without breaking the link: senders of such frames
/// expect that.
#[inline]
pub(crate) fn stands_for_itself(payload: &[u8]) -> bool {
    node::replica_message(payload).or_else(|| node::fragment_message(payload)).is_some()
}

/// Joins the items that one turn has for another replica.
fn join<T: Debug>(items: impl Iterator<Item = T>) -> String {
    let items: Vec<String> = items.map(|item| format!("{item:?}")).collect();
    items.join("; ")
}

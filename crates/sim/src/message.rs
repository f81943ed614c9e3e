//! What nodes say to each other, as a line for people.

use crate::promise::{Protocol, Space};
use crate::trace::shorten;
use protocol::leader_follower;

/// A frame's payload in words.
pub(crate) fn describe(payload: &[u8], spaces: &[Space]) -> String {
    let Some((group, message)) = node::replica_message(payload) else {
        let what = if payload.first() == Some(&2) { "requests" } else { "outcomes" };
        return format!("{what} of clients, {} bytes", payload.len());
    };
    let Some(space) = spaces.get(group) else { return format!("a message of group {group}") };
    let text = match space.protocol {
        Protocol::LeaderFollower => leader_follower::Message::decode(message).map(|read| format!("{read:?}")),
        Protocol::Abd | Protocol::Blocking => Ok(format!("{} bytes of {}", message.len(), space.protocol)),
    };
    let text = text.map_or_else(|malformed| format!("{malformed:?}"), |text| shorten(&text));
    if spaces.len() == 1 { text } else { format!("'{}' {text}", space.keyspace.name()) }
}

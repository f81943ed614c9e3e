//! Clients that follow what changes: those who are notified of events of keys, and those who keep what they read
//! (`tracking`). Beside them stand those who read what tables keep of their changes (`readers`).
//!
//! The tables of this node's replicas note each change while somebody follows ([`kv::table::Changes`]); the node takes the
//! notes after each step of a replica, and they are handed on here. So a client hears of what the replica at *its* node
//! applies, each change once, and nothing travels for that from one node to another.

mod commands;
mod readers;
mod replicas;
mod tracking;

use crate::channels::Channels;
use crate::context::Context;
use crate::replica::Replica;
use kv::table::{ChangeClass, Changes};
use readers::Readers;
use replicas::Replicas;
use tracking::Tracking;

/// How long a group has for an answer that is awaited here, in microseconds.
const ANSWER_US: u64 = 1_000_000;

/// Who follows changes.
#[derive(Debug, Default)]
pub(crate) struct Following {
    /// Whether replicas note changes, and reads of keys that are not there.
    noted: (bool, bool),
    pub(crate) tracking: Tracking,
    /// Those who read what tables keep of their changes.
    pub(crate) readers: Readers,
    /// Replicas of Redis, which do the same.
    pub(crate) replicas: Replicas,
}

impl Following {
    /// Whether anybody follows.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.noted.0
    }

    /// Has replicas note what somebody follows now. To be called when that may have changed.
    pub(crate) fn follow(&mut self, cx: &mut Context) {
        let events = cx.parameters.events();
        let wanted =
            (events.is_on() || self.tracking.is_on(), events.is_on() && events.has(ChangeClass::Missed));
        if std::mem::replace(&mut self.noted, wanted) == wanted {
            return;
        }
        let mut place = 0;
        while let Some(id) = cx.groups.id_at(place) {
            place += 1;
            if let Some(replica) = &mut cx.groups[id].replica {
                self.attach(replica);
            }
        }
    }

    /// Has a replica note what somebody follows.
    pub(crate) fn attach(&self, replica: &mut Replica) {
        replica.follow_changes(self.noted.0, self.noted.1);
    }

    /// Hands on what has changed in a group.
    pub(crate) fn take(&mut self, cx: &mut Context, channels: &mut Channels, group: u16, changes: &Changes) {
        if self.tracking.is_on() {
            self.tracking.take(cx, group, changes);
        }
        notify(cx, channels, group, changes);
    }
}

/// Notifies clients that are subscribed to the channels of keys and events. As with messages from peers, a turn has a
/// bounded time for that, and what has to wait has a bounded memory: one record can change many keys.
fn notify(cx: &mut Context, channels: &mut Channels, group: u16, changes: &Changes) {
    let events = cx.parameters.events();
    if !events.is_on() || channels.channel_count() + channels.pattern_count() == 0 {
        return;
    }
    let database = cx.groups.get(group).map_or(0, |group| group.keyspace.database());
    // In front of a key, and of an event, in the names of channels.
    let by_key = format!("__keyspace@{database}__:");
    let by_event = format!("__keyevent@{database}__:");
    let mut channel = Vec::new();
    for change in changes.iter().filter(|change| !change.event.is_empty() && events.has(change.class)) {
        if events.by_key {
            channel.clear();
            channel.extend_from_slice(by_key.as_bytes());
            channel.extend_from_slice(change.key);
            channels.hear(cx, false, &channel, change.event.as_bytes());
        }
        if events.by_event {
            channel.clear();
            channel.extend_from_slice(by_event.as_bytes());
            channel.extend_from_slice(change.event.as_bytes());
            channels.hear(cx, false, &channel, change.key);
        }
    }
}

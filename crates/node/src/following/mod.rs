//! Clients that follow changes: those that are notified of key events, and those that cache what they read
//! (`tracking`). Also clients that read the changes that tables keep (`readers`), and replicas of Redis (`replicas`).
//!
//! The tables of this node's replicas note each change while any client follows ([`kv::table::Changes`]); the node takes
//! these notes after each step of a replica, and they are passed to the clients here. So a client is notified of what
//! the replica at *its* node applies, each change once, and this needs no messages between nodes.

mod commands;
mod readers;
mod replicas;
mod tracking;

use crate::channels::Channels;
use crate::context::Context;
use crate::groups::replica::Replica;
use crate::session::gates::Gate;
use kv::table::{ChangeClass, Changes, Follows};
use readers::Readers;
use replicas::Replicas;
use tracking::Tracking;

/// How long a group has to answer a request of this module, in microseconds.
const ANSWER_US: u64 = 1_000_000;

/// The clients that follow changes.
#[derive(Debug, Default)]
pub(crate) struct Following {
    /// Whether replicas note changes, and whether they note reads of missing keys.
    noted: Follows,
    pub(crate) tracking: Tracking,
    /// Readers of the changes that tables keep.
    pub(crate) readers: Readers,
    /// Replicas of Redis, which read the same changes.
    pub(crate) replicas: Replicas,
}

impl Following {
    /// Whether any client follows changes.
    pub(crate) fn is_on(&self) -> bool {
        self.noted.changes
    }

    /// Has all replicas note what clients follow now. To be called when that may have changed.
    pub(crate) fn follow(&mut self, cx: &mut Context) {
        let events = cx.parameters.events();
        let notifies = |class| events.is_on() && events.has(class);
        let wanted = Follows {
            changes: events.is_on() || self.tracking.is_on(),
            misses: notifies(ChangeClass::Missed),
            overwrites: notifies(ChangeClass::Overwritten) || notifies(ChangeClass::TypeChanged),
        };
        if std::mem::replace(&mut self.noted, wanted) == wanted {
            return;
        }
        cx.gates.set(Gate::Changes, wanted.changes);
        let mut place = 0;
        while let Some(id) = cx.groups.id_at(place) {
            place += 1;
            if let Some(replica) = &mut cx.groups[id].replica {
                self.attach(replica);
            }
        }
    }

    /// Has a replica note what clients follow.
    pub(crate) fn attach(&self, replica: &mut Replica) {
        replica.follow_changes(self.noted);
    }

    /// When [`Following::end_turn`] has to run next, even if nothing happens.
    #[inline]
    pub(crate) fn due_us(&self) -> u64 {
        self.readers.due_us().min(self.replicas.due_us())
    }

    /// Gives the clients that follow changes what the turn has brought.
    #[inline]
    pub(crate) fn end_turn(&mut self, cx: &mut Context) {
        if self.readers.is_on() {
            self.readers.end_turn(cx);
        }
        if self.replicas.is_on() {
            self.replicas.end_turn(cx);
        }
        if self.tracking.is_on() {
            self.tracking.end_turn(cx);
        }
    }

    /// Passes a group's changes to the clients that follow them.
    pub(crate) fn take(&mut self, cx: &mut Context, channels: &mut Channels, group: u16, changes: &Changes) {
        if self.tracking.is_on() {
            self.tracking.take(cx, group, changes);
        }
        notify(cx, channels, group, changes);
    }
}

/// Notifies clients that are subscribed to the channels of keys and events. One record can change many keys, so the time
/// for this in one turn is bounded, and so is the memory of the notifications that wait, as with messages from peers.
fn notify(cx: &mut Context, channels: &mut Channels, group: u16, changes: &Changes) {
    let events = cx.parameters.events();
    if !events.is_on() || channels.channel_count() + channels.pattern_count() == 0 {
        return;
    }
    let database = cx.groups.get(group).map_or(0, |group| group.keyspace.database());
    // The prefixes of the channels' names: of those for keys, and of those for events.
    let by_key = format!("__keyspace@{database}__:");
    let by_event = format!("__keyevent@{database}__:");
    let mut channel = Vec::new();
    for change in changes.iter().filter(|change| !change.event.is_empty() && events.has(change.class)) {
        if events.are_by_key() {
            channel.clear();
            channel.extend_from_slice(by_key.as_bytes());
            channel.extend_from_slice(change.key);
            channels.hear(cx, false, &channel, change.event.as_bytes());
        }
        if events.are_by_event() {
            channel.clear();
            channel.extend_from_slice(by_event.as_bytes());
            channel.extend_from_slice(change.event.as_bytes());
            channels.hear(cx, false, &channel, change.key);
        }
    }
}

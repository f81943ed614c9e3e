//! `CLUSTER EVENTS`: the latest lines of this node's log, and the leaderships that it has taken over. For people who
//! want to know what has changed without reading a file on each machine. Kept in memory, since the start of the
//! process.

use crate::context::Context;
use crate::diagnostics::log::{Level, Line};
use cluster::control::CONTROL_GROUP;
use kv::{Reply, ReplyBuffer};
use protocol::NodeId;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// How many lines are kept.
const LINES: usize = 200;

/// A longer line is cut, in bytes.
const LINE_BYTES: usize = 512;

/// How many leaderships are kept.
const LEADERSHIPS: usize = 100;

/// How often the leaders of groups that this node does not lead are noted, in milliseconds.
const LOOK_MS: u64 = 2_000;

/// The latest events, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    lines: VecDeque<Kept>,
    leaderships: VecDeque<Leadership>,
    /// The leader of each group, as far as it was known when last noted.
    leaders: BTreeMap<u16, NodeId>,
    /// How many leaderships of each group this node has begun.
    begun: BTreeMap<u16, u64>,
    looked_us: u64,
}

#[derive(Debug, Serialize)]
struct Kept {
    unix_ms: u64,
    level: &'static str,
    text: String,
}

/// A leadership that this node has begun.
#[derive(Debug, Serialize)]
struct Leadership {
    unix_ms: u64,
    group: u16,
    prefix: String,
    shard: u16,
    /// The previous leader; 0: none is known.
    from: NodeId,
    to: NodeId,
    epoch: u64,
    /// For how long nothing had come from that node: a short time if it handed the leadership on. `None` without one.
    silent_ms: Option<u64>,
}

#[derive(Serialize)]
struct Events<'a> {
    lines: &'a VecDeque<Kept>,
    leaderships: &'a VecDeque<Leadership>,
}

impl Recent {
    /// Keeps lines that go to the log.
    pub(crate) fn keep(&mut self, unix_ms: u64, lines: &[Line]) {
        for Line { level, text } in lines {
            let level = match level {
                Level::Info => "info",
                Level::Warning => "warning",
                Level::Error => "error",
                Level::Audit => "audit",
            };
            let end = text.floor_char_boundary(LINE_BYTES);
            push(&mut self.lines, LINES, Kept { unix_ms, level, text: text[..end].to_owned() });
        }
    }

    /// Notes which groups this node has begun to lead. O(groups).
    pub(crate) fn tick(&mut self, cx: &Context) {
        let own = cx.configuration.node;
        let looks_at_others = cx.now.ms_since(self.looked_us) >= LOOK_MS;
        if looks_at_others {
            self.looked_us = cx.now.monotonic_us;
            self.leaders.retain(|id, _| cx.groups.get(*id).is_some());
            self.begun.retain(|id, _| cx.groups.get(*id).is_some());
        }
        for (id, group) in cx.groups.iter().filter(|(id, _)| *id != CONTROL_GROUP) {
            let Some(replica) = group.replica.as_ref().filter(|_| group.keyspace.has_leader()) else {
                continue;
            };
            let before = self.leaders.get(&id).copied().unwrap_or(0);
            if !replica.is_leader() {
                // While there is no leader, the previous one is still of interest.
                if (looks_at_others || before == own)
                    && let leader = replica.summary(cx.now).leader
                    && leader != 0
                    && leader != own
                {
                    self.leaders.insert(id, leader);
                }
                continue;
            }
            if before == own {
                continue;
            }
            self.leaders.insert(id, own);
            *self.begun.entry(id).or_default() += 1;
            let silent_ms = cx.peers.get(before).map(|peer| peer.silent_ms(cx.now));
            let leadership = Leadership {
                unix_ms: cx.now.unix_ms,
                group: id,
                prefix: group.keyspace.prefix.clone(),
                shard: group.shard,
                from: before,
                to: own,
                epoch: replica.summary(cx.now).epoch,
                silent_ms,
            };
            push(&mut self.leaderships, LEADERSHIPS, leadership);
        }
    }

    /// How many leaderships of a group this node has begun.
    pub(crate) fn begun(&self, group: u16) -> u64 {
        self.begun.get(&group).copied().unwrap_or(0)
    }

    /// `CLUSTER EVENTS`.
    pub(crate) fn write(&self, out: &mut ReplyBuffer) {
        let events = Events { lines: &self.lines, leaderships: &self.leaderships };
        let text = serde_json::to_vec(&events).expect("events are made of numbers, strings and lists");
        out.push(Reply::Text(&text));
    }
}

fn push<T>(list: &mut VecDeque<T>, most: usize, item: T) {
    if list.len() >= most {
        list.pop_front();
    }
    list.push_back(item);
}

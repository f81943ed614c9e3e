//! Bounds on the memory of keyspaces: a leader refuses writes that do not fit, or removes keys to make room for them.
//!
//! What counts is the memory of the keys in one replica, with its index and its state of locks and queues
//! ([`kv::Table::memory_bytes`]), and of fragments that are in memory; not logs, snapshots under way, and values on
//! the disk. A keyspace's bound is divided among its shards. It lies within the node's own bound (`context/memory`),
//! which is measured and comes first.
//!
//! The decision is made where a command is ordered, since replicas may differ in memory. A removal is a command that
//! the leader orders in front of the write, so no write has to wait. Commands that are ordered and not applied count
//! by their length, and removals that are under way count as done. So the bound holds with two exceptions: what a
//! command takes beyond [`blocks_bytes_max`] of its own bytes and [`COMMAND_BYTES`] (many short keys in one command,
//! or steps in which the index grows), and removals that free nothing, since a write that was under way has changed
//! their key. Such an excess is removed for the next write.

use crate::context::Context;
use crate::context::memory::OUT_OF_MEMORY;
use crate::session::origin::Origin;
use kv::Command;
use kv::table::{COMMAND_BYTES, Eviction, blocks_bytes_max};
use protocol::planted::Fault;
use protocol::{Effects, Input, Request, Submission};

/// Most keys that are removed for one write, which takes a fraction of a millisecond.
const VICTIMS_MAX: usize = 256;

/// Most keys that are removed in a turn of a keyspace whose bound was lowered.
const EXCESS_VICTIMS_MAX: usize = 2000;

/// The error for a write that comes while a keyspace is far above its bound.
const EVICTING: &str = "TRYAGAIN OVERLOADED the keyspace is above its memory_max, and keys are being evicted; nothing was done, try again";

/// Room that is to be made in a group.
#[derive(Debug)]
pub(crate) struct Need {
    group: u16,
    /// The write that needs the room; `None`: the group is above its bound without a write.
    write: Option<Write>,
    /// How many keys were removed for this need.
    removed: usize,
}

/// A write that needs room.
#[derive(Debug)]
struct Write {
    /// By how many bytes the write may make the group larger.
    bytes: u64,
    may_grow: bool,
}

/// What to do next to make room.
#[derive(Debug)]
pub(crate) enum Next {
    /// The removal of a key was ordered. Its effects have to be carried out before [`Evictions::next`] is called
    /// again.
    Settle,
    /// There is room, or nothing more is removed in this turn.
    Done,
    /// There is no room: the error for the write's client. Nothing was done.
    Refused(&'static str),
}

impl Need {
    /// The room that a write needs.
    pub(crate) fn of(cx: &Context, group: u16, command: &Command<'_>) -> Need {
        let growth = match &cx.groups[group].replica {
            Some(replica) => command.growth_bytes(&replica.table().sizes(cx.now.unix_ms)),
            None => 0,
        };
        let bytes = (command.payload_bytes() as u64).saturating_add(growth);
        let bytes = blocks_bytes_max(bytes).saturating_add(COMMAND_BYTES as u64);
        Need {
            group,
            write: Some(Write { bytes, may_grow: command.may_grow() && !command.may_overfill() }),
            removed: 0,
        }
    }

    /// The room that a group lacks without a write.
    pub(crate) fn excess(cx: &mut Context, group: u16) -> Need {
        cx.groups[group].chooser.end_overdue(cx.now.monotonic_us);
        Need { group, write: None, removed: 0 }
    }

    /// The group that lacks room.
    pub(crate) fn group(&self) -> u16 {
        self.group
    }
}

/// Removes keys where the memory of a keyspace is bounded.
#[derive(Debug, Default)]
pub(crate) struct Evictions {
    /// The key that is being removed.
    victim: Vec<u8>,
}

impl Evictions {
    /// Removes one key if there is still too little room.
    pub(crate) fn next(&mut self, cx: &mut Context, effects: &mut Effects, need: &mut Need) -> Next {
        let excess = excess(cx, need.group, need.write.as_ref().map_or(0, |write| write.bytes));
        if excess <= 0 {
            return Next::Done;
        }
        let bound = cx.groups[need.group].keyspace.shard_memory_max();
        match &need.write {
            Some(write) if !write.may_grow => return Next::Done,
            Some(write) if write.bytes > bound => return Next::Refused(OUT_OF_MEMORY),
            // The write is much larger than what it replaces, or the bound was lowered.
            Some(_) if need.removed == VICTIMS_MAX => {
                return if excess > (bound / 16) as i64 { Next::Refused(EVICTING) } else { Next::Done };
            }
            None if need.removed == EXCESS_VICTIMS_MAX => {
                // The next turn goes on.
                cx.groups[need.group].next_tick_us = cx.now.monotonic_us;
                return Next::Done;
            }
            _ => {}
        }
        need.removed += 1;
        match (self.order_one(cx, effects, need.group), &need.write) {
            (true, _) => Next::Settle,
            (false, Some(_)) => Next::Refused(OUT_OF_MEMORY),
            (false, None) => Next::Done,
        }
    }

    /// Orders the removal of one key. Returns false if there is none to remove.
    fn order_one(&mut self, cx: &mut Context, effects: &mut Effects, id: u16) -> bool {
        let ignores_none = cx.configuration.planted.has(Fault::EvictsWithoutPolicy);
        let (now, group) = (cx.now, &mut cx.groups[id]);
        let eviction = match group.keyspace.eviction {
            Eviction::None if ignores_none => Eviction::Random,
            eviction => eviction,
        };
        let Some(replica) = &mut group.replica else { return false };
        let fragments = !group.keyspace.spills();
        let Some(victim) = replica.table().choose(eviction, now.unix_ms, &mut group.chooser, fragments)
        else {
            return false;
        };
        let deadline_us = now.monotonic_us + cx.configuration.command_timeout_ms * 1000;
        group.chooser.begin(&victim, deadline_us);
        self.victim.clear();
        self.victim.extend_from_slice(victim.key);
        let ticket = Origin::Eviction.ticket(victim.name);
        let request = &Request::Command(&Command::Evict { key: &self.victim, version: victim.version });
        let submission = Submission { ticket, request, follows: false, seen: 0, deadline_us, fenced: false };
        let stepped = replica.step(now, Input::Request(&submission), effects);
        debug_assert_eq!(stepped, Ok(()), "only a message can be malformed");
        true
    }
}

/// By how many bytes a group is above its bound if it takes `more`, less what evictions under way will free. 0 or
/// less at a replica that does not order writes.
fn excess(cx: &Context, id: u16, more: u64) -> i64 {
    let group = &cx.groups[id];
    let Some(replica) = &group.replica else { return 0 };
    if !replica.is_leader() && group.keyspace.has_leader() {
        return 0;
    }
    let (commands, bytes) = replica.unapplied();
    let applied = group.bounded_bytes().unwrap_or_default();
    let under_way = blocks_bytes_max(bytes as u64) + (commands * COMMAND_BYTES) as u64;
    let taken = (applied as u64 + under_way).saturating_add(more) as i64;
    taken - group.chooser.bytes() as i64 - group.keyspace.shard_memory_max() as i64
}

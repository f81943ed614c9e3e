//! Bounds on the memory of keyspaces: a leader refuses what does not fit, or removes keys for it.
//!
//! What counts is what keys take in the memory of one replica, its index and what it keeps of locks and queues included
//! ([`kv::Table::memory_bytes`]), and fragments that are in memory; not logs, snapshots under way, and values on the disk.
//! A keyspace's bound is divided among its shards. It lies within the node's own bound (`context/memory`), which is
//! measured and comes first.
//!
//! The decision is made where a command is ordered, since replicas may differ in memory. A removal is a command that the
//! leader orders in front of the write, so nothing waits for it. What is ordered and not applied counts by its length, and
//! removals that are under way count as done. So the bound holds but for what a command takes beyond its own bytes and
//! [`COMMAND_BYTES`]: many short keys in one, or steps in which the index grows.

use super::Node;
use crate::context::memory::OUT_OF_MEMORY;
use crate::origin::Origin;
use kv::Command;
use kv::table::{COMMAND_BYTES, Eviction};
use protocol::planted::Fault;
use protocol::{Input, Request};

/// Most keys that are removed for one write, which takes a fraction of a millisecond.
const VICTIMS_MAX: usize = 256;

/// Most keys that are removed in a turn of a keyspace whose bound was lowered.
const EXCESS_VICTIMS_MAX: usize = 2000;

/// The error for a write that comes while a keyspace is far above its bound.
const EVICTING: &str = "TRYAGAIN OVERLOADED the keyspace is above its memory_max, and keys are being evicted; nothing was done, try again";

impl Node {
    /// By how many bytes a group is above its bound if it takes `more`, less what evictions under way will free. 0 or less
    /// unless it is the replica here that orders writes.
    fn excess(&self, id: u16, more: u64) -> i64 {
        let group = &self.cx.groups[id];
        let Some(replica) = &group.replica else { return 0 };
        if !replica.is_leader() && group.keyspace.has_leader() {
            return 0;
        }
        let (commands, bytes) = replica.unapplied();
        let applied = group.bounded_bytes().unwrap_or_default();
        let taken = applied + bytes + commands * COMMAND_BYTES;
        let taken = (taken as u64).saturating_add(more) as i64;
        taken - group.chooser.bytes() as i64 - group.keyspace.shard_memory_max() as i64
    }

    /// Makes room for a write in a group with a bound on memory. Returns the error for its client, if there is no room:
    /// nothing was done then.
    #[inline(never)]
    pub(crate) fn make_room(&mut self, id: u16, command: &Command<'_>) -> Option<&'static str> {
        let replica = self.cx.groups[id].replica.as_ref();
        let bytes_of = |key: &[u8]| replica.map_or(0, |replica| replica.table().bytes_of(key));
        let own = (command.payload_bytes() + COMMAND_BYTES) as u64;
        let own = own.saturating_add(command.growth_bytes(&bytes_of));
        match self.excess(id, own) {
            ..=0 => None,
            _ => self.evict_for(id, command, own),
        }
    }

    #[cold]
    fn evict_for(&mut self, id: u16, command: &Command<'_>, own: u64) -> Option<&'static str> {
        if !command.may_grow() || command.may_overfill() {
            return None;
        }
        let bound = self.cx.groups[id].keyspace.shard_memory_max();
        if own > bound {
            return Some(OUT_OF_MEMORY);
        }
        for _ in 0..VICTIMS_MAX {
            if !self.evict_one(id) {
                return Some(OUT_OF_MEMORY);
            }
            if self.excess(id, own) <= 0 {
                return None;
            }
        }
        // Much larger than what it replaces, or the bound was lowered.
        (self.excess(id, own) > (bound / 16) as i64).then_some(EVICTING)
    }

    /// Removes some keys of a group that is above its bound though nothing is written.
    #[inline(never)]
    pub(crate) fn evict_excess(&mut self, id: u16) {
        self.cx.groups[id].chooser.end_overdue(self.cx.now.monotonic_us);
        for _ in 0..EXCESS_VICTIMS_MAX {
            if self.excess(id, 0) <= 0 || !self.evict_one(id) {
                return;
            }
        }
        // The next turn goes on.
        self.cx.groups[id].next_tick_us = self.cx.now.monotonic_us;
    }

    /// Orders the removal of one key. Returns false if there is none to remove.
    fn evict_one(&mut self, id: u16) -> bool {
        let ignores_none = self.cx.configuration.planted.has(Fault::EvictsWithoutPolicy);
        let (now, effects) = (self.cx.now, &mut self.effects);
        let group = &mut self.cx.groups[id];
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
        let deadline_us = now.monotonic_us + self.cx.configuration.command_timeout_ms * 1000;
        group.chooser.begin(&victim, deadline_us);
        let mut key = std::mem::take(&mut self.victim);
        key.clear();
        key.extend_from_slice(victim.key);
        let version = victim.version;
        let ticket = Origin::Eviction.ticket(victim.name);
        let request = Request::Command(Command::Evict { key: &key, version });
        let input =
            Input::Request { ticket, request: &request, follows: false, seen: 0, deadline_us, fenced: false };
        let stepped = replica.step(now, input, effects);
        debug_assert_eq!(stepped, Ok(()), "only a message can be malformed");
        self.victim = key;
        self.settle(id);
        true
    }
}

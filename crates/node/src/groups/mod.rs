//! The groups that this node knows, by number. Numbers are never reused, so there are gaps.

mod commits;
mod granted;
pub(crate) mod replica;

use crate::disk::journal::Tail;
use crate::session::origin::Asked;
use cluster::control::FatalRecord;
use cluster::keyspace::{Database, Keyspace, Router};
use cluster::setting::CodingSettings;
use commands::statistics::Latencies;
use commits::{ApplyTimes, CommitTimes};
use granted::Granted;
use kv::Command;
use kv::table::{Chooser, Eviction};
use protocol::{Configuration, NodeId, Now};
use replica::Replica;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Index, IndexMut};

/// The replicas of one shard.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) keyspace: Keyspace,
    /// The number of the shard in the keyspace.
    pub(crate) shard: u16,
    pub(crate) members: Vec<NodeId>,
    /// The leader, where the map names it.
    pub(crate) leader: NodeId,
    /// The leader that other nodes last reported. 0: none.
    pub(crate) reported_leader: NodeId,
    /// The node that last refused a forwarded request: the next one to ask comes after it. 0: none.
    pub(crate) refused_by: NodeId,
    /// How large values are kept as fragments; `None` if they are not.
    pub(crate) coding: Option<CodingSettings>,
    /// For members that keep fragments of large values: the membership in which they last reported whether any is
    /// missing, and whether none was.
    pub(crate) lacking: BTreeMap<NodeId, (u32, bool)>,
    /// This node's replica, if it has one.
    pub(crate) replica: Option<Replica>,
    /// The record before which the replica is stopped.
    pub(crate) holds: Option<FatalRecord>,
    /// The evictions that this node has ordered here, as leader.
    pub(crate) chooser: Chooser,
    /// Whether this process has found the group in its log: then it has been used before.
    pub(crate) is_older: bool,
    /// When the group began again, empty, since all of its members had forgotten what they held: milliseconds since 1970. 0:
    /// not since this process was started.
    pub(crate) began_empty_ms: u64,
    /// Whether the node's log holds anything of the group.
    pub(crate) is_recorded: bool,
    /// The configuration that the replica was last given.
    pub(crate) configured: Option<Configuration>,
    /// The state of the group's records in the log.
    pub(crate) tail: Tail,
    pub(crate) next_tick_us: u64,
    /// Whether the group is quiescent: nothing happens in it before an input comes, and turns skip it.
    is_quiescent: bool,
    /// Latencies of the commands that the group has carried out for this node's clients, from request to reply.
    pub(crate) latency: Latencies,
    /// How long its replica here takes to commit writes.
    pub(crate) commits: CommitTimes,
    /// How long its replica here takes to apply the records that it holds.
    pub(crate) applies: ApplyTimes,
    /// Requests that no node can take now.
    pub(crate) waiting: VecDeque<Kept>,
    /// The forwarded requests that have no outcome yet, counted by node and leadership.
    under_way: Vec<UnderWay>,
    /// The bounds of writes that this node has ordered here, as leader.
    pub(crate) granted: Granted,
}

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) asked: Asked,
    pub(crate) request: Vec<u8>,
    pub(crate) until_us: u64,
    /// The request's number among all forwarded requests, if it was forwarded: see `Forwarded`. Otherwise the request
    /// came later than those.
    pub(crate) number: u64,
    /// It waits for keys that are locked, or behind such a request of its client: those of others go on.
    pub(crate) is_for_keys: bool,
    /// The error for its client when its time is over.
    pub(crate) why: String,
}

/// How many requests of a group were forwarded to one node, for one leadership (0: any), and have no outcome yet; at
/// least one.
#[derive(Debug)]
struct UnderWay {
    at: NodeId,
    leadership: u64,
    count: u32,
}

impl Group {
    pub(crate) fn new(keyspace: Keyspace, shard: u16) -> Group {
        Group {
            tail: Tail::new(keyspace.durability()),
            keyspace,
            shard,
            members: Vec::new(),
            coding: None,
            lacking: BTreeMap::new(),
            leader: 0,
            reported_leader: 0,
            refused_by: 0,
            replica: None,
            is_older: false,
            began_empty_ms: 0,
            is_recorded: false,
            holds: None,
            chooser: Chooser::default(),
            configured: None,
            next_tick_us: 0,
            is_quiescent: false,
            latency: Latencies::default(),
            commits: CommitTimes::default(),
            applies: ApplyTimes::default(),
            waiting: VecDeque::new(),
            under_way: Vec::new(),
            granted: Granted::default(),
        }
    }

    /// Counts a request that is forwarded to a node, for a leadership (0: any).
    #[inline]
    pub(crate) fn forwarded(&mut self, at: NodeId, leadership: u64) {
        match self.under_way.iter_mut().find(|it| (it.at, it.leadership) == (at, leadership)) {
            Some(it) => it.count += 1,
            None => self.under_way.push(UnderWay { at, leadership, count: 1 }),
        }
    }

    /// Counts a forwarded request no more. Returns whether it was the last one of that node and leadership.
    pub(crate) fn answered(&mut self, at: NodeId, leadership: u64) -> bool {
        let place = self.under_way.iter().position(|it| (it.at, it.leadership) == (at, leadership));
        let Some(place) = place else { return false };
        self.under_way[place].count -= 1;
        let is_last = self.under_way[place].count == 0;
        if is_last {
            self.under_way.swap_remove(place);
        }
        is_last
    }

    /// Whether requests are under way to another node, or for another leadership.
    pub(crate) fn has_others_under_way(&self, at: NodeId, leadership: u64) -> bool {
        self.under_way.iter().any(|it| (it.at, it.leadership) != (at, leadership))
    }

    /// Whether no forwarded request of it is under way.
    #[inline]
    pub(crate) fn has_none_under_way(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether a node has requests of this group to answer.
    pub(crate) fn has_under_way(&self, at: NodeId) -> bool {
        self.under_way.iter().any(|under_way| under_way.at == at)
    }

    /// Whether requests of it wait, or other nodes have some to answer.
    #[inline]
    pub(crate) fn has_requests_elsewhere(&self) -> bool {
        !(self.waiting.is_empty() && self.under_way.is_empty())
    }

    /// The leadership of this node's replica, if that leads: its number differs from those of its earlier ones.
    pub(crate) fn leads_in(&self) -> Option<u64> {
        let replica = self.replica.as_ref().filter(|replica| replica.is_leader())?;
        replica.leads_in().or_else(|| self.configured.as_ref().map(|configured| configured.epoch))
    }

    /// Whether turns may skip the group.
    fn may_be_quiescent(&self) -> bool {
        self.tail.is_settled() && self.replica.as_ref().is_none_or(|replica| replica.is_resting())
    }

    /// The part of a bound on memory that the applied data of its replica here takes, in bytes.
    pub(crate) fn bounded_bytes(&self) -> Option<usize> {
        let table = self.replica.as_ref()?.table();
        let fragments = if self.keyspace.spills() { 0 } else { table.fragment_bytes() };
        Some(table.memory_bytes() + fragments)
    }

    /// Whether its bound on memory is exceeded here, no key may be evicted, and a command may take more.
    pub(crate) fn is_too_full_for(&self, command: &Command<'_>) -> bool {
        let is_above = || self.bounded_bytes().is_some_and(|it| it as u64 > self.keyspace.shard_memory_max());
        let is_bounded = self.keyspace.memory_max > 0 && self.keyspace.eviction == Eviction::None;
        is_bounded && command.may_grow() && is_above()
    }

    /// The group's name in messages.
    pub(crate) fn name(&self) -> String {
        match self.keyspace.shards {
            1 => self.keyspace.name().to_string(),
            _ => format!("{} shard {}", self.keyspace.name(), self.shard),
        }
    }
}

/// The groups of a node.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    by_id: Vec<Option<Group>>,
    /// The numbers of the groups that exist, in ascending order.
    ids: Vec<u16>,
    /// The same, and those that are dismissed, in ascending order.
    all: Vec<u16>,
    /// The groups in `all` that are not quiescent, in ascending order.
    active: Vec<u16>,
    /// Groups that became active since the last turn ended.
    activated: Vec<u16>,
    /// Groups of dropped keyspaces, and when they are removed.
    dismissed: Vec<(u16, u64)>,
    /// Which group has a key.
    router: Router,
}

impl Groups {
    /// Which group has a key.
    #[inline]
    pub(crate) fn router(&self) -> &Router {
        &self.router
    }

    pub(crate) fn set_router(&mut self, router: Router) {
        self.router = router;
    }

    /// Returns the group with this number, and makes it if there is none.
    pub(crate) fn entry(&mut self, id: u16, make: impl FnOnce() -> Group) -> &mut Group {
        let place = usize::from(id);
        if self.by_id.len() <= place {
            self.by_id.resize_with(place + 1, || None);
        }
        if let Err(at) = self.all.binary_search(&id) {
            self.all.insert(at, id);
        }
        if let Err(at) = self.ids.binary_search(&id) {
            self.ids.insert(at, id);
        }
        if self.by_id[place].is_none() {
            self.activated.push(id);
        }
        self.by_id[place].get_or_insert_with(make)
    }

    /// Hides a group from all requests from now on, and has it removed at `at_us`.
    pub(crate) fn dismiss(&mut self, id: u16, at_us: u64) {
        self.ids.retain(|other| *other != id);
        self.dismissed.push((id, at_us));
    }

    /// A dismissed group that is due to be removed.
    pub(crate) fn next_dismissed(&self, now_us: u64) -> Option<u16> {
        self.dismissed.iter().find(|(_, at_us)| *at_us <= now_us).map(|(id, _)| *id)
    }

    /// Removes a dismissed group.
    pub(crate) fn remove_dismissed(&mut self, id: u16) {
        self.dismissed.retain(|(other, _)| *other != id);
        self.all.retain(|other| *other != id);
        self.active.retain(|other| *other != id);
        self.activated.retain(|other| *other != id);
        self.by_id[usize::from(id)] = None;
    }

    /// Makes a group active, since it was given an input.
    #[inline]
    pub(crate) fn touch(&mut self, id: u16) {
        if let Some(group) = self.get_mut(id)
            && group.is_quiescent
        {
            group.is_quiescent = false;
            self.activated.push(id);
        }
    }

    /// The number at a place among the groups that are not quiescent: for loops that change groups. Groups that
    /// become active during such a loop come at the end.
    #[inline]
    pub(crate) fn active_at(&self, place: usize) -> Option<u16> {
        let activated = || self.activated.get(place - self.active.len());
        self.active.get(place).or_else(activated).copied()
    }

    /// The groups that are not quiescent.
    pub(crate) fn active(&self) -> impl Iterator<Item = &Group> {
        self.active.iter().chain(&self.activated).filter_map(|id| self.get(*id))
    }

    /// Extends the node's lease. Quiescent groups take it and stay quiescent.
    pub(crate) fn extend_leases(&mut self, until_us: u64) {
        for group in self.by_id.iter_mut().flatten().filter(|group| group.is_quiescent) {
            if let Some(replica) = &mut group.replica {
                replica.extend_lease(until_us);
            }
        }
    }

    /// Ends a turn: notes when each group wants its next tick, and which groups are quiescent from now on.
    pub(crate) fn end_turn(&mut self, now: Now) {
        while let Some(id) = self.activated.pop() {
            if let Err(at) = self.active.binary_search(&id) {
                self.active.insert(at, id);
            }
        }
        let Groups { active, by_id, .. } = self;
        active.retain(|id| {
            let Some(group) = &mut by_id[usize::from(*id)] else { return false };
            if let Some(replica) = &group.replica {
                group.next_tick_us = group.next_tick_us.min(replica.wakeup_us(now));
                if let Some(progress) = replica.held_and_applied() {
                    group.applies.look(progress, now);
                }
            }
            group.is_quiescent = group.may_be_quiescent();
            if group.is_quiescent {
                group.next_tick_us = u64::MAX;
            }
            !group.is_quiescent
        });
    }

    /// The numbers of the groups, in ascending order.
    #[inline]
    pub(crate) fn ids(&self) -> &[u16] {
        &self.ids
    }

    /// The number at a place among all groups, including those that are dismissed: for loops that change groups.
    #[inline]
    pub(crate) fn id_at(&self, place: usize) -> Option<u16> {
        self.all.get(place).copied()
    }

    /// The first number, at least `id`, of a group of a database that may hold keys with this beginning.
    pub(crate) fn from(&self, id: u16, database: &Database, start: &[u8]) -> Option<u16> {
        let groups = database.groups_of_beginning(start);
        groups.filter(|it| *it >= id && self.ids.binary_search(it).is_ok()).min()
    }

    #[inline]
    pub(crate) fn get(&self, id: u16) -> Option<&Group> {
        self.by_id.get(usize::from(id))?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u16) -> Option<&mut Group> {
        self.by_id.get_mut(usize::from(id))?.as_mut()
    }

    /// What the tables of all replicas have counted since they were made.
    pub(crate) fn statistics(&self) -> kv::Statistics {
        let replicas = self.iter().filter_map(|(_, group)| group.replica.as_ref());
        replicas.map(|replica| replica.table().statistics()).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &Group)> + Clone {
        self.ids.iter().filter_map(|id| Some((*id, self.get(*id)?)))
    }
}

/// Panics unless the group exists: the caller has its number from this node's map, in the same turn.
impl Index<u16> for Groups {
    type Output = Group;

    #[inline]
    fn index(&self, id: u16) -> &Group {
        self.by_id[usize::from(id)].as_ref().expect("the group is in this node's map")
    }
}

impl IndexMut<u16> for Groups {
    #[inline]
    fn index_mut(&mut self, id: u16) -> &mut Group {
        self.by_id[usize::from(id)].as_mut().expect("the group is in this node's map")
    }
}

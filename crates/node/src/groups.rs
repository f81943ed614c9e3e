//! The groups that this node knows of, by their numbers. Numbers are never used twice, so that there are gaps.

use crate::coding::CodingSettings;
use crate::control::FatalRecord;
use crate::journal::Tail;
use crate::keyspace::Keyspace;
use crate::replica::Replica;
use crate::waiting::Kept;
use protocol::{Configuration, NodeId, Now};
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Index, IndexMut};

/// One shard's replicas.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) keyspace: Keyspace,
    /// Which shard of the keyspace.
    pub(crate) shard: u16,
    pub(crate) members: Vec<NodeId>,
    /// Who leads, where the map says so.
    pub(crate) leader: NodeId,
    /// Who leads, as this node was last told by others. 0: nobody has said.
    pub(crate) leader_told: NodeId,
    /// Who refused last what was passed on to it: the next one is asked behind it. 0: nobody has.
    pub(crate) refused_by: NodeId,
    /// What is done with large values; none: nothing.
    pub(crate) coding: Option<CodingSettings>,
    /// Of members that keep fragments of large values: in which membership they said last whether any is missing, and
    /// whether none was.
    pub(crate) lacking: BTreeMap<NodeId, (u32, bool)>,
    /// This node's replica, if it has one.
    pub(crate) replica: Option<Replica>,
    /// The record before which it stands still.
    pub(crate) holds: Option<FatalRecord>,
    /// The node's log holds something of it.
    pub(crate) is_recorded: bool,
    /// What that was told last.
    pub(crate) told: Option<Configuration>,
    /// What it has in the log.
    pub(crate) tail: Tail,
    pub(crate) next_tick_us: u64,
    /// Nothing happens in it, and nothing will before something comes: turns pass it by.
    rests: bool,
    /// Requests that nobody can be asked now.
    pub(crate) waiting: VecDeque<Kept>,
    /// How many requests other nodes were asked that have no outcome yet, by node.
    pub(crate) under_way: Vec<UnderWay>,
}

/// How many requests of a group were passed on to one node, for one leadership (0: any), and have no outcome yet: at least one.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(crate) at: NodeId,
    pub(crate) leadership: u64,
    pub(crate) count: u32,
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
            leader_told: 0,
            refused_by: 0,
            replica: None,
            is_recorded: false,
            holds: None,
            told: None,
            next_tick_us: 0,
            rests: false,
            waiting: VecDeque::new(),
            under_way: Vec::new(),
        }
    }

    /// True while a node has requests of this group to answer.
    pub(crate) fn has_under_way(&self, at: NodeId) -> bool {
        self.under_way.iter().any(|under_way| under_way.at == at)
    }

    /// Whether turns may pass it by.
    fn may_rest(&self) -> bool {
        self.tail.is_settled() && self.replica.as_ref().is_none_or(|replica| replica.is_resting())
    }

    /// What people call it.
    pub(crate) fn name(&self) -> String {
        match self.keyspace.shards {
            1 => self.keyspace.name().to_string(),
            _ => format!("{} shard {}", self.keyspace.name(), self.shard),
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    by_id: Vec<Option<Group>>,
    /// Those that there are, in ascending order.
    ids: Vec<u16>,
    /// Those, and the ones that are to go.
    all: Vec<u16>,
    /// Those of all that do not rest, in ascending order.
    awake: Vec<u16>,
    /// And those that have been given something since the last turn ended.
    woken: Vec<u16>,
    /// Groups of keyspaces that were dropped, and when they are let go.
    dismissed: Vec<(u16, u64)>,
}

impl Groups {
    /// The group with this number, made if it is not there.
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
            self.woken.push(id);
        }
        self.by_id[place].get_or_insert_with(make)
    }

    /// A group is not there any more for whoever asks from now on, and is let go at that time.
    pub(crate) fn dismiss(&mut self, id: u16, at_us: u64) {
        self.ids.retain(|other| *other != id);
        self.dismissed.push((id, at_us));
    }

    /// A group whose time has come.
    pub(crate) fn next_dismissed(&self, now_us: u64) -> Option<u16> {
        self.dismissed.iter().find(|(_, at_us)| *at_us <= now_us).map(|(id, _)| *id)
    }

    /// Lets go of it.
    pub(crate) fn remove_dismissed(&mut self, id: u16) {
        self.dismissed.retain(|(other, _)| *other != id);
        self.all.retain(|other| *other != id);
        self.awake.retain(|other| *other != id);
        self.woken.retain(|other| *other != id);
        self.by_id[usize::from(id)] = None;
    }

    /// A group has been given something.
    #[inline]
    pub(crate) fn touch(&mut self, id: u16) {
        if let Some(group) = self.get_mut(id)
            && group.rests
        {
            group.rests = false;
            self.woken.push(id);
        }
    }

    /// The number at a place among those that do not rest: for loops that change groups. Those that are woken meanwhile come
    /// at the end.
    #[inline]
    pub(crate) fn awake_at(&self, place: usize) -> Option<u16> {
        let woken = || self.woken.get(place - self.awake.len());
        self.awake.get(place).or_else(woken).copied()
    }

    /// Those that do not rest.
    pub(crate) fn awake(&self) -> impl Iterator<Item = &Group> {
        self.awake.iter().chain(&self.woken).filter_map(|id| self.get(*id))
    }

    /// The node's lease lasts longer. Those that rest hear of it without being woken.
    pub(crate) fn extend_leases(&mut self, until_us: u64) {
        for group in self.by_id.iter_mut().flatten().filter(|group| group.rests) {
            if let Some(replica) = &mut group.replica {
                replica.extend_lease(until_us);
            }
        }
    }

    /// A turn ends: when each wants its next tick, and who rests from now on.
    pub(crate) fn end_turn(&mut self, now: Now) {
        while let Some(id) = self.woken.pop() {
            if let Err(at) = self.awake.binary_search(&id) {
                self.awake.insert(at, id);
            }
        }
        let Groups { awake, by_id, .. } = self;
        awake.retain(|id| {
            let Some(group) = &mut by_id[usize::from(*id)] else { return false };
            if let Some(replica) = &group.replica {
                group.next_tick_us = group.next_tick_us.min(replica.wakeup_us(now));
            }
            group.rests = group.may_rest();
            if group.rests {
                group.next_tick_us = u64::MAX;
            }
            !group.rests
        });
    }

    /// Their numbers, in ascending order.
    #[inline]
    pub(crate) fn ids(&self) -> &[u16] {
        &self.ids
    }

    /// The number at a place among all, those that are to go included: for loops that change groups.
    #[inline]
    pub(crate) fn id_at(&self, place: usize) -> Option<u16> {
        self.all.get(place).copied()
    }

    /// The first number that is at least `id`.
    pub(crate) fn from(&self, id: u16) -> Option<u16> {
        self.ids.get(self.ids.partition_point(|other| *other < id)).copied()
    }

    #[inline]
    pub(crate) fn get(&self, id: u16) -> Option<&Group> {
        self.by_id.get(usize::from(id))?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u16) -> Option<&mut Group> {
        self.by_id.get_mut(usize::from(id))?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &Group)> + Clone {
        self.ids.iter().filter_map(|id| Some((*id, self.get(*id)?)))
    }
}

/// Of one that there is: whoever has its number from this node's map, in the same turn.
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

//! The folder of a stopped node, for a recovery: what it holds, and what is written into it.
//!
//! Nothing is overwritten: a [`Plan`]'s decisions for a node become records after those that it has.

use super::opening::{Opened, read_log};
use crate::context::Context;
use crate::disk::journal::Tail;
use crate::disk::start_error::StartError;
use crate::groups::replica::Replica;
use cluster::configuration::Configuration;
use cluster::control::{CONTROL_GROUP, Control, GroupId, MAP_GROUP};
use cluster::recovery::{Heard, Plan, Stand, Survivor};
use kv::{Command, SKIPPED_VERSIONS};
use protocol::Now;
use protocol::consensus::Found;
use protocol::leader_follower::Durability;
use protocol::planted::Fault;
use std::sync::Arc;
use storage::{Disk, DiskError, ValueName, ValueStore};

/// The contents of the folder of a node that does not run.
pub struct Folder {
    opened: Opened,
    survivor: Survivor,
}

/// A store for a folder whose large values are not looked up: the log refers to them, and the node's next start
/// checks that they exist.
struct NotLookedAt;

impl ValueStore for NotLookedAt {
    fn put(&mut self, _: &[(ValueName, Arc<Vec<u8>>)]) -> Result<(), DiskError> {
        Ok(())
    }

    fn get(&mut self, _: &ValueName) -> Result<Option<Vec<u8>>, DiskError> {
        Ok(None)
    }

    fn remove(&mut self, _: &[ValueName]) -> Result<(), DiskError> {
        Ok(())
    }

    fn persist(&mut self) -> Result<(), DiskError> {
        Ok(())
    }

    fn names(&mut self, _: &ValueName, _: &mut dyn FnMut(ValueName) -> bool) -> Result<(), DiskError> {
        Ok(())
    }
}

impl Folder {
    /// Reads what the disk of a node holds. The node must not run. A torn end of the log is cut off, as at a start.
    ///
    /// # Errors
    /// [`StartError`]: what would keep the node from starting.
    pub fn read<D: Disk>(configuration: Configuration, disk: &mut D, now: Now) -> Result<Folder, StartError> {
        let opened = read_log(configuration, disk, (Some(&mut NotLookedAt), false), None, now)?;
        let Opened { cx, control, .. } = &opened;
        let mut survivor = Survivor {
            node: cx.configuration.node,
            cluster: cx.configuration.cluster.clone(),
            log: cx.configuration.identity,
            openings: cx.configuration.life - 1,
            end: cx.journal.durable(),
            map: (**control.map()).clone(),
            stands: Default::default(),
            heard: control.heard().map(|(node, start, durable)| (node, Heard { start, durable })).collect(),
        };
        survivor.stands.extend(control.keeps().map(|found| (CONTROL_GROUP, of_consensus(found))));
        for (id, group) in cx.groups.iter() {
            if let Some(replica) = &group.replica {
                survivor.stands.insert(id, stand_of(replica));
            }
        }
        Ok(Folder { opened, survivor })
    }

    /// What the folder holds.
    pub fn survivor(&self) -> &Survivor {
        &self.survivor
    }

    /// Writes a plan's decisions for this node, and returns when they are durable.
    ///
    /// # Errors
    /// The reason, as a sentence. Then the node must not be started before the same has been done again.
    ///
    /// # Panics
    /// When the plan was made for another state of this folder.
    pub fn write<D: Disk>(self, plan: &Plan, disk: &mut D, now: Now) -> Result<(), String> {
        let Folder { opened, survivor } = self;
        let Opened { mut cx, control, .. } = opened;
        assert!(plan.map.version > survivor.map.version, "the plan is older than the folder");
        // All records are in one tail: what counts is when the last one is durable. The map comes first. If nothing
        // after the map is written, the node waits in the new lineage for a group that never begins; in the other
        // order, it would lead alone in the old lineage.
        let mut tail = Tail::new(Durability::Fsync);
        cx.journal.append(MAP_GROUP, &mut tail, [&plan.map.encode(), &[]]);
        for id in plan.alone_at(survivor.node) {
            for record in records(&cx, &control, plan, id) {
                cx.journal.append(id, &mut tail, [&record, &[]]);
            }
        }
        let (mut lines, mut work) = (Vec::new(), Vec::new());
        loop {
            let is_settled = cx.journal.settle(now, &mut lines);
            if let Some(why) = cx.journal.stopped() {
                return Err(why.to_owned());
            }
            if cx.journal.is_full() {
                let why = lines.pop().map_or_else(|| "the disk is full".into(), |line| line.text);
                return Err(format!("{why}; free room on the disk, and do it again"));
            }
            if is_settled {
                return Ok(());
            }
            cx.journal.take_work(&mut work);
            for piece in work.drain(..) {
                let result = piece.run(disk);
                cx.journal.work_finished(piece, result, now, &mut lines);
            }
        }
    }
}

/// The records by which this node becomes the only member of a group. Lost replicas may have given versions after all
/// that is left here, as tokens of locks or to readers of changes: none of these versions is given again.
fn records(cx: &Context, control: &Control, plan: &Plan, id: GroupId) -> Vec<Vec<u8>> {
    if id == CONTROL_GROUP {
        return control.alone(&plan.map);
    }
    let keeps = cx.configuration.planted.has(Fault::RecoveryKeepsVersions);
    let skip = [Command::SkipVersions { by: if keeps { 0 } else { SKIPPED_VERSIONS } }];
    let epoch = plan.map.groups.get(&id).map_or(0, |group| group.epoch);
    match cx.groups.get(id).and_then(|group| group.replica.as_ref()) {
        Some(Replica::Consensus(replica)) => {
            let number = u32::try_from(epoch).expect("the plan has the numbers of configurations");
            vec![replica.alone(number, &skip)]
        }
        // A replica that keeps no records has nothing to which they could be added, and begins empty.
        Some(Replica::LeaderFollower(replica)) if plan.map.keeps_records(id) => {
            vec![replica.alone(epoch - 1, &skip)]
        }
        _ => Vec::new(),
    }
}

fn stand_of(replica: &Replica) -> Stand {
    match replica {
        Replica::Consensus(replica) => of_consensus(replica.found()),
        Replica::LeaderFollower(replica) => {
            let (position, epoch, is_whole) = replica.recorded();
            Stand {
                rank: [position.epoch, position.offset, 0, 0, 0],
                members: Vec::new(),
                is_whole,
                commands: position.offset,
                epoch,
            }
        }
        Replica::Abd(_) | Replica::Blocking(_) => Stand { is_whole: true, ..Stand::default() },
    }
}

fn of_consensus(found: Found) -> Stand {
    Stand {
        rank: found.rank,
        members: found.members,
        is_whole: found.has_vote,
        commands: found.commands,
        epoch: found.newest.into(),
    }
}

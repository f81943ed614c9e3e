//! A majority of the control nodes is lost for good, and an operator recovers the cluster from the folders that are left
//! (`cluster::recovery`, and `quorate recover`).

use super::World;
use super::healing::{LOOK_US, Phase};
use crate::events::{Event, Place};
use crate::faults::{Class, MS, Mask, Order, SECOND, has};
use crate::report::Broken;
use crate::trace::id;
use cluster::control::CONTROL_GROUP;
use cluster::recovery::{Fate, Plan, Survivor};
use node::Folder;
use std::rc::Rc;
use storage::simulated::{SimulatedDisk, Survivors, Trouble};
use wire::lineage::{is_left_behind, meets};
use wire::release::RELEASES;

/// The error of a recovery when no node could continue.
const NOTHING_LEFT: &str = "no node is left that could hold the cluster's map";

impl World {
    /// Stops all machines, takes some of them away for good, and recovers the cluster from the others' folders. Ends all
    /// faults. Returns false, and starts all machines again as after a loss of power, if the others need no recovery or
    /// could not go on after one.
    pub(super) fn lose_majority(&mut self, lost: Mask, again: Option<u8>) -> bool {
        let present: Vec<Place> =
            self.places().filter(|place| !self.hosts[usize::from(*place)].is_gone()).collect();
        if !self.may_be_recovered() || present.iter().all(|place| has(lost, *place)) {
            self.counts.add(Class::DiskSpared);
            return false;
        }
        self.heal();
        for place in &present {
            self.host(*place).is_kept_down = true;
            match self.hosts[usize::from(*place)].is_alive() {
                true => self.die(*place, 0, true, Some(Survivors::Random)),
                false => self.host(*place).disk.files.lose_power(Survivors::Random),
            }
        }
        let (lost, left): (Vec<Place>, Vec<Place>) = present.iter().partition(|place| has(lost, **place));
        let plan = self.plan(&left);
        if let Some((plan, found)) = &plan {
            self.carry_out(plan, found, &left, &lost, again);
        }
        let started = if plan.is_some() { left } else { present };
        for place in started {
            let after_us = self.random.below(SECOND);
            let host = self.host(place);
            host.is_kept_down = false;
            let incarnation = host.incarnation;
            self.queue.push(self.now + after_us, Event::Restart { node: place, incarnation });
        }
        self.queue.push(self.now + LOOK_US, Event::Progress);
        plan.is_some()
    }

    /// Whether the folders of all machines, together, hold all that was acknowledged.
    fn may_be_recovered(&mut self) -> bool {
        self.notice_repairs();
        let is_lost = |host: &crate::host::Host| host.is_lost || host.is_refilling || host.rotten.is_some();
        !self.hosts.iter().any(is_lost)
            && self.open_order().is_none()
            && self.unsettled().is_none()
            && self.promised().all(|(.., space)| space.is_recoverable())
    }

    /// What the folders of these nodes hold, and the plan that an operator makes; `None` if the operator would not recover.
    fn plan(&mut self, left: &[Place]) -> Option<(Plan, Vec<Survivor>)> {
        let mut found = Vec::new();
        for place in left {
            let mut files = self.host(*place).disk.files.clone();
            match self.folder(*place, &mut files) {
                Ok(folder) => found.push(folder.survivor().clone()),
                Err(why) => {
                    self.fail(Broken::Storage, format!("the folder of node {}: {why}", id(*place)));
                    return None;
                }
            }
        }
        match Plan::new(&found) {
            Ok(plan) => {
                let goes_on = |fate| matches!(fate, Fate::GoesOn | Fate::Alone { .. });
                let is_wanted = !plan.is_needless() && plan.groups.iter().all(|group| goes_on(group.fate));
                is_wanted.then_some((plan, found))
            }
            Err(why) => {
                if !why.contains(NOTHING_LEFT) {
                    self.fail(Broken::Safety, format!("the cluster cannot be recovered: {why}"));
                }
                None
            }
        }
    }

    fn folder(&mut self, place: Place, files: &mut SimulatedDisk) -> Result<Folder, String> {
        let configuration = self.configuration(place, 0, RELEASES);
        let now = self.hosts[usize::from(place)].clock.read(self.now);
        Folder::read(configuration, files, now).map_err(|why| why.to_string())
    }

    fn carry_out(
        &mut self,
        plan: &Plan,
        found: &[Survivor],
        left: &[Place],
        lost: &[Place],
        mut again: Option<u8>,
    ) {
        for (place, found) in left.iter().zip(found) {
            // The operator has a copy of each folder.
            let copy = self.host(*place).disk.files.clone();
            while let Err(why) = self.write(*place, plan, found, again.take()) {
                if !self.host(*place).disk.files.is_off() {
                    let words = format!("the folder of node {} cannot be written: {why}", id(*place));
                    return self.fail(Broken::Storage, words);
                }
                self.tell_of(*place, "loses its power while its folder is written, and gets back the copy");
                self.host(*place).disk.files = copy.clone();
            }
            self.host(*place).is_damaged = true;
        }
        for group in plan.groups.iter().filter(|group| !group.survives && group.group != CONTROL_GROUP) {
            let words = format!(
                "a recovery: {} of {:?}: {:?}, {}",
                group.shard, group.keyspace, group.fate, group.loss
            );
            self.trace.tell(self.now, format_args!("{words}"));
            let spaces = self.scenario.spaces.iter().zip(&mut self.recovered);
            spaces
                .filter(|(space, _)| space.keyspace.prefix == group.keyspace)
                .for_each(|(_, recovered)| *recovered = true);
        }
        self.take_map(Rc::new(plan.map.clone()));
        self.recovered_at = Some(self.now);
        for place in lost {
            let host = self.host(*place);
            (host.is_lost, host.is_refilling, host.was_durable) = (true, true, None);
        }
        let lasts_us = self.random.scaled(100 * MS, 5 * SECOND);
        // Only one of the lost nodes returns with its old state: several might be a majority of the old cluster, if they met
        // first.
        if self.random.percent(60) {
            let place = lost[self.random.below(lost.len() as u64) as usize];
            let after_us = self.random.below(lasts_us);
            let host = self.host(place);
            host.is_kept_down = false;
            let incarnation = host.incarnation;
            self.queue.push(self.now + after_us, Event::Restart { node: place, incarnation });
        }
        self.enter(Phase::Recovering { until: self.now + lasts_us });
    }

    fn write(
        &mut self,
        place: Place,
        plan: &Plan,
        found: &Survivor,
        again: Option<u8>,
    ) -> Result<(), String> {
        let mut files = self.host(place).disk.files.clone();
        let folder = self.folder(place, &mut files)?;
        assert_eq!(folder.survivor(), found, "the folder has not changed since it was read");
        if let Some(operation) = again {
            files.trouble_in(operation.into(), Trouble::Crash);
        }
        let now = self.hosts[usize::from(place)].clock.read(self.now);
        let written = folder.write(plan, &mut files, now);
        if written.is_ok() {
            files.trouble.clear();
        }
        self.host(place).disk.files = files;
        written
    }

    /// Checks that nodes that were not part of the recovery do not take part in the cluster again.
    pub(super) fn check_nodes_left_behind(&mut self) {
        let is_from_before = |node: &node::Node| node.lineage().is_some_and(|it| it != self.map.lineage);
        let mut admitted = self
            .hosts
            .iter()
            .filter(|host| host.node().is_some_and(|node| is_from_before(node) && node.is_admitted()));
        if let Some(place) = admitted.next().map(|host| host.place) {
            let words = format!("node {} was admitted with what it held before the recovery", id(place));
            self.fail(Broken::Safety, words);
        }
    }

    /// Makes the operator replace the lost nodes, with empty disks.
    pub(super) fn replace_the_lost(&mut self) {
        let lost: Vec<Place> =
            self.places().filter(|place| self.hosts[usize::from(*place)].is_lost).collect();
        lost.into_iter().for_each(|node| self.give(Order::Replace { node }));
    }

    /// Whether two nodes do not talk to each other because a recovery lies between them. As in the handshake, the node that
    /// was left behind notices it.
    pub(super) fn are_of_two_lineages(&mut self, one: Place, other: Place) -> bool {
        let lineage = |place: Place| self.hosts[usize::from(place)].node().and_then(node::Node::lineage);
        let (ours, theirs) = (lineage(one), lineage(other));
        if meets(ours, theirs) {
            return false;
        }
        for (place, own, of_other) in [(one, ours, theirs), (other, theirs, ours)] {
            if !is_left_behind(own, of_other) {
                continue;
            }
            self.counts.add(Class::LeftBehind);
            let now = self.now;
            let host = self.host(place);
            if let Some(process) = &mut host.process {
                process.node.left_behind("the cluster was recovered without this node's folder");
            }
            host.wake(now);
        }
        true
    }
}

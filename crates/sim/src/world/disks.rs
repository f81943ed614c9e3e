//! Machines' disks: the work done on them beside the nodes, and faults of disks and of the power.

use super::World;
use super::damage::{has_lost_disk, place_of};
use super::trouble::Death;
use crate::disk::Ended;
use crate::events::{Event, Place};
use crate::faults::{Class, DiskFault, MS, Order, SECOND, has};
use crate::report::Broken;
use crate::trace::id;
use cluster::control::{CONTROL_GROUP, GroupId};
use node::Node;
use std::collections::BTreeMap;
use storage::simulated::{SimulatedDisk, Survivors};
use storage::{Cause, ValueName, ValueStore as _, ValueWork, Verb, Work};
use wire::release::RELEASES;

impl World {
    // Work beside the node.

    /// Begins a piece of work that a node leaves to be done beside its turns.
    pub(super) fn begin_work(&mut self, place: Place, work: Work) {
        let now = self.now;
        let host = self.host(place);
        let (begun, incarnation) = (host.disk.begin(work, now), host.incarnation);
        if let (lane, Some(at)) = begun {
            self.queue.push(at, Event::DiskStep { node: place, lane, incarnation });
        }
    }

    pub(super) fn begin_value_work(&mut self, place: Place, work: ValueWork) {
        let now = self.now;
        let host = self.host(place);
        let (begun, incarnation) = (host.disk.begin_value_work(work, now), host.incarnation);
        if let (lane, Some(at)) = begun {
            self.queue.push(at, Event::DiskStep { node: place, lane, incarnation });
        }
    }

    pub(super) fn disk_step(&mut self, place: Place, lane: u8, incarnation: u32) {
        let now = self.now;
        let host = &mut self.hosts[usize::from(place)];
        if host.incarnation != incarnation {
            return;
        }
        let next = match host.disk.end_step(lane, now) {
            Ended::Nothing => None,
            Ended::Next(at) => Some(at),
            Ended::Work(work, result, next) => {
                self.trace.note(u64::from(place) << 8 | u64::from(lane) | 1 << 59);
                host.finish(now, work, result);
                next
            }
            Ended::ValueWork(work, result, next) => {
                self.trace.note(u64::from(place) << 8 | u64::from(lane) | 1 << 59);
                host.finish_values(now, work, result);
                next
            }
        };
        if let Some(at) = next {
            self.queue.push(at, Event::DiskStep { node: place, lane, incarnation });
        }
    }

    /// A node must stop at once because of a disk failure. Returns whether that was to be expected.
    pub(super) fn stop_by_disk(&mut self, place: Place, why: &str) -> bool {
        let host = self.host(place);
        let is_expected = host.is_refused;
        self.counts.add(Class::StoppedByDisk);
        self.tell_of(place, &format!("stops: {why}"));
        is_expected
    }

    /// Handles a disk that failed while its node started, or that the node refuses.
    pub(super) fn does_not_start(&mut self, place: Place, why: &str) {
        let after_us = 10 * MS + self.random.below(SECOND);
        let host = self.host(place);
        let incarnation = host.incarnation;
        let again = Event::Restart { node: place, incarnation };
        if host.disk.files.is_off() {
            self.counts.add(Class::PowerLossInStart);
            self.tell_of(place, "loses its power while it starts");
            self.host(place).disk.lose_power(Survivors::Random);
            return self.queue.push(self.now + after_us, again);
        }
        if super::programs::is_of_level(why) && host.releases != RELEASES {
            host.needs_new_program = true;
            self.counts.add(Class::OldProgramRefused);
            self.tell_of(place, &format!("does not start, as it should: {why}"));
            return self.queue.push(self.now + after_us, again);
        }
        if host.rotten.is_some() && names_a_place(why) {
            (host.is_lost, host.is_refilling, host.is_kept_down) = (true, true, true);
            return self.tell_of(place, &format!("does not start, as it should: {why}"));
        }
        // A start needs room; a running node continues without.
        let has_no_room = self.host(place).disk.files.capacity.is_some();
        if !self.stop_by_disk(place, why) && !has_no_room {
            let words = format!("node {} does not start: {why}", id(place));
            return self.fail(Broken::Storage, words);
        }
        self.queue.push(self.now + after_us, again);
    }

    // Faults.

    /// Executes a step of a disk fault: the even steps begin it, the odd ones end it. Returns when the next step is.
    pub(super) fn disk_fault(&mut self, fault: DiskFault, step: u16) -> Option<u64> {
        let now = self.now;
        let mut happens = true;
        let mut again = None;
        match (fault, step) {
            (DiskFault::PowerLoss { stuck: Some((mask, us)), .. }, 0) => {
                for place in self.places().filter(|place| has(mask, *place)) {
                    let disk = &mut self.host(place).disk;
                    disk.stuck_until = disk.stuck_until.max(now + us + 1);
                }
                (again, happens) = (Some(us), false);
            }
            (DiskFault::PowerLoss { nodes, within_turn, down_us, survivors, again, .. }, _) => {
                let death = Death { within_turn, down_us, noticed: false, power: Some(survivors) };
                let dead = self.crash_several(nodes, death);
                happens = dead != 0;
                for place in self.places().filter(|place| has(dead, *place)) {
                    self.host(place).power_goes_at = again;
                }
            }
            (DiskFault::Outage { stuck, us, .. }, 0) => {
                for place in self.places().filter(|place| has(stuck, *place)) {
                    let disk = &mut self.host(place).disk;
                    disk.stuck_until = disk.stuck_until.max(now + us + 1);
                }
                (again, happens) = (Some(us), false);
            }
            (DiskFault::Outage { away, .. }, _) => happens = self.black_out(away),
            (DiskFault::Recovery { lost, again }, _) => happens = self.lose_majority(lost, again),
            (DiskFault::Slow { node, times, us }, 0) => {
                self.host(node).disk.slowness = times;
                again = Some(us);
            }
            (DiskFault::Slow { node, .. }, _) => {
                (self.host(node).disk.slowness, happens) = (1, false);
            }
            (DiskFault::Stuck { node, us }, _) => {
                let disk = &mut self.host(node).disk;
                disk.stuck_until = disk.stuck_until.max(now + us);
            }
            (DiskFault::Refusal { node, verb }, _) => happens = self.refuse(node, verb),
            (DiskFault::Full { nodes, room, us }, 0) => {
                for place in self.places().filter(|place| has(nodes, *place)) {
                    self.host(place).disk.fill_up(room);
                }
                again = Some(us);
            }
            (DiskFault::Full { nodes, .. }, _) => {
                for place in self.places().filter(|place| has(nodes, *place)) {
                    self.host(place).disk.make_room();
                }
                happens = false;
            }
            (DiskFault::Rot { node, .. }, 1)
            | (DiskFault::Wiped { node, .. }, 1)
            | (DiskFault::RolledBack { node, .. }, 2) => {
                happens = false;
                // The node may have started on the damaged disk, if the damage was harmless, and another disk may
                // have been lost since.
                if has_lost_disk(&self.hosts[usize::from(node)]) || self.may_lose_disk(node) {
                    self.give(Order::Replace { node });
                }
            }
            (DiskFault::Rot { node, place, zeroes, down_us, replaced_us }, _) => {
                happens = self.may_lose_disk(node);
                if happens {
                    again = replaced_us;
                    self.crash(node, down_us, true);
                    let host = self.host(node);
                    host.rotten = rot(&mut host.disk.files, place, zeroes);
                    let what = host.rotten.clone().unwrap_or("nothing".into());
                    self.tell_of(node, &format!("does not find its disk as it left it: {what} has changed"));
                }
            }
            (DiskFault::RottenValues { node, place, count }, _) => {
                happens = self.may_lose_disk(node) && self.rot_values(node, place, count);
            }
            (DiskFault::Wiped { node, down_us, replaced_us }, _) => {
                happens = self.may_lose_disk(node);
                if happens {
                    again = replaced_us;
                    self.crash(node, down_us, true);
                    let host = self.host(node);
                    host.disk.replace();
                    (host.is_lost, host.is_refilling) = (true, true);
                }
            }
            (DiskFault::RolledBack { node, after_us, .. }, 0) => {
                let disk = &mut self.host(node).disk;
                let mut copy = (disk.files.clone(), disk.values.clone());
                copy.0.lose_power(Survivors::Random);
                disk.copy = Some(copy);
                (again, happens) = (Some(after_us), false);
            }
            (DiskFault::RolledBack { node, down_us, replaced_us, .. }, _) => {
                let copy = self.host(node).disk.copy.take();
                // What all other control nodes know is found whichever of them are down when the node restarts.
                happens = copy.is_some()
                    && self.known_durable(node).is_some()
                    && self.is_control_log_elsewhere(node)
                    && self.may_lose_disk(node);
                if let Some(copy) = copy.filter(|_| happens) {
                    again = replaced_us;
                    let was_durable = self.known_durable(node);
                    self.crash(node, down_us, true);
                    let host = self.host(node);
                    host.disk.roll_back(copy);
                    (host.is_lost, host.is_refilling, host.was_durable) = (true, true, was_durable);
                }
            }
        }
        if happens {
            self.counts.add(fault.class());
        }
        again
    }

    /// Silently changes some of the values on a node's disk: values that all other members of their groups, at least two,
    /// have on their disks. Returns whether there were any.
    fn rot_values(&mut self, place: Place, first: u64, count: u16) -> bool {
        let member = id(place);
        let groups: BTreeMap<GroupId, Vec<Place>> = self
            .promised()
            .filter(|(_, group, _)| group.members.contains(&member) && group.members.len() > 2)
            .map(|(id, group, _)| {
                let others = group.members.iter().filter(|other| **other != member);
                (id, others.map(|other| place_of(*other)).collect())
            })
            .collect();
        let mut names = Vec::new();
        let mut add = |name| {
            names.push(name);
            true
        };
        let listed = self.host(place).disk.values.names(&ValueName::FIRST, &mut add);
        listed.expect("a list is never refused");
        let has = |other: &Place, name: &ValueName| {
            self.hosts.get(usize::from(*other)).is_some_and(|host| host.disk.values.value(name).is_some())
        };
        let is_elsewhere = |name: &ValueName| {
            groups.get(&name.group()).is_some_and(|others| others.iter().all(|other| has(other, name)))
        };
        names.retain(is_elsewhere);
        let host = self.host(place);
        for number in 0..u64::from(count).min(names.len() as u64) {
            let name = names[(first.wrapping_add(number) % names.len() as u64) as usize];
            host.disk.rot_value(name, (first >> 32) as usize);
        }
        if !names.is_empty() {
            self.tell_of(place, &format!("has other values on its disk: {} of {}", count, names.len()));
        }
        !names.is_empty()
    }

    /// Returns the position up to which a node's log was durable, as every other control node knows it; `None` if one
    /// of them is down.
    fn known_durable(&self, place: Place) -> Option<u64> {
        let control = self.map.groups.get(&CONTROL_GROUP)?;
        let others = control.members.iter().filter(|member| **member != id(place));
        let known =
            others.map(|member| self.hosts[usize::from(place_of(*member))].node()?.known_durable(id(place)));
        known.min().flatten()
    }

    /// Whether every other control node has promised and holds as much in the control group as a node. One that was cut off
    /// may lack entries and promises that this node forgets when its disk is put back; then no majority may know of them,
    /// and the two vote together before the control group admits the node. That is beyond what is promised
    /// (`docs/design/control.md`).
    fn is_control_log_elsewhere(&self, place: Place) -> bool {
        let held = |place: Place| self.hosts[usize::from(place)].node().and_then(Node::control_log);
        let (Some((ballot, entries)), Some(control)) = (held(place), self.map.groups.get(&CONTROL_GROUP))
        else {
            return true;
        };
        let mut others = control.members.iter().filter(|member| **member != id(place));
        others.all(|other| held(place_of(*other)).is_some_and(|it| it.0 >= ballot && it.1 >= entries))
    }

    /// Checks that a node whose disk was put back to an earlier state is not admitted, if that disk lacks something that
    /// the others knew of.
    pub(super) fn check_disk_that_was_put_back(&mut self, place: Place, node: &Node) {
        let Some(durable) = self.hosts[usize::from(place)].was_durable else { return };
        let found = node.log_found();
        if node.is_admitted() && found < durable {
            let words = format!(
                "node {} was admitted with a log that ended at {found} and had been durable up to {durable}",
                id(place)
            );
            self.fail(Broken::Safety, words);
        }
    }

    /// A control node dies, and loses what it has not written. From now on there is no check that nodes with older
    /// disks are refused.
    pub(super) fn forget_durable(&mut self, place: Place) {
        let control = self.map.groups.get(&CONTROL_GROUP);
        if !control.is_some_and(|group| group.members.contains(&id(place))) {
            return;
        }
        let others = self.hosts.iter_mut().filter(|host| host.place != place);
        others.for_each(|host| host.was_durable = None);
    }

    /// Makes a disk refuse an operation; its node must then stop. Returns false if this fault is left out.
    fn refuse(&mut self, place: Place, verb: Verb) -> bool {
        if !self.may_crash(place, false) {
            self.counts.add(Class::DiskSpared);
            return false;
        }
        let host = self.host(place);
        host.disk.files.refusal = Some((verb, Cause::Failed("input/output error".to_owned())));
        (host.is_refused, host.is_damaged) = (true, true);
        true
    }
}

/// The unit in which a disk writes.
const SECTOR_BYTES: usize = 512;

/// Whether an error says which file is damaged, what is wrong, and where.
fn names_a_place(why: &str) -> bool {
    ["segment-", "snapshot-", "manifest"].iter().any(|file| why.contains(file)) && why.contains("at byte ")
}

/// Whether a byte of a file matters. In a segment, those bytes matter that were written for it, and not for an
/// earlier segment in the same file: the last 32 bytes of each sector begin with the segment's number.
fn says_something(name: &str, bytes: &[u8], at: usize) -> bool {
    const PAYLOAD_BYTES: usize = 480;
    let is_own = || {
        let number: Option<u64> = name.strip_prefix("segment-").map(|number| number.parse().unwrap_or(0));
        let stamp = at / SECTOR_BYTES * SECTOR_BYTES + PAYLOAD_BYTES;
        number.is_none_or(|number| at < stamp && bytes[stamp..].starts_with(&number.to_le_bytes()))
    };
    bytes[at] != 0 && is_own()
}

/// Changes a byte or a sector of the durable data, except for the last batches, after which nothing may yet record
/// that they were durable. Returns where.
fn rot(files: &mut SimulatedDisk, place: u64, zeroes: bool) -> Option<String> {
    const LAST_BYTES: usize = 4096;
    let mut ends: Vec<(String, usize)> = files
        .files()
        .filter_map(|(name, bytes)| {
            let last = (0..bytes.len()).rfind(|at| says_something(name, bytes, *at))?;
            Some((name.to_owned(), last + 1))
        })
        .filter(|(name, _)| !name.ends_with("new"))
        .collect();
    if let Some((_, end)) = ends.iter_mut().rfind(|(name, _)| name.starts_with("segment-")) {
        *end = end.saturating_sub(LAST_BYTES);
    }
    ends.retain(|(_, end)| *end > 0);
    let (name, end) = ends.get((place % ends.len().max(1) as u64) as usize)?;
    let from = (place >> 8) as usize % end;
    let (_, bytes) = files.files().find(|(file, _)| file == name)?;
    // At a place that matters.
    let at = (from..*end).find(|at| says_something(name, bytes, *at) && files.is_safe(name, *at as u64))?;
    files.tamper(name, |bytes| {
        if zeroes {
            let start = at / SECTOR_BYTES * SECTOR_BYTES;
            let end = (start + SECTOR_BYTES).min(bytes.len());
            bytes[start..end].fill(0);
        } else {
            bytes[at] ^= 1 << (place % 8);
        }
    });
    Some(format!("byte {at} of {name}"))
}

//! Quarantine: a record that crashes the process twice in a row is not executed a third time.
//!
//! The record that crashed a process is known from a note that is made before it is executed ([`kv::Watch`]), and
//! found at the next start ([`Past`]). One crash may have had any cause. After the second in a row at the same
//! record, this node's replica of that group is stopped before the record: it has read its records up to there, it
//! takes part in nothing, and requests are refused with `QUARANTINED`, or forwarded to a replica that is not stopped.
//! Other groups are served.
//!
//! From then on the cluster map decides (`cluster::control`): the node reports that its replica is stopped, and
//! the replica continues only when the map has released it, or skips the record. Which records the map skips is known
//! only after the log was read. So a replica with any doubtful record stops at the first of them while its log is
//! read, and continues from there.

use crate::context::{Call, Context};
use crate::diagnostics::log::{Level, Line};
use crate::groups::replica::Replica;
use crate::session::ClientId;
use crate::session::gates::Gate;
use cluster::control::{CONTROL_GROUP, Change, ClusterMap, FatalRecord, QuarantineStep};
use kv::{RecordName, Reply};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::rc::Rc;

/// After this many crashes in a row at the same record, it is not executed again.
const DEATHS_MAX: u32 = 2;

/// How often an unanswered request to the control group is repeated.
const ASK_EVERY_MS: u64 = 500;

/// Where the process notes what it executes, and keeps what it must know at its next start.
pub trait Notebook: kv::Watch {
    /// Keeps this text durably, instead of the previous one.
    fn keep(&self, text: &str);
}

/// What earlier processes left in the notebook.
#[derive(Debug)]
pub struct Past {
    /// The notebook itself.
    pub notebook: &'static dyn Notebook,
    /// The text that was kept last; empty if there was none.
    pub kept: String,
    /// The group and the record at which the last process crashed, if it did.
    pub died_of: Option<(u16, RecordName)>,
    /// Identifies this program: an upgrade may be able to execute what crashed the previous one.
    pub program: String,
}

/// A record that has crashed this node's process, or that may crash it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Doubt {
    group: u16,
    offset: u64,
    time: u64,
    /// The number of crashes in a row.
    deaths: u32,
    /// The program that these crashes are counted for.
    program: String,
    /// The replica is stopped before the record until the map lets it continue.
    holds: bool,
    /// The map skips the record: it changes nothing.
    is_skipped: bool,
    /// The replica was released while others are stopped, and does not stop because of them.
    goes_on: bool,
}

impl Doubt {
    fn of(group: u16, record: FatalRecord, program: String) -> Doubt {
        let FatalRecord { offset, time } = record;
        Doubt { group, offset, time, deaths: 0, program, holds: false, is_skipped: false, goes_on: false }
    }

    fn record(&self) -> FatalRecord {
        FatalRecord { offset: self.offset, time: self.time }
    }

    fn is_of(&self, group: u16, record: FatalRecord) -> bool {
        self.group == group && self.record() == record
    }
}

/// The doubtful records that this node knows of.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    notebook: Option<&'static dyn Notebook>,
    program: String,
    doubts: Vec<Doubt>,
    ask_at_us: u64,
}

impl Quarantine {
    /// Takes what earlier processes left, at the start.
    ///
    /// # Errors
    /// A sentence when the node cannot continue.
    pub(crate) fn new(past: Option<Past>, lines: &mut Vec<Line>) -> Result<Quarantine, String> {
        let Some(Past { notebook, kept, died_of, program }) = past else { return Ok(Quarantine::default()) };
        let doubts = match kept.is_empty() {
            true => Ok(Vec::new()),
            false => serde_json::from_str(&kept),
        };
        let mut doubts: Vec<Doubt> = doubts.unwrap_or_else(|error| {
            let text = format!("what is known of records that have ended this node cannot be read: {error}");
            lines.push(Line { level: Level::Error, text });
            Vec::new()
        });
        if let Some((group, RecordName { offset, time })) = died_of {
            let record = FatalRecord { offset, time };
            let at = doubts.iter().position(|doubt| doubt.is_of(group, record)).unwrap_or_else(|| {
                let program = program.clone();
                doubts.push(Doubt::of(group, record, program));
                doubts.len() - 1
            });
            let doubt = &mut doubts[at];
            if doubt.program != program {
                (doubt.deaths, doubt.program) = (0, program.clone());
            }
            doubt.deaths += 1;
            doubt.goes_on = false;
            doubt.holds |= doubt.deaths >= DEATHS_MAX && !doubt.is_skipped;
            let (deaths, what) =
                (doubt.deaths, if doubt.holds { "it is not tried again" } else { "it is tried again" });
            let text = format!(
                "the process before this one ended while it carried out record {offset} of group {group}, {deaths} times in a row: {what}"
            );
            lines.push(Line { level: Level::Error, text });
        }
        let quarantine = Quarantine { notebook: Some(notebook), program, doubts, ..Quarantine::default() };
        if died_of.is_some() {
            // In this order: a process that is killed in between counts the crash twice, rather than never.
            quarantine.keep();
            notebook.over();
        }
        let control = quarantine.doubts.iter().find(|doubt| doubt.group == CONTROL_GROUP && doubt.holds);
        match control.filter(|doubt| doubt.program == quarantine.program) {
            Some(Doubt { offset, .. }) => Err(format!(
                "record {offset} of the control group has ended this node {DEATHS_MAX} times in a row, and without the control group \
                 it cannot go on. Nothing is lost: start it with another version of the program, or remove \
                 quorate.quarantine from its folder to try once more"
            )),
            None => Ok(quarantine),
        }
    }

    fn keep(&self) {
        if let Some(notebook) = self.notebook {
            notebook.keep(&serde_json::to_string(&self.doubts).unwrap_or_default());
        }
    }

    /// Where replicas note what they execute.
    pub(crate) fn watch(&self) -> Option<&'static dyn kv::Watch> {
        self.notebook.map(|notebook| notebook as &'static dyn kv::Watch)
    }

    /// Prepares a replica that begins: it reads its log up to the first doubtful record.
    pub(crate) fn attach(&self, group: u16, replica: &mut Replica) {
        if let Some(watch) = self.watch() {
            replica.set_watch(group, watch);
        }
        replica.stand_before(self.of(group).map(|doubt| doubt.offset).min());
    }

    fn of(&self, group: u16) -> impl Iterator<Item = &Doubt> {
        self.doubts.iter().filter(move |doubt| doubt.group == group)
    }

    /// The record before which a group's replica is stopped here.
    fn holds(&self, group: u16) -> Option<FatalRecord> {
        self.of(group).filter(|doubt| doubt.holds).map(Doubt::record).min()
    }
}

impl Quarantine {
    /// Follows a new map: lets replicas continue that may, and gives them the records to skip.
    pub(crate) fn follow(&mut self, cx: &mut Context, map: &ClusterMap) {
        let own = cx.configuration.node;
        let known = &map.quarantine;
        let mut changed = false;
        for doubt in &mut self.doubts {
            let record = doubt.record();
            let is_released = cx.map.quarantine.stands(doubt.group, own) == Some(record)
                && known.stands(doubt.group, own).is_none();
            let is_skipped = known.skipped(doubt.group).contains(&record);
            if is_skipped && !doubt.is_skipped || doubt.holds && is_released {
                (doubt.is_skipped, doubt.holds, doubt.deaths, changed) = (is_skipped, false, 0, true);
                doubt.goes_on = known.standing.contains_key(&doubt.group);
                let (name, offset) = (map.name_of(doubt.group), record.offset);
                let what = if is_skipped { "is skipped" } else { "is tried again" };
                let text =
                    format!("{name}: record {offset} {what}, as was decided; its replica here goes on");
                cx.log.push(Line { level: Level::Warning, text });
            }
        }
        for (group, records) in &known.skipped {
            for record in records {
                if !self.of(*group).any(|doubt| doubt.record() == *record) {
                    let doubt = Doubt::of(*group, *record, self.program.clone());
                    self.doubts.push(Doubt { is_skipped: true, ..doubt });
                    changed = true;
                }
            }
        }
        if changed {
            self.keep();
        }
        let is_any_in_doubt = !known.is_empty() || !self.doubts.is_empty();
        cx.gates.set(Gate::Quarantine, is_any_in_doubt);
        if is_any_in_doubt {
            let mut place = 0;
            while let Some(id) = cx.groups.id_at(place) {
                place += 1;
                self.resume(cx, id, map);
            }
        }
    }

    /// Gives a group's replica here the records that it must not execute.
    pub(crate) fn resume(&mut self, cx: &mut Context, id: u16, map: &ClusterMap) {
        let holds = self.holds(id);
        cx.groups.touch(id);
        let Some(group) = cx.groups.get_mut(id) else { return };
        group.holds = holds;
        let Some(replica) = &mut group.replica else { return };
        let skipped: Vec<RecordName> = map.quarantine.skipped(id).iter().map(|it| (*it).into()).collect();
        replica.skip(&skipped);
        replica.stand_before(holds.map(|record| record.offset));
    }

    /// Called periodically: reports to the control group what it has to know, and forgets doubts that are settled.
    pub(crate) fn tick(&mut self, cx: &mut Context) {
        if !cx.gates.has(Gate::Quarantine) || !cx.admission.is_admitted() {
            return;
        }
        let (own, map) = (cx.configuration.node, Rc::clone(&cx.map));
        let mut asked: Vec<(u16, QuarantineStep)> = Vec::new();
        let mut changed = self.stop_with_others(cx, &map);
        let (program, groups) = (self.program.clone(), &cx.groups);
        let now = cx.now;
        self.doubts.retain_mut(|doubt| {
            let is_over = |doubt: &Doubt| {
                let group = groups.get(doubt.group).filter(|group| group.configured.is_some());
                let replica = group.and_then(|group| group.replica.as_ref());
                replica.is_some_and(|replica| replica.summary(now).applied >= doubt.offset)
            };
            // If this node holds the group again later, it begins empty.
            let takes_part = map.groups_of(own).any(|(group, _)| group == doubt.group);
            if !takes_part && !doubt.is_skipped
                || !map.groups.contains_key(&doubt.group)
                || !doubt.holds && !doubt.is_skipped && is_over(doubt)
            {
                changed = true;
                return false;
            }
            let standing = map.quarantine.stands(doubt.group, own);
            if doubt.holds && doubt.program != program {
                // Another program may be able to execute the record. It gets as many attempts as the previous one.
                match standing {
                    Some(_) => asked.push((doubt.group, QuarantineStep::Release(own))),
                    None => {
                        (doubt.holds, doubt.goes_on, doubt.deaths, changed) = (false, true, 0, true);
                        doubt.program.clone_from(&program);
                    }
                }
            } else if doubt.holds && standing != Some(doubt.record()) {
                asked.push((doubt.group, QuarantineStep::Stand(own, doubt.record())));
            }
            true
        });
        for (group, standing) in &map.quarantine.standing {
            if standing.contains_key(&own) && self.holds(*group).is_none() {
                asked.push((*group, QuarantineStep::Release(own)));
            }
        }
        if changed {
            self.keep();
            cx.call(Call::FollowMap(map));
        }
        if !asked.is_empty() && cx.now.monotonic_us >= self.ask_at_us {
            self.ask_at_us = cx.now.monotonic_us + ASK_EVERY_MS * 1000;
            for (group, step) in asked {
                let change = Box::new(Change::Quarantine { group, step });
                cx.call(Call::Change { client: None, change });
            }
        }
    }

    /// Where so many others are stopped that a group cannot continue, a replica that has not reached the record stops
    /// there, too: it may have been down when the others stopped. Only then can the record be skipped.
    fn stop_with_others(&mut self, cx: &mut Context, map: &ClusterMap) -> bool {
        let mut changed = false;
        for (id, standing) in &map.quarantine.standing {
            let Some(record) = map.stopped_before(*id) else { continue };
            let offset = record.offset;
            let replica = cx.groups.get(*id).and_then(|group| group.replica.as_ref());
            let is_before = replica.is_some_and(|replica| replica.summary(cx.now).applied < offset);
            if !is_before || standing.contains_key(&cx.configuration.node) {
                continue;
            }
            let doubts = &mut self.doubts;
            let at = doubts.iter().position(|doubt| doubt.is_of(*id, record)).unwrap_or_else(|| {
                doubts.push(Doubt::of(*id, record, self.program.clone()));
                doubts.len() - 1
            });
            let doubt = &mut doubts[at];
            if !doubt.holds && !doubt.goes_on && !doubt.is_skipped {
                (doubt.holds, changed) = (true, true);
                let name = map.name_of(*id);
                let text =
                    format!("{name} stands still before record {offset} here, too, as too few others go on");
                cx.log.push(Line { level: Level::Warning, text });
            }
        }
        changed
    }

    /// Logs which replicas are stopped, at the start.
    pub(crate) fn announce(&mut self, cx: &mut Context) {
        let held: Vec<Doubt> = self.doubts.iter().filter(|doubt| doubt.holds).cloned().collect();
        for Doubt { group, offset, .. } in held {
            let name = cx.map.name_of(group);
            let text = format!(
                "{name} stands still here: record {offset} of group {group} has ended this node {DEATHS_MAX} times in a row, or others. \
                 The rest is served. To leave the record out on all replicas: CLUSTER QUARANTINE SKIP {group} {offset}. To try it again: \
                 CLUSTER QUARANTINE RETRY {group}. How all nodes stand: CLUSTER QUARANTINE LIST"
            );
            cx.log.push(Line { level: Level::Error, text });
        }
    }
}

/// `CLUSTER QUARANTINE LIST`: a line for each record.
pub(crate) fn list(cx: &mut Context, client: ClientId) {
    let mut text = String::new();
    let mut line = |id: u16, record: FatalRecord, state: &str, nodes: &str| {
        let (keyspace, shard) =
            cx.map.groups.get(&id).map_or(("", 0), |group| (group.keyspace.as_str(), group.shard));
        let FatalRecord { offset, time } = record;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "group={id} offset={offset} state={state} nodes={nodes} shard={shard} time={time} keyspace={keyspace}"
        );
    };
    for (id, standing) in &cx.map.quarantine.standing {
        let mut records: Vec<FatalRecord> = standing.values().copied().collect();
        records.sort_unstable();
        records.dedup();
        for record in records {
            let nodes = standing.iter().filter(|(_, other)| **other == record);
            let nodes: Vec<String> = nodes.map(|(node, _)| node.to_string()).collect();
            line(*id, record, "standing", &nodes.join(","));
        }
    }
    for (id, records) in &cx.map.quarantine.skipped {
        records.iter().for_each(|record| line(*id, *record, "skipped", "all"));
    }
    cx.answer(client, |replies| replies.push(Reply::Text(text.as_bytes())));
}

//! Scrubbing: every value on the disk is read from time to time, whether or not a client asks for it.
//!
//! A disk may damage a value long before a client reads it, and by then other disks may have damaged or lost the other copies.
//! So all values are read within some days, one at a time and evenly spread, and damaged ones are repaired (`repair`).
//!
//! Values are read in the order of their names, starting at a random one: otherwise a node that is restarted often
//! would never reach the last ones. Pieces of fragments are values here. While the other replicas of a value are all out of
//! reach, as right after a start, scrubbing pauses.

use super::{Values, name_of, reference_of};
use crate::context::Context;
use crate::diagnostics::log::{Level, Line};
use crate::groups::Group;
use crate::groups::replica::Replica;
use kv::Reference;
use std::collections::VecDeque;
use storage::{ValueName, ValueOutcome, ValueResult, ValueWork};

/// How many names are listed at a time.
const NAMES: usize = 256;

/// The least and the most time from one value to the next: many more values may be written while the node waits.
const INTERVAL_US_MIN: u64 = 1000;
const INTERVAL_US_MAX: u64 = 3_600_000_000;
/// How long a node without values waits.
const IDLE_US: u64 = 1_000_000;

/// The progress of scrubbing.
#[derive(Debug)]
pub(super) struct Scrub {
    /// Within this time all values are read; 0: never.
    period_us: u64,
    next_us: u64,
    interval_us: u64,
    /// Whether this pass began with the first name.
    is_full_pass: bool,
    /// The place from which the next names are listed. None: at a random one.
    from: Option<ValueName>,
    /// Names that were listed, and are not read yet.
    names: VecDeque<ValueName>,
    is_listing: bool,
    /// The value that is being read.
    under_way: Option<ValueName>,
}

impl Scrub {
    pub(super) fn new(period_us: u64) -> Scrub {
        Scrub {
            period_us,
            next_us: 0,
            interval_us: IDLE_US,
            is_full_pass: false,
            from: None,
            names: VecDeque::new(),
            is_listing: false,
            under_way: None,
        }
    }

    /// When, on the monotonic clock, the next value is read.
    pub(super) fn due_us(&self) -> u64 {
        if self.period_us == 0 || self.is_listing { u64::MAX } else { self.next_us }
    }
}

/// The first name behind this one.
fn behind(name: &ValueName) -> ValueName {
    let mut next = *name;
    for byte in next.0.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
    next
}

impl Values {
    /// Reads the next value, if it is due and the one before has been read.
    pub(super) fn scrub_next(&mut self, cx: &mut Context) {
        let now_us = cx.now.monotonic_us;
        if now_us < self.scrub.due_us() {
            return;
        }
        self.scrub.next_us = now_us + self.scrub.interval_us;
        if self.scrub.under_way.is_some_and(|name| self.is_scrubbing(&name)) {
            return; // The disk is slow, or no replica has answered yet.
        }
        while let Some(name) = self.scrub.names.front().copied() {
            let (group, reference) = (name.group(), reference_of(&name));
            if !can_repair(cx, group) {
                return; // What is found damaged now would stay so until the next pass.
            }
            self.scrub.names.pop_front();
            if self.is_needed(cx, group, &reference) && self.scrub_value(name) {
                self.scrub.under_way = Some(name);
                return;
            }
        }
        self.list_next(cx);
    }

    fn list_next(&mut self, cx: &Context) {
        let count: u64 = cx.groups.iter().map(|(_, group)| stored_by(group)).sum();
        if count == 0 {
            self.scrub.interval_us = IDLE_US;
            return;
        }
        self.scrub.interval_us = (self.scrub.period_us / (count + 1)).clamp(INTERVAL_US_MIN, INTERVAL_US_MAX);
        let from = match self.scrub.from {
            Some(from) => from,
            None => random_place(cx),
        };
        self.scrub.is_listing = true;
        self.work.push(ValueWork::Names { from, count: NAMES });
    }

    /// Takes names. After an error they are listed again from the same place.
    pub(super) fn names_listed(&mut self, cx: &mut Context, result: ValueResult) {
        assert!(self.scrub.is_listing, "names are listed once at a time");
        self.scrub.is_listing = false;
        let names = match result {
            Ok(ValueOutcome::Names(names)) => names,
            Ok(other) => unreachable!("a list of names came to {other:?}"),
            Err(error) => {
                let text = format!("values cannot be listed to be scrubbed: {error}");
                return cx.log.push(Line { level: Level::Error, text });
            }
        };
        match names.last() {
            Some(last) => {
                self.scrub.from = Some(behind(last));
                self.scrub.next_us = 0;
            }
            None => {
                self.scrub.from = Some(ValueName::FIRST);
                self.counters.passes += u64::from(self.scrub.is_full_pass);
                self.scrub.is_full_pass = true;
            }
        }
        self.scrub.names.extend(names);
    }
}

/// Whether another replica can be asked for a group's values, or there is none at all.
fn can_repair(cx: &Context, group: u16) -> bool {
    let members = cx.groups.get(group).map(|group| group.members.as_slice()).unwrap_or_default();
    let mut others = members.iter().filter(|member| **member != cx.configuration.node).peekable();
    others.peek().is_none() || others.any(|member| cx.peers.is_up(*member))
}

/// How many values of a group, and how many pieces of its fragments, are in the store.
fn stored_by(group: &Group) -> u64 {
    let Some(replica) = &group.replica else { return 0 };
    replica.table().spilled_len() as u64 + pieces_of(replica)
}

fn pieces_of(replica: &Replica) -> u64 {
    replica.fragments().map_or(0, |fragments| fragments.stored_len() as u64)
}

/// A place among the names of a group's values, which differ in their versions first, and those of its pieces. It is derived
/// from the seed that was drawn at the start. O(pieces).
fn random_place(cx: &Context) -> ValueName {
    let groups: Vec<u16> =
        cx.groups.iter().filter(|(_, group)| stored_by(group) > 0).map(|(id, _)| id).collect();
    let drawn = cx.configuration.seed;
    let Some(id) = groups.get(drawn as usize % groups.len().max(1)) else { return ValueName::FIRST };
    let Some(replica) = &cx.groups[*id].replica else { return ValueName::FIRST };
    let place = (drawn >> 16) % stored_by(&cx.groups[*id]);
    let piece = replica.fragments().and_then(|fragments| fragments.stored_name(place as usize));
    let last = replica.held_and_applied().map_or(0, |(_, applied)| applied);
    let value = || Reference::spilled((drawn >> 16) % last.max(1), 0, 0, 0);
    name_of(*id, &piece.unwrap_or_else(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_name_comes_after_a_name() {
        let mut name = ValueName::FIRST;
        assert!(behind(&name) > name);
        name.0[29] = 255;
        let next = behind(&name);
        assert!(next > name && (next.0[28], next.0[29]) == (1, 0));
    }
}

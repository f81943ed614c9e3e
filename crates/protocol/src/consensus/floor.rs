//! The floor: no command that was checked by an old map is ordered in a group that has lost its key.
//!
//! A map that moves keys of the group to another one is followed by a record `RaiseFloor v`, with the version v of that map, and the
//! change counts as made when the record is applied. From then on nothing may be ordered behind it that was checked by a map older
//! than v. Entries need not say by which map their commands were checked:
//!
//! 1. **A leader takes up nothing while its own log holds a floor above its map's version**, whether that entry is applied, decided
//!    or neither, and whoever appended it: [`Replica::standing`], and `may_answer` for reads. So each command that a leader appends
//!    at i was checked by a map that is at least as new as every floor below i in that leader's log.
//! 2. If the entry at i is decided, what was below it in that leader's log is the decided log: logs that hold the same entry of the
//!    same ballot are the same up to it. So if `RaiseFloor v` is decided at r < i, it was in that log, and the command was checked
//!    by v or a later map.
//! 3. A command that is decided below r was ordered before `RaiseFloor v` was proposed or in a log that `RaiseFloor v` follows, so
//!    it was requested before the change counted as made: it is concurrent with it, and comes first.
//! 4. A read is answered by a leader whose log holds every decided entry (its lease, or a majority's word after the read came).
//!    If the change counted as made when the read came, the floor is in that log, and 1 applies.
//!
//! What was checked by an older map and had to wait is checked again when it is taken up: see [`HeldRequests::note_moved`]. A leader
//! below its floor appends empty entries, keeps its ballot, and lets another member lead: that is the node's part.
//!
//! [`HeldRequests::note_moved`]: super::held::HeldRequests::note_moved

use super::Replica;
use crate::contract::Now;
use crate::planted::Fault;
use kv::Command;
use kv::table::Floor;

impl Replica {
    /// This node checks commands by this version of the map from now on. `moves`: it has moved keys to other groups.
    pub(super) fn follow_map(&mut self, version: u64, moves: bool) {
        self.settings.map_version = version;
        if moves {
            let others = self.agreement.leadership().is_some_and(|leadership| !leadership.has_no_requests());
            self.held.note_moved(others);
        }
    }

    /// Appends the floor that was just gathered: it ends a batch, so that all in it was taken up before it.
    pub(super) fn order_floor(&mut self, now: Now, version: u64) {
        if !self.agreement.leadership().is_some_and(|it| it.has_gathered_nothing()) {
            self.append(now, None);
        }
        self.agreement.leadership_mut().into_iter().for_each(|leadership| leadership.note_floor(version));
    }

    /// A leadership begins: finds the floor in the log that it has taken over, of which the end may not be applied.
    pub(super) fn inherit_floor(&mut self) {
        let Floor { map_version, .. } = self.applied.table().map_floor();
        let log = self.log.borrow();
        let mut floor = map_version;
        for entry in (self.applied.index()..log.end()).filter_map(|index| log.entry(index)) {
            let mut commands = entry.commands();
            while !commands.is_empty() {
                match Command::decode(&mut commands) {
                    Ok(Command::RaiseFloor { version }) => floor = floor.max(version),
                    Ok(_) => {}
                    Err(why) => panic!("an entry of the log cannot be read: {why:?}"),
                }
            }
        }
        drop(log);
        if self.settings.options.planted.has(Fault::FloorForgotten) {
            return;
        }
        self.agreement.leadership_mut().into_iter().for_each(|leadership| leadership.note_floor(floor));
    }

    /// Whether this leader's reads may wait for an answer here.
    pub(super) fn may_read(&self) -> bool {
        self.agreement.leadership().is_some_and(|leadership| !leadership.is_below_floor(&self.settings))
    }
}

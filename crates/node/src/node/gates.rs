//! The gates before a group: what may keep a request from its replica here, in the order in which it is asked.
//!
//! This is the slow path of [`Node::submit`], for requests that meet a closed gate. Every reason to refuse a write (memory of
//! the node and of the keyspace, disk, work, values, bytes under way) is a gate here.

use super::Node;
use crate::context::Context;
use crate::context::grants::{self, Grant};
use crate::context::memory::{self, OUT_OF_MEMORY, SCRIPT_OUT_OF_MEMORY};
use crate::context::room::{self, Verdict as RoomVerdict};
use crate::context::routing::MOVED;
use crate::context::status;
use crate::groups::Group;
use crate::maintenance::eviction::{self, Need};
use crate::session::gates::{Gate, Gates};
use crate::session::origin::Asked;
use crate::two_phase::list::Judged;
use kv::{Command, ScriptOptions, TwoPhaseCommand, WhenFull};
use protocol::planted::Fault;
use protocol::{NOBODY, NodeId, Request, Result as Outcome};
use std::borrow::Cow;

/// A request before its group.
pub(super) struct Passage<'c> {
    pub(super) group: u16,
    pub(super) asked: Asked,
    request: Request<'c>,
    /// What goes on in place of the request.
    instead: Option<Command<'c>>,
    /// The bound that a write got.
    pub(super) bound: Option<u64>,
    /// How long the request takes, if that was estimated already.
    work_ns: Option<u64>,
}

impl<'c> Passage<'c> {
    pub(super) fn request(&self) -> Request<'_> {
        self.instead.as_ref().map_or(self.request, Request::Command)
    }

    fn write(&self) -> Option<&'c Command<'c>> {
        self.request.write()
    }
}

/// What a gate decides.
enum Verdict<'c> {
    /// The request goes on.
    Pass,
    /// This goes on in its place.
    Replace(Command<'c>),
    /// It goes on with this bound.
    Bounded(u64),
    /// It is answered with this error.
    Refuse(Cow<'static, str>),
    /// It waits here until some node can take it. The error is for the case that this takes too long.
    Park(String),
    /// It waits here until the keys that it needs are unlocked.
    ParkForKeys,
    /// It is forwarded to this node.
    Forward(NodeId),
    /// Its sender, which meant it for one leadership, sends it again.
    SendBack,
    /// It is carried out in another way.
    Taken,
}

impl Verdict<'_> {
    fn refuse_if(error: Option<String>) -> Self {
        error.map_or(Verdict::Pass, |error| Verdict::Refuse(error.into()))
    }
}

type Judge = for<'c> fn(&mut Node, &Passage<'c>) -> Verdict<'c>;

/// The gates in their order, each with what judges a request that meets it closed: first whether the request can be carried out
/// at all, and whether there is room for what it adds; then what it takes; then who carries it out, and when.
const GATES: [(Gate, Judge); 12] = [
    (Gate::Quarantine, Node::judge_quarantine),
    (Gate::Memory, Node::judge_memory),
    (Gate::Keyspace, Node::judge_keyspace),
    (Gate::Room, Node::judge_room),
    (Gate::Grant, Node::judge_grant),
    (Gate::Work, Node::judge_work),
    (Gate::Long, Node::judge_length),
    (Gate::Replica, Node::judge_replica),
    (Gate::Leadership, Node::judge_leadership),
    (Gate::Order, Node::judge_order),
    (Gate::Values, Node::judge_values),
    (Gate::Locked, Node::judge_locked),
];

/// The gates of [`GATES`] that components close for all requests.
const OF_COMPONENTS: Gates =
    Gates::of(&[Gate::Quarantine, Gate::Memory, Gate::Room, Gate::Values, Gate::Locked]);

/// The closed gates before a group for a request, of which is known whether it follows others of its client, and the leadership
/// that it is meant for (0: any). Nearly always there are none.
#[inline(always)]
pub(super) fn before(
    cx: &Context,
    id: u16,
    (follows, leadership): (bool, u64),
    request: &Request<'_>,
) -> Gates {
    let group = &cx.groups[id];
    let mut gates = cx.gates & OF_COMPONENTS;
    gates.set(Gate::Keyspace, group.keyspace.memory_max > 0);
    gates.set(Gate::Replica, group.replica.is_none());
    gates.set(Gate::Leadership, leadership != 0);
    gates.set(Gate::Order, follows && group.has_requests_elsewhere());
    let bytes_max = cx.configuration.long_command_bytes;
    match request {
        Request::Command(command) if !command.is_ordinary(bytes_max) => {
            gates | of_command(command, bytes_max)
        }
        _ => gates,
    }
}

/// The gates that concern what a step has left besides its effects.
pub(super) const AFTER_STEPS: Gates = Gates::of(&[Gate::Values, Gate::Changes]);

/// Whether a step that has left no effects has left nothing.
#[inline]
pub(super) fn settles_nothing(cx: &Context) -> bool {
    (cx.gates & AFTER_STEPS).are_open()
}

/// The gates that a command closes for itself.
fn of_command(command: &Command<'_>, bytes_max: usize) -> Gates {
    let mut gates = Gates::default();
    gates.set(Gate::Memory, !command.grows_little());
    gates.set(Gate::Grant, !command.grows_little());
    gates.set(Gate::Work, command.may_walk());
    gates.set(Gate::Long, command.payload_bytes() > bytes_max);
    // A record of a transaction may come again with the values that it needs.
    gates.set(Gate::Locked, matches!(command, Command::TwoPhase(_) | Command::Supplied(_)));
    gates
}

impl Node {
    /// Has the closed gates judge a request on its way into a group.
    #[inline(never)]
    pub(super) fn pass(
        &mut self,
        gates: Gates,
        group: u16,
        asked: Asked,
        (request, work_ns): (Request<'_>, Option<u64>),
    ) {
        let mut passage = Passage { group, asked, request, instead: None, bound: None, work_ns };
        for (_, judge) in GATES.iter().filter(|(gate, _)| gates.has(*gate)) {
            match judge(self, &passage) {
                Verdict::Pass => {}
                Verdict::Replace(command) => passage.instead = Some(command),
                Verdict::Bounded(bytes) => passage.bound = Some(bytes),
                Verdict::Refuse(error) => {
                    return self.complete_with_error(asked.ticket, group, Outcome::Refused, &error);
                }
                Verdict::Park(why) => {
                    return self.forwarding.keep(&mut self.cx, group, asked, passage.request(), why);
                }
                Verdict::ParkForKeys => {
                    return self.forwarding.keep_for_keys(&mut self.cx, group, asked, passage.request());
                }
                Verdict::Forward(to) => {
                    return self.forwarding.forward(&mut self.cx, group, to, asked, passage.request());
                }
                Verdict::SendBack => {
                    return self.complete(asked.ticket, group, Outcome::Redirect { to: NOBODY }, &[]);
                }
                Verdict::Taken => return,
            }
        }
        self.order(group, &asked, &passage.request(), passage.bound);
    }

    fn judge_quarantine<'c>(&mut self, passage: &Passage<'c>) -> Verdict<'c> {
        match status::quarantined(&self.cx, passage.group) {
            Some(error) => Verdict::Refuse(error.into()),
            None if self.cx.groups[passage.group].holds.is_some() => {
                Verdict::Forward(self.cx.coordinator_of(passage.group))
            }
            None => Verdict::Pass,
        }
    }

    fn judge_memory<'c>(&mut self, passage: &Passage<'c>) -> Verdict<'c> {
        match passage.write() {
            Some(command) if memory::refuses_growth(&self.cx, passage.group, command) => {
                self.refuse_for_memory(command, OUT_OF_MEMORY)
            }
            _ => Verdict::Pass,
        }
    }

    fn judge_keyspace<'c>(&mut self, passage: &Passage<'c>) -> Verdict<'c> {
        let Some(command) = passage.write() else { return Verdict::Pass };
        match self.make_room(Need::of(&self.cx, passage.group, command)) {
            None => Verdict::Pass,
            Some(error) => match in_full(command).filter(|_| error == OUT_OF_MEMORY) {
                Some(script) => Verdict::Replace(script),
                None => self.refuse_for_memory(command, error),
            },
        }
    }

    fn refuse_for_memory<'c>(&mut self, command: &Command<'_>, error: &'static str) -> Verdict<'c> {
        self.cx.counters.memory_refused += 1;
        let is_of_script = error == OUT_OF_MEMORY
            && matches!(command.unbounded(&mut None), Command::Script(script)
                if script.options().when_full == WhenFull::Refused);
        Verdict::Refuse(Cow::Borrowed(if is_of_script { SCRIPT_OUT_OF_MEMORY } else { error }))
    }

    fn judge_room<'c>(&mut self, passage: &Passage<'c>) -> Verdict<'c> {
        match room::judge(&self.cx, passage.group, &passage.request()) {
            RoomVerdict::Goes => Verdict::Pass,
            RoomVerdict::Refused(error) => {
                self.cx.room.count_refused();
                Verdict::Refuse(error.into())
            }
            RoomVerdict::Waits(why) => Verdict::Park(why),
            RoomVerdict::PassedOn if passage.asked.leadership != 0 => Verdict::SendBack,
            RoomVerdict::PassedOn => Verdict::Forward(self.cx.coordinator_of(passage.group)),
        }
    }

    fn judge_grant<'c>(&mut self, passage: &Passage<'c>) -> Verdict<'c> {
        let Some(command) = passage.write() else { return Verdict::Pass };
        match grants::grant(&self.cx, passage.group, command) {
            Grant::Unneeded => Verdict::Pass,
            Grant::Bound(bytes) => Verdict::Bounded(bytes),
            Grant::Waits(why) => Verdict::Park(why.into()),
        }
    }

    fn judge_work<'c>(&mut self, passage: &Passage<'c>) -> Verdict<'c> {
        let estimated_ns = passage.work_ns.filter(|_| passage.instead.is_none());
        Verdict::refuse_if(self.cx.spend_on(passage.group, &passage.request(), estimated_ns))
    }

    fn judge_length<'c>(&mut self, passage: &Passage<'c>) -> Verdict<'c> {
        let Request::Command(command) = passage.request() else { return Verdict::Pass };
        // A request that waits has at most `WISH_BYTES_MAX` bytes, and is not sent in parts.
        if passage.asked.leadership != 0
            || !self.cx.groups[passage.group].keyspace.has_leader()
            || matches!(command.unbounded(&mut None), Command::Queue(_))
        {
            return Verdict::Pass;
        }
        self.long.begin(&mut self.cx, passage.group, passage.asked, command);
        Verdict::Taken
    }

    fn judge_replica<'c>(&mut self, passage: &Passage<'c>) -> Verdict<'c> {
        // The replica of a dropped group is retired before the group is forgotten. What has no keys can still come for it.
        if !self.cx.map.groups.contains_key(&passage.group) {
            return Verdict::Refuse(Cow::Borrowed(MOVED));
        }
        Verdict::Forward(self.cx.coordinator_of(passage.group))
    }

    fn judge_leadership<'c>(&mut self, passage: &Passage<'c>) -> Verdict<'c> {
        let replica = self.cx.groups[passage.group].replica.as_ref();
        match replica.and_then(|replica| replica.leads_in()) {
            leads_in if leads_in == Some(passage.asked.leadership) => Verdict::Pass,
            _ if self.cx.configuration.planted.has(Fault::LeadershipNotCompared) => Verdict::Pass,
            _ => Verdict::SendBack,
        }
    }

    fn judge_order<'c>(&mut self, passage: &Passage<'c>) -> Verdict<'c> {
        let Passage { group, asked, .. } = passage;
        let Group { replica, keyspace, .. } = &self.cx.groups[*group];
        let orders = !keyspace.has_leader() || replica.as_ref().is_some_and(|replica| replica.is_leader());
        match orders && self.forwarding.stands_behind(&self.cx, *group, asked, self.cx.configuration.node) {
            true => Verdict::Park(self.cx.no_leader_known(*group)),
            false => Verdict::Pass,
        }
    }

    fn judge_values<'c>(&mut self, passage: &Passage<'c>) -> Verdict<'c> {
        let spills = self.cx.groups[passage.group].keyspace.spills();
        if !spills || passage.write().is_none() || !self.values.is_overloaded() {
            return Verdict::Pass;
        }
        let own = self.cx.configuration.node;
        Verdict::Refuse(Cow::Owned(format!(
            "TRYAGAIN OVERLOADED the disk of node {own} is behind with values; nothing was done, try again"
        )))
    }

    /// The last gate: what it lets through is ordered.
    fn judge_locked<'c>(&mut self, passage: &Passage<'c>) -> Verdict<'c> {
        let command = match (&passage.instead, passage.request) {
            (Some(command), _) => command,
            (None, Request::Command(command)) => command,
            (None, Request::Wait { .. }) => return Verdict::Pass,
        };
        let Asked { ticket, deadline_us, .. } = passage.asked;
        match self.two_phase.judge(&mut self.cx, passage.group, ticket, deadline_us, command) {
            Judged::Goes => {
                // Writes of its keys may be ordered behind the end of a transaction.
                if matches!(
                    command,
                    Command::TwoPhase(TwoPhaseCommand::Commit { .. } | TwoPhaseCommand::Abort { .. })
                ) {
                    self.forwarding.look_soon(&self.cx);
                }
                Verdict::Pass
            }
            Judged::Waits => Verdict::ParkForKeys,
            Judged::Refused(header) => {
                Verdict::Replace(Command::TwoPhase(TwoPhaseCommand::Resolve { header }))
            }
        }
    }

    /// Has keys removed until the needed room is there. If none can be made, returns the error for the client.
    #[inline(never)]
    pub(super) fn make_room(&mut self, mut need: Need) -> Option<&'static str> {
        loop {
            match self.evictions.next(&mut self.cx, self.unsettled.effects(), &mut need) {
                eviction::Next::Settle => self.settle(need.group()),
                eviction::Next::Done => return None,
                eviction::Next::Refused(error) => return Some(error),
            }
        }
    }
}

/// The script to run instead of this one in a full keyspace, if it may run there: its commands are refused if they enlarge the
/// data.
fn in_full<'c>(command: &'c Command<'c>) -> Option<Command<'c>> {
    let mut inner = None;
    let Command::Script(script) = command.unbounded(&mut inner) else { return None };
    let options = ScriptOptions { is_in_full: true, ..script.options() };
    let script = Command::Script(script.with_options(options));
    (options.when_full == WhenFull::ByCommand).then_some(script)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room is made, and bounds are granted, for what will be carried out; and who carries it out is decided last.
    #[test]
    fn the_gates_before_a_group_stand_in_this_order() {
        use Gate::*;
        let order = [
            Quarantine, Memory, Keyspace, Room, Grant, Work, Long, Replica, Leadership, Order, Values, Locked,
        ];
        assert_eq!(GATES.map(|(gate, _)| gate), order);
    }
}

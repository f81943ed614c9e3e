//! What a node does while its disk has no room.
//!
//! The log keeps a reserve on the disk, see [`storage::Log`]. When the disk refuses what the log wants ready, or has no
//! room for large values, the node is *short*: its reserve is for what makes room again, and for what keeps its groups
//! alive. It informs its peers, and from then on:
//!
//! * **The node that orders** a group's commands refuses those that make data larger, with `NOSPACE`, if the group
//!   cannot keep them without a member that is short: too few others have room. Reads, deletions, and the groups' own
//!   records continue, out of the reserve; and as soon as deletions allow the log to be shortened, it is.
//! * **A member that can be spared** stands aside, so that the others continue without any limit and its reserve lasts:
//!   others take over what it leads, it takes nothing from the group, and requests of its clients are forwarded. In a
//!   group of consensus, it can be spared when the others with room are a majority. With leader-follower, the control
//!   group takes away what a node leads when the node is silent there; so a node stands aside in the control group and
//!   in all these groups at once, when the other control nodes with room are a majority, and each of these groups has
//!   another node that may lead. A replica of registers ignores what others send, and writes of its node's clients go
//!   to another member.
//! * **When nothing can be written at all**, since the reserve is used up, the node stands aside whatever the others
//!   have.
//!
//! It stands aside a moment after it has become short, so that what it had ordered by then can end.

use crate::context::Context;
use crate::control::CONTROL_GROUP;
use crate::control::MAP_GROUP;
use crate::envelope::Envelope;
use crate::groups::Group;
use crate::log::{Level, Line};
use crate::setting::Protocol;
use kv::Command;
use protocol::leader_follower::Acks;
use protocol::{NodeId, Request};
use wire::frame;

/// How long after it has become short a node stands aside.
const HANDOVER_MS: u64 = 300;

/// The minimum time between two log lines about room.
const LINE_MS: u64 = 10_000;

/// What a node knows of the room on its own disk and on others'.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Since when this node has no room but the reserve.
    short_since_us: Option<u64>,
    /// Whether this node stands aside in the control group and in all groups of leader-follower.
    is_aside: bool,
    /// Whether this node or a peer is short.
    pub(crate) is_any_short: bool,
    line_after_us: u64,
    /// Whether it was logged that this node is short, and not yet that there is room again.
    is_logged: bool,
    /// Commands that were refused for lack of room.
    pub(crate) refused: u64,
}

impl Room {
    /// Whether there is no room on the disk but the reserve.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.short_since_us.is_some()
    }
}

/// What happens to a request for which room matters.
pub(crate) enum Verdict {
    Goes,
    Refused(String),
    /// It waits here until another node leads; the error if that takes too long.
    Waits(String),
    /// It is forwarded to another node.
    PassedOn,
}

impl Context {
    /// Checks whether there is room, and informs the others of changes.
    pub(crate) fn tend_room(&mut self, no_room_for_values: bool) {
        let is_short = self.journal.is_short() || no_room_for_values;
        let was_short = self.room.is_short();
        if !is_short && !was_short {
            return;
        }
        match is_short {
            true => self.room.short_since_us = self.room.short_since_us.or(Some(self.now.monotonic_us)),
            false => self.room.short_since_us = None,
        }
        let is_aside = is_short && (self.journal.is_full() || self.can_be_spared());
        let was_aside = std::mem::replace(&mut self.room.is_aside, is_aside);
        if (is_short, is_aside) != (was_short, was_aside) {
            for peer in self.peers.iter_mut().filter(|peer| peer.up) {
                frame::append(&mut peer.output, |out| Envelope::Room { is_short, is_aside }.encode(out));
            }
            self.note_short_peers();
        }
        self.log_room();
    }

    fn log_room(&mut self) {
        let is_short = self.room.is_short();
        if is_short == self.room.is_logged || is_short && self.now.monotonic_us < self.room.line_after_us {
            return;
        }
        self.room.is_logged = is_short;
        self.room.line_after_us = self.now.monotonic_us + LINE_MS * 1000;
        let ready = self.journal.ready_bytes() >> 10;
        let (level, text) = match is_short {
            true => (
                Level::Error,
                format!(
                    "the disk is full: writes are refused until there is room again, or are left to nodes that have room; \
                     reads, and what deletes data, go on out of a reserve, of which {ready} KiB are left for the log"
                ),
            ),
            false => (Level::Info, "the disk has room again".to_owned()),
        };
        self.log.push(Line { level, text });
    }

    /// Informs a peer that has just connected.
    pub(crate) fn announce_room(&mut self, id: NodeId) {
        let (is_short, is_aside) = (self.room.is_short(), self.room.is_aside);
        if is_short {
            let output = &mut self.peers[usize::from(id) - 1].output;
            frame::append(output, |out| Envelope::Room { is_short, is_aside }.encode(out));
        }
    }

    /// Notes whether this node or a peer is short.
    pub(crate) fn note_short_peers(&mut self) {
        self.room.is_any_short = self.room.is_short() || self.peers.iter().any(|peer| peer.is_short);
    }

    /// Whether a node can keep more, as far as this node knows.
    fn has_room(&self, id: NodeId) -> bool {
        if id == self.configuration.node {
            return !self.room.is_short();
        }
        let peer = self.peers.get(usize::from(id).wrapping_sub(1));
        peer.is_some_and(|peer| peer.up && !peer.is_short)
    }

    /// How many of these nodes can keep more, and whether they are a majority.
    fn count_room(&self, members: &[NodeId]) -> (usize, bool) {
        let count = members.iter().filter(|id| self.has_room(**id)).count();
        (count, 2 * count > members.len())
    }

    /// The followers that a leader-follower keyspace waits for, besides the in-sync set.
    fn acks_counted(&self, group: &Group) -> usize {
        match group.keyspace.acks {
            Acks::Count(count) => usize::from(count),
            Acks::Majority => group.members.len() / 2,
            Acks::None | Acks::All => 0,
        }
    }

    fn in_sync(&self, id: u16) -> &[NodeId] {
        self.map.groups.get(&id).map(|group| group.in_sync.as_slice()).unwrap_or_default()
    }

    /// Whether the control group, and all groups of leader-follower, can do without this node.
    fn can_be_spared(&self) -> bool {
        let own = self.configuration.node;
        if let Some(control) = self.map.groups.get(&CONTROL_GROUP)
            && control.members.contains(&own)
            && !self.count_room(&control.members).1
        {
            return false;
        }
        self.groups.iter().all(|(id, group)| {
            let is_concerned = group.replica.is_some() && group.needs_room();
            if !is_concerned || group.keyspace.replication != Protocol::LeaderFollower {
                return true;
            }
            let may_lead = self.in_sync(id).iter().any(|id| self.has_room(*id));
            may_lead && self.count_room(&group.members).0 > self.acks_counted(group)
        })
    }

    fn is_handed_over(&self) -> bool {
        let since_us = self.room.short_since_us;
        self.journal.is_full() || since_us.is_some_and(|since_us| self.now.ms_since(since_us) >= HANDOVER_MS)
    }

    /// Whether this node takes no part in what a group's leader orders, as if its links were cut: others take over what
    /// it leads, and it accepts nothing that it would have to keep.
    #[inline]
    pub(crate) fn stands_aside(&self, group: u16) -> bool {
        self.room.is_short() && self.is_handed_over() && self.is_spared_in(group)
    }

    #[cold]
    fn is_spared_in(&self, id: u16) -> bool {
        if id == CONTROL_GROUP || id == MAP_GROUP {
            return self.room.is_aside;
        }
        let Some(group) = self.groups.get(id).filter(|group| group.needs_room()) else { return false };
        match group.keyspace.replication {
            Protocol::Consensus => self.journal.is_full() || self.count_room(&group.members).1,
            Protocol::LeaderFollower => self.room.is_aside,
            _ => false,
        }
    }

    /// Whether a replica of registers accepts what other members send.
    #[inline]
    pub(crate) fn takes_registers(&self, group: u16) -> bool {
        if self.room.is_short() {
            let group = self.groups.get(group).filter(|group| group.needs_room());
            if group.is_some_and(|group| self.journal.is_full() || self.count_room(&group.members).1) {
                return false;
            }
        }
        !self.journal.is_full() && !self.journal.is_behind()
    }

    /// Whether a command must be refused for lack of room, before its value is dispersed.
    #[inline]
    pub(crate) fn is_refused_by_room(&self, group: u16, command: &Command<'_>) -> bool {
        self.room.is_any_short && !matches!(self.judge_command(group, command), Verdict::Goes)
    }

    #[cold]
    pub(crate) fn judge_room(&self, group: u16, request: &Request<'_>) -> Verdict {
        if self.stands_aside(group) {
            return Verdict::PassedOn;
        }
        match request {
            Request::Command(command) if command.is_write() => self.judge_command(group, command),
            _ => Verdict::Goes,
        }
    }

    #[cold]
    fn judge_command(&self, id: u16, command: &Command<'_>) -> Verdict {
        let group = &self.groups[id];
        let has_leader = group.keyspace.has_leader();
        let Some(replica) = group.replica.as_ref().filter(|_| group.needs_room()) else {
            return Verdict::Goes;
        };
        if has_leader && !replica.is_leader() {
            return Verdict::Goes; // The leader judges.
        }
        let own = self.configuration.node;
        if self.journal.is_full() || self.room.is_short() && self.journal.reserve_is_low() {
            return Verdict::Refused(format!(
                "NOSPACE the disk of node {own} is full, and its reserve is used up; nothing was done"
            ));
        }
        // For a change, registers record the whole value.
        let grows = if has_leader { command.may_grow() } else { !command.only_deletes() };
        if !grows {
            return Verdict::Goes;
        }
        let is_short = self.room.is_short();
        let (with_room, is_majority) = self.count_room(&group.members);
        let is_waited_for = |id: NodeId| {
            let peer = self.peers.get(usize::from(id).wrapping_sub(1));
            peer.is_some_and(|peer| peer.up && peer.is_short && !peer.is_aside)
        };
        match group.keyspace.replication {
            Protocol::LeaderFollower => {
                if is_short && self.room.is_aside {
                    return hands_over(own);
                }
                let is_kept = with_room > self.acks_counted(group);
                if !is_short && is_kept && !self.in_sync(id).iter().any(|id| is_waited_for(*id)) {
                    return Verdict::Goes;
                }
            }
            _ if !is_majority => {}
            Protocol::Consensus if is_short => return hands_over(own),
            _ if is_short => return Verdict::PassedOn,
            _ => return Verdict::Goes,
        }
        let is_known_short = |id: &&NodeId| **id == own && is_short || is_known_short(self, **id);
        let short: Vec<String> =
            group.members.iter().filter(is_known_short).map(|id| id.to_string()).collect();
        // Other members may be down as well: the group could do without one or the other, but not without both.
        match short.is_empty() {
            true => Verdict::Goes,
            false => {
                let (noun, verb) =
                    if short.len() == 1 { ("disk of node", "is") } else { ("disks of nodes", "are") };
                Verdict::Refused(format!(
                    "NOSPACE the {noun} {} {verb} full; nothing was done. Reads go on, and what deletes data",
                    short.join(", ")
                ))
            }
        }
    }
}

fn is_known_short(cx: &Context, id: NodeId) -> bool {
    cx.peers.get(usize::from(id).wrapping_sub(1)).is_some_and(|peer| peer.up && peer.is_short)
}

fn hands_over(own: NodeId) -> Verdict {
    Verdict::Waits(format!(
        "TRYAGAIN NOLEADER node {own} hands over what it leads, since its disk is full; nothing was done"
    ))
}

impl Group {
    /// Whether what the group is given must be kept on the disk.
    pub(crate) fn needs_room(&self) -> bool {
        self.tail.is_durable() || self.keyspace.spills()
    }
}

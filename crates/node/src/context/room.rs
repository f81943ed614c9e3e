//! What a node does while its disk has no room.
//!
//! The log keeps a reserve on the disk, see [`storage::Log`]. When the disk refuses space that the log wants to
//! allocate, or has no room for large values, the node is *short*: its reserve is for what makes room again, and for
//! what its groups need to go on. It informs its peers, and from then on:
//!
//! * **The node that orders** a group's commands refuses those that make data larger, with `NOSPACE`, if the group
//!   cannot keep them without a member that is short: too few others have room. Reads, deletions, and the groups' own
//!   records continue, out of the reserve; and as soon as deletions allow the log to be shortened, it is.
//! * **A member that can be spared** stands aside, so that the others continue without any limit and its reserve
//!   lasts: others take over its leaderships, it accepts nothing from the group, and requests of its clients are
//!   forwarded. In a group of consensus, it can be spared when the others with room are a majority. With
//!   leader-follower, the control group takes leaderships away from a node that is silent there. So a node stands
//!   aside in the control group and in all these groups at once, when the other control nodes with room are a
//!   majority, and each of these groups has another node that may lead. A replica of registers ignores what others
//!   send, and writes of its node's clients go to another member.
//! * **When nothing can be written at all**, since the reserve is used up, the node stands aside whether or not the
//!   others have room.
//!
//! It stands aside a moment after it has become short, so that commands that it had already ordered can end.

use crate::context::Context;
use crate::diagnostics::log::{Level, Line};
use crate::groups::Group;
use crate::messages::envelope::Envelope;
use crate::session::gates::Gate;
use cluster::control::CONTROL_GROUP;
use cluster::control::MAP_GROUP;
use cluster::setting::Protocol;
use kv::Command;
use protocol::leader_follower::Acks;
use protocol::{NodeId, Request};

/// How long after it has become short a node stands aside.
const HANDOVER_MS: u64 = 300;

/// The minimum time between two log lines about room.
const LINE_MS: u64 = 10_000;

/// What a node knows about the room on its own disk and on those of others.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Since when this node has no room but the reserve.
    short_since_us: Option<u64>,
    /// Whether this node stands aside in the control group and in all groups of leader-follower.
    is_aside: bool,
    line_after_us: u64,
    /// Whether it was logged that this node is short, and not yet that there is room again.
    is_logged: bool,
    /// Commands that were refused for lack of room.
    refused: u64,
}

impl Room {
    /// Whether there is no room on the disk but the reserve.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.short_since_us.is_some()
    }

    pub(crate) fn count_refused(&mut self) {
        self.refused += 1;
    }

    /// How many commands were refused for lack of room.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }
}

/// What is done with a request that needs room.
pub(crate) enum Verdict {
    Goes,
    Refused(String),
    /// The request waits here until another node leads; the error is for the case that this takes too long.
    Waits(String),
    /// The request is forwarded to another node.
    PassedOn,
}

/// Checks whether there is room, and informs the others of changes.
pub(crate) fn tick(cx: &mut Context, no_room_for_values: bool) {
    let is_short = cx.journal.is_short() || no_room_for_values;
    let was_short = cx.room.is_short();
    if !is_short && !was_short {
        return;
    }
    match is_short {
        true => cx.room.short_since_us = cx.room.short_since_us.or(Some(cx.now.monotonic_us)),
        false => cx.room.short_since_us = None,
    }
    let is_aside = is_short && (cx.journal.is_full() || can_be_spared(cx));
    let was_aside = std::mem::replace(&mut cx.room.is_aside, is_aside);
    if (is_short, is_aside) != (was_short, was_aside) {
        cx.peers.send_to_all(&Envelope::Room { is_short, is_aside });
        note_short_peers(cx);
    }
    log_change(cx);
}

fn log_change(cx: &mut Context) {
    let is_short = cx.room.is_short();
    if is_short == cx.room.is_logged || is_short && cx.now.monotonic_us < cx.room.line_after_us {
        return;
    }
    cx.room.is_logged = is_short;
    cx.room.line_after_us = cx.now.monotonic_us + LINE_MS * 1000;
    let ready = cx.journal.ready_bytes() >> 10;
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
    cx.log.push(Line { level, text });
}

/// Reports to a peer that has just connected whether this node is short.
pub(crate) fn announce_to(cx: &mut Context, id: NodeId) {
    let (is_short, is_aside) = (cx.room.is_short(), cx.room.is_aside);
    if is_short {
        cx.peers[id].send(&Envelope::Room { is_short, is_aside });
    }
}

/// Notes whether this node or a peer is short.
pub(crate) fn note_short_peers(cx: &mut Context) {
    cx.gates.set(Gate::Room, cx.room.is_short() || cx.peers.any_is_short());
}

/// Whether a node can keep more data, as far as this node knows.
fn has_room(cx: &Context, id: NodeId) -> bool {
    if id == cx.configuration.node {
        return !cx.room.is_short();
    }
    cx.peers.get(id).is_some_and(|peer| peer.is_up() && !peer.is_short())
}

/// How many of these nodes can keep more data, and whether they are a majority.
fn count_room(cx: &Context, members: &[NodeId]) -> (usize, bool) {
    let count = members.iter().filter(|id| has_room(cx, **id)).count();
    (count, 2 * count > members.len())
}

/// The followers that a leader-follower keyspace waits for, besides the in-sync set.
fn acks_counted(group: &Group) -> usize {
    match group.keyspace.acks {
        Acks::Count(count) => usize::from(count),
        Acks::Majority => group.members.len() / 2,
        Acks::None | Acks::All => 0,
    }
}

fn in_sync(cx: &Context, id: u16) -> &[NodeId] {
    cx.map.groups.get(&id).map(|group| group.in_sync.as_slice()).unwrap_or_default()
}

/// Whether the control group, and all groups of leader-follower, can do without this node.
fn can_be_spared(cx: &Context) -> bool {
    let own = cx.configuration.node;
    if let Some(control) = cx.map.groups.get(&CONTROL_GROUP)
        && control.members.contains(&own)
        && !count_room(cx, &control.members).1
    {
        return false;
    }
    cx.groups.iter().all(|(id, group)| {
        let is_concerned = group.replica.is_some() && group.needs_room();
        if !is_concerned || group.keyspace.replication != Protocol::LeaderFollower {
            return true;
        }
        let may_lead = in_sync(cx, id).iter().any(|id| has_room(cx, *id));
        may_lead && count_room(cx, &group.members).0 > acks_counted(group)
    })
}

fn is_handed_over(cx: &Context) -> bool {
    let since_us = cx.room.short_since_us;
    cx.journal.is_full() || since_us.is_some_and(|since_us| cx.now.ms_since(since_us) >= HANDOVER_MS)
}

/// Whether this node takes no part in what a group's leader orders, as if its links were cut: others take over its
/// leaderships, and it accepts nothing that it would have to keep.
#[inline]
pub(crate) fn stands_aside(cx: &Context, group: u16) -> bool {
    cx.room.is_short() && is_handed_over(cx) && is_spared_in(cx, group)
}

#[cold]
fn is_spared_in(cx: &Context, id: u16) -> bool {
    if id == CONTROL_GROUP || id == MAP_GROUP {
        return cx.room.is_aside;
    }
    let Some(group) = cx.groups.get(id).filter(|group| group.needs_room()) else { return false };
    match group.keyspace.replication {
        Protocol::Consensus => cx.journal.is_full() || count_room(cx, &group.members).1,
        Protocol::LeaderFollower => cx.room.is_aside,
        _ => false,
    }
}

/// Whether a replica of registers accepts what other members send.
#[inline]
pub(crate) fn takes_registers(cx: &Context, group: u16) -> bool {
    if cx.room.is_short() {
        let group = cx.groups.get(group).filter(|group| group.needs_room());
        if group.is_some_and(|group| cx.journal.is_full() || count_room(cx, &group.members).1) {
            return false;
        }
    }
    !cx.journal.is_full() && !cx.journal.is_behind()
}

/// Whether a command must be refused for lack of room, before its value is dispersed.
#[inline]
pub(crate) fn refuses(cx: &Context, group: u16, command: &Command<'_>) -> bool {
    cx.gates.has(Gate::Room) && !matches!(judge_command(cx, group, command), Verdict::Goes)
}

#[cold]
pub(crate) fn judge(cx: &Context, group: u16, request: &Request<'_>) -> Verdict {
    if stands_aside(cx, group) {
        return Verdict::PassedOn;
    }
    request.write().map_or(Verdict::Goes, |command| judge_command(cx, group, command))
}

#[cold]
fn judge_command(cx: &Context, id: u16, command: &Command<'_>) -> Verdict {
    let group = &cx.groups[id];
    let has_leader = group.keyspace.has_leader();
    let Some(replica) = group.replica.as_ref().filter(|_| group.needs_room()) else {
        return Verdict::Goes;
    };
    if has_leader && !replica.is_leader() {
        return Verdict::Goes; // The leader judges.
    }
    let own = cx.configuration.node;
    if cx.journal.is_full() || cx.room.is_short() && cx.journal.reserve_is_low() {
        return Verdict::Refused(format!(
            "NOSPACE the disk of node {own} is full, and its reserve is used up; nothing was done"
        ));
    }
    // Even for a small change, registers record the whole value.
    let grows = if has_leader { command.may_grow() } else { !command.only_deletes() };
    if !grows {
        return Verdict::Goes;
    }
    let is_short = cx.room.is_short();
    let (with_room, is_majority) = count_room(cx, &group.members);
    let is_waited_for =
        |id: NodeId| cx.peers.get(id).is_some_and(|peer| peer.is_up() && peer.is_short() && !peer.is_aside());
    match group.keyspace.replication {
        Protocol::LeaderFollower => {
            if is_short && cx.room.is_aside {
                return hands_over(own);
            }
            let is_kept = with_room > acks_counted(group);
            if !is_short && is_kept && !in_sync(cx, id).iter().any(|id| is_waited_for(*id)) {
                return Verdict::Goes;
            }
        }
        _ if !is_majority => {}
        Protocol::Consensus if is_short => return hands_over(own),
        _ if is_short => return Verdict::PassedOn,
        _ => return Verdict::Goes,
    }
    let is_known_short = |id: &&NodeId| **id == own && is_short || is_known_short(cx, **id);
    let short: Vec<String> = group.members.iter().filter(is_known_short).map(|id| id.to_string()).collect();
    // Other members may be down as well: the group could do without either kind, but not without both.
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

fn is_known_short(cx: &Context, id: NodeId) -> bool {
    cx.peers.get(id).is_some_and(|peer| peer.is_up() && peer.is_short())
}

fn hands_over(own: NodeId) -> Verdict {
    Verdict::Waits(format!(
        "TRYAGAIN NOLEADER node {own} hands over what it leads, since its disk is full; nothing was done"
    ))
}

impl Group {
    /// Whether the group's data must be kept on the disk.
    pub(crate) fn needs_room(&self) -> bool {
        self.tail.is_durable() || self.keyspace.spills()
    }
}

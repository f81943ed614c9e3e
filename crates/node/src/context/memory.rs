//! How much memory a node takes, and what it does before it takes too much.
//!
//! One number bounds the process, `memory_max`. The node's caller measures what the process really takes: at least
//! once a second, and whenever so many bytes have arrived that the last measurement may be far off. Everything is
//! decided by that measurement; what clients hold is counted separately. Two rules follow:
//!
//! * **Data** (tables, locks, logs in memory, parts of long writes, caches) is what was measured less what clients
//!   hold, and what copies of collections share: changes of them may take it at any time, even if they only remove.
//!   When it takes more than three quarters of the bound, commands that may grow it are refused with Redis's `OOM`;
//!   reads, and commands that free memory, continue. The decision is made where a command is ordered, so replicas
//!   stay equal. Nodes inform each other when they are full, and the node that orders refuses if any member of the
//!   group is full.
//! * **Clients** share the rest: an eighth of the bound for replies, queues, subscriptions and names, with the largest
//!   client closed first; as much for requests that have not arrived whole, which the server bounds in the same way;
//!   and half of that for bodies of HTTP, and as much for long answers of HTTP. Requests under way may take an eighth as well, large ones half of that, and
//!   at most 256 and 128 MiB: beyond that, no more are read.
//!
//! What replicas keep of history for others, gives way: together it may take an eighth of the bound, and a 64th while data is
//! full.
//!
//! A short command with a large result (`SETRANGE` far beyond the end, `COPY`) is refused when there is no room for its
//! result, or if that is more than an eighth of the bound in one step.

use crate::context::Context;
use crate::diagnostics::log::{Level, Line};
use crate::messages::envelope::Envelope;
use crate::session::gates::Gate;
use crate::session::{ClientId, Session};
use kv::Command;
use protocol::{NodeId, Now};

/// The error for a command that would make the data larger, as in Redis.
pub(crate) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// The error for a script with a header, as in Redis.
pub(crate) const SCRIPT_OUT_OF_MEMORY: &str =
    "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'";

/// The most that large requests under way may take, however much memory there is. Small ones may take the same amount
/// in addition.
const REQUEST_BYTES_MAX: u64 = 128 << 20;

/// The most that [`Memory::bound_least`] is, however much memory there is.
const BOUND_LEAST_MAX: u64 = 16 << 20;

/// How often memory is measured at least, and how often free memory is released at most while little is left.
const INTERVAL_MS: u64 = 1000;
/// The same while little or nothing is left: what is freed, in tables or in logs, is to be used soon.
const INTERVAL_WHEN_TIGHT_MS: u64 = 100;
const RELEASE_WHEN_FULL_MS: u64 = 300;

/// The minimum time between two log lines about memory.
const LINE_MS: u64 = 10_000;

/// What is known of a node's memory, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The bound on the process's memory; 0: no limit.
    bytes_max: u64,
    /// The process's memory at the last measurement.
    resident: u64,
    /// What copies of collections share, which changes of them may still take: see [`kv::Table::shared_bytes`].
    shared: u64,
    /// The part of it that the server holds for clients: requests that have not arrived whole.
    inputs: u64,
    /// The part of it that sessions hold, as of the last count.
    sessions: u64,
    /// What the process had read and written in all at the last measurement.
    traffic: u64,
    measured_us: u64,
    /// What writes under way may add: see [`super::grants`].
    pub(super) granted: u64,
    /// What writes with a bound have added since the last measurement, and in all.
    added: u64,
    pub(super) added_in_all: u64,
    /// How many nodes lead groups of which this node has replicas.
    pub(super) leaders: u64,
    /// What was last announced to peers as left.
    pub(super) announced: u64,
    /// Memory of the tables, by their own count: at the last measurement, and at most since free memory was last released.
    held: u64,
    held_most: u64,
    /// Whether tables free memory at present.
    frees: bool,
    released_us: u64,
    /// Bytes of replies since sessions were counted.
    answered: u64,
    /// Bytes of requests under way.
    requests: usize,
    is_full: bool,
    /// Whether a peer is full.
    is_a_peer_full: bool,
    line_after_us: u64,
}

impl Memory {
    pub(crate) fn new(bytes_max: u64) -> Memory {
        Memory { bytes_max, ..Memory::default() }
    }

    #[inline]
    pub(crate) fn is_bounded(&self) -> bool {
        self.bytes_max > 0
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// The most that data may take.
    pub(crate) fn data_max(&self) -> u64 {
        self.bytes_max / 4 * 3
    }

    /// The most that the replies of one step may take, and the replies under way to a peer.
    pub(crate) fn replies_max(&self) -> usize {
        match self.bytes_max {
            0 => kv::limits::REPLIES_BYTES_MAX,
            bytes => kv::limits::REPLIES_BYTES_MAX.min((bytes / 32) as usize),
        }
    }

    /// The most that one reply may hold: twice the longest value.
    pub(crate) fn reply_max(&self) -> usize {
        match self.bytes_max {
            0 => kv::limits::REPLY_BYTES_MAX,
            bytes => kv::limits::REPLY_BYTES_MAX.min((bytes / 16) as usize),
        }
    }

    /// The most that sessions may take.
    fn sessions_max(&self) -> u64 {
        self.bytes_max / 8
    }

    /// The memory that data takes, each copy of a collection as if it shared nothing.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.resident.saturating_sub(self.clients_bytes()) + self.shared
    }

    /// The memory that clients hold.
    pub(crate) fn clients_bytes(&self) -> u64 {
        self.sessions + self.inputs
    }

    /// Bytes of requests under way.
    pub(crate) fn request_bytes(&self) -> usize {
        self.requests
    }

    /// Whether memory was measured since the start.
    pub(crate) fn is_measured(&self) -> bool {
        self.resident > 0
    }

    /// Whether data may not grow.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether data may not grow here, or at a peer.
    pub(crate) fn is_any_full(&self) -> bool {
        self.is_full || self.is_a_peer_full
    }

    /// Whether requests under way take all that large ones may.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.is_bounded() && self.requests as u64 >= self.requests_max()
    }

    /// Whether requests under way take so much that small ones wait, too.
    #[inline]
    pub(crate) fn is_overcrowded(&self) -> bool {
        self.is_bounded() && self.requests as u64 >= 2 * self.requests_max()
    }

    #[inline]
    fn requests_max(&self) -> u64 {
        REQUEST_BYTES_MAX.min(self.bytes_max / 16)
    }

    /// Updates the count of a session's requests under way.
    #[inline]
    pub(crate) fn follow(&mut self, session: &mut Session) {
        let (before, now) = session.count_bytes();
        self.requests = self.requests + now - before;
    }

    /// Stops counting a session that has ended.
    pub(crate) fn end(&mut self, session: &Session) {
        assert!(session.counted_bytes() <= self.requests, "a client's requests are a part of the sum");
        self.requests -= session.counted_bytes();
    }

    /// Counts the bytes of a reply. Returns true when it is time to count what clients hold.
    #[inline]
    pub(crate) fn answered(&mut self, bytes: usize) -> bool {
        self.answered += bytes as u64;
        self.answered > self.bytes_max / 32 && self.is_bounded()
    }

    /// What data may still take, before what is under way.
    fn left(&self) -> u64 {
        self.data_max().saturating_sub(self.data_bytes() + self.added)
    }

    /// The part of it that writes may take which one node orders, of those that lead groups here.
    pub(crate) fn share_left(&self) -> u64 {
        self.left() / self.leaders.max(1)
    }

    /// The most that a command may add beyond its own bytes.
    fn room(&self) -> u64 {
        self.share_left().min(self.bytes_max / 8)
    }

    /// The least bound that a write gets whose growth is not known.
    pub(crate) fn bound_least(&self) -> u64 {
        (self.bytes_max / 128).min(BOUND_LEAST_MAX)
    }

    /// Counts what writes with a bound have added.
    pub(crate) fn count_added(&mut self, bytes: u64) {
        self.added = self.added.saturating_add(bytes);
        self.added_in_all = self.added_in_all.saturating_add(bytes);
    }

    /// Whether memory should be measured again: a second has passed, or `traffic` (what the process has read and
    /// written in all) has grown so much that the last measurement is out of date.
    #[inline]
    pub(crate) fn wants_measurement(&self, now: Now, traffic: u64) -> bool {
        let since = traffic.saturating_sub(self.traffic);
        let is_old = || since > self.bytes_max / 64 || self.added > self.bytes_max / 32;
        // One command may add an eighth. It must not be refused for what was there a second ago.
        let is_tight = || self.is_full || self.left() < self.bytes_max / 8;
        let since_ms = now.ms_since(self.measured_us);
        let is_late = || since_ms >= INTERVAL_MS || since_ms >= INTERVAL_WHEN_TIGHT_MS && is_tight();
        self.is_bounded() && (is_old() || is_late())
    }

    /// Whether free memory that the process still holds should be returned to the system: little is left, and so the last
    /// time was a while ago, or tables have freed much since then and are done with it.
    pub(crate) fn wants_release(&self, now: Now) -> bool {
        let interval_ms = if self.is_full { RELEASE_WHEN_FULL_MS } else { INTERVAL_MS };
        let is_tight =
            || self.resident > self.bytes_max / 8 * 5 && now.ms_since(self.released_us) >= interval_ms;
        let has_freed = || self.held_most - self.held > self.bytes_max / 32 && !self.frees;
        self.is_bounded() && (is_tight() || self.resident > self.bytes_max / 2 && has_freed())
    }

    /// Notes that free memory is returned.
    pub(crate) fn release(&mut self, now: Now) {
        self.released_us = now.monotonic_us;
        self.held_most = self.held;
    }

    /// Decides from the last measurement whether data may grow. Returns true when that has changed.
    fn judge(&mut self) -> bool {
        let most = if self.is_full { self.data_max() - self.bytes_max / 32 } else { self.data_max() };
        let is_full = self.is_bounded() && self.data_bytes() > most;
        std::mem::replace(&mut self.is_full, is_full) != is_full
    }
}

/// Takes a measurement: see [`crate::Node::measured`].
pub(crate) fn take_measurement(cx: &mut Context, resident: u64, inputs: u64, traffic: u64) {
    let memory = &mut cx.memory;
    (memory.resident, memory.inputs, memory.traffic) = (resident, inputs, traffic);
    look_at_tables(cx);
    let memory = &mut cx.memory;
    memory.measured_us = cx.now.monotonic_us;
    memory.added = 0;
    if resident > memory.bytes_max / 2 {
        bound_sessions(cx);
    } else {
        cx.memory.sessions = 0;
    }
    if cx.memory.judge() {
        close_gate(cx);
        announce(cx);
    }
}

/// Notes what the tables of all groups hold and share.
fn look_at_tables(cx: &mut Context) {
    let (mut held, mut shared, mut frees) = (0, 0, false);
    let groups = (0..).map_while(|place| cx.groups.id_at(place)).filter_map(|id| cx.groups.get(id));
    for table in groups.filter_map(|group| group.replica.as_ref()).map(|replica| replica.table()) {
        held += table.memory_bytes() as u64;
        shared += table.shared_bytes() as u64;
        frees |= !table.is_tidy();
    }
    let memory = &mut cx.memory;
    (memory.shared, memory.held, memory.frees) = (shared, held, frees);
    memory.held_most = memory.held_most.max(held);
}

fn close_gate(cx: &mut Context) {
    cx.gates.set(Gate::Memory, cx.memory.is_any_full());
}

/// Bounds the history that this node's replicas keep for others: together to an eighth of its memory, and to little while
/// data may not grow. A replica that lacks more gets a snapshot transfer.
pub(crate) fn bound_histories(cx: &mut Context) {
    const SHARE: u64 = 8;
    const SHARE_WHEN_FULL: u64 = 64;
    if !cx.memory.is_bounded() {
        return;
    }
    let share = if cx.memory.is_full { SHARE_WHEN_FULL } else { SHARE };
    let each = cx.memory.bytes_max / share / cx.groups.ids().len().max(1) as u64;
    let mut place = 0;
    while let Some(id) = cx.groups.id_at(place) {
        place += 1;
        if let Some(replica) = cx.groups.get_mut(id).and_then(|group| group.replica.as_mut()) {
            replica.set_history_max(each as usize);
        }
    }
}

/// Reports to the peers and to the log whether this node is full.
fn announce(cx: &mut Context) {
    let is_full = cx.memory.is_full;
    cx.peers.send_to_all(&Envelope::Memory { is_full });
    let (data, most) = (cx.memory.data_bytes() >> 20, cx.memory.data_max() >> 20);
    let text = match is_full {
        true => format!(
            "data takes {data} MiB of memory, and {most} MiB is all that it may: commands that make it larger are \
             refused (OOM); delete data, or raise limits.memory_max on a machine that has more"
        ),
        false => {
            format!("data takes {data} MiB of memory again, of {most} MiB: it may grow")
        }
    };
    log_line(cx, text);
}

fn log_line(cx: &mut Context, text: String) {
    if cx.now.monotonic_us >= cx.memory.line_after_us {
        cx.memory.line_after_us = cx.now.monotonic_us + LINE_MS * 1000;
        cx.log.push(Line { level: Level::Warning, text });
    }
}

/// Reports to a peer that has just connected whether this node is full.
pub(crate) fn announce_to(cx: &mut Context, id: NodeId) {
    if cx.memory.is_full {
        cx.peers[id].send(&Envelope::Memory { is_full: true });
    }
}

/// Notes whether any peer is full.
pub(crate) fn note_full_peers(cx: &mut Context) {
    cx.memory.is_a_peer_full = cx.peers.any_is_full();
    close_gate(cx);
}

/// Whether a write must be refused for the memory that it may take, here or at a member that has to keep the data,
/// too.
pub(crate) fn refuses_growth(cx: &Context, group: u16, command: &Command<'_>) -> bool {
    if !cx.memory.is_bounded() && !cx.memory.is_a_peer_full {
        return false;
    }
    if cx.memory.is_any_full() && is_full_for(cx, group, command) {
        return true;
    }
    let Some(replica) = cx.groups[group].replica.as_ref().filter(|_| cx.memory.is_bounded()) else {
        return false;
    };
    command.growth_bytes(&replica.table().sizes(cx.now.unix_ms)) > cx.memory.room()
}

#[cold]
fn is_full_for(cx: &Context, group: u16, command: &Command<'_>) -> bool {
    let group = &cx.groups[group];
    let Some(replica) = &group.replica else { return false };
    let orders = replica.is_leader() || !group.keyspace.has_leader();
    let is_full = |id: NodeId| cx.peers.get(id).is_some_and(|it| it.is_full());
    let refuses = cx.memory.is_full || orders && group.members.iter().any(|id| is_full(*id));
    refuses && command.may_grow()
}

/// Counts what sessions hold, and closes the largest if that is too much.
#[cold]
pub(crate) fn bound_sessions(cx: &mut Context) {
    cx.memory.answered = 0;
    let held = cx.clients.sessions.iter().map(|(id, session)| (session.memory_bytes() as u64, id));
    let mut held: Vec<(u64, ClientId)> = held.collect();
    cx.memory.sessions = held.iter().map(|(bytes, _)| bytes).sum();
    let most = cx.memory.sessions_max();
    if cx.memory.sessions <= most || !cx.memory.is_bounded() {
        return;
    }
    held.sort_unstable_by(|one, other| other.cmp(one));
    let all = cx.memory.sessions;
    for (bytes, client) in held {
        // Some extra room is made, so that a client is not closed at every reply.
        if cx.memory.sessions <= most - most / 8 {
            break;
        }
        cx.memory.sessions -= bytes;
        cx.counters.memory_closed += 1;
        let text = format!(
            "client {} is closed, since it holds {} MiB: clients hold {} MiB of memory in all, and may hold {} MiB",
            client.to_bits(),
            bytes >> 20,
            all >> 20,
            most >> 20
        );
        log_line(cx, text);
        cx.kill(client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_full_at_three_quarters_and_has_room_again_below() {
        let mut memory = Memory::new(1 << 30);
        let mut judge = |mebibytes: u64, inputs: u64| {
            (memory.resident, memory.inputs) = (mebibytes << 20, inputs << 20);
            (memory.judge(), memory.is_full)
        };
        assert_eq!(judge(768, 0), (false, false));
        assert_eq!(judge(800, 100), (false, false), "what clients hold is not data");
        assert_eq!(judge(769, 0), (true, true));
        assert_eq!(judge(750, 0), (false, true), "not at once");
        assert_eq!(judge(735, 0), (true, false));
        memory.shared = 40 << 20;
        assert_eq!((memory.judge(), memory.is_full), (true, true), "what copies share is data");
    }

    #[test]
    fn free_memory_is_released_when_little_is_left_or_much_was_freed() {
        let mut memory = Memory::new(1 << 30);
        let at = |ms: u64| Now { monotonic_us: ms * 1000, unix_ms: 0 };
        let look = |memory: &mut Memory, resident: u64, held: u64, frees: bool| {
            (memory.resident, memory.held, memory.frees) = (resident << 20, held << 20, frees);
            memory.held_most = memory.held_most.max(memory.held);
        };
        look(&mut memory, 600, 500, false);
        assert!(!memory.wants_release(at(5000)), "nothing was freed, and there is room");
        look(&mut memory, 600, 490, false);
        assert!(!memory.wants_release(at(5000)), "little was freed");
        look(&mut memory, 600, 10, true);
        assert!(!memory.wants_release(at(5000)), "it is still being freed");
        look(&mut memory, 600, 10, false);
        assert!(memory.wants_release(at(5000)));
        memory.release(at(5000));
        assert!(!memory.wants_release(at(5001)), "once");
        look(&mut memory, 700, 10, false);
        assert!(!memory.wants_release(at(5999)) && memory.wants_release(at(6000)), "once a second");
        look(&mut memory, 400, 300, false);
        look(&mut memory, 400, 10, false);
        assert!(!memory.wants_release(at(9000)), "there is much room");
        memory.is_full = true;
        memory.measured_us = 9_000_000;
        assert!(memory.wants_measurement(at(9100), 0) && !memory.wants_measurement(at(9099), 0));
        (memory.is_full, memory.resident) = (false, 700 << 20);
        assert!(memory.wants_measurement(at(9100), 0), "little is left");
        memory.resident = 500 << 20;
        assert!(!memory.wants_measurement(at(9100), 0) && memory.wants_measurement(at(10_000), 0));
        memory.is_full = true;
        look(&mut memory, 700, 10, false);
        memory.release(at(9000));
        assert!(memory.wants_release(at(9300)) && !memory.wants_release(at(9299)), "data may not grow");
    }

    #[test]
    fn what_was_added_counts_until_it_is_measured() {
        let mut memory = Memory::new(1 << 30);
        memory.resident = 700 << 20;
        memory.count_added(60 << 20);
        assert_eq!(memory.room(), 8 << 20);
        let now = Now { monotonic_us: 1000, unix_ms: 0 };
        memory.measured_us = 1000;
        assert!(memory.wants_measurement(now, 0), "so much was added that the last one is out of date");
        memory.added = 0;
        assert!(!memory.wants_measurement(now, 0));
        assert_eq!(memory.room(), 68 << 20);
        memory.leaders = 2;
        assert_eq!(memory.room(), 34 << 20, "another node gives the other half away");
        (memory.resident, memory.leaders) = (0, 1);
        assert_eq!(memory.room(), 128 << 20, "in one step an eighth of all");
    }
}

//! The phases of a run. First everything starts. Then there are faults, and only safety counts. Then everything
//! heals, and liveness counts, too: every request gets a reply, nodes become ready, a minority that is away stops no
//! other node, every key can be read at every node, and replicas become equal.

use super::World;
use super::damage::place_of;
use crate::clients::Client;
use crate::events::{Event, Place};
use crate::faults::{Class, MS, Mask, SECOND, has};
use crate::host::Host;
use crate::job::Job;
use crate::locking::{LOCKS, Locking, WAIT_MS_MAX};
use crate::operation::guarded;
use crate::operation::{COLLECTIONS, Key, Kind, Operation, QUEUES, Value};
use crate::promise::{Protocol, Space};
use crate::random::Random;
use crate::reading;
use crate::report::{Broken, Failure};
use crate::scenario::{Scenario, stream};
use crate::trace::id;
use cluster::control::{CONTROL_GROUP, Group, GroupId};
use driver::Change;
use kv::WaiterId;
use node::{Node, NodeId};
use std::collections::VecDeque;
use storage::simulated::Survivors;

/// The current phase of a run. A phase with a `by` must end by that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nodes start, with the run's faults of the network.
    Starting {
        by: u64,
    },
    /// Faults and load.
    Faults,
    /// The cluster was recovered from what is left of it. Until then the nodes that were not part of it may return with their old
    /// state.
    Recovering {
        until: u64,
    },
    /// Open requests get their replies.
    Answering {
        by: u64,
    },
    /// All nodes become ready; then comes `next`.
    Readying {
        by: u64,
        next: Next,
    },
    /// Some nodes are away, and all others must serve.
    Missing {
        by: u64,
    },
    /// Every key is read at every node.
    Reading {
        by: u64,
    },
    /// Replicas become equal.
    Converging {
        by: u64,
    },
    /// Clients that make backups read what they lack.
    BackingUp {
        by: u64,
    },
    Over,
}

/// The phase after all nodes are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Missing,
    Reading,
}

/// How often the world checks its progress.
pub(super) const LOOK_US: u64 = 20 * MS;

/// A command's timeout, and what its node may add to it.
const ANSWER_US: u64 = 10 * SECOND;

/// The most parts of a long request and of its reply, one after the other.
const PARTS: u64 = 128;

/// The messages that such a part takes, one after the other: to the leader, to followers and back, and back to the node.
const MESSAGES: u64 = 4;
const READY_US: u64 = 30 * SECOND;
const SERVE_US: u64 = 20 * SECOND;

/// The time for a restore that begins again when everything has healed.
const RESTORE_US: u64 = 40 * SECOND;

/// How long an observer waits for one more element.
const OBSERVED_MS: u16 = 1_000;

impl World {
    pub(super) fn progress(&mut self) {
        let now = self.now;
        self.look_at_map();
        self.exchange_refused_programs();
        match self.phase {
            Phase::Starting { by } => {
                if now >= by || self.are_all_ready() {
                    self.begin_faults();
                }
            }
            // The time is over, or so much was sent that the run would take too long.
            Phase::Faults => self.heal(),
            Phase::Recovering { until } => {
                self.check_nodes_left_behind();
                if now >= until {
                    self.replace_the_lost();
                    self.enter(Phase::Answering { by: self.answered_by() });
                }
            }
            Phase::Answering { by } => {
                let mut waiting = self.clients.iter().filter(|client| !client.is_satisfied()).peekable();
                if waiting.peek().is_none() {
                    self.enter(Phase::Readying { by: now + READY_US, next: Next::Missing });
                } else if waiting.any(|client| now >= by + self.refusals_us(client.node)) {
                    self.complain_of_clients("after everything healed");
                }
            }
            Phase::Readying { by, next } => {
                if self.are_all_ready() {
                    match next {
                        Next::Missing => self.begin_missing(),
                        Next::Reading => self.begin_reading(),
                    }
                } else if now >= by {
                    let words = format!("nodes do not become ready: {}", self.explain_nodes());
                    self.fail(Broken::Liveness, words);
                }
            }
            Phase::Missing { by } => {
                if self.are_observers_satisfied() {
                    self.end_missing();
                } else if now >= by {
                    self.complain_of_clients("while only a minority is away");
                }
            }
            Phase::Reading { by } => {
                if self.are_observers_satisfied() {
                    let sweep_ms = self.scenario.sweep_ms;
                    let within = |space: &Space| space.converges_within_ms(sweep_ms);
                    let most_ms = self.scenario.spaces.iter().map(within).max();
                    self.enter(Phase::Converging { by: now + most_ms.unwrap_or_default() * MS });
                } else if now >= by {
                    self.complain_of_clients("though all nodes are ready");
                }
            }
            Phase::Converging { by } => {
                let first_left = || self.first_held_lock().or_else(|| self.first_held_reply());
                match self.first_difference().or_else(first_left) {
                    None => {
                        self.check_lost_writes();
                        self.check_evictions();
                        self.count_repaired();
                        self.check_restored();
                        self.finish_backups();
                        self.enter(Phase::BackingUp { by: now + SERVE_US + self.parts_us() });
                    }
                    Some(words) if now >= by => self.fail(Broken::Convergence, words),
                    Some(_) => {}
                }
            }
            Phase::BackingUp { by } => {
                if self.clients.iter().all(Client::is_satisfied) {
                    self.compare_backups();
                    self.enter(Phase::Over);
                } else if now >= by {
                    self.complain_of_clients("though replicas are equal");
                }
            }
            Phase::Over => {}
        }
        self.sweep_jobs();
        if !self.is_over() && self.phase != Phase::Faults {
            self.queue.push(self.now + LOOK_US, Event::Progress);
        }
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.trace.tell(self.now, format_args!("phase: {phase:?}"));
        self.phase = phase;
    }

    fn begin_faults(&mut self) {
        self.enter(Phase::Faults);
        for (index, fault) in self.scenario.faults.iter().enumerate() {
            if let Some(fault) = fault {
                self.queue.push(self.now + fault.at, Event::Fault { index: index as u16, step: 0 });
            }
        }
        self.begin_load();
        self.queue.push(self.now + self.scenario.length_us, Event::Progress);
    }

    /// How much longer clients may have to wait where requests and replies are sent in parts: those of a node share its
    /// links, and a few parts are in flight at a time.
    fn parts_us(&self) -> u64 {
        let open = |place: Place| {
            self.clients.iter().filter(move |client| client.node == place).map(|it| it.open.len())
        };
        let most = self.places().map(|place| open(place).sum::<usize>()).max().unwrap_or_default();
        self.parts_of_us(most as u64)
    }

    /// The same for this many requests and replies, one after the other.
    fn parts_of_us(&self, requests: u64) -> u64 {
        let Scenario { long_command_bytes, latency_us, jitter_us, .. } = self.scenario;
        let is_long = long_command_bytes < node::LONG_COMMAND_BYTES;
        if is_long { PARTS * MESSAGES * (latency_us + jitter_us) * requests } else { 0 }
    }

    /// The time by which all open requests have their replies, if nothing disturbs them.
    fn answered_by(&self) -> u64 {
        // A client that waits gets its reply when the wait ends, and the replies to its later requests
        // after that.
        let waits = |kind: &Kind| *kind == Kind::Lock || kind.waits();
        let has_waits = self.scenario.spaces.iter().any(|space| space.kinds.iter().any(waits));
        let waits_us = if has_waits { self.scenario.pipeline * WAIT_MS_MAX * MS } else { 0 };
        let restores = |client: &Client| matches!(client.job, Some(Job::Restore(_)));
        let restores_us = if self.clients.iter().any(restores) { RESTORE_US } else { 0 };
        self.now + ANSWER_US + waits_us + restores_us + self.parts_us()
    }

    /// How much longer clients may have to wait at a node that has lost its disk and is not admitted: it refuses each request
    /// after the command's timeout, and a transaction begins once those before it have been answered.
    fn refusals_us(&self, place: Place) -> u64 {
        let transacts = |space: &Space| space.kinds.iter().any(|kind| kind.is_conversation());
        let is_slow = self.hosts[usize::from(place)].is_lost && self.scenario.spaces.iter().any(transacts);
        if is_slow { self.scenario.pipeline * self.scenario.command_timeout_ms * MS } else { 0 }
    }

    /// Ends all faults for good.
    pub(super) fn heal(&mut self) {
        self.enter(Phase::Answering { by: self.answered_by() });
        // Caching clients read no more, so what they keep would show nothing more.
        (0..self.clients.len() as u8).for_each(|client| self.drop_kept(client, None));
        self.network.heal();
        (self.scenario.reading_us, self.scenario.client_room) = (0, usize::MAX);
        for place in self.places() {
            let (now, after_us) = (self.now, self.random.below(SECOND));
            let host = self.host(place);
            host.resume(now);
            // From now on clients read everything at once: a long reply in parts of a few bytes takes seconds.
            for index in 0..host.sessions.len() {
                if host.sessions[index].pipe.borrow_mut().make_room(usize::MAX) {
                    host.note_client(now, index, Change { is_writable: true, ..Change::default() });
                }
            }
            host.doom = None;
            host.power_goes_at = None;
            // A node whose disk has just refused an operation must still stop.
            host.is_refused &= host.disk.files.refusal.is_none();
            let incarnation = host.incarnation;
            for (lane, at) in host.disk.heal(now).into_iter().flatten() {
                self.queue.push(at, Event::DiskStep { node: place, lane, incarnation });
            }
            self.queue.push(now + after_us, Event::Restart { node: place, incarnation });
        }
        for (one, other) in self.pairs() {
            self.reconsider(one, other);
        }
    }

    /// Whether every running node is admitted and can serve, and the control group has nothing left to settle.
    fn are_all_ready(&self) -> bool {
        let is_ready = |host: &Host| {
            let node = host.node();
            host.is_gone() || node.is_some_and(|node| node.is_admitted() && node.health().serves_all())
        };
        self.hosts.iter().all(is_ready) && self.unsettled().is_none() && self.open_order().is_none()
    }

    /// Describes what the control group has yet to settle.
    pub(super) fn unsettled(&self) -> Option<String> {
        if self.map.version > 0 && self.map.level != self.map.next_level() {
            let (level, next) = (self.map.level, self.map.next_level());
            return Some(format!("the cluster is at level {level} and could be at {next}"));
        }
        let control = self.map.groups.get(&CONTROL_GROUP).filter(|group| !group.settled);
        if let Some(control) = control.filter(|_| self.map.version > 0) {
            return Some(format!("the control group is not settled: {control:?}"));
        }
        for (id, group, space) in self.promised() {
            let name = self.map.name_of(id);
            // A node that is about to stop is not in sync again until it has.
            let is_away = |member: &&NodeId| {
                let host = &self.hosts[usize::from(place_of(**member))];
                host.is_lost || host.node().is_some_and(Node::is_leaving)
            };
            let missing = group.members.iter().find(|it| !group.in_sync.contains(it) && !is_away(it));
            match missing {
                _ if !group.settled => return Some(format!("{name} is not settled: {group:?}")),
                Some(member) if space.needs_in_sync() => {
                    return Some(format!("node {member} is not in sync in {name}"));
                }
                _ => {}
            }
        }
        None
    }

    fn explain_nodes(&self) -> String {
        let explain = |host: &Host| {
            if host.is_gone() {
                let why = if host.is_lost { "has lost its disk" } else { "is not in the cluster" };
                return format!("node {} {why}", id(host.place));
            }
            let Some(node) = host.node() else { return format!("node {} is down", id(host.place)) };
            let keyspaces = node.health().keyspaces;
            let of = |keyspace: &node::KeyspaceHealth| {
                let name = if keyspace.prefix.is_empty() { "default" } else { &keyspace.prefix };
                format!("{name}: {}", keyspace.explanation)
            };
            let why: Vec<String> = keyspaces.iter().filter(|keyspace| !keyspace.ready).map(of).collect();
            let why = if why.is_empty() { "ready".into() } else { why.join(", ") };
            format!("node {} {why}", id(host.place))
        };
        let nodes = self.hosts.iter().map(explain).collect::<Vec<_>>().join("; ");
        let order = self.open_order().map(|order| format!("it waits: {order}"));
        let why = [Some(nodes), self.unsettled(), order];
        why.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// What is wrong with the changes that clients have read, if anything is. Where acknowledged writes may be forgotten, versions
    /// may be used twice.
    pub(crate) fn misread(&self) -> Option<Failure> {
        for (index, space) in self.scenario.spaces.iter().enumerate() {
            if !self.is_judged(index) || self.forgot[index] {
                continue;
            }
            let readers = self.clients.iter().filter_map(|client| client.reading.as_ref());
            let pieces: Vec<&[(u64, u64)]> = readers
                .filter(|reading| usize::from(reading.space) == index)
                .flat_map(|reading| reading.pieces.iter().map(Vec::as_slice))
                .collect();
            if pieces.is_empty() {
                continue;
            }
            let nodes = self.hosts.iter().filter_map(Host::node);
            let kept: Vec<_> = nodes.filter_map(|node| node.kept_changes(&space.keyspace.prefix)).collect();
            if let Some(why) = reading::judge(&pieces, &kept) {
                let words = format!("changes of keyspace '{}': {why}", space.keyspace.prefix);
                let window_us = (self.now.saturating_sub(1_000_000), self.now);
                return Some(Failure { broken: Broken::Safety, words, window_us, picture: None });
            }
        }
        None
    }

    fn complain_of_clients(&mut self, when: &str) {
        let mut waiting = Vec::new();
        for (index, client) in self.clients.iter().enumerate().filter(|(_, client)| !client.is_satisfied()) {
            let asked = client.open.front().or_else(|| client.script.as_ref().and_then(VecDeque::front));
            let Some(operation) = asked else {
                waiting.push(format!("client {index} waits for the rest of its backup"));
                continue;
            };
            let prefix = &self.scenario.spaces[usize::from(operation.key.space)].keyspace.prefix;
            let last = match (&client.script, client.last_reply) {
                (Some(_), Some(reply)) => format!(" and last got: {reply}"),
                _ => String::new(),
            };
            let what = operation.describe(prefix);
            waiting.push(format!("client {index} waits for node {} to answer {what}{last}", id(client.node)));
        }
        let nodes = self.explain_nodes();
        self.fail(Broken::Liveness, format!("{when}, {}. {nodes}", waiting.join("; ")));
    }

    // A minority is away.

    /// Returns as many of the drawn nodes as every group can spare, including the control group.
    fn missing(&self, drawn: Mask) -> Mask {
        let mut missing: Mask = 0;
        let is_here = |place: &Place| self.hosts[usize::from(*place)].is_alive() && has(drawn, *place);
        for place in self.places().filter(is_here) {
            let without = missing | 1 << place;
            let is_away = |member: NodeId| has(without, place_of(member));
            let away = |group: &Group| group.members.iter().filter(|member| is_away(**member)).count();
            let control = self.map.groups.get(&CONTROL_GROUP);
            let spared = control.is_some_and(|group| away(group) <= (group.members.len() - 1) / 2)
                && self.promised().all(|(_, group, space)| {
                    away(group) <= space.spares(group)
                        && (space.is_durable() || space.survives(group, is_away))
                });
            if spared {
                missing = without;
            }
        }
        missing
    }

    fn begin_missing(&mut self) {
        self.notice_repairs();
        let missing = self.missing(self.scenario.missing.unwrap_or_default());
        if missing == 0 || self.hosts.iter().any(|host| host.is_damaged || host.is_lost) {
            return self.begin_reading();
        }
        self.counts.add(Class::MissingMinority);
        for place in self.places() {
            if has(missing, place) {
                self.host(place).is_kept_down = true;
                self.crash(place, 0, true);
            }
        }
        for place in self.places().filter(|place| !has(missing, *place)) {
            let kinds = [Kind::Set, Kind::Get];
            self.observe(place, &kinds);
        }
        self.enter(Phase::Missing { by: self.served_by() });
    }

    /// Cuts the power of every machine, and ends all faults. Some nodes stay away until every key has been read from the
    /// others. Returns false, and leaves the fault out, if that would require more than is promised.
    pub(super) fn black_out(&mut self, away: Mask) -> bool {
        self.notice_repairs();
        let present: Vec<Place> =
            self.places().filter(|place| !self.hosts[usize::from(*place)].is_gone()).collect();
        let is_whole =
            !self.hosts.iter().any(|host| host.is_lost || host.is_refilling || host.rotten.is_some());
        // A member that was newly added lacks what it has not rebuilt, and counts as away. Protocols other than consensus promise
        // less when all nodes die and not all restart.
        let is_promised = is_whole
            && self.given.is_empty()
            && self.unsettled().is_none()
            && self.promised().all(|(_, _, space)| space.protocol == Protocol::Consensus)
            && present.iter().all(|place| self.may_crash(*place, true));
        if !is_promised {
            self.counts.add(Class::DiskSpared);
            return false;
        }
        let away = self.missing(away);
        self.heal();
        for place in &present {
            self.host(*place).is_kept_down = has(away, *place);
            match self.hosts[usize::from(*place)].is_alive() {
                true => {
                    let down_us = self.random.below(100 * MS);
                    self.die(*place, down_us, true, Some(Survivors::Nothing));
                }
                false => self.host(*place).disk.files.lose_power(Survivors::Nothing),
            }
        }
        for place in present.into_iter().filter(|place| !has(away, *place)) {
            self.observe(place, &[Kind::Get]);
        }
        self.enter(Phase::Missing { by: self.served_by() });
        self.queue.push(self.now + LOOK_US, Event::Progress);
        true
    }

    fn end_missing(&mut self) {
        self.enter(Phase::Readying { by: self.now + READY_US, next: Next::Reading });
        for place in self.places() {
            let host = self.host(place);
            if std::mem::replace(&mut host.is_kept_down, false) {
                let incarnation = host.incarnation;
                self.restart(place, incarnation);
            }
        }
    }

    fn begin_reading(&mut self) {
        for place in self.places() {
            self.observe(place, &[Kind::Get]);
        }
        self.enter(Phase::Reading { by: self.served_by() });
    }

    /// Adds a client that asks a node for every key until it gets replies.
    fn observe(&mut self, place: Place, kinds: &[Kind]) {
        if self.hosts[usize::from(place)].is_gone() {
            return; // It need not serve any client.
        }
        let client = self.clients.len() as u8;
        let mut script = VecDeque::new();
        // It shows that no list is locked any more.
        if let Some(index) = self.scenario.spaces.iter().position(|space| space.kinds.contains(&Kind::Across))
            && kinds.contains(&Kind::Get)
        {
            let key = Key { space: index as u8, class: b'a', number: 0 };
            script.push_back(Operation::new(Kind::ReadAcross, key, Value::default()));
        }
        for index in 0..self.scenario.spaces.len() {
            if !self.is_in_use(index) {
                continue;
            }
            let kinds_there = &self.scenario.spaces[index].kinds;
            let counts = kinds_there.contains(&Kind::Increment);
            let transacts = kinds_there.contains(&Kind::Transact);
            // No client uses a lock any more, so each becomes free.
            let locks = if kinds_there.contains(&Kind::Lock) { LOCKS } else { 0 };
            for number in 0..locks {
                let lock = Key { space: index as u8, class: b'l', number };
                script.push_back(Locking::observed(client, lock));
                script.push_back(Operation::new(Kind::Get, guarded(lock), Value::default()));
            }
            // Elements that were served to dead clients are back in their lists by then.
            for (kind, keys) in [(Kind::Take, QUEUES), (Kind::TakeLowest, COLLECTIONS)] {
                let keys = if kinds_there.contains(&kind) { keys } else { 0 };
                for number in 0..keys {
                    let key =
                        Key { space: index as u8, class: kind.collection().unwrap_or_default(), number };
                    let take = Operation::new(kind, key, Value::default());
                    script.push_back(Operation { lifetime_ms: OBSERVED_MS, ..take });
                }
            }
            let emptied = [
                Kind::Draw,
                Kind::PopLowest,
                Kind::CreateGroup,
                Kind::Deliver,
                Kind::Claim,
                Kind::Acknowledge,
            ];
            for kind in emptied.into_iter().filter(|kind| kinds_there.contains(kind)) {
                let class = kind.collection().unwrap_or_default();
                for number in 0..COLLECTIONS {
                    let key = Key { space: index as u8, class, number };
                    script.push_back(Operation::new(kind, key, Value::default()));
                }
            }
            for number in 0..self.scenario.spaces[index].keys {
                for kind in kinds {
                    let key = Key { space: index as u8, class: b'k', number };
                    let value = if *kind == Kind::Set { self.next_value() } else { Value::default() };
                    script.push_back(Operation::new(*kind, key, value));
                    if *kind == Kind::Get && counts {
                        let key = Key { class: b'n', ..key };
                        script.push_back(Operation::new(*kind, key, value));
                    }
                    if *kind == Kind::Get && transacts {
                        let key = Key { class: b'p', ..key };
                        script.push_back(Operation::new(*kind, key, value));
                    }
                }
            }
        }
        let random = Random::new(self.scenario.seed, stream::CLIENTS + u64::from(client));
        self.clients.push(Client::observer(random, place, script));
        match self.scenario.spaces.iter().any(|space| space.refuses_contenders()) {
            true => self.observers.push_back(client),
            false => self.wake_client(client, 0),
        }
    }

    /// Starts the next observer, if observers take turns. Returns whether all have got their replies.
    fn are_observers_satisfied(&mut self) -> bool {
        let waiting = self.observers.make_contiguous();
        let is_busy =
            |(index, client): (usize, &Client)| !client.is_satisfied() && !waiting.contains(&(index as u8));
        if self.clients.iter().enumerate().any(is_busy) {
            return false;
        }
        match self.observers.pop_front() {
            Some(client) => self.wake_client(client, 0),
            None => return true,
        }
        false
    }

    /// Returns the time by which all nodes' observers, which exist already, must be satisfied.
    fn served_by(&self) -> u64 {
        let take_turns = self.scenario.spaces.iter().any(|space| space.refuses_contenders());
        let turns = if take_turns { u64::from(self.scenario.nodes) } else { 1 };
        // An observer waits at each of these lists and sets until no element is left.
        let kinds =
            |kind| self.scenario.spaces.iter().filter(move |space| space.kinds.contains(&kind)).count();
        let waits = kinds(Kind::Take) as u64 * u64::from(QUEUES)
            + kinds(Kind::TakeLowest) as u64 * u64::from(COLLECTIONS);
        let left = |client: &Client| client.script.as_ref().map_or(0, VecDeque::len);
        let longest = self.clients.iter().map(left).max().unwrap_or_default() as u64;
        let replies_us = self.parts_us() + self.parts_of_us(longest);
        self.now + turns * (SERVE_US + waits * u64::from(OBSERVED_MS) * MS + replies_us)
    }

    /// Checks that all bounds on memory hold when no request is under way any more, and counts the replicas that have evicted
    /// keys.
    fn check_evictions(&mut self) {
        for place in self.places() {
            let memory = self.host(place).node().map(Node::bounded_memory).unwrap_or_default();
            memory.iter().filter(|it| it.evicted > 0).for_each(|_| self.counts.add(Class::Evicted));
            self.check_memory(place, &memory);
        }
    }

    /// Counts the values that changed on a disk and were repaired.
    fn count_repaired(&mut self) {
        for place in self.places() {
            let (_, repaired) = self.host(place).disk.rotten_and_repaired();
            (0..repaired).for_each(|_| self.counts.add(Class::RepairedValue));
        }
    }

    // Replicas become equal.

    /// Describes the first group whose replicas differ.
    fn first_difference(&self) -> Option<String> {
        let hosts = self.hosts.iter().filter(|host| !host.is_gone());
        let digests: Vec<(NodeId, Vec<(GroupId, u64)>)> =
            hosts.filter_map(|host| Some((id(host.place), host.node()?.digests()))).collect();
        for (group, ..) in self.promised() {
            let of = |held: &[(GroupId, u64)]| held.iter().find(|(id, _)| *id == group).map(|(_, it)| *it);
            let mut held = digests.iter().filter_map(|(node, held)| Some((node, of(held)?)));
            let Some((first, digest)) = held.next() else { continue };
            if let Some((other, _)) = held.find(|(_, other)| *other != digest) {
                let name = self.map.name_of(group);
                return Some(format!("nodes {first} and {other} hold different contents of {name}"));
            }
            let amiss = |host: &Host| Some((id(host.place), host.node()?.fragment_mismatch(group)?));
            if let Some((node, what)) = self.hosts.iter().filter(|host| !host.is_gone()).find_map(amiss) {
                return Some(format!("node {node}, {}: {what}", self.map.name_of(group)));
            }
        }
        None
    }

    /// Describes the first group that still holds a lock, or in which a request waits, although no client does any more.
    fn first_held_lock(&self) -> Option<String> {
        for (group, ..) in self.promised() {
            for host in self.hosts.iter().filter(|host| !host.is_gone()) {
                let left = host.node().and_then(|node| node.locks_left(group)).unwrap_or_default();
                if left != (0, 0, 0) {
                    let (name, (held, waiters, sessions)) = (self.map.name_of(group), left);
                    return Some(format!(
                        "node {} has {held} locks that are held in {name}, {waiters} requests that wait for one, and \
                         {sessions} sessions, though no client uses any",
                        id(host.place)
                    ));
                }
                // A late record may have restored a queue that is over: the request's node knows that, and withdraws the request.
                let is_left = |waiter: &WaiterId| {
                    let host = self.hosts.get(usize::from(place_of(waiter.node)));
                    !host.and_then(Host::node).is_some_and(|node| node.lingers(*waiter))
                };
                let mut waiting = host.node().map_or_else(Vec::new, |node| node.waiting_requests(group));
                waiting.retain(is_left);
                if let Some(first) = waiting.first() {
                    let (node, name) = (id(host.place), self.map.name_of(group));
                    let coordinator = self.hosts.get(usize::from(place_of(first.node))).and_then(Host::node);
                    let progress = coordinator.map_or_else(String::new, |node| node.progress_of(*first));
                    let what = "requests that wait for elements, though no client does";
                    return Some(format!(
                        "node {node} has {what}, in {name}: {waiting:?}; the first at its coordinator: {progress}"
                    ));
                }
            }
        }
        None
    }

    /// Describes the first node that still holds part of a long reply that no client waits for any more.
    fn first_held_reply(&self) -> Option<String> {
        let left = |host: &Host| Some((host.place, host.node()?.long_reply_bytes()));
        let mut left = self.hosts.iter().filter(|host| !host.is_gone()).filter_map(left);
        let (place, (sent, arrived)) = left.find(|(_, bytes)| *bytes != (0, 0))?;
        Some(format!(
            "node {} holds {sent} bytes of long replies to others and {arrived} of others', though no \
             request is left",
            id(place)
        ))
    }

    // Counters of replicas.

    /// Adds the counters of a process that is about to die.
    pub(super) fn note_lost_writes(&mut self, place: Place) {
        let Some(node) = self.hosts[usize::from(place)].node() else { return };
        for (index, space) in self.scenario.spaces.iter().enumerate() {
            let groups = self.map.groups.iter().filter(|(_, it)| it.keyspace == space.keyspace.prefix);
            let counted = groups.filter(|(id, _)| **id != CONTROL_GROUP);
            self.lost_writes[index] += counted.map(|(id, _)| node.counted(*id, "lost_writes")).sum::<u64>();
        }
    }

    /// Checks that the replicas have not counted more lost writes than there can be.
    fn check_lost_writes(&mut self) {
        for place in self.places() {
            self.note_lost_writes(place);
        }
        for (index, space) in self.scenario.spaces.iter().enumerate() {
            let entries = self.record.entries.iter().filter(|e| usize::from(e.operation.key.space) == index);
            let most = match self.forgot[index] {
                false => 0,
                // A replica that no longer holds these writes cannot distinguish parts of writes from writes.
                true if self.scenario.long_command_bytes < node::LONG_COMMAND_BYTES => u64::MAX,
                true => entries.count() as u64,
            };
            let counted = self.lost_writes[index];
            if counted > most {
                let name = space.keyspace.name();
                let words = format!(
                    "replicas of keyspace '{name}' say that {counted} acknowledged writes were lost, and {most} can be"
                );
                return self.fail(Broken::Safety, words);
            }
        }
    }
}

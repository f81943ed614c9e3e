//! Faults begin and end; nodes die and start again.

use super::World;
use super::healing::Phase;
use crate::events::{Event, Place};
use crate::faults::{Class, Cut, Fault, Kind, Mask, Order, SECOND, Within, has};
use crate::host::{Doom, Host, Item, Process};
use crate::scenario::Scenario;
use crate::trace::id;
use driver::Clients;
use node::{Configuration, Node, NodeAddress, NodeId};
use storage::simulated::{Survivors, Trouble};
use wire::release::Releases;

/// A process's limit, as in a configuration file: more than simulated clients need.
const INPUT_BYTES_MAX: usize = 64 << 20;
const REQUEST_TIMEOUT_MS: u64 = 60_000;

/// How processes die.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    pub(super) within_turn: Option<Within>,
    pub(super) down_us: u64,
    /// Whether peers and clients notice at once.
    pub(super) noticed: bool,
    /// If their machines lose power: what survives of the unsynced data.
    pub(super) power: Option<Survivors>,
}

impl World {
    /// Executes a step of a scheduled fault: the even steps begin it, the odd ones end it.
    pub(super) fn fault(&mut self, index: u16, step: u16) {
        let Some(Some(Fault { kind, .. })) = self.scenario.faults.get(usize::from(index)).copied() else {
            return;
        };
        let ends = matches!(kind, Kind::PlannedStop { .. }) && step > 0;
        if self.phase != Phase::Faults && !ends {
            return; // Everything has healed already.
        }
        self.trace.note(u64::from(index) << 16 | u64::from(step));
        // Disk faults and commands are counted where they take effect.
        if step == 0 && !matches!(kind, Kind::Disk(_) | Kind::Order(_)) {
            self.counts.add(kind.class());
        }
        let (verb, now) = (if step.is_multiple_of(2) { "begins" } else { "ends" }, self.now);
        self.trace.tell(now, format_args!("fault {index} {verb}: {kind}"));
        let mut later =
            |after_us: u64| self.queue.push(now + after_us, Event::Fault { index, step: step + 1 });
        match (kind, step % 2) {
            (Kind::Crash { nodes, within_turn, down_us, noticed }, _) => {
                self.crash_several(nodes, Death { within_turn, down_us, noticed, power: None });
            }
            (Kind::Pause { node, within_turn: false, us }, _) => self.host(node).pause_until(now + us),
            (Kind::Pause { node, within_turn: true, us }, _) => {
                self.counts.add(Class::PauseWithinTurn);
                self.stall(node, us);
            }
            (Kind::LongTurns { nodes, us, times }, _) => {
                for place in self.places().filter(|place| has(nodes, *place)) {
                    let host = self.host(place);
                    host.long_turns = (us, times);
                    if host.is_alive() {
                        host.wake(now);
                    }
                }
            }
            (Kind::SlowNode { node, turn_us, us }, 0) => {
                later(us);
                self.host(node).slow_us = turn_us;
            }
            (Kind::SlowNode { node, .. }, _) => self.host(node).slow_us = 0,
            (Kind::Partition { cut, noticed_us, us, .. }, 0) => {
                later(us);
                self.cut(cut, noticed_us);
            }
            (Kind::Partition { cut, us, times, .. }, _) => {
                if step + 1 < 2 * times {
                    later(us);
                }
                self.mend(cut);
            }
            (Kind::Defection { mask, node, after_us, down_us, us }, _) => match step {
                0 => {
                    later(after_us);
                    self.cut(Cut::Halves(mask), None);
                }
                1 => {
                    later(us);
                    self.mend(Cut::Halves(mask));
                    self.cut(Cut::Halves(mask ^ 1 << node), None);
                    let death = Death { within_turn: None, down_us, noticed: true, power: None };
                    self.crash_several(1 << node, death);
                }
                _ => self.mend(Cut::Halves(mask ^ 1 << node)),
            },
            (Kind::SlowLink { one, other, delay_us, us }, 0) => {
                later(us);
                self.network.link(one, other).slow_down(delay_us);
                self.network.link(other, one).slow_down(delay_us);
            }
            (Kind::SlowLink { one, other, delay_us, .. }, _) => {
                self.network.link(one, other).speed_up(delay_us);
                self.network.link(other, one).speed_up(delay_us);
            }
            (Kind::BrokenConnection { one, other }, _) => {
                if let Some(generation) = *self.network.end(one, other) {
                    self.end_breaks(one, other, generation);
                }
            }
            (Kind::Storm { us }, 0) => {
                later(us);
                self.network.storms += 1;
            }
            (Kind::Storm { .. }, _) => self.network.storms = self.network.storms.saturating_sub(1),
            (Kind::ClockJump { node, by_ms }, _) => {
                self.host(node).clock.jump(now, by_ms);
                self.note_clocks();
            }
            (Kind::Leader { leaders, pauses: true, within_turn, down_us, .. }, _) => {
                let mask = self.leaders(leaders);
                for place in self.places().filter(|place| has(mask, *place)) {
                    match within_turn {
                        Some(_) => self.stall(place, down_us),
                        None => self.host(place).pause_until(now + down_us),
                    }
                }
            }
            (Kind::Leader { leaders, pauses: false, within_turn, down_us, noticed }, _) => {
                let mask = self.leaders(leaders);
                self.crash_several(mask, Death { within_turn, down_us, noticed, power: None });
            }
            // A node that must not stop is not told to: it would be about to stop for the rest of the run.
            (Kind::PlannedStop { node, .. }, 0) if !self.may_crash(node, false) => {
                self.counts.add(Class::CrashSpared);
            }
            (Kind::PlannedStop { node, leaves_us, .. }, 0) => {
                if let Some(process) = &mut self.host(node).process {
                    process.node.leave();
                    self.host(node).wake(now);
                    self.queue.push(now + leaves_us, Event::Fault { index, step: 1 });
                }
            }
            (Kind::PlannedStop { node, down_us, .. }, _) => {
                const AGAIN_US: u64 = SECOND / 2;
                let is_leaving = self.hosts[usize::from(node)].node().is_some_and(Node::is_leaving);
                let death = Death { within_turn: None, down_us, noticed: true, power: None };
                if is_leaving && self.crash_several(1 << node, death) == 0 {
                    self.queue.push(now + AGAIN_US, Event::Fault { index, step });
                }
            }
            (Kind::Order(order), _) => self.give(order),
            (Kind::Disk(fault), _) => {
                if let Some(after_us) = self.disk_fault(fault, step) {
                    self.queue.push(now + after_us, Event::Fault { index, step: step + 1 });
                }
            }
        }
    }

    /// Pauses a process within its next turn: before it takes in what has arrived, or before its output leaves.
    fn stall(&mut self, place: Place, us: u64) {
        let first = self.random.percent(50);
        let host = self.host(place);
        match first {
            true => host.stall_first_us = Some(us),
            false => host.stall_us = Some(us),
        }
    }

    /// Records how wrong the wall clocks are.
    pub(super) fn note_clocks(&mut self) {
        let shown = self.hosts.iter().map(|host| host.clock.ahead_ms_lately(self.now));
        // The clocks that count change with the members.
        let changes =
            |fault: &Fault| matches!(fault.kind, Kind::Order(Order::Add { .. } | Order::Remove { .. }));
        let has_changes = self.scenario.faults.iter().flatten().any(changes);
        let nodes = usize::from(self.scenario.nodes);
        self.clocks.note(shown.collect(), if has_changes { 1 } else { nodes / 2 + 1 });
    }

    // Partitions.

    fn cut(&mut self, cut: Cut, noticed_us: Option<u64>) {
        let nodes = self.scenario.nodes;
        for (one, other) in self.pairs() {
            let ways = [(one, other), (other, one)].map(|(from, to)| cut.blocks(from, to, nodes));
            for ((from, to), _) in [(one, other), (other, one)].into_iter().zip(ways).filter(|(_, cut)| *cut)
            {
                self.network.link(from, to).block();
            }
            if ways == [false, false] {
                continue;
            }
            // Each end that is cut off notices at its own time.
            for (at, peer) in [(one, other), (other, one)] {
                if let (Some(most_us), Some(generation)) = (noticed_us, *self.network.end(at, peer)) {
                    let after_us = self.random.below(most_us);
                    self.queue.push(self.now + after_us, Event::End { at, peer, generation, up: false });
                }
            }
        }
    }

    fn mend(&mut self, cut: Cut) {
        let nodes = self.scenario.nodes;
        for (one, other) in self.pairs() {
            let mut changed = false;
            for (from, to) in [(one, other), (other, one)] {
                if cut.blocks(from, to, nodes) {
                    self.network.link(from, to).unblock();
                    changed = true;
                }
            }
            if changed {
                self.reconsider(one, other);
            }
        }
    }

    // Crashes.

    /// Kills those of these nodes that are alive and whose death all promises survive. Returns them.
    pub(super) fn crash_several(&mut self, nodes: Mask, death: Death) -> Mask {
        let Death { within_turn, down_us, noticed, power } = death;
        let mut dead = 0;
        for place in self.places().filter(|place| has(nodes, *place)) {
            if self.hosts[usize::from(place)].doom.is_some() {
                continue;
            }
            if !self.may_crash(place, power.is_some()) {
                self.counts.add(Class::CrashSpared);
                continue;
            }
            let host = self.host(place);
            if !host.is_alive() {
                if let Some(survivors) = power {
                    host.disk.lose_power(survivors);
                }
                continue;
            }
            dead |= 1 << place;
            // Machines whose power returns at the same time do not come up at the same time.
            let down_us = if power.is_some() { self.random.below(2 * down_us) } else { down_us };
            match within_turn {
                Some(within) => {
                    self.counts.add(Class::CrashWithinTurn);
                    let host = self.host(place);
                    host.doom = Some(Doom { within, has_request: false, down_us, noticed, power });
                    host.is_damaged = true;
                }
                None => self.die(place, down_us, noticed, power),
            }
        }
        dead
    }

    /// Kills a process; with the power, unsynced writes may be lost.
    pub(super) fn die(&mut self, place: Place, down_us: u64, noticed: bool, power: Option<Survivors>) {
        self.crash(place, down_us, noticed);
        if let Some(survivors) = power {
            self.tell_of(place, "has lost its power");
            self.host(place).disk.lose_power(survivors);
        }
    }

    /// Kills a process, and its memory with it. What it has written stays.
    pub(super) fn crash(&mut self, place: Place, down_us: u64, noticed: bool) {
        self.trace.note(u64::from(place) | 1 << 60);
        self.tell_of(place, "dies");
        self.note_lost_writes(place);
        self.forget_durable(place);
        let leaves_no_memory = self.leaves_no_memory(place);
        let host = self.host(place);
        host.is_refilling |= leaves_no_memory;
        (host.process, host.turn_at, host.free_at, host.doom) = (None, u64::MAX, 0, None);
        (host.stall_us, host.stall_first_us, host.has_begun) = (None, None, false);
        (host.long_turns, host.busy_until, host.vouched) = ((0, 0), 0, 0);
        host.happened.clear();
        host.is_damaged = true;
        host.disk.stop();
        host.finished.clear();
        host.finished_values.clear();
        let incarnation = host.incarnation;
        let (sessions, ways) = (std::mem::take(&mut host.sessions), std::mem::take(&mut host.ways));
        for item in ways.into_iter().flat_map(|way| way.lanes).flat_map(|lane| lane.items) {
            if let Item::Frame { buffer, .. } = item {
                self.buffers.release(buffer);
            }
        }
        for peer in self.places().filter(|peer| *peer != place) {
            self.network.drop_stalled(place, peer, &mut self.buffers);
            if let Some(generation) = self.network.end(place, peer).take()
                && noticed
            {
                self.notify_end(peer, place, generation);
            }
        }
        for session in sessions.into_iter().filter(|_| noticed) {
            self.report_closed(session.client, session.connection, self.now);
        }
        self.queue.push(self.now + down_us, Event::Restart { node: place, incarnation });
    }

    /// Starts a process with nothing but what is on its disk, unless one has started since.
    pub(super) fn restart(&mut self, place: Place, incarnation: u32) {
        let now = self.now;
        let seed = self.random.draw();
        let host = self.host(place);
        if host.is_alive() || host.incarnation != incarnation || host.is_kept_down || host.is_absent {
            return;
        }
        let releases = self.choose_program(place);
        let configuration = self.configuration(place, seed, releases);
        let host = self.host(place);
        host.incarnation += 1;
        host.epoch += 1;
        let Host { clock, random, .. } = host;
        clock.restart(now, random);
        let (files, values) = (&mut host.disk.files, &mut host.disk.values);
        if let Some(operation) = host.power_goes_at.take() {
            files.trouble_in(operation.into(), Trouble::Crash);
        }
        let opened = Node::open_with(configuration, files, Some(values), host.clock.read(now));
        match opened {
            Ok(node) => {
                let clients = Clients::new(INPUT_BYTES_MAX, REQUEST_TIMEOUT_MS);
                let sizes = self.scenario.sizes;
                let host = self.host(place);
                host.process = Some(Box::new(Process::new(node, clients, sizes)));
            }
            Err(why) => return self.does_not_start(place, &why.to_string()),
        }
        let host = self.host(place);
        host.disk.files.trouble.clear();
        host.is_refused = host.disk.files.refusal.is_some();
        host.rotten = None;
        (host.free_at, host.turn_at) = (now, now);
        let incarnation = host.incarnation;
        self.trace.note(u64::from(place) | 1 << 61);
        self.trace.tell(now, format_args!("node {} starts, for the {incarnation}. time", id(place)));
        for peer in self.places().filter(|peer| *peer != place) {
            self.reconsider(place.min(peer), place.max(peer));
        }
        // Clients that were connected to the previous process and did not notice its death learn of it now.
        self.notify_clients_of(place);
    }

    /// The configuration of a process.
    pub(super) fn configuration(&self, place: Place, seed: u64, releases: Releases) -> Configuration {
        let Scenario { planted, command_timeout_ms, sweep_ms, long_command_bytes, .. } = self.scenario;
        let storage = node::StorageSettings {
            segment_bytes: self.scenario.segment_bytes,
            checkpoint_bytes: self.scenario.checkpoint_bytes,
            cache_bytes: self.scenario.cache_bytes,
            behind_bytes: self.scenario.behind_bytes,
            scrub_period_us: self.scenario.scrub_period_us,
            planted: self.scenario.planted_in_storage,
        };
        // The nodes that the cluster began with, and this one. After a recovery the first nodes may all be lost: an
        // operator names those that continue.
        let first = usize::from(self.scenario.first_nodes);
        let goes_on = |node: &NodeId| self.recovered_at.is_some() && self.map.nodes.contains_key(node);
        let is_listed = |NodeAddress { id: node, .. }: &&NodeAddress| {
            usize::from(*node) <= first || *node == id(place) || goes_on(node)
        };
        let nodes = self.addresses.iter().filter(is_listed).cloned().collect();
        let spaces = self.scenario.spaces.iter().filter(|space| !space.is_created);
        let keyspaces = spaces.map(|space| space.keyspace.clone()).collect();
        Configuration {
            node: id(place),
            cluster: "simulated".into(),
            nodes,
            keyspaces,
            value_bytes_max: 1 << 20,
            connections_max: 1000,
            output_bytes_max: 8 << 20,
            memory_max: 0,
            command_timeout_ms,
            long_command_bytes,
            patience: 1,
            groups_max: 1000,
            sweep_ms,
            password: None,
            operator_password: None,
            default_changes_cluster: true,
            password_seed: [7; 32],
            enable_debug_command: Default::default(),
            masters: Default::default(),
            redis_version: None,
            life: 0,
            identity: seed,
            storage,
            seed,
            table_seed: 7,
            releases,
            traced_share: None,
            process: Default::default(),
            planted,
        }
    }

    /// Makes clients that believe to be connected to a node find that they are not.
    pub(super) fn notify_clients_of(&mut self, place: Place) {
        for client in 0..self.clients.len() as u8 {
            let who = &self.clients[usize::from(client)];
            if who.is_connected && who.node == place {
                self.report_closed(client, who.connection, self.now);
            }
        }
    }
}

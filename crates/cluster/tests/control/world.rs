//! The control components of a whole cluster in one process and in virtual time: their disks, which lose what was not
//! synced, their clocks, and the messages in flight. After every event the world checks that no two nodes may lead the
//! same group.

use crate::cluster::{address, keyspaces};
use crate::random::Random;
use cluster::control::{
    Answer, CONTROL_GROUP, Change, ChangeError, ClusterMap, Control, Effects, Event as Told, Options, Start,
    Timing,
};
use cluster::{Keyspace, NodeAddress, Protocol};
use kv::codec::Malformed;
use protocol::leader_follower::Acks;
use protocol::{NodeId, Now};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wire::release::{RELEASES, Releases};

/// An event at one moment.
enum Event {
    Deliver { from: NodeId, to: NodeId, bytes: Rc<[u8]> },
    Turn { node: NodeId, start: u64 },
    Synced { node: NodeId, start: u64, position: u64 },
    Replicas { node: NodeId, start: u64 },
}

#[derive(Clone, Default)]
pub(crate) struct Disk {
    checkpoint: Vec<Vec<u8>>,
    records: Vec<(u64, Vec<u8>)>,
    written: u64,
    durable: u64,
    /// Where this incarnation's records begin.
    life_at: u64,
    map: Option<Vec<u8>>,
    positions: Option<Vec<u8>>,
    /// The records of the node's other groups in its log, all of them durable.
    others: u64,
    /// The incarnation: how often it was opened.
    life: u64,
}

struct Machine {
    control: Option<Control>,
    disk: Disk,
    waiting: Vec<(u64, NodeId, Rc<[u8]>)>,
    identity: u64,
    /// The number of its starts: events of earlier ones are void.
    starts: u64,
    is_syncing: bool,
    turn_at_us: u64,
    paused_until_us: u64,
    drift_ppm: i64,
    /// What its program understands.
    releases: Releases,
}

/// The probability of faults, in percent of messages.
#[derive(Clone, Copy, Default)]
pub(crate) struct Network {
    pub(crate) lose: u64,
    pub(crate) duplicate: u64,
    pub(crate) delay: u64,
    pub(crate) slow_disk: u64,
}

pub(crate) struct World {
    pub(crate) now_us: u64,
    pub(crate) random: Random,
    pub(crate) network: Network,
    pub(crate) timing: Timing,
    pub(crate) cut: BTreeSet<(NodeId, NodeId)>,
    pub(crate) answers: Vec<(NodeId, Answer)>,
    pub(crate) reported: Vec<(NodeId, Told)>,
    /// Every version of the map that any node ever had.
    pub(crate) maps: BTreeMap<u64, Rc<ClusterMap>>,
    /// For each version, the groups with a leader, and that leader.
    led: BTreeMap<u64, Vec<(u16, NodeId)>>,
    machines: BTreeMap<NodeId, Machine>,
    /// When the last message on each link arrives.
    arrivals: BTreeMap<(NodeId, NodeId), u64>,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    initial: ClusterMap,
    drift_ppm_max: u64,
    requests: u64,
    effects: Effects,
    broken: Option<String>,
}

impl World {
    pub(crate) fn new(seed: u64, nodes: NodeId, drift_ppm_max: u64) -> World {
        let is_kept = |it: &Keyspace| nodes > 1 || it.acks != Acks::Count(1);
        let addresses: Vec<NodeAddress> = (1..=nodes).map(address).collect();
        let keyspaces: Vec<Keyspace> = keyspaces().into_iter().filter(is_kept).collect();
        let mut world = World {
            now_us: 1_000_000,
            random: Random::new(seed),
            network: Network::default(),
            timing: Timing::default(),
            cut: BTreeSet::new(),
            answers: Vec::new(),
            reported: Vec::new(),
            maps: BTreeMap::new(),
            led: BTreeMap::new(),
            machines: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            events: BTreeMap::new(),
            sequence: 0,
            initial: ClusterMap::initial(&addresses, &keyspaces).expect("a cluster"),
            drift_ppm_max,
            requests: 0,
            effects: Effects::default(),
            broken: None,
        };
        for id in 1..=nodes {
            world.provide(id);
        }
        world
    }

    /// Adds a machine that has never run a node.
    pub(crate) fn provide(&mut self, id: NodeId) {
        let most = self.drift_ppm_max;
        let drift_ppm = self.random.below(2 * most + 1) as i64 - most as i64;
        let machine = Machine {
            control: None,
            disk: Disk::default(),
            waiting: Vec::new(),
            identity: u64::from(id) * 1000,
            starts: 0,
            is_syncing: false,
            turn_at_us: u64::MAX,
            paused_until_us: 0,
            drift_ppm,
            releases: RELEASES,
        };
        self.machines.insert(id, machine);
    }

    pub(crate) fn ids(&self) -> Vec<NodeId> {
        self.machines.keys().copied().collect()
    }

    pub(crate) fn alive(&self) -> Vec<NodeId> {
        let runs = |machine: &Machine| machine.control.is_some();
        self.machines.iter().filter(|(_, machine)| runs(machine)).map(|(id, _)| *id).collect()
    }

    pub(crate) fn control(&self, id: NodeId) -> Option<&Control> {
        self.machines[&id].control.as_ref()
    }

    fn machine(&mut self, id: NodeId) -> &mut Machine {
        self.machines.get_mut(&id).expect("a machine")
    }

    /// Returns what a node's clock shows.
    pub(crate) fn now(&self, id: NodeId) -> Now {
        let drift = self.machines[&id].drift_ppm;
        let own = self.now_us as i64 + self.now_us as i64 * drift / 1_000_000;
        Now { monotonic_us: own as u64 + u64::from(id) * 7_000_000, unix_ms: self.now_us / 1000 }
    }

    fn when(&self, id: NodeId, local_us: u64) -> u64 {
        let drift = self.machines[&id].drift_ppm;
        let own = local_us.saturating_sub(u64::from(id) * 7_000_000).min(1 << 50) as i64;
        (own as f64 / (1.0 + drift as f64 / 1e6)).ceil() as u64 + 1
    }

    /// Returns the node that leads the control group and may act.
    pub(crate) fn control_leader(&self) -> Option<NodeId> {
        self.alive().into_iter().find(|id| {
            self.control(*id)
                .and_then(|control| control.status(self.now(*id)))
                .is_some_and(|status| status.leased && status.role == "leader")
        })
    }

    // Faults.

    pub(crate) fn start(&mut self, id: NodeId) {
        let run = self.random.below(1 << 40);
        let (now, initial, timing) = (self.now(id), self.initial.clone(), self.timing);
        let mut effects = std::mem::take(&mut self.effects);
        effects.clear();
        let machine = self.machine(id);
        assert!(machine.control.is_none(), "it runs already");
        machine.disk.life += 1;
        machine.starts += 1;
        let start = Start { identity: machine.identity, life: machine.disk.life, run, found: 0 };
        let mut control = Control::new(Options {
            id,
            start,
            seed: run,
            initial,
            timing,
            moves_control_group: false,
            groups_max: 1000,
            releases: machine.releases,
            planted: Default::default(),
            watch: None,
        });
        let records =
            machine.disk.checkpoint.iter().chain(machine.disk.records.iter().map(|(_, record)| record));
        for record in records {
            control.replay(now, record).expect("components write what can be read");
        }
        if let Some(map) = &machine.disk.map {
            control.restore_map(map).expect("components write maps that can be");
        }
        if let Some(positions) = &machine.disk.positions {
            control.restore_positions(positions).expect("components write positions that can be");
        }
        machine.disk.life_at = machine.disk.written;
        machine.is_syncing = false;
        machine.paused_until_us = 0;
        machine.turn_at_us = u64::MAX;
        control.start(now, machine.disk.written + machine.disk.others, &mut effects);
        machine.control = Some(control);
        let start = machine.starts;
        self.take(id, &effects);
        self.effects = effects;
        self.wake(id);
        let at_us = self.now_us + 100_000;
        self.at(at_us, Event::Replicas { node: id, start });
    }

    /// Kills a node. Of its unsynced records, the first `kept` survive.
    /// Gives a machine another program, from its next start on.
    pub(crate) fn set_releases(&mut self, id: NodeId, releases: Releases) {
        self.machine(id).releases = releases;
    }

    /// Removes the map from a machine, as if no map had reached it yet.
    pub(crate) fn forget_map(&mut self, id: NodeId) {
        self.machine(id).disk.map = None;
    }

    pub(crate) fn kill(&mut self, id: NodeId, kept: u64) {
        let machine = self.machine(id);
        machine.control = None;
        machine.waiting.clear();
        machine.starts += 1;
        let disk = &mut machine.disk;
        let end = (disk.durable + kept).min(disk.written);
        disk.records.retain(|(position, _)| *position <= end);
        disk.written = end;
        disk.durable = end;
    }

    /// Gives a killed node new, empty storage.
    pub(crate) fn wipe(&mut self, id: NodeId) {
        let machine = self.machine(id);
        machine.disk = Disk::default();
        machine.identity += 1;
    }

    /// Rolls a killed node's storage back by one start.
    pub(crate) fn roll_back(&mut self, id: NodeId) {
        self.machine(id).disk.life -= 1;
    }

    /// Returns a copy of a node's disk, without unsynced data.
    pub(crate) fn copy(&self, id: NodeId) -> Disk {
        let mut disk = self.machines[&id].disk.clone();
        disk.records.retain(|(position, _)| *position <= disk.durable);
        disk.written = disk.durable;
        disk
    }

    /// Puts an earlier state back on a killed node's storage.
    pub(crate) fn put_back(&mut self, id: NodeId, disk: Disk) {
        self.machine(id).disk = disk;
    }

    /// A node's other groups write records, which are durable at once.
    pub(crate) fn write(&mut self, id: NodeId, bytes: u64) {
        self.machine(id).disk.others += bytes;
    }

    pub(crate) fn pause(&mut self, id: NodeId, for_us: u64) {
        self.machine(id).paused_until_us = self.now_us + for_us;
    }

    pub(crate) fn cut_off(&mut self, id: NodeId, both_ways: bool) {
        for peer in self.ids() {
            self.cut.insert((id, peer));
            if both_ways {
                self.cut.insert((peer, id));
            }
        }
    }

    /// Writes a whole checkpoint of a node's component.
    pub(crate) fn checkpoint(&mut self, id: NodeId) {
        let machine = self.machine(id);
        let Some(control) = &mut machine.control else { return };
        if machine.disk.durable < machine.disk.written || !control.begin_checkpoint() {
            return;
        }
        let mut records = Vec::new();
        loop {
            let mut record = Vec::new();
            let progress = control.checkpoint_record(1000, &mut record);
            records.push(record);
            match progress {
                protocol::Progress::More => {}
                protocol::Progress::Whole => break,
                protocol::Progress::Abandoned => return,
            }
        }
        machine.disk.checkpoint = records;
        machine.disk.records.clear();
    }

    // Inputs.

    /// Requests a change at a node.
    pub(crate) fn change(&mut self, id: NodeId, change: &Change) -> u64 {
        self.requests += 1;
        let request = self.requests;
        self.step(id, |control, now, out| control.change(now, request, change, out));
        request
    }

    /// Requests a change, and waits for the answer.
    pub(crate) fn make(&mut self, id: NodeId, change: &Change) -> Result<u64, ChangeError> {
        let request = self.change(id, change);
        let end_us = self.now_us + 10_000_000;
        while self.now_us < end_us {
            if let Some((_, answer)) = self.answers.iter().find(|(_, answer)| answer.request == request) {
                return answer.result.clone();
            }
            self.run_for(1_000);
        }
        panic!("{change:?} has no answer");
    }

    /// Gives a component some bytes as if another had sent them.
    pub(crate) fn hand_over(&mut self, from: NodeId, to: NodeId, bytes: &[u8]) -> Result<(), Malformed> {
        let mut taken = Ok(());
        self.step(to, |control, now, out| taken = control.message(now, from, bytes, out));
        taken
    }

    fn step(&mut self, id: NodeId, input: impl FnOnce(&mut Control, Now, &mut Effects)) {
        let now = self.now(id);
        let mut effects = std::mem::take(&mut self.effects);
        effects.clear();
        if let Some(control) = &mut self.machine(id).control {
            input(control, now, &mut effects);
            self.take(id, &effects);
            self.turn_soon(id);
        }
        self.effects = effects;
    }

    /// Carries out a component's effects: records, messages, answers and events.
    fn take(&mut self, id: NodeId, effects: &Effects) {
        let machine = self.machine(id);
        for record in &effects.records {
            machine.disk.written += 1;
            let record = effects.bytes[record.clone()].to_vec();
            machine.disk.records.push((machine.disk.written, record));
        }
        if let Some(positions) = &effects.positions_record {
            machine.disk.positions = Some(effects.bytes[positions.clone()].to_vec());
        }
        if let Some(map) = &effects.map_record {
            machine.disk.map = Some(effects.bytes[map.clone()].to_vec());
        }
        let (life_at, durable) = (machine.disk.life_at, machine.disk.durable);
        for message in &effects.messages {
            let bytes: Rc<[u8]> = message.bytes.parts(&effects.bytes).concat().into();
            let after = life_at + message.after_record;
            if message.after_record == 0 || after <= durable {
                self.post(id, message.to, bytes);
            } else {
                self.machine(id).waiting.push((after, message.to, bytes));
            }
        }
        self.answers.extend(effects.answers.iter().map(|answer| (id, answer.clone())));
        self.reported.extend(effects.events.iter().map(|event| (id, event.clone())));
        if let Some(map) = &effects.map {
            self.led.entry(map.version).or_insert_with(|| {
                let is_led = |id: &u16| map.protocol(*id) == Protocol::LeaderFollower;
                let groups = map.groups.iter().filter(|(id, _)| is_led(id));
                groups.map(|(id, group)| (*id, group.leader)).collect()
            });
            let known = self.maps.entry(map.version).or_insert_with(|| Rc::clone(map));
            if known != map {
                self.broken = Some(format!("two maps have version {}", map.version));
            }
        }
    }

    fn post(&mut self, from: NodeId, to: NodeId, bytes: Rc<[u8]>) {
        let network = self.network;
        if self.cut.contains(&(from, to))
            || self.random.percent(network.lose)
            || !self.machines.contains_key(&to)
        {
            return;
        }
        let mut delay_us = 100 + self.random.below(500);
        let is_late = self.random.percent(network.delay);
        if is_late {
            let most_us = if self.random.percent(90) { 20_000 } else { 2_000_000 };
            delay_us += self.random.below(most_us);
        }
        if self.random.percent(network.duplicate) {
            let again_us = self.now_us + delay_us + self.random.below(300_000);
            self.at(again_us, Event::Deliver { from, to, bytes: Rc::clone(&bytes) });
        }
        let mut at_us = self.now_us + delay_us;
        if !is_late {
            // Messages from one node to another arrive in order, as on a connection.
            let last_us = self.arrivals.entry((from, to)).or_default();
            at_us = at_us.max(*last_us);
            *last_us = at_us;
        }
        self.at(at_us, Event::Deliver { from, to, bytes });
    }

    // Time.

    fn at(&mut self, at_us: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((at_us.max(self.now_us), self.sequence), event);
    }

    fn turn_soon(&mut self, id: NodeId) {
        let at_us = self.now_us + 50 + self.random.below(200);
        self.turn_by(id, at_us);
    }

    fn wake(&mut self, id: NodeId) {
        let Some(control) = self.control(id) else { return };
        let wakeup_us = control.wakeup_us(self.now(id));
        let at_us = self.when(id, wakeup_us).max(self.now_us + 500).min(self.now_us + 100_000);
        self.turn_by(id, at_us);
    }

    /// Schedules a node's next turn for this time at the latest.
    fn turn_by(&mut self, id: NodeId, at_us: u64) {
        let machine = self.machine(id);
        if at_us < machine.turn_at_us {
            machine.turn_at_us = at_us;
            let start = machine.starts;
            self.at(at_us, Event::Turn { node: id, start });
        }
    }

    pub(crate) fn run_for(&mut self, for_us: u64) {
        let end_us = self.now_us + for_us;
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > end_us {
                break;
            }
            let ((at_us, _), event) = entry.remove_entry();
            self.now_us = at_us;
            self.happen(event);
            self.look();
            if let Some(broken) = &self.broken {
                panic!("at {}: {broken}", self.now_us);
            }
        }
        self.now_us = end_us;
    }

    fn happen(&mut self, event: Event) {
        let (id, start) = match &event {
            Event::Deliver { to, .. } => (*to, None),
            Event::Turn { node, start } | Event::Replicas { node, start } => (*node, Some(*start)),
            Event::Synced { node, start, .. } => (*node, Some(*start)),
        };
        let now_us = self.now_us;
        let machine = self.machine(id);
        if machine.control.is_none() || start.is_some_and(|start| start != machine.starts) {
            return;
        }
        if machine.paused_until_us > now_us {
            let until_us = machine.paused_until_us;
            return self.at(until_us, event);
        }
        match event {
            Event::Deliver { from, to, bytes } => {
                self.step(to, |control, now, out| {
                    control.message(now, from, &bytes, out).expect("components send what can be read");
                });
            }
            Event::Turn { node, .. } => {
                if now_us < self.machine(node).turn_at_us {
                    return; // Another turn is scheduled later.
                }
                self.machine(node).turn_at_us = u64::MAX;
                let now = self.now(node);
                let durable = self.machine(node).disk.durable + self.machine(node).disk.others;
                self.step(node, |control, _, out| {
                    if control.is_admitted() {
                        control.log_is_durable(durable);
                    }
                    if control.wakeup_us(now) <= now.monotonic_us {
                        control.tick(now, out);
                    }
                    control.flush(now, out);
                });
                self.machine(node).turn_at_us = u64::MAX;
                self.wake(node);
                self.sync(node);
            }
            Event::Synced { node, position, .. } => {
                let machine = self.machine(node);
                machine.is_syncing = false;
                machine.disk.durable = position;
                let record = position - machine.disk.life_at;
                let (leave, stay) = std::mem::take(&mut machine.waiting)
                    .into_iter()
                    .partition(|(after, _, _)| *after <= position);
                machine.waiting = stay;
                let leave: Vec<(u64, NodeId, Rc<[u8]>)> = leave;
                leave.into_iter().for_each(|(_, to, bytes)| self.post(node, to, bytes));
                self.step(node, |control, now, out| control.durable(now, record, out));
                self.sync(node);
            }
            Event::Replicas { node, start } => {
                self.request(node);
                let at_us = self.now_us + 150_000;
                self.at(at_us, Event::Replicas { node, start });
            }
        }
    }

    fn sync(&mut self, id: NodeId) {
        let slow = self.network.slow_disk;
        let is_slow = self.random.percent(slow);
        let duration_us = if is_slow { self.random.below(60_000) } else { 100 + self.random.below(1000) };
        let machine = self.machine(id);
        if machine.is_syncing || machine.disk.durable == machine.disk.written {
            return;
        }
        machine.is_syncing = true;
        let (start, position) = (machine.starts, machine.disk.written);
        let at_us = self.now_us + duration_us;
        self.at(at_us, Event::Synced { node: id, start, position });
    }

    // The part of replicas that matters here.

    /// Whether a node holds a lease to lead a group at this moment.
    pub(crate) fn leads(&self, id: NodeId, group: u16) -> bool {
        let Some(control) = self.control(id) else { return false };
        let appointed = control.map().groups.get(&group).is_some_and(|group| group.leader == id);
        appointed && control.is_admitted() && self.now(id).monotonic_us < control.lease_until_us()
    }

    /// Makes the requests of a node's replicas to the control group: that live nodes are in sync, or that a membership is
    /// known to be in effect.
    fn request(&mut self, id: NodeId) {
        let alive: BTreeSet<NodeId> = self
            .alive()
            .into_iter()
            .filter(|node| self.control(*node).is_some_and(Control::is_admitted))
            .collect();
        let Some(control) = self.control(id).filter(|control| control.is_admitted()) else { return };
        let map = Rc::clone(control.map());
        for (group_id, group) in map.groups_of(id) {
            let in_sync: Vec<NodeId> =
                group.members.iter().copied().filter(|node| alive.contains(node)).collect();
            let speaks = match map.protocol(group_id) {
                _ if group_id == CONTROL_GROUP => false,
                Protocol::LeaderFollower => self.leads(id, group_id),
                _ => in_sync.first() == Some(&id) && !group.settled,
            };
            if speaks && (in_sync != group.in_sync || !group.settled || map.awaits_takeover(group_id)) {
                self.change(
                    id,
                    &Change::InSync {
                        group: group_id,
                        epoch: group.epoch,
                        revision: group.revision,
                        in_sync,
                    },
                );
            }
        }
    }

    // Invariants.

    fn look(&mut self) {
        let mut leaders: BTreeMap<u16, NodeId> = BTreeMap::new();
        let mut broken = None;
        for (id, machine) in &self.machines {
            let Some(control) = &machine.control else { continue };
            if !control.is_admitted() || self.now(*id).monotonic_us >= control.lease_until_us() {
                continue;
            }
            for (group, leader) in self.led.get(&control.map().version).into_iter().flatten() {
                if leader == id
                    && let Some(other) = leaders.insert(*group, *id)
                {
                    broken = Some(format!("nodes {other} and {id} both lead group {group}"));
                }
            }
        }
        self.broken = self.broken.take().or(broken);
    }

    /// Whether all running nodes have the newest map, and every group has a live leader.
    pub(crate) fn is_whole(&self) -> bool {
        let newest = self.maps.keys().last().copied().unwrap_or(0);
        let has_it = |id: &NodeId| {
            self.control(*id).is_some_and(|control| control.map().version == newest && control.is_admitted())
        };
        let Some(map) = self.maps.get(&newest) else { return false };
        let led = |group: &u16| map.protocol(*group) != Protocol::LeaderFollower;
        let leads = |group: &u16| led(group) || self.leads(map.groups[group].leader, *group);
        self.alive().iter().all(has_it) && map.groups.keys().all(leads)
    }

    /// Waits until [`World::is_whole`].
    pub(crate) fn heal(&mut self) {
        self.network = Network::default();
        self.cut.clear();
        for id in self.ids() {
            self.machine(id).paused_until_us = 0;
            if self.control(id).is_none() {
                self.start(id);
            }
        }
        self.become_whole();
    }

    pub(crate) fn become_whole(&mut self) {
        for _ in 0..200 {
            self.run_for(100_000);
            if self.is_whole() {
                return;
            }
        }
        let newest = self.maps.values().last();
        let stands = |id: &NodeId| {
            let control = self.control(*id)?;
            let status = control.status(self.now(*id));
            Some(format!(
                "{id}: map {}, admitted {}, lease for {} us, {:?}",
                control.map().version,
                control.is_admitted(),
                control.lease_until_us() as i64 - self.now(*id).monotonic_us as i64,
                status.map(|it| (it.role, it.leased, it.explanation))
            ))
        };
        let standing: Vec<String> = self.ids().iter().filter_map(stands).collect();
        panic!("it does not heal: {}\n{newest:#?}", standing.join("\n"));
    }
}

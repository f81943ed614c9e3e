//! The simulated world: machines, the network between them, clients, and time.
//!
//! Everything happens in [`World::run`]: the next event or the next turn of a node, whichever is first. Read `turns` (a node's
//! turn, and its output), `machine` (what the driver asks for), `connections` (links between nodes), `asking` (clients),
//! `backups` (copies, and a cluster into which they are restored), `trouble` (faults), `disks` (faults of disks, and the work
//! done on them), `damage` (how much may be lost), `recovery` (when more than that is lost), `operator` (changes of the cluster)
//! and `healing` (what must hold once faults are over).

mod asking;
mod backups;
mod busy;
mod connections;
mod damage;
mod disks;
mod healing;
mod machine;
mod operator;
mod programs;
mod recovery;
mod trouble;
mod turns;

use crate::buffers::Buffers;
use crate::clients::Client;
use crate::clock::{Agreed, Clock};
use crate::disk::MachineDisk;
use crate::events::{Event, Place, Queue};
use crate::faults::{Class, Counts, SECOND};
use crate::host::Host;
use crate::network::Network;
use crate::promise::Returned;
use crate::random::Random;
use crate::record::Record;
use crate::report::{Broken, Failure};
use crate::scenario::{Scenario, stream};
use crate::trace::{Line, Trace, id};
use cluster::control::{ClusterMap, GroupId};
use healing::Phase;
use kv::Version;
use node::NodeAddress;
use operator::{Given, Presence};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use wire::resp::ArgumentsBuffer;

/// A run in progress.
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    now: u64,
    queue: Queue,
    hosts: Vec<Host>,
    network: Network,
    clients: Vec<Client>,
    buffers: Buffers,
    random: Random,
    pub(crate) record: Record,
    /// The number of the next value that is written.
    values: u32,
    pub(crate) counts: Counts,
    pub(crate) turns: u64,
    pub(crate) frames: u64,
    phase: Phase,
    /// The commands that the operator has to give.
    given: Vec<Given>,
    /// For each space, whether its keyspace exists.
    presence: Vec<Presence>,
    /// For each keyspace, since when its keys are those of the first one.
    pub(crate) returned: Vec<Returned>,
    /// Observers that start when those before them are satisfied.
    observers: VecDeque<u8>,
    /// The newest cluster map that any node has or had.
    map: Rc<ClusterMap>,
    /// For each space, whether its leader may have forgotten what it had acknowledged.
    pub(crate) forgot: Vec<bool>,
    /// For each space, whether acknowledged writes of it were lost with a majority, before the time of the recovery.
    pub(crate) recovered: Vec<bool>,
    pub(crate) recovered_at: Option<u64>,
    /// For each space that is backed up, the sum of its keys at each version ([`contents::sum`]).
    held: BTreeMap<(u8, Version), u64>,
    /// For each space, the acknowledged writes that dead processes counted as lost.
    lost_writes: Vec<u64>,
    /// The times on which a majority of wall clocks has agreed.
    pub(crate) clocks: Agreed,
    /// Draws which program a node is started with.
    programs: Random,
    /// The leaders of a run in which no leader may change, with the numbers of their leaderships.
    leaderships: BTreeMap<GroupId, (Place, u64)>,
    failure: Option<Failure>,
    trace: Trace,
    /// A buffer that is reused for every request.
    arguments: ArgumentsBuffer,
    addresses: Vec<NodeAddress>,
}

impl World {
    pub(crate) fn new(scenario: Scenario, traced: bool) -> World {
        let seed = scenario.seed;
        let mut random = Random::new(seed, stream::WORLD);
        let address = |id| NodeAddress {
            id,
            host: "127.0.0.1".into(),
            client_port: 7000 + id,
            http_port: 8000 + id,
            peer_port: 9000 + id,
        };
        let host = |place: Place| {
            let clock = Clock::new(
                scenario.drift_ppm[usize::from(place)],
                scenario.unix_ahead_ms[usize::from(place)],
            );
            let disk = MachineDisk::new(Random::new(seed, stream::DISKS + u64::from(place)));
            Host::new(place, clock, disk, Random::new(seed, stream::NODES + u64::from(place)))
        };
        let client = |(index, think_us): (usize, &u64)| {
            Client::new(Random::new(seed, stream::CLIENTS + index as u64), *think_us)
        };
        let keeper = |(index, (think_us, is_broadcast)): (usize, &(u64, bool))| {
            let index = (scenario.think_us.len() + index) as u64;
            Client::keeper(Random::new(seed, stream::CLIENTS + index), *think_us, *is_broadcast)
        };
        let clients = scenario.think_us.iter().enumerate().map(client);
        let reader = |(index, (think_us, space)): (usize, &(u64, u8))| {
            let index = (scenario.think_us.len() + scenario.keepers.len() + index) as u64;
            Client::reader(Random::new(seed, stream::CLIENTS + index), *think_us, *space)
        };
        let clients = clients.chain(scenario.keepers.iter().enumerate().map(keeper));
        let backup = |(index, (think_us, space)): (usize, &(u64, u8))| {
            let before = scenario.think_us.len() + scenario.keepers.len() + scenario.readers.len();
            let random = Random::new(seed, stream::CLIENTS + (before + index) as u64);
            Client::backup(random, *think_us, *space)
        };
        let clients = clients.chain(scenario.readers.iter().enumerate().map(reader));
        let clients = clients.chain(scenario.backups.iter().enumerate().map(backup)).collect();
        let addresses: Vec<NodeAddress> = (1..=u16::from(scenario.nodes)).map(address).collect();
        let keyspaces: Vec<node::Keyspace> =
            scenario.spaces.iter().filter(|it| !it.is_created).map(|it| it.keyspace.clone()).collect();
        // The nodes refuse an invalid one.
        let map = ClusterMap::initial(&addresses[..usize::from(scenario.first_nodes)], &keyspaces)
            .unwrap_or_default();
        let mut world = World {
            now: 0,
            queue: Queue::default(),
            hosts: (0..scenario.nodes).map(host).collect(),
            network: Network::new(&scenario),
            clients,
            buffers: Buffers::default(),
            record: Record::default(),
            values: 0,
            counts: Counts::default(),
            turns: 0,
            frames: 0,
            phase: Phase::Starting { by: 10 * SECOND },
            given: Vec::new(),
            presence: operator::presence(&scenario.spaces),
            returned: vec![Returned::default(); scenario.spaces.len()],
            observers: VecDeque::new(),
            forgot: vec![false; scenario.spaces.len()],
            recovered: vec![false; scenario.spaces.len()],
            recovered_at: None,
            clocks: Agreed::default(),
            programs: Random::new(seed, stream::PROGRAMS),
            leaderships: BTreeMap::new(),
            failure: None,
            trace: Trace::new(traced),
            arguments: ArgumentsBuffer::new(),
            addresses,
            map: Rc::new(ClusterMap { version: 0, ..map }),
            held: BTreeMap::new(),
            lost_writes: vec![0; scenario.spaces.len()],
            random: random.clone(),
            scenario,
        };
        for place in world.places() {
            world.host(place).is_absent = place >= world.scenario.first_nodes;
            world.queue.push(random.below(SECOND / 10), Event::Restart { node: place, incarnation: 0 });
        }
        if world.scenario.drift_ppm.iter().any(|ppm| *ppm != 0) {
            world.counts.add(Class::ClockDrift);
        }
        world.note_clocks();
        world.queue.push(0, Event::Progress);
        world
    }

    /// Processes events until the run is over.
    pub(crate) fn run(&mut self) {
        while !self.is_over() {
            let event_at = self.queue.next_time();
            let mut next = (event_at, None);
            for host in &self.hosts {
                // At the same moment, arrivals come before the turns that can take them in.
                if host.turn_at < next.0 {
                    next = (host.turn_at, Some(host.place));
                }
            }
            assert!(next.0 >= self.now, "time goes on");
            self.now = next.0;
            match next.1 {
                Some(place) => self.turn(place),
                None => match self.queue.pop() {
                    Some(event) => self.happen(event),
                    None => return self.fail(Broken::Liveness, "no event is left".into()),
                },
            }
        }
    }

    fn is_over(&self) -> bool {
        self.failure.is_some() || self.phase == Phase::Over
    }

    #[inline]
    fn happen(&mut self, event: Event) {
        match event {
            Event::Frame { from, to, is_urgent, generation, buffer } => {
                self.frame_arrives((from, to, is_urgent), generation, buffer)
            }
            Event::Vouch { node, incarnation } => self.vouch(node, incarnation),
            Event::Vouched { from, to, generation } => self.vouch_arrives(from, to, generation),
            Event::PeerRoom { node } => self.hosts[usize::from(node)].wake(self.now),
            Event::Room { node, client, connection, bytes } => {
                self.client_has_read(node, client, connection, bytes)
            }
            Event::Connect { one, other, attempt } => self.connect(one, other, attempt),
            Event::End { at, peer, generation, up: true } => self.end_comes_up(at, peer, generation),
            Event::End { at, peer, generation, up: false } => self.end_breaks(at, peer, generation),
            Event::Urgent { at, peer, generation, up } => self.urgent_changes(at, peer, generation, up),
            Event::Upstream { client } => self.upstream(client),
            Event::Downstream { client } => self.downstream(client),
            Event::Closed { client, connection } => self.connection_closed(client, connection),
            Event::Client { client, alarm } => self.client_wakes(client, alarm),
            Event::Fault { index, step } => self.fault(index, step),
            Event::Order { index } => self.order(index),
            Event::Restart { node, incarnation } => self.restart(node, incarnation),
            Event::DiskStep { node, lane, incarnation } => self.disk_step(node, lane, incarnation),
            Event::Sweep => self.sweep(),
            Event::Progress => self.progress(),
        }
    }

    /// Ends the run with a failure.
    fn fail(&mut self, broken: Broken, words: String) {
        if self.failure.is_none() {
            self.trace.tell(self.now, format_args!("FAILED: {words}"));
            let window_us = (self.now.saturating_sub(SECOND / 2), self.now);
            self.failure = Some(Failure { broken, words, window_us, picture: None });
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Takes the run's results: its failure, its fingerprint and its trace.
    pub(crate) fn finish(self) -> (Option<Failure>, u64, Vec<Line>) {
        let (digest, lines) = self.trace.finish();
        (self.failure, digest, lines)
    }

    fn host(&mut self, place: Place) -> &mut Host {
        &mut self.hosts[usize::from(place)]
    }

    fn places(&self) -> impl Iterator<Item = Place> + use<> {
        0..self.scenario.nodes
    }

    /// Returns each pair of nodes once.
    fn pairs(&self) -> impl Iterator<Item = (Place, Place)> + use<> {
        let nodes = self.scenario.nodes;
        (0..nodes).flat_map(move |one| (one + 1..nodes).map(move |other| (one, other)))
    }

    /// Adds a trace line about a node.
    fn tell_of(&mut self, place: Place, text: &str) {
        self.trace.tell(self.now, format_args!("node {} {text}", id(place)));
    }
}

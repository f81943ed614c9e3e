//! What a seed means: the cluster, its clients, the network, the clocks, and everything that will go wrong.

use crate::events::Place;
use crate::faults::{Class, Draw, Fault, Kind as FaultKind, MS, Mask, Order, SECOND};
use crate::operation::Kind;
use crate::promise::{Durability, Protocol, Space};
use crate::random::Random;
use driver::Sizes;
use protocol::planted::{Fault as PlantedFault, Planted};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The streams of random numbers of one seed.
pub(crate) mod stream {
    pub(crate) const SCENARIO: u64 = 1;
    pub(crate) const FAULTS: u64 = 2;
    pub(crate) const WORLD: u64 = 3;
    pub(crate) const TIMING: u64 = 4;
    pub(crate) const DISK_FAULTS: u64 = 5;
    pub(crate) const OPERATOR: u64 = 6;
    pub(crate) const REGISTERS: u64 = 7;
    pub(crate) const TRANSACTIONS: u64 = 8;
    pub(crate) const CODING: u64 = 9;
    pub(crate) const SCRIPTS: u64 = 10;
    pub(crate) const LOCKS: u64 = 11;
    pub(crate) const OUTAGE: u64 = 12;
    pub(crate) const LANES: u64 = 13;
    pub(crate) const ADAPTIVE: u64 = 20;
    pub(crate) const SPILLING: u64 = 21;
    pub(crate) const LONG: u64 = 22;
    pub(crate) const UNWRITTEN: u64 = 23;
    pub(crate) const CLOCKS: u64 = 24;
    pub(crate) const BUFFERS: u64 = 25;
    pub(crate) const QUEUES: u64 = 26;
    pub(crate) const COLLECTIONS: u64 = 27;
    /// By this number none of the seeds that have shown failures of nodes gets bounds, which would make another run of it.
    pub(crate) const BOUNDS: u64 = 57;
    pub(crate) const TRACKING: u64 = 29;
    pub(crate) const READERS: u64 = 30;
    pub(crate) const PROGRAMS: u64 = 31;
    pub(crate) const RECOVERY: u64 = 32;
    pub(crate) const NODES: u64 = 100;
    pub(crate) const CLIENTS: u64 = 200;
    /// By this number, too, none of the seeds that have shown failures of nodes gets another run.
    pub(crate) const LEVELS: u64 = 301;
    pub(crate) const DISKS: u64 = 500;
    pub(crate) const LINKS: u64 = 1000;
}

/// A part of a run that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The scheduled fault with this number.
    Fault(u16),
    /// All faults of a background class.
    Background(Class),
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Fault(number) => write!(formatter, "{number}"),
            Part::Background(class) => formatter.write_str(class.name()),
        }
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        if let Ok(number) = text.parse() {
            return Ok(Part::Fault(number));
        }
        let class = Class::BACKGROUND.into_iter().find(|class| class.name() == text);
        class.map(Part::Background).ok_or_else(|| {
            let names: Vec<&str> = Class::BACKGROUND.iter().map(|class| class.name()).collect();
            format!("\"{text}\" is neither a fault's number nor one of {}", names.join(", "))
        })
    }
}

/// Settings that hold for a run whatever its seed says.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The protocol of every keyspace; `None` leaves it to the seed.
    pub protocol: Option<Protocol>,
    /// Whether every keyspace of consensus stores its values as fragments.
    pub coded: bool,
    /// Whether every keyspace of consensus or leader-follower without fragments keeps its values on the disk.
    pub spilled: bool,
    /// Whether many writes are too long for one record, and are sent in parts.
    pub long: bool,
    /// Whether there are clients that keep what they read.
    pub tracking: bool,
    /// Whether every keyspace has a bound on memory, which it reaches.
    pub bounded: bool,
    /// Whether there are clients that read all changes of a keyspace.
    pub changes: bool,
    /// Whether nodes have the programs of two releases.
    pub releases: bool,
    /// Whether a majority of the control nodes is lost in the end, and the cluster is recovered from the others' folders.
    pub recovery: bool,
    /// The planted fault of the replicas, in tests.
    pub planted: Planted,
    /// The planted fault of the logs, in tests.
    pub planted_in_storage: storage::planted::Planted,
    /// The parts to leave out.
    pub without: BTreeSet<Part>,
    /// An upper limit for the number of clients; `None` leaves the number to the seed.
    pub clients_max: Option<usize>,
    /// An upper limit for the time in which there are faults and load, in milliseconds; `None` leaves it to the seed.
    pub length_ms_max: Option<u64>,
    /// If set, the run has this shape and no faults, to measure the simulator itself.
    pub calm: Option<Calm>,
}

impl Settings {
    /// Returns the command that runs a seed with these settings.
    pub fn command(&self, seed: u64) -> String {
        let mut command = format!("quorate sim --seed {seed}");
        if let Some(protocol) = self.protocol {
            command += &format!(" --protocol {protocol}");
        }
        if self.coded {
            command += " --coded";
        }
        if self.spilled {
            command += " --spilled";
        }
        if self.long {
            command += " --long";
        }
        if self.tracking {
            command += " --tracking";
        }
        if self.bounded {
            command += " --bounded";
        }
        if self.changes {
            command += " --changes";
        }
        if self.releases {
            command += " --releases";
        }
        if self.recovery {
            command += " --recovery";
        }
        if let Some(clients) = self.clients_max {
            command += &format!(" --clients {clients}");
        }
        if let Some(length_ms) = self.length_ms_max {
            command += &format!(" --length-ms {length_ms}");
        }
        if !self.without.is_empty() {
            let parts: Vec<String> = self.without.iter().map(Part::to_string).collect();
            command += &format!(" --without {}", parts.join(","));
        }
        command
    }
}

/// The shape of a run without faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calm {
    /// The number of nodes.
    pub nodes: u8,
    /// Operations per second, over all clients together.
    pub rate: u64,
    /// The length of the run, in seconds.
    pub seconds: u64,
}

/// How the network treats messages, in parts per million. Only messages between replicas are lost, duplicated or
/// reordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NetworkFaults {
    pub(crate) loss: u32,
    pub(crate) duplication: u32,
    pub(crate) reordering: u32,
    pub(crate) delay: u32,
}

/// What an empty table takes, in bytes.
const EMPTY_TABLE_BYTES: u64 = 66_000;

/// The least length of parts where clients read all changes.
const READERS_PART_BYTES: usize = 16 << 10;

/// The nodes' command timeout unless a draw changes it.
const USUAL_TIMEOUT_MS: u64 = 5_000;
const USUAL_SWEEP_MS: u64 = 100;
const USUAL_SEGMENT_BYTES: u64 = 256 << 10;
const USUAL_BEHIND_BYTES: u64 = 64 << 20;
const USUAL_CHECKPOINT_BYTES: u64 = 1 << 20;

/// Everything that a seed decides before the run begins.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    /// The number of nodes, over the whole run.
    pub(crate) nodes: Place,
    /// The number of nodes that the cluster begins with: the first ones.
    pub(crate) first_nodes: Place,
    pub(crate) spaces: Vec<Space>,
    pub(crate) planted: Planted,
    pub(crate) planted_in_storage: storage::planted::Planted,
    /// How long each client thinks between two operations, on average.
    pub(crate) think_us: Vec<u64>,
    /// Further clients, which keep what they read: how long each thinks, and whether it is told of all keys.
    pub(crate) keepers: Vec<(u64, bool)>,
    /// Further clients, which read all changes of a keyspace: how long each thinks, and the index of the keyspace.
    pub(crate) readers: Vec<(u64, u8)>,
    /// The most requests that a client sends without waiting.
    pub(crate) pipeline: u64,
    /// The number of bytes that follow the number in each value.
    pub(crate) value_bytes: u16,
    /// How long a client waits for an answer before it gives up.
    pub(crate) patience_us: Option<u64>,
    /// The time after which a command has its outcome.
    pub(crate) command_timeout_ms: u64,
    /// How often replicas without a leader compare their keys.
    pub(crate) sweep_ms: u64,
    /// Writes and replies of more bytes are sent in parts.
    pub(crate) long_command_bytes: usize,
    /// The length of a log's segments.
    pub(crate) segment_bytes: u64,
    /// How much a log grows before it is shortened.
    pub(crate) checkpoint_bytes: u64,
    /// Memory for values that are on the disk.
    pub(crate) cache_bytes: usize,
    /// While a log has more than this to write, its node reads nothing from peers.
    pub(crate) behind_bytes: u64,
    /// How much nodes read and write at once.
    pub(crate) sizes: Sizes,
    /// Room for bytes on the way to a client, and the longest time that a client takes to read some.
    pub(crate) client_room: usize,
    pub(crate) reading_us: u64,
    /// A way between two nodes accepts more while fewer bytes than this are on it.
    pub(crate) peer_room: usize,
    pub(crate) latency_us: u64,
    pub(crate) jitter_us: u64,
    pub(crate) network_faults: NetworkFaults,
    pub(crate) delay_us: u64,
    pub(crate) stale_deliveries: bool,
    /// Whether nodes have a second connection for urgent messages.
    pub(crate) has_urgent_links: bool,
    /// How often a first connection is held up, in parts per million of the frames, and the longest time for which.
    pub(crate) hold_ups: u32,
    pub(crate) hold_up_us: u64,
    pub(crate) drift_ppm: Vec<i64>,
    pub(crate) unix_ahead_ms: Vec<i64>,
    /// The longest lifetime of a value that expires.
    pub(crate) lives_ms_max: u16,
    pub(crate) length_us: u64,
    pub(crate) faults: Vec<Option<Fault>>,
    /// The nodes that are kept away for a while after everything has healed.
    pub(crate) missing: Option<Mask>,
    /// Whether leaders whose crash loses acknowledged writes may crash.
    pub(crate) may_forget: bool,
    /// Whether nodes are started with the last release's program, too.
    pub(crate) has_old_programs: bool,
}

impl Scenario {
    pub(crate) fn draw(seed: u64, settings: &Settings) -> Scenario {
        let mut random = Random::new(seed, stream::SCENARIO);
        let nodes: Place = match random.below(20) {
            0 => 1,
            1..=9 => 3,
            10..=17 => 5,
            _ => 7,
        };
        let nodes = settings.calm.map_or(nodes, |calm| calm.nodes);
        let count = match random.below(10) {
            _ if settings.calm.is_some() => 1,
            0..=6 => 1,
            7 | 8 => 2,
            _ => 3,
        };
        let spaces = (0..count).map(|index| draw_space(index, nodes, settings, &mut random)).collect();
        let rate = random.scaled(10, 400);
        let clients = random.between(1, 16);
        let mut scenario = Scenario {
            seed,
            nodes,
            first_nodes: nodes,
            spaces,
            planted: settings.planted,
            planted_in_storage: settings.planted_in_storage,
            think_us: (0..clients).map(|_| random.between(1, 2 * clients * SECOND / rate)).collect(),
            keepers: Vec::new(),
            readers: Vec::new(),
            pipeline: if random.percent(40) { random.between(2, 8) } else { 1 },
            value_bytes: if random.percent(20) { random.scaled(10, 3_000) as u16 } else { 0 },
            patience_us: random.percent(70).then_some(random.scaled(100 * MS, 8 * SECOND)),
            command_timeout_ms: USUAL_TIMEOUT_MS,
            sweep_ms: USUAL_SWEEP_MS,
            long_command_bytes: node::LONG_COMMAND_BYTES,
            segment_bytes: USUAL_SEGMENT_BYTES,
            checkpoint_bytes: USUAL_CHECKPOINT_BYTES,
            cache_bytes: 0,
            behind_bytes: USUAL_BEHIND_BYTES,
            sizes: Sizes::default(),
            client_room: usize::MAX,
            reading_us: 0,
            peer_room: usize::MAX,
            latency_us: random.scaled(20, 20_000),
            jitter_us: random.scaled(1, 20_000),
            network_faults: NetworkFaults {
                loss: some(&mut random, 200_000),
                duplication: some(&mut random, 200_000),
                reordering: some(&mut random, 500_000),
                delay: some(&mut random, 50_000),
            },
            delay_us: random.scaled(5 * MS, 8 * SECOND),
            stale_deliveries: random.percent(50),
            has_urgent_links: false,
            hold_ups: 0,
            hold_up_us: 0,
            drift_ppm: draw_drift(nodes, &mut random),
            unix_ahead_ms: (0..nodes).map(|_| random.below(2_000) as i64 - 1_000).collect(),
            lives_ms_max: 2_000,
            length_us: random.scaled(5 * SECOND, 60 * SECOND),
            faults: Vec::new(),
            missing: draw_missing(nodes, &mut random),
            may_forget: random.percent(50),
            has_old_programs: false,
        };
        if let Some(calm) = settings.calm {
            scenario.calm_down(calm);
            return scenario;
        }
        scenario.draw_timing();
        let mut operator = Random::new(seed, stream::OPERATOR);
        let (dynamic, spare) = scenario.draw_changes(settings, &mut operator);
        let mut random = Random::new(seed, stream::FAULTS);
        let faults = Draw { random: &mut random, nodes, length_us: scenario.length_us }.faults();
        scenario.faults = faults.into_iter().map(Some).collect();
        scenario.draw_registers();
        scenario.draw_coding(settings);
        scenario.draw_spilling(settings);
        scenario.draw_disk_faults();
        let (nodes, length_us) = (scenario.nodes, scenario.length_us);
        let spaces = scenario.spaces.iter().filter(|space| !space.is_created).count() as u8;
        let mut draw = Draw { random: &mut operator, nodes, length_us };
        let changes = [draw.killed_leaders(), draw.orders(spaces, dynamic, spare)].concat();
        scenario.faults.extend(changes.into_iter().map(Some));
        scenario.draw_transactions();
        scenario.draw_scripts();
        scenario.draw_locks();
        scenario.draw_outage();
        scenario.draw_lanes();
        scenario.draw_long(settings);
        scenario.draw_unwritten();
        scenario.draw_clocks();
        scenario.draw_buffers();
        scenario.draw_queues();
        scenario.draw_collections();
        scenario.draw_keepers(settings);
        scenario.draw_bounds(settings);
        scenario.draw_readers(settings);
        scenario.draw_programs(settings);
        scenario.draw_recovery(settings);
        scenario.restrict(settings);
        scenario
    }

    /// In some clusters a keyspace or a node is added during the run.
    fn draw_changes(&mut self, settings: &Settings, random: &mut Random) -> (Option<u8>, Option<Place>) {
        let dynamic = random.percent(25).then_some(self.spaces.len());
        if let Some(index) = dynamic {
            let mut space = draw_space(index, self.nodes, settings, random);
            space.is_created = true;
            self.spaces.push(space);
        }
        let spare = random.percent(25).then_some(self.nodes);
        if spare.is_some() {
            self.nodes += 1;
            self.drift_ppm.push(random.below(20_001) as i64 - 10_000);
            self.unix_ahead_ms.push(random.below(2_000) as i64 - 1_000);
        }
        (dynamic.map(|index| index as u8), spare)
    }

    /// In some keyspaces clients make transactions.
    fn draw_transactions(&mut self) {
        let mut random = Random::new(self.seed, stream::TRANSACTIONS);
        for space in self.spaces.iter_mut().filter(|space| !space.protocol.has_registers()) {
            if random.percent(40) {
                let times = random.between(1, 3) as usize;
                space.kinds.extend(std::iter::repeat_n(Kind::Transact, times));
            }
        }
    }

    /// In some keyspaces every other increment is a script. No other draw depends on this one.
    fn draw_scripts(&mut self) {
        // Runs with a planted fault have no scripts: the seeds known to find planted faults were found without them.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        if storage_planted || self.planted != Planted::default() {
            return;
        }
        let mut random = Random::new(self.seed, stream::SCRIPTS);
        for space in self.spaces.iter_mut().filter(|space| !space.protocol.has_registers()) {
            space.runs_scripts = random.percent(50);
        }
    }

    /// In some keyspaces of consensus clients use locks, in some of these almost exclusively.
    fn draw_locks(&mut self) {
        let mut random = Random::new(self.seed, stream::LOCKS);
        for space in self.spaces.iter_mut().filter(|space| space.protocol == Protocol::Consensus) {
            if random.percent(35) {
                let times = random.between(2, 20) as usize;
                space.kinds.extend(std::iter::repeat_n(Kind::Lock, times));
            }
        }
    }

    /// In some keyspaces clients push elements and wait for them, in some of these almost exclusively.
    fn draw_queues(&mut self) {
        // The seeds known to find other planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let is_of_queues = PlantedFault::OF_QUEUES.into_iter().any(|fault| self.planted.has(fault));
        if storage_planted || self.planted != Planted::default() && !is_of_queues {
            return;
        }
        let mut random = Random::new(self.seed, stream::QUEUES);
        for space in self.spaces.iter_mut().filter(|space| !space.protocol.has_registers()) {
            if random.percent(35) {
                let times = random.between(2, 10) as usize;
                space.kinds.extend(std::iter::repeat_n(Kind::Push, times));
                space.kinds.extend(std::iter::repeat_n(Kind::Take, times + 1));
            }
        }
    }

    /// In some keyspaces clients use lists from both ends, sets, sorted sets, and streams with a group.
    fn draw_collections(&mut self) {
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let finds = PlantedFault::OF_COLLECTIONS.into_iter().any(|fault| self.planted.has(fault));
        if storage_planted || self.planted != Planted::default() && !finds {
            return;
        }
        use Kind::*;
        const TYPES: [&[Kind]; 4] = [
            &[Push, PushFront, Push, PopFront, PopBack, Rotate, Take, Take],
            &[Add, Add, Remove, Contains, Draw],
            &[SetScore, SetScore, AddScore, RemoveScored, PopLowest, TakeLowest],
            &[CreateGroup, Append, Append, Deliver, Deliver, Claim, Acknowledge],
        ];
        // A search for a fault of collections meets them more often.
        let percent = if finds { 60 } else { 15 };
        let mut random = Random::new(self.seed, stream::COLLECTIONS);
        for space in self.spaces.iter_mut().filter(|space| !space.protocol.has_registers()) {
            for kinds in TYPES {
                if random.percent(percent) {
                    let times = random.between(1, 2) as usize;
                    (0..times).for_each(|_| space.kinds.extend(kinds));
                }
            }
        }
    }

    /// Some keyspaces have a bound on memory, which they reach. In most of these keys are evicted.
    fn draw_bounds(&mut self, settings: &Settings) {
        // The seeds known to find planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        if !settings.bounded && (storage_planted || self.planted != Planted::default()) {
            return;
        }
        const POLICIES: [&str; 8] =
            ["none", "lru", "lfu", "random", "ttl", "volatile-lru", "volatile-lfu", "volatile-random"];
        let mut random = Random::new(self.seed, stream::BOUNDS);
        if !random.percent(15) && !settings.bounded {
            return;
        }
        let value_bytes = random.scaled(50, 3_000) as u16;
        for space in &mut self.spaces {
            let (eviction, share) = (random.pick(&POLICIES), random.scaled(300, 20_000));
            let eviction =
                if self.planted.has(PlantedFault::EvictsWithoutPolicy) { "none" } else { eviction };
            let eviction = if space.protocol.has_registers() { "none" } else { eviction };
            // Each shard has an empty table, too.
            let bytes = u64::from(space.keyspace.shards) * (EMPTY_TABLE_BYTES + share);
            space.set_bound(bytes, eviction);
            // Of two keys that only change together one may go alone. A stream may go with its group, or there is no room for
            // one; and nobody makes it again.
            let evicts = space.evicts();
            space
                .kinds
                .retain(|kind| kind.collection() != Some(b'x') && !(evicts && *kind == Kind::Transact));
        }
        self.value_bytes = self.value_bytes.max(value_bytes);
    }

    /// In some clusters there are clients that keep what they read.
    fn draw_keepers(&mut self, settings: &Settings) {
        // The seeds known to find other planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let finds = PlantedFault::OF_TRACKING.into_iter().any(|fault| self.planted.has(fault));
        let is_planted = storage_planted || self.planted != Planted::default();
        let mut random = Random::new(self.seed, stream::TRACKING);
        let is_drawn = random.percent(25) && !is_planted;
        if is_drawn || finds || settings.tracking {
            let count = random.between(1, 4);
            let keeper = |_| (random.scaled(20 * MS, 400 * MS), random.percent(25));
            self.keepers = (0..count).map(keeper).collect();
        }
    }

    /// In some clusters there are clients that read all changes of a keyspace.
    fn draw_readers(&mut self, settings: &Settings) {
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let finds = PlantedFault::OF_CHANGES.into_iter().any(|fault| self.planted.has(fault));
        let is_planted = storage_planted || self.planted != Planted::default();
        let mut random = Random::new(self.seed, stream::READERS);
        let is_drawn = random.percent(25) && !is_planted;
        let bytes = random.pick(&[3_000, 100_000, 10_000_000]);
        let can_be_read: Vec<u8> = (0..self.spaces.len() as u8)
            .filter(|index| self.spaces[usize::from(*index)].can_keep_changes())
            .collect();
        if !(is_drawn || finds || settings.changes) || can_be_read.is_empty() {
            return;
        }
        let bytes = if finds { 10_000_000 } else { bytes };
        for index in &can_be_read {
            self.spaces[usize::from(*index)].keep_changes(bytes);
        }
        let count = random.between(2, 5);
        let reader = |_| (random.scaled(20 * MS, 400 * MS), random.pick(&can_be_read));
        self.readers = (0..count).map(reader).collect();
        if !self.readers.is_empty() {
            // What they read is much longer than a value: in parts of a few bytes it would take longer than their patience.
            self.long_command_bytes = self.long_command_bytes.max(READERS_PART_BYTES);
        }
    }

    /// In some clusters nodes have programs of two releases, and may get the other one at each start. In some of these an
    /// operator holds the level, or tries to.
    fn draw_programs(&mut self, settings: &Settings) {
        // The seeds known to find other planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let finds = self.planted.has(PlantedFault::FeatureUsedEarly);
        if !settings.releases && (storage_planted || self.planted != Planted::default() && !finds) {
            return;
        }
        let mut random = Random::new(self.seed, stream::LEVELS);
        self.has_old_programs = random.percent(25) || finds || settings.releases;
        if !self.has_old_programs || !random.percent(60) {
            return;
        }
        let mut at = random.below(self.length_us);
        for order in [Order::HoldLevel, Order::LetLevelRise] {
            self.faults.push(Some(Fault { at, kind: FaultKind::Order(order) }));
            at += random.below(self.length_us - at);
        }
    }

    /// Some runs end with the loss of a majority of the control nodes, and a recovery from what is left: those of keyspaces
    /// with records and an order.
    fn draw_recovery(&mut self, settings: &Settings) {
        let is_planted = self.planted_in_storage != storage::planted::Planted::default()
            || self.planted != Planted::default();
        let mut random = Random::new(self.seed, stream::RECOVERY);
        let is_drawn = random.percent(15) && !is_planted && !self.spaces.iter().any(Space::is_coded);
        if !settings.recovery && !is_drawn {
            return;
        }
        // Programs of the last release do not know of recoveries.
        self.has_old_programs = false;
        if settings.recovery {
            self.spaces.iter_mut().for_each(Space::keep_records);
        }
        if self.spaces.iter().all(Space::is_recoverable) && self.first_nodes >= 3 {
            let (nodes, length_us) = (self.first_nodes, self.length_us);
            let recovery = Draw { random: &mut random, nodes, length_us }.recovery();
            self.faults.push(Some(recovery));
        }
    }

    /// Where nodes write before a turn ends, some die before that write.
    fn draw_unwritten(&mut self) {
        let mut random = Random::new(self.seed, stream::UNWRITTEN);
        if !self.spaces.iter().any(|space| space.durability == Durability::Os) {
            return;
        }
        for fault in self.faults.iter_mut().flatten() {
            if let FaultKind::Crash { within_turn: Some(within), .. }
            | FaultKind::Leader { within_turn: Some(within), .. } = &mut fault.kind
            {
                within.writes = !random.percent(30);
            }
        }
    }

    /// In some clusters one node's wall clock is set far ahead or behind, and back after a while.
    fn draw_clocks(&mut self) {
        // The seeds known to find other planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let is_planted =
            self.planted != Planted::default() && !self.planted.has(PlantedFault::ClockUnbounded);
        let mut random = Random::new(self.seed, stream::CLOCKS);
        if storage_planted || is_planted || !random.percent(30) {
            return;
        }
        self.lives_ms_max = 60_000;
        let node = random.below(u64::from(self.first_nodes)) as Place;
        for _ in 0..random.between(1, 3) {
            let by_ms = random.scaled(10_000, 24 * 3_600_000) as i64;
            let by_ms = if random.percent(70) { by_ms } else { -by_ms };
            let at = random.below(self.length_us);
            let back_at = at + random.scaled(20 * MS, 20 * SECOND);
            for (at, by_ms) in [(at, by_ms), (back_at, -by_ms)] {
                self.faults.push(Some(Fault { at, kind: FaultKind::ClockJump { node, by_ms } }));
            }
        }
    }

    /// In half of the clusters nodes read and write little at once. In some there is little room on the way to other
    /// nodes, or to clients, which read late. In some a log counts as behind when it has little to write.
    fn draw_buffers(&mut self) {
        // The seeds known to find other planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        let is_of_drivers = PlantedFault::OF_DRIVERS.into_iter().any(|fault| self.planted.has(fault));
        if storage_planted || self.planted != Planted::default() && !is_of_drivers {
            return;
        }
        let mut random = Random::new(self.seed, stream::BUFFERS);
        if random.percent(50) {
            self.sizes = Sizes {
                buffer_bytes: random.scaled(16, 4_000) as usize,
                client_bytes_max: random.scaled(50, 20_000) as usize,
                input_bytes_max: random.scaled(50, 20_000),
                output_bytes_max: random.scaled(50, 20_000) as usize,
                peer_bytes_max: random.scaled(500, 50_000) as usize,
                lent_bytes_min: random.scaled(50, 3_000) as usize,
            };
        }
        if random.percent(40) {
            self.client_room = random.scaled(10, 10_000) as usize;
            self.reading_us = random.scaled(MS, SECOND);
        }
        if random.percent(40) {
            self.peer_room = random.scaled(2_000, 200_000) as usize;
        }
        if random.percent(40) {
            self.behind_bytes = random.scaled(200, 50_000);
        }
    }

    /// Where values are stored as fragments, half of the runs end with a power loss of all machines at once.
    fn draw_outage(&mut self) {
        let mut random = Random::new(self.seed, stream::OUTAGE);
        if random.percent(50) && self.spaces.iter().any(Space::is_coded) {
            let (nodes, length_us) = (self.first_nodes, self.length_us);
            let outage = Draw { random: &mut random, nodes, length_us }.outage();
            self.faults.push(Some(outage));
        }
    }

    /// In most clusters nodes have the second connection for urgent messages; in some of these the first one is often
    /// held up, as if behind a long value.
    fn draw_lanes(&mut self) {
        // The seeds known to find planted faults were found with one connection.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        if storage_planted || self.planted != Planted::default() {
            return;
        }
        let mut random = Random::new(self.seed, stream::LANES);
        self.has_urgent_links = random.percent(75);
        self.hold_up_us = random.scaled(MS, 2 * SECOND);
        self.hold_ups = some(&mut random, 20_000);
    }

    /// Half of the clusters have the usual times. In the others unfinished operations stay unfinished for long, or
    /// commands time out early, though not so early that a healthy cluster could not execute them.
    fn draw_timing(&mut self) {
        let mut random = Random::new(self.seed, stream::TIMING);
        let round_ms = 2 * (self.latency_us + self.jitter_us) / MS;
        if random.percent(50) {
            self.sweep_ms = random.scaled(1_000, 60_000);
        }
        if random.percent(50) {
            self.command_timeout_ms = random.scaled(100, 3_000) + 4 * round_ms;
        }
    }

    /// Half of the keyspaces of registers survive crashes.
    fn draw_registers(&mut self) {
        let mut random = Random::new(self.seed, stream::REGISTERS);
        for space in self.spaces.iter_mut().filter(|space| space.protocol.has_registers()) {
            match random.below(8) {
                0 => space.set_durability(Durability::Os),
                1..=3 => space.set_durability(Durability::Fsync),
                _ => {}
            }
        }
    }

    /// Some keyspaces of consensus store their values as fragments. Their values are then long enough for that.
    fn draw_coding(&mut self, settings: &Settings) {
        let mut random = Random::new(self.seed, stream::CODING);
        let nodes = usize::from(self.first_nodes);
        for space in &mut self.spaces {
            let is_drawn = random.percent(25) || settings.coded;
            let replicas = match usize::from(space.keyspace.replicas) {
                0 => nodes,
                replicas => replicas.min(nodes),
            };
            let parts = random.between(1, (replicas - (replicas - 1) / 2) as u64);
            if is_drawn && space.protocol == Protocol::Consensus {
                space.set_coding(&parts.to_string());
            }
        }
        self.draw_adaptive();
        let value_bytes = random.scaled(50, 3_000) as u16;
        if self.spaces.iter().any(Space::is_coded) {
            self.value_bytes = self.value_bytes.max(value_bytes);
        }
    }

    /// In some of these the nodes choose how each value is stored, from what they measure. No other draw depends on
    /// this one.
    fn draw_adaptive(&mut self) {
        // The seeds known to find planted faults were found with fixed numbers of parts.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        if storage_planted || self.planted != Planted::default() {
            return;
        }
        let mut random = Random::new(self.seed, stream::ADAPTIVE);
        for space in self.spaces.iter_mut().filter(|space| space.is_coded()) {
            if random.percent(40) {
                space.set_coding("adaptive");
            }
        }
    }

    /// Some keyspaces of consensus and leader-follower keep their values on the disk. Their values are then long
    /// enough for that, and memory holds only a few of them.
    fn draw_spilling(&mut self, settings: &Settings) {
        // The seeds known to find planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        if !settings.spilled && (storage_planted || self.planted != Planted::default()) {
            return;
        }
        let mut random = Random::new(self.seed, stream::SPILLING);
        for space in &mut self.spaces {
            let is_drawn = random.percent(25) || settings.spilled;
            let log_bytes = random.pick(&[2_000, 20_000, 200_000]);
            // The seeds known to find planted faults were found without fragments on the disk.
            let may_be_coded = self.planted == Planted::default() || settings.coded;
            if is_drawn && space.can_spill() && (may_be_coded || !space.is_coded()) {
                space.set_spilling(log_bytes);
            }
        }
        let value_bytes = random.scaled(64, 3_000) as u16;
        let cache_bytes = random.pick(&[0, 1_000, 20_000]);
        if self.spaces.iter().any(Space::is_spilled) {
            self.value_bytes = self.value_bytes.max(value_bytes);
            self.cache_bytes = cache_bytes;
        }
    }

    /// In some clusters many writes are too long for one record.
    fn draw_long(&mut self, settings: &Settings) {
        // The seeds known to find planted faults were found without this.
        let storage_planted = self.planted_in_storage != storage::planted::Planted::default();
        if !settings.long && (storage_planted || self.planted != Planted::default()) {
            return;
        }
        let mut random = Random::new(self.seed, stream::LONG);
        let (is_drawn, value_bytes) = (random.percent(40) || settings.long, random.scaled(20, 2_000));
        if is_drawn {
            self.value_bytes = self.value_bytes.max(value_bytes as u16);
            // A value has no more than about thirty parts, of which a few are in flight at a time.
            let length = u64::from(self.value_bytes);
            self.long_command_bytes = random.between(length / 4, length) as usize;
        }
    }

    /// The disks' properties and faults, drawn after everything else.
    fn draw_disk_faults(&mut self) {
        let mut random = Random::new(self.seed, stream::DISK_FAULTS);
        self.segment_bytes = random.pick(&[8 << 10, 32 << 10, 128 << 10]);
        self.checkpoint_bytes = self.segment_bytes * random.pick(&[1, 2, 8]);
        // A stuck disk makes many operations overlap; with too many on one key, their order cannot be checked.
        const AT_ONCE_MAX: u64 = 16;
        let at_once = (self.think_us.len() as u64 * self.pipeline).div_ceil(AT_ONCE_MAX) as u8;
        for space in self.spaces.iter_mut().filter(|space| space.is_durable()) {
            space.keys = space.keys.max(at_once);
        }
        let (nodes, length_us) = (self.nodes, self.length_us);
        let faults = Draw { random: &mut random, nodes, length_us }.disk_faults();
        self.faults.extend(faults.into_iter().map(Some));
    }

    /// Leaves out what the settings leave out. Draws nothing, so that the rest stays as it is.
    fn restrict(&mut self, settings: &Settings) {
        if let Some(clients) = settings.clients_max {
            self.think_us.truncate(clients.max(1));
        }
        if let Some(length_ms) = settings.length_ms_max {
            self.length_us = self.length_us.min(length_ms * MS);
        }
        for part in &settings.without {
            match part {
                Part::Fault(number) => {
                    if let Some(fault) = self.faults.get_mut(usize::from(*number)) {
                        *fault = None;
                    }
                }
                Part::Background(Class::Loss) => self.network_faults.loss = 0,
                Part::Background(Class::Duplication) => self.network_faults.duplication = 0,
                Part::Background(Class::Reordering) => self.network_faults.reordering = 0,
                Part::Background(Class::Delay) => self.network_faults.delay = 0,
                Part::Background(Class::HoldUp) => self.hold_ups = 0,
                Part::Background(Class::Overtaking) => self.has_urgent_links = false,
                Part::Background(Class::StaleDelivery) => self.stale_deliveries = false,
                Part::Background(Class::FullOutput) => self.peer_room = usize::MAX,
                Part::Background(Class::SlowReader) => self.client_room = usize::MAX,
                Part::Background(Class::HeldBack) => self.behind_bytes = USUAL_BEHIND_BYTES,
                Part::Background(Class::ClockDrift) => {
                    self.drift_ppm.fill(0);
                    self.unix_ahead_ms.fill(0);
                }
                Part::Background(Class::ImpatientClient) => self.patience_us = None,
                Part::Background(Class::MissingMinority) => self.missing = None,
                Part::Background(_) => {}
            }
        }
    }

    fn calm_down(&mut self, calm: Calm) {
        const CLIENTS: u64 = 10;
        self.think_us = vec![CLIENTS * SECOND / calm.rate.max(1); CLIENTS as usize];
        self.pipeline = 1;
        self.value_bytes = 0;
        self.patience_us = None;
        (self.latency_us, self.jitter_us) = (200, 50);
        self.network_faults = NetworkFaults::default();
        self.length_us = calm.seconds * SECOND;
        self.missing = None;
    }

    /// Returns the parts that can be left out of this run, the numbered faults first.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let faults = self.faults.iter().enumerate().filter(|(_, fault)| fault.is_some());
        let numbers = faults.map(|(number, _)| Part::Fault(number as u16));
        numbers.chain(Class::BACKGROUND.map(Part::Background)).collect()
    }
}

/// Draws a probability in parts per million: often zero, otherwise up to `most`.
fn some(random: &mut Random, most: u64) -> u32 {
    let drawn = random.scaled(100, most) as u32;
    if random.percent(50) { drawn } else { 0 }
}

/// Draws a keyspace. One has the empty prefix and is the default: every run has as many groups as keyspaces.
fn draw_space(index: usize, nodes: Place, settings: &Settings, random: &mut Random) -> Space {
    const PREFIXES: [&str; 4] = ["", "p:", "q:", "r:"];
    let ready: Vec<Protocol> =
        Protocol::ALL.into_iter().filter(|protocol| protocol.check().is_ok()).collect();
    let drawn = random.pick(&ready);
    let protocol = settings.protocol.unwrap_or(drawn);
    match settings.calm {
        Some(_) => Space::plain(protocol),
        None => Space::draw(protocol, PREFIXES[index], nodes.into(), random),
    }
}

/// Draws the drift of the clocks. In half of the clusters they run alike; in the others they differ by up to 1 %,
/// more than any real machine's.
fn draw_drift(nodes: Place, random: &mut Random) -> Vec<i64> {
    let most = random.pick(&[0, 0, 200, 10_000]);
    (0..nodes).map(|_| random.below(2 * most + 1) as i64 - most as i64).collect()
}

/// Draws some nodes; how many of them can be spared is decided later.
fn draw_missing(nodes: Place, random: &mut Random) -> Option<Mask> {
    let drawn = random.draw() as Mask & ((1u64 << nodes) - 1) as Mask;
    (nodes > 1 && drawn != 0 && random.percent(60)).then_some(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_one_scenario() {
        let describe = |seed| Scenario::draw(seed, &Settings::default()).describe();
        assert_eq!(describe(5), describe(5));
        assert_ne!(describe(5), describe(6));
    }

    #[test]
    fn what_is_left_out_leaves_the_rest_as_it_is() {
        let whole = Scenario::draw(11, &Settings::default());
        let parts = whole.parts();
        let Some(Part::Fault(first)) = parts.first() else { panic!("seed 11 has no fault to leave out") };
        let settings = Settings { without: [parts[0]].into(), ..Settings::default() };
        let less = Scenario::draw(11, &settings);
        assert_eq!(less.faults[usize::from(*first)], None);
        assert_eq!(less.faults[1..], whole.faults[1..]);
        assert_eq!(less.parts(), parts[1..]);
    }

    #[test]
    fn every_keyspace_that_is_drawn_can_be_kept() {
        for seed in 0..200 {
            let scenario = Scenario::draw(seed, &Settings::default());
            for space in &scenario.spaces {
                space
                    .keyspace
                    .check(scenario.nodes.into())
                    .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
                assert_eq!(node::Keyspace::parse(&space.text).as_ref(), Ok(&space.keyspace));
            }
        }
    }
}

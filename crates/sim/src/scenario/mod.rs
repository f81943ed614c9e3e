//! What a seed means: the cluster, its clients, the network, the clocks, and everything that will go wrong.

mod features;

use crate::events::Place;
use crate::faults::{Class, Draw, Fault, Kind as FaultKind, MS, Mask, SECOND};
use crate::promise::{Protocol, Space};
use crate::random::Random;
use driver::Sizes;
use protocol::planted::Planted;
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
    /// This number leaves every seed that has shown failures of nodes without bounds, which would change its run.
    pub(crate) const BOUNDS: u64 = 57;
    pub(crate) const TRACKING: u64 = 29;
    pub(crate) const READERS: u64 = 30;
    pub(crate) const PROGRAMS: u64 = 31;
    pub(crate) const RECOVERY: u64 = 32;
    pub(crate) const BACKUPS: u64 = 33;
    pub(crate) const RESTORED: u64 = 34;
    pub(crate) const ROTTEN_VALUES: u64 = 35;
    pub(crate) const LONG_TURNS: u64 = 36;
    pub(crate) const HANDOVERS: u64 = 37;
    pub(crate) const ACROSS: u64 = 39;
    pub(crate) const MOVES: u64 = 40;
    pub(crate) const NODES: u64 = 100;
    pub(crate) const CLIENTS: u64 = 200;
    /// This number, too, changes the run of no seed that has shown failures of nodes.
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

/// Settings that hold for a run whatever its seed decides.
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
    /// Whether clients make transactions over several keyspaces and shards, where these can.
    pub across: bool,
    /// Whether there are clients that make backups, which are restored in the end.
    pub backup: bool,
    /// Whether nodes have the programs of two releases.
    pub releases: bool,
    /// Whether a majority of the control nodes is lost at the end, and the cluster is recovered from the others' folders.
    pub recovery: bool,
    /// Whether nothing goes wrong but that nodes have long turns, so that no leader may change.
    pub busy: bool,
    /// Whether in each run nodes are told to stop, drained, and told to lead.
    pub handovers: bool,
    /// The planted fault of the replicas, in tests.
    pub planted: Planted,
    /// The planted fault of the logs, in tests.
    pub planted_in_storage: storage::planted::Planted,
    /// Whether the run is the one with the planted fault in all but the fault itself. Some of what a scenario may have is left
    /// out, or always there, where a fault is planted.
    pub mended: bool,
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
        if self.across {
            command += " --across";
        }
        if self.backup {
            command += " --backup";
        }
        if self.releases {
            command += " --releases";
        }
        if self.recovery {
            command += " --recovery";
        }
        if self.busy {
            command += " --busy";
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
    /// Further clients, which keep what they read: how long each thinks, and whether it gets invalidations for all keys.
    pub(crate) keepers: Vec<(u64, bool)>,
    /// Further clients, which read all changes of a keyspace: how long each thinks, and the index of the keyspace.
    pub(crate) readers: Vec<(u64, u8)>,
    /// Further clients, which make backups of a keyspace: how long each thinks, and the index of the keyspace.
    pub(crate) backups: Vec<(u64, u8)>,
    /// The most requests that a client sends without waiting.
    pub(crate) pipeline: u64,
    /// The number of bytes that follow the number in each value.
    pub(crate) value_bytes: u16,
    /// How long a client waits for an answer before it gives up.
    pub(crate) patience_us: Option<u64>,
    /// The time after which a command ends with an outcome.
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
    /// The time within which every value on the disk is scrubbed; 0: never.
    pub(crate) scrub_period_us: u64,
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
    /// Whether the messages of one write may arrive apart.
    pub(crate) splits_writes: bool,
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
    pub(crate) lifetime_ms_max: u16,
    pub(crate) length_us: u64,
    pub(crate) faults: Vec<Option<Fault>>,
    /// The nodes that are kept away for a while after everything has healed.
    pub(crate) missing: Option<Mask>,
    /// Whether leaders whose crash loses acknowledged writes may crash.
    pub(crate) may_forget: bool,
    /// Whether nodes are started with the last release's program, too.
    pub(crate) has_old_programs: bool,
    /// Whether nothing goes wrong but that nodes have long turns.
    pub(crate) is_only_busy: bool,
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
            backups: Vec::new(),
            pipeline: if random.percent(40) { random.between(2, 8) } else { 1 },
            value_bytes: if random.percent(20) { random.scaled(10, 3_000) as u16 } else { 0 },
            patience_us: random.percent(70).then_some(random.scaled(100 * MS, 8 * SECOND)),
            command_timeout_ms: USUAL_TIMEOUT_MS,
            sweep_ms: USUAL_SWEEP_MS,
            long_command_bytes: node::LONG_COMMAND_BYTES,
            segment_bytes: USUAL_SEGMENT_BYTES,
            checkpoint_bytes: USUAL_CHECKPOINT_BYTES,
            cache_bytes: 0,
            scrub_period_us: 0,
            behind_bytes: USUAL_BEHIND_BYTES,
            sizes: Sizes::default(),
            client_room: usize::MAX,
            reading_us: 0,
            peer_room: usize::MAX,
            latency_us: random.scaled(20, 20_000),
            jitter_us: random.scaled(1, 20_000),
            splits_writes: true,
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
            lifetime_ms_max: 2_000,
            length_us: random.scaled(5 * SECOND, 60 * SECOND),
            faults: Vec::new(),
            missing: draw_missing(nodes, &mut random),
            may_forget: random.percent(50),
            has_old_programs: false,
            is_only_busy: false,
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
        scenario.draw_backups(settings);
        scenario.draw_programs(settings);
        scenario.draw_rotten_values();
        scenario.draw_recovery(settings);
        scenario.draw_handovers(settings);
        scenario.draw_long_turns(settings);
        scenario.draw_across(settings);
        scenario.draw_moves();
        scenario.restrict(settings);
        scenario
    }

    /// Leaves out what the settings exclude. Draws nothing, so that the rest does not change.
    fn restrict(&mut self, settings: &Settings) {
        if settings.mended {
            (self.planted, self.planted_in_storage) = Default::default();
        }
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

    /// The cluster into which backups of this one are restored: it has the same keyspaces, a network of the same kind and faults
    /// that lose nothing, and no clients.
    pub(crate) fn of_restore(&self) -> Scenario {
        const LENGTH_MAX_US: u64 = 10 * SECOND;
        let mut scenario = Scenario {
            seed: self.seed ^ 1 << 40,
            first_nodes: self.nodes,
            think_us: Vec::new(),
            keepers: Vec::new(),
            readers: Vec::new(),
            backups: Vec::new(),
            length_us: self.length_us.min(LENGTH_MAX_US),
            missing: None,
            may_forget: false,
            has_old_programs: false,
            is_only_busy: false,
            ..self.clone()
        };
        for space in &mut scenario.spaces {
            (space.keys, space.is_created) = (0, false);
            space.kinds.clear();
        }
        let loses = |kind: &FaultKind| {
            matches!(kind, FaultKind::Disk(_) | FaultKind::Order(_) | FaultKind::ClockJump { .. })
        };
        scenario
            .faults
            .retain(|fault| fault.is_some_and(|it| !loses(&it.kind) && it.at < scenario.length_us));
        scenario
    }

    fn calm_down(&mut self, calm: Calm) {
        const CLIENTS: u64 = 10;
        self.think_us = vec![CLIENTS * SECOND / calm.rate.max(1); CLIENTS as usize];
        self.pipeline = 1;
        self.value_bytes = 0;
        self.patience_us = None;
        (self.latency_us, self.jitter_us, self.splits_writes) = (200, 50, false);
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
    fn leaving_out_parts_does_not_change_the_rest() {
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
    fn every_drawn_keyspace_is_valid() {
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

//! How a node starts: its log is read, and its replicas get their records back. They take part once the control group
//! has admitted the node.

use super::Node;
use super::unsettled::Bounds;
use super::unsettled::Unsettled;
use crate::channels::Channels;
use crate::coding::Coding;
use crate::context::Context;
use crate::diagnostics::log::{Level, Line};
use crate::diagnostics::spans::Spans;
use crate::disk::journal::{Journal, kind};
use crate::disk::start_error::StartError;
use crate::following::Following;
use crate::forwarding::Forwarding;
use crate::groups::replica::Replica;
use crate::groups::{Group, Groups};
use crate::maintenance::quarantine::{Past, Quarantine};
use crate::membership::Cluster;
use crate::membership::clock::Clock;
use crate::membership::handovers::Handovers;
use crate::operators::notes;
use crate::requests::completing::Completing;
use crate::requests::long::LongCommands;
use crate::requests::long_reads::{self, LongReads};
use crate::session::gates::Gate;
use crate::two_phase::TwoPhase;
use crate::values::Sweep;
use crate::values::Values;
use crate::waits::Waits;
use cluster::configuration::Configuration;
use cluster::control::MAP_GROUP;
use cluster::control::{self, CONTROL_GROUP, ClusterMap, Control, Start};
use cluster::keyspace::Keyspace;
use info::Usage;
use kv::Coordinator;
use protocol::{Now, SpilledValues};
use std::rc::Rc;
use storage::{Disk, Identity, Options, ValueStore};

/// The state while the log is read, piece by piece.
struct Reading<'a, 'v> {
    configuration: &'a Configuration,
    quarantine: &'a Quarantine,
    values: Option<&'v mut dyn ValueStore>,
    sweep: Sweep,
    now: Now,
    groups: Groups,
    control: Control,
    map: Vec<u8>,
    positions: Vec<u8>,
}

/// What a node has after its log was read.
pub(super) struct Opened {
    pub(super) cx: Context,
    pub(super) quarantine: Quarantine,
    pub(super) control: Control,
    pub(super) sweep: Sweep,
    /// The newest records of the map and of positions.
    pub(super) map_record: Vec<u8>,
    pub(super) positions: Vec<u8>,
}

impl Node {
    /// Opens a node that has just started, with what its disk and its store of large values hold.
    ///
    /// # Errors
    /// [`StartError`]: a setting is refused, the log cannot be read, or the store lacks values.
    pub fn open_with<D: Disk>(
        configuration: Configuration,
        disk: &mut D,
        values: Option<&mut dyn ValueStore>,
        now: Now,
    ) -> Result<Node, StartError> {
        Node::open_again(configuration, disk, values, None, now)
    }

    /// Like [`Node::open_with`], with what earlier processes of the node noted about records that crashed them.
    ///
    /// # Errors
    /// As for [`Node::open_with`]; or the node cannot continue without a record that has crashed it.
    pub fn open_again<D: Disk>(
        configuration: Configuration,
        disk: &mut D,
        values: Option<&mut dyn ValueStore>,
        past: Option<Past>,
        now: Now,
    ) -> Result<Node, StartError> {
        let Opened { mut cx, quarantine, control, sweep, map_record, positions } =
            read(configuration, disk, values, past, now)?;
        cx.gates.set(Gate::Values, sweep.is_on());
        let configuration = &cx.configuration;
        let (own, planted) = (configuration.node, configuration.planted);
        let life = life_of_values(configuration);
        let bounds = Bounds {
            copied_max: configuration.long_command_bytes,
            read_ns_max: long_reads::in_one_step_ns(configuration),
            reply_max: cx.memory.reply_max(),
            replies_max: cx.memory.replies_max(),
        };
        let mut node = Node {
            usage: Usage::default(),
            rate: Default::default(),
            clock: Clock::new(now, cx.map.nodes.len().max(1), planted),
            started: now,
            cluster: Cluster::new(control, map_record, positions),
            forwarding: Forwarding::default(),
            handovers: Handovers::default(),
            checked_us: 0,
            idle_until_us: Default::default(),
            judges_late: false,
            begun_us: now.monotonic_us,
            gathers: Default::default(),
            two_phase: TwoPhase::new(planted),
            asking: Default::default(),
            recent: Default::default(),
            history: Default::default(),
            channels: Channels::default(),
            following: Following::default(),
            auth_guard: Default::default(),
            http_guard: Default::default(),
            held: Default::default(),
            waits: Waits::new(own, life_of_waits(configuration)),
            coding: Coding::new(life),
            long: LongCommands::new(Coordinator { node: own, life }),
            long_reads: LongReads::default(),
            values: Values::new(configuration.storage, planted, sweep),
            completing: Completing::default(),
            evictions: Default::default(),
            unsettled: Unsettled::new(bounds),
            history_bytes: 0,
            scratch: Vec::new(),
            bounded_bytes: Vec::new(),
            scripts: Default::default(),
            quarantine,
            cx,
        };
        // Until a map is committed, the initial one supplies the nodes, and the future keyspaces.
        let map = Rc::clone(&node.cx.map);
        node.follow_map(&map);
        if map.version > 0 {
            for id in node.cx.groups.ids().to_vec() {
                node.cx.groups[id].is_older = true;
            }
        }
        node.quarantine.announce(&mut node.cx);
        node.cluster.start(&mut node.cx);
        node.carry_out_calls();
        Ok(node)
    }
}

/// Reads what the disk of a node and its store of large values hold.
///
/// # Errors
/// See [`Node::open_again`].
pub(super) fn read<D: Disk>(
    configuration: Configuration,
    disk: &mut D,
    values: Option<&mut dyn ValueStore>,
    past: Option<Past>,
    now: Now,
) -> Result<Opened, StartError> {
    read_log(configuration, disk, (values, true), past, now)
}

/// Reads what the disk of a node holds. Large values are put into the store, and looked up there if the caller wants
/// that.
pub(super) fn read_log<D: Disk>(
    mut configuration: Configuration,
    disk: &mut D,
    (values, looks_for_values): (Option<&mut dyn ValueStore>, bool),
    past: Option<Past>,
    now: Now,
) -> Result<Opened, StartError> {
    let mut lines = Vec::new();
    let quarantine = Quarantine::new(past, &mut lines).map_err(StartError::Quarantine)?;
    let refuse = |why: String| Err(StartError::Configuration(why));
    let own = configuration.node;
    if !configuration.nodes.iter().any(|node| node.id == own) {
        return refuse(format!("node {own} is not among the configured nodes"));
    }
    let initial = ClusterMap::initial(&configuration.nodes, &configuration.keyspaces)
        .map_err(StartError::Configuration)?;
    let configured = configuration.keyspaces.clone();
    let opening = storage::open(disk, log_options(&configuration))?;
    configuration.identity = opening.identity().log;
    configuration.life = opening.openings() + 1;
    let start = Start {
        identity: configuration.identity,
        life: configuration.life,
        run: configuration.seed,
        found: 0,
    };
    let options = control::Options {
        id: own,
        start,
        seed: configuration.seed,
        initial,
        timing: control::Timing::default().slower(configuration.patience),
        moves_control_group: true,
        groups_max: configuration.groups_max,
        releases: configuration.releases,
        planted: configuration.planted,
        watch: quarantine.watch(),
    };
    let mut reading = Reading {
        configuration: &configuration,
        quarantine: &quarantine,
        values,
        sweep: Sweep::default(),
        now,
        groups: Groups::default(),
        control: Control::new(options),
        map: Vec::new(),
        positions: Vec::new(),
    };
    let mut chunk = Vec::new();
    let mut taken = Ok(());
    for mut snapshot in opening.snapshots() {
        let mut kind = match snapshot.group() {
            CONTROL_GROUP | MAP_GROUP => kind::RECORD,
            _ => kind::KEYSPACE,
        };
        while snapshot.read(disk, &mut chunk)? {
            reading.take_on(&mut taken, snapshot.group(), kind, &chunk);
            kind = kind::RECORD;
        }
    }
    let (log, replayed) =
        opening.replay(disk, |entry| reading.take_on(&mut taken, entry.group, entry.kind, entry.bytes))?;
    // First, since the level may be why a record cannot be taken.
    if let Some(why) = control::level_refusal(&reading.map, configuration.releases) {
        return Err(StartError::Level(why));
    }
    taken?;
    let Reading { groups, mut control, map: map_record, positions, values, mut sweep, .. } = reading;
    if let Some(values) = values.filter(|_| looks_for_values) {
        sweep.end(&groups, values)?;
    }
    if !map_record.is_empty() {
        control.restore_map(&map_record).map_err(|why| StartError::Record { group: MAP_GROUP, why })?;
    }

    if replayed.entries > 0 {
        let storage::Replayed { entries, bytes, .. } = replayed;
        let text = format!("{entries} records were read from {bytes} bytes of log");
        lines.push(Line { level: Level::Info, text });
    }
    if let Some(torn) = &replayed.torn {
        let text = format!("the end of the log was cut off, as a crash had left it: {torn:?}");
        lines.push(Line { level: Level::Warning, text });
    }
    if !map_record.is_empty() {
        lines.extend(notes::at_start(own, &configured, control.map()));
    }
    let spans = Spans::new(configuration.traced_share, life_of_waits(&configuration));
    let journal = Journal::new(log, configuration.storage, now.unix_ms);
    let mut cx = Context::new(configuration, now, (groups, journal), Rc::clone(control.map()), spans);
    cx.log = lines;
    Ok(Opened { cx, quarantine, control, sweep, map_record, positions })
}

/// A number that distinguishes this start of the node from all its other starts. A log that is lost, or set back,
/// counts its incarnations again from an earlier number.
pub(super) fn life_of_waits(configuration: &Configuration) -> u64 {
    let Configuration { identity, life, seed, .. } = configuration;
    identity.rotate_left(32).wrapping_add(*seed).wrapping_add(*life)
}

/// Such a number for what is kept of large values.
pub(super) fn life_of_values(configuration: &Configuration) -> u64 {
    // Different at each start, whatever number of earlier ones the log holds, and the seed cannot be derived from it.
    let drawn = [configuration.seed, configuration.identity, configuration.life];
    kv::digest::digest_of(&drawn.map(u64::to_le_bytes).concat())
}

fn log_options(configuration: &Configuration) -> Options {
    // FNV-1a is enough: this guards against mistakes.
    let cluster = configuration.cluster.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let identity = Identity { cluster, node: configuration.node, worker: 0, log: configuration.identity };
    let storage = &configuration.storage;
    let (segment_bytes, planted) = (storage.segment_bytes, storage.planted);
    Options { segment_bytes, planted, has_reserve: true, ..Options::new(identity) }
}

impl Reading<'_, '_> {
    /// Takes the next piece. After a piece that could not be taken, only looks for the newest map.
    fn take_on(&mut self, taken: &mut Result<(), StartError>, id: u16, entry: u16, bytes: &[u8]) {
        if taken.is_ok() {
            *taken = self.take(id, entry, bytes);
        } else if id == MAP_GROUP && !control::is_positions(bytes) {
            self.map = bytes.to_vec();
        }
    }

    fn take(&mut self, id: u16, entry: u16, bytes: &[u8]) -> Result<(), StartError> {
        let taken = match (id, entry) {
            (CONTROL_GROUP, _) => self.control.replay(self.now, bytes).map_err(|why| why.to_string()),
            (MAP_GROUP, _) if control::is_positions(bytes) => {
                self.positions = bytes.to_vec();
                self.control.restore_positions(bytes).map_err(|why| why.to_string())
            }
            (MAP_GROUP, _) => {
                self.map = bytes.to_vec();
                Ok(())
            }
            (_, kind::KEYSPACE) => self.begin(id, bytes),
            _ => match self.groups.get_mut(id).and_then(|group| group.replica.as_mut()) {
                Some(replica) => {
                    let taken = replica.replay(self.now, bytes).map_err(|why| why.to_string());
                    if let Some(spilled) = replica.spilled_values_mut().and_then(SpilledValues::take_spilled)
                    {
                        let no_place = || StartError::Values("there is no place for large values".into());
                        let values = self.values.as_deref_mut().ok_or_else(no_place)?;
                        self.sweep.follow(id, spilled, values)?;
                    }
                    taken
                }
                None => Err("it comes before the group's keyspace".into()),
            },
        };
        taken.map_err(|why| StartError::Record { group: id, why })
    }

    /// Makes the replica of a group at the group's first record.
    fn begin(&mut self, id: u16, bytes: &[u8]) -> Result<(), String> {
        let keyspace = Keyspace::decode(bytes)?;
        let mut replica = Replica::new(&keyspace, id, self.configuration);
        self.quarantine.attach(id, &mut replica);
        let group = self.groups.entry(id, || Group::new(keyspace, 0));
        group.replica.get_or_insert(replica);
        group.is_recorded = true;
        Ok(())
    }
}

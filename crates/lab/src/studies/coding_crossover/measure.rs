//! Measures writes and reads: one client, one value after another, on links of the point's bandwidth.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use coding::Layout;
use coding::cost::{self, At, Links, Work};

use super::network::{Ledger, Shaped};
use super::points::MBIT_FAST;
use super::{ADAPTIVE, COMMAND_TIMEOUT_MS, CPU, NODES, at, part, parts_of, trace};
use crate::harness::{Arena, Arm, Driven, Figures, Point, Scale, Spread};
use crate::load::{self, KeyChoice, Mix, Operation, Options, Sizes, Stop};
use crate::systems::ask;

/// The client's node, leader or follower in the study's terms, and another node, numbered from 0. Node 1 leads.
const LEADER: usize = 0;
const FOLLOWER: usize = 3;
const THIRD: usize = 2;

/// The nodes that are lost first. None of them is used for writes or reads.
const LOST: [usize; 2] = [1, 4];

/// Where replicating a value takes longer than this, the only write of a point meets an empty network.
const EMPTY_ABOVE_S: (f64, f64) = (2.0, 20.0);

/// One point, read from its parameters.
struct Scene {
    bytes: usize,
    mbit: u64,
    at: At,
    /// How many operations are timed.
    operations: u64,
    /// Whether an untimed write comes before them.
    has_first: bool,
}

impl Scene {
    fn of(arm: &Arm, point: &Point, arena: &Arena<'_>) -> Result<Scene> {
        let at = if point.get("at") == at::FOLLOWER { At::Another } else { At::Leader };
        let (bytes, mbit) = (point.number("bytes")?, point.number::<u64>("mbit")?);
        let links = Links::even(NODES, mbit as f64 * 125_000.0, 1e-3);
        // Nodes that choose will hardly be slower than that.
        let parts = match parts_of(&arm.name) {
            ADAPTIVE => 3,
            parts => parts,
        };
        let expected = match point.get("part") {
            part::READ | part::DEGRADED => cost::read_seconds(bytes, parts, at, &links, &Work::default()),
            _ => cost::write_seconds(bytes, parts, at, &links, &Work::default()),
        };
        let expected = expected.with_context(|| format!("{NODES} nodes hold no fragments of 1/{parts}"))?;
        let copies = cost::write_seconds(bytes, 1, at, &links, &Work::default());
        let has_first = copies.is_some_and(|s| s <= arena.scale().pick(EMPTY_ABOVE_S.0, EMPTY_ABOVE_S.1));
        Ok(Scene { bytes, mbit, at, operations: operations(arena.scale(), expected), has_first })
    }

    fn coordinator(&self) -> usize {
        match self.at {
            At::Leader => LEADER,
            At::Another => FOLLOWER,
        }
    }

    /// The node that writes the values to be read later: the reader does not share its cache.
    fn writer(&self) -> usize {
        match self.at {
            At::Leader => THIRD,
            At::Another => LEADER,
        }
    }

    /// The options of one client at a node.
    fn options(
        &self,
        node: usize,
        operation: Operation,
        count: u64,
        arena: &mut Arena<'_>,
    ) -> Result<Options> {
        let addresses = arena.system()?.resp();
        let address = addresses.get(node).with_context(|| format!("there is no node {}", node + 1))?;
        Ok(Options {
            addresses: vec![*address],
            connections: 1,
            mix: Mix::only(operation),
            keys: count,
            key_choice: KeyChoice::Sequential,
            value_bytes: Sizes::fixed(self.bytes),
            warmup: Duration::ZERO,
            stop: Stop::Count(count),
            seed: u64::from(arena.repeat()),
            load: false,
            reply_timeout: Duration::from_millis(COMMAND_TIMEOUT_MS + 10_000),
            ..Options::default()
        })
    }
}

/// How many operations are timed at a point where each takes `expected_s` seconds: few where they are long, but never
/// so few that a single one decides, unless one exceeds the time budget of all.
fn operations(scale: Scale, expected_s: f64) -> u64 {
    let (budget_s, least, most) = scale.pick((0.8, 2.0, 10.0), (6.0, 3.0, 30.0));
    let least = if expected_s > budget_s { 1.0 } else { least };
    (budget_s / expected_s).clamp(least, most) as u64
}

/// Writes new values, one after another.
pub(super) fn write(arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures> {
    write_after(arm, point, arena, Duration::ZERO)
}

/// The same with nodes that are far from each other.
pub(super) fn write_from_afar(arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures> {
    let delay = Duration::from_millis(point.number("delay_ms")?);
    write_after(arm, point, arena, delay)
}

fn write_after(arm: &Arm, point: &Point, arena: &mut Arena<'_>, delay: Duration) -> Result<Figures> {
    let scene = Scene::of(arm, point, arena)?;
    let options = scene.options(scene.coordinator(), Operation::Set, scene.operations, arena)?;
    let keys = arena.new_keys();
    let shaped = Shaped::by(arena, scene.mbit)?;
    shaped.delay(delay)?;
    let before = Ledger::look(arena)?;
    if scene.has_first {
        // It meets an empty network, as no later write does.
        let first =
            Options { keys: 1, stop: Stop::Count(1), key_prefix: format!("{keys}first:"), ..options.clone() };
        load::run(&first, |_| ())?;
    }
    let known = trace::look(arena, scene.coordinator())?;
    let driven = arena.drive(&Options { key_prefix: keys, ..options })?;
    let elapsed = shaped.since();
    let operations = trace::since(trace::look(arena, scene.coordinator())?, &known);
    let idle = shaped.drain()?;
    let after = Ledger::look(arena)?;
    let mut figures = figures_of(&scene, &driven)?;
    trace::add_figures(&mut figures, &operations, scene.operations, scene.bytes);
    trace::write(arena, arm, point, &operations)?;
    let moved = after.since(&before).without(&idle, elapsed);
    figures.extend(encode_ms(parts_of(&arm.name), scene.bytes).map(|ms| ("encode_ms", ms)));
    // The moved bytes include those of the first write.
    let written = scene.operations + u64::from(scene.has_first);
    moved.add_figures(&mut figures, written * scene.bytes as u64);
    add_sending(&mut figures, &scene, moved.sent_most() / written as f64);
    Ok(figures)
}

/// Many clients write at once, each one value after another, while the nodes' processor usage is measured.
pub(super) fn writers(arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures> {
    let scene = Scene::of(arm, point, arena)?;
    let clients: u64 = point.number("clients")?;
    let options = scene.options(scene.coordinator(), Operation::Set, clients, arena)?;
    let options = Options {
        connections: usize::try_from(clients)?,
        stop: Stop::Duration(arena.scale().pick(Duration::from_millis(1600), Duration::from_secs(8))),
        key_prefix: arena.new_keys(),
        ..options
    };
    let shaped = Shaped::by(arena, scene.mbit)?;
    let driven = arena.drive(&options)?;
    drop(shaped);
    let mut figures = figures_of(&scene, &driven)?;
    figures.extend(CPU.into_iter().map(|(name, _)| name).zip(driven.processor_percents(CPU.len() as u32)));
    Ok(figures)
}

/// Reads values some of whose fragments, or copies, are on nodes that are down.
pub(super) fn read_degraded(arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures> {
    let scene = Scene::of(arm, point, arena)?;
    let gone: usize = point.number("gone")?;
    let lost =
        LOST.get(..gone).with_context(|| format!("{gone} nodes cannot be lost: a majority has to stay"))?;
    let options = scene.options(scene.coordinator(), Operation::Get, scene.operations, arena)?;
    let options = Options { key_prefix: arena.new_keys(), ..options };
    let writing = scene.options(scene.writer(), Operation::Set, scene.operations, arena)?;
    arena.prepare(&Options { key_prefix: options.key_prefix.clone(), ..writing })?;
    // The nodes that go have received their part.
    drop(Shaped::by(arena, scene.mbit)?);
    for node in lost {
        arena.system()?.kill(*node);
    }
    let shaped = Shaped::by(arena, scene.mbit)?;
    let driven = arena.drive(&options);
    drop(shaped);
    for node in lost {
        arena.system()?.restart(*node)?;
    }
    arena.system()?.wait_until_ready()?;
    figures_of(&scene, &driven?)
}

/// Reads values that another node has written; the point's hit rate determines how many are read for the first time.
pub(super) fn read(arm: &Arm, point: &Point, arena: &mut Arena<'_>) -> Result<Figures> {
    let scene = Scene::of(arm, point, arena)?;
    let hits: u64 = point.number("hits")?;
    let different = (scene.operations * (100 - hits)).div_ceil(100).max(1);
    let key_prefix = arena.new_keys();
    let options = scene.options(scene.coordinator(), Operation::Get, scene.operations, arena)?;
    let options = Options { keys: different, key_prefix, ..options };
    let writing = scene.options(scene.writer(), Operation::Set, different, arena)?;
    arena.prepare(&Options { key_prefix: options.key_prefix.clone(), ..writing })?;
    if hits == 100 {
        arena.prepare(&Options { stop: Stop::Count(different), ..options.clone() })?;
    }
    let cached = CacheCounts::of(arena, scene.coordinator());
    let shaped = Shaped::by(arena, scene.mbit)?;
    let before = Ledger::look(arena)?;
    let driven = arena.drive(&options)?;
    let elapsed = shaped.since();
    let idle = shaped.drain()?;
    let moved = Ledger::look(arena)?.since(&before).without(&idle, elapsed);
    let mut figures = figures_of(&scene, &driven)?;
    moved.add_figures(&mut figures, scene.operations * scene.bytes as u64);
    figures.remove("log_per_value");
    add_sending(&mut figures, &scene, moved.sent_most() / scene.operations as f64);
    if let (Some(before), Some(after)) = (cached, CacheCounts::of(arena, scene.coordinator())) {
        figures.extend(after.hit_percent(&before).map(|percent| ("hit_percent", percent)));
    }
    Ok(figures)
}

/// How long it takes to compute the parity fragments, which are not part of the value itself: here, with the server's
/// code.
fn encode_ms(parts: usize, bytes: usize) -> Option<f64> {
    const TIMES: usize = 9;
    if parts <= 1 {
        return None;
    }
    let layout = Layout::new(bytes, u8::try_from(parts).ok()?)?;
    let value: Vec<u8> = (0..bytes).map(|at| (at * 31) as u8).collect();
    let mut fragment = Vec::new();
    let times = (0..TIMES).map(|_| {
        let begun = Instant::now();
        for number in parts..NODES {
            fragment.clear();
            for stripe in 0..layout.stripes() {
                layout.encode(&value, number as u8, stripe, &mut fragment);
            }
        }
        begun.elapsed().as_secs_f64() * 1e3
    });
    Spread::of(times.collect()).map(|spread| spread.median)
}

fn figures_of(scene: &Scene, driven: &Driven) -> Result<Figures> {
    let report = &driven.report;
    ensure!(
        report.operations() > 0,
        "none of {} operations of {} bytes at {} Mbit/s succeeded",
        scene.operations,
        scene.bytes,
        scene.mbit
    );
    Ok(driven.figures())
}

/// How long the busiest interface takes to send its bytes, and the ratio of an operation's time to that.
fn add_sending(figures: &mut Figures, scene: &Scene, bytes: f64) {
    if scene.mbit >= MBIT_FAST {
        return; // The machine is the limit.
    }
    let sending_ms = bytes * 8.0 / scene.mbit as f64 / 1e3;
    figures.insert("sending_ms", sending_ms);
    if let Some(p50_ms) = figures.get("p50_ms").copied().filter(|_| bytes >= scene.bytes as f64 / 4.0) {
        figures.insert("over_sending", p50_ms / sending_ms);
    }
}

/// A numeric field of INFO.
pub(super) fn field(info: &str, name: &str) -> Option<f64> {
    let mut pairs = info.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(field, _)| *field == name)?.1.trim().parse().ok()
}

/// A node's counters of its cache of coded values.
struct CacheCounts {
    hits: f64,
    misses: f64,
}

impl CacheCounts {
    /// `None` if the node does not report them.
    fn of(arena: &mut Arena<'_>, node: usize) -> Option<CacheCounts> {
        let address = arena.system().ok()?.resp().get(node).copied()?;
        let info = ask(address, &["INFO", "all"]).ok()?;
        Some(CacheCounts {
            hits: field(&info, "coded_cache_hits")?,
            misses: field(&info, "coded_cache_misses")?,
        })
    }

    fn hit_percent(&self, before: &CacheCounts) -> Option<f64> {
        let (hits, misses) = (self.hits - before.hits, self.misses - before.misses);
        (hits + misses > 0.0).then(|| 100.0 * hits / (hits + misses))
    }
}

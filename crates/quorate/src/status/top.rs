//! `quorate top`: the state of a cluster, again and again, with the rates of its nodes.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use node::NodeId;
use node::report::Counters;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use server::status::standing::{Keyspace, Node, Severity, Standing};
use server::status::{Answers, judge, words};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::exit_code;
use super::gather::gather;
use super::text::{Paint, folded_risks, table};
use crate::connection::{Connect, Role};

const EXAMPLES: &str = "\
Examples:
  quorate top                                        q or Ctrl-C ends it
  quorate top --addr a.example:7000 --password-file password --interval 5
  quorate top --addr a.example:7443 --cacert authority.crt   over TLS
  quorate top --count 10 | tee top.txt               ten times, as plain lines

Exit code: as that of `quorate status`, for the last update.";

/// Watch what a cluster's nodes and keyspaces do.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    connect: Connect,

    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,

    /// End after this many updates [default: never]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// The state at one time.
struct Look {
    standing: Standing,
    /// When each node was asked.
    at: BTreeMap<NodeId, Instant>,
    begun: Instant,
}

impl Look {
    fn take(answers: &Answers, begun: Instant) -> Look {
        let at = answers.reports().map(|(id, reported)| (id, reported.at)).collect();
        Look { standing: judge(answers), at, begun }
    }
}

/// How many updates a line of [`Trails`] shows.
const TRAIL: usize = 24;

/// The rates of the latest updates: of each node, and of each keyspace.
#[derive(Default)]
struct Trails {
    nodes: BTreeMap<NodeId, VecDeque<f64>>,
    keyspaces: BTreeMap<String, VecDeque<f64>>,
}

impl Trails {
    fn note(&mut self, look: &Look, before: Option<&Look>) {
        if before.is_none() {
            return;
        }
        let push = |trail: &mut VecDeque<f64>, rate: Option<f64>| {
            if trail.len() == TRAIL {
                trail.pop_front();
            }
            trail.push_back(rate.unwrap_or(f64::NAN));
        };
        for node in &look.standing.nodes {
            let rates = node_rates(look, before, node);
            push(self.nodes.entry(node.node).or_default(), rates.map(|rates| rates.operations));
        }
        let known = &look.standing.keyspaces;
        self.keyspaces.retain(|prefix, _| known.iter().any(|keyspace| keyspace.prefix == *prefix));
        for keyspace in known {
            let rates = keyspace_rates(look, before, keyspace);
            let trail = self.keyspaces.entry(keyspace.prefix.clone()).or_default();
            push(trail, rates.map(|(records, lookups)| records + lookups));
        }
    }
}

/// Rates as a line of blocks, the newest at the right. A blank: not known.
fn blocks(trail: Option<&VecDeque<f64>>) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let rates = || trail.into_iter().flatten();
    let most = rates().copied().fold(1.0, f64::max);
    let block = |rate: &f64| match rate.is_nan() {
        true => ' ',
        false => BLOCKS[(rate / most * (BLOCKS.len() - 1) as f64).round() as usize],
    };
    rates().map(block).collect()
}

/// Runs until it is asked to stop.
pub(super) fn run(args: &TopArgs) -> Result<ExitCode> {
    let cluster = args.connect.resolve(Role::Looks)?;
    let is_terminal = io::stdout().is_terminal();
    let paint = Paint::of_standard_output();
    let screen = is_terminal.then(Screen::open);
    let ends = ends()?;
    let mut before: Option<Look> = None;
    let mut trails = Trails::default();
    let mut looks = 0;
    loop {
        let begun = Instant::now();
        let look = Look::take(&gather(&cluster), begun);
        looks += 1;
        let text = match is_terminal {
            true => {
                trails.note(&look, before.as_ref());
                screen_text(&look, before.as_ref(), &trails, paint)
            }
            false => lines(&look, before.as_ref()),
        };
        // A closed pipe ends this: its reader needs no more.
        let is_written = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()).is_ok();
        let code = exit_code(&look.standing);
        before = Some(look);
        let is_last = args.count.is_some_and(|count| looks >= count);
        if !is_written || is_last || waits(&ends, begun + Duration::from_secs(args.interval)) {
            drop(screen);
            return Ok(code);
        }
    }
}

/// Waits until a time. Returns true if it should end before that.
fn waits(ends: &Receiver<()>, until: Instant) -> bool {
    match ends.recv_timeout(until.saturating_duration_since(Instant::now())) {
        Ok(()) => true,
        Err(RecvTimeoutError::Timeout) => false,
        // Nothing can request the end any more, so this only waits.
        Err(RecvTimeoutError::Disconnected) => {
            thread::sleep(until.saturating_duration_since(Instant::now()));
            false
        }
    }
}

/// Returns a channel that gets a message when it is time to end: by a signal, or by `q`.
fn ends() -> Result<Receiver<()>> {
    let (sender, receiver) = mpsc::channel();
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let by_signal = sender.clone();
    thread::spawn(move || {
        for _ in signals.forever() {
            // There is no receiver when it is ending already.
            let _ = by_signal.send(());
        }
    });
    if io::stdin().is_terminal() {
        thread::spawn(move || {
            for byte in io::stdin().lock().bytes() {
                match byte {
                    Ok(b'q' | b'Q') => drop(sender.send(())),
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        });
    }
    Ok(receiver)
}

/// The terminal in its alternate screen, read without waiting for the end of a line. Restored when this is dropped.
struct Screen(Option<Termios>);

impl Screen {
    fn open() -> Screen {
        let before = tcgetattr(io::stdin()).ok();
        if let Some(mut now) = before.clone() {
            now.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            now.special_codes[SpecialCodeIndex::VMIN] = 1;
            now.special_codes[SpecialCodeIndex::VTIME] = 0;
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &now);
        }
        let _ = io::stdout().write_all(b"\x1b[?1049h\x1b[?25l");
        Screen(before)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = io::stdout().write_all(b"\x1b[?25h\x1b[?1049l");
        let _ = io::stdout().flush();
        if let Some(before) = &self.0 {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// A node's rates per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct NodeRates {
    operations: f64,
    errors: f64,
    bytes_in: f64,
    bytes_out: f64,
    peer_bytes: f64,
    /// From request to outcome, on average, of commands that ended between the two samples.
    latency_ms: Option<f64>,
}

/// The rates between two samples of one process; none if it was restarted in between.
fn rates(before: &Counters, now: &Counters, seconds: f64) -> Option<NodeRates> {
    let is_same = before.commands <= now.commands && before.client_bytes_in <= now.client_bytes_in;
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
    let (calls, calls_us) =
        (now.calls.saturating_sub(before.calls), now.calls_us.saturating_sub(before.calls_us));
    (is_same && seconds > 0.0).then(|| NodeRates {
        operations: rate(before.commands, now.commands),
        errors: rate(before.errors, now.errors),
        bytes_in: rate(before.client_bytes_in, now.client_bytes_in),
        bytes_out: rate(before.client_bytes_out, now.client_bytes_out),
        peer_bytes: rate(
            before.peer_bytes_in + before.peer_bytes_out,
            now.peer_bytes_in + now.peer_bytes_out,
        ),
        latency_ms: (calls > 0).then(|| calls_us as f64 / calls as f64 / 1000.0),
    })
}

fn node_rates(look: &Look, before: Option<&Look>, node: &Node) -> Option<NodeRates> {
    let before = before?;
    let seconds = look.at.get(&node.node)?.duration_since(*before.at.get(&node.node)?).as_secs_f64();
    let known = before.standing.nodes.iter().find(|known| known.node == node.node)?;
    rates(&known.facts.as_ref()?.counters, &node.facts.as_ref()?.counters, seconds)
}

/// Writes and lookups per second; none if a replica was made again in between.
fn keyspace_rates(look: &Look, before: Option<&Look>, keyspace: &Keyspace) -> Option<(f64, f64)> {
    let before = before?;
    let seconds = look.begun.duration_since(before.begun).as_secs_f64();
    let known = before.standing.keyspaces.iter().find(|known| known.prefix == keyspace.prefix)?;
    let rate = |before: u64, now: u64| now.checked_sub(before).map(|count| count as f64 / seconds);
    Some((rate(known.records, keyspace.records)?, rate(known.lookups, keyspace.lookups)?))
}

fn rate(rate: f64) -> String {
    words::number(rate.round() as u64)
}

fn byte_rate(rate: f64) -> String {
    words::bytes(rate.round() as u64) + "/s"
}

fn milliseconds(latency_ms: Option<f64>) -> String {
    latency_ms.map_or("-".to_owned(), |ms| format!("{ms:.2} ms"))
}

fn screen_text(look: &Look, before: Option<&Look>, trails: &Trails, paint: Paint) -> String {
    let standing = &look.standing;
    let mut out = String::from("\x1b[H\x1b[2J");
    let _ =
        writeln!(out, "{}: {}     (q ends)\n", paint.bold(&standing.cluster), paint.state(standing.state));
    let heads = [
        "node",
        "state",
        "operations/s",
        "errors/s",
        "latency",
        "in",
        "out",
        "peers",
        "clients",
        "memory",
        "latest operations/s",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(standing.nodes.iter().map(|node| {
        let mut row = vec![node.node.to_string(), state(node).to_owned()];
        let Some(facts) = &node.facts else {
            row.push(node.error.clone().unwrap_or_default());
            return row;
        };
        match node_rates(look, before, node) {
            Some(rates) => row.extend([
                rate(rates.operations),
                rate(rates.errors),
                milliseconds(rates.latency_ms),
                byte_rate(rates.bytes_in),
                byte_rate(rates.bytes_out),
                byte_rate(rates.peer_bytes),
            ]),
            None => row.extend(["-"; 6].map(str::to_owned)),
        }
        row.extend([words::number(facts.counters.clients), words::bytes(facts.memory.resident)]);
        row.push(blocks(trails.nodes.get(&node.node)));
        row
    }));
    out.push_str(&table(&rows, |_, _, text| text.to_owned()));
    out.push('\n');
    let heads = [
        "keyspace",
        "leaders",
        "records/s",
        "lookups/s",
        "keys",
        "memory",
        "survives",
        "latest records and lookups",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(standing.keyspaces.iter().map(|keyspace| {
        let rates = keyspace_rates(look, before, keyspace);
        let text = |of: fn((f64, f64)) -> f64| rates.map(of).map_or("-".to_owned(), rate);
        let survives = keyspace.shards.iter().map(|shard| shard.survives).min().unwrap_or(-1);
        vec![
            keyspace.name().to_owned(),
            leaders(keyspace),
            text(|(records, _)| records),
            text(|(_, lookups)| lookups),
            words::number(keyspace.keys),
            words::bytes(keyspace.memory),
            if survives < 0 {
                "does not serve".to_owned()
            } else {
                words::count(survives as usize, "failure")
            },
            blocks(trails.keyspaces.get(&keyspace.prefix)),
        ]
    }));
    out.push_str(&table(&rows, |_, _, text| text.to_owned()));
    let mut risks = folded_risks(&standing.risks, false);
    risks.retain(|folded| folded.risk.severity > Severity::Note);
    if !risks.is_empty() {
        out.push('\n');
    }
    for folded in risks {
        let others = folded.others();
        let more = if others.is_empty() { String::new() } else { format!(" ({others})") };
        let _ = writeln!(out, "{} {}{more}", paint.yellow("!"), folded.risk.what);
    }
    out
}

fn state(node: &Node) -> &'static str {
    match &node.facts {
        Some(facts) if facts.ready => "up",
        Some(_) => "not ready",
        None if node.alive => "not asked",
        None => "down",
    }
}

fn leaders(keyspace: &Keyspace) -> String {
    let mut leaders: Vec<NodeId> = keyspace.shards.iter().map(|shard| shard.leader).collect();
    leaders.sort_unstable();
    leaders.dedup();
    words::list(&leaders)
}

/// The same as lines for programs that read them one by one: alternating names and values.
fn lines(look: &Look, before: Option<&Look>) -> String {
    let standing = &look.standing;
    let mut out = String::new();
    let state_word = serde_json::to_value(standing.state).unwrap_or_default();
    let unix_s =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let state_word = state_word.as_str().unwrap_or_default();
    let _ = writeln!(out, "cluster {} state {state_word} time {unix_s}", standing.cluster);
    for node in &standing.nodes {
        let _ = write!(out, "node {} state {}", node.node, state(node).replace(' ', "-"));
        if let Some(rates) = node_rates(look, before, node) {
            let _ = write!(
                out,
                " operations/s {:.0} errors/s {:.0} in_bytes/s {:.0} out_bytes/s {:.0} peer_bytes/s {:.0}",
                rates.operations, rates.errors, rates.bytes_in, rates.bytes_out, rates.peer_bytes
            );
            if let Some(latency_ms) = rates.latency_ms {
                let _ = write!(out, " latency_ms {latency_ms:.3}");
            }
        }
        if let Some(facts) = &node.facts {
            let _ = write!(out, " clients {} memory {}", facts.counters.clients, facts.memory.resident);
        }
        out.push('\n');
    }
    for keyspace in &standing.keyspaces {
        let _ = write!(out, "keyspace {} leaders {}", keyspace.name(), leaders(keyspace).replace(", ", ","));
        if let Some((records, lookups)) = keyspace_rates(look, before, keyspace) {
            let _ = write!(out, " records/s {records:.0} lookups/s {lookups:.0}");
        }
        let _ = writeln!(out, " keys {} memory {}", keyspace.keys, keyspace.memory);
    }
    for risk in standing.risks.iter().filter(|risk| risk.severity > Severity::Note) {
        let _ = writeln!(out, "risk {} {}", risk.kind, risk.what);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trail_is_a_line_of_blocks() {
        let trail: VecDeque<f64> = [0.0, 50.0, f64::NAN, 100.0].into();
        assert_eq!(blocks(Some(&trail)), "▁▅ █");
        assert_eq!(blocks(Some(&[0.0, 0.0].into())), "▁▁", "nothing happens");
        assert_eq!(blocks(None), "");
    }

    #[test]
    fn rates_are_per_second_and_of_one_process() {
        let before = Counters { commands: 100, calls: 90, calls_us: 1000, ..Counters::default() };
        let now = Counters {
            commands: 300,
            calls: 190,
            calls_us: 51_000,
            client_bytes_in: 50,
            ..Counters::default()
        };
        let found = rates(&before, &now, 2.0).unwrap();
        assert_eq!((found.operations, found.bytes_in, found.latency_ms), (100.0, 25.0, Some(0.5)));
        assert_eq!(rates(&now, &before, 2.0), None, "it was started again");
    }
}

//! The environment in which a study measures a point: the running system, the load generator, faults, and the cost of
//! it all.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail, ensure};
use check::History;

use super::verify::{self, Checked};
use super::{Figures, Scale};
use crate::load::{self, Operation, Options, Outcome, Report};
use crate::systems::{Meter, NodeUsage, Running};

/// How long a load runs between two checks of whether its throughput still grows.
const WARM_UP_SLICE: Duration = Duration::from_secs(1);

/// Throughput still grows while the best of the latest slices exceeds the best before them by this factor.
const GROWS_BY: f64 = 1.05;
const LAST_SLICES: usize = 3;

/// Receives the progress of a load.
pub(crate) type Show<'a> = &'a (dyn Fn(&load::Progress) + Sync);

/// The environment in which a point is measured.
pub struct Arena<'a> {
    running: Option<Running<'a>>,
    folder: &'a Path,
    repeat: u32,
    scale: Scale,
    verify: bool,
    show: Show<'a>,
    usage: Vec<NodeUsage>,
    checked: Option<Checked>,
    /// The error that kept a history from being stored.
    unkept: Option<Error>,
    /// How many histories were written since the system was started.
    histories: u32,
    /// The recorded history of earlier operations on the keys of the next load.
    before: Option<History>,
    /// How many loads were run since the system was started: each has its own keys.
    loads: u32,
    /// The loads for which the system has been warmed up since it was started.
    warmed_up: BTreeSet<String>,
    /// Why the system was measured before it was warm.
    cold: Option<String>,
}

/// A fault of a node, numbered from 0, while a load runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Kills the node, as by `kill -9`.
    Kill(usize),
    /// Pauses the node.
    Pause(usize),
    /// Resumes the node.
    Resume(usize),
    /// Restarts the node after it was killed.
    Restart(usize),
}

/// The result of a load, and its cost to the nodes while it was measured.
pub struct Driven {
    /// The load generator's report.
    pub report: Report,
    /// The resources that each node used.
    pub usage: Vec<NodeUsage>,
    meter: Meter,
}

impl<'a> Arena<'a> {
    pub(crate) fn new(
        running: Option<Running<'a>>,
        folder: &'a Path,
        repeat: u32,
        scale: Scale,
        verify: bool,
        show: Show<'a>,
    ) -> Arena<'a> {
        Arena {
            running,
            folder,
            repeat,
            scale,
            verify,
            show,
            usage: Vec::new(),
            checked: None,
            unkept: None,
            histories: 0,
            before: None,
            loads: 0,
            warmed_up: BTreeSet::new(),
            cold: None,
        }
    }

    /// The system under test.
    ///
    /// # Errors
    /// The arm has none: it measures in this process.
    pub fn system(&mut self) -> Result<&mut Running<'a>> {
        self.running.as_mut().context("this arm starts no system")
    }

    /// A folder for files of an arm without a system.
    pub fn folder(&self) -> &Path {
        self.folder
    }

    /// The run's folder, which outlives it, for figures of single operations.
    pub fn run_folder(&self) -> Option<&Path> {
        self.folder.parent()
    }

    /// The number of this repeat, from 1: usable as a seed.
    pub fn repeat(&self) -> u32 {
        self.repeat
    }

    /// How much of the study is run. A quick run also measures each point for a shorter time.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Whether histories are recorded and checked.
    pub fn verifies(&self) -> bool {
        self.verify
    }

    /// Checks a history that a study has recorded by itself at this point, together with the earlier ones.
    pub fn check(&mut self, history: History) {
        self.histories += 1;
        let file = self.folder.join(format!("history-{}.jsonl.gz", self.histories));
        self.unkept = self.unkept.take().or(verify::keep(&history, &file).err());
        self.checked = Some(verify::check(&history, file, self.checked.take()));
    }

    /// Returns a prefix for keys that have not been used since the system was started. A history can only be checked if
    /// it contains everything ever written to its keys.
    pub fn new_keys(&mut self) -> String {
        self.loads += 1;
        format!("{}-{}:", self.repeat, self.loads)
    }

    /// Runs a load that is not measured and that must succeed. It prepares the data for the next load, and belongs to
    /// that load's history.
    ///
    /// # Errors
    /// The load cannot be run, or not all of it was done.
    pub fn prepare(&mut self, options: &Options) -> Result<()> {
        let mut report = load::run(&Options { record: self.verify, ..options.clone() }, |_| ())?;
        ensure!(report.failures() + report.unknown() == 0, "what is to be measured could not be prepared");
        if let Some(history) = report.take_history() {
            match &mut self.before {
                Some(before) => before.append(&history),
                None => self.before = Some(history),
            }
        }
        Ok(())
    }

    /// Warms up a system that is slow at first, such as one that a Java machine compiles while it runs. The load runs
    /// in slices of a second until its throughput stops growing, or for `at_most`, which is noted. Runs once for each
    /// `what` between two starts of the system.
    ///
    /// # Errors
    /// The load cannot be run, or no operation of it succeeded.
    pub fn warm_up(&mut self, what: &str, options: &Options, at_most: Duration) -> Result<()> {
        if !self.warmed_up.insert(what.to_owned()) {
            return Ok(());
        }
        let began = Instant::now();
        let (warmup, stop) = (Duration::ZERO, load::Stop::Duration(WARM_UP_SLICE));
        let mut slice =
            Options { key_prefix: self.new_keys(), record: false, warmup, stop, ..options.clone() };
        let mut rates = Vec::new();
        while !has_stopped_growing(&rates) && began.elapsed() < at_most {
            let report = load::run(&slice, |_| ())?;
            ensure!(report.operations() > 0, "no operation of the warm-up succeeded");
            rates.push(report.operations_per_second());
            // Its keys exist now.
            slice.load = false;
        }
        if !has_stopped_growing(&rates) {
            self.cold = Some(format!(
                "its throughput was still growing when the warm-up ended after {} s",
                at_most.as_secs()
            ));
        }
        Ok(())
    }

    /// Runs a load on the system and measures its cost. With `--verify` every operation is recorded, and the history is
    /// checked afterwards: keys must be new, or written by this load before they are read.
    ///
    /// # Errors
    /// The load cannot be run, or a read returned a value that was never written.
    pub fn drive(&mut self, options: &Options) -> Result<Driven> {
        self.drive_with_faults(options, &[])
    }

    /// Runs a load like [`Arena::drive`], but records nothing: where stale reads are allowed, the check of a history
    /// would report them as violations.
    ///
    /// # Errors
    /// As [`Arena::drive`].
    pub fn drive_unrecorded(&mut self, options: &Options) -> Result<Driven> {
        self.run_load(&Options { record: false, ..options.clone() }, &[])
    }

    /// Runs a load and injects the faults at their times. Times are measured from the end of the warm-up, and must be
    /// in order; keys that the load writes beforehand delay them, so write these keys with a separate load.
    ///
    /// # Errors
    /// The load cannot be run, a read returned a value that was never written, a node cannot be restarted or has ended
    /// by itself, or the load ended before all faults were injected.
    pub fn drive_with_faults(&mut self, options: &Options, faults: &[(Duration, Fault)]) -> Result<Driven> {
        self.run_load(&Options { record: options.record || self.verify, ..options.clone() }, faults)
    }

    fn run_load(&mut self, options: &Options, faults: &[(Duration, Fault)]) -> Result<Driven> {
        let show = self.show;
        let running = self.system()?;
        let mut meter = Meter::new(running.nodes().len());
        let mut faults = faults.iter().copied().peekable();
        let (result, injected) = std::thread::scope(|scope| {
            // The load gets its own thread, not the faults: a process ends with the thread that started it.
            let (has_ended, ended) = channel::<()>();
            let measured_from = Instant::now() + options.warmup;
            let loader = scope.spawn(move || {
                let result = load::run(options, show);
                drop(has_ended);
                result
            });
            let mut injected = Ok(());
            while injected.is_ok() {
                let now = Instant::now();
                look(&mut meter, running);
                let fault_at = faults.peek().map(|(after, _)| measured_from + *after);
                let until = fault_at.unwrap_or(Meter::next_look(now)).min(Meter::next_look(now));
                match ended.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => break,
                }
                if let Some((_, fault)) =
                    faults.next_if(|(after, _)| measured_from + *after <= Instant::now())
                {
                    injected = inject(running, fault);
                }
            }
            meter.ask_at_next_look();
            look(&mut meter, running);
            (loader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), injected)
        });
        let late: Vec<(Duration, Fault)> = faults.collect();
        let is_whole = injected.is_ok() && late.is_empty();
        let made_whole = if is_whole { Ok(()) } else { make_whole(running, &late) };
        injected?;
        let mut report = result?;
        made_whole?;
        if let Some((after, fault)) = late.first() {
            bail!("the load ended before {fault:?} at {} ms", after.as_millis());
        }
        running.check_alive()?;
        let wrong = report.count(Outcome::WrongValue) + report.count(Outcome::Protocol);
        ensure!(wrong == 0, "{wrong} answers could not have come from a correct server");
        let usage = meter.between(report.measured_from(), report.measured_from() + report.elapsed());
        self.usage.clone_from(&usage);
        let before = self.before.take();
        if self.verify
            && let Some(mut history) = report.take_history()
        {
            if let Some(mut whole) = before {
                whole.append(&history);
                history = whole;
            }
            self.check(history);
        }
        Ok(Driven { report, usage, meter })
    }

    /// Checks that every node still runs, except those that the study has killed.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        self.running.as_mut().map_or(Ok(()), Running::check_alive)
    }

    /// Returns each node's usage during the last load, and the result of checking its history; for the sweep.
    ///
    /// # Errors
    /// A history could not be written.
    pub(crate) fn take_notes(&mut self) -> Result<(Vec<NodeUsage>, Option<Checked>)> {
        self.unkept.take().map_or(Ok(()), Err)?;
        Ok((std::mem::take(&mut self.usage), self.checked.take()))
    }

    /// Returns why the last point was measured before its system was warm.
    pub(crate) fn take_cold(&mut self) -> Option<String> {
        self.cold.take()
    }

    pub(crate) fn stop(self) {
        if let Some(running) = self.running {
            running.stop();
        }
    }
}

fn has_stopped_growing(rates: &[f64]) -> bool {
    let best = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
    let Some(before) = rates.len().checked_sub(LAST_SLICES).filter(|before| *before > 0) else {
        return false;
    };
    best(&rates[before..]) <= best(&rates[..before]) * GROWS_BY
}

fn look(meter: &mut Meter, running: &Running<'_>) {
    let nodes: Vec<_> = running.nodes().collect();
    let peer_bytes = |node: usize| {
        let answers = running.process(node).is_some() && !running.is_paused(node);
        answers.then(|| running.system().peer_bytes_sent(nodes[node])).flatten()
    };
    meter.look(|node| running.process(node), peer_bytes);
}

fn inject(running: &mut Running<'_>, fault: Fault) -> Result<()> {
    match fault {
        Fault::Kill(node) => running.kill(node),
        Fault::Pause(node) => running.pause(node),
        Fault::Resume(node) => running.resume(node),
        Fault::Restart(node) => running.restart(node)?,
    }
    Ok(())
}

/// The load ended before some faults were due. Carries out those that undo earlier ones, so that the next point finds
/// all nodes in the state it expects.
fn make_whole(running: &mut Running<'_>, late: &[(Duration, Fault)]) -> Result<()> {
    running.resume_all();
    let mut has_restarted = false;
    for (_, fault) in late {
        if let Fault::Restart(node) = *fault {
            has_restarted |= running.process(node).is_none();
            running.restart(node)?;
        }
    }
    if has_restarted { running.wait_until_ready() } else { Ok(()) }
}

impl Driven {
    /// The processor time of all nodes over the measured time, in `stretches` equal stretches: percent of one
    /// processor.
    pub fn processor_percents(&self, stretches: u32) -> Vec<f64> {
        let length = self.report.elapsed() / stretches.max(1);
        let begin = |stretch: u32| self.report.measured_from() + length * stretch;
        let used = |stretch| self.meter.between(begin(stretch), begin(stretch + 1));
        let percent = |nodes: Vec<NodeUsage>| {
            100.0 * nodes.iter().map(|node| node.cpu_s).sum::<f64>() / length.as_secs_f64().max(1e-9)
        };
        (0..stretches).map(|stretch| percent(used(stretch))).collect()
    }

    /// The measures of [`super::load_measures`]. Latencies are those of successes.
    pub fn figures(&self) -> Figures {
        let report = &self.report;
        let ended = report.operations() + report.failures() + report.unknown();
        let mut figures = Figures::from([
            ("total", ended as f64),
            ("success", report.operations() as f64),
            ("failure", report.failures() as f64),
            ("unknown", report.unknown() as f64),
            ("per_s", report.operations_per_second()),
        ]);
        let ms = |us: u64| us as f64 / 1000.0;
        for row in report.rows().into_iter().filter(|row| row.outcome == Outcome::Ok && row.count > 0) {
            match row.operation {
                None => figures.extend([
                    ("mean_ms", row.mean_us / 1000.0),
                    ("p50_ms", ms(row.p50_us)),
                    ("p95_ms", ms(row.p95_us)),
                    ("p99_ms", ms(row.p99_us)),
                ]),
                Some(Operation::Get) => {
                    figures.extend([("get_p50_ms", ms(row.p50_us)), ("get_p95_ms", ms(row.p95_us))]);
                }
                Some(Operation::Set) => {
                    figures.extend([("put_p50_ms", ms(row.p50_us)), ("put_p95_ms", ms(row.p95_us))]);
                }
                Some(Operation::Incr | Operation::Ping | Operation::Custom) => {}
            }
        }
        if ended > 0 {
            let per_operation = |sum: f64| sum / ended as f64;
            let cpu_s = self.usage.iter().map(|node| node.cpu_s).sum::<f64>();
            figures.insert("cpu_us_per_op", per_operation(cpu_s * 1e6));
            let disk_bytes = self.usage.iter().map(|node| node.disk_bytes).sum::<f64>();
            figures.insert("disk_bytes_per_op", per_operation(disk_bytes));
            // The sum is valid only when all nodes report.
            if let Some(sent) = self.usage.iter().map(|node| node.peer_bytes).sum::<Option<f64>>() {
                figures.insert("peer_bytes_per_op", per_operation(sent));
            }
            if let Some(cpu_s) = report.loader_cpu_s_per_million() {
                figures.insert("loader_cpu_us_per_op", cpu_s);
            }
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::has_stopped_growing;

    #[test]
    fn a_system_is_warm_when_no_late_slice_is_faster_than_all_early_ones() {
        assert!(!has_stopped_growing(&[]) && !has_stopped_growing(&[100.0; 3]), "too few to tell");
        assert!(has_stopped_growing(&[100.0, 101.0, 99.0, 104.0]));
        assert!(!has_stopped_growing(&[100.0, 101.0, 99.0, 120.0]));
        // After one slow slice it still continues.
        assert!(!has_stopped_growing(&[100.0, 150.0, 200.0, 90.0, 220.0]));
        assert!(has_stopped_growing(&[100.0, 200.0, 205.0, 201.0, 208.0]));
    }
}

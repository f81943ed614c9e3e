//! The load generator behind `quorate bench`: it drives any server that speaks the Redis protocol, or HTTP as Quorate
//! does; and, for comparisons, etcd and ZooKeeper in their own protocols.
//!
//! In the closed loop every connection sends a batch of `pipeline` requests with one write, waits for all replies, and
//! sends the next. In the open loop requests are due at predetermined times, and a slow server does not slow down the
//! requests. One thread drives many connections; the generator's own cost is in the report, because a generator that is
//! the bottleneck measures itself.
//!
//! What a figure means:
//!
//! - A rate counts successes only. Failures are counted by outcome, with separate latencies.
//! - A latency ends just after the read that brought the reply. In the closed loop it starts just before the write of
//!   the batch, in the open loop when the request was due, whenever it was sent.
//! - Values are checked: a GET must return a value that this generator could have written to that key.
//! - Requests in flight on a lost connection are *unknown*, neither success nor failure.
//!
//! The path of a request: `schedule` admits a batch, `workload` chooses its content, `language` (`resp`, `http`,
//! `etcd`, `zookeeper`) encodes it, `worker` moves the bytes of a `connection`, over `tls` if wanted, `language` finds the replies in them,
//! `workload` judges each, `tally` counts it, `recorder` records it if requested, and `report` presents the sums.

mod command_line;
mod connection;
mod custom;
mod etcd;
mod flags;
mod hgrm;
mod http;
mod keys;
mod language;
mod live;
mod options;
mod outcome;
pub(crate) mod random;
mod recorder;
mod reply;
mod report;
mod resp;
mod schedule;
pub(crate) mod steal;
mod tally;
mod template;
mod timer;
mod tls;
mod validation;
mod value;
mod versus;
mod worker;
mod workload;
mod zookeeper;

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

pub use command_line::{BenchArgs, bench};
pub use custom::Custom;
pub use hgrm::write_hgrm;
pub use keys::KeyChoice;
pub use live::Live;
pub use options::{Arrivals, Login, Mix, Options, Pace, Stop, Transport, Wait};
pub use outcome::{ErrorWord, Operation, Outcome};
#[cfg(test)]
pub(crate) use report::tests::sample as sample_report;
pub use report::{Delays, Report, Row};
pub use tls::{Tls, Trust};
pub use value::Sizes;
pub use versus::{Comparison, compare};

use schedule::{DueTimes, Schedule};
use steal::ProcessorTime;
use tally::Tally;
use worker::{Finish, Worker};

/// Keys are loaded with a pipeline of at least this, as long as a batch stays below `LOAD_BATCH_BYTES`.
const LOAD_PIPELINE: usize = 32;
const LOAD_BATCH_BYTES: usize = 256 << 10;

/// A final part of a second that is shorter than this gives no rate.
const PROGRESS_MIN: Duration = Duration::from_millis(500);

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options make no sense; nothing was sent.
    #[error("{0}")]
    Usage(String),
    /// A server could not be reached, or refused the greeting, when the run began.
    #[error("cannot use {address}: {source}")]
    Connect {
        /// The server's address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// No operation ended for too long, so the run was stopped.
    #[error(
        "{} for {silence:.0?}{last_failure}",
        if *is_loading { "no key could be written" } else { "no operation ended" }
    )]
    Stalled {
        /// How long no operation had ended.
        silence: Duration,
        /// Whether the keys were still being loaded.
        is_loading: bool,
        /// The last failure, for people.
        last_failure: String,
    },
    /// The recorded history has become too long; a part of it could not be checked.
    #[error("the history is too long to be recorded: run for a shorter time")]
    HistoryFull,
    /// A thread could not be pinned to a processor core.
    #[error("cannot use the processor core {core}: {source}")]
    Core {
        /// The core's number.
        core: usize,
        /// The cause.
        source: std::io::Error,
    },
    /// The system refused to wait for events.
    #[error("cannot wait for events: {0}")]
    Poll(#[source] std::io::Error),
}

/// The stage of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Writes every key once.
    Load,
    /// Warms up or measures.
    Measure,
}

/// The progress of a run, reported every second.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The current stage.
    pub stage: Stage,
    /// The time since the stage began, warm-up included.
    pub elapsed: Duration,
    /// Successes per second since the last report.
    pub operations_per_second: f64,
    /// The 99th percentile of their latencies, in microseconds.
    pub p99_us: u64,
    /// All successes of this stage.
    pub operations: u64,
    /// All failures and unknown outcomes of this stage.
    pub failures: u64,
}

/// Times in histories are relative to this, so that the histories of several loads can be combined.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Looks whether the servers of these options take connections.
///
/// # Errors
/// One does not, or refuses the greeting; or the options make no sense.
pub(crate) fn reach(options: &Options) -> Result<(), Error> {
    options.validate()?;
    Worker::new(options, 0, options.pipeline, *EPOCH)?.connect()
}

/// Runs a load with these options and reports to `progress` every second.
pub fn run(options: &Options, mut progress: impl FnMut(&Progress)) -> Result<Report, Error> {
    options.validate()?;
    let epoch = *EPOCH;
    let batch = match options.transport {
        Transport::Etcd => etcd::BATCH_BYTES_MAX / etcd::request_bytes_max(options),
        _ => LOAD_BATCH_BYTES / options.value_bytes.max.max(1),
    };
    let load_pipeline = LOAD_PIPELINE.min(batch).max(options.pipeline);
    let mut workers = (0..options.threads)
        .map(|thread| Worker::new(options, thread, load_pipeline, epoch))
        .collect::<Result<Vec<_>, _>>()?;
    for worker in &mut workers {
        worker.connect()?;
    }
    let share = |total: u64, thread: usize| {
        let (thread, threads) = (thread as u128, options.threads as u128);
        let until = |thread: u128| (u128::from(total) * thread / threads) as u64;
        (until(thread), until(thread + 1) - until(thread))
    };

    if options.load {
        let start = Instant::now();
        let load = |worker: &mut Worker<'_>, thread, tallies: &Sender<Tally>| {
            let (first, count) = share(options.keys, thread);
            let schedule = Schedule::new(start, Duration::ZERO, Stop::Count(count), load_pipeline, 0);
            worker.load(first, schedule, tallies)
        };
        drive(&mut workers, Stage::Load, load, &mut progress)?;
    }

    let (start, before) = (Instant::now(), ProcessorTime::look());
    let measure = |worker: &mut Worker<'_>, thread, tallies: &Sender<Tally>| {
        let stop = match options.stop {
            Stop::Count(count) => Stop::Count(share(count, thread).1),
            other => other,
        };
        let schedule =
            Schedule::new(start, options.warmup, stop, options.pipeline, worker.connection_count());
        let schedule = match options.pace {
            Pace::Closed => schedule,
            Pace::Open { per_second, arrivals } => schedule.with_due_times(DueTimes::new(
                start,
                per_second,
                arrivals,
                options.seed,
                thread,
                options.threads,
            )),
        };
        worker.run(schedule, tallies)
    };
    let (tally, finishes) = drive(&mut workers, Stage::Measure, measure, &mut progress)?;

    let elapsed = match options.stop {
        Stop::Duration(duration) => duration,
        Stop::Count(_) | Stop::CountEach(_) => {
            let last_end = finishes.iter().map(|finish| finish.last_end).max().unwrap_or(start);
            last_end.saturating_duration_since(start + options.warmup)
        }
    };
    let steal_percent = ProcessorTime::look().and_then(|now| now.steal_percent_since(before?));
    let loader_cpu: Option<Vec<Duration>> = finishes.iter().map(|finish| finish.cpu).collect();
    let recorders: Vec<_> = workers.iter_mut().filter_map(Worker::take_recorder).collect();
    let history = options.record.then(|| recorder::history(options, &recorders));
    Ok(Report::new(
        options.clone(),
        start + options.warmup,
        elapsed,
        (loader_cpu, steal_percent),
        tally,
        history,
    ))
}

/// Runs one stage on every worker, each on its own thread, and adds up their counts.
fn drive<Job>(
    workers: &mut [Worker<'_>],
    stage: Stage,
    job: Job,
    progress: &mut impl FnMut(&Progress),
) -> Result<(Tally, Vec<Finish>), Error>
where
    Job: Fn(&mut Worker<'_>, usize, &Sender<Tally>) -> Result<Finish, Error> + Sync,
{
    let (sender, receiver) = channel();
    let threads = workers.len();
    let job = &job;
    std::thread::scope(|scope| {
        let mut handles = Vec::with_capacity(threads);
        for (thread, worker) in workers.iter_mut().enumerate() {
            let sender = sender.clone();
            handles.push(scope.spawn(move || {
                worker.pin(thread)?;
                job(worker, thread, &sender)
            }));
        }
        // The workers hold the only senders now, so that receiving ends when the last worker does.
        drop(sender);
        let tally = collect(&receiver, threads, stage, progress);
        let finishes = handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok((tally, finishes))
    })
}

/// Adds up the workers' counts and calls `progress` whenever all have reported a second.
fn collect(
    receiver: &Receiver<Tally>,
    threads: usize,
    stage: Stage,
    progress: &mut impl FnMut(&Progress),
) -> Tally {
    let start = Instant::now();
    let mut shown_at = start;
    let mut total = Tally::new();
    let mut recent = Tally::new();
    let mut received = 0;
    for tally in receiver {
        recent.merge(&tally);
        received += 1;
        let since_shown = shown_at.elapsed();
        if received < threads || since_shown < PROGRESS_MIN {
            continue;
        }
        received = 0;
        shown_at = Instant::now();
        total.merge(&recent);
        progress(&Progress {
            stage,
            elapsed: start.elapsed(),
            operations_per_second: recent.success_count() as f64 / since_shown.as_secs_f64(),
            p99_us: recent.all_successes().value_at_quantile(0.99),
            operations: total.success_count(),
            failures: total.failed_count() + total.unknown_count(),
        });
        recent = Tally::new();
    }
    total.merge(&recent);
    total
}

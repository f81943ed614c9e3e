//! The load generator behind `quorate bench`: it drives any server that speaks the Redis protocol, or HTTP as Quorate
//! does; and etcd and ZooKeeper in their own languages, for comparisons.
//!
//! In the closed loop every connection sends a batch of `pipeline` requests with one write, waits for all
//! replies, and sends the next. In the open loop requests are due at times of their own, and a slow server does not
//! slow down what it is asked. One thread drives many connections; what it costs itself is in the
//! report, because a generator that is the bottleneck measures itself.
//!
//! What a figure means:
//!
//! - A rate counts successes only. Failures are told apart by outcome, with latencies of their own.
//! - A latency runs to just after the read that brought the reply: in the closed loop from just before the write of
//!   the batch, in the open loop from when the request was due, whenever it was sent.
//! - Values are checked: a GET must return what this generator could have written to that key.
//! - What was in flight on a lost connection is *unknown*, neither success nor failure.
//!
//! The way of a request: `schedule` says that a batch may be sent, `workload` chooses what, `language` (`resp`, `http`,
//! `etcd`, `zookeeper`) writes it, `worker` moves the bytes of a `connection`, `language` finds the replies in them,
//! `workload` judges each, `tally` counts it, `recorder` writes it down if that is asked for, and `report` presents the
//! sums.

mod command_line;
mod connection;
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
pub use hgrm::write_hgrm;
pub use live::Live;
pub use options::{Arrivals, KeyChoice, Mix, Options, Pace, Sizes, Stop, Transport, Wait};
pub use outcome::{ErrorWord, Operation, Outcome};
#[cfg(test)]
pub(crate) use report::tests::sample as sample_report;
pub use report::{Delays, Report, Row};
pub use versus::{Comparison, compare};

use schedule::{DueTimes, Schedule};
use steal::ProcessorTime;
use tally::Tally;
use worker::{Finish, Worker};

/// Keys are loaded with at least this pipeline, as long as a batch stays below the bytes beneath.
const LOAD_PIPELINE: usize = 32;
const LOAD_BATCH_BYTES: usize = 256 << 10;

/// A last part of a second is too short for a rate.
const PROGRESS_MIN: Duration = Duration::from_millis(500);

/// Why a run could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options make no sense; nothing was sent.
    #[error("{0}")]
    Usage(String),
    /// A server was not there, or refused the greeting, when the run began.
    #[error("cannot use {address}: {source}")]
    Connect {
        /// Which server.
        address: SocketAddr,
        /// What went wrong.
        source: std::io::Error,
    },
    /// Operations stopped coming to an end, and the run with them.
    #[error(
        "{} for {silence:.0?}{last_failure}",
        if *is_loading { "no key could be written" } else { "no operation ended" }
    )]
    Stalled {
        /// For how long nothing ended.
        silence: Duration,
        /// Whether the keys were still being written.
        is_loading: bool,
        /// The last failure, for people.
        last_failure: String,
    },
    /// The history that was to be recorded has become too long; a part of it could not be checked.
    #[error("the history is too long to be recorded: run for a shorter time")]
    HistoryFull,
    /// The system refused to wait for events.
    #[error("cannot wait for events: {0}")]
    Poll(#[source] std::io::Error),
}

/// What a run is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It writes every key once.
    Load,
    /// It warms up or measures.
    Measure,
}

/// How a run goes on; told every second.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What the run is at.
    pub stage: Stage,
    /// How long it has been at it, warm-up included.
    pub elapsed: Duration,
    /// Successes per second since the last progress.
    pub operations_per_second: f64,
    /// The 99th percentile of their latencies, in microseconds.
    pub p99_us: u64,
    /// All successes of this stage.
    pub operations: u64,
    /// All failures and unknown outcomes of this stage.
    pub failures: u64,
}

/// Times of histories count from here, so that those of several loads can be put together.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Runs what the options say and tells `progress` about it every second.
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
    let loader_cpu = finishes.iter().map(|finish| finish.cpu).sum();
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

/// Runs one stage on every worker, each on a thread of its own, and adds up what they count.
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
            handles.push(scope.spawn(move || job(worker, thread, &sender)));
        }
        // The workers hold the only senders now, so that receiving ends when the last one does.
        drop(sender);
        let tally = collect(&receiver, threads, stage, progress);
        let finishes = handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok((tally, finishes))
    })
}

/// Adds up what the workers hand over and tells progress whenever all have handed over a second.
fn collect(
    receiver: &Receiver<Tally>,
    threads: usize,
    stage: Stage,
    progress: &mut impl FnMut(&Progress),
) -> Tally {
    let start = Instant::now();
    let mut told_at = start;
    let mut total = Tally::new();
    let mut recent = Tally::new();
    let mut received = 0;
    for tally in receiver {
        recent.merge(&tally);
        received += 1;
        let since_told = told_at.elapsed();
        if received < threads || since_told < PROGRESS_MIN {
            continue;
        }
        received = 0;
        told_at = Instant::now();
        total.merge(&recent);
        progress(&Progress {
            stage,
            elapsed: start.elapsed(),
            operations_per_second: recent.success_count() as f64 / since_told.as_secs_f64(),
            p99_us: recent.all_successes().value_at_quantile(0.99),
            operations: total.success_count(),
            failures: total.failed_count() + total.unknown_count(),
        });
        recent = Tally::new();
    }
    total.merge(&recent);
    total
}

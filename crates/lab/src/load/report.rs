//! The results of a run: for people (`Display`), for programs (JSON), and for spreadsheets (CSV).

use std::fmt;
use std::time::{Duration, Instant};

use check::History;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::custom::Custom;
use super::keys::KeyChoice;
use super::options::{Arrivals, Options, Pace, Stop};
use super::outcome::{Operation, Outcome};
use super::steal::DISTURBED_PERCENT;
use super::tally::{Tally, new_histogram};
use super::value::Sizes;

/// A request that was sent more than this many microseconds after it was due is late.
const LATE_US: u64 = 1000;

/// Above this share of one thread's time the generator may have limited the rate.
const LOADER_BUSY_SHARE: f64 = 0.9;

/// The results of a run.
pub struct Report {
    options: Options,
    measured_from: Instant,
    elapsed: Duration,
    /// By thread.
    loader_cpu: Option<Vec<Duration>>,
    steal_percent: Option<f64>,
    tally: Tally,
    history: Option<History>,
}

/// How well an open loop kept its pace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delays {
    /// How many requests were due before the end and never sent, because no connection was free.
    pub unsent: u64,
    /// How many were sent more than a millisecond after they were due.
    pub late: u64,
    /// The median delay between due and sent, in microseconds.
    pub p50_us: u64,
    /// The 99th percentile of that delay, in microseconds.
    pub p99_us: u64,
    /// The maximum of that delay, in microseconds.
    pub max_us: u64,
}

/// The operations of one kind with the same outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The kind, or `None` for all kinds together.
    pub operation: Option<Operation>,
    /// The outcome.
    pub outcome: Outcome,
    /// The number of operations.
    pub count: u64,
    /// Operations per second.
    pub per_second: f64,
    /// The mean latency in microseconds.
    pub mean_us: f64,
    /// The median latency in microseconds.
    pub p50_us: u64,
    /// The 90th percentile of the latency in microseconds.
    pub p90_us: u64,
    /// The 95th percentile of the latency in microseconds.
    pub p95_us: u64,
    /// The 99th percentile of the latency in microseconds.
    pub p99_us: u64,
    /// The 99.9th percentile of the latency in microseconds.
    pub p99_9_us: u64,
    /// The maximum latency in microseconds.
    pub max_us: u64,
}

impl Row {
    fn new(
        operation: Option<Operation>,
        outcome: Outcome,
        latencies: &Histogram<u64>,
        elapsed: Duration,
    ) -> Self {
        Self {
            operation,
            outcome,
            count: latencies.len(),
            per_second: per_second(latencies.len(), elapsed),
            mean_us: latencies.mean(),
            p50_us: latencies.value_at_quantile(0.5),
            p90_us: latencies.value_at_quantile(0.9),
            p95_us: latencies.value_at_quantile(0.95),
            p99_us: latencies.value_at_quantile(0.99),
            p99_9_us: latencies.value_at_quantile(0.999),
            max_us: latencies.max(),
        }
    }

    /// The operation's name, `all` for all together.
    pub fn operation_name(&self) -> &'static str {
        self.operation.map_or("all", Operation::name)
    }

    fn to_json(&self) -> Value {
        json!({
            "operation": self.operation_name(),
            "outcome": self.outcome.to_string(),
            "count": self.count,
            "per_s": rounded(self.per_second),
            "mean_us": rounded(self.mean_us),
            "p50_us": self.p50_us,
            "p90_us": self.p90_us,
            "p95_us": self.p95_us,
            "p99_us": self.p99_us,
            "p99_9_us": self.p99_9_us,
            "max_us": self.max_us,
        })
    }
}

impl Report {
    pub(crate) fn new(
        options: Options,
        measured_from: Instant,
        elapsed: Duration,
        (loader_cpu, steal_percent): (Option<Vec<Duration>>, Option<f64>),
        tally: Tally,
        history: Option<History>,
    ) -> Self {
        Self { options, measured_from, elapsed, loader_cpu, steal_percent, tally, history }
    }

    /// When the warm-up ended: the counts cover [`Report::elapsed`] from then on. The run itself takes longer, until
    /// the last replies have arrived or timed out and its history is assembled.
    pub fn measured_from(&self) -> Instant {
        self.measured_from
    }

    /// Every operation of the run, if [`Options::record`] was set. To explain what was read, the keys must have been
    /// absent when the run began, or have been loaded.
    pub fn take_history(&mut self) -> Option<History> {
        self.history.take()
    }

    /// The latencies, in microseconds, of the operations of one kind with this outcome; `None` when there are none.
    pub fn latencies(&self, operation: Operation, outcome: Outcome) -> Option<&Histogram<u64>> {
        let latencies = match outcome {
            Outcome::Ok => Some(self.tally.successes_of(operation)),
            _ => self
                .tally
                .failures()
                .find(|entry| (entry.0, entry.1) == (operation, outcome))
                .map(|entry| &entry.2),
        };
        latencies.filter(|latencies| !latencies.is_empty())
    }

    /// How well an open loop kept its pace; `None` for a closed loop.
    pub fn delays(&self) -> Option<Delays> {
        if self.options.pace == Pace::Closed {
            return None;
        }
        let none = new_histogram();
        let delays = self.tally.delays().unwrap_or(&none);
        Some(Delays {
            unsent: self.tally.unsent,
            late: delays.len() - delays.count_between(0, LATE_US),
            p50_us: delays.value_at_quantile(0.5),
            p99_us: delays.value_at_quantile(0.99),
            max_us: delays.max(),
        })
    }

    /// The options of the run.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The length of the measurement.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// The processor time that the generator itself used while measuring, if the system reports it.
    pub fn loader_cpu(&self) -> Option<Duration> {
        self.loader_cpu.as_ref().map(|threads| threads.iter().sum())
    }

    /// The share of the processor time wanted on this machine during the run, warm-up included, that its host gave to
    /// others, in percent; `None` where the kernel does not report it.
    pub fn steal_percent(&self) -> Option<f64> {
        self.steal_percent
    }

    /// The number of successful operations.
    pub fn operations(&self) -> u64 {
        self.tally.success_count()
    }

    /// Successful operations per second.
    pub fn operations_per_second(&self) -> f64 {
        per_second(self.operations(), self.elapsed)
    }

    /// The number of operations that certainly failed.
    pub fn failures(&self) -> u64 {
        self.tally.failed_count()
    }

    /// The number of operations that may or may not have happened.
    pub fn unknown(&self) -> u64 {
        self.tally.unknown_count()
    }

    /// How many times a working connection was lost.
    pub fn connections_lost(&self) -> u64 {
        self.tally.connections_lost
    }

    /// The number of operations with this outcome, of any kind.
    pub fn count(&self, outcome: Outcome) -> u64 {
        match outcome {
            Outcome::Ok => self.operations(),
            _ => self.tally.failures().filter(|entry| entry.1 == outcome).map(|entry| entry.2.len()).sum(),
        }
    }

    /// Whether the server gave an answer that no correct server gives.
    pub fn has_wrong_answers(&self) -> bool {
        self.count(Outcome::WrongValue) + self.count(Outcome::Protocol) > 0
    }

    /// The successes of each operation, those of all together, then each kind of failure.
    pub fn rows(&self) -> Vec<Row> {
        let successes = Operation::ALL
            .into_iter()
            .filter(|operation| !self.tally.successes_of(*operation).is_empty())
            .map(|operation| self.row(Some(operation), Outcome::Ok, self.tally.successes_of(operation)));
        let all = self.row(None, Outcome::Ok, &self.tally.all_successes());
        let failures = self.tally.failures().map(|entry| self.row(Some(entry.0), entry.1, &entry.2));
        successes.chain([all]).chain(failures).collect()
    }

    fn row(&self, operation: Option<Operation>, outcome: Outcome, latencies: &Histogram<u64>) -> Row {
        Row::new(operation, outcome, latencies, self.elapsed)
    }

    /// The generator's share of the time of its threads, and the busiest one's.
    fn loader_busy(&self) -> Option<(f64, f64)> {
        let seconds = self.elapsed.as_secs_f64();
        let threads = self.loader_cpu.as_ref().filter(|_| seconds > 0.0)?;
        let busiest = threads.iter().max()?.as_secs_f64() / seconds;
        Some((self.loader_cpu()?.as_secs_f64() / seconds / threads.len() as f64, busiest))
    }

    /// The generator's processor time per million of its operations, in seconds.
    pub fn loader_cpu_s_per_million(&self) -> Option<f64> {
        let ended = self.operations() + self.failures() + self.unknown();
        self.loader_cpu().filter(|_| ended > 0).map(|cpu| cpu.as_secs_f64() * 1e6 / ended as f64)
    }

    /// One object with everything. Names are stable and end in their unit.
    pub fn to_json(&self) -> Value {
        let options = &self.options;
        let mix: Map<String, Value> = Operation::ALL
            .into_iter()
            .map(|operation| (operation.name().to_lowercase(), json!(options.mix.weight(operation))))
            .collect();
        let (stop_count, stop_s) = match options.stop {
            Stop::Count(count) => (Some(count), None),
            Stop::CountEach(count) => (Some(count * options.connections as u64), None),
            Stop::Duration(duration) => (None, Some(duration.as_secs_f64())),
        };
        let (rate, arrivals) = match options.pace {
            Pace::Closed => (None, None),
            Pace::Open { per_second, arrivals } => (Some(per_second), Some(arrivals_in_words(arrivals))),
        };
        let delays = self.delays().map(|delays| {
            json!({
                "unsent": delays.unsent,
                "late": delays.late,
                "p50_us": delays.p50_us,
                "p99_us": delays.p99_us,
                "max_us": delays.max_us,
            })
        });
        json!({
            "options": {
                "addresses": options.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "connections": options.connections,
                "pipeline": options.pipeline,
                "mix": mix,
                "custom": options.custom.as_ref().map(Custom::text),
                "custom_load": options.custom_load.as_ref().map(Custom::text),
                "transport": options.transport.name(),
                "tls": options.tls.is_some(),
                "keys": options.keys,
                "key_choice": key_choice_in_words(options.key_choice),
                "key_prefix": options.key_prefix,
                "key_bytes": options.key_prefix.len() + options.key_digits(),
                "value_bytes_min": options.value_bytes.min,
                "value_bytes_max": options.value_bytes.max,
                "rate_per_s": rate,
                "arrivals": arrivals,
                "warmup_s": options.warmup.as_secs_f64(),
                "stop_count": stop_count,
                "stop_s": stop_s,
                "seed": options.seed,
                "wait_replicas": options.wait.map(|wait| wait.replicas),
                "wait_once": options.wait_once,
                "wait_timeout_ms": options.wait.map(|wait| wait.timeout_ms),
                "load": options.load,
                "threads": options.threads,
                "cores": options.cores,
                "reply_timeout_s": options.reply_timeout.as_secs_f64(),
            },
            "elapsed_s": self.elapsed.as_secs_f64(),
            "operations": self.operations(),
            "operations_per_s": rounded(self.operations_per_second()),
            "failures": self.failures(),
            "unknown": self.unknown(),
            "connections_lost": self.connections_lost(),
            "delays": delays,
            "loader_cpu_s": self.loader_cpu().map(|cpu| cpu.as_secs_f64()),
            "loader_busiest_percent": self.loader_busy().map(|(_, busiest)| rounded(busiest * 100.0)),
            "loader_cpu_s_per_million": self.loader_cpu_s_per_million().map(rounded),
            "steal_percent": self.steal_percent.map(rounded),
            "results": self.rows().iter().map(Row::to_json).collect::<Vec<_>>(),
        })
    }

    /// The column names of [`Report::to_csv`], without a line end.
    pub const CSV_HEADER: &'static str =
        "operation,outcome,count,per_s,mean_us,p50_us,p90_us,p95_us,p99_us,p99_9_us,max_us";

    /// One line per row, without the header. Each line starts with `prefix`, for the caller's columns.
    pub fn to_csv(&self, prefix: &str) -> String {
        let line = |row: &Row| {
            let Row {
                outcome,
                count,
                per_second,
                mean_us,
                p50_us,
                p90_us,
                p95_us,
                p99_us,
                p99_9_us,
                max_us,
                ..
            } = row;
            let operation = row.operation_name();
            format!(
                "{prefix}{operation},{outcome},{count},{per_second:.2},{mean_us:.2},\
                 {p50_us},{p90_us},{p95_us},{p99_us},{p99_9_us},{max_us}\n"
            )
        };
        self.rows().iter().map(line).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", describe(&self.options))?;
        writeln!(
            formatter,
            "{} op/s over {:.2} s: {} ok, {} failed, {} unknown, {} connections lost",
            grouped(self.operations_per_second().round() as u64),
            self.elapsed.as_secs_f64(),
            grouped(self.operations()),
            grouped(self.failures()),
            grouped(self.unknown()),
            grouped(self.connections_lost()),
        )?;
        writeln!(formatter)?;
        writeln!(
            formatter,
            "{:<9} {:<20} {:>12} {:>11} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "operation", "outcome", "count", "per s", "mean us", "p50", "p90", "p95", "p99", "p99.9", "max"
        )?;
        for row in self.rows() {
            writeln!(
                formatter,
                "{:<9} {:<20} {:>12} {:>11} {:>10.1} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
                row.operation_name(),
                row.outcome,
                grouped(row.count),
                grouped(row.per_second.round() as u64),
                row.mean_us,
                grouped(row.p50_us),
                grouped(row.p90_us),
                grouped(row.p95_us),
                grouped(row.p99_us),
                grouped(row.p99_9_us),
                grouped(row.max_us),
            )?;
        }
        if let Some(delays) = self.delays() {
            write!(
                formatter,
                "\n{} sent more than 1 ms after they were due (half of all within {} us, 99 % within {} us, all within \
                 {} us)",
                grouped(delays.late),
                grouped(delays.p50_us),
                grouped(delays.p99_us),
                grouped(delays.max_us)
            )?;
            match delays.unsent {
                0 => writeln!(formatter)?,
                unsent => writeln!(
                    formatter,
                    "\n{} due before the end and never sent: all connections were waiting for replies",
                    grouped(unsent)
                )?,
            }
        }
        let (Some(busy), Some(per_million)) = (self.loader_busy(), self.loader_cpu_s_per_million()) else {
            return Ok(());
        };
        let (busy, busiest) = busy;
        write!(
            formatter,
            "\nthe load generator used {per_million:.2} s of processor time per million operations, {:.0} % of its {}",
            busy * 100.0,
            plural(self.options.threads as u64, "thread")
        )?;
        match self.options.threads {
            1 => writeln!(formatter)?,
            _ => writeln!(formatter, " ({:.0} % of the busiest)", busiest * 100.0)?,
        }
        if busiest > LOADER_BUSY_SHARE {
            writeln!(formatter, "it may have been the limit itself: more --threads would show")?;
        }
        if let Some(percent) = self.steal_percent.filter(|percent| *percent > DISTURBED_PERCENT) {
            writeln!(
                formatter,
                "the machine's host took {percent:.0} % of the processor time that was wanted: measure again"
            )?;
        }
        Ok(())
    }
}

/// The options that a reader of the figures needs, in one line.
pub(crate) fn describe(options: &Options) -> String {
    let addresses: Vec<String> = options.addresses.iter().map(ToString::to_string).collect();
    let mut mix = Vec::new();
    for operation in Operation::ALL {
        let weight = options.mix.weight(operation);
        if weight > 0 {
            let percent = f64::from(weight) * 100.0 / options.mix.total() as f64;
            let custom = options.custom.as_ref().filter(|_| operation == Operation::Custom);
            let name = custom.map_or(operation.name(), Custom::text);
            mix.push(format!("{name} {}%", (percent * 100.0).round() / 100.0));
        }
    }
    let each = if options.wait_once { " once for each pipeline" } else { "" };
    let wait = options.wait.map_or(String::new(), |wait| format!(", WAIT {}{each}", wait.replicas));
    let tls = if options.tls.is_some() { " with TLS" } else { "" };
    let transport = format!("{}{tls}", options.transport.words());
    let pace = match options.pace {
        Pace::Closed => String::new(),
        Pace::Open { per_second, arrivals } => {
            format!(", {} per second due ({})", rounded(per_second), arrivals_in_words(arrivals))
        }
    };
    let choice = match options.key_choice {
        KeyChoice::Uniform => String::new(),
        choice => format!(" ({})", key_choice_in_words(choice)),
    };
    let Sizes { min, max } = options.value_bytes;
    let sizes = if min == max { plural(max as u64, "byte") } else { format!("{min} to {max} bytes") };
    format!(
        "{}: {} with a pipeline of {}{transport}, {}, {}{choice}, values of {sizes}{wait}{pace}",
        addresses.join(" "),
        plural(options.connections as u64, "connection"),
        options.pipeline,
        mix.join(" "),
        plural(options.keys, "key"),
    )
}

fn key_choice_in_words(choice: KeyChoice) -> String {
    match choice {
        KeyChoice::Uniform => "uniform".to_owned(),
        KeyChoice::Zipf(exponent) => format!("zipf {exponent}"),
        KeyChoice::Sequential => "sequential".to_owned(),
    }
}

fn arrivals_in_words(arrivals: Arrivals) -> &'static str {
    match arrivals {
        Arrivals::Even => "even",
        Arrivals::Poisson => "poisson",
    }
}

fn per_second(count: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { count as f64 / elapsed.as_secs_f64() }
}

/// Rounds to two decimals: more would only look precise.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

/// A number with thousands separated by commas.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn plural(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::load::outcome::ErrorWord;

    /// A report of one second: one success of `latency_us` per operation, and some failures.
    pub(crate) fn sample(successes: u64, latency_us: u64) -> Report {
        let mut tally = Tally::new();
        for _ in 0..successes {
            tally.record(Operation::Get, Outcome::Ok, latency_us);
            tally.record(Operation::Set, Outcome::Ok, 2 * latency_us);
        }
        tally.record(Operation::Set, Outcome::Error(ErrorWord::of(b"CLUSTERDOWN x")), 9_000);
        tally.record(Operation::Set, Outcome::Lost, 9_000);
        tally.connections_lost = 1;
        let (second, loader_cpu) = (Duration::from_secs(1), Duration::from_millis(950));
        Report::new(
            Options::default(),
            Instant::now(),
            second,
            (Some(vec![loader_cpu]), Some(12.3)),
            tally,
            None,
        )
    }

    #[test]
    fn json_has_stable_names_and_counts_failures_separately() {
        let json = sample(1000, 100).to_json();
        assert_eq!(json["operations"], 2000);
        assert_eq!(json["operations_per_s"], 2000.0);
        assert_eq!((&json["failures"], &json["unknown"]), (&json!(1), &json!(1)));
        assert_eq!(json["connections_lost"], 1);
        assert_eq!(
            (&json["loader_cpu_s_per_million"], &json["steal_percent"]),
            (&json!(474.53), &json!(12.3))
        );
        assert_eq!(json["options"]["mix"], json!({"get": 1, "set": 1, "incr": 0, "ping": 0, "custom": 0}));
        assert_eq!(json["results"][0]["operation"], "GET");
        assert_eq!(json["results"][0]["p99_us"], 100);
        assert_eq!(json["results"][2]["operation"], "all");
        assert_eq!(json["results"][2]["max_us"], 200);
        assert_eq!(json["results"][3]["outcome"], "error:CLUSTERDOWN");
        assert_eq!(json["results"][4]["outcome"], "lost");
    }

    #[test]
    fn csv_rows_have_as_many_columns_as_the_header() {
        let csv = sample(10, 100).to_csv("");
        let columns = Report::CSV_HEADER.split(',').count();
        assert_eq!(csv.lines().count(), 5);
        assert!(csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
        assert!(csv.starts_with("GET,ok,10,10.00,100.00,100,100,100,100,100,100\n"), "{csv}");
    }

    #[test]
    fn the_table_names_each_outcome_and_warns_of_a_busy_generator() {
        let text = sample(1000, 100).to_string();
        assert!(
            text.contains("2,000 op/s over 1.00 s: 2,000 ok, 1 failed, 1 unknown, 1 connections lost"),
            "{text}"
        );
        assert!(text.contains("error:CLUSTERDOWN"), "{text}");
        assert!(text.contains("95 % of its 1 thread"), "{text}");
        assert!(text.contains("may have been the limit"), "{text}");
        let cpu = [950, 50].map(Duration::from_millis).to_vec();
        let mut two = Report { loader_cpu: Some(cpu), ..sample(1000, 100) };
        two.options.threads = 2;
        let text = two.to_string();
        assert!(text.contains("50 % of its 2 threads (95 % of the busiest)"), "{text}");
        assert!(
            text.contains("may have been the limit"),
            "one thread is the limit of its connections: {text}"
        );
        assert!(text.contains("host took 12 % of the processor time"), "{text}");
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}

//! What this process uses of the machine, read from the system periodically for `INFO`, and on each request for
//! metrics.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use driver::Counters;
use node::Usage;
use node::metrics::head;
use node::report::Certificate;

use crate::disk::FolderDisk;

/// How the disk has filled: its free bytes at different times, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    samples: VecDeque<(Instant, u64)>,
}

impl Filling {
    const EVERY: Duration = Duration::from_secs(60);
    const SAMPLES: usize = 61;
    /// What a start or one large value takes says little about the next hours.
    const AT_LEAST: Duration = Duration::from_secs(30 * 60);

    /// Notes how much is free now. Returns in how many seconds the disk is full, if it fills.
    fn note(&mut self, free: u64, now: Instant) -> Option<u64> {
        if self.samples.back().is_none_or(|(last, _)| now.duration_since(*last) >= Self::EVERY) {
            if self.samples.len() == Self::SAMPLES {
                self.samples.pop_front();
            }
            self.samples.push_back((now, free));
        }
        let (since, before) = *self.samples.front()?;
        let took = now.duration_since(since);
        let filled = before.checked_sub(free).filter(|filled| *filled > 0 && took >= Self::AT_LEAST)?;
        u64::try_from(u128::from(free) * u128::from(took.as_secs()) / u128::from(filled)).ok()
    }
}

/// Returns the memory and processor time of this process and the room on its disk, with the bytes counted so far. Values that
/// the system does not provide (there is no /proc outside Linux) stay zero.
pub(crate) fn measure(
    counters: &Counters,
    disk: &FolderDisk,
    filling: &mut Filling,
    certificate: Option<Certificate>,
) -> Usage {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let (user_us, system_us) = processor_time_us().unwrap_or_default();
    let (disk_free_bytes, disk_bytes) = disk.room();
    Usage {
        resident_bytes: kilobytes(&status, "VmRSS:"),
        resident_bytes_peak: kilobytes(&status, "VmHWM:"),
        machine_bytes: kilobytes(&machine, "MemTotal:"),
        disk_free_bytes,
        disk_bytes,
        disk_full_in_s: filling.note(disk_free_bytes, Instant::now()),
        certificate,
        user_us,
        system_us,
        client_input_bytes: counters.client_bytes_in,
        client_output_bytes: counters.client_bytes_out,
        peer_input_bytes: counters.peer_bytes_in,
        peer_output_bytes: counters.peer_bytes_out,
    }
}

/// Appends the metrics that Prometheus's own client libraries report for any process, as Prometheus text. Values that
/// the system does not provide are left out.
pub(crate) fn render(out: &mut String) {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let mut put = |name: &str, help: &str, value: Option<String>| {
        if let Some(value) = value {
            let name = format!("process_{name}");
            head(&name, help, out);
            let _ = writeln!(out, "{name} {value}");
        }
    };
    let seconds = processor_time_us().map(|(user_us, system_us)| (user_us + system_us) as f64 / 1e6);
    put("cpu_seconds_total", "Processor time used.", seconds.map(|value| value.to_string()));
    let status = read("/proc/self/status");
    let resident = Some(kilobytes(&status, "VmRSS:")).filter(|bytes| *bytes > 0);
    put("resident_memory_bytes", "Resident memory.", resident.map(|value| value.to_string()));
    let size = Some(kilobytes(&status, "VmSize:")).filter(|bytes| *bytes > 0);
    put("virtual_memory_bytes", "Virtual memory.", size.map(|value| value.to_string()));
    let started = start_time_seconds(&read("/proc/stat"));
    put("start_time_seconds", "Unix time of the start.", started.map(|value| value.to_string()));
    // One of them is the folder itself, which is open while it is read.
    let open = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1));
    put("open_fds", "Open file descriptors.", open.map(|value| value.to_string()));
    let max = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    put("max_fds", "Most open file descriptors.", max.map(|value| value.to_string()));
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")).map(str::trim);
    put("threads", "Threads.", threads.map(|value| value.to_string()));
}

/// Returns the Unix time at which this process started, given the text of /proc/stat.
fn start_time_seconds(system: &str) -> Option<f64> {
    let booted: u64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let ticks = statistics()?.get(19)?.parse::<u64>().ok()?;
    Some(booted as f64 + ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns the value of a line such as `VmRSS:   1234 kB`, in bytes.
fn kilobytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse().ok());
    number.unwrap_or(0_u64) * 1024
}

/// Returns the processor time spent in the program and in the kernel.
fn processor_time_us() -> Option<(u64, u64)> {
    let fields = statistics()?;
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    let time_us = |field: usize| Some(fields.get(field)?.parse::<u64>().ok()? * 1_000_000 / ticks_per_second);
    Some((time_us(11)?, time_us(12)?))
}

/// Returns the fields of this process's line of statistics, from its state on.
fn statistics() -> Option<Vec<String>> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The process's name may contain anything, even spaces and parentheses: what follows the last closing one is
    // regular.
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_uses_memory_and_time() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FolderDisk::open(folder.path()).unwrap();
        let started = std::time::Instant::now();
        let measure = || measure(&Counters::default(), &disk, &mut Filling::default(), None);
        let mut usage = measure();
        // The system counts processor time in ticks: use the processor until one is counted.
        while usage.user_us + usage.system_us == 0 && started.elapsed().as_secs() < 10 {
            usage = measure();
        }
        assert!(usage.user_us + usage.system_us > 0, "{usage:?}");
        assert!(usage.resident_bytes > 0 && usage.resident_bytes_peak >= usage.resident_bytes, "{usage:?}");
        assert!(usage.disk_bytes >= usage.disk_free_bytes, "{usage:?}");
        assert!(usage.machine_bytes > usage.resident_bytes, "{usage:?}");
    }

    #[test]
    fn a_disk_that_fills_is_full_at_a_time() {
        let (mut filling, begun) = (Filling::default(), Instant::now());
        let mut note =
            |minutes: u64, free: u64| filling.note(free, begun + Duration::from_secs(60 * minutes));
        assert_eq!([note(0, 1000), note(10, 900)], [None, None], "too early to tell");
        assert_eq!(note(40, 600), Some(60 * 60), "400 in 40 minutes, so 600 in 60");
        // Only the last hour counts.
        let last: Vec<_> = (41..=120).map(|minutes| note(minutes, 600)).collect();
        assert_eq!(last.last(), Some(&None), "it fills no more");
        assert_eq!(note(121, 700), None, "it has been freed");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_process_has_the_usual_metrics_of_processes() {
        let mut text = String::new();
        render(&mut text);
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
        };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - value("process_start_time_seconds");
        assert!((-60.0..86_400.0).contains(&age), "{age}");
        assert!(value("process_virtual_memory_bytes") > value("process_resident_memory_bytes"));
        assert!(value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_open_fds") > 2.0 && value("process_threads") > 0.0);
        assert!(value("process_cpu_seconds_total") >= 0.0);
    }
}

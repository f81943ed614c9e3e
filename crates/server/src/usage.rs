//! What this process uses of the machine, read from the system periodically for `INFO`.

use std::fs;

use driver::Counters;
use node::Usage;

/// Returns the memory and processor time of this process, with the bytes counted so far. Values that the
/// system does not provide (there is no /proc outside Linux) stay zero.
pub(crate) fn measure(counters: &Counters) -> Usage {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let (user_us, system_us) = processor_time_us().unwrap_or_default();
    Usage {
        resident_bytes: kilobytes(&status, "VmRSS:"),
        resident_bytes_peak: kilobytes(&status, "VmHWM:"),
        machine_bytes: kilobytes(&machine, "MemTotal:"),
        user_us,
        system_us,
        client_input_bytes: counters.client_bytes_in,
        client_output_bytes: counters.client_bytes_out,
        peer_input_bytes: counters.peer_bytes_in,
        peer_output_bytes: counters.peer_bytes_out,
    }
}

/// Returns the value of a line such as `VmRSS:   1234 kB`, in bytes.
fn kilobytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse().ok());
    number.unwrap_or(0_u64) * 1024
}

/// Returns the processor time spent in the program and in the kernel.
fn processor_time_us() -> Option<(u64, u64)> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The process's name may contain anything, spaces and parentheses too: what follows the last closing one
    // is regular.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    let time_us = |field: usize| Some(fields.get(field)?.parse::<u64>().ok()? * 1_000_000 / ticks_per_second);
    Some((time_us(11)?, time_us(12)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_uses_memory_and_time() {
        let started = std::time::Instant::now();
        let mut usage = measure(&Counters::default());
        // The system counts processor time in ticks: use the processor until one is counted.
        while usage.user_us + usage.system_us == 0 && started.elapsed().as_secs() < 10 {
            usage = measure(&Counters::default());
        }
        assert!(usage.user_us + usage.system_us > 0, "{usage:?}");
        assert!(usage.resident_bytes > 0 && usage.resident_bytes_peak >= usage.resident_bytes, "{usage:?}");
        assert!(usage.machine_bytes > usage.resident_bytes, "{usage:?}");
    }
}

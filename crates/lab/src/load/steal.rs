//! How much processor time the machine's host gives to others.
//!
//! A virtual machine does not always run when it wants to. Figures from such moments say more about the host than
//! about the measured system, and nothing else in them shows it.

use std::fs;

/// Above this percentage a measurement counts as disturbed.
pub(crate) const DISTURBED_PERCENT: f64 = 10.0;

/// Processor time of the whole machine since its start, in the kernel's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessorTime {
    used: u64,
    stolen: u64,
}

impl ProcessorTime {
    /// The time so far. `None` where the kernel does not report it.
    pub(crate) fn look() -> Option<ProcessorTime> {
        ProcessorTime::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line of `/proc/stat` covers all processors: see proc_stat(5).
    fn parse(text: &str) -> Option<ProcessorTime> {
        let fields = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, _idle, _waiting, interrupts, soft_interrupts, stolen] =
            *ticks.first_chunk()?;
        Some(ProcessorTime { used: user + nice + system + interrupts + soft_interrupts, stolen })
    }

    /// The stolen share of the time wanted since `before`, in percent. `None` if no time was wanted.
    pub(crate) fn steal_percent_since(self, before: ProcessorTime) -> Option<f64> {
        let (used, stolen) = (self.used.checked_sub(before.used)?, self.stolen.checked_sub(before.stolen)?);
        let wanted = used + stolen;
        (wanted > 0).then(|| 100.0 * stolen as f64 / wanted as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_compared_with_demanded_time() {
        let at = |text| ProcessorTime::parse(text).expect("it has the counts");
        let before = at("cpu  100 0 50 9000 30 0 10 40 0 0\ncpu0 1 2 3\n");
        let after = at("cpu  160 5 70 9900 99 1 14 50 7 7\ncpu0 1 2 3\n");
        // 90 ticks were used, 10 were stolen.
        assert_eq!(after.steal_percent_since(before), Some(10.0));
        assert_eq!(before.steal_percent_since(before), None, "nothing was wanted");
        assert_eq!(before.steal_percent_since(after), None, "clocks do not go back");
        assert_eq!(ProcessorTime::parse("cpu  1 2 3"), None);
        assert!(ProcessorTime::look().is_some());
    }
}

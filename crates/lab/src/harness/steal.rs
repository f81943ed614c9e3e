//! What the machine's host gave to others while something was measured.
//!
//! A virtual machine does not always run when it wants to. Figures of such moments tell about the host rather than
//! about what was measured, and nothing else in them says so.

use std::fs;

use super::{Results, Row};

/// A measure that every sweep has besides those of its study: of the processor time that was wanted on this machine
/// while a point was measured, what its host gave to others, in percent. On a machine without a host it is 0.
pub const STEAL_PERCENT: &str = "steal_percent";

/// Processor time of the whole machine since it was started, in the kernel's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessorTime {
    used: u64,
    stolen: u64,
}

impl ProcessorTime {
    /// Until now. `None` where the kernel does not tell.
    pub(super) fn look() -> Option<ProcessorTime> {
        ProcessorTime::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line of `/proc/stat` is about all processors: see proc_stat(5).
    fn parse(text: &str) -> Option<ProcessorTime> {
        let fields = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, _idle, _waiting, interrupts, soft_interrupts, stolen] =
            *ticks.first_chunk()?;
        Some(ProcessorTime { used: user + nice + system + interrupts + soft_interrupts, stolen })
    }

    /// What was stolen of what was wanted since then, in percent. `None` if nothing was.
    pub(super) fn steal_percent_since(self, before: ProcessorTime) -> Option<f64> {
        let (used, stolen) = (self.used.checked_sub(before.used)?, self.stolen.checked_sub(before.stolen)?);
        let wanted = used + stolen;
        (wanted > 0).then(|| 100.0 * stolen as f64 / wanted as f64)
    }
}

/// How much a sweep was disturbed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steal<'r> {
    /// How many points it is known of, repeats counted.
    pub points: usize,
    /// At how many of them it was above [`Steal::LIMIT_PERCENT`].
    pub disturbed: usize,
    /// Its median.
    pub median_percent: f64,
    /// The most at one of them.
    pub worst_percent: f64,
    /// Which one.
    pub worst: &'r Row,
}

impl<'r> Steal<'r> {
    /// Above this a point counts as disturbed.
    pub const LIMIT_PERCENT: f64 = 10.0;

    /// Of a sweep's rows; `None` if no row tells.
    pub fn of(results: &'r Results) -> Option<Steal<'r>> {
        let told = results.rows().iter().filter_map(|row| Some((*row.figures.get(STEAL_PERCENT)?, row)));
        let mut told: Vec<(f64, &Row)> = told.collect();
        told.sort_by(|(left, _), (right, _)| left.total_cmp(right));
        let (worst_percent, worst) = *told.last()?;
        let disturbed = told.iter().filter(|(percent, _)| *percent > Steal::LIMIT_PERCENT).count();
        Some(Steal {
            points: told.len(),
            disturbed,
            median_percent: told[told.len() / 2].0,
            worst_percent,
            worst,
        })
    }

    /// What a reader of the figures must know; `None` if no point was disturbed.
    pub fn warning(&self) -> Option<String> {
        let Steal { points, disturbed, worst_percent, worst, .. } = self;
        let place: Vec<&str> = std::iter::once(&worst.arm).chain(&worst.point).map(String::as_str).collect();
        let place: Vec<&str> = place.into_iter().filter(|word| !word.is_empty()).collect();
        (*disturbed > 0).then(|| {
            format!(
                "at {disturbed} of {points} points the machine's host gave more than {} % of the processor time \
                 that was wanted to others (at most {worst_percent:.0} %: {}): measure again what seems odd",
                Steal::LIMIT_PERCENT,
                place.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_kept_is_compared_with_what_was_wanted() {
        let at = |text| ProcessorTime::parse(text).expect("it tells");
        let before = at("cpu  100 0 50 9000 30 0 10 40 0 0\ncpu0 1 2 3\n");
        let after = at("cpu  160 5 70 9900 99 1 14 50 7 7\ncpu0 1 2 3\n");
        // 90 ticks were used, 10 were not to be had.
        assert_eq!(after.steal_percent_since(before), Some(10.0));
        assert_eq!(before.steal_percent_since(before), None, "nothing was wanted");
        assert_eq!(before.steal_percent_since(after), None, "clocks do not go back");
        assert_eq!(ProcessorTime::parse("cpu  1 2 3"), None);
        assert!(ProcessorTime::look().is_some());
    }

    #[test]
    fn the_warning_names_the_worst_point() {
        let mut results = Results::new(&["clients", "values"], &[STEAL_PERCENT]);
        let mut add = |arm: &str, percent: f64| {
            let figures = [(STEAL_PERCENT.to_owned(), percent)].into();
            let point = vec!["5".to_owned(), String::new()];
            results.push(Row { arm: arm.to_owned(), point, repeat: 1, figures, checked: None });
        };
        for (arm, percent) in [("a", 0.0), ("b", 31.4), ("c", 10.5), ("d", 10.0)] {
            add(arm, percent);
        }
        let steal = Steal::of(&results).expect("rows tell");
        assert_eq!((steal.points, steal.disturbed, steal.median_percent), (4, 2, 10.5));
        let warning = steal.warning().expect("two are disturbed");
        assert!(warning.contains("at 2 of 4 points") && warning.contains("at most 31 %: b, 5)"), "{warning}");
        assert_eq!(Steal::of(&Results::new(&[], &[])), None);
    }
}

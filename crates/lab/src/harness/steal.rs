//! How much of a sweep was measured while the machine's host gave its processors to others.

use super::{Results, Row, Spread};
use crate::load::steal::DISTURBED_PERCENT;

/// A measure that every sweep has besides those of its study: the share of the processor time wanted on this
/// machine, while a point was measured, that its host gave to others, in percent. It is 0 on a machine without a
/// host.
pub const STEAL_PERCENT: &str = "steal_percent";

/// How much a sweep was disturbed by the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steal<'r> {
    /// The number of points for which it is known, counting repeats.
    pub points: usize,
    /// The number of points at which it was above 10 %.
    pub disturbed: usize,
    /// The median, in percent.
    pub median_percent: f64,
    /// The maximum at one point, in percent.
    pub worst_percent: f64,
    /// The row of the maximum.
    pub worst: &'r Row,
}

impl<'r> Steal<'r> {
    /// Computes it from a sweep's rows; `None` if no row has the measure.
    pub fn of(results: &'r Results) -> Option<Steal<'r>> {
        let measured = results.rows().iter().filter_map(|row| Some((*row.figures.get(STEAL_PERCENT)?, row)));
        let spread = Spread::of(measured.clone().map(|(percent, _)| percent).collect())?;
        let (worst_percent, worst) =
            measured.clone().max_by(|(left, _), (right, _)| left.total_cmp(right))?;
        let disturbed = measured.filter(|(percent, _)| *percent > DISTURBED_PERCENT).count();
        Some(Steal { points: spread.count, disturbed, median_percent: spread.median, worst_percent, worst })
    }

    /// A warning for readers of the figures; `None` if no point was disturbed.
    pub fn warning(&self) -> Option<String> {
        let Steal { points, disturbed, worst_percent, worst, .. } = self;
        let place: Vec<&str> = std::iter::once(&worst.arm).chain(&worst.point).map(String::as_str).collect();
        let place: Vec<&str> = place.into_iter().filter(|word| !word.is_empty()).collect();
        (*disturbed > 0).then(|| {
            format!(
                "at {disturbed} of {points} points the machine's host took more than {DISTURBED_PERCENT} % \
                 of the processor time that was wanted (at most {worst_percent:.0} %: {}): measure again \
                 what seems odd",
                place.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let steal = Steal::of(&results).expect("rows have it");
        assert_eq!((steal.points, steal.disturbed, steal.median_percent), (4, 2, 10.25));
        let warning = steal.warning().expect("two are disturbed");
        assert!(warning.contains("at 2 of 4 points") && warning.contains("at most 31 %: b, 5)"), "{warning}");
        assert_eq!(Steal::of(&Results::new(&[], &[])), None);
    }
}

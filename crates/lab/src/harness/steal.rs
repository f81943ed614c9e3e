//! How much of a sweep was measured while the machine's host gave its processors to others.

use super::{Results, Row, Spread};
use crate::load::steal::DISTURBED_PERCENT;

/// A measure that every sweep has besides those of its study: of the processor time that was wanted on this machine
/// while a point was measured, what its host gave to others, in percent. On a machine without a host it is 0.
pub const STEAL_PERCENT: &str = "steal_percent";

/// How much a sweep was disturbed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steal<'r> {
    /// How many points it is known of, repeats counted.
    pub points: usize,
    /// At how many of them it was above 10 %.
    pub disturbed: usize,
    /// Its median.
    pub median_percent: f64,
    /// The most at one of them.
    pub worst_percent: f64,
    /// Which one.
    pub worst: &'r Row,
}

impl<'r> Steal<'r> {
    /// Of a sweep's rows; `None` if no row tells.
    pub fn of(results: &'r Results) -> Option<Steal<'r>> {
        let told = results.rows().iter().filter_map(|row| Some((*row.figures.get(STEAL_PERCENT)?, row)));
        let spread = Spread::of(told.clone().map(|(percent, _)| percent).collect())?;
        let (worst_percent, worst) = told.clone().max_by(|(left, _), (right, _)| left.total_cmp(right))?;
        let disturbed = told.filter(|(percent, _)| *percent > DISTURBED_PERCENT).count();
        Some(Steal { points: spread.count, disturbed, median_percent: spread.median, worst_percent, worst })
    }

    /// What a reader of the figures must know; `None` if no point was disturbed.
    pub fn warning(&self) -> Option<String> {
        let Steal { points, disturbed, worst_percent, worst, .. } = self;
        let place: Vec<&str> = std::iter::once(&worst.arm).chain(&worst.point).map(String::as_str).collect();
        let place: Vec<&str> = place.into_iter().filter(|word| !word.is_empty()).collect();
        (*disturbed > 0).then(|| {
            format!(
                "at {disturbed} of {points} points the machine's host gave more than {DISTURBED_PERCENT} % of the processor time \
                 that was wanted to others (at most {worst_percent:.0} %: {}): measure again what seems odd",
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
        let steal = Steal::of(&results).expect("rows tell");
        assert_eq!((steal.points, steal.disturbed, steal.median_percent), (4, 2, 10.25));
        let warning = steal.warning().expect("two are disturbed");
        assert!(warning.contains("at 2 of 4 points") && warning.contains("at most 31 %: b, 5)"), "{warning}");
        assert_eq!(Steal::of(&Results::new(&[], &[])), None);
    }
}

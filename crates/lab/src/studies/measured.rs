//! Invented figures, for testing judges.

use std::collections::BTreeMap;

use crate::harness::{Checked, Claim, Judgement, Results, Row, STEAL_PERCENT, Verdict};

/// Figures of several rounds, by arm, point and measure. A test's points have names, or the values of parameters.
#[derive(Clone, Default)]
pub(super) struct Measured {
    parameters: Vec<&'static str>,
    points: BTreeMap<(String, Vec<String>), BTreeMap<String, Vec<f64>>>,
    verdicts: Vec<&'static str>,
}

impl Measured {
    pub(super) fn new(parameters: &[&'static str]) -> Measured {
        Measured { parameters: parameters.to_vec(), ..Measured::default() }
    }

    /// Sets a measure of a point in each round, replacing earlier values.
    pub(super) fn set(&mut self, arm: &str, point: &[&str], measure: &str, rounds: &[f64]) {
        assert_eq!(point.len(), self.parameters.len(), "{point:?}");
        let point = point.iter().map(|value| (*value).to_owned()).collect();
        let figures = self.points.entry((arm.to_owned(), point)).or_default();
        figures.insert(measure.to_owned(), rounds.to_vec());
    }

    /// Returns the figures without an arm.
    pub(super) fn without(&self, arm: &str) -> Measured {
        let mut rest = self.clone();
        rest.points.retain(|(name, _), _| name != arm);
        rest
    }

    /// Returns the figures with these verdicts of the histories, one for each round.
    pub(super) fn checked(&self, verdicts: &[&'static str]) -> Measured {
        Measured { verdicts: verdicts.to_vec(), ..self.clone() }
    }

    /// Returns only the first round.
    pub(super) fn once(&self) -> Measured {
        let mut once = self.clone();
        once.points.values_mut().flat_map(BTreeMap::values_mut).for_each(|rounds| rounds.truncate(1));
        once
    }

    /// Returns the figures as if the host had taken the processors away in every round but the first.
    pub(super) fn disturbed(&self) -> Measured {
        let mut disturbed = self.clone();
        for figures in disturbed.points.values_mut() {
            let rounds = figures.values().map(Vec::len).max().unwrap_or(0);
            let steal = (0..rounds).map(|round| if round == 0 { 0.0 } else { 50.0 });
            figures.insert(STEAL_PERCENT.to_owned(), steal.collect());
        }
        disturbed
    }

    pub(super) fn results(&self) -> Results {
        let mut results = Results::new(&self.parameters, &[]);
        for ((arm, point), figures) in &self.points {
            for round in 0..figures.values().map(Vec::len).max().unwrap_or(0) {
                let of_round =
                    figures.iter().filter_map(|(name, rounds)| Some((name.clone(), *rounds.get(round)?)));
                let checked = self.verdicts.get(round);
                results.push(Row {
                    arm: arm.clone(),
                    point: point.clone(),
                    repeat: round as u32 + 1,
                    figures: of_round.collect(),
                    checked: checked.map(|verdict| Checked {
                        operations: 10,
                        verdict: (*verdict).to_owned(),
                        history: String::new(),
                    }),
                });
            }
        }
        results
    }

    /// The judgement of the claim that begins with `begins`.
    pub(super) fn judged(&self, claims: &[Claim], begins: &str) -> Judgement {
        let mut of = claims.iter().filter(|claim| claim.claim.starts_with(begins));
        let claim = of.next().unwrap_or_else(|| panic!("no claim begins with '{begins}'"));
        assert!(of.next().is_none(), "several claims begin with '{begins}'");
        claim.judged(&self.results()).judgement
    }

    /// Asserts that these figures decide a claim, but that one repeat or a disturbed machine leaves it undecided, and
    /// that it is not measured without one of these arms.
    pub(super) fn needs_repeats_and_arms(&self, claims: &[Claim], begins: &str, arms: &[&str]) {
        let verdict = |measured: &Measured| measured.judged(claims, begins).verdict;
        assert!(verdict(self).is_decided(), "{begins}: {:?}", self.judged(claims, begins));
        assert_eq!(verdict(&self.once()), Verdict::Undecided, "{begins}: one repeat");
        assert_eq!(verdict(&self.disturbed()), Verdict::Undecided, "{begins}: a machine that was disturbed");
        for arm in arms {
            assert_eq!(verdict(&self.without(arm)), Verdict::NotMeasured, "{begins}: without {arm}");
        }
    }
}

//! A paper's claims, and what the figures measured here say about them.

use serde::{Deserialize, Serialize};

use super::Results;

/// What a paper claims.
pub struct Claim {
    /// The claim, in one sentence.
    pub claim: &'static str,
    /// The place in the paper, and the paper's figure.
    pub paper: &'static str,
    /// Judges the measurements, whatever their spread over repeats. [`Claim::judged`] calls it several times.
    pub judge: Box<dyn Fn(&Results) -> Judgement>,
    /// The arms that the claim is about: if one of them is missing, the claim is not measured.
    needs: Vec<&'static str>,
    decided_by: Decided,
}

/// What it takes to decide a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decided {
    /// The verdict is the same whichever repeat is taken of each point, so overlapping repeats decide nothing.
    AnyRepeats,
    /// The verdict is the same in each round by itself. For figures that are only compared within a round.
    EachRound,
    /// This verdict needs one occurrence, such as a wrong answer. The opposite verdict needs all rounds.
    OneOccurrence(Verdict),
}

/// How many times a repeat of each point is drawn. Where two points with three repeats each touch at one end only, one
/// draw in nine shows it: all miss it once in 10^10.
const DRAWS: u64 = 200;

impl Claim {
    /// A claim and its judge.
    pub fn new(
        claim: &'static str,
        paper: &'static str,
        judge: impl Fn(&Results) -> Judgement + 'static,
    ) -> Claim {
        Claim { claim, paper, judge: Box::new(judge), needs: Vec::new(), decided_by: Decided::AnyRepeats }
    }

    /// Returns the claim with the arms it is about: it is not measured if one of them is absent.
    pub fn about(mut self, arms: &[&'static str]) -> Claim {
        self.needs = arms.to_vec();
        self
    }

    /// Returns the claim with a judge that compares figures within a round only.
    pub fn within_rounds(mut self) -> Claim {
        self.decided_by = Decided::EachRound;
        self
    }

    /// Returns the claim with a verdict that one occurrence decides, as one stale read decides "does not hold".
    pub fn decided_by_one(mut self, verdict: Verdict) -> Claim {
        self.decided_by = Decided::OneOccurrence(verdict);
        self
    }

    /// Judges the claim by the rules that hold for every claim:
    ///
    /// * a claim about an absent arm is not measured;
    /// * measurements taken while the machine's host withheld the processors are left out, except for a verdict that
    ///   one occurrence decides;
    /// * one repeat decides nothing;
    /// * overlapping repeats decide nothing: the judge must reach the same verdict whichever repeats it is given.
    ///
    /// It takes 200 times as long as the judge.
    pub fn judged(&self, results: &Results) -> Judged {
        let judgement = self.judge_by_rules(results);
        let about = self.needs.iter().map(|arm| (*arm).to_owned()).collect();
        Judged { claim: self.claim.to_owned(), paper: self.paper.to_owned(), about, judgement }
    }

    fn judge_by_rules(&self, results: &Results) -> Judgement {
        let absent: Vec<&str> =
            self.needs.iter().copied().filter(|arm| results.arm(arm).is_empty()).collect();
        if !absent.is_empty() {
            return Judgement::not_measured(format!("Not in this run: {}.", absent.join(", ")));
        }
        let whole = (self.judge)(results);
        if !whole.verdict.is_decided() || self.decided_by == Decided::OneOccurrence(whole.verdict) {
            return whole;
        }
        if matches!(self.decided_by, Decided::OneOccurrence(_)) {
            return self.agreed(whole, results);
        }
        let calm = results.undisturbed();
        let left_out = results.rows().len() - calm.rows().len();
        if left_out == 0 {
            return self.agreed(whole, results);
        }
        let judgement = (self.judge)(&calm);
        let left = calm.rows().len();
        let is_unchanged = judgement == whole;
        let judgement = match judgement.verdict {
            Verdict::NotMeasured => Judgement { verdict: Verdict::Undecided, ..whole },
            verdict if verdict.is_decided() => self.agreed(judgement, &calm),
            _ => judgement,
        };
        if is_unchanged && judgement.verdict.is_decided() {
            return judgement;
        }
        let why = format!(
            "{} The machine's host took its processors away at {left_out} of {} points, which were left out.",
            judgement.why,
            left + left_out
        );
        Judgement { why: why.trim_start().to_owned(), ..judgement }
    }

    /// Returns the verdict if the repeats agree on it.
    fn agreed(&self, whole: Judgement, results: &Results) -> Judgement {
        let undecided = |why: String| Judgement { verdict: Verdict::Undecided, why, ..whole.clone() };
        let rounds: Vec<Verdict> = results.rounds().iter().map(|round| (self.judge)(round).verdict).collect();
        let verdicts: Vec<Verdict> =
            rounds.into_iter().filter(|verdict| *verdict != Verdict::NotMeasured).collect();
        if verdicts.len() < 2 {
            return undecided("One repeat decides nothing.".to_owned());
        }
        let same =
            |verdicts: &[Verdict]| verdicts.iter().filter(|verdict| **verdict == whole.verdict).count();
        let in_rounds = same(&verdicts);
        if in_rounds < verdicts.len() {
            return undecided(format!(
                "Repeats differ by as much as what is compared: in {in_rounds} of {} rounds it {}, in the others not.",
                verdicts.len(),
                whole.verdict.clause()
            ));
        }
        if self.decided_by != Decided::AnyRepeats {
            return whole;
        }
        let drawn = |seed| (self.judge)(&results.one_repeat_each(seed)).verdict;
        let drawn: Vec<Verdict> = (0..DRAWS).map(drawn).collect();
        let in_draws = same(&drawn);
        if in_draws < drawn.len() {
            return undecided(format!(
                "Repeats differ by as much as what is compared: of {DRAWS} draws of one repeat of each point, it {} in {in_draws}.",
                whole.verdict.clause()
            ));
        }
        whole
    }
}

/// Whether a claim holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The claim holds.
    Holds,
    /// The claim does not hold.
    DoesNotHold,
    /// The paper's result comes from how it measured: the same was run here with and without the fault, and the figure
    /// moved as claimed.
    RestsOnFault,
    /// The claim does not hold here; a suspected fault in how the paper measured was not reproduced.
    NotReproduced,
    /// The measurements do not decide it, for example because repeats differ by as much as what is compared.
    Undecided,
    /// The measurements that the claim needs are missing from this run.
    NotMeasured,
}

impl Verdict {
    /// Whether the verdict says anything about the claim.
    pub fn is_decided(self) -> bool {
        !matches!(self, Verdict::Undecided | Verdict::NotMeasured)
    }

    /// The verdict in words, for the report.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::DoesNotHold => "does not hold",
            Verdict::RestsOnFault => "rests on a fault of the study's measurement",
            Verdict::NotReproduced => "not reproduced",
            Verdict::Undecided => "not decided",
            Verdict::NotMeasured => "not measured",
        }
    }

    /// The verdict as a clause, after "it".
    fn clause(self) -> &'static str {
        match self {
            Verdict::NotReproduced => "is not reproduced",
            other => other.words(),
        }
    }
}

/// The result of judging a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// The figure measured here.
    pub ours: String,
    /// Whether the claim holds.
    pub verdict: Verdict,
    /// The reason for the verdict.
    pub why: String,
}

impl Judgement {
    /// Creates a judgement.
    pub fn new(verdict: Verdict, ours: impl Into<String>, why: impl Into<String>) -> Judgement {
        Judgement { ours: ours.into(), verdict, why: why.into() }
    }

    /// The claim holds, or it does not.
    pub fn holds_if(holds: bool, ours: impl Into<String>, why: impl Into<String>) -> Judgement {
        Judgement::new(if holds { Verdict::Holds } else { Verdict::DoesNotHold }, ours, why)
    }

    /// The claim holds, or it does not, or repeats differ by too much to decide (`None`).
    pub fn decided(holds: Option<bool>, ours: impl Into<String>, why: impl Into<String>) -> Judgement {
        match holds {
            Some(holds) => Judgement::holds_if(holds, ours, why),
            None => {
                let why = format!("Repeats differ by as much as what is compared. {}", why.into());
                Judgement::new(Verdict::Undecided, ours, why)
            }
        }
    }

    /// The claim holds, or it is not reproduced. `suspected` names the possible cause in the paper's measurement; it
    /// was not observed here, so the report calls it suspected. `holds` is `None` when repeats differ by too much to
    /// decide.
    pub fn reproduced(
        holds: Option<bool>,
        ours: impl Into<String>,
        why: impl Into<String>,
        suspected: &str,
    ) -> Judgement {
        match holds {
            Some(false) => {
                let why = format!("{} Suspected, and not reproduced here: {suspected}", why.into());
                Judgement::new(Verdict::NotReproduced, ours, why.trim_start())
            }
            holds => Judgement::decided(holds, ours, why),
        }
    }

    /// The claim does not hold when measured without a fault of the paper's. `moved` is whether it holds when measured
    /// with that fault, in this run; `None` if this run does not show it.
    pub fn of_fault(moved: Option<bool>, ours: impl Into<String>, fault: &str) -> Judgement {
        let why = match moved {
            Some(true) => {
                return Judgement::new(Verdict::RestsOnFault, ours, format!("Reproduced here: {fault}"));
            }
            Some(false) => format!("The suspected cause was tried here and does not explain it: {fault}"),
            None => format!("Suspected, and not reproduced here: {fault}"),
        };
        Judgement::new(Verdict::NotReproduced, ours, why)
    }

    /// The measurements that the claim needs are missing.
    pub fn not_measured(why: impl Into<String>) -> Judgement {
        Judgement::new(Verdict::NotMeasured, "", why)
    }
}

/// A claim with its judgement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// The claim.
    pub claim: String,
    /// The paper's figure.
    pub paper: String,
    /// The arms that the claim is about.
    #[serde(default)]
    pub about: Vec<String>,
    /// The result.
    #[serde(flatten)]
    pub judgement: Judgement,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::harness::{Row, STEAL_PERCENT};

    /// Both arms at one point: the time of each in each round, and the percentage of processor time that the host stole.
    fn results(ours: &[(f64, f64)], theirs: &[(f64, f64)]) -> Results {
        let mut results = Results::new(&["clients"], &["ms", STEAL_PERCENT]);
        for (arm, rounds) in [("ours", ours), ("theirs", theirs)] {
            for (repeat, (ms, steal)) in (1..).zip(rounds) {
                let figures = BTreeMap::from([("ms".to_owned(), *ms), (STEAL_PERCENT.to_owned(), *steal)]);
                let point = vec!["5".to_owned()];
                results.push(Row { arm: arm.to_owned(), point, repeat, figures, checked: None });
            }
        }
        results
    }

    fn quiet(ours: &[f64], theirs: &[f64]) -> Results {
        let rounds = |ms: &[f64]| ms.iter().map(|ms| (*ms, 0.0)).collect::<Vec<_>>();
        results(&rounds(ours), &rounds(theirs))
    }

    /// Ours takes less time.
    fn is_faster() -> Claim {
        Claim::new("ours is faster", "by half", |results| {
            let median = |arm| results.arm(arm).median("ms");
            match (median("ours"), median("theirs")) {
                (Some(ours), Some(theirs)) => {
                    Judgement::holds_if(ours < theirs, format!("{ours} and {theirs} ms"), "Because.")
                }
                _ => Judgement::not_measured("one is missing"),
            }
        })
    }

    fn verdict(claim: &Claim, results: &Results) -> Verdict {
        claim.judged(results).judgement.verdict
    }

    #[test]
    fn repeats_that_agree_decide() {
        assert_eq!(verdict(&is_faster(), &quiet(&[1.0, 2.0], &[3.0, 4.0])), Verdict::Holds);
        assert_eq!(verdict(&is_faster(), &quiet(&[3.0, 4.0, 9.0], &[1.0, 2.0, 2.5])), Verdict::DoesNotHold);
    }

    #[test]
    fn one_repeat_decides_nothing() {
        let judged = is_faster().judged(&quiet(&[1.0], &[3.0])).judgement;
        assert_eq!(
            (judged.verdict, judged.why.as_str()),
            (Verdict::Undecided, "One repeat decides nothing.")
        );
        // Nor do two repeats of one arm alone.
        assert_eq!(verdict(&is_faster(), &quiet(&[1.0, 1.0], &[3.0])), Verdict::Undecided);
    }

    #[test]
    fn rounds_that_differ_decide_nothing() {
        let judged = is_faster().judged(&quiet(&[1.0, 5.0, 1.0], &[3.0, 4.0, 3.0])).judgement;
        assert_eq!(judged.verdict, Verdict::Undecided);
        assert!(judged.why.contains("in 2 of 3 rounds it holds"), "{}", judged.why);
    }

    #[test]
    fn overlapping_repeats_decide_nothing_although_each_round_agrees() {
        let touching = quiet(&[1.0, 3.0, 1.0], &[2.0, 4.0, 2.0]);
        let judged = is_faster().judged(&touching).judgement;
        assert_eq!(judged.verdict, Verdict::Undecided);
        assert!(judged.why.contains("of 200 draws"), "{}", judged.why);
        assert_eq!(verdict(&is_faster().within_rounds(), &touching), Verdict::Holds);
    }

    #[test]
    fn a_claim_about_an_absent_arm_is_not_measured() {
        let claim = is_faster().about(&["ours", "theirs", "nobody's"]);
        let judged = claim.judged(&quiet(&[1.0, 1.0], &[3.0, 3.0])).judgement;
        assert_eq!(
            (judged.verdict, judged.why.as_str()),
            (Verdict::NotMeasured, "Not in this run: nobody's.")
        );
    }

    #[test]
    fn measurements_on_a_disturbed_machine_are_left_out() {
        // It would hold in two rounds of three if the host had not disturbed the third.
        let ours = [(1.0, 0.0), (2.0, 2.0), (9.0, 40.0)];
        let judged = is_faster().judged(&results(&ours, &[(3.0, 0.0); 3])).judgement;
        assert_eq!(judged.verdict, Verdict::Holds);
        assert!(judged.why.ends_with("at 1 of 6 points, which were left out."), "{}", judged.why);
        // It is not mentioned where it changes nothing.
        let claim = is_faster();
        let mut others = results(&[(1.0, 0.0); 2], &[(3.0, 0.0); 2]);
        others.push(Row { arm: "another".to_owned(), ..results(&[(9.0, 40.0)], &[]).rows()[0].clone() });
        assert_eq!(claim.judged(&others).judgement.why, "Because.");
        // One round is left, or none.
        let rest = [(1.0, 0.0), (1.0, 40.0)];
        assert_eq!(verdict(&is_faster(), &results(&rest, &[(3.0, 0.0); 2])), Verdict::Undecided);
        assert_eq!(verdict(&is_faster(), &results(&[(1.0, 40.0); 2], &[(3.0, 0.0); 2])), Verdict::Undecided);
    }

    #[test]
    fn one_occurrence_is_enough_and_its_absence_needs_more_than_one_repeat() {
        let never_slow = || {
            let judge = |results: &Results| {
                let most = results.arm("ours").spread("ms").map_or(0.0, |ms| ms.max);
                Judgement::holds_if(most < 8.0, "ours", "")
            };
            Claim::new("ours is never slow", "", judge).decided_by_one(Verdict::DoesNotHold)
        };
        let disturbed = results(&[(1.0, 0.0), (9.0, 40.0)], &[]);
        assert_eq!(verdict(&never_slow(), &disturbed), Verdict::DoesNotHold);
        assert_eq!(verdict(&never_slow(), &quiet(&[9.0], &[])), Verdict::DoesNotHold);
        assert_eq!(verdict(&never_slow(), &quiet(&[1.0], &[])), Verdict::Undecided);
        assert_eq!(verdict(&never_slow(), &quiet(&[1.0, 2.0], &[])), Verdict::Holds);
    }

    #[test]
    fn a_fault_is_blamed_only_if_it_was_reproduced() {
        let verdict = |moved| Judgement::of_fault(moved, "ours", "it counts two as one").verdict;
        assert_eq!(verdict(Some(true)), Verdict::RestsOnFault);
        assert_eq!(verdict(Some(false)), Verdict::NotReproduced);
        assert_eq!(verdict(None), Verdict::NotReproduced);
        let judged = |holds| Judgement::reproduced(holds, "ours", "why.", "what it counts");
        assert_eq!(judged(Some(true)).verdict, Verdict::Holds);
        assert_eq!(judged(None).verdict, Verdict::Undecided);
        assert_eq!(judged(Some(false)).verdict, Verdict::NotReproduced);
        assert!(judged(Some(false)).why.contains("Suspected, and not reproduced here: what it counts"));
    }
}

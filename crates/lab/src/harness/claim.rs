//! A paper's claims, and what the figures measured here say about them.

use serde::{Deserialize, Serialize};

use super::Results;

/// What a paper claims.
pub struct Claim {
    /// The claim, in a sentence.
    pub claim: &'static str,
    /// Where in the paper, and the paper's figure.
    pub paper: &'static str,
    /// Looks at what was measured.
    pub judge: Box<dyn Fn(&Results) -> Judgement>,
}

impl Claim {
    /// A claim and who judges it.
    pub fn new(
        claim: &'static str,
        paper: &'static str,
        judge: impl Fn(&Results) -> Judgement + 'static,
    ) -> Claim {
        Claim { claim, paper, judge: Box::new(judge) }
    }

    /// Judges it.
    pub fn judged(&self, results: &Results) -> Judged {
        let judgement = (self.judge)(results);
        Judged { claim: self.claim.to_owned(), paper: self.paper.to_owned(), judgement }
    }
}

/// Whether a claim holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It does not hold.
    DoesNotHold,
    /// What the paper saw comes from how it measured: the same was run here with the fault and without, and the figure moved as
    /// said.
    RestsOnFault,
    /// It does not hold here, and there may be a fault in how the paper measured, which was not reproduced.
    NotReproduced,
    /// What was measured does not tell, as when the repeats differ by as much as what is compared.
    Undecided,
    /// What is needed was not measured in this run.
    NotMeasured,
}

impl Verdict {
    /// For people.
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
}

/// What was found about a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// The figure measured here.
    pub ours: String,
    /// Whether the claim holds.
    pub verdict: Verdict,
    /// Why.
    pub why: String,
}

impl Judgement {
    /// A judgement.
    pub fn new(verdict: Verdict, ours: impl Into<String>, why: impl Into<String>) -> Judgement {
        Judgement { ours: ours.into(), verdict, why: why.into() }
    }

    /// It holds, or it does not.
    pub fn holds_if(holds: bool, ours: impl Into<String>, why: impl Into<String>) -> Judgement {
        Judgement::new(if holds { Verdict::Holds } else { Verdict::DoesNotHold }, ours, why)
    }

    /// It holds, or it does not, or repeats differ by too much to tell.
    pub fn decided(holds: Option<bool>, ours: impl Into<String>, why: impl Into<String>) -> Judgement {
        match holds {
            Some(holds) => Judgement::holds_if(holds, ours, why),
            None => {
                let why = format!("Repeats differ by as much as what is compared. {}", why.into());
                Judgement::new(Verdict::Undecided, ours, why)
            }
        }
    }

    /// The claim holds, or it is not reproduced. `suspected` says what in the paper's measurement may be the cause; it was not
    /// observed here, so the report calls it suspected. `holds` is `None` when repeats differ by too much to tell.
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

    /// The claim does not hold where it is measured without a fault of the paper's. `moved` says whether it does when it is
    /// measured with that fault, by this run: `None` if this run does not tell.
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

    /// What is needed is not there.
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
    /// What was found.
    #[serde(flatten)]
    pub judgement: Judgement,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_alleged_only_where_it_was_reproduced() {
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

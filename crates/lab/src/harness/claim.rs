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
    /// What the paper saw comes from how it measured.
    RestsOnFault,
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

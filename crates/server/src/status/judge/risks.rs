//! The risks that are found, one after the other.

use crate::status::standing::{Risk, Severity};

/// The risks that were found.
#[derive(Default)]
pub(super) struct Risks(Vec<Risk>);

/// Adds risks about one thing: a node, a keyspace, an address.
pub(super) struct About<'r> {
    risks: &'r mut Risks,
    about: String,
}

impl Risks {
    pub(super) fn about(&mut self, about: impl Into<String>) -> About<'_> {
        About { risks: self, about: about.into() }
    }

    /// Leaves out those that follow from another one.
    pub(super) fn retain(&mut self, stays: impl FnMut(&Risk) -> bool) {
        self.0.retain(stays);
    }

    /// All of them, the most severe first.
    pub(super) fn sorted(mut self) -> Vec<Risk> {
        self.0.sort_by_key(|risk| std::cmp::Reverse(risk.severity));
        self.0
    }
}

impl About<'_> {
    pub(super) fn put(
        &mut self,
        severity: Severity,
        kind: &'static str,
        what: impl Into<String>,
        action: impl Into<String>,
    ) {
        let (what, action, about) = (what.into(), action.into(), self.about.clone());
        self.risks.0.push(Risk { severity, kind, about, what, action });
    }

    pub(super) fn at_risk(&mut self, kind: &'static str, what: impl Into<String>, action: impl Into<String>) {
        self.put(Severity::AtRisk, kind, what, action);
    }

    pub(super) fn note(&mut self, kind: &'static str, what: impl Into<String>, action: impl Into<String>) {
        self.put(Severity::Note, kind, what, action);
    }
}

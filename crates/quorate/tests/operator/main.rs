//! What an operator does to a cluster that serves: nodes come and go and are replaced, keyspaces are made and changed,
//! disks fill up; and Redis's own tools look at it as at a cluster of theirs.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../histories/bare.rs"]
mod bare;
mod copies;
mod disk;
mod keyspaces;
mod members;
#[path = "../histories/recorder.rs"]
#[allow(dead_code)]
mod recorder;
mod registers;
#[path = "../histories/started.rs"]
#[allow(dead_code)]
mod started;
#[path = "../processes/support.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod support;
mod values;

use check::{History, Verdict};

/// Asserts that the history is linearizable, and that it is long enough to say something.
#[track_caller]
fn assert_linearizable(history: &History) {
    assert!(history.operations().len() > 200, "too short: {}", history.operations().len());
    match check::linearizable(history) {
        Verdict::Ok { .. } => {}
        other => panic!("{}", other.words(history)),
    }
}

//! Operations on a cluster that is serving: nodes are added, removed and replaced, keyspaces are created and changed,
//! disks fill up; and Redis's own tools inspect it as they would inspect a Redis cluster.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../histories/bare.rs"]
mod bare;
mod copies;
mod disk;
mod keyspaces;
mod leaders;
mod members;
mod only_replicas;
#[path = "../histories/recorder.rs"]
#[allow(dead_code)]
mod recorder;
mod registers;
#[path = "../required/mod.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod required;
mod saved;
mod served;
#[path = "../histories/started.rs"]
#[allow(dead_code)]
mod started;
#[path = "../processes/support.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod support;
mod values;

use check::{History, Verdict};

/// Asserts that the history is linearizable, and long enough to be meaningful.
#[track_caller]
fn assert_linearizable(history: &History) {
    assert!(history.operations().len() > 200, "too short: {}", history.operations().len());
    match check::linearizable(history) {
        Verdict::Ok { .. } => {}
        other => panic!("{}", other.words(history)),
    }
}

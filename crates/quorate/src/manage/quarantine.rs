//! `quorate quarantine`.

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;

use super::{Manage, Reply, text};

const EXAMPLES: &str = "\
Examples:
  quorate quarantine list --addr 10.0.0.7:7443 --cacert authority.crt   over TLS
  quorate quarantine list
  quorate quarantine skip 7 1045
  quorate quarantine retry 7";

/// Records that have crashed nodes: list them, skip one, or try again.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct QuarantineArgs {
    #[command(flatten)]
    manage: Manage,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List them, with the nodes that have stopped before each
    List,
    /// Skip a record on all replicas
    Skip {
        /// The group's number
        group: u16,
        /// The record's number
        offset: u64,
    },
    /// Make all stopped replicas of a group try again
    Retry {
        /// The group's number
        group: u16,
    },
}

pub(super) fn run(args: &QuarantineArgs) -> Result<()> {
    let manage = &args.manage;
    match &args.verb {
        Verb::List => {
            let reply = manage.open()?.ask(&["CLUSTER", "QUARANTINE", "LIST"])?;
            let Reply::Array(lines) = reply else { return manage.rows(&["record"], Vec::new(), &json!([])) };
            let lines: Vec<_> = lines.into_iter().map(super::json).collect();
            let rows = lines.iter().map(|line| vec![text(line)]).collect();
            manage.rows(&["record"], rows, &json!(lines))
        }
        Verb::Skip { group, offset } => {
            manage.open()?.ask(&[
                "CLUSTER",
                "QUARANTINE",
                "SKIP",
                &group.to_string(),
                &offset.to_string(),
            ])?;
            let line = format!("record {offset} of group {group} is skipped on all replicas");
            manage
                .done(&line, &[("group", json!(group)), ("offset", json!(offset)), ("skipped", json!(true))])
        }
        Verb::Retry { group } => {
            manage.open()?.ask(&["CLUSTER", "QUARANTINE", "RETRY", &group.to_string()])?;
            let line = format!("all stopped replicas of group {group} try again");
            manage.done(&line, &[("group", json!(group)), ("retried", json!(true))])
        }
    }
}

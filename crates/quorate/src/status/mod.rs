//! `quorate status` and `quorate top`: the state of a cluster, for operators in a hurry, and for programs.
//!
//! The nodes' answers are judged in [`server::status`], which also serves the result over HTTP. Reading order:
//! [`mod@gather`] (asking all of them), [`text`] (how it is shown), [`mod@top`] (the same repeatedly, with rates).

mod gather;
mod text;
mod top;

pub(crate) use text::table;
pub(crate) use top::TopArgs;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use server::status::standing::Risk;
use server::status::{ASK_AGAIN_AFTER, Answers, Standing, State, judge};

use self::gather::{gather, gather_only};
use self::text::Paint;
use crate::connection::{Cluster, Connect, Role};

const EXAMPLES: &str = "\
Examples:
  quorate status                                     the cluster of the node at 127.0.0.1:7000
  quorate status --addr a.example:7000 --addr b.example:7000 --password-file password
  quorate status --config /etc/quorate.toml          address, password and TLS from a node's file
  quorate status --addr a.example:7443 --cacert authority.crt    over TLS
  quorate status --config /etc/quorate.toml --here   is this node fit for clients? (a health check)
  quorate status --json | jq .risks

Exit code: 0 healthy, 1 at risk, 2 something is not served, or no node can be reached.";

/// Show the state of a cluster, what is at risk, and what to do about it.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    connect: Connect,

    /// Write JSON, whose fields are documented and stable
    #[arg(long)]
    json: bool,

    /// Only ask the node at that address whether it serves: one line, and exit code 0 or 2
    #[arg(long, conflicts_with = "json")]
    here: bool,
}

/// Shows the state of a cluster. The exit code tells how far it serves.
///
/// # Errors
/// A sentence that says why no node can be reached.
pub(crate) fn run(args: &StatusArgs) -> Result<ExitCode> {
    let cluster = args.connect.resolve(Role::Looks)?;
    if args.here {
        return Ok(here(&gather_only(&cluster)));
    }
    let standing = stand(&cluster);
    let text = match args.json {
        true => serde_json::to_string_pretty(&standing)? + "\n",
        false => text::render(&standing, Paint::of_standard_output()),
    };
    // A closed pipe is not an error: the exit code has the rest.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(exit_code(&standing))
}

/// Determines the state of a cluster. If the state may be over in a moment, asks a second time.
pub(crate) fn stand(cluster: &Cluster) -> Standing {
    let standing = judge(&gather(cluster));
    if !standing.risks.iter().any(Risk::may_pass) {
        return standing;
    }
    std::thread::sleep(ASK_AGAIN_AFTER);
    judge(&gather(cluster))
}

/// Runs until it is asked to stop.
///
/// # Errors
/// A sentence that says why no node can be reached.
pub(crate) fn top(args: &TopArgs) -> Result<ExitCode> {
    top::run(args)
}

fn exit_code(standing: &Standing) -> ExitCode {
    match standing.state {
        State::Healthy => ExitCode::SUCCESS,
        State::AtRisk => ExitCode::from(1),
        State::CannotServe => ExitCode::from(2),
    }
}

/// Prints whether the nodes that were asked serve everything.
fn here(answers: &Answers) -> ExitCode {
    let mut serves = true;
    for (address, why) in &answers.others {
        serves = false;
        crate::output::say(&format!("{address} cannot be queried: {why}"));
    }
    for (id, reported) in answers.reports() {
        serves &= reported.report.ready;
        let unready = reported.report.keyspaces.iter().filter(|replica| !replica.ready);
        let reasons: Vec<String> = unready
            .map(|replica| {
                let name = if replica.prefix.is_empty() { "default" } else { &replica.prefix };
                format!("keyspace '{name}': {}", replica.explanation)
            })
            .collect();
        crate::output::say(&match reported.report.ready {
            true => format!("node {id} serves"),
            false => format!("node {id} does not serve: {}", reasons.join("; ")),
        });
    }
    if serves { ExitCode::SUCCESS } else { ExitCode::from(2) }
}

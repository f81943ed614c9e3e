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

use anyhow::{Result, ensure};
use clap::Args;
use node::KeyspaceHealth;
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
  quorate status --config /etc/quorate.toml --here --keyspace cart:   does it serve that keyspace?
  quorate status --all                               each keyspace and shard, also those that are alike
  quorate status --json | jq .risks

Exit code: 0 healthy, 1 at risk, 2 something is not served, or no node can be reached, 3 unknown: the password, a right, the
address, TLS or the command is wrong.";

/// The exit code of `status` and `top` if the state of the cluster is not known: the caller has to change something.
pub(crate) const UNKNOWN: u8 = 3;

/// Show the state of a cluster, what is at risk, and what to do about it.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    connect: Connect,

    /// Write JSON, whose fields are documented and stable
    #[arg(long)]
    json: bool,

    /// Only ask the node at that address whether it is ready for clients: one line, and exit code 0 or 2
    #[arg(long, conflicts_with = "json")]
    here: bool,

    /// With --here: ask whether it serves this keyspace; repeat it for several, "" is the default one
    #[arg(long, value_name = "PREFIX", requires = "here")]
    keyspace: Vec<String>,

    /// Show each keyspace, shard and risk by itself, also those that are alike. With --here: ask whether it serves every
    /// keyspace
    #[arg(long, conflicts_with_all = ["keyspace", "json"])]
    all: bool,
}

/// Shows the state of a cluster. The exit code tells how far it serves.
///
/// # Errors
/// A sentence that says why no node can be reached.
pub(crate) fn run(args: &StatusArgs) -> Result<ExitCode> {
    let cluster = args.connect.resolve(Role::Looks)?;
    if args.here {
        return here(&gather_only(&cluster), args);
    }
    let standing = stand(&cluster);
    let text = match args.json {
        true => serde_json::to_string_pretty(&standing)? + "\n",
        false => text::render(&standing, args.all, Paint::of_standard_output()),
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
        State::Unknown => ExitCode::from(UNKNOWN),
        State::CannotServe => ExitCode::from(2),
    }
}

/// Prints whether the nodes that were asked are ready, or serve the keyspaces that were named.
///
/// # Errors
/// A node does not know such a keyspace.
fn here(answers: &Answers, args: &StatusArgs) -> Result<ExitCode> {
    let mut serves = true;
    for (address, why) in &answers.others {
        serves = false;
        crate::output::say(&format!("{address} cannot be queried: {why}"));
    }
    for (id, reported) in answers.reports() {
        let health = &reported.report.health;
        for prefix in &args.keyspace {
            let is_known = health.keyspaces.iter().any(|shard| shard.prefix == *prefix);
            ensure!(is_known, "node {id} knows no keyspace '{prefix}': quorate keyspace list shows them");
        }
        let is_asked =
            |shard: &&KeyspaceHealth| args.keyspace.is_empty() || args.keyspace.contains(&shard.prefix);
        let unready = health.keyspaces.iter().filter(is_asked).filter(|shard| !shard.ready);
        let unready: Vec<String> = unready.map(explained).collect();
        let is_strict = args.all || !args.keyspace.is_empty();
        let is_good = if is_strict { unready.is_empty() } else { health.ready };
        serves &= is_good;
        crate::output::say(&match (is_good, unready.is_empty()) {
            (true, true) => format!("node {id} serves"),
            (true, false) => format!("node {id} serves, but not {}", unready.join("; ")),
            (false, _) if is_strict || health.explanation.is_empty() => {
                format!("node {id} does not serve: {}", unready.join("; "))
            }
            (false, _) => format!("node {id} does not serve: {}", health.explanation),
        });
    }
    Ok(if serves { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

/// A keyspace's name, and why a shard of it is not served.
fn explained(shard: &KeyspaceHealth) -> String {
    let name = if shard.prefix.is_empty() { "default" } else { &shard.prefix };
    format!("keyspace '{name}': {}", shard.explanation)
}

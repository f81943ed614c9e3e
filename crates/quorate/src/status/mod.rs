//! `quorate status` and `quorate top`: how a cluster stands, for people who are woken up, and for programs.
//!
//! Reading order: [`report`] (what a node says of itself), [`mod@gather`] (asking all of them), [`judge`] (what that amounts to)
//! in terms of [`standing`], [`text`] and [`words`] (how it is shown), [`mod@top`] (the same again and again, with rates).

mod gather;
mod judge;
mod report;
mod standing;
mod text;
mod top;
mod words;

pub(crate) use top::TopArgs;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;

use self::gather::{Answers, gather, gather_only};
use self::standing::{Risk, Standing, State};
use self::text::Paint;
use crate::exchange;

/// Nodes may disagree for a moment, since they are not asked in the same one. Then they are asked again, after so long.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "\
Examples:
  quorate status                                     the cluster of the node at 127.0.0.1:7000
  quorate status --addr a.example:7000 --addr b.example:7000 --password-file password
  quorate status --config /etc/quorate.toml          address and password from a node's file
  quorate status --config /etc/quorate.toml --here   is this node fit for clients? (a health check)
  quorate status --json | jq .risks

Exit code: 0 healthy, 1 at risk, 2 something is not served, or no node can be asked.";

/// Tell how a cluster stands, what is at risk, and what to do about it.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    asked: Asked,

    /// Write JSON, whose fields are documented and stay
    #[arg(long)]
    json: bool,

    /// Ask only the node at that address whether it serves: one line, and exit code 0 or 2
    #[arg(long, conflicts_with = "json")]
    here: bool,
}

/// Whom to ask.
#[derive(Args)]
struct Asked {
    /// The address of a node, for Redis clients; repeat it for several. The others are found [default: 127.0.0.1:7000]
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    addr: Vec<String>,

    /// A file with the cluster's password
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// A node's configuration: its address and its password, where they are not given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Asked {
    /// The addresses, and the words behind AUTH.
    fn resolve(&self) -> Result<(Vec<String>, Vec<String>)> {
        let mut addresses = self.addr.clone();
        let mut credentials = exchange::credentials(self.password_file.as_deref())?;
        if let Some(file) = &self.config {
            let config = server::Config::read(file)?;
            if addresses.is_empty() {
                addresses.push(gather::text_of(config.own()?));
            }
            if credentials.is_empty() {
                credentials.extend(config.password.clone());
            }
        }
        if addresses.is_empty() {
            addresses.push("127.0.0.1:7000".to_owned());
        }
        for address in &addresses {
            let is_address = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            ensure!(is_address, "{address} is no address: write HOST:PORT");
        }
        Ok((addresses, credentials))
    }
}

/// Tells how a cluster stands. The exit code says in how far it serves.
///
/// # Errors
/// A sentence that says why nobody can be asked.
pub(crate) fn run(args: &StatusArgs) -> Result<ExitCode> {
    let (addresses, credentials) = args.asked.resolve()?;
    if args.here {
        return Ok(here(&gather_only(&addresses, &credentials)));
    }
    let mut standing = judge::judge(&gather(&addresses, &credentials));
    if standing.risks.iter().any(Risk::may_pass) {
        std::thread::sleep(ASK_AGAIN_AFTER);
        standing = judge::judge(&gather(&addresses, &credentials));
    }
    let text = match args.json {
        true => serde_json::to_string_pretty(&standing)? + "\n",
        false => text::render(&standing, Paint::of_standard_output()),
    };
    // Who closes the pipe has seen enough: the exit code says the rest.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(exit_code(&standing))
}

/// Runs until it is asked to stop.
///
/// # Errors
/// A sentence that says why nobody can be asked.
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

/// Says whether the nodes that were asked serve everything.
fn here(answers: &Answers) -> ExitCode {
    let mut serves = true;
    for (address, why) in &answers.others {
        serves = false;
        crate::cluster::say(&format!("{address} cannot be asked: {why}"));
    }
    for (id, said) in answers.reports() {
        serves &= said.report.ready;
        let unready = said.report.keyspaces.iter().filter(|replica| !replica.ready);
        let reasons: Vec<String> = unready
            .map(|replica| {
                let name = if replica.prefix.is_empty() { "default" } else { &replica.prefix };
                format!("keyspace '{name}': {}", replica.explanation)
            })
            .collect();
        crate::cluster::say(&match said.report.ready {
            true => format!("node {id} serves"),
            false => format!("node {id} does not serve: {}", reasons.join("; ")),
        });
    }
    if serves { ExitCode::SUCCESS } else { ExitCode::from(2) }
}

//! `quorate status` and `quorate top`: how a cluster stands, for people who are woken up, and for programs.
//!
//! What the answers of nodes amount to is decided in [`server::status`], which serves it over HTTP, too. Reading order:
//! [`mod@gather`] (asking all of them), [`text`] (how it is shown), [`mod@top`] (the same again and again, with rates).

mod gather;
mod text;
mod top;

pub(crate) use text::table;
pub(crate) use top::TopArgs;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;

use server::status::standing::Risk;
use server::status::{ASK_AGAIN_AFTER, Answers, Standing, State, judge, text_of};

use self::gather::{gather, gather_only};
use self::text::Paint;
use crate::exchange;

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
pub(crate) struct Asked {
    /// The address of a node, for Redis clients; repeat it for several. The others are found [default: 127.0.0.1:7000]
    #[arg(long, global = true, value_name = "HOST:PORT", value_delimiter = ',')]
    addr: Vec<String>,

    /// The user to log in as [default: default]
    #[arg(long, global = true, value_name = "NAME", requires = "password_file")]
    user: Option<String>,

    /// A file with that user's password
    #[arg(long, global = true, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// A node's configuration: its address and its password, where they are not given
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Asked {
    /// The addresses, and the words behind AUTH.
    fn resolve(&self) -> Result<(Vec<String>, Vec<String>)> {
        self.resolve_as(false)
    }

    /// The same, for who may change the cluster: of a configuration the user `operator`, if it has one.
    pub(crate) fn resolve_for_changes(&self) -> Result<(Vec<String>, Vec<String>)> {
        self.resolve_as(true)
    }

    fn resolve_as(&self, wants_operator: bool) -> Result<(Vec<String>, Vec<String>)> {
        let mut addresses = self.addr.clone();
        let mut credentials = exchange::credentials(self.password_file.as_deref())?;
        if let Some(user) = &self.user {
            credentials.insert(0, user.clone());
        }
        if let Some(file) = &self.config {
            let config = server::Config::read(file)?;
            if addresses.is_empty() {
                addresses.push(text_of(config.own()?));
            }
            if credentials.is_empty() {
                match config.operator_password.as_ref().filter(|_| wants_operator) {
                    Some(password) => credentials.extend(["operator".to_owned(), password.clone()]),
                    None => credentials.extend(config.password.clone()),
                }
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
    let standing = stand(&addresses, &credentials);
    let text = match args.json {
        true => serde_json::to_string_pretty(&standing)? + "\n",
        false => text::render(&standing, Paint::of_standard_output()),
    };
    // Who closes the pipe has seen enough: the exit code says the rest.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(exit_code(&standing))
}

/// Finds out how a cluster stands. What may be over in a moment is looked at a second time.
pub(crate) fn stand(addresses: &[String], credentials: &[String]) -> Standing {
    let standing = judge(&gather(addresses, credentials));
    if !standing.risks.iter().any(Risk::may_pass) {
        return standing;
    }
    std::thread::sleep(ASK_AGAIN_AFTER);
    judge(&gather(addresses, credentials))
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

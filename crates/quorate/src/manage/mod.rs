//! `quorate keyspace`, `node`, `user`, `lock` and `quarantine`: operators' changes and queries, as commands with flags, tables
//! and JSON. Each is a command of the Redis protocol, which the errors of nodes name.
//!
//! Reading order: this file (which node to ask, and how answers are shown), then one file for each subject.

mod keyspace;
mod lock;
mod member;
mod quarantine;
mod roles;
mod user;

pub(crate) use keyspace::KeyspaceArgs;
pub(crate) use lock::LockArgs;
pub(crate) use member::NodeArgs;
pub(crate) use quarantine::QuarantineArgs;
pub(crate) use user::UserArgs;

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Map, Value};
use server::status::Standing;

use crate::connection::{Client, Cluster, Connect, Reply, Role};
use crate::status::{stand, table};

/// How long a node may be silent: a change waits for the control group for five seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// Makes, changes, drops and lists keyspaces.
///
/// # Errors
/// A sentence that says what was refused, and why.
pub(crate) fn keyspace(args: &KeyspaceArgs) -> Result<()> {
    keyspace::run(args)
}

/// Adds, removes, replaces and lists nodes.
///
/// # Errors
/// A sentence that says what was refused, and why.
pub(crate) fn node(args: &NodeArgs) -> Result<()> {
    member::run(args)
}

/// Makes, changes, drops and lists users.
///
/// # Errors
/// A sentence that says what was refused, and why.
pub(crate) fn user(args: &UserArgs) -> Result<()> {
    user::run(args)
}

/// Lists, describes and releases locks.
///
/// # Errors
/// A sentence that says what was refused, and why.
pub(crate) fn lock(args: &LockArgs) -> Result<()> {
    lock::run(args)
}

/// Lists, skips and retries records that have crashed nodes.
///
/// # Errors
/// A sentence that says what was refused, and why.
pub(crate) fn quarantine(args: &QuarantineArgs) -> Result<()> {
    quarantine::run(args)
}

/// Which node to ask, and how to show the answer.
#[derive(Args)]
struct Manage {
    #[command(flatten)]
    connect: Connect,

    /// Write JSON
    #[arg(long, global = true)]
    json: bool,
}

impl Manage {
    /// The cluster that the flags name.
    fn cluster(&self) -> Result<Cluster> {
        self.connect.resolve(Role::Changes)
    }

    /// Connects to the first node that accepts a connection.
    fn open(&self) -> Result<Node> {
        Ok(Node(self.cluster()?.open(ANSWER_WITHIN)?.1))
    }

    /// The state of the whole cluster.
    fn standing(&self) -> Result<Standing> {
        let cluster = self.cluster()?;
        let standing = stand(&cluster);
        if standing.map_version == 0 {
            // Returns the reason as an error, if no node answers.
            cluster.open(ANSWER_WITHIN)?;
            let why = standing.risks.first().map(|risk| risk.what.clone()).unwrap_or_default();
            bail!("{why}");
        }
        Ok(standing)
    }

    /// Reports that something was done: a line, or an object with these fields.
    fn done(&self, line: &str, fields: &[(&str, Value)]) -> Result<()> {
        if !self.json {
            return say(line);
        }
        let fields: Map<String, Value> =
            fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        self.write_json(&Value::Object(fields))
    }

    /// Shows rows below their headings, or the same as JSON.
    fn rows(&self, heads: &[&str], rows: Vec<Vec<String>>, json: &Value) -> Result<()> {
        if self.json {
            return self.write_json(json);
        }
        let mut all = vec![heads.iter().map(|head| (*head).to_owned()).collect::<Vec<_>>()];
        all.extend(rows);
        // The first column is right-aligned, for numbers; names are left-aligned.
        all.iter_mut().for_each(|row| row.insert(0, String::new()));
        let text = table(&all, |_, _, text| text.to_owned());
        write(
            &text
                .lines()
                .map(|line| line.trim_end().trim_start_matches("  ").to_owned() + "\n")
                .collect::<String>(),
        )
    }

    fn write_json(&self, json: &Value) -> Result<()> {
        write(&(serde_json::to_string_pretty(json)? + "\n"))
    }
}

/// A connection to a node.
struct Node(Client);

impl Node {
    /// Runs a command.
    ///
    /// # Errors
    /// The node's error, or the connection's.
    fn ask(&mut self, words: &[&str]) -> Result<Reply> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        match self.0.ask(&words)? {
            Reply::Error(error) => bail!("{error}"),
            reply => Ok(reply),
        }
    }

    /// Runs a command that is answered by a list of alternating names and values.
    fn pairs(&mut self, words: &[&str]) -> Result<Vec<(String, Value)>> {
        Ok(pairs(self.ask(words)?))
    }
}

/// A reply as JSON. Bytes that are not valid text are replaced.
fn json(reply: Reply) -> Value {
    match reply {
        Reply::Status(text) | Reply::Error(text) => text.into(),
        Reply::Integer(number) => number.into(),
        Reply::Bulk(bytes) => String::from_utf8_lossy(&bytes).into(),
        Reply::Null => Value::Null,
        Reply::Array(list) => list.into_iter().map(json).collect(),
    }
}

fn pairs(reply: Reply) -> Vec<(String, Value)> {
    let Reply::Array(list) = reply else { return Vec::new() };
    let (mut pairs, mut list) = (Vec::new(), list.into_iter().map(json));
    while let (Some(name), Some(value)) = (list.next(), list.next()) {
        pairs.push((text(&name), value));
    }
    pairs
}

/// A value as text in a table.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

fn say(line: &str) -> Result<()> {
    write(&format!("{line}\n"))
}

fn write(text: &str) -> Result<()> {
    // A closed pipe is not an error: its reader needs no more.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

//! `quorate import` and `quorate export`: keys are read from Redis's files, and written to them. `quorate backup` and `quorate
//! restore`: a whole cluster is written to files, and restored into another cluster.
//!
//! Code that concerns neither connections nor files, such as how a value is read and which commands store it, is in
//! [`contents`].
//!
//! Reading order: [`mod@import`] (which files, and the report), [`log`] (append-only files), [`live`] (a running server),
//! [`source`] (a running cluster), [`mod@export`], [`mod@backup`].

mod backup;
mod export;
mod functions;
mod import;
mod live;
mod log;
mod source;

pub(crate) use backup::{BackupArgs, RestoreArgs};
pub(crate) use export::ExportArgs;
pub(crate) use import::ImportArgs;

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use node::database_named;

use crate::connection::{Client, Reply};

/// Reads Redis's files into a running cluster.
///
/// # Errors
/// A sentence that says why not all keys were imported.
pub(crate) fn import(args: &ImportArgs) -> Result<()> {
    import::run(args)
}

/// Writes the keys of a running cluster to a Redis file.
///
/// # Errors
/// A sentence that says why not all keys were written.
pub(crate) fn export(args: &ExportArgs) -> Result<()> {
    export::run(args)
}

/// Makes backups of a running cluster, or verifies or lists the existing ones.
///
/// # Errors
/// A sentence that says what was not done.
pub(crate) fn backup(args: &BackupArgs) -> Result<()> {
    backup::run(args)
}

/// Restores a backup into a running cluster.
///
/// # Errors
/// A sentence that says what was not restored.
pub(crate) fn restore(args: &RestoreArgs) -> Result<()> {
    backup::restore(args)
}

/// For how long a request whose outcome is unknown may still wait at some node, and be done: `command_timeout_ms`, 5 seconds by
/// default, and a margin. What empties a cluster waits for so long after an error, or a late request would remove what is written
/// next. A request that was proposed already is done before all that come later, in the order of the log.
const LATE: Duration = Duration::from_secs(10);

/// Makes a connection select a database of the cluster.
///
/// # Errors
/// The database does not exist, or the connection is lost.
fn select(client: &mut Client, database: u8) -> Result<()> {
    match client.ask(&[b"SELECT", database.to_string().as_bytes()])? {
        Reply::Error(error) => bail!("{error}"),
        _ => Ok(()),
    }
}

/// The databases of a cluster that exist: a command in another one would create it.
///
/// # Errors
/// The connection is lost, or the list is refused.
fn databases(client: &mut Client) -> Result<Vec<u8>> {
    let prefixes = match client.ask(&[b"KEYSPACE", b"LIST"])? {
        Reply::Array(prefixes) => prefixes,
        other => return Err(source::unfit("KEYSPACE LIST", &other)),
    };
    let prefixes = prefixes.into_iter().filter_map(Reply::bytes);
    Ok(prefixes.map(|prefix| database_named(&prefix)).collect::<BTreeSet<u8>>().into_iter().collect())
}

/// The longest string that a cluster accepts, in bytes.
fn string_bytes_max(client: &mut Client) -> Result<usize> {
    let Reply::Array(words) = client.ask(&[b"CONFIG", b"GET", b"proto-max-bulk-len"])? else {
        return Ok(usize::MAX);
    };
    let most = words.into_iter().nth(1).and_then(Reply::bytes);
    Ok(most.and_then(|text| String::from_utf8_lossy(&text).parse().ok()).unwrap_or(usize::MAX))
}

/// The number of keys in all databases. Database 0 is selected.
///
/// # Errors
/// The connection is lost, or the cluster does not know the number.
fn key_count(client: &mut Client) -> Result<u64> {
    let mut count = 0;
    for database in databases(client)? {
        select(client, database)?;
        count += match client.ask(&[b"DBSIZE"])? {
            Reply::Integer(some) => some as u64,
            other => return Err(source::unfit("DBSIZE", &other)),
        };
    }
    select(client, 0)?;
    Ok(count)
}

/// A line of progress on standard error, from the second second on.
struct Progress {
    began: Instant,
    shown: Instant,
    is_terminal: bool,
}

impl Progress {
    const FIRST: Duration = Duration::from_secs(2);

    fn begin() -> Progress {
        let now = Instant::now();
        Progress { began: now, shown: now, is_terminal: std::io::stderr().is_terminal() }
    }

    /// Shows the progress, unless it did so a moment ago. `share` is the part that is done, from 0 to 1.
    fn show(&mut self, keys: u64, share: Option<f64>) {
        self.show_count(keys as f64, "keys", share);
    }

    /// The same for bytes.
    fn show_bytes(&mut self, bytes: u64, share: Option<f64>) {
        self.show_count((bytes as f64 / 1e5).round() / 10.0, "MB", share);
    }

    fn show_count(&mut self, count: f64, what: &str, share: Option<f64>) {
        let often = if self.is_terminal { Duration::from_secs(1) } else { Duration::from_secs(10) };
        if self.began.elapsed() < Self::FIRST || self.shown.elapsed() < often {
            return;
        }
        self.shown = Instant::now();
        let seconds = self.began.elapsed().as_secs_f64();
        let share = share.map(|share| format!("{:.0} % done, ", 100.0 * share)).unwrap_or_default();
        let line = format!("{share}{count} {what}, {:.0} {what}/s", count / seconds);
        let _ = match self.is_terminal {
            true => write!(std::io::stderr(), "\r{line}    "),
            false => writeln!(std::io::stderr(), "{line}"),
        };
    }

    /// Ends the line, and returns how long it took.
    fn end(&self) -> Duration {
        if self.is_terminal && self.began.elapsed() >= Self::FIRST {
            let _ = writeln!(std::io::stderr());
        }
        self.began.elapsed()
    }
}

/// Refused keys and commands, by reason, with a few examples of each.
#[derive(Default)]
struct Refusals(std::collections::BTreeMap<String, (u64, Vec<String>)>);

impl Refusals {
    const EXAMPLES: usize = 3;

    fn add(&mut self, reason: &str, what: &[u8]) {
        let (count, examples) = self.0.entry(reason.to_owned()).or_default();
        *count += 1;
        if examples.len() < Self::EXAMPLES {
            let shown = &what[..what.len().min(60)];
            examples.push(format!("\"{}\"", shown.escape_ascii()));
        }
    }

    /// Prints them, with what became of them in front.
    fn show(&self, what: &str) {
        for (reason, (count, examples)) in &self.0 {
            let more = if *count > examples.len() as u64 { ", …" } else { "" };
            crate::output::say(&format!("{what}: {count}, {reason} ({}{more})", examples.join(", ")));
        }
    }

    /// Prints them as not taken.
    ///
    /// # Errors
    /// Something was refused.
    fn conclude(&self, what: &str) -> Result<()> {
        let count: u64 = self.0.values().map(|(count, _)| count).sum();
        self.show(&format!("not {what}"));
        if count > 0 {
            bail!("{count} were not {what}: see above");
        }
        Ok(())
    }
}

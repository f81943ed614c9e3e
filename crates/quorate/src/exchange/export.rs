//! `quorate export`: writes the keys of a running cluster to a file that Redis and Valkey load.

use std::fs::File;
use std::io::{BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use cluster::control::KeyspaceEntry;
use node::{Reads, database_named};
use rdb::payload;
use rdb::write::{FileWriter, put_text, tag};
use server::status::words;

use super::source::{Missing, Source, alike, unfit};
use super::{Progress, Refusals, key_count};
use crate::connection::{Client, Connect, Reply, Role, put_request};
use crate::output::say;

const EXAMPLES: &str = "\
Examples:
  quorate export dump.rdb --addr 10.0.0.7:7000
  quorate export dump.rdb --addr 10.0.0.7:7443 --cacert authority.crt   over TLS
  quorate export carts.rdb --keyspace cart:          one keyspace
  redis-server --dbfilename dump.rdb --dir .         load it

Keys are read one after the other while clients write: the file is not the state of one moment unless they pause.";

/// Keys that a step of the scan visits.
const STEP: &[u8] = b"100";

/// Write the keys of a running cluster to a file that Redis and Valkey load
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// The file to write
    #[arg(value_name = "FILE")]
    to: PathBuf,

    #[command(flatten)]
    connect: Connect,

    /// Replace the file if it exists
    #[arg(long)]
    force: bool,

    /// Write only the keys of the keyspace with this prefix; repeat it for several, "" is the default one
    #[arg(long, value_name = "PREFIX")]
    keyspace: Vec<String>,

    /// Write nothing if a keyspace cannot be read [default: the others are written, and the exit code is 1]
    #[arg(long)]
    fail_on_missing: bool,
}

/// Exports all keys, or those of some keyspaces.
///
/// # Errors
/// A sentence that says why not all keys were written. If only some keyspaces or keys are missing, the file exists.
pub(super) fn run(args: &ExportArgs) -> Result<()> {
    let (to, cannot) = (&args.to, || format!("cannot write {}", args.to.display()));
    ensure!(args.force || !to.exists(), "{} exists: give --force to replace it", to.display());
    let mut source = Source::find(&args.connect, Role::Looks)?;
    let keyspaces = source.keyspaces(&args.keyspace)?;
    let beside = to.with_extension("part");
    let file = File::create(&beside).with_context(cannot)?;
    let written = Export::begin(file, args.fail_on_missing).and_then(|it| it.run(&mut source, &keyspaces));
    let Written { count, refusals, missing, old } = match written {
        Ok(written) => written,
        Err(error) => {
            let _ = std::fs::remove_file(&beside);
            return Err(error.context(format!("{} is not written", to.display())));
        }
    };
    std::fs::rename(&beside, to).with_context(cannot)?;
    sync_folder(to).with_context(cannot)?;
    let are = if count == 1 { "is" } else { "are" };
    say(&format!("{} {are} in {}", words::count(count as usize, "key"), to.display()));
    let not_written = alike(missing.iter().map(|(name, why)| (name.as_str(), why.as_str())));
    not_written.iter().for_each(|line| say(&format!("not written: {line}")));
    old.iter().for_each(|name| say(&format!("may be old: keyspace '{name}': {NO_LEADER}")));
    refusals.conclude("written")?;
    let lacks =
        || format!("{} lacks {} of {} keyspaces: see above", to.display(), missing.len(), keyspaces.len());
    ensure!(missing.is_empty(), lacks());
    ensure!(
        old.is_empty(),
        "{} may lack the latest writes of {} of {} keyspaces: see above",
        to.display(),
        old.len(),
        keyspaces.len()
    );
    Ok(())
}

/// For how long to wait for keyspaces that are not served, in all: a node answers only when its time for a command is over. After
/// that, only those are read that are served.
const PATIENCE: Duration = Duration::from_secs(15);

/// With `reads=any` a replica answers even then.
const NO_LEADER: &str =
    "no node leads it, so it was read (reads=any) from a replica, which may lack the latest writes";

fn sync_folder(file: &Path) -> std::io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// What was written.
struct Written {
    count: u64,
    refusals: Refusals,
    missing: Missing,
    /// The names of keyspaces of which the latest writes may be missing.
    old: Vec<String>,
}

/// An export in progress.
struct Export {
    writer: FileWriter<BufWriter<File>>,
    /// The database of the keys that were written last.
    database: u8,
    fails_on_missing: bool,
    /// How many keys the cluster has, if it knows that.
    all: Option<f64>,
    progress: Progress,
    written: Written,
}

impl Export {
    fn begin(file: File, fails_on_missing: bool) -> Result<Export> {
        let writer = FileWriter::begin(BufWriter::with_capacity(1 << 20, file))?;
        let written =
            Written { count: 0, refusals: Refusals::default(), missing: Missing::new(), old: Vec::new() };
        let progress = Progress::begin();
        Ok(Export { writer, database: 0, fails_on_missing, all: None, progress, written })
    }

    fn run(mut self, source: &mut Source, keyspaces: &[(String, KeyspaceEntry)]) -> Result<Written> {
        // While a keyspace is not served, nobody knows.
        self.all = key_count(&mut source.client).ok().map(|count| count as f64);
        let mut waited = Duration::ZERO;
        for (prefix, entry) in keyspaces {
            let (before, begun) = (self.written.count, Instant::now());
            let is_served = if waited < PATIENCE { Ok(()) } else { source.check_served(prefix) };
            let Err(error) = is_served.and_then(|()| self.keyspace(source, prefix)) else { continue };
            if error.is::<CannotWrite>() {
                return Err(error);
            }
            let name = entry.keyspace.name();
            if self.written.missing.is_empty() && !self.fails_on_missing {
                let seconds = PATIENCE.as_secs();
                say(&format!(
                    "keyspace '{name}' cannot be read; waiting up to {seconds} s for such keyspaces"
                ));
            }
            waited += begun.elapsed();
            ensure!(!self.fails_on_missing, "keyspace '{name}': {error:#}");
            let some = match self.written.count - before {
                0 => String::new(),
                some => format!(" (the first {some} of its keys are in the file)"),
            };
            self.written.missing.insert(name.to_owned(), format!("{error:#}{some}"));
            source.connect_again()?;
        }
        self.progress.end();
        if self.written.missing.len() == keyspaces.len() {
            let missing = self.written.missing.iter().map(|(name, why)| (name.as_str(), why.as_str()));
            bail!("no keyspace can be read: {}", alike(missing).join("; "));
        }
        let (out, head) = self.writer.end()?;
        let mut file = out.into_inner().map_err(|error| error.into_error())?;
        if let Some(head) = head {
            file.seek(SeekFrom::Start(0))?;
            file.write_all(head)?;
        }
        file.sync_all()?;
        Ok(self.written)
    }

    /// Writes the keys of a keyspace.
    fn keyspace(&mut self, source: &mut Source, prefix: &str) -> Result<()> {
        let mut walk = source.walk(prefix)?;
        let settings = source.map.keyspaces[prefix].keyspace.clone();
        let has_registers = settings.replication.has_registers();
        let database = database_named(prefix.as_bytes());
        if database != self.database {
            self.writer.database(database).map_err(CannotWrite)?;
            self.database = database;
        }
        let is_any = settings.reads == Reads::Any;
        let was_led = !is_any || source.is_led(prefix)?;
        ensure!(was_led || !self.fails_on_missing, NO_LEADER);
        while let Some(keys) = walk.step(&mut source.client, STEP)? {
            self.keys(&mut source.client, &keys, has_registers)?;
        }
        // It may have been lost on the way.
        let is_led = was_led && (!is_any || source.is_led(prefix)?);
        ensure!(is_led || !self.fails_on_missing, NO_LEADER);
        if !is_led {
            self.written.old.push(settings.name().to_owned());
        }
        Ok(())
    }

    fn keys(&mut self, client: &mut Client, keys: &[Vec<u8>], has_registers: bool) -> Result<()> {
        let mut requests = Vec::new();
        for key in keys {
            put_request(&[b"PEXPIRETIME", key], &mut requests);
            put_request(&[if has_registers { &b"GET"[..] } else { b"DUMP" }, key], &mut requests);
        }
        client.send(&requests)?;
        for key in keys {
            match (client.reply()?, client.reply()?) {
                (Reply::Integer(deadline), Reply::Bulk(dumped)) => {
                    let mut text = Vec::new();
                    let (tag, value) = match has_registers {
                        true => {
                            put_text(&dumped, &mut text);
                            (tag::STRING, &text[..])
                        }
                        false => payload::content(&dumped).context("DUMP returned no payload")?,
                    };
                    let deadline_ms = u64::try_from(deadline).ok().filter(|deadline| *deadline > 0);
                    self.writer.key(key, deadline_ms, tag, value).map_err(CannotWrite)?;
                    self.written.count += 1;
                }
                // The key has been removed since.
                (_, Reply::Null) => {}
                (Reply::Error(error), _) | (_, Reply::Error(error)) => self.written.refusals.add(&error, key),
                (_, other) => return Err(unfit("DUMP", &other)),
            }
        }
        let count = self.written.count as f64;
        self.progress.show(self.written.count, self.all.map(|all| (count / all.max(1.0)).min(1.0)));
        Ok(())
    }
}

/// The file cannot be written, so it makes no sense to go on with another keyspace.
#[derive(Debug)]
struct CannotWrite(std::io::Error);

impl std::fmt::Display for CannotWrite {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "the file cannot be written: {}", self.0)
    }
}

impl std::error::Error for CannotWrite {}

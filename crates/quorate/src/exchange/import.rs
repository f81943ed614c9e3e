//! `quorate import`: reads the keys of a Redis file, or of a folder of append-only files, into a running cluster.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::Args;
use rdb::file::FileReader;
use rdb::{Kind, Source};

use super::live::{self, LiveArgs};
use super::{Progress, Refusals, functions, log, select, string_bytes_max};
use crate::connection::{ANSWER_WITHIN, Client, Connect, Reply, Role, put_request};
use crate::output::say;
use contents::keys::{self, Destination, Rules, Sink};
use contents::{commands, requests};
use server::status::words;

const EXAMPLES: &str = "\
Examples:
  quorate import dump.rdb --dry-run                  what is in it, and what would be refused
  quorate import dump.rdb --addr 10.0.0.7:7000
  quorate import dump.rdb --addr 10.0.0.7:7443 --cacert authority.crt   over TLS
  quorate import appendonlydir --database 1=sessions:
  quorate import redis://10.0.0.3:6379 --addr 10.0.0.7:7000

From files, existing keys are replaced only with --replace. A value of more than a megabyte is stored in several
steps: until the last one, clients see a part of it. To repeat an interrupted import of files, add --replace; an import
of a running server continues where it was when the same command is run again.";

/// The maximum number of requests, and of their bytes, that are in progress at once.
const WINDOW: usize = 1000;
const WINDOW_BYTES: usize = 1 << 20;

/// How often a request that found no leader is repeated, and after what pause.
const TRIES: usize = 40;
const PAUSE: Duration = Duration::from_millis(250);

/// Read files of Redis into a running cluster
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImportArgs {
    /// A file that SAVE or BGSAVE wrote, an append-only file, a folder of those, or a running server, as
    /// `redis://[user:password@]HOST:PORT`, or with TLS `rediss://`
    #[arg(value_name = "FILE|FOLDER|SERVER")]
    from: PathBuf,

    #[command(flatten)]
    connect: Connect,

    /// Only read: show what is there, and what would be refused
    #[arg(long)]
    dry_run: bool,

    /// Replace keys that exist
    #[arg(long)]
    replace: bool,

    /// Import the keys of a database other than 0, with this in front of their names, or, if it is `@1` to `@15`, into
    /// the cluster's database of that number; repeat it as needed
    #[arg(long = "database", value_name = "NUMBER=PREFIX", value_parser = database)]
    databases: Vec<(u64, String)>,

    /// End at the first value that is damaged, instead of leaving it out, or of mending it if only its number of entries
    /// is wrong
    #[arg(long)]
    strict: bool,

    #[command(flatten)]
    live: LiveArgs,
}

fn database(text: &str) -> Result<(u64, String), String> {
    let (number, prefix) = text.split_once('=').ok_or("write NUMBER=PREFIX")?;
    let number = number.parse().map_err(|_| format!("{number} is no number of a database"))?;
    Ok((number, prefix.to_owned()))
}

/// A request that was sent.
struct Pending {
    /// The key, or a command of an append-only file.
    what: Vec<u8>,
    purpose: Purpose,
    request: Range<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Purpose {
    /// A whole value: the request may be repeated.
    Whole(Kind),
    /// One command of several for a value.
    Piece,
    /// A library of functions.
    Library,
    /// A command from an append-only file.
    Logged,
}

/// Whether an error means that there is no leader at the moment.
fn is_temporary(error: &str) -> bool {
    let code = error.split(' ').next().unwrap_or_default();
    ["TRYAGAIN", "CLUSTERDOWN", "LOADING", "UNKNOWN", "NOQUORUM", "OVERLOADED"].contains(&code)
}

pub(super) struct Importer {
    /// None if nothing may be changed.
    client: Option<Client>,
    /// The database that the connection has selected.
    database: u8,
    rules: Rules,
    replaces: bool,
    /// The length of all files, and of those before this file.
    file_bytes: u64,
    before_bytes: u64,
    requests: Vec<u8>,
    pending: Vec<Pending>,
    /// Why the value whose pieces are being sent is refused.
    failed: Option<String>,
    taken: BTreeMap<Kind, u64>,
    libraries: u64,
    commands: u64,
    expired: u64,
    refusals: Refusals,
    /// Values that were taken although they are not what the file says.
    mended: Refusals,
    progress: Progress,
}

/// Imports files.
///
/// # Errors
/// A sentence that says why not all keys were imported.
pub(super) fn run(args: &ImportArgs) -> Result<()> {
    let from = &args.from;
    let given = args.databases.iter().map(|(number, prefix)| (*number, Destination::named(prefix)));
    let destinations = [(0, Destination::default())].into_iter().chain(given).collect();
    if let Some(server) = from.to_str().filter(|text| live::is_server(text)) {
        ensure!(!args.dry_run && !args.replace, "--dry-run and --replace are for files");
        return live::run(server, &args.live, &args.connect, destinations, !args.strict);
    }
    let files = match from.is_dir() {
        true => log::files(from)?,
        false => vec![from.clone()],
    };
    files.iter().try_for_each(|file| check_kind(file))?;
    let is_empty =
        |file: &PathBuf| std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() == 0);
    ensure!(!files.iter().all(is_empty), "{} is empty: there is nothing to import", from.display());
    let mut client = match args.dry_run {
        true => None,
        false => Some(args.connect.resolve(Role::Changes)?.open(ANSWER_WITHIN)?.1),
    };
    let string_bytes_max = match &mut client {
        Some(client) => string_bytes_max(client)?,
        None => usize::MAX,
    };
    let mut importer = Importer::new(client, string_bytes_max, destinations, args.replace);
    importer.rules.goes_on = !args.strict;
    let outcome = files.iter().try_for_each(|file| {
        importer.read(file).with_context(|| format!("{} was read up to there", file.display()))
    });
    // Keys read before a fault are imported.
    let outcome = outcome.and(importer.flush());
    importer.report(if args.dry_run { "there are" } else { "taken:" });
    let concluded = importer.refusals.conclude("taken");
    outcome.and(concluded)
}

/// Checks that a file can be opened, and that it begins as files of Redis do.
fn check_kind(path: &Path) -> Result<()> {
    let cannot = || format!("cannot read {}", path.display());
    let mut begin = [0; 6];
    let mut file = File::open(path).with_context(cannot)?;
    let read = file.read(&mut begin).with_context(cannot)?;
    let begin = &begin[..read];
    // Keys; or commands, perhaps after a line with the time.
    let is_known = begin.starts_with(b"REDIS")
        || begin == b"VALKEY"
        || begin.starts_with(b"#TS:")
        || matches!(begin, [] | [b'*', b'0'..=b'9', ..]);
    ensure!(
        is_known,
        "{} is no file of Redis or Valkey: neither keys (from SAVE or BGSAVE, often named dump.rdb) nor commands (an \
         append-only file)",
        path.display()
    );
    Ok(())
}

impl Importer {
    /// `destinations`: see [`Rules`].
    pub(super) fn new(
        client: Option<Client>,
        string_bytes_max: usize,
        destinations: BTreeMap<u64, Destination>,
        replaces: bool,
    ) -> Importer {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Importer {
            client,
            database: 0,
            rules: Rules {
                destinations,
                expired_ms: now.as_millis() as u64,
                string_bytes_max,
                goes_on: false,
            },
            replaces,
            file_bytes: 0,
            before_bytes: 0,
            requests: Vec::new(),
            pending: Vec::new(),
            failed: None,
            taken: BTreeMap::new(),
            libraries: 0,
            commands: 0,
            expired: 0,
            refusals: Refusals::default(),
            mended: Refusals::default(),
            progress: Progress::begin(),
        }
    }

    /// Sets how many bytes were read before the next file, and the bytes of all files.
    pub(super) fn begin_file(&mut self, before_bytes: u64, all_bytes: u64) {
        (self.before_bytes, self.file_bytes) = (before_bytes, all_bytes);
    }

    /// The rules for what is imported from a file.
    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Sets the destination for the next file.
    pub(super) fn set_destination(&mut self, destination: Destination) {
        self.rules.destinations = BTreeMap::from([(0, destination)]);
    }

    /// The connection, after all requests have their replies.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn settled(&mut self) -> Result<Option<&mut Client>> {
        self.flush()?;
        Ok(self.client.as_mut())
    }

    /// How many keys were imported.
    pub(super) fn count(&self) -> u64 {
        self.taken.values().sum()
    }

    /// Prints what was refused.
    ///
    /// # Errors
    /// Something was refused.
    pub(super) fn conclude(&self, what: &str) -> Result<()> {
        self.refusals.conclude(what)
    }

    fn read(&mut self, path: &Path) -> Result<()> {
        let file = File::open(path).context("it cannot be opened")?;
        let length = file.metadata()?.len();
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let start = reader.fill_buf()?;
        let (mut at, has_keys) = (0, start.starts_with(b"REDIS") || start.starts_with(b"VALKEY"));
        if has_keys {
            let mut keys = FileReader::new(reader)?;
            self.file_bytes = length;
            let rules = std::mem::take(&mut self.rules);
            let outcome = keys::read(&mut keys, &rules, self);
            self.rules = rules;
            outcome?;
            at = keys.source().at();
            reader = keys.into_inner();
        }
        self.read_log(Source::new(reader, at), length)
    }

    fn read_log(&mut self, mut source: Source<BufReader<File>>, length: u64) -> Result<()> {
        let mut database = 0_u64;
        while source.at() < length {
            let item = commands::item(&mut source)?;
            let keys = self.taken.values().sum::<u64>() + self.commands;
            self.progress.show(keys, Some(source.at() as f64 / length as f64));
            let commands::Item::Command(words) = item else { continue };
            let Some(name) = words.first() else { continue };
            let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
            if is("SELECT") {
                let number = words.get(1).and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
                database =
                    number.with_context(|| format!("at byte {}: SELECT of no database", source.at()))?;
                continue;
            }
            let shown = words.iter().take(2).map(Vec::as_slice).collect::<Vec<_>>().join(&b' ');
            if is("FUNCTION") {
                self.function_command(&words, &shown)?;
                continue;
            }
            let destination = self.rules.destinations.get(&database);
            if let Some(Destination { database, .. }) = destination.filter(|it| it.prefix.is_empty()) {
                let database = *database;
                self.select(database)?;
            } else {
                if destination.is_some() {
                    bail!(
                        "at byte {}: a command on database {database}, and only keys of a snapshot get a prefix: rewrite \
                         the append-only file (BGREWRITEAOF) when nothing writes, and import again",
                        source.at()
                    );
                }
                self.refusals.add(&format!("commands on database {database}"), &shown);
                continue;
            }
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            self.commands += 1;
            self.send(&words, &shown, Purpose::Logged)?;
        }
        Ok(())
    }

    /// Executes a command about functions from an append-only file, after all others.
    fn function_command(&mut self, words: &[Vec<u8>], shown: &[u8]) -> Result<()> {
        self.flush()?;
        self.commands += 1;
        let words = functions::repeatable(words);
        let asked: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let Some(client) = &mut self.client else { return Ok(()) };
        for again in 0..=TRIES {
            match client.ask(&asked)? {
                Reply::Error(error) if is_temporary(&error) && again < TRIES => std::thread::sleep(PAUSE),
                Reply::Error(error) if functions::is_gone(&words, &error) => break,
                Reply::Error(error) => {
                    self.refusals.add(&error, shown);
                    break;
                }
                _ => break,
            }
        }
        Ok(())
    }

    fn send(&mut self, words: &[&[u8]], what: &[u8], purpose: Purpose) -> Result<()> {
        let mut request = Vec::new();
        put_request(words, &mut request);
        self.send_request(&request, what, purpose)
    }

    fn send_request(&mut self, request: &[u8], what: &[u8], purpose: Purpose) -> Result<()> {
        if self.client.is_none() {
            match purpose {
                Purpose::Whole(kind) => *self.taken.entry(kind).or_default() += 1,
                Purpose::Library => self.libraries += 1,
                Purpose::Piece | Purpose::Logged => {}
            }
            return Ok(());
        }
        let start = self.requests.len();
        self.requests.extend_from_slice(request);
        self.pending.push(Pending { what: what.to_vec(), purpose, request: start..self.requests.len() });
        let is_full = self.pending.len() >= WINDOW || self.requests.len() >= WINDOW_BYTES;
        if is_full { self.flush() } else { Ok(()) }
    }

    /// Sends the encoded requests, and reads the replies.
    fn flush(&mut self) -> Result<()> {
        let Some(client) = &mut self.client else { return Ok(()) };
        let mut left = std::mem::take(&mut self.pending);
        for again in 0..=TRIES {
            if left.is_empty() {
                break;
            }
            let mut requests = Vec::new();
            let all = match again {
                0 => &self.requests,
                _ => {
                    std::thread::sleep(PAUSE);
                    left.iter().for_each(|it| requests.extend_from_slice(&self.requests[it.request.clone()]));
                    &requests
                }
            };
            client.send(all)?;
            let mut later = Vec::new();
            for pending in std::mem::take(&mut left) {
                let error = match (client.reply()?, pending.purpose) {
                    (Reply::Error(error), Purpose::Whole(_) | Purpose::Library)
                        if is_temporary(&error) && again < TRIES =>
                    {
                        later.push(pending);
                        continue;
                    }
                    (Reply::Error(error), Purpose::Logged) if is_temporary(&error) => {
                        let what = pending.what.escape_ascii().to_string();
                        return Err(anyhow!("{what}: {error}; commands behind it may have taken effect"));
                    }
                    (Reply::Error(error), Purpose::Whole(_)) if error.starts_with("BUSYKEY") => {
                        "it exists: give --replace".to_owned()
                    }
                    (Reply::Error(error), Purpose::Library) if error.ends_with("already exists") => {
                        "it exists: give --replace".to_owned()
                    }
                    (Reply::Null, Purpose::Whole(Kind::String)) => "it exists: give --replace".to_owned(),
                    (Reply::Error(error), _) => error,
                    (_, Purpose::Whole(kind)) => {
                        *self.taken.entry(kind).or_default() += 1;
                        continue;
                    }
                    (_, Purpose::Library) => {
                        self.libraries += 1;
                        continue;
                    }
                    _ => continue,
                };
                match pending.purpose {
                    Purpose::Piece => self.failed = Some(error),
                    _ => self.refusals.add(&error, &pending.what),
                }
            }
            left = later;
        }
        self.requests.clear();
        Ok(())
    }

    pub(super) fn report(&self, verb: &str) {
        let seconds = self.progress.end().as_secs_f64();
        let keys: u64 = self.taken.values().sum();
        let kinds: Vec<String> =
            self.taken.iter().map(|(kind, count)| format!("{count} {}", kind.name())).collect();
        let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
        let commands = match self.commands {
            0 => String::new(),
            count => format!(", and {count} commands of append-only files"),
        };
        let commands = match self.libraries {
            0 => commands,
            count => format!(", {count} libraries of functions{commands}"),
        };
        let rate = (keys + self.commands) as f64 / seconds.max(0.001);
        let keys = words::count(keys as usize, "key");
        say(&format!("{verb} {keys}{kinds}{commands}, in {seconds:.1} s ({rate:.0}/s)"));
        if self.expired > 0 {
            say(&format!("expired already: {}", words::count(self.expired as usize, "key")));
        }
        self.mended.show("mended");
    }
}

impl Sink for Importer {
    fn select(&mut self, database: u8) -> Result<()> {
        if database != self.database {
            self.flush()?;
            if let Some(client) = &mut self.client {
                select(client, database)?;
            }
            self.database = database;
        }
        Ok(())
    }

    fn text(&mut self, key: &[u8], deadline_ms: Option<u64>, text: &[u8]) -> Result<()> {
        let request = requests::text(key, deadline_ms, text, self.replaces);
        self.send_request(&request, key, Purpose::Whole(Kind::String))
    }

    fn payload(&mut self, key: &[u8], deadline_ms: Option<u64>, kind: Kind, payload: &[u8]) -> Result<()> {
        let request = requests::payload(key, deadline_ms, payload, self.replaces);
        self.send_request(&request, key, Purpose::Whole(kind))
    }

    fn begin_pieces(&mut self, key: &[u8]) -> Result<bool> {
        self.flush()?;
        let Some(client) = &mut self.client else { return Ok(true) };
        if self.replaces {
            client.ask(&[b"DEL", key])?;
        } else if client.ask(&[b"EXISTS", key])? != Reply::Integer(0) {
            self.refusals.add("it exists: give --replace", key);
            return Ok(false);
        }
        Ok(true)
    }

    fn piece(&mut self, key: &[u8], request: &[u8]) -> Result<()> {
        self.send_request(request, key, Purpose::Piece)
    }

    fn end_pieces(&mut self, key: &[u8], deadline_ms: Option<u64>, kind: Kind) -> Result<()> {
        if let Some(deadline) = deadline_ms {
            self.send_request(&requests::deadline(key, deadline), key, Purpose::Piece)?;
        }
        self.flush()?;
        match (self.failed.take(), &mut self.client) {
            (Some(error), Some(client)) => {
                client.ask(&[b"DEL", key])?;
                self.refusals.add(&error, key);
            }
            _ => *self.taken.entry(kind).or_default() += 1,
        }
        Ok(())
    }

    fn abandon_pieces(&mut self, key: &[u8], reason: &str) -> Result<()> {
        self.flush()?;
        self.failed = None;
        if let Some(client) = &mut self.client {
            client.ask(&[b"DEL", key])?;
        }
        self.refusals.add(reason, key);
        Ok(())
    }

    fn mended(&mut self, reason: &str, key: &[u8]) -> Result<()> {
        self.mended.add(reason, key);
        Ok(())
    }

    fn library(&mut self, text: &[u8]) -> Result<()> {
        let words = [&b"FUNCTION"[..], b"LOAD", b"REPLACE", text];
        let name = functions::name(text);
        match self.replaces {
            true => self.send(&words, name, Purpose::Library),
            false => self.send(&[words[0], words[1], text], name, Purpose::Library),
        }
    }

    fn refuse(&mut self, reason: &str, what: &[u8]) -> Result<()> {
        self.refusals.add(reason, what);
        Ok(())
    }

    fn expired(&mut self) {
        self.expired += 1;
    }

    fn reached(&mut self, bytes: u64) -> Result<()> {
        let share = (self.before_bytes + bytes) as f64 / self.file_bytes as f64;
        self.progress.show(self.taken.values().sum(), Some(share.min(1.0)));
        Ok(())
    }
}

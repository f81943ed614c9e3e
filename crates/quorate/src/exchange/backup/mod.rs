//! `quorate backup` and `quorate restore`: a whole cluster as files, and back into another cluster.
//!
//! Reading order: [`store`] (where files are), [`manifest`] (what a backup consists of), [`backups`] (which exist), [`files`]
//! (checksums), [`take`] (makes a backup), [`together`] (one moment for all shards), [`tell`] (the cluster of it), [`choose`] (which files show a moment), [`mod@restore`], [`moment`] (times as text).

mod backups;
mod choose;
mod files;
mod manifest;
mod moment;
mod restore;
mod store;
mod take;
mod tell;
mod together;

pub(crate) use restore::RestoreArgs;
pub(super) use restore::run as restore;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use server::status::words;

use self::backups::Backups;
use self::manifest::{Manifest, named};
use self::take::{Made, Wanted};
use super::Progress;
use crate::connection::Connect;
use crate::output::say;

const EXAMPLES: &str = "\
Examples:
  quorate backup --to /backup/shop --addr 10.0.0.7:7000 --password-file password
  quorate backup --to /backup/shop --addr 10.0.0.7:7443 --cacert authority.crt   over TLS
  quorate backup --to s3://backups/shop                     into an object store; its keys are in the environment
  quorate backup --to /backup/shop --every 1h --keep 48     until it is stopped
  quorate backup --to /backup/shop --keyspace cart:         one keyspace; the others stay as the last backup has them
  quorate backup --list /backup/shop                        the existing backups, and the times that they restore
  quorate backup --list /backup/shop --max-age 26h          fails if a keyspace was not saved for longer: for an alarm
  quorate backup --verify /backup/shop                      reads all files, and checks their checksums
  quorate restore --from /backup/shop --addr 10.0.1.1:7000  into another cluster

The first backup is a copy of all keys, each shard as it is at one moment. Later ones add what has changed, in keyspaces that
keep their changes (quorate keyspace alter PREFIX changes_bytes=256mb); others are copied again.";

/// Make a backup of a running cluster
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    what: What,

    #[command(flatten)]
    connect: Connect,

    /// Copy all keys again, instead of adding what has changed
    #[arg(long)]
    full: bool,

    /// Save only the keyspace with this prefix; repeat it for several, "" is the default one. The others stay as the last
    /// backup has them
    #[arg(long, value_name = "PREFIX")]
    keyspace: Vec<String>,

    /// Make no backup if a keyspace cannot be read [default: the others are saved, and the exit code is 1]
    #[arg(long)]
    fail_on_missing: bool,

    /// Make a backup now, and again after each of these intervals: 15m, 1h, 1d
    #[arg(long, value_name = "TIME", value_parser = moment::parse_duration)]
    every: Option<Duration>,

    /// With --list: fail if a keyspace was not saved for longer than this, for monitors: 26h
    #[arg(long, value_name = "TIME", value_parser = moment::parse_duration, requires = "list")]
    max_age: Option<Duration>,

    /// Have `quorate status` and the alarms warn if there is no newer backup of a keyspace after this time [default: 26h, or
    /// twice --every if that is longer]
    #[arg(long, value_name = "TIME", value_parser = moment::parse_duration)]
    next_within: Option<Duration>,

    /// After a backup, remove all but this many of the newest, and the files that none of those needs
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    keep: Option<u16>,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct What {
    /// Where to add a backup: a folder, which is created if it does not exist, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "PLACE")]
    to: Option<PathBuf>,

    /// Read all files of the backups in a place, and compare them with their checksums
    #[arg(long, value_name = "PLACE", conflicts_with_all = ["full", "every", "keep", "keyspace", "fail_on_missing", "next_within"])]
    verify: Option<PathBuf>,

    /// List the backups in a place
    #[arg(long, value_name = "PLACE", conflicts_with_all = ["full", "every", "keep", "keyspace", "fail_on_missing", "next_within"])]
    list: Option<PathBuf>,
}

/// Makes a backup, or verifies or lists the existing ones.
///
/// # Errors
/// A sentence that says why it failed. Then no backup was made.
pub(super) fn run(args: &BackupArgs) -> Result<()> {
    match &args.what {
        What { to: Some(to), .. } => make(to, args),
        What { verify: Some(folder), .. } => verify(folder),
        What { list: Some(folder), .. } => list(folder, args.max_age),
        What { to: None, verify: None, list: None } => unreachable!("the command line requires one"),
    }
}

fn make(to: &Path, args: &BackupArgs) -> Result<()> {
    // The files contain values, and hashes of passwords.
    server::files::make_for_owner_alone();
    let backups = Backups::open(to)?;
    backups.lock()?;
    let Some(every) = args.every else { return make_one(&backups, args) };
    loop {
        let begun = Instant::now();
        if let Err(error) = make_one(&backups, args) {
            // The next one may succeed. Monitoring checks the age of the newest backup.
            let _ = writeln!(std::io::stderr(), "{}: {error:#}", moment::text(moment::now_ms()));
        }
        backups.rest();
        std::thread::sleep(every.saturating_sub(begun.elapsed()));
    }
}

fn make_one(backups: &Backups, args: &BackupArgs) -> Result<()> {
    let begun = Instant::now();
    backups.lock()?;
    let last = backups.sweep()?.pop();
    let wanted =
        Wanted { keyspaces: &args.keyspace, is_full: args.full, fails_on_missing: args.fail_on_missing };
    let made = take::take(backups, &args.connect, last, &wanted);
    if made.is_err() {
        // The next backup would remove its files, but it may be long until then.
        let _ = backups.sweep();
    }
    let Made { name, copied, continued, keys, records, bytes, missing, kept, apart, held, saved } =
        made.context("no backup was made")?;
    let mut parts = Vec::new();
    if copied > 0 {
        let (shards, keys) = (words::count(copied, "shard"), words::count(keys as usize, "key"));
        parts.push(format!("{shards} copied ({keys})"));
    }
    if continued > 0 {
        parts.push(format!("{continued} continued ({})", words::count(records as usize, "change")));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let (parts, megabytes) = (parts.join(", "), bytes as f64 / 1e6);
    say(&format!("backup {name}: {parts}, {megabytes:.1} MB written and read back in {seconds:.1} s"));
    if let Some(held) = held {
        let ms = held.as_secs_f64() * 1e3;
        say(&format!("its shards show one moment, for which commands waited {ms:.1} ms at most"));
    }
    for (prefix, why) in in_order(&apart) {
        say(&format!("not of one moment with the others: {}: {why}", named(prefix)));
    }
    for (prefix, why) in in_order(&missing) {
        let instead = match kept.get(prefix) {
            Some(shows) => format!("it stays in the backup: {shows}"),
            None => "it is not in the backup".to_owned(),
        };
        say(&format!("not saved: {}: {why}; {instead}", named(prefix)));
    }
    if let Err(error) = tell::tell(&args.connect, &saved, tell::due(args.next_within, args.every)) {
        say(&format!(
            "the cluster was not told of this backup, so quorate status and the metrics do not know of it: {error:#}"
        ));
    }
    // What is missing may be only in the old ones, with changes that show other moments.
    if let Some(keep) = args.keep.filter(|_| missing.is_empty()) {
        let removed = backups.prune(keep.into())?;
        if removed > 0 {
            say(&format!("{removed} old backups removed"));
        }
    }
    let names: Vec<String> = in_order(&missing).into_iter().map(|(prefix, _)| named(prefix)).collect();
    ensure!(missing.is_empty(), "backup {name} does not have the present {}: see above", names.join(", "));
    Ok(())
}

/// Reads all files of all backups.
fn verify(path: &Path) -> Result<()> {
    let place = Backups::open(path)?;
    let backups = place.some()?;
    let (mut progress, mut bytes) = (Progress::begin(), 0);
    // The result for each file: later backups need the same files.
    let mut found: BTreeMap<&str, Option<String>> = BTreeMap::new();
    let mut damaged = 0;
    for backup in &backups {
        let shards = backup.keyspaces.iter().flat_map(|keyspace| &keyspace.shards);
        let mut wrong = Vec::new();
        for shard in shards {
            let keys = &shard.keys;
            let of_keys = found.entry(&keys.path).or_insert_with(|| {
                bytes += keys.sums.bytes;
                let read = take::check_keys(&place, &keys.path, &keys.sums);
                let read = read.and_then(|types| {
                    ensure!(types == keys.types, "there are {types:?}, and should be {:?}", keys.types);
                    Ok(())
                });
                read.err().map(|error| format!("{error:#}"))
            });
            wrong.extend(of_keys.as_ref().map(|why| format!("{}: {why}", keys.path)));
            for changes in &shard.changes {
                let of_changes = found.entry(&changes.path).or_insert_with(|| {
                    bytes += changes.sums.bytes;
                    let read = take::check_changes(&place, changes);
                    read.err().map(|error| format!("{error:#}"))
                });
                wrong.extend(of_changes.as_ref().map(|why| format!("{}: {why}", changes.path)));
            }
            progress.show_bytes(bytes, None);
        }
        damaged += usize::from(!wrong.is_empty());
        match wrong.is_empty() {
            true => say(&format!("{}: whole", backup.name)),
            false => say(&format!("{}: damaged: {}", backup.name, wrong.join("; "))),
        }
    }
    let seconds = progress.end().as_secs_f64();
    say(&format!("{} files, {:.1} MB, read in {seconds:.1} s", found.len(), bytes as f64 / 1e6));
    ensure!(damaged == 0, "{damaged} of {} backups are damaged: see above", backups.len());
    Ok(())
}

/// Keyspaces, by prefix, in the order of people.
fn in_order<T>(keyspaces: &BTreeMap<String, T>) -> Vec<(&String, &T)> {
    let mut ordered: Vec<_> = keyspaces.iter().collect();
    ordered.sort_by_cached_key(|(prefix, _)| words::natural(prefix));
    ordered
}

/// Lists backups, and checks that the newest one is new enough.
fn list(path: &Path, age_max: Option<Duration>) -> Result<()> {
    let backups = Backups::open(path)?.some()?;
    for backup in &backups {
        say(&format!("{}  cluster '{}', {}", backup.name, backup.cluster.name, described(backup)?));
        let mut keyspaces: Vec<_> = backup.keyspaces.iter().collect();
        keyspaces.sort_by_cached_key(|it| words::natural(&it.prefix));
        for keyspace in keyspaces {
            say(&format!("    keyspace '{}': {}", keyspace.name(), choose::reach(keyspace)));
        }
        if let Some(at_ms) = backup.together_ms {
            say(&format!("    all shards that it has saved are as at one moment, {}", moment::text(at_ms)));
        }
        for (prefix, why) in in_order(&backup.apart) {
            say(&format!("    not of one moment with the others: {}: {why}", named(prefix)));
        }
        for (prefix, why) in in_order(&backup.missing) {
            say(&format!("    not saved at that time: {}: {why}", named(prefix)));
        }
    }
    let (Some(age_max), Some(newest)) = (age_max, backups.last()) else { return Ok(()) };
    let since_ms = moment::now_ms().saturating_sub(age_max.as_millis() as u64);
    let old = choose::older_than(newest, since_ms);
    ensure!(old.is_empty(), "not saved since {}: {}", moment::text(since_ms), old.join("; "));
    Ok(())
}

fn described(backup: &Manifest) -> Result<String> {
    let own = backup.files().filter(|(path, _)| path.split('/').next() == Some(backup.name.as_str()));
    let own: u64 = own.map(|(_, sums)| sums.bytes).sum();
    let all: u64 = backup.files().map(|(_, sums)| sums.bytes).sum();
    let seconds = backup.ended_ms.checked_sub(backup.begun_ms).context("it ended before it began")? / 1000;
    Ok(format!(
        "{:.1} MB, {:.1} MB with what it goes on from, made in {seconds} s by version {}",
        own as f64 / 1e6,
        all as f64 / 1e6,
        backup.program
    ))
}

//! Restores a backup into a running cluster, which keeps its own identity: its nodes, its secret, its members.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use cluster::control::ClusterMap;
use contents::changes;
use contents::digest::digest;
use contents::keys::{self, Destination, Rules, Sink};
use contents::state::State;
use node::database_named;
use rdb::file::FileReader;
use rdb::write::{put_text, tag};
use rdb::{Kind, payload};
use server::status::words;

use super::super::import::Importer;
use super::super::live::Compare;
use super::super::source::{Source, scanned, unfit};
use super::super::{LATE, Progress, databases, key_count, select, string_bytes_max};
use super::backups::Backups;
use super::choose::{self, Chosen, Plan};
use super::manifest::{Keyspace, Shard, named};
use super::moment;
use super::take::storages;
use crate::connection::{ANSWER_WITHIN, Client, Connect, Reply, Role, map_of, put_request};
use crate::output::say;

const EXAMPLES: &str = "\
Examples:
  quorate restore --from /backup/shop --dry-run                  what would be restored, after all files were read
  quorate restore --from /backup/shop --addr 10.0.1.1:7000       the newest backup
  quorate restore --from s3://backups/shop --addr 10.0.1.1:7000  from an object store
  quorate restore --from /backup/shop --addr 10.0.1.1:7443 --cacert authority.crt   over TLS
  quorate restore --from /backup/shop --addr 10.0.1.1:7000 --until 2026-11-26T21:59:00Z
  quorate restore --from /backup/shop --addr 10.0.0.7:7000 --keyspace cart: --same-cluster --empty-first

The cluster is a new one, with its own secret: quorate cluster, or quorate server on each node. Missing keyspaces
are made with the settings that they had; existing ones keep theirs. To repeat an interrupted restore, add --empty-first.";

/// About this many keys are compared, unless all are.
const SAMPLE: u64 = 10_000;

/// How many keys are compared together.
const COMPARED: usize = 50;

/// Restore a backup into a running cluster
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RestoreArgs {
    /// Where the backups are: a folder, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "PLACE")]
    from: PathBuf,

    #[command(flatten)]
    connect: Connect,

    /// The moment to restore, in UTC, as 2026-11-26T21:59:00Z [default: the newest backup]
    #[arg(long, value_name = "TIME", value_parser = moment::parse, conflicts_with = "backup")]
    until: Option<u64>,

    /// The backup to restore, as --list names it [default: the newest]
    #[arg(long, value_name = "NAME")]
    backup: Option<String>,

    /// Restore only the keyspace with this prefix, without users and functions; repeat it for several, "" is the default one
    #[arg(long, value_name = "PREFIX")]
    keyspace: Vec<String>,

    /// Only read the files, and show what would be restored
    #[arg(long)]
    dry_run: bool,

    /// Remove all keys of the cluster first; with --keyspace, those of these keyspaces
    #[arg(long)]
    empty_first: bool,

    /// Restore into the cluster that the backup was made of
    #[arg(long)]
    same_cluster: bool,

    /// How many keys are compared at the end
    #[arg(long, value_enum, default_value = "sample")]
    compare: Compare,
}

/// Restores a backup.
///
/// # Errors
/// A sentence that says what was not restored.
pub(in super::super) fn run(args: &RestoreArgs) -> Result<()> {
    let place = Backups::open(&args.from)?;
    let backups = match &args.backup {
        Some(name) => vec![place.get(name)?],
        None => place.some()?,
    };
    let mut plan = match args.until {
        Some(until_ms) => choose::at(&backups, until_ms)?,
        None => choose::newest(&backups)?,
    };
    say(&format!("backup {} of cluster '{}'", plan.base.name, plan.base.cluster.name));
    narrow(&mut plan, &args.keyspace)?;
    for (prefix, why) in &plan.base.missing {
        if args.keyspace.is_empty() || args.keyspace.contains(prefix) {
            let is_older = plan.keyspaces.iter().any(|chosen| chosen.keyspace.prefix == *prefix);
            let instead = if is_older { "it is from an earlier one" } else { "no earlier one has it" };
            say(&format!("{} was not saved by this backup, and {instead}: {why}", named(prefix)));
        }
    }
    for chosen in &plan.keyspaces {
        let keys: u64 = chosen.keyspace.shards.iter().flat_map(|shard| shard.keys.types.values()).sum();
        let records: u64 = chosen
            .keyspace
            .shards
            .iter()
            .flat_map(|shard| &shard.changes)
            .map(|changes| changes.records)
            .sum();
        let name = chosen.keyspace.name();
        let (keys, changes) = (words::count(keys as usize, "key"), words::count(records as usize, "change"));
        say(&format!("keyspace '{name}': {}, {keys} and up to {changes}", chosen.shows));
    }
    if !args.dry_run {
        // Reading the files may take hours: what keeps this cluster from taking them is said before.
        target(args, &plan)?;
    }
    // A damaged file is found before anything is changed.
    check_files(&place, &plan)?;
    if args.dry_run {
        return Ok(());
    }
    Restoring::begin(args, &place, &plan)?.run()
}

/// Connects to the cluster that the backup is restored into, and checks that it may be. Nothing is changed.
fn target(args: &RestoreArgs, plan: &Plan<'_>) -> Result<Source> {
    let mut source = Source::find(&args.connect, Role::Changes)?;
    let is_same = !storages(&source.map).is_disjoint(&plan.base.cluster.storages);
    ensure!(
        !is_same || args.same_cluster,
        "the cluster at {} is the one that the backup is of: make a new one, or give --same-cluster",
        source.cluster.addresses[0]
    );
    if args.empty_first {
        return Ok(source);
    }
    if args.keyspace.is_empty() {
        let count = key_count(&mut source.client)?;
        ensure!(
            count == 0,
            "the cluster has {}: a backup is restored into an empty one; --empty-first removes what is there",
            words::count(count as usize, "key")
        );
    }
    for prefix in &args.keyspace {
        if source.map.keyspaces.contains_key(prefix) {
            check_empty(&mut source, prefix).with_context(|| named(prefix))?;
        }
    }
    Ok(source)
}

/// Leaves only the keyspaces with these prefixes, if any are given.
fn narrow(plan: &mut Plan<'_>, prefixes: &[String]) -> Result<()> {
    for prefix in prefixes {
        let names: Vec<String> =
            plan.keyspaces.iter().map(|chosen| format!("\"{}\"", chosen.keyspace.prefix)).collect();
        let is_there = plan.keyspaces.iter().any(|chosen| chosen.keyspace.prefix == *prefix);
        ensure!(is_there, "the backup has no keyspace \"{prefix}\": it has {}", names.join(", "));
    }
    plan.keyspaces.retain(|chosen| prefixes.is_empty() || prefixes.contains(&chosen.keyspace.prefix));
    Ok(())
}

fn check_files(place: &Backups, plan: &Plan<'_>) -> Result<()> {
    let (mut progress, mut bytes) = (Progress::begin(), 0);
    let shards = || plan.keyspaces.iter().flat_map(|chosen| &chosen.keyspace.shards);
    let all: u64 = shards().flat_map(Shard::files).map(|(_, sums)| sums.bytes).sum();
    for (path, sums) in shards().flat_map(Shard::files) {
        place.read(path, sums)?.read_out().with_context(|| place.name_of(path))?;
        bytes += sums.bytes;
        progress.show_bytes(bytes, Some(bytes as f64 / all.max(1) as f64));
    }
    let seconds = progress.end().as_secs_f64();
    say(&format!("{:.1} MB read, and undamaged, in {seconds:.1} s", bytes as f64 / 1e6));
    Ok(())
}

/// A restore in progress.
struct Restoring<'r> {
    place: &'r Backups,
    plan: &'r Plan<'r>,
    compare: Compare,
    /// Whether everything is restored: also users and functions.
    is_whole: bool,
    map: ClusterMap,
    /// A separate connection for everything except keys.
    client: Client,
    sampler: Sampler,
    all_bytes: u64,
    before_bytes: u64,
}

impl<'r> Restoring<'r> {
    /// Connects to the cluster, and empties it if that is wanted.
    fn begin(args: &RestoreArgs, place: &'r Backups, plan: &'r Plan<'r>) -> Result<Restoring<'r>> {
        let mut source = target(args, plan)?;
        let is_whole = args.keyspace.is_empty();
        if args.empty_first
            && let Err(error) = make_room(&mut source, &args.keyspace)
        {
            say(&format!(
                "waiting for {} s, until what was sent to the cluster cannot be done any more",
                LATE.as_secs()
            ));
            std::thread::sleep(LATE);
            return Err(error);
        }
        let Source { mut client, cluster, map } = source;
        let shards = || plan.keyspaces.iter().flat_map(|chosen| &chosen.keyspace.shards);
        let all_bytes = shards().map(|shard| shard.keys.sums.bytes).sum();
        let keys: u64 = shards().flat_map(|shard| shard.keys.types.values()).sum();
        let step = match args.compare {
            Compare::Whole => 1,
            Compare::Sample => (keys / SAMPLE).max(1),
            Compare::None => u64::MAX,
        };
        let string_bytes_max = string_bytes_max(&mut client)?;
        let (connection, destinations) = (cluster.open(ANSWER_WITHIN)?.1, BTreeMap::new());
        let importer = Importer::new(Some(connection), string_bytes_max, destinations, true);
        let sampler = Sampler { importer, database: 0, step, seen: 0, samples: Vec::new(), left_out: 0 };
        let compare = args.compare;
        Ok(Restoring { place, plan, compare, is_whole, map, client, sampler, all_bytes, before_bytes: 0 })
    }

    fn run(mut self) -> Result<()> {
        let plan = self.plan;
        for chosen in &plan.keyspaces {
            self.make(chosen.keyspace)?;
        }
        // Includes the keyspaces that were just made.
        self.map = map_of(&mut self.client)?;
        if self.is_whole {
            self.restore_functions()?;
        }
        for chosen in &plan.keyspaces {
            for shard in &chosen.keyspace.shards {
                let restored = self.restore(chosen, shard);
                restored.with_context(|| format!("keyspace '{}'", chosen.keyspace.name())).context(
                    "not everything was restored: when that is fixed, run the same command again with --empty-first",
                )?;
                self.before_bytes += shard.keys.sums.bytes;
            }
        }
        self.sampler.importer.settled()?;
        self.sampler.importer.report("restored:");
        let restored = self.sampler.importer.conclude("restored");
        let users = if self.is_whole { self.restore_users() } else { Ok(()) };
        let compared = match self.compare {
            Compare::None => Ok(()),
            Compare::Sample | Compare::Whole => self.compare(),
        };
        restored.and(users).and(compared)
    }

    /// Makes a keyspace with the settings that it had, unless it exists.
    fn make(&mut self, keyspace: &Keyspace) -> Result<()> {
        let name = keyspace.name();
        let now = match self.client.ask(&[b"KEYSPACE", b"GET", keyspace.prefix.as_bytes()])? {
            Reply::Array(words) => Some(settings_of(words)?),
            Reply::Error(error) if error.starts_with("NOTFOUND ") => None,
            other => return Err(unfit("KEYSPACE GET", &other)),
        };
        let Some(now) = now else {
            let words = keyspace.settings.iter().filter(|(name, value)| self.has_meaning(name, value));
            let words: Vec<String> = words.map(|(name, value)| format!("{name}={value}")).collect();
            let mut request: Vec<&[u8]> = vec![b"KEYSPACE", b"CREATE", keyspace.prefix.as_bytes()];
            request.extend(words.iter().map(String::as_bytes));
            // A new cluster is at the lowest level for a moment, and that level has no databases.
            const TRIES: usize = 50;
            let mut reply = self.client.ask(&request)?;
            for _ in 0..TRIES {
                if !matches!(&reply, Reply::Error(error) if error.starts_with("TRYAGAIN LEVEL ")) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(200));
                reply = self.client.ask(&request)?;
            }
            return done(reply).with_context(|| {
                format!(
                    "keyspace '{name}' cannot be made as it was: make it yourself with the settings that it shall have \
                     (quorate keyspace create), and restore again"
                )
            });
        };
        // The default keyspace always exists.
        for (setting, value) in &keyspace.settings {
            let before = now.get(setting);
            if before == Some(value) || !self.has_meaning(setting, value) {
                continue;
            }
            let is_set = keyspace.prefix.is_empty() && {
                let word = format!("{setting}={value}");
                done(self.client.ask(&[b"KEYSPACE", b"SET", b"", word.as_bytes()])?).is_ok()
            };
            if !is_set {
                let before = before.map_or("not known", String::as_str);
                say(&format!("keyspace '{name}': {setting} is {before} here, and was {value}"));
            }
        }
        Ok(())
    }

    /// Whether a setting has the same meaning here: a setting may name a node that does not exist here.
    fn has_meaning(&self, name: &str, value: &str) -> bool {
        name != "leader" || value.parse().is_ok_and(|node| node == 0 || self.map.nodes.contains_key(&node))
    }

    fn restore_functions(&mut self) -> Result<()> {
        let plan = self.plan;
        let digits = plan.base.functions.as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let payload: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        let payload = payload.context("the manifest has no functions")?;
        done(self.client.ask(&[b"FUNCTION", b"RESTORE", &payload, b"REPLACE"])?)
            .context("the functions cannot be restored")
    }

    /// Restores all users except the default one, whose rights this restore needs.
    fn restore_users(&mut self) -> Result<()> {
        let Reply::Array(now) = self.client.ask(&[b"ACL", b"LIST"])? else {
            bail!("ACL LIST answers with no list")
        };
        let now: Vec<Vec<u8>> = now.into_iter().filter_map(Reply::bytes).collect();
        let (plan, mut count) = (self.plan, 0);
        for line in &plan.base.users {
            let mut words = line.split(' ').skip(1);
            let name = words.next().context("the manifest has a user without a name")?;
            if name == "default" {
                if !now.iter().any(|other| other == line.as_bytes()) {
                    say(
                        "user 'default' keeps the rules that it has here; those that it had are in the manifest",
                    );
                }
                continue;
            }
            let mut request: Vec<&[u8]> = vec![b"ACL", b"SETUSER", name.as_bytes(), b"reset"];
            request.extend(words.map(str::as_bytes));
            done(self.client.ask(&request)?).with_context(|| format!("user '{name}' cannot be restored"))?;
            count += 1;
        }
        if count > 0 {
            say(&format!("{count} users restored"));
        }
        Ok(())
    }

    fn restore(&mut self, chosen: &Chosen<'_>, shard: &Shard) -> Result<()> {
        let place = self.place;
        let keys = place.read(&shard.keys.path, &shard.keys.sums)?;
        let name = || place.name_of(&shard.keys.path);
        self.sampler.importer.set_destination(Destination::of_keyspace(&chosen.keyspace.prefix));
        let rules = self.sampler.importer.rules().clone();
        let has_changes = shard.changes.iter().any(|changes| changes.records > 0);
        self.sampler.importer.begin_file(self.before_bytes, self.all_bytes);
        if !has_changes {
            return read(keys, &rules, &mut self.sampler).with_context(name);
        }
        let mut state = State::default();
        // The state is read as of then, so no key counts as expired, however long ago that was.
        let all = Rules { expired_ms: 0, string_bytes_max: usize::MAX, ..rules.clone() };
        read(keys, &all, &mut state).with_context(name)?;
        'files: for file in &shard.changes {
            let name = || place.name_of(&file.path);
            let open = place.read(&file.path, &file.sums)?;
            let mut reader = changes::Reader::new(open, file.sums.bytes, file.from).with_context(name)?;
            while let Some(record) = reader.record().with_context(name)? {
                // Times may go back a little; versions never do. So the moment is before the first record with a
                // later time.
                if record.time_ms > chosen.until_ms {
                    break 'files;
                }
                state.apply(&record).with_context(name)?;
            }
        }
        read(state.into_file(), &rules, &mut self.sampler)
    }

    /// Compares keys of the cluster with what was sent.
    fn compare(&mut self) -> Result<()> {
        let (mut different, mut expired, mut compared) = (Vec::new(), 0, 0);
        let mut progress = Progress::begin();
        let samples = std::mem::take(&mut self.sampler.samples);
        let runs = samples.chunk_by(|one, next| one.database == next.database);
        for some in runs.flat_map(|run| run.chunks(COMPARED)) {
            select(&mut self.client, some[0].database)?;
            let mut requests = Vec::new();
            for sample in some {
                let has_registers = self.has_registers(sample);
                put_request(&[b"PEXPIRETIME", &sample.key], &mut requests);
                put_request(&[if has_registers { &b"GET"[..] } else { b"DUMP" }, &sample.key], &mut requests);
            }
            self.client.send(&requests)?;
            for sample in some {
                let (deadline, value) = (self.client.reply()?, self.client.reply()?);
                let found = match &value {
                    Reply::Bulk(text) if self.has_registers(sample) => digest(&payload_of(text)),
                    Reply::Bulk(payload) => digest(payload),
                    _ => None,
                };
                let wanted = sample.deadline_ms.map_or(-1, |deadline| deadline as i64);
                let is_due = sample.deadline_ms.is_some_and(|deadline| deadline <= moment::now_ms());
                match (found == Some(sample.digest) && deadline == Reply::Integer(wanted), &value) {
                    (true, _) => compared += 1,
                    (false, Reply::Null) if is_due => expired += 1,
                    (false, _) => different.push(sample.key.escape_ascii().to_string()),
                }
            }
            progress.show(compared, None);
        }
        progress.end();
        let mut line = format!("{} compared", words::count(compared as usize, "key"));
        if expired > 0 {
            line += &format!(", {expired} have expired since");
        }
        if self.sampler.left_out > 0 {
            line += &format!(", {} large values were not compared", self.sampler.left_out);
        }
        let sent = self.sampler.importer.count();
        if self.is_whole {
            let count = key_count(&mut self.client)?;
            let has = words::count(count as usize, "key");
            say(&format!("{line}; the cluster has {has}"));
            ensure!(
                count <= sent,
                "the cluster has {has}, and restored: {sent}; another client writes to it"
            );
        } else {
            say(&line);
        }
        if let Some(first) = different.first() {
            bail!("not what was restored: {}, such as \"{first}\"", words::count(different.len(), "key"));
        }
        Ok(())
    }

    fn has_registers(&self, sample: &Sample) -> bool {
        let fitting =
            self.map.keyspaces.iter().filter(|(prefix, _)| match database_named(prefix.as_bytes()) {
                0 => sample.database == 0 && sample.key.starts_with(prefix.as_bytes()),
                database => sample.database == database,
            });
        let own = fitting.max_by_key(|(prefix, _)| prefix.len());
        own.is_some_and(|(_, entry)| entry.keyspace.replication.has_registers())
    }
}

/// Checks that a keyspace is empty. Database 0 is selected afterwards.
fn check_empty(source: &mut Source, prefix: &str) -> Result<()> {
    let mut walk = source.walk(prefix)?;
    while let Some(keys) = walk.step(&mut source.client, b"1000")? {
        ensure!(
            keys.is_empty(),
            "it has keys here: a keyspace is restored into an empty one; --empty-first removes them"
        );
    }
    select(&mut source.client, 0)
}

/// Removes the keys of these keyspaces, or all.
fn make_room(source: &mut Source, prefixes: &[String]) -> Result<()> {
    if prefixes.is_empty() && key_count(&mut source.client)? > 0 {
        empty(&mut source.client, &source.map).context("the cluster cannot be emptied")?;
    }
    for prefix in prefixes {
        if source.map.keyspaces.contains_key(prefix) {
            empty_keyspace(source, prefix).with_context(|| named(prefix))?;
        }
    }
    Ok(())
}

/// Removes the keys of a keyspace. Database 0 is selected afterwards.
fn empty_keyspace(source: &mut Source, prefix: &str) -> Result<()> {
    let mut walk = source.walk(prefix)?;
    while let Some(keys) = walk.step(&mut source.client, b"1000")? {
        remove(&mut source.client, &keys)?;
    }
    select(&mut source.client, 0)
}

/// Removes all keys of a cluster. Database 0 is selected, before and after.
fn empty(client: &mut Client, map: &ClusterMap) -> Result<()> {
    let with_registers: BTreeSet<u8> = map
        .keyspaces
        .iter()
        .filter(|(_, entry)| entry.keyspace.replication.has_registers())
        .map(|(prefix, _)| database_named(prefix.as_bytes()))
        .collect();
    if with_registers.is_empty() {
        return done(client.ask(&[b"FLUSHALL"])?);
    }
    for database in databases(client)? {
        select(client, database)?;
        match with_registers.contains(&database) {
            // Keyspaces of registers cannot be emptied at once.
            true => remove_one_by_one(client)?,
            false => done(client.ask(&[b"FLUSHDB"])?)?,
        }
    }
    select(client, 0)
}

/// Removes these keys.
fn remove(client: &mut Client, keys: &[Vec<u8>]) -> Result<()> {
    let mut requests = Vec::new();
    keys.iter().for_each(|key| put_request(&[b"DEL", key], &mut requests));
    client.send(&requests)?;
    keys.iter().try_for_each(|_| done(client.reply()?))
}

/// Removes all keys of the selected database.
fn remove_one_by_one(client: &mut Client) -> Result<()> {
    let (mut progress, mut removed, mut cursor) = (Progress::begin(), 0, b"0".to_vec());
    loop {
        let (next, keys) = scanned(client.ask(&[b"SCAN", &cursor, b"COUNT", b"1000"])?)?;
        remove(client, &keys)?;
        removed += keys.len() as u64;
        progress.show(removed, None);
        cursor = next;
        if cursor == b"0" {
            progress.end();
            return Ok(());
        }
    }
}

/// Reads a file of keys to its end.
fn read(from: impl Read, rules: &Rules, sink: &mut impl Sink) -> Result<()> {
    let mut file = FileReader::new(from)?;
    keys::read(&mut file, rules, sink)?;
    // The last checksum is compared at the end.
    let behind = std::io::copy(&mut file.into_inner(), &mut std::io::sink())?;
    ensure!(behind == 0, "there are {behind} bytes behind its end");
    Ok(())
}

fn settings_of(words: Vec<Reply>) -> Result<BTreeMap<String, String>> {
    let text = |reply: Reply| reply.bytes().map(|text| String::from_utf8_lossy(&text).into_owned());
    let words: Option<Vec<String>> = words.into_iter().map(text).collect();
    let words = words.context("the answer to KEYSPACE GET is not text")?;
    Ok(words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
}

fn done(reply: Reply) -> Result<()> {
    match reply {
        Reply::Error(error) => bail!("{error}"),
        _ => Ok(()),
    }
}

/// A string as a DUMP payload.
fn payload_of(text: &[u8]) -> Vec<u8> {
    let mut payload = vec![tag::STRING];
    put_text(text, &mut payload);
    payload::close(payload::VERSION, 0, &mut payload);
    payload
}

/// A key that will be compared.
struct Sample {
    database: u8,
    key: Vec<u8>,
    deadline_ms: Option<u64>,
    digest: u64,
}

/// Sends keys to the cluster, and remembers some to compare.
struct Sampler {
    importer: Importer,
    /// The database that keys go to.
    database: u8,
    /// One key of this many is remembered.
    step: u64,
    seen: u64,
    samples: Vec<Sample>,
    /// Keys that would have been remembered, but are too large.
    left_out: u64,
}

impl Sampler {
    fn is_wanted(&mut self) -> bool {
        self.seen += 1;
        self.step != u64::MAX && self.seen.is_multiple_of(self.step)
    }

    fn remember(&mut self, key: &[u8], deadline_ms: Option<u64>, payload: &[u8]) {
        match digest(payload) {
            Some(digest) => {
                let database = self.database;
                self.samples.push(Sample { database, key: key.to_vec(), deadline_ms, digest });
            }
            None => self.left_out += 1,
        }
    }
}

impl Sink for Sampler {
    fn select(&mut self, database: u8) -> Result<()> {
        self.database = database;
        self.importer.select(database)
    }

    fn text(&mut self, key: &[u8], deadline_ms: Option<u64>, text: &[u8]) -> Result<()> {
        if self.is_wanted() {
            self.remember(key, deadline_ms, &payload_of(text));
        }
        self.importer.text(key, deadline_ms, text)
    }

    fn payload(&mut self, key: &[u8], deadline_ms: Option<u64>, kind: Kind, payload: &[u8]) -> Result<()> {
        if self.is_wanted() {
            self.remember(key, deadline_ms, payload);
        }
        self.importer.payload(key, deadline_ms, kind, payload)
    }

    fn begin_pieces(&mut self, key: &[u8]) -> Result<bool> {
        self.left_out += u64::from(self.is_wanted());
        self.importer.begin_pieces(key)
    }

    fn piece(&mut self, key: &[u8], request: &[u8]) -> Result<()> {
        self.importer.piece(key, request)
    }

    fn end_pieces(&mut self, key: &[u8], deadline_ms: Option<u64>, kind: Kind) -> Result<()> {
        self.importer.end_pieces(key, deadline_ms, kind)
    }

    fn refuse(&mut self, reason: &str, what: &[u8]) -> Result<()> {
        self.importer.refuse(reason, what)
    }

    fn expired(&mut self) {
        self.importer.expired();
    }

    fn reached(&mut self, bytes: u64) -> Result<()> {
        self.importer.reached(bytes)
    }
}

//! `quorate import redis://…`: imports the keys of a running server while it serves.
//!
//! The import is a replica of the server. Its position in the server's stream of commands is kept in the cluster, and
//! written together with the effects of the commands, so an interruption loses and repeats nothing. If the server no longer
//! has the commands after that position, the cluster is emptied and the snapshot taken again.
//!
//! Reading order: [`link`] (a server's replica) over [`spool`] (bytes that wait), [`lane`] (transactions that take effect
//! exactly once), [`routes`] (which group has a key), [`rewrite`] (commands, and why deadlines are put off), [`worker`]
//! (from the snapshot to the end), this file (phases and progress), [`handover`] (what follows).

mod handover;
mod lane;
mod link;
mod rewrite;
mod routes;
mod spool;
mod worker;

use std::collections::BTreeMap;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};

use super::{Refusals, select};
use crate::connection::{ANSWER_WITHIN, Client, Connect, FOR_OLD_SERVERS, Reply, Role, Tls, Trust, map_of};
use crate::output::say;
use contents::keys::{Destination, Rules};
use handover::{Asking, Compared};
use lane::Target;
use link::Address;
use routes::Routes;
use server::status::words;
use worker::{Import, Origin, Position, Report};

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Keys of a server that are compared by [`Compare::Sample`].
const SAMPLE: u64 = 10_000;

/// Options for a running server.
#[derive(Args)]
pub(crate) struct LiveArgs {
    /// Of a running server: end by itself at this moment, instead of at Enter
    #[arg(long, value_enum, value_name = "WHEN")]
    until: Option<Until>,

    /// Of a running server: remove all keys of the cluster first
    #[arg(long)]
    empty_first: bool,

    /// Of a running server: which keys to compare at the end
    #[arg(long, value_enum, default_value = "sample")]
    compare: Compare,

    /// Of a running server: where to keep the data that it sends faster than the cluster stores it [default: the
    /// system's folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    spool: Option<PathBuf>,

    /// Of a running server: the maximum size of that data, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    spool_max: u64,

    #[command(flatten)]
    tls: TlsArgs,
}

/// Options for TLS with a running server.
#[derive(Args, Default)]
struct TlsArgs {
    /// Of a server with TLS: a file with the certificates of the authorities to trust, in PEM [default: those that this
    /// machine trusts]
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,

    /// Of a server with TLS that requires one: a file with this client's certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The private key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Of a server with TLS: the name that its certificate, and those of all shards, must have [default: its host]
    #[arg(long, value_name = "NAME", conflicts_with = "tls_any_name")]
    tls_server_name: Option<String>,

    /// Of a server with TLS: accept a certificate with any name, as replicas of Redis do. It must come from a trusted
    /// authority
    #[arg(long)]
    tls_any_name: bool,
}

impl TlsArgs {
    fn trust(&self) -> Trust {
        Trust {
            authority: self.tls_ca.clone(),
            own: self.tls_cert.clone().zip(self.tls_key.clone()),
            name: self.tls_server_name.clone(),
            takes_any_name: self.tls_any_name,
        }
    }

    fn is_used(&self) -> bool {
        self.trust() != Trust::default()
    }
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Until {
    /// When everything that the server has executed has arrived: its clients must have stopped writing
    CaughtUp,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(super) enum Compare {
    /// About ten thousand (of each server and database), and the number of keys
    Sample,
    /// All
    Whole,
    /// None
    None,
}

/// Why a whole snapshot must be taken, into an empty cluster.
#[derive(Debug)]
struct StartAgain(String);

/// The schemes of a server's URL, before `://`. With an `s` at the end the server speaks TLS.
const SCHEMES: [&str; 4] = ["redis", "rediss", "valkey", "valkeys"];

/// The server that a text names, if it names one.
///
/// # Errors
/// It names a server in an unknown form.
fn server(text: &str, tls: &TlsArgs) -> Result<Option<Address>> {
    const FORM: &str = "write redis://[user:password@]HOST:PORT, or rediss:// for TLS";
    let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| SCHEMES.contains(scheme)) else {
        return Ok(None);
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (credentials, host) = match rest.rsplit_once('@') {
        None => (Vec::new(), rest),
        Some((login, host)) => {
            let words = login.split_once(':').with_context(|| FORM)?;
            let words = [words.0, words.1].into_iter().filter(|word| !word.is_empty());
            (words.map(decoded).collect::<Result<_>>()?, host)
        }
    };
    ensure!(!host.contains('/'), "{FORM}: databases are chosen by --database");
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    ensure!(has_port, "{FORM}: \"{host}\" has no port");
    let is_sealed = ["rediss", "valkeys"].contains(&scheme);
    ensure!(is_sealed || !tls.is_used(), "options for TLS are for rediss://, and this is {scheme}://");
    let tls = is_sealed.then(|| Tls::new(&tls.trust(), &FOR_OLD_SERVERS)).transpose()?;
    Ok(Some(Address { server: host.to_owned(), credentials, tls }))
}

/// A part of a URL with its percent signs resolved.
fn decoded(text: &str) -> Result<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let digits = rest.split_at_checked(2).context("a percent sign without two digits")?;
        let number = std::str::from_utf8(digits.0).ok().and_then(|it| u8::from_str_radix(it, 16).ok());
        bytes.push(number.context("a percent sign without two digits")?);
        rest = digits.1;
    }
    String::from_utf8(bytes).context("a password that is no text")
}

/// Whether this names a running server.
pub(super) fn is_server(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| SCHEMES.contains(&scheme))
}

/// Imports the keys of a running server. `goes_on`: see [`Rules`].
///
/// # Errors
/// A sentence that says why it ended, or which keys differ.
pub(super) fn run(
    from: &str,
    args: &LiveArgs,
    connect: &Connect,
    destinations: BTreeMap<u64, Destination>,
    goes_on: bool,
) -> Result<()> {
    let address = server(from, &args.tls)?.context("this names no server")?;
    let cluster = connect.resolve(Role::Changes)?;
    let mut client = cluster.open(ANSWER_WITHIN)?.1;
    let map = map_of(&mut client)?;
    let routes = Routes::of(&map)?;
    for destination in destinations.values() {
        select(&mut client, destination.database)?;
    }
    select(&mut client, 0)?;
    ensure!(routes.groups > 0, "the cluster has no keyspace with transactions");
    let string_bytes_max = super::string_bytes_max(&mut client)?;
    let cluster = cluster.with_others(&mut client, &map)?;
    let target = Arc::new(Target { cluster, is_over: AtomicBool::new(false) });
    let servers = servers(&address)?;
    let mut number = [0; 8];
    getrandom::fill(&mut number)?;
    let import = Import {
        target,
        routes,
        rules: Rules { destinations, expired_ms: 0, string_bytes_max, goes_on },
        run: format!("{:016x}", u64::from_le_bytes(number)),
        spool_folder: args.spool.clone().unwrap_or_else(std::env::temp_dir),
        spool_bytes: args.spool_max << 20,
        has_deadlines: AtomicBool::new(false),
        report: Mutex::new(Report::default()),
    };
    let wish = Wish::new(args.until);
    let (mut may_empty, mut may_go_on) = (args.empty_first, !args.empty_first);
    let origins = loop {
        let origins: Vec<Origin> = (0..).zip(&servers).map(|(at, it)| Origin::new(it.clone(), at)).collect();
        let found = prepare(&import, &origins, may_empty, may_go_on)?;
        match follow(&import, &origins, found, &wish) {
            Ok(()) => break origins,
            Err(error) => match error.downcast_ref::<StartAgain>() {
                Some(StartAgain(why)) => say(&format!("{why}: starting again with a snapshot")),
                None => return Err(error),
            },
        }
        // Everything in the cluster now has come from this import.
        (may_empty, may_go_on) = (true, false);
        std::thread::sleep(Duration::from_secs(1));
    };
    hand_over(&import, &origins, args.compare)
}

/// The servers that have the keys: all leaders, if it is a cluster.
fn servers(address: &Address) -> Result<Vec<Address>> {
    let mut client = address.connect()?;
    let Reply::Array(ranges) = client.ask(&[b"CLUSTER", b"SLOTS"])? else { return Ok(vec![address.clone()]) };
    let mut servers = BTreeMap::new();
    for range in ranges {
        let Reply::Array(range) = range else { continue };
        let mut parts = range.into_iter();
        let (Some(Reply::Integer(first)), _, Some(Reply::Array(leader))) =
            (parts.next(), parts.next(), parts.next())
        else {
            bail!("CLUSTER SLOTS of {} is not understood", address.server);
        };
        let mut leader = leader.into_iter();
        let (host, port) = (leader.next().and_then(Reply::bytes), leader.next());
        let Some(Reply::Integer(port)) = port else {
            bail!("CLUSTER SLOTS of {} names no port", address.server)
        };
        let given = address.server.rsplit_once(':').map_or("", |(host, _)| host);
        let host = host.and_then(|host| String::from_utf8(host).ok()).filter(|host| !host.is_empty());
        let server = format!("{}:{port}", host.as_deref().unwrap_or(given));
        let least = servers.entry(server).or_insert(first);
        *least = first.min(*least);
    }
    ensure!(!servers.is_empty(), "the cluster of {} has no slots", address.server);
    let mut servers: Vec<(i64, String)> =
        servers.into_iter().map(|(server, first)| (first, server)).collect();
    servers.sort();
    say(&format!("a cluster of {} servers", servers.len()));
    let servers: Vec<Address> =
        servers.into_iter().map(|(_, server)| Address { server, ..address.clone() }).collect();
    if address.tls.is_some() {
        // An untrusted server is found before anything is changed.
        servers.iter().try_for_each(|server| server.connect().map(drop))?;
    }
    Ok(servers)
}

/// Finds the positions of an earlier run. If they are missing for a server or group, makes sure that the cluster is
/// empty.
///
/// # Errors
/// The cluster is not empty, and may not be emptied.
fn prepare(
    import: &Import,
    origins: &[Origin],
    may_empty: bool,
    may_go_on: bool,
) -> Result<Vec<Option<Vec<Position>>>> {
    let mut asking = Asking::new(&import.target);
    let (mut found, mut is_ours) = (Vec::new(), false);
    for origin in origins {
        let mut positions = Vec::new();
        for group in 0..import.routes.groups {
            let key = origin.position_key(&import.routes, group, 0)?;
            asking.select(import.routes.database_of(group));
            if let Reply::Bulk(text) = asking.one(&[b"GET", &key])? {
                is_ours = true;
                positions.extend(Position::parse(&text));
            }
        }
        let is_complete = positions.len() == import.routes.groups;
        found.push(Some(positions).filter(|_| is_complete));
    }
    if found.iter().all(Option::is_some) && may_go_on {
        let has_deadlines = found.iter().flatten().flatten().any(|position| position.has_deadlines);
        import.has_deadlines.store(has_deadlines, Ordering::Release);
        say("continuing an interrupted import");
        return Ok(found);
    }
    let count = asking.key_count(&import.routes)?;
    if count > 0 {
        ensure!(
            is_ours || may_empty,
            "the cluster has {}: a running server is imported into an empty one; --empty-first removes what is there",
            words::count(count as usize, "key")
        );
        asking.empty().context("the cluster cannot be emptied")?;
    }
    import.has_deadlines.store(false, Ordering::Release);
    *import.report() = Report::default();
    Ok(origins.iter().map(|_| None).collect())
}

/// When the import is to end.
struct Wish {
    until: Option<Until>,
    enter: Arc<AtomicBool>,
}

impl Wish {
    fn new(until: Option<Until>) -> Wish {
        let enter = Arc::new(AtomicBool::new(false));
        if until.is_none() {
            let enter = enter.clone();
            std::thread::spawn(move || {
                let mut line = String::new();
                if std::io::stdin().lock().read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                    enter.store(true, Ordering::Release);
                }
            });
        }
        Wish { until, enter }
    }
}

/// A server's position, as the server reports it.
struct Watched {
    client: Option<Client>,
    offset: Option<u64>,
}

impl Watched {
    fn look(&mut self, origin: &Origin) {
        self.offset = self.try_to_look(origin).ok();
        if self.offset.is_none() {
            self.client = None;
        }
    }

    fn try_to_look(&mut self, origin: &Origin) -> Result<u64> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(origin.address.connect()?),
        };
        let text = client.ask(&[b"INFO", b"replication"])?.bytes().context("no INFO")?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let is_replica = text.lines().any(|line| line.trim() == "role:slave");
        let name = if is_replica { "slave_repl_offset:" } else { "master_repl_offset:" };
        let field = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name));
        if let Some(history) = field("master_replid:") {
            // A restarted server counts from another position. That its commands no longer arrive is found later.
            ensure!(origin.is_in(history), "it is in another history");
        }
        let offset = field(name);
        Ok(offset.context("INFO without an offset")?.parse()?)
    }
}

/// Takes snapshots and follows all servers until the import should end.
fn follow(import: &Import, origins: &[Origin], found: Vec<Option<Vec<Position>>>, wish: &Wish) -> Result<()> {
    import.target.is_over.store(false, Ordering::Release);
    std::thread::scope(|scope| {
        let workers: Vec<_> = origins
            .iter()
            .zip(found)
            .map(|(origin, found)| scope.spawn(move || worker::work(import, origin, found)))
            .collect();
        let mut watched: Vec<Watched> =
            origins.iter().map(|_| Watched { client: None, offset: None }).collect();
        let mut shown = Shown::begin();
        let (mut is_ending, mut looked) = (false, Instant::now());
        while !workers.iter().all(|worker| worker.is_finished()) {
            std::thread::sleep(LOOK_EVERY);
            // A worker that has ended too early has an error: end the others too.
            if !is_ending && workers.iter().any(|worker| worker.is_finished()) {
                import.target.is_over.store(true, Ordering::Release);
            }
            let are_following = origins.iter().all(|origin| origin.is_following.load(Ordering::Acquire));
            if are_following && looked.elapsed() >= Duration::from_millis(500) {
                looked = Instant::now();
                watched.iter_mut().zip(origins).for_each(|(it, origin)| it.look(origin));
            }
            let lag = lag(&watched, origins).filter(|_| are_following);
            let is_wished = match wish.until {
                Some(Until::CaughtUp) => lag == Some(0),
                None => wish.enter.load(Ordering::Acquire),
            };
            if is_wished && are_following && !is_ending {
                watched.iter_mut().zip(origins).for_each(|(it, origin)| it.look(origin));
                if watched.iter().all(|it| it.offset.is_some()) {
                    is_ending = true;
                    for (it, origin) in watched.iter().zip(origins) {
                        origin.stop_at.store(it.offset.unwrap_or(u64::MAX), Ordering::Release);
                    }
                } else {
                    say(
                        "a source does not answer, or was restarted, so it is not known what it has executed last; waiting for it",
                    );
                    std::thread::sleep(Duration::from_secs(1));
                }
            }
            shown.show(origins, are_following, lag, wish);
        }
        shown.end();
        let mut outcome: Result<()> = Ok(());
        for worker in workers {
            let ended = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // The first worker that ended has ended the others.
            outcome = match (outcome, ended) {
                (Err(first), Err(other)) if other.downcast_ref::<StartAgain>().is_some() => {
                    Err(if first.downcast_ref::<StartAgain>().is_some() { first } else { other })
                }
                (outcome @ Err(_), _) => outcome,
                (Ok(()), ended) => ended,
            };
        }
        outcome
    })
}

/// How many bytes of commands have not taken effect, of all servers. `None` if a server does not answer.
fn lag(watched: &[Watched], origins: &[Origin]) -> Option<u64> {
    let pairs = watched.iter().zip(origins);
    pairs.map(|(it, origin)| Some(it.offset?.saturating_sub(origin.applied.load(Ordering::Acquire)))).sum()
}

/// Lines of progress.
struct Shown {
    at: Instant,
    before: (u64, u64),
    is_terminal: bool,
    was_following: bool,
}

impl Shown {
    fn begin() -> Shown {
        Shown {
            at: Instant::now(),
            before: (0, 0),
            is_terminal: std::io::stderr().is_terminal(),
            was_following: false,
        }
    }

    fn show(&mut self, origins: &[Origin], are_following: bool, lag: Option<u64>, wish: &Wish) {
        let sum = |count: fn(&Origin) -> u64| origins.iter().map(count).sum::<u64>();
        let keys = sum(|origin| origin.keys.load(Ordering::Relaxed));
        let commands = sum(|origin| origin.commands.load(Ordering::Relaxed));
        if are_following && !self.was_following {
            self.was_following = true;
            self.end();
            let next = match wish.until {
                Some(Until::CaughtUp) => "it ends when everything has arrived",
                None => "stop the writers, and press Enter when the lag is 0",
            };
            // An import that continues where it was has loaded none.
            let loaded = match keys {
                0 => String::new(),
                keys => format!("the snapshot is loaded, {}; ", words::count(keys as usize, "key")),
            };
            say(&format!("{loaded}following the server's commands: {next}"));
        }
        let every = Duration::from_secs(if self.is_terminal { 1 } else { 10 });
        if self.at.elapsed() < every {
            return;
        }
        let seconds = self.at.elapsed().as_secs_f64();
        let rate = |now: u64, before: u64| (now.saturating_sub(before)) as f64 / seconds;
        let line = if are_following {
            let lag = lag.map_or("the source does not answer".into(), |lag| format!("{lag} bytes behind"));
            format!("{commands} commands, {:.0}/s, {lag}", rate(commands, self.before.1))
        } else {
            let read = sum(|origin| origin.read.load(Ordering::Relaxed)) >> 20;
            format!("{keys} keys, {:.0}/s, {read} MiB of the snapshot", rate(keys, self.before.0))
        };
        (self.at, self.before) = (Instant::now(), (keys, commands));
        let _ = match self.is_terminal {
            true => write!(std::io::stderr(), "\r{line}    "),
            false => writeln!(std::io::stderr(), "{line}"),
        };
    }

    fn end(&self) {
        if self.is_terminal {
            let _ = writeln!(std::io::stderr());
        }
    }
}

fn hand_over(import: &Import, origins: &[Origin], how: Compare) -> Result<()> {
    let mut asking = Asking::new(&import.target);
    if import.has_deadlines.load(Ordering::Acquire) {
        let mut count = 0;
        for database in import.routes.databases() {
            asking.select(database);
            count += handover::put_deadlines_right(&mut asking)?;
        }
        say(&format!("with a deadline: {}", words::count(count as usize, "key")));
    }
    let compared = match how {
        Compare::None => None,
        Compare::Sample => Some(compare(import, origins, SAMPLE, &mut asking)?),
        Compare::Whole => Some(compare(import, origins, u64::MAX, &mut asking)?),
    };
    for origin in origins {
        for group in 0..import.routes.groups {
            asking.select(import.routes.database_of(group));
            asking.one(&[b"DEL", &origin.position_key(&import.routes, group, 0)?])?;
        }
    }
    let mut report = import.report();
    let kinds: Vec<String> =
        report.kinds.iter().map(|(kind, count)| format!("{count} {}", kind.name())).collect();
    let keys: u64 = report.kinds.values().sum();
    let commands: u64 = origins.iter().map(|origin| origin.commands.load(Ordering::Relaxed)).sum();
    let (keys, commands) = (words::count(keys as usize, "key"), words::count(commands as usize, "command"));
    say(&format!("taken: {keys} of snapshots ({}), and {commands}", kinds.join(", ")));
    if report.function_commands > 0 {
        say(&format!("libraries of functions: {} commands", report.function_commands));
    }
    if report.messages > 0 {
        say(&format!("{} messages of PUBLISH were not passed on", report.messages));
    }
    report.mended.show("mended");
    let refusals = std::mem::take(&mut report.refusals);
    let mut outcome = refusals.conclude("taken");
    if let Some(compared) = compared {
        let by_length = match compared.by_length {
            0 => String::new(),
            count => format!(" ({count} large ones by their length)"),
        };
        let keys = words::count(compared.keys as usize, "key");
        say(&format!("compared: {keys}{by_length}, {} differ", compared.different));
        outcome = outcome.and(compared.differences.conclude("the same"));
    }
    if outcome.is_ok() {
        say("the cluster has everything: point the applications at it");
    }
    outcome
}

fn compare(import: &Import, origins: &[Origin], most: u64, asking: &mut Asking) -> Result<Compared> {
    let mut compared = Compared::default();
    let mut theirs = 0;
    for origin in origins {
        let mut client = origin.address.connect()?;
        for (database, destination) in &import.rules.destinations {
            if *database != 0 {
                client.ask(&[b"SELECT", database.to_string().as_bytes()])?;
            }
            theirs += handover::key_count(&client.ask(&[b"DBSIZE"])?)?;
            let between = (*database, destination);
            handover::compare(asking, &origin.address, between, most, &mut compared)?;
        }
    }
    let positions = (origins.len() * import.routes.groups) as u64;
    let ours = asking.key_count(&import.routes)?.saturating_sub(positions);
    say(&format!("keys: {theirs} at the source, {ours} in the cluster"));
    if ours > theirs {
        let mut differences = Refusals::default();
        std::mem::swap(&mut differences, &mut compared.differences);
        differences.add("there are more keys in the cluster than at the source", b"DBSIZE");
        compared.differences = differences;
    }
    Ok(compared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_several_forms_of_url() {
        let named = |text: &str| {
            let found = server(text, &TlsArgs::default());
            found.map(|it| it.map(|it| (it.server, it.credentials.join(" "))))
        };
        let is = |text: &str, server: &str, credentials: &str| {
            assert_eq!(named(text).unwrap(), Some((server.into(), credentials.into())), "{text}");
        };
        is("redis://10.0.0.7:6379", "10.0.0.7:6379", "");
        is("valkey://host:1/", "host:1", "");
        is("redis://:p%40ss@host:1", "host:1", "p@ss");
        is("redis://user:a:b@[::1]:1", "[::1]:1", "user a:b");
        assert_eq!(named("dump.rdb").unwrap(), None);
        for wrong in
            ["rediss://host", "redis://host", "redis://host:1/3", "redis://x@host:1", "redis://:%4@h:1"]
        {
            assert!(named(wrong).is_err(), "{wrong}");
        }
    }
}

//! One moment for all shards of a backup: all their keys are locked while their leaders begin the copies.
//!
//! A node locks them (`CLUSTER BACKUP LOCK`), for half a second at most. Meanwhile each leader is asked for a copy (`KEYSPACE COPY …
//! LOCKED`), which it begins only while its shard is locked. As a lock that was lost is never taken again, nothing has changed in
//! any of them since the last one was locked, so all copies show that moment (`docs/design/transactions.md`). They are read later, one
//! after the other. A shard to which only changes are added has its changes up to the version of its copy, which is not read.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use cluster::control::KeyspaceEntry;
use contents::changes::Versions;
use node::Report;

use super::super::source::{Source, unfit};
use crate::connection::{ANSWER_WITHIN, Client, Reply, put_request};

/// Length of the mark at the end of a copy.
pub(super) const MARK_BYTES: usize = 40;

/// How often it is tried to lock all keys, and the pause before it is tried again.
const ATTEMPTS: u32 = 6;
const PAUSE: Duration = Duration::from_millis(500);

/// How long a leader may be silent while all keys are locked: longer than they are.
const SILENT_WITHIN: Duration = Duration::from_secs(2);

/// The copies of one moment.
#[derive(Default)]
pub(super) struct Together {
    /// Those that were not read yet, by group.
    copies: BTreeMap<u16, (Client, Begun)>,
    /// The moment, by the clock of the cluster, in milliseconds since the Unix epoch. `None`: there is none.
    pub(super) at_ms: Option<u64>,
    /// For how long commands may have waited.
    pub(super) held: Duration,
    /// The keyspaces that are not of the moment, by prefix, and why.
    pub(super) apart: BTreeMap<String, String>,
}

/// A shard, and where its leader is.
struct Led<'e> {
    prefix: &'e str,
    shard: usize,
    group: u16,
    address: String,
}

/// Why an attempt has failed.
enum Failed {
    /// The next one may succeed.
    Passing(anyhow::Error),
    Final(anyhow::Error),
}

impl From<anyhow::Error> for Failed {
    fn from(error: anyhow::Error) -> Failed {
        Failed::Passing(error)
    }
}

impl Together {
    /// Begins the copies of these keyspaces, of those shards that have a leader. With less than two shards there is nothing to do.
    pub(super) fn begin(source: &mut Source, entries: &[(String, KeyspaceEntry)]) -> Together {
        let mut together = Together::default();
        if entries.iter().map(|(_, entry)| entry.groups.len()).sum::<usize>() < 2 {
            return together;
        }
        let mut wanted = Vec::new();
        for (prefix, entry) in entries {
            match entry.keyspace.takes_part() {
                Ok(()) => wanted.push((prefix.as_str(), entry.groups.as_slice())),
                Err(why) => {
                    together.apart.insert(prefix.clone(), format!("it {why}"));
                }
            }
        }
        let mut why = None;
        for attempt in 0..if wanted.is_empty() { 0 } else { ATTEMPTS } {
            if attempt > 0 {
                std::thread::sleep(PAUSE);
            }
            match together.attempt(source, &wanted, attempt + 1 == ATTEMPTS) {
                Ok(()) => return together,
                Err(Failed::Passing(error)) => why = Some(error),
                Err(Failed::Final(error)) => {
                    why = Some(error);
                    break;
                }
            }
        }
        if let Some(why) = why {
            let why = format!("all shards could not be locked at one moment: {why:#}");
            together.apart.extend(wanted.iter().map(|(prefix, _)| ((*prefix).to_owned(), why.clone())));
            // Replies may be under way.
            let _ = source.connect_again();
        }
        together
    }

    /// Tries it once. `is_last`: without keyspaces that have no leader.
    fn attempt(
        &mut self,
        source: &mut Source,
        wanted: &[(&str, &[u16])],
        is_last: bool,
    ) -> Result<(), Failed> {
        let (led, mut apart) = source.led(wanted);
        if led.is_empty() || !is_last && !apart.is_empty() {
            return Err(anyhow!("a shard has no leader").into());
        }
        // Whatever takes time comes before the keys are locked.
        let mut clients = Vec::new();
        for it in &led {
            let client = source.cluster.connect(&it.address, ANSWER_WITHIN);
            let client = client.inspect_err(|error| source.forget_if_silent(&it.address, error))?;
            client.set_read_timeout(SILENT_WITHIN)?;
            clients.push(client);
        }
        let mut lock = vec![b"CLUSTER".to_vec(), b"BACKUP".to_vec(), b"LOCK".to_vec()];
        lock.extend(led.iter().map(|it| it.group.to_string().into_bytes()));
        let begun = Instant::now();
        let id = match source.client.ask(&lock.iter().map(Vec::as_slice).collect::<Vec<_>>())? {
            Reply::Bulk(id) => id,
            Reply::Error(error) if is_passing(&error) => return Err(anyhow!("{error}").into()),
            reply => return Err(Failed::Final(unfit("CLUSTER BACKUP LOCK", &reply))),
        };
        let copies = begin_copies(&led, clients, &id);
        // It ends by itself if this gets lost.
        let _ = source.client.ask(&[b"CLUSTER", b"BACKUP", b"UNLOCK", &id])?;
        let held = begun.elapsed();
        let mut begun = BTreeMap::new();
        for (it, (client, copy)) in led.iter().zip(copies?) {
            match copy {
                Ok(copy) => _ = begun.insert(it.group, (client, copy)),
                Err(why) => _ = apart.insert(it.prefix.to_owned(), why),
            }
        }
        for (prefix, groups) in wanted {
            if apart.contains_key(*prefix) {
                groups.iter().for_each(|group| drop(begun.remove(group)));
            }
        }
        self.at_ms = begun.values().map(|(_, copy)| copy.time_ms).min();
        (self.copies, self.held) = (begun, held);
        self.apart.extend(apart);
        Ok(())
    }

    /// The copy of a group.
    pub(super) fn take(&mut self, group: u16) -> Option<(Client, Begun)> {
        self.copies.remove(&group)
    }

    /// The versions of a keyspace's groups at the moment, and a time up to which they have all changes.
    pub(super) fn versions(&self, groups: &[u16]) -> Option<(Versions, u64)> {
        let copies: Option<Vec<&Begun>> =
            groups.iter().map(|group| self.copies.get(group).map(|(_, copy)| copy)).collect();
        let copies = copies?;
        let until_ms = copies.iter().map(|copy| copy.time_ms).min()?;
        Some((copies.iter().map(|copy| (copy.group, copy.version)).collect(), until_ms))
    }

    /// Ends the copies of these groups, which are not needed.
    pub(super) fn drop_copies(&mut self, groups: &[u16]) {
        groups.iter().for_each(|group| drop(self.copies.remove(group)));
    }

    /// A keyspace turned out not to be of the moment.
    pub(super) fn set_apart(&mut self, prefix: &str, groups: &[u16], why: String) {
        self.drop_copies(groups);
        self.apart.insert(prefix.to_owned(), why);
    }
}

/// A copy that has begun, or why the keys of its keyspace have to be read one by one.
type Copied = Result<Begun, String>;

/// Has leaders begin copies while all keys are locked by this transaction.
fn begin_copies(
    led: &[Led<'_>],
    mut clients: Vec<Client>,
    id: &[u8],
) -> Result<Vec<(Client, Copied)>, Failed> {
    for (it, client) in led.iter().zip(&mut clients) {
        let mut request = Vec::new();
        let shard = it.shard.to_string();
        let words: [&[u8]; 6] = [b"KEYSPACE", b"COPY", it.prefix.as_bytes(), shard.as_bytes(), b"LOCKED", id];
        put_request(&words, &mut request);
        client.send(&request)?;
    }
    let mut copies = Vec::new();
    for (it, mut client) in led.iter().zip(clients) {
        let copy = match client.reply()? {
            Reply::Status(text) => match Begun::parse(&text) {
                Some(begun) if begun.group == it.group => Ok(begun),
                _ => return Err(anyhow!("a copy begins with {text}").into()),
            },
            Reply::Error(error) if error.starts_with("NOCOPY ") => Err(error["NOCOPY ".len()..].to_owned()),
            reply => return Err(unfit("KEYSPACE COPY", &reply).context(it.address.clone()).into()),
        };
        client.set_read_timeout(ANSWER_WITHIN)?;
        copies.push((client, copy));
    }
    Ok(copies)
}

impl Source {
    /// The shards of the keyspaces all of whose shards have a leader that serves, and why the other keyspaces have not.
    fn led<'e>(&mut self, wanted: &[(&'e str, &'e [u16])]) -> (Vec<Led<'e>>, BTreeMap<String, String>) {
        let mut leaders: BTreeMap<(String, usize), String> = BTreeMap::new();
        for address in self.cluster.addresses.clone() {
            match self.report_of(&address) {
                Ok(report) => {
                    let led =
                        report.health.keyspaces.into_iter().filter(|it| it.role == "leader" && it.ready);
                    leaders.extend(led.map(|it| ((it.prefix, usize::from(it.shard)), address.clone())));
                }
                Err(error) => self.forget_if_silent(&address, &error),
            }
        }
        let (mut led, mut apart) = (Vec::new(), BTreeMap::new());
        for (prefix, groups) in wanted {
            let found: Result<Vec<Led<'e>>, usize> = (0..groups.len())
                .map(|shard| match leaders.get(&((*prefix).to_owned(), shard)) {
                    Some(address) => {
                        Ok(Led { prefix, shard, group: groups[shard], address: address.clone() })
                    }
                    None => Err(shard),
                })
                .collect();
            match found {
                Ok(found) => led.extend(found),
                Err(shard) => {
                    apart.insert(
                        (*prefix).to_owned(),
                        format!("its shard {shard} had no leader at that moment"),
                    );
                }
            }
        }
        (led, apart)
    }

    /// What a node reports about itself.
    fn report_of(&self, address: &str) -> Result<Report> {
        let mut client = self.cluster.connect(address, SILENT_WITHIN)?;
        match client.ask(&[b"CLUSTER", b"REPORT"])? {
            Reply::Bulk(report) => {
                serde_json::from_slice(&report).context("the node's report is not understood")
            }
            reply => bail!("{}", unfit("CLUSTER REPORT", &reply)),
        }
    }
}

/// Whether an error may be over in a moment: nobody leads, or the leader has just changed.
pub(super) fn is_passing(error: &str) -> bool {
    ["NOTLEADER ", "CLUSTERDOWN ", "TRYAGAIN ", "LOADING "].iter().any(|code| error.starts_with(code))
}

/// The header of a copy.
pub(super) struct Begun {
    pub(super) group: u16,
    pub(super) version: u64,
    pub(super) time_ms: u64,
    pub(super) mark: Vec<u8>,
}

impl Begun {
    pub(super) fn parse(text: &str) -> Option<Begun> {
        let words: Vec<&str> = text.split(' ').collect();
        let ["COPY", version, time_ms, mark] = words[..] else { return None };
        let (group, version) = version.split_once('-')?;
        let mark = Some(mark.as_bytes().to_vec()).filter(|mark| mark.len() == MARK_BYTES)?;
        Some(Begun {
            group: group.parse().ok()?,
            version: version.parse().ok()?,
            time_ms: time_ms.parse().ok()?,
            mark,
        })
    }
}

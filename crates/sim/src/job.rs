//! Clients that make a backup of a keyspace, as `quorate backup` does, the client that restores backups, as `quorate restore`
//! does, and what must hold of their copies.
//!
//! Each connection of such a client begins with its requests. The client closes it when it has the replies, and connects to
//! another node.
//!
//! The promise: a copy of a keyspace is what the keyspace held at the copy's version. With the changes after it, the copy is what
//! the keyspace held at each later version. A cluster into which it is restored holds it, too.

use std::collections::BTreeMap;

use contents::changes::{self, Record, word};
use contents::keys::{self, Destination, Rules};
use contents::requests::Requests;
use contents::state::State;
use contents::sum::sum;
use kv::Version;
use rdb::file::FileReader;
use wire::resp::client::{Reply, put_request};

/// The number of requests of a restore that are under way at once.
const WINDOW: usize = 8;

/// Bytes of changes requested at a time: few during the run, many at the end.
const CHANGES_BYTES: &[u8] = b"2000";
const LAST_CHANGES_BYTES: &[u8] = b"1000000";

/// The task of such a client.
#[derive(Debug)]
pub(crate) enum Job {
    Backup(Backup),
    Restore(Restore),
}

impl Job {
    /// Returns the requests with which its next connection begins. `prefix` is that of its keyspace.
    pub(crate) fn requests(&mut self, prefix: &str) -> Vec<u8> {
        match self {
            Job::Backup(backup) => backup.request(prefix),
            Job::Restore(restore) => restore.requests(),
        }
    }

    /// Takes the next reply on its connection. Returns whether that was the last one.
    ///
    /// # Errors
    /// A description of what is wrong with the reply.
    pub(crate) fn learn(&mut self, reply: Reply) -> Result<bool, String> {
        match self {
            Job::Backup(backup) => backup.learn(reply),
            Job::Restore(restore) => Ok(restore.learn(&reply)),
        }
    }

    /// Handles the end of its connection before it had all replies.
    pub(crate) fn lose(&mut self) {
        match self {
            Job::Backup(backup) => backup.begun = None,
            // Part of the restore may have taken effect, so it begins again.
            Job::Restore(restore) => restore.begin_again(),
        }
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_done(&self) -> bool {
        match self {
            Job::Backup(backup) => {
                backup.goal.is_none_or(|goal| backup.copies.last().is_some_and(|copy| copy.reached >= goal))
            }
            Job::Restore(restore) => restore.next > restore.requests.len(),
        }
    }
}

/// A copy of a keyspace and the changes after it.
#[derive(Debug)]
struct Copied {
    group: u16,
    version: Version,
    file: Vec<u8>,
    records: Vec<Record>,
    /// The version up to which these are all changes.
    reached: Version,
}

/// A backup in progress.
#[derive(Debug)]
pub(crate) struct Backup {
    /// The index of its keyspace, which has one shard.
    pub(crate) space: u8,
    /// All copies that it has received. Changes are added to the last one.
    copies: Vec<Copied>,
    /// The group and the version of the copy that is being sent.
    begun: Option<(u16, Version)>,
    /// Whether the next request is for a copy, although changes could be read.
    pub(crate) wants_copy: bool,
    /// The version that it must reach at the end of the run.
    pub(crate) goal: Option<Version>,
}

impl Backup {
    pub(crate) fn new(space: u8) -> Backup {
        Backup { space, copies: Vec::new(), begun: None, wants_copy: true, goal: None }
    }

    fn request(&mut self, prefix: &str) -> Vec<u8> {
        let mut request = Vec::new();
        let prefix = prefix.as_bytes();
        match self.copies.last().filter(|_| !self.wants_copy) {
            None => put_request(&[b"KEYSPACE", b"COPY", prefix, b"0"], &mut request),
            Some(copy) => {
                let from = word(&vec![(copy.group, copy.reached)]);
                let bytes = if self.goal.is_some() { LAST_CHANGES_BYTES } else { CHANGES_BYTES };
                let from = from.as_bytes();
                let words: [&[u8]; 8] =
                    [b"KEYSPACE", b"CHANGES", prefix, b"FROM", from, b"BYTES", bytes, b"TIMES"];
                put_request(&words, &mut request);
            }
        }
        request
    }

    fn learn(&mut self, reply: Reply) -> Result<bool, String> {
        match reply {
            Reply::Status(text) => {
                self.begun = Some(begun(&text).ok_or_else(|| format!("a copy begins with {text}"))?);
                Ok(false)
            }
            Reply::Bulk(file) => {
                let (group, version) = self.begun.take().ok_or("a copy that was not announced")?;
                if self.copies.last().is_some_and(|last| last.group == group && last.version > version) {
                    return Err(format!("a copy of version {version} comes after one of a later version"));
                }
                self.copies.push(Copied { group, version, file, records: Vec::new(), reached: version });
                self.wants_copy = false;
                Ok(true)
            }
            Reply::Error(error) => {
                self.wants_copy |= error.starts_with("BEHIND ");
                Ok(true)
            }
            other => {
                let Some(copy) = self.copies.last_mut() else { return Err("changes of no copy".into()) };
                let (reached, records) =
                    changes::of_reply(other).ok_or("KEYSPACE CHANGES answers with what is none")?;
                for (versions, record) in records {
                    let [(_, version)] = versions[..] else { return Err("changes of several shards".into()) };
                    if version <= copy.reached {
                        return Err(format!("version {version} comes behind {}", copy.reached));
                    }
                    copy.records.push(Record { version, ..record });
                    copy.reached = version;
                }
                copy.reached = reached.first().map_or(copy.reached, |(_, version)| *version);
                Ok(true)
            }
        }
    }

    /// Compares its copies and changes with what replicas held: `held` has the sum of their keys at each version. Returns how
    /// many versions were compared.
    ///
    /// # Errors
    /// A description of the difference.
    pub(crate) fn compare(&self, held: &BTreeMap<Version, u64>) -> Result<u64, String> {
        let mut compared = 0;
        for copy in &self.copies {
            let (mut state, mut records) = (copy.state()?, copy.records.iter().peekable());
            for (version, expected) in held.range(copy.version..=copy.reached) {
                while let Some(record) = records.next_if(|record| record.version <= *version) {
                    state.apply(record).map_err(|why| format!("{why:#}"))?;
                }
                if sum(&state.dump()[..], 0).map_err(|why| format!("{why:#}"))? != *expected {
                    return Err(format!(
                        "the copy of version {} and the changes up to {version} are not what replicas held then",
                        copy.version
                    ));
                }
                compared += 1;
            }
        }
        Ok(compared)
    }

    /// Returns what it knows of one moment, as a file: the last copy and the first `percent` percent of the changes after it.
    ///
    /// # Errors
    /// The copy and the changes do not fit together.
    pub(crate) fn at(&self, percent: usize) -> Result<Option<Vec<u8>>, String> {
        let Some(copy) = self.copies.last() else { return Ok(None) };
        let mut state = copy.state()?;
        for record in &copy.records[..copy.records.len() * percent / 100] {
            state.apply(record).map_err(|why| format!("{why:#}"))?;
        }
        Ok(Some(state.dump()))
    }
}

impl Copied {
    fn state(&self) -> Result<State, String> {
        let mut state = State::default();
        read(&self.file, &mut state)?;
        Ok(state)
    }
}

/// Returns the mark of a copy that begins with this text: the mark follows the copy's last byte.
pub(crate) fn mark(text: &str) -> Option<Vec<u8>> {
    let mark = text.strip_prefix("COPY ")?.rsplit(' ').next()?;
    Some(mark.as_bytes().to_vec())
}

fn begun(text: &str) -> Option<(u16, Version)> {
    let (group, version) = text.strip_prefix("COPY ")?.split(' ').next()?.split_once('-')?;
    Some((group.parse().ok()?, version.parse().ok()?))
}

fn read(file: &[u8], sink: &mut impl keys::Sink) -> Result<(), String> {
    let destinations = BTreeMap::from([(0, Destination::default())]);
    let rules = Rules { destinations, expired_ms: 0, string_bytes_max: usize::MAX, goes_on: false };
    let mut file = FileReader::new(file).map_err(|why| why.to_string())?;
    keys::read(&mut file, &rules, sink).map_err(|why| format!("{why:#}"))
}

/// A restore in progress: one keyspace after the other.
#[derive(Debug)]
pub(crate) struct Restore {
    /// The contents to restore: the index of each keyspace, and its keys.
    pub(crate) files: Vec<(u8, Vec<u8>)>,
    requests: Vec<Vec<u8>>,
    /// Whether all keys can be removed at once; if so, that is done first. Keyspaces of registers do not allow it, but their
    /// cluster is empty.
    empties: bool,
    /// Whether nobody knows if an emptying took effect: it may still do so, after what has been restored since.
    pub(crate) may_be_emptied: bool,
    /// The request to send next: 0 empties the cluster, the others follow.
    next: usize,
    /// The numbers of the requests under way.
    open: Vec<usize>,
    refused: Option<usize>,
}

impl Restore {
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn new(files: Vec<(u8, Vec<u8>)>, empties: bool) -> Result<Restore, String> {
        let mut requests = Requests::default();
        for (_, file) in &files {
            read(file, &mut requests)?;
        }
        let (may_be_emptied, next, open, refused) = (false, 0, Vec::new(), None);
        Ok(Restore { files, requests: requests.0, empties, may_be_emptied, next, open, refused })
    }

    fn begin_again(&mut self) {
        self.may_be_emptied |= self.empties && self.open.contains(&0);
        (self.next, self.refused) = (0, None);
        self.open.clear();
    }

    fn requests(&mut self) -> Vec<u8> {
        self.refused = None;
        let until = if self.next == 0 { 1 } else { (self.next + WINDOW).min(self.requests.len() + 1) };
        self.open = (self.next..until).collect();
        let mut requests = Vec::new();
        for number in &self.open {
            match number.checked_sub(1) {
                None => put_request(&[if self.empties { b"FLUSHALL" } else { b"PING" }], &mut requests),
                Some(place) => requests.extend_from_slice(&self.requests[place]),
            }
        }
        requests
    }

    fn learn(&mut self, reply: &Reply) -> bool {
        let number = self.open.remove(0);
        if matches!(reply, Reply::Error(_)) {
            self.refused.get_or_insert(number);
        }
        if self.open.is_empty() {
            // All requests from the first refused one on are sent again.
            self.next = self.refused.unwrap_or(number + 1);
        }
        self.open.is_empty()
    }
}

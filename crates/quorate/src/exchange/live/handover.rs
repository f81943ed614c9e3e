//! The end of an import: deadlines are corrected, and both sides are compared.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use contents::digest::digest;
use contents::keys::Destination;

use super::super::{LATE, Progress, Refusals};
use super::lane::{Target, is_temporary};
use super::link::Address;
use super::rewrite::PUT_OFF_MS;
use super::routes::Routes;
use crate::connection::{Client, Reply, put_request};

/// Keys of a step of the scan.
const STEP: &[u8] = b"1000";

/// Keys whose deadlines are corrected together.
const DEADLINES: &[u8] = b"5000";

/// Keys that are compared together: values may be large.
const COMPARED: usize = 50;

/// How much the time to live of a key may differ: the two sides are asked one after the other.
const TIME_MS: i64 = 5000;

/// A connection over which requests are repeated until they are answered. They must be safe to repeat.
pub(super) struct Asking {
    target: Arc<Target>,
    database: u8,
    client: Option<Client>,
}

impl Asking {
    pub(super) fn new(target: &Arc<Target>) -> Asking {
        Asking { target: target.clone(), database: 0, client: None }
    }

    /// From now on requests go to this database of the cluster.
    pub(super) fn select(&mut self, database: u8) {
        if database != self.database {
            (self.database, self.client) = (database, None);
        }
    }

    /// The number of keys in all databases.
    ///
    /// # Errors
    /// See [`Asking::one`].
    pub(super) fn key_count(&mut self, routes: &Routes) -> Result<u64> {
        let mut count = 0;
        for database in routes.databases() {
            self.select(database);
            count += key_count(&self.one(&[b"DBSIZE"])?)?;
        }
        Ok(count)
    }

    /// Sends requests and returns their replies.
    ///
    /// # Errors
    /// The cluster has not answered for a minute.
    pub(super) fn ask(&mut self, requests: &[Vec<&[u8]>]) -> Result<Vec<Reply>> {
        self.ask_every(Duration::from_millis(250), requests)
    }

    fn ask_every(&mut self, pause: Duration, requests: &[Vec<&[u8]>]) -> Result<Vec<Reply>> {
        let tries = (Duration::from_secs(60).as_millis() / pause.as_millis()) as usize;
        let mut bytes = Vec::new();
        requests.iter().for_each(|words| put_request(words, &mut bytes));
        let mut last = anyhow!("the cluster does not answer");
        for _ in 0..tries {
            match self.try_to_ask(&bytes, requests.len()) {
                Ok(replies) => {
                    let temporary = replies.iter().find_map(|reply| match reply {
                        Reply::Error(error) if is_temporary(error) => Some(error.clone()),
                        _ => None,
                    });
                    match temporary {
                        None => return Ok(replies),
                        Some(error) => last = anyhow!(error),
                    }
                }
                Err(error) => {
                    self.client = None;
                    last = error;
                }
            }
            std::thread::sleep(pause);
        }
        Err(last)
    }

    fn try_to_ask(&mut self, bytes: &[u8], count: usize) -> Result<Vec<Reply>> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(self.target.connect(self.database)?),
        };
        client.send(bytes)?;
        (0..count).map(|_| client.reply()).collect()
    }

    /// Sends one request.
    ///
    /// # Errors
    /// The cluster has not answered for a minute, or has answered with an error.
    pub(super) fn one(&mut self, words: &[&[u8]]) -> Result<Reply> {
        single(words[0], self.ask(&[words.to_vec()])?)
    }

    /// Removes all keys.
    ///
    /// # Errors
    /// The cluster has not answered for a minute, or has answered with an error.
    pub(super) fn empty(&mut self) -> Result<()> {
        let replies = self.ask_every(LATE, &[vec![b"FLUSHALL"]])?;
        single(b"FLUSHALL", replies).map(drop)
    }
}

/// The only reply.
fn single(command: &[u8], mut replies: Vec<Reply>) -> Result<Reply> {
    match replies.pop() {
        Some(Reply::Error(error)) => bail!("{}: {error}", command.escape_ascii()),
        reply => reply.context("no reply"),
    }
}

/// The next cursor and the keys of a step of a scan.
fn scanned(reply: Reply) -> Result<(Vec<u8>, Vec<Vec<u8>>)> {
    match reply {
        Reply::Array(mut parts) => match (parts.pop(), parts.pop().and_then(Reply::bytes)) {
            (Some(Reply::Array(keys)), Some(cursor)) => {
                Ok((cursor, keys.into_iter().filter_map(Reply::bytes).collect()))
            }
            _ => bail!("SCAN answers with too little"),
        },
        Reply::Error(error) => bail!("SCAN answers with {error}"),
        other => bail!("SCAN answers with {other:?}"),
    }
}

/// Gives keys the deadlines that they had at the source. Returns how many have one.
///
/// # Errors
/// The cluster does not answer.
pub(super) fn put_deadlines_right(asking: &mut Asking) -> Result<u64> {
    let (mut cursor, mut count, mut progress) = (b"0".to_vec(), 0, Progress::begin());
    let mut seen = 0;
    loop {
        let (next, keys) = scanned(asking.one(&[b"SCAN", &cursor, b"COUNT", DEADLINES])?)?;
        let questions: Vec<Vec<&[u8]>> = keys.iter().map(|key| vec![&b"PEXPIRETIME"[..], key]).collect();
        let deadlines = asking.ask(&questions)?;
        let mut texts = Vec::new();
        for (key, deadline) in keys.iter().zip(deadlines) {
            if let Reply::Integer(deadline) = deadline
                && deadline >= PUT_OFF_MS as i64
            {
                texts.push((key, (deadline - PUT_OFF_MS as i64).to_string()));
            }
        }
        count += texts.len() as u64;
        let changes: Vec<Vec<&[u8]>> =
            texts.iter().map(|(key, deadline)| vec![&b"PEXPIREAT"[..], key, deadline.as_bytes()]).collect();
        asking.ask(&changes)?;
        seen += keys.len() as u64;
        progress.show(seen, None);
        cursor = next;
        if cursor == b"0" {
            progress.end();
            return Ok(count);
        }
    }
}

/// The result of a comparison.
#[derive(Default)]
pub(super) struct Compared {
    pub(super) keys: u64,
    /// Keys of which only the length was compared.
    pub(super) by_length: u64,
    pub(super) differences: Refusals,
    pub(super) different: u64,
}

/// Compares keys of a database of a server with those at their destination in the cluster: about `most` of them.
///
/// # Errors
/// One of the two does not answer.
pub(super) fn compare(
    asking: &mut Asking,
    address: &Address,
    (database, destination): (u64, &Destination),
    most: u64,
    compared: &mut Compared,
) -> Result<()> {
    asking.select(destination.database);
    let mut source = address.connect()?;
    if database != 0
        && let Reply::Error(error) = source.ask(&[b"SELECT", database.to_string().as_bytes()])?
    {
        // A server of a cluster has no other databases.
        bail!("{}: SELECT {database}: {error}", address.server);
    }
    let (mut cursor, mut count, mut progress) = (b"0".to_vec(), 0, Progress::begin());
    loop {
        let (next, keys) = scanned(source.ask(&[b"SCAN", &cursor, b"COUNT", STEP])?)?;
        for keys in keys.chunks(COMPARED) {
            let mut requests = Vec::new();
            for key in keys {
                put_request(&[b"DUMP", key], &mut requests);
                put_request(&[b"PTTL", key], &mut requests);
            }
            source.send(&requests)?;
            let theirs: Vec<(Reply, Reply)> =
                keys.iter().map(|_| Ok((source.reply()?, source.reply()?))).collect::<Result<_>>()?;
            let names: Vec<Vec<u8>> = keys.iter().map(|key| destination.name(key).into_owned()).collect();
            let questions: Vec<Vec<&[u8]>> =
                names.iter().flat_map(|name| [vec![&b"DUMP"[..], name], vec![&b"PTTL"[..], name]]).collect();
            let ours = asking.ask(&questions)?;
            for ((key, theirs), ours) in keys.iter().zip(&theirs).zip(ours.chunks(2)) {
                let name = destination.name(key);
                let found = match (&theirs.0, &ours[0]) {
                    // It has expired in the meantime.
                    (Reply::Null, _) => continue,
                    (_, Reply::Null) if is_about_to_expire(&theirs.1) => continue,
                    (Reply::Bulk(_), Reply::Null) => Some("it is missing in the cluster"),
                    (Reply::Bulk(theirs), Reply::Bulk(ours)) => {
                        (theirs != ours && digest(theirs) != digest(ours)).then_some("its value differs")
                    }
                    _ => {
                        compared.by_length += 1;
                        let theirs = length(|words| source.ask(words), key)?;
                        let ours = length(|words| asking.one(words), &name)?;
                        (theirs != ours).then_some("its type or length differs")
                    }
                };
                let found = found.or_else(|| {
                    let (Reply::Integer(theirs), Reply::Integer(ours)) = (&theirs.1, &ours[1]) else {
                        return None;
                    };
                    let is_near = (*theirs < 0) == (*ours < 0) && (theirs - ours).abs() <= TIME_MS;
                    (!is_near).then_some("it expires at another time")
                });
                compared.keys += 1;
                count += 1;
                if let Some(found) = found {
                    compared.different += 1;
                    compared.differences.add(found, &name);
                }
            }
        }
        progress.show(count, None);
        cursor = next;
        if cursor == b"0" || count >= most {
            progress.end();
            return Ok(());
        }
    }
}

fn is_about_to_expire(time_to_live: &Reply) -> bool {
    matches!(time_to_live, Reply::Integer(-2..=TIME_MS) if *time_to_live != Reply::Integer(-1))
}

/// The type and the length of a value.
fn length(mut ask: impl FnMut(&[&[u8]]) -> Result<Reply>, key: &[u8]) -> Result<(Reply, Reply)> {
    let kind = ask(&[b"TYPE", key])?;
    let name = match &kind {
        Reply::Status(name) => match &name[..] {
            "list" => "LLEN",
            "set" => "SCARD",
            "zset" => "ZCARD",
            "hash" => "HLEN",
            "stream" => "XLEN",
            _ => "STRLEN",
        },
        _ => "STRLEN",
    };
    let length = ask(&[name.as_bytes(), key])?;
    Ok((kind, length))
}

/// How many keys there are.
///
/// # Errors
/// The answer is not a number.
pub(super) fn key_count(reply: &Reply) -> Result<u64> {
    match reply {
        Reply::Integer(count) => Ok(*count as u64),
        other => bail!("DBSIZE answers with {other:?}"),
    }
}

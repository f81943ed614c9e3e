//! Requests that take effect exactly once, whatever happens to connections, leaders and this program.
//!
//! Requests are sent in transactions. Each transaction also writes the lane's *position*, a key that it watches, so requests
//! and position take effect together, and only if nothing has written the position since. If an outcome is not known, the
//! position shows what it was. A transaction that is delayed somewhere can do no harm later: either it has taken effect, or
//! the position has been written in the meantime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use super::super::select;
use super::StartAgain;
use crate::connection::{ANSWER_WITHIN, Client, Cluster, Reply, put_request};

const PAUSE: Duration = Duration::from_millis(200);

/// The cluster that keys are imported into.
pub(super) struct Target {
    pub(super) cluster: Cluster,
    /// Whether to send nothing more.
    pub(super) is_over: AtomicBool,
}

impl Target {
    /// Connects to the first node that serves, for a database.
    ///
    /// # Errors
    /// No node serves, or the database does not exist.
    pub(super) fn connect(&self, database: u8) -> Result<Client> {
        let mut client = self.cluster.open(ANSWER_WITHIN)?.1;
        if database != 0 {
            select(&mut client, database)?;
        }
        Ok(client)
    }

    fn check(&self) -> Result<()> {
        if self.is_over.load(Ordering::Acquire) { bail!("the import was ended") } else { Ok(()) }
    }
}

/// Whether an error means that there is no leader, or that the outcome is not known.
pub(super) fn is_temporary(error: &str) -> bool {
    let code = error.split(' ').next().unwrap_or_default();
    ["TRYAGAIN", "CLUSTERDOWN", "LOADING", "UNKNOWN", "NOREPLICAS", "BUSY"].contains(&code)
}

/// Whether the cluster refuses any request, for lack of room or of a permission.
fn is_of_the_cluster(error: &str) -> bool {
    ["OOM", "NOSPACE", "NOAUTH", "NOPERM"].contains(&error.split(' ').next().unwrap_or_default())
}

/// Encoded requests.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch {
    pub(super) fn add(&mut self, words: &[&[u8]]) {
        put_request(words, &mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    pub(super) fn add_encoded(&mut self, request: &[u8]) {
        self.bytes.extend_from_slice(request);
        self.ends.push(self.bytes.len());
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn request(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[at]]
    }

    /// The first two words of a request, to name it.
    fn name(&self, at: usize) -> Vec<u8> {
        let lines: Vec<&[u8]> = self.request(at).splitn(6, |byte| *byte == b'\n').collect();
        let word = |at: usize| lines.get(at).and_then(|line| line.strip_suffix(b"\r")).unwrap_or_default();
        [word(2), word(4)].join(&b' ')
    }

    fn without(&self, left_out: &[usize]) -> Batch {
        let mut batch = Batch::default();
        for at in (0..self.len()).filter(|at| !left_out.contains(at)) {
            batch.add_encoded(self.request(at));
        }
        batch
    }
}

/// A request that the cluster refused, and why.
pub(super) type Refused = (Vec<u8>, String);

/// Sends one transaction after the other to one group.
pub(super) struct Lane {
    target: Arc<Target>,
    client: Option<Client>,
    /// The database of its group.
    database: u8,
    key: Vec<u8>,
    /// The position of the last transaction that has taken effect.
    value: Vec<u8>,
    sent: Option<Sent>,
}

struct Sent {
    batch: Batch,
    /// The position that it writes.
    value: Vec<u8>,
}

/// The outcome of a transaction.
enum Outcome {
    Done(Vec<Refused>),
    /// These requests cannot be queued.
    Unfit(Vec<(usize, String)>),
    /// The cluster refuses the transaction as a whole.
    Refused(String),
    Unknown,
}

impl Lane {
    /// Begins a lane at a position, which it writes: no transaction of an earlier run takes effect from here on.
    ///
    /// # Errors
    /// The cluster refuses that.
    pub(super) fn open(target: &Arc<Target>, database: u8, key: Vec<u8>, value: Vec<u8>) -> Result<Lane> {
        let mut lane =
            Lane { target: target.clone(), client: None, database, key, value: Vec::new(), sent: None };
        loop {
            let found = lane.look()?;
            if found.as_ref() == Some(&value) {
                break;
            }
            lane.value = found.unwrap_or_default();
            lane.sent = Some(Sent { batch: Batch::default(), value: value.clone() });
            lane.write();
            // A transaction of another program may have been first: read the position again.
            match lane.answer() {
                Outcome::Refused(error) => bail!("the cluster refuses to keep a position: {error}"),
                _ => lane.sent = None,
            }
        }
        lane.value = value;
        Ok(lane)
    }

    /// Sends a transaction after the one before has taken effect. Returns the requests of the earlier one that were
    /// refused.
    ///
    /// # Errors
    /// [`StartAgain`] if the position is lost, or another program has written it; a sentence if the cluster refuses
    /// permanently.
    pub(super) fn submit(&mut self, batch: Batch, value: Vec<u8>) -> Result<Vec<Refused>> {
        let refused = self.settle()?;
        self.sent = Some(Sent { batch, value });
        if self.client.is_none() {
            let found = self.look()?;
            self.expect(found.as_deref())?;
        }
        self.write();
        Ok(refused)
    }

    /// Waits until the last transaction has taken effect. Returns its requests that were refused.
    ///
    /// # Errors
    /// See [`Lane::submit`].
    pub(super) fn settle(&mut self) -> Result<Vec<Refused>> {
        let mut refused = Vec::new();
        while self.sent.is_some() {
            match self.answer() {
                Outcome::Done(some) => refused.extend(some),
                Outcome::Unfit(unfit) => {
                    let Some(sent) = &mut self.sent else { break };
                    let places: Vec<usize> = unfit.iter().map(|(at, _)| *at).collect();
                    refused.extend(unfit.iter().map(|(at, error)| (sent.batch.name(*at), error.clone())));
                    sent.batch = sent.batch.without(&places);
                    self.again()?;
                }
                Outcome::Refused(error) => {
                    let Some(Sent { batch, value }) = self.sent.take() else { break };
                    if !["ERR", "CROSSSLOT"].contains(&error.split(' ').next().unwrap_or_default())
                        || batch.len() == 0
                    {
                        bail!("the cluster refuses to store data: {error}");
                    }
                    if batch.len() == 1 {
                        refused.push((batch.name(0), error));
                        self.submit(Batch::default(), value)?;
                        continue;
                    }
                    // Together they are too large.
                    for at in 0..batch.len() {
                        let mut one = Batch::default();
                        one.add_encoded(batch.request(at));
                        let part = [&value[..], format!(" part {at}").as_bytes()].concat();
                        refused.extend(self.submit(one, part)?);
                        refused.extend(self.settle()?);
                    }
                    refused.extend(self.submit(Batch::default(), value)?);
                }
                Outcome::Unknown => self.again()?,
            }
        }
        Ok(refused)
    }

    /// Sends the transaction again, unless it has taken effect.
    fn again(&mut self) -> Result<()> {
        let found = self.look()?;
        let Some(sent) = &self.sent else { return Ok(()) };
        if found.as_ref() == Some(&sent.value) {
            self.value = sent.value.clone();
            self.sent = None;
            return Ok(());
        }
        self.expect(found.as_deref())?;
        self.write();
        Ok(())
    }

    fn expect(&self, found: Option<&[u8]>) -> Result<()> {
        match found {
            Some(found) if found == self.value => Ok(()),
            Some(found) => bail!(
                "another import writes to this cluster: the position \"{}\" is \"{}\" and not \"{}\"",
                self.key.escape_ascii(),
                found.escape_ascii(),
                self.value.escape_ascii()
            ),
            None => Err(StartAgain("the cluster does not have the position any more".into()).into()),
        }
    }

    /// Watches the position and reads it, on a new connection if there is none. Waits until the cluster serves.
    fn look(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            self.target.check()?;
            match self.try_to_look() {
                Ok(Reply::Bulk(value)) => return Ok(Some(value)),
                Ok(Reply::Null) => return Ok(None),
                Ok(Reply::Error(error)) if !is_temporary(&error) => bail!("{error}"),
                Ok(_) => {}
                Err(_) => self.client = None,
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn try_to_look(&mut self) -> Result<Reply> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(self.target.connect(self.database)?),
        };
        client.ask(&[b"UNWATCH"])?;
        match client.ask(&[b"WATCH", &self.key])? {
            error @ Reply::Error(_) => Ok(error),
            _ => client.ask(&[b"GET", &self.key]),
        }
    }

    /// Sends the transaction. If that fails, reading the answer fails too.
    fn write(&mut self) {
        let (Some(sent), Some(client)) = (&self.sent, &mut self.client) else { return };
        let mut requests = Vec::with_capacity(sent.batch.bytes() + 256);
        put_request(&[b"MULTI"], &mut requests);
        requests.extend_from_slice(&sent.batch.bytes);
        put_request(&[b"SET", &self.key, &sent.value], &mut requests);
        put_request(&[b"EXEC"], &mut requests);
        // For the next transaction.
        put_request(&[b"WATCH", &self.key], &mut requests);
        put_request(&[b"GET", &self.key], &mut requests);
        if client.send(&requests).is_err() {
            self.client = None;
        }
    }

    fn answer(&mut self) -> Outcome {
        let (Some(sent), Some(client)) = (&self.sent, &mut self.client) else { return Outcome::Unknown };
        let outcome = match answer_of(client, &sent.batch, &sent.value) {
            Ok((outcome, true)) => outcome,
            Ok((outcome, false)) => {
                self.client = None;
                outcome
            }
            Err(_) => {
                self.client = None;
                Outcome::Unknown
            }
        };
        if let Outcome::Done(_) = outcome
            && let Some(sent) = self.sent.take()
        {
            self.value = sent.value;
        }
        outcome
    }
}

/// Reads the answers to a transaction. Also returns whether the position is watched and has the expected value.
fn answer_of(client: &mut Client, batch: &Batch, value: &[u8]) -> Result<(Outcome, bool)> {
    let begun = client.reply()?;
    let mut unfit = Vec::new();
    for at in 0..=batch.len() {
        if let Reply::Error(error) = client.reply()? {
            unfit.push((at, error));
        }
    }
    let (executed, watched, read) = (client.reply()?, client.reply()?, client.reply()?);
    let is_ready = !matches!(watched, Reply::Error(_)) && read == Reply::Bulk(value.to_vec());
    if let Reply::Error(error) = begun {
        return Err(anyhow!(error)).context("MULTI is refused");
    }
    let outcome = match executed {
        Reply::Array(replies) => {
            let errors = replies.into_iter().enumerate().filter_map(|(at, reply)| match reply {
                Reply::Error(error) if at < batch.len() => Some((batch.name(at), error)),
                _ => None,
            });
            Outcome::Done(errors.collect())
        }
        Reply::Error(error) if is_temporary(&error) => Outcome::Unknown,
        // If a request cannot be queued at the moment, the transaction has no effect.
        Reply::Error(_) if unfit.iter().any(|(_, error)| is_temporary(error)) => Outcome::Unknown,
        // Not the requests' fault: they must not be left out.
        Reply::Error(_) if unfit.iter().any(|(_, error)| is_of_the_cluster(error)) => {
            let error = unfit.into_iter().map(|(_, error)| error).find(|error| is_of_the_cluster(error));
            Outcome::Refused(error.unwrap_or_default())
        }
        Reply::Error(error) => match unfit.iter().any(|(at, _)| *at == batch.len()) {
            _ if unfit.is_empty() => Outcome::Refused(error),
            true => Outcome::Refused(unfit.pop().map_or(error, |(_, error)| error)),
            false => Outcome::Unfit(unfit),
        },
        _ => Outcome::Unknown,
    };
    Ok((outcome, is_ready))
}

//! Clients and what they were told: a history of every key.

use super::is_done;
use crate::kit::Asked;
use crate::kit::random::Random;
use check::{Action, Answer, History, Operation, Outcome as Ended, Verdict};
use kv::codec::Reader;
use kv::{Command, Condition, Expiry, List, Reply, SetAnswer, Version};
use protocol::Ticket;
use protocol::contract::{NodeId, Now, Result as Outcome};
use std::collections::BTreeMap;

pub(crate) const KEYS: [&str; 2] = ["a", "b"];

/// Operations in one history: more would only make the check slow.
const OPERATIONS_MAX: usize = 400;

/// A command, with what it is about.
pub(crate) struct Asking {
    encoded: Vec<u8>,
    names: Vec<&'static str>,
    /// What is to be stored; `None` deletes or reads.
    value: Option<String>,
    is_read: bool,
}

impl Asking {
    fn read(names: Vec<&'static str>) -> Asking {
        let mut scratch = Vec::new();
        let keys = List::build(&mut scratch, names.iter().map(|name| name.as_bytes()));
        let command = match names[..] {
            [name] => Command::Get { key: name.as_bytes() },
            _ => Command::MultiGet { keys },
        };
        let mut encoded = Vec::new();
        command.encode(&mut encoded);
        Asking { encoded, names, value: None, is_read: true }
    }

    fn delete(names: Vec<&'static str>) -> Asking {
        let mut scratch = Vec::new();
        let keys = List::build(&mut scratch, names.iter().map(|name| name.as_bytes()));
        let mut encoded = Vec::new();
        Command::Delete { keys }.encode(&mut encoded);
        Asking { encoded, names, value: None, is_read: false }
    }

    fn set(name: &'static str, value: String) -> Asking {
        let command = Command::Set {
            key: name.as_bytes(),
            value: value.as_bytes(),
            expiry: Expiry::Clear,
            condition: Condition::Always,
            answer: SetAnswer::Status,
        };
        let mut encoded = Vec::new();
        command.encode(&mut encoded);
        Asking { encoded, names: vec![name], value: Some(value), is_read: false }
    }

    pub(crate) fn command(&self) -> Command<'_> {
        Command::decode(&mut Reader::new(&self.encoded)).expect("it was encoded here")
    }
}

/// A request without an outcome.
struct Open {
    node: NodeId,
    asked_at: u64,
    names: Vec<&'static str>,
    value: Option<String>,
    is_read: bool,
}

pub(crate) struct Clients {
    /// For each client how often it has asked.
    asked: Vec<u64>,
    /// Percent of requests that are sent before the one before is answered.
    pipelined: u64,
    deletes: u64,
    /// Percent of requests that are reads, and how many keys they are about.
    reads: u64,
    keys: u64,
    timeout_ms: u64,
    open: BTreeMap<Ticket, Open>,
    /// For each client and key: when its last request was answered.
    answered_at: BTreeMap<(u64, &'static str), u64>,
    history: History,
    /// Each event has a time of its own.
    moment: u64,
    values: u64,
    /// Requests that were refused or unknown.
    refused: u64,
}

impl Clients {
    pub(crate) fn new(random: &mut Random) -> Clients {
        Clients {
            asked: vec![0; 2 + random.below(6) as usize],
            keys: [1, 1, 2][random.below(3) as usize],
            reads: [30, 50, 80][random.below(3) as usize],
            pipelined: [0, 30][random.below(2) as usize],
            deletes: [0, 0, 10, 40][random.below(4) as usize],
            timeout_ms: [300, 2000, 5000][random.below(3) as usize],
            open: BTreeMap::new(),
            answered_at: BTreeMap::new(),
            history: History::new(),
            moment: 0,
            values: 0,
            refused: 0,
        }
    }

    fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Requests without an outcome.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// The oldest of them, in words.
    pub(crate) fn first_open(&self) -> Option<String> {
        let (ticket, open) = self.open.first_key_value()?;
        Some(format!("request {} of client {} to node {}", ticket.sequence, ticket.client, open.node))
    }

    /// What was told of a key does not count any more: it holds this.
    pub(crate) fn begin_anew(&mut self, name: &'static str, value: Option<&[u8]>) {
        if name == KEYS[0] {
            self.history = History::new();
        }
        let (start, end) = (self.tick(), self.tick());
        let key = self.history.key(name.as_bytes());
        let value = value.map(|value| self.history.value(value));
        self.history.push(Operation {
            client: u64::MAX,
            node: None,
            key,
            action: value.map_or(Action::Delete, Action::Set),
            start,
            end: Some(end),
            outcome: Ended::Ok(Answer::Done),
            version: None,
        });
    }

    /// How many requests were refused or unknown since this was last asked.
    pub(crate) fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    /// A client asks a node for something; `None` if none is free to, or enough was asked.
    pub(crate) fn ask(&mut self, random: &mut Random, node: NodeId, now: Now) -> Option<(Asked, Asking)> {
        let client = random.below(self.asked.len() as u64);
        let mut waiting =
            self.open.iter().filter(|(ticket, _)| ticket.client == client).map(|(_, open)| open.node);
        let follows = waiting.next();
        // It pipelines to the node that it has asked already.
        if follows.is_some()
            && (follows != Some(node) || waiting.count() >= 3 || !random.percent(self.pipelined))
            || self.history.operations().len() >= OPERATIONS_MAX
        {
            return None;
        }
        let name = KEYS[random.below(self.keys) as usize];
        let names = if self.keys > 1 && random.percent(10) { KEYS.to_vec() } else { vec![name] };
        let asking = match random.percent(self.reads) {
            true => Asking::read(names),
            false if random.percent(self.deletes) => Asking::delete(names),
            false => {
                self.values += 1;
                Asking::set(name, format!("value{}", self.values))
            }
        };
        let deadline_us = now.monotonic_us + self.timeout_ms * 1000;
        Some(self.put(client, node, follows.is_some(), deadline_us, asking))
    }

    /// A read of one key when everything is over, by a client of its own.
    pub(crate) fn read_at_last(&mut self, node: NodeId, name: &'static str, now: Now) -> (Asked, Asking) {
        let client = self.asked.len() as u64;
        self.asked.push(0);
        self.put(client, node, false, now.monotonic_us + 5_000_000, Asking::read(vec![name]))
    }

    fn put(
        &mut self,
        client: u64,
        node: NodeId,
        follows: bool,
        deadline_us: u64,
        asking: Asking,
    ) -> (Asked, Asking) {
        self.asked[client as usize] += 1;
        let ticket = Ticket { client, sequence: self.asked[client as usize] };
        let asked_at = self.tick();
        let (names, value, is_read) = (asking.names.clone(), asking.value.clone(), asking.is_read);
        self.open.insert(ticket, Open { node, asked_at, names, value, is_read });
        (Asked { ticket, follows, seen: 0, deadline_us }, asking)
    }

    /// A client is told an outcome. Returns the key and the tag when it was told a value, or that one was stored.
    pub(crate) fn answer(
        &mut self,
        ticket: Ticket,
        result: &Outcome,
        reply: &[u8],
    ) -> Result<Option<(&'static str, Version)>, String> {
        let Some(open) = self.open.remove(&ticket) else {
            return Err(format!("{ticket:?} is answered twice, or was never asked"));
        };
        self.refused += u64::from(!is_done(result));
        let ended_at = self.tick();
        if matches!(result, Outcome::Refused | Outcome::Redirect { .. }) {
            return Ok(None); // Nothing happened: if it did, a read finds a value that nobody wrote.
        }
        let values = values_of(reply);
        for (place, name) in open.names.iter().enumerate() {
            let value = match (is_done(result), open.is_read) {
                (true, true) => match values.get(place) {
                    Some(value) => value.as_deref(),
                    None => return Err(format!("the reply to {ticket:?} holds too few values")),
                },
                (false, true) => return Err(format!("the read {ticket:?} is called unknown")),
                (_, false) => open.value.as_deref().map(str::as_bytes),
            };
            self.record(ticket, &open, name, value, is_done(result).then_some(ended_at));
        }
        let told_value = if open.is_read { values.iter().any(Option::is_some) } else { open.value.is_some() };
        Ok(match (*result, &open.names[..]) {
            (Outcome::Done { version, .. }, [name]) if told_value => Some((name, version)),
            _ => None,
        })
    }

    /// A node crashes: whoever waits for it never learns what came of its request.
    pub(crate) fn lose_node(&mut self, node: NodeId) {
        let lost = self.open.extract_if(.., |_, open| open.node == node).collect::<Vec<_>>();
        for (ticket, open) in lost.into_iter().filter(|(_, open)| !open.is_read) {
            for name in &open.names {
                let value = open.value.clone();
                self.record(ticket, &open, name, value.as_deref().map(str::as_bytes), None);
            }
        }
    }

    /// Writes down one operation; without an end its outcome is unknown.
    fn record(
        &mut self,
        ticket: Ticket,
        open: &Open,
        name: &'static str,
        value: Option<&[u8]>,
        end: Option<u64>,
    ) {
        let key = self.history.key(name.as_bytes());
        let value = value.map(|value| self.history.value(value));
        let action = match (open.is_read, value) {
            (true, _) => Action::Get,
            (false, Some(value)) => Action::Set(value),
            (false, None) => Action::Delete,
        };
        let answer = if open.is_read { Answer::Value(value) } else { Answer::Done };
        // A client's requests on one key take effect in order: one that was answered later came after.
        let before = self.answered_at.get(&(ticket.client, name)).copied().unwrap_or(0);
        if let Some(end) = end {
            self.answered_at.insert((ticket.client, name), end);
        }
        self.history.push(Operation {
            client: ticket.client,
            node: Some(u32::from(open.node)),
            key,
            action,
            start: open.asked_at.max(before),
            end,
            outcome: end.map_or(Ended::Unknown, |_| Ended::Ok(answer)),
            version: None,
        });
    }

    /// Checks the history of every key.
    pub(crate) fn check(&self) -> Result<u64, String> {
        match check::linearizable(&self.history) {
            Verdict::Ok { operations, .. } => Ok(operations as u64),
            Verdict::Unknown { .. } => Err("the history is too long to be checked".into()),
            violation @ Verdict::Violation(_) => {
                Err(format!("not linearizable: {}", violation.words(&self.history)))
            }
        }
    }
}

/// The values in a reply, one by one.
fn values_of(reply: &[u8]) -> Vec<Option<Vec<u8>>> {
    let mut reader = Reader::new(reply);
    let mut values = Vec::new();
    while let Ok(reply) = Reply::decode(&mut reader) {
        match reply {
            Reply::Bulk(bytes) => values.push(Some(bytes.to_vec())),
            Reply::Null => values.push(None),
            _ => {}
        }
    }
    values
}

//! What the golden scripts of all protocols have in common: who asks what, how long things take, and which scripts there
//! are. Their verbs and their worlds differ.

use crate::Letter;
use kv::{Command, Condition, Deadline, Expiry, SetAnswer};
use protocol::contract::{NodeId, Outcome, Result as End};
use protocol::{Request, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;

pub(crate) type Done<T = ()> = Result<T, Box<dyn Error>>;

#[derive(Default)]
struct Client {
    number: u64,
    asked: u64,
    waiting: BTreeSet<u64>,
    seen: u64,
}

/// The clients of a script, and what they have asked and not heard of yet.
#[derive(Default)]
pub(crate) struct Clients {
    clients: BTreeMap<String, Client>,
    questions: BTreeMap<Ticket, String>,
}

impl Clients {
    /// One more question of a client, which is `a` if it has no name: its ticket, whether others of it are open, and the
    /// newest offset that the client has seen.
    pub(crate) fn ask(&mut self, name: &Option<String>, question: &str) -> (Ticket, bool, u64) {
        let name = name.clone().unwrap_or("a".into());
        let number = self.clients.len() as u64 + 1;
        let client =
            self.clients.entry(name.clone()).or_insert_with(|| Client { number, ..Client::default() });
        client.asked += 1;
        let ticket = Ticket { client: client.number, sequence: client.asked };
        let follows = !client.waiting.is_empty();
        client.waiting.insert(ticket.sequence);
        self.questions.insert(ticket, format!("{name}: {question}"));
        (ticket, follows, client.seen)
    }

    /// An outcome: tells of which question.
    pub(crate) fn answered(&mut self, outcome: &Outcome) -> String {
        let Ticket { client, sequence } = outcome.ticket;
        for client in self.clients.values_mut().filter(|it| it.number == client) {
            client.waiting.remove(&sequence);
            if let End::Done { offset, .. } = outcome.result {
                client.seen = client.seen.max(offset);
            }
        }
        self.questions.remove(&outcome.ticket).unwrap_or("?".into())
    }
}

/// Tells a letter's kinds, by which scripts pick it; and what it says, as a line of the transcript.
pub(crate) trait Shown {
    fn kinds(&self) -> Vec<&'static str>;
    fn shown(&self) -> String;
}

/// Which letters a verb is about: all that are not held, when nothing is named.
#[derive(Default)]
pub(crate) struct Fits {
    pub(crate) from: Option<NodeId>,
    pub(crate) to: Option<NodeId>,
    pub(crate) kind: Option<String>,
    /// Nothing that goes to these.
    pub(crate) except_to: BTreeSet<NodeId>,
}

impl Fits {
    pub(crate) fn new(from: &Option<NodeId>, to: &Option<NodeId>, kind: &Option<String>) -> Fits {
        Fits { from: *from, to: *to, kind: kind.clone(), except_to: BTreeSet::new() }
    }

    fn fit(&self, letter: &Letter) -> bool {
        !letter.held
            && self.from.is_none_or(|from| letter.from == from)
            && self.to.is_none_or(|to| letter.to == to)
            && !self.except_to.contains(&letter.to)
            && self.kind.as_ref().is_none_or(|kind| letter.kinds().contains(&kind.as_str()))
    }

    /// Takes the letters that fit out of the network, in order, at most `n`.
    pub(crate) fn take(&self, network: &mut Vec<Letter>, n: Option<usize>) -> Vec<Letter> {
        let fitting = network.iter().enumerate().filter(|(_, letter)| self.fit(letter));
        let places: Vec<usize> = fitting.map(|(place, _)| place).take(n.unwrap_or(usize::MAX)).collect();
        let mut taken: Vec<Letter> = places.iter().rev().map(|place| network.remove(*place)).collect();
        taken.reverse();
        taken
    }

    /// Sends those that fit a second time, after all others.
    pub(crate) fn duplicate(&self, network: &mut Vec<Letter>) -> Vec<Letter> {
        let copies: Vec<Letter> = network.iter().filter(|letter| self.fit(letter)).cloned().collect();
        network.extend(copies.iter().cloned());
        copies
    }

    /// Keeps those that fit back.
    pub(crate) fn hold(&self, network: &mut [Letter]) -> Vec<Letter> {
        let mut held = Vec::new();
        for letter in network.iter_mut().filter(|letter| self.fit(letter)) {
            letter.held = true;
            held.push(letter.clone());
        }
        held
    }
}

/// Lines of the transcript that tell what became of letters.
pub(crate) fn told(what: &str, letters: &[Letter]) -> String {
    letters.iter().map(|letter| format!("{what}: {}\n", letter.shown())).collect()
}

/// What a request asks, in a few words; `command` tells what a command does.
pub(crate) fn question(request: &Request<'_>, command: impl Fn(&Command<'_>) -> String) -> String {
    match request {
        Request::Command(asked) => command(asked),
        Request::Wait { count, .. } => format!("wait {count}"),
    }
}

/// Sets a key, for so many milliseconds if told.
pub(crate) fn set<'a>(key: &'a str, value: &'a str, expires: Option<i64>) -> Command<'a> {
    Command::Set {
        key: key.as_bytes(),
        value: value.as_bytes(),
        expiry: expires.map_or(Expiry::Clear, |ms| Expiry::Set(Deadline::In(ms))),
        condition: Condition::Always,
        answer: SetAnswer::Status,
    }
}

/// The ends of a link, which is named like 1-2.
pub(crate) fn link(ends: &str) -> Done<(NodeId, NodeId)> {
    let (one, other) = ends.split_once('-').ok_or("a link is named like 1-2")?;
    Ok((one.parse()?, other.parse()?))
}

/// The microseconds of a duration like `100ms` or `50us`.
pub(crate) fn microseconds(duration: &str) -> Done<u64> {
    match (duration.strip_suffix("ms"), duration.strip_suffix("us")) {
        (Some(number), _) => Ok(number.parse::<u64>()? * 1000),
        (None, Some(number)) => Ok(number.parse()?),
        (None, None) => Err(format!("{duration} is no duration like 100ms").into()),
    }
}

/// Runs all scripts in a protocol's folder, each by a runner of its own.
pub(crate) fn run_all<R: goldenscript::Runner + Default>(protocol: &str) -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(protocol).join("golden");
    let mut scripts =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    scripts.sort();
    assert!(!scripts.is_empty(), "{protocol} has golden scripts");
    for script in scripts {
        println!("{}", script.display()); // The last one told is the one that failed.
        goldenscript::run(&mut R::default(), &script)?;
    }
    Ok(())
}

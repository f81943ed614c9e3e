//! Large values, split into several commands.

use rdb::{Id, Kind, Part};
use wire::resp::client::put_request;

/// The number of words, or of bytes, after which a command is sent.
const WORDS: usize = 500;
const BYTES: usize = 64 << 10;

/// Builds commands from the parts of one value.
pub struct Pieces<'k> {
    key: &'k [u8],
    /// The command being built: its name, and its words behind the key.
    name: &'static str,
    words: Vec<Vec<u8>>,
    bytes: usize,
    group: Vec<u8>,
    consumer: Vec<u8>,
    /// The group's pending entries: when each was delivered, and how often.
    pending: std::collections::BTreeMap<Id, (u64, u64)>,
}

fn text(number: impl ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn id_text(id: Id) -> Vec<u8> {
    format!("{}-{}", id.ms, id.seq).into_bytes()
}

impl<'k> Pieces<'k> {
    /// Begins a key's value, of which no part has come yet.
    pub fn new(key: &'k [u8]) -> Pieces<'k> {
        Pieces {
            key,
            name: "",
            words: Vec::new(),
            bytes: 0,
            group: Vec::new(),
            consumer: Vec::new(),
            pending: Default::default(),
        }
    }

    /// Takes the next part, and passes each complete command to `send`.
    pub fn take<E>(
        &mut self,
        part: Part<'_>,
        send: &mut impl FnMut(Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        match part {
            Part::Text(value) => self.add("SET", &[value], send),
            Part::Element(element) => self.add("RPUSH", &[element], send),
            Part::Member(member) => self.add("SADD", &[member], send),
            Part::Scored(member, score) => self.add("ZADD", &[score_text(score).as_bytes(), member], send),
            Part::Field { name, value, deadline_ms } => {
                self.add("HSET", &[name, value], send)?;
                let Some(deadline) = deadline_ms else { return Ok(()) };
                self.alone("HPEXPIREAT", &[&text(deadline), b"FIELDS", b"1", name], send)
            }
            Part::Entry(id, words) => {
                let id = id_text(id);
                let words: Vec<&[u8]> = std::iter::once(&id[..]).chain(words.iter()).collect();
                self.alone("XADD", &words, send)
            }
            Part::Stream { last, added, removed, .. } => {
                let (last, added, removed) = (id_text(last), text(added), id_text(removed));
                let words: [&[u8]; 5] = [&last, b"ENTRIESADDED", &added, b"MAXDELETEDID", &removed];
                self.alone("XSETID", &words, send)
            }
            Part::Group { name, last, read } => {
                self.group = name.to_vec();
                self.pending.clear();
                let (last, read) = (id_text(last), read.map_or_else(|| b"-1".to_vec(), text));
                self.group_command(&[b"CREATE", self.key, name, &last, b"ENTRIESREAD", &read], send)
            }
            Part::Pending { id, delivered_ms, deliveries } => {
                self.pending.insert(id, (delivered_ms, deliveries));
                Ok(())
            }
            Part::Consumer { name, .. } => {
                self.consumer = name.to_vec();
                let group = std::mem::take(&mut self.group);
                let outcome = self.group_command(&[b"CREATECONSUMER", self.key, &group, name], send);
                self.group = group;
                outcome
            }
            Part::Owned(id) => {
                let (delivered_ms, deliveries) = self.pending.remove(&id).unwrap_or_default();
                let (group, consumer) = (self.group.clone(), self.consumer.clone());
                let (id, time, count) = (id_text(id), text(delivered_ms), text(deliveries));
                let words: [&[u8]; 10] = [
                    &group,
                    &consumer,
                    b"0",
                    &id,
                    b"TIME",
                    &time,
                    b"RETRYCOUNT",
                    &count,
                    b"FORCE",
                    b"JUSTID",
                ];
                self.alone("XCLAIM", &words, send)
            }
        }
    }

    fn group_command<E>(
        &mut self,
        words: &[&[u8]],
        send: &mut impl FnMut(Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.end(send)?;
        let mut request = Vec::new();
        let mut all = vec![b"XGROUP".as_slice()];
        all.extend(words);
        put_request(&all, &mut request);
        send(request)
    }

    fn alone<E>(
        &mut self,
        name: &'static str,
        words: &[&[u8]],
        send: &mut impl FnMut(Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.end(send)?;
        self.add(name, words, send)?;
        self.end(send)
    }

    fn add<E>(
        &mut self,
        name: &'static str,
        words: &[&[u8]],
        send: &mut impl FnMut(Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.name = name;
        for word in words {
            self.bytes += word.len();
            self.words.push(word.to_vec());
        }
        if self.words.len() >= WORDS || self.bytes >= BYTES { self.end(send) } else { Ok(()) }
    }

    /// Passes the command being built to `send`.
    pub fn end<E>(&mut self, send: &mut impl FnMut(Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        if self.words.is_empty() {
            return Ok(());
        }
        let mut words: Vec<&[u8]> = vec![self.name.as_bytes(), self.key];
        words.extend(self.words.iter().map(Vec::as_slice));
        let mut request = Vec::with_capacity(self.bytes + 32 * words.len());
        put_request(&words, &mut request);
        self.words.clear();
        self.bytes = 0;
        send(request)
    }
}

fn score_text(score: f64) -> String {
    if score.is_infinite() { if score > 0.0 { "inf" } else { "-inf" }.into() } else { score.to_string() }
}

/// Most bytes of a value that is stored by one command. More for a stream: it has more than entries, and no command sets some
/// of that.
pub fn whole_bytes(kind: Kind) -> usize {
    if kind == Kind::Stream { 8 << 20 } else { 1 << 20 }
}

//! Files of keys, from any source, and where their keys go.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;

use anyhow::{Context as _, Error, Result, anyhow, bail};
use node::database_named;
use rdb::file::{FileReader, Item};
use rdb::{Damaged, Fault, Flaw, Form, Kind, Part, Source, payload, value};

use crate::pieces::{Pieces, whole_bytes};

/// Where the keys of a database go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Destination {
    /// The number of the cluster's database.
    pub database: u8,
    /// The prefix to put in front of the keys' names.
    pub prefix: Vec<u8>,
}

impl Destination {
    /// The destination that `--database NUMBER=PREFIX` names, and the one for the keys of a keyspace with this prefix: `@N`
    /// is a database.
    pub fn named(prefix: &str) -> Destination {
        match database_named(prefix.as_bytes()) {
            0 => Destination { database: 0, prefix: prefix.into() },
            database => Destination { database, prefix: Vec::new() },
        }
    }

    /// The destination at which the keys of a keyspace are, under their own names.
    pub fn of_keyspace(prefix: &str) -> Destination {
        Destination { database: database_named(prefix.as_bytes()), prefix: Vec::new() }
    }

    /// The name of a key at the destination.
    pub fn name<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        match self.prefix.is_empty() {
            true => Cow::Borrowed(key),
            false => Cow::Owned([&self.prefix, key].concat()),
        }
    }
}

/// Which keys of a file to take.
#[derive(Clone, Default)]
pub struct Rules {
    /// Where the keys of each database go. Keys of other databases are not taken.
    pub destinations: BTreeMap<u64, Destination>,
    /// Keys whose deadline is at or before this time are not taken, in milliseconds since the Unix epoch.
    pub expired_ms: u64,
    /// Longest string that the cluster accepts, in bytes.
    pub string_bytes_max: usize,
    /// Whether a value that is damaged within is left out, or mended if only a number is wrong. Otherwise reading ends
    /// there.
    pub goes_on: bool,
}

/// A receiver of keys.
pub trait Sink {
    /// Selects the cluster's database for the following keys.
    fn select(&mut self, database: u8) -> Result<()>;

    /// Takes a string.
    fn text(&mut self, key: &[u8], deadline_ms: Option<u64>, text: &[u8]) -> Result<()>;

    /// Takes a value in Redis's serialization format.
    fn payload(&mut self, key: &[u8], deadline_ms: Option<u64>, kind: Kind, payload: &[u8]) -> Result<()>;

    /// Begins a value that is sent as several commands. Returns false if the value is not taken.
    fn begin_pieces(&mut self, key: &[u8]) -> Result<bool>;

    /// Takes the next command of that value, encoded as a request.
    fn piece(&mut self, key: &[u8], request: &[u8]) -> Result<()>;

    /// Ends that value.
    fn end_pieces(&mut self, key: &[u8], deadline_ms: Option<u64>, kind: Kind) -> Result<()>;

    /// Ends that value, which cannot be read to its end: what was taken of it is removed, and it is reported as left out.
    ///
    /// # Errors
    /// If nothing may be left out.
    fn abandon_pieces(&mut self, key: &[u8], reason: &str) -> Result<()> {
        Err(refused(reason, key))
    }

    /// Reports a value that was taken, although it is not what its file says.
    ///
    /// # Errors
    /// If all must be as it is written.
    fn mended(&mut self, reason: &str, key: &[u8]) -> Result<()> {
        Err(refused(reason, key))
    }

    /// Takes a library of functions. Files of keys alone have none.
    ///
    /// # Errors
    /// If it is not taken.
    fn library(&mut self, _text: &[u8]) -> Result<()> {
        bail!("a library of functions is among the keys")
    }

    /// Reports something that cannot be taken, and is left out.
    ///
    /// # Errors
    /// If nothing may be left out.
    fn refuse(&mut self, reason: &str, what: &[u8]) -> Result<()>;

    /// Reports a key that had expired.
    fn expired(&mut self) {}

    /// Reports how many bytes of the file have been read.
    ///
    /// # Errors
    /// If what was taken could not be passed on.
    fn reached(&mut self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}

/// The error of a sink that leaves nothing out.
pub(crate) fn refused(reason: &str, what: &[u8]) -> Error {
    anyhow!("the file has {reason} ({})", what.escape_ascii())
}

/// Reads a file to its end.
///
/// # Errors
/// If the file cannot be read, or the sink returns an error.
pub fn read<R: Read>(file: &mut FileReader<R>, rules: &Rules, sink: &mut impl Sink) -> Result<()> {
    let (version, mut database) = (file.version(), 0);
    loop {
        sink.reached(file.source().at())?;
        match file.item()? {
            Item::End => return Ok(()),
            Item::Database(number) => database = number,
            Item::Function(text) => sink.library(&text)?,
            Item::Module(name) => sink.refuse("what a module wrote beside its keys", name.as_bytes())?,
            Item::ModuleKey { key, module } => {
                value::skip_module(file.source())?;
                sink.refuse(&format!("a value of the module {module}"), &key)?;
            }
            Item::Key { key, deadline_ms, tag, form } => {
                let source = file.source();
                let place = || format!("the value of the key \"{}\"", key.escape_ascii());
                let Some(destination) = rules.destinations.get(&database) else {
                    skip(form, source, rules).with_context(place)?;
                    sink.refuse(&of_database(database), &key)?;
                    continue;
                };
                if deadline_ms.is_some_and(|deadline| deadline <= rules.expired_ms) {
                    skip(form, source, rules).with_context(place)?;
                    sink.expired();
                    continue;
                }
                sink.select(destination.database)?;
                let name = destination.name(&key);
                take(&name, deadline_ms, (tag, form, version), source, rules, sink).with_context(place)?;
            }
        }
    }
}

/// The reason for not taking keys of a database.
pub fn of_database(database: u64) -> String {
    format!("of database {database}: give --database {database}=PREFIX")
}

fn take<R: Read>(
    key: &[u8],
    deadline_ms: Option<u64>,
    (tag, form, version): (u8, Form, u32),
    source: &mut Source<R>,
    rules: &Rules,
    sink: &mut impl Sink,
) -> Result<()> {
    let kind = form.kind();
    if kind == Kind::String {
        let mut text = Vec::new();
        let flaw = value::read_on(form, source, &mut |part: Part<'_>| {
            if let Part::Text(whole) = part {
                text.extend_from_slice(whole);
            }
            Ok::<(), Fault>(())
        })?;
        return match damage(flaw, rules)? {
            Some(reason) => sink.refuse(&reason, key),
            None if text.len() > rules.string_bytes_max => {
                sink.refuse("a string that is longer than the cluster allows", key)
            }
            None => sink.text(key, deadline_ms, &text),
        };
    }
    source.keep(whole_bytes(kind));
    match value::read_on(form, source, &mut |_| Ok::<(), Fault>(())) {
        Ok(None) => {
            let mut content = vec![tag];
            content.extend_from_slice(&source.kept());
            payload::close(version as u16, 0, &mut content);
            sink.payload(key, deadline_ms, kind, &content)
        }
        Ok(flaw) => match damage(flaw, rules)? {
            Some(reason) => {
                source.kept();
                sink.refuse(&reason, key)
            }
            // Commands need no numbers.
            None => {
                source.rewind();
                take_in_pieces(key, deadline_ms, form, source, rules, sink)
            }
        },
        Err(Fault::TooLong) => {
            source.rewind();
            take_in_pieces(key, deadline_ms, form, source, rules, sink)
        }
        Err(fault) => Err(fault.into()),
    }
}

fn take_in_pieces<R: Read>(
    key: &[u8],
    deadline_ms: Option<u64>,
    form: Form,
    source: &mut Source<R>,
    rules: &Rules,
    sink: &mut impl Sink,
) -> Result<()> {
    if !sink.begin_pieces(key)? {
        return Ok(skip(form, source, rules)?);
    }
    let mut pieces = Pieces::new(key);
    let mut send = |request: Vec<u8>| sink.piece(key, &request);
    let read = value::read_on(form, source, &mut |part: Part<'_>| {
        pieces.take(part, &mut send).map_err(Stopped::Sending)
    });
    let flaw = read.map_err(|stopped| match stopped {
        Stopped::Reading(fault) => anyhow::Error::from(fault),
        Stopped::Sending(error) => error,
    })?;
    if let Some(reason) = damage(flaw, rules)? {
        return sink.abandon_pieces(key, &reason);
    }
    pieces.end(&mut send)?;
    sink.end_pieces(key, deadline_ms, form.kind())?;
    match flaw {
        Some(Flaw::Miscounted(Damaged { why, .. })) => sink.mended(why, key),
        _ => Ok(()),
    }
}

/// Why a value is left out, if it is damaged.
///
/// # Errors
/// What is wrong, if reading ends there.
fn damage(flaw: Option<Flaw>, rules: &Rules) -> Result<Option<String>, Fault> {
    match flaw {
        Some(Flaw::Damaged(damaged) | Flaw::Miscounted(damaged)) if !rules.goes_on => Err(damaged.into()),
        Some(Flaw::Damaged(Damaged { why, .. })) => Ok(Some(format!("damaged: {why}"))),
        Some(Flaw::Miscounted(_)) | None => Ok(None),
    }
}

/// Why not all parts of a value were sent.
enum Stopped {
    Reading(Fault),
    Sending(anyhow::Error),
}

impl From<Fault> for Stopped {
    fn from(fault: Fault) -> Stopped {
        Stopped::Reading(fault)
    }
}

fn skip<R: Read>(form: Form, source: &mut Source<R>, rules: &Rules) -> Result<(), Fault> {
    let flaw = value::read_on(form, source, &mut |_| Ok::<(), Fault>(()))?;
    damage(flaw, rules).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdb::Id;
    use rdb::value::Words;
    use rdb::write::{FileWriter, StreamHead, put_length, put_node, tag};

    /// What a sink was told.
    #[derive(Default)]
    struct Seen(Vec<String>);

    fn shown(key: &[u8]) -> String {
        String::from_utf8_lossy(key).into_owned()
    }

    impl Sink for Seen {
        fn select(&mut self, _: u8) -> Result<()> {
            Ok(())
        }
        fn text(&mut self, key: &[u8], _: Option<u64>, _: &[u8]) -> Result<()> {
            self.0.push(format!("{} text", shown(key)));
            Ok(())
        }
        fn payload(&mut self, key: &[u8], _: Option<u64>, _: Kind, _: &[u8]) -> Result<()> {
            self.0.push(format!("{} payload", shown(key)));
            Ok(())
        }
        fn begin_pieces(&mut self, key: &[u8]) -> Result<bool> {
            self.0.push(format!("{} begins", shown(key)));
            Ok(true)
        }
        fn piece(&mut self, _: &[u8], request: &[u8]) -> Result<()> {
            let name = shown(request).split("\r\n").nth(2).unwrap().to_owned();
            self.0.push(name);
            Ok(())
        }
        fn end_pieces(&mut self, key: &[u8], _: Option<u64>, _: Kind) -> Result<()> {
            self.0.push(format!("{} ends", shown(key)));
            Ok(())
        }
        fn abandon_pieces(&mut self, key: &[u8], reason: &str) -> Result<()> {
            self.0.push(format!("{} is abandoned: {reason}", shown(key)));
            Ok(())
        }
        fn mended(&mut self, reason: &str, key: &[u8]) -> Result<()> {
            self.0.push(format!("{} is mended: {reason}", shown(key)));
            Ok(())
        }
        fn refuse(&mut self, reason: &str, what: &[u8]) -> Result<()> {
            self.0.push(format!("{} is refused: {reason}", shown(what)));
            Ok(())
        }
        fn expired(&mut self) {
            self.0.push("expired".into());
        }
    }

    /// A stream of two entries that says how many it has.
    fn stream(length: u64, last_ms: u64) -> Vec<u8> {
        let mut words = Words::default();
        [&b"f"[..], b"v"].iter().for_each(|word| words.push(word));
        let entry = |ms| (Id { ms, seq: 0 }, words.clone());
        let mut value = Vec::new();
        put_length(1, &mut value);
        put_node(&[entry(1), entry(2)], &mut value);
        let last = Id { ms: last_ms, seq: 0 };
        StreamHead { length, last, added: 2, ..StreamHead::default() }.put(&mut value);
        value
    }

    /// A large hash of one field, whose last string does not expand to as much as it says.
    fn large_hash() -> Vec<u8> {
        let mut value = vec![2, 1, b'a'];
        let bytes = whole_bytes(Kind::Hash) + 1;
        put_length(bytes as u64, &mut value);
        value.resize(value.len() + bytes, b'x');
        value.extend_from_slice(b"\x01b\xc3\x02\x28\x00z");
        value
    }

    /// A file with sound keys between values that are damaged within.
    fn file() -> Vec<u8> {
        let mut writer = FileWriter::begin(Vec::new()).unwrap();
        let mut key = |name: &str, deadline, tag, value: &[u8]| {
            writer.key(name.as_bytes(), deadline, tag, value).unwrap();
        };
        key("sound1", None, tag::STRING, b"\x01v");
        key("counts", None, tag::STREAM, &stream(9, 2));
        key("last", None, tag::STREAM, &stream(2, 1));
        key("sound2", None, tag::STREAM, &stream(2, 2));
        key("string", None, tag::STRING, b"\xc3\x02\x28\x00z");
        key("hash", None, 16, b"\x05abcde");
        key("large", None, 4, &large_hash());
        key("expired", Some(1), 16, b"\x05abcde");
        key("sound3", None, tag::STRING, b"\x01v");
        writer.end().unwrap().0
    }

    fn read_file(goes_on: bool) -> (Result<()>, Vec<String>) {
        let destinations = [(0, Destination::default())].into();
        let rules = Rules { destinations, expired_ms: 5, string_bytes_max: usize::MAX, goes_on };
        let (file, mut seen) = (file(), Seen::default());
        let outcome = read(&mut FileReader::new(&file[..]).unwrap(), &rules, &mut seen);
        (outcome, seen.0)
    }

    #[test]
    fn values_that_are_damaged_within_are_mended_or_left_out_and_the_rest_is_taken() {
        let (outcome, seen) = read_file(true);
        outcome.unwrap();
        let expected = [
            "sound1 text",
            "counts begins",
            "XADD",
            "XADD",
            "XSETID",
            "counts ends",
            "counts is mended: a stream with another number of entries than it says",
            "last begins",
            "XADD",
            "XADD",
            "XSETID",
            "last ends",
            "last is mended: a stream whose last id is smaller than an entry's",
            "sound2 payload",
            "string is refused: damaged: a compressed string that is damaged",
            "hash is refused: damaged: a packed collection with another length than it says",
            "large begins",
            "HSET",
            "large is abandoned: damaged: a compressed string that is damaged",
            "expired",
            "sound3 text",
        ];
        assert_eq!(seen, expected);
    }

    /// A live import compares what the server has with what it wrote.
    #[test]
    fn a_stream_that_counts_wrong_has_the_digest_of_what_it_becomes() {
        let digest = |value: &[u8]| {
            let mut content = [&[tag::STREAM][..], value].concat();
            payload::close(payload::VERSION, 0, &mut content);
            crate::digest::digest(&content).expect("it can be read")
        };
        let sound = digest(&stream(2, 2));
        assert_eq!([digest(&stream(9, 2)), digest(&stream(2, 1))], [sound; 2]);
        assert_ne!(digest(&stream(2, 3)), sound);
    }

    #[test]
    fn a_strict_reader_ends_at_the_first_value_that_is_damaged_within() {
        let (outcome, seen) = read_file(false);
        let why = format!("{:#}", outcome.unwrap_err());
        assert!(why.contains("the key \"counts\"") && why.contains("at byte "), "{why}");
        assert_eq!(seen, ["sound1 text"]);
    }
}

//! Files of keys, from any source, and where their keys go.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;

use anyhow::{Context as _, Error, Result, anyhow, bail};
use node::database_named;
use rdb::file::{FileReader, Item};
use rdb::{Fault, Form, Kind, Part, Source, payload, value};

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
                    skip(form, source).with_context(place)?;
                    sink.refuse(&of_database(database), &key)?;
                    continue;
                };
                if deadline_ms.is_some_and(|deadline| deadline <= rules.expired_ms) {
                    skip(form, source).with_context(place)?;
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
        source.text(&mut text)?;
        if text.len() > rules.string_bytes_max {
            return sink.refuse("a string that is longer than the cluster allows", key);
        }
        return sink.text(key, deadline_ms, &text);
    }
    source.keep(whole_bytes(kind));
    match value::read(form, source, &mut |_| Ok::<(), Fault>(())) {
        Ok(()) => {
            let mut content = vec![tag];
            content.extend_from_slice(&source.kept());
            payload::close(version as u16, 0, &mut content);
            sink.payload(key, deadline_ms, kind, &content)
        }
        Err(Fault::TooLong) => {
            source.rewind();
            if !sink.begin_pieces(key)? {
                return Ok(skip(form, source)?);
            }
            let mut pieces = Pieces::new(key);
            let mut send = |request: Vec<u8>| sink.piece(key, &request);
            let read = value::read(form, source, &mut |part: Part<'_>| {
                pieces.take(part, &mut send).map_err(Stopped::Sending)
            });
            read.map_err(|stopped| match stopped {
                Stopped::Reading(fault) => anyhow::Error::from(fault),
                Stopped::Sending(error) => error,
            })?;
            pieces.end(&mut send)?;
            sink.end_pieces(key, deadline_ms, kind)
        }
        Err(fault) => Err(fault.into()),
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

fn skip<R: Read>(form: Form, source: &mut Source<R>) -> Result<(), Fault> {
    value::read(form, source, &mut |_| Ok::<(), Fault>(()))
}

//! Files of changes: commands as in an append-only file of Redis, with a remark before each record.
//!
//! ```text
//! #record VERSION TIME_MS COMMANDS
//! *3 $3 SET $1 k $1 v        (each word on a line of its own, as clients send it)
//! ```
//!
//! The commands of a record take effect together. Versions grow.

use std::io::{Read, Write};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rdb::{Fault, Source};

use crate::commands::{self, Item};
use wire::resp::client::{Reply, put_request};

/// The beginning of a file.
const HEAD: &str = "#quorate-changes 1\r\n";

/// The most commands of a record: as many as a transaction has, each with more than one effect.
const COMMANDS: u64 = 1 << 24;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number: later records of the same shard have greater ones.
    pub version: u64,
    /// The time at which it was carried out, in milliseconds since the Unix epoch.
    pub time_ms: u64,
    /// Its effects, as commands with their words. They take effect together.
    pub commands: Vec<Vec<Vec<u8>>>,
}

/// Versions of a keyspace's groups.
pub type Versions = Vec<(u16, u64)>;

/// The versions of a keyspace's groups, encoded as one word.
pub fn word(versions: &Versions) -> String {
    versions.iter().map(|(group, version)| format!("{group}-{version}")).collect::<Vec<_>>().join(",")
}

/// Decodes the versions in such a word.
pub fn versions(word: &str) -> Option<Versions> {
    let one = |part: &str| {
        let (group, version) = part.split_once('-')?;
        Some((group.parse().ok()?, version.parse().ok()?))
    };
    word.split(',').map(one).collect()
}

/// Decodes the reply to `KEYSPACE CHANGES`: the versions up to which it is complete, and each record with the versions at
/// it.
pub fn of_reply(reply: Reply) -> Option<(Versions, Vec<(Versions, Record)>)> {
    let array = |reply: Reply| match reply {
        Reply::Array(items) => Some(items),
        _ => None,
    };
    let said = |reply: Option<Reply>| versions(std::str::from_utf8(&reply?.bytes()?).ok()?);
    let mut parts = array(reply)?.into_iter();
    let reached = said(parts.next())?;
    let mut records = Vec::new();
    for record in array(parts.next()?)? {
        let mut parts = array(record)?.into_iter();
        let at = said(parts.next())?;
        let Reply::Integer(time_ms) = parts.next()? else { return None };
        let _events = parts.next()?;
        let mut commands = Vec::new();
        for effect in array(parts.next()?)? {
            commands.push(array(effect)?.into_iter().map(Reply::bytes).collect::<Option<Vec<_>>>()?);
        }
        // The record's own version is the one that differs from the versions before.
        records.push((at, Record { version: 0, time_ms: time_ms as u64, commands }));
    }
    Some((reached, records))
}

/// Writes the beginning of a file.
pub fn begin(out: &mut impl Write) -> Result<()> {
    Ok(out.write_all(HEAD.as_bytes())?)
}

/// Appends a record.
pub fn write(record: &Record, out: &mut impl Write) -> Result<()> {
    let Record { version, time_ms, commands } = record;
    let mut bytes = format!("#record {version} {time_ms} {}\r\n", commands.len()).into_bytes();
    for words in commands {
        put_request(&words.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut bytes);
    }
    Ok(out.write_all(&bytes)?)
}

/// Reads a file from its beginning.
pub struct Reader<R> {
    source: Source<R>,
    bytes: u64,
    version: u64,
}

impl<R: Read> Reader<R> {
    /// Begins to read a file of this many bytes, whose records are all behind a version.
    ///
    /// # Errors
    /// If it is not such a file.
    pub fn new(from: R, bytes: u64, version: u64) -> Result<Reader<R>> {
        let mut source = Source::new(from, 0);
        let is_one = matches!(commands::item(&mut source)?, Item::Remark(text) if HEAD[1..].trim_end().as_bytes() == text);
        ensure!(is_one, "at byte 0: this is no file of changes, or one of a version that is not known");
        Ok(Reader { source, bytes, version })
    }

    /// Reads the next record; `None` at the end.
    ///
    /// # Errors
    /// If it is damaged. The error names the place.
    pub fn record(&mut self) -> Result<Option<Record>> {
        let at = self.source.at();
        let place = || format!("at byte {at}");
        if at == self.bytes {
            // If the file has checksums, the last one is compared at the end.
            return match self.source.byte() {
                Ok(_) => Err(anyhow!("at byte {at}: there is more than should be")),
                Err(Fault::Damaged(_)) => Ok(None),
                Err(fault) => Err(fault.into()),
            };
        }
        let Item::Remark(text) = commands::item(&mut self.source)? else {
            bail!("at byte {at}: a command that belongs to no record");
        };
        let text = String::from_utf8(text).ok().with_context(place)?;
        let numbers = text.strip_prefix("record ").and_then(|text| {
            let numbers: Option<Vec<u64>> = text.split(' ').map(|number| number.parse().ok()).collect();
            <[u64; 3]>::try_from(numbers?).ok()
        });
        let [version, time_ms, count] =
            numbers.with_context(|| format!("at byte {at}: no record begins here"))?;
        ensure!(version > self.version, "at byte {at}: record {version} stands behind {}", self.version);
        ensure!(count <= COMMANDS, "at byte {at}: a record of {count} commands");
        self.version = version;
        let mut commands = Vec::new();
        for _ in 0..count {
            match commands::item(&mut self.source)? {
                Item::Command(words) if !words.is_empty() => commands.push(words),
                _ => bail!("at byte {at}: the record has less than {count} commands"),
            }
        }
        Ok(Some(Record { version, time_ms, commands }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (Vec<u8>, Vec<Record>) {
        let words = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let record = |version, texts: &[&str]| Record {
            version,
            time_ms: 1000 + version,
            commands: texts.iter().map(|text| words(text)).collect(),
        };
        let records = vec![record(3, &["SET k v"]), record(4, &["DEL k", "RPUSH l a b"]), record(9, &[])];
        let mut bytes = Vec::new();
        begin(&mut bytes).unwrap();
        records.iter().for_each(|record| write(record, &mut bytes).unwrap());
        (bytes, records)
    }

    fn read(bytes: &[u8]) -> Result<Vec<Record>> {
        let mut reader = Reader::new(bytes, bytes.len() as u64, 2)?;
        let mut records = Vec::new();
        while let Some(record) = reader.record()? {
            records.push(record);
        }
        Ok(records)
    }

    #[test]
    fn records_survive_encoding() {
        let (bytes, records) = file();
        assert_eq!(read(&bytes).unwrap(), records);
    }

    /// Checksums find damage first. Without them, a reader must still not panic, nor accept a file that is malformed.
    #[test]
    fn a_damaged_file_is_refused_with_the_place_and_without_a_panic() {
        let (bytes, records) = file();
        for at in 0..bytes.len() {
            for change in [1, 0x20, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                match read(&changed) {
                    // The change was in a byte of a word, or of a number.
                    Ok(read) => assert!(read.len() == records.len(), "byte {at}"),
                    Err(error) => assert!(format!("{error:#}").contains("at byte "), "{error:#}"),
                }
            }
            if let Ok(read) = read(&bytes[..at]) {
                assert!(read.len() < records.len() || at == bytes.len(), "{at} bytes are not all records");
            }
        }
    }
}

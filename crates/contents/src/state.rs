//! What a shard held at one moment: its keys, and later changes carried out on a table in memory.
//!
//! The table and the commands are those of a replica (`kv`). Each change is carried out with its record's time, so
//! that the same keys count as expired as did then. Nothing else expires, so a backup may be of any age.

use std::io::{self, Read};

use ::commands::{Context, Handler, find};
use anyhow::{Result, anyhow, bail};
use kv::limits::VALUE_BYTES_MAX_CEILING;
use kv::{Command, Condition, Deadline, Expiry, ReplyBuffer, RestoreOptions, SetAnswer, SnapshotId, Table};
use rdb::Kind;
use wire::resp::ArgumentsBuffer;

use crate::changes::Record;
use crate::commands;
use crate::keys::{self, Sink};

/// The time at which keys are put into the table: before all deadlines.
const BEGINNING_MS: u64 = 0;

/// The table's content is encoded in chunks of this many bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// The keys of a shard.
pub struct State {
    table: Table,
    applied: u64,
}

impl Default for State {
    /// A shard without keys.
    fn default() -> State {
        State { table: Table::new(0), applied: 0 }
    }
}

impl State {
    /// Carries out a record.
    ///
    /// # Errors
    /// If a command is invalid or cannot be carried out: the record does not belong to these keys.
    pub fn apply(&mut self, record: &Record) -> Result<()> {
        for words in &record.commands {
            self.run(words, record.time_ms).map_err(|why| {
                let name = words.first().map(Vec::as_slice).unwrap_or_default().escape_ascii();
                anyhow!("record {}: {name} cannot be carried out: {why}", record.version)
            })?;
        }
        // Keys that were removed all at once still take memory.
        while self.table.tidy(usize::MAX) {}
        Ok(())
    }

    fn run(&mut self, words: &[Vec<u8>], time_ms: u64) -> Result<()> {
        if matches!(words, [name] if name == b"FLUSHDB") {
            return self.carry_out(&Command::Clear {}, time_ms);
        }
        let request: ArgumentsBuffer = words.iter().map(Vec::as_slice).collect();
        let found = find(request.as_arguments()).map_err(|error| anyhow!("{error}"))?;
        let Handler::Data(parse) = found.spec.handler else { bail!("it is no command on keys") };
        let context = Context {
            now_ms: time_ms,
            value_bytes_max: VALUE_BYTES_MAX_CEILING,
            stream_node_entries: 0,
            database: 0,
            level: 2,
            encodings: kv::command::EncodingLimits::default(),
        };
        let mut scratch = Vec::new();
        let command = parse(request.as_arguments(), &mut scratch, &context);
        let command = command.map_err(|error| anyhow!("{error}"))?;
        self.carry_out(&command, time_ms)
    }

    fn carry_out(&mut self, command: &Command<'_>, time_ms: u64) -> Result<()> {
        self.applied += 1;
        let mut reply = ReplyBuffer::new();
        self.table.apply(command, self.applied, time_ms, &mut reply);
        match kv::Reply::first(reply.as_bytes()) {
            kv::Reply::Error(error) => bail!("{}", String::from_utf8_lossy(error)),
            _ => Ok(()),
        }
    }

    /// The contents, as a Redis file in memory.
    pub fn dump(&mut self) -> Vec<u8> {
        self.table.dump_all()
    }

    /// The contents, as a Redis file that is created while it is read.
    pub fn into_file(mut self) -> StateFile {
        let snapshot = self.table.begin_snapshot();
        // Version 12 of the format, and the only database.
        StateFile { table: self.table, snapshot, out: b"REDIS0012\xfe\x00".to_vec(), read: 0, is_over: false }
    }
}

/// Keys are stored as they come; nothing is refused or left out.
impl Sink for State {
    fn select(&mut self, _: u8) -> Result<()> {
        Ok(())
    }

    fn text(&mut self, key: &[u8], deadline_ms: Option<u64>, text: &[u8]) -> Result<()> {
        let deadline = deadline_ms.map(|deadline| i64::try_from(deadline).unwrap_or(i64::MAX));
        let expiry = deadline.map_or(Expiry::Clear, |deadline| Expiry::Set(Deadline::At(deadline)));
        let (condition, answer) = (Condition::Always, SetAnswer::Status);
        self.carry_out(&Command::Set { key, value: text, expiry, condition, answer }, BEGINNING_MS)
    }

    fn payload(&mut self, key: &[u8], deadline_ms: Option<u64>, _: Kind, payload: &[u8]) -> Result<()> {
        let deadline = deadline_ms.map(|deadline| Deadline::At(i64::try_from(deadline).unwrap_or(i64::MAX)));
        self.carry_out(
            &Command::Restore {
                key,
                payload,
                deadline,
                options: RestoreOptions { replaces: true, used: None },
            },
            BEGINNING_MS,
        )
    }

    fn begin_pieces(&mut self, _: &[u8]) -> Result<bool> {
        Ok(true)
    }

    fn piece(&mut self, _: &[u8], request: &[u8]) -> Result<()> {
        match commands::item(&mut rdb::Source::new(request, 0))? {
            commands::Item::Command(words) => self.run(&words, BEGINNING_MS),
            commands::Item::Remark(_) => bail!("a piece of a value that is none"),
        }
    }

    fn end_pieces(&mut self, key: &[u8], deadline_ms: Option<u64>, _: Kind) -> Result<()> {
        let Some(deadline) = deadline_ms else { return Ok(()) };
        let words = [&b"PEXPIREAT"[..], key, deadline.to_string().as_bytes()].map(<[u8]>::to_vec);
        self.run(&words, BEGINNING_MS)
    }

    fn refuse(&mut self, reason: &str, what: &[u8]) -> Result<()> {
        Err(keys::refused(reason, what))
    }
}

/// The contents of a table, read as a Redis file.
pub struct StateFile {
    table: Table,
    snapshot: SnapshotId,
    out: Vec<u8>,
    read: usize,
    is_over: bool,
}

impl Read for StateFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // A chunk may be empty although another one follows.
        while self.read == self.out.len() && !self.is_over {
            self.out.clear();
            self.read = 0;
            // This table's snapshot cannot be lost: nothing else uses the table.
            let more = self.table.dump_chunk(self.snapshot, CHUNK_BYTES, &mut self.out, None);
            if more != Some(true) {
                self.is_over = true;
                // The end mark, and 0 for "no checksum".
                self.out.extend_from_slice(&[0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
            }
        }
        let count = into.len().min(self.out.len() - self.read);
        into[..count].copy_from_slice(&self.out[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes;
    use crate::digest::digest;
    use crate::keys::{self, Destination, Rules};
    use kv::ReplyBuffer;
    use kv::codec::Reader;
    use rdb::file::FileReader;
    use std::collections::BTreeMap;

    const TEMPLATES: &[&str] = &[
        "SET t value",
        "SET t value PX ms",
        "APPEND t value",
        "INCRBY n number",
        "PEXPIRE any ms",
        "PERSIST any",
        "DEL any",
        "RENAME any any",
        "COPY any any REPLACE",
        "RPUSH l value value",
        "LPOP l",
        "LMOVE l l LEFT RIGHT",
        "SADD s value value",
        "SPOP s",
        "SUNIONSTORE s s s",
        "ZADD z number value",
        "ZPOPMIN z",
        "HSET h value number",
        "HINCRBY h value number",
        "HPEXPIRE h ms FIELDS 1 value",
        "HPERSIST h FIELDS 1 value",
        "XADD q * f value",
        "XGROUP CREATE q g 0",
        "XREADGROUP GROUP g c COUNT 2 STREAMS q >",
        "XTRIM q MAXLEN 3",
        "FLUSHALL",
    ];

    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % bound
        }

        fn command(&mut self) -> Vec<Vec<u8>> {
            let template = TEMPLATES[self.below(TEMPLATES.len() as u64) as usize];
            // FLUSHALL only rarely.
            let template = if template == "FLUSHALL" && self.below(4) > 0 { TEMPLATES[0] } else { template };
            let word = |word: &str| match word {
                "t" | "n" | "l" | "s" | "z" | "h" | "q" => format!("{word}{}", self.below(3)),
                "any" => format!(
                    "{}{}",
                    ["t", "n", "l", "s", "z", "h", "q"][self.below(7) as usize],
                    self.below(3)
                ),
                "value" => format!("v{}", self.below(20)),
                "number" => self.below(1000).to_string(),
                "ms" => (1 + self.below(400)).to_string(),
                other => other.to_owned(),
            };
            template.split(' ').map(word).map(String::into_bytes).collect()
        }
    }

    fn apply(table: &mut Table, words: &[Vec<u8>], offset: u64, now_ms: u64) {
        let request: ArgumentsBuffer = words.iter().map(Vec::as_slice).collect();
        let Handler::Data(parse) = find(request.as_arguments()).unwrap().spec.handler else {
            assert_eq!(words[0], b"FLUSHALL");
            table.apply(&Command::Clear {}, offset, now_ms, &mut ReplyBuffer::new());
            return;
        };
        let encodings = kv::command::EncodingLimits::default();
        let context = Context {
            now_ms,
            value_bytes_max: 1 << 20,
            stream_node_entries: 2,
            database: 0,
            level: 2,
            encodings,
        };
        let mut scratch = Vec::new();
        // A key is not renamed to itself.
        let Ok(command) = parse(request.as_arguments(), &mut scratch, &context) else { return };
        table.apply(&command, offset, now_ms, &mut ReplyBuffer::new());
    }

    /// The contents of a file of keys: each key's deadline, and its value as a payload.
    #[derive(Default)]
    struct Held(BTreeMap<String, (Option<u64>, Vec<u8>)>);

    impl Sink for Held {
        fn select(&mut self, _: u8) -> Result<()> {
            Ok(())
        }

        fn text(&mut self, key: &[u8], deadline_ms: Option<u64>, text: &[u8]) -> Result<()> {
            self.payload(key, deadline_ms, Kind::String, text)
        }
        fn payload(&mut self, key: &[u8], deadline_ms: Option<u64>, _: Kind, payload: &[u8]) -> Result<()> {
            let before = self.0.insert(key.escape_ascii().to_string(), (deadline_ms, payload.to_vec()));
            assert_eq!(before, None, "a key is there once");
            Ok(())
        }
        fn begin_pieces(&mut self, _: &[u8]) -> Result<bool> {
            unreachable!()
        }
        fn piece(&mut self, _: &[u8], _: &[u8]) -> Result<()> {
            unreachable!()
        }
        fn end_pieces(&mut self, _: &[u8], _: Option<u64>, _: Kind) -> Result<()> {
            unreachable!()
        }
        fn library(&mut self, _: &[u8]) -> Result<()> {
            unreachable!()
        }
        fn refuse(&mut self, reason: &str, _: &[u8]) -> Result<()> {
            unreachable!("{reason}")
        }
        fn expired(&mut self) {
            unreachable!()
        }
        fn reached(&mut self, _: u64) -> Result<()> {
            Ok(())
        }
    }

    fn all() -> Rules {
        Rules {
            destinations: [(0, Destination::default())].into(),
            expired_ms: 0,
            string_bytes_max: usize::MAX,
            goes_on: false,
        }
    }

    fn held(file: impl Read) -> Held {
        let mut held = Held::default();
        keys::read(&mut FileReader::new(file).unwrap(), &all(), &mut held).unwrap();
        held
    }

    /// The records behind a version.
    fn records(table: &mut Table, from: u64) -> Vec<Record> {
        let mut out = ReplyBuffer::new();
        table.recent(from, u32::MAX, &mut out);
        let mut reader = Reader::new(out.as_bytes());
        let mut next = || kv::Reply::decode(&mut reader).unwrap();
        let kv::Reply::Array(parts) = next() else { panic!("no list") };
        assert_eq!(next(), kv::Reply::Integer(0), "all are kept");
        next();
        let mut records = Vec::new();
        for _ in 2..parts {
            let (_, kv::Reply::Integer(version), kv::Reply::Integer(time)) = (next(), next(), next()) else {
                panic!()
            };
            let kv::Reply::Array(events) = next() else { panic!("no events") };
            (0..3 * events).for_each(|_| _ = next());
            let kv::Reply::Array(effects) = next() else { panic!("no effects") };
            let commands = (0..effects).map(|_| {
                let kv::Reply::Array(words) = next() else { panic!("no effect") };
                let word = |reply| match reply {
                    kv::Reply::Bulk(word) => word.to_vec(),
                    other => panic!("{other:?}"),
                };
                (0..words).map(|_| word(next())).collect()
            });
            let commands = commands.collect();
            records.push(Record { version: version as u64, time_ms: time as u64, commands });
        }
        records
    }

    /// At every version, an earlier copy and the changes up to that version, written to a file and read back, hold what the
    /// table held: keys, values, deadlines of keys and fields, groups of streams, and expired keys that have not been
    /// removed.
    #[test]
    fn a_copy_and_later_changes_give_the_state_at_each_version() {
        for seed in 0..60 {
            let mut random = Random(seed);
            let mut table = Table::new(seed);
            table.keep_history(64 << 20);
            let (mut now_ms, mut taken) = (1_700_000_000_000, None);
            let copied_at = random.below(100);
            let mut moments = Vec::new();
            for offset in 1..=200 {
                now_ms += random.below(60);
                if random.below(10) == 0
                    && let Some(until) = table.purge_until(now_ms, 3)
                {
                    table.apply(&Command::Purge { until }, offset, now_ms, &mut ReplyBuffer::new());
                } else {
                    apply(&mut table, &random.command(), offset, now_ms);
                }
                if offset == 1 + copied_at {
                    taken = Some((table.version_floor(), table.dump_all()));
                }
                if taken.is_some() && random.below(4) == 0 {
                    moments.push((table.version_floor(), held(&table.dump_all()[..]).0));
                }
            }
            let (version, file) = taken.unwrap();
            let mut written = Vec::new();
            changes::begin(&mut written).unwrap();
            for record in records(&mut table, version) {
                changes::write(&record, &mut written).unwrap();
            }
            for (at, expected) in moments {
                let mut state = State::default();
                keys::read(&mut FileReader::new(&file[..]).unwrap(), &all(), &mut state).unwrap();
                let mut reader = changes::Reader::new(&written[..], written.len() as u64, version).unwrap();
                while let Some(record) = reader.record().unwrap().filter(|record| record.version <= at) {
                    state.apply(&record).unwrap();
                }
                let state = held(state.into_file()).0;
                let keys = |held: &BTreeMap<String, _>| held.keys().cloned().collect::<Vec<_>>();
                assert_eq!(keys(&state), keys(&expected), "seed {seed}, version {at}");
                for (key, wanted) in &expected {
                    let value = |(deadline, payload): &(Option<u64>, Vec<u8>)| {
                        (
                            *deadline,
                            // A string is no payload.
                            digest(payload).unwrap_or_else(|| kv::digest::digest_of(payload)),
                        )
                    };
                    assert_eq!(value(&state[key]), value(wanted), "seed {seed}, version {at}, {key}");
                }
            }
        }
    }

    /// Even where checksums do not find damage, a reader of keys must not panic.
    #[test]
    fn damaged_keys_and_changes_are_refused_without_a_panic() {
        let mut table = Table::new(1);
        let mut random = Random(7);
        (1..=300).for_each(|offset| apply(&mut table, &random.command(), offset, 1_700_000_000_000));
        let file = table.dump_all();
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 1 << random.below(8);
            let mut state = State::default();
            let Ok(mut reader) = FileReader::new(&changed[..]) else { continue };
            // Some damage only changes a value.
            if keys::read(&mut reader, &all(), &mut state).is_ok() {
                held(state.into_file());
            }
        }
        for words in
            ["NOSUCH k", "SET", "GET", "PING", "EVAL x 0", "INCRBY k x", "LPUSH t0 v", "SUBSCRIBE c", ""]
        {
            let words = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let record = Record { version: 1, time_ms: 1, commands: vec![words] };
            let mut state = State::default();
            state.text(b"t0", None, b"v").unwrap();
            state.text(b"k", None, b"v").unwrap();
            let why = state.apply(&record).unwrap_err().to_string();
            assert!(why.starts_with("record 1: "), "{why}");
        }
    }
}

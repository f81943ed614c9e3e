//! Reads of several groups at one moment, without locks and without records.
//!
//! First each group tells the versions of its keys, as for `WATCH`. When all have, each carries out its reads if no version has
//! changed, as `EXEC` does. If none has, all values existed together at every moment between the last answer of the first round and the
//! first question of the second (`docs/design/transactions.md`, "Reads of one moment").

use kv::codec::Reader;
use kv::{Command, Draft, List, Reply, UnixMs, Version, Watched};
use protocol::Result as Outcome;
use protocol::planted::{Fault, Planted};
use protocol::two_phase::Found;
use std::collections::{BTreeMap, BTreeSet};

/// After so many attempts that met a change the keys are locked.
const ATTEMPTS: u32 = 3;

/// A request that reads.
#[derive(Debug)]
pub(crate) struct Reading {
    groups: BTreeMap<u16, Part>,
    /// How many answers are awaited.
    awaited: usize,
    attempts: u32,
    /// When the attempt began, by the clock that the nodes agree on.
    since: UnixMs,
    planted: Planted,
}

/// What is asked of one group.
#[derive(Debug, Default)]
struct Part {
    /// The reads, encoded.
    reads: Vec<u8>,
    keys: Vec<Vec<u8>>,
    /// The versions of the keys, in the second round.
    seen: Option<Seen>,
    reply: Vec<u8>,
}

#[derive(Debug)]
struct Seen {
    leadership: u64,
    floor: Version,
    versions: Vec<Version>,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The other groups have not answered yet.
    Wait,
    /// All groups are asked.
    Ask,
    /// What all groups have read, at one moment.
    Read(Vec<Found>),
    /// The keys change too often: they have to be locked.
    Lock,
    /// The encoded error of a group.
    Refused(Vec<u8>),
}

/// Whether a command's reply can change only with the version of one of its keys, or with the time of a key's deadline. Fields of hashes
/// expire without a version, and scripts may read such.
pub(crate) fn shows_versions(command: &Command<'_>) -> bool {
    !command.is_write() && !matches!(command, Command::Script(_) | Command::Hash(_) | Command::Dump { .. })
}

impl Reading {
    /// Begins with [`Next::Ask`]. `drafts`: the reads of each group.
    pub(crate) fn new<'d>(
        drafts: impl Iterator<Item = (&'d u16, &'d Draft)>,
        since: UnixMs,
        planted: Planted,
    ) -> Reading {
        let part = |(group, draft): (&u16, &Draft)| {
            let command = Command::Transaction(draft.transaction());
            let (mut reads, mut keys) = (Vec::new(), BTreeSet::new());
            command.encode(&mut reads);
            command.for_each_key(|key| {
                keys.insert(key.to_vec());
            });
            (*group, Part { reads, keys: keys.into_iter().collect(), ..Part::default() })
        };
        let groups: BTreeMap<u16, Part> = drafts.map(part).collect();
        Reading { awaited: groups.len(), groups, attempts: 0, since, planted }
    }

    /// What each group is asked now.
    pub(crate) fn questions(&self) -> Vec<(u16, Vec<u8>)> {
        self.groups.iter().map(|(group, part)| (*group, self.question(part))).collect()
    }

    fn question(&self, part: &Part) -> Vec<u8> {
        let mut encoded = Vec::new();
        let Some(seen) = &part.seen else {
            let mut scratch = Vec::new();
            let keys = List::build(&mut scratch, part.keys.iter().map(Vec::as_slice));
            Command::Watch { keys }.encode(&mut encoded);
            return encoded;
        };
        if self.planted.has(Fault::VersionsNotCompared) {
            return part.reads.clone();
        }
        let mut draft = Draft::default();
        for (key, version) in part.keys.iter().zip(&seen.versions) {
            draft.watch(seen.leadership, Watched { key, version: *version, floor: seen.floor });
        }
        let Ok(Command::Transaction(reads)) = Command::decode(&mut Reader::new(&part.reads)) else {
            unreachable!("it was encoded here")
        };
        reads.commands().for_each(|read| assert!(draft.push(&read), "it was a part before"));
        Command::Transaction(draft.transaction()).encode(&mut encoded);
        encoded
    }

    /// Takes a group's answer.
    pub(crate) fn answered(&mut self, group: u16, result: Outcome, reply: &[u8], now: UnixMs) -> Next {
        let part = self.groups.get_mut(&group).expect("only its groups are asked");
        let Outcome::Done { version, .. } = result else { return Next::Refused(reply.to_vec()) };
        match (&part.seen, Reply::first(reply)) {
            (_, Reply::Error(_)) => return Next::Refused(reply.to_vec()),
            (None, _) => {
                let mut elements = Reader::new(reply);
                let mut integer = || match Reply::decode(&mut elements) {
                    Ok(Reply::Integer(integer)) => Version::try_from(integer).unwrap_or(0),
                    _ => 0,
                };
                let _head = integer();
                let floor = integer();
                let versions = part.keys.iter().map(|_| integer()).collect();
                part.reply.clear();
                part.seen = Some(Seen { leadership: version, floor, versions });
            }
            (Some(_), _) => part.reply = reply.to_vec(),
        }
        self.awaited -= 1;
        match self.awaited {
            0 => self.end_round(now),
            _ => Next::Wait,
        }
    }

    fn end_round(&mut self, now: UnixMs) -> Next {
        self.awaited = self.groups.len();
        if self.groups.values().all(|part| part.reply.is_empty()) {
            return Next::Ask;
        }
        if self.groups.values().all(|part| Reply::first(&part.reply) != Reply::NullArray) {
            let found = |(group, part): (&u16, &mut Part)| Found {
                group: *group,
                time: self.since,
                reply: std::mem::take(&mut part.reply),
            };
            return Next::Read(self.groups.iter_mut().map(found).collect());
        }
        self.attempts += 1;
        self.since = now;
        for part in self.groups.values_mut() {
            part.seen = None;
            part.reply.clear();
        }
        if self.attempts < ATTEMPTS { Next::Ask } else { Next::Lock }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::ReplyBuffer;

    const GROUPS: [u16; 2] = [4, 9];

    fn get(key: &[u8]) -> Draft {
        let mut draft = Draft::default();
        assert!(draft.push(&Command::Get { key }));
        draft
    }

    fn reading() -> Reading {
        let drafts = [get(b"a"), get(b"b")];
        Reading::new(GROUPS.iter().zip(&drafts), 7, Planted::default())
    }

    fn encoded(replies: &[Reply<'_>]) -> Vec<u8> {
        let mut buffer = ReplyBuffer::new();
        replies.iter().for_each(|reply| buffer.push(*reply));
        buffer.take()
    }

    const DONE: Outcome = Outcome::Done { version: 3, offset: 0 };

    fn versions() -> Vec<u8> {
        encoded(&[Reply::Array(2), Reply::Integer(1), Reply::Integer(5)])
    }

    fn value(text: &'static str) -> Vec<u8> {
        encoded(&[Reply::Array(1), Reply::Bulk(text.as_bytes())])
    }

    fn is_watching(reading: &Reading) -> Vec<bool> {
        let questions = reading.questions();
        let watches = |bytes: &[u8]| match Command::decode(&mut Reader::new(bytes)) {
            Ok(Command::Watch { .. }) => true,
            Ok(Command::Transaction(reads)) => {
                let watched: Vec<_> = reads.watched().map(|it| (it.version, it.floor)).collect();
                assert_eq!((reads.epoch(), reads.len(), watched), (3, 1, vec![(5, 1)]));
                false
            }
            other => panic!("{other:?}"),
        };
        questions.iter().map(|(_, bytes)| watches(bytes)).collect()
    }

    #[test]
    fn values_are_read_once_all_groups_have_told_versions_and_count_if_none_has_changed() {
        let mut reading = reading();
        assert_eq!(is_watching(&reading), [true, true]);
        assert_eq!(reading.answered(9, DONE, &versions(), 8), Next::Wait);
        assert_eq!(reading.answered(4, DONE, &versions(), 8), Next::Ask);
        assert_eq!(is_watching(&reading), [false, false]);
        assert_eq!(reading.answered(4, DONE, &value("x"), 8), Next::Wait);
        let found = [(4, "x"), (9, "y")].map(|(group, text)| Found { group, time: 7, reply: value(text) });
        assert_eq!(reading.answered(9, DONE, &value("y"), 8), Next::Read(found.to_vec()));
    }

    #[test]
    fn keys_that_change_each_time_are_locked() {
        let mut reading = reading();
        for attempt in 1..=ATTEMPTS {
            assert_eq!(is_watching(&reading), [true, true]);
            GROUPS.into_iter().for_each(|group| drop(reading.answered(group, DONE, &versions(), 8)));
            let changed = encoded(&[Reply::NullArray]);
            assert_eq!(reading.answered(4, DONE, &changed, 8), Next::Wait);
            let next = reading.answered(9, DONE, &value("y"), 8);
            assert_eq!(next, if attempt < ATTEMPTS { Next::Ask } else { Next::Lock });
        }
    }

    #[test]
    fn an_error_ends_it() {
        let error = encoded(&[Reply::Error(b"CLUSTERDOWN no")]);
        assert_eq!(reading().answered(4, Outcome::Refused, &error, 8), Next::Refused(error.clone()));
        assert_eq!(reading().answered(4, DONE, &error, 8), Next::Refused(error));
    }
}

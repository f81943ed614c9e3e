//! The filters of `CLIENT LIST` and `CLIENT KILL`: which connections a client means.

use crate::session::{ClientKind, Session};
use commands::DATABASES;
use kv::number::parse_integer;
use std::collections::BTreeSet;
use std::mem::discriminant;
use wire::resp::Arguments;

const SYNTAX: &str = "ERR syntax error";
const NO_ID: &str = "ERR syntax error: client-id should be greater than 0";

/// The letters of `FLAGS` that are known, of which a connection here may have those that [`Session::flags`] shows.
const FLAGS: &[u8] = b"OSMPxbtRBdcuAUreTIN";

/// The letters of `CAPA`: see [`Session::capabilities`].
const CAPABILITIES: &[u8] = b"r";

/// The connections that meet every condition given.
#[derive(Debug, Default)]
pub(super) struct Filter {
    wanted: Vec<Criterion>,
    unwanted: Vec<Criterion>,
    /// Connected for at least this many seconds.
    age_seconds: u64,
    /// Without a request for at least this many seconds.
    idle_seconds: u64,
    /// The client that is left out.
    spared: Option<u64>,
}

/// What a connection may have, for a condition and for its opposite (`NOT-…`).
#[derive(Debug, PartialEq, Eq)]
enum Criterion {
    Id(BTreeSet<u64>),
    Kind(Kind),
    Address(Vec<u8>),
    LocalAddress(Vec<u8>),
    Ip(Vec<u8>),
    User(Vec<u8>),
    Name(Vec<u8>),
    LibraryName(Vec<u8>),
    LibraryVersion(Vec<u8>),
    /// All of these letters.
    Flags(Vec<u8>),
    /// All of these letters.
    Capabilities(Vec<u8>),
    Database(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Normal,
    /// It subscribes to channels.
    Listens,
    /// A replica of Redis.
    Replica,
    /// No connection here is one.
    Primary,
}

impl Filter {
    /// Reads the words behind `CLIENT LIST`, or `CLIENT KILL` if `kills`: that spares the client that gives the command, `asker`,
    /// unless the words say otherwise.
    ///
    /// # Errors
    /// The error for the client.
    pub(super) fn parse(
        words: Arguments<'_>,
        asker: u64,
        kills: bool,
        knows_user: impl Fn(&[u8]) -> bool,
    ) -> Result<Filter, String> {
        let mut filter = Filter { spared: kills.then_some(asker), ..Filter::default() };
        let mut at = 0;
        while let Some(word) = words.get(at) {
            let word = word.to_ascii_lowercase();
            let value = words.get(at + 1).ok_or(SYNTAX)?;
            at += 2;
            match word.as_slice() {
                b"maxage" => filter.age_seconds = seconds("maxage", value)?,
                b"idle" => filter.idle_seconds = seconds("idle", value)?,
                b"skipme" => match value.to_ascii_lowercase().as_slice() {
                    b"yes" => filter.spared = Some(asker),
                    b"no" => filter.spared = None,
                    _ => return Err(SYNTAX.into()),
                },
                _ => {
                    let (name, list) = match word.strip_prefix(b"not-") {
                        Some(name) => (name, &mut filter.unwanted),
                        None => (word.as_slice(), &mut filter.wanted),
                    };
                    if name == b"id" {
                        let mut ids =
                            BTreeSet::from([id(value)?.ok_or(if kills { NO_ID } else { SYNTAX })?]);
                        while let Some(more) = words.get(at).map(id).transpose()?.flatten() {
                            ids.insert(more);
                            at += 1;
                        }
                        match list.iter_mut().find_map(|criterion| criterion.ids()) {
                            Some(others) => others.append(&mut ids),
                            None => list.push(Criterion::Id(ids)),
                        }
                        continue;
                    }
                    let criterion = Criterion::parse(name, value, &word, &knows_user)?;
                    // The last one counts.
                    list.retain(|other| discriminant(other) != discriminant(&criterion));
                    list.push(criterion);
                }
            }
        }
        Ok(filter)
    }

    /// Whether a connection is meant. `is_monitor`: it has sent `MONITOR`.
    pub(super) fn fits(&self, session: &Session, is_monitor: bool, now_us: u64) -> bool {
        const SECOND_US: u64 = 1_000_000;
        self.spared != Some(session.number())
            && session.age_us(now_us) >= self.age_seconds.saturating_mul(SECOND_US)
            && session.idle_us(now_us) >= self.idle_seconds.saturating_mul(SECOND_US)
            && self.wanted.iter().all(|criterion| criterion.fits(session, is_monitor))
            && !self.unwanted.iter().any(|criterion| criterion.fits(session, is_monitor))
    }
}

impl Criterion {
    fn parse(
        name: &[u8],
        value: &[u8],
        word: &[u8],
        knows_user: &impl Fn(&[u8]) -> bool,
    ) -> Result<Criterion, String> {
        let text = || String::from_utf8_lossy(value);
        let letters = |known: &[u8], what: &str| match value.iter().all(|letter| known.contains(letter)) {
            true => Ok(value.to_vec()),
            false if word.starts_with(b"not-") => {
                let word = String::from_utf8_lossy(word).to_ascii_uppercase();
                Err(format!("ERR Unknown {what} found in the {word} filter: {}", text()))
            }
            false => Err(format!("ERR Unknown {what} found in the provided filter: {}", text())),
        };
        Ok(match name {
            b"type" => Criterion::Kind(match value.to_ascii_lowercase().as_slice() {
                b"normal" => Kind::Normal,
                b"pubsub" => Kind::Listens,
                b"replica" | b"slave" => Kind::Replica,
                b"master" | b"primary" => Kind::Primary,
                _ => return Err(format!("ERR Unknown client type '{}'", text())),
            }),
            b"addr" => Criterion::Address(value.to_vec()),
            b"laddr" => Criterion::LocalAddress(value.to_vec()),
            b"ip" => Criterion::Ip(value.to_vec()),
            b"user" if knows_user(value) => Criterion::User(value.to_vec()),
            b"user" => return Err(format!("ERR No such user '{}'", text())),
            b"name" => Criterion::Name(value.to_vec()),
            b"lib-name" => Criterion::LibraryName(value.to_vec()),
            b"lib-ver" => Criterion::LibraryVersion(value.to_vec()),
            b"flags" => Criterion::Flags(letters(FLAGS, "flags")?),
            b"capa" => Criterion::Capabilities(letters(CAPABILITIES, "capa")?),
            b"db" => {
                let word = String::from_utf8_lossy(word).to_ascii_uppercase();
                let number = parse_integer(value)
                    .ok_or_else(|| format!("ERR {word} is not an integer or out of range"))?;
                let number = u8::try_from(number).ok().filter(|number| *number < DATABASES);
                Criterion::Database(
                    number.ok_or_else(|| {
                        format!("ERR {word} number should be between 0 and {}", DATABASES - 1)
                    })?,
                )
            }
            _ => return Err(SYNTAX.into()),
        })
    }

    fn ids(&mut self) -> Option<&mut BTreeSet<u64>> {
        match self {
            Criterion::Id(ids) => Some(ids),
            _ => None,
        }
    }

    fn fits(&self, session: &Session, is_monitor: bool) -> bool {
        match self {
            Criterion::Id(ids) => ids.contains(&session.number()),
            Criterion::Kind(kind) => match session.replica.is_one {
                true => *kind == Kind::Replica,
                false if session.subscriptions.is_some() => *kind == Kind::Listens,
                false => *kind == Kind::Normal,
            },
            Criterion::Address(address) => address == session.address().as_bytes(),
            Criterion::LocalAddress(address) => address == session.local_address().as_bytes(),
            Criterion::Ip(ip) => match session.kind() {
                ClientKind::Resp { .. } => {
                    session.ip_address().is_some_and(|address| ip == address.to_string().as_bytes())
                }
                ClientKind::Internal => false,
            },
            Criterion::User(user) => session.is_authenticated() && user == session.user_name(),
            Criterion::Name(name) => !session.name().is_empty() && name == session.name(),
            Criterion::LibraryName(name) => session.library().is_some_and(|(of, _)| name == of),
            Criterion::LibraryVersion(version) => session.library().is_some_and(|(_, of)| version == of),
            Criterion::Flags(flags) => {
                let has = session.flags(is_monitor);
                flags.iter().all(|letter| has.as_bytes().contains(letter))
            }
            Criterion::Capabilities(letters) => {
                letters.iter().all(|letter| session.capabilities().as_bytes().contains(letter))
            }
            Criterion::Database(number) => *number == session.database,
        }
    }
}

/// The number of a client; `None`: the word is no number.
fn id(word: &[u8]) -> Result<Option<u64>, String> {
    match parse_integer(word) {
        None => Ok(None),
        Some(id) => match u64::try_from(id) {
            Ok(id) if id > 0 => Ok(Some(id)),
            _ => Err("ERR client-id should be greater than 0".into()),
        },
    }
}

fn seconds(name: &str, value: &[u8]) -> Result<u64, String> {
    let seconds =
        parse_integer(value).ok_or_else(|| format!("ERR {name} is not an integer or out of range"))?;
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
    seconds.ok_or_else(|| format!("ERR {name} should be greater than 0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::resp::ArgumentsBuffer;

    fn parsed(line: &str) -> Result<Filter, String> {
        let words: ArgumentsBuffer = line.split(' ').map(str::as_bytes).collect();
        Filter::parse(words.as_arguments(), 7, true, |name| name == b"ann")
    }

    #[test]
    fn the_last_condition_of_a_kind_counts_and_ids_add_up() {
        let filter = parsed("id 1 2 ID 3 name a name b not-name c skipme no maxage 5").unwrap();
        let ids = Criterion::Id(BTreeSet::from([1, 2, 3]));
        assert_eq!(filter.wanted, [ids, Criterion::Name(b"b".to_vec())]);
        assert_eq!(filter.unwanted, [Criterion::Name(b"c".to_vec())]);
        assert_eq!((filter.spared, filter.age_seconds), (None, 5));
        assert_eq!(parsed("type normal").unwrap().spared, Some(7));
    }

    #[test]
    fn wrong_conditions_get_the_errors_of_redis_and_valkey() {
        for (line, error) in [
            ("id", "ERR syntax error"),
            ("id x", NO_ID),
            ("id 1 x", "ERR syntax error"),
            ("not-id 0", "ERR client-id should be greater than 0"),
            ("type what", "ERR Unknown client type 'what'"),
            ("user bob", "ERR No such user 'bob'"),
            ("skipme perhaps", "ERR syntax error"),
            ("maxage x", "ERR maxage is not an integer or out of range"),
            ("idle 0", "ERR idle should be greater than 0"),
            ("flags NZ", "ERR Unknown flags found in the provided filter: NZ"),
            ("not-capa q", "ERR Unknown capa found in the NOT-CAPA filter: q"),
            ("db 16", "ERR DB number should be between 0 and 15"),
            ("not-db x", "ERR NOT-DB is not an integer or out of range"),
            ("not-skipme yes", "ERR syntax error"),
            ("nosuch 1", "ERR syntax error"),
        ] {
            assert_eq!(parsed(line).err().as_deref(), Some(error), "{line}");
        }
    }
}

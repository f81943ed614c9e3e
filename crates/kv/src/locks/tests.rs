//! Golden scripts of locks: each says in prose what it shows. They live in `src/locks/golden`, one file per behaviour, and
//! are the documentation by example. To write the transcripts anew after a change (the diff is what there is to review):
//!
//! ```text
//! UPDATE_GOLDENFILES=1 cargo test -p quorate-kv locks
//! ```
//!
//! Each verb is a record, numbered from 1; its number is the token of whom it grants a lock.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

#[derive(goldenscript::Command)]
enum Verb {
    /// Asks for a lock, and waits for it under a number if one is given.
    Acquire {
        #[arg(key)]
        name: String,
        #[arg(key)]
        owner: String,
        #[arg(key)]
        ms: Option<u64>,
        #[arg(key)]
        wait: Option<u64>,
    },
    /// Gives a lock back.
    Release {
        #[arg(key)]
        name: String,
        #[arg(key)]
        token: u64,
    },
    /// Makes a lease longer.
    Renew {
        #[arg(key)]
        name: String,
        #[arg(key)]
        token: u64,
        #[arg(key)]
        ms: Option<u64>,
    },
    /// A lease has lasted its time: the lock's present one, or one that was measured before.
    Expire {
        #[arg(key)]
        name: String,
        #[arg(key)]
        token: Option<u64>,
        #[arg(key)]
        number: Option<u64>,
    },
    /// A request waits no longer.
    Withdraw {
        #[arg(key)]
        name: String,
        #[arg(key)]
        wait: u64,
    },
    /// Whether a write with this token is let through.
    Fence {
        #[arg(key)]
        name: String,
        #[arg(key)]
        token: u64,
    },
    /// How a lock stands.
    Show {
        #[arg(key)]
        name: String,
    },
    /// From now on a copy of all locks is used.
    Copy,
}

#[derive(Default)]
struct Script {
    locks: Locks,
    version: Version,
}

fn told(grant: Option<Grant>) -> String {
    match grant {
        Some(Grant { owner, waiter, token, lease_ms }) => {
            let waiter = waiter.map_or(String::new(), |id| format!(", which waited as {id},"));
            format!("{}{waiter} holds it with token {token} for {lease_ms} ms", owner.escape_ascii())
        }
        None => "nobody holds it".into(),
    }
}

impl Script {
    fn next(&mut self) -> Version {
        self.version += 1;
        self.version
    }

    fn lease(&self, name: &str) -> Lease {
        let none = Lease { token: 0, number: 0, lease_ms: 0 };
        self.locks.standing(name.as_bytes()).map_or(none, |standing| standing.lease)
    }
}

impl goldenscript::Runner for Script {
    type Command = Verb;

    fn run(&mut self, verb: &Verb, _: &goldenscript::Context) -> Result<String, Box<dyn Error>> {
        let mut out = String::new();
        match verb {
            Verb::Acquire { name, owner, ms, wait } => {
                let version = self.next();
                let (name, owner) = (name.as_bytes(), owner.as_bytes());
                match self.locks.acquire(name, owner, ms.unwrap_or(1000), *wait, version) {
                    Acquired::Granted(grant) => writeln!(out, "{version}: {}", told(Some(grant)))?,
                    Acquired::Queued { behind } => writeln!(out, "{version}: waits behind {behind}")?,
                    Acquired::Held { token } => writeln!(out, "{version}: held, with token {token}")?,
                    Acquired::Full => writeln!(out, "{version}: too many wait")?,
                }
            }
            Verb::Release { name, token } => {
                let version = self.next();
                match self.locks.release(name.as_bytes(), *token, version) {
                    Some(grant) => writeln!(out, "{version}: released, {}", told(grant))?,
                    None => writeln!(out, "{version}: refused, that token does not hold it")?,
                }
            }
            Verb::Renew { name, token, ms } => {
                let version = self.next();
                match self.locks.renew(name.as_bytes(), *token, ms.unwrap_or(1000)) {
                    true => writeln!(out, "{version}: renewed")?,
                    false => writeln!(out, "{version}: refused, that token does not hold it")?,
                }
            }
            Verb::Expire { name, token, number } => {
                let version = self.next();
                let present = self.lease(name);
                let (token, number) = (token.unwrap_or(present.token), number.unwrap_or(present.number));
                match self.locks.expire(name.as_bytes(), Lease { token, number, lease_ms: 0 }, version) {
                    Some(grant) => writeln!(out, "{version}: expired, {}", told(grant))?,
                    None => writeln!(out, "{version}: that lease is not the present one")?,
                }
            }
            Verb::Withdraw { name, wait } => {
                let version = self.next();
                match self.locks.withdraw(name.as_bytes(), *wait, version) {
                    grant @ Some(_) => writeln!(out, "{version}: withdrawn, {}", told(grant))?,
                    None => writeln!(out, "{version}: withdrawn")?,
                }
            }
            Verb::Fence { name, token } => {
                let allows = self.locks.allows(name.as_bytes(), *token);
                writeln!(out, "token {token} is {}", if allows { "let through" } else { "refused" })?;
            }
            Verb::Show { name } => match self.locks.standing(name.as_bytes()) {
                Some(Standing { owner, lease: Lease { token, number, lease_ms }, waiters }) => {
                    let owner = owner.escape_ascii();
                    writeln!(out, "{owner}, token {token}, lease {number} of {lease_ms} ms, {waiters} wait")?;
                }
                None => writeln!(out, "free")?,
            },
            Verb::Copy => {
                let mut bytes = Vec::new();
                self.locks.encode(&mut bytes);
                let mut reader = Reader::new(&bytes);
                let copy = Locks::decode(&mut reader)?;
                assert!(copy == self.locks && reader.is_empty());
                self.locks = copy;
            }
        }
        Ok(out)
    }
}

#[test]
fn golden_scripts() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/locks/golden");
    let mut scripts: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    scripts.sort_by_key(std::fs::DirEntry::path);
    assert!(!scripts.is_empty());
    for script in scripts {
        println!("{}", script.path().display()); // The last one told is the one that failed.
        goldenscript::run(&mut Script::default(), script.path())?;
    }
    Ok(())
}

#[test]
fn a_queue_has_an_end() {
    let mut locks = Locks::default();
    for number in 0..=WAITERS_MAX as u64 {
        let owner = number.to_le_bytes();
        assert_ne!(locks.acquire(b"l", &owner, 1, Some(number), number + 1), Acquired::Full);
    }
    assert_eq!(locks.acquire(b"l", b"late", 1, Some(0), 99_999), Acquired::Full);
}

#[test]
fn a_copy_that_ends_early_is_malformed() {
    let mut locks = Locks::default();
    locks.acquire(b"gone", b"a", 1, None, 1);
    locks.release(b"gone", 1, 2);
    locks.acquire(b"l", b"a", 1, None, 3);
    locks.acquire(b"l", b"b", 1, Some(7), 4);
    let mut bytes = Vec::new();
    locks.encode(&mut bytes);
    for end in 0..bytes.len() {
        assert!(Locks::decode(&mut Reader::new(&bytes[..end])).is_err(), "cut at {end}");
    }
}

/// One record, with small numbers so that they meet.
#[derive(Clone, Debug)]
enum Record {
    Acquire {
        name: u8,
        owner: u8,
        waits: bool,
    },
    /// By the newest token of the lock, or by one that is not its own.
    Release {
        name: u8,
        own: bool,
    },
    Renew {
        name: u8,
        own: bool,
    },
    Expire {
        name: u8,
        present: bool,
    },
    Withdraw {
        name: u8,
        which: usize,
    },
}

fn record() -> impl Strategy<Value = Record> {
    let name = || 0..3u8;
    prop_oneof![
        4 => (name(), 0..5u8, any::<bool>()).prop_map(|(name, owner, waits)| Record::Acquire { name, owner, waits }),
        3 => (name(), any::<bool>()).prop_map(|(name, own)| Record::Release { name, own }),
        1 => (name(), any::<bool>()).prop_map(|(name, own)| Record::Renew { name, own }),
        2 => (name(), any::<bool>()).prop_map(|(name, present)| Record::Expire { name, present }),
        1 => (name(), 0..4usize).prop_map(|(name, which)| Record::Withdraw { name, which }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Whatever is done: tokens of a lock only grow, at most one token is let through while it is held, whoever came first
    /// is served first, and only the holder's token and the present lease end what is held.
    #[test]
    fn tokens_grow_and_only_the_newest_is_let_through(records in vec(record(), 0..80)) {
        let (mut locks, mut version, mut ids) = (Locks::default(), 0, 0);
        let mut newest: [Version; 3] = [0; 3];
        let mut queues: [Vec<u64>; 3] = Default::default();
        for record in &records {
            version += 1;
            let (Record::Acquire { name, .. } | Record::Release { name, .. } | Record::Renew { name, .. }
                | Record::Expire { name, .. } | Record::Withdraw { name, .. }) = *record;
            let (at, key) = (usize::from(name), [name]);
            let before = locks.standing(&key).map(|standing| standing.lease);
            let token = |own: bool| if own { newest[at] } else { newest[at].wrapping_sub(1) };
            let grant = match *record {
                Record::Acquire { owner, waits, .. } => {
                    ids += 1;
                    match locks.acquire(&key, &[owner], 1000, waits.then_some(ids), version) {
                        Acquired::Granted(grant) => {
                            prop_assert!(before.is_none_or(|lease| lease.token == grant.token));
                            Some(grant)
                        }
                        Acquired::Queued { behind } if behind > queues[at].len() => {
                            queues[at].push(ids);
                            None
                        }
                        Acquired::Queued { behind } => {
                            queues[at][behind - 1] = ids;
                            None
                        }
                        Acquired::Held { token } => {
                            prop_assert_eq!(before.map(|lease| lease.token), Some(token));
                            None
                        }
                        Acquired::Full => unreachable!("so few do not fill a queue"),
                    }
                }
                Record::Release { own, .. } => {
                    let released = locks.release(&key, token(own), version);
                    prop_assert_eq!(released.is_some(), own && before.is_some());
                    released.flatten()
                }
                Record::Renew { own, .. } => {
                    prop_assert_eq!(locks.renew(&key, token(own), 5), own && before.is_some());
                    None
                }
                Record::Expire { present, .. } => {
                    let none = Lease { token: 0, number: 0, lease_ms: 0 };
                    let lease = before.unwrap_or(none);
                    let number = lease.number + u64::from(!present);
                    let expired = locks.expire(&key, Lease { number, ..lease }, version);
                    prop_assert_eq!(expired.is_some(), present && before.is_some());
                    expired.flatten()
                }
                Record::Withdraw { which, .. } => {
                    let id = queues[at].get(which).copied().unwrap_or(u64::MAX);
                    queues[at].retain(|other| *other != id);
                    locks.withdraw(&key, id, version)
                }
            };
            if let Some(Grant { token, waiter: Some(id), .. }) = grant {
                prop_assert_eq!(queues[at].remove(0), id, "the first to come");
                prop_assert!(token > newest[at]);
            }
            if let Some(grant) = grant {
                prop_assert!(grant.token >= newest[at]);
                newest[at] = grant.token;
            }
            match locks.standing(&key) {
                Some(standing) => prop_assert_eq!(standing.lease.token, newest[at]),
                None => prop_assert!(queues[at].is_empty(), "nobody waits for what is free"),
            }
            for older in 0..newest[at] {
                prop_assert!(!locks.allows(&key, older), "{} of {}", older, newest[at]);
            }
            prop_assert!(locks.allows(&key, newest[at]) || locks.standing(&key).is_none());
        }
    }
}

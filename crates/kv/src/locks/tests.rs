//! Golden scripts of locks: each says in prose what it shows. They are in `src/locks/golden`, one file per behaviour,
//! and are the documentation by example. To rewrite the transcripts after a change, and then review the diff:
//!
//! ```text
//! UPDATE_GOLDENFILES=1 cargo test -p quorate-kv locks
//! ```
//!
//! Each verb is a record, numbered from 1; a record's number is the token of the locks it grants. Requests that wait have a
//! number, and come from incarnation 1 of node 1 unless stated otherwise. Lines below a record's reply that are indented
//! are the other effects of the record.

use super::*;
use crate::command::{Expiry, Fenced, SetAnswer};
use crate::planted::{Fault, Planted};
use crate::{Command, Condition, Padded, Table};
use proptest::collection::vec;
use proptest::prelude::*;
use std::error::Error;
use std::fmt::Write as _;
use std::num::NonZeroU64;
use std::path::Path;

#[derive(goldenscript::Command)]
enum Verb {
    /// Requests a lock, and waits for it under a number if one is given.
    Acquire {
        #[arg(key)]
        name: String,
        #[arg(key)]
        owner: String,
        #[arg(key)]
        ms: Option<u64>,
        #[arg(key)]
        session: Option<u64>,
        #[arg(key)]
        wait: Option<u64>,
        #[arg(key)]
        node: Option<u16>,
        #[arg(key)]
        life: Option<u64>,
    },
    /// Releases a lock.
    Release {
        #[arg(key)]
        name: String,
        #[arg(key)]
        token: u64,
    },
    /// Renews a lease.
    Renew {
        #[arg(key)]
        name: String,
        #[arg(key)]
        token: u64,
        #[arg(key)]
        ms: Option<u64>,
    },
    /// A lease has run out: the lock's current one, or one that was measured earlier.
    Expire {
        #[arg(key)]
        name: String,
        #[arg(key)]
        token: Option<u64>,
        #[arg(key)]
        number: Option<u64>,
    },
    /// Withdraws a waiting request.
    Withdraw {
        #[arg(key)]
        name: String,
        #[arg(key)]
        wait: u64,
    },
    /// A node is lost, or has started a new incarnation.
    DropWaiters {
        #[arg(key)]
        node: u16,
        #[arg(key)]
        spared: Option<u64>,
    },
    /// Opens a session.
    Open {
        #[arg(key)]
        ms: u64,
    },
    /// Renews a session.
    Keep {
        #[arg(key)]
        session: u64,
    },
    /// Closes a session.
    Close {
        #[arg(key)]
        session: u64,
    },
    /// A session's lease has run out.
    Over {
        #[arg(key)]
        session: u64,
        #[arg(key)]
        number: u64,
    },
    /// The state of a waiting request. No record.
    Check {
        #[arg(key)]
        name: String,
        #[arg(key)]
        wait: u64,
    },
    /// Whether a write with this token is allowed.
    Write {
        #[arg(key)]
        name: String,
        #[arg(key)]
        token: u64,
    },
    /// The state of a lock. No record.
    Show {
        #[arg(key)]
        name: String,
    },
    /// Continues with a copy of the table. No record.
    Copy,
    /// Plants a fault: from now on, one rule does not hold. No record.
    Plant {
        #[arg(key)]
        fault: String,
    },
}

struct Script {
    table: Table,
    version: Version,
}

impl Default for Script {
    fn default() -> Self {
        Script { table: Table::new(0), version: 0 }
    }
}

fn id(node: u16, life: u64, number: u64) -> WaiterId {
    WaiterId { node, life, number: NonZeroU64::new(number).expect("numbers begin with 1") }
}

fn text_of(waiter: WaiterId) -> String {
    let WaiterId { node, life, number } = waiter;
    if (node, life) == (1, 1) {
        number.to_string()
    } else {
        format!("{number} of life {life} of node {node}")
    }
}

fn subject(subject: &Subject) -> String {
    match subject {
        Subject::Lock(name) => format!("lock {}", name.escape_ascii()),
        Subject::Session(number) => format!("session {number}"),
    }
}

fn write_event(event: &LockEvent, out: &mut String) -> std::fmt::Result {
    match event {
        LockEvent::Leased(of, Lease { token, number, ms }) => {
            writeln!(out, "   {}: lease {number} of token {token} for {ms} ms", subject(of))
        }
        LockEvent::Ended(of) => writeln!(out, "   {}: no lease", subject(of)),
        LockEvent::Notified { waiter, name, notification } => {
            let notification = match notification {
                LockNotification::Granted(token) => {
                    format!("granted {} with token {token}", name.escape_ascii())
                }
                LockNotification::SessionOver => "its session is over".into(),
                LockNotification::Superseded => "its owner asked again".into(),
                LockNotification::Dropped => "dropped".into(),
                LockNotification::Served => "served".into(),
            };
            writeln!(out, "   to {}: {notification}", text_of(*waiter))
        }
    }
}

/// The reply as text.
fn answer(replies: &ReplyBuffer) -> String {
    match Reply::first(replies.as_bytes()) {
        Reply::Integer(value) => value.to_string(),
        Reply::Null => "null".into(),
        Reply::Ok => "OK".into(),
        Reply::Bulk(text) | Reply::Status(text) | Reply::Error(text) => {
            String::from_utf8_lossy(text).into_owned()
        }
        other => format!("{other:?}"),
    }
}

impl Script {
    fn record(&mut self, command: &Command<'_>, out: &mut String) -> std::fmt::Result {
        self.version += 1;
        let mut replies = ReplyBuffer::new();
        self.table.apply(command, self.version, 0, &mut replies);
        writeln!(out, "{}: {}", self.version, answer(&replies))?;
        let events = self.table.take_lock_events().unwrap_or_default();
        events.iter().try_for_each(|event| write_event(event, out))
    }

    fn read(&mut self, command: LockCommand<'_>) -> String {
        let mut replies = ReplyBuffer::new();
        self.table.read(&Command::Lock(command), 0, &mut replies);
        answer(&replies)
    }
}

fn copy_of(table: &mut Table) -> Table {
    let mut copy = Table::new(1);
    let snapshot = table.begin_snapshot();
    let mut more = true;
    while more {
        let mut chunk = Vec::new();
        more = table.snapshot_chunk(snapshot, 1, &mut chunk);
        copy.install(&chunk).expect("a table's own snapshot");
    }
    table.end_snapshot(snapshot);
    copy.set_version_floor(table.version_floor());
    assert_eq!(copy.digest(), table.digest(), "the copy is the same");
    copy
}

impl goldenscript::Runner for Script {
    type Command = Verb;

    fn run(&mut self, verb: &Verb, _: &goldenscript::Context) -> Result<String, Box<dyn Error>> {
        use LockCommand::*;
        let mut out = String::new();
        let command = match verb {
            Verb::Acquire { name, owner, ms, session, wait, node, life } => {
                let (name, owner) = (name.as_bytes(), owner.as_bytes());
                let hold = session.map_or(Hold::Lease(ms.unwrap_or(1000)), Hold::Session);
                let waiter = wait.map(|number| id(node.unwrap_or(1), life.unwrap_or(1), number));
                Acquire { name, owner, hold, waiter }
            }
            Verb::Release { name, token } => Release { name: name.as_bytes(), token: *token },
            Verb::Renew { name, token, ms } => {
                Renew { name: name.as_bytes(), token: *token, lease_ms: ms.unwrap_or(1000) }
            }
            Verb::Expire { name, token, number } => {
                let present = self.table.locks().standing(name.as_bytes()).and_then(|it| it.lease);
                let present = present.unwrap_or(Lease { token: 0, number: 0, ms: 0 });
                let (token, number) = (token.unwrap_or(present.token), number.unwrap_or(present.number));
                Expire { name: name.as_bytes(), token, number }
            }
            Verb::Withdraw { name, wait } => Withdraw { name: name.as_bytes(), waiter: id(1, 1, *wait) },
            Verb::DropWaiters { node, spared } => DropWaiters { node: *node, spared: Padded(*spared) },
            Verb::Open { ms } => OpenSession { key: b"k", group: 7, lease_ms: *ms },
            Verb::Keep { session } => RenewSession { key: b"k", session: *session },
            Verb::Close { session } => CloseSession { key: b"k", session: *session },
            Verb::Over { session, number } => ExpireSession { session: *session, number: *number },
            Verb::Check { name, wait } => {
                let answer = self.read(Check { name: name.as_bytes(), waiter: id(1, 1, *wait) });
                writeln!(out, "{answer}")?;
                return Ok(out);
            }
            Verb::Write { name, token } => {
                let mut scratch = Vec::new();
                let set = Command::Set {
                    key: b"k",
                    value: b"v",
                    expiry: Expiry::Clear,
                    condition: Condition::Always,
                    answer: SetAnswer::Status,
                };
                let fenced = Fenced::build(name.as_bytes(), *token, &set, &mut scratch);
                self.record(&Command::Fenced(fenced.ok_or("a SET stands behind a fence")?), &mut out)?;
                return Ok(out);
            }
            Verb::Show { name } => {
                match self.table.locks().standing(name.as_bytes()) {
                    Some(Standing { owner, token, lease, waiters, hold }) => {
                        let lease = lease.map_or("no lease".into(), |Lease { number, ms, .. }| {
                            format!("lease {number} of {ms} ms")
                        });
                        let session = match hold {
                            Hold::Session(number) => format!(" of session {number}"),
                            Hold::Lease(_) => String::new(),
                        };
                        let owner = owner.escape_ascii();
                        writeln!(out, "{owner}, token {token}, {lease}{session}, {waiters} wait")?;
                    }
                    None => writeln!(out, "free")?,
                }
                return Ok(out);
            }
            Verb::Copy => {
                self.table = copy_of(&mut self.table);
                return Ok(out);
            }
            Verb::Plant { fault } => {
                let fault = match fault.as_str() {
                    "freed_by_non_owner" => Fault::LockFreedByNonOwner,
                    "token_reused" => Fault::LockTokenReused,
                    "session_not_rechecked" => Fault::LockSessionNotRechecked,
                    other => return Err(format!("no fault {other}").into()),
                };
                self.table.plant(Planted::one(fault));
                return Ok(out);
            }
        };
        self.record(&Command::Lock(command), &mut out)?;
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
        println!("{}", script.path().display()); // The last one printed is the one that failed.
        goldenscript::run(&mut Script::default(), script.path())?;
    }
    Ok(())
}

/// Applies one command to locks without a table.
fn apply(locks: &mut Locks, command: LockCommand<'_>, version: Version) -> (Answer, Vec<LockEvent>) {
    let mut events = Vec::new();
    let answer = locks.apply(&command, version, &mut events);
    (answer, events)
}

fn acquire<'a>(name: &'a [u8], owner: &'a [u8], wait: Option<u64>) -> LockCommand<'a> {
    let waiter = wait.map(|number| id(1, 1, number));
    LockCommand::Acquire { name, owner, hold: Hold::Lease(1000), waiter }
}

#[test]
fn a_queue_has_a_maximum_length() {
    let mut locks = Locks::default();
    for number in 1..=WAITERS_MAX as u64 + 1 {
        let owner = number.to_le_bytes();
        let (answer, _) = apply(&mut locks, acquire(b"l", &owner, Some(number)), number);
        assert_ne!(answer, TOO_MANY_WAIT);
    }
    assert_eq!(apply(&mut locks, acquire(b"l", b"late", Some(99_999)), 99_999).0, TOO_MANY_WAIT);
    assert_eq!(locks.waiters(), WAITERS_MAX);
}

#[test]
fn the_nodes_of_waiting_requests_are_reported() {
    let mut locks = Locks::default();
    apply(&mut locks, acquire(b"l", b"holder", None), 1);
    for (version, node) in [(2, 3), (3, 9), (4, 3), (5, u16::MAX)] {
        let owner = [version as u8];
        let waiter = Some(id(node, 1, version));
        let command = LockCommand::Acquire { name: b"l", owner: &owner, hold: Hold::Lease(1), waiter };
        apply(&mut locks, command, version);
    }
    assert_eq!(locks.coordinators(), [3, 9, u16::MAX]);
    apply(&mut locks, LockCommand::DropWaiters { node: 9, spared: Padded(None) }, 6);
    assert_eq!(locks.coordinators(), [3, u16::MAX]);
}

#[test]
fn an_item_that_ends_early_is_malformed() {
    let mut locks = Locks::default();
    apply(&mut locks, acquire(b"gone", b"a", None), 1);
    apply(&mut locks, LockCommand::Release { name: b"gone", token: 1 }, 2);
    apply(&mut locks, LockCommand::OpenSession { key: b"k", group: 1, lease_ms: 9 }, 3);
    apply(&mut locks, acquire(b"l", b"a", None), 4);
    apply(&mut locks, acquire(b"l", b"b", Some(7)), 5);
    let mut items = Vec::new();
    locks.for_each_item(|item| items.push(item.to_vec()));
    assert_eq!(items.len(), 3);
    for item in &items {
        for end in 0..item.len() {
            assert!(Locks::default().take_item(&item[..end]).is_err(), "cut at {end}");
        }
    }
}

/// One record, with small numbers so that records affect each other.
#[derive(Clone, Debug)]
enum Record {
    Acquire {
        name: u8,
        owner: u8,
        waits: bool,
        in_session: bool,
    },
    /// With the lock's newest token, or with one that is not the lock's.
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
    Open,
    Close,
}

fn record() -> impl Strategy<Value = Record> {
    let name = || 0..3u8;
    prop_oneof![
        6 => (name(), 0..5u8, any::<bool>(), any::<bool>()).prop_map(|(name, owner, waits, in_session)| {
            Record::Acquire { name, owner, waits, in_session }
        }),
        4 => (name(), any::<bool>()).prop_map(|(name, own)| Record::Release { name, own }),
        1 => (name(), any::<bool>()).prop_map(|(name, own)| Record::Renew { name, own }),
        3 => (name(), any::<bool>()).prop_map(|(name, present)| Record::Expire { name, present }),
        1 => (name(), 0..4usize).prop_map(|(name, which)| Record::Withdraw { name, which }),
        1 => Just(Record::Open),
        1 => Just(Record::Close),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Whatever happens: a lock's tokens only grow; at most one token is allowed while it is held; requests are served in
    /// order of arrival; only the holder's token, the current lease and the session's end free it; and a copy behaves the
    /// same in all that follows.
    #[test]
    fn tokens_grow_and_only_the_newest_is_allowed(records in vec(record(), 0..80), copied in 0..80usize) {
        let (mut locks, mut version, mut ids, mut session) = (Locks::default(), 0, 0, None);
        let mut newest: [Version; 3] = [0; 3];
        let mut queues: [Vec<WaiterId>; 3] = Default::default();
        for (step, record) in records.iter().enumerate() {
            version += 1;
            if step == copied {
                let mut copy = Locks::default();
                locks.for_each_item(|item| copy.take_item(item).expect("an item of a copy"));
                copy.statistics = locks.statistics;
                prop_assert_eq!(&copy, &locks);
                locks = copy;
            }
            let standing = |locks: &Locks, at: usize| {
                locks.standing(&[at as u8]).map(|it| (it.owner.to_vec(), it.token, it.hold, it.lease))
            };
            let before: Vec<_> = (0..3).map(|at| standing(&locks, at)).collect();
            let token = |at: usize, own: bool| if own { newest[at] } else { newest[at].wrapping_sub(1) };
            let key = |name: &u8| [*name];
            let (name, owner);
            let (at, command) = match record {
                Record::Acquire { name: of, owner: by, waits, in_session } => {
                    ids += 1;
                    (name, owner) = (key(of), [*by]);
                    let hold = match session {
                        Some(session) if *in_session => Hold::Session(session),
                        _ => Hold::Lease(1000),
                    };
                    let waiter = waits.then_some(id(1, 1, ids));
                    (usize::from(*of), LockCommand::Acquire { name: &name, owner: &owner, hold, waiter })
                }
                Record::Release { name: of, own } => {
                    name = key(of);
                    let at = usize::from(*of);
                    (at, LockCommand::Release { name: &name, token: token(at, *own) })
                }
                Record::Renew { name: of, own } => {
                    name = key(of);
                    let at = usize::from(*of);
                    (at, LockCommand::Renew { name: &name, token: token(at, *own), lease_ms: 5 })
                }
                Record::Expire { name: of, present } => {
                    name = key(of);
                    let at = usize::from(*of);
                    let none = Lease { token: 0, number: 0, ms: 0 };
                    let lease = before[at].as_ref().and_then(|it| it.3).unwrap_or(none);
                    let number = lease.number + u64::from(!present);
                    (at, LockCommand::Expire { name: &name, token: lease.token, number })
                }
                Record::Withdraw { name: of, which } => {
                    name = key(of);
                    let at = usize::from(*of);
                    let waiter = queues[at].get(*which).copied().unwrap_or(id(2, 1, 1));
                    queues[at].retain(|other| *other != waiter);
                    (at, LockCommand::Withdraw { name: &name, waiter })
                }
                Record::Open => (0, LockCommand::OpenSession { key: b"k", group: 1, lease_ms: 10 }),
                Record::Close => (0, LockCommand::CloseSession { key: b"k", session: session.unwrap_or(0) }),
            };
            let (answer, events) = apply(&mut locks, command, version);
            match (record, answer) {
                (Record::Acquire { .. }, Answer::Integer(token)) => {
                    match &before[at] {
                        Some((_, held, ..)) => prop_assert_eq!(token, *held),
                        None => prop_assert!(token > newest[at]),
                    }
                    newest[at] = token;
                }
                (Record::Acquire { .. }, Answer::Queued) => {
                    let superseded = events.iter().find_map(|event| match event {
                        LockEvent::Notified { waiter, notification: LockNotification::Superseded, .. } => Some(*waiter),
                        _ => None,
                    });
                    match superseded.and_then(|old| queues[at].iter().position(|other| *other == old)) {
                        Some(place) => queues[at][place] = id(1, 1, ids),
                        None => queues[at].push(id(1, 1, ids)),
                    }
                }
                (Record::Acquire { owner, .. }, answer) => {
                    prop_assert_eq!(answer, Answer::Null);
                    prop_assert!(before[at].as_ref().is_some_and(|it| it.0 != [*owner]));
                }
                (Record::Release { own, .. }, answer) => {
                    prop_assert_eq!(answer, flag(*own && before[at].is_some()));
                }
                (Record::Expire { present, .. }, answer) => {
                    let is_leased = before[at].as_ref().is_some_and(|it| matches!(it.2, Hold::Lease(_)));
                    prop_assert_eq!(answer, flag(*present && is_leased));
                }
                (Record::Open, Answer::Session(id)) => session = Some(id.number),
                (Record::Close, answer) => prop_assert_eq!(answer, flag(session.take().is_some())),
                _ => {}
            }
            for event in &events {
                match event {
                    LockEvent::Notified { waiter, name, notification: LockNotification::Granted(token) } => {
                        let at = usize::from(name[0]);
                        prop_assert_eq!(queues[at].remove(0), *waiter, "the first to come");
                        prop_assert!(*token > newest[at]);
                        newest[at] = *token;
                    }
                    LockEvent::Notified { waiter, name, notification: LockNotification::SessionOver } => {
                        queues[usize::from(name[0])].retain(|other| other != waiter);
                    }
                    _ => {}
                }
            }
            let waiting: usize = queues.iter().map(Vec::len).sum();
            prop_assert_eq!(locks.waiters(), waiting);
            for at in 0..3 {
                match standing(&locks, at) {
                    Some((_, token, _, lease)) => {
                        prop_assert_eq!(token, newest[at]);
                        prop_assert!(lease.is_some(), "a held lock has a lease, or its session has");
                    }
                    None => prop_assert!(queues[at].is_empty(), "no request waits for a free lock"),
                }
                for older in 0..newest[at] {
                    prop_assert!(!locks.allows(&[at as u8], older), "{} of {}", older, newest[at]);
                }
                prop_assert!(locks.allows(&[at as u8], newest[at]) || standing(&locks, at).is_none());
            }
        }
    }
}

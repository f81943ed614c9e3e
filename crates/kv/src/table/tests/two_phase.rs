//! Transactions over several groups, as one group sees them: what is locked, what is foretold, and what is remembered.

use super::model::{Record, record, records, replay};
use super::script::parse;
use super::*;
use crate::Coordinator;
use crate::command::{
    Age, Bounded, Draft, Header, Hold, ListCommand, LockCommand, QueueCommand, Script, ScriptLimits, Share,
    TransactionId, TwoPhaseCommand, WaiterId, Wish,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::num::NonZeroU64;

const NODE_2: Coordinator = Coordinator { node: 2, life: 1 };
const IN_ITS_NEXT_LIFE: Coordinator = Coordinator { life: 2, ..NODE_2 };
const LOCKED: &str =
    "!TRYAGAIN LOCKED a transaction over several shards has locked the key; nothing was done, try again";

pub(super) fn number(number: u64) -> TransactionId {
    TransactionId { coordinator: NODE_2, number }
}

fn age(first: TransactionId) -> Age {
    Age { since: 7, first }
}

pub(super) fn with_header<R>(id: TransactionId, below: u64, then: impl FnOnce(Header<'_>) -> R) -> R {
    with_unsettled(id, (below, &[]), then)
}

fn with_unsettled<R>(
    id: TransactionId,
    (below, unsettled): (u64, &[u64]),
    then: impl FnOnce(Header<'_>) -> R,
) -> R {
    let (mut scratch, groups) = (Vec::new(), [(4, true), (9, true)]);
    let header = Header::build((id, age(id)), (below, unsettled.iter().copied()), groups, &mut scratch);
    then(header.expect("groups and numbers that can be"))
}

pub(super) fn preparing<'a>(header: Header<'a>, share: Share<'a>) -> Command<'a> {
    Command::TwoPhase(TwoPhaseCommand::Prepare { header, is_alone: false, share })
}

/// A share of these commands, which `;` separates.
fn with_share<R>(commands: &str, then: impl FnOnce(Share<'_>) -> R) -> R {
    let mut draft = Draft::default();
    for command in commands.split(';') {
        let words: Vec<&[u8]> = command.split_whitespace().map(str::as_bytes).collect();
        let mut scratch = Vec::new();
        assert!(draft.push(&parse(&words, &mut scratch)));
    }
    let whole = draft.transaction();
    let single = whole.commands().next().filter(|_| whole.len() == 1);
    let mut scratch = Vec::new();
    then(
        Share::build(&single.unwrap_or(Command::Transaction(whole)), &mut scratch)
            .expect("it can be a share"),
    )
}

impl Store {
    fn prepare(&mut self, id: TransactionId, commands: &str) -> String {
        self.prepare_below(id, 1, commands)
    }

    fn prepare_below(&mut self, id: TransactionId, below: u64, commands: &str) -> String {
        with_share(commands, |share| with_header(id, below, |header| self.apply(&preparing(header, share))))
    }

    fn lock(&mut self, id: TransactionId, commands: &str) -> String {
        with_share(commands, |share| {
            with_header(id, 1, |header| {
                self.apply(&Command::TwoPhase(TwoPhaseCommand::Lock { header, is_alone: false, share }))
            })
        })
    }

    fn prepare_locked(&mut self, id: TransactionId, commands: &str) -> String {
        with_share(commands, |share| {
            with_header(id, 1, |header| {
                self.apply(&Command::TwoPhase(TwoPhaseCommand::PrepareLocked { header, share }))
            })
        })
    }

    fn commit(&mut self, id: TransactionId) -> String {
        with_header(id, 1, |header| self.apply(&Command::TwoPhase(TwoPhaseCommand::Commit { header })))
    }

    fn abort(&mut self, id: TransactionId) -> String {
        with_header(id, 1, |header| self.apply(&Command::TwoPhase(TwoPhaseCommand::Abort { header })))
    }

    fn resolve(&mut self, id: TransactionId) -> String {
        with_header(id, 1, |header| self.apply(&Command::TwoPhase(TwoPhaseCommand::Resolve { header })))
    }

    fn forget(&mut self, coordinator: Coordinator, numbers: &[u64]) -> String {
        let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.apply(&Command::TwoPhase(TwoPhaseCommand::Forget { coordinator, numbers: &numbers }))
    }

    fn vote(&mut self, id: TransactionId) -> String {
        self.read(&Command::TwoPhase(TwoPhaseCommand::Ask { id }))
    }
}

#[test]
fn a_share_is_foretold_when_it_is_prepared_and_carried_out_when_it_is_committed() {
    let mut store = Store::new();
    store.play("SET a 1 -> OK\nRPUSH l x -> 1");
    assert_eq!(store.prepare(number(1), "INCRBY a 1;RPUSH l y z;LLEN l"), "[PREPARED [2 3 3]]");
    assert!(store.table.two_phase().locks(b"a") && store.table.two_phase().locks(b"l"));
    assert_eq!(store.commit(number(1)), "[COMMITTED [2 3 3]]");
    store.play("GET a -> \"2\"\nLLEN l -> 3");
    assert!(!store.table.two_phase().locks_any());
}

#[test]
fn values_are_returned_when_they_are_locked_and_what_follows_from_them_is_prepared() {
    let mut store = Store::new();
    store.play("SET a 1 -> OK\nRPUSH l x -> 1");
    let time = store.time;
    let locked = format!("[LOCKED {time} [\"1\" 1]]");
    assert_eq!(store.lock(number(1), "GET a;LLEN l"), locked);
    assert_eq!(store.lock(number(1), "GET a;LLEN l"), locked, "sent again");
    assert_eq!(store.vote(number(1)), "LOCKED");
    assert_eq!(store.apply(&plain_set(b"l", b"v")), LOCKED);
    assert_eq!(store.table.digest(), copy_of(&mut store.table).digest(), "a snapshot has it");
    assert_eq!(store.prepare_locked(number(1), "SET a 2"), "[PREPARED]");
    assert_eq!(store.prepare_locked(number(1), "SET a 2"), "[PREPARED]", "sent again");
    assert_eq!(store.apply(&plain_set(b"l", b"v")), LOCKED, "what it has only read is locked until the end");
    assert_eq!(store.table.digest(), copy_of(&mut store.table).digest(), "a snapshot has it");
    store.table.check_invariants();
    assert_eq!(store.commit(number(1)), "[COMMITTED OK]");
    assert!(!store.table.two_phase().locks_any());
    store.play("GET a -> \"2\"\nRPUSH l y -> 2");
    store.forget(NODE_2, &[1]);
    assert_eq!(store.table.two_phase().memory_bytes(), 0);
}

#[test]
fn a_group_that_has_only_locked_keys_may_give_up_alone() {
    let mut store = Store::new();
    store.lock(number(1), "GET a");
    assert_eq!(store.resolve(number(1)), "[REFUSED]");
    store.play("SET a 1 -> OK");
    assert_eq!(store.prepare_locked(number(1), "SET a 2"), "[REFUSED]");
    assert_eq!(store.lock(number(1), "GET a"), "[REFUSED]", "a record that was late");
    assert_eq!(store.prepare_locked(number(2), "SET a 2"), "[REFUSED]", "its lock is lost");
    store.lock(number(3), "GET a");
    assert_eq!(store.abort(number(3)), "[REFUSED]");
    store.play("GET a -> \"1\"");
}

#[test]
fn while_all_keys_are_locked_nothing_changes_and_no_other_transaction_begins() {
    let mut store = Store::new();
    store.play("SET a 1 -> OK\nSET short 1 PX 50 -> OK");
    let lock_all = |store: &mut Store, of: u64| {
        let mut scratch = Vec::new();
        let share = Share::of_all_keys(&mut scratch);
        with_header(number(of), 1, |header| {
            store.apply(&Command::TwoPhase(TwoPhaseCommand::Lock { header, is_alone: false, share }))
        })
    };
    store.prepare(number(1), "INCRBY a 1");
    assert!(lock_all(&mut store, 2).starts_with("[REFUSED"), "another transaction holds a key");
    store.commit(number(1));
    let time = store.time;
    assert_eq!(lock_all(&mut store, 3), format!("[LOCKED {time} 2]"));
    assert_eq!(lock_all(&mut store, 3), format!("[LOCKED {time} 2]"), "sent again");
    assert!(store.table.two_phase().all_locked_by().is_some());
    assert_eq!(store.table.digest(), copy_of(&mut store.table).digest(), "a snapshot has it");
    assert!(copy_of(&mut store.table).two_phase().all_locked_by().is_some());
    store.table.check_invariants();
    for command in ["SET new 1", "SET a 7", "GET new", "DBSIZE", "FLUSHALL", "MGET a new", "KEYS *"] {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let mut scratch = Vec::new();
        assert!(store.table.is_blocked(&parse(&words, &mut scratch)), "{command}");
    }
    assert!(!store.table.is_blocked(&Command::Watch { keys: List::build(&mut Vec::new(), []) }), "no keys");
    assert!(store.prepare(number(4), "SET new 1").starts_with("[REFUSED"));
    assert!(lock_all(&mut store, 5).starts_with("[REFUSED"));
    store.time += 1000;
    assert_eq!(store.apply(&Command::Purge { until: store.time }), "0");
    assert_eq!(store.resolve(number(3)), "[REFUSED]", "it has only locked");
    assert!(!store.table.two_phase().locks_any());
    assert_eq!(lock_all(&mut store, 3), "[REFUSED]", "a lock that was given up is never taken again");
    store.play("SET a 7 -> OK");
    assert_eq!(store.apply(&Command::Purge { until: store.time }), "1");
    assert!(lock_all(&mut store, 6).starts_with("[LOCKED"));
    assert_eq!(store.abort(number(6)), "[REFUSED]");
    store.play("DBSIZE -> 1");
}

#[test]
fn the_record_of_a_commit_names_its_transaction() {
    let mut store = Store::new();
    store.table.keep_history(1 << 20);
    store.play("SET a 1 -> OK");
    store.prepare(number(7), "INCRBY a 1");
    store.commit(number(7));
    store.prepare(number(8), "GET a");
    store.commit(number(8));
    store.prepare(number(9), "SET a 3");
    store.abort(number(9));
    store.play("SET a 4 -> OK");
    let mut out = ReplyBuffer::new();
    store.table.recent(0, u32::MAX, &mut out);
    let mut elements = Reader::new(out.as_bytes());
    let mut records = Vec::new();
    while !elements.is_empty() {
        match Reply::decode(&mut elements).unwrap() {
            Reply::Array(parts @ 4..=6) => records.push((parts, String::new())),
            Reply::Bulk(word) if word.starts_with(b"2-1-") => {
                records.last_mut().unwrap().1 = String::from_utf8_lossy(word).into_owned();
            }
            _ => {}
        }
    }
    // The first array is the whole answer.
    let names: Vec<&str> = records[1..].iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["", "2-1-7", "2-1-8", ""], "{records:?}");
    assert_eq!(records[1].0, 4, "other records are as they were");
}

#[test]
fn a_share_that_fails_where_keys_are_locked_refuses_the_transaction() {
    let mut store = Store::new();
    store.play("SET a text -> OK");
    store.lock(number(1), "GET a;GET b");
    let refused = store.prepare_locked(number(1), "SET b 1;INCRBY a 1");
    assert_eq!(refused, "[REFUSED !ERR value is not an integer or out of range]");
    store.play("SET a 1 -> OK\nEXISTS b -> 0");
    store.lock(number(2), "GET a");
    assert_eq!(
        store.prepare_locked(number(2), "SET b 1"),
        "[REFUSED !ERR a share names a key that is not locked]"
    );
    assert!(!store.table.two_phase().locks_any());
}

#[test]
fn a_share_is_refused_if_the_token_of_its_fence_has_changed() {
    let mut store = Store::new();
    let acquire = |owner| {
        let (hold, waiter) = (Hold::Lease(1000), None);
        Command::Lock(LockCommand::Acquire { name: b"l", owner, hold, waiter })
    };
    let newest = |seen| Command::NewestToken { name: b"l", seen };
    let share = |command: &Command<'_>| {
        let mut draft = Draft::default();
        assert!(draft.push(command));
        let mut scratch = Vec::new();
        Share::build(&Command::Transaction(draft.transaction()), &mut scratch).unwrap().bytes().to_vec()
    };
    let ask = |store: &mut Store, id, command: &Command<'_>, is_vote| {
        let bytes = share(command);
        let share = Share::of(&bytes).unwrap();
        with_header(id, 1, |header| {
            store.apply(&Command::TwoPhase(match is_vote {
                true => TwoPhaseCommand::PrepareLocked { header, share },
                false => TwoPhaseCommand::Lock { header, is_alone: false, share },
            }))
        })
    };
    let first: u64 = store.apply(&acquire(b"ann")).parse().unwrap();
    for (id, is_granted_again) in [(number(1), false), (number(2), true)] {
        let locked = ask(&mut store, id, &newest(0), false);
        assert!(locked.ends_with(&format!("[{first}]]")), "{locked}");
        if is_granted_again {
            store.apply(&Command::Lock(LockCommand::Release { name: b"l", token: first }));
            store.apply(&acquire(b"bob"));
        }
        let vote = ask(&mut store, id, &newest(first), true);
        assert_eq!(vote, if is_granted_again { "[REFUSED]" } else { "[PREPARED]" });
        store.commit(id);
        assert!(!store.table.two_phase().locks_any());
    }
}

#[test]
fn values_that_take_too_long_to_read_are_not_locked() {
    let mut store = Store::new();
    let element = "x".repeat(50);
    let elements = [element.as_str(); 1000].join(" ");
    for rounds in 1..=200 {
        store.play(&format!("RPUSH l {elements} -> {}", rounds * 1000));
    }
    assert!(store.lock(number(1), &["LRANGE l 0 -1"; 5].join(";")).starts_with("!ERR the values"));
    assert!(!store.table.two_phase().locks_any());
    assert_eq!(store.vote(number(1)), "UNKNOWN");
}

#[test]
fn a_stream_that_knows_its_producers_is_not_locked_to_be_moved() {
    let mut store = Store::new();
    store.play("XADD x IDMP p 1 1-1 a b -> \"1-1\"\nXADD y 1-1 a b -> \"1-1\"");
    assert!(store.lock(number(1), "XLEN y").starts_with("[LOCKED "));
    assert!(store.lock(number(2), "XLEN x").starts_with("!ERR a stream that knows"));
    assert!(!store.table.two_phase().locks(b"x"));
}

#[test]
fn what_waits_for_a_key_that_was_only_locked_goes_on_when_it_is_unlocked() {
    let mut store = Store::new();
    let (from, to) = (&b"from"[..], &b"to"[..]);
    let moves = Command::OnList(ListCommand::Move { from, to, from_front: true, to_front: false });
    let mut scratch = Vec::new();
    let wish = Wish::build(&moves, &mut scratch).unwrap();
    let waiter = WaiterId { node: 1, life: 1, number: NonZeroU64::MIN };
    assert_eq!(store.apply(&Command::Queue(QueueCommand::Ask { waiter, wish })), "QUEUED");
    store.lock(number(1), "LLEN to");
    store.play("RPUSH from x -> 1\nLLEN from -> 1");
    assert_eq!(store.resolve(number(1)), "[REFUSED]");
    store.play("LLEN from -> 0\nLLEN to -> 1");
}

#[test]
fn an_aborted_share_leaves_nothing() {
    let mut store = Store::new();
    store.play("SADD s m -> 1");
    assert_eq!(store.prepare(number(1), "SADD s n;SET new v"), "[PREPARED [1 OK]]");
    assert_eq!(store.abort(number(1)), "[REFUSED]");
    store.play("SCARD s -> 1\nEXISTS new -> 0");
}

#[test]
fn a_group_votes_once() {
    let mut store = Store::new();
    assert_eq!(store.resolve(number(1)), "[REFUSED]");
    assert_eq!(store.prepare(number(1), "SET k v"), "[REFUSED]", "it has been asked for its vote before");
    assert_eq!(store.commit(number(1)), "[REFUSED]", "no correct node sends this");

    assert_eq!(store.prepare(number(2), "SET k v"), "[PREPARED OK]");
    assert_eq!(
        store.prepare(number(2), "SET k v"),
        "[PREPARED OK]",
        "sent again, since its outcome was not known"
    );
    assert_eq!(store.resolve(number(2)), "[PREPARED]");
    assert_eq!(store.commit(number(2)), "[COMMITTED OK]");
    assert_eq!(store.commit(number(2)), "[COMMITTED]", "once only");
    assert_eq!(store.abort(number(2)), "[COMMITTED]", "no correct node sends this");
    assert_eq!(store.resolve(number(2)), "[COMMITTED]");
    assert_eq!(store.prepare(number(2), "SET k v"), "[COMMITTED]");

    assert_eq!(store.abort(number(3)), "[REFUSED]", "before its Prepare arrives");
    assert_eq!(store.prepare(number(3), "SET k w"), "[REFUSED]");
    store.play("GET k -> \"v\"");
}

#[test]
fn commands_on_locked_keys_do_nothing_and_others_go_on() {
    let mut store = Store::new();
    store.play("MSET a 1 b 2 -> OK");
    store.prepare(number(1), "INCRBY a 1");
    let version = store.table.version_floor();
    for command in ["SET a 7", "DEL b a", "RENAME b a", "SET a 7 XX"] {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let mut scratch = Vec::new();
        let command = parse(&words, &mut scratch);
        assert!(store.table.is_blocked(&command));
        assert_eq!(store.apply(&command), LOCKED);
        store.offset += 1;
        let mut quiet = ReplyBuffer::new();
        assert_eq!(store.table.apply(&command, store.offset, store.time, &mut quiet), super::super::BLOCKED);
        store.offset += 1;
        store.table.apply_unasked(&command, store.offset, store.time);
    }
    assert_eq!(store.table.version_floor(), version, "a blocked record changes nothing");
    assert_eq!(store.apply(&Command::Clear {}), LOCKED, "all keys");
    assert!(store.table.is_blocked(&Command::Get { key: b"a" }));
    assert!(store.table.is_blocked(&Command::Size {}));
    assert!(!store.table.is_blocked(&Command::Get { key: b"b" }));
    for read in ["GET a", "MGET b a", "DBSIZE", "KEYS *"] {
        let words: Vec<&[u8]> = read.split(' ').map(str::as_bytes).collect();
        let (mut scratch, mut out) = (Vec::new(), ReplyBuffer::new());
        let version = store.table.read(&parse(&words, &mut scratch), store.time, &mut out);
        assert_eq!(version, super::super::BLOCKED, "{read}");
    }
    store.play("SET b 3 -> OK\nGET b -> \"3\"");
    store.commit(number(1));
    store.play("GET a -> \"2\"\nDBSIZE -> 2");
}

#[test]
fn a_bounded_command_and_a_script_wait_for_locked_keys_too() {
    let mut store = Store::new();
    store.prepare(number(1), "SET a 1");
    let mut scratch = Vec::new();
    let bounded = Bounded::build(1000, &plain_set(b"a", b"2"), &mut scratch).unwrap();
    assert_eq!(store.apply(&Command::Bounded(bounded)), LOCKED);
    let mut scratch = Vec::new();
    let limits = ScriptLimits { value_bytes_max: 100, cost_max: 100 };
    let script = Script::build(&mut scratch, b"return 1", [&b"a"[..]], 1, limits, true).unwrap();
    assert!(store.table.is_blocked(&Command::Script(script)));
}

#[test]
fn a_transaction_that_meets_a_lock_is_refused_and_told_which_one() {
    let mut store = Store::new();
    store.prepare(number(1), "SET a 1");
    let in_the_way = number(1).encoded().escape_ascii().to_string();
    assert_eq!(store.prepare(number(2), "SET b 1;SET a 2"), format!("[REFUSED \"{in_the_way}\"]"));
    assert!(!store.table.two_phase().locks(b"b"), "it has locked none of its keys");
    store.commit(number(1));
    assert_eq!(store.prepare(number(2), "SET b 1;SET a 2"), "[REFUSED]", "for good");
    assert_eq!(store.prepare(number(3), "SET b 1;SET a 2"), "[PREPARED [OK OK]]");
}

#[test]
fn a_changed_key_that_was_watched_refuses_the_transaction() {
    let mut store = Store::new();
    store.play("SET w 1 -> OK");
    let (version, floor) = (store.version("w"), store.table.version_floor());
    let prepare = |store: &mut Store, id| {
        let mut draft = Draft::default();
        draft.watch(0, crate::Watched { key: b"w", version, floor });
        assert!(draft.push(&plain_set(b"k", b"v")));
        let mut scratch = Vec::new();
        let share = Share::build(&Command::Transaction(draft.transaction()), &mut scratch).unwrap();
        with_header(id, 1, |header| store.apply(&preparing(header, share)))
    };
    assert_eq!(prepare(&mut store, number(1)), "[PREPARED [OK]]");
    assert_eq!(
        store.apply(&plain_set(b"w", b"2")),
        LOCKED,
        "it stays as it was until the transaction is over"
    );
    store.commit(number(1));
    store.play("SET w 2 -> OK");
    assert_eq!(prepare(&mut store, number(2)), "[REFUSED nil]");
}

#[test]
fn what_a_transaction_has_found_does_not_expire_before_it_is_over() {
    let mut store = Store::new();
    store.play("SET k 1 PX 100 -> OK\nSET other 1 PX 50 -> OK");
    assert_eq!(store.prepare(number(1), "INCRBY k 1"), "[PREPARED 2]");
    store.time += 1000;
    assert_eq!(store.apply(&Command::Purge { until: store.time }), "1", "only the other key");
    assert_eq!(store.commit(number(1)), "[COMMITTED 2]");
    store.play("GET k -> nil\nDBSIZE -> 1");
    assert_eq!(store.apply(&Command::Purge { until: store.time }), "1");
}

#[test]
fn random_numbers_and_times_are_those_of_the_vote() {
    let mut store = Store::new();
    store.play("SADD s a b c d e f g h -> 8");
    let foretold = store.prepare(number(1), "SPOP s 3;XADD x * f v;SET k v PX 100");
    store.time += 5000;
    store.set("elsewhere", "makes versions grow");
    let carried_out = store.commit(number(1));
    assert_eq!(foretold.replace("PREPARED", "COMMITTED"), carried_out);
    store.play("EXISTS k -> 0");
}

#[test]
fn requests_that_wait_are_served_when_their_key_is_unlocked() {
    let mut store = Store::new();
    store.prepare(number(1), "RPUSH l x");
    let mut list = Vec::new();
    let keys = List::build(&mut list, [&b"other"[..], b"l"]);
    let pop = Command::OnList(ListCommand::PopAny { keys, at_front: true });
    let mut scratch = Vec::new();
    let wish = Wish::build(&pop, &mut scratch).unwrap();
    let waiter = WaiterId { node: 1, life: 1, number: NonZeroU64::MIN };
    let ask = Command::Queue(QueueCommand::Ask { waiter, wish });
    assert_eq!(store.apply(&ask), LOCKED, "the request itself comes again");
    store.abort(number(1));
    assert_eq!(store.apply(&ask), "QUEUED");
    assert_eq!(store.prepare(number(2), "RPUSH l x y;LLEN l"), "[PREPARED [2 2]]");
    store.commit(number(2));
    store.play("LLEN l -> 1");
    assert_eq!(store.apply(&Command::Queue(QueueCommand::Conclude { waiter })), "[\"l\" \"x\"]");
}

#[test]
fn a_request_is_not_served_into_a_locked_key() {
    let mut store = Store::new();
    let (from, to) = (&b"from"[..], &b"to"[..]);
    let moves = Command::OnList(ListCommand::Move { from, to, from_front: true, to_front: false });
    let mut scratch = Vec::new();
    let wish = Wish::build(&moves, &mut scratch).unwrap();
    let waiter = WaiterId { node: 1, life: 1, number: NonZeroU64::MIN };
    assert_eq!(store.apply(&Command::Queue(QueueCommand::Ask { waiter, wish })), "QUEUED");
    assert_eq!(store.prepare(number(1), "RPUSH to a;LLEN to"), "[PREPARED [1 1]]");
    store.play("RPUSH from x -> 1\nLLEN from -> 1");
    assert_eq!(store.commit(number(1)), "[COMMITTED [1 1]]");
    store.play("LLEN from -> 0\nLLEN to -> 2");
}

#[test]
fn what_goes_back_to_a_locked_key_goes_back_when_it_is_unlocked() {
    let mut store = Store::new();
    store.play("RPUSH l x y -> 2");
    let mut list = Vec::new();
    let keys = List::build(&mut list, [&b"l"[..]]);
    let pop = Command::OnList(ListCommand::PopAny { keys, at_front: true });
    let mut scratch = Vec::new();
    let wish = Wish::build(&pop, &mut scratch).unwrap();
    let waiter = WaiterId { node: 1, life: 1, number: NonZeroU64::MIN };
    assert_eq!(store.apply(&Command::Queue(QueueCommand::Ask { waiter, wish })), "[\"l\" \"x\"]");
    assert_eq!(store.prepare(number(1), "LLEN l;RPUSH l z"), "[PREPARED [1 2]]");
    let withdraw = Command::Queue(QueueCommand::Withdraw { waiter, only_unclaimed: false });
    assert_eq!(store.apply(&withdraw), "1");
    assert_eq!(store.table.digest(), copy_of(&mut store.table).digest(), "a snapshot has it");
    assert_eq!(store.commit(number(1)), "[COMMITTED [1 2]]");
    store.play("LRANGE l 0 -1 -> [\"x\" \"y\" \"z\"]");
    store.table.check_invariants();
}

#[test]
fn votes_are_forgotten_once_their_transactions_are_over_everywhere() {
    let mut store = Store::new();
    store.prepare(number(1), "SET a 1");
    store.commit(number(1));
    store.resolve(number(2));
    assert_eq!(store.prepare_below(number(3), 2, "SET b 1"), "[PREPARED OK]");
    assert_eq!([1, 2, 3].map(|it| store.vote(number(it))), ["OVER", "REFUSED", "PREPARED"]);
    assert_eq!(store.prepare(number(1), "SET a 2"), "[OVER]", "a record that was late");
    let commit = |store: &mut Store, id, over| {
        with_unsettled(id, over, |header| store.apply(&Command::TwoPhase(TwoPhaseCommand::Commit { header })))
    };
    commit(&mut store, number(3), (3, &[2]));
    assert_eq!(
        [2, 3].map(|it| store.vote(number(it))),
        ["REFUSED", "COMMITTED"],
        "one of its groups may still ask for 2"
    );
    store.prepare_below(number(9), 9, "SET c 1");
    assert_eq!([2, 3].map(|it| store.vote(number(it))), ["OVER", "OVER"]);
    store.prepare_below(number(10), 10, "SET d 1");
    assert_eq!(store.vote(number(9)), "PREPARED", "a share that waits is kept, whatever is said of it");
}

#[test]
fn a_new_incarnation_ends_what_its_predecessor_has_not_prepared() {
    let mut store = Store::new();
    store.prepare(number(1), "SET a 1");
    store.resolve(number(2));
    let new = TransactionId { coordinator: IN_ITS_NEXT_LIFE, number: 1 };
    assert_eq!(store.prepare(new, "SET b 1"), "[PREPARED OK]");
    assert_eq!(store.prepare(number(3), "SET c 1"), "[OVER]", "a late record of the former incarnation");
    assert_eq!(store.vote(number(2)), "REFUSED", "a group may still ask");
    assert_eq!(store.commit(number(1)), "[COMMITTED OK]");
    assert_eq!(store.forget(NODE_2, &[1, 2]), "OK");
    assert_eq!([1, 2].map(|it| store.vote(number(it))), ["OVER", "OVER"]);
    assert_eq!(store.vote(new), "PREPARED");
    store.commit(new);
    store.forget(IN_ITS_NEXT_LIFE, &[1]);
    assert_eq!(store.table.two_phase().memory_bytes(), 0);
    let last = TransactionId { coordinator: IN_ITS_NEXT_LIFE, number: 2 };
    assert_eq!(store.prepare(last, "SET b 1"), "[OVER]", "its node has left for good");
}

#[test]
fn what_does_not_name_all_its_keys_cannot_be_a_share() {
    let mut scratch = Vec::new();
    let mut can = |command: &Command<'_>| Share::build(command, &mut scratch).is_some();
    assert!(can(&plain_set(b"k", b"v")));
    assert!(!can(&Command::Clear {}));
    assert!(!can(&Command::Size {}));
    assert!(!can(&Command::Fetch { key: b"k" }), "only the server's own parts send this");
    assert!(!can(&Command::Transaction(Draft::default().transaction())), "nothing to do");
    let id = crate::ValueId { coordinator: NODE_2, counter: 1 };
    assert!(!can(&Command::LongEnd { id, watched_in: crate::Padded(None) }));
}

/// What a client sees of all keys.
fn contents(table: &mut Table, now: UnixMs) -> Vec<String> {
    let mut scratch = Vec::new();
    let names: Vec<Vec<u8>> = (0..12).map(|number| format!("key{number}").into_bytes()).collect();
    let keys = List::build(&mut scratch, names.iter().map(Vec::as_slice));
    let mut seen = Vec::new();
    for key in keys.iter() {
        let mut out = ReplyBuffer::new();
        table.read(&Command::Fetch { key }, now, &mut out);
        seen.push(text_of(&out));
    }
    seen
}

/// Those of the records that can be shared.
pub(super) fn shareable(records: &[Record]) -> Draft {
    let mut draft = Draft::default();
    for command in records.iter().map(Record::command) {
        if Share::build(&command, &mut Vec::new()).is_some() {
            draft.push(&command);
        }
    }
    draft
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever comes in between: the share's replies are those that were foretold, other replicas and one that joins by a
    /// snapshot agree, and an abort leaves the keys as they were.
    #[test]
    fn a_share_does_what_was_foretold(
        before in records(0..40),
        share in vec(record(), 1..5),
        between in records(0..10),
        bound in prop::option::of(0..20_000u64),
        is_committed in any::<bool>(),
    ) {
        let (mut first, mut second) = (Table::new(1), colliding(2));
        let (mut offset, mut second_offset) = (0, 0);
        replay(&mut first, &before, &mut offset);
        replay(&mut second, &before, &mut second_offset);
        let draft = shareable(&share);
        prop_assume!(!draft.transaction().is_empty());
        let mut scratch = Vec::new();
        let share = Share::build(&Command::Transaction(draft.transaction()), &mut scratch).unwrap();
        let prepare = with_header(number(1), 1, |header| Record::of(&match bound {
            Some(bound) => {
                let mut scratch = Vec::new();
                let bounded = Bounded::build(bound, &preparing(header, share), &mut scratch);
                return Record::of(&Command::Bounded(bounded.unwrap()));
            }
            None => preparing(header, share),
        }));
        let end = with_header(number(1), 1, |header| {
            Record::of(&Command::TwoPhase(match is_committed {
                true => TwoPhaseCommand::Commit { header },
                false => TwoPhaseCommand::Abort { header },
            }))
        });
        let apply = |table: &mut Table, record: &Record, offset: &mut Version| {
            *offset += 1;
            let mut out = ReplyBuffer::new();
            table.apply(&record.command(), *offset, super::model::time_of(*offset), &mut out);
            text_of(&out)
        };
        let foretold_at = super::model::time_of(offset + 1);
        let seen = contents(&mut first, foretold_at);
        let foretold = apply(&mut first, &prepare, &mut offset);
        prop_assert!(foretold.starts_with("[PREPARED "), "{}", foretold);
        second_offset += 1;
        second.apply_unasked(&prepare.command(), second_offset, super::model::time_of(second_offset));
        prop_assert_eq!(first.digest(), second.digest(), "whether a client waits makes no difference");
        replay(&mut first, &between, &mut offset);
        replay(&mut second, &between, &mut second_offset);
        let mut third = copy_of(&mut first);
        let mut third_offset = offset;
        let carried_out = apply(&mut first, &end, &mut offset);
        apply(&mut second, &end, &mut second_offset);
        apply(&mut third, &end, &mut third_offset);
        if is_committed {
            prop_assert_eq!(foretold.replacen("PREPARED", "COMMITTED", 1), carried_out);
        } else {
            for (at, (before, after)) in seen.iter().zip(contents(&mut first, foretold_at)).enumerate() {
                let mut is_of_share = false;
                share.command().for_each_key(|key| is_of_share |= key == format!("key{at}").as_bytes());
                prop_assert!(!is_of_share || *before == after, "key{}: {} became {}", at, before, after);
            }
        }
        prop_assert_eq!(first.digest(), second.digest());
        prop_assert_eq!(first.digest(), third.digest());
        first.check_invariants();
        third.check_invariants();
    }
}

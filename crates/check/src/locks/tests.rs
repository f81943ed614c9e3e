//! What locks must and must not do, each as a history in words.
//!
//! `acquire l as a for 100 = 5`: owner `a` requests lock `l` for 100 ms and is granted token 5. The answer follows
//! `=`: `none` if another owner holds the lock, 1 or 0 for renewals and releases, `?` for an unknown outcome. A write
//! `set k v with l 5` is done (`ok`), refused by the fence (`fenced`), or not known to have happened. Times are
//! milliseconds.

use crate::history::{Action, Answer, History, Outcome};
use crate::history::{Fence, Hold, LockAction};
use crate::{Verdict, linearizable};

const MS: u64 = 1_000_000;

fn history(operations: &[(u64, &str, u64, u64)]) -> History {
    let mut history = History::new();
    for (client, text, start, end) in operations {
        let (asked, answer) = text.split_once(" = ").unwrap();
        let words: Vec<&str> = asked.split(' ').collect();
        let number = |place: usize| words[place].parse::<u64>().unwrap();
        let mut fence = None;
        let action = match words[0] {
            "acquire" | "wait" => {
                let owner = history.value(words[3].as_bytes());
                let hold = match words[4] {
                    "under" => Hold::Session(history.key(words[5].as_bytes())),
                    _ => Hold::Lease(number(5) as u32),
                };
                Action::Lock(LockAction::Acquire { owner, hold, waits: words[0] == "wait" })
            }
            "renew" => Action::Lock(LockAction::Renew { token: number(2), lease_ms: number(4) as u32 }),
            "release" => Action::Lock(LockAction::Release { token: number(2) }),
            "open" => Action::Lock(LockAction::OpenSession { lease_ms: number(2) as u32 }),
            "again" => Action::Lock(LockAction::RenewSession),
            "close" => Action::Lock(LockAction::CloseSession),
            "get" => Action::Get,
            "set" => {
                let is_refused = answer == "fenced";
                fence = words.get(3).map(|_| Fence {
                    lock: history.key(words[4].as_bytes()),
                    token: number(5),
                    is_refused,
                });
                Action::Set(history.value(words[2].as_bytes()))
            }
            other => panic!("{other}"),
        };
        let outcome = match (action, answer) {
            (_, "?") => Outcome::Unknown,
            (_, "fenced") => Outcome::Failed,
            (Action::Set(_), _) => Outcome::Ok(Answer::Done),
            (Action::Get, value) => Outcome::Ok(Answer::Value(Some(history.value(value.as_bytes())))),
            (Action::Lock(LockAction::OpenSession { .. }), session) => {
                Outcome::Ok(Answer::Session(history.key(session.as_bytes())))
            }
            (Action::Lock(LockAction::Acquire { .. }), "none") => Outcome::Ok(Answer::Token(None)),
            (Action::Lock(LockAction::Acquire { .. }), token) => {
                Outcome::Ok(Answer::Token(Some(token.parse().unwrap())))
            }
            (_, flag) => Outcome::Ok(Answer::Applied(flag == "1")),
        };
        let key = history.key(words[1].as_bytes());
        let id = history.begin(*client, key, action, start * MS);
        history.end(id, end * MS, outcome);
        fence.into_iter().for_each(|fence| history.set_fence(id, fence));
    }
    history
}

fn is_kept(operations: &[(u64, &str, u64, u64)]) {
    let history = history(operations);
    let verdict = linearizable(&history);
    assert!(matches!(verdict, Verdict::Ok { .. }), "{}", verdict.words(&history));
}

/// Checks that a history is rejected, with a sentence that contains these words.
#[track_caller]
fn is_broken(operations: &[(u64, &str, u64, u64)], words: &str) {
    let history = history(operations);
    let Verdict::Violation(window) = linearizable(&history) else { panic!("it is approved, not: {words}") };
    let sentence = window.sentence(&history);
    assert!(sentence.contains(words), "{sentence}");
}

#[test]
fn a_lock_is_granted_renewed_and_released() {
    is_kept(&[
        (1, "acquire l as a for 100 = 5", 0, 1),
        (2, "acquire l as b for 100 = none", 2, 3),
        (1, "renew l 5 for 100 = 1", 90, 91),
        (1, "acquire l as a for 100 = 5", 180, 181),
        (1, "release l 5 = 1", 185, 186),
        (2, "acquire l as b for 100 = 9", 187, 188),
        (1, "release l 5 = 0", 189, 190),
        (1, "renew l 5 for 100 = 0", 191, 192),
    ]);
}

#[test]
fn unknown_outcomes_may_explain_answers() {
    // A release with an unknown outcome, and a grant whose request got no answer.
    is_kept(&[
        (1, "acquire l as a for 1000 = 5", 0, 1),
        (1, "release l 5 = ?", 2, 9),
        (2, "acquire l as b for 1000 = 7", 10, 11),
        (2, "release l 7 = 1", 12, 13),
        (3, "acquire l as c for 1000 = ?", 14, 15),
        (4, "acquire l as d for 1000 = none", 20, 21),
        (3, "release l 8 = 1", 30, 31),
        (4, "acquire l as d for 1000 = 9", 40, 41),
    ]);
    // The first request was granted the lock, the repeated one found it granted; the last shortened its lease.
    is_kept(&[
        (1, "acquire l as a for 1000 = ?", 0, 1),
        (2, "acquire l as b for 1000 = none", 2, 3),
        (1, "acquire l as a for 1000 = 5", 10, 11),
        (1, "acquire l as a for 10 = ?", 12, 13),
        (2, "acquire l as b for 1000 = 6", 25, 26),
    ]);
}

/// The wait ended before the reply that its owner already holds the lock; the lease was restarted all the same.
#[test]
fn a_holder_that_asks_again_and_waits_in_vain_may_have_changed_its_lease() {
    let again = (1, "wait l as a for 20 = none", 10, 12);
    let next = |end| (2, "acquire l as b for 100 = 7", 20, end);
    is_kept(&[(1, "acquire l as a for 1000 = 5", 0, 1), again, next(30)]);
    is_broken(&[(1, "acquire l as a for 1000 = 5", 0, 1), again, next(29)], "lasted until 30 ms at least");
    is_broken(&[(1, "acquire l as a for 1000 = 5", 0, 1), next(30)], "lasted until 1 s at least");
}

#[test]
fn no_lock_is_granted_while_another_owner_may_believe_that_it_holds_it() {
    let (first, second) =
        ((1, "acquire l as a for 100 = 5", 10, 12), |end| (2, "acquire l as b for 100 = 7", 20, end));
    is_kept(&[first, second(110)]);
    is_broken(
        &[first, second(109)],
        "lock 'l' did not keep its promise: client 2's acquire as 'b' for 100 ms was granted token 7 (10 ms .. 99 ms), \
         although the lease of client 1's acquire as 'a' for 100 ms was granted token 5, sent at 0 ns, lasted until 100 \
         ms at least",
    );
    let renewal = (1, "renew l 5 for 100 = 1", 50, 51);
    is_kept(&[first, renewal, second(150)]);
    is_broken(&[first, renewal, second(149)], "although the lease of client 1's renew of token 5 for 100 ms");
}

#[test]
fn a_waiting_request_is_granted_when_the_holder_loses_the_lock_and_its_lease_begins_then() {
    let waits = [(1, "acquire l as a for 100 = 5", 0, 1), (2, "wait l as b for 100 = 6", 2, 120)];
    is_kept(&[waits[0], waits[1], (3, "acquire l as c for 100 = 8", 150, 200)]);
    is_broken(
        &[waits[0], waits[1], (3, "acquire l as c for 100 = 8", 150, 199)],
        "although the lease of client 2's acquire as 'b' for 100 ms, waiting, was granted token 6, sent at 2 ms, lasted \
         until 200 ms at least",
    );
}

#[test]
fn only_the_holder_frees_a_lock() {
    let held = [(1, "acquire l as a for 100 = 5", 0, 1), (2, "acquire l as b for 100 = 7", 101, 102)];
    is_kept(&[held[0], held[1], (1, "release l 5 = 0", 103, 104)]);
    is_broken(
        &[held[0], held[1], (1, "release l 5 = 1", 103, 104)],
        "client 2's acquire as 'b' for 100 ms was granted token 7 (101 ms .. 102 ms), although client 1's release of token \
         5 was applied, which came before the end, was sent only at 103 ms",
    );
    is_broken(
        &[held[0], held[1], (1, "renew l 5 for 100 = 1", 103, 104)],
        "client 1's renew of token 5 for 100 ms was applied, which came before the end, was sent only at 103 ms",
    );
    is_broken(&[held[0], (2, "release l 4 = 1", 2, 3)], "although nobody can have been granted that token");
    is_broken(
        &[held[0], (1, "release l 5 = 1", 2, 3), (1, "release l 5 = 1", 4, 5)],
        "although client 1's release of token 5 was applied as well",
    );
}

#[test]
fn a_lease_is_never_over_too_early() {
    let held = (1, "acquire l as a for 100 = 5", 0, 1);
    is_kept(&[held, (1, "renew l 5 for 100 = 0", 99, 100)]);
    is_broken(&[held, (1, "renew l 5 for 100 = 0", 98, 99)], "lasted until 100 ms at least");
    is_broken(&[held, (1, "release l 5 = 0", 98, 99)], "lasted until 100 ms at least");
}

#[test]
fn tokens_grow_and_are_given_once() {
    is_broken(
        &[(1, "acquire l as a for 10 = 7", 0, 1), (2, "acquire l as b for 10 = 5", 50, 51)],
        "client 1's acquire as 'a' for 10 ms was granted token 7 (0 ns .. 1 ms), although client 2's acquire as 'b' for 10 \
         ms was granted token 5, which by its token comes before, was sent only at 50 ms",
    );
    is_broken(
        &[(1, "acquire l as a for 10 = 5", 0, 1), (2, "acquire l as b for 10 = 5", 50, 51)],
        "although client 1's acquire as 'a' for 10 ms was granted token 5 for another owner",
    );
    is_broken(
        &[
            (1, "acquire l as a for 10 = 5", 0, 1),
            (1, "release l 5 = 1", 2, 3),
            (1, "acquire l as a for 10 = 5", 4, 5),
        ],
        "client 1's release of token 5 was applied (2 ms .. 3 ms), although client 1's acquire",
    );
    is_kept(&[(1, "acquire l as a for 10 = 7", 0, 1), (2, "acquire m as b for 10 = 7", 0, 1)]);
}

#[test]
fn a_write_behind_a_fence_needs_the_newest_token() {
    let held = [(1, "acquire l as a for 10 = 5", 0, 1), (2, "acquire l as b for 10 = 7", 11, 12)];
    let early = (1, "set k x with l 5 = ok", 5, 6);
    is_kept(&[held[0], early, held[1], (1, "set k x with l 5 = fenced", 13, 14)]);
    is_kept(&[held[0], held[1], (1, "set k x with l 5 = ok", 5, 20)]);
    is_broken(
        &[held[0], held[1], (1, "set k x with l 5 = ok", 13, 14)],
        "although client 1's set of 'x' with token 5 of lock 'l' was acknowledged, which came before any newer token, \
         was sent only at 13 ms",
    );
    is_broken(
        &[held[0], (1, "set k x with l 5 = fenced", 5, 6)],
        "set of 'x' with token 5 of lock 'l' was refused by the fence (5 ms .. 6 ms), although the lease of client 1's",
    );
    is_broken(&[held[0], (3, "set k x with l 6 = ok", 5, 6)], "nobody can have been granted that token");
}

/// Both writes ran at the same time, so the key by itself allows either order.
#[test]
fn writes_behind_fences_took_effect_in_the_order_of_their_tokens() {
    let writes = |read| {
        [
            (1, "acquire l as a for 10 = 5", 0, 1),
            (2, "acquire l as b for 1000 = 7", 11, 12),
            (1, "set k old with l 5 = ok", 5, 40),
            (2, "set k new with l 7 = ok", 15, 40),
            (3, read, 50, 51),
        ]
    };
    is_kept(&writes("get k = new"));
    is_broken(&writes("get k = old"), "key 'k' is not linearizable");
    // A write whose client got no answer, but whose value was read.
    let seen = |at| {
        [
            (1, "acquire l as a for 10 = 5", 0, 1),
            (1, "set k old with l 5 = ?", 5, 6),
            (2, "acquire l as b for 1000 = 7", 11, 12),
            (2, "set k new with l 7 = ok", 15, 16),
            (3, "get k = old", at, at + 1),
        ]
    };
    is_kept(&seen(13));
    is_broken(&seen(20), "key 'k' is not linearizable");
}

#[test]
fn a_session_holds_its_locks_until_it_ends() {
    let held = [
        (1, "open x 100 = s", 0, 1),
        (1, "acquire l as a under s = 5", 2, 3),
        (1, "acquire m as a under s = 6", 4, 5),
        (1, "again s = 1", 50, 51),
    ];
    let next = |end| (2, "acquire l as b for 10 = 9", 60, end);
    is_kept(&[held[0], held[1], held[2], held[3], next(150)]);
    is_broken(
        &[held[0], held[1], held[2], held[3], next(149)],
        "although the lease of client 1's renew-session was applied, sent at 50 ms, lasted until 150 ms at least",
    );
    let closed = (1, "close s = 1", 52, 55);
    is_kept(&[held[0], held[1], held[2], held[3], closed, next(61)]);
    is_broken(
        &[held[0], held[1], held[3], closed, (1, "acquire m as a under s = 6", 56, 57)],
        "session 's' did not keep its promise: client 1's close-session was applied (52 ms .. 55 ms), although client 1's \
         acquire as 'a' under session 's' was granted token 6 (lock 'm'), which came before the end, was sent only at 56 ms",
    );
    is_broken(&[held[0], (1, "again s = 0", 80, 99)], "lasted until 100 ms at least");
    is_broken(&[held[0], (2, "open y 100 = s", 50, 51)], "session 's' did not keep its promise");
}

/// The planted fault: a request that has waited is not checked again.
#[test]
fn nothing_is_granted_under_an_ended_session() {
    is_broken(
        &[
            (1, "open x 100 = s", 0, 1),
            (2, "acquire l as b for 500 = 5", 2, 3),
            (1, "wait l as a under s = 9", 4, 510),
            (1, "close s = 1", 200, 201),
        ],
        "session 's' did not keep its promise: client 1's close-session was applied (200 ms .. 201 ms), although the lease \
         of client 2's acquire as 'b' for 500 ms was granted token 5 (lock 'l'), sent at 2 ms, lasted until 502 ms at least",
    );
}

#[test]
fn no_request_is_denied_a_free_lock() {
    let denied = (2, "acquire l as b for 10 = none", 20, 21);
    is_broken(&[denied], "although no other one can have held it at that time");
    is_broken(&[(2, "acquire l as b for 50 = 5", 0, 1), denied], "although no other one can have held it");
    is_broken(
        &[(1, "acquire l as a for 50 = 5", 0, 1), (1, "release l 5 = 1", 2, 3), denied],
        "although no other one can have held it at that time",
    );
    // How long a lease lasts beyond its length is not specified.
    is_kept(&[(1, "acquire l as a for 10 = 5", 0, 1), denied]);
}

#[test]
fn a_request_in_the_queue_is_granted_the_lock_before_later_requests() {
    let operations = [
        (1, "acquire l as a for 100 = 5", 0, 1),
        (2, "wait l as b for 100 = 8", 2, 140),
        (3, "wait l as c for 100 = 6", 10, 130),
        (3, "release l 6 = 1", 131, 132),
    ];
    let mut history = history(&operations);
    let waits = history.ids().nth(1).unwrap();
    assert!(matches!(linearizable(&history), Verdict::Ok { .. }), "the order in the queue is unknown");
    history.set_queued(waits, 10 * MS);
    assert!(matches!(linearizable(&history), Verdict::Ok { .. }), "they touch");
    history.set_queued(waits, 9 * MS);
    let Verdict::Violation(window) = linearizable(&history) else { panic!("it is out of turn") };
    assert_eq!(
        window.sentence(&history),
        "lock 'l' did not keep its promise: client 3's acquire as 'c' for 100 ms, waiting, was granted token 6 (10 ms .. \
         130 ms), although client 2's acquire as 'b' for 100 ms, waiting, was granted token 8 later, who had waited since 9 \
         ms or before"
    );
}

#[test]
fn a_breach_is_described_and_drawn() {
    let history = history(&[
        (1, "acquire l as a for 100 = 5", 10, 12),
        (3, "acquire m as c for 100 = 6", 15, 16),
        (2, "acquire l as b for 100 = 7", 20, 30),
    ]);
    let Verdict::Violation(window) = linearizable(&history) else { panic!("two hold it") };
    assert_eq!(
        window.words(&history),
        "lock 'l' did not keep its promise: client 2's acquire as 'b' for 100 ms was granted token 7 (10 ms .. 20 ms), \
         although the lease of client 1's acquire as 'a' for 100 ms was granted token 5, sent at 0 ns, lasted until 100 ms \
         at least\n\
         These 2 operations cannot all have been answered so:\n  \
         client 1  acquire as 'a' for 100 ms was granted token 5  (0 ns .. 2 ms)\n  \
         client 2  acquire as 'b' for 100 ms was granted token 7  (10 ms .. 20 ms)\n\
         Times count from the start of the history's first operation."
    );
    let picture = window.svg(&history);
    assert!(picture.contains("'l': these operations cannot all have been answered so"), "{picture}");
    assert!(picture.contains("client 1</text>") && picture.contains("client 2</text>"), "{picture}");
    assert!(!picture.contains("client 3</text>"), "{picture}");
    assert!(window.html(&history).contains("did not keep its promise"));
}

#[test]
fn keys_and_locks_are_counted() {
    let of_a_lock = (1, "acquire l as a for 100 = 5", 0, 1);
    let guarded = (2, "set k v with l 5 = ok", 2, 3);
    let words = |operations: &[_]| {
        let history = history(operations);
        linearizable(&history).words(&history)
    };
    assert_eq!(words(&[of_a_lock]), "1 operation on 1 lock by 1 client is linearizable");
    assert_eq!(
        words(&[of_a_lock, guarded]),
        "2 operations on 1 key and 1 lock by 2 clients are linearizable"
    );
}

#[test]
fn an_answer_of_another_kind_is_rejected() {
    let mut history = history(&[]);
    let (lock, owner) = (history.key(b"l"), history.value(b"a"));
    let action = LockAction::Acquire { owner, hold: Hold::Lease(10), waits: false };
    let id = history.begin(1, lock, Action::Lock(action), 0);
    history.end(id, 1, Outcome::Ok(Answer::Done));
    let Verdict::Violation(window) = linearizable(&history) else { panic!("that is no answer") };
    assert!(
        window.sentence(&history).ends_with("was acknowledged (0 ns .. 1 ns), which is no answer to that")
    );
}

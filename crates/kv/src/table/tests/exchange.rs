//! Exchanges of databases: a command takes effect only in the table for which it was routed.

use super::*;
use crate::command::{Draft, ListCommand, LockCommand, QueueCommand, Routed, WaiterId, Wish};
use crate::locks::{LockEvent, LockNotification};
use crate::{Coordinator, Hold, SKIPPED_VERSIONS, ValueId};
use std::num::NonZeroU64;

const EXCHANGED: &str = "!TRYAGAIN EXCHANGED the databases were exchanged (SWAPDB) while the command was on its way; nothing was done, try again";

impl Store {
    fn exchange(&mut self, exchanges: u64) -> String {
        self.apply(&Command::Exchange { exchanges, floor: exchanges * SKIPPED_VERSIONS })
    }

    /// Applies a command that was routed by this count.
    fn routed(&mut self, exchanges: u64, command: &Command<'_>) -> String {
        let mut scratch = Vec::new();
        let routed = Command::Routed(Routed::build(exchanges, command, &mut scratch));
        match command.is_write() {
            true => self.apply(&routed),
            false => self.read(&routed),
        }
    }
}

#[test]
fn a_command_is_carried_out_only_with_the_count_by_which_it_was_routed() {
    let (set, get) = (plain_set(b"k", b"v"), Command::Get { key: b"k" });
    let mut store = Store::new();
    assert_eq!(store.routed(2, &set), EXCHANGED, "the table has not applied that exchange yet");
    assert_eq!(store.apply(&set), "OK");
    // While the group is stopped, no command of a client is carried out.
    store.exchange(1);
    for count in [0, 1, 2] {
        assert_eq!(store.routed(count, &get), EXCHANGED);
        assert_eq!(store.routed(count, &plain_set(b"k", b"w")), EXCHANGED);
    }
    assert_eq!([store.apply(&plain_set(b"k", b"w")), store.read(&get)], [EXCHANGED; 2]);
    store.exchange(2);
    assert_eq!(
        [store.apply(&plain_set(b"k", b"w")), store.read(&get)],
        [EXCHANGED; 2],
        "they were routed before the exchange"
    );
    assert_eq!(store.routed(2, &get), "\"v\"");
    assert_eq!(store.routed(2, &plain_set(b"k", b"x")), "OK");
    assert_eq!(store.routed(2, &get), "\"x\"");
    // A record of an earlier stage of the exchange, proposed again, does nothing.
    store.exchange(1);
    assert_eq!(store.table.exchanges(), 2);
    assert_eq!(store.routed(2, &get), "\"x\"");
}

#[test]
fn evictions_and_purges_go_on_during_an_exchange() {
    let mut store = Store::new();
    store.apply(&plain_set(b"k", b"v"));
    store.exchange(1);
    let floor = store.table.version_floor();
    assert_eq!(store.apply(&Command::Evict { key: b"k", version: 1 }), "1");
    assert_eq!(store.apply(&Command::Purge { until: 1 }), "0");
    assert!(store.table.version_floor() >= floor);
}

#[test]
fn transactions_are_routed_as_a_whole() {
    let mut draft = Draft::default();
    assert!(draft.push(&plain_set(b"k", b"v")) && draft.push(&Command::Get { key: b"k" }));
    let transaction = Command::Transaction(draft.transaction());
    let mut store = Store::new();
    store.exchange(2);
    assert_eq!(store.apply(&transaction), EXCHANGED);
    assert_eq!(store.routed(2, &transaction), "[OK \"v\"]");
}

#[test]
fn a_long_command_keeps_the_count_of_its_first_part() {
    let coordinator = Coordinator { node: 1, life: 1 };
    let mut store = Store::new();
    let begin = |store: &mut Store, counter, exchanges: Option<u64>| {
        let (mut encoded, mut scratch) = (Vec::new(), Vec::new());
        let set = plain_set(b"k", b"v");
        match exchanges {
            Some(count) => Command::Routed(Routed::build(count, &set, &mut scratch)).encode(&mut encoded),
            None => set.encode(&mut encoded),
        }
        let (id, length) = (ValueId { coordinator, counter }, encoded.len() as u32);
        store.apply(&Command::LongPart { id, offset: 0, length, bytes: &encoded });
        id
    };
    let early = begin(&mut store, 1, None);
    store.exchange(2);
    let routed = begin(&mut store, 2, Some(2));
    assert_eq!(store.apply(&Command::LongEnd { id: early, watched_in: None }), EXCHANGED);
    assert_eq!(store.routed(2, &Command::Exists { keys: List::build(&mut Vec::new(), [&b"k"[..]]) }), "0");
    assert_eq!(store.apply(&Command::LongEnd { id: routed, watched_in: None }), "OK");
    assert_eq!(store.routed(2, &Command::Get { key: b"k" }), "\"v\"");
}

#[test]
fn an_exchange_drops_waiting_requests_and_keeps_served_elements() {
    let waiter = |number| WaiterId { node: 1, life: 1, number: NonZeroU64::new(number).unwrap() };
    let mut store = Store::new();
    let (mut list, mut scratch) = (Vec::new(), Vec::new());
    let keys = List::build(&mut list, [&b"l"[..]]);
    let pop = Command::OnList(ListCommand::PopAny { keys, at_front: true });
    let wish = Wish::build(&pop, &mut scratch).unwrap();
    for number in [1, 2] {
        let ask = Command::Queue(QueueCommand::Ask { waiter: waiter(number), wish });
        assert_eq!(store.apply(&ask), "QUEUED");
    }
    let acquire = |number, owner| {
        let hold = Hold::Lease(1000);
        Command::Lock(LockCommand::Acquire { name: b"n", owner, hold, waiter: Some(waiter(number)) })
    };
    store.apply(&acquire(3, b"a"));
    assert_eq!(store.apply(&acquire(4, b"b")), "QUEUED");
    let mut elements = Vec::new();
    let elements = List::build(&mut elements, [&b"e"[..]]);
    store.apply(&Command::OnList(ListCommand::Push {
        key: b"l",
        elements,
        at_front: true,
        if_present: false,
    }));
    store.table.take_lock_events();
    store.exchange(1);
    let dropped = store.table.take_lock_events().unwrap_or_default();
    assert!(matches!(
        &dropped[..],
        [LockEvent::Notified { waiter, notification: LockNotification::Dropped, .. }] if waiter.number.get() == 4
    ));
    let conclude = |number| Command::Queue(QueueCommand::Conclude { waiter: waiter(number) });
    assert_eq!(store.apply(&conclude(1)), "[\"l\" \"e\"]");
    assert_eq!(store.apply(&conclude(2)), "nil");
    // The lock is still held.
    store.exchange(2);
    assert_eq!(store.routed(2, &acquire(5, b"c")), "QUEUED");
}

#[test]
fn versions_continue_above_those_of_both_databases_and_the_history_begins_again() {
    let mut store = Store::new();
    store.table.keep_history(1 << 20);
    store.apply(&plain_set(b"k", b"v"));
    store.exchange(2);
    let since = store.table.history().map(|history| history.since(store.table.version_floor()));
    assert_eq!(since, Some(2 * SKIPPED_VERSIONS));
    store.routed(2, &plain_set(b"k", b"w"));
    assert_eq!(store.table.version_floor(), 2 * SKIPPED_VERSIONS + 1);
}

#[test]
fn a_snapshot_contains_the_count_of_exchanges() {
    let mut store = Store::new();
    store.apply(&plain_set(b"k", b"v"));
    store.exchange(3);
    let mut chunk = Vec::new();
    let id = store.table.begin_snapshot();
    while store.table.snapshot_chunk(id, 10, &mut chunk) {}
    let mut other = Table::new(2);
    other.install(&chunk).unwrap();
    assert_eq!(other.exchanges(), 3);
    assert!(!other.takes(&Command::Get { key: b"k" }));
}

//! Requests that wait for elements: which request is served what, and where the elements go.

use super::script::play;
use super::*;
use crate::command::{
    Draft, ListCommand, LockCommand, Padded, QueueCommand, SortedCommand, StreamCommand, WaiterId, Wish,
};
use crate::locks::{LockEvent, LockNotification};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::num::NonZeroU64;

const WRONGTYPE: &str = "!WRONGTYPE Operation against a key holding the wrong kind of value";

fn id(node: u16, number: u64) -> WaiterId {
    WaiterId { node, life: 1, number: NonZeroU64::new(number).expect("numbers begin with 1") }
}

/// A client's command, given as text: `BLPOP k l`, `BLMOVE from to`, `BZPOPMIN z`, `BLMPOP 3 l`, `BZMPOP 2 z`.
fn with_wish<R>(text: &str, then: impl FnOnce(Wish<'_>) -> R) -> R {
    let mut words = text.split(' ').map(str::as_bytes);
    let name = words.next().expect("a name");
    let (mut list, mut scratch) = (Vec::new(), Vec::new());
    let rest: Vec<&[u8]> = words.collect();
    let count = |word: &[u8]| String::from_utf8_lossy(word).parse().expect("a count");
    let command = match name {
        b"BLPOP" | b"BRPOP" => {
            let keys = List::build(&mut list, rest);
            Command::OnList(ListCommand::PopAny { keys, at_front: name == b"BLPOP" })
        }
        b"BLMPOP" => {
            let keys = List::build(&mut list, rest[1..].iter().copied());
            Command::OnList(ListCommand::MultiPop { keys, at_front: true, count: count(rest[0]) })
        }
        b"BLMOVE" => Command::OnList(ListCommand::Move {
            from: rest[0],
            to: rest[1],
            from_front: true,
            to_front: false,
        }),
        b"BZPOPMIN" => {
            let keys = List::build(&mut list, rest);
            Command::OnSorted(SortedCommand::PopAny { keys, is_highest: false })
        }
        b"BZMPOP" => {
            let keys = List::build(&mut list, rest[1..].iter().copied());
            Command::OnSorted(SortedCommand::MultiPop { keys, is_highest: true, count: count(rest[0]) })
        }
        _ => panic!("{text} does not wait"),
    };
    then(Wish::build(&command, &mut scratch).expect("it can wait"))
}

impl Store {
    /// A request of node 1.
    fn ask(&mut self, number: u64, wish: &str) -> String {
        self.ask_as(id(1, number), wish)
    }

    fn ask_as(&mut self, waiter: WaiterId, wish: &str) -> String {
        with_wish(wish, |wish| self.apply(&Command::Queue(QueueCommand::Ask { waiter, wish })))
    }

    fn withdraw(&mut self, waiter: WaiterId) -> String {
        self.apply(&Command::Queue(QueueCommand::Withdraw { waiter, only_unclaimed: false }))
    }

    fn conclude(&mut self, waiter: WaiterId) -> String {
        self.apply(&Command::Queue(QueueCommand::Conclude { waiter }))
    }

    fn settle(&mut self, waiter: WaiterId) -> String {
        let numbers = waiter.number.get().to_le_bytes();
        let settle = QueueCommand::Settle { node: waiter.node, life: waiter.life, numbers: &numbers };
        self.apply(&Command::Queue(settle))
    }

    fn drop_node(&mut self, node: u16, spared: Option<u64>) {
        self.apply(&Command::Lock(LockCommand::DropWaiters { node, spared: Padded(spared) }));
    }

    fn state_of(&mut self, waiter: WaiterId) -> String {
        self.read(&Command::Queue(QueueCommand::Check { waiter }))
    }

    /// The numbers of the requests served since the last call, in order.
    fn served(&mut self) -> Vec<u64> {
        let events = self.table.take_lock_events().unwrap_or_default();
        events
            .into_iter()
            .filter_map(|event| match event {
                LockEvent::Notified { waiter, notification: LockNotification::Served, .. } => {
                    Some(waiter.number.get())
                }
                _ => None,
            })
            .collect()
    }

    /// The elements of a list.
    fn list(&mut self, key: &str) -> String {
        self.read(&Command::OnList(ListCommand::Range { key: key.as_bytes(), start: 0, end: -1 }))
    }
}

#[test]
fn settling_removes_a_request_that_a_late_record_has_queued_again() {
    let mut store = Store::new();
    store.play("RPUSH l a -> 1");
    assert_eq!(store.ask(1, "BLPOP l"), "[\"l\" \"a\"]");
    store.settle(id(1, 1));
    assert_eq!(store.ask(1, "BLPOP l"), "QUEUED", "the same record again");
    assert_eq!(store.settle(id(1, 1)), "1");
    store.play("RPUSH l b -> 1");
    assert_eq!(store.served(), []);
    assert_eq!(store.list("l"), "[\"b\"]");
}

#[test]
fn a_concluded_request_takes_nothing_when_its_record_comes_late() {
    let mut store = Store::new();
    let late = id(1, 7);
    assert_eq!(store.conclude(late), "nil", "the group does not know the request");
    store.play("RPUSH l a -> 1");
    assert_eq!(store.ask(7, "BLPOP l"), "nil");
    store.play("LRANGE l 0 -1 -> [\"a\"]");
    assert_eq!((store.table.queues().unsettled(), store.table.queues().kept()), (1, 0));
    store.settle(late);
    assert_eq!(store.table.queues().unsettled(), 0);
}

#[test]
fn a_request_that_can_be_served_is_served_at_once() {
    let mut store = Store::new();
    store.play("RPUSH l a b c d -> 4\nZADD z 1 m 2 n 3 o -> 3");
    assert_eq!(store.ask(1, "BLPOP no l"), r#"["l" "a"]"#);
    assert_eq!(store.ask(2, "BRPOP l no"), r#"["l" "d"]"#);
    assert_eq!(store.ask(3, "BLMPOP 5 no l"), r#"["l" ["b" "c"]]"#);
    assert_eq!(store.ask(4, "BZPOPMIN z"), r#"["z" "m" 1]"#);
    assert_eq!(store.ask(5, "BZMPOP 1 z"), r#"["z" [["o" 3]]]"#);
    assert!(store.served().is_empty(), "the record's own reply serves the request");
    assert_eq!(store.ask(1, "BLPOP no l"), r#"["l" "a"]"#, "the reply is the same when asked for again");
    assert_eq!((1..=5).map(|number| store.settle(id(1, number))).collect::<String>(), "11111");
    assert_eq!(store.table.queues().unsettled(), 0);
}

#[test]
fn waiting_requests_are_served_in_order_after_the_record() {
    let mut store = Store::new();
    for number in 1..=3 {
        assert_eq!(store.ask(number, "BLPOP l"), "QUEUED");
    }
    assert_eq!(store.ask_as(id(2, 1), "BLPOP l"), "QUEUED");
    // As in Redis, the reply is the length before any request is served.
    store.play("RPUSH l a b -> 2\nEXISTS l -> 0");
    assert_eq!(store.served(), [1, 2]);
    assert_eq!([store.state_of(id(1, 1)), store.state_of(id(1, 3))], ["SERVED", "QUEUED"]);
    assert_eq!(store.ask(1, "BLPOP l"), r#"["l" "a"]"#);
    assert_eq!(store.ask(2, "BLPOP l"), r#"["l" "b"]"#);
    store.play("LPUSH l c d e -> 3");
    assert_eq!(store.served(), [3, 1]);
    assert_eq!(store.ask(3, "BLPOP l"), r#"["l" "e"]"#, "LPUSH has put it in front");
    assert_eq!(store.ask_as(id(2, 1), "BLPOP l"), r#"["l" "d"]"#);
    assert_eq!(store.list("l"), r#"["c"]"#);
}

#[test]
fn every_command_that_adds_elements_serves_requests() {
    let mut store = Store::new();
    for (number, script) in (1..).zip([
        "RPUSH x a -> 1\nRENAME x l -> OK",
        "RPUSH x a -> 1\nCOPY x l -> 1",
        "LMOVE x l LEFT LEFT -> \"a\"",
        "LPUSHX x b -> 0\nLPUSH l b -> 1",
    ]) {
        assert_eq!(store.ask(number, "BLPOP l"), "QUEUED");
        store.play(script);
        assert_eq!(store.served(), [number], "{script}");
    }
    assert_eq!(store.ask(9, "BZPOPMIN z"), "QUEUED");
    store.play("ZADD y 5 m -> 1\nZUNIONSTORE z 1 y -> 1\nEXISTS z -> 0");
    assert_eq!(store.served(), [9]);
}

#[test]
fn a_script_serves_requests_at_undeclared_keys() {
    let mut store = Store::scripted();
    assert_eq!(store.ask(1, "BLPOP l"), "QUEUED");
    assert_eq!(store.eval_in("RPUSH l a\nRPUSH l b\nundo", &["k"], &[""], true), "1, 2");
    assert!(store.served().is_empty());
    assert_eq!(store.eval_in("RPUSH l a\nRPUSH l b", &["k"], &[""], true), "1, 2");
    assert_eq!(store.served(), [1]);
    assert_eq!(store.list("l"), r#"["b"]"#);
}

#[test]
fn a_transaction_serves_from_the_key_written_first_when_it_ends() {
    let mut store = Store::new();
    assert_eq!(store.ask(1, "BLPOP k l"), "QUEUED");
    let (mut draft, mut scratch) = (Draft::default(), Vec::new());
    for (key, element) in [(b"l", b"1"), (b"k", b"2"), (b"l", b"3")] {
        let elements = List::build(&mut scratch, [&element[..]]);
        let push = ListCommand::Push { key, elements, at_front: true, if_present: false };
        assert!(draft.push(&Command::OnList(push)));
    }
    assert_eq!(store.apply(&Command::Transaction(draft.transaction())), "[1 1 2]");
    assert_eq!(store.ask(1, "BLPOP k l"), r#"["l" "3"]"#);
    assert_eq!([store.list("k"), store.list("l")], [r#"["2"]"#, r#"["1"]"#]);
}

#[test]
fn a_key_of_another_type_refuses_a_new_request_but_not_a_waiting_one() {
    let mut store = Store::new();
    store.set("s", "v");
    assert_eq!(store.ask(1, "BLPOP no s"), WRONGTYPE);
    assert_eq!(store.ask(1, "BLPOP l"), "QUEUED");
    assert_eq!(store.ask(2, "BZPOPMIN l"), "QUEUED");
    store.set("l", "v");
    store.play("DEL l -> 1\nSADD l m -> 1\nDEL l -> 1\nZADD l 7 m -> 1");
    assert_eq!(store.served(), [2], "only the request that waits for members");
    store.play("RPUSH l a -> 1");
    assert_eq!(store.served(), [1]);
}

#[test]
fn a_moved_element_serves_requests_at_its_new_key() {
    let mut store = Store::new();
    assert_eq!(store.ask(1, "BLMOVE a b"), "QUEUED");
    assert_eq!(store.ask(2, "BLMOVE b c"), "QUEUED");
    assert_eq!(store.ask(3, "BLPOP c"), "QUEUED");
    store.play("RPUSH a x -> 1");
    assert_eq!(store.served(), [1, 2, 3]);
    assert_eq!(store.ask(1, "BLMOVE a b"), r#""x""#);
    assert_eq!(store.withdraw(id(1, 2)), "1");
    assert_eq!(store.list("b"), "[]", "it was moved, not taken: only the reply is given up");
    assert_eq!(store.ask(3, "BLPOP c"), r#"["c" "x"]"#);
    // As in Redis, a request that cannot be served gets the error, and the next one the element.
    assert_eq!(store.ask(4, "BLMOVE a s"), "QUEUED");
    assert_eq!(store.ask(5, "BLPOP a"), "QUEUED");
    store.set("s", "v");
    store.play("RPUSH a y -> 1");
    assert_eq!([store.ask(4, "BLMOVE a s"), store.ask(5, "BLPOP a")], [WRONGTYPE, r#"["a" "y"]"#]);
}

#[test]
fn unclaimed_elements_go_back_and_serve_the_next_request() {
    let mut store = Store::new();
    for (number, wish) in [(1, "BLPOP l"), (2, "BRPOP l"), (3, "BLMPOP 2 l"), (4, "BZMPOP 2 z")] {
        assert_eq!(store.ask(number, wish), "QUEUED");
    }
    store.play("RPUSH l a b c d e -> 5\nZADD z 1 m 2 n 3 o -> 3");
    assert_eq!(store.list("l"), r#"["d"]"#);
    assert_eq!(store.withdraw(id(1, 3)), "1");
    assert_eq!(store.list("l"), r#"["b" "c" "d"]"#);
    assert_eq!(
        [store.withdraw(id(1, 2)), store.withdraw(id(1, 1)), store.withdraw(id(1, 1))],
        ["1", "1", "0"]
    );
    assert_eq!(store.list("l"), r#"["a" "b" "c" "d" "e"]"#);
    // A member that was added again since then keeps its new score.
    store.play("ZADD z 9 n -> 1");
    assert_eq!(store.withdraw(id(1, 4)), "1");
    store.play("ZRANGE z 0 -1 WITHSCORES -> <\"m\":1 \"o\":3 \"n\":9>");
    assert_eq!([store.ask(6, "BLPOP k"), store.ask(7, "BLPOP k")], ["QUEUED", "QUEUED"]);
    store.play("RPUSH k x -> 1");
    assert_eq!([store.withdraw(id(1, 6)), store.ask(7, "BLPOP k")], ["1", r#"["k" "x"]"#]);
    assert_eq!(store.table.queues().statistics().returned, 5);
}

#[test]
fn a_lost_node_keeps_only_what_it_has_claimed() {
    let mut store = Store::new();
    for number in 1..=4 {
        assert_eq!(store.ask(number, "BLPOP l"), "QUEUED");
    }
    assert_eq!(store.ask_as(id(2, 1), "BLPOP l"), "QUEUED");
    store.play("RPUSH l a b c -> 3");
    assert_eq!(store.ask(1, "BLPOP l"), r#"["l" "a"]"#);
    // Its link is down: it may return and ask for what it has claimed.
    store.drop_node(1, None);
    assert_eq!(store.list("l"), r#"["c"]"#, "b was served to the next request");
    assert_eq!(store.ask_as(id(2, 1), "BLPOP l"), r#"["l" "b"]"#);
    assert_eq!([store.ask(1, "BLPOP l"), store.state_of(id(1, 4))], [r#"["l" "a"]"#, "nil"]);
    // It has restarted: a client may have what was claimed.
    store.drop_node(1, Some(2));
    assert_eq!([store.state_of(id(1, 1)), store.list("l")], ["nil", r#"["c"]"#]);
    // The same when it sends a request as another incarnation.
    assert_eq!(store.ask_as(WaiterId { life: 3, ..id(2, 1) }, "BLPOP no"), "QUEUED");
    assert_eq!(store.state_of(id(2, 1)), "nil");
    assert_eq!(store.table.queues().coordinators(), [2]);
}

#[test]
fn elements_that_go_back_together_return_in_their_order() {
    let mut store = Store::new();
    for (number, wish) in [(1, "BLPOP l"), (2, "BLPOP l"), (3, "BRPOP l"), (4, "BRPOP l")] {
        assert_eq!(store.ask(number, wish), "QUEUED");
    }
    store.play("RPUSH l a b c d e -> 5");
    assert_eq!(store.list("l"), r#"["c"]"#);
    store.drop_node(1, None);
    assert_eq!(store.list("l"), r#"["a" "b" "c" "d" "e"]"#);
}

#[test]
fn elements_cannot_go_back_to_a_key_of_another_type() {
    let mut store = Store::new();
    assert_eq!(store.ask(1, "BLPOP l"), "QUEUED");
    store.play("RPUSH l a -> 1\nSET l v -> OK");
    assert_eq!(store.withdraw(id(1, 1)), "1");
    store.play("GET l -> \"v\"");
    assert_eq!(store.table.queues().statistics().dropped, 1, "SET has replaced the list that they were of");
}

#[test]
fn concluding_a_request_ends_its_wait_or_claims_its_element() {
    let mut store = Store::new();
    assert_eq!([store.ask(1, "BLPOP l"), store.ask(2, "BLPOP l")], ["QUEUED", "QUEUED"]);
    assert_eq!(store.conclude(id(1, 1)), "aborted");
    store.play("RPUSH l a b -> 2");
    assert_eq!(store.conclude(id(1, 2)), r#"["l" "a"]"#);
    assert_eq!(store.conclude(id(1, 1)), "aborted");
    let keeps = QueueCommand::Withdraw { waiter: id(1, 2), only_unclaimed: true };
    assert_eq!(store.apply(&Command::Queue(keeps)), "0", "the client may have it");
    assert_eq!(store.list("l"), r#"["b"]"#);
}

#[test]
fn the_elements_served_to_one_request_are_bounded() {
    let mut store = Store::new();
    let long = "x".repeat(300 << 10);
    store.play(&format!("RPUSH l {long} {long} {long} {long} {long} {long} -> 6"));
    store.ask(1, "BLMPOP 9999 l");
    store.play("LLEN l -> 2");
    for hundreds in 1..=21 {
        store.play(&format!("RPUSH m{} -> {}", " e".repeat(100), 100 * hundreds));
    }
    store.ask(2, "BLMPOP 99999 m");
    store.play("LLEN m -> 1100");
}

#[test]
fn all_stream_readers_are_served_an_entry_but_one_request_per_group() {
    let read = |id: &'static [u8]| {
        move |list: &mut Vec<u8>, scratch: &mut Vec<u8>| {
            let streams = List::build(list, [&b"s"[..], id, b"t", b"0"]);
            let command = Command::OnStream(StreamCommand::Read { streams, count: 0 });
            Wish::build(&command, scratch).expect("it waits").bytes().to_vec()
        }
    };
    let of_group = |list: &mut Vec<u8>, scratch: &mut Vec<u8>| {
        let (group, consumer, streams) = (&b"g"[..], &b"c"[..], List::build(list, [&b"s"[..], b">"]));
        let (count, acknowledges) = (0, false);
        let command = StreamCommand::ReadGroup { group, consumer, streams, count, acknowledges };
        Wish::build(&Command::OnStream(command), scratch).expect("it waits").bytes().to_vec()
    };
    let mut store = Store::new();
    let ask = |store: &mut Store, number: u64, wish: &[u8]| {
        let wish = Wish::of(wish).expect("it waits");
        store.apply(&Command::Queue(QueueCommand::Ask { waiter: id(1, number), wish }))
    };
    let add = |store: &mut Store, entry: &[u8]| {
        let mut scratch = Vec::new();
        let words = List::build(&mut scratch, [entry, b"f", b"v"]);
        let add = StreamCommand::Add { key: b"s", words, trim: None, if_present: false };
        store.apply(&Command::OnStream(add))
    };
    let (mut list, mut scratch) = (Vec::new(), Vec::new());
    let [last, first, far] = [&b"$"[..], b"0", b"7-0"].map(|id| read(id)(&mut list, &mut scratch));
    let group = of_group(&mut list, &mut scratch);
    assert_eq!(add(&mut store, b"1-1"), "\"1-1\"");
    let create = StreamCommand::CreateGroup {
        key: b"s",
        group: b"g",
        id: b"$",
        entries_read: -1,
        makes_stream: false,
    };
    assert_eq!(store.apply(&Command::OnStream(create)), "OK");
    let now = ask(&mut store, 1, &first);
    assert!(now.contains("1-1"), "there is an entry: {now}");
    for (number, wish) in [(2, &last), (3, &far), (4, &group), (5, &group)] {
        assert_eq!(ask(&mut store, number, wish), "QUEUED");
    }
    add(&mut store, b"2-1");
    assert_eq!(store.served(), [2, 4], "one waits for a later id, and a group gets an entry once");
    let got = ask(&mut store, 2, &last);
    assert!(got.contains("2-1") && !got.contains("1-1"), "what was added since the request: {got}");
    assert_eq!(store.withdraw(id(1, 4)), "1");
    add(&mut store, b"8-1");
    assert_eq!(store.served(), [3, 5]);
    assert_eq!(ask(&mut store, 6, &group), "QUEUED");
    assert_eq!(store.delete("s"), "1");
    assert_eq!(store.served(), [6]);
    assert_eq!(ask(&mut store, 6, &group), "!UNBLOCKED the stream key no longer exists");
    add(&mut store, b"9-1");
    assert_eq!(store.apply(&Command::OnStream(create)), "OK");
    assert_eq!(ask(&mut store, 7, &group), "QUEUED");
    assert_eq!(store.apply(&Command::Clear {}), "OK");
    assert_eq!(store.served(), [7], "FLUSHALL takes the key away, too");
}

#[test]
fn a_reader_whose_stream_or_group_is_gone_gets_the_error_of_its_command() {
    let mut store = Store::new();
    let (mut list, mut scratch) = (Vec::new(), Vec::new());
    let (group, consumer, streams) = (&b"g"[..], &b"c"[..], List::build(&mut list, [&b"s"[..], b">"]));
    let (count, acknowledges, claim_ms) = (0, false, -1);
    let consume = StreamCommand::Consume { group, consumer, streams, count, acknowledges, claim_ms };
    let wish = Wish::build(&Command::OnStream(consume), &mut scratch).expect("it waits");
    let (key, id_of_group, makes_stream) = (&b"s"[..], &b"$"[..], true);
    let create = StreamCommand::CreateGroup { key, group, id: id_of_group, entries_read: -1, makes_stream };
    let no_group =
        r"!NOGROUP No such key \'s\' or consumer group \'g\' in XREADGROUP with GROUP option".to_string();
    type End<'a> = (&'a dyn Fn(&mut Store), &'a str);
    let ends: [End<'_>; 4] = [
        (&|store| drop(store.delete("s")), &no_group),
        (&|store| drop(store.apply(&Command::Clear {})), &no_group),
        (
            &|store| drop(store.apply(&Command::OnStream(StreamCommand::DestroyGroup { key, group }))),
            &no_group,
        ),
        (&|store| store.play("SET s v -> OK"), WRONGTYPE),
    ];
    for (number, (end, error)) in (1..).zip(ends) {
        store.apply(&Command::OnStream(create));
        let ask = Command::Queue(QueueCommand::Ask { waiter: id(1, number), wish });
        assert_eq!(store.apply(&ask), "QUEUED");
        end(&mut store);
        assert_eq!(store.served(), [number]);
        assert_eq!(store.apply(&ask), error);
    }
}

#[test]
fn a_pop_that_does_not_wait_replies_that_there_is_nothing() {
    play(
        r#"
        BLPOP k l 0             -> aborted
        RPUSH l a b             -> 2
        BLPOP k l 0             -> ["l" "a"]
        BRPOP k l 0             -> ["l" "b"]
        BZPOPMIN z 0            -> aborted
        ZADD z 1 m 2 n          -> 2
        BZPOPMAX z 0            -> ["z" "n" 2]
        BZPOPMIN z 0            -> ["z" "m" 1]
    "#,
    );
}

/// An event in the model: a push, a request, or the end of one.
#[derive(Clone, Debug)]
enum Event {
    Push { key: usize, count: usize, at_front: bool },
    Ask { node: u16, keys: Vec<usize>, at_front: bool, count: Option<u64> },
    AskAgain(usize),
    Withdraw(usize),
    Conclude(usize),
    Settle(usize),
    Gone(u16),
    Pop { key: usize },
}

const KEYS: [&[u8]; 2] = [b"k", b"l"];

fn event() -> impl Strategy<Value = Event> {
    let which = 0..40_usize;
    prop_oneof![
        4 => (0..2_usize, 1..4_usize, any::<bool>())
            .prop_map(|(key, count, at_front)| Event::Push { key, count, at_front }),
        5 => (1..3_u16, vec(0..2_usize, 1..3), any::<bool>(), proptest::option::of(1..4_u64))
            .prop_map(|(node, keys, at_front, count)| Event::Ask { node, keys, at_front, count }),
        2 => which.clone().prop_map(Event::AskAgain),
        1 => which.clone().prop_map(Event::Withdraw),
        1 => which.clone().prop_map(Event::Conclude),
        2 => which.prop_map(Event::Settle),
        1 => (1..3_u16).prop_map(Event::Gone),
        1 => (0..2_usize).prop_map(|key| Event::Pop { key }),
    ]
}

/// A request in the model, which is a sequence of elements in three places: lists, requests and clients.
#[derive(Clone, Debug)]
struct Request {
    keys: Vec<usize>,
    at_front: bool,
    count: u64,
    state: State,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Waits,
    Served {
        key: usize,
        elements: Vec<u64>,
        is_claimed: bool,
        order: usize,
    },
    /// It ended with nothing, and is not settled: if asked for again, it takes nothing.
    Concluded,
    Over,
}

#[derive(Default)]
struct Model {
    lists: [Vec<u64>; 2],
    requests: Vec<Request>,
    served: usize,
}

impl Model {
    fn serve(&mut self, place: usize, key: usize, is_claimed: bool) {
        let (list, request) = (&mut self.lists[key], &mut self.requests[place]);
        let count = (request.count as usize).min(list.len());
        let elements = match request.at_front {
            true => list.drain(..count).collect(),
            false => list.split_off(list.len() - count).into_iter().rev().collect(),
        };
        self.served += 1;
        request.state = State::Served { key, elements, is_claimed, order: self.served };
    }

    fn serve_waiting(&mut self, key: usize) {
        while !self.lists[key].is_empty() {
            let waits = |it: &Request| it.state == State::Waits && it.keys.contains(&key);
            let Some(place) = self.requests.iter().position(waits) else { break };
            self.serve(place, key, false);
        }
    }

    /// Takes back what a request was served; returns the key that got elements.
    fn give_back(&mut self, place: usize) -> Option<usize> {
        let request = &mut self.requests[place];
        let State::Served { key, elements, .. } = std::mem::replace(&mut request.state, State::Over) else {
            return None;
        };
        for element in elements.into_iter().rev() {
            let list = &mut self.lists[key];
            list.insert(if request.at_front { 0 } else { list.len() }, element);
        }
        Some(key)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Each element is in one place, in the order of a simple model, on two replicas of which one joins by a snapshot.
    #[test]
    fn each_element_is_in_one_place(events in vec(event(), 0..60), snapshot_at in 0..60_usize) {
        let (mut table, mut other) = (Table::new(1), Table::new(2));
        let (mut model, mut ids, mut next, mut offset) = (Model::default(), Vec::<WaiterId>::new(), 0_u64, 0);
        for (step, event) in events.iter().enumerate() {
            if step == snapshot_at {
                let (floor, snapshot, mut bytes) = (table.version_floor(), table.begin_snapshot(), Vec::new());
                while table.snapshot_chunk(snapshot, 64, &mut bytes) {}
                table.end_snapshot(snapshot);
                other = Table::new(3);
                other.install(&bytes).unwrap();
                other.set_version_floor(floor);
            }
            let mut record = |command: Command<'_>| {
                offset += 1;
                table.apply(&command, offset, 1, &mut ReplyBuffer::new());
                other.apply_unasked(&command, offset, 1);
            };
            let mut ask = |waiter, request: &Request| {
                let (mut list, mut scratch) = (Vec::new(), Vec::new());
                let keys = List::build(&mut list, request.keys.iter().map(|key| KEYS[*key]));
                let (at_front, count) = (request.at_front, request.count);
                let command = Command::OnList(ListCommand::MultiPop { keys, at_front, count });
                let wish = Wish::build(&command, &mut scratch).unwrap();
                record(Command::Queue(QueueCommand::Ask { waiter, wish }));
            };
            let known = |which: &usize| (!ids.is_empty()).then(|| which % ids.len());
            match event {
                Event::Push { key, count, at_front } => {
                    let mut scratch = Vec::new();
                    let elements: Vec<_> = (0..*count as u64).map(|more| (next + more).to_le_bytes()).collect();
                    for number in next..next + *count as u64 {
                        let list = &mut model.lists[*key];
                        list.insert(if *at_front { 0 } else { list.len() }, number);
                    }
                    next += *count as u64;
                    let elements = List::build(&mut scratch, elements.iter().map(|it| &it[..]));
                    let (key, at_front) = (KEYS[*key], *at_front);
                    record(Command::OnList(ListCommand::Push { key, elements, at_front, if_present: false }));
                    model.serve_waiting(if key == KEYS[0] { 0 } else { 1 });
                }
                Event::Pop { key } => {
                    record(Command::OnList(ListCommand::Pop { key: KEYS[*key], at_front: true, count: None }));
                    if !model.lists[*key].is_empty() {
                        model.lists[*key].remove(0);
                    }
                }
                Event::Ask { node, keys, at_front, count } => {
                    let (keys, at_front, count) = (keys.clone(), *at_front, count.unwrap_or(1));
                    let request = Request { keys, at_front, count, state: State::Waits };
                    let waiter = id(*node, ids.len() as u64 + 1);
                    ask(waiter, &request);
                    ids.push(waiter);
                    let first = request.keys.iter().copied().find(|key| !model.lists[*key].is_empty());
                    model.requests.push(request);
                    if let Some(key) = first {
                        model.serve(model.requests.len() - 1, key, true);
                    }
                }
                Event::AskAgain(which) => {
                    if let Some(place) = known(which).filter(|it| model.requests[*it].state != State::Over) {
                        ask(ids[place], &model.requests[place]);
                        if let State::Served { is_claimed, .. } = &mut model.requests[place].state {
                            *is_claimed = true;
                        }
                    }
                }
                Event::Withdraw(which) => {
                    if let Some(place) = known(which) {
                        record(Command::Queue(QueueCommand::Withdraw { waiter: ids[place], only_unclaimed: false }));
                        match model.give_back(place) {
                            Some(key) => model.serve_waiting(key),
                            None => model.requests[place].state = State::Over,
                        }
                    }
                }
                Event::Conclude(which) => {
                    if let Some(place) = known(which) {
                        record(Command::Queue(QueueCommand::Conclude { waiter: ids[place] }));
                        match &mut model.requests[place].state {
                            State::Served { is_claimed, .. } => *is_claimed = true,
                            state => *state = State::Concluded,
                        }
                    }
                }
                Event::Settle(which) => {
                    let is_served = |place: &usize| {
                        matches!(model.requests[*place].state, State::Served { .. } | State::Concluded)
                    };
                    if let Some(place) = known(which).filter(is_served) {
                        let WaiterId { node, life, number } = ids[place];
                        let numbers = number.get().to_le_bytes();
                        record(Command::Queue(QueueCommand::Settle { node, life, numbers: &numbers }));
                        model.requests[place].state = State::Over;
                    }
                }
                Event::Gone(node) => {
                    record(Command::Lock(LockCommand::DropWaiters { node: *node, spared: Padded(None) }));
                    let mut unclaimed = Vec::new();
                    for place in (0..ids.len()).filter(|place| ids[*place].node == *node) {
                        match &mut model.requests[place].state {
                            State::Served { is_claimed: false, order, .. } => unclaimed.push((*order, place)),
                            State::Served { .. } | State::Concluded => {}
                            state => *state = State::Over,
                        }
                    }
                    unclaimed.sort_unstable();
                    let keys: Vec<_> = unclaimed.iter().rev().filter_map(|(_, it)| model.give_back(*it)).collect();
                    keys.into_iter().for_each(|key| model.serve_waiting(key));
                }
            }
            table.queues().check_invariants();
            prop_assert_eq!(table.digest(), other.digest());
            let mut lists = BTreeMap::new();
            for (key, list) in KEYS.iter().zip(&model.lists).filter(|(_, list)| !list.is_empty()) {
                lists.insert(*key, list.clone());
            }
            prop_assert_eq!(table.len(), lists.len());
            for (key, list) in &lists {
                let (items, _) = table.items_of(key, crate::table::kind::Kind::List, 1).unwrap();
                let held: Vec<u64> = items.iter_from(0).map(|it| u64::from_le_bytes(it.try_into().unwrap())).collect();
                prop_assert_eq!(&held, list, "after {:?}", event);
            }
            for (waiter, request) in ids.iter().zip(&model.requests) {
                let mut out = ReplyBuffer::new();
                table.read(&Command::Queue(QueueCommand::Check { waiter: *waiter }), 1, &mut out);
                let expected = match &request.state {
                    State::Waits => "QUEUED",
                    State::Served { .. } | State::Concluded => "SERVED",
                    State::Over => "nil",
                };
                prop_assert_eq!(text_of(&out), expected, "{:?} after {:?}", waiter, event);
            }
        }
    }
}

// Clients that wait at keys of several groups: they are only woken.

impl Store {
    /// Has the table note a client of node 1 that began to wait at this time. Returns the marks.
    fn note(&mut self, number: u64, keys: &str, since: u64) -> String {
        let (mut list, waiter) = (Vec::new(), id(1, number));
        let keys = List::build(&mut list, keys.split(' ').map(str::as_bytes));
        let for_entries = false;
        self.read(&Command::Queue(QueueCommand::Await { waiter, keys, for_entries, since }))
    }

    fn note_reader(&mut self, number: u64, key: &str) -> String {
        let (mut list, waiter) = (Vec::new(), id(1, number));
        let keys = List::build(&mut list, [key.as_bytes()]);
        self.read(&Command::Queue(QueueCommand::Await { waiter, keys, for_entries: true, since: 0 }))
    }

    fn encoded(&mut self, command: &Command<'_>) -> Vec<u8> {
        self.offset += 1;
        let mut out = ReplyBuffer::new();
        self.table.apply(command, self.offset, self.time, &mut out);
        out.take()
    }

    fn leave(&mut self, number: u64, key: &str) {
        let mut list = Vec::new();
        let keys = List::build(&mut list, [key.as_bytes()]);
        self.read(&Command::Queue(QueueCommand::Leave { waiter: id(1, number), keys }));
        self.table.queues().check_invariants();
    }
}

#[test]
fn as_many_clients_are_woken_as_there_are_elements_and_those_who_waited_longest_first() {
    let mut store = Store::new();
    assert_eq!(store.note(1, "l m", 30), "[\"0\" \"0\"]");
    assert_eq!(store.note(2, "l", 10), "[\"0\"]");
    assert_eq!(store.note(3, "l", 20), "[\"0\"]");
    store.play("RPUSH l a -> 1");
    assert_eq!(store.served(), [2]);
    // Nothing is taken for it, and it is noted no longer.
    store.play("RPUSH l b -> 2");
    assert_eq!(store.served(), [3, 1]);
    store.play("RPUSH m c -> 1");
    assert_eq!(store.served(), [1], "it waited there, too");
    assert!(store.table.queues().nobody_waits());
    assert_ne!(store.note(1, "l m", 30), "[\"0\" \"0\"]", "what was missed shows in the marks");
    store.play("LRANGE l 0 -1 -> [\"a\" \"b\"]");
}

#[test]
fn who_leaves_has_the_next_one_woken_if_there_is_something() {
    let mut store = Store::new();
    (1..=3).for_each(|number| drop(store.note(number, "l", number)));
    store.leave(2, "l");
    assert_eq!(store.served(), [], "there is nothing");
    store.play("RPUSH l a -> 1");
    assert_eq!(store.served(), [1]);
    store.leave(1, "l");
    assert_eq!(store.served(), [3]);
}

#[test]
fn clients_of_the_group_are_served_before_others_are_woken() {
    let mut store = Store::new();
    store.note(1, "l", 1);
    assert_eq!(store.ask(2, "BLPOP l"), "QUEUED");
    store.play("RPUSH l a -> 1");
    assert_eq!(store.served(), [2]);
    store.play("RPUSH l b -> 1");
    assert_eq!(store.served(), [1]);
    store.play("LRANGE l 0 -1 -> [\"b\"]");
}

#[test]
fn values_of_other_kinds_wake_nobody_and_removals_neither() {
    let mut store = Store::new();
    store.note(1, "k", 1);
    store.play("SADD k a -> 1\nDEL k -> 1\nRPUSH l a -> 1\nLPOP l -> \"a\"");
    assert_eq!(store.served(), []);
    store.play("ZADD k 1 m -> 1");
    assert_eq!(store.served(), [1]);
}

#[test]
fn readers_are_woken_by_new_entries_alone() {
    let mut store = Store::new();
    assert_eq!(store.note_reader(1, "s"), "[\"0-0\"]");
    store.play("XADD s 1-1 f v -> \"1-1\"");
    assert_eq!(store.served(), [1]);
    assert_eq!(store.note_reader(1, "s"), "[\"1-1\"]");
    assert_eq!(store.note_reader(2, "s"), "[\"1-1\"]");
    store.play("XGROUP CREATE s g 0 -> OK");
    assert_eq!(store.served(), []);
    store.play("XADD s 2-1 f v -> \"2-1\"");
    assert_eq!(store.served(), [1, 2]);
}

#[test]
fn a_client_whose_node_does_not_ask_again_is_forgotten() {
    let mut store = Store::new();
    store.note(1, "l", 1);
    store.time += 20_000;
    store.note(2, "m", 1);
    store.play("RPUSH l a -> 1");
    assert_eq!(store.served(), []);
}

#[test]
fn what_was_taken_for_a_client_that_left_can_be_put_back() {
    let mut store = Store::new();
    for (wish, before) in [("BLPOP l", "a b c"), ("BRPOP l", "a b c"), ("BLMPOP 2 l", "a b c")] {
        store.play(&format!("RPUSH l {before} -> 3"));
        with_wish(wish, |wish| {
            let reply = store.encoded(&wish.command());
            let mut count = 0;
            crate::table::put_back(&wish.command(), &reply, |command| {
                count += 1;
                store.apply(command);
            });
            assert_eq!(count, 1);
        });
        store.play("LRANGE l 0 -1 -> [\"a\" \"b\" \"c\"]\nDEL l -> 1");
    }
    store.play("ZADD z 1 m 2.5 n -> 2");
    with_wish("BZMPOP 9 z", |wish| {
        let reply = store.encoded(&wish.command());
        crate::table::put_back(&wish.command(), &reply, |command| drop(store.apply(command)));
    });
    store.play("ZRANGE z 0 -1 WITHSCORES -> <\"m\":1 \"n\":2.5>");
    store.play("RPUSH l a -> 1");
    with_wish("BLMOVE l m", |wish| {
        let reply = store.encoded(&wish.command());
        crate::table::put_back(&wish.command(), &reply, |_| panic!("it is in the other list"));
    });
}

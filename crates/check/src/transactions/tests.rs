//! What is found in histories of transactions, and that it agrees with a search through all orders.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn append(key: &str, element: &str) -> Step {
    Step::Append { key: key.into(), element: element.into() }
}

fn read(key: &str, elements: &[&str]) -> Step {
    Step::Read { key: key.into(), elements: elements.iter().map(|element| (*element).into()).collect() }
}

/// A transaction that begins and ends at these times.
fn at(start: u64, end: u64, steps: Vec<Step>) -> Transaction {
    Transaction { client: start, start, end: Some(end), ending: Ending::Ok, steps }
}

fn judge(all: Vec<Transaction>) -> Result<(), String> {
    let history = Transactions { all };
    history.strictly_serializable().map_err(|violation| violation.words(&history))
}

#[test]
fn transactions_that_overlap_may_have_any_order() {
    let history = vec![
        at(0, 10, vec![append("a", "1"), append("b", "1")]),
        at(5, 20, vec![read("a", &["1"]), read("b", &["1"]), append("a", "2")]),
        at(5, 20, vec![read("a", &[]), read("b", &[])]),
        at(25, 30, vec![read("a", &["1", "2"]), read("b", &["1"])]),
    ];
    assert_eq!(judge(history), Ok(()));
}

#[test]
fn half_of_a_transaction_is_not_seen() {
    let words = judge(vec![
        at(0, 10, vec![append("a", "1"), append("b", "1")]),
        at(5, 20, vec![read("a", &["1"]), read("b", &[])]),
    ])
    .unwrap_err();
    assert_eq!(
        words,
        "no order of these transactions explains what they have read:\n  transaction 1 of client 0 comes before transaction 2 of \
         client 5: it has appended '1' to key 'a', which that one has read\n  transaction 2 of client 5 comes before \
         transaction 1 of client 0: it has read key 'b' without '1', which that one has appended"
    );
}

#[test]
fn what_was_done_before_is_seen() {
    let words = judge(vec![at(0, 10, vec![append("a", "1")]), at(11, 20, vec![read("a", &[])])]).unwrap_err();
    assert!(words.contains("it had ended when that one began"), "{words}");
    let touching = vec![at(0, 10, vec![append("a", "1")]), at(10, 20, vec![read("a", &[])])];
    assert_eq!(judge(touching), Ok(()), "they are concurrent");
}

#[test]
fn two_that_have_each_missed_the_other_have_no_order() {
    // Write skew.
    let words = judge(vec![
        at(0, 10, vec![read("a", &[]), append("b", "1")]),
        at(0, 10, vec![read("b", &[]), append("a", "1")]),
    ])
    .unwrap_err();
    assert!(words.contains("without"), "{words}");
}

#[test]
fn an_unknown_transaction_may_have_been_carried_out_or_not() {
    let unknown = |steps| Transaction { end: None, ending: Ending::Unknown, ..at(0, 0, steps) };
    let first = || unknown(vec![append("a", "1"), append("b", "1")]);
    assert_eq!(judge(vec![first(), at(5, 6, vec![read("a", &[]), read("b", &[])])]), Ok(()));
    assert_eq!(judge(vec![first(), at(5, 6, vec![read("a", &["1"]), read("b", &["1"])])]), Ok(()));
    let half = vec![first(), at(5, 6, vec![read("a", &["1"]), read("b", &[])])];
    assert!(judge(half).is_err(), "but not half of it");
}

#[test]
fn what_nobody_can_have_read() {
    let failed = Transaction { ending: Ending::Failed, ..at(0, 1, vec![append("a", "1")]) };
    let words = judge(vec![failed, at(5, 6, vec![read("a", &["1"])])]).unwrap_err();
    assert!(words.contains("an element that no transaction can have appended"), "{words}");
    let words =
        judge(vec![at(0, 9, vec![append("a", "1"), append("a", "2")]), at(5, 6, vec![read("a", &["1"])])]);
    assert!(words.unwrap_err().contains("a part of what another transaction has appended"));
    let words = judge(vec![at(0, 9, vec![append("a", "1"), read("a", &[])])]).unwrap_err();
    assert!(words.contains("itself has appended before"), "{words}");
    let contradiction = vec![
        at(0, 9, vec![append("a", "1")]),
        at(0, 9, vec![append("a", "2")]),
        at(0, 9, vec![read("a", &["1", "2"])]),
        at(0, 9, vec![read("a", &["2"])]),
    ];
    assert!(judge(contradiction).unwrap_err().contains("contradicts another read"));
    let twice = vec![at(0, 9, vec![append("a", "1")]), at(0, 9, vec![append("a", "1")])];
    assert!(judge(twice).unwrap_err().contains("appended to key 'a' by transaction 1"));
}

#[test]
fn a_file_of_transactions_is_read_as_it_was_written() {
    let unknown = Transaction { end: None, ending: Ending::Unknown, ..at(3, 3, vec![read("a", &[])]) };
    let history =
        Transactions { all: vec![at(0, 10, vec![append("a", "1"), read("b", &["x", "y"])]), unknown] };
    let mut file = Vec::new();
    history.write(&mut file).unwrap();
    let mut again = Transactions::default();
    again.read(&file[..]).unwrap();
    assert_eq!(again, history);
    let wrong = br#"{"client":1,"transaction":[{"append":"k"}],"start":1,"end":2,"outcome":"ok"}"#;
    let error = Transactions::default().read(&wrong[..]).unwrap_err();
    assert!(error.to_string().contains("line 1: a step has \"append\" and \"element\""), "{error}");
}

/// Whether some order of the transactions explains the history, by trying all.
fn has_an_order(all: &[Transaction], done: &mut Vec<usize>) -> bool {
    let is_settled = |place: &usize| all[*place].ending != Ending::Ok || done.contains(place);
    let places = 0..all.len();
    if places.clone().all(|place| is_settled(&place)) {
        return true;
    }
    for place in places.clone() {
        if done.contains(&place) {
            continue;
        }
        let it = &all[place];
        // Whatever ended before it began comes before it.
        let is_late = |other: usize| {
            let other_it = &all[other];
            other_it.ending == Ending::Ok
                && !done.contains(&other)
                && other_it.end.is_some_and(|end| end < it.start)
        };
        if it.ending == Ending::Failed || places.clone().any(is_late) || !fits(all, done, place) {
            continue;
        }
        done.push(place);
        if has_an_order(all, done) {
            return true;
        }
        done.pop();
    }
    false
}

/// Whether a transaction reads what it says after these.
fn fits(all: &[Transaction], done: &[usize], place: usize) -> bool {
    let mut lists = BTreeMap::<&[u8], Vec<Vec<u8>>>::new();
    for other in done.iter().chain([&place]) {
        for step in &all[*other].steps {
            match step {
                Step::Append { key, element } => lists.entry(key).or_default().push(element.clone()),
                Step::Read { key, elements } => {
                    let is_answered = all[*other].ending == Ending::Ok;
                    if *other == place
                        && is_answered
                        && lists.get(&key[..]).map_or(&[][..], Vec::as_slice) != elements
                    {
                        return false;
                    }
                }
            }
        }
    }
    true
}

/// Histories of a few transactions on two keys that were carried out in some order, mostly, with one read changed now and then.
fn histories() -> impl Strategy<Value = Vec<Transaction>> {
    let step = || (any::<bool>(), 0..2usize);
    let one = (vec(step(), 1..4), 0..30u64, 0..12u64, 0..10u8);
    (vec(one, 1..6), any::<prop::sample::Index>(), 0..4usize, any::<bool>()).prop_map(
        |(drawn, which, cut, breaks)| {
            let mut lists = [Vec::<Vec<u8>>::new(), Vec::new()];
            let mut all = Vec::new();
            for (number, (steps, start, length, ending)) in drawn.into_iter().enumerate() {
                let ending = match ending {
                    0 => Ending::Unknown,
                    1 => Ending::Failed,
                    _ => Ending::Ok,
                };
                let mut before = lists.clone();
                let mut made = Vec::new();
                for (at, (is_append, key)) in steps.into_iter().enumerate() {
                    let name = ["a", "b"][key].as_bytes().to_vec();
                    if is_append {
                        let element = format!("{number}.{at}").into_bytes();
                        before[key].push(element.clone());
                        made.push(Step::Append { key: name, element });
                    } else {
                        made.push(Step::Read { key: name, elements: before[key].clone() });
                    }
                }
                if ending != Ending::Failed {
                    lists = before;
                }
                let end = (ending != Ending::Unknown).then_some(start + length);
                all.push(Transaction { client: number as u64, start, end, ending, steps: made });
            }
            if breaks {
                let place = which.index(all.len());
                for step in &mut all[place].steps {
                    if let Step::Read { elements, .. } = step {
                        elements.truncate(cut);
                    }
                }
            }
            all
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn the_verdict_is_that_of_a_search_through_all_orders(all in histories()) {
        let expected = has_an_order(&all, &mut Vec::new());
        let verdict = judge(all.clone());
        prop_assert_eq!(verdict.is_ok(), expected, "{:?}: {:?}", verdict, all);
    }
}

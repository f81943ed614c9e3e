use super::*;

/// An operation from `start` to `end` with this answer; `end` 0: its outcome is unknown.
fn operation(action: Action, start: u64, end: u64, answer: Answer) -> Operation {
    Operation { action, start, answer: (end > 0).then_some((end, answer)) }
}

fn one_after_the_other(steps: &[(Action, Answer)]) -> Vec<Operation> {
    let timed = steps.iter().zip(1..);
    timed.map(|((action, answer), at)| operation(*action, at * 10, at * 10 + 5, *answer)).collect()
}

fn is_explained(operations: &[Operation]) -> bool {
    match explain(operations, 100_000) {
        Explained::Yes => true,
        Explained::No { .. } => false,
        Explained::Undecided => panic!("these are few"),
    }
}

const NOTHING: Answer = Answer::Element(None);
const A: Answer = Answer::Element(Some(1));
const B: Answer = Answer::Element(Some(2));

#[test]
fn lists_have_an_order_and_give_each_element_once() {
    use Action::*;
    let pushed = [(PushBack(1), Answer::Done), (PushBack(2), Answer::Done)];
    let with = |more: &[(Action, Answer)]| is_explained(&one_after_the_other(&[&pushed, more].concat()));
    assert!(with(&[(PopFront, A), (Take, B), (Take, NOTHING)]));
    assert!(with(&[(PopBack, B), (PopBack, A), (PopBack, NOTHING)]));
    assert!(with(&[(PushFront(3), Answer::Done), (PopFront, Answer::Element(Some(3))), (PopFront, A)]));
    assert!(!with(&[(PopFront, B)]), "the order");
    assert!(!with(&[(PopFront, A), (PopFront, A)]), "twice");
    assert!(!with(&[(PopFront, A), (PopFront, NOTHING)]), "lost");
    assert!(!with(&[(PopFront, Answer::Done)]), "no answer to this");
}

#[test]
fn a_violation_names_what_could_not_be_explained() {
    use Action::*;
    let steps = [(PushBack(1), Answer::Done), (PopFront, A), (PopFront, A), (PopFront, NOTHING)];
    let found = explain(&one_after_the_other(&steps), 1000);
    assert_eq!(found, Explained::No { stuck: 2, explained: 2 });
    assert_eq!(explain(&one_after_the_other(&steps), 1), Explained::Undecided);
}

#[test]
fn concurrent_operations_have_any_order() {
    use Action::*;
    let push = [operation(PushBack(1), 0, 50, Answer::Done), operation(PushBack(2), 10, 40, Answer::Done)];
    let pop = operation(PopFront, 60, 70, B);
    assert!(is_explained(&[push[0], push[1], pop]));
    let later = operation(PushBack(2), 55, 58, Answer::Done);
    assert!(!is_explained(&[push[0], later, pop]));
    let empty = operation(PopFront, 20, 30, NOTHING);
    assert!(is_explained(&[push[0], push[1], empty, pop]));
}

#[test]
fn an_element_is_lost_only_with_an_unknown_answer() {
    use Action::*;
    let push = operation(PushBack(1), 0, 10, Answer::Done);
    let empty = operation(PopFront, 50, 60, NOTHING);
    let unknown = |action, start| operation(action, start, 0, Answer::Done);
    for action in [PopFront, PopBack, Take] {
        assert!(is_explained(&[push, unknown(action, 20), empty]), "{action:?}");
        assert!(!is_explained(&[push, unknown(action, 70), empty]), "it came too late");
        let second = operation(PushBack(2), 15, 17, Answer::Done);
        assert!(!is_explained(&[push, second, unknown(action, 20), empty]), "two are lost");
    }
}

#[test]
fn an_element_held_for_a_waiting_client_returns_to_the_front() {
    use Action::*;
    let known = [
        operation(PushBack(1), 0, 10, Answer::Done),
        operation(PushBack(2), 15, 20, Answer::Done),
        operation(PushBack(3), 25, 30, Answer::Done),
        operation(PopFront, 50, 60, B),
        operation(PopFront, 70, 80, A),
        operation(PopFront, 90, 95, Answer::Element(Some(3))),
    ];
    let with = |unknown: Operation| is_explained(&[&known[..], &[unknown]].concat());
    assert!(with(operation(Take, 40, 0, NOTHING)));
    assert!(!with(operation(PopFront, 40, 0, NOTHING)), "LPOP gives nothing back");
    let mut behind = known;
    (behind[4].answer, behind[5].answer) = (Some((80, Answer::Element(Some(3)))), Some((95, A)));
    let wait = operation(Take, 40, 0, NOTHING);
    assert!(is_explained(&[&behind[..], &[wait]].concat()), "it may have come back last");
    let again = operation(PushBack(4), 83, 84, Answer::Done);
    let last = operation(PopFront, 97, 99, Answer::Element(Some(4)));
    let front = [&known[..], &[wait, again, last]].concat();
    assert!(is_explained(&front));
    behind[5].answer = Some((95, Answer::Element(Some(4))));
    let back = operation(PopFront, 97, 99, A);
    let empty = operation(PopFront, 81, 82, NOTHING);
    assert!(is_explained(&[&behind[..], &[wait, again, back]].concat()), "it may be away that long");
    assert!(is_explained(&[&behind[..], &[wait, again, back, empty]].concat()));
    assert!(!is_explained(&[&behind[..], &[again, back, empty]].concat()));
}

#[test]
fn an_element_held_for_a_waiting_client_returns_to_its_sorted_set() {
    use Action::*;
    let scored = |element, score| Answer::Scored(Some((element, score)));
    let known = [
        operation(SetScore(1, 5), 0, 10, Answer::Applied(true)),
        operation(SetScore(2, 7), 15, 20, Answer::Applied(true)),
        operation(PopLowest, 50, 60, scored(2, 7)),
        operation(PopLowest, 70, 80, scored(1, 5)),
        operation(PopLowest, 90, 95, Answer::Scored(None)),
    ];
    let with =
        |unknown: Action| is_explained(&[&known[..], &[operation(unknown, 40, 0, Answer::Done)]].concat());
    assert!(with(TakeLowest));
    assert!(!with(PopLowest), "ZPOPMIN gives nothing back");
    let mut other = known;
    other[3].answer = Some((80, scored(1, 6)));
    let wait = operation(TakeLowest, 40, 0, Answer::Done);
    assert!(!is_explained(&[&other[..], &[wait]].concat()), "it comes back with its score");
    let again = operation(SetScore(1, 6), 62, 64, Answer::Applied(true));
    assert!(is_explained(&[&other[..], &[wait, again]].concat()), "unless the set has it again");
    let twice = operation(PopLowest, 97, 99, scored(1, 5));
    assert!(is_explained(&[&other[..], &[wait, again, twice]].concat()), "it was away until then");
    assert!(!is_explained(&[&other[..], &[again, twice]].concat()));
}

#[test]
fn an_unknown_push_may_have_happened() {
    use Action::*;
    let push = operation(PushBack(1), 0, 0, Answer::Done);
    assert!(is_explained(&[push, operation(PopFront, 20, 30, A)]));
    assert!(is_explained(&[push, operation(PopFront, 20, 30, NOTHING), operation(PopFront, 40, 50, A)]));
    assert!(!is_explained(&[push, operation(PopFront, 20, 30, A), operation(PopFront, 40, 50, A)]));
    let late = operation(PushBack(1), 35, 0, Answer::Done);
    assert!(!is_explained(&[late, operation(PopFront, 20, 30, A)]));
}

#[test]
fn a_list_is_rotated() {
    use Action::*;
    let pushed = [(Rotate, NOTHING), (PushBack(1), Answer::Done), (PushBack(2), Answer::Done)];
    let with = |more: &[(Action, Answer)]| one_after_the_other(&[&pushed, more].concat());
    assert!(is_explained(&with(&[
        (Rotate, A),
        (PopFront, B),
        (Rotate, A),
        (PopFront, A),
        (Rotate, NOTHING)
    ])));
    assert!(!is_explained(&with(&[(Rotate, B)])), "the order");
    assert!(!is_explained(&with(&[(Rotate, A), (PopFront, A)])), "it is the last one now");
    let mut unknown = with(&[(PopFront, B), (PopFront, A)]);
    assert!(!is_explained(&unknown));
    unknown.push(operation(Rotate, 5, 0, NOTHING));
    assert!(is_explained(&unknown));
    for action in [PopBack, Take] {
        let mut gone = with(&[(Rotate, A), (PopFront, B), (PopFront, NOTHING)]);
        assert!(!is_explained(&gone));
        gone.push(operation(action, 5, 0, NOTHING));
        assert!(is_explained(&gone), "{action:?}: what a rotation names may be popped later");
    }
}

#[test]
fn an_operation_without_effect_now_may_have_one_later() {
    use Action::*;
    let rotated = [
        operation(PushBack(1), 0, 5, Answer::Done),
        operation(PushBack(2), 10, 40, Answer::Done),
        operation(Rotate, 20, 30, A),
        operation(PopFront, 50, 60, B),
    ];
    assert!(is_explained(&rotated), "the second one was pushed before the rotation, which ended first");
    let scored = [
        operation(SetScore(1, 3), 0, 5, Answer::Applied(true)),
        operation(SetScore(1, 4), 10, 40, Answer::Applied(false)),
        operation(SetScore(1, 3), 20, 30, Answer::Applied(false)),
        operation(PopLowest, 50, 60, Answer::Scored(Some((1, 3)))),
    ];
    assert!(is_explained(&scored));
}

#[test]
fn delivered_entries_are_pending_until_acknowledged() {
    use Action::*;
    let pushed = [(PushBack(1), Answer::Done), (PushBack(2), Answer::Done), (Acknowledge, NOTHING)];
    let with = |more: &[(Action, Answer)]| one_after_the_other(&[&pushed, more].concat());
    let known = with(&[
        (Deliver, A),
        (Claim, A),
        (Deliver, B),
        (Claim, A),
        (Acknowledge, A),
        (Claim, B),
        (Acknowledge, B),
        (Claim, NOTHING),
        (Acknowledge, NOTHING),
        (Deliver, NOTHING),
    ]);
    assert!(is_explained(&known));
    assert!(!is_explained(&with(&[(Claim, A)])), "it is not delivered");
    assert!(!is_explained(&with(&[(Deliver, A), (Acknowledge, A), (Claim, A)])), "it is acknowledged");
    assert!(!is_explained(&with(&[(Deliver, A), (Acknowledge, NOTHING)])), "what is pending is lost");
    assert!(!is_explained(&with(&[(Deliver, A), (Deliver, B), (Acknowledge, B)])), "the order");
    let mut unknown = with(&[(Deliver, B), (Claim, A)]);
    assert!(!is_explained(&unknown));
    unknown.push(operation(Deliver, 5, 0, NOTHING));
    assert!(is_explained(&unknown), "the first one may have been delivered to a client that got no answer");
    unknown.push(operation(Acknowledge, 65, 0, NOTHING));
    unknown.push(operation(Acknowledge, 100, 110, B));
    assert!(is_explained(&unknown), "and acknowledged by another one");
    unknown.pop();
    unknown.push(operation(Acknowledge, 100, 110, NOTHING));
    assert!(!is_explained(&unknown), "there were two, and one was acknowledged");
}

#[test]
fn sets_hold_each_element_once() {
    use Action::*;
    let added = [(Add(1), Answer::Applied(true)), (Add(2), Answer::Applied(true))];
    let with = |more: &[(Action, Answer)]| is_explained(&one_after_the_other(&[&added, more].concat()));
    assert!(with(&[(Add(1), Answer::Applied(false)), (Draw, B), (Draw, A), (Draw, NOTHING)]));
    assert!(with(&[(Remove(1), Answer::Applied(true)), (Contains(1), Answer::Applied(false)), (Draw, B)]));
    assert!(!with(&[(Add(1), Answer::Applied(true))]));
    assert!(!with(&[(Draw, A), (Draw, A)]));
    assert!(!with(&[(Draw, NOTHING)]));
    assert!(!with(&[(Contains(2), Answer::Applied(false))]));
    let mut unknown = one_after_the_other(&[&added[..], &[(Contains(1), Answer::Applied(false))]].concat());
    assert!(!is_explained(&unknown));
    unknown.push(operation(Draw, 5, 0, NOTHING));
    assert!(is_explained(&unknown), "it may have drawn this one");
    unknown[2].action = Remove(1);
    assert!(is_explained(&unknown));
}

#[test]
fn sorted_sets_have_scores() {
    use Action::*;
    let added = [(SetScore(1, 5), Answer::Applied(true)), (AddScore(2, 3), Answer::Score(3))];
    let with = |more: &[(Action, Answer)]| is_explained(&one_after_the_other(&[&added, more].concat()));
    let lowest = |element, score| (PopLowest, Answer::Scored(Some((element, score))));
    assert!(with(&[lowest(2, 3), lowest(1, 5), (PopLowest, Answer::Scored(None))]));
    assert!(with(&[(AddScore(2, 2), Answer::Score(5)), lowest(1, 5), lowest(2, 5)]));
    assert!(with(&[(SetScore(1, 1), Answer::Applied(false)), lowest(1, 1)]));
    assert!(!with(&[lowest(1, 5)]), "the other is lower");
    assert!(!with(&[(AddScore(2, 2), Answer::Score(2))]));
    assert!(!with(&[lowest(2, 3), (Remove(2), Answer::Applied(true))]));
    let mut unknown = one_after_the_other(&[&added[..], &[lowest(1, 4)]].concat());
    unknown.push(operation(AddScore(1, -1), 1, 0, NOTHING));
    assert!(!is_explained(&unknown), "the other is lower");
    unknown.push(operation(PopLowest, 1, 0, NOTHING));
    assert!(is_explained(&unknown));
}

/// Whether some order explains the operations on a list. Tries them all, with none of the search's rules.
fn is_explained_by_some_order(operations: &[Operation]) -> bool {
    let due: Vec<usize> = (0..operations.len()).collect();
    try_orders(operations, &due, &[], &[])
}

fn try_orders(operations: &[Operation], due: &[usize], list: &[u32], held: &[u32]) -> bool {
    let ends = due.iter().filter_map(|index| operations[*index].answer.map(|(end, _)| end));
    let Some(first_end) = ends.min() else { return true };
    for (place, index) in due.iter().enumerate() {
        let Operation { action, start, answer } = operations[*index];
        if start > first_end {
            continue;
        }
        let mut rest = due.to_vec();
        rest.remove(place);
        let mut after = list.to_vec();
        let expected = match action {
            Action::PushFront(element) => {
                after.insert(0, element);
                Answer::Done
            }
            Action::PushBack(element) => {
                after.push(element);
                Answer::Done
            }
            Action::PopBack => Answer::Element(after.pop()),
            _ => Answer::Element((!after.is_empty()).then(|| after.remove(0))),
        };
        if answer.is_some_and(|(_, answer)| answer != expected) {
            continue;
        }
        if try_orders(operations, &rest, &after, held) {
            return true;
        }
        if let (Action::Take, None, Answer::Element(Some(element))) = (action, answer, expected) {
            let more = [held, &[element]].concat();
            if try_orders(operations, &rest, &after, &more) {
                return true;
            }
        }
    }
    (0..held.len()).any(|place| {
        let mut rest = held.to_vec();
        let list = [&[rest.remove(place)], list].concat();
        try_orders(operations, due, &list, &rest)
    })
}

#[test]
fn the_rules_of_lists_agree_with_a_search_through_all_orders() {
    let mut seed: u64 = 7;
    let mut below = |end: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    let (mut possible, mut impossible) = (0, 0);
    for _ in 0..20_000 {
        let count = 3 + below(4) as u32;
        let mut operations = Vec::new();
        for number in 0..count {
            let start = below(12);
            let action = match below(6) {
                0 => Action::PushFront(number),
                1 | 2 => Action::PushBack(number),
                3 => Action::PopFront,
                4 => Action::PopBack,
                _ => Action::Take,
            };
            let answer = match action {
                Action::PushFront(_) | Action::PushBack(_) => Answer::Done,
                _ => Answer::Element(Some(below(5) as u32).filter(|element| *element < count.min(4))),
            };
            let answer = (below(3) > 0).then(|| (start + 1 + below(6), answer));
            operations.push(Operation { action, start, answer });
        }
        let expected = is_explained_by_some_order(&operations);
        assert_eq!(is_explained(&operations), expected, "{operations:?}");
        *(if expected { &mut possible } else { &mut impossible }) += 1;
    }
    assert!(possible > 2000 && impossible > 2000, "{possible} and {impossible}");
}

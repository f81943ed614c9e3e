//! Compares the check of locks with all orders of a few steps, tried one after the other. Shares no code with the check.

use check::{
    Action, Answer, Fence, History, Hold, LockAction, OperationId, Outcome, Value, Verdict, linearizable,
};

use crate::random::Random;

/// The state of a lock at an instant.
#[derive(Clone, Copy)]
struct State {
    now: u64,
    highest: u64,
    /// The token, its owner, and the end of the lease.
    held: Option<(u64, Value, u64)>,
}

/// One step of an order: an operation, and the write's fence if it is one.
#[derive(Clone, Copy, Debug)]
struct Step {
    start: u64,
    /// `None` if it is not known to have happened.
    end: Option<u64>,
    action: Action,
    answer: Option<Answer>,
    fence: Option<Fence>,
}

fn steps(history: &History) -> Vec<Step> {
    let step = |id: OperationId| {
        let operation = history.operation(id);
        let answer = match operation.outcome {
            Outcome::Ok(answer) => Some(answer),
            // The refusal by the fence is the answer.
            Outcome::Failed => Some(Answer::Applied(false)),
            Outcome::Unknown => None,
        };
        let end = operation.end.filter(|_| answer.is_some());
        let fence = history.fence(id).copied();
        Step { start: operation.start, end, action: operation.action, answer, fence }
    };
    history.ids().map(step).collect()
}

pub(crate) fn is_possible(history: &History) -> bool {
    let steps = steps(history);
    let mut tokens: Vec<u64> = steps.iter().filter_map(token_of).collect();
    tokens.sort_unstable();
    order(&mut steps.clone(), State { now: 0, highest: 0, held: None }, &tokens)
}

fn token_of(step: &Step) -> Option<u64> {
    match (step.action, step.answer, step.fence) {
        (_, Some(Answer::Token(token)), _) => token,
        (_, _, Some(fence)) => Some(fence.token),
        (Action::Lock(LockAction::Renew { token, .. } | LockAction::Release { token }), ..) => Some(token),
        _ => None,
    }
}

/// Time passes only as far as it must: a lease that ends later never helps.
fn order(rest: &mut Vec<Step>, state: State, tokens: &[u64]) -> bool {
    if rest.iter().all(|step| step.end.is_none()) {
        return true;
    }
    if let Some((_, _, over)) = state.held {
        let lapsed = State { now: state.now.max(over), held: None, ..state };
        if order(rest, lapsed, tokens) {
            return true;
        }
    }
    for index in 0..rest.len() {
        let step = rest[index];
        let now = state.now.max(step.start);
        if step.end.is_some_and(|end| end < now) {
            continue;
        }
        let after = carry_out(step, State { now, ..state }, tokens);
        rest.remove(index);
        let found = after.into_iter().any(|after| order(rest, after, tokens));
        rest.insert(index, step);
        if found {
            return true;
        }
    }
    false
}

/// The states that a step can leave; none if it is impossible with its answer.
fn carry_out(step: Step, state: State, tokens: &[u64]) -> Vec<State> {
    let lease = |ms: u32| state.now + u64::from(ms) * 1_000_000;
    let is_held_with = |token: u64| state.held.is_some_and(|(held, ..)| held == token);
    let if_answered = |flag: bool, after: State| {
        let fits = step.answer.is_none_or(|answer| answer == Answer::Applied(flag));
        if fits { vec![after] } else { Vec::new() }
    };
    match step.action {
        Action::Lock(LockAction::Acquire { owner, hold: Hold::Lease(ms), .. }) => match state.held {
            Some((token, other, _)) if other == owner => {
                let fits = step.answer.is_none_or(|answer| answer == Answer::Token(Some(token)));
                let after = State { held: Some((token, owner, lease(ms))), ..state };
                if fits { vec![after] } else { Vec::new() }
            }
            Some(_) => match step.answer {
                None | Some(Answer::Token(None)) => vec![state],
                _ => Vec::new(),
            },
            None => {
                let granted =
                    |token: u64| State { highest: token, held: Some((token, owner, lease(ms))), ..state };
                match step.answer {
                    Some(Answer::Token(Some(token))) if token > state.highest => vec![granted(token)],
                    Some(_) => Vec::new(),
                    // The answer with the token is unknown: it is a token that another step names, or none of these.
                    None => {
                        let named = tokens.iter().copied().filter(|token| *token > state.highest);
                        named.chain([state.highest + 1]).map(granted).collect()
                    }
                }
            }
        },
        Action::Lock(LockAction::Renew { token, lease_ms }) => match state.held {
            Some((held, owner, _)) if held == token => {
                if_answered(true, State { held: Some((held, owner, lease(lease_ms))), ..state })
            }
            _ => if_answered(false, state),
        },
        Action::Lock(LockAction::Release { token }) => match is_held_with(token) {
            true => if_answered(true, State { held: None, ..state }),
            false => if_answered(false, state),
        },
        Action::Set(_) => {
            let token = step.fence.map_or(0, |fence| fence.token);
            match step.answer {
                Some(Answer::Done) if state.highest != token => Vec::new(),
                Some(Answer::Applied(false)) if is_held_with(token) => Vec::new(),
                _ => vec![state],
            }
        }
        other => unreachable!("{other:?}"),
    }
}

/// A history of one lock with answers drawn at random. If it is `plain`, everything that the check leaves open is left
/// out: each acquire is answered with a token, and a token is named only after it was answered.
pub(crate) fn any_history(random: &mut Random, plain: bool) -> History {
    let mut history = History::new();
    let lock = history.key(b"l");
    let key = history.key(b"k");
    let span = random.pick(&[10, 20, 40]);
    let owners = 1 + random.below(3);
    let mut granted: Vec<(u64, u64)> = Vec::new();
    for number in 0..2 + random.below(5) {
        let start = random.below(span) * 1_000_000;
        let end = start + random.below(span / 4) * 1_000_000;
        let lease_ms = random.pick(&[1, 3, 10]);
        let mut fence = None;
        let is_unknown = random.one_in(5);
        let known: Vec<u64> =
            granted.iter().filter(|(_, end)| !plain || *end < start).map(|it| it.0).collect();
        let token = match known.as_slice() {
            [] if plain => None,
            [] => Some(10),
            known => Some(random.pick(known)),
        };
        let applied = Answer::Applied(random.one_in(2));
        let (action, outcome) = match (random.below(8), token) {
            (0, Some(token)) => (Action::Lock(LockAction::Renew { token, lease_ms }), Outcome::Ok(applied)),
            (1 | 2, Some(token)) => (Action::Lock(LockAction::Release { token }), Outcome::Ok(applied)),
            (3, Some(token)) => {
                let is_refused = random.one_in(2);
                fence = Some(Fence { lock, token, is_refused });
                let value = history.value(number.to_string().as_bytes());
                let outcome = if is_refused { Outcome::Failed } else { Outcome::Ok(Answer::Done) };
                (Action::Set(value), outcome)
            }
            _ => {
                let token = 10 * (1 + random.below(3));
                let owner = history.value(random.below(owners).to_string().as_bytes());
                let action = LockAction::Acquire { owner, hold: Hold::Lease(lease_ms), waits: false };
                let is_denied = !plain && random.one_in(5);
                if !is_denied && (plain || !is_unknown) {
                    granted.push((token, end));
                }
                let answer = Answer::Token(if is_denied { None } else { Some(token) });
                (Action::Lock(action), Outcome::Ok(answer))
            }
        };
        let is_acquire = matches!(action, Action::Lock(LockAction::Acquire { .. }));
        let may_be_unknown = fence.is_none() && !(plain && is_acquire);
        let of = if fence.is_some() { key } else { lock };
        let id = history.begin(number, of, action, start);
        history.end(id, end, if is_unknown && may_be_unknown { Outcome::Unknown } else { outcome });
        fence.into_iter().for_each(|fence| history.set_fence(id, fence));
    }
    history
}

fn lines(history: &History) -> String {
    let mut bytes = Vec::new();
    history.write(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_lock_history_that_some_order_explains_is_approved() {
    let mut random = Random(1);
    let mut possible = 0;
    for _ in 0..40_000 {
        let history = any_history(&mut random, false);
        if is_possible(&history) {
            possible += 1;
            let verdict = linearizable(&history);
            assert!(
                matches!(verdict, Verdict::Ok { .. }),
                "{}\n{}",
                verdict.words(&history),
                lines(&history)
            );
        }
    }
    assert!(possible > 5_000, "{possible}");
}

#[test]
fn the_check_is_exact_where_tokens_decide_everything() {
    let mut random = Random(2);
    let mut counts = [0, 0];
    for _ in 0..40_000 {
        let history = any_history(&mut random, true);
        let (expected, verdict) = (is_possible(&history), linearizable(&history));
        let is_approved = matches!(verdict, Verdict::Ok { .. });
        assert_eq!(is_approved, expected, "{}\n{}", verdict.words(&history), lines(&history));
        counts[usize::from(expected)] += 1;
    }
    assert!(counts.iter().all(|count| *count > 5_000), "{counts:?}");
}

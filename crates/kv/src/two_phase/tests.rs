//! Every order of the records of transactions over several groups: coordinators stop at any moment, records come late or twice,
//! and groups resolve by themselves whether or not the coordinator has stopped. Coordinators and resolvers are the least that
//! keeps the rules of `docs/design/transactions.md`; each rule is also left out, to show that its absence is found.

use super::{Locks, Prepared, TwoPhase, Vote};
use crate::Coordinator;
use crate::command::{Age, Command, Condition, Expiry, Header, SetAnswer, Share, TransactionId};
use std::collections::{BTreeSet, VecDeque};

/// Coordinators that each have some transactions one after the other, in the same groups and on the same keys.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// For each coordinator, the number of its transactions.
    coordinators: &'static [u64],
    /// For each group, whether its vote decides.
    groups: &'static [bool],
    /// Whether the groups lock the keys first.
    locks_first: bool,
    broken: Option<Rule>,
}

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Deciding groups are asked when all others have prepared.
    OthersFirst,
    /// A transaction is committed when all deciding groups have prepared it, not before.
    AllDecide,
    /// A transaction is over when all of its groups have confirmed its end.
    Confirmed,
    /// A group that holds a transaction asks all deciding groups before it ends it.
    NobodyGivesUpAlone,
    /// A transaction is forgotten when no group holds it any more, which is asked after its vote here is final.
    AskedBeforeForgotten,
    /// Late records of a forgotten coordinator are refused.
    ForgottenIsOver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Lock,
    Prepare,
    Resolve,
    Commit,
    Abort,
    Forget,
}

/// A record that was sent to a group: it may be applied at any later time, and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Sent {
    kind: Kind,
    to: usize,
    id: TransactionId,
    below: u64,
    /// Who learns of the answer: the coordinator, or the group that resolves.
    for_group: Option<usize>,
}

/// What one who asks has learned of each group's vote.
type Learned = Vec<Option<Vote>>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Asker {
    is_alive: bool,
    /// The transaction under way.
    number: u64,
    learned: Learned,
    /// The decision, and the groups that have confirmed the end.
    outcome: Option<bool>,
    confirmed: Vec<bool>,
    /// By group, once the coordinator has stopped: the transactions that are to be forgotten there, and the groups that have
    /// answered that they hold none of these.
    forgetting: Vec<Option<(Vec<u64>, Vec<bool>)>>,
}

#[derive(Clone, Debug)]
struct State {
    groups: Vec<TwoPhase>,
    coordinators: Vec<Asker>,
    sent: BTreeSet<Sent>,
    /// By transaction, and by the group that resolves it.
    resolving: Vec<(TransactionId, usize, Learned)>,
    /// What has happened: carried out, or refused, of each transaction in each group.
    done: BTreeSet<(TransactionId, usize)>,
    refused: BTreeSet<(TransactionId, usize)>,
    outcomes: BTreeSet<(TransactionId, bool)>,
}

impl Plan {
    fn begin(&self) -> State {
        let count = self.groups.len();
        let asker = Asker {
            is_alive: true,
            number: 1,
            learned: vec![None; count],
            outcome: None,
            confirmed: vec![false; count],
            forgetting: vec![None; count],
        };
        State {
            groups: vec![TwoPhase::default(); count],
            coordinators: vec![asker; self.coordinators.len()],
            sent: BTreeSet::new(),
            resolving: Vec::new(),
            done: BTreeSet::new(),
            refused: BTreeSet::new(),
            outcomes: BTreeSet::new(),
        }
    }

    fn breaks(&self, rule: Rule) -> bool {
        self.broken == Some(rule)
    }

    fn with_header<R>(&self, id: TransactionId, below: u64, then: impl FnOnce(Header<'_>) -> R) -> R {
        let mut scratch = Vec::new();
        let groups = (1..).zip(self.groups.iter().copied());
        let age = Age { since: 1, first: id };
        then(Header::build((id, age), (below, []), groups, &mut scratch).expect("groups that can be"))
    }

    /// The states that may follow.
    fn steps(&self, state: &State) -> Vec<State> {
        let mut next = Vec::new();
        for sent in &state.sent {
            let mut after = state.clone();
            self.apply(&mut after, *sent);
            next.push(after);
        }
        for at in 0..state.coordinators.len() {
            let mut after = state.clone();
            self.coordinate(&mut after, at);
            next.push(after);
            if state.coordinators[at].is_alive {
                let mut after = state.clone();
                after.coordinators[at].is_alive = false;
                next.push(after);
            } else if !self.locks_first {
                next.extend((0..state.groups.len()).flat_map(|group| self.forget(state, at, group)));
            }
        }
        next.extend(self.resolutions(state));
        next
    }

    fn id(&self, at: usize, number: u64) -> TransactionId {
        TransactionId { coordinator: Coordinator { node: at as u16 + 1, life: 1 }, number }
    }

    /// A group applies a record, and whoever has sent it learns of the answer.
    fn apply(&self, state: &mut State, Sent { kind, to, id, below, for_group }: Sent) {
        let group = &mut state.groups[to];
        self.with_header(id, below, |header| match kind {
            Kind::Lock | Kind::Prepare => {
                let vote = group.begin(&header);
                if matches!(vote, Vote::Unknown | Vote::Locked) {
                    let set = Command::Set {
                        key: b"k",
                        value: b"v",
                        expiry: Expiry::Clear,
                        condition: Condition::Always,
                        answer: SetAnswer::Status,
                    };
                    let mut scratch = Vec::new();
                    let share = Share::build(&set, &mut scratch).expect("a SET can be shared").bytes().into();
                    let prepared = |share| Prepared {
                        share,
                        locks: None,
                        values: Vec::new(),
                        bound: None,
                        version: 1,
                        time: 1,
                    };
                    match (kind, vote) {
                        (Kind::Lock, Vote::Unknown) => {
                            group.lock(header, Locks { share, version: 1 }, true);
                        }
                        (Kind::Lock, _) => {}
                        (_, Vote::Locked) => assert!(group.prepare_locked(id, prepared(share))),
                        _ if self.locks_first => group.resolve(header),
                        _ => drop(group.prepare(header, prepared(share), true)),
                    }
                }
            }
            Kind::Resolve => group.resolve(header),
            Kind::Commit => {
                if group.finish(header, true).is_some() {
                    assert!(state.done.insert((id, to)), "{id:?} is carried out twice in group {to}");
                }
            }
            Kind::Abort => drop(group.finish(header, false)),
            Kind::Forget => {
                let over = group.over.clone();
                group.forget(id.coordinator, [id.number]);
                if self.breaks(Rule::ForgottenIsOver) {
                    group.over = over;
                }
            }
        });
        let vote = group.vote(id);
        if vote == Vote::Refused {
            state.refused.insert((id, to));
        }
        let is_refused = state.refused.iter().any(|(other, _)| *other == id);
        let is_done = state.done.iter().any(|(other, _)| *other == id);
        assert!(!(is_refused && is_done), "{id:?} is carried out in one group and refused in another");
        match for_group {
            Some(group) => {
                for (resolved, by, learned) in &mut state.resolving {
                    if (*resolved, *by) == (id, group) && kind == Kind::Resolve {
                        learned[to] = Some(vote);
                    }
                }
            }
            None => {
                let asker = &mut state.coordinators[usize::from(id.coordinator.node) - 1];
                if asker.number == id.number && matches!(kind, Kind::Lock | Kind::Prepare) {
                    asker.learned[to] = Some(vote);
                }
                let is_end = matches!(kind, Kind::Commit | Kind::Abort);
                if asker.number == id.number
                    && is_end
                    && matches!(vote, Vote::Committed | Vote::Refused | Vote::Over)
                {
                    asker.confirmed[to] = true;
                }
            }
        }
    }

    /// What a live coordinator does next.
    fn coordinate(&self, state: &mut State, at: usize) {
        let asker = state.coordinators[at].clone();
        if !asker.is_alive || asker.number > self.coordinators[at] {
            return;
        }
        let (id, below) = (self.id(at, asker.number), asker.number);
        let mut send = |kind, to| {
            state.sent.insert(Sent { kind, to, id, below, for_group: None });
        };
        let all = 0..self.groups.len();
        let has_prepared = |to: usize| asker.learned[to] == Some(Vote::Prepared);
        let has_refused = |to: usize| matches!(asker.learned[to], Some(Vote::Refused | Vote::Over));
        let others_have_prepared = all.clone().all(|to| self.groups[to] || has_prepared(to));
        match asker.outcome {
            None => {
                let mut were_asked = false;
                let has_locked = |to: usize| !matches!(asker.learned[to], None | Some(Vote::Unknown));
                let is_locking = self.locks_first && !all.clone().all(has_locked);
                for to in all.clone() {
                    if is_locking {
                        send(Kind::Lock, to);
                    } else if !self.groups[to] || others_have_prepared || self.breaks(Rule::OthersFirst) {
                        send(Kind::Prepare, to);
                        were_asked |= self.groups[to];
                    }
                }
                let counts = |to: &usize| self.groups[*to] || !were_asked;
                let is_committed = match self.breaks(Rule::AllDecide) {
                    true => all.clone().any(|to| self.groups[to] && has_prepared(to)),
                    false => all.clone().all(|to| !self.groups[to] || has_prepared(to)),
                };
                let outcome = match is_committed {
                    true => Some(true),
                    false => all.clone().filter(counts).any(has_refused).then_some(false),
                };
                state.coordinators[at].outcome = outcome;
                state.outcomes.extend(outcome.map(|is_committed| (id, is_committed)));
            }
            Some(is_committed) => {
                all.clone().for_each(|to| send(if is_committed { Kind::Commit } else { Kind::Abort }, to));
                if asker.confirmed.iter().all(|is_confirmed| *is_confirmed) || self.breaks(Rule::Confirmed) {
                    let count = self.groups.len();
                    state.coordinators[at] = Asker {
                        number: asker.number + 1,
                        learned: vec![None; count],
                        outcome: None,
                        confirmed: vec![false; count],
                        ..asker
                    };
                }
            }
        }
    }

    /// A group asks others whether they hold what it keeps of a coordinator that has stopped. What none holds is forgotten.
    fn forget(&self, state: &State, at: usize, group: usize) -> Vec<State> {
        let coordinator = self.id(at, 1).coordinator;
        let kept = |group: usize| {
            state.groups[group].kept().map(|(id, _)| id).filter(|id| id.coordinator == coordinator)
        };
        let prepared = |group: usize| {
            state.groups[group].held().map(|(id, _)| id).filter(|id| id.coordinator == coordinator)
        };
        let Some((numbers, _)) = &state.coordinators[at].forgetting[group] else {
            let mut after = state.clone();
            let is_final = |id: &TransactionId| prepared(group).all(|other| other != *id);
            let numbers: Vec<u64> = kept(group).filter(is_final).map(|id| id.number).collect();
            let answered = vec![self.breaks(Rule::AskedBeforeForgotten); self.groups.len()];
            after.coordinators[at].forgetting[group] = (!numbers.is_empty()).then_some((numbers, answered));
            return vec![after];
        };
        let answers = (0..self.groups.len()).map(|other| {
            let mut after = state.clone();
            let holds = prepared(other).any(|id| numbers.contains(&id.number));
            if let Some((numbers, answered)) = &mut after.coordinators[at].forgetting[group] {
                answered[other] |= !holds;
                if answered.iter().all(|is_free| *is_free) {
                    let id = |number| self.id(at, number);
                    let forget = |number: &u64| Sent {
                        kind: Kind::Forget,
                        to: group,
                        id: id(*number),
                        below: 1,
                        for_group: Some(group),
                    };
                    after.sent.extend(numbers.iter().map(forget));
                }
            }
            after
        });
        answers.collect()
    }

    /// What groups do by themselves about transactions that they hold.
    fn resolutions(&self, state: &State) -> Vec<State> {
        let mut next = Vec::new();
        for group in 0..state.groups.len() {
            for (id, _) in state.groups[group].held() {
                let mut after = state.clone();
                let mut send = |kind, to| {
                    after.sent.insert(Sent { kind, to, id, below: 1, for_group: Some(group) });
                };
                let place = state.resolving.iter().position(|(other, by, _)| (*other, *by) == (id, group));
                let Some(place) = place else {
                    let deciding = (0..self.groups.len()).filter(|to| self.groups[*to]);
                    deciding.for_each(|to| send(Kind::Resolve, to));
                    if self.breaks(Rule::NobodyGivesUpAlone) {
                        send(Kind::Abort, group);
                    }
                    after.resolving.push((id, group, vec![None; self.groups.len()]));
                    next.push(after);
                    continue;
                };
                let learned = &state.resolving[place].2;
                let votes = || {
                    learned.iter().zip(self.groups).filter(|(_, decides)| **decides).map(|(vote, _)| *vote)
                };
                let is_yes = |vote| matches!(vote, Some(Vote::Prepared | Vote::Committed));
                if votes().all(is_yes) {
                    send(Kind::Commit, group);
                } else if votes().any(|vote| matches!(vote, Some(Vote::Refused | Vote::Over))) {
                    send(Kind::Abort, group);
                } else {
                    continue;
                }
                next.push(after);
            }
        }
        next
    }

    /// Checks what clients were told, and that groups alone release all locks.
    fn check(state: &State) {
        for (id, is_committed) in &state.outcomes {
            let against = if *is_committed { &state.refused } else { &state.done };
            let is_against = against.iter().any(|(other, _)| other == id);
            assert!(
                !is_against,
                "the client of {id:?} was told {is_committed}, and a group has done the opposite"
            );
        }
    }

    /// From here on only groups act: all that is locked is unlocked.
    fn groups_release_all(&self, state: &State) {
        let mut state = state.clone();
        for _ in 0..20 {
            if state.groups.iter().all(|group| !group.locks_any()) {
                return;
            }
            while let Some(after) = self.resolutions(&state).into_iter().find(|after| {
                (after.sent.len(), after.resolving.len()) != (state.sent.len(), state.resolving.len())
            }) {
                state = after;
            }
            let of_groups: Vec<Sent> =
                state.sent.iter().copied().filter(|sent| sent.for_group.is_some()).collect();
            of_groups.into_iter().for_each(|sent| self.apply(&mut state, sent));
        }
        panic!("groups hold {state:?} for ever");
    }

    /// Looks at every state; returns how many there are.
    fn explore(&self) -> usize {
        let mut seen = BTreeSet::new();
        let mut left = VecDeque::from([self.begin()]);
        while let Some(state) = left.pop_front() {
            for after in self.steps(&state) {
                if seen.insert(after.fingerprint()) {
                    Plan::check(&after);
                    if seen.len().is_multiple_of(128) {
                        after.groups.iter().for_each(TwoPhase::check_invariants);
                        self.groups_release_all(&after);
                    }
                    left.push_back(after);
                }
            }
        }
        seen.len()
    }
}

impl State {
    fn fingerprint(&self) -> (u64, u64) {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let of = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            salt.hash(&mut hasher);
            for group in &self.groups {
                group.for_each_item(|item| item.hash(&mut hasher));
                0u8.hash(&mut hasher);
            }
            for asker in &self.coordinators {
                (asker.is_alive, asker.number, asker.outcome, &asker.confirmed).hash(&mut hasher);
                (&asker.forgetting, words(&asker.learned)).hash(&mut hasher);
            }
            self.sent.hash(&mut hasher);
            let mut resolving: Vec<_> =
                self.resolving.iter().map(|(id, by, it)| (*id, *by, words(it))).collect();
            resolving.sort_unstable();
            let resolving: Vec<_> =
                resolving.iter().map(|(id, by, it)| (id.number, id.coordinator.node, by, it)).collect();
            resolving.hash(&mut hasher);
            hasher.finish()
        };
        (of(1), of(2))
    }
}

fn words(learned: &Learned) -> Vec<&'static str> {
    learned.iter().map(|vote| vote.map_or("", Vote::word)).collect()
}

fn finds(plan: Plan) -> String {
    let result = std::panic::catch_unwind(|| plan.explore());
    let message = result.expect_err(&format!("{plan:?} holds"));
    message.downcast_ref::<String>().cloned().unwrap_or_default()
}

const BOTH_DECIDE: Plan =
    Plan { coordinators: &[1], groups: &[true, true], locks_first: false, broken: None };
const TWO_IN_TURN: Plan = Plan { coordinators: &[2], ..BOTH_DECIDE };
const ONE_DECIDES: Plan = Plan { groups: &[true, false], ..BOTH_DECIDE };
const LOCKED_BOTH_DECIDE: Plan = Plan { locks_first: true, ..BOTH_DECIDE };
const LOCKED_ONE_DECIDES: Plan = Plan { locks_first: true, ..ONE_DECIDES };

#[test]
fn groups_agree_in_every_order_of_records() {
    for plan in [BOTH_DECIDE, ONE_DECIDES] {
        let states = plan.explore();
        assert!(states > 1000, "{states} states of {plan:?}");
    }
}

#[test]
fn groups_that_lock_keys_first_agree_in_every_order_of_records() {
    for plan in [LOCKED_BOTH_DECIDE, LOCKED_ONE_DECIDES] {
        let states = plan.explore();
        assert!(states > 1000, "{states} states of {plan:?}");
    }
}

#[test]
fn the_absence_of_each_rule_is_found() {
    let split = "is carried out in one group and refused in another";
    let told = "a group has done the opposite";
    for (plan, broken, expected) in [
        (ONE_DECIDES, Rule::OthersFirst, split),
        (BOTH_DECIDE, Rule::AllDecide, split),
        (BOTH_DECIDE, Rule::NobodyGivesUpAlone, split),
        (BOTH_DECIDE, Rule::AskedBeforeForgotten, split),
        (BOTH_DECIDE, Rule::ForgottenIsOver, "is carried out twice"),
        (TWO_IN_TURN, Rule::Confirmed, split),
        (LOCKED_ONE_DECIDES, Rule::OthersFirst, split),
        (LOCKED_BOTH_DECIDE, Rule::AllDecide, split),
    ] {
        let message = finds(Plan { broken: Some(broken), ..plan });
        assert!(message.contains(expected) || message.contains(told), "{broken:?}: {message}");
    }
}

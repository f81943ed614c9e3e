//! Histories of a lock service that does one thing at a time: each request reaches it at an instant between the request's
//! start and end, unless the request or its answer is lost. Faults can be planted in it.

use std::collections::{BTreeMap, VecDeque};

use check::{
    Action, Answer, Fence, History, Hold, Key, LockAction, OperationId, Outcome, Value, Verdict, linearizable,
};

use crate::random::Random;

/// A planted fault: the absence of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    FreedByNonOwner,
    TokenReused,
    SessionNotRechecked,
    FenceIgnored,
    LeaseTooShort,
    RenewalForgotten,
    LastInFirstOut,
}

const MS: u64 = 1_000_000;
const LEASES: [u32; 3] = [20, 60, 200];

struct Held {
    owner: Value,
    token: u64,
    hold: Hold,
    number: u64,
}

#[derive(Default)]
struct Lock {
    held: Option<Held>,
    queue: VecDeque<(OperationId, Value, Hold)>,
    highest: u64,
}

struct Client {
    owner: Value,
    session: Option<Key>,
    holds: Option<(usize, u64)>,
    /// All tokens that it was granted.
    had: Vec<(usize, u64)>,
}

#[derive(Clone, Copy)]
enum Event {
    Think(usize),
    Arrive(OperationId),
    Answered(usize, OperationId, Outcome),
    WaitOver(usize, OperationId),
    LeaseOver(usize, u64, u64),
    SessionOver(Key, u64),
}

struct World {
    random: Random,
    fault: Fault,
    history: History,
    events: BTreeMap<(u64, u64), Event>,
    now: u64,
    drawn: u64,
    locks: Vec<Lock>,
    names: Vec<(Key, Key)>,
    sessions: BTreeMap<Key, (u32, u64)>,
    values: Vec<Option<Value>>,
    clients: Vec<Client>,
    waiting: BTreeMap<OperationId, usize>,
    versions: u64,
}

impl World {
    fn run(seed: u64, fault: Fault) -> History {
        let mut random = Random(seed);
        let mut history = History::new();
        let count = 1 + random.below(2) as usize;
        let names = (0..count)
            .map(|number| {
                (history.key(format!("l{number}").as_bytes()), history.key(format!("k{number}").as_bytes()))
            })
            .collect();
        let clients = (0..2 + random.below(4))
            .map(|number| Client {
                owner: history.value(format!("client-{number}").as_bytes()),
                session: None,
                holds: None,
                had: Vec::new(),
            })
            .collect();
        let mut world = World {
            random,
            fault,
            history,
            events: BTreeMap::new(),
            now: 0,
            drawn: 0,
            locks: (0..count).map(|_| Lock::default()).collect(),
            names,
            sessions: BTreeMap::new(),
            values: vec![None; count],
            clients,
            waiting: BTreeMap::new(),
            versions: 10,
        };
        for client in 0..world.clients.len() {
            world.later(10, Event::Think(client));
        }
        let until = 2_000 * MS;
        while let Some(((now, _), event)) = world.events.pop_first().filter(|((now, _), _)| *now < until) {
            world.now = now;
            world.happen(event);
        }
        world.history
    }

    /// Schedules an event within `ms` milliseconds.
    fn later(&mut self, ms: u64, event: Event) {
        let after = self.random.below(ms * MS);
        self.at(self.now + after, event);
    }

    fn at(&mut self, at: u64, event: Event) {
        self.drawn += 1;
        self.events.insert((at, self.drawn), event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Think(client) => self.ask(client),
            Event::Arrive(id) => self.carry_out(id),
            Event::Answered(client, id, outcome) => self.answered(client, id, outcome),
            Event::WaitOver(lock, id) => {
                let before = self.locks[lock].queue.len();
                self.locks[lock].queue.retain(|(waiting, ..)| *waiting != id);
                if self.locks[lock].queue.len() < before {
                    self.answer(id, Outcome::Ok(Answer::Token(None)));
                }
            }
            Event::LeaseOver(lock, token, number) => {
                let held = self.locks[lock].held.as_ref();
                if held.is_some_and(|held| {
                    (held.token, held.number) == (token, number) && matches!(held.hold, Hold::Lease(_))
                }) {
                    self.pass_on(lock);
                }
            }
            Event::SessionOver(session, number) => {
                if self.sessions.get(&session).is_some_and(|(_, renewed)| *renewed == number) {
                    self.end_session(session);
                }
            }
        }
    }

    /// Sends a client's next request.
    fn ask(&mut self, number: usize) {
        let lock = self.random.below(self.locks.len() as u64) as usize;
        let (name, key) = self.names[lock];
        let had = &self.clients[number].had;
        let stale = if had.is_empty() { None } else { Some(self.random.pick(had)) };
        let Client { owner, session, holds, .. } = self.clients[number];
        let lease_ms = self.random.pick(&LEASES);
        let value = self.history.value(self.drawn.to_string().as_bytes());
        let mut fence = None;
        let draw = self.random.below(12);
        let open: Vec<Key> = self.clients.iter().filter_map(|client| client.session).collect();
        let (of, action) = match (draw, holds, stale, session) {
            (0, _, _, Some(session)) => (session, Action::Lock(LockAction::RenewSession)),
            // Often another client's session; that client may be waiting for a lock.
            (1, ..) if !open.is_empty() => (self.random.pick(&open), Action::Lock(LockAction::CloseSession)),
            (0 | 1, _, _, None) => (name, Action::Lock(LockAction::OpenSession { lease_ms })),
            (2, _, Some((stale, token)), _) => {
                let action = match self.random.below(3) {
                    0 => LockAction::Renew { token, lease_ms },
                    _ => LockAction::Release { token },
                };
                (self.names[stale].0, Action::Lock(action))
            }
            (3, _, Some((stale, token)), _) => {
                fence = Some(Fence { lock: self.names[stale].0, token, is_refused: false });
                (self.names[stale].1, Action::Set(value))
            }
            (4, ..) => (key, Action::Get),
            (5 | 6, Some((lock, token)), ..) => {
                (self.names[lock].0, Action::Lock(LockAction::Renew { token, lease_ms }))
            }
            (7 | 8, Some((lock, token)), ..) => {
                fence = Some(Fence { lock: self.names[lock].0, token, is_refused: false });
                (self.names[lock].1, Action::Set(value))
            }
            (9 | 10, Some((lock, token)), ..) => {
                (self.names[lock].0, Action::Lock(LockAction::Release { token }))
            }
            (_, Some(_), ..) => {
                // The client is away for a while, and has forgotten what it held.
                self.clients[number].holds = None;
                return self.later(300, Event::Think(number));
            }
            _ => {
                let hold = match session {
                    Some(session) if self.random.one_in(2) => Hold::Session(session),
                    _ => Hold::Lease(lease_ms),
                };
                let waits = self.random.one_in(2);
                (name, Action::Lock(LockAction::Acquire { owner, hold, waits }))
            }
        };
        let id = self.history.begin(number as u64, of, action, self.now);
        fence.into_iter().for_each(|fence| self.history.set_fence(id, fence));
        self.waiting.insert(id, number);
        match self.random.below(20) {
            // The client gives up: the request is lost, or arrives late.
            0 => self.later(40, Event::Answered(number, id, Outcome::Unknown)),
            1 => {
                self.later(100, Event::Arrive(id));
                self.later(40, Event::Answered(number, id, Outcome::Unknown));
            }
            _ => self.later(10, Event::Arrive(id)),
        }
    }

    fn answer(&mut self, id: OperationId, outcome: Outcome) {
        if let Some(client) = self.waiting.get(&id).copied() {
            self.later(10, Event::Answered(client, id, outcome));
        }
    }

    /// Delivers a request's outcome to the client, if it still waits for that.
    fn answered(&mut self, number: usize, id: OperationId, outcome: Outcome) {
        if self.waiting.remove(&id).is_none() {
            return;
        }
        self.history.end(id, self.now, outcome);
        if outcome == Outcome::Failed
            && let Some(fence) = self.history.fence(id).copied()
        {
            self.history.set_fence(id, Fence { is_refused: true, ..fence });
        }
        let operation = *self.history.operation(id);
        let lock = self.names.iter().position(|(name, _)| *name == operation.key);
        let client = &mut self.clients[number];
        match (operation.action, outcome) {
            (_, Outcome::Ok(Answer::Token(Some(token)))) => {
                client.holds = lock.map(|lock| (lock, token));
                client.had.extend(client.holds);
            }
            (_, Outcome::Ok(Answer::Session(session))) => client.session = Some(session),
            (Action::Lock(LockAction::CloseSession), _) => client.session = None,
            (Action::Lock(LockAction::RenewSession), Outcome::Ok(Answer::Applied(false))) => {
                client.session = None
            }
            (Action::Lock(LockAction::Release { token }), _)
                if client.holds.is_some_and(|it| it.1 == token) =>
            {
                client.holds = None;
            }
            _ => {}
        }
        self.later(20, Event::Think(number));
    }

    fn carry_out(&mut self, id: OperationId) {
        self.versions += 1;
        let operation = *self.history.operation(id);
        let number = self.names.iter().position(|names| names.0 == operation.key || names.1 == operation.key);
        let lock = number.unwrap_or_default();
        let outcome = match operation.action {
            Action::Get => Outcome::Ok(Answer::Value(self.values[lock])),
            Action::Set(value) => {
                let fence = self.history.fence(id).copied().unwrap();
                match self.locks[lock].highest == fence.token || self.fault == Fault::FenceIgnored {
                    true => {
                        self.values[lock] = Some(value);
                        Outcome::Ok(Answer::Done)
                    }
                    false => Outcome::Failed,
                }
            }
            Action::Lock(LockAction::Acquire { owner, hold, waits }) => {
                match self.acquire(lock, id, owner, hold, waits) {
                    Some(outcome) => outcome,
                    None => return,
                }
            }
            Action::Lock(LockAction::Renew { token, lease_ms }) => {
                let is_held = self.is_held_with(lock, token);
                if is_held && self.fault != Fault::RenewalForgotten {
                    self.hold(lock, Hold::Lease(lease_ms));
                }
                Outcome::Ok(Answer::Applied(is_held))
            }
            Action::Lock(LockAction::Release { token }) => {
                let is_held = self.is_held_with(lock, token);
                if is_held {
                    self.pass_on(lock);
                }
                Outcome::Ok(Answer::Applied(is_held))
            }
            Action::Lock(LockAction::OpenSession { lease_ms }) => {
                let session = self.history.key(format!("session-{}", self.versions).as_bytes());
                self.begin_session(session, lease_ms);
                Outcome::Ok(Answer::Session(session))
            }
            Action::Lock(LockAction::RenewSession) => {
                let known = self.sessions.get(&operation.key).copied();
                known.into_iter().for_each(|(lease_ms, _)| self.begin_session(operation.key, lease_ms));
                Outcome::Ok(Answer::Applied(known.is_some()))
            }
            Action::Lock(LockAction::CloseSession) => {
                let known = self.sessions.contains_key(&operation.key);
                self.end_session(operation.key);
                Outcome::Ok(Answer::Applied(known))
            }
            other => unreachable!("{other:?}"),
        };
        self.answer(id, outcome);
    }

    fn acquire(
        &mut self,
        lock: usize,
        id: OperationId,
        owner: Value,
        hold: Hold,
        waits: bool,
    ) -> Option<Outcome> {
        if let Hold::Session(session) = hold
            && !self.sessions.contains_key(&session)
        {
            return Some(Outcome::Failed);
        }
        let is_own = self.locks[lock].held.as_ref().is_some_and(|held| held.owner == owner);
        match &self.locks[lock].held {
            Some(_) if is_own => self.hold(lock, hold),
            Some(_) if !waits => return Some(Outcome::Ok(Answer::Token(None))),
            Some(_) => {
                self.locks[lock].queue.push_back((id, owner, hold));
                self.history.set_queued(id, self.now);
                let wait = self.random.below(400) * MS;
                self.at(self.now + wait, Event::WaitOver(lock, id));
                return None;
            }
            None => self.grant(lock, owner, hold),
        }
        let token = self.locks[lock].held.as_ref().map(|held| held.token);
        Some(Outcome::Ok(Answer::Token(token)))
    }

    fn grant(&mut self, lock: usize, owner: Value, hold: Hold) {
        self.versions += 1;
        let others = self.locks.iter().filter_map(|lock| lock.held.as_ref()).map(|held| held.token).max();
        let token = match self.fault {
            Fault::TokenReused => others.unwrap_or_default() + 1,
            _ => self.versions,
        };
        self.locks[lock].highest = token;
        self.locks[lock].held = Some(Held { owner, token, hold, number: 0 });
        self.hold(lock, hold);
    }

    /// Begins the lease. How long it lasts beyond its length is not specified.
    fn hold(&mut self, lock: usize, hold: Hold) {
        let slack = self.random.below(10 * MS);
        let is_short = self.fault == Fault::LeaseTooShort;
        let Some(held) = &mut self.locks[lock].held else { return };
        (held.hold, held.number) = (hold, held.number + 1);
        let (token, number) = (held.token, held.number);
        if let Hold::Lease(ms) = hold {
            let length = u64::from(ms) * MS;
            let over = self.now + if is_short { length * 3 / 4 } else { length + slack };
            self.at(over, Event::LeaseOver(lock, token, number));
        }
    }

    fn is_held_with(&self, lock: usize, token: u64) -> bool {
        let is_it = |held: &Held| held.token == token || self.fault == Fault::FreedByNonOwner;
        self.locks[lock].held.as_ref().is_some_and(is_it)
    }

    fn pass_on(&mut self, lock: usize) {
        self.locks[lock].held = None;
        let next = match self.fault {
            Fault::LastInFirstOut => self.locks[lock].queue.pop_back(),
            _ => self.locks[lock].queue.pop_front(),
        };
        if let Some((id, owner, hold)) = next {
            self.grant(lock, owner, hold);
            let token = self.locks[lock].held.as_ref().map(|held| held.token);
            self.answer(id, Outcome::Ok(Answer::Token(token)));
        }
    }

    fn begin_session(&mut self, session: Key, lease_ms: u32) {
        self.versions += 1;
        self.sessions.insert(session, (lease_ms, self.versions));
        let over = self.now + u64::from(lease_ms) * MS + self.random.below(10 * MS);
        self.at(over, Event::SessionOver(session, self.versions));
    }

    fn end_session(&mut self, session: Key) {
        self.sessions.remove(&session);
        for lock in 0..self.locks.len() {
            if self.fault != Fault::SessionNotRechecked {
                let queue = std::mem::take(&mut self.locks[lock].queue);
                let (over, rest): (VecDeque<_>, _) =
                    queue.into_iter().partition(|(_, _, hold)| *hold == Hold::Session(session));
                self.locks[lock].queue = rest;
                over.into_iter().for_each(|(id, ..)| self.answer(id, Outcome::Failed));
            }
            if self.locks[lock].held.as_ref().is_some_and(|held| held.hold == Hold::Session(session)) {
                self.pass_on(lock);
            }
        }
    }
}

#[test]
fn answers_of_a_correct_service_are_approved() {
    let mut grants = 0;
    for seed in 0..400 {
        let history = World::run(seed, Fault::None);
        let verdict = linearizable(&history);
        assert!(matches!(verdict, Verdict::Ok { .. }), "seed {seed}: {}", verdict.words(&history));
        let outcomes = history.operations().iter().map(|operation| operation.outcome);
        grants += outcomes.filter(|it| matches!(it, Outcome::Ok(Answer::Token(Some(_))))).count();
    }
    assert!(grants > 4_000, "{grants}");
}

/// For each fault, the number of histories within which it must be found.
#[test]
fn every_planted_fault_is_found() {
    let cases = [
        (Fault::FreedByNonOwner, 10),
        (Fault::TokenReused, 10),
        (Fault::SessionNotRechecked, 60),
        (Fault::FenceIgnored, 10),
        (Fault::LeaseTooShort, 10),
        (Fault::RenewalForgotten, 10),
        (Fault::LastInFirstOut, 60),
    ];
    for (fault, most) in cases {
        let found = (0..most).position(|seed| {
            let history = World::run(seed, fault);
            matches!(linearizable(&history), Verdict::Violation(window) if !window.words(&history).is_empty())
        });
        assert!(found.is_some(), "{fault:?} is not found in {most} histories");
    }
}

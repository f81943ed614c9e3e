//! What a client does with locks: it requests them, with and without waiting, holds, renews and releases them, writes
//! behind their fences, and dies in the middle of all this. It also misbehaves: it uses tokens that it once had, and
//! sessions of other clients.

use crate::operation::{Key, Kind, LockTerms, Operation, Reply, guarded};
use crate::random::Random;
use kv::locks::SessionId;

/// The number of locks of a keyspace.
pub(crate) const LOCKS: u8 = 3;

/// The longest wait for a lock.
pub(crate) const WAIT_MS_MAX: u64 = 1_500;

/// The most tokens that a client remembers after it has lost their locks.
const HAD_MAX: usize = 6;

/// What a client knows of its locks.
#[derive(Debug, Default)]
pub(crate) struct Locking {
    /// The client's incarnation. A client that has forgotten what it held continues under another name.
    incarnation: u16,
    holds: Option<(Key, u64)>,
    had: Vec<(Key, u64)>,
    /// Its session, and the lock whose name selects the session's group.
    pub(crate) session: Option<(Key, SessionId)>,
}

impl Locking {
    /// Draws the client's next request in a keyspace. `others` is a session of another client.
    pub(crate) fn draw(
        &mut self,
        (client, space): (u8, u8),
        others: Option<(Key, SessionId)>,
        random: &mut Random,
    ) -> Operation {
        let lock = Key { space, class: b'l', number: random.below(LOCKS.into()) as u8 };
        let lifetime_ms = random.scaled(20, 2_000) as u16;
        let asked = |kind, key, terms| Operation { lifetime_ms, ..Operation::of_lock(kind, key, terms) };
        let with = |token| LockTerms { token, ..LockTerms::default() };
        let draw = random.below(100);
        if let Some((held, token)) = self.holds {
            match draw {
                0..30 => return asked(Kind::Release, held, with(token)),
                30..40 => return asked(Kind::Renew, held, with(token)),
                40..70 => return asked(Kind::SetFenced, held, with(token)),
                // A former holder's late write would become visible to the next holder.
                70..90 => return asked(Kind::Get, guarded(held), LockTerms::default()),
                // The client dies, and requests that it had sent arrive late.
                90..95 => {
                    (self.holds, self.incarnation) = (None, self.incarnation + 1);
                    return asked(Kind::SetFenced, held, with(token));
                }
                _ => {}
            }
        }
        let of_session = |session: SessionId| LockTerms { session: Some(session), ..LockTerms::default() };
        match (draw % 20, self.session, others) {
            (0..3, ..) if !self.had.is_empty() => {
                let (lock, token) = self.had[random.below(self.had.len() as u64) as usize];
                let kind = random.pick(&[Kind::SetFenced, Kind::SetFenced, Kind::Renew, Kind::Release]);
                asked(kind, lock, with(token))
            }
            (3, _, Some((key, session))) => {
                let kind = random.pick(&[Kind::RenewSession, Kind::CloseSession]);
                asked(kind, key, of_session(session))
            }
            (4, None, _) | (5, None, _) => asked(Kind::OpenSession, lock, LockTerms::default()),
            (4 | 5, Some((key, session)), _) => match random.below(4) {
                0 => {
                    self.session = None;
                    asked(Kind::CloseSession, key, of_session(session))
                }
                1 => {
                    // The client dies, and its session with it.
                    (self.session, self.incarnation) = (None, self.incarnation + 1);
                    asked(Kind::Get, guarded(lock), LockTerms::default())
                }
                _ => asked(Kind::RenewSession, key, of_session(session)),
            },
            (6, ..) => asked(Kind::Get, guarded(lock), LockTerms::default()),
            _ => {
                let under = self.session.filter(|(key, _)| key.space == space && random.percent(50));
                let wait_ms = if random.percent(60) { random.scaled(10, WAIT_MS_MAX) as u16 } else { 0 };
                let session = under.map(|(_, session)| session);
                let owner = u32::from(client) << 16 | u32::from(self.incarnation);
                asked(Kind::Acquire, lock, LockTerms { owner, session, wait_ms, ..LockTerms::default() })
            }
        }
    }

    /// Returns an observer's request: it asks for a lock until the lock is granted, and then lets the lease expire.
    pub(crate) fn observed(client: u8, lock: Key) -> Operation {
        let terms = LockTerms { owner: u32::from(client) << 16, wait_ms: 1_000, ..LockTerms::default() };
        Operation { lifetime_ms: 20, ..Operation::of_lock(Kind::Acquire, lock, terms) }
    }

    /// Records a reply to the client.
    pub(crate) fn learn(&mut self, operation: &Operation, reply: Reply) {
        let (key, token) = (operation.key, operation.lock.token);
        match (operation.kind, reply) {
            (Kind::Acquire, Reply::Integer(token)) => {
                self.holds = Some((key, token as u64));
                if self.had.len() == HAD_MAX {
                    self.had.remove(0);
                }
                self.had.extend(self.holds);
            }
            // After an unknown outcome the client asks again: half of the time under its old name.
            (Kind::Acquire, Reply::Unknown) => {
                self.incarnation += u16::from(operation.number.is_multiple_of(2))
            }
            (Kind::Release, _)
            | (Kind::Renew, Reply::Integer(0))
            | (Kind::SetFenced, Reply::Refused("FENCED")) => {
                self.holds = self.holds.filter(|held| *held != (key, token));
            }
            (Kind::OpenSession, Reply::Session(session)) => self.session = Some((key, session)),
            (Kind::RenewSession | Kind::CloseSession, Reply::Integer(0))
            | (Kind::Acquire, Reply::Refused("NOSESSION")) => {
                self.session = self.session.filter(|(_, session)| Some(*session) != operation.lock.session);
            }
            _ => {}
        }
    }
}

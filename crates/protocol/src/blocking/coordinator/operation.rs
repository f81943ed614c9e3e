//! One operation on one key, and each replica's state with respect to it.
//!
//! ```text
//!            majority granted                 a majority holds it
//!  Locking ──────────────────────► Storing ───────────────────────► done
//!   │   ▲   (a read whose answers     │ too late, or no majority
//!   │   │    agree is done at once)   ▼ can be had any more
//!   ▼   │ another attempt          Withdrawing ────► refused, or unknown
//!  BackingOff                      (writes only)
//! ```
//!
//! Everything that a replica sends belongs to one *attempt*, whose number is never reused, and to one incarnation of that
//! replica. An operation that starts over does so under a new number and forgets everything that it knew.

use crate::blocking::options::Timing;
use crate::registers::{MEMBERS_MAX, MemberSet, RequestId, Tag};
use kv::{Register, UnixMs};

/// The purpose of an operation.
#[derive(Debug)]
pub(super) enum Goal {
    /// Return what the key holds.
    Read,
    /// Make it hold this.
    Write { deadline: UnixMs, value: Box<[u8]> },
}

impl Goal {
    /// Returns a write of this deadline and value. Its tag is chosen when a majority has granted the lock.
    pub(super) fn write(register: Register<'_>) -> Goal {
        Goal::Write { deadline: register.deadline, value: register.value.into() }
    }
}

/// What a key was found to hold.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) tag: Tag,
    pub(super) deadline: UnixMs,
    /// `None`: this replica's own table has it.
    pub(super) value: Option<Box<[u8]>>,
}

/// The progress of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::blocking) enum Phase {
    /// It waits for earlier operations on its key.
    Queued,
    /// It waits for a majority of locks.
    Locking,
    /// It was denied and waits before it tries again.
    BackingOff,
    /// It waits for a majority to hold the write with this tag, or, for a read, the value that it found.
    Storing(Tag),
    /// It waits for proof that no replica holds its write, or ever will.
    Withdrawing(Tag),
}

/// A replica's state with respect to the present attempt.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    /// The grant under which the attempt has the lock.
    grant: Option<u64>,
    /// It denied the lock, and the lock was not requested again.
    denied: bool,
    /// It holds this write or a newer one.
    holds: Option<Tag>,
    /// The write was sent to it, and may have been accepted, or may still be.
    may_take: bool,
}

#[derive(Debug)]
pub(in crate::blocking) struct Operation {
    /// The request to which it belongs, its key's place there, and whether that is the only key.
    pub(in crate::blocking) request: RequestId,
    pub(super) place: u32,
    pub(super) is_only: bool,
    pub(in crate::blocking) key: Box<[u8]>,
    pub(super) goal: Goal,
    /// The group's generation when it began.
    pub(super) generation: u64,
    pub(super) begun_us: u64,
    pub(in crate::blocking) deadline_us: u64,
    pub(in crate::blocking) phase: Phase,
    /// The present attempt's number, how many attempts failed before it, and whether they failed because the key was
    /// locked.
    pub(in crate::blocking) attempt: u64,
    pub(super) failed_attempts: u32,
    pub(super) met_locks: bool,
    /// When the operation is due.
    pub(in crate::blocking) due_us: u64,
    /// The newest write reported with the granted locks.
    pub(super) found: Found,
    standings: [Standing; MEMBERS_MAX],
    /// A replica to which the write was sent began a new incarnation before it answered: whether it had accepted the
    /// write, and whether another operation read it there, can no longer be known.
    is_unknowable: bool,
}

impl Operation {
    pub(super) fn new(
        (request, place, is_only): (RequestId, u32, bool),
        key: &[u8],
        goal: Goal,
        generation: u64,
        (begun_us, deadline_us): (u64, u64),
    ) -> Operation {
        Operation {
            request,
            place,
            is_only,
            key: key.into(),
            goal,
            generation,
            begun_us,
            deadline_us,
            phase: Phase::Queued,
            attempt: 0,
            failed_attempts: 0,
            met_locks: false,
            due_us: deadline_us,
            found: Found::default(),
            standings: Default::default(),
            is_unknowable: false,
        }
    }

    /// Bytes of its key and of the value that it writes.
    pub(in crate::blocking) fn bytes(&self) -> usize {
        let value = match &self.goal {
            Goal::Read => 0,
            Goal::Write { value, .. } => value.len(),
        };
        self.key.len() + value
    }

    pub(in crate::blocking) fn is_read(&self) -> bool {
        matches!(self.goal, Goal::Read)
    }

    /// Whether a replica may hold its write, or may still accept it.
    pub(super) fn may_take_effect(&self) -> bool {
        !self.is_read() && matches!(self.phase, Phase::Storing(_) | Phase::Withdrawing(_))
    }

    /// Returns when a write is withdrawn if no majority holds it yet: shortly before its deadline, but not before most
    /// of its time has passed.
    pub(super) fn withdraw_us(&self, timing: &Timing) -> u64 {
        let whole_us = self.deadline_us.saturating_sub(self.begun_us);
        let kept_us =
            if self.is_read() { 0 } else { timing.withdraw_ms.saturating_mul(1000).min(whole_us / 4) };
        self.deadline_us.saturating_sub(kept_us)
    }

    /// Starts to lock, and forgets what earlier attempts knew.
    pub(super) fn begin_attempt(&mut self, attempt: u64) {
        assert!(attempt > self.attempt, "an attempt's number is used twice");
        self.attempt = attempt;
        self.phase = Phase::Locking;
        self.found = Found::default();
        self.standings = Default::default();
    }

    /// Notes that a replica granted the lock, and what it reported to hold. [`Operation::holds`] notes whether that is
    /// durable.
    pub(super) fn granted(
        &mut self,
        member: usize,
        grant: u64,
        (tag, deadline): (Tag, UnixMs),
        value: Option<&[u8]>,
    ) {
        let standing = &mut self.standings[member];
        standing.grant = Some(grant);
        standing.denied = false;
        if self.phase == Phase::Locking && tag > self.found.tag {
            self.found = Found { tag, deadline, value: value.map(Box::from) };
        }
    }

    pub(super) fn denied(&mut self, member: usize) {
        let standing = &mut self.standings[member];
        if standing.grant.is_none() {
            standing.denied = true;
        }
    }

    /// Notes that a replica that denied the lock gets another request.
    pub(super) fn ask_again(&mut self, member: usize) {
        self.standings[member].denied = false;
    }

    /// Notes that a replica holds this write, or a newer one.
    pub(super) fn holds(&mut self, member: usize, tag: Tag) {
        let standing = &mut self.standings[member];
        standing.holds = standing.holds.max(Some(tag));
    }

    /// Notes that the write is sent to a replica.
    pub(super) fn write_sent(&mut self, member: usize) {
        let standing = &mut self.standings[member];
        assert!(standing.grant.is_some(), "a write leaves without a grant to name");
        standing.may_take = true;
    }

    /// Notes that the grant has ended, so a write sent under it will never be accepted. Ignores an answer about an
    /// earlier grant: it does not concern the later one.
    pub(super) fn lost(&mut self, member: usize, grant: u64) {
        let standing = &mut self.standings[member];
        if standing.grant == Some(grant) {
            *standing = Standing { denied: true, holds: standing.holds, ..Standing::default() };
        }
    }

    /// Notes that the lock is free again. If the replica does not hold the write, it will never accept it.
    pub(super) fn unlocked(&mut self, member: usize, holds: Option<Tag>) {
        let standing = &mut self.standings[member];
        standing.grant = None;
        standing.denied = true;
        match holds {
            Some(tag) => standing.holds = standing.holds.max(Some(tag)),
            None => standing.may_take = false,
        }
    }

    /// Notes that a replica began a new incarnation: it has forgotten lock and write.
    pub(super) fn renew(&mut self, member: usize) {
        self.is_unknowable |= self.standings[member].may_take;
        self.standings[member] = Standing::default();
    }

    /// The grant that a replica gave.
    pub(super) fn grant(&self, member: usize) -> Option<u64> {
        self.standings[member].grant
    }

    fn members(&self, is_one: impl Fn(&Standing) -> bool) -> MemberSet {
        let mut set = MemberSet::EMPTY;
        for member in (0..MEMBERS_MAX).filter(|member| is_one(&self.standings[*member])) {
            set.insert(member);
        }
        set
    }

    /// The replicas that have not answered, or must get another request. Not restricted to members.
    pub(super) fn silent(&self) -> MemberSet {
        self.members(|standing| standing.grant.is_none() && !standing.denied)
    }

    /// The replicas that granted the lock.
    pub(in crate::blocking) fn grants(&self) -> MemberSet {
        self.members(|standing| standing.grant.is_some())
    }

    /// The replicas that denied the lock.
    pub(super) fn denials(&self) -> MemberSet {
        self.members(|standing| standing.denied)
    }

    /// True when a replica denied the lock because the key is locked.
    pub(super) fn met_a_lock(&self) -> bool {
        self.standings.iter().any(|standing| standing.denied)
    }

    /// The replicas known to hold this write or a newer one.
    pub(in crate::blocking) fn holders(&self, tag: Tag) -> MemberSet {
        self.members(|standing| standing.holds >= Some(tag))
    }

    /// Returns the members that hold this write, or may still come to hold it: they granted the lock or have not denied
    /// it.
    pub(super) fn may_come_to_hold(&self, tag: Tag, members: MemberSet) -> MemberSet {
        self.members(|standing| standing.holds >= Some(tag) || !standing.denied).and(members)
    }

    /// The replicas that have not reported yet whether they hold the write, or will never accept it.
    pub(super) fn undecided(&self, tag: Tag) -> MemberSet {
        self.members(|standing| standing.may_take && standing.holds < Some(tag))
    }

    /// True when no replica ever held the write and none will.
    pub(super) fn is_withdrawn(&self) -> bool {
        !self.is_unknowable && self.members(|standing| standing.may_take).is_empty()
    }

    /// Returns what must be stored in this phase: the operation's own value, or what was found.
    pub(super) fn to_store(&self, tag: Tag) -> Register<'_> {
        let (deadline, value) = match &self.goal {
            Goal::Write { deadline, value } => (*deadline, &**value),
            Goal::Read => (self.found.deadline, self.found.value.as_deref().unwrap_or_default()),
        };
        Register { version: tag.version(), deadline, value }
    }
}

//! One operation on one key, and how each replica stands to it.
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
//! Everything that a replica says belongs to one *attempt*, a number that is never used twice, and to one life of that
//! replica. An operation that starts again does so under a new number and with nothing of what it knew.

use crate::blocking::options::Timing;
use crate::registers::{MEMBERS_MAX, MemberSet, RequestId, Tag};
use kv::{Register, UnixMs};

/// What an operation is to do.
#[derive(Debug)]
pub(super) enum Goal {
    /// Tell what the key holds.
    Read,
    /// Make it hold this.
    Write { deadline: UnixMs, value: Box<[u8]> },
}

impl Goal {
    /// A write of this deadline and value. Its tag is chosen when a majority has granted the lock.
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

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::blocking) enum Phase {
    /// It waits for earlier operations on its key.
    Queued,
    /// It waits for a majority of locks.
    Locking,
    /// It was denied and waits before it tries again.
    BackingOff,
    /// It waits until a majority holds the write of this tag: its own, or the one that it read.
    Storing(Tag),
    /// It waits to hear that nobody holds its write, nor ever will.
    Withdrawing(Tag),
}

/// How one replica stands to the present attempt.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    /// The lock is ours, under this grant.
    grant: Option<u64>,
    /// It said no, and was not asked again.
    denied: bool,
    /// It holds this write or a newer one.
    holds: Option<Tag>,
    /// Our write was sent and may have been taken, or may still be.
    may_take: bool,
}

/// One operation.
#[derive(Debug)]
pub(in crate::blocking) struct Operation {
    /// The request of which it is a part, its key's place there, and whether that is the only key.
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
    /// The present attempt's number, how many failed before it, and whether because the key was locked.
    pub(in crate::blocking) attempt: u64,
    pub(super) failed_attempts: u32,
    pub(super) met_locks: bool,
    /// When it wants to be looked at again.
    pub(in crate::blocking) due_us: u64,
    /// The newest write that the granted locks told of.
    pub(super) found: Found,
    standings: [Standing; MEMBERS_MAX],
    /// A replica to which our write was sent began a new life before it answered: nobody can say any more whether
    /// it had taken the write, and whether somebody read it there.
    untold: bool,
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
            untold: false,
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

    /// Whether a replica may hold its write, or may take it still.
    pub(super) fn may_take_effect(&self) -> bool {
        !self.is_read() && matches!(self.phase, Phase::Storing(_) | Phase::Withdrawing(_))
    }

    /// When a write is called back if no majority holds it yet: shortly before its deadline, and not before most of
    /// its time has passed.
    pub(super) fn withdraw_us(&self, timing: &Timing) -> u64 {
        let whole_us = self.deadline_us.saturating_sub(self.begun_us);
        let kept_us =
            if self.is_read() { 0 } else { timing.withdraw_ms.saturating_mul(1000).min(whole_us / 4) };
        self.deadline_us.saturating_sub(kept_us)
    }

    /// Starts to lock, with nothing of what earlier attempts knew.
    pub(super) fn begin_attempt(&mut self, attempt: u64) {
        assert!(attempt > self.attempt, "an attempt's number is used twice");
        self.attempt = attempt;
        self.phase = Phase::Locking;
        self.found = Found::default();
        self.standings = Default::default();
    }

    /// A replica granted the lock and told what it holds. Whether it holds that for good is told by
    /// [`Operation::holds`].
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

    /// A replica that said no is asked again.
    pub(super) fn ask_again(&mut self, member: usize) {
        self.standings[member].denied = false;
    }

    /// A replica holds this write, or a newer one.
    pub(super) fn holds(&mut self, member: usize, tag: Tag) {
        let standing = &mut self.standings[member];
        standing.holds = standing.holds.max(Some(tag));
    }

    /// Our write leaves for a replica.
    pub(super) fn write_sent(&mut self, member: usize) {
        let standing = &mut self.standings[member];
        assert!(standing.grant.is_some(), "a write leaves without a grant to name");
        standing.may_take = true;
    }

    /// The grant has ended and what was sent under it will never be taken. An answer about an earlier grant says
    /// nothing about a later one.
    pub(super) fn lost(&mut self, member: usize, grant: u64) {
        let standing = &mut self.standings[member];
        if standing.grant == Some(grant) {
            *standing = Standing { denied: true, holds: standing.holds, ..Standing::default() };
        }
    }

    /// The lock is free again. Without our write: then it will never be taken.
    pub(super) fn unlocked(&mut self, member: usize, holds: Option<Tag>) {
        let standing = &mut self.standings[member];
        standing.grant = None;
        standing.denied = true;
        match holds {
            Some(tag) => standing.holds = standing.holds.max(Some(tag)),
            None => standing.may_take = false,
        }
    }

    /// A replica began a new life: it has forgotten lock and write.
    pub(super) fn renew(&mut self, member: usize) {
        self.untold |= self.standings[member].may_take;
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

    /// Who has not answered, or has to be asked again. Not restricted to members.
    pub(super) fn silent(&self) -> MemberSet {
        self.members(|standing| standing.grant.is_none() && !standing.denied)
    }

    /// Who granted the lock.
    pub(in crate::blocking) fn grants(&self) -> MemberSet {
        self.members(|standing| standing.grant.is_some())
    }

    /// Who said no.
    pub(super) fn denials(&self) -> MemberSet {
        self.members(|standing| standing.denied)
    }

    /// True when somebody said no because the key is locked.
    pub(super) fn met_a_lock(&self) -> bool {
        self.standings.iter().any(|standing| standing.denied)
    }

    /// Who is known to hold this write or a newer one.
    pub(in crate::blocking) fn holders(&self, tag: Tag) -> MemberSet {
        self.members(|standing| standing.holds >= Some(tag))
    }

    /// Who holds this write, or may yet be brought to: it granted the lock or has not said no.
    pub(super) fn may_come_to_hold(&self, tag: Tag, members: MemberSet) -> MemberSet {
        self.members(|standing| standing.holds >= Some(tag) || !standing.denied).and(members)
    }

    /// Who has not said yet whether it holds our write, or will never take it.
    pub(super) fn undecided(&self, tag: Tag) -> MemberSet {
        self.members(|standing| standing.may_take && standing.holds < Some(tag))
    }

    /// True when nobody ever held our write and nobody will.
    pub(super) fn is_withdrawn(&self) -> bool {
        !self.untold && self.members(|standing| standing.may_take).is_empty()
    }

    /// What is to be stored in this phase, if anything: our own value, or what was found.
    pub(super) fn to_store(&self, tag: Tag) -> Register<'_> {
        let (deadline, value) = match &self.goal {
            Goal::Write { deadline, value } => (*deadline, &**value),
            Goal::Read => (self.found.deadline, self.found.value.as_deref().unwrap_or_default()),
        };
        Register { version: tag.version(), deadline, value }
    }
}

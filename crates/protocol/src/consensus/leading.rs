//! Leading: taking over, waiting for the old leader's lease to end, proposing, and keeping a lease of one's own.

use super::Replica;
use super::entry::{Entry, EntryBuilder, Head, Proposer};
use super::options::Lease;
use super::waiting::{Proposal, Standing};
use crate::contract::{Effects, Now, Trace};
use crate::planted::Fault;
use kv::Command;
use omnipaxos::ballot_leader_election::Ballot;

/// A ballot in which this replica leads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leadership {
    /// The ballot.
    pub(super) ballot: Ballot,
    /// The end of the log that was taken over: nothing is answered before all of it is applied.
    pub(super) inherited: usize,
    /// What was said to be decided then. Only more than that log holds if a disk was put back, and nobody noticed.
    pub(super) said_decided: usize,
    /// Nothing is appended before: an older leader may still be answering reads without asking anybody.
    pub(super) appends_from_us: u64,
    /// When the newest entry was proposed that was proposed in this ballot and is committed.
    pub(super) leased_from_us: Option<u64>,
    /// When the newest entry of this ballot was proposed.
    pub(super) proposed_us: Option<u64>,
    /// When it was seen to be durable here.
    pub(super) durable_us: Option<u64>,
    /// How many commands were under way at once: the most when an entry was proposed, soon forgotten when they are fewer.
    load: usize,
    /// For a planted fault: whether there was a lease at the last tick.
    pub(super) leased_at_tick: bool,
}

impl Leadership {
    fn is_leased(&self, now_us: u64, lease_ms: u64) -> bool {
        self.leased_from_us.is_some_and(|from_us| now_us < from_us + lease_ms * 1000)
    }

    /// An entry of this ballot is committed.
    pub(super) fn committed(&mut self, proposed_us: u64) {
        self.leased_from_us = self.leased_from_us.max(Some(proposed_us));
    }
}

impl Replica {
    /// True while this leader's lease lasts, at this very moment.
    pub(super) fn is_leased(&self, now: Now) -> bool {
        self.leadership
            .is_some_and(|leadership| leadership.is_leased(self.lease_clock_us(now), self.timing.lease_ms))
    }

    /// Until when this leader may answer reads alone if nothing more is committed: 0 when it may not now, and for ever
    /// when it is alone.
    pub fn leased_until_us(&self, now: Now) -> u64 {
        match self.leadership {
            Some(leadership) if self.may_answer(now) => match leadership.leased_from_us {
                Some(from_us) if !self.links.is_empty() => from_us + self.timing.lease_ms * 1000,
                _ => u64::MAX,
            },
            _ => 0,
        }
    }

    /// The clock that leases are measured by.
    fn lease_clock_us(&self, now: Now) -> u64 {
        match self.options.planted.has(Fault::LeaseOnWallClock) {
            true => now.unix_ms * 1000,
            false => now.monotonic_us,
        }
    }

    /// Looks whether something that has just happened made this replica a leader, or one no more.
    pub(super) fn look_at_leadership(&mut self, effects: &mut Effects) {
        let Some(agreement) = &self.agreement else { return };
        let leads = agreement.leads_in(self.id);
        let promise = self.log.borrow().promise();
        if leads == self.leadership.map(|leadership| leadership.ballot) && promise == self.told_promise {
            return;
        }
        let offset = self.log.borrow().end_offset();
        if leads != self.leadership.map(|leadership| leadership.ballot) {
            self.leadership = None;
            self.keep_requests(effects);
            if let Some(ballot) = leads {
                self.take_over(ballot);
                effects.trace.push(Trace::Role { role: "leader", epoch: u64::from(ballot.n), offset });
            }
        }
        if promise != self.told_promise {
            self.told_promise = promise;
            if leads.is_none() {
                let role = if promise.pid == u64::from(self.id) { "candidate" } else { "follower" };
                effects.trace.push(Trace::Role { role, epoch: u64::from(promise.n), offset });
            }
        }
    }

    fn take_over(&mut self, ballot: Ballot) {
        let log = self.log.borrow();
        let Lease::Log = self.options.lease else {
            self.leadership = Some(Leadership::new(ballot, (log.end(), log.said_decided()), 0));
            return;
        };
        // Every entry that an older leader's lease can rest on is in this log, and came here after it was proposed.
        // So the newest of those leases ends, at the latest, a lease after the newest entry came.
        let wait_us = (self.timing.lease_ms + self.timing.lease_margin_ms) * 1000;
        let nobody_led = log.changed_us() == 0 || self.links.is_empty() && self.group.begins == 0;
        // Whoever led to the end of a configuration has waited for older leases in it already, and has none itself
        // while it does not lead. Had anybody else a lease in the new one, the log would be longer.
        let led_until = self.led_until.filter(|(end, _)| *end == log.end());
        let serves_early = self.options.planted.has(Fault::NewLeaderServesEarly);
        let appends_from_us = match led_until {
            _ if nobody_led || serves_early => 0,
            Some((_, appended_from_us)) => appended_from_us,
            None => log.changed_us() + wait_us,
        };
        self.leadership = Some(Leadership::new(ballot, (log.end(), log.said_decided()), appends_from_us));
        drop(log);
        for link in &mut self.links {
            link.refusals = (Ballot::default(), 0);
        }
    }

    /// Appends what was gathered; without a write, an empty entry if the lease needs one.
    pub(super) fn propose(&mut self, now: Now) {
        if self.standing(now) != Standing::Leads {
            return self.hold_gathered();
        }
        self.note_durable(now);
        if self.gathers_until_us(now).is_some() {
            return;
        }
        self.order_purge(now);
        self.order_lock_records(now);
        if !self.builder_askers.is_empty() || self.needs_renewal(now) {
            self.seal(now);
        }
        if self.is_change_due(now) {
            let stop_sign = self.wanted.clone();
            self.seal_as(now, |head, _| Entry::stop(head, &stop_sign));
        }
    }

    /// Whether what comes is only gathered for now, and until when at most. What is gathered is one entry, one record, one
    /// sync on each node and one message to each follower instead of many, whatever its size.
    ///
    /// 1. While the batch before it is not durable here. It costs the first of them at most what is left of one sync of the
    ///    leader's own disk; nothing where the followers' disks are no faster, since they are busy with the batch before.
    ///    A disk that stands still holds nothing back for longer than a moment.
    /// 2. Then for as long as that sync took, unless half of what was lately under way at once has come. Clients that wait
    ///    for one answer before they ask again come back in bursts, as large as the batch that answers them: without this
    ///    the first of a burst would be a batch by themselves. It also keeps batches even: one that is small because nearly
    ///    all others are in the one before waits for those. Whoever asks alone does not wait, once those who asked before
    ///    are forgotten: an eighth of them with each entry, and one at least.
    fn gathers_until_us(&self, now: Now) -> Option<u64> {
        const GATHERING_US_MAX: u64 = 20_000;
        const GATHERING_ON_US_MAX: u64 = 2000;
        let Leadership { proposed_us, durable_us, load, .. } = self.leadership?;
        let proposed_us = proposed_us?;
        let until_us = match durable_us {
            None => proposed_us + GATHERING_US_MAX,
            Some(_) if self.builder_askers.len() >= load / 2 => return None,
            Some(durable_us) => durable_us + durable_us.saturating_sub(proposed_us).min(GATHERING_ON_US_MAX),
        };
        (self.lease_clock_us(now) < until_us).then_some(until_us)
    }

    /// Looks whether all that was proposed is durable here by now.
    fn note_durable(&mut self, now: Now) {
        let now_us = self.lease_clock_us(now);
        let Some(leadership) = &mut self.leadership else { return };
        let log = self.log.borrow();
        if leadership.durable_us.is_none() && log.durable_in(leadership.ballot) >= log.end() {
            leadership.durable_us = Some(now_us);
        }
    }

    /// When this replica has to be stepped though nothing comes, for what it has gathered.
    pub(super) fn gathered_is_due_us(&self, now: Now) -> u64 {
        match self.builder_askers.is_empty() {
            true => u64::MAX,
            false => self.gathers_until_us(now).unwrap_or(u64::MAX),
        }
    }

    /// Closes the batch that is being built, and appends it.
    pub(super) fn seal(&mut self, now: Now) {
        self.seal_as(now, |head, builder| builder.take(head));
    }

    fn seal_as(&mut self, now: Now, make: impl FnOnce(Head, &mut EntryBuilder) -> Entry) {
        let now_us = self.lease_clock_us(now);
        let (Some(agreement), Some(leadership)) = (&mut self.agreement, &mut self.leadership) else { return };
        // Every older lease is over by then.
        assert!(
            now.monotonic_us >= leadership.appends_from_us,
            "it appends while an older leader may be answering"
        );
        let batch = self.proposals.last + 1;
        let index = self.log.borrow().end();
        let head = Head {
            proposer: Proposer { node: self.id, life: self.identity.life, batch },
            time: now.unix_ms_behind(self.time),
            count: self.builder_askers.len() as u32,
        };
        let entry = make(head, &mut self.builder);
        let proposal = Proposal {
            batch,
            index,
            ballot: leadership.ballot,
            proposed_us: now_us,
            bytes: entry.bytes().len(),
            work_ns: std::mem::take(&mut self.builder_ns),
            askers: {
                let next = Vec::with_capacity(self.builder_askers.len());
                std::mem::replace(&mut self.builder_askers, next)
            },
        };
        self.builder_fenced.clear();
        self.proposals.push(proposal);
        leadership.proposed_us = Some(now_us);
        leadership.durable_us = None;
        leadership.load = self.proposals.commands().max(leadership.load - leadership.load.div_ceil(8));
        self.is_read = false;
        agreement.append(&self.log, entry);
        assert_eq!(self.log.borrow().end(), index + 1, "an entry is not where its proposal says");
    }

    /// Whether an empty entry is to be appended: the first of a ballot, so that it can be read; later ones while there
    /// are readers, in time for them not to notice.
    fn needs_renewal(&self, now: Now) -> bool {
        let Some(leadership) = &self.leadership else { return false };
        if self.links.is_empty() {
            return false;
        }
        match leadership.proposed_us {
            None => true,
            Some(proposed_us) => {
                self.options.lease == Lease::Log
                    && self.is_read
                    && self.lease_clock_us(now) >= proposed_us + self.timing.lease_ms * 500
            }
        }
    }

    /// Removes keys whose deadline has passed: an entry as any other, so that replicas agree.
    fn order_purge(&mut self, now: Now) {
        const KEYS_MAX: usize = 1000;
        if self.purge_batch > self.proposals.settled() {
            return;
        }
        if let Some(until) = self.table.purge_until(now.unix_ms_behind(self.time), KEYS_MAX) {
            Command::Purge { until }.encode(self.builder.end());
            self.builder_askers.push(None);
            self.purge_batch = self.proposals.last + 1;
        }
    }
}

impl Leadership {
    fn new(ballot: Ballot, (inherited, said_decided): (usize, usize), appends_from_us: u64) -> Leadership {
        Leadership {
            ballot,
            inherited,
            said_decided,
            appends_from_us,
            leased_from_us: None,
            proposed_us: None,
            durable_us: None,
            load: 0,
            leased_at_tick: false,
        }
    }
}

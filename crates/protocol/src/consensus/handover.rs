//! A leader lets another member lead, as its node is about to stop or an operator wants it to.
//!
//! ```text
//!  leader                                 another member
//!    | appends nothing more                     |
//!    | ... until all that it appended is        |
//!    |     decided, applied, and held there     |
//!    | answers no more reads                    |
//!    | HandOver [ballot] ---------------------->|
//!    |<-------------------------------- Prepare | in a greater ballot, as any candidate
//!    | Promise -------------------------------->|
//!    |                                          | appends at once
//! ```
//!
//! Requests wait at the leader meanwhile, and go to the next one as after any change of leader. No outcome is unknown: when the
//! leader resigns, all that it proposed is decided.
//!
//! # Why the next leader need not wait
//!
//! A new leader appends nothing while an older leader may be answering reads alone, because of a lease that rests on a
//! committed entry of its own ballot. Let the resigned leader's ballot be b, and let b be the greatest ballot in which one of
//! the logs that a candidate counts was accepted, its own included. Then
//!
//! * no leader of a ballot greater than b has a lease: a majority would have accepted its log, and one of them would be among
//!   those that the candidate counts, with a greater ballot than b;
//! * the leader of b has resigned, and answers nothing in b any more;
//! * the leader of b has committed an entry of its own, so it had waited for the leases of all ballots less than b.
//!
//! A candidate that has another log with it waits as usual. So does one that was not told: the message is lost, or late.
//!
//! # When no other member takes over
//!
//! A leader whose log is not settled in time goes on as before. One that has resigned takes part in elections like any member,
//! and bids itself, in a greater ballot, if no other has led for a while.

use super::Replica;
use super::message::Body;
use super::options::Settings;
use super::outbox::{Outbox, outbox};
use crate::contract::{Effects, NodeId, Now};
use crate::planted::Fault;
use omnipaxos::ballot_leader_election::Ballot;

/// A handover that its leader has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handover {
    to: NodeId,
    /// When it has taken too long.
    until_us: u64,
    has_resigned: bool,
}

impl Handover {
    /// Whether the leader may answer no more reads.
    pub(super) fn has_resigned(&self, settings: &Settings) -> bool {
        self.has_resigned && !settings.options.planted.has(Fault::ResignedLeaderAnswers)
    }
}

fn long_enough_us(now: Now, settings: &Settings) -> u64 {
    now.monotonic_us + (settings.timing.lease_ms + settings.timing.lease_margin_ms) * 1000
}

impl Replica {
    /// See [`hand_over`](crate::Replica::hand_over).
    pub(super) fn begin_handover(&mut self, now: Now, to: Option<NodeId>) -> bool {
        let Some(to) = self.successor(now, to) else { return false };
        let until_us = long_enough_us(now, &self.settings);
        let Some(leadership) = self.agreement.leadership_mut() else { return false };
        if leadership.handover().is_none() {
            leadership.set_handover(Some(Handover { to, until_us, has_resigned: false }));
            self.rounds.wake(now, &mut self.links);
        }
        true
    }

    /// The member that is to lead next: a live one that needs little to hold everything, by default the one that needs least.
    fn successor(&self, now: Now, wanted: Option<NodeId>) -> Option<NodeId> {
        const LACKS_MAX: usize = 1_000;
        let ballot = self.agreement.leadership()?.ballot();
        let decided = self.log.borrow().decided();
        let may_lead = |peer: &NodeId| {
            let accepted = self.links.get(*peer).map(|link| link.accepted());
            let lacks_little = accepted.is_some_and(|(its, end)| its == ballot && end + LACKS_MAX >= decided);
            lacks_little && self.rounds.is_peer_live(now, *peer, &self.links, &self.settings)
        };
        let mut peers = self.links.peers().filter(may_lead);
        match wanted {
            Some(wanted) => peers.find(|peer| *peer == wanted),
            None => peers.max_by_key(|peer| self.links.get(*peer).map(|link| link.accepted())),
        }
    }

    /// Resigns once another member has all that this leader has appended. At the end of a turn, after all other messages.
    pub(super) fn advance_handover(&mut self, now: Now, effects: &mut Effects) {
        let Some(leadership) = self.agreement.leadership_mut() else { return };
        let Some(handover) = leadership.handover() else { return };
        let (ballot, until_us) = (leadership.ballot(), long_enough_us(now, &self.settings));
        if now.monotonic_us >= handover.until_us {
            leadership.set_handover(handover.has_resigned.then_some(Handover { until_us, ..handover }));
            if handover.has_resigned {
                self.agreement.raise_ballot();
                self.look_at_leadership(effects);
            }
            return;
        }
        let log = self.log.borrow();
        let end = log.end();
        let is_settled = log.decided() == end && self.applied.index() == end && leadership.was_leased();
        let has_all = self.links.get(handover.to).is_some_and(|link| link.accepted() == (ballot, end));
        drop(log);
        if !handover.has_resigned && is_settled && has_all {
            leadership.set_handover(Some(Handover { until_us, has_resigned: true, ..handover }));
            self.agreement.note_resigned(ballot);
            outbox!(self, effects).send(handover.to, Body::HandOver { ballot });
        }
    }

    /// The leader that this replica follows has resigned.
    pub(super) fn take_over_from(&mut self, ballot: Ballot) {
        let log = self.log.borrow();
        let follows = (log.promise(), log.accepted_round()) == (ballot, ballot);
        drop(log);
        if follows && !self.agreement.leads() {
            self.agreement.note_resigned(ballot);
            self.agreement.raise_ballot();
        }
    }
}

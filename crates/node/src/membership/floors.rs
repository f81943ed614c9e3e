//! The floors that a new keyspace waits for.
//!
//! A keyspace takes keys from those whose prefixes begin its own. A node with an older map may still lead a group of these, so the
//! node that makes the keyspace has each such group order that nothing follows which was checked by an older map
//! ([`kv::table::Floor`]). `docs/design/protocols/requests.md` has the argument.

use crate::context::Context;
use crate::session::origin::{Asked, Origin};
use cluster::control::{ClusterMap, Feature};
use cluster::setting::Protocol;
use kv::{Command, Reply, Version};
use protocol::{Request, Result as Outcome};
use std::collections::BTreeMap;

/// The pause before a group is asked again that has not raised its floor, or holds transactions that were prepared before.
const PAUSE_US: u64 = 20_000;

/// For how long a group is asked at once.
const ASKED_US: u64 = 1_000_000;

/// Bits of a group's number in the sequence of a ticket.
const GROUP_BITS: u32 = u16::BITS;

/// The groups that have to raise their floors before one change counts as made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Floors {
    version: u64,
    /// The groups that have not, each with when it is asked again; `None`: it was asked, and has not answered.
    awaited: BTreeMap<u16, Option<u64>>,
    /// When the wait is given up.
    until_us: u64,
}

impl Floors {
    /// Those that a keyspace with this prefix waits for, of which the map knows.
    pub(crate) fn of(cx: &Context, prefix: &str) -> Floors {
        let awaited = losers(&cx.map, prefix).map(|group| (group, Some(cx.now.monotonic_us))).collect();
        let until_us = cx.now.monotonic_us + cx.configuration.command_timeout_ms * 1000;
        Floors { version: cx.map.version, awaited, until_us }
    }

    /// Whether all groups have raised them.
    pub(crate) fn are_raised(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Asks the groups that are to be asked now, for the change with this number. Returns the error of a wait that took too long.
    pub(crate) fn ask(&mut self, cx: &mut Context, request: u64) -> Result<(), String> {
        let now_us = cx.now.monotonic_us;
        // A group that was dropped since takes nothing.
        self.awaited.retain(|group, _| cx.map.groups.contains_key(group) && cx.groups.get(*group).is_some());
        if now_us >= self.until_us
            && let Some(group) = self.awaited.keys().next()
        {
            let name = cx.groups[*group].name();
            return Err(format!(
                "UNKNOWN the keyspace is made, but keyspace '{name}', which had its keys, has not taken note of it in time, and may \
                 still take writes of them: create the keyspace again, until that succeeds, before you use it"
            ));
        }
        for (group, at_us) in
            self.awaited.iter_mut().filter(|(_, at_us)| at_us.is_some_and(|at_us| at_us <= now_us))
        {
            *at_us = None;
            let asked = Asked {
                ticket: Origin::Floor.ticket(request << GROUP_BITS | u64::from(*group)),
                follows: false,
                seen: Version::MAX,
                deadline_us: now_us + ASKED_US,
                hops: 0,
                leadership: 0,
            };
            cx.submit(*group, asked, &Request::Command(&Command::RaiseFloor { version: self.version }));
        }
        Ok(())
    }

    /// When to ask next.
    pub(crate) fn wakeup_us(&self) -> u64 {
        self.awaited.values().flatten().copied().min().unwrap_or(u64::MAX).min(self.until_us)
    }

    /// A group has answered.
    pub(crate) fn answered(&mut self, now_us: u64, group: u16, result: Outcome, reply: &[u8]) {
        if let (Outcome::Done { .. }, Reply::Integer(0)) = (result, Reply::first(reply)) {
            self.awaited.remove(&group);
        } else if let Some(at_us) = self.awaited.get_mut(&group) {
            *at_us = Some(now_us + PAUSE_US);
        }
    }

    /// The change and the group that a ticket's sequence names.
    pub(crate) fn named(sequence: u64) -> (u64, u16) {
        (sequence >> GROUP_BITS, sequence as u16)
    }
}

/// The groups of consensus that lose keys to a keyspace: their leaders need no lease of their node. Registers have no log; for them
/// the control leader waits.
fn losers(map: &ClusterMap, prefix: &str) -> impl Iterator<Item = u16> {
    let entries = map.losing_keys(prefix).filter(|_| map.has(Feature::Floors));
    let entries = entries.filter(|entry| entry.keyspace.replication == Protocol::Consensus);
    entries.flat_map(|entry| entry.groups.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits_for(groups: &[u16]) -> Floors {
        let awaited = groups.iter().map(|group| (*group, Some(1000))).collect();
        Floors { version: 7, awaited, until_us: 5_000_000 }
    }

    fn answer(floors: &mut Floors, group: u16, result: Outcome, reply: impl FnOnce(&mut kv::ReplyBuffer)) {
        let mut replies = kv::ReplyBuffer::new();
        reply(&mut replies);
        floors.answered(2000, group, result, replies.as_bytes());
    }

    #[test]
    fn a_ticket_names_the_change_and_the_group() {
        for (request, group) in [(1, 0), (2, 9), (1 << 40, u16::MAX)] {
            assert_eq!(Floors::named(request << GROUP_BITS | u64::from(group)), (request, group));
        }
    }

    #[test]
    fn a_group_is_done_when_it_holds_no_transaction_from_before_its_floor() {
        let done = Outcome::Done { version: 3, offset: 3 };
        let mut floors = waits_for(&[4, 5]);
        answer(&mut floors, 4, done, |replies| replies.integer(2));
        answer(&mut floors, 5, done, |replies| replies.integer(0));
        assert_eq!(floors.awaited, [(4, Some(2000 + PAUSE_US))].into(), "it is asked again after a pause");
        assert_eq!(floors.wakeup_us(), 2000 + PAUSE_US);
        answer(&mut floors, 4, Outcome::Refused, |replies| replies.error("CLUSTERDOWN NOLEADER"));
        answer(&mut floors, 4, Outcome::Unknown, |replies| replies.integer(0));
        assert!(!floors.are_raised(), "it may not have been raised");
        answer(&mut floors, 5, done, |replies| replies.integer(1));
        answer(&mut floors, 4, done, |replies| replies.integer(0));
        assert!(floors.are_raised() && floors.wakeup_us() == floors.until_us);
    }
}

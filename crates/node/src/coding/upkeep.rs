//! Upkeep of fragments: reports to the other members which fragments a replica of this node lacks (`rebuilding` makes
//! them), and gives up values that were never stored.
//!
//! A fragment to which nothing refers belongs to a value that is about to be stored, or to one that never will be.
//! After a while the latter is certain enough that a record gives the value up. If its coordinator comes too late, the
//! record wins.

use super::Coding;
use crate::context::Context;
use crate::session::origin::Asked;
use crate::session::origin::Origin;
use kv::{Command, ValueId};
use protocol::{NodeId, Request};

/// How often upkeep runs.
const UPKEEP_US: u64 = 100_000;

/// A value that was not stored after its fragments came is given up after this many times as long as a client waits
/// for an outcome.
const ABANDON_TIMEOUTS: u64 = 6;

impl Coding {
    /// Whether a member of a group has, as far as this node knows, the fragment of every value that existed when its
    /// membership began. True for a group that keeps no fragments.
    pub(crate) fn has_its_fragments(
        &self,
        cx: &Context,
        group: u16,
        member: NodeId,
        membership: u64,
    ) -> bool {
        let Some(group) = cx.groups.get(group) else { return false };
        let fragments = group.replica.as_ref().and_then(|replica| replica.fragments());
        if group.coding.is_none() && !fragments.is_some_and(|fragments| fragments.has_fragments()) {
            return true;
        }
        if member == cx.configuration.node {
            return fragments.is_some_and(|fragments| fragments.fragments_lacking() == 0);
        }
        group.lacking.get(&member).is_some_and(|(of, has_all)| u64::from(*of) == membership && *has_all)
    }

    /// Turns coding on if replicas here keep fragments, although no keyspace wants its values coded any more.
    pub(crate) fn look_for_fragments(&mut self, cx: &mut Context) {
        let has_fragments = |group: &crate::groups::Group| {
            let replica = group.replica.as_ref();
            replica.and_then(|it| it.fragments()).is_some_and(|fragments| fragments.has_fragments())
        };
        if !self.is_on && cx.groups.iter().any(|(_, group)| has_fragments(group)) {
            self.begin(cx.now.monotonic_us);
        }
    }

    /// Reports to the other members which fragments a replica here lacks.
    fn send_lacks(&mut self, cx: &mut Context, id: u16) {
        let Some(group) = cx.groups.get(id) else { return };
        let Some(fragments) = group.replica.as_ref().and_then(|it| it.fragments()) else { return };
        if group.coding.is_none() && !fragments.has_fragments() {
            return;
        }
        let (lacks, own) = (fragments.lacking_report(), cx.configuration.node);
        let others: Vec<NodeId> = group.members.iter().copied().filter(|member| *member != own).collect();
        for member in others {
            self.send(cx, id, member, &lacks);
        }
    }

    pub(super) fn coding_upkeep(&mut self, cx: &mut Context) {
        let now_us = cx.now.monotonic_us;
        if now_us < self.upkeep_us {
            let at_us = self.upkeep_us;
            return self.wake_at(at_us);
        }
        self.probe_round_trips(cx);
        self.rebuilding_tick(cx);
        self.silent.retain(|_, until_us| *until_us > now_us);
        self.upkeep_us = now_us + UPKEEP_US;
        self.wake_at(now_us + UPKEEP_US);
        let mut place = 0;
        while let Some(id) = cx.groups.id_at(place) {
            place += 1;
            self.send_lacks(cx, id);
            let replica = cx.groups.get(id).and_then(|group| group.replica.as_ref());
            let Some(fragments) = replica.and_then(|replica| replica.fragments()) else { continue };
            let abandon_after_ms = ABANDON_TIMEOUTS * cx.configuration.command_timeout_ms;
            let abandoned = fragments.to_be_abandoned(cx.now, abandon_after_ms);
            for ValueId { coordinator, counter } in abandoned {
                let deadline_us = cx.now.monotonic_us + cx.configuration.command_timeout_ms * 1000;
                let asked = Asked {
                    ticket: Origin::Unawaited.ticket(0),
                    follows: false,
                    seen: u64::MAX,
                    deadline_us,
                    hops: 0,
                    leadership: 0,
                };
                cx.submit(id, asked, &Request::Command(&Command::Abandon { coordinator, counter }));
            }
        }
    }
}

//! The control group of a schedule: it keeps the map, promises leases, appoints leaders and grants requests. Its messages
//! arrive late, out of order or never.

use super::Event;
use crate::kit::Consequences;
use crate::kit::schedule::{Check, Schedule};
use crate::leader_follower::LeaderFollower;
use protocol::contract::NodeId;
use protocol::leader_follower::Acks;
use protocol::{ControlRequest, Replica as _};
use std::collections::BTreeMap;

/// The longest lease, on the node's clock.
const LEASE_US: u64 = 300_000;
/// How long the control group keeps its promise, on its own clock: clocks may drift by a tenth.
const PROMISE_US: u64 = 330_000;

/// A rule that the control group could break. The search must find each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// A leader is appointed while the lease of the one before holds.
    AppointsTooEarly,
    /// A lease counts at a node that does not know yet that it no longer leads.
    LeasesOnAnOldMap,
    /// With `acks = all`, a leader is appointed from outside the in-sync set.
    AppointsOutsideInSync,
    /// A request is granted though the group has changed since it was made.
    GrantsStaleRequests,
}

/// A lease on its way to a node.
struct Lease {
    to: NodeId,
    until_us: u64,
    /// The version of the map that it belongs to.
    version: u64,
}

#[derive(Default)]
pub(super) struct Control {
    /// Until when no other leader replaces a node.
    promised_us: BTreeMap<NodeId, u64>,
    leases: Vec<Lease>,
    /// Requests on their way, each with the version of the map that its leader knew.
    requests: Vec<(u64, ControlRequest)>,
    /// Requests that were handled, to be repeated.
    repeated: Vec<(u64, ControlRequest)>,
    /// The version in which the group changed last, and the one in which its leadership did.
    changed: u64,
    appointed: u64,
    /// Whether the leader must stop leading.
    deposing: bool,
    breach: Option<Breach>,
}

impl Control {
    pub(super) fn new(breach: Option<Breach>) -> Control {
        Control { breach, ..Control::default() }
    }

    pub(super) fn receive(&mut self, requests: Vec<(u64, ControlRequest)>) {
        self.requests.extend(requests);
    }

    pub(super) fn depose(&mut self) {
        self.deposing = true;
    }
}

impl Schedule<LeaderFollower> {
    /// The control group does what is due, with high probability; in peace all of it.
    pub(super) fn control(&mut self) -> Check {
        let prompt = self.is_calm;
        let pause_us = if prompt { 50_000 } else { self.random.below(60_000) };
        self.own_later(pause_us, Event::Control);
        for id in self.world.alive() {
            let is_deposed = self.own.control.deposing && id == self.world.configuration.leader;
            if !is_deposed && (prompt || self.random.percent(70)) {
                self.promise(id);
            }
        }
        while !self.own.control.leases.is_empty() && (prompt || self.random.percent(70)) {
            self.deliver_lease()?;
        }
        while !self.own.control.requests.is_empty() && (prompt || self.random.percent(30)) {
            self.take_request();
        }
        if !prompt && self.random.percent(20) {
            self.take_repeated_request();
        }
        self.appoint_if_due(prompt)?;
        for id in self.world.alive() {
            if self.world.version_sent(id) < self.world.version && (prompt || self.random.percent(40)) {
                self.configure(id)?;
            }
        }
        Ok(())
    }

    /// Notes a change of the map.
    fn change_map(&mut self, appoints: bool) {
        self.world.version += 1;
        self.own.control.changed = self.world.version;
        if appoints {
            self.own.control.appointed = self.world.version;
        }
    }

    fn promise(&mut self, id: NodeId) {
        let until_us = self.world.now(id).monotonic_us + LEASE_US - self.random.below(50_000);
        let kept_us = self.world.time_us + PROMISE_US;
        let promised_us = self.own.control.promised_us.entry(id).or_default();
        *promised_us = kept_us.max(*promised_us);
        self.own.control.leases.push(Lease { to: id, until_us, version: self.own.control.appointed });
    }

    fn deliver_lease(&mut self) -> Check {
        let index = self.random.below(self.own.control.leases.len() as u64) as usize;
        let Lease { to, until_us, version } = self.own.control.leases.swap_remove(index);
        // A node with an older map may believe that it still leads.
        let is_current = self.world.version_sent(to) >= version;
        if is_current || self.own.control.breach == Some(Breach::LeasesOnAnOldMap) {
            self.tell(|| format!("{to} gets a lease until {until_us}"));
            let consequences = self.world.lease(to, until_us);
            return self.note(to, None, consequences);
        }
        Ok(())
    }

    fn take_request(&mut self) {
        let index = self.random.below(self.own.control.requests.len() as u64) as usize;
        let request = self.own.control.requests.swap_remove(index);
        self.own.control.repeated.push(request.clone());
        self.grant(request);
    }

    /// Handles again a request that was handled before.
    fn take_repeated_request(&mut self) {
        let count = self.own.control.repeated.len() as u64;
        if count > 0 {
            let request = self.own.control.repeated.swap_remove(self.random.below(count) as usize);
            self.grant(request);
        }
    }

    fn grant(&mut self, (version, request): (u64, ControlRequest)) {
        let (epoch, in_sync) = match request {
            ControlRequest::InSync { epoch, in_sync } => (epoch, in_sync),
            ControlRequest::Resign { epoch, to } => return self.take_resignation(epoch, to),
        };
        let is_stale = version < self.own.control.changed
            && self.own.control.breach != Some(Breach::GrantsStaleRequests);
        let configuration = &mut self.world.configuration;
        if epoch != configuration.epoch || is_stale || in_sync == configuration.in_sync {
            return;
        }
        configuration.in_sync = in_sync;
        self.change_map(false);
        self.tell(|| format!("the map says {:?}", self.world.configuration));
        self.own.oracle.needed = self.own.oracle.needed.min(self.own.acks.needed(&self.world.configuration));
    }

    /// The leader of an epoch answers nothing more in it: the next one begins, whatever leases there are. However late the
    /// request, it means that epoch.
    fn take_resignation(&mut self, epoch: u64, to: NodeId) {
        let configuration = &self.world.configuration;
        if epoch != configuration.epoch {
            return;
        }
        let before = configuration.leader;
        let is_eligible = self.own.acks != Acks::All || configuration.in_sync.contains(&to);
        let is_chosen = is_eligible && self.random.percent(90);
        // The promises hold for the epoch that is over; those made to the next leader are its own.
        self.own.control.deposing = false;
        self.appoint(if is_chosen { to } else { before });
    }

    /// A leader begins to hand over to another member.
    pub(super) fn hand_over(&mut self) -> Check {
        let id = self.world.configuration.leader;
        let to = self.random.percent(70).then(|| self.any_node());
        if !self.world.is_alive(id) {
            return Ok(());
        }
        self.tell(|| format!("{id} is to hand over to {to:?}"));
        let consequences = self.world.act(id, |replica, now, _| {
            replica.hand_over(now, to);
        });
        self.note(id, None, consequences)
    }

    /// Appoints another leader when the present one must not lead or is dead, and its lease has run out.
    fn appoint_if_due(&mut self, prompt: bool) -> Check {
        let leader = self.world.configuration.leader;
        let is_gone = !self.world.is_alive(leader);
        if !(self.own.control.deposing || is_gone && (prompt || self.random.percent(20))) {
            return Ok(());
        }
        let promised_us = self.own.control.promised_us.get(&leader).copied().unwrap_or(0);
        let is_early = self.world.time_us < promised_us;
        let is_hasty = self.own.control.breach == Some(Breach::AppointsTooEarly) && !is_gone;
        if is_early && !is_hasty {
            return Ok(());
        }
        let is_bound =
            self.own.acks == Acks::All && self.own.control.breach != Some(Breach::AppointsOutsideInSync);
        let candidates: Vec<NodeId> = match is_bound {
            true => self.world.configuration.in_sync.clone(),
            false => self.world.members().collect(),
        };
        let mut alive: Vec<NodeId> = candidates.into_iter().filter(|id| self.world.is_alive(*id)).collect();
        if self.random.percent(90) {
            alive.retain(|id| self.is_connected(*id));
        }
        let Some(next) = self.random.pick(&alive) else { return Ok(()) };
        self.own.control.deposing = false;
        self.appoint(next);
        match self.random.percent(80) {
            true => self.configure(next),
            false => Ok(()),
        }
    }

    /// Whether a node can talk to enough others to get anything done.
    fn is_connected(&self, id: NodeId) -> bool {
        let is_cut = |peer: NodeId| self.cut.contains(&(id, peer)) || self.cut.contains(&(peer, id));
        let reached = self.world.alive().into_iter().filter(|peer| !is_cut(*peer)).count();
        reached > self.world.members().count() / 2
    }

    fn configure(&mut self, id: NodeId) -> Check {
        self.tell(|| format!("{id} gets {:?}", self.world.configuration));
        let consequences = self.world.configure(id);
        self.note(id, None, consequences)
    }

    /// Admits a node that has started, and sends it the configuration.
    pub(super) fn admit(&mut self, id: NodeId) -> Consequences {
        let mut consequences = Consequences::default();
        let is_damaged = self.own.damaged.contains(&id);
        let configuration = &self.world.configuration;
        if self.world.version_sent(id) == 0 {
            // The group begins.
        } else if id == configuration.leader {
            // It may learn late that its new incarnation needs a new epoch, if its records hold the old one.
            if self.own.keeps_records && !is_damaged && self.random.percent(30) {
                consequences = self.world.configure(id);
            }
            self.appoint(id);
        } else if is_damaged && configuration.in_sync.contains(&id) && self.random.percent(50) {
            self.world.configuration.in_sync.retain(|member| *member != id);
            self.own.oracle.needed =
                self.own.oracle.needed.min(self.own.acks.needed(&self.world.configuration));
            self.change_map(false);
        }
        consequences.and(self.world.configure(id))
    }

    /// Makes a node the leader, in an epoch of its own.
    fn appoint(&mut self, leader: NodeId) {
        let configuration = &mut self.world.configuration;
        configuration.epoch += 1;
        configuration.leader = leader;
        // A dead member need not be waited for: if it leaves the set, the other members lose nothing.
        if !configuration.in_sync.contains(&leader) {
            configuration.in_sync.push(leader);
            configuration.in_sync.sort_unstable();
        }
        self.change_map(true);
        self.tell(|| format!("the map says {:?}", self.world.configuration));
        self.own.forget_promises();
    }
}

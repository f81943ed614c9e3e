//! The control group of a schedule: it sends nodes the group's configurations late, in any order, and some never. It
//! also handles lost and rolled-back disks, which only it can repair: by removing the node and adding it again.

use super::{Configure, incarnations_in_backup, is_known};
use crate::consensus::Consensus;
use crate::kit::schedule::{Check, Schedule};
use protocol::Replica as _;
use protocol::contract::{Configuration, NodeId};

impl Schedule<Consensus> {
    fn newest(&self) -> &Configuration {
        self.own.configurations.last().expect("a group has a configuration")
    }

    /// Whether most of the newest configuration's members have begun it.
    fn is_settled(&self) -> bool {
        let newest = self.newest();
        // A member that gets a later configuration before it has begun the first one, durably, never begins it.
        if newest.epoch == 1 && newest.members.iter().any(|id| self.world.durable(*id) < 2) {
            return false;
        }
        let has_begun = |id: &&NodeId| {
            self.world.status(**id).is_some_and(|status| u64::from(status.configuration) == newest.epoch)
        };
        newest.members.iter().filter(has_begun).count() > newest.members.len() / 2
    }

    /// Changes the group by one member, with some probability.
    pub(super) fn change_members(&mut self) -> Check {
        let members = self.newest().members.clone();
        let is_settled = self.is_settled();
        let spoiled = self.own.spoiled.filter(|id| members.contains(id));
        let is_first = self.own.configurations.len() == 1;
        if !is_settled && (is_first || self.own.spoiled.is_some() || self.random.percent(90)) {
            return Ok(());
        }
        if self.own.spoiled.is_some() && spoiled.is_none() {
            self.own.spoiled = None; // It was removed: whatever its disk holds, it may be added again.
        }
        let spares: Vec<NodeId> = self.world.members().filter(|id| !members.contains(id)).collect();
        let adds = spoiled.is_none() && (members.len() == 1 || self.random.percent(55));
        match adds {
            true if spares.is_empty() => Ok(()),
            true => {
                let id = spares[self.random.below(spares.len() as u64) as usize];
                // The node may have discarded its data when it was removed.
                if is_settled && self.world.is_alive(id) && self.random.percent(40) {
                    self.crash(id)?;
                    self.tell(|| format!("{id} forgets the group"));
                    self.world.wipe(id);
                    self.start(id)?;
                }
                self.decree(members.into_iter().chain([id]).collect())
            }
            false => {
                let some = members[self.random.below(members.len() as u64) as usize];
                let removed = spoiled.unwrap_or(some);
                self.decree(members.into_iter().filter(|id| *id != removed).collect())
            }
        }
    }

    /// Decides a new configuration, which all nodes get, at some time.
    fn decree(&mut self, mut members: Vec<NodeId>) -> Check {
        members.sort_unstable();
        let epoch = self.newest().epoch + 1;
        self.tell(|| format!("configuration {epoch} is to be {members:?}"));
        let configuration = Configuration {
            epoch,
            leader: members[0],
            members: members.clone(),
            in_sync: members,
            is_given_up: false,
        };
        self.own.configurations.push(configuration);
        for id in self.world.members() {
            if self.is_calm || self.random.percent(85) {
                let delay_us = self.random.below(300_000);
                self.own_later(delay_us, Configure { id, which: self.own.configurations.len() - 1 });
            }
        }
        Ok(())
    }

    pub(super) fn configure(&mut self, id: NodeId, which: usize) -> Check {
        let configuration = self.own.configurations[which].clone();
        if !self.world.is_alive(id) && self.is_calm {
            self.start(id)?;
        }
        self.tell(|| format!("{id} gets configuration {}", configuration.epoch));
        let is_first = self.world.is_unused(id);
        let consequences = self.world.configure_as(id, &configuration);
        self.note(id, None, consequences)?;
        if is_first && !self.world.is_alive(id) {
            self.start(id)?;
        }
        Ok(())
    }

    /// Sends a node some configuration again, an old one as likely as the newest.
    pub(super) fn tell_again(&mut self) -> Check {
        let id = self.any_node();
        let which = self.random.below(self.own.configurations.len() as u64) as usize;
        self.own_later(10, Configure { id, which });
        Ok(())
    }

    /// Loses or rolls back a node's disk: of one node only, as no group survives the loss of more than a minority. A
    /// member that does not know the node's identity cannot notice that it is a new one: so all other members must know
    /// it.
    pub(super) fn spoil(&mut self, id: NodeId) -> Check {
        let members = self.newest().members.clone();
        let may_be =
            self.own.spoiled.is_none() && self.is_settled() && members.len() > 2 && members.contains(&id);
        if !may_be {
            return Ok(());
        }
        // A rolled-back disk begins one incarnation more than its backup had: the other members must know that
        // incarnation.
        let incarnations = incarnations_in_backup(&self.world, id);
        match (self.own.loses_disks, incarnations) {
            (true, _) if is_known(&self.world, id, 0, &members) => {
                self.crash(id)?;
                self.tell(|| format!("{id} loses its disk"));
                self.world.wipe(id);
            }
            (false, Some(incarnations)) if is_known(&self.world, id, incarnations + 1, &members) => {
                self.crash(id)?;
                self.tell(|| format!("{id} is rolled back"));
                self.world.lose_disk(id);
            }
            _ => return Ok(()),
        }
        self.own.spoiled = Some(id);
        // The leader could send the node what it has forgotten before another node asks for its vote: so the leader may
        // crash first.
        let leads = |peer: &NodeId| self.world.replica(*peer).is_some_and(|replica| replica.is_leader());
        if let Some(leader) = self.world.alive().into_iter().find(leads)
            && self.random.percent(50)
        {
            self.crash(leader)?;
        }
        self.start(id)
    }

    /// A leader is to let another member lead, or whichever has most.
    pub(super) fn hand_over(&mut self) -> Check {
        let leads = |id: &NodeId| self.world.replica(*id).is_some_and(|replica| replica.is_leader());
        let Some(leader) = self.world.alive().into_iter().find(leads) else { return Ok(()) };
        let to = if self.random.percent(50) { Some(self.any_node()) } else { None };
        self.tell(|| format!("{leader} is to hand over to {to:?}"));
        let consequences = self.world.act(leader, |replica, now, _| {
            replica.hand_over(now, to);
        });
        self.note(leader, None, consequences)
    }

    /// In peace the control group repairs a spoiled disk: it removes the node and adds it again.
    pub(super) fn mend(&mut self) -> Check {
        let Some(id) = self.own.spoiled.filter(|_| self.is_settled()) else { return Ok(()) };
        let members = self.newest().members.clone();
        if members.contains(&id) {
            return self.decree(members.into_iter().filter(|member| *member != id).collect());
        }
        self.own.spoiled = None;
        self.decree(members.into_iter().chain([id]).collect())
    }

    /// In peace all nodes get the newest configuration.
    pub(super) fn send_to_all(&mut self) -> Check {
        let newest = self.own.configurations.len() - 1;
        self.world.members().try_for_each(|id| self.configure(id, newest))
    }

    /// Whether the newest configuration has begun, and its members are equal.
    pub(super) fn is_whole(&self) -> bool {
        let newest = self.newest();
        let members = || newest.members.iter().copied();
        let statuses: Vec<_> = members().filter_map(|id| self.world.status(id)).collect();
        let replicas = members().filter_map(|id| self.world.replica(id));
        let mut digests: Vec<u64> = replicas.map(|replica| replica.table().digest()).collect();
        let mut offsets: Vec<u64> =
            statuses.iter().flat_map(|status| [status.offset, status.applied]).collect();
        digests.dedup();
        offsets.dedup();
        let is_in = |epoch: u32| u64::from(epoch) == newest.epoch;
        self.own.spoiled.is_none()
            && statuses.len() == newest.members.len()
            && statuses.iter().all(|status| status.ready && status.voter && is_in(status.configuration))
            && digests.len() == 1
            && offsets.len() == 1
    }
}

//! What goes wrong in a schedule: the network, the links, the nodes, and what the control group does about it.

use super::{Check, Schedule};
use crate::kit::{Letter, show};
use crate::leader_follower::LeaderFollower;
use protocol::Ticket;
use protocol::contract::NodeId;
use protocol::leader_follower::Acks;

impl Schedule {
    // The network.

    /// A letter stays on its way for long, or one that did goes on.
    pub(super) fn delay(&mut self) {
        let count = self.world.network.len() as u64;
        if count > 0 {
            let letter = &mut self.world.network[self.random.below(count) as usize];
            letter.held = !letter.held;
            let line = format!(
                "  {} {}",
                if letter.held { "delay" } else { "go on" },
                show::letter::<LeaderFollower>(letter)
            );
            self.tell(&line);
        }
    }

    /// Letters that fit stay on their way until [`Schedule::delay`] happens to let them go on.
    pub(super) fn hold(&mut self, fits: impl Fn(&Letter) -> bool) {
        self.world.network.iter_mut().filter(|letter| fits(letter)).for_each(|letter| letter.held = true);
    }

    pub(super) fn lose(&mut self) {
        let count = self.world.network.len() as u64;
        if count > 0 {
            let letter = self.world.network.remove(self.random.below(count) as usize);
            self.tell(&format!("  lose {}", show::letter::<LeaderFollower>(&letter)));
        }
    }

    pub(super) fn duplicate(&mut self) {
        let count = self.world.network.len() as u64;
        if count > 0 {
            let letter = self.world.network[self.random.below(count) as usize].clone();
            self.tell(&format!("  duplicate {}", show::letter::<LeaderFollower>(&letter)));
            self.world.network.push(letter);
        }
    }

    // Links and nodes.

    /// All nodes say that they reach all others.
    pub(super) fn reach_all(&mut self) {
        for id in self.world.alive().into_iter().filter(|_| self.reach.is_some()) {
            for peer in self.world.members().filter(|peer| *peer != id) {
                self.world.reach(id, peer, true);
            }
        }
    }

    /// A node says of a peer that it reaches it, or does not.
    pub(super) fn reach_or_not(&mut self, id: NodeId) {
        let Some(reach) = &mut self.reach else { return };
        let members: Vec<NodeId> = self.world.members().filter(|peer| *peer != id).collect();
        if reach.percent(30)
            && let Some(peer) = reach.pick(&members)
        {
            let is_reached = reach.percent(80);
            self.world.reach(id, peer, is_reached);
            self.tell(&format!("{id} {} {peer}", if is_reached { "reaches" } else { "misses" }));
        }
    }

    pub(super) fn cut_or_mend(&mut self) -> Check {
        let members: Vec<NodeId> = self.world.members().collect();
        let (Some(one), Some(other)) = (self.random.pick(&members), self.random.pick(&members)) else {
            return Ok(());
        };
        if one == other {
            return Ok(());
        }
        let up = self.world.is_cut(one, other);
        self.set_link(one, other, up)
    }

    /// All links are mended; then, mostly, one node loses its links to all others.
    pub(super) fn isolate_or_rejoin(&mut self) -> Check {
        self.mend_all()?;
        let members: Vec<NodeId> = self.world.members().collect();
        match self.random.pick(&members).filter(|_| self.random.percent(70)) {
            Some(id) => members
                .into_iter()
                .filter(|peer| *peer != id)
                .try_for_each(|peer| self.set_link(id, peer, false)),
            None => Ok(()),
        }
    }

    pub(super) fn mend_all(&mut self) -> Check {
        let members: Vec<NodeId> = self.world.members().collect();
        for one in &members {
            for other in members.iter().filter(|other| *other > one) {
                if self.world.is_cut(*one, *other) {
                    self.set_link(*one, *other, true)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a node can talk to enough others to get anything done.
    pub(super) fn is_connected(&self, id: NodeId) -> bool {
        let members = self.world.members().count();
        let reached = self.world.alive().into_iter().filter(|peer| !self.world.is_cut(id, *peer)).count();
        reached > members / 2
    }

    pub(super) fn set_link(&mut self, one: NodeId, other: NodeId, up: bool) -> Check {
        self.tell(&format!("link {one}-{other} {}", if up { "up" } else { "down" }));
        // What is under way on a link that breaks is lost, or arrives much later.
        let late = self.random.percent(self.trouble.ghosts);
        let is_on_it = |letter: &Letter| letter.ends() == (one.min(other), one.max(other));
        match (up, late) {
            (true, _) => {}
            (false, true) => self.hold(is_on_it),
            (false, false) => self.world.network.retain(|letter| !is_on_it(letter)),
        }
        self.world.set_link(one, other, up);
        // A broken link is not always noticed; a new one always is.
        if up || self.random.percent(self.trouble.noticed) {
            let consequences = self.world.hint(one, other, up);
            self.note(one, consequences)?;
            let consequences = self.world.hint(other, one, up);
            self.note(other, consequences)?;
        }
        Ok(())
    }

    /// How many replicas may be without memory at once.
    fn survives(&self) -> usize {
        let others = self.world.members().count() - 1;
        match self.acks {
            Acks::None => others, // Loses what it must, and says so; the rest must hold all the same.
            _ => self.acks.needed(&self.world.configuration),
        }
    }

    fn may_crash(&self, id: NodeId) -> bool {
        let matters = |id: &NodeId| self.acks != Acks::All || self.world.configuration.in_sync.contains(id);
        let mut without = self.damaged.clone();
        without.insert(id);
        without.iter().filter(|id| matters(id)).count() <= self.survives()
    }

    pub(super) fn crash_or_restart(&mut self) -> Check {
        let members: Vec<NodeId> = self.world.members().collect();
        let Some(id) = self.random.pick(&members) else { return Ok(()) };
        if !self.world.is_alive(id) {
            return self.restart(id);
        }
        let loses_memory = !self.keeps_records || self.random.percent(self.trouble.wipe);
        match !loses_memory || self.may_crash(id) {
            true => self.crash(id, loses_memory),
            false => Ok(()),
        }
    }

    /// The power fails everywhere.
    pub(super) fn blackout(&mut self) -> Check {
        if self.keeps_records {
            for id in self.world.alive() {
                self.crash(id, false)?;
            }
        }
        Ok(())
    }

    pub(super) fn crash(&mut self, id: NodeId, loses_memory: bool) -> Check {
        self.tell(&format!("{id} crashes{}", if loses_memory { " and loses its memory" } else { "" }));
        let unsynced = self.world.written(id) - self.world.durable(id);
        let kept = self.random.below(1 + unsynced);
        self.world.crash(id, kept);
        if self.random.percent(self.trouble.ghosts) {
            self.hold(|letter| letter.from == id);
        }
        if loses_memory {
            self.world.wipe(id);
            self.damaged.insert(id);
        }
        let lost: Vec<Ticket> =
            self.asked_at.iter().filter(|(_, node)| **node == id).map(|(ticket, _)| *ticket).collect();
        for ticket in lost {
            self.oracle.lose(ticket);
            self.asked_at.remove(&ticket);
            self.clients[ticket.client as usize].waiting.remove(&ticket.sequence);
        }
        if id == self.world.configuration.leader {
            self.oracle.forget_promises();
            self.clients.iter_mut().filter(|_| self.acks == Acks::None).for_each(|client| client.seen = 0);
        }
        for peer in self.world.alive() {
            if self.random.percent(50) {
                let consequences = self.world.hint(peer, id, false);
                self.note(peer, consequences)?;
            }
        }
        Ok(())
    }

    pub(super) fn restart(&mut self, id: NodeId) -> Check {
        self.tell(&format!("{id} restarts"));
        self.world.restart(id);
        let configuration = &mut self.world.configuration;
        if id == configuration.leader {
            // It may hear late that its new life needs a new epoch, if its records tell it of the old one.
            if self.keeps_records && !self.damaged.contains(&id) && self.random.percent(30) {
                self.configure(id)?;
            }
            self.appoint(id);
        } else if self.damaged.contains(&id) && configuration.in_sync.contains(&id) && self.random.percent(50)
        {
            configuration.in_sync.retain(|member| *member != id);
            self.oracle.needed = self.oracle.needed.min(self.acks.needed(&self.world.configuration));
            self.change_map(false);
        }
        self.configure(id)?;
        for peer in self.world.alive().into_iter().filter(|peer| *peer != id) {
            if !self.world.is_cut(id, peer) {
                self.set_link(id, peer, true)?;
            }
        }
        Ok(())
    }

    pub(super) fn configure(&mut self, id: NodeId) -> Check {
        self.tell(&format!("{id} is told {:?}", self.world.configuration));
        let consequences = self.world.configure(id);
        self.note(id, consequences)
    }
}

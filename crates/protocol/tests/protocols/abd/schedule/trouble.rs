//! What goes wrong in a schedule.

use super::{Check, Records, Schedule};
use crate::abd::Abd;
use crate::kit::Letter;
use protocol::contract::NodeId;

impl Schedule {
    fn any_letter(&mut self) -> Option<usize> {
        let moving: Vec<usize> =
            (0..self.world.network.len()).filter(|index| !self.world.network[*index].held).collect();
        self.random.pick(&moving)
    }

    pub(super) fn lose(&mut self) {
        if let Some(index) = self.any_letter() {
            self.world.network.remove(index);
        }
    }

    pub(super) fn duplicate(&mut self) {
        if let Some(index) = self.any_letter() {
            let copy = self.world.network[index].clone();
            self.world.network.push(copy);
        }
    }

    /// A letter, perhaps a copy of one, is kept back, or all that were are on their way again.
    pub(super) fn delay(&mut self) {
        if self.random.percent(30) {
            self.world.network.iter_mut().for_each(|letter| letter.held = false);
        } else if let Some(index) = self.any_letter() {
            if self.random.percent(50) {
                let copy = self.world.network[index].clone();
                self.world.network.push(copy);
            }
            self.world.network[index].held = true;
        }
    }

    fn pair(&mut self) -> Option<(NodeId, NodeId)> {
        let members: Vec<NodeId> = self.world.members().collect();
        let (one, other) = (self.random.pick(&members)?, self.random.pick(&members)?);
        (one != other).then_some((one, other))
    }

    pub(super) fn cut_or_mend(&mut self) -> Check {
        match self.pair() {
            Some((one, other)) => self.set_link(one, other, self.world.is_cut(one, other)),
            None => Ok(()),
        }
    }

    pub(super) fn isolate_or_rejoin(&mut self) -> Check {
        let members: Vec<NodeId> = self.world.members().collect();
        let Some(id) = self.random.pick(&members) else { return Ok(()) };
        let up = self.random.percent(60);
        for other in members.into_iter().filter(|other| *other != id) {
            if self.world.is_cut(id, other) == up {
                self.set_link(id, other, up)?;
            }
        }
        Ok(())
    }

    pub(super) fn set_link(&mut self, one: NodeId, other: NodeId, up: bool) -> Check {
        self.tell(|| format!("link {one}-{other} {}", if up { "up" } else { "down" }));
        if !up && self.random.percent(self.trouble.ghosts) {
            // What is under way on it is not lost but arrives much later.
            self.hold(|from, to| (from, to) == (one, other) || (to, from) == (one, other));
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

    fn hold(&mut self, fits: impl Fn(NodeId, NodeId) -> bool) {
        for letter in self.world.network.iter_mut().filter(|letter| fits(letter.from, letter.to)) {
            letter.held = true;
        }
    }

    pub(super) fn crash_or_restart(&mut self) -> Check {
        let mut members: Vec<NodeId> = self.world.members().collect();
        if self.random.percent(50) && self.world.alive().len() < members.len() {
            members.retain(|id| !self.world.is_alive(*id)); // Most come back soon.
        }
        let Some(mut id) = self.random.pick(&members) else { return Ok(()) };
        if !self.world.is_alive(id) {
            return self.restart(id);
        }
        // Many crash just when they have acknowledged something, and it is still under way.
        let acknowledges = |letter: &&Letter| letter.kinds::<Abd>().contains(&"Held");
        let senders: Vec<NodeId> =
            self.world.network.iter().filter(acknowledges).map(|letter| letter.from).collect();
        if self.random.percent(50)
            && let Some(sender) = self.random.pick(&senders)
            && self.world.is_alive(sender)
        {
            id = sender;
        }
        if self.records != Records::None && self.random.percent(10) {
            for id in self.world.alive() {
                self.crash(id)?;
            }
        }
        if self.may_lose_memory(id) || self.records != Records::None { self.crash(id) } else { Ok(()) }
    }

    /// What is promised: a minority may be without memory at one time.
    fn may_lose_memory(&self, id: NodeId) -> bool {
        let mut without = self.damaged.clone();
        without.insert(id);
        without.len() < self.world.members().count().div_ceil(2)
    }

    /// What is too rare by chance is played on purpose: of all members only one gets an update, acknowledges it, and
    /// loses its memory; it refills itself before anybody else has got the update.
    pub(super) fn crash_after_acknowledging(&mut self) -> Check {
        let carries = |letter: &Letter, kind: &str| letter.kinds::<Abd>().contains(&kind);
        let updates: Vec<(NodeId, NodeId)> = self
            .world
            .network
            .iter()
            .filter(|letter| carries(letter, "Update"))
            .map(|letter| (letter.from, letter.to))
            .collect();
        let Some((coordinator, forgetful)) = self.random.pick(&updates) else { return Ok(()) };
        if !self.may_lose_memory(forgetful) || !self.world.is_alive(forgetful) {
            return Ok(());
        }
        self.tell(|| format!("{forgetful} is to acknowledge what {coordinator} writes, and forget it"));
        self.hold(|from, to| from == coordinator && to != forgetful);
        while let Some(index) = self
            .world
            .network
            .iter()
            .position(|letter| !letter.held && (letter.from, letter.to) == (coordinator, forgetful))
        {
            self.deliver(index)?;
        }
        self.flush(forgetful)?;
        self.hold(|from, to| (from, to) == (forgetful, coordinator));
        self.world.set_link(coordinator, forgetful, false); // Nobody notices.
        self.crash(forgetful)?;
        if !self.world.is_alive(forgetful) {
            self.restart(forgetful)?;
        }
        for _ in 0..40 {
            self.deliver_one()?;
            let others = self.world.alive();
            for id in others.into_iter().filter(|id| *id != coordinator) {
                self.flush(id)?;
            }
        }
        self.world.network.iter_mut().for_each(|letter| letter.held = false);
        Ok(())
    }

    pub(super) fn crash(&mut self, id: NodeId) -> Check {
        self.tell(|| format!("{id} crashes"));
        let may_lose_memory = self.may_lose_memory(id);
        let kept = match self.records {
            Records::Synced => [0, 0, 1, 5][self.random.below(4) as usize],
            Records::None | Records::Written => 0,
        };
        self.world.crash(id, kept);
        self.vouching.remove(&id);
        let keeps_memory = self.records != Records::None;
        if self.random.percent(self.trouble.lose_disk) && (may_lose_memory || !keeps_memory) {
            self.tell(|| format!("{id} loses its disk"));
            self.world.lose_disk(id);
            self.damaged.insert(id);
        }
        if !keeps_memory {
            self.damaged.insert(id);
        }
        // What it had sent arrives, or arrives much later.
        if self.random.percent(self.trouble.ghosts) {
            self.hold(|from, _| from == id);
        }
        self.clients.lose_node(id);
        for peer in self.world.alive() {
            if self.random.percent(50) {
                let consequences = self.world.hint(peer, id, false);
                self.note(peer, consequences)?;
            }
        }
        if self.random.percent(50) { self.restart(id) } else { Ok(()) }
    }

    pub(super) fn restart(&mut self, id: NodeId) -> Check {
        self.tell(|| format!("{id} restarts"));
        self.world.restart(id);
        self.configure(id)?;
        for peer in self.world.alive().into_iter().filter(|peer| *peer != id) {
            if !self.world.is_cut(id, peer) {
                self.set_link(id, peer, true)?;
            }
        }
        Ok(())
    }
}

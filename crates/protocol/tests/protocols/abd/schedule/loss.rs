//! Losses of memory that are too rare to occur by chance.

use super::{KEYS, LONG_US};
use crate::abd::Abd;
use crate::kit::Letter;
use crate::kit::schedule::{Check, Schedule};
use crate::registers::{give_up, has_memory, register};
use protocol::contract::NodeId;
use std::collections::BTreeSet;

impl Schedule<Abd> {
    /// One member gets an update before all others, acknowledges it, and loses its memory; it refills itself before any
    /// other member has got the update.
    pub(super) fn crash_after_acknowledging(&mut self) -> Check {
        let carries_update = |letter: &&Letter| letter.kinds::<Abd>().contains(&"Update");
        let updates: Vec<(NodeId, NodeId)> =
            self.under_way().filter(carries_update).map(|letter| (letter.from, letter.to)).collect();
        let Some((coordinator, forgetful)) = self.random.pick(&updates) else { return Ok(()) };
        let may_lose = self.own.memory.may_lose(&self.world, forgetful);
        if !may_lose || !self.world.is_alive(forgetful) || self.is_paused(forgetful) {
            return Ok(());
        }
        self.tell(|| format!("{forgetful} is to acknowledge what {coordinator} writes, and forget it"));
        let held_us = 10_000 + self.random.below(100_000);
        self.arrive_in(0, |letter| (letter.from, letter.to) == (coordinator, forgetful));
        self.arrive_in(held_us, |letter| letter.from == coordinator && letter.to != forgetful);
        self.run_for(0)?;
        self.flush(forgetful)?;
        self.arrive_in(held_us, |letter| (letter.from, letter.to) == (forgetful, coordinator));
        self.set_link(coordinator, forgetful, false, false)?;
        self.pause(coordinator, held_us);
        self.crash(forgetful)?;
        if self.world.is_alive(forgetful) { Ok(()) } else { self.start(forgetful) }
    }

    /// Runs the schedule. On the way a majority loses its memory, and an operator gives that up: the group continues with
    /// what the others hold, and from then on everything is as linearizable as before. Returns 0 if no majority could lose
    /// its memory.
    pub(crate) fn run_with_a_loss(mut self) -> Result<u64, String> {
        // Without its disk a node does not know how often it was started, and the members that knew have forgotten it, too.
        self.own.memory.lose_disk = 0;
        self.begin()?;
        self.go_wrong()?;
        if !self.lose_a_majority()? {
            return Ok(0);
        }
        self.go_wrong()?;
        self.heal()
    }

    /// A majority loses its memory at one moment; all these members restart, and an operator gives up what they have lost.
    fn lose_a_majority(&mut self) -> Result<bool, String> {
        self.be_calm();
        let most = (self.world.members().count() - 1) / 2;
        let ready: Vec<NodeId> = self.world.members().filter(|id| has_memory(&self.world, *id)).collect();
        if most == 0 || ready.is_empty() {
            return Ok(false);
        }
        let mut keeping = BTreeSet::new();
        for _ in 0..1 + self.random.below(most as u64) {
            keeping.extend(self.random.pick(&ready));
        }
        self.tell(|| format!("only {keeping:?} keep their memory"));
        let lost: Vec<NodeId> = self.world.members().filter(|id| !keeping.contains(id)).collect();
        lost.iter().try_for_each(|id| self.crash(*id))?;
        lost.iter().try_for_each(|id| self.start(*id))?;
        self.mend_links()?;
        self.run_for(LONG_US)?;
        if self.open_requests() > 0 {
            return Err("a request is never answered".into());
        }
        for id in self.world.members() {
            let why = self.world.status(id).map(|status| status.explanation).unwrap_or_default();
            if !why.contains("a majority of its") {
                return Err(format!("node {id} does not say that the group stands still: {why}"));
            }
        }
        let now = self.world.now(1).unix_ms;
        let held = KEYS.map(|key| {
            let held = keeping.iter().filter_map(|id| register(&self.world, *id, key));
            let newest = held.max_by_key(|register| register.version).filter(|it| it.is_live(now));
            (key, newest.map(|register| register.value.to_vec()))
        });
        self.recorder.begin_again(self.world.time_us, &held);
        for id in lost {
            let consequences = give_up(&mut self.world, id);
            self.note(id, None, consequences)?;
        }
        Ok(true)
    }
}

//! `WAIT`: how many followers hold what was written.

use super::Leader;
use super::held::NO_LEASE;
use crate::contract::{Effects, Now, Ticket};
use crate::leader_follower::state::State;
use kv::{Reply, Version};

/// A `WAIT` whose writes are committed, or need not be.
#[derive(Debug)]
pub(in crate::leader_follower) struct Wait {
    pub(in crate::leader_follower) ticket: Ticket,
    pub(in crate::leader_follower) offset: Version,
    pub(in crate::leader_follower) count: u32,
    pub(in crate::leader_follower) deadline_us: u64,
}

impl Leader {
    /// Returns how many followers hold everything up to `offset`. An absent follower does not count: it may have lost its
    /// memory.
    pub(in crate::leader_follower) fn held_by(&self, offset: Version) -> usize {
        self.followers.iter().filter(|follower| follower.is_streaming() && follower.acked >= offset).count()
    }

    pub(in crate::leader_follower) fn begin_wait(&mut self, now: Now, wait: Wait, effects: &mut Effects) {
        let held_by = self.held_by(wait.offset);
        if held_by >= wait.count as usize || wait.deadline_us <= now.monotonic_us {
            end_wait(&wait, held_by, effects);
        } else {
            self.ask |= self.needed == 0;
            self.waits.push(wait);
        }
    }

    pub(in crate::leader_follower) fn end_waits(&mut self, state: &State, now: Now, effects: &mut Effects) {
        let is_leased = state.is_leased(now);
        let mut waits = std::mem::take(&mut self.waits);
        waits.retain(|wait| {
            if !is_leased {
                let overdue = wait.deadline_us <= now.monotonic_us;
                overdue.then(|| effects.refuse(wait.ticket, NO_LEASE));
                return !overdue;
            }
            let held_by = self.held_by(wait.offset);
            let ends = held_by >= wait.count as usize || wait.deadline_us <= now.monotonic_us;
            if ends {
                end_wait(wait, held_by, effects);
            }
            !ends
        });
        self.waits = waits;
    }
}

fn end_wait(wait: &Wait, held_by: usize, effects: &mut Effects) {
    let start = effects.replies.len();
    effects.replies.push(Reply::Integer(held_by as i64));
    effects.done(wait.ticket, start, 0, 0);
}

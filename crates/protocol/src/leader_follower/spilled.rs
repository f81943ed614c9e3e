//! Values on the disk: what a replica requests from the store that keeps them.
//!
//! Each replica moves the values that it applies to the disk by itself ([`kv::table::Spilled`]), and its checkpoints hold
//! references. A snapshot transfer carries the values themselves, after the entries that refer to them: a chunk waits until
//! they are loaded.
//!
//! Only committed records are applied, so a history that is cut off never put a value on the disk. If a replica has
//! nevertheless applied records that are not in its leader's history (`acks = none`), the whole table is replaced, and
//! values that only the old table referred to are released.

use super::follower::Follower;
use super::leader::Leader;
use super::leader::serving::Service;
use super::state::State;
use super::transfer::{Receiver, Sender};
use super::{Replica, Role};
use crate::contract::{Effects, Now, SpilledValues};
use kv::table::Spilled;
use kv::{Reference, Table};

/// Why a snapshot transfer is abandoned.
const LOST: &str = "a value that belongs to it cannot be read";

impl SpilledValues for Replica {
    #[inline]
    fn take_spilled(&mut self) -> Option<Spilled> {
        let mut news = self.state.table.take_spilled();
        let replayed = self.state.replayed.as_mut().map(|replayed| &mut replayed.snapshot.table);
        let received = match &mut self.role {
            Role::Follower(follower) => follower.receiver_mut().and_then(Receiver::table_mut),
            Role::Recovery(recovery) => recovery.receiver_mut().and_then(Receiver::table_mut),
            Role::Leader(_) | Role::Idle => None,
        };
        for table in replayed.into_iter().chain(received) {
            if let Some(more) = table.take_spilled() {
                news.get_or_insert_default().append(more);
            }
        }
        news
    }

    fn refers_to(&self, reference: &Reference) -> bool {
        self.tables().any(|table| table.refers_to(reference))
    }

    fn spilled(&self) -> Vec<Reference> {
        self.tables().flat_map(Table::spilled).collect()
    }

    fn sends_snapshots(&self) -> bool {
        match &self.role {
            Role::Leader(leader) => leader.senders().next().is_some(),
            Role::Follower(follower) => follower.sender().is_some(),
            Role::Recovery(_) | Role::Idle => false,
        }
    }

    fn wanted_values(&mut self) -> Vec<Reference> {
        let mut wanted = Vec::new();
        match &mut self.role {
            Role::Leader(leader) => {
                leader.senders_mut().for_each(|sender| sender.chunks.take_wanted(&mut wanted));
            }
            Role::Follower(follower) => {
                follower.sender_mut().into_iter().for_each(|sender| sender.chunks.take_wanted(&mut wanted));
            }
            Role::Recovery(_) | Role::Idle => {}
        }
        wanted
    }

    fn take_value(&mut self, now: Now, reference: Reference, value: Option<&[u8]>, effects: &mut Effects) {
        let state = &mut self.state;
        match &mut self.role {
            Role::Leader(leader) => leader.take_value(state, now, reference, value, effects),
            Role::Follower(follower) => follower.take_value(state, now, reference, value, effects),
            Role::Recovery(_) | Role::Idle => {}
        }
    }
}

impl Replica {
    fn tables(&self) -> impl Iterator<Item = &Table> {
        let replayed = self.state.replayed.as_ref().map(|replayed| &replayed.snapshot.table);
        let received = match &self.role {
            Role::Follower(follower) => follower.receiver().and_then(Receiver::table),
            Role::Recovery(recovery) => recovery.receiver().and_then(Receiver::table),
            Role::Leader(_) | Role::Idle => None,
        };
        [Some(&self.state.table), replayed, received].into_iter().flatten()
    }
}

impl Leader {
    fn senders(&self) -> impl Iterator<Item = &Sender> {
        self.followers.iter().filter_map(|follower| match &follower.service {
            Service::Snapshot(sender) => Some(sender),
            Service::Absent | Service::Streaming { .. } => None,
        })
    }

    fn senders_mut(&mut self) -> impl Iterator<Item = &mut Sender> {
        self.followers.iter_mut().filter_map(|follower| match &mut follower.service {
            Service::Snapshot(sender) => Some(sender),
            Service::Absent | Service::Streaming { .. } => None,
        })
    }

    fn take_value(
        &mut self,
        state: &mut State,
        now: Now,
        reference: Reference,
        value: Option<&[u8]>,
        effects: &mut Effects,
    ) {
        let Some(value) = value else {
            for follower in &mut self.followers {
                if matches!(&follower.service, Service::Snapshot(sender) if sender.chunks.lacks(&reference)) {
                    follower.leave(LOST, state, effects); // The follower will join again.
                }
            }
            return;
        };
        let mut goes_on = false;
        self.senders_mut().for_each(|sender| goes_on |= sender.chunks.take_value(now, reference, value));
        if goes_on {
            self.flush(state, now, effects);
        }
    }
}

impl Follower {
    fn take_value(
        &mut self,
        state: &mut State,
        now: Now,
        reference: Reference,
        value: Option<&[u8]>,
        effects: &mut Effects,
    ) {
        let Some(sender) = self.sender_mut().filter(|sender| sender.chunks.lacks(&reference)) else { return };
        match value {
            None => self.stop_sending(state, LOST, effects),
            Some(value) => {
                if sender.chunks.take_value(now, reference, value) {
                    self.flush(state, now, effects);
                }
            }
        }
    }
}

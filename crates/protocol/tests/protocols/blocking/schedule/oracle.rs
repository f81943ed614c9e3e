//! What must hold after every step of a replica, besides the histories of clients.

use crate::blocking::{Blocking, World, show};
use crate::kit::Letter;
use crate::kit::schedule::Check;
use crate::registers;
use kv::Register;
use protocol::blocking::{Ask, Items, Lock, Message};
use protocol::contract::NodeId;
use std::collections::BTreeMap;

/// The bits of an attempt's number below those that name its coordinator's incarnation.
const ATTEMPT_BITS: u32 = 40;

/// Remembers what replicas have shown.
pub(crate) struct Oracle {
    /// Whether to check locks and registers too, not only the answers to clients.
    looks_inside: bool,
    locks: BTreeMap<NodeId, Vec<(Vec<u8>, Lock)>>,
    /// The newest incarnation of each node.
    incarnations: BTreeMap<NodeId, u64>,
    /// The value of each tag of each key.
    written: BTreeMap<(String, u64), Vec<u8>>,
    /// The tag under which each replica holds each key.
    versions: BTreeMap<(NodeId, String), u64>,
    keys: Vec<String>,
}

impl Oracle {
    pub(crate) fn new(keys: Vec<String>, looks_inside: bool) -> Oracle {
        Oracle {
            looks_inside,
            locks: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            written: BTreeMap::new(),
            versions: BTreeMap::new(),
            keys,
        }
    }

    /// Handles a node that is about to lose its memory, including the locks that it has granted.
    pub(crate) fn crash(&mut self, id: NodeId) {
        self.locks.remove(&id);
        self.versions.retain(|(replica, _), _| *replica != id);
    }

    /// Checks a replica after its step; `letter` is the message that it took.
    pub(crate) fn look(&mut self, world: &World, id: NodeId, letter: Option<&Letter>) -> Check {
        if let Some(status) = world.status(id) {
            let life = self.incarnations.entry(id).or_default();
            *life = (*life).max(status.incarnation.into());
        }
        if !self.looks_inside || !world.is_alive(id) {
            return Ok(());
        }
        let now_us = world.now(id).monotonic_us;
        let after = show::locks(world, id);
        let before = self.locks.insert(id, after.clone()).unwrap_or_default();
        for (key, lock) in &before {
            let is_there = after.iter().any(|(other, now)| other == key && now.grant == lock.grant);
            let has_expired = lock.expires_us <= now_us;
            let is_own = lock.holder.node == id;
            // A coordinator that has begun another incarnation holds nothing any more.
            let life = self.incarnations.get(&lock.holder.node).copied().unwrap_or(0);
            let is_over = life > lock.holder.attempt >> ATTEMPT_BITS;
            if !is_there && !has_expired && !is_own && !is_over && !is_released(letter, key, lock) {
                return Err(format!("{id} freed {} without its holder", show::lock(key, lock, now_us)));
            }
        }
        for key in self.keys.clone() {
            self.look_at_register(world, id, &key, letter, &before)?;
        }
        Ok(())
    }

    fn look_at_register(
        &mut self,
        world: &World,
        id: NodeId,
        key: &str,
        letter: Option<&Letter>,
        before: &[(Vec<u8>, Lock)],
    ) -> Check {
        let Some(register) = registers::register(world, id, key) else { return Ok(()) };
        let known = self.versions.insert((id, key.into()), register.version).unwrap_or(0);
        if register.version > known && !may_write(id, letter, key, register, before) {
            return Err(format!("{id} took {key}={} without its lock", show::register(register)));
        }
        if register.version > 0 {
            let entry = self.written.entry((key.into(), register.version));
            let known = entry.or_insert_with(|| register.value.to_vec());
            if known != register.value {
                let shown = show::register(register);
                return Err(format!("{id} holds {key}={shown}, and another value has that tag"));
            }
        }
        Ok(())
    }

    /// Checks that replicas keep no locks at rest.
    pub(crate) fn locks_are_free(&self, world: &World) -> Check {
        for id in world.alive() {
            if let Some((key, lock)) = show::locks(world, id).first() {
                let kept = show::lock(key, lock, world.now(id).monotonic_us);
                return Err(format!("nothing is under way, and at {id} {kept}"));
            }
        }
        Ok(())
    }
}

/// Whether the message that arrived releases the lock, in its holder's name.
fn is_released(letter: Option<&Letter>, key: &[u8], lock: &Lock) -> bool {
    let Some(letter) = letter.filter(|letter| letter.from == lock.holder.node) else { return false };
    let Message::Turn { items: Items { asks, .. }, .. } = letter.message::<Blocking>() else { return false };
    asks.iter().any(|ask| matches!(ask, Ask::Unlock { attempt, key: of, .. } if attempt == lock.holder.attempt && of == key))
}

/// Whether a replica has just stored a value under a lock that existed before, or in other ways than by a write.
fn may_write(
    id: NodeId,
    letter: Option<&Letter>,
    key: &str,
    stored: Register<'_>,
    before: &[(Vec<u8>, Lock)],
) -> bool {
    let Some(letter) = letter else { return true };
    let Message::Turn { items: Items { asks, .. }, .. } = letter.message::<Blocking>() else { return true };
    let (mut writes, mut locked) = (0, 0);
    for ask in asks.iter() {
        if let Ask::Write { attempt, grant, key: of, register, .. } = ask
            && of == key.as_bytes()
            && register == stored
        {
            let is_holder = |lock: &Lock| lock.grant == grant && lock.holder.attempt == attempt;
            writes += 1;
            locked += usize::from(before.iter().any(|(of, lock)| of == key.as_bytes() && is_holder(lock)));
        }
    }
    // The same message may have brought the last answer for which this node's own coordinator waited before it
    // stores its write here.
    let is_own = before.iter().any(|(of, lock)| of == key.as_bytes() && lock.holder.node == id);
    writes == 0 || locked > 0 || is_own
}

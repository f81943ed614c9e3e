//! This node's replica of a group, whichever protocol the group's keyspace has chosen.

use crate::configuration::Configuration;
use crate::keyspace::{Keyspace, Protocol};
use crate::scripts::LUA;
use crate::status::Status;
use kv::codec::Malformed;
use kv::table::Spilled;
use kv::{RecordName, Reference, Table, Version, Watch};
use protocol::planted::Planted;
use protocol::registers::{Loss, Replacement};
use protocol::{
    Effects, Input, NodeId, Now, Progress, Replica as _, abd, blocking, consensus, leader_follower, registers,
};

/// One replica. A closed set: a match costs less than a table of functions, and says what there is.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // There are few, and a box would be one more wait for memory.
pub(crate) enum Replica {
    LeaderFollower(leader_follower::Replica),
    Abd(abd::Replica),
    Blocking(blocking::Replica),
    Consensus(consensus::Replica),
}

impl Replica {
    /// A replica that has just started, with nothing in memory. `id` is its group's number.
    ///
    /// # Errors
    /// As [`Keyspace::check`].
    pub(crate) fn new(
        keyspace: &Keyspace,
        id: u16,
        configuration: &Configuration,
    ) -> Result<Replica, String> {
        let Configuration { node, life, planted, .. } = *configuration;
        let seed = configuration.seed.wrapping_add(u64::from(id));
        let table_seed = configuration.table_seed.wrapping_add(u64::from(id));
        Ok(match keyspace.protocol()? {
            Protocol::LeaderFollower => {
                let options = keyspace.leader_follower(planted)?;
                let mut timing = leader_follower::Timing::default();
                if configuration.memory_max > 0 {
                    let most = (configuration.memory_max / 8) as usize;
                    timing.resync_backlog_bytes_max = timing.resync_backlog_bytes_max.min(most);
                }
                let mut replica = leader_follower::Replica::new(node, options, timing, table_seed);
                replica.set_interpreter(&LUA);
                Replica::LeaderFollower(replica)
            }
            Protocol::Abd => {
                let options = abd::Options { keeps_records: keyspace.keeps_records()?, planted };
                let timing = abd::Timing { upkeep: upkeep(configuration), ..abd::Timing::default() };
                Replica::Abd(abd::Replica::new(node, options, timing, life, seed, table_seed))
            }
            Protocol::Blocking => {
                let options = keyspace.blocking(planted)?;
                let timing =
                    blocking::Timing { upkeep: upkeep(configuration), ..blocking::Timing::default() };
                Replica::Blocking(blocking::Replica::new(node, options, timing, life, seed, table_seed))
            }
            Protocol::Consensus => {
                let options = keyspace.consensus(planted)?;
                let timing = consensus::Timing::default().slower(configuration.patience);
                // Drawn at each start: it names this process, and the storage if that is new.
                let random = seed.rotate_left(32) ^ configuration.identity;
                let mut replica = consensus::Replica::new(node, options, timing, table_seed, random);
                replica.set_interpreter(&LUA);
                Replica::Consensus(replica)
            }
        })
    }

    /// See [`Table::set_watch`]. Registers hold values and carry nothing out.
    pub(crate) fn set_watch(&mut self, group: u16, watch: &'static dyn Watch) {
        match self {
            Replica::LeaderFollower(replica) => replica.set_watch(group, watch),
            Replica::Consensus(replica) => replica.set_watch(group, watch),
            Replica::Abd(_) | Replica::Blocking(_) => {}
        }
    }

    /// See [`Table::skip`].
    pub(crate) fn skip(&mut self, records: &[RecordName]) {
        match self {
            Replica::LeaderFollower(replica) => replica.skip(records),
            Replica::Consensus(replica) => replica.skip(records),
            Replica::Abd(_) | Replica::Blocking(_) => {}
        }
    }

    /// Applies what comes before this record, and nothing else until it is told otherwise.
    pub(crate) fn stand_before(&mut self, record: Option<Version>) {
        match self {
            Replica::LeaderFollower(replica) => replica.stand_before(record),
            Replica::Consensus(replica) => replica.stand_before(record),
            Replica::Abd(_) | Replica::Blocking(_) => {}
        }
    }

    /// Whether one of its messages must not wait behind longer ones, and may leave before them.
    pub(crate) fn is_urgent(&self, message: &[u8]) -> bool {
        matches!(self, Replica::Consensus(_)) && consensus::is_urgent(message)
    }

    /// It is made together with its group: none of the group was ever started before.
    pub(crate) fn begin_with_group(&mut self) {
        if let Replica::LeaderFollower(replica) = self {
            replica.begin_with_group();
        }
    }

    /// Its node was replaced: what it recorded before that does not count. To be told before it is told who its group is.
    pub(crate) fn replaced(&mut self, replacement: &Replacement) {
        match self {
            Replica::Abd(replica) => replica.replaced(replacement),
            Replica::Blocking(replica) => replica.replaced(replacement),
            // They leave their groups and enter them again.
            Replica::LeaderFollower(_) | Replica::Consensus(_) => {}
        }
    }

    /// Whether the log has room for what other members send. Registers pass over what it has no room for; what a leader
    /// orders cannot be passed over.
    #[inline]
    pub(crate) fn set_room(&mut self, has_room: bool) {
        match self {
            Replica::Abd(replica) => replica.set_room(has_room),
            Replica::Blocking(replica) => replica.set_room(has_room),
            Replica::LeaderFollower(_) | Replica::Consensus(_) => {}
        }
    }

    /// Its keyspace has other settings, of those that can change at run time.
    ///
    /// # Errors
    /// As [`Keyspace::check`].
    pub(crate) fn set_keyspace(&mut self, keyspace: &Keyspace, planted: Planted) -> Result<(), String> {
        match self {
            Replica::LeaderFollower(replica) => replica.set_options(keyspace.leader_follower(planted)?),
            Replica::Blocking(replica) => {
                replica.set_options(keyspace.blocking(planted)?);
            }
            Replica::Consensus(replica) => replica.set_options(keyspace.consensus(planted)?),
            Replica::Abd(_) => {}
        }
        Ok(())
    }

    /// One step. A message comes as the peer sent it.
    ///
    /// # Errors
    /// [`Malformed`] for a message that is not of the replica's protocol: nothing has happened.
    #[inline]
    pub(crate) fn step(
        &mut self,
        now: Now,
        input: Input<'_, &[u8]>,
        effects: &mut Effects,
    ) -> Result<(), Malformed> {
        match self {
            Replica::LeaderFollower(replica) => {
                let input = input.with_message(leader_follower::Message::decode)?;
                replica.step(now, input, effects);
            }
            Replica::Abd(replica) => {
                let input = input.with_message(abd::Message::decode)?;
                replica.step(now, input, effects);
            }
            Replica::Blocking(replica) => {
                let input = input.with_message(blocking::Message::decode)?;
                replica.step(now, input, effects);
            }
            Replica::Consensus(replica) => {
                let input = input.with_message(consensus::Message::decode)?;
                replica.step(now, input, effects);
            }
        }
        Ok(())
    }

    /// Whether this node reaches another one, as it has found out for all its groups.
    pub(crate) fn set_reached(&mut self, now: Now, peer: NodeId, is_reached: bool) {
        match self {
            Replica::LeaderFollower(replica) => replica.set_reached(now, peer, is_reached),
            Replica::Abd(replica) => replica.set_reached(now, peer, is_reached),
            Replica::Blocking(replica) => replica.set_reached(now, peer, is_reached),
            Replica::Consensus(replica) => replica.set_reached(now, peer, is_reached),
        }
    }

    /// The node's lease lasts longer: for a replica at rest, in which nobody waits for that.
    pub(crate) fn extend_lease(&mut self, until_us: u64) {
        if let Replica::LeaderFollower(replica) = self {
            replica.extend_lease(until_us);
        }
    }

    /// True when it wants no tick and no flush before it is given something.
    pub(crate) fn is_resting(&self) -> bool {
        match self {
            Replica::LeaderFollower(replica) => replica.is_resting(),
            Replica::Abd(replica) => replica.is_resting(),
            Replica::Blocking(replica) => replica.is_resting(),
            Replica::Consensus(replica) => replica.is_resting(),
        }
    }

    pub(crate) fn wakeup_us(&self, now: Now) -> u64 {
        match self {
            Replica::LeaderFollower(replica) => replica.wakeup_us(now),
            Replica::Abd(replica) => replica.wakeup_us(now),
            Replica::Blocking(replica) => replica.wakeup_us(now),
            Replica::Consensus(replica) => replica.wakeup_us(now),
        }
    }

    #[inline]
    pub(crate) fn table(&self) -> &Table {
        match self {
            Replica::LeaderFollower(replica) => replica.table(),
            Replica::Abd(replica) => replica.table(),
            Replica::Blocking(replica) => replica.table(),
            Replica::Consensus(replica) => replica.table(),
        }
    }

    /// Bytes of all that it keeps: an estimate.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.consensus().map_or_else(|| self.table().memory_bytes(), consensus::Replica::memory_bytes)
    }

    /// The replica, if its protocol is consensus.
    pub(crate) fn consensus(&self) -> Option<&consensus::Replica> {
        match self {
            Replica::Consensus(replica) => Some(replica),
            Replica::LeaderFollower(_) | Replica::Abd(_) | Replica::Blocking(_) => None,
        }
    }

    /// As [`Replica::consensus`], to change it.
    pub(crate) fn consensus_mut(&mut self) -> Option<&mut consensus::Replica> {
        match self {
            Replica::Consensus(replica) => Some(replica),
            Replica::LeaderFollower(_) | Replica::Abd(_) | Replica::Blocking(_) => None,
        }
    }

    pub(crate) fn status(&self, now: Now) -> Status {
        match self {
            Replica::LeaderFollower(replica) => Status::of_leader_follower(replica.status(now)),
            Replica::Abd(replica) => Status::of_abd(replica.status(now)),
            Replica::Blocking(replica) => Status::of_blocking(replica.status(now)),
            Replica::Consensus(replica) => Status::of_consensus(replica.status(now)),
        }
    }

    /// Why it does not lead yet, though it is to: it gets together what was written before.
    pub(crate) fn recovers(&self, now: Now) -> Option<String> {
        let Replica::LeaderFollower(replica) = self else { return None };
        let status = replica.status(now);
        (status.role == "recovering").then_some(status.explanation)
    }

    /// Which leadership this replica has, if it has one that requests can be meant for.
    #[inline]
    pub(crate) fn leads_in(&self) -> Option<u64> {
        self.consensus().and_then(consensus::Replica::leads_in)
    }

    /// What its group has lost, if it stands still for it: registers only.
    pub(crate) fn loss(&self, now: Now) -> Option<Loss> {
        match self {
            Replica::Abd(replica) => replica.loss(now),
            Replica::Blocking(replica) => replica.loss(now),
            Replica::LeaderFollower(_) | Replica::Consensus(_) => None,
        }
    }

    /// True when this replica leads its group.
    pub(crate) fn is_leader(&self) -> bool {
        match self {
            Replica::LeaderFollower(replica) => replica.is_leader(),
            Replica::Consensus(replica) => replica.is_leader(),
            Replica::Abd(_) | Replica::Blocking(_) => false,
        }
    }

    /// At the leader of a consensus group in its membership of that number: who takes part in it and holds all that is
    /// decided, in ascending order.
    pub(crate) fn voters_of(&self, now: Now, membership: u64) -> Option<Vec<NodeId>> {
        let Replica::Consensus(replica) = self else { return None };
        if !replica.is_leader() {
            return None;
        }
        let status = replica.status(now);
        if !status.writable || u64::from(status.configuration) != membership {
            return None;
        }
        let holds_all = |follower: &&consensus::FollowerStatus| {
            follower.live && follower.accepted >= status.applied_entries
        };
        let followers = status.followers.iter().filter(holds_all).map(|follower| follower.id);
        let mut voters: Vec<NodeId> = followers.chain([replica.id()]).collect();
        voters.sort_unstable();
        Some(voters)
    }

    // Spilled values: in keyspaces with `storage = "disk"`, of the protocols that can have it. What each does is said at
    // the methods of these names in the protocols.

    pub(crate) fn take_spilled(&mut self) -> Option<Spilled> {
        match self {
            Replica::LeaderFollower(replica) => replica.take_spilled(),
            Replica::Consensus(replica) => replica.take_spilled(),
            Replica::Abd(_) | Replica::Blocking(_) => None,
        }
    }

    pub(crate) fn refers_to(&self, reference: &Reference) -> bool {
        match self {
            Replica::LeaderFollower(replica) => replica.refers_to(reference),
            Replica::Consensus(replica) => replica.refers_to(reference),
            Replica::Abd(_) | Replica::Blocking(_) => false,
        }
    }

    pub(crate) fn spilled(&self) -> Vec<Reference> {
        match self {
            Replica::LeaderFollower(replica) => replica.spilled().collect(),
            Replica::Consensus(replica) => replica.spilled().collect(),
            Replica::Abd(_) | Replica::Blocking(_) => Vec::new(),
        }
    }

    pub(crate) fn sends_copies(&self) -> bool {
        match self {
            Replica::LeaderFollower(replica) => replica.sends_copies(),
            Replica::Consensus(replica) => replica.sends_copies(),
            Replica::Abd(_) | Replica::Blocking(_) => false,
        }
    }

    pub(crate) fn wanted_values(&mut self) -> Vec<Reference> {
        match self {
            Replica::LeaderFollower(replica) => replica.wanted_values(),
            Replica::Consensus(replica) => replica.wanted_values(),
            Replica::Abd(_) | Replica::Blocking(_) => Vec::new(),
        }
    }

    pub(crate) fn take_value(
        &mut self,
        now: Now,
        reference: Reference,
        value: Option<&[u8]>,
        effects: &mut Effects,
    ) {
        match self {
            Replica::LeaderFollower(replica) => replica.take_value(now, reference, value, effects),
            Replica::Consensus(replica) => replica.take_value(now, reference, value, effects),
            Replica::Abd(_) | Replica::Blocking(_) => {}
        }
    }

    // Records.

    /// Takes what an earlier life has recorded.
    ///
    /// # Errors
    /// [`Malformed`] when it is no record of this protocol.
    pub(crate) fn replay(&mut self, now: Now, record: &[u8]) -> Result<(), Malformed> {
        match self {
            Replica::LeaderFollower(replica) => replica.replay(now, record),
            Replica::Abd(replica) => replica.replay(now, record),
            Replica::Blocking(replica) => replica.replay(now, record),
            Replica::Consensus(replica) => replica.replay(now, record),
        }
    }

    pub(crate) fn begin_checkpoint(&mut self) -> bool {
        match self {
            Replica::LeaderFollower(replica) => replica.begin_checkpoint(),
            Replica::Abd(replica) => replica.begin_checkpoint(),
            Replica::Blocking(replica) => replica.begin_checkpoint(),
            Replica::Consensus(replica) => replica.begin_checkpoint(),
        }
    }

    pub(crate) fn checkpoint_record(&mut self, bytes_max: usize, record: &mut Vec<u8>) -> Progress {
        match self {
            Replica::LeaderFollower(replica) => replica.checkpoint_record(bytes_max, record),
            Replica::Abd(replica) => replica.checkpoint_record(bytes_max, record),
            Replica::Blocking(replica) => replica.checkpoint_record(bytes_max, record),
            Replica::Consensus(replica) => replica.checkpoint_record(bytes_max, record),
        }
    }

    pub(crate) fn abandon_checkpoint(&mut self) {
        match self {
            Replica::LeaderFollower(replica) => replica.abandon_checkpoint(),
            Replica::Abd(replica) => replica.abandon_checkpoint(),
            Replica::Blocking(replica) => replica.abandon_checkpoint(),
            Replica::Consensus(replica) => replica.abandon_checkpoint(),
        }
    }
}

/// How registers are kept in order. A replica that nobody asks is heard when it compares its keys: who sends
/// nothing in between is not silent.
fn upkeep(configuration: &Configuration) -> registers::Timing {
    let usual = registers::Timing::default();
    let sweep_ms = configuration.sweep_ms;
    let silence_ms = usual.silence_ms.max(sweep_ms.saturating_mul(3));
    registers::Timing { sweep_ms, silence_ms, ..usual }
}

//! This node's replica of a group, of the protocol that the group's keyspace has chosen.

use cluster::configuration::Configuration;
use cluster::keyspace::Keyspace;
use cluster::setting::Protocol;
use cluster::words::quoted;
use kv::Table;
use kv::codec::Malformed;
use protocol::planted::Planted;
use protocol::{
    Effects, Input, Now, RecoveryLine, Replica as _, abd, blocking, consensus, leader_follower, registers,
};
use scripts::LUA;
use std::ops::{Deref, DerefMut};

/// One replica: a [`protocol::Replica`] of one of these protocols, to which it dereferences for all questions. For
/// calls that every request makes, it matches on the closed set of protocols, which costs less than a table of
/// functions.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // There are few, and a box would be one more wait for memory.
pub(crate) enum Replica {
    LeaderFollower(leader_follower::Replica),
    Abd(abd::Replica),
    Blocking(blocking::Replica),
    Consensus(consensus::Replica),
}

/// Evaluates the same expression for a replica of each protocol.
macro_rules! each {
    ($self:expr, $replica:ident => $body:expr) => {
        match $self {
            Replica::LeaderFollower($replica) => $body,
            Replica::Abd($replica) => $body,
            Replica::Blocking($replica) => $body,
            Replica::Consensus($replica) => $body,
        }
    };
}

/// What an operator says when the keyspace does not come back by itself.
pub(crate) fn recovery_line(keyspace: &Keyspace) -> RecoveryLine {
    RecoveryLine::new(quoted(&keyspace.prefix), format!("{:?}", keyspace.prefix))
}

impl Replica {
    /// Makes a replica that has just started, with nothing in memory. `id` is its group's number.
    pub(crate) fn new(keyspace: &Keyspace, id: u16, configuration: &Configuration) -> Replica {
        let Configuration { node, life, planted, .. } = *configuration;
        let seed = configuration.seed.wrapping_add(u64::from(id));
        let table_seed = configuration.table_seed.wrapping_add(u64::from(id));
        let mut replica = match keyspace.replication {
            Protocol::LeaderFollower => {
                let options = keyspace.leader_follower(planted);
                let mut timing = leader_follower::Timing::default();
                if configuration.memory_max > 0 {
                    let most = (configuration.memory_max / 8) as usize;
                    timing.transfer_backlog_bytes_max = timing.transfer_backlog_bytes_max.min(most);
                }
                let mut replica = leader_follower::Replica::new(node, options, timing, table_seed);
                replica.set_interpreter(&LUA);
                Replica::LeaderFollower(replica)
            }
            Protocol::Abd => {
                let options = abd::Options { keeps_records: keyspace.keeps_records(), planted };
                let timing = abd::Timing { upkeep: upkeep(configuration), ..abd::Timing::default() };
                Replica::Abd(abd::Replica::new(node, options, timing, life, seed, table_seed))
            }
            Protocol::Blocking => {
                let options = keyspace.blocking(planted);
                let timing =
                    blocking::Timing { upkeep: upkeep(configuration), ..blocking::Timing::default() };
                Replica::Blocking(blocking::Replica::new(node, options, timing, life, seed, table_seed))
            }
            Protocol::Consensus => {
                let options = keyspace.consensus(planted);
                let timing = consensus::Timing { rounds_in_step: true, ..consensus::Timing::default() }
                    .slower(configuration.patience);
                // Drawn at each start: it identifies this process, and the storage if that is new.
                let random = seed.rotate_left(32) ^ configuration.identity;
                let mut replica = consensus::Replica::new(node, options, timing, table_seed, random);
                replica.set_interpreter(&LUA);
                Replica::Consensus(replica)
            }
        };
        replica.set_recovery_line(recovery_line(keyspace));
        replica.set_eviction(keyspace.eviction);
        replica.keep_history(keyspace.shard_changes_bytes());
        replica
    }

    /// Adopts the settings of its keyspace that can change at run time.
    pub(crate) fn set_keyspace(&mut self, keyspace: &Keyspace, planted: Planted) {
        match self {
            Replica::LeaderFollower(replica) => replica.set_options(keyspace.leader_follower(planted)),
            Replica::Blocking(replica) => replica.set_options(keyspace.blocking(planted)),
            Replica::Consensus(replica) => replica.set_options(keyspace.consensus(planted)),
            Replica::Abd(_) => {}
        }
        self.set_eviction(keyspace.eviction);
        self.keep_history(keyspace.shard_changes_bytes());
    }

    /// Takes one step. A message is passed as the peer sent it.
    ///
    /// # Errors
    /// [`Malformed`] for a message that is not of the replica's protocol: it has no effect.
    #[inline]
    pub(crate) fn step(
        &mut self,
        now: Now,
        input: Input<'_, &[u8]>,
        effects: &mut Effects,
    ) -> Result<(), Malformed> {
        each!(self, replica => take(replica, now, input, effects))
    }

    /// See [`protocol::Replica::table`].
    #[inline]
    pub(crate) fn table(&self) -> &Table {
        each!(self, replica => replica.table())
    }

    /// See [`protocol::Replica::leads_in`].
    #[inline]
    pub(crate) fn leads_in(&self) -> Option<u64> {
        each!(self, replica => replica.leads_in())
    }

    /// See [`protocol::Replica::follows_in`].
    #[inline]
    pub(crate) fn follows_in(&self) -> Option<(protocol::NodeId, u64, u64)> {
        each!(self, replica => replica.follows_in())
    }
}

impl Deref for Replica {
    type Target = dyn protocol::Replica;

    fn deref(&self) -> &(dyn protocol::Replica + 'static) {
        each!(self, replica => replica)
    }
}

impl DerefMut for Replica {
    fn deref_mut(&mut self) -> &mut (dyn protocol::Replica + 'static) {
        each!(self, replica => replica)
    }
}

#[inline]
fn take<R: protocol::Replica>(
    replica: &mut R,
    now: Now,
    input: Input<'_, &[u8]>,
    effects: &mut Effects,
) -> Result<(), Malformed> {
    replica.step(now, input.with_message(R::decode)?, effects);
    Ok(())
}

/// The timing of the registers' upkeep. A replica without requests sends something when it compares its keys: it does
/// not count as silent in between.
fn upkeep(configuration: &Configuration) -> registers::Timing {
    let usual = registers::Timing::default();
    let sweep_ms = configuration.sweep_ms;
    let silence_ms = usual.silence_ms.max(sweep_ms.saturating_mul(3));
    registers::Timing { sweep_ms, silence_ms, ..usual }
}

//! This node's replica of a group, whichever protocol the group's keyspace has chosen.

use crate::configuration::Configuration;
use crate::keyspace::{Keyspace, Protocol};
use crate::status::Status;
use kv::Table;
use kv::codec::Malformed;
use protocol::{Effects, Input, Now, Replica as _, leader_follower};

/// One replica. A closed set: a match costs less than a table of functions, and says what there is.
#[derive(Debug)]
pub(crate) enum Replica {
    LeaderFollower(leader_follower::Replica),
}

impl Replica {
    /// A replica that has just started, with nothing in memory. `index` is its group's number.
    ///
    /// # Errors
    /// As [`Keyspace::check`].
    pub(crate) fn new(
        keyspace: &Keyspace,
        index: usize,
        configuration: &Configuration,
    ) -> Result<Replica, String> {
        let Configuration { node, planted, .. } = *configuration;
        let seed = configuration.seed.wrapping_add(index as u64);
        Ok(match keyspace.protocol()? {
            Protocol::LeaderFollower => {
                let options = keyspace.leader_follower(planted)?;
                let timing = leader_follower::Timing::default();
                Replica::LeaderFollower(leader_follower::Replica::new(node, options, timing, seed))
            }
            Protocol::Abd | Protocol::Blocking => {
                let (name, protocol) = (keyspace.name(), &keyspace.replication);
                return Err(format!("keyspace '{name}': replication = \"{protocol}\" is not built yet"));
            }
        })
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
        }
        Ok(())
    }

    pub(crate) fn wakeup_us(&self, now: Now) -> u64 {
        match self {
            Replica::LeaderFollower(replica) => replica.wakeup_us(now),
        }
    }

    #[inline]
    pub(crate) fn table(&self) -> &Table {
        match self {
            Replica::LeaderFollower(replica) => replica.table(),
        }
    }

    pub(crate) fn status(&self, now: Now) -> Status {
        match self {
            Replica::LeaderFollower(replica) => Status::of_leader_follower(replica.status(now)),
        }
    }
}

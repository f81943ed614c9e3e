//! Leader-follower in the test kit.

mod failover;
mod golden;
mod recovering;
mod schedule;
mod schedules;
mod show;
mod values;

use crate::kit::{Beside as _, Clock, Consequences, Protocol, Start};
use kv::{Command, ReplyBuffer, Version};
use protocol::SpilledValues as _;
use protocol::contract::{NodeId, Now};
use protocol::leader_follower::{Message, Options, Replica, Status, Timing};
use values::Values;

pub(crate) struct LeaderFollower;

type World = crate::kit::World<LeaderFollower>;

impl Protocol for LeaderFollower {
    type Replica = Replica;
    type Options = Options;
    type Timing = Timing;
    type Status = Status;
    type Beside = Values;

    fn make(start: Start<Self>, _values: &Values) -> Replica {
        Replica::new(start.id, start.options, start.timing, start.seed)
    }

    fn clock(_id: NodeId) -> Clock {
        Clock { unix_ahead_ms: 999_000, ..Clock::default() }
    }

    fn status(replica: &Replica, now: Now) -> Status {
        replica.status(now)
    }

    fn kinds(message: &Message<'_>) -> Vec<&'static str> {
        vec![show::kind(message)]
    }

    fn show_message(message: &Message<'_>) -> String {
        show::message(message)
    }

    fn show_status(status: &Status) -> String {
        show::status(status)
    }

    fn show_done(version: Version, offset: Version) -> String {
        match (version, offset) {
            (0, 0) => " [done]".into(),
            (_, 0) => format!(" [read version {version}]"),
            _ => format!(" [done offset {offset}]"),
        }
    }

    fn show_records(records: &[Vec<u8>]) -> Vec<String> {
        records.iter().map(|record| format!("⇒ {}", show::record(record))).collect()
    }
}

/// Reads what is applied at a replica, whatever its role.
fn peek(world: &mut World, id: NodeId, command: &Command<'_>) -> Vec<u8> {
    let mut reply = ReplyBuffer::new();
    let now = world.now(id).unix_ms;
    if let Some(replica) = world.replica_mut(id) {
        replica.peek(command, now, &mut reply);
    }
    world.beside(id).complete(reply.as_bytes())
}

/// A node's store delivers the values for which its snapshots wait.
fn give_values(world: &mut World, id: NodeId) -> Consequences {
    let mut consequences = Consequences::default();
    for (reference, value) in world.beside_mut(id).take_wanted() {
        let given = world.act(id, |replica, now, effects| {
            replica.take_value(now, reference, Some(&value), effects);
        });
        consequences = consequences.and(given);
    }
    consequences
}

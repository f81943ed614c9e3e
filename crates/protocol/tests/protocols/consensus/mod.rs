//! `consensus` in the test kit.

mod failover;
mod golden;
mod learning;
mod memory;
mod messages;
mod omnipaxos_traps;
mod recovering;
mod schedule;
mod schedules;
mod show;
mod stop_sign;

use crate::kit::{Beside, Clock, Protocol, Start};
use kv::{Command, Interpreter, NoInterpreter, ReplyBuffer, Version};
use protocol::consensus::{Message, Options, Replica, Status, Timing};
use protocol::contract::{NOBODY, NodeId, Now, Trace};

pub(crate) struct Consensus;

type World = crate::kit::World<Consensus>;

impl Protocol for Consensus {
    type Replica = Replica;
    type Options = Options;
    type Timing = Timing;
    type Status = Status;
    type Beside = Scripts;

    const FIRST_LEADER: NodeId = NOBODY;

    fn make(start: Start<Self>, scripts: &Scripts) -> Replica {
        let Start { id, options, timing, seed, .. } = start;
        let mut replica = Replica::new(id, options, timing, seed, u64::from(id) * 1_000_000 + seed);
        replica.set_interpreter(scripts.interpreter);
        replica
    }

    /// The nodes' monotonic clocks are unrelated.
    fn clock(id: NodeId) -> Clock {
        Clock { ahead_us: u64::from(id) * 7_000_000, unix_ahead_ms: 1_000_000, ..Clock::default() }
    }

    fn status(replica: &Replica, now: Now) -> Status {
        replica.status(now)
    }

    fn kinds(message: &Message<'_>) -> Vec<&'static str> {
        vec![message.body.kind()]
    }

    fn show_message(message: &Message<'_>) -> String {
        show::message(message)
    }

    fn show_status(status: &Status) -> String {
        show::status(status)
    }

    fn show_done(_version: Version, offset: Version) -> String {
        if offset == 0 { " [done]".into() } else { format!(" [done offset {offset}]") }
    }

    fn show_trace(trace: &Trace) -> String {
        show::trace(trace)
    }
}

/// Runs the scripts of nodes that start from now on.
pub(crate) struct Scripts {
    interpreter: &'static dyn Interpreter,
}

impl Beside<Consensus> for Scripts {
    fn new(_: &Options) -> Scripts {
        Scripts { interpreter: &NoInterpreter }
    }
}

/// Reads what is applied at a replica, whatever its role.
fn peek(world: &mut World, id: NodeId, command: &Command<'_>) -> Vec<u8> {
    let mut reply = ReplyBuffer::new();
    let now = world.now(id).unix_ms;
    if let Some(replica) = world.replica_mut(id) {
        replica.peek(command, now, &mut reply);
    }
    reply.as_bytes().to_vec()
}

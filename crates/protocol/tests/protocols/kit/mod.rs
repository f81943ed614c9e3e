//! The test kit. It knows no protocol: a protocol defines by [`Protocol`] how to make a replica and how to show its state
//! and messages, and by [`script::Scripted`] which verbs its golden scripts have besides the common ones. The rest is here:
//! a world of replicas, the driver of golden scripts, and the search over random schedules.

pub(crate) mod disk;
pub(crate) mod history;
pub(crate) mod random;
pub(crate) mod schedule;
pub(crate) mod script;
pub(crate) mod search;
pub(crate) mod show;
mod verbs;
mod world;

use kv::Version;
use protocol::contract::{NodeId, Now, Replica, Trace};
pub(crate) use world::{Asked, Clock, Consequences, World};

/// The messages between a protocol's replicas.
pub(crate) type Message<'a, P> = <<P as Protocol>::Replica as Replica>::Message<'a>;

/// What the kit has to know of a protocol.
pub(crate) trait Protocol: Sized + 'static {
    type Replica: Replica;
    type Options: Copy;
    type Timing: Copy;
    type Status;
    /// What a node of this protocol keeps beside its replica.
    type Beside: Beside<Self>;

    /// The leader in a group's first configuration.
    const FIRST_LEADER: NodeId = 1;

    fn make(start: Start<Self>, beside: &Self::Beside) -> Self::Replica;

    /// What a node's clocks show at first.
    fn clock(_id: NodeId) -> Clock {
        Clock::default()
    }

    fn status(replica: &Self::Replica, now: Now) -> Self::Status;

    // How the protocol is shown in a transcript.

    /// The kinds of a message's items, by which scripts pick letters.
    fn kinds(message: &Message<'_, Self>) -> Vec<&'static str>;

    fn show_message(message: &Message<'_, Self>) -> String;

    fn show_status(status: &Self::Status) -> String;

    /// The text after the reply of a request that is done.
    fn show_done(version: Version, offset: Version) -> String;

    fn show_trace(trace: &Trace) -> String {
        show::trace(trace)
    }

    /// Returns lines about what a step has recorded.
    fn show_records(_records: &[Vec<u8>]) -> Vec<String> {
        Vec::new()
    }
}

/// What a replica is made from.
pub(crate) struct Start<P: Protocol> {
    pub(crate) id: NodeId,
    pub(crate) options: P::Options,
    pub(crate) timing: P::Timing,
    /// How often its node was started with this disk.
    pub(crate) starts: u64,
    /// Different in each incarnation.
    pub(crate) seed: u64,
}

/// What a node keeps beside its replica, and does for it.
pub(crate) trait Beside<P: Protocol> {
    fn new(options: &P::Options) -> Self;

    /// Called when the replica has taken an input or a record.
    fn follow(&mut self, _replica: &mut P::Replica) {}

    /// Called when a step is over, and all its replies are completed.
    fn tidy(&mut self, _replica: &mut P::Replica) {}

    /// Turns a replica's reply into what a client gets.
    fn complete(&self, reply: &[u8]) -> Vec<u8> {
        reply.to_vec()
    }

    /// Called when a starting replica has taken all records.
    fn begin_incarnation(&mut self, _replica: &mut P::Replica, _starts: u64) {}

    /// Called when the node crashes.
    fn crash(&mut self) {}

    /// Called when the disk is lost with which the node was started `_starts` times.
    fn lose_disk(&mut self, _starts: u64) {}

    fn begin_checkpoint(&mut self) {}

    /// Called when the checkpoint takes effect, or never will.
    fn end_checkpoint(&mut self, _counts: bool) {}
}

/// A message under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Letter {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) bytes: Vec<u8>,
    /// Kept back until it is released.
    pub(crate) held: bool,
}

impl Letter {
    /// The link that it takes: the two ends in ascending order.
    pub(crate) fn ends(&self) -> (NodeId, NodeId) {
        (self.from.min(self.to), self.from.max(self.to))
    }

    pub(crate) fn message<P: Protocol>(&self) -> Message<'_, P> {
        P::Replica::decode(&self.bytes).expect("replicas send what can be read")
    }

    pub(crate) fn kinds<P: Protocol>(&self) -> Vec<&'static str> {
        P::kinds(&self.message::<P>())
    }
}

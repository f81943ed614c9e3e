//! The world as a driver sees it from one node of a cluster in memory.
//!
//! Requests of tests arrive as HTTP requests do in the server: they are given to the node between turns, and answered
//! by [`World::tell`].

use crate::support::{Client, Inbox};
use driver::{Clients, Event, Socket, World};
use node::{ClientId, Line, NodeId};
use protocol::Now;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use storage::simulated_values::SimulatedValues;
use storage::{DiskError, MemoryDisk, ValueResult, ValueWork, Work};

/// A node as tests use it.
pub(crate) type Process = driver::Driver<NoSocket>;

/// The socket of a client: tests have none.
pub(crate) enum NoSocket {}

impl Read for NoSocket {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}

impl Write for NoSocket {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match *self {}
    }
}

impl Socket for NoSocket {
    fn address(&self) -> String {
        match *self {}
    }
}

/// The work that a node leaves to its driver: done at once, but reported to the node in its next turn.
#[derive(Default)]
pub(crate) struct Beside {
    pub(crate) disk: MemoryDisk,
    pub(crate) values: SimulatedValues,
    finished: VecDeque<(Work, Result<(), DiskError>)>,
    finished_values: VecDeque<(ValueWork, ValueResult)>,
}

impl Beside {
    /// Forgets finished work, which is not reported when the process dies.
    pub(crate) fn forget(&mut self) {
        self.finished.clear();
        self.finished_values.clear();
    }
}

/// The context of one turn of a node.
pub(crate) struct Machine<'c> {
    pub(crate) own: NodeId,
    pub(crate) now: Now,
    pub(crate) beside: &'c mut Beside,
    /// Complete frames that have arrived from each peer.
    pub(crate) arrived: BTreeMap<NodeId, VecDeque<Vec<u8>>>,
    /// Peers whose frames the node has not been notified of yet.
    pub(crate) events: VecDeque<NodeId>,
    /// Frames that were read.
    pub(crate) read: Vec<(NodeId, Vec<u8>)>,
    pub(crate) peers: &'c [NodeId],
    /// What was written to each peer, over its first and its second connection.
    pub(crate) written: Vec<(NodeId, [Vec<u8>; 2])>,
    pub(crate) inboxes: &'c mut BTreeMap<Client, Inbox>,
    /// The memory that the node's tables took when the turn's output was written.
    pub(crate) resident_bytes: u64,
}

/// A clock that stands still within a turn.
#[derive(Clone, Copy)]
pub(crate) struct Clock(Now);

impl driver::Clock for Clock {
    fn now(&self) -> Now {
        self.0
    }
}

type Turn<'a> = driver::Turn<'a, Clock>;

impl World for Machine<'_> {
    type Clock = Clock;
    type Disk = MemoryDisk;
    type Socket = NoSocket;

    fn clock(&self) -> Clock {
        Clock(self.now)
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front().map(|peer| Event::Peer(peer.into()))
    }

    fn brings_records(&self, _connection: usize) -> bool {
        true
    }

    fn read_peer(&mut self, connection: usize, turn: &mut Turn<'_>) -> bool {
        let from = connection as NodeId;
        while let Some(payload) = self.arrived.get_mut(&from).and_then(VecDeque::pop_front) {
            turn.node.peer_frame(from, &payload).expect("nodes speak one language");
            self.read.push((from, payload));
        }
        false
    }

    fn attend(&mut self, _clients: &mut Clients<NoSocket>, _turn: &mut Turn<'_>) {}

    fn next_finished(&mut self) -> Option<(Work, Result<(), DiskError>)> {
        self.beside.finished.pop_front()
    }

    fn next_finished_value(&mut self) -> Option<(ValueWork, ValueResult)> {
        self.beside.finished_values.pop_front()
    }

    fn resident_bytes(&mut self) -> u64 {
        self.resident_bytes
    }

    fn write_to_peers(&mut self, turn: &mut Turn<'_>) {
        let (_, tables) = turn.node.log_bytes();
        self.resident_bytes = tables;
        for to in self.peers {
            let usual = std::mem::take(turn.node.peer_output(*to));
            let urgent = std::mem::take(turn.node.peer_urgent_output(*to));
            self.written.push((*to, [usual, urgent]));
        }
    }

    fn disk(&mut self) -> &mut MemoryDisk {
        &mut self.beside.disk
    }

    fn begin_work(&mut self, work: Work) {
        let result = work.run(&mut self.beside.disk);
        self.beside.finished.push_back((work, result));
    }

    fn begin_value_work(&mut self, work: ValueWork) {
        let result = work.run(&mut self.beside.values);
        self.beside.finished_values.push_back((work, result));
    }

    fn tell(&mut self, client: ClientId, turn: &mut Turn<'_>) {
        let client = Client { node: self.own, id: client };
        if let Some(inbox) = self.inboxes.get_mut(&client) {
            inbox.take(turn.node, client.id);
        }
    }

    fn log(&mut self, _line: &Line) {}

    fn wakeup_us(&self) -> u64 {
        u64::MAX
    }
}

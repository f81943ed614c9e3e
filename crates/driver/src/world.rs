//! What a driver asks of the world around its node.

use crate::clients::{Change, Clients, Socket};
use crate::counters::Counters;
use crate::turn::{Clock, Turn};
use node::{ClientId, Line, Usage};
use storage::{Disk, DiskError, ValueWork, Work};

/// Something has happened at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// At that of the client with this index ([`ClientId::index`]). It may have been the connection of a client that had the
    /// index before.
    Client(usize, Change),
    /// At one of a peer, which the world knows by this number.
    Peer(usize),
}

/// What came of a piece of work with large values.
pub type ValueResult = Result<Option<Vec<u8>>, DiskError>;

/// The world around one node. The functions stand in the order in which a turn asks for them.
pub trait World {
    /// Where the time comes from.
    type Clock: Clock;
    /// Where the node's log is.
    type Disk: Disk;
    /// A client's end of a connection.
    type Socket: Socket;

    /// The time.
    fn clock(&self) -> Self::Clock;

    // Input.

    /// The next thing that has happened since the turn before, if there is one.
    fn next_event(&mut self) -> Option<Event>;

    /// False for a connection of a peer over which nothing comes that has to be written to the log.
    fn brings_records(&self, connection: usize) -> bool;

    /// Gives the node what has come over a connection of a peer, up to a turn's share. True when there may be more.
    fn read_peer(&mut self, connection: usize, turn: &mut Turn<'_, Self::Clock>) -> bool;

    /// Does what the world has to do when all events were seen: it accepts connections, dials peers, takes calls.
    fn attend(&mut self, clients: &mut Clients<Self::Socket>, turn: &mut Turn<'_, Self::Clock>);

    // Work beside the node.

    /// A piece of the log's work that is over, and what came of it. Each is given once.
    fn next_finished(&mut self) -> Option<(Work, Result<(), DiskError>)>;

    /// The same of work with large values.
    fn next_finished_value(&mut self) -> Option<(ValueWork, ValueResult)>;

    /// Writes what the node has for its peers, as far as there is room.
    fn write_to_peers(&mut self, turn: &mut Turn<'_, Self::Clock>);

    /// The node's disk.
    fn disk(&mut self) -> &mut Self::Disk;

    /// Begins a piece of the log's work, which goes on beside the node.
    fn begin_work(&mut self, work: Work);

    /// The same of work with large values.
    fn begin_value_work(&mut self, work: ValueWork);

    // Output.

    /// A client has something to be told which is not one of those with a socket.
    fn tell(&mut self, client: ClientId, turn: &mut Turn<'_, Self::Clock>);

    /// How much memory the process takes, in bytes.
    fn resident_bytes(&mut self) -> u64 {
        0
    }

    /// Gives memory that is free back to the system.
    fn release(&mut self) {}

    /// What the process uses, for `INFO`.
    fn usage(&mut self, _counters: &Counters) -> Usage {
        Usage::default()
    }

    /// Takes a line of the log.
    fn log(&mut self, line: &Line);

    /// The turn is over: runs what is due once in a while.
    fn run_periodic_tasks(&mut self, _turn: &mut Turn<'_, Self::Clock>) {}

    // Between turns.

    /// When the next turn has to begin for the world's own sake, on the monotonic clock; 0: at once.
    fn wakeup_us(&self) -> u64;
}

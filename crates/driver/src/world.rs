//! What a driver needs from the world around its node.

use crate::clients::{Change, Clients, Socket};
use crate::counters::Counters;
use crate::turn::{Clock, Turn};
use node::{ClientId, Line, Usage};
use storage::{Disk, DiskError, ValueResult, ValueWork, Work};

/// Something has happened on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// On the connection of the client with this index ([`ClientId::index`]). The event may be for a client that had the
    /// index before.
    Client(usize, Change),
    /// On a connection of a peer, by the world's number for it.
    Peer(usize),
}

/// The world around one node. The functions are in the order in which a turn calls them.
pub trait World {
    /// The source of time.
    type Clock: Clock;
    /// The disk that holds the node's log.
    type Disk: Disk;
    /// The node's end of a client's connection.
    type Socket: Socket;

    /// Returns the source of time.
    fn clock(&self) -> Self::Clock;

    // Input.

    /// Returns the next event since the last turn, if there is one.
    fn next_event(&mut self) -> Option<Event>;

    /// Whether there may be more events for this turn: false only if there are none.
    fn has_more_events(&self) -> bool {
        true
    }

    /// Whether a peer's connection may bring something that has to be written to the log.
    fn brings_records(&self, connection: usize) -> bool;

    /// Gives the node what has arrived on a peer's connection, up to a turn's share. Returns true when there may be more.
    fn read_peer(&mut self, connection: usize, turn: &mut Turn<'_, Self::Clock>) -> bool;

    /// Does the world's own work once all events are handled: accepts connections, dials peers, handles calls.
    fn attend(&mut self, clients: &mut Clients<Self::Socket>, turn: &mut Turn<'_, Self::Clock>);

    // Work beside the node.

    /// Returns the next finished piece of the log's work and its result. Each is returned once.
    fn next_finished(&mut self) -> Option<(Work, Result<(), DiskError>)>;

    /// Like [`next_finished`](Self::next_finished), for work with large values.
    fn next_finished_value(&mut self) -> Option<(ValueWork, ValueResult)>;

    /// Writes the node's output for its peers, as far as there is room.
    fn write_to_peers(&mut self, turn: &mut Turn<'_, Self::Clock>);

    /// The node's disk.
    fn disk(&mut self) -> &mut Self::Disk;

    /// Begins a piece of the log's work, which runs beside the node.
    fn begin_work(&mut self, work: Work);

    /// Like [`begin_work`](Self::begin_work), for work with large values.
    fn begin_value_work(&mut self, work: ValueWork);

    // Output.

    /// Delivers output to a client that has no socket.
    fn tell(&mut self, client: ClientId, turn: &mut Turn<'_, Self::Clock>);

    /// The process's resident memory, in bytes.
    fn resident_bytes(&mut self) -> u64 {
        0
    }

    /// Begins to release free memory to the system: the turn does not wait for it.
    fn release(&mut self) {}

    /// The process's resource usage, for `INFO`.
    fn usage(&mut self, _counters: &Counters) -> Usage {
        Usage::default()
    }

    /// Writes a line to the log.
    fn log(&mut self, line: &Line);

    /// Runs periodic tasks, at the end of a turn.
    fn run_periodic_tasks(&mut self, _turn: &mut Turn<'_, Self::Clock>) {}

    // Between turns.

    /// When the world itself needs the next turn to begin, in microseconds of the monotonic clock; 0 means at once.
    fn wakeup_us(&self) -> u64;
}

//! A machine with a node's process on it, or with none while it is down.

use crate::clock::Clock;
use crate::conversation::Talk;
use crate::disk::{MachineDisk, ValueResult};
use crate::events::Place;
use crate::faults::Within;
use crate::pipe::{ClientSocket, Pipe};
use crate::random::Random;
use driver::{Change, Driver, Event};
use node::{ClientId, Node};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use storage::simulated::Survivors;
use storage::{DiskError, ValueWork, Work};
use wire::resp::Arguments;

/// Most nodes of a simulated cluster.
pub(crate) const NODES_MAX: usize = 8;

/// A node with its clients' connections.
pub(crate) type Process = Driver<ClientSocket>;

/// What comes over a connection of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    /// A frame, with the number of the connection over which it was sent.
    Frame { buffer: u32, generation: u32 },
    /// The connection with this number is up.
    Up(u32),
    /// It is broken.
    Down(u32),
}

/// What has come over a connection of a peer, and is not read.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) items: VecDeque<Item>,
    /// The process will be told.
    pub(crate) is_listed: bool,
}

/// What the process knows of the connections to a peer, and what has come over them.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// The connection that is up, as far as the process knows.
    pub(crate) link: Option<u32>,
    /// What has come over it, and over the second one, which is for what is urgent.
    pub(crate) lanes: [Lane; 2],
}

/// The number of a peer's connection, as its driver knows it.
pub(crate) fn connection_of(peer: Place, is_urgent: bool) -> usize {
    2 * usize::from(peer) + usize::from(is_urgent)
}

/// A client's connection at its node.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: u8,
    pub(crate) connection: u32,
    /// What the node calls it, once it is let in.
    pub(crate) id: Option<ClientId>,
    pub(crate) pipe: Rc<RefCell<Pipe>>,
    /// Single requests without an answer.
    pub(crate) owed: u32,
    /// It is in the middle of a transaction.
    pub(crate) talk: Option<Talk>,
}

impl Session {
    /// One that the node is yet to let in.
    pub(crate) fn new(client: u8, connection: u32, room: usize) -> Session {
        Session { client, connection, id: None, pipe: Pipe::new(room), owed: 0, talk: None }
    }

    /// The node has closed the connection.
    pub(crate) fn is_over(&self) -> bool {
        self.id.is_some() && Rc::strong_count(&self.pipe) == 1
    }
}

/// A process that is to die within a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doom {
    pub(crate) within: Within,
    /// It has taken a request since.
    pub(crate) has_request: bool,
    pub(crate) down_us: u64,
    pub(crate) noticed: bool,
    /// The machine loses its power, and this survives of what is not synced.
    pub(crate) power: Option<Survivors>,
}

/// One machine.
pub(crate) struct Host {
    pub(crate) place: Place,
    /// The process. What it keeps in memory dies with it.
    pub(crate) process: Option<Box<Process>>,
    /// What it has written is here.
    pub(crate) disk: MachineDisk,
    /// Work that is done, of which the process does not know yet.
    pub(crate) finished: VecDeque<(Work, Result<(), DiskError>)>,
    pub(crate) finished_values: VecDeque<(ValueWork, ValueResult)>,
    /// What has changed on the disk since it was synced.
    pub(crate) rotten: Option<String>,
    /// The disk, or what the node had promised on it, is gone: it does not count any more.
    pub(crate) is_lost: bool,
    /// Its disk was put back to an earlier state: where its log had been durable up to, as all control nodes knew, if they
    /// still do.
    pub(crate) was_durable: Option<u64>,
    /// It is not known to have got back what it held in keyspaces that outlive crashes, since it lost its disk.
    pub(crate) is_refilling: bool,
    /// How many messages of each machine have arrived, in all its lives.
    pub(crate) heard: [u32; NODES_MAX],
    /// The disk was told to refuse something, and may have done so in this life.
    pub(crate) is_refused: bool,
    /// At this operation of its next start the power goes again.
    pub(crate) power_goes_at: Option<u8>,
    /// What the machine keeps even now: how often the node has been started, and its epoch.
    pub(crate) life: u32,
    pub(crate) epoch: u64,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    /// What has happened at connections since the turn before.
    pub(crate) happened: VecDeque<Event>,
    /// When the next turn begins, unless something arrives before.
    pub(crate) turn_at: u64,
    /// The process is busy, or stands still, until then.
    pub(crate) free_at: u64,
    /// Each turn takes so much longer.
    pub(crate) slow_us: u64,
    /// The next turn is to last so long.
    pub(crate) stall_us: Option<u64>,
    /// The next turn is to begin, and then to stand still for so long before anything is taken in.
    pub(crate) stall_first_us: Option<u64>,
    /// The turn has begun already.
    pub(crate) has_begun: bool,
    pub(crate) doom: Option<Doom>,
    /// Connections of peers.
    pub(crate) ways: [Way; NODES_MAX],
    /// Connections of clients.
    pub(crate) sessions: Vec<Session>,
    /// Some of these are yet to be let in.
    pub(crate) has_visitors: bool,
    /// It lost its memory, and it is not known to have got back what the group holds.
    pub(crate) is_damaged: bool,
    /// It is not to start again yet.
    pub(crate) is_kept_down: bool,
    /// It is not one of the cluster's nodes: not yet, or no more.
    pub(crate) is_absent: bool,
}

impl Host {
    pub(crate) fn new(place: Place, clock: Clock, disk: MachineDisk, random: Random) -> Host {
        Host {
            place,
            process: None,
            disk,
            finished: VecDeque::new(),
            finished_values: VecDeque::new(),
            rotten: None,
            is_lost: false,
            was_durable: None,
            is_refilling: false,
            heard: [0; NODES_MAX],
            is_refused: false,
            power_goes_at: None,
            life: 0,
            epoch: 0,
            clock,
            random,
            happened: VecDeque::new(),
            turn_at: u64::MAX,
            free_at: 0,
            slow_us: 0,
            stall_us: None,
            stall_first_us: None,
            has_begun: false,
            doom: None,
            ways: Default::default(),
            sessions: Vec::new(),
            has_visitors: false,
            is_damaged: false,
            is_kept_down: false,
            is_absent: false,
        }
    }

    /// It need not serve anybody, and holds nothing that anybody counts on.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_lost || self.is_absent
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.process.is_some()
    }

    /// The node of the process, if there is one.
    #[inline]
    pub(crate) fn node(&self) -> Option<&Node> {
        self.process.as_ref().map(|process| &process.node)
    }

    /// There is a turn as soon as the process is free. Nothing happens if there is none.
    #[inline]
    pub(crate) fn wake(&mut self, now: u64) {
        self.turn_at = self.turn_at.min(now.max(self.free_at));
    }

    /// Something comes over a connection of a peer.
    #[inline]
    pub(crate) fn arrive(&mut self, now: u64, (peer, is_urgent): (Place, bool), item: Item) {
        let lane = &mut self.ways[usize::from(peer)].lanes[usize::from(is_urgent)];
        lane.items.push_back(item);
        if !std::mem::replace(&mut lane.is_listed, true) {
            self.happened.push_back(Event::Peer(connection_of(peer, is_urgent)));
        }
        self.wake(now);
    }

    /// Something has changed at a client's connection. If it is yet to be let in, the process sees then.
    #[inline]
    pub(crate) fn note_client(&mut self, now: u64, index: usize, change: Change) {
        if let Some(id) = self.sessions[index].id {
            self.happened.push_back(Event::Client(id.index(), change));
        }
        self.wake(now);
    }

    /// A client's request arrives.
    #[inline]
    pub(crate) fn put_request(&mut self, now: u64, index: usize, request: Arguments<'_>) {
        self.sessions[index].pipe.borrow_mut().push(request);
        self.note_client(now, index, Change { is_readable: true, ..Change::default() });
    }

    pub(crate) fn session(&self, client: u8, connection: u32) -> Option<usize> {
        let mut sessions = self.sessions.iter();
        sessions.position(|session| (session.client, session.connection) == (client, connection))
    }

    /// Work is done: the process learns of it in its next turn.
    pub(crate) fn finish(&mut self, now: u64, work: Work, result: Result<(), DiskError>) {
        self.finished.push_back((work, result));
        self.wake(now);
    }

    /// The same for work with large values.
    pub(crate) fn finish_values(&mut self, now: u64, work: ValueWork, result: ValueResult) {
        self.finished_values.push_back((work, result));
        self.wake(now);
    }

    /// The process stands still.
    pub(crate) fn pause_until(&mut self, time: u64) {
        self.free_at = self.free_at.max(time);
        self.turn_at = self.turn_at.max(self.free_at);
    }

    /// The process goes on.
    pub(crate) fn go_on(&mut self, now: u64) {
        (self.stall_us, self.stall_first_us) = (None, None);
        self.slow_us = 0;
        if self.free_at > now {
            self.free_at = now;
            self.turn_at = now;
        }
    }
}

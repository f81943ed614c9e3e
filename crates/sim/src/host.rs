//! A machine, with a node's process on it or, while the node is down, none.

use crate::clock::Clock;
use crate::conversation::Talk;
use crate::disk::MachineDisk;
use crate::events::Place;
use crate::faults::{Mask, Within};
use crate::pipe::{ClientSocket, Pipe};
use crate::random::Random;
use driver::{Change, Driver, Event};
use node::{ClientId, Node};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use storage::simulated::Survivors;
use storage::{DiskError, ValueResult, ValueWork, Work};
use wire::release::{RELEASES, Releases};
use wire::resp::Arguments;

/// The largest number of nodes in a simulated cluster.
pub(crate) const NODES_MAX: usize = 8;

/// A node with its clients' connections.
pub(crate) type Process = Driver<ClientSocket>;

/// An item that arrives over a peer's connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    /// A frame, with the generation of the connection over which it was sent.
    Frame { buffer: u32, generation: u32 },
    /// The connection of this generation is up.
    Up(u32),
    /// The connection of this generation is broken.
    Down(u32),
}

/// What has arrived over a peer's connection and has not been read.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) items: VecDeque<Item>,
    /// Whether the process will be notified of it.
    pub(crate) is_listed: bool,
}

/// What the process knows of the connections to a peer, and what has arrived over them.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// The generation of the connection that the process believes to be up.
    pub(crate) link: Option<u32>,
    /// What has arrived over the first connection, and over the second one for urgent messages.
    pub(crate) lanes: [Lane; 2],
}

/// Returns the number by which the driver knows a peer's connection.
pub(crate) fn connection_of(peer: Place, is_urgent: bool) -> usize {
    2 * usize::from(peer) + usize::from(is_urgent)
}

/// A client's connection at its node.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: u8,
    pub(crate) connection: u32,
    /// The node's id for it, once the node has accepted it.
    pub(crate) id: Option<ClientId>,
    pub(crate) pipe: Rc<RefCell<Pipe>>,
    /// Unanswered requests with which the connection begins.
    pub(crate) greetings: u8,
    /// Unanswered single requests.
    pub(crate) owed: u32,
    /// The transaction in progress, if any.
    pub(crate) talk: Option<Talk>,
    /// Whether its client makes or restores a backup.
    pub(crate) is_job: bool,
    /// The mark that ends the copy that it is being sent.
    pub(crate) mark: Option<Vec<u8>>,
}

impl Session {
    /// Creates a connection that the node has not accepted yet.
    pub(crate) fn new(client: u8, connection: u32, room: usize) -> Session {
        Session {
            client,
            connection,
            id: None,
            pipe: Pipe::new(room),
            greetings: 0,
            owed: 0,
            talk: None,
            is_job: false,
            mark: None,
        }
    }

    /// Whether the node has closed the connection.
    pub(crate) fn is_over(&self) -> bool {
        self.id.is_some() && Rc::strong_count(&self.pipe) == 1
    }
}

/// A process that will die within a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doom {
    pub(crate) within: Within,
    /// Whether it has taken a request since.
    pub(crate) has_request: bool,
    pub(crate) down_us: u64,
    pub(crate) noticed: bool,
    /// If the machine loses power: what survives of the unsynced data.
    pub(crate) power: Option<Survivors>,
}

/// One machine.
pub(crate) struct Host {
    pub(crate) place: Place,
    /// The running process. What it keeps in memory dies with it.
    pub(crate) process: Option<Box<Process>>,
    /// What the process has written.
    pub(crate) disk: MachineDisk,
    /// Finished work that the process has not been notified of yet.
    pub(crate) finished: VecDeque<(Work, Result<(), DiskError>)>,
    pub(crate) finished_values: VecDeque<(ValueWork, ValueResult)>,
    /// What has changed on the disk since it was synced: bit rot.
    pub(crate) rotten: Option<String>,
    /// Whether the disk, or what the node had promised on it, is gone; if so, the machine no longer counts.
    pub(crate) is_lost: bool,
    /// If its disk was put back to an earlier state: the position up to which its log had been durable, which all
    /// control nodes knew. `None` once they may have forgotten it.
    pub(crate) was_durable: Option<u64>,
    /// Whether it has lost its disk, or died before it had a memory of some keyspace of registers, and is not yet known
    /// to hold what it has to hold in keyspaces that outlive crashes.
    pub(crate) is_refilling: bool,
    /// How many messages of each machine have arrived, over all its incarnations.
    pub(crate) received: [u32; NODES_MAX],
    /// Whether the disk was set to refuse an operation, which may have happened in this incarnation.
    pub(crate) is_refused: bool,
    /// The operation of its next start at which the power fails again.
    pub(crate) power_goes_at: Option<u8>,
    /// How often the node was started (its incarnation), and its epoch: the machine keeps both through everything.
    pub(crate) incarnation: u32,
    pub(crate) epoch: u64,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    /// Events on connections since the previous turn.
    pub(crate) happened: VecDeque<Event>,
    /// When the next turn begins, unless something arrives earlier.
    pub(crate) turn_at: u64,
    /// The process is busy, or paused, until then.
    pub(crate) free_at: u64,
    /// Extra duration of each turn.
    pub(crate) slow_us: u64,
    /// The duration of a pause in the middle of the next turn.
    pub(crate) stall_us: Option<u64>,
    /// The duration of a pause at the start of the next turn, before it takes anything in.
    pub(crate) stall_first_us: Option<u64>,
    /// The duration of each of the next turns in which a command takes long, and how many they are.
    pub(crate) long_turns: (u64, u16),
    /// How far the clock has advanced within this turn: what is read after a long command is read later.
    pub(crate) ahead_us: u64,
    /// The end of such a turn: until then the process vouches for its node.
    pub(crate) busy_until: u64,
    /// The nodes that have vouched for themselves since this node's last turn.
    pub(crate) vouched: Mask,
    /// Whether the turn has already begun.
    pub(crate) has_begun: bool,
    pub(crate) doom: Option<Doom>,
    /// Connections to peers, by place.
    pub(crate) ways: [Way; NODES_MAX],
    /// Connections of clients.
    pub(crate) sessions: Vec<Session>,
    /// Whether some of these have not been accepted yet.
    pub(crate) has_visitors: bool,
    /// Whether it has lost its memory and is not yet known to hold again what the group holds.
    pub(crate) is_damaged: bool,
    /// Whether it must not start again yet.
    pub(crate) is_kept_down: bool,
    /// Whether it is not a node of the cluster: not yet, or no longer.
    pub(crate) is_absent: bool,
    /// What the program understands with which it was last started.
    pub(crate) releases: Releases,
    /// Whether the last release's program was refused.
    pub(crate) needs_new_program: bool,
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
            received: [0; NODES_MAX],
            is_refused: false,
            power_goes_at: None,
            incarnation: 0,
            epoch: 0,
            clock,
            random,
            happened: VecDeque::new(),
            turn_at: u64::MAX,
            free_at: 0,
            slow_us: 0,
            stall_us: None,
            stall_first_us: None,
            long_turns: (0, 0),
            ahead_us: 0,
            busy_until: 0,
            vouched: 0,
            has_begun: false,
            doom: None,
            ways: Default::default(),
            sessions: Vec::new(),
            has_visitors: false,
            is_damaged: false,
            is_kept_down: false,
            is_absent: false,
            releases: RELEASES,
            needs_new_program: false,
        }
    }

    /// Whether it need not serve any client, and holds nothing that the cluster relies on.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_lost || self.is_absent
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.process.is_some()
    }

    #[inline]
    pub(crate) fn node(&self) -> Option<&Node> {
        self.process.as_ref().map(|process| &process.node)
    }

    /// Checks that the process will be told of all that has arrived, and that nothing waits for one that is dead. Between two
    /// events.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub(crate) fn check_invariants(&self) {
        for (peer, way) in self.ways.iter().enumerate() {
            let has_nothing = way.link.is_none() && way.lanes.iter().all(|lane| lane.items.is_empty());
            assert!(peer != usize::from(self.place) || has_nothing, "a machine is not connected to itself");
            for (lane, is_urgent) in way.lanes.iter().zip([false, true]) {
                let news = Event::Peer(connection_of(peer as Place, is_urgent));
                let count = self.happened.iter().filter(|event| **event == news).count();
                assert_eq!(count, usize::from(lane.is_listed), "a process is told once of what has arrived");
            }
        }
        let known =
            self.sessions.iter().enumerate().filter_map(|(place, session)| Some((place, session.id?)));
        for (place, id) in known {
            let is_other = |session: &Session| session.id != Some(id);
            assert!(self.sessions[..place].iter().all(is_other), "a node's client has two connections");
        }
        assert!(
            self.has_visitors || self.sessions.iter().all(|session| session.id.is_some()),
            "nobody lets a client in"
        );
        if !self.is_alive() {
            let waits =
                !self.happened.is_empty() || !self.finished.is_empty() || !self.finished_values.is_empty();
            assert!(
                !waits && !self.has_begun && self.doom.is_none(),
                "something waits for a process that is dead"
            );
        }
    }

    /// Schedules a turn for when the process is free. Does nothing if there is no process.
    #[inline]
    pub(crate) fn wake(&mut self, now: u64) {
        self.turn_at = self.turn_at.min(now.max(self.free_at));
    }

    /// Delivers an item over a peer's connection.
    #[inline]
    pub(crate) fn arrive(&mut self, now: u64, (peer, is_urgent): (Place, bool), item: Item) {
        let lane = &mut self.ways[usize::from(peer)].lanes[usize::from(is_urgent)];
        lane.items.push_back(item);
        if !std::mem::replace(&mut lane.is_listed, true) {
            self.happened.push_back(Event::Peer(connection_of(peer, is_urgent)));
        }
        self.wake(now);
    }

    /// Notes a change on a client's connection. If the node has not accepted it yet, the process sees the change when
    /// it does.
    #[inline]
    pub(crate) fn note_client(&mut self, now: u64, index: usize, change: Change) {
        if let Some(id) = self.sessions[index].id {
            self.happened.push_back(Event::Client(id.index(), change));
        }
        self.wake(now);
    }

    /// Delivers a client's request.
    #[inline]
    pub(crate) fn put_request(&mut self, now: u64, index: usize, request: Arguments<'_>) {
        self.sessions[index].pipe.borrow_mut().push(request);
        self.note_client(now, index, Change { is_readable: true, ..Change::default() });
    }

    pub(crate) fn session(&self, client: u8, connection: u32) -> Option<usize> {
        let mut sessions = self.sessions.iter();
        sessions.position(|session| (session.client, session.connection) == (client, connection))
    }

    /// Notes that work is done: the process is notified in its next turn.
    pub(crate) fn finish(&mut self, now: u64, work: Work, result: Result<(), DiskError>) {
        self.finished.push_back((work, result));
        self.wake(now);
    }

    /// The same for work on large values.
    pub(crate) fn finish_values(&mut self, now: u64, work: ValueWork, result: ValueResult) {
        self.finished_values.push_back((work, result));
        self.wake(now);
    }

    /// Pauses the process.
    pub(crate) fn pause_until(&mut self, time: u64) {
        self.free_at = self.free_at.max(time);
        self.turn_at = self.turn_at.max(self.free_at);
    }

    /// For how much longer the turn that begins takes, because of a long command.
    pub(crate) fn take_long_turn(&mut self) -> u64 {
        let (us, left) = &mut self.long_turns;
        match left.checked_sub(1) {
            Some(rest) => {
                *left = rest;
                *us
            }
            None => 0,
        }
    }

    /// Resumes the process.
    pub(crate) fn resume(&mut self, now: u64) {
        (self.stall_us, self.stall_first_us, self.long_turns) = (None, None, (0, 0));
        self.slow_us = 0;
        // A long turn ends when it ends: within it the clock has advanced already.
        if self.free_at > now && self.ahead_us == 0 {
            self.free_at = now;
            self.turn_at = now;
        }
    }
}

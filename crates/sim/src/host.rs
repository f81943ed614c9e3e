//! A machine with a node's process on it, or with none while it is down.

use crate::clock::Clock;
use crate::conversation::Talk;
use crate::disk::{MachineDisk, ValueResult};
use crate::events::Place;
use crate::faults::Within;
use crate::operation::Operation;
use crate::random::Random;
use node::{ClientId, Node};
use storage::simulated::Survivors;
use storage::{DiskError, ValueWork, Work};

/// Most nodes of a simulated cluster.
pub(crate) const NODES_MAX: usize = 8;

/// What has arrived at a node and waits for its next turn.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrival {
    Frame {
        from: Place,
        buffer: u32,
    },
    /// The connection to a peer is up, with a number, or broken.
    Link {
        peer: Place,
        generation: Option<u32>,
    },
    /// The second connection to a peer, beside the one with this number, is up or broken.
    Urgent {
        peer: Place,
        generation: u32,
        up: bool,
    },
    Hello {
        client: u8,
        connection: u32,
    },
    Request {
        client: u8,
        connection: u32,
        operation: Operation,
    },
    /// A client's transaction goes on.
    Continue {
        client: u8,
        connection: u32,
    },
    Goodbye {
        client: u8,
        connection: u32,
    },
    /// A command of the operator.
    Order {
        index: u16,
    },
}

/// A client's connection at its node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub(crate) client: u8,
    pub(crate) connection: u32,
    pub(crate) id: ClientId,
    /// Single requests without an answer.
    pub(crate) owed: u32,
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
    pub(crate) node: Option<Node>,
    /// What it has written is here.
    pub(crate) disk: MachineDisk,
    /// Work that is done, of which the process does not know yet.
    pub(crate) finished: Vec<(Work, Result<(), DiskError>)>,
    pub(crate) finished_values: Vec<(ValueWork, ValueResult)>,
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
    pub(crate) inbox: Vec<Arrival>,
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
    /// The connections that the process knows of, by peer.
    pub(crate) links: [Option<u32>; NODES_MAX],
    pub(crate) sessions: Vec<Session>,
    /// Those that are in the middle of a transaction.
    pub(crate) talks: Vec<(ClientId, Talk)>,
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
            node: None,
            disk,
            finished: Vec::new(),
            finished_values: Vec::new(),
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
            inbox: Vec::new(),
            turn_at: u64::MAX,
            free_at: 0,
            slow_us: 0,
            stall_us: None,
            stall_first_us: None,
            has_begun: false,
            doom: None,
            links: [None; NODES_MAX],
            sessions: Vec::new(),
            talks: Vec::new(),
            is_damaged: false,
            is_kept_down: false,
            is_absent: false,
        }
    }

    /// It need not serve anybody, and holds nothing that anybody counts on.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_lost || self.is_absent
    }

    /// A client's connection is closed.
    pub(crate) fn forget_session(&mut self, id: ClientId) {
        self.sessions.retain(|session| session.id != id);
        self.talks.retain(|(session, _)| *session != id);
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.node.is_some()
    }

    /// Something arrives: there is a turn as soon as the process is free. Lost if there is none.
    #[inline]
    pub(crate) fn arrive(&mut self, now: u64, arrival: Arrival) {
        self.inbox.push(arrival);
        self.turn_at = self.turn_at.min(now.max(self.free_at));
    }

    /// Work is done: the process learns of it in its next turn.
    pub(crate) fn finish(&mut self, now: u64, work: Work, result: Result<(), DiskError>) {
        self.finished.push((work, result));
        self.turn_at = self.turn_at.min(now.max(self.free_at));
    }

    /// The same for work with large values.
    pub(crate) fn finish_values(&mut self, now: u64, work: ValueWork, result: ValueResult) {
        self.finished_values.push((work, result));
        self.turn_at = self.turn_at.min(now.max(self.free_at));
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

//! A node and its turns.
//!
//! A turn is: read and parse everything that is ready and give it to the node; tell the node what is finished; end the
//! node's turn, which makes one batch of all that; write the batches to the peers, then the replies to the clients. Nothing
//! in it blocks, takes a lock or starts a thread, and a request costs one read and one write. Batches come from load, not
//! from waiting: what arrives during a turn is the next turn's batch.

use crate::clients::Clients;
use crate::counters::Counters;
use crate::look_ahead::LookAhead;
use crate::peers::Peers;
use crate::sizes::Sizes;
use crate::turn::{Clock, Turn};
use crate::world::{Event, Moment, World};
use node::{ClientId, Line, Node};
use protocol::Now;
use storage::{ValueWork, Work};

/// Free memory is given back to the system at most this often.
const RELEASE_US: u64 = 1_000_000;

/// How often idle connections are looked through.
const SWEEP_US: u64 = 1_000_000;

/// How a turn has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turned {
    /// The node goes on.
    Over,
    /// The disk has failed, and the process must end at once. What is on the disk is not known, so nothing has left that
    /// rests on it.
    Stopped(String),
    /// The world has ended the process ([`World::lives_on`]).
    Died,
}

/// A node, its clients' connections, and all that its turns are made of.
pub struct Driver<W: World> {
    /// The node.
    pub node: Node,
    clients: Clients<W::Socket>,
    peers: Peers,
    sizes: Sizes,
    counters: Counters,
    buffer: Vec<u8>,
    ahead: LookAhead,
    lines: Vec<Line>,
    work: Vec<Work>,
    value_work: Vec<ValueWork>,
    others: Vec<ClientId>,
    /// When the turn began.
    now: Now,
    sweep_at_us: u64,
    /// When memory was last given back.
    released_us: u64,
}

/// A driver, apart: its clients, its peers, and what all parts of a turn share.
struct Parts<'a, W: World> {
    clients: &'a mut Clients<W::Socket>,
    peers: &'a mut Peers,
    others: &'a mut Vec<ClientId>,
    turn: Turn<'a, W::Clock>,
}

impl<W: World> Driver<W> {
    /// A node that has taken no turn yet.
    pub fn new(node: Node, clients: Clients<W::Socket>, sizes: Sizes) -> Driver<W> {
        Driver {
            node,
            clients,
            peers: Peers::default(),
            sizes,
            counters: Counters::default(),
            buffer: vec![0; sizes.buffer_bytes],
            ahead: LookAhead::new(),
            lines: Vec::new(),
            work: Vec::new(),
            value_work: Vec::new(),
            others: Vec::new(),
            now: Now::default(),
            sweep_at_us: 0,
            released_us: 0,
        }
    }

    /// The clients' connections.
    pub fn clients(&self) -> &Clients<W::Socket> {
        &self.clients
    }

    /// When the last turn began, on the monotonic clock.
    pub fn began_us(&self) -> u64 {
        self.now.monotonic_us
    }

    /// When the next turn has to begin if nothing happens, on the monotonic clock; 0: at once.
    #[inline]
    pub fn next_turn_us(&self, world: &W) -> u64 {
        if self.clients.is_unfinished() || self.peers.is_unfinished(&self.node) {
            return 0;
        }
        self.sweep_at_us.min(world.wakeup_us()).min(self.node.next_wakeup_us())
    }

    /// Takes a turn.
    #[inline]
    pub fn turn(&mut self, world: &mut W) -> Turned {
        self.begin_turn(world);
        self.go_on(world)
    }

    /// The first half of a turn: the node learns what time it is.
    pub fn begin_turn(&mut self, world: &W) {
        self.now = world.clock().now();
        self.node.begin_turn(self.now);
    }

    /// The second half, which is all the rest. A process may stand still between the two, while more arrives.
    pub fn go_on(&mut self, world: &mut W) -> Turned {
        self.take_input(world);
        self.take_finished(world);
        self.code_values(world);
        self.node.flush();
        // What rests on no write leaves before one: peers work on it meanwhile.
        if self.node.is_about_to_write() {
            let lives = world.lives_on(Moment::BeforeTheWrite, &mut self.node);
            world.write_to_peers(&mut self.parts(world.clock()).turn);
            if !lives {
                return Turned::Died;
            }
        }
        self.node.end_turn(world.disk());
        if let Some(why) = self.node.stopped() {
            let why = why.to_string();
            self.log_lines(world);
            return Turned::Stopped(why);
        }
        self.begin_work(world);
        if !world.lives_on(Moment::BehindTheWrite, &mut self.node) {
            return Turned::Died;
        }
        self.give_output(world);
        self.measure_memory(world);
        self.keep_house(world);
        Turned::Over
    }

    /// A process that ends in an orderly way, and takes no more turns, makes durable what nobody waits for, too, and notes that
    /// in the log: so the next start can tell damage from a write that was cut short. True when there is nothing left to wait
    /// for; until then this is to be called whenever work is finished. Nothing comes in and goes out any more, else there would
    /// be ever more to write.
    pub fn settle_log(&mut self, world: &mut W) -> bool {
        while let Some((work, result)) = world.next_finished() {
            self.node.work_finished(work, result);
        }
        let is_settled = self.node.settle_log(world.disk());
        self.begin_work(world);
        self.log_lines(world);
        is_settled
    }

    /// The driver, apart.
    #[inline]
    fn parts(&mut self, clock: W::Clock) -> Parts<'_, W> {
        let Driver { node, clients, peers, sizes, counters, buffer, ahead, lines, others, now, .. } = self;
        let turn = Turn { node, counters, lines, buffer, sizes, now: *now, clock, ahead };
        Parts { clients, peers, others, turn }
    }

    #[inline]
    fn take_input(&mut self, world: &mut W) {
        let Parts { clients, peers, turn, .. } = &mut self.parts(world.clock());
        // Who was interrupted in the last turn goes first.
        clients.serve_waiting(turn);
        peers.serve_unfinished(world, turn);
        while let Some(event) = world.next_event() {
            match event {
                Event::Client(index, change) => clients.on_change(index, change, turn),
                Event::Peer(connection) => peers.serve(connection, world, turn),
            }
        }
        world.attend(clients, turn);
    }

    #[inline]
    fn take_finished(&mut self, world: &mut W) {
        while let Some((work, result)) = world.next_finished() {
            self.node.work_finished(work, result);
        }
        while let Some((work, result)) = world.next_finished_value() {
            self.node.value_work_finished(work, result);
        }
    }

    /// Cuts values, and tells the node how long that takes.
    #[inline]
    fn code_values(&mut self, world: &W) {
        if self.node.has_values_to_code() {
            let clock = world.clock();
            let begun_us = clock.monotonic_us();
            self.node.code_values();
            self.node.coding_took(clock.monotonic_us().saturating_sub(begun_us));
        }
    }

    #[inline]
    fn begin_work(&mut self, world: &mut W) {
        self.node.take_work(&mut self.work);
        self.work.drain(..).for_each(|work| world.begin_work(work));
        self.node.take_value_work(&mut self.value_work);
        self.value_work.drain(..).for_each(|work| world.begin_value_work(work));
    }

    #[inline]
    fn give_output(&mut self, world: &mut W) {
        let Parts { clients, others, turn, .. } = &mut self.parts(world.clock());
        world.write_to_peers(turn);
        clients.write_replies(others, turn);
        others.drain(..).for_each(|id| world.tell(id, turn));
    }

    fn log_lines(&mut self, world: &mut W) {
        self.node.take_log(&mut self.lines);
        self.lines.drain(..).for_each(|line| world.log(&line));
    }

    /// Tells the node how much memory the process takes, when it wants to know.
    #[inline]
    fn measure_memory(&mut self, world: &mut W) {
        let Counters { client_bytes_in, client_bytes_out, peer_bytes_in, .. } = self.counters;
        let traffic = client_bytes_in + client_bytes_out + peer_bytes_in;
        if !self.node.wants_measurement(traffic) {
            return;
        }
        let inputs = self.clients.input_bytes() as u64;
        self.node.measured(world.resident_bytes(), inputs, traffic);
        if self.node.is_memory_tight() && self.now.monotonic_us >= self.released_us + RELEASE_US {
            world.release();
            self.released_us = world.clock().monotonic_us();
            self.node.measured(world.resident_bytes(), inputs, traffic);
        }
    }

    /// What has to be done now and then.
    #[inline]
    fn keep_house(&mut self, world: &mut W) {
        self.log_lines(world);
        world.keep_house(&mut self.parts(world.clock()).turn);
        if self.now.monotonic_us >= self.sweep_at_us {
            self.sweep_at_us = self.now.monotonic_us + SWEEP_US;
            self.node.set_usage(world.usage(&self.counters));
            let idle_timeout_seconds = self.node.parameters().idle_timeout_seconds();
            let Parts { clients, turn, .. } = &mut self.parts(world.clock());
            clients.sweep(idle_timeout_seconds, turn);
        }
    }
}

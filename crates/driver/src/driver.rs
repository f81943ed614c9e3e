//! A node and its turns.
//!
//! A turn reads and parses everything that is ready and gives it to the node, passes it the results of finished work, and
//! ends the node's turn, which makes one batch of all that. Then it writes the batches to the peers and the replies to the
//! clients. Nothing in it blocks, takes a lock or starts a thread, and a request costs one read and one write. Batches come
//! from load, not from waiting: what arrives during a turn is the next turn's batch.

use crate::clients::{Clients, Socket};
use crate::counters::Counters;
use crate::look_ahead::LookAhead;
use crate::peers::Peers;
use crate::sizes::Sizes;
use crate::turn::{Clock, Turn};
use crate::world::{Event, World};
use node::{ClientId, Line, Node};
use protocol::Now;
use protocol::planted::Fault;
use storage::{ValueWork, Work};

/// How often idle connections are swept.
const SWEEP_US: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Begin,
    TakeIn,
    SendAhead,
    Write,
    Give,
}

/// The disk has failed, and the process must end at once. The disk's contents are unknown, so nothing that depends on them
/// has been sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The reason, as text.
    pub why: String,
}

/// A node, its clients' connections, and everything else that its turns need.
pub struct Driver<S> {
    /// The node.
    pub node: Node,
    clients: Clients<S>,
    peers: Peers,
    sizes: Sizes,
    counters: Counters,
    buffer: Vec<u8>,
    ahead: LookAhead,
    lines: Vec<Line>,
    work: Vec<Work>,
    value_work: Vec<ValueWork>,
    others: Vec<ClientId>,
    next: Step,
    now: Now,
    sweep_at_us: u64,
}

/// A driver's parts, borrowed separately: its clients, its peers, and what all parts of a turn share.
struct Parts<'a, S, C> {
    clients: &'a mut Clients<S>,
    peers: &'a mut Peers,
    others: &'a mut Vec<ClientId>,
    turn: Turn<'a, C>,
}

impl<S: Socket> Driver<S> {
    /// Creates a driver whose node has taken no turn yet.
    pub fn new(node: Node, clients: Clients<S>, sizes: Sizes) -> Driver<S> {
        sizes.check();
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
            next: Step::Begin,
            now: Now::default(),
            sweep_at_us: 0,
        }
    }

    /// The clients' connections.
    pub fn clients(&self) -> &Clients<S> {
        &self.clients
    }

    /// When the last turn began, in microseconds of the monotonic clock.
    pub fn began_us(&self) -> u64 {
        self.now.monotonic_us
    }

    /// When the next turn has to begin if nothing happens, in microseconds of the monotonic clock; 0 means at once.
    #[inline]
    pub fn next_turn_us<W: World<Socket = S>>(&self, world: &W) -> u64 {
        if self.clients.is_unfinished(&self.node) || self.peers.is_unfinished(&self.node) {
            return 0;
        }
        self.sweep_at_us.min(world.wakeup_us()).min(self.node.next_wakeup_us())
    }

    /// Takes a turn.
    ///
    /// # Errors
    /// [`Stopped`] when the node has stopped.
    #[inline]
    pub fn turn<W: World<Socket = S>>(&mut self, world: &mut W) -> Result<(), Stopped> {
        self.begin(world);
        self.take_in(world);
        self.send_ahead(world);
        self.write(world)?;
        self.give(world);
        Ok(())
    }

    // The steps of a turn, which must be called in this order. Between two of them a process may pause, while more arrives,
    // or die: a world that simulates this takes the steps one by one.

    /// Begins a turn: gives the node the time.
    #[inline]
    pub fn begin<W: World<Socket = S>>(&mut self, world: &W) {
        self.enter(Step::Begin, Step::TakeIn);
        self.now = world.clock().now();
        self.node.begin_turn(self.now);
    }

    /// Takes in what has arrived and what has finished. The node makes its batch from that.
    pub fn take_in<W: World<Socket = S>>(&mut self, world: &mut W) {
        self.enter(Step::TakeIn, Step::SendAhead);
        self.take_input(world);
        self.take_finished(world);
        self.code_values(world);
        self.node.flush();
        self.measure(world);
    }

    /// If the turn is about to write to the disk, first sends what does not depend on that write, so that peers can
    /// work on it during the write.
    #[inline]
    pub fn send_ahead<W: World<Socket = S>>(&mut self, world: &mut W) {
        self.enter(Step::SendAhead, Step::Write);
        if self.node.is_about_to_write() {
            world.write_to_peers(&mut self.parts(world.clock()).turn);
        }
    }

    /// Writes the turn's records, and begins the work that runs beside the node.
    ///
    /// # Errors
    /// [`Stopped`] when the node has stopped.
    #[inline]
    pub fn write<W: World<Socket = S>>(&mut self, world: &mut W) -> Result<(), Stopped> {
        self.enter(Step::Write, Step::Give);
        self.node.end_turn(world.disk());
        self.measure(world);
        if let Some(why) = self.node.stopped() {
            let why = why.to_owned();
            self.log_lines(world);
            return Err(Stopped { why });
        }
        self.begin_work(world);
        Ok(())
    }

    /// Sends the turn's output to peers and clients.
    pub fn give<W: World<Socket = S>>(&mut self, world: &mut W) {
        self.enter(Step::Give, Step::Begin);
        self.give_output(world);
        self.measure_memory(world);
        self.run_periodic_tasks(world);
    }

    /// Gives the node the time, if commands that may have taken long have ended.
    #[inline]
    fn measure<W: World<Socket = S>>(&mut self, world: &W) {
        if self.node.is_measuring() {
            self.node.measure(world.clock().monotonic_us());
        }
    }

    /// Checks the node, its clients' connections and those of peers. Simulations call it between two turns.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self) {
        assert_eq!(self.next, Step::Begin, "a turn is over");
        assert_eq!(
            self.buffer.len(),
            self.sizes.buffer_bytes,
            "what has borrowed the buffer has given it back"
        );
        assert!(
            self.work.is_empty() && self.value_work.is_empty(),
            "work begins in the turn that asks for it"
        );
        assert!(self.others.is_empty(), "clients without a socket get their output in the turn that made it");
        if self.node.configuration().planted.has_invariants() {
            self.clients.check_invariants(&self.node);
            self.peers.check_invariants();
        }
        self.node.check_invariants();
    }

    #[inline]
    fn enter(&mut self, step: Step, next: Step) {
        assert_eq!(self.next, step, "a turn's steps have one order");
        self.next = next;
    }

    /// Makes the rest of the log durable before an orderly exit, and records in the log that it is durable, so that the
    /// next start can distinguish damage from a write that was cut short. Returns true when nothing is left to wait for;
    /// until then, call it again whenever work has finished. Take no more turns after the first call: input would only add
    /// more to write.
    pub fn settle_log<W: World<Socket = S>>(&mut self, world: &mut W) -> bool {
        while let Some((work, result)) = world.next_finished() {
            self.node.work_finished(work, result);
        }
        let is_settled = self.node.settle_log(world.disk());
        self.begin_work(world);
        self.log_lines(world);
        is_settled
    }

    /// Borrows the driver's parts separately.
    #[inline]
    fn parts<C: Clock>(&mut self, clock: C) -> Parts<'_, S, C> {
        let planted = self.node.configuration().planted;
        let Driver { node, clients, peers, sizes, counters, buffer, ahead, lines, others, now, .. } = self;
        let turn = Turn { node, counters, lines, buffer, sizes, now: *now, clock, ahead, planted };
        Parts { clients, peers, others, turn }
    }

    #[inline]
    fn take_input<W: World<Socket = S>>(&mut self, world: &mut W) {
        let Parts { clients, peers, others, turn } = &mut self.parts(world.clock());
        // Clients that were interrupted in the last turn go first.
        clients.serve_waiting(turn);
        peers.serve_unfinished(world, turn);
        while let Some(event) = world.next_event() {
            match event {
                Event::Client(index, change) => {
                    let is_last = !world.has_more_events();
                    clients.on_change(index, change, is_last, turn);
                }
                Event::Peer(connection) => peers.serve(connection, world, turn),
            }
        }
        clients.serve_round(turn);
        clients.serve_last(others, turn);
        world.attend(clients, turn);
    }

    #[inline]
    fn take_finished<W: World<Socket = S>>(&mut self, world: &mut W) {
        let is_taken_twice = self.node.configuration().planted.has(Fault::FinishedTakenTwice);
        while let Some((work, result)) = world.next_finished() {
            if is_taken_twice {
                self.node.work_finished(work.clone(), result.clone());
            }
            self.node.work_finished(work, result);
        }
        while let Some((work, result)) = world.next_finished_value() {
            self.node.value_work_finished(work, result);
        }
    }

    /// Encodes values, and reports to the node how long that took.
    #[inline]
    fn code_values<W: World<Socket = S>>(&mut self, world: &W) {
        if self.node.has_values_to_code() {
            let clock = world.clock();
            let begun_us = clock.monotonic_us();
            self.node.code_values();
            self.node.coding_took(clock.monotonic_us().saturating_sub(begun_us));
        }
    }

    #[inline]
    fn begin_work<W: World<Socket = S>>(&mut self, world: &mut W) {
        if !self.node.has_work() {
            return;
        }
        self.node.take_work(&mut self.work);
        self.work.drain(..).for_each(|work| world.begin_work(work));
        self.node.take_value_work(&mut self.value_work);
        self.value_work.drain(..).for_each(|work| world.begin_value_work(work));
    }

    #[inline]
    fn give_output<W: World<Socket = S>>(&mut self, world: &mut W) {
        let Parts { clients, others, turn, .. } = &mut self.parts(world.clock());
        world.write_to_peers(turn);
        clients.write_replies(others, turn);
        others.drain(..).for_each(|id| world.tell(id, turn));
    }

    #[inline]
    fn log_lines<W: World<Socket = S>>(&mut self, world: &mut W) {
        if self.node.has_log() || !self.lines.is_empty() {
            self.log_some_lines(world);
        }
    }

    #[cold]
    fn log_some_lines<W: World<Socket = S>>(&mut self, world: &mut W) {
        self.node.take_log(&mut self.lines);
        self.lines.drain(..).for_each(|line| world.log(&line));
    }

    /// Reports the process's memory to the node, when the node wants a measurement.
    #[inline]
    fn measure_memory<W: World<Socket = S>>(&mut self, world: &mut W) {
        let Counters { client_bytes_in, client_bytes_out, peer_bytes_in, .. } = self.counters;
        let traffic = client_bytes_in + client_bytes_out + peer_bytes_in;
        if !self.node.wants_measurement(traffic) {
            return;
        }
        let inputs = self.clients.input_bytes() as u64;
        self.node.measured(world.resident_bytes(), inputs, traffic);
        if self.node.releases_memory() {
            world.release();
        }
    }

    #[inline]
    fn run_periodic_tasks<W: World<Socket = S>>(&mut self, world: &mut W) {
        self.log_lines(world);
        world.run_periodic_tasks(&mut self.parts(world.clock()).turn);
        if self.now.monotonic_us >= self.sweep_at_us {
            self.sweep_at_us = self.now.monotonic_us + SWEEP_US;
            self.node.set_usage(world.usage(&self.counters));
            let idle_timeout_seconds = self.node.parameters().idle_timeout_seconds();
            let Parts { clients, turn, .. } = &mut self.parts(world.clock());
            clients.sweep(idle_timeout_seconds, turn);
        }
    }
}

//! A thread of its own vouches for the worker: it tells the other nodes that this one is alive and busy.
//!
//! The worker does everything of a node, so a command that takes long keeps it from heartbeats and leases. This thread
//! never waits for the worker. It looks at a count of turns that the worker keeps, and while one turn lasts, it says so to
//! the other nodes over connections of its own; and so it does while a turn that is due does not begin, since the machine
//! has no processor for the worker. The same thread takes what the others say, and calls the worker. A turn
//! that does not end is vouched for only for a while: then the node counts as dead, and others lead its groups.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mio::Waker;
use mio::net::TcpStream;
use node::NodeId;
use protocol::vouch::BUSY_MS_MAX;
use wire::frame::{self, Next};
use wire::seal::Session;

use crate::thread;
use crate::tls::{AnySocket, Scratch, Secured, TlsStream, scratch};
use crate::turn::Clock;
use driver::Clock as _;

/// How often the thread looks at the worker, says that it is busy, and takes what others say. A turn is long when it was
/// under way at two looks.
const LOOK_MS: u64 = 20;

/// The only message: the sender is alive and busy.
const BUSY: &[u8] = b"busy";

/// The worker's side.
pub(crate) struct Vouching {
    /// How often a turn has begun or ended: odd while a turn lasts.
    turns: Arc<AtomicU64>,
    /// Between two turns: when the next one begins at the latest, in microseconds of the monotonic clock.
    due_us: Arc<AtomicU64>,
    orders: Sender<Order>,
    news: Arc<News>,
    /// The number of the last connection that was handed over.
    handed: u64,
}

/// What the thread has for the worker.
#[derive(Default)]
struct News {
    /// Whether there is anything. The worker reads it in every turn.
    is_there: AtomicBool,
    found: Mutex<Found>,
}

/// What the thread has found since the worker last asked.
#[derive(Default)]
pub(crate) struct Found {
    /// The nodes that are alive and busy.
    pub(crate) vouched: BTreeSet<NodeId>,
    /// The connections that are broken: the other node, and the connection's number.
    pub(crate) lost: Vec<(NodeId, u64)>,
}

/// A connection that is handed over: without what belongs to the worker's thread.
pub(crate) enum Handed {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS.
    Tls(Secured),
}

enum Order {
    Take { node: NodeId, number: u64, socket: Handed, session: Box<Session>, input: Vec<u8> },
    Drop(NodeId),
}

impl Vouching {
    /// Starts the thread, which wakes the worker when another node is busy. All times are `patience` times as long as usual.
    ///
    /// # Errors
    /// The system has no threads left.
    pub(crate) fn start(waker: Arc<Waker>, patience: u64) -> io::Result<Vouching> {
        let (orders, receiver) = channel();
        let (turns, news) = (Arc::<AtomicU64>::default(), Arc::<News>::default());
        let due_us = Arc::new(AtomicU64::new(u64::MAX));
        let theirs = (Arc::clone(&turns), Arc::clone(&due_us), Arc::clone(&news));
        let run = move || {
            let (turns, due_us, news) = theirs;
            let voucher = Voucher {
                turns,
                due_us,
                orders: receiver,
                news,
                waker,
                look: Duration::from_millis(LOOK_MS * patience),
                busy_max: Duration::from_millis(BUSY_MS_MAX * patience),
                lanes: Vec::new(),
                seen: (0, None),
            };
            voucher.run(&scratch());
        };
        thread::start("vouching", run)?;
        Ok(Vouching { turns, due_us, orders, news, handed: 0 })
    }

    /// A turn begins, or ends.
    #[inline]
    pub(crate) fn note_turn(&self) {
        // Only this thread writes it, and nothing else depends on its order.
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The worker waits now, until this moment of the monotonic clock at the latest.
    #[inline]
    pub(crate) fn note_wait(&self, until_us: u64) {
        self.due_us.store(until_us, Ordering::Relaxed);
    }

    /// Hands over a connection to another node, which replaces an earlier one. Returns its number.
    pub(crate) fn hand_over(
        &mut self,
        node: NodeId,
        socket: Handed,
        session: Session,
        input: Vec<u8>,
    ) -> u64 {
        self.handed += 1;
        let number = self.handed;
        // The thread ends only with this process.
        let _ = self.orders.send(Order::Take { node, number, socket, session: Box::new(session), input });
        number
    }

    /// Drops the connection to a node.
    pub(crate) fn drop_lane(&self, node: NodeId) {
        let _ = self.orders.send(Order::Drop(node));
    }

    /// Takes what the thread has found.
    #[inline]
    pub(crate) fn take_found(&self) -> Option<Found> {
        if !self.news.is_there.load(Ordering::Relaxed) || !self.news.is_there.swap(false, Ordering::Acquire) {
            return None;
        }
        let mut found = self.news.found.lock().unwrap_or_else(PoisonError::into_inner);
        Some(std::mem::take(&mut *found))
    }
}

/// The thread's side.
struct Voucher {
    turns: Arc<AtomicU64>,
    due_us: Arc<AtomicU64>,
    orders: Receiver<Order>,
    news: Arc<News>,
    waker: Arc<Waker>,
    look: Duration,
    busy_max: Duration,
    lanes: Vec<Lane>,
    /// The count of turns at the last look, and since when it has been the same, if a turn lasts or is overdue.
    seen: (u64, Option<Instant>),
}

impl Voucher {
    fn run(mut self, scratch: &Scratch) {
        while self.take_orders(scratch) {
            let is_busy = self.is_busy(Instant::now(), Clock.monotonic_us());
            self.serve(is_busy);
            std::thread::sleep(self.look);
        }
    }

    /// Returns false when the worker has ended.
    fn take_orders(&mut self, scratch: &Scratch) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Take { node, number, socket, session, input }) => {
                    let socket = match socket {
                        Handed::Plain(socket) => AnySocket::Plain(socket),
                        Handed::Tls(secured) => {
                            AnySocket::Tls(Box::new(TlsStream::of(secured, Scratch::clone(scratch))))
                        }
                    };
                    self.lanes.retain(|lane| lane.node != node);
                    self.lanes.push(Lane { node, number, socket, session, input, output: Vec::new() });
                }
                Ok(Order::Drop(node)) => self.lanes.retain(|lane| lane.node != node),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Whether the worker has been in one turn since the last look at least, or should have begun one by then, but not for
    /// too long.
    fn is_busy(&mut self, now: Instant, now_us: u64) -> bool {
        let turns = self.turns.load(Ordering::Relaxed);
        let overdue_us = now_us.saturating_sub(self.due_us.load(Ordering::Relaxed));
        let is_under_way = !turns.is_multiple_of(2) || overdue_us > self.look.as_micros() as u64;
        let (before, since) = self.seen;
        if !is_under_way || turns != before {
            self.seen = (turns, is_under_way.then_some(now));
            return false;
        }
        let since = since.unwrap_or(now);
        self.seen.1 = Some(since);
        now.duration_since(since) < self.busy_max
    }

    /// Says to all others that this node is busy, if it is, and takes what they say.
    fn serve(&mut self, is_busy: bool) {
        let mut found = Found::default();
        self.lanes.retain_mut(|lane| {
            let served = lane.read().and_then(|is_vouched| {
                if is_vouched {
                    found.vouched.insert(lane.node);
                }
                if is_busy { lane.vouch() } else { Ok(()) }
            });
            if served.is_err() {
                found.lost.push((lane.node, lane.number));
            }
            served.is_ok()
        });
        if found.vouched.is_empty() && found.lost.is_empty() {
            return;
        }
        let mut known = self.news.found.lock().unwrap_or_else(PoisonError::into_inner);
        known.vouched.append(&mut found.vouched);
        known.lost.append(&mut found.lost);
        drop(known);
        self.news.is_there.store(true, Ordering::Release);
        // It fails only when the poll no longer exists, and then nothing waits.
        let _ = self.waker.wake();
    }
}

/// A connection to another node's thread.
struct Lane {
    node: NodeId,
    number: u64,
    socket: AnySocket,
    session: Box<Session>,
    /// The beginning of a frame that has not arrived completely.
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Lane {
    /// Takes what has arrived. Returns whether the other node has vouched for itself.
    fn read(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 1024];
        let mut is_vouched = false;
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            is_vouched |= self.take_frames()?;
        }
        Ok(self.take_frames()? || is_vouched)
    }

    /// Takes the frames off the input. What a later release may send beside [`BUSY`] is skipped.
    fn take_frames(&mut self) -> io::Result<bool> {
        const PAYLOAD_BYTES_MAX: usize = 1024;
        let (mut taken, mut is_vouched) = (0, false);
        loop {
            let next = self.session.opener.next(&mut self.input[taken..], PAYLOAD_BYTES_MAX);
            match next.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))? {
                Next::Frame { payload, consumed } => {
                    is_vouched |= payload == BUSY;
                    taken += consumed;
                }
                Next::Incomplete { .. } => break,
            }
        }
        self.input.drain(..taken);
        Ok(is_vouched)
    }

    /// Says that this node is busy. While the other one reads nothing, it is said once.
    fn vouch(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            frame::append(&mut self.output, |out| out.extend_from_slice(BUSY));
            self.session.sealer.seal(&mut self.output);
        }
        while !self.output.is_empty() {
            match self.socket.write(&self.output) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.output.drain(..count);
                    self.session.sealer.removed(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_busy_in_a_long_turn_and_while_a_turn_is_overdue() {
        let poll = mio::Poll::new().unwrap();
        let mut voucher = Voucher {
            turns: Arc::default(),
            due_us: Arc::new(AtomicU64::new(u64::MAX)),
            orders: channel().1,
            news: Arc::default(),
            waker: Arc::new(Waker::new(poll.registry(), mio::Token(0)).unwrap()),
            look: Duration::from_millis(20),
            busy_max: Duration::from_millis(100),
            lanes: Vec::new(),
            seen: (0, None),
        };
        let begun = Instant::now();
        let mut look = |turns, due_ms: u64, ms: u64| {
            voucher.turns.store(turns, Ordering::Relaxed);
            voucher.due_us.store(due_ms * 1000, Ordering::Relaxed);
            voucher.is_busy(begun + Duration::from_millis(ms), ms * 1000)
        };
        assert!(!look(2, 80, 0) && !look(2, 80, 100), "it waits, and is not late yet");
        assert!(look(2, 80, 120) && look(2, 80, 219) && !look(2, 80, 220), "it is late, and then too late");
        assert!(!look(3, 80, 240), "a turn has begun");
        assert!(look(3, 80, 260) && look(3, 80, 339) && !look(3, 80, 340), "it lasts, and then too long");
        assert!(!look(5, 80, 360), "many turns");
    }
}

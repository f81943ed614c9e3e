//! One connection through the relay: two sockets, and a pipe in each direction.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Duration;

use mio::net::TcpStream;

use super::Nanos;
use super::fabric::LinkId;
use super::fabric::{FAST_RETRANSMIT_PACKETS, Lost, Passage};

/// The end that dialled the relay; the other is the end that the relay dials.
pub(super) const DIALER: usize = 0;
pub(super) const TARGET: usize = 1;

/// One end of a connection.
#[derive(Default)]
pub(super) struct End {
    /// `None` until it is dialled.
    pub(super) socket: Option<TcpStream>,
    /// Whether the connection is established.
    pub(super) is_connected: bool,
    /// Whether it may hold unread bytes.
    pub(super) is_readable: bool,
    /// Whether the other side has closed; only a read shows how.
    pub(super) is_hung_up: bool,
    /// Whether it may accept bytes.
    pub(super) is_writable: bool,
}

impl End {
    pub(super) fn connected(socket: TcpStream) -> End {
        End {
            socket: Some(socket),
            is_connected: true,
            is_readable: true,
            is_hung_up: false,
            is_writable: true,
        }
    }

    /// Makes the other side see a reset instead of an orderly end.
    pub(super) fn reset(&mut self) {
        if let Some(socket) = self.socket.take() {
            // If this fails, the other side still sees the end, but an orderly one.
            let _ = rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
        }
    }
}

/// What travels in one direction.
#[derive(Debug)]
pub(super) enum Content {
    Bytes {
        data: Vec<u8>,
        written: usize,
    },
    /// The sender has finished sending.
    End,
    /// The sender has reset the connection.
    Reset,
}

#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) content: Content,
    pub(super) arrives: Nanos,
    lost: Option<Lost>,
}

/// One direction of a connection.
pub(super) struct Pipe {
    pub(super) link: LinkId,
    /// Until then the sender believes that it is still connecting.
    pub(super) opens_at: Nanos,
    queue: VecDeque<Chunk>,
    queued_bytes: u64,
    /// The number of queued chunks whose arrival a later packet may bring forward.
    lost: usize,
    /// Whether it is in the queue of a pace.
    pub(super) is_waiting: bool,
    /// The time of its next wake-up on the agenda.
    pub(super) wakes_at: Option<Nanos>,
    /// Whether the sender's end or reset has been read.
    pub(super) is_over: bool,
    /// Whether the end has been delivered.
    pub(super) is_done: bool,
    /// Bytes delivered while their acknowledgements were held back.
    pub(super) unacknowledged: u64,
}

impl Pipe {
    pub(super) fn new(link: LinkId, opens_at: Nanos) -> Pipe {
        Pipe {
            link,
            opens_at,
            queue: VecDeque::new(),
            queued_bytes: 0,
            lost: 0,
            is_waiting: false,
            wakes_at: None,
            is_over: false,
            is_done: false,
            unacknowledged: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    pub(super) fn front_arrives(&self) -> Option<Nanos> {
        self.queue.front().map(|chunk| chunk.arrives)
    }

    pub(super) fn front(&mut self) -> Option<&mut Chunk> {
        self.queue.front_mut()
    }

    /// Removes the first chunk, which has arrived and been handled. Returns its buffer for reuse.
    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        let chunk = self.queue.pop_front()?;
        self.lost -= usize::from(chunk.lost.is_some());
        let Content::Bytes { data, .. } = chunk.content else { return None };
        self.queued_bytes -= data.len() as u64;
        Some(data)
    }

    /// Queues bytes that depart. They may inform the sender of packets lost before them.
    pub(super) fn push(&mut self, data: Vec<u8>, passage: &Passage) {
        if self.lost > 0 {
            self.report_losses(passage);
        }
        self.lost += usize::from(passage.lost.is_some());
        self.queued_bytes += data.len() as u64;
        let content = Content::Bytes { data, written: 0 };
        self.queue.push_back(Chunk { content, arrives: passage.arrives, lost: passage.lost });
    }

    /// Queues an end or a reset.
    pub(super) fn push_last(&mut self, content: Content, arrives: Nanos) {
        self.is_over = true;
        self.queue.push_back(Chunk { content, arrives, lost: None });
    }

    /// Queues bytes that the receiver did not take at once.
    pub(super) fn push_rest(&mut self, data: &[u8], now: Nanos) {
        self.queued_bytes += data.len() as u64;
        let content = Content::Bytes { data: data.to_vec(), written: 0 };
        self.queue.push_back(Chunk { content, arrives: now, lost: None });
    }

    /// Drops everything in flight: it has no receiver any more.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        (self.queued_bytes, self.lost) = (0, 0);
        self.is_over = true;
        self.is_done = true;
    }

    /// Makes held chunks, which are sent again, arrive no earlier than this.
    pub(super) fn arrive_from(&mut self, arrives: Nanos) {
        for chunk in &mut self.queue {
            chunk.arrives = chunk.arrives.max(arrives);
        }
    }

    fn report_losses(&mut self, passage: &Passage) {
        for chunk in &mut self.queue {
            let Some(lost) = &mut chunk.lost else { continue };
            lost.packets_behind += passage.packets;
            if lost.packets_behind >= FAST_RETRANSMIT_PACKETS {
                chunk.arrives = chunk.arrives.min(lost.arrives_if_reported(passage.departs));
                chunk.lost = None;
                self.lost -= 1;
            }
        }
    }
}

pub(super) struct Connection {
    /// Distinguishes it from earlier connections in the same place.
    pub(super) birth: u64,
    pub(super) route: usize,
    pub(super) ends: [End; 2],
    /// Pipe i leads from end i to the other.
    pub(super) pipes: [Pipe; 2],
}

/// Writes to a non-blocking socket. `None`: it would block.
pub(super) fn try_write(socket: &mut TcpStream, bytes: &[u8]) -> io::Result<Option<usize>> {
    again(|| socket.write(bytes))
}

/// Repeats an interrupted call on a non-blocking socket. `None`: it would block.
pub(super) fn again(mut attempt: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match attempt() {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fabric::Fabric;
    use super::super::settings::Link;
    use super::*;

    #[test]
    fn three_packets_behind_a_lost_one_have_it_resent_after_a_round_trip() {
        const MS: Nanos = 1_000_000;
        let mut fabric: Fabric<()> = Fabric::new(1);
        let (there, back) = (fabric.link(1, 2), fabric.link(2, 1));
        let calm = Link::default().change("delay=10ms").unwrap();
        fabric.change_link(back, calm, 0);
        // Lost six times: after the first timeout of 220 ms, five more, each twice as long.
        fabric.change_link(there, Link { loss: 1.0, ..calm }, 0);
        let mut pipe = Pipe::new(there, 0);
        let lost = fabric.send(there, 100, 0, false);
        pipe.push(vec![0; 100], &lost);
        assert_eq!(pipe.front_arrives(), Some(63 * 220 * MS + 10 * MS));
        fabric.change_link(there, calm, 0);
        for packet in 1..=3 {
            let passage = fabric.send(there, 100, packet * MS, false);
            pipe.push(vec![0; 100], &passage);
        }
        // The third left at 3 ms; its sender learns of the loss at 23 ms, and the retransmission arrives at
        // 33 ms.
        assert_eq!(pipe.front_arrives(), Some(62 * 220 * MS + 33 * MS));
        assert_eq!(pipe.queued_bytes(), 400);
    }
}

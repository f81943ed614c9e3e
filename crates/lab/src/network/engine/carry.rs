//! Carries bytes: from a socket onto a link, and from a link into a socket.

use std::io::Read;
use std::net::Shutdown;

use super::super::Nanos;
use super::super::connection::{Chunk, Connection, Content, again, try_write};
use super::super::fabric::{LinkId, PACKET_BYTES, PaceId};
use super::super::nanos;
use super::super::settings::Gate;
use super::{BUFFER_BYTES, Due, Engine, PipeId};

/// How much a connection may receive while the bytes sent back, acknowledgements among them, are dropped: then its
/// sender's window is full.
const ONE_WAY_BYTES: u64 = 64 << 10;

/// After this many system calls in a row it is others' turn.
const STEPS_MAX: usize = 16;

/// How many large buffers are kept for reuse.
const SPARES_MAX: usize = 32;

/// The result of an attempt to carry something.
enum Step {
    /// There may be more.
    Done,
    /// Nothing more can be done before something else happens.
    Stuck,
}

impl Engine {
    /// Does everything that can be done for a pipe now.
    pub(super) fn serve(&mut self, pipe: PipeId) {
        self.carry(pipe, false);
    }

    /// Serves the pipes that wait for a pace, in order.
    pub(super) fn call(&mut self, pace: PaceId) {
        self.fabric.waiting(pace).is_awaited = false;
        loop {
            let now = self.timer.now();
            let waiting = self.fabric.waiting(pace);
            if let Some(at) = waiting.pace.blocked_until(now) {
                if !waiting.queue.is_empty() && !waiting.is_awaited {
                    waiting.is_awaited = true;
                    self.appoint(at, Due::Turn(pace));
                }
                return;
            }
            let Some(first) = waiting.queue.pop_front() else { return };
            if let Some(pipe) = self.pipe(first) {
                pipe.is_waiting = false;
                self.carry(first, true);
            }
        }
    }

    fn carry(&mut self, pipe: PipeId, mut is_its_turn: bool) {
        for _ in 0..STEPS_MAX {
            let now = self.timer.now();
            let delivered = self.deliver(pipe, now);
            let read = self.read(pipe, std::mem::take(&mut is_its_turn));
            if let (Step::Stuck, Step::Stuck) = (delivered, read) {
                return self.wake_at_arrival(pipe, now);
            }
        }
        if self.pipe(pipe).is_some() {
            self.unfinished.push(pipe);
        }
    }

    /// Writes the first chunk, if it has arrived by `now`.
    fn deliver(&mut self, pipe: PipeId, now: Nanos) -> Step {
        let Some((mut allowance, gate)) = self.allowance(pipe) else { return Step::Stuck };
        let Some(Connection { ends, pipes, .. }) = self.connection(pipe) else { return Step::Stuck };
        let (from, to) = (pipe.from, 1 - pipe.from);
        let Some(chunk) = pipes[from].front().filter(|chunk| chunk.arrives <= now) else {
            return Step::Stuck;
        };
        if gate != Gate::Open {
            return Step::Stuck;
        }
        let end = &mut ends[to];
        let Chunk { content, .. } = chunk;
        match content {
            Content::Bytes { data, written } => {
                let Some(socket) = end.socket.as_mut().filter(|_| end.is_writable && end.is_connected) else {
                    return Step::Stuck;
                };
                let rest = &data[*written..];
                allowance = allowance.min(rest.len());
                if allowance == 0 {
                    return Step::Stuck;
                }
                match try_write(socket, &rest[..allowance]) {
                    Ok(Some(count)) => {
                        *written += count;
                        let is_whole = *written == data.len();
                        pipes[from].unacknowledged += count as u64;
                        if is_whole {
                            let data = pipes[from].pop();
                            self.recycle(data);
                        }
                        Step::Done
                    }
                    Ok(None) => {
                        end.is_writable = false;
                        Step::Stuck
                    }
                    Err(_) => {
                        self.break_off(pipe.back());
                        Step::Stuck
                    }
                }
            }
            Content::End => {
                let Some(socket) = end.socket.as_ref().filter(|_| end.is_connected) else {
                    return Step::Stuck;
                };
                // Fails only if the other side is gone; the opposite pipe then detects it.
                let _ = socket.shutdown(Shutdown::Write);
                pipes[from].pop();
                pipes[from].is_done = true;
                if pipes[to].is_done {
                    self.connections[pipe.place] = None;
                }
                Step::Stuck
            }
            Content::Reset => {
                self.kill(pipe);
                Step::Stuck
            }
        }
    }

    /// Reads the sender's bytes, if they may go onto the link now.
    fn read(&mut self, pipe: PipeId, is_its_turn: bool) -> Step {
        let now = self.timer.now();
        let Some((allowance, gate)) = self.allowance(pipe) else { return Step::Stuck };
        let Some(Connection { ends, pipes, .. }) = self.connection(pipe) else { return Step::Stuck };
        let (from, to) = (pipe.from, 1 - pipe.from);
        let (end, way) = (&ends[from], &pipes[from]);
        let can_read = end.is_readable && end.is_connected && ends[to].is_connected;
        if gate != Gate::Open || !can_read || way.is_over || way.is_waiting || now < way.opens_at {
            return Step::Stuck;
        }
        let (link, is_empty, queued_bytes) = (way.link, way.is_empty(), way.queued_bytes());
        if self.fabric.is_plain(link) {
            return if is_empty { self.pass_on(pipe, link, allowance, now) } else { Step::Stuck };
        }
        if queued_bytes >= self.fabric.window_bytes(link) {
            return Step::Stuck;
        }
        if let Some(pace) = self.fabric.blocking(link, now, is_its_turn) {
            self.stand_in_line(pipe, pace, now);
            return Step::Stuck;
        }
        let quantum = self.fabric.quantum_bytes(link);
        match self.read_some(pipe, quantum) {
            Heard::Nothing => Step::Stuck,
            Heard::Last(content) => {
                let arrives = now + nanos(self.fabric.way(link).link.delay);
                if let Some(way) = self.pipe(pipe) {
                    way.push_last(content, arrives);
                }
                Step::Done
            }
            Heard::Bytes(count) => {
                let passage = self.fabric.send(link, count, now, is_its_turn);
                let data = self.taken(count);
                if let Some(way) = self.pipe(pipe) {
                    way.push(data, &passage);
                }
                Step::Done
            }
        }
    }

    /// Carries bytes from socket to socket over a link that has no effect on them.
    fn pass_on(&mut self, pipe: PipeId, link: LinkId, allowance: usize, now: Nanos) -> Step {
        let limit = self.buffer.len().min(allowance);
        let to = 1 - pipe.from;
        match self.read_some(pipe, limit) {
            Heard::Nothing => Step::Stuck,
            Heard::Last(content) => {
                if let Some(way) = self.pipe(pipe) {
                    way.push_last(content, now);
                }
                Step::Done
            }
            Heard::Bytes(count) => {
                self.fabric.note_plain(link, count);
                let buffer = std::mem::take(&mut self.buffer);
                let mut written = Ok(None);
                if let Some(Connection { ends, pipes, .. }) = self.connection(pipe) {
                    if let Some(socket) = &mut ends[to].socket {
                        written = try_write(socket, &buffer[..count]);
                    }
                    let taken = *written.as_ref().unwrap_or(&None);
                    ends[to].is_writable &= taken == Some(count);
                    let taken = taken.unwrap_or(0);
                    pipes[pipe.from].unacknowledged += taken as u64;
                    if taken < count {
                        pipes[pipe.from].push_rest(&buffer[taken..count], now);
                    }
                }
                self.buffer = buffer;
                if written.is_err() {
                    self.break_off(pipe.back());
                }
                Step::Done
            }
        }
    }

    /// Reads at most `limit` bytes into the buffer.
    fn read_some(&mut self, pipe: PipeId, limit: usize) -> Heard {
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = match self.connection(pipe).map(|connection| &mut connection.ends[pipe.from]) {
            Some(end) if limit > 0 => match &mut end.socket {
                Some(socket) => match again(|| socket.read(&mut buffer[..limit])) {
                    Ok(Some(0)) => Heard::Last(Content::End),
                    Ok(Some(count)) => {
                        // The kernel had no more. The sender's end is a separate event.
                        end.is_readable = count == limit || end.is_hung_up;
                        Heard::Bytes(count)
                    }
                    Ok(None) => {
                        end.is_readable = false;
                        Heard::Nothing
                    }
                    Err(_) => Heard::Last(Content::Reset),
                },
                None => Heard::Nothing,
            },
            _ => Heard::Nothing,
        };
        self.buffer = buffer;
        read
    }

    /// Returns the bytes read into the buffer. Many are handed over with the buffer, few are copied: a large buffer
    /// that holds little would take memory that no window counts.
    fn taken(&mut self, count: usize) -> Vec<u8> {
        if count < BUFFER_BYTES / 2 {
            return self.buffer[..count].to_vec();
        }
        let fresh = self.spares.pop().unwrap_or_else(|| vec![0; BUFFER_BYTES]);
        let mut data = std::mem::replace(&mut self.buffer, fresh);
        data.truncate(count);
        data
    }

    /// Keeps a large buffer for reuse.
    fn recycle(&mut self, data: Option<Vec<u8>>) {
        if let Some(mut data) = data
            && data.capacity() >= BUFFER_BYTES
            && self.spares.len() < SPARES_MAX
        {
            data.resize(BUFFER_BYTES, 0);
            self.spares.push(data);
        }
    }

    fn stand_in_line(&mut self, pipe: PipeId, pace: PaceId, now: Nanos) {
        let waiting = self.fabric.waiting(pace);
        waiting.queue.push_back(pipe);
        let at = waiting.pace.blocked_until(now).unwrap_or(now);
        if !std::mem::replace(&mut waiting.is_awaited, true) {
            self.appoint(at, Due::Turn(pace));
        }
        if let Some(pipe) = self.pipe(pipe) {
            pipe.is_waiting = true;
        }
    }

    /// How much a pipe may deliver, and its link's gate.
    fn allowance(&mut self, pipe: PipeId) -> Option<(usize, Gate)> {
        let connection = self.connection(pipe)?;
        let links = [pipe.from, 1 - pipe.from].map(|from| connection.pipes[from].link);
        let unacknowledged = connection.pipes[pipe.from].unacknowledged;
        let [gate, gate_back] = links.map(|link| self.fabric.way(link).gate);
        if gate_back == Gate::Open {
            if let Some(way) = self.pipe(pipe) {
                way.unacknowledged = 0;
            }
            return Some((usize::MAX, gate));
        }
        let left = ONE_WAY_BYTES.saturating_sub(unacknowledged);
        Some((usize::try_from(left).unwrap_or(PACKET_BYTES), gate))
    }

    /// Schedules the pipe to be served when its first chunk arrives, if it had not arrived by `now`. That is the time at
    /// which delivery was tried: a chunk that arrived since then would otherwise wait for ever.
    fn wake_at_arrival(&mut self, pipe: PipeId, now: Nanos) {
        let Some(way) = self.pipe(pipe) else { return };
        let Some(arrives) = way.front_arrives().filter(|arrives| *arrives > now) else { return };
        if way.wakes_at.is_none_or(|at| at > arrives) {
            way.wakes_at = Some(arrives);
            self.appoint(arrives, Due::Pipe(pipe));
        }
    }
}

/// The result of a read.
enum Heard {
    /// This many bytes are in the buffer.
    Bytes(usize),
    Nothing,
    /// The sender's end or reset.
    Last(Content),
}

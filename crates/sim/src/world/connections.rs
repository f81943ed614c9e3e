//! Connections between nodes: how they come up and break, and how frames arrive over them.

use super::World;
use super::healing::Phase;
use super::turns::knows;
use crate::events::{Event, Place};
use crate::faults::{Class, MS, SECOND};
use crate::host::Item;
use crate::trace::id;

/// The delay before a broken second connection is dialled again.
const URGENT_PAUSE_US: u64 = 250 * MS;

impl World {
    #[inline]
    pub(super) fn frame_arrives(
        &mut self,
        (from, to, is_urgent): (Place, Place, bool),
        generation: u32,
        buffer: u32,
    ) {
        let stands = *self.network.end(to, from) == Some(generation);
        let arrives = self.hosts[usize::from(to)].is_alive()
            && (stands
                || self.network.stale_deliveries
                    && crate::message::stands_for_itself(self.buffers.get(buffer)));
        if !arrives {
            return self.buffers.release(buffer);
        }
        if !stands {
            self.counts.add(Class::StaleDelivery);
        }
        self.hosts[usize::from(to)].received[usize::from(from)] += 1;
        self.hosts[usize::from(to)].arrive(self.now, (from, is_urgent), Item::Frame { buffer, generation });
        if self.trace.is_on() {
            let what = crate::message::describe(self.buffers.get(buffer), &self.scenario.spaces, &self.map);
            self.trace.tell(self.now, format_args!("  {}=>{} {what}", id(from), id(to)));
        }
    }

    /// Drops what has arrived over a connection and is unread, except messages that may arrive without it.
    pub(super) fn drop_unread(&mut self, at: Place, peer: Place, is_urgent: bool) {
        let (buffers, stale_deliveries) = (&mut self.buffers, self.network.stale_deliveries);
        let way = &mut self.hosts[usize::from(at)].ways[usize::from(peer)];
        way.lanes[usize::from(is_urgent)].items.retain(|item| match item {
            Item::Frame { buffer, .. }
                if stale_deliveries && crate::message::stands_for_itself(buffers.get(*buffer)) =>
            {
                true
            }
            Item::Frame { buffer, .. } => {
                buffers.release(*buffer);
                false
            }
            Item::Up(_) | Item::Down(_) => false,
        });
    }

    /// Notes that a node has read a frame off its first connection to another node, which may have waited for the
    /// room.
    #[inline]
    pub(super) fn note_read(&mut self, (from, to): (Place, Place), generation: u32, bytes: usize) {
        if self.network.is_bounded() && self.network.read(from, to, generation, bytes) {
            let at = self.now + self.network.latency(self.now, to, from);
            self.queue.push(at, Event::PeerRoom { node: from });
        }
    }

    /// Reacts to a change between two nodes: sends what waited, or lets them try to connect.
    pub(super) fn reconsider(&mut self, one: Place, other: Place) {
        if self.network.is_connected(one, other) {
            for (from, to) in [(one, other), (other, one)] {
                if !self.network.link(from, to).is_blocked() {
                    self.network.release_stalled(self.now, from, to, &mut self.queue);
                }
            }
            return;
        }
        // The pauses of the real dialler grow to a second.
        let pause_us = self.random.scaled(MS, 1000 * MS);
        let pair = self.network.pair(one, other);
        pair.attempt += 1;
        let attempt = pair.attempt;
        self.queue.push(self.now + pause_us, Event::Connect { one, other, attempt });
    }

    pub(super) fn connect(&mut self, one: Place, other: Place, attempt: u32) {
        let alive = [one, other].into_iter().all(|place| self.hosts[usize::from(place)].is_alive());
        let know = [(one, other), (other, one)]
            .into_iter()
            .all(|(at, peer)| self.hosts[usize::from(at)].node().is_some_and(|node| knows(node, peer)));
        if alive && !know && self.network.pair(one, other).attempt == attempt {
            // One of the two does not know the other from its map yet.
            return self.queue.push(self.now + 100 * MS, Event::Connect { one, other, attempt });
        }
        // A node that starts, or the end of a blocked way, triggers another attempt.
        if self.network.pair(one, other).attempt != attempt
            || !alive
            || !self.network.is_open(one, other)
            || self.network.is_connected(one, other)
        {
            return;
        }
        if self.are_of_two_lineages(one, other) {
            return;
        }
        let pair = self.network.pair(one, other);
        pair.generation += 1;
        let generation = pair.generation;
        for (at, peer) in [(one, other), (other, one)] {
            self.network.drop_stalled(at, peer, &mut self.buffers);
            let time = self.now + self.network.latency(self.now, peer, at);
            // Each end notices at its own time that the connection is up, and receives nothing over it before.
            self.network.hold_until(peer, at, time);
            self.queue.push(time, Event::End { at, peer, generation, up: true });
        }
    }

    pub(super) fn end_comes_up(&mut self, at: Place, peer: Place, generation: u32) {
        // The process may have died since, or a newer connection may have come up.
        if self.network.pair(at, peer).generation != generation || !self.hosts[usize::from(at)].is_alive() {
            return;
        }
        *self.network.end(at, peer) = Some(generation);
        self.network.empty(at, peer, generation);
        // Unread messages of an older connection are lost with it.
        self.drop_unread(at, peer, false);
        self.drop_unread(at, peer, true);
        self.hosts[usize::from(at)].arrive(self.now, (peer, false), Item::Up(generation));
        if self.scenario.has_urgent_links {
            let after_us = self.random.below(200 * MS);
            self.queue.push(self.now + after_us, Event::Urgent { at, peer, generation, up: true });
        }
    }

    /// Handles the second connection, beside an established first one, coming up or breaking. It breaks occasionally,
    /// and is dialled again.
    pub(super) fn urgent_changes(&mut self, at: Place, peer: Place, generation: u32, up: bool) {
        let host = &mut self.hosts[usize::from(at)];
        let breaks = up || self.phase == Phase::Faults;
        if *self.network.end(at, peer) != Some(generation) || !host.is_alive() || !breaks {
            return;
        }
        let item = if up { Item::Up(generation) } else { Item::Down(generation) };
        host.arrive(self.now, (peer, true), item);
        let after_us = if up { self.random.scaled(100 * MS, 100 * SECOND) } else { URGENT_PAUSE_US };
        self.queue.push(self.now + after_us, Event::Urgent { at, peer, generation, up: !up });
    }

    /// Handles an end that finds its connection broken. It notifies the other end if it can, and both try again.
    pub(super) fn end_breaks(&mut self, at: Place, peer: Place, generation: u32) {
        if *self.network.end(at, peer) != Some(generation) {
            return;
        }
        *self.network.end(at, peer) = None;
        self.network.drop_stalled(at, peer, &mut self.buffers);
        if self.hosts[usize::from(at)].is_alive() {
            self.hosts[usize::from(at)].arrive(self.now, (peer, false), Item::Down(generation));
        }
        self.notify_end(peer, at, generation);
        self.reconsider(at.min(peer), at.max(peer));
    }

    /// Notifies the end of a connection at `at` that it is broken, if the way is free. Otherwise that end will learn
    /// it from the next connection.
    pub(super) fn notify_end(&mut self, at: Place, peer: Place, generation: u32) {
        if !self.network.link(peer, at).is_blocked() {
            let time = self.now + self.network.latency(self.now, peer, at);
            self.queue.push(time, Event::End { at, peer, generation, up: false });
        }
    }
}

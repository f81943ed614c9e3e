//! The world as a driver sees it on one machine.

use super::World;
use crate::events::Place;
use crate::faults::{Mask, has};
use crate::host::{Host, Item};
use crate::pipe::ClientSocket;
use crate::report::Broken;
use crate::trace::id;
use driver::{Change, Clients, Event};
use node::{ClientId, ClientKind, Line};
use protocol::Now;
use storage::simulated::SimulatedDisk;
use storage::{DiskError, ValueResult, ValueWork, Work};

/// The context of one step of a turn.
pub(super) struct Machine<'w> {
    pub(super) world: &'w mut World,
    pub(super) place: Place,
    /// When messages written for peers leave.
    pub(super) leaves_at: u64,
    /// The peers that receive them; if the process dies within the turn, these may be few.
    pub(super) peers: Mask,
}

/// What the machine's clocks show at the moment.
#[derive(Clone, Copy)]
pub(super) struct Clock(Now);

impl driver::Clock for Clock {
    fn now(&self) -> Now {
        self.0
    }
}

type Turn<'a> = driver::Turn<'a, Clock>;

impl Machine<'_> {
    fn host(&mut self) -> &mut Host {
        &mut self.world.hosts[usize::from(self.place)]
    }

    /// Handles a peer's connection that is up or broken.
    fn link_changes(&mut self, peer: Place, (generation, up): (u32, bool), turn: &mut Turn<'_>) {
        let own = self.place;
        let way = &mut self.host().ways[usize::from(peer)];
        // As in the server, a new link that replaces an old one ends the old one first.
        if way.link.take().is_some() {
            turn.node.peer_link(id(peer), None);
        }
        if up {
            self.host().ways[usize::from(peer)].link = Some(generation);
            turn.node.peer_link(id(peer), Some(self.world.spoken(own, peer)));
        } else {
            // The second connection ends with the first.
            self.world.drop_unread(own, peer, true);
        }
        let state = if up { "up" } else { "down" };
        let (own, peer) = (id(own), id(peer));
        let now = self.world.now;
        self.world.trace.tell(now, format_args!("node {own} finds the link to node {peer} {state}"));
    }

    fn take_frame(&mut self, peer: Place, buffer: u32, turn: &mut Turn<'_>) {
        let read = turn.node.peer_frame(id(peer), self.world.buffers.get(buffer));
        self.world.buffers.release(buffer);
        if let Err(malformed) = read {
            let (from, to) = (id(peer), id(self.place));
            let words = format!("node {to} cannot decode a message of node {from}: {malformed:?}");
            self.world.fail(Broken::Language, words);
        }
    }
}

impl driver::World for Machine<'_> {
    type Clock = Clock;
    type Disk = SimulatedDisk;
    type Socket = ClientSocket;

    #[inline]
    fn clock(&self) -> Clock {
        let host = &self.world.hosts[usize::from(self.place)];
        Clock(host.clock.read(self.world.now + host.ahead_us))
    }

    #[inline]
    fn next_event(&mut self) -> Option<Event> {
        let event = self.host().happened.pop_front()?;
        if let Event::Peer(connection) = event {
            self.host().ways[connection / 2].lanes[connection % 2].is_listed = false;
        }
        Some(event)
    }

    fn has_more_events(&self) -> bool {
        !self.world.hosts[usize::from(self.place)].happened.is_empty()
    }

    /// [`Item::Up`] does here what a handshake does in the server.
    fn brings_records(&self, connection: usize) -> bool {
        let lanes = &self.world.hosts[usize::from(self.place)].ways[connection / 2].lanes;
        connection.is_multiple_of(2) && !matches!(lanes[0].items.front(), Some(Item::Up(_)))
    }

    fn read_peer(&mut self, connection: usize, turn: &mut Turn<'_>) -> bool {
        let (peer, is_urgent) = ((connection / 2) as Place, connection % 2 == 1);
        if turn.node.is_log_behind() && driver::World::brings_records(self, connection) {
            let words =
                format!("node {} reads from node {} though its log is behind", id(self.place), id(peer));
            self.world.fail(Broken::Backpressure, words);
            return false;
        }
        let mut share = turn.sizes.peer_bytes_max;
        turn.has_read();
        while share > 0 {
            let way = &mut self.host().ways[usize::from(peer)];
            let link = way.link;
            match way.lanes[usize::from(is_urgent)].items.pop_front() {
                None => return false,
                Some(Item::Frame { buffer, generation }) => {
                    let length = self.world.buffers.get(buffer).len();
                    share = share.saturating_sub(length);
                    turn.counters.peer_bytes_in += length as u64;
                    if !is_urgent {
                        self.world.note_read((peer, self.place), generation, length);
                    }
                    self.take_frame(peer, buffer, turn);
                }
                Some(Item::Up(generation)) if !is_urgent => self.link_changes(peer, (generation, true), turn),
                Some(Item::Down(generation)) if !is_urgent => {
                    self.link_changes(peer, (generation, false), turn);
                }
                Some(item @ (Item::Up(generation) | Item::Down(generation))) => {
                    if link == Some(generation) {
                        turn.node.peer_urgent_link(id(peer), matches!(item, Item::Up(_)));
                    }
                }
            }
        }
        true
    }

    /// Hands over the vouches that have arrived, and accepts clients that have connected.
    fn attend(&mut self, clients: &mut Clients<ClientSocket>, turn: &mut Turn<'_>) {
        let place = self.place;
        let vouched = std::mem::take(&mut self.host().vouched);
        for peer in (0..self.world.scenario.nodes).filter(|peer| has(vouched, *peer)) {
            turn.node.peer_vouched(id(peer));
        }
        let host = self.host();
        if !std::mem::take(&mut host.has_visitors) {
            return;
        }
        for session in host.sessions.iter_mut().filter(|session| session.id.is_none()) {
            let kind = ClientKind::Resp {
                address: format!("127.0.0.1:{}", 50_000 + u32::from(session.client)),
                local_address: format!("127.0.0.1:{}", 7000 + id(place)),
                fd: i32::from(session.client),
                tls: None,
            };
            let Some(id) = turn.node.connect(kind) else {
                return self.world.fail(Broken::Liveness, "a node has no room for a client".into());
            };
            session.id = Some(id);
            clients.add(id, ClientSocket::new(&session.pipe), turn);
            let pipe = session.pipe.borrow();
            if pipe.is_readable() {
                let change = Change { is_readable: true, is_writable: false, is_over: pipe.is_closed };
                host.happened.push_back(Event::Client(id.index(), change));
            }
        }
    }

    #[inline]
    fn next_finished(&mut self) -> Option<(Work, Result<(), DiskError>)> {
        self.host().finished.pop_front()
    }

    #[inline]
    fn next_finished_value(&mut self) -> Option<(ValueWork, ValueResult)> {
        self.host().finished_values.pop_front()
    }

    #[inline]
    fn write_to_peers(&mut self, turn: &mut Turn<'_>) {
        self.world.send_frames(turn.node, self.place, self.leaves_at, self.peers);
    }

    #[inline]
    fn disk(&mut self) -> &mut SimulatedDisk {
        &mut self.host().disk.files
    }

    fn begin_work(&mut self, work: Work) {
        self.world.begin_work(self.place, work);
    }

    fn begin_value_work(&mut self, work: ValueWork) {
        self.world.begin_value_work(self.place, work);
    }

    /// Does nothing: the only clients without a socket here are those whose connection is closed.
    fn tell(&mut self, _client: ClientId, _turn: &mut Turn<'_>) {}

    fn log(&mut self, line: &Line) {
        let (now, place) = (self.world.now, self.place);
        self.world.trace.tell(now, format_args!("node {}: {}", id(place), line.text));
    }

    fn wakeup_us(&self) -> u64 {
        u64::MAX
    }
}

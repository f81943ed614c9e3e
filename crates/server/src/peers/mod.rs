//! The links to the other nodes.
//!
//! There is one link per pair of nodes: the node with the higher id dials the one with the lower, and dials again, after a
//! growing pause, when the link breaks. Both sides prove that they know the cluster's secret ([`wire::handshake`]) before
//! anything else is sent. Until then a connection is a stranger: it may send one kibibyte and has three seconds, and if it
//! fails, only that connection is closed. Afterwards every frame is authenticated ([`wire::seal`]): a frame that was
//! changed on the way closes the connection.
//!
//! However many strangers connect, peers get a place (`places`).
//!
//! If `tls.peers` is on, TLS comes before all that (`secure`), with certificates of both sides. When that setting or the
//! certificates change while the link is up, another connection takes the link's place (`successor`).
//!
//! Besides the **link** there is a second connection for short messages that must not wait (`urgent`), and a third one over
//! which nodes vouch for themselves while they are busy (`vouching`).
//!
//! A newer link of the same peer replaces the older one: the peer has dialled again because it knows that the old link
//! is dead, which this side may not have noticed.
//!
//! The cluster map, which changes, names the other nodes ([`Peers::follow`]). Before a node has a map, and while the map
//! does not contain a new node, the new node's handshake is refused with a reason, and it dials again. A node that has
//! left the cluster keeps its link for a moment, to learn over it that it has left.

mod connection;
mod places;
mod secure;
mod successor;
mod urgent;
mod vouching;

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};

use driver::Limiter;
use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use node::report::Certificate;
use node::{Node, NodeAddress, NodeId};
use wire::handshake::{self, Acceptor, Identity, Lane};
use wire::lineage::meets;
use wire::release::RELEASES;
use wire::{frame, greeting};

use self::connection::{Connection, Fault, Stage, Standing, nonce};
pub(crate) use self::secure::Security;
use crate::config::Dial;
use crate::resolver::Resolver;
use crate::socket;
use crate::turn::{CLIENT_TOKENS, PEER_TOKENS, Turn};
use crate::vouching::Vouching;

/// How long dialling and the handshake may take together.
const HANDSHAKE_US: u64 = 3_000_000;

/// Pauses between two dials: the first, and the longest.
const PAUSE_US: u64 = 20_000;
const PAUSE_US_MAX: u64 = 1_000_000;

/// How long a node that was removed from the cluster keeps its link. In that time it renews its lease many times, and
/// learns that it has been removed.
const FAREWELL_US: u64 = 1_000_000;

/// A link that has lasted this long was a good one: its node is dialled again at once.
const GOOD_US: u64 = 1_000_000;

/// When the pause has grown to this, a warning is logged that the peer cannot be reached.
const PAUSE_US_LOGGED: u64 = 200_000;

/// A peer that acknowledges nothing at the level of TCP for this long is disconnected. Otherwise a link that a broken
/// network has silently dropped would stay for minutes after the network works again. On a slow network a working peer may
/// acknowledge nothing for longer than that, so this is multiplied by `patience`.
const SILENCE_MS_MAX: u32 = 5_000;

/// The maximum number of connections accepted on the peer port in one turn. Far fewer than there are places: a connection
/// accepted in this turn keeps its place for some more turns, in which its Hello arrives.
const ACCEPTS_PER_TURN_MAX: usize = 16;

/// Larger buffers are released when they are empty.
const RETAINED_BYTES_MAX: usize = 1 << 20;

/// The reason for closing a connection that was made before this node had a map.
const ANOTHER_LINEAGE: &str =
    "it belongs to another history of this cluster: one of the two was not part of a recovery";

/// All connections to and from other nodes.
pub(crate) struct Peers {
    identity: Identity,
    own: NodeId,
    /// Where to dial some nodes instead of at their addresses in the map.
    dial: Vec<Dial>,
    /// How long a peer may acknowledge nothing.
    silence_ms_max: u32,
    /// The version of the map that `peers` was taken from.
    map_version: Option<u64>,
    peers: Vec<Peer>,
    /// Each connection's token is its index here.
    connections: Vec<Option<Connection>>,
    /// Connections on the peer port that were not authenticated as a peer's.
    pub(crate) strangers: u64,
    /// Connections of peers that were closed because a frame had been changed on the way.
    pub(crate) forged_frames: u64,
    resolver: Resolver,
    limiter: Limiter,
    security: Security,
    vouching: Vouching,
    /// A connection for vouches that was just proved.
    to_hand_over: Option<usize>,
    /// Connections with input that no event announces.
    ready: Vec<usize>,
    /// The node's lineage has changed since connections were last checked against it.
    is_of_new_lineage: bool,
}

struct Peer {
    id: NodeId,
    host: String,
    port: u16,
    /// The map's entry. This node's own configuration may give another address to dial.
    known: NodeAddress,
    /// Whether this node is the one that dials.
    is_dialled: bool,
    /// The authenticated connection.
    link: Option<usize>,
    /// The second connection, for urgent messages.
    urgent: Option<usize>,
    /// When to dial the second connection.
    urgent_at_us: Option<u64>,
    /// The number of the connection for vouches, which the thread that vouches has.
    vouching: Option<u64>,
    /// When to dial that connection.
    vouching_at_us: Option<u64>,
    /// The authenticated connection that is taking the link's place.
    successor: Option<usize>,
    /// When to dial the successor or, while it is being dialled or taking over, its deadline.
    successor_at_us: Option<u64>,
    /// The next dial is without TLS, because the peer did not understand the last one.
    is_plain_next: bool,
    /// When to dial, unless a dial is in progress or the link is up.
    dial_at_us: Option<u64>,
    pause_us: u64,
    /// How often it has been dialled.
    dials: usize,
    /// The address from which it connects, if known: connections from there have places of their own.
    comes_from: Option<IpAddr>,
    /// The last logged reason for the missing link. None while there is a link, and at the start.
    logged: Option<String>,
    /// When its link is closed, if it has left the cluster.
    leaves_at_us: Option<u64>,
    /// It has left the cluster and that time is over. It may have been disconnected during that time: if it connects again
    /// it is accepted for another such time, to learn that it has left.
    has_left: bool,
    was_up: bool,
}

impl Peer {
    /// Creates a peer without a link. If this node dials it, the dial is due at once.
    fn new(own: NodeId, address: &NodeAddress, (host, port): (&str, u16)) -> Peer {
        let id = address.id;
        let is_dialled = own > id;
        Peer {
            id,
            host: host.to_owned(),
            port,
            known: address.clone(),
            is_dialled,
            link: None,
            urgent: None,
            urgent_at_us: None,
            vouching: None,
            vouching_at_us: None,
            successor: None,
            successor_at_us: None,
            is_plain_next: false,
            dial_at_us: is_dialled.then_some(0),
            pause_us: PAUSE_US,
            dials: 0,
            comes_from: ip_of(host),
            logged: None,
            leaves_at_us: None,
            has_left: false,
            was_up: false,
        }
    }
}

/// The address in `host`, if that is not a name.
fn ip_of(host: &str) -> Option<IpAddr> {
    host.parse().ok().map(|address: IpAddr| address.to_canonical())
}

/// The address at which this node dials another one: from its own configuration, or else from the map.
fn reached_at<'a>(dial: &'a [Dial], address: &'a NodeAddress) -> (&'a str, u16) {
    match dial.iter().find(|dial| dial.node == address.id) {
        Some(Dial { host, port, .. }) => (host, *port),
        None => (&address.host, address.peer_port),
    }
}

impl Peers {
    /// Creates a set without peers: [`Peers::follow`] adds them.
    pub(crate) fn new(
        identity: Identity,
        own: NodeId,
        dial: Vec<Dial>,
        resolver: Resolver,
        patience: u64,
        security: Security,
        vouching: Vouching,
    ) -> Peers {
        let patience = u32::try_from(patience).unwrap_or(u32::MAX);
        Peers {
            identity,
            own,
            dial,
            silence_ms_max: SILENCE_MS_MAX.saturating_mul(patience),
            map_version: None,
            peers: Vec::new(),
            connections: Vec::new(),
            strangers: 0,
            forged_frames: 0,
            resolver,
            limiter: Limiter::default(),
            security,
            vouching,
            to_hand_over: None,
            ready: Vec::new(),
            is_of_new_lineage: false,
        }
    }

    /// Follows the newest map: dials new nodes, adopts changed addresses, and begins to close the links of nodes that
    /// have left. Cheap when the map has not changed.
    pub(crate) fn follow(&mut self, node: &Node, now_us: u64) {
        let version = node.map_version();
        if self.map_version.replace(version) == Some(version) {
            return;
        }
        // Without a map, a node connects to nodes of any lineage.
        if node.lineage() != self.identity.lineage() {
            self.identity = self.identity.clone().of_lineage(node.lineage());
            self.is_of_new_lineage = true;
        }
        let nodes = &node.configuration().nodes;
        for address in nodes.iter().filter(|address| address.id != self.own) {
            let (host, port) = reached_at(&self.dial, address);
            match self.peers.iter_mut().find(|peer| peer.id == address.id) {
                None => self.peers.push(Peer::new(self.own, address, (host, port))),
                Some(peer) => {
                    peer.leaves_at_us = None;
                    if std::mem::take(&mut peer.has_left) && peer.is_dialled && peer.link.is_none() {
                        peer.dial_at_us = Some(now_us);
                    }
                    peer.known = address.clone();
                    if (peer.host.as_str(), peer.port) != (host, port) {
                        peer.host = host.to_owned();
                        peer.port = port;
                        peer.comes_from = ip_of(host);
                        peer.pause_us = PAUSE_US;
                    }
                }
            }
        }
        for peer in &mut self.peers {
            if peer.leaves_at_us.is_none()
                && !peer.has_left
                && !nodes.iter().any(|address| address.id == peer.id)
            {
                peer.leaves_at_us = Some(now_us + FAREWELL_US);
            }
        }
        assert_eq!(self.to_hand_over, None, "a connection is handed over when it was read");
        self.check_invariants();
    }

    /// Checks what is known of each peer's connections. O(peers²), for when a link or the map has changed.
    ///
    /// # Panics
    /// When an invariant is broken.
    fn check_invariants(&self) {
        for (position, peer) in self.peers.iter().enumerate() {
            assert!(peer.id != self.own, "a node has no link to itself");
            assert!(self.peers[..position].iter().all(|other| other.id != peer.id), "a node is one peer");
            assert_eq!(peer.is_dialled, self.own > peer.id, "one of two nodes dials the other");
            let lanes =
                [(peer.link, Lane::Main), (peer.urgent, Lane::Urgent), (peer.successor, Lane::Successor)];
            for (index, lane) in lanes.into_iter().filter_map(|(index, lane)| Some((index?, lane))) {
                let connection = self.connections[index].as_ref();
                let connection = connection.expect("what is known as a peer's connection is open");
                let proved = connection.link().map(|link| link.peer);
                assert_eq!(
                    (proved, connection.lane),
                    (Some(peer.id), lane),
                    "a connection is of another peer"
                );
            }
            let has_beside = peer.urgent.is_some() || peer.successor.is_some() || peer.vouching.is_some();
            assert!(peer.link.is_some() || !has_beside, "other connections end with the link");
            let may_dial = peer.is_dialled && peer.link.is_none() && !peer.has_left;
            assert!(may_dial || peer.dial_at_us.is_none(), "a node is dialled that must not be");
            assert!(
                (PAUSE_US..=PAUSE_US_MAX).contains(&peer.pause_us),
                "a pause between two dials has bounds"
            );
        }
    }

    /// Closes the connections to nodes of another lineage.
    fn leave_other_lineages(&mut self, turn: &mut Turn<'_>) {
        if !std::mem::take(&mut self.is_of_new_lineage) {
            return;
        }
        for index in 0..self.connections.len() {
            let session = self.connections[index].as_ref().and_then(|connection| connection.session.as_ref());
            if session.is_some_and(|session| !meets(self.identity.lineage(), session.lineage)) {
                self.close(index, Fault::Refused(ANOTHER_LINEAGE.into()), turn);
            }
        }
    }

    /// Drops nodes that have left, when their time is over.
    fn part(&mut self, turn: &mut Turn<'_>) {
        let now_us = turn.now.monotonic_us;
        let is_due = |peer: &Peer| peer.leaves_at_us.is_some_and(|at| at <= now_us);
        while let Some(position) = self.peers.iter().position(is_due) {
            let peer = &mut self.peers[position];
            peer.leaves_at_us = None;
            peer.has_left = true;
            peer.dial_at_us = None;
            peer.urgent_at_us = None;
            peer.successor_at_us = None;
            peer.vouching_at_us = None;
            if peer.vouching.take().is_some() {
                self.vouching.drop_lane(peer.id);
            }
            let (id, link) = (peer.id, peer.link.take());
            for beside in [peer.urgent.take(), peer.successor.take()].into_iter().flatten() {
                self.connections[beside] = None;
            }
            if !peer.was_up {
                self.peers.remove(position);
            }
            if let Some(connection) = link.and_then(|index| self.connections[index].take()) {
                tracing::info!(
                    "link to node {id} ({}) is closed: the node has left the cluster",
                    connection.address
                );
                turn.node.peer_link(id, None);
            }
            // A dial to it in progress is no longer wanted.
            for slot in &mut self.connections {
                slot.take_if(|connection| connection.dialled == Some(id));
            }
        }
    }

    /// The number of links that are up.
    pub(crate) fn links(&self) -> usize {
        self.peers.iter().filter(|peer| peer.link.is_some()).count()
    }

    /// Until when this node's certificate is valid, in seconds since the Unix epoch; `None` without TLS.
    pub(crate) fn certificate_expires_s(&self) -> Option<u64> {
        self.security.certificate_expires_s()
    }

    /// This node's certificate, if it has TLS.
    pub(crate) fn certificate(&self) -> Option<Certificate> {
        self.security.certificate()
    }

    /// The number of links that use TLS.
    pub(crate) fn links_with_tls(&self) -> usize {
        let links = self.peers.iter().filter_map(|peer| self.connections[peer.link?].as_ref());
        links.filter(|connection| connection.is_tls()).count()
    }

    /// The next connection with input that no event announces.
    pub(crate) fn next_ready(&mut self) -> Option<usize> {
        self.ready.pop()
    }

    /// When [`Peers::on_time`] next has something to do.
    pub(crate) fn wakeup_us(&self) -> u64 {
        if self.is_of_new_lineage {
            return 0;
        }
        let dials = self.peers.iter().filter_map(|peer| peer.dial_at_us);
        let connections = self.connections.iter().flatten();
        let deadlines = connections
            .filter(|connection| connection.link().is_none())
            .map(|connection| connection.deadline_us);
        let farewells = self.peers.iter().filter_map(|peer| peer.leaves_at_us);
        let urgent = self.peers.iter().filter_map(|peer| peer.urgent_at_us);
        let vouching = self.peers.iter().filter_map(|peer| peer.vouching_at_us);
        let successors = self.peers.iter().filter_map(|peer| peer.successor_at_us);
        let own = self.security.unfit_until_us.into_iter().chain(successors);
        dials
            .chain(urgent)
            .chain(vouching)
            .chain(deadlines)
            .chain(farewells)
            .chain(own)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Dials nodes that are due, and closes connections that have not proved their identity in time.
    pub(crate) fn on_time(&mut self, registry: &Registry, turn: &mut Turn<'_>) {
        let now_us = turn.now.monotonic_us;
        for index in 0..self.connections.len() {
            let stranger = self.connections[index].as_ref().filter(|connection| connection.link().is_none());
            if stranger.is_some_and(|connection| connection.deadline_us <= now_us) {
                self.close(index, Fault::late(), turn);
            }
        }
        self.leave_other_lineages(turn);
        self.part(turn);
        self.take_secured(registry, turn);
        self.keep_secure(turn);
        while let Some((id, found)) = self.resolver.next() {
            if !self.peers.iter().any(|peer| peer.id == id && !peer.has_left) {
                continue; // The node has left since.
            }
            match found {
                Ok(address) => self.connect(id, address, registry, turn),
                Err(error) => self.dial_later(id, &error.into(), now_us),
            }
        }
        for position in 0..self.peers.len() {
            self.dial_urgent(position, registry, turn);
            self.dial_vouching(position, registry, turn);
            self.attend_successor(position, registry, turn);
            let peer = &mut self.peers[position];
            if peer.dial_at_us.is_none_or(|at| at > now_us) {
                continue;
            }
            peer.dial_at_us = None;
            peer.dials += 1;
            match peer.host.parse::<IpAddr>() {
                Ok(host) => {
                    let (id, address) = (peer.id, SocketAddr::new(host, peer.port));
                    self.connect(id, address, registry, turn);
                }
                Err(_) => self.resolver.ask(peer.id, &peer.host, peer.port, peer.dials),
            }
        }
    }

    fn connect(&mut self, id: NodeId, address: SocketAddr, registry: &Registry, turn: &mut Turn<'_>) {
        let peer = self.peers.iter_mut().find(|peer| peer.id == id);
        let is_plain = peer.is_some_and(|peer| std::mem::take(&mut peer.is_plain_next));
        let whose = (Some(id), Lane::Main, self.security.speaks_tls() && !is_plain);
        let dialled = TcpStream::connect(address)
            .and_then(|socket| self.watch(socket, address, whose, Stage::Connecting, registry, turn));
        if let Err(error) = dialled {
            self.dial_later(id, &error.into(), turn.now.monotonic_us);
        }
    }

    /// Accepts waiting connections on the peer port. Returns true when more may wait.
    ///
    /// # Errors
    /// The system refuses, for example because no file descriptor is left: try again later.
    pub(crate) fn accept(
        &mut self,
        listener: &TcpListener,
        registry: &Registry,
        turn: &mut Turn<'_>,
    ) -> io::Result<bool> {
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            let Some((socket, address)) = socket::accept(listener)? else { return Ok(false) };
            self.make_room(address.ip(), turn);
            let stage = Stage::AwaitsHello(Acceptor::new(self.identity.clone(), nonce()?));
            self.watch(socket, address, (None, Lane::Main, false), stage, registry, turn)?;
        }
        Ok(true)
    }

    fn watch(
        &mut self,
        mut socket: TcpStream,
        address: SocketAddr,
        whose: (Option<NodeId>, Lane, bool),
        stage: Stage,
        registry: &Registry,
        turn: &Turn<'_>,
    ) -> io::Result<()> {
        let free = self.connections.iter().position(Option::is_none);
        let index = free.unwrap_or(self.connections.len());
        assert!(PEER_TOKENS + index < CLIENT_TOKENS, "the places of connections are bounded");
        registry.register(
            &mut socket,
            Token(PEER_TOKENS + index),
            Interest::READABLE | Interest::WRITABLE,
        )?;
        let deadline_us = turn.now.monotonic_us + HANDSHAKE_US;
        let connection = Connection::new(socket, address, whose, stage, deadline_us);
        match free {
            Some(index) => self.connections[index] = Some(connection),
            None => self.connections.push(Some(connection)),
        }
        Ok(())
    }

    /// Records an event on a connection's socket.
    pub(crate) fn note(&mut self, index: usize, event: &Event) {
        if let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) {
            connection.note(event);
        }
    }

    /// Whether a connection brings records to be written to the log.
    pub(crate) fn brings_records(&self, index: usize) -> bool {
        let connection = self.connections.get(index).and_then(Option::as_ref);
        connection.is_some_and(|connection| {
            matches!(connection.lane, Lane::Main | Lane::Successor) && connection.link().is_some()
        })
    }

    /// Handles what a connection has sent, up to a turn's share. Returns true when there may be more. Closes the
    /// connection on a fault.
    pub(crate) fn serve(&mut self, index: usize, registry: &Registry, turn: &mut Turn<'_>) -> bool {
        let read = self.read(index, registry, turn);
        self.hand_over(registry);
        match read {
            Ok(may_have_more) => may_have_more,
            Err(fault) => {
                self.close(index, fault, turn);
                false
            }
        }
    }

    /// Reads a turn's share of what a connection has sent. Returns true when there may be more.
    fn read(&mut self, index: usize, registry: &Registry, turn: &mut Turn<'_>) -> Result<bool, Fault> {
        if !self.begin(index, registry)? {
            return Ok(false);
        }
        let mut share = turn.sizes.peer_bytes_max;
        while let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) {
            if !connection.has_unread || connection.is_held {
                return Ok(false);
            }
            if share == 0 {
                return Ok(true);
            }
            let Some(socket) = &mut connection.socket else { return Ok(false) };
            match socket.read(turn.buffer) {
                Ok(0) => {
                    return match self.reads_on_successor(index) {
                        true => Ok(false),
                        false => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                    };
                }
                Ok(count) => {
                    connection.has_unread = count == turn.buffer.len() || connection.is_hung_up;
                    share = share.saturating_sub(count);
                    turn.counters.peer_bytes_in += count as u64;
                    turn.has_read();
                    self.take(index, count, turn)?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => connection.has_unread = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    /// Takes the frames out of the bytes just read into the driver's buffer.
    fn take(&mut self, index: usize, count: usize, turn: &mut Turn<'_>) -> Result<(), Fault> {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
            return Ok(());
        };
        let mut kept = std::mem::take(&mut connection.input);
        let buffer = std::mem::take(&mut turn.buffer);
        let taken = if kept.is_empty() {
            self.take_frames(index, &mut buffer[..count], turn)
                .map(|taken| kept.extend_from_slice(&buffer[taken..count]))
        } else {
            kept.extend_from_slice(&buffer[..count]);
            self.take_frames(index, &mut kept, turn).map(|taken| drop(kept.drain(..taken)))
        };
        turn.buffer = buffer;
        if kept.is_empty() && kept.capacity() > RETAINED_BYTES_MAX {
            kept = Vec::new();
        }
        if let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) {
            connection.input = kept;
        }
        taken
    }

    fn take_frames(&mut self, index: usize, bytes: &mut [u8], turn: &mut Turn<'_>) -> Result<usize, Fault> {
        let link_bytes_max = turn.node.peer_payload_bytes_max();
        let mut taken = 0;
        while let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) {
            if let (Stage::Up(link), Some(session)) = (&mut connection.stage, &mut connection.session) {
                let frame::Next::Frame { payload, consumed } =
                    session.opener.next(&mut bytes[taken..], link_bytes_max)?
                else {
                    break;
                };
                taken += consumed;
                let (id, is_first) = (link.peer, !std::mem::replace(&mut link.has_spoken, true));
                // A peer that sends a frame has accepted the link, so it knows what the next connection is for.
                if is_first && connection.lane == Lane::Main && connection.dialled.is_some() {
                    let peer = self.peers.iter_mut().find(|peer| peer.id == id);
                    if let Some(peer) = peer {
                        let now_us = turn.now.monotonic_us;
                        (peer.urgent_at_us, peer.vouching_at_us) = (Some(now_us), Some(now_us));
                    }
                }
                let read = turn.node.peer_frame(id, payload);
                read.map_err(|error| Fault::Refused(format!("a message cannot be read: {error}")))?;
                continue;
            }
            let (payload, consumed) = match greeting::next(&bytes[taken..], handshake::PAYLOAD_BYTES_MAX) {
                Ok(greeting::Next::Frame { payload, consumed }) => (payload, consumed),
                Ok(greeting::Next::Incomplete { .. }) => break,
                Err(error) => return Err(Fault::Refused(error.to_string())),
            };
            taken += consumed;
            let known = |id| {
                let stays = |peer: &&Peer| !peer.is_dialled && peer.leaves_at_us.is_none();
                self.peers.iter().filter(stays).find(|peer| peer.id == id).map(|peer| peer.known.clone())
            };
            let proved = connection.shake_hands(payload, known)?;
            if let Standing::Claimed(node) = connection.standing() {
                self.make_room_for_claim(node, index, turn);
                continue;
            }
            if let Some(peer) = proved {
                // The handshake may have begun before this node had a map.
                let lineage = connection.session.as_ref().map(|session| session.lineage);
                if lineage.is_some_and(|lineage| !meets(self.identity.lineage(), lineage)) {
                    return Err(Fault::Refused(ANOTHER_LINEAGE.into()));
                }
                match connection.lane {
                    Lane::Main => self.establish(index, peer, turn),
                    Lane::Urgent => self.establish_urgent(index, peer, turn)?,
                    Lane::Successor => self.establish_successor(index, peer, turn),
                    Lane::Vouching => {
                        // What follows is for the thread.
                        self.establish_vouching(index, peer, turn)?;
                        break;
                    }
                }
            }
        }
        Ok(taken)
    }

    fn establish(&mut self, index: usize, id: NodeId, turn: &mut Turn<'_>) {
        let Some(position) = self.peers.iter().position(|peer| peer.id == id) else { return };
        if let Some(connection) = &mut self.connections[index] {
            connection.lane = Lane::Main;
            if std::mem::take(&mut connection.is_held) {
                connection.has_unread = true;
                self.ready.push(index);
            }
        }
        if let Some(older) = self.peers[position].link.take() {
            self.connections[older] = None;
            turn.node.peer_link(id, None);
        }
        self.drop_urgent(position);
        self.drop_vouching(position);
        self.drop_successor(position);
        let wants_tls = self.security.speaks_tls();
        let peer = &mut self.peers[position];
        peer.link = Some(index);
        peer.dial_at_us = None;
        peer.logged = None;
        peer.was_up = true;
        if peer.has_left {
            peer.leaves_at_us = Some(turn.now.monotonic_us + FAREWELL_US);
        }
        let mut release = RELEASES.oldest;
        if let Some(connection) = &mut self.connections[index] {
            peer.comes_from = Some(connection.address.ip().to_canonical());
            connection.establish(id, (turn.now.monotonic_us, self.silence_ms_max));
            let how = match (connection.is_tls(), wants_tls) {
                (true, _) => ", in TLS",
                (false, true) => ", not in TLS",
                (false, false) => "",
            };
            let Some(session) = &connection.session else { return };
            release = session.release;
            let (build, address) = (&session.peer, connection.address);
            match session.release == RELEASES.newest {
                true => tracing::info!("link to node {id} is up ({address}{how})"),
                false => tracing::info!(
                    "link to node {id} is up ({address}{how}): it runs {build}, and release {release} is spoken"
                ),
            }
            if peer.is_dialled && connection.is_tls() != wants_tls {
                peer.successor_at_us = Some(turn.now.monotonic_us + successor::PAUSE_US);
            }
        }
        self.check_invariants();
        turn.node.peer_link(id, Some(release));
    }

    /// Writes the node's output for its peers, as far as the sockets accept it.
    pub(crate) fn write(&mut self, turn: &mut Turn<'_>) {
        for position in 0..self.peers.len() {
            let (id, Some(index)) = (self.peers[position].id, self.writes_to(position)) else { continue };
            let Some(connection) = self.connections[index].as_mut() else { continue };
            let output = turn.node.peer_output(id);
            match connection.write(output) {
                Ok(count) => turn.counters.peer_bytes_out += count as u64,
                Err(error) => {
                    self.close(index, error.into(), turn);
                    continue;
                }
            }
            if self.peers[position].successor.is_some() && output.is_empty() {
                self.write_on_successor(position);
            }
        }
        self.write_urgent(turn);
    }

    /// Closes one connection, and dials again if this node is the one that dials.
    fn close(&mut self, index: usize, fault: Fault, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::take) else { return };
        let (now_us, address) = (turn.now.monotonic_us, connection.address);
        let fault = connection.explained(fault);
        if let Fault::LeftBehind(why) = &fault {
            turn.node.left_behind(why);
        }
        let is_proved = connection.link().is_some();
        let is_link = self.peers.iter().any(|peer| peer.link == Some(index));
        if connection.lane == Lane::Successor && !is_link && (is_proved || connection.dialled.is_some()) {
            return self.successor_is_down(index, &connection, fault, turn);
        }
        if let Fault::Forged(text) = &fault {
            self.forged_frames += 1;
            let peer = connection.link().map_or(0, |link| link.peer);
            self.limiter.warn(now_us, turn.lines, || {
                format!("the connection to node {peer} at {address} is closed and opened again: {text}")
            });
        }
        if connection.lane == Lane::Urgent && (is_proved || connection.dialled.is_some()) {
            return self.urgent_is_down(index, &connection, turn);
        }
        if connection.lane == Lane::Vouching && (is_proved || connection.dialled.is_some()) {
            return self.vouching_is_down(&connection, turn);
        }
        if let Some(link) = connection.link() {
            let id = link.peer;
            if !matches!(fault, Fault::Forged(_)) {
                tracing::info!("link to node {id} is down: {fault}");
            }
            turn.node.peer_link(id, None);
            if let Some(position) = self.peers.iter().position(|peer| peer.id == id) {
                self.drop_urgent(position);
                self.drop_vouching(position);
                let peer = &mut self.peers[position];
                peer.link = None;
                peer.logged = Some(fault.to_string());
                if link.has_spoken && now_us >= link.since_us + GOOD_US {
                    peer.pause_us = PAUSE_US;
                }
                if let Some(successor) = peer.successor.take() {
                    return self.establish(successor, id, turn);
                }
            }
            self.dial_later(id, &fault, now_us);
        } else if let Some(id) = connection.dialled {
            self.dial_later(id, &fault, now_us);
        } else {
            self.strangers += 1;
            self.limiter
                .warn(now_us, turn.lines, || format!("{address} at the peer port was turned away: {fault}"));
        }
    }

    /// Schedules another dial after a pause, if this node is the one that dials.
    fn dial_later(&mut self, id: NodeId, fault: &Fault, now_us: u64) {
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.id == id) else { return };
        if !peer.is_dialled || peer.link.is_some() || peer.has_left {
            return;
        }
        // An unreachable node is logged once; a refusal, whenever its reason changes. While the cluster starts, every node
        // is unreachable for a moment.
        let text = fault.to_string();
        let is_news = match fault {
            Fault::Broken(_) => peer.logged.is_none() && peer.pause_us > PAUSE_US_LOGGED,
            // It was logged, with a limit, when the connection was closed.
            Fault::Forged(_) => false,
            Fault::Refused(_) | Fault::LeftBehind(_) => peer.logged.as_ref() != Some(&text),
        };
        if is_news {
            let Peer { host, port, .. } = &peer;
            tracing::warn!("no link to node {id} at {host}:{port}: {text}; still trying");
            peer.logged = Some(text);
        }
        // Between half the pause and all of it, so that nodes that disconnected together do not reconnect together.
        let jitter = getrandom::u64().unwrap_or(0) % (peer.pause_us / 2);
        peer.dial_at_us = Some(now_us + peer.pause_us - jitter);
        peer.pause_us = (peer.pause_us * 2).min(PAUSE_US_MAX);
    }
}

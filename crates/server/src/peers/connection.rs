//! One connection to or from another node: its socket, and how far it is authenticated.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr};

use driver::Outlet;
use mio::event::Event;
use mio::net::TcpStream;
use node::{NodeAddress, NodeId};
use wire::frame::FrameError;
use wire::greeting;
use wire::handshake::{Acceptor, Dialer, HandshakeError, Identity, Lane, Nonce};
use wire::lineage::is_left_behind;
use wire::seal::Session;

use crate::tls::names::check_node;
use crate::tls::{AnySocket, Pending, why_broken};

pub(super) struct Connection {
    /// `None` during the TLS handshake.
    pub(super) socket: Option<AnySocket>,
    pub(super) address: SocketAddr,
    /// The node that this node has dialled; None for an accepted connection.
    pub(super) dialled: Option<NodeId>,
    /// The lane that its dialer has named.
    pub(super) lane: Lane,
    /// Dialled: whether TLS comes first.
    pub(super) wants_tls: bool,
    pub(super) stage: Stage,
    /// Authenticates the connection's frames, once its identity is proved.
    pub(super) session: Option<Session>,
    /// The beginning of a frame that has not arrived completely.
    pub(super) input: Vec<u8>,
    /// How many of the node's frames are written.
    outlet: Outlet,
    /// The socket may have more to read.
    pub(super) has_unread: bool,
    /// The other side has closed: continue to read until the end of the input.
    pub(super) is_hung_up: bool,
    /// It is the successor of a link whose input has not been read to its end yet.
    pub(super) is_held: bool,
    /// This side has sent its last frame on it; the successor carries what follows.
    pub(super) has_ended_writing: bool,
    /// The other side has sent its last frame on it.
    pub(super) has_ended_reading: bool,
    /// The time by which it must have proved its identity.
    pub(super) deadline_us: u64,
}

pub(super) enum Stage {
    /// Dialled; the system has not reported yet whether it is connected.
    Connecting,
    /// The TLS handshake is in progress.
    InHandshake(Pending),
    /// The Hello is sent.
    AwaitsChallenge(Dialer),
    /// Accepted; no Hello yet.
    AwaitsHello(Acceptor),
    /// The Challenge is sent.
    AwaitsProof(Acceptor),
    /// Authenticated.
    Up(Link),
    /// A handshake message was wrong.
    Failed,
}

/// An authenticated connection.
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub(super) peer: NodeId,
    /// When the link was established.
    pub(super) since_us: u64,
    /// At least one frame has arrived.
    pub(super) has_spoken: bool,
}

/// What is known of the identity of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// A peer whose identity is proved, or that was dialled.
    Known,
    /// Its Hello was made with the cluster's secret, in the name of this node.
    Claimed(NodeId),
    /// Unknown.
    Stranger,
}

/// Why a connection is closed.
#[derive(Debug)]
pub(super) enum Fault {
    /// It ended, or broke.
    Broken(io::Error),
    /// It violated the protocol, or was silent for too long.
    Refused(String),
    /// The peer has proved that the cluster was recovered without this node.
    LeftBehind(String),
    /// A frame is not the one that the peer sent: an attacker on the path, or a faulty network, has changed it.
    Forged(String),
}

impl Fault {
    /// The fault of a connection that has not proved its identity in time.
    pub(super) fn late() -> Fault {
        Fault::Broken(io::Error::new(io::ErrorKind::TimedOut, "the handshake took too long"))
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Fault::Broken(error)
    }
}

impl From<HandshakeError> for Fault {
    fn from(error: HandshakeError) -> Self {
        match &error {
            HandshakeError::AnotherLineage { theirs, ours, .. }
                if is_left_behind(Some(*ours), Some(*theirs)) =>
            {
                Fault::LeftBehind(error.to_string())
            }
            _ => Fault::Refused(error.to_string()),
        }
    }
}

impl From<FrameError> for Fault {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Forged { .. } => Fault::Forged(error.to_string()),
            FrameError::TooLong { .. } | FrameError::Sealed { .. } | FrameError::Damaged { .. } => {
                Fault::Refused(error.to_string())
            }
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Broken(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                formatter.write_str("the other side closed it")
            }
            Fault::Broken(error) => error.fmt(formatter),
            Fault::Refused(text) | Fault::LeftBehind(text) | Fault::Forged(text) => formatter.write_str(text),
        }
    }
}

impl Connection {
    pub(super) fn new(
        socket: TcpStream,
        address: SocketAddr,
        (dialled, lane, wants_tls): (Option<NodeId>, Lane, bool),
        stage: Stage,
        deadline_us: u64,
    ) -> Connection {
        Connection {
            socket: Some(AnySocket::Plain(socket)),
            address,
            dialled,
            lane,
            wants_tls,
            stage,
            session: None,
            input: Vec::new(),
            outlet: Outlet::default(),
            has_unread: false,
            is_hung_up: false,
            is_held: false,
            has_ended_writing: false,
            has_ended_reading: false,
            deadline_us,
        }
    }

    /// The link, once the identity is proved.
    pub(super) fn link(&self) -> Option<Link> {
        match self.stage {
            Stage::Up(link) => Some(link),
            _ => None,
        }
    }

    /// Whether it uses TLS.
    pub(super) fn is_tls(&self) -> bool {
        matches!(self.socket, Some(AnySocket::Tls(_)))
    }

    /// Whether the system has connected a dialled connection. Until then there is nothing to read.
    pub(super) fn is_connected(&mut self) -> Result<bool, Fault> {
        let Some(socket) = self.socket.as_ref().map(AnySocket::socket) else { return Ok(false) };
        if let Some(error) = socket.take_error()? {
            return Err(error.into());
        }
        match socket.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                self.has_unread = false;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sends Hello.
    pub(super) fn greet(&mut self, identity: &Identity) -> Result<(), Fault> {
        let (dialer, hello) = Dialer::on(self.lane, identity.clone(), nonce()?);
        self.stage = Stage::AwaitsChallenge(dialer);
        self.send(&hello)
    }

    /// Whether nothing has been read of an accepted connection.
    pub(super) fn is_fresh(&self) -> bool {
        self.has_unread && self.input.is_empty() && matches!(self.socket, Some(AnySocket::Plain(_)))
    }

    /// The first byte of an accepted connection, without consuming it; `None` if it has not arrived yet.
    pub(super) fn first_byte(&mut self) -> Result<Option<u8>, Fault> {
        let Some(socket) = self.socket.as_ref().map(AnySocket::socket) else { return Ok(None) };
        let mut first = [0];
        loop {
            match socket.peek(&mut first) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(_) => return Ok(Some(first[0])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.has_unread = false;
                    return Ok(None);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Checks, if the connection uses TLS, that the certificate that the other side presented is this node's.
    pub(super) fn check_certificate(&self, known: &NodeAddress) -> Result<(), Fault> {
        let Some(AnySocket::Tls(stream)) = &self.socket else { return Ok(()) };
        let Some(shown) = stream.shown().first() else {
            return Err(Fault::Refused("it has presented no certificate".into()));
        };
        check_node(shown, known.id, &known.host).map_err(Fault::Refused)
    }

    /// Announces that nothing more follows on it.
    pub(super) fn end_writing(&mut self) {
        self.has_ended_writing = true;
        if let Some(socket) = &mut self.socket {
            if let AnySocket::Tls(stream) = socket {
                stream.end_writing();
            }
            // If it is broken, reading shows it.
            let _ = socket.socket().shutdown(Shutdown::Write);
        }
    }

    /// Handles one handshake message and answers it. `known` returns the map's entry of a node that may connect. Returns the
    /// peer once its identity is proved.
    pub(super) fn shake_hands(
        &mut self,
        payload: &[u8],
        known: impl Fn(NodeId) -> Option<NodeAddress>,
    ) -> Result<Option<NodeId>, Fault> {
        match std::mem::replace(&mut self.stage, Stage::Failed) {
            Stage::AwaitsChallenge(dialer) => {
                let (proof, peer, session) = dialer.on_challenge(payload, |id| self.dialled == Some(id))?;
                self.send(&proof)?;
                self.session = Some(session);
                Ok(Some(peer))
            }
            Stage::AwaitsHello(mut acceptor) => {
                let is_expected = |id| known(id).is_some();
                let challenge = acceptor.on_hello(payload, is_expected);
                if let Some(notice) = acceptor.notice() {
                    // With the notice, the other node's log has the reason, too. If it cannot be sent, this log still has it.
                    let _ = self.send(notice);
                }
                let challenge = challenge.map_err(|error| match error {
                    HandshakeError::UnknownNode { node } => Fault::Refused(format!(
                        "it claims to be node {node}, which is not a member; quorate node add adds a new node"
                    )),
                    error => error.into(),
                })?;
                // A copy of a node's folder, started on other ports, is not that node.
                let claimed = acceptor.claimed().and_then(&known);
                if let Some(NodeAddress { id, peer_port: port, .. }) = claimed
                    && acceptor.port() != port
                {
                    let claimed = acceptor.port();
                    return Err(Fault::Refused(format!(
                        "it claims to be node {id} with peer_port = {claimed}, but the cluster reaches node \
                         {id} at port {port}: is it a copy of that node? To move a node to other ports, \
                         remove it and add it \
                         again: quorate node remove {id}, quorate node add"
                    )));
                }
                if let Some(known) = acceptor.claimed().and_then(known) {
                    self.check_certificate(&known)?;
                }
                self.send(&challenge)?;
                if let Some(refusal) = acceptor.refusal() {
                    return Err(refusal.into());
                }
                self.lane = acceptor.lane();
                self.stage = Stage::AwaitsProof(acceptor);
                Ok(None)
            }
            Stage::AwaitsProof(acceptor) => {
                let (peer, session) = acceptor.on_proof(payload)?;
                self.session = Some(session);
                Ok(Some(peer))
            }
            Stage::Connecting | Stage::InHandshake(_) | Stage::Up(_) | Stage::Failed => {
                Err(HandshakeError::OutOfOrder.into())
            }
        }
    }

    /// Adds the likely reason to a fault, as far as this side can know it: a node that the other side does not know is
    /// disconnected at its Hello.
    pub(super) fn explained(&self, fault: Fault) -> Fault {
        match (&self.stage, fault) {
            (Stage::AwaitsChallenge(_), Fault::Broken(error))
                if error.kind() == io::ErrorKind::UnexpectedEof =>
            {
                Fault::Refused(
                    "it hung up at the greeting, and its log says why: the secret in its configuration file may be another \
                     one than this node's; or it does not know this node (quorate join, CLUSTER ADD); or it wants TLS \
                     (tls.peers)"
                        .into(),
                )
            }
            (_, Fault::Broken(error)) => why_broken(&error).map_or(Fault::Broken(error), Fault::Refused),
            (_, fault) => fault,
        }
    }

    /// Makes this a proved connection of `peer`.
    pub(super) fn establish(&mut self, peer: NodeId, (since_us, silence_ms_max): (u64, u32)) {
        self.stage = Stage::Up(Link { peer, since_us, has_spoken: false });
        // Both only improve the link. If the socket is broken, its use shows it.
        if let Some(socket) = self.socket.as_ref().map(AnySocket::socket) {
            let _ = socket.set_nodelay(true);
            let _ = rustix::net::sockopt::set_tcp_user_timeout(socket, silence_ms_max);
        }
    }

    /// Sends a handshake message. It is small and the socket is fresh, so a socket that does not accept all of it is
    /// broken.
    fn send(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let mut bytes = Vec::with_capacity(greeting::HEADER_BYTES + payload.len());
        greeting::append(&mut bytes, |out| out.extend_from_slice(payload));
        match &mut self.socket {
            Some(socket) => Ok(socket.write_all(&bytes)?),
            None => Err(HandshakeError::OutOfOrder.into()),
        }
    }

    /// Records an event.
    pub(super) fn note(&mut self, event: &Event) {
        let is_over = event.is_read_closed() || event.is_error();
        self.has_unread |= event.is_readable() || is_over;
        self.is_hung_up |= is_over;
        // Waiting output is written at the end of the turn.
        self.outlet.is_blocked &= !event.is_writable();
    }

    /// What is known of the other side's identity.
    pub(super) fn standing(&self) -> Standing {
        match &self.stage {
            _ if self.dialled.is_some() => Standing::Known,
            Stage::Up(_) => Standing::Known,
            Stage::AwaitsProof(acceptor) => acceptor.claimed().map_or(Standing::Stranger, Standing::Claimed),
            Stage::Connecting
            | Stage::InHandshake(_)
            | Stage::AwaitsChallenge(_)
            | Stage::AwaitsHello(_)
            | Stage::Failed => Standing::Stranger,
        }
    }

    /// Seals the waiting frames and writes as many bytes as the socket accepts. Returns the number of bytes written.
    pub(super) fn write(&mut self, output: &mut Vec<u8>) -> io::Result<usize> {
        let (Some(session), Some(socket)) = (&mut self.session, &mut self.socket) else { return Ok(0) };
        session.sealer.seal(output);
        let before = output.len();
        let written = self.outlet.write(socket, output);
        session.sealer.removed(before - output.len());
        written
    }
}

/// Returns random bytes for one handshake.
pub(super) fn nonce() -> io::Result<Nonce> {
    let mut nonce = Nonce::default();
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(nonce)
}

//! TLS of the links: which connections use it, and which are refused.
//!
//! With `tls.peers = "wanted"` both kinds of connections are accepted, and nodes dial with TLS; if the peer does not
//! understand it, the next dial is plain. So the nodes of a cluster can change over one after the other. With `"required"`
//! there is no plain connection.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use node::NodeId;
use node::report::Certificate;
use rustls::Connection as Session;
use wire::handshake::{Acceptor, Lane};

use super::Peers;
use super::connection::{Connection, Fault, Stage, nonce};
use crate::config::PeerTls;
use crate::tls::{AnySocket, Handshakes, Made, Scratch, TlsStream};
use crate::turn::{PEER_TOKENS, Turn};

/// The first byte of a TLS handshake. A Hello begins with its length, whose first byte differs.
const TLS_HANDSHAKE: u8 = 0x16;

/// How long links may stay that would now be refused: so they have time to be replaced.
const UNFIT_US: u64 = 10_000_000;

/// How links are secured.
pub(crate) struct Security {
    /// `None` if the node has no certificate.
    handshakes: Option<Handshakes>,
    scratch: Scratch,
    mode: PeerTls,
    /// The generation of the settings in force when they were last checked.
    generation: u64,
    /// When to close links that would now be refused.
    pub(super) unfit_until_us: Option<u64>,
}

impl Security {
    pub(crate) fn new(handshakes: Option<Handshakes>, scratch: Scratch) -> Security {
        let current = handshakes.as_ref().map(Handshakes::current);
        let (mode, generation) = current.map_or((PeerTls::Off, 0), |now| (now.mode, now.generation));
        Security { handshakes, scratch, mode, generation, unfit_until_us: None }
    }

    /// Until when this node's certificate is valid, in seconds since the Unix epoch.
    pub(super) fn certificate_expires_s(&self) -> Option<u64> {
        self.handshakes.as_ref()?.current().expires_s
    }

    /// This node's certificate.
    pub(super) fn certificate(&self) -> Option<Certificate> {
        let current = self.handshakes.as_ref()?.current();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let left_s = i64::try_from(current.expires_s?).ok()?.saturating_sub_unsigned(now);
        Some(Certificate { left_s, unusable: current.is_unusable })
    }

    /// Whether this node dials with TLS.
    pub(super) fn speaks_tls(&self) -> bool {
        self.mode != PeerTls::Off
    }

    /// Why a link would now be refused, or `None`. An expired certificate does not end a link.
    fn unfitness(&self, link: &Connection) -> Option<&'static str> {
        match &link.socket {
            Some(AnySocket::Tls(stream)) => {
                let peers = self.handshakes.as_ref()?.current().peers?;
                let is_trusted = peers.trusts(stream.shown());
                (!is_trusted).then_some("its certificate does not come from tls.authority any more")
            }
            _ => (self.mode == PeerTls::Required)
                .then_some("it is not in TLS, and tls.peers = \"required\" now"),
        }
    }

    /// Checks for changed settings or certificates. Returns true if all links must be replaced.
    fn has_changed(&mut self, now_us: u64) -> bool {
        let Some(current) = self.handshakes.as_ref().map(Handshakes::current) else { return false };
        if current.generation == self.generation {
            return false;
        }
        self.generation = current.generation;
        let before = std::mem::replace(&mut self.mode, current.mode);
        self.unfit_until_us = self.speaks_tls().then_some(now_us + UNFIT_US);
        before != PeerTls::Off || self.mode != PeerTls::Off
    }
}

impl Peers {
    /// Handles the bytes before the Hello. Returns false if there is nothing to read now.
    pub(super) fn begin(&mut self, index: usize, registry: &Registry) -> Result<bool, Fault> {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
            return Ok(false);
        };
        match connection.stage {
            Stage::Connecting => {
                if !connection.is_connected()? {
                    return Ok(false);
                }
                if connection.wants_tls {
                    return self.secure(index, registry);
                }
                connection.greet(&self.identity)?;
                Ok(true)
            }
            Stage::InHandshake(_) => Ok(false),
            Stage::AwaitsHello(_) if connection.is_fresh() => {
                let Some(first) = connection.first_byte()? else { return Ok(false) };
                match (first == TLS_HANDSHAKE, self.security.mode) {
                    (true, PeerTls::Off) => Err(Fault::Refused(
                        "it speaks TLS, and this node does not do so with other nodes (tls.peers)".into(),
                    )),
                    (true, _) => self.secure(index, registry),
                    (false, PeerTls::Required) => {
                        Err(Fault::Refused("it does not speak TLS, and tls.peers = \"required\"".into()))
                    }
                    (false, _) => Ok(true),
                }
            }
            _ => Ok(true),
        }
    }

    /// Begins the TLS handshake. Returns false: there is nothing to read now.
    fn secure(&mut self, index: usize, registry: &Registry) -> Result<bool, Fault> {
        let (Some(connection), Some(handshakes)) =
            (self.connections[index].as_mut(), &mut self.security.handshakes)
        else {
            return Ok(false);
        };
        let Some(AnySocket::Plain(mut socket)) = connection.socket.take() else {
            return Err(Fault::Refused("it begins TLS twice".into()));
        };
        registry.deregister(&mut socket)?;
        // The messages of a handshake must not be delayed to be sent together.
        let _ = socket.set_nodelay(true);
        connection.has_unread = false;
        connection.stage = Stage::InHandshake(handshakes.begin(socket.into(), connection.dialled.is_some()));
        Ok(false)
    }

    /// Takes back connections whose handshakes have ended.
    pub(super) fn take_secured(&mut self, registry: &Registry, turn: &mut Turn<'_>) {
        while let Some(made) = self.security.handshakes.as_mut().and_then(Handshakes::next) {
            let index = self.connections.iter().position(|slot| {
                slot.as_ref().is_some_and(
                    |connection| matches!(&connection.stage, Stage::InHandshake(pending) if pending.is(&made)),
                )
            });
            // It may have been too slow, and been closed.
            let Some(index) = index else { continue };
            let Made { outcome, .. } = made;
            match outcome {
                Ok((socket, session)) => match self.go_on(index, socket, session, registry) {
                    Ok(()) => self.ready.push(index),
                    Err(fault) => self.close(index, fault, turn),
                },
                Err(not_made) => {
                    if not_made.is_no_tls && self.dials_plainly(index, turn) {
                        continue;
                    }
                    self.close(index, Fault::Refused(not_made.why), turn);
                }
            }
        }
    }

    fn go_on(
        &mut self,
        index: usize,
        socket: std::net::TcpStream,
        session: Box<Session>,
        registry: &Registry,
    ) -> Result<(), Fault> {
        let Some(connection) = self.connections[index].as_mut() else { return Ok(()) };
        let mut socket = TcpStream::from_std(socket);
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut socket, Token(PEER_TOKENS + index), interest)?;
        let stream = TlsStream::new(socket, session, Scratch::clone(&self.security.scratch));
        connection.socket = Some(AnySocket::Tls(Box::new(stream)));
        connection.has_unread = true;
        let Some(id) = connection.dialled else {
            connection.stage = Stage::AwaitsHello(Acceptor::new(self.identity.clone(), nonce()?));
            return Ok(());
        };
        if let Some(peer) = self.peers.iter().find(|peer| peer.id == id) {
            connection.check_certificate(&peer.known)?;
        }
        connection.greet(&self.identity)
    }

    /// Dials a node that does not understand TLS again without it, if the settings allow that. Returns false if they
    /// do not.
    fn dials_plainly(&mut self, index: usize, turn: &Turn<'_>) -> bool {
        let dialled = self.connections[index].as_ref().filter(|connection| connection.lane == Lane::Main);
        let dialled: Option<NodeId> = dialled.and_then(|connection| connection.dialled);
        let Some(peer) = self.peers.iter_mut().find(|peer| Some(peer.id) == dialled) else { return false };
        if self.security.mode != PeerTls::Wanted || peer.link.is_some() {
            return false;
        }
        self.connections[index] = None;
        peer.is_plain_next = true;
        peer.dial_at_us = Some(turn.now.monotonic_us);
        true
    }

    /// Applies the settings and certificates that are in force now.
    pub(super) fn keep_secure(&mut self, turn: &mut Turn<'_>) {
        let now_us = turn.now.monotonic_us;
        if self.security.has_changed(now_us) {
            self.renew_links(now_us);
        }
        if self.security.unfit_until_us.is_none_or(|at| at > now_us) {
            return;
        }
        self.security.unfit_until_us = None;
        for index in 0..self.connections.len() {
            let link = self.connections[index].as_ref().filter(|connection| connection.link().is_some());
            if let Some(why) = link.and_then(|link| self.security.unfitness(link)) {
                self.close(index, io::Error::other(why).into(), turn);
            }
        }
    }
}

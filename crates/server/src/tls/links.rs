//! Handshakes of links between nodes. The worker dials and accepts, and keeps each connection's place; the thread of `door`
//! makes the handshake, and gives the socket back. Both sides present a certificate of `tls.authority`. The worker checks
//! which node's it is, since only the worker knows which node the other side claims to be.

use std::io;
use std::sync::Arc;

use mio::Waker;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, Connection, Error};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::certificates::{Certificates, Current};
use super::farewell::{FAREWELL, say_farewell};
use super::refusals::reason;

/// A handshake in progress. It ends when this is dropped.
pub(crate) struct Pending {
    number: u64,
    _wanted: oneshot::Sender<()>,
}

impl Pending {
    /// Whether this is the handshake that has ended.
    pub(crate) fn is(&self, made: &Made) -> bool {
        self.number == made.number
    }
}

/// A handshake that has ended.
pub(crate) struct Made {
    number: u64,
    /// The connection, or why there is none.
    pub(crate) outcome: Result<(std::net::TcpStream, Box<Connection>), NotMade>,
}

/// Why a handshake failed.
pub(crate) struct NotMade {
    /// In plain words.
    pub(crate) why: String,
    /// The other side does not seem to speak TLS.
    pub(crate) is_no_tls: bool,
}

struct Begun {
    number: u64,
    socket: std::net::TcpStream,
    is_dialled: bool,
    wanted: oneshot::Receiver<()>,
}

/// The worker's end.
pub(crate) struct Handshakes {
    certificates: Arc<Certificates>,
    sender: mpsc::UnboundedSender<Begun>,
    receiver: mpsc::UnboundedReceiver<Made>,
    count: u64,
}

impl Handshakes {
    /// Begins a handshake on a connected socket. As many can be in progress as there are places for connections.
    pub(crate) fn begin(&mut self, socket: std::net::TcpStream, is_dialled: bool) -> Pending {
        self.count += 1;
        let (wanted, is_wanted) = oneshot::channel();
        // If the thread has ended, the node ends too.
        let _ = self.sender.send(Begun { number: self.count, socket, is_dialled, wanted: is_wanted });
        Pending { number: self.count, _wanted: wanted }
    }

    /// The next handshake that has ended.
    pub(crate) fn next(&mut self) -> Option<Made> {
        self.receiver.try_recv().ok()
    }

    /// What is in force now.
    pub(crate) fn current(&self) -> Current {
        self.certificates.current()
    }
}

/// The thread's end.
pub(super) struct Service {
    certificates: Arc<Certificates>,
    receiver: mpsc::UnboundedReceiver<Begun>,
    sender: mpsc::UnboundedSender<Made>,
    waker: Arc<Waker>,
}

/// Connects the worker and the thread.
pub(super) fn channel(certificates: Arc<Certificates>, waker: Arc<Waker>) -> (Handshakes, Service) {
    let (sender, begun) = mpsc::unbounded_channel();
    let (made, receiver) = mpsc::unbounded_channel();
    let service = Service { certificates: Arc::clone(&certificates), receiver: begun, sender: made, waker };
    (Handshakes { certificates, sender, receiver, count: 0 }, service)
}

impl Service {
    /// Makes handshakes for as long as the node runs.
    pub(super) async fn serve(mut self) {
        while let Some(Begun { number, socket, is_dialled, wanted }) = self.receiver.recv().await {
            let (current, sender, waker) =
                (self.certificates.current(), self.sender.clone(), Arc::clone(&self.waker));
            tokio::spawn(async move {
                let outcome = tokio::select! {
                    _ = wanted => return,
                    outcome = shake_hands(socket, is_dialled, current) => outcome,
                };
                let _ = sender.send(Made { number, outcome });
                let _ = waker.wake();
            });
        }
        // The worker has ended, and this thread ends when it is stopped.
        std::future::pending().await
    }
}

async fn shake_hands(
    socket: std::net::TcpStream,
    is_dialled: bool,
    current: Current,
) -> Result<(std::net::TcpStream, Box<Connection>), NotMade> {
    let broken = |error: io::Error| NotMade { why: error.to_string(), is_no_tls: false };
    let Some(peers) = current.peers else {
        return Err(NotMade { why: "tls.peers is \"off\" now".to_owned(), is_no_tls: false });
    };
    let address = socket.peer_addr().map_err(broken)?;
    let socket = TcpStream::from_std(socket).map_err(broken)?;
    let (socket, session) = if is_dialled {
        // No certificate is for an address alone: the worker checks the node.
        let name = ServerName::IpAddress(address.ip().into());
        let dialling = TlsConnector::from(peers.dials).connect(name, socket).into_fallible();
        let (socket, session) = dialling.await.map_err(|(error, _)| not_made(&error))?.into_inner();
        (socket, Connection::from(session))
    } else {
        match TlsAcceptor::from(peers.accepts).accept(socket).into_fallible().await {
            Ok(stream) => {
                let (socket, session) = stream.into_inner();
                (socket, Connection::from(session))
            }
            Err((error, mut socket)) => {
                let _ = tokio::time::timeout(FAREWELL, say_farewell(&mut socket)).await;
                return Err(not_made(&error));
            }
        }
    };
    // It stays non-blocking.
    Ok((socket.into_std().map_err(broken)?, Box::new(session)))
}

fn not_made(error: &io::Error) -> NotMade {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(error) => NotMade {
            why: reason(error),
            is_no_tls: matches!(
                error,
                Error::InvalidMessage(_) | Error::AlertReceived(AlertDescription::HandshakeFailure)
            ),
        },
        // A node that does not expect TLS closes the connection.
        None => NotMade { why: format!("it does not answer to TLS ({error})"), is_no_tls: true },
    }
}

/// Why a TLS connection broke, if the reason was TLS: the other side may refuse this node's certificate after the handshake
/// is complete on this side.
pub(crate) fn why_broken(error: &io::Error) -> Option<String> {
    error.get_ref()?.downcast_ref::<Error>().map(reason)
}

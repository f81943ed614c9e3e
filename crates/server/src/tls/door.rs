//! The port for clients with TLS: a thread makes the handshakes, and passes on connections that have completed theirs. It
//! also makes those of the links to other nodes (`links`), which the worker dials and accepts.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use mio::Waker;
use rustls::Connection;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::certificates::Certificates;
use super::farewell::{FAREWELL, say_farewell};
use super::links::{self, Handshakes};
use super::refusals::{Counters, Refusal};
use crate::descriptors::SocketBound;
use crate::thread;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The maximum number of handshakes in progress at the port for Redis clients. One more ends the oldest.
const HANDSHAKES_MAX: usize = 256;

/// How long to wait after a failed accept, for example when the system is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The maximum number of connections that wait for the worker.
const ARRIVALS_MAX: usize = 64;

/// What the worker receives.
pub(crate) enum Arrival {
    /// A client whose handshake is done.
    Client {
        /// Its connection. All that has been read from it is in the session.
        socket: std::net::TcpStream,
        /// Its address.
        address: SocketAddr,
        /// Its keys.
        session: Box<Connection>,
    },
    /// A client connected and there was no file descriptor for it.
    Crowded,
}

/// The worker's end.
pub(crate) struct Arrivals {
    receiver: mpsc::Receiver<Arrival>,
}

impl Arrivals {
    /// The next arrival, if there is one.
    pub(crate) fn next(&mut self) -> Option<Arrival> {
        self.receiver.try_recv().ok()
    }
}

/// The thread that makes handshakes and watches the certificates.
pub(crate) struct Door {
    thread: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Door {
    /// Starts it. Without a listener it accepts no clients. The worker is woken for each arrival, and when the certificates
    /// have changed.
    ///
    /// # Errors
    /// The thread or its runtime cannot be created.
    pub(crate) fn start(
        listener: Option<std::net::TcpListener>,
        certificates: Arc<Certificates>,
        counters: Arc<Counters>,
        sockets: SocketBound,
        waker: Arc<Waker>,
    ) -> Result<(Door, Arrivals, Handshakes)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.context("cannot make a runtime for TLS")?;
        let listener = {
            let _inside = runtime.enter();
            let listener = listener.map(TcpListener::from_std).transpose();
            listener.context("cannot watch the TLS port")?
        };
        let (sender, receiver) = mpsc::channel(ARRIVALS_MAX);
        let (stop, stopped) = oneshot::channel::<()>();
        let (handshakes, begun) = links::channel(Arc::clone(&certificates), Arc::clone(&waker));
        let host = Host { certificates, counters, sender, waker };
        let serve = move || {
            runtime.block_on(async {
                let accepting = async {
                    match listener {
                        Some(listener) => accept(&listener, sockets, &host).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = accepting => {}
                    () = begun.serve() => {}
                    () = host.certificates.watch(&host.waker) => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        };
        let thread = thread::start("tls", serve);
        let thread = thread.context("cannot start a thread for TLS")?;
        Ok((Door { thread, stop }, Arrivals { receiver }, handshakes))
    }

    pub(crate) fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

/// What a handshake needs.
#[derive(Clone)]
struct Host {
    certificates: Arc<Certificates>,
    counters: Arc<Counters>,
    sender: mpsc::Sender<Arrival>,
    waker: Arc<Waker>,
}

impl Host {
    /// Passes an arrival to the worker as soon as the worker has room for it. Drops it if the worker has ended.
    async fn tell(&self, arrival: Arrival) {
        if self.sender.send(arrival).await.is_ok() {
            let _ = self.waker.wake();
        }
    }
}

async fn accept(listener: &TcpListener, sockets: SocketBound, host: &Host) {
    let mut open: VecDeque<(AbortHandle, SocketAddr)> = VecDeque::new();
    loop {
        let (socket, address) = match listener.accept().await {
            Ok((socket, _)) if sockets.is_passed(&socket) => {
                host.tell(Arrival::Crowded).await;
                continue;
            }
            Ok(accepted) => accepted,
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        open.retain(|(task, _)| !task.is_finished());
        if open.len() >= HANDSHAKES_MAX
            && let Some((oldest, whom)) = open.pop_front()
        {
            oldest.abort();
            host.counters.refuse(&whom.to_string(), &Refusal::Crowded);
        }
        let task = tokio::spawn(hand_over(socket, address, host.clone()));
        open.push_back((task.abort_handle(), address));
    }
}

async fn hand_over(socket: TcpStream, address: SocketAddr, host: Host) {
    let Some(stream) = shake_hands(socket, address, &host.certificates, &host.counters).await else { return };
    let (socket, session) = stream.into_inner();
    // It stays non-blocking.
    if let Ok(socket) = socket.into_std() {
        host.tell(Arrival::Client { socket, address, session: Box::new(session.into()) }).await;
    }
}

/// Makes the handshake of one connection. Returns `None` if it failed, after counting and logging that.
pub(crate) async fn shake_hands(
    socket: TcpStream,
    address: SocketAddr,
    certificates: &Certificates,
    counters: &Counters,
) -> Option<TlsStream<TcpStream>> {
    let _ = socket.set_nodelay(true);
    let accepting = TlsAcceptor::from(certificates.current().clients).accept(socket).into_fallible();
    let refusal = match tokio::time::timeout(HANDSHAKE, accepting).await {
        Ok(Ok(stream)) => {
            counters.done.fetch_add(1, Ordering::Relaxed);
            return Some(stream);
        }
        Ok(Err((error, mut socket))) => {
            let _ = tokio::time::timeout(FAREWELL, say_farewell(&mut socket)).await;
            Refusal::Failed(error)
        }
        Err(_) => Refusal::Late(HANDSHAKE),
    };
    counters.refuse(&address.to_string(), &refusal);
    None
}

//! HTTP beside the worker: connections on an ordinary asynchronous stack, in one thread of its own.
//!
//! It shares only the [`Caller`]'s channel with the worker, so a slow or busy HTTP client costs the Redis clients no time
//! except for its own commands. Limits apply to the number of connections, to how long a head or a body may take to arrive,
//! and to the memory of all bodies together.

mod access;
mod answer;
#[cfg(any(test, fuzzing))]
pub(crate) mod anything;
mod changes;
mod commands;
mod fields;
mod health;
mod keyspaces;
mod locks;
mod pace;
mod page;
mod routes;
mod status;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;

use self::answer::Answer;
use self::pace::Paced;
use self::routes::Routes;
use crate::bridge::Caller;
use crate::config::Config;
use crate::descriptors::SocketBound;
use crate::thread;
use crate::tls::{Certificates, Counters, shake_hands};

/// How long a request's head may take, and how long a connection may be silent between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// A client that reads nothing of its answer for this long is disconnected, in milliseconds.
const SILENCE_MS_MAX: u32 = 30_000;

/// Answers of at most so many bytes may be read at any pace.
const SHORT_ANSWER_BYTES: usize = 16 << 10;

/// How long to wait after a failed accept, for example when the system is out of file descriptors, and for a connection to end
/// before another one is closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The thread that serves HTTP.
pub(crate) struct Http {
    thread: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Http {
    /// Starts to serve, at a plain port, at one with TLS, or at both.
    ///
    /// # Errors
    /// The thread or its runtime cannot be created.
    pub(crate) fn start(
        ports: (Option<std::net::TcpListener>, Option<(std::net::TcpListener, Sealed)>),
        config: &Config,
        sockets: SocketBound,
        caller: Caller,
    ) -> Result<Http> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.context("cannot make a runtime for HTTP")?;
        let (plain, sealed) = {
            let _inside = runtime.enter();
            let port = |listener, sealed| {
                let listener = TcpListener::from_std(listener).context("cannot watch the HTTP port")?;
                Ok::<_, anyhow::Error>(Port { listener, sealed })
            };
            let plain = ports.0.map(|listener| port(listener, None)).transpose()?;
            (plain, ports.1.map(|(listener, sealed)| port(listener, Some(sealed))).transpose()?)
        };
        let host = Host {
            routes: Arc::new(Routes::new(config, caller)),
            permits: Arc::new(Semaphore::new(config.limits.http_connections_max)),
            sockets,
            connections: RefCell::default(),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(plain, &host) => {}
                    () = accept(sealed, &host) => {}
                    _ = stopped => {}
                }
            });
            // Running calls get no answer: the worker has ended.
            runtime.shutdown_background();
        };
        let thread = thread::start("http", serve);
        Ok(Http { thread: thread.context("cannot start a thread for HTTP")?, stop })
    }

    pub(crate) fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

/// What TLS connections are made with.
#[derive(Clone)]
pub(crate) struct Sealed {
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) counters: Arc<Counters>,
}

/// A listening port.
struct Port {
    listener: TcpListener,
    /// Set if the port speaks TLS.
    sealed: Option<Sealed>,
}

/// What the ports share.
struct Host {
    routes: Arc<Routes>,
    permits: Arc<Semaphore>,
    sockets: SocketBound,
    connections: RefCell<Connections>,
}

/// Serves a port, if there is one. Never ends.
async fn accept(port: Option<Port>, host: &Host) {
    let Some(Port { listener, sealed }) = port else { return std::future::pending().await };
    loop {
        let (socket, address) = match listener.accept().await {
            // The socket occupies a reserved descriptor.
            Ok((socket, _)) if host.sockets.is_passed(&socket) => continue,
            Ok(accepted) => accepted,
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let permit = loop {
            if host.permits.available_permits() == 0 {
                host.connections.borrow_mut().close_one();
            }
            // A request may be worked on in each of them just now, and wait for its body soon after. The semaphore is never
            // closed.
            match tokio::time::timeout(ACCEPT_PAUSE, Arc::clone(&host.permits).acquire_owned()).await {
                Ok(Ok(permit)) => break permit,
                Ok(Err(_)) => return,
                Err(_) => {}
            }
        };
        let stage = StageOf::default();
        let serving = serve(socket, address, sealed.clone(), Arc::clone(&host.routes), stage.clone());
        let task = tokio::spawn(async move {
            serving.await;
            drop(permit);
        });
        host.connections.borrow_mut().add(task.abort_handle(), stage);
    }
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// There is no request, or its head is incomplete.
    Idle,
    /// A request's body is incomplete; the client may never send the rest.
    Arriving,
    /// A request is being worked on.
    Busy,
}

#[derive(Clone, Debug, Default)]
pub(super) struct StageOf(Arc<AtomicU8>);

impl StageOf {
    pub(super) fn set(&self, stage: Stage) {
        self.0.store(stage as u8, Ordering::Relaxed);
    }

    fn is(&self, stage: Stage) -> bool {
        self.0.load(Ordering::Relaxed) == stage as u8
    }
}

/// The open connections, oldest first. Connections without a request must not keep out others, such as one that asks
/// for the node's health.
#[derive(Default)]
struct Connections {
    open: VecDeque<(AbortHandle, StageOf)>,
}

impl Connections {
    fn add(&mut self, task: AbortHandle, stage: StageOf) {
        self.open.retain(|(task, _)| !task.is_finished());
        self.open.push_back((task, stage));
    }

    /// Closes the oldest connection that has no request in progress, whether its head is incomplete or it is idle between
    /// two requests; if there is none, the oldest whose request body is incomplete.
    fn close_one(&mut self) {
        let oldest =
            |of: Stage| self.open.iter().position(|(task, stage)| !task.is_finished() && stage.is(of));
        let place = oldest(Stage::Idle).or_else(|| oldest(Stage::Arriving));
        if let Some((task, _)) = place.and_then(|place| self.open.remove(place)) {
            task.abort();
        }
    }
}

/// Serves one connection to its end. An error affects this connection only.
async fn serve(
    socket: TcpStream,
    address: SocketAddr,
    sealed: Option<Sealed>,
    routes: Arc<Routes>,
    stage: StageOf,
) {
    let _ = socket.set_nodelay(true);
    let _ = set_tcp_user_timeout(&socket, SILENCE_MS_MAX);
    let Some(Sealed { certificates, counters }) = sealed else {
        return serve_stream(socket, address.ip(), routes, stage).await;
    };
    if let Some(stream) = shake_hands(socket, address, &certificates, &counters).await {
        serve_stream(stream, address.ip(), routes, stage).await;
    }
}

async fn serve_stream(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    from: IpAddr,
    routes: Arc<Routes>,
    stage: StageOf,
) {
    let (stream, taken) = Paced::new(stream);
    let (sender, answers) = mpsc::channel(1);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (routes, stage, sender) = (Arc::clone(&routes), stage.clone(), sender.clone());
        async move {
            stage.set(Stage::Busy);
            request.extensions_mut().insert(stage.clone());
            let answer = routes.answer(from, request).await.unwrap_or_else(Answer::from);
            if !answer.goes_on() {
                stage.set(Stage::Idle);
            }
            if let Some(held) = answer.held(SHORT_ANSWER_BYTES) {
                // Where there is no room, the answer before it is being watched.
                let _ = sender.try_send(held);
            }
            Ok::<Response<_>, Infallible>(answer.into())
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    tokio::select! {
        _ = builder.serve_connection(TokioIo::new(stream), service) => {}
        () = pace::is_too_slow(answers, taken) => {}
    }
}

//! HTTP beside the worker: connections on an ordinary asynchronous stack, in one thread of its own.
//!
//! It shares nothing with the worker but the [`Caller`]'s channel, so that a slow or busy HTTP client takes no
//! time of the Redis clients' but that of its own commands. Connections are limited in number, in how long a
//! head or a body may take to arrive, and in how much all bodies take together.

mod access;
mod answer;
mod fields;
mod keyspaces;
mod locks;
mod routes;

use std::convert::Infallible;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};

use self::answer::Answer;
use self::routes::Routes;
use crate::bridge::Caller;
use crate::config::Config;
use crate::descriptors::SocketBound;

/// How long a request's head may take, and how long a connection may be silent between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// A client that takes nothing of its answer for so long is cut off.
const SILENCE_MS_MAX: u32 = 30_000;

/// How long to wait when the system lets nobody in, as when it is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The thread that serves HTTP.
pub(crate) struct Http {
    thread: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Http {
    /// Begins to serve.
    ///
    /// # Errors
    /// The thread or its runtime cannot be made.
    pub(crate) fn start(
        listener: std::net::TcpListener,
        config: &Config,
        sockets: SocketBound,
        caller: Caller,
    ) -> Result<Http> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.context("cannot make a runtime for HTTP")?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener).context("cannot watch the HTTP port")?
        };
        let routes = Arc::new(Routes::new(config, caller));
        let permits = Arc::new(Semaphore::new(config.limits.http_connections_max));
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, routes, permits, sockets) => {}
                    _ = stopped => {}
                }
            });
            // Calls that are under way get no answer any more: the worker has ended.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("http".into()).spawn(serve);
        Ok(Http { thread: thread.context("cannot start a thread for HTTP")?, stop })
    }

    /// Ends it.
    pub(crate) fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

async fn accept(listener: TcpListener, routes: Arc<Routes>, permits: Arc<Semaphore>, sockets: SocketBound) {
    // Never closed, so a permit is always given at some time. Who finds none waits at the door.
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        match listener.accept().await {
            // There is no descriptor for it.
            Ok((socket, _)) if sockets.is_passed(&socket) => drop(socket),
            Ok((socket, _)) => {
                let routes = Arc::clone(&routes);
                tokio::spawn(async move {
                    serve(socket, routes).await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Serves one connection to its end. That it breaks concerns nobody else.
async fn serve(socket: TcpStream, routes: Arc<Routes>) {
    let _ = socket.set_nodelay(true);
    let _ = set_tcp_user_timeout(&socket, SILENCE_MS_MAX);
    let service = service_fn(move |request: Request<Incoming>| {
        let routes = Arc::clone(&routes);
        async move {
            Ok::<Response<_>, Infallible>(routes.answer(request).await.unwrap_or_else(Answer::from).into())
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let _ = builder.serve_connection(TokioIo::new(socket), service).await;
}

//! The handle of a running relay.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use mio::Waker;

use super::engine::Engine;
use super::request::{LinkTraffic, Request, Route};
use super::settings::{Gate, Interface, Link, Node};

/// A relay on its own thread. It ends when this is dropped, and resets its connections.
///
/// Links without settings carry as fast as they can. A change is in effect when the call returns.
pub struct Relay {
    requests: Sender<Request>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Relay {
    /// Starts a relay without routes.
    ///
    /// # Errors
    /// The system refuses.
    pub fn start(seed: u64) -> io::Result<Relay> {
        let (requests, receiver) = channel();
        let (engine, waker) = Engine::new(seed, receiver)?;
        let thread = std::thread::Builder::new().name("relay".into()).spawn(move || engine.run())?;
        Ok(Relay { requests, waker, thread: Some(thread) })
    }

    /// Opens a route through the relay; returns the address where it listens.
    ///
    /// # Errors
    /// The address is not available.
    pub fn add_route(&self, route: Route) -> io::Result<SocketAddr> {
        self.ask(|answer| Request::AddRoute(route, answer))?
    }

    /// Sets the properties of the link from one node to another; the link back stays as it is.
    ///
    /// # Errors
    /// The relay has ended.
    pub fn set_link(&self, from: Node, to: Node, link: Link) -> io::Result<()> {
        self.ask(|answer| Request::ChangeLink(from, to, link, answer))
    }

    /// Sets the bandwidths of a node's interface.
    ///
    /// # Errors
    /// The relay has ended.
    pub fn set_interface(&self, node: Node, interface: Interface) -> io::Result<()> {
        self.ask(|answer| Request::ChangeInterface(node, interface, answer))
    }

    /// Cuts or opens the link from one node to another; the link back stays as it is, as far as TCP allows.
    ///
    /// # Errors
    /// An address that was given up is not available again.
    pub fn set_gate(&self, from: Node, to: Node, gate: Gate) -> io::Result<()> {
        self.ask(|answer| Request::ChangeGate(from, to, gate, answer))?
    }

    /// The traffic of each link so far, in the links' order.
    ///
    /// # Errors
    /// The relay has ended.
    pub fn traffic(&self) -> io::Result<Vec<LinkTraffic>> {
        self.ask(Request::Traffic)
    }

    /// Ends the relay.
    ///
    /// # Errors
    /// It had already ended, for this reason.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn ask<Answer>(&self, request: impl FnOnce(Sender<Answer>) -> Request) -> io::Result<Answer> {
        let ended = || io::Error::new(io::ErrorKind::BrokenPipe, "the relay has ended");
        let (sender, answer): (Sender<Answer>, Receiver<Answer>) = channel();
        self.requests.send(request(sender)).map_err(|_| ended())?;
        self.waker.wake()?;
        answer.recv().map_err(|_| ended())
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        // Both fail only if it has ended, and then there is nothing to stop.
        let _ = self.requests.send(Request::Stop);
        let _ = self.waker.wake();
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = self.end();
        }
    }
}

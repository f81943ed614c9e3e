//! A relay that runs, as the rest of the program sees it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use mio::Waker;

use super::engine::Engine;
use super::fabric::Traffic;
use super::settings::{Gate, Interface, Link, Node};

/// A way through the relay: who connects to `listen` is node `from`, and reaches node `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Whose connections come here.
    pub from: Node,
    /// Whom they are for.
    pub to: Node,
    /// Where the relay listens; with port 0 the system picks one.
    pub listen: SocketAddr,
    /// Where the node is.
    pub target: SocketAddr,
}

/// What happened on one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTraffic {
    /// Who sent.
    pub from: Node,
    /// To whom.
    pub to: Node,
    /// How much, and what chance did to it.
    pub traffic: Traffic,
}

/// What the relay's thread is asked to do. Each is answered once it is done.
pub(super) enum Request {
    AddRoute(Route, Sender<io::Result<SocketAddr>>),
    ChangeLink(Node, Node, Link, Sender<()>),
    ChangeInterface(Node, Interface, Sender<()>),
    ChangeGate(Node, Node, Gate, Sender<io::Result<()>>),
    Traffic(Sender<Vec<LinkTraffic>>),
    Stop,
}

/// A relay on a thread of its own. It ends when this is dropped, and resets what goes through it.
///
/// Links that nothing was said about carry as fast as they can. A change is in effect when the call returns.
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

    /// Opens a way through the relay; tells where it listens.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn add_route(&self, route: Route) -> io::Result<SocketAddr> {
        self.ask(|answer| Request::AddRoute(route, answer))?
    }

    /// Makes the link from one node to another what is asked; the way back stays as it is.
    ///
    /// # Errors
    /// The relay has ended.
    pub fn set_link(&self, from: Node, to: Node, link: Link) -> io::Result<()> {
        self.ask(|answer| Request::ChangeLink(from, to, link, answer))
    }

    /// Makes a node's interface what is asked.
    ///
    /// # Errors
    /// The relay has ended.
    pub fn set_interface(&self, node: Node, interface: Interface) -> io::Result<()> {
        self.ask(|answer| Request::ChangeInterface(node, interface, answer))
    }

    /// Cuts or opens the link from one node to another; the way back stays as it is, as far as TCP lets it.
    ///
    /// # Errors
    /// An address that was given up cannot be had again.
    pub fn set_gate(&self, from: Node, to: Node, gate: Gate) -> io::Result<()> {
        self.ask(|answer| Request::ChangeGate(from, to, gate, answer))?
    }

    /// What happened on the links so far, in their order.
    ///
    /// # Errors
    /// The relay has ended.
    pub fn traffic(&self) -> io::Result<Vec<LinkTraffic>> {
        self.ask(Request::Traffic)
    }

    /// Ends the relay.
    ///
    /// # Errors
    /// It had ended before, for this reason.
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

//! Host names to addresses, off the worker's thread: a query to the name service may take seconds.
//!
//! A name is looked up again for each dial, so that a node may return under another address.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use mio::Waker;
use node::NodeId;

use crate::thread;

/// The result of a lookup.
pub(crate) type Resolved = (NodeId, io::Result<SocketAddr>);

/// Looks names up and wakes the worker when there are answers.
pub(crate) struct Resolver {
    answers: Receiver<Resolved>,
    sender: Sender<Resolved>,
    waker: Arc<Waker>,
}

impl Resolver {
    /// Creates a resolver that wakes this waker's poll.
    pub(crate) fn new(waker: Arc<Waker>) -> Resolver {
        let (sender, answers) = channel();
        Resolver { answers, sender, waker }
    }

    /// Begins to look up a peer's address; [`Resolver::next`] returns it later. If a name has several
    /// addresses, each attempt gets the next.
    pub(crate) fn ask(&self, peer: NodeId, host: &str, port: u16, attempt: usize) {
        let (host, sender, waker) = (host.to_owned(), self.sender.clone(), Arc::clone(&self.waker));
        let look_up = move || {
            let found = (host.as_str(), port).to_socket_addrs().and_then(|addresses| {
                let addresses: Vec<SocketAddr> = addresses.collect();
                let found = addresses.get(attempt % addresses.len().max(1)).copied();
                found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
            });
            let _ = sender.send((peer, found));
            let _ = waker.wake();
        };
        if let Err(error) = thread::start("resolver", look_up) {
            let _ = self.sender.send((peer, Err(error)));
            let _ = self.waker.wake();
        }
    }

    /// Returns the next answer that has arrived.
    pub(crate) fn next(&self) -> Option<Resolved> {
        self.answers.try_recv().ok()
    }
}

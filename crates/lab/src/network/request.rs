//! A request to a relay.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;

use super::fabric::Traffic;
use super::settings::{Gate, Interface, Link, Node};

/// A route through the relay: connections to `listen` come from node `from`, and lead to node `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The node whose connections arrive here.
    pub from: Node,
    /// The node that they lead to.
    pub to: Node,
    /// The address where the relay listens; with port 0 the system picks a port.
    pub listen: SocketAddr,
    /// The address of node `to`.
    pub target: SocketAddr,
}

/// The traffic of one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTraffic {
    /// The sending node.
    pub from: Node,
    /// The receiving node.
    pub to: Node,
    /// The link's counters.
    pub traffic: Traffic,
}

/// A request to the relay's thread. Each is answered once it is done.
pub(super) enum Request {
    AddRoute(Route, Sender<io::Result<SocketAddr>>),
    ChangeLink(Node, Node, Link, Sender<()>),
    ChangeInterface(Node, Interface, Sender<()>),
    ChangeGate(Node, Node, Gate, Sender<io::Result<()>>),
    Traffic(Sender<Vec<LinkTraffic>>),
    Stop,
}

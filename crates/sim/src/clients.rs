//! Simulated clients: each sends requests, waits for the replies, thinks, and sends again.

use crate::caching::Caching;
use crate::events::Place;
use crate::job::{Backup, Job, Restore};
use crate::locking::Locking;
use crate::operation::{Operation, Reply};
use crate::random::Random;
use crate::reading::{News, Reading};
use std::collections::VecDeque;

/// What a client sends to a node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Upstream {
    Hello,
    Request(Operation),
    Goodbye,
}

/// What a node sends to a client.
#[derive(Clone, Debug)]
pub(crate) enum Downstream {
    Reply(Reply),
    /// A key, or all, is not valid any more.
    Invalid(Option<Box<[u8]>>),
    /// Something has changed.
    News(News),
    /// A reply to a client that makes or restores a backup. The keys of a copy come as a string.
    OfJob(wire::resp::client::Reply),
}

/// One client and its connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) random: Random,
    /// The node that it is connected to, or was connected to last.
    pub(crate) node: Place,
    /// The number of its current connection; it grows with each one.
    pub(crate) connection: u32,
    pub(crate) is_connected: bool,
    /// Requests without an answer, in order.
    pub(crate) open: VecDeque<Operation>,
    /// When the oldest of them was sent, or the last reply came.
    pub(crate) waiting_since: u64,
    /// What is in flight to nodes, and to the client, in order of arrival.
    pub(crate) upstream: VecDeque<(Place, u32, Upstream)>,
    pub(crate) upstream_until: u64,
    pub(crate) downstream: VecDeque<(u32, Downstream)>,
    pub(crate) downstream_until: u64,
    /// The number of the newest alarm; older ones are ignored.
    pub(crate) alarm: u32,
    pub(crate) think_us: u64,
    pub(crate) locking: Locking,
    /// Of a client that keeps what it reads, and does nothing else.
    pub(crate) caching: Option<Caching>,
    /// Of a client that reads all changes of a keyspace, and does nothing else.
    pub(crate) reading: Option<Reading>,
    /// Of a client that makes or restores a backup, and does nothing else.
    pub(crate) job: Option<Job>,
    /// An observer's remaining requests, in order. It sends them to one node, and repeats a request until the reply
    /// is not an error.
    pub(crate) script: Option<VecDeque<Operation>>,
    pub(crate) last_reply: Option<Reply>,
}

impl Client {
    pub(crate) fn new(random: Random, think_us: u64) -> Client {
        Client {
            random,
            node: 0,
            connection: 0,
            is_connected: false,
            open: VecDeque::new(),
            waiting_since: 0,
            upstream: VecDeque::new(),
            upstream_until: 0,
            downstream: VecDeque::new(),
            downstream_until: 0,
            alarm: 0,
            think_us,
            locking: Locking::default(),
            caching: None,
            reading: None,
            job: None,
            script: None,
            last_reply: None,
        }
    }

    /// Creates a client that keeps what it reads.
    pub(crate) fn keeper(random: Random, think_us: u64, is_broadcast: bool) -> Client {
        Client { caching: Some(Caching::new(is_broadcast)), ..Client::new(random, think_us) }
    }

    /// Creates a client that reads all changes of a keyspace.
    pub(crate) fn reader(random: Random, think_us: u64, space: u8) -> Client {
        Client { reading: Some(Reading::new(space)), ..Client::new(random, think_us) }
    }

    /// Creates a client that makes a backup of a keyspace.
    pub(crate) fn backup(random: Random, think_us: u64, space: u8) -> Client {
        Client { job: Some(Job::Backup(Backup::new(space))), ..Client::new(random, think_us) }
    }

    /// Creates a client that restores backups.
    pub(crate) fn restore(random: Random, restore: Restore) -> Client {
        Client { job: Some(Job::Restore(restore)), ..Client::new(random, 0) }
    }

    /// Creates an observer: a client that sends a script to one node until every request has been answered.
    pub(crate) fn observer(random: Random, node: Place, script: VecDeque<Operation>) -> Client {
        Client { node, script: Some(script), ..Client::new(random, 0) }
    }

    pub(crate) fn is_observer(&self) -> bool {
        self.script.is_some()
    }

    /// Whether all its requests have their replies.
    pub(crate) fn is_satisfied(&self) -> bool {
        let has_asked = self.script.as_ref().is_none_or(VecDeque::is_empty);
        self.open.is_empty() && has_asked && self.job.as_ref().is_none_or(Job::is_done)
    }
}

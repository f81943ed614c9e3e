//! What a client has watched and queued since `MULTI`.

use super::Session;
use commands::users::User;
use kv::codec::Reader;
use kv::{Draft, Reply, TransactionId, Version, Watched};
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::resp::ArgumentsBuffer;

/// What a client has watched and queued so far.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// `MULTI` was sent: requests are queued.
    pub(crate) is_open: bool,
    /// A request could not be queued.
    pub(crate) is_broken: bool,
    /// It can no longer be determined whether a watched key was changed.
    pub(crate) is_lost: bool,
    /// Watched keys, and the commands on the data.
    pub(crate) draft: Draft,
    /// The groups in which keys were watched, each with its leadership at that time.
    pub(crate) origins: BTreeMap<u16, u64>,
    /// The watched keys, to recognize a key that is watched already, each with its group at that time.
    pub(crate) watched: BTreeMap<Vec<u8>, u16>,
    /// The total length of these keys, in bytes.
    pub(crate) watched_bytes: usize,
    /// All queued requests, in order.
    pub(crate) items: Vec<Item>,
    /// The numbers of the items' commands.
    pub(crate) numbers: Vec<u16>,
    /// The user for whom all requests were checked; `None`: no user was.
    pub(crate) user: Option<Rc<User>>,
    /// Bytes of the items that are not in the draft.
    pub(crate) item_bytes: usize,
}

/// A queued request, or the part of it that is needed.
#[derive(Debug)]
pub(crate) enum Item {
    /// The next command of the draft.
    Data,
    /// A request whose reply is known already.
    Answered(Vec<u8>),
    /// A request that the node answers.
    Node(Box<ArgumentsBuffer>),
}

/// How the reply is made from the outcome of a request.
#[derive(Debug)]
pub(crate) enum Pending {
    /// The versions of watched keys.
    Watch {
        /// The client's transaction that this is for: it may have been given up since.
        generation: u64,
        /// The keys, each with its length.
        keys: Vec<u8>,
        /// Those of other groups, which are asked one after the other.
        others: Vec<(u16, Vec<u8>)>,
    },
    /// The group's part of the answer to `EXEC`.
    Exec {
        items: Vec<Item>,
        /// The transaction had one command, which was sent by itself.
        alone: bool,
    },
    /// A reply that replaces the outcome's, unless that is null or an error.
    Instead(Vec<u8>),
    /// How many replicas have the client's writes (`WAITAOF`). An answer before this moment comes when the writes are committed, so
    /// that their leader's disk has them, too.
    Durable { committed_until_us: u64 },
    /// A step of `CLUSTERSCAN`, whose cursor has another form than that of `SCAN`.
    ClusterScan,
    /// How Redis would store a value, and the value as `DUMP` returns it (`DEBUG OBJECT`).
    Described,
    /// A copy of the group, whose name this is. The outcome has the group's version.
    Copy(String, Option<TransactionId>),
}

impl Session {
    /// Whether requests are queued, after `MULTI`.
    #[inline]
    pub(crate) fn is_gathering(&self) -> bool {
        self.transaction.as_ref().is_some_and(|gathered| gathered.is_open)
    }

    /// Whether keys are watched, or about to be.
    pub(crate) fn is_watching(&self) -> bool {
        self.versions_awaited > 0 || self.transaction.as_ref().is_some_and(|it| !it.watched.is_empty())
    }

    /// The number of queued requests; `None` outside of a transaction.
    pub(crate) fn queued(&self) -> Option<usize> {
        self.transaction.as_ref().filter(|gathered| gathered.is_open).map(|gathered| gathered.items.len())
    }

    /// The number of the client's current transaction.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Marks the transaction as broken, after a request that was not understood or was refused: it will not be carried
    /// out.
    pub(crate) fn break_transaction(&mut self) {
        if let Some(gathered) = self.transaction.as_mut().filter(|gathered| gathered.is_open) {
            gathered.is_broken = true;
        }
    }

    /// Forgets what was watched and queued.
    pub(crate) fn end_transaction(&mut self) -> Option<Box<Gathered>> {
        self.generation += 1;
        self.transaction.take()
    }
}

impl Gathered {
    pub(crate) fn bytes(&self) -> usize {
        self.draft.bytes() + self.item_bytes + self.items.len() * ITEM_BYTES
    }

    /// Its approximate memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        const WATCHED_BYTES: usize = 96;
        self.bytes() + 2 * self.watched_bytes + self.watched.len() * WATCHED_BYTES
    }

    /// Takes the versions of watched keys from a reply; false if the reply has another form.
    pub(crate) fn take_versions(&mut self, origin: (u16, u64), keys: &[u8], reply: &[u8]) -> bool {
        let (group, leadership) = origin;
        // Versions of different leaderships of a group cannot be compared with one record.
        self.is_lost |= *self.origins.entry(group).or_insert(leadership) != leadership;
        let (mut keys, mut versions) = (Reader::new(keys), Reader::new(reply));
        let mut version = || match Reply::decode(&mut versions) {
            Ok(Reply::Integer(version)) => Some(version as Version),
            Ok(Reply::Array(_)) => Some(0), // The head.
            _ => None,
        };
        let (Some(_), Some(floor)) = (version(), version()) else { return false };
        while let Ok(key) = keys.bytes() {
            let Some(version) = version() else { return false };
            // A client that watches a key twice wants to know of any change since the first time.
            if !self.watched.contains_key(key) {
                self.watched.insert(key.to_vec(), group);
                self.watched_bytes += key.len();
                self.draft.watch(leadership, Watched { key, version, floor });
            }
        }
        true
    }
}

/// The memory that a queued request takes besides its own bytes, in bytes.
pub(crate) const ITEM_BYTES: usize = 64;

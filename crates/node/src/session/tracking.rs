//! How a client caches what it reads (`CLIENT TRACKING`).

use super::{ClientId, Session};
use std::collections::BTreeSet;

/// The keys for which a client gets invalidations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TrackingMode {
    /// The keys that it has read.
    #[default]
    Reads,
    /// The keys that it has read by a request after `CLIENT CACHING YES` (`OPTIN`).
    OptIn,
    /// The keys that it has read, except by a request after `CLIENT CACHING NO` (`OPTOUT`).
    OptOut,
    /// All keys with its prefixes, read or not (`BCAST`).
    Prefixes,
}

/// What a client has chosen with `CLIENT TRACKING`.
#[derive(Debug, Default)]
pub(crate) struct TrackingChoice {
    pub(crate) mode: TrackingMode,
    /// The client that gets the messages, by its number and by its session; `None`: this one.
    pub(crate) redirect: Option<(u64, ClientId)>,
    /// That client has disconnected.
    pub(crate) is_broken: bool,
    pub(crate) is_noloop: bool,
    /// With [`TrackingMode::Prefixes`]: the prefixes, none of which begins with another.
    pub(crate) prefixes: BTreeSet<Vec<u8>>,
    /// What `CLIENT CACHING` has chosen for the next request, and whether the last request made that choice.
    pub(crate) caching: Option<bool>,
    pub(crate) caching_is_new: bool,
    /// The number of the latest read that the client may cache.
    pub(crate) last_read: Option<u64>,
}

impl TrackingChoice {
    /// Whether the client may cache what the request that begins now reads.
    pub(crate) fn keeps(&self) -> bool {
        match self.mode {
            TrackingMode::Reads | TrackingMode::Prefixes => true,
            TrackingMode::OptIn => self.caching == Some(true),
            TrackingMode::OptOut => self.caching != Some(false),
        }
    }
}

impl Session {
    /// The number of the latest read that the client may cache, if its reply is not written yet.
    pub(crate) fn read_under_way(&self) -> Option<u64> {
        let last = self.tracking.as_ref()?.last_read?;
        self.is_under_way(last).then_some(last)
    }

    /// The number of the client's latest request, if its reply is not written yet.
    pub(crate) fn last_under_way(&self) -> Option<u64> {
        self.slots.len().checked_sub(1).map(|last| self.first + last as u64)
    }

    /// Whether the reply of a request is not written yet.
    pub(crate) fn is_under_way(&self, sequence: u64) -> bool {
        sequence >= self.first
    }
}

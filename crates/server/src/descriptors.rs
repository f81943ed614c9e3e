//! File descriptors: the system limits them per process, and the log must never lack one.
//!
//! The limit is raised as far as the system allows. Part of it is reserved for the files of the log and the values, for
//! peers and for any connection to the peer port; HTTP has a share, and clients have the rest. The system assigns the
//! lowest free number, so a socket whose number is in the reserved part is one too many, of whatever kind it is. The share of
//! HTTP is just below it, and no client's socket may be in there: whatever clients do, `/health` answers.

use std::os::fd::{AsRawFd, RawFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use anyhow::{Result, ensure};

use crate::config::Limits;

/// Reserved descriptors, unless the limit is very low.
const KEPT_BACK: u64 = 256;

/// What a node has open before the first client comes, and afterwards in the numbers below those that are reserved: listeners,
/// the log, a few connections to peers.
const OPEN_AT_START: u64 = 48;

/// With fewer descriptors a node would have none for clients, or for the files of its log.
const LEAST: u64 = 128;

/// The first number that no socket of a kind may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketBound(RawFd);

/// The bounds for the sockets of both kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketBounds {
    pub(crate) clients: SocketBound,
    pub(crate) http: SocketBound,
}

impl SocketBound {
    /// Whether a socket occupies a reserved descriptor.
    pub(crate) fn is_passed(self, socket: &impl AsRawFd) -> bool {
        socket.as_raw_fd() >= self.0
    }
}

/// Raises the limit of this process as far as wanted and possible, and lowers the limits on connections to fit. Logs the
/// result.
///
/// # Errors
/// There are too few for a node.
pub(crate) fn share(limits: &mut Limits) -> Result<SocketBounds> {
    let wanted = (limits.connections_max + limits.http_connections_max) as u64 + KEPT_BACK + OPEN_AT_START;
    let present = getrlimit(Resource::Nofile);
    let mut have = present.current.unwrap_or(wanted);
    if have < wanted {
        let possible = present.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let raised =
            setrlimit(Resource::Nofile, Rlimit { current: Some(possible), maximum: present.maximum });
        have = if raised.is_ok() { possible } else { have };
    }
    ensure!(
        have >= LEAST,
        "this process may have {have} file descriptors, and a node needs at least {LEAST}, {wanted} for all its connections: \
         raise the limit (`ulimit -n`, LimitNOFILE)"
    );
    let before = limits.connections_max;
    let bounds = divide(limits, have);
    if limits.connections_max < before {
        tracing::warn!(
            "this process may have {have} file descriptors: connections_max is {} instead of {before}, \
             http_connections_max is {}; `ulimit -n {wanted}` would allow all",
            limits.connections_max,
            limits.http_connections_max
        );
    } else {
        tracing::info!(
            "this process may have {have} file descriptors, enough for connections_max = {before}"
        );
    }
    Ok(bounds)
}

/// Divides `have` descriptors.
fn divide(limits: &mut Limits, have: u64) -> SocketBounds {
    let for_sockets = have - KEPT_BACK.min(have / 4);
    let http = (limits.http_connections_max as u64).min(have / 8).max(1);
    let for_clients = for_sockets.saturating_sub(http);
    let clients = (limits.connections_max as u64).min(for_clients.saturating_sub(OPEN_AT_START)).max(1);
    limits.http_connections_max = http as usize;
    limits.connections_max = clients as usize;
    let bound = |number: u64| SocketBound(RawFd::try_from(number).unwrap_or(RawFd::MAX));
    SocketBounds { clients: bound(for_clients), http: bound(for_sockets) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_the_descriptors_that_are_not_reserved() {
        let divided = |have: u64| {
            let mut limits = Limits::default();
            let bounds = divide(&mut limits, have);
            (limits.connections_max, limits.http_connections_max, bounds.clients.0, bounds.http.0)
        };
        assert_eq!(divided(20_000), (10_000, 1000, 18_744, 19_744));
        assert_eq!(divided(4096), (3280, 512, 3328, 3840));
        assert_eq!(divided(256), (112, 32, 160, 192));
        assert_eq!(divided(LEAST), (32, 16, 80, 96));
    }
}

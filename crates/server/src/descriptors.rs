//! File descriptors: the system limits them per process, and the log must never lack one.
//!
//! The limit is raised as far as the system allows. Part of it is reserved for the files of the log and the values, for
//! peers and for any connection to the peer port; HTTP has a share, and clients have the rest. The system assigns the
//! lowest free number, so a socket whose number is in the reserved part is one too many, of whatever kind it is.

use std::os::fd::{AsRawFd, RawFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Limits;

/// Reserved descriptors, unless the limit is very low.
const KEPT_BACK: u64 = 256;

/// The first number that no client's socket may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketBound(RawFd);

impl SocketBound {
    /// Whether a socket occupies a reserved descriptor.
    pub(crate) fn is_passed(self, socket: &impl AsRawFd) -> bool {
        socket.as_raw_fd() >= self.0
    }
}

/// Raises the limit of this process as far as wanted and possible, and lowers the limits on connections to fit. Logs the
/// result.
pub(crate) fn share(limits: &mut Limits) -> SocketBound {
    let wanted = (limits.connections_max + limits.http_connections_max) as u64 + KEPT_BACK;
    let present = getrlimit(Resource::Nofile);
    let mut have = present.current.unwrap_or(wanted);
    if have < wanted {
        let possible = present.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let raised =
            setrlimit(Resource::Nofile, Rlimit { current: Some(possible), maximum: present.maximum });
        have = if raised.is_ok() { possible } else { have };
    }
    let before = limits.connections_max;
    let bound = divide(limits, have);
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
    bound
}

/// Divides `have` descriptors.
fn divide(limits: &mut Limits, have: u64) -> SocketBound {
    let for_sockets = have - KEPT_BACK.min(have / 4);
    let http = (limits.http_connections_max as u64).min(have / 8).max(1);
    let clients = (limits.connections_max as u64).min(for_sockets.saturating_sub(http)).max(1);
    limits.http_connections_max = http as usize;
    limits.connections_max = clients as usize;
    SocketBound(RawFd::try_from(for_sockets).unwrap_or(RawFd::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_the_descriptors_that_are_not_reserved() {
        let divided = |have: u64| {
            let mut limits = Limits::default();
            let bound = divide(&mut limits, have);
            (limits.connections_max, limits.http_connections_max, bound.0)
        };
        assert_eq!(divided(20_000), (10_000, 1000, 19_744));
        assert_eq!(divided(4096), (3328, 512, 3840));
        assert_eq!(divided(256), (160, 32, 192));
    }
}

//! What the parts of the worker share during a turn.

use crate::worker::Clock;

/// Tokens below this are the worker's own; from here on they are connections of peers.
pub(crate) const PEER_TOKENS: usize = 16;

/// Tokens from here on are connections of clients.
pub(crate) const CLIENT_TOKENS: usize = 1 << 16;

/// What one turn works with.
pub(crate) type Turn<'a> = driver::Turn<'a, Clock>;

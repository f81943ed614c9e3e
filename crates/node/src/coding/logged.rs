//! Values for which the log was chosen: the time that they take is compared with the prediction.
//!
//! Such a write measures nothing of the network. But one that takes much longer than predicted shows that the
//! estimates no longer hold, and then the next value is dispersed to measure again.

use super::{Coding, Operation};
use crate::collections::slab::Handle;
use crate::context::Context;
use crate::session::ClientId;
use crate::session::origin::Asked;
use crate::session::origin::Origin;
use kv::Command;
use protocol::{Request, Result as Outcome, Ticket};

/// Any write may occasionally take a little longer: up to half as long again as predicted, plus this much, shows
/// nothing.
const SLACK_US: u64 = 3_000;

/// A write under way through the log.
#[derive(Debug)]
pub(super) struct Logged {
    client: Ticket,
    group: u16,
    begun_us: u64,
    predicted_us: u64,
}

/// Whether a write took so long that the estimates behind its prediction cannot hold.
fn is_unexpected(took_us: u64, predicted_us: u64) -> bool {
    took_us > predicted_us + predicted_us / 2 + SLACK_US
}

impl Coding {
    /// Has a client's `SET` ordered unchanged.
    pub(super) fn log_value(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        group: u16,
        wants_version: bool,
        command: &Command<'_>,
        (deadline_us, predicted_us): (u64, u64),
    ) {
        let Some(session) = cx.clients.sessions.get_mut(client) else { return };
        let follows = session.is_waiting();
        let client = session.begin(wants_version);
        let logged = Logged { client, group, begun_us: cx.now.monotonic_us, predicted_us };
        let handle = self.operations.insert(|_| Operation::Log(logged));
        let asked = Asked {
            ticket: Origin::Coding(handle).ticket(0),
            follows,
            seen: u64::MAX,
            deadline_us,
            hops: 0,
            leadership: 0,
        };
        cx.submit(group, asked, &Request::Command(command));
    }

    /// Takes the group's answer.
    pub(super) fn logged_answered(
        &mut self,
        cx: &mut Context,
        handle: Handle,
        result: Outcome,
        reply: &[u8],
    ) {
        let Some(Operation::Log(logged)) = self.operations.remove(handle) else { return };
        let now_us = cx.now.monotonic_us;
        let took_us = now_us.saturating_sub(logged.begun_us);
        if is_unexpected(took_us, logged.predicted_us) {
            self.choice.estimates.doubt(now_us);
        }
        cx.complete(logged.client, logged.group, result, reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_unexpected_if_it_takes_half_as_long_again_but_not_a_moment_more() {
        assert!(!is_unexpected(3_500, 500), "a sync that took a moment longer");
        assert!(!is_unexpected(60_000, 40_000));
        assert!(is_unexpected(64_000, 40_000), "a slow network whose links were taken to be fast");
    }
}

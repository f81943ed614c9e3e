//! Asking: this node's requests for changes that the control leader has not answered yet.

use super::change::Change;
use super::message::Message;
use super::{Answer, ChangeError, Effects, Refusal, Timing};
use protocol::{NodeId, Now};
use std::collections::BTreeMap;

/// A change that has no answer yet.
#[derive(Debug)]
struct Open {
    request: u64,
    change: Vec<u8>,
    deadline_us: u64,
    send_at_us: u64,
    /// How many times it was sent.
    times_sent: u32,
}

/// Changes in the order in which they were requested.
#[derive(Debug, Default)]
pub(super) struct Asking {
    open: BTreeMap<u64, Open>,
    last: u64,
}

impl Asking {
    /// Adds a change.
    pub(super) fn ask(
        &mut self,
        now: Now,
        timing: &Timing,
        request: u64,
        change: &Change,
        out: &mut Effects,
    ) {
        const OPEN_MAX: usize = 10_000;
        if self.open.len() >= OPEN_MAX {
            let why = "too many changes wait for the control group; nothing was done, try again";
            return out.answers.push(Answer::refused(request, why));
        }
        let change =
            serde_json::to_vec(change).expect("a change is made of numbers, strings, lists and maps");
        if change.len() > super::message::CHANGE_BYTES_MAX {
            return out.answers.push(Answer::refused(request, "this change is too long"));
        }
        self.last += 1;
        let deadline_us = now.monotonic_us + timing.answer_ms * 1000;
        let open = Open { request, change, deadline_us, send_at_us: now.monotonic_us, times_sent: 0 };
        self.open.insert(self.last, open);
    }

    /// Sends the control nodes what is due, repeats what was not answered, and ends what has waited too long. Returns
    /// the changes that this node itself has to make as the control leader.
    pub(super) fn send(
        &mut self,
        now: Now,
        timing: &Timing,
        run: u64,
        to: &[NodeId],
        out: &mut Effects,
    ) -> Vec<(u64, Vec<u8>)> {
        let mut here = Vec::new();
        self.open.retain(|id, open| {
            if now.monotonic_us >= open.deadline_us {
                let error = ChangeError::Unknown { seconds: timing.answer_ms / 1000 };
                out.answers.push(Answer { request: open.request, result: Err(error) });
                return false;
            }
            if now.monotonic_us >= open.send_at_us {
                open.send_at_us = now.monotonic_us + timing.renew_ms * 1000;
                out.send(to.iter().copied(), &Message::Ask { run, id: *id, change: &open.change });
                here.push((*id, open.change.clone()));
                open.times_sent += 1;
            }
            true
        });
        here
    }

    /// Takes the outcome of a change. A second answer is ignored.
    pub(super) fn answered(&mut self, id: u64, result: Result<u64, Refusal>, out: &mut Effects) {
        let Some(open) = self.open.remove(&id) else { return };
        // A leader that died may have made the change before it could answer, and the repeated request was refused
        // because of that.
        let is_doubtful = open.times_sent > 1;
        let result = result.map_err(|why| ChangeError::Refused { why, is_doubtful });
        out.answers.push(Answer { request: open.request, result });
    }

    pub(super) fn wakeup_us(&self) -> u64 {
        let next = |open: &Open| open.send_at_us.min(open.deadline_us);
        self.open.values().map(next).min().unwrap_or(u64::MAX)
    }
}

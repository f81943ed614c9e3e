//! How HTTP reaches the node: calls come over a bounded channel with a wake-up, answers go back one by one.
//!
//! A call runs as a client of the node's own kind, which is answered in the store's own encoding. Clients are
//! kept for the next call; each has one call at a time, so an answer needs no number.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use mio::Waker;
use node::{ClientId, ClientKind};
use tokio::sync::oneshot;
use wire::resp::ArgumentsBuffer;

use crate::turn::Turn;

/// Most calls that wait for the worker.
const CALLS_MAX: usize = 1024;

/// Most calls taken per turn.
const TURN_CALLS_MAX: usize = 256;

/// Buffers that have grown larger than this are given back.
const RETAINED_BYTES_MAX: usize = 16 << 10;

/// What HTTP asks of the worker.
pub(crate) enum Call {
    /// Run a command; the answer is encoded as [`kv::Reply`]s.
    Command(ArgumentsBuffer, oneshot::Sender<Vec<u8>>),
    /// Whoever waited for an answer does so no longer.
    Abandoned,
    /// How is the node? As JSON.
    Health(oneshot::Sender<serde_json::Value>),
    /// What was counted? As Prometheus text.
    Metrics(oneshot::Sender<String>),
    /// Which keyspaces are there, and where? As JSON.
    Keyspaces(oneshot::Sender<serde_json::Value>),
}

/// HTTP's end.
#[derive(Clone)]
pub(crate) struct Caller {
    calls: SyncSender<Call>,
    waker: Arc<Waker>,
}

impl Caller {
    /// Hands a call to the worker. False when too many wait, or the worker has ended.
    pub(crate) fn call(&self, call: Call) -> bool {
        match self.calls.try_send(call) {
            Ok(()) => self.waker.wake().is_ok(),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

/// The worker's end.
pub(crate) struct Bridge {
    calls: Receiver<Call>,
    /// Who waits for the answer of the client with this index.
    waiting: Vec<Option<(ClientId, oneshot::Sender<Vec<u8>>)>>,
    /// Clients without a call.
    idle: Vec<ClientId>,
    may_hold_more: bool,
    /// Calls so far.
    calls_taken: u64,
}

/// What the bridge leaves to the worker, which knows more.
pub(crate) enum Question {
    /// See [`Call::Health`].
    Health(oneshot::Sender<serde_json::Value>),
    /// See [`Call::Metrics`].
    Metrics(oneshot::Sender<String>),
    /// See [`Call::Keyspaces`].
    Keyspaces(oneshot::Sender<serde_json::Value>),
}

/// A bridge and its way in.
pub(crate) fn bridge(waker: Arc<Waker>) -> (Caller, Bridge) {
    let (sender, calls) = sync_channel(CALLS_MAX);
    (
        Caller { calls: sender, waker },
        Bridge { calls, waiting: Vec::new(), idle: Vec::new(), may_hold_more: false, calls_taken: 0 },
    )
}

impl Bridge {
    /// True when the next turn has work that no event will announce.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.may_hold_more
    }

    /// Starts the calls that have come. Questions are the worker's to answer, who is told how many calls there were so far.
    pub(crate) fn take_calls(
        &mut self,
        turn: &mut Turn<'_>,
        mut answer: impl FnMut(Question, u64, &mut Turn<'_>),
    ) {
        self.may_hold_more = false;
        for _ in 0..TURN_CALLS_MAX {
            let Ok(call) = self.calls.try_recv() else { return };
            self.calls_taken += 1;
            let taken = self.calls_taken;
            turn.has_read();
            match call {
                Call::Command(arguments, sender) => self.start(&arguments, sender, turn),
                Call::Abandoned => self.drop_abandoned(turn),
                Call::Health(sender) => answer(Question::Health(sender), taken, turn),
                Call::Metrics(sender) => answer(Question::Metrics(sender), taken, turn),
                Call::Keyspaces(sender) => answer(Question::Keyspaces(sender), taken, turn),
            }
        }
        self.may_hold_more = true;
    }

    /// Disconnects the clients whose answers nobody waits for: what they wait for is for somebody else.
    fn drop_abandoned(&mut self, turn: &mut Turn<'_>) {
        let waiting = self.waiting.iter_mut();
        for (id, _) in waiting.filter_map(|slot| slot.take_if(|(_, sender)| sender.is_closed())) {
            turn.node.disconnect(id);
        }
    }

    fn start(&mut self, arguments: &ArgumentsBuffer, sender: oneshot::Sender<Vec<u8>>, turn: &mut Turn<'_>) {
        let id = match self.idle.pop() {
            Some(id) if turn.node.output(id).is_some() => Some(id),
            _ => turn.node.connect(ClientKind::Internal),
        };
        let Some(id) = id else {
            let mut reply = kv::ReplyBuffer::new();
            reply.error("BUSY max number of clients reached");
            let _ = sender.send(reply.as_bytes().to_vec());
            return;
        };
        if self.waiting.len() <= id.index() {
            self.waiting.resize_with(id.index() + 1, || None);
        }
        self.waiting[id.index()] = Some((id, sender));
        turn.node.request(id, arguments.as_arguments());
    }

    /// The next call, for whoever answers in the worker's place.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn next_call(&mut self) -> Option<Call> {
        self.calls.try_recv().ok()
    }

    /// Passes on a client's answer, if it is one of this bridge's.
    pub(crate) fn on_ready(&mut self, id: ClientId, turn: &mut Turn<'_>) {
        let Some(slot) = self.waiting.get_mut(id.index()) else { return };
        let Some(output) = turn.node.output(id) else {
            // The node has dropped the client; whoever waits sees its sender go.
            slot.take_if(|(client, _)| *client == id);
            return;
        };
        if output.bytes.is_empty() {
            return;
        }
        let close = output.close;
        let answer = if output.bytes.capacity() > RETAINED_BYTES_MAX {
            std::mem::take(&mut output.bytes)
        } else {
            let answer = output.bytes.clone();
            output.bytes.clear();
            answer
        };
        if let Some((_, sender)) = slot.take_if(|(client, _)| *client == id) {
            // HTTP may have given up: then nobody wants the answer.
            let _ = sender.send(answer);
        }
        if close {
            turn.node.disconnect(id);
        } else {
            self.idle.push(id);
        }
    }
}

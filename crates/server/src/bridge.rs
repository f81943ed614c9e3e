//! How HTTP reaches the node: calls arrive over a bounded channel with a wake-up, and each carries a channel for its
//! answer.
//!
//! A call runs as an internal client of the node, which is answered in the store's own encoding. Clients are reused for
//! later calls; each has one call at a time, so answers need no number.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use mio::Waker;
use node::{ClientId, ClientKind, Credentials, Health, NotKnown, Tracing};
use tokio::sync::oneshot;
use wire::resp::ArgumentsBuffer;

use crate::answers::{AnswerMemory, NodeReply};
use crate::turn::Turn;

/// The maximum number of calls that wait for the worker.
const CALLS_MAX: usize = 1024;

/// The maximum number of calls taken per turn.
const TURN_CALLS_MAX: usize = 256;

/// How many commands are begun in a turn that clients have used up.
const TURN_COMMANDS: usize = 8;

/// Buffers larger than this are not reused, and wait for room in the memory of answers.
const RETAINED_BYTES_MAX: usize = 16 << 10;

/// How many answers of other lengths it takes to forget how long one was.
const LIKELY_MEMORY: usize = 16;

/// For whom a command is run: a user's name, and the address that the request came from. `None` for callers with the
/// cluster's secret, which may do everything.
pub(crate) type Whom = Option<Arc<(Vec<u8>, IpAddr)>>;

/// The caller of a command, with the context of its request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asker {
    pub(crate) whom: Whom,
    /// The database of the keys that the request names.
    pub(crate) database: u8,
    pub(crate) tracing: Tracing,
}

impl Asker {
    /// Converts to the node's type.
    pub(crate) fn of_node(&self) -> node::Asker<'_> {
        let whom = self.whom.as_ref().map(|whom| (whom.0.as_slice(), whom.1));
        node::Asker { whom, database: self.database, tracing: self.tracing }
    }
}

/// Why a caller is refused.
#[derive(Debug)]
pub(crate) enum LogInError {
    /// No user has these credentials.
    NotKnown(NotKnown),
    /// The user may not do that: the error as clients get it.
    Denied(String),
}

/// How a command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Usual,
    /// Its session ends with it.
    Alone,
    /// It reads a value, and waits until the memory of answers has room for one.
    WithRoom,
}

/// A call from HTTP to the worker.
pub(crate) enum Call {
    /// Runs a command for a caller; the answer is encoded as [`kv::Reply`]s.
    Command { asker: Asker, arguments: ArgumentsBuffer, how: How, sender: oneshot::Sender<NodeReply> },
    /// Checks which user has these credentials, and whether that user may run this command.
    LogIn(Credentials, Option<ArgumentsBuffer>, oneshot::Sender<Result<Vec<u8>, LogInError>>),
    /// The answer of some call is no longer awaited.
    Abandoned,
    /// Asks for the node's health.
    Health(oneshot::Sender<Health>),
    /// Asks for the counters, as Prometheus text.
    Metrics(oneshot::Sender<String>),
    /// Asks for the keyspaces and their placement, as JSON.
    Keyspaces(oneshot::Sender<serde_json::Value>),
}

/// HTTP's end.
#[derive(Clone)]
pub(crate) struct Caller {
    calls: SyncSender<Call>,
    waker: Arc<Waker>,
}

impl Caller {
    /// Hands a call to the worker. Returns false when too many wait, or the worker has ended.
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
    /// The channel for the answer of the client with this index.
    waiting: Vec<Option<Waiting>>,
    /// Clients without a call.
    idle: Vec<ClientId>,
    may_hold_more: bool,
    calls_taken: u64,
    answers: Arc<AnswerMemory>,
    /// What waits for room in the memory of answers: calls that have not begun, and clients with a long reply.
    put_off: VecDeque<PutOff>,
    ready: VecDeque<ClientId>,
    /// Calls with [`How::WithRoom`] that have begun, and have no answer yet: replies of other nodes take a while.
    reads: usize,
    /// How long the answer of such a call is likely to be. No more are begun than have room together.
    likely_bytes: usize,
}

/// A call that has not begun.
struct PutOff {
    asker: Asker,
    arguments: ArgumentsBuffer,
    sender: oneshot::Sender<NodeReply>,
}

/// A client with a call.
struct Waiting {
    client: ClientId,
    sender: oneshot::Sender<NodeReply>,
    how: How,
}

/// Calls that the worker answers itself, because it has the data.
pub(crate) enum Question {
    /// See [`Call::Health`].
    Health(oneshot::Sender<Health>),
    /// See [`Call::Metrics`].
    Metrics(oneshot::Sender<String>),
    /// See [`Call::Keyspaces`].
    Keyspaces(oneshot::Sender<serde_json::Value>),
}

/// Creates a bridge and its caller. Answers may take `answer_bytes_max` bytes of memory.
pub(crate) fn bridge(waker: Arc<Waker>, answer_bytes_max: usize) -> (Caller, Bridge) {
    let (sender, calls) = sync_channel(CALLS_MAX);
    let bridge = Bridge {
        calls,
        waiting: Vec::new(),
        idle: Vec::new(),
        may_hold_more: false,
        calls_taken: 0,
        answers: AnswerMemory::new(answer_bytes_max, Arc::clone(&waker)),
        put_off: VecDeque::new(),
        ready: VecDeque::new(),
        reads: 0,
        likely_bytes: answer_bytes_max / 2,
    };
    (Caller { calls: sender, waker }, bridge)
}

/// Answers [`Call::LogIn`].
pub(crate) fn log_in(
    credentials: &Credentials,
    wants: Option<&ArgumentsBuffer>,
    node: &node::Node,
) -> Result<Vec<u8>, LogInError> {
    let user = node.user_of(credentials).map_err(LogInError::NotKnown)?;
    if let Some(wants) = wants {
        node.may(&user, wants.as_arguments()).map_err(LogInError::Denied)?;
    }
    Ok(user)
}

impl Bridge {
    /// Whether the next turn has work that no event will announce.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.may_hold_more || self.may_start_put_off() || !self.ready.is_empty() && self.answers.has_room()
    }

    /// Whether a call that waits for room may begin: behind long replies that wait for it already, and beside reads that have
    /// begun, if their answers are likely to have room together.
    fn may_start_put_off(&self) -> bool {
        let reads_max = (self.answers.bytes_max() / self.likely_bytes.max(1)).max(1);
        !self.put_off.is_empty() && self.ready.is_empty() && self.answers.has_room() && self.reads < reads_max
    }

    /// Starts the calls that have arrived. Passes questions to `answer`, together with the number of calls so far.
    pub(crate) fn take_calls(
        &mut self,
        turn: &mut Turn<'_>,
        mut answer: impl FnMut(Question, u64, &mut Turn<'_>),
    ) {
        while self.answers.has_room()
            && let Some(client) = self.ready.pop_front()
        {
            self.on_ready(client, turn);
        }
        if !self.put_off.is_empty() {
            let reads = self.waiting.iter().flatten().filter(|waiting| waiting.how == How::WithRoom);
            self.reads = reads.filter(|waiting| turn.node.output(waiting.client).is_some()).count();
        }
        let (mut calls, mut commands) = (0, 0);
        self.may_hold_more = loop {
            if calls == TURN_CALLS_MAX || commands >= TURN_COMMANDS && turn.node.is_spent() {
                break true;
            }
            let Ok(call) = self.calls.try_recv() else { break false };
            calls += 1;
            self.calls_taken += 1;
            let taken = self.calls_taken;
            turn.has_read();
            match call {
                Call::Command { asker, arguments, how: How::WithRoom, sender } => {
                    self.put_off.push_back(PutOff { asker, arguments, sender });
                }
                Call::Command { asker, arguments, how, sender } => {
                    commands += 1;
                    self.start(&asker, &arguments, how, sender, turn);
                }
                Call::LogIn(credentials, wants, sender) => {
                    // HTTP may no longer be waiting.
                    let _ = sender.send(log_in(&credentials, wants.as_ref(), turn.node));
                }
                Call::Abandoned => self.drop_abandoned(turn),
                Call::Health(sender) => answer(Question::Health(sender), taken, turn),
                Call::Metrics(sender) => answer(Question::Metrics(sender), taken, turn),
                Call::Keyspaces(sender) => answer(Question::Keyspaces(sender), taken, turn),
            }
        };
        self.start_put_off(turn);
        self.answers.set_awaited(!(self.put_off.is_empty() && self.ready.is_empty()));
    }

    /// Starts calls that wait for room: one, and more while there is time in this turn.
    fn start_put_off(&mut self, turn: &mut Turn<'_>) {
        while self.may_start_put_off()
            && let Some(PutOff { asker, arguments, sender }) = self.put_off.pop_front()
        {
            if !sender.is_closed() {
                self.start(&asker, &arguments, How::WithRoom, sender, turn);
            }
            if turn.node.is_spent() {
                break;
            }
        }
    }

    /// Counts a reply in the memory of answers.
    pub(crate) fn counted(&self, bytes: Vec<u8>) -> NodeReply {
        NodeReply::new(bytes, &self.answers)
    }

    /// Disconnects the clients whose answers are no longer awaited, so that whatever they wait for, such as a lock,
    /// goes to others.
    fn drop_abandoned(&mut self, turn: &mut Turn<'_>) {
        let waiting = self.waiting.iter_mut();
        for gone in waiting.filter_map(|slot| slot.take_if(|waiting| waiting.sender.is_closed())) {
            turn.node.disconnect(gone.client);
        }
        self.put_off.retain(|call| !call.sender.is_closed());
    }

    fn start(
        &mut self,
        asker: &Asker,
        arguments: &ArgumentsBuffer,
        how: How,
        sender: oneshot::Sender<NodeReply>,
        turn: &mut Turn<'_>,
    ) {
        let id = match self.idle.pop() {
            Some(id) if turn.node.output(id).is_some() => Some(id),
            _ => turn.node.connect(ClientKind::Internal),
        };
        let Some(id) = id else {
            let mut reply = kv::ReplyBuffer::new();
            reply.error("BUSY max number of clients reached");
            let _ = sender.send(self.counted(reply.as_bytes().to_vec()));
            return;
        };
        if self.waiting.len() <= id.index() {
            self.waiting.resize_with(id.index() + 1, || None);
        }
        let before = self.waiting[id.index()].replace(Waiting { client: id, sender, how });
        assert!(before.is_none_or(|before| before.client != id), "an answer would go to another caller");
        self.reads += usize::from(how == How::WithRoom);
        turn.node.request_for(id, asker.of_node(), arguments.as_arguments());
    }

    /// Takes the next call, for a test that answers in the worker's place.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn next_call(&mut self) -> Option<Call> {
        self.calls.try_recv().ok()
    }

    /// Passes on a client's answer, if the client is one of this bridge's.
    pub(crate) fn on_ready(&mut self, id: ClientId, turn: &mut Turn<'_>) {
        let Some(slot) = self.waiting.get_mut(id.index()) else { return };
        let Some(output) = turn.node.output(id) else {
            // The node has dropped the client; dropping the sender shows this to the waiting task.
            let dropped = slot.take_if(|waiting| waiting.client == id);
            let was_read = dropped.is_some_and(|waiting| waiting.how == How::WithRoom);
            self.reads = self.reads.saturating_sub(usize::from(was_read));
            return;
        };
        if output.bytes.is_empty() {
            return;
        }
        let is_long = output.bytes.capacity() > RETAINED_BYTES_MAX;
        if is_long && !self.answers.has_room() {
            if !self.ready.contains(&id) {
                self.ready.push_back(id);
            }
            return;
        }
        let mut close = output.close;
        let answer = if is_long {
            std::mem::take(&mut output.bytes)
        } else {
            let answer = output.bytes.clone();
            output.bytes.clear();
            answer
        };
        if let Some(waiting) = slot.take_if(|waiting| waiting.client == id) {
            close |= waiting.how == How::Alone;
            if waiting.how == How::WithRoom {
                self.reads = self.reads.saturating_sub(1);
                let forgotten = self.likely_bytes - self.likely_bytes / LIKELY_MEMORY;
                self.likely_bytes = forgotten.max(answer.len());
            }
            // HTTP may no longer be waiting for the answer.
            let _ = waiting.sender.send(NodeReply::new(answer, &self.answers));
        }
        if close {
            turn.node.disconnect(id);
        } else {
            self.idle.push(id);
        }
    }
}

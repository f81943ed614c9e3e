//! What the components of a node share: the turn's time, the configuration and map, the groups and links below them,
//! the clients, and the calls that they leave for the node.

pub(crate) mod access;
pub(crate) mod admission;
pub(crate) mod clients;
mod delays;
pub(crate) mod grants;
pub(crate) mod long_replies;
pub(crate) mod measuring;
pub(crate) mod memory;
pub(crate) mod pause;
pub(crate) mod peers;
pub(crate) mod room;
pub(crate) mod routing;
pub(crate) mod status;
mod warming;
pub(crate) mod work;

use crate::collections::slab::Handle;
use crate::context::access::Access;
use crate::context::admission::Admission;
use crate::context::clients::Clients;
use crate::context::memory::Memory;
use crate::context::peers::Peers;
use crate::context::room::Room;
use crate::context::work::Work;
use crate::diagnostics::log::Line;
use crate::diagnostics::spans::Spans;
use crate::disk::journal::Journal;
use crate::groups::Groups;
use crate::messages::envelope::put_request;
use crate::parameters::Parameters;
use crate::session::Subscriptions;
use crate::session::gates::{Gate, Gates};
use crate::session::origin::Asked;
use crate::session::{ClientId, ClientKind};
use cluster::configuration::Configuration;
use cluster::control::{Change, ChangeError, ClusterMap};
use cluster::keyspace::Keyspace;
use commands::users::User;
use info::facts::Counters;
use kv::{Reference, ReplyBuffer, SharedBytes, ValueId};
use protocol::coded::{KeptPiece, StoredPiece};
use protocol::{NodeId, Now, Request, Result as Outcome, Ticket};
use std::collections::VecDeque;
use std::rc::Rc;

/// What the components of a node share. A component gets it as an argument; it holds no component's state.
pub(crate) struct Context {
    pub(crate) configuration: Configuration,
    pub(crate) parameters: Parameters,
    /// The time of this turn.
    pub(crate) now: Now,
    /// How far its Unix time is ahead of its monotonic time, in microseconds.
    pub(crate) ahead_us: i64,
    pub(crate) counters: Counters,
    /// What the tables had counted at the last `CONFIG RESETSTAT`.
    pub(crate) counted_before: kv::Statistics,
    /// The gates that components have closed on the way of all requests.
    pub(crate) gates: Gates,
    pub(crate) log: Vec<Line>,
    pub(crate) memory: Memory,
    pub(crate) work: Work,
    pub(crate) room: Room,
    pub(crate) groups: Groups,
    pub(crate) journal: Journal,
    /// The newest map that was committed.
    pub(crate) map: Rc<ClusterMap>,
    pub(crate) admission: Admission,
    pub(crate) clients: Clients,
    pub(crate) access: Access,
    pub(crate) spans: Spans,
    pub(crate) peers: Peers,
    random: u64,
    calls: VecDeque<Call>,
}

/// A call of a component on the node.
///
/// The node carries it out once the component has returned, in the order of the calls. So no component is entered
/// while a method of it, or of another one, is under way.
#[derive(Debug)]
pub(crate) enum Call {
    /// Hands a request to a group.
    Submit { group: u16, asked: Asked, request: Submitted },
    /// Ends a request.
    Complete { ticket: Ticket, group: u16, result: Outcome, reply: ReplyBuffer },
    /// Ends a request with a long reply.
    CompleteLong { ticket: Ticket, group: u16, result: Outcome, reply: SharedBytes },
    /// Requests a change from the control group, for a client or for this node. The client gets the answer once the
    /// change is in this node's map.
    Change { client: Option<(ClientId, Confirmation)>, change: Box<Change> },
    /// Requests the keyspace of a database from the control group.
    CreateDatabase { number: u8, keyspace: Box<Keyspace> },
    /// Tells the requests that wait for a database why it is not created.
    DatabaseRefused { number: u8, why: ChangeError },
    /// Makes this node follow a new cluster map.
    FollowMap(Rc<ClusterMap>),
    /// Drops all replicas: this node may not take part in anything.
    RetireAll,
    /// Extends the lease of all replicas.
    ExtendLease { until_us: u64 },
    /// Gives a value to the snapshot transfers of a replica that wait for it; `None`: it cannot be read.
    GiveValue { group: u16, reference: Reference, value: Option<SharedBytes> },
    /// Gives a value to the replies and writes that wait for it; `None`: no node has it.
    TakeValue { group: u16, reference: Reference, value: Option<SharedBytes> },
    /// Refuses the nodes that have requested a value on the disk, which is damaged here.
    RefuseValue { group: u16, reference: Reference },
    /// Requests a value from the disk of another node: the fetch with this number.
    FetchValue { number: u64, to: NodeId, group: u16, reference: Reference },
    /// Submits a write again whose values have arrived here.
    Supply(Handle),
    /// Handles a message about fragments that this node has sent to itself.
    Fragments { group: u16, message: Vec<u8> },
    /// Keeps a piece of this node's own fragment of a value that it coordinates.
    KeepPiece { group: u16, piece: KeptPiece },
    /// Carries out what a replica has left outside of its steps: pieces of fragments that were rebuilt.
    Settle { group: u16 },
    /// Reads a piece for a node that has requested it, which may be this one.
    ReadPiece { group: u16, to: NodeId, piece: StoredPiece },
    /// Notes in `ACL LOG` that a script was refused a command.
    NoteDeniedScript { client: ClientId, error: Vec<u8> },
    /// Begins a transaction for a client that waits at keys of several groups: the wait with this number.
    Attempt { number: u64 },
    /// Tells such a wait what became of its transaction.
    Attempted { number: u64, result: Outcome, reply: ReplyBuffer },
    /// Cleans up after a session that has ended.
    EndSession {
        client: ClientId,
        wait: Option<u64>,
        subscriptions: Option<Box<Subscriptions>>,
        tracks: bool,
    },
}

/// The answer to a client whose change was made.
#[derive(Clone, Debug)]
pub(crate) enum Confirmation {
    Ok,
    /// The name of the library that the client has loaded.
    Name(String),
    /// How many users the client has removed.
    Count(usize),
}

/// The request in a call.
#[derive(Debug)]
pub(crate) enum Submitted {
    /// Any request, encoded.
    Encoded(Vec<u8>),
    /// A part of a long command, whose bytes are not copied.
    Part(CommandPart),
}

/// See [`kv::Command::LongPart`].
#[derive(Debug)]
pub(crate) struct CommandPart {
    pub(crate) id: ValueId,
    pub(crate) offset: u32,
    pub(crate) length: u32,
    pub(crate) bytes: SharedBytes,
}

impl Context {
    /// The context of a node that starts, with what was read from its log.
    pub(crate) fn new(
        configuration: Configuration,
        now: Now,
        (groups, journal): (Groups, Journal),
        map: Rc<ClusterMap>,
        spans: Spans,
    ) -> Context {
        let mut gates = Gates::default();
        gates.set(Gate::Spans, spans.is_on());
        Context {
            parameters: Parameters::new(&configuration),
            now,
            ahead_us: 0,
            counters: Counters::default(),
            counted_before: kv::Statistics::default(),
            gates,
            log: Vec::new(),
            memory: Memory::new(configuration.memory_max),
            work: Work::default(),
            room: Room::default(),
            groups,
            journal,
            map,
            admission: Admission::default(),
            clients: Clients::new(),
            access: Access::new(&configuration),
            spans,
            peers: Peers::default(),
            random: configuration.seed,
            calls: VecDeque::new(),
            configuration,
        }
    }

    /// The user of a client that has not authenticated yet; `None`: the client has to authenticate.
    pub(crate) fn first_user(&self, kind: &ClientKind) -> Option<Rc<User>> {
        let ClientKind::Resp { tls, .. } = kind else { return None };
        let shown = tls.as_ref().and_then(|tls| tls.certificate_name.as_deref());
        let counts = self.configuration.process.tls.as_ref().is_some_and(|tls| tls.certificates_name_users);
        let named =
            shown.filter(|_| counts).and_then(|name| self.access.users().by_certificate(name)).cloned();
        named.or_else(|| self.access.users().at_first())
    }

    /// Has the node hand a request to a group.
    pub(crate) fn submit(&mut self, group: u16, asked: Asked, request: &Request<'_>) {
        let request = Submitted::Encoded(encoded(request));
        self.calls.push_back(Call::Submit { group, asked, request });
    }

    /// Has the node hand a part of a long command to a group.
    pub(crate) fn submit_part(&mut self, group: u16, asked: Asked, part: CommandPart) {
        self.calls.push_back(Call::Submit { group, asked, request: Submitted::Part(part) });
    }

    /// Has the node end a request.
    pub(crate) fn complete(&mut self, ticket: Ticket, group: u16, result: Outcome, reply: &[u8]) {
        let mut copy = ReplyBuffer::new();
        copy.extend_encoded(reply);
        self.complete_with(ticket, group, result, copy);
    }

    /// Has the node end a request with a reply that was made for it, long or not.
    pub(crate) fn complete_with(&mut self, ticket: Ticket, group: u16, result: Outcome, reply: ReplyBuffer) {
        self.calls.push_back(Call::Complete { ticket, group, result, reply });
    }

    /// Has the node end a request with an error.
    pub(crate) fn complete_with_error(&mut self, ticket: Ticket, group: u16, result: Outcome, error: &str) {
        let mut reply = ReplyBuffer::new();
        reply.error(error);
        self.complete_with(ticket, group, result, reply);
    }

    /// Has the node carry out a call.
    pub(crate) fn call(&mut self, call: Call) {
        self.calls.push_back(call);
    }

    /// Takes the next call to be carried out.
    #[inline]
    pub(crate) fn next_call(&mut self) -> Option<Call> {
        self.calls.pop_front()
    }

    /// Whether no call waits to be carried out.
    #[inline]
    pub(crate) fn has_no_calls(&self) -> bool {
        self.calls.is_empty()
    }
}

fn encoded(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_request(request, &mut bytes);
    bytes
}

//! A client's request, from its arguments to the component or the group that it concerns.

use super::submitting::Wanted;
use super::{Node, facts, report};
use crate::context::measuring::{has_secrets, is_secret};
use crate::context::routing::Sent;
use crate::following::Following;
use crate::operators::asking;
use crate::operators::lock_list;
use crate::requests::databases;
use crate::requests::gather::Combine;
use crate::requests::transactions::{self, Answer, Then};
use crate::requests::{self, Admitted, Route, WaitAsked};
use crate::session::gates::Gate;
use crate::session::{ClientId, Item, Pending, Session, SessionReply};
use crate::two_phase::evaluation::ToDatabase;
use crate::two_phase::merging::Work;
use crate::two_phase::moment;
use crate::two_phase::plan::Whole;
use crate::{connections, operators};
use cluster::control::Feature;
use commands::{
    ClientCommand, ClusterCommand, CommandError, Found, Handler, KeyspaceCommand, NodeCommand, NodeRequest,
    ScriptCommand, TransactionCommand,
};
use kv::codec::Malformed;
use kv::{Command, List, ReplyBuffer, Version};
use protocol::{NodeId, Request, Result as Outcome};
use wire::resp::Arguments;

impl Node {
    /// Loads into the processor's cache what is needed by requests whose first argument is a key here. Call it before
    /// the first of several requests is carried out: then the loads overlap.
    pub fn warm<'a>(&self, requests: impl Iterator<Item = Arguments<'a>> + Clone) {
        self.cx.warm(requests);
    }

    /// Takes a whole request of a client. The reply appears in the client's output, now or in a later turn.
    pub fn request(&mut self, client: ClientId, arguments: Arguments<'_>) {
        self.take_request(client, arguments);
        self.carry_out_calls();
        if self.cx.gates.has(Gate::Tracking) {
            Following::end_request(&mut self.cx, client);
        }
        if self.cx.clients.measuring.is_due() {
            self.cx.name_answered(client, arguments);
        }
        if let Some(session) = self.cx.clients.sessions.get_mut(client) {
            if self.cx.parameters.thresholds().is_logging() && session.lacks_arguments() {
                let is_secret = |place| is_secret(arguments, place);
                let is_secret = has_secrets(arguments).then_some(&is_secret as &dyn Fn(usize) -> bool);
                session.keep_arguments(arguments, is_secret);
            }
            self.cx.memory.follow(session);
            self.cx.work.follow(session);
        }
    }

    #[inline(always)]
    fn take_request(&mut self, client: ClientId, arguments: Arguments<'_>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let Node { cx, http_guard, held, scripts, .. } = self;
        match requests::admit(cx, (http_guard, held), scripts, client, arguments) {
            Admitted::Not => {}
            Admitted::Command(found, database) => {
                self.take_command(client, (found, database), arguments, &mut scratch);
            }
            Admitted::Queued(found) => {
                transactions::queue(cx, scripts, client, found, arguments, &mut scratch);
            }
            Admitted::Internal => {
                let sent = requests::internal(cx, client, arguments, &mut scratch);
                self.ask(client, sent.as_ref());
            }
        }
        self.scratch = scratch;
    }

    #[inline]
    fn take_command(
        &mut self,
        client: ClientId,
        (found, database): (Found, u8),
        arguments: Arguments<'_>,
        scratch: &mut Vec<u8>,
    ) {
        let cx = &mut self.cx;
        match found.spec.handler {
            Handler::Data(parse) => match parse(arguments, scratch, &cx.parsed_with(database)) {
                // By reference from here on: a copy would have to wait for the parser's writes.
                Ok(ref command) => match found.spec.wait.and_then(|wait| wait(arguments)) {
                    Some(wait_us) if self.waits.wait_for_elements(cx, client, command, wait_us) => {}
                    _ => self.data_request(client, found, command),
                },
                Err(error) => self.refused_request(client, found, &error, arguments, scratch),
            },
            Handler::Node(command) => {
                self.node_request(client, NodeRequest { command, found, arguments }, scratch);
            }
            Handler::Container => {
                let text = CommandError::WrongArity(found.spec.name).to_string();
                cx.answer(client, |replies| replies.error(&text));
            }
        }
    }

    /// Answers a request whose arguments are wrong. The keys may decide how.
    #[cold]
    #[inline(never)]
    fn refused_request(
        &mut self,
        client: ClientId,
        found: Found,
        error: &CommandError,
        arguments: Arguments<'_>,
        scratch: &mut Vec<u8>,
    ) {
        if let CommandError::OtherDatabase { number, replaces } = *error {
            let (from, to) = (&arguments[1], &arguments[2]);
            let named = databases::named(&self.cx, number.to_string().as_bytes());
            if named.is_ok() && self.held.awaits_database(&mut self.cx, client, arguments, number) {
                return;
            }
            let what = ToDatabase::Copied { replaces };
            let work =
                named.and_then(|to_in| databases::to_database(&self.cx, client, (from, to), to_in, what));
            return self.begin_to_database(client, work);
        }
        let knows_answers = self.cx.map.has(Feature::Answers);
        match error.foreseen(arguments, scratch).filter(|_| knows_answers) {
            Some(command) => self.data_request(client, found, &command),
            None => self.cx.answer(client, |replies| replies.error(&error.to_string())),
        }
    }

    /// Sends a command on keys to their group, and a command on all keys to every group.
    #[inline]
    fn data_request(&mut self, client: ClientId, found: Found, command: &Command<'_>) {
        match requests::route(&mut self.cx, client, found, command) {
            Route::Group(group) => {
                self.send_to_group(client, group, &Request::Command(command), Wanted::default());
            }
            Route::Completed(group, command) => {
                self.send_to_group(client, group, &Request::Command(&command), Wanted::default());
            }
            Route::Several(groups, combine, completed) => {
                let request = Request::Command(completed.as_ref().unwrap_or(command));
                let deadline_us = self.usual_deadline_us();
                self.ask_all(client, &groups, combine, deadline_us, |_, _| request);
            }
            Route::Divided => {
                let database = self.cx.database_of(client);
                let work = Work::of_command(command, |key| database.group_of(key));
                self.begin_work(client, work, None);
            }
            Route::Refused(text) => self.cx.answer(client, |replies| replies.error(&text)),
            Route::Scanned => self.cx.answer(client, |replies| {
                replies.array(2);
                replies.bulk(b"0");
                replies.array(0);
            }),
        }
    }

    /// Sends a command with keys to their group, or has it carried out for several ones.
    fn send_whole(&mut self, client: ClientId, command: &Command<'_>) {
        match self.cx.group_of(client, command) {
            Some(group) => self.ask(client, Some(&Sent::new(group, *command))),
            None => {
                let database = self.cx.database_of(client);
                let work = Work::of_command(command, |key| database.group_of(key));
                self.begin_work(client, work, None);
            }
        }
    }

    /// Begins a transaction for a client that waits at keys of several groups.
    pub(super) fn attempt(&mut self, number: u64) {
        let Node { cx, waits, two_phase, .. } = self;
        let Some(attempt) = waits.attempt(number) else { return };
        let database = cx.groups.router().database(attempt.database);
        let work = Work::of_wish(attempt.wish.as_wish(), attempt.is_again, |key| database.group_of(key));
        let begun = match attempt.only_checks {
            true => two_phase.admit(cx, work).map(drop),
            false => two_phase.attempt(cx, work, attempt.ticket, (number, attempt.since)),
        };
        match begun {
            Ok(()) if attempt.only_checks => waits.admitted(cx, number),
            Ok(()) => {}
            Err(error) => {
                let mut reply = ReplyBuffer::new();
                reply.error(&error);
                waits.attempted(cx, number, Outcome::Refused, reply);
            }
        }
    }

    /// Begins a request over several groups.
    fn begin_work(&mut self, client: ClientId, work: Result<Work, Whole>, pending: Option<Pending>) {
        let reads = match &work {
            Ok(work) if self.cx.gates.has(Gate::Tracking) => work.reads(),
            _ => Vec::new(),
        };
        if let Err(error) = self.two_phase.begin(&mut self.cx, client, work, pending) {
            return self.cx.answer(client, |replies| replies.error(&error));
        }
        let session = self.cx.clients.sessions.get(client);
        if let Some(sequence) = session.and_then(Session::last_under_way) {
            let tracking = &mut self.following.tracking;
            reads.iter().for_each(|(group, keys)| {
                tracking.note_keys(&mut self.cx, client, sequence, *group, keys.iter().map(|key| &**key));
            });
        }
    }

    /// Begins to take a key to another database.
    fn begin_to_database(&mut self, client: ClientId, work: Result<Work, String>) {
        match work {
            Ok(work) => self.begin_work(client, Ok(work), None),
            Err(error) => self.cx.answer(client, |replies| replies.error(&error)),
        }
    }

    /// Hands a command that the node itself answers to the component that it concerns.
    fn node_request(&mut self, client: ClientId, request: NodeRequest<'_>, scratch: &mut Vec<u8>) {
        let NodeRequest { command, found, arguments } = request;
        let cx = &mut self.cx;
        match command {
            NodeCommand::Reset => {
                self.channels.end_subscriptions(cx, client);
                self.following.end_all(cx, client);
                connections::reset(cx, client);
            }
            NodeCommand::Acl(command) => connections::acl(cx, client, command, arguments),
            NodeCommand::Auth => self.auth_guard.auth(cx, client, arguments),
            NodeCommand::Hello => self.auth_guard.hello(cx, client, arguments),
            NodeCommand::Client(ClientCommand::Unblock) => {
                if let Some((wait, with_error)) = connections::unblock(cx, client, arguments) {
                    self.waits.unblock(cx, wait, with_error);
                }
            }
            NodeCommand::Client(
                command @ (ClientCommand::GetRedir
                | ClientCommand::Tracking
                | ClientCommand::TrackingInfo
                | ClientCommand::Caching),
            ) => self.following.command(cx, client, command, arguments),
            NodeCommand::Config(command) => {
                connections::config(cx, client, command, arguments);
                self.following.follow(cx);
            }
            NodeCommand::Keyspace(
                command @ (KeyspaceCommand::Watch | KeyspaceCommand::Unwatch | KeyspaceCommand::Changes),
            ) => self.following.readers.command(cx, client, command, arguments),
            NodeCommand::Keyspace(KeyspaceCommand::Copy) => {
                if let Some(group) = self.following.replicas.ask_to_copy(cx, client, arguments) {
                    // Its version: that of everything that was acknowledged before.
                    let keys = List::build(scratch, []);
                    let sent = Sent { is_fresh: true, ..Sent::new(group, Command::Watch { keys }) };
                    self.ask(client, Some(&sent));
                }
            }
            NodeCommand::Keyspace(command) => operators::keyspace_command(cx, client, command, arguments),
            NodeCommand::Cluster(ClusterCommand::Backup)
                if arguments.len() > 3 && moment::is_moment(&arguments[2]) =>
            {
                self.two_phase.moment(cx, client, arguments);
            }
            NodeCommand::Cluster(command) => operators::cluster_command(cx, client, command, arguments),
            NodeCommand::Info | NodeCommand::Report | NodeCommand::Role | NodeCommand::MemoryStats => {
                self.cx.spend_on_facts();
                let replies = match command {
                    NodeCommand::Info => facts::info(self, arguments),
                    NodeCommand::Report => report::reply(self),
                    NodeCommand::Role => facts::role(self),
                    _ => facts::memory_stats(self),
                };
                self.cx.answer(client, |out| out.extend_encoded(replies.as_bytes()));
            }
            NodeCommand::Events => {
                let mut replies = ReplyBuffer::new();
                self.recent.write(&mut replies);
                cx.answer(client, |out| out.extend_encoded(replies.as_bytes()));
            }
            NodeCommand::History => {
                let mut replies = ReplyBuffer::new();
                self.history.write(cx, self.started, &arguments[2], &mut replies);
                cx.answer(client, |out| out.extend_encoded(replies.as_bytes()));
            }
            NodeCommand::Ask => {
                if let Some(request) = self.asking.ask(cx, client, arguments) {
                    self.node_request(client, request, scratch);
                }
            }
            NodeCommand::HotKeys(command) => {
                let used = (self.usage.user_us, self.usage.system_us);
                connections::hot_keys(cx, client, command, arguments, used);
            }
            NodeCommand::Select => databases::select(cx, client, &arguments[1]),
            NodeCommand::Move => {
                let work = databases::moved(cx, client, arguments);
                self.begin_to_database(client, work);
            }
            NodeCommand::LockList => lock_list::list(cx, client, arguments),
            NodeCommand::Transaction(command) => {
                self.transaction_command(client, command, arguments, scratch);
            }
            NodeCommand::Script(ScriptCommand::Run(how)) => {
                let Some(command) = self.scripts.run(cx, client, how, arguments, scratch) else { return };
                match command.key_count() {
                    0 => {
                        let group = cx.database_of(client).default_group();
                        self.ask(client, Some(&Sent::new(group, Command::Script(command))));
                    }
                    _ => self.send_whole(client, &Command::Script(command)),
                }
            }
            NodeCommand::Script(command) => self.scripts.command(cx, client, command, arguments),
            NodeCommand::Function(command) => self.scripts.function_command(cx, client, command, arguments),
            NodeCommand::Wait | NodeCommand::WaitDurable => self.wait(client, command, arguments),
            NodeCommand::Lock(verb) => {
                let sent = self.waits.request(cx, client, verb, arguments);
                self.ask(client, sent.as_ref());
            }
            NodeCommand::Channel(command) => self.channels.command(cx, client, command, arguments),
            NodeCommand::ObjectRefCount => {
                if let Some(command) = requests::reference_count(cx, client, &arguments[2]) {
                    self.data_request(client, found, &command);
                }
            }
            NodeCommand::ClusterScan => self.cluster_scan(client, found, arguments),
            NodeCommand::DebugObject => {
                if let Some(draft) = connections::debug_object(cx, client, &arguments[2]) {
                    self.data_request(client, found, &Command::Transaction(draft.transaction()));
                }
            }
            NodeCommand::ReplicaConfiguration => self.following.replicas.configure(cx, client, arguments),
            NodeCommand::ReplicaSync => self.following.replicas.begin(cx, client, arguments),
            command => connections::carry_out(cx, client, command, found, arguments),
        }
    }

    /// `CLUSTERSCAN`.
    fn cluster_scan(&mut self, client: ClientId, found: Found, arguments: Arguments<'_>) {
        let routed = match commands::cluster_scan(arguments) {
            Ok(command) => requests::route(&mut self.cx, client, found, &command),
            Err(error) => Route::Refused(error.to_string()),
        };
        let (group, command) = match routed {
            Route::Completed(group, command) => (group, command),
            Route::Several(groups, Combine::Only, Some(command)) => (groups[0], command),
            Route::Refused(text) => return self.cx.answer(client, |replies| replies.error(&text)),
            Route::Scanned => {
                return self.cx.answer(client, |replies| {
                    replies.array(2);
                    replies.bulk(b"0");
                    replies.array(0);
                });
            }
            _ => unreachable!("a scan is routed as one"),
        };
        if let Some(session) = self.cx.clients.sessions.get_mut(client) {
            session.expect(Pending::ClusterScan);
            self.send_to_group(client, group, &Request::Command(&command), Wanted::default());
        }
    }

    /// `WAIT` and `WAITAOF`.
    pub(super) fn wait(&mut self, client: ClientId, command: NodeCommand, arguments: Arguments<'_>) {
        let asked = match command {
            NodeCommand::WaitDurable => requests::wait_durable(&mut self.cx, client, arguments),
            _ => requests::wait(&mut self.cx, client, &arguments[1], &arguments[2]),
        };
        let Some(WaitAsked { groups, count, deadline_us, is_waiting }) = asked else { return };
        if command == NodeCommand::WaitDurable
            && let Some(session) = self.cx.clients.sessions.get_mut(client)
        {
            session.expect(Pending::Durable {
                committed_until_us: if is_waiting { deadline_us } else { u64::MAX },
            });
        }
        let request = move |session: &Session, group| {
            let offset = if is_waiting { Version::MAX } else { session.seen(group) };
            Request::Wait { offset, count }
        };
        if let [group] = groups[..]
            && let Some(session) = self.cx.clients.sessions.get(client)
        {
            let request = request(session, group);
            let wanted = Wanted { deadline_us: Some(deadline_us), ..Wanted::default() };
            return self.send_to_group(client, group, &request, wanted);
        }
        self.ask_all(client, &groups, Combine::Minimum, deadline_us, request);
    }

    fn transaction_command(
        &mut self,
        client: ClientId,
        command: TransactionCommand,
        arguments: Arguments<'_>,
        scratch: &mut Vec<u8>,
    ) {
        match transactions::command(&mut self.cx, client, command, arguments, scratch) {
            None => {}
            Some(Then::Watch(sent)) => self.ask(client, Some(&sent)),
            Some(Then::Send(execution)) => self.ask(client, Some(&execution.sent())),
            Some(Then::Spread(work, pending)) => self.begin_work(client, work, Some(pending)),
            Some(Then::Answer(items)) => {
                // The reply has its place first: what the transaction publishes comes behind it.
                let Some(session) = self.cx.clients.sessions.get_mut(client) else { return };
                let ticket = session.begin(false);
                let replies = self.exec_replies(client, &items, &[]);
                let (done, reply) =
                    (Outcome::Done { version: 0, offset: 0 }, SessionReply::Encoded(replies.as_bytes()));
                self.cx.complete_session(client, ticket.sequence, 0, done, reply);
            }
        }
    }

    /// Makes the answer to `EXEC`: `elements` are the group's replies, one after the other.
    pub(super) fn exec_replies(&mut self, client: ClientId, items: &[Item], elements: &[u8]) -> ReplyBuffer {
        let before_ns = self.cx.work.spent_ns();
        let mut answer = Answer::new(items, elements, self.cx.memory.replies_max());
        while let Some(request) = answer.next_of_node() {
            if answer.is_full() || !self.cx.has_time_left(before_ns, request.command) {
                answer.leave_out();
                continue;
            }
            let before = self.cx.clients.capture(Some(ReplyBuffer::new()));
            self.node_request(client, request, &mut Vec::new());
            answer.take(&self.cx.clients.capture(before).unwrap_or_default());
        }
        answer.end()
    }

    /// Answers another node's request for information about this one.
    pub(super) fn answer_node(&mut self, from: NodeId, id: u64, words: &[u8]) -> Result<(), Malformed> {
        let words = asking::words(words)?;
        let reply = match asking::question(words.as_arguments()) {
            Ok(request) => {
                let before = self.cx.clients.capture(Some(ReplyBuffer::new()));
                self.node_request(ClientId::NONE, request, &mut Vec::new());
                self.cx.clients.capture(before).unwrap_or_default()
            }
            Err(text) => {
                let mut error = ReplyBuffer::new();
                error.error(&text);
                error
            }
        };
        asking::answer(&mut self.cx, from, id, &reply);
        Ok(())
    }

    /// Takes the held requests that may go on, or have waited long enough.
    #[cold]
    pub(super) fn take_held(&mut self) {
        while let Some((client, request)) = self.held.next(&mut self.cx, &mut self.scripts) {
            self.request(client, request.as_arguments());
            self.held.end();
            // The client may have more input, and nothing else would list it as ready.
            self.cx.clients.list(client);
        }
    }

    /// Takes the requests that waited behind transactions of their clients.
    #[cold]
    pub(super) fn take_released(&mut self) {
        for client in self.two_phase.take_released() {
            let session = self.cx.clients.sessions.get_mut(client);
            if let Some(request) = session.and_then(Session::take_held_back) {
                self.request(client, request.as_arguments());
            }
            self.cx.clients.list(client);
        }
    }

    /// Whether [`Node::measure`] should be called, since a command has ended that may have taken long.
    #[inline]
    pub fn is_measuring(&self) -> bool {
        self.cx.clients.measuring.is_due()
    }

    /// Takes the time, in microseconds of the monotonic clock, for the commands that have just ended.
    pub fn measure(&mut self, now_us: u64) {
        self.cx.measure(now_us);
    }
}

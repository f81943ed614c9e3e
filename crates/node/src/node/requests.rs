//! A client's request: which command it is, whether it may run, and which node runs it.

use super::Node;
use super::facts;
use crate::command::{
    self, ClientCommand, CommandError, Context, Handler, KeyspaceCommand, NamedBy, NodeCommand, RunScript,
    ScriptCommand, TransactionCommand,
};
use crate::connections;
use crate::context::measuring::is_secret;
use crate::context::pause::Pause;
use crate::following::Following;
use crate::gather::Combine;
use crate::log::{Level, Line};
use crate::operators;
use crate::session::{ClientId, Pending, Session};
use crate::transactions::{CROSSSLOT, EXEC_HAS_ARGUMENTS};
use crate::waits::{self, LockAsked};
use kv::limits::KEY_BYTES_MAX;
use kv::table::scan_group;
use kv::{Command, Reply, ReplyBuffer, ScriptOptions, Version};
use protocol::Request;
use std::time::Duration;
use wire::resp::Arguments;

/// How often HTTP at the port for Redis clients is logged.
const HTTP_WARNING_EVERY: Duration = Duration::from_secs(60);

/// Whether the first word of a request is HTTP: that of a request line, or of a header line. Redis refuses the same
/// two. A space after the colon is usual, and not needed.
fn is_http(name: &[u8]) -> bool {
    const HOST: &[u8] = b"Host:";
    let is_host = name.get(..HOST.len()).is_some_and(|start| start.eq_ignore_ascii_case(HOST));
    name.eq_ignore_ascii_case(b"POST") || is_host
}

impl Node {
    /// Takes a whole request of a client. The reply appears in the client's output, now or in a later turn.
    pub fn request(&mut self, client: ClientId, arguments: Arguments<'_>) {
        self.take_request(client, arguments);
        self.carry_out_calls();
        if self.following.tracking.is_on() {
            Following::end_request(&mut self.cx, client);
        }
        if self.cx.measuring.is_due() {
            self.cx.name_answered(arguments);
        }
        if let Some(session) = self.cx.clients.sessions.get_mut(client) {
            if self.cx.parameters.thresholds().is_logging() {
                session.keep_arguments(arguments, |place| is_secret(arguments, place));
            }
            self.cx.memory.follow(session);
        }
    }

    /// Whether [`Node::measure`] should be called with the time, since a command has ended that may have taken long.
    #[inline]
    pub fn is_measuring(&self) -> bool {
        self.cx.measuring.is_due()
    }

    /// Takes the time, in microseconds of the monotonic clock, for the commands that have just ended.
    pub fn measure(&mut self, now_us: u64) {
        self.cx.measure(now_us);
    }

    fn take_request(&mut self, client: ClientId, arguments: Arguments<'_>) {
        let Some(session) = self.cx.clients.sessions.get_mut(client) else { return };
        if arguments.is_empty() || session.closing {
            return;
        }
        session.requests += 1;
        session.request_bytes = arguments.iter().map(<[u8]>::len).sum();
        session.active_us = self.cx.now.monotonic_us;
        self.cx.counters.commands += 1;
        if session.is_internal() && arguments[0].starts_with(b"QUORATE.") {
            return self.internal_request(client, arguments);
        }
        let found = match command::find(arguments) {
            Ok(found) => found,
            Err(_) if is_http(&arguments[0]) => return self.refuse_http(client),
            Err(error) => {
                session.last_command = None;
                let is_exec = matches!(error, CommandError::WrongArity("exec"));
                match is_exec {
                    true => drop(session.end_transaction()),
                    false => session.break_transaction(),
                }
                if let Ok(named) = command::named(arguments) {
                    self.cx.clients.statistics.rejected(named.number);
                }
                let text = match is_exec {
                    true => EXEC_HAS_ARGUMENTS.to_owned(),
                    false => error.to_string(),
                };
                return self.cx.answer(client, |replies| replies.error(&text));
            }
        };
        // A refused command is not a call, and has no time.
        session.last_command = None;
        if !session.authenticated && !found.spec.flags.has(command::Flag::NoAuth) {
            self.cx.clients.statistics.rejected(found.number);
            return self.cx.answer(client, |replies| replies.error("NOAUTH Authentication required."));
        }
        if session.subscriptions.is_some()
            && let Some(text) = session.refuses_while_listening(found.spec)
        {
            self.cx.clients.statistics.rejected(found.number);
            return self.cx.answer(client, |replies| replies.error(&text));
        }
        if self.cx.pause.is_on() && self.is_held_back(client, found, arguments) {
            return;
        }
        if self.cx.now.monotonic_us >= self.cx.lease_until_us
            && self.holds_back_call(client, found, arguments)
        {
            return;
        }
        if !self.cx.clients.monitors.is_empty() {
            connections::monitor::show(&mut self.cx, client, found, arguments);
        }
        let Some(session) = self.cx.clients.sessions.get_mut(client) else { return };
        session.last_command = Some(found.number);
        self.cx.clients.statistics.called(found.number);
        if session.is_gathering() && !ends_or_escapes_a_transaction(found.spec.handler) {
            return self.queue(client, found, arguments);
        }
        match found.spec.handler {
            Handler::Data(parse) => {
                let context = Context {
                    now_ms: self.cx.now.unix_ms,
                    value_bytes_max: self.cx.parameters.value_bytes_max(),
                    stream_node_entries: self.cx.parameters.stream_node_entries(),
                    encodings: self.cx.parameters.encodings(),
                };
                let mut scratch = std::mem::take(&mut self.scratch);
                match parse(arguments, &mut scratch, &context) {
                    // By reference from here on: a copy would wait for what the parser has just written.
                    Ok(ref command) => match found.spec.wait.and_then(|wait| wait(arguments)) {
                        Some(wait_us) => self.waiting_request(client, command, wait_us),
                        None => self.data_request(client, command),
                    },
                    Err(error) => {
                        let text = error.to_string();
                        self.cx.answer(client, |replies| replies.error(&text));
                    }
                }
                self.scratch = scratch;
            }
            Handler::Node(command) => self.node_request(client, command, found, arguments),
            Handler::Container => {
                let text = command::CommandError::WrongArity(found.spec.name).to_string();
                self.cx.answer(client, |replies| replies.error(&text));
            }
        }
    }

    /// Closes the connection of a client that spoke HTTP, before its body is looked at. A web page can make the browser
    /// of a user who may reach this port send it HTTP, with a body made of commands.
    fn refuse_http(&mut self, client: ClientId) {
        let now_us = self.cx.now.monotonic_us;
        self.cx.counters.http_requests_refused += 1;
        if now_us >= self.http_warning_due_us {
            self.http_warning_due_us = now_us + HTTP_WARNING_EVERY.as_micros() as u64;
            let address = self.cx.clients.sessions.get(client).and_then(Session::ip_address);
            let address = address.map_or("?".to_owned(), |address| address.to_string());
            let text = format!(
                "possible attack: {address} has sent HTTP to the port for Redis clients, perhaps a browser for some page; \
                 the connection is closed"
            );
            self.cx.log.push(Line { level: Level::Warning, text });
        }
        self.cx.kill(client);
    }

    /// Sends a command on keys to their group, and a command on all keys to every group.
    #[inline]
    fn data_request(&mut self, client: ClientId, command: &Command<'_>) {
        if let Some(text) = self.refuses_fence(command) {
            return self.cx.answer(client, |replies| replies.error(&text));
        }
        if let [only] = self.cx.groups.ids() {
            let only = *only;
            let request = match *command {
                Command::RandomKey { .. } => Request::Command(Command::RandomKey { draw: self.cx.draw() }),
                Command::Scan { position, count, pattern, kind, .. } => {
                    Request::Command(Command::Scan { position, count, pattern, kind, group: only, next: 0 })
                }
                command => Request::Command(command),
            };
            return self.ask(client, only, false, &request);
        }
        let combine = match *command {
            Command::Size => Some(Combine::Sum),
            Command::Clear => Some(Combine::AllOk),
            Command::Keys { .. } => Some(Combine::Concatenate),
            Command::RandomKey { .. } => Some(Combine::AnyOf(self.cx.draw())),
            _ => None,
        };
        // Refuse before any other keyspace is emptied.
        if *command == Command::Clear {
            let refusal = self.cx.groups.iter().find_map(|(_, group)| group.keyspace.refuses_clear());
            if let Some(text) = refusal {
                return self.cx.answer(client, |replies| replies.error(&text));
            }
        }
        if let Some(combine) = combine {
            let command = match *command {
                Command::RandomKey { .. } => Command::RandomKey { draw: self.cx.draw() },
                command => command,
            };
            let all = self.cx.groups.ids().to_vec();
            let deadline_us = self.cx.now.monotonic_us + self.cx.configuration.command_timeout_ms * 1000;
            return self.ask_all(client, &all, combine, deadline_us, |_, _| Request::Command(command));
        }
        match *command {
            Command::Scan { position, count, pattern, kind, .. } => {
                let at = scan_group(position);
                let Some(group) = self.cx.groups.from(at) else {
                    // The scan's group was the last one, and no longer exists.
                    return self.cx.answer(client, |replies| {
                        replies.array(2);
                        replies.bulk(b"0");
                        replies.array(0);
                    });
                };
                let position = if group == at { position } else { u64::from(group) };
                let next = self.cx.groups.from(group + 1).unwrap_or(0);
                let command = Command::Scan { position, count, pattern, kind, group, next };
                self.ask(client, group, false, &Request::Command(command));
            }
            command => match self.cx.group_of(&command) {
                Some(group) => self.ask(client, group, false, &Request::Command(command)),
                None => {
                    self.cx.answer(client, |replies| replies.error(CROSSSLOT));
                }
            },
        }
    }

    /// Sends a command that waits to the group of its keys, and has the client wait.
    fn waiting_request(&mut self, client: ClientId, command: &Command<'_>, wait_us: u64) {
        let Some(group) = self.cx.group_of(command) else {
            return self.cx.answer(client, |replies| replies.error(CROSSSLOT));
        };
        if !self.cx.groups[group].keyspace.has_leader() {
            // Registers refuse it, and say why.
            return self.data_request(client, command);
        }
        if let Err(error) = self.waits.wait_for_elements(&mut self.cx, client, group, command, wait_us) {
            self.cx.answer(client, |replies| replies.error(&error));
        }
    }

    /// `CLIENT UNBLOCK`.
    fn unblock(&mut self, client: ClientId, arguments: Arguments<'_>) {
        match connections::to_unblock(&self.cx, arguments) {
            Ok(Some((wait, with_error))) => {
                self.waits.unblock(&mut self.cx, wait, with_error);
                self.cx.answer(client, |replies| replies.integer(1));
            }
            Ok(None) => self.cx.answer(client, |replies| replies.integer(0)),
            Err(error) => self.cx.answer(client, |replies| replies.error(error)),
        }
    }

    /// Whether a pause holds a request back.
    #[cold]
    fn is_held_back(&mut self, client: ClientId, found: command::Found, arguments: Arguments<'_>) -> bool {
        let is_writing_script = match found.spec.handler {
            Handler::Node(NodeCommand::Script(ScriptCommand::Run(how))) => {
                self.scripts.may_write(&self.cx, how, &arguments[1])
            }
            _ => false,
        };
        connections::pause::hold_back(&mut self.cx, client, found, arguments, is_writing_script)
    }

    /// Whether a call of a function waits until this node is sure to know the newest functions: while the control group gets
    /// another leader, for as long as a command may wait for the leader of its group.
    #[cold]
    fn holds_back_call(&mut self, client: ClientId, found: command::Found, arguments: Arguments<'_>) -> bool {
        let calls = matches!(
            found.spec.handler,
            Handler::Node(NodeCommand::Script(ScriptCommand::Run(how))) if how.named_by == NamedBy::Function
        );
        if !calls || self.gives_up_calls || self.scripts.knows_functions(&self.cx) {
            return false;
        }
        let Some(session) = self.cx.clients.sessions.get_mut(client) else { return false };
        if session.is_internal() || session.is_gathering() {
            return false;
        }
        session.hold_back(arguments);
        let until_us = self.cx.now.monotonic_us + self.cx.configuration.command_timeout_ms * 1000;
        self.held_calls.push_back((client, until_us));
        true
    }

    /// Takes the calls of functions that have waited, or waited long enough.
    #[cold]
    pub(crate) fn tend_held_calls(&mut self) {
        while let Some((client, until_us)) = self.held_calls.front().copied() {
            let is_overdue = !self.scripts.knows_functions(&self.cx);
            if is_overdue && self.cx.now.monotonic_us < until_us {
                return;
            }
            self.held_calls.pop_front();
            let Some(session) = self.cx.clients.sessions.get_mut(client) else { continue };
            let Some(request) = session.held_back.take() else { continue };
            self.gives_up_calls = is_overdue;
            self.request(client, request.as_arguments());
            self.gives_up_calls = false;
            // It may have more input, and nothing else would say so.
            self.cx.clients.list(client);
        }
    }

    /// Takes what a pause has held back, when it is over.
    pub(crate) fn end_pause(&mut self) {
        if self.cx.pause.due_us() > self.cx.now.monotonic_us {
            return;
        }
        self.cx.pause = Pause::default();
        let sessions = self.cx.clients.sessions.iter();
        let mut held: Vec<(u64, ClientId)> = sessions
            .filter(|(_, session)| session.held_back.is_some())
            .map(|(id, session)| (session.arrival, id))
            .collect();
        held.sort_unstable();
        for (_, client) in held {
            let Some(session) = self.cx.clients.sessions.get_mut(client) else { continue };
            let Some(request) = session.held_back.take() else { continue };
            self.request(client, request.as_arguments());
            // It may have more input, and nothing else would say so.
            self.cx.clients.list(client);
        }
    }

    /// `OBJECT REFCOUNT`: the group is only asked whether there is a value.
    fn reference_count(&mut self, client: ClientId, key: &[u8]) {
        if key.len() > KEY_BYTES_MAX {
            let text = command::CommandError::KeyTooLong(key.len()).to_string();
            return self.cx.answer(client, |replies| replies.error(&text));
        }
        let mut instead = ReplyBuffer::new();
        instead.integer(1);
        if let Some(session) = self.cx.clients.sessions.get_mut(client) {
            session.expect(Pending::Instead(instead.take()));
        }
        self.data_request(client, &Command::Encoding { key, limits: self.cx.parameters.encodings() });
    }

    /// Sends a script to the group of its keys.
    fn run_script(&mut self, client: ClientId, how: RunScript, arguments: Arguments<'_>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        match self.scripts.script_of(&self.cx, how, arguments, false, &mut scratch) {
            Ok(script) => {
                let tells_reads =
                    self.cx.clients.sessions.get(client).is_some_and(|session| session.tracking.is_some());
                let script = script.with_options(ScriptOptions { tells_reads, ..script.options() });
                let command = Command::Script(script);
                let group = match script.key_count() {
                    0 => Some(self.cx.router.default_group()),
                    _ => self.cx.group_of(&command),
                };
                match group {
                    Some(group) => self.ask(client, group, false, &Request::Command(command)),
                    None => self.cx.answer(client, |replies| replies.error(CROSSSLOT)),
                }
            }
            Err(error) => self.cx.answer(client, |replies| replies.push(Reply::Error(&error))),
        }
        self.scratch = scratch;
    }

    pub(crate) fn node_request(
        &mut self,
        client: ClientId,
        command: NodeCommand,
        found: command::Found,
        arguments: Arguments<'_>,
    ) {
        match command {
            NodeCommand::Ping
                if self.cx.clients.sessions.get(client).is_some_and(Session::is_listening_in_resp2) =>
            {
                self.cx.answer(client, |replies| {
                    replies.array(2);
                    replies.bulk(b"pong");
                    replies.bulk(arguments.get(1).unwrap_or_default());
                });
            }
            NodeCommand::Ping => {
                self.cx.answer(client, |replies| match (arguments.get(1), arguments.get(2)) {
                    (_, Some(_)) => replies.error(&command::CommandError::WrongArity("ping").to_string()),
                    (Some(text), None) => replies.bulk(text),
                    (None, None) => replies.push(Reply::Status(b"PONG")),
                })
            }
            NodeCommand::Echo => self.cx.answer(client, |replies| replies.bulk(&arguments[1])),
            NodeCommand::Quit => {
                self.cx.answer(client, ReplyBuffer::ok);
                self.close_after_replies(client);
            }
            NodeCommand::Reset => {
                let open = self.cx.configuration.password.is_none();
                self.channels.end_subscriptions(&mut self.cx, client);
                self.following.end_all(&mut self.cx, client);
                self.follow_changes();
                connections::monitor::end(&mut self.cx, client);
                if let Some(session) = self.cx.clients.sessions.get_mut(client) {
                    session.reset(open);
                }
                self.cx.answer(client, |replies| replies.push(Reply::Status(b"RESET")));
            }
            NodeCommand::Select => connections::select(&mut self.cx, client, &arguments[1]),
            NodeCommand::ReadOnly => self.cx.answer(client, ReplyBuffer::ok),
            NodeCommand::Auth => {
                let (user, password) = match arguments.len() {
                    2 => (&b"default"[..], &arguments[1]),
                    3 => (&arguments[1], &arguments[2]),
                    _ => return self.cx.answer(client, |replies| replies.error("ERR syntax error")),
                };
                match self.auth_guard.authenticate(&mut self.cx, client, user, password, arguments.len() == 2)
                {
                    Ok(()) => self.cx.answer(client, ReplyBuffer::ok),
                    Err(error) => self.auth_guard.refuse(&mut self.cx, client, error),
                }
            }
            NodeCommand::Hello => self.auth_guard.hello(&mut self.cx, client, arguments),
            NodeCommand::Client(command) => match command {
                ClientCommand::Id => connections::id(&mut self.cx, client),
                ClientCommand::Info => connections::info(&mut self.cx, client, arguments),
                ClientCommand::List => connections::list(&mut self.cx, client, arguments),
                ClientCommand::SetName => connections::set_name(&mut self.cx, client, &arguments[2]),
                ClientCommand::GetName => connections::get_name(&mut self.cx, client),
                ClientCommand::SetInfo => {
                    connections::set_info(&mut self.cx, client, &arguments[2], &arguments[3])
                }
                ClientCommand::Kill => connections::kill(&mut self.cx, client, arguments),
                ClientCommand::Unblock => self.unblock(client, arguments),
                ClientCommand::Reply => connections::choose_replies(&mut self.cx, client, &arguments[2]),
                ClientCommand::Pause => connections::pause::pause(&mut self.cx, client, arguments),
                ClientCommand::Unpause => connections::pause::unpause(&mut self.cx, client),
                ClientCommand::GetRedir => Following::redirection(&mut self.cx, client),
                ClientCommand::Tracking => {
                    self.following.track(&mut self.cx, client, arguments);
                    self.follow_changes();
                }
                ClientCommand::TrackingInfo => Following::info(&mut self.cx, client),
                ClientCommand::Caching => {
                    Following::choose_caching(&mut self.cx, client, &arguments[2]);
                }
                ClientCommand::NoEvict => {
                    connections::switch(&mut self.cx, client, &arguments[2], |session| &mut session.no_evict);
                }
                ClientCommand::NoTouch => {
                    connections::switch(&mut self.cx, client, &arguments[2], |session| &mut session.no_touch);
                }
            },
            NodeCommand::Command(command) => {
                self.cx.answer(client, |replies| command::introspection::answer(command, arguments, replies));
            }
            NodeCommand::Help => {
                self.cx.answer(client, |replies| command::introspection::help(found.spec, replies));
            }
            NodeCommand::Config(command) => {
                connections::config(&mut self.cx, client, command, arguments);
                self.follow_changes();
            }
            NodeCommand::Keyspace(KeyspaceCommand::Watch) => {
                self.following.readers.watch(&mut self.cx, client, arguments);
            }
            NodeCommand::Keyspace(KeyspaceCommand::Unwatch) => {
                self.following.readers.unwatch(&mut self.cx, client, &arguments[2]);
            }
            NodeCommand::Keyspace(KeyspaceCommand::Changes) => {
                self.following.readers.request(&mut self.cx, client, arguments);
            }
            NodeCommand::Keyspace(command) => {
                operators::keyspace_command(&mut self.cx, client, command, arguments)
            }
            NodeCommand::Cluster(command) => {
                operators::cluster_command(&mut self.cx, client, command, arguments)
            }
            NodeCommand::Info => facts::answer(self, client, arguments),
            NodeCommand::Time => {
                let unix_ms = self.cx.now.unix_ms;
                self.cx.answer(client, |replies| {
                    replies.array(2);
                    replies.bulk((unix_ms / 1000).to_string().as_bytes());
                    replies.bulk((unix_ms % 1000 * 1000).to_string().as_bytes());
                });
            }
            NodeCommand::Transaction(command) => self.transaction_command(client, command, arguments),
            NodeCommand::Script(ScriptCommand::Run(how)) => self.run_script(client, how, arguments),
            NodeCommand::Script(command) => self.scripts.command(&mut self.cx, client, command, arguments),
            NodeCommand::Function(command) => {
                self.scripts.function_command(&mut self.cx, client, command, arguments);
            }
            NodeCommand::Wait => self.wait(client, &arguments[1], &arguments[2]),
            NodeCommand::Lock(verb) => {
                let Some(asked) = self.waits.request(&mut self.cx, client, verb, arguments) else { return };
                let LockAsked { group, command, afresh } = asked;
                match afresh {
                    true => self.ask_afresh(client, group, &Request::Command(command)),
                    false => self.ask(client, group, false, &Request::Command(command)),
                }
            }
            NodeCommand::Channel(command) => self.channels.command(&mut self.cx, client, command, arguments),
            NodeCommand::Slowlog(command) => connections::slowlog(&mut self.cx, client, command, arguments),
            NodeCommand::Latency(command) => connections::latency(&mut self.cx, client, command, arguments),
            NodeCommand::DebugPauseCron => connections::debug_pause_cron(&mut self.cx, client),
            NodeCommand::DebugExpire => connections::debug_expire(&mut self.cx, client, &arguments[2]),
            NodeCommand::DebugProtocol => connections::debug_protocol(&mut self.cx, client, &arguments[2]),
            NodeCommand::DebugSleep => connections::debug_sleep(&mut self.cx, client, &arguments[2]),
            NodeCommand::Monitor => connections::monitor::begin(&mut self.cx, client),
            NodeCommand::Memory(command) => connections::memory(&mut self.cx, client, command),
            NodeCommand::MemoryStats => facts::memory_stats(self, client),
            NodeCommand::ObjectRefCount => self.reference_count(client, &arguments[2]),
            NodeCommand::ReplicaConfiguration => {
                self.following.replicas.configure(&mut self.cx, client, arguments);
            }
            NodeCommand::ReplicaSync => self.following.replicas.begin(&mut self.cx, client, arguments),
            NodeCommand::Role => facts::role(self, client),
            NodeCommand::Server(command) => connections::server(&mut self.cx, client, command, arguments),
        }
    }

    /// `WAIT`: answers with the true number of replicas that hold all that this client has written.
    fn wait(&mut self, client: ClientId, replicas: &[u8], timeout: &[u8]) {
        let integer =
            |bytes: &[u8]| std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<i64>().ok());
        let (replicas, timeout) = match (integer(replicas), integer(timeout)) {
            (_, Some(timeout)) if timeout < 0 => {
                return self.cx.answer(client, |replies| replies.error("ERR timeout is negative"));
            }
            (Some(replicas), Some(timeout)) => (replicas, timeout as u64),
            (_, None) => {
                let error = "ERR timeout is not an integer or out of range";
                return self.cx.answer(client, |replies| replies.error(error));
            }
            (None, _) => {
                let error = "ERR value is not an integer or out of range";
                return self.cx.answer(client, |replies| replies.error(error));
            }
        };
        let deadline_us = match timeout {
            0 => u64::MAX,
            _ => self.cx.now.monotonic_us.saturating_add(timeout.saturating_mul(1000)),
        };
        let count = replicas.clamp(0, u32::MAX as i64) as u32;
        let Some(session) = self.cx.clients.sessions.get(client) else { return };
        let is_waiting = session.is_waiting();
        let mut groups: Vec<u16> = session.written().filter(|id| self.cx.groups.get(*id).is_some()).collect();
        if groups.is_empty() {
            groups.push(self.cx.router.default_group());
        }
        let offset = |seen: Version| if is_waiting { Version::MAX } else { seen };
        if let [group] = groups[..] {
            let offset = offset(session.seen(group));
            return self.ask_until(client, group, false, &Request::Wait { offset, count }, deadline_us);
        }
        self.ask_all(client, &groups, Combine::Minimum, deadline_us, |session, group| Request::Wait {
            offset: offset(session.seen(group)),
            count,
        });
    }

    /// Handles commands that only parts of the server may send, in the place of a client: HTTP uses them.
    fn internal_request(&mut self, client: ClientId, arguments: Arguments<'_>) {
        let command = match (&arguments[0], arguments.len()) {
            (b"QUORATE.FETCH", 2) => Command::Fetch { key: &arguments[1] },
            (b"QUORATE.PUT", 3..) => return self.put(client, arguments),
            (b"QUORATE.REPLICATE", 4) => {
                let version = match number(&arguments[3]) {
                    Some(version) if (1..=kv::table::REPLICATED_VERSION_MAX).contains(&version) => version,
                    _ => {
                        let error = "ERR a version is a number from 1 to 2^62";
                        return self.cx.answer(client, |replies| replies.error(error));
                    }
                };
                Command::Replicate { key: &arguments[1], value: &arguments[2], version }
            }
            _ => return self.cx.answer(client, |replies| replies.error("ERR unknown internal command")),
        };
        let value_bytes_max = self.cx.parameters.value_bytes_max();
        if arguments[1].len() > KEY_BYTES_MAX {
            let text = command::CommandError::KeyTooLong(arguments[1].len()).to_string();
            return self.cx.answer(client, |replies| replies.error(&text));
        }
        if let Some(value) = arguments.get(2).filter(|value| value.len() > value_bytes_max) {
            let error = command::CommandError::ValueTooLong { bytes: value.len(), most: value_bytes_max };
            let text = error.to_string();
            return self.cx.answer(client, |replies| replies.error(&text));
        }
        let group = self.cx.group_of(&command).unwrap_or_else(|| self.cx.router.default_group());
        self.ask(client, group, false, &Request::Command(command));
    }

    /// Runs a `SET` with all of its options, and answers with the version.
    fn put(&mut self, client: ClientId, arguments: Arguments<'_>) {
        let context = Context {
            now_ms: self.cx.now.unix_ms,
            value_bytes_max: self.cx.parameters.value_bytes_max(),
            stream_node_entries: 0,
            encodings: self.cx.parameters.encodings(),
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        match command::set(arguments, &mut scratch, &context) {
            Ok(command) => match (self.refuses_fence(&command), self.cx.group_of(&command)) {
                (Some(text), _) => self.cx.answer(client, |replies| replies.error(&text)),
                (None, Some(group)) => self.ask(client, group, true, &Request::Command(command)),
                (None, None) => self.cx.answer(client, |replies| replies.error(CROSSSLOT)),
            },
            Err(error) => self.cx.answer(client, |replies| replies.error(&error.to_string())),
        }
        self.scratch = scratch;
    }

    /// Why a fenced write is refused, if the keyspace of its lock has no locks.
    #[inline]
    fn refuses_fence(&self, command: &Command<'_>) -> Option<String> {
        match command {
            Command::Fenced(fenced) => {
                waits::refusal(&self.cx.groups, "SET FENCE", self.cx.router.group_of(fenced.name))
            }
            _ => None,
        }
    }
}

/// Whether a command is carried out at once, even after `MULTI`.
fn ends_or_escapes_a_transaction(handler: Handler) -> bool {
    use TransactionCommand::{Discard, Exec, Multi, Watch};
    matches!(
        handler,
        Handler::Node(
            NodeCommand::Quit | NodeCommand::Reset | NodeCommand::Transaction(Multi | Exec | Discard | Watch)
        )
    )
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

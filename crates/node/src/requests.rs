//! A client's request: which command it is, whether it may run, and which node runs it.

use crate::clients::{CLIENT_NAME_BYTES_MAX, NAME_TOO_LONG};
use crate::command::{self, ClientCommand, ConfigCommand, Context, Handler, NodeCommand, TransactionCommand};
use crate::configuration::DebugCommand;
use crate::gather::Combine;
use crate::log::{Level, Line};
use crate::node::Node;
use crate::session::{ClientId, Session};
use crate::transactions::CROSSSLOT;
use crate::words::is_printable;
use kv::limits::KEY_BYTES_MAX;
use kv::table::scan_group;
use kv::{Command, Reply, ReplyBuffer, Version};
use protocol::Request;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use wire::handshake::secret_matches;
use wire::resp::Arguments;
use wire::resp::Protocol;

/// The longest that `DEBUG SLEEP` may make its client wait.
const DEBUG_SLEEP_MAX: Duration = Duration::from_secs(60);

/// How often HTTP at the port for Redis clients is logged.
const HTTP_WARNING_EVERY: Duration = Duration::from_secs(60);

/// Whether the first word of a request is HTTP: that of a request line, or of a header line. Redis refuses the same
/// two. A space after the colon is usual, and not needed.
fn is_http(name: &[u8]) -> bool {
    const HOST: &[u8] = b"Host:";
    let is_host = name.get(..HOST.len()).is_some_and(|start| start.eq_ignore_ascii_case(HOST));
    name.eq_ignore_ascii_case(b"POST") || is_host
}

/// The answer to a client whose address has failed to authenticate too often, and its delay.
const TOO_MANY_FAILURES: &str =
    "ERR too many failed attempts to authenticate from your address: try again in a few seconds";
const REFUSED_AFTER: Duration = Duration::from_secs(1);

impl Node {
    /// Takes a whole request of a client. The reply appears in the client's output, now or in a later turn.
    pub fn request(&mut self, client: ClientId, arguments: Arguments<'_>) {
        self.take_request(client, arguments);
        if let Some(session) = self.sessions.get_mut(client) {
            self.memory.follow(session);
        }
    }

    fn take_request(&mut self, client: ClientId, arguments: Arguments<'_>) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        if arguments.is_empty() || session.closing {
            return;
        }
        session.requests += 1;
        session.request_bytes = arguments.iter().map(<[u8]>::len).sum();
        session.active_us = self.now.monotonic_us;
        self.counters.commands += 1;
        if session.is_internal() && arguments[0].starts_with(b"QUORATE.") {
            return self.internal_request(client, arguments);
        }
        let found = match command::find(arguments) {
            Ok(found) => found,
            Err(_) if is_http(&arguments[0]) => return self.refuse_http(client),
            Err(error) => {
                session.last_command = None;
                session.break_transaction();
                if let Ok(named) = command::named(arguments) {
                    self.statistics.rejected(named.number);
                }
                let text = error.to_string();
                return self.answer(client, |replies| replies.error(&text));
            }
        };
        session.last_command = Some(found.number);
        if !session.authenticated && !found.spec.flags.has(command::Flag::NoAuth) {
            self.statistics.rejected(found.number);
            return self.answer(client, |replies| replies.error("NOAUTH Authentication required."));
        }
        if session.subscriptions.is_some()
            && let Some(text) = session.refuses_while_listening(found.spec)
        {
            self.statistics.rejected(found.number);
            return self.answer(client, |replies| replies.error(&text));
        }
        self.statistics.called(found.number);
        if session.is_gathering() && !ends_or_escapes_a_transaction(found.spec.handler) {
            return self.queue(client, found, arguments);
        }
        match found.spec.handler {
            Handler::Data(parse) => {
                let context =
                    Context { now_ms: self.now.unix_ms, value_bytes_max: self.parameters.value_bytes_max() };
                let mut scratch = std::mem::take(&mut self.scratch);
                match parse(arguments, &mut scratch, &context) {
                    Ok(command) => {
                        self.weigh(client, &command);
                        self.data_request(client, command);
                    }
                    Err(error) => {
                        self.statistics.failed(found.number);
                        let text = error.to_string();
                        self.answer(client, |replies| replies.error(&text));
                    }
                }
                self.scratch = scratch;
            }
            Handler::Node(command) => self.node_request(client, command, found, arguments),
            Handler::Container => {
                let text = command::CommandError::WrongArity(found.spec.name).to_string();
                self.answer(client, |replies| replies.error(&text));
            }
        }
    }

    /// Closes the connection of a client that spoke HTTP, before its body is looked at. A web page can make the browser
    /// of a user who may reach this port send it HTTP, with a body made of commands.
    fn refuse_http(&mut self, client: ClientId) {
        let now_us = self.now.monotonic_us;
        self.counters.http_requests_refused += 1;
        if now_us >= self.http_warning_due_us {
            self.http_warning_due_us = now_us + HTTP_WARNING_EVERY.as_micros() as u64;
            let address = self.sessions.get(client).and_then(Session::ip_address);
            let address = address.map_or("?".to_owned(), |address| address.to_string());
            let text = format!(
                "possible attack: {address} has sent HTTP to the port for Redis clients, perhaps a browser for some page; \
                 the connection is closed"
            );
            self.log.push(Line { level: Level::Warning, text });
        }
        self.kill(client);
    }

    /// Sends a command on keys to their group, and a command on all keys to every group.
    #[inline]
    fn data_request(&mut self, client: ClientId, command: Command<'_>) {
        if let Some(text) = self.refuses_fence(&command) {
            return self.answer(client, |replies| replies.error(&text));
        }
        if let [only] = self.groups.ids() {
            let only = *only;
            let command = match command {
                Command::RandomKey { .. } => Command::RandomKey { draw: self.draw() },
                Command::Scan { position, count, pattern, kind, .. } => {
                    Command::Scan { position, count, pattern, kind, group: only, next: 0 }
                }
                command => command,
            };
            return self.ask(client, only, false, Request::Command(command));
        }
        let combine = match command {
            Command::Size => Some(Combine::Sum),
            Command::Clear => Some(Combine::AllOk),
            Command::Keys { .. } => Some(Combine::Concatenate),
            Command::RandomKey { .. } => Some(Combine::AnyOf(self.draw())),
            _ => None,
        };
        // Refuse before any other keyspace is emptied.
        if command == Command::Clear {
            let refusal = self.groups.iter().find_map(|(_, group)| group.keyspace.refuses_clear());
            if let Some(text) = refusal {
                return self.answer(client, |replies| replies.error(&text));
            }
        }
        if let Some(combine) = combine {
            let command = match command {
                Command::RandomKey { .. } => Command::RandomKey { draw: self.draw() },
                command => command,
            };
            let all = self.groups.ids().to_vec();
            let deadline_us = self.now.monotonic_us + self.configuration.command_timeout_ms * 1000;
            return self.ask_all(client, &all, combine, deadline_us, |_, _| Request::Command(command));
        }
        match command {
            Command::Scan { position, count, pattern, kind, .. } => {
                let told = scan_group(position);
                let Some(group) = self.groups.from(told) else {
                    // The scan's group was the last one, and no longer exists.
                    return self.answer(client, |replies| {
                        replies.array(2);
                        replies.bulk(b"0");
                        replies.array(0);
                    });
                };
                let position = if group == told { position } else { u64::from(group) };
                let next = self.groups.from(group + 1).unwrap_or(0);
                let command = Command::Scan { position, count, pattern, kind, group, next };
                self.ask(client, group, false, Request::Command(command));
            }
            command => match self.group_of(&command) {
                Some(group) => self.ask(client, group, false, Request::Command(command)),
                None => {
                    self.answer(client, |replies| replies.error(CROSSSLOT));
                }
            },
        }
    }

    pub(crate) fn node_request(
        &mut self,
        client: ClientId,
        command: NodeCommand,
        found: command::Found,
        arguments: Arguments<'_>,
    ) {
        match command {
            NodeCommand::Ping if self.sessions.get(client).is_some_and(Session::is_listening_in_resp2) => {
                self.answer(client, |replies| {
                    replies.array(2);
                    replies.bulk(b"pong");
                    replies.bulk(arguments.get(1).unwrap_or_default());
                });
            }
            NodeCommand::Ping => self.answer(client, |replies| match (arguments.get(1), arguments.get(2)) {
                (_, Some(_)) => replies.error(&command::CommandError::WrongArity("ping").to_string()),
                (Some(text), None) => replies.bulk(text),
                (None, None) => replies.push(Reply::Status(b"PONG")),
            }),
            NodeCommand::Echo => self.answer(client, |replies| replies.bulk(&arguments[1])),
            NodeCommand::Quit => {
                self.answer(client, ReplyBuffer::ok);
                self.close_after_replies(client);
            }
            NodeCommand::Reset => {
                let open = self.configuration.password.is_none();
                self.end_subscriptions(client);
                if let Some(session) = self.sessions.get_mut(client) {
                    session.reset(open);
                }
                self.answer(client, |replies| replies.push(Reply::Status(b"RESET")));
            }
            NodeCommand::Select => self.select(client, &arguments[1]),
            NodeCommand::ReadOnly => self.answer(client, ReplyBuffer::ok),
            NodeCommand::Auth => {
                let (user, password) = match arguments.len() {
                    2 => (&b"default"[..], &arguments[1]),
                    3 => (&arguments[1], &arguments[2]),
                    _ => return self.answer(client, |replies| replies.error("ERR syntax error")),
                };
                match self.authenticate(client, user, password, arguments.len() == 2) {
                    Ok(()) => self.answer(client, ReplyBuffer::ok),
                    Err(error) => self.refuse_authentication(client, error),
                }
            }
            NodeCommand::Hello => self.hello(client, arguments),
            NodeCommand::Client(command) => match command {
                ClientCommand::Id => self.client_id(client),
                ClientCommand::Info => self.client_info(client),
                ClientCommand::List => self.client_list(client, arguments),
                ClientCommand::SetName => self.client_set_name(client, &arguments[2]),
                ClientCommand::GetName => self.client_get_name(client),
                ClientCommand::SetInfo => self.client_set_info(client, &arguments[2], &arguments[3]),
                ClientCommand::Kill => self.client_kill(client, arguments),
                ClientCommand::NoEvict => {
                    self.client_switch(client, &arguments[2], |session| &mut session.no_evict);
                }
                ClientCommand::NoTouch => {
                    self.client_switch(client, &arguments[2], |session| &mut session.no_touch);
                }
            },
            NodeCommand::Command(command) => {
                self.answer(client, |replies| command::introspection::answer(command, arguments, replies));
            }
            NodeCommand::Help => {
                self.answer(client, |replies| command::introspection::help(found.spec, replies));
            }
            NodeCommand::Config(command) => self.config(client, command, arguments),
            NodeCommand::Keyspace(command) => self.keyspace_command(client, command, arguments),
            NodeCommand::Cluster(command) => self.cluster_command(client, command, arguments),
            NodeCommand::Info => self.info(client, arguments),
            NodeCommand::Time => {
                let unix_ms = self.now.unix_ms;
                self.answer(client, |replies| {
                    replies.array(2);
                    replies.bulk((unix_ms / 1000).to_string().as_bytes());
                    replies.bulk((unix_ms % 1000 * 1000).to_string().as_bytes());
                });
            }
            NodeCommand::Transaction(command) => self.transaction_command(client, command, arguments),
            NodeCommand::Script(command) => self.script_command(client, command, arguments),
            NodeCommand::Wait => self.wait(client, &arguments[1], &arguments[2]),
            NodeCommand::Lock(verb) => self.lock_request(client, verb, arguments),
            NodeCommand::Channel(command) => self.channel_command(client, command, arguments),
            NodeCommand::DebugSleep => self.debug_sleep(client, &arguments[2]),
        }
    }

    /// Makes one client wait, and no other.
    fn debug_sleep(&mut self, client: ClientId, seconds: &[u8]) {
        if !self.may_debug(client) {
            let error = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run \
                         it from a local connection, otherwise you need to set this option in the configuration file \
                         (enable_debug_command), and then restart the server.";
            return self.answer(client, |replies| replies.error(error));
        }
        let seconds = std::str::from_utf8(seconds).ok().and_then(|text| text.parse::<f64>().ok());
        match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
            Some(after) if after <= DEBUG_SLEEP_MAX => self.answer_later(client, after, ReplyBuffer::ok),
            Some(_) => {
                let error = format!("ERR DEBUG SLEEP takes {} seconds at most", DEBUG_SLEEP_MAX.as_secs());
                self.answer(client, |replies| replies.error(&error));
            }
            None => self.answer(client, |replies| replies.error("ERR value is not a valid float")),
        }
    }

    fn may_debug(&self, client: ClientId) -> bool {
        match self.configuration.enable_debug_command {
            DebugCommand::No => false,
            DebugCommand::Yes => true,
            DebugCommand::Local => {
                let address = self.sessions.get(client).and_then(Session::ip_address);
                address.is_some_and(|address| address.to_canonical().is_loopback())
            }
        }
    }

    fn select(&mut self, client: ClientId, database: &[u8]) {
        let number = std::str::from_utf8(database).ok().and_then(|text| text.parse::<i64>().ok());
        self.answer(client, |replies| match number {
            Some(0) => replies.ok(),
            Some(_) => replies.error("ERR DB index is out of range"),
            None => replies.error("ERR value is not an integer or out of range"),
        });
    }

    /// Answers a failed authentication. A client whose address has failed too often gets its answer late, and nothing
    /// after it.
    fn refuse_authentication(&mut self, client: ClientId, error: &'static str) {
        if error != TOO_MANY_FAILURES {
            return self.answer(client, |replies| replies.error(error));
        }
        self.answer_later(client, REFUSED_AFTER, |replies| replies.error(error));
        self.close_after_replies(client);
    }

    fn authenticate(
        &mut self,
        client: ClientId,
        user: &[u8],
        given: &[u8],
        password_alone: bool,
    ) -> Result<(), &'static str> {
        let Some(password) = &self.configuration.password else {
            return match password_alone {
                true => {
                    Err("ERR AUTH <password> called without any password configured for the default user. \
                            Are you sure your configuration is correct?")
                }
                // Redis's default user has no password then, and accepts any.
                false if user == b"default" => Ok(()),
                false => Err("WRONGPASS invalid username-password pair or user is disabled."),
            };
        };
        let address = self.sessions.get(client).and_then(Session::ip_address);
        let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let now_us = self.now.monotonic_us;
        if !self.auth_guard.listens_to(address, now_us) {
            self.auth_guard.refused();
            return Err(TOO_MANY_FAILURES);
        }
        // Both are always compared, so that the time does not reveal which was wrong.
        if !secret_matches(given, password.as_bytes()) | (user != b"default") {
            if self.auth_guard.failed(address, now_us) {
                let is_over = !self.auth_guard.listens_to(address, now_us);
                let then = if is_over { "; it is not listened to for a while" } else { "" };
                let text = format!("a client at {address} has failed to authenticate{then}");
                self.log.push(Line { level: Level::Warning, text });
            }
            return Err("WRONGPASS invalid username-password pair or user is disabled.");
        }
        if let Some(session) = self.sessions.get_mut(client) {
            session.authenticated = true;
        }
        Ok(())
    }

    fn hello(&mut self, client: ClientId, arguments: Arguments<'_>) {
        let mut protocol = None;
        if let Some(version) = arguments.get(1) {
            let number = std::str::from_utf8(version).ok().and_then(|text| text.parse::<i64>().ok());
            protocol = match number {
                Some(2) => Some(Protocol::Resp2),
                Some(3) => Some(Protocol::Resp3),
                Some(_) => {
                    return self
                        .answer(client, |replies| replies.error("NOPROTO unsupported protocol version"));
                }
                None => {
                    let error = "ERR Protocol version is not an integer or out of range";
                    return self.answer(client, |replies| replies.error(error));
                }
            };
        }
        let mut name = None;
        let mut at = 2;
        while let Some(option) = arguments.get(at) {
            match (option.to_ascii_lowercase().as_slice(), arguments.get(at + 1), arguments.get(at + 2)) {
                (b"auth", Some(user), Some(password)) => {
                    if let Err(error) = self.authenticate(client, user, password, false) {
                        return self.refuse_authentication(client, error);
                    }
                    at += 3;
                }
                (b"setname", Some(given), _) => {
                    name = Some(given);
                    at += 2;
                }
                _ => {
                    let error =
                        format!("ERR Syntax error in HELLO option '{}'", String::from_utf8_lossy(option));
                    return self.answer(client, |replies| replies.error(&error));
                }
            }
        }
        let Some(session) = self.sessions.get_mut(client) else { return };
        if !session.authenticated {
            let error = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                         AUTH <user> <pass> option can be used to authenticate the client and select the RESP \
                         protocol version at the same time";
            return self.answer(client, |replies| replies.error(error));
        }
        if let Some(name) = name {
            if name.len() > CLIENT_NAME_BYTES_MAX {
                return self.answer(client, |replies| replies.error(NAME_TOO_LONG));
            }
            if !is_printable(name) {
                let error = "ERR Client names cannot contain spaces, newlines or special characters.";
                return self.answer(client, |replies| replies.error(error));
            }
            session.name = name.to_vec();
        }
        // Earlier requests that still wait were sent under the old protocol; they are few and soon gone.
        if let Some(protocol) = protocol {
            session.protocol = protocol;
        }
        let version = if session.protocol == Protocol::Resp3 { 3 } else { 2 };
        let number = session.number();
        let role = if self.leads_default() { "master" } else { "replica" };
        self.answer(client, |replies| {
            replies.map(7);
            let mut text = |field: &str, value: &str| {
                replies.bulk(field.as_bytes());
                replies.bulk(value.as_bytes());
            };
            text("server", "redis");
            text("version", crate::REDIS_VERSION);
            text("mode", "cluster");
            text("role", role);
            replies.bulk(b"proto");
            replies.integer(version);
            replies.bulk(b"id");
            replies.integer(number as i64);
            replies.bulk(b"modules");
            replies.array(0);
        });
    }

    fn config(&mut self, client: ClientId, command: ConfigCommand, arguments: Arguments<'_>) {
        match command {
            ConfigCommand::Get => {
                self.replies.clear();
                let mut replies = std::mem::take(&mut self.replies);
                self.parameters.get(arguments, &mut replies);
                self.answer(client, |out| out.extend_encoded(replies.as_bytes()));
            }
            ConfigCommand::Set => {
                let outcome = self.parameters.set(arguments);
                self.answer(client, |replies| match outcome {
                    Ok(()) => replies.ok(),
                    Err(error) => replies.error(&error.to_string()),
                });
            }
            ConfigCommand::ResetStat => {
                self.statistics.reset();
                self.counters = Default::default();
                self.answer(client, ReplyBuffer::ok);
            }
        }
    }

    /// `WAIT`: answers with the true number of replicas that hold all that this client has written.
    fn wait(&mut self, client: ClientId, replicas: &[u8], timeout: &[u8]) {
        let integer =
            |bytes: &[u8]| std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<i64>().ok());
        let (replicas, timeout) = match (integer(replicas), integer(timeout)) {
            (_, Some(timeout)) if timeout < 0 => {
                return self.answer(client, |replies| replies.error("ERR timeout is negative"));
            }
            (Some(replicas), Some(timeout)) => (replicas, timeout as u64),
            (_, None) => {
                let error = "ERR timeout is not an integer or out of range";
                return self.answer(client, |replies| replies.error(error));
            }
            (None, _) => {
                let error = "ERR value is not an integer or out of range";
                return self.answer(client, |replies| replies.error(error));
            }
        };
        let deadline_us = match timeout {
            0 => u64::MAX,
            _ => self.now.monotonic_us.saturating_add(timeout.saturating_mul(1000)),
        };
        let count = replicas.clamp(0, u32::MAX as i64) as u32;
        let Some(session) = self.sessions.get(client) else { return };
        let is_waiting = session.is_waiting();
        let mut groups: Vec<u16> = session.written().filter(|id| self.groups.get(*id).is_some()).collect();
        if groups.is_empty() {
            groups.push(self.router.default_group());
        }
        let offset = |seen: Version| if is_waiting { Version::MAX } else { seen };
        if let [group] = groups[..] {
            let offset = offset(session.seen(group));
            return self.ask_until(client, group, false, Request::Wait { offset, count }, deadline_us);
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
                        return self.answer(client, |replies| replies.error(error));
                    }
                };
                Command::Replicate { key: &arguments[1], value: &arguments[2], version }
            }
            _ => return self.answer(client, |replies| replies.error("ERR unknown internal command")),
        };
        let value_bytes_max = self.parameters.value_bytes_max();
        if arguments[1].len() > KEY_BYTES_MAX {
            let text = command::CommandError::KeyTooLong(arguments[1].len()).to_string();
            return self.answer(client, |replies| replies.error(&text));
        }
        if let Some(value) = arguments.get(2).filter(|value| value.len() > value_bytes_max) {
            let error = command::CommandError::ValueTooLong { bytes: value.len(), most: value_bytes_max };
            let text = error.to_string();
            return self.answer(client, |replies| replies.error(&text));
        }
        let group = self.group_of(&command).unwrap_or_else(|| self.router.default_group());
        self.ask(client, group, false, Request::Command(command));
    }

    /// Runs a `SET` with all of its options, and answers with the version.
    fn put(&mut self, client: ClientId, arguments: Arguments<'_>) {
        let context =
            Context { now_ms: self.now.unix_ms, value_bytes_max: self.parameters.value_bytes_max() };
        let mut scratch = std::mem::take(&mut self.scratch);
        match command::set(arguments, &mut scratch, &context) {
            Ok(command) => match (self.refuses_fence(&command), self.group_of(&command)) {
                (Some(text), _) => self.answer(client, |replies| replies.error(&text)),
                (None, Some(group)) => self.ask(client, group, true, Request::Command(command)),
                (None, None) => self.answer(client, |replies| replies.error(CROSSSLOT)),
            },
            Err(error) => self.answer(client, |replies| replies.error(&error.to_string())),
        }
        self.scratch = scratch;
    }

    /// Why a fenced write is refused, if the keyspace of its lock has no locks.
    #[inline]
    fn refuses_fence(&self, command: &Command<'_>) -> Option<String> {
        match command {
            Command::Fenced(fenced) => self.refuses_locks("SET FENCE", self.router.group_of(fenced.name)),
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

//! How long commands take: their statistics, and what `SLOWLOG`, `COMMANDLOG` and `LATENCY` show. See [`crate::diagnostics::slow`].

use crate::context::Context;
use crate::diagnostics::hot_keys::HotKeys;
use crate::diagnostics::slow::{Entry, Reason, Slow, Taken, Thresholds, keep_arguments, kept_keys};
use crate::session::{Begun, ClientId, ClientKind, Session};
use commands::introspection::key_positions;
use commands::{Flag, Handler, NodeCommand};
use protocol::Now;
use wire::resp::Arguments;

/// Commands that were slow or large, and those that may have been slow.
#[derive(Debug, Default)]
pub(crate) struct Measuring {
    slow: Slow,
    /// Commands that were answered in this turn: [`Context::measure`] notes them.
    answered: Vec<Answered>,
    /// How many commands of this turn were noted.
    noted: usize,
    /// Whether [`Context::measure`] should be called with a reading of the clock.
    is_due: bool,
    /// The keys that are counted, or were. While they are, the clock is read after each request.
    hot_keys: Option<Box<HotKeys>>,
}

/// A command that was slow or large, or whose own work takes long.
#[derive(Debug)]
struct Answered {
    client: ClientId,
    command: usize,
    /// The group that has carried the command out; 0 if no group has.
    group: u16,
    begun_us: u64,
    /// `None`: the command's work ends with the next reading of the clock.
    took_us: Option<u64>,
    request_bytes: u64,
    reply_bytes: u64,
    /// Empty for a request that is still being taken.
    arguments: Vec<u8>,
}

/// The most commands that a turn notes, unless all are wanted: commands that are answered together were slow for one
/// reason, and on an overloaded node all of them are slow.
const NOTED_MAX: usize = 16;

impl Measuring {
    /// The slow and large commands, and events.
    pub(crate) fn slow(&mut self) -> &mut Slow {
        &mut self.slow
    }

    /// A turn begins.
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        self.noted = 0;
    }

    /// Whether [`Context::measure`] should be called with a reading of the clock.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.is_due
    }

    /// The keys that are counted, or were.
    pub(crate) fn hot_keys(&self) -> Option<&HotKeys> {
        self.hot_keys.as_deref()
    }

    /// Whether keys are being counted.
    pub(crate) fn counts_keys(&self) -> bool {
        self.hot_keys().is_some_and(HotKeys::is_active)
    }

    fn counted_keys(&mut self) -> Option<&mut HotKeys> {
        self.hot_keys.as_deref_mut().filter(|keys| keys.is_active())
    }

    /// The time that a request took that gets its reply now, of this many bytes, if it is to be noted at once. Otherwise the
    /// request is kept until the next [`Context::measure`].
    #[inline]
    pub(crate) fn time_of(
        &mut self,
        session: &Session,
        (sequence, group): (u64, u16),
        reply_bytes: usize,
        now: Now,
        thresholds: &Thresholds,
    ) -> Option<u64> {
        let begun = session.begun(sequence)?;
        let took_us = now.monotonic_us.saturating_sub(begun.at_us);
        if !begun.is_long && !thresholds.may_be_reached(took_us) {
            return Some(took_us);
        }
        self.note_answered(session, (sequence, group), (begun, took_us, reply_bytes), thresholds)
    }

    /// Keeps a request until the next [`Context::measure`], or returns its time if it is not to be noted.
    #[cold]
    fn note_answered(
        &mut self,
        session: &Session,
        (sequence, group): (u64, u16),
        (begun, took_us, reply_bytes): (Begun, u64, usize),
        thresholds: &Thresholds,
    ) -> Option<u64> {
        if let Some(keys) = self.counted_keys() {
            match session.asked(sequence) {
                asked if asked.is_empty() => keys.reply(reply_bytes),
                asked => keys.reply_to(&kept_keys(&asked), reply_bytes),
            }
        }
        let (request_bytes, reply_bytes) = (begun.bytes as u64, reply_bytes as u64);
        let may_note = self.noted < NOTED_MAX || thresholds.logs_all();
        let is_noted = may_note && thresholds.reached(&[took_us, request_bytes, reply_bytes]);
        if !begun.is_long && !is_noted {
            return Some(took_us);
        }
        let command = begun.command?;
        self.noted += 1;
        self.is_due = true;
        self.answered.push(Answered {
            client: session.id(),
            command,
            group,
            begun_us: begun.at_us,
            took_us: (!begun.is_long).then_some(took_us),
            request_bytes,
            reply_bytes,
            arguments: session.asked(sequence),
        });
        None
    }
}

impl Context {
    /// Counts keys from now on, or no longer (`HOTKEYS RESET`).
    pub(crate) fn set_hot_keys(&mut self, keys: Option<HotKeys>) {
        self.clients.measuring.hot_keys = keys.map(Box::new);
        self.follow_counting();
    }

    /// Ends the counting of keys.
    pub(crate) fn stop_counting(&mut self) {
        let now_us = self.now.monotonic_us;
        if let Some(keys) = self.clients.measuring.counted_keys() {
            keys.stop(now_us);
        }
        self.follow_counting();
    }

    fn follow_counting(&mut self) {
        let counts = self.clients.measuring.counts_keys();
        self.clients.measuring.is_due |= counts;
        self.parameters.look_at_all(counts);
    }

    /// Notes the arguments of a request that was answered while it was taken, and its keys where these are
    /// counted.
    #[cold]
    pub(crate) fn name_answered(&mut self, client: ClientId, arguments: Arguments<'_>) {
        let Context { clients, .. } = self;
        if let Some(keys) = clients.measuring.counted_keys() {
            // A request that was refused, or is held, is not one of a command.
            let is_taken = clients.sessions.get(client).is_some_and(Session::has_taken_command);
            let places = if is_taken { key_positions(arguments).ok() } else { None };
            keys.take(arguments, &places.unwrap_or_default());
        }
        for answered in
            self.clients.measuring.answered.iter_mut().filter(|answered| answered.arguments.is_empty())
        {
            keep_arguments(arguments, Some(&|place| is_secret(arguments, place)), &mut answered.arguments);
        }
    }

    /// Notes how long commands took whose work has just ended.
    #[cold]
    pub(crate) fn measure(&mut self, now_us: u64) {
        let measuring = &mut self.clients.measuring;
        measuring.is_due = false;
        if let Some(keys) = measuring.counted_keys() {
            keys.took(now_us);
            self.follow_counting();
        }
        let thresholds = *self.parameters.thresholds();
        for answered in std::mem::take(&mut self.clients.measuring.answered) {
            let took_us = answered.took_us.unwrap_or(now_us.saturating_sub(answered.begun_us));
            self.clients.statistics.took(answered.command, took_us);
            if let Some(group) = self.groups.get_mut(answered.group) {
                group.latency.record(took_us);
            }
            self.note_slow(answered, took_us, thresholds);
        }
    }

    fn note_slow(&mut self, answered: Answered, took_us: u64, thresholds: Thresholds) {
        let Answered { client, command, arguments, request_bytes, reply_bytes, .. } = answered;
        let Some(spec) = commands::by_number(command) else { return };
        let waits = spec.flags.has(Flag::Blocking)
            || matches!(
                spec.handler,
                Handler::Node(NodeCommand::Wait | NodeCommand::WaitDurable | NodeCommand::Ask)
            );
        let took_us = if waits { 0 } else { took_us };
        let unix_s = self.now.unix_ms / 1000;
        if thresholds.makes_event(took_us) {
            let event = if spec.flags.has(Flag::Fast) { "fast-command" } else { "command" };
            self.clients.measuring.slow.note(event, unix_s, took_us / 1000);
        }
        let taken: Taken = [took_us, request_bytes, reply_bytes];
        let reasons: Vec<Reason> = thresholds.reasons(&taken).collect();
        if reasons.is_empty() {
            return;
        }
        let (mut address, mut name) = (String::new(), Vec::new());
        if let Some(session) = self.clients.sessions.get(client) {
            name = session.name().to_vec();
            if let ClientKind::Resp { address: of_client, .. } = session.kind() {
                address.clone_from(of_client);
            }
        }
        for reason in reasons {
            let (address, name, arguments) = (address.clone(), name.clone(), arguments.clone());
            let entry = Entry { unix_s, taken: taken[reason as usize], arguments, address, name };
            self.clients.measuring.slow.log(reason).add(entry, self.parameters.log_entries_max(reason));
        }
    }
}

/// The parameters of `CONFIG SET` whose values are passwords, or names that belong to one. Here they are refused, but not before
/// the request could be shown.
const SECRET_PARAMETERS: [&[u8]; 5] =
    [b"requirepass", b"masterauth", b"masteruser", b"tls-key-file-pass", b"tls-client-key-file-pass"];

/// Whether any argument of a request that can wait may be one of which [`is_secret`] is true. False of nearly all.
#[inline]
pub(crate) fn has_secrets(arguments: Arguments<'_>) -> bool {
    let Some(name) = arguments.get(0) else { return false };
    let is = |word: &[u8]| name.eq_ignore_ascii_case(word);
    match name.len() {
        3 => is(b"ACL"),
        4 => is(b"AUTH"),
        5 => is(b"HELLO"),
        6 => is(b"CONFIG"),
        7 => is(b"CLUSTER") || is(b"COMMAND") || is(b"MIGRATE"),
        _ => false,
    }
}

/// Whether an argument of a request is a password, or a name that belongs to one, so that nothing that shows requests may
/// show it.
#[inline]
pub(crate) fn is_secret(arguments: Arguments<'_>, place: usize) -> bool {
    // These take a whole command.
    let nested_from = match arguments.get(0).map_or(0, <[u8]>::len) {
        3 if is(arguments, 0, b"ACL") && is(arguments, 1, b"DRYRUN") => 3,
        7 if is(arguments, 0, b"CLUSTER") && is(arguments, 1, b"ASK") => 3,
        7 if is(arguments, 0, b"COMMAND") => 2,
        _ => 0,
    };
    place >= nested_from && is_password(arguments.skip(nested_from), place - nested_from)
}

#[inline]
fn is(arguments: Arguments<'_>, at: usize, word: &[u8]) -> bool {
    arguments.get(at).is_some_and(|argument| argument.eq_ignore_ascii_case(word))
}

#[inline]
fn is_password(arguments: Arguments<'_>, place: usize) -> bool {
    let is = |at: usize, word: &[u8]| is(arguments, at, word);
    let is_behind = |word: &[u8], behind: usize| place.checked_sub(behind).is_some_and(|at| is(at, word));
    match arguments.get(0).map_or(0, <[u8]>::len) {
        3 => place > 1 && is(0, b"ACL") && is(1, b"SETUSER"),
        4 => place > 0 && is(0, b"AUTH"),
        5 => is(0, b"HELLO") && (is_behind(b"AUTH", 1) || is_behind(b"AUTH", 2)),
        // A value of several words would be in the places of the parameters that follow.
        6 if place > 2 && is(0, b"CONFIG") && is(1, b"SET") => {
            (2..place).any(|at| SECRET_PARAMETERS.iter().any(|name| is(at, name)))
        }
        7 => {
            let is_migrate = is(0, b"MIGRATE");
            is_migrate && (is_behind(b"AUTH", 1) || is_behind(b"AUTH2", 1) || is_behind(b"AUTH2", 2))
                || place > 0 && is(0, b"SLAVEOF") && has_password(&arguments[place])
        }
        9 => place > 0 && is(0, b"REPLICAOF") && has_password(&arguments[place]),
        _ => false,
    }
}

/// Whether an argument looks like an address with a password, which `quorate import` takes. As an argument of `REPLICAOF` it is
/// refused, at once.
#[cold]
fn has_password(argument: &[u8]) -> bool {
    argument.contains(&b'@')
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::resp::ArgumentsBuffer;

    fn shown(request: &str) -> String {
        let words: ArgumentsBuffer = request.split(' ').map(str::as_bytes).collect();
        let arguments = words.as_arguments();
        let is_any = (0..arguments.len()).any(|place| is_secret(arguments, place));
        let is_refused_at_once = arguments[0].to_ascii_lowercase().ends_with(b"of");
        assert!(has_secrets(arguments) || is_refused_at_once || !is_any, "{request}");
        let shown = |(place, word)| match is_secret(arguments, place) {
            true => "*".into(),
            false => String::from_utf8_lossy(word),
        };
        arguments.iter().enumerate().map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn no_password_is_shown_wherever_it_stands() {
        for (request, expected) in [
            ("AUTH secret", "AUTH *"),
            ("auth name secret", "auth * *"),
            ("HELLO 3 AUTH name secret SETNAME x", "HELLO 3 AUTH * * SETNAME x"),
            ("HELLO AUTH name secret", "HELLO AUTH * *"),
            ("ACL SETUSER name on >secret", "ACL SETUSER * * *"),
            ("CONFIG SET requirepass secret", "CONFIG SET requirepass *"),
            ("CONFIG SET maxmemory 1 MasterAuth secret", "CONFIG SET maxmemory 1 MasterAuth *"),
            ("CONFIG SET requirepass two words", "CONFIG SET requirepass * *"),
            ("CONFIG SET tls-key-file-pass secret", "CONFIG SET tls-key-file-pass *"),
            ("CONFIG GET requirepass masterauth", "CONFIG GET requirepass masterauth"),
            ("MIGRATE h 1 k 0 1 AUTH secret", "MIGRATE h 1 k 0 1 AUTH *"),
            ("MIGRATE h 1 k 0 1 AUTH2 name secret KEYS k", "MIGRATE h 1 k 0 1 AUTH2 * * KEYS k"),
            ("ACL DRYRUN u AUTH secret", "ACL DRYRUN u AUTH *"),
            ("ACL DRYRUN u CONFIG SET requirepass secret", "ACL DRYRUN u CONFIG SET requirepass *"),
            ("COMMAND GETKEYS MIGRATE h 1 k 0 1 AUTH secret", "COMMAND GETKEYS MIGRATE h 1 k 0 1 AUTH *"),
            ("CLUSTER ASK 2 AUTH secret", "CLUSTER ASK 2 AUTH *"),
            ("REPLICAOF redis://:secret@h:6379 1", "REPLICAOF * 1"),
            ("slaveof redis://name:secret@h 1", "slaveof * 1"),
            ("REPLICAOF host 6379", "REPLICAOF host 6379"),
            ("SET auth secret", "SET auth secret"),
            ("GET AUTH", "GET AUTH"),
        ] {
            assert_eq!(shown(request), expected);
        }
    }
}

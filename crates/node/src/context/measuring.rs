//! How long commands take: their statistics, and what `SLOWLOG` and `LATENCY` show. See [`crate::slow`].

use crate::command::{self, Flag, Handler, NodeCommand};
use crate::context::Context;
use crate::session::{Begun, ClientId, ClientKind, Session};
use crate::slow::{Entry, Slow, Thresholds, keep_arguments};
use protocol::Now;
use wire::resp::Arguments;

/// Commands that were slow, and those that may have been.
#[derive(Debug, Default)]
pub(crate) struct Measuring {
    pub(crate) slow: Slow,
    /// Commands that were answered in this turn: [`Context::measure`] notes them.
    answered: Vec<Answered>,
    /// How many commands of this turn were noted.
    noted: usize,
}

/// A command that was slow, or whose own work takes long.
#[derive(Debug)]
struct Answered {
    client: ClientId,
    command: usize,
    /// The group that has carried the command out; 0 if no group has.
    group: u16,
    begun_us: u64,
    /// `None`: the command's work ends with the next reading of the clock.
    took_us: Option<u64>,
    /// Empty for a request that is still being taken.
    arguments: Vec<u8>,
}

/// The most commands that a turn notes, unless all are wanted: commands that are answered together were slow for one
/// reason, and on an overloaded node all of them are slow.
const NOTED_MAX: usize = 16;

impl Measuring {
    /// A turn begins.
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        self.noted = 0;
    }

    /// Whether [`Context::measure`] should be called with a reading of the clock.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        !self.answered.is_empty()
    }

    /// The time that a request took that gets its reply now, if it is to be noted at once. Otherwise the request is
    /// kept until the next [`Context::measure`].
    #[inline]
    pub(crate) fn time_of(
        &mut self,
        session: &Session,
        (sequence, group): (u64, u16),
        now: Now,
        thresholds: Thresholds,
    ) -> Option<u64> {
        let begun = session.begun(sequence)?;
        let took_us = now.monotonic_us.saturating_sub(begun.at_us);
        let is_slow = thresholds.reached(took_us) && (self.noted < NOTED_MAX || thresholds.log_us == 0);
        if !begun.is_long && !is_slow {
            return Some(took_us);
        }
        self.note_answered(session, (sequence, group), begun, took_us);
        None
    }

    #[cold]
    fn note_answered(
        &mut self,
        session: &Session,
        (sequence, group): (u64, u16),
        begun: Begun,
        took_us: u64,
    ) {
        let Some(command) = begun.command else { return };
        self.noted += 1;
        self.answered.push(Answered {
            client: session.id,
            command,
            group,
            begun_us: begun.at_us,
            took_us: (!begun.is_long).then_some(took_us),
            arguments: session.asked(sequence),
        });
    }
}

impl Context {
    /// Notes the arguments of a request that was answered while it was taken.
    pub(crate) fn name_answered(&mut self, arguments: Arguments<'_>) {
        for answered in self.measuring.answered.iter_mut().filter(|answered| answered.arguments.is_empty()) {
            keep_arguments(arguments.iter(), |place| is_secret(arguments, place), &mut answered.arguments);
        }
    }

    /// Notes how long commands took whose work has just ended.
    #[cold]
    pub(crate) fn measure(&mut self, now_us: u64) {
        let thresholds = self.parameters.thresholds();
        for answered in std::mem::take(&mut self.measuring.answered) {
            let took_us = answered.took_us.unwrap_or(now_us.saturating_sub(answered.begun_us));
            self.clients.statistics.took(answered.command, took_us);
            if let Some(group) = self.groups.get_mut(answered.group) {
                group.latency.record(took_us);
            }
            self.note_slow(answered, took_us, thresholds);
        }
    }

    fn note_slow(&mut self, answered: Answered, took_us: u64, thresholds: Thresholds) {
        let Answered { client, command, arguments, .. } = answered;
        let Some(spec) = command::by_number(command) else { return };
        let waits = spec.flags.has(Flag::Blocking)
            || matches!(spec.handler, Handler::Node(NodeCommand::Wait | NodeCommand::Ask));
        let took_us = if waits { 0 } else { took_us };
        let unix_s = self.now.unix_ms / 1000;
        if took_us >= thresholds.event_us {
            let event = if spec.flags.has(Flag::Fast) { "fast-command" } else { "command" };
            self.measuring.slow.note(event, unix_s, took_us / 1000);
        }
        if took_us < thresholds.log_us {
            return;
        }
        let (mut address, mut name) = (String::new(), Vec::new());
        if let Some(session) = self.clients.sessions.get(client) {
            name.clone_from(&session.name);
            if let ClientKind::Resp { address: of_client, .. } = &session.kind {
                address.clone_from(of_client);
            }
        }
        let entry = Entry { unix_s, took_us, arguments, address, name };
        self.measuring.slow.log(entry, self.parameters.slowlog_entries_max());
    }
}

/// Whether an argument is a password, or a name that belongs to one.
#[inline]
pub(crate) fn is_secret(arguments: Arguments<'_>, place: usize) -> bool {
    let is = |at: usize, word: &[u8]| {
        arguments.get(at).is_some_and(|argument| argument.eq_ignore_ascii_case(word))
    };
    let is_behind_auth =
        |behind: usize| place.checked_sub(behind).is_some_and(|at| at >= 2 && is(at, b"AUTH"));
    match arguments.get(0).map_or(0, <[u8]>::len) {
        3 => place > 1 && is(0, b"ACL") && is(1, b"SETUSER"),
        4 => place > 0 && is(0, b"AUTH"),
        5 => is(0, b"HELLO") && (is_behind_auth(1) || is_behind_auth(2)),
        _ => false,
    }
}

//! How much is done for clients in one turn.
//!
//! Nearly all commands take a microsecond. A few walk through a whole table, or match a name with every pattern that
//! any client subscribes to: milliseconds each, and a pipeline holds thousands of them. Only between turns does a
//! node receive messages from other nodes, and send them signs of life. So when a turn has used up its time for
//! requests, further requests of clients wait for the next one, and the clients that were not served in this turn
//! come first.
//!
//! The time of a command is estimated from what it has to look at. Where much was done for a client, the driver measures how
//! long it really took, and that counts if it is more.
//!
//! Clients share turns by what they have used lately ([`Account`](crate::session::Account)). Each gets a share of a turn;
//! who has used least comes first. And where the long requests of all clients that have no outcome yet would take long, no
//! more are taken from those who have used much lately: everyone else's requests are carried out behind what is ordered
//! already.

use crate::context::Context;
use crate::session::{ClientId, Session};
use commands::{ChannelCommand, NodeCommand};
use kv::Command;
use protocol::Request;

/// The work that a turn does for clients besides what their bytes cost, in nanoseconds. One command may take longer.
pub(crate) const TURN_NS: u64 = 2_000_000;

/// How long a turn may read requests of clients, in microseconds as measured, before the rest waits for the next one.
const READING_US: u64 = 5_000;

/// The least share of a turn that a client gets, in nanoseconds.
const SHARE_NS: u64 = 200_000;

/// From this much work on that was done for one client, as estimated, it is measured.
const MEASURED_NS: u64 = 100_000;

/// How much the long requests of all clients may take that have no outcome yet, in nanoseconds, before no more are taken from
/// those who have used much lately.
const CLIENTS_NS_MAX: u64 = 20_000_000;

/// Who has used more than this lately waits for the others.
pub(crate) const MUCH_NS: u64 = 1_000_000;

/// The work for clients in this turn, and what is under way for them.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// The work done for clients in this turn, in nanoseconds; see [`Context::spend`].
    spent_ns: u64,
    /// What was spent when the present share began, and at which it ends.
    share_ns: (u64, u64),
    /// The long requests of all clients that have no outcome yet.
    under_way_ns: u64,
    /// When input was read first in this turn; 0: it was not yet.
    reading_from_us: u64,
    /// When a client was charged last.
    charged_us: Option<u64>,
}

impl Work {
    /// A turn begins.
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        self.reading_from_us = 0;
    }

    /// Counts what is done from now on anew: it has its own share of the turn.
    #[inline]
    pub(crate) fn begin_requests(&mut self) {
        self.spent_ns = 0;
    }

    /// The work done for clients in this turn, in nanoseconds.
    pub(crate) fn spent_ns(&self) -> u64 {
        self.spent_ns
    }

    /// Takes what was spent since `before_ns` had been: it is counted elsewhere.
    pub(crate) fn take_spent_since(&mut self, before_ns: u64) -> u64 {
        std::mem::replace(&mut self.spent_ns, before_ns) - before_ns
    }

    /// Updates the count of a session's work under way.
    #[inline]
    pub(crate) fn follow(&mut self, session: &mut Session) {
        if let Some((before_ns, now_ns)) = session.count_work() {
            self.under_way_ns = self.under_way_ns + now_ns - before_ns;
        }
    }

    /// Stops counting a session that has ended.
    pub(crate) fn end(&mut self, session: &Session) {
        assert!(session.counted_ns() <= self.under_way_ns, "a client's work is a part of the sum");
        self.under_way_ns -= session.counted_ns();
    }

    /// Checks that the sum is that of the sessions.
    pub(crate) fn check_invariants(&self, of_sessions_ns: u64) {
        assert_eq!(self.under_way_ns, of_sessions_ns, "long requests without an outcome");
    }

    /// Whether so much is under way that clients who have used much wait.
    #[inline]
    pub(crate) fn is_much_under_way(&self) -> bool {
        self.under_way_ns >= CLIENTS_NS_MAX
    }
}

/// The most work that a transaction may do in its one step, in nanoseconds.
const TRANSACTION_NS_MAX: u64 = 200_000_000;

/// The most work for those commands of a transaction that the node answers itself, in nanoseconds: they are
/// carried out between two turns of everyone else. What they publish only has [`TRANSACTION_NS_MAX`], since
/// it must not get lost.
const REPORTED_NS_MAX: u64 = 25_000_000;

/// The work of collecting what the node reports about itself: of a node without groups, for each group and
/// for each client.
const FACTS_NS: u64 = 10_000;
const GROUP_FACTS_NS: u64 = 1_500;
const CLIENT_FACTS_NS: u64 = 20;

/// The work of a command that the node answers itself, and of each byte of its answer: most of it is the writing of text.
const ANSWER_NS: u64 = 500;
const ANSWER_BYTE_NS: u64 = 6;

/// The most work that one command may do in its step, in nanoseconds, unless it only returns what is there or removes it. Its
/// group does nothing else meanwhile, on any replica. Some applications load a few hundred thousand elements with one command,
/// which is allowed; larger commands are refused.
const COMMAND_NS_MAX: u64 = 500_000_000;

impl Context {
    /// Counts work that is done for a client.
    #[inline]
    pub(crate) fn spend(&mut self, nanoseconds: u64) {
        self.work.spent_ns = self.work.spent_ns.saturating_add(nanoseconds);
    }

    /// Notes that input was read just now: what was read before has taken its time by then.
    #[inline]
    pub(crate) fn note_reading(&mut self) {
        let now_us = self.now.monotonic_us;
        match self.work.reading_from_us {
            0 => self.work.reading_from_us = now_us,
            from_us if now_us > from_us + READING_US => self.work.spent_ns = self.work.spent_ns.max(TURN_NS),
            _ => {}
        }
    }

    /// Whether this turn has used up its time for requests.
    #[inline]
    pub(crate) fn is_turn_spent(&self) -> bool {
        self.work.spent_ns >= TURN_NS
    }

    /// Begins the share of one of `clients` clients in this turn's work.
    #[inline]
    pub(crate) fn begin_share(&mut self, clients: usize) {
        let share_ns = (TURN_NS / clients.max(1) as u64).max(SHARE_NS);
        self.work.share_ns = (self.work.spent_ns, self.work.spent_ns + share_ns);
    }

    /// Whether the present share is used up, or the turn is.
    #[inline]
    pub(crate) fn is_share_spent(&self) -> bool {
        self.work.spent_ns >= self.work.share_ns.1.min(TURN_NS)
    }

    /// Whether so much was done in the present share that it should be measured.
    #[inline]
    pub(crate) fn is_share_long(&self) -> bool {
        self.work.spent_ns.saturating_sub(self.work.share_ns.0) >= MEASURED_NS
    }

    /// Charges a client for the present share, which has taken `took_us`.
    #[cold]
    pub(crate) fn charge_share(&mut self, client: ClientId, took_us: u64) {
        let estimated_ns = self.work.spent_ns.saturating_sub(self.work.share_ns.0);
        let used_ns = estimated_ns.max(took_us.saturating_mul(1000));
        self.spend(used_ns - estimated_ns);
        let now_us = self.now.monotonic_us;
        self.work.charged_us = Some(now_us);
        if let Some(session) = self.clients.sessions.get_mut(client) {
            session.charge(used_ns, now_us);
        }
    }

    /// Whether a client has used so much of what is short now that it waits for the others.
    #[inline]
    pub(crate) fn waits_for_others(&self, session: &Session) -> bool {
        self.work.is_much_under_way() && session.used_ns(self.now.monotonic_us) > MUCH_NS
    }

    /// Whether any client has been charged so recently that it matters who has used most.
    #[inline]
    pub(crate) fn has_charged(&self) -> bool {
        const REMEMBERED_US: u64 = 5_000_000;
        self.work.charged_us.is_some_and(|at_us| self.now.monotonic_us < at_us + REMEMBERED_US)
    }

    /// Counts the work of a command that the node has answered itself.
    #[inline]
    pub(crate) fn spend_on_answer(&mut self, bytes: usize) {
        self.spend(ANSWER_NS + bytes as u64 * ANSWER_BYTE_NS);
    }

    /// Counts the work of collecting what the node reports about itself.
    #[cold]
    pub(crate) fn spend_on_facts(&mut self) {
        let (groups, clients) = (self.groups.iter().count() as u64, self.clients.sessions.len() as u64);
        self.spend(FACTS_NS + groups * GROUP_FACTS_NS + clients * CLIENT_FACTS_NS);
    }

    /// Whether a transaction may have the node carry out this further command, if the first one began when
    /// `before_ns` had been spent.
    pub(crate) fn has_time_left(&self, before_ns: u64, command: NodeCommand) -> bool {
        let is_published = matches!(command, NodeCommand::Channel(ChannelCommand::Publish { .. }));
        let most_ns = if is_published { TRANSACTION_NS_MAX } else { REPORTED_NS_MAX };
        self.work.spent_ns.saturating_sub(before_ns) <= most_ns
    }

    /// How many nanoseconds a request takes, if it takes long and this node can estimate it; otherwise 0.
    #[inline]
    pub(crate) fn work_ns(&self, group: u16, request: &Request<'_>) -> u64 {
        match request {
            Request::Command(command) if command.may_walk() => self.walk_ns(group, command),
            _ => 0,
        }
    }

    #[cold]
    fn walk_ns(&self, group: u16, command: &Command<'_>) -> u64 {
        let replica = self.groups.get(group).and_then(|group| group.replica.as_ref());
        // A command may ask for more than there is time for (`HRANDFIELD` with a count of 2^62): sums must not overflow.
        const ESTIMATE_NS_MAX: u64 = 3_600_000_000_000;
        replica.map_or(0, |replica| command.walk_ns(replica.table()).min(ESTIMATE_NS_MAX))
    }

    /// Counts the work of a request that is about to be carried out, if it was estimated already what was found. Returns why it
    /// is refused, if it would take too long.
    #[inline]
    pub(crate) fn spend_on(
        &mut self,
        group: u16,
        request: &Request<'_>,
        estimated_ns: Option<u64>,
    ) -> Option<String> {
        let nanoseconds = estimated_ns.unwrap_or_else(|| self.work_ns(group, request));
        self.spend(nanoseconds);
        match request {
            Request::Command(command) if nanoseconds > TRANSACTION_NS_MAX => {
                // Where its parts came from there may be no replica, and so no estimate.
                let gathered = match command {
                    Command::LongEnd { id, .. } => self.gathered(group, *id),
                    _ => None,
                };
                refusal(gathered.as_ref().unwrap_or(command), nanoseconds)
            }
            _ => None,
        }
    }
}

/// Why a command that takes so long is refused, if it is.
#[cold]
fn refusal(command: &Command<'_>, nanoseconds: u64) -> Option<String> {
    let took_ms = nanoseconds / 1_000_000;
    match command.unbounded(&mut None) {
        Command::Transaction(_) | Command::TwoPhase(_) if nanoseconds > TRANSACTION_NS_MAX => Some(format!(
            "ERR the transaction would look at so many keys or fields that it took about {took_ms} ms, and {} ms is all that it may \
             take in one step; nothing was done",
            TRANSACTION_NS_MAX / 1_000_000
        )),
        command if nanoseconds > COMMAND_NS_MAX && command.may_be_too_long() => Some(format!(
            "ERR {} would take about {took_ms} ms, and {} ms is all that a command may take in one step; nothing was done: send \
             its arguments in several commands, or read less",
            command.name(),
            COMMAND_NS_MAX / 1_000_000
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::{AddOptions, List, SortedCommand};

    #[test]
    fn a_long_command_is_refused_with_what_to_do_and_a_long_list_is_not() {
        let mut scratch = Vec::new();
        let pairs = List::build(&mut scratch, [&b"1"[..], b"member"]);
        let (options, counts_changes) = (AddOptions::default(), false);
        let add = Command::OnSorted(SortedCommand::Add { key: b"k", pairs, options, counts_changes });
        let error = refusal(&add, 2 * COMMAND_NS_MAX).unwrap();
        assert!(error.starts_with("ERR ZADD would take about 1000 ms, and 500 ms is all"), "{error}");
        assert!(error.contains("nothing was done: send its arguments in several commands"), "{error}");
        assert_eq!(refusal(&add, COMMAND_NS_MAX), None);
        assert_eq!(refusal(&Command::Keys { pattern: b"*" }, 2 * COMMAND_NS_MAX), None);
        let mut draft = kv::Draft::default();
        assert!(draft.push(&add));
        let transaction = Command::Transaction(draft.transaction());
        assert_eq!(refusal(&transaction, TRANSACTION_NS_MAX), None);
        assert!(
            refusal(&transaction, TRANSACTION_NS_MAX + 1).unwrap().starts_with("ERR the transaction would")
        );
    }
}

//! Clients that wait for elements at keys of several groups.
//!
//! Their commands are carried out by transactions over these groups, as without waiting (`two_phase`). If there is nothing, each
//! group's leader notes the client at its keys, and wakes it when there may be something; then its command is tried again. Nothing is
//! taken for a client before that, so there is nothing to give back.
//!
//! ```text
//!  client     node 2                 leader of 4      leader of 9
//!    | BLPOP a b 0 |                      |                |
//!    |------------>| transaction: nothing |                |
//!    |             | Await a ------------>| notes 2/7      |
//!    |             | Await b ---------------------------->| notes 2/7
//!    |             |<- marks -------------|----------------|
//!    |             |                      |                |<-- RPUSH b x
//!    |             |<- Notified --------------------------|
//!    |             | transaction: takes x |                |
//!    |<-- b, x ----|                      |                |
//!    |             | Leave a, Leave b --->|--------------->| wakes the next client, if there is more
//! ```
//!
//! * **What happens between a transaction that found nothing and the next note** shows in the marks of the keys: they are compared
//!   with those of the note before. The first time, a key that holds anything is a reason to try again.
//! * **What a leader has noted is lost with its leadership**, and a notification may be lost: each group is asked again from time to
//!   time, and when a link breaks. The marks then tell whether something was missed.
//! * **The order**: a leader wakes those first that have waited longest, as many as there are elements. A client that
//!   was woken and took something else, or has gone, is taken off the list, and others are woken in its place.
//! * **The outcome of a transaction is always waited for** before its client gets an answer: what it has taken is the client's. If the
//!   client has left, the transaction takes nothing; if it had gone too far for that, what it has taken is put back.

use super::wait::{KeptWish, Place, SPREAD, Spread, Want};
use super::{RETRY_US, Waits};
use crate::context::{Call, Context};
use crate::session::origin::{Asked, Origin};
use crate::session::{ClientId, Standing};
use commands::Found;
use kv::codec::Reader;
use kv::table::put_back;
use kv::{Command, List, QueueCommand, Reply, ReplyBuffer, StreamCommand, UnixMs, Version, Wish};
use protocol::{Request, Result as Outcome, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use wire::resp::ArgumentsBuffer;

/// How often each group is asked again when nothing seems to be lost.
const AGAIN_US: u64 = 2_000_000;

/// The most that a request that has to claim what is pending for others waits before it looks again.
const CLAIM_US: u64 = 100_000;

/// A transaction that is to begin for a client that waits.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) ticket: Ticket,
    pub(crate) database: u8,
    /// When the client began to wait.
    pub(crate) since: UnixMs,
    pub(crate) wish: KeptWish,
    /// One was carried out before.
    pub(crate) is_again: bool,
    /// It is only checked whether it may begin: where its streams end has to be found first.
    pub(crate) only_checks: bool,
}

/// Whether a command reads a stream from its last entry on, whose id has to be found before there are more.
fn reads_from_now(command: &Command<'_>) -> bool {
    matches!(command, Command::OnStream(StreamCommand::Read { streams, .. })
        if streams.pairs().any(|(_, id)| id == b"$"))
}

impl Waits {
    /// Has a client wait until a command over several groups is served.
    pub(super) fn wait_over_groups(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        wish: Wish<'_>,
        wait_us: u64,
    ) {
        let Some(session) = cx.clients.sessions.get_mut(client) else { return };
        let (ticket, database) = (session.begin(false), session.database);
        let number = self.next_number() | SPREAD;
        session.wait = Some(number);
        cx.counters.transaction_requests += 1;
        let ends_us = cx.now.monotonic_us.saturating_add(wait_us);
        let spread = Spread {
            client,
            database,
            ticket,
            wish: KeptWish::new(wish),
            since: cx.now.unix_ms,
            ends_us,
            groups: BTreeMap::new(),
            map_version: 0,
            is_trying: false,
            is_gone: false,
            is_admitted: false,
            is_again: false,
            has_looked: false,
            is_woken: true,
            not_before_us: 0,
            instead: None,
            error: Vec::new(),
            due_us: u64::MAX,
        };
        self.spreads.insert(number, spread);
        self.go_on(cx, number);
    }

    /// Has the node begin a transaction.
    fn attempt_now(&mut self, cx: &mut Context, number: u64) {
        let Some(spread) = self.spreads.get_mut(&number) else { return };
        (spread.is_trying, spread.is_woken) = (true, false);
        self.look_at_spread(number, u64::MAX);
        cx.call(Call::Attempt { number });
    }

    /// What a transaction is to carry out.
    pub(crate) fn attempt(&mut self, number: u64) -> Option<Attempt> {
        let spread = self.spreads.get_mut(&number)?;
        spread.is_admitted = true;
        let only_checks = reads_from_now(&spread.wish.as_wish().command());
        let is_again = spread.is_again;
        spread.is_again |= !only_checks;
        let Spread { ticket, database, since, .. } = *spread;
        Some(Attempt { ticket, database, since, wish: spread.wish.clone(), is_again, only_checks })
    }

    /// What was to be checked of a request allows it.
    pub(crate) fn admitted(&mut self, cx: &mut Context, number: u64) {
        let Some(spread) = self.spreads.get_mut(&number) else { return };
        (spread.is_trying, spread.is_woken) = (false, true);
        self.go_on(cx, number);
    }

    /// Takes the outcome of a transaction.
    pub(crate) fn attempted(&mut self, cx: &mut Context, number: u64, result: Outcome, reply: ReplyBuffer) {
        let retry_us = cx.now.monotonic_us + RETRY_US;
        let Some(spread) = self.spreads.get_mut(&number) else { return };
        spread.is_trying = false;
        if spread.is_gone {
            if let Outcome::Done { .. } = result {
                let number = spread.database;
                put_back(&spread.wish.as_wish().command(), reply.as_bytes(), |command| {
                    let mut group = 0;
                    command.for_each_key(|key| group = cx.groups.router().database(number).group_of(key));
                    ask_leader(cx, group, Origin::Unawaited.ticket(0), command);
                });
            }
            return self.leave_spread(cx, number);
        }
        match (result, Reply::first(reply.as_bytes())) {
            (Outcome::Done { .. }, Reply::Null | Reply::NullArray) => spread.has_looked = true,
            (Outcome::Refused, Reply::Error(error)) if super::elements::is_temporary(error) => {
                spread.error = error.to_vec();
                (spread.is_woken, spread.not_before_us) = (true, retry_us);
            }
            _ => return self.finish_spread(cx, number, result, reply),
        }
        self.go_on(cx, number);
    }

    /// Does what comes next for a request: ends it, asks groups, or tries again.
    fn go_on(&mut self, cx: &mut Context, number: u64) {
        let now_us = cx.now.monotonic_us;
        let Some(spread) = self.spreads.get_mut(&number) else { return };
        if spread.is_trying {
            return;
        }
        if now_us >= spread.ends_us || spread.instead.is_some() {
            let mut replies = ReplyBuffer::new();
            match &spread.instead {
                Some(error) => replies.push(Reply::Error(error)),
                None if spread.has_looked => replies.push(Reply::NullArray),
                None if spread.error.is_empty() => replies.push(Reply::Error(super::elements::NOT_LOOKED)),
                None => replies.push(Reply::Error(&spread.error)),
            }
            let done = Outcome::Done { version: 0, offset: 0 };
            return self.finish_spread(cx, number, done, replies);
        }
        if now_us < spread.not_before_us {
            let due_us = spread.not_before_us.min(spread.ends_us);
            return self.look_at_spread(number, due_us);
        }
        if spread.map_version != cx.map.version {
            spread.place(cx);
        }
        let to_ask: Vec<u16> =
            spread.groups.iter().filter(|(_, it)| !it.is_noted).map(|(id, _)| *id).collect();
        let ends_us = spread.ends_us;
        let may_try = !reads_from_now(&spread.wish.as_wish().command());
        match to_ask[..] {
            _ if spread.is_woken && (may_try || !spread.is_admitted) => self.attempt_now(cx, number),
            [] => {
                let again_us = spread
                    .wish
                    .as_wish()
                    .claims_after()
                    .map_or(AGAIN_US, |ms| ms.saturating_mul(1000).clamp(CLAIM_US, AGAIN_US));
                self.look_at_spread(number, ends_us.min(now_us + again_us));
            }
            _ => {
                self.look_at_spread(number, ends_us);
                to_ask.into_iter().for_each(|group| self.ask_to_note(cx, number, group));
            }
        }
    }

    /// Has a group's leader note a client.
    fn ask_to_note(&mut self, cx: &mut Context, number: u64, group: u16) {
        let Some(waiter) = self.waiter(number) else { return };
        let Some(spread) = self.spreads.get_mut(&number) else { return };
        let (since, for_entries) = (spread.since, spread.wish.as_wish().awaits_entries());
        let Some(place) = spread.groups.get_mut(&group).filter(|place| !place.is_asked) else { return };
        place.is_asked = true;
        let mut scratch = Vec::new();
        let keys = List::build(&mut scratch, place.keys.iter().map(|key| &**key));
        let command = Command::Queue(QueueCommand::Await { waiter, keys, for_entries, since });
        ask_leader(cx, group, Origin::Wait.ticket(number), &command);
    }

    /// Takes a group's answer: its leader has noted the client, or not.
    pub(super) fn noted(&mut self, cx: &mut Context, group: u16, number: u64, result: Outcome, reply: &[u8]) {
        let retry_us = cx.now.monotonic_us + RETRY_US;
        let Some(spread) = self.spreads.get_mut(&number) else { return };
        let Some(place) = spread.groups.get_mut(&group) else { return };
        place.is_asked = false;
        match (result, Reply::first(reply)) {
            (Outcome::Done { .. }, Reply::Array(_)) => {
                let for_entries = spread.wish.as_wish().awaits_entries();
                let is_changed = place.marks.as_deref() != Some(reply);
                let may_be_there = for_entries || marks_of(reply).iter().any(|mark| *mark != b"0");
                spread.is_woken |= is_changed && may_be_there;
                place.is_noted = true;
                place.marks = Some(reply.to_vec());
            }
            (_, first) => {
                if let Reply::Error(error) = first {
                    spread.error = error.to_vec();
                }
                spread.not_before_us = retry_us;
            }
        }
        if spread.groups.values().all(|place| place.is_noted) {
            spread.read_from_here();
        }
        if spread.groups.values().all(|place| !place.is_asked) {
            self.go_on(cx, number);
        }
    }

    /// A group's leader has woken a client.
    pub(super) fn woken(&mut self, cx: &mut Context, group: u16, number: u64) {
        let Some(spread) = self.spreads.get_mut(&number) else { return };
        let Some(place) = spread.groups.get_mut(&group) else { return };
        place.is_noted = false;
        spread.is_woken = true;
        if spread.groups.values().all(|place| !place.is_asked) {
            self.go_on(cx, number);
        }
    }

    /// A request is due: its time is over, or its groups are asked again.
    pub(super) fn spread_due(&mut self, cx: &mut Context, number: u64) {
        let Some(spread) = self.spreads.get_mut(&number) else { return };
        spread.due_us = u64::MAX;
        if cx.now.monotonic_us >= spread.not_before_us {
            spread.groups.values_mut().for_each(|place| place.is_noted = false);
        }
        // What it may claim becomes old without any record.
        spread.is_woken |= spread.wish.as_wish().claims_after().is_some();
        self.go_on(cx, number);
    }

    /// Asks the groups again in which the requests wait: what a leader has noted may be lost.
    pub(super) fn check_spreads(&mut self, cx: &Context, concerns: impl Fn(u16) -> bool) {
        let now_us = cx.now.monotonic_us;
        let waits_there =
            |spread: &Spread| !spread.is_trying && spread.groups.keys().any(|group| concerns(*group));
        let numbers: Vec<u64> = self
            .spreads
            .iter()
            .filter(|(_, spread)| waits_there(spread))
            .map(|(number, _)| *number)
            .collect();
        numbers.into_iter().for_each(|number| self.look_at_spread(number, now_us));
    }

    /// Ends a request as if its time was over, or with an error; if a transaction is under way, after that.
    pub(super) fn end_spread(&mut self, cx: &mut Context, number: u64, error: Option<&[u8]>) {
        let now_us = cx.now.monotonic_us;
        let Some(spread) = self.spreads.get_mut(&number) else { return };
        spread.ends_us = spread.ends_us.min(now_us);
        spread.instead = error.map(<[u8]>::to_vec);
        self.go_on(cx, number);
    }

    /// The client of a request has disconnected.
    pub(super) fn leave_spread(&mut self, cx: &mut Context, number: u64) {
        let Some(spread) = self.spreads.get_mut(&number) else { return };
        spread.is_gone = true;
        if !spread.is_trying {
            let mut replies = ReplyBuffer::new();
            replies.push(Reply::NullArray);
            self.finish_spread(cx, number, Outcome::Refused, replies);
        }
    }

    fn finish_spread(&mut self, cx: &mut Context, number: u64, result: Outcome, reply: ReplyBuffer) {
        let Some(spread) = self.forget_spread(number) else { return };
        let group = spread.groups.keys().next().copied().unwrap_or(0);
        self.answer(cx, spread.ticket, group, result, reply);
        self.leave_groups(cx, number, &spread);
    }

    fn forget_spread(&mut self, number: u64) -> Option<Spread> {
        let spread = self.spreads.remove(&number)?;
        self.due.remove(&(spread.due_us, number));
        Some(spread)
    }

    /// Tells the leaders that have noted a client, or have woken it, that it waits no longer.
    fn leave_groups(&self, cx: &mut Context, number: u64, spread: &Spread) {
        let Some(waiter) = self.waiter(number) else { return };
        let noted = spread.groups.iter().filter(|(_, it)| it.is_asked || it.marks.is_some());
        for (group, place) in noted {
            let mut scratch = Vec::new();
            let keys = List::build(&mut scratch, place.keys.iter().map(|key| &**key));
            let command = Command::Queue(QueueCommand::Leave { waiter, keys });
            ask_leader(cx, *group, Origin::Unawaited.ticket(0), &command);
        }
    }

    fn look_at_spread(&mut self, number: u64, due_us: u64) {
        let Some(spread) = self.spreads.get_mut(&number) else { return };
        self.due.remove(&(spread.due_us, number));
        spread.due_us = due_us;
        self.due.insert((due_us, number));
    }

    /// The requests over several groups of clients whose users may not do everything.
    pub(super) fn spreads_of_limited_users(
        &self,
        cx: &Context,
    ) -> impl Iterator<Item = (u64, ClientId, Found, ArgumentsBuffer)> {
        self.spreads.iter().filter_map(|(number, spread)| {
            let session = cx.clients.sessions.get(spread.client)?;
            let command = session.begun(spread.ticket.sequence)?.command?;
            let spec = commands::by_number(command).filter(|_| session.standing() == Standing::Limited)?;
            let request = Want::Elements(spread.wish.clone()).request(spec.name);
            Some((*number, spread.client, Found { spec, number: command }, request))
        })
    }

    /// How many clients wait over several groups.
    pub(super) fn waiting_over_groups(&self) -> usize {
        self.spreads.values().filter(|spread| !spread.is_gone).count()
    }

    /// Adds the keys of requests over several groups to those at which clients wait; `consumed`: those that are read for consumer groups.
    pub(super) fn add_awaited_keys<'w>(
        &'w self,
        all: &mut BTreeSet<(u16, &'w [u8])>,
        consumed: &mut BTreeSet<(u16, &'w [u8])>,
    ) {
        for spread in self.spreads.values() {
            let wish = spread.wish.as_wish();
            let keys = || spread.groups.iter().flat_map(|(id, it)| it.keys.iter().map(|key| (*id, &**key)));
            all.extend(keys());
            if wish.awaits_entries() && wish.command().is_write() {
                consumed.extend(keys());
            }
        }
    }
}

impl Spread {
    /// Finds the groups of its keys by the newest map. What is known of a group whose keys are the same stays.
    fn place(&mut self, cx: &Context) {
        let database = cx.groups.router().database(self.database);
        let mut groups: BTreeMap<u16, Place> = BTreeMap::new();
        for key in self.wish.as_wish().awaited_keys() {
            groups.entry(database.group_of(key)).or_default().keys.push(key.into());
        }
        for (id, place) in &mut groups {
            if let Some(before) = self.groups.remove(id).filter(|before| before.keys == place.keys) {
                *place = before;
            }
        }
        (self.groups, self.map_version) = (groups, cx.map.version);
    }

    /// Has a request that reads streams from now on read them behind their last ids, which the groups have told.
    fn read_from_here(&mut self) {
        let command = self.wish.as_wish().command();
        let Command::OnStream(StreamCommand::Read { streams, count }) = command else { return };
        let is_last = |id: &[u8]| id == b"$" || id == b"+" && self.has_looked;
        if !streams.pairs().any(|(_, id)| is_last(id)) {
            return;
        }
        let mut marks: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
        for place in self.groups.values() {
            let told = place.marks.as_deref().map_or(Vec::new(), marks_of);
            marks.extend(place.keys.iter().map(|key| &**key).zip(told));
        }
        let words = streams.pairs().flat_map(|(key, id)| {
            let last = marks.get(key).copied().filter(|_| is_last(id));
            [key, last.unwrap_or(id)]
        });
        let (mut list, mut scratch) = (Vec::new(), Vec::new());
        let streams = List::build(&mut list, words.collect::<Vec<_>>());
        let command = Command::OnStream(StreamCommand::Read { streams, count });
        if let Some(wish) = Wish::build(&command, &mut scratch) {
            self.wish = KeptWish::new(wish);
        }
    }
}

/// The marks of keys in a group's answer.
fn marks_of(reply: &[u8]) -> Vec<&[u8]> {
    let mut reader = Reader::new(reply);
    let _head = Reply::decode(&mut reader);
    std::iter::from_fn(|| match Reply::decode(&mut reader) {
        Ok(Reply::Bulk(mark)) => Some(mark),
        _ => None,
    })
    .collect()
}

/// Submits a question that only a leader may answer.
fn ask_leader(cx: &mut Context, group: u16, ticket: Ticket, command: &Command<'_>) {
    let deadline_us = cx.now.monotonic_us + cx.configuration.command_timeout_ms * 1000;
    let asked = Asked { ticket, follows: false, seen: Version::MAX, deadline_us, hops: 0, leadership: 0 };
    cx.submit(group, asked, &Request::Command(command));
}

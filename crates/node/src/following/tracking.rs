//! Client-side caching (`CLIENT TRACKING`): clients cache what they read until this node sends them an invalidation.
//!
//! The rule: a client that caches a value gets an invalidation when the value changes, or one for everything that it
//! caches. `docs/design/tracking.md` has the reasons for what follows.
//!
//! * A key is noted when its read *begins*. If it changes while requests of the client are under way, its invalidation
//!   follows the reply of the last of these: a reply may be older than the change, and the invalidation for a client's own
//!   change follows the reply to that change. If that takes longer than [`BEHIND_US`], the client gets an invalidation at
//!   once, and another one after the reply of a read.
//! * While any client tracks here, a write's reply waits until this node's replica has applied the write, for
//!   [`BEHIND_US`] at most. So once a client has the reply, all other clients of this node have their invalidations; and
//!   the node knows by then which client made each change (`NOLOOP`).
//! * While any client caches keys of a group, the node asks the group every [`PROBE_US`] for the highest version in use, by
//!   a read like any other, and compares it with that of its own replica. If the replica has not been shown to have what
//!   the group had at some moment of the last [`FRESH_US`], it is not fresh, and all clients drop all that they cache.
//! * The keys that a script has read are listed in its reply, and are noted then. Those that have changed since the script
//!   began are invalidated right after the reply.
//! * What is read from a group whose replica here is not fresh, from a group without a replica here, or from registers, is
//!   invalidated right after its reply.

use super::ANSWER_US;
use crate::context::Context;
use crate::session::origin::{Asked, Origin};
use crate::session::{ClientId, Session, TrackingMode};
use kv::codec::Reader;
use kv::table::Changes;
use kv::{Command, List, Reply, ReplyBuffer, Table, Version};
use protocol::planted::Fault;
use protocol::{Now, Request, Result as Outcome, Ticket};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::resp::Protocol;

/// How long a client may cache what it has read after the last moment at which this node's replica is known to have had
/// all that its group had acknowledged, in microseconds.
const FRESH_US: u64 = 900_000;

/// How long an invalidation waits for the reply that it follows, and a write's reply for this node's replica to apply the
/// write, in microseconds.
const BEHIND_US: u64 = 100_000;

/// After how long without an answer a group is asked again, in microseconds.
const PROBE_US: u64 = 500_000;

/// The most keys that are invalidated after one reply; beyond that, everything that the client caches is.
const OWED_KEYS_MAX: usize = 1000;

/// How many changed keys are remembered while scripts are under way; beyond that, all count as changed.
const LATELY_KEYS: usize = 10_000;

/// In the place of a request's number: an invalidation for the end of this turn, which waits for no reply.
const AT_ONCE: u64 = 0;

/// How many of the keys above the limit one turn drops.
const LEFT_OUT_AT_ONCE: usize = 10_000;

/// Roughly how long it takes to send one client an invalidation, in nanoseconds.
const SENT_NS: u64 = 300;

/// The channel on which clients of RESP2 get invalidations.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// The clients that track, and what they cache.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    clients: BTreeSet<ClientId>,
    keys: BTreeMap<Box<[u8]>, Keepers>,
    /// The keys by the numbers of their first reads.
    ages: BTreeMap<u64, Box<[u8]>>,
    reads: u64,
    /// How many keys are cached, each counted once for each client.
    items: usize,
    prefixes: BTreeMap<Vec<u8>, BTreeSet<ClientId>>,
    /// The number of prefixes of each length.
    lengths: BTreeMap<usize, usize>,
    /// The groups whose keys are cached.
    groups: BTreeMap<u16, Freshness>,
    /// The invalidations that are to follow the reply of a request, by client and request.
    owed: BTreeMap<(ClientId, u64), Owed>,
    /// The writes answered in this turn, of clients that want no invalidations for their own changes (`NOLOOP`).
    own: Vec<(ClientId, Change)>,
    /// Scripts under way, by their clients and requests.
    scripts: BTreeMap<(ClientId, u64), UnderWay>,
    /// The keys that change while scripts are under way.
    lately: Lately,
    /// Replies that wait for this node's replica of their group, in the order in which they arrived. No queue is empty.
    held: BTreeMap<u16, VecDeque<Held>>,
}

/// A record of a group, by its version.
type Change = (u16, Version);

/// A write's reply that is held until this node's replica has applied the write.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) ticket: Ticket,
    pub(crate) group: u16,
    pub(crate) result: Outcome,
    pub(crate) reply: Vec<u8>,
    offset: Version,
    until_us: u64,
}

/// The clients that cache a key.
#[derive(Debug)]
struct Keepers {
    number: u64,
    clients: BTreeSet<ClientId>,
}

/// The invalidations that a client is owed after one reply.
#[derive(Debug)]
struct Owed {
    /// The keys, each with the record that changed it, if it was only one.
    keys: BTreeMap<Box<[u8]>, Option<Change>>,
    is_all: bool,
    /// When it is sent even if the reply has not arrived; `None`: that has been done.
    until_us: Option<u64>,
}

/// A script, or a transaction with scripts, whose reply has not arrived.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    group: u16,
    /// How many changes there had been when it began.
    begun: u64,
    /// Whether this node's replica was fresh then.
    is_fresh: bool,
}

/// The keys that have changed while scripts were under way.
#[derive(Debug, Default)]
struct Lately {
    /// The latest change of each key: its number, and its record.
    keys: BTreeMap<Box<[u8]>, (u64, Option<Change>)>,
    /// The number of changes, and the number of the change up to which all keys count as changed.
    count: u64,
    floor: u64,
}

impl Lately {
    fn note(&mut self, key: &[u8], by: Option<Change>) {
        if self.keys.len() >= LATELY_KEYS {
            return self.note_all();
        }
        self.count += 1;
        self.keys.insert(key.into(), (self.count, by));
    }

    fn note_all(&mut self) {
        self.count += 1;
        self.floor = self.count;
        self.keys.clear();
    }

    /// If a key has changed since the count of changes was `begun`: by which record, if that is known.
    fn since(&self, begun: u64, key: &[u8]) -> Option<Option<Change>> {
        if self.floor > begun {
            return Some(None);
        }
        self.keys.get(key).filter(|(number, _)| *number > begun).map(|(_, by)| *by)
    }
}

/// How fresh a group's replica at this node is known to be.
#[derive(Debug)]
struct Freshness {
    /// The last moment at which it is known to have had all that the group had acknowledged.
    confirmed_us: u64,
    /// When the group was asked, if there is no answer yet.
    asked_us: Option<u64>,
    /// When the group was asked, and the version in its answer, which the replica has not reached yet.
    awaited: Option<(u64, Version)>,
    is_fresh: bool,
}

impl Tracking {
    /// Whether any client tracks.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.clients.is_empty()
    }

    /// The number of clients that track, of keys that they cache, of these counted once for each client, and of prefixes.
    pub(crate) fn counts(&self) -> [usize; 4] {
        [self.clients.len(), self.keys.len(), self.items, self.prefixes.len()]
    }

    /// A client begins to track, or tracks further prefixes.
    pub(crate) fn begin(&mut self, client: ClientId, session: &Session) {
        self.clients.insert(client);
        for prefix in session.tracking.iter().flat_map(|choice| &choice.prefixes) {
            let clients = self.prefixes.entry(prefix.clone()).or_insert_with(|| {
                *self.lengths.entry(prefix.len()).or_default() += 1;
                BTreeSet::new()
            });
            clients.insert(client);
        }
    }

    /// Ends a client's tracking, also when it is disconnected. The keys that it cached are forgotten as they change.
    pub(crate) fn end(&mut self, client: ClientId) {
        self.clients.remove(&client);
        let lengths = &mut self.lengths;
        self.prefixes.retain(|prefix, clients| {
            clients.remove(&client);
            if clients.is_empty() {
                let count = lengths.entry(prefix.len()).or_default();
                *count -= 1;
                if *count == 0 {
                    lengths.remove(&prefix.len());
                }
            }
            !clients.is_empty()
        });
        self.owed.retain(|(owed, _), _| *owed != client);
        self.scripts.retain(|(running, _), _| *running != client);
        if self.clients.is_empty() {
            let held = std::mem::take(&mut self.held);
            *self = Tracking { reads: self.reads, held, ..Tracking::default() };
        }
    }

    /// Notes the keys of a client's request that may read, when the request begins.
    pub(crate) fn note_read(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        sequence: u64,
        group: u16,
        command: &Command<'_>,
    ) {
        let Some(session) = cx.clients.sessions.get_mut(client) else { return };
        let Some(choice) = session.tracking.as_mut().filter(|choice| choice.keeps()) else { return };
        let mut keys = Vec::new();
        for_each_key_read(command, |key| keys.push(key));
        let has_script = has_script(command);
        if keys.is_empty() && !has_script {
            return;
        }
        choice.last_read = Some(sequence);
        if has_script {
            let (begun, is_fresh) = (self.lately.count, self.is_fresh(cx, group));
            self.scripts.insert((client, sequence), UnderWay { group, begun, is_fresh });
        }
        self.note_keys(cx, client, sequence, group, keys.into_iter());
    }

    /// Notes keys of a group that a client's request may read, when the request begins.
    pub(crate) fn note_keys<'k>(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        sequence: u64,
        group: u16,
        keys: impl Iterator<Item = &'k [u8]>,
    ) {
        let Some(session) = cx.clients.sessions.get_mut(client) else { return };
        let Some(choice) = session.tracking.as_mut().filter(|choice| choice.keeps()) else { return };
        choice.last_read = Some(sequence);
        let has_prefixes = choice.mode == TrackingMode::Prefixes;
        let is_fresh = self.is_fresh(cx, group);
        for key in keys {
            if !is_fresh {
                self.owe(cx, client, sequence, Some(key), None);
            } else if !has_prefixes {
                self.keep(client, key);
            }
        }
    }

    /// Takes the reply to a request that runs scripts, and returns it without the list of keys read. Notes now that the
    /// client caches these keys: they are not all known when a script begins.
    #[inline]
    pub(crate) fn take_reads<'r>(
        &mut self,
        cx: &mut Context,
        (client, sequence): (ClientId, u64),
        result: Outcome,
        reply: &'r [u8],
    ) -> &'r [u8] {
        match self.scripts.is_empty() && !ReplyBuffer::has_reads(reply) {
            true => reply,
            false => self.take_reads_of_script(cx, (client, sequence), result, reply),
        }
    }

    #[cold]
    fn take_reads_of_script<'r>(
        &mut self,
        cx: &mut Context,
        (client, sequence): (ClientId, u64),
        result: Outcome,
        reply: &'r [u8],
    ) -> &'r [u8] {
        let split = ReplyBuffer::split_reads(reply);
        let rest = split.as_ref().map_or(reply, |(_, rest)| *rest);
        // Without one, the client has ended its tracking, or no script ran.
        let Some(script) = self.scripts.remove(&(client, sequence)) else { return rest };
        match split {
            Some((reads, _)) if !reads.are_more => {
                for key in &reads.keys {
                    self.take_read(cx, client, sequence, script, result, key);
                }
            }
            // No script has run, so nothing was read.
            None if matches!(Reply::first(reply), Reply::Error(_) | Reply::NullArray) => {}
            _ => self.owe(cx, client, sequence, None, None),
        }
        if self.scripts.is_empty() {
            self.lately.keys.clear();
        }
        rest
    }

    fn take_read(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        sequence: u64,
        script: UnderWay,
        result: Outcome,
        key: &[u8],
    ) {
        let choice = cx.clients.sessions.get(client).and_then(|session| session.tracking.as_ref());
        let Some((mode, is_noloop)) = choice.map(|choice| (choice.mode, choice.is_noloop)) else { return };
        if !script.is_fresh || !self.is_fresh(cx, script.group) {
            return self.owe(cx, client, sequence, Some(key), None);
        }
        if mode == TrackingMode::Prefixes {
            return;
        }
        let own = match result {
            Outcome::Done { offset, .. } if is_noloop && offset > 0 => Some((script.group, offset)),
            _ => None,
        };
        match self.lately.since(script.begun, key) {
            Some(by) if by.is_none() || by != own => self.owe(cx, client, sequence, Some(key), by),
            _ => self.keep(client, key),
        }
    }

    fn keep(&mut self, client: ClientId, key: &[u8]) {
        let is_new = match self.keys.get_mut(key) {
            Some(keepers) => keepers.clients.insert(client),
            None => {
                self.reads += 1;
                let keepers = Keepers { number: self.reads, clients: BTreeSet::from([client]) };
                self.ages.insert(self.reads, key.into());
                self.keys.insert(key.into(), keepers);
                true
            }
        };
        self.items += usize::from(is_new);
    }

    /// Whether this node's replica of a group applies changes in time.
    fn is_fresh(&mut self, cx: &Context, group: u16) -> bool {
        let has_replica =
            cx.groups.get(group).is_some_and(|group| group.replica.is_some() && group.keyspace.has_leader());
        if !has_replica {
            return false;
        }
        // Before the first answer it counts as fresh: if it is not, what is cached from now on is dropped in time.
        let confirmed_us = cx.now.monotonic_us;
        let fresh = Freshness { confirmed_us, asked_us: None, awaited: None, is_fresh: true };
        self.groups.entry(group).or_insert(fresh).is_fresh
    }

    /// Notes a reply to a client of this node. If it answers a write of a client that wants no invalidations for its own
    /// changes (`NOLOOP`), the client gets none for that write.
    pub(crate) fn note_reply(&mut self, cx: &Context, client: ClientId, group: u16, result: Outcome) {
        let Outcome::Done { offset, .. } = result else { return };
        let choice = cx.clients.sessions.get(client).and_then(|session| session.tracking.as_ref());
        if offset == 0 || !choice.is_some_and(|choice| choice.is_noloop) {
            return;
        }
        let change = (group, offset);
        self.own.push((client, change));
        let mut own = Vec::new();
        for (_, owed) in self.owed.range_mut((client, 0)..=(client, u64::MAX)) {
            own.extend(owed.keys.extract_if(.., |_, by| *by == Some(change)).map(|(key, _)| key));
        }
        if !has_prefixes(cx, client) {
            own.iter().for_each(|key| self.keep(client, key));
        }
    }

    /// Takes a write's reply if it has to wait until this node's replica has applied the write.
    pub(crate) fn holds_back(
        &mut self,
        cx: &Context,
        ticket: Ticket,
        group: u16,
        result: Outcome,
        reply: &[u8],
    ) -> bool {
        let Outcome::Done { offset, .. } = result else { return false };
        let is_of_client = matches!(Origin::of(ticket), Origin::Session(_) | Origin::Part(_));
        if !is_of_client || offset == 0 || offset <= applied(cx, group) {
            return false;
        }
        let until_us = cx.now.monotonic_us + BEHIND_US;
        let held = Held { ticket, group, result, reply: reply.to_vec(), offset, until_us };
        self.held.entry(group).or_default().push_back(held);
        true
    }

    /// Whether any reply waits, or an invalidation for one.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.held.is_empty() || !self.owed.is_empty()
    }

    /// Returns the replies that need not wait any longer. This runs after each step of a replica, so it looks only at the
    /// first reply of each group that still has to wait.
    pub(crate) fn take_held(&mut self, cx: &Context) -> Vec<Held> {
        let (now_us, is_on, mut due) = (cx.now.monotonic_us, self.is_on(), Vec::new());
        for (group, waiting) in &mut self.held {
            let applied = applied(cx, *group);
            let is_due = |held: &Held| !is_on || held.until_us <= now_us || held.offset <= applied;
            while waiting.front().is_some_and(is_due) {
                due.extend(waiting.pop_front());
            }
        }
        self.held.retain(|_, waiting| !waiting.is_empty());
        due
    }

    /// Sends the invalidations that have waited too long for a reply.
    pub(crate) fn send_overdue(&mut self, cx: &mut Context) {
        let now_us = cx.now.monotonic_us;
        let is_overdue = |owed: &Owed| owed.until_us.is_some_and(|until_us| until_us <= now_us);
        let overdue: Vec<(ClientId, u64)> =
            self.owed.iter().filter(|(_, owed)| is_overdue(owed)).map(|(place, _)| *place).collect();
        for place @ (client, _) in overdue {
            let Some(mut owed) = self.owed.remove(&place) else { continue };
            send_owed(cx, client, &owed);
            // The reply of a read that is under way may be older than the change.
            let session = cx.clients.sessions.get(client);
            if session.is_some_and(|session| session.read_under_way().is_some()) {
                owed.until_us = None;
                owed.keys.values_mut().for_each(|by| *by = None);
                self.owed.insert(place, owed);
            }
        }
    }

    /// Invalidates what has changed in a group, except at clients that want no invalidations for their own changes (`NOLOOP`).
    pub(crate) fn take(&mut self, cx: &mut Context, group: u16, changes: &Changes) {
        if changes.is_incomplete() {
            return self.drop_all(cx, false);
        }
        let mut before = None;
        for change in changes.iter() {
            if !change.class.is_beside() && before != Some((change.key, change.version)) {
                self.invalidate(cx, change.key, Some((group, change.version)));
                before = Some((change.key, change.version));
            }
        }
    }

    /// Invalidates a key at the clients that cache it. The client that has changed it still caches it, if it asked for that
    /// (`NOLOOP`).
    fn invalidate(&mut self, cx: &mut Context, key: &[u8], by: Option<Change>) {
        if !self.scripts.is_empty() {
            self.lately.note(key, by);
        }
        let own = self.own.iter().find(|(_, change)| Some(*change) == by);
        let changed_by = own.map(|(client, _)| *client);
        if let Some(Keepers { number, clients }) = self.keys.remove(key) {
            self.ages.remove(&number);
            self.items -= clients.len();
            for client in clients {
                match Some(client) == changed_by {
                    true => self.keep(client, key),
                    // It read the key before it switched to prefixes: the key is no longer noted for it.
                    false if has_prefixes(cx, client) => {}
                    false => self.invalidate_for(cx, client, Some(key), by, false),
                }
            }
        }
        let lengths: Vec<usize> = self.lengths.range(..=key.len()).map(|(length, _)| *length).collect();
        for length in lengths {
            let clients: Vec<ClientId> =
                self.prefixes.get(&key[..length]).into_iter().flatten().copied().collect();
            for client in clients.into_iter().filter(|client| Some(*client) != changed_by) {
                self.invalidate_for(cx, client, Some(key), by, false);
            }
        }
    }

    /// Has every client drop all that it caches: at once, or after the replies of its requests.
    fn drop_all(&mut self, cx: &mut Context, at_once: bool) {
        self.lately.note_all();
        self.keys.clear();
        self.ages.clear();
        self.items = 0;
        for client in self.clients.clone() {
            self.invalidate_for(cx, client, None, None, at_once);
        }
    }

    /// Sends a client an invalidation of a key, or of all, after the replies of its requests under way; with `at_once` also
    /// now.
    fn invalidate_for(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        key: Option<&[u8]>,
        by: Option<Change>,
        at_once: bool,
    ) {
        let Some(session) = cx.clients.sessions.get(client) else { return };
        // A client that has ended its tracking, or changed it, may still be noted for keys.
        let Some(choice) = &session.tracking else { return };
        let has_prefixes = choice.mode == TrackingMode::Prefixes;
        if key.is_some() && has_prefixes && !has_prefix(session, key.unwrap_or_default()) {
            return;
        }
        let under_way = session.last_under_way().filter(|_| !planted_before_reply(cx));
        match under_way {
            Some(sequence) => self.owe(cx, client, sequence, key, by),
            // Many keys may match its prefixes: those of one turn go into one message.
            None if has_prefixes => return self.owe(cx, client, AT_ONCE, key, by),
            None => {}
        }
        if under_way.is_none() || at_once {
            send(cx, client, key.as_slice().iter().copied(), key.is_none());
        }
    }

    /// Notes an invalidation that is to follow the reply of a request.
    fn owe(&mut self, cx: &Context, client: ClientId, sequence: u64, key: Option<&[u8]>, by: Option<Change>) {
        let until_us = cx.now.monotonic_us + BEHIND_US;
        let fresh = || Owed { keys: BTreeMap::new(), is_all: false, until_us: Some(until_us) };
        let owed = self.owed.entry((client, sequence)).or_insert_with(fresh);
        owed.until_us.get_or_insert(until_us);
        match key {
            Some(key) if owed.keys.len() < OWED_KEYS_MAX => {
                let noted = owed.keys.entry(key.into()).or_insert(by);
                *noted = noted.filter(|noted| Some(*noted) == by);
            }
            _ => owed.is_all = true,
        }
    }

    /// At the end of a turn, sends the invalidations that follow the replies written now, and invalidates the oldest keys if
    /// there are too many.
    pub(crate) fn end_turn(&mut self, cx: &mut Context) {
        let most = cx.parameters.tracked_keys_max();
        let beyond = if most > 0 { self.keys.len().saturating_sub(most) } else { 0 };
        for _ in 0..beyond.min(LEFT_OUT_AT_ONCE) {
            let Some((_, oldest)) = self.ages.pop_first() else { break };
            self.invalidate(cx, &oldest, None);
        }
        self.own.clear();
        if !self.scripts.is_empty() {
            self.give_up_scripts(cx);
        }
        if self.owed.is_empty() {
            return;
        }
        let is_due = |(client, sequence): &(ClientId, u64)| {
            cx.clients.sessions.get(*client).is_none_or(|session| !session.is_under_way(*sequence))
        };
        let due: Vec<(ClientId, u64)> = self.owed.keys().copied().filter(is_due).collect();
        for place in due {
            if let Some(owed) = self.owed.remove(&place) {
                send_owed(cx, place.0, &owed);
            }
        }
    }

    /// Ends scripts that were answered without a list of what they read. Their clients may cache anything, so they drop all.
    fn give_up_scripts(&mut self, cx: &Context) {
        let is_over = |(client, sequence): &(ClientId, u64), _: &mut UnderWay| {
            cx.clients.sessions.get(*client).is_none_or(|session| !session.is_under_way(*sequence))
        };
        let over: Vec<(ClientId, u64)> =
            self.scripts.extract_if(.., is_over).map(|(place, _)| place).collect();
        for (client, sequence) in over {
            self.owe(cx, client, sequence, None, None);
        }
        if self.scripts.is_empty() {
            self.lately.keys.clear();
        }
    }

    /// Checks the groups whose keys are cached, several times in [`FRESH_US`]: asks each for the highest version in use,
    /// unless an answer is awaited.
    pub(crate) fn tick(&mut self, cx: &mut Context) {
        if !self.prefixes.is_empty() {
            // A client that tracks prefixes may cache keys of any group, which other connections have read for it.
            cx.groups.ids().iter().for_each(|group| _ = self.is_fresh(cx, *group));
        }
        let now_us = cx.now.monotonic_us;
        let (mut asked, mut is_any_stale) = (Vec::new(), false);
        self.groups.retain(|id, fresh| {
            let replica = cx.groups.get(*id).and_then(|group| group.replica.as_ref());
            let Some(replica) = replica else {
                is_any_stale |= fresh.is_fresh;
                return false;
            };
            fresh.confirm(cx.now, replica.table());
            if fresh.is_fresh
                && now_us.saturating_sub(fresh.confirmed_us) > FRESH_US
                && !cx.configuration.planted.has(Fault::CachesOutliveLink)
            {
                fresh.is_fresh = false;
                is_any_stale = true;
            }
            let is_under_way = fresh.asked_us.is_some_and(|asked_us| now_us < asked_us + PROBE_US);
            if fresh.awaited.is_none() && !is_under_way {
                fresh.asked_us = Some(now_us);
                asked.push(*id);
            }
            true
        });
        if is_any_stale {
            self.drop_all(cx, true);
        }
        for group in asked {
            let (ticket, deadline_us) = (Origin::Freshness.ticket(now_us), now_us + ANSWER_US);
            // The answer must not come from a replica that may be stale.
            let asked =
                Asked { ticket, follows: false, seen: Version::MAX, deadline_us, hops: 0, leadership: 0 };
            let mut scratch = Vec::new();
            let keys = List::build(&mut scratch, []);
            cx.submit(group, asked, &Request::Command(&Command::Watch { keys }));
        }
    }

    /// Takes a group's answer to the question that was asked at `asked_us`.
    pub(crate) fn answered(
        &mut self,
        cx: &Context,
        group: u16,
        asked_us: u64,
        result: Outcome,
        reply: &[u8],
    ) {
        let Some(fresh) = self.groups.get_mut(&group).filter(|fresh| fresh.asked_us == Some(asked_us)) else {
            return;
        };
        fresh.asked_us = None;
        let mut reader = Reader::new(reply);
        if let (Outcome::Done { .. }, Ok(Reply::Array(1)), Ok(Reply::Integer(version))) =
            (result, Reply::decode(&mut reader), Reply::decode(&mut reader))
            && let Some(replica) = cx.groups.get(group).and_then(|group| group.replica.as_ref())
        {
            fresh.awaited = Some((asked_us, version as Version));
            fresh.confirm(cx.now, replica.table());
        }
    }
}

impl Freshness {
    /// Notes that the replica is fresh, if its table has reached the group's version, and no longer holds any key that had
    /// expired when the group was asked: expired keys are removed by a record, which may wait for a majority like any other.
    fn confirm(&mut self, now: Now, table: &Table) {
        if let Some((asked_us, awaited)) = self.awaited
            && table.version_floor() >= awaited
            && table.purge_until(now.unix_ms.saturating_sub(now.ms_since(asked_us)), 1).is_none()
        {
            (self.confirmed_us, self.awaited, self.is_fresh) = (asked_us, None, true);
        }
    }
}

/// Whether a command runs scripts.
fn has_script(command: &Command<'_>) -> bool {
    match command {
        Command::Script(_) => true,
        Command::Transaction(transaction) => {
            transaction.commands().any(|it| matches!(it, Command::Script(_)))
        }
        _ => false,
    }
}

/// Calls `visit` with the keys that a command reads and that its client may cache: those that its reads name. What scripts
/// read is known only after they have run.
fn for_each_key_read<'a>(command: &Command<'a>, mut visit: impl FnMut(&'a [u8])) {
    match command {
        Command::Transaction(transaction) => {
            for command in transaction.commands() {
                if !matches!(command, Command::Script(_)) && !command.is_write() {
                    command.for_each_key(&mut visit);
                }
            }
        }
        Command::Watch { .. } | Command::Script(_) => {}
        command if !command.is_write() => command.for_each_key(visit),
        _ => {}
    }
}

fn has_prefixes(cx: &Context, client: ClientId) -> bool {
    let choice = cx.clients.sessions.get(client).and_then(|session| session.tracking.as_ref());
    choice.is_some_and(|choice| choice.mode == TrackingMode::Prefixes)
}

fn has_prefix(session: &Session, key: &[u8]) -> bool {
    let choice = session.tracking.as_ref();
    choice.is_some_and(|choice| choice.prefixes.iter().any(|prefix| key.starts_with(prefix)))
}

/// The version up to which this node's replica of a group has applied all records; `Version::MAX` if there is no such
/// replica here, or if it leads, since a leader's reply comes after its own record.
fn applied(cx: &Context, group: u16) -> Version {
    let group = cx.groups.get(group).filter(|group| group.keyspace.has_leader());
    let replica = group.and_then(|group| group.replica.as_ref()).filter(|replica| !replica.is_leader());
    replica.map_or(Version::MAX, |replica| replica.summary(cx.now).applied)
}

fn planted_before_reply(cx: &Context) -> bool {
    cx.configuration.planted.has(Fault::InvalidatedBeforeReply)
}

/// Sends a client the invalidations that follow a reply. A client that tracks prefixes gets one message for each prefix,
/// as in Redis.
fn send_owed(cx: &mut Context, client: ClientId, owed: &Owed) {
    let keys = &owed.keys;
    if owed.is_all {
        return send(cx, client, std::iter::empty(), true);
    }
    let choice = cx.clients.sessions.get(client).and_then(|session| session.tracking.as_ref());
    let prefixes =
        choice.filter(|choice| choice.mode == TrackingMode::Prefixes).map(|choice| choice.prefixes.clone());
    for prefix in prefixes.unwrap_or_else(|| BTreeSet::from([Vec::new()])) {
        let with_prefix = keys.keys().map(|key| &**key).filter(|key| key.starts_with(&prefix));
        if with_prefix.clone().next().is_some() {
            send(cx, client, with_prefix, false);
        }
    }
}

/// Sends a client, or the one that it redirects to, the names of keys that are no longer valid.
fn send<'k>(cx: &mut Context, client: ClientId, keys: impl Iterator<Item = &'k [u8]> + Clone, is_all: bool) {
    cx.spend(SENT_NS);
    let Some(session) = cx.clients.sessions.get_mut(client) else { return };
    let protocol = session.protocol();
    let Some(choice) = &mut session.tracking else { return };
    let redirect = choice.redirect;
    let to = redirect.map_or(client, |(_, to)| to);
    let mut message = ReplyBuffer::new();
    let Some(receiver) = cx.clients.sessions.get(to) else {
        if let Some(choice) =
            cx.clients.sessions.get_mut(client).and_then(|session| session.tracking.as_mut())
        {
            choice.is_broken = true;
        }
        if let (Protocol::Resp3, Some((number, _))) = (protocol, redirect) {
            message.push(Reply::Push(2));
            message.bulk(b"tracking-redir-broken");
            message.integer(number as i64);
            cx.push(client, message.as_bytes());
        }
        return;
    };
    match (receiver.protocol(), redirect) {
        (Protocol::Resp3, _) => {
            message.push(Reply::Push(2));
            message.bulk(b"invalidate");
        }
        (Protocol::Resp2, Some(_)) if receiver.subscriptions.is_some() => {
            message.push(Reply::Push(3));
            message.bulk(b"message");
            message.bulk(CHANNEL);
        }
        // Clients of RESP2 get nothing that they have not asked for.
        (Protocol::Resp2, _) => return,
    }
    if is_all {
        message.push(Reply::NullArray);
    } else {
        message.array(keys.clone().count());
        keys.for_each(|key| message.bulk(key));
    }
    cx.push(to, message.as_bytes());
}

//! Requests that wait for elements: which request is served what, and when. For their state see [`crate::queues`].
//!
//! The record that adds an element serves the first request that waits at its key, after the whole record has been carried
//! out: the length that `LPUSH` returns includes the element, and a transaction or a script is not disturbed. A request is
//! served the reply to its command, as if the client had called it at this moment.

use super::kind::Kind;
use super::refusals::WRONG_KIND;
use super::{Record, Table};
use crate::UnixMs;
use crate::codec::Reader;
use crate::command::{
    AddOptions, Awaited, Command, Keys, List, ListCommand, LockCommand, QueueCommand, SortedCommand,
    StreamCommand, WaiterId, Wish,
};
use crate::locks::{LockEvent, LockNotification, QUEUED};
use crate::planted::Fault;
use crate::queues::{Origin, Queues, SERVED, Served};
use crate::reply::{Reply, ReplyBuffer};
use std::collections::VecDeque;

/// Most elements that one request is served, if it wants several: each replica keeps them until the request is settled.
const ELEMENTS_MAX: u64 = 1000;

/// Once the elements for one request have this many bytes, it gets no more.
const ELEMENTS_BYTES: usize = 1 << 20;

const TOO_MANY_WAIT: &str =
    "TRYAGAIN OVERLOADED too many clients wait for elements of this group's keys already";

/// Keys at which requests may be served now.
pub(super) type Ready = VecDeque<Box<[u8]>>;

impl Awaited {
    fn of(kind: Kind) -> Option<Awaited> {
        match kind {
            Kind::List => Some(Awaited::Elements),
            Kind::Sorted => Some(Awaited::Members),
            Kind::Stream => Some(Awaited::Entries),
            _ => None,
        }
    }
}

fn has_elements(kind: Kind) -> bool {
    matches!(Awaited::of(kind), Some(Awaited::Elements | Awaited::Members))
}

/// Where the elements that a command takes are returned to, if its client does not get them.
fn origin_of(command: &Command<'_>) -> Origin {
    use ListCommand::{MultiPop, PopAny};
    match command {
        Command::OnList(MultiPop { at_front, .. } | PopAny { at_front, .. }) => {
            if *at_front {
                Origin::Front
            } else {
                Origin::End
            }
        }
        Command::OnSorted(_) => Origin::Members,
        _ => Origin::None,
    }
}

impl Table {
    /// The requests that wait for elements.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    pub(super) fn apply_to_queues(
        &mut self,
        command: &QueueCommand<'_>,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        match *command {
            QueueCommand::Ask { waiter, wish } => self.ask(waiter, wish, record, out),
            QueueCommand::Conclude { waiter } => match self.queues.claim(waiter) {
                Some(reply) => out.extend_encoded(reply),
                None => {
                    let has_waited = self.queues.remove_waiting(waiter).is_some();
                    let reply = if has_waited { Reply::NullArray } else { Reply::Null };
                    self.conclude_with_nothing(waiter, reply, record);
                    out.push(reply);
                }
            },
            QueueCommand::Withdraw { waiter, only_unclaimed } => {
                let is_claimed = self.queues.served_to(waiter).is_some_and(|served| served.is_claimed);
                let mut ready = Ready::new();
                let is_done = self.queues.remove_waiting(waiter).is_some()
                    || !(is_claimed && only_unclaimed) && self.give_back(waiter, record, &mut ready);
                self.serve(ready, record);
                out.integer(i64::from(is_done));
            }
            QueueCommand::Settle { node, life, numbers } => {
                let ids = numbers.chunks_exact(8).filter_map(|number| WaiterId::numbered(node, life, number));
                // A late record may have queued a request again although its client already has its reply.
                let is_known = |id: &WaiterId| {
                    self.queues.remove_served(*id).is_some() || self.queues.remove_waiting(*id).is_some()
                };
                let known = ids.filter(is_known).count();
                out.integer(known as i64);
            }
            // Answered by `read_queues`.
            QueueCommand::Check { .. } | QueueCommand::Await { .. } | QueueCommand::Leave { .. } => {}
        }
        // The places of requests are versions.
        self.raise_floor(record);
    }

    pub(super) fn read_queues(&mut self, command: &QueueCommand<'_>, now: UnixMs, out: &mut ReplyBuffer) {
        let waiter = match *command {
            QueueCommand::Check { waiter } => waiter,
            QueueCommand::Await { waiter, keys, for_entries, since } => {
                self.queues.watchers.sweep(now);
                if !self.queues.watchers.has_room_for(keys.len()) {
                    return out.error(TOO_MANY_WAIT);
                }
                out.array(keys.len());
                for key in keys.iter() {
                    let mark = self.mark_of(key, for_entries, now);
                    out.bulk(&mark);
                    let mark = for_entries.then(|| mark.into());
                    self.queues.watchers.add(key, (since, waiter), mark, now);
                }
                return;
            }
            QueueCommand::Leave { waiter, keys } => {
                for key in keys.iter() {
                    self.queues.watchers.take(key, |id, _| id == waiter);
                    self.wake(key, now);
                }
                return out.ok();
            }
            _ => return out.error("ERR a write has to be ordered before it is applied"),
        };
        if self.queues.waits(waiter) {
            out.push(Reply::Status(QUEUED));
        } else if self.queues.served_to(waiter).is_some() {
            out.push(Reply::Status(SERVED));
        } else {
            out.null();
        }
    }

    /// What changes when there is something new at a key for a client that waits there.
    fn mark_of(&self, key: &[u8], for_entries: bool, now: UnixMs) -> Vec<u8> {
        if for_entries {
            return self.last_entry_id(key, now).to_string().into_bytes();
        }
        let entry = self.peek(key, now).filter(|entry| has_elements(entry.kind()));
        entry.map_or(0, |entry| entry.version()).to_string().into_bytes()
    }

    /// Wakes the clients of several groups that wait at a key: one for each element, all if it has new entries. If a transaction has
    /// locked the key, once it is unlocked.
    fn wake(&mut self, key: &[u8], now: UnixMs) {
        if !self.queues.watchers.has(key) || self.two_phase.locks(key) {
            return;
        }
        let last = self.mark_of(key, true, now);
        let mut elements = match self.peek(key, now).filter(|entry| has_elements(entry.kind())) {
            Some(entry) => entry.items().len(),
            None => 0,
        };
        let woken = self.queues.watchers.take(key, |_, watcher| match &watcher.mark {
            Some(mark) => **mark != *last,
            None => {
                let is_woken = elements > 0;
                elements = elements.saturating_sub(1);
                is_woken
            }
        });
        woken.into_iter().for_each(|id| self.notify(id, LockNotification::Served));
    }

    /// A command that waits, in the form in which it can be served now: without the keys that do not hold what it waits for. `None` if
    /// no key does.
    pub fn served_form<'c>(
        &self,
        command: &Command<'c>,
        now: UnixMs,
        scratch: &'c mut Vec<u8>,
    ) -> Option<Command<'c>> {
        let Some((awaited, keys)) = command.awaited() else { return Some(*command) };
        let kind_at = |key: &[u8]| self.peek(key, now).map(|entry| Awaited::of(entry.kind()));
        let serves = |key: &&[u8]| kind_at(key) == Some(Some(awaited));
        if let Command::OnStream(StreamCommand::Read { streams, count }) = *command {
            let pairs = streams.pairs().filter(|(key, _)| serves(key));
            let streams = List::build(scratch, pairs.flat_map(|(key, id)| [key, id]).collect::<Vec<_>>());
            let is_any = !streams.is_empty();
            return is_any.then_some(Command::OnStream(StreamCommand::Read { streams, count }));
        }
        if let Command::OnStream(_) = command {
            // Its error says what is missing.
            return Some(*command);
        }
        let serving: Vec<&[u8]> = keys.iter().filter(serves).collect();
        if serving.is_empty() {
            return None;
        }
        let keys = List::build(scratch, serving);
        Some(match *command {
            Command::OnList(ListCommand::MultiPop { at_front, count, .. }) => {
                Command::OnList(ListCommand::MultiPop { keys, at_front, count })
            }
            Command::OnList(ListCommand::PopAny { at_front, .. }) => {
                Command::OnList(ListCommand::PopAny { keys, at_front })
            }
            Command::OnSorted(SortedCommand::MultiPop { is_highest, count, .. }) => {
                Command::OnSorted(SortedCommand::MultiPop { keys, is_highest, count })
            }
            Command::OnSorted(SortedCommand::PopAny { is_highest, .. }) => {
                Command::OnSorted(SortedCommand::PopAny { keys, is_highest })
            }
            command => command,
        })
    }

    fn ask(&mut self, id: WaiterId, wish: Wish<'_>, record: Record, out: &mut ReplyBuffer) {
        // A node that asks in a new incarnation has forgotten its earlier requests.
        self.drop_requests(id.node, Some(id.life), record);
        if self.queues.waits(id) {
            let reply = match wish.claims_after() {
                // Since it was queued, what is pending for others may have become old enough.
                Some(_) => self.reply_to(&wish.command(), record),
                None => return out.push(Reply::Status(QUEUED)),
            };
            if Reply::first(&reply) == Reply::NullArray {
                return out.push(Reply::Status(QUEUED));
            }
            self.queues.remove_waiting(id);
            return self.serve_at_once(id, reply, record, out);
        }
        if let Some(reply) = self.queues.claim(id) {
            return out.extend_encoded(reply);
        }
        let command = wish.command();
        let Some((awaited, keys)) = command.awaited() else { unreachable!("a wish waits") };
        if !self.queues.has_room_for(wish) {
            return out.error(TOO_MANY_WAIT);
        }
        if awaited == Awaited::Entries {
            return self.ask_for_entries(id, &command, record, out);
        }
        for key in keys.iter() {
            match self.peek(key, record.time).map(|entry| Awaited::of(entry.kind())) {
                None => {}
                Some(found) if found == Some(awaited) => {
                    let served = self.take_for(&command, key, (record, 0), true);
                    out.extend_encoded(&served.reply);
                    if !ReplyBuffer::is_error(&served.reply) {
                        self.queues.keep(id, served);
                        if self.is_quiet {
                            // Its node may no longer wait for this record's outcome. It is notified, so that it can give
                            // the elements back.
                            self.notify(id, LockNotification::Served);
                        }
                    }
                    return;
                }
                Some(_) => return out.error(WRONG_KIND),
            }
        }
        self.queues.add(record.version, id, wish);
        out.push(Reply::Status(QUEUED));
    }

    /// Keeps the fact that a request is over, until its node settles it: a late record that asks for it again takes
    /// nothing.
    fn conclude_with_nothing(&mut self, id: WaiterId, reply: Reply<'_>, record: Record) {
        let mut replies = ReplyBuffer::new();
        replies.push(reply);
        let (order, reply) = ((record.version, 0), replies.as_bytes().into());
        self.queues.keep(id, Served { order, is_claimed: true, origin: Origin::None, reply });
    }

    /// Answers a request with what it was served by its own record.
    fn serve_at_once(&mut self, id: WaiterId, reply: Box<[u8]>, record: Record, out: &mut ReplyBuffer) {
        out.extend_encoded(&reply);
        let order = (record.version, 0);
        self.queues.keep(id, Served { order, is_claimed: true, origin: Origin::None, reply });
        if self.is_quiet {
            self.notify(id, LockNotification::Served);
        }
    }

    /// Waits for entries of streams. All streams are checked together, and the request waits for entries behind certain
    /// ids.
    fn ask_for_entries(
        &mut self,
        id: WaiterId,
        command: &Command<'_>,
        record: Record,
        out: &mut ReplyBuffer,
    ) {
        let reply = self.reply_to(command, record);
        match Reply::first(&reply) {
            Reply::NullArray => {}
            Reply::Error(_) => return out.extend_encoded(&reply),
            _ => return self.serve_at_once(id, reply, record, out),
        }
        let (mut list, mut scratch) = (Vec::new(), Vec::new());
        let command = match *command {
            Command::OnStream(StreamCommand::Read { streams, count }) => {
                let mut words: Vec<Vec<u8>> = Vec::with_capacity(streams.len());
                for (key, id) in streams.pairs() {
                    words.push(key.into());
                    // The id of the last entry now.
                    words.push(match id {
                        b"$" | b"+" => self.last_entry_id(key, record.time).to_string().into_bytes(),
                        id => id.into(),
                    });
                }
                let streams = List::build(&mut list, words.iter().map(Vec::as_slice));
                Command::OnStream(StreamCommand::Read { streams, count })
            }
            command => command,
        };
        match Wish::build(&command, &mut scratch) {
            Some(wish) => {
                self.queues.add(record.version, id, wish);
                out.push(Reply::Status(QUEUED));
            }
            None => out.error("ERR the keys of a command that waits have too many bytes"),
        }
    }

    /// The reply to a command: the same on every replica, whether or not a client here waits for it.
    fn reply_to(&mut self, command: &Command<'_>, record: Record) -> Box<[u8]> {
        let mut reply = ReplyBuffer::new();
        let was_quiet = std::mem::take(&mut self.is_quiet);
        self.carry_out(command, record, &mut reply);
        self.is_quiet = was_quiet;
        reply.take().into()
    }

    /// Carries out a command that waits at a key that can serve it.
    fn take_for(
        &mut self,
        command: &Command<'_>,
        key: &[u8],
        (record, number): (Record, u32),
        is_claimed: bool,
    ) -> Served {
        let mut scratch = Vec::new();
        let keys = List::build(&mut scratch, [key]);
        let narrowed = match *command {
            Command::OnList(ListCommand::MultiPop { at_front, count, .. }) => {
                let count = self.fitting(key, !at_front, count, record);
                Command::OnList(ListCommand::MultiPop { keys, at_front, count })
            }
            Command::OnList(ListCommand::PopAny { at_front, .. }) => {
                Command::OnList(ListCommand::PopAny { keys, at_front })
            }
            Command::OnSorted(SortedCommand::MultiPop { is_highest, count, .. }) => {
                let count = self.fitting(key, is_highest, count, record);
                Command::OnSorted(SortedCommand::MultiPop { keys, is_highest, count })
            }
            Command::OnSorted(SortedCommand::PopAny { is_highest, .. }) => {
                Command::OnSorted(SortedCommand::PopAny { keys, is_highest })
            }
            command => command,
        };
        let reply = self.reply_to(&narrowed, record);
        let is_nothing = matches!(Reply::first(&reply), Reply::Null | Reply::NullArray);
        assert!(!is_nothing, "a key of the right kind has an element: {narrowed:?}");
        let origin = if ReplyBuffer::is_error(&reply) { Origin::None } else { origin_of(command) };
        Served { order: (record.version, number), is_claimed, origin, reply }
    }

    /// How many elements one request gets from an end of a collection, of the `count` that it wants.
    fn fitting(&self, key: &[u8], at_end: bool, count: u64, record: Record) -> u64 {
        let Some(entry) = self.peek(key, record.time) else { return count };
        let items = entry.items();
        let most = count.min(ELEMENTS_MAX) as usize;
        let count_while_short = |items: &mut dyn Iterator<Item = &[u8]>| {
            let mut bytes = 0;
            let is_short = |item: &&[u8]| {
                let fits = bytes < ELEMENTS_BYTES;
                bytes += item.len();
                fits
            };
            items.take(most).take_while(is_short).count() as u64
        };
        match at_end {
            true => count_while_short(&mut items.iter_back(items.len())),
            false => count_while_short(&mut items.iter_from(0)),
        }
    }

    /// Serves the requests that wait at the keys of a command that was carried out.
    #[cold]
    pub(super) fn serve_after(&mut self, command: &Command<'_>, record: Record) {
        let mut ready = Ready::new();
        command.for_each_key(|key| {
            if self.queues.is_awaited(key) {
                ready.push_back(key.into());
            }
        });
        ready.append(&mut self.written);
        self.queues.watchers.sweep(record.time);
        self.serve(ready, record);
    }

    /// Notes a key that the record has written although its command does not name it, for [`Table::serve_after`].
    pub(super) fn note_written(&mut self, key: &[u8]) {
        if self.queues.is_awaited(key) {
            self.written.push_back(key.into());
        }
    }

    /// Notes all keys at which requests wait: the record removes whatever they hold.
    pub(super) fn note_all_written(&mut self) {
        self.written.extend(self.queues.awaited_keys().cloned());
    }

    /// Serves the requests that wait at these keys, in their order, as long as there are elements.
    fn serve(&mut self, mut ready: Ready, record: Record) {
        let mut number = 0;
        while let Some(key) = ready.pop_front() {
            for id in self.queues.all_at(&key, Awaited::Entries) {
                number += 1;
                self.serve_reader(id, &key, (record, number));
            }
            while let Some(entry) = self.peek(&key, record.time)
                && let Some(awaited) = Awaited::of(entry.kind()).filter(|it| *it != Awaited::Entries)
                && let Some(id) = self.queues.first_at(&key, awaited)
                && !self.stalls(id)
            {
                let Some(waiting) = self.queues.remove_waiting(id) else {
                    unreachable!("the first in a queue waits")
                };
                let command = waiting.wish().command();
                number += 1;
                let served = self.take_for(&command, &key, (record, number), false);
                self.queues.keep(id, served);
                self.notify(id, LockNotification::Served);
                if let Command::OnList(ListCommand::Move { to, .. }) = command
                    && self.queues.is_awaited(to)
                {
                    ready.push_back(to.into());
                }
            }
            self.wake(&key, record.time);
        }
    }

    /// Whether a request cannot be served now, since its command also uses a key that a transaction has locked.
    fn stalls(&mut self, id: WaiterId) -> bool {
        if !self.two_phase.locks_any() {
            return false;
        }
        let wish = self.queues.wish_of(id).expect("the first in a queue waits");
        let mut stalls = false;
        let command = Wish::of(wish).expect("a wish is checked before it waits").command();
        command.for_each_key(|key| stalls = stalls || self.two_phase.locks(key));
        if stalls {
            self.two_phase.note_stalled();
        }
        stalls
    }

    /// Serves a request that waits for entries of a stream, if there are any that it has not seen. Several requests may be
    /// served the same entries, and requests behind an id that is not reached keep waiting. A request for a group that no
    /// longer exists gets an error: that of its command, as in Redis since 7.2.
    fn serve_reader(&mut self, id: WaiterId, key: &[u8], (record, number): (Record, u32)) {
        const NO_KEY: &[u8] = b"UNBLOCKED the stream key no longer exists";
        const NO_GROUP: &[u8] = b"NOGROUP the consumer group this client was blocked on no longer exists";
        let Some(wish) = self.queues.wish_of(id).map(<[u8]>::to_vec) else { return };
        let command = Wish::of(&wish).expect("a wish is checked before it waits").command();
        let mut scratch = Vec::new();
        let Some((_, Keys::Streams(streams))) = command.awaited() else { unreachable!("a wish waits") };
        let (key, behind) = streams.pairs().find(|(other, _)| *other == key).unwrap_or_default();
        let only = List::build(&mut scratch, [key, behind]);
        let narrowed = match command {
            Command::OnStream(StreamCommand::Read { count, .. }) => {
                StreamCommand::Read { streams: only, count }
            }
            Command::OnStream(StreamCommand::ReadGroup { group, consumer, count, acknowledges, .. }) => {
                StreamCommand::ReadGroup { group, consumer, streams: only, count, acknowledges }
            }
            Command::OnStream(StreamCommand::Consume {
                group,
                consumer,
                count,
                acknowledges,
                claim_ms,
                ..
            }) => StreamCommand::Consume { group, consumer, streams: only, count, acknowledges, claim_ms },
            _ => unreachable!("nothing else waits for entries"),
        };
        let is_stream = self.peek(key, record.time).is_some_and(|entry| entry.kind() == Kind::Stream);
        // What nodes of release 1 wait with has the replies of that release, on every replica.
        let is_of_release_1 = matches!(narrowed, StreamCommand::ReadGroup { .. });
        let mut replies = ReplyBuffer::new();
        let reply = match (is_stream, narrowed.is_write()) {
            (false, false) => return,
            (false, true) if is_of_release_1 => {
                replies.push(Reply::Error(NO_KEY));
                replies.take().into()
            }
            _ => self.reply_to(&Command::OnStream(narrowed), record),
        };
        let reply = match Reply::first(&reply) {
            Reply::NullArray => return,
            Reply::Error(error) if is_of_release_1 && error.starts_with(b"NOGROUP") => {
                replies.push(Reply::Error(NO_GROUP));
                replies.take().into()
            }
            _ => reply,
        };
        self.queues.remove_waiting(id);
        let order = (record.version, number);
        self.queues.keep(id, Served { order, is_claimed: false, origin: Origin::None, reply });
        self.notify(id, LockNotification::Served);
    }

    fn notify(&mut self, waiter: WaiterId, notification: LockNotification) {
        self.lock_events.push(LockEvent::Notified { waiter, name: Box::default(), notification });
    }

    /// Forgets what a request was served, and puts it back to where it came from. Returns whether there was anything to
    /// forget.
    fn give_back(&mut self, id: WaiterId, record: Record, ready: &mut Ready) -> bool {
        let Some(Served { origin, reply, .. }) = self.queues.take_back(id) else { return false };
        if origin == Origin::None || self.queues.has_planted(Fault::QueueServedForgotten) {
            return true;
        }
        self.put_back_taken(origin, reply, record, ready);
        true
    }

    /// Puts elements that a request was served back to where they came from; if a transaction has locked that key, once it is
    /// unlocked.
    pub(super) fn put_back_taken(
        &mut self,
        origin: Origin,
        reply: Box<[u8]>,
        record: Record,
        ready: &mut Ready,
    ) {
        let Some(Taken { key, items }) = Taken::of(&reply) else { unreachable!("a reply of this table") };
        if self.two_phase.locks(key) {
            return self.two_phase.keep_returned(origin, reply);
        }
        let went_back = if origin == Origin::Members {
            let members: Vec<_> =
                items.iter().map(|(member, score)| (*member, score.unwrap_or(0.0))).collect();
            self.give_back_members(key, &members, record)
        } else {
            let elements: Vec<_> = items.iter().map(|(element, _)| *element).collect();
            let at_front = (origin == Origin::Front) != self.queues.has_planted(Fault::QueueGivenBackBehind);
            self.give_back_elements(key, &elements, at_front, record)
        };
        self.queues.count_return(went_back);
        if self.queues.is_awaited(key) {
            ready.push_back(key.into());
        }
    }

    /// Gives up the requests of a node, except those of the `spared` incarnation. What they were served goes back, unless
    /// it was claimed: then a client may have it. Without `spared` the node may return, so claimed replies are kept for it.
    pub(super) fn drop_requests(&mut self, node: u16, spared: Option<u64>, record: Record) {
        for id in self.queues.waiting_of(node, spared) {
            self.queues.remove_waiting(id);
            self.notify(id, LockNotification::Dropped);
        }
        let mut ready = Ready::new();
        // The last one first, so that elements of the same list return in their original order.
        for id in self.queues.served_of(node, spared) {
            let is_claimed = self.queues.served_to(id).is_some_and(|served| served.is_claimed);
            match is_claimed && !self.queues.has_planted(Fault::QueueClaimedGivenBack) {
                false => drop(self.give_back(id, record, &mut ready)),
                true if spared.is_some() => drop(self.queues.remove_served(id)),
                true => {}
            }
        }
        self.serve(ready, record);
    }

    /// Applies `LOCK`'s records about lost nodes to the requests that wait for elements.
    pub(super) fn follow_in_queues(&mut self, command: &LockCommand<'_>, record: Record) {
        if let LockCommand::DropWaiters { node, spared } = *command {
            self.drop_requests(node, spared.0, record);
        }
    }
}

/// Calls `then` with the command that puts back what a command has taken, by its reply. It is not called if there is nothing to put
/// back: what was moved, or read, is in its place.
pub fn put_back(command: &Command<'_>, reply: &[u8], then: impl FnOnce(&Command<'_>)) {
    let origin = origin_of(command);
    let Some(Taken { key, items }) = Taken::of(reply).filter(|_| origin != Origin::None) else { return };
    let mut scratch = Vec::new();
    if origin == Origin::Members {
        let scores: Vec<String> = items.iter().map(|(_, score)| score.unwrap_or(0.0).to_string()).collect();
        let pairs = scores.iter().zip(&items).flat_map(|(score, (member, _))| [score.as_bytes(), *member]);
        let pairs = List::build(&mut scratch, pairs.collect::<Vec<_>>());
        // A member that was added again in the meantime keeps its new score.
        let options = AddOptions { only_new: true, ..AddOptions::default() };
        return then(&Command::OnSorted(SortedCommand::Add { key, pairs, options, counts_changes: false }));
    }
    // The one that was taken first was the outermost.
    let elements = List::build(&mut scratch, items.iter().rev().map(|(element, _)| *element));
    let at_front = origin == Origin::Front;
    then(&Command::OnList(ListCommand::Push { key, elements, at_front, if_present: false }));
}

/// The elements that a reply contains.
struct Taken<'r> {
    key: &'r [u8],
    /// The elements; for a sorted set, the members with their scores.
    items: Vec<(&'r [u8], Option<f64>)>,
}

impl<'r> Taken<'r> {
    /// Reads `[key, element]`, `[key, [element …]]`, `[key, member, score]` and `[key, [[member, score] …]]`.
    fn of(reply: &'r [u8]) -> Option<Taken<'r>> {
        let mut reader = Reader::new(reply);
        let Ok(Reply::Array(_)) = Reply::decode(&mut reader) else { return None };
        let Ok(Reply::Bulk(key)) = Reply::decode(&mut reader) else { return None };
        let mut items: Vec<(&[u8], Option<f64>)> = Vec::new();
        while !reader.is_empty() {
            match Reply::decode(&mut reader).ok()? {
                Reply::Bulk(item) => items.push((item, None)),
                Reply::Double(score) => items.last_mut()?.1 = Some(score),
                Reply::Array(_) => {}
                _ => return None,
            }
        }
        Some(Taken { key, items })
    }
}

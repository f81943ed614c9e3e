//! The requests over several groups of each connection, in order. One transaction of a connection is under way at a time, since the
//! next has to see what it did. Those that wait behind it are merged into one, and so are those that arrive in one turn.

use super::evaluation::Evaluation;
use super::plan::{Divided, Whole};
use super::reading::shows_versions;
use kv::{Command, Draft, Transaction, UnixMs, Wish};
use protocol::Ticket;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Requests of a connection that are carried out as one transaction.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) work: Work,
    /// The requests' own, in order.
    pub(crate) tickets: Vec<Ticket>,
    /// When the first one came, by the clock that the nodes agree on.
    pub(crate) since: UnixMs,
    /// When the first one has to be answered, on the monotonic clock.
    pub(crate) deadline_us: u64,
    /// The version of the cluster map by which all are divided.
    pub(crate) map_version: u64,
    /// A group has refused it together with others: it is carried out by itself.
    pub(crate) is_alone: bool,
    /// The client waits for something: the number of its wait, which takes the outcome.
    pub(crate) wait: Option<u64>,
    /// The hashes of its keys, if it may have requests of other connections ([`super::lanes`]).
    pub(crate) held: BTreeSet<u64>,
}

/// What is to be carried out.
#[derive(Debug)]
pub(crate) enum Work {
    /// By each group for itself.
    Divided(Divided),
    /// Here, on copies of the groups' values.
    Evaluation(Box<Evaluation>),
}

impl Work {
    /// One command.
    ///
    /// # Errors
    /// [`Whole`]: it can neither be divided, nor carried out on copies of its keys.
    pub(crate) fn of_command(command: &Command<'_>, group_of: impl Fn(&[u8]) -> u16) -> Result<Work, Whole> {
        match Divided::of_command(command, &group_of) {
            Err(Whole::NeedsAll) => Work::here(Evaluation::of_command(command, group_of)),
            divided => divided.map(Work::Divided),
        }
    }

    /// The command of a client that waits. `is_again`: it has looked before, and is served now only by keys that hold what it waits
    /// for.
    ///
    /// # Errors
    /// As [`Work::of_command`].
    pub(crate) fn of_wish(
        wish: Wish<'_>,
        is_again: bool,
        group_of: impl Fn(&[u8]) -> u16,
    ) -> Result<Work, Whole> {
        let mut work = Work::of_command(&wish.command(), group_of)?;
        if let Work::Evaluation(evaluation) = &mut work {
            evaluation.is_again = is_again;
        }
        Ok(work)
    }

    /// The commands of a transaction. `watched_in`: the leadership of a group in which its keys were watched.
    ///
    /// # Errors
    /// As [`Work::of_command`].
    pub(crate) fn of_transaction(
        transaction: &Transaction<'_>,
        group_of: impl Fn(&[u8]) -> u16,
        watched_in: impl Fn(u16) -> u64,
    ) -> Result<Work, Whole> {
        match Divided::of_transaction(transaction, &group_of, &watched_in) {
            Err(Whole::NeedsAll) => Work::here(Evaluation::of_transaction(transaction, group_of, watched_in)),
            divided => divided.map(Work::Divided),
        }
    }

    fn here(evaluation: Result<Evaluation, Whole>) -> Result<Work, Whole> {
        evaluation.map(|evaluation| Work::Evaluation(Box::new(evaluation)))
    }

    /// The groups.
    pub(crate) fn groups(&self) -> Box<dyn Iterator<Item = u16> + '_> {
        match self {
            Work::Divided(divided) => Box::new(divided.groups()),
            Work::Evaluation(evaluation) => Box::new(evaluation.groups()),
        }
    }

    /// The groups in which it may write.
    pub(crate) fn written(&self) -> Vec<u16> {
        match self {
            Work::Divided(divided) => divided.written().collect(),
            Work::Evaluation(evaluation) => evaluation.groups().collect(),
        }
    }

    /// What each group does, or reads first.
    pub(crate) fn drafts(&self) -> &BTreeMap<u16, Draft> {
        match self {
            Work::Divided(divided) => divided.drafts(),
            Work::Evaluation(evaluation) => evaluation.locks(),
        }
    }

    /// Whether it only reads, and versions show whether what it reads has changed.
    pub(crate) fn shows_versions(&self) -> bool {
        let shows = |draft: &Draft| draft.transaction().commands().all(|it| shows_versions(&it));
        let is_shown = match self {
            Work::Divided(divided) => divided.drafts().values().all(shows),
            Work::Evaluation(evaluation) => shows(evaluation.commands()),
        };
        is_shown && self.drafts().values().all(|draft| draft.watched_len() == 0)
    }

    /// By group: the keys that it may read for the client.
    pub(crate) fn reads(&self) -> Vec<(u16, Vec<Box<[u8]>>)> {
        match self {
            Work::Divided(divided) => divided.reads(),
            Work::Evaluation(evaluation) => evaluation.reads(),
        }
    }

    /// The groups, each with the encoded share with which it begins. `None`: one cannot be shared.
    pub(crate) fn shares(&self) -> Option<Vec<(u16, Vec<u8>)>> {
        match self {
            Work::Divided(divided) => divided.shares(),
            Work::Evaluation(evaluation) => Some(evaluation.shares()),
        }
    }

    /// Whether all of its keys are still in the groups that they were divided over.
    pub(crate) fn is_still(&self, belongs: impl Fn(u16, &Command<'_>) -> bool) -> bool {
        match self {
            Work::Divided(divided) => divided.is_still(belongs),
            Work::Evaluation(evaluation) => evaluation.is_still(belongs),
        }
    }
}

impl Merged {
    /// The connections whose requests these are.
    pub(crate) fn clients(&self) -> Vec<u64> {
        let mut clients: Vec<u64> = self.tickets.iter().map(|ticket| ticket.client).collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    }

    /// Whether another request may be carried out in the same transaction, behind these.
    pub(crate) fn can_take(&self, other: &Merged) -> bool {
        let (Work::Divided(own), Work::Divided(other_work)) = (&self.work, &other.work) else {
            return false;
        };
        !self.is_alone
            && other.wait.is_none()
            && self.map_version == other.map_version
            && own.can_take(other_work)
    }

    /// Adds a request that it can take.
    pub(crate) fn merge(&mut self, other: Merged) {
        let (Work::Divided(own), Work::Divided(other_work)) = (&mut self.work, other.work) else {
            unreachable!("it was looked at")
        };
        own.merge(other_work);
        self.tickets.extend(other.tickets);
        self.since = self.since.min(other.since);
        self.deadline_us = self.deadline_us.min(other.deadline_us);
    }

    fn split(self) -> impl Iterator<Item = Merged> {
        let Merged { work, tickets, since, deadline_us, map_version, .. } = self;
        let Work::Divided(divided) = work else { unreachable!("such a request is never merged") };
        let one = move |(divided, ticket)| {
            let (work, tickets) = (Work::Divided(divided), vec![ticket]);
            Merged {
                work,
                tickets,
                since,
                deadline_us,
                map_version,
                is_alone: true,
                wait: None,
                held: BTreeSet::new(),
            }
        };
        divided.split().into_iter().zip(tickets).map(one)
    }
}

#[derive(Debug, Default)]
struct Connection {
    /// A transaction of it is under way.
    is_busy: bool,
    waiting: VecDeque<Merged>,
}

/// The connections with requests over several groups that have no reply yet, by the client in their tickets.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    connections: BTreeMap<u64, Connection>,
    /// Those that have nothing under way, each with its first request: its other requests that came before have no replies yet.
    fresh: Vec<Ticket>,
    /// Those that have nothing under way: their next transaction begins.
    free: Vec<u64>,
    /// Those whose next transaction waits until others hold less memory.
    stalled: Vec<u64>,
}

impl Connections {
    /// Whether no request is without a reply.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Whether a connection's next transaction may begin, by whether all that came before a request has its reply.
    #[inline]
    pub(crate) fn has_free(&self, is_first: impl Fn(Ticket) -> bool) -> bool {
        !self.free.is_empty() || self.fresh.iter().any(|ticket| is_first(*ticket))
    }

    /// Takes the connections whose next transaction may begin, each once. Call [`Connections::next`] for each.
    pub(crate) fn take_free(&mut self, is_first: impl Fn(Ticket) -> bool) -> Vec<u64> {
        let free = &mut self.free;
        self.fresh.retain(|ticket| {
            let is_first = is_first(*ticket);
            if is_first {
                free.push(ticket.client);
            }
            !is_first
        });
        std::mem::take(free)
    }

    /// Adds a request behind those of its connection: to the last transaction that has not begun, if it can be a part of it.
    pub(crate) fn add(&mut self, request: Merged) {
        let first = request.tickets[0];
        let fresh = &mut self.fresh;
        let connection = self.connections.entry(first.client).or_insert_with(|| {
            fresh.push(first);
            Connection::default()
        });
        match connection.waiting.back_mut().filter(|last| last.can_take(&request)) {
            Some(last) => last.merge(request),
            None => connection.waiting.push_back(request),
        }
    }

    /// The next transaction of a connection, which begins now. `None`: there is none, and the connection is forgotten.
    ///
    /// # Panics
    /// When one is under way.
    pub(crate) fn next(&mut self, client: u64) -> Option<Merged> {
        let connection = self.connections.get_mut(&client)?;
        assert!(!connection.is_busy, "one transaction of a connection is under way");
        let next = connection.waiting.pop_front();
        connection.is_busy = next.is_some();
        if next.is_none() {
            self.connections.remove(&client);
        }
        next
    }

    /// The transaction that was to begin waits for memory, before all others of its connection.
    pub(crate) fn stall(&mut self, merged: Merged) {
        let client = merged.tickets[0].client;
        let connection = self.connections.get_mut(&client).expect("it was to begin");
        connection.is_busy = false;
        connection.waiting.push_front(merged);
        self.stalled.push(client);
    }

    /// Others hold less memory: what waits for that is tried again.
    pub(crate) fn resume(&mut self) {
        self.free.append(&mut self.stalled);
    }

    /// The transaction of a connection that was under way is over.
    pub(crate) fn end(&mut self, client: u64) {
        let connection = self.connections.get_mut(&client).expect("it has one under way");
        connection.is_busy = false;
        self.free.push(client);
    }

    /// A group has refused requests that were merged, and nothing was done: each begins again by itself, before all others of its
    /// connection.
    pub(crate) fn separate(&mut self, refused: Merged) {
        refused.clients().into_iter().for_each(|client| self.end(client));
        let requests: Vec<Merged> = refused.split().collect();
        for request in requests.into_iter().rev() {
            let client = request.tickets[0].client;
            self.connections.get_mut(&client).expect("it was there").waiting.push_front(request);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use kv::List;

    /// A request of a client that sets two keys; the first byte of a key is its group.
    pub(in crate::two_phase) fn setting(client: u64, keys: [&str; 2]) -> Merged {
        let mut scratch = Vec::new();
        let pairs = List::build(&mut scratch, keys.iter().flat_map(|key| [key.as_bytes(), b"v"]));
        let command = Command::MultiSet { pairs, if_absent: false };
        let divided = Divided::of_command(&command, |key| key[0].into()).unwrap();
        Merged { work: Work::Divided(divided), ..request(client, 1) }
    }

    pub(in crate::two_phase) fn clients(merged: &Merged) -> Vec<u64> {
        merged.clients()
    }

    fn request(client: u64, sequence: u64) -> Merged {
        let mut scratch = Vec::new();
        let keys = List::build(&mut scratch, [&b"a"[..], b"b"]);
        let divided = Divided::of_command(&Command::Exists { keys }, |key| key[0].into()).unwrap();
        let tickets = vec![Ticket { client, sequence }];
        let work = Work::Divided(divided);
        Merged {
            work,
            tickets,
            since: 1,
            deadline_us: sequence,
            map_version: 1,
            is_alone: false,
            wait: None,
            held: BTreeSet::new(),
        }
    }

    fn sequences(merged: Option<Merged>) -> Vec<u64> {
        merged.map_or(Vec::new(), |it| it.tickets.iter().map(|ticket| ticket.sequence).collect())
    }

    #[test]
    fn what_comes_together_or_waits_is_one_transaction() {
        let mut connections = Connections::default();
        [request(1, 1), request(2, 1), request(1, 2)].into_iter().for_each(|it| connections.add(it));
        assert!(!connections.has_free(|_| false) && connections.take_free(|_| false).is_empty());
        assert!(connections.has_free(|it| it.sequence == 1));
        assert_eq!(connections.take_free(|it| it.client == 1), [1]);
        assert_eq!(connections.take_free(|_| true), [2]);
        let first = connections.next(1).unwrap();
        assert_eq!((first.deadline_us, sequences(Some(first))), (1, vec![1, 2]), "the first one's deadline");
        [request(1, 3), request(1, 4)].into_iter().for_each(|it| connections.add(it));
        assert!(!connections.has_free(|_| true), "one is under way");
        connections.add(Merged { map_version: 2, ..request(1, 5) });
        connections.end(1);
        assert_eq!(connections.take_free(|_| false), [1]);
        assert_eq!(sequences(connections.next(1)), [3, 4]);
        connections.end(1);
        assert_eq!(sequences(connections.next(1)), [5], "it was divided by another map");
        connections.end(1);
        assert_eq!(sequences(connections.next(2)), [1]);
        assert!(connections.next(1).is_none() && !connections.is_empty());
        connections.end(2);
        assert!(connections.next(2).is_none() && connections.is_empty());
    }

    #[test]
    fn what_waits_for_memory_begins_before_what_came_later() {
        let mut connections = Connections::default();
        connections.add(Merged { is_alone: true, ..request(1, 1) });
        connections.add(request(1, 2));
        assert_eq!(connections.take_free(|_| true), [1]);
        let first = connections.next(1).unwrap();
        connections.stall(first);
        assert!(!connections.has_free(|_| true), "there is no room yet");
        connections.resume();
        assert_eq!(connections.take_free(|_| true), [1]);
        assert_eq!(sequences(connections.next(1)), [1]);
    }

    #[test]
    fn what_was_refused_together_begins_again_one_by_one() {
        let mut connections = Connections::default();
        [request(1, 1), request(1, 2)].into_iter().for_each(|it| connections.add(it));
        let refused = connections.next(1).unwrap();
        connections.add(request(1, 3));
        connections.separate(refused);
        for expected in [vec![1], vec![2], vec![3]] {
            assert_eq!(sequences(connections.next(1)), expected);
            connections.end(1);
        }
    }
}

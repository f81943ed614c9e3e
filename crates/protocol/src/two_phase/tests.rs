//! Coordinators and resolvers on tables as groups, in random orders: records are lost, come late or twice, outcomes are unknown,
//! coordinators stop.

use super::{Action, Asked, Coordinator, Ended, Evaluated, Found, Planned, Resolver};
use crate::contract::Result as Outcome;
use crate::planted::Planted;
use kv::codec::Reader;
use kv::{Command, Draft, List, ListCommand, ReplyBuffer, Share, Table, TransactionId, TwoPhaseCommand};
use std::collections::BTreeMap;

const GROUPS: u16 = 3;
const TRANSACTIONS: u64 = 12;

/// A source of choices that follow from a seed (xorshift).
struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// A record on its way to a group, or its outcome on the way back.
#[derive(Clone, Debug)]
struct OnItsWay {
    /// The coordinator that waits for the outcome, or the group for which it is resolved.
    from: Result<usize, u16>,
    group: u16,
    asked: Asked,
    record: Vec<u8>,
    outcome: Option<(Outcome, Vec<u8>)>,
}

/// A list with its name.
type NamedList = (Vec<u8>, Vec<u64>);

struct World {
    choices: Choices,
    tables: Vec<Table>,
    offsets: Vec<u64>,
    coordinators: Vec<Option<Coordinator>>,
    resolver: Resolver,
    on_its_way: Vec<OnItsWay>,
    ended: BTreeMap<u64, Ended>,
    /// The groups of the transactions that were evaluated, which is what they leave in each of these.
    evaluated: BTreeMap<u64, usize>,
    /// What the transactions have read that changed nothing: the lists by their groups.
    read: BTreeMap<u64, BTreeMap<u16, NamedList>>,
    /// All keys are locked, and copied group by group.
    moments: Vec<Moment>,
    /// Those of which every group was copied.
    copied: Vec<Moment>,
    is_moment: std::collections::BTreeSet<u64>,
    /// The transactions that were done before each was begun.
    before: BTreeMap<u64, Vec<u64>>,
    now_us: u64,
}

struct Moment {
    ticket: u64,
    id: TransactionId,
    /// What was in the lists of each group.
    copies: BTreeMap<u16, Vec<u64>>,
}

impl World {
    fn new(seed: u64) -> World {
        let name = |node| kv::Coordinator { node, life: 1 };
        World {
            choices: Choices(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            tables: (0..GROUPS).map(table).collect(),
            offsets: vec![2; GROUPS.into()],
            coordinators: vec![
                Some(Coordinator::new(name(1), Planted::default())),
                Some(Coordinator::new(name(2), Planted::default())),
            ],
            resolver: Resolver::default(),
            on_its_way: Vec::new(),
            ended: BTreeMap::new(),
            evaluated: BTreeMap::new(),
            read: BTreeMap::new(),
            moments: Vec::new(),
            copied: Vec::new(),
            is_moment: std::collections::BTreeSet::new(),
            before: BTreeMap::new(),
            now_us: 1,
        }
    }

    /// A transaction that adds its ticket to one of two lists in each of some groups; every second one reads these before.
    fn begin(&mut self, ticket: u64) {
        let at = self.choices.below(2);
        let done = self.ended.iter().filter(|(_, ended)| matches!(ended, Ended::Done(_)));
        self.before.insert(ticket, done.map(|(ticket, _)| *ticket).collect());
        if self.choices.one_in(4) {
            self.is_moment.insert(ticket);
            let groups: Vec<u16> = (0..GROUPS).collect();
            let (of, deadline_us) = ((ticket, self.now_us / 1000), self.now_us + 500_000);
            let mut actions = Vec::new();
            if let Some(coordinator) = &mut self.coordinators[at] {
                coordinator.lock_all(of, &groups, deadline_us, &mut actions);
            }
            return self.take(Ok(at), actions);
        }
        let (mut parts, is_locking) = (Vec::new(), self.choices.one_in(2));
        let first = self.choices.below(GROUPS.into()) as u16;
        for group in 0..GROUPS {
            if group == first || !self.choices.one_in(3) {
                let key = if self.choices.one_in(2) { &b"a"[..] } else { b"b" };
                let decides = group == first || self.choices.one_in(2);
                let share = if is_locking { reading(key) } else { pushing(key, ticket) };
                parts.push(Planned { group, decides, share });
            }
        }
        let mut actions = Vec::new();
        let deadline_us = self.now_us + 2_000_000;
        let since = self.now_us / 1000;
        match &mut self.coordinators[at] {
            Some(coordinator) if is_locking => {
                coordinator.begin_locking((ticket, since), parts, deadline_us, &mut actions);
            }
            Some(coordinator) => coordinator.begin((ticket, since), parts, deadline_us, &mut actions),
            None => drop(self.ended.insert(ticket, Ended::Unknown)),
        }
        self.take(Ok(at), actions);
    }

    fn take(&mut self, from: Result<usize, u16>, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Submit { group, asked, record } => {
                    self.on_its_way.push(OnItsWay { from, group, asked, record, outcome: None });
                }
                Action::Evaluate { ticket, id, found }
                    if found.len() == usize::from(GROUPS) && is_count(&found) =>
                {
                    self.moments.push(Moment { ticket, id, copies: BTreeMap::new() });
                }
                Action::Evaluate { ticket, id, found } => {
                    let evaluated = self.evaluate(ticket, &found);
                    let at = from.expect("a coordinator evaluates");
                    let mut actions = Vec::new();
                    let coordinator = self.coordinators[at].as_mut().expect("it has just spoken");
                    coordinator.evaluated(id, evaluated, &mut actions);
                    self.take(from, actions);
                }
                Action::End { ticket, ended } => {
                    let before = self.ended.insert(ticket, ended);
                    assert_eq!(before, None, "a client is answered once");
                }
            }
        }
    }

    /// What follows from the lists that a transaction has read: each of its groups adds the ticket to the one that it has locked, and
    /// now and then something is wrong with them, or there is nothing to do.
    fn evaluate(&mut self, ticket: u64, found: &[Found]) -> Evaluated {
        match self.choices.below(16) {
            0..3 => {
                self.evaluated.insert(ticket, 0);
                self.read.insert(ticket, found.iter().map(|found| (found.group, read_in(found))).collect());
                return Evaluated::Nothing;
            }
            3 => return Evaluated::Refused(Vec::new()),
            _ => {}
        }
        self.evaluated.insert(ticket, found.len());
        self.read.remove(&ticket);
        let share = |found: &Found| (found.group, pushing(&read_in(found).0, ticket));
        Evaluated::Shares(found.iter().map(share).collect())
    }

    /// One of the groups whose keys are all locked is copied, if they still are; when all are copied, they are unlocked.
    fn copy_one(&mut self) {
        if self.moments.is_empty() {
            return;
        }
        let place = self.choices.below(self.moments.len());
        let group = self.choices.below(GROUPS.into()) as u16;
        let table = &mut self.tables[usize::from(group)];
        let is_held = table.two_phase().all_locked_by() == Some(&self.moments[place].id);
        if is_held {
            let tickets = tickets_in(&mut unlocked(table));
            self.moments[place].copies.entry(group).or_insert(tickets);
            if self.moments[place].copies.len() < usize::from(GROUPS) {
                return;
            }
        } else if self.moments[place].copies.contains_key(&group) {
            return;
        }
        let moment = self.moments.swap_remove(place);
        let (at, id) = (usize::from(moment.id.coordinator.node) - 1, moment.id);
        let mut actions = Vec::new();
        if let Some(coordinator) = &mut self.coordinators[at]
            && coordinator.ticket_of(id) == Some(moment.ticket)
        {
            coordinator.evaluated(id, Evaluated::Nothing, &mut actions);
        }
        if is_held {
            self.copied.push(moment);
        }
        self.take(Ok(at), actions);
    }

    /// A record reaches its group, or an outcome the one who waits for it; or it is lost, or does so twice.
    fn move_one(&mut self) {
        if self.on_its_way.is_empty() {
            return;
        }
        let place = self.choices.below(self.on_its_way.len());
        let it = match self.choices.one_in(12) {
            true => self.on_its_way[place].clone(),
            false => self.on_its_way.swap_remove(place),
        };
        match &it.outcome {
            None if self.choices.one_in(10) => {
                // Refused by certainty, which a node says only of a record that no leader has taken.
                let outcome = match self.choices.one_in(3) && !self.is_elsewhere(&it) {
                    true => Outcome::Refused,
                    false => Outcome::Unknown,
                };
                self.on_its_way.push(OnItsWay { outcome: Some((outcome, Vec::new())), ..it.clone() });
                if outcome == Outcome::Unknown && self.choices.one_in(2) {
                    self.on_its_way.push(OnItsWay { from: Err(u16::MAX), ..it });
                }
            }
            None => {
                let group = usize::from(it.group);
                self.offsets[group] += 1;
                let mut out = ReplyBuffer::new();
                let command = Command::decode(&mut Reader::new(&it.record)).expect("it was encoded");
                let (table, offset, now) = (&mut self.tables[group], self.offsets[group], self.now_us / 1000);
                let version = match command.is_write() {
                    true => table.apply(&command, offset, now, &mut out),
                    false => {
                        table.read(&command, now, &mut out);
                        offset
                    }
                };
                let outcome = Some((Outcome::Done { version, offset: version }, out.as_bytes().to_vec()));
                self.on_its_way.push(OnItsWay { outcome, ..it });
            }
            Some((result, reply)) => {
                let (result, reply, mut actions) = (*result, reply.clone(), Vec::new());
                match it.from {
                    Ok(at) => {
                        if let Some(coordinator) = &mut self.coordinators[at] {
                            coordinator.answered(
                                it.group,
                                it.asked,
                                (result, &reply),
                                self.now_us,
                                &mut actions,
                            );
                        }
                    }
                    Err(holder) => {
                        let question = (it.group, it.asked);
                        self.resolver.answered(holder, question, (result, &reply), self.now_us, &mut actions);
                    }
                }
                self.take(it.from, actions);
            }
        }
    }

    /// Whether another copy of a record is on its way to the group, or was applied.
    fn is_elsewhere(&self, it: &OnItsWay) -> bool {
        let is_copy = |other: &OnItsWay| (other.group, other.asked) == (it.group, it.asked);
        let vote = self.tables[usize::from(it.group)].two_phase().vote(it.asked.id);
        vote != kv::two_phase::Vote::Unknown || self.on_its_way.iter().any(is_copy)
    }

    fn tick(&mut self) {
        self.now_us += 30_000;
        for at in 0..self.coordinators.len() {
            let mut actions = Vec::new();
            if let Some(coordinator) = &mut self.coordinators[at] {
                coordinator.tick(self.now_us, &mut actions);
            }
            self.take(Ok(at), actions);
        }
        self.resolve(30);
    }

    /// Groups resolve what they hold: for certain if its coordinator has stopped, now and then if not.
    fn resolve(&mut self, one_in: usize) {
        for group in 0..GROUPS {
            let table = &self.tables[usize::from(group)];
            let held: Vec<(TransactionId, Vec<u8>)> =
                table.two_phase().held().map(|(id, header)| (id, header.bytes().to_vec())).collect();
            for (id, header) in held {
                let is_alive = self.coordinators[usize::from(id.coordinator.node) - 1].is_some();
                if is_alive && !self.choices.one_in(one_in) {
                    continue;
                }
                let mut actions = Vec::new();
                let header = kv::Header::of(&header).expect("it is a header");
                self.resolver.begin(group, header, self.now_us, &mut actions);
                self.take(Err(group), actions);
            }
        }
        let World { resolver, tables, .. } = self;
        resolver
            .retain(|group, id| tables[usize::from(group)].two_phase().held().any(|(held, _)| held == id));
    }

    fn run(&mut self) {
        let mut ticket = 0;
        for _ in 0..4000 {
            match self.choices.below(20) {
                0 if ticket < TRANSACTIONS => {
                    ticket += 1;
                    self.begin(ticket);
                }
                1 => self.tick(),
                3 | 4 => self.copy_one(),
                2 if self.choices.one_in(60) => {
                    let at = self.choices.below(2);
                    self.coordinators[at] = None;
                }
                _ => self.move_one(),
            }
        }
        // From here on everything arrives.
        for _ in 0..400 {
            while !self.on_its_way.is_empty() && !self.choices.one_in(500) {
                self.move_one();
            }
            self.tick();
        }
    }

    /// How often each ticket is in the lists of each group.
    fn counts(&mut self) -> BTreeMap<u64, Vec<usize>> {
        let mut counts = BTreeMap::<u64, Vec<usize>>::new();
        for (group, table) in self.tables.iter_mut().enumerate() {
            for ticket in tickets_in(table) {
                counts.entry(ticket).or_insert_with(|| vec![0; GROUPS.into()])[group] += 1;
            }
        }
        counts
    }
}

/// What is in the lists of a group.
fn tickets_in(table: &mut Table) -> Vec<u64> {
    let mut tickets = list_in(table, b"a");
    tickets.extend(list_in(table, b"b"));
    tickets
}

fn list_in(table: &mut Table, key: &[u8]) -> Vec<u64> {
    let mut out = ReplyBuffer::new();
    table.read(&Command::OnList(ListCommand::Range { key, start: 0, end: -1 }), 0, &mut out);
    tickets_of(Reader::new(out.as_bytes()))
}

/// The elements of an encoded list of tickets.
fn tickets_of(mut reader: Reader<'_>) -> Vec<u64> {
    let mut tickets = Vec::new();
    while !reader.is_empty() {
        if let Ok(kv::Reply::Bulk(element)) = kv::Reply::decode(&mut reader) {
            tickets.push(String::from_utf8_lossy(element).parse().expect("a ticket"));
        }
    }
    tickets
}

/// The list that a transaction has read in a group, with its name.
fn read_in(found: &Found) -> NamedList {
    let mut elements = Reader::new(&found.reply);
    assert_eq!(kv::Reply::decode(&mut elements), Ok(kv::Reply::Array(2)), "a name and a list");
    match kv::Reply::decode(&mut elements) {
        Ok(kv::Reply::Bulk(key)) => (key.to_vec(), tickets_of(elements)),
        other => panic!("{other:?} is no name"),
    }
}

/// A copy of a table, in which nothing is locked.
fn unlocked(table: &mut Table) -> Table {
    let (snapshot, mut copy, mut chunk) = (table.begin_snapshot(), Table::new(9), Vec::new());
    while table.snapshot_chunk(snapshot, 1 << 20, &mut chunk) {}
    table.end_snapshot(snapshot);
    copy.install(&chunk).expect("a whole snapshot");
    let held: Vec<Vec<u8>> = copy.two_phase().held().map(|(_, header)| header.bytes().to_vec()).collect();
    for (version, header) in (1_000_000..).zip(held) {
        let header = kv::Header::of(&header).expect("it is a header");
        let abort = Command::TwoPhase(kv::TwoPhaseCommand::Abort { header });
        copy.apply(&abort, version, 1, &mut ReplyBuffer::new());
    }
    copy
}

/// Whether groups have locked all keys: each has told how many there are.
fn is_count(found: &[Found]) -> bool {
    found.iter().all(|found| matches!(kv::Reply::first(&found.reply), kv::Reply::Integer(_)))
}

/// A table with the names of its lists.
fn table(group: u16) -> Table {
    let mut table = Table::new(group.into());
    for (version, name) in (1..).zip([&b"a"[..], b"b"]) {
        let key = [b"name of ", name].concat();
        let (expiry, condition, answer) = (kv::Expiry::Clear, kv::Condition::Always, kv::SetAnswer::Status);
        let set = Command::Set { key: &key, value: name, expiry, condition, answer };
        table.apply(&set, version, 1, &mut ReplyBuffer::new());
    }
    table
}

/// Reads a list, and its name.
fn reading(key: &[u8]) -> Vec<u8> {
    let mut draft = Draft::default();
    let name = [b"name of ", key].concat();
    assert!(draft.push(&Command::Get { key: &name }));
    assert!(draft.push(&Command::OnList(ListCommand::Range { key, start: 0, end: -1 })));
    let mut share = Vec::new();
    Share::build(&Command::Transaction(draft.transaction()), &mut share).expect("it can be shared");
    share
}

fn pushing(key: &[u8], ticket: u64) -> Vec<u8> {
    let (mut list, text) = (Vec::new(), ticket.to_string());
    let elements = List::build(&mut list, [text.as_bytes()]);
    let mut draft = Draft::default();
    assert!(draft.push(&Command::OnList(ListCommand::Push {
        key,
        elements,
        at_front: false,
        if_present: false
    })));
    let mut share = Vec::new();
    Share::build(&Command::Transaction(draft.transaction()), &mut share).expect("it can be shared");
    share
}

#[test]
fn transactions_are_carried_out_in_all_of_their_groups_or_in_none() {
    let (mut done, mut refused, mut unknown, mut copied, mut read) = (0, 0, 0, 0, 0);
    for seed in 1..=2000 {
        let mut world = World::new(seed);
        world.run();
        let counts = world.counts();
        for table in &world.tables {
            assert!(!table.two_phase().locks_any(), "seed {seed}: a lock is left");
            table.check_invariants();
        }
        for coordinator in world.coordinators.iter().flatten() {
            assert!(coordinator.is_empty(), "seed {seed}: {coordinator:?} is not done");
        }
        for (ticket, counts) in &counts {
            assert!(
                counts.iter().all(|count| *count <= 1),
                "seed {seed}: {ticket} is carried out twice: {counts:?}"
            );
        }
        // What groups showed while all keys of all were locked is of one moment.
        for Moment { ticket, copies, .. } in &world.copied {
            copied += 1;
            let is_in = |other: &u64| copies.values().any(|copy| copy.contains(other));
            for (other, all) in &counts {
                let shown = |group: &u16| copies[group].iter().filter(|it| *it == other).count();
                let shown: Vec<usize> = (0..GROUPS).map(|group| shown(&group)).collect();
                assert!(!is_in(other) || shown == *all, "seed {seed}: moment {ticket} has half of {other}");
                let causes = world.before[other].iter().filter(|cause| counts.contains_key(cause));
                let lacks = causes.filter(|cause| !is_in(cause)).find(|_| is_in(other));
                assert_eq!(lacks, None, "seed {seed}: moment {ticket} has {other} without it");
            }
            let mut done = world.before[ticket].iter().filter(|cause| counts.contains_key(cause));
            assert_eq!(done.find(|done| !is_in(done)), None, "seed {seed}: moment {ticket} is too old");
        }
        // What a transaction has read that changed nothing is of one moment.
        let lists = |table: &mut Table| [b"a", b"b"].map(|key| list_in(table, key));
        let left: Vec<[Vec<u64>; 2]> = world.tables.iter_mut().map(lists).collect();
        for (ticket, lists) in &world.read {
            if !matches!(world.ended.get(ticket), Some(Ended::Done(_))) {
                continue;
            }
            read += 1;
            for other in counts.keys() {
                let adds = |(group, (key, _)): &(&u16, &NamedList)| {
                    left[usize::from(**group)][usize::from(key == b"b")].contains(other)
                };
                let added = lists.iter().filter(adds).count();
                let shown = lists.values().filter(|(_, tickets)| tickets.contains(other)).count();
                assert!(shown == 0 || shown == added, "seed {seed}: {ticket} reads half of {other}");
                let is_before = world.before[ticket].contains(other);
                assert!(
                    !is_before || shown == added,
                    "seed {seed}: {ticket} does not read {other}, which was done"
                );
            }
        }
        for (ticket, ended) in &world.ended {
            if !world.before.contains_key(ticket) || world.is_moment.contains(ticket) {
                continue;
            }
            let done_in = counts.get(ticket).map_or(0, |counts| counts.iter().sum());
            match ended {
                Ended::Done(replies) => {
                    done += 1;
                    let groups = world.evaluated.get(ticket).copied().unwrap_or(replies.len());
                    assert_eq!(done_in, groups, "seed {seed}: {ticket} is done in some of its groups");
                }
                Ended::Changed | Ended::Refused(_) => {
                    refused += 1;
                    assert_eq!(done_in, 0, "seed {seed}: {ticket} was refused, and is done");
                }
                Ended::Unknown => unknown += 1,
            }
        }
    }
    assert!(
        done > 7_000 && refused > 100 && unknown > 100 && copied > 500 && read > 500,
        "{done} done, {refused} refused, {unknown} unknown, {copied} copied, {read} read"
    );
}

#[test]
fn what_was_read_under_a_lock_that_was_given_up_is_read_again() {
    let mut tables = [table(0), table(1)];
    let mut version = 10;
    let mut apply = |table: &mut Table, record: &[u8]| {
        let (command, mut out) = (Command::decode(&mut Reader::new(record)).unwrap(), ReplyBuffer::new());
        version += 1;
        match command.is_write() {
            true => table.apply(&command, version, 1, &mut out),
            false => table.read(&command, 1, &mut out),
        };
        (Outcome::Done { version, offset: version }, out.as_bytes().to_vec())
    };
    let planned = |group| Planned { group, decides: true, share: reading(b"a") };
    let mut coordinator = Coordinator::new(kv::Coordinator { node: 1, life: 1 }, Planted::default());
    let mut actions = Vec::new();
    coordinator.begin_locking((1, 0), [0, 1].map(planned).to_vec(), 1_000_000, &mut actions);
    let (mut read, mut ended, mut is_first) = (Vec::new(), None, true);
    while !actions.is_empty() {
        match actions.remove(0) {
            Action::Submit { group, asked, record } => {
                if group == 1 && std::mem::take(&mut is_first) {
                    // Group 0 has locked, and group 1 has not: others resolve the transaction, and another one takes effect.
                    let (_, header) = tables[0].two_phase().held().next().expect("it has locked its key");
                    let (resolve, mut record) = (TwoPhaseCommand::Resolve { header }, Vec::new());
                    Command::TwoPhase(resolve).encode(&mut record);
                    apply(&mut tables[0], &record);
                    tables.iter_mut().for_each(|table| drop(apply(table, &pushing(b"a", 7))));
                }
                let (result, reply) = apply(&mut tables[usize::from(group)], &record);
                coordinator.answered(group, asked, (result, &reply), 1, &mut actions);
            }
            Action::Evaluate { id, found, .. } => {
                read.push([read_in(&found[0]).1, read_in(&found[1]).1]);
                coordinator.evaluated(id, Evaluated::Nothing, &mut actions);
            }
            Action::End { ended: how, .. } => ended = Some(how),
        }
    }
    assert_eq!(ended, Some(Ended::Done(Vec::new())));
    assert_eq!(read, [[vec![], vec![7]], [vec![7], vec![7]]]);
    assert!(coordinator.is_empty() && tables.iter().all(|table| !table.two_phase().locks_any()));
}

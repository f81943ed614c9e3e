//! Transactions over several keys: whether a history of them is strictly serializable, that is, whether the transactions
//! could have been carried out one after the other, each between its start and its end.
//!
//! The keys hold lists, which transactions read whole and to which they append elements, each of them once. So what a
//! transaction has read shows in which order the appends to that key took effect. From this follow the orders of transactions that
//! any explanation must have (`graph`); it exists if and only if they do not contradict each other. Unlike a search this takes
//! time in proportion to what was read, whatever was concurrent.
//!
//! Source: Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations" (VLDB 2020), sections 4 to
//! 6.

mod graph;
mod json;
#[cfg(test)]
mod tests;

use graph::Graph;
use std::collections::{BTreeMap, BTreeSet};

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Appends an element to the list of a key.
    Append {
        /// The key.
        key: Vec<u8>,
        /// The element, which nothing else appends to this key.
        element: Vec<u8>,
    },
    /// Reads the list of a key.
    Read {
        /// The key.
        key: Vec<u8>,
        /// The elements, in order. Empty for a missing key, and meaningless in a transaction that was not answered.
        elements: Vec<Vec<u8>>,
    },
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All of it was carried out.
    Ok,
    /// Nothing of it was carried out.
    Failed,
    /// It may have been carried out, may be at any later time, or never.
    Unknown,
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The client's number.
    pub client: u64,
    /// When the request was sent, in nanoseconds on one clock that all clients share.
    pub start: u64,
    /// When the answer arrived; `None` if it did not.
    pub end: Option<u64>,
    /// How it ended.
    pub ending: Ending,
    /// Its steps, in order.
    pub steps: Vec<Step>,
}

/// A history of transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transactions {
    /// In any order.
    pub all: Vec<Transaction>,
}

/// Why one transaction must come before another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It had ended before the other one began.
    Earlier,
    /// It has appended what the other one has read, or what precedes the other one's element.
    Appended {
        /// The key.
        key: Vec<u8>,
        /// What it has appended.
        element: Vec<u8>,
        /// Whether the other one has read it.
        is_read: bool,
    },
    /// It has read the list without what the other one has appended.
    Missed {
        /// The key.
        key: Vec<u8>,
        /// What the other one has appended.
        element: Vec<u8>,
    },
}

/// Why a history is not strictly serializable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// These transactions, by their places in the history, would each have to come before the next one, and the last before the
    /// first.
    Cycle(Vec<(usize, Reason)>),
    /// A transaction cannot have read what it says, whatever the order.
    Impossible {
        /// Its place.
        reader: usize,
        /// The key.
        key: Vec<u8>,
        /// What is wrong with what it has read.
        why: &'static str,
    },
    /// An element was appended twice, so the history shows nothing.
    AppendedTwice {
        /// The places of the transactions.
        by: [usize; 2],
        /// The key.
        key: Vec<u8>,
        /// The element.
        element: Vec<u8>,
    },
}

/// What a history shows of a key.
#[derive(Default)]
struct List<'h> {
    /// Who has appended each element, and the number of that append among those of the transaction to this key.
    appended: BTreeMap<&'h [u8], (usize, usize)>,
    /// How many elements each transaction has appended.
    counts: BTreeMap<usize, usize>,
    /// What was read, and by whom.
    reads: Vec<(usize, &'h [Vec<u8>])>,
    /// The longest list that was read.
    longest: &'h [Vec<u8>],
}

impl Transactions {
    /// The number of transactions with an answer that can be right or wrong.
    pub fn answered(&self) -> usize {
        self.all.iter().filter(|it| it.ending == Ending::Ok).count()
    }

    /// Checks whether the history is strictly serializable. O(n log n) in what was appended and read.
    ///
    /// # Errors
    /// [`Violation`], with a shortest contradiction.
    pub fn strictly_serializable(&self) -> Result<(), Violation> {
        let lists = self.lists()?;
        self.reads_are_possible(&lists)?;
        let mut graph = Graph::new(self.all.len());
        graph.add_times(&self.all);
        // One that was not answered was carried out if a read shows an element of it.
        let mut is_done: Vec<bool> = self.all.iter().map(|it| it.ending == Ending::Ok).collect();
        for list in lists.values() {
            list.longest.iter().for_each(|element| is_done[list.appended[&element[..]].0] = true);
        }
        for (key, list) in &lists {
            Transactions::add_orders(key, list, &is_done, &mut graph);
        }
        match graph.cycle() {
            Some(cycle) => Err(Violation::Cycle(cycle)),
            None => Ok(()),
        }
    }

    fn lists(&self) -> Result<BTreeMap<&[u8], List<'_>>, Violation> {
        let mut lists = BTreeMap::<&[u8], List<'_>>::new();
        for (place, transaction) in self.all.iter().enumerate() {
            for step in &transaction.steps {
                match step {
                    Step::Append { key, element } => {
                        let list = lists.entry(key).or_default();
                        let count = list.counts.entry(place).or_default();
                        let before = list.appended.insert(element, (place, *count));
                        *count += 1;
                        if let Some((other, _)) = before {
                            let (key, element) = (key.clone(), element.clone());
                            return Err(Violation::AppendedTwice { by: [other, place], key, element });
                        }
                    }
                    Step::Read { key, elements } if transaction.ending == Ending::Ok => {
                        let list = lists.entry(key).or_default();
                        list.reads.push((place, elements));
                        if elements.len() > list.longest.len() {
                            list.longest = elements;
                        }
                    }
                    Step::Read { .. } => {}
                }
            }
        }
        Ok(lists)
    }

    /// Checks each read alone: all lists of a key are beginnings of the longest one, no element is of a transaction that failed,
    /// and nothing was read between two appends of another transaction.
    fn reads_are_possible(&self, lists: &BTreeMap<&[u8], List<'_>>) -> Result<(), Violation> {
        let answered = self.all.iter().enumerate().filter(|(_, it)| it.ending == Ending::Ok);
        for (reader, transaction) in answered {
            let mut own = BTreeMap::<&[u8], Vec<&[u8]>>::new();
            for step in &transaction.steps {
                let (key, elements) = match step {
                    Step::Append { key, element } => {
                        own.entry(key).or_default().push(element);
                        continue;
                    }
                    Step::Read { key, elements } => (key, elements),
                };
                let list = &lists[&key[..]];
                let impossible = |why| Err(Violation::Impossible { reader, key: key.clone(), why });
                if !list.longest.starts_with(elements) {
                    return impossible("it contradicts another read of this key");
                }
                let appenders = elements.iter().map(|element| list.appended.get(&element[..]));
                if appenders.clone().any(|it| it.is_none_or(|(by, _)| self.all[*by].ending == Ending::Failed))
                {
                    return impossible("it contains an element that no transaction can have appended");
                }
                let own = own.get(&key[..]).map_or(&[][..], Vec::as_slice);
                let Some(others) = elements.len().checked_sub(own.len()) else {
                    return impossible("it lacks what this transaction itself has appended before");
                };
                if elements[others..].iter().map(Vec::as_slice).ne(own.iter().copied()) {
                    return impossible("it lacks what this transaction itself has appended before");
                }
                let last = elements[..others].last().and_then(|element| list.appended.get(&element[..]));
                if let Some((by, number)) = last
                    && *by != reader
                    && list.counts[by] > number + 1
                {
                    return impossible("it has a part of what another transaction has appended");
                }
            }
        }
        Ok(())
    }

    /// Adds the orders that follow from what was read of a key.
    fn add_orders(key: &[u8], list: &List<'_>, is_done: &[bool], graph: &mut Graph) {
        let order = list.longest;
        let by = |element: &[u8]| list.appended[element].0;
        let appended =
            |element: &[u8], is_read| Reason::Appended { key: key.into(), element: element.into(), is_read };
        for pair in order.windows(2) {
            graph.add(by(&pair[0]), by(&pair[1]), || appended(&pair[0], false));
        }
        // What no read shows was appended behind all that one does, or never.
        let behind: Vec<&[u8]> = match list.appended.len() > order.len() {
            false => Vec::new(),
            true => {
                let shown: BTreeSet<&[u8]> = order.iter().map(Vec::as_slice).collect();
                let unseen = list
                    .appended
                    .iter()
                    .filter(|(element, (by, _))| !shown.contains(*element) && is_done[*by]);
                unseen.map(|(element, _)| *element).collect()
            }
        };
        if let Some(last) = order.last() {
            behind.iter().for_each(|element| graph.add(by(last), by(element), || appended(last, false)));
        }
        for (reader, elements) in &list.reads {
            if let Some(last) = elements.iter().rfind(|element| by(element) != *reader) {
                graph.add(by(last), *reader, || appended(last, true));
            }
            let missed = |element: &[u8]| Reason::Missed { key: key.into(), element: element.into() };
            match order[elements.len()..].iter().find(|element| by(element) != *reader) {
                Some(next) => graph.add(*reader, by(next), || missed(next)),
                None => behind.iter().for_each(|element| graph.add(*reader, by(element), || missed(element))),
            }
        }
    }
}

impl Violation {
    /// The places of the transactions that show it, in the history.
    pub fn places(&self) -> Vec<usize> {
        match self {
            Violation::Cycle(cycle) => cycle.iter().map(|(place, _)| *place).collect(),
            Violation::Impossible { reader, .. } => vec![*reader],
            Violation::AppendedTwice { by, .. } => by.to_vec(),
        }
    }

    /// The violation in words, with one line for each transaction of a contradiction.
    pub fn words(&self, history: &Transactions) -> String {
        let text = |bytes: &[u8]| format!("'{}'", bytes.escape_ascii());
        let name = |place: &usize| {
            let it = &history.all[*place];
            format!("transaction {} of client {}", place + 1, it.client)
        };
        match self {
            Violation::Cycle(cycle) => {
                let mut words =
                    String::from("no order of these transactions explains what they have read:\n");
                for (at, (place, reason)) in cycle.iter().enumerate() {
                    let next = &cycle[(at + 1) % cycle.len()].0;
                    let why = match reason {
                        Reason::Earlier => "it had ended when that one began".into(),
                        Reason::Appended { key, element, is_read: true } => {
                            format!(
                                "it has appended {} to key {}, which that one has read",
                                text(element),
                                text(key)
                            )
                        }
                        Reason::Appended { key, element, is_read: false } => format!(
                            "it has appended {} to key {}, and that one what comes behind it",
                            text(element),
                            text(key)
                        ),
                        Reason::Missed { key, element } => {
                            format!(
                                "it has read key {} without {}, which that one has appended",
                                text(key),
                                text(element)
                            )
                        }
                    };
                    words += &format!("  {} comes before {}: {why}\n", name(place), name(next));
                }
                words.trim_end().into()
            }
            Violation::Impossible { reader, key, why } => {
                format!("{} cannot have read this of key {}: {why}", name(reader), text(key))
            }
            Violation::AppendedTwice { by, key, element } => format!(
                "element {} was appended to key {} by {} and by {}, so the history does not show an order",
                text(element),
                text(key),
                name(&by[0]),
                name(&by[1])
            ),
        }
    }
}

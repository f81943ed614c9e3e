//! Transactions over lists of several keyspaces and shards: each appends to some and reads some, in one `MULTI`, or does one of
//! both to one list, without. Some hold a command that needs all of its keys at once, so their values move. Where values are on
//! the disk, or are kept as fragments, a list is a string, since other types are whole in memory.
//!
//! An element is the number of the operation that appends it, so no other operation appends it. What was read shows in which
//! order the appends took effect: see `judge/across`.

use crate::operation::{Key, Kind, Operation, Reply};
use crate::promise::Space;
use crate::random::Random;
use wire::resp::ArgumentsBuffer;

/// The number of lists of a keyspace.
pub(crate) const LISTS: u8 = 3;

/// The most lists that a transaction concerns.
const STEPS_MAX: u64 = 4;

/// Chooses, with a transaction's number, whether its values move.
const MOVES_SEED: u64 = 47;

/// What a transaction does to one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) key: Key,
    pub(crate) appends: bool,
}

/// What a transaction does, which its value's number decides. One of kind [`Kind::ReadAcross`] reads all lists.
pub(crate) fn steps(operation: &Operation, spaces: &[Space]) -> Vec<Step> {
    let takes_part = |space: &Space| space.kinds.contains(&Kind::Across);
    let there = (0..spaces.len()).filter(|index| takes_part(&spaces[*index]));
    let mut keys: Vec<Key> = there
        .flat_map(|index| (0..LISTS).map(move |number| Key { space: index as u8, class: b'a', number }))
        .collect();
    if operation.kind == Kind::ReadAcross {
        return keys.into_iter().map(|key| Step { key, appends: false }).collect();
    }
    let mut random = Random::new(operation.value.number.into(), u64::from(operation.key.number));
    let count = if random.percent(30) { 1 } else { random.between(2, STEPS_MAX) };
    let mut steps = Vec::new();
    while steps.len() < count as usize && !keys.is_empty() {
        let key = keys.swap_remove(random.below(keys.len() as u64) as usize);
        steps.push(Step { key, appends: random.percent(60) });
    }
    steps
}

/// A transaction between a client's connection and its node.
#[derive(Debug)]
pub(crate) struct Across {
    operation: Operation,
    steps: Vec<Step>,
    /// Whether its last command needs keys of all of its keyspaces at once.
    moves_values: bool,
    is_sent: bool,
    answers: usize,
    /// The lists that it has read, in the order of its steps.
    pub(crate) reads: Vec<Vec<Vec<u8>>>,
}

impl Across {
    pub(crate) fn new(operation: Operation, spaces: &[Space]) -> Across {
        let steps = steps(&operation, spaces);
        let moves_values = steps.len() > 1
            && operation.kind == Kind::Across
            && Random::new(operation.value.number.into(), MOVES_SEED).percent(40);
        Across { operation, steps, moves_values, is_sent: false, answers: 0, reads: Vec::new() }
    }

    pub(crate) fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Whether it is one command, without `MULTI`.
    fn is_alone(&self) -> bool {
        self.steps.len() == 1
    }

    /// Returns the requests to send now; each is returned once.
    pub(crate) fn take_requests(&mut self, spaces: &[Space]) -> Vec<ArgumentsBuffer> {
        if std::mem::replace(&mut self.is_sent, true) {
            return Vec::new();
        }
        let element = self.operation.number.to_string();
        let ended = format!("{element},");
        let command = |step: &Step| {
            let space = &spaces[usize::from(step.key.space)];
            let (name, rest): (&[u8], &[&[u8]]) = match (space.is_spilled() || space.is_coded(), step.appends)
            {
                (false, true) => (b"RPUSH", &[element.as_bytes()]),
                (false, false) => (b"LRANGE", &[b"0", b"-1"]),
                (true, true) => (b"APPEND", &[ended.as_bytes()]),
                (true, false) => (b"GET", &[]),
            };
            let mut request = ArgumentsBuffer::new();
            request.push(name);
            request.push_with(|out| step.key.write(&space.keyspace.prefix, out));
            rest.iter().for_each(|argument| request.push(argument));
            request
        };
        // No such set exists.
        let union = self.moves_values.then(|| {
            let mut request = ArgumentsBuffer::new();
            request.push(b"SUNION");
            for Step { key, .. } in &self.steps {
                let prefix = &spaces[usize::from(key.space)].keyspace.prefix;
                request.push(format!("{prefix}none{}", key.number).as_bytes());
            }
            request
        });
        let commands = self.steps.iter().map(command).chain(union);
        let alone = |name: &[u8]| {
            let mut request = ArgumentsBuffer::new();
            request.push(name);
            request
        };
        match self.is_alone() {
            true => commands.collect(),
            false => std::iter::once(alone(b"MULTI")).chain(commands).chain([alone(b"EXEC")]).collect(),
        }
    }

    /// Takes the next reply off `bytes`. Returns the client's reply after the last one. `None`: it is incomplete, or no correct
    /// node sends it.
    pub(crate) fn take(&mut self, bytes: &mut &[u8]) -> Option<Option<Reply>> {
        let (answer, rest) = bytes.split_at(Reply::length(bytes)?);
        *bytes = rest;
        self.answers += 1;
        let commands = self.steps.len() + usize::from(self.moves_values);
        let before_exec = if self.is_alone() { 0 } else { commands + 1 };
        if self.answers <= before_exec {
            // What is refused here is refused by EXEC, too.
            let is_expected = matches!(answer, b"+OK\r\n" | b"+QUEUED\r\n") || answer.starts_with(b"-");
            return is_expected.then_some(None);
        }
        if answer.starts_with(b"-") {
            return Some(Some(Reply::take(&mut { answer })?));
        }
        // An earlier WATCH of the client has failed.
        if answer == b"*-1\r\n" {
            return Some(Some(Reply::Refused("ABORTED")));
        }
        let mut elements = answer;
        if !self.is_alone() {
            let head = format!("*{commands}\r\n");
            let Some(inner) = answer.strip_prefix(head.as_bytes()) else { return Some(Some(Reply::Wrong)) };
            elements = inner;
        }
        for step in &self.steps {
            let (element, others) = elements.split_at(Reply::length(elements)?);
            elements = others;
            match step.appends {
                true if element.starts_with(b":") => {}
                false if element.starts_with(b"*") => self.reads.push(list(element)?),
                false if element.starts_with(b"$") => self.reads.push(list_in_string(element)?),
                // One of its commands was refused alone: no correct node does that.
                _ => return Some(Some(Reply::Torn)),
            }
        }
        let is_whole = elements == if self.moves_values { &b"*0\r\n"[..] } else { b"" };
        Some(Some(if is_whole { Reply::Ok } else { Reply::Torn }))
    }
}

/// The elements of an encoded list.
fn list(encoded: &[u8]) -> Option<Vec<Vec<u8>>> {
    let after_line = |bytes: &[u8]| Some(bytes.iter().position(|byte| *byte == b'\n')? + 1);
    let mut rest = &encoded[after_line(encoded)?..];
    let mut elements = Vec::new();
    while !rest.is_empty() {
        let (element, others) = rest.split_at(Reply::length(rest)?);
        elements.push(element[after_line(element)?..].strip_suffix(b"\r\n")?.to_vec());
        rest = others;
    }
    Some(elements)
}

/// The elements in an encoded string, each with a comma behind it.
fn list_in_string(encoded: &[u8]) -> Option<Vec<Vec<u8>>> {
    if encoded == b"$-1\r\n" {
        return Some(Vec::new());
    }
    let start = encoded.iter().position(|byte| *byte == b'\n')? + 1;
    let elements = encoded[start..].strip_suffix(b",\r\n")?;
    Some(elements.split(|byte| *byte == b',').map(<[u8]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Value;
    use crate::promise::Protocol;

    fn spaces() -> Vec<Space> {
        let mut space = Space::plain(Protocol::Consensus);
        space.kinds.push(Kind::Across);
        vec![space]
    }

    #[test]
    fn a_transaction_appends_and_reads() {
        let key = Key { space: 0, class: b'a', number: 0 };
        let operation = |value| {
            let value = Value { number: value, padding: 0 };
            Operation { number: 7, ..Operation::new(Kind::Across, key, value) }
        };
        let spaces = spaces();
        let is_mixed = |it: &Operation| {
            let steps = steps(it, &spaces);
            let moves = Across::new(*it, &spaces).moves_values;
            !moves && steps.len() == 2 && steps[0].appends && !steps[1].appends
        };
        let mut across = Across::new((0..).map(operation).find(is_mixed).unwrap(), &spaces);
        let words: Vec<String> = across
            .take_requests(&spaces)
            .iter()
            .map(|request| {
                let words: Vec<_> = request.as_arguments().iter().map(String::from_utf8_lossy).collect();
                words.join(" ")
            })
            .collect();
        assert_eq!((words.len(), words[0].as_str(), words[3].as_str()), (4, "MULTI", "EXEC"));
        assert!(words[1].starts_with("RPUSH a") && words[1].ends_with(" 7"), "{words:?}");
        let mut bytes = &b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:3\r\n*2\r\n$1\r\n4\r\n$2\r\n16\r\nrest"[..];
        (0..3).for_each(|_| assert_eq!(across.take(&mut bytes), Some(None)));
        assert_eq!(across.take(&mut bytes), Some(Some(Reply::Ok)));
        assert_eq!((bytes, &across.reads), (&b"rest"[..], &vec![vec![b"4".to_vec(), b"16".to_vec()]]));
    }
}

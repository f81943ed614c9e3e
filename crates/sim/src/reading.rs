//! Clients that read every change of a keyspace (`KEYSPACE WATCH`), and what must hold of the changes they get.
//!
//! Such a client keeps the version of the last change that it has received. It goes from node to node, and resumes from that
//! version at each. It sends nothing but `PING`.
//!
//! The promise: all clients get the same changes, each once, in the order of versions, and none is missing between two that a
//! client has got, unless a node reported in between that the client had come too late.

use crate::operation::Reply;
use std::collections::{BTreeMap, BTreeSet};

/// A node's pushes about changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Where the stream begins.
    Position(String),
    /// A change: its version, and a digest of what has changed.
    Change(String, u64),
    /// The stream ends, for this reason.
    Ended(String),
}

impl News {
    /// Takes a push off `bytes`. `None`: it is not about changes.
    pub(crate) fn take(bytes: &mut &[u8]) -> Option<News> {
        let (message, rest) = bytes.split_at(Reply::length(bytes)?);
        let mut left = &message[message.iter().position(|byte| *byte == b'\n')? + 1..];
        let mut next = || {
            let (element, others) = left.split_at(Reply::length(left)?);
            left = others;
            let head = element.iter().position(|byte| *byte == b'\n')? + 1;
            Some((element, String::from_utf8_lossy(element.get(head..element.len() - 2)?).into_owned()))
        };
        let (kind, _prefix, word) = (next()?.1, next()?, next()?.1);
        let news = match kind.as_str() {
            "position" => News::Position(word),
            "change" => News::Change(word, kv::digest::digest_of(left)),
            "ended" => News::Ended(word),
            _ => return None,
        };
        *bytes = rest;
        Some(news)
    }
}

/// The changes that a client has read.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The index of its keyspace, which has one shard.
    pub(crate) space: u8,
    /// The version after which it resumes.
    pub(crate) version: String,
    /// The changes that it has received, each with its number. A new list begins when it has come too late.
    pub(crate) pieces: Vec<Vec<(u64, u64)>>,
}

impl Reading {
    pub(crate) fn new(space: u8) -> Reading {
        Reading { space, version: "0".into(), pieces: vec![Vec::new()] }
    }

    /// Takes a push. Returns what is wrong with it, if anything is.
    pub(crate) fn learn(&mut self, news: News) -> Result<(), String> {
        match news {
            News::Position(version) => self.version = version,
            News::Change(version, digest) => {
                let number = version.split_once('-').and_then(|(_, number)| number.parse().ok());
                let number = number.ok_or_else(|| format!("{version} is no version"))?;
                self.version = version;
                self.pieces.last_mut().expect("there is always one").push((number, digest));
            }
            News::Ended(reason) => {
                if reason.starts_with("BEHIND ") {
                    self.version = reason.rsplit(' ').next().unwrap_or_default().to_owned();
                    self.pieces.push(Vec::new());
                }
            }
        }
        Ok(())
    }
}

/// Returns what is wrong with the changes of one keyspace that clients received. `kept` are the numbers that replicas keep at
/// the end, each list with the number after which it is complete.
pub(crate) fn judge(pieces: &[&[(u64, u64)]], kept: &[(u64, Vec<u64>)]) -> Option<String> {
    let mut all: BTreeMap<u64, u64> = BTreeMap::new();
    for (number, digest) in pieces.iter().copied().flatten() {
        if *all.entry(*number).or_insert(*digest) != *digest {
            return Some(format!("the change with version {number} is not the same for all who read it"));
        }
    }
    let mut numbers: BTreeSet<u64> = all.into_keys().collect();
    numbers.extend(kept.iter().flat_map(|(_, numbers)| numbers));
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        let mut expected = numbers.range(piece[0].0..);
        for (number, _) in *piece {
            if expected.next() != Some(number) {
                return Some(format!("a client gets version {number} where another one should come"));
            }
        }
    }
    let last = numbers.last().copied().unwrap_or(0);
    for (since, numbers_kept) in kept {
        // A replica may lag.
        let until = numbers_kept.last().copied().unwrap_or(*since).min(last);
        let expected: BTreeSet<u64> =
            numbers.range(since + 1..).copied().take_while(|number| *number <= until).collect();
        let held = numbers_kept.iter().copied().collect();
        if expected != held {
            let apart: Vec<&u64> = expected.symmetric_difference(&held).collect();
            return Some(format!(
                "a replica does not keep all versions behind {since}: {apart:?} up to {until}"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_about_changes_are_parsed() {
        let mut bytes: &[u8] = b">5\r\n$6\r\nchange\r\n$0\r\n\r\n$3\r\n1-7\r\n*0\r\n*0\r\n>3\r\n$5\r\nended\r\n$0\r\n\r\n$10\r\nBEHIND 1-9\r\n+OK\r\n";
        assert!(matches!(News::take(&mut bytes), Some(News::Change(version, _)) if version == "1-7"));
        let mut reading = Reading::new(0);
        reading.learn(News::take(&mut bytes).unwrap()).unwrap();
        assert_eq!((reading.version.as_str(), reading.pieces.len()), ("1-9", 2));
        assert_eq!(bytes, b"+OK\r\n");
        assert_eq!(News::take(&mut &b">2\r\n$10\r\ninvalidate\r\n_\r\n"[..]), None);
    }

    #[test]
    fn gaps_repetitions_and_differences_are_found() {
        let (one, other) = (&[(1, 1), (3, 3), (4, 4)][..], &[(3, 3), (4, 4)][..]);
        assert_eq!(judge(&[one, other], &[(0, vec![1, 3, 4]), (3, vec![4]), (9, vec![])]), None);
        assert!(judge(&[one, &[(3, 3), (3, 3)]], &[]).is_some());
        assert!(judge(&[one, &[(1, 1), (4, 4)]], &[]).is_some());
        assert!(judge(&[one, &[(4, 5)]], &[]).is_some());
        assert!(judge(&[&[(1, 1), (4, 4)]], &[(0, vec![1, 3, 4])]).is_some());
        assert!(judge(&[one], &[(0, vec![1, 4])]).is_some());
    }
}

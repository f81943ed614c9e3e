//! How a request over several groups is divided into shares, and how its reply is made from theirs.

use crate::context::routing::CROSSSLOT;
use kv::codec::Reader;
use kv::{Command, Draft, List, Reply, ReplyBuffer, Share, Transaction};
use std::collections::BTreeMap;
use wire::resp::reply::element_end;

/// The most keys that a request over several groups may name: each is locked by itself.
pub(crate) const SHARED_KEYS_MAX: usize = 10_000;

/// A request whose keys are in several groups, divided into commands of one group each.
#[derive(Debug, Default)]
pub(crate) struct Divided {
    drafts: BTreeMap<u16, Draft>,
    elements: Vec<Element>,
    is_array: bool,
}

/// Which groups' replies a command's reply is made from.
#[derive(Debug)]
enum Element {
    /// It is the next one of this group.
    Of(u16),
    /// `OK`, since all have done their part.
    Ok(Vec<u16>),
    /// The sum of theirs.
    Sum(Vec<u16>),
    /// One element for each key, which is in this group.
    Places(Vec<u16>),
}

/// Why a request cannot be divided.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// One of its commands needs keys of several groups at once, or uses keys that it does not name.
    NeedsAll,
    /// It names too many keys.
    TooManyKeys,
}

impl Whole {
    /// The error for the client.
    pub(crate) fn explanation(self) -> String {
        match self {
            Whole::NeedsAll => CROSSSLOT.to_owned(),
            Whole::TooManyKeys => {
                format!("ERR more than {SHARED_KEYS_MAX} keys of several keyspaces or shards in one request")
            }
        }
    }
}

impl Divided {
    /// Divides one command.
    ///
    /// # Errors
    /// [`Whole`].
    pub(crate) fn of_command(
        command: &Command<'_>,
        group_of: impl Fn(&[u8]) -> u16,
    ) -> Result<Divided, Whole> {
        let mut divided = Divided::default();
        divided.push(command, &group_of)?;
        divided.checked()
    }

    /// Divides the commands of a transaction. `watched_in`: the leadership of a group in which its keys were watched.
    ///
    /// # Errors
    /// [`Whole`].
    pub(crate) fn of_transaction(
        transaction: &Transaction<'_>,
        group_of: impl Fn(&[u8]) -> u16,
        watched_in: impl Fn(u16) -> u64,
    ) -> Result<Divided, Whole> {
        let mut divided = Divided { is_array: true, ..Divided::default() };
        for watched in transaction.watched() {
            let group = group_of(watched.key);
            divided.drafts.entry(group).or_default().watch(watched_in(group), watched);
        }
        transaction.commands().try_for_each(|command| divided.push(&command, &group_of))?;
        divided.checked()
    }

    fn checked(self) -> Result<Divided, Whole> {
        let mut keys = 0;
        for draft in self.drafts.values() {
            Command::Transaction(draft.transaction()).for_each_key(|_| keys += 1);
        }
        if keys > SHARED_KEYS_MAX { Err(Whole::TooManyKeys) } else { Ok(self) }
    }

    fn push(&mut self, command: &Command<'_>, group_of: &impl Fn(&[u8]) -> u16) -> Result<(), Whole> {
        let mut groups = Vec::new();
        command.for_each_key(|key| groups.push(group_of(key)));
        let Some(first) = groups.first().copied() else { return Err(Whole::NeedsAll) };
        let element = if groups.iter().all(|group| *group == first) {
            self.draft(first, command)?;
            Element::Of(first)
        } else {
            match *command {
                Command::MultiSet { pairs, if_absent: false } => {
                    let groups = self
                        .divide((pairs, 2), group_of, |pairs| Command::MultiSet { pairs, if_absent: false });
                    Element::Ok(groups?)
                }
                Command::Delete { keys } => {
                    Element::Sum(self.divide((keys, 1), group_of, |keys| Command::Delete { keys })?)
                }
                Command::Exists { keys } => {
                    Element::Sum(self.divide((keys, 1), group_of, |keys| Command::Exists { keys })?)
                }
                Command::MultiGet { keys } => {
                    self.divide((keys, 1), group_of, |keys| Command::MultiGet { keys })?;
                    Element::Places(groups)
                }
                _ => return Err(Whole::NeedsAll),
            }
        };
        self.elements.push(element);
        Ok(())
    }

    fn draft(&mut self, group: u16, command: &Command<'_>) -> Result<(), Whole> {
        if !command.can_be_shared() {
            return Err(Whole::NeedsAll);
        }
        match self.drafts.entry(group).or_default().push(command) {
            true => Ok(()),
            false => Err(Whole::NeedsAll),
        }
    }

    /// Divides a list whose items of `each` begin with a key. Returns the groups.
    fn divide<'l>(
        &mut self,
        (list, each): (List<'l>, usize),
        group_of: &impl Fn(&[u8]) -> u16,
        command: impl for<'s> Fn(List<'s>) -> Command<'s>,
    ) -> Result<Vec<u16>, Whole> {
        let mut parts: BTreeMap<u16, Vec<&'l [u8]>> = BTreeMap::new();
        let mut group = 0;
        for (place, item) in list.iter().enumerate() {
            if place % each == 0 {
                group = group_of(item);
            }
            parts.entry(group).or_default().push(item);
        }
        for (group, items) in &parts {
            let mut scratch = Vec::new();
            self.draft(*group, &command(List::build(&mut scratch, items.iter().copied())))?;
        }
        Ok(parts.into_keys().collect())
    }

    /// The groups, each with its encoded share. `None` if one cannot be shared: it uses keys that it does not name, or a fence.
    pub(crate) fn shares(&self) -> Option<Vec<(u16, Vec<u8>)>> {
        let share = |(group, draft): (&u16, &Draft)| {
            let mut bytes = Vec::new();
            Share::build(&Command::Transaction(draft.transaction()), &mut bytes)?;
            Some((*group, bytes))
        };
        self.drafts.iter().map(share).collect()
    }

    /// The groups.
    pub(crate) fn groups(&self) -> impl Iterator<Item = u16> {
        self.drafts.keys().copied()
    }

    /// The groups in which it writes.
    pub(crate) fn written(&self) -> impl Iterator<Item = u16> {
        let writes = |(group, draft): (&u16, &Draft)| draft.transaction().is_write().then_some(*group);
        self.drafts.iter().filter_map(writes)
    }

    /// Makes the reply from those of the groups' shares.
    pub(crate) fn join(&self, replies: &[(u16, Vec<u8>)]) -> ReplyBuffer {
        let mut out = ReplyBuffer::new();
        let mut streams: BTreeMap<u16, Stream<'_>> =
            replies.iter().map(|(group, reply)| (*group, Stream::of(reply))).collect();
        let mut next = |group: &u16| streams.get_mut(group).map_or(&[][..], Stream::next);
        if self.is_array {
            out.array(self.elements.len());
        }
        for element in &self.elements {
            match element {
                Element::Of(group) => out.extend_encoded(next(group)),
                Element::Ok(groups) | Element::Sum(groups) => {
                    let parts: Vec<&[u8]> = groups.iter().map(&mut next).collect();
                    let is_error = |part: &&&[u8]| matches!(Reply::first(part), Reply::Error(_));
                    match (parts.iter().find(is_error), element) {
                        (Some(error), _) => out.extend_encoded(error),
                        (None, Element::Ok(_)) => out.ok(),
                        (None, _) => out.integer(parts.iter().map(|part| integer(part)).sum()),
                    }
                }
                Element::Places(groups) => {
                    let mut parts: BTreeMap<u16, Stream<'_>> = BTreeMap::new();
                    for group in groups {
                        parts.entry(*group).or_insert_with(|| Stream::of(next(group)));
                    }
                    match parts.values().find_map(|part| part.instead) {
                        Some(error) => out.extend_encoded(error),
                        None => {
                            out.array(groups.len());
                            for group in groups {
                                let value = parts.get_mut(group).map_or(&[][..], Stream::next);
                                out.extend_encoded(value);
                            }
                        }
                    }
                }
            }
        }
        out
    }
}

fn integer(part: &[u8]) -> i64 {
    match Reply::first(part) {
        Reply::Integer(value) => value,
        _ => 0,
    }
}

/// The elements of a group's reply that are not taken yet.
struct Stream<'r> {
    elements: &'r [u8],
    /// The reply, if it is no array: then it takes the place of each element.
    instead: Option<&'r [u8]>,
}

impl<'r> Stream<'r> {
    fn of(reply: &'r [u8]) -> Stream<'r> {
        let mut reader = Reader::new(reply);
        match Reply::decode(&mut reader) {
            Ok(Reply::Array(_)) => Stream { elements: reader.rest(), instead: None },
            _ => Stream { elements: &[], instead: Some(reply) },
        }
    }

    fn next(&mut self) -> &'r [u8] {
        if let Some(instead) = self.instead {
            return instead;
        }
        // A peer's reply was checked to be whole when it arrived.
        let (element, rest) = self.elements.split_at(element_end(self.elements).unwrap_or(0));
        self.elements = rest;
        element
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::{Condition, Expiry, SetAnswer};

    fn group_of(key: &[u8]) -> u16 {
        key[0].into()
    }

    fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Command<'a> {
        let (expiry, condition, answer) = (Expiry::Clear, Condition::Always, SetAnswer::Status);
        Command::Set { key, value, expiry, condition, answer }
    }

    fn encoded(replies: &[Reply<'_>]) -> Vec<u8> {
        let mut buffer = ReplyBuffer::new();
        replies.iter().for_each(|reply| buffer.push(*reply));
        buffer.take()
    }

    #[test]
    fn values_come_in_the_order_of_their_keys() {
        use Reply::{Array, Bulk, Null};
        let mut scratch = Vec::new();
        let keys = List::build(&mut scratch, [&b"b1"[..], b"a1", b"b2", b"c1"]);
        let divided = Divided::of_command(&Command::MultiGet { keys }, group_of).unwrap();
        assert_eq!(divided.groups().collect::<Vec<_>>(), [97, 98, 99]);
        assert_eq!((divided.shares().unwrap().len(), divided.written().count()), (3, 0));
        let replies = [
            (97, encoded(&[Array(1), Array(1), Bulk(b"A")])),
            (98, encoded(&[Array(1), Array(2), Null, Bulk(b"B")])),
            (99, encoded(&[Array(1), Array(1), Bulk(b"C")])),
        ];
        let joined = divided.join(&replies);
        assert_eq!(joined.as_bytes(), encoded(&[Array(4), Null, Bulk(b"A"), Bulk(b"B"), Bulk(b"C")]));
    }

    #[test]
    fn a_transaction_has_one_element_for_each_command_wherever_that_was_carried_out() {
        use Reply::{Array, Error, Integer, Ok};
        let mut draft = Draft::default();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        draft.push(&set(b"b", b"1"));
        draft.push(&Command::Delete { keys: List::build(&mut first, [&b"a"[..], b"b", b"c"]) });
        draft.push(&set(b"a", b"2"));
        let pairs = List::build(&mut second, [&b"a"[..], b"3", b"b", b"4"]);
        draft.push(&Command::MultiSet { pairs, if_absent: false });
        let divided = Divided::of_transaction(&draft.transaction(), group_of, |_| 0).unwrap();
        assert_eq!(divided.written().collect::<Vec<_>>(), [97, 98, 99]);
        let replies = [
            (97, encoded(&[Array(3), Integer(1), Ok, Ok])),
            (98, encoded(&[Array(3), Ok, Integer(1), Error(b"OOM full")])),
            (99, encoded(&[Array(1), Integer(0)])),
        ];
        let joined = divided.join(&replies);
        assert_eq!(joined.as_bytes(), encoded(&[Array(4), Ok, Integer(2), Ok, Error(b"OOM full")]));
    }

    #[test]
    fn what_needs_keys_of_several_groups_at_once_is_not_divided() {
        let mut scratch = Vec::new();
        let pairs = List::build(&mut scratch, [&b"a"[..], b"3", b"b", b"4"]);
        let needs_all = Divided::of_command(&Command::MultiSet { pairs, if_absent: true }, group_of);
        assert_eq!(needs_all.unwrap_err(), Whole::NeedsAll);
        assert_eq!(Divided::of_command(&Command::Size {}, group_of).unwrap_err(), Whole::NeedsAll);
        let names: Vec<Vec<u8>> = (0..=SHARED_KEYS_MAX).map(|n| format!("{}", n % 7).into_bytes()).collect();
        let mut scratch = Vec::new();
        let keys = List::build(&mut scratch, names.iter().map(Vec::as_slice));
        let too_many = Divided::of_command(&Command::Exists { keys }, group_of);
        assert_eq!(too_many.unwrap_err(), Whole::TooManyKeys);
    }
}

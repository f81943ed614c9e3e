//! How a request over several groups is divided into shares, and how its reply is made from theirs. Several requests of a
//! connection may be merged into one transaction: then each has its own reply.

use crate::context::routing::CROSSSLOT;
use kv::codec::Reader;
use kv::{Command, Draft, List, Reply, ReplyBuffer, ScriptOptions, Share, Transaction};
use std::collections::{BTreeMap, BTreeSet};
use wire::resp::reply::element_end;

/// The most keys that a request over several groups may name: each is locked by itself.
pub(crate) const SHARED_KEYS_MAX: usize = 10_000;

/// The most bytes of a share to which another request is added. A share that is long itself travels as a long write, which takes
/// more rounds: requests that wait for each other are not made one.
pub(crate) const MERGED_BYTES_MAX: usize = 1 << 20;

/// A request whose keys are in several groups, divided into commands of one group each; or several requests, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Divided {
    drafts: BTreeMap<u16, Draft>,
    /// How the reply of each request is made.
    forms: Vec<Form>,
    keys: usize,
}

/// How the reply of a request is made from its groups' replies.
#[derive(Debug, Default)]
struct Form {
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

impl Element {
    /// The groups that have a command for it, each once.
    fn groups(&self) -> Vec<u16> {
        match self {
            Element::Of(group) => vec![*group],
            Element::Ok(groups) | Element::Sum(groups) => groups.clone(),
            Element::Places(groups) => {
                groups.iter().copied().collect::<BTreeSet<u16>>().into_iter().collect()
            }
        }
    }
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
        let mut divided = Divided { forms: vec![Form::default()], ..Divided::default() };
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
        let form = Form { is_array: true, ..Form::default() };
        let mut divided = Divided { forms: vec![form], ..Divided::default() };
        for watched in transaction.watched() {
            let group = group_of(watched.key);
            divided.drafts.entry(group).or_default().watch(watched_in(group), watched);
        }
        transaction.commands().try_for_each(|command| divided.push(&command, &group_of))?;
        divided.checked()
    }

    fn checked(mut self) -> Result<Divided, Whole> {
        for draft in self.drafts.values() {
            Command::Transaction(draft.transaction()).for_each_key(|_| self.keys += 1);
        }
        if self.keys > SHARED_KEYS_MAX { Err(Whole::TooManyKeys) } else { Ok(self) }
    }

    /// Whether it watches keys: if one has changed, nothing of the transaction is done.
    pub(crate) fn is_watching(&self) -> bool {
        self.drafts.values().any(|draft| draft.watched_len() > 0)
    }

    /// Whether another request may be carried out in the same transaction, behind this one.
    pub(crate) fn can_take(&self, other: &Divided) -> bool {
        let is_short = |(group, draft): (&u16, &Draft)| {
            self.drafts.get(group).map_or(0, Draft::bytes) + draft.bytes() <= MERGED_BYTES_MAX
        };
        !self.is_watching()
            && !other.is_watching()
            && self.keys + other.keys <= SHARED_KEYS_MAX
            && other.drafts.iter().all(is_short)
    }

    /// Whether it watches nothing, and runs no script.
    pub(crate) fn is_plain(&self) -> bool {
        let is_plain = |it: Command<'_>| !matches!(it, Command::Script(_));
        !self.is_watching() && self.drafts.values().all(|draft| draft.transaction().commands().all(is_plain))
    }

    /// The number of keys that it names, each as often as it does.
    pub(crate) fn keys(&self) -> usize {
        self.keys
    }

    /// The bytes of its shares.
    pub(crate) fn bytes(&self) -> usize {
        self.drafts.values().map(Draft::bytes).sum()
    }

    /// Adds another request behind this one.
    ///
    /// # Panics
    /// When the other one watches keys.
    pub(crate) fn merge(&mut self, other: Divided) {
        other.drafts.iter().for_each(|(group, draft)| self.drafts.entry(*group).or_default().append(draft));
        self.forms.extend(other.forms);
        self.keys += other.keys;
    }

    /// The requests, each by itself again.
    pub(crate) fn split(self) -> Vec<Divided> {
        let mut commands: BTreeMap<u16, _> =
            self.drafts.iter().map(|(group, draft)| (*group, draft.transaction().commands())).collect();
        let one = |form: Form| {
            let mut divided = Divided::default();
            for group in form.elements.iter().flat_map(Element::groups) {
                let command = commands.get_mut(&group).and_then(Iterator::next).expect("it was put there");
                command.for_each_key(|_| divided.keys += 1);
                assert!(divided.drafts.entry(group).or_default().push(&command), "it was a part before");
            }
            divided.forms.push(form);
            divided
        };
        self.forms.into_iter().map(one).collect()
    }

    /// Whether all of its keys are still in the groups that they were divided over.
    pub(crate) fn is_still(&self, belongs: impl Fn(u16, &Command<'_>) -> bool) -> bool {
        self.drafts
            .iter()
            .all(|(group, draft)| draft.transaction().commands().all(|command| belongs(*group, &command)))
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
        self.forms.last_mut().expect("a request has a reply").elements.push(element);
        Ok(())
    }

    fn draft(&mut self, group: u16, command: &Command<'_>) -> Result<(), Whole> {
        // For a client that caches what it reads, the keys that a script declares are noted.
        let silent = match *command {
            Command::Script(script) => {
                let options = ScriptOptions { tells_reads: false, ..script.options() };
                Command::Script(script.with_options(options))
            }
            command => command,
        };
        match command.can_be_shared() && self.drafts.entry(group).or_default().push(&silent) {
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

    /// By group: what it does.
    pub(crate) fn drafts(&self) -> &BTreeMap<u16, Draft> {
        &self.drafts
    }

    /// By group: the keys that its reads name, and all keys of scripts.
    pub(crate) fn reads(&self) -> Vec<(u16, Vec<Box<[u8]>>)> {
        let reads = |(group, draft): (&u16, &Draft)| {
            let mut keys: Vec<Box<[u8]>> = Vec::new();
            let commands = draft.transaction().commands();
            commands.filter(|it| !it.is_write() || matches!(it, Command::Script(_))).for_each(|command| {
                command.for_each_key(|key| keys.push(key.into()));
            });
            (*group, keys)
        };
        self.drafts.iter().map(reads).collect()
    }

    /// The groups in which it writes.
    pub(crate) fn written(&self) -> impl Iterator<Item = u16> {
        let writes = |(group, draft): (&u16, &Draft)| draft.transaction().is_write().then_some(*group);
        self.drafts.iter().filter_map(writes)
    }

    /// Makes the reply of each request from those of the groups' shares.
    pub(crate) fn join(&self, replies: &[(u16, Vec<u8>)]) -> Vec<ReplyBuffer> {
        let mut streams: BTreeMap<u16, Stream<'_>> =
            replies.iter().map(|(group, reply)| (*group, Stream::of(reply))).collect();
        self.forms.iter().map(|form| form.join(&mut streams)).collect()
    }
}

impl Form {
    /// Makes the reply from what comes next in the groups' replies.
    fn join(&self, streams: &mut BTreeMap<u16, Stream<'_>>) -> ReplyBuffer {
        let mut out = ReplyBuffer::new();
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
        let [joined] = &divided.join(&replies)[..] else { unreachable!("one request, one reply") };
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
        let [joined] = &divided.join(&replies)[..] else { unreachable!("one request, one reply") };
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

    fn two_requests() -> Divided {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let pairs = List::build(&mut first, [&b"a"[..], b"1", b"b", b"2"]);
        let mut divided =
            Divided::of_command(&Command::MultiSet { pairs, if_absent: false }, group_of).unwrap();
        let mut draft = Draft::default();
        draft.push(&set(b"b", b"3"));
        draft.push(&Command::MultiGet { keys: List::build(&mut second, [&b"b"[..], b"c", b"b2"]) });
        let other = Divided::of_transaction(&draft.transaction(), group_of, |_| 0).unwrap();
        assert!(divided.can_take(&other));
        divided.merge(other);
        divided
    }

    #[test]
    fn merged_requests_have_each_its_own_reply() {
        use Reply::{Array, Bulk, Error, Null, Ok};
        let divided = two_requests();
        assert_eq!(divided.groups().collect::<Vec<_>>(), [97, 98, 99]);
        let replies = [
            (97, encoded(&[Array(1), Ok])),
            (98, encoded(&[Array(3), Error(b"ERR no"), Ok, Array(2), Bulk(b"3"), Null])),
            (99, encoded(&[Array(1), Array(1), Bulk(b"C")])),
        ];
        let joined = divided.join(&replies);
        let joined: Vec<&[u8]> = joined.iter().map(ReplyBuffer::as_bytes).collect();
        let second = encoded(&[Array(2), Ok, Array(3), Bulk(b"3"), Bulk(b"C"), Null]);
        assert_eq!(joined, [&encoded(&[Error(b"ERR no")])[..], &second]);
    }

    #[test]
    fn merged_requests_are_split_as_they_were() {
        let shares = |divided: &Divided| divided.shares().unwrap();
        let parts = two_requests().split();
        assert_eq!(parts.iter().map(|part| part.keys).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(parts[1].groups().collect::<Vec<_>>(), [98, 99]);
        let mut parts = parts.into_iter();
        let mut whole = parts.next().unwrap();
        parts.for_each(|part| whole.merge(part));
        assert_eq!(shares(&whole), shares(&two_requests()));
    }

    #[test]
    fn what_would_be_long_or_watches_is_not_merged() {
        let long = vec![b'v'; MERGED_BYTES_MAX / 2];
        let setting = |keys: [&[u8]; 2], value: &[u8]| {
            let mut scratch = Vec::new();
            let pairs = List::build(&mut scratch, [keys[0], value, keys[1], b"1"]);
            Divided::of_command(&Command::MultiSet { pairs, if_absent: false }, group_of).unwrap()
        };
        let mut divided = setting([b"a", b"b"], &long);
        assert!(!divided.can_take(&setting([b"a", b"b"], &long)), "the share of a");
        assert!(divided.can_take(&setting([b"b", b"c"], &long)));
        divided.merge(setting([b"b", b"c"], b"1"));
        let mut draft = Draft::default();
        draft.watch(1, kv::Watched { key: b"a", version: 1, floor: 0 });
        draft.push(&set(b"b", b"3"));
        let watching = Divided::of_transaction(&draft.transaction(), group_of, |_| 1).unwrap();
        assert!(!divided.can_take(&watching) && !watching.can_take(&divided));
        let names: Vec<Vec<u8>> =
            (0..SHARED_KEYS_MAX - 3).map(|n| format!("{}", n % 7).into_bytes()).collect();
        let mut scratch = Vec::new();
        let keys = List::build(&mut scratch, names.iter().map(Vec::as_slice));
        let many = Divided::of_command(&Command::Exists { keys }, group_of).unwrap();
        assert!(!divided.can_take(&many), "too many keys");
    }
}

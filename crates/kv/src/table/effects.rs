//! The effects of changes: Redis commands that do the same without looking at a clock or drawing random numbers.
//!
//! A copy that carries out the effects of all records in order holds the same as the table, except expired keys. The
//! removal of an expired key is an effect of its own, so the copy must not expire any key by itself.
//!
//! An effect is written when a command has been carried out, while its record is applied. So the effects of transactions
//! and scripts are those of their commands. A command that does the same everywhere is its own effect; otherwise the effect
//! is its result: the value, the deadline, the members. Any other change of a key is written as the key's whole value.
//! Locks have no counterpart in Redis, and no effects.

use super::entry::Entry;
use super::hashes::field_of;
use super::kind::Kind;
use super::order::number_of;
use super::{NO_DEADLINE, Record, Table, dump};
use crate::command::{
    By, BytesCommand, Command, FieldAction, FieldOperation, HashCommand, List, ListCommand, Overflow,
    References, SetCommand, SortedCommand, StreamCommand,
};
use crate::number::format_double;
use crate::{StreamId, UnixMs};

/// The words of an effect.
type Words = Vec<Vec<u8>>;

macro_rules! words {
    ($($word:expr),*) => {
        vec![$({ let word: &[u8] = $word; word.to_vec() }),*]
    };
}

fn side(at_front: bool) -> &'static [u8] {
    if at_front { b"LEFT" } else { b"RIGHT" }
}

fn decimal(number: impl ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

impl Table {
    /// Writes the effects of a command that was carried out.
    #[cold]
    pub(super) fn write_effects(&mut self, command: &Command<'_>, record: Record) {
        let keys = with(&[], self.changes.unwritten());
        let Some(key) = keys.first() else { return };
        match self.own_effects(command, key, record) {
            Some(effects) => effects.iter().for_each(|effect| self.put_effect(effect)),
            None => keys.iter().for_each(|key| self.put_whole(key)),
        }
        self.changes.all_written();
    }

    /// Writes the effects of changes that were made outside the commands of the record, and keeps the record.
    #[cold]
    pub(super) fn end_record(&mut self, record: Record) {
        for key in with(&[], self.changes.unwritten()) {
            self.put_whole(&key);
        }
        self.changes.all_written();
        let kept = self.changes.end_record(record.time);
        assert!(
            kept.is_none_or(|version| version == self.floor),
            "a change is kept with version {kept:?}, and the table has {}",
            self.floor
        );
    }

    /// Writes an effect that covers all notes whose effects are not written yet.
    pub(super) fn cover(&mut self, effect: &[Vec<u8>]) {
        self.put_effect(effect);
        self.changes.all_written();
    }

    fn put_effect(&mut self, effect: &[Vec<u8>]) {
        self.changes.put_effect(effect.iter().map(Vec::as_slice));
    }

    fn entry_of(&self, key: &[u8]) -> Option<&Entry> {
        self.find(self.index.hash(key), key).map(|(_, entry)| entry)
    }

    /// Writes the whole present value of a key, or its removal.
    fn put_whole(&mut self, key: &[u8]) {
        let mut effects: Vec<Words> = Vec::new();
        match self.entry_of(key) {
            None => effects.push(words![b"DEL", key]),
            // Its value is not here. No command that a keyspace with a history may have leads here.
            Some(entry) if entry.reference().is_some() => return self.changes.lose_record(),
            Some(entry) if !entry.is_collection() => {
                let mut effect = words![b"SET", key, entry.value()];
                if entry.deadline() != NO_DEADLINE {
                    effect.extend([b"PXAT".to_vec(), decimal(entry.deadline())]);
                }
                effects.push(effect);
            }
            Some(entry) if entry.kind() == Kind::Hash && entry.has_deadlines() => {
                effects.push(words![b"DEL", key]);
                let mut set = words![b"HSET", key];
                for field in entry.fields() {
                    set.extend(words![field.name, field.value]);
                }
                effects.push(set);
                let expiring = entry.fields().filter(|field| field.deadline != NO_DEADLINE);
                effects.extend(expiring.map(|field| expire_field(key, field.name, field.deadline)));
                if entry.deadline() != NO_DEADLINE {
                    effects.push(expire_at(key, entry.deadline()));
                }
            }
            Some(entry) => {
                let deadline = if entry.deadline() == NO_DEADLINE { 0 } else { entry.deadline() };
                let payload = dump::payload_of(entry);
                let mut effect = words![b"RESTORE", key];
                effect.extend([decimal(deadline), payload, b"REPLACE".to_vec(), b"ABSTTL".to_vec()]);
                effects.push(effect);
            }
        }
        effects.iter().for_each(|effect| self.put_effect(effect));
    }

    /// The effects of a command that has changed keys, of which `key` is the first. `None`: write the keys' whole values.
    fn own_effects(&self, command: &Command<'_>, key: &[u8], record: Record) -> Option<Vec<Words>> {
        use Command::*;
        let effect = match *command {
            MultiSet { pairs, .. } => with(&[b"MSET"], pairs.iter()),
            Delete { .. } => with(&[b"DEL"], self.changes.unwritten()),
            Append { value, .. } => words![b"APPEND", key, value],
            SetRange { offset, value, .. } => words![b"SETRANGE", key, &decimal(offset), value],
            IncrementBy { delta, .. } => words![b"INCRBY", key, &decimal(delta)],
            Expire { .. } | GetExpire { .. } | Persist { .. } => match self.entry_of(key) {
                None => words![b"DEL", key],
                Some(entry) if entry.deadline() == NO_DEADLINE => words![b"PERSIST", key],
                Some(entry) => expire_at(key, entry.deadline()),
            },
            Rename { from, to, .. } => words![b"RENAME", from, to],
            Copy { from, to, .. } => words![b"COPY", from, to, b"REPLACE"],
            Hash(ref command) => return Some(self.effects_on_hash(command, key, record.time)),
            OnList(ref command) => effect_on_list(command, key)?,
            OnSet(SetCommand::Add { members, .. }) => with(&[b"SADD", key], members.iter()),
            OnSet(SetCommand::Remove { members, .. }) => with(&[b"SREM", key], members.iter()),
            OnSet(SetCommand::Move { from, to, member }) => words![b"SMOVE", from, to, member],
            OnSorted(ref command) => self.effect_on_sorted(command, key, record.time)?,
            OnStream(ref command) => return self.effects_on_stream(command, key),
            OnBytes(BytesCommand::SetBit { offset, bit, .. }) => {
                words![b"SETBIT", key, &decimal(offset), if bit { b"1" } else { b"0" }]
            }
            OnBytes(BytesCommand::ChangeFields { operations, .. }) => effect_on_fields(operations, key),
            _ => return None,
        };
        Some(vec![effect])
    }

    /// The present state of the fields that a command names.
    fn effects_on_hash(&self, command: &HashCommand<'_>, key: &[u8], now: UnixMs) -> Vec<Words> {
        use HashCommand::*;
        let names: Vec<&[u8]> = match *command {
            Set { pairs, .. } | SetExpire { pairs, .. } => pairs.pairs().map(|(name, _)| name).collect(),
            SetIfAbsent { field, .. } | IncrementBy { field, .. } | IncrementByFloat { field, .. } => {
                vec![field]
            }
            Delete { fields, .. } | GetDelete { fields, .. } => fields.iter().collect(),
            Expire { fields, .. } | Persist { fields, .. } | GetExpire { fields, .. } => {
                fields.iter().collect()
            }
            Get { .. } | MultiGet { .. } | All { .. } | Length { .. } | Exists { .. } => Vec::new(),
            ValueLength { .. } | Scan { .. } | Random { .. } | TimeToLive { .. } => Vec::new(),
        };
        let entry = self.entry_of(key);
        let (mut set, mut gone, mut expiring) = (words![b"HSET", key], words![b"HDEL", key], Vec::new());
        for name in names {
            match entry.and_then(|entry| field_of(entry, name, now)) {
                Some(field) => {
                    set.extend(words![name, field.value]);
                    if field.deadline != NO_DEADLINE {
                        expiring.push(expire_field(key, name, field.deadline));
                    }
                }
                None => gone.push(name.to_vec()),
            }
        }
        // First the fields that are set: a hash that loses its last field also loses its deadline.
        let named = [set, gone].into_iter().filter(|effect| effect.len() > 2);
        named.chain(expiring).collect()
    }

    fn effect_on_sorted(&self, command: &SortedCommand<'_>, key: &[u8], now: UnixMs) -> Option<Words> {
        use SortedCommand::*;
        let with_scores = |members: &mut dyn Iterator<Item = &[u8]>| {
            let sorted = self.sorted(key, false, now)?;
            let mut effect = words![b"ZADD", key];
            for member in members {
                if let Some(score) = sorted.key(member) {
                    effect.extend([format_double(number_of(score)).into_bytes(), member.to_vec()]);
                }
            }
            Some(effect)
        };
        Some(match *command {
            Add { pairs, .. } => with_scores(&mut pairs.pairs().map(|(_, member)| member))?,
            Increment { member, .. } => with_scores(&mut std::iter::once(member))?,
            Remove { members, .. } => with(&[b"ZREM", key], members.iter()),
            RemoveRange { by, ends, .. } => {
                let name: &[u8] = match by {
                    By::Rank => b"ZREMRANGEBYRANK",
                    By::Score => b"ZREMRANGEBYSCORE",
                    By::Member => b"ZREMRANGEBYLEX",
                };
                with(&[name, key], ends.iter())
            }
            Pop { is_highest, count, .. } => pop_of_sorted(key, is_highest, count),
            MultiPop { is_highest, count, .. } => pop_of_sorted(key, is_highest, Some(count)),
            PopAny { is_highest, .. } => pop_of_sorted(key, is_highest, None),
            _ => return None,
        })
    }

    fn effects_on_stream(&self, command: &StreamCommand<'_>, key: &[u8]) -> Option<Vec<Words>> {
        use StreamCommand::*;
        let trimmed = || {
            let length = decimal(self.stream_length(key));
            words![b"XTRIM", key, b"MAXLEN", b"=", &length]
        };
        Some(vec![match *command {
            Add { words: given, trim, .. } | AddOnce { words: given, trim, .. } => {
                let id = decimal(self.last_entry_id(key, 0));
                // What a producer has sent is not known elsewhere.
                let skipped = if let AddOnce { .. } = command { 4 } else { 2 };
                let added = with(&[b"XADD", key, &id], given.iter().skip(skipped));
                return Some(std::iter::once(added).chain(trim.map(|_| trimmed())).collect());
            }
            Delete { ids, .. } => with(&[b"XDEL", key], ids.iter()),
            Trim { .. } => trimmed(),
            SetId { ids, added, .. } => {
                let mut ids = ids.iter();
                let mut effect = words![b"XSETID", key, ids.next().unwrap_or_default()];
                effect.extend(added.into_iter().flat_map(|added| [b"ENTRIESADDED".to_vec(), decimal(added)]));
                effect.extend(ids.next().into_iter().flat_map(|id| words![b"MAXDELETEDID", id]));
                effect
            }
            CreateGroup { group, id, makes_stream, .. } => {
                let mut effect = words![b"XGROUP", b"CREATE", key, group, id];
                if makes_stream {
                    effect.push(b"MKSTREAM".to_vec());
                }
                effect.extend(entries_read_words(self.entries_read_of(key, group)));
                effect
            }
            SetGroup { group, id, .. } => set_group(key, group, id, self.entries_read_of(key, group)),
            DestroyGroup { group, .. } => words![b"XGROUP", b"DESTROY", key, group],
            CreateConsumer { group, consumer, .. } => create_consumer(key, group, consumer),
            DeleteConsumer { group, consumer, .. } => {
                words![b"XGROUP", b"DELCONSUMER", key, group, consumer]
            }
            Acknowledge { group, ids, .. } => with(&[b"XACK", key, group], ids.iter()),
            _ => return None,
        }])
    }

    /// Writes the result of a delivery to a consumer of a group: the entries that are pending for it now. The other entries
    /// among `ids` are not pending any more.
    pub(super) fn cover_deliveries(&mut self, key: &[u8], group: &[u8], consumer: &[u8], ids: &[StreamId]) {
        if !self.changes.have_effects() || self.changes.unwritten().is_empty() {
            return;
        }
        let Some(state) = self.delivered(key, group, consumer, ids) else { return };
        let mut effects = Vec::new();
        effects.extend(state.is_known.then(|| create_consumer(key, group, consumer)));
        for (delivered_ms, deliveries, ids) in state.pending {
            let mut effect = words![b"XCLAIM", key, group, consumer, b"0"];
            effect.extend(ids.iter().map(decimal));
            effect.extend([b"TIME".to_vec(), decimal(delivered_ms)]);
            effect.extend([b"RETRYCOUNT".to_vec(), decimal(deliveries)]);
            effect.extend(words![b"FORCE", b"JUSTID"]);
            effects.push(effect);
        }
        if !state.gone.is_empty() {
            let mut effect = words![b"XACK", key, group];
            effect.extend(state.gone.iter().map(decimal));
            effects.push(effect);
        }
        effects.push(set_group(key, group, &decimal(state.last), state.read));
        effects.iter().for_each(|effect| self.put_effect(effect));
        self.changes.all_written();
    }

    /// Writes that a stream was trimmed, after an entry was added to it if one was: `ids` are those that were removed. With
    /// [`References::Remove`] they were the first ones.
    pub(super) fn cover_trimmed(
        &mut self,
        key: &[u8],
        added: Option<(StreamId, Vec<&[u8]>)>,
        ids: &[StreamId],
        references: References,
    ) {
        if !self.changes.have_effects() {
            return;
        }
        if let Some((id, words)) = added {
            self.put_effect(&with(&[b"XADD", key, &decimal(id)], words));
        }
        if references == References::Remove && !ids.is_empty() {
            let effect: Words = words![b"XTRIM", key, b"MAXLEN", b"=", &decimal(self.stream_length(key))];
            self.put_effect(&effect);
        }
        self.cover_removed(key, ids, references, None);
        self.changes.all_written();
    }

    /// Writes that entries were removed from a stream, of `ids` those that are not there now. With [`References::Remove`]
    /// they are pending in no group; otherwise in `group` none is.
    pub(super) fn cover_removed(
        &mut self,
        key: &[u8],
        ids: &[StreamId],
        references: References,
        group: Option<&[u8]>,
    ) {
        if !self.changes.have_effects() || self.changes.unwritten().is_empty() {
            return;
        }
        let of = |front: &[&[u8]], ids: &[StreamId]| {
            let mut effect = with(front, []);
            effect.extend(ids.iter().map(decimal));
            effect
        };
        let groups = match references {
            References::Remove => self.names_of_groups(key),
            _ => group.map(<[u8]>::to_vec).into_iter().collect(),
        };
        for group in &groups {
            let gone = self.delivered(key, group, b"", ids).map_or(Vec::new(), |state| state.gone);
            if !gone.is_empty() {
                self.put_effect(&of(&[b"XACK", key, group], &gone));
            }
        }
        let is_gone = |id: &&StreamId| !self.has_stream_entry(key, **id);
        let removed: Vec<StreamId> = ids.iter().filter(is_gone).copied().collect();
        if !removed.is_empty() {
            self.put_effect(&of(&[b"XDEL", key], &removed));
        }
        self.changes.all_written();
    }

    /// Writes that entries are pending for no consumer. Others know such entries as those of a consumer without a name.
    pub(super) fn cover_released(&mut self, key: &[u8], group: &[u8], released: &[(StreamId, u64)]) {
        if !self.changes.have_effects() {
            return;
        }
        for (id, deliveries) in released {
            let mut effect = words![b"XCLAIM", key, group, b"", b"0", &decimal(id), b"TIME", b"0"];
            effect.extend([b"RETRYCOUNT".to_vec(), decimal(deliveries)]);
            effect.extend(words![b"FORCE", b"JUSTID"]);
            self.put_effect(&effect);
        }
        self.changes.all_written();
    }

    /// Writes that a consumer was created.
    pub(super) fn cover_new_consumer(&mut self, key: &[u8], group: &[u8], consumer: &[u8]) {
        if self.changes.have_effects() {
            self.cover(&create_consumer(key, group, consumer));
        }
    }

    /// Writes that members were drawn from a set and removed.
    pub(super) fn cover_drawn(&mut self, key: &[u8], members: Vec<Vec<u8>>) {
        if self.changes.have_effects() && !members.is_empty() {
            let mut effect = words![b"SREM", key];
            effect.extend(members);
            self.cover(&effect);
        }
    }

    /// Writes that fields of a hash were removed because they are due.
    pub(super) fn cover_due_fields(&mut self, key: &[u8], fields: Vec<Vec<u8>>) {
        if self.changes.have_effects() && !fields.is_empty() {
            let mut effect = words![b"HDEL", key];
            effect.extend(fields);
            self.cover(&effect);
        }
    }

    /// Writes that elements were returned to an end of a list.
    pub(super) fn cover_elements(&mut self, key: &[u8], elements: &[&[u8]], at_front: bool) {
        if self.changes.have_effects() {
            let name: &[u8] = if at_front { b"LPUSH" } else { b"RPUSH" };
            self.cover(&with(&[name, key], elements.iter().rev().copied()));
        }
    }

    /// Writes the scores of members that were returned.
    pub(super) fn cover_members(&mut self, key: &[u8], members: &[(&[u8], f64)], now: UnixMs) {
        if !self.changes.have_effects() {
            return;
        }
        let mut effect = words![b"ZADD", key];
        for (member, _) in members {
            let score = self.sorted(key, false, now).and_then(|sorted| sorted.key(member));
            if let Some(score) = score {
                effect.extend([format_double(number_of(score)).into_bytes(), member.to_vec()]);
            }
        }
        self.cover(&effect);
    }
}

fn with<'w>(front: &[&[u8]], rest: impl IntoIterator<Item = &'w [u8]>) -> Words {
    let mut effect: Words = front.iter().map(|word| word.to_vec()).collect();
    effect.extend(rest.into_iter().map(<[u8]>::to_vec));
    effect
}

fn expire_at(key: &[u8], deadline: UnixMs) -> Words {
    words![b"PEXPIREAT", key, &decimal(deadline)]
}

fn expire_field(key: &[u8], field: &[u8], deadline: UnixMs) -> Words {
    words![b"HPEXPIREAT", key, &decimal(deadline), b"FIELDS", b"1", field]
}

fn pop(name: &[u8], key: &[u8], count: Option<u64>) -> Words {
    let mut effect = words![name, key];
    effect.extend(count.map(decimal));
    effect
}

fn pop_of_sorted(key: &[u8], is_highest: bool, count: Option<u64>) -> Words {
    pop(if is_highest { b"ZPOPMAX" } else { b"ZPOPMIN" }, key, count)
}

fn pop_of_list(key: &[u8], at_front: bool, count: Option<u64>) -> Words {
    pop(if at_front { b"LPOP" } else { b"RPOP" }, key, count)
}

fn create_consumer(key: &[u8], group: &[u8], consumer: &[u8]) -> Words {
    words![b"XGROUP", b"CREATECONSUMER", key, group, consumer]
}

fn entries_read_words(read: Option<u64>) -> Words {
    read.into_iter().flat_map(|read| [b"ENTRIESREAD".to_vec(), decimal(read)]).collect()
}

fn set_group(key: &[u8], group: &[u8], id: &[u8], read: Option<u64>) -> Words {
    let mut effect = words![b"XGROUP", b"SETID", key, group, id];
    effect.extend(entries_read_words(read));
    effect
}

fn effect_on_list(command: &ListCommand<'_>, key: &[u8]) -> Option<Words> {
    use ListCommand::*;
    Some(match *command {
        Push { elements, at_front, .. } => {
            with(&[if at_front { b"LPUSH" } else { b"RPUSH" }, key], elements.iter())
        }
        Pop { at_front, count, .. } => pop_of_list(key, at_front, count),
        MultiPop { at_front, count, .. } => pop_of_list(key, at_front, Some(count)),
        PopAny { at_front, .. } => pop_of_list(key, at_front, None),
        Set { rank, element, .. } => words![b"LSET", key, &decimal(rank), element],
        Insert { is_before, pivot, element, .. } => {
            words![b"LINSERT", key, if is_before { b"BEFORE" } else { b"AFTER" }, pivot, element]
        }
        Remove { count, element, .. } => words![b"LREM", key, &decimal(count), element],
        Trim { start, end, .. } => words![b"LTRIM", key, &decimal(start), &decimal(end)],
        Move { from, to, from_front, to_front } => {
            words![b"LMOVE", from, to, side(from_front), side(to_front)]
        }
        Length { .. } | Index { .. } | Range { .. } | Position { .. } => return None,
    })
}

fn effect_on_fields(operations: List<'_>, key: &[u8]) -> Words {
    let mut effect = words![b"BITFIELD", key];
    for operation in operations.iter().filter_map(FieldOperation::decode) {
        let name: &[u8] = match operation.action {
            FieldAction::Get => continue,
            FieldAction::Set => b"SET",
            FieldAction::Increment => b"INCRBY",
        };
        let overflow: &[u8] = match operation.overflow {
            Overflow::Wrap => b"WRAP",
            Overflow::Saturate => b"SAT",
            Overflow::Fail => b"FAIL",
        };
        let field = format!("{}{}", if operation.is_signed { 'i' } else { 'u' }, operation.bits);
        effect.extend(words![b"OVERFLOW", overflow, name, field.as_bytes()]);
        effect.extend([decimal(operation.offset), decimal(operation.operand)]);
    }
    effect
}

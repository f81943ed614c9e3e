//! `SORT`.

use super::charges::OUT_OF_MEMORY;
use super::collections::{Collection, Field};
use super::entry::Entry;
use super::kind::Kind;
use super::lists::write_items;
use super::order;
use super::refusals::WRONG_KIND;
use super::{Record, Table, hashes, members};
use crate::UnixMs;
use crate::command::{SortCommand, SortOptions, pattern_parts};
use crate::number::parse_float;
use crate::reply::ReplyBuffer;
use std::borrow::Cow;
use std::cmp::Ordering;

const NOT_NUMBERS: &str = "ERR One or more scores can't be converted into double";
const NOT_IN_MEMORY: &str = "ERR SORT cannot look up values that are not in memory";

/// The sort key of an item.
enum Weight<'a> {
    Number(f64),
    Text(Option<Cow<'a, [u8]>>),
}

/// A number, parsed as C's `strtod` does: empty text is 0.
fn number(text: &[u8]) -> Result<f64, &'static str> {
    let text = text.trim_ascii_start();
    if text.is_empty() { Ok(0.0) } else { parse_float(text).ok_or(NOT_NUMBERS) }
}

impl Table {
    /// The items of a key in the requested order, or the elements of the reply.
    #[allow(clippy::type_complexity)]
    fn sorted_items<'a>(
        &'a self,
        key: &[u8],
        options: &SortOptions<'a>,
        is_stored: bool,
        now: UnixMs,
    ) -> Result<Vec<Option<Cow<'a, [u8]>>>, &'static str> {
        let entry = self.peek(key, now);
        let kind = entry.map(Entry::kind);
        if !matches!(kind, None | Some(Kind::List | Kind::Set | Kind::Sorted)) {
            return Err(WRONG_KIND);
        }
        let item_of = |item: &'a [u8]| match kind {
            Some(Kind::Set) => members::member_of(item).into(),
            Some(Kind::Sorted) => Cow::Borrowed(order::scored_parts(item).1),
            _ => Cow::Borrowed(item),
        };
        let items = entry.into_iter().flat_map(|entry| entry.items().iter_from(0)).map(item_of);
        let by = options.by.filter(|by| by.contains(&b'*'));
        // A stored result must not depend on the order in which a set is kept.
        let keeps_order = options.by.is_some() && by.is_none() && !(is_stored && kind == Some(Kind::Set));
        let by_text = options.by_text || options.by.is_some() && by.is_none();
        let mut all: Vec<(Cow<'a, [u8]>, Weight<'a>)> = Vec::new();
        for item in items {
            let text = match by {
                Some(by) => self.looked_up(by, &item, now)?,
                None => Some(item.clone()),
            };
            let weight = match text {
                _ if keeps_order => Weight::Text(None),
                text if by_text => Weight::Text(text),
                Some(text) => Weight::Number(number(&text)?),
                None => Weight::Number(0.0),
            };
            all.push((item, weight));
        }
        let in_order =
            |one: &(Cow<'_, [u8]>, Weight<'_>), other: &(Cow<'_, [u8]>, Weight<'_>)| match (&one.1, &other.1)
            {
                (Weight::Number(weight), Weight::Number(another)) => {
                    weight.partial_cmp(another).unwrap_or(Ordering::Equal).then_with(|| one.0.cmp(&other.0))
                }
                (Weight::Text(weight), Weight::Text(another)) => weight.cmp(another),
                _ => Ordering::Equal,
            };
        match (keeps_order, options.is_reverse) {
            (true, true) if kind != Some(Kind::Set) => all.reverse(),
            (true, _) => {}
            (false, false) => all.sort_by(in_order),
            (false, true) => all.sort_by(|one, other| in_order(other, one)),
        }
        let skip = usize::try_from(options.limit.0).unwrap_or(0).min(all.len());
        let count = usize::try_from(options.limit.1).unwrap_or(usize::MAX);
        let chosen = all.drain(..).skip(skip).take(count).map(|(item, _)| item);
        if options.gets.is_empty() {
            return Ok(chosen.map(Some).collect());
        }
        let answers = chosen.flat_map(|item| options.gets.iter().map(move |get| (item.clone(), get)));
        answers
            .map(|(item, get)| match get {
                b"#" => Ok(Some(item)),
                get => self.looked_up(get, &item, now),
            })
            .collect()
    }

    /// The value of the key, or of the field of a hash, that a pattern names for an item.
    fn looked_up(
        &self,
        pattern: &[u8],
        item: &[u8],
        now: UnixMs,
    ) -> Result<Option<Cow<'_, [u8]>>, &'static str> {
        let (key, field) = pattern_parts(pattern);
        let Some(star) = key.iter().position(|byte| *byte == b'*') else { return Ok(None) };
        let key = [&key[..star], item, &key[star + 1..]].concat();
        let entry = self.peek(&key, now);
        Ok(match (entry, field) {
            (Some(entry), None) if entry.is_coded() => return Err(NOT_IN_MEMORY),
            (Some(entry), None) if entry.is_bytes() => Some(entry.value().into()),
            (Some(entry), Some(name)) if entry.kind() == Kind::Hash => {
                hashes::field_of(entry, name, now).map(|Field { value, .. }| value.into())
            }
            _ => None,
        })
    }

    pub(super) fn read_sort(&mut self, command: &SortCommand<'_>, now: UnixMs, out: &mut ReplyBuffer) {
        let SortCommand::Read { key, options } = *command else { return };
        let Ok(options) = SortOptions::decode(options) else { return out.error("ERR options that are none") };
        match self.sorted_items(key, &options, false, now) {
            Ok(all) if all.iter().all(Option::is_some) => {
                write_items(all.len(), all.iter().map(|item| item.as_deref().unwrap_or_default()), out);
            }
            Ok(all) => {
                let start = out.len();
                out.array(all.len());
                for item in &all {
                    match item {
                        Some(item) => out.bulk(item),
                        None => out.null(),
                    }
                    if out.len() - start > out.reply_bytes_max() {
                        return super::refusals::refuse_large_reply(start, out);
                    }
                }
            }
            Err(error) => out.error(error),
        }
    }

    pub(super) fn store_sort(&mut self, command: &SortCommand<'_>, record: Record, out: &mut ReplyBuffer) {
        let SortCommand::Store { key, to, options } = *command else { return };
        let Ok(options) = SortOptions::decode(options) else { return out.error("ERR options that are none") };
        match self.sorted_items(key, &options, true, record.time) {
            Ok(all) => {
                // What other keys hold was not known before it was looked up.
                let bytes: u64 = all.iter().flatten().map(|item| item.len() as u64).sum();
                if !options.gets.is_empty() && bytes.saturating_mul(2) > self.charges.left() {
                    return out.error(OUT_OF_MEMORY);
                }
                let mut list = Collection::new(Kind::List);
                all.iter().for_each(|item| list.insert(list.len(), item.as_deref().unwrap_or_default()));
                self.charges.take(if options.gets.is_empty() { 0 } else { bytes.saturating_mul(2) });
                out.integer(list.len() as i64);
                self.put_collection(to, list, record);
            }
            Err(error) => out.error(error),
        }
    }
}

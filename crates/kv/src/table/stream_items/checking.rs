//! Checks whether untrusted items can be a stream.

use super::items::{self, Item, NAMES_KEPT, Text};
use super::view::Stream;
use crate::codec::Malformed;
use crate::table::tree::Items;

/// Checks that an untrusted item may follow those of a stream.
///
/// # Errors
/// [`Malformed`] when no stream can have this item there.
pub(in crate::table) fn check_item(items: Items<'_>, item: &[u8]) -> Result<(), Malformed> {
    const NUMBERS_MAX: u64 = 1 << 62;
    let (view, parsed) = (Stream { items }, Item::of(item)?);
    let key = parsed.key();
    let count = items.len();
    let is_new = count == 0 || items.get(count - 1).is_some_and(|before| !before.starts_with(&key));
    let is_right = item.starts_with(&key)
        && is_new
        && match parsed {
            Item::Head(head) => count == 0 && head.numbers < NUMBERS_MAX,
            _ if count == 0 => false,
            Item::Names { number, names } => {
                Text::count(names)? > 0 && usize::from(number) == count && number <= NAMES_KEPT
            }
            Item::Group { group, .. } => group.number <= view.head().numbers,
            Item::Named { consumer: items::NO_CONSUMER, .. } => false,
            Item::Named { group, consumer, .. } => group.max(consumer) <= view.head().numbers,
            Item::Consumer { group, consumer, name, .. } => view.consumer(group, name) == Some(consumer),
            Item::Pending { group, pending, .. } if pending.consumer == items::NO_CONSUMER => {
                group <= view.head().numbers
            }
            Item::Pending { group, pending, .. } => {
                view.find_key(&items::region(items::CONSUMER, &[group, pending.consumer])).1.is_some()
            }
            Item::Active { group, consumer, .. } => {
                view.find_key(&items::region(items::CONSUMER, &[group, consumer])).1.is_some()
            }
            Item::Producers(producers) => producers.duration_s < NUMBERS_MAX && producers.most > 0,
            Item::Producer { producer, .. } => producer <= view.head().numbers,
            Item::Numbered { producer, name } => view.producer(name) == Some(producer),
            Item::Sent { producer, id, .. } => {
                id <= view.head().last
                    && view.find_key(&items::region(items::NUMBERED, &[producer])).1.is_some()
            }
            Item::SentInOrder { producer, id, name } => view.sent(producer, name) == Some(id),
            Item::SentByAll { id, producer } => {
                view.find_key(&items::sent_in_order_key(producer, id)).1.is_some()
            }
            Item::Owned { group, consumer, id } => {
                view.pending(group, id).is_some_and(|pending| pending.consumer == consumer)
            }
            Item::Entry { id, names: 0, values } => {
                id <= view.head().last && Text::count(values)?.is_multiple_of(2)
            }
            Item::Entry { id, names, values } => {
                let fields = view.names().find(|(number, _)| *number == names);
                let fields = fields.map_or(Ok(0), |(_, names)| Text::count(names))?;
                id <= view.head().last && fields > 0 && Text::count(values)? == fields
            }
        };
    if is_right { Ok(()) } else { Err(Malformed("an item that a stream cannot have there")) }
}

/// Checks an untrusted stream whose items were checked one by one.
///
/// # Errors
/// [`Malformed`] when items are missing.
pub(in crate::table) fn check_whole(items: Items<'_>) -> Result<(), Malformed> {
    let view = Stream { items };
    let count = |tag| view.region(tag, &[]).len();
    let is_whole = items.len() > 0
        && count(items::NAMED) == count(items::CONSUMER)
        && count(items::PENDING) == count(items::OWNED)
        && count(items::PRODUCER) == count(items::NUMBERED)
        && count(items::SENT) == count(items::SENT_IN_ORDER)
        && count(items::SENT) == count(items::SENT_BY_ALL);
    if is_whole { Ok(()) } else { Err(Malformed("a stream of which items are missing")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::stream_items::items::{Head, NO_CONSUMER, named_key, put_number};
    use crate::table::tree::Tree;

    #[test]
    fn no_consumer_has_the_number_that_means_none() {
        let mut tree = Tree::new(true);
        tree.insert(0, &Head { numbers: 2, ..Head::default() }.item());
        let check = |number| {
            let mut item = named_key(1, b"consumer");
            put_number(number, &mut item);
            check_item(Items::Tree(&tree), &item)
        };
        assert!(check(2).is_ok());
        assert!(check(3).is_err(), "it was never given");
        assert!(check(NO_CONSUMER).is_err());
    }
}

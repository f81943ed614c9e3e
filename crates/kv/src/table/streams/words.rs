//! Arguments of commands on streams, and entries in replies.

use crate::command::{List, NOT_AN_ID, StreamId, parse_id_bound};
use crate::reply::ReplyBuffer;
use crate::table::refusals::refuse_large_reply;
use crate::table::stream_items::view::Stream;

/// The reply to a read that lacks an argument: the parser refuses such a command, so no node sends one.
pub(super) const NO_COMMAND: &str = "ERR a command on streams lacks a word";

/// Parses ids, all of which must be valid.
pub(super) fn ids_of(ids: List<'_>) -> Result<Vec<StreamId>, &'static str> {
    ids.iter().map(|id| StreamId::parse(id, 0).ok_or(NOT_AN_ID)).collect()
}

/// The two ends of a range of ids.
pub(super) fn range_of(
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Result<(StreamId, StreamId), &'static str> {
    let (start, end) = (start.ok_or(NO_COMMAND)?, end.ok_or(NO_COMMAND)?);
    Ok((parse_id_bound(start, false)?, parse_id_bound(end, true)?))
}

/// A `COUNT` as a number of elements; 0 stands for all.
pub(super) fn up_to(count: u64) -> usize {
    if count == 0 { usize::MAX } else { usize::try_from(count).unwrap_or(usize::MAX) }
}

/// Appends an array of entries, unless it is too large for a reply.
pub(super) fn write_entries<'a>(
    stream: Stream<'a>,
    count: usize,
    entries: impl Iterator<Item = &'a [u8]>,
    out: &mut ReplyBuffer,
) {
    let (start, mut writer) = (out.len(), stream.writer());
    out.array(count);
    for item in entries.take(count) {
        writer.write(item, out);
        if out.len() - start > out.reply_bytes_max() {
            return refuse_large_reply(start, out);
        }
    }
}

/// Items in pairs. An odd one at the end is left out.
pub(super) fn pairs_of<'w>(
    mut words: impl Iterator<Item = &'w [u8]> + Clone,
) -> impl Iterator<Item = (&'w [u8], &'w [u8])> + Clone {
    std::iter::from_fn(move || Some((words.next()?, words.next()?)))
}

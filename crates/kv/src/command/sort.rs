//! `SORT`: the items of a list, a set or a sorted set in another order, or the values of keys that are named after them.

use super::List;
use super::declaration::{Needs, family};
use crate::codec::{Malformed, Reader, Writer};

/// The options of `SORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortOptions<'a> {
    /// The pattern of the keys whose values determine the order. A pattern without `*` leaves the order unchanged.
    pub by: Option<&'a [u8]>,
    /// The patterns of the keys whose values are returned instead of an item; `#` is the item itself.
    pub gets: List<'a>,
    /// How many items are skipped at the beginning, and how many are returned at most; a negative number stands for all.
    pub limit: (i64, i64),
    /// Whether the order is descending.
    pub is_reverse: bool,
    /// Whether items are compared as texts, not as numbers.
    pub by_text: bool,
}

impl<'a> SortOptions<'a> {
    /// Appends the options as bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        [self.by.is_some(), self.is_reverse, self.by_text].into_iter().for_each(|flag| out.put_bool(flag));
        out.put_bytes(self.by.unwrap_or_default());
        out.put_i64(self.limit.0);
        out.put_i64(self.limit.1);
        self.gets.encode(out);
    }

    /// Reads options.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are no options.
    pub fn decode(bytes: &'a [u8]) -> Result<SortOptions<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let (is_by, is_reverse, by_text) = (reader.bool()?, reader.bool()?, reader.bool()?);
        let by = reader.bytes()?;
        let limit = (reader.i64()?, reader.i64()?);
        Ok(SortOptions {
            by: is_by.then_some(by),
            gets: List::decode(&mut reader)?,
            limit,
            is_reverse,
            by_text,
        })
    }

    /// The patterns of the keys that are looked up, in order.
    pub fn patterns(&self) -> impl Iterator<Item = &'a [u8]> {
        let by = self.by.filter(|by| by.contains(&b'*'));
        by.into_iter().chain(self.gets.iter().filter(|get| get.contains(&b'*')))
    }
}

/// Splits a pattern into the part that names a key, and the field of a hash behind `->`, if there is one.
pub fn pattern_parts(pattern: &[u8]) -> (&[u8], Option<&[u8]>) {
    let star = pattern.iter().position(|byte| *byte == b'*').unwrap_or(pattern.len());
    let arrow = pattern[star..].windows(2).position(|window| window == b"->").map(|at| star + at);
    match arrow {
        Some(arrow) if arrow + 2 < pattern.len() => (&pattern[..arrow], Some(&pattern[arrow + 2..])),
        _ => (pattern, None),
    }
}

family! {
    /// Items in another order. `options` are [`SortOptions`] as bytes.
    SortCommand needs(Needs::SeveralReads) {
        /// Returns the items as an array (`SORT`, `SORT_RO`).
        Read = 1 "SORT" Reads { key: &'a [u8], options: &'a [u8] } walks(true);
        /// Stores the items as a list, and returns their number (`SORT … STORE`).
        Store = 64 "SORT" Grows { key: &'a [u8], to: &'a [u8], options: &'a [u8] }
            keys(key, to) walks(true) adds(Unforeseen) event("sortstore");
    }
}

impl<'a> SortCommand<'a> {
    /// The patterns of other keys that it looks up.
    pub fn patterns(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (SortCommand::Read { options, .. } | SortCommand::Store { options, .. }) = *self;
        SortOptions::decode(options)
            .ok()
            .into_iter()
            .flat_map(|options| options.patterns().collect::<Vec<_>>())
    }

    /// The most work that it does, as a number of bytes read. `bytes_of` returns the size of a key.
    pub(super) fn walked_bytes(&self, bytes_of: impl Fn(&[u8]) -> u64) -> u64 {
        let (SortCommand::Read { key, .. } | SortCommand::Store { key, .. }) = *self;
        // An item is compared with about twenty others, and looking up a key takes as long as that.
        bytes_of(key).saturating_mul(64 * (1 + self.patterns().count() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_encoding() {
        let mut scratch = Vec::new();
        let gets = List::build(&mut scratch, [&b"#"[..], b"w_*", b"h_*->f"]);
        for by in [None, Some(&b""[..]), Some(b"b_*")] {
            let options = SortOptions { by, gets, limit: (-1, 7), is_reverse: true, by_text: false };
            let mut bytes = Vec::new();
            options.encode(&mut bytes);
            assert_eq!(SortOptions::decode(&bytes), Ok(options));
            let patterns: Vec<&[u8]> = options.patterns().collect();
            assert_eq!(patterns.len(), if by == Some(b"b_*") { 3 } else { 2 });
        }
    }

    #[test]
    fn a_pattern_names_a_key_or_a_field() {
        assert_eq!(pattern_parts(b"w_*"), (&b"w_*"[..], None));
        assert_eq!(pattern_parts(b"w_*->f"), (&b"w_*"[..], Some(&b"f"[..])));
        assert_eq!(pattern_parts(b"a->b*c->f"), (&b"a->b*c"[..], Some(&b"f"[..])));
        assert_eq!(pattern_parts(b"w_*->"), (&b"w_*->"[..], None));
    }
}

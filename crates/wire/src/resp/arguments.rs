//! The arguments of a request, as ranges of the received bytes, so that nothing is copied.

use std::fmt;
use std::ops::Index;

/// Start and end of an argument in its bytes.
pub type ArgumentRange = (u32, u32);

/// The arguments of one request, the command's name first. Two pointers: copy it freely.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    bytes: &'a [u8],
    ranges: &'a [ArgumentRange],
}

impl<'a> Arguments<'a> {
    /// Returns the parts of `bytes` given by `ranges`, in the ranges' order.
    ///
    /// A range outside `bytes` is the caller's fault.
    ///
    /// # Panics
    /// When the last range is outside `bytes`. If another range is, reading its argument panics.
    pub fn new(bytes: &'a [u8], ranges: &'a [ArgumentRange]) -> Self {
        let is_in = |&(start, end): &ArgumentRange| start <= end && end as usize <= bytes.len();
        debug_assert!(ranges.iter().all(is_in));
        assert!(ranges.last().is_none_or(is_in), "the last argument ends beyond the request");
        Arguments { bytes, ranges }
    }

    /// The number of arguments.
    #[inline]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there are none: an empty line, or an array of no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number of bytes from the first argument to the last, with what lies between them; 0 unless they lie in their order.
    #[inline]
    pub fn extent(&self) -> usize {
        match self.ranges {
            [(start, _), .., (_, end)] | [(start, end)] => end.saturating_sub(*start) as usize,
            [] => 0,
        }
    }

    /// The argument at `index`, counted from 0.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.ranges.get(index).map(|&range| part(self.bytes, range))
    }

    /// The arguments in order.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + Clone + use<'a> {
        let bytes = self.bytes;
        self.ranges.iter().map(move |&range| part(bytes, range))
    }

    /// The bytes from the first argument to the last, with what lies between them, and where in these bytes each argument
    /// lies; `None` unless the arguments lie in their order.
    #[inline]
    pub fn span(&self) -> Option<(&'a [u8], impl ExactSizeIterator<Item = ArgumentRange> + use<'a>)> {
        let (first, last) = (self.ranges.first()?.0, self.ranges.last()?.1);
        let bytes = self.bytes.get(first as usize..last as usize)?;
        let ranges =
            self.ranges.iter().map(move |&(start, end)| (start.wrapping_sub(first), end.wrapping_sub(first)));
        self.ranges.is_sorted().then_some((bytes, ranges))
    }

    /// The arguments without the first `count`; empty if there are not that many.
    #[inline]
    pub fn skip(&self, count: usize) -> Arguments<'a> {
        Arguments { bytes: self.bytes, ranges: self.ranges.get(count..).unwrap_or(&[]) }
    }
}

#[inline]
fn part(bytes: &[u8], (start, end): ArgumentRange) -> &[u8] {
    &bytes[start as usize..end as usize]
}

impl Index<usize> for Arguments<'_> {
    type Output = [u8];

    /// The argument at `index`, which must be below [`Arguments::len`].
    #[inline]
    fn index(&self, index: usize) -> &[u8] {
        part(self.bytes, self.ranges[index])
    }
}

impl fmt::Debug for Arguments<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_list()
            .entries(self.iter().map(|argument| argument.escape_ascii().to_string()))
            .finish()
    }
}

/// Arguments that own their bytes: for a command that did not arrive as RESP.
#[derive(Clone, Debug, Default)]
pub struct ArgumentsBuffer {
    bytes: Vec<u8>,
    ranges: Vec<ArgumentRange>,
}

impl ArgumentsBuffer {
    /// Returns a buffer without arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends one argument.
    pub fn push(&mut self, argument: &[u8]) {
        self.push_with(|bytes| bytes.extend_from_slice(argument));
    }

    /// Appends one argument: what `write` appends to the bytes. `write` must not change the existing bytes.
    ///
    /// # Panics
    /// When all arguments together exceed 4 GiB. Every input is limited far below that.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let end = self.bytes.len();
        assert!(start <= end && end <= u32::MAX as usize, "arguments from {start} to {end}");
        self.ranges.push((start as u32, end as u32));
    }

    /// Removes all arguments and keeps the capacity.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ranges.clear();
    }

    /// Removes all arguments and keeps capacity for at most `bytes` bytes and as many arguments.
    pub(super) fn clear_to(&mut self, bytes: usize) {
        self.clear();
        self.bytes.shrink_to(bytes);
        self.ranges.shrink_to(bytes);
    }

    /// The arguments so far.
    #[inline]
    pub fn as_arguments(&self) -> Arguments<'_> {
        Arguments { bytes: &self.bytes, ranges: &self.ranges }
    }
}

impl<'i> FromIterator<&'i [u8]> for ArgumentsBuffer {
    fn from_iter<I: IntoIterator<Item = &'i [u8]>>(arguments: I) -> Self {
        let mut buffer = ArgumentsBuffer::new();
        arguments.into_iter().for_each(|argument| buffer.push(argument));
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_the_given_ranges_of_their_bytes() {
        let arguments = Arguments::new(b"GET key", &[(0, 3), (4, 7)]);
        assert_eq!(arguments.len(), 2);
        assert_eq!(&arguments[0], b"GET");
        assert_eq!(arguments.get(1), Some(&b"key"[..]));
        assert_eq!(arguments.get(2), None);
        assert_eq!(arguments.iter().rev().collect::<Vec<_>>(), [b"key", b"GET"]);
        assert_eq!(format!("{arguments:?}"), r#"["GET", "key"]"#);
    }

    #[test]
    fn the_span_of_arguments_has_each_of_them_in_its_place() {
        let arguments = Arguments::new(b"*2 GET key", &[(3, 6), (7, 10)]);
        let (bytes, ranges) = arguments.span().expect("they lie in their order");
        assert_eq!((bytes, ranges.collect::<Vec<_>>()), (&b"GET key"[..], vec![(0, 3), (4, 7)]));
        assert!(Arguments::new(b"GET key", &[(4, 7), (0, 3)]).span().is_none());
        assert!(Arguments::new(b"", &[]).span().is_none());
    }

    #[test]
    fn skipping_more_arguments_than_there_are_leaves_none() {
        let arguments = Arguments::new(b"ab", &[(0, 1), (1, 2)]);
        assert_eq!(arguments.skip(1).iter().collect::<Vec<_>>(), [b"b"]);
        assert!(arguments.skip(2).is_empty());
        assert!(arguments.skip(3).is_empty());
    }

    #[test]
    fn a_buffer_keeps_what_was_pushed_until_it_is_cleared() {
        let mut buffer: ArgumentsBuffer = [&b"SET"[..], b"", b"v"].into_iter().collect();
        assert_eq!(buffer.as_arguments().iter().collect::<Vec<_>>(), [&b"SET"[..], b"", b"v"]);
        buffer.clear();
        assert!(buffer.as_arguments().is_empty());
    }
}

//! Members of sets, and the items that represent them in a collection.
//!
//! ```text
//! a whole number of 16 bits:  code u16
//! another one of 32 bits:     code u32
//! another member:             hash u32 | member
//! ```
//!
//! Many sets hold identifiers, which are whole numbers. The hash of a 32-bit number is a permutation of the numbers, so the
//! number follows from its hash and needs no text. The smallest number has no code: the empty member, which has no text
//! either, uses that code.

use super::name_hash::{HASH_BYTES, hash_of};
use crate::number::{INTEGER_TEXT_BYTES_MAX, format_integer, parse_integer};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Deref;

/// The most characters of a 32-bit number, with its sign.
const NUMBER_TEXT_BYTES_MAX: usize = 11;

/// Bytes of a short number's item.
pub(super) const SHORT_BYTES: usize = 2;

/// The number whose code stands for the empty member.
const EMPTY: i32 = i32::MIN;

/// A member as clients know it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Member<'i> {
    Text(&'i [u8]),
    /// A whole number, as text at the end of the buffer.
    Number {
        text: [u8; NUMBER_TEXT_BYTES_MAX],
        start: u8,
    },
}

impl Member<'_> {
    fn of_number(number: i32) -> Member<'static> {
        let mut buffer = [0; INTEGER_TEXT_BYTES_MAX];
        let written = format_integer(number.into(), &mut buffer);
        let start = NUMBER_TEXT_BYTES_MAX - written.len();
        let mut text = [0; NUMBER_TEXT_BYTES_MAX];
        text[start..].copy_from_slice(written);
        Member::Number { text, start: start as u8 }
    }
}

impl Deref for Member<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Member::Text(text) => text,
            Member::Number { text, start } => &text[usize::from(*start)..],
        }
    }
}

impl AsRef<[u8]> for Member<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Default for Member<'_> {
    fn default() -> Self {
        Member::Text(&[])
    }
}

impl<'i> From<Member<'i>> for Cow<'i, [u8]> {
    fn from(member: Member<'i>) -> Self {
        match member {
            Member::Text(text) => Cow::Borrowed(text),
            Member::Number { .. } => Cow::Owned(member.to_vec()),
        }
    }
}

impl PartialEq for Member<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Member<'_> {}

impl PartialOrd for Member<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Member<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

/// A permutation of the 32-bit numbers whose results are spread evenly: two rounds of shifts and multiplications by odd
/// numbers, each of which is invertible.
const fn code_of(number: i32) -> u32 {
    let mut bits = number as u32;
    bits ^= bits >> 16;
    bits = bits.wrapping_mul(FIRST);
    bits ^= bits >> 16;
    bits = bits.wrapping_mul(SECOND);
    bits ^ bits >> 16
}

/// Undoes [`code_of`].
const fn number_of(code: u32) -> i32 {
    let mut bits = code;
    bits ^= bits >> 16;
    bits = bits.wrapping_mul(inverse(SECOND));
    bits ^= bits >> 16;
    bits = bits.wrapping_mul(inverse(FIRST));
    (bits ^ bits >> 16) as i32
}

/// Like [`code_of`], for 16 bits.
const fn short_code_of(number: i16) -> u16 {
    let mut bits = number as u16;
    bits ^= bits >> 8;
    bits = bits.wrapping_mul(FIRST as u16);
    bits ^= bits >> 8;
    bits = bits.wrapping_mul(SECOND as u16);
    bits ^ bits >> 8
}

/// Undoes [`short_code_of`].
const fn short_number_of(code: u16) -> i16 {
    let mut bits = code;
    bits ^= bits >> 8;
    bits = bits.wrapping_mul(inverse(SECOND) as u16);
    bits ^= bits >> 8;
    bits = bits.wrapping_mul(inverse(FIRST) as u16);
    (bits ^ bits >> 8) as i16
}

const FIRST: u32 = 0x9e37_79b1;
const SECOND: u32 = 0x85eb_ca77;

// Each step is invertible, so two members never have the same item.
const _: () = assert!(FIRST.wrapping_mul(inverse(FIRST)) == 1 && SECOND.wrapping_mul(inverse(SECOND)) == 1);

/// The inverse of multiplication by an odd `factor`, by Newton's method: each step doubles the number of correct bits, and
/// the factor itself has three.
const fn inverse(factor: u32) -> u32 {
    let mut inverse = factor;
    let mut step = 0;
    while step < 4 {
        inverse = inverse.wrapping_mul(2u32.wrapping_sub(factor.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

/// The number that represents a member, if it has a code.
#[inline]
fn coded_number(member: &[u8]) -> Option<i32> {
    if member.is_empty() {
        return Some(EMPTY);
    }
    if member.len() > NUMBER_TEXT_BYTES_MAX {
        return None;
    }
    parse_integer(member).and_then(|number| i32::try_from(number).ok()).filter(|number| *number != EMPTY)
}

/// The first bytes of a member's item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// The whole item of a 16-bit number.
    Short([u8; SHORT_BYTES]),
    /// The whole item of another number, or of the empty member.
    Whole([u8; HASH_BYTES]),
    /// The hash, which the member's text follows.
    Hash([u8; HASH_BYTES]),
}

impl Head {
    #[inline]
    pub(super) fn of(member: &[u8]) -> Head {
        match coded_number(member) {
            Some(number) => match i16::try_from(number) {
                Ok(short) => Head::Short(short_code_of(short).to_be_bytes()),
                Err(_) => Head::Whole(code_of(number).to_be_bytes()),
            },
            None => Head::Hash(hash_of(member)),
        }
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Head::Short(code) => code,
            Head::Whole(head) | Head::Hash(head) => head,
        }
    }
}

/// Encodes the item of a member into `item`.
#[inline]
pub(super) fn item_of<'i>(member: &[u8], item: &'i mut Vec<u8>) -> &'i [u8] {
    let head = Head::of(member);
    item.clear();
    item.extend_from_slice(head.bytes());
    if let Head::Hash(_) = head {
        item.extend_from_slice(member);
    }
    item
}

/// The member of an item.
#[inline]
pub(super) fn member_of(item: &[u8]) -> Member<'_> {
    if let [high, low] = *item {
        return Member::of_number(short_number_of(u16::from_be_bytes([high, low])).into());
    }
    let Some((head, text)) = item.split_first_chunk::<HASH_BYTES>() else {
        unreachable!("an item of a set is a short number's, or as long as a hash, at least")
    };
    if !text.is_empty() {
        return Member::Text(text);
    }
    match number_of(u32::from_be_bytes(*head)) {
        EMPTY => Member::default(),
        number => Member::of_number(number),
    }
}

/// The position of an item in a set, for `SSCAN`. Items ascend by it, and a few items share one.
#[inline]
pub(super) fn position_of(item: &[u8]) -> u32 {
    match *item {
        [high, low] => u32::from_be_bytes([high, low, 0, 0]),
        _ => item.first_chunk().map_or(0, |head| u32::from_be_bytes(*head)),
    }
}

/// A lower bound for the items at this position and behind it, greater than all items before. Returns bytes and their
/// length.
pub(super) fn first_at(position: u32) -> ([u8; HASH_BYTES], usize) {
    let is_short = position as u16 == 0;
    (position.to_be_bytes(), if is_short { SHORT_BYTES } else { HASH_BYTES })
}

/// Whether an item's member is a whole number, of 32 bits or more.
pub(super) fn is_number(item: &[u8]) -> bool {
    match member_of(item) {
        Member::Number { .. } => true,
        Member::Text(text) => parse_integer(text).is_some(),
    }
}

/// Whether untrusted bytes are the item of a member.
pub(super) fn is_item(item: &[u8]) -> bool {
    match item.split_first_chunk::<HASH_BYTES>() {
        Some((head, [])) => {
            let number = number_of(u32::from_be_bytes(*head));
            number == EMPTY || i16::try_from(number).is_err()
        }
        Some((head, text)) => Head::of(text) == Head::Hash(*head),
        None => item.len() == SHORT_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_numbers_and_of_the_empty_member_have_no_text() {
        let length = |member: &str| item_of(member.as_bytes(), &mut Vec::new()).len();
        for short in ["0", "7", "-1", "32767", "-32768"] {
            assert_eq!(length(short), SHORT_BYTES, "{short}");
        }
        for whole in ["", "32768", "-32769", "2147483647", "-2147483647"] {
            assert_eq!(length(whole), HASH_BYTES, "{whole}");
        }
        for long in ["-2147483648", "2147483648", "007", "-0", "+1", "1.5", " 1", "a", "99999999999"] {
            assert_eq!(length(long), HASH_BYTES + long.len(), "{long}");
        }
    }

    #[test]
    fn each_member_survives_encoding() {
        let numbers = (-1000..1000).chain((-64..64).map(|near| near * 33_554_431)).map(|it| it.to_string());
        let texts = ["", "a", "-2147483648", "2147483648", "00", "-0"].map(String::from);
        let mut seen = std::collections::BTreeMap::new();
        for member in numbers.chain(texts) {
            let mut item = Vec::new();
            item_of(member.as_bytes(), &mut item);
            assert!(is_item(&item), "{member}");
            let (first, length) = first_at(position_of(&item));
            assert!(first[..length] <= item[..], "a scan from its position on finds it");
            assert_eq!(&*member_of(&item), member.as_bytes());
            if let Some(other) = seen.insert(item, member.clone()) {
                assert_eq!(other, member, "two members have one item");
            }
        }
    }

    #[test]
    fn an_item_with_a_coded_text_or_a_wrong_hash_is_invalid() {
        for text in ["7", "-12"] {
            let hashed = [&hash_of(text.as_bytes())[..], text.as_bytes()].concat();
            assert!(!is_item(&hashed), "{text}");
        }
        assert!(!is_item(b"\0\0\0\0a") && !is_item(b"a") && !is_item(b"abc"));
        assert!(is_item(b"ab") && is_item(b"abcd"));
        assert!(!is_item(&code_of(7).to_be_bytes()), "a short number that is written long");
    }

    #[test]
    fn codes_are_a_permutation_and_spread_evenly() {
        for number in i16::MIN..=i16::MAX {
            assert_eq!(short_number_of(short_code_of(number)), number);
        }
        let mut quarters = [0; 4];
        (0..1000).for_each(|number| quarters[usize::from(short_code_of(number) >> 14)] += 1);
        assert!(quarters.iter().all(|count| (200..300).contains(count)), "{quarters:?}");
        let mut homes = [0u32; 256];
        for number in (0..100_000).chain([i32::MAX, i32::MIN, -1]) {
            assert_eq!(number_of(code_of(number)), number);
            homes[(code_of(number) >> 24) as usize] += 1;
        }
        assert!(homes.iter().all(|count| (250..550).contains(count)), "{homes:?}");
    }
}

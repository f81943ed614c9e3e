//! Numbers as bytes in the same order as the numbers: scores, and the places of fields.
//!
//! A [`Key`] has eight bytes. Most scores and places are small whole numbers, whose bits end with zeros, so items begin
//! with a shorter form:
//!
//! ```text
//! eight bits | seven bits, and 1 if there are more | seven bits, and 1 if there are more | ...
//! ```
//!
//! Omitted bits are zeros. No form is a prefix of another one, so what follows a form in an item affects the order only
//! between items with the same key.

use arrayvec::ArrayVec;

/// A number, encoded so that the order of bytes is that of numbers.
pub(super) type Key = [u8; KEY_BYTES];

pub(super) const KEY_BYTES: usize = 8;

/// The most bytes of a key's short form.
pub(super) const SHORT_BYTES: usize = 9;

/// The key of a number, which must not be NaN. Both zeros have the same key.
pub(super) fn key_of(number: f64) -> Key {
    debug_assert!(!number.is_nan());
    let bits = (number + 0.0).to_bits();
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    ordered.to_be_bytes()
}

/// The number of a key.
pub(super) fn number_of(key: Key) -> f64 {
    let ordered = u64::from_be_bytes(key);
    f64::from_bits(if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered })
}

/// The short form of a key.
#[inline]
pub(super) fn short(key: Key) -> ArrayVec<u8, SHORT_BYTES> {
    let bits = u64::from_be_bytes(key);
    let mut out = ArrayVec::new();
    out.push((bits >> 56) as u8);
    let mut rest = bits << 8;
    loop {
        let seven = (rest >> 57) as u8;
        rest <<= 7;
        out.push(seven << 1 | u8::from(rest != 0));
        if rest == 0 {
            return out;
        }
    }
}

/// Splits bytes into the key whose short form they begin with, and the rest. `None` if they do not begin with one.
#[inline]
pub(super) fn split_short(bytes: &[u8]) -> Option<(Key, &[u8])> {
    let (first, mut rest) = bytes.split_first()?;
    let mut bits = u64::from(*first) << 56;
    let mut place = 49;
    loop {
        let (seven, behind) = rest.split_first()?;
        (bits, rest) = (bits | u64::from(seven >> 1) << place, behind);
        match (seven & 1, place) {
            (0, _) => return Some((bits.to_be_bytes(), rest)),
            (_, 0) => return None,
            _ => place -= 7,
        }
    }
}

/// Like [`split_short`], for untrusted bytes: `None` also for a form that is longer than necessary, or that represents no
/// number.
pub(super) fn check_short(bytes: &[u8]) -> Option<(Key, &[u8])> {
    let (key, rest) = split_short(bytes)?;
    let is_shortest = short(key).len() == bytes.len() - rest.len();
    let number = number_of(key);
    (is_shortest && !number.is_nan() && key_of(number) == key).then_some((key, rest))
}

/// Splits an item into score and member. Items are trusted: written here, or checked.
#[inline]
pub(super) fn scored_parts(item: &[u8]) -> (Key, &[u8]) {
    match split_short(item) {
        Some(parts) => parts,
        None => unreachable!("an item of a sorted set begins with a score"),
    }
}

/// Whether untrusted bytes are an item of a sorted set.
pub(super) fn is_scored_member(item: &[u8]) -> bool {
    check_short(item).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn short_forms_have_the_order_of_keys(
            one in prop_oneof![any::<u64>(), (0..64_u32, any::<u64>()).prop_map(|(zeros, it)| it << zeros)],
            other in prop_oneof![any::<u64>(), (0..64_u32, any::<u64>()).prop_map(|(zeros, it)| it << zeros)],
        ) {
            let (a, b) = (short(one.to_be_bytes()), short(other.to_be_bytes()));
            prop_assert_eq!(a.cmp(&b), one.cmp(&other));
            prop_assert!(one == other || !a.starts_with(&b));
            let item = [&a[..], b"member"].concat();
            prop_assert_eq!(split_short(&item), Some((one.to_be_bytes(), &b"member"[..])));
        }

        #[test]
        fn bytes_that_are_no_short_form_are_detected(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            if let Some((key, rest)) = check_short(&bytes) {
                prop_assert_eq!(&[&short(key)[..], rest].concat(), &bytes);
            }
        }
    }

    #[test]
    fn keys_have_the_order_of_numbers() {
        let numbers =
            [f64::NEG_INFINITY, -1e300, -1.5, -1.0, -5e-324, 0.0, 5e-324, 1.0, 1.5, 1e300, f64::INFINITY];
        assert!(numbers.map(key_of).is_sorted_by(|one, other| one < other));
        assert_eq!(numbers.map(|number| number_of(key_of(number))), numbers);
        assert_eq!(key_of(-0.0), key_of(0.0));
    }

    #[test]
    fn small_whole_numbers_are_short() {
        let bytes = |number: f64| short(key_of(number)).len();
        assert_eq!([0.0, 1.0, 7.0, 15.0, 16.0, 100.0, 2047.0].map(bytes), [2, 2, 2, 2, 2, 3, 3]);
        assert_eq!([1e6, 1_764_000_000.0, 1_764_000_000_123.0, 0.1].map(bytes), [4, 5, 8, 9]);
    }

    #[test]
    fn only_the_shortest_form_of_a_number_is_accepted() {
        let checked = |bytes: &[u8]| check_short(bytes).is_some();
        assert!(checked(&short(key_of(-1.5))) && !checked(&[0x80]) && !checked(&[]));
        assert!(!checked(&[0x80, 1, 0]), "longer than it must be");
        assert!(!checked(&[0x80, 1, 1, 1, 1, 1, 1, 1, 1, 0]), "more bits than there are");
        assert!(!checked(&short([0xff; 8])) && !checked(&short([0; 8])), "these are no numbers");
        assert!(!checked(&short((!(-0.0_f64).to_bits()).to_be_bytes())), "a second zero");
    }
}

//! How large a value is before it is read: the lengths in a payload, without expanding what is compressed.

use crate::source::{Damaged, Fault, Source};
use crate::value::{Form, Shape};

/// The size of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Bytes of strings, expanded.
    pub bytes: u64,
    /// Bytes of pieces that hold several items each, expanded. An item takes two bytes of one at least.
    pub packed_bytes: u64,
    /// The number of items outside of such pieces.
    pub items: u64,
}

impl Weight {
    fn text(&mut self, source: &mut Source<&[u8]>) -> Result<(), Fault> {
        self.bytes = self.bytes.saturating_add(source.skip_text()?);
        Ok(())
    }

    fn piece(&mut self, source: &mut Source<&[u8]>) -> Result<(), Fault> {
        self.packed_bytes = self.packed_bytes.saturating_add(source.skip_text()?);
        Ok(())
    }
}

/// Weighs a value. Takes a step for each item outside of packed pieces.
///
/// # Errors
/// [`Damaged`] if the bytes end early.
pub(crate) fn weigh(form: Form, source: &mut Source<&[u8]>) -> Result<Weight, Damaged> {
    let mut weight = Weight::default();
    match weigh_into(form.0, source, &mut weight) {
        Ok(()) => Ok(weight),
        Err(Fault::Damaged(damaged)) => Err(damaged),
        Err(Fault::Read(_) | Fault::TooLong) => {
            unreachable!("bytes in memory are read, and nothing is kept of them")
        }
    }
}

fn weigh_into(shape: Shape, source: &mut Source<&[u8]>, weight: &mut Weight) -> Result<(), Fault> {
    use Shape::*;
    match shape {
        String => weight.text(source)?,
        ListOfZiplist | SetOfIntegers | SetOfListpack | SortedOf(_) | HashOfZipmap | HashOf(_) => {
            weight.piece(source)?;
        }
        HashOfTriples { has_least } => {
            source.skip(if has_least { 8 } else { 0 })?;
            weight.piece(source)?;
        }
        ListOfZiplists => {
            for _ in 0..source.length()? {
                weight.piece(source)?;
            }
        }
        ListOfListpacks => {
            for _ in 0..source.length()? {
                match source.length()? {
                    1 => {
                        weight.items += 1;
                        weight.text(source)?;
                    }
                    _ => weight.piece(source)?,
                }
            }
        }
        List | Set | SortedOfTexts | SortedOfNumbers | Hash | HashWithDeadlines { .. } | HashOfValkey => {
            if let HashWithDeadlines { has_least: true } = shape {
                source.skip(8)?;
            }
            for _ in 0..source.length()? {
                weight.items += 1;
                item(shape, source, weight)?;
            }
        }
        Stream(version) => stream(source, version, weight)?,
        Module => {}
    }
    Ok(())
}

fn item(shape: Shape, source: &mut Source<&[u8]>, weight: &mut Weight) -> Result<(), Fault> {
    if let Shape::HashWithDeadlines { .. } = shape {
        source.length()?;
    }
    weight.text(source)?;
    match shape {
        Shape::SortedOfNumbers => source.skip(8),
        Shape::SortedOfTexts => match source.byte()? {
            // Forms of infinity, and of what is no number.
            253..=255 => Ok(()),
            length => source.skip(length.into()),
        },
        Shape::Hash | Shape::HashWithDeadlines { .. } => weight.text(source),
        Shape::HashOfValkey => {
            weight.text(source)?;
            source.skip(8)
        }
        _ => Ok(()),
    }
}

fn stream(source: &mut Source<&[u8]>, version: u8, weight: &mut Weight) -> Result<(), Fault> {
    const ID_BYTES: u64 = 16;
    for _ in 0..source.length()? {
        source.skip_text()?;
        weight.piece(source)?;
    }
    for _ in 0..if version >= 2 { 8 } else { 3 } {
        source.length()?;
    }
    for _ in 0..source.length()? {
        weight.items += 1;
        weight.text(source)?;
        for _ in 0..if version >= 2 { 3 } else { 2 } {
            source.length()?;
        }
        for _ in 0..source.length()? {
            weight.items += 1;
            source.skip(ID_BYTES + 8)?;
            source.length()?;
        }
        for _ in 0..source.length()? {
            weight.items += 1;
            weight.text(source)?;
            source.skip(if version >= 3 { 16 } else { 8 })?;
            let owned = source.length()?;
            source.skip(owned.saturating_mul(ID_BYTES))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload;
    use crate::write::{put_length, put_text};

    fn weight(tag: u8, value: &[u8]) -> Option<Weight> {
        let mut payload = [&[tag][..], value].concat();
        payload::close(payload::VERSION, 0, &mut payload);
        payload::weigh(&payload)
    }

    #[test]
    fn compressed_parts_count_by_what_they_expand_to() {
        let compressed = [0xc3, 5, 0x41, 0x09, 0, b'z', 0xe0, 0xff, 0];
        assert_eq!(weight(0, &compressed), Some(Weight { bytes: 265, ..Weight::default() }));
        let list = [&[2, 1][..], &compressed, &[2], &compressed].concat();
        assert_eq!(weight(18, &list), Some(Weight { bytes: 265, packed_bytes: 265, items: 1 }));
        assert_eq!(weight(16, &compressed), Some(Weight { packed_bytes: 265, ..Weight::default() }));
        assert_eq!(weight(18, &list[..12]), None, "it ends early");
    }

    #[test]
    fn items_outside_of_pieces_are_counted() {
        let mut value = Vec::new();
        put_length(2, &mut value);
        for text in [&b"name"[..], b"17", b"other", b"value"] {
            put_text(text, &mut value);
        }
        // An integer counts as the longest one.
        assert_eq!(weight(4, &value), Some(Weight { bytes: 4 + 11 + 5 + 5, packed_bytes: 0, items: 2 }));
        let mut value = Vec::new();
        put_length(1, &mut value);
        put_text(b"member", &mut value);
        value.extend_from_slice(&1.5_f64.to_le_bytes());
        assert_eq!(weight(5, &value), Some(Weight { bytes: 6, packed_bytes: 0, items: 1 }));
    }
}

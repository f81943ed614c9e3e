//! Small collections in one piece of memory: listpacks, ziplists, zipmaps and sets of integers.

/// An item of such a collection: bytes, or an integer that stands for its decimal text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packed<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// An integer.
    Integer(i64),
}

/// The byte of a piece at which something is wrong, and what.
pub(crate) type Wrong = (usize, &'static str);

/// The decimal text of an integer.
pub(crate) fn decimal(integer: i64, buffer: &mut [u8; 20]) -> &[u8] {
    let (mut at, mut left) = (buffer.len(), integer.unsigned_abs());
    loop {
        at -= 1;
        buffer[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if integer < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    &buffer[at..]
}

/// The integer that a text denotes, if it is written as [`decimal`] writes it.
pub(crate) fn integer_of(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    let integer = std::str::from_utf8(text).ok()?.parse().ok()?;
    (decimal(integer, &mut [0; 20]) == text).then_some(integer)
}

impl<'a> Packed<'a> {
    /// The bytes of the item.
    pub fn text<'b>(self, buffer: &'b mut [u8; 20]) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Packed::Bytes(bytes) => bytes,
            Packed::Integer(integer) => decimal(integer, buffer),
        }
    }

    /// The integer that the item is, or whose text it is.
    pub(crate) fn integer(self) -> Option<i64> {
        match self {
            Packed::Bytes(bytes) => integer_of(bytes),
            Packed::Integer(integer) => Some(integer),
        }
    }
}

/// Reads bytes from the front.
struct Reader<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn wrong<T>(&self, why: &'static str) -> Result<T, Wrong> {
        Err((self.at, why))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Wrong> {
        let Some(taken) = self.all[self.at..].get(..count) else {
            return self.wrong("a packed collection ends early");
        };
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Wrong> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, Wrong> {
        Ok(self.array::<1>()?[0])
    }

    fn is_at_end(&self) -> bool {
        self.at == self.all.len()
    }
}

/// An integer of three bytes.
fn short(bytes: [u8; 3]) -> i64 {
    i64::from(i32::from_le_bytes([0, bytes[0], bytes[1], bytes[2]]) >> 8)
}

/// The two formats of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Listpack,
    Ziplist,
}

/// The items of a listpack or a ziplist.
pub(crate) struct Items<'a> {
    reader: Reader<'a>,
    format: Format,
    is_over: bool,
}

impl<'a> Items<'a> {
    /// The items of a whole piece.
    pub(crate) fn of(bytes: &'a [u8], format: Format) -> Result<Items<'a>, Wrong> {
        let mut reader = Reader { all: bytes, at: 0 };
        let written = u32::from_le_bytes(reader.array()?);
        if written as usize != bytes.len() {
            return Err((0, "a packed collection with another length than it says"));
        }
        // A ziplist has the place of its last item here. The number of items, which follows, is not exact in large
        // ones.
        reader.take(if format == Format::Ziplist { 6 } else { 2 })?;
        Ok(Items { reader, format, is_over: false })
    }

    pub(crate) fn at(&self) -> usize {
        self.reader.at
    }

    /// Goes to an item, by a place that [`Items::at`] returned.
    pub(crate) fn skip_to(&mut self, at: usize) {
        self.reader.at = at;
    }

    /// The next item, `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Packed<'a>>, Wrong> {
        if self.is_over {
            return Ok(None);
        }
        if self.reader.all.get(self.reader.at) == Some(&0xff) {
            self.reader.at += 1;
            self.is_over = true;
            return match self.reader.is_at_end() {
                true => Ok(None),
                false => self.reader.wrong("bytes behind the end of a packed collection"),
            };
        }
        match self.format {
            Format::Listpack => self.next_of_listpack(),
            Format::Ziplist => self.next_of_ziplist(),
        }
        .map(Some)
    }

    /// The next item, which must exist.
    pub(crate) fn must(&mut self) -> Result<Packed<'a>, Wrong> {
        let next = self.next()?;
        next.ok_or((self.reader.at, "a packed collection lacks an item"))
    }

    fn next_of_listpack(&mut self) -> Result<Packed<'a>, Wrong> {
        let start = self.reader.at;
        let reader = &mut self.reader;
        let first = reader.byte()?;
        let item = match first {
            0..0x80 => Packed::Integer(first.into()),
            0x80..0xc0 => Packed::Bytes(reader.take((first & 0x3f).into())?),
            0xc0..0xe0 => {
                let bits = u16::from(first & 0x1f) << 8 | u16::from(reader.byte()?);
                // Thirteen bits, of which the first is the sign.
                Packed::Integer(i64::from((bits << 3) as i16 >> 3))
            }
            0xe0..0xf0 => {
                let length = usize::from(first & 0x0f) << 8 | usize::from(reader.byte()?);
                Packed::Bytes(reader.take(length)?)
            }
            0xf0 => {
                let length = u32::from_le_bytes(reader.array()?) as usize;
                Packed::Bytes(reader.take(length)?)
            }
            0xf1 => Packed::Integer(i16::from_le_bytes(reader.array()?).into()),
            0xf2 => Packed::Integer(short(reader.array()?)),
            0xf3 => Packed::Integer(i32::from_le_bytes(reader.array()?).into()),
            0xf4 => Packed::Integer(i64::from_le_bytes(reader.array()?)),
            _ => return Err((start, "an item of a listpack in an unknown form")),
        };
        // After the item: its length, for reading backwards.
        let back = back_length_bytes(reader.at - start);
        reader.take(back)?;
        Ok(item)
    }

    fn next_of_ziplist(&mut self) -> Result<Packed<'a>, Wrong> {
        let start = self.reader.at;
        let reader = &mut self.reader;
        // The length of the item before.
        if reader.byte()? == 0xfe {
            reader.take(4)?;
        }
        let first = reader.byte()?;
        Ok(match first {
            0..0x40 => Packed::Bytes(reader.take(first.into())?),
            0x40..0x80 => {
                let length = usize::from(first & 0x3f) << 8 | usize::from(reader.byte()?);
                Packed::Bytes(reader.take(length)?)
            }
            0x80 => {
                let length = u32::from_be_bytes(reader.array()?) as usize;
                Packed::Bytes(reader.take(length)?)
            }
            0xc0 => Packed::Integer(i16::from_le_bytes(reader.array()?).into()),
            0xd0 => Packed::Integer(i32::from_le_bytes(reader.array()?).into()),
            0xe0 => Packed::Integer(i64::from_le_bytes(reader.array()?)),
            0xf0 => Packed::Integer(short(reader.array()?)),
            0xfe => Packed::Integer(i8::from_le_bytes(reader.array()?).into()),
            0xf1..=0xfd => Packed::Integer(i64::from(first & 0x0f) - 1),
            _ => return Err((start, "an item of a ziplist in an unknown form")),
        })
    }
}

/// The number of bytes that the length after a listpack's item takes.
pub(crate) fn back_length_bytes(length: usize) -> usize {
    match length {
        0..=127 => 1,
        128..16383 => 2,
        16383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// Visits the fields of a zipmap with their values.
pub(crate) fn zipmap<'a, E: From<Wrong>>(
    bytes: &'a [u8],
    mut visit: impl FnMut(&'a [u8], &'a [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut reader = Reader { all: bytes, at: 0 };
    // The number of fields, which is not exact in large ones.
    reader.byte()?;
    let length = |reader: &mut Reader<'a>| match reader.byte()? {
        length @ 0..254 => Ok(usize::from(length)),
        254 => Ok(u32::from_le_bytes(reader.array()?) as usize),
        255 => reader.wrong("a zipmap that ends early"),
    };
    while reader.all.get(reader.at) != Some(&0xff) {
        let name_bytes = length(&mut reader)?;
        let name = reader.take(name_bytes)?;
        let value_bytes = length(&mut reader)?;
        let free = reader.byte()?;
        let value = reader.take(value_bytes)?;
        reader.take(free.into())?;
        visit(name, value)?;
    }
    reader.take(1)?;
    if reader.is_at_end() { Ok(()) } else { Ok(reader.wrong("bytes behind a zipmap")?) }
}

/// Visits the members of a set of integers.
pub(crate) fn integers<E: From<Wrong>>(
    bytes: &[u8],
    mut visit: impl FnMut(i64) -> Result<(), E>,
) -> Result<(), E> {
    let mut reader = Reader { all: bytes, at: 0 };
    let (width, count) = (u32::from_le_bytes(reader.array()?), u32::from_le_bytes(reader.array()?));
    if ![2, 4, 8].contains(&width) || u64::from(count) * u64::from(width) != (bytes.len() - 8) as u64 {
        return Ok(reader.wrong("a set of integers that is none")?);
    }
    for _ in 0..count {
        visit(match width {
            2 => i16::from_le_bytes(reader.array()?).into(),
            4 => i32::from_le_bytes(reader.array()?).into(),
            _ => i64::from_le_bytes(reader.array()?),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_texts() {
        for integer in [0, 7, -7, i64::MIN, i64::MAX, 1_000_000] {
            let mut buffer = [0; 20];
            let text = decimal(integer, &mut buffer);
            assert_eq!(text, integer.to_string().as_bytes());
            assert_eq!(integer_of(text), Some(integer));
        }
        for text in [&b""[..], b"+1", b"01", b"-0", b"9223372036854775808", b"1x"] {
            assert_eq!(integer_of(text), None);
        }
    }

    fn all(bytes: &[u8], format: Format) -> Result<Vec<String>, Wrong> {
        let (mut items, mut found) = (Items::of(bytes, format)?, Vec::new());
        while let Some(item) = items.next()? {
            found.push(item.text(&mut [0; 20]).escape_ascii().to_string());
        }
        Ok(found)
    }

    #[test]
    fn ziplists_are_read() {
        // The items of Redis's own description of the format: 2, 5 and "Hello World".
        let bytes = b"\x1c\0\0\0\x14\0\0\0\x03\0\0\xf3\x02\xf6\x02\x0bHello World\xff";
        let mut bytes = bytes.to_vec();
        bytes[0] = bytes.len() as u8;
        assert_eq!(all(&bytes, Format::Ziplist).unwrap(), ["2", "5", "Hello World"]);
        let mut more = b"\0\0\0\0\0\0\0\0\0\0\0\xfe\x80\x03\xc0\0\x80\x03\xf0\xff\xff\xff\xfe\x05\0\0\0\xd0\0\0\0\x80\xff".to_vec();
        more[0] = more.len() as u8;
        assert_eq!(all(&more, Format::Ziplist).unwrap(), ["-128", "-32768", "-1", "-2147483648"]);
        assert!((0..bytes.len()).all(|end| all(&bytes[..end], Format::Ziplist).is_err()));
    }

    #[test]
    fn zipmaps_and_sets_of_integers_are_read() {
        let mut found = Vec::new();
        let take = |name: &[u8], value: &[u8]| {
            found.push((name.to_vec(), value.to_vec()));
            Ok::<(), Wrong>(())
        };
        zipmap(b"\x02\x03foo\x03\x00bar\x05hello\x05\x02world__\xff", take).unwrap();
        let expected = [(b"foo".to_vec(), b"bar".to_vec()), (b"hello".to_vec(), b"world".to_vec())];
        assert_eq!(found, expected);
        assert!(zipmap(b"\x01\x03foo\x03\x00bar", |_, _| Ok::<(), Wrong>(())).is_err());
        let mut sum = 0;
        let add = |integer| {
            sum += integer;
            Ok::<(), Wrong>(())
        };
        integers(b"\x02\0\0\0\x02\0\0\0\xff\xff\x05\0", add).unwrap();
        assert_eq!(sum, 4);
        assert!(integers(b"\x03\0\0\0\0\0\0\0", |_| Ok::<(), Wrong>(())).is_err());
        assert!(integers(b"\x08\0\0\0\xff\xff\xff\xff", |_| Ok::<(), Wrong>(())).is_err());
    }
}

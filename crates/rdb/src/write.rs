//! Writing values in the form that every server reads: the oldest of each type.

use crate::crc::Crc;
use crate::packed::{back_length_bytes, integer_of};
use crate::value::{Id, Words};
use std::io::{self, Write};

/// The numbers of the types that are written.
#[allow(missing_docs)]
pub mod tag {
    pub const STRING: u8 = 0;
    pub const LIST: u8 = 1;
    pub const SET: u8 = 2;
    pub const HASH: u8 = 4;
    pub const SORTED_SET: u8 = 5;
    pub const STREAM: u8 = 19;
    pub const HASH_WITH_DEADLINES: u8 = 24;
    /// Precedes the text of a library of functions.
    pub const LIBRARY: u8 = 245;
}

/// The number of entries in one node of a stream, the same as in Redis.
pub const NODE_ENTRIES: usize = 100;

/// Appends a length or another number.
pub fn put_length(length: u64, out: &mut Vec<u8>) {
    match length {
        0..0x40 => out.push(length as u8),
        0x40..0x4000 => out.extend_from_slice(&(length as u16 | 0x4000).to_be_bytes()),
        0x4000..=0xffff_ffff => {
            out.push(0x80);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
        _ => {
            out.push(0x81);
            out.extend_from_slice(&length.to_be_bytes());
        }
    }
}

/// Appends a string. A text that is an integer of up to 32 bits is written as that integer.
pub fn put_text(text: &[u8], out: &mut Vec<u8>) {
    if let Some(integer) = integer_of(text).and_then(|integer| i32::try_from(integer).ok()) {
        let bytes = integer.to_le_bytes();
        let (form, width) = match integer {
            -128..=127 => (0, 1),
            -32768..=32767 => (1, 2),
            _ => (2, 4),
        };
        out.push(0xc0 | form);
        return out.extend_from_slice(&bytes[..width]);
    }
    put_length(text.len() as u64, out);
    out.extend_from_slice(text);
}

fn put_id(id: Id, out: &mut Vec<u8>) {
    put_length(id.ms, out);
    put_length(id.seq, out);
}

/// Appends an id in its form of fixed length.
pub fn put_fixed_id(id: Id, out: &mut Vec<u8>) {
    out.extend_from_slice(&id.ms.to_be_bytes());
    out.extend_from_slice(&id.seq.to_be_bytes());
}

/// Items of a listpack.
#[derive(Clone, Debug, Default)]
struct Listpack {
    items: Vec<u8>,
    count: usize,
}

impl Listpack {
    fn put(&mut self, text: &[u8]) {
        if let Some(integer) = integer_of(text) {
            return self.put_integer(integer);
        }
        let start = self.items.len();
        match text.len() {
            length @ 0..64 => self.items.push(0x80 | length as u8),
            length @ 64..4096 => self.items.extend_from_slice(&(0xe000 | length as u16).to_be_bytes()),
            length => {
                self.items.push(0xf0);
                self.items.extend_from_slice(&(length as u32).to_le_bytes());
            }
        }
        self.items.extend_from_slice(text);
        self.end_item(start);
    }

    fn put_integer(&mut self, integer: i64) {
        let (start, bytes) = (self.items.len(), integer.to_le_bytes());
        match integer {
            0..=127 => self.items.push(integer as u8),
            -4096..=4095 => {
                let thirteen = integer as u16 & 0x1fff | 0xc000;
                self.items.extend_from_slice(&thirteen.to_be_bytes());
            }
            _ => {
                let (form, width) = match integer {
                    -32768..=32767 => (0xf1, 2),
                    -8_388_608..=8_388_607 => (0xf2, 3),
                    -2_147_483_648..=2_147_483_647 => (0xf3, 4),
                    _ => (0xf4, 8),
                };
                self.items.push(form);
                self.items.extend_from_slice(&bytes[..width]);
            }
        }
        self.end_item(start);
    }

    /// Appends the length of the item that begins at `start`, for reading backwards: seven bits in a byte, the lowest
    /// last, and all bytes but the first with their highest bit set.
    fn end_item(&mut self, start: usize) {
        let length = self.items.len() - start;
        let bytes = back_length_bytes(length);
        for at in (0..bytes).rev() {
            let part = (length >> (7 * at) & 0x7f) as u8;
            self.items.push(if at + 1 == bytes { part } else { part | 0x80 });
        }
        self.count += 1;
    }
}

/// Appends a listpack of these items as a string.
fn put_listpack(parts: &[&Listpack], out: &mut Vec<u8>) {
    const UNKNOWN: usize = u16::MAX as usize;
    let bytes = parts.iter().map(|part| part.items.len()).sum::<usize>() + 7;
    let count = parts.iter().map(|part| part.count).sum::<usize>().min(UNKNOWN);
    put_length(bytes as u64, out);
    out.extend_from_slice(&(bytes as u32).to_le_bytes());
    out.extend_from_slice(&(count as u16).to_le_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(&part.items));
    out.push(0xff);
}

/// Appends a node of a stream: up to [`NODE_ENTRIES`] entries in ascending order, names and values in turn.
pub fn put_node(entries: &[(Id, Words)], out: &mut Vec<u8>) {
    let Some((first, words)) = entries.first() else { return };
    let names = |words: &Words| words.iter().step_by(2).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let first_names = names(words);
    let (mut head, mut rest) = (Listpack::default(), Listpack::default());
    head.put_integer(entries.len() as i64);
    head.put_integer(0);
    head.put_integer(first_names.len() as i64);
    first_names.iter().for_each(|name| head.put(name));
    head.put_integer(0);
    for (id, words) in entries {
        let has_same = words.iter().step_by(2).eq(first_names.iter().map(Vec::as_slice));
        let before = rest.count;
        rest.put_integer(if has_same { 2 } else { 0 });
        rest.put_integer(id.ms.wrapping_sub(first.ms) as i64);
        rest.put_integer(id.seq.wrapping_sub(first.seq) as i64);
        if has_same {
            words.iter().skip(1).step_by(2).for_each(|value| rest.put(value));
        } else {
            rest.put_integer(words.len() as i64 / 2);
            words.iter().for_each(|word| rest.put(word));
        }
        rest.put_integer((rest.count - before) as i64);
    }
    // An id is a string of sixteen bytes.
    put_length(16, out);
    put_fixed_id(*first, out);
    put_listpack(&[&head, &rest], out);
}

/// The data after the nodes of a stream.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct StreamHead {
    pub length: u64,
    pub last: Id,
    pub first: Id,
    pub removed: Id,
    pub added: u64,
    pub groups: u64,
}

impl StreamHead {
    /// Appends this data. The groups follow.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_length(self.length, out);
        [self.last, self.first, self.removed].into_iter().for_each(|id| put_id(id, out));
        put_length(self.added, out);
        put_length(self.groups, out);
    }
}

/// Appends a group of a stream. Its pending entries follow, then its consumers.
pub fn put_group(name: &[u8], last: Id, read: Option<u64>, out: &mut Vec<u8>) {
    put_text(name, out);
    put_id(last, out);
    put_length(read.unwrap_or(u64::MAX), out);
}

/// Writes a file of keys.
///
/// Whether one of its values needs a newer version than [`crate::payload::VERSION`] is known only at the end, and the
/// checksum covers the version at the beginning. So two checksums are computed.
#[derive(Debug)]
pub struct FileWriter<W> {
    out: W,
    old: Crc,
    new: Crc,
    is_new: bool,
    buffer: Vec<u8>,
}

/// The beginning of a file, for each of these two versions.
const OLD_HEAD: &[u8; 9] = b"REDIS0010";
const NEW_HEAD: &[u8; 9] = b"REDIS0012";

impl<W: Write> FileWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// That of `out`.
    pub fn begin(mut out: W) -> io::Result<FileWriter<W>> {
        let (mut old, mut new) = (Crc::default(), Crc::default());
        old.add(OLD_HEAD);
        new.add(NEW_HEAD);
        out.write_all(OLD_HEAD)?;
        let mut writer = FileWriter { out, old, new, is_new: false, buffer: Vec::new() };
        writer.database(0)?;
        Ok(writer)
    }

    /// Begins a database, to which the next keys belong.
    ///
    /// # Errors
    /// That of the file.
    pub fn database(&mut self, number: u8) -> io::Result<()> {
        let mut select = vec![0xfe];
        put_length(u64::from(number), &mut select);
        self.write(&select)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.old.add(bytes);
        self.new.add(bytes);
        self.out.write_all(bytes)
    }

    /// Adds a key: the number of its type and its value are those of a payload.
    ///
    /// # Errors
    /// That of the file.
    pub fn key(&mut self, key: &[u8], deadline_ms: Option<u64>, tag: u8, value: &[u8]) -> io::Result<()> {
        self.is_new |= tag == tag::HASH_WITH_DEADLINES;
        let mut head = std::mem::take(&mut self.buffer);
        head.clear();
        if let Some(deadline) = deadline_ms {
            head.push(0xfc);
            head.extend_from_slice(&deadline.to_le_bytes());
        }
        head.push(tag);
        put_text(key, &mut head);
        let outcome = self.write(&head).and_then(|()| self.write(value));
        self.buffer = head;
        outcome
    }

    /// Ends the file. Returns the underlying writer, and the bytes by which the file's beginning must be replaced, if
    /// any.
    ///
    /// # Errors
    /// That of the file.
    pub fn end(mut self) -> io::Result<(W, Option<&'static [u8]>)> {
        self.write(&[0xff])?;
        let crc = if self.is_new { self.new } else { self.old };
        self.out.write_all(&crc.value().to_le_bytes())?;
        self.out.flush()?;
        Ok((self.out, self.is_new.then_some(&NEW_HEAD[..])))
    }
}

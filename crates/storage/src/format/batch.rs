//! Batches: what one turn appended, written as one piece that survives whole or not at all.
//!
//! ```text
//! header, 32 bytes, at a multiple of 32:
//!   length of the entries: u32 | checksum of the entries: u32 | position: u64 | durable: u64 |
//!   number of entries: u32 | checksum of the 28 bytes before: u32
//! entries, each: length: u32 | group: u16 | kind: u16 | bytes, and zeros up to a multiple of 8
//! zeros up to a multiple of 32
//! ```
//!
//! A header lies within one sector, since 32 divides the 480 bytes of the log that a sector holds. So after a crash it
//! is either present or absent, never torn. `durable` is the position up to which the log was known to be durable when
//! the batch was written: if the log ends before that, something was lost.

use super::{Fields, checksum};
use crate::{Group, Position};

/// Length of a batch's header in bytes; batches begin at multiples of it.
pub const BATCH_HEADER_BYTES: usize = 32;

/// Length of the header of an entry, in bytes.
pub const ENTRY_HEADER_BYTES: usize = 8;
const ENTRY_ALIGNMENT_BYTES: usize = 8;

/// A batch is closed, and another one begun, when its entries exceed this many bytes. This bounds what a start must
/// hold in memory, except for one entry that is longer.
pub const BATCH_BYTES_MAX: usize = 4 << 20;

/// The longest entry, in bytes: far above what a client can send.
pub const ENTRY_BYTES_MAX: usize = 1 << 30;

/// One entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its position.
    pub position: Position,
    /// Its group.
    pub group: Group,
    /// Its kind, in the group's own numbering. The log carries the kind and does not interpret it.
    pub kind: u16,
    /// The bytes that were appended.
    pub bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) length: u32,
    pub(crate) checksum: u32,
    pub(crate) position: Position,
    pub(crate) durable: Position,
    pub(crate) entries: u32,
}

impl BatchHeader {
    pub(crate) fn encode(&self, salt: u64) -> [u8; BATCH_HEADER_BYTES] {
        let mut bytes = [0; BATCH_HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.position.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.durable.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.entries.to_le_bytes());
        let sum = checksum(salt, &[&bytes[..28]]);
        bytes[28..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Returns None when these are not 32 bytes that [`encode`](Self::encode) made for this log.
    pub(crate) fn decode(salt: u64, bytes: &[u8]) -> Option<BatchHeader> {
        let bytes = bytes.get(..BATCH_HEADER_BYTES)?;
        let mut fields = Fields(bytes);
        let header = BatchHeader {
            length: fields.u32()?,
            checksum: fields.u32()?,
            position: fields.u64()?,
            durable: fields.u64()?,
            entries: fields.u32()?,
        };
        (fields.u32()? == checksum(salt, &[&bytes[..28]])).then_some(header)
    }

    /// Bytes from this header to the next one.
    pub(crate) fn whole_bytes(&self) -> u64 {
        (BATCH_HEADER_BYTES as u64 + u64::from(self.length)).next_multiple_of(BATCH_HEADER_BYTES as u64)
    }
}

/// Calls `each` with the entries of a batch. Returns false when they are not what an encoder makes.
#[must_use]
pub(crate) fn each_entry(header: &BatchHeader, body: &[u8], mut each: impl FnMut(Entry<'_>)) -> bool {
    let mut fields = Fields(body);
    let start = header.position.saturating_add(BATCH_HEADER_BYTES as u64);
    for _ in 0..header.entries {
        let position = start.saturating_add((body.len() - fields.0.len()) as u64);
        let mut entry = || {
            let (length, group, kind) = (fields.u32()? as usize, fields.u16()?, fields.u16()?);
            let bytes = fields.bytes(length)?;
            fields.bytes(length.next_multiple_of(ENTRY_ALIGNMENT_BYTES) - length)?;
            Some(Entry { position, group, kind, bytes })
        };
        let Some(entry) = entry() else { return false };
        each(entry);
    }
    fields.0.is_empty()
}

/// What was appended and not yet written: one batch, or several if there is much of it. It is preceded by what the
/// first block already holds, so that whole blocks can be written.
#[derive(Debug)]
pub(crate) struct Gathered {
    salt: u64,
    /// The position of the first batch.
    start: Position,
    /// The beginning of the block, then the batches.
    bytes: Vec<u8>,
    /// Length of that beginning.
    lead: usize,
    /// Where in `bytes` the open batch begins, and its number of entries.
    open: Option<(usize, u32)>,
    /// Memory that was handed out and has been given back.
    spare: Vec<u8>,
}

/// Memory of up to this length is kept for what is gathered next, and as much for what is gathered during a write.
pub(crate) const SPARE_BYTES_MAX: usize = 2 << 20;

impl Gathered {
    /// Creates an empty `Gathered`, in a block that begins with `lead`.
    pub(crate) fn new(salt: u64, start: Position, lead: Vec<u8>) -> Gathered {
        Gathered { salt, start, lead: lead.len(), bytes: lead, open: None, spare: Vec::new() }
    }

    /// The position of the first batch: everything before it was handed out to be written.
    pub(crate) fn start(&self) -> Position {
        self.start
    }

    /// The number of bytes before the first batch.
    pub(crate) fn lead(&self) -> usize {
        self.lead
    }

    /// Every entry appended so far is below this position, every later one is not.
    pub(crate) fn end(&self) -> Position {
        self.position(self.bytes.len())
    }

    fn position(&self, place: usize) -> Position {
        self.start + (place - self.lead) as u64
    }

    /// The number of bytes by which the log grows when what is gathered is written.
    pub(crate) fn whole_bytes(&self) -> u64 {
        (self.bytes.len() - self.lead).next_multiple_of(BATCH_HEADER_BYTES) as u64
    }

    /// Makes what is gathered go to a new file, after that file's header.
    pub(crate) fn begin_file(&mut self, header: Vec<u8>) {
        assert_eq!(
            header.len() % BATCH_HEADER_BYTES,
            0,
            "batches begin at multiples of their header's length"
        );
        let before = std::mem::replace(&mut self.lead, header.len());
        self.bytes.splice(..before, header);
        self.open = self.open.map(|(batch, entries)| (batch - before + self.lead, entries));
    }

    pub(crate) fn append(
        &mut self,
        durable: Position,
        group: Group,
        kind: u16,
        parts: [&[u8]; 2],
    ) -> Position {
        let length = parts[0].len() + parts[1].len();
        assert!(length <= ENTRY_BYTES_MAX, "an entry of {length} bytes");
        if let Some((batch, _)) = self.open
            && self.bytes.len() - batch + length > BATCH_BYTES_MAX
        {
            self.close(durable);
        }
        let (batch, entries) = self.open.unwrap_or_else(|| {
            let batch = self.bytes.len();
            self.bytes.resize(batch + BATCH_HEADER_BYTES, 0);
            (batch, 0)
        });
        let position = self.position(self.bytes.len());
        self.bytes.extend_from_slice(&(length as u32).to_le_bytes());
        self.bytes.extend_from_slice(&group.to_le_bytes());
        self.bytes.extend_from_slice(&kind.to_le_bytes());
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.bytes.resize(self.bytes.len().next_multiple_of(ENTRY_ALIGNMENT_BYTES), 0);
        self.open = Some((batch, entries + 1));
        assert!(self.start < position && position < self.end(), "an entry lies outside of what is gathered");
        position
    }

    /// Closes the last batch: all batches are then ready to be written.
    fn close(&mut self, durable: Position) {
        if let Some((batch, entries)) = self.open.take() {
            let body = &self.bytes[batch + BATCH_HEADER_BYTES..];
            assert!(
                entries > 0 && body.len() <= u32::MAX as usize,
                "{entries} entries of {} bytes",
                body.len()
            );
            assert_eq!((batch - self.lead) % BATCH_HEADER_BYTES, 0, "a header could be torn");
            let header = BatchHeader {
                length: body.len() as u32,
                checksum: checksum(self.salt, &[body]),
                position: self.position(batch),
                durable,
                entries,
            };
            self.bytes[batch..batch + BATCH_HEADER_BYTES].copy_from_slice(&header.encode(self.salt));
            self.bytes.resize(self.lead + self.whole_bytes() as usize, 0);
        }
    }

    /// Hands everything out ready to be written: the beginning of the block, the batches, and `zeros` zeros. Starts
    /// again after it, in a block that will then hold `lead` bytes.
    pub(crate) fn take(&mut self, durable: Position, zeros: usize, lead: usize) -> Vec<u8> {
        self.close(durable);
        let start = self.end();
        assert_eq!(
            (start - self.start) % BATCH_HEADER_BYTES as u64,
            0,
            "what is handed out ends within a batch"
        );
        assert!(start > self.start && lead <= self.bytes.len(), "{lead} bytes of {}", self.bytes.len());
        self.start = start;
        let mut rest = std::mem::take(&mut self.spare);
        rest.clear();
        rest.extend_from_slice(&self.bytes[self.bytes.len() - lead..]);
        self.lead = lead;
        let mut taken = std::mem::replace(&mut self.bytes, rest);
        taken.resize(taken.len() + zeros, 0);
        taken
    }

    /// Takes back the memory of what was written.
    pub(crate) fn give_back(&mut self, taken: Vec<u8>) {
        if (self.spare.capacity() + 1..=SPARE_BYTES_MAX).contains(&taken.capacity()) {
            self.spare = taken;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry as (position, group, kind, bytes).
    type Owned = (Position, Group, u16, Vec<u8>);

    /// The batches of `bytes` and their entries.
    fn decode(salt: u64, mut bytes: &[u8]) -> Vec<(BatchHeader, Vec<Owned>)> {
        let mut batches = Vec::new();
        while !bytes.is_empty() {
            let header = BatchHeader::decode(salt, bytes).unwrap();
            let body = &bytes[BATCH_HEADER_BYTES..BATCH_HEADER_BYTES + header.length as usize];
            assert_eq!(header.checksum, checksum(salt, &[body]));
            let mut entries = Vec::new();
            assert!(each_entry(&header, body, |e| entries.push((
                e.position,
                e.group,
                e.kind,
                e.bytes.to_vec()
            ))));
            batches.push((header, entries));
            bytes = &bytes[header.whole_bytes() as usize..];
        }
        batches
    }

    #[test]
    fn entries_are_read_back_at_the_positions_that_append_returned() {
        let mut gathered = Gathered::new(7, 4096, vec![9; 64]);
        let mut expected = Vec::new();
        for (group, kind, bytes) in [(1, 2, &b"first"[..]), (9, 0, b""), (1, 3, &[5; 100])] {
            expected.push((gathered.append(64, group, kind, [bytes, &[]]), group, kind, bytes.to_vec()));
        }
        assert_eq!(expected[0].0, 4096 + 32);
        let end = gathered.whole_bytes() + 4096;
        let bytes = gathered.take(64, 32, 96);
        assert_eq!((&bytes[..64], &bytes[bytes.len() - 32..]), (&[9; 64][..], &[0; 32][..]));
        let batches = decode(7, &bytes[64..bytes.len() - 32]);
        assert_eq!(batches.len(), 1);
        let (header, entries) = &batches[0];
        assert_eq!((header.position, header.durable, header.entries), (4096, 64, 3));
        assert_eq!(*entries, expected);
        assert_eq!(gathered.append(64, 1, 1, [b"ne", b"xt"]), end + 32);
        let next = gathered.take(64, 0, 0);
        assert_eq!(
            next[..96],
            bytes[bytes.len() - 128..bytes.len() - 32],
            "the block begins with what it holds"
        );
    }

    #[test]
    fn gathered_batches_may_begin_a_new_file() {
        let mut gathered = Gathered::new(7, 0, vec![9; 64]);
        gathered.append(0, 1, 1, [b"one", b""]);
        gathered.begin_file(vec![5; 32]);
        gathered.append(0, 1, 2, [b"", b"two"]);
        let bytes = gathered.take(0, 0, 0);
        assert_eq!(bytes[..32], [5; 32]);
        let (header, entries) = &decode(7, &bytes[32..])[0];
        assert_eq!((header.position, entries.len()), (0, 2));
    }

    #[test]
    fn many_bytes_become_several_batches() {
        let mut gathered = Gathered::new(7, 0, Vec::new());
        let positions: Vec<_> =
            (0..5).map(|_| gathered.append(0, 1, 1, [&[1; BATCH_BYTES_MAX / 4]; 2])).collect();
        let batches = decode(7, &gathered.take(0, 0, 0));
        assert!(batches.len() > 2);
        let found: Vec<_> = batches.into_iter().flat_map(|(_, entries)| entries).collect();
        assert_eq!(found.iter().map(|entry| entry.0).collect::<Vec<_>>(), positions);
    }

    #[test]
    fn the_header_of_another_log_is_not_decoded() {
        let mut gathered = Gathered::new(7, 0, Vec::new());
        gathered.append(0, 1, 1, [b"value", b""]);
        let bytes = gathered.take(0, 0, 0);
        assert!(BatchHeader::decode(7, &bytes).is_some());
        assert_eq!(BatchHeader::decode(8, &bytes), None);
        assert_eq!(BatchHeader::decode(7, &[0; 64]), None);
        assert_eq!(BatchHeader::decode(7, &bytes[..31]), None);
    }

    #[test]
    fn malformed_entries_are_reported() {
        let header = BatchHeader { length: 8, checksum: 0, position: u64::MAX, durable: 0, entries: 1 };
        assert!(each_entry(&header, &[0; 8], |_| {}));
        assert!(!each_entry(&header, &[0; 16], |_| {}), "more bytes than entries");
        assert!(!each_entry(&header, &[255; 8], |_| {}), "an entry longer than its batch");
        assert!(
            !each_entry(&header, &[1, 0, 0, 0, 0, 0, 0, 0, 9], |_| {}),
            "no room for the zeros behind it"
        );
    }
}

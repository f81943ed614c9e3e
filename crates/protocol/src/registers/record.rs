//! Records: what must survive a crash of a replica of registers.
//!
//! Replayed in order, the records of a replica's incarnations rebuild what it holds. A checkpoint consists of records
//! too, so there is only one way of restoring a replica. A register that occurs twice, or after a newer one, changes
//! nothing: tags order registers here too.

use super::lives::KnownLives;
use super::message::{Bounds, take_key, take_register};
use super::tag::Tag;
use kv::Register;
use kv::codec::{Malformed, Reader, Writer};

/// One change. A record holds those of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The replica's memory begins here, empty: what was recorded before does not count.
    Born {
        /// How often the node had been started by that time, the last start included.
        starts: u64,
        /// Whether no earlier memory of this member has ever vouched for anything.
        first: bool,
    },
    /// The incarnations of all members, as far as they are known.
    Lives {
        /// How often the node had been started, in the member's own incarnation.
        starts: u64,
        /// The incarnations.
        lives: KnownLives<'a>,
    },
    /// A register that the replica stored.
    Register {
        /// Its key.
        key: &'a [u8],
        /// What it holds.
        register: Register<'a>,
    },
    /// A part of a snapshot, of another replica or of a checkpoint.
    SnapshotChunk(&'a [u8]),
    /// All registers are dropped: what snapshots brought does not count.
    Cleared,
    /// The group's progress in the collection of tombstones.
    Bounds(Bounds),
    /// From here on the replica vouches for everything that it ever acknowledged, and answers requests.
    Vouches,
}

const BORN: u8 = 1;
const LIVES: u8 = 2;
const REGISTER: u8 = 3;
const SNAPSHOT_CHUNK: u8 = 4;
const CLEARED: u8 = 5;
const BOUNDS: u8 = 6;
const VOUCHES: u8 = 7;

impl<'a> Change<'a> {
    /// Appends the change's encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Change::Born { starts, first } => {
                out.put_u8(BORN);
                out.put_u64(starts);
                out.put_bool(first);
            }
            Change::Lives { starts, lives } => {
                out.put_u8(LIVES);
                out.put_u64(starts);
                lives.encode(out);
            }
            Change::Register { key, register } => {
                out.reserve(40 + key.len() + register.value.len());
                out.put_u8(REGISTER);
                out.put_u64(register.version);
                out.put_bytes(key);
                out.put_u64(register.deadline);
                out.put_bytes(register.value);
            }
            Change::SnapshotChunk(entries) => {
                out.put_u8(SNAPSHOT_CHUNK);
                out.put_bytes(entries);
            }
            Change::Cleared => out.put_u8(CLEARED),
            Change::Bounds(bounds) => {
                out.put_u8(BOUNDS);
                bounds.encode(out);
            }
            Change::Vouches => out.put_u8(VOUCHES),
        }
    }

    /// Decodes the next change of a record.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not a change.
    pub fn take(reader: &mut Reader<'a>) -> Result<Change<'a>, Malformed> {
        Ok(match reader.u8()? {
            BORN => Change::Born { starts: reader.u64()?, first: reader.bool()? },
            LIVES => Change::Lives { starts: reader.u64()?, lives: KnownLives::decode(reader)? },
            REGISTER => {
                let tag = Tag::decode(reader)?;
                let key = take_key(reader)?;
                Change::Register { key, register: take_register(tag.version(), reader)? }
            }
            SNAPSHOT_CHUNK => Change::SnapshotChunk(reader.bytes()?),
            CLEARED => Change::Cleared,
            BOUNDS => Change::Bounds(Bounds::decode(reader)?),
            VOUCHES => Change::Vouches,
            _ => return Err(Malformed("unknown kind of record")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lives: &[u8]) -> Vec<Change<'_>> {
        let register = Register { version: 7 << 20, deadline: Register::NEVER, value: b"value" };
        let bounds = Bounds { generation: 3, minimum: 2, floor: 1, version: 7 << 20 };
        vec![
            Change::Born { starts: 4, first: true },
            Change::Lives { starts: 5, lives: KnownLives::decode(&mut Reader::new(lives)).unwrap() },
            Change::Register { key: b"k", register },
            Change::SnapshotChunk(b"entries"),
            Change::Cleared,
            Change::Bounds(bounds),
            Change::Vouches,
        ]
    }

    #[test]
    fn a_record_reads_back_as_it_was_written_and_no_shorter() {
        let lives = [&[2][..], &[1; 20]].concat();
        let (changes, mut bytes) = (all(&lives), Vec::new());
        let mut ends = vec![0];
        for change in &changes {
            change.encode(&mut bytes);
            ends.push(bytes.len());
        }
        let read = |bytes: &[u8]| {
            let mut reader = Reader::new(bytes);
            let mut count = 0;
            while !reader.is_empty() {
                assert_eq!(Change::take(&mut reader)?, changes[count]);
                count += 1;
            }
            Ok::<usize, Malformed>(count)
        };
        for end in 0..=bytes.len() {
            let whole = ends.iter().position(|whole| *whole == end);
            assert_eq!(read(&bytes[..end]).ok(), whole, "cut at {end}");
        }
    }

    #[test]
    fn no_bytes_make_reading_panic() {
        for kind in 0..=u8::MAX {
            for filling in [0, 1, 15, 16, 255] {
                let bytes = [&[kind][..], &[filling; 60]].concat();
                let mut reader = Reader::new(&bytes);
                while !reader.is_empty() && Change::take(&mut reader).is_ok() {}
            }
        }
    }
}

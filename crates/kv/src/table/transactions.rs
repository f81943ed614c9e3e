//! Transactions, and how it is known that a watched key is as it was.
//!
//! A key that exists is as it was if it has the version that it had: every write gives the key that it changes a
//! version that no key had before. A key that does not exist has no version; it may have come and gone since it was
//! watched, and whoever watched it may have read it meanwhile. So the table remembers of the keys that are gone the
//! highest version that one of them had, apart for each of [`BUCKETS`] parts of all keys. What has come since a key was
//! watched has a higher version than any had then ([`Watched::floor`]), and still has it when it goes.
//!
//! So a watched key that was changed is never taken for one that was not. The reverse can happen to a key that does not
//! exist: one time in [`BUCKETS`], when another key came and went.
//!
//! What is remembered is a part of the table: replicas agree on it, and snapshots hold it.

use super::{Record, Table};
use crate::codec::Writer;
use crate::command::{Command, List, Transaction, Watched};
use crate::reply::{Reply, ReplyBuffer};
use crate::{UnixMs, Version};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// Parts of all keys. It must not change: replicas would differ.
const BUCKETS: u16 = 1024;
/// In a snapshot: not a bucket, but [`Departed::unordered`].
const UNORDERED: u16 = u16::MAX;

/// What stands in the place of a reply that has no room.
pub(super) const CUT_WRITE: &str =
    "ERR the replies of the transaction would hold too many bytes; the command was carried out";
const CUT_READ: &str =
    "ERR the replies of the transaction would hold too many bytes; this command was left out";

/// What is remembered of keys that are gone.
#[derive(Clone, Debug, Default)]
pub(super) struct Departed {
    /// Of each bucket the highest version of a key that was removed. Empty until one is.
    versions: Vec<Version>,
    /// The last record that made a key with a version which was not the highest ([`Command::Replicate`]).
    unordered: Version,
}

/// The part of all keys to which one belongs: the same on every replica.
fn bucket_of(key: &[u8]) -> usize {
    const SECRETS: RapidSecrets = RapidSecrets::seed(0x0077_6174_6368_6564);
    (rapidhash_v3_seeded(key, &SECRETS) % u64::from(BUCKETS)) as usize
}

impl Departed {
    /// A key is removed that had this version.
    pub(super) fn note(&mut self, key: &[u8], version: Version) {
        self.raise(bucket_of(key), version);
    }

    /// All keys are removed, none of which had a higher version.
    pub(super) fn note_all(&mut self, version: Version) {
        (0..usize::from(BUCKETS)).for_each(|bucket| self.raise(bucket, version));
    }

    /// A record makes a key with a version that is not the highest.
    pub(super) fn note_unordered(&mut self, version: Version) {
        self.unordered = version;
    }

    fn raise(&mut self, bucket: usize, version: Version) {
        self.versions.resize(usize::from(BUCKETS), 0);
        self.versions[bucket] = self.versions[bucket].max(version);
    }

    fn version_of(&self, key: &[u8]) -> Version {
        self.versions.get(bucket_of(key)).copied().unwrap_or(0)
    }

    /// Everything in it: a name and a version each.
    pub(super) fn marks(&self) -> impl Iterator<Item = (u16, Version)> {
        let versions = (0..).zip(self.versions.iter().copied());
        versions.chain([(UNORDERED, self.unordered)]).filter(|(_, version)| *version > 0)
    }

    /// Takes one over from another table; false if there is none of that name.
    pub(super) fn take_mark(&mut self, name: u16, version: Version) -> bool {
        match name {
            UNORDERED => self.unordered = self.unordered.max(version),
            bucket if bucket < BUCKETS => self.raise(bucket.into(), version),
            _ => return false,
        }
        true
    }

    /// A mark as the digest of a table counts it.
    pub(super) fn encoded(mark: (u16, Version)) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.put_u16(mark.0);
        bytes.put_u64(mark.1);
        bytes
    }
}

impl Table {
    pub(super) fn watch(&mut self, keys: List<'_>, now: UnixMs, out: &mut ReplyBuffer) {
        out.array(keys.len() + 1);
        out.integer(self.version_floor() as i64);
        for key in keys.iter() {
            out.integer(self.peek(key, now).map_or(0, |entry| entry.version()) as i64);
        }
    }

    /// Whether a watched key has been left alone since.
    fn is_as_watched(&self, watched: &Watched<'_>, now: UnixMs) -> bool {
        let Watched { key, version, floor } = *watched;
        if self.departed.unordered > floor {
            return false;
        }
        match self.find(self.index.hash(key), key) {
            Some((_, entry)) if version > 0 => entry.version() == version && !entry.expired(now),
            // What has expired was not there then, either, if it is as old as that.
            Some((_, entry)) if !entry.expired(now) || entry.version() > floor => false,
            _ => version == 0 && self.departed.version_of(key) <= floor,
        }
    }

    /// Whether all keys that a transaction watches are as they were.
    pub fn is_as_it_was(&self, transaction: &Transaction<'_>, now: UnixMs) -> bool {
        transaction.watched().all(|watched| self.is_as_watched(&watched, now))
    }

    /// Its replies hold at most about `bytes_max` bytes: what is beyond is cut, and what is only read there is not read.
    /// So a transaction that asks for one large value over and over costs no more than a reply may.
    pub(super) fn transact(
        &mut self,
        transaction: &Transaction<'_>,
        record: Record,
        bytes_max: usize,
        out: &mut ReplyBuffer,
    ) {
        self.run(transaction, record.time, bytes_max, out, |table, command, out| {
            table.carry_out(command, record, out);
        });
    }

    pub(super) fn read_together(
        &mut self,
        transaction: &Transaction<'_>,
        now: UnixMs,
        bytes_max: usize,
        out: &mut ReplyBuffer,
    ) {
        self.run(transaction, now, bytes_max, out, |table, command, out| {
            table.read_any(command, now, out);
        });
    }

    fn run(
        &mut self,
        transaction: &Transaction<'_>,
        now: UnixMs,
        bytes_max: usize,
        out: &mut ReplyBuffer,
        carry_out: impl Fn(&mut Table, &Command<'_>, &mut ReplyBuffer),
    ) {
        if !self.is_as_it_was(transaction, now) {
            return out.push(Reply::NullArray);
        }
        let was_quiet = self.is_quiet;
        self.transaction_cost = Some(0);
        let start = out.len();
        out.array(transaction.len());
        for command in transaction.commands() {
            // What replicas hold must not depend on who is told what: a write is carried out in any case.
            if self.is_quiet && !command.is_write() {
                out.error(CUT_READ);
                continue;
            }
            let before = out.len();
            carry_out(self, &command, out);
            if out.len() - start > bytes_max && !self.is_quiet {
                out.truncate(before);
                out.error(if command.is_write() { CUT_WRITE } else { CUT_READ });
                self.is_quiet = true; // From here on each reply is short.
            }
        }
        self.is_quiet = was_quiet;
        self.transaction_cost = None;
    }
}

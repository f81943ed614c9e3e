//! Transactions, and how a watched key is recognised as unchanged.
//!
//! A key that exists is unchanged if it still has its version: every write gives the key a version that no key had
//! before. A key that does not exist has no version; it may have been written and removed since it was watched, and the
//! client may have read it in between. So the table remembers the highest version of the removed keys, separately for
//! each of [`BUCKETS`] parts of all keys. A key written since the watch has a higher version than any key had then
//! ([`Watched::floor`]), and still has it when it is removed.
//!
//! So a watched key that was changed is never taken for an unchanged one. The reverse can happen to a key that does not
//! exist: one time in [`BUCKETS`], when another key was written and removed.
//!
//! What is remembered is a part of the table: replicas agree on it, and snapshots contain it.

use super::{Record, Table};
use crate::codec::Writer;
use crate::command::{Command, List, Transaction, Watched};
use crate::reply::{Reply, ReplyBuffer};
use crate::{UnixMs, Version};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// Number of parts of all keys. It must not change: replicas would differ.
const BUCKETS: u16 = 1024;
/// In a snapshot, in place of a bucket: [`RemovedVersions::unordered`].
const UNORDERED: u16 = u16::MAX;

/// The reply to a write in place of one that has no room.
pub(super) const CUT_WRITE: &str =
    "ERR the replies of the transaction would hold too many bytes; the command was carried out";
const CUT_READ: &str =
    "ERR the replies of the transaction would hold too many bytes; this command was left out";

/// What the table remembers of removed keys.
#[derive(Clone, Debug, Default)]
pub(super) struct RemovedVersions {
    /// For each bucket, the highest version of a removed key. Empty until a key is removed.
    versions: Vec<Version>,
    /// The last record that created a key with a version that was not the highest ([`Command::Replicate`]).
    unordered: Version,
}

/// The bucket of a key: the same on every replica.
fn bucket_of(key: &[u8]) -> usize {
    const SECRETS: RapidSecrets = RapidSecrets::seed(0x0077_6174_6368_6564);
    (rapidhash_v3_seeded(key, &SECRETS) % u64::from(BUCKETS)) as usize
}

impl RemovedVersions {
    /// Notes the removal of a key that had this version.
    pub(super) fn note(&mut self, key: &[u8], version: Version) {
        self.raise(bucket_of(key), version);
    }

    /// Notes the removal of all keys, none of which had a higher version.
    pub(super) fn note_all(&mut self, version: Version) {
        (0..usize::from(BUCKETS)).for_each(|bucket| self.raise(bucket, version));
    }

    /// Notes that a record creates a key with a version that is not the highest.
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

    /// All marks: a name and a version each.
    pub(super) fn marks(&self) -> impl Iterator<Item = (u16, Version)> {
        let versions = (0..).zip(self.versions.iter().copied());
        versions.chain([(UNORDERED, self.unordered)]).filter(|(_, version)| *version > 0)
    }

    /// Adds a mark from another table; returns false if no mark has that name.
    pub(super) fn take_mark(&mut self, name: u16, version: Version) -> bool {
        match name {
            UNORDERED => self.unordered = self.unordered.max(version),
            bucket if bucket < BUCKETS => self.raise(bucket.into(), version),
            _ => return false,
        }
        true
    }

    /// Encodes a mark for the table's digest.
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

    /// Whether a watched key is unchanged.
    fn is_as_watched(&self, watched: &Watched<'_>, now: UnixMs) -> bool {
        let Watched { key, version, floor } = *watched;
        if self.removed_versions.unordered > floor {
            return false;
        }
        match self.find(self.index.hash(key), key) {
            Some((_, entry)) if version > 0 => entry.version() == version && !entry.expired(now),
            // An expired key was already missing when it was watched, if its version is not above the floor.
            Some((_, entry)) if !entry.expired(now) || entry.version() > floor => false,
            _ => version == 0 && self.removed_versions.version_of(key) <= floor,
        }
    }

    /// Whether all keys that a transaction watches are unchanged.
    pub fn is_as_it_was(&self, transaction: &Transaction<'_>, now: UnixMs) -> bool {
        transaction.watched().all(|watched| self.is_as_watched(&watched, now))
    }

    /// Carries out a transaction whose replies hold at most about `bytes_max` bytes: further replies are cut, and further
    /// reads skipped. So a transaction that requests one large value many times costs no more than a single reply may.
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
            table.read_within(command, now, out);
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
            // Replicas must not differ by which of them sends replies, so a write is carried out in any case.
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
        if let Some(reads) = self.script_reads.take() {
            out.put_reads(start, &reads);
        }
    }
}

//! Large values in RocksDB.
//!
//! There are two column families: one has the names alone, the other names and values. A start reads all names, and
//! iterating over a column family with values reads each value. Both are changed by one batch, so they always agree, even
//! after a crash: the write-ahead log is used up to the first place where it is damaged, and before RocksDB sorts one family
//! into a file, it syncs the part of the log that belongs to the other. What is lost that way when the machine crashes was
//! not persisted, or the node notices its absence at its start. (RocksDB can also flush both together. Version 7.8 miscounts
//! the references to a column family when that fails, and does not free it.)
//!
//! RocksDB delays a writer that is too far ahead of its threads. Here it is configured to refuse instead, and the write is
//! retried. When one of its threads meets an error, the next write returns it, and RocksDB works again after it is reopened.
//! Opening sorts the contents of the write-ahead log into files that are synced, so nothing depends on pages that an earlier
//! sync has lost.

use std::path::Path;
use std::sync::Arc;

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, DBRecoveryMode,
    DEFAULT_COLUMN_FAMILY_NAME, ErrorKind, LogLevel, Options, WriteBatch, WriteOptions,
};
use storage::ValueName;
use storage::values::NAME_BYTES;

use super::tree::{CACHE_BYTES, MEMTABLE_BYTES, SEPARATED_BYTES, Tree, TreeError, Wait};

/// The column family with values; the default one has the names.
const VALUES: &str = "values";

/// The maximum number of bytes in its write-ahead log. Beyond this the names are sorted into a file, few as they are: until
/// then the log of the values beside them cannot be removed.
const LOGGED_BYTES: u64 = 3 * MEMTABLE_BYTES as u64;

/// Length of a file of values, in bytes. A file is removed when none of its values is needed. When more than
/// `GARBAGE_PART` of the oldest files is not needed, the rest of them is written again.
const VALUE_FILE_BYTES: u64 = 64 << 20;
const GARBAGE_PART: f64 = 0.5;

/// Length of a file of names and of the places of values, in bytes: a few hundred thousand of them.
const TABLE_BYTES: u64 = 8 << 20;

/// Files are written to the disk as they grow, in steps of this many bytes, and not all at once when they are synced: the
/// node's log may be on the same disk, and would wait.
const SYNCED_BYTES: u64 = 1 << 20;

/// The maximum number of bytes of an entry of each column family in a batch, besides the value.
const ENTRY_BYTES: usize = 2 * NAME_BYTES + 32;

/// The maximum number of files open at a time.
const OPEN_FILES: i32 = 128;

/// RocksDB's own log: the number of files, and the length of each in bytes.
const LOG_FILES: usize = 4;
const LOG_FILE_BYTES: usize = 1 << 20;

/// Its list of files is rewritten when it has grown to this many bytes.
const MANIFEST_BYTES: usize = 4 << 20;
const MANIFEST_RESERVED_BYTES: usize = 64 << 10;

/// The system's messages for a full disk, and for a full quota: RocksDB passes on the text, but no error number.
const NO_ROOM: [&str; 2] = ["No space left on device", "Disk quota exceeded"];

pub(super) struct Rocksdb {
    database: DB,
}

impl Rocksdb {
    pub(super) fn open(folder: &Path) -> Result<Rocksdb, TreeError> {
        let cache = Cache::new_lru_cache(CACHE_BYTES);
        let names = column_family(&cache);
        let mut values = column_family(&cache);
        values.set_enable_blob_files(true);
        values.set_min_blob_size(SEPARATED_BYTES.into());
        values.set_blob_file_size(VALUE_FILE_BYTES);
        values.set_blob_compression_type(DBCompressionType::None);
        values.set_enable_blob_gc(true);
        values.set_blob_gc_force_threshold(GARBAGE_PART);
        let families = [
            ColumnFamilyDescriptor::new(DEFAULT_COLUMN_FAMILY_NAME, names),
            ColumnFamilyDescriptor::new(VALUES, values),
        ];
        let database = DB::open_cf_descriptors(&database_options(), folder, families)?;
        Ok(Rocksdb { database })
    }

    fn values(&self) -> Result<&ColumnFamily, TreeError> {
        let found = self.database.cf_handle(VALUES);
        found.ok_or_else(|| TreeError::Failed(format!("it has no column family '{VALUES}'")))
    }

    /// Writes a batch as soon as the tree's threads have caught up.
    fn write(&self, batch: impl Fn() -> WriteBatch) -> Result<(), TreeError> {
        let mut options = WriteOptions::default();
        options.set_no_slowdown(true);
        let wait = Wait::begin();
        loop {
            match self.database.write_opt(batch(), &options) {
                Err(error) if error.kind() == ErrorKind::Incomplete => wait.a_moment()?,
                done => return Ok(done?),
            }
        }
    }
}

fn database_options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_max_total_wal_size(LOGGED_BYTES);
    options.set_paranoid_checks(true);
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    options.set_max_background_jobs(2);
    options.set_max_open_files(OPEN_FILES);
    options.set_bytes_per_sync(SYNCED_BYTES);
    options.set_wal_bytes_per_sync(SYNCED_BYTES);
    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(LOG_FILES);
    options.set_max_log_file_size(LOG_FILE_BYTES);
    options.set_max_manifest_file_size(MANIFEST_BYTES);
    options.set_manifest_preallocation_size(MANIFEST_RESERVED_BYTES);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options
}

fn column_family(cache: &Cache) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    // Otherwise the memory for them would grow with the data on the disk.
    table.set_cache_index_and_filter_blocks(true);
    let mut options = Options::default();
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_size(MEMTABLE_BYTES);
    options.set_max_write_buffer_number(2);
    options.set_target_file_size_base(TABLE_BYTES);
    options.set_compression_type(DBCompressionType::None);
    options
}

impl From<rocksdb::Error> for TreeError {
    fn from(error: rocksdb::Error) -> TreeError {
        let text = error.into_string();
        match NO_ROOM.iter().any(|words| text.contains(words)) {
            true => TreeError::Full,
            false => TreeError::Failed(text),
        }
    }
}

impl Tree for Rocksdb {
    fn put(&self, values: &[(ValueName, Arc<Vec<u8>>)]) -> Result<(), TreeError> {
        let family = self.values()?;
        let bytes: usize = values.iter().map(|(_, value)| value.len() + ENTRY_BYTES).sum();
        self.write(|| {
            let mut batch = WriteBatch::with_capacity_bytes(bytes);
            for (name, value) in values {
                batch.put(name.0, []);
                batch.put_cf(family, name.0, value.as_slice());
            }
            batch
        })
    }

    fn get(&self, name: &ValueName) -> Result<Option<Vec<u8>>, TreeError> {
        let found = self.database.get_pinned_cf(self.values()?, name.0)?;
        Ok(found.map(|value| value.to_vec()))
    }

    fn remove(&self, names: &[ValueName]) -> Result<(), TreeError> {
        let family = self.values()?;
        self.write(|| {
            let mut batch = WriteBatch::default();
            for name in names {
                batch.delete(name.0);
                batch.delete_cf(family, name.0);
            }
            batch
        })
    }

    fn persist(&self) -> Result<(), TreeError> {
        Ok(self.database.flush_wal(true)?)
    }

    fn names(&self, from: &ValueName, each: &mut dyn FnMut(ValueName) -> bool) -> Result<(), TreeError> {
        let mut cursor = self.database.raw_iterator();
        cursor.seek(from.0);
        while let Some(name) = cursor.key() {
            if let Ok(name) = <[u8; NAME_BYTES]>::try_from(name)
                && !each(ValueName(name))
            {
                break;
            }
            cursor.next();
        }
        Ok(cursor.status()?)
    }
}

//! A disk that fails in every way in which a disk may fail, and a model of what a log must hold
//! nevertheless.

pub(crate) mod disk;
pub(crate) mod world;

use storage::planted::Planted;
use storage::{Identity, Options};

/// Small segments, so that a few entries fill them.
pub(crate) const SEGMENT_BYTES: u64 = 4096;

pub(crate) fn options() -> Options {
    let identity = Identity { cluster: 0xc1, node: 3, worker: 0, log: 0x1234_5678_9abc_def0 };
    Options { segment_bytes: SEGMENT_BYTES, planted: Planted::default(), ..Options::new(identity) }
}

pub(crate) fn flip_bit(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 1 << (bit % 8);
}

/// Zeroes the sector that `at` lies in.
pub(crate) fn zero_sector(bytes: &mut [u8], at: usize) {
    let start = at / 512 * 512;
    let end = (start + 512).min(bytes.len());
    bytes[start..end].fill(0);
}

//! The hashes by which members of sets and sorted sets, and fields of hashes, are found.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// Length of a hash.
pub(super) const HASH_BYTES: usize = 4;

/// The hash of a member or a field. It must not change: replicas would differ.
pub(super) fn hash_of(member: &[u8]) -> [u8; HASH_BYTES] {
    const SECRETS: RapidSecrets = RapidSecrets::seed(0x006d_656d_6265_7273);
    ((rapidhash_v3_seeded(member, &SECRETS) >> 32) as u32).to_be_bytes()
}

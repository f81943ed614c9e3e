//! Hash slots, exactly as Redis Cluster has them: CRC16 of the key, or of its `{hash tag}`, modulo 16384.
//!
//! A client that knows the slots sends a request directly to the right node, so every bit must agree. This is on the
//! path of every command of a keyspace with several shards: one table look-up per byte, no crate (the well-maintained
//! ones compute the same with the same table).

/// The most shards of one keyspace.
pub const SHARDS_MAX: u16 = 256;

/// The number of slots.
pub const SLOTS: u16 = 16384;

/// The slot of a key.
#[inline]
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % SLOTS
}

/// The part of a key that decides its slot: what is between the first `{` and the first `}` after it, if that is not
/// empty; otherwise the whole key.
#[inline]
fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let inner = &key[open + 1..];
    match inner.iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(close) => &inner[..close],
    }
}

/// CRC16/XMODEM: polynomial 0x1021, initial value 0, not reflected.
#[inline]
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_xmodem() {
        assert_eq!(crc16(b"123456789"), 0x31c3, "the check value of CRC16/XMODEM");
        assert_eq!(crc16(b""), 0);
    }

    #[test]
    fn known_keys_have_the_slots_that_redis_gives_them() {
        assert_eq!(slot_of(b"123456789"), 12739);
        assert_eq!(slot_of(b"foo"), 12182);
        assert_eq!(slot_of(b"bar"), 5061);
        assert_eq!(slot_of(b"hello"), 866);
    }

    #[test]
    fn only_the_hash_tag_decides_the_slot() {
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"{user1000}.followers"));
        assert_eq!(hash_tag(b"foo{{bar}}zap"), b"{bar");
        assert_eq!(hash_tag(b"foo{bar}{zap}"), b"bar", "the first one");
    }

    #[test]
    fn an_empty_or_unclosed_tag_does_not_count() {
        assert_eq!(hash_tag(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(hash_tag(b"foo{bar"), b"foo{bar");
        assert_eq!(hash_tag(b"}foo{"), b"}foo{");
        assert_eq!(hash_tag(b""), b"");
    }
}

//! The digest of a value: XXH3, as Redis's `DIGEST` computes it.

/// Computes the digest of a value that arrives in pieces.
#[derive(Clone, Default)]
pub struct Digest(xxhash_rust::xxh3::Xxh3);

impl Digest {
    /// Adds the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The digest of all pieces: the same as [`digest_of`] the whole.
    pub fn finish(&self) -> u64 {
        self.0.digest()
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Digest").field(&self.finish()).finish()
    }
}

/// The digest of a value.
pub fn digest_of(value: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_same_digest_in_pieces() {
        let value: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
        for bytes in [1000, 4096, 99_999] {
            let mut digest = Digest::default();
            value.chunks(bytes).for_each(|piece| digest.update(piece));
            assert_eq!(digest.finish(), digest_of(&value));
        }
    }
}

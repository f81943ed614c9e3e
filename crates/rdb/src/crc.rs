//! The checksum of payloads and files: CRC-64 with Jones's polynomial, its bits reflected.

/// The polynomial, reflected.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

/// `TABLES[n]` holds the contribution of each byte to the checksum when n more bytes follow. Eight bytes at once take
/// a third of the time.
static TABLES: [[u64; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u64, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut more = 1;
    while more < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[more - 1][byte];
            tables[more][byte] = tables[0][(before & 0xff) as usize] ^ before >> 8;
            byte += 1;
        }
        more += 1;
    }
    tables
};

/// The checksum of the bytes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crc(u64);

impl Crc {
    /// The checksum of these bytes.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut crc = Crc::default();
        crc.add(bytes);
        crc.value()
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            let mixed = (self.0 ^ u64::from_le_bytes(*chunk)).to_le_bytes();
            self.0 = (0..8).fold(0, |sum, at| sum ^ TABLES[7 - at][usize::from(mixed[at])]);
        }
        for byte in rest {
            self.0 = TABLES[0][usize::from(self.0 as u8 ^ byte)] ^ self.0 >> 8;
        }
    }

    /// The checksum.
    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_published_one() {
        assert_eq!(Crc::of(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        let long: Vec<u8> = (0..1000).map(|at| (at * 7) as u8).collect();
        let mut one_by_one = Crc::default();
        long.iter().for_each(|byte| one_by_one.add(&[*byte]));
        assert_eq!(Crc::of(&long), one_by_one.value());
    }
}

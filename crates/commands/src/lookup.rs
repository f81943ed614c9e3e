//! Finds a command's row of the table by its name, ignoring case, in a few nanoseconds.
//!
//! A name of up to 16 bytes becomes one 128-bit number: its bytes, folded to lower case, with its length in the highest
//! byte, unless the name has all 16 bytes. The numbers of all commands are in a small open-addressing table that is built at
//! compile time.

use super::CommandSpec;
use super::table::COMMANDS;

/// The longest name that is found in this way. A longer name is compared with all names that are longer.
const NAME_BYTES_MAX: usize = 16;

const EMPTY: u16 = u16::MAX;
const SLOT_BITS: u32 = 10;
const SLOTS: usize = 1 << SLOT_BITS;

struct Index {
    /// The folded names in the table's order.
    folded: [u128; COMMANDS.len()],
    /// Positions in the table, at or after the slot of a name's hash, or [`EMPTY`].
    slots: [u16; SLOTS],
}

static INDEX: Index = build(&COMMANDS);

/// Returns the position of the command with this name in [`COMMANDS`].
#[inline]
pub(super) fn position(name: &[u8]) -> Option<usize> {
    if name.len() > NAME_BYTES_MAX {
        return long_position(name);
    }
    let folded = fold(name)?;
    let mut slot = hash(folded);
    loop {
        let position = INDEX.slots[slot];
        if position == EMPTY {
            return None;
        }
        if INDEX.folded[position as usize] == folded {
            return Some(position as usize);
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// The position of a command with a long name, of which there are few.
#[cold]
fn long_position(name: &[u8]) -> Option<usize> {
    let is_it = |spec: &CommandSpec| spec.name.as_bytes().eq_ignore_ascii_case(name);
    COMMANDS.iter().position(|spec| spec.name.len() > NAME_BYTES_MAX && is_it(spec))
}

const fn build(commands: &[CommandSpec; COMMANDS.len()]) -> Index {
    // At most half full, so that a search for an unknown name ends soon.
    assert!(COMMANDS.len() <= SLOTS / 2 && COMMANDS.len() < EMPTY as usize);
    let mut index = Index { folded: [0; COMMANDS.len()], slots: [EMPTY; SLOTS] };
    let mut position = 0;
    while position < commands.len() {
        if commands[position].name.len() > NAME_BYTES_MAX {
            position += 1;
            continue;
        }
        let Some(folded) = fold(commands[position].name.as_bytes()) else {
            panic!("a command's name cannot be found")
        };
        index.folded[position] = folded;
        let mut slot = hash(folded);
        while index.slots[slot] != EMPTY {
            assert!(index.folded[index.slots[slot] as usize] != folded, "two commands have the same name");
            slot = (slot + 1) % SLOTS;
        }
        index.slots[slot] = position as u16;
        position += 1;
    }
    index
}

/// Returns the name as a number: equal for two names if and only if they differ at most in case.
#[inline]
const fn fold(name: &[u8]) -> Option<u128> {
    let length = name.len();
    if length == 0 || length > NAME_BYTES_MAX {
        return None;
    }
    // Two reads that may overlap cover every length without a loop. Where they overlap they agree.
    let (low, high) = if let (Some(first), Some(last)) = (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        // Twice, because a shift by all 64 bits, which a name of 8 bytes needs, is not allowed.
        let unused = 4 * (16 - length);
        (u64::from_le_bytes(*first), u64::from_le_bytes(*last) >> unused >> unused)
    } else if let (Some(first), Some(last)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        (u32::from_le_bytes(*first) as u64 | (u32::from_le_bytes(*last) as u64) << (8 * (length - 4)), 0)
    } else {
        let middle = length / 2;
        let last = (name[length - 1] as u64) << (8 * (length - 1));
        (name[0] as u64 | (name[middle] as u64) << (8 * middle) | last, 0)
    };
    let high = if high == 0 { 0 } else { to_lower_case(high) };
    let high = if length < NAME_BYTES_MAX {
        high | (length as u64) << 56
    } else if high >> 56 < NAME_BYTES_MAX as u64 {
        return None; // The last byte could be taken for a length.
    } else {
        high
    };
    Some(to_lower_case(low) as u128 | (high as u128) << 64)
}

/// Sets bit 0x20 of each byte that is `A` to `Z`, all bytes at once.
#[inline]
const fn to_lower_case(bytes: u64) -> u64 {
    const EACH: u64 = u64::MAX / 0xff;
    const HIGH: u64 = EACH * 0x80;
    let low_bits = bytes & !HIGH;
    // The sums' high bits show which bytes are at least `A`, and which are beyond `Z`.
    let from_a = low_bits + EACH * (0x80 - b'A' as u64);
    let beyond_z = low_bits + EACH * (0x80 - b'Z' as u64 - 1);
    let capital = from_a & !beyond_z & !bytes & HIGH;
    bytes | capital >> 2
}

#[inline]
const fn hash(folded: u128) -> usize {
    let mixed = (folded as u64 ^ ((folded >> 64) as u64).rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - SLOT_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_in_any_case() {
        for (position, spec) in COMMANDS.iter().enumerate() {
            let mixed: String = spec.name.char_indices().map(mixed_case).collect();
            for name in [spec.name, &spec.name.to_ascii_uppercase(), &mixed] {
                assert_eq!(super::position(name.as_bytes()), Some(position), "{name}");
            }
        }
    }

    fn mixed_case((at, letter): (usize, char)) -> char {
        if at % 2 == 0 { letter.to_ascii_uppercase() } else { letter }
    }

    #[test]
    fn a_name_that_only_resembles_a_command_is_not_found() {
        let long = [b'g'; 64];
        for name in [&b""[..], b"g", b"ge", b"get\0", b"gets", b"g\x05t", b"\xc7et", b"ge\x14", &long] {
            assert_eq!(super::position(name), None, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn folded_names_are_equal_only_if_they_differ_at_most_in_case() {
        for byte in 0..=u8::MAX {
            for position in 0..15 {
                let mut name = *b"abcdefghijklmno";
                name[position] = byte;
                let same = name.eq_ignore_ascii_case(b"ABCDEFGHIJKLMNO");
                assert_eq!(fold(&name) == fold(b"abcdefghijklmno"), same, "{}", name.escape_ascii());
            }
            for position in 0..16 {
                let mut name = *b"abcdefghijklmnop";
                name[position] = byte;
                let same = name.eq_ignore_ascii_case(b"ABCDEFGHIJKLMNOP");
                assert_eq!(fold(&name) == fold(b"abcdefghijklmnop"), same, "{}", name.escape_ascii());
                assert_ne!(fold(&name), fold(b"abcdefghijklmno"));
            }
        }
        let mut longest = [0; 16];
        longest[..3].copy_from_slice(b"get");
        longest[15] = 3;
        assert_eq!(super::position(&longest), None, "its end looks like the length of another");
    }
}

//! Sketches that estimate how many distinct elements were counted (HyperLogLog), in Redis's format, so that Redis and this
//! crate can read each other's values.
//!
//! An element is hashed. The lowest 14 bits of the hash choose one of 16,384 registers. The number of zeros at the end of
//! the other bits, plus one, is a lower bound for the value of that register. Registers are stored in one of two ways:
//!
//! ```text
//! "HYLL" | encoding u8 | 3 zeros | estimate u64 | registers
//! dense:  6 bits each, the first in the lowest bits of the first byte
//! sparse: runs of equal registers: 00nnnnnn n+1 zeros | 01nnnnnn nnnnnnnn n+1 zeros | 1vvvvvnn n+1 times v+1
//! ```
//!
//! The estimate is out of date if its highest bit is set. It is computed as by Ertl, "New cardinality estimation
//! algorithms for HyperLogLog sketches" (2017), which Redis does, too.

use std::borrow::Cow;

/// The reply to a command on a string that is no sketch.
pub(crate) const NOT_A_SKETCH: &str = "WRONGTYPE Key is not a valid HyperLogLog string value.";
/// The reply to a command on a sketch whose runs do not add up.
pub(crate) const DAMAGED: &str = "INVALIDOBJ Corrupted HLL object detected";

const REGISTERS: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 14;
/// The bits of a hash above the index.
const PATTERN_BITS: u32 = 64 - INDEX_BITS;
const REGISTER_BITS: usize = 6;
const HEADER_BYTES: usize = 16;
pub(crate) const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;
/// A longer sparse sketch is made dense, as with Redis's default.
pub(crate) const SPARSE_BYTES_MAX: usize = HEADER_BYTES + 3000;
/// Bytes of an empty sketch.
pub(crate) const EMPTY_BYTES: usize = HEADER_BYTES + 2;
/// The most by which one element enlarges a sparse sketch: the run that it is in becomes three.
pub(crate) const ELEMENT_BYTES: usize = 3;
/// The bit of the header's last byte that is set while the estimate is out of date.
const ESTIMATE_IS_OLD: u8 = 0x80;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
/// The highest value in a run.
const RUN_VALUE_MAX: u8 = 32;
/// The longest run of a value other than zero.
const RUN_LENGTH_MAX: usize = 4;
const SHORT_ZEROS_MAX: usize = 64;

/// The value of each register.
pub(crate) type Registers = [u8; REGISTERS];

/// The hash of an element: MurmurHash64A with Redis's seed. Sketches are only compatible with the same hash.
fn hash_of(element: &[u8]) -> u64 {
    const SEED: u64 = 0xadc8_3b19;
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = SEED ^ (element.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = element.as_chunks::<8>();
    for word in words {
        let mut mixed = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        mixed ^= mixed >> SHIFT;
        hash = (hash ^ mixed.wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(FACTOR);
    hash ^ hash >> SHIFT
}

/// The register of an element, and the lowest value that the element gives it.
fn register_of(element: &[u8]) -> (usize, u8) {
    let hash = hash_of(element);
    let pattern = hash >> INDEX_BITS | 1 << PATTERN_BITS;
    (hash as usize % REGISTERS, pattern.trailing_zeros() as u8 + 1)
}

/// A run of equal registers in a sparse sketch.
struct Run {
    value: u8,
    length: usize,
    /// The number of bytes it takes.
    bytes: usize,
}

fn run_at(runs: &[u8]) -> Option<Run> {
    let first = *runs.first()?;
    Some(match first >> 6 {
        0 => Run { value: 0, length: usize::from(first & 0x3f) + 1, bytes: 1 },
        1 => {
            let length = usize::from(first & 0x3f) << 8 | usize::from(*runs.get(1)?);
            Run { value: 0, length: length + 1, bytes: 2 }
        }
        _ => Run { value: (first >> 2 & 0x1f) + 1, length: usize::from(first & 3) + 1, bytes: 1 },
    })
}

fn put_run(value: u8, mut length: usize, out: &mut Vec<u8>) {
    while length > 0 {
        let part = match value {
            0 if length <= SHORT_ZEROS_MAX => {
                out.push(length as u8 - 1);
                length
            }
            0 => {
                let part = length.min(REGISTERS);
                out.extend_from_slice(&[0x40 | ((part - 1) >> 8) as u8, (part - 1) as u8]);
                part
            }
            value => {
                let part = length.min(RUN_LENGTH_MAX);
                out.push(0x80 | (value - 1) << 2 | (part as u8 - 1));
                part
            }
        };
        length -= part;
    }
}

fn dense_get(registers: &[u8], index: usize) -> u8 {
    let (byte, shift) = (index * REGISTER_BITS / 8, index * REGISTER_BITS % 8);
    let next = registers.get(byte + 1).copied().unwrap_or(0);
    ((u16::from(registers[byte]) | u16::from(next) << 8) >> shift) as u8 & 0x3f
}

fn dense_set(registers: &mut [u8], index: usize, value: u8) {
    let (byte, shift) = (index * REGISTER_BITS / 8, index * REGISTER_BITS % 8);
    let (mask, bits) = (0x3f_u16 << shift, u16::from(value) << shift);
    registers[byte] = registers[byte] & !(mask as u8) | bits as u8;
    if shift > 2 {
        registers[byte + 1] = registers[byte + 1] & !((mask >> 8) as u8) | (bits >> 8) as u8;
    }
}

/// A sketch, as stored in a string.
#[derive(Clone, Debug)]
pub(crate) struct Sketch<'v> {
    bytes: Cow<'v, [u8]>,
}

impl<'v> Sketch<'v> {
    /// An empty sketch.
    pub(crate) fn new() -> Sketch<'static> {
        let mut bytes = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        put_run(0, REGISTERS, &mut bytes);
        Sketch { bytes: bytes.into() }
    }

    /// The sketch stored in a string.
    ///
    /// # Errors
    /// The reply to send if it is no sketch.
    pub(crate) fn of(value: &'v [u8]) -> Result<Sketch<'v>, &'static str> {
        let is_one = value.len() >= HEADER_BYTES
            && value.starts_with(b"HYLL")
            && (value[4] == SPARSE || value[4] == DENSE && value.len() == DENSE_BYTES);
        if is_one { Ok(Sketch { bytes: value.into() }) } else { Err(NOT_A_SKETCH) }
    }

    /// The bytes of the string.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn is_dense(&self) -> bool {
        self.bytes[4] == DENSE
    }

    fn registers(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// Raises registers to the values in this sketch.
    ///
    /// # Errors
    /// The reply to send if the runs do not add up.
    pub(crate) fn merge_into(&self, all: &mut Registers) -> Result<(), &'static str> {
        if self.is_dense() {
            for (index, register) in all.iter_mut().enumerate() {
                *register = dense_get(self.registers(), index).max(*register);
            }
            return Ok(());
        }
        let (mut runs, mut index) = (self.registers(), 0);
        while !runs.is_empty() {
            let run = run_at(runs).ok_or(DAMAGED)?;
            let registers = all.get_mut(index..index + run.length).ok_or(DAMAGED)?;
            registers.iter_mut().for_each(|register| *register = run.value.max(*register));
            (runs, index) = (&runs[run.bytes..], index + run.length);
        }
        if index == REGISTERS { Ok(()) } else { Err(DAMAGED) }
    }

    /// Counts an element; returns whether that changed anything.
    ///
    /// # Errors
    /// The reply to send if the runs do not add up.
    pub(crate) fn count(&mut self, element: &[u8]) -> Result<bool, &'static str> {
        let (index, value) = register_of(element);
        let is_raised = match self.is_dense() {
            true => self.raise_dense(index, value),
            false => self.raise_sparse(index, value)?,
        };
        if is_raised {
            self.forget_estimate();
        }
        Ok(is_raised)
    }

    /// Whether a dense sketch would be changed by counting an element.
    pub(crate) fn is_dense_changed_by(&self, element: &[u8]) -> bool {
        let (index, value) = register_of(element);
        dense_get(self.registers(), index) < value
    }

    fn raise_dense(&mut self, index: usize, value: u8) -> bool {
        let is_raised = dense_get(self.registers(), index) < value;
        if is_raised {
            dense_set(&mut self.bytes.to_mut()[HEADER_BYTES..], index, value);
        }
        is_raised
    }

    fn raise_sparse(&mut self, index: usize, value: u8) -> Result<bool, &'static str> {
        // Find the run that the register is in, and the run before it, with which the new one may be merged.
        let (mut at, mut first, mut before) = (HEADER_BYTES, 0, None);
        let run = loop {
            let run = run_at(&self.bytes[at..]).ok_or(DAMAGED)?;
            if index < first + run.length {
                break run;
            }
            before = Some(at);
            (at, first) = (at + run.bytes, first + run.length);
        };
        if run.value >= value {
            return Ok(false);
        }
        if value > RUN_VALUE_MAX {
            self.make_dense()?;
            return Ok(self.raise_dense(index, value));
        }
        // Rewrite this run, the one before it and the one behind it with as few runs as possible.
        let mut parts: Vec<(u8, usize)> = Vec::new();
        let mut push = |value: u8, length: usize| match parts.last_mut() {
            _ if length == 0 => {}
            Some((last, held)) if *last == value => *held += length,
            _ => parts.push((value, length)),
        };
        let mut start = at;
        if let Some(before) = before
            && let Some(run) = run_at(&self.bytes[before..])
        {
            push(run.value, run.length);
            start = before;
        }
        push(run.value, index - first);
        push(value, 1);
        push(run.value, first + run.length - index - 1);
        let mut end = at + run.bytes;
        if let Some(run) = run_at(&self.bytes[end..]) {
            push(run.value, run.length);
            end += run.bytes;
        }
        let mut written = Vec::new();
        parts.into_iter().for_each(|(value, length)| put_run(value, length, &mut written));
        self.bytes.to_mut().splice(start..end, written);
        if self.bytes.len() > SPARSE_BYTES_MAX {
            self.make_dense()?;
        }
        Ok(true)
    }

    fn make_dense(&mut self) -> Result<(), &'static str> {
        let mut all = [0; REGISTERS];
        self.merge_into(&mut all)?;
        self.bytes = Sketch::dense(&all, &self.bytes[..HEADER_BYTES]).into();
        Ok(())
    }

    fn dense(all: &Registers, header: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; DENSE_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(header);
        bytes[4] = DENSE;
        for (index, value) in all.iter().enumerate() {
            dense_set(&mut bytes[HEADER_BYTES..], index, *value);
        }
        bytes
    }

    /// A sketch with these registers. It is dense if that is requested, or if the runs would be too long.
    pub(crate) fn with(all: &Registers, is_dense: bool) -> Sketch<'static> {
        let mut sketch = Sketch::new();
        let mut bytes = sketch.bytes[..HEADER_BYTES].to_vec();
        if all.iter().all(|value| *value <= RUN_VALUE_MAX) && !is_dense {
            for equal in all.chunk_by(|one, other| one == other) {
                put_run(equal[0], equal.len(), &mut bytes);
            }
        }
        let is_sparse = bytes.len() > HEADER_BYTES && bytes.len() <= SPARSE_BYTES_MAX;
        sketch.bytes = if is_sparse { bytes } else { Sketch::dense(all, &bytes[..HEADER_BYTES]) }.into();
        sketch.forget_estimate();
        sketch
    }

    fn forget_estimate(&mut self) {
        self.bytes.to_mut()[HEADER_BYTES - 1] |= ESTIMATE_IS_OLD;
    }

    /// The estimate that the sketch holds, unless it is out of date.
    pub(crate) fn known_estimate(&self) -> Option<u64> {
        let estimate = self.bytes[8..HEADER_BYTES].first_chunk().map(|bytes| u64::from_le_bytes(*bytes))?;
        (estimate >> 63 == 0).then_some(estimate)
    }
}

/// Counts elements in the bytes of a dense sketch.
pub(crate) fn count_dense<'e>(bytes: &mut [u8], elements: impl Iterator<Item = &'e [u8]>) {
    let (header, registers) = bytes.split_at_mut(HEADER_BYTES);
    for (index, value) in elements.map(register_of) {
        let value = value.max(dense_get(registers, index));
        dense_set(registers, index, value);
    }
    header[HEADER_BYTES - 1] |= ESTIMATE_IS_OLD;
}

/// Estimates how many distinct elements were counted in these registers.
pub(crate) fn estimate(all: &Registers) -> u64 {
    /// 1 / (2 ln 2).
    const SCALE: f64 = 0.721_347_520_444_481_7;
    let mut with_value = [0_u32; 64];
    all.iter().for_each(|value| with_value[usize::from(value & 0x3f)] += 1);
    let count = REGISTERS as f64;
    let greatest = PATTERN_BITS as usize + 1;
    let mut sum = count * tau((count - f64::from(with_value[greatest])) / count);
    for value in (1..greatest).rev() {
        sum = (sum + f64::from(with_value[value])) * 0.5;
    }
    sum += count * sigma(f64::from(with_value[0]) / count);
    (SCALE * count * count / sum).round() as u64
}

fn tau(x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut x, mut weight, mut sum) = (x, 1.0, 1.0 - x);
    loop {
        (x, weight) = (x.sqrt(), weight * 0.5);
        let before = sum;
        sum -= (1.0 - x) * (1.0 - x) * weight;
        if sum == before {
            return sum / 3.0;
        }
    }
}

fn sigma(x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut x, mut weight, mut sum) = (x, 1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * weight;
        weight += weight;
        if sum == before {
            return sum;
        }
    }
}

/// The registers of an empty sketch.
pub(crate) const NO_REGISTERS: Registers = [0; REGISTERS];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn registers(sketch: &Sketch<'_>) -> Registers {
        let mut all = NO_REGISTERS;
        sketch.merge_into(&mut all).unwrap();
        all
    }

    #[test]
    fn estimates_are_close_in_sparse_and_dense_sketches() {
        let (mut sketch, mut was_sparse) = (Sketch::new(), 0);
        assert_eq!((sketch.known_estimate(), estimate(&registers(&sketch))), (Some(0), 0));
        for number in 1..=100_000_u32 {
            sketch.count(format!("element:{number}").as_bytes()).unwrap();
            was_sparse += u32::from(!sketch.is_dense());
            if number.is_power_of_two() || number % 20_000 == 0 {
                assert_eq!(sketch.known_estimate(), None);
                let (estimate, number) = (estimate(&registers(&sketch)) as f64, f64::from(number));
                assert!((estimate - number).abs() <= number * 0.02, "{estimate} for {number}");
            }
        }
        assert!((1000..3000).contains(&was_sparse), "{was_sparse}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        #[test]
        fn runs_hold_the_same_values_as_registers(elements in proptest::collection::vec(0..8000_u32, 0..4000)) {
            let (mut sketch, mut all) = (Sketch::new(), NO_REGISTERS);
            for element in elements {
                let element = element.to_le_bytes();
                let (index, value) = register_of(&element);
                let is_raised = all[index] < value;
                all[index] = all[index].max(value);
                let before = sketch.as_bytes().to_vec();
                prop_assert_eq!(sketch.count(&element), Ok(is_raised));
                prop_assert!(sketch.is_dense() || sketch.as_bytes().len() <= before.len() + ELEMENT_BYTES);
                let mut in_place = before.clone();
                if in_place[4] == DENSE {
                    prop_assert_eq!(Sketch::of(&before).unwrap().is_dense_changed_by(&element), is_raised);
                    count_dense(&mut in_place, [&element[..]].into_iter());
                    prop_assert!(!is_raised || in_place == sketch.as_bytes());
                }
            }
            prop_assert!(registers(&sketch) == all);
            for is_dense in [false, true] {
                let written = Sketch::with(&all, is_dense);
                prop_assert!(registers(&written) == all);
                prop_assert!(written.is_dense() || !is_dense);
                prop_assert!(Sketch::of(written.as_bytes()).is_ok());
            }
        }
    }

    #[test]
    fn a_value_too_high_for_runs_makes_the_sketch_dense() {
        let mut sketch = Sketch::new();
        assert_eq!(sketch.raise_sparse(77, 33), Ok(true));
        assert!(sketch.is_dense());
        assert_eq!((registers(&sketch)[77], registers(&sketch)[76]), (33, 0));
        assert!(Sketch::with(&registers(&sketch), false).is_dense());
    }

    #[test]
    fn bytes_that_are_no_sketch_are_detected() {
        let sketch = Sketch::new();
        let bytes = sketch.as_bytes();
        assert_eq!(bytes, b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0\x7f\xff");
        assert_eq!(bytes.len(), EMPTY_BYTES);
        assert_eq!(Sketch::of(b"").err(), Some(NOT_A_SKETCH));
        assert_eq!(Sketch::of(&[b"HYLL\0", &bytes[5..]].concat()).err(), Some(NOT_A_SKETCH));
        assert_eq!(Sketch::of(&[b"HYLL\x02", &bytes[5..]].concat()).err(), Some(NOT_A_SKETCH));
        for damaged in [&bytes[..16], &bytes[..17], &[bytes, b"\0"].concat()] {
            let mut sketch = Sketch::of(damaged).unwrap();
            assert_eq!(sketch.merge_into(&mut NO_REGISTERS.clone()), Err(DAMAGED));
            if damaged.len() < 18 {
                assert_eq!(sketch.count(b"a"), Err(DAMAGED));
            }
        }
    }
}

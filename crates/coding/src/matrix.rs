//! The combination of a value's k parts that makes a fragment: a row of k factors in GF(2^8).
//!
//! Fragment i < k is part i. Fragment i >= k has the factor (k + j) i / ((i + j) k) for part j, where + is the
//! field's addition, an exclusive or. That is 1 / (i + j), a row of a Cauchy matrix, with each column divided by its
//! element in row k, and then each row by its first factor. Every square submatrix of a Cauchy matrix is invertible,
//! also after its rows and columns are divided, so any k rows of it and of the unit matrix together are invertible
//! too. The divisions make fragment k the sum of all parts, and give part 0 the factor 1 in every fragment: this
//! saves many products, which cost more than sums. With k = 1 every fragment is the value, so a copy is read without
//! computation.
//!
//! The crate that does the arithmetic has matrices of its own, but there a fragment's row depends on the number of
//! fragments.

use fec_rs::galois;

/// The maximum number of fragments of a value: fragment numbers, and so part numbers, are elements of the field.
pub const NUMBERS_MAX: usize = 256;

/// The factors of a fragment.
pub(crate) fn row(number: u8, parts: usize) -> Vec<u8> {
    assert!((1..NUMBERS_MAX).contains(&parts), "{parts} parts, and fragment {number} besides");
    let number_at = usize::from(number);
    let factor = |part: usize| match (number_at, part) {
        _ if parts == 1 => 1,
        (number_at, part) if number_at < parts => u8::from(number_at == part),
        // The numbers differ, so their sums are not zero.
        (_, part) => {
            let divided = galois::mul(parts as u8 ^ part as u8, number);
            galois::div(divided, galois::mul(number ^ part as u8, parts as u8))
        }
    };
    let row: Vec<u8> = (0..parts).map(factor).collect();
    assert!(number_at < parts || !row.contains(&0), "fragment {number} does without one of {parts} parts");
    row
}

/// The factors that compute the parts from the fragments with these numbers, a row for each part. The numbers must be
/// distinct, and as many as there are parts.
pub(crate) fn inverse(numbers: &[u8]) -> Vec<Vec<u8>> {
    let parts = numbers.len();
    let is_twice = |at: usize| numbers[..at].contains(&numbers[at]);
    assert!(!(0..parts).any(is_twice), "one of fragments {numbers:?} is given twice");
    let mut left: Vec<Vec<u8>> = numbers.iter().map(|number| row(*number, parts)).collect();
    let unit = |at: usize| (0..parts).map(|place| u8::from(place == at)).collect();
    let mut right: Vec<Vec<u8>> = (0..parts).map(unit).collect();
    for at in 0..parts {
        let pivot = (at..parts).find(|row| left[*row][at] != 0);
        let Some(pivot) = pivot else { unreachable!("rows of different fragments are independent") };
        left.swap(at, pivot);
        right.swap(at, pivot);
        let scale = galois::div(1, left[at][at]);
        for rows in [&mut left, &mut right] {
            rows[at].iter_mut().for_each(|factor| *factor = galois::mul(*factor, scale));
        }
        for other in (0..parts).filter(|other| *other != at) {
            let scale = left[other][at];
            if scale != 0 {
                for rows in [&mut left, &mut right] {
                    let subtracted = rows[at].clone();
                    for (factor, by) in rows[other].iter_mut().zip(subtracted) {
                        *factor ^= galois::mul(scale, by);
                    }
                }
            }
        }
    }
    right
}

/// The factors that compute a fragment from those with these numbers.
pub(crate) fn conversion(from: &[u8], to: u8) -> Vec<u8> {
    let parts = from.len();
    let (wanted, inverse) = (row(to, parts), inverse(from));
    let factor =
        |at: usize| (0..parts).fold(0, |sum, part| sum ^ galois::mul(wanted[part], inverse[part][at]));
    (0..parts).map(factor).collect()
}

/// Adds a multiple of `input` to the beginning of `out`. The rest of `out` is unchanged.
pub(crate) fn add(factor: u8, input: &[u8], out: &mut [u8]) {
    galois::mul_slice_xor(factor, input, &mut out[..input.len()]);
}

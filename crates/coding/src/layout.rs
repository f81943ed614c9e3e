//! How a value is cut: into stripes, each of k parts; a fragment has one piece per stripe.
//!
//! ```text
//!  value      | stripe 0                   | stripe 1                   | stripe 2       |
//!  parts      | 0        1        2        | 0        1        2        | 0    1    2    |
//!  fragment 0 | piece 0                    | piece 1                    | piece 2
//!  fragment 4 |   a combination of the parts of each stripe
//! ```
//!
//! All pieces are [`PIECE_BYTES_MAX`] long, except those of the last stripe, which are only as long as needed. A value
//! that ends within a part is padded with zeros.

use crate::CodingError;
use crate::matrix::{add, conversion, inverse, row};
use std::ops::Range;

/// The maximum length of a piece, in bytes: the unit of encoding, sending, recording and storing.
pub const PIECE_BYTES_MAX: usize = 256 << 10;

/// How a value of a certain length is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    length: usize,
    parts: usize,
}

impl Layout {
    /// Returns the layout of a value of `length` bytes in `parts` parts. `None` if `parts` is 0.
    pub fn new(length: usize, parts: u8) -> Option<Layout> {
        (parts > 0).then_some(Layout { length, parts: parts.into() })
    }

    /// The number of fragments needed to reconstruct the value.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// Length of the value in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    fn stripe_bytes(&self) -> usize {
        self.parts * PIECE_BYTES_MAX
    }

    /// The number of stripes, and so of pieces in each fragment. At least one.
    pub fn stripes(&self) -> usize {
        self.length.div_ceil(self.stripe_bytes()).max(1)
    }

    /// Bytes of the value in a stripe; 0 beyond the last one.
    pub fn bytes_in(&self, stripe: usize) -> usize {
        self.length.saturating_sub(stripe.saturating_mul(self.stripe_bytes())).min(self.stripe_bytes())
    }

    /// Length of each piece of a stripe, in bytes.
    pub fn piece_bytes(&self, stripe: usize) -> usize {
        self.bytes_in(stripe).div_ceil(self.parts)
    }

    /// Length of a fragment, in bytes.
    pub fn fragment_bytes(&self) -> usize {
        let whole = self.stripes() - 1;
        whole * PIECE_BYTES_MAX + self.piece_bytes(whole)
    }

    /// A part of a stripe as a slice of the value: it may be shorter than a piece, or empty.
    fn part<'a>(&self, value: &'a [u8], stripe: usize, part: usize) -> &'a [u8] {
        let (start, piece) = (stripe * self.stripe_bytes(), self.piece_bytes(stripe));
        let end = (start + self.bytes_in(stripe)).min(value.len());
        let from = (start + part * piece).min(end);
        &value[from..(from + piece).min(end)]
    }

    /// Checks that this is a stripe of a value of this layout.
    fn check(&self, value: &[u8], stripe: usize) {
        assert_eq!(value.len(), self.length, "a value is cut by another value's layout");
        assert!(stripe < self.stripes(), "stripe {stripe} of {}", self.stripes());
    }

    /// Appends a fragment's piece of a stripe of the value.
    ///
    /// # Panics
    /// When the value has another length than the layout, or no such stripe.
    pub fn encode(&self, value: &[u8], number: u8, stripe: usize, out: &mut Vec<u8>) {
        self.check(value, stripe);
        let (start, bytes) = (out.len(), self.piece_bytes(stripe));
        if self.parts == 1 || usize::from(number) < self.parts {
            out.extend_from_slice(self.part(value, stripe, usize::from(number) % self.parts));
            out.resize(start + bytes, 0);
            return;
        }
        let parts = (0..self.parts).map(|part| Input::Given(self.part(value, stripe, part)));
        combine(row(number, self.parts).into_iter().zip(parts), bytes, out);
    }

    /// Returns a fragment's piece of a stripe of the value: a slice of the value if the piece is contained in it, else
    /// computed in `memory`.
    ///
    /// # Panics
    /// As [`Layout::encode`].
    pub fn piece<'p>(&self, value: &'p [u8], number: u8, stripe: usize, memory: &'p mut Vec<u8>) -> &'p [u8] {
        self.check(value, stripe);
        let bytes = self.piece_bytes(stripe);
        if self.parts == 1 || usize::from(number) < self.parts {
            let part = self.part(value, stripe, usize::from(number) % self.parts);
            if part.len() == bytes {
                return part;
            }
        }
        memory.clear();
        self.encode(value, number, stripe, memory);
        assert_eq!(memory.len(), bytes, "a piece has the length of its stripe");
        memory
    }

    /// Returns the first pieces of different fragments, as many as are needed.
    fn enough<'p>(
        &self,
        stripe: usize,
        pieces: &[(u8, &'p [u8])],
    ) -> Result<Vec<(u8, &'p [u8])>, CodingError> {
        if stripe >= self.stripes() {
            return Err(CodingError::Stripe(stripe));
        }
        let need = self.piece_bytes(stripe);
        let mut chosen: Vec<(u8, &[u8])> = Vec::with_capacity(self.parts);
        for (number, piece) in pieces {
            if piece.len() != need {
                return Err(CodingError::Length { have: piece.len(), need });
            }
            if chosen.len() < self.parts && chosen.iter().all(|(other, _)| other != number) {
                chosen.push((*number, piece));
            }
        }
        match chosen.len() == self.parts {
            true => Ok(chosen),
            false => Err(CodingError::TooFew { have: chosen.len(), need: self.parts }),
        }
    }

    /// Appends a stripe of the value, reconstructed from pieces of different fragments, each given with its
    /// fragment's number.
    ///
    /// # Errors [`CodingError`] when there are too few pieces, a piece has the wrong length, or the stripe does not
    /// exist. Only a checksum can show whether they are pieces of this value.
    pub fn join(&self, stripe: usize, pieces: &[(u8, &[u8])], out: &mut Vec<u8>) -> Result<(), CodingError> {
        let chosen = self.enough(stripe, pieces)?;
        let (begin, piece_bytes) = (out.len(), self.piece_bytes(stripe));
        let end = begin + self.bytes_in(stripe);
        let of = |number: usize| {
            let found = chosen.iter().find(|(held, _)| self.parts == 1 || usize::from(*held) == number);
            found.map(|(_, piece)| *piece)
        };
        let last_lost = (0..self.parts).rev().find(|part| of(*part).is_none());
        let sum = of(self.parts);
        let numbers: Vec<u8> = chosen.iter().map(|(number, _)| *number).collect();
        let mut factors = Vec::new();
        for part in 0..self.parts {
            // The last part of a value is shorter than its piece: never write beyond the value, for which `out` may
            // have exactly enough room.
            let length = piece_bytes.min(end - out.len());
            if let Some(piece) = of(part) {
                out.extend_from_slice(&piece[..length]);
            } else if let (true, Some(sum)) = (last_lost == Some(part), sum) {
                // All other parts are present by now, and the first computed fragment is the sum of all parts: no
                // products are needed.
                let others = (0..self.parts).filter(|other| *other != part).map(|other| match of(other) {
                    Some(piece) => (1, Input::Given(piece)),
                    None => (1, Input::Made(begin + other * piece_bytes)),
                });
                combine(others.chain([(1, Input::Given(sum))]), length, out);
            } else {
                if factors.is_empty() {
                    factors = inverse(&numbers);
                }
                let pieces = chosen.iter().map(|(_, piece)| Input::Given(piece));
                combine(factors[part].iter().copied().zip(pieces), length, out);
            }
        }
        assert_eq!(out.len(), end, "a stripe is joined whole");
        Ok(())
    }

    /// Appends the piece of one fragment, reconstructed from pieces of others.
    ///
    /// # Errors
    /// As [`Layout::join`].
    pub fn rebuild(
        &self,
        number: u8,
        stripe: usize,
        pieces: &[(u8, &[u8])],
        out: &mut Vec<u8>,
    ) -> Result<(), CodingError> {
        let chosen = self.enough(stripe, pieces)?;
        let numbers: Vec<u8> = chosen.iter().map(|(number, _)| *number).collect();
        let pieces = chosen.iter().map(|(_, piece)| Input::Given(piece));
        combine(conversion(&numbers, number).into_iter().zip(pieces), self.piece_bytes(stripe), out);
        Ok(())
    }
}

/// An operand of [`combine`].
#[derive(Clone, Copy)]
enum Input<'a> {
    /// Given bytes. If they are shorter than needed, the rest counts as zeros.
    Given(&'a [u8]),
    /// Computed before: in the output, from this offset on.
    Made(usize),
}

/// Bytes that are combined at a time, so that the sum stays in the processor's first-level cache.
const BLOCK_BYTES: usize = 16 << 10;

/// Appends `bytes` of the sum of inputs, each multiplied by its factor.
fn combine<'a>(inputs: impl Iterator<Item = (u8, Input<'a>)> + Clone, bytes: usize, out: &mut Vec<u8>) {
    let end = out.len() + bytes;
    for from in (0..bytes).step_by(BLOCK_BYTES) {
        let (start, to) = (out.len(), bytes.min(from + BLOCK_BYTES));
        let mut inputs = inputs.clone();
        // Copy the first input if its factor is 1, instead of adding it to zeros.
        let first = inputs.clone().next().filter(|(factor, _)| *factor == 1);
        if let Some((_, input)) = first {
            inputs.next();
            match input {
                Input::Given(given) => out.extend_from_slice(within(given, from..to)),
                Input::Made(place) => out.extend_from_within(place + from..place + to),
            }
        }
        out.resize(start + to - from, 0);
        let (made, block) = out.split_at_mut(start);
        for (factor, input) in inputs {
            match input {
                Input::Given(given) => add(factor, within(given, from..to), block),
                Input::Made(place) => add(factor, &made[place + from..place + to], block),
            }
        }
    }
    assert_eq!(out.len(), end, "the sum has another length than asked for");
}

/// The part of `bytes` that lies within a range.
fn within(bytes: &[u8], range: Range<usize>) -> &[u8] {
    &bytes[range.start.min(bytes.len())..range.end.min(bytes.len())]
}

//! How a value is cut: into stripes, each of k parts, one piece of each fragment per stripe.
//!
//! ```text
//!  value      | stripe 0                   | stripe 1                   | stripe 2       |
//!  parts      | 0        1        2        | 0        1        2        | 0    1    2    |
//!  fragment 0 | piece 0                    | piece 1                    | piece 2
//!  fragment 4 |   a combination of the parts of each stripe
//! ```
//!
//! All pieces are [`PIECE_BYTES_MAX`] long but those of the last stripe, which are as long as they need be. A value that
//! ends within a part is taken to go on with zeros.

use crate::CodingError;
use crate::matrix::{add, conversion, inverse, put, row};

/// The longest piece, in bytes: what is encoded, sent, recorded and kept at a time.
pub const PIECE_BYTES_MAX: usize = 256 << 10;

/// How a value of a certain length is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    length: usize,
    parts: usize,
}

impl Layout {
    /// A value of `length` bytes is cut into `parts`. `None` if a value cannot be: no part, or as many as there can be
    /// fragments.
    pub fn new(length: usize, parts: u8) -> Option<Layout> {
        (parts > 0).then_some(Layout { length, parts: parts.into() })
    }

    /// How many fragments it takes to have the value back.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// Bytes of the value.
    pub fn length(&self) -> usize {
        self.length
    }

    fn stripe_bytes(&self) -> usize {
        self.parts * PIECE_BYTES_MAX
    }

    /// How many stripes it has: so many pieces has each fragment. At least one.
    pub fn stripes(&self) -> usize {
        self.length.div_ceil(self.stripe_bytes()).max(1)
    }

    /// Bytes of the value in a stripe; 0 behind the last one.
    pub fn bytes_in(&self, stripe: usize) -> usize {
        self.length.saturating_sub(stripe.saturating_mul(self.stripe_bytes())).min(self.stripe_bytes())
    }

    /// Bytes of each piece of a stripe.
    pub fn piece_bytes(&self, stripe: usize) -> usize {
        self.bytes_in(stripe).div_ceil(self.parts)
    }

    /// Bytes of a fragment.
    pub fn fragment_bytes(&self) -> usize {
        let whole = self.stripes() - 1;
        whole * PIECE_BYTES_MAX + self.piece_bytes(whole)
    }

    /// A part of a stripe as it stands in the value: it may be shorter than a piece, or empty.
    fn part<'a>(&self, value: &'a [u8], stripe: usize, part: usize) -> &'a [u8] {
        let (start, piece) = (stripe * self.stripe_bytes(), self.piece_bytes(stripe));
        let end = (start + self.bytes_in(stripe)).min(value.len());
        let from = (start + part * piece).min(end);
        &value[from..(from + piece).min(end)]
    }

    /// Appends a fragment's piece of a stripe of the value.
    pub fn encode(&self, value: &[u8], number: u8, stripe: usize, out: &mut Vec<u8>) {
        debug_assert_eq!(value.len(), self.length);
        let (start, bytes) = (out.len(), self.piece_bytes(stripe));
        let part = |at: usize| self.part(value, stripe, at);
        if self.parts == 1 || usize::from(number) < self.parts {
            out.extend_from_slice(part(usize::from(number) % self.parts));
            out.resize(start + bytes, 0);
            return;
        }
        out.resize(start + bytes, 0);
        combine(&row(number, self.parts), (0..self.parts).map(part), &mut out[start..]);
    }

    /// A fragment's piece of a stripe of the value: where it stands in that if it does, or else made in `memory`.
    pub fn piece<'p>(&self, value: &'p [u8], number: u8, stripe: usize, memory: &'p mut Vec<u8>) -> &'p [u8] {
        let bytes = self.piece_bytes(stripe);
        if self.parts == 1 || usize::from(number) < self.parts {
            let part = self.part(value, stripe, usize::from(number) % self.parts);
            if part.len() == bytes {
                return part;
            }
            memory.clear();
            memory.extend_from_slice(part);
            memory.resize(bytes, 0);
        } else {
            // Of what is there nothing stays: it need not be cleared.
            memory.resize(bytes, 0);
            let parts = (0..self.parts).map(|at| self.part(value, stripe, at));
            combine(&row(number, self.parts), parts, memory);
        }
        memory
    }

    /// The first pieces of different fragments, as many as are needed.
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

    /// Appends a stripe of the value, made of pieces of different fragments, each with its fragment's number.
    ///
    /// # Errors
    /// [`CodingError`] when they are too few, or no pieces of this stripe. Whether they are pieces of this value only a
    /// checksum can tell.
    pub fn join(&self, stripe: usize, pieces: &[(u8, &[u8])], out: &mut Vec<u8>) -> Result<(), CodingError> {
        let chosen = self.enough(stripe, pieces)?;
        let end = out.len() + self.bytes_in(stripe);
        let is_part = |number: u8| self.parts == 1 || usize::from(number) < self.parts;
        let numbers: Vec<u8> = chosen.iter().map(|(number, _)| *number).collect();
        let factors = match numbers.iter().all(|number| is_part(*number)) {
            true => Vec::new(),
            false => inverse(&numbers),
        };
        for part in 0..self.parts {
            // The last part of a value is shorter than its piece: never beyond the value, for which `out` may have just room.
            let start = out.len();
            let length = self.piece_bytes(stripe).min(end - start);
            let held = chosen.iter().find(|(number, _)| self.parts == 1 || usize::from(*number) == part);
            match held {
                Some((_, piece)) => out.extend_from_slice(&piece[..length]),
                None => {
                    out.resize(start + length, 0);
                    let pieces = chosen.iter().map(|(_, piece)| &piece[..length]);
                    combine(factors.get(part).map_or(&[], |row| row), pieces, &mut out[start..]);
                }
            }
        }
        Ok(())
    }

    /// Appends the piece of one fragment, made of pieces of others.
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
        let (start, bytes) = (out.len(), self.piece_bytes(stripe));
        out.resize(start + bytes, 0);
        combine(&conversion(&numbers, number), chosen.iter().map(|(_, piece)| *piece), &mut out[start..]);
        Ok(())
    }
}

/// The sum of multiples of inputs, which may be shorter than `out`.
fn combine<'a>(factors: &[u8], inputs: impl Iterator<Item = &'a [u8]>, out: &mut [u8]) {
    for (at, (factor, input)) in factors.iter().zip(inputs).enumerate() {
        match at {
            0 => put(*factor, input, out),
            _ => add(*factor, input, out),
        }
    }
}

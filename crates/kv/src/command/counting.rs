//! What `INCREX` adds to a number, and between which bounds the sum must be.

use super::declaration::Part;
use crate::codec::{Malformed, Reader, Writer};

/// What is added, and the bounds of the sum. A sum outside of them is not stored, or the bound is stored in its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step<'a> {
    /// A whole number is added to a whole number (`BYINT`).
    Whole {
        /// What is added.
        by: i64,
        /// The least sum.
        least: i64,
        /// The greatest sum.
        most: i64,
    },
    /// A decimal number, given as validated text, is added to any number (`BYFLOAT`).
    Decimal {
        /// What is added.
        by: &'a [u8],
        /// The least sum.
        least: f64,
        /// The greatest sum.
        most: f64,
    },
}

const WHOLE: u8 = 0;
const DECIMAL: u8 = 1;

impl<'a> Part<'a> for Step<'a> {
    fn put(self, out: &mut Vec<u8>) {
        match self {
            Step::Whole { by, least, most } => {
                out.put_u8(WHOLE);
                [by, least, most].into_iter().for_each(|number| out.put_i64(number));
            }
            Step::Decimal { by, least, most } => {
                out.put_u8(DECIMAL);
                out.put_bytes(by);
                least.put(out);
                most.put(out);
            }
        }
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match reader.u8()? {
            WHOLE => Step::Whole { by: reader.i64()?, least: reader.i64()?, most: reader.i64()? },
            DECIMAL => {
                Step::Decimal { by: reader.bytes()?, least: f64::take(reader)?, most: f64::take(reader)? }
            }
            _ => return Err(Malformed("unknown kind of step")),
        })
    }
}

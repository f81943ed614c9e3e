//! Redis's serialization formats: values as `DUMP` returns them, and files as `SAVE` writes them.
//!
//! Reading accepts what Redis 2.8 to 8 and Valkey up to 9 write, in every encoding of a value. A value is passed to
//! its visitor part by part, so that a list of ten million elements needs no second copy in memory. Bytes may come
//! from anywhere: damaged bytes are refused with their place, and no memory is allocated for a length before its
//! bytes have arrived.
//!
//! Writing uses the oldest form of each type that holds all of it. Every server reads that form, and stores the value
//! in the encoding that its own configuration requires. Strings are not compressed.
//!
//! Reading order: [`source`] (bytes and lengths), [`packed`] (small collections in one piece of memory), [`value`],
//! `weigh` (how large a value is before it is read), [`payload`] (what `DUMP` returns), [`mod@file`], [`mod@write`].

mod crc;
pub mod file;
mod lzf;
pub mod packed;
pub mod payload;
pub mod source;
pub mod value;
mod weigh;
pub mod write;

pub use crc::Crc;
pub use source::{Damaged, Fault, Source};
pub use value::{Flaw, Form, Id, Kind, Part, Words};
pub use weigh::Weight;

//! Tests of the checker: it must agree with an exhaustive search on small histories, approve the answers of an
//! atomic store, and find every mutation of them that no atomic store could have produced.

#![allow(clippy::unwrap_used, missing_docs)]

mod agreement;
mod atomic;
mod exhaustive;
mod lock_orders;
mod lock_service;
mod mutation;
mod porcupine;
mod random;

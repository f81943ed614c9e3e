//! The checker, checked: it must agree with an exhaustive search on small histories, approve what an atomic store
//! answered, and find every mutation of that which no atomic store could have answered.

#![allow(clippy::unwrap_used, missing_docs)]

mod agreement;
mod atomic;
mod exhaustive;
mod lock_orders;
mod lock_service;
mod mutation;
mod porcupine;
mod random;

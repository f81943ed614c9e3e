//! The simulator: a seed means one run, sound clusters pass, faulty ones are found.

mod planted;
mod replay;
mod search;
mod shrinking;

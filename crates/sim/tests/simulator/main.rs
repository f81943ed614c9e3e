//! The simulator: a seed determines a run, sound clusters pass, and faulty ones are found.

mod busy;
mod planted;
mod replay;
mod search;
mod shrinking;

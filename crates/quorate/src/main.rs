//! Quorate's command line.
fn main() {}

//! The simulated world: whole clusters of `node` in virtual time.

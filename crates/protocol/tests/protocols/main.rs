//! The tests of the protocols. `kit` is what they share; a protocol has a folder of its own, which says how the kit makes and
//! shows its replicas, and holds its verbs, its oracle and what else is tested of it alone.

mod abd;
mod blocking;
mod consensus;
mod kit;
mod leader_follower;
mod registers;
mod retire;

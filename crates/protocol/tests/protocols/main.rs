//! The tests of the protocols. `kit` is shared by all; each protocol has a folder that defines how the kit makes and shows
//! its replicas, and holds its verbs, its oracle and its other tests.

mod abd;
mod blocking;
mod consensus;
mod kit;
mod leader_follower;
mod registers;
mod retire;

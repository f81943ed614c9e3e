//! The control group: the cluster map, and which nodes may lead, with a bad network, crashes, pauses and drifting
//! clocks.

mod cluster;
mod failover;
mod leaders;
mod levels;
mod map;
mod membership;
mod messages;
mod quarantine;
mod random;
mod schedules;
mod spreading;
mod storage;
mod world;

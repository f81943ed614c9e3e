//! The control group: the cluster map, and who may lead, under a bad network, crashes, pauses and clocks that drift.

mod cluster;
mod failover;
mod leaders;
mod map;
mod membership;
mod messages;
mod quarantine;
mod random;
mod schedules;
mod storage;
mod world;

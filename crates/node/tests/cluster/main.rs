//! Several nodes in one process, without sockets or a real clock: what a cluster promises to its clients, and what
//! happens when links break, nodes die and peers send invalid messages.
//!
//! Every message takes one turn, and a turn takes one millisecond, so a test can stop the world between any two
//! messages. Replies are written here as `OK`, `7`, `"text"`, `nil`, `-ERR ...`, `[1, "a"]` and `{"k": 1}`.

mod adaptive;
mod asking;
mod blocking_over_groups;
mod caches;
mod changes;
mod channels;
mod clocks;
mod coding;
mod coding_faults;
mod consensus;
mod databases;
mod durable_registers;
mod eviction;
mod failover;
mod forgetting;
mod forwarding;
mod full_disks;
mod grants;
mod keyspaces;
mod limits;
mod locks;
mod long;
mod long_reads;
mod long_replies;
mod looking;
mod machine;
mod membership;
mod notifications;
mod peers;
mod queues;
mod reading;
mod recovery;
mod registers;
mod rejoin;
mod rest;
mod roles;
mod sessions;
mod slots;
mod slow;
mod stale_reads;
mod support;
mod tracking;
mod transactions;
mod transactions_over_groups;
mod values;
mod waiting;

//! What a node reports to `CLUSTER REPORT`: its health, and figures for people and programs that look at a whole
//! cluster. The command needs the password, so its reply may hold more than `GET /health`.

#![allow(missing_docs)] // The names are documented in docs/reference/commands.md.

use crate::health::Health;
use protocol::NodeId;
use serde::Serialize;
use wire::release::Release;

/// Everything that a node reports.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub health: Health,
    /// The cluster's agreed time, in milliseconds since the Unix epoch.
    pub time_ms: u64,
    /// Seconds since the process has started.
    pub uptime_s: u64,
    /// Whether the control group has admitted this node. If it was refused with a reason, `refusal` has it.
    pub admitted: bool,
    pub refusal: Option<String>,
    pub memory: MemoryFigures,
    pub disk: DiskFigures,
    pub certificate: Option<CertificateFigures>,
    pub clock: ClockFigures,
    pub links: Vec<LinkFigures>,
    pub counters: CounterFigures,
    pub groups: Vec<GroupFigures>,
    pub commands: Vec<CommandFigures>,
}

/// Memory, in bytes. A bound of 0 is none.
#[derive(Debug, Serialize)]
pub struct MemoryFigures {
    pub resident: u64,
    pub max: u64,
    pub machine: u64,
    pub data: u64,
    pub data_max: u64,
    pub clients: u64,
    pub full: bool,
}

/// The disk with the node's folder: its free bytes and its size, both 0 where the system does not report them; in how
/// many seconds it is full at the rate of the last hour, if it fills; how
/// many values it has damaged since the node's start, and how many of these were fetched from another replica.
#[derive(Debug, Serialize)]
pub struct DiskFigures {
    pub free: u64,
    pub size: u64,
    pub full: bool,
    pub full_in_s: Option<u64>,
    pub damaged: u64,
    pub repaired: u64,
}

/// The node's certificate: in how many seconds it expires, and whether the files have been changed to some that cannot
/// be used.
#[derive(Debug, Serialize)]
pub struct CertificateFigures {
    pub left_s: i64,
    pub unusable: bool,
}

/// How the wall clock compares with the other nodes'.
#[derive(Debug, Serialize)]
pub struct ClockFigures {
    pub off: bool,
    pub ahead_ms: i64,
}

/// The link to another node.
#[derive(Debug, Serialize)]
pub struct LinkFigures {
    pub node: NodeId,
    pub up: bool,
    /// The release that both sides speak; 0 while the link is down.
    pub release: Release,
    /// For how long nothing has been received from the node.
    pub silent_ms: u64,
}

/// Counted since the process has started, apart from `clients`, which are those connected now.
#[derive(Debug, Serialize)]
pub struct CounterFigures {
    pub clients: u64,
    pub commands: u64,
    pub errors: u64,
    pub forwarded: u64,
    /// Commands that have ended since `CONFIG RESETSTAT`, and how long they took in all.
    pub calls: u64,
    pub calls_us: u64,
    pub client_bytes_in: u64,
    pub client_bytes_out: u64,
    pub peer_bytes_in: u64,
    pub peer_bytes_out: u64,
}

/// A shard of a keyspace. Counted since the replica was made.
#[derive(Debug, Serialize)]
pub struct GroupFigures {
    pub group: u16,
    pub prefix: String,
    pub shard: u16,
    pub keys: u64,
    pub memory: u64,
    pub memory_max: u64,
    pub eviction: String,
    pub evicted: u64,
    pub lookups: u64,
    pub unknown_writes: u64,
    pub lost_writes: u64,
    pub began_empty_ms: u64,
    pub locks: u64,
    pub lock_waiters: u64,
    /// Latencies of its commands that came from clients of this node.
    pub latency: Vec<(u64, u64)>,
}

/// A command of this node's clients, since `CONFIG RESETSTAT`.
#[derive(Debug, Serialize)]
pub struct CommandFigures {
    pub name: &'static str,
    pub calls: u64,
    pub failed: u64,
    pub rejected: u64,
    pub us: u64,
    /// Times in microseconds, each with the number of calls that took this long or up to an eighth less.
    pub latency: Vec<(u64, u64)>,
}

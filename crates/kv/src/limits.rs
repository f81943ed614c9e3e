//! Limits on what a client may store. Each has a name and a unit; a request that exceeds one is refused with its name.

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;

/// Longest channel name, in bytes. Each publication matches it against every pattern subscribed to.
pub const CHANNEL_BYTES_MAX: usize = 1024;

/// Longest value unless configured otherwise, in bytes.
pub const VALUE_BYTES_MAX_DEFAULT: usize = 64 * 1024 * 1024;

/// Longest value that can be configured, in bytes: the same as Redis's `proto-max-bulk-len` default.
pub const VALUE_BYTES_MAX_CEILING: usize = 512 * 1024 * 1024;

/// `HSCAN` returns a hash of up to this many fields at once, as Redis does.
pub const SCANNED_AT_ONCE: u64 = 128;

/// Whether visiting all items in their order is faster than finding `some` of them one by one.
pub(crate) fn is_worth_a_walk(some: usize, all: usize) -> bool {
    const SEARCH: usize = 16; // A search takes at least as long as so many steps of a walk.
    some.saturating_mul(SEARCH) >= all
}

/// Longest that a group may read for a request that needs values of several groups at once, in nanoseconds by the estimate of its
/// commands. Moving these takes each of its groups some times as long.
pub(crate) const LOCKED_READ_NS_MAX: u64 = 10_000_000;

/// Most bytes of its keys that one command may read or store, each counted as often as the command reads it: some 200 ms,
/// during which its group does nothing else. All replicas count alike.
pub const WALKED_BYTES_MAX: u64 = 400 << 20;

/// Most items of a value that `RESTORE` stores: elements, members, fields, entries, and pending entries. Some 300 ms.
pub const RESTORED_ITEMS_MAX: usize = 1_000_000;

/// Most bytes in one reply, unless a node has less memory to spare. A larger one (an `MGET` of many large values) is
/// refused.
pub const REPLY_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Once the replies of one step of a group reach this many bytes, the rest waits for the next step. A node with less
/// memory to spare uses a lower limit.
pub const REPLIES_BYTES_MAX: usize = 128 << 20;

/// Most commands in one transaction. It is carried out in one step, during which its group does nothing else.
pub const TRANSACTION_COMMANDS_MAX: usize = 25_000;
// Scripts. Each replica decides for itself whether a run is within a limit, and all must decide alike. So these limits
// cannot be configured (except the cost, which travels in the record), and they and the interpreter may only change on
// all nodes of a cluster at once.

/// Longest text of a script, in bytes.
pub const SCRIPT_BYTES_MAX: usize = 1 << 20;

/// Most that a run of a script may cost, unless its keyspace sets `script_cost_max`, in units: a simple instruction of
/// its language costs one, everything else in proportion to its time. See `docs/measurements/scripts.md` for durations.
pub const SCRIPT_COST_DEFAULT: u32 = 2_000_000;

/// The lowest `script_cost_max` that can be configured: the scripts of lock libraries need a few thousand.
pub const SCRIPT_COST_LEAST: u32 = 50_000;

/// The highest `script_cost_max` that can be configured. A node does nothing else while a script runs, and must not be
/// presumed dead.
pub const SCRIPT_COST_MOST: u32 = 10_000_000;

/// Most that a run of a script may allocate in total, in bytes. Nothing is freed before the run ends.
pub const SCRIPT_MEMORY_BYTES_MAX: usize = 16 << 20;

/// Most memory that the data may take in addition through one script or one transaction, beyond its own bytes, in bytes: an
/// eighth of `memory_max`, if that is less. The bound is a part of the record, so all replicas end it at the same place.
pub const RUN_ADDED_BYTES_MAX: u64 = 256 << 20;

/// Most that a run of a script may publish in total, in bytes.
pub const SCRIPT_PUBLISHED_BYTES_MAX: usize = 16 << 20;

/// Longest reply of a script, and of each command that it runs, in bytes.
pub const SCRIPT_REPLY_BYTES_MAX: usize = 16 << 20;

/// Deepest nesting of arrays in a script's reply.
pub const SCRIPT_REPLY_DEPTH_MAX: usize = 64;

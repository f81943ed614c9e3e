//! Limits on what a client may store. Each has a name and a unit; a request over one is refused by name.

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;

/// Longest name of a channel, in bytes. Whoever publishes has every pattern that somebody listens to matched with it.
pub const CHANNEL_BYTES_MAX: usize = 1024;

/// Longest value unless configured otherwise, in bytes.
pub const VALUE_BYTES_MAX_DEFAULT: usize = 64 * 1024 * 1024;

/// Longest value that can be configured, in bytes: the same as Redis's `proto-max-bulk-len` default.
pub const VALUE_BYTES_MAX_CEILING: usize = 512 * 1024 * 1024;

/// Most bytes of a hash, what it is kept with included: 16 beside each field and value. It is one piece of memory, so a
/// change moves what stands behind it: this much takes 2 to 3 ms. The limit on values counts, too, where that is less.
pub const HASH_BYTES_MAX: usize = 16 << 20;

/// Most bytes that one reply may carry, unless a node has less memory to spare. A larger one (an `MGET` of many large values)
/// is refused.
pub const REPLY_BYTES_MAX: usize = 512 * 1024 * 1024;

/// When the replies of one step of a group have come to so many bytes, the rest waits for the next step, unless a node has
/// less memory to spare.
pub const REPLIES_BYTES_MAX: usize = 128 << 20;

/// Most commands that one transaction may hold. It is carried out in one step, during which its group does nothing else.
pub const TRANSACTION_COMMANDS_MAX: usize = 10_000;
// Scripts. Whether a run is within a limit is decided by every replica for itself, so these cannot be configured (but for
// the cost, which travels in the record): all must come to the same end. For the same reason they, and the interpreter, may
// only change with all nodes of a cluster at once.

/// Longest text of a script, in bytes.
pub const SCRIPT_BYTES_MAX: usize = 1 << 20;

/// What a run of a script may cost unless its keyspace says otherwise (`script_cost_max`), in units: a simple instruction of
/// its language is one, and everything else counts as many as it takes time. See `docs/measurements/scripts.md` for how long they take.
pub const SCRIPT_COST_DEFAULT: u32 = 2_000_000;

/// The least that `script_cost_max` may be: the scripts of lock libraries need some thousands.
pub const SCRIPT_COST_LEAST: u32 = 50_000;

/// The most that `script_cost_max` may be. A node does nothing else while a script runs, and must not be taken for dead.
pub const SCRIPT_COST_MOST: u32 = 10_000_000;

/// What a run of a script may allocate in all, in bytes. Nothing is given back before its end.
pub const SCRIPT_MEMORY_BYTES_MAX: usize = 16 << 20;

/// What a run of a script may publish in all, in bytes.
pub const SCRIPT_PUBLISHED_BYTES_MAX: usize = 16 << 20;

/// What a script may answer in all, and be answered by each command, in bytes.
pub const SCRIPT_REPLY_BYTES_MAX: usize = 16 << 20;

/// How deep arrays may lie in each other in what a script answers.
pub const SCRIPT_REPLY_DEPTH_MAX: usize = 64;

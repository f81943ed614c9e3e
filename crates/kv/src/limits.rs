//! Limits on what a client may store. Each has a name and a unit; a request over one is refused by name.

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;

/// Longest value unless configured otherwise, in bytes.
pub const VALUE_BYTES_MAX_DEFAULT: usize = 64 * 1024 * 1024;

/// Longest value that can be configured, in bytes: the same as Redis's `proto-max-bulk-len` default.
pub const VALUE_BYTES_MAX_CEILING: usize = 512 * 1024 * 1024;

/// Most bytes that one reply may carry. A larger one (an `MGET` of many large values) is refused.
pub const REPLY_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Most commands that one transaction may hold. It is carried out in one step, during which its group does nothing else.
pub const TRANSACTION_COMMANDS_MAX: usize = 10_000;

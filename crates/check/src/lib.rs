//! Records histories of operations, and checks whether a correct store could have given their answers.
//!
//! Read `history` for what is recorded; `linearizable` for the check, which rests on `model` (the behaviour of a key), `prepare`
//! (what can be decided before any search) and `search`; `window`, `words` and `picture` for reports about a violation; `locks`
//! for locks, and `collections` for lists, sets and sorted sets, each with a model of its own; `transactions` for transactions over
//! several keys; `weaker` for weaker promises; and
//! `export` for writing histories for other checkers.

pub mod collections;
mod export;
mod history;
mod interner;
mod json_lines;
mod linearizable;
mod locks;
mod model;
mod picture;
mod prepare;
mod search;
pub mod transactions;
mod weaker;
mod window;
mod words;

pub use export::{Checker, ExportError, Exported, Subject};
pub use history::{
    Action, Answer, Fence, History, Hold, Key, LockAction, Operation, OperationId, Outcome, Value,
};
pub use json_lines::ReadError;
pub use linearizable::{Limits, Progress, Verdict, linearizable, linearizable_within};
pub use weaker::{
    Backwards, NotAPrefix, Ordered, check_prefixes, check_sessions, differing_keys, lost_writes,
};
pub use window::{Breach, Rule, Why, Window};

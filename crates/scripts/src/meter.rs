//! The remaining cost of a run. It is counted and never timed, so that a run ends at the same point on every replica.
//!
//! The interpreter counts its own work (`vendor/lua-src`): instructions, bytes that are copied, compared
//! or hashed, blocks of memory, steps within a table. It calls the hook once every [`HOOK_COST`] units. The
//! additional work of our own functions is charged here.

use super::failure::{Failure, Limit, Raised};
use kv::limits::SCRIPT_MEMORY_BYTES_MAX;
use std::cell::Cell;

/// Units that the interpreter counts between two calls of the hook.
pub(super) const HOOK_COST: u32 = 1000;

/// The cost of a run before its first instruction: creating and dropping its state.
const RUN_COST: u64 = 2000;

/// The cost of calling one of our functions, besides what the interpreter counts for the call.
pub(super) const CALL_COST: u64 = 10;

/// Lua's error for lack of memory. Under `pcall` a script sees it as a text.
const NO_MEMORY: &[u8] = b"not enough memory";

/// Counts the cost of a run. Once a limit is reached the run is over, whatever the script does about it.
#[derive(Debug)]
pub(super) struct Meter {
    most: u64,
    left: Cell<u64>,
    reached: Cell<Option<Limit>>,
}

impl Meter {
    /// A meter for a run that may cost at most `most` units.
    pub(super) fn new(most: u64) -> Meter {
        let meter = Meter { most, left: Cell::new(most), reached: Cell::new(None) };
        // If this is already too much, the run does not begin.
        let _ = meter.charge(RUN_COST);
        meter
    }

    /// What the run has cost so far.
    pub(super) fn spent(&self) -> u64 {
        self.most - self.left.get()
    }

    /// What the run may still cost.
    pub(super) fn left(&self) -> u64 {
        self.left.get()
    }

    /// Charges `units`.
    pub(super) fn charge(&self, units: u64) -> mlua::Result<()> {
        match self.left.get().checked_sub(units) {
            Some(left) => self.left.set(left),
            None => {
                self.left.set(0);
                self.reach(Limit::Cost(self.most));
            }
        }
        self.check_raised()
    }

    /// Charges for looking at `bytes` bytes one by one.
    pub(super) fn charge_bytes(&self, bytes: usize) -> mlua::Result<()> {
        const BYTES_PER_UNIT: usize = 16;
        self.charge((bytes / BYTES_PER_UNIT) as u64)
    }

    /// Checks the size of what one of our functions collects outside Lua's memory: a script can have the same text
    /// collected any number of times.
    pub(super) fn check_room(&self, bytes: usize) -> mlua::Result<()> {
        if bytes > SCRIPT_MEMORY_BYTES_MAX {
            self.reach(Limit::Memory);
        }
        self.check_raised()
    }

    /// Notes that the run has reached a limit.
    pub(super) fn reach(&self, limit: Limit) {
        self.reached.set(self.reached.get().or(Some(limit)));
    }

    /// Takes an error that was caught: if it was lack of memory, the run has reached a limit.
    pub(super) fn take_error(&self, error: &mlua::Value) {
        let is_memory = match error {
            mlua::Value::String(text) => text.as_bytes() == NO_MEMORY,
            mlua::Value::Error(error) => Raised::is_memory(error),
            _ => false,
        };
        if is_memory {
            self.reach(Limit::Memory);
        }
    }

    /// The limit that the run has reached.
    pub(super) fn reached(&self) -> Option<Limit> {
        self.reached.get()
    }

    /// Fails if the run has reached a limit.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.reached.get().map_or(Ok(()), |limit| Err(Failure::limit(limit)))
    }

    /// As [`Meter::check`], but the error is one raised within the run.
    pub(super) fn check_raised(&self) -> mlua::Result<()> {
        self.reached.get().map_or(Ok(()), |limit| Err(Raised::limit(limit)))
    }
}

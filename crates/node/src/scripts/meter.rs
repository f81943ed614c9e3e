//! What a run may still cost. Counts only: every replica comes to the same end.

use super::failure::{Failure, Raised};
use kv::limits::{SCRIPT_INSTRUCTIONS_MAX, SCRIPT_MEMORY_BYTES_MAX};
use std::cell::Cell;

/// What Lua says when it got no memory. Code of a script that is called in protected mode sees it as a text.
const NO_MEMORY: &[u8] = b"not enough memory";

/// A limit that a run has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Instructions,
    Memory,
    /// What it answers is too large or too deep.
    Reply,
}

impl Limit {
    pub(super) fn text(self) -> String {
        let limit = match self {
            Limit::Instructions => format!("it took more than {SCRIPT_INSTRUCTIONS_MAX} instructions"),
            Limit::Memory => format!("it allocated more than {SCRIPT_MEMORY_BYTES_MAX} bytes"),
            Limit::Reply => "what it answers is too large".to_string(),
        };
        format!("ERR the script was stopped and nothing of it was kept: {limit}")
    }
}

/// Counts what a run costs. Once a limit is reached the run is over, whatever the script does about it.
#[derive(Debug)]
pub(super) struct Meter {
    left: Cell<u64>,
    reached: Cell<Option<Limit>>,
    /// Bytes allocated at the last look.
    allocated: Cell<usize>,
    /// No text is longer than this.
    longest_text: Cell<usize>,
}

impl Default for Meter {
    fn default() -> Self {
        Meter {
            left: Cell::new(SCRIPT_INSTRUCTIONS_MAX),
            reached: Cell::new(None),
            allocated: Cell::new(0),
            longest_text: Cell::new(0),
        }
    }
}

impl Meter {
    /// The run begins, with so many bytes allocated.
    pub(super) fn begin(&self, script: &kv::Script<'_>, allocated: usize) {
        self.allocated.set(allocated);
        let inputs = script.keys().chain(script.arguments()).chain([script.text()]);
        self.longest_text.set(inputs.map(<[u8]>::len).max().unwrap_or(0));
    }

    /// So many instructions of Lua were carried out.
    ///
    /// Most take the same time, but `..` and `<` take longer for longer texts, and make no text twice: time without
    /// memory. No text that Lua made since the last look is longer than what was allocated since then.
    pub(super) fn tick(&self, instructions: u64, allocated: usize) -> mlua::Result<()> {
        const TEXT_BYTES_PER_INSTRUCTION: usize = 16 << 10;
        let grown = allocated.saturating_sub(self.allocated.replace(allocated));
        let longest = self.longest_text.get().max(grown);
        self.longest_text.set(longest);
        self.charge(instructions * (1 + (longest / TEXT_BYTES_PER_INSTRUCTION) as u64))
    }

    /// One of our functions has allocated: its texts were no longer than this, the rest are tables.
    pub(super) fn has_allocated(&self, longest_text: usize, allocated_before: usize, allocated: usize) {
        self.longest_text.set(self.longest_text.get().max(longest_text));
        self.allocated.set(self.allocated.get() + allocated.saturating_sub(allocated_before));
    }

    /// Takes what so many instructions would cost.
    pub(super) fn charge(&self, instructions: u64) -> mlua::Result<()> {
        match self.left.get().checked_sub(instructions) {
            Some(left) => self.left.set(left),
            None => self.reach(Limit::Instructions),
        }
        self.check_raised()
    }

    /// Takes what looking at so many bytes one by one costs.
    pub(super) fn charge_bytes(&self, bytes: usize) -> mlua::Result<()> {
        const BYTES_PER_INSTRUCTION: usize = 16;
        self.charge((bytes / BYTES_PER_INSTRUCTION) as u64)
    }

    /// The run has come to a limit.
    pub(super) fn reach(&self, limit: Limit) {
        self.reached.set(self.reached.get().or(Some(limit)));
    }

    /// An error was caught: if it was the lack of memory, the run is over.
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

    /// Ends the run if it has come to a limit.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.reached.get().map_or(Ok(()), |limit| Err(Failure::limit(limit)))
    }

    /// The same, from within the run.
    pub(super) fn check_raised(&self) -> mlua::Result<()> {
        self.reached.get().map_or(Ok(()), |limit| Err(Raised::limit(limit)))
    }
}

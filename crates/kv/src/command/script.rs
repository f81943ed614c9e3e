//! Scripts: a program that runs commands on its keys in one step.
//!
//! Like a transaction, a script is one command: its record holds the program's text, its keys and its arguments, and
//! every replica runs it when it applies the record. An [`crate::Interpreter`] runs it; nothing here knows the
//! language.

use super::List;
use crate::codec::{Malformed, Reader, Writer};
use crate::limits::SCRIPT_COST_DEFAULT;

/// Approximate time in nanoseconds of one unit of a script's cost: see `docs/measurements/scripts.md`.
pub(crate) const UNIT_NS: u64 = 10;

/// A program with the keys that it may use and its arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Script<'a> {
    /// The text, then the keys, then the arguments.
    parts: List<'a>,
    key_count: u32,
    limits: ScriptLimits,
    writes: bool,
}

/// The limits of a run. They can differ from node to node, or change, so those of the node that received the request
/// travel with the script, and hold on every replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptLimits {
    /// Longest value that it may store, in bytes.
    pub value_bytes_max: u64,
    /// Most that it may cost, in units.
    pub cost_max: u32,
}

impl std::fmt::Debug for Script<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Script { parts, key_count, limits, writes } = self;
        write!(formatter, "Script {{ {parts:?}, {key_count} keys, {limits:?}, writes: {writes} }}")
    }
}

impl<'a> Script<'a> {
    /// Builds a script in `scratch`, which is cleared first. `inputs` are its `key_count` keys, followed by its
    /// arguments. `None` if there are fewer inputs than that.
    pub fn build<'i>(
        scratch: &'a mut Vec<u8>,
        text: &'i [u8],
        inputs: impl IntoIterator<Item = &'i [u8]>,
        key_count: usize,
        limits: ScriptLimits,
        writes: bool,
    ) -> Option<Script<'a>> {
        let parts = List::build(scratch, std::iter::once(text).chain(inputs));
        let key_count = u32::try_from(key_count).ok().filter(|count| (*count as usize) < parts.len())?;
        Some(Script { parts, key_count, limits, writes })
    }

    /// Bytes of its text, its keys and its arguments.
    pub(super) fn bytes(&self) -> usize {
        self.parts.bytes()
    }

    /// The approximate maximum time of a run, in nanoseconds.
    pub fn most_ns(&self) -> u64 {
        u64::from(self.limits.cost_max) * UNIT_NS
    }

    /// The program.
    pub fn text(&self) -> &'a [u8] {
        self.parts.iter().next().unwrap_or_default()
    }

    /// The keys that it may use.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        self.parts.iter().skip(1).take(self.key_count as usize)
    }

    /// Its arguments.
    pub fn arguments(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        self.parts.iter().skip(1 + self.key_count as usize)
    }

    /// The number of keys.
    pub fn key_count(&self) -> usize {
        self.key_count as usize
    }

    /// The limits of a run.
    pub fn limits(&self) -> ScriptLimits {
        self.limits
    }

    /// Whether it may write; false for `EVAL_RO`.
    pub fn is_write(&self) -> bool {
        self.writes
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.parts.encode(out);
        out.put_u32(self.key_count);
        out.put_u64(self.limits.value_bytes_max);
        out.put_u32(self.limits.cost_max);
    }

    /// Decodes a script; with `has_cost` false, one from before scripts carried their cost limit.
    pub(super) fn decode(
        reader: &mut Reader<'a>,
        writes: bool,
        has_cost: bool,
    ) -> Result<Script<'a>, Malformed> {
        let parts = List::decode(reader)?;
        let (key_count, value_bytes_max) = (reader.u32()?, reader.u64()?);
        let cost_max = if has_cost { reader.u32()? } else { SCRIPT_COST_DEFAULT };
        let limits = ScriptLimits { value_bytes_max, cost_max };
        if key_count as usize >= parts.len() {
            return Err(Malformed("a script has more keys than it holds"));
        }
        Ok(Script { parts, key_count, limits, writes })
    }
}

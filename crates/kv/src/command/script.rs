//! Scripts: a program that runs commands on its keys in one step.
//!
//! A script is one command, as a transaction is: its record holds the program's text, its keys and its arguments, and
//! every replica runs it when it applies the record. What runs it is an [`crate::Interpreter`]; nothing here knows the
//! language.

use super::List;
use crate::codec::{Malformed, Reader, Writer};
use crate::limits::SCRIPT_COST_DEFAULT;

/// How long a unit of a script's cost takes, about: see `docs/measurements/scripts.md`.
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

/// What a run may do. It can differ from node to node, or change, so what the node says that was asked travels with the
/// script, and holds for every replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptLimits {
    /// Longest value that it may store, in bytes.
    pub value_bytes_max: u64,
    /// What it may cost, in units.
    pub cost_max: u32,
}

impl std::fmt::Debug for Script<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Script { parts, key_count, limits, writes } = self;
        write!(formatter, "Script {{ {parts:?}, {key_count} keys, {limits:?}, writes: {writes} }}")
    }
}

impl<'a> Script<'a> {
    /// A script in `scratch`, which is cleared first. `inputs` are its keys, of which there are `key_count`, and behind
    /// them its arguments. None unless there are so many inputs.
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

    /// How many nanoseconds it takes at most, about.
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

    /// Number of keys.
    pub fn key_count(&self) -> usize {
        self.key_count as usize
    }

    /// What a run may do.
    pub fn limits(&self) -> ScriptLimits {
        self.limits
    }

    /// False when it may only read (`EVAL_RO`).
    pub fn is_write(&self) -> bool {
        self.writes
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.parts.encode(out);
        out.put_u32(self.key_count);
        out.put_u64(self.limits.value_bytes_max);
        out.put_u32(self.limits.cost_max);
    }

    /// Reads what was encoded; before scripts told their cost, if `has_cost` is false.
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

//! Scripts: a program that runs commands on its keys in one step.
//!
//! Like a transaction, a script is one command: its record holds the program's text, its keys and its arguments, and
//! every replica runs it when it applies the record. An [`crate::Interpreter`] runs it; nothing here knows the
//! language.

use super::List;
use super::declaration::{Adds, Effect, Inner, Needs};
use crate::codec::{Malformed, Reader, Writer};

// Tags of its encoding.
pub(super) const READING_SCRIPT: u8 = 21;
pub(super) const READING_SCRIPT_WITH_EXTENT: u8 = 36;
pub(super) const READING_SCRIPT_WITH_OPTIONS: u8 = 40;
pub(super) const SCRIPT: u8 = 93;
pub(super) const SCRIPT_WITH_EXTENT: u8 = 107;
pub(super) const SCRIPT_WITH_OPTIONS: u8 = 110;

/// Approximate time in nanoseconds of one unit of a script's cost: see `docs/measurements/scripts.md`.
pub(crate) const UNIT_NS: u64 = 10;

/// A program with the keys that it may use and its arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Script<'a> {
    /// The text, then the keys, then the arguments, then the prefixes of its extent.
    parts: List<'a>,
    key_count: u32,
    extent_count: u32,
    limits: ScriptLimits,
    writes: bool,
    options: ScriptOptions,
}

/// Options of a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptOptions {
    /// Whether its reply names the keys that it has read: see [`crate::Reply::Reads`].
    pub tells_reads: bool,
    /// What to do with it while its keyspace is full.
    pub when_full: WhenFull,
    /// Whether its keyspace was full when it was ordered. If so, every replica refuses its commands that may enlarge the
    /// data, until it has written something: a script that has begun to write may finish.
    pub is_in_full: bool,
    /// Whether its last argument is not for the program, but the rights of its caller ([`Script::rights`]).
    pub has_rights: bool,
    /// Whether it runs by the rules of release 2, which replicas of release 1 do not know. All replicas must run it alike, so
    /// the node that orders it decides. Among these rules: its commands cost what they take, as
    /// [`Command::walk_ns`](crate::Command::walk_ns) estimates it.
    pub by_second_rules: bool,
}

/// What to do with a script that may write while its keyspace is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It runs, and commands that may enlarge the data are refused: see [`ScriptOptions::is_in_full`].
    #[default]
    ByCommand,
    /// It is refused.
    Refused,
    /// It runs without restrictions.
    Runs,
}

impl ScriptOptions {
    const TELLS_READS: u8 = 1;
    const REFUSED: u8 = 2;
    const RUNS: u8 = 4;
    const IN_FULL: u8 = 8;
    const HAS_RIGHTS: u8 = 16;
    const BY_SECOND_RULES: u8 = 32;

    fn encoded(self) -> u8 {
        let when_full = match self.when_full {
            WhenFull::ByCommand => 0,
            WhenFull::Refused => Self::REFUSED,
            WhenFull::Runs => Self::RUNS,
        };
        let tells_reads = if self.tells_reads { Self::TELLS_READS } else { 0 };
        let has_rights = if self.has_rights { Self::HAS_RIGHTS } else { 0 };
        let rules = if self.by_second_rules { Self::BY_SECOND_RULES } else { 0 };
        when_full | tells_reads | has_rights | rules | if self.is_in_full { Self::IN_FULL } else { 0 }
    }

    fn decode(encoded: u8) -> Result<ScriptOptions, Malformed> {
        let has = |bit: u8| encoded & bit != 0;
        let when_full = match (has(Self::REFUSED), has(Self::RUNS)) {
            (false, false) => WhenFull::ByCommand,
            (true, _) => WhenFull::Refused,
            (false, true) => WhenFull::Runs,
        };
        let (tells_reads, is_in_full) = (has(Self::TELLS_READS), has(Self::IN_FULL));
        let (has_rights, by_second_rules) = (has(Self::HAS_RIGHTS), has(Self::BY_SECOND_RULES));
        let options = ScriptOptions { tells_reads, when_full, is_in_full, has_rights, by_second_rules };
        match options.encoded() == encoded {
            true => Ok(options),
            false => Err(Malformed("unknown options of a script")),
        }
    }
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
        let Script { parts, key_count, extent_count, limits, writes, options } = self;
        write!(
            formatter,
            "Script {{ {parts:?}, {key_count} keys, {extent_count} prefixes, {limits:?}, writes: {writes}, {options:?} }}"
        )
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
        Script::build_in(scratch, text, inputs, key_count, [], limits, writes)
    }

    /// As [`Script::build`], with an extent: its keyspace's prefix, followed by the prefixes of other keyspaces that begin
    /// with that one. The script may use all keys with the first prefix and none of the others, declared or not.
    ///
    /// Keyspaces are created and removed, and replicas learn of it at different times. So the extent travels with the
    /// script.
    pub fn build_in<'i>(
        scratch: &'a mut Vec<u8>,
        text: &'i [u8],
        inputs: impl IntoIterator<Item = &'i [u8]>,
        key_count: usize,
        extent: impl IntoIterator<Item = &'i [u8]>,
        limits: ScriptLimits,
        writes: bool,
    ) -> Option<Script<'a>> {
        let mut extent_count = 0;
        let extent = extent.into_iter().inspect(|_| extent_count += 1);
        let parts = List::build(scratch, std::iter::once(text).chain(inputs).chain(extent));
        let key_count = u32::try_from(key_count).ok()?;
        let options = ScriptOptions::default();
        let script = Script { parts, key_count, extent_count, limits, writes, options };
        script.is_whole().then_some(script)
    }

    /// The same script with these options.
    ///
    /// # Panics
    /// If the options say that the last argument holds rights, and there is no argument.
    pub fn with_options(self, options: ScriptOptions) -> Script<'a> {
        let script = Script { options, ..self };
        assert!(script.is_whole(), "a script's rights are its last argument");
        script
    }

    /// The script's options.
    pub fn options(&self) -> ScriptOptions {
        self.options
    }

    /// Whether it has as many parts as its counts say.
    fn is_whole(&self) -> bool {
        let rights = usize::from(self.options.has_rights);
        1 + self.key_count as usize + rights + self.extent_count as usize <= self.parts.len()
    }

    /// The approximate maximum time of a run, in nanoseconds.
    pub fn most_ns(&self) -> u64 {
        u64::from(self.limits.cost_max) * UNIT_NS
    }

    /// The program.
    pub fn text(&self) -> &'a [u8] {
        self.parts.iter().next().unwrap_or_default()
    }

    /// The keys that it declares.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        self.parts.iter().skip(1).take(self.key_count as usize)
    }

    /// Its arguments.
    pub fn arguments(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let before = 1 + self.key_count as usize;
        self.parts.iter().take(self.arguments_end()).skip(before)
    }

    fn arguments_end(&self) -> usize {
        self.parts.len() - self.extent_count as usize - usize::from(self.options.has_rights)
    }

    /// The rights of its caller, if they are restricted, in the encoding of the node that has ordered it, which only the
    /// interpreter understands. They travel with the script, since replicas learn of changes at different times.
    pub fn rights(&self) -> Option<&'a [u8]> {
        self.parts.iter().nth(self.arguments_end()).filter(|_| self.options.has_rights)
    }

    /// The prefixes of its extent, if it has one: see [`Script::build_in`].
    pub fn extent(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.parts.iter().skip(self.parts.len() - self.extent_count as usize)
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

    fn has_options(&self) -> bool {
        self.options != ScriptOptions::default()
    }

    /// Whether it may use keys that it does not declare.
    pub fn has_extent(&self) -> bool {
        self.extent_count > 0
    }

    fn decode(reader: &mut Reader<'a>, writes: bool, has_extent: bool) -> Result<Script<'a>, Malformed> {
        let parts = List::decode(reader)?;
        let key_count = reader.u32()?;
        let limits = ScriptLimits { value_bytes_max: reader.u64()?, cost_max: reader.u32()? };
        let extent_count = if has_extent { reader.u32()? } else { 0 };
        let options = ScriptOptions::default();
        let script = Script { parts, key_count, extent_count, limits, writes, options };
        if !script.is_whole() || script.has_extent() != has_extent {
            return Err(Malformed("a script does not hold what its counts say"));
        }
        Ok(script)
    }
}

impl<'a> Inner<'a> for Script<'a> {
    fn tag(&self, _: &[u8]) -> u8 {
        match (self.writes, self.has_options(), self.has_extent()) {
            (false, true, _) => READING_SCRIPT_WITH_OPTIONS,
            (false, false, true) => READING_SCRIPT_WITH_EXTENT,
            (false, false, false) => READING_SCRIPT,
            (true, true, _) => SCRIPT_WITH_OPTIONS,
            (true, false, true) => SCRIPT_WITH_EXTENT,
            (true, false, false) => SCRIPT,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        if self.has_options() {
            out.put_u8(self.options.encoded());
            out.put_bool(self.has_extent());
        }
        self.parts.encode(out);
        out.put_u32(self.key_count);
        out.put_u64(self.limits.value_bytes_max);
        out.put_u32(self.limits.cost_max);
        if self.extent_count > 0 {
            out.put_u32(self.extent_count);
        }
    }

    fn take(tag: u8, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let writes = tag >= 64;
        match tag {
            READING_SCRIPT | SCRIPT => return Script::decode(reader, writes, false),
            READING_SCRIPT_WITH_EXTENT | SCRIPT_WITH_EXTENT => return Script::decode(reader, writes, true),
            _ => {}
        }
        let options = ScriptOptions::decode(reader.u8()?)?;
        let has_extent = reader.bool()?;
        let script = Script { options, ..Script::decode(reader, writes, has_extent)? };
        if !script.is_whole() {
            return Err(Malformed("a script does not hold what its options say"));
        }
        if !script.has_options() {
            return Err(Malformed("a script without options is written without them"));
        }
        Ok(script)
    }

    fn is_write(&self) -> bool {
        self.writes
    }

    fn visit_keys(&self, visit: &mut impl FnMut(&'a [u8])) {
        self.keys().for_each(visit);
    }

    /// Those of its text, its keys and its arguments.
    fn bytes(&self) -> usize {
        self.parts.bytes()
    }

    fn name(&self) -> &'static str {
        if self.writes { "EVAL" } else { "EVAL_RO" }
    }

    fn effect(&self) -> Effect {
        if self.writes { Effect::Grows } else { Effect::Reads }
    }

    fn adds(&self) -> Adds {
        if self.writes { Adds::Unforeseen } else { Adds::More }
    }

    fn needs(&self) -> Needs {
        if self.writes { Needs::Modifies } else { Needs::SeveralReads }
    }

    fn may_walk(&self) -> bool {
        true
    }

    fn lists_all(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ScriptLimits = ScriptLimits { value_bytes_max: 1, cost_max: 2 };

    #[test]
    fn rights_are_not_an_argument_of_the_program() {
        let mut scratch = Vec::new();
        let inputs = [&b"key"[..], b"argument", b"rights"];
        let script = Script::build_in(&mut scratch, b"text", inputs, 1, [&b"k"[..]], LIMITS, true).unwrap();
        assert_eq!((script.rights(), script.arguments().count()), (None, 2));
        let script = script.with_options(ScriptOptions { has_rights: true, ..ScriptOptions::default() });
        assert_eq!(script.rights(), Some(&b"rights"[..]));
        assert_eq!(script.arguments().collect::<Vec<_>>(), [b"argument"]);
        assert_eq!(script.extent().collect::<Vec<_>>(), [b"k"]);
    }
}

//! A command with the bytes it needs from values stored outside the table.

use super::declaration::{Adds, Effect, Inner, Wrapper};
use super::{Command, List};
use crate::codec::{Malformed, Reader, Writer};
use crate::coded::Reference;

/// Values, each with the key that refers to it, and the command that needs them. The command is carried out as if the table
/// held the values, provided that the keys still refer to them. All of this is one record, so nothing comes in between.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Supplied<'a> {
    /// Keys, references and values, alternating. Checked: the references are valid.
    values: List<'a>,
    /// The encoded command. Checked: it can be decoded.
    command: &'a [u8],
}

impl std::fmt::Debug for Supplied<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let references: Vec<Reference> = self.values().map(|(_, reference, _)| reference).collect();
        write!(formatter, "Supplied {{ {references:?}: {:?} }}", self.command())
    }
}

impl<'a> Supplied<'a> {
    /// A command, given in its encoding, with values that are encoded in `scratch`. `None` for a command that needs no
    /// values, or that no client can have sent.
    pub fn build<'v>(
        values: impl IntoIterator<Item = (&'v [u8], Reference, &'v [u8])>,
        command: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Option<Supplied<'a>> {
        let items = values.into_iter().map(|(key, reference, value)| (key, reference.encoded(), value));
        let items: Vec<_> = items.collect();
        let items = items.iter().flat_map(|(key, reference, value)| [*key, &reference[..], *value]);
        let values = List::build(scratch, items);
        Supplied { values, command }.checked().ok()
    }

    fn checked(self) -> Result<Supplied<'a>, Malformed> {
        let mut items = self.values.iter();
        while let Some(_key) = items.next() {
            Reference::decode(items.next().unwrap_or_default())?;
            items.next().ok_or(Malformed("a value that is not supplied"))?;
        }
        if !Wrapper::Supplied.can_contain(self.command) {
            return Err(Malformed("a command that cannot be supplied with values"));
        }
        let mut rest = Reader::new(self.command);
        Command::decode(&mut rest)?;
        match rest.is_empty() {
            true => Ok(self),
            false => Err(Malformed("bytes behind a supplied command")),
        }
    }

    /// Each key with its reference and the value.
    pub fn values(&self) -> impl Iterator<Item = (&'a [u8], Reference, &'a [u8])> + use<'a> {
        let mut items = self.values.iter();
        std::iter::from_fn(move || {
            let (key, reference) = (items.next()?, items.next()?);
            Some((key, Reference::decode(reference).ok()?, items.next()?))
        })
    }

    /// Decodes the command. Always succeeds, as the command was checked.
    pub fn command(&self) -> Option<Command<'a>> {
        Command::decode(&mut Reader::of_checked(self.command)).ok()
    }
}

impl<'a> Inner<'a> for Supplied<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        self.values.encode(out);
        out.put_bytes(self.command);
    }

    fn take(_: u8, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let supplied = Supplied { values: List::decode(reader)?, command: reader.bytes()? };
        if reader.is_checked() { Ok(supplied) } else { supplied.checked() }
    }

    fn is_write(&self) -> bool {
        true
    }

    fn visit_keys(&self, visit: &mut impl FnMut(&'a [u8])) {
        if let Some(command) = self.command() {
            command.for_each_key(visit as &mut dyn FnMut(&'a [u8]));
        }
    }

    /// Those of the values and of the command.
    fn bytes(&self) -> usize {
        self.values.bytes() + self.command.len()
    }

    fn name(&self) -> &'static str {
        self.command().map_or("this command", |command| command.name())
    }

    /// It was admitted before its values were fetched.
    fn effect(&self) -> Effect {
        Effect::Changes
    }

    fn adds(&self) -> Adds {
        match self.command().is_some_and(|command| command.grows_with_the_table()) {
            true => Adds::Unforeseen,
            false => Adds::More,
        }
    }
}

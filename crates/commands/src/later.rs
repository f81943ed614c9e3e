//! Errors that are found only after the keys were looked at.
//!
//! Redis looks at the key of some commands before it reads all arguments, and clients can see that: `LINDEX nosuch x` is null.
//! Here arguments are parsed where the client is connected, and keys are elsewhere. So such an error carries what would have
//! been answered for the keys ([`Looks`]), and the request becomes a [`kv::Foreseen`], which is sent to the keys' group.

use kv::{Answer, Command, Foreseen, Kinds, Looked};
use std::ops::Range;
use wire::resp::Arguments;

use super::CommandError;
use super::arguments::at;

/// An error, and what is looked at before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Later {
    pub(super) error: CommandError,
    looks: Looks,
}

/// What a command looks at before it reads an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Looks {
    /// The arguments that are keys.
    keys: Range<usize>,
    kinds: Kinds,
    other: Option<&'static str>,
    missing: Option<Answer<'static>>,
    /// The argument that names a consumer group.
    group: Option<usize>,
}

impl Looks {
    /// At the key at `index`, which must hold one of these kinds if it exists.
    pub(super) fn at(index: usize, kinds: Kinds) -> Looks {
        Looks::at_all(index..index + 1, kinds)
    }

    /// At several keys.
    pub(super) fn at_all(keys: Range<usize>, kinds: Kinds) -> Looks {
        Looks { keys, kinds, other: None, missing: None, group: None }
    }

    /// The answer if a key is missing.
    pub(super) fn or(self, missing: Answer<'static>) -> Looks {
        Looks { missing: Some(missing), ..self }
    }

    /// The error if a key holds another kind of value.
    pub(super) fn or_else(self, other: &'static str) -> Looks {
        Looks { other: Some(other), ..self }
    }

    /// The stream must have the group that the argument at `index` names.
    pub(super) fn with_group(self, index: usize) -> Looks {
        Looks { group: Some(index), ..self }
    }

    /// Reads an argument after the keys were looked at.
    pub(super) fn then<T>(self, read: Result<T, CommandError>) -> Result<T, CommandError> {
        read.map_err(|error| CommandError::Later(Box::new(Later { error, looks: self })))
    }
}

/// The answer to a key that is missing where one is needed.
pub(super) const NO_SUCH_KEY: Answer<'static> = Answer::Error(b"ERR no such key");

/// `OBJECT REFCOUNT` within a transaction or a script: 1 if there is a value.
///
/// # Errors
/// [`CommandError`] if the argument can be no key.
pub fn reference_count<'a>(
    arguments: Arguments<'a>,
    scratch: &'a mut Vec<u8>,
) -> Result<Command<'a>, CommandError> {
    let key = super::arguments::key(arguments, 2)?;
    let looked = Looked { kinds: Kinds::ANY, other: None, missing: Some(Answer::Null), group: None };
    Ok(Command::Foreseen(Foreseen::build(scratch, Answer::Integer(1), looked, [key].into_iter())))
}

impl CommandError {
    /// The command that answers the request in the place of the one with this error, if the keys decide. It is built in
    /// `scratch`.
    #[cold]
    pub fn foreseen<'a>(&self, arguments: Arguments<'a>, scratch: &'a mut Vec<u8>) -> Option<Command<'a>> {
        let CommandError::Later(later) = self else { return None };
        let Looks { keys, kinds, other, missing, group } = &later.looks;
        if keys.clone().any(|index| super::arguments::key(arguments, index).is_err()) {
            return None;
        }
        let group = group.map(|index| at(arguments, index));
        let looked = Looked { kinds: *kinds, other: *other, missing: *missing, group };
        let text = later.error.to_string();
        let keys = keys.clone().map(|index| at(arguments, index));
        Some(Command::Foreseen(Foreseen::build(scratch, Answer::Error(text.as_bytes()), looked, keys)))
    }
}

//! The parts of the command table's rows: flags that many rows share, positions of keys, and the kinds of rows.

use crate::spec::Category::{Connection, Scripting as ScriptingCategory};
use crate::spec::Flag::{
    Admin, AllowBusy, DenyOom, Fast, Loading, NoAuth, NoMandatoryKeys, NoMulti, NoScript, ReadOnly,
    SkipMonitor, Stale, Write,
};
use crate::spec::KeyFlag::{Access, Delete, Insert, Overwrite, ReadWrite, Remove, Update};
use crate::spec::NodeCommand::{self, Client, Help};
use crate::spec::{
    Begin, Categories, Category, ClientCommand, CommandSpec, Find, Flags, Group, Handler, KeyFlag, KeyFlags,
    KeySpec, KeySpecs, ParseFn, RunScript, ScriptCommand, WaitFn,
};

// Flags that several commands share.
pub(super) const READ: Flags = Flags::of(&[ReadOnly]);
pub(super) const STORE: Flags = Flags::of(&[Write, DenyOom]);
pub(super) const ANY_TIME: Flags = Flags::of(&[Loading, Stale]);
pub(super) const OPERATORS: Flags = Flags::of(&[Admin, NoScript, Loading, Stale]);
/// Operators' commands that the whole cluster has to agree to.
pub(super) const CLUSTER_WIDE: Flags = OPERATORS.with(&[NoMulti]);
pub(super) const GUARDS: Flags = Flags::of(&[NoScript, Loading, Stale, Fast, AllowBusy]);
/// Commands on locks: not in a transaction, which cannot wait, and not in a script, whose changes of locks could not be undone.
pub(super) const LOCKS: Flags = Flags::of(&[NoScript, NoMulti]);
pub(super) const BEFORE_AUTH: Flags = Flags::of(&[NoScript, Loading, Stale, Fast, NoAuth, AllowBusy]);

// Access to keys.
pub(super) const LOOKS_AT: KeyFlags = KeyFlags::of(&[KeyFlag::ReadOnly]);
pub(crate) const READS: KeyFlags = KeyFlags::of(&[KeyFlag::ReadOnly, Access]);
pub(crate) const CHANGES: KeyFlags = KeyFlags::of(&[ReadWrite, Access, Update]);
pub(crate) const UPDATES: KeyFlags = KeyFlags::of(&[ReadWrite, Update]);
pub(crate) const TAKES: KeyFlags = KeyFlags::of(&[ReadWrite, Access, Delete]);
pub(crate) const REPLACES: KeyFlags = KeyFlags::of(&[Overwrite, Update]);
pub(super) const INSERTS: KeyFlags = KeyFlags::of(&[Overwrite, Insert]);
pub(crate) const REMOVES: KeyFlags = KeyFlags::of(&[Remove, Delete]);

// Positions of keys.
/// The keys from a position on to `last`: see [`Find::Range`].
pub(super) const fn range(first: u8, last: i8, access: KeyFlags) -> KeySpec {
    KeySpec { access, begin: Begin::At(first), find: Find::Range { last, step: 1 } }
}

/// Keys that follow their number, which is at a position.
pub(super) const fn counted(at: u8, access: KeyFlags) -> KeySpec {
    KeySpec { access, begin: Begin::At(at), find: Find::Counted { step: 1 } }
}

/// The key after an option.
pub(super) const fn after(begin: Begin, access: KeyFlags) -> KeySpec {
    KeySpec { access, begin, find: Find::Range { last: 0, step: 1 } }
}

pub(super) const fn key(access: KeyFlags) -> KeySpecs {
    KeySpecs::of(&[range(1, 0, access)])
}

pub(super) const fn second_key(access: KeyFlags) -> KeySpecs {
    KeySpecs::of(&[range(2, 0, access)])
}

pub(super) const fn two_keys(first: KeyFlags, second: KeyFlags) -> KeySpecs {
    KeySpecs::of(&[range(1, 0, first), range(2, 0, second)])
}

pub(super) const fn keys(access: KeyFlags) -> KeySpecs {
    KeySpecs::of(&[range(1, -1, access)])
}

/// A key, and others after it.
pub(super) const fn key_and_others(first: KeyFlags, others: KeyFlags) -> KeySpecs {
    KeySpecs::of(&[range(1, 0, first), range(2, -1, others)])
}

/// Keys, and one argument after them.
pub(super) const fn keys_before_last(access: KeyFlags) -> KeySpecs {
    KeySpecs::of(&[range(1, -2, access)])
}

pub(super) const fn keys_with_values(access: KeyFlags) -> KeySpecs {
    KeySpecs::of(&[KeySpec { access, begin: Begin::At(1), find: Find::Range { last: -1, step: 2 } }])
}

/// Keys that follow their number, which is the argument at `at`.
pub(super) const fn counted_keys(at: u8, access: KeyFlags) -> KeySpecs {
    KeySpecs::of(&[counted(at, access)])
}

/// Keys that follow their number, which is the first argument, each with a value behind it.
pub(super) const fn counted_keys_with_values(access: KeyFlags) -> KeySpecs {
    KeySpecs::of(&[KeySpec { access, begin: Begin::At(1), find: Find::Counted { step: 2 } }])
}

/// Keys after the word `STREAMS`, with as many ids after them. The word is searched for from the index `from` on.
pub(super) const fn streams(access: KeyFlags, from: u8) -> KeySpecs {
    KeySpecs::of(&[KeySpec { access, begin: Begin::After("STREAMS", from), find: Find::Half }])
}

// Each kind of row is named after what executes the command.
pub(super) const fn row(name: &'static str, arity: i16, handler: Handler) -> CommandSpec {
    CommandSpec {
        name,
        arity,
        flags: Flags::NONE,
        keys: KeySpecs::NONE,
        own_categories: Categories::NONE,
        tips: &[],
        group: Group::Generic,
        since: "",
        complexity: "",
        summary: "",
        syntax: "",
        subcommands: &[],
        handler,
        wait: None,
    }
}

pub(super) const fn data(name: &'static str, arity: i16, parse: ParseFn) -> CommandSpec {
    row(name, arity, Handler::Data(parse))
}

pub(super) const fn node(name: &'static str, arity: i16, command: NodeCommand) -> CommandSpec {
    row(name, arity, Handler::Node(command))
}

pub(super) const fn container(name: &'static str, subcommands: &'static [CommandSpec]) -> CommandSpec {
    CommandSpec { subcommands, ..row(name, -2, Handler::Container) }
}

pub(super) const fn client(name: &'static str, arity: i16, command: ClientCommand) -> CommandSpec {
    node(name, arity, Client(command))
        .flags(Flags::of(&[NoScript, Loading, Stale]))
        .in_categories(&[Connection])
}

pub(super) const fn script(name: &'static str, how: RunScript) -> CommandSpec {
    let flags = Flags::of(&[NoScript, Stale, SkipMonitor, NoMandatoryKeys]);
    node(name, -3, NodeCommand::Script(ScriptCommand::Run(how)))
        .flags(if how.only_reads { flags.with(&[ReadOnly]) } else { flags })
        .keys(counted_keys(2, if how.only_reads { READS } else { CHANGES }))
        .in_categories(&[ScriptingCategory])
}

pub(super) const fn help_of(name: &'static str) -> CommandSpec {
    node(name, 2, Help).flags(ANY_TIME).help("", "Prints this help")
}

impl CommandSpec {
    pub(super) const fn flags(self, flags: Flags) -> Self {
        CommandSpec { flags, ..self }
    }

    pub(super) const fn keys(self, keys: KeySpecs) -> Self {
        CommandSpec { keys, ..self }
    }

    pub(super) const fn in_categories(self, categories: &[Category]) -> Self {
        CommandSpec { own_categories: Categories::of(categories), ..self }
    }

    pub(super) const fn tips(self, tips: &'static [&'static str]) -> Self {
        CommandSpec { tips, ..self }
    }

    pub(super) const fn docs(self, group: Group, since: &'static str, complexity: &'static str) -> Self {
        CommandSpec { group, since, complexity, ..self }
    }

    pub(super) const fn waits(self, wait: WaitFn) -> Self {
        CommandSpec { wait: Some(wait), ..self }
    }

    pub(super) const fn help(self, syntax: &'static str, summary: &'static str) -> Self {
        CommandSpec { syntax, summary, ..self }
    }
}

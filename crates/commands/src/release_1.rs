//! What programs of release 1 take commands to be, where that decides what a script's caller may do.
//!
//! A script's record holds its caller's rules as text, and every replica has to read them alike. As long as the cluster has
//! nodes of release 1, which know other categories and another use of some keys, all nodes read the rules as those do.

use super::arguments::is;
use super::introspection::{places_after, visit_keys};
use super::spec::{Categories, Category, KeyFlags};
use super::table::{CHANGES, READS, REMOVES, REPLACES, TAKES, UPDATES};
use super::{CommandError, CommandSpec};
use wire::resp::Arguments;

/// The categories of a command, as far as scripts may call it.
pub(crate) fn categories(spec: &CommandSpec) -> Categories {
    match spec.name {
        "lastsave" => Categories::of(&[Category::Fast, Category::Dangerous]),
        _ => spec.categories(),
    }
}

/// See [`super::introspection::for_each_key`].
///
/// # Errors
/// If the arguments do not show which of them are keys.
pub(crate) fn for_each_key(
    spec: &CommandSpec,
    command: Arguments<'_>,
    mut each: impl FnMut(usize, KeyFlags),
) -> Result<(), CommandError> {
    visit_keys(
        spec,
        command,
        |_| false,
        |place, access| each(place, access_of(spec, command, place, access)),
    )?;
    if matches!(spec.name, "sort" | "georadius" | "georadiusbymember") {
        let stored = places_after(command, "STORE", 2).chain(places_after(command, "STOREDIST", 2));
        stored.for_each(|place| each(place, REPLACES));
    }
    if spec.name == "set" {
        places_after(command, "FENCE", 2).for_each(|place| each(place, READS));
    }
    Ok(())
}

fn access_of(spec: &CommandSpec, command: Arguments<'_>, place: usize, access: KeyFlags) -> KeyFlags {
    match spec.name {
        "georadius" | "georadiusbymember" | "xclaim" | "xautoclaim" | "zadd" => UPDATES,
        "pfmerge" if place == 1 => UPDATES,
        "xack" => TAKES,
        "delifeq" => REMOVES,
        "set" | "delex" => match command.iter().skip(3).any(|option| is(option, "GET")) {
            true => CHANGES,
            false => REPLACES,
        },
        _ => access,
    }
}

//! Answers `COMMAND`, its subcommands and the `HELP` of containers from the command table.
//!
//! The forms are those of Redis 7, which client libraries and `redis-cli` read.

use kv::glob::Pattern;
use kv::number::parse_integer;
use kv::{Reply, ReplyBuffer};
use std::iter::StepBy;
use std::ops::Range;
use wire::resp::Arguments;

use super::arguments::{at, counted, is, streams};
use super::keyspace::checked_pattern;
use super::spec::{Begin, Category, Find, Flag, KeyFlag, KeyFlags, KeySpec, KeySpecs};
use super::table::{CHANGES, READS, REMOVES, REPLACES, TAKES, UPDATES};
use super::{COMMANDS, CommandCommand, CommandError, CommandSpec};
use super::{all, by_full_name, named};

/// Answers `COMMAND` or one of its subcommands, possibly with an error. `request` is the whole request.
pub fn answer(command: CommandCommand, request: Arguments<'_>, out: &mut ReplyBuffer) {
    let answered = match command {
        CommandCommand::List => list(request, out),
        CommandCommand::GetKeys => keys(request.skip(2), false, out),
        CommandCommand::GetKeysAndFlags => keys(request.skip(2), true, out),
        CommandCommand::All | CommandCommand::Count | CommandCommand::Info | CommandCommand::Docs => {
            describe(command, request, out);
            Ok(())
        }
    };
    // None of them writes anything before it refuses.
    if let Err(error) = answered {
        out.error(&error.to_string());
    }
}
/// Answers `HELP`, given its own row of the table or that of its container: lists each subcommand with its arguments and,
/// indented, its summary.
pub fn help(spec: &CommandSpec, out: &mut ReplyBuffer) {
    let name = spec.name.split('|').next().unwrap_or_default();
    let container = by_full_name(name.as_bytes()).unwrap_or(spec);
    let name = name.to_ascii_uppercase();
    let mut lines = vec![format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for spec in container.subcommands {
        let subcommand = spec.short_name().to_ascii_uppercase();
        lines.push(format!("{subcommand} {}", spec.syntax).trim_end().to_string());
        lines.push(format!("    {}.", spec.summary));
    }
    out.array(lines.len());
    lines.iter().for_each(|line| out.push(Reply::Status(line.as_bytes())));
}

fn list(request: Arguments<'_>, out: &mut ReplyBuffer) -> Result<(), CommandError> {
    let wanted: &dyn Fn(&CommandSpec) -> bool = match request.len() {
        2 => &|_| true,
        5 if is(at(request, 2), "FILTERBY") => {
            let (filter, argument) = (at(request, 3), at(request, 4));
            if is(filter, "MODULE") {
                // There are no modules, so no command comes from one.
                &|_| false
            } else if is(filter, "ACLCAT") {
                &move |spec| spec.categories().iter().any(|category| is(argument, category.name()))
            } else if is(filter, "PATTERN") {
                let argument = checked_pattern(argument)?;
                let pattern = Pattern::new(&argument.to_ascii_lowercase());
                &move |spec| pattern.matches(spec.name.as_bytes())
            } else {
                return Err(CommandError::Syntax);
            }
        }
        _ => return Err(CommandError::Syntax),
    };
    let names: Vec<_> = all().filter(|spec| wanted(spec)).map(|spec| spec.name).collect();
    out.array(names.len());
    names.iter().for_each(|name| out.bulk(name.as_bytes()));
    Ok(())
}

fn describe(command: CommandCommand, request: Arguments<'_>, out: &mut ReplyBuffer) {
    let named = request.skip(2);
    match command {
        CommandCommand::Count => out.integer(COMMANDS.len() as i64),
        CommandCommand::Docs if named.is_empty() => docs(COMMANDS.iter(), out),
        CommandCommand::Docs => docs(named.iter().filter_map(by_full_name), out),
        CommandCommand::Info if !named.is_empty() => {
            out.array(named.len());
            for name in named.iter() {
                match by_full_name(name) {
                    Some(spec) => info(spec, out),
                    None => out.null(),
                }
            }
        }
        _ => all_infos(out),
    }
}

fn all_infos(out: &mut ReplyBuffer) {
    out.array(COMMANDS.len());
    COMMANDS.iter().for_each(|spec| info(spec, out));
}

/// Appends ten elements about a command: name, arity, flags, first and last key, step, categories, tips, keys,
/// subcommands.
fn info(spec: &CommandSpec, out: &mut ReplyBuffer) {
    out.array(10);
    out.bulk(spec.name.as_bytes());
    out.integer(spec.arity.into());
    words(spec.shown_flags().iter().map(Flag::name), out);
    let ((first, last, step), _) = spec.keys.legacy();
    [first as i64, last as i64, step.into()].into_iter().for_each(|number| out.integer(number));
    let categories: Vec<_> =
        spec.categories().iter().map(|category: Category| format!("@{}", category.name())).collect();
    words(categories.iter().map(String::as_str), out);
    out.push(Reply::Set(spec.tips.len() as u32));
    spec.tips.iter().for_each(|tip| out.bulk(tip.as_bytes()));
    key_specs(&spec.keys, out);
    out.array(spec.subcommands.len());
    spec.subcommands.iter().for_each(|subcommand| info(subcommand, out));
}

fn words<'w>(words: impl Iterator<Item = &'w str>, out: &mut ReplyBuffer) {
    let words: Vec<_> = words.collect();
    out.push(Reply::Set(words.len() as u32));
    words.iter().for_each(|word| out.push(Reply::Status(word.as_bytes())));
}

/// Appends where the keys are, in the newer form: one map for each specification.
fn key_specs(keys: &KeySpecs, out: &mut ReplyBuffer) {
    out.push(Reply::Set(keys.iter().len() as u32));
    for spec in keys.iter() {
        out.map(3);
        out.bulk(b"flags");
        words(spec.access.iter().map(KeyFlag::name), out);
        out.bulk(b"begin_search");
        let number = |at: u8| Reply::Integer(at.into());
        match spec.begin {
            Begin::At(at) => kind("index", &[("index", number(at))], out),
            Begin::After(word, from) => {
                let word = Reply::Bulk(word.as_bytes());
                kind("keyword", &[("keyword", word), ("startfrom", number(from))], out);
            }
            Begin::AfterUnsure(..) | Begin::Unknown => kind("unknown", &[], out),
        }
        out.bulk(b"find_keys");
        let range = |last: i8, step: u8, limit: i64, out: &mut ReplyBuffer| {
            let last = Reply::Integer(last.into());
            kind(
                "range",
                &[("lastkey", last), ("keystep", number(step)), ("limit", Reply::Integer(limit))],
                out,
            );
        };
        match (spec.begin, spec.find) {
            (Begin::AfterUnsure(..) | Begin::Unknown, _) => kind("unknown", &[], out),
            (_, Find::Range { last, step }) => range(last, step, 0, out),
            (_, Find::Half) => range(-1, 1, 2, out),
            // These are counted from where the search begins.
            (_, Find::Counted { step }) => {
                let facts = [("keynumidx", 0), ("firstkey", 1), ("keystep", step.into())];
                kind("keynum", &facts.map(|(name, value)| (name, Reply::Integer(value))), out);
            }
        }
    }
}

/// Appends how keys are searched for or found.
fn kind(name: &str, facts: &[(&str, Reply<'_>)], out: &mut ReplyBuffer) {
    out.map(2);
    out.bulk(b"type");
    out.bulk(name.as_bytes());
    out.bulk(b"spec");
    out.map(facts.len());
    for (name, fact) in facts {
        out.bulk(name.as_bytes());
        out.push(*fact);
    }
}

fn docs<'s>(specs: impl Iterator<Item = &'s CommandSpec> + Clone, out: &mut ReplyBuffer) {
    out.map(specs.clone().count());
    for spec in specs {
        out.bulk(spec.name.as_bytes());
        let facts = [
            ("summary", spec.summary),
            ("since", spec.since),
            ("group", spec.group.name()),
            ("complexity", spec.complexity),
        ];
        let (has_arguments, is_container) = (!spec.syntax.is_empty(), !spec.subcommands.is_empty());
        out.map(facts.len() + has_arguments as usize + is_container as usize);
        for (name, fact) in facts {
            out.bulk(name.as_bytes());
            out.bulk(fact.as_bytes());
        }
        if has_arguments {
            out.bulk(b"arguments");
            arguments(spec.syntax, out);
        }
        if is_container {
            out.bulk(b"subcommands");
            docs(spec.subcommands.iter(), out);
        }
    }
}

/// Appends the arguments of a command, from which `redis-cli` makes its hints. Each is named as it is written in the
/// table; what is inside brackets is not parsed.
fn arguments(syntax: &str, out: &mut ReplyBuffer) {
    let mut depth = 0;
    let outside_brackets = |letter: char| {
        depth += (letter == '[') as i32 - (letter == ']') as i32;
        letter == ' ' && depth == 0
    };
    let items: Vec<&str> = syntax.split(outside_brackets).collect();
    out.array(items.len());
    for item in items {
        let optional = item.strip_prefix('[').and_then(|item| item.strip_suffix(']'));
        out.map(if optional.is_some() { 3 } else { 2 });
        out.bulk(b"name");
        out.bulk(optional.unwrap_or(item).as_bytes());
        out.bulk(b"type");
        out.bulk(b"string");
        if optional.is_some() {
            out.bulk(b"flags");
            words(["optional"].into_iter(), out);
        }
    }
}

/// The positions of keys that follow their number.
fn counted_places(
    spec: &CommandSpec,
    command: Arguments<'_>,
    at: usize,
    step: u8,
) -> Result<StepBy<Range<usize>>, CommandError> {
    let places = if spec.flags.has(Flag::NoMandatoryKeys) {
        let most = command.len().saturating_sub(at + 1);
        let count = command.get(at).and_then(parse_integer).and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|count| *count <= most).ok_or(CommandError::GetKeysWrongArity)?;
        at + 1..at + 1 + count
    } else {
        counted(command, at, step)?
    };
    Ok(places.step_by(step.into()))
}

/// Calls `each` with the place of every key of a whole command, counted from its name, and the access to it. No key is
/// left out, but where a word might be an option, a place that is not a key may be included.
///
/// # Errors
/// If the arguments do not show which of them are keys.
pub(crate) fn for_each_key(
    spec: &CommandSpec,
    command: Arguments<'_>,
    each: impl FnMut(usize, KeyFlags),
) -> Result<(), CommandError> {
    visit_keys(spec, command, |_| true, each)
}

/// Does what [`for_each_key`] does, but keys that options name are visited only if `is_visited` is true of their places.
pub(super) fn visit_keys(
    spec: &CommandSpec,
    command: Arguments<'_>,
    is_visited: impl Fn(usize) -> bool,
    mut each: impl FnMut(usize, KeyFlags),
) -> Result<(), CommandError> {
    let end = command.len() as isize;
    for keys in spec.keys.iter().filter(|keys| !keys.access.has(KeyFlag::NotKey)) {
        let access = access_of(spec, keys, command);
        let mut each = |place: usize| each(place, access);
        match (keys.begin, keys.find) {
            (Begin::At(first), Find::Range { last, step }) => {
                let last =
                    if last < 0 { end + isize::from(last) } else { isize::from(first) + isize::from(last) };
                let places = first.into()..(last.min(end - 1) + 1).max(0) as usize;
                places.step_by(step.into()).for_each(&mut each);
            }
            (Begin::At(at), Find::Counted { step }) => match counted_places(spec, command, at.into(), step) {
                Ok(places) => places.for_each(&mut each),
                // A request without a valid number of keys runs no script.
                Err(_) if spec.flags.has(Flag::NoMandatoryKeys) => {}
                Err(error) => return Err(error),
            },
            (Begin::After(_, from), Find::Half) => {
                streams(command, from).ok_or(CommandError::GetKeysWrongCount)?.for_each(&mut each);
            }
            (Begin::After(word, from) | Begin::AfterUnsure(word, from), _) => {
                let places = places_after(command, word, from.into());
                places.filter(|place| is_visited(*place)).for_each(&mut each);
            }
            (Begin::Unknown, _) | (Begin::At(_), Find::Half) => {}
        }
    }
    if spec.name == "set" {
        let places = places_after(command, "FENCE", 3);
        places.filter(|place| is_visited(*place)).for_each(|place| each(place, READS));
    }
    Ok(())
}

/// The places behind a word. Whether it is an option depends on the words before it: every word that might be one counts.
pub(super) fn places_after(
    command: Arguments<'_>,
    word: &'static str,
    from: usize,
) -> impl DoubleEndedIterator<Item = usize> {
    let places = from..command.len().saturating_sub(1);
    places.filter(move |place| is(at(command, *place), word)).map(|place| place + 1)
}

/// What a command does with the keys of one specification, which its options may decide.
fn access_of(spec: &CommandSpec, keys: &KeySpec, command: Arguments<'_>) -> KeyFlags {
    if !keys.access.has(KeyFlag::Variable) {
        return keys.access;
    }
    let has = |from: usize, words: &[&str]| {
        command.iter().skip(from).any(|given| words.iter().any(|word| is(given, word)))
    };
    match spec.name {
        "bitfield" if only_gets_fields(command) => READS,
        // A client that can compare a value with its guesses can find the value out.
        "set" if !has(3, &["GET", "IFEQ", "IFNE", "IFDEQ", "IFDNE"]) => REPLACES,
        "delex" if !has(2, &["IFEQ", "IFNE", "IFDEQ", "IFDNE"]) => REMOVES,
        "delex" => TAKES,
        // The new score is that of before and the increment; with CH and a comparison, its answer compares scores.
        "zadd" if !(has(2, &["INCR"]) || has(2, &["CH"]) && has(2, &["GT", "LT"])) => UPDATES,
        _ => CHANGES,
    }
}

/// Whether a `BITFIELD` has no other operations than `GET`. What is none at all may be a write, as in Redis.
fn only_gets_fields(command: Arguments<'_>) -> bool {
    let mut place = 2;
    while place < command.len() {
        let taken = match at(command, place) {
            word if is(word, "GET") => 3,
            word if is(word, "OVERFLOW") => 2,
            _ => return false,
        };
        place += taken;
    }
    place == command.len().max(2)
}

/// The keys of a whole command that carries them out as it is, with the access to each: of several options, the last one counts.
fn keys_of(spec: &CommandSpec, command: Arguments<'_>) -> Result<Vec<(usize, KeyFlags)>, CommandError> {
    let is_key = |keys: &&KeySpec| !keys.access.has(KeyFlag::NotKey);
    if !spec.keys.iter().any(|keys| is_key(&keys)) {
        return Err(CommandError::GetKeysWithoutKeys);
    }
    if !spec.takes(command.len()) {
        return Err(CommandError::GetKeysWrongArity);
    }
    let counts = |keys: &KeySpec| match (keys.begin, keys.find) {
        (Begin::At(at), Find::Counted { step }) => Some((at, step)),
        _ => None,
    };
    if let Some((at, step)) = spec.keys.iter().find_map(counts)
        && let Err(error) = counted_places(spec, command, at.into(), step)
    {
        let is_script = spec.flags.has(Flag::NoMandatoryKeys);
        return Err(if is_script { error } else { CommandError::GetKeysWrongCount });
    }
    let option = |keys: &KeySpec| match (keys.begin, keys.find) {
        (Begin::After(word, from) | Begin::AfterUnsure(word, from), Find::Range { .. }) => {
            places_after(command, word, from.into()).next_back()
        }
        _ => None,
    };
    let last = spec.keys.iter().filter_map(option).max();
    let mut found = Vec::new();
    visit_keys(spec, command, |place| Some(place) == last, |place, access| found.push((place, access)))?;
    Ok(found)
}

/// The positions of the keys of a whole command, counted from 0, its name.
///
/// # Errors
/// [`CommandError`] if there is no such command, it has no keys, or its arguments do not show which of them are keys.
pub fn key_positions(command: Arguments<'_>) -> Result<Vec<usize>, CommandError> {
    let spec = named(command).map_err(|_| CommandError::GetKeysUnknownCommand)?.spec;
    Ok(keys_of(spec, command)?.into_iter().map(|(place, _)| place).collect())
}

/// Appends the keys of a whole command, with the access to each if `with_flags`.
fn keys(command: Arguments<'_>, with_flags: bool, out: &mut ReplyBuffer) -> Result<(), CommandError> {
    let spec = named(command).map_err(|_| CommandError::GetKeysUnknownCommand)?.spec;
    let found = keys_of(spec, command)?;
    out.array(found.len());
    for (place, access) in found {
        if with_flags {
            out.array(2);
        }
        out.bulk(at(command, place));
        if with_flags {
            words(access.iter().map(KeyFlag::name), out);
        }
    }
    Ok(())
}

/// `DEBUG PROTOCOL`: appends Redis's example of a reply of this kind, or an error if there is no such kind.
#[allow(clippy::approx_constant)] // Redis's example of a number is not pi.
pub fn example(kind: &[u8], out: &mut ReplyBuffer) {
    match &*kind.to_ascii_lowercase() {
        b"string" => out.bulk(b"Hello World"),
        b"integer" => out.integer(12345),
        b"double" => out.push(Reply::Double(3.141)),
        b"null" => out.null(),
        b"array" => {
            out.array(3);
            (0..3).for_each(|number| out.integer(number));
        }
        b"set" => {
            out.push(Reply::Set(3));
            (0..3).for_each(|number| out.integer(number));
        }
        b"map" => {
            out.map(3);
            for number in 0..3 {
                out.integer(number);
                out.push(Reply::Boolean(number == 1));
            }
        }
        b"verbatim" => out.push(Reply::Text(b"This is a verbatim\nstring")),
        b"true" => out.push(Reply::Boolean(true)),
        b"false" => out.push(Reply::Boolean(false)),
        b"bignum" => out.push(Reply::BigNumber(b"1234567999999999999999999999999999999")),
        b"attrib" | b"push" => out.error("ERR no reply has attributes here, and none to a command is a push"),
        _ => out.error(
            "ERR Wrong protocol type name. Please use one of the following: \
             string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Handler, NodeCommand, find};
    use wire::resp::{ArgumentsBuffer, Protocol, write_reply};

    /// Returns the answer as a RESP3 client sees it, with its line ends as spaces.
    fn asked(line: &str) -> String {
        let request: ArgumentsBuffer = line.split(' ').map(str::as_bytes).collect();
        let mut replies = ReplyBuffer::new();
        match find(request.as_arguments()).map(|found| (found, found.spec.handler)) {
            Ok((_, Handler::Node(NodeCommand::Command(command)))) => {
                answer(command, request.as_arguments(), &mut replies);
            }
            Ok((found, Handler::Node(NodeCommand::Help))) => help(found.spec, &mut replies),
            other => panic!("{line}: {other:?}"),
        }
        let mut bytes = Vec::new();
        write_reply(replies.as_bytes(), Protocol::Resp3, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap().replace("\r\n", " ").trim_end().to_string()
    }

    #[test]
    fn info_has_the_ten_elements_of_redis_7() {
        assert_eq!(
            asked("COMMAND INFO get nosuch"),
            "*2 *10 $3 get :2 ~2 +readonly +fast :1 :1 :1 ~3 +@read +@string +@fast ~0 ~1 %3 $5 flags ~2 +RO \
             +access $12 begin_search %2 $4 type $5 index $4 spec %1 $5 index :1 $9 find_keys %2 $4 type $5 \
             range $4 spec %3 $7 lastkey :0 $7 keystep :1 $5 limit :0 *0 _"
        );
        assert!(asked("COMMAND INFO config|get").starts_with("*1 *10 $10 config|get :-3 ~4 +admin"));
        assert!(asked("COMMAND INFO object").contains("$15 object|encoding :3 ~1 +readonly :2 :2 :1"));
        assert_eq!(asked("COMMAND"), asked("COMMAND INFO"));
    }

    #[test]
    fn docs_are_a_map_of_maps() {
        assert_eq!(
            asked("COMMAND DOCS del nosuch"),
            "%1 $3 del %5 $7 summary $44 Removes keys and returns how many there were $5 since $5 1.0.0 $5 group \
             $7 generic $10 complexity $15 O(N) for N keys $9 arguments *2 %2 $4 name $3 key $4 type $6 string \
             %3 $4 name $7 key ... $4 type $6 string $5 flags ~1 +optional"
        );
        let memory = asked("COMMAND DOCS memory");
        assert!(memory.contains("$11 subcommands %6 $12 memory|usage %5 $7 summary"), "{memory}");
        let hello = asked("COMMAND DOCS hello");
        assert!(
            hello.contains("*1 %3 $4 name $54 protover [AUTH username password] [SETNAME clientname] "),
            "{hello}"
        );
        assert!(asked("COMMAND DOCS").starts_with(&format!("%{} $3 get", COMMANDS.len())));
    }

    #[test]
    fn list_can_be_filtered() {
        assert_eq!(asked("COMMAND COUNT"), format!(":{}", COMMANDS.len()));
        assert!(asked("COMMAND LIST").starts_with(&format!("*{} $3 get $3 set", all().count())));
        assert_eq!(asked("COMMAND LIST FILTERBY PATTERN MSET*"), "*3 $4 mset $6 msetnx $6 msetex");
        assert_eq!(asked("COMMAND LIST FILTERBY PATTERN *|usage"), "*1 $12 memory|usage");
        assert_eq!(asked("COMMAND LIST FILTERBY MODULE json"), "*0");
        assert_eq!(asked("COMMAND LIST FILTERBY ACLCAT nosuch"), "*0");
        assert!(asked("COMMAND LIST filterby aclcat DANGEROUS").contains("flushall"));
        for line in ["COMMAND LIST x", "COMMAND LIST FILTERBY PATTERN", "COMMAND LIST FILTERBY X y"] {
            assert_eq!(asked(line), "-ERR syntax error");
        }
    }

    #[test]
    fn getkeys_reads_keys_out_of_a_command() {
        for (command, expected) in [
            ("GET a", "*1 $1 a"),
            ("MSET a 1 b 2", "*2 $1 a $1 b"),
            ("MSET a 1 b", "*2 $1 a $1 b"),
            ("COPY a b DB 0", "*2 $1 a $1 b"),
            ("LMPOP 2 a b LEFT", "*2 $1 a $1 b"),
            ("XREAD COUNT 1 STREAMS a b 0 0", "*2 $1 a $1 b"),
            ("XREADGROUP GROUP STREAMS c STREAMS a >", "*1 $1 a"),
            ("MSETEX 2 a 1 b 2 NX", "*2 $1 a $1 b"),
            ("MSETEX 3 a 1 b 2", "-ERR Invalid arguments specified for command"),
            ("LMPOP 0 a LEFT", "-ERR Invalid arguments specified for command"),
            ("OBJECT ENCODING a", "*1 $1 a"),
            ("nosuch a", "-ERR Invalid command specified"),
            ("CONFIG nosuch", "-ERR Invalid command specified"),
            ("CONFIG GET", "-ERR The command has no key arguments"),
            ("GET a b", "-ERR Invalid number of arguments specified for command"),
        ] {
            assert_eq!(asked(&format!("COMMAND GETKEYS {command}")), expected, "{command}");
        }
        for (command, expected) in [
            ("SET a 1", "*1 *2 $1 a ~2 +OW +update"),
            ("SET a 1 get", "*1 *2 $1 a ~3 +RW +access +update"),
            ("RENAME a b", "*2 *2 $1 a ~3 +RW +access +delete *2 $1 b ~2 +OW +update"),
            ("SUNIONSTORE a b c", "*3 *2 $1 a ~2 +OW +update *2 $1 b ~2 +RO +access *2 $1 c ~2 +RO +access"),
            ("SORT a STORE b STORE c", "*2 *2 $1 a ~2 +RO +access *2 $1 c ~2 +OW +update"),
            ("LMPOP 1 a LEFT", "*1 *2 $1 a ~3 +RW +access +delete"),
            ("DEL a b", "*2 *2 $1 a ~2 +RM +delete *2 $1 b ~2 +RM +delete"),
        ] {
            assert_eq!(asked(&format!("COMMAND GETKEYSANDFLAGS {command}")), expected, "{command}");
        }
    }

    #[test]
    fn help_lists_the_subcommands_of_the_table() {
        assert_eq!(
            asked("MEMORY HELP"),
            "*13 +MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are: +USAGE key [SAMPLES count] \
             +    Returns how many bytes a key and its value take. \
             +DOCTOR +    Tells whether memory is short on this node, for people. \
             +MALLOC-STATS +    Tells that the allocator's statistics are not shown. \
             +PURGE +    Does nothing: free memory is given back to the system when it is needed. \
             +STATS +    Returns how the memory of this node is used. +HELP +    Prints this help."
        );
        assert!(asked("COMMAND HELP").contains("+COUNT +    Returns the number of commands."));
    }
}

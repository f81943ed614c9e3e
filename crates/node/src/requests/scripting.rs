//! The clients' commands `EVAL`, `FCALL` and similar ones, `SCRIPT`, and `FUNCTION`.
//!
//! The node that a client is connected to looks up a script's text, so that a request to the group holds everything
//! that a replica needs. The node also checks whether a text is a script at all: if not, it never gets into a log.
//!
//! Libraries of functions are in the cluster map. Their changes are acknowledged when no node can run functions by an
//! older map: a node runs them only while it holds the control group's lease, which counts only with the newest map.

use crate::context::{Call, Confirmation, Context};
use crate::messages::envelope::Envelope;
use crate::session::ClientId;
use cluster::control::{Change, Feature};
use cluster::libraries::{self, Flag, Functions, Libraries, Library, Policy, Step};
use commands::users::{self, Table};
use commands::{
    CommandError, Found, FunctionCommand, Handler, NamedBy, NodeCommand, RunScript, ScriptCommand, printable,
};
use kv::glob::PATTERN_BYTES_MAX;
use kv::limits::{KEY_BYTES_MAX, SCRIPT_BYTES_MAX, SCRIPT_COST_DEFAULT};
use kv::number::parse_integer;
use kv::{Reply, ReplyBuffer, Script, ScriptLimits, ScriptOptions, WhenFull};
use rdb::payload::{self, Refusal};
use scripts::{Cache, Digest, Header, check, check_library, digest_of};
use std::rc::Rc;
use wire::resp::Arguments;

/// The length of a script's name.
const DIGEST_LETTERS: usize = 40;

const NOSCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
const NOTBUSY: &str = "NOTBUSY No scripts in execution right now.";

/// Without a lease this node may lack a change of functions that was acknowledged. A node alone makes all changes
/// itself.
pub(crate) const NO_LEASE: &str = "TRYAGAIN NOLEADER the control group has not answered this node for a while, so it may not know the \
     newest functions";

/// The scripts and functions that clients of this node can name.
#[derive(Debug, Default)]
pub(crate) struct Scripting {
    /// Texts, for `EVALSHA`.
    texts: Cache,
    /// The functions of the cluster map.
    functions: Functions,
}

impl Scripting {
    /// The number of texts that are kept, and their bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        self.texts.size()
    }

    /// Forgets all texts.
    pub(crate) fn clear(&mut self) {
        self.texts.clear();
    }

    /// Carries out a command about the scripts that are kept; running one is the group's part.
    pub(crate) fn command(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        command: ScriptCommand,
        arguments: Arguments<'_>,
    ) {
        match command {
            ScriptCommand::Run(_) => unreachable!("the caller sends it to its group"),
            ScriptCommand::Load => self.load_script(cx, client, &arguments[2]),
            ScriptCommand::Exists => {
                let known: Vec<bool> = (arguments.iter().skip(2))
                    .map(|text| Digest::parse(text).is_some_and(|digest| self.texts.has(digest)))
                    .collect();
                cx.answer(client, |replies| {
                    replies.array(known.len());
                    known.iter().for_each(|known| replies.integer(i64::from(*known)));
                });
            }
            ScriptCommand::Flush => {
                if !is_flush_mode(arguments) {
                    let error = "ERR SCRIPT FLUSH only support SYNC|ASYNC option";
                    return cx.answer(client, |replies| replies.error(error));
                }
                self.clear();
                cx.peers.send_to_all(&Envelope::ForgetScripts);
                cx.answer(client, ReplyBuffer::ok);
            }
            ScriptCommand::Show => {
                let digest = Digest::parse(&arguments[2]).filter(|_| arguments[2].len() == DIGEST_LETTERS);
                match digest.and_then(|digest| self.texts.find(digest)) {
                    Some(text) => cx.answer(client, |replies| replies.bulk(text)),
                    None => cx.answer(client, |replies| replies.error(NOSCRIPT)),
                }
            }
            ScriptCommand::Debug => cx.answer(client, |replies| {
                replies.error(
                    "ERR SCRIPT DEBUG is refused: there is no debugger, since a script is a record that every replica runs; run \
                     parts of it with EVAL_RO, and return what you want to see",
                );
            }),
            // Limits end a script before any client could request that.
            ScriptCommand::Kill => {
                cx.answer(client, |replies| replies.error(NOTBUSY));
            }
        }
    }

    /// Returns the script that a request runs; `None`: the client has an answer.
    pub(crate) fn run<'s>(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        how: RunScript,
        arguments: Arguments<'_>,
        scratch: &'s mut Vec<u8>,
    ) -> Option<Script<'s>> {
        let script = match self.script_of(cx, client, how, arguments, false, scratch) {
            Ok(script) => script,
            Err(error) => {
                cx.answer(client, |replies| replies.push(Reply::Error(&error)));
                return None;
            }
        };
        let tells_reads = cx.clients.sessions.get(client).is_some_and(|session| session.tracking.is_some());
        Some(script.with_options(ScriptOptions { tells_reads, ..script.options() }))
    }

    /// Returns the script that a request runs, with its text. `in_transaction`: it is queued after `MULTI`.
    ///
    /// # Errors
    /// The text of the error that the client gets.
    pub(crate) fn script_of<'s>(
        &mut self,
        cx: &Context,
        client: ClientId,
        how: RunScript,
        arguments: Arguments<'_>,
        in_transaction: bool,
        scratch: &'s mut Vec<u8>,
    ) -> Result<Script<'s>, Vec<u8>> {
        let inputs = arguments.skip(3);
        let function = match how.named_by {
            NamedBy::Function => Some(self.function_of(cx, &arguments[1])?),
            NamedBy::Text | NamedBy::Digest => None,
        };
        // What has not the length of a digest is none, whatever follows.
        if how.named_by == NamedBy::Digest && arguments[1].len() != DIGEST_LETTERS {
            return Err(NOSCRIPT.into());
        }
        let key_count = match parse_integer(&arguments[2]) {
            None if function.is_some() => return Err("ERR Bad number of keys provided".into()),
            None => return Err(CommandError::NotAnInteger.to_string().into()),
            Some(..0) => return Err("ERR Number of keys can't be negative".into()),
            Some(count) => match usize::try_from(count) {
                Ok(count) if count <= inputs.len() => count,
                _ => return Err("ERR Number of keys can't be greater than number of args".into()),
            },
        };
        if let Some(key) = inputs.iter().take(key_count).find(|key| key.len() > KEY_BYTES_MAX) {
            return Err(CommandError::KeyTooLong(key.len()).to_string().into());
        }
        let (text, flags) = match &function {
            Some(function) => (&*function.library, Some(function.flags.clone())),
            None => {
                let digest = match how.named_by {
                    NamedBy::Digest => Digest::parse(&arguments[1]).ok_or(NOSCRIPT)?,
                    _ => self.remember_script(&arguments[1])?,
                };
                let text = self.texts.find(digest).ok_or(NOSCRIPT)?;
                (text, Header::of(text)?.flags)
            }
        };
        let declares = |flag| flags.as_ref().is_some_and(|flags| flags.contains(&flag));
        if how.only_reads && flags.is_some() && !declares(Flag::NoWrites) {
            return Err("ERR Can not execute a script with write flag using *_ro command.".into());
        }
        let writes = !how.only_reads && !declares(Flag::NoWrites);
        // Of keys of several groups, that of the first decides on the limits.
        let first_key = inputs.iter().take(key_count).next();
        let database = cx.database_of(client);
        let group = first_key.map_or_else(|| database.default_group(), |key| database.group_of(key));
        let limits = ScriptLimits {
            value_bytes_max: cx.parameters.value_bytes_max() as u64,
            cost_max: cx
                .groups
                .get(group)
                .map_or(SCRIPT_COST_DEFAULT, |group| group.keyspace.script_cost_max),
        };
        // Without keys, the rest of a transaction decides which group it is for.
        let is_known = first_key.is_some() || !in_transaction || database.only_group().is_some();
        let extent = || database.extent_of(first_key.unwrap_or_default());
        if declares(Flag::NoCluster) && extent().next().is_none() {
            return Err("ERR Can not run script on cluster, 'no-cluster' flag is set.".into());
        }
        // A record that runs a library calls the function that its first argument names.
        let (keys, rest) = (inputs.iter().take(key_count), inputs.iter().skip(key_count));
        // The rights of the caller are determined here and now, and are sent with the script: replicas learn of
        // changes of the users at different times, and must all run the script alike.
        let user = cx.clients.sessions.get(client).and_then(|session| session.user());
        let table = match cx.map.has(Feature::RightsOfRedis) {
            true => Table::Present,
            false => Table::Release1,
        };
        let selected = cx.selected(client);
        let rights = user.filter(|user| !user.is_free()).map(|user| users::recorded(user, table, selected));
        let inputs = keys.chain(function.iter().map(|function| &*function.name)).chain(rest);
        let inputs = inputs.chain(rights.as_deref());
        let when_full = match &flags {
            None => WhenFull::ByCommand,
            Some(_) if declares(Flag::AllowOom) => WhenFull::Runs,
            Some(_) => WhenFull::Refused,
        };
        Script::build_in(scratch, text, inputs, key_count, extent().filter(|_| is_known), limits, writes)
            .map(|script| {
                let (has_rights, by_second_rules) = (rights.is_some(), cx.map.has(Feature::Answers));
                let options = ScriptOptions { when_full, has_rights, by_second_rules, ..Default::default() };
                script.with_options(options)
            })
            .ok_or_else(|| CommandError::Syntax.to_string().into())
    }

    /// Whether this node is sure to know all functions as they were last acknowledged.
    pub(crate) fn knows_functions(&self, cx: &Context) -> bool {
        cx.admission.has_lease(cx.now.monotonic_us) || cx.map.nodes.len() <= 1
    }

    /// Whether a request is a call of a function, and this node may not know the newest ones.
    #[cold]
    pub(crate) fn calls_too_early(&self, cx: &Context, found: Found) -> bool {
        let calls = matches!(
            found.spec.handler,
            Handler::Node(NodeCommand::Script(ScriptCommand::Run(how))) if how.named_by == NamedBy::Function
        );
        calls && !self.knows_functions(cx)
    }

    /// The function with this name, if this node is sure to know it as it was last acknowledged.
    fn function_of(&mut self, cx: &Context, name: &[u8]) -> Result<Rc<libraries::Callable>, Vec<u8>> {
        if !self.knows_functions(cx) {
            return Err(NO_LEASE.into());
        }
        self.functions.follow(cx.map.version, &cx.map.libraries);
        Ok(Rc::clone(self.functions.find(name).ok_or("ERR Function not found")?))
    }

    /// Carries out a subcommand of `FUNCTION`.
    pub(crate) fn function_command(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        command: FunctionCommand,
        arguments: Arguments<'_>,
    ) {
        let step = match command {
            FunctionCommand::Load => loaded(cx, arguments),
            FunctionCommand::Delete => match std::str::from_utf8(&arguments[2]) {
                Ok(name) => Ok(Step::Delete(name.to_string())),
                Err(_) => Err("ERR Library not found".into()),
            },
            FunctionCommand::Flush if arguments.len() > 3 => Err(wrong_number(arguments)),
            FunctionCommand::Flush if !is_flush_mode(arguments) => {
                Err("ERR FUNCTION FLUSH only supports SYNC|ASYNC option".into())
            }
            FunctionCommand::Flush => Ok(Step::Add { libraries: Libraries::new(), policy: Policy::Flush }),
            FunctionCommand::Dump => return dump(cx, client),
            FunctionCommand::Restore if arguments.len() > 4 => Err(wrong_number(arguments)),
            FunctionCommand::Restore => restored(cx, &arguments[2], arguments.get(3)),
            FunctionCommand::List => return list(cx, client, arguments),
            FunctionCommand::Stats => return stats(cx, client),
            FunctionCommand::Kill => Err(NOTBUSY.into()),
        };
        match step {
            Ok(step) => {
                let answer = match &step {
                    Step::Add { libraries, .. } if command == FunctionCommand::Load => {
                        libraries.keys().next().cloned().map_or(Confirmation::Ok, Confirmation::Name)
                    }
                    _ => Confirmation::Ok,
                };
                let change = Box::new(Change::Libraries(step));
                cx.call(Call::Change { client: Some((client, answer)), change })
            }
            Err(error) => cx.answer(client, |replies| replies.push(kv::Reply::Error(&error))),
        }
    }

    /// Whether a script with this name may write, as far as is known.
    pub(crate) fn may_write(&mut self, cx: &Context, how: RunScript, name: &[u8]) -> bool {
        let flags = match how.named_by {
            NamedBy::Function => self.function_of(cx, name).ok().map(|function| function.flags.clone()),
            NamedBy::Digest => {
                Digest::parse(name).and_then(|digest| Header::of(self.texts.find(digest)?).ok()?.flags)
            }
            NamedBy::Text => Header::of(name).ok().and_then(|header| header.flags),
        };
        !how.only_reads && !flags.is_some_and(|flags| flags.contains(&Flag::NoWrites))
    }

    /// Keeps a text for `EVALSHA` if it is a script.
    fn remember_script(&mut self, text: &[u8]) -> Result<Digest, Vec<u8>> {
        if text.len() > SCRIPT_BYTES_MAX {
            let length = text.len();
            let error = format!("ERR script is {length} bytes long; at most {SCRIPT_BYTES_MAX} are allowed");
            return Err(error.into());
        }
        let digest = digest_of(text);
        if !self.texts.has(digest) {
            check(text)?;
            self.texts.remember(text);
        }
        Ok(digest)
    }

    /// `SCRIPT LOAD`: every node that can be reached gets the script, since a client may run it on any of them.
    fn load_script(&mut self, cx: &mut Context, client: ClientId, text: &[u8]) {
        match self.remember_script(text) {
            Ok(digest) => {
                cx.peers.send_to_all(&Envelope::Script(text));
                cx.answer(client, |replies| replies.bulk(digest.to_string().as_bytes()));
            }
            Err(error) => cx.answer(client, |replies| replies.push(kv::Reply::Error(&error))),
        }
    }

    /// Takes a script that a client of a peer has loaded there.
    pub(crate) fn learn_script(&mut self, text: &[u8]) {
        if text.len() <= SCRIPT_BYTES_MAX {
            self.texts.remember(text);
        }
    }
}

fn is_flush_mode(arguments: Arguments<'_>) -> bool {
    match (arguments.get(2), arguments.len()) {
        (None, _) => true,
        (Some(mode), 3) => [&b"SYNC"[..], b"ASYNC"].iter().any(|known| mode.eq_ignore_ascii_case(known)),
        _ => false,
    }
}

/// Redis's error where a subcommand of `FUNCTION` has too many arguments.
fn wrong_number(arguments: Arguments<'_>) -> Vec<u8> {
    let subcommand = printable(&arguments[1]);
    format!("ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try FUNCTION HELP.")
        .into()
}

/// `FUNCTION LOAD [REPLACE] text`: runs the library, to know its functions.
fn loaded(cx: &Context, arguments: Arguments<'_>) -> Result<Step, Vec<u8>> {
    let count = arguments.len();
    let mut options = arguments.iter().take(count - 1).skip(2);
    if let Some(option) = options.find(|option| !option.eq_ignore_ascii_case(b"REPLACE")) {
        return Err(format!("ERR Unknown option given: {}", printable(option)).into());
    }
    let policy = if count == 3 { Policy::New } else { Policy::Replace };
    let (name, library) =
        check_library(&arguments[count - 1], &mut SCRIPT_COST_DEFAULT.into(), cx.map.has(Feature::Answers))?;
    Ok(Step::Add { libraries: Libraries::from([(name, library)]), policy })
}

/// `FUNCTION DUMP`: Redis's format.
fn dump(cx: &mut Context, client: ClientId) {
    let mut payload = Vec::new();
    for library in cx.map.libraries.values() {
        payload::put_library(&library.text.bytes(), &mut payload);
    }
    payload::close(payload::VERSION, 0, &mut payload);
    cx.answer(client, |replies| replies.bulk(&payload));
}

/// `FUNCTION RESTORE payload [FLUSH | APPEND | REPLACE]`. All its libraries together may cost as much as one that is
/// loaded.
fn restored(cx: &Context, payload: &[u8], policy: Option<&[u8]>) -> Result<Step, Vec<u8>> {
    let policy = match policy.map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"append") => Policy::Append,
        Some(b"flush") => Policy::Flush,
        Some(b"replace") => Policy::Replace,
        Some(_) => {
            return Err(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.".into()
            );
        }
    };
    let refused = |refusal| match refusal {
        Refusal::Footer => "ERR DUMP payload version or checksum are wrong",
        Refusal::Type(_) => "ERR given type is not a function",
    };
    // Nothing is expanded that could not be kept.
    let bytes = payload::library_bytes(payload).map_err(refused)?;
    if bytes > libraries::LIBRARIES_BYTES_MAX as u64 {
        return Err(format!("ERR {}", libraries::too_many_bytes(bytes)).into());
    }
    let texts = payload::libraries(payload).map_err(refused)?;
    let (mut libraries, mut cost_left) = (Libraries::new(), SCRIPT_COST_DEFAULT.into());
    for text in texts {
        let (name, library) = check_library(&text, &mut cost_left, cx.map.has(Feature::Answers))?;
        if libraries.contains_key(&name) {
            return Err(format!("ERR {}", libraries::exists(&name)).into());
        }
        libraries.insert(name, library);
    }
    Ok(Step::Add { libraries, policy })
}

/// `FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]`.
fn list(cx: &mut Context, client: ClientId, arguments: Arguments<'_>) {
    let (mut pattern, mut with_code) = (None, false);
    let mut words = arguments.iter().skip(2);
    while let Some(word) = words.next() {
        let error = if !with_code && word.eq_ignore_ascii_case(b"WITHCODE") {
            with_code = true;
            continue;
        } else if pattern.is_none() && word.eq_ignore_ascii_case(b"LIBRARYNAME") {
            pattern = words.next();
            match pattern {
                Some(pattern) if pattern.len() > PATTERN_BYTES_MAX => {
                    CommandError::PatternTooLong(pattern.len()).to_string()
                }
                Some(_) => continue,
                None => "ERR library name argument was not given".to_string(),
            }
        } else {
            format!("ERR Unknown argument {}", printable(word))
        };
        return cx.answer(client, |replies| replies.error(&error));
    }
    let map = Rc::clone(&cx.map);
    let found: Vec<(&String, &Library)> = libraries::matching(&map.libraries, pattern).collect();
    cx.answer(client, |replies| {
        replies.array(found.len());
        for (name, library) in found {
            replies.map(if with_code { 4 } else { 3 });
            replies.bulk(b"library_name");
            replies.bulk(name.as_bytes());
            replies.bulk(b"engine");
            replies.bulk(b"LUA");
            replies.bulk(b"functions");
            replies.array(library.functions.len());
            for function in &library.functions {
                replies.map(3);
                replies.bulk(b"name");
                replies.bulk(function.name.as_bytes());
                replies.bulk(b"description");
                match &function.description {
                    Some(text) => replies.bulk(&text.bytes()),
                    None => replies.push(kv::Reply::Null),
                }
                replies.bulk(b"flags");
                replies.push(kv::Reply::Set(function.flags.len() as u32));
                function
                    .flags
                    .iter()
                    .for_each(|flag| replies.push(kv::Reply::Status(flag.name().as_bytes())));
            }
            if with_code {
                replies.bulk(b"library_code");
                replies.bulk(&library.text.bytes());
            }
        }
    });
}

/// `FUNCTION STATS`. No function is ever seen running: a client is answered between two of them.
fn stats(cx: &mut Context, client: ClientId) {
    let libraries = &cx.map.libraries;
    let functions: usize = libraries.values().map(|library| library.functions.len()).sum();
    let libraries = libraries.len();
    cx.answer(client, |replies| {
        replies.map(2);
        replies.bulk(b"running_script");
        replies.push(kv::Reply::Null);
        replies.bulk(b"engines");
        replies.map(1);
        replies.bulk(b"LUA");
        replies.map(2);
        for (name, count) in [(&b"libraries_count"[..], libraries), (b"functions_count", functions)] {
            replies.bulk(name);
            replies.integer(count as i64);
        }
    });
}

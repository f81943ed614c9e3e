//! The clients' commands `EVAL` and its kin, `SCRIPT`, and `FUNCTION FLUSH`.
//!
//! The node that a client is connected to looks up a script's text, so that a request to the group holds everything
//! that a replica needs. The node also checks whether a text is a script at all: if not, it never gets into a log.

use crate::command::{CommandError, RunScript, ScriptCommand};
use crate::context::Context;
use crate::envelope::Envelope;
use crate::scripts::{Cache, Digest, Header, check, digest_of};
use crate::session::ClientId;
use kv::limits::{KEY_BYTES_MAX, SCRIPT_BYTES_MAX, SCRIPT_COST_DEFAULT};
use kv::number::parse_integer;
use kv::{ReplyBuffer, Script, ScriptLimits};
use wire::resp::Arguments;

const NOSCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

impl Cache {
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
                    .map(|text| Digest::parse(text).is_some_and(|digest| self.has(digest)))
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
            // Its limits end a script before any client could ask for that.
            ScriptCommand::Kill => {
                cx.answer(client, |replies| {
                    replies.error("NOTBUSY No scripts in execution right now.");
                });
            }
            ScriptCommand::FlushFunctions => {
                cx.answer(client, |replies| match is_flush_mode(arguments) {
                    // No functions exist.
                    true => replies.ok(),
                    false => replies.error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"),
                });
            }
        }
    }

    /// Returns the script that a request runs, with its text. `in_transaction`: it is queued after `MULTI`.
    ///
    /// # Errors
    /// The text of the error that the client gets.
    pub(crate) fn script_of<'s>(
        &mut self,
        cx: &Context,
        how: RunScript,
        arguments: Arguments<'_>,
        in_transaction: bool,
        scratch: &'s mut Vec<u8>,
    ) -> Result<Script<'s>, Vec<u8>> {
        let inputs = arguments.skip(3);
        let key_count = match parse_integer(&arguments[2]) {
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
        let digest = match how.by_digest {
            true => Digest::parse(&arguments[1]).ok_or(NOSCRIPT)?,
            false => self.remember_script(&arguments[1])?,
        };
        let text = self.find(digest).ok_or(NOSCRIPT)?;
        let writes = !how.only_reads && !Header::of(text)?.no_writes;
        // Keys of several groups are refused later.
        let first_key = inputs.iter().take(key_count).next();
        let group = first_key.map_or_else(|| cx.router.default_group(), |key| cx.router.group_of(key));
        let limits = ScriptLimits {
            value_bytes_max: cx.parameters.value_bytes_max() as u64,
            cost_max: cx
                .groups
                .get(group)
                .map_or(SCRIPT_COST_DEFAULT, |group| group.keyspace.script_cost_max),
        };
        // Without keys, the rest of a transaction decides which group it is for.
        let is_known = first_key.is_some() || !in_transaction || cx.groups.ids().len() == 1;
        let extent = cx.router.extent_of(first_key.unwrap_or_default()).filter(|_| is_known);
        Script::build_in(scratch, text, inputs.iter(), key_count, extent, limits, writes)
            .ok_or_else(|| CommandError::Syntax.to_string().into())
    }

    /// Keeps a text for `EVALSHA` if it is a script.
    fn remember_script(&mut self, text: &[u8]) -> Result<Digest, Vec<u8>> {
        if text.len() > SCRIPT_BYTES_MAX {
            let length = text.len();
            let error = format!("ERR script is {length} bytes long; at most {SCRIPT_BYTES_MAX} are allowed");
            return Err(error.into());
        }
        let digest = digest_of(text);
        if !self.has(digest) {
            check(text)?;
            self.remember(text);
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

    /// Takes a script that a peer's client has loaded there.
    pub(crate) fn learn_script(&mut self, text: &[u8]) {
        if text.len() <= SCRIPT_BYTES_MAX {
            self.remember(text);
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

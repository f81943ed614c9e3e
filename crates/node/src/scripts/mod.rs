//! Scripts in Lua 5.1, as in Redis: runs them on every replica, and keeps their texts.
//!
//! A script is one record of the log and runs where the record is applied, on every replica alike. So a run depends on
//! nothing but the script, its keys and arguments, the table and the record's time:
//!
//! * Each run has a Lua state of its own, made new and thrown away: nothing leaks from one script to the next, and what
//!   a run allocates does not depend on what ran before.
//! * The limits are counts, never times: units of cost (`meter`), and bytes allocated. There is no garbage collection
//!   during a run, so neither weak tables nor the limit depend on when that happens.
//! * No address is visible: `tostring` of tables and functions does not show it, and as keys of a table they are placed
//!   by their numbers. Functions whose results differ between machines or runs are left out or replaced (`sandbox`).
//!
//! Reading order: [`Lua51`] here, `sandbox` (a script's environment), `calls` (`redis.call`), `values` (between Lua and
//! replies), `failure` (how a script ends otherwise), `header` (the line that begins with `#!`), `cache` (texts by
//! their digests); then `commands` (`EVAL` and its kin).

#[cfg(test)]
mod attacks;
mod bits;
mod cache;
mod calls;
mod failure;
mod given;
mod header;
mod json;
mod message_pack;
mod meter;
mod patterns;
mod random;
#[cfg(test)]
mod recorded;
mod redis;
mod sandbox;
mod structs;
#[cfg(test)]
mod tests;
mod texts;
mod values;

pub(crate) use cache::{Cache, Digest, digest_of};
pub(crate) use header::Header;

use failure::Failure;
use kv::limits::{SCRIPT_COST_DEFAULT, SCRIPT_MEMORY_BYTES_MAX};
use kv::table::Access;
use kv::{Interpreter, ReplyBuffer};
use meter::{HOOK_COST, Meter};
use mlua::chunk::ChunkMode;
use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table};
use sandbox::Sandbox;
use std::cell::RefCell;
use std::rc::Rc;

/// The name of the chunk in errors, as in Redis.
const CHUNK_NAME: &str = "@user_script";

/// Runs scripts in Lua 5.1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lua51;

/// The interpreter of all tables.
pub(crate) static LUA: Lua51 = Lua51;

impl Interpreter for Lua51 {
    fn run(&self, script: &kv::Script<'_>, access: &mut Access<'_>, out: &mut ReplyBuffer) {
        let start = out.len();
        let meter = Rc::new(Meter::new(access.cost_left()));
        let ended = run(script, access, &meter, out);
        access.spend(meter.spent());
        if let Err(failure) = ended {
            out.truncate(start);
            if failure.is_final() {
                access.undo();
            }
            out.push(kv::Reply::Error(&failure.text(script.text())));
        }
    }
}

/// Makes a new state that has loaded only what any script can use. Its collector never runs (`vendor/lua-src`).
fn new_state() -> mlua::Result<Lua> {
    // Panics must reach the caller: a script must not be able to catch them.
    Lua::new_with(StdLib::STRING, LuaOptions::new().catch_rust_panics(false))
}

/// Starts counting cost and memory.
fn begin(lua: &Lua, meter: &Rc<Meter>) -> mlua::Result<()> {
    lua.set_memory_limit(SCRIPT_MEMORY_BYTES_MAX)?;
    let triggers = HookTriggers::new().every_nth_instruction(HOOK_COST);
    let meter = meter.clone();
    lua.set_global_hook(triggers, move |_, _| {
        meter.charge(u64::from(HOOK_COST))?;
        Ok(mlua::VmState::Continue)
    })
}

fn compile(lua: &Lua, text: &[u8], environment: Table) -> Result<Function, Failure> {
    let body = header::Header::of(text).map_err(Failure::refused)?.body;
    let chunk = lua.load(body).set_name(CHUNK_NAME).set_mode(ChunkMode::Text);
    chunk.set_environment(environment).into_function().map_err(|error| Failure::of_compiling(&error))
}

/// Checks whether a text is a script.
///
/// # Errors
/// The text of Redis's error.
pub(crate) fn check(text: &[u8]) -> Result<(), Vec<u8>> {
    let meter = Rc::new(Meter::new(SCRIPT_COST_DEFAULT.into()));
    let checked = || -> Result<(), Failure> {
        let lua = new_state()?;
        let environment = lua.create_table()?;
        begin(&lua, &meter)?;
        let compiled = compile(&lua, text, environment).map(drop);
        meter.check()?;
        compiled
    };
    checked().map_err(|failure| failure.text(text))
}

fn run(
    script: &kv::Script<'_>,
    access: &mut Access<'_>,
    meter: &Rc<Meter>,
    out: &mut ReplyBuffer,
) -> Result<(), Failure> {
    let lua = new_state()?;
    let access = RefCell::new(access);
    let ended = lua.scope(|scope| {
        let calls = calls::Calls::new(scope, script, &access, meter)?;
        let sandbox = Sandbox::new(&lua, &calls, meter)?;
        begin(&lua, meter)?;
        sandbox.give_inputs(&lua, script, meter)?;
        Ok(call_protected(&lua, script, sandbox, meter)
            .and_then(|value| Ok(values::write(&value, calls.resp.get(), meter, out)?)))
    });
    // If a limit was reached, that is the error, whatever error followed.
    meter.check()?;
    ended?
}

/// Runs the script itself. Returns its result, or how it failed and where.
fn call_protected(
    lua: &Lua,
    script: &kv::Script<'_>,
    sandbox: Sandbox,
    meter: &Meter,
) -> Result<mlua::Value, Failure> {
    let chunk = compile(lua, script.text(), sandbox.environment)?;
    let failed = Rc::new(RefCell::new(None));
    let handler = lua.create_function({
        let failed = failed.clone();
        move |lua, error: mlua::Value| {
            *failed.borrow_mut() = Some(Failure::of_script(lua, &error));
            Ok(())
        }
    })?;
    let mut results = sandbox.xpcall.call::<MultiValue>((chunk, handler))?;
    let is_done = results.pop_front().is_some_and(|ok| ok == mlua::Value::Boolean(true));
    let value = results.pop_front().unwrap_or_default();
    if is_done {
        return Ok(value);
    }
    meter.take_error(&value);
    let failure = failed.borrow_mut().take();
    Err(failure.unwrap_or_else(|| Failure::of_script(lua, &value)))
}

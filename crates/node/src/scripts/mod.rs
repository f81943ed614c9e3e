//! Scripts in Lua 5.1, as Redis has them: what runs them on every replica, and what keeps their texts.
//!
//! A script is one record of the log and is run where the record is applied, on every replica alike. So a run depends on
//! nothing but the script, its keys and arguments, the table and the record's time:
//!
//! * Each run has a Lua state of its own, made new and thrown away: nothing leaks from one script to the next, and what a
//!   run allocates does not depend on what ran before.
//! * The limits are counts, never times: instructions, and bytes allocated. Memory is not collected during a run, so that
//!   neither weak tables nor the limit depend on when that happens.
//! * What would tell addresses does not: `tostring` of tables and functions, and `pairs` and `next` of tables that have
//!   such keys. Functions whose results differ between machines or runs are left out or replaced (`sandbox`).
//!
//! Reading order: [`Lua51`] here, `sandbox` (what a script finds), `calls` (`redis.call`), `values` (between Lua and
//! replies), `failure` (how a script ends otherwise), `header` (the line that begins with `#!`), `cache` (texts by their
//! digests); then `commands` (`EVAL` and its kin).

#[cfg(test)]
mod attacks;
mod bits;
mod cache;
mod calls;
mod commands;
mod failure;
mod header;
mod iteration;
mod json;
mod meter;
mod patterns;
mod random;
mod redis;
mod sandbox;
#[cfg(test)]
mod tests;
mod texts;
mod values;

pub(crate) use cache::{Cache, digest_of};

use failure::Failure;
use kv::limits::SCRIPT_MEMORY_BYTES_MAX;
use kv::table::Access;
use kv::{Interpreter, ReplyBuffer};
use meter::Meter;
use mlua::chunk::ChunkMode;
use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table};
use sandbox::Sandbox;
use std::cell::RefCell;
use std::rc::Rc;

/// What the chunk is called in errors, as in Redis.
const CHUNK_NAME: &str = "@user_script";

/// Instructions between two looks at the meter.
const HOOK_INSTRUCTIONS: u32 = 100;

/// Runs scripts in Lua 5.1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lua51;

/// The one that tables are given.
pub(crate) static LUA: Lua51 = Lua51;

impl Interpreter for Lua51 {
    fn run(&self, script: &kv::Script<'_>, access: &mut Access<'_>, out: &mut ReplyBuffer) {
        let start = out.len();
        if let Err(failure) = run(script, access, out) {
            out.truncate(start);
            if failure.is_final() {
                access.undo();
            }
            out.push(kv::Reply::Error(&failure.text(script.text())));
        }
    }
}

/// A new state with nothing loaded but what any script can use. Its limits count from here.
fn new_state(meter: &Rc<Meter>) -> mlua::Result<Lua> {
    // Panics are to reach the caller: a script must not be able to catch them.
    let options = LuaOptions::new().catch_rust_panics(false);
    let lua = Lua::new_with(StdLib::STRING, options)?;
    lua.gc_stop();
    lua.set_memory_limit(SCRIPT_MEMORY_BYTES_MAX)?;
    let triggers = HookTriggers::new().every_nth_instruction(HOOK_INSTRUCTIONS);
    let meter = meter.clone();
    lua.set_global_hook(triggers, move |lua, _| {
        meter.tick(u64::from(HOOK_INSTRUCTIONS), lua.used_memory())?;
        Ok(mlua::VmState::Continue)
    })?;
    Ok(lua)
}

fn compile(lua: &Lua, text: &[u8], environment: Table) -> Result<Function, Failure> {
    let body = header::Header::of(text).map_err(Failure::refused)?.body;
    let chunk = lua.load(body).set_name(CHUNK_NAME).set_mode(ChunkMode::Text);
    chunk.set_environment(environment).into_function().map_err(|error| Failure::of_compiling(&error))
}

/// Finds out whether a text is a script.
///
/// # Errors
/// The text of Redis's error.
pub(crate) fn check(text: &[u8]) -> Result<(), Vec<u8>> {
    let checked = || -> Result<(), Failure> {
        let lua = new_state(&Rc::default())?;
        let environment = lua.create_table()?;
        compile(&lua, text, environment).map(drop)
    };
    checked().map_err(|failure| failure.text(text))
}

fn run(script: &kv::Script<'_>, access: &mut Access<'_>, out: &mut ReplyBuffer) -> Result<(), Failure> {
    let meter = Rc::new(Meter::default());
    let lua = new_state(&meter)?;
    let access = RefCell::new(access);
    let ended = lua.scope(|scope| {
        let calls = calls::Calls::new(scope, script, &access, &meter)?;
        let sandbox = Sandbox::new(&lua, script, &calls, &meter)?;
        Ok(call_protected(&lua, script, sandbox, &meter)
            .and_then(|value| Ok(values::write(&value, &meter, out)?)))
    })?;
    // Whatever error it was after a limit, it was the limit.
    meter.check()?;
    ended
}

/// Runs the script itself: what it returns, or how it failed and where.
fn call_protected(
    lua: &Lua,
    script: &kv::Script<'_>,
    sandbox: Sandbox,
    meter: &Meter,
) -> Result<mlua::Value, Failure> {
    let chunk = compile(lua, script.text(), sandbox.environment)?;
    meter.begin(script, lua.used_memory());
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

//! Scripts in Lua 5.1, as in Redis: runs them on every replica, and keeps their texts.
//!
//! A script is one record of the log and runs where the record is applied, on every replica. So a run may depend only on
//! the script, its keys and arguments, the table and the record's time:
//!
//! * Each run has its own new Lua state, which is dropped afterwards: nothing leaks from one script to the next, and what
//!   a run allocates does not depend on earlier runs.
//! * The limits are counts, never times: units of cost (`meter`), and bytes allocated. There is no garbage collection
//!   during a run, so neither weak tables nor the limit depend on when that happens.
//! * No address is visible: `tostring` of tables and functions does not show it, and as keys of a table they are ordered
//!   by numbers of their own. Functions whose results differ between machines or runs are left out or replaced (`sandbox`).
//!
//! Reading order: [`Lua51`] here, `sandbox` (a script's environment), `calls` (`redis.call`), `values` (between Lua and
//! replies), `failure` (how a script ends otherwise), `header` (the line that begins with `#!`), `functions` (libraries),
//! `cache` (texts by their digests); then `scripting` in the crate `node` (`EVAL` and related commands).

#[cfg(test)]
mod attacks;
mod bits;
mod cache;
mod calls;
mod failure;
mod functions;
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

pub use cache::{Cache, Digest, digest_of};
pub use functions::check_library;
pub use header::Header;

use header::LibraryHeader;

use failure::{Failure, SecondRules};
use kv::limits::{SCRIPT_COST_DEFAULT, SCRIPT_MEMORY_BYTES_MAX};
use kv::table::Access;
use kv::{Interpreter, ReplyBuffer};
use meter::{HOOK_COST, Meter};
use mlua::chunk::ChunkMode;
use mlua::{Function, HookTriggers, Lua, LuaOptions, StdLib, Table};
use sandbox::Sandbox;
use std::cell::RefCell;
use std::rc::Rc;

/// The names of chunks in errors, as in Redis.
const SCRIPT_CHUNK: &str = "@user_script";
const FUNCTION_CHUNK: &str = "@user_function";

/// What a record runs.
enum Program<'a> {
    Script,
    /// A function of the library that is the record's text.
    Function {
        name: &'a [u8],
    },
}

impl<'a> Program<'a> {
    /// A text whose header names a library is not a script: see [`Header::of`].
    fn of(script: &kv::Script<'a>) -> Program<'a> {
        match script.text().starts_with(b"#!") && LibraryHeader::of(script.text()).is_ok() {
            true => Program::Function { name: script.arguments().next().unwrap_or_default() },
            false => Program::Script,
        }
    }
}

/// Runs scripts in Lua 5.1.
#[derive(Clone, Copy, Debug)]
pub struct Lua51;

/// The interpreter of all tables.
pub static LUA: Lua51 = Lua51;

impl Interpreter for Lua51 {
    fn run(&self, script: &kv::Script<'_>, access: &mut Access<'_>, out: &mut ReplyBuffer) {
        let start = out.len();
        let meter = Rc::new(Meter::new(access.cost_left()));
        // Without enough left even to begin, as for most of several thousand scripts in a transaction, nothing is begun.
        let ended = meter.check().and_then(|()| run(script, access, &meter, out));
        access.spend(meter.spent());
        if let Err(failure) = ended {
            out.truncate(start);
            if failure.is_final() {
                access.undo();
            }
            out.push(kv::Reply::Error(&match Program::of(script) {
                Program::Script => failure.text(SCRIPT_CHUNK, digest_of(script.text())),
                Program::Function { name } => failure.text(FUNCTION_CHUNK, String::from_utf8_lossy(name)),
            }));
        }
    }
}

/// Creates a state with only the libraries that every script can use. Its collector never runs (`vendor/lua-src`).
fn new_state(by_second_rules: bool) -> mlua::Result<Lua> {
    // Panics must reach the caller: a script must not be able to catch them.
    let lua = Lua::new_with(StdLib::STRING, LuaOptions::new().catch_rust_panics(false))?;
    if by_second_rules {
        lua.set_app_data(SecondRules);
    }
    Ok(lua)
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

fn compile(lua: &Lua, body: &[u8], chunk: &str, environment: Table) -> mlua::Result<Function> {
    let chunk = lua.load(body).set_name(chunk).set_mode(ChunkMode::Text);
    chunk.set_environment(environment).into_function()
}

fn compile_script(lua: &Lua, text: &[u8], environment: Table) -> Result<Function, Failure> {
    let body = Header::of(text).map_err(Failure::refused)?.body;
    compile(lua, body, SCRIPT_CHUNK, environment)
        .map_err(|error| Failure::of_compiling("script (new function)", &error))
}

/// Checks whether a text is a script.
///
/// # Errors
/// The text of Redis's error.
pub fn check(text: &[u8]) -> Result<(), Vec<u8>> {
    let meter = Rc::new(Meter::new(SCRIPT_COST_DEFAULT.into()));
    let checked = || -> Result<(), Failure> {
        let lua = new_state(false)?;
        let environment = lua.create_table()?;
        begin(&lua, &meter)?;
        let compiled = compile_script(&lua, text, environment).map(drop);
        meter.check()?;
        compiled
    };
    checked().map_err(|failure| failure.text(SCRIPT_CHUNK, digest_of(text)))
}

fn run(
    script: &kv::Script<'_>,
    access: &mut Access<'_>,
    meter: &Rc<Meter>,
    out: &mut ReplyBuffer,
) -> Result<(), Failure> {
    let lua = new_state(script.options().by_second_rules)?;
    let access = RefCell::new(access);
    let ended = lua.scope(|scope| {
        let calls = calls::Calls::new(scope, script, &access, meter)?;
        let sandbox = Sandbox::new(&lua, Some(&calls), meter)?;
        begin(&lua, meter)?;
        let called = match Program::of(script) {
            Program::Script => {
                sandbox.give_inputs(&lua, script, meter)?;
                compile_script(&lua, script.text(), sandbox.environment.clone())
            }
            Program::Function { name } => functions::load(&lua, script.text(), &sandbox, meter)
                .and_then(|registered| {
                    functions::find(registered, name)
                        .ok_or_else(|| Failure::refused("ERR Function not found"))
                })
                .and_then(|function| Ok(sandbox.with_inputs(&lua, function, script, meter)?)),
        };
        Ok(called
            .and_then(|program| sandbox.call_protected(&lua, program, meter))
            .and_then(|value| Ok(values::write(&value, calls.resp.get(), meter, out)?)))
    });
    // If a limit was reached, that is the error, whatever followed.
    meter.check()?;
    ended?
}

//! The table `redis` in a script's environment.

use super::calls::Calls;
use super::digest_of;
use super::failure::Raised;
use super::meter::{CALL_COST, Meter};
use super::sandbox::read_only;
use mlua::{Function, Lua, MultiValue, Table, Value};
use std::rc::Rc;

/// Constants for scripts; no replication mode has an effect here, and nothing of a script is logged.
const CONSTANTS: [(&str, i64); 10] = [
    ("LOG_DEBUG", 0),
    ("LOG_VERBOSE", 1),
    ("LOG_NOTICE", 2),
    ("LOG_WARNING", 3),
    ("REPL_NONE", 0),
    ("REPL_AOF", 1),
    ("REPL_SLAVE", 2),
    ("REPL_REPLICA", 2),
    ("REPL_ALL", 3),
    ("REDIS_VERSION_NUM", 0x0007_000f),
];

/// Makes the table. Its rarely used parts are made on first use.
pub(super) fn table(lua: &Lua, calls: &Calls, meter: &Rc<Meter>) -> mlua::Result<Table> {
    let meter = meter.clone();
    let rare = move |lua: &Lua, (table, name): (Table, Value)| {
        let Value::String(name) = name else { return Ok(Value::Nil) };
        let name = name.as_bytes().to_vec();
        let value = rare(lua, &name, &meter)?;
        if !value.is_nil() {
            table.raw_set(lua.create_string(&name)?, value.clone())?;
        }
        Ok(value)
    };
    let redis = lua.create_table_with_capacity(0, 4)?;
    redis.raw_set("call", &calls.call)?;
    redis.raw_set("pcall", &calls.pcall)?;
    let metatable = read_only(lua)?;
    metatable.raw_set("__index", lua.create_function(rare)?)?;
    redis.set_metatable(Some(metatable))?;
    Ok(redis)
}

fn rare(lua: &Lua, name: &[u8], meter: &Rc<Meter>) -> mlua::Result<Value> {
    if let Some((_, number)) = CONSTANTS.iter().find(|(constant, _)| constant.as_bytes() == name) {
        return Ok(Value::Integer(*number));
    }
    let nothing = |lua: &Lua| lua.create_function(|_, _: MultiValue| Ok(()));
    let function = match name {
        b"REDIS_VERSION" => return Ok(Value::String(lua.create_string(crate::REDIS_VERSION)?)),
        b"sha1hex" => sha1hex(lua, meter)?,
        b"error_reply" => reply(lua, "err")?,
        b"status_reply" => reply(lua, "ok")?,
        b"log" => log(lua)?,
        b"setresp" => lua.create_function(set_resp)?,
        // Scripts are always replicated as themselves; these functions would choose how.
        b"replicate_commands" => lua.create_function(|_, _: MultiValue| Ok(true))?,
        b"set_repl" => nothing(lua)?,
        _ => return Ok(Value::Nil),
    };
    Ok(Value::Function(function))
}

fn sha1hex(lua: &Lua, meter: &Rc<Meter>) -> mlua::Result<Function> {
    let meter = meter.clone();
    lua.create_function(move |lua, arguments: MultiValue| {
        if arguments.len() != 1 {
            return Err(Raised::reply("ERR wrong number of arguments"));
        }
        let text = lua.coerce_string(arguments[0].clone())?;
        let bytes = text.map_or(Vec::new(), |text| text.as_bytes().to_vec());
        meter.charge(8 * CALL_COST)?;
        // Much slower than copying.
        meter.charge_bytes(bytes.len() * 8)?;
        lua.create_string(digest_of(&bytes).to_string())
    })
}

fn reply(lua: &Lua, field: &'static str) -> mlua::Result<Function> {
    lua.create_function(move |lua, arguments: MultiValue| {
        let table = lua.create_table_with_capacity(0, 1)?;
        match (arguments.len(), arguments.front()) {
            (1, Some(Value::String(text))) => table.raw_set(field, text)?,
            _ => table.raw_set("err", "ERR wrong number or type of arguments")?,
        }
        Ok(table)
    })
}

/// Checks its arguments with Redis's errors, but writes nothing: a script runs on every replica, and again after a
/// restart.
fn log(lua: &Lua) -> mlua::Result<Function> {
    lua.create_function(|_, arguments: MultiValue| match (arguments.len(), arguments.front()) {
        (..2, _) => Err(Raised::reply("ERR redis.log() requires two arguments or more.")),
        (_, Some(Value::Integer(0..=3))) => Ok(()),
        (_, Some(Value::Integer(_) | Value::Number(_))) => Err(Raised::reply("ERR Invalid debug level.")),
        _ => Err(Raised::reply("ERR First argument must be a number (log level).")),
    })
}

fn set_resp(_: &Lua, arguments: MultiValue) -> mlua::Result<()> {
    match (arguments.len(), arguments.front()) {
        (1, Some(Value::Integer(2))) => Ok(()),
        (1, Some(Value::Integer(3))) => {
            Err(Raised::reply("ERR scripts get replies of RESP version 2 only; nothing they call has others"))
        }
        (1, _) => Err(Raised::reply("ERR RESP version must be 2 or 3.")),
        _ => Err(Raised::reply("ERR redis.setresp() requires one argument.")),
    }
}

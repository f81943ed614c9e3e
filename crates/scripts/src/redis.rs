//! The table `redis` in a script's environment.

use super::calls::{Calls, take_words};
use super::digest_of;
use super::failure::{Raised, is_by_second_rules};
use super::meter::{CALL_COST, Meter};
use super::values::{Resp, read_only, truncated};
use commands::CommandError;
use commands::RedisVersion;
use commands::users::User;
use mlua::{Function, Lua, MultiValue, Table, Value};
use std::cell::Cell;
use std::rc::Rc;
use wire::resp::ArgumentsBuffer;

/// Constants for scripts. Replication modes have no effect here, and scripts log nothing.
const CONSTANTS: [(&str, i64); 9] = [
    ("LOG_DEBUG", 0),
    ("LOG_VERBOSE", 1),
    ("LOG_NOTICE", 2),
    ("LOG_WARNING", 3),
    ("REPL_NONE", 0),
    ("REPL_AOF", 1),
    ("REPL_SLAVE", 2),
    ("REPL_REPLICA", 2),
    ("REPL_ALL", 3),
];

/// Creates the table. Its rarely used parts are created on first use.
pub(super) fn table(lua: &Lua, calls: &Calls, meter: &Rc<Meter>) -> mlua::Result<Table> {
    let (meter, resp, rights) = (meter.clone(), calls.resp.clone(), calls.rights.clone());
    let rare = move |lua: &Lua, (table, name): (Table, Value)| {
        let Value::String(name) = name else { return Ok(Value::Nil) };
        let name = name.as_bytes().to_vec();
        let value = rare(lua, &name, &meter, &resp, rights.as_ref())?;
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

fn rare(
    lua: &Lua,
    name: &[u8],
    meter: &Rc<Meter>,
    resp: &Rc<Cell<Resp>>,
    rights: Option<&Rc<User>>,
) -> mlua::Result<Value> {
    if let Some((_, number)) = CONSTANTS.iter().find(|(constant, _)| constant.as_bytes() == name) {
        return Ok(Value::Integer(*number));
    }
    let function = match name {
        b"REDIS_VERSION" => return Ok(Value::String(lua.create_string(version(lua).to_string())?)),
        b"REDIS_VERSION_NUM" => return Ok(Value::Integer(version(lua).number().into())),
        b"sha1hex" => sha1hex(lua, meter)?,
        b"error_reply" => lua.create_function(error_reply)?,
        b"status_reply" => lua.create_function(status_reply)?,
        b"log" => lua.create_function(log)?,
        b"setresp" => {
            let resp = resp.clone();
            lua.create_function(move |lua, arguments: MultiValue| {
                resp.set(resp_of(lua, &arguments)?);
                Ok(())
            })?
        }
        b"acl_check_cmd" => acl_check_cmd(lua, meter, rights)?,
        // These two functions choose how a script is replicated. Here it is always replicated as its text.
        b"replicate_commands" => lua.create_function(|_, _: MultiValue| Ok(true))?,
        b"set_repl" => lua.create_function(set_repl)?,
        // As in Redis without a debugger: none can be attached here.
        b"breakpoint" => lua.create_function(|_, _: MultiValue| Ok(false))?,
        b"debug" => lua.create_function(|_, _: MultiValue| Ok(()))?,
        _ => return Ok(Value::Nil),
    };
    Ok(Value::Function(function))
}

/// The version of Redis by the record's rules. A node's own `redis_version` is not for scripts: all replicas
/// must run them alike.
fn version(lua: &Lua) -> RedisVersion {
    if is_by_second_rules(lua) { RedisVersion::OF_LEVEL_2 } else { RedisVersion::OF_LEVEL_1 }
}

/// What the table has while a library registers its functions, besides `register_function`.
pub(super) fn while_loading(lua: &Lua, name: &[u8], meter: &Rc<Meter>) -> mlua::Result<Value> {
    let is_there = name == b"log" || name.starts_with(b"LOG_") || name.starts_with(b"REDIS_VERSION");
    match is_there {
        true => rare(lua, name, meter, &Rc::new(Cell::new(Resp::Two)), None),
        false => Ok(Value::Nil),
    }
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
        // Hashing is much slower than copying.
        meter.charge_bytes(bytes.len() * 8)?;
        lua.create_string(digest_of(&bytes).to_string())
    })
}

fn one_field(lua: &Lua, field: &str, text: &[u8]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(field, lua.create_string(text)?)?;
    Ok(table)
}

const WRONG_TYPE: &[u8] = b"ERR wrong number or type of arguments";

fn status_reply(lua: &Lua, arguments: MultiValue) -> mlua::Result<Table> {
    match (arguments.len(), arguments.front()) {
        (1, Some(Value::String(text))) => one_field(lua, "ok", &text.as_bytes()),
        _ => one_field(lua, "err", WRONG_TYPE),
    }
}

/// An error of one word is not a code with its text, so it gets the code `ERR`.
fn error_reply(lua: &Lua, arguments: MultiValue) -> mlua::Result<Table> {
    let (1, Some(Value::String(text))) = (arguments.len(), arguments.front()) else {
        return one_field(lua, "err", WRONG_TYPE);
    };
    let text = text.as_bytes();
    let text = text.strip_prefix(b"-").unwrap_or(&text);
    match text.contains(&b' ') {
        true => one_field(lua, "err", text),
        false => one_field(lua, "err", &[b"ERR ", text].concat()),
    }
}

/// The first argument as C's `int`; 0 if it is not a number.
fn int(lua: &Lua, arguments: &MultiValue) -> mlua::Result<i64> {
    let number = match arguments.front() {
        Some(value) => lua.coerce_number(value.clone())?,
        None => None,
    };
    Ok(number.map_or(0, truncated))
}

/// `redis.log`: checks its arguments with Redis's errors, but logs nothing, since a script runs on every replica, and again
/// after a restart.
fn log(lua: &Lua, arguments: MultiValue) -> mlua::Result<()> {
    if arguments.len() < 2 {
        return Err(Raised::reply("ERR redis.log() requires two arguments or more."));
    }
    if lua.coerce_number(arguments[0].clone())?.is_none() {
        return Err(Raised::reply("ERR First argument must be a number (log level)."));
    }
    match int(lua, &arguments)? {
        0..=3 => Ok(()),
        _ => Err(Raised::reply("ERR Invalid debug level.")),
    }
}

fn set_repl(lua: &Lua, arguments: MultiValue) -> mlua::Result<()> {
    if arguments.len() != 1 {
        return Err(Raised::reply("ERR redis.set_repl() requires two arguments."));
    }
    match int(lua, &arguments)? {
        0..=3 => Ok(()),
        _ => {
            let error = "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
            Err(Raised::reply(error))
        }
    }
}

fn resp_of(lua: &Lua, arguments: &MultiValue) -> mlua::Result<Resp> {
    if arguments.len() != 1 {
        return Err(Raised::reply("ERR redis.setresp() requires one argument."));
    }
    match int(lua, arguments)? {
        2 => Ok(Resp::Two),
        3 => Ok(Resp::Three),
        _ => Err(Raised::reply("ERR RESP version must be 2 or 3.")),
    }
}

/// `redis.acl_check_cmd`: whether the caller of the script may run a command.
fn acl_check_cmd(lua: &Lua, meter: &Rc<Meter>, rights: Option<&Rc<User>>) -> mlua::Result<Function> {
    let (meter, rights) = (meter.clone(), rights.cloned());
    lua.create_function(move |_, words: MultiValue| {
        meter.charge(8 * CALL_COST)?;
        let mut buffer = ArgumentsBuffer::default();
        take_words(&words, &mut buffer, &meter)?;
        match commands::find(buffer.as_arguments()) {
            Ok(found) => {
                Ok(rights.as_ref().is_none_or(|user| user.check(found, buffer.as_arguments(), 0).is_ok()))
            }
            // As in Redis 7, a command with a wrong number of arguments does not count as forbidden.
            Err(CommandError::WrongArity(_)) => Ok(true),
            Err(_) => Err(Raised::reply("ERR Invalid command passed to redis.acl_check_cmd()")),
        }
    })
}

//! What a script finds: Lua's functions, less what reaches outside, tells addresses or differs between machines.

use super::calls::Calls;
use super::failure::Raised;
use super::meter::{Limit, Meter};
use super::values::type_name;
use super::{bits, iteration, json, random, redis, texts};
use kv::limits::SCRIPT_MEMORY_BYTES_MAX;
use mlua::{Function, Lua, LuaString, MultiValue, StdLib, Table, Value};
use std::rc::Rc;

/// A state that is ready for a script.
pub(super) struct Sandbox {
    /// The script's global variables.
    pub(super) environment: Table,
    /// Lua's own function, which a script does not get.
    pub(super) xpcall: Function,
}

impl Sandbox {
    pub(super) fn new(
        lua: &Lua,
        script: &kv::Script<'_>,
        calls: &Calls,
        meter: &Rc<Meter>,
    ) -> mlua::Result<Sandbox> {
        let globals = lua.globals();
        let pcall: Function = globals.raw_get("pcall")?;
        let xpcall: Function = globals.raw_get("xpcall")?;
        install_protected_calls(lua, &globals, pcall, meter)?;
        install_tostring(lua, &globals)?;
        iteration::install(lua, &globals, meter)?;
        install_strings(lua, &globals, meter)?;
        globals.raw_set("redis", redis::table(lua, calls, meter)?)?;
        globals.raw_set("KEYS", list(lua, script.keys())?)?;
        globals.raw_set("ARGV", list(lua, script.arguments())?)?;
        let environment = guard(lua, &globals, meter)?;
        Ok(Sandbox { environment, xpcall })
    }
}

fn list<'i>(lua: &Lua, items: impl Iterator<Item = &'i [u8]>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (place, item) in (1..).zip(items) {
        table.raw_set(place, lua.create_string(item)?)?;
    }
    Ok(table)
}

/// Global variables that can be read only, and only if they are there, with Redis's errors.
fn guard(lua: &Lua, globals: &Table, meter: &Rc<Meter>) -> mlua::Result<Table> {
    let meter = meter.clone();
    let missing = move |lua: &Lua, (globals, name): (Table, Value)| {
        let Some(name) = lua.coerce_string(name)? else { return Ok(Value::Nil) };
        // Few scripts use them, and loading them takes as long as all the rest.
        let name = name.as_bytes().to_vec();
        match &*name {
            b"table" => {
                lua.load_std_libs(StdLib::TABLE)?;
                install_tables(lua, &globals.raw_get("table")?, &meter)?;
            }
            b"math" => {
                lua.load_std_libs(StdLib::MATH)?;
                random::install(lua, &globals.raw_get("math")?)?;
            }
            b"bit" => globals.raw_set("bit", bits::table(lua, &meter)?)?,
            b"cjson" => globals.raw_set("cjson", json::table(lua, &meter)?)?,
            name => {
                let name = String::from_utf8_lossy(name);
                let error = format!("Script attempted to access nonexistent global variable '{name}'");
                return Err(Raised::text(lua, error));
            }
        }
        let library: Table = globals.raw_get(lua.create_string(&name)?)?;
        library.set_metatable(Some(read_only(lua)?))?;
        Ok(Value::Table(library))
    };
    // No script can reach this table itself.
    let rules = lua.create_table_with_capacity(0, 1)?;
    rules.raw_set("__index", lua.create_function(missing)?)?;
    globals.set_metatable(Some(rules))?;
    let environment = lua.create_table()?;
    let rules = read_only(lua)?;
    rules.raw_set("__index", globals)?;
    environment.set_metatable(Some(rules))?;
    globals.raw_set("_G", &environment)?;
    Ok(environment)
}

/// A metatable that makes of its table one that scripts cannot change, whatever way they try, with Redis's error. Neither
/// can they see the metatable or give the table another one.
pub(super) fn read_only(lua: &Lua) -> mlua::Result<Table> {
    let rules = lua.create_table_with_capacity(0, 3)?;
    rules.raw_set("__readonly", true)?;
    rules.raw_set("__metatable", false)?;
    Ok(rules)
}

/// `pcall` and `xpcall`, through which no limit is caught, and which show our errors as Redis's are.
fn install_protected_calls(
    lua: &Lua,
    globals: &Table,
    pcall: Function,
    meter: &Rc<Meter>,
) -> mlua::Result<()> {
    const PROTECTED_CALL_INSTRUCTIONS: u64 = 20;
    let protected = {
        let meter = meter.clone();
        move |lua: &Lua, arguments: MultiValue| {
            meter.charge(PROTECTED_CALL_INSTRUCTIONS)?;
            let mut results = pcall.call::<MultiValue>(arguments)?;
            if results.front() == Some(&Value::Boolean(false))
                && let Some(error) = results.get_mut(1)
            {
                caught(lua, error, &meter)?;
            }
            mlua::Result::Ok(results)
        }
    };
    let pcall = protected.clone();
    let pcall = move |lua: &Lua, arguments: MultiValue| {
        let mut results = pcall(lua, arguments)?;
        // Redis does the same with the errors of commands.
        if results.front() == Some(&Value::Boolean(false))
            && let Some(error) = results.get_mut(1)
            && let Value::Table(table) = &*error
            && let text @ Value::String(_) = table.raw_get("err")?
        {
            *error = text;
        }
        Ok(results)
    };
    globals.raw_set("pcall", lua.create_function(pcall)?)?;
    // The handler is called behind the error and not within it: without `debug` it could see no difference.
    let xpcall = move |lua: &Lua, (function, handler): (Value, Function)| {
        let mut results = protected(lua, [function].into_iter().collect())?;
        if results.front() == Some(&Value::Boolean(false))
            && let Some(error) = results.get_mut(1)
        {
            *error = handler.call(std::mem::take(error))?;
        }
        Ok(results)
    };
    globals.raw_set("xpcall", lua.create_function(xpcall)?)
}

/// An error was caught: makes one of ours what a script can read, and raises it again if it is a limit.
fn caught(lua: &Lua, error: &mut Value, meter: &Meter) -> mlua::Result<()> {
    // An error is told with all callers, of which nobody reads here.
    const CAUGHT_ERROR_INSTRUCTIONS: u64 = 2000;
    meter.take_error(error);
    meter.charge(CAUGHT_ERROR_INSTRUCTIONS)?;
    if let Value::Error(raised) = &*error {
        *error = Raised::to_lua(lua, raised)?;
    }
    Ok(())
}

/// `tostring` without addresses.
fn install_tostring(lua: &Lua, globals: &Table) -> mlua::Result<()> {
    let original: Function = globals.raw_get("tostring")?;
    let tostring = move |lua: &Lua, arguments: MultiValue| match arguments.front() {
        Some(Value::Table(table)) => {
            let rules = table.metatable();
            let has_own = match rules {
                Some(rules) => !rules.raw_get::<Value>("__tostring")?.is_nil(),
                None => false,
            };
            match has_own {
                true => original.call::<Value>(arguments),
                false => Ok(Value::String(lua.create_string("table")?)),
            }
        }
        Some(Value::Nil | Value::Boolean(_) | Value::Integer(_) | Value::Number(_) | Value::String(_)) => {
            original.call(arguments)
        }
        Some(other) => Ok(Value::String(lua.create_string(type_name(other))?)),
        None => Err(Raised::argument(lua, 1, "tostring", "value expected")),
    };
    globals.raw_set("tostring", lua.create_function(tostring)?)
}

/// What a script finds in `string`: what is compiled, and a function that was replaced already in Lua 5.1, are missing.
const STRING_FUNCTIONS: [&str; 12] =
    ["byte", "char", "find", "format", "gmatch", "gsub", "len", "lower", "match", "reverse", "sub", "upper"];

/// The functions on texts, each put in its place when it is first used: they take longer for longer texts, and so they are
/// counted.
fn install_strings(lua: &Lua, globals: &Table, meter: &Rc<Meter>) -> mlua::Result<()> {
    let originals: Table = globals.raw_get("string")?;
    let meter = meter.clone();
    let find = move |lua: &Lua, (strings, name): (Table, Value)| {
        let Value::String(name) = name else { return Ok(Value::Nil) };
        let bytes = name.as_bytes().to_vec();
        let found = match texts::function(lua, &bytes, &meter)? {
            Some(found) => found,
            None if bytes == b"rep" => repeat(lua, &meter)?,
            None => match STRING_FUNCTIONS.iter().find(|known| known.as_bytes() == bytes.as_slice()) {
                Some(known) => counted(lua, known, originals.raw_get(&name)?, &meter)?,
                None => return Ok(Value::Nil),
            },
        };
        strings.raw_set(name, &found)?;
        Ok(Value::Function(found))
    };
    let strings = lua.create_table()?;
    let rules = read_only(lua)?;
    rules.raw_set("__index", lua.create_function(find)?)?;
    strings.set_metatable(Some(rules))?;
    globals.raw_set("string", &strings)?;
    // Methods of texts, such as `text:upper()`. Scripts see this table, as in Redis.
    let rules = lua.create_table_with_capacity(0, 1)?;
    rules.raw_set("__index", strings)?;
    rules.set_metatable(Some(read_only(lua)?))?;
    lua.set_type_metatable::<LuaString>(Some(rules));
    Ok(())
}

/// A function of Lua's, with the length of its texts counted.
fn counted(lua: &Lua, name: &'static str, original: Function, meter: &Rc<Meter>) -> mlua::Result<Function> {
    let meter = meter.clone();
    lua.create_function(move |lua, arguments: MultiValue| {
        let lengths = arguments.iter().map(|value| match value {
            Value::String(text) => text.as_bytes().len(),
            _ => 0,
        });
        meter.charge_bytes(lengths.sum())?;
        original.call::<MultiValue>(arguments).map_err(|error| Raised::of_function(lua, name, error))
    })
}

fn repeat(lua: &Lua, meter: &Rc<Meter>) -> mlua::Result<Function> {
    let meter = meter.clone();
    // Lua's own counts up to the number even when the text is empty.
    lua.create_function(move |lua, (text, count): (LuaString, f64)| {
        let text = text.as_bytes();
        let count = (count as i64 as i32).max(0) as usize;
        if text.len().saturating_mul(count) > SCRIPT_MEMORY_BYTES_MAX {
            meter.reach(Limit::Memory);
            return Err(Raised::limit(Limit::Memory));
        }
        meter.charge_bytes(text.len() * count)?;
        lua.create_string(text.repeat(count))
    })
}

/// Functions whose time grows with the table take as many instructions.
fn install_tables(lua: &Lua, tables: &Table, meter: &Rc<Meter>) -> mlua::Result<()> {
    for name in ["insert", "remove"] {
        let original: Function = tables.raw_get(name)?;
        let meter = meter.clone();
        let counted = move |lua: &Lua, arguments: MultiValue| {
            // At the end nothing is moved.
            let moves = matches!((name, arguments.len()), ("insert", 3..) | ("remove", 2..));
            if let (true, Some(Value::Table(table))) = (moves, arguments.front()) {
                meter.charge(table.raw_len() as u64)?;
            }
            original.call::<MultiValue>(arguments).map_err(|error| Raised::of_function(lua, name, error))
        };
        tables.raw_set(name, lua.create_function(counted)?)?;
    }
    let original: Function = tables.raw_get("concat")?;
    let own = meter.clone();
    let concatenate = move |lua: &Lua, arguments: MultiValue| {
        let before = lua.used_memory();
        let text = original
            .call::<LuaString>(arguments)
            .map_err(|error| Raised::of_function(lua, "concat", error))?;
        own.charge_bytes(text.as_bytes().len())?;
        own.has_allocated(text.as_bytes().len(), before, lua.used_memory());
        Ok(text)
    };
    tables.raw_set("concat", lua.create_function(concatenate)?)?;
    let original: Function = tables.raw_get("sort")?;
    let meter = meter.clone();
    let sort = move |lua: &Lua, (table, order): (Value, Option<Function>)| {
        if let Value::Table(table) = &table {
            meter.charge(table.raw_len() as u64)?;
        }
        let order = match order {
            Some(order) => order,
            None => ascending(lua, &meter)?,
        };
        original.call::<()>((table, order)).map_err(|error| Raised::of_function(lua, "sort", error))
    };
    tables.raw_set("sort", lua.create_function(sort)?)
}

/// Lua's own order, counted: sorting can take the square of the length.
fn ascending(lua: &Lua, meter: &Rc<Meter>) -> mlua::Result<Function> {
    const COMPARISON_INSTRUCTIONS: u64 = 10;
    let meter = meter.clone();
    lua.create_function(move |lua, (first, second): (Value, Value)| {
        meter.charge(COMPARISON_INSTRUCTIONS)?;
        let number = |value: &Value| match value {
            Value::Integer(number) => Some(*number as f64),
            Value::Number(number) => Some(*number),
            _ => None,
        };
        if let (Value::String(first), Value::String(second)) = (&first, &second) {
            return Ok(*first.as_bytes() < *second.as_bytes());
        }
        match (number(&first), number(&second)) {
            (Some(first), Some(second)) => Ok(first < second),
            _ => {
                let (first, second) = (type_name(&first), type_name(&second));
                Err(Raised::text(
                    lua,
                    match first == second {
                        true => format!("attempt to compare two {first} values"),
                        false => format!("attempt to compare {first} with {second}"),
                    },
                ))
            }
        }
    })
}

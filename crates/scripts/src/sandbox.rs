//! A script's environment: Lua's functions without those that reach outside, show addresses or differ between machines.

use super::calls::Calls;
use super::failure::{Failure, Raised, is_by_second_rules};
use super::meter::{CALL_COST, Meter};
use super::values::read_only;
use super::{bits, json, message_pack, random, redis, structs, texts};
use mlua::{Function, Lua, LuaString, MultiValue, StdLib, Table, Value};
use std::cell::RefCell;
use std::rc::Rc;

/// The cost of an element of `KEYS` or `ARGV`, besides its bytes.
const ELEMENT_COST: u64 = 15;

/// A state that is ready for a script.
pub(super) struct Sandbox {
    /// The script's global variables.
    pub(super) environment: Table,
    globals: Table,
    /// Lua's own function, which scripts do not get.
    xpcall: Function,
    /// See [`kv::ScriptOptions::by_second_rules`].
    pub(super) by_second_rules: bool,
}

impl Sandbox {
    /// Creates the sandbox. Clients do not choose the length of anything in it.
    ///
    /// Without `calls` it has no `redis`: for a library that only registers its functions.
    pub(super) fn new(lua: &Lua, calls: Option<&Calls>, meter: &Rc<Meter>) -> mlua::Result<Sandbox> {
        let globals = lua.globals();
        let pcall: Function = globals.raw_get("pcall")?;
        let xpcall: Function = globals.raw_get("xpcall")?;
        install_protected_calls(lua, &globals, pcall, meter)?;
        let by_second_rules = is_by_second_rules(lua);
        install_strings(lua, &globals, meter, by_second_rules)?;
        if let Some(calls) = calls {
            let redis = redis::table(lua, calls, meter)?;
            if by_second_rules {
                // Valkey's name for it.
                globals.raw_set("server", redis.clone())?;
            }
            globals.raw_set("redis", redis)?;
        }
        let environment = guard(lua, &globals, meter, by_second_rules)?;
        Ok(Sandbox { environment, globals, xpcall, by_second_rules })
    }

    /// Sets `KEYS` and `ARGV`.
    pub(super) fn give_inputs(&self, lua: &Lua, script: &kv::Script<'_>, meter: &Meter) -> mlua::Result<()> {
        self.globals.raw_set("KEYS", list(lua, script.keys(), meter)?)?;
        self.globals.raw_set("ARGV", list(lua, script.arguments(), meter)?)
    }

    /// Returns a function without arguments that calls this one with the record's keys, and with its arguments after the
    /// first one, which is the function's name.
    pub(super) fn with_inputs(
        &self,
        lua: &Lua,
        function: Function,
        script: &kv::Script<'_>,
        meter: &Meter,
    ) -> mlua::Result<Function> {
        // A tail call, so that errors show only the function's own lines.
        let bind = lua.load("local f, keys, arguments = ... return function() return f(keys, arguments) end");
        let keys = list(lua, script.keys(), meter)?;
        bind.call((function, keys, list(lua, script.arguments().skip(1), meter)?))
    }

    /// Replaces the global variables that the program sees. Returns the previous ones.
    pub(super) fn replace_globals(&self, globals: Table) -> mlua::Result<Table> {
        let rules = self.environment.metatable();
        let rules = rules.ok_or_else(|| mlua::Error::runtime("an environment has a metatable"))?;
        let before = rules.raw_get("__index")?;
        rules.raw_set("__index", globals)?;
        Ok(before)
    }

    /// Runs a program. Returns its result, or how and where it failed.
    pub(super) fn call_protected(
        &self,
        lua: &Lua,
        program: Function,
        meter: &Meter,
    ) -> Result<Value, Failure> {
        let failed = Rc::new(RefCell::new(None));
        let handler = lua.create_function({
            let failed = failed.clone();
            move |lua, error: Value| {
                *failed.borrow_mut() = Some(Failure::of_script(lua, &error));
                Ok(())
            }
        })?;
        let mut results = self.xpcall.call::<MultiValue>((program, handler))?;
        let is_done = results.pop_front().is_some_and(|ok| ok == Value::Boolean(true));
        let value = results.pop_front().unwrap_or_default();
        if is_done {
            return Ok(value);
        }
        meter.take_error(&value);
        let failure = failed.borrow_mut().take();
        Err(failure.unwrap_or_else(|| Failure::of_script(lua, &value)))
    }
}

fn list<'i>(lua: &Lua, items: impl Iterator<Item = &'i [u8]>, meter: &Meter) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (place, item) in (1..).zip(items) {
        meter.charge(ELEMENT_COST)?;
        table.raw_set(place, lua.create_string(item)?)?;
    }
    Ok(table)
}

/// Makes global variables read-only, and reading a missing one an error, with Redis's texts.
fn guard(lua: &Lua, globals: &Table, meter: &Rc<Meter>, by_second_rules: bool) -> mlua::Result<Table> {
    let meter = meter.clone();
    let find = move |lua: &Lua, (globals, name): (Table, Value)| {
        let Some(name) = lua.coerce_string(name)? else { return Ok(Value::Nil) };
        // Few scripts use these libraries, and loading them takes as long as everything else in a sandbox.
        let name = name.as_bytes().to_vec();
        match &*name {
            b"table" => lua.load_std_libs(StdLib::TABLE)?,
            b"math" => {
                lua.load_std_libs(StdLib::MATH)?;
                let math: Table = globals.raw_get("math")?;
                if by_second_rules {
                    // Its older name.
                    math.raw_set("mod", math.raw_get::<Value>("fmod")?)?;
                }
                random::install(lua, &math)?;
            }
            b"bit" => globals.raw_set("bit", bits::table(lua, &meter)?)?,
            b"cjson" => globals.raw_set("cjson", json::table(lua, &meter, by_second_rules)?)?,
            b"cmsgpack" => globals.raw_set("cmsgpack", message_pack::table(lua, &meter)?)?,
            b"os" if by_second_rules => globals.raw_set("os", clock(lua, &meter)?)?,
            b"struct" => globals.raw_set("struct", structs::table(lua, &meter)?)?,
            _ => return missing(lua, &Value::String(lua.create_string(&name)?)),
        }
        let library: Table = globals.raw_get(lua.create_string(&name)?)?;
        library.set_metatable(Some(read_only(lua)?))?;
        Ok(Value::Table(library))
    };
    // Scripts cannot reach this table.
    let rules = lua.create_table_with_capacity(0, 1)?;
    rules.raw_set("__index", lua.create_function(find)?)?;
    globals.set_metatable(Some(rules))?;
    let environment = lua.create_table()?;
    let rules = read_only(lua)?;
    rules.raw_set("__index", globals)?;
    if by_second_rules {
        // What `getmetatable(_G)` returns.
        let shown = lua.create_table_with_capacity(0, 0)?;
        shown.set_metatable(Some(read_only(lua)?))?;
        rules.raw_set("__metatable", shown)?;
    }
    environment.set_metatable(Some(rules))?;
    globals.raw_set("_G", &environment)?;
    Ok(environment)
}

/// `os`, with its one function that Redis leaves to scripts. It returns the time that the script has taken, as its cost says, so that it
/// is the same on every replica.
fn clock(lua: &Lua, meter: &Rc<Meter>) -> mlua::Result<Table> {
    /// About the time of a simple instruction, which is one unit.
    const UNIT_SECONDS: f64 = 1e-8;
    let meter = meter.clone();
    let os = lua.create_table()?;
    let clock = move |_: &Lua, _: MultiValue| {
        meter.charge(CALL_COST)?;
        Ok(meter.spent() as f64 * UNIT_SECONDS)
    };
    os.raw_set("clock", lua.create_function(clock)?)?;
    Ok(os)
}

/// Raises Redis's error for a global variable that does not exist.
pub(super) fn missing(lua: &Lua, name: &Value) -> mlua::Result<Value> {
    let Some(name) = lua.coerce_string(name.clone())? else { return Ok(Value::Nil) };
    let name = String::from_utf8_lossy(&name.as_bytes()).into_owned();
    Err(Raised::text(lua, format!("Script attempted to access nonexistent global variable '{name}'")))
}

/// Installs a `pcall` and an `xpcall` that do not catch limits, and that show our errors in Redis's form.
fn install_protected_calls(
    lua: &Lua,
    globals: &Table,
    pcall: Function,
    meter: &Rc<Meter>,
) -> mlua::Result<()> {
    let protected = {
        let meter = meter.clone();
        move |lua: &Lua, arguments: MultiValue| {
            meter.charge(2 * CALL_COST + 2 * arguments.len() as u64)?;
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
        // The error of a command is a table; `pcall` returns its text, as in Redis.
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
    // The handler is called after the error has ended the function: without `debug` a script cannot see the difference.
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

/// Takes a caught error: converts one of ours to a value for the script, and fails if the run has reached a limit.
fn caught(lua: &Lua, error: &mut Value, meter: &Meter) -> mlua::Result<()> {
    // Catching an error is expensive, since the error carries its call stack, which is not used here.
    const CAUGHT_ERROR_COST: u64 = 300;
    meter.take_error(error);
    meter.charge(CAUGHT_ERROR_COST)?;
    if let Value::Error(raised) = &*error {
        *error = Raised::to_lua(lua, raised)?;
    }
    Ok(())
}

/// Installs the functions on texts. Those that take patterns are our own, each installed on first use.
fn install_strings(lua: &Lua, globals: &Table, meter: &Rc<Meter>, by_second_rules: bool) -> mlua::Result<()> {
    let strings: Table = globals.raw_get("string")?;
    // These use Lua's own matcher, which does not count its steps.
    for name in ["find", "gfind", "gmatch", "gsub", "match"] {
        strings.raw_set(name, Value::Nil)?;
    }
    let meter = meter.clone();
    let find = move |lua: &Lua, (strings, name): (Table, Value)| {
        let Value::String(name) = name else { return Ok(Value::Nil) };
        let bytes = name.as_bytes().to_vec();
        if bytes == b"gfind" && !by_second_rules {
            return Ok(Value::Nil);
        }
        let Some(found) = texts::function(lua, &bytes, &meter)? else { return Ok(Value::Nil) };
        strings.raw_set(name, &found)?;
        Ok(Value::Function(found))
    };
    let rules = read_only(lua)?;
    rules.raw_set("__index", lua.create_function(find)?)?;
    strings.set_metatable(Some(rules))?;
    // The metatable of texts, for methods such as `text:upper()`. Scripts can see it, as in Redis.
    let rules = lua.create_table_with_capacity(0, 1)?;
    rules.raw_set("__index", strings)?;
    rules.set_metatable(Some(read_only(lua)?))?;
    lua.set_type_metatable::<LuaString>(Some(rules));
    Ok(())
}

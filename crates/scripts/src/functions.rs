//! Libraries of functions: runs a library so that it registers its functions, and returns these to `FUNCTION LOAD`.
//!
//! A record that calls a function holds the whole text of its library, and the first of its arguments is the function's
//! name. So the library is run before each call, in the call's own state, and its variables do not outlast the call.

use super::failure::{Failure, Limit, Raised};
use super::header::{LibraryHeader, WRONG_NAME};
use super::meter::{CALL_COST, Meter};
use super::sandbox::{Sandbox, missing};
use super::values::read_only;
use super::{FUNCTION_CHUNK, begin, compile, new_state, redis};
use cluster::libraries::{FUNCTION_NAME_BYTES_MAX, Flag, Library, LibraryFunction, is_name};
use commands::Text;
use kv::limits::SCRIPT_BYTES_MAX;
use mlua::{Function, Lua, MultiValue, Table, Value};
use std::cell::RefCell;
use std::rc::Rc;

/// A function that a library has registered.
pub(super) struct Registered {
    name: String,
    description: Option<Vec<u8>>,
    flags: Vec<Flag>,
    callback: Function,
}

/// The functions that are registered so far; `None` when the library has run.
type Registry = Rc<RefCell<Option<Vec<Registered>>>>;

/// Runs a library's text, and returns its name and the functions that it registers. The cost is subtracted from `cost_left`.
/// `by_second_rules` is how its calls will run: see [`kv::ScriptOptions::by_second_rules`].
///
/// # Errors
/// The text of Redis's error, or of one that names a limit.
pub fn check_library(
    text: &[u8],
    cost_left: &mut u64,
    by_second_rules: bool,
) -> Result<(String, Library), Vec<u8>> {
    if text.len() > SCRIPT_BYTES_MAX {
        let length = text.len();
        return Err(format!("ERR library is {length} bytes long").into());
    }
    let name = LibraryHeader::of(text)?.name;
    if name.len() > FUNCTION_NAME_BYTES_MAX {
        return Err(too_long(&name).into());
    }
    let meter = Rc::new(Meter::new(*cost_left));
    let checked = || -> Result<Vec<LibraryFunction>, Failure> {
        let lua = new_state(by_second_rules)?;
        let sandbox = Sandbox::new(&lua, None, &meter)?;
        begin(&lua, &meter)?;
        let registered = load(&lua, text, &sandbox, &meter);
        if let Some(limit) = meter.reached() {
            let why = match limit {
                Limit::Cost(_) => "FUNCTION LOAD timeout: ",
                _ => "",
            };
            let limit = limit.text();
            let limit = limit.strip_prefix("ERR ").unwrap_or(&limit);
            return Err(Failure::refused(format!("ERR Error registering functions: ERR {why}{limit}")));
        }
        let registered = registered?.into_iter();
        let learned = registered.map(|Registered { name, description, flags, .. }| LibraryFunction {
            name,
            description: description.as_deref().map(Text::new),
            flags,
        });
        Ok(learned.collect())
    };
    let learned = checked();
    *cost_left -= meter.spent();
    match learned {
        Ok(functions) if functions.is_empty() => Err("ERR No functions registered".into()),
        Ok(functions) => Ok((name, Library { text: Text::new(text), functions })),
        Err(failure) => Err(failure.text(FUNCTION_CHUNK, "")),
    }
}

fn too_long(name: &str) -> String {
    let length = name.len();
    format!("ERR name is {length} bytes long; at most {FUNCTION_NAME_BYTES_MAX} are allowed")
}

/// Runs a library, and returns the functions that it has registered, in order of registration.
pub(super) fn load(
    lua: &Lua,
    text: &[u8],
    sandbox: &Sandbox,
    meter: &Rc<Meter>,
) -> Result<Vec<Registered>, Failure> {
    let body = LibraryHeader::of(text).map_err(Failure::refused)?.body;
    let registry: Registry = Rc::new(RefCell::new(Some(Vec::new())));
    let chunk = compile(lua, body, FUNCTION_CHUNK, sandbox.environment.clone())
        .map_err(|error| Failure::of_compiling("function", &error))?;
    let outside = sandbox.replace_globals(globals(lua, &registry, meter, sandbox.by_second_rules)?)?;
    let ran = sandbox.call_protected(lua, chunk, meter);
    sandbox.replace_globals(outside)?;
    let registered = registry.borrow_mut().take().unwrap_or_default();
    ran.map(|_| registered).map_err(Failure::of_registering)
}

/// The function with this name.
pub(super) fn find(registered: Vec<Registered>, name: &[u8]) -> Option<Function> {
    let mut found = registered.into_iter().filter(|it| it.name.as_bytes().eq_ignore_ascii_case(name));
    found.next().map(|registered| registered.callback)
}

/// The global variables of a library while it runs: only `redis`, with few functions, and under Valkey's name `server` the same, whose
/// errors have that name.
fn globals(lua: &Lua, registry: &Registry, meter: &Rc<Meter>, by_second_rules: bool) -> mlua::Result<Table> {
    let register = |object: &'static str| {
        let (registry, meter) = (Rc::clone(registry), meter.clone());
        move |lua: &Lua, arguments: MultiValue| {
            register(lua, &arguments, &registry, &meter).map_err(|error| match Raised::of(&error) {
                Some(Raised::Reply(text)) => {
                    let text = String::from_utf8_lossy(text);
                    Raised::reply(
                        text.replace("redis.register_function", &format!("{object}.register_function")),
                    )
                }
                _ => error,
            })
        }
    };
    let few = {
        let meter = meter.clone();
        move |lua: &Lua, (_, name): (Table, Value)| {
            if let Value::String(name) = &name
                && let value = redis::while_loading(lua, &name.as_bytes(), &meter)?
                && !value.is_nil()
            {
                return Ok(value);
            }
            missing(lua, &name)
        }
    };
    let rules = read_only(lua)?;
    rules.raw_set("__index", lua.create_function(few)?)?;
    let globals = lua.create_table_with_capacity(0, 2)?;
    for object in if by_second_rules { &["redis", "server"][..] } else { &["redis"] } {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set("register_function", lua.create_function(register(object))?)?;
        table.set_metatable(Some(rules.clone()))?;
        globals.raw_set(*object, table)?;
    }
    let rules = read_only(lua)?;
    rules.raw_set("__index", lua.create_function(|lua, (_, name): (Table, Value)| missing(lua, &name))?)?;
    globals.set_metatable(Some(rules))?;
    Ok(globals)
}

fn refuse(text: &str) -> mlua::Error {
    Raised::reply(format!("ERR {text}"))
}

/// `redis.register_function`, with two arguments or a table of named ones.
fn register(lua: &Lua, arguments: &MultiValue, registry: &Registry, meter: &Meter) -> mlua::Result<()> {
    meter.charge(8 * CALL_COST)?;
    let mut registry = registry.borrow_mut();
    let Some(registered) = &mut *registry else {
        return Err(refuse("redis.register_function can only be called on FUNCTION LOAD command"));
    };
    let given = match (arguments.len(), arguments.front()) {
        (1, Some(Value::Table(named))) => named_arguments(lua, named, meter)?,
        (1, _) => {
            return Err(refuse(
                "calling redis.register_function with a single argument is only applicable to Lua table (representing \
                 named arguments).",
            ));
        }
        (2, _) => {
            let name = text(lua, &arguments[0])?
                .ok_or_else(|| refuse("first argument to redis.register_function must be a string"))?;
            let Value::Function(callback) = arguments[1].clone() else {
                return Err(refuse("second argument to redis.register_function must be a function"));
            };
            Given { name, callback, description: None, flags: Vec::new() }
        }
        _ => return Err(refuse("wrong number of arguments to redis.register_function")),
    };
    let Given { name, callback, description, flags } = given;
    let name = match is_name(&name) {
        true => String::from_utf8_lossy(&name).into_owned(),
        false => return Err(Raised::reply(WRONG_NAME)),
    };
    if name.len() > FUNCTION_NAME_BYTES_MAX {
        return Err(Raised::reply(too_long(&name)));
    }
    // The name is compared with those of all functions registered before.
    meter.charge(registered.len() as u64)?;
    if registered.iter().any(|known| known.name.eq_ignore_ascii_case(&name)) {
        return Err(refuse("Function already exists in the library"));
    }
    let described = description.as_ref().map_or(0, Vec::len);
    meter.charge_bytes(described)?;
    meter.check_room(
        described + registered.iter().filter_map(|it| it.description.as_ref()).map(Vec::len).sum::<usize>(),
    )?;
    registered.push(Registered { name, description, flags, callback });
    Ok(())
}

/// The arguments of `redis.register_function`.
struct Given {
    name: Vec<u8>,
    callback: Function,
    description: Option<Vec<u8>>,
    flags: Vec<Flag>,
}

/// A text, or a number as a text.
fn text(lua: &Lua, value: &Value) -> mlua::Result<Option<Vec<u8>>> {
    match value {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => {
            Ok(lua.coerce_string(value.clone())?.map(|text| text.as_bytes().to_vec()))
        }
        _ => Ok(None),
    }
}

fn named_arguments(lua: &Lua, named: &Table, meter: &Meter) -> mlua::Result<Given> {
    let (mut name, mut callback, mut description, mut flags) = (None, None, None, Vec::new());
    for pair in named.pairs::<Value, Value>() {
        meter.charge(CALL_COST)?;
        let (argument, value) = pair?;
        let Value::String(argument) = argument else {
            return Err(refuse("named argument key given to redis.register_function is not a string"));
        };
        match &*argument.as_bytes() {
            b"function_name" => {
                let given = text(lua, &value)?;
                name = Some(given.ok_or_else(|| {
                    refuse("function_name argument given to redis.register_function must be a string")
                })?);
            }
            b"description" => {
                let given = text(lua, &value)?;
                description = Some(given.ok_or_else(|| {
                    refuse("description argument given to redis.register_function must be a string")
                })?);
            }
            b"callback" => match value {
                Value::Function(given) => callback = Some(given),
                _ => {
                    return Err(refuse(
                        "callback argument given to redis.register_function must be a function",
                    ));
                }
            },
            b"flags" => match value {
                Value::Table(given) => flags = flags_of(&given, meter)?,
                _ => {
                    return Err(refuse(
                        "flags argument to redis.register_function must be a table representing function flags",
                    ));
                }
            },
            _ => return Err(refuse("unknown argument given to redis.register_function")),
        }
    }
    let name = name.ok_or_else(|| refuse("redis.register_function must get a function name argument"))?;
    let callback = callback.ok_or_else(|| refuse("redis.register_function must get a callback argument"))?;
    Ok(Given { name, callback, description, flags })
}

/// The flags in a list, each once and in order.
fn flags_of(list: &Table, meter: &Meter) -> mlua::Result<Vec<Flag>> {
    let mut flags = Vec::new();
    for place in 1.. {
        meter.charge(CALL_COST)?;
        let flag = match list.raw_get(place)? {
            Value::Nil => break,
            Value::String(name) => Flag::parse(&name.as_bytes()),
            _ => None,
        };
        flags.push(flag.ok_or_else(|| refuse("unknown flag given"))?);
    }
    flags.sort_unstable();
    flags.dedup();
    Ok(flags)
}

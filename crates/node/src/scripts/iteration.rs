//! `next` and `pairs`: a table is gone through in an order that is the same on every replica, or not at all.
//!
//! Lua places texts, numbers and booleans by their values, but tables and functions by their addresses. As soon as a
//! table has one of those as a key, the order of all its keys can differ from replica to replica.

use super::failure::Raised;
use super::meter::Meter;
use super::values::type_name;
use mlua::{Function, Lua, Table, Value};
use std::rc::Rc;

/// What one key costs.
const KEY_INSTRUCTIONS: u64 = 5;

pub(super) fn install(lua: &Lua, globals: &Table, meter: &Rc<Meter>) -> mlua::Result<()> {
    let original: Function = globals.raw_get("next")?;
    let next = {
        let meter = meter.clone();
        move |lua: &Lua, (table, key): (Value, Value)| {
            let table = table_of(lua, "next", table)?;
            for_each_key(lua, &table, &meter, |_| Ok(()))?;
            original.call::<(Value, Value)>((table, key))
        }
    };
    globals.raw_set("next", lua.create_function(next)?)?;
    let own = meter.clone();
    let step = lua.create_function(move |_, (traversal, _): (Table, Value)| step(&traversal, &own))?;
    let meter = meter.clone();
    let pairs = move |lua: &Lua, table| Ok((step.clone(), pairs(lua, table, &meter)?));
    globals.raw_set("pairs", lua.create_function(pairs)?)
}

// Where a traversal keeps what is its own, beside the keys, which begin at 1.
const SUBJECT: i64 = 0;
const PLACE: i64 = -1;

/// The keys are listed at the beginning. So what the loop does to the table cannot change their order; a key that it
/// removes before its turn is left out.
///
/// All of it is kept in a table and not in a function of its own: memory is not collected during a run, and the
/// interpreter holds only so many values for functions of ours.
fn pairs(lua: &Lua, table: Value, meter: &Meter) -> mlua::Result<Table> {
    let table = table_of(lua, "pairs", table)?;
    let before = lua.used_memory();
    let traversal = lua.create_table()?;
    let mut count = 0;
    for_each_key(lua, &table, meter, |key| {
        count += 1;
        traversal.raw_set(count, key)
    })?;
    traversal.raw_set(SUBJECT, table)?;
    traversal.raw_set(PLACE, 0)?;
    meter.has_allocated(0, before, lua.used_memory());
    Ok(traversal)
}

fn step(traversal: &Table, meter: &Meter) -> mlua::Result<(Value, Value)> {
    let mut place: i64 = traversal.raw_get(PLACE)?;
    let subject: Table = traversal.raw_get(SUBJECT)?;
    loop {
        meter.charge(KEY_INSTRUCTIONS)?;
        place += 1;
        let key: Value = traversal.raw_get(place)?;
        if key.is_nil() {
            return Ok((Value::Nil, Value::Nil));
        }
        let value: Value = subject.raw_get(&key)?;
        if !value.is_nil() {
            traversal.raw_set(PLACE, place)?;
            return Ok((key, value));
        }
    }
}

fn for_each_key(
    lua: &Lua,
    table: &Table,
    meter: &Meter,
    mut visit: impl FnMut(Value) -> mlua::Result<()>,
) -> mlua::Result<()> {
    table.for_each(|key: Value, _: Value| {
        meter.charge(KEY_INSTRUCTIONS)?;
        match key {
            Value::String(_) | Value::Integer(_) | Value::Number(_) | Value::Boolean(_) => visit(key),
            key => {
                let kind = type_name(&key);
                let why = format!(
                    "a table that has a {kind} as a key has no order that is the same on every replica"
                );
                Err(Raised::text(lua, why))
            }
        }
    })
}

fn table_of(lua: &Lua, function: &str, value: Value) -> mlua::Result<Table> {
    match value {
        Value::Table(table) => Ok(table),
        other => {
            let given = if other.is_nil() { "no value" } else { type_name(&other) };
            Err(Raised::argument(lua, 1, function, &format!("table expected, got {given}")))
        }
    }
}

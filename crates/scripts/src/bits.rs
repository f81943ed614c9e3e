//! `bit`: the operations on 32-bit integers that Redis gives to scripts (those of Mike Pall's Lua BitOp).

use super::given::Given;
use super::meter::{CALL_COST, Meter};
use mlua::{Lua, MultiValue, Table, Value};
use std::rc::Rc;

/// Returns the lower 32 bits of a number, rounded to the nearest integer.
fn bits_of(number: f64) -> i32 {
    // After adding 2^52 + 2^51, the lowest bits are the integer.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    (number + SHIFT).to_bits() as u32 as i32
}

fn operand(given: &Given<'_>, place: usize) -> mlua::Result<i32> {
    given.number(place).map(bits_of)
}

/// The number of bits to shift by.
fn distance(given: &Given<'_>) -> mlua::Result<u32> {
    Ok(operand(given, 1)? as u32 & 31)
}

fn fold(given: &Given<'_>, join: impl Fn(i32, i32) -> i32) -> mlua::Result<i32> {
    let first = operand(given, 0)?;
    (1..given.values.len()).try_fold(first, |joined, place| Ok(join(joined, operand(given, place)?)))
}

/// Formats in base 16: with as many digits as requested, or 8; a negative number of digits means capital
/// letters.
fn hexadecimal(given: &Given<'_>) -> mlua::Result<String> {
    let number = operand(given, 0)?;
    let asked = if given.values.len() > 1 { operand(given, 1)? } else { 8 };
    let digits = asked.unsigned_abs().min(8) as usize;
    let text = if asked < 0 { format!("{number:08X}") } else { format!("{number:08x}") };
    Ok(text[8 - digits..].to_owned())
}

pub(super) fn table(lua: &Lua, meter: &Rc<Meter>) -> mlua::Result<Table> {
    type Operation = fn(&Given<'_>) -> mlua::Result<i32>;
    const OPERATIONS: [(&str, Operation); 11] = [
        ("tobit", |given| operand(given, 0)),
        ("bnot", |given| Ok(!operand(given, 0)?)),
        ("bswap", |given| Ok(operand(given, 0)?.swap_bytes())),
        ("band", |given| fold(given, |a, b| a & b)),
        ("bor", |given| fold(given, |a, b| a | b)),
        ("bxor", |given| fold(given, |a, b| a ^ b)),
        ("lshift", |given| Ok(operand(given, 0)? << distance(given)?)),
        ("rshift", |given| Ok((operand(given, 0)? as u32 >> distance(given)?) as i32)),
        ("arshift", |given| Ok(operand(given, 0)? >> distance(given)?)),
        ("rol", |given| Ok(operand(given, 0)?.rotate_left(distance(given)?))),
        ("ror", |given| Ok(operand(given, 0)?.rotate_right(distance(given)?))),
    ];
    let table = lua.create_table()?;
    for (function, operation) in OPERATIONS {
        let meter = meter.clone();
        let call = move |lua: &Lua, values: MultiValue| {
            meter.charge(CALL_COST + 3 * values.len() as u64)?;
            operation(&Given { lua, function, values }).map(|number| Value::Number(f64::from(number)))
        };
        table.raw_set(function, lua.create_function(call)?)?;
    }
    let meter = meter.clone();
    let tohex = move |lua: &Lua, values: MultiValue| {
        meter.charge(2 * CALL_COST)?;
        lua.create_string(hexadecimal(&Given { lua, function: "tohex", values })?)
    };
    table.raw_set("tohex", lua.create_function(tohex)?)?;
    Ok(table)
}

//! `bit`: the operations on 32-bit integers that Redis gives to scripts (those of Mike Pall's Lua BitOp).

use super::failure::Raised;
use super::meter::{CALL_COST, Meter};
use super::values::type_name;
use mlua::{Lua, MultiValue, Table, Value};
use std::rc::Rc;

/// Returns the lower 32 bits of a number, rounded to the nearest integer.
fn bits_of(number: f64) -> i32 {
    // In the sum with 2^52 + 2^51 the integer is in the lowest bits.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    (number + SHIFT).to_bits() as u32 as i32
}

/// The operands of one call.
struct Operands<'c> {
    lua: &'c Lua,
    name: &'static str,
    values: MultiValue,
}

impl Operands<'_> {
    fn at(&self, place: usize) -> mlua::Result<i32> {
        let given = self.values.get(place);
        let number = match given {
            Some(value) => self.lua.coerce_number(value.clone())?,
            None => None,
        };
        number.map(bits_of).ok_or_else(|| {
            let given = given.map_or("no value", type_name);
            Raised::argument(self.lua, place + 1, self.name, &format!("number expected, got {given}"))
        })
    }

    /// The number of bits to shift by.
    fn distance(&self) -> mlua::Result<u32> {
        Ok(self.at(1)? as u32 & 31)
    }

    fn fold(&self, join: impl Fn(i32, i32) -> i32) -> mlua::Result<i32> {
        (1..self.values.len()).try_fold(self.at(0)?, |joined, place| Ok(join(joined, self.at(place)?)))
    }
}

/// Formats in base 16: with as many digits as requested, or 8; a negative number of digits means capital
/// letters.
fn hexadecimal(operands: &Operands<'_>) -> mlua::Result<String> {
    let number = operands.at(0)?;
    let asked = if operands.values.len() > 1 { operands.at(1)? } else { 8 };
    let digits = asked.unsigned_abs().min(8) as usize;
    let text = if asked < 0 { format!("{number:08X}") } else { format!("{number:08x}") };
    Ok(text[8 - digits..].to_owned())
}

pub(super) fn table(lua: &Lua, meter: &Rc<Meter>) -> mlua::Result<Table> {
    type Operation = fn(&Operands<'_>) -> mlua::Result<i32>;
    const OPERATIONS: [(&str, Operation); 11] = [
        ("tobit", |operands| operands.at(0)),
        ("bnot", |operands| Ok(!operands.at(0)?)),
        ("bswap", |operands| Ok(operands.at(0)?.swap_bytes())),
        ("band", |operands| operands.fold(|a, b| a & b)),
        ("bor", |operands| operands.fold(|a, b| a | b)),
        ("bxor", |operands| operands.fold(|a, b| a ^ b)),
        ("lshift", |operands| Ok(operands.at(0)? << operands.distance()?)),
        ("rshift", |operands| Ok((operands.at(0)? as u32 >> operands.distance()?) as i32)),
        ("arshift", |operands| Ok(operands.at(0)? >> operands.distance()?)),
        ("rol", |operands| Ok(operands.at(0)?.rotate_left(operands.distance()?))),
        ("ror", |operands| Ok(operands.at(0)?.rotate_right(operands.distance()?))),
    ];
    let table = lua.create_table()?;
    for (name, operation) in OPERATIONS {
        let meter = meter.clone();
        let function = move |lua: &Lua, values: MultiValue| {
            meter.charge(CALL_COST + 3 * values.len() as u64)?;
            operation(&Operands { lua, name, values }).map(|number| Value::Number(f64::from(number)))
        };
        table.raw_set(name, lua.create_function(function)?)?;
    }
    let meter = meter.clone();
    let tohex = move |lua: &Lua, values: MultiValue| {
        meter.charge(2 * CALL_COST)?;
        lua.create_string(hexadecimal(&Operands { lua, name: "tohex", values })?)
    };
    table.raw_set("tohex", lua.create_function(tohex)?)?;
    Ok(table)
}

//! `math.random` and `math.randomseed`: Redis's sequence, which starts from the beginning in each run.

use super::failure::Raised;
use mlua::{Lua, MultiValue, Table, Value};
use std::cell::Cell;
use std::rc::Rc;

/// The generator of C's `lrand48`, so that the numbers are Redis's.
#[derive(Debug)]
struct Generator(Cell<u64>);

impl Generator {
    fn seeded(seed: i32) -> u64 {
        u64::from(seed as u32) << 16 | 0x330e
    }

    /// Returns a number from 0 (inclusive) to 1 (exclusive).
    fn next(&self) -> f64 {
        const BITS: u64 = (1 << 48) - 1;
        let next = self.0.get().wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & BITS;
        self.0.set(next);
        let number = (next >> 17) as i64 % i64::from(i32::MAX);
        number as f64 / f64::from(i32::MAX)
    }
}

/// Converts a number to C's `int`, as Lua does.
fn int(lua: &Lua, function: &str, position: usize, value: &Value) -> mlua::Result<i32> {
    match lua.coerce_number(value.clone())? {
        Some(number) => Ok(number as i64 as i32),
        None => {
            let given = if value.is_nil() { "no value" } else { super::values::type_name(value) };
            Err(Raised::argument(lua, position, function, &format!("number expected, got {given}")))
        }
    }
}

pub(super) fn install(lua: &Lua, math: &Table) -> mlua::Result<()> {
    let generator = Rc::new(Generator(Cell::new(Generator::seeded(0))));
    let random = {
        let generator = generator.clone();
        move |lua: &Lua, arguments: MultiValue| {
            let number = generator.next();
            let argument = |place: usize| int(lua, "random", place + 1, &arguments[place]);
            match arguments.len() {
                0 => Ok(number),
                1 => match argument(0)? {
                    upper @ 1.. => Ok((number * f64::from(upper)).floor() + 1.0),
                    _ => Err(Raised::argument(lua, 1, "random", "interval is empty")),
                },
                2 => match (argument(0)?, argument(1)?) {
                    (lower, upper) if lower <= upper => {
                        let count = i64::from(upper) - i64::from(lower) + 1;
                        Ok((number * count as f64).floor() + f64::from(lower))
                    }
                    _ => Err(Raised::argument(lua, 2, "random", "interval is empty")),
                },
                _ => Err(Raised::text(lua, "wrong number of arguments")),
            }
        }
    };
    math.raw_set("random", lua.create_function(random)?)?;
    let seed = move |lua: &Lua, seed: Value| {
        generator.0.set(Generator::seeded(int(lua, "randomseed", 1, &seed)?));
        Ok(())
    };
    math.raw_set("randomseed", lua.create_function(seed)?)
}

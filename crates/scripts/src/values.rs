//! Converts between Lua's values and replies, by Redis's rules (RESP2 inside scripts).

use super::failure::{Limit, Raised, on_one_line};
use super::meter::Meter;
use kv::codec::Reader;
use kv::limits::{SCRIPT_REPLY_BYTES_MAX, SCRIPT_REPLY_DEPTH_MAX};
use kv::number::format_decimal;
use kv::{Reply, ReplyBuffer};
use mlua::{Lua, LuaString, Table, Value};

/// The cost of an element of a reply, besides its bytes.
const ELEMENT_COST: u64 = 12;

/// Lua's name for the kind of a value.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "boolean",
        Value::Integer(_) | Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Table(_) => "table",
        Value::Function(_) => "function",
        Value::Thread(_) => "thread",
        _ => "userdata",
    }
}

/// The version of the protocol whose replies a script gets, and by which its boolean results are converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resp {
    Two,
    Three,
}

/// Reads a command's reply as a script gets it. An error is a table with the field `err`.
pub(super) fn read(lua: &Lua, reader: &mut Reader<'_>, resp: Resp, meter: &Meter) -> mlua::Result<Value> {
    Receiver { lua, resp, meter }.value(reader)
}

struct Receiver<'r> {
    lua: &'r Lua,
    resp: Resp,
    meter: &'r Meter,
}

impl Receiver<'_> {
    fn value(&self, reader: &mut Reader<'_>) -> mlua::Result<Value> {
        self.meter.charge(ELEMENT_COST)?;
        let string = |bytes: &[u8]| Ok(Value::String(self.lua.create_string(bytes)?));
        let is_resp3 = self.resp == Resp::Three;
        let Ok(reply) = Reply::decode(reader) else {
            return Err(Raised::reply("ERR malformed reply"));
        };
        match reply {
            Reply::Ok => self.field("ok", string(b"OK")?),
            Reply::Status(text) => self.field("ok", string(text)?),
            Reply::Error(text) => self.field("err", string(text)?),
            Reply::Null | Reply::NullArray if is_resp3 => Ok(Value::Nil),
            Reply::Null | Reply::NullArray => Ok(Value::Boolean(false)),
            Reply::Integer(number) => Ok(Value::Number(number as f64)),
            Reply::Bulk(bytes) => string(bytes),
            Reply::Text(bytes) if is_resp3 => {
                let text = self.lua.create_table()?;
                text.raw_set("format", "txt")?;
                text.raw_set("string", string(bytes)?)?;
                self.field("verbatim_string", Value::Table(text))
            }
            Reply::Text(bytes) => string(bytes),
            Reply::Double(number) | Reply::Decimal(number) if is_resp3 => {
                self.field("double", Value::Number(number))
            }
            Reply::Decimal(number) => string(format_decimal(number).as_bytes()),
            Reply::Double(number) => string(number_text(number, ARGUMENT_DIGITS).as_bytes()),
            Reply::BigNumber(digits) if is_resp3 => self.field("big_number", string(digits)?),
            Reply::BigNumber(digits) => string(digits),
            Reply::Boolean(truth) if is_resp3 => Ok(Value::Boolean(truth)),
            Reply::Boolean(truth) => Ok(Value::Integer(truth.into())),
            Reply::Map(count) | Reply::Entries(count) if is_resp3 => {
                let map = self.lua.create_table()?;
                for _ in 0..count {
                    if let Reply::Entries(_) = reply {
                        self.head(reader, Reply::Entry)?;
                    }
                    map.raw_set(self.value(reader)?, self.value(reader)?)?;
                }
                self.field("map", Value::Table(map))
            }
            Reply::Set(count) if is_resp3 => {
                let set = self.lua.create_table()?;
                for _ in 0..count {
                    set.raw_set(self.value(reader)?, true)?;
                }
                self.field("set", Value::Table(set))
            }
            Reply::Array(count) | Reply::Set(count) | Reply::Push(count) => {
                self.array(reader, count as usize)
            }
            Reply::Map(count) => self.array(reader, count as usize * 2),
            Reply::Pairs(count) => {
                // In RESP2 pairs are one flat array.
                let table = self.lua.create_table()?;
                for pair in 0..count as usize {
                    self.head(reader, Reply::Pair)?;
                    if is_resp3 {
                        table.raw_set(pair + 1, self.array(reader, 2)?)?;
                    } else {
                        table.raw_set(2 * pair + 1, self.value(reader)?)?;
                        table.raw_set(2 * pair + 2, self.value(reader)?)?;
                    }
                }
                Ok(Value::Table(table))
            }
            Reply::Entries(count) => self.array(reader, count as usize),
            Reply::Entry => self.array(reader, 2),
            Reply::Pair => Err(Raised::reply("ERR malformed reply")),
            // Cannot occur: before a script runs, the values of all its keys are put into the table.
            Reply::Unresolved(_)
            | Reply::Needs(_)
            | Reply::Reads(_)
            | Reply::Reference(_)
            | Reply::Lent(_) => Err(Raised::reply("ERR a value is kept as fragments")),
        }
    }

    /// Takes the head of a reply with elements, which must be `expected`.
    fn head(&self, reader: &mut Reader<'_>, expected: Reply<'_>) -> mlua::Result<()> {
        match Reply::decode(reader) {
            Ok(head) if head == expected => Ok(()),
            _ => Err(Raised::reply("ERR malformed reply")),
        }
    }

    fn field(&self, name: &str, value: Value) -> mlua::Result<Value> {
        let table = self.lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    }

    fn array(&self, reader: &mut Reader<'_>, count: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        for place in 1..=count {
            table.raw_set(place, self.value(reader)?)?;
        }
        Ok(Value::Table(table))
    }
}

/// Appends a script's result as a reply.
pub(super) fn write(value: &Value, resp: Resp, meter: &Meter, out: &mut ReplyBuffer) -> mlua::Result<()> {
    Writer { start: out.len(), resp, meter, out }.value(value, 0)
}

struct Writer<'w> {
    start: usize,
    resp: Resp,
    meter: &'w Meter,
    out: &'w mut ReplyBuffer,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        // A table can contain another one any number of times, so a small table can make a large reply.
        self.meter.charge(ELEMENT_COST)?;
        match value {
            Value::String(text) => {
                let bytes = text.as_bytes();
                self.make_room(bytes.len())?;
                self.out.bulk(&bytes);
            }
            Value::Integer(number) => self.out.integer(*number),
            Value::Number(number) => self.out.integer(truncated(*number)),
            Value::Boolean(truth) if self.resp == Resp::Three => self.out.push(Reply::Boolean(*truth)),
            Value::Boolean(true) => self.out.integer(1),
            Value::Table(_) if depth == SCRIPT_REPLY_DEPTH_MAX => return Err(self.too_large()),
            Value::Table(table) => {
                self.meter.charge(4 * ELEMENT_COST)?;
                self.table(table, depth)?;
            }
            _ => self.out.null(),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        if let Value::String(text) = table.raw_get("err")? {
            let line = line_of(&text);
            return self.leaf(Reply::Error(&line), line.len());
        }
        if let Value::String(text) = table.raw_get("ok")? {
            let line = line_of(&text);
            return self.leaf(Reply::Status(&line), line.len());
        }
        let double = match table.raw_get("double")? {
            Value::Integer(number) => Some(number as f64),
            Value::Number(number) => Some(number),
            _ => None,
        };
        if let Some(number) = double {
            self.out.push(Reply::Double(number));
            return Ok(());
        }
        if let Value::Table(map) = table.raw_get("map")? {
            return self.elements(&map, Reply::Map, true, depth);
        }
        if let Value::Table(set) = table.raw_get("set")? {
            return self.elements(&set, Reply::Set, false, depth);
        }
        if let Value::String(number) = table.raw_get("big_number")? {
            let line = line_of(&number);
            return self.leaf(Reply::BigNumber(&line), line.len());
        }
        if let Value::Table(verbatim) = table.raw_get("verbatim_string")?
            && let (Value::String(_), Value::String(text)) =
                (verbatim.raw_get("format")?, verbatim.raw_get("string")?)
        {
            let text = text.as_bytes();
            return self.leaf(Reply::Text(&text), text.len());
        }
        let mut count = 0;
        while !table.raw_get::<Value>(count + 1)?.is_nil() {
            self.meter.charge(ELEMENT_COST)?;
            count += 1;
        }
        self.make_room(0)?;
        self.out.array(count);
        for place in 1..=count {
            self.value(&table.raw_get::<Value>(place)?, depth + 1)?;
        }
        Ok(())
    }

    fn leaf(&mut self, reply: Reply<'_>, bytes: usize) -> mlua::Result<()> {
        self.make_room(bytes)?;
        self.out.push(reply);
        Ok(())
    }

    /// Writes a table's keys, with or without the values.
    fn elements(
        &mut self,
        table: &Table,
        kind: fn(u32) -> Reply<'static>,
        with_values: bool,
        depth: usize,
    ) -> mlua::Result<()> {
        if depth + 1 == SCRIPT_REPLY_DEPTH_MAX {
            return Err(self.too_large());
        }
        let mut count = 0;
        for pair in table.pairs::<Value, Value>() {
            pair?;
            self.meter.charge(ELEMENT_COST)?;
            count += 1;
        }
        self.make_room(0)?;
        self.out.push(kind(count));
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.value(&key, depth + 1)?;
            if with_values {
                self.value(&value, depth + 1)?;
            }
        }
        Ok(())
    }

    fn make_room(&self, bytes: usize) -> mlua::Result<()> {
        self.meter.charge_bytes(bytes)?;
        match self.out.len() - self.start + bytes > SCRIPT_REPLY_BYTES_MAX {
            true => Err(self.too_large()),
            false => Ok(()),
        }
    }

    fn too_large(&self) -> mlua::Error {
        self.meter.reach(Limit::Reply);
        Raised::limit(Limit::Reply)
    }
}

fn line_of(text: &LuaString) -> Vec<u8> {
    on_one_line(text.as_bytes().to_vec())
}

/// Converts a number to an integer reply by truncation. A number beyond 64 bits becomes the least integer, as on the
/// processors that Redis runs on.
pub(super) fn truncated(number: f64) -> i64 {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    match number {
        number if (-BEYOND..BEYOND).contains(&number) => number as i64,
        _ => i64::MIN,
    }
}

/// The digits with which arguments of commands are written: enough to read the same number again.
pub(super) const ARGUMENT_DIGITS: usize = 17;

/// Formats a number as C's `%g` does, with `digits` digits.
pub(super) fn number_text(number: f64, digits: usize) -> String {
    if !number.is_finite() {
        let sign = if number.is_sign_negative() { "-" } else { "" };
        return format!("{sign}{}", if number.is_nan() { "nan" } else { "inf" });
    }
    let scientific = format!("{number:.0$e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let without_zeros = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    let digits = digits as i32;
    if (-4..digits).contains(&exponent) {
        return without_zeros(&format!("{number:.0$}", (digits - 1 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
}

/// Makes a metatable that protects its table from every change by scripts, with Redis's error. Scripts can neither see
/// the metatable nor set another one.
pub(super) fn read_only(lua: &Lua) -> mlua::Result<Table> {
    let rules = lua.create_table_with_capacity(0, 3)?;
    rules.raw_set("__readonly", true)?;
    rules.raw_set("__metatable", false)?;
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        for (number, text) in [
            (0.1, "0.10000000000000001"),
            (3.0, "3"),
            (-2.5, "-2.5"),
            (1e20, "1e+20"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.5e-7, "1.4999999999999999e-07"),
            (0.0001, "0.0001"),
            (1e300, "1.0000000000000001e+300"),
            (0.0, "0"),
            (-0.0, "-0"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(number_text(number, ARGUMENT_DIGITS), text);
        }
    }

    #[test]
    fn numbers_are_written_with_fewer_digits_too() {
        for (number, text) in
            [(0.1, "0.1"), (1e14, "1e+14"), (1e13, "10000000000000"), (1.0 / 3.0, "0.33333333333333")]
        {
            assert_eq!(number_text(number, 14), text);
        }
    }

    #[test]
    fn numbers_beyond_64_bits_become_the_least_integer() {
        for (number, integer) in [
            (1.9, 1),
            (-1.9, -1),
            (f64::NAN, i64::MIN),
            (1e300, i64::MIN),
            (9_223_372_036_854_775_808.0, i64::MIN),
            (-9_223_372_036_854_775_808.0, i64::MIN),
            (9_007_199_254_740_993.0, 9_007_199_254_740_992),
        ] {
            assert_eq!(truncated(number), integer, "{number}");
        }
    }
}

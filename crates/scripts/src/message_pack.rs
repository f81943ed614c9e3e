//! `cmsgpack`: converts values of scripts to MessagePack and back, with the bytes and error texts of Redis's library.
//!
//! That library supports MessagePack without byte strings and extensions. It packs a number as an integer or as a `float`
//! if nothing is lost, and a table as an array if its keys are 1 to n.

use super::failure::Raised;
use super::given::Given;
use super::meter::{CALL_COST, Meter};
use mlua::{Lua, LuaString, MultiValue, Table, Value};
use std::rc::Rc;

/// Tables nested deeper than this are packed as nil.
const PACKED_DEPTH_MAX: usize = 16;
/// The greatest nesting depth of unpacked values.
const UNPACKED_DEPTH_MAX: usize = 1000;
/// The most values that one call returns; the stack has no room for many more.
const RESULTS_MAX: usize = 7900;

/// The cost of an element, besides its bytes.
const ELEMENT_COST: u64 = 20;

pub(super) fn table(lua: &Lua, meter: &Rc<Meter>) -> mlua::Result<Table> {
    type Function = fn(&Given<'_>, &Meter) -> mlua::Result<MultiValue>;
    const FUNCTIONS: [(&str, Function); 4] = [
        ("pack", |given, meter| {
            let packed = pack(given, meter)?;
            Ok([Value::String(packed)].into_iter().collect())
        }),
        ("unpack", |given, meter| unpack(given, meter, 0, 0)),
        ("unpack_one", |given, meter| {
            given.text(0)?;
            unpack(given, meter, 1, given.integer_or(1, 0)?)
        }),
        ("unpack_limit", |given, meter| {
            given.text(0)?;
            unpack(given, meter, given.integer(1)?, given.integer_or(2, 0)?)
        }),
    ];
    let table = lua.create_table()?;
    for (function, body) in FUNCTIONS {
        let meter = meter.clone();
        let call = move |lua: &Lua, values: MultiValue| {
            meter.charge(2 * CALL_COST)?;
            body(&Given { lua, function, values }, &meter)
        };
        table.raw_set(function, lua.create_function(call)?)?;
    }
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    Ok(table)
}

fn pack(given: &Given<'_>, meter: &Meter) -> mlua::Result<LuaString> {
    if given.values.is_empty() {
        return Err(Raised::argument(given.lua, 0, "pack", "MessagePack pack needs input."));
    }
    let mut writer = Writer { meter, out: Vec::new() };
    given.values.iter().try_for_each(|value| writer.value(value, 0))?;
    meter.charge_bytes(writer.out.len())?;
    given.lua.create_string(&writer.out)
}

struct Writer<'w> {
    meter: &'w Meter,
    out: Vec<u8>,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        self.meter.charge(ELEMENT_COST)?;
        match value {
            Value::Boolean(truth) => self.out.push(if *truth { 0xc3 } else { 0xc2 }),
            Value::Integer(number) => self.integer(*number),
            Value::Number(number) => self.number(*number),
            Value::String(text) => self.text(&text.as_bytes())?,
            Value::Table(table) if depth < PACKED_DEPTH_MAX => self.table(table, depth + 1)?,
            _ => self.out.push(0xc0),
        }
        Ok(())
    }

    fn tagged<const N: usize>(&mut self, tag: u8, bytes: [u8; N]) {
        self.out.push(tag);
        self.out.extend_from_slice(&bytes);
    }

    fn integer(&mut self, number: i64) {
        match number {
            -32..=127 => self.out.push(number as u8),
            128..=0xff => self.tagged(0xcc, [number as u8]),
            0x100..=0xffff => self.tagged(0xcd, (number as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => self.tagged(0xce, (number as u32).to_be_bytes()),
            0x1_0000_0000.. => self.tagged(0xcf, number.to_be_bytes()),
            -0x80..=-33 => self.tagged(0xd0, [number as u8]),
            -0x8000..=-0x81 => self.tagged(0xd1, (number as i16).to_be_bytes()),
            -0x8000_0000..=-0x8001 => self.tagged(0xd2, (number as i32).to_be_bytes()),
            ..=-0x8000_0001 => self.tagged(0xd3, number.to_be_bytes()),
        }
    }

    fn number(&mut self, number: f64) {
        const BEYOND: f64 = 9_223_372_036_854_775_808.0;
        // All NaNs become this one, since processors differ in which NaN they produce.
        const NAN: u64 = 0xfff8_0000_0000_0000;
        if number.fract() == 0.0 && (-BEYOND..BEYOND).contains(&number) {
            return self.integer(number as i64);
        }
        let short = number as f32;
        if f64::from(short) == number {
            self.tagged(0xca, short.to_be_bytes());
        } else {
            let bits = if number.is_nan() { NAN } else { number.to_bits() };
            self.tagged(0xcb, bits.to_be_bytes());
        }
    }

    fn text(&mut self, text: &[u8]) -> mlua::Result<()> {
        self.meter.check_room(self.out.len() + text.len())?;
        match text.len() {
            length @ ..=31 => self.out.push(0xa0 | length as u8),
            length @ 32..=0xff => self.tagged(0xd9, [length as u8]),
            length @ 0x100..=0xffff => self.tagged(0xda, (length as u16).to_be_bytes()),
            length => self.tagged(0xdb, (length as u32).to_be_bytes()),
        }
        self.out.extend_from_slice(text);
        self.meter.charge_bytes(text.len())
    }

    fn table(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        let (mut count, mut greatest, mut is_array) = (0_usize, 0, true);
        for pair in table.pairs::<Value, Value>() {
            self.meter.charge(ELEMENT_COST / 2)?;
            count += 1;
            match pair?.0 {
                Value::Integer(key @ 1..=0x7fff_ffff) => greatest = greatest.max(key as usize),
                _ => is_array = false,
            }
        }
        if is_array && greatest == count {
            self.head(count, [0x90, 0xdc, 0xdd]);
            return (1..=count).try_for_each(|place| self.value(&table.raw_get::<Value>(place)?, depth));
        }
        self.head(count, [0x80, 0xde, 0xdf]);
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.value(&key, depth)?;
            self.value(&value, depth)?;
        }
        Ok(())
    }

    /// Writes the head of an array or a map; `tags` are for up to 15 elements, 65,535 and more.
    fn head(&mut self, count: usize, tags: [u8; 3]) {
        match count {
            ..=15 => self.out.push(tags[0] | count as u8),
            16..=0xffff => self.tagged(tags[1], (count as u16).to_be_bytes()),
            _ => self.tagged(tags[2], (count as u32).to_be_bytes()),
        }
    }
}

/// Unpacks at most `limit` values from `offset` on, and returns first the position of the next value (-1: none), then the
/// values. If both are 0: all values and no position.
fn unpack(given: &Given<'_>, meter: &Meter, limit: i64, offset: i64) -> mlua::Result<MultiValue> {
    let text = given.text(0)?;
    let text = text.as_bytes();
    let length = text.len();
    let refuse = |why: String| Err(Raised::text(given.lua, why));
    if offset < 0 || limit < 0 {
        // As in Redis, the text shows the offset cut to 32 bits, and the length of the input as the limit.
        let offset = offset as i32;
        return refuse(format!("Invalid request to unpack with offset of {offset} and limit of {length}."));
    }
    let start = match usize::try_from(offset) {
        Ok(start) if start <= length => start,
        _ => {
            let offset = offset as i32;
            return refuse(format!("Start offset {offset} greater than input length {length}."));
        }
    };
    let is_all = limit == 0 && offset == 0;
    let mut reader = Reader { lua: given.lua, meter, bytes: &text, at: start };
    let mut values = Vec::new();
    if !is_all {
        values.push(Value::Nil);
    }
    let mut count = 0;
    while reader.at < length && (is_all || count < limit) {
        if values.len() == RESULTS_MAX {
            let advice = "too many return values at once; use unpack_one or unpack_limit instead.";
            return refuse(format!("stack overflow ({advice})"));
        }
        values.push(reader.value(0)?);
        count += 1;
    }
    if !is_all {
        values[0] = Value::Integer(if reader.at == length { -1 } else { reader.at as i64 });
    }
    Ok(values.into_iter().collect())
}

struct Reader<'r> {
    lua: &'r Lua,
    meter: &'r Meter,
    bytes: &'r [u8],
    at: usize,
}

impl<'r> Reader<'r> {
    fn take(&mut self, count: usize) -> mlua::Result<&'r [u8]> {
        match self.bytes[self.at..].get(..count) {
            Some(taken) => {
                self.at += count;
                Ok(taken)
            }
            None => Err(Raised::text(self.lua, "Missing bytes in input.")),
        }
    }

    fn taken<const N: usize>(&mut self) -> mlua::Result<[u8; N]> {
        let mut taken = [0; N];
        taken.copy_from_slice(self.take(N)?);
        Ok(taken)
    }

    fn length(&mut self, wide: bool) -> mlua::Result<usize> {
        Ok(match wide {
            true => u32::from_be_bytes(self.taken()?) as usize,
            false => u16::from_be_bytes(self.taken()?).into(),
        })
    }

    fn value(&mut self, depth: usize) -> mlua::Result<Value> {
        self.meter.charge(ELEMENT_COST)?;
        let [tag] = self.taken()?;
        let number = match tag {
            0xc0 => return Ok(Value::Nil),
            0xc2 | 0xc3 => return Ok(Value::Boolean(tag == 0xc3)),
            0xa0..=0xbf => return self.text(usize::from(tag & 0x1f)),
            0xd9 => {
                let [length] = self.taken()?;
                return self.text(length.into());
            }
            0xda | 0xdb => {
                let length = self.length(tag == 0xdb)?;
                return self.text(length);
            }
            0x90..=0x9f => return self.array(usize::from(tag & 15), depth),
            0xdc | 0xdd => {
                let length = self.length(tag == 0xdd)?;
                return self.array(length, depth);
            }
            0x80..=0x8f => return self.map(usize::from(tag & 15), depth),
            0xde | 0xdf => {
                let length = self.length(tag == 0xdf)?;
                return self.map(length, depth);
            }
            0x00..=0x7f | 0xe0..=0xff => f64::from(tag as i8),
            0xca => f32::from_be_bytes(self.taken()?).into(),
            0xcb => f64::from_be_bytes(self.taken()?),
            0xcc => u8::from_be_bytes(self.taken()?).into(),
            0xcd => u16::from_be_bytes(self.taken()?).into(),
            0xce => u32::from_be_bytes(self.taken()?).into(),
            // Redis's library reads unsigned numbers of 64 bits as signed ones, too.
            0xcf | 0xd3 => i64::from_be_bytes(self.taken()?) as f64,
            0xd0 => i8::from_be_bytes(self.taken()?).into(),
            0xd1 => i16::from_be_bytes(self.taken()?).into(),
            0xd2 => i32::from_be_bytes(self.taken()?).into(),
            _ => return Err(Raised::text(self.lua, "Bad data format in input.")),
        };
        Ok(Value::Number(number))
    }

    fn text(&mut self, length: usize) -> mlua::Result<Value> {
        let text = self.take(length)?;
        self.meter.charge_bytes(length)?;
        Ok(Value::String(self.lua.create_string(text)?))
    }

    fn descend(&self, depth: usize, kind: &str) -> mlua::Result<usize> {
        match depth {
            UNPACKED_DEPTH_MAX => {
                let error = format!("stack overflow (in function mp_decode_to_lua_{kind})");
                Err(Raised::text(self.lua, error))
            }
            depth => Ok(depth + 1),
        }
    }

    fn array(&mut self, length: usize, depth: usize) -> mlua::Result<Value> {
        let depth = self.descend(depth, "array")?;
        let table = self.lua.create_table()?;
        // An array with too large a length ends with an error where the bytes end.
        for place in 1..=length {
            table.raw_set(place, self.value(depth)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, length: usize, depth: usize) -> mlua::Result<Value> {
        let depth = self.descend(depth, "hash")?;
        let table = self.lua.create_table()?;
        for _ in 0..length {
            let (key, value) = (self.value(depth)?, self.value(depth)?);
            let wrong = match &key {
                Value::Nil => "nil",
                Value::Number(number) if number.is_nan() => "NaN",
                _ => {
                    table.raw_set(key, value)?;
                    continue;
                }
            };
            return Err(Raised::text(self.lua, format_args!("table index is {wrong}")));
        }
        Ok(Value::Table(table))
    }
}

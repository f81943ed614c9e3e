//! `struct`: converts values of scripts to the bytes of C's structures and back, with the bytes and error texts of Redis's
//! library (by Roberto Ierusalimschy). Sizes are those of 64-bit processors, on every machine.

use super::failure::Raised;
use super::given::Given;
use super::meter::{CALL_COST, Meter};
use super::values::truncated;
use mlua::{Lua, MultiValue, Table, Value};
use std::rc::Rc;

/// The greatest size of an integer in bytes.
const INTEGER_BYTES_MAX: usize = 32;
/// The alignment that `!` asks for.
const ALIGNMENT: i32 = 8;
/// The most values that one call returns, besides the position after them; the stack has no room for many more.
const RESULTS_MAX: usize = 7900;

/// The cost of an option of a format.
const OPTION_COST: u64 = 10;

pub(super) fn table(lua: &Lua, meter: &Rc<Meter>) -> mlua::Result<Table> {
    type Function = fn(&Given<'_>, &Meter) -> mlua::Result<MultiValue>;
    const FUNCTIONS: [(&str, Function); 3] = [
        ("pack", |given, meter| {
            let packed = given.lua.create_string(pack(given, meter)?)?;
            Ok([Value::String(packed)].into_iter().collect())
        }),
        ("unpack", |given, meter| unpack(given, meter).map(|values| values.into_iter().collect())),
        ("size", |given, meter| Ok([Value::Integer(size(given, meter)?)].into_iter().collect())),
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
    Ok(table)
}

/// One option of a format.
#[derive(Clone, Copy)]
struct Item {
    letter: u8,
    /// Its size in bytes; 0 if the format does not define it.
    bytes: usize,
    /// The zero bytes before it.
    padding: usize,
}

/// Reads a format, option by option. As in C, a zero byte ends it.
struct Format<'f> {
    given: &'f Given<'f>,
    meter: &'f Meter,
    rest: &'f [u8],
    is_big: bool,
    alignment: usize,
}

impl<'f> Format<'f> {
    fn new(given: &'f Given<'f>, meter: &'f Meter, text: &'f [u8]) -> Format<'f> {
        Format { given, meter, rest: text, is_big: false, alignment: 1 }
    }

    fn refuse<T>(&self, why: impl std::fmt::Display) -> mlua::Result<T> {
        Err(Raised::text(self.given.lua, why))
    }

    /// The next option, whose value comes after `before` bytes.
    fn next(&mut self, before: usize) -> mlua::Result<Option<Item>> {
        self.meter.charge(OPTION_COST)?;
        let Some((&letter @ 1.., rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let bytes = match letter {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number(1)? as usize,
            b'i' | b'I' => match self.number(4)? as usize {
                bytes @ ..=INTEGER_BYTES_MAX => bytes,
                bytes => {
                    let why = format!("integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}");
                    return self.refuse(why);
                }
            },
            _ => 0,
        };
        let padding = match bytes.min(self.alignment) {
            0 => 0,
            _ if letter == b'c' => 0,
            // The same formula applies to sizes that are not a power of two.
            unit => unit.wrapping_sub(before & (unit - 1)) & (unit - 1),
        };
        Ok(Some(Item { letter, bytes, padding }))
    }

    /// The decimal number at the front, or a default if there is none.
    fn number(&mut self, default: i32) -> mlua::Result<i32> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(digits);
        self.rest = rest;
        self.meter.charge_bytes(digits.len())?;
        if digits.is_empty() {
            return Ok(default);
        }
        let number = digits
            .iter()
            .try_fold(0_i32, |number, digit| number.checked_mul(10)?.checked_add(i32::from(digit - b'0')));
        number.map_or_else(|| self.refuse("integral size overflow"), Ok)
    }

    /// Applies an option that stands for no value.
    fn control(&mut self, letter: u8) -> mlua::Result<()> {
        match letter {
            b' ' => {}
            b'>' => self.is_big = true,
            b'<' => self.is_big = false,
            b'!' => match self.number(ALIGNMENT)? {
                unit if unit > 0 && unit & (unit - 1) == 0 => self.alignment = unit as usize,
                unit => return self.refuse(format_args!("alignment {unit} is not a power of 2")),
            },
            letter => {
                let option = char::from(letter);
                return Err(self.given.wrong(0, &format!("invalid format option '{option}'")));
            }
        }
        Ok(())
    }
}

fn pack(given: &Given<'_>, meter: &Meter) -> mlua::Result<Vec<u8>> {
    let text = given.text(0)?;
    let text = text.as_bytes();
    let mut format = Format::new(given, meter, &text);
    // Redis's library reads arguments that are not given as nil.
    let is_missing = |place| place >= given.values.len();
    let missing = |place, expected| given.wrong(place, &format!("{expected} expected, got nil"));
    let number = |place| match is_missing(place) {
        true => Err(missing(place, "number")),
        false => given.number(place),
    };
    let (mut out, mut place) = (Vec::new(), 1);
    while let Some(item) = format.next(out.len())? {
        // An integer and the padding before it are short; texts are checked below.
        meter.check_room(out.len() + 2 * INTEGER_BYTES_MAX)?;
        out.resize(out.len() + item.padding, 0);
        match item.letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                put_integer(number(place)?, item.bytes, format.is_big, &mut out);
            }
            b'x' => out.push(0),
            b'f' => {
                let bytes = canonical_f32(number(place)? as f32).to_le_bytes();
                out.extend_from_slice(&little::<4>(&bytes, format.is_big));
            }
            b'd' => {
                let bytes = canonical_f64(number(place)?).to_le_bytes();
                out.extend_from_slice(&little::<8>(&bytes, format.is_big));
            }
            b'c' | b's' => {
                if is_missing(place) {
                    return Err(missing(place, "string"));
                }
                let text = given.text(place)?;
                let text = text.as_bytes();
                let bytes = if item.bytes == 0 { text.len() } else { item.bytes };
                let Some(text) = text.get(..bytes) else {
                    return Err(given.wrong(place + 1, "string too short"));
                };
                meter.check_room(out.len() + bytes)?;
                meter.charge_bytes(bytes)?;
                out.extend_from_slice(text);
                if item.letter == b's' {
                    out.push(0);
                }
            }
            letter => {
                format.control(letter)?;
                continue;
            }
        }
        if item.letter != b'x' {
            place += 1;
        }
    }
    Ok(out)
}

/// Converts a number to an unsigned integer of 64 bits as C does on the processors that Redis runs on: a negative number
/// becomes its two's complement.
fn integer_of(number: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    match number {
        number if number < HALF => truncated(number) as u64,
        number if number.is_nan() => 1 << 63,
        number => truncated(number - HALF) as u64 ^ 1 << 63,
    }
}

fn put_integer(number: f64, bytes: usize, is_big: bool, out: &mut Vec<u8>) {
    let start = out.len();
    // Bytes beyond 64 bits are zero, whatever the sign.
    out.extend_from_slice(&integer_of(number).to_le_bytes()[..bytes.min(8)]);
    out.resize(start + bytes, 0);
    if is_big {
        out[start..].reverse();
    }
}

/// Converts a number's bytes from the format's order to little-endian, or back.
fn little<const N: usize>(bytes: &[u8], is_big: bool) -> [u8; N] {
    let mut turned = [0; N];
    turned.copy_from_slice(bytes);
    if is_big {
        turned.reverse();
    }
    turned
}

/// The bits of a number. All NaNs become the same one, since processors differ in which NaN they produce.
fn canonical_f64(number: f64) -> u64 {
    if number.is_nan() { 0xfff8_0000_0000_0000 } else { number.to_bits() }
}

fn canonical_f32(number: f32) -> u32 {
    if number.is_nan() { 0xffc0_0000 } else { number.to_bits() }
}

fn integer_from(bytes: &[u8], is_big: bool, is_signed: bool) -> f64 {
    let join = |joined: u64, byte: &u8| joined << 8 | u64::from(*byte);
    let number = match is_big {
        true => bytes.iter().fold(0, join),
        false => bytes.iter().rev().fold(0, join),
    };
    if !is_signed {
        return number as f64;
    }
    // Beyond 64 bits the position of the sign wraps around, like C's shifts on the processors that Redis runs on.
    let signs = u64::MAX << ((bytes.len() as u32).wrapping_mul(8).wrapping_sub(1) & 63);
    let number = if number & signs == 0 { number } else { number | signs };
    number as i64 as f64
}

fn unpack(given: &Given<'_>, meter: &Meter) -> mlua::Result<Vec<Value>> {
    let (text, data) = (given.text(0)?, given.text(1)?);
    let (text, data) = (text.as_bytes(), data.as_bytes());
    let mut at = match given.integer_or(2, 1)? {
        0 => return Err(given.wrong(2, "offset must be 1 or greater")),
        position => position as u64 as usize - 1,
    };
    let mut format = Format::new(given, meter, &text);
    let mut values: Vec<Value> = Vec::new();
    // The bytes at a place, if the text is long enough.
    let slice = |at: usize, bytes: usize| {
        let found = data.get(at..).and_then(|rest| rest.get(..bytes));
        found.ok_or_else(|| given.wrong(1, "data string too short"))
    };
    while let Some(item) = format.next(at)? {
        slice(at, item.bytes)?;
        at += item.padding;
        let found = slice(at, item.bytes)?;
        if values.len() == RESULTS_MAX {
            return format.refuse("stack overflow (too many results)");
        }
        at += item.bytes;
        match item.letter {
            letter @ (b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I') => {
                let number = integer_from(found, format.is_big, letter.is_ascii_lowercase());
                values.push(Value::Number(number));
            }
            b'x' => {}
            b'f' | b'd' => {
                let number = match item.letter {
                    b'f' => f32::from_le_bytes(little(found, format.is_big)).into(),
                    _ => f64::from_le_bytes(little(found, format.is_big)),
                };
                values.push(Value::Number(number));
            }
            b'c' => {
                let found = match item.bytes {
                    0 => {
                        let before = match values.pop() {
                            Some(value) => given.lua.coerce_number(value)?,
                            None => None,
                        };
                        let Some(bytes) = before else {
                            return format.refuse("format 'c0' needs a previous size");
                        };
                        let found = slice(at, usize::try_from(integer_of(bytes)).unwrap_or(usize::MAX))?;
                        at += found.len();
                        found
                    }
                    _ => found,
                };
                meter.charge_bytes(found.len())?;
                values.push(Value::String(given.lua.create_string(found)?));
            }
            b's' => {
                let rest = &data[at..];
                let Some(length) = memchr::memchr(0, rest) else {
                    meter.charge_bytes(rest.len())?;
                    return format.refuse("unfinished string in data");
                };
                meter.charge_bytes(length)?;
                values.push(Value::String(given.lua.create_string(&rest[..length])?));
                at += length + 1;
            }
            letter => format.control(letter)?,
        }
    }
    values.push(Value::Integer((at as i64).wrapping_add(1)));
    Ok(values)
}

/// The bytes of a format whose options all have a size.
fn size(given: &Given<'_>, meter: &Meter) -> mlua::Result<i64> {
    let text = given.text(0)?;
    let text = text.as_bytes();
    let mut format = Format::new(given, meter, &text);
    let mut bytes = 0_usize;
    while let Some(item) = format.next(bytes)? {
        let option = match item {
            Item { letter: b's', .. } => "s",
            Item { letter: b'c', bytes: 0, .. } => "c0",
            _ => {
                if !item.letter.is_ascii_alphanumeric() {
                    format.control(item.letter)?;
                }
                // This cannot overflow: a format is too short for that.
                bytes += item.padding + item.bytes;
                continue;
            }
        };
        return Err(given.wrong(0, &format!("option '{option}' has no fixed size")));
    }
    Ok(bytes as i64)
}

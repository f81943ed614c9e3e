//! `cjson`: converts values of scripts to JSON and back, by the rules and with the error texts of Redis's library.
//!
//! The fields of an object come in the order in which Lua iterates over a table, which is the same everywhere since
//! they are texts and numbers.

use super::failure::Raised;
use super::meter::{CALL_COST, Limit, Meter};
use super::values::number_text;
use kv::limits::SCRIPT_MEMORY_BYTES_MAX;
use mlua::{Lua, MultiValue, Table, Value};
use std::rc::Rc;

/// The greatest nesting depth of tables, arrays and objects.
const DEPTH_MAX: usize = 1000;
/// The digits of a number.
const DIGITS: usize = 14;
/// An array may have any holes up to this length; if it is longer, every second element must be present.
const SPARSE_LENGTH_SAFE: usize = 10;
const SPARSE_RATIO_MAX: usize = 2;

/// The cost of an element, beside its bytes.
const ELEMENT_COST: u64 = 20;

pub(super) fn table(lua: &Lua, meter: &Rc<Meter>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let own = meter.clone();
    let encode = move |lua: &Lua, arguments: MultiValue| {
        if arguments.len() != 1 {
            return Err(Raised::argument(lua, 1, "encode", "expected 1 argument"));
        }
        let mut writer = Writer { lua, meter: &own, out: Vec::new() };
        own.charge(2 * CALL_COST)?;
        writer.value(&arguments[0], 0)?;
        lua.create_string(&writer.out)
    };
    table.raw_set("encode", lua.create_function(encode)?)?;
    let own = meter.clone();
    let decode = move |lua: &Lua, arguments: MultiValue| {
        let text = match (arguments.len(), arguments.front()) {
            (1, Some(value)) => lua.coerce_string(value.clone())?,
            _ => return Err(Raised::argument(lua, 1, "decode", "expected 1 argument")),
        };
        let Some(text) = text else {
            let given = super::values::type_name(&arguments[0]);
            let why = format!("string expected, got {given}");
            return Err(Raised::argument(lua, 1, "decode", &why));
        };
        let text = text.as_bytes();
        own.charge(2 * CALL_COST)?;
        own.charge_bytes(text.len())?;
        Reader { lua, meter: &own, text: &text, at: 0 }.document()
    };
    table.raw_set("decode", lua.create_function(decode)?)?;
    table.raw_set("null", Value::NULL)?;
    Ok(table)
}

struct Writer<'w> {
    lua: &'w Lua,
    meter: &'w Meter,
    out: Vec<u8>,
}

impl Writer<'_> {
    fn refuse<T>(&self, what: &str, why: &str) -> mlua::Result<T> {
        Err(Raised::text(self.lua, format!("Cannot serialise {what}: {why}")))
    }

    fn value(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        self.meter.charge(ELEMENT_COST)?;
        match value {
            Value::Nil => self.out.extend_from_slice(b"null"),
            value if *value == Value::NULL => self.out.extend_from_slice(b"null"),
            Value::Boolean(truth) => self.out.extend_from_slice(if *truth { b"true" } else { b"false" }),
            Value::Integer(number) => self.number(*number as f64)?,
            Value::Number(number) => self.number(*number)?,
            Value::String(text) => self.text(&text.as_bytes())?,
            Value::Table(table) => {
                if depth == DEPTH_MAX {
                    let depth = depth + 1;
                    let error = format!("Cannot serialise, excessive nesting ({depth})");
                    return Err(Raised::text(self.lua, error));
                }
                match self.array_length(table)? {
                    0 => self.object(table, depth + 1)?,
                    length => self.array(table, length, depth + 1)?,
                }
            }
            value => return self.refuse(super::values::type_name(value), "type not supported"),
        }
        Ok(())
    }

    fn number(&mut self, number: f64) -> mlua::Result<()> {
        if !number.is_finite() {
            return self.refuse("number", "must not be NaN or Inf");
        }
        self.meter.charge(ELEMENT_COST)?;
        self.out.extend_from_slice(number_text(number, DIGITS).as_bytes());
        Ok(())
    }

    fn text(&mut self, text: &[u8]) -> mlua::Result<()> {
        self.meter.charge_bytes(text.len())?;
        // A script can put one text into a table many times: its memory does not limit what is written.
        if self.out.len() + text.len() > SCRIPT_MEMORY_BYTES_MAX {
            self.meter.reach(Limit::Memory);
            return Err(Raised::limit(Limit::Memory));
        }
        self.out.push(b'"');
        for byte in text {
            match byte {
                b'"' => self.out.extend_from_slice(b"\\\""),
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                b'/' => self.out.extend_from_slice(b"\\/"),
                0x08 => self.out.extend_from_slice(b"\\b"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                0x0c => self.out.extend_from_slice(b"\\f"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                0..0x20 | 0x7f => self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                byte => self.out.push(*byte),
            }
        }
        self.out.push(b'"');
        Ok(())
    }

    /// The length of the array that a table is, or 0 if it is not an array: its keys are positive integers.
    fn array_length(&self, table: &Table) -> mlua::Result<usize> {
        let (mut greatest, mut count) = (0_usize, 0);
        let mut is_array = true;
        self.for_each(table, |key, _| {
            let number = match key {
                Value::Integer(number) => number as f64,
                Value::Number(number) => number,
                _ => 0.0,
            };
            is_array &= number >= 1.0 && number.floor() == number && number < 2f64.powi(53);
            greatest = greatest.max(number as usize);
            count += 1;
            Ok(is_array)
        })?;
        if !is_array {
            return Ok(0);
        }
        if greatest > SPARSE_LENGTH_SAFE && greatest > count * SPARSE_RATIO_MAX {
            return self.refuse("table", "excessively sparse array");
        }
        Ok(greatest)
    }

    /// Visits a table's entries until `visit` returns false.
    fn for_each(
        &self,
        table: &Table,
        mut visit: impl FnMut(Value, Value) -> mlua::Result<bool>,
    ) -> mlua::Result<()> {
        for pair in table.pairs::<Value, Value>() {
            self.meter.charge(ELEMENT_COST / 2)?;
            let (key, value) = pair?;
            if !visit(key, value)? {
                break;
            }
        }
        Ok(())
    }

    fn array(&mut self, table: &Table, length: usize, depth: usize) -> mlua::Result<()> {
        self.out.push(b'[');
        for place in 1..=length {
            if place > 1 {
                self.out.push(b',');
            }
            self.value(&table.raw_get::<Value>(place)?, depth)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        self.out.push(b'{');
        let mut is_first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if !std::mem::take(&mut is_first) {
                self.out.push(b',');
            }
            match key {
                Value::String(text) => self.text(&text.as_bytes())?,
                Value::Integer(_) | Value::Number(_) => {
                    self.out.push(b'"');
                    self.value(&key, depth)?;
                    self.out.push(b'"');
                }
                _ => return self.refuse("table", "table key must be a number or string"),
            }
            self.out.push(b':');
            self.value(&value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }
}

/// A token of a text.
enum Token {
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    /// One of `{}[]:,`.
    Mark(u8),
    End,
    /// An invalid token: what is wrong.
    Wrong(&'static str),
}

impl Token {
    /// The token's name in the error texts of Redis's library.
    fn name(&self) -> &'static str {
        match self {
            Token::Mark(b'{') => "T_OBJ_BEGIN",
            Token::Mark(b'}') => "T_OBJ_END",
            Token::Mark(b'[') => "T_ARR_BEGIN",
            Token::Mark(b']') => "T_ARR_END",
            Token::Text(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Mark(b':') => "T_COLON",
            Token::Mark(_) => "T_COMMA",
            Token::End => "T_END",
            Token::Wrong(what) => what,
        }
    }
}

struct Reader<'r> {
    lua: &'r Lua,
    meter: &'r Meter,
    text: &'r [u8],
    at: usize,
}

impl Reader<'_> {
    fn document(mut self) -> mlua::Result<Value> {
        if self.text.len() >= 2 && self.text[..2].contains(&0) {
            return Err(Raised::text(self.lua, "JSON parser does not support UTF-16 or UTF-32"));
        }
        let first = self.next()?;
        let value = self.value(first, 0)?;
        match self.next()? {
            (Token::End, _) => Ok(value),
            other => self.expected("the end", &other),
        }
    }

    fn expected<T>(&self, what: &str, (found, at): &(Token, usize)) -> mlua::Result<T> {
        let error = format!("Expected {what} but found {} at character {}", found.name(), at + 1);
        Err(Raised::text(self.lua, error))
    }

    fn value(&mut self, token: (Token, usize), depth: usize) -> mlua::Result<Value> {
        match token {
            (Token::Text(text), _) => Ok(Value::String(self.lua.create_string(text)?)),
            (Token::Number(number), _) => Ok(Value::Number(number)),
            (Token::Boolean(truth), _) => Ok(Value::Boolean(truth)),
            (Token::Null, _) => Ok(Value::NULL),
            (Token::Mark(mark @ (b'{' | b'[')), at) => {
                if depth == DEPTH_MAX {
                    let error = format!(
                        "Found too many nested data structures ({}) at character {}",
                        depth + 1,
                        at + 1
                    );
                    return Err(Raised::text(self.lua, error));
                }
                if mark == b'{' { self.object(depth + 1) } else { self.array(depth + 1) }
            }
            other => self.expected("value", &other),
        }
    }

    fn object(&mut self, depth: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        let mut token = self.next()?;
        if let (Token::Mark(b'}'), _) = token {
            return Ok(Value::Table(table));
        }
        loop {
            let (Token::Text(key), _) = token else {
                return self.expected("object key string", &token);
            };
            match self.next()? {
                (Token::Mark(b':'), _) => {}
                other => return self.expected("colon", &other),
            }
            let first = self.next()?;
            let value = self.value(first, depth)?;
            table.raw_set(self.lua.create_string(key)?, value)?;
            match self.next()? {
                (Token::Mark(b'}'), _) => return Ok(Value::Table(table)),
                (Token::Mark(b','), _) => token = self.next()?,
                other => return self.expected("comma or object end", &other),
            }
        }
    }

    fn array(&mut self, depth: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        let mut token = self.next()?;
        if let (Token::Mark(b']'), _) = token {
            return Ok(Value::Table(table));
        }
        for place in 1.. {
            let value = self.value(token, depth)?;
            table.raw_set(place, value)?;
            match self.next()? {
                (Token::Mark(b']'), _) => break,
                (Token::Mark(b','), _) => token = self.next()?,
                other => return self.expected("comma or array end", &other),
            }
        }
        Ok(Value::Table(table))
    }

    /// Returns the next token and where it begins.
    fn next(&mut self) -> mlua::Result<(Token, usize)> {
        self.meter.charge(ELEMENT_COST)?;
        let rest = &self.text[self.at..];
        self.at += rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
        let start = self.at;
        let rest = &self.text[start..];
        let token = match rest.first() {
            None => Token::End,
            Some(mark @ (b'{' | b'}' | b'[' | b']' | b':' | b',')) => {
                self.at += 1;
                Token::Mark(*mark)
            }
            Some(b'"') => {
                self.at += 1;
                let text = self.quoted();
                return Ok(text
                    .map_or_else(|(what, at)| (Token::Wrong(what), at), |text| (Token::Text(text), start)));
            }
            Some(b'-' | b'0'..=b'9') => match number(rest) {
                Some((number, length)) => {
                    self.at += length;
                    Token::Number(number)
                }
                None => Token::Wrong("invalid number"),
            },
            Some(_) => {
                let words: [(&[u8], Token); 3] = [
                    (b"true", Token::Boolean(true)),
                    (b"false", Token::Boolean(false)),
                    (b"null", Token::Null),
                ];
                match words.into_iter().find(|(word, _)| rest.starts_with(word)) {
                    Some((word, token)) => {
                        self.at += word.len();
                        token
                    }
                    None => Token::Wrong("invalid token"),
                }
            }
        };
        Ok((token, start))
    }

    /// Reads the rest of a text behind its first quotation mark. The error is what is wrong with it, and where.
    fn quoted(&mut self) -> Result<Vec<u8>, (&'static str, usize)> {
        let mut text = Vec::new();
        loop {
            let rest = &self.text[self.at..];
            match rest.first() {
                None => return Err(("unexpected end of string", self.at)),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    let escaped = match rest.get(1) {
                        Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
                        Some(b'b') => 0x08,
                        Some(b't') => b'\t',
                        Some(b'n') => b'\n',
                        Some(b'f') => 0x0c,
                        Some(b'r') => b'\r',
                        Some(b'u') => {
                            let (letter, length) =
                                unicode(rest).ok_or(("invalid unicode escape code", self.at))?;
                            text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                            self.at += length;
                            continue;
                        }
                        _ => return Err(("invalid escape code", self.at)),
                    };
                    text.push(escaped);
                    self.at += 2;
                }
                Some(byte) => {
                    text.push(*byte);
                    self.at += 1;
                }
            }
        }
    }
}

/// Decodes an escape such as `\u00e4` at the front, or two of them together. Returns the letter and the length.
fn unicode(text: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        let is_hexadecimal = digits.iter().all(u8::is_ascii_hexdigit);
        let digits = std::str::from_utf8(digits).ok().filter(|_| is_hexadecimal)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let first = unit(0)?;
    match char::from_u32(first.into()) {
        Some(letter) => Some((letter, 6)),
        None => {
            let letter = char::decode_utf16([first, unit(6)?]).next()?.ok()?;
            Some((letter, 12))
        }
    }
}

/// Reads the decimal number at the front, as C does. Returns it and its length.
fn number(text: &[u8]) -> Option<(f64, usize)> {
    let digits = |at: usize| text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let sign = usize::from(text.first() == Some(&b'-'));
    let whole = digits(sign);
    let mut end = sign + whole;
    let mut count = whole;
    if text.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        count += fraction;
        if count > 0 {
            end += 1 + fraction;
        }
    }
    if count == 0 {
        return None;
    }
    if let Some(b'e' | b'E') = text.get(end) {
        let signed = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + signed);
        if exponent > 0 {
            end += 1 + signed + exponent;
        }
    }
    let number = std::str::from_utf8(&text[..end]).ok()?.parse().ok()?;
    Some((number, end))
}

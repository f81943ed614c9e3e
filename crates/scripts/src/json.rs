//! `cjson`: converts values of scripts to JSON and back, by the rules and with the error texts of Redis's library.
//!
//! The fields of an object come in the order in which Lua iterates over the table. That order is the same everywhere, since
//! the keys are texts and numbers.

use super::failure::Raised;
use super::given::Given;
use super::meter::{CALL_COST, Meter};
use super::values::{number_text, read_only, type_name};
use mlua::{Function, Lua, MultiValue, Table, Value};
use std::cell::Cell;
use std::rc::Rc;

/// The greatest nesting depth of tables, arrays and objects. In Redis's library, scripts can choose a greater one; here they
/// cannot, since each level takes a part of the stack.
const DEPTH_MAX: i64 = 1000;
/// The most digits of a number.
const DIGITS_MAX: i64 = 14;

/// The cost of an element, besides its bytes.
const ELEMENT_COST: u64 = 20;

/// The settings that a script can choose. They last until the run ends; in Redis, until the server ends.
#[derive(Clone, Copy, Debug)]
struct Settings {
    encode_depth: i64,
    decode_depth: i64,
    digits: i64,
    /// Whether an array with too many holes becomes an object instead of an error.
    sparse_convert: usize,
    /// An array of length up to `sparse_safe` may have any holes. In a longer one, at least one element in
    /// `sparse_ratio` must be present; with 0 it may have any holes.
    sparse_ratio: i64,
    sparse_safe: i64,
    /// What NaN and infinities are encoded as: an error, a word, or `null`.
    encode_invalid: usize,
    /// Whether numbers such as `inf`, `nan` and `0x10` are read.
    decode_invalid: usize,
    /// No effect: in Redis it only saves memory.
    keep_buffer: usize,
    /// Whether arrays that are decoded are marked as such, so that they stay arrays when they are empty.
    mark_arrays: usize,
}

const DEFAULTS: Settings = Settings {
    encode_depth: DEPTH_MAX,
    decode_depth: DEPTH_MAX,
    digits: DIGITS_MAX,
    sparse_convert: 0,
    sparse_ratio: 2,
    sparse_safe: 10,
    encode_invalid: 0,
    decode_invalid: 1,
    keep_buffer: 1,
    mark_arrays: 0,
};

const SWITCH: &[&str] = &["off", "on"];
const INVALID: &[&str] = &["off", "on", "null"];

/// The functions that read and change one setting.
const SETTERS: [(&str, Setter); 7] = [
    ("decode_invalid_numbers", |given, settings| switch(given, SWITCH, &mut settings.decode_invalid)),
    ("decode_max_depth", |given, settings| range(given, 0, 1..=DEPTH_MAX, &mut settings.decode_depth)),
    ("encode_invalid_numbers", |given, settings| switch(given, INVALID, &mut settings.encode_invalid)),
    ("encode_keep_buffer", |given, settings| switch(given, SWITCH, &mut settings.keep_buffer)),
    ("encode_max_depth", |given, settings| range(given, 0, 1..=DEPTH_MAX, &mut settings.encode_depth)),
    ("encode_number_precision", |given, settings| range(given, 0, 1..=DIGITS_MAX, &mut settings.digits)),
    ("encode_sparse_array", |given, settings| {
        const ANY: std::ops::RangeInclusive<i64> = 0..=i32::MAX as i64;
        switch(given, SWITCH, &mut settings.sparse_convert)?;
        range(given, 1, ANY, &mut settings.sparse_ratio)?;
        range(given, 2, ANY, &mut settings.sparse_safe)
    }),
];
type Setter = fn(&Given<'_>, &mut Settings) -> mlua::Result<Value>;

/// The same, of a later version of Redis's library: scripts that nodes of release 1 run, too, do not get it.
const LATER_SETTER: (&str, Setter) =
    ("decode_array_with_array_mt", |given, settings| switch(given, SWITCH, &mut settings.mark_arrays));

/// The place in Lua's registry of the metatable of marked arrays.
const MARK: &str = "cjson array";

/// Sets a numeric setting if a number is given, and returns the setting.
fn range(
    given: &Given<'_>,
    place: usize,
    allowed: std::ops::RangeInclusive<i64>,
    setting: &mut i64,
) -> mlua::Result<Value> {
    let number = given.integer_or(place, *setting)?;
    if !allowed.contains(&number) {
        let why = format!("expected integer between {} and {}", allowed.start(), allowed.end());
        return Err(given.wrong(0, &why));
    }
    *setting = number;
    Ok(Value::Integer(number))
}

/// Sets a setting to one of `words` if one is given; the first two may be written as false and true. Returns the setting.
fn switch(given: &Given<'_>, words: &[&str], setting: &mut usize) -> mlua::Result<Value> {
    match given.optional(0) {
        None => {}
        Some(Value::Boolean(truth)) => *setting = usize::from(*truth),
        Some(_) => {
            let word = given.text(0)?;
            let found = words.iter().position(|known| known.as_bytes() == &*word.as_bytes());
            *setting = found
                .ok_or_else(|| given.wrong(0, &format!("invalid option '{}'", word.to_string_lossy())))?;
        }
    }
    match *setting {
        0 | 1 => Ok(Value::Boolean(*setting == 1)),
        other => Ok(Value::String(given.lua.create_string(words[other])?)),
    }
}

pub(super) fn table(lua: &Lua, meter: &Rc<Meter>, by_second_rules: bool) -> mlua::Result<Table> {
    let settings = Rc::new(Cell::new(DEFAULTS));
    let table = lua.create_table()?;
    for (name, function) in [("encode", encode as Body), ("decode", decode)] {
        table.raw_set(name, body(lua, name, function, &settings, meter)?)?;
    }
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    for (name, setter) in SETTERS.into_iter().chain(by_second_rules.then_some(LATER_SETTER)) {
        let (settings, meter) = (settings.clone(), meter.clone());
        let call = move |lua: &Lua, values: MultiValue| {
            meter.charge(2 * CALL_COST)?;
            let most = if name == "encode_sparse_array" { 3 } else { 1 };
            let given = Given { lua, function: name, values };
            if given.values.len() > most {
                return Err(given.wrong(most, "found too many arguments"));
            }
            let mut changed = settings.get();
            let value = setter(&given, &mut changed)?;
            settings.set(changed);
            let mut results = MultiValue::from_iter([value]);
            if name == "encode_sparse_array" {
                results.push_front(Value::Integer(changed.sparse_ratio));
                results.push_front(Value::Boolean(changed.sparse_convert == 1));
            }
            Ok(results)
        };
        table.raw_set(name, lua.create_function(call)?)?;
    }
    let meter = meter.clone();
    let new = move |lua: &Lua, _: MultiValue| {
        meter.charge(2 * CALL_COST)?;
        self::table(lua, &meter, by_second_rules)
    };
    table.raw_set("new", lua.create_function(new)?)?;
    Ok(table)
}

type Body = fn(&Given<'_>, Settings, &Meter) -> mlua::Result<Value>;

fn body(
    lua: &Lua,
    function: &'static str,
    body: Body,
    settings: &Rc<Cell<Settings>>,
    meter: &Rc<Meter>,
) -> mlua::Result<Function> {
    let (settings, meter) = (settings.clone(), meter.clone());
    lua.create_function(move |lua, values: MultiValue| {
        meter.charge(2 * CALL_COST)?;
        if values.len() != 1 {
            return Err(Raised::argument(lua, 1, function, "expected 1 argument"));
        }
        body(&Given { lua, function, values }, settings.get(), &meter)
    })
}

fn encode(given: &Given<'_>, settings: Settings, meter: &Meter) -> mlua::Result<Value> {
    let mut writer = Writer { lua: given.lua, meter, settings, out: Vec::new() };
    writer.value(&given.values[0], 0)?;
    Ok(Value::String(given.lua.create_string(&writer.out)?))
}

fn decode(given: &Given<'_>, settings: Settings, meter: &Meter) -> mlua::Result<Value> {
    let text = given.text(0)?;
    let text = text.as_bytes();
    meter.charge_bytes(text.len())?;
    Reader { lua: given.lua, meter, settings, text: &text, at: 0 }.document()
}

/// The metatable of marked arrays, which scripts cannot change.
fn mark(lua: &Lua) -> mlua::Result<Table> {
    if let Some(mark) = lua.named_registry_value::<Option<Table>>(MARK)? {
        return Ok(mark);
    }
    let mark = lua.create_table()?;
    mark.set_metatable(Some(read_only(lua)?))?;
    lua.set_named_registry_value(MARK, &mark)?;
    Ok(mark)
}

/// Whether an empty table is an array that was marked when it was decoded.
fn is_marked(lua: &Lua, table: &Table) -> mlua::Result<bool> {
    let Some(metatable) = table.metatable() else { return Ok(false) };
    let is_mark = lua.named_registry_value::<Option<Table>>(MARK)? == Some(metatable);
    Ok(is_mark && table.pairs::<Value, Value>().next().is_none())
}

struct Writer<'w> {
    lua: &'w Lua,
    meter: &'w Meter,
    settings: Settings,
    out: Vec<u8>,
}

impl Writer<'_> {
    fn refuse<T>(&self, what: &str, why: &str) -> mlua::Result<T> {
        Err(Raised::text(self.lua, format!("Cannot serialise {what}: {why}")))
    }

    fn value(&mut self, value: &Value, depth: i64) -> mlua::Result<()> {
        self.meter.charge(ELEMENT_COST)?;
        match value {
            Value::Nil => self.out.extend_from_slice(b"null"),
            value if *value == Value::NULL => self.out.extend_from_slice(b"null"),
            Value::Boolean(truth) => self.out.extend_from_slice(if *truth { b"true" } else { b"false" }),
            Value::Integer(number) => self.number(*number as f64)?,
            Value::Number(number) => self.number(*number)?,
            Value::String(text) => self.text(&text.as_bytes())?,
            Value::Table(table) => {
                let depth = depth + 1;
                if depth > self.settings.encode_depth {
                    let error = format!("Cannot serialise, excessive nesting ({depth})");
                    return Err(Raised::text(self.lua, error));
                }
                match self.array_length(table)? {
                    0 if is_marked(self.lua, table)? => self.array(table, 0, depth)?,
                    0 => self.object(table, depth)?,
                    length => self.array(table, length, depth)?,
                }
            }
            value => return self.refuse(type_name(value), "type not supported"),
        }
        Ok(())
    }

    fn number(&mut self, number: f64) -> mlua::Result<()> {
        self.meter.charge(ELEMENT_COST)?;
        let word = match (number.is_finite(), self.settings.encode_invalid) {
            (true, _) => &number_text(number, self.settings.digits as usize),
            (false, 0) => return self.refuse("number", "must not be NaN or Inf"),
            (false, 1) if number.is_nan() => "nan",
            (false, 1) if number < 0.0 => "-inf",
            (false, 1) => "inf",
            (false, _) => "null",
        };
        self.out.extend_from_slice(word.as_bytes());
        Ok(())
    }

    fn text(&mut self, text: &[u8]) -> mlua::Result<()> {
        self.meter.charge_bytes(text.len())?;
        self.meter.check_room(self.out.len() + text.len())?;
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

    /// The length of a table as an array, or 0 if not all of its keys are positive integers or it has too many holes.
    fn array_length(&self, table: &Table) -> mlua::Result<usize> {
        let (mut greatest, mut count) = (0_usize, 0);
        let mut is_array = true;
        self.for_each(table, |key, _| {
            let number = match key {
                Value::Integer(number) => number as f64,
                Value::Number(number) => number,
                _ => 0.0,
            };
            is_array &= number >= 1.0 && number.floor() == number && number <= f64::from(i32::MAX);
            greatest = greatest.max(number as usize);
            count += 1;
            Ok(is_array)
        })?;
        if !is_array {
            return Ok(0);
        }
        let Settings { sparse_ratio, sparse_safe, .. } = self.settings;
        if sparse_ratio > 0 && greatest > count * sparse_ratio as usize && greatest > sparse_safe as usize {
            return match self.settings.sparse_convert {
                0 => self.refuse("table", "excessively sparse array"),
                _ => Ok(0),
            };
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

    fn array(&mut self, table: &Table, length: usize, depth: i64) -> mlua::Result<()> {
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

    fn object(&mut self, table: &Table, depth: i64) -> mlua::Result<()> {
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
                key => return self.refuse(type_name(&key), "table key must be a number or string"),
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
    /// An invalid token, with what is wrong.
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
    settings: Settings,
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

    fn value(&mut self, token: (Token, usize), depth: i64) -> mlua::Result<Value> {
        match token {
            (Token::Text(text), _) => Ok(Value::String(self.lua.create_string(text)?)),
            (Token::Number(number), _) => Ok(Value::Number(number)),
            (Token::Boolean(truth), _) => Ok(Value::Boolean(truth)),
            (Token::Null, _) => Ok(Value::NULL),
            (Token::Mark(mark @ (b'{' | b'[')), at) => {
                let depth = depth + 1;
                if depth > self.settings.decode_depth {
                    let error =
                        format!("Found too many nested data structures ({depth}) at character {}", at + 1);
                    return Err(Raised::text(self.lua, error));
                }
                if mark == b'{' { self.object(depth) } else { self.array(depth) }
            }
            other => self.expected("value", &other),
        }
    }

    fn object(&mut self, depth: i64) -> mlua::Result<Value> {
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

    fn array(&mut self, depth: i64) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        if self.settings.mark_arrays == 1 {
            table.set_metatable(Some(mark(self.lua)?))?;
        }
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
            // As in C, a zero byte is the end.
            None | Some(0) => Token::End,
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
            Some(b'-' | b'0'..=b'9') => self.number(self.settings.decode_invalid == 1 || !is_invalid(rest)),
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
                    None if self.settings.decode_invalid == 1 && is_invalid(rest) => self.number(true),
                    None => Token::Wrong("invalid token"),
                }
            }
        };
        Ok((token, start))
    }

    fn number(&mut self, is_allowed: bool) -> Token {
        match number(&self.text[self.at..]).filter(|_| is_allowed) {
            Some((number, length)) => {
                self.at += length;
                Token::Number(number)
            }
            None => Token::Wrong("invalid number"),
        }
    }

    /// Reads the rest of a text after its first quotation mark. The error is what is wrong with the text, and where.
    fn quoted(&mut self) -> Result<Vec<u8>, (&'static str, usize)> {
        let mut text = Vec::new();
        loop {
            let rest = &self.text[self.at..];
            match rest.first() {
                None | Some(0) => return Err(("unexpected end of string", self.at)),
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

/// Decodes an escape such as `\u00e4` at the front, or a surrogate pair of two. Returns the character and the length.
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

/// Whether a text that C reads as a number is not one in JSON: `+1`, `0x1`, `01`, infinities and NaN.
fn is_invalid(text: &[u8]) -> bool {
    match text {
        [b'+', ..] => true,
        [b'-', rest @ ..] | rest => match rest {
            [b'0', b'x' | b'X' | b'0'..=b'9', ..] => true,
            [byte, ..] if *byte <= b'9' => false,
            rest => starts_with_word(rest, b"inf") || starts_with_word(rest, b"nan"),
        },
    }
}

fn starts_with_word(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// Reads the number at the front, as C's `strtod` does. Returns it and its length.
fn number(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let unsigned = &text[sign..];
    let (number, length) = if starts_with_word(unsigned, b"infinity") {
        (f64::INFINITY, 8)
    } else if starts_with_word(unsigned, b"inf") {
        (f64::INFINITY, 3)
    } else if starts_with_word(unsigned, b"nan") {
        let rest = &unsigned[3..];
        let name =
            rest.iter().skip(1).take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        let is_named = rest.first() == Some(&b'(') && rest.get(1 + name) == Some(&b')');
        (f64::NAN, if is_named { 5 + name } else { 3 })
    } else {
        hexadecimal(unsigned).or_else(|| decimal(unsigned))?
    };
    let number = if text[0] == b'-' { -number } else { number };
    Some((number, sign + length))
}

/// Reads digits with a point, and an exponent after one of two letters. Returns the numbers of digits before and
/// after the point, the exponent, and the length.
fn parts(text: &[u8], is_digit: fn(&u8) -> bool, letters: [u8; 2]) -> Option<(usize, usize, i32, usize)> {
    let digits = |at: usize, is_digit: fn(&u8) -> bool| {
        text[at.min(text.len())..].iter().take_while(|byte| is_digit(byte)).count()
    };
    let whole = digits(0, is_digit);
    let has_point = text.get(whole) == Some(&b'.');
    let fraction = if has_point { digits(whole + 1, is_digit) } else { 0 };
    if whole + fraction == 0 {
        return None;
    }
    let mut end = whole + usize::from(has_point) + fraction;
    let mut exponent = 0_i32;
    if text.get(end).is_some_and(|letter| letters.contains(letter)) {
        let is_signed = matches!(text.get(end + 1), Some(b'+' | b'-'));
        let start = end + 1 + usize::from(is_signed);
        let count = digits(start, u8::is_ascii_digit);
        if count > 0 {
            let digits = &text[start..start + count];
            exponent = digits.iter().fold(0_i32, |exponent, digit| {
                exponent.saturating_mul(10).saturating_add(i32::from(digit - b'0'))
            });
            if text[end + 1] == b'-' {
                exponent = -exponent;
            }
            end = start + count;
        }
    }
    Some((whole, fraction, exponent, end))
}

fn decimal(text: &[u8]) -> Option<(f64, usize)> {
    let (_, _, _, end) = parts(text, u8::is_ascii_digit, *b"eE")?;
    let number = std::str::from_utf8(&text[..end]).ok()?.parse().ok()?;
    Some((number, end))
}

/// Reads a number such as `0x1.8p3`: 1.5 times 2 to the power of 3.
fn hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    const DIGITS_KEPT: usize = 28;
    let [b'0', b'x' | b'X', text @ ..] = text else { return None };
    let (_, fraction, exponent, end) = parts(text, u8::is_ascii_hexdigit, *b"pP")?;
    let digits = text.iter().filter(|byte| **byte != b'.');
    let digits = digits.map_while(|byte| char::from(*byte).to_digit(16)).skip_while(|digit| *digit == 0);
    let (mut mantissa, mut power) = (0_u128, i64::from(exponent) - 4 * fraction as i64);
    for (place, digit) in digits.enumerate() {
        if place < DIGITS_KEPT {
            mantissa = mantissa << 4 | u128::from(digit);
        } else {
            // Further digits decide only how a half is rounded.
            mantissa |= u128::from(digit != 0);
            power += 4;
        }
    }
    let mut number = mantissa as f64;
    let mut power = power.clamp(-3000, 3000) as i32;
    while power != 0 && number != 0.0 && number.is_finite() {
        let step = power.clamp(-1000, 1000);
        number *= 2f64.powi(step);
        power -= step;
    }
    Some((number, 2 + end))
}

//! Lua's functions on texts that take patterns: `find`, `match`, `gmatch` with its older name `gfind`, `gsub`.

use super::failure::Raised;
use super::given::Given;
use super::meter::{CALL_COST, Meter};
use super::patterns::{Capture, Matcher, Trouble};
use super::values::type_name;
use mlua::{Function, Lua, MultiValue, Value};
use std::cell::Cell;
use std::rc::Rc;

/// Returns the function with this name, if it is one of these.
pub(super) fn function(lua: &Lua, name: &[u8], meter: &Rc<Meter>) -> mlua::Result<Option<Function>> {
    type Body = fn(&Given<'_>, &Rc<Meter>) -> mlua::Result<MultiValue>;
    let (function, body): (&str, Body) = match name {
        b"find" => ("find", |given, meter| find(given, meter)),
        b"match" => ("match", |given, meter| find(given, meter)),
        // `gfind` is its older name.
        b"gmatch" | b"gfind" => ("gmatch", |given, meter| {
            let next = gmatch(given, meter)?;
            Ok([Value::Function(next)].into_iter().collect())
        }),
        b"gsub" => ("gsub", |given, meter| gsub(given, meter)),
        _ => return Ok(None),
    };
    let meter = meter.clone();
    let call = move |lua: &Lua, values: MultiValue| body(&Given { lua, function, values }, &meter);
    lua.create_function(call).map(Some)
}

/// Charges for a matcher's steps, one unit each.
fn counter(meter: &Meter) -> impl Fn(usize) -> bool {
    move |steps| meter.charge(steps as u64).is_ok()
}

fn trouble(lua: &Lua, meter: &Meter, trouble: Trouble) -> mlua::Error {
    match trouble {
        Trouble::Malformed(text) => Raised::text(lua, text),
        Trouble::Limit => {
            meter.check_raised().err().unwrap_or_else(|| Raised::reply("ERR a pattern was given up"))
        }
    }
}

/// Copies of a subject and a pattern: the interpreter can hold only a limited number of its own values for our functions.
fn subject_and_pattern(given: &Given<'_>, meter: &Meter) -> mlua::Result<(Vec<u8>, Vec<u8>)> {
    let copy = |place| given.text(place).map(|text| text.as_bytes().to_vec());
    let (subject, pattern) = (copy(0)?, copy(1)?);
    meter.charge(2 * CALL_COST)?;
    meter.charge_bytes(subject.len() + pattern.len())?;
    Ok((subject, pattern))
}

fn find(given: &Given<'_>, meter: &Meter) -> mlua::Result<MultiValue> {
    let lua = given.lua;
    let (subject, pattern) = subject_and_pattern(given, meter)?;
    let start = match given.integer_or(2, 1)? {
        from @ ..0 => (subject.len() as i64 + from).max(0),
        from => (from - 1).max(0),
    };
    let start = (start as usize).min(subject.len());
    let is_find = given.function == "find";
    let is_plain = given.optional(3).is_some_and(|value| *value != Value::Boolean(false));
    let found = |start: usize, end: usize| [Value::Integer(start as i64 + 1), Value::Integer(end as i64)];
    if is_find && (is_plain || !has_specials(&pattern)) {
        return Ok(match position_of(&subject[start..], &pattern) {
            Some(place) => found(start + place, start + place + pattern.len()).into_iter().collect(),
            None => [Value::Nil].into_iter().collect(),
        });
    }
    let (is_anchored, pattern) = anchored(&pattern);
    let count = counter(meter);
    let mut matcher = Matcher::new(&subject, pattern, &count);
    let result = matcher.from(start, is_anchored).map_err(|why| trouble(lua, meter, why))?;
    let Some(matched) = result else { return Ok([Value::Nil].into_iter().collect()) };
    let mut values = MultiValue::new();
    if is_find {
        values.extend(found(matched.0, matched.1));
        if !matcher.has_captures() {
            return Ok(values);
        }
    }
    values.extend(captures(lua, meter, &matcher, &subject, matched)?);
    Ok(values)
}

fn anchored(pattern: &[u8]) -> (bool, &[u8]) {
    match pattern.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    }
}

/// As in Lua 5.1, bytes after a zero byte are ignored.
fn has_specials(pattern: &[u8]) -> bool {
    pattern.iter().take_while(|byte| **byte != 0).any(|byte| b"^$*+?.([%-".contains(byte))
}

fn position_of(subject: &[u8], what: &[u8]) -> Option<usize> {
    // The lengths of both were charged, and the search looks at each byte once.
    memchr::memmem::find(subject, what)
}

fn captures(
    lua: &Lua,
    meter: &Meter,
    matcher: &Matcher<'_>,
    subject: &[u8],
    matched: (usize, usize),
) -> mlua::Result<Vec<Value>> {
    let count = matcher.captures();
    (0..count).map(|number| capture(lua, meter, matcher, subject, (number, matched))).collect()
}

fn capture(
    lua: &Lua,
    meter: &Meter,
    matcher: &Matcher<'_>,
    subject: &[u8],
    (number, matched): (usize, (usize, usize)),
) -> mlua::Result<Value> {
    match matcher.capture(number, matched).map_err(|why| trouble(lua, meter, why))? {
        Capture::Text(start, end) => {
            meter.charge(5)?;
            meter.charge_bytes(end - start)?;
            Ok(Value::String(lua.create_string(&subject[start..end])?))
        }
        Capture::Position(position) => Ok(Value::Integer(position as i64)),
    }
}

fn gmatch(given: &Given<'_>, meter: &Rc<Meter>) -> mlua::Result<Function> {
    let (subject, pattern) = subject_and_pattern(given, meter)?;
    let (place, meter) = (Cell::new(0), meter.clone());
    given.lua.create_function(move |lua, _: MultiValue| {
        meter.charge(2 * CALL_COST)?;
        let count = counter(&meter);
        let mut matcher = Matcher::new(&subject, &pattern, &count);
        if place.get() > subject.len() {
            return Ok(vec![Value::Nil].into_iter().collect::<MultiValue>());
        }
        match matcher.from(place.get(), false).map_err(|why| trouble(lua, &meter, why))? {
            Some(matched) => {
                place.set(if matched.0 == matched.1 { matched.1 + 1 } else { matched.1 });
                Ok(captures(lua, &meter, &matcher, &subject, matched)?.into_iter().collect())
            }
            None => {
                place.set(subject.len() + 1);
                Ok([Value::Nil].into_iter().collect())
            }
        }
    })
}

fn gsub(given: &Given<'_>, meter: &Meter) -> mlua::Result<MultiValue> {
    let lua = given.lua;
    let (subject, pattern) = subject_and_pattern(given, meter)?;
    let replacement = match given.values.get(2) {
        Some(Value::Table(_) | Value::Function(_)) => Vec::new(),
        Some(Value::String(_) | Value::Integer(_) | Value::Number(_)) => given.text(2)?.as_bytes().to_vec(),
        _ => return Err(given.wrong(2, "string/function/table expected")),
    };
    let most = given.integer_or(3, subject.len() as i64 + 1)?;
    let (is_anchored, pattern) = anchored(&pattern);
    let count = counter(meter);
    let mut matcher = Matcher::new(&subject, pattern, &count);
    let (mut out, mut place, mut replaced) = (Vec::new(), 0, 0);
    while replaced < most {
        let matched = matcher.at(place).map_err(|why| trouble(lua, meter, why))?;
        if let Some(end) = matched {
            replaced += 1;
            meter.charge(5)?;
            let before = out.len();
            let context =
                Replacing { lua, meter, matcher: &matcher, subject: &subject, matched: (place, end) };
            match &given.values[2] {
                Value::Table(table) => {
                    meter.charge(CALL_COST)?;
                    let value = table.get(context.capture(0)?).map_err(Raised::of_callback)?;
                    context.add_value(value, &mut out)?;
                }
                Value::Function(function) => {
                    meter.charge(2 * CALL_COST)?;
                    let captured = captures(lua, meter, &matcher, &subject, (place, end))?;
                    let captured: MultiValue = captured.into_iter().collect();
                    let value = function.call(captured).map_err(Raised::of_callback)?;
                    context.add_value(value, &mut out)?;
                }
                _ => context.add_template(&replacement, &mut out)?,
            }
            meter.charge_bytes(out.len() - before)?;
            meter.check_room(out.len())?;
        }
        match matched {
            Some(end) if end > place => place = end,
            _ if place < subject.len() => {
                out.push(subject[place]);
                place += 1;
            }
            _ => break,
        }
        if is_anchored {
            break;
        }
    }
    out.extend_from_slice(&subject[place..]);
    Ok([Value::String(lua.create_string(out)?), Value::Integer(replaced)].into_iter().collect())
}

/// One match that is being replaced.
struct Replacing<'r, 'm> {
    lua: &'r Lua,
    meter: &'r Meter,
    matcher: &'r Matcher<'m>,
    subject: &'r [u8],
    matched: (usize, usize),
}

impl Replacing<'_, '_> {
    fn capture(&self, number: usize) -> mlua::Result<Value> {
        capture(self.lua, self.meter, self.matcher, self.subject, (number, self.matched))
    }

    /// Adds the result of a table or a function; `false` and nil leave the match as it is.
    fn add_value(&self, value: Value, out: &mut Vec<u8>) -> mlua::Result<()> {
        match &value {
            Value::Nil | Value::Boolean(false) => {
                out.extend_from_slice(&self.subject[self.matched.0..self.matched.1]);
            }
            Value::String(text) => out.extend_from_slice(&text.as_bytes()),
            Value::Integer(_) | Value::Number(_) => self.add_number(value, out)?,
            other => {
                let error = format!("invalid replacement value (a {})", type_name(other));
                return Err(Raised::text(self.lua, error));
            }
        }
        Ok(())
    }

    fn add_number(&self, number: Value, out: &mut Vec<u8>) -> mlua::Result<()> {
        if let Some(text) = self.lua.coerce_string(number)? {
            out.extend_from_slice(&text.as_bytes());
        }
        Ok(())
    }

    /// Adds a text in which `%0` stands for the match and `%1` and so on for its captures.
    fn add_template(&self, template: &[u8], out: &mut Vec<u8>) -> mlua::Result<()> {
        let mut bytes = template.iter().copied();
        while let Some(byte) = bytes.next() {
            match byte {
                b'%' => match bytes.next().unwrap_or(0) {
                    b'0' => out.extend_from_slice(&self.subject[self.matched.0..self.matched.1]),
                    digit @ b'1'..=b'9' => match self.capture(usize::from(digit - b'1'))? {
                        Value::String(text) => out.extend_from_slice(&text.as_bytes()),
                        position => self.add_number(position, out)?,
                    },
                    other => out.push(other),
                },
                byte => out.push(byte),
            }
        }
        Ok(())
    }
}

//! The arguments of a call to one of our functions, checked with the errors of Lua's own functions.

use super::failure::Raised;
use super::values::{truncated, type_name};
use mlua::{Lua, LuaString, MultiValue, Value};

/// The arguments of one call. Places count from 0; the errors count from 1.
pub(super) struct Given<'c> {
    pub(super) lua: &'c Lua,
    pub(super) function: &'static str,
    pub(super) values: MultiValue,
}

impl Given<'_> {
    /// The value at a place, if it is given and not nil.
    pub(super) fn optional(&self, place: usize) -> Option<&Value> {
        self.values.get(place).filter(|value| !value.is_nil())
    }

    /// A number, or a text that is a number.
    pub(super) fn number(&self, place: usize) -> mlua::Result<f64> {
        let number = match self.values.get(place) {
            Some(value) => self.lua.coerce_number(value.clone())?,
            None => None,
        };
        number.ok_or_else(|| self.wrong_type(place, "number"))
    }

    /// A number truncated to an integer; the least integer if it is beyond 64 bits.
    pub(super) fn integer(&self, place: usize) -> mlua::Result<i64> {
        self.number(place).map(truncated)
    }

    /// As [`Given::integer`], or a default if the argument is missing or nil.
    pub(super) fn integer_or(&self, place: usize, default: i64) -> mlua::Result<i64> {
        self.optional(place).map_or(Ok(default), |_| self.integer(place))
    }

    /// A text, or a number as a text.
    pub(super) fn text(&self, place: usize) -> mlua::Result<LuaString> {
        let text = match self.values.get(place) {
            Some(Value::String(text)) => return Ok(text.clone()),
            Some(number @ (Value::Integer(_) | Value::Number(_))) => {
                self.lua.coerce_string(number.clone())?
            }
            _ => None,
        };
        text.ok_or_else(|| self.wrong_type(place, "string"))
    }

    /// Makes the error for an argument that is wrong for this reason.
    pub(super) fn wrong(&self, place: usize, why: &str) -> mlua::Error {
        Raised::argument(self.lua, place + 1, self.function, why)
    }

    fn wrong_type(&self, place: usize, expected: &str) -> mlua::Error {
        let given = self.values.get(place).map_or("no value", type_name);
        self.wrong(place, &format!("{expected} expected, got {given}"))
    }
}

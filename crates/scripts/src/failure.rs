//! How a script ends when it does not return: errors with their place, in Redis's form.

use kv::limits::SCRIPT_MEMORY_BYTES_MAX;
use mlua::{Lua, Value};
use std::fmt;

/// A limit that a run has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// The run may cost this many units.
    Cost(u64),
    Memory,
    /// The reply is too large or too deep.
    Reply,
    /// What its commands add to the data.
    Added,
}

impl Limit {
    pub(super) fn text(self) -> String {
        if let Limit::Added = self {
            return "OOM the script was stopped and nothing of it was kept: it adds more than there is room for, or more than \
                    a script may add at once"
                .into();
        }
        let limit = match self {
            Limit::Cost(most) => format!("it cost more than {most} units"),
            Limit::Memory => format!("it allocated more than {SCRIPT_MEMORY_BYTES_MAX} bytes"),
            Limit::Reply => "what it answers is too large".to_string(),
            Limit::Added => "it adds too much".to_string(),
        };
        format!("ERR the script was stopped and nothing of it was kept: {limit}")
    }
}

/// An error that one of our functions raises inside a script.
#[derive(Clone, Debug)]
pub(super) enum Raised {
    /// A text that includes its place, as Lua's own functions raise.
    Text(String),
    /// The reply of a failed command, as `redis.call` raises: a table with the field `err`.
    Reply(Vec<u8>),
    /// A limit: the run is over.
    Limit(Limit),
}

impl fmt::Display for Raised {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Raised::Text(text) => formatter.write_str(text),
            Raised::Reply(text) => formatter.write_str(&String::from_utf8_lossy(text)),
            Raised::Limit(limit) => formatter.write_str(&limit.text()),
        }
    }
}

impl std::error::Error for Raised {}

impl Raised {
    /// Makes an error with the place in the script where our function was called.
    pub(super) fn text(lua: &Lua, text: impl fmt::Display) -> mlua::Error {
        // Level 0 is our function.
        let place = match is_by_second_rules(lua) {
            true => place_at(lua, 1),
            false => place(lua, 1),
        };
        let place = place.map_or(String::new(), |(chunk, line)| format!("{chunk}:{line}: "));
        mlua::Error::external(Raised::Text(format!("{place}{text}")))
    }

    /// Makes the error that Lua's own functions raise for an invalid argument.
    pub(super) fn argument(lua: &Lua, number: usize, function: &str, why: &str) -> mlua::Error {
        // Only what is called from Lua has a name.
        let is_named = !is_by_second_rules(lua) || place_at(lua, 1).is_some();
        let function = if is_named { function } else { "?" };
        Raised::text(lua, format_args!("bad argument #{number} to '{function}' ({why})"))
    }

    /// Converts an error that a function of the script has raised when one of our functions called it. A table as the error
    /// is lost.
    pub(super) fn of_callback(error: mlua::Error) -> mlua::Error {
        match innermost(&error) {
            mlua::Error::RuntimeError(text) => {
                let text = text.split("\nstack traceback:").next().unwrap_or_default();
                mlua::Error::external(Raised::Text(text.to_string()))
            }
            _ => error,
        }
    }

    /// Makes an error from a command's error reply.
    pub(super) fn reply(text: impl Into<Vec<u8>>) -> mlua::Error {
        mlua::Error::external(Raised::Reply(text.into()))
    }

    pub(super) fn limit(limit: Limit) -> mlua::Error {
        mlua::Error::external(Raised::Limit(limit))
    }

    /// Finds the raised error inside an error that comes through the interpreter.
    pub(super) fn of(error: &mlua::Error) -> Option<&Raised> {
        match error {
            mlua::Error::CallbackError { cause, .. } => Raised::of(cause),
            error => error.downcast_ref(),
        }
    }

    pub(super) fn is_memory(error: &mlua::Error) -> bool {
        match error {
            mlua::Error::CallbackError { cause, .. } => Raised::is_memory(cause),
            error => matches!(error, mlua::Error::MemoryError(_)),
        }
    }

    /// Converts the error to what a script sees.
    pub(super) fn to_lua(lua: &Lua, error: &mlua::Error) -> mlua::Result<Value> {
        match Raised::of(error) {
            Some(Raised::Reply(text)) => {
                let table = lua.create_table()?;
                table.raw_set("err", lua.create_string(text)?)?;
                Ok(Value::Table(table))
            }
            Some(raised) => Ok(Value::String(lua.create_string(raised.to_string())?)),
            None => Ok(Value::String(lua.create_string(innermost(error).to_string())?)),
        }
    }
}

fn innermost(error: &mlua::Error) -> &mlua::Error {
    match error {
        mlua::Error::CallbackError { cause, .. } => innermost(cause),
        error => error,
    }
}

/// Returns the chunk and line where the script is running: those of its innermost function at or above a level of the
/// stack.
fn place(lua: &Lua, level: usize) -> Option<(String, usize)> {
    // Above one of our functions there may be a function of the interpreter, which has no line.
    const LEVELS: usize = 4;
    (level..level + LEVELS).find_map(|level| place_at(lua, level))
}

/// The chunk and line of the function at a level of the stack, if it is one of the script.
fn place_at(lua: &Lua, level: usize) -> Option<(String, usize)> {
    let of = |frame: &mlua::debug::Debug<'_>| {
        let line = frame.current_line()?;
        Some((frame.source().short_src?.into_owned(), line))
    };
    lua.inspect_stack(level, of).flatten()
}

/// Marks a state whose script runs by the rules of release 2.
pub(super) struct SecondRules;

/// Whether this state's script does.
pub(super) fn is_by_second_rules(lua: &Lua) -> bool {
    lua.app_data_ref::<SecondRules>().is_some()
}

/// Why a script did not end by itself.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    message: Vec<u8>,
    /// Whether the script was run.
    has_run: bool,
    line: Option<usize>,
    is_final: bool,
}

impl Failure {
    /// A failure of a script that was not run.
    pub(super) fn refused(message: impl Into<Vec<u8>>) -> Failure {
        Failure { message: message.into(), has_run: false, line: None, is_final: false }
    }

    pub(super) fn limit(limit: Limit) -> Failure {
        Failure { is_final: true, ..Failure::refused(limit.text()) }
    }

    /// A failure to compile a text of this kind.
    pub(super) fn of_compiling(kind: &str, error: &mlua::Error) -> Failure {
        if Raised::is_memory(error) {
            return Failure::limit(Limit::Memory);
        }
        let text = match error {
            mlua::Error::SyntaxError { message, .. } => message.clone(),
            error => innermost(error).to_string(),
        };
        Failure::refused(format!("ERR Error compiling {kind}: {text}"))
    }

    /// A failure of a library while it registered its functions.
    pub(super) fn of_registering(failure: Failure) -> Failure {
        let message = [b"ERR Error registering functions: ", &*failure.message].concat();
        Failure { message, has_run: false, ..failure }
    }

    /// Makes a failure from what a script has raised, in the handler of its error.
    pub(super) fn of_script(lua: &Lua, error: &Value) -> Failure {
        let with_code = |text: &[u8]| [b"ERR ", text].concat();
        let message = match error {
            Value::Error(error) => match Raised::of(error) {
                Some(Raised::Reply(text)) => text.clone(),
                Some(Raised::Limit(limit)) => return Failure::limit(*limit),
                Some(Raised::Text(text)) => with_code(text.as_bytes()),
                None if Raised::is_memory(error) => return Failure::limit(Limit::Memory),
                None => with_code(innermost(error).to_string().as_bytes()),
            },
            Value::Table(table) => match table.raw_get("err").and_then(|text| lua.coerce_string(text)) {
                Ok(Some(text)) => text.as_bytes().to_vec(),
                _ => b"ERR unknown error".to_vec(),
            },
            Value::Boolean(truth) => with_code(truth.to_string().as_bytes()),
            value => match lua.coerce_string(value.clone()) {
                Ok(Some(text)) => with_code(&text.as_bytes()),
                _ => with_code(value.type_name().as_bytes()),
            },
        };
        Failure { message, has_run: true, line: place(lua, 1).map(|(_, line)| line), is_final: false }
    }

    /// Whether everything that the script did must be undone.
    pub(super) fn is_final(&self) -> bool {
        self.is_final
    }

    /// The error that the client gets, on one line. `program` is the name by which the client knows the program.
    pub(super) fn text(&self, chunk: &str, program: impl fmt::Display) -> Vec<u8> {
        let mut text = self.message.clone();
        if self.has_run {
            text.extend_from_slice(format!(" script: {program}").as_bytes());
            if let Some(line) = self.line {
                text.extend_from_slice(format!(", on {chunk}:{line}.").as_bytes());
            }
        }
        on_one_line(text)
    }
}

/// Replaces line breaks by spaces, since a line break would end an error reply.
pub(super) fn on_one_line(mut text: Vec<u8>) -> Vec<u8> {
    text.iter_mut().filter(|byte| matches!(byte, b'\r' | b'\n')).for_each(|byte| *byte = b' ');
    text
}

/// A failure of the interpreter itself, which happens only for lack of memory.
impl From<mlua::Error> for Failure {
    fn from(error: mlua::Error) -> Failure {
        match Raised::of(&error) {
            Some(Raised::Limit(limit)) => Failure::limit(*limit),
            _ if Raised::is_memory(&error) => Failure::limit(Limit::Memory),
            _ => Failure { is_final: true, ..Failure::refused(format!("ERR {}", innermost(&error))) },
        }
    }
}

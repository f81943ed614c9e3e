//! Histories in Jepsen's format: two EDN maps for each operation, for its invocation and its end.
//!
//! `:ok` was done, `:fail` did not happen, `:info` may have happened, may happen at any later time, or never. A
//! process of Jepsen does one thing at a time, and nothing after an `:info`. A client that has sent several requests
//! at once therefore becomes as many processes as it had requests in flight, and after an `:info` it continues as
//! another process.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io::{self, Write};

use crate::history::{History, OperationId};

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Ok,
    Fail,
    Info,
}

/// An operation in the words of another checker's model.
pub(super) struct Words<'h> {
    pub(super) function: &'static str,
    pub(super) ended: Ended,
    /// The value at the invocation and the one at the end. They are equal where there is no answer.
    pub(super) invoked: Edn<'h>,
    pub(super) completed: Edn<'h>,
}

/// An EDN value.
#[derive(Clone, Debug)]
pub(super) enum Edn<'h> {
    Nil,
    Keyword(&'static str),
    Bytes(&'h [u8]),
    Vector(Vec<Edn<'h>>),
}

impl Display for Edn<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Edn::Nil => out.write_str("nil"),
            Edn::Keyword(name) => write!(out, ":{name}"),
            Edn::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => string(text, out),
                Err(_) => {
                    out.write_str("[:bytes")?;
                    bytes.iter().try_for_each(|byte| write!(out, " {byte}"))?;
                    out.write_str("]")
                }
            },
            Edn::Vector(items) => {
                out.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    write!(out, "{}{item}", if index > 0 { " " } else { "" })?;
                }
                out.write_str("]")
            }
        }
    }
}

fn string(text: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    out.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(out, "\\{c}")?,
            c if c.is_control() => write!(out, "\\u{:04x}", u32::from(c))?,
            c => write!(out, "{c}")?,
        }
    }
    out.write_str("\"")
}

/// Writes numbered lines, and numbers processes.
pub(super) struct Lines<W> {
    output: W,
    index: usize,
    processes: u64,
}

impl<W: Write> Lines<W> {
    pub(super) fn new(output: W) -> Lines<W> {
        Lines { output, index: 0, processes: 0 }
    }

    pub(super) fn new_process(&mut self) -> u64 {
        self.processes += 1;
        self.processes - 1
    }

    pub(super) fn line(
        &mut self,
        time: u64,
        process: u64,
        kind: &str,
        function: &str,
        value: &Edn<'_>,
    ) -> io::Result<()> {
        let index = self.index;
        self.index += 1;
        writeln!(
            self.output,
            "{{:index {index}, :time {time}, :process {process}, :type :{kind}, :f :{function}, :value {value}}}"
        )
    }
}

/// Writes operations in the order in which they began and ended. `words_of` returns the words for each of them.
pub(super) fn write<'h>(
    history: &'h History,
    ids: &[OperationId],
    words_of: impl Fn(OperationId) -> Words<'h>,
    lines: &mut Lines<impl Write>,
) -> io::Result<()> {
    let last = ids.iter().map(|id| history.operation(*id)).map(|o| o.end.unwrap_or(o.start).max(o.start));
    let last = last.max().unwrap_or(0);
    // Operations that touch at one instant are concurrent, so beginnings come before ends.
    let mut events: Vec<(u64, bool, OperationId)> = Vec::with_capacity(2 * ids.len());
    for id in ids {
        let operation = history.operation(*id);
        // The end of an operation with an unknown outcome means nothing, so put it last, where it constrains nothing.
        let end = operation.end.filter(|_| words_of(*id).ended != Ended::Info);
        events.extend([(operation.start, false, *id), (end.unwrap_or(last), true, *id)]);
    }
    events.sort_unstable();
    // The idle processes of each client.
    let mut free: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut running: BTreeMap<OperationId, u64> = BTreeMap::new();
    for (time, is_end, id) in events {
        let (client, words) = (history.operation(id).client, words_of(id));
        if !is_end {
            let process = free.get_mut(&client).and_then(Vec::pop);
            let process = process.unwrap_or_else(|| lines.new_process());
            running.insert(id, process);
            lines.line(time, process, "invoke", words.function, &words.invoked)?;
            continue;
        }
        let Some(process) = running.remove(&id) else { continue };
        let kind = match words.ended {
            Ended::Ok => "ok",
            Ended::Fail => "fail",
            Ended::Info => "info",
        };
        lines.line(time, process, kind, words.function, &words.completed)?;
        if words.ended != Ended::Info {
            free.entry(client).or_default().push(process);
        }
    }
    Ok(())
}

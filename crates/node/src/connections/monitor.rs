//! `MONITOR`: the requests of this node's clients, as they are taken.

use crate::context::Context;
use crate::context::measuring::is_secret;
use crate::session::gates::Gate;
use crate::session::{ClientId, ClientKind};
use commands::{Flag, Found};
use kv::{Reply, ReplyBuffer};
use wire::resp::Arguments;

/// The most bytes of one argument that are shown, and of all arguments of a request.
const SHOWN_BYTES_MAX: usize = 4 << 10;
const SHOWN_REQUEST_BYTES_MAX: usize = 64 << 10;

/// Roughly how long it takes to show one byte of a request to a client, in nanoseconds.
const SHOWN_BYTE_NS: u64 = 4;

/// `MONITOR`.
pub(crate) fn begin(cx: &mut Context, client: ClientId) {
    cx.answer(client, ReplyBuffer::ok);
    if !cx.clients.monitors.contains(&client) {
        cx.clients.monitors.push(client);
        cx.gates.set(Gate::Monitors, true);
    }
}

/// Ends a client's `MONITOR`, on `RESET` or when it is disconnected.
pub(crate) fn end(cx: &mut Context, client: ClientId) {
    cx.clients.monitors.retain(|monitor| *monitor != client);
    cx.gates.set(Gate::Monitors, !cx.clients.monitors.is_empty());
}

/// Shows a request to the clients that monitor.
#[cold]
pub(crate) fn show(cx: &mut Context, client: ClientId, found: Found, arguments: Arguments<'_>) {
    // A client that resets no longer monitors: its next reply is that of RESET.
    if found.spec.name == "reset" {
        end(cx, client);
    }
    // As in Redis, operators' commands are not shown.
    if found.spec.flags.has(Flag::Admin) {
        return;
    }
    let Some(session) = cx.clients.sessions.get(client) else { return };
    let ClientKind::Resp { address, .. } = session.kind() else { return };
    let database = session.database;
    let (ms, us) = (cx.now.unix_ms / 1000, cx.now.unix_ms % 1000 * 1000);
    let mut line = format!("{ms}.{us:06} [{database} {address}]").into_bytes();
    for (place, argument) in arguments.iter().enumerate() {
        if line.len() > SHOWN_REQUEST_BYTES_MAX {
            line.extend_from_slice(format!(" ... ({} more arguments)", arguments.len() - place).as_bytes());
            break;
        }
        let argument = if is_secret(arguments, place) { b"(redacted)" } else { argument };
        let shown = &argument[..argument.len().min(SHOWN_BYTES_MAX)];
        line.extend_from_slice(b" \"");
        shown.iter().for_each(|byte| escape(*byte, &mut line));
        line.push(b'"');
        if shown.len() < argument.len() {
            line.extend_from_slice(format!("... ({} more bytes)", argument.len() - shown.len()).as_bytes());
        }
    }
    let mut message = ReplyBuffer::new();
    message.push(Reply::Status(&line));
    let sessions = &cx.clients.sessions;
    cx.clients.monitors.retain(|monitor| sessions.get(*monitor).is_some());
    let monitors = std::mem::take(&mut cx.clients.monitors);
    cx.spend((monitors.len() * line.len()) as u64 * SHOWN_BYTE_NS);
    for monitor in &monitors {
        cx.push(*monitor, message.as_bytes());
    }
    cx.gates.set(Gate::Monitors, !monitors.is_empty());
    cx.clients.monitors = monitors;
}

/// Appends a byte as Redis writes it between quotation marks.
fn escape(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        0x07 => out.extend_from_slice(b"\\a"),
        0x08 => out.extend_from_slice(b"\\b"),
        b' '..=b'~' => out.push(byte),
        _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
    }
}

//! `SLOWLOG`, `COMMANDLOG` and `LATENCY`: see [`crate::diagnostics::slow`]; and `HOTKEYS`: see
//! [`crate::diagnostics::hot_keys`].

use crate::context::Context;
use crate::diagnostics::hot_keys::{HotKeys, ProcessorTime, Wanted};
use crate::diagnostics::slow::Reason;
use crate::session::ClientId;
use commands::{HotKeysCommand, LatencyCommand, SlowlogCommand};
use kv::ReplyBuffer;
use wire::resp::Arguments;

/// Roughly how long it takes to write an entry of the log, in nanoseconds.
const ENTRY_NS: u64 = 1000;

/// `SLOWLOG`, and `COMMANDLOG`, which names the log last.
pub(super) fn slowlog(cx: &mut Context, client: ClientId, command: SlowlogCommand, arguments: Arguments<'_>) {
    let reason = match arguments.iter().next_back() {
        Some(word) if arguments[0].eq_ignore_ascii_case(b"commandlog") => Reason::parse(word)
            .ok_or("ERR type should be one of the following: slow, large-request, large-reply".to_owned()),
        _ if arguments.len() > 3 => Err(commands::CommandError::WrongArity("slowlog|get").to_string()),
        _ => Ok(Reason::Slow),
    };
    let reason = match reason {
        Ok(reason) => reason,
        Err(error) => return cx.answer(client, |replies| replies.error(&error)),
    };
    let entries = cx.clients.measuring.slow().log(reason).len();
    cx.spend(entries as u64 * ENTRY_NS);
    let mut replies = ReplyBuffer::new();
    let log = cx.clients.measuring.slow().log(reason);
    match command {
        SlowlogCommand::Get => log.get(arguments.get(2), &mut replies),
        SlowlogCommand::Len => replies.integer(log.len() as i64),
        SlowlogCommand::Reset => {
            log.reset();
            replies.ok();
        }
    }
    cx.answer(client, |out| out.extend_encoded(replies.as_bytes()));
}

pub(super) fn latency(cx: &mut Context, client: ClientId, command: LatencyCommand, arguments: Arguments<'_>) {
    let mut replies = ReplyBuffer::new();
    let slow = cx.clients.measuring.slow();
    match command {
        LatencyCommand::Doctor => slow.doctor(*cx.parameters.thresholds(), &mut replies),
        LatencyCommand::Graph => slow.graph(&arguments[2], cx.now.unix_ms / 1000, &mut replies),
        LatencyCommand::Histogram => histogram(cx, arguments.skip(2), &mut replies),
        LatencyCommand::History => slow.history(&arguments[2], &mut replies),
        LatencyCommand::Latest => slow.latest(&mut replies),
        LatencyCommand::Reset => replies.integer(slow.reset_events(arguments.skip(2).iter()) as i64),
    }
    cx.answer(client, |out| out.extend_encoded(replies.as_bytes()));
}

/// `HOTKEYS`. `used`: what the process has used, as last measured.
pub(crate) fn hot_keys(
    cx: &mut Context,
    client: ClientId,
    command: HotKeysCommand,
    arguments: Arguments<'_>,
    used: ProcessorTime,
) {
    let (now_us, unix_ms) = (cx.now.monotonic_us, cx.now.unix_ms);
    let is_active = cx.clients.measuring.counts_keys();
    let mut replies = ReplyBuffer::new();
    match command {
        HotKeysCommand::Start if is_active => {
            replies.error("ERR hotkey tracking session already in progress");
        }
        HotKeysCommand::Start => match Wanted::parse(arguments) {
            Ok(wanted) => {
                cx.set_hot_keys(Some(HotKeys::new(wanted, now_us, unix_ms, used)));
                replies.ok();
            }
            Err(error) => replies.error(&error),
        },
        HotKeysCommand::Stop if is_active => {
            cx.stop_counting();
            replies.ok();
        }
        HotKeysCommand::Stop => replies.null(),
        HotKeysCommand::Get => match cx.clients.measuring.hot_keys() {
            Some(keys) => keys.get(now_us, used, &mut replies),
            None => replies.null(),
        },
        HotKeysCommand::Reset if is_active => {
            replies.error("ERR hotkey tracking session in progress, stop tracking first");
        }
        HotKeysCommand::Reset => {
            cx.set_hot_keys(None);
            replies.ok();
        }
    }
    cx.answer(client, |out| out.extend_encoded(replies.as_bytes()));
}

/// The times of these commands, or of all; a container's name stands for all of its subcommands.
fn histogram(cx: &mut Context, names: Arguments<'_>, out: &mut ReplyBuffer) {
    let is_wanted = |name: &str| {
        let container = name.split('|').next().unwrap_or_default();
        let is =
            |wanted: &[u8]| [name, container].iter().any(|name| wanted.eq_ignore_ascii_case(name.as_bytes()));
        names.is_empty() || names.iter().any(is)
    };
    let measured = cx.clients.statistics.measured();
    let measured = measured.filter_map(|(number, latency)| Some((commands::by_number(number)?, latency)));
    let measured: Vec<_> = measured.filter(|(spec, _)| is_wanted(spec.name)).collect();
    out.map(measured.len());
    for (spec, latency) in measured {
        out.bulk(spec.name.as_bytes());
        out.map(2);
        out.bulk(b"calls");
        out.integer(latency.count() as i64);
        out.bulk(b"histogram_usec");
        out.map(latency.below_powers().count());
        for (power, count) in latency.below_powers() {
            out.integer(power as i64);
            out.integer(count as i64);
        }
    }
}

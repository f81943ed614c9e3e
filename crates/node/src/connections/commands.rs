//! The commands that need only the context that all components share.

use super::{
    choose_replies, debug_error, debug_expire, debug_nothing, debug_protocol, debug_reload, debug_sleep,
    get_name, id, import_source, info, kill, list, set_capabilities, set_info, set_name, switch,
};
use super::{latency, memory, monitor, pause, server, slowlog};
use crate::context::Context;
use crate::session::{ClientId, Session};
use commands::{ClientCommand, CommandError, Found, NodeCommand};
use kv::{Reply, ReplyBuffer};
use wire::resp::Arguments;

/// Executes a command that concerns no other component.
///
/// # Panics
/// If the command belongs to another component: the caller has to pass it to that one.
pub(crate) fn carry_out(
    cx: &mut Context,
    client: ClientId,
    command: NodeCommand,
    found: Found,
    arguments: Arguments<'_>,
) {
    match command {
        NodeCommand::Ping => ping(cx, client, arguments),
        NodeCommand::Echo => cx.answer(client, |replies| replies.bulk(&arguments[1])),
        NodeCommand::Quit => {
            cx.answer(client, ReplyBuffer::ok);
            cx.clients.close_after_replies(client);
        }
        NodeCommand::ReadOnly => {
            if let Some(session) = cx.clients.sessions.get_mut(client) {
                session.set_read_only(arguments[0].eq_ignore_ascii_case(b"readonly"));
            }
            cx.answer(client, ReplyBuffer::ok);
        }
        NodeCommand::Client(command) => client_command(cx, client, command, arguments),
        NodeCommand::Command(command) => {
            cx.answer(client, |replies| commands::introspection::answer(command, arguments, replies));
        }
        NodeCommand::Help => cx.answer(client, |replies| commands::introspection::help(found.spec, replies)),
        NodeCommand::Time => {
            let began_us = cx.now.unix_ms.saturating_mul(1000);
            let unix_us = cx.now.monotonic_us.saturating_add_signed(cx.ahead_us);
            // It agrees with the time by which keys expire.
            let unix_us = unix_us.clamp(began_us, began_us.saturating_add(999));
            cx.answer(client, |replies| {
                replies.array(2);
                replies.bulk((unix_us / 1_000_000).to_string().as_bytes());
                replies.bulk((unix_us % 1_000_000).to_string().as_bytes());
            });
        }
        NodeCommand::Slowlog(command) => slowlog(cx, client, command, arguments),
        NodeCommand::Latency(command) => latency(cx, client, command, arguments),
        NodeCommand::DebugNothing => debug_nothing(cx, client),
        NodeCommand::DebugReload => debug_reload(cx, client),
        NodeCommand::DebugExpire => debug_expire(cx, client, &arguments[2]),
        NodeCommand::DebugProtocol => debug_protocol(cx, client, &arguments[2]),
        NodeCommand::DebugError => debug_error(cx, client, &arguments[2]),
        NodeCommand::DebugSleep => debug_sleep(cx, client, &arguments[2]),
        NodeCommand::Monitor => monitor::begin(cx, client),
        NodeCommand::Memory(command) => memory(cx, client, command),
        NodeCommand::Server(command) => server(cx, client, command, arguments),
        NodeCommand::Reset
        | NodeCommand::Hello
        | NodeCommand::Auth
        | NodeCommand::Acl(_)
        | NodeCommand::Config(_)
        | NodeCommand::Keyspace(_)
        | NodeCommand::Cluster(_)
        | NodeCommand::Info
        | NodeCommand::Report
        | NodeCommand::Events
        | NodeCommand::History
        | NodeCommand::Ask
        | NodeCommand::LockList
        | NodeCommand::Select
        | NodeCommand::Move
        | NodeCommand::Wait
        | NodeCommand::WaitDurable
        | NodeCommand::Transaction(_)
        | NodeCommand::Script(_)
        | NodeCommand::Function(_)
        | NodeCommand::MemoryStats
        | NodeCommand::ReplicaConfiguration
        | NodeCommand::ReplicaSync
        | NodeCommand::ObjectRefCount
        | NodeCommand::ClusterScan
        | NodeCommand::HotKeys(_)
        | NodeCommand::DebugObject
        | NodeCommand::Role
        | NodeCommand::Lock(_)
        | NodeCommand::Channel(_) => unreachable!("{command:?} is of another component"),
    }
}

fn ping(cx: &mut Context, client: ClientId, arguments: Arguments<'_>) {
    let is_listening = cx.clients.sessions.get(client).is_some_and(Session::is_listening_in_resp2);
    cx.answer(client, |replies| match (arguments.get(1), arguments.get(2)) {
        (text, _) if is_listening => {
            replies.array(2);
            replies.bulk(b"pong");
            replies.bulk(text.unwrap_or_default());
        }
        (_, Some(_)) => replies.error(&CommandError::WrongArity("ping").to_string()),
        (Some(text), None) => replies.bulk(text),
        (None, None) => replies.push(Reply::Status(b"PONG")),
    });
}

fn client_command(cx: &mut Context, client: ClientId, command: ClientCommand, arguments: Arguments<'_>) {
    match command {
        ClientCommand::Id => id(cx, client),
        ClientCommand::Info => info(cx, client, arguments),
        ClientCommand::List => list(cx, client, arguments),
        ClientCommand::SetName => set_name(cx, client, &arguments[2]),
        ClientCommand::GetName => get_name(cx, client),
        ClientCommand::SetInfo => set_info(cx, client, &arguments[2], &arguments[3]),
        ClientCommand::Capabilities => set_capabilities(cx, client, arguments.skip(2)),
        ClientCommand::ImportSource => import_source(cx, client, &arguments[2]),
        ClientCommand::Kill => kill(cx, client, arguments),
        ClientCommand::Reply => choose_replies(cx, client, &arguments[2]),
        ClientCommand::Pause => pause::pause(cx, client, arguments),
        ClientCommand::Unpause => pause::unpause(cx, client),
        ClientCommand::NoEvict => {
            switch(cx, client, &arguments[2], Session::set_no_evict);
        }
        ClientCommand::NoTouch => {
            switch(cx, client, &arguments[2], Session::set_no_touch);
        }
        ClientCommand::Unblock
        | ClientCommand::GetRedir
        | ClientCommand::Tracking
        | ClientCommand::TrackingInfo
        | ClientCommand::Caching => unreachable!("{command:?} is of another component"),
    }
}

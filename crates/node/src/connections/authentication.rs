//! Authentication of clients: `AUTH` and `HELLO`.

use super::acl::note;
use super::{CLIENT_NAME_BYTES_MAX, NAME_TOO_LONG};
use crate::connections::guard::AuthGuard;
use crate::context::Context;
use crate::context::status;
use crate::diagnostics::log::{Level, Line};
use crate::session::{ClientId, Session};
use cluster::words::{is_printable, one_line};
use commands::RedisVersion;
use commands::users::{Place, Reason, USER_NAME_BYTES_MAX};
use kv::ReplyBuffer;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use wire::resp::{Arguments, Protocol};

/// The reply to a client whose address has failed to authenticate too often, and its delay.
const TOO_MANY_FAILURES: &str =
    "ERR too many failed attempts to authenticate from your address: try again in a few seconds";
const REFUSED_AFTER: Duration = Duration::from_secs(1);

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. \
                           Are you sure your configuration is correct?";

/// The error of a node without a cluster map, which holds the users.
const NO_MAP: &str = "TRYAGAIN NOMAP this node does not know the users yet, since it has no cluster map: try again when it \
                      has joined its cluster, or at another node";

fn address_of(cx: &Context, client: ClientId) -> IpAddr {
    let address = cx.clients.sessions.get(client).and_then(Session::ip_address);
    address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
}

impl AuthGuard {
    /// Answers a failed authentication. A client whose address has failed too often gets a late reply, and is then closed.
    fn refuse(&self, cx: &mut Context, client: ClientId, error: &'static str) {
        if error == WRONG_PASSWORD {
            // The event loop does not wait: only the reply is delayed.
            let address = address_of(cx, client);
            let delay = self.delay(address, cx.now.monotonic_us);
            return match delay.is_zero() {
                true => cx.answer(client, |replies| replies.error(error)),
                false => cx.answer_later(client, delay, |replies| replies.error(error)),
            };
        }
        if error != TOO_MANY_FAILURES {
            return cx.answer(client, |replies| replies.error(error));
        }
        cx.answer_later(client, REFUSED_AFTER, |replies| replies.error(error));
        cx.clients.close_after_replies(client);
    }

    /// `AUTH`.
    pub(crate) fn auth(&mut self, cx: &mut Context, client: ClientId, arguments: Arguments<'_>) {
        let (user, password) = match arguments.len() {
            2 => (&b"default"[..], &arguments[1]),
            3 => (&arguments[1], &arguments[2]),
            _ => return cx.answer(client, |replies| replies.error("ERR syntax error")),
        };
        match self.authenticate(cx, client, user, password, arguments) {
            Ok(()) => cx.answer(client, ReplyBuffer::ok),
            Err(error) => self.refuse(cx, client, error),
        }
    }

    fn authenticate(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        user: &[u8],
        given: &[u8],
        arguments: Arguments<'_>,
    ) -> Result<(), &'static str> {
        let is_alone = arguments[0].eq_ignore_ascii_case(b"AUTH") && arguments.len() == 2;
        if is_alone && cx.access.users().default_user().needs_no_password() {
            return Err(NO_PASSWORD);
        }
        if cx.access.users().find(user).is_none() && !cx.access.users().knows_map() {
            return Err(NO_MAP);
        }
        let address = address_of(cx, client);
        let now_us = cx.now.monotonic_us;
        if !self.listens_to(address, user, now_us) {
            self.refused();
            return Err(TOO_MANY_FAILURES);
        }
        let Some(known) = cx.access.users().log_in(user, given).cloned() else {
            if self.failed(address, user, now_us) {
                let is_over = !self.listens_to_all(address, now_us);
                let then = if is_over { "; it is not listened to for a while" } else { "" };
                let name = String::from_utf8_lossy(&user[..user.len().min(USER_NAME_BYTES_MAX)]);
                let name = one_line(&name);
                let text = format!("a client at {address} has failed to authenticate as '{name}'{then}");
                cx.log.push(Line { level: Level::Audit, text });
            }
            let kind = (Reason::Auth, Place::TopLevel);
            let object = arguments[0].to_ascii_uppercase();
            note(cx, client, kind, (user, &object), arguments);
            return Err(WRONG_PASSWORD);
        };
        self.logged_in(address, user, now_us);
        if let Some(session) = cx.clients.sessions.get_mut(client) {
            session.become_user(Some(known));
        }
        Ok(())
    }

    pub(crate) fn hello(&mut self, cx: &mut Context, client: ClientId, arguments: Arguments<'_>) {
        let mut protocol = None;
        if let Some(version) = arguments.get(1) {
            let number = std::str::from_utf8(version).ok().and_then(|text| text.parse::<i64>().ok());
            protocol = match number {
                Some(2) => Some(Protocol::Resp2),
                Some(3) => Some(Protocol::Resp3),
                Some(_) => {
                    return cx
                        .answer(client, |replies| replies.error("NOPROTO unsupported protocol version"));
                }
                None => {
                    let error = "ERR Protocol version is not an integer or out of range";
                    return cx.answer(client, |replies| replies.error(error));
                }
            };
        }
        let mut name = None;
        let mut at = 2;
        while let Some(option) = arguments.get(at) {
            match (option.to_ascii_lowercase().as_slice(), arguments.get(at + 1), arguments.get(at + 2)) {
                (b"auth", Some(user), Some(password)) => {
                    if let Err(error) = self.authenticate(cx, client, user, password, arguments) {
                        return self.refuse(cx, client, error);
                    }
                    at += 3;
                }
                (b"setname", Some(given), _) => {
                    name = Some(given);
                    at += 2;
                }
                _ => {
                    let error =
                        format!("ERR Syntax error in HELLO option '{}'", String::from_utf8_lossy(option));
                    return cx.answer(client, |replies| replies.error(&error));
                }
            }
        }
        let Some(session) = cx.clients.sessions.get_mut(client) else { return };
        if !session.is_authenticated() {
            let error = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                         AUTH <user> <pass> option can be used to authenticate the client and select the RESP \
                         protocol version at the same time";
            return cx.answer(client, |replies| replies.error(error));
        }
        if let Some(name) = name {
            if name.len() > CLIENT_NAME_BYTES_MAX {
                return cx.answer(client, |replies| replies.error(NAME_TOO_LONG));
            }
            if !is_printable(name) {
                let error = "ERR Client names cannot contain spaces, newlines or special characters.";
                return cx.answer(client, |replies| replies.error(error));
            }
            session.set_name(name);
        }
        // Earlier requests that still wait were sent under the old protocol; they are few, and soon answered.
        if let Some(protocol) = protocol {
            session.set_protocol(protocol);
        }
        let version = if session.protocol() == Protocol::Resp3 { 3 } else { 2 };
        let number = session.number();
        let redis_version =
            cx.configuration.redis_version.unwrap_or_else(|| RedisVersion::of_level(cx.map.level));
        let role = if status::is_master(cx) { "master" } else { "replica" };
        cx.answer(client, |replies| {
            replies.map(7);
            let mut text = |field: &str, value: &str| {
                replies.bulk(field.as_bytes());
                replies.bulk(value.as_bytes());
            };
            text("server", "redis");
            text("version", &redis_version.to_string());
            text("mode", "cluster");
            text("role", role);
            replies.bulk(b"proto");
            replies.integer(version);
            replies.bulk(b"id");
            replies.integer(number as i64);
            replies.bulk(b"modules");
            replies.array(0);
        });
    }
}

//! Refusal of HTTP at the port for Redis clients.

use crate::context::Context;
use crate::diagnostics::log::{Level, Line};
use crate::session::{ClientId, Session};
use std::time::Duration;

/// How often a refusal is logged at most.
const WARNING_EVERY: Duration = Duration::from_secs(60);

/// Whether the first word of a request is HTTP: the `POST` of a request line, or a header line with `Host:`. Redis refuses
/// the same two. The space after the colon is usual, but not required.
pub(crate) fn is_http(name: &[u8]) -> bool {
    const HOST: &[u8] = b"Host:";
    let is_host = name.get(..HOST.len()).is_some_and(|start| start.eq_ignore_ascii_case(HOST));
    name.eq_ignore_ascii_case(b"POST") || is_host
}

/// Refuses clients that speak HTTP.
#[derive(Debug, Default)]
pub(crate) struct HttpGuard {
    /// When a refusal may be logged again.
    warning_due_us: u64,
}

impl HttpGuard {
    /// Closes the connection of a client that sent HTTP, before the body is read. A web page can have a browser that can
    /// reach this port send HTTP to it, with commands as the body.
    #[cold]
    pub(crate) fn refuse(&mut self, cx: &mut Context, client: ClientId) {
        let now_us = cx.now.monotonic_us;
        cx.counters.http_requests_refused += 1;
        if now_us >= self.warning_due_us {
            self.warning_due_us = now_us + WARNING_EVERY.as_micros() as u64;
            let address = cx.clients.sessions.get(client).and_then(Session::ip_address);
            let address = address.map_or("?".to_owned(), |address| address.to_string());
            let text = format!(
                "possible attack: {address} has sent HTTP to the port for Redis clients, perhaps a browser for some page; \
                 the connection is closed"
            );
            cx.log.push(Line { level: Level::Warning, text });
        }
        cx.kill(client);
    }
}

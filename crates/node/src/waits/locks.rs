//! Clients' requests about locks.

use super::Waits;
use super::wait::Want;
use crate::context::Context;
use crate::context::routing::Sent;
use crate::groups::Groups;
use crate::session::ClientId;
use cluster::setting::{Protocol, Setting};
use commands::locks::{LockRequest, parse};
use commands::{LockVerb, named};
use kv::{Command, LockCommand};
use wire::resp::Arguments;

impl Waits {
    /// Takes a client's request about a lock. Returns the command that its group has to carry out, unless the answer is
    /// known, or the client waits for the lock.
    pub(crate) fn request<'a>(
        &mut self,
        cx: &mut Context,
        client: ClientId,
        verb: LockVerb,
        arguments: Arguments<'a>,
    ) -> Option<Sent<'a>> {
        let request = match parse(verb, arguments) {
            Ok(request) => request,
            Err(error) => {
                if let Ok(named) = named(arguments) {
                    cx.clients.statistics.failed(named.number);
                }
                cx.answer(client, |replies| replies.error(&error.to_string()));
                return None;
            }
        };
        let group = cx.database_of(client).group_of(request.key());
        if let Some(text) = refusal(&cx.groups, "LOCK", group) {
            cx.answer(client, |replies| replies.error(&text));
            return None;
        }
        if request.session().is_some_and(|session| session.group != group) {
            let text = "CROSSSLOT the session is of another group than the lock: open one with a key of the lock's keyspace \
                        and slot";
            cx.answer(client, |replies| replies.error(text));
            return None;
        }
        let command = match request {
            LockRequest::Acquire { name, owner, hold, wait_ms, .. } if wait_ms > 0 => {
                let want = Want::Lock { name: name.into(), owner: owner.into(), hold };
                self.wait(cx, client, group, want, wait_ms.saturating_mul(1000));
                return None;
            }
            LockRequest::Acquire { name, owner, hold, .. } => {
                LockCommand::Acquire { name, owner, hold, waiter: None }
            }
            LockRequest::Renew { name, token, lease_ms } => LockCommand::Renew { name, token, lease_ms },
            LockRequest::Release { name, token } => LockCommand::Release { name, token },
            LockRequest::Describe { name } => {
                // Only the node that measures the lease knows how much time is left of it.
                let command = Command::Lock(LockCommand::Describe { name });
                return Some(Sent { is_fresh: true, ..Sent::new(group, command) });
            }
            LockRequest::OpenSession { key, lease_ms } => LockCommand::OpenSession { key, group, lease_ms },
            LockRequest::RenewSession { key, session } => {
                LockCommand::RenewSession { key, session: session.number }
            }
            LockRequest::CloseSession { key, session } => {
                LockCommand::CloseSession { key, session: session.number }
            }
        };
        Some(Sent::new(group, Command::Lock(command)))
    }
}

/// Why a group has no locks, if it has none.
pub(crate) fn refusal(groups: &Groups, what: &str, group: u16) -> Option<String> {
    let keyspace = &groups.get(group)?.keyspace;
    let (name, protocol) = (keyspace.name(), keyspace.replication.text());
    (keyspace.replication != Protocol::Consensus).then(|| {
        format!(
            "ERR {what} needs records that are never lost; keyspace '{name}' uses {protocol}: use one with \
                 replication=consensus"
        )
    })
}

//! This node's part in exchanges of databases (`SWAPDB`): see [`crate::control`], where the map changes, and
//! [`kv::Command::Exchange`]. A node holds its clients' requests to the two databases, and moves the groups that it
//! leads to the map's count.

use crate::context::{Call, Context};
use crate::control::{Change, ClusterMap, ExchangeStep};
use crate::keyspace::{Keyspace, database_named};
use crate::origin::{Asked, Origin};
use crate::replica::Replica;
use crate::setting::Reads;
use kv::{Command, Version};
use protocol::Request;
use std::cmp::Ordering;

/// How long a leader waits before it stops its group: by then other nodes know of the exchange, and hold requests
/// that would otherwise be refused.
const GRACE_US: u64 = 20_000;

/// How often a node checks the state of an exchange.
const LOOK_US: u64 = 5_000;

/// After how long a step that has not happened is requested again.
const AGAIN_US: u64 = 100_000;

/// Follows a new map, whose counts the groups have already.
pub(crate) fn follow(cx: &mut Context, map: &ClusterMap) {
    let between = map.exchange.iter().flat_map(|it| [&it.between.0, &it.between.1]);
    let databases =
        between.map(|prefix| 1 << database_named(prefix.as_bytes())).fold(0, |all, one| all | one);
    let now_us = cx.now.monotonic_us;
    if databases != 0 && !cx.exchanges.is_on() {
        cx.exchanges.stops_at_us = now_us + GRACE_US;
    }
    if databases != cx.exchanges.databases {
        cx.exchanges.due_us = now_us;
    }
    cx.exchanges.databases = databases;
}

/// Moves the groups that this node leads to the counts of the map.
pub(crate) fn tend(cx: &mut Context) {
    let now_us = cx.now.monotonic_us;
    let mut is_any_under_way = cx.exchanges.is_on();
    let mut place = 0;
    while let Some(id) = cx.groups.ids().get(place).copied() {
        place += 1;
        let group = &mut cx.groups[id];
        let count = group.exchanges;
        let Some(replica) = group.replica.as_ref() else { continue };
        let (has, is_odd) = (replica.table().exchanges(), !count.is_multiple_of(2));
        let is_reported = || cx.map.exchange.as_ref().is_none_or(|it| it.stopped.contains_key(&id));
        let standing = has.cmp(&count);
        let is_done = match standing {
            Ordering::Less => false,
            _ if is_odd => is_reported(),
            // This node may only be late: then its next map will have that count.
            standing => standing == Ordering::Equal,
        };
        if is_done {
            continue;
        }
        is_any_under_way = true;
        let is_early = standing == Ordering::Less && is_odd && now_us < cx.exchanges.stops_at_us;
        let step = (count, standing);
        let is_asked = group.exchange_asked.0 == step && now_us < group.exchange_asked.1 + AGAIN_US;
        if !replica.is_leader() || is_early || is_asked {
            continue;
        }
        let (version, floor) = (replica.table().version_floor(), group.floor);
        group.exchange_asked = (step, now_us);
        match standing {
            Ordering::Less => move_to(cx, id, count, floor),
            _ if is_odd => report(cx, ExchangeStep::Stopped { group: id, exchanges: count, version }),
            // The map was set back by a recovery: it must catch up, or the group will execute nothing any more.
            _ => report(cx, ExchangeStep::Ahead { group: id, exchanges: has }),
        }
    }
    cx.exchanges.due_us = if is_any_under_way { now_us + LOOK_US } else { u64::MAX };
}

/// Whether a command that was routed by this count arrives before the group has gone on after the exchange. The
/// command waits here, unless another node is to answer it.
pub(crate) fn comes_early(keyspace: &Keyspace, replica: &Replica, exchanges: u64) -> bool {
    let is_answered_here = replica.is_leader() || keyspace.reads == Reads::Any;
    is_answered_here && replica.table().exchanges() < exchanges && exchanges.is_multiple_of(2)
}

fn report(cx: &mut Context, step: ExchangeStep) {
    cx.call(Call::Change { client: None, change: Box::new(Change::Exchange(step)) });
}

fn move_to(cx: &mut Context, group: u16, exchanges: u64, floor: Version) {
    let deadline_us = cx.now.monotonic_us + cx.configuration.command_timeout_ms * 1000;
    // The outcome is ignored: a step that was not done is requested again.
    let ticket = Origin::Unawaited.ticket(0);
    let asked = Asked { ticket, follows: false, seen: Version::MAX, deadline_us, hops: 0, leadership: 0 };
    cx.submit(group, asked, &Request::Command(&Command::Exchange { exchanges, floor }));
}

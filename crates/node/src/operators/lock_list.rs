//! `LOCK.LIST`: the locks that this node's replicas hold, with their owners and waiting clients. It looks at tables
//! as they are here, so a follower's may be a moment old; `LOCK.INFO` asks the leader.

use crate::context::Context;
use crate::session::ClientId;
use cluster::keyspace::Keyspace;
use kv::ReplyBuffer;
use kv::locks::Locks;
use wire::resp::Arguments;

/// How many locks are listed where no number is given.
const COUNT: usize = 100;

/// The most locks that are listed at once.
const LISTED_LOCKS_MAX: usize = 10_000;

/// How many waiting owners are named for each lock.
const NAMED_WAITERS: usize = 10;

/// `LOCK.LIST [COUNT n]`.
pub(crate) fn list(cx: &mut Context, client: ClientId, arguments: Arguments<'_>) {
    let count = match (arguments.get(1), arguments.get(2), arguments.len()) {
        (None, ..) => Some(COUNT),
        (Some(word), Some(count), 3) if word.eq_ignore_ascii_case(b"COUNT") => {
            std::str::from_utf8(count).ok().and_then(|text| text.parse().ok())
        }
        _ => return cx.answer(client, |replies| replies.error("ERR syntax error")),
    };
    let Some(count) = count.filter(|count| (1..=LISTED_LOCKS_MAX).contains(count)) else {
        let error = format!("ERR COUNT is a number from 1 to {LISTED_LOCKS_MAX}");
        return cx.answer(client, |replies| replies.error(&error));
    };
    let (mut listed, mut rows) = (0, ReplyBuffer::new());
    for (_, group) in cx.groups.iter() {
        let Some(replica) = &group.replica else { continue };
        let locks = replica.table().locks();
        for name in locks.names().take(count - listed) {
            listed += 1;
            write(&group.keyspace, group.shard, locks, name, &mut rows);
        }
    }
    cx.answer(client, |replies| {
        replies.array(listed);
        replies.extend_encoded(rows.as_bytes());
    });
}

fn write(keyspace: &Keyspace, shard: u16, locks: &Locks, name: &[u8], out: &mut ReplyBuffer) {
    out.map(5);
    out.bulk(b"keyspace");
    out.bulk(keyspace.prefix.as_bytes());
    out.bulk(b"shard");
    out.integer(i64::from(shard));
    out.bulk(b"name");
    out.bulk(name);
    out.bulk(b"lock");
    locks.describe(name, None, out);
    out.bulk(b"waiting");
    let waiting: Vec<&[u8]> = locks.waiting_owners(name).take(NAMED_WAITERS).collect();
    out.array(waiting.len());
    waiting.into_iter().for_each(|owner| out.bulk(owner));
}

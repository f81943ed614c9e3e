//! Redis's commands about the whole server. The replies say what is true here, which is mostly that Quorate has nothing of
//! the kind.

use crate::context::Context;
use crate::session::ClientId;
use commands::{MemoryCommand, ServerCommand, printable};
use kv::{Reply, ReplyBuffer};
use wire::resp::Arguments;

/// Programs send `BGSAVE` or `SAVE` before they copy a file, and a success would have them copy an old one, or none.
const NO_FILES: &str = "no RDB or AOF file is written that could be copied: an acknowledged write is kept as its keyspace's \
                        durability says. For a copy use quorate backup, quorate export, or redis-cli --rdb FILE";

pub(super) fn server(cx: &mut Context, client: ClientId, command: ServerCommand, arguments: Arguments<'_>) {
    let name = String::from_utf8_lossy(&arguments[0]).to_ascii_uppercase();
    let saved_ms = cx.journal.saved_ms();
    cx.answer(client, |replies| match command {
        ServerCommand::Save => replies.error(&format!("ERR {name} is refused: {NO_FILES}")),
        ServerCommand::LastSave => replies.integer((saved_ms / 1000) as i64),
        ServerCommand::Follow => follow(&name, arguments, replies),
        ServerCommand::Modules => replies.array(0),
        ServerCommand::Shutdown => {
            replies.error("ERR SHUTDOWN is refused: a node is stopped by SIGTERM or SIGINT to its process");
        }
        ServerCommand::SwapDatabases => replies.error(
            "ERR SWAPDB is refused: each database is a keyspace with replicas of its own. Fill another database, and have the clients \
             SELECT that",
        ),
        ServerCommand::ClusterReset => replies.error(
            "ERR CLUSTER RESET is refused: a node keeps its part of the data until others have it. CLUSTER REMOVE id takes a node out",
        ),
        ServerCommand::Lolwut => {
            let text = format!(
                "  o---o\n   \\ /     two of three are a quorum\n    o\n\nQuorate ver. {}\n",
                crate::VERSION
            );
            replies.push(Reply::Text(text.as_bytes()));
        }
    });
}

/// `REPLICAOF` and `SLAVEOF`.
fn follow(name: &str, arguments: Arguments<'_>, replies: &mut ReplyBuffer) {
    let [host, port] = [1, 2].map(|place| printable(&arguments[place]));
    // A cluster follows no server.
    if host.eq_ignore_ascii_case("NO") && port.eq_ignore_ascii_case("ONE") {
        return replies.ok();
    }
    replies.error(&format!(
        "ERR {name} is refused: a cluster follows no other server. To take over its keys and follow its writes until the \
         applications switch, run quorate import redis://{host}:{port} --addr HOST:PORT, with a node of this cluster as HOST:PORT"
    ));
}

/// `MEMORY DOCTOR`, `MEMORY MALLOC-STATS` and `MEMORY PURGE`.
pub(super) fn memory(cx: &mut Context, client: ClientId, command: MemoryCommand) {
    let text = match command {
        MemoryCommand::Purge => return cx.answer(client, ReplyBuffer::ok),
        MemoryCommand::MallocStats => {
            "The allocator's own statistics are not shown; INFO memory has what the node knows.\n"
        }
        MemoryCommand::Doctor if cx.memory.is_full() => {
            "The limit of data (INFO: maxmemory_data) is reached: commands that would need more memory are refused with OOM. \
             Remove keys, or raise memory_max on all nodes.\n"
        }
        MemoryCommand::Doctor if !cx.memory.is_bounded() => {
            "Memory has no limit on this node (memory_max): the system may end the process when the machine has no more.\n"
        }
        MemoryCommand::Doctor => "Nothing is wrong: data and clients are within their limits.\n",
    };
    cx.answer(client, |replies| replies.push(Reply::Text(text.as_bytes())));
}

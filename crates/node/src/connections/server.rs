//! Redis's commands about the whole server. The replies say what is true here, which is mostly that Quorate has nothing of
//! the kind.

use crate::command::{MemoryCommand, ServerCommand};
use crate::context::Context;
use crate::session::ClientId;
use kv::{Reply, ReplyBuffer};
use wire::resp::Arguments;

const NO_FILES: &str = "there are no RDB and AOF files: a write is kept as its keyspace's durability says";

pub(super) fn server(cx: &mut Context, client: ClientId, command: ServerCommand, arguments: Arguments<'_>) {
    let name = String::from_utf8_lossy(&arguments[0]).to_ascii_uppercase();
    cx.answer(client, |replies| match command {
        ServerCommand::Save => replies.error(&format!("ERR {name} is refused: {NO_FILES}")),
        // The same time as INFO's `rdb_last_save_time`.
        ServerCommand::LastSave => replies.integer(0),
        ServerCommand::Shutdown => {
            replies.error("ERR SHUTDOWN is refused: a node is stopped by SIGTERM or SIGINT to its process");
        }
        ServerCommand::Lolwut => {
            let text = format!(
                "  o---o\n   \\ /     two of three are a quorum\n    o\n\nQuorate ver. {}\n",
                crate::VERSION
            );
            replies.push(Reply::Text(text.as_bytes()));
        }
    });
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

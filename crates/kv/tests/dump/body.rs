//! Properties that hold for any payload. Property tests draw the bytes at random; the fuzz target, which includes this very
//! file, searches for counterexamples.

use kv::codec::Reader;
use kv::{Command, Reply, ReplyBuffer, RestoreOptions, Table};

const NOW: u64 = 1_000_000;

/// Applies a command, and returns its reply.
pub(crate) fn applied(table: &mut Table, command: &Command<'_>) -> Vec<u8> {
    let (mut out, version) = (ReplyBuffer::new(), table.version_floor() + 1);
    match command.is_write() {
        true => table.apply(command, version, NOW, &mut out),
        false => table.read(command, NOW, &mut out),
    };
    out.as_bytes().to_vec()
}

/// The payload of a key, if there is one.
pub(crate) fn dumped(table: &mut Table, key: &[u8]) -> Option<Vec<u8>> {
    let reply = applied(table, &Command::Dump { key });
    match Reply::decode(&mut Reader::new(&reply)) {
        Ok(Reply::Bulk(payload)) => Some(payload.to_vec()),
        Ok(Reply::Null) => None,
        other => panic!("DUMP does not answer with {other:?}"),
    }
}

pub(crate) fn restored(table: &mut Table, key: &[u8], payload: &[u8]) -> bool {
    let reply = applied(
        table,
        &Command::Restore {
            key,
            payload,
            deadline: None,
            options: RestoreOptions { replaces: true, used: None },
        },
    );
    match Reply::decode(&mut Reader::new(&reply)) {
        Ok(Reply::Ok) => true,
        Ok(Reply::Error(_)) => false,
        other => panic!("RESTORE does not answer with {other:?}"),
    }
}

/// Any bytes are refused as a value, or are a value that another replica accepts, and that stays the same after a round
/// trip through Redis's format.
pub(crate) fn payload(data: &[u8]) {
    let Some((version, value)) = data.split_first() else { return };
    let mut payload = value.to_vec();
    rdb::payload::close(if version % 2 == 0 { 12 } else { 80 }, 0, &mut payload);
    let mut table = Table::new(1);
    if !restored(&mut table, b"k", &payload) {
        assert!(table.is_empty(), "what is refused changes nothing");
        return;
    }
    let id = table.begin_snapshot();
    let (mut chunk, mut copy) = (Vec::new(), Table::new(2));
    while table.snapshot_chunk(id, 1 << 20, &mut chunk) {}
    table.end_snapshot(id);
    copy.install(&chunk).expect("a replica takes what another one has stored");
    copy.set_version_floor(table.version_floor());
    assert_eq!(copy.digest(), table.digest());
    let Some(payload) = dumped(&mut table, b"k") else { return };
    assert!(restored(&mut table, b"l", &payload), "what was dumped is taken");
    assert_eq!(dumped(&mut table, b"l").as_ref(), Some(&payload));
}

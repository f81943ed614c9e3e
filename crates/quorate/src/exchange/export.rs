//! `quorate export`: writes the keys of a running cluster to a file that Redis and Valkey load.

use std::fs::File;
use std::io::{BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Args;
use rdb::payload;
use rdb::write::FileWriter;

use super::{Progress, Refusals, databases, key_count, select};
use crate::connection::{ANSWER_WITHIN, Client, Connect, Reply, Role, put_request};
use crate::output::say;

const EXAMPLES: &str = "\
Examples:
  quorate export dump.rdb --addr 10.0.0.7:7000
  quorate export dump.rdb --addr 10.0.0.7:7443 --cacert authority.crt   over TLS
  redis-server --dbfilename dump.rdb --dir .         load it

Keys are read one after the other while clients write: the file is not the state of one moment unless they pause.";

/// Keys that a step of the scan visits.
const STEP: &[u8] = b"100";

/// Write the keys of a running cluster to a file that Redis and Valkey load
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    /// The file to write
    #[arg(value_name = "FILE")]
    to: PathBuf,

    #[command(flatten)]
    connect: Connect,

    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

/// Exports all keys.
///
/// # Errors
/// A sentence that says why not all keys were written. If only some keys are missing, the file exists.
pub(super) fn run(args: &ExportArgs) -> Result<()> {
    let (to, cannot) = (&args.to, || format!("cannot write {}", args.to.display()));
    ensure!(args.force || !to.exists(), "{} exists: give --force to replace it", to.display());
    let mut client = args.connect.resolve(Role::Looks)?.open(ANSWER_WITHIN)?.1;
    let beside = to.with_extension("part");
    let file = File::create(&beside).with_context(cannot)?;
    let written = write(&mut client, file).with_context(cannot);
    let (count, refusals) = match written {
        Ok(written) => written,
        Err(error) => {
            let _ = std::fs::remove_file(&beside);
            return Err(error);
        }
    };
    std::fs::rename(&beside, to).with_context(cannot)?;
    sync_folder(to).with_context(cannot)?;
    say(&format!("{count} keys are in {}", to.display()));
    refusals.conclude("written")
}

fn sync_folder(file: &Path) -> std::io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

fn write(client: &mut Client, file: File) -> Result<(u64, Refusals)> {
    let (mut refusals, mut progress, mut count) = (Refusals::default(), Progress::begin(), 0);
    let all = key_count(client)? as f64;
    let mut writer = FileWriter::begin(BufWriter::with_capacity(1 << 20, file))?;
    let mut databases = databases(client)?.into_iter();
    let mut cursor = b"0".to_vec();
    loop {
        if cursor == b"0" {
            let Some(database) = databases.next() else { break };
            select(client, database)?;
            if database != 0 {
                writer.database(database)?;
            }
        }
        let (next, keys) = scanned(client.ask(&[b"SCAN", &cursor, b"COUNT", STEP])?)?;
        let mut requests = Vec::new();
        for key in &keys {
            put_request(&[b"PEXPIRETIME", key], &mut requests);
            put_request(&[b"DUMP", key], &mut requests);
        }
        client.send(&requests)?;
        for key in &keys {
            match (client.reply()?, client.reply()?) {
                (Reply::Integer(deadline), Reply::Bulk(dumped)) => {
                    let (tag, value) = payload::content(&dumped).context("DUMP returned no payload")?;
                    let deadline_ms = u64::try_from(deadline).ok().filter(|deadline| *deadline > 0);
                    writer.key(key, deadline_ms, tag, value)?;
                    count += 1;
                }
                // The key has been removed since.
                (_, Reply::Null) => {}
                (Reply::Error(error), _) | (_, Reply::Error(error)) => refusals.add(&error, key),
                other => return Err(anyhow!("the cluster answers with {other:?}")),
            }
        }
        progress.show(count, Some((count as f64 / all.max(1.0)).min(1.0)));
        cursor = next;
    }
    progress.end();
    let (out, head) = writer.end()?;
    let mut file = out.into_inner().map_err(|error| error.into_error())?;
    if let Some(head) = head {
        file.seek(SeekFrom::Start(0))?;
        file.write_all(head)?;
    }
    file.sync_all()?;
    Ok((count, refusals))
}

/// The next cursor and the keys of a step of the scan.
pub(super) fn scanned(reply: Reply) -> Result<(Vec<u8>, Vec<Vec<u8>>)> {
    let no_scan = |reply: &Reply| anyhow!("SCAN answers with {reply:?}");
    let Reply::Array(mut parts) = reply else { return Err(no_scan(&reply)) };
    match (parts.pop(), parts.pop().and_then(Reply::bytes)) {
        (Some(Reply::Array(keys)), Some(cursor)) => {
            Ok((cursor, keys.into_iter().filter_map(Reply::bytes).collect()))
        }
        _ => Err(anyhow!("SCAN answers with too little")),
    }
}

//! How fast the write-ahead log is on a real disk.
//!
//! `cargo run --release -p quorate-server --example log_speed [FOLDER]`: one sync, appends with and without a
//! sync per turn, writes beside running syncs, and a start with 1 GiB of log, cold and warm. It makes a
//! folder of its own in FOLDER (or in the system's folder for temporary files), needs 2 GiB there, and
//! removes it at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use server::disk::{FinishedWork, FolderDisk, WorkThreads};
use storage::{Disk as _, Identity, Log, Options, open};

const RECORD: [u8; 256] = [7; 256];

fn start(path: &Path) -> anyhow::Result<(FolderDisk, Log, u64)> {
    let mut disk = FolderDisk::open(path)?;
    let options = Options::new(Identity { cluster: 1, node: 1, worker: 0, log: 7 });
    let (mut entries, mut bytes) = (0, 0);
    let (log, _) = open(&mut disk, options)?.replay(&mut disk, |entry| {
        entries += 1;
        bytes += entry.bytes.len();
    })?;
    assert_eq!(bytes, entries * RECORD.len());
    Ok((disk, log, entries as u64))
}

/// Opens a log in an empty folder.
fn empty_log(path: &Path) -> anyhow::Result<(FolderDisk, Log)> {
    if path.exists() {
        fs::remove_dir_all(path)?;
    }
    let (disk, log, _) = start(path)?;
    Ok((disk, log))
}

/// Median, 99th percentile and maximum, in microseconds.
fn spread(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let us = |part: usize| times[(times.len() - 1) * part / 1000].as_secs_f64() * 1e6;
    format!(
        "p50 {:6.1} us  p99 {:6.1} us  p99.9 {:7.1} us  max {:8.1} us",
        us(500),
        us(990),
        us(999),
        us(1000)
    )
}

fn one_sync(path: &Path) -> anyhow::Result<()> {
    for (name, made) in [("into zeros made before", 16 << 20), ("of a file that grows", 0)] {
        let mut disk = FolderDisk::open(path)?;
        disk.create("file", made)?;
        disk.sync("file")?;
        let mut times = Vec::new();
        for turn in 0..3000 {
            let started = Instant::now();
            disk.write("file", turn * 4096, &[1; 512])?;
            disk.sync("file")?;
            times.push(started.elapsed());
        }
        println!("one write of 512 bytes and fdatasync, {name:22}: {}", spread(times));
        disk.remove("file")?;
    }
    Ok(())
}

/// Starts upkeep and takes in finished work.
fn turn(log: &mut Log, threads: &mut WorkThreads) -> anyhow::Result<()> {
    if let Some(work) = log.begin_upkeep()? {
        threads.begin(work);
    }
    while let Some(FinishedWork { work, result, .. }) = threads.take_finished() {
        log.finished(work, result)?;
    }
    Ok(())
}

fn appends(path: &Path, batch: usize, with_sync: bool) -> anyhow::Result<()> {
    let (mut disk, mut log) = empty_log(path)?;
    let mut threads = WorkThreads::start(&disk, || {})?;
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1500) && log.end() < 512 << 20 {
        let started = Instant::now();
        for _ in 0..batch {
            log.append(1, 1, &RECORD);
        }
        log.write(&mut disk)?;
        if with_sync && let Some(work) = log.begin_sync()? {
            let result = work.run(&mut disk);
            log.finished(work, result)?;
        }
        times.push(started.elapsed());
        turn(&mut log, &mut threads)?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let records = (times.len() * batch) as f64 / seconds;
    let name = if with_sync { "write and sync" } else { "write only" };
    let megabytes = records * 256.0 / 1e6;
    println!(
        "{batch:4} records a turn, {name:14}: {records:9.0} records/s {megabytes:7.1} MB/s  {}",
        spread(times)
    );
    Ok(())
}

/// Turns go on while syncs run on their thread. Measures how long a turn takes and how long a record waits.
fn beside_syncs(path: &Path, batch: usize) -> anyhow::Result<()> {
    let (mut disk, mut log) = empty_log(path)?;
    let mut threads = WorkThreads::start(&disk, || {})?;
    let (mut turns, mut waits, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1500) && log.end() < 512 << 20 {
        let started = Instant::now();
        // At most 256 records wait at once, as with 256 clients.
        if waiting.len() * batch < 256 {
            for _ in 0..batch {
                log.append(1, 1, &RECORD);
            }
            log.write(&mut disk)?;
            turns.push(started.elapsed());
            waiting.push((log.end(), started));
        }
        if let Some(work) = log.begin_sync()? {
            threads.begin(work);
        }
        turn(&mut log, &mut threads)?;
        let now = Instant::now();
        waiting.retain(|(position, since)| {
            let waits_on = *position > log.durable();
            if !waits_on {
                waits.push(now - *since);
            }
            waits_on
        });
        std::thread::yield_now();
    }
    let records = (waits.len() * batch) as f64 / begun.elapsed().as_secs_f64();
    println!("{batch:4} records a turn beside syncs, 256 waiting: {records:9.0} durable records/s");
    println!("     append and write: {}", spread(turns));
    println!("     until durable:    {}", spread(waits));
    Ok(())
}

fn restart(path: &Path) -> anyhow::Result<()> {
    let (mut disk, mut log) = empty_log(path)?;
    let mut threads = WorkThreads::start(&disk, || {})?;
    let mut expected = 0;
    while log.end() < 1 << 30 {
        for _ in 0..64 {
            log.append(1, 1, &RECORD);
        }
        expected += 64;
        log.write(&mut disk)?;
        turn(&mut log, &mut threads)?;
        if log.wants_sync()
            && let Some(work) = log.begin_sync()?
        {
            threads.begin(work);
        }
    }
    drop(threads);
    drop(log);
    // As after `kill -9`: the last segments have not been synced by the log.
    for name in ["after kill -9, from memory", "orderly, from memory", "orderly, from the disk"] {
        if name.ends_with("disk") {
            for entry in fs::read_dir(path)? {
                let file = fs::File::open(entry?.path())?;
                file.sync_all()?;
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
            }
        }
        let started = Instant::now();
        let (_, log, entries) = start(path)?;
        let seconds = started.elapsed().as_secs_f64();
        assert_eq!(entries, expected);
        let megabytes = log.held_bytes() as f64 / 1e6;
        println!(
            "start with {megabytes:.0} MB of log, {name:27}: {seconds:.2} s, {:.0} MB/s, {entries} entries",
            megabytes / seconds
        );
    }
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join(format!("quorate-log-speed-{}", std::process::id()));
    one_sync(&path)?;
    for with_sync in [false, true] {
        for batch in [1, 4, 16, 64, 256] {
            appends(&path, batch, with_sync)?;
        }
    }
    for batch in [1, 16, 64] {
        beside_syncs(&path, batch)?;
    }
    restart(&path)?;
    fs::remove_dir_all(&path)?;
    Ok(())
}

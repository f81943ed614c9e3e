//! Copies for programs that read Redis's replication stream: `redis-cli --rdb`, and tools that want the length first.

use crate::dump::{Draw, client_of, compare, fill, has_loaded, in_folder, keys_of, quorate, run};
use crate::support::{Cluster, PATIENCE, as_text, until};
use rdb::file::{FileReader, Item};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

/// Runs `redis-cli --rdb` at a port. Returns whether it has succeeded, and what it has printed.
fn read_rdb(port: u16, file: &Path) -> (bool, String) {
    let output = Command::new("redis-cli")
        .args(["-p", &port.to_string(), "--rdb", file.to_str().unwrap()])
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), text.concat())
}

#[test]
fn redis_cli_copies_all_keyspaces_into_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let Some(redis) = in_folder(folder.path(), &[]) else { return };
    drop(redis);
    // None of them keeps changes: a copy needs none.
    let cluster = Cluster::start(1, &["prefix= shards=3", "prefix=s:", "prefix=@1"]);
    let (mut ours, mut draw) = (cluster.client(1), Draw(5));
    fill(&mut ours, &mut draw);
    run(&mut ours, &[b"SET", b"s:a", b"v"]);
    let keys = keys_of(&mut ours);
    run(&mut ours, &[b"SELECT", b"1"]);
    run(&mut ours, &[b"SET", b"of database 1", b"v"]);
    run(&mut ours, &[b"SELECT", b"0"]);
    let before: u64 = as_text(&run(&mut ours, &[b"LASTSAVE"])).parse().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let file = folder.path().join("dump.rdb");
    let (is_done, output) = read_rdb(cluster.client_port(1), &file);
    assert!(is_done && output.contains("Transfer finished with success"), "{output}");
    assert!(as_text(&run(&mut ours, &[b"LASTSAVE"])).parse::<u64>().unwrap() > before);

    // Redis and Quorate read it.
    assert!(std::fs::read(&file).unwrap().starts_with(b"REDIS0010"));
    let again = in_folder(folder.path(), &[]).unwrap();
    let mut theirs = client_of(again.1);
    until("the file is read", || has_loaded(&mut theirs));
    compare(&mut ours, &mut theirs, &keys);
    run(&mut theirs, &[b"SELECT", b"1"]);
    assert_eq!(as_text(&run(&mut theirs, &[b"GET", b"of database 1"])), "\"v\"");
    let (_, output) = quorate(&["import", file.to_str().unwrap(), "--dry-run", "--database", "1=@1"]);
    assert!(output.contains(&format!("there are {} keys", keys.len() + 1)), "{output}");

    // A file with deadlines of fields has the version that holds them.
    run(&mut ours, &[b"HSET", b"h", b"f", b"v"]);
    run(&mut ours, &[b"HPEXPIREAT", b"h", b"4102444800123", b"FIELDS", b"1", b"f"]);
    let file = folder.path().join("deadlines.rdb");
    assert!(read_rdb(cluster.client_port(1), &file).0);
    assert!(std::fs::read(&file).unwrap().starts_with(b"REDIS0012"));
    let (_, output) = quorate(&["import", file.to_str().unwrap(), "--dry-run", "--database", "1=@1"]);
    assert!(output.contains(&format!("there are {} keys", keys.len() + 2)), "{output}");
}

#[test]
fn a_keyspace_that_cannot_be_copied_is_named_and_no_file_lacks_it() {
    let folder = tempfile::tempdir().unwrap();
    if in_folder(folder.path(), &[]).is_none() {
        return;
    }
    let cluster = Cluster::start(1, &["prefix=reg: replication=abd"]);
    let file = folder.path().join("dump.rdb");
    let (is_done, output) = read_rdb(cluster.client_port(1), &file);
    assert!(!is_done && output.contains("keyspace 'reg:' has registers"), "{output}");
}

/// Reads a copy that is preceded by its length, as a program does that knows no other way. Returns its keys.
fn copy_with_length(input: &mut BufReader<TcpStream>) -> Vec<Vec<u8>> {
    let mut line = String::new();
    // Empty lines are signs of life.
    while line.trim().is_empty() {
        line.clear();
        input.read_line(&mut line).unwrap();
    }
    let length: usize = line.trim().strip_prefix('$').unwrap_or_else(|| panic!("{line}")).parse().unwrap();
    let mut bytes = vec![0; length];
    input.read_exact(&mut bytes).unwrap();
    let (mut file, mut keys) = (FileReader::new(&bytes[..]).unwrap(), Vec::new());
    loop {
        match file.item().unwrap() {
            Item::Key { key, form, .. } => {
                rdb::value::read(form, file.source(), &mut |_| Ok::<(), rdb::Fault>(())).unwrap();
                keys.push(key);
            }
            Item::Database(_) => {}
            Item::End => break,
            item => panic!("{item:?}"),
        }
    }
    assert_eq!(file.source().at(), length as u64, "nothing is behind the end");
    keys.sort();
    keys
}

#[test]
fn a_copy_has_its_length_in_front_unless_its_reader_takes_a_mark() {
    let cluster = Cluster::start(1, &["prefix= changes_bytes=64mb shards=2"]);
    let mut ours = cluster.client(1);
    fill(&mut ours, &mut Draw(6));
    run(&mut ours, &[b"HSET", b"h", b"f", b"v"]);
    run(&mut ours, &[b"HPEXPIREAT", b"h", b"4102444800123", b"FIELDS", b"1", b"f"]);
    let keys = keys_of(&mut ours);
    for (number, request) in
        ["SYNC\r\n", "REPLCONF listening-port 1\r\nPSYNC ? -1\r\n"].into_iter().enumerate()
    {
        let mut stream = TcpStream::connect(("127.0.0.1", cluster.client_port(1))).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut input = BufReader::new(stream);
        if number == 1 {
            let mut line = String::new();
            input.read_line(&mut line).unwrap();
            assert_eq!(line, "+OK\r\n");
            line.clear();
            input.read_line(&mut line).unwrap();
            assert!(line.starts_with("+FULLRESYNC "), "{line}");
        }
        // Keys change, come and go while the copy is counted and sent: it is as it was counted.
        for at in 0..200 {
            run(&mut ours, &[b"SET", format!("new{number}:{at}").as_bytes(), &[b'x'; 100]]);
            run(&mut ours, &[b"LPOP", b"large list"]);
            run(&mut ours, &[b"APPEND", b"grows", b"more"]);
        }
        let copied = copy_with_length(&mut input);
        let is_old = |key: &&Vec<u8>| !key.starts_with(b"new") && *key != b"grows";
        let expected: Vec<_> = keys.iter().filter(is_old).collect();
        assert_eq!(copied.iter().filter(is_old).collect::<Vec<_>>(), expected);
        // The changes follow, without an acknowledgement.
        run(&mut ours, &[b"SET", b"last", number.to_string().as_bytes()]);
        let wanted = format!("$4\r\nlast\r\n$1\r\n{number}\r\n");
        let mut seen = Vec::new();
        let mut part = [0; 4096];
        while !String::from_utf8_lossy(&seen).contains(&wanted) {
            let count = input.read(&mut part).unwrap();
            assert!(count > 0, "the connection has ended");
            seen.extend_from_slice(&part[..count]);
        }
        let seen = String::from_utf8_lossy(&seen);
        assert!(seen.contains("HPEXPIREAT") && seen.contains("4102444800123"), "deadlines of fields follow");
        // Not together: they may be in different shards.
        run(&mut ours, &[b"DEL", b"last"]);
        run(&mut ours, &[b"DEL", b"grows"]);
        for at in 0..200 {
            run(&mut ours, &[b"DEL", format!("new{number}:{at}").as_bytes()]);
        }
    }
}

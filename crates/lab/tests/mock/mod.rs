//! A RESP server of a few commands, one thread per connection, that misbehaves on demand.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

pub(crate) mod http;

/// How many replicas WAIT always counts.
pub(crate) const REPLICAS: u32 = 2;

/// The only password that AUTH accepts.
pub(crate) const PASSWORD: &str = "right";

/// What it does to each connection. Counts are of requests on that connection, the greeting left out.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Behaviour {
    /// It keeps to the protocol.
    Sound,
    /// GET returns a value that no client wrote.
    WrongValues,
    /// Everything but the greeting is refused.
    Errors,
    /// So many requests are answered, then the connection is closed.
    DropAfter(usize),
    /// So many requests are answered, then comes what is no reply.
    GarbageAfter(usize),
    /// So many requests are answered, then nothing comes any more.
    SilentAfter(usize),
    /// Everything but the greeting is answered twice.
    Twice,
}

type Table = Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>;

/// A server that runs until the test process ends.
pub(crate) struct Mock {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    table: Table,
}

impl Mock {
    /// How many keys have been written.
    pub(crate) fn key_count(&self) -> usize {
        self.table.lock().unwrap().len()
    }

    /// The keys that have been written.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        self.table.lock().unwrap().keys().cloned().collect()
    }
}

/// Starts a server.
pub(crate) fn start(behaviour: Behaviour) -> Mock {
    start_at(0, behaviour)
}

/// Starts a server at a port; 0 is any.
pub(crate) fn start_at(port: u16, behaviour: Behaviour) -> Mock {
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let address = listener.local_addr().unwrap();
    let table = Table::default();
    let shared = Arc::clone(&table);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let table = Arc::clone(&shared);
            // A connection that ends with an error is one that the generator has closed.
            thread::spawn(move || serve(stream, behaviour, &table));
        }
    });
    Mock { address, table }
}

fn serve(stream: TcpStream, behaviour: Behaviour, table: &Table) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    let mut replies = Vec::new();
    let mut served = 0;
    let mut is_greeted = false;
    while let Some(request) = read_request(&mut reader)? {
        if is_greeted {
            match behaviour {
                Behaviour::DropAfter(limit) if served == limit => {
                    writer.write_all(&replies)?;
                    return Ok(());
                }
                Behaviour::GarbageAfter(limit) if served == limit => replies.extend_from_slice(b"?what\r\n"),
                Behaviour::SilentAfter(limit) if served >= limit => {}
                Behaviour::Errors => replies.extend_from_slice(b"-CLUSTERDOWN too few nodes\r\n"),
                Behaviour::WrongValues if request[0] == b"GET" => replies.extend_from_slice(b"$3\r\nbad\r\n"),
                Behaviour::Twice => (0..2).for_each(|_| answer(&request, table, &mut replies)),
                _ => answer(&request, table, &mut replies),
            }
            served += 1;
        } else {
            answer(&request, table, &mut replies);
            is_greeted = request[0] == b"PING";
        }
        if reader.buffer().is_empty() {
            writer.write_all(&replies)?;
            replies.clear();
        }
    }
    Ok(())
}

fn answer(request: &[Vec<u8>], table: &Table, replies: &mut Vec<u8>) {
    let mut table = table.lock().unwrap();
    let reply = match &request[0][..] {
        b"PING" => "+PONG\r\n".to_owned(),
        b"AUTH" if request[1] == PASSWORD.as_bytes() => "+OK\r\n".to_owned(),
        b"AUTH" => "-WRONGPASS invalid password\r\n".to_owned(),
        b"SET" => {
            table.insert(request[1].clone(), request[2].clone());
            "+OK\r\n".to_owned()
        }
        b"GET" => match table.get(&request[1]) {
            Some(value) => {
                replies.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
                replies.extend_from_slice(value);
                "\r\n".to_owned()
            }
            None => "$-1\r\n".to_owned(),
        },
        b"INCR" => {
            let value = table.entry(request[1].clone()).or_insert_with(|| b"0".to_vec());
            let count: u64 = String::from_utf8_lossy(value).parse().unwrap();
            *value = (count + 1).to_string().into_bytes();
            format!(":{}\r\n", count + 1)
        }
        b"WAIT" => format!(":{REPLICAS}\r\n"),
        _ => "-ERR unknown command\r\n".to_owned(),
    };
    replies.extend_from_slice(reply.as_bytes());
}

/// The next request's arguments; `None` at the end of the connection.
fn read_request(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Vec<Vec<u8>>>> {
    let Some(count) = read_number(reader)? else {
        return Ok(None);
    };
    let mut arguments = Vec::with_capacity(count);
    for _ in 0..count {
        let Some(bytes) = read_number(reader)? else {
            return Ok(None);
        };
        let mut argument = vec![0; bytes + 2];
        reader.read_exact(&mut argument)?;
        argument.truncate(bytes);
        arguments.push(argument);
    }
    Ok(Some(arguments))
}

/// The number in a line such as `*3` or `$12`.
fn read_number(reader: &mut BufReader<TcpStream>) -> io::Result<Option<usize>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(line[1..].trim_end().parse().expect("the generator sends well-formed requests")))
}

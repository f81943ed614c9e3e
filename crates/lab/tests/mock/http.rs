//! A store behind HTTP, one thread per connection, that answers in several manners.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

/// How it answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Manner {
    /// With a `Content-Length`.
    Plain,
    /// In two chunks.
    Chunked,
    /// It closes the connection after each reply.
    Closes,
    /// What is not the greeting is refused.
    Refuses,
}

/// A server that runs until the test process ends.
pub(crate) struct Server {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// How many connections have been made.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

type Table = Arc<Mutex<HashMap<String, String>>>;

/// Starts a server.
pub(crate) fn start(manner: Manner) -> Server {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let (counter, table) = (Arc::clone(&connections), Table::default());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            counter.fetch_add(1, Ordering::Relaxed);
            let table = Arc::clone(&table);
            // A connection that ends with an error is one that the generator has closed.
            thread::spawn(move || serve(&stream, manner, &table));
        }
    });
    Server { address, connections }
}

fn serve(stream: &TcpStream, manner: Manner, table: &Table) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some((method, path, body)) = read_request(&mut reader)? {
        let (status, answer) = match (&*method, &*path, manner) {
            ("GET", "/health", _) => (200, json!({ "status": "ok" })),
            (_, _, Manner::Refuses) => (503, json!({ "error": "too few nodes", "code": "CLUSTERDOWN" })),
            ("POST", "/put", _) => {
                let text = |field: &str| body[field].as_str().unwrap().to_owned();
                table.lock().unwrap().insert(text("key"), text("value"));
                (200, json!({ "key": text("key"), "version": 1 }))
            }
            ("GET", path, _) if path.starts_with("/get/") => {
                let key = decoded(&path["/get/".len()..]);
                match table.lock().unwrap().get(&key) {
                    Some(value) => (200, json!({ "key": key, "value": value, "version": 1 })),
                    None => (404, json!({ "detail": "not found" })),
                }
            }
            _ => (400, json!({})),
        };
        let body = answer.to_string();
        let head = format!("HTTP/1.1 {status} Whatever\r\nContent-Type: application/json\r\n");
        let response = match manner {
            Manner::Chunked => {
                let (first, second) = body.split_at(body.len() / 2);
                let (a, b) = (first.len(), second.len());
                format!(
                    "{head}Transfer-Encoding: chunked\r\n\r\n{a:x}\r\n{first}\r\n{b:X}\r\n{second}\r\n0\r\n\r\n"
                )
            }
            Manner::Closes if path != "/health" => {
                let head = format!("{head}Connection: close\r\n");
                format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())
            }
            _ => format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()),
        };
        (&*stream).write_all(response.as_bytes())?;
        if manner == Manner::Closes && path != "/health" {
            return Ok(());
        }
    }
    Ok(())
}

/// The next request's method, path and body; `None` at the end of the connection.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<(String, String, Value)>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let (mut length, mut has_host) = (0, false);
    loop {
        let mut field = String::new();
        reader.read_line(&mut field)?;
        if field == "\r\n" {
            break;
        }
        let (name, value) = field.trim_end().split_once(": ").unwrap();
        match name {
            "Content-Length" => length = value.parse().unwrap(),
            "Host" => has_host = true,
            _ => {}
        }
    }
    assert!(has_host, "HTTP/1.1 requires it");
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some((method, path, if length > 0 { serde_json::from_slice(&body).unwrap() } else { Value::Null })))
}

fn decoded(encoded: &str) -> String {
    let mut bytes = encoded.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            byte => byte,
        });
    }
    String::from_utf8(out).unwrap()
}

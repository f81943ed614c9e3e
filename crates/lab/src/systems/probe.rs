//! Single requests to a server, over the Redis protocol and over HTTP: each on its own connection, or one after another
//! on a connection that stays open, where the time of an answer matters.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(1000);

/// The longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Sends one command and returns the reply: a status, a number or a bulk string as text, an array one element per line.
/// A server's error is returned as an error.
///
/// # Errors
/// The server cannot be reached, does not answer in time, or answers with an error.
pub fn ask(address: SocketAddr, arguments: &[&str]) -> io::Result<String> {
    Connection::open(address, TIMEOUT)?.ask(arguments)
}

/// A connection that stays open, for one request at a time.
pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// Opens a connection. `timeout` is the time limit for each answer.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn open(address: SocketAddr, timeout: Duration) -> io::Result<Connection> {
        let stream = connect(address, timeout)?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    /// Sends one command, as [`ask`] does.
    ///
    /// # Errors
    /// As [`ask`].
    pub fn ask(&mut self, arguments: &[&str]) -> io::Result<String> {
        let mut request = format!("*{}\r\n", arguments.len());
        for argument in arguments {
            request.push_str(&format!("${}\r\n{argument}\r\n", argument.len()));
        }
        self.stream.get_mut().write_all(request.as_bytes())?;
        read_reply(&mut self.stream.by_ref().take(ANSWER_BYTES_MAX))
    }

    /// Sends an HTTP request, optionally with JSON, and returns the status and the body, whose length the server must
    /// announce.
    ///
    /// # Errors
    /// The server does not answer in time, or not with HTTP.
    pub fn request(&mut self, method: &str, path: &str, json: Option<&str>) -> io::Result<(u16, String)> {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
        if let Some(json) = json {
            let length = json.len();
            request.push_str(&format!("Content-Type: application/json\r\nContent-Length: {length}\r\n"));
        }
        request.push_str("\r\n");
        request.push_str(json.unwrap_or_default());
        self.stream.get_mut().write_all(request.as_bytes())?;
        read_response(&mut self.stream.by_ref().take(ANSWER_BYTES_MAX))
    }
}

fn read_response(input: &mut impl BufRead) -> io::Result<(u16, String)> {
    let malformed = || io::Error::other("it does not answer with HTTP");
    let mut line = String::new();
    input.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or_else(malformed)?;
    let mut length = 0;
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let header = line.trim_end().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(text) = header.strip_prefix("content-length:") {
            length = text.trim().parse().map_err(|_| malformed())?;
        }
    }
    let mut body = String::new();
    if input.take(length).read_to_string(&mut body)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((status, body))
}

fn read_reply(input: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    let malformed = || io::Error::other("it does not answer as a Redis server does");
    let (kind, rest) = line.trim_end().split_at_checked(1).ok_or_else(malformed)?;
    match kind {
        "+" | ":" => Ok(rest.to_owned()),
        "-" => Err(io::Error::other(rest.to_owned())),
        "$" if rest == "-1" => Ok(String::new()),
        "$" => {
            let length: u64 = rest.parse().map_err(|_| malformed())?;
            let mut text = String::new();
            if input.take(length).read_to_string(&mut text)? as u64 != length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            input.read_line(&mut String::new())?;
            Ok(text)
        }
        "*" => {
            let count: usize = rest.parse().map_err(|_| malformed())?;
            let elements = (0..count).map(|_| read_reply(input)).collect::<io::Result<Vec<String>>>()?;
            Ok(elements.join("\n"))
        }
        _ => Err(malformed()),
    }
}

/// Requests a page and returns the status and the body.
///
/// # Errors
/// The server cannot be reached, does not answer in time, or not with HTTP.
pub fn http_get(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let mut stream = connect(address, TIMEOUT)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("it does not answer with HTTP"))?;
    Ok((status, body.to_owned()))
}

fn connect(address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<String, String> {
        read_reply(&mut &bytes[..]).map_err(|error| error.to_string())
    }

    #[test]
    fn replies_of_every_kind_are_read() {
        assert_eq!(read(b"+OK\r\n"), Ok("OK".into()));
        assert_eq!(read(b":12\r\n"), Ok("12".into()));
        assert_eq!(read(b"$5\r\na\r\nb!\r\n"), Ok("a\r\nb!".into()));
        assert_eq!(read(b"*2\r\n$1\r\na\r\n:3\r\n"), Ok("a\n3".into()));
        assert_eq!(read(b"-ERR no\r\n"), Err("ERR no".into()));
        assert!(read(b"hello").is_err() && read(b"").is_err());
        assert!(read(b"$5\r\nab").is_err(), "an answer that breaks off is none");
    }

    #[test]
    fn an_http_answer_is_read_up_to_its_length() {
        let mut input = &b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\nX: y\r\n\r\nnoneHTTP/1.1 200"[..];
        assert_eq!(read_response(&mut input).unwrap(), (404, "none".to_owned()));
        assert_eq!(input, b"HTTP/1.1 200", "the next one is left");
        assert!(read_response(&mut &b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"[..]).is_err());
        assert!(read_response(&mut &b"hello\r\n\r\n"[..]).is_err());
    }
}

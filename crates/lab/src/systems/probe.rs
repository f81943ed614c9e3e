//! Single questions to a server: over the Redis protocol and over HTTP.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(1000);

/// The longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Sends one command and gives back the reply: a status, a number or a bulk string as text, an array one element per
/// line. A server's error is an error.
///
/// # Errors
/// It cannot be reached, does not answer in time, or answers with an error.
pub fn ask(address: SocketAddr, arguments: &[&str]) -> io::Result<String> {
    let mut stream = connect(address)?;
    let mut request = format!("*{}\r\n", arguments.len());
    for argument in arguments {
        request.push_str(&format!("${}\r\n{argument}\r\n", argument.len()));
    }
    stream.write_all(request.as_bytes())?;
    read_reply(&mut BufReader::new(stream.take(ANSWER_BYTES_MAX)))
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
            input.take(length).read_to_string(&mut text)?;
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

/// Asks for a page and gives back the status and the body.
///
/// # Errors
/// It cannot be reached, does not answer in time, or not with HTTP.
pub fn http_get(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let mut stream = connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("it does not answer with HTTP"))?;
    Ok((status, body.to_owned()))
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
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
    }
}

//! The commands that put keys into a cluster.

use anyhow::{Result, bail};
use rdb::Kind;
use wire::resp::client::put_request;

use crate::keys::{Sink, refused};

/// The request that stores a string. Unless it `replaces`, only if the key does not exist.
pub fn text(key: &[u8], deadline_ms: Option<u64>, text: &[u8], replaces: bool) -> Vec<u8> {
    let deadline = deadline_ms.map(|deadline| deadline.to_string());
    let mut words = vec![&b"SET"[..], key, text];
    if let Some(deadline) = &deadline {
        words.extend([&b"PXAT"[..], deadline.as_bytes()]);
    }
    if !replaces {
        words.push(b"NX");
    }
    request(&words)
}

/// The request that stores a value in Redis's serialization format. Unless it `replaces`, only if the key does not exist.
pub fn payload(key: &[u8], deadline_ms: Option<u64>, payload: &[u8], replaces: bool) -> Vec<u8> {
    let deadline = deadline_ms.unwrap_or(0).to_string();
    let mut words = vec![&b"RESTORE"[..], key, deadline.as_bytes(), payload, b"ABSTTL"];
    if replaces {
        words.push(b"REPLACE");
    }
    request(&words)
}

/// The request that sets the deadline of a value that was sent as several commands.
pub fn deadline(key: &[u8], deadline_ms: u64) -> Vec<u8> {
    request(&[b"PEXPIREAT", key, deadline_ms.to_string().as_bytes()])
}

fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut request = Vec::new();
    put_request(words, &mut request);
    request
}

/// All requests that put the keys of a file into a database, in order.
///
/// A file with something that no cluster accepts, such as values of modules, is an error.
#[derive(Debug, Default)]
pub struct Requests(pub Vec<Vec<u8>>);

impl Sink for Requests {
    fn select(&mut self, database: u8) -> Result<()> {
        match database {
            0 => Ok(()),
            other => bail!("these are requests to database 0, and not {other}"),
        }
    }

    fn text(&mut self, key: &[u8], deadline_ms: Option<u64>, value: &[u8]) -> Result<()> {
        self.0.push(text(key, deadline_ms, value, true));
        Ok(())
    }

    fn payload(&mut self, key: &[u8], deadline_ms: Option<u64>, _: Kind, value: &[u8]) -> Result<()> {
        self.0.push(payload(key, deadline_ms, value, true));
        Ok(())
    }

    fn begin_pieces(&mut self, key: &[u8]) -> Result<bool> {
        self.0.push(request(&[b"DEL", key]));
        Ok(true)
    }

    fn piece(&mut self, _: &[u8], request: &[u8]) -> Result<()> {
        self.0.push(request.to_vec());
        Ok(())
    }

    fn end_pieces(&mut self, key: &[u8], deadline_ms: Option<u64>, _: Kind) -> Result<()> {
        self.0.extend(deadline_ms.map(|deadline_ms| deadline(key, deadline_ms)));
        Ok(())
    }

    fn refuse(&mut self, reason: &str, what: &[u8]) -> Result<()> {
        Err(refused(reason, what))
    }
}

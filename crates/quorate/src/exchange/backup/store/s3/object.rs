//! Reads an object. If the connection breaks, reading continues from that place.

use std::io::{self, Read};
use std::sync::Arc;

use rusty_s3::actions::GetObject;
use ureq::BodyReader;
use ureq::http::HeaderMap;
use ureq::http::header::{CONTENT_LENGTH, ETAG, HeaderName, IF_MATCH, RANGE};

use super::remote::{Failure, Remote};

/// An object that is being read.
pub(super) struct Object {
    remote: Arc<Remote>,
    key: String,
    /// The version of the object when reading began: another version must not be continued with.
    etag: Option<String>,
    at: u64,
    length: u64,
    /// `None` if the connection was lost.
    body: Option<BodyReader<'static>>,
}

impl Object {
    /// Opens an object for reading.
    ///
    /// # Errors
    /// The object does not exist, or cannot be read.
    pub(super) fn open(remote: &Arc<Remote>, key: String) -> Result<Object, Failure> {
        let (headers, body) = remote.patiently(|| ask(remote, &key, &[]))?;
        let length = text(&headers, &CONTENT_LENGTH).and_then(|length| length.parse().ok());
        let length = length.ok_or_else(|| remote.confused("it does not say how long an object is"))?;
        let etag = text(&headers, &ETAG).map(str::to_owned);
        Ok(Object { remote: Arc::clone(remote), key, etag, at: 0, length, body: Some(body) })
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// The body from the place where it was lost.
    fn again(&self) -> Result<BodyReader<'static>, Failure> {
        let range = format!("bytes={}-", self.at);
        let mut headers = vec![(RANGE, range.as_str())];
        headers.extend(self.etag.as_deref().map(|etag| (IF_MATCH, etag)));
        let (answer, body) = ask(&self.remote, &self.key, &headers)?;
        match text(&answer, &CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok()) {
            Some(length) if self.at + length == self.length => Ok(body),
            _ => Err(self.remote.confused("it does not give a part of an object that is asked for")),
        }
    }
}

impl Read for Object {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.length || into.is_empty() {
            return Ok(0);
        }
        let remote = Arc::clone(&self.remote);
        let count = remote.patiently(|| {
            let mut body = match self.body.take() {
                Some(body) => body,
                None => self.again()?,
            };
            let most = into.len().min(usize::try_from(self.length - self.at).unwrap_or(usize::MAX));
            match body.read(&mut into[..most]) {
                Ok(0) => Err(remote.lost(&io::Error::from(io::ErrorKind::UnexpectedEof).into())),
                Ok(count) => {
                    self.body = Some(body);
                    Ok(count)
                }
                Err(error) => Err(remote.lost(&error.into())),
            }
        });
        let count = count.map_err(io::Error::other)?;
        self.at += count as u64;
        Ok(count)
    }
}

fn ask(
    remote: &Remote,
    key: &str,
    headers: &[(HeaderName, &str)],
) -> Result<(HeaderMap, BodyReader<'static>), Failure> {
    let action = GetObject::new(&remote.address.bucket, Some(&remote.address.credentials), key);
    let (headers, body) = remote.ask_once(&action, headers, &[])?;
    Ok((headers, body.into_reader()))
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

impl Remote {
    /// The failure of a store whose answer is not as it should be.
    pub(super) fn confused(&self, why: &str) -> Failure {
        Failure::Lost { host: self.address.host.clone(), why: why.to_owned(), may_pass: false }
    }
}

impl Failure {
    /// Whether a condition of the request does not hold.
    pub(super) fn is_condition(&self) -> bool {
        self.status() == 412
    }
}

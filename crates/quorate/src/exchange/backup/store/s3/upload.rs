//! Writes an object: in one request if it is small, otherwise in parts. It does not exist until the last request.

use std::io::{self, Write};
use std::sync::Arc;

use anyhow::Result;
use rusty_s3::actions::{
    AbortMultipartUpload, CompleteMultipartUpload, CreateMultipartUpload, GetObject, HeadObject, PutObject,
    UploadPart,
};
use ureq::http::header::{CONTENT_LENGTH, ETAG, IF_NONE_MATCH};

use super::super::NewFile;
use super::remote::{Failure, Remote};

/// Bytes of a part, which are held in memory. Some stores require all parts except the last to have the same length.
const PART_BYTES: usize = 32 << 20;

/// The maximum number of parts of an object.
const PARTS_MAX: usize = 10_000;

/// An object that is being written.
pub(super) struct Upload {
    remote: Arc<Remote>,
    key: String,
    /// Whether the store was seen to refuse, on that condition, to overwrite an object.
    is_checked: bool,
    /// Bytes that were not sent yet.
    held: Vec<u8>,
    /// The upload of parts, and the store's tag of each part.
    id: Option<String>,
    parts: Vec<String>,
    bytes: u64,
}

impl Upload {
    pub(super) fn new(remote: Arc<Remote>, key: String, is_checked: bool) -> Upload {
        Upload { remote, key, is_checked, held: Vec::new(), id: None, parts: Vec::new(), bytes: 0 }
    }

    /// Sends the held bytes as a part.
    fn send_part(&mut self) -> Result<(), Failure> {
        let remote = &self.remote;
        let (bucket, keys) = (&remote.address.bucket, Some(&remote.address.credentials));
        if self.parts.len() == PARTS_MAX {
            let most = (PARTS_MAX * PART_BYTES) >> 30;
            return Err(remote.confused(&format!(
                "an object of more than {most} GiB cannot be written: divide the keyspace into more shards"
            )));
        }
        let id = match &self.id {
            Some(id) => id.clone(),
            None => {
                let answer = remote.ask(&CreateMultipartUpload::new(bucket, keys, &self.key), &[], &[])?;
                let parsed = CreateMultipartUpload::parse_response(&answer.text());
                let parsed =
                    parsed.map_err(|_| remote.confused("it does not name an upload that it begins"))?;
                self.id.insert(parsed.upload_id().to_owned()).clone()
            }
        };
        let number = (self.parts.len() + 1) as u16;
        let answer = remote.ask(&UploadPart::new(bucket, keys, &self.key, number, &id), &[], &self.held)?;
        let etag = answer.headers.get(ETAG).and_then(|etag| etag.to_str().ok());
        let etag = etag.ok_or_else(|| remote.confused("it does not name a part that it has taken"))?;
        self.parts.push(etag.to_owned());
        self.bytes += self.held.len() as u64;
        self.held.clear();
        Ok(())
    }

    /// Writes an object in one request.
    fn put(&self) -> Result<(), Failure> {
        let Upload { remote, key, held, .. } = self;
        let (bucket, keys) = (&remote.address.bucket, Some(&remote.address.credentials));
        let condition = [(IF_NONE_MATCH, "*")];
        let condition = if self.is_checked { &condition[..] } else { &[] };
        match remote.ask(&PutObject::new(bucket, keys, key), condition, held) {
            // An earlier try may have succeeded, and its answer been lost.
            Err(failure) if failure.is_condition() => {
                let there = remote.ask(&GetObject::new(bucket, keys, key), &[], &[])?;
                if there.bytes == *held { Ok(()) } else { Err(failure) }
            }
            done => done.map(drop),
        }
    }

    /// Assembles the object from its parts.
    fn complete(&mut self, id: &str) -> Result<(), Failure> {
        if !self.held.is_empty() {
            self.send_part()?;
        }
        let Upload { remote, key, parts, .. } = &*self;
        let (bucket, keys) = (&remote.address.bucket, Some(&remote.address.credentials));
        let action = || CompleteMultipartUpload::new(bucket, keys, key, id, parts.iter().map(String::as_str));
        let done = remote.ask(&action(), &[], action().body().as_bytes());
        match done {
            Err(failure) if failure.code() == "NoSuchUpload" => {
                // An earlier try may have succeeded here too.
                let there = remote.ask(&HeadObject::new(bucket, keys, key), &[], &[]);
                let length = |headers: &ureq::http::HeaderMap| {
                    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse::<u64>().ok()
                };
                match there {
                    Ok(there) if length(&there.headers) == Some(self.bytes) => Ok(()),
                    _ => Err(failure),
                }
            }
            done => done.map(drop),
        }
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PART_BYTES - self.held.len());
        self.held.extend_from_slice(&bytes[..count]);
        if self.held.len() == PART_BYTES {
            self.send_part().map_err(io::Error::other)?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewFile for Upload {
    fn end(mut self: Box<Self>) -> Result<()> {
        match self.id.clone() {
            None => self.put()?,
            Some(id) => {
                self.complete(&id)?;
                self.id = None;
            }
        }
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            // Parts that stay are invisible and cost money. Nothing more can be done about it here.
            let (bucket, keys) = (&self.remote.address.bucket, Some(&self.remote.address.credentials));
            let _ = self.remote.ask_once(&AbortMultipartUpload::new(bucket, keys, &self.key, &id), &[], &[]);
        }
    }
}

//! Files as objects in a bucket: `PREFIX/FOLDER/FILE`.
//!
//! An object exists only when all of it is stored, so a bucket needs no renaming as a folder does. What a bucket lacks is a
//! lock that ends with its process: see [`lease`]. Reading order: [`address`] (which bucket), [`remote`] (requests), [`object`]
//! (reading), [`upload`] (writing), [`lease`].

mod address;
mod lease;
mod object;
mod remote;
#[cfg(test)]
mod tests;
mod upload;

use std::cell::RefCell;
use std::io::Read;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use rusty_s3::actions::{DeleteObject, ListObjectsV2};

use self::address::Address;
use self::lease::Lease;
use self::object::Object;
use self::remote::{Failure, Remote};
use self::upload::Upload;
use super::{NewFile, Store};

/// A part of a bucket.
pub(super) struct Bucket {
    remote: Arc<Remote>,
    lease: RefCell<Option<Lease>>,
}

impl Bucket {
    /// The part of a bucket that `BUCKET/PREFIX` names. Nothing is sent yet.
    ///
    /// # Errors
    /// It names no bucket, or the environment lacks settings.
    pub(super) fn open(place: &str) -> Result<Bucket> {
        Bucket::at(Address::find(place, |name| std::env::var(name).ok())?)
    }

    fn at(address: Address) -> Result<Bucket> {
        Ok(Bucket { remote: Arc::new(Remote::new(address)?), lease: RefCell::new(None) })
    }
}

impl Remote {
    /// The name of an object for people.
    fn name_of(&self, path: &str) -> String {
        let (bucket, prefix) = (self.address.bucket.name(), &self.address.prefix);
        format!("s3://{bucket}/{prefix}{path}").trim_end_matches('/').to_owned()
    }

    /// An error about an object.
    fn about(&self, path: &str, failure: Failure) -> anyhow::Error {
        match failure.is_missing() {
            true => anyhow!("{} is not there", self.name_of(path)),
            false => anyhow!(failure).context(self.name_of(path)),
        }
    }
}

impl Store for Bucket {
    fn name_of(&self, path: &str) -> String {
        self.remote.name_of(path)
    }

    fn lock(&self) -> Result<()> {
        let mut lease = self.lease.borrow_mut();
        match &mut *lease {
            None => *lease = Some(Lease::take(&self.remote)?),
            Some(held) => {
                if let Err(error) = held.renew() {
                    // It must be taken again from the start.
                    *lease = None;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn rest(&self) {
        *self.lease.borrow_mut() = None;
    }

    fn list(&self) -> Result<Vec<String>> {
        let address = &self.remote.address;
        let (mut paths, mut next) = (Vec::new(), None);
        loop {
            let mut action = ListObjectsV2::new(&address.bucket, Some(&address.credentials));
            action.with_prefix(address.prefix.as_str());
            if let Some(token) = next {
                action.with_continuation_token(token);
            }
            let answer =
                self.remote.ask(&action, &[], &[]).map_err(|failure| self.remote.about("", failure))?;
            let page = ListObjectsV2::parse_response(&answer.text()).with_context(|| {
                format!("{}: the list of its objects is not understood", self.remote.name_of(""))
            })?;
            let keys = page.contents.into_iter().map(|object| object.key);
            let ours = keys.filter_map(|key| Some(key.strip_prefix(&address.prefix)?.to_owned()));
            // There is one level of folders. A folder that a person made may be an object whose name ends with a
            // slash.
            paths.extend(ours.filter(|path| path.matches('/').count() == 1));
            next = page.next_continuation_token;
            if next.is_none() {
                break;
            }
        }
        paths.sort();
        Ok(paths)
    }

    fn read(&self, path: &str) -> Result<(u64, Box<dyn Read>)> {
        let object = Object::open(&self.remote, self.remote.key(path));
        let object = object.map_err(|failure| self.remote.about(path, failure))?;
        Ok((object.length(), Box::new(object)))
    }

    fn create(&self, path: &str) -> Result<Box<dyn NewFile>> {
        let is_checked = self.lease.borrow().as_ref().is_some_and(Lease::is_checked);
        Ok(Box::new(Upload::new(Arc::clone(&self.remote), self.remote.key(path), is_checked)))
    }

    fn remove(&self, path: &str) -> Result<()> {
        let (key, address) = (self.remote.key(path), &self.remote.address);
        let action = DeleteObject::new(&address.bucket, Some(&address.credentials), &key);
        match self.remote.ask(&action, &[], &[]) {
            Ok(_) => Ok(()),
            // Some stores report that; and an earlier try may have removed it.
            Err(failure) if failure.is_missing() => Ok(()),
            Err(failure) => Err(self.remote.about(path, failure)),
        }
    }
}

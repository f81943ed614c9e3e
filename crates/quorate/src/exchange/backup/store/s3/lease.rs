//! Keeps two backups from writing to one place: an object named `lock`, which its holder writes again every few seconds.
//!
//! A holder may be cut off or stopped, and then another backup may take the lock. So a backup checks that it still holds the
//! lock before its manifest is written, and after. The object is written on conditions (it must not exist, or must be
//! unchanged), so if several backups try to take the lock, one gets it. The store reports how old the object is, so machines'
//! clocks do not matter. Some stores do not support conditions; that is detected and printed, and what remains then is that
//! one backup sees the other's lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use rusty_s3::actions::{DeleteObject, GetObject, PutObject};
use ureq::http::header::{DATE, ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH, LAST_MODIFIED};

use super::super::super::moment;
use super::remote::{Answer, Failure, Remote};
use crate::output::say;

/// The name of the lock's object.
const NAME: &str = "lock";

/// How often it is written.
const RENEWED_EACH: Duration = Duration::from_secs(15);

/// A lock that was not written for this long is no longer held.
const LASTS: Duration = Duration::from_secs(60);

/// The lock, held.
pub(super) struct Lease {
    held: Arc<Held>,
    /// Ends the thread when it is dropped.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Held {
    remote: Arc<Remote>,
    /// The object's contents, which no other process writes.
    content: String,
    /// Whether the store supports conditions.
    is_checked: bool,
    is_lost: AtomicBool,
    /// The version of the object that this process wrote last.
    etag: Mutex<Option<String>>,
}

/// The object as the store has it.
struct Found {
    content: String,
    etag: Option<String>,
    /// How long ago it was written, if the store reports that.
    age: Option<Duration>,
}

impl Lease {
    /// Takes the lock.
    ///
    /// # Errors
    /// Another backup holds it, or the store cannot be reached.
    pub(super) fn take(remote: &Arc<Remote>) -> Result<Lease> {
        let content = content()?;
        let about = |failure| remote.about(NAME, failure);
        let taken_by_another = |found: Option<&Found>| {
            let who = found.map(|found| format!(" ({})", found.content)).unwrap_or_default();
            let seconds = LASTS.as_secs();
            anyhow!(
                "another backup into {} is under way, or was killed less than {seconds} s ago{who}",
                remote.name_of("")
            )
        };
        let found = find(remote).map_err(about)?;
        let written = match &found {
            None => write(remote, &content, Some((IF_NONE_MATCH, "*"))),
            Some(found) => match found.age {
                Some(age) if age > LASTS => {
                    write(remote, &content, found.etag.as_deref().map(|etag| (IF_MATCH, etag)))
                }
                Some(_) => return Err(taken_by_another(Some(found))),
                None => bail!(
                    "{} is there, and the store does not say how old it is: remove it when no backup is under way",
                    remote.name_of(NAME)
                ),
            },
        };
        let (etag, is_checked) = match written {
            // Does the store support conditions? This one is false: the object exists.
            Ok(etag) => match write(remote, &content, Some((IF_NONE_MATCH, "*"))) {
                Ok(etag) => (etag, false),
                Err(failure) if failure.is_condition() => (etag, true),
                Err(failure) if is_unknown(&failure) => (etag, false),
                Err(failure) => return Err(about(failure)),
            },
            // Another backup was faster; or an earlier try succeeded, and its answer was lost.
            Err(failure) if failure.is_condition() => match find(remote).map_err(about)? {
                Some(found) if found.content == content => (found.etag, true),
                found => return Err(taken_by_another(found.as_ref())),
            },
            Err(failure) if is_unknown(&failure) => (write(remote, &content, None).map_err(about)?, false),
            Err(failure) => return Err(about(failure)),
        };
        if !is_checked {
            say(&format!(
                "the store at {} does not support If-None-Match: make sure that no two backups into {} begin at the same time",
                remote.address.host,
                remote.name_of("")
            ));
        }
        let is_lost = AtomicBool::new(false);
        let held = Held { remote: Arc::clone(remote), content, is_checked, is_lost, etag: Mutex::new(etag) };
        let held = Arc::new(held);
        let (stop, stopped) = mpsc::channel();
        let renewed = Arc::clone(&held);
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(RENEWED_EACH) == Err(RecvTimeoutError::Timeout) {
                // If it is lost, the backup finds that out before its manifest is written. Other failures may be
                // temporary.
                let _ = renewed.renew();
                if renewed.is_lost.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        Ok(Lease { held, stop: Some(stop), thread: Some(thread) })
    }

    /// Whether the store supports conditions.
    pub(super) fn is_checked(&self) -> bool {
        self.held.is_checked
    }

    /// Checks that the lock is still held, and renews it.
    ///
    /// # Errors
    /// Another backup holds it, or the store cannot be reached.
    pub(super) fn renew(&self) -> Result<()> {
        let (held, name) = (&self.held, self.held.remote.name_of(""));
        held.renew().map_err(|failure| match held.is_lost.load(Ordering::Relaxed) {
            true => anyhow!(
                "another backup into {name} has begun, since nothing was heard of this one for {} s: there is no backup \
                 of this one",
                LASTS.as_secs()
            ),
            false => held.remote.about(NAME, failure),
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let Held { remote, content, .. } = &*self.held;
        // If the object stays, it expires by itself.
        if find(remote).is_ok_and(|found| found.is_some_and(|found| found.content == *content)) {
            let key = remote.key(NAME);
            let action = DeleteObject::new(&remote.address.bucket, Some(&remote.address.credentials), &key);
            let _ = remote.ask(&action, &[], &[]);
        }
    }
}

impl Held {
    fn renew(&self) -> Result<(), Failure> {
        let mut etag = self.etag.lock().unwrap_or_else(PoisonError::into_inner);
        let condition = etag.as_deref().filter(|_| self.is_checked).map(|etag| (IF_MATCH, etag));
        let has_condition = condition.is_some();
        let written = match has_condition {
            true => write(&self.remote, &self.content, condition),
            // Without conditions, check that the lock is not another backup's before writing.
            false => match find(&self.remote)? {
                Some(found) if found.content != self.content => {
                    self.is_lost.store(true, Ordering::Relaxed);
                    Err(self.remote.confused("it has the lock of another backup"))
                }
                _ => write(&self.remote, &self.content, None),
            },
        };
        match written {
            Ok(now) => *etag = now,
            Err(failure) if failure.is_condition() || failure.is_missing() => {
                // An earlier try may have succeeded, and its answer been lost.
                match find(&self.remote)? {
                    Some(found) if found.content == self.content => *etag = found.etag,
                    _ => {
                        self.is_lost.store(true, Ordering::Relaxed);
                        return Err(failure);
                    }
                }
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    }
}

/// Identifies the holder of the lock, in words that no other process writes.
fn content() -> Result<String> {
    let mut drawn = [0; 8];
    getrandom::fill(&mut drawn)?;
    let drawn: String = drawn.iter().map(|byte| format!("{byte:02x}")).collect();
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let (process, now) = (std::process::id(), moment::text(moment::now_ms()));
    Ok(format!("process {process} of machine {machine}, begun at {now}, number {drawn}"))
}

/// Whether a store refuses a request because it does not support the condition.
fn is_unknown(failure: &Failure) -> bool {
    failure.status() == 501
        || (failure.status() == 400 && ["NotImplemented", "InvalidArgument"].contains(&failure.code()))
}

fn find(remote: &Remote) -> Result<Option<Found>, Failure> {
    let key = remote.key(NAME);
    let action = GetObject::new(&remote.address.bucket, Some(&remote.address.credentials), &key);
    let answer = match remote.ask(&action, &[], &[]) {
        Ok(answer) => answer,
        Err(failure) if failure.is_missing() => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let time = |name: HeaderName| moment::parse_http(answer.headers.get(name)?.to_str().ok()?);
    let age = time(DATE).zip(time(LAST_MODIFIED));
    let age = age.map(|(now, written)| Duration::from_millis(now.saturating_sub(written)));
    // It comes from elsewhere, and is printed.
    let content = answer.text().chars().filter(|letter| !letter.is_control()).take(300).collect();
    Ok(Some(Found { content, etag: etag_of(&answer), age }))
}

/// Writes the object, on a condition. Returns its new version.
fn write(
    remote: &Remote,
    content: &str,
    condition: Option<(HeaderName, &str)>,
) -> Result<Option<String>, Failure> {
    let key = remote.key(NAME);
    let action = PutObject::new(&remote.address.bucket, Some(&remote.address.credentials), &key);
    let answer = remote.ask(&action, condition.as_slice(), content.as_bytes())?;
    Ok(etag_of(&answer))
}

fn etag_of(answer: &Answer) -> Option<String> {
    answer.headers.get(ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned)
}

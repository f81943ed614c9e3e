//! Failed handshakes: counted, and logged in a few lines a minute.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use driver::Limiter;
use rustls::{AlertDescription, CertificateError, Error};

use crate::log;

/// What is counted about TLS, on all threads together.
pub(crate) struct Counters {
    /// Completed handshakes.
    pub(crate) done: AtomicU64,
    /// Handshakes that were refused, or took too long.
    pub(crate) refused: AtomicU64,
    limiter: Mutex<Limiter>,
    begun: Instant,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            done: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            limiter: Mutex::default(),
            begun: Instant::now(),
        }
    }
}

/// Why a handshake failed.
pub(super) enum Refusal {
    /// It took longer than this.
    Late(Duration),
    /// It was closed to make room for another one.
    Crowded,
    /// It broke, or the two sides do not agree.
    Failed(io::Error),
}

impl Counters {
    /// Counts a refusal, and logs it unless there are many. `whom` is the client's address.
    pub(super) fn refuse(&self, whom: &str, refusal: &Refusal) {
        let Some(why) = words(refusal) else { return };
        self.refused.fetch_add(1, Ordering::Relaxed);
        let (now_us, mut lines) = (self.begun.elapsed().as_micros() as u64, Vec::new());
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        limiter.warn(now_us, &mut lines, || format!("the client {whom} got no connection over TLS: {why}"));
        drop(limiter);
        lines.iter().for_each(log::line);
    }
}

/// A refusal in plain words. `None` for a connection that was closed before it sent anything wrong, as a check whether the
/// port is open does.
fn words(refusal: &Refusal) -> Option<String> {
    let error = match refusal {
        Refusal::Late(limit) => {
            return Some(format!("its handshake was not complete after {} s", limit.as_secs()));
        }
        Refusal::Crowded => {
            return Some("too many handshakes were under way, and its handshake was the oldest".to_owned());
        }
        Refusal::Failed(error) => error,
    };
    Some(match error.get_ref()?.downcast_ref::<Error>()? {
        Error::InvalidMessage(_) => "what it sends is not TLS; the plain port is a different one".to_owned(),
        Error::NoCertificatesPresented => {
            "it presents no certificate, and client_certificates = \"required\"".to_owned()
        }
        error => reason(error),
    })
}

/// An error of TLS in plain words, after the name of the other side.
pub(super) fn reason(error: &Error) -> String {
    use AlertDescription as Alert;
    match error {
        Error::InvalidMessage(_) => "what it sends is not TLS".to_owned(),
        Error::NoCertificatesPresented => "it presents no certificate".to_owned(),
        Error::InvalidCertificate(error) => untrusted(error),
        Error::AlertReceived(
            alert @ (Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA),
        ) => {
            format!(
                "it does not accept this node's certificate ({alert:?}): does it know the authority, and the host's name?"
            )
        }
        Error::AlertReceived(alert) => format!("it ends TLS with \"{alert:?}\""),
        Error::PeerIncompatible(why) => {
            format!("it and this node have no version or cipher in common ({why:?})")
        }
        error => error.to_string(),
    }
}

/// Why a certificate is not taken, after the name of its owner.
pub(super) fn untrusted(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "its certificate does not come from tls.authority".to_owned(),
        error => format!("its certificate is not accepted: {error}"),
    }
}

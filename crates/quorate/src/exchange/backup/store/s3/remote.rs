//! Requests to an object store: repeated while that may help. Errors say what to do.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Read as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use rusty_s3::{Method, S3Action};
use server::tls::certificates_in;
use ureq::http::header::HeaderName;
use ureq::http::{HeaderMap, Request};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use super::address::Address;

/// How long a signed request is valid. That is also how far clocks may differ.
const SIGNED_FOR: Duration = Duration::from_secs(3600);

/// How long the network may neither send nor receive a byte.
const SILENCE: Duration = Duration::from_secs(60);
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// How often a request is tried: as long as the store has never answered well, and later, when much may be lost.
const FIRST_TRIES: u32 = 3;
const TRIES: u32 = 10;

/// The pause after the first try. Each pause is twice as long as the one before, up to the longest.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The maximum number of bytes of an answer that is read as a whole: more than any object that is written as a whole.
const ANSWER_BYTES: u64 = 64 << 20;

/// An object store.
pub(super) struct Remote {
    agent: Agent,
    pub(super) address: Address,
    has_answered: AtomicBool,
}

/// An answer with its body.
pub(super) struct Answer {
    pub(super) headers: HeaderMap,
    pub(super) bytes: Vec<u8>,
}

impl Answer {
    pub(super) fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The store refused it.
    Refused(Box<Refusal>),
    /// There was no answer, or one that is not understood.
    Lost { host: String, why: String, may_pass: bool },
}

/// The store's answer.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    host: String,
    bucket: String,
    pub(super) status: u16,
    /// The store's code, such as `NoSuchBucket`; empty if it gave none.
    pub(super) code: String,
    message: String,
    /// The region that the bucket is in, if the store reports it.
    region: Option<String>,
    tries: u32,
}

impl Remote {
    /// Does not connect yet.
    ///
    /// # Errors
    /// This machine trusts no authority.
    pub(super) fn new(address: Address) -> Result<Remote> {
        let certificates = match &address.authorities {
            Some(file) => certificates_in(file)?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        let is_sealed = address.bucket.base_url().scheme() == "https";
        ensure!(
            !is_sealed || !certificates.is_empty(),
            "this machine trusts no authority: name a file with those to trust in AWS_CA_BUNDLE"
        );
        let certificates = certificates.iter().map(|it| Certificate::from_der(it).to_owned());
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(certificates.collect())))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            // The signature is valid for one address only.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("quorate/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT_WITHIN))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .timeout_per_write(Some(SILENCE))
            .build();
        Ok(Remote { agent: Agent::new_with_config(config), address, has_answered: AtomicBool::new(false) })
    }

    /// The name of an object.
    pub(super) fn key(&self, path: &str) -> String {
        format!("{}{path}", self.address.prefix)
    }

    /// Sends a request, again and again while that may help, and reads the answer.
    ///
    /// # Errors
    /// The store's refusal, or why the store cannot be reached.
    pub(super) fn ask<'a, A: S3Action<'a>>(
        &self,
        action: &A,
        headers: &[(HeaderName, &str)],
        body: &[u8],
    ) -> Result<Answer, Failure> {
        self.patiently(|| {
            let (headers, body) = self.ask_once(action, headers, body)?;
            let mut bytes = Vec::new();
            let read = body.into_reader().take(ANSWER_BYTES).read_to_end(&mut bytes);
            read.map_err(|error| self.lost(&error.into()))?;
            let answer = Answer { headers, bytes };
            // The store answers an upload of parts while it assembles the object, so it may fail after it has sent
            // status 200.
            match matches!(A::METHOD, Method::Post) && answer.text().contains("<Error>") {
                true => Err(self.refused(200, &answer.headers, &answer.text())),
                false => Ok(answer),
            }
        })
    }

    /// Sends a request once, and leaves the body to be read.
    ///
    /// # Errors
    /// The store's refusal, or why the store cannot be reached.
    pub(super) fn ask_once<'a, A: S3Action<'a>>(
        &self,
        action: &A,
        headers: &[(HeaderName, &str)],
        body: &[u8],
    ) -> Result<(HeaderMap, Body), Failure> {
        // The signature includes the time.
        let url = action.sign(SIGNED_FOR);
        let has_body = matches!(A::METHOD, Method::Post | Method::Put);
        let mut request = Request::builder().method(A::METHOD.to_str()).uri(url.as_str());
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let answer = match has_body {
            true => request.body(body).map_err(ureq::Error::from).and_then(|request| self.agent.run(request)),
            false => request.body(()).map_err(ureq::Error::from).and_then(|request| self.agent.run(request)),
        };
        let (head, body) = answer.map_err(|error| self.lost(&error))?.into_parts();
        if head.status.is_success() {
            self.has_answered.store(true, Ordering::Relaxed);
            return Ok((head.headers, body));
        }
        let mut text = Vec::new();
        // The reaction depends on the error's code, which is in the text.
        let read = body.into_reader().take(ANSWER_BYTES).read_to_end(&mut text);
        read.map_err(|error| self.lost(&error.into()))?;
        Err(self.refused(head.status.as_u16(), &head.headers, &String::from_utf8_lossy(&text)))
    }

    /// Repeats an operation while that may help.
    ///
    /// # Errors
    /// The error of the last try.
    pub(super) fn patiently<T>(&self, mut once: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
        let mut tries = 1;
        loop {
            let failure = match once() {
                Err(failure) if failure.may_pass() => failure,
                done => return done,
            };
            let most = if self.has_answered.load(Ordering::Relaxed) { TRIES } else { FIRST_TRIES };
            if tries >= most {
                return Err(failure.after(tries));
            }
            std::thread::sleep(pause_after(tries));
            tries += 1;
        }
    }

    /// The failure that an unsuccessful answer describes.
    fn refused(&self, status: u16, headers: &HeaderMap, text: &str) -> Failure {
        let header = headers.get("x-amz-bucket-region").and_then(|region| region.to_str().ok());
        Failure::Refused(Box::new(Refusal {
            host: self.address.host.clone(),
            bucket: self.address.bucket.name().to_owned(),
            status,
            code: element(text, "Code").unwrap_or_default(),
            message: element(text, "Message").unwrap_or_default().trim_end_matches('.').to_owned(),
            region: element(text, "Region").or_else(|| header.map(str::to_owned)),
            tries: 1,
        }))
    }

    /// The failure of a connection error. The request's address is not printed: it contains the signature.
    pub(super) fn lost(&self, error: &ureq::Error) -> Failure {
        let (why, may_pass) = match error {
            // Mostly a certificate.
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => (tls_fault(error), false),
            ureq::Error::Rustls(error) => (tls_fault(error), false),
            ureq::Error::Tls(error) => (tls_fault(error), false),
            ureq::Error::Io(error) => (error.to_string(), true),
            ureq::Error::Timeout(_) => ("it does not answer in time".to_owned(), true),
            ureq::Error::HostNotFound => ("there is no host of this name".to_owned(), true),
            ureq::Error::ConnectionFailed => ("it cannot be reached".to_owned(), true),
            ureq::Error::Protocol(error) => (format!("it does not speak HTTP as it should: {error}"), true),
            ureq::Error::InvalidProxyUrl => ("the address of the proxy is not understood".to_owned(), false),
            ureq::Error::BadUri(_) => ("its address is not understood".to_owned(), false),
            _ => ("the request cannot be sent".to_owned(), false),
        };
        Failure::Lost { host: self.address.host.clone(), why, may_pass }
    }
}

fn tls_fault(error: impl fmt::Display) -> String {
    format!(
        "no TLS with it: {error}: if its authority is one that this machine does not trust, name a file with that in AWS_CA_BUNDLE"
    )
}

/// The pause after this many tries. Each process takes a random part of it, so they do not all retry at once.
fn pause_after(tries: u32) -> Duration {
    let pause = PAUSE.saturating_mul(1 << (tries - 1).min(16)).min(LONGEST_PAUSE);
    let mut byte = [0];
    // Without randomness, the longest pause.
    let share = if getrandom::fill(&mut byte).is_ok() { f64::from(byte[0]) / 255.0 } else { 1.0 };
    pause.mul_f64(0.5 + share / 2.0)
}

/// The text of the first element with this name. It is used for errors and never decides what is read or written.
fn element(text: &str, name: &str) -> Option<String> {
    let (_, behind) = text.split_once(&format!("<{name}>"))?;
    let (content, _) = behind.split_once(&format!("</{name}>"))?;
    let content = content.trim();
    (!content.is_empty() && content.len() <= 1000 && !content.contains('<')).then(|| content.to_owned())
}

impl Failure {
    /// The store's code; empty if it gave none.
    pub(super) fn code(&self) -> &str {
        match self {
            Failure::Refused(refusal) => &refusal.code,
            Failure::Lost { .. } => "",
        }
    }

    /// The status of the store's answer; 0 if there was none.
    pub(super) fn status(&self) -> u16 {
        match self {
            Failure::Refused(refusal) => refusal.status,
            Failure::Lost { .. } => 0,
        }
    }

    /// Whether the object does not exist. A 404 may also be about the bucket or the keys, or not come from a store at
    /// all.
    pub(super) fn is_missing(&self) -> bool {
        self.code() == "NoSuchKey"
    }

    /// Whether another try may succeed.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Failure::Lost { may_pass, .. } => *may_pass,
            Failure::Refused(refusal) => {
                let (status, code) = (refusal.status, &refusal.code);
                matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
                    || [
                        "SlowDown",
                        "InternalError",
                        "RequestTimeout",
                        "ServiceUnavailable",
                        "OperationAborted",
                    ]
                    .contains(&code.as_str())
                    || code == "ConditionalRequestConflict"
            }
        }
    }

    /// Adds the number of tries.
    fn after(mut self, count: u32) -> Failure {
        match &mut self {
            Failure::Refused(refusal) => refusal.tries = count,
            Failure::Lost { why, .. } => *why += &format!(" (tried {count} times)"),
        }
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refusal = match self {
            Failure::Refused(refusal) => refusal,
            Failure::Lost { host, why, .. } => return write!(out, "the store at {host}: {why}"),
        };
        let Refusal { host, bucket, status, code, message, region, tries } = &**refusal;
        write!(out, "the store at {host} refuses it: {status}")?;
        for said in [code, message].into_iter().filter(|said| !said.is_empty()) {
            write!(out, " {said}")?;
        }
        if *tries > 1 {
            write!(out, " (tried {tries} times)")?;
        }
        let is_about_region = matches!(status, 301 | 307)
            || [
                "AuthorizationHeaderMalformed",
                "AuthorizationQueryParametersError",
                "IllegalLocationConstraintException",
            ]
            .contains(&code.as_str());
        match (region, code.as_str()) {
            (Some(region), _) if is_about_region => {
                write!(out, ": bucket {bucket} is in region {region}: set AWS_REGION to that")
            }
            (None, _) if is_about_region => {
                write!(out, ": set AWS_REGION to the region that bucket {bucket} is in")
            }
            (_, "NoSuchBucket") => {
                write!(out, ": make the bucket {bucket}, or correct its name")
            }
            (_, "InvalidAccessKeyId" | "SignatureDoesNotMatch") => {
                write!(out, ": check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
            }
            (_, "ExpiredToken" | "InvalidToken") => {
                write!(out, ": get new keys: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN")
            }
            (_, "RequestTimeTooSkewed") => write!(out, ": set the clock of this machine"),
            _ if *status == 403 => write!(
                out,
                ": check the keys in the environment. They must be allowed to list bucket {bucket}, and to get, put and delete \
                 objects in it"
            ),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        for tries in 1..100 {
            let pause = pause_after(tries);
            let whole = PAUSE.saturating_mul(1 << (tries - 1).min(10)).min(LONGEST_PAUSE);
            assert!(pause >= whole / 2 && pause <= whole, "{tries}: {pause:?}");
        }
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let text = |status, code: &str, region: Option<&str>| {
            let (host, bucket) = ("store:9000".to_owned(), "b".to_owned());
            let region = region.map(str::to_owned);
            let refusal =
                Refusal { host, bucket, status, code: code.into(), message: "No".into(), region, tries: 1 };
            Failure::Refused(Box::new(refusal)).to_string()
        };
        let begins = "the store at store:9000 refuses it: 404 NoSuchBucket No: make the bucket b";
        assert!(text(404, "NoSuchBucket", None).starts_with(begins), "{}", text(404, "NoSuchBucket", None));
        assert!(text(301, "PermanentRedirect", Some("eu-west-1")).contains("set AWS_REGION to that"));
        assert!(text(403, "SignatureDoesNotMatch", None).contains("AWS_SECRET_ACCESS_KEY"));
        assert!(text(403, "AccessDenied", None).contains("must be allowed"));
        assert!(text(500, "", None).ends_with("refuses it: 500 No"));
    }

    #[test]
    fn the_stores_error_code_and_message_are_read() {
        let text = "<?xml?><Error><Code>SlowDown</Code><Message> Please. </Message><Region></Region></Error>";
        assert_eq!(element(text, "Code").as_deref(), Some("SlowDown"));
        assert_eq!(element(text, "Message").as_deref(), Some("Please."));
        assert_eq!((element(text, "Region"), element("", "Code")), (None, None));
    }
}

//! Who may use HTTP: users with a password and callers with the cluster's secret, but no pages of other sites.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN};
use hyper::{HeaderMap, Request, StatusCode, Uri, Version};
use node::{AuthGuard, Credentials};
use wire::handshake::secret_matches;

use super::answer::Refusal;
use crate::config::Config;

/// The header in which a browser names the relation between the page's site and this one.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What decides who may use HTTP.
pub(super) struct Access {
    hosts: Hosts,
    guard: Mutex<AuthGuard>,
    begun: Instant,
}

impl Access {
    /// Creates the rules of a node's configuration.
    pub(super) fn new(config: &Config) -> Access {
        Access { hosts: Hosts::new(config), guard: Mutex::default(), begun: Instant::now() }
    }

    /// Refuses a host name that a page of another site has pointed at this node. Public paths need no further check, so a
    /// link on another site may lead to them.
    /// The name is in `Host`, which HTTP/1.1 requires, or in the target, as proxies send it.
    pub(super) fn check_host<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        let headers = request.headers();
        let hosts = headers.get_all(HOST).iter().count();
        if hosts > 1 || (hosts == 0 && request.version() >= Version::HTTP_11) {
            return Err(Refusal::bad_request(format!(
                "a request of HTTP/1.1 has one Host, and this has {hosts}"
            )));
        }
        self.hosts.check_target(request.uri())?;
        self.hosts.check(headers)
    }

    /// Refuses requests that a page of another site sends through the browser of a user who can reach this node.
    pub(super) fn check_site(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        self.hosts.check(headers)?;
        same_origin(headers)
    }

    /// Refuses a caller that does not know the cluster's secret.
    pub(super) fn require_secret(
        &self,
        from: IpAddr,
        headers: &HeaderMap,
        secret: &str,
    ) -> Result<(), Refusal> {
        let credentials = self.credentials_of(from, headers)?;
        let name = name_in(&credentials).to_vec();
        let given = match credentials {
            Credentials::Token(given) | Credentials::Password { password: given, .. } => given,
            Credentials::Nothing => {
                let error = "this needs Authorization: Bearer with the cluster's secret, or Basic";
                return Err(Refusal::unauthorized(error));
            }
        };
        if secret_matches(&given, secret.as_bytes()) {
            self.logged_in(from, &name);
            return Ok(());
        }
        self.failed(from, &name);
        Err(Refusal::unauthorized("wrong cluster's secret"))
    }

    /// Returns the credentials of a request, unless its address has sent wrong ones too often.
    pub(super) fn credentials_of(&self, from: IpAddr, headers: &HeaderMap) -> Result<Credentials, Refusal> {
        let Some(given) = headers.get(AUTHORIZATION) else { return Ok(Credentials::Nothing) };
        let credentials = credentials(given).ok_or_else(|| {
            Refusal::unauthorized(
                "Authorization must be Basic with a user's name and password, or Bearer with a password",
            )
        })?;
        self.check_guesses(from, name_in(&credentials))?;
        Ok(credentials)
    }

    /// Refuses an address that has sent wrong credentials too often. Call it before the credentials are compared and again
    /// before the result is sent: of requests at the same time, all are under way before the first is known to be wrong.
    pub(super) fn check_guesses(&self, from: IpAddr, name: &[u8]) -> Result<(), Refusal> {
        // No code panics while the lock is held.
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.listens_to(from, name, self.now_us()) {
            return Ok(());
        }
        guard.refused();
        let error = "too many failed attempts to authenticate from your address: try again in a few seconds";
        Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "TOOMANY", error))
    }

    /// Counts a failure of an address. Returns how long to delay its answer.
    pub(super) fn failed(&self, from: IpAddr, name: &[u8]) -> Duration {
        let now_us = self.now_us();
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.failed(from, name, now_us) {
            tracing::info!(target: "audit", "audit: a client at {from} has failed to authenticate over HTTP");
        }
        guard.delay(from, now_us)
    }

    /// Notes that credentials were right.
    pub(super) fn logged_in(&self, from: IpAddr, name: &[u8]) {
        let now_us = self.now_us();
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        guard.logged_in(from, name, now_us);
    }

    fn now_us(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }
}

/// The names under which this node is reached. A page can point its own name at this node's address (DNS rebinding), and
/// then send requests here that a browser considers same-site; but it cannot change the host name that the browser
/// sends.
struct Hosts {
    names: Vec<String>,
    takes_any: bool,
}

impl Hosts {
    fn new(config: &Config) -> Hosts {
        let nodes = config.nodes.iter().map(|node| node.host.as_str());
        let names =
            ["localhost"].into_iter().chain(nodes).chain(config.http_hosts.iter().map(String::as_str));
        let names: Vec<String> = names.map(str::to_ascii_lowercase).collect();
        Hosts { takes_any: names.iter().any(|name| name == "*"), names }
    }

    /// A literal IP address is always accepted: it is not a name that someone else has pointed at this node.
    fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        headers.get_all(HOST).iter().try_for_each(|host| self.check_one(host))
    }

    /// A target in absolute form asks for something of that host: this node is no proxy.
    fn check_target(&self, target: &Uri) -> Result<(), Refusal> {
        let (Some(host), scheme) = (target.host(), target.scheme_str()) else { return Ok(()) };
        if matches!(scheme, None | Some("http" | "https")) && self.is_known(&host.to_ascii_lowercase()) {
            return Ok(());
        }
        let error =
            format!("this node is not '{}', and passes nothing on", target.to_string().escape_debug());
        Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, "HOST", error))
    }

    fn is_known(&self, name: &str) -> bool {
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        self.takes_any || bare.parse::<IpAddr>().is_ok() || self.names.iter().any(|known| known == name)
    }

    fn check_one(&self, host: &HeaderValue) -> Result<(), Refusal> {
        let host = host.to_str().unwrap_or_default().to_ascii_lowercase();
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host.as_str(),
        };
        if self.is_known(name) {
            return Ok(());
        }
        let error = format!(
            "this node is not known as '{}': add the name to http_hosts in its configuration file, or use its address",
            name.escape_debug()
        );
        Err(Refusal::new(StatusCode::FORBIDDEN, "HOST", error))
    }
}

/// The name that credentials contain; empty if they have none.
pub(super) fn name_in(credentials: &Credentials) -> &[u8] {
    match credentials {
        Credentials::Password { user, .. } => user,
        Credentials::Token(_) | Credentials::Nothing => b"",
    }
}

/// Reads the header's credentials. `Basic` without a user's name means the default user.
fn credentials(given: &HeaderValue) -> Option<Credentials> {
    let (scheme, given) = given.to_str().ok()?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Credentials::Token(given.trim().as_bytes().to_vec()));
    }
    let pair = BASE64_STANDARD.decode(given.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    let user = if colon == 0 { b"default".to_vec() } else { pair[..colon].to_vec() };
    Some(Credentials::Password { user, password: pair[colon + 1..].to_vec() })
}

fn same_origin(headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let is_foreign = match text(ORIGIN) {
        Some(origin) => origin.split_once("://").map(|(_, host)| host) != text(HOST),
        // Requests for images and from forms carry no origin; newer browsers send their relation to this site.
        None => matches!(text(FETCH_SITE), Some("cross-site" | "same-site")),
    };
    if is_foreign {
        let error = "pages of other sites may not use this";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "ORIGIN", error));
    }
    Ok(())
}

/// Refuses a body that is not declared as JSON. A browser never declares that for a page of another site without
/// asking first.
pub(super) fn require_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = given.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let error = format!(
        "a body must come with Content-Type: application/json, not '{}' (curl -H 'Content-Type: application/json')",
        given.escape_debug()
    );
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "CONTENTTYPE", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_taken_from_both_schemes() {
        let given = |value: &str| credentials(&value.parse().unwrap());
        let token = |token: &str| Some(Credentials::Token(token.into()));
        let password = |user: &str, password: &str| {
            Some(Credentials::Password { user: user.into(), password: password.into() })
        };
        assert!(given("Bearer word") == token("word") && given("bearer  word ") == token("word"));
        assert!(given("Basic dXNlcjpwYTpzcw==") == password("user", "pa:ss"));
        assert!(given("Basic OnBhc3M=") == password("default", "pass"));
        for wrong in ["word", "Basic !!", "Basic dXNlcg==", "Digest dXNlcjpwYTpzcw=="] {
            assert!(given(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let check = |origin: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "127.0.0.1:8000".parse().unwrap());
            headers.insert(ORIGIN, origin.parse().unwrap());
            same_origin(&headers).is_ok()
        };
        assert!(check("http://127.0.0.1:8000"));
        assert!(!check("http://example.org") && !check("null"));
        assert!(same_origin(&HeaderMap::new()).is_ok());
        for (site, expected) in
            [("cross-site", false), ("same-site", false), ("same-origin", true), ("none", true)]
        {
            let mut headers = HeaderMap::new();
            headers.insert(FETCH_SITE, site.parse().unwrap());
            assert_eq!(same_origin(&headers).is_ok(), expected, "{site}");
        }
    }

    #[test]
    fn a_host_name_that_is_not_the_nodes_is_refused() {
        let hosts = Hosts { names: vec!["localhost".into(), "node-1.shop".into()], takes_any: false };
        let check = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            hosts.check(&headers).is_ok()
        };
        for known in [
            "localhost",
            "LOCALHOST:8000",
            "127.0.0.1:8000",
            "10.1.2.3",
            "[::1]:8000",
            "[::1]",
            "Node-1.shop:80",
        ] {
            assert!(check(known), "{known}");
        }
        for foreign in
            ["evil.example", "evil.example:8000", "localhost.evil.example", "node-1.shop.evil.example", ""]
        {
            assert!(!check(foreign), "{foreign}");
        }
        assert!(hosts.check(&HeaderMap::new()).is_ok());
        let any = Hosts { names: vec![], takes_any: true };
        assert!(any.check(&[(HOST, "any.example".parse().unwrap())].into_iter().collect()).is_ok());
    }

    #[test]
    fn a_request_says_once_whom_it_is_for() {
        let config = Config::parse(
            "node = 1\ncluster = \"test\"\nsecret = \"0123456789abcdef0123456789abcdef\"\n[[nodes]]\nid = 1\nhost = \"127.0.0.1\"\nclient_port = 7001\nhttp_port = 8001\npeer_port = 9001\n",
        )
        .unwrap();
        let access = Access::new(&config);
        let checked = |version: Version, target: &str, hosts: &[&str]| {
            let mut request = Request::builder().version(version).uri(target);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            access.check_host(&request.body(()).unwrap()).err().map(|refusal| refusal.status().as_u16())
        };
        let (older, newer) = (Version::HTTP_10, Version::HTTP_11);
        assert_eq!(checked(newer, "/health", &["localhost"]), None);
        assert_eq!(checked(newer, "/health", &[]), Some(400));
        assert_eq!(checked(newer, "/health", &["localhost", "localhost"]), Some(400));
        assert_eq!(checked(older, "/health", &[]), None, "checks of old load balancers");
        assert_eq!(checked(newer, "http://localhost:8001/health", &["localhost"]), None);
        assert_eq!(checked(newer, "http://[::1]:8001/health", &["localhost"]), None);
        assert_eq!(checked(newer, "http://example.org/health", &["localhost"]), Some(421));
        assert_eq!(checked(older, "http://example.org/health", &[]), Some(421));
        assert_eq!(checked(newer, "ftp://localhost/health", &["localhost"]), Some(421));
        assert_eq!(checked(newer, "http://localhost/health", &["example.org"]), Some(403));
    }

    #[test]
    fn a_body_must_be_declared_as_json() {
        let check = |value: &str| {
            require_json(&[(CONTENT_TYPE, value.parse().unwrap())].into_iter().collect()).is_ok()
        };
        assert!(check("application/json") && check("Application/JSON; charset=utf-8"));
        for wrong in ["text/plain", "application/x-www-form-urlencoded", "text/json", ""] {
            assert!(!check(wrong), "{wrong}");
        }
        assert!(require_json(&HeaderMap::new()).is_err());
    }
}

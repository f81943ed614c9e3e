//! Who may use HTTP: passwords, the cluster's secret, and no pages of other sites.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::header::{AUTHORIZATION, HOST, ORIGIN};
use hyper::{HeaderMap, StatusCode};
use wire::handshake::secret_matches;

use super::answer::Refusal;

/// Refuses who does not know a secret. `name` is what it is called.
pub(super) fn require(headers: &HeaderMap, secret: &str, name: &str) -> Result<(), Refusal> {
    match credentials(headers) {
        Some(given) if secret_matches(&given, secret.as_bytes()) => Ok(()),
        Some(_) => Err(Refusal::unauthorized(format!("that is not the {name}"))),
        None => {
            Err(Refusal::unauthorized(format!("this needs Authorization: Bearer with the {name}, or Basic")))
        }
    }
}

/// What the caller says to know: the token of `Bearer`, the password of `Basic`.
fn credentials(headers: &HeaderMap) -> Option<Vec<u8>> {
    let (scheme, given) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(given.trim().as_bytes().to_vec());
    }
    let pair = BASE64_STANDARD.decode(given.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

/// Refuses what a page of another site sends through somebody's browser, which reaches what only he can reach.
pub(super) fn same_origin(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let from = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    if from.is_some() && from == host {
        return Ok(());
    }
    Err(Refusal::new(StatusCode::FORBIDDEN, "ORIGIN", "pages of other sites may not use this"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_taken_from_both_schemes() {
        let given = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            credentials(&headers)
        };
        assert_eq!(given("Bearer word").as_deref(), Some(&b"word"[..]));
        assert_eq!(given("bearer  word ").as_deref(), Some(&b"word"[..]));
        assert_eq!(given("Basic dXNlcjpwYTpzcw==").as_deref(), Some(&b"pa:ss"[..]));
        for wrong in ["word", "Basic !!", "Basic dXNlcg==", "Digest dXNlcjpwYTpzcw=="] {
            assert_eq!(given(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_turned_away() {
        let check = |origin: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "127.0.0.1:8000".parse().unwrap());
            headers.insert(ORIGIN, origin.parse().unwrap());
            same_origin(&headers).is_ok()
        };
        assert!(check("http://127.0.0.1:8000"));
        assert!(!check("http://example.org") && !check("null"));
        assert!(same_origin(&HeaderMap::new()).is_ok());
    }
}

//! HTTP/1.1 with JSON, as in Quorate's own interface and in the leader-follower study's store: `POST /put
//! {"key","value"}`, `GET /get/{key}`, and `GET /health` for a PING.

mod response;

use std::net::SocketAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use serde_json::Value as Json;

use super::options::{Login, Options};
use super::outcome::{Expected, Operation};
use super::template::{Template, append_number};
use super::value::Values;

pub(crate) use response::Responses;

/// The templates of requests. The header fields that differ between connections are passed with each request.
pub(crate) struct Requests {
    get: Template,
    /// The body of a put up to its value; [`BODY_END`] follows the value.
    put_body: Template,
}

const BODY_END: &[u8] = b"\"}";

impl Requests {
    pub(crate) fn new(options: &Options) -> Self {
        let (prefix, digits) = (options.key_prefix.as_str(), options.key_digits());
        let json = Json::from(prefix).to_string();
        let unquoted = &json[1..json.len() - 1];
        Self {
            get: Template::new(&format!("GET /get/{}", percent_encoded(prefix)), digits, " HTTP/1.1\r\n"),
            put_body: Template::new(&format!("{{\"key\":\"{unquoted}"), digits, "\",\"value\":\""),
        }
    }

    /// Appends a request. Our values need no escapes in JSON.
    pub(crate) fn append(&self, asked: Expected, values: &Values, fields: &[u8], out: &mut Vec<u8>) {
        let Expected { operation, key, sequence } = asked;
        match operation {
            Operation::Get => {
                self.get.append(key, out);
                out.extend_from_slice(fields);
                out.extend_from_slice(b"\r\n");
            }
            Operation::Set => {
                out.extend_from_slice(b"POST /put HTTP/1.1\r\n");
                out.extend_from_slice(fields);
                out.extend_from_slice(b"Content-Type: application/json\r\nContent-Length: ");
                let value_bytes = values.size_of(key, sequence);
                append_number(self.put_body.len() + value_bytes + BODY_END.len(), out);
                out.extend_from_slice(b"\r\n\r\n");
                self.put_body.append(key, out);
                values.write(key, sequence, out);
                out.extend_from_slice(BODY_END);
            }
            // `Options::validate` refuses INCR.
            Operation::Incr | Operation::Ping | Operation::Custom => out.extend_from_slice(&health(fields)),
        }
    }
}

/// The header fields of every request to a server: its host, and the authorization.
pub(crate) fn fields(address: SocketAddr, login: Option<&Login>) -> Vec<u8> {
    let mut fields = format!("Host: {address}\r\n");
    match login {
        None => {}
        Some(Login { user: None, password }) => {
            fields.push_str(&format!("Authorization: Bearer {password}\r\n"));
        }
        Some(Login { user: Some(user), password }) => {
            let both = BASE64.encode(format!("{user}:{password}"));
            fields.push_str(&format!("Authorization: Basic {both}\r\n"));
        }
    }
    fields.into_bytes()
}

/// A request that asks whether the server is ready.
pub(crate) fn health(fields: &[u8]) -> Vec<u8> {
    [b"GET /health HTTP/1.1\r\n", fields, b"\r\n"].concat()
}

/// A path segment; every byte other than letters, digits and `-._~` is percent-encoded.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::value::Sizes;

    fn request(operation: Operation, key_prefix: &str) -> String {
        let options = Options {
            key_prefix: key_prefix.to_owned(),
            value_bytes: Sizes::fixed(32),
            keys: 100,
            ..Options::default()
        };
        let values = Values::new(options.value_bytes);
        let login = Login { user: None, password: "secret".to_owned() };
        let fields = fields(SocketAddr::from(([127, 0, 0, 1], 8000)), Some(&login));
        let mut out = Vec::new();
        let asked = Expected { operation, key: 42, sequence: 7 };
        Requests::new(&options).append(asked, &values, &fields, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_user_logs_in_with_basic() {
        let login = Login { user: Some("user".to_owned()), password: "pa:ss".to_owned() };
        let fields = fields(SocketAddr::from(([127, 0, 0, 1], 1)), Some(&login));
        assert_eq!(fields, b"Host: 127.0.0.1:1\r\nAuthorization: Basic dXNlcjpwYTpzcw==\r\n");
    }

    #[test]
    fn requests_are_well_formed() {
        let fields = "Host: 127.0.0.1:8000\r\nAuthorization: Bearer secret\r\n";
        assert_eq!(
            request(Operation::Get, "a b:/"),
            format!("GET /get/a%20b%3A%2F000000000042 HTTP/1.1\r\n{fields}\r\n")
        );
        assert_eq!(request(Operation::Ping, "k"), format!("GET /health HTTP/1.1\r\n{fields}\r\n"));
        let body = r#"{"key":"q\"000000000042","value":"000000000000002a0000000000000007"}"#;
        assert_eq!(
            request(Operation::Set, "q\""),
            format!(
                "POST /put HTTP/1.1\r\n{fields}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        );
    }
}

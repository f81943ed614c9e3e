//! What a server's answer says about the client, and nothing about the server.

use anyhow::anyhow;
use server::status::Refused;

/// A server has answered, and refuses this client, or is not what the client expects.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) refused: Refused,
    text: String,
}

impl Refusal {
    pub(crate) fn new(refused: Refused, text: impl Into<String>) -> Refusal {
        Refusal { refused, text: text.into() }
    }

    /// Of an error reply, if it is about the client and not about what the server can do now.
    fn of_reply(error: &str) -> Option<Refused> {
        match error.split_once(' ').map_or(error, |(code, _)| code) {
            "NOAUTH" => Some(Refused::NeedsPassword),
            "WRONGPASS" => Some(Refused::Password),
            "NOPERM" => Some(Refused::Right),
            // Without a password of its own, a server refuses every password.
            "ERR" if error.contains("AUTH") => Some(Refused::Password),
            // A command that every node knows.
            "ERR" if error.to_ascii_lowercase().contains("unknown") || error.contains("cluster support") => {
                Some(Refused::Protocol)
            }
            _ => None,
        }
    }

    /// An error that says in `text` what an error reply means; a [`Refusal`] if the reply is one.
    pub(crate) fn or_failure(reply: &str, text: String) -> anyhow::Error {
        match Refusal::of_reply(reply) {
            Some(refused) => Refusal { refused, text }.into(),
            None => anyhow!("{text}"),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.text)
    }
}

impl std::error::Error for Refusal {}

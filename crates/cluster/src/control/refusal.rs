//! Why a change of the cluster map is refused: a code with data, and a sentence.

use crate::words::quoted;
use kv::codec::{Malformed, Reader, Writer};
use protocol::NodeId;
use thiserror::Error;
use wire::release::Release;

/// The most bytes of a sentence in a message.
const SENTENCE_BYTES_MAX: usize = 4096;

/// Why a change cannot be made. Displayed as a sentence for users.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// No keyspace has this prefix.
    #[error("there is no keyspace '{}'", name(.0))]
    NoKeyspace(String),
    /// A keyspace has this prefix already.
    #[error("keyspace '{}': it is there already, with other settings; to change them: quorate keyspace alter {} SETTING=VALUE (KEYSPACE SET)", name(.0), quoted(.0))]
    KeyspaceExists(String),
    /// No node has this number.
    #[error("there is no node {0}")]
    NoNode(NodeId),
    /// No group has this number.
    #[error("there is no group {0}")]
    NoGroup(u16),
    /// The cluster is not yet at the level that brings a feature, though all programs know that level.
    #[error(
        "{what} needs level {since}, and the cluster is at level {level}: it rises in a moment, ask again"
    )]
    LevelRises {
        /// The wanted feature, described for users.
        what: String,
        /// The level that brings the feature.
        since: Release,
        /// The present level.
        level: Release,
    },
    /// A reason that only people can use, as a sentence.
    #[error("{0}")]
    Other(String),
}

fn name(prefix: &str) -> &str {
    if prefix.is_empty() { "default" } else { prefix }
}

impl From<String> for Refusal {
    fn from(sentence: String) -> Refusal {
        Refusal::Other(sentence)
    }
}

/// Returns [`Refusal::Other`] with a sentence from the enclosing function.
#[macro_export]
macro_rules! refuse {
    ($($sentence:tt)*) => { return Err($crate::control::Refusal::Other(format!($($sentence)*))) };
}
pub use refuse;

impl Refusal {
    /// The code by which programs recognize the error: an error reply begins with it.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::NoKeyspace(_) | Refusal::NoNode(_) | Refusal::NoGroup(_) => "NOTFOUND",
            Refusal::KeyspaceExists(_) => "EXISTS",
            Refusal::LevelRises { .. } => "TRYAGAIN LEVEL",
            Refusal::Other(_) => "ERR",
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Refusal::NoKeyspace(prefix) => {
                out.put_u8(1);
                put_sentence(out, prefix);
            }
            Refusal::KeyspaceExists(prefix) => {
                out.put_u8(2);
                put_sentence(out, prefix);
            }
            Refusal::NoNode(id) => {
                out.put_u8(3);
                out.put_u16(*id);
            }
            Refusal::NoGroup(id) => {
                out.put_u8(4);
                out.put_u16(*id);
            }
            Refusal::Other(sentence) => {
                out.put_u8(5);
                put_sentence(out, sentence);
            }
            // Release 1 does not know this refusal, and never gets it: all programs of the cluster know a later
            // level.
            Refusal::LevelRises { what, since, level } => {
                out.put_u8(6);
                put_sentence(out, what);
                out.put_u16(*since);
                out.put_u16(*level);
            }
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Refusal, Malformed> {
        Ok(match reader.u8()? {
            1 => Refusal::NoKeyspace(take_sentence(reader)?),
            2 => Refusal::KeyspaceExists(take_sentence(reader)?),
            3 => Refusal::NoNode(reader.u16()?),
            4 => Refusal::NoGroup(reader.u16()?),
            5 => Refusal::Other(take_sentence(reader)?),
            6 => Refusal::LevelRises {
                what: take_sentence(reader)?,
                since: reader.u16()?,
                level: reader.u16()?,
            },
            _ => return Err(Malformed("unknown kind of refusal")),
        })
    }
}

pub(super) fn put_sentence(out: &mut Vec<u8>, sentence: &str) {
    let end = sentence.floor_char_boundary(SENTENCE_BYTES_MAX);
    out.put_bytes(&sentence.as_bytes()[..end]);
}

pub(super) fn take_sentence(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let bytes = Some(reader.bytes()?).filter(|bytes| bytes.len() <= SENTENCE_BYTES_MAX);
    let bytes = bytes.ok_or(Malformed("a control message is too long"))?;
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed("a sentence that is no text"))
}

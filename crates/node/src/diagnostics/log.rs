//! The lines that a node reports to its operator.

use protocol::Trace;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For information only.
    Info,
    /// An operator should look.
    Warning,
    /// An operator must act.
    Error,
    /// An operator's change of the cluster, or a failed login: for the target `audit`.
    Audit,
}

/// One line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How much the line matters.
    pub level: Level,
    /// The text, a sentence.
    pub text: String,
}

/// The line for a change in a group; `None` for routine events.
pub(crate) fn describe(keyspace: &str, event: &Trace) -> Option<Line> {
    let (level, text) = match event {
        Trace::Committed { .. } => return None,
        Trace::Role { role, epoch, offset } => {
            (Level::Info, format!("{role} in epoch {epoch}, at offset {offset}"))
        }
        Trace::PartialResync { follower, after } => {
            (Level::Info, format!("node {follower} goes on behind offset {after} out of the backlog"))
        }
        Trace::TransferBegun { to, offset, why } => {
            (Level::Info, format!("node {to} gets a snapshot at offset {offset}: {why}"))
        }
        Trace::Installed { offset, keys } => {
            (Level::Info, format!("a snapshot of {keys} keys at offset {offset} is installed"))
        }
        Trace::Truncated { after, records } => (
            Level::Warning,
            format!("{records} records behind offset {after} were never committed and are cut off"),
        ),
        Trace::LostWrites { epoch, records } => (
            Level::Warning,
            format!("up to {records} writes that were acknowledged in epoch {epoch} are lost (acks = none)"),
        ),
        Trace::Leased { leased: true } => return None,
        Trace::Leased { leased: false } => (
            Level::Warning,
            "the leader has not heard from the control group in time and serves no client".into(),
        ),
        Trace::Follower { follower, live: true } => (Level::Info, format!("node {follower} is in step")),
        Trace::Follower { follower, live: false } => (Level::Warning, format!("node {follower} is silent")),
        Trace::EpochPassed { epoch } => (Level::Warning, format!("epoch {epoch} has passed this node's own")),
        Trace::Rejected { peer, why } => {
            (Level::Warning, format!("a message of node {peer} is refused: {why}"))
        }
        Trace::TransferAbandoned { to, why } => {
            (Level::Warning, format!("the snapshot transfer to node {to} is given up: {why}"))
        }
        Trace::Refilling { incarnation } => (
            Level::Info,
            format!(
                "started without its memory, in incarnation {incarnation}; gets it from others before it answers"
            ),
        ),
        Trace::Refilled { incarnation, keys } => {
            (Level::Info, format!("refilled with {keys} keys and ready, in incarnation {incarnation}"))
        }
        Trace::Resumed { incarnation, keys } => (
            Level::Info,
            format!("ready in incarnation {incarnation}, with the {keys} keys that it had recorded"),
        ),
        Trace::Begun { incarnation } => {
            (Level::Info, format!("no member holds anything: begins empty, in incarnation {incarnation}"))
        }
        Trace::MemoryLost { members } => (
            Level::Error,
            format!(
                "nodes {members:?} have lost their memory, and are a majority: nobody can know what they had acknowledged. \
                 The keyspace stands still until an operator decides: quorate keyspace recover shows what is lost"
            ),
        ),
        Trace::GivenUp { incarnation } => (
            Level::Warning,
            format!(
                "what this node had acknowledged before incarnation {incarnation} is given up, as an operator \
                 decided; it goes on with what the others hold"
            ),
        ),
        Trace::TombstonesCollected { .. } => return None,
    };
    Some(Line { level, text: format!("keyspace '{keyspace}': {text}") })
}

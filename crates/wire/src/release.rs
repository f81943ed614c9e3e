//! Releases: which versions of messages and records a build understands, and which release two builds speak.
//!
//! A release has a number, beside the version that people know. A build understands a range of releases. Two nodes
//! speak the newest release that both understand. The cluster as a whole uses the features of the release that is its
//! *level*, which the cluster map holds. `docs/guide/upgrade.md` is for operators, `docs/design/releases.md` for
//! developers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a release. It grows with each release that changes a message, a record or a file.
pub type Release = u16;

/// The releases that this build understands.
pub const RELEASES: Releases = Releases { oldest: 1, newest: 2 };

/// The version of this build, as people know it.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");

/// Longest version of a build in a handshake, in bytes.
pub const BUILD_BYTES_MAX: usize = 64;

/// The releases that a build understands, both ends included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Releases {
    /// The oldest release that it can speak, and whose files it reads.
    pub oldest: Release,
    /// Its own release. 0: the build is not known.
    pub newest: Release,
}

impl Releases {
    /// Whether a build that understands these releases may take part in a cluster of this level.
    pub fn includes(self, level: Release) -> bool {
        (self.oldest..=self.newest).contains(&level)
    }

    /// The newest release that two builds understand.
    pub fn common(self, other: Releases) -> Option<Release> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }

    /// Returns why a build that understands these releases may not take part in a cluster of this level, and what to
    /// do. `None`: it may.
    pub fn refusal(self, level: Release) -> Option<String> {
        if self.includes(level) {
            return None;
        }
        let Releases { oldest, newest } = self;
        Some(match newest < level {
            true => format!(
                "this program is of release {newest}, and the cluster is at level {level}: all of its nodes have had release \
                 {level}, and there is no way back. Start the node with a program of release {level} or later"
            ),
            false => format!(
                "this program is of release {newest} and goes back to release {oldest}, and the cluster is at level {level}. \
                 Upgrade all nodes to a release from {level} to {oldest} that still knows level {level} first, wait until the \
                 cluster's level has risen, and then upgrade to this one"
            ),
        })
    }
}

impl fmt::Display for Releases {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Releases { oldest, newest } if oldest == newest => write!(formatter, "release {newest}"),
            Releases { oldest, newest } => write!(formatter, "releases {oldest} to {newest}"),
        }
    }
}

/// A build on the other side of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// Its version, as people know it, in printable form.
    pub version: String,
    /// The releases that it understands.
    pub releases: Releases,
}

impl Build {
    /// This build.
    pub fn own() -> Build {
        Build { version: BUILD.into(), releases: RELEASES }
    }
}

impl fmt::Display for Build {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Quorate {} ({})", self.version, self.releases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn releases(oldest: Release, newest: Release) -> Releases {
        Releases { oldest, newest }
    }

    #[test]
    fn two_builds_speak_the_newest_release_that_both_understand() {
        assert_eq!(releases(1, 3).common(releases(2, 5)), Some(3));
        assert_eq!(releases(2, 5).common(releases(1, 3)), Some(3));
        assert_eq!(releases(1, 1).common(releases(1, 2)), Some(1));
        assert_eq!(releases(1, 2).common(releases(3, 5)), None);
        assert_eq!(releases(3, 5).common(releases(1, 2)), None);
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        assert_eq!(releases(1, 2).refusal(2), None);
        assert!(releases(1, 2).refusal(3).is_some_and(|why| why.contains("release 3 or later")));
        assert!(releases(4, 6).refusal(2).is_some_and(|why| why.contains("Upgrade all nodes")));
    }
}

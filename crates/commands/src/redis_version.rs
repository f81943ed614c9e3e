//! The version of Redis that a node says it is.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use wire::release::Release;

/// A version of Redis: three numbers, each at most 255, with points between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RedisVersion([u8; 3]);

impl RedisVersion {
    /// What nodes say at level 1, whose commands are those of Redis 7.0.
    pub const OF_LEVEL_1: RedisVersion = RedisVersion([7, 0, 15]);

    /// What they say from level 2 on: the newest version whose commands are served.
    pub const OF_LEVEL_2: RedisVersion = RedisVersion([8, 6, 3]);

    /// The newest version whose commands are served at a level.
    pub fn of_level(level: Release) -> RedisVersion {
        if level < 2 { RedisVersion::OF_LEVEL_1 } else { RedisVersion::OF_LEVEL_2 }
    }

    /// The version as one number with a byte for each part, as scripts compare it: 0x080603 for 8.6.3.
    pub fn number(self) -> u32 {
        let [major, minor, patch] = self.0;
        u32::from_be_bytes([0, major, minor, patch])
    }
}

impl fmt::Display for RedisVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(formatter, "{major}.{minor}.{patch}")
    }
}

impl FromStr for RedisVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<RedisVersion, String> {
        // No sign, and no zero in front: each version has one form.
        let part = |part: &str| part.parse().ok().filter(|number: &u8| number.to_string() == part);
        let parts: Option<Vec<u8>> = text.split('.').map(part).collect();
        match parts.and_then(|parts| parts.try_into().ok()) {
            Some(parts) => Ok(RedisVersion(parts)),
            None => Err(format!(
                "'{text}' is no version of Redis: write three numbers of at most 255, such as \"{}\"",
                RedisVersion::OF_LEVEL_2
            )),
        }
    }
}

impl TryFrom<String> for RedisVersion {
    type Error = String;

    fn try_from(text: String) -> Result<RedisVersion, String> {
        text.parse()
    }
}

impl From<RedisVersion> for String {
    fn from(version: RedisVersion) -> String {
        version.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_three_numbers() {
        let version: RedisVersion = "7.4.10".parse().expect("it is a version");
        assert_eq!((version.to_string(), version.number()), ("7.4.10".into(), 0x07_040a));
        for wrong in
            ["", "7", "7.4", "7.4.", "7.4.x", "7.4.256", "7.4.-1", "7.+4.1", "7.04.1", "7.4.1.2", " 7.4.1"]
        {
            let why = wrong.parse::<RedisVersion>().expect_err(wrong);
            assert!(why.contains("three numbers") && why.contains(&format!("'{wrong}'")), "{why}");
        }
    }

    #[test]
    fn a_level_has_the_version_whose_commands_it_serves() {
        assert_eq!(
            [1, 2, 3].map(|level| RedisVersion::of_level(level).to_string()),
            ["7.0.15", "8.6.3", "8.6.3"]
        );
    }
}

//! Bytes in a map of text.

use serde::{Deserialize, Serialize};

/// Any bytes, as a string with a character for each byte, so that they can be in a map of text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text(String);

impl Text {
    /// Keeps these bytes.
    pub fn new(bytes: &[u8]) -> Text {
        Text(bytes.iter().map(|byte| char::from(*byte)).collect())
    }

    /// The bytes. A character that stands for no byte, which no node writes, becomes 255.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.chars().map(|character| u8::try_from(u32::from(character)).unwrap_or(u8::MAX)).collect()
    }

    /// How many bytes the string takes in the map: two for each byte above 127.
    pub fn bytes_in_map(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_any_bytes_survives_the_map() {
        let bytes: Vec<u8> = (0..=u8::MAX).collect();
        let json = serde_json::to_string(&Text::new(&bytes)).unwrap();
        assert_eq!(serde_json::from_str::<Text>(&json).unwrap().bytes(), bytes);
    }
}

//! Commands of the user's own: `ZADD board {number} {key}`.
//!
//! A command is written as in a shell. Text in braces is replaced in each request:
//!
//! | | |
//! |---|---|
//! | `{key}` | the key that the request picks: prefix and digits |
//! | `{number}` | that key's number |
//! | `{random}` | a number drawn for this place of this request, below the number of keys |
//! | `{random:N}` | a number drawn for it below N |
//! | `{value}` | a value of the requested size |

use super::outcome::Expected;
use super::random::Random;
use super::template::append_number;
use super::value::Values;

/// A command with places that are filled for each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Custom {
    text: String,
    arguments: Vec<Vec<Piece>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Key,
    Number,
    /// Below this number, or below the number of keys.
    Random(Option<u64>),
    Value,
}

impl std::str::FromStr for Custom {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = shlex::split(text).ok_or("a quotation mark is not closed")?;
        if words.is_empty() {
            return Err("there is no command".to_owned());
        }
        let arguments = words.iter().map(|word| pieces_of(word)).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), arguments })
    }
}

fn pieces_of(word: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut rest) = (Vec::new(), word);
    while let Some((text, place)) = rest.split_once('{') {
        let (name, behind) = place.split_once('}').ok_or_else(|| format!("{word}: a brace is not closed"))?;
        if !text.is_empty() {
            pieces.push(Piece::Text(text.to_owned()));
        }
        pieces.push(match (name, name.strip_prefix("random:")) {
            ("key", _) => Piece::Key,
            ("number", _) => Piece::Number,
            ("random", _) => Piece::Random(None),
            ("value", _) => Piece::Value,
            (_, Some(below)) => match below.parse() {
                Ok(below @ 1..) => Piece::Random(Some(below)),
                _ => return Err(format!("{{{name}}}: expected {{random:N}} with N of at least 1")),
            },
            _ => {
                return Err(format!(
                    "{{{name}}}: expected {{key}}, {{number}}, {{random}}, {{random:N}} or {{value}}"
                ));
            }
        });
        rest = behind;
    }
    if !rest.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

impl Custom {
    /// The command as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Appends the request as RESP. `key` appends the name of the key with a number, of which there are `keys`; `seed`
    /// and the request's sequence determine its random numbers.
    pub(super) fn append(
        &self,
        asked: Expected,
        (keys, seed, values): (u64, u64, &Values),
        key: impl Fn(u64, &mut Vec<u8>),
        out: &mut Vec<u8>,
    ) {
        let mut random = Random::new(seed ^ asked.sequence);
        out.push(b'*');
        append_number(self.arguments.len(), out);
        out.extend_from_slice(b"\r\n");
        for argument in &self.arguments {
            // The length precedes the argument and is known only after it: it is appended, then rotated to the front.
            let start = out.len();
            for piece in argument {
                match piece {
                    Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                    Piece::Key => key(asked.key, out),
                    Piece::Number => append_number(asked.key as usize, out),
                    Piece::Random(below) => append_number(random.below(below.unwrap_or(keys)) as usize, out),
                    Piece::Value => values.write(asked.key, asked.sequence, out),
                }
            }
            let end = out.len();
            out.push(b'$');
            append_number(end - start, out);
            out.extend_from_slice(b"\r\n");
            let head = out.len() - end;
            out[start..].rotate_right(head);
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::outcome::Operation;
    use crate::load::value::Sizes;

    fn request(text: &str, key: u64, sequence: u64) -> String {
        let asked = Expected { operation: Operation::Custom, key, sequence };
        let name = |key: u64, out: &mut Vec<u8>| out.extend_from_slice(format!("key:{key:04}").as_bytes());
        let mut out = Vec::new();
        let custom: Custom = text.parse().unwrap();
        custom.append(asked, (1000, 1, &Values::new(Sizes::fixed(4))), name, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn places_are_filled_and_lengths_fit() {
        assert_eq!(
            request("ZADD board {number} member:{key} {value}", 42, 7),
            "*5\r\n$4\r\nZADD\r\n$5\r\nboard\r\n$2\r\n42\r\n$15\r\nmember:key:0042\r\n$4\r\n002a\r\n"
        );
        assert_eq!(request("ECHO 'a b' ''", 1, 1), "*3\r\n$4\r\nECHO\r\n$3\r\na b\r\n$0\r\n\r\n");
    }

    #[test]
    fn each_place_of_each_request_draws_separately() {
        let (first, second) = (request("X {random} {random}", 1, 1), request("X {random} {random}", 1, 2));
        assert_ne!(first, second);
        let drawn: Vec<&str> = first.split("\r\n").skip(4).step_by(2).take(2).collect();
        assert_ne!(drawn[0], drawn[1]);
        assert!(drawn.iter().all(|number| number.parse::<u64>().unwrap() < 1000));
        assert_eq!(request("X {random:1}", 5, 9), "*2\r\n$1\r\nX\r\n$1\r\n0\r\n");
    }

    #[test]
    fn an_invalid_command_is_refused() {
        for wrong in
            ["", "  ", "GET 'a", "GET {key", "GET {keys}", "GET {random:}", "GET {random:0}", "GET {}"]
        {
            assert!(wrong.parse::<Custom>().is_err(), "{wrong}");
        }
    }
}

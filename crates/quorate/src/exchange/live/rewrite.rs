//! Commands of a server's stream, rewritten for the cluster.
//!
//! **Deadlines are put off until the end of the import.** A server removes expired keys by commands of its own, and a
//! replica waits for these: it may be behind. If a key expired here after its server had prolonged it, the command that
//! prolongs it would find nothing, and the key would be lost. So all deadlines are stored [`PUT_OFF_MS`] later, and
//! corrected when no more commands come.

use anyhow::Result;

/// By how much deadlines are put off, in milliseconds: 139 years.
pub(super) const PUT_OFF_MS: u64 = 1 << 42;

/// A deadline as it is stored during the import.
pub(super) fn put_off(deadline_ms: u64) -> u64 {
    deadline_ms.saturating_add(PUT_OFF_MS)
}

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

fn number(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Converts a time to a deadline that is put off. Before Redis 7, times count from now.
fn deadline(word: &[u8], unit_ms: i64, now_ms: u64, is_from_now: bool) -> Option<Vec<u8>> {
    let given = number(word)?.checked_mul(unit_ms)?;
    let absolute = if is_from_now { given.checked_add(now_ms as i64)? } else { given };
    let later = put_off(u64::try_from(absolute.max(0)).ok()?);
    Some(later.to_string().into_bytes())
}

/// Puts off the deadline that a command sets. Returns whether it sets one.
pub(super) fn deadlines(words: &mut Vec<Vec<u8>>, now_ms: u64) -> bool {
    let Some(name) = words.first().map(|name| name.to_ascii_uppercase()) else { return false };
    let times = [("EX", 1000, true), ("PX", 1, true), ("EXAT", 1000, false), ("PXAT", 1, false)];
    let from = match &name[..] {
        b"SET" => 3,
        b"GETEX" => 2,
        b"SETEX" | b"PSETEX" if words.len() == 4 => {
            let unit = if &name[..] == b"SETEX" { 1000 } else { 1 };
            let Some(later) = deadline(&words[2], unit, now_ms, true) else { return false };
            let value = words.pop().unwrap_or_default();
            words.truncate(2);
            words.extend([value, b"PXAT".to_vec(), later]);
            words[0] = b"SET".to_vec();
            return true;
        }
        b"EXPIRE" | b"PEXPIRE" | b"EXPIREAT" | b"PEXPIREAT" if words.len() >= 3 => {
            let unit = if name[0] == b'P' { 1 } else { 1000 };
            let Some(later) = deadline(&words[2], unit, now_ms, !name.ends_with(b"AT")) else { return false };
            words[0] = b"PEXPIREAT".to_vec();
            words[2] = later;
            return true;
        }
        b"RESTORE" | b"RESTORE-ASKING" if words.len() >= 4 => {
            words[0] = b"RESTORE".to_vec();
            if number(&words[2]).is_none_or(|time| time <= 0) {
                return false;
            }
            let is_absolute = words[4..].iter().any(|word| is(word, "ABSTTL"));
            let Some(later) = deadline(&words[2], 1, now_ms, !is_absolute) else { return false };
            words[2] = later;
            if !is_absolute {
                words.push(b"ABSTTL".to_vec());
            }
            return true;
        }
        _ => return false,
    };
    for at in from..words.len().saturating_sub(1) {
        let Some((_, unit, is_from_now)) = times.iter().find(|(option, ..)| is(&words[at], option)) else {
            continue;
        };
        let Some(later) = deadline(&words[at + 1], *unit, now_ms, *is_from_now) else { return false };
        words[at] = b"PXAT".to_vec();
        words[at + 1] = later;
        return true;
    }
    false
}

/// What a command means for an import.
#[derive(Debug, PartialEq)]
pub(super) enum Meaning {
    /// It is not about keys.
    Nothing,
    Select(u64),
    Multi,
    Exec,
    /// The server requests its replica's position.
    HowFar,
    /// A message of PUBLISH.
    Message,
    /// It concerns functions.
    Functions,
    /// It changes whole databases, or keys in two databases.
    Databases,
    /// It changes keys of its database.
    Keys,
}

/// Classifies a command.
pub(super) fn meaning(words: &[Vec<u8>]) -> Meaning {
    let Some(name) = words.first() else { return Meaning::Nothing };
    match &name.to_ascii_uppercase()[..] {
        b"PING" => Meaning::Nothing,
        b"SELECT" => match words.get(1).and_then(|word| number(word)) {
            Some(database) => Meaning::Select(database as u64),
            None => Meaning::Nothing,
        },
        b"MULTI" => Meaning::Multi,
        b"EXEC" => Meaning::Exec,
        b"REPLCONF" if words.get(1).is_some_and(|word| is(word, "GETACK")) => Meaning::HowFar,
        b"REPLCONF" => Meaning::Nothing,
        b"PUBLISH" | b"SPUBLISH" => Meaning::Message,
        b"FUNCTION" => Meaning::Functions,
        b"SCRIPT" => Meaning::Nothing,
        b"FLUSHALL" | b"FLUSHDB" | b"SWAPDB" | b"MOVE" => Meaning::Databases,
        b"COPY" if words.iter().skip(3).any(|word| is(word, "DB")) => Meaning::Databases,
        _ => Meaning::Keys,
    }
}

/// Whether a command does the same to each of its keys independently: then it can be divided.
pub(super) fn is_separable(name: &[u8]) -> Option<usize> {
    match &name.to_ascii_uppercase()[..] {
        b"DEL" | b"UNLINK" => Some(1),
        b"MSET" => Some(2),
        _ => None,
    }
}

/// Where the keys of a command are among its words.
///
/// # Errors
/// The reason why they are not known.
pub(super) fn key_positions(words: &[Vec<u8>]) -> Result<Vec<usize>> {
    let mut request = wire::resp::ArgumentsBuffer::new();
    words.iter().for_each(|word| request.push(word));
    Ok(commands::introspection::key_positions(request.as_arguments())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<u8>> {
        text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    fn rewritten(text: &str) -> String {
        let mut words = words(text);
        deadlines(&mut words, 1_000_000);
        String::from_utf8(words.join(&b' ')).unwrap()
    }

    #[test]
    fn deadlines_are_put_off_in_every_form() {
        let at = |ms: u64| ms + PUT_OFF_MS;
        for (given, expected) in [
            ("SET k v PXAT 5", format!("SET k v PXAT {}", at(5))),
            ("set k v nx ex 5", format!("set k v nx PXAT {}", at(1_005_000))),
            ("SET k PX", "SET k PX".into()),
            ("SET k v KEEPTTL", "SET k v KEEPTTL".into()),
            ("SETEX k 5 v", format!("SET k v PXAT {}", at(1_005_000))),
            ("PSETEX k 5 v", format!("SET k v PXAT {}", at(1_000_005))),
            ("EXPIRE k 7 NX", format!("PEXPIREAT k {} NX", at(1_007_000))),
            ("pexpire k 7", format!("PEXPIREAT k {}", at(1_000_007))),
            ("EXPIREAT k 7", format!("PEXPIREAT k {}", at(7000))),
            ("PEXPIREAT k -7", format!("PEXPIREAT k {}", at(0))),
            ("GETEX k EXAT 9", format!("GETEX k PXAT {}", at(9000))),
            ("RESTORE k 0 p ABSTTL", "RESTORE k 0 p ABSTTL".into()),
            ("RESTORE k 9 p absttl", format!("RESTORE k {} p absttl", at(9))),
            ("RESTORE-ASKING k 9 p REPLACE", format!("RESTORE k {} p REPLACE ABSTTL", at(1_000_009))),
            ("PERSIST k", "PERSIST k".into()),
            ("LPUSH k EX 5", "LPUSH k EX 5".into()),
        ] {
            assert_eq!(rewritten(given), expected);
        }
    }

    #[test]
    fn keys_are_found() {
        for (given, expected) in [
            ("MSET a 1 b 2", vec![1, 3]),
            ("DEL a b c", vec![1, 2, 3]),
            ("ZUNIONSTORE d 2 a b WEIGHTS 1 2", vec![1, 3, 4]),
            ("SORT a STORE b", vec![1, 3]),
            ("EVAL s 2 a b c", vec![3, 4]),
            ("XGROUP CREATE s g 0", vec![2]),
        ] {
            assert_eq!(key_positions(&words(given)).unwrap(), expected, "{given}");
        }
    }
}

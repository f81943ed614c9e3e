//! Whether two files hold the same keys.

use std::collections::BTreeMap;
use std::io::Read;

use anyhow::{Context as _, Result, bail};
use rdb::Kind;
use rdb::file::FileReader;
use rdb::write::put_text;

use crate::digest::digest;
use crate::keys::{self, Destination, Rules, Sink, refused};

/// A number that is the same for two files of database 0 if their keys, deadlines and values are, in whatever order and
/// form. Keys whose deadline is at or before `expired_ms`, in milliseconds since the Unix epoch, do not count.
///
/// # Errors
/// If it is not such a file, or is damaged: the error names the place. Or if it has something that no cluster accepts, such
/// as values of modules.
pub fn sum(file: impl Read, expired_ms: u64) -> Result<u64> {
    let destinations = BTreeMap::from([(0, Destination::default())]);
    let mut sum = Sum::default();
    let rules = Rules { destinations, expired_ms, string_bytes_max: usize::MAX, goes_on: false };
    keys::read(&mut FileReader::new(file)?, &rules, &mut sum)?;
    Ok(sum.0)
}

#[derive(Default)]
struct Sum(u64);

impl Sum {
    fn add(&mut self, parts: &[&[u8]]) {
        let mut bytes = Vec::new();
        parts.iter().for_each(|part| put_text(part, &mut bytes));
        self.0 = self.0.wrapping_add(kv::digest::digest_of(&bytes));
    }
}

impl Sink for Sum {
    fn select(&mut self, database: u8) -> Result<()> {
        match database {
            0 => Ok(()),
            other => bail!("there are keys of database {other}"),
        }
    }

    fn text(&mut self, key: &[u8], deadline_ms: Option<u64>, text: &[u8]) -> Result<()> {
        self.add(&[b"text", key, &deadline_ms.unwrap_or(0).to_le_bytes(), text]);
        Ok(())
    }

    fn payload(&mut self, key: &[u8], deadline_ms: Option<u64>, _: Kind, payload: &[u8]) -> Result<()> {
        let value = digest(payload).context("a value that cannot be read")?.to_le_bytes();
        self.add(&[b"value", key, &deadline_ms.unwrap_or(0).to_le_bytes(), &value]);
        Ok(())
    }

    fn begin_pieces(&mut self, _: &[u8]) -> Result<bool> {
        Ok(true)
    }

    fn piece(&mut self, key: &[u8], request: &[u8]) -> Result<()> {
        self.add(&[b"piece", key, request]);
        Ok(())
    }

    fn end_pieces(&mut self, key: &[u8], deadline_ms: Option<u64>, _: Kind) -> Result<()> {
        self.add(&[b"pieces", key, &deadline_ms.unwrap_or(0).to_le_bytes()]);
        Ok(())
    }

    fn refuse(&mut self, reason: &str, what: &[u8]) -> Result<()> {
        Err(refused(reason, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::{Command, Condition, Deadline, Expiry, ReplyBuffer, SetAnswer, Table};

    fn file(keys: &[(&str, &str, Option<i64>)]) -> Vec<u8> {
        let mut table = Table::new(7);
        for (offset, (key, value, deadline)) in (1..).zip(keys) {
            let expiry = deadline.map_or(Expiry::Clear, |at| Expiry::Set(Deadline::At(at)));
            let (condition, answer) = (Condition::Always, SetAnswer::Status);
            let (key, value) = (key.as_bytes(), value.as_bytes());
            let set = Command::Set { key, value, expiry, condition, answer };
            table.apply(&set, offset, 0, &mut ReplyBuffer::new());
        }
        table.dump_all()
    }

    #[test]
    fn only_files_with_the_same_keys_have_the_same_sum() {
        let sum_of = |keys: &[_], expired_ms| sum(&file(keys)[..], expired_ms).unwrap();
        let one = sum_of(&[("a", "1", None), ("b", "2", Some(5000))], 0);
        assert_eq!(one, sum_of(&[("b", "2", Some(5000)), ("a", "1", None)], 0));
        for other in [
            &[("a", "1", None)][..],
            &[("a", "2", None), ("b", "1", Some(5000))],
            &[("a", "1", None), ("b", "2", Some(5001))],
            &[("a", "1", None), ("b", "2", None)],
        ] {
            assert_ne!(one, sum_of(other, 0));
        }
        assert_eq!(sum_of(&[("a", "1", None), ("b", "2", Some(5000))], 5000), sum_of(&[("a", "1", None)], 0));
    }

    #[test]
    fn a_damaged_file_has_no_sum() {
        let file = file(&[("a", "1", None)]);
        assert!(sum(&file[..file.len() - 12], 0).is_err());
        assert!(sum(&b"REDIS"[..], 0).is_err());
    }

    #[test]
    fn a_file_with_module_data_has_no_sum() {
        // A module's data beside the keys: its number, when it must be read, and nothing else.
        let module = [&b"REDIS0012\xf7\x81"[..], &[1; 8], &[2, 1, 0], &[0xff], &[0; 8]].concat();
        let why = sum(&module[..], 0).unwrap_err().to_string();
        assert!(why.contains("what a module wrote beside its keys"), "{why}");
    }
}

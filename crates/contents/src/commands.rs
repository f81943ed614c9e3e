//! Append-only files: the commands in them, as clients send them, and remarks between the commands.

use std::io::Read;

use rdb::{Fault, Source};

/// Most words of a command, and longest word.
const WORDS: usize = 1 << 20;
const WORD_BYTES: u64 = 512 << 20;

/// An element of an append-only file.
pub enum Item {
    /// The words of a command.
    Command(Vec<Vec<u8>>),
    /// The text after `#`, such as the time at which the following commands were written.
    Remark(Vec<u8>),
}

/// Reads the next item.
///
/// # Errors
/// [`Fault`] if the bytes are neither a command nor a remark.
pub fn item<R: Read>(source: &mut Source<R>) -> Result<Item, Fault> {
    let line = line(source)?;
    match line.split_first() {
        Some((b'#', remark)) => Ok(Item::Remark(remark.to_vec())),
        Some((b'*', count)) => {
            let count = number(count, WORDS as u64).ok_or_else(|| damaged(source))?;
            Ok(Item::Command((0..count).map(|_| word(source)).collect::<Result<_, Fault>>()?))
        }
        _ => Err(damaged(source)),
    }
}

fn damaged<R: Read>(source: &Source<R>) -> Fault {
    Fault::Damaged(rdb::Damaged { at: source.at(), why: "this is no command" })
}

fn number(text: &[u8], most: u64) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok().filter(|number| *number <= most)
}

fn word<R: Read>(source: &mut Source<R>) -> Result<Vec<u8>, Fault> {
    let line = line(source)?;
    let length = line.strip_prefix(b"$").and_then(|text| number(text, WORD_BYTES));
    let length = length.ok_or_else(|| damaged(source))?;
    let mut bytes = Vec::new();
    source.bytes(length, &mut bytes)?;
    if source.array()? == *b"\r\n" { Ok(bytes) } else { Err(damaged(source)) }
}

fn line<R: Read>(source: &mut Source<R>) -> Result<Vec<u8>, Fault> {
    const BYTES: usize = 100;
    let mut line = Vec::new();
    loop {
        match source.byte()? {
            b'\n' => break,
            byte if line.len() < BYTES => line.push(byte),
            _ => return Err(damaged(source)),
        }
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(line)
}

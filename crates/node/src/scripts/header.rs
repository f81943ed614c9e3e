//! The first line of a script, if it begins with `#!`: its language and flags.

/// The other flags that Redis knows, beside `no-writes`: none concerns anything that exists here.
const OTHER_FLAGS: [&str; 4] = ["allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

/// A script's text, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Header<'a> {
    /// Whether the script declares that it only reads.
    pub(crate) no_writes: bool,
    /// The program. It begins with the end of the first line, so that lines keep their numbers.
    pub(super) body: &'a [u8],
}

impl<'a> Header<'a> {
    /// Splits the header from a text.
    ///
    /// # Errors
    /// The text of Redis's error.
    pub(crate) fn of(text: &'a [u8]) -> Result<Header<'a>, String> {
        if !text.starts_with(b"#!") {
            return Ok(Header { no_writes: false, body: text });
        }
        let Some(end) = text.iter().position(|byte| *byte == b'\n') else {
            return Err("ERR Invalid script shebang".into());
        };
        let line = String::from_utf8_lossy(&text[..end]);
        let mut words = line.split_ascii_whitespace();
        let engine = words.next().unwrap_or_default();
        if engine != "#!lua" {
            return Err(format!("ERR Unexpected engine in script shebang: {engine}"));
        }
        let mut header = Header { no_writes: false, body: &text[end..] };
        for option in words {
            let Some(flags) = option.strip_prefix("flags=") else {
                return Err(format!("ERR Unknown lua shebang option: {option}"));
            };
            for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
                match flag {
                    "no-writes" => header.no_writes = true,
                    flag if OTHER_FLAGS.contains(&flag) => {}
                    flag => return Err(format!("ERR Unexpected flag in script shebang: {flag}")),
                }
            }
        }
        Ok(header)
    }
}

//! The first line of a script or library, if it begins with `#!`: its language, and what it declares.

use cluster::libraries::{Flag, is_name};

/// A script's text, split into its parts.
#[derive(Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The flags that the script declares; `None` without a header, when it may write.
    pub flags: Option<Vec<Flag>>,
    /// The program. It begins with the line break after the header, so that lines keep their numbers.
    pub(super) body: &'a [u8],
}

impl<'a> Header<'a> {
    /// Splits the header from a text.
    ///
    /// # Errors
    /// The text of Redis's error.
    pub fn of(text: &'a [u8]) -> Result<Header<'a>, String> {
        if !text.starts_with(b"#!") {
            return Ok(Header { flags: None, body: text });
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
        let mut flags = Vec::new();
        for option in words {
            let Some(names) = option.strip_prefix("flags=") else {
                return Err(format!("ERR Unknown lua shebang option: {option}"));
            };
            for name in names.split(',').filter(|name| !name.is_empty()) {
                let flag = Flag::parse(name.as_bytes());
                flags.push(flag.ok_or_else(|| format!("ERR Unexpected flag in script shebang: {name}"))?);
            }
        }
        Ok(Header { flags: Some(flags), body: &text[end..] })
    }

    /// Whether the script declares that it only reads.
    pub fn only_reads(&self) -> bool {
        self.flags.as_ref().is_some_and(|flags| flags.contains(&Flag::NoWrites))
    }
}

/// A library's text, split into its parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LibraryHeader<'a> {
    pub(super) name: String,
    /// The program, as in [`Header`].
    pub(super) body: &'a [u8],
}

/// Redis's error for a name of a library or function.
pub(super) const WRONG_NAME: &str = "ERR Library names can only contain letters, numbers, or underscores(_) and must be \
     at least one character long";

impl<'a> LibraryHeader<'a> {
    /// Splits the header from a text.
    ///
    /// # Errors
    /// The text of Redis's error.
    pub(super) fn of(text: &'a [u8]) -> Result<LibraryHeader<'a>, String> {
        if !text.starts_with(b"#!") {
            return Err("ERR Missing library metadata".into());
        }
        let Some(end) = text.iter().position(|byte| *byte == b'\n') else {
            return Err("ERR Invalid library metadata".into());
        };
        let line = String::from_utf8_lossy(&text[2..end]);
        let (engine, options) = line.split_once([' ', '\t', '\r']).unwrap_or((&line, ""));
        if !engine.eq_ignore_ascii_case("lua") {
            return Err(format!("ERR Engine '{engine}' not found"));
        }
        let mut name = None;
        for option in options.split_ascii_whitespace() {
            let known = option.split_once('=').filter(|(option, _)| option.eq_ignore_ascii_case("name"));
            let Some((_, value)) = known else {
                return Err(format!("ERR Invalid metadata value given: {option}"));
            };
            if name.is_some() {
                return Err("ERR Invalid metadata value, name argument was given multiple times".into());
            }
            let quoted =
                ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
            name = Some(quoted.unwrap_or(value).to_string());
        }
        let name = name.ok_or("ERR Library name was not given")?;
        match is_name(name.as_bytes()) {
            true => Ok(LibraryHeader { name, body: &text[end..] }),
            false => Err(WRONG_NAME.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_names_itself_in_its_first_line() {
        for (text, name) in
            [("#!lua name=a_1\n", "a_1"), ("#!LUA  NAME=\"b\" \n", "b"), ("#!lua name='c'\r\n", "c")]
        {
            let header = LibraryHeader::of(text.as_bytes()).unwrap();
            assert_eq!((&*header.name, header.body), (name, &b"\n"[..]), "{text}");
        }
        for (text, error) in [
            ("return 1", "ERR Missing library metadata"),
            ("#!lua name=a", "ERR Invalid library metadata"),
            ("#! name=a\n", "ERR Engine '' not found"),
            ("#!js name=a\n", "ERR Engine 'js' not found"),
            ("#!lua\n", "ERR Library name was not given"),
            ("#!lua name=a foo=b\n", "ERR Invalid metadata value given: foo=b"),
            ("#!lua name=a name=b\n", "ERR Invalid metadata value, name argument was given multiple times"),
            ("#!lua name=a-b\n", WRONG_NAME),
            ("#!lua name=\"a\n", WRONG_NAME),
            ("#!lua name=\n", WRONG_NAME),
        ] {
            assert_eq!(LibraryHeader::of(text.as_bytes()), Err(error.to_string()), "{text}");
        }
    }

    #[test]
    fn the_text_of_a_library_is_not_a_script() {
        assert_eq!(
            Header::of(b"#!lua name=a\nreturn 1"),
            Err("ERR Unknown lua shebang option: name=a".to_string()),
            "records tell the two apart by their headers"
        );
    }
}

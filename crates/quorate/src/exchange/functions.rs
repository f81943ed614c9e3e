//! Commands about libraries of Redis functions, in a form that may be repeated.

/// The command that loads a library, and replaces one of the same name.
pub(super) fn load(text: &[u8]) -> Vec<Vec<u8>> {
    [&b"FUNCTION"[..], b"LOAD", b"REPLACE", text].map(<[u8]>::to_vec).into()
}

/// The name of a library, in its first line.
pub(super) fn name(text: &[u8]) -> &[u8] {
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let option = line.split(u8::is_ascii_whitespace).find_map(|word| word.strip_prefix(b"name="));
    option.unwrap_or(line)
}

/// A server's command about functions, in a form that has the same effect when it is executed again. Options against conflicts
/// are not needed: on the server there was no conflict.
pub(super) fn repeatable(words: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let is = |at: usize, word: &str| words.get(at).is_some_and(|it| it.eq_ignore_ascii_case(word.as_bytes()));
    match words {
        [.., text] if is(1, "LOAD") => load(text),
        [_, _, payload, ..] if is(1, "RESTORE") && !is(3, "FLUSH") => {
            [&b"FUNCTION"[..], b"RESTORE", payload, b"REPLACE"].map(<[u8]>::to_vec).into()
        }
        _ => words.to_vec(),
    }
}

/// Whether an error says that a library to be deleted does not exist: then it was deleted before.
pub(super) fn is_gone(words: &[Vec<u8>], error: &str) -> bool {
    words.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"DELETE"))
        && error.ends_with("Library not found")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_about_functions_may_be_repeated() {
        let words = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        for (given, repeatable_form) in [
            ("function load x", "FUNCTION LOAD REPLACE x"),
            ("FUNCTION LOAD REPLACE x", "FUNCTION LOAD REPLACE x"),
            ("FUNCTION RESTORE p", "FUNCTION RESTORE p REPLACE"),
            ("FUNCTION RESTORE p APPEND", "FUNCTION RESTORE p REPLACE"),
            ("FUNCTION RESTORE p FLUSH", "FUNCTION RESTORE p FLUSH"),
            ("FUNCTION DELETE x", "FUNCTION DELETE x"),
            ("FUNCTION FLUSH", "FUNCTION FLUSH"),
        ] {
            assert_eq!(repeatable(&words(given)), words(repeatable_form), "{given}");
        }
        assert_eq!(name(b"#!lua name=mine \nreturn 1"), b"mine");
        assert_eq!(name(b"#!lua\n"), b"#!lua");
        assert!(is_gone(&words("FUNCTION DELETE x"), "ERR Library not found"));
        assert!(!is_gone(&words("FUNCTION LOAD x"), "ERR Library not found"));
    }
}

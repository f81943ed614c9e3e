//! The log: one line per event, to standard error, as text or JSON. A quiet server logs its start and its stop.

use std::env::VarError;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use node::{Level, Line, one_line};
use tracing::field::Field;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::log_writer::{self, Settled};

/// The environment variable that sets the levels to log, such as `info` or `debug`.
const FILTER_VARIABLE: &str = "QUORATE_LOG";

/// The environment variable that sets the format.
const FORMAT_VARIABLE: &str = "QUORATE_LOG_FORMAT";

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The default filter.
const USUAL: &str = "info";

/// Writes the lines of a log.
type Lines = Box<dyn Layer<Registry> + Send + Sync>;

/// Sends the log to standard error. Does nothing if the program has set up a log of its own.
///
/// If standard error appends to a file that should be kept short, `file` is its name. When dropped, the returned value
/// waits for lines that are not written yet.
///
/// # Errors
/// The environment names something that is not a level, or not a format.
pub(crate) fn start(file: Option<PathBuf>) -> Result<Settled> {
    let filter = match std::env::var(FILTER_VARIABLE) {
        Ok(text) => filter(&text)?,
        Err(VarError::NotPresent) => filter(USUAL)?,
        Err(VarError::NotUnicode(_)) => bail!("{FILTER_VARIABLE}: it is not valid text"),
    };
    let is_json = is_json(std::env::var_os(FORMAT_VARIABLE).as_deref())?;
    let note = if is_json { note_in_json } else { note_in_words };
    let (writer, settled) =
        log_writer::start(file, note).context("cannot start the thread of the log's lines")?;
    let writer = move || writer.clone();
    let lines = if is_json { lines_in_json(writer) } else { lines_in_words(writer) };
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    Ok(settled)
}

/// Whether the environment asks for JSON.
fn is_json(format: Option<&OsStr>) -> Result<bool> {
    match format.map(|format| format.to_string_lossy()).as_deref() {
        None | Some("text") => Ok(false),
        Some("json") => Ok(true),
        Some(other) => bail!("{FORMAT_VARIABLE}={other}: it must be text or json"),
    }
}

/// The log writer's own line, about lines that were lost.
fn note_in_words(text: &str) -> String {
    format!("{text}\n")
}

/// The same in JSON.
fn note_in_json(text: &str) -> String {
    format!("{}\n", serde_json::json!({ "level": "WARN", "message": text, "target": "server::log_writer" }))
}

/// An object for each event, with its time, its level, its message and the part of the program it comes from.
fn lines_in_json(writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static) -> Lines {
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).json();
    lines.flatten_event(true).with_current_span(false).with_span_list(false).boxed()
}

/// A line of text for each event, with its time, its level and its message.
fn lines_in_words(writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static) -> Lines {
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_target(false).with_ansi(false);
    lines.fmt_fields(debug_fn(put_field)).boxed()
}

/// Writes a part of a line. Names and texts in it may come from anyone, and must not end the line.
fn put_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let text = format!("{value:?}");
    match field.name() {
        "message" => write!(writer, "{}", one_line(&text)),
        name => write!(writer, " {name}={}", one_line(&text)),
    }
}

/// Parses a filter: a level, or `part=level` for parts of the program, separated by commas.
///
/// A word that is not a level would be taken as the name of a part, and so silence everything else.
fn filter(text: &str) -> Result<Targets> {
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    for word in &words {
        let level = word.rsplit_once('=').map_or(*word, |(_, level)| level);
        ensure!(
            is_level(level),
            "{FILTER_VARIABLE}={text}: '{level}' is not a level; use error, warn, info, debug, trace or off"
        );
    }
    let has_level = words.iter().any(|word| !word.contains('='));
    let usual = if has_level { None } else { Some(USUAL) };
    let directives: Vec<&str> = usual.into_iter().chain(words).collect();
    directives.join(",").parse().with_context(|| format!("{FILTER_VARIABLE}={text}"))
}

/// Logs a line of the node.
pub(crate) fn line(line: &Line) {
    match line.level {
        Level::Info => tracing::info!("{}", line.text),
        Level::Warning => tracing::warn!("{}", line.text),
        Level::Error => tracing::error!("{}", line.text),
        Level::Audit => tracing::info!(target: "audit", "audit: {}", line.text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_filter_is_a_level_or_parts_with_levels() {
        for (text, expected) in [
            ("debug", "debug"),
            ("WARN", "warn"),
            ("off", "off"),
            ("", "info"),
            (" , ", "info"),
            ("hyper=debug", "hyper=debug,info"),
            ("hyper=debug,error", "hyper=debug,error"),
        ] {
            let directives = filter(text).unwrap().to_string();
            assert_eq!(directives, expected, "{text}");
        }
        for text in ["silly", "quorate", "3", "info,silly", "hyper=loud", "=", "hyper=", "[x"] {
            assert!(filter(text).is_err(), "{text}");
        }
    }

    /// Keeps the log's output.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn in_json_each_event_is_an_object_whatever_its_text() {
        let kept = Kept::default();
        let writer = kept.clone();
        let log = tracing_subscriber::registry().with(lines_in_json(move || writer.clone()));
        tracing::subscriber::with_default(log, || {
            line(&Line { level: Level::Warning, text: "one \"two\"\nthree".into() });
            line(&Line { level: Level::Audit, text: "four".into() });
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap() + &note_in_json("five");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect();
        let said = |at: usize, name: &str| lines[at][name].as_str().expect("it is there").to_owned();
        assert_eq!((said(0, "level"), said(0, "message")), ("WARN".into(), "one \"two\"\nthree".into()));
        assert_eq!((said(1, "target"), said(1, "message")), ("audit".into(), "audit: four".into()));
        assert_eq!(said(2, "message"), "five");
        assert!(said(0, "timestamp").ends_with('Z'));
    }

    #[test]
    fn a_format_other_than_text_or_json_is_refused() {
        assert!(!is_json(None).unwrap() && !is_json(Some(OsStr::new("text"))).unwrap());
        assert!(is_json(Some(OsStr::new("json"))).unwrap());
        let error = is_json(Some(OsStr::new("JSON "))).unwrap_err().to_string();
        assert_eq!(error, "QUORATE_LOG_FORMAT=JSON : it must be text or json");
    }

    #[test]
    fn logged_text_stays_in_its_line() {
        let kept = Kept::default();
        let writer = kept.clone();
        let log = tracing_subscriber::registry().with(lines_in_words(move || writer.clone()));
        tracing::subscriber::with_default(log, || {
            line(&Line { level: Level::Warning, text: "one\n2026 ERROR two\r\u{1b}[2J".into() });
            tracing::info!(host = "a\nb", "three {}", "four\u{2028}");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].ends_with(" WARN one\\n2026 ERROR two\\r\\u{1b}[2J"), "{text}");
        assert!(lines[1].contains("three four\\u{2028}") && !text.contains('\u{1b}'), "{text}");
    }
}

//! Files of keys, as `SAVE` writes them.

use crate::source::{Fault, Source};
use crate::value::{self, Form, Kind};
use crate::write::tag::LIBRARY;
use std::io::Read;

/// The newest versions of the format that are read: Redis's, and Valkey's own.
const REDIS_MAX: u32 = 16;
const VALKEY: std::ops::RangeInclusive<u32> = 80..=81;

/// An item of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A key. Its value follows: read it with [`value::read`], or over it with [`value::skip_module`] if it is a module's.
    Key {
        /// Its name.
        key: Vec<u8>,
        /// The key's deadline, in milliseconds since the Unix epoch.
        deadline_ms: Option<u64>,
        /// The number of its type.
        tag: u8,
        /// The form of its value.
        form: Form,
    },
    /// The keys that follow belong to this database.
    Database(u64),
    /// The text of a library of functions.
    Function(Vec<u8>),
    /// Data that a module wrote besides its values: the module's name.
    Module(String),
    /// A key whose value belongs to a module. The value follows.
    ModuleKey {
        /// The key.
        key: Vec<u8>,
        /// The module's name.
        module: String,
    },
    /// The end. The checksum, if there is one, is correct.
    End,
}

/// Reads a file from the front.
#[derive(Debug)]
pub struct FileReader<R> {
    source: Source<R>,
    version: u32,
}

impl<R: Read> FileReader<R> {
    /// Begins to read.
    ///
    /// # Errors [`Fault::Damaged`] if this is not such a file, or its version is unknown.
    pub fn new(inner: R) -> Result<FileReader<R>, Fault> {
        let mut source = Source::new(inner, 0);
        source.begin_checksum();
        let head: [u8; 9] = source.array()?;
        let digits = head.strip_prefix(b"REDIS").or_else(|| head.strip_prefix(b"VALKEY"));
        let version = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        let Some(version) = version.filter(|_| digits.is_some_and(|it| it.iter().all(u8::is_ascii_digit)))
        else {
            return Err(Fault::Damaged(crate::Damaged { at: 0, why: "this is no file of keys" }));
        };
        if !(1..=REDIS_MAX).contains(&version) && !VALKEY.contains(&version) {
            return Err(source.damaged("a version of the format that is not known"));
        }
        Ok(FileReader { source, version })
    }

    /// The version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The source from which values are read.
    pub fn source(&mut self) -> &mut Source<R> {
        &mut self.source
    }

    /// Returns the underlying reader.
    pub fn into_inner(self) -> R {
        self.source.into_inner()
    }

    /// Reads the next item.
    ///
    /// # Errors
    /// [`Fault`] if it cannot be read.
    pub fn item(&mut self) -> Result<Item, Fault> {
        let source = &mut self.source;
        let (mut text, mut deadline_ms) = (Vec::new(), None);
        loop {
            match source.byte()? {
                // The sizes of the tables, of a slot or of the database.
                244 => (0..3).try_for_each(|_| source.length().map(drop))?,
                251 => (0..2).try_for_each(|_| source.length().map(drop))?,
                LIBRARY => {
                    source.text(&mut text)?;
                    return Ok(Item::Function(text));
                }
                247 => {
                    let name = value::module_name(source.length()?);
                    value::skip_module(source)?;
                    return Ok(Item::Module(name));
                }
                // A key's idle time, or its frequency of use.
                248 => drop(source.length()?),
                249 => drop(source.byte()?),
                // The program that wrote the file, and the time.
                250 => {
                    source.text(&mut text)?;
                    source.text(&mut text)?;
                }
                252 => deadline_ms = Some(u64::from_le_bytes(source.array()?)),
                253 => deadline_ms = Some(u64::from(u32::from_le_bytes(source.array()?)) * 1000),
                254 => return Ok(Item::Database(source.length()?)),
                255 => return self.end(),
                tag => {
                    let Some(form) = Form::of(tag, self.version) else {
                        return Err(source.damaged("a value of a type that is not known"));
                    };
                    source.text(&mut text)?;
                    if form.kind() == Kind::Module {
                        let module = value::module_name(source.length()?);
                        return Ok(Item::ModuleKey { key: text, module });
                    }
                    return Ok(Item::Key { key: text, deadline_ms, tag, form });
                }
            }
        }
    }

    fn end(&mut self) -> Result<Item, Fault> {
        // Older versions have no checksum.
        if self.version >= 5 {
            let computed = self.source.checksum();
            let written = u64::from_le_bytes(self.source.array()?);
            if written != 0 && written != computed {
                return Err(self.source.damaged("the checksum is another one: the file is damaged"));
            }
        }
        Ok(Item::End)
    }
}

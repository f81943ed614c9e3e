//! Libraries of functions (`FUNCTION LOAD`), as the cluster map holds them. Plain data, independent of the language.

use commands::Text;
use kv::glob::Pattern;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The most bytes of one library: its text, and the names and descriptions of its functions.
const LIBRARY_BYTES_MAX: usize = 256 << 10;

/// The most bytes of all libraries together. The cluster map holds them, and every change of the map writes and sends
/// it whole: a failover must not wait for them.
pub const LIBRARIES_BYTES_MAX: usize = 512 << 10;

/// The most libraries of a cluster.
const LIBRARIES_MAX: usize = 256;

/// The longest name of a library or function.
pub const FUNCTION_NAME_BYTES_MAX: usize = 128;

/// The memory of a function or library, beside its bytes.
const ITEM_BYTES: usize = 64;

/// A property that a function, or a script with a header, declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flag {
    /// The function only reads.
    NoWrites,
    /// The function may run although its keyspace is full.
    AllowOom,
    /// In Redis: a replica that has lost its leader may run the function. Here it has no effect.
    AllowStale,
    /// The function does not run where the keyspace of its keys has several shards.
    NoCluster,
    /// In Redis: the function uses keys of several slots. Here it has no effect: all are in one shard.
    AllowCrossSlotKeys,
}

impl Flag {
    const ALL: [(Flag, &'static str); 5] = [
        (Flag::NoWrites, "no-writes"),
        (Flag::AllowOom, "allow-oom"),
        (Flag::AllowStale, "allow-stale"),
        (Flag::NoCluster, "no-cluster"),
        (Flag::AllowCrossSlotKeys, "allow-cross-slot-keys"),
    ];

    /// Finds a flag by its name in Redis.
    pub fn parse(name: &[u8]) -> Option<Flag> {
        Self::ALL.iter().find(|(_, known)| known.as_bytes() == name).map(|(flag, _)| *flag)
    }

    /// The flag's name in Redis.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(flag, _)| *flag == self).map_or("", |(_, name)| name)
    }
}

/// A function of a library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LibraryFunction {
    /// Its name, as the library gave it. Calls may use letters of either case.
    pub name: String,
    /// Its description, for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Text>,
    /// Its properties, in the order of [`Flag`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<Flag>,
}

/// A library: a program that registers functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Library {
    /// The library's text, including its header.
    pub text: Text,
    /// Its functions, in the order in which it registers them.
    pub functions: Vec<LibraryFunction>,
}

impl Library {
    fn bytes(&self) -> usize {
        let of = |function: &LibraryFunction| {
            let description = function.description.as_ref().map_or(0, |text| text.bytes_in_map());
            ITEM_BYTES + function.name.len() + description
        };
        ITEM_BYTES + self.text.bytes_in_map() + self.functions.iter().map(of).sum::<usize>()
    }
}

/// What to do with libraries that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// New libraries must have other names: `FUNCTION LOAD`.
    New,
    /// The same: `FUNCTION RESTORE`.
    Append,
    /// Libraries with the same names are replaced.
    Replace,
    /// All libraries are replaced.
    Flush,
}

/// A change of the libraries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Adds libraries; with none and [`Policy::Flush`] it removes all.
    Add {
        /// The libraries, by their names.
        libraries: Libraries,
        /// What to do with libraries that exist.
        policy: Policy,
    },
    /// Removes the library with this name.
    Delete(String),
}

/// The libraries of a cluster, by their names.
pub type Libraries = BTreeMap<String, Library>;

/// Changes the libraries.
///
/// # Errors
/// Redis's error, or one that names a limit. The libraries may be changed in part: the caller drops them.
pub fn apply(known: &mut Libraries, step: &Step) -> Result<(), String> {
    let (libraries, policy) = match step {
        Step::Delete(name) => return known.remove(name).map(drop).ok_or("Library not found".into()),
        Step::Add { libraries, policy } => (libraries, *policy),
    };
    if policy == Policy::Flush {
        known.clear();
    }
    for (name, library) in libraries {
        let bytes = library.bytes();
        if bytes > LIBRARY_BYTES_MAX {
            return Err(format!(
                "library '{name}' takes {bytes} bytes; at most {LIBRARY_BYTES_MAX} are allowed"
            ));
        }
        if known.insert(name.clone(), library.clone()).is_some() {
            match policy {
                Policy::New => return Err(format!("Library '{name}' already exists")),
                Policy::Append => return Err(exists(name)),
                Policy::Replace | Policy::Flush => {}
            }
        }
    }
    let mut functions = BTreeSet::new();
    for library in known.values() {
        for function in &library.functions {
            if !functions.insert(function.name.to_ascii_lowercase()) {
                return Err(format!("Function {} already exists", function.name));
            }
        }
    }
    let (count, bytes) = (known.len(), known.values().map(Library::bytes).sum::<usize>());
    if count > LIBRARIES_MAX {
        return Err(format!("a cluster can have {LIBRARIES_MAX} libraries at most"));
    }
    if bytes > LIBRARIES_BYTES_MAX {
        return Err(too_many_bytes(bytes as u64));
    }
    Ok(())
}

/// The error for libraries that are too large together.
pub fn too_many_bytes(bytes: u64) -> String {
    format!("all libraries together would take {bytes} bytes; at most {LIBRARIES_BYTES_MAX} are allowed")
}

/// Redis's error for a library of `FUNCTION RESTORE` whose name another one has.
pub fn exists(name: &str) -> String {
    format!("Library {name} already exists")
}

/// Whether a library or function may have this name.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// The libraries whose names match a pattern, in the order of their names.
pub fn matching<'l>(
    libraries: &'l Libraries,
    pattern: Option<&[u8]>,
) -> impl Iterator<Item = (&'l String, &'l Library)> {
    let pattern = pattern.map(Pattern::new);
    libraries.iter().filter(move |(name, _)| pattern.as_ref().is_none_or(|it| it.matches(name.as_bytes())))
}

/// A function, ready to be called.
#[derive(Debug)]
pub struct Callable {
    /// The text of its library.
    pub library: Rc<[u8]>,
    /// Its name, as the library gave it.
    pub name: Box<[u8]>,
    /// Its properties.
    pub flags: Vec<Flag>,
}

/// The functions of this node's cluster map, by their names.
#[derive(Debug, Default)]
pub struct Functions {
    version: u64,
    libraries: Libraries,
    /// By their names in small letters.
    callable: BTreeMap<Box<[u8]>, Rc<Callable>>,
}

impl Functions {
    /// Follows the libraries of the map with this version. O(1) if it follows that version already.
    pub fn follow(&mut self, version: u64, libraries: &Libraries) {
        if version == self.version {
            return;
        }
        self.version = version;
        if *libraries == self.libraries {
            return;
        }
        self.libraries.clone_from(libraries);
        self.callable.clear();
        for library in libraries.values() {
            let text: Rc<[u8]> = library.text.bytes().into();
            for function in &library.functions {
                let flags = function.flags.clone();
                let name = function.name.as_bytes().into();
                let callable = Rc::new(Callable { library: Rc::clone(&text), name, flags });
                self.callable.insert(function.name.to_ascii_lowercase().into_bytes().into(), callable);
            }
        }
    }

    /// The function with this name, in letters of either case. O(log N).
    pub fn find(&self, name: &[u8]) -> Option<&Rc<Callable>> {
        let mut small = [0; FUNCTION_NAME_BYTES_MAX];
        let small = small.get_mut(..name.len())?;
        small.copy_from_slice(name);
        small.make_ascii_lowercase();
        self.callable.get(&*small)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(functions: &[&str], text: &[u8]) -> Library {
        let function =
            |name: &&str| LibraryFunction { name: (*name).into(), description: None, flags: Vec::new() };
        Library { text: Text::new(text), functions: functions.iter().map(function).collect() }
    }

    fn add(known: &mut Libraries, policy: Policy, libraries: &[(&str, Library)]) -> Result<(), String> {
        let named = libraries.iter().map(|(name, library)| ((*name).to_string(), library.clone()));
        let mut next = known.clone();
        apply(&mut next, &Step::Add { libraries: named.collect(), policy })?;
        *known = next;
        Ok(())
    }

    #[test]
    fn policies_decide_about_libraries_that_exist() {
        let mut known = Libraries::new();
        let old = library(&["f"], b"old");
        let new = library(&["g"], b"new");
        assert_eq!(add(&mut known, Policy::New, &[("one", old.clone())]), Ok(()));
        let refused = add(&mut known, Policy::New, &[("one", new.clone())]);
        assert_eq!(refused, Err("Library 'one' already exists".into()));
        let refused = add(&mut known, Policy::New, &[("two", new.clone()), ("one", new.clone())]);
        assert_eq!(refused, Err("Library 'one' already exists".into()));
        assert_eq!(add(&mut known, Policy::Replace, &[("one", new.clone())]), Ok(()));
        assert_eq!(known, Libraries::from([("one".into(), new)]));
        assert_eq!(add(&mut known, Policy::Flush, &[("two", old)]), Ok(()));
        assert_eq!(known.keys().collect::<Vec<_>>(), ["two"]);
        assert_eq!(apply(&mut known, &Step::Delete("one".into())), Err("Library not found".into()));
        assert_eq!(apply(&mut known, &Step::Delete("two".into())), Ok(()));
        assert!(known.is_empty());
    }

    #[test]
    fn a_function_name_is_in_one_library_whatever_its_case() {
        let mut known = Libraries::new();
        assert_eq!(add(&mut known, Policy::New, &[("one", library(&["f"], b""))]), Ok(()));
        let refused = add(&mut known, Policy::New, &[("two", library(&["F"], b""))]);
        assert_eq!(refused, Err("Function F already exists".into()));
    }

    #[test]
    fn libraries_are_bounded() {
        let mut known = Libraries::new();
        let long = vec![b'x'; LIBRARY_BYTES_MAX];
        let refused = add(&mut known, Policy::New, &[("one", library(&["f"], &long))]);
        assert!(refused.unwrap_err().contains("at most 262144 are allowed"));
        let half = &long[..LIBRARY_BYTES_MAX / 2];
        let halves = |function| library(&[function], half);
        for (name, function) in [("one", "f"), ("two", "g"), ("three", "h")] {
            assert_eq!(add(&mut known, Policy::New, &[(name, halves(function))]), Ok(()));
        }
        let refused = add(&mut known, Policy::New, &[("four", halves("i"))]);
        assert!(refused.unwrap_err().starts_with("all libraries together would take"));
        let many: Vec<String> = (0..LIBRARIES_MAX + 1).map(|number| format!("n{number}")).collect();
        let all: Vec<(&str, Library)> =
            many.iter().map(|name| (name.as_str(), library(&[name], b""))).collect();
        let refused = add(&mut known, Policy::Flush, &all);
        assert_eq!(refused, Err("a cluster can have 256 libraries at most".into()));
        assert_eq!(add(&mut known, Policy::Flush, &all[1..]), Ok(()));
    }

    #[test]
    fn functions_are_found_in_letters_of_either_case() {
        let mut functions = Functions::default();
        let libraries = Libraries::from([("one".to_string(), library(&["DoIt"], b"text"))]);
        functions.follow(1, &libraries);
        assert_eq!(&*functions.find(b"dOiT").unwrap().name, b"DoIt");
        assert!(functions.find(b"do").is_none());
        assert!(functions.find(&[b'x'; FUNCTION_NAME_BYTES_MAX + 1]).is_none());
        functions.follow(2, &Libraries::new());
        assert!(functions.find(b"doit").is_none());
    }
}

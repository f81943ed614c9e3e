//! A virtual environment with the Python packages that a study's own Python programs need.
//!
//! Its packages come from the Python index that pip is configured for, at pinned versions, and only on request. It
//! stays in the user's cache folder; other requirements have another environment.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{Missing, find_program};

/// A virtual environment, which may not exist yet.
#[derive(Clone, Debug)]
pub struct PythonEnvironment {
    folder: PathBuf,
    requirements: &'static str,
}

impl PythonEnvironment {
    /// The environment for these requirements, in pip's format.
    pub fn new(name: &str, requirements: &'static str) -> PythonEnvironment {
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
        let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
        let cache = cache.or_else(home).unwrap_or_else(std::env::temp_dir);
        let name = format!("{name}-{:08x}", crc32fast::hash(requirements.as_bytes()));
        PythonEnvironment { folder: cache.join("quorate-lab").join(name), requirements }
    }

    /// The path of its interpreter.
    pub fn python(&self) -> PathBuf {
        self.folder.join("bin/python")
    }

    /// Runs Python with these arguments and returns its output.
    ///
    /// # Errors
    /// There is no Python, or the program fails: `what` is missing, and `install` installs it.
    pub fn ask<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
        what: &str,
        install: &str,
    ) -> Result<String, Missing> {
        find_program("python3").ok_or_else(no_python)?;
        let missing = || Missing { what: what.to_owned(), install: install.to_owned() };
        let output = Command::new(self.python()).args(arguments).stdin(Stdio::null()).output();
        let output = output.ok().filter(|output| output.status.success()).ok_or_else(missing)?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Creates the environment again and installs the packages. Reports each step to `say`.
    ///
    /// # Errors
    /// There is no Python with `venv`, or the packages are not available.
    pub fn install(&self, packages: &str, say: &mut dyn FnMut(&str)) -> Result<()> {
        let Some(python) = find_program("python3") else { bail!("{}", no_python()) };
        fs::create_dir_all(&self.folder).with_context(|| format!("cannot make {}", self.folder.display()))?;
        say(&format!("making a virtual environment in {}", self.folder.display()));
        run(&python, [OsStr::new("-m"), "venv".as_ref(), "--clear".as_ref(), self.folder.as_os_str()])
            .context("python3 -m venv failed; install it with: apt-get install python3-venv")?;
        let requirements = self.folder.join("requirements.txt");
        fs::write(&requirements, self.requirements)?;
        say(&format!("installing {packages} with pip"));
        let words = ["-m", "pip", "install", "--quiet", "-r"].map(OsStr::new);
        run(&self.python(), words.into_iter().chain([requirements.as_os_str()]))
            .context("pip could not install")?;
        Ok(())
    }
}

fn no_python() -> Missing {
    Missing {
        what: "there is no python3 on the PATH".to_owned(),
        install: "apt-get install python3 python3-venv".to_owned(),
    }
}

/// Runs a program to its end. Its output is reported only when it fails.
fn run<'a>(program: &Path, arguments: impl IntoIterator<Item = &'a OsStr>) -> Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = text.lines().rev().take(3).collect();
        bail!("{}: {}", output.status, last.into_iter().rev().collect::<Vec<_>>().join(" "));
    }
    Ok(())
}

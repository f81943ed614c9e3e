//! What tests need of a machine beyond a compiler: clients, servers, libraries, rights.
//!
//! A test that lacks something is skipped with a line that says what to install. With `QUORATE_REQUIRE_CLIENTS` in the
//! environment, as in CI, it fails: no test passes there because it did not run.

use std::fmt::Display;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

/// Skips what comes next for a reason, or fails where that is not allowed.
#[track_caller]
pub(crate) fn skip(why: impl Display) {
    assert!(
        std::env::var_os("QUORATE_REQUIRE_CLIENTS").is_none(),
        "{why}; with QUORATE_REQUIRE_CLIENTS set, no test is skipped"
    );
    println!("skipped: {why}");
}

/// The same where only root may do what is needed: all others may skip it.
#[track_caller]
pub(crate) fn skip_without_rights(why: impl Display) {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    match is_root {
        true => skip(why),
        false => println!("skipped: {why}"),
    }
}

/// Whether a command succeeds. Nobody sees its output.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Whether a client is installed, which `probe` shows.
#[track_caller]
pub(crate) fn is_installed(what: &str, probe: &mut Command) -> bool {
    let found = succeeds(probe);
    if !found {
        skip(format_args!("{what} is not installed"));
    }
    found
}

/// Whether a command has fetched or built what a test needs.
#[track_caller]
pub(crate) fn is_prepared(what: &str, command: &mut Command) -> bool {
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => return true,
        Ok(output) => {
            let (printed, error) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            skip(format_args!("{what} cannot be had: {command:?}: {printed}{error}"));
        }
        Err(error) => skip(format_args!("{what} cannot be had: {command:?}: {error}")),
    }
    false
}

/// Whether redis-server is of this version, or one that begins so: replies and errors differ between versions.
#[track_caller]
pub(crate) fn is_redis_of(version: &str) -> bool {
    let said = Command::new("redis-server").arg("--version").output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let is_it = said.as_ref().is_ok_and(|said| said.contains(&format!(" v={version}")));
    if !is_it {
        skip(format_args!(
            "replies are compared with those of redis-server {version} (Debian 12 has a package of 7.0.15), and here is {said:?}"
        ));
    }
    is_it
}

//! Completion for shells, and manual pages: both generated from the definition of the command line, so they are never out
//! of date.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, Command};
use clap_complete::Shell;

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  quorate completions bash > /usr/share/bash-completion/completions/quorate
  quorate completions zsh > \"${fpath[1]}/_quorate\"
  quorate completions fish > ~/.config/fish/completions/quorate.fish";

const MANUAL_EXAMPLES: &str = "\
Examples:
  quorate man /usr/local/share/man/man1
  quorate man . && man ./quorate-status.1";

/// Write a shell's completion of quorate's commands and flags.
#[derive(Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Write a manual page for each command.
#[derive(Args)]
#[command(after_help = MANUAL_EXAMPLES)]
pub(crate) struct ManualArgs {
    /// The folder for the pages; created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes the completion to standard output.
///
/// # Errors
/// It cannot be written.
pub(crate) fn complete(args: &CompletionsArgs, mut command: Command) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "quorate", &mut text);
    match std::io::stdout().write_all(&text) {
        // Its reader needs no more.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

/// Writes the pages into a folder.
///
/// # Errors
/// The folder cannot be made, or a page cannot be written.
pub(crate) fn pages(args: &ManualArgs, command: Command) -> Result<()> {
    let folder = &args.folder;
    let cannot = || format!("cannot write manual pages into {}", folder.display());
    std::fs::create_dir_all(folder).with_context(cannot)?;
    clap_mangen::generate_to(command, folder).with_context(cannot)
}

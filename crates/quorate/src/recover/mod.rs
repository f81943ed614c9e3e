//! `quorate recover`: shows what is left when a majority of the control nodes is lost, and continues with that.
//!
//! It works offline, on the folders of stopped nodes. Without `--accept-loss` it only reports. The decisions and why they
//! are safe are in `cluster::recovery`; here they are requested, printed, and carried out in this order: read all folders,
//! plan, copy all, write all. Machines that cannot access each other's folders exchange what was found in them as files.

mod text;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use cluster::recovery::{Plan, Survivor};
use serde_json::{Value, json};
use server::Config;
use server::recovery::{StoppedNode, save, saved};

use crate::output::say;

const EXAMPLES: &str = "\
Examples:
  quorate recover --dir data/node-3 --dir data/node-4                   what is left, and what is lost; changes nothing
  quorate recover --dir data/node-3 --dir data/node-4 --accept-loss     continue with that

If each folder is on a machine of its own, on each machine, with its node stopped:
  quorate recover --config /etc/quorate/quorate.toml --save node-3.json
then, with the files of all other machines (--with for each), on each of them again:
  quorate recover --config /etc/quorate/quorate.toml --with node-4.json
  quorate recover --config /etc/quorate/quorate.toml --with node-4.json --accept-loss

Give all folders that are left, also those of nodes that are not control nodes: a folder that is left out counts as lost, and
can never return. First try to start what is down: as long as a majority of the control nodes can be started, nothing is lost.";

/// Continue with the folders that are left when a majority of the control nodes is lost
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RecoverArgs {
    /// The folder of a stopped node, with its quorate.toml. May be given several times
    #[arg(long, value_name = "DIR")]
    dir: Vec<PathBuf>,

    /// The configuration file of a stopped node, if it is not in the node's folder. May be given several times
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,

    /// A file that --save has written on another machine, about the remaining nodes there. May be given several times
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,

    /// Write what is found in these folders to a file for other machines, and do nothing else. The file contains the
    /// hashes of the users' passwords
    #[arg(long, value_name = "FILE", conflicts_with_all = ["accept_loss", "with"])]
    save: Option<PathBuf>,

    /// Confirm: give up what is lost, and continue with what is left
    #[arg(long)]
    accept_loss: bool,

    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// Reports what is left, and continues with it if that was requested.
///
/// # Errors
/// A sentence that says which folder cannot be used, or what else is wrong. Then nothing was changed, unless the
/// sentence says otherwise.
pub(crate) fn run(args: &RecoverArgs) -> Result<()> {
    server::files::make_for_owner_alone();
    let nodes = lock(args)?;
    let own = nodes.iter().map(StoppedNode::read).collect::<Result<Vec<Survivor>>>()?;
    if let Some(file) = &args.save {
        save(file, &own)?;
        return say_saved(args, file, &own);
    }
    let survivors = all(&own, &args.with)?;
    let plan = Plan::new(&survivors).map_err(anyhow::Error::msg)?;
    if !args.accept_loss {
        return tell(args, &nodes, &survivors, &plan, &[]);
    }
    ensure!(
        !plan.is_needless(),
        "nothing has to be recovered: enough of every group is left. Start these nodes; a lost node is replaced while the \
         others serve (quorate node replace, quorate node remove)"
    );
    let back_up = |node: &StoppedNode| -> Result<PathBuf> {
        // Without the `.` by which a configuration file may name its own folder.
        Ok(node.back_up(&plan, &survivors)?.components().collect())
    };
    let copies = nodes.iter().map(back_up).collect::<Result<Vec<_>>>()?;
    for (done, node) in nodes.iter().enumerate() {
        let found = own.iter().find(|found| found.node == node.node()).context("each folder was read")?;
        node.write(&plan, found).with_context(|| {
            format!(
                "the recovery was interrupted: {done} of {} folders are written. Do not start any of these nodes. Finish it \
                 with the folders that are not written, and --with {}",
                nodes.len(),
                copies[done].join("facts.json").display()
            )
        })?;
    }
    tell(args, &nodes, &survivors, &plan, &copies)
}

/// Locks the folders, so that no node is started in the meantime.
fn lock(args: &RecoverArgs) -> Result<Vec<StoppedNode>> {
    let in_folder = |folder: &PathBuf| -> Result<PathBuf> {
        let file = folder.join("quorate.toml");
        ensure!(
            file.is_file(),
            "there is no quorate.toml in {}: give the node's configuration file with --config",
            folder.display()
        );
        Ok(file)
    };
    let mut files = args.dir.iter().map(in_folder).collect::<Result<Vec<_>>>()?;
    files.extend(args.config.iter().cloned());
    ensure!(!files.is_empty(), "give the folders that are left, with --dir or --config");
    files.iter().map(|file| StoppedNode::lock(Config::read(file)?)).collect()
}

/// These folders, and those on other machines.
fn all(own: &[Survivor], files: &[PathBuf]) -> Result<Vec<Survivor>> {
    let mut survivors = own.to_vec();
    for file in files {
        for other in saved(file)? {
            match survivors.iter().find(|known| known.node == other.node) {
                None => survivors.push(other),
                Some(known) if *known == other => {}
                Some(_) => bail!(
                    "{} has node {} otherwise than it is found now: it was started since. Write the files again, on all \
                     machines",
                    file.display(),
                    other.node
                ),
            }
        }
    }
    Ok(survivors)
}

fn say_saved(args: &RecoverArgs, file: &Path, own: &[Survivor]) -> Result<()> {
    let nodes: Vec<_> = own.iter().map(|found| found.node).collect();
    if args.json {
        return print(&json!({ "saved": file.display().to_string(), "nodes": nodes }));
    }
    say(&format!("what the folders of nodes {nodes:?} hold is written to {}", file.display()));
    say(
        "bring it to the other machines that have folders left, and theirs to this one; keep these nodes stopped",
    );
    Ok(())
}

fn tell(
    args: &RecoverArgs,
    nodes: &[StoppedNode],
    survivors: &[Survivor],
    plan: &Plan,
    copies: &[PathBuf],
) -> Result<()> {
    let steps = text::steps(args.accept_loss, nodes, plan);
    if args.json {
        return print(&text::json(survivors, plan, copies, &steps));
    }
    text::lines(survivors, plan, nodes, copies).iter().for_each(|line| say(line));
    say("");
    say(if args.accept_loss { "Next:" } else { "Nothing was changed. Next:" });
    steps.iter().for_each(|step| say(&format!("  {step}")));
    Ok(())
}

fn print(value: &Value) -> Result<()> {
    say(&serde_json::to_string_pretty(value)?);
    Ok(())
}

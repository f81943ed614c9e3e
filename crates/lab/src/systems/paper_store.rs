//! The leader-follower paper's own design: three Python processes, as `lab/paper-store/store.py` describes them.
//!
//! Its packages come from the Python index that pip is configured for, into a virtual environment of the lab's, and only
//! when somebody asks for it.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{Missing, NodePlan, System, find_program, free_ports, http_get};

const STORE: &str = include_str!("../../../../lab/paper-store/store.py");
const REQUIREMENTS: &str = include_str!("../../../../lab/paper-store/requirements.txt");

/// How many nodes the paper has: a leader and two followers.
const NODES: usize = 3;

/// The store of the paper, run from a virtual environment.
#[derive(Clone, Debug)]
pub struct PaperStore {
    environment: PathBuf,
}

impl PaperStore {
    /// The store, with its virtual environment in the user's cache folder.
    pub fn new() -> PaperStore {
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
        let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
        let cache = cache.or_else(home).unwrap_or_else(std::env::temp_dir);
        // Other requirements are another environment.
        let name = format!("paper-store-{:08x}", crc32fast::hash(REQUIREMENTS.as_bytes()));
        PaperStore { environment: cache.join("quorate-lab").join(name) }
    }

    /// Installs what is missing. `say` is told each step.
    ///
    /// # Errors
    /// There is no Python with `venv`, or the packages cannot be had.
    pub fn install(&self, say: &mut dyn FnMut(&str)) -> Result<()> {
        if self.version().is_ok() {
            return Ok(());
        }
        let Some(python) = find_program("python3") else { bail!("{}", no_python()) };
        fs::create_dir_all(&self.environment)
            .with_context(|| format!("cannot make {}", self.environment.display()))?;
        say(&format!("making a virtual environment in {}", self.environment.display()));
        run(&python, [OsStr::new("-m"), "venv".as_ref(), "--clear".as_ref(), self.environment.as_os_str()])
            .context("python3 -m venv failed; install it with: apt-get install python3-venv")?;
        let requirements = self.environment.join("requirements.txt");
        fs::write(&requirements, REQUIREMENTS)?;
        say("installing fastapi, uvicorn and httpx with pip");
        let pip = self.environment.join("bin/python");
        let words = ["-m", "pip", "install", "--quiet", "-r"].map(OsStr::new);
        run(&pip, words.into_iter().chain([requirements.as_os_str()])).context("pip could not install")?;
        Ok(())
    }
}

impl Default for PaperStore {
    fn default() -> Self {
        PaperStore::new()
    }
}

fn no_python() -> Missing {
    Missing {
        what: "there is no python3 on the PATH".to_owned(),
        install: "apt-get install python3 python3-venv".to_owned(),
    }
}

/// Runs a program to its end. What it says is told only when it fails.
fn run<'a>(program: &Path, arguments: impl IntoIterator<Item = &'a OsStr>) -> Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = text.lines().rev().take(3).collect();
        bail!("{}: {}", output.status, last.into_iter().rev().collect::<Vec<_>>().join(" "));
    }
    Ok(())
}

impl System for PaperStore {
    fn name(&self) -> String {
        "Paper's store".to_owned()
    }

    fn version(&self) -> Result<String, Missing> {
        if find_program("python3").is_none() {
            return Err(no_python());
        }
        let missing = || Missing {
            what: "the paper's store is not installed".to_owned(),
            install: "quorate lab run leader-follower --with-paper-store".to_owned(),
        };
        let script = "import platform, fastapi, uvicorn, httpx; print(f'FastAPI {fastapi.__version__}, uvicorn \
                      {uvicorn.__version__}, httpx {httpx.__version__}, Python {platform.python_version()}')";
        let output = Command::new(self.environment.join("bin/python")).args(["-c", script]).output();
        let output = output.ok().filter(|output| output.status.success()).ok_or_else(missing)?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn acknowledges(&self) -> String {
        "the leader has it; replication begins afterwards".to_owned()
    }

    fn durability(&self) -> String {
        "memory".to_owned()
    }

    fn plan(&self, folder: &Path) -> Result<Vec<NodePlan>> {
        let ports = free_ports(NODES)?;
        let mut plans = Vec::new();
        for (index, port) in ports.iter().enumerate() {
            let node = folder.join(format!("node-{}", index + 1));
            fs::create_dir_all(&node).with_context(|| format!("cannot make {}", node.display()))?;
            let file = node.join("store.py");
            fs::write(&file, STORE).with_context(|| format!("cannot write {}", file.display()))?;
            let followers: Vec<String> = match index {
                0 => ports[1..].iter().map(|port| format!("http://127.0.0.1:{port}")).collect(),
                _ => Vec::new(),
            };
            let port_text = port.to_string();
            let words = ["-m", "uvicorn", "store:app", "--port", &port_text, "--log-level", "warning"];
            plans.push(NodePlan {
                program: self.environment.join("bin/python"),
                arguments: words.into_iter().map(str::to_owned).collect(),
                environment: vec![
                    ("ROLE".to_owned(), if index == 0 { "leader" } else { "follower" }.to_owned()),
                    ("FOLLOWERS".to_owned(), followers.join(",")),
                ],
                folder: node,
                resp: None,
                http: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, *port))),
            });
        }
        Ok(plans)
    }

    fn is_ready(&self, nodes: &[NodePlan]) -> bool {
        let mut addresses = nodes.iter().filter_map(|node| node.http);
        addresses.all(|address| matches!(http_get(address, "/health"), Ok((200, _))))
    }
}

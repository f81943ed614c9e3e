//! The leader-follower paper's own design: three Python processes, as `lab/paper-store/store.py` describes them.
//!
//! Its packages come from the Python index that pip is configured for, into a virtual environment of the lab's, and
//! only on request.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result};

use super::{Missing, NodePlan, PythonEnvironment, System, free_ports, http_get};

const STORE: &str = include_str!("../../../../lab/paper-store/store.py");
const REQUIREMENTS: &str = include_str!("../../../../lab/paper-store/requirements.txt");

/// The number of nodes in the paper: a leader and two followers.
const NODES: usize = 3;

/// The store of the paper, run from a virtual environment.
#[derive(Clone, Debug)]
pub struct PaperStore {
    environment: PythonEnvironment,
}

impl PaperStore {
    /// Creates the store, with its virtual environment in the user's cache folder.
    pub fn new() -> PaperStore {
        PaperStore { environment: PythonEnvironment::new("paper-store", REQUIREMENTS) }
    }

    /// Installs what is missing. Reports each step to `say`.
    ///
    /// # Errors
    /// There is no Python with `venv`, or the packages are not available.
    pub fn install(&self, say: &mut dyn FnMut(&str)) -> Result<()> {
        if self.version().is_ok() {
            return Ok(());
        }
        self.environment.install("fastapi, uvicorn and httpx", say)
    }
}

impl Default for PaperStore {
    fn default() -> Self {
        PaperStore::new()
    }
}

impl System for PaperStore {
    fn name(&self) -> String {
        "Paper's store".to_owned()
    }

    fn version(&self) -> Result<String, Missing> {
        let script = "import platform, fastapi, uvicorn, httpx; print(f'FastAPI {fastapi.__version__}, uvicorn \
                      {uvicorn.__version__}, httpx {httpx.__version__}, Python {platform.python_version()}')";
        let install = "quorate lab run leader-follower --with-paper-store";
        self.environment.ask(["-c", script], "the paper's store is not installed", install)
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
                program: self.environment.python(),
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

//! ZooKeeper: an ensemble that decides by Zab and by default syncs its log to disk.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Missing, NodePlan, System, find_program, free_ports, route};
use crate::network::Relay;

/// Where Debian's package puts the server, whose manifest lists its dependencies.
const DEBIAN_JAR: &str = "/usr/share/java/zookeeper.jar";

/// The start script of ZooKeeper's own distribution.
const SCRIPT: &str = "zkServer.sh";

/// The server's class, as that script starts it.
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// A tick is half of the shortest session that a client may ask for: 2 s here, as for the other systems.
const TICK_MS: u32 = 1_000;

/// By default a Java machine takes a quarter of the memory, and there is one for each node.
const HEAP: &str = "-Xmx512m";

const CONFIGURATION: &str = "zoo.cfg";

const TIMEOUT: Duration = Duration::from_secs(1);

/// A ZooKeeper ensemble.
#[derive(Clone, Debug)]
pub struct ZooKeeper {
    nodes: usize,
    syncs: bool,
}

/// How this machine starts a server.
enum Start {
    Script(PathBuf),
    Jar(PathBuf),
}

impl ZooKeeper {
    /// Creates an ensemble of `nodes` nodes.
    pub fn new(nodes: usize) -> ZooKeeper {
        ZooKeeper { nodes, syncs: true }
    }

    /// Returns the ensemble without `fsync` of the log.
    pub fn without_sync(self) -> ZooKeeper {
        ZooKeeper { syncs: false, ..self }
    }

    fn start() -> Result<Start, Missing> {
        let missing = |what: &str| Missing {
            what: what.to_owned(),
            install: "apt-get install zookeeper default-jre-headless".to_owned(),
        };
        let java = find_program("java").ok_or_else(|| missing("there is no java on the PATH"))?;
        if let Some(script) = find_program(SCRIPT) {
            return Ok(Start::Script(script));
        }
        if !Path::new(DEBIAN_JAR).is_file() {
            return Err(missing(&format!("there is neither {SCRIPT} on the PATH nor {DEBIAN_JAR}")));
        }
        Ok(Start::Jar(java))
    }

    fn configuration(&self, ports: &[[u16; 3]], index: usize) -> String {
        let sync = if self.syncs { "yes" } else { "no" };
        let mut text = format!(
            "tickTime={TICK_MS}\ninitLimit=10\nsyncLimit=5\ndataDir=data\nclientPort={}\n\
             clientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\nforceSync={sync}\n\
             4lw.commands.whitelist=srvr\n",
            ports[index][0]
        );
        for (index, [_, peer, election]) in ports.iter().enumerate() {
            text.push_str(&format!("server.{}=127.0.0.1:{peer}:{election}\n", index + 1));
        }
        text
    }
}

impl System for ZooKeeper {
    fn name(&self) -> String {
        "ZooKeeper".to_owned()
    }

    fn version(&self) -> Result<String, Missing> {
        let output = match ZooKeeper::start()? {
            Start::Script(script) => Command::new(script).arg("version").output(),
            Start::Jar(java) => Command::new(java)
                .args(["-cp", DEBIAN_JAR, "org.apache.zookeeper.version.VersionInfoMain"])
                .output(),
        };
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let text = text.unwrap_or_default();
        let version = text.lines().find_map(|line| line.strip_prefix("Apache ZooKeeper, version "));
        let missing = Missing {
            what: "ZooKeeper does not report its version".to_owned(),
            install: "apt-get install --reinstall zookeeper".to_owned(),
        };
        Ok(version.and_then(|version| version.split(' ').next()).ok_or(missing)?.to_owned())
    }

    fn acknowledges(&self) -> String {
        format!("{} of {} nodes have it (Zab)", self.nodes / 2 + 1, self.nodes)
    }

    fn durability(&self) -> String {
        if self.syncs { "on the disk (fsync)" } else { "in the system's file cache" }.to_owned()
    }

    fn plan(&self, folder: &Path) -> Result<Vec<NodePlan>> {
        let ports = free_ports(3 * self.nodes)?;
        let ports: Vec<[u16; 3]> =
            ports.chunks_exact(3).map(|three| [three[0], three[1], three[2]]).collect();
        let start = ZooKeeper::start().map_err(|missing| anyhow::anyhow!("{missing}"))?;
        let mut plans = Vec::new();
        for index in 0..self.nodes {
            let node = folder.join(format!("node-{}", index + 1));
            let write = |file: &str, text: String| {
                let file = node.join(file);
                fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
            };
            fs::create_dir_all(node.join("data"))
                .with_context(|| format!("cannot make {}", node.display()))?;
            write("data/myid", format!("{}\n", index + 1))?;
            write(CONFIGURATION, self.configuration(&ports, index))?;
            let configuration = node.join(CONFIGURATION).to_string_lossy().into_owned();
            let (program, arguments, environment) = match &start {
                Start::Script(script) => (
                    script.clone(),
                    vec!["start-foreground".to_owned(), configuration],
                    vec![("SERVER_JVMFLAGS".to_owned(), HEAP.to_owned())],
                ),
                Start::Jar(java) => (
                    java.clone(),
                    vec![
                        HEAP.to_owned(),
                        "-cp".to_owned(),
                        DEBIAN_JAR.to_owned(),
                        MAIN.to_owned(),
                        configuration,
                    ],
                    Vec::new(),
                ),
            };
            plans.push(NodePlan { program, arguments, environment, folder: node, resp: None, http: None });
        }
        Ok(plans)
    }

    fn reroute(&self, nodes: &mut [NodePlan], relay: &Relay) -> Result<()> {
        for (from, node) in (1..).zip(nodes.iter()) {
            let file = node.folder.join(CONFIGURATION);
            let mut lines = Vec::new();
            for line in fs::read_to_string(&file)?.lines() {
                let server = line.strip_prefix("server.").and_then(|rest| rest.split_once("=127.0.0.1:"));
                let Some((to, ports)) = server.filter(|(to, _)| to.parse() != Ok(from)) else {
                    lines.push(line.to_owned());
                    continue;
                };
                let to: usize = to.parse()?;
                let through = |port: &str| {
                    route(relay, from, to, SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse()?)))
                };
                let ports: Result<Vec<String>> =
                    ports.split(':').map(|port| Ok(through(port)?.to_string())).collect();
                lines.push(format!("server.{to}=127.0.0.1:{}", ports?.join(":")));
            }
            fs::write(&file, lines.join("\n") + "\n")
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }

    fn is_ready(&self, nodes: &[NodePlan]) -> bool {
        nodes.iter().all(|node| mode(self, node).is_some())
    }

    fn client_address(&self, node: &NodePlan) -> Option<SocketAddr> {
        let text = fs::read_to_string(node.folder.join(CONFIGURATION)).ok()?;
        let port = text.lines().find_map(|line| line.strip_prefix("clientPort="))?.parse().ok()?;
        Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    fn leader(&self, nodes: &[NodePlan]) -> Option<usize> {
        nodes.iter().position(|node| mode(self, node).is_some_and(|mode| mode == "leader"))
    }
}

/// Whether a node leads or follows; `None` while it does neither.
fn mode(system: &ZooKeeper, node: &NodePlan) -> Option<String> {
    let text = srvr(system.client_address(node)?).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
}

/// Sends `srvr`, one of the four-letter commands, which are not part of the protocol.
fn srvr(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(b"srvr")?;
    let mut text = String::new();
    stream.take(1 << 16).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_knows_all_and_its_own_port() {
        let ensemble = ZooKeeper::new(2).without_sync();
        let text = ensemble.configuration(&[[1, 2, 3], [4, 5, 6]], 1);
        assert!(text.contains("clientPort=4\n") && text.contains("forceSync=no\n"), "{text}");
        assert!(text.ends_with("server.1=127.0.0.1:2:3\nserver.2=127.0.0.1:5:6\n"), "{text}");
    }

    #[test]
    fn clients_get_the_port_of_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let node = NodePlan {
            program: "java".into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: folder.path().to_owned(),
            resp: None,
            http: None,
        };
        let ensemble = ZooKeeper::new(1);
        assert_eq!(ensemble.client_address(&node), None);
        fs::write(folder.path().join(CONFIGURATION), ensemble.configuration(&[[2181, 2, 3]], 0)).unwrap();
        assert_eq!(ensemble.client_address(&node).map(|address| address.port()), Some(2181));
    }
}

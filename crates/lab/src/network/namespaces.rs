//! The kernel's own network between nodes, where the machine allows it: each node in a network namespace, `tbf` on its
//! interface in each direction, and firewall rules that cut links.
//!
//! It needs root, `ip`, `tc` and `nft`. Traffic between nodes goes through a switch in a separate namespace; each node
//! has a second, unlimited interface to the machine itself, where clients run. So the lab's own traffic takes nothing
//! from the nodes' bandwidth. Delay, jitter, loss and reordering of single links would need `netem`, which many
//! kernels lack: use the relay for those.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::settings::{Bandwidth, Gate, Interface, Node};

/// The maximum number of nodes: each has its own subnet.
const NODES_MAX: Node = 64;

/// The size of a bucket: a burst of this length passes at once. It is several packets, so that a slow kernel timer
/// does not slow the link.
const BURST_MS: u64 = 2;
const BURST_BYTES_MIN: u64 = 16 << 10;
const BURST_BYTES_MAX: u64 = 4 << 20;

/// Packets that wait longer than this in front of a bucket are dropped.
const QUEUE_LATENCY: &str = "50ms";

/// The nodes' networks on this machine. They are removed when this is dropped.
pub struct Namespaces {
    prefix: String,
    subnet: u8,
    nodes: Node,
    /// The links that are cut.
    gates: Vec<(Node, Node, Gate)>,
}

impl Namespaces {
    /// Creates a namespace for each node, numbered from 1, all of them connected.
    ///
    /// # Errors
    /// This machine does not allow it, or lacks a program: the error says which.
    pub fn start(nodes: Node) -> io::Result<Namespaces> {
        if !(1..=NODES_MAX).contains(&nodes) {
            return Err(io::Error::other(format!("there may be 1 to {NODES_MAX} nodes, not {nodes}")));
        }
        // Fails now if a program that is needed later is missing.
        run(Command::new("tc").arg("-V"), "")?;
        run(Command::new("nft").arg("-v"), "")?;
        let process = std::process::id();
        let subnet = 128 + (process % 100) as u8;
        let network = Namespaces { prefix: format!("lab{process}"), subnet, nodes, gates: Vec::new() };
        // From here on everything that was made is removed, even if the rest fails.
        network.make()?;
        Ok(network)
    }

    /// The address at which other nodes reach a node.
    #[must_use]
    pub fn peer_address(&self, node: Node) -> Ipv4Addr {
        Ipv4Addr::new(10, self.subnet, 0, node as u8)
    }

    /// The address at which clients on this machine reach a node.
    #[must_use]
    pub fn client_address(&self, node: Node) -> Ipv4Addr {
        Ipv4Addr::new(10, self.subnet, node as u8, 2)
    }

    /// A command that runs in a node's namespace.
    pub fn command(&self, node: Node, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(node)]).arg(program);
        command
    }

    /// Moves the calling thread into a node's namespace permanently: sockets that it creates belong to the node.
    ///
    /// # Errors
    /// The system refuses.
    pub fn enter(&self, node: Node) -> io::Result<()> {
        let file = File::open(format!("/var/run/netns/{}", self.name(node)))?;
        Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Sets the bandwidth of a node's interface to the others. The kernel counts headers too: of a packet of 1514
    /// bytes a program sees 1448.
    ///
    /// # Errors
    /// `tc` refuses.
    pub fn set_interface(&mut self, node: Node, interface: Interface) -> io::Result<()> {
        shape(&self.name(node), "peers", interface.up)?;
        shape(&self.switch(), &port(node), interface.down)
    }

    /// Cuts or opens the link from one node to another.
    ///
    /// # Errors
    /// `nft` refuses.
    pub fn set_gate(&mut self, from: Node, to: Node, gate: Gate) -> io::Result<()> {
        self.gates.retain(|(one, other, _)| (*one, *other) != (from, to));
        if gate != Gate::Open {
            self.gates.push((from, to, gate));
        }
        let mut rules = String::from("table inet lab\ndelete table inet lab\ntable inet lab {\n");
        rules.push_str("  chain input {\n    type filter hook input priority 0;\n");
        for (from, _, gate) in self.gates.iter().filter(|(_, receiver, _)| *receiver == to) {
            let source = self.peer_address(*from);
            rules.push_str(&match gate {
                Gate::Reject => format!("    ip saddr {source} meta l4proto tcp reject with tcp reset\n"),
                _ => format!("    ip saddr {source} drop\n"),
            });
        }
        rules.push_str("  }\n}\n");
        let mut command = self.command(to, "nft");
        run(command.args(["-f", "-"]), &rules)
    }

    fn make(&self) -> io::Result<()> {
        let switch = self.switch();
        ip(&["netns", "add", &switch])?;
        ip(&["-n", &switch, "link", "add", "switch", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "switch", "up"])?;
        for node in 1..=self.nodes {
            let (name, port) = (self.name(node), port(node));
            ip(&["netns", "add", &name])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
            // To the others, through the switch.
            ip(&[
                "-n", &switch, "link", "add", &port, "type", "veth", "peer", "name", "peers", "netns", &name,
            ])?;
            ip(&["-n", &switch, "link", "set", &port, "master", "switch", "up"])?;
            ip(&["-n", &name, "address", "add", &format!("{}/24", self.peer_address(node)), "dev", "peers"])?;
            ip(&["-n", &name, "link", "set", "peers", "up"])?;
            // To the machine.
            let outside = format!("{}n{node}", self.prefix);
            ip(&["link", "add", &outside, "type", "veth", "peer", "name", "clients", "netns", &name])?;
            let machine = Ipv4Addr::new(10, self.subnet, node as u8, 1);
            ip(&["address", "add", &format!("{machine}/30"), "dev", &outside])?;
            ip(&["link", "set", &outside, "up"])?;
            ip(&[
                "-n",
                &name,
                "address",
                "add",
                &format!("{}/30", self.client_address(node)),
                "dev",
                "clients",
            ])?;
            ip(&["-n", &name, "link", "set", "clients", "up"])?;
        }
        Ok(())
    }

    fn name(&self, node: Node) -> String {
        format!("{}node{node}", self.prefix)
    }

    fn switch(&self) -> String {
        format!("{}switch", self.prefix)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // An interface disappears with the namespace at either of its ends. What was not created cannot be removed.
        for node in 1..=self.nodes {
            let _ = ip(&["netns", "delete", &self.name(node)]);
        }
        let _ = ip(&["netns", "delete", &self.switch()]);
    }
}

/// The switch's interface to a node.
fn port(node: Node) -> String {
    format!("node{node}")
}

/// Limits the traffic that leaves through an interface.
fn shape(namespace: &str, interface: &str, bandwidth: Option<Bandwidth>) -> io::Result<()> {
    let Some(bandwidth) = bandwidth else {
        let mut command = Command::new("tc");
        command.args(["-n", namespace, "qdisc", "replace", "dev", interface, "root", "pfifo"]);
        return run(&mut command, "");
    };
    let rate = bandwidth.as_bits_per_second();
    let burst = (rate / 8 * BURST_MS / 1_000).clamp(BURST_BYTES_MIN, BURST_BYTES_MAX);
    let mut command = Command::new("tc");
    command.args(["-n", namespace, "qdisc", "replace", "dev", interface, "root", "tbf"]);
    command.args(["rate", &format!("{rate}bit"), "burst", &burst.to_string(), "latency", QUEUE_LATENCY]);
    run(&mut command, "")
}

fn ip(words: &[&str]) -> io::Result<()> {
    run(Command::new("ip").args(words), "")
}

/// Runs a program that prints nothing on success.
fn run(command: &mut Command, input: &str) -> io::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |error: &str| io::Error::other(format!("{program}: {error}"));
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = piped.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            failed("not installed; install it with: apt-get install iproute2 nftables")
        }
        _ => failed(&error.to_string()),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends before it has read its input says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim()))
}

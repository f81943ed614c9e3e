//! `quorate lab relay`: the flags, the changes read from standard input, and the output.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::measure;
use super::relay::Relay;
use super::request::Route;
use super::settings::{Gate, Interface, Link, Node};

const EXIT_FAILED: u8 = 1;
const EXIT_USAGE: u8 = 2;

const EXAMPLES: &str = "\
Examples:
  quorate lab relay --route '1>2 127.0.0.1:9102 127.0.0.1:9002' --link '1<>2 delay=10ms jitter=1ms loss=1%'
  quorate lab relay --route '2>1 127.0.0.1:6390 127.0.0.1:6379' --node '1 up=10mbit down=10mbit'
  quorate lab relay --measure
  quorate lab relay --measure --namespaces

A link is written 1>2, both ways 1<>2, any node *. A link has bandwidth, delay, jitter, loss, reorder and
reorder_delay; a node has up and down, which its links share. While it runs, each line of standard input is a change:
  link 1>2 delay=50ms      node 2 up=1mbit      cut 1>2      reject 1<>2      heal 1<>2      show
cut drops what is sent until heal, as a silent firewall does; reject resets connections and refuses new ones.";

/// Relay TCP between servers, as a network with the delays, losses and bandwidths that you choose.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RelayArgs {
    /// A route: 'FROM>TO LISTEN TARGET'. Whatever connects to LISTEN counts as node FROM, and reaches node TO at TARGET
    #[arg(long = "route", value_name = "ROUTE", value_parser = parse_route, required_unless_present = "measure")]
    routes: Vec<Route>,

    /// Settings of a link: '1>2 delay=10ms'; later ones change earlier ones
    #[arg(long = "link", value_name = "LINK")]
    links: Vec<String>,

    /// A node's bandwidth, shared by its links: '1 up=10mbit down=10mbit'
    #[arg(long = "node", value_name = "NODE")]
    nodes: Vec<String>,

    /// Seed of jitter, loss and reordering
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Measure how closely the relay keeps to its settings on this machine, and print a table
    #[arg(long, conflicts_with_all = ["routes", "links", "nodes"])]
    measure: bool,

    /// Measure the kernel's own shaping in network namespaces instead (needs root)
    #[arg(long, requires = "measure")]
    namespaces: bool,

    /// How long each bandwidth is measured with --measure
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, requires = "measure", value_parser = parse_seconds)]
    seconds: f64,
}

/// Runs the command.
#[must_use]
pub fn relay(args: &RelayArgs) -> ExitCode {
    if args.measure {
        let seconds = Duration::from_secs_f64(args.seconds);
        let printed = match args.namespaces {
            false => measure::print_table(args.seed, seconds),
            #[cfg(target_os = "linux")]
            true => measure::print_namespaces_table(seconds),
            #[cfg(not(target_os = "linux"))]
            true => Err(io::Error::other("network namespaces exist on Linux only")),
        };
        return match printed {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(EXIT_FAILED, &format!("cannot measure: {error}")),
        };
    }
    let relay = match Relay::start(args.seed) {
        Ok(relay) => relay,
        Err(error) => return fail(EXIT_FAILED, &format!("cannot start: {error}")),
    };
    let mut network = Network::new(relay);
    for route in &args.routes {
        match network.relay.add_route(*route) {
            Ok(address) => {
                network.know(route.from, route.to);
                say(&format!("{}>{}: {address} leads to {}", route.from, route.to, route.target));
            }
            Err(error) => return fail(EXIT_FAILED, &format!("cannot listen at {}: {error}", route.listen)),
        }
    }
    let links = args.links.iter().map(|words| format!("link {words}"));
    let nodes = args.nodes.iter().map(|words| format!("node {words}"));
    for line in links.chain(nodes) {
        if let Err(refusal) = network.change(&line) {
            return fail(EXIT_USAGE, &refusal);
        }
    }
    say("ready");
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        match network.change(&line) {
            Ok(lines) => lines.iter().for_each(|line| say(line)),
            Err(refusal) => say(&format!("error: {refusal}")),
        }
    }
    // The parent process may have given it no input; a signal ends it.
    loop {
        std::thread::park();
    }
}

/// The relay, and its current settings.
struct Network {
    relay: Relay,
    links: BTreeMap<(Node, Node), Link>,
    interfaces: BTreeMap<Node, Interface>,
}

impl Network {
    fn new(relay: Relay) -> Network {
        Network { relay, links: BTreeMap::new(), interfaces: BTreeMap::new() }
    }

    fn know(&mut self, from: Node, to: Node) {
        for (from, to) in [(from, to), (to, from)] {
            self.links.entry((from, to)).or_default();
            self.interfaces.entry(from).or_default();
        }
    }

    /// Carries out one line of input; returns the lines to show.
    fn change(&mut self, line: &str) -> Result<Vec<String>, String> {
        let mut words = line.split_whitespace();
        let Some(verb) = words.next() else { return Ok(Vec::new()) };
        if verb == "show" {
            return self.show().map_err(|error| error.to_string());
        }
        let whom = words.next().unwrap_or(if verb == "heal" { "*<>*" } else { "" });
        let settings = words.collect::<Vec<_>>().join(" ");
        let gate = match verb {
            "cut" => Some(Gate::Drop),
            "reject" => Some(Gate::Reject),
            "heal" => Some(Gate::Open),
            _ => None,
        };
        let done = match (verb, gate) {
            ("node", _) => {
                let nodes = matching(whom, self.interfaces.keys(), |node| single(whom, *node))?;
                nodes.into_iter().try_for_each(|node| self.change_node(node, &settings))
            }
            ("link", _) => {
                let links = matching(whom, self.links.keys(), |link| between(whom, *link))?;
                links.into_iter().try_for_each(|link| self.change_link(link, &settings))
            }
            (_, Some(gate)) => {
                let links = matching(whom, self.links.keys(), |link| between(whom, *link))?;
                let mut cut = links.into_iter().map(|(from, to)| self.relay.set_gate(from, to, gate));
                cut.try_for_each(|cut| cut.map_err(|error| error.to_string()))
            }
            _ => return Err(format!("'{verb}' is not one of link, node, cut, reject, heal, show")),
        };
        done.map(|()| Vec::new())
    }

    fn change_link(&mut self, (from, to): (Node, Node), settings: &str) -> Result<(), String> {
        let link = self.links.entry((from, to)).or_default();
        *link = link.change(settings)?;
        self.relay.set_link(from, to, *link).map_err(|error| error.to_string())
    }

    fn change_node(&mut self, node: Node, settings: &str) -> Result<(), String> {
        let interface = self.interfaces.entry(node).or_default();
        *interface = interface.change(settings)?;
        self.relay.set_interface(node, *interface).map_err(|error| error.to_string())
    }

    fn show(&self) -> io::Result<Vec<String>> {
        let lines = self.relay.traffic()?.into_iter().map(|it| {
            let link = self.links.get(&(it.from, it.to)).copied().unwrap_or_default();
            let t = it.traffic;
            format!(
                "{}>{} {link}: {} bytes, {} packets, {} lost, {} reordered",
                it.from, it.to, t.bytes, t.packets, t.lost, t.reordered
            )
        });
        Ok(lines.collect())
    }
}

/// The keys that a pattern matches; it must match at least one.
fn matching<'a, Key: Copy + 'a>(
    pattern: &str,
    keys: impl Iterator<Item = &'a Key>,
    is_meant: impl Fn(&Key) -> Option<bool>,
) -> Result<Vec<Key>, String> {
    let mut found = Vec::new();
    for key in keys {
        match is_meant(key) {
            Some(true) => found.push(*key),
            Some(false) => {}
            None => return Err(format!("'{pattern}' is not a link or node: write 1>2, 1<>2, *>2 or 1")),
        }
    }
    if found.is_empty() { Err(format!("no route matches '{pattern}'")) } else { Ok(found) }
}

/// Whether a pattern matches a node; `None` if it is not a pattern.
fn single(pattern: &str, node: Node) -> Option<bool> {
    if pattern == "*" { Some(true) } else { pattern.parse().ok().map(|meant: Node| meant == node) }
}

fn between(pattern: &str, (from, to): (Node, Node)) -> Option<bool> {
    if let Some((one, other)) = pattern.split_once("<>") {
        let there = single(one, from)? && single(other, to)?;
        return Some(there || single(one, to)? && single(other, from)?);
    }
    let (sender, receiver) = pattern.split_once('>')?;
    Some(single(sender, from)? && single(receiver, to)?)
}

fn parse_route(text: &str) -> Result<Route, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [link, listen, target] = words[..] else { return Err("write 'FROM>TO LISTEN TARGET'".into()) };
    let nodes = link.split_once('>').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let Some((from, to)) = nodes else { return Err(format!("'{link}' is not a link from a node to a node")) };
    if from == to {
        return Err(format!("'{link}' is not a link between two nodes"));
    }
    Ok(Route { from, to, listen: parse_address(listen)?, target: parse_address(target)? })
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let mut found = text.to_socket_addrs().map_err(|error| format!("'{text}': {error}"))?;
    found.next().ok_or_else(|| format!("'{text}' has no address"))
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.2..=3_600.0).contains(&seconds) => Ok(seconds),
        _ => Err("write a number of seconds, from 0.2 to 3600".into()),
    }
}

/// Prints a line and flushes it, also into a pipe.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn fail(code: u8, message: &str) -> ExitCode {
    eprintln!("quorate lab relay: {message}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_names_both_nodes_and_both_addresses() {
        let route = parse_route("2>1 127.0.0.1:9101 127.0.0.1:9001").unwrap();
        assert_eq!((route.from, route.to, route.listen.port(), route.target.port()), (2, 1, 9101, 9001));
        for wrong in
            ["", "2>1", "2-1 127.0.0.1:1 127.0.0.1:2", "1>1 127.0.0.1:1 127.0.0.1:2", "1>2 x 127.0.0.1:2"]
        {
            assert!(parse_route(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn patterns_mean_links_in_their_direction() {
        for (pattern, meant) in [
            ("1>2", vec![(1, 2)]),
            ("1<>2", vec![(1, 2), (2, 1)]),
            ("*>2", vec![(1, 2), (3, 2)]),
            ("2<>*", vec![(1, 2), (2, 1), (2, 3), (3, 2)]),
        ] {
            let links = [(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)];
            let found: Vec<_> =
                links.into_iter().filter(|link| between(pattern, *link) == Some(true)).collect();
            assert_eq!(found, meant, "{pattern}");
        }
        assert_eq!(between("12", (1, 2)), None);
        assert_eq!(between("a>2", (1, 2)), None);
    }

    #[test]
    fn a_line_changes_what_it_names_and_a_wrong_one_nothing() {
        let mut network = Network::new(Relay::start(1).unwrap());
        let target = "127.0.0.1:1".parse().unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        network.relay.add_route(Route { from: 1, to: 2, listen, target }).unwrap();
        network.know(1, 2);
        network.change("link 1<>2 delay=10ms").unwrap();
        network.change("link 2>1 delay=5ms").unwrap();
        network.change("node * up=1mbit").unwrap();
        for line in ["cut 1>2", "heal", "reject 1<>2", "heal 1<>2", "", "show"] {
            network.change(line).unwrap();
        }
        let shown = network.change("show").unwrap();
        assert!(shown[0].starts_with("1>2 bandwidth=none delay=10ms"), "{shown:?}");
        assert!(shown[1].starts_with("2>1 bandwidth=none delay=5ms"), "{shown:?}");
        for line in
            ["stop", "link", "link 1>3 delay=1ms", "cut", "cut 12", "link 1>2 delay", "node 9 up=1mbit"]
        {
            assert!(network.change(line).is_err(), "{line}");
        }
    }
}

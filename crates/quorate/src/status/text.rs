//! The state of a cluster, as text for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;

use node::NodeId;
use server::status::standing::{Facts, Keyspace, Node, Risk, Severity, Shard, Standing, State};
use server::status::words;

/// Whether colours are shown.
#[derive(Clone, Copy)]
pub(super) struct Paint(bool);

impl Paint {
    /// Colours on a terminal, unless `NO_COLOR` is set to anything.
    pub(super) fn of_standard_output() -> Paint {
        let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Paint(!is_unwanted && std::io::stdout().is_terminal())
    }

    /// No colours.
    #[cfg(test)]
    pub(super) fn none() -> Paint {
        Paint(false)
    }

    pub(super) fn state(self, state: State) -> String {
        match state {
            State::Healthy => self.green("healthy"),
            State::AtRisk => self.yellow("at risk"),
            State::Unknown => self.yellow("unknown"),
            State::CannotServe => self.red("cannot serve"),
        }
    }

    pub(super) fn green(self, text: &str) -> String {
        self.in_colour("32", text)
    }

    pub(super) fn yellow(self, text: &str) -> String {
        self.in_colour("33", text)
    }

    pub(super) fn red(self, text: &str) -> String {
        self.in_colour("31", text)
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.in_colour("1", text)
    }

    fn in_colour(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// How many names of things that are alike are shown.
const NAMES: usize = 8;

/// Writes what is to be done, then the nodes, then the keyspaces. What is alike is shown once, unless `all` is wanted.
pub(super) fn render(standing: &Standing, all: bool, paint: Paint) -> String {
    let mut out = String::new();
    let cluster = if standing.cluster.is_empty() { "the cluster" } else { &standing.cluster };
    let why = standing.unknown.map_or(String::new(), |why| format!(": {why}"));
    // Writing to a string does not fail, here and below.
    let _ = writeln!(out, "{}: {}{why}", paint.bold(cluster), paint.state(standing.state));
    risk_lines(standing, all, paint, &mut out);
    node_lines(standing, paint, &mut out);
    if !standing.keyspaces.is_empty() {
        let _ = writeln!(out, "\n{}", paint.bold("keyspaces"));
        folded_keyspaces(&standing.keyspaces, all).iter().for_each(|folded| folded.write(&mut out));
    }
    out
}

/// A risk, and those that are like it: of one kind, with one thing to do.
pub(super) struct FoldedRisk<'a> {
    pub(super) risk: &'a Risk,
    others: Vec<&'a Risk>,
}

impl FoldedRisk<'_> {
    /// What the others are about; empty if there are none.
    pub(super) fn others(&self) -> String {
        match self.others.len() {
            0 => String::new(),
            count => {
                let abouts = self.others.iter().map(|risk| risk.about.clone());
                format!("and {count} more like it: {}", words::some(abouts, NAMES))
            }
        }
    }
}

/// Risks that are alike together, in their order.
pub(super) fn folded_risks(risks: &[Risk], all: bool) -> Vec<FoldedRisk<'_>> {
    let mut folded: Vec<FoldedRisk<'_>> = Vec::new();
    for risk in risks {
        let key = |risk: &Risk| (risk.severity, risk.kind, risk.action.clone());
        match folded.iter_mut().find(|known| !all && key(known.risk) == key(risk)) {
            Some(known) => known.others.push(risk),
            None => folded.push(FoldedRisk { risk, others: Vec::new() }),
        }
    }
    folded
}

fn risk_lines(standing: &Standing, all: bool, paint: Paint, out: &mut String) {
    if !standing.risks.is_empty() {
        let _ = writeln!(out, "\n{}", paint.bold("what to know"));
    }
    for folded in folded_risks(&standing.risks, all) {
        let mark = match folded.risk.severity {
            Severity::CannotServe => paint.red("!!"),
            Severity::Unknown => paint.yellow("? "),
            Severity::AtRisk => paint.yellow("! "),
            Severity::Note => "  ".to_owned(),
        };
        let _ = writeln!(out, "{mark} {}", folded.risk.what);
        let others = folded.others();
        if !others.is_empty() {
            let _ = writeln!(out, "     {others}");
        }
        let _ = writeln!(out, "     -> {}", folded.risk.action);
    }
}

fn node_lines(standing: &Standing, paint: Paint, out: &mut String) {
    if standing.nodes.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", paint.bold("nodes"));
    let heads = ["", "address", "state", "version", "up for", "memory", "disk free", "clients", "links"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(standing.nodes.iter().map(node_row));
    out.push_str(&table(&rows, |row, column, text| match (row, column) {
        (0, _) => text.to_owned(),
        (row, 2) => match text.trim_end() {
            "up" => paint.green(text),
            "down" => paint.red(text),
            _ if standing.nodes[row - 1].alive => paint.yellow(text),
            _ => paint.red(text),
        },
        _ => text.to_owned(),
    }));
    let control = &standing.control;
    let _ = writeln!(
        out,
        "  control group: {}, members {}; level {}",
        leader(control.leader, true),
        words::list(&control.members),
        standing.level
    );
}

fn leader(leader: u16, has_leader: bool) -> String {
    match (leader, has_leader) {
        (_, false) => "no leader needed".to_owned(),
        (0, true) => "no leader".to_owned(),
        (id, true) => format!("leader {id}"),
    }
}

fn node_row(node: &Node) -> Vec<String> {
    let mut row = vec![node.node.to_string(), node.address.clone(), node.state_word().to_owned()];
    let Some(Facts { version, uptime_s, memory, disk, counters, links, .. }) = &node.facts else {
        // The end is the cause: the rest is in the risks, or in the columns before.
        row.push(
            node.error.as_deref().map_or("", |error| error.rsplit(": ").next().unwrap_or(error)).to_owned(),
        );
        return row;
    };
    let bound = if memory.max > 0 { format!(" of {}", words::bytes(memory.max)) } else { String::new() };
    let down: Vec<u16> = links.iter().filter(|link| !link.up).map(|link| link.node).collect();
    let up = links.len() - down.len();
    row.extend([
        version.clone(),
        words::duration(*uptime_s),
        format!("{}{bound}", words::bytes(memory.resident)),
        if disk.size > 0 { words::bytes(disk.free) } else { "?".to_owned() },
        words::number(counters.clients),
        match down.is_empty() {
            true => format!("{up} up"),
            false => format!("{up} up, down to {}", words::list(&down)),
        },
    ]);
    row
}

/// Keyspaces that are alike: one promise, and shards of which each is as one of the others'.
struct FoldedKeyspaces<'a> {
    alike: Vec<&'a Keyspace>,
    /// How the shards stand, each with the leaders, and how many shards each of them leads.
    stands: BTreeMap<String, BTreeMap<NodeId, usize>>,
}

/// Keyspaces that are alike together, the worst first.
fn folded_keyspaces(keyspaces: &[Keyspace], all: bool) -> Vec<FoldedKeyspaces<'_>> {
    let mut folded: Vec<FoldedKeyspaces<'_>> = Vec::new();
    for keyspace in keyspaces {
        let mut stands: BTreeMap<String, BTreeMap<NodeId, usize>> = BTreeMap::new();
        for shard in &keyspace.shards {
            let name = if all && keyspace.shards.len() > 1 {
                format!("shard {}: ", shard.shard)
            } else {
                String::new()
            };
            *stands.entry(name + &stand(shard)).or_default().entry(shard.leader).or_default() += 1;
        }
        let is_alike = |known: &FoldedKeyspaces<'_>| {
            !all && known.alike[0].promise == keyspace.promise && known.stands.keys().eq(stands.keys())
        };
        match folded.iter_mut().find(|known| is_alike(known)) {
            Some(known) => {
                known.alike.push(keyspace);
                for (stand, leaders) in stands {
                    let sum = known.stands.entry(stand).or_default();
                    leaders.into_iter().for_each(|(leader, count)| *sum.entry(leader).or_default() += count);
                }
            }
            None => folded.push(FoldedKeyspaces { alike: vec![keyspace], stands }),
        }
    }
    if !all {
        folded.sort_by_key(FoldedKeyspaces::survives);
    }
    folded
}

impl FoldedKeyspaces<'_> {
    /// How many failures the weakest shard survives.
    fn survives(&self) -> i64 {
        let shards = self.alike.iter().flat_map(|keyspace| &keyspace.shards);
        shards.map(|shard| if shard.serves { shard.survives } else { -1 }).min().unwrap_or(-1)
    }

    fn write(&self, out: &mut String) {
        let (keys, memory) = self
            .alike
            .iter()
            .fold((0, 0), |(keys, memory), keyspace| (keys + keyspace.keys, memory + keyspace.memory));
        let quoted = |keyspace: &&Keyspace| format!("'{}'", keyspace.name());
        let (first, names) = match self.alike.as_slice() {
            [one] => (quoted(one), String::new()),
            several => {
                let names = words::some(several.iter().map(quoted), NAMES);
                (format!("{} keyspaces", several.len()), format!(": {names}"))
            }
        };
        let bound = match self.alike.as_slice() {
            [one] if one.memory_max > 0 => format!(" of {}", words::bytes(one.memory_max)),
            _ => String::new(),
        };
        let count = words::counted(keys, "key");
        let _ = writeln!(
            out,
            "  {first}, {count}, {}{bound}{names}\n    {}",
            words::bytes(memory),
            self.alike[0].promise
        );
        let has_leader = matches!(self.alike[0].replication.as_str(), "consensus" | "leader-follower");
        for (stand, leaders) in &self.stands {
            let shards: usize = leaders.values().sum();
            let who = match leaders.iter().collect::<Vec<_>>().as_slice() {
                [(id, _)] => leader(**id, has_leader),
                several => {
                    let each =
                        several.iter().map(|(id, count)| format!("{} of {count}", leader(**id, has_leader)));
                    each.collect::<Vec<_>>().join(", ")
                }
            };
            let many = if shards > 1 { format!("{shards} shards: ") } else { String::new() };
            let _ = match stand.split_once(": ") {
                Some((name, rest)) if name.starts_with("shard ") => {
                    writeln!(out, "    {name}: {who}, {rest}")
                }
                _ => writeln!(out, "    {many}{who}, {stand}"),
            };
        }
    }
}

/// How a shard stands, apart from who leads it.
fn stand(shard: &Shard) -> String {
    format!(
        "on {}, in sync {}, {}, {}",
        words::list(&shard.members),
        if shard.in_sync.is_empty() { "none".to_owned() } else { words::list(&shard.in_sync) },
        lag(shard),
        survives(shard)
    )
}

fn survives(shard: &Shard) -> String {
    match shard.survives {
        i64::MIN..0 => "does not serve".to_owned(),
        _ if !shard.serves => "does not serve".to_owned(),
        0 => "survives no further failure".to_owned(),
        1 => "survives 1 failure".to_owned(),
        count => format!("survives {count} failures"),
    }
}

/// Which replicas are behind or missing, and how far.
fn lag(shard: &Shard) -> String {
    let lacks = shard.replicas.iter().filter_map(|replica| {
        let node = replica.node;
        match (replica.sound, replica.lag_records) {
            (false, _) => Some(format!("node {node} {}", replica.role)),
            (true, 0) => None,
            (true, records) => Some(format!("node {node} {} behind", words::number(records))),
        }
    });
    let lacks: Vec<String> = lacks.collect();
    if lacks.is_empty() { "no lag".to_owned() } else { lacks.join(", ") }
}

/// Lays out rows in columns, of which the first is right-aligned. `paint` gets row, column and padded text.
pub(crate) fn table(rows: &[Vec<String>], paint: impl Fn(usize, usize, &str) -> String) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        // The last cell of a row does not widen its column.
        let wide = rows.iter().filter(|row| row.len() > column + 1);
        wide.map(|row| row[column].chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for (row, texts) in rows.iter().enumerate() {
        for (column, text) in texts.iter().enumerate() {
            let wide = widths[column];
            let padded = match column {
                0 => format!("{text:>wide$}"),
                _ if column + 1 == texts.len() => text.clone(),
                _ => format!("{text:<wide$}"),
            };
            let _ = write!(out, "  {}", paint(row, column, &padded));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_different_lengths_are_in_columns() {
        let row = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let rows =
            [row(&["", "name", "state"]), row(&["10", "a", "up"]), row(&["7", "why it is not there at all"])];
        let text = table(&rows, |_, _, text| text.to_owned());
        assert_eq!(text, "      name  state\n  10  a     up\n   7  why it is not there at all\n");
        assert_eq!(table(&[], |_, _, text| text.to_owned()), "");
    }

    #[test]
    fn colours_are_shown_on_a_terminal_only() {
        assert_eq!(Paint(true).state(State::AtRisk), "\x1b[33mat risk\x1b[0m");
        assert_eq!(Paint::none().state(State::CannotServe), "cannot serve");
    }
}

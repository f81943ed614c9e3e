//! The state of a cluster, as text for people.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

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

/// How many risks of one kind with the same action are shown. A keyspace may have hundreds of shards.
const ALIKE: usize = 4;

/// Writes everything.
pub(super) fn render(standing: &Standing, paint: Paint) -> String {
    let mut out = String::new();
    let cluster = if standing.cluster.is_empty() { "the cluster" } else { &standing.cluster };
    // Writing to a string does not fail, here and below.
    let _ = writeln!(out, "{}: {}", paint.bold(cluster), paint.state(standing.state));
    if !standing.nodes.is_empty() {
        let _ = writeln!(out, "\n{}", paint.bold("nodes"));
        let mut rows = vec![
            ["", "address", "state", "version", "up for", "memory", "disk free", "clients", "links"]
                .map(str::to_owned)
                .to_vec(),
        ];
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
    if !standing.keyspaces.is_empty() {
        let _ = writeln!(out, "\n{}", paint.bold("keyspaces"));
        standing.keyspaces.iter().for_each(|keyspace| keyspace_lines(keyspace, &mut out));
    }
    if !standing.risks.is_empty() {
        let _ = writeln!(out, "\n{}", paint.bold("what to know"));
    }
    let is_like = |one: &Risk, other: &Risk| (one.kind, &one.action) == (other.kind, &other.action);
    for (place, risk) in standing.risks.iter().enumerate() {
        let alike = standing.risks[..place].iter().filter(|other| is_like(risk, other)).count();
        let more = standing.risks[place..].iter().filter(|other| is_like(risk, other)).count();
        if alike > ALIKE {
            continue;
        }
        if alike == ALIKE && more > 1 {
            let _ = writeln!(out, "   and {more} more like the last ({}); --json has all", risk.kind);
            continue;
        }
        let mark = match risk.severity {
            Severity::CannotServe => paint.red("!!"),
            Severity::AtRisk => paint.yellow("! "),
            Severity::Note => "  ".to_owned(),
        };
        let _ = writeln!(out, "{mark} {}\n     -> {}", risk.what, risk.action);
    }
    out
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
        row.push(node.error.clone().unwrap_or_default());
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

fn keyspace_lines(keyspace: &Keyspace, out: &mut String) {
    let bound = match keyspace.memory_max {
        0 => String::new(),
        most => format!(" of {}", words::bytes(most)),
    };
    let _ = writeln!(
        out,
        "  '{}', {} keys, {}{bound}\n    {}",
        keyspace.name(),
        words::number(keyspace.keys),
        words::bytes(keyspace.memory),
        keyspace.promise
    );
    let has_leader = matches!(keyspace.replication.as_str(), "consensus" | "leader-follower");
    let is_alone = keyspace.shards.len() == 1;
    for shard in &keyspace.shards {
        let name = if is_alone { String::new() } else { format!("shard {}: ", shard.shard) };
        let _ = writeln!(
            out,
            "    {name}{}, on {}, in sync {}, {}, {}",
            leader(shard.leader, has_leader),
            words::list(&shard.members),
            words::list(&shard.in_sync),
            lag(shard),
            survives(shard)
        );
    }
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

//! Numbers and promises in words.

use node::NodeId;

use super::standing::Keyspace;

/// Formats bytes: `1.5 MiB`.
pub fn bytes(bytes: u64) -> String {
    let units = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => {
            let number = bytes as f64 / *unit as f64;
            let digits = if number < 10.0 { 1 } else { 0 };
            format!("{number:.digits$} {name}")
        }
        None => format!("{bytes} B"),
    }
}

/// Formats a number with commas: `12,345`.
pub fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats seconds: `3 h 12 min`.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// `1 replica`, `3 replicas`.
pub fn count(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// `1 key`, `12,345 keys`.
pub fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{} {what}s", number(count)) }
}

/// `node 1`, `nodes 1, 2`.
pub fn nodes(ids: &[NodeId]) -> String {
    let name = if ids.len() == 1 { "node" } else { "nodes" };
    format!("{name} {}", list(ids))
}

/// `1, 2`.
pub fn list(ids: &[NodeId]) -> String {
    ids.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ")
}

/// The first of these, and how many more there are.
pub fn some(all: impl ExactSizeIterator<Item = String>, most: usize) -> String {
    let count = all.len();
    let shown: Vec<String> = all.take(if count > most + 1 { most } else { count }).collect();
    match count - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Orders names as people do: `app2` before `app10`.
pub fn natural(name: &str) -> Vec<(String, u128)> {
    let mut parts = vec![(String::new(), 0_u128)];
    let mut in_number = false;
    for letter in name.chars() {
        match letter.to_digit(10) {
            Some(digit) => {
                let (_, number) = parts.last_mut().expect("there is a first part");
                *number = number.saturating_mul(10).saturating_add(u128::from(digit));
            }
            None if in_number => parts.push((letter.into(), 0)),
            None => parts.last_mut().expect("there is a first part").0.push(letter),
        }
        in_number = letter.is_ascii_digit();
    }
    parts
}

/// A keyspace's promise, given how many replicas a shard of it has.
pub fn promise(keyspace: &Keyspace, members: usize) -> String {
    let holders = match (keyspace.replication.as_str(), keyspace.acks.as_str()) {
        ("leader-follower", "none") => "when its leader has it, so a failover may lose it".to_owned(),
        ("leader-follower", "all") => "when all replicas that are in sync have it".to_owned(),
        ("leader-follower", "majority") => format!("when {} of {members} replicas have it", members / 2 + 1),
        ("leader-follower", followers) => format!("when its leader and {followers} more have it"),
        _ if members == 1 => "when its only replica has it".to_owned(),
        _ => format!("when {} of {members} replicas have it", members / 2 + 1),
    };
    let place = match keyspace.durability.as_str() {
        "fsync" => "on the disk",
        "os" => "in the system's buffers: lost in a power failure",
        _ => "in memory: lost when all nodes stop",
    };
    let reads = match keyspace.reads.as_str() {
        "any" => "reads at any replica, perhaps of an older value",
        _ => "reads see every acknowledged write",
    };
    let protocol = &keyspace.replication;
    format!("{protocol}: a write is acknowledged {holders} ({place}); {reads}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_people() {
        let mut names = ["app10:", "app2:", "", "b", "app1:", "app"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["", "app", "app1:", "app2:", "app10:", "b"]);
        let letters = |count: usize| (0..count).map(|at| at.to_string()).collect::<Vec<_>>().into_iter();
        assert_eq!(some(letters(3), 2), "0, 1, 2");
        assert_eq!(some(letters(4), 2), "0, 1 and 2 more");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0, 1023, 1536, 300 << 20, 5 << 40].map(bytes),
            ["0 B", "1023 B", "1.5 KiB", "300 MiB", "5.0 TiB"]
        );
        assert_eq!([0, 999, 1000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([59, 61, 7320, 90_000].map(duration), ["59 s", "1 min", "2 h 2 min", "1 d 1 h"]);
        assert_eq!((nodes(&[2]), nodes(&[1, 3])), ("node 2".into(), "nodes 1, 3".into()));
    }
}

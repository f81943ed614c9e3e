//! `GET /health`: whether the node is ready, or whether it serves what the query names.

use hyper::StatusCode;
use node::{Health, KeyspaceHealth};

use super::answer::Refusal;
use super::fields::prefix_of;

/// What a query asks about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// No query: may clients be sent to this node?
    Node,
    /// `all`: does it serve every keyspace?
    All,
    /// `keyspace=PREFIX`, once or several times: does it serve these?
    Keyspaces(Vec<String>),
}

impl Question {
    /// Reads a query.
    ///
    /// # Errors
    /// It asks for something else. A check with a typing error must not be taken for one that is always good.
    pub(super) fn parse(query: Option<&str>) -> Result<Question, Refusal> {
        let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(Question::Node) };
        if matches!(query, "all" | "all=") {
            return Ok(Question::All);
        }
        let prefixes = query.split('&').map(|part| match part.strip_prefix("keyspace=") {
            Some(encoded) => prefix_of(encoded, None),
            None => Err(Refusal::bad_request(
                "/health takes no query, or ?all, or ?keyspace=PREFIX, which may be repeated with &; ?keyspace= is the default one",
            )),
        });
        prefixes.collect::<Result<_, _>>().map(Question::Keyspaces)
    }
}

/// Makes `ready` of a node's health the answer to a question, and leaves only the keyspaces that it names.
///
/// # Errors
/// A keyspace does not exist.
pub(super) fn narrow(health: &mut Health, question: &Question) -> Result<(), Refusal> {
    if *question == Question::Node {
        return Ok(());
    }
    let shards = &mut health.keyspaces;
    if let Question::Keyspaces(prefixes) = question {
        for prefix in prefixes {
            if !shards.iter().any(|shard| shard.prefix == *prefix) {
                let text = format!("this node knows no keyspace '{prefix}'; GET /keyspaces lists them");
                return Err(Refusal::new(StatusCode::NOT_FOUND, "NOTFOUND", text));
            }
        }
        shards.retain(|shard| prefixes.contains(&shard.prefix));
    }
    health.ready = !shards.is_empty() && health.serves_all();
    if health.ready {
        health.explanation.clear();
    } else if health.explanation.is_empty() {
        health.explanation = explain(&health.keyspaces);
    }
    Ok(())
}

/// Why some of these shards are not served: what is the matter with the first one, and how many there are.
fn explain(shards: &[KeyspaceHealth]) -> String {
    let missing: Vec<_> = shards.iter().filter(|shard| !shard.ready).collect();
    let Some(first) = missing.first() else { return "it knows no keyspace".to_owned() };
    let name = if first.prefix.is_empty() { "default" } else { &first.prefix };
    let more = match missing.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more shards)"),
    };
    format!("keyspace '{name}' is not served through this node: {}{more}", first.explanation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_about_the_node_or_about_keyspaces() {
        let parsed = |query| Question::parse(query).map_err(|_| ());
        let keyspaces = |prefixes: &[&str]| {
            Ok(Question::Keyspaces(prefixes.iter().map(|prefix| (*prefix).to_owned()).collect()))
        };
        assert_eq!(parsed(None), Ok(Question::Node));
        assert_eq!(parsed(Some("")), Ok(Question::Node));
        assert_eq!(parsed(Some("all")), Ok(Question::All));
        assert_eq!(parsed(Some("keyspace=")), keyspaces(&[""]));
        assert_eq!(parsed(Some("keyspace=a%26b%3A&keyspace=r:")), keyspaces(&["a&b:", "r:"]));
        for wrong in
            ["keyspaces=r:", "keyspace", "all&keyspace=r:", "all=1", "keyspace=%ff", "keyspace=%x", "x"]
        {
            assert_eq!(parsed(Some(wrong)), Err(()), "{wrong}");
        }
    }

    #[test]
    fn ready_answers_the_question() {
        let shard = |prefix: &str, shard, ready| KeyspaceHealth {
            prefix: prefix.to_owned(),
            shard,
            ready,
            explanation: if ready { String::new() } else { "no leader is known".to_owned() },
            ..Default::default()
        };
        let keyspaces = vec![shard("", 0, true), shard("r:", 0, true), shard("r:", 1, false)];
        let health = Health { ready: true, keyspaces, ..Default::default() };
        let asked = |query| {
            let mut health = health.clone();
            narrow(&mut health, &Question::parse(Some(query)).unwrap_or(Question::Node)).map_err(|_| ())?;
            let why = "keyspace 'r:' is not served through this node: no leader is known";
            assert_eq!(health.explanation, if health.ready { "" } else { why });
            Ok::<_, ()>((health.ready, health.keyspaces.len()))
        };
        assert_eq!(asked(""), Ok((true, 3)));
        assert_eq!(asked("all"), Ok((false, 3)));
        assert_eq!(asked("keyspace="), Ok((true, 1)));
        assert_eq!(asked("keyspace=r:"), Ok((false, 2)));
        assert_eq!(asked("keyspace=&keyspace=r:"), Ok((false, 3)));
        assert_eq!(asked("keyspace=s:"), Err(()));
    }
}

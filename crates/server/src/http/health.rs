//! `GET /health`: whether the node is ready, or whether it serves what the query names.

use hyper::StatusCode;
use serde_json::Value;

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
pub(super) fn narrow(health: &mut Value, question: &Question) -> Result<(), Refusal> {
    if *question == Question::Node {
        return Ok(());
    }
    let Some(shards) = health.get_mut("keyspaces").and_then(Value::as_array_mut) else { return Ok(()) };
    let prefix_of = |shard: &Value| shard["prefix"].as_str().map(str::to_owned);
    if let Question::Keyspaces(prefixes) = question {
        for prefix in prefixes {
            if !shards.iter().any(|shard| prefix_of(shard).as_ref() == Some(prefix)) {
                let text = format!("this node knows no keyspace '{prefix}'; GET /keyspaces lists them");
                return Err(Refusal::new(StatusCode::NOT_FOUND, "NOTFOUND", text));
            }
        }
        shards.retain(|shard| prefix_of(shard).is_some_and(|prefix| prefixes.contains(&prefix)));
    }
    let is_ready = !shards.is_empty() && shards.iter().all(|shard| shard["ready"] == true);
    health["ready"] = is_ready.into();
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        let health = json!({ "ready": true, "keyspaces": [
            { "prefix": "", "ready": true },
            { "prefix": "r:", "shard": 0, "ready": true },
            { "prefix": "r:", "shard": 1, "ready": false },
        ] });
        let asked = |query| {
            let mut health = health.clone();
            narrow(&mut health, &Question::parse(Some(query)).unwrap_or(Question::Node)).map_err(|_| ())?;
            let shards = health["keyspaces"].as_array().map_or(0, Vec::len);
            Ok::<_, ()>((health["ready"].as_bool(), shards))
        };
        assert_eq!(asked(""), Ok((Some(true), 3)));
        assert_eq!(asked("all"), Ok((Some(false), 3)));
        assert_eq!(asked("keyspace="), Ok((Some(true), 1)));
        assert_eq!(asked("keyspace=r:"), Ok((Some(false), 2)));
        assert_eq!(asked("keyspace=&keyspace=r:"), Ok((Some(false), 3)));
        assert_eq!(asked("keyspace=s:"), Err(()));
    }
}

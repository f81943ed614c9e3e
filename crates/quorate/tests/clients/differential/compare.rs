//! Which replies count as the same.

use super::reply::Reply;

/// How the replies of a command may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alike {
    /// Not at all, except for the digits of numbers: see [`same`].
    Exactly,
    /// The elements may come in any order: those of sets, and of SCAN and similar commands.
    Unordered,
    /// The pairs of elements may come in any order: fields of hashes.
    Pairs,
    /// Numbers may differ by this much: remaining times.
    Within(i64),
    /// Arguments are checked also where the key does not exist, or has another type, as in Redis 8: another error may
    /// come than from Redis 7, or one where that answers a number.
    ChecksFirst,
    /// The second command of a step draws at random: the same number of elements, each of which the first command has
    /// returned.
    Draw,
}

fn begins(reply: &Reply, texts: &[&str]) -> bool {
    matches!(reply, Reply::Line(line) if texts.iter().any(|text| line.starts_with(text.as_bytes())))
}

/// Commands on all keys are not allowed in scripts.
const NOT_IN_SCRIPTS: &str = "-ERR This Redis command is not allowed from script: ";

/// What Redis finds wrong with a search for places before it has read all of its arguments, and what is found wrong here.
const PLACES_FIRST: [&str; 3] = [
    "-ERR could not decode requested zset member",
    "-ERR COUNT must be > 0",
    "-ERR the ANY argument requires COUNT argument",
];
const PLACES_LATER: [&str; 6] = [
    "-ERR COUNT must be > 0",
    "-ERR the ANY argument requires COUNT argument",
    "-ERR value is not an integer",
    "-ERR unsupported unit provided",
    "-ERR need numeric radius",
    "-ERR syntax error",
];

/// An odd number of streams and identifiers, in the words of Redis 7 and of Redis 8.
const UNBALANCED: [&str; 2] = ["-ERR Unbalanced XREAD list of streams", "-ERR Unbalanced 'xread"];

/// Whether a reply says that a script has used a key that it had not declared, which Redis checks in clusters only. From
/// there on the two servers hold different data.
pub(super) fn parts_ways(ours: &Reply) -> bool {
    begins(ours, &["-ERR Script attempted to access the key"])
}

/// Returns the place of the first pair of replies that differ.
pub(super) fn difference(alike: Alike, theirs: &[Reply], ours: &[Reply]) -> Option<usize> {
    (0..theirs.len()).find(|place| {
        let (theirs, here) = (&theirs[*place], &ours[*place]);
        !match (alike, place) {
            (Alike::Draw, 0) => same(Alike::Unordered, theirs, here) || same(Alike::Pairs, theirs, here),
            (Alike::Draw, 1) => is_draw(theirs, here, &ours[0]),
            (Alike::Draw, _) => same(Alike::Exactly, theirs, here),
            (alike, _) => same(alike, theirs, here),
        }
    })
}

fn same(alike: Alike, theirs: &Reply, ours: &Reply) -> bool {
    match (theirs, ours) {
        (Reply::Elements(kind, theirs), Reply::Elements(own_kind, ours)) => {
            kind == own_kind
                && theirs.len() == ours.len()
                && match (alike, [theirs, ours].iter().any(|elements| has_aggregates(elements))) {
                    // The replies of a transaction, and of SCAN after the next cursor, contain arrays.
                    (Alike::Unordered, false) => all_same(&sorted(theirs, 1), &sorted(ours, 1)),
                    (Alike::Pairs, false) => all_same(&sorted(theirs, 2), &sorted(ours, 2)),
                    _ => theirs.iter().zip(ours).all(|(theirs, ours)| same(alike, theirs, ours)),
                }
        }
        (theirs, ours) if theirs == ours => true,
        (_, ours) if begins(ours, &[NOT_IN_SCRIPTS]) => true,
        // Of several wrong arguments of a search for places, which one Redis names depends on the key and on its members.
        (theirs, ours) if begins(theirs, &PLACES_FIRST) && begins(ours, &PLACES_LATER) => true,
        (theirs, ours) if begins(theirs, &UNBALANCED[..1]) && begins(ours, &UNBALANCED[1..]) => true,
        (Reply::Line(theirs), Reply::Line(ours)) => match (theirs[0], ours[0], alike) {
            (b':', b'-', Alike::ChecksFirst) => true,
            (b'-', b'-', Alike::ChecksFirst) => theirs.starts_with(b"-WRONGTYPE"),
            (b':', b':', Alike::Within(most)) => match (integer(&theirs[1..]), integer(&ours[1..])) {
                // A negative number means that there is no time.
                (Some(theirs @ 0..), Some(ours @ 0..)) => theirs.abs_diff(ours) <= most.unsigned_abs(),
                _ => false,
            },
            (b',', b',', _) => same_number(&theirs[1..], &ours[1..]),
            _ => false,
        },
        (Reply::Bulk(theirs), Reply::Bulk(ours)) => same_number(theirs, ours),
        _ => false,
    }
}

/// Numbers are written with fewer digits than in Redis 7.0: as in 7.2. And a score of 0 has no sign.
fn same_number(theirs: &[u8], ours: &[u8]) -> bool {
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<f64>().ok();
    let is_written_otherwise = theirs.len() > 16 || theirs == b"-0";
    is_written_otherwise && number(theirs).is_some() && number(theirs) == number(ours)
}

fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn has_aggregates(elements: &[Reply]) -> bool {
    elements.iter().any(|element| matches!(element, Reply::Elements(..)))
}

fn all_same(theirs: &[Vec<Reply>], ours: &[Vec<Reply>]) -> bool {
    theirs
        .iter()
        .flatten()
        .zip(ours.iter().flatten())
        .all(|(theirs, ours)| same(Alike::Exactly, theirs, ours))
}

fn sorted(elements: &[Reply], size: usize) -> Vec<Vec<Reply>> {
    let mut groups: Vec<Vec<Reply>> = elements.chunks(size).map(<[Reply]>::to_vec).collect();
    groups
        .sort_by_cached_key(|group| group.iter().map(|element| element.bytes().to_vec()).collect::<Vec<_>>());
    groups
}

/// Whether a draw has the form of Redis's, and consists of what could be drawn.
fn is_draw(theirs: &Reply, ours: &Reply, from: &Reply) -> bool {
    let is_element = |drawn: &Reply| match from {
        Reply::Elements(_, elements) => flat(elements).contains(&drawn.bytes()),
        _ => false,
    };
    match (theirs, ours) {
        (Reply::Elements(kind, theirs), Reply::Elements(own_kind, ours)) => {
            kind == own_kind
                && theirs.len() == ours.len()
                && theirs.iter().zip(ours).all(|(theirs, ours)| is_draw(theirs, ours, from))
        }
        (Reply::Bulk(_), Reply::Bulk(_)) => is_element(ours),
        (Reply::Line(theirs), Reply::Line(own)) if theirs[0] == b',' && own[0] == b',' => is_element(ours),
        (theirs, ours) => theirs == ours,
    }
}

fn flat(elements: &[Reply]) -> Vec<&[u8]> {
    elements
        .iter()
        .flat_map(|element| match element {
            Reply::Elements(_, elements) => flat(elements),
            element => vec![element.bytes()],
        })
        .collect()
}

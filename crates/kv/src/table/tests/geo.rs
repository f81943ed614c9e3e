//! Places in sorted sets: the results of searches. `../../geo.rs` tests places themselves.

use super::*;
use crate::command::{AddOptions, SortedCommand};
use crate::geo::{Centre, Order, Place, Polygon, Query, Shape, Shown};

const PLACES: [(&str, f64, f64); 3] =
    [("Palermo", 13.361389, 38.115556), ("Catania", 15.087269, 37.502669), ("Rome", 12.496366, 41.902783)];

fn sicily() -> Store {
    let (mut store, mut scratch) = (Store::new(), Vec::new());
    let scores = PLACES.map(|(_, longitude, latitude)| Place { longitude, latitude }.score().to_string());
    let pairs = scores.iter().zip(PLACES).flat_map(|(score, (name, ..))| [score.as_bytes(), name.as_bytes()]);
    let (pairs, options) = (List::build(&mut scratch, pairs), AddOptions::default());
    let add = SortedCommand::Add { key: b"k", pairs, options, counts_changes: false };
    assert_eq!(store.apply(&Command::OnSorted(add)), "3");
    store
}

fn around<'a>(centre: Centre<'a>, shape: Shape<'a>) -> Query<'a> {
    let (shown, takes_any, stores_distance) = (Shown::default(), false, false);
    Query {
        centre,
        shape,
        unit_m: 1000.0,
        order: Order::Ascending,
        count: 0,
        takes_any,
        shown,
        stores_distance,
    }
}

fn found(store: &mut Store, key: &[u8], query: Query<'_>) -> String {
    let mut bytes = Vec::new();
    query.encode(&mut bytes);
    store.read(&Command::OnSorted(SortedCommand::Find { key, query: &bytes }))
}

#[test]
fn members_have_their_places() {
    let (mut store, key, mut scratch) = (sicily(), &b"k"[..], Vec::new());
    let distance = |to| SortedCommand::Distance { key, from: b"Palermo", to, unit_m: 1000.0 };
    assert_eq!(store.read(&Command::OnSorted(distance(b"Catania"))), "\"166.2742\"");
    assert_eq!(store.read(&Command::OnSorted(distance(b"Atlantis"))), "nil");
    let members = List::build(&mut scratch, [&b"Catania"[..], b"Atlantis"]);
    let hashes = SortedCommand::Hashes { key, members };
    assert_eq!(store.read(&Command::OnSorted(hashes)), "[\"sqdtr74hyu0\" nil]");
    let places = SortedCommand::Places { key, members };
    let shown = "[[15.08726745843887329 37.50266842333162032] aborted]";
    assert_eq!(store.read(&Command::OnSorted(places)), shown, "the second is a null array");
}

#[test]
fn searches_find_the_places_in_their_area() {
    let (mut store, palermo) = (sicily(), Centre::Member(b"Palermo"));
    let circle = around(palermo, Shape::Circle(200.0));
    assert_eq!(found(&mut store, b"k", circle), "[\"Palermo\" \"Catania\"]");
    let descending = Query { order: Order::Descending, count: 1, ..around(palermo, Shape::Circle(500.0)) };
    assert_eq!(found(&mut store, b"k", descending), "[\"Rome\"]");
    let narrow = around(palermo, Shape::Box(200.0, 1000.0));
    assert_eq!(found(&mut store, b"k", narrow), "[\"Palermo\" \"Rome\"]");
    let shown = Shown { distance: true, hash: true, place: false };
    let near = Query {
        shown,
        ..around(Centre::Place(Place { longitude: 15.0, latitude: 37.0 }), Shape::Circle(100.0))
    };
    assert_eq!(found(&mut store, b"k", near), "[[\"Catania\" \"56.4413\" 3479447370796909]]");
    let unknown = around(Centre::Member(b"Atlantis"), Shape::Circle(1.0));
    assert_eq!(found(&mut store, b"k", unknown), "!ERR could not decode requested zset member");
    assert_eq!(found(&mut store, b"no", unknown), "[]");
    let any = Query { count: 1, takes_any: true, order: Order::Any, ..circle };
    assert_eq!(found(&mut store, b"k", any).matches(' ').count(), 0, "one is enough");
}

#[test]
fn search_results_are_stored_with_scores_or_distances() {
    let mut store = sicily();
    let circle = around(Centre::Member(b"Palermo"), Shape::Circle(200.0));
    for (stores_distance, expected) in [(false, "3479099956230698"), (true, "0")] {
        let mut bytes = Vec::new();
        Query { stores_distance, ..circle }.encode(&mut bytes);
        let store_found = SortedCommand::StoreFound { to: b"to", from: b"k", query: &bytes };
        assert_eq!(store.apply(&Command::OnSorted(store_found)), "2");
        store.play(&format!("ZCARD to -> 2\nZSCORE to Palermo -> {expected}"));
    }
    let mut bytes = Vec::new();
    around(Centre::Place(Place { longitude: 0.0, latitude: 0.0 }), Shape::Circle(1.0)).encode(&mut bytes);
    let nothing = SortedCommand::StoreFound { to: b"to", from: b"k", query: &bytes };
    assert_eq!(store.apply(&Command::OnSorted(nothing)), "0");
    store.play("EXISTS to -> 0");
}

#[test]
fn a_polygon_is_searched_from_its_centre() {
    let (mut store, mut scratch) = (sicily(), Vec::new());
    let at = |(longitude, latitude)| Place { longitude, latitude };
    // Around Palermo and Rome; Catania is in the notch between them.
    let corners =
        [(11.0, 43.0), (13.0, 43.0), (13.5, 39.0), (16.0, 38.9), (13.6, 38.8), (14.0, 37.0), (11.0, 37.0)];
    let polygon = Polygon::build(&mut scratch, &corners.map(at));
    let shown = Shown { distance: true, ..Shown::default() };
    let query =
        Query { shown, unit_m: 1.0, ..around(Centre::Place(polygon.centre()), Shape::Polygon(polygon)) };
    let palermo = polygon.centre().distance_m(at((13.361389, 38.115556)));
    let answer = found(&mut store, b"k", query);
    assert!(answer.starts_with("[[\"Palermo\" \"") && answer.contains("[\"Rome\" \""), "{answer}");
    assert!(!answer.contains("Catania"), "{answer}");
    assert!(answer.contains(&format!("{palermo:.0}")[..4]), "{palermo} {answer}");
}

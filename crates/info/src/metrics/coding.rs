//! The counters and measurements of large values, in Prometheus's text format.

use super::head;
use crate::facts::{ChoiceFacts, CodingCounters};
use std::fmt::Write;

/// Appends a metric with its series, each with its labels, which may be empty.
fn put(out: &mut String, name: &str, help: &str, series: &[(String, f64)]) {
    if series.is_empty() {
        return;
    }
    let name = format!("quorate_coding_{name}");
    head(&name, help, out);
    for (labels, value) in series {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{name}{labels} {value}");
    }
}

/// Appends the metrics of values that are kept as fragments.
pub(super) fn coding_metrics(counters: CodingCounters, choice: &ChoiceFacts, out: &mut String) {
    let CodingCounters {
        values_coded,
        values_copied,
        fallbacks,
        cache_hits,
        cache_misses,
        damaged_pieces,
        rebuilt,
        rebuilt_bytes,
    } = counters;
    let counters = [
        ("values_total", "Large values stored as fragments.", values_coded),
        ("values_copied_total", "Of these, as whole copies.", values_copied),
        ("fallbacks_total", "Attempts given up for one with fewer parts.", fallbacks),
        ("cache_hits_total", "Reads of large values that were at hand.", cache_hits),
        ("cache_misses_total", "Reads for which fragments were fetched.", cache_misses),
        ("damaged_pieces_total", "Pieces that were not what they should have been.", damaged_pieces),
        ("rebuilt_total", "Fragments rebuilt here.", rebuilt),
        ("rebuilt_bytes_total", "Bytes of these.", rebuilt_bytes),
    ];
    for (name, help, value) in counters {
        put(out, name, help, &[(String::new(), value as f64)]);
    }
    let chosen: Vec<_> =
        choice.chosen.iter().map(|(way, count)| (format!("{{way=\"{way}\"}}"), *count as f64)).collect();
    put(out, "chosen_total", "Values by the way that was predicted to be the fastest.", &chosen);
    let node = |node| format!("{{node=\"{node}\"}}");
    let peers = choice.peers.iter();
    let bandwidths: Vec<_> =
        peers.clone().filter_map(|peer| Some((node(peer.node), peer.bandwidth?))).collect();
    put(out, "peer_bytes_per_second", "What a node takes of what it is sent.", &bandwidths);
    let round_trips: Vec<_> =
        peers.filter_map(|peer| Some((node(peer.node), peer.round_trip_us? / 1e6))).collect();
    put(out, "peer_round_trip_seconds", "A round trip to a node.", &round_trips);
    let single = |value: Option<f64>| -> Vec<_> { value.map(|it| (String::new(), it)).into_iter().collect() };
    put(out, "uplink_bytes_per_second", "What this node sends.", &single(choice.uplink));
    put(out, "encoding_bytes_per_second", "Bytes of values cut.", &single(choice.encoding));
}

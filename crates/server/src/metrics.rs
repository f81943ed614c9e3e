//! The worker's counters, as Prometheus text. The node has counters of its own.

use std::fmt::Write as _;

use node::metrics::{counters_and_gauges, head};

use crate::log_writer::lost_lines;

/// Upper bounds of a histogram's buckets, in microseconds.
const BUCKETS_US: [u64; 11] = [10, 25, 50, 100, 250, 500, 1_000, 5_000, 25_000, 100_000, 1_000_000];

/// A histogram of durations. Only the worker's thread updates it.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    count: u64,
    sum_us: u64,
    buckets: [u64; BUCKETS_US.len()],
}

/// The other counters.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) driver: driver::Counters,
    /// Connections on the peer port that were not authenticated as a peer's.
    pub(crate) strangers: u64,
    /// Connections of peers that were closed because a frame had been changed on the way.
    pub(crate) forged_frames: u64,
    pub(crate) http_calls: u64,
    /// Completed TLS handshakes of clients.
    pub(crate) tls_handshakes: u64,
    /// Failed TLS handshakes of clients.
    pub(crate) tls_refused: u64,
    /// Spans that the collector has accepted.
    pub(crate) spans_sent: u64,
    /// Spans that were dropped.
    pub(crate) spans_dropped: u64,
    /// Bytes of incomplete requests.
    pub(crate) input_bytes: usize,
    pub(crate) peer_links: usize,
    /// How many of these are in TLS.
    pub(crate) peer_links_tls: usize,
    /// Until when the certificate for TLS is valid, in seconds since the Unix epoch; `None` without TLS.
    pub(crate) certificate_expires_s: Option<u64>,
}

impl Counted {
    /// Appends everything as Prometheus text.
    pub(crate) fn render(&self, out: &mut String) {
        let driver = &self.driver;
        let metrics = [
            ("client_bytes_in_total", "Bytes read from clients.", driver.client_bytes_in),
            ("client_bytes_out_total", "Bytes written to clients.", driver.client_bytes_out),
            ("clients_too_slow_total", "Clients closed by request_timeout_ms.", driver.clients_too_slow),
            ("clients_idle_total", "Clients closed by the idle timeout.", driver.clients_idle),
            ("clients_too_large_total", "Clients closed by input_bytes_max.", driver.clients_too_large),
            ("peer_bytes_in_total", "Bytes read from peers.", driver.peer_bytes_in),
            ("peer_bytes_out_total", "Bytes written to peers.", driver.peer_bytes_out),
            ("strangers_total", "Connections on the peer port that were turned away.", self.strangers),
            ("peer_frames_forged_total", "Frames of peers that were changed on the way.", self.forged_frames),
            ("http_calls_total", "Calls that HTTP handed to the worker.", self.http_calls),
            ("tls_handshakes_total", "Connections of clients and HTTP over TLS.", self.tls_handshakes),
            ("tls_refused_total", "Handshakes of TLS that were refused or too slow.", self.tls_refused),
            ("spans_sent_total", "Spans of traces that the collector has taken.", self.spans_sent),
            ("spans_dropped_total", "Spans of traces that were dropped.", self.spans_dropped),
            ("log_lines_lost_total", "Lines of the log that could not be written.", lost_lines()),
            ("input_bytes", "Bytes of requests that have not been taken yet.", self.input_bytes as u64),
            ("peer_links", "Peers with a link that is up.", self.peer_links as u64),
            ("peer_links_tls", "Peers with a link that is up and in TLS.", self.peer_links_tls as u64),
        ];
        counters_and_gauges(&metrics, out);
        let name = "quorate_tls_certificate_expiry_timestamp_seconds";
        head(name, "Until when the certificate for TLS is valid.", out);
        if let Some(expires_s) = self.certificate_expires_s {
            let _ = writeln!(out, "{name} {expires_s}");
        }
    }
}

impl Durations {
    /// Counts a duration, in microseconds.
    pub(crate) fn note(&mut self, us: u64) {
        self.count += 1;
        self.sum_us += us;
        if let Some(bucket) = BUCKETS_US.iter().position(|end| us <= *end) {
            self.buckets[bucket] += 1;
        }
    }

    /// Appends the histogram as Prometheus text. `name` ends in `_seconds`.
    pub(crate) fn render(&self, name: &str, help: &str, out: &mut String) {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut up_to_here = 0;
        for (end_us, count) in BUCKETS_US.iter().zip(self.buckets) {
            up_to_here += count;
            let _ = writeln!(out, "{name}_bucket{{le=\"{}\"}} {up_to_here}", *end_us as f64 / 1e6);
        }
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(out, "{name}_sum {}\n{name}_count {}", self.sum_us as f64 / 1e6, self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_adds_up() {
        let mut turns = Durations::default();
        for us in [1, 10, 11, 2_000_000] {
            turns.note(us);
        }
        let mut text = String::new();
        Counted { input_bytes: 4, ..Counted::default() }.render(&mut text);
        turns.render("quorate_turn_seconds", "Turns.", &mut text);
        for line in [
            "quorate_turn_seconds_bucket{le=\"0.00001\"} 2",
            "quorate_turn_seconds_bucket{le=\"0.000025\"} 3",
            "quorate_turn_seconds_bucket{le=\"1\"} 3",
            "quorate_turn_seconds_bucket{le=\"+Inf\"} 4",
            "quorate_turn_seconds_count 4",
            "quorate_input_bytes 4",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
        }
    }
}

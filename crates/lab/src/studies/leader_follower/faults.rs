//! A slow follower, and a lost leader, while clients write.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::follower_reads::Client;
use crate::harness::{Fault, Figures};
use crate::systems::Running;

/// A slow follower runs for a tenth of the time: it is paused for most of each period, as on an overloaded machine. The
/// periods are short, so that in a closed loop many operations meet a paused follower.
const TURN: Duration = Duration::from_millis(20);
const STILL: Duration = Duration::from_millis(18);

/// The faults of a follower that is slow for `length`. It is resumed before that time is over.
pub(super) fn slow(node: usize, length: Duration) -> Vec<(Duration, Fault)> {
    let turns = length.as_millis().saturating_sub(1) / TURN.as_millis();
    (0..turns as u32)
        .flat_map(|turn| {
            let begins = TURN * turn;
            [(begins, Fault::Pause(node)), (begins + STILL, Fault::Resume(node))]
        })
        .collect()
}

/// The leader, which is killed.
const LEADER: usize = 0;

/// How many clients write while it is killed.
pub(super) const CLIENTS: usize = 8;

/// How long they write before and after.
const BEFORE: Duration = Duration::from_millis(750);
pub(super) const AFTER: Duration = Duration::from_millis(1750);

/// A client gives up after this time, as the study's does (experiments/load_test.py, line 37), and tries the next node.
const TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// Writes acknowledged within this time before the leader's death are looked up afterwards.
const AT_RISK: Duration = Duration::from_millis(500);

/// The length of the period that each of the measures in [`SLICES`] covers.
const SLICE: Duration = Duration::from_millis(250);

/// Measures of the acknowledged writes per second, from [`BEFORE`] the leader's death on, and when each period begins.
pub(super) const SLICES: [(&str, &str); 10] = [
    ("written_per_s_00", "-0.75 s"),
    ("written_per_s_01", "-0.5"),
    ("written_per_s_02", "-0.25"),
    ("written_per_s_03", "0"),
    ("written_per_s_04", "0.25"),
    ("written_per_s_05", "0.5"),
    ("written_per_s_06", "0.75"),
    ("written_per_s_07", "1"),
    ("written_per_s_08", "1.25"),
    ("written_per_s_09", "1.5 s"),
];

/// A write that has ended.
#[derive(Clone, Copy, Debug)]
struct Write {
    client: usize,
    number: usize,
    sent: Instant,
    ended: Instant,
    is_acknowledged: bool,
}

impl Write {
    fn key(&self, prefix: &str) -> String {
        format!("{prefix}{}-{}", self.client, self.number)
    }

    fn value(&self) -> String {
        format!("value-{}-{}", self.client, self.number)
    }
}

/// Kills the leader while clients write new keys. Measures when writes are acknowledged again, and which acknowledged
/// writes no surviving node has. All clients begin at the leader; a client that is refused or loses its connection
/// tries the next node.
pub(super) fn lose_leader(
    running: &mut Running<'_>,
    is_http: bool,
    nodes: &[SocketAddr],
    prefix: &str,
) -> Result<Figures> {
    let until = Instant::now() + BEFORE + AFTER;
    let (killed_at, writes) = std::thread::scope(|scope| {
        let client = |client| scope.spawn(move || write(is_http, nodes, client, prefix, until));
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        std::thread::sleep(BEFORE);
        let killed_at = Instant::now();
        running.kill(LEADER);
        let join = |client: std::thread::ScopedJoinHandle<'_, Vec<Write>>| {
            client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        (killed_at, clients.into_iter().flat_map(join).collect::<Vec<Write>>())
    });
    let mut figures = figures(&writes, killed_at);
    let at_risk: Vec<&Write> = writes.iter().filter(|write| is_at_risk(write, killed_at)).collect();
    figures.insert("writes_at_risk", at_risk.len() as f64);
    let left = nodes.iter().skip(LEADER + 1);
    let mut left: Vec<Client> =
        left.filter_map(|node| Client::connect(is_http, *node, TIMEOUT).ok()).collect();
    figures.extend(count_lost(&at_risk, &mut left, prefix).map(|lost| ("writes_lost", f64::from(lost))));
    Ok(figures)
}

/// The loop of one client.
fn write(is_http: bool, nodes: &[SocketAddr], client: usize, prefix: &str, until: Instant) -> Vec<Write> {
    let mut node = LEADER;
    let mut connection: Option<Client> = None;
    let mut writes = Vec::new();
    while Instant::now() < until {
        let sent = Instant::now();
        let mut write = Write { client, number: writes.len(), sent, ended: sent, is_acknowledged: false };
        let open = match connection.take() {
            Some(open) => Ok(open),
            None => Client::connect(is_http, nodes[node], TIMEOUT),
        };
        let put = open.and_then(|mut open| {
            open.put(&write.key(prefix), &write.value())?;
            Ok(open)
        });
        write.ended = Instant::now();
        write.is_acknowledged = put.is_ok();
        writes.push(write);
        connection = put.ok();
        if connection.is_none() {
            node = (node + 1) % nodes.len();
            std::thread::sleep(RETRY_AFTER);
        }
    }
    writes
}

/// Whether the leader may have been the only node with this acknowledged write.
fn is_at_risk(write: &Write, killed_at: Instant) -> bool {
    write.is_acknowledged && write.sent < killed_at && write.ended + AT_RISK >= killed_at
}

fn figures(writes: &[Write], killed_at: Instant) -> Figures {
    let acknowledged = || writes.iter().filter(|write| write.is_acknowledged);
    let mut figures = Figures::new();
    for (number, (measure, _)) in (0..).zip(SLICES) {
        // Both are relative to the beginning of the first slice.
        let slice = SLICE * number..SLICE * (number + 1);
        let is_in = |write: &&Write| {
            (write.ended + BEFORE).checked_duration_since(killed_at).is_some_and(|at| slice.contains(&at))
        };
        figures.insert(measure, acknowledged().filter(is_in).count() as f64 / SLICE.as_secs_f64());
    }
    let after = acknowledged().filter(|write| write.sent >= killed_at).map(|write| write.ended - killed_at);
    let gap = after.min();
    figures.extend(gap.map(|gap| ("writes_gap_ms", gap.as_secs_f64() * 1000.0)));
    figures.insert("writes_resumed", f64::from(u8::from(gap.is_some())));
    figures.insert("writes_failed", (writes.len() - acknowledged().count()) as f64);
    figures
}

/// How many of these writes none of these nodes has; `None` if that is unknown, because a node does not answer.
fn count_lost(writes: &[&Write], nodes: &mut [Client], prefix: &str) -> Option<u32> {
    let mut lost = 0;
    for write in writes {
        let (key, value) = (write.key(prefix), write.value());
        let mut is_found = false;
        for node in nodes.iter_mut() {
            is_found = node.has(&key, &value).ok()?;
            if is_found {
                break;
            }
        }
        lost += u32::from(!is_found);
    }
    (!nodes.is_empty()).then_some(lost)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write as _};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_slow_follower_is_paused_for_most_of_each_period_and_resumed_before_the_end() {
        let ms = Duration::from_millis;
        let (pause, resume) = (Fault::Pause(2), Fault::Resume(2));
        assert_eq!(slow(2, ms(50)), [(ms(0), pause), (ms(18), resume), (ms(20), pause), (ms(38), resume)]);
        assert_eq!(slow(2, ms(20)), []);
    }

    #[test]
    fn the_gap_lasts_until_a_write_that_was_sent_after_the_death_is_acknowledged() {
        let begun = Instant::now();
        let killed_at = begun + BEFORE;
        let write = |sent: u64, ended: u64, is_acknowledged| Write {
            client: 0,
            number: 0,
            sent: begun + Duration::from_millis(sent),
            ended: begun + Duration::from_millis(ended),
            is_acknowledged,
        };
        let before = [write(0, 10, true), write(740, 745, true), write(749, 751, true)];
        let found = figures(&[&before[..], &[write(751, 800, false)]].concat(), killed_at);
        assert_eq!((found["writes_resumed"], found["writes_failed"]), (0.0, 1.0));
        assert!(!found.contains_key("writes_gap_ms"));
        let found =
            figures(&[&before[..], &[write(800, 1050, true), write(1060, 1070, true)]].concat(), killed_at);
        assert_eq!((found["writes_resumed"], found["writes_gap_ms"]), (1.0, 300.0));
        assert_eq!(SLICE * SLICES.len() as u32, BEFORE + AFTER);
        let slices = SLICES.map(|(measure, _)| found[measure] * SLICE.as_secs_f64());
        assert_eq!(slices[..6], [1.0, 0.0, 1.0, 1.0, 2.0, 0.0]);
        // The first was acknowledged long before.
        assert_eq!(before.map(|write| is_at_risk(&write, killed_at)), [false, true, true]);
    }

    /// A node that accepts every write but has only the first one of client 0.
    fn node() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                std::thread::spawn(move || {
                    let mut line = String::new();
                    while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                        let answer = match line.trim() {
                            "key-0-0" => "$9\r\nvalue-0-0\r\n",
                            "key-0-1" => "$-1\r\n",
                            word if word.starts_with("value") => "+OK\r\n",
                            _ => "",
                        };
                        // The last word of a request determines the answer.
                        if stream.buffer().is_empty() {
                            stream.get_mut().write_all(answer.as_bytes()).unwrap();
                        }
                        line.clear();
                    }
                });
            }
        });
        address
    }

    #[test]
    fn a_client_goes_on_at_the_next_node_and_what_no_node_has_is_lost() {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let until = Instant::now() + Duration::from_millis(100);
        let writes = write(false, &[gone, node()], 0, "key-", until);
        assert!(!writes[0].is_acknowledged && writes[1].is_acknowledged && writes.len() > 2, "{writes:?}");
        let at_risk: Vec<&Write> = writes[..2].iter().collect();
        let mut nodes = [Client::connect(false, node(), TIMEOUT).unwrap()];
        assert_eq!(count_lost(&at_risk, &mut nodes, "key-"), Some(1));
        assert_eq!(count_lost(&at_risk, &mut [], "key-"), None);
    }
}

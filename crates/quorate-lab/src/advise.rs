//! `quorate advise`: recommends whole copies or fragments, for a size, a network and a share of reads.
//!
//! The figures come from the cost model of [`coding::cost`], with constants that a run of the study
//! `coding-crossover` has fitted on a machine, if that run's folder is given.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::lab::network::Bandwidth;
use ::lab::studies;
use anyhow::{Result, ensure};
use clap::Args;
use coding::cost::{At, Links, Work, crossover, read_seconds, write_seconds};
use coding::data_fragments_max;
use serde_json::json;

const EXIT_FAILED: u8 = 1;
const EXIT_USAGE: u8 = 2;

/// The largest group; values are not replicated more often.
const NODES_MAX: usize = 15;

/// Times that differ by less than this part count as equal: then whole copies are chosen, as they are simpler.
const TIE: f64 = 0.05;

const EXAMPLES: &str = "\
Examples:
  quorate advise --value 500KB --bandwidth 10mbit --reads 0.9 --nodes 5
  quorate advise --value 1MB --bandwidth 1gbit --rtt 20ms --json
  quorate advise --value 500KB --bandwidth 10mbit --from lab-results/coding-crossover-full

Times are those of one client that waits for each answer, on a network whose nodes can each send and receive as much as
--bandwidth says. Bytes are decimal: 1 KB is 1000, 1 KiB is 1024. The nodes' own costs are those that the study measured:
with --from on the machine of that run, otherwise on the machine on which Quorate was developed.

Exit code: 0 done; 1 the folder holds no such study; 2 wrong usage.";

/// Predict what whole copies and fragments of a value cost, and recommend one
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AdviseArgs {
    /// The size of a value, such as 500KB or 1MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    value: usize,

    /// What each node can send and receive, such as 10mbit or 1gbit
    #[arg(long, value_name = "RATE")]
    bandwidth: Bandwidth,

    /// The share of operations that are reads, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0.5", value_parser = parse_share)]
    reads: f64,

    /// The number of replicas of the keyspace
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=NODES_MAX as i64))]
    nodes: u16,

    /// The round-trip time between two nodes
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse_time)]
    rtt: Duration,

    /// The share of reads that are answered from a node's cache of reassembled values, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse_share)]
    hits: f64,

    /// Take the nodes' own costs from a run of the study coding-crossover in this folder
    #[arg(long, value_name = "FOLDER")]
    from: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn parse_size(text: &str) -> Result<usize, String> {
    let refusal = || format!("'{text}' is not a size: write 1000, 500KB or 1MiB");
    let unit_at = text.find(char::is_alphabetic).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let number: f64 = number.trim().parse().map_err(|_| refusal())?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(refusal()),
    };
    let bytes = number * factor;
    if !(1.0..=1e12).contains(&bytes) {
        return Err(format!("{text} is not between 1 byte and 1000 GB"));
    }
    Ok(bytes as usize)
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("'{text}' is not a share: write a number from 0 to 1")),
    }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let refusal = || format!("'{text}' is not a time: write 500us, 10ms or 1s");
    let unit_at = text.find(char::is_alphabetic).ok_or_else(refusal)?;
    let (number, unit) = text.split_at(unit_at);
    let number: f64 = number.parse().map_err(|_| refusal())?;
    let factor = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(refusal()),
    };
    Duration::try_from_secs_f64(number * factor).map_err(|_| refusal())
}

pub(crate) fn run(args: &AdviseArgs) -> ExitCode {
    let work = match &args.from {
        None => Work::default(),
        Some(folder) => match studies::fitted(folder) {
            Ok(fitted) => fitted.work,
            Err(error) => {
                eprintln!("quorate advise: {error:#}");
                return ExitCode::from(EXIT_FAILED);
            }
        },
    };
    match Advice::new(args, work) {
        Ok(advice) if args.json => println!("{:#}", advice.json(args)),
        Ok(advice) => print!("{}", advice.text(args)),
        Err(error) => {
            eprintln!("quorate advise: {error:#}");
            return ExitCode::from(EXIT_USAGE);
        }
    }
    ExitCode::SUCCESS
}

/// The prediction for one way to keep values. Times in milliseconds, at the leader and at another node.
struct Choice {
    parts: usize,
    write_ms: [f64; 2],
    read_ms: [f64; 2],
    /// The mean over reads and writes, and over clients of all nodes.
    mean_ms: f64,
    /// Bytes that all nodes keep for each byte of a value.
    stored: f64,
    /// The bandwidth, in Mbit/s, below which it writes faster than whole copies at the leader.
    crosses_at_mbit: Option<f64>,
}

struct Advice {
    choices: Vec<Choice>,
    best: usize,
}

impl Advice {
    fn new(args: &AdviseArgs, work: Work) -> Result<Advice> {
        let members = usize::from(args.nodes);
        let bandwidth = args.bandwidth.as_bits_per_second() as f64 / 8.0;
        let links = Links::even(members, bandwidth, args.rtt.as_secs_f64());
        let choice = |parts: usize| {
            let both = |seconds: &dyn Fn(At) -> Option<f64>| {
                let ms = |at| seconds(at).map(|seconds| seconds * 1e3);
                ms(At::Leader).zip(ms(At::Another)).map(|(leader, another)| [leader, another])
            };
            let write_ms = both(&|at| write_seconds(args.value, parts, at, &links, &work))?;
            let read_ms = both(&|at| {
                let missed = read_seconds(args.value, parts, at, &links, &work)?;
                // A cache hit costs the question but no transfer; whole copies are not cached.
                let hit = read_seconds(0, 1, at, &links, &work)? + work.handle * args.value as f64;
                Some(if parts == 1 { missed } else { args.hits * hit + (1.0 - args.hits) * missed })
            })?;
            let everywhere =
                |[leader, another]: [f64; 2]| (leader + another * (members - 1) as f64) / members as f64;
            Some(Choice {
                parts,
                write_ms,
                read_ms,
                mean_ms: args.reads * everywhere(read_ms) + (1.0 - args.reads) * everywhere(write_ms),
                stored: members as f64 / parts as f64,
                crosses_at_mbit: crossover(args.value, parts, At::Leader, &links, &work)
                    .filter(|_| parts > 1)
                    .map(|bytes_per_second| bytes_per_second * 8.0 / 1e6),
            })
        };
        let choices: Vec<Choice> = (1..=data_fragments_max(members)).filter_map(choice).collect();
        ensure!(!choices.is_empty(), "a group of {members} keeps no values");
        let fastest = choices.iter().map(|choice| choice.mean_ms).fold(f64::INFINITY, f64::min);
        let best = choices.iter().position(|choice| choice.mean_ms <= fastest * (1.0 + TIE)).unwrap_or(0);
        Ok(Advice { choices, best })
    }

    fn text(&self, args: &AdviseArgs) -> String {
        let mut text = format!(
            "{} on {} nodes, {} each way, {} round trip, {} % reads\n\n",
            size_words(args.value),
            args.nodes,
            args.bandwidth,
            time_words(args.rtt.as_secs_f64() * 1e3),
            args.reads * 100.0
        );
        text.push_str(
            "                    at the leader         at another node\n\
             \x20                   write      read       write      read       mean       stored  crosses at\n",
        );
        for choice in &self.choices {
            let [leader_write, another_write] = choice.write_ms.map(time_words);
            let [leader_read, another_read] = choice.read_ms.map(time_words);
            let crosses = match choice.crosses_at_mbit {
                Some(mbit) if mbit.is_infinite() => "never: always faster".to_owned(),
                Some(mbit) => rate_words(mbit),
                None if choice.parts == 1 => String::new(),
                None => "never: always slower".to_owned(),
            };
            text.push_str(&format!(
                "{:<18}  {leader_write:<9}  {leader_read:<9}  {another_write:<9}  {another_read:<9}  {:<9}  {:.2}x   {crosses}\n",
                name(choice.parts),
                time_words(choice.mean_ms),
                choice.stored,
            ));
        }
        let best = &self.choices[self.best];
        text.push_str(&format!("\nrecommended: {}\n", setting(best.parts)));
        text.push_str(&self.reason());
        text
    }

    fn reason(&self) -> String {
        let (best, copies) = (&self.choices[self.best], &self.choices[0]);
        if self.best == 0 {
            return match self.choices.iter().skip(1).min_by(|a, b| a.mean_ms.total_cmp(&b.mean_ms)) {
                None => "fragments need a group of three\n".to_owned(),
                Some(coded) => format!(
                    "fragments would take {:.2} times as long ({})\n",
                    coded.mean_ms / copies.mean_ms,
                    name(coded.parts)
                ),
            };
        }
        format!(
            "{:.2} of replication's time, {:.2} of its bytes\n",
            best.mean_ms / copies.mean_ms,
            best.stored / copies.stored
        )
    }

    fn json(&self, args: &AdviseArgs) -> serde_json::Value {
        let choices: Vec<serde_json::Value> = self
            .choices
            .iter()
            .map(|choice| {
                let [leader_write, another_write] = choice.write_ms;
                let [leader_read, another_read] = choice.read_ms;
                json!({
                    "k": choice.parts,
                    "leader": {"write_ms": leader_write, "read_ms": leader_read},
                    "another": {"write_ms": another_write, "read_ms": another_read},
                    "mean_ms": choice.mean_ms,
                    "stored_per_byte": choice.stored,
                    "crosses_at_mbit": choice.crosses_at_mbit.filter(|mbit| mbit.is_finite()),
                    "is_faster_at_all_bandwidths": choice.crosses_at_mbit.is_some_and(f64::is_infinite),
                })
            })
            .collect();
        json!({
            "value_bytes": args.value,
            "bandwidth_mbit": args.bandwidth.as_bits_per_second() as f64 / 1e6,
            "nodes": args.nodes,
            "reads": args.reads,
            "rtt_ms": args.rtt.as_secs_f64() * 1e3,
            "choices": choices,
            "recommended_k": self.choices[self.best].parts,
        })
    }
}

fn name(parts: usize) -> String {
    if parts == 1 { "replication".to_owned() } else { format!("coding, k = {parts}") }
}

fn setting(parts: usize) -> String {
    if parts == 1 { "coding = \"none\"".to_owned() } else { format!("coding = \"{parts}\"") }
}

fn size_words(bytes: usize) -> String {
    match bytes as f64 {
        bytes if bytes >= 1e6 => format!("{} MB", digits(bytes / 1e6)),
        bytes if bytes >= 1e3 => format!("{} KB", digits(bytes / 1e3)),
        bytes => format!("{bytes} B"),
    }
}

fn time_words(ms: f64) -> String {
    if ms >= 1e3 { format!("{} s", digits(ms / 1e3)) } else { format!("{} ms", digits(ms)) }
}

fn rate_words(mbit: f64) -> String {
    if mbit >= 1e3 { format!("{} Gbit/s", digits(mbit / 1e3)) } else { format!("{} Mbit/s", digits(mbit)) }
}

/// Formats a number with three significant digits.
fn digits(number: f64) -> String {
    let places = match number {
        number if number >= 100.0 => 0,
        number if number >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{number:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: AdviseArgs,
    }

    fn advice(line: &str) -> (Advice, AdviseArgs) {
        let words = ["advise"].into_iter().chain(line.split(' '));
        let args = Line::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).args;
        (Advice::new(&args, Work::default()).unwrap(), args)
    }

    #[test]
    fn large_values_on_a_slow_network_are_coded() {
        let (advice, args) = advice("--value 500KB --bandwidth 10mbit --reads 0.9 --nodes 5");
        let names: Vec<usize> = advice.choices.iter().map(|choice| choice.parts).collect();
        assert_eq!(names, [1, 2, 3]);
        // 4 x 500 KB at 10 Mbit/s are 1.6 s.
        assert!((1600.0..1650.0).contains(&advice.choices[0].write_ms[0]));
        assert!(advice.choices[2].write_ms[0] < 0.4 * advice.choices[0].write_ms[0]);
        let text = advice.text(&args);
        assert!(text.contains("500 KB on 5 nodes, 10mbit each way, 1 ms round trip, 90 % reads"), "{text}");
        assert!(
            text.contains("recommended: coding = \"2\"") || text.contains("recommended: coding = \"3\""),
            "{text}"
        );
        let json = advice.json(&args);
        assert_eq!(
            (json["value_bytes"].as_u64(), json["choices"].as_array().map(Vec::len)),
            (Some(500_000), Some(3))
        );
        assert_eq!(json["choices"][2]["is_faster_at_all_bandwidths"], true, "{json}");
    }

    #[test]
    fn a_medium_value_has_a_bandwidth_at_which_both_take_equally_long() {
        let (advice, args) = advice("--value 20KB --bandwidth 10mbit --reads 0");
        assert_eq!(advice.best, 2);
        let crossing = advice.json(&args)["choices"][2]["crosses_at_mbit"].as_f64().unwrap();
        assert!(crossing > 10.0, "it is recommended below it: {crossing}");
    }

    #[test]
    fn small_values_on_a_fast_network_are_kept_whole() {
        let (advice, args) = advice("--value 1KB --bandwidth 10gbit --reads 0.5");
        assert_eq!(advice.best, 0);
        assert!(advice.text(&args).contains("recommended: coding = \"none\""), "{}", advice.text(&args));
    }

    #[test]
    fn reading_fragments_at_the_leader_costs_more_unless_cached() {
        let (without, _) = advice("--value 600KB --bandwidth 40mbit --reads 1");
        let (with, _) = advice("--value 600KB --bandwidth 40mbit --reads 1 --hits 1");
        assert!(without.choices[1].read_ms[0] > 10.0 * without.choices[0].read_ms[0]);
        assert!(with.choices[1].read_ms[1] < 0.1 * with.choices[0].read_ms[1]);
    }

    #[test]
    fn one_node_has_one_choice() {
        let (advice, _) = advice("--value 1MB --bandwidth 1gbit --nodes 1");
        assert_eq!((advice.choices.len(), advice.best), (1, 0));
    }

    #[test]
    fn senseless_arguments_are_refused() {
        for line in [
            "--value many --bandwidth 1mbit",
            "--value 0 --bandwidth 1mbit",
            "--value 1KB --bandwidth 10",
            "--value 1KB --bandwidth 1mbit --reads 2",
            "--value 1KB --bandwidth 1mbit --nodes 0",
            "--value 1KB --bandwidth 1mbit --rtt soon",
        ] {
            let words = ["advise"].into_iter().chain(line.split(' '));
            assert!(Line::try_parse_from(words).is_err(), "{line}");
        }
        assert_eq!(parse_size("1MiB"), Ok(1 << 20));
        assert_eq!(parse_size("1.5 kb"), Ok(1500));
    }
}

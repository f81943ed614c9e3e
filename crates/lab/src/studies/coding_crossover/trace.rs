//! The steps that make up the time of each write: what the coordinator reports about the values that it has stored, and
//! the cost of applying them.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::time::Instant;

use anyhow::{Context, Result};
use kv::{Command, Condition, Coordinator, Expiry, Reference, ReplyBuffer, SetAnswer, Table, ValueId};

use crate::harness::{Arena, Arm, Figures, Point, Spread};
use crate::systems::ask;

/// One value that a node has stored as fragments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Operation {
    id: u64,
    bytes: u64,
    parts: u64,
    encode_us: f64,
    disperse_us: f64,
    order_us: f64,
}

/// Reads a line such as `trace7:bytes=1000,k=3,encode_usec=1,disperse_usec=2,order_usec=3`.
fn read(line: &str) -> Option<Operation> {
    let (id, fields) = line.strip_prefix("trace")?.split_once(':')?;
    let field = |name: &str| {
        let mut pairs = fields.trim().split(',').filter_map(|pair| pair.split_once('='));
        pairs.find(|(field, _)| *field == name)?.1.parse::<u64>().ok()
    };
    Some(Operation {
        id: id.parse().ok()?,
        bytes: field("bytes")?,
        parts: field("k")?,
        encode_us: field("encode_usec")? as f64,
        disperse_us: field("disperse_usec")? as f64,
        order_us: field("order_usec")? as f64,
    })
}

/// The last values that a node has stored as fragments, the oldest first. Empty where it keeps copies.
pub(super) fn look(arena: &mut Arena<'_>, node: usize) -> Result<Vec<Operation>> {
    let addresses = arena.system()?.resp();
    let address = addresses.get(node).with_context(|| format!("there is no node {}", node + 1))?;
    Ok(ask(*address, &["INFO", "codingtrace"])?.lines().filter_map(read).collect())
}

/// The operations in `now` that are not in `before`.
pub(super) fn since(now: Vec<Operation>, before: &[Operation]) -> Vec<Operation> {
    let known: BTreeSet<u64> = before.iter().map(|operation| operation.id).collect();
    now.into_iter().filter(|operation| !known.contains(&operation.id)).collect()
}

/// Adds the medians of `operations`, out of `count` writes, and the mean number of parts that values were cut into: 0
/// for a value that went whole into the log.
pub(super) fn add_figures(figures: &mut Figures, operations: &[Operation], count: u64, bytes: usize) {
    let median = |of: fn(&Operation) -> f64| {
        Spread::of(operations.iter().map(of).collect()).map(|spread| spread.median / 1e3)
    };
    let parts: u64 = operations.iter().map(|operation| operation.parts).sum();
    figures.insert("k", parts as f64 / count.max(1) as f64);
    let is_coded = !operations.is_empty();
    let Some(apply_ms) = apply_ms(bytes, is_coded) else { return };
    figures.insert("apply_ms", apply_ms);
    // A value in the log is not dispersed: all of its time is ordering, except for applying it.
    let order_ms = median(|operation| operation.order_us).or(figures.get("p50_ms").copied());
    figures.extend(order_ms.map(|ms| ("order_ms", (ms - apply_ms).max(0.0))));
    let encode_ms = median(|operation| operation.encode_us);
    let disperse_ms = median(|operation| operation.disperse_us);
    figures.extend(encode_ms.map(|ms| ("cut_ms", ms)));
    figures.extend(disperse_ms.zip(encode_ms).map(|(ms, cut_ms)| ("disperse_ms", (ms - cut_ms).max(0.0))));
}

/// Adds a row for each operation to `operations.csv` in the run's folder.
pub(super) fn write(arena: &Arena<'_>, arm: &Arm, point: &Point, operations: &[Operation]) -> Result<()> {
    let Some(folder) = arena.run_folder() else { return Ok(()) };
    let file = folder.join("operations.csv");
    let is_new = !file.exists();
    let output = OpenOptions::new().append(true).create(true).open(&file);
    let output = output.with_context(|| format!("cannot write {}", file.display()))?;
    let mut csv = csv::Writer::from_writer(output);
    if is_new {
        let head =
            ["arm", "repeat", "at", "mbit", "bytes", "operation", "k", "cut_us", "disperse_us", "order_us"];
        csv.write_record(head)?;
    }
    for (number, operation) in (1..).zip(operations) {
        let Operation { bytes, parts, encode_us, disperse_us, order_us, .. } = operation;
        let (at, mbit) = (point.get("at").to_owned(), point.get("mbit").to_owned());
        let number: u64 = number;
        csv.write_record([
            arm.name.clone(),
            arena.repeat().to_string(),
            at,
            mbit,
            bytes.to_string(),
            number.to_string(),
            parts.to_string(),
            encode_us.to_string(),
            disperse_us.to_string(),
            order_us.to_string(),
        ])?;
    }
    Ok(csv.flush()?)
}

/// How long a replica takes to apply a write of a whole value, or of a reference: here, with the server's code.
fn apply_ms(bytes: usize, is_coded: bool) -> Option<f64> {
    const TIMES: u64 = 9;
    let value = vec![7; bytes];
    let (expiry, condition, answer) = (Expiry::Clear, Condition::Always, SetAnswer::Status);
    let mut table = Table::new(1);
    let mut times = Vec::new();
    for counter in 1..=TIMES {
        let id = ValueId { coordinator: Coordinator { node: 1, life: 1 }, counter };
        let reference = Reference { id, parts: 2, length: bytes as u32, digest: 0 }.encoded();
        let key = counter.to_le_bytes();
        let command = match is_coded {
            true => Command::SetCoded {
                key: &key,
                reference: &reference,
                membership: 0,
                expiry,
                condition,
                answer,
            },
            false => Command::Set { key: &key, value: &value, expiry, condition, answer },
        };
        let mut reply = ReplyBuffer::new();
        let begun = Instant::now();
        table.apply(&command, counter, 0, &mut reply);
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Spread::of(times).map(|spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "trace7:bytes=1000,k=3,encode_usec=100,disperse_usec=2100,order_usec=3000\r";

    #[test]
    fn a_nodes_report_of_a_write_is_parsed() {
        let operation = Operation {
            id: 7,
            bytes: 1000,
            parts: 3,
            encode_us: 100.0,
            disperse_us: 2100.0,
            order_us: 3000.0,
        };
        assert_eq!(read(LINE), Some(operation));
        assert_eq!(read("coded_fragments:7"), None);
        assert_eq!(since(vec![operation, Operation { id: 8, ..operation }], &[operation]).len(), 1);
    }

    #[test]
    fn steps_are_reported_without_nested_steps() {
        let operation = read(LINE).unwrap();
        let mut figures = Figures::from([("p50_ms", 9.0)]);
        add_figures(&mut figures, &[operation], 2, 1000);
        assert_eq!((figures["k"], figures["cut_ms"], figures["disperse_ms"]), (1.5, 0.1, 2.0));
        assert!((2.9..3.0).contains(&figures["order_ms"]), "{figures:?}");
        let mut figures = Figures::from([("p50_ms", 9.0)]);
        add_figures(&mut figures, &[], 2, 1000);
        assert_eq!(figures["k"], 0.0);
        assert!((8.0..9.0).contains(&figures["order_ms"]) && !figures.contains_key("disperse_ms"));
    }
}

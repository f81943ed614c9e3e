//! The rows of a sweep: stored in `raw.csv`, and queried by judges, figures and tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io::{Read, Write};

use anyhow::{Context, Result, bail, ensure};

use super::{ArmNote, STEAL_PERCENT};
use crate::load::random::Random;
use crate::load::steal::DISTURBED_PERCENT;

/// The result of checking a point's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// How many operations were checked.
    pub operations: u64,
    /// `ok`, `violation` or `unknown`.
    pub verdict: String,
    /// The files of the histories, separated by spaces; empty if none was kept.
    pub history: String,
}

/// One point, measured once.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The arm's name.
    pub arm: String,
    /// The values of its parameters, in the order of the study's parameters.
    pub point: Vec<String>,
    /// The number of the repeat, from 1.
    pub repeat: u32,
    /// The measured figures, by the measures' names.
    pub figures: BTreeMap<String, f64>,
    /// The result of checking its history, if one was recorded.
    pub checked: Option<Checked>,
}

/// All rows of a sweep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    parameters: Vec<String>,
    measures: Vec<String>,
    rows: Vec<Row>,
}

/// The median of some repeats, with the minimum and the maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median; of an even number, the mean of the middle two.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
    /// The number of values.
    pub count: usize,
}

impl Spread {
    /// The spread of some values; `None` if there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => f64::midpoint(values[middle - 1], values[middle]),
            _ => values[middle],
        };
        Some(Spread { median, min, max, count: values.len() })
    }

    /// Whether all of these values are greater than all of the other's. `None` if the ranges overlap, so that repeats
    /// differ by as much as what is compared.
    pub fn is_above(&self, other: &Spread) -> Option<bool> {
        if self.min > other.max {
            Some(true)
        } else if self.max < other.min {
            Some(false)
        } else {
            None
        }
    }
}

impl Results {
    /// Creates results without rows.
    pub fn new(parameters: &[&str], measures: &[&str]) -> Results {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Results { parameters: owned(parameters), measures: owned(measures), rows: Vec::new() }
    }

    /// The parameters' names.
    pub fn parameters(&self) -> &[String] {
        &self.parameters
    }

    /// The measures' names.
    pub fn measures(&self) -> &[String] {
        &self.measures
    }

    /// All rows, in the order of measurement.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Adds a row.
    pub fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Whether this point has been measured in this repeat.
    pub fn has(&self, arm: &str, point: &[String], repeat: u32) -> bool {
        self.rows.iter().any(|row| row.arm == arm && row.point == point && row.repeat == repeat)
    }

    /// All rows, to be narrowed.
    pub fn all(&self) -> Selection<'_> {
        Selection { results: self, rows: self.rows.iter().collect() }
    }

    /// The rows of an arm.
    pub fn arm(&self, name: &str) -> Selection<'_> {
        Selection { results: self, rows: self.rows.iter().filter(|row| row.arm == name).collect() }
    }

    /// The arms that have rows, in order of their first row.
    pub fn arms(&self) -> Vec<&str> {
        let mut arms: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !arms.contains(&row.arm.as_str()) {
                arms.push(&row.arm);
            }
        }
        arms
    }

    /// The results of each round, in order.
    pub fn rounds(&self) -> Vec<Results> {
        let rounds: BTreeSet<u32> = self.rows.iter().map(|row| row.repeat).collect();
        rounds.into_iter().map(|round| self.keeping(|row| row.repeat == round)).collect()
    }

    /// The rows measured while the machine had the processor time that it wanted, as far as known.
    pub fn undisturbed(&self) -> Results {
        self.keeping(|row| row.figures.get(STEAL_PERCENT).is_none_or(|percent| *percent <= DISTURBED_PERCENT))
    }

    /// One repeat of each point, drawn by a seed, as if it had been the only one.
    pub fn one_repeat_each(&self, seed: u64) -> Results {
        let mut repeats: BTreeMap<(&str, &[String]), Vec<usize>> = BTreeMap::new();
        for (index, row) in self.rows.iter().enumerate() {
            repeats.entry((&row.arm, &row.point)).or_default().push(index);
        }
        let mut random = Random::new(seed);
        let drawn = repeats.into_values().map(|rows| rows[random.below(rows.len() as u64) as usize]);
        let drawn: BTreeSet<usize> = drawn.collect();
        self.with_rows(drawn.into_iter().map(|index| self.rows[index].clone()).collect())
    }

    fn keeping(&self, keeps: impl Fn(&Row) -> bool) -> Results {
        self.with_rows(self.rows.iter().filter(|row| keeps(row)).cloned().collect())
    }

    fn with_rows(&self, rows: Vec<Row>) -> Results {
        Results { rows, measures: self.measures.clone(), parameters: self.parameters.clone() }
    }

    /// A measure of a point, in each repeat that has it.
    pub fn repeats_of(&self, arm: &str, point: &[String], measure: &str) -> Vec<f64> {
        let rows = self.rows.iter().filter(|row| row.arm == arm && row.point == point);
        rows.filter_map(|row| row.figures.get(measure).copied()).collect()
    }

    /// The number of checked operations, and the verdicts that are not `ok`.
    pub fn checked(&self) -> (u64, Vec<(&Row, &Checked)>) {
        let checked: Vec<(&Row, &Checked)> =
            self.rows.iter().filter_map(|row| Some((row, row.checked.as_ref()?))).collect();
        let operations = checked.iter().map(|(_, checked)| checked.operations).sum();
        (operations, checked.into_iter().filter(|(_, checked)| checked.verdict != "ok").collect())
    }

    /// Writes `raw.csv`.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn write_raw(&self, output: impl Write) -> Result<()> {
        let mut csv = csv::Writer::from_writer(output);
        let header = ["arm", "repeat"].into_iter();
        let header = header.chain(self.parameters.iter().map(String::as_str));
        let header = header.chain(self.measures.iter().map(String::as_str));
        csv.write_record(header.chain(["checked", "verdict", "history"]))?;
        for row in &self.rows {
            let mut record = vec![row.arm.clone(), row.repeat.to_string()];
            record.extend(row.point.iter().cloned());
            let figure = |name: &String| row.figures.get(name).map_or(String::new(), f64::to_string);
            record.extend(self.measures.iter().map(figure));
            let checked = row.checked.as_ref();
            record.push(checked.map_or(String::new(), |checked| checked.operations.to_string()));
            record.push(checked.map_or(String::new(), |checked| checked.verdict.clone()));
            record.push(checked.map_or(String::new(), |checked| checked.history.clone()));
            csv.write_record(record)?;
        }
        csv.flush()?;
        Ok(())
    }

    /// Reads `raw.csv`. The file does not say which columns are parameters: `parameters` is their number.
    ///
    /// # Errors
    /// The file has another format.
    pub fn read_raw(input: impl Read, parameters: usize) -> Result<Results> {
        let mut csv = csv::Reader::from_reader(input);
        let mut header: Vec<String> = csv.headers()?.iter().map(str::to_owned).collect();
        // Older files lack this column.
        header.pop_if(|last| last == "history");
        let measures_from = 2 + parameters;
        let is_ours = header.len() >= measures_from + 2
            && header[..2] == ["arm", "repeat"]
            && header[header.len() - 2..] == ["checked", "verdict"];
        ensure!(is_ours, "these are not the columns of a sweep with {parameters} parameters: {header:?}");
        let measures_to = header.len() - 2;
        let mut results = Results {
            parameters: header[2..measures_from].to_vec(),
            measures: header[measures_from..measures_to].to_vec(),
            rows: Vec::new(),
        };
        for (index, record) in csv.records().enumerate() {
            let record = record?;
            let line = index + 2;
            let number = |text: &str| {
                text.parse::<f64>().with_context(|| format!("line {line}: '{text}' is not a number"))
            };
            let mut figures = BTreeMap::new();
            for (name, text) in results.measures.iter().zip(record.iter().skip(measures_from)) {
                if !text.is_empty() {
                    figures.insert(name.clone(), number(text)?);
                }
            }
            let checked = match (&record[measures_to], &record[measures_to + 1]) {
                ("", "") => None,
                (operations, verdict) => Some(Checked {
                    operations: operations.parse().with_context(|| format!("line {line}: checked"))?,
                    verdict: verdict.to_owned(),
                    history: record.get(measures_to + 2).unwrap_or_default().to_owned(),
                }),
            };
            let Ok(repeat) = record[1].parse() else { bail!("line {line}: '{}' is no repeat", &record[1]) };
            let point = record.iter().skip(2).take(parameters).map(str::to_owned).collect();
            results.rows.push(Row { arm: record[0].to_owned(), point, repeat, figures, checked });
        }
        Ok(results)
    }

    /// Every point with the spread of each measure over the repeats: arm, point, measure, spread.
    pub fn summary(&self) -> Vec<(&str, &[String], &str, Spread)> {
        let mut lines = Vec::new();
        let mut seen: Vec<(&str, &[String])> = Vec::new();
        for row in &self.rows {
            let place = (row.arm.as_str(), row.point.as_slice());
            if seen.contains(&place) {
                continue;
            }
            seen.push(place);
            for measure in &self.measures {
                if let Some(spread) = Spread::of(self.repeats_of(place.0, place.1, measure)) {
                    lines.push((place.0, place.1, measure.as_str(), spread));
                }
            }
        }
        lines
    }

    /// Writes `summary.csv`. Each figure is accompanied by what a write survives, since figures of different promises
    /// look alike.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn write_summary(&self, arms: &BTreeMap<String, ArmNote>, output: impl Write) -> Result<()> {
        let mut csv = csv::Writer::from_writer(output);
        let header = ["arm", "durability"].into_iter().chain(self.parameters.iter().map(String::as_str));
        csv.write_record(header.chain(["measure", "repeats", "median", "min", "max"]))?;
        for (arm, point, measure, spread) in self.summary() {
            let durability = arms.get(arm).map_or("", |note| note.durability.as_str());
            let mut record = vec![arm.to_owned(), durability.to_owned()];
            record.extend(point.iter().cloned());
            let Spread { median, min, max, count } = spread;
            record.extend([measure.to_owned(), count.to_string()]);
            record.extend([median, min, max].map(|value| value.to_string()));
            csv.write_record(record)?;
        }
        csv.flush()?;
        Ok(())
    }
}

/// A subset of the rows.
#[derive(Clone, Debug)]
pub struct Selection<'r> {
    results: &'r Results,
    rows: Vec<&'r Row>,
}

impl<'r> Selection<'r> {
    /// Keeps the rows of an arm.
    pub fn arm(mut self, name: &str) -> Selection<'r> {
        self.rows.retain(|row| row.arm == name);
        self
    }

    /// Keeps the rows where a parameter has a value.
    pub fn with(mut self, parameter: &str, value: impl Display) -> Selection<'r> {
        let (column, value) = (self.column(parameter), value.to_string());
        self.rows.retain(|row| column.is_some_and(|column| row.point[column] == value));
        self
    }

    /// Keeps the rows where all these parameters have these values.
    pub fn only(self, values: &[(&'static str, String)]) -> Selection<'r> {
        values.iter().fold(self, |selection, (parameter, value)| selection.with(parameter, value))
    }

    fn column(&self, parameter: &str) -> Option<usize> {
        self.results.parameters.iter().position(|name| name == parameter)
    }

    /// The selected rows.
    pub fn rows(&self) -> &[&'r Row] {
        &self.rows
    }

    /// Whether no rows are selected.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The spread of a measure over the selected rows.
    pub fn spread(&self, measure: &str) -> Option<Spread> {
        Spread::of(self.rows.iter().filter_map(|row| row.figures.get(measure).copied()).collect())
    }

    /// The median of a measure over the selected rows.
    pub fn median(&self, measure: &str) -> Option<f64> {
        self.spread(measure).map(|spread| spread.median)
    }

    /// The distinct values of a parameter, in order of first appearance.
    pub fn values(&self, parameter: &str) -> Vec<&'r str> {
        let mut values: Vec<&str> = Vec::new();
        if let Some(column) = self.column(parameter) {
            for row in &self.rows {
                if !values.contains(&row.point[column].as_str()) {
                    values.push(&row.point[column]);
                }
            }
        }
        values
    }

    /// A measure's spread for each value of a numeric parameter, in ascending order.
    pub fn series(&self, parameter: &str, measure: &str) -> Vec<(f64, Spread)> {
        let values = self.values(parameter).into_iter();
        let mut series: Vec<(f64, Spread)> = values
            .filter_map(|value| {
                Some((value.parse().ok()?, self.clone().with(parameter, value).spread(measure)?))
            })
            .collect();
        series.sort_by(|left, right| left.0.total_cmp(&right.0));
        series
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(arm: &str, clients: u32, repeat: u32, per_s: Option<f64>) -> Row {
        let figures = per_s.map(|per_s| ("per_s".to_owned(), per_s)).into_iter().collect();
        let point = vec!["a, \"quoted\" workload".to_owned(), clients.to_string()];
        Row { arm: arm.to_owned(), point, repeat, figures, checked: None }
    }

    fn results() -> Results {
        let mut results = Results::new(&["workload", "clients"], &["per_s", "p99_ms"]);
        for (clients, repeat, per_s) in [(10, 1, 3.5), (10, 2, 1.0 / 3.0), (5, 1, 7.0), (10, 3, 9.0)] {
            results.push(row("one", clients, repeat, Some(per_s)));
        }
        results.push(row("two", 5, 1, None));
        results
    }

    #[test]
    fn written_results_can_be_read_again() {
        let mut results = results();
        let (verdict, history) = ("ok".to_owned(), "history/one.jsonl.gz".to_owned());
        results.rows[0].checked = Some(Checked { operations: 12, verdict, history });
        let mut bytes = Vec::new();
        results.write_raw(&mut bytes).unwrap();
        assert_eq!(Results::read_raw(&bytes[..], 2).unwrap(), results);
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.lines().nth(1).unwrap().ends_with(",12,ok,history/one.jsonl.gz"), "{text}");
    }

    #[test]
    fn a_file_that_is_no_sweep_is_refused_with_line_and_column() {
        let refusal = |text: &str| format!("{:#}", Results::read_raw(text.as_bytes(), 1).unwrap_err());
        let header = "arm,repeat,clients,per_s,checked,verdict\n";
        assert!(refusal("a,b\n1,2\n").contains("not the columns"));
        assert!(refusal(&format!("{header}x,1,5,many,,\n")).contains("line 2: 'many' is not a number"));
        assert!(
            refusal(&format!("{header}x,1,5,1,,\nx,first,5,1,,\n")).contains("line 3: 'first' is no repeat")
        );
    }

    #[test]
    fn a_point_is_measured_when_its_row_exists() {
        let results = results();
        let point = &results.rows[2].point;
        assert!(results.has("one", point, 1));
        assert!(!results.has("one", point, 2) && !results.has("three", point, 1));
    }

    #[test]
    fn a_spread_is_the_median_with_the_extremes() {
        let results = results();
        let spread = results.arm("one").with("clients", 10).spread("per_s").unwrap();
        assert_eq!((spread.median, spread.max, spread.count), (3.5, 9.0, 3));
        assert_eq!(Spread::of(vec![4.0, 1.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(results.arm("two").spread("per_s"), None);
    }

    #[test]
    fn spreads_that_touch_overlap() {
        let of = |values: &[f64]| Spread::of(values.to_vec()).unwrap();
        assert_eq!(of(&[3.0, 4.0]).is_above(&of(&[1.0, 2.0])), Some(true));
        assert_eq!(of(&[1.0, 2.0]).is_above(&of(&[3.0, 4.0])), Some(false));
        assert_eq!(of(&[1.0, 3.0]).is_above(&of(&[2.0, 4.0])), None);
    }

    #[test]
    fn a_series_is_in_the_order_of_its_numbers() {
        let results = results();
        let series = results.arm("one").series("clients", "per_s");
        let places: Vec<(f64, f64)> = series.iter().map(|(x, spread)| (*x, spread.median)).collect();
        assert_eq!(places, [(5.0, 7.0), (10.0, 3.5)]);
        assert!(results.arm("one").with("no such parameter", 1).is_empty());
    }

    #[test]
    fn a_summary_has_a_line_for_each_point_and_measure() {
        let mut bytes = Vec::new();
        let note = ArmNote { durability: "memory".to_owned(), ..ArmNote::default() };
        results().write_summary(&BTreeMap::from([("one".to_owned(), note)]), &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.lines().count(), 1 + 2, "{text}");
        let first = text.lines().nth(1).unwrap();
        assert!(
            first.starts_with("one,memory,") && first.ends_with(",10,per_s,3,3.5,0.3333333333333333,9"),
            "{text}"
        );
    }
}

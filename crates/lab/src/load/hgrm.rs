//! Histograms as files in the percentile format of HdrHistogram (`.hgrm`), which its plotters read.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use hdrhistogram::Histogram;

use super::outcome::Operation;
use super::report::Report;

/// The number of lines for each halving of the distance to 100 %, as in HdrHistogram's own tools.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

/// Writes the latencies of each operation and outcome, in microseconds, to separate files in a folder
/// (`get.ok.hgrm`, `set.error-CLUSTERDOWN.hgrm`), and returns their paths.
pub fn write_hgrm(report: &Report, folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(folder)?;
    let mut paths = Vec::new();
    for row in report.rows() {
        let latencies =
            row.operation.and_then(|operation: Operation| report.latencies(operation, row.outcome));
        let Some(latencies) = latencies else { continue };
        let outcome = row.outcome.to_string().replace(':', "-");
        let path = folder.join(format!("{}.{outcome}.hgrm", row.operation_name().to_lowercase()));
        let mut out = BufWriter::new(File::create(&path)?);
        write_percentiles(latencies, &mut out)?;
        out.flush()?;
        paths.push(path);
    }
    Ok(paths)
}

fn write_percentiles(latencies: &Histogram<u64>, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{:>12} {:>14} {:>10} {:>14}\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)")?;
    let mut total = 0;
    for step in latencies.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        total += step.count_since_last_iteration();
        let (value, quantile) = (step.value_iterated_to() as f64, step.quantile_iterated_to());
        write!(out, "{value:>12.3} {quantile:.12} {total:>10}")?;
        if quantile < 1.0 {
            write!(out, " {:>14.2}", 1.0 / (1.0 - quantile))?;
        }
        writeln!(out)?;
    }
    let (mean, deviation) = (latencies.mean(), latencies.stdev());
    writeln!(out, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]")?;
    let (max, count) = (latencies.max() as f64, latencies.len());
    writeln!(out, "#[Max     = {max:>12.3}, Total count    = {count:>12}]")?;
    let (buckets, sub_buckets) = (latencies.buckets(), sub_buckets(latencies));
    writeln!(out, "#[Buckets = {buckets:>12}, SubBuckets     = {sub_buckets:>12}]")
}

/// The smallest power of two that distinguishes this many digits.
fn sub_buckets(latencies: &Histogram<u64>) -> u64 {
    (2 * 10u64.pow(u32::from(latencies.sigfig()))).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::report::tests::sample;
    use crate::load::tally::new_histogram;

    #[test]
    fn percentiles_are_written_as_hdr_histogram_writes_them() {
        let mut latencies = new_histogram();
        for latency in [1, 1, 2, 1000] {
            latencies.record(latency).unwrap();
        }
        let mut out = Vec::new();
        write_percentiles(&latencies, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "       Value     Percentile TotalCount 1/(1-Percentile)");
        assert_eq!(lines[1], "");
        assert_eq!(lines[2], "       1.000 0.000000000000          2           1.00");
        let last = lines.iter().rposition(|line| !line.starts_with('#')).unwrap();
        assert_eq!(lines[last], "    1000.000 1.000000000000          4");
        assert_eq!(lines[last + 2], "#[Max     =     1000.000, Total count    =            4]");
        assert_eq!(lines[last + 3], "#[Buckets =           22, SubBuckets     =         2048]");
    }

    #[test]
    fn each_operation_and_outcome_has_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let paths = write_hgrm(&sample(10, 100), folder.path()).unwrap();
        let names: Vec<_> = paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["get.ok.hgrm", "set.ok.hgrm", "set.error-CLUSTERDOWN.hgrm", "set.lost.hgrm"]);
        assert!(fs::read_to_string(&paths[0]).unwrap().contains("Total count    =           10]"));
    }
}

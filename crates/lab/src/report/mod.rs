//! The output of a sweep: figures, tables and one page that holds all of it.

mod compare;
mod heat;
mod html;
mod plot;
mod stacks;

use anyhow::Result;

use crate::harness::{Arm, Drawing, Folder, Judged, Machine, Results, RunFile, Study};

pub use crate::colour::Colour;
pub use compare::{Comparison, compare};

/// Writes `summary.csv`, every figure and `report.html`, and returns the judged claims.
///
/// # Errors
/// A file cannot be written.
pub fn write(
    study: &dyn Study,
    arms: &[Arm],
    folder: &Folder,
    results: &Results,
    run: &RunFile,
    machine: &Machine,
) -> Result<Vec<Judged>> {
    folder.write("summary.csv", |output| results.write_summary(&run.arms, output))?;
    let claims: Vec<Judged> = study.claims().iter().map(|claim| claim.judged(results)).collect();
    let derived = study.derived(results);
    let mut figures = Vec::new();
    for drawing in &derived.drawings {
        let drawn = match drawing {
            Drawing::HeatMap(map) => heat::draw(map)?,
            Drawing::Curves(curves) => plot::draw_curves(curves)?,
            Drawing::Stacks(stacks) => stacks::draw(stacks)?,
        };
        let (file, title, paper) = drawing.heading();
        write_figure(folder, file, &drawn)?;
        figures.push(html::Shown { title: title.to_owned(), paper, svg: drawn.svg });
    }
    for figure in study.figures() {
        let Some(drawn) = plot::draw(study, arms, &figure, results, run)? else { continue };
        write_figure(folder, &figure.file, &drawn)?;
        figures.push(html::Shown { title: figure.title, paper: figure.paper, svg: drawn.svg });
    }
    let page = html::page(&html::Contents {
        study,
        arms,
        results,
        run,
        machine,
        claims: &claims,
        figures: &figures,
        listings: &derived.listings,
    });
    folder.write("report.html", |output| Ok(output.write_all(page.as_bytes())?))?;
    Ok(claims)
}

fn write_figure(folder: &Folder, file: &str, drawn: &plot::Drawn) -> Result<()> {
    folder.write(&format!("{file}.svg"), |output| Ok(output.write_all(drawn.svg.as_bytes())?))?;
    folder.write(&format!("{file}.png"), |output| Ok(output.write_all(&drawn.png)?))
}

/// A number with three significant digits, and no fewer than its integer part has.
pub fn short(number: f64) -> String {
    let magnitude = number.abs();
    if magnitude >= 1e4 {
        let digits = format!("{:.0}", magnitude);
        let mut out = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                out.push(',');
            }
            out.push(digit);
        }
        return if number < 0.0 { format!("-{out}") } else { out };
    }
    let digits = match magnitude {
        _ if number == 0.0 || number.fract() == 0.0 => 0,
        m if m >= 100.0 => 0,
        m if m >= 10.0 => 1,
        m if m >= 1.0 => 2,
        m if m >= 0.1 => 3,
        _ => 4,
    };
    format!("{number:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn numbers_have_three_significant_digits() {
        let numbers = [0.0, 0.01234, 0.2, 1.234, 12.34, 123.4, 1234.5, 50.0, 12_345.6, -1_234_567.0];
        let texts = numbers.map(short);
        let expected = ["0", "0.0123", "0.200", "1.23", "12.3", "123", "1234", "50", "12,346", "-1,234,567"];
        assert_eq!(texts, expected);
    }
}

//! Draws a window as a picture: a lane for each client, a bar from each operation's start to its end.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::history::LockAction;
use crate::history::{Action, History, Operation, OperationId, Outcome};
use crate::window::Window;
use crate::words::{described, duration, interval, quoted};

const WIDTH: f64 = 1000.0;
/// Where the lanes begin, and where they end.
const LEFT: f64 = 110.0;
const RIGHT: f64 = 970.0;
/// Where the time axis begins: operations before the window are to the left of it.
const AXIS: f64 = 170.0;
const ROW: f64 = 42.0;
const BAR: f64 = 16.0;
/// The approximate width of a character of the labels.
const CHARACTER: f64 = 6.6;
const TICKS: u64 = 6;

const READ: &str = "#4c78a8";
const WRITE: &str = "#59a14f";
const REMOVAL: &str = "#8c6d4f";
const UPDATE: &str = "#9467bd";
const CULPRIT: &str = "#d62728";

/// An operation's bar.
struct Bar<'h> {
    operation: &'h Operation,
    label: String,
    is_culprit: bool,
    /// Whether it is outside the window, and only explains where a value came from.
    is_origin: bool,
    left: f64,
    right: f64,
    /// The range within which its row must hold nothing else.
    taken: (f64, f64),
}

impl Window {
    /// Returns the picture as SVG.
    pub fn svg(&self, history: &History) -> String {
        let scale = Scale::new(self, history);
        let mut lanes: BTreeMap<u64, Vec<Bar>> = BTreeMap::new();
        for (id, is_origin) in
            self.origins.iter().map(|id| (id, true)).chain(self.operations.iter().map(|id| (id, false)))
        {
            let bar = self.bar(history, *id, is_origin, &scale);
            lanes.entry(bar.operation.client).or_default().push(bar);
        }
        let mut body = String::new();
        let mut top = 40.0;
        for (client, bars) in lanes {
            let rows = rows(bars);
            let height = ROW * rows.len() as f64 + 8.0;
            let middle = top + height / 2.0;
            let _ = writeln!(
                body,
                "<rect x=\"0\" y=\"{top:.1}\" width=\"{WIDTH}\" height=\"{height:.1}\" class=\"lane\"/>\n\
                 <text x=\"12\" y=\"{:.1}\" class=\"client\">client {client}</text>",
                middle + 4.0
            );
            for (number, row) in (0..).zip(rows) {
                let top = top + 4.0 + ROW * f64::from(number);
                row.iter().for_each(|bar| draw(&mut body, history, bar, top));
            }
            top += height + 6.0;
        }
        let axis = scale.ticks(top);
        let height = top + 62.0;
        let title = escaped(&self.sentence(history));
        let name = escaped(&quoted(history.key_bytes(self.key)));
        let claim = match self.breach {
            None => format!("key {name}: no order of the solid operations explains their answers"),
            Some(_) => format!("{name}: these operations cannot all have been answered so"),
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
             height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n<title>{title}</title>\n\
             <style>.lane {{ fill: #f4f4f4 }} .client {{ font-weight: bold }} .faint {{ fill: #666 }} \
             .tick {{ stroke: #bbb; stroke-dasharray: 2 3 }}</style>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"12\" y=\"24\" font-size=\"15\">{claim}</text>\n{body}{axis}{}</svg>\n",
            legend(top + 46.0)
        )
    }

    /// Returns the picture and the text as one self-contained HTML page.
    pub fn html(&self, history: &History) -> String {
        let (sentence, words) = (escaped(&self.sentence(history)), escaped(&self.words(history)));
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Not linearizable</title>\n\
             <style>body {{ font-family: sans-serif; margin: 2em; max-width: 1000px }} \
             pre {{ white-space: pre-wrap; background: #f4f4f4; padding: 1em }} \
             svg {{ max-width: 100%; height: auto }}</style>\n</head>\n<body>\n\
             <h1>Not linearizable</h1>\n<p>{sentence}.</p>\n{}<pre>{words}</pre>\n</body>\n</html>\n",
            self.svg(history)
        )
    }

    fn bar<'h>(&self, history: &'h History, id: OperationId, is_origin: bool, scale: &Scale) -> Bar<'h> {
        let operation = history.operation(id);
        let (left, right) = match operation.end.filter(|_| operation.outcome != Outcome::Unknown) {
            Some(end) => (scale.x(operation.start), scale.x(end)),
            None => (scale.x(operation.start), RIGHT),
        };
        let (left, right) = (left.min(RIGHT - 4.0), right.max(left + 4.0));
        let label = described(history, id);
        let width = label.len() as f64 * CHARACTER;
        // A label begins above the bar's left end, or ends at the picture's edge.
        let from = left.min(RIGHT + 20.0 - width).max(LEFT);
        let taken = (from, right.max(from + width) + 10.0);
        Bar { operation, label, is_culprit: id == self.culprit, is_origin, left, right, taken }
    }
}

/// The mapping of the window's instants to the axis.
struct Scale {
    /// The history's first start, from which times are counted.
    zero: u64,
    first: u64,
    last: u64,
}

impl Scale {
    fn new(window: &Window, history: &History) -> Scale {
        let operations = || window.operations.iter().map(|id| history.operation(*id));
        let first = operations().map(|operation| operation.start).min().unwrap_or(0);
        let last = operations().filter_map(|operation| operation.end).max().unwrap_or(first);
        let zero = history.operations().iter().map(|operation| operation.start).min().unwrap_or(0);
        Scale { zero, first, last: last.max(first + 1) }
    }

    /// Instants before the window are placed between the beginning of the lane and the axis.
    fn x(&self, time: u64) -> f64 {
        match time.checked_sub(self.first) {
            Some(after) => AXIS + after as f64 / (self.last - self.first) as f64 * (RIGHT - 20.0 - AXIS),
            None => {
                let span = (self.first - self.zero).max(1) as f64;
                LEFT + (time - self.zero) as f64 / span * (AXIS - LEFT - 14.0)
            }
        }
        .min(RIGHT)
    }

    fn ticks(&self, bottom: f64) -> String {
        let mut text = String::new();
        for number in 0..=TICKS {
            let time = self.first
                + ((self.last - self.first) as u128 * u128::from(number) / u128::from(TICKS)) as u64;
            let (x, label) = (self.x(time), rounded(time - self.zero, self.last - self.first));
            let _ = writeln!(
                text,
                "<line x1=\"{x:.1}\" y1=\"36\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" class=\"tick\"/>\n\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" class=\"faint\">{label}</text>",
                bottom + 14.0
            );
        }
        text
    }
}

/// Formats a time with the precision that an axis of length `span` needs.
fn rounded(time: u64, span: u64) -> String {
    let step = 10u64.pow((span / TICKS / 100).max(1).ilog10());
    duration(time / step * step)
}

/// Arranges bars in rows in which neither they nor their labels overlap.
fn rows(bars: Vec<Bar>) -> Vec<Vec<Bar>> {
    let mut rows: Vec<Vec<Bar>> = Vec::new();
    for bar in bars {
        let meets = |other: &Bar| bar.taken.0 < other.taken.1 && other.taken.0 < bar.taken.1;
        match rows.iter_mut().find(|row| !row.iter().any(meets)) {
            Some(row) => row.push(bar),
            None => rows.push(vec![bar]),
        }
    }
    rows
}

fn draw(body: &mut String, history: &History, bar: &Bar, top: f64) {
    let colour = match bar.operation.action {
        _ if bar.is_culprit => CULPRIT,
        Action::Get => READ,
        Action::Lock(LockAction::Release { .. } | LockAction::CloseSession) => REMOVAL,
        Action::Lock(_) => WRITE,
        Action::Set(_) => WRITE,
        Action::Delete => REMOVAL,
        Action::Increment(_)
        | Action::SetIfAbsent(_)
        | Action::GetAndSet(_)
        | Action::CompareAndSet { .. } => UPDATE,
    };
    let style = match bar.is_origin {
        true => format!("fill=\"white\" stroke=\"{colour}\" stroke-dasharray=\"4 3\""),
        false => format!("fill=\"{colour}\" stroke=\"{colour}\""),
    };
    let (label, interval) = (escaped(&bar.label), escaped(&interval(history, bar.operation)));
    let weight = if bar.is_culprit { " font-weight=\"bold\" fill=\"#d62728\"" } else { "" };
    let _ = writeln!(
        body,
        "<g><title>{label} ({interval})</title>\
         <text x=\"{:.1}\" y=\"{:.1}\"{weight}>{label}</text>\
         <rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"3\" {style}/></g>",
        bar.taken.0,
        top + 13.0,
        bar.left,
        top + 19.0,
        bar.right - bar.left,
    );
}

fn legend(y: f64) -> String {
    let entries = [(READ, "read"), (WRITE, "write"), (REMOVAL, "removal"), (UPDATE, "read and write")];
    let mut text = String::new();
    let mut x = 12.0;
    for (colour, name) in entries.into_iter().chain([(CULPRIT, "became impossible at its end")]) {
        let _ = writeln!(
            text,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{y:.1}\" class=\"faint\">{name}</text>",
            y - 10.0,
            x + 17.0
        );
        x += 45.0 + name.len() as f64 * CHARACTER;
    }
    let _ = writeln!(
        text,
        "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" rx=\"2\" fill=\"white\" stroke=\"#666\" \
         stroke-dasharray=\"4 3\"/><text x=\"{:.1}\" y=\"{y:.1}\" class=\"faint\">wrote a value that was read \
         here</text>",
        y - 10.0,
        x + 17.0
    );
    text
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

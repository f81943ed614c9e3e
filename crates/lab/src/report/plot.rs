//! Figures: lines over a number, or bars in groups, as SVG and as PNG. The length of a bar means nothing on a
//! logarithmic axis: dots are used there. An event that did not happen is a cross at the upper edge.
//!
//! The legend is beside the data and never on it. Its order is that of the lines at their right end.

use std::ops::Range;
use std::sync::Once;

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};

use super::{Colour, short};
use crate::harness::{Arm, Curves, Figure, Note, Point, Results, RunFile, Shape, Spread, Study};

pub(super) const WIDTH: u32 = 980;
pub(super) const HEIGHT: u32 = 520;

/// The width of the legend, at the right.
const LEGEND_WIDTH: u32 = 250;

/// PNGs have more pixels than an SVG has units, so that they stay sharp.
const PNG_SCALE: u32 = 2;

/// With more distinct numbers than this, the horizontal axis has round ones instead.
const X_TICKS_MAX: usize = 10;

/// With at most this many bars, each has its number above it: otherwise a bar of zero would be invisible.
const NUMBERED_BARS_MAX: usize = 16;

/// The meaning of a cross.
const NEVER: &str = "did not happen, or failed";

/// Roughly how many numbers an axis has.
const TICKS: f64 = 7.0;

pub(super) const BACKGROUND: RGBColor = WHITE;
pub(super) const TEXT: RGBColor = RGBColor(0x22, 0x22, 0x22);
const AXIS: RGBColor = RGBColor(0x66, 0x66, 0x66);
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

/// A rendered figure.
pub(super) struct Drawn {
    pub(super) svg: String,
    pub(super) png: Vec<u8>,
}

/// A line or a row of bars.
struct Series {
    name: String,
    colour: Colour,
    /// Over numbers, or over the numbers of groups.
    points: Vec<(f64, Spread)>,
    /// Where the event did not happen in at least one repeat: it never happened, or the point has failed.
    never: Vec<f64>,
    /// Whether a line joins the points.
    is_joined: bool,
    /// Whether each point has a mark: true for measured points.
    is_marked: bool,
}

/// The content of a figure, with its axes.
struct Picture {
    title: String,
    x_title: String,
    y_title: String,
    shape: Shape,
    /// The names of groups of bars.
    groups: Vec<String>,
    x_is_logarithmic: bool,
    y_is_logarithmic: bool,
    series: Vec<Series>,
}

/// An axis: linear or logarithmic, with numbers at chosen places.
struct Axis {
    range: Range<f64>,
    is_logarithmic: bool,
    ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (start, end): (i32, i32)) -> i32 {
        let place = |value: f64| if self.is_logarithmic { value.ln() } else { value };
        let (from, to) = (place(self.range.start), place(self.range.end));
        let share = (place(*value) - from) / (to - from);
        start + (f64::from(end - start) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

type Chart<'a, DB> = ChartContext<'a, DB, Cartesian2d<Axis, Axis>>;

/// Draws a figure; `None` when nothing was measured that it shows.
pub(super) fn draw(
    study: &dyn Study,
    arms: &[Arm],
    figure: &Figure,
    results: &Results,
    run: &RunFile,
) -> Result<Option<Drawn>> {
    let picture = Picture::new(study, arms, figure, results, run);
    if picture.series.is_empty() {
        return Ok(None);
    }
    render(&figure.file, &picture).map(Some)
}

/// Draws computed curves.
pub(super) fn draw_curves(curves: &Curves) -> Result<Drawn> {
    let exact = |value: f64| Spread { median: value, min: value, max: value, count: 1 };
    let series = curves.curves.iter().map(|curve| Series {
        name: curve.name.clone(),
        colour: curve.colour,
        points: curve.points.iter().map(|(x, y)| (*x, exact(*y))).collect(),
        never: Vec::new(),
        is_joined: curve.is_joined,
        is_marked: curve.is_marked,
    });
    let picture = Picture {
        title: curves.title.clone(),
        x_title: axis_title(curves.x_title.to_owned(), curves.logarithmic.0),
        y_title: axis_title(curves.y_title.to_owned(), curves.logarithmic.1),
        shape: Shape::Lines,
        groups: Vec::new(),
        x_is_logarithmic: curves.logarithmic.0,
        y_is_logarithmic: curves.logarithmic.1,
        series: series.collect(),
    };
    render(&curves.file, &picture)
}

/// Something that can be drawn as SVG and as pixels.
pub(super) trait Draw {
    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, scale: u32) -> Result<(), String>;
}

/// Renders it as SVG and as PNG.
pub(super) fn render(file: &str, drawing: &impl Draw) -> Result<Drawn> {
    register_fonts();
    let failed = |error: String| anyhow!("cannot draw {file}: {error}");
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        drawing.draw(&area, 1).map_err(failed)?;
        area.present().map_err(|error| failed(error.to_string()))?;
    }
    let (width, height) = (WIDTH * PNG_SCALE, HEIGHT * PNG_SCALE);
    let mut pixels = vec![0; (width * height * 3) as usize];
    {
        let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
        drawing.draw(&area, PNG_SCALE).map_err(failed)?;
        area.present().map_err(|error| failed(error.to_string()))?;
    }
    Ok(Drawn { svg, png: encode(&pixels, width, height).context("cannot encode a PNG")? })
}

/// Uses the same fonts in every figure, whatever the machine has: widths are computed with them.
fn register_fonts() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // Both are in the program and valid: a test draws with them.
        let _ = register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular());
        let _ = register_font("sans-serif", FontStyle::Bold, dejavu::sans::bold());
    });
}

fn encode(pixels: &[u8], width: u32, height: u32) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(pixels)?;
    Ok(bytes)
}

impl Draw for Picture {
    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, scale: u32) -> Result<(), String> {
        let text = |error: DrawingAreaErrorKind<DB::ErrorType>| error.to_string();
        area.fill(&BACKGROUND).map_err(text)?;
        let title = ("sans-serif", 19 * scale, FontStyle::Bold).into_text_style(area).color(&TEXT);
        let area = area.margin(10 * scale, 0, 0, 0).titled(&self.title, title).map_err(text)?;
        let (chart, legend) = area.split_horizontally((WIDTH - LEGEND_WIDTH) * scale);
        let mut builder = ChartBuilder::on(&chart);
        builder.margin(12 * scale).x_label_area_size(50 * scale).y_label_area_size(78 * scale);
        let (x, y) = (self.x_range(), self.y_range());
        let x_ticks = self.x_ticks(&x);
        let y_ticks = ticks(&y, self.y_is_logarithmic);
        let x = Axis { range: x, is_logarithmic: self.x_is_logarithmic, ticks: x_ticks };
        let y = Axis { range: y, is_logarithmic: self.y_is_logarithmic, ticks: y_ticks };
        self.fill(&mut builder.build_cartesian_2d(x, y).map_err(text)?, scale).map_err(text)?;
        self.draw_legend(&legend, scale).map_err(text)
    }
}

impl Picture {
    fn new(study: &dyn Study, arms: &[Arm], figure: &Figure, results: &Results, run: &RunFile) -> Picture {
        let parameters = study.parameters();
        let parameter = parameters.iter().find(|parameter| parameter.name == figure.x);
        let measures = study.measures();
        let measure = measures.iter().find(|measure| measure.name == figure.y);
        let is_shown = |arm: &&Arm| figure.arms.is_empty() || figure.arms.contains(&arm.name);
        let never_at = |arm: &Arm| never(study, arm, figure, results, run);
        let groups: Vec<String> = match figure.shape {
            Shape::Lines => Vec::new(),
            Shape::Bars => {
                let shown = results.all().only(&figure.only);
                let is_measured =
                    |group: &&str| shown.clone().with(figure.x, group).spread(figure.y).is_some();
                let values = shown.values(figure.x).into_iter().filter(is_measured);
                let failed = arms.iter().filter(is_shown).flat_map(never_at);
                let mut groups: Vec<String> = Vec::new();
                for value in values.map(str::to_owned).chain(failed) {
                    if !groups.contains(&value) {
                        groups.push(value);
                    }
                }
                groups
            }
            Shape::Quantiles(quantiles) => quantiles.iter().map(|(_, name)| (*name).to_owned()).collect(),
        };
        let mut series: Vec<Series> = Vec::new();
        for arm in arms.iter().filter(is_shown) {
            let selection = results.arm(&arm.name).only(&figure.only);
            let points = match figure.shape {
                Shape::Lines => selection.series(figure.x, figure.y),
                Shape::Bars => {
                    let spread = |group: &String| selection.clone().with(figure.x, group).spread(figure.y);
                    let spreads = groups.iter().map(spread).enumerate();
                    spreads.filter_map(|(index, spread)| Some((index as f64, spread?))).collect()
                }
                Shape::Quantiles(quantiles) => {
                    let spreads = quantiles.iter().map(|(measure, _)| selection.spread(measure)).enumerate();
                    spreads.filter_map(|(index, spread)| Some((index as f64, spread?))).collect()
                }
            };
            let place = |value: String| match figure.shape {
                Shape::Lines => value.parse().ok(),
                Shape::Bars => groups.iter().position(|group| *group == value).map(|index| index as f64),
                Shape::Quantiles(_) => None,
            };
            let never: Vec<f64> = never_at(arm).into_iter().filter_map(place).collect();
            if !points.is_empty() || !never.is_empty() {
                series.push(Series {
                    name: arm.name.clone(),
                    colour: arm.colour,
                    points,
                    never,
                    is_joined: true,
                    is_marked: true,
                });
            }
        }
        if figure.shape != Shape::Bars {
            let last =
                |series: &Series| series.points.last().map_or(f64::INFINITY, |(_, spread)| spread.median);
            series.sort_by(|left, right| last(right).total_cmp(&last(left)));
        }
        let values = || series.iter().flat_map(|series| &series.points);
        // Zero has no logarithm: a figure that contains it is linear.
        let is_positive = series.iter().flat_map(Series::places).all(|x| x > 0.0);
        let x_is_logarithmic = figure.logarithmic.0 && figure.shape == Shape::Lines && is_positive;
        let y_is_logarithmic = figure.logarithmic.1 && values().all(|(_, spread)| spread.min > 0.0);
        Picture {
            title: figure.title.clone(),
            x_title: match figure.shape {
                Shape::Quantiles(_) => String::new(),
                Shape::Lines | Shape::Bars => {
                    let title = parameter.map_or("", |parameter| parameter.title).to_owned();
                    axis_title(title, x_is_logarithmic)
                }
            },
            y_title: measure.map_or(String::new(), |measure| {
                let title = match figure.shape {
                    Shape::Quantiles(_) => measure.unit.to_owned(),
                    Shape::Lines | Shape::Bars => measure.label(),
                };
                axis_title(title, y_is_logarithmic)
            }),
            shape: figure.shape,
            groups,
            x_is_logarithmic,
            y_is_logarithmic,
            series,
        }
    }

    fn x_range(&self) -> Range<f64> {
        if self.shape != Shape::Lines {
            return -0.5..self.groups.len() as f64 - 0.5;
        }
        let values = || self.series.iter().flat_map(Series::places);
        let (min, max) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        match self.x_is_logarithmic {
            true => min / 1.1..max * 1.1,
            false => {
                let margin = ((max - min) * 0.03).max(0.5);
                (if min >= 0.0 { (min - margin).max(0.0) } else { min - margin })..max + margin
            }
        }
    }

    /// The numbers of the horizontal axis: at the points, if those are few.
    fn x_ticks(&self, range: &Range<f64>) -> Vec<f64> {
        if self.shape != Shape::Lines {
            return (0..self.groups.len()).map(|group| group as f64).collect();
        }
        let mut values: Vec<f64> = self.series.iter().flat_map(Series::places).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        if values.len() <= X_TICKS_MAX { values } else { ticks(range, self.x_is_logarithmic) }
    }

    fn y_range(&self) -> Range<f64> {
        let spreads = || self.series.iter().flat_map(|series| series.points.iter().map(|(_, spread)| spread));
        let max = spreads().map(|spread| spread.max).fold(f64::NEG_INFINITY, f64::max);
        let min = spreads().map(|spread| spread.min).fold(f64::INFINITY, f64::min);
        if max < min {
            return 0.0..1.0; // There are only crosses.
        }
        // Crosses have the upper edge to themselves.
        let room = |high: f64, low: f64| match (self.has_never(), self.y_is_logarithmic) {
            (false, _) => high,
            (true, true) => high * (high / low).powf(0.12),
            (true, false) => high + (high - low) * 0.12,
        };
        match self.y_is_logarithmic {
            true => {
                // At least a factor of five, so that an axis has some numbers on it.
                let (low, high) = (min / 1.25, max * 1.25);
                let middle = (low * high).sqrt();
                let low = low.min(middle / 2.25);
                low..room(high.max(middle * 2.25), low)
            }
            false => {
                let low = min.min(0.0) * 1.06;
                low..room(if max > 0.0 { max * 1.06 } else { 1.0 }, low)
            }
        }
    }

    fn has_never(&self) -> bool {
        self.series.iter().any(|series| !series.never.is_empty())
    }

    /// The height of crosses.
    fn never_at(&self) -> f64 {
        let Range { start, end } = self.y_range();
        if self.y_is_logarithmic { end * (start / end).powf(0.04) } else { end - (end - start) * 0.04 }
    }

    /// The start and width of the bar of a series in a group. The bars take four fifths of the group's width.
    fn bar(&self, index: usize, group: f64) -> (f64, f64) {
        let width = 0.8 / self.series.len() as f64;
        (group - 0.4 + width * index as f64, width)
    }

    fn fill<DB: DrawingBackend>(
        &self,
        chart: &mut Chart<'_, DB>,
        scale: u32,
    ) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
        let label = ("sans-serif", 14 * scale).into_font().color(&TEXT);
        let title = ("sans-serif", 15 * scale).into_font().color(&TEXT);
        let x_label = |x: &f64| match self.shape {
            Shape::Lines => axis_number(*x),
            Shape::Bars | Shape::Quantiles(_) => {
                let is_group = x.fract() == 0.0 && *x >= 0.0;
                self.groups.get(*x as usize).filter(|_| is_group).cloned().unwrap_or_default()
            }
        };
        let mut mesh = chart.configure_mesh();
        mesh.light_line_style(TRANSPARENT)
            .bold_line_style(GRID.stroke_width(scale))
            .axis_style(AXIS.stroke_width(scale))
            .label_style(label)
            .axis_desc_style(title)
            .x_desc(&self.x_title)
            .y_desc(&self.y_title)
            .x_label_formatter(&x_label)
            .y_label_formatter(&|y| axis_number(*y));
        if self.shape == Shape::Bars {
            mesh.disable_x_mesh();
        }
        mesh.draw()?;
        match self.shape {
            Shape::Lines | Shape::Quantiles(_) => self.draw_lines(chart, scale)?,
            Shape::Bars => self.draw_bars(chart, scale)?,
        }
        self.draw_never(chart, scale)
    }

    fn draw_never<DB: DrawingBackend>(
        &self,
        chart: &mut Chart<'_, DB>,
        scale: u32,
    ) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
        let y = self.never_at();
        for (index, series) in self.series.iter().enumerate() {
            let style = rgb(series.colour).stroke_width(2 * scale);
            chart.draw_series(series.never.iter().map(|place| {
                let x = match self.shape {
                    Shape::Bars => {
                        let (left, width) = self.bar(index, *place);
                        left + width / 2.0
                    }
                    Shape::Lines | Shape::Quantiles(_) => *place,
                };
                Cross::new((x, y), 5 * scale, style)
            }))?;
        }
        Ok(())
    }

    fn draw_lines<DB: DrawingBackend>(
        &self,
        chart: &mut Chart<'_, DB>,
        scale: u32,
    ) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
        // All shades first, so that no line is under one.
        for series in self.series.iter().filter(|series| series.is_joined) {
            let lower = series.points.iter().map(|(x, spread)| (*x, spread.min));
            let upper = series.points.iter().rev().map(|(x, spread)| (*x, spread.max));
            let outline: Vec<(f64, f64)> = lower.chain(upper).collect();
            chart.draw_series([Polygon::new(outline, rgb(series.colour).mix(0.16).filled())])?;
        }
        for series in &self.series {
            let colour = rgb(series.colour);
            let style = colour.stroke_width(2 * scale);
            let points = || series.points.iter().map(|(x, spread)| (*x, spread.median));
            if !series.is_joined {
                // Only marks.
            } else if series.colour.is_dashed {
                let (dash, gap) = (7 * scale, 5 * scale);
                chart.draw_series(DashedLineSeries::new(points(), dash, gap, style))?;
            } else {
                chart.draw_series(LineSeries::new(points(), style))?;
            }
            if series.is_marked {
                chart.draw_series(points().flat_map(|point| mark(point, series.colour, scale)))?;
            }
        }
        Ok(())
    }

    fn draw_bars<DB: DrawingBackend>(
        &self,
        chart: &mut Chart<'_, DB>,
        scale: u32,
    ) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
        let floor = self.y_range().start.max(0.0);
        let bar_count: usize = self.series.iter().map(|series| series.points.len()).sum();
        let style = ("sans-serif", 13 * scale).into_font().color(&TEXT);
        let style = style.pos(Pos::new(HPos::Center, VPos::Bottom));
        for (index, series) in self.series.iter().enumerate() {
            let middle = |group: f64| {
                let (left, width) = self.bar(index, group);
                left + width / 2.0
            };
            let colour = rgb(series.colour);
            if !self.y_is_logarithmic {
                let bars = series.points.iter().map(|(group, spread)| {
                    let (left, width) = self.bar(index, *group);
                    let corners = [(left + width * 0.06, floor), (left + width * 0.94, spread.median)];
                    let style =
                        if series.colour.is_dashed { colour.mix(0.55).filled() } else { colour.filled() };
                    Rectangle::new(corners, style)
                });
                chart.draw_series(bars)?;
            }
            let range = if self.y_is_logarithmic { colour } else { TEXT };
            let spreads = series.points.iter().filter(|(_, spread)| spread.max > spread.min);
            chart.draw_series(spreads.map(|(group, spread)| {
                let ends = vec![(middle(*group), spread.min), (middle(*group), spread.max)];
                PathElement::new(ends, range.stroke_width(2 * scale))
            }))?;
            let mut above = 0;
            if self.y_is_logarithmic {
                let dots = series.points.iter().map(|(group, spread)| (middle(*group), spread.median));
                chart.draw_series(dots.flat_map(|dot| mark(dot, series.colour, scale)))?;
                above = -5 * scale as i32; // The dot of one repeat is as high as its range.
            }
            if bar_count <= NUMBERED_BARS_MAX {
                chart.draw_series(series.points.iter().map(|(group, spread)| {
                    let number = Text::new(axis_number(spread.median), (0, above), style.clone());
                    EmptyElement::at((middle(*group), spread.max.max(floor))) + number
                }))?;
            }
        }
        Ok(())
    }

    fn draw_legend<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        scale: u32,
    ) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
        let unit = scale as i32;
        let style = ("sans-serif", 14 * scale).into_text_style(area).color(&TEXT);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        let named = self.series.iter().filter(|series| !series.name.is_empty());
        for (index, series) in named.enumerate() {
            let y = (24 + 23 * index as i32) * unit;
            let colour = rgb(series.colour);
            match self.shape {
                Shape::Lines | Shape::Quantiles(_) => {
                    let pieces: &[(i32, i32)] =
                        if series.colour.is_dashed { &[(4, 12), (18, 26), (32, 36)] } else { &[(4, 36)] };
                    for (from, to) in pieces {
                        let ends = vec![(from * unit, y), (to * unit, y)];
                        area.draw(&PathElement::new(ends, colour.stroke_width(2 * scale)))?;
                    }
                    for circle in
                        mark((20 * unit, y), series.colour, scale).into_iter().filter(|_| series.is_marked)
                    {
                        area.draw(&circle)?;
                    }
                }
                Shape::Bars if self.y_is_logarithmic => {
                    let ends = vec![(20 * unit, y - 8 * unit), (20 * unit, y + 8 * unit)];
                    area.draw(&PathElement::new(ends, colour.stroke_width(2 * scale)))?;
                    for circle in mark((20 * unit, y), series.colour, scale) {
                        area.draw(&circle)?;
                    }
                }
                Shape::Bars => {
                    let style =
                        if series.colour.is_dashed { colour.mix(0.55).filled() } else { colour.filled() };
                    area.draw(&Rectangle::new(
                        [(14 * unit, y - 7 * unit), (28 * unit, y + 7 * unit)],
                        style,
                    ))?;
                }
            }
            area.draw(&Text::new(series.name.as_str(), (44 * unit, y), style.clone()))?;
        }
        if self.has_never() {
            let named = self.series.iter().filter(|series| !series.name.is_empty()).count();
            let y = (24 + 23 * named as i32) * unit;
            area.draw(&Cross::new((20 * unit, y), 5 * scale, TEXT.stroke_width(2 * scale)))?;
            area.draw(&Text::new(NEVER, (44 * unit, y), style))?;
        }
        Ok(())
    }
}

impl Series {
    /// The positions where it has something.
    fn places(&self) -> impl Iterator<Item = f64> {
        self.points.iter().map(|(x, _)| *x).chain(self.never.iter().copied())
    }
}

/// The values of the horizontal parameter at which an arm lacks what the figure shows, in at least one repeat: a row
/// lacks the time of an event, or the point, or the whole arm, has failed and was not measured later.
fn never(study: &dyn Study, arm: &Arm, figure: &Figure, results: &Results, run: &RunFile) -> Vec<String> {
    let parameters = study.parameters();
    let measures = study.measures();
    let is_event = measures.iter().any(|measure| measure.name == figure.y && measure.is_event);
    let rounds = results.rows().iter().map(|row| row.repeat).max().unwrap_or(0) as usize;
    let has_failed = |point: &Point| {
        let is_it = |note: &&Note| note.point.is_empty() || note.point == point.words();
        let notes = run.notes.iter().filter(|note| note.arm == arm.name && note.kind == "failed");
        notes.filter(is_it).count() > 0
    };
    let mut found = Vec::new();
    for point in arm.points.iter().filter(|point| !point.get(figure.x).is_empty()) {
        if figure.only.iter().any(|(parameter, value)| point.get(parameter) != value) {
            continue;
        }
        let key = point.key(&parameters);
        let rows = results.rows().iter().filter(|row| row.arm == arm.name && row.point == key);
        let (count, without) = rows.fold((0, false), |(count, without), row| {
            (count + 1, without || !row.figures.contains_key(figure.y))
        });
        if (is_event && without) || (count < rounds.max(1) && has_failed(point)) {
            found.push(point.get(figure.x).to_owned());
        }
    }
    found
}

/// An axis's label.
fn axis_title(title: String, is_logarithmic: bool) -> String {
    match (is_logarithmic, title.is_empty()) {
        (false, _) => title,
        (true, true) => "logarithmic".to_owned(),
        (true, false) => format!("{title}, logarithmic"),
    }
}

/// Round numbers within a range, roughly as many as an axis should have.
fn ticks(range: &Range<f64>, is_logarithmic: bool) -> Vec<f64> {
    let is_within = |value: &f64| range.start <= *value && *value <= range.end;
    if is_logarithmic {
        let (first, last) = (range.start.log10().floor() as i32, range.end.log10().ceil() as i32);
        let digits: &[f64] = match range.end.log10() - range.start.log10() {
            decades if decades > 5.0 => &[1.0],
            decades if decades > 3.0 => &[1.0, 3.0],
            _ => &[1.0, 2.0, 5.0],
        };
        let decades = first..=last;
        let values = decades.flat_map(|decade| digits.iter().map(move |digit| digit * 10f64.powi(decade)));
        return values.filter(is_within).collect();
    }
    let rough = (range.end - range.start) / TICKS;
    let magnitude = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * magnitude).find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * magnitude);
    let first = (range.start / step).ceil() as i64;
    (first..).map(|number| number as f64 * step).take_while(|value| *value <= range.end).collect()
}

/// A round number, without meaningless digits.
fn axis_number(number: f64) -> String {
    let text = short(number);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn rgb(colour: Colour) -> RGBColor {
    let (red, green, blue) = colour.rgb;
    RGBColor(red, green, blue)
}

/// The mark of a point: a disc, with a hole in it on a dashed line.
fn mark<Coordinate: Copy>(at: Coordinate, colour: Colour, scale: u32) -> [Circle<Coordinate, i32>; 2] {
    let unit = scale as i32;
    let inner = if colour.is_dashed { BACKGROUND } else { rgb(colour) };
    [Circle::new(at, 4 * unit, rgb(colour).filled()), Circle::new(at, 2 * unit, inner.filled())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(ticks(&(0.0..100.0), false), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(&(0.3..12.0), true), [0.5, 1.0, 2.0, 5.0, 10.0]);
        assert_eq!(ticks(&(1.0..1e7), true).len(), 8);
        assert_eq!(ticks(&(0.0..0.03), false).len(), 7);
        let texts = [0.5, 0.25, 0.1, 2.5, 20.0, 10_000.0].map(axis_number);
        assert_eq!(texts, ["0.5", "0.25", "0.1", "2.5", "20", "10,000"]);
    }

    fn picture(shape: Shape, is_logarithmic: bool) -> Picture {
        let spread = |median: f64| Spread { median, min: median * 0.9, max: median * 1.1, count: 3 };
        let series = |name: &str, colour, factor: f64| Series {
            name: name.to_owned(),
            colour,
            points: (0..3).map(|x| (f64::from(x), spread(factor * f64::from(x + 1)))).collect(),
            never: Vec::new(),
            is_joined: true,
            is_marked: true,
        };
        Picture {
            title: "A title".to_owned(),
            x_title: "Clients".to_owned(),
            y_title: "Latency (ms)".to_owned(),
            shape,
            groups: ["a", "b", "c"].map(str::to_owned).to_vec(),
            x_is_logarithmic: false,
            y_is_logarithmic: is_logarithmic,
            series: vec![
                series("One system", Colour::ACKS_ALL, 10.0),
                series("Another", Colour::REDIS.dashed(), 1.0),
            ],
        }
    }

    #[test]
    fn a_figure_names_its_axes_and_every_system_in_its_colour() {
        register_fonts();
        let quantiles = Shape::Quantiles(&[]);
        for (shape, is_logarithmic) in [
            (Shape::Lines, false),
            (Shape::Lines, true),
            (Shape::Bars, false),
            (Shape::Bars, true),
            (quantiles, true),
        ] {
            let svg = svg(&picture(shape, is_logarithmic));
            assert!(!svg.contains(NEVER));
            for text in ["A title", "Clients", "Latency (ms)", "One system", "Another"] {
                assert!(svg.contains(text), "{shape:?}: {text} is not in the figure");
            }
            let colour = Colour::ACKS_ALL.css().to_uppercase();
            assert!(svg.to_uppercase().contains(&colour), "{shape:?}: {colour}");
        }
    }

    fn svg(picture: &Picture) -> String {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
            picture.draw(&area, 1).unwrap();
            area.present().unwrap();
        }
        svg
    }

    /// How many shapes of a kind are drawn in a colour.
    fn count(svg: &str, shape: &str, colour: Colour) -> usize {
        let colour = colour.css().to_uppercase();
        let elements = svg.split('<').filter(|element| element.starts_with(shape));
        elements.filter(|element| element.to_uppercase().contains(&colour)).count()
    }

    #[test]
    fn bars_on_a_logarithmic_axis_are_dots() {
        let (bars, dots) = (svg(&picture(Shape::Bars, false)), svg(&picture(Shape::Bars, true)));
        // Three, and the legend's; a dot is drawn as two circles.
        assert_eq!(
            (count(&bars, "rect", Colour::ACKS_ALL), count(&bars, "circle", Colour::ACKS_ALL)),
            (4, 0)
        );
        assert_eq!(
            (count(&dots, "rect", Colour::ACKS_ALL), count(&dots, "circle", Colour::ACKS_ALL)),
            (0, 8)
        );
    }

    #[test]
    fn logarithmic_axes_are_marked() {
        assert_eq!(axis_title("Latency (ms)".to_owned(), false), "Latency (ms)");
        assert_eq!(axis_title("Latency (ms)".to_owned(), true), "Latency (ms), logarithmic");
    }

    #[test]
    fn an_event_that_did_not_happen_is_a_cross_at_the_upper_edge() {
        for (shape, is_logarithmic) in [(Shape::Lines, true), (Shape::Bars, false), (Shape::Bars, true)] {
            let mut picture = picture(shape, is_logarithmic);
            picture.series[1].points.clear();
            picture.series[1].never = vec![0.0, 2.0];
            let svg = svg(&picture);
            assert!(svg.contains(NEVER), "{shape:?}");
            assert_eq!(count(&svg, "line ", Colour::REDIS), 4, "{shape:?}: a cross is two lines");
            let most = picture.series[0].points.iter().map(|(_, spread)| spread.max).fold(0.0, f64::max);
            assert!(picture.never_at() > most, "{shape:?}: above all that was measured");
        }
        let mut nothing = picture(Shape::Lines, false);
        nothing.series.remove(0);
        nothing.series[0].points.clear();
        nothing.series[0].never = vec![1.0];
        assert!(svg(&nothing).contains(NEVER), "also where there is nothing else");
    }

    #[test]
    fn missing_times_and_failed_points_differ_from_points_not_measured() {
        let study = crate::studies::find("coding-crossover").unwrap();
        let plan = crate::harness::Plan {
            scale: crate::harness::Scale::Quick,
            verify: false,
            quorate: "quorate".into(),
        };
        let arms = study.arms(&plan);
        let (figures, parameters) = (study.figures(), study.parameters());
        let figure = figures.iter().find(|figure| figure.file == "rebuild").unwrap();
        let is_shown = |point: &&Point| {
            figure.only.iter().all(|(parameter, value)| point.get(parameter) == value)
                && !point.get(figure.x).is_empty()
        };
        let arm = arms.iter().find(|arm| arm.points.iter().any(|point| is_shown(&point))).unwrap();
        let point = arm.points.iter().find(is_shown).unwrap();
        let names: Vec<&str> = parameters.iter().map(|parameter| parameter.name).collect();
        let row = |repeat, ms: Option<f64>| crate::harness::Row {
            arm: arm.name.clone(),
            point: point.key(&parameters),
            repeat,
            figures: ms.map(|ms| (figure.y.to_owned(), ms)).into_iter().collect(),
            checked: None,
        };
        let found = |rows: &[(u32, Option<f64>)], failed: Option<&str>| {
            let mut results = Results::new(&names, &[figure.y]);
            rows.iter().for_each(|(repeat, ms)| results.push(row(*repeat, *ms)));
            let note = failed.map(|point| Note {
                arm: arm.name.clone(),
                point: point.to_owned(),
                kind: "failed".to_owned(),
                text: String::new(),
            });
            let run = RunFile {
                settings: crate::harness::Settings {
                    study: study.name().to_owned(),
                    scale: plan.scale,
                    verify: false,
                    repeats: 2,
                    program: String::new(),
                },
                begun: String::new(),
                command: String::new(),
                arms: std::collections::BTreeMap::new(),
                notes: note.into_iter().collect(),
            };
            never(study, arm, figure, &results, &run)
        };
        let there = vec![point.get(figure.x).to_owned()];
        assert!(found(&[(1, Some(3.0)), (2, Some(4.0))], None).is_empty());
        assert_eq!(found(&[(1, Some(3.0)), (2, None)], None), there, "in one repeat it never came");
        assert!(found(&[], None).is_empty(), "what was not measured yet has not failed");
        assert_eq!(found(&[], Some(&point.words())), there);
        assert_eq!(found(&[], Some("")), there, "the arm did not start");
        assert!(found(&[], Some("another point")).is_empty());
        assert!(
            found(&[(1, Some(3.0))], Some(&point.words())).is_empty(),
            "it was measured when it was run again"
        );
    }

    #[test]
    fn a_picture_of_pixels_has_the_letters_too() {
        register_fonts();
        let (width, height) = (WIDTH * PNG_SCALE, HEIGHT * PNG_SCALE);
        let mut pixels = vec![0; (width * height * 3) as usize];
        {
            let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
            picture(Shape::Lines, false).draw(&area, PNG_SCALE).unwrap();
        }
        // The title is above everything else: without letters that part would be blank.
        let top = &pixels[..(width * 3 * 34 * PNG_SCALE) as usize];
        let dark = top.chunks_exact(3).filter(|pixel| pixel.iter().all(|part| *part < 0x60)).count();
        assert!(dark > 100, "{dark} dark pixels");
    }
}

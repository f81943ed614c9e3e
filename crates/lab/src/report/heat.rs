//! Heat maps: which of two is faster, and by how much, over two parameters.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::FontStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::plot::{BACKGROUND, Draw, Drawn, HEIGHT, TEXT, WIDTH, render};
use super::{Colour, short};
use crate::harness::HeatMap;

/// The position of the fields.
const LEFT: i32 = 110;
const RIGHT: i32 = 730;
const TOP: i32 = 52;
const BOTTOM: i32 = 446;

/// The ratio at which a colour is fully saturated.
const FULL_AT: f64 = 4.0;

/// Fields that were not measured.
const ABSENT: RGBColor = RGBColor(0xee, 0xee, 0xee);

/// The legend's shades: the ratio of each.
const SHADES: [f64; 3] = [4.0, 2.0, 1.2];

pub(super) fn draw(map: &HeatMap) -> Result<Drawn> {
    render(&map.file, map)
}

/// The colour of a field: that of the faster side, the paler the smaller the difference.
fn colour(map: &HeatMap, ratio: f64) -> RGBColor {
    let (_, Colour { rgb: (red, green, blue), .. }) = if ratio < 1.0 { &map.first } else { &map.second };
    let depth = (ratio.max(f64::MIN_POSITIVE).ln().abs() / FULL_AT.ln()).clamp(0.0, 1.0);
    let toward = |part: u8| (255.0 - (255.0 - f64::from(part)) * depth).round() as u8;
    RGBColor(toward(*red), toward(*green), toward(*blue))
}

/// The colour of legible letters on a background.
fn ink(RGBColor(red, green, blue): RGBColor) -> RGBColor {
    let light = 0.3 * f64::from(red) + 0.59 * f64::from(green) + 0.11 * f64::from(blue);
    if light < 140.0 { WHITE } else { TEXT }
}

impl Draw for HeatMap {
    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, scale: u32) -> Result<(), String> {
        self.fill(area, scale).map_err(|error| error.to_string())
    }
}

impl HeatMap {
    fn fill<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        scale: u32,
    ) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
        area.fill(&BACKGROUND)?;
        let unit = scale as i32;
        let at = |x: i32, y: i32| (x * unit, y * unit);
        let style = |size: u32, horizontal, vertical| {
            let style = ("sans-serif", size * scale).into_text_style(area).color(&TEXT);
            style.pos(Pos::new(horizontal, vertical))
        };
        let title = ("sans-serif", 19 * scale, FontStyle::Bold).into_text_style(area).color(&TEXT);
        let title = title.pos(Pos::new(HPos::Center, VPos::Center));
        area.draw(&Text::new(self.title.as_str(), at(WIDTH as i32 / 2, 24), title))?;

        let (columns, rows) = (self.columns.len().max(1) as i32, self.rows.len().max(1) as i32);
        let column_at = |column: i32| LEFT + (RIGHT - LEFT) * column / columns;
        let row_at = |row: i32| BOTTOM - (BOTTOM - TOP) * row / rows;
        for (row, ratios) in (0..).zip(&self.ratios) {
            for (column, ratio) in (0..).zip(ratios) {
                let (left, right) = (column_at(column), column_at(column + 1));
                let (bottom, top) = (row_at(row), row_at(row + 1));
                let fill = ratio.map_or(ABSENT, |ratio| colour(self, ratio));
                area.draw(&Rectangle::new(
                    [at(left + 1, top + 1), at(right - 1, bottom - 1)],
                    fill.filled(),
                ))?;
                let text = ratio.map_or("–".to_owned(), short);
                let ink = ink(fill);
                let style = style(15, HPos::Center, VPos::Center).color(&ink);
                area.draw(&Text::new(text, at((left + right) / 2, (top + bottom) / 2), style))?;
            }
        }
        let below = style(14, HPos::Center, VPos::Top);
        for (column, name) in (0..).zip(&self.columns) {
            let middle = (column_at(column) + column_at(column + 1)) / 2;
            area.draw(&Text::new(name.as_str(), at(middle, BOTTOM + 8), below.clone()))?;
        }
        let beside = style(14, HPos::Right, VPos::Center);
        for (row, name) in (0..).zip(&self.rows) {
            let middle = (row_at(row) + row_at(row + 1)) / 2;
            area.draw(&Text::new(name.as_str(), at(LEFT - 8, middle), beside.clone()))?;
        }
        let x_title = style(15, HPos::Center, VPos::Center);
        area.draw(&Text::new(self.x_title, at((LEFT + RIGHT) / 2, HEIGHT as i32 - 26), x_title))?;
        let y_title = style(15, HPos::Center, VPos::Center).transform(FontTransform::Rotate270);
        area.draw(&Text::new(self.y_title, at(22, (TOP + BOTTOM) / 2), y_title))?;
        self.legend(area, scale)
    }

    fn legend<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        scale: u32,
    ) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
        let unit = scale as i32;
        let style = ("sans-serif", 14 * scale).into_text_style(area).color(&TEXT);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        let faster = SHADES.iter().map(|times| (1.0 / times, &self.first.0, *times));
        let slower = SHADES.iter().rev().map(|times| (*times, &self.second.0, *times));
        let mut lines: Vec<(Option<f64>, String)> = Vec::new();
        for (ratio, name, times) in faster {
            lines.push((Some(ratio), format!("{name} {times}x as fast")));
        }
        lines.push((Some(1.0), "as fast".to_owned()));
        for (ratio, name, times) in slower {
            lines.push((Some(ratio), format!("{name} {times}x")));
        }
        lines.push((None, "not measured".to_owned()));
        for (line, (ratio, text)) in (0..).zip(lines) {
            let y = (TOP + 12 + 25 * line) * unit;
            let left = (RIGHT + 14) * unit;
            let fill = ratio.map_or(ABSENT, |ratio| colour(self, ratio));
            let corners = [(left, y - 8 * unit), (left + 16 * unit, y + 8 * unit)];
            area.draw(&Rectangle::new(corners, fill.filled()))?;
            area.draw(&Rectangle::new(corners, TEXT.mix(0.3).stroke_width(scale)))?;
            area.draw(&Text::new(text, (left + 24 * unit, y), style.clone()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> HeatMap {
        HeatMap {
            file: "map".to_owned(),
            title: "Writes".to_owned(),
            paper: "",
            x_title: "Bandwidth",
            y_title: "Size",
            columns: ["10", "70"].map(str::to_owned).to_vec(),
            rows: ["200", "1000"].map(str::to_owned).to_vec(),
            ratios: vec![vec![Some(0.5), None], vec![Some(0.25), Some(1.6)]],
            first: ("Coding".to_owned(), Colour::ACKS_ALL),
            second: ("Replication".to_owned(), Colour::REDIS_ONE),
        }
    }

    #[test]
    fn a_field_has_the_colour_of_the_faster_side() {
        let map = map();
        assert_eq!(colour(&map, 1.0), WHITE);
        let RGBColor(red, _, blue) = colour(&map, 0.4);
        assert!(blue > red, "blue where the first is faster");
        let RGBColor(red, _, blue) = colour(&map, 2.5);
        assert!(red > blue, "red where the second is");
        assert_eq!(colour(&map, 0.25), colour(&map, 0.01), "beyond the end there is no darker one");
    }

    #[test]
    fn a_map_names_its_axes_its_values_and_both_sides() {
        let drawn = draw(&map()).unwrap();
        for text in ["Writes", "Bandwidth", "Size", "1000", "70", "0.250", "1.60", "Coding 4x as fast"] {
            assert!(drawn.svg.contains(text), "{text} is not in the map");
        }
        assert!(drawn.png.starts_with(b"\x89PNG"));
    }
}

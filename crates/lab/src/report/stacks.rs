//! Stacked bars: the steps that a total consists of.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::FontStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::plot::{BACKGROUND, Draw, Drawn, HEIGHT, TEXT, WIDTH, render};
use super::{Colour, short};
use crate::harness::Stacks;

/// The position of the bars.
const LEFT: i32 = 190;
const RIGHT: i32 = 800;
const TOP: i32 = 84;
const BOTTOM: i32 = 446;

/// The maximum thickness of a bar.
const THICKNESS_MAX: i32 = 44;

pub(super) fn draw(stacks: &Stacks) -> Result<Drawn> {
    render(&stacks.file, stacks)
}

impl Draw for Stacks {
    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, scale: u32) -> Result<(), String> {
        self.fill(area, scale).map_err(|error| error.to_string())
    }
}

fn rgb(Colour { rgb: (red, green, blue), .. }: Colour) -> RGBColor {
    RGBColor(red, green, blue)
}

impl Stacks {
    fn fill<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        scale: u32,
    ) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
        area.fill(&BACKGROUND)?;
        let unit = scale as i32;
        let at = |x: i32, y: i32| (x * unit, y * unit);
        let style = |size: u32, horizontal| {
            let style = ("sans-serif", size * scale).into_text_style(area).color(&TEXT);
            style.pos(Pos::new(horizontal, VPos::Center))
        };
        let title = ("sans-serif", 19 * scale, FontStyle::Bold).into_text_style(area).color(&TEXT);
        let title = title.pos(Pos::new(HPos::Center, VPos::Center));
        area.draw(&Text::new(self.title.as_str(), at(WIDTH as i32 / 2, 24), title))?;

        let mut left = LEFT;
        for (name, colour) in &self.steps {
            area.draw(&Rectangle::new([at(left, 50), at(left + 16, 66)], rgb(*colour).filled()))?;
            area.draw(&Text::new(name.as_str(), at(left + 22, 58), style(14, HPos::Left)))?;
            left += 42 + 9 * name.chars().count() as i32;
        }

        let totals = self.bars.iter().map(|(_, parts)| parts.iter().sum::<f64>());
        let longest = totals.fold(f64::MIN_POSITIVE, f64::max);
        let x_at = |value: f64| LEFT + (f64::from(RIGHT - LEFT) * value / longest).round() as i32;
        let row = (BOTTOM - TOP) / self.bars.len().max(1) as i32;
        let thickness = (row * 7 / 10).min(THICKNESS_MAX);
        for (index, (name, parts)) in (0..).zip(&self.bars) {
            let middle = TOP + row * index + row / 2;
            let (top, bottom) = (middle - thickness / 2, middle + thickness / 2);
            area.draw(&Text::new(name.as_str(), at(LEFT - 10, middle), style(14, HPos::Right)))?;
            let mut sum = 0.0;
            for (part, (_, colour)) in parts.iter().zip(&self.steps) {
                let corners = [at(x_at(sum), top), at(x_at(sum + part), bottom)];
                area.draw(&Rectangle::new(corners, rgb(*colour).filled()))?;
                sum += part;
            }
            area.draw(&Text::new(short(sum), at(x_at(sum) + 8, middle), style(14, HPos::Left)))?;
        }
        let below = style(15, HPos::Center);
        area.draw(&Text::new(self.x_title, at((LEFT + RIGHT) / 2, HEIGHT as i32 - 26), below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bar_has_its_steps_and_its_sum() {
        let stacks = Stacks {
            file: "steps".to_owned(),
            title: "Steps".to_owned(),
            paper: "",
            x_title: "ms",
            steps: vec![("one".to_owned(), Colour::ABD), ("two".to_owned(), Colour::ETCD)],
            bars: vec![("first".to_owned(), vec![1.0, 2.0]), ("second".to_owned(), vec![0.0, 1.5])],
        };
        let svg = draw(&stacks).unwrap().svg;
        for text in ["Steps", "one", "two", "first", "second", "3", "1.5"] {
            assert!(svg.contains(text), "{text} is missing");
        }
        assert!(draw(&Stacks { bars: Vec::new(), ..stacks }).is_ok(), "nothing is drawn as nothing");
    }
}

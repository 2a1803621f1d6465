//! Plots as SVG: thin axes, a marker and a colour for each protocol, the paper's own numbers as hollow circles.

use crate::rows::{Row, lookup};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

/// The quantity along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The name in files.
    pub name: &'static str,
    /// The title for readers, with the unit.
    pub title: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlotKind {
    /// Added to the experiment's name if the experiment has several plots.
    pub suffix: &'static str,
    /// The metric along the horizontal axis; `None` for the points' own values.
    pub x: Option<Axis>,
    /// The metric along the vertical axis.
    pub y: Axis,
    /// Whether the vertical axis is logarithmic.
    pub logarithmic: bool,
    /// Whether the horizontal axis is logarithmic.
    pub logarithmic_x: bool,
    /// Points above this value are omitted.
    pub y_most: Option<f64>,
}

impl PlotKind {
    /// A plot over the points' own values, with axes that are not logarithmic.
    pub const fn of(suffix: &'static str, y: Axis) -> PlotKind {
        PlotKind { suffix, x: None, y, logarithmic: false, logarithmic_x: false, y_most: None }
    }
}

#[derive(Clone, Debug)]
pub struct Plot {
    /// Added to the experiment's name.
    pub suffix: String,
    pub caption: String,
    pub svg: String,
}

/// A number with its confidence interval, and its place in the plot.
#[derive(Clone, Copy, Debug)]
struct Spot {
    x: f64,
    y: f64,
    ci95: f64,
    paper: Option<(f64, f64)>,
}

struct Line {
    series: String,
    spots: Vec<Spot>,
}

const SIZE: (u32, u32) = (720, 460);
const FONT: &str = "Helvetica, Arial, sans-serif";
const GRID: RGBColor = RGBColor(224, 224, 224);
const PAPER: RGBColor = RGBColor(110, 110, 110);

/// Draws rows: a plot of each of these kinds, with this title. `x` is the axis of the points' own values.
pub fn plots_of(title: &str, x: Axis, kinds: &[PlotKind], rows: &[Row]) -> Vec<Plot> {
    let mut panels: Vec<&str> = Vec::new();
    for row in rows {
        if !panels.contains(&row.panel.as_str()) {
            panels.push(&row.panel);
        }
    }
    let mut plots = Vec::new();
    for kind in kinds {
        for (number, panel) in panels.iter().enumerate() {
            let part = if panels.len() > 1 { format!("-{}", number + 1) } else { String::new() };
            let caption = if panel.is_empty() { title.to_string() } else { format!("{title}, {panel}") };
            let lines = lines_of(kind, panel, rows);
            let x = kind.x.unwrap_or(x);
            let svg = draw(&lines, x, kind);
            plots.push(Plot { suffix: format!("{}{part}", kind.suffix), caption, svg });
        }
    }
    plots
}

fn lines_of(kind: &PlotKind, panel: &str, rows: &[Row]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows.iter().filter(|row| row.panel == panel && row.metric == kind.y.name) {
        let across = |axis: Axis| lookup(rows, panel, &row.series, row.x, axis.name);
        let Some(x) = kind.x.map_or(Some(row.x), |axis| across(axis).map(|row| row.ours)) else { continue };
        let paper_x = kind.x.map_or(Some(row.x), |axis| across(axis).and_then(|row| row.paper));
        let paper = paper_x.zip(row.paper);
        let kept_up = lookup(rows, panel, &row.series, row.x, "kept_up").is_none_or(|row| row.ours == 1.0);
        let visible = kind.y_most.is_none_or(|most| row.ours <= most) && (kept_up || kind.x.is_none());
        // A value that is not positive has no place on a logarithmic axis and is not drawn.
        if !visible || (kind.logarithmic && row.ours <= 0.0) {
            continue;
        }
        let spot = Spot { x, y: row.ours, ci95: row.ci95.unwrap_or(0.0), paper };
        match lines.iter_mut().find(|line| line.series == row.series) {
            Some(line) => line.spots.push(spot),
            None => lines.push(Line { series: row.series.clone(), spots: vec![spot] }),
        }
    }
    lines.iter_mut().for_each(|line| line.spots.sort_by(|one, other| one.x.total_cmp(&other.x)));
    lines
}

fn draw(lines: &[Line], x: Axis, kind: &PlotKind) -> String {
    let spots = || lines.iter().flat_map(|line| &line.spots);
    let far_right = spots().map(|spot| spot.x).fold(1e-9, f64::max);
    let far_left = spots().map(|spot| spot.x).fold(far_right, f64::min);
    let top = spots().flat_map(|spot| [spot.y + spot.ci95, spot.paper.map_or(0.0, |(_, y)| y)]).fold(1e-9, f64::max);
    let least = spots().map(|spot| spot.y).fold(f64::INFINITY, f64::min).min(top) * 0.6;
    let (linear_x, linear_y) = (0.0..far_right * 1.04, 0.0..top * 1.2);
    let logarithmic_x = || (far_left.max(1e-6) * 0.8..far_right * 1.25).log_scale();
    let logarithmic_y = || (least.max(1e-6)..top * 3.0).log_scale();
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).expect("a string takes any drawing");
        let mut builder = ChartBuilder::on(&area);
        builder.margin(14).margin_right(24).x_label_area_size(48).y_label_area_size(68);
        let sound = "the ranges are valid";
        match (kind.logarithmic_x, kind.logarithmic) {
            (false, false) => finish(builder.build_cartesian_2d(linear_x, linear_y).expect(sound), lines, x, kind),
            (false, true) => {
                finish(builder.build_cartesian_2d(linear_x, logarithmic_y()).expect(sound), lines, x, kind)
            }
            (true, false) => {
                finish(builder.build_cartesian_2d(logarithmic_x(), linear_y).expect(sound), lines, x, kind)
            }
            (true, true) => {
                finish(builder.build_cartesian_2d(logarithmic_x(), logarithmic_y()).expect(sound), lines, x, kind)
            }
        }
        area.present().expect("a string takes any drawing");
    }
    svg
}

type Chart<'a, 'b, X, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>;

fn finish<'a, 'b: 'a, X, Y>(mut chart: Chart<'a, 'b, X, Y>, lines: &[Line], x: Axis, kind: &PlotKind)
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64> + AsRangedCoord<Value = f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64> + AsRangedCoord<Value = f64>,
{
    let text = |size: i32| (FONT, size).into_font().color(&BLACK);
    chart
        .configure_mesh()
        .x_desc(x.title)
        .y_desc(kind.y.title)
        .axis_desc_style(text(15))
        .label_style(text(13))
        .light_line_style(WHITE.mix(0.0))
        .bold_line_style(GRID)
        .x_labels(9)
        .y_labels(8)
        .x_label_formatter(&|value| number(*value))
        .y_label_formatter(&|value| number(*value))
        .draw()
        .expect("a string takes any drawing");
    for (index, line) in lines.iter().enumerate() {
        let look = Look::of(&line.series, index);
        let points = || line.spots.iter().map(|spot| (spot.x, spot.y));
        let drawn = chart.draw_series(LineSeries::new(points(), look.colour.stroke_width(2))).expect("drawn");
        drawn.label(line.series.clone()).legend(move |(x, y)| {
            EmptyElement::at((x, y))
                + PathElement::new(vec![(0, 0), (22, 0)], look.colour.stroke_width(2))
                + look.marker((11, 0))
        });
        let bars = line.spots.iter().filter(|spot| spot.ci95 > 0.0).map(|spot| {
            let low = if kind.logarithmic { (spot.y - spot.ci95).max(spot.y / 10.0) } else { spot.y - spot.ci95 };
            PathElement::new(vec![(spot.x, low), (spot.x, spot.y + spot.ci95)], look.colour.stroke_width(1))
        });
        chart.draw_series(bars).expect("drawn");
        chart.draw_series(points().map(|at| EmptyElement::at(at) + look.marker((0, 0)))).expect("drawn");
    }
    let theirs: Vec<(f64, f64)> = lines.iter().flat_map(|line| &line.spots).filter_map(|spot| spot.paper).collect();
    if !theirs.is_empty() {
        let hollow = |at| EmptyElement::at(at) + Circle::new((0, 0), 8, PAPER.stroke_width(2));
        let drawn = chart.draw_series(theirs.into_iter().map(hollow)).expect("drawn");
        drawn
            .label("as the paper states")
            .legend(|at| EmptyElement::at(at) + Circle::new((11, 0), 6, PAPER.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(legend_place(lines, kind))
        .background_style(WHITE.mix(0.85))
        .border_style(GRID)
        .label_font(text(13))
        .draw()
        .expect("a string takes any drawing");
}

/// The upper corner at which the lines are lower.
fn legend_place(lines: &[Line], kind: &PlotKind) -> SeriesLabelPosition {
    let spots = || lines.iter().flat_map(|line| &line.spots);
    let far_right = spots().map(|spot| spot.x).fold(0.0, f64::max);
    let middle = if kind.logarithmic_x { far_right.sqrt() } else { far_right / 2.0 };
    let highest = |left: bool| {
        spots().filter(|spot| (spot.x < middle) == left).map(|spot| spot.y + spot.ci95).fold(0.0, f64::max)
    };
    if highest(true) > highest(false) { SeriesLabelPosition::UpperRight } else { SeriesLabelPosition::UpperLeft }
}

/// The look of a protocol, the same in every plot.
#[derive(Clone, Copy, Debug)]
struct Look {
    colour: RGBColor,
    shape: Shape,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Disc,
    Square,
    Diamond,
    Triangle,
    Cross,
}

/// The looks of series that are not protocols, in the order of the legend.
const OTHERS: [(RGBColor, Shape); 8] = [
    (RGBColor(86, 180, 233), Shape::Disc),
    (RGBColor(230, 159, 0), Shape::Disc),
    (RGBColor(0, 158, 115), Shape::Triangle),
    (RGBColor(0, 114, 178), Shape::Cross),
    (RGBColor(213, 94, 0), Shape::Square),
    (RGBColor(204, 121, 167), Shape::Diamond),
    (RGBColor(127, 127, 127), Shape::Disc),
    (RGBColor(150, 130, 20), Shape::Square),
];

impl Look {
    /// Colours that most readers can distinguish (Okabe and Ito), suited to light and dark backgrounds.
    fn of(series: &str, index: usize) -> Look {
        let (colour, shape) = match series {
            "none" => (RGBColor(127, 127, 127), Shape::Disc),
            "server-lock" => (RGBColor(213, 94, 0), Shape::Square),
            "callback-lock" => (RGBColor(204, 121, 167), Shape::Diamond),
            "device-lock" => (RGBColor(0, 158, 115), Shape::Triangle),
            "timestamp" => (RGBColor(0, 114, 178), Shape::Cross),
            _ => OTHERS[index % OTHERS.len()],
        };
        Look { colour, shape }
    }

    /// The marker around a point, in pixels.
    fn marker(self, (x, y): (i32, i32)) -> Polygon<(i32, i32)> {
        let corners: &[(i32, i32)] = match self.shape {
            Shape::Disc => &[(-2, -4), (2, -4), (4, -2), (4, 2), (2, 4), (-2, 4), (-4, 2), (-4, -2)],
            Shape::Square => &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
            Shape::Diamond => &[(0, -6), (5, 0), (0, 6), (-5, 0)],
            Shape::Triangle => &[(0, -5), (5, 4), (-5, 4)],
            Shape::Cross => &[
                (-5, -2),
                (-2, -2),
                (-2, -5),
                (2, -5),
                (2, -2),
                (5, -2),
                (5, 2),
                (2, 2),
                (2, 5),
                (-2, 5),
                (-2, 2),
                (-5, 2),
            ],
        };
        let corners: Vec<_> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        Polygon::new(corners, self.colour.filled())
    }
}

/// A number as an axis shows it.
fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_string();
    }
    if value.abs() >= 10_000.0 {
        let whole = format!("{value:.0}");
        let split = whole.len() - 3;
        return format!("{},{}", &whole[..split], &whole[split..]);
    }
    let digits = if value.abs() >= 10.0 { 0 } else { (1 - value.abs().log10().floor() as i32).clamp(0, 6) as usize };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

//! A time line as SVG: a lane for each stream, wrapped into rows, so that it reads in a browser.

use engine::picture::{Area, Canvas, PALE, Style, round_up};

/// The kind of work of a bar, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Forward,
    Backward,
    Update,
    /// The launches at either end of a step.
    Ends,
}

const KINDS: [(Kind, &str, &str); 4] = [
    (Kind::Forward, "forward", "#2f6db3"),
    (Kind::Backward, "backward", "#b4530a"),
    (Kind::Update, "update", "#3b7d3b"),
    (Kind::Ends, "both ends", "#6b6b6b"),
];

/// A piece of work in time.
#[derive(Debug, Clone)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) stream: usize,
    pub(crate) start_us: f64,
    pub(crate) end_us: f64,
    pub(crate) kind: Kind,
}

impl Bar {
    fn us(&self) -> f64 {
        self.end_us - self.start_us
    }
}

/// The word for it.
pub(crate) fn word(kind: Kind) -> &'static str {
    KINDS.iter().find(|(other, ..)| *other == kind).map_or("", |(_, word, _)| word)
}

const WIDTH: f64 = 1600.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 92.0;
const LANE: f64 = 26.0;
const LANE_GAP: f64 = 3.0;
const AXIS: f64 = 34.0;
/// Behind the bars of a lane.
const LANE_GROUND: &str = "#efefef";
/// Round numbers of rows and ticks, close enough that little of a row stays empty.
const STEPS: [f64; 9] = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0];
/// Bars of a row at most, on the average; more rows than [`MAX_ROWS`] are too many to take in.
const BARS_OF_ROW: usize = 55;
const MAX_ROWS: usize = 9;
/// Bars of the list below.
const LISTED: usize = 24;

/// Rows of the drawing: each shows `row_us` from `row * row_us` on.
struct Layout {
    rows: usize,
    row_us: f64,
    streams: usize,
}

impl Layout {
    fn of(bars: &[Bar]) -> Self {
        let total = bars.iter().map(|bar| bar.end_us).fold(1.0, f64::max);
        let wanted = bars.len().div_ceil(BARS_OF_ROW).clamp(1, MAX_ROWS);
        let row_us = if wanted == 1 { total } else { round_up(total / wanted as f64, &STEPS) };
        let rows = (total / row_us).ceil().max(1.0) as usize;
        let streams = bars.iter().map(|bar| bar.stream + 1).max().unwrap_or(1);
        Self { rows, row_us, streams }
    }

    fn scale(&self) -> f64 {
        (WIDTH - LEFT - RIGHT) / self.row_us
    }

    fn row_height(&self) -> f64 {
        self.streams as f64 * (LANE + LANE_GAP) + AXIS
    }

    fn lane_top(&self, row: usize, stream: usize) -> f64 {
        TOP + row as f64 * self.row_height() + stream as f64 * (LANE + LANE_GAP)
    }

    fn bottom(&self) -> f64 {
        TOP + self.rows as f64 * self.row_height()
    }

    /// The pieces of a span, one a row: row, left edge, width.
    fn pieces(&self, start: f64, end: f64) -> impl Iterator<Item = (usize, f64, f64)> + '_ {
        let row_of = |us: f64| ((us / self.row_us) as usize).min(self.rows - 1);
        (row_of(start)..=row_of(end)).map(move |row| {
            let first = row as f64 * self.row_us;
            let (from, to) = (start.max(first) - first, end.min(first + self.row_us) - first);
            (row, LEFT + from * self.scale(), (to - from).max(0.0) * self.scale())
        })
    }
}

/// Draws bars under a title and a second line.
pub(crate) fn draw(title: &str, subtitle: &str, bars: &[Bar]) -> String {
    let layout = Layout::of(bars);
    let mut longest: Vec<&Bar> = bars.iter().collect();
    longest.sort_by(|a, b| b.us().total_cmp(&a.us()));
    longest.truncate(LISTED);
    let height = layout.bottom() + 40.0 + 17.0 * longest.len().div_ceil(2) as f64;
    let mut canvas = Canvas::sized(WIDTH, height, title, &[subtitle]);
    legend(&mut canvas, bars);
    axes(&mut canvas, &layout);
    let mut drawn = vec![0usize; layout.streams];
    for bar in bars {
        let rank = longest.iter().position(|other| std::ptr::eq(*other, bar));
        // Neighbours of one colour stay apart.
        let is_paler = !drawn[bar.stream].is_multiple_of(2);
        drawn[bar.stream] += 1;
        draw_bar(&mut canvas, &layout, bar, is_paler, rank);
    }
    list(&mut canvas, &layout, &longest);
    canvas.finish()
}

/// The meaning of each colour, and the total length of its bars.
fn legend(canvas: &mut Canvas, bars: &[Bar]) {
    let kinds = KINDS.iter().filter(|(kind, ..)| bars.iter().any(|bar| bar.kind == *kind));
    let entries = kinds.map(|(kind, name, colour)| {
        let us: f64 = bars.iter().filter(|bar| bar.kind == *kind).map(Bar::us).sum();
        (*colour, format!("{name}: {:.3} ms of bars", us / 1e3))
    });
    let entries: Vec<_> = entries.collect();
    let entries: Vec<_> = entries.iter().map(|(colour, text)| (*colour, text.as_str())).collect();
    canvas.legend(20.0, 76.0, &entries);
}

/// Lanes with their names, and a scale below each row.
fn axes(canvas: &mut Canvas, layout: &Layout) {
    let tick_us = round_up(layout.row_us / 12.0, &STEPS);
    let ticks = (layout.row_us / tick_us + 1e-9) as usize;
    for row in 0..layout.rows {
        for stream in 0..layout.streams {
            let y = layout.lane_top(row, stream);
            canvas.rect(Area::new(LEFT, y, WIDTH - LEFT - RIGHT, LANE), LANE_GROUND);
            canvas.text(LEFT - 8.0, y + 17.0, Style::SMALL.end(), &format!("stream {stream}"));
        }
        let y = layout.lane_top(row, layout.streams);
        for tick in 0..=ticks {
            let x = LEFT + tick as f64 * tick_us * layout.scale();
            let ms = (row as f64 * layout.row_us + tick as f64 * tick_us) / 1e3;
            let unit = if tick == 0 { " ms" } else { "" };
            canvas.path(&format!("M{x:.1} {y:.1}v4"), PALE, 1.0);
            let label = format!("{}{unit}", decimals(ms));
            canvas.text(x, y + 14.0, Style::SMALL.middle(), &label);
        }
    }
}

/// In microseconds, or milliseconds from one on.
fn duration(us: f64) -> String {
    if us < 1e3 { format!("{us:.1} us") } else { format!("{:.3} ms", us / 1e3) }
}

/// Up to three decimals, without trailing zeros.
fn decimals(ms: f64) -> String {
    let text = format!("{ms:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// A bar, with its name if that fits, else its rank if it is listed and that fits.
fn draw_bar(canvas: &mut Canvas, layout: &Layout, bar: &Bar, is_paler: bool, rank: Option<usize>) {
    let colour = KINDS.iter().find(|(kind, ..)| *kind == bar.kind).map_or("#000000", |k| k.2);
    let opacity = if is_paler { "fill-opacity=\"0.8\"" } else { "" };
    let pieces: Vec<_> = layout.pieces(bar.start_us, bar.end_us).collect();
    let widest = pieces.iter().max_by(|a, b| a.2.total_cmp(&b.2));
    let [us, start] = [duration(bar.us()), format!("{:.3}", bar.start_us / 1e3)];
    canvas.titled(&format!("{}: {us} from {start} ms on", bar.name), |canvas| {
        for (row, x, width) in &pieces {
            let area = Area::new(*x, layout.lane_top(*row, bar.stream), width.max(0.3), LANE);
            canvas.rect_with(area, colour, opacity, "");
        }
        let Some((row, x, width)) = widest else { return };
        if let Some(label) = label(&bar.name, rank, *width) {
            let y = layout.lane_top(*row, bar.stream) + 17.0;
            canvas.text(x + width / 2.0, y, Style::SMALL.middle().fill("#ffffff"), &label);
        }
    });
}

/// The longest label that fits a bar of this width: rank and name, rank and end of the name, or the
/// rank only.
fn label(name: &str, rank: Option<usize>, width: f64) -> Option<String> {
    let head = rank.map_or(String::new(), |rank| format!("{}  ", rank + 1));
    let short = name.rsplit('.').next().unwrap_or(name);
    let texts = [format!("{head}{name}"), format!("{head}{short}"), head.trim().to_string()];
    texts.into_iter().find(|text| !text.is_empty() && Style::SMALL.width(text) + 4.0 <= width)
}

/// The longest bars by rank, in two columns.
fn list(canvas: &mut Canvas, layout: &Layout, longest: &[&Bar]) {
    let top = layout.bottom() + 18.0;
    canvas.text(20.0, top, Style::HEADING, "The longest");
    let rows = longest.len().div_ceil(2);
    for (i, bar) in longest.iter().enumerate() {
        let (x, y) = (20.0 + (i / rows) as f64 * 790.0, top + 18.0 + 17.0 * (i % rows) as f64);
        let [us, start] = [duration(bar.us()), format!("{:.3}", bar.start_us / 1e3)];
        let (rank, name, stream) = (i + 1, &bar.name, bar.stream);
        let text = format!("{rank}. {name}: {us}, stream {stream}, from {start} ms on");
        canvas.text(x, y, Style::PLAIN, &text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(name: &str, stream: usize, start_us: f64, end_us: f64) -> Bar {
        Bar { name: name.into(), stream, start_us, end_us, kind: Kind::Forward }
    }

    #[test]
    fn a_bar_that_crosses_a_row_is_drawn_in_both() {
        let layout = Layout { rows: 2, row_us: 100.0, streams: 1 };
        let pieces: Vec<_> = layout.pieces(90.0, 130.0).collect();
        assert_eq!(pieces.len(), 2);
        let scale = (WIDTH - LEFT - RIGHT) / 100.0;
        assert_eq!((pieces[0].0, pieces[1].0, pieces[1].1), (0, 1, LEFT));
        assert!((pieces[0].2 - 10.0 * scale).abs() < 1e-6);
        assert!((pieces[1].2 - 30.0 * scale).abs() < 1e-6);
        // The end of the last row is no row of its own.
        assert_eq!(layout.pieces(150.0, 200.0).count(), 1);
    }

    #[test]
    fn rows_and_ticks_are_round_numbers() {
        let bars: Vec<Bar> = (0..500)
            .map(|i| bar("a.b#1", i % 2, i as f64 * 132.0, i as f64 * 132.0 + 100.0))
            .collect();
        let layout = Layout::of(&bars);
        assert_eq!((layout.rows, layout.row_us, layout.streams), (9, 8_000.0, 2));
    }

    #[test]
    fn names_are_escaped_and_shortened_before_they_are_left_out() {
        let svg = draw("<a & b>", "", &[bar("x<y", 0, 0.0, 10.0)]);
        assert!(svg.contains("&lt;a &amp; b&gt;") && svg.contains("x&lt;y"), "{svg}");
        assert_eq!(label("fpn.p2.conv2d#7", Some(0), 200.0).as_deref(), Some("1  fpn.p2.conv2d#7"));
        assert_eq!(label("fpn.p2.conv2d#7", None, 70.0).as_deref(), Some("conv2d#7"));
        assert_eq!(label("fpn.p2.conv2d#7", Some(11), 20.0).as_deref(), Some("12"));
        assert_eq!(label("fpn.p2.conv2d#7", None, 20.0), None);
    }

    #[test]
    fn a_thousand_bars_are_under_a_megabyte() {
        let name = "backbone.layer4.2.conv3.conv2d_grad_weight#";
        let bars: Vec<Bar> = (0..1000)
            .map(|i| bar(&format!("{name}{i}"), i % 2, i as f64 * 90.0, i as f64 * 90.0 + 85.0))
            .collect();
        let svg = draw("title", "subtitle", &bars);
        assert!(svg.len() < 1 << 20, "{} bytes", svg.len());
        assert_eq!(svg.matches("<title>").count(), 1000);
    }
}

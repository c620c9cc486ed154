//! A batch on its way: a slot of the loader, an input buffer, the step, a row of the ring.

use engine::picture::{Area, Canvas, GROUND, INK, PALE, Style};

const FEED: &str = include_str!("../../../engine/src/train/feed.rs");
const RING: &str = include_str!("../../../engine/src/model/ring.rs");
const EXECUTOR: &str = include_str!("../../../graph/src/exec/device/mod.rs");
/// How many there are of each.
const COUNTS: [(&str, &str); 4] = [
    (FEED, "const SLOTS_AHEAD: usize = 3;"),
    (FEED, "const SLOTS_IN_FLIGHT: usize = 2;"),
    (RING, "const MIN_ROWS: usize = 8;"),
    (EXECUTOR, "buffers: [InputBuffer; 2],"),
];
const SLOTS: usize = 5;
const BUFFERS: usize = 2;
const ROWS: usize = 8;
/// Steps that are drawn.
const STEPS: usize = 6;

/// How long things take in the picture: it shows an order, not a measurement.
const DECODE: f64 = 0.8;
const COPY: f64 = 0.36;
const STEP: f64 = 1.0;
const READ: f64 = 0.22;

const LEFT: f64 = 120.0;
const TOP: f64 = 132.0;
const LANE: f64 = 30.0;
const UNIT: f64 = 92.0;
/// One colour for each batch, and a light one.
const BATCHES: [(&str, &str); 3] =
    [("#2f6db3", "#e4eefa"), ("#0f7b6c", "#dcf1ee"), ("#9a6700", "#f6ecd4")];

/// When what happens to a batch begins.
struct Times {
    decode: f64,
    copy: f64,
    step: f64,
    read: f64,
    /// Its slot is free again.
    free: f64,
}

fn times() -> Vec<Times> {
    let mut all: Vec<Times> = Vec::new();
    for batch in 0..STEPS {
        let back = |n: usize| batch.checked_sub(n).map(|earlier| &all[earlier]);
        let decode = f64::max(
            back(1).map_or(0.0, |before| before.decode + DECODE),
            back(SLOTS).map_or(0.0, |owner| owner.free),
        );
        // The host begins a step when the last but one is done and read.
        let begun = back(BUFFERS).map_or(0.0, |before| before.read + READ);
        let copy = begun.max(decode + DECODE);
        let step = f64::max(copy + COPY, back(1).map_or(0.0, |before| before.step + STEP));
        let read = step + STEP;
        all.push(Times { decode, copy, step, read, free: read + READ });
    }
    all
}

pub(crate) fn picture() -> String {
    for (source, line) in COUNTS {
        assert!(source.contains(line), "there is no more `{line}`: draw what there is");
    }
    let notes = [
        "Time runs to the right; lengths are not measured. A batch keeps its colour: decoded into \
         a pinned slot, copied to one of two",
        "input buffers while the step before runs, read by the step, told in a row of the ring. \
         The host waits for nothing else.",
    ];
    let names: Vec<String> = (0..SLOTS)
        .map(|slot| format!("slot {slot}"))
        .chain((0..BUFFERS).map(|buffer| format!("input buffer {buffer}")))
        .chain(["graph".into(), "host reads".into()])
        .collect();
    let height = TOP + names.len() as f64 * LANE + 3.0 * 12.0 + 12.0;
    let mut canvas = Canvas::new(height, "Slots, input buffers and the ring", &notes);
    for (title, lane) in [("host, pinned", 0), ("device", SLOTS), ("host", SLOTS + BUFFERS + 1)] {
        canvas.text(LEFT, y(lane) - 5.0, Style::SMALL, title);
    }
    for (lane, name) in names.iter().enumerate() {
        canvas.text(LEFT - 10.0, y(lane) + 17.0, Style::SMALL.end().fill(INK), name);
        canvas.rect(Area::new(LEFT, y(lane), 880.0 - LEFT, LANE - 5.0), GROUND);
    }
    for (batch, t) in times().iter().enumerate() {
        let (strong, light) = BATCHES[batch % BATCHES.len()];
        let mut bar = |lane: usize, from: f64, to: f64, is_strong: bool, text: &str| {
            let end = (LEFT + to * UNIT).min(880.0);
            let area = Area::new(LEFT + from * UNIT + 1.0, y(lane) + 1.0, 0.0, LANE - 7.0);
            let area = Area { width: (end - area.x - 1.0).max(0.0), ..area };
            if area.x >= 878.0 {
                return;
            }
            canvas.boxed(area, if is_strong { strong } else { light }, strong);
            let fill = if is_strong { "#ffffff" } else { PALE };
            let style = Style::SMALL.middle().fill(fill);
            if style.width(text) <= area.width {
                canvas.text(area.x + area.width / 2.0, y(lane) + 17.0, style, text);
            }
        };
        let (slot, buffer) = (batch % SLOTS, SLOTS + batch % BUFFERS);
        bar(slot, t.decode, t.decode + DECODE, true, &format!("decode {batch}"));
        bar(slot, t.decode + DECODE, t.free, false, &format!("batch {batch}"));
        bar(buffer, t.copy, t.copy + COPY, true, "copy");
        bar(buffer, t.copy + COPY, t.step + STEP, false, &format!("batch {batch}"));
        bar(SLOTS + BUFFERS, t.step, t.step + STEP, true, &format!("step {}", batch + 1));
        let row = format!("row {}", batch % ROWS);
        bar(SLOTS + BUFFERS + 1, t.read, t.read + 0.6, false, &row);
    }
    canvas.finish()
}

/// Upper edge of a lane; the groups of lanes stand apart.
fn y(lane: usize) -> f64 {
    let gaps = usize::from(lane >= SLOTS) + usize::from(lane > SLOTS + BUFFERS);
    TOP + lane as f64 * LANE + 16.0 * gaps as f64
}

#[test]
fn nothing_is_overwritten_before_it_was_read() {
    let times = times();
    for (batch, t) in times.iter().enumerate() {
        if let Some(later) = times.get(batch + SLOTS) {
            assert!(later.decode >= t.free, "slot of batch {batch}");
        }
        if let Some(later) = times.get(batch + BUFFERS) {
            assert!(later.copy >= t.step + STEP, "input buffer of batch {batch}");
        }
        if let Some(later) = times.get(batch + 1) {
            assert!(later.step >= t.step + STEP, "one step at a time");
        }
    }
}

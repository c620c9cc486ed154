//! SVG pictures: the canvas and axis ticks that all drawings use, and the pictures of a program and
//! of its memory plan.

mod arena;
mod canvas;
mod parts;
mod ticks;

pub use arena::plan_picture;
pub use canvas::{Area, Canvas, GROUND, INK, PALE, Style, WIDTH, escape};
pub use parts::program_picture;
pub use ticks::{labels, ticks, to_ticks};

use graph::program::Pass;

/// The colours of a pass: a strong one, and a light one as background of text.
fn colours(pass: Pass) -> (&'static str, &'static str) {
    match pass {
        Pass::Forward => ("#2f6db3", "#e4eefa"),
        Pass::Backward => ("#b4530a", "#fbeadc"),
        Pass::Update => ("#3b7d3b", "#e3f1e3"),
    }
}

/// Bytes in a human-readable unit.
fn spoken_bytes(bytes: usize) -> String {
    let bytes = bytes as f64;
    match bytes {
        b if b >= 0.95 * f64::from(1 << 30) => format!("{:.2} GiB", b / f64::from(1 << 30)),
        b if b >= 0.95 * f64::from(1 << 20) => format!("{:.0} MiB", b / f64::from(1 << 20)),
        b => format!("{:.0} KiB", b / 1024.0),
    }
}

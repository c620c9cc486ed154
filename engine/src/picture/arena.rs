//! Draws the memory plan: the arena over the launches of a step, with the streams below.

use graph::exec::device::Prepared;
use graph::plan::{Block, Owner};
use graph::report::top_part;
use graph::streams::COMMUNICATION;
use graph::{Node, Plan};

use super::canvas::{Area, Canvas, GROUND, INK, PALE, Style, WIDTH};
use super::{colours, spoken_bytes};
use graph::program::Pass;

const LEFT: f64 = 66.0;
const RIGHT: f64 = 20.0;
/// Upper edge and height of the arena.
const TOP: f64 = 128.0;
const ARENA: f64 = 380.0;
/// Height of the band below the arena with the names of the model parts.
const PARTS: f64 = 26.0;
const LANE: f64 = 24.0;
const LANE_GAP: f64 = 34.0;
const SCRATCH: &str = "#7a838c";

/// Draws a plan under a title. Each block of the arena is a rectangle of SVG class `block`:
/// horizontally the launches during which it is live, vertically its byte range.
pub fn plan_picture(title: &str, prepared: &Prepared) -> String {
    let Prepared { plan, schedule, .. } = prepared;
    let streams = schedule.num_streams() as f64;
    let lanes = TOP + ARENA + PARTS + 62.0;
    let height = lanes + streams * LANE + (streams - 1.0) * LANE_GAP + 44.0;
    let launches = schedule.launches().len();
    let (fullest, live) = peak_launch(plan, launches);
    let share = 100.0 * live as f64 / plan.arena_bytes().max(1) as f64;
    let summary = format!(
        "Arena of {}; {} without sharing memory. {share:.0} % of it is live at the peak.",
        spoken_bytes(plan.arena_bytes()),
        spoken_bytes(plan.unshared_bytes()),
    );
    let across = "Horizontal: launches of a step, in order. Vertical: bytes of the arena. \
                  A rectangle is a memory block, from its writer to its last reader.";
    let mut canvas = Canvas::new(height, title, &[&summary, across]);
    let [forward, backward, update] = [Pass::Forward, Pass::Backward, Pass::Update];
    let scratch = (SCRATCH, "scratch memory of a launch");
    canvas.legend(
        LEFT,
        108.0,
        &[
            (colours(forward).0, "written by the forward pass"),
            (colours(backward).0, "by the backward pass"),
            (colours(update).0, "by the update"),
            scratch,
        ],
    );
    let scale = Scale { launches: launches.max(1), bytes: plan.arena_bytes().max(1) };
    draw_arena(&mut canvas, prepared, &scale);
    let from_left = scale.x(fullest) < WIDTH / 2.0;
    draw_peak(&mut canvas, &scale, fullest, live, from_left);
    draw_parts(&mut canvas, prepared, &scale);
    draw_streams(&mut canvas, prepared, &scale, lanes);
    canvas.finish()
}

/// Converts launches and bytes to pixels.
struct Scale {
    launches: usize,
    bytes: usize,
}

impl Scale {
    fn x(&self, launch: usize) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * launch as f64 / self.launches as f64
    }

    /// The y coordinate of an arena offset; offset 0 is at the bottom.
    fn y(&self, byte: usize) -> f64 {
        TOP + ARENA * (1.0 - byte as f64 / self.bytes as f64)
    }

    fn area(&self, block: &Block) -> Area {
        let alive = block.alive(self.launches);
        let (left, top) = (self.x(alive.start), self.y(block.offset + block.bytes));
        Area::new(left, top, self.x(alive.end) - left, self.y(block.offset) - top)
    }
}

/// The launch with peak memory, and its number of live bytes.
fn peak_launch(plan: &Plan, launches: usize) -> (usize, usize) {
    let mut live = vec![0; launches.max(1)];
    for block in plan.blocks() {
        block.alive(launches).for_each(|launch| live[launch] += block.bytes);
    }
    let most = live.iter().copied().max().unwrap_or(0);
    (live.iter().position(|bytes| *bytes == most).unwrap_or(0), most)
}

fn node_of(prepared: &Prepared, launch: usize) -> &Node {
    &prepared.program.nodes()[prepared.schedule.launches()[launch].node.index()]
}

fn draw_arena(canvas: &mut Canvas, prepared: &Prepared, scale: &Scale) {
    canvas.rect(Area::new(LEFT, TOP, WIDTH - LEFT - RIGHT, ARENA), GROUND);
    let unit = tick_bytes(scale.bytes);
    for bytes in (0..=scale.bytes).step_by(unit) {
        let y = scale.y(bytes);
        let label = tick_label(bytes);
        canvas.text(LEFT - 8.0, y + 4.0, Style::SMALL.end(), &label);
        canvas.path(&format!("M{:.1} {y:.2}h4", LEFT - 4.0), PALE, 1.0);
    }
    for block in prepared.plan.blocks().iter().filter(|block| block.bytes > 0) {
        let writer = block.alive(scale.launches).start;
        let node = node_of(prepared, writer);
        let (fill, owner) = match block.owner {
            Owner::Tensor(id) => {
                let tensor = &prepared.program.tensors()[id.index()];
                (colours(node.pass).0, format!("{} {:?}", tensor.name, tensor.desc))
            }
            Owner::Workspace(_) => (SCRATCH, format!("scratch of {}", node.part)),
        };
        let area = scale.area(block);
        let hover = format!("{owner}: {}", spoken_bytes(block.bytes));
        // A light line separates neighbouring blocks, unless the block is too thin.
        let edge = if area.width > 2.0 && area.height > 2.0 { 0.6 } else { 0.0 };
        let edge = format!("class=\"block\" stroke=\"#ffffff\" stroke-width=\"{edge}\"");
        canvas.rect_with(area, fill, &edge, &hover);
        label(canvas, area, &node.part, &spoken_bytes(block.bytes));
    }
}

/// Labels a block with the model part that wrote it and with its size, if they fit.
fn label(canvas: &mut Canvas, area: Area, part: &str, bytes: &str) {
    let style = Style::SMALL.fill("#ffffff");
    let both = format!("{part}, {bytes}");
    let fits = |text: &str| style.width(text) + 12.0 <= area.width;
    if area.height >= 15.0
        && let Some(text) = [both.as_str(), part].into_iter().find(|text| fits(text))
    {
        canvas.text(area.x + 6.0, area.y + area.height / 2.0 + 4.0, style, text);
    }
}

/// A round number of bytes that gives four to eight ticks.
fn tick_bytes(bytes: usize) -> usize {
    let most = bytes / 8 + 1;
    let unit = [1 << 30, 1 << 20, 1 << 10].into_iter().find(|unit| most > unit / 2).unwrap_or(1);
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
        .map(|n| n * unit)
        .into_iter()
        .find(|n| *n >= most)
        .unwrap_or(bytes)
}

fn tick_label(bytes: usize) -> String {
    const GIB: usize = 1 << 30;
    match bytes {
        0 => "0".into(),
        b if b.is_multiple_of(GIB) => format!("{} GiB", b / GIB),
        b => spoken_bytes(b),
    }
}

/// Marks the launch at which memory use peaks.
fn draw_peak(canvas: &mut Canvas, scale: &Scale, launch: usize, live: usize, to_right: bool) {
    let x = (scale.x(launch) + scale.x(launch + 1)) / 2.0;
    let dashes = "stroke-dasharray=\"4 3\"";
    canvas.path_with(&format!("M{x:.2} {:.1}V{:.1}", TOP - 8.0, TOP + ARENA), INK, 1.2, dashes);
    let text = format!("peak: launch {launch}, {} alive", spoken_bytes(live));
    let (at, style) = if to_right {
        (x + 6.0, Style::SMALL.fill(INK))
    } else {
        (x - 6.0, Style::SMALL.fill(INK).end())
    };
    canvas.text(at, TOP - 4.0, style, &text);
}

/// Draws when each part of the model runs: one box per sequence of consecutive launches.
fn draw_parts(canvas: &mut Canvas, prepared: &Prepared, scale: &Scale) {
    let y = TOP + ARENA + 4.0;
    let key = |launch: usize| {
        let node = node_of(prepared, launch);
        (node.pass, top_part(&node.part))
    };
    let mut start = 0;
    for launch in 1..=scale.launches.min(prepared.schedule.launches().len()) {
        if launch < scale.launches && key(launch) == key(start) {
            continue;
        }
        let (pass, part) = key(start);
        let (left, right) = (scale.x(start), scale.x(launch));
        let area = Area::new(left, y, right - left, PARTS - 6.0);
        let (strong, light) = colours(pass);
        let edge = format!("stroke=\"{strong}\" stroke-width=\"0.6\"");
        canvas.rect_with(area, light, &edge, &format!("{part}, {pass}"));
        let style = Style::SMALL.middle().fill(INK);
        if style.width(part) <= area.width {
            canvas.text((left + right) / 2.0, y + 14.0, style, part);
        }
        start = launch;
    }
}

/// Draws the launches of each stream, and the waits between streams.
fn draw_streams(canvas: &mut Canvas, prepared: &Prepared, scale: &Scale, top: f64) {
    let launches = prepared.schedule.launches();
    let streams = prepared.schedule.num_streams();
    let waits: usize = launches.iter().map(|launch| launch.waits.len()).sum();
    let says = match streams {
        1 => "One stream: each launch follows the one before.".to_string(),
        _ => format!(
            "{waits} waits between streams (lines). Stream 0: longest path, 1: weight gradients, \
             2: small concurrent nodes{}.",
            if streams > COMMUNICATION { ", 3: all-reduce" } else { "" },
        ),
    };
    canvas.text(LEFT, top - 14.0, Style::PLAIN.fill(PALE), &says);
    let lane = |stream: usize| top + stream as f64 * (LANE + LANE_GAP);
    for stream in 0..streams {
        let area = Area::new(LEFT, lane(stream), WIDTH - LEFT - RIGHT, LANE);
        canvas.rect(area, GROUND);
        let name = format!("stream {stream}");
        canvas.text(LEFT - 8.0, lane(stream) + 16.0, Style::SMALL.end(), &name);
    }
    for (position, launch) in launches.iter().enumerate() {
        let node = node_of(prepared, position);
        let (left, right) = (scale.x(position), scale.x(position + 1));
        let area = Area::new(left, lane(launch.stream), right - left, LANE);
        let edge = "class=\"launch\" stroke=\"#ffffff\" stroke-width=\"0.3\"";
        let hover = prepared.program.node_name(launch.node);
        canvas.rect_with(area, colours(node.pass).0, edge, &hover);
    }
    for (position, launch) in launches.iter().enumerate() {
        for &wait in &launch.waits {
            let (from, to) = (launches[wait].stream, launch.stream);
            let (from_x, to_x) = (scale.x(wait + 1), scale.x(position));
            let (from_y, to_y) = match from < to {
                true => (lane(from) + LANE, lane(to)),
                false => (lane(from), lane(to) + LANE),
            };
            let colour =
                if from < to { colours(Pass::Backward).0 } else { colours(Pass::Update).0 };
            let path = format!("M{from_x:.2} {from_y:.1}L{to_x:.2} {to_y:.1}");
            canvas.path_with(&path, colour, 0.7, "class=\"wait\"");
        }
    }
    if streams > 1 {
        let says = match streams {
            2 => ["waits of stream 1 for stream 0", "waits of stream 0 for stream 1"],
            _ => ["waits for a stream above", "waits for a stream below"],
        };
        let entries = [(colours(Pass::Backward).0, says[0]), (colours(Pass::Update).0, says[1])];
        canvas.legend(LEFT, lane(streams - 1) + LANE + 26.0, &entries);
    }
}

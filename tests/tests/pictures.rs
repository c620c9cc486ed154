//! Pictures: those drawn by `onegraph inspect --svg`, and those in the documents: of programs,
//! which are generated here and compared with `docs/pictures`, and of kernels and slots, which must
//! match the sources.
//!
//! `ONEGRAPH_PICTURES=write` overwrites the pictures of programs instead of comparing.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use common::Place;
use engine::picture::WIDTH;
use roxmltree::{Document, Node};

/// The folder of the documents' pictures.
const FOLDER: &str = "docs/pictures";
/// Pictures of programs there, and the arguments of `onegraph inspect` for each.
const PROGRAMS: [(&str, &str); 2] = [
    ("plan.svg", "plan torchvision_r50 --device cuda --set train.batch_size=12"),
    ("program.svg", "program torchvision_r50 --device cuda --set train.batch_size=12"),
];
/// Pictures whose content is checked, with the source lines that they show.
const CHECKED: [(&str, &str, &str); 15] = [
    ("slots.svg", FEED, "const SLOTS_AHEAD: usize = 3;"),
    ("slots.svg", FEED, "const SLOTS_IN_FLIGHT: usize = 2;"),
    ("slots.svg", RING, "const MIN_ROWS: usize = 8;"),
    ("slots.svg", EXECUTOR, "buffers: [InputBuffer; 2],"),
    ("stages.svg", TILE, "Tile<128, 128, 4>"),
    ("stages.svg", TILE, "Tile<64, 64, 4>"),
    ("stages.svg", LOOP, "int before = LAST, now = 0;"),
    ("stages.svg", LOOP, "const int next = now == LAST ? 0 : now + STAGE_BYTES;"),
    ("stages.svg", LOOP, "const bool live = k_block + T::STAGES - 1 < k_blocks;"),
    ("stages.svg", LOOP, "copy_async_wait<T::STAGES - 2>();"),
    ("stages.svg", LOOP, "before = now, now = next;"),
    ("swizzle.svg", TILE, "constexpr int CHUNK = 8;"),
    ("swizzle.svg", TILE, "constexpr int DEPTH = 32;"),
    ("swizzle.svg", TILE, "return line * DEPTH + ((chunk ^ (line >> 1)) & 3) * CHUNK;"),
    ("swizzle.svg", TILE, "return line * EXTENT + (chunk ^ (line & 7)) * CHUNK;"),
];
const FEED: &str = "engine/src/train/feed.rs";
const RING: &str = "engine/src/model/ring.rs";
const EXECUTOR: &str = "graph/src/exec/device/mod.rs";
const TILE: &str = "kernels/src/cuda/gemm/tile.cuh";
const LOOP: &str = "kernels/src/cuda/gemm/multiply.cuh";
/// Smallest legible font size in a browser, pixels.
const LEGIBLE: f64 = 11.0;
/// The rounding error of coordinates with two decimals, pixels.
const ROUNDING: f64 = 0.011;

/// Position, size and class of a rectangle.
#[derive(Clone)]
struct Rectangle {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
    class: String,
}

fn number(node: &Node<'_, '_>, name: &str) -> f64 {
    let text = node.attribute(name).unwrap_or("0");
    text.parse().unwrap_or_else(|_| panic!("{name}=\"{text}\" is no number"))
}

fn rectangle(node: &Node<'_, '_>) -> Rectangle {
    Rectangle {
        x: number(node, "x"),
        y: number(node, "y"),
        width: number(node, "width"),
        height: number(node, "height"),
        class: node.attribute("class").unwrap_or_default().into(),
    }
}

/// Well-formed, everything within the canvas, no text that is too small.
fn check(name: &str, svg: &str) -> Vec<Rectangle> {
    let document = Document::parse(svg).unwrap_or_else(|e| panic!("{name}: {e}"));
    let height = number(&document.root_element(), "height");
    let all = document.descendants().filter(|node| node.has_tag_name("rect"));
    let rectangles: Vec<_> = all.map(|node| rectangle(&node)).collect();
    for r in &rectangles {
        let (right, bottom) = (r.x + r.width, r.y + r.height);
        let inside = r.x >= 0.0 && r.y >= 0.0 && right <= WIDTH + 0.01 && bottom <= height + 0.01;
        assert!(inside, "{name}: a rectangle to {right}, {bottom} of {WIDTH}, {height}");
        assert!(r.width >= 0.0 && r.height >= 0.0, "{name}: a rectangle turned inside out");
    }
    for text in document.descendants().filter(|node| node.has_tag_name("text")) {
        let (x, y, size) = (number(&text, "x"), number(&text, "y"), number(&text, "font-size"));
        let words = text.text().unwrap_or_default();
        assert!(size >= LEGIBLE, "{name}: `{words}` in letters of {size} px");
        let width = 0.5 * size * words.chars().count() as f64;
        let (left, right) = match text.attribute("text-anchor") {
            Some("middle") => (x - width / 2.0, x + width / 2.0),
            Some("end") => (x - width, x),
            _ => (x, x + width),
        };
        let inside = left >= 0.0 && right <= WIDTH && y >= size && y <= height;
        assert!(inside, "{name}: `{words}` leaves the picture");
    }
    rectangles
}

fn overlap(a: &Rectangle, b: &Rectangle) -> bool {
    let apart = |a: f64, a_len: f64, b: f64| a + a_len <= b + ROUNDING;
    !(apart(a.x, a.width, b.x)
        || apart(b.x, b.width, a.x)
        || apart(a.y, a.height, b.y)
        || apart(b.y, b.height, a.y))
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A picture in the documents: its framed boxes by their labels, in drawing order.
fn boxes(name: &str) -> Vec<(String, Rectangle)> {
    let svg = fs::read_to_string(checkout().join(FOLDER).join(name)).expect("a picture");
    check(name, &svg);
    let document = Document::parse(&svg).expect("checked");
    let elements: Vec<_> = document.root_element().children().filter(Node::is_element).collect();
    let framed = elements.windows(2).filter(|pair| pair[0].attribute("stroke").is_some());
    let labelled = framed.map(|pair| {
        let label = pair[1].text().unwrap_or_default();
        (label.to_string(), rectangle(&pair[0]))
    });
    // Without the frame around the picture.
    labelled.skip(1).collect()
}

/// No two boxes of a picture overlap.
fn are_apart(boxes: &[(String, Rectangle)]) {
    for (i, (label, a)) in boxes.iter().enumerate() {
        for (other, b) in &boxes[..i] {
            assert!(!overlap(a, b), "{label} at {}, {} and {other} at {}, {}", a.x, a.y, b.x, b.y);
        }
    }
}

#[test]
fn program_pictures_match_code() {
    let folder = checkout().join(FOLDER);
    let place = Place::new();
    for (name, arguments) in PROGRAMS {
        place.good(&format!("inspect {arguments} --svg {name}"));
        let svg = place.text(name);
        check(name, &svg);
        if std::env::var("ONEGRAPH_PICTURES").is_ok_and(|value| value == "write") {
            fs::write(folder.join(name), &svg).expect("a picture");
        }
        let stored = fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(
            stored == svg,
            "{FOLDER}/{name} is not what the code draws; write it anew with \
             ONEGRAPH_PICTURES=write cargo test --release -p tests --test pictures"
        );
    }
    let known = || PROGRAMS.iter().map(|p| p.0).chain(CHECKED.iter().map(|p| p.0));
    for file in fs::read_dir(&folder).expect("the folder") {
        let name = file.expect("an entry").file_name();
        assert!(known().any(|known| *known == name), "nothing checks {name:?}");
    }
}

#[test]
fn pictures_match_kernel_sources() {
    for (picture, source, line) in CHECKED {
        let text = fs::read_to_string(checkout().join(source)).expect("a source");
        assert!(text.contains(line), "{source} has no more `{line}`: {picture} shows it");
    }
}

/// A batch keeps its slot until the host has read its row, an input buffer until its step ends, and
/// one step runs at a time: nothing is overwritten before it is read.
#[test]
fn pictured_slots_have_one_batch_at_a_time() {
    let boxes = boxes("slots.svg");
    are_apart(&boxes);
    let find = |label: &str| boxes.iter().find(|(of, _)| of == label).map(|(_, found)| found);
    for batch in 0..4 {
        let slot = find(&format!("batch {batch}")).expect("a slot");
        let row = find(&format!("row {batch}")).expect("a row");
        let step = find(&format!("step {}", batch + 1)).expect("a step");
        assert!(slot.x + slot.width > row.x && step.x + step.width < row.x, "batch {batch}");
    }
}

/// A k-block is multiplied in order, its copy has started three iterations before, and no stage has
/// two owners.
#[test]
fn pictured_pipeline_stage_has_one_owner() {
    let boxes = boxes("stages.svg");
    are_apart(&boxes);
    let place = |label: &str| {
        let (_, found) = boxes.iter().find(|(of, _)| of == label).expect("a k-block");
        [(found.x - 80.0) / 72.0, (found.y - 150.0) / 40.0].map(|cell| cell.floor() as usize)
    };
    for k_block in 0..8usize {
        assert_eq!(place(&format!("k-block {k_block}")), [k_block + 1, k_block % 4]);
        let copied = (k_block + 2).saturating_sub(4);
        assert_eq!(place(&format!("copy {k_block}")), [copied, k_block % 4]);
    }
}

/// Each chunk `line:chunk` of the four grids is where the kernels put it: eight bank groups per
/// row. With swizzling, a chunk of eight rows comes from eight groups.
#[test]
fn pictured_chunks_match_kernel_swizzle() {
    let svg = fs::read_to_string(checkout().join(FOLDER).join("swizzle.svg")).expect("a picture");
    check("swizzle.svg", &svg);
    let document = Document::parse(&svg).expect("checked");
    let cell = |operand: bool, crossed: bool, line: usize, chunk: usize| match (operand, crossed) {
        (true, false) => line * 4 + chunk,
        (true, true) => line * 4 + ((chunk ^ (line >> 1)) & 3),
        (false, false) => line * 8 + chunk,
        (false, true) => line * 8 + (chunk ^ (line & 7)),
    };
    let mut found = 0;
    for text in document.descendants().filter(|node| node.has_tag_name("text")) {
        let Some((line, chunk)) = text.text().and_then(|words| words.split_once(':')) else {
            continue;
        };
        let (Ok(line), Ok(chunk)) = (line.parse(), chunk.parse()) else { continue };
        let (x, y) = (number(&text, "x"), number(&text, "y"));
        let (crossed, is_row) = (x > 472.0, y < 314.0);
        let group = (x - if crossed { 472.0 } else { 22.0 }) / 49.0;
        let row = (y - if is_row { 145.0 } else { 341.0 }) / 22.0;
        let at = row as usize * 8 + group as usize;
        assert_eq!(at, cell(is_row, crossed, line, chunk), "{line}:{chunk} at {x}, {y}");
        found += 1;
    }
    assert_eq!(found, 2 * 8 * (4 + 8));
    for (is_row, chunks) in [(true, 4), (false, 8)] {
        for chunk in 0..chunks {
            let groups: BTreeSet<_> =
                (0..8).map(|line| cell(is_row, true, line, chunk) % 8).collect();
            assert_eq!(groups.len(), 8, "chunk {chunk}");
        }
    }
}

#[test]
fn live_blocks_are_drawn_without_overlap() {
    let place = Place::new();
    for (pass, device) in [("", "cpu"), ("", "cuda"), ("--detection", "cuda")] {
        let arguments = format!("inspect plan micro {pass} --height 64 --width 96");
        place.good(&format!("{arguments} --device {device} --svg first.svg"));
        place.good(&format!("{arguments} --device {device} --svg second.svg"));
        let svg = place.text("first.svg");
        assert_eq!(svg, place.text("second.svg"), "the same plan, drawn differently");
        let rectangles = check("first.svg", &svg);
        let blocks = rectangles.iter().filter(|r| r.class == "block");
        let blocks: Vec<_> = blocks.map(|r| (r.class.clone(), r.clone())).collect();
        assert!(blocks.len() > 20, "{} blocks", blocks.len());
        are_apart(&blocks);
        let text = place.good(&format!("{arguments} --device {device}"));
        let nodes = text.lines().next().and_then(|line| line.split(": ").nth(1));
        let nodes = nodes.and_then(|nodes| nodes.split(' ').next()).expect("a count of nodes");
        let launches = rectangles.iter().filter(|r| r.class == "launch").count();
        assert_eq!(launches.to_string(), nodes, "a launch for each node");
    }
}

#[test]
fn every_program_has_a_picture_by_parts() {
    let place = Place::new();
    for preset in ["micro", "quickstart", "torchvision_r101", "faster_r50"] {
        for pass in ["", "--detection"] {
            place.good(&format!("inspect program {preset} {pass} --svg program.svg"));
            let rectangles = check(preset, &place.text("program.svg"));
            assert!(rectangles.len() > 10, "{preset}: {} rectangles", rectangles.len());
        }
    }
}

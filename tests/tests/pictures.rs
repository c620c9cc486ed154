//! Pictures: those that `onegraph inspect --svg` draws, and those of the documents, which are drawn
//! here and compared with `docs/pictures`.
//!
//! `ONEGRAPH_PICTURES=write` overwrites `docs/pictures` instead of comparing.

mod common;
mod pictures {
    pub(crate) mod slots;
    pub(crate) mod stages;
    pub(crate) mod swizzle;
}

use std::fs;
use std::path::Path;

use common::{BAD_CONFIG, Place};
use engine::picture::WIDTH;
use pictures::{slots, stages, swizzle};
use roxmltree::{Document, Node};

/// The folder of pictures that documents show.
const FOLDER: &str = "docs/pictures";
/// Pictures of programs there, and what `onegraph inspect` is asked for each.
const PROGRAMS: [(&str, &str); 2] = [
    ("plan.svg", "plan torchvision_r50 --device cuda --set train.batch_size=12"),
    ("program.svg", "program torchvision_r50 --device cuda --set train.batch_size=12"),
];
/// Smallest letters that a person reads in a browser, pixels.
const LEGIBLE: f64 = 11.0;
/// The error of an edge that is written with two decimals, pixels.
const ROUNDING: f64 = 0.011;

/// Position, size and class of a rectangle.
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

fn rectangles(document: &Document<'_>) -> Vec<Rectangle> {
    let all = document.descendants().filter(|node| node.has_tag_name("rect"));
    all.map(|node| Rectangle {
        x: number(&node, "x"),
        y: number(&node, "y"),
        width: number(&node, "width"),
        height: number(&node, "height"),
        class: node.attribute("class").unwrap_or_default().into(),
    })
    .collect()
}

/// Well-formed, everything within the canvas, no letters that are too small.
fn check(name: &str, svg: &str) -> Vec<Rectangle> {
    let document = Document::parse(svg).unwrap_or_else(|e| panic!("{name}: {e}"));
    let height = number(&document.root_element(), "height");
    let rectangles = rectangles(&document);
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

#[test]
fn pictures_of_the_documents_are_those_that_the_code_draws() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(FOLDER);
    let place = Place::new();
    let mut drawn = vec![
        ("swizzle.svg", swizzle::picture()),
        ("stages.svg", stages::picture()),
        ("slots.svg", slots::picture()),
    ];
    for (name, arguments) in PROGRAMS {
        place.good(&format!("inspect {arguments} --svg {name}"));
        drawn.push((name, place.text(name)));
    }
    let write = std::env::var("ONEGRAPH_PICTURES").is_ok_and(|value| value == "write");
    for (name, svg) in &drawn {
        check(name, svg);
        let path = folder.join(name);
        if write {
            fs::write(&path, svg).expect("a picture");
        }
        let stored = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == *svg,
            "{FOLDER}/{name} is not what the code draws; write it anew with \
             ONEGRAPH_PICTURES=write cargo test --release -p tests --test pictures"
        );
    }
    for file in fs::read_dir(&folder).expect("the folder") {
        let name = file.expect("an entry").file_name();
        assert!(drawn.iter().any(|(known, _)| name == *known), "nothing draws {name:?}");
    }
}

#[test]
fn blocks_that_are_alive_together_are_drawn_apart() {
    let place = Place::new();
    for (pass, device) in [("", "cpu"), ("", "cuda"), ("--detection", "cuda")] {
        let arguments = format!("inspect plan micro {pass} --height 64 --width 96");
        place.good(&format!("{arguments} --device {device} --svg first.svg"));
        place.good(&format!("{arguments} --device {device} --svg second.svg"));
        let svg = place.text("first.svg");
        assert_eq!(svg, place.text("second.svg"), "the same plan, drawn differently");
        let rectangles = check("first.svg", &svg);
        let blocks: Vec<_> = rectangles.iter().filter(|r| r.class == "block").collect();
        assert!(blocks.len() > 20, "{} blocks", blocks.len());
        for (i, a) in blocks.iter().enumerate() {
            for b in &blocks[..i] {
                assert!(!overlap(a, b), "at {}, {} and {}, {}", a.x, a.y, b.x, b.y);
            }
        }
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

#[test]
fn a_picture_that_cannot_be_written_is_one_sentence() {
    let place = Place::new();
    place.write("file", "");
    place.bad("inspect plan micro --svg file/plan.svg", 1, &["file", "exists"]);
    place.bad("inspect plan micr --svg plan.svg", BAD_CONFIG, &["micr"]);
    assert_eq!(place.names("."), ["file"], "nothing was written");
}

#[test]
fn rectangles_that_overlap_are_found() {
    let at = |x, y| Rectangle { x, y, width: 2.0, height: 2.0, class: String::new() };
    assert!(overlap(&at(0.0, 0.0), &at(1.0, 1.0)));
    assert!(!overlap(&at(0.0, 0.0), &at(2.0, 1.0)));
    assert!(!overlap(&at(0.0, 0.0), &at(1.0, 2.0)));
}

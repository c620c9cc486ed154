//! The ring of stages in shared memory that `kernels/src/cuda/gemm/multiply.cuh` fills with
//! cp.async while it multiplies.

use engine::picture::{Area, Canvas, GROUND, PALE, Style};

const TILE: &str = include_str!("../../../kernels/src/cuda/gemm/tile.cuh");
const LOOP: &str = include_str!("../../../kernels/src/cuda/gemm/multiply.cuh");
/// The loop that [`uses`] walks through.
const LINES: [&str; 5] = [
    "int before = LAST, now = 0;",
    "const int next = now == LAST ? 0 : now + STAGE_BYTES;",
    "const bool live = k_block + T::STAGES - 1 < k_blocks;",
    "copy_async_wait<T::STAGES - 2>();",
    "before = now, now = next;",
];
const STAGES: usize = 4;
const K_BLOCKS: usize = 8;

const LEFT: f64 = 80.0;
const TOP: f64 = 150.0;
const COLUMN: f64 = 72.0;
const ROW: f64 = 40.0;
const COPIED: &str = "#e4eefa";
const MULTIPLIED: &str = "#2f6db3";

/// The way of a k-block: its stage, the column in which its group of copies ends, and the column in
/// which it is multiplied. Column 0 is before the loop.
#[derive(Debug, PartialEq)]
struct Use {
    stage: usize,
    copied: usize,
    multiplied: usize,
}

fn uses() -> Vec<Use> {
    let mut uses: Vec<Use> = Vec::new();
    let mut copy = |stage, copied| uses.push(Use { stage, copied, multiplied: 0 });
    (0..STAGES - 1).for_each(|stage| copy(stage, 0));
    let (mut before, mut now) = (STAGES - 1, 0);
    let mut multiplied = Vec::new();
    for k_block in 0..K_BLOCKS {
        if k_block + STAGES - 1 < K_BLOCKS {
            copy(before, k_block + 1);
        }
        multiplied.push((now, k_block + 1));
        (before, now) = (now, (now + 1) % STAGES);
    }
    for (k_block, (stage, column)) in uses.iter_mut().zip(multiplied) {
        assert_eq!(k_block.stage, stage, "what is multiplied is what was copied there");
        k_block.multiplied = column;
    }
    uses
}

pub(crate) fn picture() -> String {
    let ring = ["Tile<128, 128, 4>", "Tile<64, 64, 4>"];
    assert!(ring.iter().all(|tile| TILE.contains(tile)), "tile.cuh has other tiles");
    for line in LINES {
        assert!(LOOP.contains(line), "multiply.cuh has no more `{line}`: draw what it does");
    }
    let notes = [
        "A k-block is copied from global to shared memory three iterations before it is \
         multiplied, the first half as soon as its",
        "stage is read. Each iteration waits for the next k-block alone: all groups of copies \
         but the last two have landed.",
    ];
    let mut canvas =
        Canvas::new(TOP + STAGES as f64 * ROW + 26.0, "Four stages of cp.async", &notes);
    let legend = [(COPIED, "the copy is under way, or has landed"), (MULTIPLIED, "multiplied")];
    canvas.legend(LEFT, 100.0, &legend);
    let columns = K_BLOCKS + 1;
    for column in 0..columns {
        let name = match column {
            0 => "before".to_string(),
            column => format!("iteration {}", column - 1),
        };
        let middle = LEFT + (column as f64 + 0.5) * COLUMN;
        canvas.text(middle, TOP - 12.0, Style::SMALL.middle(), &name);
    }
    for stage in 0..STAGES {
        let y = TOP + stage as f64 * ROW;
        canvas.text(LEFT - 10.0, y + 21.0, Style::SMALL.end(), &format!("stage {stage}"));
        canvas.rect(Area::new(LEFT, y, columns as f64 * COLUMN, ROW - 6.0), GROUND);
    }
    for (k_block, Use { stage, copied, multiplied }) in uses().into_iter().enumerate() {
        let y = TOP + stage as f64 * ROW;
        let x = |column: usize| LEFT + column as f64 * COLUMN;
        let width = (multiplied - copied) as f64 * COLUMN;
        let copy = Area::new(x(copied) + 2.0, y + 2.0, width - 2.0, ROW - 10.0);
        canvas.boxed(copy, COPIED, MULTIPLIED);
        let style = Style::SMALL.middle().fill(PALE);
        canvas.text(x(copied) + width / 2.0, y + 21.0, style, &format!("copy {k_block}"));
        let product = Area::new(x(multiplied), y + 2.0, COLUMN - 2.0, ROW - 10.0);
        canvas.boxed(product, MULTIPLIED, MULTIPLIED);
        let style = Style::SMALL.middle().fill("#ffffff");
        canvas.text(x(multiplied) + COLUMN / 2.0, y + 21.0, style, &format!("k-block {k_block}"));
    }
    canvas.finish()
}

#[test]
fn a_copy_has_three_iterations_and_no_stage_two_owners() {
    let uses = uses();
    assert_eq!(uses.len(), K_BLOCKS);
    for (k_block, own) in uses.iter().enumerate() {
        assert_eq!(own.multiplied, k_block + 1);
        assert_eq!(own.copied, (k_block + 2).saturating_sub(STAGES));
        let others = uses.iter().filter(|other| other.stage == own.stage && *other != own);
        for other in others {
            let apart = other.multiplied < own.copied || own.multiplied < other.copied;
            assert!(apart, "{own:?} and {other:?}");
        }
    }
}

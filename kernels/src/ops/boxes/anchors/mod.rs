//! Anchors of every level of a feature pyramid.
//!
//! Matches the anchors of torchvision (`AnchorGenerator.grid_anchors`) and maskrcnn-benchmark; the
//! anchors of a cell come from [`crate::boxes::cell_anchors`], `cell_anchors_detectron` or
//! `cell_anchors_exact`.
//!
//! Edge cases: no level, or levels without cells, give an empty tensor.

mod cases;

use device::{Arg, BLOCK, Launch, LaunchArgs, StructArg};

use crate::boxes::{AnchorLevel, Box4, as_boxes_mut, grid_anchors};
use crate::contract::{Dims, Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::op;

pub use cases::cases;

op! {
    /// Writes the anchors of `levels`.
    pub struct Anchors = "anchors" {
        /// Finest level first.
        pub levels: Vec<AnchorLevel>,
    }
    out {
        /// Ordered by (level, y, x, anchor of the cell).
        anchors: Box "[A, 4]",
    }
}

impl Kernel for Anchors {
    const FLOPS: Flops = Flops::Output(1);

    fn sizes(&self, dims: &mut Dims) {
        dims.bind("A", self.levels.iter().map(AnchorLevel::len).sum());
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let out = args.outputs[0];
        let mut rest = parts(self);
        let mut launches = Vec::new();
        while !rest.is_empty() {
            let mut cells = 0;
            let fitting = rest.iter().take(MAX_PARTS).take_while(|part| {
                cells += part.cells.len();
                cells <= MAX_CELLS
            });
            let later = rest.split_off(fitting.count());
            let most = rest.iter().map(|p| p.level.height * p.level.width * p.cells.len()).max();
            let blocks = most.unwrap_or(0).div_ceil(BLOCK as usize);
            launches.push(
                Launch::new("anchors_f32", [blocks, rest.len(), 1])
                    .arg(out.write())
                    .arg(parts_arg(&rest)),
            );
            rest = later;
        }
        launches
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let mut rest = as_boxes_mut(args.outputs[0].f32());
        for level in &self.levels {
            let (own, later) = rest.split_at_mut(level.len());
            grid_anchors(level, own);
            rest = later;
        }
    }
}

/// Maximum cell anchors, and maximum [`Part`]s, per launch, as in `anchors.cu`.
const MAX_CELLS: usize = 64;
const MAX_PARTS: usize = 8;

/// A subset of a level's cell anchors, for all positions of the level.
struct Part<'a> {
    level: &'a AnchorLevel,
    /// Output row of the subset's first anchor at the first position.
    first: usize,
    cells: &'a [Box4],
}

fn parts(op: &Anchors) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut level_first = 0;
    for level in op.levels.iter() {
        let mut first = level_first;
        for cells in level.cells.chunks(MAX_CELLS) {
            parts.push(Part { level, first, cells });
            first += cells.len();
        }
        level_first += level.len();
    }
    parts
}

/// The kernel argument `Parts` of `anchors.cu`.
fn parts_arg(parts: &[Part<'_>]) -> Arg {
    let mut cells = [[0f32; 4]; MAX_CELLS];
    let mut cell = 0;
    for part in parts {
        cells[cell..cell + part.cells.len()].copy_from_slice(part.cells);
        cell += part.cells.len();
    }
    let mut arg = StructArg::new().field(cells);
    cell = 0;
    for i in 0..MAX_PARTS {
        let Some(part) = parts.get(i) else {
            arg = arg.field([0u64; 5]);
            continue;
        };
        let level = part.level;
        let positions = level.height * level.width;
        let ints = [level.width, positions, level.cells.len(), cell, part.cells.len()];
        arg = arg
            .field(part.first as u64)
            .field(ints.map(|v| v as i32))
            .field([level.stride_h, level.stride_w])
            .field(0i32);
        cell += part.cells.len();
    }
    arg.arg()
}

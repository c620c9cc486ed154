//! The anchors with the highest logits of each level: pre-NMS top-k.
//!
//! Matches torchvision's `_get_top_n_idx`. Anchors are ranked by (logit descending, index
//! ascending), so the order is unique; NaN ranks as minus infinity.
//!
//! Cost: a selection over all logits, then a sort of the k selected. Memory-bound.

mod cases;

use device::{Access, Arg, BLOCK, Buffer, Launch, LaunchArgs, StructArg, Workspace};
use rayon::prelude::*;

use crate::boxes::top_k;
use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::{Cost, DType, OpError, TensorDesc, op};

pub use cases::cases;

op! {
    /// Up to `k` anchors per level: M is the sum over the levels of min(k, h * w * A).
    pub struct TopKPerLevel = "top_k_per_level" {
        /// Maximum number of anchors kept per level.
        pub k: usize,
    }
    in TopKPerLevelInputs {
    }
    each {
        /// Logits of a level.
        logits: float "[N, h, w, A]",
    }
    out {
        /// Index among the anchors of all levels, best first within a level.
        idx: Index "[N, M]",
        /// Level of each column.
        levels: Index "[M]",
    }
}

impl Kernel for TopKPerLevel {
    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        dims.bind("M", inputs.iter().map(|logits| self.level_len(logits)).sum());
        Ok(())
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, inputs.iter().map(|d| d.len() as u64).sum())
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        // Groups of levels run one after the other, so they share the workspace.
        let inputs: Vec<&TensorDesc> = inputs.iter().collect();
        inputs.chunks(MAX_LEVELS).map(|levels| Plan::new(self, levels).bytes).max().unwrap_or(0)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let dtype = args.inputs[0].dtype();
        assert!(args.inputs.iter().all(|l| l.dtype() == dtype), "logits of one element type");
        let mut launches = Vec::new();
        let (mut first, mut slot) = (0, 0);
        for (chunk, logits) in args.inputs.chunks(MAX_LEVELS).enumerate() {
            let descs: Vec<&TensorDesc> = logits.iter().map(|l| l.desc).collect();
            let plan = Plan::new(self, &descs);
            let levels =
                levels_arg(&plan, logits, chunk * MAX_LEVELS, (first, slot), args.outputs[0]);
            launches.extend(group(&plan, args, &levels, dtype == DType::F16));
            first += plan.levels.iter().map(|l| l.len).sum::<usize>();
            slot += plan.levels.iter().map(|l| l.kept).sum::<usize>();
        }
        launches
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = &args.inputs;
        let mut levels = Vec::new();
        // Each level as (logits, anchors per image, first anchor, anchors kept).
        let mut maps = Vec::new();
        let mut first = 0;
        for (l, logits) in inputs.iter().enumerate() {
            let len: usize = logits.shape()[1..].iter().product();
            let kept = self.level_len(logits.desc);
            levels.extend(std::iter::repeat_n(l as i32, kept));
            maps.push((logits.f32(), len, first, kept));
            first += len;
        }
        args.outputs[1].i32().copy_from_slice(&levels);

        let mut rest = args.outputs[0].i32();
        let mut tasks = Vec::new();
        for n in 0..inputs[0].shape()[0] {
            for &(logits, len, first, kept) in &maps {
                let (own, later) = rest.split_at_mut(kept);
                tasks.push((&logits[n * len..][..len], first, own));
                rest = later;
            }
        }
        tasks.into_par_iter().for_each(|(logits, first, own)| {
            let kept = own.len();
            for (idx, i) in own.iter_mut().zip(top_k(logits, kept)) {
                *idx = (first + i) as i32;
            }
        });
    }
}

impl TopKPerLevel {
    /// Number of anchors kept of a level with these logits.
    fn level_len(&self, logits: &TensorDesc) -> usize {
        self.k.min(logits.shape[1..].iter().product())
    }
}

/// Maximum levels per launch, and sizes of the selection, as in `top_k_per_level.cu`.
const MAX_LEVELS: usize = 8;
const SORT_THREADS: u32 = 1024;
const SORT_CAPACITY: usize = 4096;
const SPAN: usize = 8192;
/// Bins of the histograms of one image and level.
const BINS: usize = 3 * 2048;

/// Properties of a level that the launches need.
struct Level {
    len: usize,
    kept: usize,
    /// True if the level is too large to be sorted without a selection.
    selects: bool,
}

/// Scratch memory for the launches of one group of levels, with offsets into the workspace.
struct Plan {
    levels: Vec<Level>,
    num_images: usize,
    /// Number of blocks of [`SPAN`] logits in the largest level that needs a selection.
    blocks: usize,
    /// Number of keys per image and level.
    capacity: usize,
    counts: usize,
    keys: usize,
    bytes: usize,
}

impl Plan {
    fn new(op: &TopKPerLevel, logits: &[&TensorDesc]) -> Self {
        let level = |desc: &&TensorDesc| {
            let (len, kept) = (desc.shape[1..].iter().product(), op.level_len(desc));
            Level { len, kept, selects: len > SORT_CAPACITY && kept < len }
        };
        let levels: Vec<Level> = logits.iter().map(level).collect();
        let num_images = logits[0].shape[0];
        let selecting = levels.iter().filter(|l| l.selects);
        let blocks = selecting.map(|l| l.len.div_ceil(SPAN)).max().unwrap_or(0);
        let keys_of = |l: &Level| match l {
            Level { selects: true, kept, .. } => *kept,
            Level { len, .. } if *len > SORT_CAPACITY => *len,
            _ => 0,
        };
        let capacity = levels.iter().map(keys_of).max().unwrap_or(0);
        let problems = num_images * levels.len();
        let histograms = if blocks > 0 { 4 * problems * BINS } else { 0 };
        let counts = histograms.next_multiple_of(256);
        let keys = (counts + 8 * problems * blocks).next_multiple_of(256);
        let bytes = keys + 8 * problems * capacity;
        Self { levels, num_images, blocks, capacity, counts, keys, bytes }
    }

    fn problems(&self) -> usize {
        self.num_images * self.levels.len()
    }

    fn num_bins(&self) -> usize {
        if self.blocks > 0 { self.problems() * BINS } else { 0 }
    }

    /// The kernel argument `Scratch`; arrays that the kernel does not access are null.
    fn scratch(&self, workspace: Workspace, accesses: [Option<Access>; 3]) -> Arg {
        let pieces = [
            (0, 4 * self.num_bins()),
            (self.counts, 8 * self.problems() * self.blocks),
            (self.keys, 8 * self.problems() * self.capacity),
        ];
        let pointers = pieces.iter().zip(accesses).map(|(&(offset, bytes), access)| match access {
            Some(access) => workspace.piece(offset, bytes, access),
            None => Arg::Null,
        });
        StructArg::new().pointers(pointers, 3).field(self.capacity as u64).arg()
    }
}

/// Launches of one group of levels.
fn group(plan: &Plan, args: &LaunchArgs<'_>, levels: &Arg, half: bool) -> Vec<Launch> {
    use Access::{Read, Update, Write};
    let scratch = |accesses| plan.scratch(args.workspace, accesses);
    let (idx, level_of) = (args.outputs[0], args.outputs[1]);
    let name = |f16, f32| if half { f16 } else { f32 };
    let spans = [plan.blocks, plan.levels.len(), plan.num_images];
    let select =
        |kernel, accesses| Launch::new(kernel, spans).arg(levels.clone()).arg(scratch(accesses));
    let begin = name("top_k_begin_f16", "top_k_begin_f32");
    let blocks = plan.num_bins().max(level_of.len()).div_ceil(BLOCK as usize);
    let mut launches = vec![
        Launch::new(begin, [blocks, 1, 1])
            .arg(levels.clone())
            .arg(scratch([Some(Write), None, None]))
            .arg(level_of.write())
            .len(plan.num_bins()),
    ];
    // Two radix digits distinguish all fp16 values.
    let passes = if half { 2 } else { 3 };
    let histogram = name("top_k_histogram_f16", "top_k_histogram_f32");
    let count = name("top_k_count_f16", "top_k_count_f32");
    let gather = name("top_k_gather_f16", "top_k_gather_f32");
    launches.extend((0..passes).map(|p| select(histogram, [Some(Update), None, None]).int(p)));
    launches.push(select(count, [Some(Read), Some(Write), None]));
    launches.push(select(gather, [Some(Read), Some(Read), Some(Write)]));
    let sort = name("top_k_sort_f16", "top_k_sort_f32");
    launches.push(
        Launch::new(sort, [plan.levels.len(), plan.num_images, 1])
            .block(SORT_THREADS)
            .arg(levels.clone())
            .arg(scratch([None, None, Some(Update)]))
            .arg(idx.write()),
    );
    launches
}

/// The kernel argument `Levels`. `first` holds the index of the first anchor of these levels, and
/// their first slot in a row of the output `idx`.
fn levels_arg(
    plan: &Plan,
    logits: &[Buffer<'_>],
    level: usize,
    first: (usize, usize),
    idx: Buffer<'_>,
) -> Arg {
    let (mut anchor, mut slot) = first;
    let mut columns = [[0i32; MAX_LEVELS]; 5];
    for (l, of) in plan.levels.iter().enumerate() {
        let values = [of.len, of.kept, anchor, slot, usize::from(of.selects)];
        for (column, value) in columns.iter_mut().zip(values) {
            column[l] = value as i32;
        }
        anchor += of.len;
        slot += of.kept;
    }
    let rest = [plan.levels.len(), level, idx.dim(1), plan.blocks];
    StructArg::new()
        .pointers(logits.iter().map(Buffer::read), MAX_LEVELS)
        .field(columns)
        .field(rest.map(|v| v as i32))
        .arg()
}

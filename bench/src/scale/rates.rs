//! How long a launch takes, by a model: matrix products by the k-blocks and waves of their tiles,
//! everything else by bytes, and a few chains of dependent steps by a fixed time.
//!
//! All rates are guesses: those of a review that read the code and ran nothing, and what its
//! changes to the products' loop should give; [`super::calibration`] scales the model.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use device::manifest::Resources;
use device::{Gpu, Launch};
use kernels::compiled::kernels;
use serde::Serialize;

use super::stage::Stage;
use crate::peaks::Peak;

/// Between two kernels of a captured graph: the next one's start, and the last one's end.
pub(super) const GAP_MS: f64 = 2e-3;
/// Part of the data sheet's memory bandwidth that a streaming kernel reaches.
const OF_BANDWIDTH: f64 = 0.87;
/// Threads that a multiprocessor needs for its part of the memory bandwidth.
const STREAMING_THREADS: f64 = 256.0;
/// Values of the reduction in a k-block: `DEPTH` of the kernels' plan.
const DEPTH: f64 = 32.0;
/// A multiprocessor with `x` of its slots taken works at `x (1 + c) / (x + c)` of its rate: a lone
/// block of two at 60 %, as it cannot hide its own latency.
const LONE: f64 = 2.0;

/// Rates of a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rates {
    /// TFLOP/s of large tiles with an endless reduction: forward, gradient of the input, of the
    /// weights.
    large: [f64; 3],
    /// Small tiles by large ones.
    small: f64,
    /// TFLOP/s where values are loaded one by one.
    unaligned: f64,
    /// What starting and ending a tile costs, in k-blocks.
    overhead: f64,
    /// TFLOP/s without tensor cores, contraction off.
    scalar: f64,
    /// Of memory, in practice.
    pub(super) gb_per_s: f64,
}

/// A100: 3x3x256 at 231/222 TFLOP/s and res4's c3 at 140, after the review's changes 3 and 6
/// (210/200 and 99 before them). The gradient of the weights now issues as few instructions as that
/// of the input did.
const A100: Rates = Rates {
    large: [254.0, 244.0, 232.0],
    small: 0.43,
    unaligned: 28.0,
    overhead: 6.4,
    scalar: 8.0,
    gb_per_s: 0.0,
};

/// H100: 425/410/390, and 240 for c3 (380/365/295 and 159 before).
const H100: Rates = Rates {
    large: [471.0, 454.0, 409.0],
    small: 0.39,
    unaligned: 34.0,
    overhead: 7.8,
    scalar: 15.0,
    gb_per_s: 0.0,
};

/// The large tiles of the loop that the review read, before its changes 3 and 6: 3x3x256 at 210/200
/// and 380/365 TFLOP/s, 295 for the gradient of the weights on an H100; res4's c3 at 99 and 159.
const A100_REVIEW: Rates = Rates { large: [244.0, 232.0, 214.0], overhead: 11.7, ..A100 };
const H100_REVIEW: Rates = Rates { large: [460.0, 442.0, 309.0], overhead: 15.1, ..H100 };

/// Chains of dependent steps, in microseconds, whatever the number of images. From
/// `docs/measurements.md`, by hand from the kernels' rounds; the parts of a sampler or of top-k add
/// up to its figure there.
const CHAINS: &[(&str, f64)] = &[
    ("nms_proposals_sort", 40.0),
    ("nms_proposals_compare", 110.0),
    ("nms_proposals_walk", 60.0),
    ("nms_proposals_merge", 20.0),
    ("mask_targets", 200.0),
    ("top_k_", 6.0),
    ("sample_anchors_", 5.0),
    ("sample_rois_", 15.0),
    ("softmax_cross_entropy", 10.0),
    ("smooth_l1_loss", 10.0),
    ("bce_loss", 10.0),
    ("mask_bce_loss_total", 10.0),
    ("control_step", 5.0),
    ("publish", 3.0),
];

/// Least microseconds of a gradient of RoIAlign: the tile where most RoIs meet.
const CROWD: (&str, f64) = ("roi_align_grad_tiles", 50.0);

/// Where the guessed rates come from, and when.
const REVIEW: &str = "the performance review, sections 1 to 3, 2026-11-21";
const CHANGES: &str = "by hand from the review's changes 3 and 6 and our counts, 2026-11-22";
const BY_HAND: &str = "docs/measurements.md, by hand from the kernels' rounds, 2026-11-21";

/// A rate of the model, for the table of rates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Rate {
    pub(super) what: String,
    pub(super) guessed: f64,
    pub(super) unit: &'static str,
    pub(super) source: &'static str,
    /// On hardware; nothing is measured yet.
    pub(super) measured: Option<f64>,
}

/// What a launch takes alone, without the gap before it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Alone {
    pub(super) ms: f64,
    /// What it would take if its work filled the GPU.
    pub(super) ideal_ms: f64,
}

/// The work of one launch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) launch: &'a Launch,
    /// FLOPs of the node, if this is its main launch.
    pub(super) flops: f64,
    /// Elements of the product, most often those of the node's first output.
    pub(super) outputs: f64,
    /// Columns of the product, if a block makes all of them, tile after tile.
    pub(super) columns: Option<f64>,
    pub(super) bytes: f64,
    /// Part of the rows that are in use, 0 to 1.
    pub(super) used: f64,
}

impl Rates {
    /// The rates of a named GPU.
    pub(super) fn of(gpu: &Gpu, stage: Stage) -> Self {
        let hopper = gpu.capability.major >= 9;
        let rates = match (stage, hopper) {
            (Stage::Review, false) => A100_REVIEW,
            (Stage::Review, true) => H100_REVIEW,
            (_, false) => A100,
            (_, true) => H100,
        };
        let sheet = Peak::of(&gpu.name).map_or(0.0, |peak| peak.gb_per_s);
        Rates { gb_per_s: OF_BANDWIDTH * sheet, ..rates }
    }

    /// All rates of the model.
    pub(super) fn table(&self, stage: Stage) -> Vec<Rate> {
        let tiles = if stage == Stage::Review { REVIEW } else { CHANGES };
        let rate = |what: &str, guessed: f64, unit: &'static str, source: &'static str| Rate {
            what: what.to_string(),
            guessed,
            unit,
            source,
            measured: None,
        };
        let [forward, grad_input, grad_weight] = self.large;
        let mut table = vec![
            rate("large tile, forward", forward, "TFLOP/s", tiles),
            rate("large tile, gradient of the input", grad_input, "TFLOP/s", tiles),
            rate("large tile, gradient of the weights", grad_weight, "TFLOP/s", tiles),
            rate("small tile, of the large one", self.small, "of it", REVIEW),
            rate("values loaded one by one", self.unaligned, "TFLOP/s", REVIEW),
            rate("start and end of a tile", self.overhead, "k-blocks", tiles),
            rate("without tensor cores", self.scalar, "TFLOP/s", REVIEW),
            rate("memory, 87 % of the data sheet", self.gb_per_s, "GB/s", REVIEW),
            rate("between two kernels", 1e3 * GAP_MS, "us", REVIEW),
        ];
        table.extend(CHAINS.iter().map(|(kernel, us)| rate(kernel, *us, "us", BY_HAND)));
        table.push(rate(CROWD.0, CROWD.1, "us at least", BY_HAND));
        table
    }

    /// Milliseconds to move bytes, with enough threads.
    pub(super) fn stream_ms(&self, bytes: f64) -> f64 {
        bytes / self.gb_per_s / 1e6
    }

    /// How long a launch takes.
    pub(super) fn alone(&self, gpu: &Gpu, job: &Job<'_>) -> Alone {
        if let Some((_, us)) = CHAINS.iter().find(|(name, _)| job.launch.kernel.starts_with(name)) {
            return Alone {
                ms: us / 1e3,
                ideal_ms: self.stream_ms(job.used * job.bytes).min(us / 1e3),
            };
        }
        let streamed = self.streamed(gpu, job);
        let product = match product(job.launch.kernel) {
            Some(tile) => self.product(gpu, job, tile),
            None => Alone { ms: job.used * job.flops / self.scalar / 1e9, ideal_ms: 0.0 },
        };
        let crowd = if job.launch.kernel.starts_with(CROWD.0) { CROWD.1 / 1e3 } else { 0.0 };
        Alone {
            ms: streamed.ms.max(product.ms).max(crowd),
            ideal_ms: streamed.ideal_ms.max(product.ideal_ms),
        }
    }

    fn streamed(&self, gpu: &Gpu, job: &Job<'_>) -> Alone {
        let ideal_ms = self.stream_ms(job.used * job.bytes);
        let threads = job.used * blocks(job.launch) * f64::from(job.launch.block[0]);
        let needed = STREAMING_THREADS * gpu.multiprocessors as f64;
        Alone { ms: ideal_ms / (threads / needed).clamp(1.0 / needed, 1.0), ideal_ms }
    }

    fn product(&self, gpu: &Gpu, job: &Job<'_>, (pass, tile): (usize, Tile)) -> Alone {
        let (tflops, side, overhead) = match tile {
            Tile::Large => (self.large[pass], 128.0, self.overhead),
            Tile::Small => (self.large[pass] * self.small, 64.0, self.overhead / 2.0),
            Tile::Unaligned => (self.unaligned, 64.0, 0.0),
        };
        let [row_tiles, classes, _] = job.launch.grid.map(f64::from);
        let of_row = job.columns.map_or(1.0, |columns| (columns / side).ceil());
        // Tiles work on what lies past the edges too.
        let flops = job.flops * row_tiles * of_row * classes * side * side / job.outputs;
        let of_block = flops / blocks(job.launch);
        let k_blocks = of_block / of_row / (2.0 * side * side * DEPTH);
        // ms of a block that has a multiprocessor's whole rate.
        let sms = gpu.multiprocessors as f64;
        let block_ms = of_block * (1.0 + overhead / k_blocks) / (tflops * 1e9 / sms);
        let count = (job.used * blocks(job.launch)).ceil();
        let ms = block_ms * turns(count, sms, slots(gpu, job.launch));
        Alone { ms, ideal_ms: block_ms * count / sms }
    }
}

/// Time of `blocks` on `sms` multiprocessors of `slots` each, in units of a block that has one's
/// whole rate: full waves, and a last one of fewer blocks, which run slower.
fn turns(blocks: f64, sms: f64, slots: f64) -> f64 {
    let waves = (blocks / (sms * slots)).floor();
    let last = ((blocks - waves * sms * slots) / sms).ceil();
    let taken = last / slots;
    waves * slots + if last > 0.0 { last * (taken + LONE) / (taken * (1.0 + LONE)) } else { 0.0 }
}

/// Blocks of a launch that have work, and how often they fill the GPU.
pub(super) fn filling(gpu: &Gpu, job: &Job<'_>) -> (f64, f64) {
    let blocks = (job.used * blocks(job.launch)).ceil();
    (blocks, blocks / (gpu.multiprocessors as f64 * slots(gpu, job.launch)))
}

fn blocks(launch: &Launch) -> f64 {
    launch.grid.iter().map(|extent| f64::from(*extent)).product()
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Tile {
    Large,
    Small,
    Unaligned,
}

/// The pass and the tile of a matrix product's kernel.
fn product(kernel: &str) -> Option<(usize, Tile)> {
    let passes = ["conv2d_f16", "conv2d_grad_input_f16", "conv2d_grad_weight_f16"];
    let found = passes.iter().enumerate().find_map(|(i, p)| Some((i, kernel.strip_prefix(p)?)));
    let like_these = [
        (0, "stem_f16"),
        (0, "conv2d_masked_f16"),
        (0, "conv2d_nearest_f16"),
        (0, "rpn_head_f16"),
        (2, "conv2d_grad_weight_bias_f16"),
    ];
    let mut like_these = like_these.iter();
    let found = found.or(like_these.find_map(|(i, p)| Some((*i, kernel.strip_prefix(p)?))));
    let (pass, tile) = found?;
    let tile = match tile {
        "_large" => Tile::Large,
        "_small" | "_padded_small" => Tile::Small,
        "_unaligned" => Tile::Unaligned,
        _ => return None,
    };
    Some((pass, tile))
}

/// The compiled kernels' resources, by kernel and by architecture 8 or 9.
static RESOURCES: LazyLock<BTreeMap<(&'static str, u32), Resources>> = LazyLock::new(|| {
    let sources = kernels().manifest().sources.iter();
    let all = sources.flat_map(|source| &source.kernels).flat_map(|kernel| {
        let major = |sm: &str| if sm.starts_with("sm_9") { 9 } else { 8 };
        kernel.on.iter().map(move |(sm, on)| ((kernel.name.as_str(), major(sm)), *on))
    });
    all.collect()
});

/// Blocks of a launch that a multiprocessor holds at once, by registers, shared memory and threads.
/// Limits of compute capability 8.0 and 9.0.
fn slots(gpu: &Gpu, launch: &Launch) -> f64 {
    let major = if gpu.capability.major >= 9 { 9 } else { 8 };
    let threads = launch.block.iter().product::<u32>().max(1);
    let mut most = (2048 / threads).min(32);
    if let Some(on) = RESOURCES.get(&(launch.kernel, major)) {
        let warp_registers = (32 * on.registers).next_multiple_of(256).max(256);
        most = most.min(65_536 / (warp_registers * threads.div_ceil(32)));
        // Each block takes 1 KiB more; `shared_bytes` of the GPU is what one block may have.
        let shared = on.shared_bytes + launch.shared_bytes + 1024;
        most = most.min((gpu.shared_bytes as u32 + 1024) / shared);
    }
    f64::from(most.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    /// By hand: 10 multiprocessors of 2 slots.
    #[test]
    fn waves_by_hand() {
        // A block on every slot: each takes two turns of a multiprocessor.
        assert!(close(turns(20.0, 10.0, 2.0), 2.0));
        // One block on each multiprocessor works at 60 %.
        assert!(close(turns(10.0, 10.0, 2.0), 1.0 / 0.6));
        // One block in all takes as long, on one multiprocessor.
        assert!(close(turns(1.0, 10.0, 2.0), 1.0 / 0.6));
        // Two waves and one block.
        assert!(close(turns(41.0, 10.0, 2.0), 4.0 + 1.0 / 0.6));
        assert!(close(turns(0.0, 10.0, 2.0), 0.0));
    }

    fn conv(tiles: usize) -> Launch {
        Launch::new("conv2d_f16_large", [tiles, 1, 1]).block(128).shared(65_536)
    }

    #[test]
    fn slots_are_those_of_the_compiled_kernel() {
        // 244 registers a thread, 128 threads, 64 KiB: two blocks by registers and by memory.
        assert_eq!(slots(&Gpu::a100(), &conv(1)), 2.0);
        assert_eq!(slots(&Gpu::h100(), &conv(1)), 2.0);
        let small = Launch::new("conv2d_f16_small", [1, 1, 1]).block(128).shared(32_768);
        // 110 and 112 registers: four blocks by either.
        assert_eq!((slots(&Gpu::a100(), &small), slots(&Gpu::h100(), &small)), (4.0, 4.0));
    }

    /// The rates that they were made from come back: 3x3x256 on P2 of 12 images, and c3 of res4,
    /// before the review's changes 3 and 6 and after them.
    #[test]
    fn rates_of_the_review_come_back() {
        let tflops = |gpu: &Gpu, stage: Stage, rows: usize, columns: usize, k: usize| {
            let launch = conv(rows.div_ceil(128) * columns.div_ceil(128));
            let (outputs, flops) = (rows * columns, 2 * rows * columns * k);
            let job = Job {
                launch: &launch,
                flops: flops as f64,
                outputs: outputs as f64,
                columns: None,
                bytes: 0.0,
                used: 1.0,
            };
            flops as f64 / Rates::of(gpu, stage).alone(gpu, &job).ms / 1e9
        };
        let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.06;
        for (gpu, stage, p2, c3) in [
            (Gpu::a100(), Stage::Review, 210.0, 99.0),
            (Gpu::h100(), Stage::Review, 380.0, 159.0),
            (Gpu::a100(), Stage::Now, 231.0, 140.0),
            (Gpu::h100(), Stage::Now, 425.0, 240.0),
        ] {
            let found = tflops(&gpu, stage, 12 * 200 * 336, 256, 2304);
            assert!(near(found, p2), "{found} on P2 of {}", gpu.name);
            let found = tflops(&gpu, stage, 12 * 50 * 84, 1024, 256);
            assert!(near(found, c3), "{found} in c3 of {}", gpu.name);
            // P5 of one image: 18 tiles of more than 200 slots.
            assert!(tflops(&gpu, stage, 25 * 42, 256, 2304) < p2 / 4.0, "{}", gpu.name);
        }
    }

    #[test]
    fn few_threads_do_not_fill_the_memory_bus() {
        let gpu = Gpu::h100();
        let rates = Rates::of(&gpu, Stage::Now);
        let ms = |blocks: usize| {
            let launch = Launch::new("relu_mask_f16", [blocks, 1, 1]);
            let job = Job {
                launch: &launch,
                flops: 0.0,
                outputs: 1.0,
                columns: None,
                bytes: 1e9,
                used: 1.0,
            };
            rates.alone(&gpu, &job).ms
        };
        // 1 GB at 87 % of 3352 GB/s.
        assert!(close(ms(10_000), 1.0 / 0.87 / 3.352));
        assert!(close(ms(66), 2.0 * ms(132)));
    }
}

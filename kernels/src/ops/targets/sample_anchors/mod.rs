//! Samples the anchors of each image for the RPN losses.
//!
//! The counts match torchvision's `BalancedPositiveNegativeSampler`. The samples are the anchors
//! with the smallest (key, index), where the random key is a pure function of (seed, epoch, image,
//! anchor); there is no generator state.

mod cases;

use device::{Access, Launch, LaunchArgs, StructArg};
use rayon::prelude::*;

use crate::boxes::{max_positives, sample};
use crate::contract::Kernel;
use crate::cpu::{CpuArgs, exactly};
use crate::philox::{Purpose, keyed};
use crate::{Cost, TensorDesc, op};

pub use cases::cases;

op! {
    /// Samples up to `batch` anchors per image: min(#positives, int(batch * positive_fraction))
    /// positives, then negatives until there are `batch` samples or no more negatives.
    pub struct SampleAnchors = "sample_anchors" {
        /// Anchors per image.
        pub batch: usize,
        /// Maximum fraction of positives, 0 to 1.
        pub positive_fraction: f32 [|share| (0.0..=1.0).contains(share), "within 0..=1"],
        /// Seed of the run.
        pub seed: u64,
    }
    in SampleAnchorsInputs {
        /// 1 or more positive, 0 negative, -1 ignored.
        labels: i32 "[N, A_total]",
        /// Random number keys of the image.
        image_keys: i32 "[N, 4]",
    }
    out {
        /// Positives ascending, then negatives ascending, then -1.
        idx: Index "[N, batch]",
        /// Number of sampled positives, and number of all samples.
        counts: Index "[N, 2]",
    }
}

impl Kernel for SampleAnchors {
    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // A Philox key takes ten rounds of two multiplications and four xors.
        Cost::streaming(inputs, outputs, 60 * inputs[0].len() as u64)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        workspace_bytes(inputs[0].dim(0), inputs[0].dim(1))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (labels, image_keys) = (args.inputs[0], args.inputs[1]);
        let (images, anchors) = (labels.dim(0), labels.dim(1));
        let scratch = |access: [Access; 4]| {
            let mut offset = 0;
            let tensors = std::array::from_fn::<_, 4, _>(|i| {
                let bytes = pieces(images, anchors)[i];
                offset += bytes;
                args.workspace.piece(offset - bytes, bytes, access[i])
            });
            StructArg::new().pointers(tensors, 4).arg()
        };
        let rule = StructArg::new()
            .field(self.seed)
            .ints([anchors, self.batch, max_positives(self.batch, self.positive_fraction)])
            .arg();
        let grid = [blocks(anchors), images, 1];
        let over_anchors = |kernel, access| {
            Launch::new(kernel, grid).arg(image_keys.read()).arg(scratch(access)).arg(rule.clone())
        };
        use Access::{Read, Update, Write};
        let len = images * IMAGE_BYTES / 4;
        let clear = Launch::over("sample_anchors_clear", len)
            .arg(args.workspace.piece(0, images * IMAGE_BYTES, Write))
            .len(len);
        let keys = Launch::new("sample_anchors_keys", grid)
            .reads([labels, image_keys])
            .arg(scratch([Update, Write, Write, Write]))
            .arg(rule.clone());
        let mut launches = vec![clear, keys];
        launches.extend((1..DIGITS).map(|digit| {
            over_anchors("sample_anchors_histogram", [Update, Update, Write, Read]).int(digit)
        }));
        launches.push(over_anchors("sample_anchors_count", [Read, Update, Write, Read]));
        launches.push(
            over_anchors("sample_anchors_write", [Read; 4])
                .arg(args.outputs[0].write())
                .arg(args.outputs[1].write()),
        );
        launches
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = &args.inputs;
        let (labels, keys) = (inputs[0].i32(), inputs[1].i32());
        let (num_images, anchors) = (inputs[0].shape()[0], inputs[0].shape()[1]);
        let drawn: Vec<(Vec<usize>, Vec<usize>)> = (0..num_images)
            .into_par_iter()
            .map(|n| {
                let image_key = &keys[4 * n..][..4];
                let key = |i: usize| keyed(self.seed, image_key, Purpose::Anchors, i as u32);
                sample(&labels[n * anchors..][..anchors], self.batch, self.positive_fraction, key)
            })
            .collect();
        let [idx, counts] = exactly(&mut args.outputs);
        let (idx, counts) = (idx.i32(), counts.i32());
        idx.fill(-1);
        for (n, (positives, negatives)) in drawn.iter().enumerate() {
            let slots = &mut idx[n * self.batch..][..self.batch];
            for (slot, &i) in slots.iter_mut().zip(positives.iter().chain(negatives)) {
                *slot = i as i32;
            }
            counts[2 * n] = positives.len() as i32;
            counts[2 * n + 1] = (positives.len() + negatives.len()) as i32;
        }
    }
}

/// Anchors per block.
const CHUNK: usize = 256 * 16;
/// Digits (bytes) of a key; each digit has a histogram of positives and one of negatives.
const DIGITS: usize = 4;
/// Histogram bytes per image.
const IMAGE_BYTES: usize = DIGITS * 2 * 256 * 4;

/// Bytes of an image's selection states: two states per digit.
const IMAGE_STATES: usize = DIGITS * 2 * 16;

/// Blocks per image. At least one, even without anchors: it writes the counts.
fn blocks(anchors: usize) -> usize {
    anchors.div_ceil(CHUNK).max(1)
}

/// Bytes of the parts of the scratch memory: histograms, states, counts of each block, and two
/// bytes per anchor. Each is a multiple of 256.
fn pieces(images: usize, anchors: usize) -> [usize; 4] {
    let blocks = blocks(anchors);
    [IMAGE_BYTES, IMAGE_STATES, blocks * 16, blocks * CHUNK * 2]
        .map(|bytes| (images * bytes).next_multiple_of(256))
}

fn workspace_bytes(images: usize, anchors: usize) -> usize {
    pieces(images, anchors).iter().sum()
}

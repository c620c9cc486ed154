//! Cross-entropy with class weights and label smoothing: `loss_classifier` of a box head that uses
//! either option.

mod cases;

use std::sync::Arc;

use device::{Access, Arg, Launch, LaunchArgs, StructArg};
use rayon::prelude::*;

use crate::contract::{Declared, Dims, Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::losses::launch::{MAX_BLOCKS, ROW_THREADS, blocks, loss_gradient, partial_bytes};
use crate::losses::row_loss::rows_argument;
use crate::losses::{Loss, backward_rule, exponentials, sum_rows};
use crate::{BackwardRule, OpError, TensorDesc, check, op};

pub use cases::cases;

op! {
    /// Weighted mean cross-entropy of class logits.
    ///
    /// Matches `torch.nn.functional.cross_entropy` with `weight` and `label_smoothing`. The loss of
    /// a group of images is the mean over its rows whose label is not -1; the result is the mean
    /// over the groups that have images. A row of class `t` has the loss `(1 - s) w[t] l[t] + s /
    /// (K+1) * sum over c of w[c] l[c]`, where `l` is the negative log-probability; the mean of a
    /// group divides by the sum of its `w[t]`. Numerics: maximum subtracted, exponentials and sums
    /// in f64 (CUDA: f32), fixed order. Edge cases: the loss of a group is 0 if all labels are -1
    /// or all rows have weight 0.
    pub struct WeightedCrossEntropy = "weighted_cross_entropy" {
        /// Images per group; the loss is averaged over the rows of a group.
        pub ipg: usize [|ipg| *ipg > 0, "at least 1"],
        /// Weight of each class, background first; at least 0.
        pub class_weights: Arc<[f32]> [|weights| !weights.is_empty(), "one for each class"],
        /// Label smoothing: target probability that is spread evenly over all classes.
        pub label_smoothing: f32 [|share| (0.0..=1.0).contains(share), "from 0 to 1"],
    }
    in WeightedCrossEntropyInputs {
        /// A column per class.
        logits: real "[M, K+1]",
        /// Class (0 is background), or -1: ignored.
        labels: i32 "[M]",
        /// Image of each row.
        image_idx: i32 "[M]",
        /// Number of images in use.
        num_images: i32 "[1]",
    }
    out {
        /// Mean over the groups that have images.
        loss: Loss "[1]",
    }
}

impl Kernel for WeightedCrossEntropy {
    const FLOPS: Flops = Flops::Input(6);

    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let (weights, columns) = (self.class_weights.len(), dims.get("K+1"));
        let expected = "one for each column of logits";
        check::parameter(Self::CONTRACT.op, "class_weights", weights == columns, expected, weights)
    }

    fn backward(&self, _inputs: &[TensorDesc]) -> BackwardRule {
        backward_rule(self)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        workspace_bytes(&inputs[0])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let common = Common::new(self, args);
        let (offset, blocks) = (common.scratch.partials_offset, blocks(common.rows, ROWS_A_BLOCK));
        let partials = |access| args.workspace.piece(offset, partial_bytes(blocks), access);
        let mut launches = common.prepare();
        launches.push(common.row_launch("weighted_cross_entropy_f16").arg(partials(Access::Write)));
        launches.push(
            Launch::new("weighted_cross_entropy_total", [1, 1, 1])
                .block(MAX_BLOCKS as u32)
                .arg(partials(Access::Read))
                .int(blocks)
                .arg(args.outputs[0].write()),
        );
        launches
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let rows = Rows::of(args, self);
        args.outputs[0].f32()[0] = rows.loss();
    }
}

impl Loss for WeightedCrossEntropy {
    const GRAD_NAME: &'static str = "weighted_cross_entropy_grad";

    fn grad_flops(inputs: &[TensorDesc]) -> u64 {
        6 * inputs[0].len() as u64
    }

    fn grad_workspace_bytes(inputs: &[TensorDesc]) -> usize {
        workspace_bytes(&inputs[0])
    }

    fn grad_launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let common = Common::new(self, args);
        let grad = common
            .row_launch("weighted_cross_entropy_grad_f16")
            .arg(loss_gradient(args.inputs[WeightedCrossEntropyInputs::LEN]))
            .arg(args.outputs[0].write());
        common.prepare().into_iter().chain([grad]).collect()
    }

    fn run_grad(&self, grad_output: f32, args: &mut CpuArgs<'_>) {
        Rows::of(args, self).grad(grad_output, args.outputs[0].f32());
    }
}

/// One warp per row.
const ROWS_A_BLOCK: usize = ROW_THREADS as usize / 32;
/// Class weights that fit in one kernel argument.
const CHUNK: usize = 512;
/// Alignment of the parts of the scratch memory.
const ALIGNMENT: usize = 256;

/// Scratch memory: the class weights, the scale of each row, and the partial sums.
struct Scratch {
    rows_offset: usize,
    partials_offset: usize,
    bytes: usize,
}

impl Scratch {
    fn of(logits: &TensorDesc) -> Self {
        let floats = |len: usize| (len * size_of::<f32>()).next_multiple_of(ALIGNMENT);
        let rows_offset = floats(logits.dim(1));
        let partials_offset = rows_offset + floats(logits.dim(0));
        let bytes = partials_offset + partial_bytes(blocks(logits.dim(0), ROWS_A_BLOCK));
        Self { rows_offset, partials_offset, bytes }
    }
}

fn workspace_bytes(logits: &TensorDesc) -> usize {
    Scratch::of(logits).bytes
}

/// Data shared by the launches of the loss and the launches of its gradient.
struct Common<'a, 'b> {
    op: &'a WeightedCrossEntropy,
    args: &'a LaunchArgs<'b>,
    scratch: Scratch,
    rows: usize,
    classes: usize,
}

impl<'a, 'b> Common<'a, 'b> {
    fn new(op: &'a WeightedCrossEntropy, args: &'a LaunchArgs<'b>) -> Self {
        let logits = WeightedCrossEntropyInputs::of(&args.inputs).logits;
        let (rows, classes) = (logits.dim(0), logits.dim(1));
        Self { op, args, scratch: Scratch::of(logits.desc), rows, classes }
    }

    fn class_weights(&self, access: Access) -> Arg {
        self.args.workspace.piece(0, 4 * self.classes, access)
    }

    fn scales(&self, access: Access) -> Arg {
        self.args.workspace.piece(self.scratch.rows_offset, 4 * self.rows, access)
    }

    fn rows(&self) -> Arg {
        rows_argument(&WeightedCrossEntropy::CONTRACT, self.args, 0, (self.op.ipg, None))
    }

    /// Writes the class weights and the scale of each row to the scratch memory.
    fn prepare(&self) -> Vec<Launch> {
        let chunks = self.op.class_weights.chunks(CHUNK).enumerate().map(|(i, chunk)| {
            let mut values = [0.0f32; CHUNK];
            values[..chunk.len()].copy_from_slice(chunk);
            let part = self.args.workspace.piece(4 * i * CHUNK, 4 * chunk.len(), Access::Write);
            Launch::new("weighted_cross_entropy_classes", [1, 1, 1])
                .block(CHUNK as u32)
                .arg(StructArg::new().field(values).arg())
                .int(chunk.len())
                .arg(part)
        });
        let scales = Launch::new("weighted_cross_entropy_scales", [MAX_BLOCKS, 1, 1])
            .block(ROW_THREADS)
            .arg(self.rows())
            .arg(self.class_weights(Access::Read))
            .int(self.classes)
            .arg(self.scales(Access::Write));
        chunks.chain([scales]).collect()
    }

    /// A launch with one warp per row and the arguments shared by loss and gradient.
    fn row_launch(&self, kernel: &'static str) -> Launch {
        let logits = *WeightedCrossEntropyInputs::of(&self.args.inputs).logits;
        Launch::new(kernel, [blocks(self.rows, ROWS_A_BLOCK), 1, 1])
            .block(ROW_THREADS)
            .arg(logits.read())
            .arg(self.args.inputs[1].read())
            .arg(self.class_weights(Access::Read))
            .arg(self.scales(Access::Read))
            .int(self.rows)
            .int(self.classes)
            .arg(self.op.label_smoothing)
    }
}

/// The inputs of the loss, and the scales of its rows.
struct Rows<'a> {
    op: &'a WeightedCrossEntropy,
    logits: &'a [f32],
    labels: &'a [i32],
    image_idx: &'a [i32],
    num_images: usize,
    /// Scale of the rows of each group: 1 / (sum of the weights of the group's rows * number of
    /// groups).
    scales: Vec<f64>,
}

impl<'a> Rows<'a> {
    /// Reads the op's inputs, and computes the scales.
    fn of(args: &CpuArgs<'a>, op: &'a WeightedCrossEntropy) -> Self {
        let inputs = WeightedCrossEntropyInputs::of(&args.inputs);
        let (labels, image_idx) = (inputs.labels.i32(), inputs.image_idx.i32());
        let num_images = usize::try_from(inputs.num_images.i32()[0]).unwrap_or(0);
        let groups = num_images.div_ceil(op.ipg);
        let logits = inputs.logits.f32();
        let scales = vec![0.0; groups];
        let mut rows = Self { op, logits, labels, image_idx, num_images, scales };
        for row in 0..labels.len() {
            if let Some((label, group)) = rows.counted(row) {
                rows.scales[group] += rows.weight(label);
            }
        }
        for sum in &mut rows.scales {
            *sum = if *sum > 0.0 { 1.0 / (*sum * groups as f64) } else { 0.0 };
        }
        rows
    }

    /// The loss.
    fn loss(&self) -> f32 {
        let (smooth, share) = self.shares();
        sum_rows(self.labels.len(), 256, |row| {
            let Some((label, group)) = self.counted(row) else { return 0.0 };
            let logits = self.row(row);
            let (max, sum) = exponentials(logits);
            let cost =
                |class: usize| self.weight(class) * (sum.ln() + max - f64::from(logits[class]));
            let all: f64 = (0..logits.len()).map(cost).sum();
            self.scales[group] * (smooth * cost(label) + share * all)
        })
    }

    /// The gradient of the loss times `grad_output`.
    fn grad(&self, grad_output: f32, grad_logits: &mut [f32]) {
        let (smooth, share) = self.shares();
        let total: f64 = self.op.class_weights.iter().map(|&weight| f64::from(weight)).sum();
        grad_logits.par_chunks_mut(self.classes()).enumerate().for_each(|(row, g)| {
            let Some((label, group)) = self.counted(row) else {
                g.fill(0.0);
                return;
            };
            let scale = f64::from(grad_output) * self.scales[group];
            let logits = self.row(row);
            let (max, sum) = exponentials(logits);
            let own = smooth * self.weight(label);
            for (class, (g, &x)) in g.iter_mut().zip(logits).enumerate() {
                let probability = (f64::from(x) - max).exp() / sum;
                let truth = if class == label { own } else { 0.0 };
                let pull = (own + share * total) * probability;
                *g = (scale * (pull - truth - share * self.weight(class))) as f32;
            }
        });
    }

    fn classes(&self) -> usize {
        self.op.class_weights.len()
    }

    fn weight(&self, class: usize) -> f64 {
        f64::from(self.op.class_weights[class])
    }

    /// Target probability of only a row's own class, and the label smoothing of every class.
    fn shares(&self) -> (f64, f64) {
        let smoothing = f64::from(self.op.label_smoothing);
        (1.0 - smoothing, smoothing / self.classes() as f64)
    }

    fn row(&self, row: usize) -> &'a [f32] {
        &self.logits[row * self.classes()..][..self.classes()]
    }

    /// Class of a row, and its group of images; `None` if the row is ignored or its image is not in
    /// use.
    fn counted(&self, row: usize) -> Option<(usize, usize)> {
        let label = usize::try_from(self.labels[row]).ok()?;
        assert!(label < self.classes(), "label {label} of {} classes", self.classes());
        let image = usize::try_from(self.image_idx[row]).ok()?;
        (image < self.num_images).then_some((label, image / self.op.ipg))
    }
}

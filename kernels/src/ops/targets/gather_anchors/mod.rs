//! The sampled anchors of a batch in one list of rows, with labels and matches.

mod cases;

use device::{Launch, LaunchArgs};

use crate::boxes::{as_boxes, as_boxes_mut};
use crate::contract::Kernel;
use crate::cpu::{CpuArgs, exactly};
use crate::{Cost, TensorDesc, op};

pub use cases::cases;

op! {
    /// Gathers rows by the indices of `sample_anchors`.
    pub struct GatherAnchors = "gather_anchors" {}
    in GatherAnchorsInputs {
        /// Anchors of all levels.
        anchors: f32 "[A_total, 4]",
        /// Indices of the sampled anchors; -1: none.
        idx: i32 "[N, B]",
        /// Label of each anchor.
        labels: i32 "[N, A_total]",
        /// Ground truth of each anchor.
        matched_idx: i32 "[N, A_total]",
    }
    out {
        /// The sampled anchors; zeros in a row without a sample.
        boxes: Box "[N*B, 4]",
        /// Image of the row, or -1.
        image_idx: Index "[N*B]",
        /// Label of the row, or -1.
        row_labels: Index "[N*B]",
        /// Ground truth of the row, or 0.
        matched: Index "[N*B]",
    }
}

impl Kernel for GatherAnchors {
    fn cost(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // Per row, an index and 6 values are read, and 7 values are written.
        Cost { flops: 0, bytes: 4 * (1 + 6 + 7) * outputs[1].len() as u64 }
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let inputs = GatherAnchorsInputs::of(&args.inputs);
        let rows = args.outputs[1].len();
        let launch = Launch::over("gather_anchors", rows).tensors(args);
        vec![launch.int(rows).int(inputs.idx.dim(1)).int(inputs.anchors.dim(0))]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = GatherAnchorsInputs::of(&args.inputs);
        let (anchors, idx) = (as_boxes(inputs.anchors.f32()), inputs.idx.i32());
        let (anchor_labels, anchor_matches) = (inputs.labels.i32(), inputs.matched_idx.i32());
        let batch = inputs.idx.shape()[1].max(1);
        let [boxes, image_idx, labels, matched] = exactly(&mut args.outputs);
        let (boxes, image_idx) = (as_boxes_mut(boxes.f32()), image_idx.i32());
        let (labels, matched) = (labels.i32(), matched.i32());
        for (row, &i) in idx.iter().enumerate() {
            let n = row / batch;
            let found = usize::try_from(i).ok().filter(|&i| i < anchors.len());
            (boxes[row], image_idx[row], labels[row], matched[row]) = match found {
                Some(i) => {
                    let at = n * anchors.len() + i;
                    (anchors[i], n as i32, anchor_labels[at], anchor_matches[at])
                }
                None => ([0.0; 4], -1, -1, 0),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::GatherAnchors;
    use crate::case::boxes::boxes;
    use crate::case::index;
    use crate::on_cpu::run;

    #[test]
    fn gather_anchors_matches_hand_computed_values() {
        let inputs = [
            boxes(&[3, 4], 1, 10.0, 5.0),
            index(&[2, 2], [2, -1, 0, 2]),
            index(&[2, 3], [0, 0, 1, 0, -1, 1]),
            index(&[2, 3], [0, 0, 4, 0, 0, 5]),
        ];
        let outputs = run(&GatherAnchors, &inputs).unwrap();
        let b = inputs[0].as_f32();
        assert_eq!(outputs[0].as_f32(), [&b[8..], &[0.0; 4], &b[..4], &b[8..]].concat());
        assert_eq!(outputs[1].as_i32(), [0, -1, 1, 1]);
        assert_eq!(outputs[2].as_i32(), [1, -1, 0, 1]);
        assert_eq!(outputs[3].as_i32(), [4, 0, 0, 5]);
    }
}

//! The sampled anchors of a batch as one list of rows, with labels and matches.
//!
//! Tensors: `anchors` (`[A_total, 4]`), `idx` (`[N, B]`, -1 = no sample), `labels`
//! (`[N, A_total]`), `matched_idx` (`[N, A_total]`) -> `boxes` (`[N*B, 4]`), `image_idx` (`[N*B]`),
//! `labels` (`[N*B]`), `matched` (`[N*B]`); all overwritten. A row without a sample holds zeros,
//! image -1, label -1, match 0.

mod cases;
mod cuda;

use device::{Launch, LaunchArgs};

use crate::boxes::{as_boxes, as_boxes_mut};
use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Gathers rows by the indices of `sample_anchors`.
#[derive(Debug, Clone, PartialEq)]
pub struct GatherAnchors;

op_inputs! {
    /// The inputs of [`GatherAnchors`].
    pub struct GatherAnchorsInputs {
        /// `[A_total, 4]` f32.
        anchors,
        /// `[N, B]` i32.
        idx,
        /// `[N, A_total]` i32.
        labels,
        /// `[N, A_total]` i32.
        matched_idx,
    }
}

const NAME: &str = "gather_anchors";

impl Op for GatherAnchors {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, GatherAnchorsInputs::LEN, updates)?;
        let inputs = GatherAnchorsInputs::of(inputs);
        dims.f32("anchors", inputs.anchors, "[A_total, 4]")?;
        dims.i32("idx", inputs.idx, "[N, B]")?;
        dims.i32("labels", inputs.labels, "[N, A_total]")?;
        dims.i32("matched_idx", inputs.matched_idx, "[N, A_total]")?;
        let rows = dims.get("N") * dims.get("B");
        let index = TensorDesc::new(Role::Index, &[rows]);
        Ok(vec![TensorDesc::new(Role::Box, &[rows, 4]), index.clone(), index.clone(), index])
    }

    fn cost(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // An index is read, then as much as is written.
        Cost { flops: 0, bytes: 4 * (1 + 6 + 7) * outputs[1].len() as u64 }
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = GatherAnchorsInputs::of(&args.inputs);
        let (anchors, idx) = (as_boxes(inputs.anchors.f32()), inputs.idx.i32());
        let (anchor_labels, anchor_matches) = (inputs.labels.i32(), inputs.matched_idx.i32());
        let batch = inputs.idx.shape()[1].max(1);
        let [boxes, image_idx, labels, matched] = &mut args.outputs[..] else {
            unreachable!("infer gives four outputs")
        };
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
    use super::{GatherAnchors, cases};
    use crate::case::boxes::{boxes, index};
    use crate::on_cpu::run;

    #[test]
    fn by_hand() {
        let inputs = [
            boxes(&[3, 4], 1, 10.0, 5.0),
            index(&[2, 2], &[2, -1, 0, 2]),
            index(&[2, 3], &[0, 0, 1, 0, -1, 1]),
            index(&[2, 3], &[0, 0, 4, 0, 0, 5]),
        ];
        let outputs = run(&GatherAnchors, &inputs).unwrap();
        let b = inputs[0].as_f32();
        assert_eq!(outputs[0].as_f32(), [&b[8..], &[0.0; 4], &b[..4], &b[8..]].concat());
        assert_eq!(outputs[1].as_i32(), [0, -1, 1, 1]);
        assert_eq!(outputs[2].as_i32(), [1, -1, 0, 1]);
        assert_eq!(outputs[3].as_i32(), [4, 0, 0, 5]);
    }

    /// Rows without a sample, and only those, are padding.
    #[test]
    fn padding_follows_the_indices() {
        for case in cases() {
            let outputs = run(case.op.as_ref(), &case.inputs).unwrap();
            for (&i, &image) in case.inputs[1].as_i32().iter().zip(outputs[1].as_i32()) {
                assert_eq!(i < 0, image < 0, "{case}");
            }
        }
    }
}

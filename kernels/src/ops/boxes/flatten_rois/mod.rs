//! The proposals of all images as one list of RoIs, for inference.

mod cases;

use device::{BLOCK, Launch, LaunchArgs};

use crate::boxes::{as_boxes, as_boxes_mut, gt_rows};
use crate::contract::Kernel;
use crate::cpu::{CpuArgs, exactly};
use crate::op;

pub use cases::cases;

op! {
    /// Packs the rows in use.
    pub struct FlattenRois = "flatten_rois" {}
    in FlattenRoisInputs {
        /// Boxes of each image.
        proposals: f32 "[N, P, 4]",
        /// Number of boxes in use of each image.
        counts: i32 "[N]",
    }
    out {
        /// Boxes in use, image after image, then zeros.
        rois: Box "[N*P, 4]",
        /// Image of the row; -1 in unused rows.
        image_idx: Index "[N*P]",
        /// Number of rows in use.
        num_rois: Index "[1]",
    }
}

impl Kernel for FlattenRois {
    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (images, capacity) = (args.inputs[0].dim(0), args.inputs[0].dim(1));
        // At least one block, to write the number of RoIs.
        let grid = [images.max(1), capacity.div_ceil(BLOCK as usize).max(1), 1];
        vec![Launch::new("flatten_rois", grid).tensors(args).int(images).int(capacity)]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let (proposals, counts) = (as_boxes(args.inputs[0].f32()), args.inputs[1].i32());
        let [rois, image_idx, num_rois] = exactly(&mut args.outputs);
        let (rois, image_idx) = (as_boxes_mut(rois.f32()), image_idx.i32());
        rois.fill([0.0; 4]);
        image_idx.fill(-1);
        let mut len = 0;
        for n in 0..counts.len() {
            let own = gt_rows(proposals, counts, n);
            rois[len..len + own.len()].copy_from_slice(own);
            image_idx[len..len + own.len()].fill(n as i32);
            len += own.len();
        }
        num_rois.i32()[0] = len as i32;
    }
}

#[cfg(test)]
mod tests {
    use super::{FlattenRois, cases};
    use crate::case::boxes::boxes;
    use crate::case::index;
    use crate::on_cpu::run;

    #[test]
    fn flatten_rois_matches_hand_computed_values() {
        let proposals = boxes(&[3, 2, 4], 1, 50.0, 20.0);
        let inputs = [proposals.clone(), index(&[3], [1, 0, 2])];
        let outputs = run(&FlattenRois, &inputs).unwrap();
        let p = proposals.as_f32();
        assert_eq!(outputs[0].as_f32(), [&p[..4], &p[16..], &[0.0; 12]].concat());
        assert_eq!(outputs[1].as_i32(), [0, 2, 2, -1, -1, -1]);
        assert_eq!(outputs[2].as_i32(), [3]);
    }

    #[test]
    fn flatten_rois_keeps_every_used_row() {
        for case in cases() {
            let outputs = run(case.op.as_ref(), &case.inputs).unwrap();
            let total: i32 = case.inputs[1].as_i32().iter().sum();
            assert_eq!(outputs[2].as_i32(), [total], "{case}");
            let used = outputs[1].as_i32().iter().filter(|&&n| n >= 0).count();
            assert_eq!(used, total as usize, "{case}");
        }
    }
}

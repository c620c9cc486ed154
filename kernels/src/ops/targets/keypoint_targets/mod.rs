//! The keypoint map cell that is the target of each keypoint of each RoI.
//!
//! Matches `keypoints_to_heatmap` of torchvision and detectron2: a keypoint has a target if it is
//! labelled and inside its RoI. The right and lower edges of the RoI belong to the last cells. The
//! keypoint loss is a softmax over the cells of each map. Cells are computed in f64: a keypoint in
//! the middle of its RoI is assigned to the same cell on every device.

mod cases;

use device::{Launch, LaunchArgs};

use crate::boxes::as_boxes;
use crate::contract::Kernel;
use crate::counted::rows_in_use;
use crate::cpu::{CpuArgs, exactly};
use crate::{Cost, TensorDesc, op};

pub use cases::cases;

op! {
    /// Finds the target cells.
    #[derive(Copy, Eq)]
    pub struct KeypointTargets = "keypoint_targets" {
        /// Cells per side of a map.
        pub side: usize [|side| *side > 0, "at least 1"],
    }
    in KeypointTargetsInputs {
        /// Boxes in network pixels.
        mask_rois: f32 "[M, 4]",
        /// Image of the row.
        image_idx: i32 "[M]",
        /// Index of the matched object within the image.
        matched: i32 "[M]",
        /// Number of rows in use.
        count: i32 "[1]",
        /// x and y in network pixels, and a value above 0 if the keypoint is labelled.
        keypoints: f32 "[N, G, K, 3]",
    }
    out {
        /// Target cells, numbered row by row from the top left; -1: no target.
        cells: Index "[M*K]",
        /// Image, or -1 in unused rows.
        image_of_row: Index "[M*K]",
    }
}

/// Index of the cell along an axis; `None` if `at` is outside of the RoI, which extends from `low`
/// to `high`.
fn cell(at: f32, low: f32, high: f32, side: usize) -> Option<usize> {
    if at == high {
        return Some(side - 1);
    }
    let [at, low, high] = [at, low, high].map(f64::from);
    let cell = (at - low) * (side as f64 / (high - low));
    (cell >= 0.0 && cell < side as f64).then_some(cell as usize)
}

impl Kernel for KeypointTargets {
    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let rows = outputs[0].len() as u64;
        let rois = 28 * KeypointTargetsInputs::of(inputs).matched.len() as u64;
        Cost { flops: 8 * rows, bytes: 20 * rows + rois }
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let inputs = KeypointTargetsInputs::of(&args.inputs);
        let launch = Launch::over("keypoint_targets", args.outputs[0].len()).tensors(args);
        let launch = launch.int(inputs.matched.len()).int(self.side);
        vec![(0..3).fold(launch, |launch, axis| launch.int(inputs.keypoints.dim(axis)))]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = KeypointTargetsInputs::of(&args.inputs);
        let (rois, keypoints) = (as_boxes(inputs.mask_rois.f32()), inputs.keypoints.f32());
        let (image_idx, matched) = (inputs.image_idx.i32(), inputs.matched.i32());
        let count = rows_in_use(inputs.count.i32(), rois.len());
        let [images, objects, per_object] = [0, 1, 2].map(|i| inputs.keypoints.shape()[i]);
        let [cells, image_of_row] = exactly(&mut args.outputs);
        let (cells, image_of_row) = (cells.i32(), image_of_row.i32());
        for i in 0..cells.len() {
            let (row, k) = (i / per_object, i % per_object);
            let place = |idx: i32, len| usize::try_from(idx).ok().filter(|&idx| idx < len);
            let image = place(image_idx[row], images).filter(|_| row < count);
            image_of_row[i] = image.map_or(-1, |image| image as i32);
            let object = image.zip(place(matched[row], objects));
            let found = object.and_then(|(image, object)| {
                let at = 3 * ((image * objects + object) * per_object + k);
                let [x, y, label] = [0, 1, 2].map(|i| keypoints[at + i]);
                let [x1, y1, x2, y2] = rois[row];
                let column = cell(x, x1, x2, self.side).filter(|_| label > 0.0)?;
                Some(cell(y, y1, y2, self.side)? * self.side + column)
            });
            cells[i] = found.map_or(-1, |cell| cell as i32);
        }
    }
}

//! The proposals of all images as one list of RoIs, for inference.
//!
//! Tensors: `proposals` (`[N, P, 4]`), `counts` (`[N]`) -> `rois` (`[N*P, 4]`), `image_idx`
//! (`[N*P]`), `num_rois` (`[1]`); all overwritten. The rows in use stand together in image order;
//! the others hold zeros and image -1.

mod cases;
mod cuda;

use device::{Launch, LaunchArgs};

use crate::boxes::{as_boxes, as_boxes_mut, gt_rows};
use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Packs the rows in use.
#[derive(Debug, Clone, PartialEq)]
pub struct FlattenRois;

const NAME: &str = "flatten_rois";

impl Op for FlattenRois {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, 2, updates)?;
        dims.f32("proposals", &inputs[0], "[N, P, 4]")?;
        dims.i32("counts", &inputs[1], "[N]")?;
        let rows = dims.get("N") * dims.get("P");
        Ok(vec![
            TensorDesc::new(Role::Box, &[rows, 4]),
            TensorDesc::new(Role::Index, &[rows]),
            TensorDesc::new(Role::Index, &[1]),
        ])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let (proposals, counts) = (as_boxes(args.inputs[0].f32()), args.inputs[1].i32());
        let [rois, image_idx, num_rois] = &mut args.outputs[..] else {
            unreachable!("infer gives three outputs")
        };
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
    use crate::case::boxes::{boxes, index};
    use crate::on_cpu::run;

    #[test]
    fn by_hand() {
        let proposals = boxes(&[3, 2, 4], 1, 50.0, 20.0);
        let inputs = [proposals.clone(), index(&[3], &[1, 0, 2])];
        let outputs = run(&FlattenRois, &inputs).unwrap();
        let p = proposals.as_f32();
        assert_eq!(outputs[0].as_f32(), [&p[..4], &p[16..], &[0.0; 12]].concat());
        assert_eq!(outputs[1].as_i32(), [0, 2, 2, -1, -1, -1]);
        assert_eq!(outputs[2].as_i32(), [3]);
    }

    #[test]
    fn every_row_in_use_is_kept() {
        for case in cases() {
            let outputs = run(case.op.as_ref(), &case.inputs).unwrap();
            let total: i32 = case.inputs[1].as_i32().iter().sum();
            assert_eq!(outputs[2].as_i32(), [total], "{case}");
            let used = outputs[1].as_i32().iter().filter(|&&n| n >= 0).count();
            assert_eq!(used, total as usize, "{case}");
        }
    }
}

//! Gradient of the maps of a pyramid from all ops that read the maps: `roi_align` of up to four
//! heads, and `gather_patches`. Each map is written once; separate gradient ops would each write a
//! map, and a sum would read these maps again.
//!
//! Tensors: for each of [`LevelGradients::rois`] the inputs of `roi_align_grad`, then with
//! [`LevelGradients::patches`] the inputs of `gather_patches_grad` (all in) -> `grad_feature_l [N,
//! h_l, w_l, C]` for each level (overwritten). If there are more levels than the heads read, the
//! heads read the first ones. Numerics: the gradients of heads and patches are summed in order,
//! f32, rounded once; deterministic. Memory-bound.

mod cases;

use std::any::Any;

use device::{Buffer, Gpu, Launch, LaunchArgs};

use crate::cpu::{CpuArgs, TensorMut};
use crate::ops::gather_patches::{GatherPatchesGrad, gradients_arg};
use crate::ops::roi_align::pyramid::Pyramid;
use crate::ops::roi_align::{RoiAlignGrad, RoiAlignGradInputs, no_gradients, tile_shared_bytes};
use crate::{Cost, Op, OpError, OpRef, TensorDesc, check};

pub use cases::cases;

/// The gradients of a pyramid's maps, summed over the RoIAlign heads and the patches that read
/// them.
#[derive(Debug, Clone, PartialEq)]
pub struct LevelGradients {
    /// One to four heads that read the same maps.
    pub rois: Vec<RoiAlignGrad>,
    /// The patches.
    pub patches: Option<GatherPatchesGrad>,
}

const NAME: &str = "level_gradients";
/// Number of inputs of a head's RoI gradient.
const ROI_INPUTS: usize = RoiAlignGradInputs::LEN;
/// Number of inputs of the patches' gradient.
const PATCH_INPUTS: usize = 2;
/// Maximum number of heads that a kernel supports.
const MAX_HEADS: usize = 4;
/// Maximum number of heads in the kernels that most models use; the kernels for more heads do not
/// support 5x5 patches.
const FEW_HEADS: usize = 2;

impl LevelGradients {
    /// True if this op can include `op`.
    pub fn takes(op: &OpRef) -> bool {
        let op: &dyn Any = op.as_ref();
        op.is::<RoiAlignGrad>() || op.is::<GatherPatchesGrad>()
    }

    /// The op that replaces `ops`, and the order of `ops` in which it takes their inputs; `None` if
    /// there are more ops than it supports, or if their maps differ.
    pub fn of(ops: &[OpRef]) -> Option<(Self, Vec<usize>)> {
        let rois = |i: &usize| (ops[*i].as_ref() as &dyn Any).downcast_ref::<RoiAlignGrad>();
        let patches =
            |i: &usize| (ops[*i].as_ref() as &dyn Any).downcast_ref::<GatherPatchesGrad>();
        let all = 0..ops.len();
        let heads: Vec<usize> = all.clone().filter(|i| rois(i).is_some()).collect();
        let others: Vec<usize> = all.filter(|i| patches(i).is_some()).collect();
        let joined = Self {
            rois: heads.iter().filter_map(rois).cloned().collect(),
            patches: others.first().and_then(patches).cloned(),
        };
        let order = [heads, others].concat();
        let fits = order.len() == ops.len()
            && joined.rois.len() + usize::from(joined.patches.is_some()) == ops.len()
            && joined.is_sound();
        fits.then_some((joined, order))
    }

    /// True if the kernels support these heads and patches, and all have the same maps.
    fn is_sound(&self) -> bool {
        let Some(first) = self.rois.first() else { return false };
        let same = |head: &RoiAlignGrad| {
            head.images == first.images
                && head.level_sizes == first.level_sizes
                && head.forward.spatial_scales == first.forward.spatial_scales
        };
        let narrow = self.patches.as_ref().is_none_or(|patches| patches.reach == 1);
        self.rois.len() <= MAX_HEADS
            && (narrow || !self.has_many_heads())
            && self.rois.iter().all(same)
            && self.patches.as_ref().is_none_or(|p| p.level_sizes.starts_with(&first.level_sizes))
    }

    /// True if the op needs the kernels for more than [`FEW_HEADS`] heads.
    fn has_many_heads(&self) -> bool {
        self.rois.len() > FEW_HEADS
    }

    /// Height and width of each map.
    fn level_sizes(&self) -> &[[usize; 2]] {
        match &self.patches {
            Some(patches) => &patches.level_sizes,
            None => &self.rois[0].level_sizes,
        }
    }

    /// The gradient op of each head, then of the patches, each with its inputs.
    fn parts<'a, T>(&'a self, inputs: &'a [T]) -> impl Iterator<Item = (&'a dyn Op, &'a [T])> {
        let (of_rois, of_patches) = inputs.split_at(ROI_INPUTS * self.rois.len());
        let rois = self.rois.iter().map(|op| op as &dyn Op).zip(of_rois.chunks(ROI_INPUTS));
        rois.chain(self.patches.iter().map(move |op| (op as &dyn Op, of_patches)))
    }
}

impl Op for LevelGradients {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let patches = PATCH_INPUTS * usize::from(self.patches.is_some());
        check::arity(NAME, "inputs", inputs, ROI_INPUTS * self.rois.len() + patches)?;
        check::arity(NAME, "updates", updates, 0)?;
        let got = format!("{} heads", self.rois.len());
        check::parameter(
            NAME,
            "rois",
            self.is_sound(),
            "one to four heads on maps of equal shapes",
            got,
        )?;
        let mut maps: Vec<TensorDesc> = vec![];
        for (op, inputs) in self.parts(inputs) {
            let own = op.infer(inputs, &[])?;
            let known = maps.len().min(own.len());
            if let Some((map, own)) = maps.iter().zip(&own).find(|(map, own)| map != own) {
                let expected = format!("{:?}, the same for all heads and patches", map.shape);
                return Err(check::shape_error(NAME, "grad_feature_l", own, expected));
            }
            maps.extend_from_slice(&own[known..]);
        }
        Ok(maps)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let flops = self.parts(inputs).map(|(op, inputs)| op.cost(inputs, &[]).flops).sum();
        Cost::streaming(inputs, outputs, flops)
    }

    /// Elements of the gradients of all maps: those of one head, or of the patches, are computed at
    /// a time.
    fn cpu_workspace_len(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc]) -> usize {
        outputs.iter().map(TensorDesc::len).sum()
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        list_bytes(self, |head| inputs[head * ROI_INPUTS + 1].dim(0)).iter().sum()
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (of_rois, of_patches) = args.inputs.split_at(ROI_INPUTS * self.rois.len());
        let bytes = list_bytes(self, |head| of_rois[head * ROI_INPUTS + 1].dim(0));
        let mut offset = 0;
        let (mut launches, mut gradients) = (vec![], vec![]);
        for ((head, inputs), bytes) in self.rois.iter().zip(of_rois.chunks(ROI_INPUTS)).zip(bytes) {
            let (list, of_head) = head.lists(&args.workspace, offset, inputs);
            launches.push(list);
            gradients.push(of_head);
            offset += bytes;
        }
        let few = !self.has_many_heads();
        gradients.resize(if few { FEW_HEADS } else { MAX_HEADS }, no_gradients());
        let patches = match (&self.patches, of_patches) {
            (Some(patches), &[g, idx]) => gradients_arg(Some([g, idx]), patches.anchors_per_cell),
            _ => gradients_arg(None, 1),
        };
        let first = &self.rois[0];
        let pyramid = Pyramid {
            maps: args.outputs.iter().map(Buffer::write).collect(),
            sizes: self.level_sizes(),
            ..first.pyramid(vec![], of_rois[0].dim(3))
        };
        let wide = pyramid.vector() == 8;
        let kernel = match (self.patches.as_ref().map_or(1, |patches| patches.reach), wide, few) {
            (1, true, true) => "level_gradients_f16x8",
            (1, false, true) => "level_gradients_f16",
            (_, true, true) => "level_gradients_5x5_f16x8",
            (_, false, true) => "level_gradients_5x5_f16",
            (_, true, false) => "level_gradients_of_four_f16x8",
            (_, false, false) => "level_gradients_of_four_f16",
        };
        let pooled = self.rois.iter().map(|head| head.forward.pooled).max().unwrap_or(0);
        let tiles = Launch::new(kernel, pyramid.tile_grid()).shared(tile_shared_bytes(pooled));
        let tiles = gradients.into_iter().fold(tiles, Launch::arg);
        launches.push(tiles.arg(patches).arg(pyramid.arg()));
        launches
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        for output in &mut args.outputs {
            output.f32().fill(0.0);
        }
        for (part, inputs) in self.parts(&args.inputs) {
            let descs: Vec<_> = inputs.iter().map(|input| input.desc.clone()).collect();
            let Ok(own) = part.infer(&descs, &[]) else { unreachable!("its shapes were inferred") };
            let mut rest = &mut *args.workspace;
            let mut outputs = vec![];
            for desc in &own {
                let (map, tail) = rest.split_at_mut(desc.len());
                rest = tail;
                outputs.push(TensorMut::new(desc, bytemuck::cast_slice_mut(map)));
            }
            let (inputs, updates) = (inputs.to_vec(), vec![]);
            let mut of_part = CpuArgs { inputs, outputs, updates, workspace: rest };
            part.run_cpu(&mut of_part);
            for (sum, map) in args.outputs.iter_mut().zip(&mut of_part.outputs) {
                sum.f32().iter_mut().zip(map.f32()).for_each(|(sum, v)| *sum += *v);
            }
        }
    }
}

/// Scratch bytes of each head, which has `rows(head)` RoIs.
fn list_bytes(op: &LevelGradients, rows: impl Fn(usize) -> usize) -> Vec<usize> {
    op.rois.iter().enumerate().map(|(i, head)| head.list_bytes(rows(i))).collect()
}

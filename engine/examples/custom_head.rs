//! A custom RoI head that predicts the four extreme points of an object, relative to its box. The
//! program has all commands of `onegraph`, and its models include this head: `cargo run --release
//! -p engine --example custom_head -- train quickstart`.

use std::process::ExitCode;

use dali::DaliError;
use dali::loader::{Clear, ImageRows};
use dali::store::{ObjectView, Segmentation, Stores};
use device::{Launch, LaunchArgs};
use engine::model::roi_heads::{
    Array, Detections, Extent, Found, LabelledRois, Loss, Net, Pair, Place, RoiHead, Rois,
    SampledRois, Truth, pool, register,
};
use graph::{GraphError, TensorId};
use kernels::cpu::{CpuArgs, HostTensor};
use kernels::ops::smooth_l1_loss::{SmoothL1Loss, SmoothL1LossInputs};
use kernels::view::View;
use kernels::{Op, OpError, Role, TensorDesc, check};

fn main() -> ExitCode {
    register(|_model| Some(Box::new(ExtremesHead)));
    engine::cli::main()
}

/// Height and width of the pooled features.
const POOLED: usize = 7;
const HIDDEN: usize = 64;
/// Name of the batch array with the targets, and of the prediction.
const EXTREMES: &str = "extremes";
const OUTPUT: &str = "det_extremes";

/// Predicts x of the topmost point, y of the rightmost, x of the bottommost and y of the leftmost,
/// each 0 to 1.
#[derive(Debug)]
pub(crate) struct ExtremesHead;

impl ExtremesHead {
    /// `[M, 4]`.
    fn predict(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        rois: Rois,
    ) -> Result<TensorId, GraphError> {
        net.part("extremes_head");
        let x = pool(net, maps, rois, POOLED)?;
        let x = net.linear(x, "roi_heads.extremes_head.fc", HIDDEN, true, rois.count)?;
        net.linear(x, "roi_heads.extremes_predictor", 4, false, rois.count)
    }
}

impl RoiHead for ExtremesHead {
    fn arrays(&self) -> Vec<Array> {
        vec![Array {
            name: EXTREMES,
            role: Role::Box,
            extents: vec![Extent::Images, Extent::Objects, Extent::Fixed(4)].into(),
            clear: Clear::Zeros,
        }]
    }

    fn fill(
        &self,
        _store: &Stores,
        _image: usize,
        objects: &[ObjectView<'_>],
        rows: &mut ImageRows<'_>,
    ) -> Result<(), DaliError> {
        let row: &mut [f32] = rows.row_mut(EXTREMES)?;
        for (of_object, object) in row.chunks_mut(4).zip(objects) {
            of_object.copy_from_slice(&extremes(object));
        }
        Ok(())
    }

    fn losses(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        sampled: &SampledRois,
        truth: &Truth,
    ) -> Result<Vec<Loss>, GraphError> {
        let LabelledRois { rois, labels, matched } = sampled.positives;
        let pred = self.predict(net, maps, rois)?;
        let Some(extremes) = net.program.find(EXTREMES) else { unreachable!("its array") };
        let inputs = [extremes, matched, rois.image_idx, truth.images.views];
        let target = net.program.apply1(GatherExtremes, inputs)?;
        let ipg = net.spec.config.train.images_per_group;
        let (image_idx, num_images) = (rois.image_idx, truth.images.num_images);
        let inputs = SmoothL1LossInputs { pred, target, labels, image_idx, num_images };
        let op = SmoothL1Loss { beta: 0.1, ipg, rows_per_image: None };
        let value = net.program.apply1(op, inputs)?;
        Ok(vec![Loss { name: "loss_extremes", value, weight: 1.0 }])
    }

    fn detect(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        detections: Detections,
    ) -> Result<(), GraphError> {
        let extremes = self.predict(net, maps, detections.rois)?;
        net.program.keep(OUTPUT, extremes);
        Ok(())
    }

    fn outputs(&self) -> &'static [&'static str] {
        &[OUTPUT]
    }

    fn numbers<'a>(
        &self,
        _stores: &'a Stores,
        pairs: &dyn Fn() -> Vec<Pair<'a>>,
    ) -> Vec<(String, f64)> {
        let mut errors = Vec::new();
        for Pair { object, found } in pairs() {
            let [x, y, width, height] = object.bbox_xywh;
            let [top, right, bottom, left] = extremes(&object);
            // The target coordinates, relative to the annotated box.
            let points = &found.further[EXTREMES];
            for (at, low, side, share) in [
                (points[0], x, width, top),
                (points[3], y, height, right),
                (points[4], x, width, bottom),
                (points[7], y, height, left),
            ] {
                errors.push(f64::from(((at - low) / side.max(1.0) - share).abs()));
            }
        }
        let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
        vec![("extremes_error".into(), mean)]
    }

    fn decode(&self, outputs: &[HostTensor], row: usize, place: Place, object: &mut Found) {
        let shares = &outputs[0].as_f32()[4 * row..4 * row + 4];
        let [x1, y1, x2, y2] = place.bbox;
        let points = [
            [x1 + shares[0] * (x2 - x1), y1],
            [x2, y1 + shares[1] * (y2 - y1)],
            [x1 + shares[2] * (x2 - x1), y2],
            [x1, y1 + shares[3] * (y2 - y1)],
        ];
        object.further.insert(EXTREMES.into(), points.concat());
    }
}

/// The extreme points of an object's outline, relative to its box; the box centre if the mask is
/// not a polygon.
pub(crate) fn extremes(object: &ObjectView<'_>) -> [f32; 4] {
    let [x, y, width, height] = object.bbox_xywh;
    let Segmentation::Polygons(rings) = &object.segmentation else { return [0.5; 4] };
    let points = || rings.iter().flat_map(|ring| ring.chunks_exact(2)).map(|p| [p[0], p[1]]);
    let farthest = |axis: usize, sign: f32| {
        points().max_by(|a, b| (sign * a[axis]).total_cmp(&(sign * b[axis]))).unwrap_or([x, y])
    };
    let across = |point: [f32; 2]| ((point[0] - x) / width.max(1.0)).clamp(0.0, 1.0);
    let down = |point: [f32; 2]| ((point[1] - y) / height.max(1.0)).clamp(0.0, 1.0);
    let (top, right) = (farthest(1, -1.0), farthest(0, 1.0));
    let (bottom, left) = (farthest(1, 1.0), farthest(0, -1.0));
    [across(top), down(right), across(bottom), down(left)]
}

/// Inputs: `extremes [N, G, 4]`, `matched [M]`, `image_idx [M]`, `views [N, 15]`. Output `[M, 4]`:
/// row i has the extreme points of object `matched[i]` of image `image_idx[i]`, flipped and rotated
/// like the image (`views`). Cropping leaves them unchanged. A head for GPUs also implements
/// `launches`.
#[derive(Debug)]
struct GatherExtremes;

impl Op for GatherExtremes {
    fn name(&self) -> &'static str {
        "gather_extremes"
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(self.name(), "inputs", inputs, 4)?;
        check::arity(self.name(), "updates", updates, 0)?;
        check::integers(self.name(), "image_idx", &inputs[2], &inputs[1].shape)?;
        Ok(vec![TensorDesc::new(Role::Box, &[inputs[1].len(), 4])])
    }

    fn launches(&self, _args: &LaunchArgs<'_>) -> Vec<Launch> {
        vec![]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let objects = args.inputs[0].desc.dim(1);
        let (matched, image_idx) = (args.inputs[1].i32(), args.inputs[2].i32());
        let (extremes, views) = (args.inputs[0].f32(), args.inputs[3].i32());
        for (i, row) in args.outputs[0].f32().chunks_mut(4).enumerate() {
            let (image, object) = (image_idx[i].max(0) as usize, matched[i].max(0) as usize);
            let at = 4 * (image * objects + object);
            let [mut top, mut right, mut bottom, mut left] = [0, 1, 2, 3].map(|k| extremes[at + k]);
            let view = View::of(views, image);
            if view.x.mirrored != 0 {
                (top, right, bottom, left) = (1.0 - top, left, 1.0 - bottom, right);
            }
            if view.y.mirrored != 0 {
                (top, right, bottom, left) = (bottom, 1.0 - right, top, 1.0 - left);
            }
            if view.transposed != 0 {
                (top, right, bottom, left) = (left, bottom, right, top);
            }
            row.copy_from_slice(&[top, right, bottom, left]);
        }
    }
}

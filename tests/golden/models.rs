//! The golden model: its config from the metadata, its weights, and its inputs.

use std::collections::BTreeMap;
use std::sync::Arc;

use configs::{Adamw, Config, NormKind, Optimizer};
use engine::dataset::network_size;
use engine::model::roi_heads::seen_keypoints;
use engine::model::{
    BuiltProgram, ImageSize, ModelSpec, Param, SlotShape, detection_program, training_program,
};
use engine::runtime::products;
use engine::weights::{
    Dialect, ExportForm, Extent, Values, WeightsFile, export_weights, fold, initial_state,
    weights_from_tensors,
};
use graph::substitute::substitute;
use graph::{CpuExecutor, Program, StateSet};
use kernels::isa::Products;
use kernels::ops::preprocess::Preprocess;
use kernels::view::View;
use score::encode_mask;
use serde_json::Value;

use crate::convert::count;
use crate::images::preprocessed;
use crate::recorded::Settings;
use crate::support::{Case, Family};

/// The models of torchvision that are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// `maskrcnn_resnet50_fpn`.
    Plain,
    /// `maskrcnn_resnet50_fpn_v2`.
    V2,
    /// `keypointrcnn_resnet50_fpn`.
    Keypoint,
}

impl Recorded {
    /// The family that holds a part of the model.
    pub(crate) fn family(self, part: &str) -> &'static str {
        match (self, part) {
            (Self::Plain, "weights") => "model_weights",
            (Self::Plain, "inputs_losses") => "model_inputs_losses",
            (Self::Plain, "features") => "model_features",
            (Self::Plain, "rpn") => "model_rpn",
            (Self::Plain, "roi") => "model_roi",
            (Self::Plain, "grads") => "model_grads",
            (Self::Plain, "eval") => "model_eval",
            (Self::V2, "weights") => "tv_maskrcnn_v2_weights",
            (Self::V2, "inputs_losses" | "features" | "rpn") => "tv_maskrcnn_v2",
            (Self::V2, "roi" | "grads" | "eval" | "steps") => "tv_maskrcnn_v2_heads",
            (Self::Keypoint, "weights") => "tv_keypointrcnn_weights",
            (Self::Keypoint, "inputs_losses" | "features" | "rpn") => "tv_keypointrcnn",
            (Self::Keypoint, "roi" | "grads" | "eval" | "steps") => "tv_keypointrcnn_heads",
            (_, part) => panic!("no family of {part}"),
        }
    }

    /// The part that holds its steps, and their case.
    pub(crate) fn steps(self) -> (&'static str, &'static str) {
        if self == Self::Plain { ("inputs_losses", "sgd5") } else { ("steps", "adamw3") }
    }

    fn preset(self) -> &'static str {
        match self {
            Self::Plain => "torchvision_r50",
            Self::V2 => "torchvision_r50_v2",
            Self::Keypoint => "torchvision_keypoint_r50",
        }
    }

    pub(crate) fn open(self, part: &str) -> Option<Family> {
        Family::open(self.family(part))
    }
}

/// All of them.
pub(crate) const ALL: [Recorded; 3] = [Recorded::Plain, Recorded::V2, Recorded::Keypoint];

/// The golden model with its inputs.
pub(crate) struct GoldenModel {
    pub(crate) of: Recorded,
    pub(crate) config: Config,
    pub(crate) inputs: Family,
    weights: BTreeMap<String, Values>,
    classes: usize,
    images: Vec<(usize, usize)>,
    network: Vec<(usize, usize)>,
}

/// A model of golden data, to be built and given its weights.
pub(crate) struct Fixture<'a> {
    pub(crate) config: &'a Config,
    /// Under torchvision's names.
    pub(crate) tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
    /// Foreground classes.
    pub(crate) classes: usize,
    /// Network sizes (height, width).
    pub(crate) network: &'a [(usize, usize)],
    pub(crate) slot: SlotShape,
}

/// A function that adds a program's nodes.
pub(crate) type Build = fn(&ModelSpec<'_>) -> Result<BuiltProgram, engine::EngineError>;

impl Fixture<'_> {
    /// The program with its weights, without inputs, its intermediate tensors readable; those of
    /// `given` are inputs.
    pub(crate) fn load(&self, given: &[&str], build: Build) -> Loaded {
        let divisor = self.config.input.size_divisor;
        let largest = |f: fn(&(usize, usize)) -> usize| {
            self.network.iter().map(f).max().expect("an image").next_multiple_of(divisor)
        };
        let padded = ImageSize { height: largest(|s| s.0), width: largest(|s| s.1) };
        let spec = ModelSpec {
            config: self.config,
            num_classes: self.classes,
            images: self.network.len(),
            padded,
            slot: self.slot,
            target: device::Target::Cpu,
            part: engine::model::Part::whole(),
            observe: true,
        };
        let mut built = build(&spec).expect("the golden model builds");
        let preprocess = preprocess_of(&built.program);
        substitute(&mut built.program, given);
        let eps = self.config.model.backbone.norm_eps;
        let mut state = initial_state(&built.program, &built.params, 0, eps);
        let report = weights_from_tensors(&self.tensors, Extent::Model, &built.params, &mut state);
        assert!(report.missing.is_empty(), "missing {:?}", report.missing);
        assert!(report.mismatched.is_empty(), "mismatched {:?}", report.mismatched);
        assert!(report.unexpected.is_empty(), "unexpected {:?}", report.unexpected);
        fold(&mut state, &built.params, eps);
        if let Some(scale) = state.get_mut("loss_scale") {
            scale.as_f32_mut()[0] = 1.0;
        }
        let BuiltProgram { program, params, losses, .. } = built;
        let executor = CpuExecutor::new(Arc::new(program), &state).expect("it plans");
        let executor = executor.taking(products(self.config).expect("a processor"));
        Loaded { executor, state, params, losses, preprocess }
    }
}

/// A program of the model, ready to run.
pub(crate) struct Loaded {
    pub(crate) executor: CpuExecutor,
    pub(crate) state: StateSet,
    pub(crate) params: Vec<Param>,
    pub(crate) losses: Vec<&'static str>,
    /// The source of the program's images.
    preprocess: Preprocess,
}

impl Loaded {
    /// A tensor that the program keeps.
    pub(crate) fn f32(&self, name: &str) -> &[f32] {
        self.executor.f32(name).unwrap_or_else(|e| panic!("{e}"))
    }

    pub(crate) fn i32(&self, name: &str) -> &[i32] {
        self.executor.i32(name).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The same, whose products are taken so.
    pub(crate) fn taking(self, products: Products) -> Self {
        Self { executor: self.executor.taking(products), ..self }
    }
}

fn preprocess_of(program: &Program) -> Preprocess {
    let ops = program.nodes().iter().map(|node| node.op.as_ref() as &dyn std::any::Any);
    *ops.filter_map(|op| op.downcast_ref()).next().expect("a program of images")
}

impl GoldenModel {
    /// Opens weights and inputs; nothing, and a `SKIPPED` line, where they are absent.
    pub(crate) fn open(of: Recorded) -> Option<Self> {
        let (weights, inputs) = (of.open("weights")?, of.open("inputs_losses")?);
        let is_weight = |key: &String| !key.ends_with(".num_batches_tracked");
        let tensors = weights.keys().into_iter().filter(is_weight).map(|key| {
            let t = weights.tensor::<f32>(&key);
            (key, (t.shape, t.data))
        });
        let tensors = tensors.collect();
        let (file, steps) = of.steps();
        let file = of.open(file)?;
        let (config, classes, images, network) =
            settings(of, weights.case("state_dict"), file.case(steps));
        Some(Self { of, config, inputs, weights: tensors, classes, images, network })
    }

    /// The same model with weights that were exported, and read from that file.
    pub(crate) fn through(mut self, form: ExportForm, dialect: Dialect) -> Self {
        let Loaded { params, state, .. } = self.detection();
        let bytes = export_weights(&params, &state, None, form, dialect).expect("an export");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), bytes).expect("a file");
        let read = WeightsFile::open(file.path()).expect("an export");
        assert_eq!(read.dialect(), dialect);
        let tensors = read.tensors(self.config.model.backbone.norm_eps);
        for (name, (shape, values)) in &self.weights {
            let (read_shape, read_values) = &tensors[name];
            // detectron2 has no rows of the background there.
            let lacks = ["box_predictor.bbox_pred.", "mask_fcn_logits."];
            let lacks = dialect == Dialect::Detectron2 && lacks.iter().any(|l| name.contains(l));
            let dead = if lacks { values.len() / (self.classes + 1) } else { 0 };
            assert_eq!(shape, read_shape, "{name}");
            assert!(values[dead..] == read_values[dead..], "{name} has changed");
            assert!(read_values[..dead].iter().all(|value| *value == 0.0), "{name}");
        }
        assert_eq!(tensors.len(), self.weights.len());
        self.weights = tensors;
        self
    }

    /// The same model, whose RPN has its last convolution twice.
    pub(crate) fn with_another_rpn_conv(mut self) -> Self {
        let last = self.config.model.rpn.convs - 1;
        for what in ["weight", "bias"] {
            let name = |i: usize| format!("rpn.head.conv.{i}.0.{what}");
            let tensor = self.weights[&name(last)].clone();
            self.weights.insert(name(last + 1), tensor);
        }
        self.config.model.rpn.convs += 1;
        self
    }

    pub(crate) fn num_images(&self) -> usize {
        self.images.len()
    }

    /// Keypoints of an object.
    pub(crate) fn keypoints(&self) -> usize {
        self.config.model.keypoint_head.keypoints
    }

    /// Source sizes (height, width).
    pub(crate) fn image_sizes(&self) -> &[(usize, usize)] {
        &self.images
    }

    /// Network sizes (height, width).
    pub(crate) fn network_sizes(&self) -> &[(usize, usize)] {
        &self.network
    }

    /// The training step with its inputs written, but for those of `given`.
    pub(crate) fn training(&self, given: &[&str]) -> Loaded {
        let mut loaded = self.load(given, training_program);
        let n = self.images.len();
        let case = self.inputs.case("inputs");
        let e = &mut loaded.executor;
        e.input_mut("image_keys").expect("an input").bytes_mut().fill(0);
        for i in 0..n {
            let boxes = case.f32(&format!("boxes{i}"));
            let labels = case.i32(&format!("labels{i}"));
            let g = e.input_mut("gt_boxes").expect("an input").desc.dim(1);
            row(e, "gt_boxes", i, 4 * g, &boxes.data);
            row(e, "gt_classes", i, g, &labels.data);
            row(e, "gt_counts", i, 1, &[labels.data.len() as i32]);
            match self.of {
                Recorded::Keypoint => self.write_keypoints(e, i),
                _ => self.write_masks(e, i),
            }
        }
        loaded
    }

    /// The detection pass with its inputs written.
    pub(crate) fn detection(&self) -> Loaded {
        self.load(&[], detection_program)
    }

    fn load(&self, given: &[&str], build: Build) -> Loaded {
        let fixture = Fixture {
            config: &self.config,
            tensors: self.weights.clone(),
            classes: self.classes,
            network: &self.network,
            slot: self.slot(),
        };
        // The recorded images are no bytes.
        let given: Vec<_> = given.iter().copied().chain(["batch"]).collect();
        let mut loaded = fixture.load(&given, build);
        self.write_images(&mut loaded);
        loaded
    }

    fn slot(&self) -> SlotShape {
        let case = self.inputs.case("inputs");
        let all = 0..self.images.len();
        let most = |f: &dyn Fn(usize) -> usize| all.clone().map(f).max().unwrap_or(1).max(1);
        let objects = most(&|i| case.i32(&format!("labels{i}")).data.len());
        SlotShape {
            pixels: most(&|i| 3 * self.images[i].0 * self.images[i].1),
            objects,
            parts: objects,
            coords: 1,
            runs: most(&|i| self.runs(i).iter().map(Vec::len).sum()),
        }
    }

    fn runs(&self, image: usize) -> Vec<Vec<u32>> {
        if self.of == Recorded::Keypoint {
            return vec![];
        }
        let masks = self.inputs.case("inputs").u8(&format!("masks{image}"));
        let (h, w) = self.images[image];
        masks
            .data
            .chunks_exact(h * w)
            .map(|bitmap| encode_mask(h as u32, w as u32, bitmap).counts)
            .collect()
    }

    fn write_images(&self, loaded: &mut Loaded) {
        let (e, case) = (&mut loaded.executor, self.inputs.case("inputs"));
        let n = self.images.len();
        row(e, "num_images", 0, 1, &[n as i32]);
        for (i, ((h, w), (nh, nw))) in self.images.iter().zip(&self.network).enumerate() {
            let [source, network] = [[*h as i32, *w as i32], [*nh as i32, *nw as i32]];
            row(e, "views", i, View::LEN, View::whole(source, network).row());
            row(e, "network_sizes", i, 2, &network);
        }
        let pixels = |i: usize| case.f32(&format!("image{i}_hwc")).data;
        let images: Vec<_> = (0..n).map(pixels).collect();
        let views = e.input_mut("views").expect("an input").clone();
        let others = [views, count(n)];
        let batch = preprocessed("images", loaded.preprocess, &images, &others);
        row(e, "batch", 0, batch.data.len(), &batch.data);
    }

    /// The keypoints as the network sees them, who are no other than the data's filler makes them.
    fn write_keypoints(&self, e: &mut CpuExecutor, image: usize) {
        let points = self.inputs.case("inputs").f32(&format!("keypoints{image}")).data;
        let [source, network] =
            [self.images[image], self.network[image]].map(|(h, w)| [h as i32, w as i32]);
        let view = View::whole(source, network);
        let partners: Vec<usize> = (0..points.len() / 3).collect();
        let seen = seen_keypoints(points.as_chunks().0, &partners, &view, 0.0);
        let per_object = self.config.model.keypoint_head.keypoints;
        let len = 3 * per_object * self.slot().objects;
        row(e, "keypoints", image, len, seen.as_flattened());
    }

    fn write_masks(&self, e: &mut CpuExecutor, image: usize) {
        let (mut index, mut parts, mut flat) = (Vec::new(), Vec::new(), Vec::new());
        for (g, runs) in self.runs(image).iter().enumerate() {
            index.extend([1, g as i32, 1]);
            parts.extend([flat.len() as i32, runs.len() as i32]);
            flat.extend(runs.iter().map(|r| *r as i32));
        }
        let slot = self.slot();
        row(e, "segm_index", image, 3 * slot.objects, &index);
        row(e, "segm_parts", image, 2 * slot.parts, &parts);
        row(e, "runs", image, slot.runs, &flat);
        row(e, "coords", image, slot.coords, &[0.0f32]);
    }
}

/// Writes the head of row `i` of an input whose rows have `len` elements; the rest of it is 0.
pub(crate) fn row<T: bytemuck::Pod>(
    executor: &mut CpuExecutor,
    name: &str,
    i: usize,
    len: usize,
    values: &[T],
) {
    let tensor = executor.input_mut(name).unwrap_or_else(|e| panic!("{e}"));
    let all: &mut [T] = bytemuck::cast_slice_mut(tensor.bytes_mut());
    let row = &mut all[i * len..(i + 1) * len];
    row.fill(T::zeroed());
    row[..values.len()].copy_from_slice(values);
}

/// Writes the bytes of a case's images, sizes in the file and in the network, some mirrored.
pub(crate) fn write_images(
    e: &mut CpuExecutor,
    case: Case<'_>,
    [images, network]: [&[(usize, usize)]; 2],
    flips: &[i32],
) {
    row(e, "num_images", 0, 1, &[images.len() as i32]);
    for (i, (&(h, w), &(nh, nw))) in images.iter().zip(network).enumerate() {
        let pixels = case.u8(&format!("image{i}_rgb_u8_hwc"));
        assert_eq!(pixels.shape, [h, w, 3]);
        let len = e.input_mut("pixels").expect("an input").desc.dim(1);
        row(e, "pixels", i, len, &pixels.data);
        let [source, network] = [[h as i32, w as i32], [nh as i32, nw as i32]];
        let mut view = View::whole(source, network);
        view.x.mirrored = flips[i];
        row(e, "views", i, View::LEN, view.row());
        row(e, "network_sizes", i, 2, &network);
    }
}

/// Writes the polygons of an image's objects.
pub(crate) fn write_polygons(e: &mut CpuExecutor, case: Case<'_>, slot: SlotShape, i: usize) {
    row(e, "coords", i, slot.coords, &case.f32(&format!("raw_poly_xy{i}")).data);
    let rings = case.i32(&format!("raw_poly_offsets{i}")).data;
    let parts: Vec<i32> = rings.windows(2).flat_map(|o| [o[0], o[1] - o[0]]).collect();
    row(e, "segm_parts", i, 2 * slot.parts, &parts);
    let objects = case.i32(&format!("raw_poly_instance_offsets{i}")).data;
    let polygons: Vec<i32> = objects.windows(2).flat_map(|o| [0, o[0], o[1] - o[0]]).collect();
    row(e, "segm_index", i, 3 * slot.objects, &polygons);
}

pub(crate) fn pairs(value: &Value) -> Vec<(usize, usize)> {
    let number = |v: &Value| v.as_u64().expect("a size") as usize;
    let list = value.as_array().expect("a list of sizes");
    list.iter().map(|p| (number(&p[0]), number(&p[1]))).collect()
}

pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|v| v.as_f64().expect("a number")).collect()
}

/// Heights and widths of images.
pub(crate) type Sizes = Vec<(usize, usize)>;

/// The metadata of a model: its config, its classes, and the sizes of the images in the file and in
/// the network.
pub(crate) fn settings(
    of: Recorded,
    meta: Case<'_>,
    steps: Case<'_>,
) -> (Config, usize, Sizes, Sizes) {
    let images = pairs(meta.attribute("imgs"));
    let (s, steps) = (Settings(meta.attributes(), ""), Settings(steps.attributes(), ""));
    let mut c = config(of.preset(), s, images.len());
    match of {
        Recorded::Plain => {
            s.is("mode", "hash");
            c.model.backbone.norm_eps = s.float("eps_frozen_bn");
            optimizer_of(&mut c, steps);
        }
        Recorded::V2 | Recorded::Keypoint => {
            c.model.backbone.norm_eps = s.float("bn_eps");
            later(&mut c, s);
            adamw_of(&mut c, steps);
        }
    }
    s.is("lr", steps.float("lr"));
    c.solver.learning_rate = steps.float("lr");
    (c, s.usize("classes") - 1, images, pairs(meta.attribute("image_sizes_hw")))
}

/// Fails unless the recorded sizes in the network follow from those in the files by the config.
pub(crate) fn check_sizes(
    config: &Config,
    s: Settings<'_>,
    images: &[(usize, usize)],
    network: &[(usize, usize)],
) {
    let in_network = |&(height, width): &(usize, usize)| {
        let (height, width) = network_size(config, height as u32, width as u32);
        (height as usize, width as usize)
    };
    let sizes: Vec<_> = images.iter().map(in_network).collect();
    assert_eq!(sizes, network, "image_sizes_hw by raw_hw, raw_wh, min_size, max_size");
    let largest = |side: fn(&(usize, usize)) -> usize| {
        let largest = network.iter().map(side).max().unwrap_or_default();
        largest.next_multiple_of(config.input.size_divisor)
    };
    let padded = [largest(|hw| hw.0), largest(|hw| hw.1)];
    assert_eq!(s.usizes("padded_hw"), padded, "padded_hw by size_divisible");
}

/// Settings that the second set of golden data records too, some of them twice.
fn later(c: &mut Config, s: Settings<'_>) {
    for [name, again] in [
        ["rpn_convs", "rpn.conv_depth"],
        ["rpn_batch", "rpn.batch"],
        ["rpn_frac", "rpn.pos_fraction"],
        ["roi_batch", "roi.batch"],
        ["roi_frac", "roi.pos_fraction"],
        ["pre", "rpn.pre_nms"],
        ["post", "rpn.post_nms"],
        ["score_thresh", "roi.score_thresh"],
        ["det", "roi.detections"],
        ["sizes", "rpn.sizes"],
        ["roi.box_pool.1", "roi.mask_or_keypoint_pool.1"],
    ] {
        s.agree(&[name, again]);
    }
    let model = &mut c.model;
    let pooled = s.usize("roi.mask_or_keypoint_pool.0");
    if model.kind.has_keypoints() {
        s.is("architecture", "keypointrcnn_resnet50_fpn");
        model.keypoint_head.keypoints = s.usize("keypoints");
        model.keypoint_head.channels = s.usizes("kp");
        model.keypoint_head.pooled = pooled;
    } else {
        s.is("architecture", "maskrcnn_resnet50_fpn_v2");
        model.box_head.channels = s.usizes("box_convs");
        model.box_head.hidden.truncate(1);
        model.mask_head.pooled = pooled;
        // Scales and shifts of its norms are trained.
        let norm = NormKind::FrozenStatistics;
        model.backbone.norm = norm;
        [model.fpn.norm, model.box_head.norm, model.mask_head.norm] = [Some(norm); 3];
    }
    model.rpn.convs = s.usize("rpn.conv_depth");
    model.rpn.low_quality_matches = s.flag("rpn.allow_low_quality");
    model.rpn.min_size = s.f32("rpn.min_size");
    model.rpn.beta = s.f32("rpn.smooth_l1_beta");
    model.anchors.ratios = s.f32s("rpn.ratios");
    model.box_head.beta = s.f32("roi.smooth_l1_beta");
    model.box_head.pooled = s.usize("roi.box_pool.0");
    model.roi.sampling_ratio = s.usize("roi.box_pool.1");
    model.detections.min_size = s.f32("roi.min_size");
    c.input.mean = s.array("image_mean");
    c.input.std = s.array("image_std");
    c.input.size_divisor = s.usize("size_divisible");
    c.input.augment.min_sizes = vec![];
}

fn adamw_of(c: &mut Config, steps: Settings<'_>) {
    c.solver.optimizer = Optimizer::Adamw;
    c.solver.weight_decay = steps.float("weight_decay");
    let [beta1, beta2, eps] = ["beta1", "beta2", "eps"].map(|name| steps.float(name));
    c.solver.adamw = Adamw { beta1, beta2, eps };
}

fn config(preset: &str, s: Settings<'_>, images: usize) -> Config {
    let mut c = Config::load(preset, &[]).expect("the preset loads");
    stated(&mut c, s, images);
    c.model.backbone.frozen_stages = 0;
    let rpn = &mut c.model.rpn;
    [rpn.pre_nms_top_n_train, rpn.pre_nms_top_n_test] = s.array("rpn.pre_nms").map(|n| n as usize);
    [rpn.post_nms_top_n_train, rpn.post_nms_top_n_test] =
        s.array("rpn.post_nms").map(|n| n as usize);
    if c.model.kind.has_masks() {
        c.model.mask_head.deconv_channels = s.usize("mdim");
    }
    c.input.flip_probability = 0.0;
    c.solver.warmup_steps = 0;
    c.solver.milestones.clear();
    c.solver.clip_norm = 0.0;
    c
}

/// Copies the settings that the metadata of all golden models state by the same names.
pub(crate) fn stated(c: &mut Config, s: Settings<'_>, images: usize) {
    let model = &mut c.model;
    model.backbone.blocks = s.usizes("layers");
    model.backbone.stem_channels = s.usize("w");
    model.backbone.width = s.usize("w");
    model.fpn.channels = s.usize("fpn");
    model.anchors.sizes = s.f32s("sizes");
    model.rpn.nms_threshold = s.f32("rpn.nms");
    model.rpn.batch_size_per_image = s.usize("rpn.batch");
    model.rpn.positive_fraction = s.f32("rpn.pos_fraction");
    model.rpn.fg_iou = s.f32("rpn.fg");
    model.rpn.bg_iou = s.f32("rpn.bg");
    model.roi.batch_size_per_image = s.usize("roi.batch");
    model.roi.positive_fraction = s.f32("roi.pos_fraction");
    model.roi.fg_iou = s.f32("roi.fg");
    model.roi.bg_iou = s.f32("roi.bg");
    model.roi.box_weights = s.array("roi.weights");
    model.detections.score_threshold = s.f32("roi.score_thresh");
    model.detections.nms_threshold = s.f32("roi.nms");
    model.detections.per_image = s.usize("roi.detections");
    model.box_head.hidden = vec![s.usize("rep"); 2];
    if model.kind.has_masks() {
        model.mask_head.channels = s.usizes("mask");
    }
    c.input.min_size = s.usize("min_size");
    c.input.max_size = s.usize("max_size");
    c.solver.dynamic_loss_scale = false;
    c.train.batch_size = images;
    c.train.images_per_group = images;
}

/// Copies the settings of plain SGD.
pub(crate) fn optimizer_of(c: &mut Config, sgd: Settings<'_>) {
    c.solver.momentum = sgd.float("momentum");
    c.solver.weight_decay = sgd.float("weight_decay");
}

pub(crate) fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} in {value}"))
}

pub(crate) fn usizes(value: &Value) -> Vec<usize> {
    numbers(value).iter().map(|x| *x as usize).collect()
}

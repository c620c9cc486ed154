//! The recorded models with their weights and inputs.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Target;
use engine::config::Config;
use engine::dataset::inclusive_box;
use engine::model::roi_heads::seen_keypoints;
use engine::model::{
    BuiltProgram, ImageSize, ModelSpec, Param, Part, SlotShape, detection_program, training_program,
};
use engine::runtime::gemm_settings;
use engine::weights::{
    Dialect, ExportForm, Extent, Values, WeightsFile, export_weights, fold, initial_state,
    weights_from_tensors,
};
use graph::substitute::substitute;
use graph::{CpuExecutor, Program, StateSet};
use kernels::isa::GemmSettings;
use kernels::ops::preprocess::Preprocess;
use kernels::view::View;
use safetensors::SafeTensors;
use score::encode_mask;
use serde_json::Value;
use tests::SAMPLES;

use crate::convert::count;
use crate::images::preprocessed;
use crate::model_configs::{Recorded, Sizes, pairs, usizes};
use crate::samples::{KeyedStep, Rois, row, sampled, write_anchors};
use crate::support::{Family, Report, golden_dir, golden_json};

/// A recorded model with its inputs.
pub(crate) struct Model {
    pub(crate) of: &'static Recorded,
    pub(crate) config: Config,
    pub(crate) inputs: Family,
    /// The weights under torchvision's names.
    tensors: BTreeMap<String, Values>,
    /// The reference's name of each parameter whose name differs from torchvision's.
    names: BTreeMap<String, String>,
    /// Foreground classes.
    pub(crate) classes: usize,
    /// Heights and widths of the images in their files, and, in `network`, of the network input.
    pub(crate) images: Sizes,
    pub(crate) network: Sizes,
    /// 1 for each image that is flipped in training.
    flips: Vec<i32>,
    /// Images whose objects are omitted.
    pub(crate) emptied: Vec<usize>,
}

/// A function that adds a program's nodes.
type Build = fn(&ModelSpec<'_>) -> Result<BuiltProgram, engine::EngineError>;

/// A program of a model, ready to run.
pub(crate) struct Loaded {
    pub(crate) executor: CpuExecutor,
    pub(crate) state: StateSet,
    pub(crate) params: Vec<Param>,
    pub(crate) losses: Vec<&'static str>,
    /// The preprocessing with which the program reads images.
    preprocess: Preprocess,
}

impl Loaded {
    /// An output tensor of the program.
    pub(crate) fn f32(&self, name: &str) -> &[f32] {
        self.executor.f32(name).unwrap_or_else(|e| panic!("{e}"))
    }

    pub(crate) fn i32(&self, name: &str) -> &[i32] {
        self.executor.i32(name).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Replaces the GEMM settings.
    pub(crate) fn taking(self, products: GemmSettings) -> Self {
        Self { executor: self.executor.taking(products), ..self }
    }

    pub(crate) fn run(mut self) -> Self {
        self.executor.run(&mut self.state);
        self
    }

    pub(crate) fn trained(&self) -> impl Iterator<Item = &Param> {
        self.params.iter().filter(|param| param.trained.is_some())
    }
}

/// The objects of an image, as program inputs.
#[derive(Default)]
struct Objects {
    boxes: Vec<f32>,
    labels: Vec<i32>,
    keypoints: Vec<f32>,
    segm_index: Vec<i32>,
    segm_parts: Vec<i32>,
    coords: Vec<f32>,
    runs: Vec<i32>,
}

impl Model {
    /// Opens weights and inputs; prints a `SKIPPED` line and returns `None` if they are missing.
    pub(crate) fn open(of: &'static Recorded) -> Option<Self> {
        let (weights, inputs) = (of.open("weights")?, of.open("inputs_losses")?);
        let names = match of.dialect {
            Dialect::Benchmark => mlperf_names()?,
            _ => BTreeMap::new(),
        };
        let (config, meta) = (of.config(), weights.case("state_dict"));
        let sizes = |name: &str| pairs(meta.attribute(name));
        let (classes, images) = match of.dialect {
            Dialect::Detectron2 => {
                let classes = &meta.attribute("cfg")["MODEL"]["ROI_HEADS"]["NUM_CLASSES"];
                (classes.as_u64().expect("a number") as usize, sizes("raw_hw"))
            }
            Dialect::Benchmark => {
                let images = sizes("raw_wh").into_iter().map(|(width, height)| (height, width));
                (meta.usize("classes") - 1, images.collect())
            }
            _ => (meta.usize("classes") - 1, sizes("imgs")),
        };
        let network = sizes("image_sizes_hw");
        let flips = match of.is_torchvision() {
            true => vec![0; images.len()],
            false => usizes(meta.attribute("flip")).iter().map(|v| *v as i32).collect(),
        };
        let path = golden_dir().join(format!("{}.safetensors", of.family("weights")));
        let file = WeightsFile::open(&path).expect("weights under the reference's names");
        assert_eq!(file.dialect(), of.dialect);
        let tensors = file.tensors(config.model.backbone.norm_eps);
        let emptied = vec![];
        Some(Self { of, config, inputs, tensors, names, classes, images, network, flips, emptied })
    }

    /// The model with weights that were exported to a file and loaded from it.
    pub(crate) fn through(mut self, form: ExportForm, dialect: Dialect) -> Self {
        let Loaded { params, state, .. } = self.detection();
        let bytes = export_weights(&params, &state, None, form, dialect).expect("an export");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), bytes).expect("a file");
        let read = WeightsFile::open(file.path()).expect("an export");
        assert_eq!(read.dialect(), dialect);
        self.tensors = read.tensors(self.config.model.backbone.norm_eps);
        self
    }

    /// The model with the last convolution of its RPN repeated.
    pub(crate) fn with_another_rpn_conv(mut self) -> Self {
        let last = self.config.model.rpn.convs - 1;
        for what in ["weight", "bias"] {
            let name = |i: usize| format!("rpn.head.conv.{i}.0.{what}");
            let tensor = self.tensors[&name(last)].clone();
            self.tensors.insert(name(last + 1), tensor);
        }
        self.config.model.rpn.convs += 1;
        self
    }

    pub(crate) fn num_images(&self) -> usize {
        self.images.len()
    }

    pub(crate) fn has_keypoints(&self) -> bool {
        self.config.model.kind.has_keypoints()
    }

    /// The stages of a cascade, as in tensor names of the golden data; a model without cascade
    /// returns `None` as its only stage.
    pub(crate) fn stages(&self) -> Vec<Option<usize>> {
        match self.config.model.cascade.fg_iou.len() {
            0 => vec![None],
            further => (0..=further).map(Some).collect(),
        }
    }

    /// onegraph's label for a detectron2 class; detectron2's last class is the background.
    pub(crate) fn label(&self, class: i32) -> i32 {
        if class as usize == self.classes { 0 } else { class + 1 }
    }

    /// The parameters under the reference's names and in its layout, with the values in `state`.
    pub(crate) fn exported(&self, loaded: &Loaded, state: &StateSet) -> BTreeMap<String, Vec<f32>> {
        let dialect =
            if self.of.is_detectron2() { Dialect::Detectron2 } else { Dialect::Torchvision };
        let form = ExportForm::Safetensors;
        let bytes = export_weights(&loaded.params, state, None, form, dialect).expect("an export");
        let file = SafeTensors::deserialize(&bytes).expect("sound");
        let theirs = |name: &str| self.names.get(name).map_or(name, String::as_str).to_owned();
        let values = |data: &[u8]| bytemuck::pod_collect_to_vec(data);
        file.iter().map(|(name, view)| (theirs(name), values(view.data()))).collect()
    }

    /// The gradient of each trained parameter under the reference's name.
    pub(crate) fn gradients(&self, loaded: &Loaded) -> BTreeMap<String, Vec<f32>> {
        let mut state = loaded.state.clone();
        for param in loaded.trained() {
            let grad = loaded.f32(&format!("grad/{}", param.name));
            state.get_mut(&param.name).expect("a parameter").as_f32_mut().copy_from_slice(grad);
        }
        self.exported(loaded, &state)
    }

    /// The detection pass with its inputs written.
    pub(crate) fn detection(&self) -> Loaded {
        let unmirrored = vec![0; self.num_images()];
        let flips = if self.of.is_detectron2() { &unmirrored } else { &self.flips };
        self.load(&[], detection_program, flips)
    }

    /// The training step with its inputs written, except for `given`.
    pub(crate) fn training(&self, given: &[&str]) -> Loaded {
        let mut loaded = self.load(given, training_program, &self.flips);
        let (e, slot) = (&mut loaded.executor, self.slot());
        for i in 0..self.num_images() {
            let of = self.objects(i);
            let objects = if self.emptied.contains(&i) { 0 } else { of.labels.len() };
            row(e, "image_keys", i, 4, &[i as i32, 0, i as i32, 0]);
            row(e, "gt_boxes", i, 4 * slot.objects, &of.boxes[..4 * objects]);
            row(e, "gt_classes", i, slot.objects, &of.labels[..objects]);
            row(e, "gt_counts", i, 1, &[objects as i32]);
            if self.has_keypoints() {
                let per_object = 3 * self.config.model.keypoint_head.keypoints;
                row(e, "keypoints", i, per_object * slot.objects, &of.keypoints);
                continue;
            }
            row(e, "segm_index", i, 3 * slot.objects, &of.segm_index);
            row(e, "segm_parts", i, 2 * slot.parts, &of.segm_parts);
            row(e, "coords", i, slot.coords, &of.coords);
            row(e, "runs", i, slot.runs, &of.runs);
        }
        loaded
    }

    /// The step whose samples are chosen by the keys of the golden data.
    pub(crate) fn keyed(&self) -> KeyedStep {
        KeyedStep { free: self.training(&[]), given: self.training(&SAMPLES) }
    }

    /// [`Self::keyed`] after its first run.
    pub(crate) fn observed(&self) -> KeyedStep {
        let mut step = self.keyed();
        step.run(&self.config);
        step
    }

    /// The first step, not yet run, with the recorded anchors and RoIs as its samples.
    pub(crate) fn recorded_step(&self) -> Option<Loaded> {
        let (rpn, roi) = (self.of.open("rpn")?, self.of.open("roi")?);
        let (rpn, roi) = (rpn.case("rpn"), roi.case("roi"));
        let mut loaded = self.training(&SAMPLES);
        let e = &mut loaded.executor;
        let batch = self.config.model.rpn.batch_size_per_image;
        let mut rois = Rois::default();
        for i in 0..self.num_images() {
            write_anchors(e, i, batch, sampled(rpn, "", i));
            let key = |what: &str| format!("{what}_{i}");
            let (boxes, matched) = if self.of.is_torchvision() {
                (roi.f32(&key("sampled_proposals")), roi.i32(&key("sampled_matched_idxs")).data)
            } else {
                let mut places = sampled(roi, "", i);
                if !self.of.is_detectron2() {
                    places.sort_unstable();
                }
                let of_all = roi.i32(&key("candidate_matched_idxs")).data;
                let matched = places.iter().map(|at| of_all[*at as usize].max(0)).collect();
                (roi.f32(&key("sampled_boxes")), matched)
            };
            let labels = if self.of.is_detectron2() {
                let classes = roi.i32(&key("sampled_classes")).data;
                classes.iter().map(|class| self.label(*class)).collect()
            } else {
                roi.i32(&key("sampled_labels")).data
            };
            for ((bbox, label), matched) in boxes.data.chunks_exact(4).zip(labels).zip(matched) {
                rois.push(bbox, i, label, matched);
            }
        }
        rois.write(e);
        Some(loaded)
    }

    /// A program with weights and images, whose intermediate tensors are readable; the tensors in
    /// `given` are inputs.
    fn load(&self, given: &[&str], build: Build, flips: &[i32]) -> Loaded {
        let divisor = self.config.input.size_divisor;
        let largest = |f: fn(&(usize, usize)) -> usize| {
            self.network.iter().map(f).max().expect("an image").next_multiple_of(divisor)
        };
        let padded = [largest(|s| s.0), largest(|s| s.1)];
        let plain = spec(&self.config, self.classes, self.num_images(), padded);
        let spec = ModelSpec { slot: self.slot(), ..plain };
        let mut built = build(&spec).expect("the golden model builds");
        let preprocess = preprocess_of(&built.program);
        // torchvision's images are floats, so the batch itself is an input.
        let batch = ["batch"].into_iter().filter(|_| self.of.is_torchvision());
        let given: Vec<_> = given.iter().copied().chain(batch).collect();
        substitute(&mut built.program, &given);
        let BuiltProgram { program, params, losses, .. } = built;
        let (executor, state) = ready(&self.config, program, &params, &self.tensors);
        let mut loaded = Loaded { executor, state, params, losses, preprocess };
        self.write_images(&mut loaded, flips);
        loaded
    }

    fn slot(&self) -> SlotShape {
        let objects: Vec<Objects> = (0..self.num_images()).map(|i| self.objects(i)).collect();
        let most = |f: fn(&Objects) -> usize| objects.iter().map(f).max().unwrap_or(1).max(1);
        let pixels = self.images.iter().map(|(h, w)| 3 * h * w);
        SlotShape {
            pixels: pixels.max().unwrap_or(1),
            objects: most(|of| of.labels.len()),
            parts: most(|of| of.segm_parts.len() / 2),
            coords: most(|of| of.coords.len()),
            runs: most(|of| of.runs.len()),
        }
    }

    /// The objects of an image.
    fn objects(&self, image: usize) -> Objects {
        let case = self.inputs.case("inputs");
        let key = |what: &str| format!("{what}{image}");
        let (height, width) = self.images[image];
        let labels = match self.of.dialect {
            Dialect::Detectron2 => case.i32(&key("classes")).data.iter().map(|c| c + 1).collect(),
            _ => case.i32(&key("labels")).data,
        };
        let corners = |b: &[f32; 4]| match self.config.model.boxes.legacy_plus_one {
            true => inclusive_box(*b, height as u32, width as u32).expect("a box"),
            false => [b[0], b[1], b[0] + b[2], b[1] + b[3]],
        };
        let boxes = if self.of.is_torchvision() {
            case.f32(&key("boxes")).data
        } else {
            case.f32(&key("boxes_xywh")).data.as_chunks().0.iter().flat_map(corners).collect()
        };
        let mut of = Objects { boxes, labels, ..Objects::default() };
        let windows = |name: &str| case.i32(&key(name)).data.windows(2).map(to_part).collect();
        if self.has_keypoints() {
            of.keypoints = self.keypoints(image);
        } else if self.of.is_torchvision() {
            let masks = case.u8(&key("masks")).data;
            for (g, bitmap) in masks.chunks_exact(height * width).enumerate() {
                let runs = encode_mask(height as u32, width as u32, bitmap).counts;
                of.segm_index.extend([1, g as i32, 1]);
                of.segm_parts.extend([of.runs.len() as i32, runs.len() as i32]);
                of.runs.extend(runs.iter().map(|r| *r as i32));
            }
        } else {
            let objects: Vec<[i32; 2]> = windows("raw_poly_instance_offsets");
            of.segm_index = objects.iter().flat_map(|[first, len]| [0, *first, *len]).collect();
            of.segm_parts = windows("raw_poly_offsets").into_flattened();
            of.coords = case.f32(&key("raw_poly_xy")).data;
        }
        of
    }

    /// The keypoints of an image in network pixels, which detectron2 also records.
    fn keypoints(&self, image: usize) -> Vec<f32> {
        let case = self.inputs.case("inputs");
        let view = self.view(image, self.flips[image]);
        let per_object = self.config.model.keypoint_head.keypoints;
        let (name, partners) = match self.of.is_torchvision() {
            true => ("keypoints", (0..per_object).collect()),
            false => ("raw_keypoints", usizes(case.attribute("keypoint_flip_indices"))),
        };
        // The recorded keypoints already include the half pixel that detectron2's reader adds.
        let raw = case.f32(&format!("{name}{image}")).data;
        let raw = raw.as_chunks::<3>().0.chunks_exact(per_object);
        let seen = raw.flat_map(|object| seen_keypoints(object, &partners, &view, 0.0));
        let seen: Vec<f32> = seen.collect::<Vec<_>>().into_flattened();
        if self.of.is_detectron2() {
            let name = format!("gt_keypoints{image}");
            let recorded = case.f32(&name).data;
            let shown = |p: &[f32]| [p[0], p[1], p[2].min(1.0)];
            let recorded: Vec<f32> = recorded.chunks_exact(3).flat_map(shown).collect();
            let family = self.of.family("inputs_losses");
            Report::new(&family, 2e-5).close("inputs", &name, &seen, &recorded);
        }
        seen
    }

    fn view(&self, image: usize, flip: i32) -> View {
        let [source, network] =
            [self.images[image], self.network[image]].map(|(h, w)| [h as i32, w as i32]);
        let mut view = View::whole(source, network);
        view.x.mirrored = flip;
        view
    }

    fn write_images(&self, loaded: &mut Loaded, flips: &[i32]) {
        let (e, case, n) = (&mut loaded.executor, self.inputs.case("inputs"), self.num_images());
        row(e, "num_images", 0, 1, &[n as i32]);
        let mut images = vec![];
        for (i, &(height, width)) in self.network.iter().enumerate() {
            row(e, "views", i, View::LEN, self.view(i, flips[i]).row());
            row(e, "network_sizes", i, 2, &[height as i32, width as i32]);
            if self.of.is_torchvision() {
                images.push(case.f32(&format!("image{i}_hwc")).data);
                continue;
            }
            let pixels = case.u8(&format!("image{i}_rgb_u8_hwc"));
            assert_eq!(pixels.shape, [self.images[i].0, self.images[i].1, 3]);
            let len = e.input_mut("pixels").expect("an input").desc.dim(1);
            row(e, "pixels", i, len, &pixels.data);
        }
        if self.of.is_torchvision() {
            let views = e.input_mut("views").expect("an input").clone();
            let others = [views, count(n)];
            let batch = preprocessed("images", loaded.preprocess, &images, &others);
            row(e, "batch", 0, batch.data.len(), &batch.data);
        }
    }
}

/// The specification of a step with small images on the CPU, with readable intermediate tensors.
pub(crate) fn spec(
    config: &Config,
    num_classes: usize,
    images: usize,
    [height, width]: [usize; 2],
) -> ModelSpec<'_> {
    ModelSpec {
        config,
        num_classes,
        images,
        padded: ImageSize { height, width },
        slot: SlotShape { pixels: 3 * height * width, objects: 1, parts: 1, coords: 8, runs: 1 },
        target: Target::Cpu,
        part: Part::whole(),
        observe: true,
    }
}

/// A program with weights given under torchvision's names, which must be exactly its parameters.
pub(crate) fn ready(
    config: &Config,
    program: Program,
    params: &[Param],
    tensors: &BTreeMap<String, Values>,
) -> (CpuExecutor, StateSet) {
    let eps = config.model.backbone.norm_eps;
    let mut state = initial_state(&program, params, 0, eps);
    let report = weights_from_tensors(tensors, Extent::Model, params, &mut state);
    assert!(report.missing.is_empty(), "missing {:?}", report.missing);
    assert!(report.mismatched.is_empty(), "mismatched {:?}", report.mismatched);
    assert!(report.unexpected.is_empty(), "unexpected {:?}", report.unexpected);
    fold(&mut state, params, eps);
    if let Some(scale) = state.get_mut("loss_scale") {
        scale.as_f32_mut()[0] = 1.0;
    }
    let executor = CpuExecutor::new(Arc::new(program), &state).expect("it plans");
    (executor.taking(gemm_settings(config).expect("a processor")), state)
}

fn preprocess_of(program: &Program) -> Preprocess {
    let ops = program.nodes().iter().map(|node| node.op.as_ref() as &dyn std::any::Any);
    *ops.filter_map(|op| op.downcast_ref()).next().expect("a program of images")
}

/// Start and length of the range between two offsets.
fn to_part(offsets: &[i32]) -> [i32; 2] {
    [offsets[0], offsets[1] - offsets[0]]
}

/// The MLPerf reference's name of each parameter.
fn mlperf_names() -> Option<BTreeMap<String, String>> {
    let map = golden_json("mlperf_name_map.json")?;
    let pairs = map["map"].as_object().expect("a map").iter();
    let ours = |name: &Value| name.as_str().expect("a name").to_owned();
    Some(pairs.map(|(theirs, name)| (ours(name), theirs.clone())).collect())
}

pub(crate) fn norm(values: &[f32]) -> f64 {
    values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
}

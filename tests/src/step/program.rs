//! The program of one whole step of `micro`, on the CPU and on a device.

use std::path::Path;
use std::sync::Arc;

use dali::loader::{ImageRows, Slot, fill_slot};
use dali::store::{Store, Stores};
use dali::synthetic::SyntheticOptions;
use device::{Device, Precision, Target};
use engine::config::Config;
use engine::model::roi_heads::seen_keypoints;
use engine::model::{
    BuiltProgram, ImageSize, ModelSpec, Part, SlotShape, further_arrays, step_layout,
    training_program,
};
use engine::runtime::ModelState;
use engine::view::Views;
use engine::weights::initial_state;
use graph::exec::device::{Prepared, SharedArena};
use graph::substitute::substitute;
use graph::{CpuExecutor, DeviceExecutor, StateSet};
use kernels::cpu::HostTensor;
use kernels::view::View;

/// The loss scale in the tests, large enough to represent small gradients in fp16.
const LOSS_SCALE: f32 = 1024.0;

/// Eight synthetic images in their own folder.
pub(super) fn images(folder: &Path) -> Stores {
    let out = folder.join("set");
    let side = SQUARE.height as u32;
    let options =
        SyntheticOptions { count: 8, seed: 5, height: side, width: side, out, overwrite: false };
    dali::synthetic::generate(&options, &mut |_| ()).expect("room for eight images");
    Store::open(&folder.join("set/store")).expect("a store just written").into()
}

fn slot_shape(store: &Stores) -> SlotShape {
    let c = store.contents().capacities;
    // Leave unused space even after the largest image.
    SlotShape {
        pixels: 3 * c.pixels + 96,
        objects: c.objects,
        parts: c.parts,
        coords: c.coords + 6,
        runs: c.runs + 3,
    }
}

pub(super) fn micro(set: &[&str]) -> Config {
    let set: Vec<String> = set.iter().map(|s| s.to_string()).collect();
    Config::load("micro", &set).expect("the preset loads")
}

/// Config of pyramid and heads as in torchvision's v2 and detectron2's new baselines, with the
/// given norm.
pub(super) fn new_heads(norm: &str) -> Vec<String> {
    let parts = ["fpn", "box_head", "mask_head"];
    let norms = parts.map(|part| format!("model.{part}.norm={norm}"));
    let rest =
        ["model.rpn.convs=2", "model.box_head.channels=[8, 16]", "model.box_head.hidden=[16]"];
    norms.into_iter().chain(rest.map(str::to_string)).collect()
}

/// The box heads of detectron2's cascades.
pub(super) const CASCADE: [&str; 3] = [
    "model.box_head.class_agnostic=true",
    "model.cascade.fg_iou=[0.6, 0.7]",
    "model.cascade.box_weight_factors=[2, 3]",
];

/// A ResNet without a pyramid, whose last stage runs on RoIs.
pub(super) const C4: [&str; 10] = [
    "model.backbone.kind=resnet",
    "model.backbone.output=c4",
    "model.backbone.norm=frozen_batch_norm",
    "model.backbone.blocks=[1, 2, 1, 1]",
    "model.backbone.stem_channels=16",
    "model.backbone.width=8",
    "model.anchors.sizes=[8, 16, 32, 64]",
    "model.anchors.stride_rule=nominal",
    "model.box_head.pooled=14",
    "input.size_divisor=32",
];

/// A ResNeXt without a pyramid, whose last stage has dilation instead of a stride. Depending on the
/// layer, GPU kernels merge all, some or none of its groups into one GEMM.
pub(super) const DC5: [&str; 10] = [
    "model.backbone.kind=resnet",
    "model.backbone.output=dc5",
    "model.backbone.norm=frozen_batch_norm",
    "model.backbone.blocks=[1, 1, 1, 2]",
    "model.backbone.stem_channels=16",
    "model.backbone.width=8",
    "model.backbone.groups=4",
    "model.backbone.width_per_group=16",
    "model.anchors.sizes=[8, 16, 32, 64]",
    "input.size_divisor=16",
];

/// A ConvNeXt with stochastic depth.
pub(super) const CONVNEXT: [&str; 6] = [
    "model.backbone.kind=convnext",
    "model.backbone.blocks=[1, 1, 2, 1]",
    "model.backbone.stage_channels=[16, 24, 32, 48]",
    "model.backbone.drop_path=0.5",
    "model.anchors.sizes=[8, 16, 32, 64]",
    "input.size_divisor=32",
];

/// Keypoints instead of masks.
pub(super) const KEYPOINTS: [&str; 4] = [
    "model.kind=keypoint_rcnn",
    "model.keypoint_head.keypoints=5",
    "model.keypoint_head.channels=[8, 8]",
    "model.keypoint_head.pooled=7",
];

/// Differences from the training program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Changes {
    /// Intermediate tensors stay readable.
    pub(super) observe: bool,
    /// Intermediate values that become inputs.
    pub(super) given: &'static [&'static str],
}

impl Changes {
    pub(super) const NONE: Self = Self { observe: false, given: &[] };
    pub(super) const OBSERVED: Self = Self { observe: true, given: &[] };
}

/// Builds a program of `micro` and its initial state.
pub(super) fn build(
    store: &Stores,
    config: &Config,
    padded: ImageSize,
    target: Target,
    changes: Changes,
) -> (BuiltProgram, StateSet) {
    let spec = ModelSpec {
        config,
        num_classes: store.contents().categories.len(),
        images: config.train.batch_size,
        padded,
        slot: slot_shape(store),
        target,
        part: Part::whole(),
        observe: changes.observe,
    };
    let mut built = training_program(&spec).expect("micro is sound");
    substitute(&mut built.program, changes.given);
    let eps = config.model.backbone.norm_eps;
    let mut state = initial_state(&built.program, &built.params, 0, eps);
    state.get_mut("loss_scale").expect("a state").as_f32_mut()[0] = LOSS_SCALE;
    (built, state)
}

/// The inputs of a batch, by name.
pub(super) fn inputs(store: &Stores, config: &Config, batch: &[usize]) -> Vec<(String, Vec<u8>)> {
    inputs_from(store, config, batch, empty_slot(store, config, batch.len()))
}

/// A slot for `images` images.
pub(super) fn empty_slot(store: &Stores, config: &Config, images: usize) -> Slot {
    let mut division = Part::whole().division;
    division.images = images;
    let layout = step_layout(&further_arrays(config), &division, slot_shape(store));
    Slot::plain(Arc::new(layout.expect("names that differ")))
}

/// The inputs of a batch, by name, from a slot that may contain bytes of an earlier batch.
pub(super) fn inputs_from(
    store: &Stores,
    config: &Config,
    batch: &[usize],
    mut slot: Slot,
) -> Vec<(String, Vec<u8>)> {
    let views = Views::new(config);
    let has_keypoints = config.model.kind.has_keypoints();
    let fill = move |store: &Stores, image: usize, rows: &mut ImageRows<'_>| {
        let image = store.image(image);
        views.fill([image.height, image.width], [64; 2], false, &[], rows)?;
        if !has_keypoints {
            return Ok(());
        }
        let view = View::of(rows.row_mut("views")?, 0);
        let partners = store.contents().keypoints.as_ref().expect("drawn with keypoints").flipped();
        let row: &mut [f32] = rows.row_mut("keypoints")?;
        let objects = image.objects.map(|object| store.object(object).keypoints);
        for (row, points) in row.chunks_exact_mut(3 * partners.len()).zip(objects) {
            row.copy_from_slice(seen_keypoints(points, &partners, &view, 0.0).as_flattened());
        }
        Ok(())
    };
    fill_slot(store, batch, 0, &mut slot, &fill).expect("room for every image");
    slot.arrays().map(|(array, bytes)| (array.name.clone(), bytes.to_vec())).collect()
}

pub(super) const SQUARE: ImageSize = ImageSize { height: 64, width: 64 };

/// `micro` on the CPU.
pub(super) struct OnCpu {
    pub(super) executor: CpuExecutor,
    pub(super) state: StateSet,
    pub(super) trained: Vec<String>,
    pub(super) losses: Vec<&'static str>,
}

impl OnCpu {
    pub(super) fn new(
        store: &Stores,
        config: &Config,
        padded: ImageSize,
        changes: Changes,
    ) -> Self {
        let (built, state) = build(store, config, padded, Target::Cpu, changes);
        let trained = built.params.iter().filter(|p| p.trained.is_some());
        let trained = trained.map(|p| p.name.clone()).collect();
        let executor = CpuExecutor::new(Arc::new(built.program), &state).expect("a plan");
        Self { executor, state, trained, losses: built.losses }
    }

    pub(super) fn write(&mut self, name: &str, bytes: &[u8]) {
        let input = self.executor.input_mut(name).expect("an input");
        input.bytes_mut().copy_from_slice(bytes);
    }

    pub(super) fn run(&mut self) {
        self.executor.run(&mut self.state);
    }

    pub(super) fn read(&self, name: &str) -> HostTensor {
        self.executor.read(name).expect("a kept tensor")
    }
}

/// `micro` on a device, one program per padded shape.
pub(super) struct OnDevice {
    pub(super) executor: DeviceExecutor,
    pub(super) state: ModelState,
}

impl OnDevice {
    pub(super) fn new(
        store: &Stores,
        config: &Config,
        shapes: &[ImageSize],
        changes: Changes,
        device: Arc<dyn Device>,
    ) -> Self {
        let gpu = device.gpu().in_precision(config.train.precision);
        let target = Target::Gpu(gpu);
        let build = |shape| build(store, config, shape, target.clone(), changes);
        Self::of(shapes.iter().map(|shape| build(*shape)).collect(), &target, device)
    }

    /// Programs for the device, with the initial state of each.
    pub(super) fn of(
        built: Vec<(BuiltProgram, StateSet)>,
        target: &Target,
        device: Arc<dyn Device>,
    ) -> Self {
        let precision = target.gpu().map_or_else(Precision::default, |gpu| gpu.precision);
        let mut first = None;
        let mut prepared = Vec::new();
        for (built, state) in built {
            first.get_or_insert(state);
            prepared
                .push(Prepared::new(Arc::new(built.program), target.clone()).expect("a schedule"));
        }
        let programs: Vec<_> = prepared.iter().map(|p| p.program.as_ref()).collect();
        let state = first.expect("a shape");
        let state = ModelState::on_device(state, device.clone(), precision, &programs);
        let state = state.expect("memory");
        let all: Vec<_> = prepared.iter().collect();
        let arena = Arc::new(SharedArena::new(device.clone(), &all).expect("memory"));
        let memory = state.memory().expect("on the device").clone();
        let executor =
            DeviceExecutor::new(device, prepared, arena, &memory).expect("a captured step");
        let executor = executor.with_staging().expect("memory");
        Self { executor, state }
    }

    pub(super) fn write(&mut self, program: usize, name: &str, bytes: &[u8]) {
        self.executor.write_input(program, name, bytes).expect("an input");
    }

    pub(super) fn run(&mut self, program: usize) {
        let step = self.executor.submit(program).expect("a launch");
        self.executor.until_done(step).unwrap_or_else(|e| panic!("{e}"));
    }

    pub(super) fn read(&self, program: usize, name: &str) -> HostTensor {
        self.executor.read(program, name).expect("a kept tensor")
    }
}

//! The program of one whole step of `micro`, on the CPU and on a device.

use std::path::Path;
use std::sync::Arc;

use configs::Config;
use dali::loader::{self, OwnedSlot, fill_slot};
use dali::store::Store;
use dali::synthetic::SyntheticOptions;
use engine::model::{
    BuiltProgram, ImageSize, Inject, MicroStep, ModelSpec, SlotShape, training_program,
};
use engine::runtime::ModelState;
use engine::weights::initial_state;
use graph::exec::device::{Prepared, SharedArena};
use graph::{CpuExecutor, DeviceExecutor, StateSet};
use kernels::cpu::HostTensor;
use kernels::device::{Device, DeviceKind};

/// What the tests multiply the gradients with: fp16 then holds small ones.
const LOSS_SCALE: f32 = 1024.0;

/// Eight drawn images in a folder of their own.
pub(super) fn images(folder: &Path) -> Store {
    let out = folder.join("set");
    let side = SQUARE.height as u32;
    let options =
        SyntheticOptions { count: 8, seed: 5, height: side, width: side, out, overwrite: false };
    dali::synthetic::generate(&options, &mut |_| ()).expect("room for eight images");
    Store::open(&folder.join("set/store")).expect("a store just written")
}

pub(super) fn slot_shape(store: &Store, images: usize) -> loader::SlotShape {
    let mut shape = loader::SlotShape::for_store(store.header(), images);
    // Room behind the largest image, as there is behind all others.
    shape.pixels += 96;
    shape.coords += 6;
    shape.runs += 3;
    shape
}

pub(super) fn micro(set: &[&str]) -> Config {
    let set: Vec<String> = set.iter().map(|s| s.to_string()).collect();
    Config::load("micro", &set).expect("the preset loads")
}

/// A program of `micro` with the state that it starts from.
fn build(
    store: &Store,
    config: &Config,
    padded: ImageSize,
    device: DeviceKind,
    inject: Inject,
) -> (BuiltProgram, StateSet) {
    let shape = slot_shape(store, config.train.batch_size);
    let spec = ModelSpec {
        config,
        num_classes: store.header().categories.len(),
        images: config.train.batch_size,
        padded,
        slot: SlotShape {
            pixels: shape.pixels,
            objects: shape.objects,
            parts: shape.parts,
            coords: shape.coords,
            runs: shape.runs,
        },
        device,
        micro: MicroStep::Whole,
        inject,
    };
    let built = training_program(&spec).expect("micro is sound");
    let eps = config.model.backbone.norm_eps;
    let mut state = initial_state(&built.program, &built.params, 0, eps);
    state.get_mut("loss_scale").expect("a state").as_f32_mut()[0] = LOSS_SCALE;
    (built, state)
}

/// The inputs of a batch, by name.
pub(super) fn inputs(store: &Store, batch: &[usize]) -> Vec<(&'static str, Vec<u8>)> {
    inputs_from(store, batch, OwnedSlot::new(slot_shape(store, batch.len())))
}

/// The inputs of a batch, by name, in a slot that may hold bytes of an earlier one.
pub(super) fn inputs_from(
    store: &Store,
    batch: &[usize],
    mut slot: OwnedSlot,
) -> Vec<(&'static str, Vec<u8>)> {
    fill_slot(store, batch, 0, slot.as_slot()).expect("room for every image");
    let network = vec![64i32; 2 * batch.len()];
    let bytes = |values: &[i32]| bytemuck::cast_slice(values).to_vec();
    vec![
        ("pixels", slot.pixels.clone()),
        ("gt_boxes", bytemuck::cast_slice(&slot.gt_boxes).to_vec()),
        ("coords", bytemuck::cast_slice(&slot.coords).to_vec()),
        ("image_sizes", bytes(&slot.image_sizes)),
        ("network_sizes", bytes(&network)),
        ("image_keys", bytes(&slot.image_keys)),
        ("num_images", bytes(&slot.num_images)),
        ("gt_classes", bytes(&slot.gt_classes)),
        ("gt_counts", bytes(&slot.gt_counts)),
        ("segm_index", bytes(&slot.segm_index)),
        ("segm_parts", bytes(&slot.segm_parts)),
        ("runs", bytes(&slot.runs)),
    ]
}

pub(super) const SQUARE: ImageSize = ImageSize { height: 64, width: 64 };

/// `micro` on the CPU.
pub(super) struct OnCpu {
    pub(super) executor: CpuExecutor,
    pub(super) state: StateSet,
    pub(super) trained: Vec<String>,
}

impl OnCpu {
    pub(super) fn new(store: &Store, config: &Config, padded: ImageSize, inject: Inject) -> Self {
        let (built, state) = build(store, config, padded, DeviceKind::Cpu, inject);
        let trained = built.params.iter().filter(|p| p.trained.is_some());
        let trained = trained.map(|p| p.name.clone()).collect();
        let executor = CpuExecutor::new(Arc::new(built.program), &state).expect("a plan");
        Self { executor, state, trained }
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

/// `micro` on a device, one program a padded shape.
pub(super) struct OnDevice {
    pub(super) executor: DeviceExecutor,
    pub(super) state: ModelState,
}

impl OnDevice {
    pub(super) fn new(
        store: &Store,
        config: &Config,
        shapes: &[ImageSize],
        inject: Inject,
        device: Arc<dyn Device>,
    ) -> Self {
        let mut first = None;
        let mut prepared = Vec::new();
        for shape in shapes {
            let (built, state) = build(store, config, *shape, DeviceKind::Cuda, inject.clone());
            first.get_or_insert(state);
            prepared.push(Prepared::new(Arc::new(built.program)).expect("a schedule"));
        }
        let programs: Vec<_> = prepared.iter().map(|p| p.program.as_ref()).collect();
        let state = first.expect("a shape");
        let state = ModelState::on_device(state, device.clone(), &programs).expect("memory");
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

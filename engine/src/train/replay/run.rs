//! Replays a saved step, node by node.

use std::path::Path;
use std::sync::Arc;

use dali::loader::SlotLayout;
use device::{Device, Precision, Target};
use graph::exec::device::Prepared;
use graph::finite::FirstNonFinite;
use graph::{CpuArena, CpuExecutor, DeviceExecutor, GraphError};
use kernels::isa::GemmSettings;

use super::{Finding, Replay};
use crate::error::EngineError;
use crate::model::{
    BuiltProgram, Division, ModelSpec, Part, further_arrays, is_transient, step_layout,
    weighted_training_program,
};
use crate::runtime::{Backend, ModelState, gemm_settings};
use crate::train::memory::{arena_bytes, prepare};
use crate::weights::zeros;

type Losses = Vec<(String, f32)>;

impl Replay {
    /// Runs the step again on `backend`, pass by pass, until a value is non-finite. `path`, the
    /// replay file, is only used in messages.
    ///
    /// # Errors
    /// [`EngineError::Replay`] if state or batch do not fit the config; device errors.
    pub fn run(&self, path: &Path, backend: &Backend) -> Result<Finding, EngineError> {
        let fault = |reason: String| EngineError::Replay { path: path.to_path_buf(), reason };
        let (train, passes) = (&self.config.train, self.batches.len());
        let Some(division) = Division::in_passes(train, &backend.target(&self.config), passes)
        else {
            return Err(fault(format!("its {passes} batches do not form a step")));
        };
        let layout = step_layout(&further_arrays(&self.config), &division, self.slot)?;
        let batches = self.batches.iter().map(|arrays| joined(arrays, &layout));
        let batches = batches.collect::<Result<Vec<_>, _>>().map_err(fault)?;
        let mut look = FirstNonFinite::default();
        look.see_state(&self.state);
        let mut built = vec![self.build(Part::updating(&division), backend)?];
        if passes > 1 {
            built.push(self.build(Part::early(&division), backend)?);
        }
        let mut state = self.state.clone();
        for (_, tensor) in built[0].program.states().filter(|(_, t)| is_transient(&t.name)) {
            state.insert(&tensor.name, zeros(&tensor.desc));
        }
        let names = built[0].losses.clone();
        let step = Step { built, names, layout: &layout, batches: &batches };
        let losses = match backend {
            Backend::Cpu => step.on_cpu(&state, gemm_settings(&self.config)?, &mut look)?,
            Backend::Device(device) => {
                step.on_device(&state, device, &backend.target(&self.config), &mut look)?
            }
        };
        Ok(Finding { losses, non_finite: look.found().cloned() })
    }

    fn build(&self, part: Part, backend: &Backend) -> Result<BuiltProgram, EngineError> {
        let spec = ModelSpec {
            config: &self.config,
            num_classes: self.num_classes,
            images: part.division.images,
            padded: self.padded,
            slot: self.slot,
            target: backend.target(&self.config),
            part,
            observe: false,
        };
        weighted_training_program(&spec, &self.class_weights)
    }
}

/// Assembles the bytes of a slot from its arrays.
fn joined(arrays: &[(String, Vec<u8>)], layout: &SlotLayout) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; layout.bytes()];
    for (i, array) in layout.arrays().iter().enumerate() {
        let found = arrays.iter().find(|(name, _)| *name == array.name);
        let (_, found) = found.ok_or_else(|| format!("its batch has no `{}`", array.name))?;
        let range = layout.range(i);
        if range.len() != found.len() {
            let (theirs, ours) = (found.len(), range.len());
            return Err(format!("`{}` has {theirs} bytes, the config needs {ours}", array.name));
        }
        bytes[range].copy_from_slice(found);
    }
    Ok(bytes)
}

/// The programs of a step, the updating pass's first, and a batch for each pass.
struct Step<'a> {
    built: Vec<BuiltProgram>,
    names: Vec<&'static str>,
    layout: &'a SlotLayout,
    batches: &'a [Vec<u8>],
}

impl Step<'_> {
    /// Index of the program of a pass; the last pass updates.
    fn program_of(&self, micro: usize) -> usize {
        usize::from(micro + 1 < self.batches.len())
    }

    fn on_cpu(
        mut self,
        state: &graph::StateSet,
        products: GemmSettings,
        look: &mut FirstNonFinite,
    ) -> Result<Losses, EngineError> {
        let mut state = state.clone();
        let built = std::mem::take(&mut self.built);
        let arena = CpuArena::default();
        let plan =
            |prepared| CpuExecutor::in_arena(prepared, &state, &arena).map(|e| e.taking(products));
        let prepared = prepare(built, &Target::Cpu)?;
        let mut executors = prepared.into_iter().map(plan).collect::<Result<Vec<_>, _>>()?;
        let mut losses = Losses::new();
        for (micro, bytes) in self.batches.iter().enumerate() {
            let executor = &mut executors[self.program_of(micro)];
            for (i, array) in self.layout.arrays().iter().enumerate() {
                let input = executor.input_mut(&array.name)?;
                input.bytes_mut().copy_from_slice(&bytes[self.layout.range(i)]);
            }
            rayon::scope(|_| executor.run_watched(&mut state, look));
            let read = |name: &&str| Ok((name.to_string(), executor.f32(name)?[0]));
            losses = self.names.iter().map(read).collect::<Result<_, GraphError>>()?;
            if look.found().is_some() {
                break;
            }
        }
        Ok(losses)
    }

    fn on_device(
        mut self,
        state: &graph::StateSet,
        device: &Arc<dyn Device>,
        target: &Target,
        look: &mut FirstNonFinite,
    ) -> Result<Losses, EngineError> {
        let prepared = prepare(std::mem::take(&mut self.built), target)?;
        let precision = prepared.first().map_or_else(Precision::default, Prepared::precision);
        let programs: Vec<_> = prepared.iter().map(|p| p.program.as_ref()).collect();
        let mut state = ModelState::on_device(state.clone(), device.clone(), precision, &programs)?;
        let arena = state.arena(device, arena_bytes(&prepared))?;
        let Some(memory) = state.memory() else { panic!("the state is on the device") };
        let mut executor = DeviceExecutor::new(device.clone(), prepared, arena, memory)?;
        let mut losses = Losses::new();
        for (micro, bytes) in self.batches.iter().enumerate() {
            let program = self.program_of(micro);
            let mut pinned = device.pinned_buffer(bytes.len()).map_err(GraphError::from)?;
            pinned.as_mut().copy_from_slice(bytes);
            executor.upload_inputs(program, &pinned)?;
            let step = executor.submit_watched(program, look)?;
            executor.until_done(step)?;
            let read =
                |name: &&str| Ok((name.to_string(), executor.read(program, name)?.as_f32()[0]));
            losses = self.names.iter().map(read).collect::<Result<_, GraphError>>()?;
            if look.found().is_some() {
                break;
            }
        }
        Ok(losses)
    }
}

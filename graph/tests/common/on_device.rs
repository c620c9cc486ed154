//! Programs on the emulated GPU: memory, captured steps, and launch lists with a wait removed.

use std::sync::Arc;

use device::cuda::CudaDevice;
use device::{Device, Target};
use graph::capture::{LaunchList, Work, capture};
use graph::exec::device::{DeviceExecutor, DeviceState, Place, Prepared, SharedArena};
use graph::{GraphError, Program, StateSet};
use half::f16;

/// A program with the schedule and plan that training uses on this GPU.
pub(crate) fn prepared(device: &dyn Device, program: Arc<Program>) -> Prepared {
    Prepared::new(program, Target::Gpu(device.gpu().clone())).expect("ordered")
}

/// The captured steps of `programs`, with state in device memory; state listed in `mapped` is in
/// mapped host memory.
pub(crate) fn captured(
    device: Arc<dyn Device>,
    programs: Vec<Prepared>,
    state: &StateSet,
    mapped: &[&str],
) -> Result<(DeviceState, DeviceExecutor), GraphError> {
    let all: Vec<_> = programs.iter().map(|p| p.program.as_ref()).collect();
    let memory = DeviceState::new(device.clone(), &all, mapped, state)?;
    let arena = SharedArena::new(device.clone(), &programs.iter().collect::<Vec<_>>())?;
    let executor = DeviceExecutor::new(device, programs, Arc::new(arena), &memory)?;
    Ok((memory, executor.with_staging()?))
}

/// The launches of a program without state, in newly allocated memory.
pub(crate) fn launches(device: &CudaDevice, prepared: &Prepared) -> LaunchList {
    let arena = device.alloc(prepared.plan.arena_bytes()).expect("memory");
    let inputs = device.alloc(prepared.input_bytes()).expect("memory");
    prepared.launches(&Place { arena, inputs, state: &|_| None }).expect("no state")
}

/// For each wait of the work that `concerns` selects, captures the list without this wait: each
/// capture must fail, since two launches race. Returns the number of waits.
pub(crate) fn refusals_without_a_wait(
    device: &CudaDevice,
    list: &LaunchList,
    concerns: impl Fn(&Work) -> bool,
) -> usize {
    let mut refused = 0;
    for (at, work) in list.works().iter().enumerate().filter(|(_, work)| concerns(work)) {
        for k in 0..work.waits.len() {
            let mut mutant = LaunchList::default();
            for (position, work) in list.works().iter().enumerate() {
                let mut work = work.clone();
                if position == at {
                    work.waits.remove(k);
                }
                mutant.push(work);
            }
            let error = capture(device, &mutant).expect_err("a race").to_string();
            assert!(error.contains("no event orders them"), "{}, wait {k}: {error}", work.name);
            refused += 1;
        }
    }
    refused
}

/// `len` integers around 0 that repeat with this `period`.
pub(crate) fn pattern(seed: u32, len: usize, period: u32) -> Vec<f32> {
    let value = |i| ((i * 37 + seed * 101) % period) as f32 - (period / 2) as f32;
    (0..len as u32).map(value).collect()
}

/// The values as fp16 bytes.
pub(crate) fn halves(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| f16::from_f32(*v).to_ne_bytes()).collect()
}

//! A case on a device against the CPU reference: forward, and every op of the backward rule.

use std::hash::{DefaultHasher, Hasher};

use device::{Device, DeviceError, DevicePtr, Gpu, LaunchArgs, Stream, Task, Workspace};

use super::compare::compare_with_reference;
use super::{CaseError, OpCase, output_weights, resolve, written};
use crate::cpu::HostTensor;
use crate::matmul::launch::gemm_kernels;
use crate::on_cpu;
use crate::on_device::{OpRun, RunError, buffers, rounded};
use crate::{Op, Precision, Sink, TensorDesc};

/// The result of a case on a device.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DeviceReport {
    /// Number of ops that ran: the case's op and the ops of its backward rule.
    pub ops: usize,
    /// Largest error as a share of the tolerance; at most 1.
    pub worst: f64,
    /// A hash of all outputs: bit-identical outputs have equal hashes.
    pub bits: u64,
}

/// Tolerance of an f32 op where only the order of sums differs, in units of the output's root mean
/// square.
const FP32_FLOOR: f64 = 5e-6;

/// Runs the case and its backward rule op by op on `device`, twice, on inputs rounded to the
/// device's types, and compares with the CPU reference on the same inputs
/// ([`compare_with_reference`]).
///
/// Both runs must be bit-identical. Ops with more than `large` FLOPs run only once. In f32 the fp16
/// floors do not apply; TF32 GEMMs have their own floor.
///
/// # Errors
/// The first error found, as [`CaseError::Device`].
pub fn check_on_device(
    case: &OpCase,
    device: &dyn Device,
    precision: Precision,
    large: u64,
) -> Result<DeviceReport, CaseError> {
    check(case, device, precision, large, None)
}

/// [`check_on_device`] in fp16, once with each GEMM kernel that supports the case and that `takes`
/// accepts, in place of the cost model's choice.
///
/// # Errors
/// As [`check_on_device`].
pub(crate) fn check_kernels_of(
    case: &OpCase,
    device: &dyn Device,
    takes: Takes<'_>,
) -> Result<DeviceReport, CaseError> {
    check(case, device, Precision::Fp16, 0, Some(takes))
}

/// A predicate on names of kernels to be launched.
pub(crate) type Takes<'a> = &'a mut dyn FnMut(&str) -> bool;

fn check(
    case: &OpCase,
    device: &dyn Device,
    precision: Precision,
    large: u64,
    takes: Option<Takes<'_>>,
) -> Result<DeviceReport, CaseError> {
    let mut case = case.clone();
    for tensor in case.inputs.iter_mut().chain(&mut case.updates) {
        *tensor = rounded(precision, tensor);
    }
    if precision != Precision::Fp16 {
        case.device_floor = FP32_FLOOR; // a case's floor is for rounding to fp16
    }
    let failed = |e: DeviceError| CaseError::Device {
        case: case.to_string(),
        op: case.op.name(),
        device: device.name(),
        reason: e.to_string(),
    };
    // One stream for all runs: a device keeps its streams for its lifetime.
    let stream = device.stream().map_err(failed)?;
    let gpu = device.gpu().in_precision(precision);
    let report = DeviceReport::default();
    let mut check = Check { case: &case, device, gpu, stream, large, report, takes };
    let outputs = check.compare(case.op.as_ref(), &case.inputs, &case.updates)?;
    let outputs: Vec<_> = outputs.iter().map(|y| rounded(precision, y)).collect();
    check.backward(&outputs)?;
    Ok(check.report)
}

struct Check<'a, 't> {
    case: &'a OpCase,
    device: &'a dyn Device,
    gpu: Gpu,
    stream: Stream,
    large: u64,
    report: DeviceReport,
    takes: Option<Takes<'t>>,
}

impl Check<'_, '_> {
    /// Checks every step of the backward rule. Its inputs are the reference's results of earlier
    /// steps.
    fn backward(&mut self, outputs: &[HostTensor]) -> Result<(), CaseError> {
        let (case, precision) = (self.case, self.gpu.precision);
        let descs = |list: &[HostTensor]| list.iter().map(|t| t.desc.clone()).collect::<Vec<_>>();
        let rule = case.op.backward(&descs(&case.inputs), &descs(outputs));
        let grads: Vec<_> = (0u32..)
            .zip(outputs)
            .map(|(i, y)| output_weights(case, &y.desc, i).map(|w| rounded(precision, &w)))
            .collect();
        let mut temps: Vec<Option<HostTensor>> = Vec::new();
        for step in &rule.steps {
            let find = |s: &_| resolve(case, outputs, &grads, &temps, *s);
            let inputs: Vec<HostTensor> = step.inputs.iter().map(find).collect();
            let results = self.compare(step.op.as_ref(), &inputs, &[])?;
            for (target, result) in step.outputs.iter().zip(&results) {
                if let Sink::Temp(i) = *target {
                    temps.resize(temps.len().max(i + 1), None);
                    temps[i] = Some(rounded(precision, result));
                }
            }
        }
        Ok(())
    }

    /// Runs one op on the device and on the CPU, and returns the CPU's outputs.
    fn compare(
        &mut self,
        op: &dyn Op,
        inputs: &[HostTensor],
        updates: &[HostTensor],
    ) -> Result<Vec<HostTensor>, CaseError> {
        let fail = |reason: String| CaseError::Device {
            case: self.case.to_string(),
            op: op.name(),
            device: self.device.name(),
            reason,
        };
        let mut expected_updates = updates.to_vec();
        let mut expected = on_cpu::run_updating(op, inputs, &mut expected_updates)?;
        let descs = |list: &[HostTensor]| list.iter().map(|t| t.desc.clone()).collect::<Vec<_>>();
        let (of, outputs) = ([inputs, updates].map(descs), descs(&expected));
        let runs_twice = op.cost(&of[0], &outputs).flops <= self.large;
        let num_updates = expected_updates.len();
        expected.append(&mut expected_updates);
        for gpu in self.plans(op, &of, &outputs) {
            let run = || -> Result<Vec<HostTensor>, RunError> {
                let run = OpRun::new(self.device, self.stream, &gpu, op, inputs, updates)?;
                run.launch()?;
                let mut outputs = run.outputs()?;
                outputs.append(&mut run.updates()?);
                Ok(outputs)
            };
            let fail = |reason: String| match gpu.kernel {
                Some(kernel) => fail(format!("{kernel}: {reason}")),
                None => fail(reason),
            };
            let got = run().map_err(|e| fail(e.to_string()))?;
            if op.traits().count_input.is_some() {
                let rest = &got[0].as_f32()[written(op, inputs, &outputs[0])..];
                if rest.iter().any(|v| !v.is_nan()) {
                    return Err(fail("writes rows past the count".into()));
                }
            }
            if runs_twice {
                let again = run().map_err(|e| fail(e.to_string()))?;
                let differs = got.iter().zip(&again).position(|(a, b)| a.bytes() != b.bytes());
                if let Some(i) = differs {
                    return Err(fail(format!("output {i} differs between two runs")));
                }
            }
            let (precision, floor) = (gpu.precision, self.case.device_floor);
            let worst =
                compare_with_reference(op, precision, inputs, &got, &expected, num_updates, floor);
            self.report.worst = self.report.worst.max(worst.map_err(fail)?);
            let mut bits = DefaultHasher::new();
            bits.write_u64(self.report.bits);
            got.iter().for_each(|tensor| bits.write(tensor.bytes()));
            self.report.bits = bits.finish();
        }
        expected.truncate(expected.len() - num_updates);
        self.report.ops += 1;
        Ok(expected)
    }

    /// The GPUs to plan for: the device's own, or a copy of it for each kernel that `takes`
    /// accepts.
    fn plans(
        &mut self,
        op: &dyn Op,
        [inputs, updates]: &[Vec<TensorDesc>; 2],
        outputs: &[TensorDesc],
    ) -> Vec<Gpu> {
        let Some(takes) = &mut self.takes else { return vec![self.gpu.clone()] };
        let asked = |kernel| Gpu { kernel: Some(kernel), ..self.gpu.clone() };
        let tensors = [inputs, outputs, updates];
        let mut taken = |gpu: &Gpu| {
            gpu.kernel.is_some_and(|kernel| launches(op, gpu, tensors, kernel) && takes(kernel))
        };
        gemm_kernels().into_iter().map(asked).filter(|gpu| taken(gpu)).collect()
    }
}

/// True if the op's launches on this GPU include this kernel. `tensors` are the op's inputs,
/// outputs and updates; they get placeholder addresses.
fn launches(op: &dyn Op, gpu: &Gpu, tensors: [&[TensorDesc]; 3], kernel: &str) -> bool {
    let mut next: DevicePtr = 1 << 40;
    let placed = tensors.map(|descs| {
        let mut place = |desc: &TensorDesc| {
            let ptr = next;
            next += desc.gpu_bytes(gpu.precision).next_multiple_of(256) as DevicePtr;
            (desc.clone(), ptr)
        };
        descs.iter().map(&mut place).collect::<Vec<_>>()
    });
    let [inputs, outputs, updates] = [0, 1, 2].map(|i| buffers(gpu.precision, &placed[i]));
    let bytes = op.cuda_workspace_bytes(gpu, tensors[0], tensors[1]);
    let workspace = Workspace { ptr: 1 << 50, bytes };
    let tasks = op.tasks(&LaunchArgs { gpu, inputs, outputs, updates, workspace });
    tasks.iter().any(|task| matches!(task, Task::Launch(launch) if launch.kernel == kernel))
}

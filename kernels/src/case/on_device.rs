//! A case on a device against the CPU reference: forward, and every op of the backward rule.

use device::{Device, DeviceError, Gpu, Stream};

use super::{CaseError, OpCase, output_weights, resolve};
use crate::cpu::{HostData, HostTensor};
use crate::on_cpu;
use crate::on_device::{OpRun, RunError, rounded};
use crate::{DType, Op, Precision, Sink, TensorDesc};

/// The result of a case on a device.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DeviceReport {
    /// Ops run: the case's and those of its backward rule.
    pub ops: usize,
    /// Largest error as a share of the tolerance; at most 1.
    pub worst: f64,
}

/// Relative tolerance of an fp16 output: twice the half ulp that rounding the exact result costs.
const F16_RELATIVE: f64 = 1.0 / 1024.0;
/// Relative tolerance of an f32 output: exp, log and others are not libm's.
const F32_RELATIVE: f64 = 4e-6;
/// Tolerance of a sum of products on tensor cores, per product, in units of the output's root mean
/// square. Tensor cores truncate where fp32 rounds, so the error grows with the length of the sum.
/// Twice the error of the A100 model of the driver for tests.
pub const CUT_FLOOR: f64 = 2e-8;
/// Tolerance of an op in f32 where only the order of sums is another, in units of the output's root
/// mean square.
const FP32_FLOOR: f64 = 5e-6;
/// Tolerance of a sum of products in tf32, in units of the output's root mean square. Each factor
/// is off by up to 2^-11 of itself, at random: sums by 3e-4 of their root mean square, and the
/// worst of 10^5 by 2.3e-3, or 5.5e-3 where five images of six are 0, which the root mean square
/// counts too.
const TF32_FLOOR: f64 = 6e-3;
/// Half of the smallest positive fp16.
const F16_LEAST: f64 = 1.0 / (1u64 << 25) as f64;

/// Runs the case and its backward rule op by op on `device`, twice, on inputs rounded to the
/// device's types, and compares with the CPU reference on the same inputs.
///
/// Integers and bitmaps must be equal. A float may be off by `relative * |reference|`, plus
/// [`OpCase::device_floor`] times the root mean square of the output; where tensor cores sum, the
/// floor grows with the length of the sums. Both runs must agree in every
/// bit. `large` ops, of more than this many FLOPs, run once. In f32 the floors of fp16 do not
/// count; products in tf32 have one of their own.
///
/// # Errors
/// The first fault found, as [`CaseError::Device`].
pub fn check_on_device(
    case: &OpCase,
    device: &dyn Device,
    precision: Precision,
    large: u64,
) -> Result<DeviceReport, CaseError> {
    let mut case = case.clone();
    for tensor in case.inputs.iter_mut().chain(&mut case.updates) {
        *tensor = rounded(precision, tensor);
    }
    if precision != Precision::Fp16 {
        case.device_floor = FP32_FLOOR; // that of a case is for rounding to fp16
    }
    let failed = |e: DeviceError| CaseError::Device {
        case: case.to_string(),
        op: case.op.name(),
        device: device.name(),
        reason: e.to_string(),
    };
    // One for all runs: a device keeps its streams for its lifetime.
    let stream = device.stream().map_err(failed)?;
    let gpu = device.gpu().in_precision(precision);
    let report = DeviceReport::default();
    let mut check = Check { case: &case, device, gpu, stream, large, report };
    let outputs = check.compare(case.op.as_ref(), &case.inputs, &case.updates)?;
    let outputs: Vec<_> = outputs.iter().map(|y| rounded(precision, y)).collect();
    check.backward(&outputs)?;
    Ok(check.report)
}

struct Check<'a> {
    case: &'a OpCase,
    device: &'a dyn Device,
    gpu: Gpu,
    stream: Stream,
    large: u64,
    report: DeviceReport,
}

impl Check<'_> {
    /// Every step of the backward rule, on the reference's results of the earlier steps.
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
        let expected = on_cpu::run_updating(op, inputs, &mut expected_updates)?;
        let run = || -> Result<Vec<HostTensor>, RunError> {
            let run = OpRun::new(self.device, self.stream, &self.gpu, op, inputs, updates)?;
            run.launch()?;
            let mut outputs = run.outputs()?;
            outputs.append(&mut run.updates()?);
            Ok(outputs)
        };
        let got = run().map_err(|e| fail(e.to_string()))?;
        let descs: Vec<_> = inputs.iter().map(|t| t.desc.clone()).collect();
        let outputs: Vec<_> = expected.iter().map(|t| t.desc.clone()).collect();
        let flops = op.cost(&descs, &outputs).flops;
        let precision = self.gpu.precision;
        let floor = self.case.device_floor + device_floor(op, precision, flops, &outputs);
        if flops <= self.large {
            let again = run().map_err(|e| fail(e.to_string()))?;
            if let Some(i) = got.iter().zip(&again).position(|(a, b)| a.bytes() != b.bytes()) {
                return Err(fail(format!("output {i} differs between two runs")));
            }
        }
        for (i, (got, expected)) in
            got.iter().zip(expected.iter().chain(&expected_updates)).enumerate()
        {
            let worst = worst(got, expected, precision, floor)
                .map_err(|reason| fail(format!("output {i} {:?}: {reason}", expected.desc)))?;
            self.report.worst = self.report.worst.max(worst);
        }
        self.report.ops += 1;
        Ok(expected)
    }
}

/// The error that truncation in tensor cores, or factors in tf32, may add to the floor of an op
/// of `flops` operations.
pub(super) fn device_floor(
    op: &dyn Op,
    precision: Precision,
    flops: u64,
    outputs: &[TensorDesc],
) -> f64 {
    let products = match outputs.first() {
        Some(output) if op.traits().on_tensor_cores => flops / (2 * output.len().max(1) as u64),
        _ => 0,
    };
    match precision {
        Precision::Fp16 => CUT_FLOOR * products as f64,
        Precision::Tf32 if products > 0 => TF32_FLOOR + CUT_FLOOR * products as f64,
        Precision::Tf32 | Precision::Fp32 => 0.0,
    }
}

/// The largest error as a share of the tolerance, at most 1.
pub(super) fn worst(
    got: &HostTensor,
    expected: &HostTensor,
    precision: Precision,
    floor: f64,
) -> Result<f64, String> {
    match (&got.data, &expected.data) {
        (HostData::I32(g), HostData::I32(e)) => equal(g, e),
        (HostData::U8(g), HostData::U8(e)) => equal(g, e),
        (HostData::F32(g), HostData::F32(e)) => {
            let half = expected.desc.role.gpu_dtype(precision) == DType::F16;
            close(g, e, floor, half)
        }
        _ => Err("another element type".into()),
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(got: &[T], expected: &[T]) -> Result<f64, String> {
    match got.iter().zip(expected).position(|(g, e)| g != e) {
        None => Ok(0.0),
        Some(i) => {
            let wrong = got.iter().zip(expected).filter(|(g, e)| g != e).count();
            let (g, e) = (&got[i], &expected[i]);
            Err(format!("element {i} is {g:?}, expected {e:?} ({wrong} of {} differ)", got.len()))
        }
    }
}

fn close(got: &[f32], expected: &[f32], floor: f64, half: bool) -> Result<f64, String> {
    let finite = expected.iter().filter(|e| e.is_finite());
    let squares: f64 = finite.map(|e| f64::from(*e).powi(2)).sum();
    let rms = (squares / expected.len().max(1) as f64).sqrt();
    let (relative, least) = if half { (F16_RELATIVE, F16_LEAST) } else { (F32_RELATIVE, 1e-30) };
    let mut worst = (0.0, 0);
    for (i, (&g, &e)) in got.iter().zip(expected).enumerate() {
        let (g, e) = (f64::from(g), f64::from(e));
        let allowed = relative * e.abs() + floor * rms + least;
        // NaN is right where the reference has one; elsewhere it is the worst error.
        let error = match (g == e, g.is_nan(), e.is_nan()) {
            (true, ..) | (_, true, true) => 0.0,
            (_, false, false) => (g - e).abs() / allowed,
            _ => f64::INFINITY,
        };
        if error > worst.0 {
            worst = (error, i);
        }
    }
    if worst.0 <= 1.0 {
        return Ok(worst.0);
    }
    let (g, e) = (got[worst.1], expected[worst.1]);
    Err(format!(
        "element {} is {g:e}, expected {e:e}: {:.2} times what is allowed",
        worst.1, worst.0
    ))
}

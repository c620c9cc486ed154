//! Cases of ops. One table of cases serves the comparison with the reference, the gradient check,
//! the determinism check and the benchmark.

pub(crate) mod boxes;
mod compare;
#[cfg(test)]
pub(crate) mod hand;
mod on_device;

use std::fmt;
use std::sync::Arc;

use crate::counted::rows_in_use;
use crate::cpu::{HostData, HostTensor};
use crate::on_cpu::{run, run_updating};
use crate::philox::philox4x32;
use crate::{DType, Op, OpError, OpRef, Role, Sink, Source, TensorDesc};

pub use compare::{CUT_FLOOR, compare_with_reference};
pub(crate) use on_device::check_kernels_of;
pub use on_device::{DeviceReport, check_on_device};

/// An op at given shapes and values.
#[derive(Debug, Clone)]
pub struct OpCase {
    /// The difference from other cases of the same op.
    pub label: String,
    /// The op.
    pub op: OpRef,
    /// Its inputs.
    pub inputs: Vec<HostTensor>,
    /// State that it updates, before the run.
    pub updates: Vec<HostTensor>,
    /// Inputs whose gradient is compared with finite differences.
    pub grad_inputs: Vec<usize>,
    /// True if outputs of [`Role::Master`] have gradients; otherwise they are statistics for the
    /// backward ops.
    pub grad_of_masters: bool,
    /// Step of the finite difference, in units of the inputs.
    pub grad_eps: f32,
    /// Tolerance of |finite difference - gradient|, relative to the scale described at
    /// [`check_gradients`].
    pub grad_tolerance: f64,
    /// Tolerance of a device's output near zero, in units of the output's root mean square (see
    /// [`compare_with_reference`]).
    pub device_floor: f64,
}

/// [`OpCase::device_floor`] of an op that sums in f32 throughout: only the summation order differs.
pub const ORDER_FLOOR: f64 = 2e-5;

impl OpCase {
    /// A case without a gradient check.
    pub fn new(label: impl Into<String>, op: impl Op, inputs: Vec<HostTensor>) -> Self {
        Self {
            label: label.into(),
            op: Arc::new(op),
            inputs,
            updates: vec![],
            grad_inputs: vec![],
            grad_of_masters: false,
            grad_eps: 1e-2,
            grad_tolerance: 1e-2,
            device_floor: ORDER_FLOOR,
        }
    }

    /// The state that the op updates.
    pub fn updating(mut self, updates: Vec<HostTensor>) -> Self {
        self.updates = updates;
        self
    }

    /// Sets [`OpCase::device_floor`], for ops that round intermediate values to fp16. State the
    /// reason in a comment at the call.
    pub fn device_floor(mut self, floor: f64) -> Self {
        self.device_floor = floor;
        self
    }

    /// Checks the gradients of these inputs.
    pub fn grad(mut self, inputs: &[usize]) -> Self {
        self.grad_inputs = inputs.to_vec();
        self
    }

    /// Sets [`OpCase::grad_of_masters`].
    pub fn through_masters(mut self) -> Self {
        self.grad_of_masters = true;
        self
    }

    /// Sets step and tolerance of the gradient check, if the defaults do not suit the op.
    pub fn grad_bounds(mut self, eps: f32, tolerance: f64) -> Self {
        self.grad_eps = eps;
        self.grad_tolerance = tolerance;
        self
    }
}

impl fmt::Display for OpCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.op.name(), self.label)
    }
}

/// Standard normal values times `scale`, a function of `seed` only.
pub fn normal(role: Role, shape: &[usize], seed: u32, scale: f32) -> HostTensor {
    let desc = TensorDesc::new(role, shape);
    let values = (0..desc.len()).map(|i| scale * gaussian(seed, i as u32)).collect();
    HostTensor::f32(desc, values)
}

/// Values uniform in `low..high`, a function of `seed` only.
pub fn uniform(role: Role, shape: &[usize], seed: u32, low: f32, high: f32) -> HostTensor {
    let desc = TensorDesc::new(role, shape);
    let values = (0..desc.len())
        .map(|i| low + (high - low) * unit(philox4x32([seed, 1], [i as u32, 0, 0, 0])[0]))
        .collect();
    HostTensor::f32(desc, values)
}

/// A tensor of these values.
pub(crate) fn floats(role: Role, shape: &[usize], values: impl AsRef<[f32]>) -> HostTensor {
    HostTensor::f32(TensorDesc::new(role, shape), values.as_ref().to_vec())
}

/// An index tensor.
pub(crate) fn index(shape: &[usize], values: impl AsRef<[i32]>) -> HostTensor {
    HostTensor::i32(TensorDesc::new(Role::Index, shape), values.as_ref().to_vec())
}

/// The same number in every element of an index tensor.
pub(crate) fn constant(shape: &[usize], value: i32) -> HostTensor {
    index(shape, vec![value; shape.iter().product()])
}

/// Integers uniform in `low..high`, a function of `seed` only.
pub fn integers(shape: &[usize], seed: u32, low: i32, high: i32) -> HostTensor {
    let desc = TensorDesc::new(Role::Index, shape);
    let span = (high - low) as u32;
    let values = (0..desc.len())
        .map(|i| low + (philox4x32([seed, 2], [i as u32, 0, 0, 0])[0] % span) as i32)
        .collect();
    HostTensor::i32(desc, values)
}

fn unit(word: u32) -> f32 {
    (word >> 8) as f32 / (1u32 << 24) as f32
}

fn gaussian(seed: u32, index: u32) -> f32 {
    let words = philox4x32([seed, 3], [index, 0, 0, 0]);
    let radius = (-2.0 * (1.0 - unit(words[0])).ln()).sqrt();
    radius * (2.0 * std::f32::consts::PI * unit(words[1])).cos()
}

/// A failed check, with the case's name.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The op rejected its own case.
    #[error("{0}")]
    Op(#[from] OpError),
    /// An output element was not written, or one past the count was.
    #[error(
        "{case}: output {output}: an element was not written or is NaN, or one past the count was \
         written"
    )]
    Poison {
        /// The case.
        case: String,
        /// Which output.
        output: usize,
    },
    /// Two runs differ.
    #[error("{case}: output {output} differs between two runs")]
    Nondeterministic {
        /// The case.
        case: String,
        /// Which output.
        output: usize,
    },
    /// A gradient differs from the finite difference.
    #[error(
        "{case}: gradient of input {input} is {gradient:e} along a direction, the finite difference {difference:e}"
    )]
    Gradient {
        /// The case.
        case: String,
        /// Which input.
        input: usize,
        /// <gradient, direction>.
        gradient: f64,
        /// (f(x + eps d) - f(x - eps d)) / (2 eps).
        difference: f64,
    },
    /// A device failed, or its result differs from the reference's.
    #[error("{case}: {op} on {device}: {reason}")]
    Device {
        /// The case.
        case: String,
        /// The op that ran: the case's own, or one of its backward rule.
        op: &'static str,
        /// The device.
        device: String,
        /// The error.
        reason: String,
    },
    /// The rule has no gradient for an input that the case checks.
    #[error("{case}: the backward rule gives no gradient of input {input}")]
    NoGradient {
        /// The case.
        case: String,
        /// Which input.
        input: usize,
    },
}

/// Number of leading elements of its first output that an op writes: all, or if it has a count, the
/// elements of the rows in use.
fn written(op: &dyn Op, inputs: &[HostTensor], output: &TensorDesc) -> usize {
    match op.traits().count_input {
        None => output.len(),
        Some(input) => {
            let rows = output.dim(0);
            output.len() / rows.max(1) * rows_in_use(inputs[input].as_i32(), rows)
        }
    }
}

/// `outputs` of an op, with zeros in the rows that it does not write.
fn with_zeros(op: &dyn Op, inputs: &[HostTensor], mut outputs: Vec<HostTensor>) -> Vec<HostTensor> {
    if op.traits().count_input.is_some() {
        let written = written(op, inputs, &outputs[0].desc);
        outputs[0].as_f32_mut()[written..].fill(0.0);
    }
    outputs
}

/// Runs the case twice: all elements of the outputs must be written, except for rows past the
/// count, which must not be; and both runs must be bit-identical.
///
/// # Errors
/// The first failed check.
pub fn check_runs(case: &OpCase) -> Result<(), CaseError> {
    let run_once = || -> Result<Vec<HostTensor>, OpError> {
        let mut updates = case.updates.clone();
        let mut outputs = run_updating(case.op.as_ref(), &case.inputs, &mut updates)?;
        outputs.append(&mut updates);
        Ok(outputs)
    };
    let (first, second) = (run_once()?, run_once()?);
    let traits = case.op.traits();
    for (output, (a, b)) in first.iter().zip(&second).enumerate() {
        let name = case.to_string();
        let len = match output {
            0 => written(case.op.as_ref(), &case.inputs, &a.desc),
            _ => a.desc.len(),
        };
        let poisoned = match &a.data {
            HostData::F32(v) => v.iter().enumerate().any(|(i, x)| x.is_nan() == (i < len)),
            // The signs of a row that is not written are not written either.
            HostData::I32(_) if traits.signs && traits.count_input.is_some() => false,
            HostData::I32(v) => v.contains(&i32::MIN),
            HostData::U8(v) => v.contains(&0xA5) && a.desc.role == Role::Bitmap,
        };
        if poisoned {
            return Err(CaseError::Poison { case: name, output });
        }
        if a.bytes() != b.bytes() {
            return Err(CaseError::Nondeterministic { case: name, output });
        }
    }
    Ok(())
}

/// Compares the backward rule with central differences of `sum(weights * outputs)` along random
/// directions, for one input at a time. The error is relative to the larger of the derivative and
/// the gradient's norm divided by sqrt(elements), so that a nearly flat direction does not
/// dominate.
///
/// Returns the worst relative error.
///
/// # Errors
/// The first input whose gradient is off by more than the case's tolerance.
pub fn check_gradients(case: &OpCase) -> Result<f64, CaseError> {
    if case.grad_inputs.is_empty() || case.inputs.iter().any(|t| t.desc.is_empty()) {
        return Ok(0.0);
    }
    let outputs = run(case.op.as_ref(), &case.inputs)?;
    let weights: Vec<_> =
        outputs.iter().enumerate().map(|(i, y)| output_weights(case, &y.desc, i as u32)).collect();
    let mut worst = 0.0f64;
    for &input in &case.grad_inputs {
        let name = || case.to_string();
        let gradient = gradient_of(case, &outputs, &weights, input)?
            .ok_or_else(|| CaseError::NoGradient { case: name(), input })?;
        for direction in 0..3 {
            let of = &case.inputs[input].desc;
            let d = normal(of.role, &of.shape, 1000 + direction, 1.0);
            let along = dot(gradient.as_f32(), d.as_f32());
            let difference = difference_along(case, &weights, input, &d)?;
            let norm = dot(gradient.as_f32(), gradient.as_f32()).sqrt();
            let error = (along - difference).abs() / along.abs().max(norm).max(1e-6);
            worst = worst.max(error);
            if error > case.grad_tolerance {
                let case = name();
                return Err(CaseError::Gradient { case, input, gradient: along, difference });
            }
        }
    }
    Ok(worst)
}

/// Random weights for a float output; `None` for integers and, unless the case sets
/// `grad_of_masters`, for statistics that only the backward ops read (`Role::Master`), which carry
/// no gradient.
fn output_weights(case: &OpCase, desc: &TensorDesc, seed: u32) -> Option<HostTensor> {
    let role = match desc.role {
        Role::Master if !case.grad_of_masters => return None,
        Role::Master | Role::Weight => Role::WeightGradient,
        _ => Role::Gradient,
    };
    (desc.role.cpu_dtype() == DType::F32).then(|| normal(role, &desc.shape, 77 + seed, 1.0))
}

fn weighted(outputs: &[HostTensor], weights: &[Option<HostTensor>]) -> f64 {
    outputs
        .iter()
        .zip(weights)
        .filter_map(|(y, w)| w.as_ref().map(|w| dot(y.as_f32(), w.as_f32())))
        .sum()
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

fn difference_along(
    case: &OpCase,
    weights: &[Option<HostTensor>],
    input: usize,
    direction: &HostTensor,
) -> Result<f64, CaseError> {
    let eval = |eps: f32| -> Result<f64, CaseError> {
        let mut inputs = case.inputs.clone();
        for (x, d) in inputs[input].as_f32_mut().iter_mut().zip(direction.as_f32()) {
            *x += eps * d;
        }
        let outputs = run(case.op.as_ref(), &inputs)?;
        Ok(weighted(&with_zeros(case.op.as_ref(), &inputs, outputs), weights))
    };
    Ok((eval(case.grad_eps)? - eval(-case.grad_eps)?) / (2.0 * f64::from(case.grad_eps)))
}

/// Runs the backward rule of a case and returns the gradient of one input, if the rule has one. Its
/// rows past the count are 0.
///
/// # Errors
/// Errors from a step of the rule.
pub fn gradient_of(
    case: &OpCase,
    outputs: &[HostTensor],
    grad_outputs: &[Option<HostTensor>],
    input: usize,
) -> Result<Option<HostTensor>, CaseError> {
    let descs = |list: &[HostTensor]| list.iter().map(|t| t.desc.clone()).collect::<Vec<_>>();
    let rule = case.op.backward(&descs(&case.inputs), &descs(outputs));
    let mut temps: Vec<Option<HostTensor>> = Vec::new();
    let mut grads: Vec<Option<HostTensor>> = vec![None; case.inputs.len()];
    for step in &rule.steps {
        let inputs: Vec<HostTensor> =
            step.inputs.iter().map(|s| resolve(case, outputs, grad_outputs, &temps, *s)).collect();
        let results = run(step.op.as_ref(), &inputs)?;
        let results = with_zeros(step.op.as_ref(), &inputs, results);
        for (target, result) in step.outputs.iter().zip(results) {
            let (list, idx) = match *target {
                Sink::GradInput(i) => (&mut grads, i),
                Sink::Temp(i) => (&mut temps, i),
            };
            if list.len() <= idx {
                list.resize(idx + 1, None);
            }
            list[idx] = Some(result);
        }
    }
    for (source, i) in &rule.aliases {
        grads[*i] = Some(resolve(case, outputs, grad_outputs, &temps, *source));
    }
    Ok(grads.swap_remove(input))
}

fn resolve(
    case: &OpCase,
    outputs: &[HostTensor],
    grad_outputs: &[Option<HostTensor>],
    temps: &[Option<HostTensor>],
    source: Source,
) -> HostTensor {
    let found = match source {
        Source::Input(i) => Some(&case.inputs[i]),
        Source::Output(i) => Some(&outputs[i]),
        Source::GradOutput(i) => grad_outputs[i].as_ref(),
        Source::Temp(i) => temps[i].as_ref(),
    };
    match found {
        Some(tensor) => tensor.clone(),
        None => panic!("{case}: backward rule reads {source:?}, which does not exist"),
    }
}

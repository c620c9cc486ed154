//! Compares a device's results for an op with the CPU reference on the same inputs, which are from
//! a case or, for example, from a training step.

use crate::cpu::{HostData, HostTensor};
use crate::{DType, Op, Precision, TensorDesc, signs};

use super::written;

/// Relative tolerance of an fp16 output: twice the half ulp of rounding the exact result.
const F16_RELATIVE: f64 = 1.0 / 1024.0;
/// Relative tolerance of an f32 output: the device's exp, log and other functions differ from
/// libm's.
const F32_RELATIVE: f64 = 4e-6;
/// Tolerance of a tensor-core sum, per multiply-add, in units of the output's root mean square.
/// Tensor cores truncate where fp32 rounds, so the error grows with the length of the sum. The
/// value is twice the error of the emulated driver's A100 model.
pub const CUT_FLOOR: f64 = 2e-8;
/// Tolerance of a TF32 GEMM, in units of the output's root mean square. Each operand has a random
/// relative error of up to 2^-11: sums are typically off by 3e-4 of their root mean square, and the
/// worst of 10^5 sums by 2.3e-3, or by 5.5e-3 if five of six images are 0, which lowers the root
/// mean square.
const TF32_FLOOR: f64 = 6e-3;
/// Half of the smallest positive fp16.
const F16_LEAST: f64 = 1.0 / (1u64 << 25) as f64;

/// Compares a device's outputs, then its `num_updates` updates, with the reference's outputs and
/// updates on the same inputs. Returns the largest error as a share of the tolerance. Rows that the
/// op does not write are not compared. Integers and bitmaps must be equal. A float may be off by
/// `relative * |reference|`, plus `floor` times the root mean square of the output; the floor of
/// tensor-core sums grows with their length. [`signs`] must match the device's own output 0, so
/// they may differ from the reference's only where that output is within its tolerance of 0.
///
/// # Errors
/// A one-line message with the first tensor that has an element outside its tolerance.
pub fn compare_with_reference(
    op: &dyn Op,
    precision: Precision,
    inputs: &[HostTensor],
    got: &[HostTensor],
    expected: &[HostTensor],
    num_updates: usize,
    floor: f64,
) -> Result<f64, String> {
    assert_eq!(got.len(), expected.len(), "outputs and updates of {}", op.name());
    let descs = |list: &[HostTensor]| list.iter().map(|t| t.desc.clone()).collect::<Vec<_>>();
    let outputs = descs(&expected[..expected.len() - num_updates]);
    let flops = op.cost(&descs(inputs), &outputs).flops;
    let floor = floor + device_floor(op, precision, flops, &outputs);
    let written = |i, desc| if i == 0 { written(op, inputs, desc) } else { desc.len() };
    let signs_at = op.traits().signs.then(|| outputs.len() - 1);
    let mut largest = 0.0f64;
    for (i, (found, expected)) in got.iter().zip(expected).enumerate() {
        let error = if signs_at == Some(i) {
            let len = written(0, &got[0].desc);
            equal_signs(found, &got[0], len)
                .map_err(|reason| format!("not the signs of the device's output 0: {reason}"))
        } else {
            worst(found, expected, written(i, &expected.desc), precision, floor)
        };
        let error = error.map_err(|reason| format!("output {i} {:?}: {reason}", expected.desc))?;
        largest = largest.max(error);
    }
    Ok(largest)
}

/// The error that truncation in tensor cores, or operands in tf32, may add to the floor of an op
/// with `flops` operations.
fn device_floor(op: &dyn Op, precision: Precision, flops: u64, outputs: &[TensorDesc]) -> f64 {
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

/// Fails if a bit differs from the sign of one of the first `len` elements of `activation`.
fn equal_signs(found: &HostTensor, activation: &HostTensor, len: usize) -> Result<f64, String> {
    let mut written = activation.clone();
    let (first, rest) = written.as_f32_mut().split_at_mut(len);
    first.fill(1.0);
    rest.fill(0.0);
    let [expected, mask] = [activation, &written].map(|of| signs::of(of, &found.desc));
    let masked = |signs: &HostTensor| -> Vec<i32> {
        signs.as_i32().iter().zip(mask.as_i32()).map(|(bits, mask)| bits & mask).collect()
    };
    equal(&masked(found), &masked(&expected))
}

/// The largest error among the first `len` elements as a share of the tolerance; an `Err` if it
/// exceeds 1.
fn worst(
    got: &HostTensor,
    expected: &HostTensor,
    len: usize,
    precision: Precision,
    floor: f64,
) -> Result<f64, String> {
    match (&got.data, &expected.data) {
        (HostData::I32(g), HostData::I32(e)) => equal(g, e),
        (HostData::U8(g), HostData::U8(e)) => equal(g, e),
        (HostData::F32(g), HostData::F32(e)) => {
            let half = expected.desc.role.gpu_dtype(precision) == DType::F16;
            close(&g[..len], &e[..len], floor, half)
        }
        _ => Err("the element types differ".into()),
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
        // NaN is correct if the reference is NaN too; otherwise the error is infinite.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;
    use crate::case::{ORDER_FLOOR, normal};
    use crate::on_cpu::run;
    use crate::ops::conv2d::Conv2d;

    /// Compares an activation and its signs with a reference that differs in the first value or its
    /// sign.
    fn compare(reference: f32, device: f32, sign: bool) -> Result<f64, String> {
        let op = Conv2d { relu: true, signs: true, ..Conv2d::new(1, 0) };
        let x = normal(Role::Activation, &[1, 2, 2, 8], 1, 1.0);
        let inputs = [x, normal(Role::Weight, &[64, 1, 1, 8], 2, 0.3)];
        let mut expected = run(&op, &inputs).expect("a convolution");
        let mut got = expected.clone();
        for (tensors, value, sign) in
            [(&mut expected, reference, reference > 0.0), (&mut got, device, sign)]
        {
            tensors[0].as_f32_mut()[0] = value;
            let word = &mut tensors[1].as_i32_mut()[0];
            *word = *word & !1 | i32::from(sign);
        }
        compare_with_reference(&op, Precision::Fp16, &inputs, &got, &expected, 0, ORDER_FLOOR)
    }

    #[test]
    fn near_zero_value_may_have_either_sign() {
        for (reference, device) in [(0.0, 5e-6), (5e-6, 0.0)] {
            let error = compare(reference, device, device > 0.0).expect("a tie");
            assert!(error > 0.2, "{error}");
        }
    }

    #[test]
    fn wrong_activation_sign_is_rejected() {
        let not_its_own = "output 1 Index[1, 1, 4, 2]: not the signs of the device's output 0: ";
        for (reference, device) in [(0.0, 5e-6), (5e-6, 0.0), (0.0, 0.0), (1.0, 1.0)] {
            assert!(compare(reference, device, device > 0.0).is_ok());
            let fault = compare(reference, device, device <= 0.0).expect_err("another sign");
            assert!(fault.starts_with(not_its_own), "{fault}");
        }
        for (reference, device) in [(0.0, 1e-3), (1e-3, 0.0), (1.0, 0.0), (1.0, -1.0)] {
            let fault = compare(reference, device, device > 0.0).expect_err("far from 0");
            assert!(fault.ends_with("times what is allowed"), "{fault}");
            assert!(fault.starts_with("output 0"), "{fault}");
        }
    }
}

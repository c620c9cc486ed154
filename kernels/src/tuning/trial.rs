//! One product of a plan with each of its proposals: the same result, and the time.

use device::{Choice, Device, Gpu, Tuning};

use super::Clock;
use crate::case::{CUT_FLOOR, ORDER_FLOOR, compare_with_reference, normal};
use crate::choices::{Asked, choosing};
use crate::cpu::HostTensor;
use crate::on_device::{OpRun, RunError};
use crate::philox::philox4x32;
use crate::{DType, Op, Precision, Role, TensorDesc};

/// Values that are drawn; a larger tensor repeats them.
const DRAWN: usize = 1 << 20;

/// An op with tensors in the device's memory, and its outputs by the kernels that every GPU has.
pub struct Trial<'a> {
    op: &'a dyn Op,
    gpu: Gpu,
    inputs: Vec<HostTensor>,
    run: OpRun<'a>,
    expected: Vec<HostTensor>,
}

impl<'a> Trial<'a> {
    /// Runs the op on random values, with all rows and images in use, without warpgroups.
    ///
    /// # Errors
    /// Errors of the op and the device.
    pub fn new(
        device: &'a dyn Device,
        clock: &Clock<'_>,
        op: &'a dyn Op,
        inputs: &[TensorDesc],
    ) -> Result<Self, RunError> {
        let gpu = device.gpu().clone();
        let plain = gpu.tuned(Tuning { warpgroups: false, ..Tuning::default() });
        // A single integer counts the images, or rows, in use.
        let inputs: Vec<_> = (0u32..)
            .zip(inputs)
            .map(|(i, desc)| match (desc.role, desc.len()) {
                (Role::Index, 1) => HostTensor::i32(desc.clone(), vec![i32::MAX]),
                _ => drawn(desc, i),
            })
            .collect();
        let run = OpRun::new(device, clock.stream, &plain, op, &inputs, &[])?;
        run.launch()?;
        let expected = run.outputs()?;
        // Comparisons look at shapes alone.
        let inputs = inputs.into_iter().map(|t| HostTensor::poisoned(t.desc)).collect();
        Ok(Self { op, gpu, inputs, run, expected })
    }

    /// The median of the op's time with this choice, in milliseconds.
    ///
    /// # Errors
    /// A sentence if the outputs differ from those of the kernels that every GPU has by more than
    /// two roundings; errors of the device.
    pub fn median_ms(
        &mut self,
        clock: &Clock<'_>,
        product: &Asked,
        choice: &Choice,
        repeats: usize,
    ) -> Result<Result<f64, String>, RunError> {
        self.run.plan(&choosing(&self.gpu, &product.name, choice))?;
        self.run.launch()?;
        let got = self.run.outputs()?;
        let (inputs, expected) = (&self.inputs, &self.expected);
        let descs = |list: &[HostTensor]| list.iter().map(|t| t.desc.clone()).collect::<Vec<_>>();
        let flops = self.op.cost(&descs(inputs), &descs(expected)).flops;
        let products = flops / (2 * expected[0].desc.len().max(1) as u64);
        // Both sides cut off their sums, and round them.
        let floor = 2.0 * ORDER_FLOOR + CUT_FLOOR * products as f64;
        let fp16 = Precision::Fp16;
        match compare_with_reference(self.op, fp16, inputs, &got, expected, 0, floor) {
            Ok(_) => Ok(Ok(clock.median_ms(&self.run, repeats)?)),
            Err(reason) => Ok(Err(reason)),
        }
    }
}

/// Random values: of integers, all bits.
fn drawn(desc: &TensorDesc, seed: u32) -> HostTensor {
    let shape = [desc.len().min(DRAWN)];
    let repeated = |i: usize| i % DRAWN;
    if desc.role.cpu_dtype() == DType::I32 {
        let word = |i: usize| philox4x32([seed, 4], [repeated(i) as u32, 0, 0, 0])[0] as i32;
        return HostTensor::i32(desc.clone(), (0..desc.len()).map(word).collect());
    }
    let values = normal(&TensorDesc::new(desc.role, &shape), seed, 1.0);
    let values = values.as_f32();
    HostTensor::f32(desc.clone(), (0..desc.len()).map(|i| values[repeated(i)]).collect())
}

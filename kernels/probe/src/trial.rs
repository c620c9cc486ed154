//! A shape and its tensors on a device: the baseline's output, and how a variant's compares.

use device::{Access, Arg, Device, DeviceError, DevicePtr, Launch, Touch};

use crate::memory::{Memory, words};
use crate::shapes::Shape;
use crate::variants::{Tensors, Variant};

/// Bytes before and after an output that no variant may write.
const GUARD: usize = 4096;
/// Every byte of an output before a variant writes it: NaNs.
const POISON: u32 = u32::MAX;
/// Two results that are each rounded to half differ by this share of the result.
const RELATIVE: f32 = 1.0 / 1024.0;

/// How a variant's output compares with the baseline's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Agreement {
    /// Values whose bits differ.
    pub different: u32,
    /// Values that differ by more than rounding allows, NaNs among them.
    pub beyond: u32,
    /// The lowest index of such.
    pub first: Option<u32>,
    /// The largest difference as a share of the tolerance.
    pub worst: f32,
    /// Nothing was written outside the output.
    pub guarded: bool,
}

impl Agreement {
    /// One sentence if the output is wrong.
    pub fn fault(&self, same_bits: bool, shape: &Shape) -> Option<String> {
        let name = shape.name;
        if !self.guarded {
            return Some(format!("{name}: bytes outside the output were written"));
        }
        if let Some(first) = self.first {
            let beyond = self.beyond;
            let (row, column) = (first as usize / shape.filters, first as usize % shape.filters);
            return Some(format!(
                "{name}: {beyond} values differ by more than rounding, first row {row}, column \
                 {column}"
            ));
        }
        let different = self.different;
        (same_bits && different > 0).then(|| {
            format!("{name}: {different} values differ in bits, and the order of sums is the same")
        })
    }
}

/// A shape's tensors on a device.
pub struct Trial<'a> {
    memory: Memory<'a>,
    shape: Shape,
    /// Those of the variants, whose output lies between guards.
    tensors: Tensors,
    wanted: DevicePtr,
    magnitude: DevicePtr,
    found: DevicePtr,
}

impl<'a> Trial<'a> {
    /// Draws random inputs on the device and runs `baseline` on them: once for the expected output,
    /// and before, on their magnitudes, for the bound on rounding differences.
    ///
    /// # Errors
    /// The device's.
    pub fn new(
        device: &'a dyn Device,
        shape: Shape,
        baseline: &Variant,
    ) -> Result<Self, DeviceError> {
        let mut memory = Memory::new(device)?;
        let [x, w, y] = shape.elements();
        let floats = |value: &dyn Fn(usize) -> f32| -> Vec<u8> {
            (0..shape.filters).flat_map(|i| value(i).to_ne_bytes()).collect()
        };
        // Neither is exact in fewer bits, and neither is 0 or 1 by accident.
        let scale = memory.upload(&floats(&|i| 0.5 + (i * 37 % 101) as f32 / 97.0))?;
        let bias = memory.upload(&floats(&|i| (i * 53 % 103) as f32 / 51.0 - 1.0))?;
        let residual = if shape.residual { memory.alloc(2 * y)? } else { 0 };
        let whole = memory.alloc(2 * y + 2 * GUARD)?;
        let tensors = Tensors {
            x: memory.alloc(2 * x)?,
            w: memory.alloc(2 * w)?,
            scale,
            bias: Some(bias),
            residual,
            y: whole + GUARD as u64,
        };
        let wanted = memory.alloc((2 * y).next_multiple_of(4))?;
        let magnitude = memory.alloc((2 * y).next_multiple_of(4))?;
        let found = memory.alloc(16)?;
        let trial = Self { memory, shape, tensors, wanted, magnitude, found };
        trial.draw(true)?;
        let bare = Shape { residual: false, ..shape };
        let of_magnitudes = Tensors { bias: None, y: magnitude, ..tensors };
        trial.run(&baseline.launch(&bare, &of_magnitudes, false))?;
        trial.draw(false)?;
        trial.fill(wanted, 2 * y, POISON)?;
        trial.run(&baseline.launch(&shape, &Tensors { y: wanted, ..tensors }, shape.relu))?;
        Ok(trial)
    }

    /// Inputs, or their magnitudes: x of variance 1, weights so that sums have about that too.
    fn draw(&self, magnitudes: bool) -> Result<(), DeviceError> {
        let [x, w, y] = self.shape.elements();
        let spread = 1.0 / (self.shape.reduction() as f32).sqrt();
        let mut tensors = vec![(self.tensors.x, x, 1u32, 1.0), (self.tensors.w, w, 2, spread)];
        if self.shape.residual {
            tensors.push((self.tensors.residual, y, 3, 1.0));
        }
        for (to, count, seed, scale) in tensors {
            let touch = Touch { ptr: to, bytes: 2 * count, access: Access::Write };
            let seed = seed.wrapping_mul(0x9E37_79B9);
            let launch = Launch::over("probe_random_f16", count).arg(Arg::Buffer(touch));
            self.run(&launch.len(count).arg(seed).arg(scale).arg(magnitudes))?;
        }
        Ok(())
    }

    fn fill(&self, to: DevicePtr, bytes: usize, value: u32) -> Result<(), DeviceError> {
        self.run(&fill_launch(to, bytes, value))
    }

    fn run(&self, launch: &Launch) -> Result<(), DeviceError> {
        self.memory.device.launch(self.memory.stream, launch)
    }

    /// The launch of a variant on these tensors.
    pub fn launch(&self, variant: &Variant) -> Launch {
        variant.launch(&self.shape, &self.tensors, self.shape.relu)
    }

    /// Runs a variant into poisoned memory and compares. Waits for it.
    ///
    /// # Errors
    /// The device's, a fault of the variant among them.
    pub fn check(&self, variant: &Variant) -> Result<Agreement, DeviceError> {
        let count = self.shape.elements()[2];
        let start = self.tensors.y - GUARD as u64;
        let end = self.tensors.y + 2 * count as u64;
        self.fill(start, 2 * count + 2 * GUARD, POISON)?;
        self.run(&self.launch(variant))?;
        self.fill(self.found, 16, 0)?;
        self.fill(self.found + 8, 4, u32::MAX)?;
        let read = |ptr| Arg::Buffer(Touch { ptr, bytes: 2 * count, access: Access::Read });
        let touch = Touch { ptr: self.found, bytes: 16, access: Access::Update };
        let compare = Launch::over("probe_compare", count)
            .arg(read(self.wanted))
            .arg(read(self.tensors.y))
            .arg(read(self.magnitude))
            .len(count)
            .arg(RELATIVE)
            .arg(absolute(&self.shape))
            .arg(Arg::Buffer(touch));
        self.run(&compare)?;
        let found = words(&self.memory.download(self.found, 16)?);
        let mut guards = self.memory.download(start, GUARD)?;
        guards.extend(self.memory.download(end, GUARD)?);
        Ok(Agreement {
            different: found[0],
            beyond: found[1],
            first: (found[1] > 0).then_some(found[2]),
            worst: f32::from_bits(found[3]),
            guarded: guards.iter().all(|byte| *byte == 0xFF),
        })
    }

    pub(crate) fn memory(&mut self) -> &mut Memory<'a> {
        &mut self.memory
    }
}

/// What a difference in the order of sums may cost, as a share of the sum of magnitudes. A tensor
/// core adds 16 products at a time to a sum and cuts off what lies below the sum's last bits: at
/// most 2^-22 of the magnitudes each time, in either of the two orders.
fn absolute(shape: &Shape) -> f32 {
    2.0 * shape.reduction().div_ceil(16) as f32 / (1u32 << 22) as f32
}

/// Fills words of memory; `bytes` is rounded up to whole ones.
pub(crate) fn fill_launch(to: DevicePtr, bytes: usize, value: u32) -> Launch {
    let count = bytes.div_ceil(4);
    let touch = Touch { ptr: to, bytes: 4 * count, access: Access::Write };
    Launch::over("probe_fill", count).arg(Arg::Buffer(touch)).len(count).arg(value)
}

//! Mistakes in programs with tensor maps.

use std::ptr;

use crate::cuda::{
    Gpu, cuCtxSetCurrent, cuDevicePrimaryCtxRetain, cuTensorMapEncodeTiled, made, ok,
};
use crate::{FaultProgram, Program};

/// A 3 x 5 x 40 tensor of 32-bit words with gaps between rows and planes, in tiles of 2 x 4 x 16.
#[derive(Clone, Copy)]
pub(crate) struct Tensor {
    kind: i32,
    rank: u32,
    address: u64,
    extents: [u64; 3],
    strides: [u64; 2],
    tile: [u32; 3],
    steps: [u32; 3],
    swizzle: i32,
    fill: i32,
    /// Bytes from the map's address to the next multiple of 64.
    before: usize,
    has_steps: bool,
}

pub(crate) const TENSOR: Tensor = Tensor {
    kind: 2,
    rank: 3,
    address: 1 << 62 | 512,
    extents: [40, 5, 3],
    strides: [176, 1024],
    tile: [16, 4, 2],
    steps: [1; 3],
    swizzle: 0,
    fill: 0,
    before: 0,
    has_steps: true,
};

/// Storage for a map at an aligned or misaligned offset.
#[repr(align(64))]
struct Place([u64; 24]);

impl Tensor {
    /// Encodes the map; returns it or the error code.
    fn encode(self) -> Result<Vec<u64>, i32> {
        let mut place = Place([0; 24]);
        let code = cuTensorMapEncodeTiled(
            place.0[self.before / 8..].as_mut_ptr(),
            self.kind,
            self.rank,
            self.address,
            self.extents.as_ptr(),
            self.strides.as_ptr(),
            self.tile.as_ptr(),
            if self.has_steps { self.steps.as_ptr() } else { ptr::null() },
            0,
            self.swizzle,
            0,
            self.fill,
        );
        if code == 0 { Ok(place.0[..16].to_vec()) } else { Err(code) }
    }

    pub(crate) fn swizzled(self, swizzle: i32) -> Self {
        Self { swizzle, ..self }
    }

    /// The map of the tensor at this address.
    pub(crate) fn at(self, address: u64) -> Vec<u64> {
        Self { address, ..self }.encode().expect("a map")
    }
}

const H100: &[&str] = &["DRIVER_GPUS=H100"];

const fn calls(
    name: &'static str,
    says: &'static str,
    calls: fn(&Gpu, bool) -> i32,
) -> FaultProgram {
    FaultProgram { name, variables: H100, program: Program::Calls(calls), code: 1, says }
}

/// Defines test programs, each with one wrong field of the tensor.
macro_rules! tensors {
    ($($name:literal, $field:ident = $value:expr, $says:literal;)*) => {
        &[$(calls($name, $says, |_, is_wrong| {
            let wrong = Tensor { $field: $value, ..TENSOR };
            if is_wrong { wrong } else { TENSOR }.encode().err().unwrap_or(0)
        })),*]
    };
}

pub(crate) const FIELDS: &[FaultProgram] = tensors! {
    "a tensor of six dimensions", rank = 6, "a tensor of rank 6";
    "a missing list of the tensor", has_steps = false, "list of the tensor is a null poi";
    "steps between elements", steps = [2, 1, 1], "steps other than 1 are not modelled";
    "a swizzle that no GPU has", swizzle = 9, "swizzle 9, fill 0";
    "a misaligned map", before = 8, "the map's address is not a multiple of ";
    "an invalid element type", kind = 13, "rank 3, element type 13";
    "a misaligned tensor", address = 520, "the address 0x208 is not a multiple of 16";
    "a tensor without elements", extents = [40, 0, 3], "an extent of 0";
    "rows that are not a multiple of 16 bytes", strides = [168, 1024], "a stride of 168 bytes";
    "a tile without elements", tile = [16, 0, 2], "a tile of 0 elements";
    "a tile's line of 12 bytes", tile = [3, 4, 2], "a tile's line of 12 bytes, not a mult";
    "a tile's line that is longer than its swizzle", swizzle = 1, "more than the swizzle's 32";
    "integers that are filled with NaN", fill = 1, "integers that are filled with NaN";
};

pub(crate) const OLDER: &[FaultProgram] = &[FaultProgram {
    name: "a tensor map on an older GPU",
    variables: &["DRIVER_GPUS=A100,H100"],
    program: Program::Calls(|_, is_wrong| {
        if !is_wrong {
            ok(cuCtxSetCurrent(made(|context| cuDevicePrimaryCtxRetain(context, 1))));
        }
        TENSOR.encode().err().unwrap_or(0)
    }),
    code: 801,
    says: "this GPU has no tensor maps",
}];

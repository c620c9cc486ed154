//! Tensor maps.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};
use std::slice;

use super::{Out, api};
use crate::cuda::errors::*;
use crate::cuda::state::lock;
use crate::tensor_map::{TensorMap, WORDS};

/// Maximum number of dimensions of a tensor.
const MAX_RANK: u32 = 5;

/// # Safety
/// `from` must point to `count` values.
unsafe fn list<T: Copy>(from: *const T, count: u32) -> Result<Vec<T>, Failure> {
    if from.is_null() {
        return Err(misuse(INVALID_VALUE, "a list of the tensor is a null pointer"));
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { slice::from_raw_parts(from, count as usize) }.to_vec())
}

api! {
    /// Encodes a tensor map for tiled access.
    fn cuTensorMapEncodeTiled(
        map: Out<[u64; WORDS]>,
        kind: c_int,
        rank: c_uint,
        address: *const c_void,
        extents: *const u64,
        strides: *const u64,
        tile: *const c_uint,
        steps: *const c_uint,
        interleave: c_int,
        swizzle: c_int,
        _promotion: c_int,
        fill: c_int,
    ) {
        let refuse = |what: String| Err(misuse(INVALID_VALUE, what));
        if lock().context()?.model().capability < (9, 0) {
            return Err(misuse(NOT_SUPPORTED, "this GPU has no tensor maps"));
        }
        if !(1..=MAX_RANK).contains(&rank) {
            return refuse(format!("a tensor of rank {rank}"));
        }
        // SAFETY: the caller provides `rank` values in each list (`rank - 1` strides).
        let (extents, strides, tile, steps) = unsafe {
            let strides = if rank == 1 { vec![] } else { list(strides, rank - 1)? };
            (list(extents, rank)?, strides, list(tile, rank)?, list(steps, rank)?)
        };
        if interleave != 0 || steps.iter().any(|step| *step != 1) {
            return refuse("interleaved tensors and steps other than 1 are not modelled".into());
        }
        let (pieces, fills_nan) = match (swizzle, fill) {
            (0..=3, 0 | 1) => (1 << swizzle, fill == 1),
            _ => return refuse(format!("swizzle {swizzle}, fill {fill}")),
        };
        let (kind, address) = (usize::try_from(kind).unwrap_or(usize::MAX), address.addr() as u64);
        let described = TensorMap { address, kind, extents, strides, tile, pieces, fills_nan };
        if let Some(fault) = described.fault() {
            return refuse(fault);
        }
        if !map.is_aligned_to(64) {
            return refuse("the map's address is not a multiple of 64".into());
        }
        map.put(described.encode())
    }
}

//! The GEMM kernels of a GPU, each launched a few times and compared with the CPU reference.

use std::collections::BTreeMap;

use device::Device;

use crate::Cost;
use crate::case::{CaseError, OpCase, check_kernels_of};
use crate::matmul::launch::tile_of;
use crate::ops::gemm_cases;

/// Cases with more FLOPs are skipped: their CPU reference would take longer than all other cases
/// together.
const MAX_FLOPS: u64 = 50_000_000;
/// Maximum launches per kernel, in cases of different shapes and epilogues.
const LAUNCHES: usize = 4;

/// Runs op cases with the GEMM kernels that `wanted` accepts, and compares the results with the CPU
/// reference. Returns the number of launches of each kernel, and a hash of all outputs.
///
/// # Errors
/// The first difference, or an error of the device.
pub fn check_gemm_kernels(
    device: &dyn Device,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<(BTreeMap<String, usize>, u64), CaseError> {
    let mut cases: Vec<(u64, OpCase)> = gemm_cases()
        .into_iter()
        .filter(|case| case.op.traits().on_tensor_cores)
        .map(|case| (cost(&case).flops, case))
        .filter(|(flops, _)| *flops <= MAX_FLOPS)
        .collect();
    // Large cases first, as they have the longest sums.
    cases.sort_by_key(|(flops, _)| std::cmp::Reverse(*flops));
    let mut launched: BTreeMap<String, usize> = BTreeMap::new();
    let mut bits = 0u64;
    for (_, case) in &cases {
        let mut takes = |kernel: &str| {
            let times = launched.entry(kernel.to_string()).or_default();
            let takes = wanted(kernel) && *times < LAUNCHES;
            *times += usize::from(takes);
            takes
        };
        let report = check_kernels_of(case, device, &mut takes)?;
        bits = bits.rotate_left(1) ^ report.bits;
    }
    launched.retain(|_, times| *times > 0);
    Ok((launched, bits))
}

fn cost(case: &OpCase) -> Cost {
    let descs = |list: &[crate::cpu::HostTensor]| {
        list.iter().map(|tensor| tensor.desc.clone()).collect::<Vec<_>>()
    };
    let (inputs, updates) = (descs(&case.inputs), descs(&case.updates));
    let outputs = case.op.infer(&inputs, &updates);
    case.op.cost(&inputs, &outputs.unwrap_or_default())
}

/// True for the name of a GEMM kernel.
pub fn is_gemm_kernel(name: &str) -> bool {
    tile_of(name).is_some()
}

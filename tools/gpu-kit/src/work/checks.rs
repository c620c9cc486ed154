//! The stages made of items: modules of the device, cases of ops, checks of the step.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use device::{Access, Arg, Device, DeviceError, Launch, Precision, Touch};
use graph::capture::{LaunchList, Work, capture};
use kernels::case::{OpCase, check_on_device};
use kernels::cpu::HostTensor;
use kernels::ops::cases;
use serde_json::{Value, json};

use super::super::Kit;
use super::items::Items;

/// Ops of more FLOPs than this run once instead of twice.
const LARGE_FLOPS: u64 = 20_000_000_000;

/// The device's memory, every module of kernels, and a graph of one kernel.
pub(super) fn device(items: &mut Items) {
    /// Memory, loading, and the graph.
    const OTHERS: usize = 3;
    let device = items.device();
    items.of(OTHERS);
    items.item("memory", |_| {
        let memory = device.memory().map_err(|e| e.to_string())?;
        let gib = |bytes: usize| bytes as f64 / (1u64 << 30) as f64;
        let (free, total) = (gib(memory.free), gib(memory.total));
        let figure = format!("{}, {free:.1} of {total:.1} GiB free", device.name());
        Ok(json!({"figure": figure}))
    });
    let mut modules = Vec::new();
    items.item("loading all modules", |_| {
        let started = Instant::now();
        modules = device.load_kernels(None);
        let (count, seconds) = (modules.len(), started.elapsed().as_secs_f64());
        Ok(json!({"figure": format!("{count} modules loaded or tried in {seconds:.1} s")}))
    });
    if modules.is_empty() {
        // An earlier process listed them and died in one.
        modules = device.load_kernels(None);
    }
    items.of(OTHERS + modules.len());
    for module in modules {
        items.item(&module.path, |_| match module.result {
            Ok(()) => {
                let other = module.remarks.iter().map(|remark| {
                    let (kernel, takes) = (&remark.kernel, remark.takes);
                    json!({"kernel": kernel, "takes": takes, "planned": remark.planned})
                });
                Ok(json!({"other_resources": other.collect::<Vec<_>>()}))
            }
            Err(fault) => Err(fault.to_string()),
        });
    }
    items.item("a graph of one kernel", |_| one_kernel(device.as_ref()));
}

/// Captures the gradient of a ReLU of two halves, and replays it.
fn one_kernel(device: &dyn Device) -> Result<Value, String> {
    let say = |e: DeviceError| e.to_string();
    let alloc = || device.alloc(4).map_err(say);
    let (dy, y, g) = (alloc()?, alloc()?, alloc()?);
    let buffer = |ptr, access| Arg::Buffer(Touch { ptr, bytes: 4, access });
    let relu = Launch::over("relu_mask_f16", 2)
        .arg(buffer(dy, Access::Read))
        .arg(buffer(y, Access::Read))
        .arg(buffer(g, Access::Write))
        .len(2);
    let mut list = LaunchList::default();
    list.push(Work::new("gradient of the ReLU", vec![relu.into()]));
    let graph = capture(device, &list).map_err(|e| e.to_string())?;
    // 1.0 and 2.0 pass where y is 1.0, not where it is -1.0.
    let halves: Vec<u8> = [0x3C00u16, 0x4000, 0x3C00, 0xBC00].map(u16::to_ne_bytes).concat();
    let staging = device.alloc_pinned(halves.len()).map_err(say)?;
    device.write_pinned(staging, 0, &halves);
    let stream = device.stream().map_err(say)?;
    device.upload(stream, dy, staging, 0, 4).map_err(say)?;
    device.upload(stream, y, staging, 4, 4).map_err(say)?;
    device.replay(graph.handle, stream).map_err(say)?;
    let mut result = [0; 4];
    device.download(stream, g, &mut result).map_err(say)?;
    for ptr in [dy, y, g] {
        device.free(ptr).map_err(say)?;
    }
    device.free_pinned(staging).map_err(say)?;
    let wanted: Vec<u8> = [0x3C00u16, 0].map(u16::to_ne_bytes).concat();
    match result[..] == wanted[..] {
        true => Ok(Value::Null),
        false => Err(format!("the replay made {result:?}, expected {wanted:?}")),
    }
}

/// All cases of at most `most` operations and bytes, against the CPU reference.
pub(super) fn ops(items: &mut Items, most: u64) {
    let cases: Vec<OpCase> = cases().into_iter().filter(|case| size(case) <= most).collect();
    items.of(cases.len());
    let device = items.device();
    for case in &cases {
        items.item(&case.to_string(), |_| {
            let report = check_on_device(case, device.as_ref(), Precision::Fp16, LARGE_FLOPS);
            let report = report.map_err(|fault| fault.to_string())?;
            Ok(json!({"ops": report.ops, "worst": report.worst}))
        });
    }
}

fn size(case: &OpCase) -> u64 {
    let descs = |tensors: &[HostTensor]| tensors.iter().map(|t| t.desc.clone()).collect::<Vec<_>>();
    let (inputs, updates) = (descs(&case.inputs), descs(&case.updates));
    let outputs = case.op.infer(&inputs, &updates).expect("a case fits its op");
    let cost = case.op.cost(&inputs, &outputs);
    cost.flops.max(cost.bytes)
}

/// Capture and replay of the whole step of `micro`: the first `count` checks, one at a time.
pub(super) fn step(items: &mut Items, kit: &Kit, count: usize) {
    items.of(count);
    for (name, check) in &kit.checks[..count] {
        let last = Mutex::new(None);
        items.item(name, |items| {
            let open = |seed| {
                let device = (kit.open)(seed).unwrap_or_else(|e| panic!("{e}"));
                *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(device.clone());
                device
            };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&open)));
            // The device that the check ran on is the one to ask after a fault.
            if let Some(device) = last.lock().unwrap_or_else(PoisonError::into_inner).take() {
                items.use_device(device);
            }
            match done {
                Ok(()) => Ok(Value::Null),
                Err(payload) => Err(super::said(payload.as_ref()).to_string()),
            }
        });
    }
}

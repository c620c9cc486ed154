//! Log events of a program on a device: modules loaded, kernels chosen, graphs captured.

use std::collections::BTreeMap;
use std::time::Instant;

use device::Device;

use super::Prepared;
use crate::GraphError;
use crate::capture::{CapturedGraph, LaunchList, capture};

/// Loads and logs the kernels of all lists.
pub(super) fn modules(device: &dyn Device, lists: &[LaunchList]) {
    let started = Instant::now();
    let names = lists.iter().flat_map(LaunchList::kernel_names).collect();
    let loads = device.load_kernels(Some(&names));
    let load_ms = started.elapsed().as_secs_f64() * 1e3;
    tracing::debug!(modules = loads.len(), load_ms, "loaded the kernels");
    for load in &loads {
        if let Err(fault) = &load.result {
            tracing::info!(path = load.path, %fault, "a module of kernels did not load");
        }
        for remark in &load.remarks {
            tracing::info!(path = load.path, "{remark}");
        }
    }
}

/// Captures a list, and logs the graph.
pub(super) fn captured(
    device: &dyn Device,
    list: &LaunchList,
) -> Result<CapturedGraph, GraphError> {
    let started = Instant::now();
    let graph = capture(device, list)?;
    let capture_ms = started.elapsed().as_secs_f64() * 1e3;
    let CapturedGraph { kernels, streams, .. } = graph;
    tracing::debug!(kernels, streams, capture_ms, "captured a graph");
    Ok(graph)
}

/// Logs which kernels each op launches: one line per combination of op and kernels, not per node.
pub(super) fn kernels(prepared: &Prepared, list: &LaunchList) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    let mut choices: BTreeMap<(&str, Vec<&str>), (usize, String)> = BTreeMap::new();
    // The first piece of work copies the inputs; the others follow the schedule.
    for (launch, work) in prepared.schedule.launches().iter().zip(&list.works()[1..]) {
        let node = &prepared.program.nodes()[launch.node.index()];
        let kernels = work.kernels().map(|kernel| kernel.kernel).collect();
        let choice = choices.entry((node.op.name(), kernels));
        choice.or_insert_with(|| (0, work.name.clone())).0 += 1;
    }
    for ((op, kernels), (nodes, first)) in choices {
        tracing::debug!(op, nodes, %first, "chose {}", kernels.join(", "));
    }
}

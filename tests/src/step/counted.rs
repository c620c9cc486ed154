//! Runs one step on the emulated driver, and counts the work of its GEMMs.

use std::sync::Arc;

use device::{Device, Launch, Target};
use engine::config::Config;
use graph::report::node_cost;
use graph::{Node, Program};
use kernels::{Cost, DType, Precision};

use super::folder;
use super::program::{Changes, OnDevice, SQUARE, build, images, inputs};

/// A node with a GEMM, and the driver's counts for its launches in a step.
#[derive(Debug)]
pub struct CountedNode<T> {
    /// The name in reports.
    pub name: String,
    /// The cost that the op declares, for the maximum number of images.
    pub cost: Cost,
    /// Bytes of the node's outputs on the device.
    pub output_bytes: u64,
    /// Number of valid images, if the op has a count input.
    pub images: Option<u64>,
    /// Launches of the node with their counts, in the order of the op.
    pub launches: Vec<(Launch, T)>,
}

/// The GEMMs of one step of a config, on synthetic images of 64x64. `take` returns the device's
/// counts, one per launch; `is_of` is true if a count belongs to a launch.
pub fn counted_gemms<T>(
    config: &Config,
    device: Arc<dyn Device>,
    take: impl Fn() -> Vec<T>,
    is_of: impl Fn(&T, &Launch) -> bool,
) -> Vec<CountedNode<T>> {
    let place = folder();
    let store = images(place.path());
    let target = Target::Gpu(device.gpu().clone());
    let (mut built, state) = build(&store, config, SQUARE, target.clone(), Changes::NONE);
    keep_counts(&mut built.program);
    let mut step = OnDevice::of(vec![(built, state)], &target, device);
    inputs(&store, config, &[0, 3]).iter().for_each(|(name, bytes)| step.write(0, name, bytes));
    take();
    step.run(0);
    let mut counted = take();
    let mut of = |launch: &Launch| {
        let at = counted.iter().position(|counted| is_of(counted, launch));
        let at = at.unwrap_or_else(|| panic!("`{}` did not run", launch.kernel));
        (launch.clone(), counted.swap_remove(at))
    };
    let prepared = &step.executor.programs()[0];
    let program = &prepared.program;
    let works = step.executor.launch_lists()[0].works();
    let products = prepared.schedule.launches().iter().filter_map(|place| {
        let node = &program.nodes()[place.node.index()];
        let output_bytes =
            node.outputs.iter().map(|t| program.desc(*t).gpu_bytes(Precision::Fp16) as u64).sum();
        let images = |index: usize| step.read(0, &count_name(index)).as_i32()[0];
        let name = program.node_name(place.node);
        let work = works.iter().find(|work| work.name == name)?;
        node.op.traits().on_tensor_cores.then(|| CountedNode {
            name,
            cost: node_cost(program, node),
            output_bytes,
            images: count_of(program, node).map(|_| images(place.node.index()) as u64),
            launches: work.kernels().map(&mut of).collect(),
        })
    });
    products.collect()
}

/// Keeps the image count of each GEMM readable after the step.
fn keep_counts(program: &mut Program) {
    for (index, node) in program.nodes().to_vec().iter().enumerate() {
        if let (true, Some(count)) = (node.op.traits().on_tensor_cores, count_of(program, node)) {
            program.keep(&count_name(index), count);
        }
    }
}

fn count_name(node: usize) -> String {
    format!("count of node {node}")
}

/// The input of a GEMM that contains the number of valid images: its only integer input.
fn count_of(program: &Program, node: &Node) -> Option<graph::TensorId> {
    let is_count =
        |t: &&graph::TensorId| program.desc(**t).role.gpu_dtype(Precision::Fp16) == DType::I32;
    node.inputs.iter().find(is_count).copied()
}

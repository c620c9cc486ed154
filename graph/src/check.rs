//! Compares a program's nodes on a device with the CPU reference, each on its actual inputs.
//!
//! The reference gets the inputs that the node had on the device, so errors do not accumulate from
//! node to node. An op computes every output element only from its inputs, so all elements that it
//! writes are compared: all but unused rows past the count of [`kernels::Traits::count_input`].

use std::collections::BTreeMap;

use half::f16;
use kernels::case::{ORDER_FLOOR, compare_with_reference};
use kernels::cpu::{HostData, HostTensor};
use kernels::on_cpu::run_updating;
use kernels::ops::device_rounding;
use kernels::{DType, Precision};

use crate::exec::{Look, Seen};
use crate::report::node_cost;
use crate::{NodeId, Program};

/// The result for an op with given shapes.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The op's results agree with the reference; contains the largest error as a fraction of the
    /// tolerance.
    Agrees(f64),
    /// The op's results differ from the reference; contains a description of the difference.
    Differs(String),
    /// Skipped, because the reference would need this many FLOPs.
    Skipped(u64),
}

/// An op with given shapes, and the first node that ran it.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// Name of the first node.
    pub node: String,
    /// Result of the comparison.
    pub verdict: Verdict,
}

/// Compares the first node of each combination of op and shapes.
pub struct NodeCheck<'a> {
    /// The precision for which the program was planned.
    precision: Precision,
    /// Nodes with more FLOPs than this are skipped.
    most_flops: u64,
    /// Called with the name of each node before it runs.
    tell: Box<dyn FnMut(&str) + 'a>,
    checked: Vec<Checked>,
    /// Index in `checked`, by [`key`].
    places: BTreeMap<String, usize>,
    /// Index in `checked` of each node that has run.
    of_node: BTreeMap<NodeId, usize>,
}

impl<'a> NodeCheck<'a> {
    /// A check of a program planned in `precision`, which skips nodes of more than `most_flops`
    /// FLOPs, and calls `tell` with the name of each node before the node runs.
    pub fn new(precision: Precision, most_flops: u64, tell: impl FnMut(&str) + 'a) -> Self {
        let (places, of_node) = (BTreeMap::new(), BTreeMap::new());
        Self { precision, most_flops, tell: Box::new(tell), checked: vec![], places, of_node }
    }

    /// The results by op and shapes, in order of first appearance.
    pub fn checked(&self) -> &[Checked] {
        &self.checked
    }

    /// The result for a node's op and shapes.
    pub fn of_node(&self, node: NodeId) -> Option<&Checked> {
        self.of_node.get(&node).map(|place| &self.checked[*place])
    }

    /// The largest error among ops that agree, as a fraction of the tolerance.
    pub fn worst(&self) -> f64 {
        let error = |checked: &Checked| match checked.verdict {
            Verdict::Agrees(error) => Some(error),
            _ => None,
        };
        self.checked.iter().filter_map(error).fold(0.0, f64::max)
    }
}

impl Look for NodeCheck<'_> {
    fn wants(&mut self, program: &Program, node: NodeId) -> bool {
        let name = program.node_name(node);
        (self.tell)(&name);
        let key = key(program, node);
        if let Some(place) = self.places.get(&key) {
            self.of_node.insert(node, *place);
            return false;
        }
        self.of_node.insert(node, self.checked.len());
        self.places.insert(key, self.checked.len());
        let flops = node_cost(program, &program.nodes()[node.index()]).flops;
        // The verdict is replaced once the node has run.
        self.checked.push(Checked { node: name, verdict: Verdict::Skipped(flops) });
        flops <= self.most_flops
    }

    fn see(&mut self, program: &Program, seen: Seen) {
        let place = self.of_node[&seen.node];
        self.checked[place].verdict = match compare(program, self.precision, &seen) {
            Ok(error) => Verdict::Agrees(error),
            Err(reason) => Verdict::Differs(reason),
        };
    }
}

/// The op with its parameters and shapes, as text.
fn key(program: &Program, node: NodeId) -> String {
    let node = &program.nodes()[node.index()];
    let [inputs, outputs, updates] =
        [&node.inputs, &node.outputs, &node.updates].map(|list| program.descs(list));
    format!("{:?} {inputs:?} {outputs:?} {updates:?}", node.op)
}

/// The largest error as a fraction of the tolerance, or a description of the difference if it
/// exceeds 1.
fn compare(program: &Program, precision: Precision, seen: &Seen) -> Result<f64, String> {
    let op = program.nodes()[seen.node.index()].op.as_ref();
    let mut updates = seen.before.clone();
    let (inputs, rounding) = match precision {
        Precision::Fp16 => (device_rounding::inputs(op, &seen.inputs), device_rounding::floor(op)),
        _ => (seen.inputs.clone(), 0.0),
    };
    let mut expected =
        run_updating(op, &inputs, &mut updates).map_err(|fault| fault.to_string())?;
    expected.append(&mut updates);
    expected.iter_mut().for_each(|tensor| overflow(precision, tensor));
    let got: Vec<HostTensor> = seen.outputs.iter().chain(&seen.after).cloned().collect();
    let num_updates = seen.after.len();
    let floor = ORDER_FLOOR + rounding;
    compare_with_reference(op, precision, &seen.inputs, &got, &expected, num_updates, floor)
}

/// Replaces values beyond the range of fp16 by infinities, as on the device: a gradient may
/// overflow, in which case the step is skipped.
fn overflow(precision: Precision, tensor: &mut HostTensor) {
    let dtype = tensor.desc.role.gpu_dtype(precision);
    if let (HostData::F32(values), DType::F16) = (&mut tensor.data, dtype) {
        for value in values {
            if f16::from_f32(*value).is_infinite() {
                *value = f32::INFINITY.copysign(*value);
            }
        }
    }
}

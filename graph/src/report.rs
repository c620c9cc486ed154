//! Cost and text of a program: FLOPs and bytes per part, and a dump.

use std::fmt::Write;

use device::Target;
use kernels::Cost;

use crate::program::Pass;
use crate::{Node, Program, TensorId};

/// Cost of one part of the model in one pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartCost {
    /// First component of the nodes' parts.
    pub part: String,
    /// Forward, backward or update.
    pub pass: Pass,
    /// Number of nodes.
    pub nodes: usize,
    /// FLOPs and bytes at capacity (all rows in use).
    pub cost: Cost,
}

/// Cost of one node.
pub fn node_cost(program: &Program, node: &Node) -> Cost {
    node.op.cost(&program.descs(&node.inputs), &program.descs(&node.outputs))
}

/// Cost by part and pass, in order of first appearance, in the target's element types.
pub fn part_costs(program: &Program, target: &Target) -> Vec<PartCost> {
    let mut parts: Vec<PartCost> = Vec::new();
    for node in program.nodes() {
        let part = top_part(&node.part);
        let tensors = node.inputs.iter().chain(&node.outputs).chain(&node.updates);
        let tensors = tensors.map(|id| program.desc(*id));
        let cost = node_cost(program, node).in_types(tensors, |desc| target.bytes(desc));
        match parts.iter_mut().find(|p| p.part == part && p.pass == node.pass) {
            Some(p) => {
                p.nodes += 1;
                p.cost += cost;
            }
            None => {
                parts.push(PartCost { part: part.to_string(), pass: node.pass, nodes: 1, cost })
            }
        }
    }
    parts
}

/// First component of a part's dotted path.
pub fn top_part(part: &str) -> &str {
    part.split('.').next().unwrap_or(part)
}

/// The program as text: one line per input, state, node and kept tensor; tensors are shown as index
/// and shape. Equal programs give equal texts.
pub fn to_text(program: &Program) -> String {
    let mut text = String::new();
    for (id, t) in program.inputs() {
        let _ = writeln!(text, "input  %{:<4} {:<48} {:?}", id.0, t.name, t.desc);
    }
    for (id, t) in program.states() {
        let _ = writeln!(text, "state  %{:<4} {:<48} {:?}", id.0, t.name, t.desc);
    }
    let list =
        |ids: &[TensorId]| ids.iter().map(|t| format!("%{}", t.0)).collect::<Vec<_>>().join(" ");
    for (i, node) in program.nodes().iter().enumerate() {
        let shapes: Vec<_> =
            node.outputs.iter().map(|t| format!("%{} {:?}", t.0, program.desc(*t))).collect();
        let cost = node_cost(program, node);
        let _ = write!(
            text,
            "{i:>5} {:<8} {:<34} {:<22} ({})",
            node.pass,
            node.part,
            node.op.name(),
            list(&node.inputs),
        );
        if !shapes.is_empty() {
            let _ = write!(text, " -> {}", shapes.join(", "));
        }
        if !node.updates.is_empty() {
            let _ = write!(text, " updates {}", list(&node.updates));
        }
        let _ = writeln!(text, "  {:.1} MFLOP", cost.flops as f64 / 1e6);
    }
    for (name, id) in program.kept_names() {
        let _ = writeln!(text, "kept   %{:<4} {:<48} {:?}", id.0, name, program.desc(id));
    }
    text
}

//! Step time by part of the model (backbone, heads ..). On the CPU only, where each node is timed;
//! on a GPU the step is one graph.

use engine::train::Trainer;
use graph::report::{node_cost, top_part};

/// Time and FLOPs of one part of the step.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) ms: f64,
    pub(crate) gflop: f64,
}

/// Mean milliseconds and GFLOP per step of each part and pass, the longest first.
pub(crate) fn anatomy(trainer: &mut Trainer, steps: f64) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for executor in trainer.cpu_executors().iter() {
        let (program, runs) = (executor.program(), executor.runs() as f64);
        for (node, seconds) in program.nodes().iter().zip(executor.node_seconds()) {
            let name = format!("{} {}", top_part(&node.part), node.pass);
            let ms = 1e3 * seconds * runs / steps;
            let gflop = node_cost(program, node).flops as f64 * runs / steps / 1e9;
            match parts.iter_mut().find(|p| p.name == name) {
                Some(part) => {
                    part.ms += ms;
                    part.gflop += gflop;
                }
                None => parts.push(Part { name, ms, gflop }),
            }
        }
    }
    parts.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    parts
}

pub(crate) fn print_parts(parts: &[Part], gemm: f64) {
    let total: f64 = parts.iter().map(|p| p.ms).sum();
    say!("{:<26} {:>9} {:>7} {:>10} {:>12}", "part", "ms", "share", "GFLOP", "of GEMM rate");
    for part in parts {
        say!(
            "{:<26} {:>9.2} {:>6.1}% {:>10.3} {:>11.0}%",
            part.name,
            part.ms,
            100.0 * part.ms / total,
            part.gflop,
            100.0 * part.gflop / (part.ms / 1e3) / gemm,
        );
    }
    let gflop: f64 = parts.iter().map(|p| p.gflop).sum();
    say!(
        "{:<26} {:>9.2} {:>6.1}% {:>10.3} {:>11.0}%   (GFLOP at capacity: padding rows of RoIs count)",
        "all",
        total,
        100.0,
        gflop,
        100.0 * gflop / (total / 1e3) / gemm,
    );
}

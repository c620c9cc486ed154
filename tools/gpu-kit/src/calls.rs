//! The four calls: the stages of each, their order and time limits.
//!
//! Each is for a machine that is available for minutes: under seven, useful by itself, the most
//! informative first. Call A asks whether it runs and how fast, B where the time of a step goes, C
//! what a change would buy, D what several ranks would cost.

use clap::ValueEnum;

use super::stage::Stage;
use super::tools::Tools;

/// Which stages are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Call {
    /// Truth: does it run, does it repeat bit for bit, how fast, against which ceilings.
    A,
    /// Anatomy: every node of a step by itself.
    B,
    /// Decisions: kernel variants, baselines, other batch sizes.
    C,
    /// Ranks: the sums over ranks that one GPU can make, and what they cost a step.
    D,
    /// All of them, each stage once.
    All,
}

impl Call {
    /// Default seconds for all stages. Including the start of a machine a call stays under seven
    /// minutes.
    pub(super) fn seconds(self) -> u64 {
        match self {
            Call::All => 1400,
            _ => 400,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Call::A => "a",
            Call::B => "b",
            Call::C => "c",
            Call::D => "d",
            Call::All => "all",
        }
    }
}

/// The stages of a call, in the order in which they run.
pub(super) fn stages(call: Call, tools: &Tools) -> Vec<Stage> {
    let parts: &[fn(&Tools) -> Vec<Stage>] = match call {
        Call::A => &[truth],
        Call::B => &[anatomy],
        Call::C => &[decisions],
        Call::D => &[ranks],
        Call::All => &[truth, anatomy, decisions, ranks],
    };
    let mut stages: Vec<Stage> = Vec::new();
    for stage in parts.iter().flat_map(|part| part(tools)) {
        if !stages.iter().any(|earlier| earlier.name == stage.name) {
            stages.push(stage);
        }
    }
    stages
}

/// Call A.
fn truth(tools: &Tools) -> Vec<Stage> {
    vec![
        tools.clocks(),
        tools.doctor(),
        tools.device(),
        tools.ops(),
        tools.step(),
        tools.repeat(),
        tools.bench(12, "800x1344", 100, 30),
        tools.bench(12, "800x1088", 100, 30),
        tools.ceilings(),
        tools.bench_ops(),
        tools.train(),
        tools.sanitizer("memcheck"),
    ]
}

/// Call B.
fn anatomy(tools: &Tools) -> Vec<Stage> {
    vec![
        tools.clocks(),
        tools.device(),
        tools.ceilings(),
        tools.nodes_check(),
        tools.nodes(),
        tools.ncu_nodes(),
        tools.ncu_kernels(),
    ]
}

/// Call C. The two benches of 12 images stand on both sides of the table that one reads.
fn decisions(tools: &Tools) -> Vec<Stage> {
    vec![
        tools.clocks(),
        tools.device(),
        tools.shapes(),
        tools.convolutions(),
        tools.torchvision_step(),
        tools.bench(4, "800x1344", 100, 20),
        tools.bench(24, "800x1344", 60, 20),
        tools.infer(),
        tools.torchvision_eval(),
        tools.bench(12, "800x1344", 100, 30),
        tools.sanitizer("racecheck"),
    ]
}

/// Call D. The two benches are neighbours in time, since clocks drift.
fn ranks(tools: &Tools) -> Vec<Stage> {
    vec![
        tools.clocks(),
        tools.device(),
        tools.sums(),
        tools.bench(12, "800x1344", 100, 30),
        tools.bench_all_reduce(100, 30),
        tools.two_ranks(),
    ]
}

/// True if `--only` selects a stage: by its name, otherwise by a part of it.
pub(super) fn wanted(stage: &str, only: &[String], names: &[String]) -> bool {
    let named = |part: &String| match names.contains(part) {
        true => part == stage,
        false => stage.contains(part.as_str()),
    };
    only.is_empty() || only.iter().any(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_name_asks_for_no_other_stage() {
        let names = ["ops", "bench ops", "bench 4x800x1344"].map(String::from);
        let asked = |only: &str| -> Vec<&str> {
            let only = [only.to_string()];
            let wanted = names.iter().filter(|name| wanted(name, &only, &names));
            wanted.map(String::as_str).collect()
        };
        assert_eq!(asked("ops"), ["ops"]);
        assert_eq!(asked("bench"), ["bench ops", "bench 4x800x1344"]);
        assert_eq!(asked("none"), [""; 0]);
        assert!(wanted("ops", &[], &names));
    }
}

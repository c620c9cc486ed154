//! The check before timing: compares each op of the step at batch 1, on its actual inputs, with the
//! CPU reference.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Device;
use engine::config::Config;
use engine::dataset::DataSet;
use engine::runtime::Backend;
use graph::Node;
use graph::check::{NodeCheck, Verdict};
use serde_json::{Value, json};

use crate::random_weights;

/// The check's result for a node, in ascending order of severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    Agrees,
    Skipped,
    Differs,
}

impl Standing {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Standing::Agrees => "agrees",
            Standing::Skipped => "skipped",
            Standing::Differs => "differs",
        }
    }
}

/// Check results by the names of model part and op: unlike shapes, these names are the same at
/// batch 1 and at the measured batch size.
#[derive(Debug, Default)]
pub(crate) struct Standings(BTreeMap<String, Standing>);

impl Standings {
    pub(crate) fn of(&self, node: &Node) -> Option<Standing> {
        self.0.get(&key(node)).copied()
    }
}

fn key(node: &Node) -> String {
    format!("{}.{}", node.part, node.op.name())
}

/// The result of the check.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) standings: Standings,
    pub(crate) json: Value,
    /// Number of ops that differ.
    pub(crate) failed: usize,
}

/// Runs a step of one image, node by node, and prints the differences. Prints each node's name to
/// standard error before the node runs.
pub(crate) fn run(
    config: &Config,
    data: &DataSet,
    device: &Arc<dyn Device>,
    most_flops: u64,
) -> anyhow::Result<Check> {
    let mut config = config.clone();
    (config.train.batch_size, config.train.images_per_group) = (1, 1);
    let mut trainer = random_weights::trainer(&config, data, &Backend::Device(device.clone()))?;
    let mut number = 0;
    let mut check = NodeCheck::new(config.train.precision, most_flops, |name| {
        number += 1;
        eprintln!("check {number}: {name}");
    });
    trainer
        .step_by(&mut |executor, program| executor.submit_watched(program, &mut check).map(drop))?;
    let mut standings = Standings::default();
    let programs = trainer.device_executor().map(|executor| executor.programs());
    for prepared in programs.unwrap_or_default() {
        for launch in prepared.schedule.launches() {
            let Some(checked) = check.of_node(launch.node) else { continue };
            let node = &prepared.program.nodes()[launch.node.index()];
            let worst = standings.0.entry(key(node)).or_insert(Standing::Agrees);
            *worst = (*worst).max(standing(&checked.verdict));
        }
    }
    Ok(report(&check, standings))
}

fn standing(verdict: &Verdict) -> Standing {
    match verdict {
        Verdict::Agrees(_) => Standing::Agrees,
        Verdict::Skipped(_) => Standing::Skipped,
        Verdict::Differs(_) => Standing::Differs,
    }
}

fn report(check: &NodeCheck<'_>, standings: Standings) -> Check {
    let (mut failed, mut skipped, mut agree) = (vec![], vec![], 0);
    for checked in check.checked() {
        match &checked.verdict {
            Verdict::Agrees(_) => agree += 1,
            Verdict::Skipped(flops) => {
                say!("SKIPPED: {}: {:.1} GFLOP on the CPU", checked.node, *flops as f64 / 1e9);
                skipped.push(json!({"node": checked.node, "flops": flops}));
            }
            Verdict::Differs(reason) => {
                say!("FAILED {}: {reason}", checked.node);
                failed.push(json!({"node": checked.node, "reason": reason}));
            }
        }
    }
    say!(
        "checked at batch 1: {agree} op and shape combinations match the CPU reference \
         (largest error {:.2} of the tolerance), {} differ, {} skipped",
        check.worst(),
        failed.len(),
        skipped.len(),
    );
    let json = json!({
        "agree": agree, "worst_error_over_allowed": check.worst(),
        "failed": failed, "skipped": skipped,
    });
    Check { standings, failed: failed.len(), json }
}

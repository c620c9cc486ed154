//! `bench --all-reduce`: the training step of a single rank, with the all-reduces of a multi-rank
//! step.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;
use device::Target;
use engine::config::Config;
use engine::model::Division;
use engine::train::Trainer;
use graph::exec::device::Prepared;
use kernels::{Precision, Role};
use serde_json::{Value, json};

/// Name of the all-reduce library.
pub(crate) const THROUGH: &str = "nccl";

#[derive(Debug, Args)]
pub(crate) struct AllReduceArgs {
    /// All-reduce the gradients over a group of one rank, in the buckets of a multi-rank run:
    /// measures how much the all-reduces slow a step down, without network time. Uses NCCL; needs a
    /// GPU.
    #[arg(long)]
    all_reduce: bool,
    /// JSON file of the same bench without --all-reduce: prints the ratio of the two step times.
    #[arg(long, value_name = "FILE", requires = "all_reduce")]
    against: Option<PathBuf>,
}

impl AllReduceArgs {
    pub(crate) fn is_asked(&self) -> bool {
        self.all_reduce
    }

    /// The division of the training step among ranks.
    ///
    /// # Errors
    /// On the CPU, where one rank needs no all-reduce.
    pub(crate) fn division(&self, config: &Config, target: &Target) -> anyhow::Result<Division> {
        let single = Division::single(&config.train, target);
        if !self.all_reduce {
            return Ok(single);
        }
        let division = single.reducing();
        ensure!(
            division.reduces_on_device(),
            "--all-reduce needs a GPU: on the CPU a single rank has no all-reduce"
        );
        Ok(division)
    }

    /// Prints the size of a step's all-reduces and their effect on the step time, and adds them to
    /// `figures`, the bench's results so far.
    ///
    /// # Errors
    /// The file of `--against` cannot be read, or measures a different step.
    pub(crate) fn report(
        &self,
        config: &Config,
        trainer: &mut Trainer,
        figures: &mut Value,
    ) -> anyhow::Result<()> {
        if !self.all_reduce {
            figures["all_reduce"] = "none".into();
            return Ok(());
        }
        let (buckets, bytes) = summed(trainer);
        figures["all_reduce"] = THROUGH.into();
        let bucket_mib = config.ranks.bucket_mib;
        figures["reduced"] = json!({"bucket_mib": bucket_mib, "buckets": buckets, "bytes": bytes});
        say!(
            "all-reduce through {THROUGH}: {:.2} MiB of gradients a step in {buckets} buckets \
             (ranks.bucket_mib={bucket_mib})",
            bytes as f64 / (1 << 20) as f64,
        );
        let Some(file) = &self.against else { return Ok(()) };
        let before = read(file, figures)?;
        let now = p50(figures).context("this bench has no step time")?;
        figures["against"] = json!({"p50_ms": before, "ratio": now / before});
        say!(
            "step p50 with all-reduce {now:.2} ms, without {before:.2} ms: ratio {:.4}",
            now / before
        );
        Ok(())
    }
}

/// Number of gradient buckets and their total bytes, in the program that updates the weights.
fn summed(trainer: &mut Trainer) -> (usize, usize) {
    let programs = trainer.device_executor().map_or(&[][..], |executor| executor.programs());
    let of = |prepared: &Prepared| {
        let program = &prepared.program;
        let sums = program.nodes().iter().filter(|node| node.op.name() == "all_reduce");
        let summed = sums.map(|node| program.desc(node.inputs[0]));
        // Losses are all-reduced too; they are not counted.
        let buckets = summed.filter(|desc| desc.role == Role::Gradient);
        buckets.fold((0, 0), |(count, bytes), desc| {
            (count + 1, bytes + desc.gpu_bytes(Precision::Fp16))
        })
    };
    programs.iter().map(of).max().unwrap_or((0, 0))
}

/// Reads the median step time from an earlier bench's results, which must measure the same step.
fn read(file: &Path, figures: &Value) -> anyhow::Result<f64> {
    let name = file.display();
    let text = dali::file::read(file).with_context(|| format!("--against {name}"))?;
    let other: Value =
        serde_json::from_slice(&text).with_context(|| format!("--against {name}"))?;
    for key in ["preset", "batch_size", "padded", "device"] {
        let (theirs, ours) = (&other[key], &figures[key]);
        ensure!(theirs == ours, "--against {name}: its {key} is {theirs}, not {ours}");
    }
    match p50(&other) {
        Some(ms) if other["all_reduce"] == "none" => Ok(ms),
        _ => bail!("--against {name}: holds no bench of a step without --all-reduce"),
    }
}

fn p50(figures: &Value) -> Option<f64> {
    figures.pointer("/step_ms/p50").and_then(Value::as_f64)
}

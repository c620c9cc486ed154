//! The report before a run's first step.

use configs::{Config, Precision};

use super::start;
use super::trainer::Trainer;
use crate::dataset::DataSet;
use crate::progress::counted;
use crate::run_dir::RunDir;
use crate::runtime::Backend;
use crate::team::Team;

/// Device, data, memory and weights, one paragraph each.
pub(super) fn banner(
    config: &Config,
    data: &DataSet,
    trainer: &Trainer,
    backend: &Backend,
    run: &RunDir,
    team: &Team,
) -> Vec<String> {
    let memory = trainer.memory();
    let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
    let trained = trainer.params().iter().filter(|p| p.trained.is_some());
    let trained: usize = trained.map(|p| p.shape.iter().product::<usize>()).sum();
    let mut paragraphs = vec![format!(
        "device {}{}, {}, {}, batch {}, {} per epoch, \
         {:.2} M trained parameters\nmemory: needs {:.0} MiB for activations and gradients, \
         {:.0} MiB for weights and optimizer\nrun directory: {}",
        backend.describe(),
        match (backend, config.train.precision) {
            (Backend::Cpu, _) | (_, Precision::Fp16) => String::new(),
            (Backend::Device(_), precision) => format!(" in {}", precision.name()),
        },
        counted(data.images.len(), "image"),
        counted(data.num_classes(), "class"),
        config.train.batch_size,
        counted(trainer.batches_per_epoch() as usize, "batch"),
        trained as f64 / 1e6,
        mib(memory.arena_bytes),
        mib(memory.state_bytes),
        run.path().display(),
    )];
    if !team.is_alone() {
        paragraphs.push(ranks(config, trainer, team));
    }
    if let Some(owner) = run.replaced() {
        let (pid, host) = (owner.pid, &owner.host);
        paragraphs.push(format!(
            "the run directory is taken over from process {pid} on host {host}, which is gone"
        ));
    }
    let backbone = &config.model.backbone;
    let file = start::file_of(config);
    if let (Some((path, _)), Some(report)) = (file, trainer.loaded()) {
        let what = match config.model.weights.is_none() {
            true => " (the backbone alone)",
            false => "",
        };
        paragraphs.push(format!("weights {}{what}: {}", path.display(), report.describe()));
    } else if file.is_none() && backbone.frozen_stages > 0 {
        paragraphs.push(format!(
            "warning: {} stages of the backbone are frozen at random weights; set \
             model.backbone.weights or model.weights, or model.backbone.frozen_stages=0",
            backbone.frozen_stages
        ));
    }
    paragraphs
}

/// How the ranks share the work.
fn ranks(config: &Config, trainer: &Trainer, team: &Team) -> String {
    let (train, ranks) = (&config.train, team.ranks().count);
    let passes = match trainer.passes() {
        1 => String::new(),
        passes => format!(" in {passes} passes"),
    };
    let mut text = format!(
        "{ranks} ranks on {}, {} per rank{passes}, {} per group",
        counted(team.group().hosts(), "host"),
        counted(train.batch_size / ranks, "image"),
        counted(train.images_per_group, "image"),
    );
    let members = team.group().members();
    let mut rest = members;
    while let Some(first) = rest.first() {
        let of_host = rest.iter().take_while(|member| member.host_id == first.host_id).count();
        let (these, others) = rest.split_at(of_host);
        let last = these.last().map_or(first.rank, |member| member.rank);
        let numbers = match of_host {
            1 => format!("rank {last}"),
            _ => format!("ranks {}-{last}", first.rank),
        };
        text += &format!("\n  {}: {numbers}", first.host);
        rest = others;
    }
    text
}

//! The text that a run prints before its first step.

use crate::config::{Config, CpuPrecision, Precision, Train};

use super::start;
use super::trainer::Trainer;
use crate::dataset::DataSet;
use crate::model::idle_groups;
use crate::progress::counted;
use crate::run_dir::RunDir;
use crate::runtime::Backend;
use crate::team::Team;

/// A run with more epochs gets a warning: its length was probably chosen for a different data set.
const MANY_EPOCHS: f64 = 500.0;

/// Paragraphs about device, data, memory and weights, and warnings.
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
         {:.2} M trained parameters\n{}\nmemory: needs {:.0} MiB for activations and gradients, \
         {:.0} MiB for {}\nrun directory: {}",
        backend.describe(),
        match (backend, config.train.precision) {
            (Backend::Cpu, _) if config.train.cpu_precision == CpuPrecision::Bf16 => {
                " in bf16".into()
            }
            (Backend::Cpu, _) | (_, Precision::Fp16) => String::new(),
            (Backend::Device(_), precision) => format!(" in {}", precision.name()),
        },
        counted(data.images.len(), "image"),
        counted(data.num_classes(), "class"),
        config.train.batch_size,
        counted(trainer.batches_per_epoch() as usize, "batch"),
        trained as f64 / 1e6,
        length(config, trainer.batches_per_epoch()),
        mib(memory.arena_bytes),
        mib(memory.state_bytes),
        match backend {
            Backend::Cpu => "weights, optimizer and checkpoints",
            Backend::Device(_) => "weights and optimizer",
        },
        run.path().display(),
    )];
    if !team.is_alone() {
        paragraphs.push(ranks(config, trainer, team));
    }
    if let Some(owner) = run.replaced() {
        let (pid, host) = (owner.pid, &owner.host);
        paragraphs.push(format!(
            "the run directory is taken over from process {pid} on host {host}, which has ended"
        ));
    }
    paragraphs.extend(weights(config, trainer));
    let (all, images) = (trainer.images_per_epoch(), data.images.len());
    if config.data.repeat_threshold > 0.0 {
        paragraphs.push(format!(
            "images with classes that occur in fewer than {:.1} % of the images are repeated: an \
             epoch has {all} images instead of {images}",
            100.0 * config.data.repeat_threshold
        ));
    } else if all > images {
        paragraphs.push(format!(
            "an epoch has {all} images instead of {images}: each occurs {:.1} times on average \
             (data.min_epoch_images)",
            all as f64 / images as f64
        ));
    }
    let idle = idle_groups(&config.solver, trainer.params());
    paragraphs.extend(idle.iter().map(|text| format!("warning: {text}")));
    paragraphs.extend(rate(config));
    if !config.has_validation() {
        paragraphs.push("warning: there is no validation data, so nothing is scored".into());
    }
    paragraphs.extend(never_stops(&config.train, trainer.batches_per_epoch()));
    paragraphs.extend(disproportions(&config.train, trainer.batches_per_epoch(), all));
    paragraphs
}

/// The source of the initial weights, or a warning if parts of the model are frozen at random
/// weights.
fn weights(config: &Config, trainer: &Trainer) -> Option<String> {
    let (model, stages) = (&config.model, config.model.backbone.frozen_stages);
    match (start::file_of(config), trainer.loaded()) {
        (Some((path, _)), loaded) => {
            let whole = model.weights.is_some();
            let what = if whole { "" } else { " (only the backbone)" };
            loaded.map(|of| format!("weights {}{what}: {}", path.display(), of.describe()))
        }
        (None, _) if stages > 0 => Some(format!(
            "warning: {stages} stages of the backbone are frozen at random weights; set \
             model.backbone.weights or model.weights, or model.backbone.frozen_stages=0"
        )),
        (None, _) if !model.freeze.is_empty() => Some(
            "warning: model.freeze keeps parameters at random weights; set model.weights or \
             model.backbone.weights"
                .into(),
        ),
        _ => None,
    }
}

/// The length of the run and of its warm-up, and the learning-rate decays if given in epochs.
fn length(config: &Config, steps_per_epoch: u64) -> String {
    let (steps, solver) = (config.train.steps, &config.solver);
    let in_epochs = |steps: u64| {
        let epochs = steps as f64 / steps_per_epoch as f64;
        let digits = if epochs < 10.0 { 1 } else { 0 };
        format!("{epochs:.digits$} epochs")
    };
    let mut text = match config.train.epochs {
        Some(epochs) => format!("{epochs} epochs = {steps} steps of {steps_per_epoch}, "),
        None => format!("{steps} steps ({}), ", in_epochs(steps)),
    };
    text += &match (solver.warmup_steps, solver.warmup_epochs) {
        (0, _) => "no warm-up".to_string(),
        (steps, None) => format!("warm-up of {steps}"),
        (steps, Some(_)) => format!("warm-up of {steps} ({})", in_epochs(steps)),
    };
    if !solver.milestone_epochs.is_empty() {
        text += &format!(", a lower rate from epochs {:?} on", solver.milestone_epochs);
    }
    text
}

/// The learning rate, if it is scaled from a reference batch size.
fn rate(config: &Config) -> Option<String> {
    let (rate, reference) = (config.solver.learning_rate, config.solver.reference_batch?);
    let batch = config.train.batch_size;
    (batch != reference).then(|| {
        format!(
            "learning rate {rate} for {reference} images -> {} for {batch}",
            config.rate_for_batch(rate)
        )
    })
}

/// A warning if patience or targets are set, but no evaluation precedes the last step.
fn never_stops(train: &Train, steps_per_epoch: u64) -> Option<String> {
    let per_epochs = train.eval_every_epochs.saturating_mul(steps_per_epoch);
    let is_on_the_way = |every: u64| (1..train.steps).contains(&every);
    let key = match train {
        _ if is_on_the_way(train.eval_every_steps) || is_on_the_way(per_epochs) => return None,
        Train { patience: 1.., .. } => "train.patience",
        Train { target_box: Some(_), .. } => "train.target_box",
        Train { target_mask: Some(_), .. } => "train.target_mask",
        Train { target_keypoint: Some(_), .. } => "train.target_keypoint",
        _ => return None,
    };
    Some(format!(
        "warning: {key} cannot end the run early, as the first evaluation is after the last \
         step; set train.eval_every_steps below {}",
        train.steps
    ))
}

/// Warnings about a run length or a batch size that is too large for the number of images.
fn disproportions(train: &Train, steps_per_epoch: u64, images: usize) -> Vec<String> {
    let epochs = train.steps as f64 / steps_per_epoch as f64;
    let images_text = counted(images, "image");
    let length = (epochs > MANY_EPOCHS).then(|| {
        let key = if train.epochs.is_some() { "train.epochs" } else { "train.steps" };
        format!("{key} gives {epochs:.0} epochs of {images_text}: lower it, or set train.patience")
    });
    let batch = (train.batch_size > images).then(|| {
        let size = train.batch_size;
        format!("train.batch_size is {size}, but an epoch has {images_text}: lower it")
    });
    length.into_iter().chain(batch).map(|text| format!("warning: {text}")).collect()
}

/// A text with the images per rank and group, and the ranks of each host.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn config(set: &[&str]) -> Config {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        Config::load("micro", &set).expect("a config")
    }

    #[test]
    fn banner_prints_epochs_and_warmup() {
        let config = config(&["train.steps=190580"]);
        assert_eq!(length(&config, 5), "190580 steps (38116 epochs), warm-up of 5");
        assert_eq!(length(&config, 100_000), "190580 steps (1.9 epochs), warm-up of 5");
        let set =
            ["train.epochs=36", "solver.warmup_epochs=1", "solver.milestone_epochs=[24,33.5]"];
        let mut config = self::config(&set);
        config.set_steps(35).expect("steps");
        let told = "36 epochs = 1260 steps of 35, warm-up of 35 (1.0 epochs), a lower rate from \
                    epochs [24.0, 33.5] on";
        assert_eq!(length(&config, 35), told);
    }

    #[test]
    fn run_length_and_batch_beyond_image_count_are_reported() {
        for (set, words) in [
            (
                ["train.steps=2004", "train.batch_size=8"],
                "train.steps gives 501 epochs of 8 images",
            ),
            (["train.epochs=600", "train.steps=2400"], "train.epochs gives 600 epochs of 8 images"),
            (["train.steps=9", "train.batch_size=10"], "size is 10, but an epoch has 8 images"),
            (["train.steps=2000", "train.batch_size=8"], ""),
        ] {
            let text = disproportions(&config(&set).train, 4, 8).join("; ");
            assert!(text.contains(words) && text.is_empty() == words.is_empty(), "{text}");
        }
    }

    #[test]
    fn learning_rate_for_another_batch_size_is_reported() {
        let of = |batch: usize| {
            let batch = format!("train.batch_size={batch}");
            rate(&config(&["solver.learning_rate=0.02", "solver.reference_batch=16", &batch]))
        };
        assert_eq!(of(2).as_deref(), Some("learning rate 0.02 for 16 images -> 0.0025 for 2"));
        assert_eq!((of(16), rate(&config(&[]))), (None, None));
        let adamw = config(&["solver.optimizer=adamw", "solver.reference_batch=8"]);
        assert_eq!(adamw.rate_for_batch(0.5), 0.25);
    }

    #[test]
    fn unreachable_stop_condition_is_reported() {
        let told = |set: &[&str]| never_stops(&config(set).train, 8).unwrap_or_default();
        for (set, key) in [
            (&["train.patience=1"][..], "train.patience cannot end"),
            (&["train.target_box=0.3", "train.eval_every_steps=10"], "train.target_box cannot"),
            (&["train.target_mask=0.3", "train.eval_every_epochs=2"], "train.target_mask cannot"),
        ] {
            assert!(told(set).contains(key), "{set:?}: {}", told(set));
        }
        assert!(told(&["train.patience=1"]).ends_with("set train.eval_every_steps below 10"));
        for set in [
            &["train.eval_every_steps=10"][..],
            &["train.patience=1", "train.eval_every_steps=9"],
            &["train.target_box=0.3", "train.eval_every_epochs=1"],
        ] {
            assert_eq!(told(set), "");
        }
    }
}

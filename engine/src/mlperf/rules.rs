//! Lists how a config deviates from MLPerf's reference Mask R-CNN, with the clause of the rules for
//! each deviation.

use super::Recipe;
use crate::config::{
    Config, ConfigError, Difference, MlperfRule, PostNmsScope, ResizeFilter, schema,
};

/// A difference from the reference implementation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deviation {
    /// The difference, in words.
    pub what: String,
    /// The section of `training_rules.adoc` that applies, and a summary of its rule.
    pub clause: &'static str,
    /// True if the closed division allows it.
    pub is_allowed: bool,
}

const REPRESENTATION: &str =
    "Data Representation: mathematically equivalent padding of images is allowed";
const PREPROCESSING: &str = "Preprocessing During the Run: the same steps as the reference";
const HYPERPARAMETERS: &str = "Hyperparameters: by default those of the reference";
const LOOP: &str = "Training Loop: equation and schedule of the optimizer";
const ORDER: &str = "Training Data Order: packing is allowed, each datum exactly once";
const FORMATS: &str = "Numerical Formats: fp16 and scaling are approved";
const RANDOM: &str = "Random Numbers: library generators, seeded by the run's seed";
const STATE: &str = "Data State at Start of Run: reformatting without new information is allowed";
const TARGET: &str = "Quality Target: box AP 0.377 and mask AP 0.339, evaluated each epoch";
const MODEL: &str = "Model: the graph of the reference";

/// The clause that requires the reference's value of a config key; `None` if none does.
fn clause(key: &str) -> Option<&'static str> {
    match schema().key(key).map(|key| key.mlperf) {
        Some(MlperfRule::Free | MlperfRule::Rule) => None,
        Some(MlperfRule::Model) => Some(MODEL),
        Some(MlperfRule::Preprocessing) => Some(PREPROCESSING),
        Some(MlperfRule::Quality) => Some(TARGET),
        Some(MlperfRule::Hyperparameter) | None => Some(HYPERPARAMETERS),
    }
}

impl Config {
    /// Deviations of this config from the reference, on a GPU if `is_device`: first those common to
    /// all onegraph runs, then those of the config.
    ///
    /// # Errors
    /// As for [`Config::differences`].
    pub fn mlperf_deviations(&self, is_device: bool) -> Result<Vec<Deviation>, ConfigError> {
        let mut found = of_every_run(self, is_device);
        found.extend(ruled(self));
        let reference = Config::load("mlperf_r50", &[])?;
        for Difference { key, from, to } in reference.differences(self)? {
            let Some(clause) = clause(&key) else { continue };
            let what = format!("{key} is {to}; the reference has {from}");
            found.push(refused(what, clause));
        }
        Ok(found)
    }
}

fn allowed(what: impl Into<String>, clause: &'static str) -> Deviation {
    Deviation { what: what.into(), clause, is_allowed: true }
}

fn refused(what: impl Into<String>, clause: &'static str) -> Deviation {
    Deviation { what: what.into(), clause, is_allowed: false }
}

fn of_every_run(config: &Config, is_device: bool) -> Vec<Deviation> {
    let shapes = 2 * config.input.buckets_per_orientation;
    let mut found = vec![
        allowed(
            format!(
                "images are padded to one of {shapes} shapes, multiples of {}, not to the largest \
                 of their batch",
                config.input.size_divisor
            ),
            REPRESENTATION,
        ),
        allowed("JPEGs are decoded by zune-jpeg, not libjpeg", PREPROCESSING),
        allowed("a batch has images of one padded shape, in random order", ORDER),
        allowed("COCO is one memory-mapped store: unchanged JPEGs, polygons and boxes", STATE),
        allowed(
            "samples of anchors and RoIs are drawn by Philox from seed, image and epoch, not by a \
             permutation of torch's generator",
            RANDOM,
        ),
    ];
    if is_device {
        found.push(allowed(
            "activations and gradients are fp16 with a loss scale, weights and sums fp32",
            FORMATS,
        ));
    }
    found
}

/// Deviations in keys for which the rules allow several values: allowed choices, and values outside
/// the allowed range.
fn ruled(config: &Config) -> Vec<Deviation> {
    let (solver, train, rpn) = (&config.solver, &config.train, &config.model.rpn);
    let mut found = Vec::new();
    if config.input.resize_filter == ResizeFilter::Bilinear {
        found.push(allowed(
            "images are resized by bilinear interpolation, not by Pillow's filter: as in NVIDIA's \
             entries of v3.0",
            PREPROCESSING,
        ));
    }
    if solver.first_schedule_step != 1 || solver.count_skipped_steps {
        found.push(allowed(
            "the schedule begins at step 0, or counts steps that overflow: as in NVIDIA's entries \
             of v3.0",
            LOOP,
        ));
    }
    let rate = solver.learning_rate;
    let is_whole = |x: f64| (x - x.round()).abs() < 1e-5 && x.round() >= 1.0;
    let is_part = train.batch_size < 16 && is_whole(0.02 / rate);
    if !is_whole(rate / 0.02) && !is_part {
        found.push(refused(
            format!("solver.learning_rate is {rate}, not a multiple of 0.02"),
            HYPERPARAMETERS,
        ));
    }
    if !decays_by_rule(&solver.milestones, train.batch_size, train.images_per_group) {
        found.push(refused(
            format!(
                "solver.milestones are {:?}, not (60000, 80000) x (1 + K / 10) x 16 / {}",
                solver.milestones, train.batch_size
            ),
            HYPERPARAMETERS,
        ));
    }
    let per_chip = match rpn.post_nms_scope {
        PostNmsScope::Batch => 1000 * train.images_per_group,
        PostNmsScope::Image | PostNmsScope::Level => 1000,
    };
    if rpn.post_nms_scope == PostNmsScope::Level {
        found.push(refused("proposals are limited per level only", MODEL));
    }
    let candidates = rpn.post_nms_top_n_train;
    if ![1000, 2000, per_chip].contains(&candidates) {
        found.push(refused(
            format!(
                "model.rpn.post_nms_top_n_train is {candidates}; 1000, 2000 or {per_chip} are \
                 allowed"
            ),
            HYPERPARAMETERS,
        ));
    }
    if train.target_box != Some(0.377) || train.target_mask != Some(0.339) {
        found.push(refused("the targets differ", TARGET));
    }
    found
}

/// True if the milestones follow the rules' formula for an integer K, or equal those published for
/// this batch.
fn decays_by_rule(milestones: &[u64], global_batch: usize, images_per_group: usize) -> bool {
    let by_rule = |k: u32| {
        [60_000.0, 80_000.0].map(|steps| {
            let exact = steps * (1.0 + f64::from(k) / 10.0) * 16.0 / global_batch as f64;
            exact.round() as u64
        })
    };
    let published = Recipe::new(global_batch, Some(images_per_group));
    (0..20).any(|k| by_rule(k) == milestones)
        || published.is_ok_and(|recipe| recipe.decay_steps == milestones)
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn refusals(preset: &str, set: &[&str]) -> Vec<String> {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        let config = Config::load(preset, &set).expect("a config");
        let found = config.mlperf_deviations(true).expect("deviations");
        let refused = found.into_iter().filter(|deviation| !deviation.is_allowed);
        refused.map(|deviation| format!("{} ({})", deviation.what, deviation.clause)).collect()
    }

    #[test]
    fn every_mlperf_preset_follows_rules() {
        for preset in [
            "mlperf_8",
            "mlperf_16",
            "mlperf_48",
            "mlperf_64",
            "mlperf_r50",
            "mlperf_128",
            "mlperf_256",
            "mlperf_256_groups_of_4",
        ] {
            assert_eq!(refusals(preset, &[]), Vec::<String>::new(), "{preset}");
        }
        let nvidia = [
            "solver.first_schedule_step=0",
            "solver.count_skipped_steps=true",
            "input.resize_filter=bilinear",
            "train.micro_steps=2",
            "train.seed=5",
            "data.train_store=a",
        ];
        assert_eq!(refusals("mlperf_r50", &nvidia), Vec::<String>::new());
    }

    #[test]
    fn disallowed_config_value_is_reported_with_mlperf_clause() {
        for (set, words) in [
            ("solver.learning_rate=0.1201", "not a multiple of 0.02 (Hyperparameters"),
            ("solver.milestones=[12100,16000]", "not (60000, 80000)"),
            ("model.rpn.post_nms_top_n_train=3000", "is 3000; 1000, 2000 or 12000 are allowed"),
            ("train.target_box=0.2", "the targets differ (Quality Target"),
            ("model.fpn.channels=128", "model.fpn.channels is 128; the reference has 256 (Model"),
            ("solver.momentum=0.8", "solver.momentum is 0.8; the reference has 0.9"),
            ("input.min_size=640", "input.min_size is 640; the reference has 800 (Preprocessing"),
            ("eval.max_images=50", "eval.max_images is 50; the reference has 0 (Quality"),
            ("loss_weights.mask=2", "loss_weights.mask is 2"),
        ] {
            let found = refusals("mlperf_r50", &[set]);
            assert!(found.len() == 1 && found[0].contains(words), "{set}: {found:?}");
        }
    }
}

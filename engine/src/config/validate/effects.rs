//! Errors and warnings for new runs about values that are valid, but whose combination does not
//! have the expected effect.

use std::collections::HashSet;

use crate::config::{
    BackboneKind, Block, Config, ConfigError, Difference, NormKind, Origins, Schedule, schema,
};
use crate::model::detectors;

/// Keys that have no effect for certain values of another key, `switch`.
#[derive(Debug)]
pub(crate) struct Idle {
    /// The keys, or tables of keys (`model.mask_head.`).
    pub(crate) keys: &'static [&'static str],
    /// The key whose value decides if `keys` have an effect.
    pub(crate) switch: &'static str,
    pub(crate) applies: fn(&Config) -> bool,
}

const IDLE: &[Idle] = &[
    Idle {
        keys: &["solver.milestones", "solver.milestone_epochs", "solver.gamma"],
        switch: "solver.schedule",
        applies: |c| c.solver.schedule == Schedule::Cosine,
    },
    Idle {
        keys: &["solver.min_learning_rate"],
        switch: "solver.schedule",
        applies: |c| c.solver.schedule == Schedule::Multistep,
    },
    Idle {
        keys: &["model.backbone.stride_in_1x1"],
        switch: "model.backbone.block",
        applies: |c| c.model.backbone.block == Block::Basic,
    },
    Idle {
        keys: &["model.backbone.norm_groups"],
        switch: "model.backbone.norm",
        applies: |c| !c.model.has_norm(NormKind::GroupNorm),
    },
    Idle {
        keys: &["input.augment.min_sizes"],
        switch: "input.augment.jitter_size",
        applies: |c| c.input.augment.jitter_size > 0,
    },
    Idle {
        keys: &["input.augment.jitter_scale"],
        switch: "input.augment.jitter_size",
        applies: |c| c.input.augment.jitter_size == 0,
    },
    Idle {
        keys: &["input.augment.crop_keeps_object"],
        switch: "input.augment.crop",
        applies: |c| c.input.augment.crop == 1.0,
    },
    Idle {
        keys: &["input.augment.boxes_after_crop", "input.augment.min_visible"],
        switch: "input.augment.crop",
        applies: |c| c.input.augment.crop == 1.0 && c.input.augment.jitter_size == 0,
    },
    Idle {
        keys: &["model.backbone.norm"],
        switch: "model.backbone.kind",
        applies: |c| c.model.backbone.kind == BackboneKind::Convnext,
    },
    Idle {
        keys: &["model.fpn."],
        switch: "model.backbone.output",
        applies: |c| !c.model.backbone.has_pyramid(),
    },
    Idle {
        keys: &["data.repeat"],
        switch: "data.repeat_threshold",
        applies: |c| c.data.repeat_threshold == 0.0,
    },
    Idle {
        keys: &["train.ema_warmup_steps"],
        switch: "train.ema_decay",
        applies: |c| c.train.ema_decay.is_none(),
    },
    Idle {
        keys: &["model.allow_partial"],
        switch: "model.weights",
        applies: |c| c.model.weights.is_none() && c.model.backbone.weights.is_none(),
    },
];

impl Config {
    /// True if the warm-up ends before the run does, or if the length of the run in steps is not
    /// yet known.
    pub(crate) fn warmup_ends(&self) -> bool {
        self.train.steps == 0
            || self.solver.warmup_steps
                < self.train.steps.saturating_add(self.solver.first_schedule_step)
    }

    /// Warnings for a new run: a message for each value that has no effect, or an unexpected one.
    /// `origins` are the origins of this config's values.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] for contradictory values: a warm-up that does not end, an input
    /// mean outside the range of pixels, or an image id that is listed twice.
    pub fn advice(&self, origins: &Origins) -> Result<Vec<String>, ConfigError> {
        let refuse = |key: &str, problem| {
            let file = origins.get(key).map_or("config".into(), |origin| origin.file.clone());
            Err(ConfigError::Invalid { file, key: key.into(), problem })
        };
        let (solver, input, steps) = (&self.solver, &self.input, self.train.steps);
        // A run in epochs is checked later, when the data is known.
        if self.train.epochs.is_none() && !self.warmup_ends() {
            return refuse(
                "solver.warmup_steps",
                format!(
                    "is {}, but train.steps is {steps}, so the learning rate never reaches \
                 solver.learning_rate; shorten the warm-up, or train longer",
                    solver.warmup_steps
                ),
            );
        }
        let white = 255.0 * input.pixel_scale;
        // With a tolerance: 255 times the rounded 1/255 is not exactly 1.
        if input.mean.iter().any(|mean| !(0.0..=1.001 * white).contains(mean)) {
            return refuse(
                "input.mean",
                format!(
                    "is {:?}, but pixels are between 0 and {white} (255 x input.pixel_scale); \
                     scale the mean and input.std, or set input.pixel_scale to match them",
                    input.mean
                ),
            );
        }
        let mut ids = HashSet::new();
        if let Some(id) = self.data.ids.iter().find(|id| !ids.insert(**id)) {
            return refuse("data.ids", format!("names image {id} twice; name each image once"));
        }
        let mut advice = self.idle(origins)?;
        self.without_training(&mut advice);
        let late = solver.milestones.iter().filter(|milestone| **milestone >= steps).count();
        if late > 0 && steps > 0 && solver.schedule == Schedule::Multistep {
            advice.push(format!(
                "{late} of the {} solver.milestones are at or beyond train.steps = {steps}: the \
                 learning rate does not fall there",
                solver.milestones.len()
            ));
        }
        if let (Some(rate), Some(batch)) =
            (origins.get("solver.learning_rate"), origins.get("train.batch_size"))
            && rate.layer < batch.layer
            && solver.reference_batch.is_none()
        {
            advice.push(format!(
                "solver.learning_rate = {} ({}) was not changed along with train.batch_size = {} \
                 ({}): it is usually scaled in proportion to the batch size",
                solver.learning_rate, rate.file, self.train.batch_size, batch.file
            ));
        }
        if self.is_scored_on_training_data() && !self.eval.train_set {
            advice.push(
                "the validation data is the training data: its AP does not measure accuracy on new \
                 images"
                    .into(),
            );
        }
        Ok(advice)
    }

    /// Adds a message for each combination of values with which a part of the model is not trained.
    fn without_training(&self, advice: &mut Vec<String>) {
        advice.extend((self.model.kind.family().advice)(self));
        let rate = self.rate_for_batch(self.solver.learning_rate);
        if rate < 1e-12 {
            advice.push(format!("solver.learning_rate = {rate:e} changes no weight in f32"));
        }
    }

    /// A message for each key that has no effect, and that was set in the same layer as its switch
    /// or a later one.
    fn idle(&self, origins: &Origins) -> Result<Vec<String>, ConfigError> {
        let changed = Config::default().differences(self)?;
        let layer = |key: &str| origins.get(key).map_or(0, |origin| origin.layer);
        let mut sentences = Vec::new();
        let mut idle = |change: &Difference, switch: &str, value: &str| {
            if layer(&change.key) >= layer(switch) {
                sentences.push(format!(
                    "{} = {} has no effect with {switch} = {value}",
                    change.key, change.to,
                ));
            }
        };
        for change in &changed {
            let Some(of) = schema().key(&change.key).and_then(|key| key.of.as_ref()) else {
                continue;
            };
            let switch = format!("{}.kind", configs::table_of(&change.key));
            let value = self.value(&switch)?;
            if of.split(' ').all(|of| value.trim_matches('"') != of) {
                idle(change, &switch, &value);
            }
        }
        let switch = "solver.optimizer";
        for change in changed.iter().filter(|of| self.solver.optimizer.ignores(&of.key)) {
            idle(change, switch, &self.value(switch)?);
        }
        let idle_now = IDLE.iter().chain(self.model.kind.family().idle);
        let idle_now = idle_now.filter(|idle| (idle.applies)(self));
        let of_others =
            detectors::idle_keys(&self.model).into_iter().map(|keys| (keys, "model.kind"));
        for (keys, switch) in idle_now.map(|idle| (idle.keys, idle.switch)).chain(of_others) {
            let is_one = |key: &str| {
                keys.iter().any(|k| key == *k || (k.ends_with('.') && key.starts_with(k)))
            };
            for change in changed.iter().filter(|change| is_one(&change.key)) {
                idle(change, switch, &self.value(switch)?);
            }
        }
        Ok(sentences)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use configs::preset_names;

    fn advice(preset: &str, set: &[&str]) -> Result<Vec<String>, String> {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        let (config, origins) =
            Config::load_with_origins(preset, &set).map_err(|fault| fault.to_string())?;
        config.advice(&origins).map_err(|fault| fault.to_string())
    }

    #[test]
    fn presets_give_no_warnings() {
        for name in preset_names() {
            assert_eq!(advice(name, &[]), Ok(vec![]), "{name}");
        }
    }

    #[test]
    fn contradictory_config_is_rejected_with_fix() {
        for (preset, set, words) in [
            (
                "micro",
                &["solver.warmup_steps=1000", "train.steps=4"][..],
                "--set: `solver.warmup_steps` is 1000, but train.steps is 4, so the learning rate \
                 never reaches solver.learning_rate; shorten the warm-up, or train longer",
            ),
            ("tiny", &["solver.warmup_steps=90000"], "`solver.warmup_steps` is 90000"),
            ("micro", &["input.mean=[123.7,116.3,103.5]"], "between 0 and 1 (255"),
            ("mlperf_r50", &["input.mean=[-1,0,0]"], "between 0 and 255 (255"),
            ("micro", &["train.ema_decay=0.9999999999"], "so the average never changes"),
            ("micro", &["data.ids=[4,7,1,7]"], "`data.ids` names image 7 twice"),
            (
                "micro",
                &["solver.learning_rate=1e-45"],
                "`solver.learning_rate` gives a learning rate of 1e-45",
            ),
            (
                "mlperf_r50",
                &["solver.groups=[{match='*', lr_factor=1e-40}]"],
                "groups[0].lr_factor` g",
            ),
            ("mlperf_r50", &["solver.gamma=1e-20"], "`solver.gamma` gives"),
        ] {
            let fault = advice(preset, set).expect_err(words);
            assert!(fault.contains(words), "{fault}");
        }
        // An input mean of 1, the mean of white images, is valid.
        for pixel_scale in ["0.00392156862745098", "1"] {
            let mean = if pixel_scale == "1" { "255" } else { "1" };
            let mean = format!("input.mean=[{mean}, 0, 0]");
            let scale = format!("input.pixel_scale={pixel_scale}");
            assert_eq!(advice("micro", &[&mean, &scale]), Ok(vec![]));
        }
    }

    /// A ConvNeXt's norms are fixed, and convolution groups only apply to a ResNet.
    #[test]
    fn keys_of_another_backbone_are_reported() {
        let set = ["model.backbone.norm=group_norm", "model.backbone.groups=3"];
        let told = advice("convnext_tiny", &set).expect("a config").join("; ");
        for key in ["model.backbone.norm = ", "model.backbone.groups = 3"] {
            assert!(told.contains(key) && told.contains("model.backbone.kind = "), "{told}");
        }
        let fault = advice("torchvision_r50", &set).expect_err("a fault");
        assert!(fault.contains("is 3, which does not divide 64 channels"), "{fault}");
        let basic = ["model.backbone.width_per_group=4"];
        let fault = advice("torchvision_r18", &basic).expect_err("a fault");
        assert!(fault.contains("remove it"), "{fault}");
    }

    /// Covers runs that are shortened by `--set`, or by a file that extends the file with the
    /// warm-up.
    #[test]
    fn warmup_is_shortened_with_the_run() {
        let warmup = |preset: &str, set: &str| {
            let (config, origins) =
                Config::load_with_origins(preset, &[set.to_string()]).expect("a config");
            let origin = origins.get("solver.warmup_steps").map(|o| o.file.clone());
            (config.solver.warmup_steps, origin.unwrap_or_default())
        };
        let half = |steps: u64| (steps, "half of train.steps".to_string());
        assert_eq!(warmup("tiny", "train.steps=60"), half(30));
        assert_eq!(warmup("torchvision_r50", "train.steps=1000"), half(500));
        assert_eq!(warmup("micro", "train.steps=1"), half(0));
        assert_eq!(warmup("tiny", "train.steps=1001"), (1000, String::new()));
        assert_eq!(warmup("micro", "train.steps=6"), (5, "preset micro".into()));
        assert_eq!(advice("tiny", &["train.steps=10"]), Ok(vec![]));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("mine.toml");
        std::fs::write(&file, "extends = \"quickstart\"\n[train]\nsteps = 100").expect("room");
        let file = file.to_string_lossy();
        assert_eq!(warmup(&file, "train.seed=1"), half(50));
        // The warm-up of a resumed run is not changed.
        let (again, _) =
            Config::load_as_written("tiny", &["train.steps=60".into()]).expect("a config");
        assert_eq!(again.solver.warmup_steps, 1000);
    }

    #[test]
    fn values_without_effect_are_reported() {
        for (preset, set, words) in [
            ("quickstart", &["solver.milestones=[5]"][..], "has no effect with solver.schedule"),
            ("micro", &["solver.min_learning_rate=0.001"], "\"multistep\""),
            ("micro", &["solver.optimizer=novograd", "solver.momentum=0.5"], "solver.momentum"),
            ("micro", &["solver.novograd.beta1=0.5"], "solver.optimizer = \"sgd\""),
            ("micro", &["solver.lars.trust_coefficient=0.5"], "solver.optimizer = \"sgd\""),
            ("micro", &["model.backbone.width=32"], "model.backbone.kind = \"small\""),
            ("micro", &["model.box_head.loss=giou", "model.box_head.beta=0.5"], "\"giou\""),
            ("faster_r50", &["model.detections.mask_threshold=0.4"], "\"faster_rcnn\""),
            ("faster_r50", &["model.mask_head.channels=[8]"], "\"faster_rcnn\""),
            ("faster_r50", &["model.detections.paste_rule=grid_sample"], "\"faster_rcnn\""),
            ("micro", &["model.mask_head.target_min_side=0.1"], "\"roi_align_bitmap\""),
            ("micro", &["model.allow_partial=true"], "model.weights = \"none\""),
            ("micro", &["data.repeat=linear"], "data.repeat_threshold = 0"),
            ("micro", &["solver.learning_rate=1e-20"], "= 1e-20 changes no weight"),
            ("micro", &["model.rpn.positive_fraction=0"], "model.rpn.positive_fraction = 0 of"),
            ("micro", &["model.roi.positive_fraction=0.01"], "is less than 1, so no positives are"),
            ("torchvision_r50", &["train.steps=200000", "solver.milestones=[9,300000]"], "1 of"),
            (
                "torchvision_r50",
                &["train.batch_size=2"],
                "solver.learning_rate = 0.02 (preset torchvision_r50) was not changed along with \
                 train.batch_size = 2 (--set)",
            ),
            (
                "tiny",
                &["data.train_store=a", "data.val_store=a"],
                "the validation data is the training data",
            ),
        ] {
            let found = advice(preset, set).expect("advice");
            assert!(found.len() == 1 && found[0].contains(words), "{set:?}: {found:?}");
        }
        // No warning if only the preset sets the key: the user set the switch in a later layer.
        for (preset, set) in [
            ("torchvision_r50", &["solver.schedule=cosine"][..]),
            ("tiny", &["model.kind=faster_rcnn", "model.box_head.loss=giou"]),
            ("torchvision_r50", &["train.batch_size=2", "solver.learning_rate=0.0025"]),
            ("tiny", &["data.train_store=a", "data.val_store=a", "eval.train_set=true"]),
        ] {
            assert_eq!(advice(preset, set), Ok(vec![]), "{set:?}");
        }
    }
}

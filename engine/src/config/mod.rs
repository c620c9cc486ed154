//! The config of a run: tables of keys, and constraints on their values.
//!
//! ```
//! use engine::config::Config;
//! let config = Config::load("quickstart", &["train.steps=10".to_string()])?;
//! assert_eq!(config.train.steps, 10);
//! assert_eq!(config.level_strides(), [4, 8, 16]);
//! # Ok::<(), configs::ConfigError>(())
//! ```

use std::collections::BTreeMap;
use std::sync::LazyLock;

use configs::{Facts, Schema, table};

mod augment;
mod data;
mod epochs;
mod fusion;
mod load;
mod loss_weights;
mod ranks;
mod solver;
mod synonyms;
mod train;
mod validate;

pub use crate::model::backbones::{Backbone, BackboneKind, Block, BodyOutput, NormKind, Stage};
pub use crate::model::detectors::Detections;
pub use crate::model::detectors::rcnn::heads::keypoint_head::{
    KeypointScore, Keys as KeypointHead,
};
pub use crate::model::detectors::rcnn::heads::mask_head::Keys as MaskHead;
pub use crate::model::detectors::rcnn::{
    Anchors, BoxHead, BoxLoss, Cascade, CellRule, LossDivisor, PostNmsScope, Roi, Rpn, StrideRule,
};
pub use crate::model::fpn::{ExtraLevel, Fpn};
pub use crate::model::keys::{Boxes, Model, ModelKind};
pub use crate::train::after_step::collect::{LogOf, LogRule, Reduce};
pub use augment::{Augment, BoxesAfterCrop};
pub use choices::{
    CpuPrecision, EmptyImages, LevelEps, MaskTargetRule, PasteRule, PixelEncoding, Precision,
    ResizeFilter, ResizeRounding,
};
pub use configs::{ConfigError, Difference, Key, MlperfRule, Origin, Origins, ResumeRule, Synonym};
pub use data::{ChannelOrder, Data, Input, RepeatRule, Set, Synthetic};
pub use fusion::{Fused, Fusion};
pub use load::{HALF_THE_RUN, OF_THE_BATCH};
pub use loss_weights::LossWeights;
pub use ranks::RanksConfig;
pub use solver::{Optimizer, ParameterGroup, Schedule, Solver, WarmupRule};
pub use train::{BestMetric, Eval, EvalWeights, Train};
pub(crate) use validate::{Idle, Tensor};

const REFERENCE_HEAD: &str = "# Config keys

Every key of a config file, with the values it takes, its unit, its default and its meaning.
`extends = \"NAME\"`, above the first table, inherits from a preset or a file in the same directory.
Omitted keys have their defaults.
`--set KEY=VALUE` overrides a file; `\"none\"` unsets what may be unset.
`onegraph config KEY` explains one key.
`onegraph train CONFIG --print-config` shows the values of a config.

This file is generated from the tables of keys that `engine/src/config/mod.rs` puts together.
After a change there, write it again:

```sh
ONEGRAPH_DOCS=write cargo test --release -p engine --test config
```
";

/// The schema of the config.
pub fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        Schema::of::<Config>(Facts {
            synonyms: &synonyms::SYNONYMS,
            forms: &epochs::FORMS,
            removed: &[(
                "train.tuning",
                "tables of measured kernel times are no longer used; plans follow the cost model",
            )],
        })
    });
    &SCHEMA
}

/// The text of `docs/config.md`, with a section per table of the config.
pub fn reference() -> String {
    REFERENCE_HEAD.to_string() + &schema().reference()
}

table! {
    /// The config of a run: model, input, training and evaluation.
    pub struct Config {
        /// The detector.
        pub model: Model,
        /// Conversion of a decoded image to the network's input tensor.
        pub input: Input,
        /// Sources of images and annotations.
        pub data: Data,
        /// Optimizer, learning rate schedule and loss scale.
        pub solver: Solver,
        /// The weight of each loss.
        pub loss_weights: LossWeights,
        /// Length of the run, batch, seed, logging and checkpoints.
        pub train: Train,
        /// Evaluation.
        pub eval: Eval,
        /// Runs with several ranks.
        pub ranks: RanksConfig,
        /// Fusions in the training step on a GPU.
        pub fusion: Fusion,
    }
}

impl Config {
    /// The complete resolved config as TOML, from which [`Config::from_toml`] restores the same
    /// config. Optional values that are not set are omitted.
    ///
    /// # Errors
    /// [`ConfigError::Write`] if serialization fails. A valid config always serializes.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        configs::to_toml(self)
    }

    /// Like [`Config::to_toml`], with a comment above each key: meaning, values and unit. Optional
    /// values that are not set are `"none"`.
    ///
    /// # Errors
    /// As for [`Config::to_toml`].
    pub fn to_commented_toml(&self) -> Result<String, ConfigError> {
        Ok(schema().commented(&configs::to_table(self)?))
    }

    /// The keys whose values differ in `other`, sorted.
    ///
    /// # Errors
    /// As for [`Config::to_toml`].
    pub fn differences(&self, other: &Config) -> Result<Vec<Difference>, ConfigError> {
        Ok(configs::differences(&configs::to_table(self)?, &configs::to_table(other)?))
    }

    /// Each key with its value as TOML.
    ///
    /// # Errors
    /// As for [`Config::to_toml`].
    pub fn values(&self) -> Result<BTreeMap<String, String>, ConfigError> {
        Ok(configs::values(&configs::to_table(self)?))
    }

    /// The value of a dotted key as TOML; `"none"` if it is not set.
    ///
    /// # Errors
    /// As for [`Config::to_toml`].
    pub fn value(&self, key: &str) -> Result<String, ConfigError> {
        Ok(configs::value(&configs::to_table(self)?, key))
    }

    /// True if the config has images to evaluate on.
    pub fn has_validation(&self) -> bool {
        let Data { val, val_store, val_annotations, val_fraction, synthetic, .. } = &self.data;
        let is_given = val_store.is_some() || val_annotations.is_some() || !val.is_empty();
        is_given || synthetic.is_some() || *val_fraction > 0.0 || self.eval.train_set
    }

    /// True if the model is evaluated on its training data: by `eval.train_set`, or because both
    /// splits have the same files.
    pub fn is_scored_on_training_data(&self) -> bool {
        let data = &self.data;
        self.eval.train_set
            || (data.train_store.is_some() && data.train_store == data.val_store)
            || (!data.train.is_empty() && data.train == data.val)
            || (data.train_annotations.is_some()
                && (&data.train_annotations, &data.train_images)
                    == (&data.val_annotations, &data.val_images))
    }

    /// Scales a learning rate of `[solver]` to the batch size (`solver.reference_batch`).
    pub fn rate_for_batch(&self, rate: f64) -> f64 {
        let reference = self.solver.reference_batch;
        reference.map_or(rate, |images| {
            let share = self.train.batch_size as f64 / images as f64;
            rate * if self.solver.optimizer.entry().rate_by_root { share.sqrt() } else { share }
        })
    }

    /// Number of feature levels of the backbone that are used, without the stem.
    pub fn num_backbone_levels(&self) -> usize {
        if !self.model.backbone.has_pyramid() {
            return 1;
        }
        self.model.backbone.stages().len().saturating_sub(1)
    }

    /// Number of FPN levels: the backbone's levels plus the extra one.
    pub fn num_levels(&self) -> usize {
        self.level_strides().len()
    }

    /// Nominal stride of each level in pixels of the network's input, finest first: `[4, 8, 16, 32,
    /// 64]` for a ResNet with the extra level, `[16]` for C4 and DC5.
    pub fn level_strides(&self) -> Vec<usize> {
        let stages = self.model.backbone.stages();
        if !self.model.backbone.has_pyramid() {
            // C4 uses the last but one stage, DC5 the last.
            let skipped = usize::from(self.model.backbone.is_c4());
            return stages.iter().rev().skip(skipped).take(1).map(|stage| stage.stride).collect();
        }
        let mut strides: Vec<usize> = stages.iter().skip(1).map(|stage| stage.stride).collect();
        if self.model.fpn.extra_level == ExtraLevel::MaxPool {
            strides.extend(strides.last().map(|coarsest| 2 * coarsest));
        }
        strides
    }
}

#[cfg(test)]
mod tests {
    use super::Config;

    #[test]
    fn config_differences_list_key_and_both_values() {
        let load = |overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
            Config::load("quickstart", &overrides).expect("a preset")
        };
        let ours = load(&[]);
        assert!(ours.differences(&ours).expect("written").is_empty());
        let theirs = load(&[
            "train.seed=3",
            "data.synthetic=none",
            "train.name=second",
            "input.flip_probability=0.2",
        ]);
        let found = ours.differences(&theirs).expect("written");
        let of = |key: &str| found.iter().find(|d| d.key == key).map(ToString::to_string);
        assert_eq!(of("train.seed").as_deref(), Some("train.seed: 0 -> 3"));
        assert_eq!(of("train.name").as_deref(), Some("train.name: none -> \"second\""));
        let flips = "input.flip_probability: 0.5 -> 0.2";
        assert_eq!(of("input.flip_probability").as_deref(), Some(flips));
        let kind = "data.synthetic.kind: \"shapes\" -> none";
        assert_eq!(of("data.synthetic.kind").as_deref(), Some(kind));
        assert!(of("solver.learning_rate").is_none());
    }
}

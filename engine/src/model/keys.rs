//! The table `[model]`: kind of detector, initial weights, and the tables of the detector's parts.

use configs::{Check, table};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::backbones::{self, Backbone, NormKind};
use super::detectors::{self, Normed, detectors};
use crate::config::{Config, Fpn};

/// Defines the table, including the detectors' tables, and the kinds of model.
macro_rules! model {
    (
        $(#[doc = $kinds:tt])*
        kinds { $($(#[doc = $about:tt])* $kind:ident $word:literal = $family:ident,)* }
        tables { $($(#[doc = $doc:tt])* $name:ident: $table:ty,)* }
        $($rest:tt)*
    ) => {
table! {
    /// `[model]`: the detector.
    pub struct Model {
        $(#[doc = $kinds])*
        #[key(resume = Step, mlperf = Model)]
        pub kind: ModelKind = ModelKind::MaskRcnn,
        /// Number of foreground classes. Default 0: the number of categories in the data.
        #[key(range = 0..=65_535, unit = "classes", resume = Classes, mlperf = Free)]
        pub num_classes: usize = 0,
        /// Weights file of a complete detector to start from (safetensors, `.pth`, `.pkl` or
        /// `.npz`, with torchvision, detectron2, maskrcnn-benchmark or Tensorpack names). Only the
        /// shapes of tensors that depend on the number of classes may differ; these tensors are
        /// randomly initialised. `train --init` sets it. Default: none.
        #[key(resume = Start, mlperf = Model)]
        pub weights: Option<String> = None,
        /// The predictors keep the rows of classes that `weights` contains under the same name;
        /// only the remaining rows are reinitialised. `--finetune` sets it. Default false.
        #[key(resume = Start, mlperf = Model)]
        pub finetune: bool = false,
        /// Parameters that are missing from the weights file, or have a different shape there, keep
        /// their initial values; `--allow-partial` sets it. Default false: such parameters end the
        /// run.
        #[key(resume = Free, mlperf = Model)]
        pub allow_partial: bool = false,
        /// Weights of other projects are loaded by name even if the models compute different
        /// functions; the differences are listed. `--names-only` sets it. Default false.
        #[key(resume = Free, mlperf = Model)]
        pub names_only: bool = false,
        /// Parameters to freeze in addition to `backbone.frozen_stages`, by torchvision name; `*`
        /// matches any text (`["backbone.*", "rpn.head.*"]`). Default `[]`.
        #[key(resume = State, mlperf = Model)]
        pub freeze: Vec<String> = Vec::new(),
        /// The body.
        pub backbone: Backbone,
        $($(#[doc = $doc])* pub $name: $table,)*
    }
}

/// The kind of detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    $($(#[doc = $about])* $kind,)*
}

impl ModelKind {
    /// Its name in a config.
    pub fn name(self) -> &'static str {
        match self {
            $(Self::$kind => $word,)*
        }
    }
}
    };
}
detectors!(model);

impl ModelKind {
    /// True if the detector has a mask head.
    pub fn has_masks(self) -> bool {
        self == ModelKind::MaskRcnn
    }

    /// True if the detector has a keypoint head.
    pub fn has_keypoints(self) -> bool {
        self == ModelKind::KeypointRcnn
    }
}

impl Model {
    /// Number of foreground classes: `num_classes`, or `found` if that is 0.
    pub fn classes_or(&self, found: usize) -> usize {
        if self.num_classes > 0 { self.num_classes } else { found }
    }

    /// The parts that may have a norm.
    fn normed(&self) -> Vec<Normed> {
        let stages = self.backbone.stages().into_iter().map(|stage| stage.divisor);
        let Fpn { norm, channels, .. } = self.fpn;
        let of_body =
            Normed { norm: Some(self.backbone.norm), channels: stages.collect(), part: "a stage" };
        let of_pyramid = Normed { norm, channels: vec![channels], part: "the feature pyramid" };
        [vec![of_body, of_pyramid], (self.kind.family().normed)(self)].concat()
    }

    /// True if any part of the model has this norm.
    pub fn has_norm(&self, norm: NormKind) -> bool {
        self.normed().iter().any(|part| part.norm == Some(norm) && !part.channels.is_empty())
    }
}

table! {
    /// `[model.boxes]`: convention of box corners.
    pub struct Boxes {
        /// Corners are inclusive pixel indices: width is `x2 - x1 + 1` (Detectron, MLPerf). Default
        /// false: width is `x2 - x1`.
        #[key(resume = Step, mlperf = Model)]
        pub legacy_plus_one: bool = false,
    }
}

/// Checks the keys of a model.
pub(crate) fn check(config: &Config, check: &mut Check) {
    backbones::check(&config.model.backbone, check);
    let backbone = &config.model.backbone;
    if config.model.has_norm(NormKind::GroupNorm) {
        groups(config, check);
    }
    if let Some(weights) = &backbone.weights {
        check.text("model.backbone.weights", weights);
        check.require(config.model.weights.is_none(), "model.weights", || {
            "conflicts with model.backbone.weights, as a whole model includes the backbone; set \
             only one"
                .into()
        });
    }
    if let Some(weights) = &config.model.weights {
        check.text("model.weights", weights);
    }
    let has_classes = config.model.weights.is_some();
    check.require(!config.model.finetune || has_classes, "model.finetune", || {
        "is true, but model.weights is not set; give the file of a whole detector".into()
    });
    check.at_least_one("model.fpn.channels", config.model.fpn.channels);
    detectors::check(config, check);
}

/// The number of groups of a group norm must divide the channel counts of all normalized layers.
fn groups(config: &Config, check: &mut Check) {
    let backbone = &config.model.backbone;
    let groups = backbone.norm_groups;
    check.at_least_one("model.backbone.norm_groups", groups);
    check.positive("model.backbone.norm_eps", backbone.norm_eps);
    for Normed { norm, channels, part } in config.model.normed() {
        let is_whole = |count: &usize| groups == 0 || count.is_multiple_of(groups);
        let uneven = channels.into_iter().find(|count| !is_whole(count));
        let fits = norm != Some(NormKind::GroupNorm) || uneven.is_none();
        check.require(fits, "model.backbone.norm_groups", || {
            let count = uneven.unwrap_or_default();
            format!("is {groups}, which does not divide {part}'s {count} channels; change either")
        });
    }
}

//! The keys of a config file: one struct per table; every field states its default and unit.

#[macro_use]
mod table;
mod augment;
mod backbone;
mod data;
mod fusion;
mod heads;
mod model;
mod optimizers;
mod ranks;
mod solver;
mod train;

pub use augment::{Augment, BoxesAfterCrop};
pub(crate) use backbone::MAX_LEVELS;
pub use backbone::{Backbone, BackboneKind, Block, BodyOutput, NormKind, Stage};
pub use choices::{
    CpuPrecision, EmptyImages, LevelEps, MaskTargetRule, PasteRule, PixelEncoding, Precision,
    ResizeFilter, ResizeRounding,
};
pub use data::{ChannelOrder, Data, Input, RepeatRule, Set, Synthetic};
pub use fusion::{Fused, Fusion};
pub use heads::{
    BoxHead, BoxLoss, Cascade, Detections, KeypointHead, KeypointScore, LossDivisor, MaskHead,
    PostNmsScope, Roi, Rpn,
};
pub use model::{Anchors, Boxes, CellRule, ExtraLevel, Fpn, Model, ModelKind, StrideRule};
pub use optimizers::{Adamw, Lars, LossWeights, Novograd, NovogradForm};
pub use ranks::RanksConfig;
pub use solver::{Optimizer, ParameterGroup, Schedule, Solver, WarmupRule};
pub use table::{MlperfRule, ResumeRule};
pub use train::{BestMetric, Eval, EvalWeights, LogOf, LogRule, Reduce, Train};

table! {
    /// A whole run: model, input, training and evaluation.
    pub struct Config {
        /// The detector.
        pub model: Model,
        /// From a decoded image to the tensor that the network sees.
        pub input: Input,
        /// Where images and annotations come from.
        pub data: Data,
        /// Optimizer, learning rate schedule and loss scale.
        pub solver: Solver,
        /// The weight of each loss.
        pub loss_weights: LossWeights,
        /// Length of the run, batch, seed, logging and checkpoints.
        pub train: Train,
        /// Evaluation.
        pub eval: Eval,
        /// Runs of several processes.
        pub ranks: RanksConfig,
        /// Fused forms of a GPU's step.
        pub fusion: Fusion,
    }
}

impl Config {
    /// True if there are images to evaluate on.
    pub fn has_validation(&self) -> bool {
        let Data { val, val_store, val_annotations, val_fraction, synthetic, .. } = &self.data;
        let is_given = val_store.is_some() || val_annotations.is_some() || !val.is_empty();
        is_given || synthetic.is_some() || *val_fraction > 0.0 || self.eval.train_set
    }

    /// True if the config asks for scores on the training data: by `eval.train_set`, or by the same
    /// files for both.
    pub fn is_scored_on_training_data(&self) -> bool {
        let data = &self.data;
        self.eval.train_set
            || (data.train_store.is_some() && data.train_store == data.val_store)
            || (!data.train.is_empty() && data.train == data.val)
            || (data.train_annotations.is_some()
                && (&data.train_annotations, &data.train_images)
                    == (&data.val_annotations, &data.val_images))
    }

    /// A learning rate of `[solver]` for the images of a step.
    pub fn rate_for_batch(&self, rate: f64) -> f64 {
        let reference = self.solver.reference_batch;
        reference.map_or(rate, |images| {
            let share = self.train.batch_size as f64 / images as f64;
            rate * if self.solver.optimizer == Optimizer::Adamw { share.sqrt() } else { share }
        })
    }

    /// Number of feature levels taken from the backbone, its stem left out; RoI features are
    /// pooled from these.
    pub fn num_backbone_levels(&self) -> usize {
        if !self.model.backbone.has_pyramid() {
            return 1;
        }
        self.model.backbone.stages().len().saturating_sub(1)
    }

    /// Sides of anchors, such as `model.anchors.sizes`, by level: one each, or all on a single map.
    pub fn by_level(&self, sizes: &[f32]) -> Vec<Vec<f32>> {
        if !self.model.backbone.has_pyramid() {
            return vec![sizes.to_vec()];
        }
        sizes.iter().map(|size| vec![*size]).collect()
    }

    /// Ratios of anchors, such as `model.anchors.ratios`, by level.
    pub fn ratios_of_levels(&self, ratios: &[f32]) -> Vec<Vec<f32>> {
        let levels = self.num_levels();
        match self.model.anchors.ratios_by_level {
            false => vec![ratios.to_vec(); levels],
            true => {
                let each = ratios.len() / levels;
                ratios.chunks(each.max(1)).map(<[f32]>::to_vec).collect()
            }
        }
    }

    /// Number of FPN levels that the RPN runs on: the backbone's levels plus the extra one.
    pub fn num_levels(&self) -> usize {
        self.level_strides().len()
    }

    /// Nominal stride of every level in pixels of the network's image, finest first: `[4, 8, 16,
    /// 32, 64]` for ResNet with the extra level, `[16]` for C4 and DC5.
    pub fn level_strides(&self) -> Vec<usize> {
        let stages = self.model.backbone.stages();
        if !self.model.backbone.has_pyramid() {
            // The last but one of a C4 model.
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

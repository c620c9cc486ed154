//! `[loss_weights]`.

use std::collections::BTreeMap;

use configs::table;

use crate::model::detectors::detectors;

/// Defines the table, with one key per loss of the detectors.
macro_rules! loss_weights {
    (
        $(#[doc = $about:tt])*
        kinds { $($kinds:tt)* }
        tables { $($tables:tt)* }
        losses { $($(#[doc = $doc:tt])* $loss:ident $objects:literal,)* }
    ) => {
table! {
    /// `[loss_weights]`: the weight of each loss in the sum that training minimizes.
    ///
    /// Logs, metrics and TensorBoard show the unweighted losses; `loss` is their weighted sum.
    pub struct LossWeights {
        $($(#[doc = $doc])*
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub $loss: f32 = 1.0,)*
        /// Weights of RoIs in `loss_classifier` by class: category name (or `background`) = weight.
        /// Default `{}`: 1 for all.
        #[key(entries = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub classes: BTreeMap<String, f32> = BTreeMap::new(),
    }
}

impl LossWeights {
    /// Name of each loss, what a model must have for it (such as `masks`), and its weight.
    pub(crate) fn all(&self) -> Vec<(&'static str, &'static str, f32)> {
        vec![$((stringify!($loss), $objects, self.$loss),)*]
    }
}
    };
}
detectors!(loss_weights);

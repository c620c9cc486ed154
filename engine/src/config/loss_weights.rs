//! `[loss_weights]`.

use std::collections::BTreeMap;

use configs::table;

table! {
    /// `[loss_weights]`: the weight of each loss in the sum that training minimizes.
    ///
    /// Logs, metrics and TensorBoard show each loss without its weight, and `loss`, the weighted
    /// sum.
    pub struct LossWeights {
        /// Weight of `loss_objectness`. Default 1.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub objectness: f32 = 1.0,
        /// Weight of `loss_rpn_box_reg`. Default 1.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub rpn_box_reg: f32 = 1.0,
        /// Weight of `loss_classifier`. Default 1.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub classifier: f32 = 1.0,
        /// Weight of `loss_box_reg`. Default 1.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub box_reg: f32 = 1.0,
        /// Weight of `loss_mask`. Default 1.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub mask: f32 = 1.0,
        /// Weight of `loss_keypoint`. Default 1.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub keypoint: f32 = 1.0,
        /// Weight of an RoI in the mean of `loss_classifier` by its class, by the category's name,
        /// or `background` for an RoI without an object. Default `{}`: 1 for all.
        #[key(entries = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub classes: BTreeMap<String, f32> = BTreeMap::new(),
    }
}

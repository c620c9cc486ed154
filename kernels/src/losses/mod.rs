//! Code shared by the losses: formulas of one element, and the weight of a row in the mean over its
//! group of images.
//!
//! A loss is a mean within each group of `images_per_group` consecutive images, averaged over the
//! groups that hold images. So a row of group `g` weighs `1 / (max(count_g, 1) * groups)`, where
//! `count_g` is the number of rows of the group that the loss counts.

mod element;
mod giou;
mod grad;
pub(crate) mod launch;
pub(crate) mod row_loss;
mod rows;

pub(crate) use element::exponentials;
pub use element::{bce_with_logits, sigmoid, smooth_l1, softplus};
pub use giou::{decode_box, decode_box_grad, giou_loss};
pub(crate) use grad::backward_rule;
pub use grad::{Loss, LossGrad};
pub(crate) use row_loss::row_loss;
pub(crate) use rows::sum_rows;

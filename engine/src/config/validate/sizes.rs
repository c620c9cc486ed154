//! Limits on tensor sizes. They ensure that the planner's arithmetic cannot overflow. The planner
//! checks later that the memory suffices.

use configs::Check;

use crate::config::{Config, Stage};

/// Maximum number of elements of a tensor: 64 GiB in f32.
const MAX_ELEMENTS: u128 = 1 << 34;

/// A tensor that a program contains: the config key to reduce if it is too large, the meaning of
/// its dimensions, and the dimensions.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) key: &'static str,
    pub(crate) words: &'static str,
    pub(crate) factors: Vec<usize>,
}

pub(super) fn check(config: &Config, check: &mut Check) {
    for Tensor { key, words, factors } in tensors(config) {
        let elements = factors.iter().fold(1u128, |product, f| product.saturating_mul(*f as u128));
        check.require(elements <= MAX_ELEMENTS, key, || {
            format!(
                "is too large: {words} make a tensor of {} = {:.1e} elements; the limit is {:.1e}",
                factors.iter().map(usize::to_string).collect::<Vec<_>>().join(" x "),
                elements as f64,
                MAX_ELEMENTS as f64
            )
        });
    }
}

fn tensors(config: &Config) -> Vec<Tensor> {
    [maps(config), (config.model.kind.family().tensors)(config)].concat()
}

impl Config {
    /// Lower bound of the number of images in the larger of the two programs (training,
    /// evaluation). Depending on ranks and device, a program may contain several groups of the
    /// batch; larger sizes are checked when its memory is planned.
    pub(crate) fn most_images(&self) -> usize {
        self.train.images_per_group.max(self.eval.batch_size)
    }

    /// Maximum side of a padded image.
    pub(crate) fn most_side(&self) -> usize {
        let side = self.input.max_size.max(self.input.augment.jitter_size);
        side.next_multiple_of(self.input.size_divisor.max(1))
    }
}

/// The input image, feature maps, and the weights of backbone and FPN.
fn maps(config: &Config) -> Vec<Tensor> {
    let model = &config.model;
    let (images, side) = (config.most_images(), config.most_side());
    let map = |stride: usize| side.div_ceil(stride);
    let tensor = |key, words, factors| Tensor { key, words, factors };
    let mut tensors =
        vec![tensor("input.max_size", "images x side x side x 3", vec![images, side, side, 3])];
    for Stage { key, channels, stride, .. } in model.backbone.stages() {
        let words = "images x channels x map side x map side";
        tensors.push(tensor(key, words, vec![images, channels, map(stride), map(stride)]));
        tensors.push(tensor(key, "9 x channels x channels", vec![9, channels, channels]));
        let words = "channels x model.fpn.channels";
        tensors.push(tensor(key, words, vec![channels, model.fpn.channels]));
    }
    let fpn = model.fpn.channels;
    let key = "model.fpn.channels";
    let words = "images x channels x map side x map side";
    tensors.push(tensor(key, words, vec![images, fpn, map(4), map(4)]));
    tensors.push(tensor(key, "9 x channels x channels", vec![9, fpn, fpn]));
    tensors
}

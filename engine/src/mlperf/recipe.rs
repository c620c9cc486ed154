//! The hyperparameters that MLPerf Training v3.1 allows for Mask R-CNN at a global batch: those of
//! published runs if there are any, else from the rules' formulas (`training_rules.adoc`, appendix
//! of benchmark-specific rules).

/// COCO train2017 images with a usable annotation.
pub const TRAIN_IMAGES: usize = 117_266;

/// Hyperparameters for a global batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// Images per step.
    pub global_batch: usize,
    /// Number of images over which the loss is averaged and the top-k proposals are selected; in
    /// the reference, the images of one GPU.
    pub images_per_group: usize,
    /// Learning rate after warm-up.
    pub learning_rate: f64,
    /// Warm-up steps.
    pub warmup_steps: u64,
    /// Increase of the learning rate in each warm-up step.
    pub warmup_factor: f64,
    /// Steps of the two learning rate decays.
    pub decay_steps: [u64; 2],
    /// Proposals kept in training per `images_per_group` images, or per image if `per_image`.
    pub candidates: usize,
    /// True if proposals are limited per image.
    pub per_image: bool,
    /// The source of each value, one line per value.
    pub derivation: Vec<String>,
}

/// Hyperparameters of submitted runs.
struct Published {
    global_batch: usize,
    images_per_group: usize,
    warmup: (u64, f64),
    decay_steps: [u64; 2],
    per_image: bool,
    source: &'static str,
}

/// Published runs. The first one of a global batch is the default; for batch 256, that of the
/// preset `mlperf_256`.
const PUBLISHED: &[Published] = &[
    published(8, 4, (500, 2e-5), [144_000, 192_000], "v2.0, 2 A30"),
    published(48, 6, (625, 9.6e-5), [24_000, 32_000], "v0.7, DGX-1"),
    published(64, 8, (800, 1e-4), [18_000, 24_000], "v0.7, DGX A100"),
    published(96, 12, (625, 1.92e-4), [12_000, 16_000], "v1.0 to v3.1, 8 GPUs"),
    published(128, 4, (625, 2.56e-4), [9_000, 12_000], "v0.7 to v2.1, 32 GPUs"),
    published(256, 1, (1_800, 1.33e-4), [5_625, 7_500], "v0.7 to v3.1, 256 GPUs"),
    Published {
        per_image: true,
        ..published(256, 4, (2_300, 1.0435e-4), [6_125, 8_000], "v3.0, 64 GPUs")
    },
];

const fn published(
    global_batch: usize,
    images_per_group: usize,
    warmup: (u64, f64),
    decay_steps: [u64; 2],
    source: &'static str,
) -> Published {
    Published { global_batch, images_per_group, warmup, decay_steps, per_image: false, source }
}

impl Recipe {
    /// The recipe for a global batch that is divided into groups of `images_per_group` images.
    /// `None` selects the published group size or, if none is published, an eighth of the batch (8
    /// GPUs), or 1 if 8 does not divide the batch.
    ///
    /// # Errors
    /// A message if the batch is 0, or the group size does not divide it.
    pub fn new(global_batch: usize, images_per_group: Option<usize>) -> Result<Self, String> {
        if global_batch == 0 {
            return Err("the global batch must be at least 1".into());
        }
        let of_batch = PUBLISHED.iter().filter(|p| p.global_batch == global_batch);
        let known = of_batch
            .clone()
            .find(|p| images_per_group.is_none_or(|images| images == p.images_per_group));
        let eighth = if global_batch.is_multiple_of(8) { global_batch / 8 } else { 1 };
        let group = known.map(|p| p.images_per_group).or(images_per_group).unwrap_or(eighth);
        if group == 0 || !global_batch.is_multiple_of(group) {
            return Err(format!(
                "groups of {group} images do not divide a global batch of {global_batch}; give a \
                 divisor"
            ));
        }
        let mut derivation = Vec::new();
        let learning_rate = learning_rate(global_batch, &mut derivation);
        // Warm-up and decay do not depend on how the batch is distributed over GPUs.
        let rates = known.or_else(|| of_batch.clone().next());
        let (warmup_steps, warmup_factor) = warmup(learning_rate, rates, &mut derivation);
        let decay_steps = decay(global_batch, rates, &mut derivation);
        let per_image = known.is_some_and(|p| p.per_image);
        let candidates = if per_image { 1_000 } else { 1_000 * group };
        derivation.push(match per_image {
            true => "num_image_candidates 1000 for each image".into(),
            false => format!(
                "num_image_candidates {candidates} = 1000 x {group} images, shared by the images \
                 of a group"
            ),
        });
        Ok(Self {
            global_batch,
            images_per_group: group,
            learning_rate,
            warmup_steps,
            warmup_factor,
            decay_steps,
            candidates,
            per_image,
            derivation,
        })
    }

    /// Steps per epoch, as the reference counts them: including the last step, which is not full.
    pub fn steps_per_epoch(&self) -> u64 {
        (TRAIN_IMAGES / self.global_batch + 1) as u64
    }
}

/// `0.02 x K`, where K is the batch size divided by 16, rounded, and at most 12, as in published
/// runs at batch 256; below 16 images `0.02 / K`, where K is 16 divided by the batch size, rounded.
fn learning_rate(global_batch: usize, derivation: &mut Vec<String>) -> f64 {
    const MOST: usize = 12;
    if global_batch < 16 {
        let k = (16.0 / global_batch as f64).round();
        let rate = 0.02 / k;
        derivation.push(format!("opt_base_learning_rate {rate} = 0.02 / K, K = {k}"));
        return rate;
    }
    let k = ((global_batch as f64 / 16.0).round() as usize).min(MOST);
    let rate = 0.02 * k as f64;
    // Rounded, as 0.02 * 3 is not the floating-point number nearest to 0.06.
    let rate = (rate * 100.0).round() / 100.0;
    derivation.push(format!("opt_base_learning_rate {rate} = 0.02 x K, K = {k}"));
    rate
}

/// Warm-up steps, and the increase of the learning rate in each; the rules restrict neither.
fn warmup(
    learning_rate: f64,
    known: Option<&Published>,
    derivation: &mut Vec<String>,
) -> (u64, f64) {
    let (what, (steps, factor)) = match known {
        Some(p) => (format!("of {}", p.source), p.warmup),
        None if learning_rate < 0.04 => ("free".into(), (500, learning_rate / 500.0)),
        None => ("free".into(), (625, learning_rate / 625.0)),
    };
    derivation.push(format!(
        "opt_learning_rate_warmup_steps {steps}, opt_learning_rate_warmup_factor {factor:e} a step: \
         {what}"
    ));
    (steps, factor)
}

/// `(60000, 80000) x (1 + K / 10) x 16 / batch`.
fn decay(global_batch: usize, known: Option<&Published>, derivation: &mut Vec<String>) -> [u64; 2] {
    let by_rule = |k: f64| {
        [60_000.0, 80_000.0]
            .map(|steps| (steps * (1.0 + k / 10.0) * 16.0 / global_batch as f64).round() as u64)
    };
    // Large batches need more epochs.
    let k = if global_batch >= 192 { 5.0 } else { 2.0 };
    let steps = known.map_or_else(|| by_rule(k), |p| p.decay_steps);
    let exact = (0..10).map(f64::from).find(|k| by_rule(*k) == steps);
    let rule = match exact {
        Some(k) => {
            format!("(60000, 80000) x (1 + K / 10) x 16 / {global_batch}, K = {k}")
        }
        None => "close to the rule with K = 6".into(),
    };
    let source = known.map_or(String::new(), |p| format!(", of {}", p.source));
    let [first, second] = steps;
    derivation.push(format!("opt_learning_rate_decay_steps {first}, {second} = {rule}{source}"));
    steps
}

#[cfg(test)]
mod tests {
    use super::Recipe;

    /// The published rates, decays and candidates.
    #[test]
    fn recipe_reproduces_published_values() {
        let of = |batch, group| {
            let r = Recipe::new(batch, group).expect("a recipe");
            (r.learning_rate, r.warmup_steps, r.decay_steps, r.candidates)
        };
        assert_eq!(of(8, None), (0.01, 500, [144_000, 192_000], 4_000));
        assert_eq!(of(48, None), (0.06, 625, [24_000, 32_000], 6_000));
        assert_eq!(of(64, None), (0.08, 800, [18_000, 24_000], 8_000));
        assert_eq!(of(96, None), (0.12, 625, [12_000, 16_000], 12_000));
        assert_eq!(of(128, None), (0.16, 625, [9_000, 12_000], 4_000));
        assert_eq!(of(256, None), (0.24, 1_800, [5_625, 7_500], 1_000));
        assert_eq!(of(256, Some(4)), (0.24, 2_300, [6_125, 8_000], 1_000));
        assert!(Recipe::new(256, Some(4)).expect("a recipe").per_image);
    }

    /// Batches without a published run: the reference's 16 images, and others.
    #[test]
    fn unpublished_batch_sizes_follow_mlperf_rules() {
        let of = |batch, group| Recipe::new(batch, group).expect("a recipe");
        assert_eq!(of(2, Some(2)).learning_rate, 0.0025);
        let sixteen = of(16, None);
        assert_eq!((sixteen.learning_rate, sixteen.decay_steps), (0.02, [72_000, 96_000]));
        assert_eq!((sixteen.images_per_group, sixteen.candidates), (2, 2_000));
        assert_eq!((of(96, Some(6)).candidates, of(96, Some(6)).warmup_steps), (6_000, 625));
        assert_eq!(of(192, None).decay_steps, [7_500, 10_000]);
        assert_eq!(of(96, None).steps_per_epoch(), 1_222);
        assert!(of(96, None).derivation.iter().any(|line| line.contains("K = 6")));
    }

    #[test]
    fn zero_or_indivisible_batch_size_is_rejected() {
        assert!(Recipe::new(0, None).is_err());
        let refusal = Recipe::new(96, Some(7)).expect_err("7 does not divide 96");
        assert!(refusal.contains("divisor"), "{refusal}");
        assert!(Recipe::new(96, Some(0)).is_err());
    }
}

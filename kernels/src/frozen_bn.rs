//! Frozen batch norm as a scale and a bias per channel.

/// `(scale, bias)` such that `x * scale + bias` is the batch norm of `x` with fixed statistics:
/// `scale = weight / sqrt(var + eps)`, `bias = bias - mean * scale`.
///
/// All slices are `[C]`. Computed in f64, so folding adds no rounding error. Matches torchvision's
/// `FrozenBatchNorm2d`; maskrcnn-benchmark's has `eps = 0`.
pub fn fold_frozen_bn(
    weight: &[f32],
    bias: &[f32],
    mean: &[f32],
    var: &[f32],
    eps: f64,
) -> (Vec<f32>, Vec<f32>) {
    assert!([bias.len(), mean.len(), var.len()] == [weight.len(); 3], "one value per channel");
    let channel = |c: usize| {
        let scale = f64::from(weight[c]) / (f64::from(var[c]) + eps).sqrt();
        (scale as f32, (f64::from(bias[c]) - f64::from(mean[c]) * scale) as f32)
    };
    (0..weight.len()).map(channel).unzip()
}

#[cfg(test)]
mod tests {
    use super::fold_frozen_bn;

    /// Computed by hand: sqrt(3 + 1) = 2.
    #[test]
    fn frozen_bn_folds_mean_and_variance() {
        let (scale, bias) = fold_frozen_bn(&[4.0], &[1.0], &[5.0], &[3.0], 1.0);
        assert_eq!((scale, bias), (vec![2.0], vec![-9.0]));
    }
}

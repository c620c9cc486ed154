//! Conversion between our layouts and torchvision's.

use crate::model::{Layout, Param};

/// Converts values in our layout to torchvision's shape and layout.
pub fn to_torchvision(param: &Param, ours: &[f32]) -> (Vec<usize>, Vec<f32>) {
    let (shape, source) = permutation(param);
    (shape, source.iter().map(|&i| ours[i]).collect())
}

/// Converts values in torchvision's layout to ours.
pub fn from_torchvision(param: &Param, theirs: &[f32]) -> Vec<f32> {
    let (_, source) = permutation(param);
    let mut ours = vec![0.0; theirs.len()];
    for (value, &i) in theirs.iter().zip(&source) {
        ours[i] = *value;
    }
    ours
}

/// A parameter's shape in torchvision's layout.
pub(crate) fn torchvision_shape(param: &Param) -> Vec<usize> {
    match (param.layout, param.shape.as_slice()) {
        (Layout::Conv, &[k, r, s, c]) => vec![k, c, r, s],
        (Layout::ConvTranspose, &[c, r, s, k]) => vec![c, k, r, s],
        (Layout::Pointwise, &[k, _, _, c]) => vec![k, c],
        (Layout::Channels, &[c]) => vec![c, 1, 1],
        _ => param.shape.clone(),
    }
}

/// torchvision's shape, and for each element in torchvision's order its index in ours. Channels are
/// the last dimension in ours, and the second in torchvision's.
fn permutation(param: &Param) -> (Vec<usize>, Vec<usize>) {
    let len: usize = param.shape.iter().product();
    let [rows, places, channels] = match (param.layout, param.shape.as_slice()) {
        (Layout::Conv | Layout::ConvTranspose, &[n, r, s, c]) => [n, r * s, c],
        (Layout::Flattened { channels, side }, &[n, _]) => [n, side * side, channels],
        _ => [len, 1, 1],
    };
    let mut index = Vec::with_capacity(len);
    for row in 0..rows {
        for channel in 0..channels {
            index.extend((0..places).map(|place| (row * places + place) * channels + channel));
        }
    }
    (torchvision_shape(param), index)
}

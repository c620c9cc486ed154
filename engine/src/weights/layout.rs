//! Conversion between our layouts and torchvision's.

use crate::model::{Layout, Param};

/// A parameter held in our layout as `ours`: torchvision's shape and values.
pub fn to_torchvision(param: &Param, ours: &[f32]) -> (Vec<usize>, Vec<f32>) {
    let (shape, source) = permutation(param);
    (shape, source.iter().map(|&i| ours[i]).collect())
}

/// A parameter in torchvision's layout as `theirs`: our values.
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

/// torchvision's shape, and for each of its elements the index in ours.
fn permutation(param: &Param) -> (Vec<usize>, Vec<usize>) {
    let len: usize = param.shape.iter().product();
    let index = match (param.layout, param.shape.as_slice()) {
        (Layout::Conv, &[k, r, s, c]) => {
            // theirs [K, C, R, S] <- ours [K, R, S, C]
            permuted([k, c, r, s], |[ik, ic, ir, is]| ((ik * r + ir) * s + is) * c + ic)
        }
        (Layout::ConvTranspose, &[c, r, s, k]) => {
            // theirs [C, K, 2, 2] <- ours [C, 2, 2, K]
            permuted([c, k, r, s], |[ic, ik, ir, is]| ((ic * r + ir) * s + is) * k + ik)
        }
        (Layout::Flattened { channels: c, side }, &[out, columns]) => {
            // theirs [out, C*side*side] <- ours [out, side*side*C]
            permuted([out, c, side, side], |[o, ic, ih, iw]| {
                o * columns + (ih * side + iw) * c + ic
            })
        }
        _ => (0..len).collect(),
    };
    (torchvision_shape(param), index)
}

fn permuted(dims: [usize; 4], index: impl Fn([usize; 4]) -> usize) -> Vec<usize> {
    let [a, b, c, d] = dims;
    let mut indices = Vec::with_capacity(a * b * c * d);
    for ia in 0..a {
        for ib in 0..b {
            for ic in 0..c {
                indices.extend((0..d).map(|id| index([ia, ib, ic, id])));
            }
        }
    }
    indices
}

#[cfg(test)]
mod tests {
    use super::{from_torchvision, to_torchvision};
    use crate::model::{Init, Layout, Param, ParamKind};

    fn param(shape: &[usize], layout: Layout) -> Param {
        Param {
            name: "p".into(),
            shape: shape.to_vec(),
            layout,
            kind: ParamKind::Weight,
            init: Init::Constant(0.0),
            trained: None,
        }
    }

    #[test]
    fn a_convolution_moves_its_channels_forward() {
        // K 1, R 1, S 2, C 3: ours lists channels innermost, theirs columns.
        let p = param(&[1, 1, 2, 3], Layout::Conv);
        let (shape, theirs) = to_torchvision(&p, &[0., 1., 2., 10., 11., 12.]);
        assert_eq!(shape, [1, 3, 1, 2]);
        assert_eq!(theirs, [0., 10., 1., 11., 2., 12.]);
    }

    #[test]
    fn every_layout_round_trips() {
        let layouts = [
            (vec![5, 3, 3, 7], Layout::Conv),
            (vec![7, 2, 2, 5], Layout::ConvTranspose),
            (vec![3, 2 * 2 * 5], Layout::Flattened { channels: 5, side: 2 }),
            (vec![11], Layout::Same),
            (vec![6, 1, 1, 4], Layout::Pointwise),
            (vec![5], Layout::Channels),
        ];
        for (shape, layout) in layouts {
            let p = param(&shape, layout);
            let ours: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| i as f32).collect();
            let (_, theirs) = to_torchvision(&p, &ours);
            assert_eq!(from_torchvision(&p, &theirs), ours, "{layout:?}");
        }
    }
}

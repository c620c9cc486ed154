//! Cases of `detections` for the table of ops.

use std::sync::Arc;

use super::Detections;
use crate::boxes::values::{boxes, constant, index, sizes};
use crate::case::{OpCase, normal};
use crate::{Role, TensorDesc};

/// No image, RoI, class or room, one, primes, and 1000 RoIs of each of two images with 80 classes.
pub fn cases() -> Vec<OpCase> {
    [(0, 3, 2, 5), (2, 0, 2, 5), (2, 3, 0, 5), (2, 3, 2, 0), (1, 1, 1, 1), (3, 37, 7, 11)]
        .iter()
        .chain(&[(2, 1000, 80, 100)])
        .flat_map(|&s| [false, true].map(|plus_one| (s, plus_one)))
        .map(|((n, rois, k, per_image), plus_one)| {
            let m = n * rois + 3;
            let image_idx: Vec<i32> =
                (0..m).map(|i| if i < n * rois { (i / rois) as i32 } else { -1 }).collect();
            let activation = |width: usize| TensorDesc::new(Role::Activation, &[m, width]);
            let inputs = vec![
                normal(&activation(k + 1), 1, 2.0),
                normal(&activation(4 * (k + 1)), 2, 1.0),
                boxes(&[m, 4], 3, 700.0, 300.0),
                index(&[m], &image_idx),
                constant(&[1], (n * rois) as i32),
                sizes(n, 800, 600),
            ];
            let op = Detections {
                score_threshold: 0.05,
                nms_threshold: 0.5,
                per_image,
                weights: [10.0, 10.0, 5.0, 5.0],
                min_size: 1e-2,
                plus_one,
            };
            let label = format!("N {n}, {rois} RoIs, K {k}, D {per_image}, plus_one {plus_one}");
            OpCase::new(label, Arc::new(op), inputs)
        })
        .collect()
}

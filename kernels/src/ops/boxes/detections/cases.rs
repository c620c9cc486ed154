//! Cases of `detections` for the table of ops.

use super::Detections;
use crate::Role;
use crate::case::boxes::{boxes, sizes};
use crate::case::{OpCase, constant, floats, index, normal};

/// Images, RoIs per image, foreground classes, detections per image.
type Shape = (usize, usize, usize, usize);

/// No image, RoI, class or room, one, primes, and 1000 RoIs of each of two images with 80 classes;
/// then RoIs in no order of images, with NaN logits among them, and more RoIs of a class than CUDA
/// sorts in shared memory (2,048) more kept than in a chunk of 64;
/// logits that are f32 on every device; and deltas that all classes share.
pub fn cases() -> Vec<OpCase> {
    let shapes: [Shape; 7] = [
        (0, 3, 2, 5),
        (2, 0, 2, 5),
        (2, 3, 0, 5),
        (2, 3, 2, 0),
        (1, 1, 1, 1),
        (3, 37, 7, 11),
        (2, 1000, 80, 100),
    ];
    shapes
        .iter()
        .flat_map(|&s| [false, true].map(|plus_one| (s, plus_one)))
        .map(|(shape, plus_one)| case(Role::Activation, shape, plus_one, false))
        .chain([
            case(Role::Activation, (3, 61, 5, 17), false, true),
            case(Role::Activation, (1, 2503, 2, 1000), false, false),
            case(Role::Score, (2, 41, 5, 7), false, false),
            shared_deltas(case(Role::Activation, (3, 37, 7, 11), false, false)),
        ])
        .collect()
}

/// The case with the deltas of the background for all classes.
fn shared_deltas(mut case: OpCase) -> OpCase {
    let deltas = &mut case.inputs[1];
    let (rows, width) = (deltas.desc.dim(0), deltas.desc.dim(1));
    let first: Vec<f32> = deltas.as_f32().chunks(width).flat_map(|row| row[..4].to_vec()).collect();
    *deltas = floats(deltas.desc.role, &[rows, 4], first);
    case.label += ", shared deltas";
    case
}

fn case(role: Role, (n, rois, k, per_image): Shape, plus_one: bool, mixed: bool) -> OpCase {
    let m = n * rois + 3;
    // In the mixed order image n, which does not exist, has its share too.
    let image_of = |i: usize| if mixed { (5 * i + i / 3) % (n + 1) } else { i / rois };
    let image_idx: Vec<i32> =
        (0..m).map(|i| if i < n * rois { image_of(i) as i32 } else { -1 }).collect();
    let mut logits = normal(role, &[m, k + 1], 1, 2.0);
    if mixed {
        logits.as_f32_mut().iter_mut().step_by(53).for_each(|x| *x = f32::NAN);
    }
    let inputs = vec![
        logits,
        normal(role, &[m, 4 * (k + 1)], 2, 1.0),
        boxes(&[m, 4], 3, 700.0, 300.0),
        index(&[m], image_idx),
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
    let order = if mixed { ", mixed images and NaN" } else { "" };
    let label =
        format!("N {n}, {rois} RoIs, K {k}, D {per_image}, plus_one {plus_one}, {role:?}{order}");
    OpCase::new(label, op, inputs)
}

//! Draws keypoints as discs, and a person's limbs as lines.

use image::{Rgb, RgbImage};

use super::put;

/// Radius of a disc in pixels, including its dark rim.
const RADIUS: i32 = 4;
const RIM: i32 = 1;
/// Number of keypoints of a person in COCO. `LIMBS` lists the pairs of keypoints that are joined by
/// a line.
const PERSON: usize = 17;
const LIMBS: [[usize; 2]; 19] = [
    [15, 13],
    [13, 11],
    [16, 14],
    [14, 12],
    [11, 12],
    [5, 11],
    [6, 12],
    [5, 6],
    [5, 7],
    [6, 8],
    [7, 9],
    [8, 10],
    [1, 2],
    [0, 1],
    [0, 2],
    [1, 3],
    [2, 4],
    [3, 5],
    [4, 6],
];

/// Draws an object's keypoints. `points` are pixels of the canvas; `None` is a missing keypoint.
pub(super) fn draw(canvas: &mut RgbImage, points: &[Option<[i32; 2]>], colour: Rgb<u8>) {
    let limbs = if points.len() == PERSON { &LIMBS[..] } else { &[] };
    for limb in limbs {
        if let [Some(from), Some(to)] = limb.map(|end| points[end]) {
            line(canvas, from, to, colour);
        }
    }
    for &[x, y] in points.iter().flatten() {
        disc(canvas, x, y, RADIUS + RIM, Rgb([0; 3]));
        disc(canvas, x, y, RADIUS, colour);
    }
}

fn disc(canvas: &mut RgbImage, x: i32, y: i32, radius: i32, colour: Rgb<u8>) {
    for (dy, dx) in (-radius..=radius).flat_map(|dy| (-radius..=radius).map(move |dx| (dy, dx))) {
        if dx * dx + dy * dy <= radius * radius {
            put(canvas, x + dx, y + dy, colour);
        }
    }
}

fn line(canvas: &mut RgbImage, [x1, y1]: [i32; 2], [x2, y2]: [i32; 2], colour: Rgb<u8>) {
    let steps = (x2 - x1).abs().max((y2 - y1).abs()).max(1);
    for step in 0..=steps {
        let along = |from: i32, to: i32| from + (to - from) * step / steps;
        disc(canvas, along(x1, x2), along(y1, y2), 1, colour);
    }
}

#[cfg(test)]
mod tests {
    use image::{Rgb, RgbImage};

    use super::{PERSON, draw};

    /// Lines are drawn only for objects with 17 keypoints, such as from left shoulder to elbow.
    #[test]
    fn skeleton_lines_join_keypoints() {
        let drawn = |count: usize| {
            let mut canvas = RgbImage::new(60, 60);
            let mut points = vec![None; count];
            (points[count - 12], points[count - 10]) = (Some([10, 10]), Some([50, 50]));
            draw(&mut canvas, &points, Rgb([9; 3]));
            [[10, 10], [30, 30], [50, 50]].map(|[x, y]| *canvas.get_pixel(x, y) == Rgb([9; 3]))
        };
        assert_eq!(drawn(PERSON), [true; 3]);
        assert_eq!(drawn(PERSON + 1), [true, false, true]);
    }
}

//! One image: background, objects from back to front, and the visible part of each.

use hotcoco::mask;
use hotcoco::types::Rle;

use super::rng::Rng;
use super::shapes::{self, CLASS_NAMES, NUM_KEYPOINTS};

/// Maximum number of objects per image.
pub const MAX_OBJECTS: u32 = 6;
const MIN_OBJECTS: u32 = 2;
/// Standard deviation of the background noise, out of 255.
const NOISE: f32 = 20.0;
/// Amplitude of the background stripes, out of 255: visible, but weaker than the noise.
const STRIPES: f32 = 12.0;
/// A keypoint is assigned to the nearest pixel of the shape, at most this many rows and columns
/// away.
const NEAR: usize = 2;
/// Minimum number of visible pixels of an annotated object, for an image side of 128.
const MIN_VISIBLE_AT_128: f64 = 40.0;

/// A generated image with its annotations.
pub(super) struct Scene {
    pub(super) height: u32,
    pub(super) width: u32,
    /// RGB u8, `[height, width, 3]`.
    pub(super) rgb: Vec<u8>,
    /// Back to front.
    pub(super) objects: Vec<Visible>,
}

/// The visible part of one object.
pub(super) struct Visible {
    /// Index into the class names.
    pub(super) class_idx: usize,
    /// The outline of the shape; `None` if other objects occlude a part of it.
    pub(super) outline: Option<Vec<f64>>,
    pub(super) mask: Rle,
    /// x, y, and visibility: 2, or 1 if another object is drawn over the keypoint.
    pub(super) keypoints: [[f64; 3]; NUM_KEYPOINTS],
}

/// An object during drawing, which later objects may still occlude. Masks are column-major, as in
/// COCO.
struct Drawn {
    class_idx: usize,
    outline: Vec<f64>,
    mask: Vec<u8>,
    full_area: u64,
    keypoints: [Keypoint; NUM_KEYPOINTS],
}

struct Keypoint {
    place: [f64; 2],
    /// The keypoint's pixel in the mask.
    pixel: usize,
}

/// Draws image `image` of the set `seed`; draws again if fewer than two objects are visible.
pub(super) fn draw(seed: u64, image: u64, height: u32, width: u32) -> Scene {
    let mut attempt = 0;
    loop {
        let scene = draw_once(&mut Rng::new(seed, image, attempt), height, width);
        if scene.objects.len() >= MIN_OBJECTS as usize {
            return scene;
        }
        attempt += 1;
    }
}

fn draw_once(rng: &mut Rng, height: u32, width: u32) -> Scene {
    let mut rgb = background(rng, height, width);
    let mut drawn: Vec<Drawn> = Vec::new();
    let num_objects = MIN_OBJECTS + rng.below(MAX_OBJECTS - MIN_OBJECTS + 1);
    for _ in 0..num_objects {
        let object = draw_object(rng, height, width, &mut rgb);
        for earlier in &mut drawn {
            for (below, &above) in earlier.mask.iter_mut().zip(&object.mask) {
                *below &= 1 - above;
            }
        }
        drawn.push(object);
    }
    let min_visible = MIN_VISIBLE_AT_128 * (f64::from(height.min(width)) / 128.0).powi(2);
    let visible = |object: Drawn| {
        let mask = encode(&object.mask, height, width);
        let area = mask::area(&mask);
        let outline = (area == object.full_area).then_some(object.outline);
        let is_seen = |pixel: usize| object.mask.get(pixel) == Some(&1);
        let keypoints = object.keypoints.map(|Keypoint { place: [x, y], pixel }| {
            [x, y, if is_seen(pixel) { 2.0 } else { 1.0 }]
        });
        let class_idx = object.class_idx;
        (area as f64 >= min_visible).then_some(Visible { class_idx, outline, mask, keypoints })
    };
    Scene { height, width, rgb, objects: drawn.into_iter().filter_map(visible).collect() }
}

/// A background with a random colour, stripes of random direction and width, and noise in each
/// value.
fn background(rng: &mut Rng, height: u32, width: u32) -> Vec<u8> {
    let base: [f32; 3] = std::array::from_fn(|_| rng.below(256) as f32);
    let turn = rng.uniform() as f32 * std::f32::consts::TAU;
    // One to four waves over the image.
    let waves = 1.0 + 3.0 * rng.uniform() as f32;
    let wave_per_pixel = std::f32::consts::TAU * waves / width as f32;
    let (step_x, step_y) = (wave_per_pixel * turn.cos(), wave_per_pixel * turn.sin());
    let mut rgb = Vec::with_capacity(height as usize * width as usize * 3);
    for y in 0..height {
        for x in 0..width {
            let stripe = STRIPES * (x as f32 * step_x + y as f32 * step_y).sin();
            let value = |channel: f32| {
                (channel + stripe + NOISE * rng.near_normal()).round().clamp(0.0, 255.0) as u8
            };
            rgb.extend(base.map(value));
        }
    }
    rgb
}

fn draw_object(rng: &mut Rng, height: u32, width: u32, rgb: &mut [u8]) -> Drawn {
    let class_idx = rng.below(CLASS_NAMES.len() as u32) as usize;
    let colour: [u8; 3] = std::array::from_fn(|_| rng.below(256) as u8);
    let side = draw_side(rng, height.min(width));
    let x = rng.below(width - side + 1);
    let y = rng.below(height - side + 1);
    let outline = shapes::polygon(class_idx, f64::from(x), f64::from(y), f64::from(side));
    // Drawn by COCO's rasterizer, so that the pixels match the annotation.
    let mask = mask::fr_poly(&outline, height, width)
        .map_or_else(|_| Vec::new(), |rle| mask::decode(&rle));
    let (height, width) = (height as usize, width as usize);
    for (at, _) in mask.iter().enumerate().filter(|(_, inside)| **inside != 0) {
        let (x, y) = (at / height, at % height);
        rgb[(y * width + x) * 3..][..3].copy_from_slice(&colour);
    }
    let full_area = mask.iter().map(|&inside| u64::from(inside)).sum();
    let keypoints = shapes::keypoints(&outline).map(|place| {
        let pixel = pixel_near(&mask, [height, width], place);
        Keypoint { place, pixel }
    });
    Drawn { class_idx, outline, mask, full_area, keypoints }
}

/// The pixel of a column-major mask that is nearest to a position; the first of several equally
/// near pixels.
fn pixel_near(mask: &[u8], [height, width]: [usize; 2], [x, y]: [f64; 2]) -> usize {
    let near = |at: f64, length: usize| {
        let at = (at as usize).min(length - 1);
        at.saturating_sub(NEAR)..(at + NEAR + 1).min(length)
    };
    let pixels = near(x, width).flat_map(|column| near(y, height).map(move |row| (column, row)));
    let drawn = pixels.filter(|(column, row)| mask.get(column * height + row) == Some(&1));
    let distance = |(column, row): &(usize, usize)| {
        (*column as f64 + 0.5 - x).powi(2) + (*row as f64 + 0.5 - y).powi(2)
    };
    let nearest = drawn.min_by(|a, b| distance(a).total_cmp(&distance(b)));
    // A pixel is always found, as shapes are wider than the search distance; without one, the
    // keypoint would count as hidden.
    nearest.map_or(usize::MAX, |(column, row)| column * height + row)
}

/// The side of a shape, in pixels: uniform from 1/14 to 1/2 of the image's short side. A value in
/// the smallest sixth of the range is replaced by a second sample, so that tiny shapes are rare (3
/// %).
fn draw_side(rng: &mut Rng, size: u32) -> u32 {
    let (least, most) = (size.div_ceil(14), size / 2);
    let mut share = rng.uniform();
    if share < 1.0 / 6.0 {
        share = rng.uniform();
    }
    least + (share * f64::from(most - least + 1)) as u32
}

fn encode(mask: &[u8], height: u32, width: u32) -> Rle {
    // A mask from `draw_object` always has the right length; a mask of a different length would
    // become empty.
    mask::encode(mask, height, width).unwrap_or(Rle {
        h: height,
        w: width,
        counts: vec![height * width],
    })
}

//! The shapes that form an object: in some formats several shapes with the same group id are one
//! object.

use std::collections::HashMap;

use hotcoco::mask;
use hotcoco::types::Rle;

use super::assemble::Object;
use super::pixels;

/// Maximum absolute coordinate of a vertex in pixels, as for COCO files: rasterizing takes time in
/// proportion to the length of every edge.
const MAX_OUTSIDE: f64 = 65_536.0;

/// The region of one shape.
pub(super) enum Part {
    /// x, y pairs.
    Ring(Vec<f64>),
    /// A pixel mask, and the annotated box.
    Pixels(Rle, [f64; 4]),
}

/// Shapes in file order, joined into objects.
#[derive(Default)]
pub(super) struct Parts {
    objects: Vec<(String, Vec<Part>)>,
    /// Index of the object for a label and group.
    groups: HashMap<(String, String), usize>,
}

impl Parts {
    /// Adds a shape; shapes with the same label and group are joined into one object.
    pub(super) fn push(&mut self, label: &str, group: Option<String>, part: Part) {
        let next = self.objects.len();
        let at = match group {
            Some(group) => *self.groups.entry((label.to_string(), group)).or_insert(next),
            None => next,
        };
        if at == next {
            self.objects.push((label.to_string(), Vec::new()));
        }
        self.objects[at].1.push(part);
    }

    /// The objects, for an image of this size.
    ///
    /// # Errors
    /// A message if a ring cannot be rasterized.
    pub(super) fn objects(self, size: [u32; 2]) -> Result<Vec<Object>, String> {
        self.objects.into_iter().map(|(label, parts)| object(&label, parts, size)).collect()
    }
}

fn object(label: &str, mut parts: Vec<Part>, [height, width]: [u32; 2]) -> Result<Object, String> {
    if parts.iter().all(|part| matches!(part, Part::Ring(_))) {
        let rings = parts.into_iter().filter_map(|part| match part {
            Part::Ring(ring) => Some(ring),
            Part::Pixels(..) => None,
        });
        return Ok(Object::outlined(label, rings.collect()));
    }
    if let [Part::Pixels(..)] = parts[..]
        && let Some(Part::Pixels(pixels, bbox)) = parts.pop()
    {
        let bbox = Some(bbox);
        return Ok(Object { bbox, ..Object::covering(label, pixels) });
    }
    let mut masks = Vec::with_capacity(parts.len());
    for part in parts {
        masks.push(match part {
            Part::Pixels(pixels, _) => pixels,
            Part::Ring(ring) => mask::fr_polys(&[ring], height, width)
                .map_err(|error| format!("a polygon of {label:?} cannot be drawn: {error}"))?,
        });
    }
    let union = pixels::union(&masks);
    let union = union.ok_or(format!("the parts of {label:?} have masks of different sizes"))?;
    Ok(Object::covering(label, union))
}

/// A ring of x, y pairs.
///
/// # Errors
/// A message if there are fewer than three pairs, or a coordinate is too large to be rasterized.
pub(super) fn ring(points: &[[f64; 2]]) -> Result<Part, String> {
    if points.len() < 3 {
        return Err(format!("has {} points; a polygon has 3 or more", points.len()));
    }
    bounded(points)?;
    Ok(Part::Ring(points.concat()))
}

/// The rectangle between two corners, rotated about its centre by this angle in degrees.
///
/// # Errors
/// As for [`ring`].
pub(super) fn rectangle([a, b]: [[f64; 2]; 2], degrees: f64) -> Result<Part, String> {
    let (low, high) = ([a[0].min(b[0]), a[1].min(b[1])], [a[0].max(b[0]), a[1].max(b[1])]);
    let centre = [(low[0] + high[0]) / 2.0, (low[1] + high[1]) / 2.0];
    let (sin, cos) = degrees.to_radians().sin_cos();
    let turn = |[x, y]: [f64; 2]| {
        let (dx, dy) = (x - centre[0], y - centre[1]);
        match degrees == 0.0 {
            true => [x, y],
            false => [centre[0] + dx * cos - dy * sin, centre[1] + dx * sin + dy * cos],
        }
    };
    ring(&[low, [high[0], low[1]], high, [low[0], high[1]]].map(turn))
}

/// The length of a vector with bounded components, whose squares do not overflow.
pub(super) fn length(x: f64, y: f64) -> f64 {
    (x * x + y * y).sqrt()
}

/// The ellipse about `centre` with these semi-axes, rotated by this angle in degrees.
///
/// # Errors
/// As for [`ring`].
pub(super) fn ellipse(
    [cx, cy]: [f64; 2],
    [rx, ry]: [f64; 2],
    degrees: f64,
    size: [u32; 2],
) -> Result<Part, String> {
    bounded(&[[cx, cy], [rx, ry]])?;
    let (sin, cos) = degrees.to_radians().sin_cos();
    let (w, h) = (length(rx * cos, ry * sin), length(rx * sin, ry * cos));
    let bbox = [cx - w, cy - h, 2.0 * w, 2.0 * h];
    // For a vertical line at x: the midpoint and half the length of its segment inside the ellipse.
    let slope = sin * cos * (rx / w * (rx / w) - ry / w * (ry / w));
    let slope = if slope.is_finite() { slope } else { 0.0 };
    let pixels = pixels::spanned(size, [cx - w, cx + w], |x| {
        let (middle, half) =
            (cy + (x - cx) * slope, (rx / w * ry).abs() * (1.0 - ((x - cx) / w).powi(2)).sqrt());
        [middle - half, middle + half]
    });
    Ok(Part::Pixels(pixels, bbox))
}

/// The non-zero pixels of a block of values, `[height, width]` in row order; the block's top left
/// corner is at this column and row of an image of this size.
pub(super) fn block(
    values: &[u32],
    [height, width]: [u32; 2],
    [left, top]: [u32; 2],
    size: [u32; 2],
) -> Part {
    let bbox = [left, top, width, height].map(f64::from);
    let pixels = pixels::drawn(size, bbox, |x, y| {
        values[((y as u32 - top) * width + (x as u32 - left)) as usize] != 0
    });
    let bbox = mask::to_bbox(&pixels);
    Part::Pixels(pixels, bbox)
}

fn bounded(points: &[[f64; 2]]) -> Result<(), String> {
    match points.iter().flatten().find(|value| !(-MAX_OUTSIDE..=2.0 * MAX_OUTSIDE).contains(*value))
    {
        Some(value) => {
            Err(format!("has the coordinate {value}, far outside any image; correct it"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ellipse_columns_match_per_pixel_test() {
        let radii = [[3.0, 2.0], [0.4, 7.0], [5.5, 5.5], [9.0, -0.6], [0.0, 3.0], [1e-200, 4.0]];
        // These positions avoid pixel edges, where the result depends on rounding.
        let centres = [[6.1, 5.7], [5.4, 4.6], [-1.3, 12.1], [11.0, 0.2], [40.0, 5.0]];
        for ([rx, ry], [cx, cy]) in radii.iter().flat_map(|radii| centres.map(|at| (*radii, at))) {
            for degrees in [0.0, 30.0, 90.0, 135.5, 270.0] {
                let (sin, cos) = f64::to_radians(degrees).sin_cos();
                let all = pixels::drawn([11, 13], [0.0, 0.0, 13.0, 11.0], |x, y| {
                    let (dx, dy) = (x - cx, y - cy);
                    let (along, across) = ((dx * cos + dy * sin) / rx, (dy * cos - dx * sin) / ry);
                    along * along + across * across <= 1.0
                });
                let part = ellipse([cx, cy], [rx, ry], degrees, [11, 13]);
                let Ok(Part::Pixels(pixels, _)) = part else { panic!("{cx}, {cy}") };
                assert_eq!(pixels.counts, all.counts, "{cx} {cy} {rx} {ry} {degrees}");
            }
        }
    }
}

//! Run-length encoded masks in COCO's column order, from shapes, PNG files and unions of masks.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use hotcoco::mask;
use hotcoco::types::Rle;
use png::{BitDepth, ColorType, Decoder, Limits, Transformations};

use super::folder::Folder;
use super::{Request, fault};
use crate::error::DaliError;

/// Memory limit for everything in a PNG except its pixels.
const MAX_CHUNK_BYTES: usize = 64 << 20;

/// A mask file is rejected if it has at least this many interpolated pixels (with a value between
/// those of the pixels on both sides), and if [`MAX_EDGES_TO_BETWEEN`] is not exceeded.
const MIN_BETWEEN: usize = 8;
/// Maximum number of edges per interpolated pixel in a rejected file: a file with thin objects may
/// have some such pixels too, but has many more edges.
const MAX_EDGES_TO_BETWEEN: usize = 10;

/// Runs of one mask under construction.
#[derive(Default)]
struct Runs {
    counts: Vec<u32>,
    /// The position after the last run of ones.
    end: u32,
}

impl Runs {
    /// Appends `count` pixels starting at `place`, which must follow all earlier pixels.
    fn push(&mut self, place: u32, count: u32) {
        match self.counts.last_mut() {
            Some(ones) if self.end == place => *ones += count,
            _ => self.counts.extend([place - self.end, count]),
        }
        self.end = place + count;
    }

    fn finish(mut self, [height, width]: [u32; 2]) -> Rle {
        let all = height * width;
        if self.end < all || self.counts.is_empty() {
            self.counts.push(all - self.end);
        }
        Rle { h: height, w: width, counts: self.counts }
    }
}

/// The mask of the pixels for whose centre (x, y) `inside` is true; only pixels in the box (x, y,
/// width, height) are tested.
pub(super) fn drawn(
    [height, width]: [u32; 2],
    [x, y, w, h]: [f64; 4],
    inside: impl Fn(f64, f64) -> bool,
) -> Rle {
    let mut runs = Runs::default();
    // Casts from float saturate, so coordinates outside the image are safe.
    for x in x as u32..width.min((x + w).ceil() as u32) {
        for y in y as u32..height.min((y + h).ceil() as u32) {
            if inside(f64::from(x) + 0.5, f64::from(y) + 0.5) {
                runs.push(x * height + y, 1);
            }
        }
    }
    runs.finish([height, width])
}

/// The mask of a shape: in each column from `first` to `last`, the pixels whose centre is between
/// the upper and lower edge that `edges` returns for the column's x.
pub(super) fn spanned(
    [height, width]: [u32; 2],
    [first, last]: [f64; 2],
    edges: impl Fn(f64) -> [f64; 2],
) -> Rle {
    let mut runs = Runs::default();
    for x in first as u32..width.min(last.ceil() as u32) {
        let [top, bottom] = edges(f64::from(x) + 0.5);
        let rows = (top - 0.5).ceil() as u32..height.min((bottom + 0.5).floor() as u32);
        // `edges` returns NaN for a column outside the shape.
        if top <= bottom && !rows.is_empty() {
            runs.push(x * height + rows.start, rows.len() as u32);
        }
    }
    runs.finish([height, width])
}

/// The mask of each non-zero value in a mask file, by value; `size` is the image's size.
///
/// # Errors
/// If the file is not a PNG of this size, or [`by_value`] rejects it.
pub(super) fn of_image(
    folder: &Folder,
    file: &str,
    kind: Values,
    size: [u32; 2],
    request: &Request,
) -> Result<BTreeMap<u32, Rle>, DaliError> {
    let path = folder.path(file);
    let (values, own) = png(&path, &folder.bytes(file)?, kind, request.max_image_pixels)?;
    if own != size {
        let ([h, w], [height, width]) = (own, size);
        let text = format!("is {w}x{h} but its image {width}x{height}; make them agree");
        return Err(fault(&path, text));
    }
    by_value(&values, size).map_err(|text| fault(&path, text))
}

/// The mask of each non-zero value of `values` (in row order), by value.
///
/// # Errors
/// A message if values at edges are interpolated.
fn by_value(values: &[u32], [height, width]: [u32; 2]) -> Result<BTreeMap<u32, Rle>, String> {
    check_edges(values, width as usize)?;
    let mut masks: BTreeMap<u32, Runs> = BTreeMap::new();
    for x in 0..width {
        for y in 0..height {
            let value = values[y as usize * width as usize + x as usize];
            if value != 0 {
                masks.entry(value).or_default().push(x * height + y, 1);
            }
        }
    }
    Ok(masks.into_iter().map(|(value, runs)| (value, runs.finish([height, width]))).collect())
}

/// Rejects mask files with many interpolated values. Resizing, soft edges and JPEG produce such
/// values, and each would become an object.
fn check_edges(values: &[u32], width: usize) -> Result<(), String> {
    let (mut num_edges, mut num) = (0, 0);
    for step in [1, width] {
        for (at, &value) in values.iter().enumerate().skip(step) {
            let (from, to) = (values[at - step], values.get(at + step).copied().unwrap_or(value));
            num_edges += usize::from(from != value);
            num += usize::from(from.min(to) < value && value < from.max(to));
        }
    }
    if num < MIN_BETWEEN || num * MAX_EDGES_TO_BETWEEN < num_edges {
        return Ok(());
    }
    Err(format!(
        "has {num} pixels at edges with values between those of their neighbours, as \
         interpolation, soft edges and JPEG leave them; write one value for each object"
    ))
}

/// The union of several masks; `None` if their sizes differ.
pub(super) fn union(masks: &[Rle]) -> Option<Rle> {
    mask::merge(masks, false).ok()
}

/// How the pixels of a PNG are converted to values.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Values {
    /// Palette indices or grey values; colours are replaced by their index in VOC's palette.
    Indices,
    /// 1 for a pixel that is neither black nor transparent, else 0.
    Ink,
}

/// Reads a mask file: one value per pixel in row order, and the height and width.
///
/// # Errors
/// [`DaliError::Annotations`] if the file is not a PNG, cannot be decoded, or has more than
/// `max_pixels` pixels.
pub(super) fn png(
    path: &Path,
    bytes: &[u8],
    values: Values,
    max_pixels: usize,
) -> Result<(Vec<u32>, [u32; 2]), DaliError> {
    let broken = |text: String| fault(path, format!("{text}; write the mask as a PNG again"));
    let size = crate::decode::size_within(bytes, max_pixels)
        .map_err(|error| fault(path, error.to_string()))?;
    let num_pixels = size[0] as usize * size[1] as usize;
    let limits = Limits { bytes: num_pixels.saturating_mul(8).saturating_add(MAX_CHUNK_BYTES) };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(Transformations::IDENTITY);
    let mut reader = decoder.read_info().map_err(|error| broken(error.to_string()))?;
    let bytes = reader.output_buffer_size().unwrap_or(usize::MAX);
    if bytes > num_pixels.saturating_mul(8) {
        return Err(broken("declares two sizes".into()));
    }
    let mut buffer = vec![0; bytes];
    let info = reader.next_frame(&mut buffer).map_err(|error| broken(error.to_string()))?;
    if [info.height, info.width] != size {
        return Err(broken("declares two sizes".into()));
    }
    let ink = values == Values::Ink;
    let channels = info.color_type.samples();
    let has_alpha = matches!(info.color_type, ColorType::Rgba | ColorType::GrayscaleAlpha);
    let mut out = Vec::with_capacity(num_pixels);
    for row in buffer.chunks_exact(info.line_size.max(1)).take(size[0] as usize) {
        for x in 0..size[1] as usize {
            let sample = |channel: usize| sample(row, x * channels + channel, info.bit_depth);
            let colours = channels - usize::from(has_alpha);
            out.push(match (ink, colours) {
                (true, _) => {
                    let opaque = !has_alpha || sample(channels - 1) > 0;
                    u32::from(opaque && (0..colours).any(|channel| sample(channel) > 0))
                }
                (false, 1) => sample(0),
                (false, _) => voc_index([sample(0), sample(1), sample(2)]).map_err(broken)?,
            });
        }
    }
    match out.len() == num_pixels {
        true => Ok((out, size)),
        false => Err(broken("ends before its last row".into())),
    }
}

/// The value (1 to 16 bits) at index `at` of a row.
fn sample(row: &[u8], at: usize, depth: BitDepth) -> u32 {
    let byte = |at: usize| u32::from(row.get(at).copied().unwrap_or(0));
    match depth {
        BitDepth::Sixteen => byte(2 * at) << 8 | byte(2 * at + 1),
        BitDepth::Eight => byte(at),
        narrow => {
            let bits = narrow as usize;
            let shift = 8 - bits - at * bits % 8;
            byte(at * bits / 8) >> shift & ((1 << bits) - 1)
        }
    }
}

/// The index of a colour in VOC's palette, in which the bits of the index are distributed over the
/// three channels from their highest bits down. The index of white (void) is 255.
///
/// # Errors
/// A message for a colour that is not in the palette: several colours would map to one index.
fn voc_index(rgb: [u32; 3]) -> Result<u32, String> {
    let bit = |value: u32, bit: u32| value >> bit & 1;
    let low = rgb.iter().zip([0x1F, 0x1F, 0x3F]).any(|(value, low)| value & low != 0);
    if low && rgb != [255; 3] {
        return Err(format!("has the colour {rgb:?}, which is not in the palette of VOC"));
    }
    Ok((0..8).map(|i| bit(rgb[i % 3], 7 - i as u32 / 3) << i).sum())
}

#[cfg(test)]
mod tests {
    use super::{by_value, drawn, voc_index};

    #[test]
    fn voc_colours_map_to_class_indices() {
        let colours = [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0], [0, 0, 128], [64, 0, 0]];
        assert_eq!(colours.map(|rgb| voc_index(rgb).expect("of the palette")), [0, 1, 2, 3, 4, 8]);
        assert_eq!(
            [[224, 224, 192], [255; 3]].map(|rgb| voc_index(rgb).expect("of the palette")),
            [255; 2]
        );
        assert!(voc_index([1, 0, 0]).is_err());
    }

    #[test]
    fn interpolated_mask_is_rejected_and_small_object_accepted() {
        let of = |value: &dyn Fn(f64, f64) -> f64| -> Vec<u32> {
            (0..48 * 48).map(|i| value(f64::from(i % 48), f64::from(i / 48)) as u32).collect()
        };
        let disc = |x: f64, y: f64, edge: f64| {
            let (x, y) = (x - 24.0, y - 24.0);
            ((16.0 - (x * x + y * y).sqrt()) / edge + 0.5).clamp(0.0, 1.0)
        };
        let cell = |x: f64, y: f64, side: f64| (x / side).floor() + (y / side).floor() * 16.0;
        for (name, values, is_good) in [
            ("soft", of(&|x, y| 255.0 * disc(x, y, 2.0)), false),
            ("blurred", of(&|x, y| 255.0 * disc(x, y, 20.0)), false),
            ("soft, low values", of(&|x, y| (x / 10.0).ceil() * disc(x, y, 2.0) + 0.5), false),
            ("sharp", of(&|x, y| 255.0 * disc(x, y, 0.01)), true),
            ("cells", of(&|x, y| cell(x, y, 3.0)), true),
            ("dots", of(&|x, y| if (x % 2.0, y % 2.0) == (0.0, 0.0) { x + y } else { 0.0 }), true),
            ("lines", of(&|x, _| if x % 3.0 == 0.0 { x } else { 0.0 }), true),
        ] {
            assert_eq!(by_value(&values, [48, 48]).is_ok(), is_good, "{name}");
        }
    }

    #[test]
    fn rle_runs_are_column_major() {
        let all = [-1.0, -1.0, 9.0, 9.0];
        assert_eq!(drawn([2, 3], all, |x, _| x > 1.0 && x < 2.0).counts, [2, 2, 2]);
        assert_eq!(drawn([2, 2], all, |_, _| true).counts, [0, 4]);
        assert_eq!(drawn([2, 2], [1.0, 0.0, 1.0, 1.0], |_, _| true).counts, [2, 1, 1]);
        assert_eq!(drawn([2, 2], all, |_, _| false).counts, [4]);
        let masks = by_value(&[7, 0, 9, 7, 9, 9], [2, 3]).expect("values of objects");
        assert_eq!(masks[&7].counts, [0, 2, 4]);
        assert_eq!(masks[&9].counts, [3, 3]);
    }
}

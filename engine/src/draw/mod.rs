//! Pictures of detections: tinted and outlined masks, boxes, keypoints, and tags with class and
//! score.

mod keypoints;
mod text;

use image::{Rgb, RgbImage, imageops};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use crate::error::EngineError;
use crate::evaluate::{Found, Image, ImageDetections, MAX_DRAWN};

/// Small images are enlarged by an integer factor up to this long side, so that tags are legible.
const LEGIBLE_SIDE: usize = 640;
/// Space between the pictures of a sheet, in pixels.
const GAP: u32 = 8;
/// Width in pixels of a box's coloured line; `RIM` is the width of the dark lines on both sides of
/// it.
const LINE: i32 = 3;
const RIM: i32 = 1;
/// Opacity of the object's colour inside its mask.
const TINT: f32 = 0.45;

/// Draws the detections whose score is at least `min_score` onto the image, those with the highest
/// scores on top.
pub fn picture(
    image: &Image,
    detections: &ImageDetections,
    class_names: &[String],
    min_score: f32,
) -> RgbImage {
    let scale = legible_scale(image);
    tagged_picture(image, detections, class_names, (min_score, Tags::Scores), scale)
}

/// Like [`picture`], but first scales the image to a long side of `side` pixels.
pub fn picture_at(
    image: &Image,
    detections: &ImageDetections,
    class_names: &[String],
    min_score: f32,
    side: u32,
) -> RgbImage {
    let scale = scale_to(image, side);
    tagged_picture(image, detections, class_names, (min_score, Tags::Scores), scale)
}

/// Draws annotated objects, tagged with their classes, onto the image, which is scaled as in
/// [`picture`].
pub fn picture_of_truth(
    image: &Image,
    objects: &ImageDetections,
    class_names: &[String],
) -> RgbImage {
    let scale = legible_scale(image);
    tagged_picture(image, objects, class_names, (0.0, Tags::Names), scale)
}

/// Draws annotated objects, tagged with their classes, onto the image, after scaling it to a long
/// side of `side` pixels.
pub fn picture_of_truth_at(
    image: &Image,
    objects: &ImageDetections,
    class_names: &[String],
    side: u32,
) -> RgbImage {
    let scale = scale_to(image, side);
    tagged_picture(image, objects, class_names, (0.0, Tags::Names), scale)
}

/// Integer factor by which a small image is enlarged, so that tags are legible.
fn legible_scale(image: &Image) -> f32 {
    (LEGIBLE_SIDE / image.height.max(image.width).max(1)).clamp(1, 8) as f32
}

fn scale_to(image: &Image, side: u32) -> f32 {
    side as f32 / image.height.max(image.width).max(1) as f32
}

/// A picture as PNG.
///
/// # Errors
/// An encoder error, reported as an error of the output file.
pub fn png(picture: &RgbImage) -> Result<Vec<u8>, EngineError> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut bytes, image::ImageFormat::Png).map_err(|e| EngineError::Io {
        path: "a picture".into(),
        source: std::io::Error::other(e),
    })?;
    Ok(bytes.into_inner())
}

/// A picture as JPEG with a quality from 1 to 100.
///
/// # Errors
/// An encoder error, reported as an error of the output file.
pub(crate) fn jpeg(picture: &RgbImage, quality: u8) -> Result<Vec<u8>, EngineError> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, quality);
    encoder.set_sampling_factor(SamplingFactor::R_4_4_4);
    let side = |pixels: u32| u16::try_from(pixels).unwrap_or(u16::MAX);
    let (width, height) = (side(picture.width()), side(picture.height()));
    encoder.encode(picture.as_raw(), width, height, ColorType::Rgb).map_err(|e| {
        EngineError::Io { path: "a picture".into(), source: std::io::Error::other(e) }
    })?;
    Ok(bytes)
}

/// The text of a tag.
#[derive(Debug, Clone, Copy)]
enum Tags {
    /// Class and score.
    Scores,
    /// The class.
    Names,
}

fn tagged_picture(
    image: &Image,
    detections: &ImageDetections,
    class_names: &[String],
    (min_score, tags): (f32, Tags),
    scale: f32,
) -> RgbImage {
    let (width, height) = (image.width as u32, image.height as u32);
    let source = RgbImage::from_fn(width, height, |x, y| {
        let at = 3 * (y as usize * image.width + x as usize);
        Rgb([image.rgb[at], image.rgb[at + 1], image.rgb[at + 2]])
    });
    let scaled = |side: u32| ((side as f32 * scale).round() as u32).max(1);
    let filter = imageops::FilterType::CatmullRom;
    let mut canvas = imageops::resize(&source, scaled(width), scaled(height), filter);
    let all = detections.objects.iter().enumerate().filter(|(_, o)| o.score >= min_score);
    let shown: Vec<(usize, &Found)> = all.clone().take(MAX_DRAWN).collect();
    for (i, object) in shown.iter().rev() {
        draw_mask(&mut canvas, object, colour(*i));
    }
    for (i, object) in shown.iter().rev() {
        draw_box(&mut canvas, object.bbox.map(|v| (v * scale) as i32), colour(*i));
    }
    for (i, object) in shown.iter().rev() {
        // Annotated keypoints may be unlabelled (0 in `point[2]`); detected keypoints are always
        // drawn.
        let is_there = |point: &[f32; 3]| matches!(tags, Tags::Scores) || point[2] > 0.0;
        let place = |p: &[f32; 3]| is_there(p).then(|| [p[0], p[1]].map(|v| (v * scale) as i32));
        let points: Vec<_> = object.keypoints.iter().flatten().map(place).collect();
        keypoints::draw(&mut canvas, &points, colour(*i));
    }
    for (i, object) in shown.iter().rev() {
        let name = class_names.get(object.label - 1).map_or("?", String::as_str);
        let tag = match tags {
            Tags::Scores => format!("{name} {:.2}{}", object.score, numbers(object)),
            Tags::Names => name.to_string(),
        };
        let [x1, y1, ..] = object.bbox.map(|v| (v * scale) as i32);
        text::draw_tag(&mut canvas, &tag, x1, y1, colour(*i));
    }
    let count = all.count();
    if count > MAX_DRAWN {
        let note = format!("{MAX_DRAWN} of {count} objects");
        let bottom = canvas.height() as i32;
        text::draw_tag(&mut canvas, &note, 0, bottom, Rgb([255; 3]));
    }
    canvas
}

/// Scalar predictions of custom heads, formatted for a tag.
fn numbers(object: &Found) -> String {
    let single = object.further.iter().filter(|(_, values)| values.len() == 1);
    single.map(|(name, values)| format!(" {name} {:.2}", values[0])).collect()
}

/// Pictures side by side, `columns` per row, on white.
pub fn sheet(pictures: &[RgbImage], columns: usize) -> RgbImage {
    let cell = |f: fn(&RgbImage) -> u32| pictures.iter().map(f).max().unwrap_or(1) + GAP;
    let (width, height) = (cell(RgbImage::width), cell(RgbImage::height));
    let columns = columns.clamp(1, pictures.len().max(1));
    let rows = pictures.len().div_ceil(columns) as u32;
    let white = Rgb([255, 255, 255]);
    let mut canvas = RgbImage::from_pixel(columns as u32 * width + GAP, rows * height + GAP, white);
    for (i, picture) in pictures.iter().enumerate() {
        let x = GAP + (i % columns) as u32 * width;
        let y = GAP + (i / columns) as u32 * height;
        imageops::replace(&mut canvas, picture, i64::from(x), i64::from(y));
    }
    canvas
}

/// Colour of object `i`: hues advance by the golden ratio, so successive objects have distinct
/// colours.
fn colour(i: usize) -> Rgb<u8> {
    let hue = (i as f32 * 0.618_034 + 0.03).fract() * 6.0;
    let ramp = |shift: f32| {
        let h = (hue + shift).rem_euclid(6.0);
        let v = (2.0 - (h - 3.0).abs()).clamp(0.0, 1.0);
        (255.0 * (0.12 + 0.88 * v)) as u8
    };
    Rgb([ramp(3.0), ramp(1.0), ramp(5.0)])
}

/// Tints the mask and draws its edge, one canvas pixel wide.
fn draw_mask(canvas: &mut RgbImage, object: &Found, colour: Rgb<u8>) {
    let Some(mask) = &object.mask else { return };
    let (height, width) = (mask.height as usize, mask.width as usize);
    let bitmap = mask.decode();
    let (columns, rows) = (i64::from(canvas.width()), i64::from(canvas.height()));
    let inside = |x: i64, y: i64| {
        let within = (0..columns).contains(&x) && (0..rows).contains(&y);
        let (x, y) = (x * width as i64 / columns, y * height as i64 / rows);
        within && bitmap[y as usize * width + x as usize] != 0
    };
    let [left, top, wide, high] = mask.to_bbox().map(|side| side as i64);
    let range = |first: i64, size: i64, side: usize, extent: i64| {
        let at = |place: i64| place * extent / side.max(1) as i64;
        at(first)..(at(first + size) + 1).min(extent)
    };
    for y in range(top, high, height, rows) {
        for x in range(left, wide, width, columns).filter(|x| inside(*x, y)) {
            let neighbours = [(x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)];
            let edge = neighbours.iter().any(|(x, y)| !inside(*x, *y));
            let pixel = canvas.get_pixel_mut(x as u32, y as u32);
            blend(pixel, colour, if edge { 1.0 } else { TINT });
        }
    }
}

/// Draws a coloured outline between two dark outlines, visible on any background.
fn draw_box(canvas: &mut RgbImage, [x1, y1, x2, y2]: [i32; 4], colour: Rgb<u8>) {
    let dark = Rgb([0; 3]);
    let rings = (-RIM..0).chain(LINE..LINE + RIM).map(|t| (t, dark));
    for (t, ink) in rings.chain((0..LINE).map(|t| (t, colour))) {
        let (left, top) = (x1.saturating_add(t), y1.saturating_add(t));
        let (right, bottom) = (x2.saturating_sub(t), y2.saturating_sub(t));
        for x in left.max(0)..=right.min(canvas.width() as i32) {
            put(canvas, x, top, ink);
            put(canvas, x, bottom, ink);
        }
        for y in top.max(0)..=bottom.min(canvas.height() as i32) {
            put(canvas, left, y, ink);
            put(canvas, right, y, ink);
        }
    }
}

/// Sets a pixel, if it is on the canvas.
fn put(canvas: &mut RgbImage, x: i32, y: i32, colour: Rgb<u8>) {
    if x >= 0 && y >= 0 && (x as u32) < canvas.width() && (y as u32) < canvas.height() {
        canvas.put_pixel(x as u32, y as u32, colour);
    }
}

fn blend(pixel: &mut Rgb<u8>, colour: Rgb<u8>, share: f32) {
    for (p, c) in pixel.0.iter_mut().zip(colour.0) {
        *p = (f32::from(*p) * (1.0 - share) + f32::from(c) * share) as u8;
    }
}

#[cfg(test)]
mod tests {
    use image::Rgb;
    use score::{Rle, encode_mask};

    use super::{colour, picture, picture_at, sheet};
    use crate::evaluate::{Found, Image, ImageDetections};

    fn grey(side: usize) -> Image {
        Image { id: 1, height: side, width: side, rgb: vec![100; 3 * side * side] }
    }

    fn one(bbox: [f32; 4], mask: Option<Rle>) -> ImageDetections {
        ImageDetections { image_id: 1, objects: vec![Found::new(1, 0.9, bbox, mask)] }
    }

    #[test]
    fn mask_tints_only_its_pixels() {
        let mut bitmap = vec![0u8; 64 * 64];
        for y in 20..40 {
            bitmap[y * 64 + 20..y * 64 + 40].fill(1);
        }
        let mask = Some(encode_mask(64, 64, &bitmap));
        let found = one([20.0, 20.0, 40.0, 40.0], mask);
        let drawn = picture(&grey(64), &found, &["cat".to_string()], 0.5);
        assert_eq!(drawn.dimensions(), (512, 512), "a 64-pixel image is drawn 8 times larger");
        assert_ne!(*drawn.get_pixel(240, 280), Rgb([100; 3]), "inside");
        assert_eq!(*drawn.get_pixel(400, 400), Rgb([100; 3]), "outside");
        let hidden = picture(&grey(64), &found, &["cat".to_string()], 0.95);
        assert_eq!(*hidden.get_pixel(240, 280), Rgb([100; 3]), "below the threshold");
    }

    /// The first 500 objects are drawn, and a note states the total number.
    #[test]
    fn picture_draws_at_most_500_objects_and_notes_the_total() {
        let at = |i: usize| {
            let (x, y) = ((i % 100) as f32 * 6.0, 40.0 + (i / 100) as f32 * 2.0);
            let bbox = if i < 500 { [x, y, x + 4.0, y + 1.0] } else { [0.0, 600.0, 1e30, 620.0] };
            Found::new(1, 0.9, bbox, Some(encode_mask(640, 640, &[0; 640 * 640])))
        };
        let drawn = |count: usize| {
            let found = ImageDetections { image_id: 1, objects: (0..count).map(at).collect() };
            let drawn = picture(&grey(640), &found, &[String::new()], 0.5);
            (drawn.get_pixel(600, 600).0, drawn.get_pixel(1, 632).0)
        };
        assert_eq!(drawn(500), ([100; 3], [100; 3]));
        assert_eq!(drawn(50_000), ([100; 3], [255; 3]));
    }

    #[test]
    fn box_is_visible_on_background_of_its_colour() {
        let Rgb(own) = colour(0);
        let image = Image { id: 1, height: 50, width: 50, rgb: own.repeat(50 * 50) };
        let found = one([20.0, 20.0, 40.0, 40.0], None);
        let drawn = picture_at(&image, &found, &["cat".to_string()], 0.5, 500);
        assert_eq!(drawn.dimensions(), (500, 500));
        let row: Vec<_> = (395..405).map(|x| *drawn.get_pixel(x, 300)).collect();
        assert_eq!(row.iter().filter(|pixel| **pixel == Rgb([0; 3])).count(), 2, "{row:?}");
        assert!(row.contains(&Rgb(own)));
    }

    #[test]
    fn picture_has_requested_long_side() {
        let image = Image { id: 1, height: 200, width: 100, rgb: vec![9; 3 * 200 * 100] };
        let mask = Some(encode_mask(200, 100, &[1; 200 * 100]));
        let found = one([0.0, 0.0, 100.0, 200.0], mask);
        let of = |side| picture_at(&image, &found, &["cat".to_string()], 0.5, side);
        assert_eq!((of(90).dimensions(), of(333).dimensions()), ((45, 90), (167, 333)));
        assert_ne!(*of(333).get_pixel(80, 160), Rgb([9; 3]), "the mask tints it");
    }

    #[test]
    fn contact_sheet_fits_all_pictures() {
        let one = picture(&grey(640), &ImageDetections { image_id: 1, objects: vec![] }, &[], 0.5);
        let sheet = sheet(&[one.clone(), one.clone(), one], 2);
        assert_eq!(sheet.dimensions(), (2 * 648 + 8, 2 * 648 + 8));
    }
}

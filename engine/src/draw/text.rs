//! Tags: short text in an 8x8 bitmap font on a filled ground.

use font8x8::{BASIC_FONTS, UnicodeFonts};
use image::{Rgb, RgbImage};

use super::put;

const GLYPH: i32 = 8;
const MARGIN: i32 = 2;
/// Canvas width per enlargement step of the font.
const WIDTH_PER_SIZE: i32 = 400;

/// Draws `text` on a `colour` background, with its lower left corner at (x, y) if there is room.
pub(super) fn draw_tag(canvas: &mut RgbImage, text: &str, x: i32, y: i32, colour: Rgb<u8>) {
    let size = (canvas.width() as i32 / WIDTH_PER_SIZE).clamp(1, 4);
    let width = size * (GLYPH * text.chars().count() as i32 + 2 * MARGIN);
    let height = size * (GLYPH + 2 * MARGIN);
    let x = x.clamp(0, (canvas.width() as i32 - width).max(0));
    let y = (y - height).clamp(0, (canvas.height() as i32 - height).max(0));
    fill(canvas, (x, y), (width, height), colour);
    let luma = 0.3 * f32::from(colour[0]) + 0.6 * f32::from(colour[1]) + 0.1 * f32::from(colour[2]);
    let ink = if luma > 128.0 { Rgb([0; 3]) } else { Rgb([255; 3]) };
    for (i, character) in text.chars().enumerate() {
        let glyph = BASIC_FONTS.get(character).unwrap_or([0x7E; 8]);
        for (row, bits) in glyph.iter().enumerate() {
            for column in (0..GLYPH).filter(|c| bits >> c & 1 == 1) {
                let dx = size * (MARGIN + GLYPH * i as i32 + column);
                let dy = size * (MARGIN + row as i32);
                fill(canvas, (x + dx, y + dy), (size, size), ink);
            }
        }
    }
}

fn fill(canvas: &mut RgbImage, at: (i32, i32), extent: (i32, i32), colour: Rgb<u8>) {
    for dy in 0..extent.1 {
        for dx in 0..extent.0 {
            put(canvas, at.0 + dx, at.1 + dy, colour);
        }
    }
}

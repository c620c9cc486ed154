//! Tags: short text in an 8x8 bitmap font on a filled background.

use font8x8::{BASIC_FONTS, GREEK_FONTS, LATIN_FONTS, UnicodeFonts};
use image::{Rgb, RgbImage};

use super::put;

const GLYPH: i32 = 8;
const MARGIN: i32 = 2;
/// The integer scale of the font increases by 1 per this many pixels of the canvas's long side.
const SIDE_PER_SIZE: i32 = 240;

/// Draws `text` on a `colour` background, with its lower left corner at (x, y), moved if necessary
/// to stay inside the canvas.
pub(super) fn draw_tag(canvas: &mut RgbImage, text: &str, x: i32, y: i32, colour: Rgb<u8>) {
    let size = (canvas.width().max(canvas.height()) as i32 / SIDE_PER_SIZE).clamp(1, 4);
    let glyphs = glyphs(text);
    let width = size * (GLYPH * glyphs.len() as i32 + 2 * MARGIN);
    let height = size * (GLYPH + 2 * MARGIN);
    let x = x.clamp(0, (canvas.width() as i32 - width).max(0));
    let y = (y - height).clamp(0, (canvas.height() as i32 - height).max(0));
    fill(canvas, (x, y), (width, height), colour);
    let luma = 0.3 * f32::from(colour[0]) + 0.6 * f32::from(colour[1]) + 0.1 * f32::from(colour[2]);
    let ink = if luma > 128.0 { Rgb([0; 3]) } else { Rgb([255; 3]) };
    for (i, glyph) in glyphs.iter().enumerate() {
        for (row, bits) in glyph.iter().enumerate() {
            for column in (0..GLYPH).filter(|c| bits >> c & 1 == 1) {
                let dx = size * (MARGIN + GLYPH * i as i32 + column);
                let dy = size * (MARGIN + row as i32);
                fill(canvas, (x + dx, y + dy), (size, size), ink);
            }
        }
    }
}

/// The bitmaps of a text. Each run of characters other than ASCII, Latin-1 and Greek becomes one
/// question mark.
fn glyphs(text: &str) -> Vec<[u8; 8]> {
    let unknown = BASIC_FONTS.get('?').unwrap_or([0x7E; 8]);
    let known = |c| BASIC_FONTS.get(c).or(LATIN_FONTS.get(c)).or(GREEK_FONTS.get(c));
    let mut found: Vec<Option<[u8; 8]>> = text.chars().map(known).collect();
    found.dedup_by(|a, b| a.is_none() && b.is_none());
    found.into_iter().map(|glyph| glyph.unwrap_or(unknown)).collect()
}

fn fill(canvas: &mut RgbImage, at: (i32, i32), extent: (i32, i32), colour: Rgb<u8>) {
    for dy in 0..extent.1 {
        for dx in 0..extent.0 {
            put(canvas, at.0 + dx, at.1 + dy, colour);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_ascii_names_are_drawn_readably() {
        let of = |text: &str| glyphs(text);
        assert_eq!(of("Gr\u{f6}\u{df}e").len(), 5);
        assert_ne!(of("\u{f6}"), of("\u{df}"), "each letter has its own bitmap");
        assert_ne!(of("\u{f6}"), of("?"));
        assert_eq!(of("\u{72ac}\u{732b} 0.90"), of("? 0.90"), "one mark for a run");
        assert!(of("\u{e9}").iter().flatten().any(|row| *row != 0));
    }
}

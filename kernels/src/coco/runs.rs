//! Uncompressed RLE masks: alternating lengths of zeros and ones down the columns, zeros first.

use super::{Bitmap, Crop};

/// The mask of `runs`. Runs end at the last pixel at the latest; missing pixels are 0.
pub fn decode_runs(runs: &[u32], height: usize, width: usize) -> Bitmap {
    Crop::of_runs(runs.iter().map(|&len| len as usize), height, width).paste(height, width)
}

/// The runs of a mask; they sum to its number of pixels, and only the first may be 0.
pub fn encode_runs(bitmap: &Bitmap) -> Vec<u32> {
    let mut runs = RunWriter::default();
    for x in 0..bitmap.width {
        for y in 0..bitmap.height {
            runs.push(bitmap.pixels[y * bitmap.width + x], 1);
        }
    }
    runs.finish()
}

/// Joins pixels, which are given column by column, into runs.
#[derive(Debug, Default)]
pub(crate) struct RunWriter {
    runs: Vec<u32>,
    value: u8,
    len: u32,
}

impl RunWriter {
    /// Adds `len` pixels of `value`.
    pub(crate) fn push(&mut self, value: u8, len: usize) {
        if len == 0 {
            return;
        }
        if value != self.value {
            self.runs.push(self.len);
            (self.value, self.len) = (value, 0);
        }
        self.len += len as u32;
    }

    /// All runs.
    pub(crate) fn finish(mut self) -> Vec<u32> {
        self.runs.push(self.len);
        self.runs
    }
}

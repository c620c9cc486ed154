//! Images to detect on.

use std::path::Path;

use dali::decode::{DecodeFault, Exif, turned, turned_size};

use crate::error::EngineError;

/// An image to detect on.
#[derive(Debug, Clone)]
pub struct Image {
    /// Id in the results.
    pub id: u64,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Pixels, height x width x 3.
    pub rgb: Vec<u8>,
}

impl Image {
    /// An image from its pixels, row by row.
    ///
    /// # Errors
    /// [`EngineError::Usage`] if there are none, or not `height * width * 3`.
    pub fn from_rgb(
        id: u64,
        height: usize,
        width: usize,
        rgb: Vec<u8>,
    ) -> Result<Self, EngineError> {
        let need = height.checked_mul(width).and_then(|pixels| pixels.checked_mul(3));
        if need.is_none_or(|need| need == 0 || need != rgb.len()) {
            return Err(EngineError::Usage(format!(
                "an image of {height}x{width} pixels (height x width) cannot have {} bytes of RGB",
                rgb.len()
            )));
        }
        Ok(Self { id, height, width, rgb })
    }

    /// Reads a JPEG or PNG of at most `max_pixels`, turned upright as its EXIF orientation says if
    /// that is to be applied. Also returns what a user should know of its conversion to 8 bits, as
    /// the end of a sentence about the file.
    ///
    /// # Errors
    /// [`EngineError::Io`] or [`EngineError::Image`] names the file.
    pub fn read(
        path: &Path,
        id: u64,
        max_pixels: usize,
        exif: Exif,
    ) -> Result<(Self, Option<String>), EngineError> {
        let bytes = dali::file::read(path).map_err(crate::run_dir::io(path))?;
        Self::decode(&bytes, id, max_pixels, exif)
            .map_err(|fault| EngineError::Image { path: path.to_path_buf(), fault })
    }

    /// Like [`Self::read`], from a file's bytes.
    ///
    /// # Errors
    /// Why they are no such image; completes a sentence that names the file.
    pub fn decode(
        bytes: &[u8],
        id: u64,
        max_pixels: usize,
        exif: Exif,
    ) -> Result<(Self, Option<String>), DecodeFault> {
        let info = dali::decode::probe_within(bytes, max_pixels)?;
        let stored = [info.height, info.width];
        let mut rgb = vec![0; 3 * info.height as usize * info.width as usize];
        let doubt = dali::decode::decode_rgb_into(bytes, &mut rgb)?;
        let turn = info.exif_orientation.filter(|_| exif == Exif::Apply);
        if let Some(turn) = turn {
            rgb = turned(rgb, stored, turn);
        }
        let [height, width] = turned_size(stored, turn).map(|side| side as usize);
        Ok((Self { id, height, width, rgb }, doubt))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The letter F of 2 columns and 3 rows under the eight orientations of the standard, whose
    /// upright form is the same.
    #[test]
    fn every_orientation_is_turned_upright() {
        let upright = [[1, 2], [3, 4], [5, 6]];
        let stored: [(u16, &[&[u8]]); 8] = [
            (1, &[&[1, 2], &[3, 4], &[5, 6]]),
            (2, &[&[2, 1], &[4, 3], &[6, 5]]),
            (3, &[&[6, 5], &[4, 3], &[2, 1]]),
            (4, &[&[5, 6], &[3, 4], &[1, 2]]),
            (5, &[&[1, 3, 5], &[2, 4, 6]]),
            // Row 0 of the file is the right side: the camera was turned to the left.
            (6, &[&[2, 4, 6], &[1, 3, 5]]),
            (7, &[&[6, 4, 2], &[5, 3, 1]]),
            (8, &[&[5, 3, 1], &[6, 4, 2]]),
        ];
        for (turn, rows) in stored {
            let grey = |rows: &[&[u8]]| rows.concat().iter().flat_map(|v| [*v; 3]).collect();
            let size = [rows.len() as u32, rows[0].len() as u32];
            assert_eq!(turned_size(size, Some(turn)), [3, 2], "{turn}");
            let expected: Vec<u8> = grey(&upright.each_ref().map(|row| row.as_slice()));
            assert_eq!(turned(grey(rows), size, turn), expected, "{turn}");
        }
    }

    #[test]
    fn pixels_must_fill_the_image() {
        assert!(Image::from_rgb(0, 2, 3, vec![0; 18]).is_ok());
        for (height, width, bytes) in [(2, 3, 17), (0, 3, 0), (usize::MAX, 2, 6)] {
            let error = Image::from_rgb(0, height, width, vec![0; bytes]).unwrap_err();
            assert!(error.to_string().contains("bytes of RGB"), "{error}");
        }
    }
}

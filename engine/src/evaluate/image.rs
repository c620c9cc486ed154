//! Images for detection.

use std::path::Path;

use dali::decode::{DecodeFault, Exif, turned, turned_size};

use crate::error::EngineError;

/// An image for detection.
#[derive(Debug, Clone)]
pub struct Image {
    /// Image id written to the results.
    pub id: u64,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Pixels, height x width x 3.
    pub rgb: Vec<u8>,
}

impl Image {
    /// An image from RGB bytes, row by row.
    ///
    /// # Errors
    /// [`EngineError::Usage`] if `rgb` is empty, or its length is not `height * width * 3`.
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

    /// Reads a JPEG or PNG of at most `max_pixels` pixels, and applies its EXIF orientation if
    /// requested. If the pixels were converted to 8 bits, also returns a remark about it, to be
    /// printed after the file name.
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

    /// Like [`Self::read`], but from the bytes of a file.
    ///
    /// # Errors
    /// The reason why the bytes were rejected, to be printed after the file name.
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

    #[test]
    fn pixel_count_must_match_image_size() {
        assert!(Image::from_rgb(0, 2, 3, vec![0; 18]).is_ok());
        for (height, width, bytes) in [(2, 3, 17), (0, 3, 0), (usize::MAX, 2, 6)] {
            let error = Image::from_rgb(0, height, width, vec![0; bytes]).unwrap_err();
            assert!(error.to_string().contains("bytes of RGB"), "{error}");
        }
    }
}

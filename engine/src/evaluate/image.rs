//! What detection runs on.

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

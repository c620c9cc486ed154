//! Maximum sizes of the data of one image.

/// Capacities per image in the loader's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotShape {
    /// Bytes of source pixels: H x W x 3 of the largest image.
    pub pixels: usize,
    /// Objects, G.
    pub objects: usize,
    /// Polygon rings or run lists.
    pub parts: usize,
    /// Polygon coordinates; x and y count separately.
    pub coords: usize,
    /// Run lengths.
    pub runs: usize,
}

impl SlotShape {
    /// Estimated capacities if there is no data set, for images of this size with this many
    /// objects.
    pub fn imagined(height: usize, width: usize, objects: usize) -> Self {
        let (parts, coords) = (4 * objects, 128 * objects);
        Self { pixels: 3 * height * width, objects, parts, coords, runs: 1024 }
    }
}

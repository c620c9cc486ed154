//! How much of everything one image may have.

/// Capacities per image in the loader's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotShape {
    /// Bytes of source pixels: H x W x 3 of the largest image.
    pub pixels: usize,
    /// Objects, G.
    pub objects: usize,
    /// Polygon rings or run lists.
    pub parts: usize,
    /// Polygon coordinates (values).
    pub coords: usize,
    /// Run lengths.
    pub runs: usize,
}

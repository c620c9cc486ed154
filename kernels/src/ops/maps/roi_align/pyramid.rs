//! The maps of a pyramid as a kernel argument: `Pyramid` in `roi.cuh`.

use device::{Arg, StructArg};

/// Maximum number of levels that a kernel supports.
const MAX_LEVELS: usize = 8;
/// Pixels per side of a tile.
const TILE: usize = 8;
/// Vectors of channels that a tile's block processes.
const TILE_VECTORS: usize = 16;

/// Maps `[images, height, width, channels]`, one per level.
pub(crate) struct Pyramid<'a> {
    /// Pointers to the maps.
    pub(crate) maps: Vec<Arg>,
    /// Height and width of each map.
    pub(crate) sizes: &'a [[usize; 2]],
    /// Feature pixels per network pixel of each map; empty if unused.
    pub(crate) scales: &'a [f32],
    /// N.
    pub(crate) images: usize,
    /// C.
    pub(crate) channels: usize,
}

impl Pyramid<'_> {
    /// Number of tiles of each level, over all images.
    fn tiles(&self) -> impl Iterator<Item = usize> + '_ {
        self.sizes.iter().map(|[h, w]| self.images * h.div_ceil(TILE) * w.div_ceil(TILE))
    }

    /// Channels per vector: 8 if the channels are a multiple of 8, else 1.
    pub(crate) fn vector(&self) -> usize {
        if self.channels.is_multiple_of(8) { 8 } else { 1 }
    }

    /// Launch grid with one block per tile and slice of channels.
    pub(crate) fn tile_grid(&self) -> [usize; 3] {
        [self.tiles().sum(), (self.channels / self.vector()).div_ceil(TILE_VECTORS), 1]
    }

    /// The kernel argument. Panics if there are more than [`MAX_LEVELS`] levels.
    pub(crate) fn arg(&self) -> Arg {
        assert!(self.sizes.len() <= MAX_LEVELS, "{} levels of at most 8", self.sizes.len());
        let padded = |values: &mut dyn Iterator<Item = usize>| -> [usize; MAX_LEVELS] {
            std::array::from_fn(|_| values.next().unwrap_or(0))
        };
        let mut tiles = self.tiles().scan(0, |end, tiles| {
            let first = *end;
            *end += tiles;
            Some(first)
        });
        let scales: [f32; MAX_LEVELS] =
            std::array::from_fn(|l| self.scales.get(l).copied().unwrap_or(0.0));
        StructArg::new()
            .pointers(self.maps.iter().cloned(), MAX_LEVELS)
            .ints(padded(&mut self.sizes.iter().map(|s| s[0])))
            .ints(padded(&mut self.sizes.iter().map(|s| s[1])))
            .ints(padded(&mut tiles))
            .field(scales)
            .ints([self.sizes.len(), self.images, self.channels, 0])
            .arg()
    }
}

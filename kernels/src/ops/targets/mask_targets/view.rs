//! The way of an image to network size, through which mask targets are read.

use crate::resize::nearest_source;

/// The way of an image to network size.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    /// Height and width of the source.
    pub(super) source: [usize; 2],
    /// Height and width of the image in the network's input, without padding.
    pub(super) network: [usize; 2],
    pub(super) flip: bool,
}

impl View {
    /// For polygons: the columns that they are mirrored in, if they are.
    pub(super) fn mirror(&self, plus_one: bool) -> Option<(f32, bool)> {
        self.flip.then_some((self.network[1] as f32, plus_one))
    }

    /// Source row of a network row.
    pub(super) fn source_row(&self, row: usize) -> usize {
        nearest_source(row, self.source[0], self.network[0])
    }

    /// Source column of a network column: flipped at source size, then resized.
    pub(super) fn source_column(&self, column: usize) -> usize {
        let column = nearest_source(column, self.source[1], self.network[1]);
        if self.flip { self.source[1] - 1 - column } else { column }
    }
}

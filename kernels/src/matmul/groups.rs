//! Grouped convolutions: several groups are merged into one that is large enough for a tile.
//!
//! A group of 4 channels and 4 filters would leave most of a tile empty. Groups are therefore
//! merged until they fill one, and their filters get zeros for the channels of other groups.

use std::borrow::Cow;

use super::ConvShape;

impl ConvShape {
    /// The same convolution with groups merged: into as many groups as possible whose numbers of
    /// channels and filters are multiples of `least`, or into one group if that is not possible.
    pub(crate) fn merged(self, least: usize) -> Self {
        let fits = |groups: &usize| {
            [self.channels, self.filters].iter().all(|all| (all / groups).is_multiple_of(least))
        };
        let divides = |groups: &usize| self.groups.is_multiple_of(*groups);
        let groups = (1..=self.groups).rev().filter(divides).find(fits);
        Self { groups: groups.unwrap_or(1), ..self }
    }

    /// Position of a filter's channels within its group in `merged`.
    fn place_in(&self, merged: &Self, filter: usize) -> usize {
        let together = self.groups / merged.groups;
        filter / self.group_filters() % together * self.group_channels()
    }
}

/// Filters of `shape` in the layout of `merged`, with zeros for the channels of other groups.
pub(super) fn expand<'a>(shape: &ConvShape, merged: &ConvShape, w: &'a [f32]) -> Cow<'a, [f32]> {
    if shape.groups == merged.groups || w.is_empty() {
        return Cow::Borrowed(w);
    }
    let (channels, all) = (shape.group_channels(), merged.group_channels());
    let mut wide = vec![0.0; shape.filters * merged.filter_len()];
    let filters =
        wide.chunks_exact_mut(merged.filter_len()).zip(w.chunks_exact(shape.filter_len()));
    for (k, (wide, filter)) in filters.enumerate() {
        let place = shape.place_in(merged, k);
        for (wide, tap) in wide.chunks_exact_mut(all).zip(filter.chunks_exact(channels)) {
            wide[place..place + channels].copy_from_slice(tap);
        }
    }
    Cow::Owned(wide)
}

/// The reverse of [`expand`]: each filter's values for the channels of its group in `shape`.
pub(super) fn collect(shape: &ConvShape, merged: &ConvShape, wide: &[f32], w: &mut [f32]) {
    let (channels, all) = (shape.group_channels(), merged.group_channels());
    let filters =
        wide.chunks_exact(merged.filter_len()).zip(w.chunks_exact_mut(shape.filter_len()));
    for (k, (wide, filter)) in filters.enumerate() {
        let place = shape.place_in(merged, k);
        for (wide, tap) in wide.chunks_exact(all).zip(filter.chunks_exact_mut(channels)) {
            tap.copy_from_slice(&wide[place..place + channels]);
        }
    }
}

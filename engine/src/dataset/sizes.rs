//! Network input sizes that are sampled for each epoch, and padded shapes for them.

use std::sync::Arc;

use crate::config::Input;
use dali::order::{DrawnSizes, PaddedShape, choose_oriented_shapes};
use dali::store::Stores;

use crate::view::Views;

/// Number of epochs whose sampled sizes determine the shapes.
const EPOCHS: u64 = 8;

/// The padded shapes for the images in use, and the images' sizes in each epoch. An image counts as
/// landscape or portrait according to its source file, or always as landscape if the largest shape
/// is a square, so that every epoch has the same number of batches.
pub(super) fn drawn(
    input: &Input,
    store: &Stores,
    images: &[usize],
    views: Views,
) -> (Vec<PaddedShape>, DrawnSizes) {
    let sources: Vec<([i32; 4], [u32; 2])> = images
        .iter()
        .map(|&image| {
            let record = store.image(image);
            let (low, high) = (record.image_id as i32, (record.image_id >> 32) as i32);
            ([low, high, image as i32, 0], [record.height, record.width])
        })
        .collect();
    let is_square = views.is_square();
    let is_portrait: Vec<bool> =
        sources.iter().map(|(_, [height, width])| height > width && !is_square).collect();
    let bounds: Vec<_> = sources.iter().map(|(_, source)| views.bound(*source)).collect();
    let size = move |epoch: u64, image: usize, copy: u32| {
        let ([low, high, index, _], source) = sources[image];
        views.size(&[low, high, index, (epoch as u32 | copy << 20) as i32], source)
    };
    let oriented = |(image, size)| (is_portrait[image], size);
    let drawn = (0..EPOCHS).flat_map(|epoch| {
        let size = &size;
        (0..images.len()).map(move |image| (image, size(epoch, image, 0)))
    });
    let sizes: Vec<_> = bounds.into_iter().enumerate().chain(drawn).map(oriented).collect();
    let [of_k, divisor] = [input.buckets_per_orientation, input.size_divisor];
    let [landscape, portrait] = choose_oriented_shapes(&sizes, of_k, divisor);
    let num_landscape = landscape.len();
    let drawn = DrawnSizes { is_portrait, num_landscape, size: Arc::new(size) };
    ([landscape, portrait].concat(), drawn)
}

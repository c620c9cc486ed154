//! Batches: the images of each step.

use std::sync::{Arc, Mutex, PoisonError};

use super::{OrderError, PaddedShape};
use crate::mix::{mix, unit};

/// The images of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The pass over the data set, from 0.
    pub epoch: u64,
    /// Index of the padded shape of all images, among the order's shapes.
    pub shape: usize,
    /// The images, as indices in the store: `batch_size` images, or fewer in the last batch of an
    /// orientation; training masks out the missing ones.
    pub images: Vec<usize>,
    /// Index of each image's copy within the epoch, from 0.
    pub copies: Vec<u32>,
}

/// Network input sizes that are sampled for each epoch.
#[derive(Clone)]
pub struct DrawnSizes {
    /// For each image, true if it counts as portrait in every epoch.
    pub is_portrait: Vec<bool>,
    /// Number of shapes for landscape images, which come first; the others are for portrait images.
    pub num_landscape: usize,
    /// Height and width of an image's copy in an epoch; no larger than the last shape of its
    /// orientation.
    pub size: Arc<SizeOf>,
}

/// Function of epoch, image and copy that returns height and width.
pub type SizeOf = dyn Fn(u64, usize, u32) -> (u32, u32) + Send + Sync;

impl std::fmt::Debug for DrawnSizes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DrawnSizes of {} images", self.is_portrait.len())
    }
}

/// The order of images in every epoch.
///
/// An image is assigned to the smallest shape in which it fits. Images left over after a shape's
/// full batches move to the next larger shape that contains this shape; images left over after the
/// last shape form a smaller batch. The number of batches depends only on the number of images per
/// shape, so it is equal in every epoch; the left-over images differ between epochs.
///
/// An image that should occur `r` times per epoch has `floor(r)` copies, and if `r` is not an
/// integer, an additional copy in some epochs. The number of additional copies per epoch is
/// constant for each shape; systematic sampling selects their images.
#[derive(Debug)]
pub struct Order {
    /// Groups of images with a constant number of additional copies per epoch: the images assigned
    /// to each shape, or if sizes are sampled, the landscape and the portrait images.
    groups: Vec<Vec<usize>>,
    drawn: Option<DrawnSizes>,
    shapes: Vec<PaddedShape>,
    /// Indices of the shapes, in ascending order of area.
    ascending: Vec<usize>,
    /// For each shape, the shape that receives its left-over images.
    larger: Vec<Option<usize>>,
    /// For each image, the mean number of occurrences per epoch; empty if each image occurs once.
    repeats: Vec<f64>,
    batch_size: usize,
    seed: u64,
    batches_per_epoch: usize,
    /// The batches of the most recent epoch: as steps are requested in order, each epoch is
    /// computed once.
    cache: Mutex<Option<(u64, Arc<Vec<ShapeBatch>>)>>,
}

/// An image and its copy.
type Copy = (usize, u32);
/// A shape and the images of one batch.
type ShapeBatch = (usize, Vec<Copy>);

/// The purpose of a random number. [`Order::key`] hashes it, so that the numbers for different
/// purposes are independent.
#[derive(Clone, Copy)]
enum Purpose {
    /// The order of images within a shape.
    Images { shape: usize },
    /// The order of an epoch's batches.
    Batches,
    /// The selection of images with an additional copy.
    Copies { group: usize },
}

impl Order {
    /// Prepares the order of `sizes.len()` images.
    ///
    /// # Shapes
    /// `sizes`: height and width of each image after resizing, in the order of the store.
    /// `batch_size`: number of images on all ranks. `repeats`: mean number of occurrences of each
    /// image per epoch; empty if each image occurs once.
    ///
    /// # Errors
    /// [`OrderError`] if there are no images, the batch size is 0, or an image fits no shape.
    pub fn new(
        sizes: &[(u32, u32)],
        shapes: &[PaddedShape],
        batch_size: usize,
        seed: u64,
        repeats: &[f64],
    ) -> Result<Self, OrderError> {
        let mut images_by_shape = vec![Vec::new(); shapes.len()];
        for (index, &(height, width)) in sizes.iter().enumerate() {
            let shape = smallest(shapes, height as usize, width as usize).ok_or_else(|| {
                let shapes: Vec<String> = shapes.iter().map(ToString::to_string).collect();
                OrderError::NoShape { index, height, width, shapes: shapes.join(", ") }
            })?;
            images_by_shape[shape].push(index);
        }
        let ascending = ascending(shapes);
        let larger = (0..shapes.len()).map(|s| next_larger(shapes, &ascending, s)).collect();
        Self::of(images_by_shape, None, larger, shapes, batch_size, seed, repeats)
    }

    /// [`Self::new`] for sizes that are sampled for each epoch. Images left over from a shape's
    /// full batches move only to shapes of the same orientation, so that every epoch has the same
    /// number of batches.
    ///
    /// # Errors
    /// [`OrderError`] if there are no images, or the batch size is 0.
    pub fn drawn(
        sizes: DrawnSizes,
        shapes: &[PaddedShape],
        batch_size: usize,
        seed: u64,
        repeats: &[f64],
    ) -> Result<Self, OrderError> {
        let of = |portrait| {
            let images = 0..sizes.is_portrait.len();
            images.filter(|&image| sizes.is_portrait[image] == portrait).collect()
        };
        let is_last = |s: usize| s + 1 == sizes.num_landscape || s + 1 == shapes.len();
        let larger = (0..shapes.len()).map(|s| (!is_last(s)).then_some(s + 1)).collect();
        let groups = vec![of(false), of(true)];
        Self::of(groups, Some(sizes), larger, shapes, batch_size, seed, repeats)
    }

    fn of(
        groups: Vec<Vec<usize>>,
        drawn: Option<DrawnSizes>,
        larger: Vec<Option<usize>>,
        shapes: &[PaddedShape],
        batch_size: usize,
        seed: u64,
        repeats: &[f64],
    ) -> Result<Self, OrderError> {
        if groups.iter().all(Vec::is_empty) {
            return Err(OrderError::NoImages);
        }
        if batch_size == 0 {
            return Err(OrderError::NoBatch);
        }
        let mut order = Order {
            groups,
            drawn,
            larger,
            shapes: shapes.to_vec(),
            ascending: ascending(shapes),
            repeats: repeats.to_vec(),
            batch_size,
            seed,
            batches_per_epoch: 0,
            cache: Mutex::new(None),
        };
        order.batches_per_epoch = order.epoch_batches(0).len();
        Ok(order)
    }

    /// Number of steps per epoch, at least 1; equal in every epoch.
    #[must_use]
    pub fn batches_per_epoch(&self) -> usize {
        self.batches_per_epoch
    }

    /// The batch of a step; steps are counted from 0 over all epochs.
    #[must_use]
    pub fn batch(&self, step: u64) -> Batch {
        let per_epoch = self.batches_per_epoch as u64;
        let epoch = step / per_epoch;
        let batches = {
            // A poisoned lock is ignored: an epoch is only stored when it is complete, even if a
            // thread panics.
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            match &*cache {
                Some((cached, batches)) if *cached == epoch => Arc::clone(batches),
                _ => {
                    let batches = Arc::new(self.epoch_batches(epoch));
                    *cache = Some((epoch, Arc::clone(&batches)));
                    batches
                }
            }
        };
        let (shape, copies) = &batches[(step % per_epoch) as usize];
        let (images, copies) = copies.iter().copied().unzip();
        Batch { epoch, shape: *shape, images, copies }
    }

    /// The shape of an image's copy in an epoch.
    fn shape_of(&self, epoch: u64, group: usize, (image, copy): Copy) -> usize {
        let Some(DrawnSizes { num_landscape, size, .. }) = &self.drawn else { return group };
        let (height, width) = size(epoch, image, copy);
        let (first, end) =
            if group == 0 { (0, *num_landscape) } else { (*num_landscape, self.shapes.len()) };
        let holds = |s: &usize| self.shapes[*s].holds(height as usize, width as usize);
        (first..end).find(holds).unwrap_or(end - 1)
    }

    /// All copies of the images in `groups[group]` in an epoch.
    fn copies(&self, epoch: u64, group: usize) -> Vec<Copy> {
        let images = &self.groups[group];
        if self.repeats.is_empty() {
            return images.iter().map(|&image| (image, 0)).collect();
        }
        // Systematic sampling: the fractional parts of `repeats` form consecutive intervals, and
        // each point at an integer plus the offset adds a copy to the image whose interval contains
        // the point.
        let total: f64 = images.iter().map(|&image| self.repeats[image].fract()).sum();
        let further = total.round();
        let offset = unit(self.key(epoch, Purpose::Copies { group }, 0));
        let (mut sum, mut before) = (0.0, 0);
        let mut copies = Vec::new();
        for &image in images {
            let repeats = self.repeats[image];
            sum += repeats.fract();
            let end = if total > 0.0 { sum / total * further } else { 0.0 };
            let until = (end - offset).ceil().max(0.0) as u32;
            let count = repeats as u32 + (until - before);
            copies.extend((0..count).map(|copy| (image, copy)));
            before = until;
        }
        copies
    }

    /// All batches of an epoch, in order.
    fn epoch_batches(&self, epoch: u64) -> Vec<ShapeBatch> {
        // For each shape, its own images and those left over from smaller shapes.
        let mut waiting = vec![Vec::new(); self.shapes.len()];
        for group in 0..self.groups.len() {
            for copy in self.copies(epoch, group) {
                waiting[self.shape_of(epoch, group, copy)].push(copy);
            }
        }
        let mut batches: Vec<ShapeBatch> = Vec::new();
        for &shape in &self.ascending {
            let mut images: Vec<Copy> = std::mem::take(&mut waiting[shape]);
            // The random sort keys depend only on this shape, so that left-over images of smaller
            // shapes are shuffled together with its own images.
            let purpose = Purpose::Images { shape };
            images.sort_by_cached_key(|&(i, copy)| {
                let place = i + copy as usize * self.repeats.len();
                (self.key(epoch, purpose, place), place)
            });
            let left_over = match self.larger[shape] {
                Some(_) => images.len() % self.batch_size,
                None => 0,
            };
            let rest = images.split_off(images.len() - left_over);
            if let Some(larger) = self.larger[shape] {
                waiting[larger].extend(rest);
            }
            batches.extend(images.chunks(self.batch_size).map(|chunk| (shape, chunk.to_vec())));
        }
        let mut shuffled: Vec<(u64, usize)> =
            (0..batches.len()).map(|b| (self.key(epoch, Purpose::Batches, b), b)).collect();
        shuffled.sort_unstable();
        shuffled.into_iter().map(|(_, b)| std::mem::take(&mut batches[b])).collect()
    }

    /// A random number that depends only on the seed and the arguments.
    fn key(&self, epoch: u64, purpose: Purpose, index: usize) -> u64 {
        let purpose = match purpose {
            Purpose::Batches => 0,
            Purpose::Images { shape } => 1 + shape as u64,
            Purpose::Copies { group } => u64::MAX - group as u64,
        };
        [epoch, purpose, index as u64].into_iter().fold(mix(self.seed), |h, word| mix(h ^ word))
    }
}

/// Indices of the shapes, in ascending order of area.
fn ascending(shapes: &[PaddedShape]) -> Vec<usize> {
    let mut ascending: Vec<usize> = (0..shapes.len()).collect();
    ascending.sort_by_key(|&s| (shapes[s].area(), s));
    ascending
}

/// The shape with the smallest area in which an image fits; if areas are equal, the shape with the
/// image's orientation.
fn smallest(shapes: &[PaddedShape], height: usize, width: usize) -> Option<usize> {
    (0..shapes.len()).filter(|&s| shapes[s].holds(height, width)).min_by_key(|&s| {
        let PaddedShape { height: rows, width: columns } = shapes[s];
        (shapes[s].area(), (rows > columns) != (height > width), s)
    })
}

/// The next shape after `s` in ascending order that contains `s`. If two shapes are equal, the one
/// with the larger index counts as larger.
fn next_larger(shapes: &[PaddedShape], ascending: &[usize], s: usize) -> Option<usize> {
    let PaddedShape { height, width } = shapes[s];
    let after = ascending.iter().skip_while(|&&other| other != s).skip(1);
    after.copied().find(|&other| shapes[other].holds(height, width))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{choose_oriented_shapes, choose_shapes};

    /// Random sets of images, from a handful to a few hundred.
    fn random_sets() -> impl Iterator<Item = (Vec<(u32, u32)>, usize, usize)> {
        let mut state = 42_u64;
        let mut random = move |n: u64| {
            state = mix(state);
            state % n
        };
        (0..150).map(move |_| {
            let n = 1 + random(300);
            let sizes = (0..n).map(|_| (1 + random(120) as u32, 1 + random(120) as u32)).collect();
            (sizes, 1 + random(4) as usize, 1 + random(17) as usize)
        })
    }

    fn epoch(order: &Order, epoch: u64) -> Vec<Batch> {
        let n = order.batches_per_epoch() as u64;
        (epoch * n..(epoch + 1) * n).map(|step| order.batch(step)).collect()
    }

    #[test]
    fn epoch_has_each_image_once_in_a_shape_that_fits() {
        for (sizes, k, batch_size) in random_sets() {
            let shapes = choose_shapes(&sizes, k, 16);
            let order =
                Order::new(&sizes, &shapes, batch_size, 3, &[]).expect("shapes of these sizes");
            for e in [0, 1, 7] {
                let mut seen = vec![0; sizes.len()];
                let mut short_batches = Vec::new();
                for batch in epoch(&order, e) {
                    assert_eq!(batch.epoch, e);
                    assert!(!batch.images.is_empty() && batch.images.len() <= batch_size);
                    if batch.images.len() < batch_size {
                        short_batches.push(shapes[batch.shape].height > shapes[batch.shape].width);
                    }
                    for image in batch.images {
                        seen[image] += 1;
                        let (h, w) = sizes[image];
                        assert!(shapes[batch.shape].holds(h as usize, w as usize));
                    }
                }
                assert!(seen.iter().all(|&times| times == 1));
                // Each orientation has at most one batch with fewer images, its last one.
                short_batches.sort_unstable();
                let all = short_batches.len();
                short_batches.dedup();
                assert_eq!(short_batches.len(), all, "two short batches of one orientation");
            }
        }
    }

    #[test]
    fn batch_depends_only_on_step() {
        for (sizes, k, batch_size) in random_sets().take(30) {
            let shapes = choose_shapes(&sizes, k, 16);
            let new = || Order::new(&sizes, &shapes, batch_size, 11, &[]).expect("sound");
            let (forwards, backwards) = (new(), new());
            let steps = 3 * forwards.batches_per_epoch() as u64;
            let ahead: Vec<Batch> = (0..steps).map(|s| forwards.batch(s)).collect();
            let mut back: Vec<Batch> = (0..steps).rev().map(|s| backwards.batch(s)).collect();
            back.reverse();
            assert_eq!(ahead, back);
        }
    }

    #[test]
    fn order_differs_by_epoch_and_seed() {
        let sizes: Vec<(u32, u32)> = (0..200).map(|i| (64, 64 + i % 60)).collect();
        let shapes = choose_shapes(&sizes, 2, 32);
        let images = |seed, e| {
            let order = Order::new(&sizes, &shapes, 8, seed, &[]).expect("sound");
            epoch(&order, e).into_iter().map(|b| (b.shape, b.images)).collect::<Vec<_>>()
        };
        assert_ne!(images(1, 0), images(1, 1));
        assert_ne!(images(1, 0), images(2, 0));
        assert_eq!(images(1, 5), images(1, 5));
        // Batches of different shapes are in random order, not sorted by size.
        let order: Vec<usize> = images(1, 0).into_iter().map(|(shape, _)| shape).collect();
        assert!(order.windows(2).any(|w| w[0] > w[1]) && order.windows(2).any(|w| w[0] < w[1]));
    }

    /// Consecutive epochs have different left-over images.
    #[test]
    fn leftover_images_change_every_epoch() {
        let sizes: Vec<(u32, u32)> = (0..90).map(|i| (64, if i < 45 { 64 } else { 96 })).collect();
        let shapes = choose_shapes(&sizes, 2, 32);
        let order = Order::new(&sizes, &shapes, 8, 0, &[]).expect("sound");
        let moved = |e| {
            let batches = epoch(&order, e).into_iter().filter(|b| b.shape == 1);
            let mut moved: Vec<usize> =
                batches.flat_map(|b| b.images).filter(|&i| i < 45).collect();
            moved.sort_unstable();
            moved
        };
        assert_eq!(moved(0).len(), 45 % 8);
        assert_ne!(moved(0), moved(1));
    }

    #[test]
    fn first_image_of_epoch_is_uniformly_distributed() {
        let sizes = vec![(32, 32); 16];
        let shapes = choose_shapes(&sizes, 1, 32);
        let order = Order::new(&sizes, &shapes, 1, 5, &[]).expect("sound");
        let mut firsts = [0_u32; 16];
        for e in 0..1600 {
            firsts[order.batch(e * 16).images[0]] += 1;
        }
        // The mean is 100, and the limits are five standard deviations of 9.7 away.
        assert!(firsts.iter().all(|&n| (51..150).contains(&n)), "{firsts:?}");
    }

    /// Every epoch has the same length. An image has `floor(r)` copies in each epoch, and the
    /// fractional part of `r` is the mean number of additional copies.
    #[test]
    fn image_occurs_as_often_as_its_repeat_count() {
        for (sizes, k, batch_size) in random_sets().take(20) {
            let shapes = choose_shapes(&sizes, k, 16);
            let repeats: Vec<f64> = (0..sizes.len()).map(|i| [1.0, 1.3, 2.5, 3.0][i % 4]).collect();
            let order = Order::new(&sizes, &shapes, batch_size, 3, &repeats).expect("sound");
            let mut counts = vec![0; sizes.len()];
            let (epochs, mut length) = (400, None);
            for e in 0..epochs {
                let batches = epoch(&order, e);
                let mut seen: Vec<_> =
                    batches.iter().flat_map(|b| b.images.iter().zip(&b.copies)).collect();
                let all = seen.len();
                assert_eq!(*length.get_or_insert(all), all, "epoch {e}");
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), all, "a copy twice");
                seen.iter().for_each(|(image, _)| counts[**image] += 1);
                for (image, &repeats) in repeats.iter().enumerate() {
                    assert!(seen.contains(&(&image, &(repeats as u32 - 1))), "{image}");
                }
            }
            let expected: f64 = repeats.iter().sum();
            let rounded = shapes.len() as f64 / 2.0;
            assert!((length.unwrap_or(0) as f64 - expected).abs() <= rounded);
            let enough = sizes.len() > 100;
            for (count, repeats) in counts.iter().zip(&repeats).filter(|_| enough && k == 1) {
                // The number of additional copies per shape is rounded, which changes each fraction
                // slightly.
                assert!((f64::from(*count) / epochs as f64 - repeats).abs() < 0.12, "{repeats}");
            }
        }
    }

    /// Sizes are sampled by a hash for each epoch, and are not larger than the last shape of the
    /// orientation.
    #[test]
    fn random_size_epochs_have_equal_length() {
        for (sources, k, batch_size) in random_sets().take(30) {
            let size = |epoch: u64, image: usize, copy: u32| {
                let word = mix(mix(epoch ^ mix(image as u64)) ^ u64::from(copy));
                (1 + (word % 100) as u32, 1 + (word >> 32) as u32 % 100)
            };
            let is_portrait: Vec<bool> = sources.iter().map(|(h, w)| h > w).collect();
            let drawn = (0..4).flat_map(|e| (0..sources.len()).map(move |i| (i, size(e, i, 0))));
            let bounds = (0..sources.len()).map(|i| (i, (100, 100)));
            let sizes: Vec<_> =
                drawn.chain(bounds).map(|(i, size)| (is_portrait[i], size)).collect();
            let [landscape, portrait] = choose_oriented_shapes(&sizes, k, 16);
            let (num_landscape, shapes) = (landscape.len(), [landscape, portrait].concat());
            let repeats: Vec<f64> = (0..sources.len()).map(|i| [1.0, 1.4, 2.0][i % 3]).collect();
            let drawn = DrawnSizes { is_portrait, num_landscape, size: Arc::new(size) };
            let order = Order::drawn(drawn, &shapes, batch_size, 3, &repeats).expect("sound");
            for e in 0..12 {
                assert_eq!(order.epoch_batches(e).len(), order.batches_per_epoch(), "epoch {e}");
                for batch in epoch(&order, e) {
                    for (image, copy) in batch.images.into_iter().zip(batch.copies) {
                        let (height, width) = size(e, image, copy);
                        assert!(shapes[batch.shape].holds(height as usize, width as usize));
                    }
                }
            }
        }
    }

    #[test]
    fn repeat_count_of_one_keeps_order() {
        let sizes: Vec<(u32, u32)> = (0..90).map(|i| (64, 64 + i)).collect();
        let shapes = choose_shapes(&sizes, 3, 32);
        let plain = Order::new(&sizes, &shapes, 8, 5, &[]).expect("sound");
        let once = Order::new(&sizes, &shapes, 8, 5, &[1.0; 90]).expect("sound");
        assert_eq!(epoch(&plain, 3), epoch(&once, 3));
    }

    #[test]
    fn invalid_batch_options_are_rejected() {
        let shape = [PaddedShape { height: 32, width: 64 }];
        let error = |sizes: &[(u32, u32)], batch| {
            Order::new(sizes, &shape, batch, 0, &[]).expect_err("refused").to_string()
        };
        assert!(error(&[], 1).starts_with("there are no images"));
        assert!(error(&[(1, 1)], 0).starts_with("the batch size is 0"));
        assert_eq!(
            error(&[(8, 8), (64, 32)], 1),
            "image 1 of 64x32 (height x width, resized) fits none of the padded shapes 32x64; \
             choose the shapes for these sizes"
        );
    }
}

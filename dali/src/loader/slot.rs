//! The layout of a slot: fixed capacities, counts beside them, as a captured graph needs it.

use crate::error::DaliError;
use crate::store::Header;

/// `segm_index` kind: polygons.
pub const SEGM_POLYGONS: i32 = 0;
/// `segm_index` kind: runs.
pub const SEGM_RUNS: i32 = 1;

/// Capacities of a slot: N images, and per image its bytes, G objects, parts, coords, runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotShape {
    /// Images (N).
    pub images: usize,
    /// Bytes an image, `max H * W * 3`.
    pub pixels: usize,
    /// Objects an image (G).
    pub objects: usize,
    /// Polygon rings and run lists an image.
    pub parts: usize,
    /// Polygon coordinates an image, in values.
    pub coords: usize,
    /// Run lengths an image.
    pub runs: usize,
}

impl SlotShape {
    /// The shape that holds any `images` images of a store.
    pub fn for_store(header: &Header, images: usize) -> SlotShape {
        let capacities = header.capacities;
        SlotShape {
            images,
            pixels: capacities.pixels * 3,
            objects: capacities.objects,
            parts: capacities.parts,
            coords: capacities.coords,
            runs: capacities.runs,
        }
    }

    /// Bytes of one slot.
    pub fn bytes(&self) -> usize {
        let words = 2 + 4 + 1 + self.objects * (4 + 1 + 3) + self.parts * 2;
        4 + self.images * (self.pixels + 4 * (words + self.coords + self.runs))
    }
}

/// One batch, in memory of the caller's; every slice has exactly the size stated.
///
/// Entries past `gt_counts` of an image, and all of the images past `num_images`, are zero, but
/// for `pixels`, which keep what stood there.
#[derive(Debug)]
pub struct Slot<'a> {
    /// `[N, pixels]` u8: RGB, `[H, W, 3]` of each image at the row's beginning.
    pub pixels: &'a mut [u8],
    /// `[N, 2]`: source height and width.
    pub image_sizes: &'a mut [i32],
    /// `[N, 4]`: image id (low, high 32 bits), index in the store, epoch.
    pub image_keys: &'a mut [i32],
    /// `[1]`: images in use.
    pub num_images: &'a mut [i32],
    /// `[N, G, 4]`: x1, y1, x2, y2 in source pixels (x2 = x + w).
    pub gt_boxes: &'a mut [f32],
    /// `[N, G]`: class 1..K; 0 is padding.
    pub gt_classes: &'a mut [i32],
    /// `[N]`: objects in use.
    pub gt_counts: &'a mut [i32],
    /// `[N, G, 3]`: kind ([`SEGM_POLYGONS`], [`SEGM_RUNS`]), first part, number of parts.
    pub segm_index: &'a mut [i32],
    /// `[N, parts, 2]`: offset and length, in values, into the image's coords or runs.
    pub segm_parts: &'a mut [i32],
    /// `[N, coords]`: x, y in source pixels.
    pub coords: &'a mut [f32],
    /// `[N, runs]`: run lengths down the columns, beginning with zeros.
    pub runs: &'a mut [i32],
}

/// The rows of a [`Slot`] that belong to one image.
pub(super) struct ImageRows<'a> {
    pub(super) pixels: &'a mut [u8],
    pub(super) size: &'a mut [i32],
    pub(super) key: &'a mut [i32],
    pub(super) gt_boxes: &'a mut [f32],
    pub(super) gt_classes: &'a mut [i32],
    pub(super) gt_count: &'a mut [i32],
    pub(super) segm_index: &'a mut [i32],
    pub(super) segm_parts: &'a mut [i32],
    pub(super) coords: &'a mut [f32],
    pub(super) runs: &'a mut [i32],
}

impl<'a> Slot<'a> {
    /// Cuts the slot, whose number of images is the length of `gt_counts`, into its images.
    ///
    /// # Errors
    /// [`DaliError::Slot`] where a slice is no whole number of rows.
    pub(super) fn into_images(self) -> Result<Vec<ImageRows<'a>>, DaliError> {
        let n = self.gt_counts.len();
        let mut pixels = rows("pixels", self.pixels, n)?;
        let mut size = rows("image_sizes", self.image_sizes, n)?;
        let mut key = rows("image_keys", self.image_keys, n)?;
        let mut gt_boxes = rows("gt_boxes", self.gt_boxes, n)?;
        let mut gt_classes = rows("gt_classes", self.gt_classes, n)?;
        let mut gt_count = rows("gt_counts", self.gt_counts, n)?;
        let mut segm_index = rows("segm_index", self.segm_index, n)?;
        let mut segm_parts = rows("segm_parts", self.segm_parts, n)?;
        let mut coords = rows("coords", self.coords, n)?;
        let mut runs = rows("runs", self.runs, n)?;
        let mut images = Vec::with_capacity(n);
        while let (Some(pixels), Some(size), Some(key), Some(gt_boxes), Some(gt_classes)) =
            (pixels.next(), size.next(), key.next(), gt_boxes.next(), gt_classes.next())
        {
            let (Some(gt_count), Some(segm_index), Some(segm_parts), Some(coords), Some(runs)) =
                (gt_count.next(), segm_index.next(), segm_parts.next(), coords.next(), runs.next())
            else {
                break;
            };
            images.push(ImageRows {
                pixels,
                size,
                key,
                gt_boxes,
                gt_classes,
                gt_count,
                segm_index,
                segm_parts,
                coords,
                runs,
            });
        }
        Ok(images)
    }
}

/// Cuts `slice` into `n` rows of the same length, which may be zero.
fn rows<'a, T>(
    what: &str,
    slice: &'a mut [T],
    n: usize,
) -> Result<impl Iterator<Item = &'a mut [T]> + use<'a, T>, DaliError> {
    let width = slice.len().checked_div(n).unwrap_or(0);
    if width * n != slice.len() {
        let what = format!("{what} is no whole number of rows for {n} images");
        return Err(DaliError::Slot { what, need: (width + 1) * n, have: slice.len() });
    }
    let mut rest = slice;
    Ok((0..n).map(move |_| {
        let (row, tail) = std::mem::take(&mut rest).split_at_mut(width);
        rest = tail;
        row
    }))
}

/// A slot in memory of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnedSlot {
    /// Its capacities.
    pub shape: SlotShape,
    /// See [`Slot::pixels`].
    pub pixels: Vec<u8>,
    /// See [`Slot::image_sizes`].
    pub image_sizes: Vec<i32>,
    /// See [`Slot::image_keys`].
    pub image_keys: Vec<i32>,
    /// See [`Slot::num_images`].
    pub num_images: Vec<i32>,
    /// See [`Slot::gt_boxes`].
    pub gt_boxes: Vec<f32>,
    /// See [`Slot::gt_classes`].
    pub gt_classes: Vec<i32>,
    /// See [`Slot::gt_counts`].
    pub gt_counts: Vec<i32>,
    /// See [`Slot::segm_index`].
    pub segm_index: Vec<i32>,
    /// See [`Slot::segm_parts`].
    pub segm_parts: Vec<i32>,
    /// See [`Slot::coords`].
    pub coords: Vec<f32>,
    /// See [`Slot::runs`].
    pub runs: Vec<i32>,
}

impl OwnedSlot {
    /// An empty slot of this shape, all zeros.
    pub fn new(shape: SlotShape) -> OwnedSlot {
        let SlotShape { images: n, objects: g, .. } = shape;
        OwnedSlot {
            shape,
            pixels: vec![0; n * shape.pixels],
            image_sizes: vec![0; n * 2],
            image_keys: vec![0; n * 4],
            num_images: vec![0; 1],
            gt_boxes: vec![0.0; n * g * 4],
            gt_classes: vec![0; n * g],
            gt_counts: vec![0; n],
            segm_index: vec![0; n * g * 3],
            segm_parts: vec![0; n * shape.parts * 2],
            coords: vec![0.0; n * shape.coords],
            runs: vec![0; n * shape.runs],
        }
    }

    /// The slot as slices, for [`super::fill_slot`].
    pub fn as_slot(&mut self) -> Slot<'_> {
        Slot {
            pixels: &mut self.pixels,
            image_sizes: &mut self.image_sizes,
            image_keys: &mut self.image_keys,
            num_images: &mut self.num_images,
            gt_boxes: &mut self.gt_boxes,
            gt_classes: &mut self.gt_classes,
            gt_counts: &mut self.gt_counts,
            segm_index: &mut self.segm_index,
            segm_parts: &mut self.segm_parts,
            coords: &mut self.coords,
            runs: &mut self.runs,
        }
    }
}
